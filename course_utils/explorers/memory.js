// Pairs of a key and a value are written into a small state, one after the other, and read back.
export const size = [560, 376];

const { writes, values, colors } = given;
const D = values[0].length;
const NAMES = [...new Set(writes)];
const [LOW, HIGH] = [-2, 2]; // numbers that the colors tell apart
const EXACT = 0.005; // a smaller error is written as 0.00

const upTo = (end) => Array.from({ length: end }, (_, index) => index);
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const product = (a, b) => sum(a.map((number, index) => number * b[index]));

// The number of the last pair with a key among those written, or −1.
const latest = (key, written) => writes.slice(0, written).lastIndexOf(key);
const keyOf = (name, keys) => given.keys[keys][NAMES.indexOf(name)];
const readFrom = (state, key) =>
  upTo(D).map((column) => product(key, state.map((row) => row[column])));

// The state after the first pairs. Each decays the state, then adds its key times what it writes.
function stateOf({ written, delta, decay, keys }) {
  let state = upTo(D).map(() => Array(D).fill(0));
  for (const n of upTo(written)) {
    const key = keyOf(writes[n], keys);
    state = state.map((row) => row.map((number) => decay * number));
    const recalled = readFrom(state, key);
    const added = values[n].map((number, column) => number - (delta ? recalled[column] : 0));
    state = state.map((row, at) => row.map((number, column) => number + key[at] * added[column]));
  }
  return state;
}

// What a key recalls: the numbers, the error as a part of the norm of the value that it should
// recall, and whether that value fits better than all others that were written.
function recall(state, name, { written, keys }) {
  const recalled = readFrom(state, keyOf(name, keys));
  const wanted = latest(name, written);
  if (wanted < 0) return { recalled, wanted };
  const off = recalled.map((number, column) => number - values[wanted][column]);
  const fits = values.slice(0, written).map((value) => product(value, recalled));
  const [fit] = fits.splice(wanted, 1);
  const error = Math.sqrt(product(off, off) / D);
  return { recalled, wanted, error, right: fit > Math.max(...fits) + 1e-9 };
}

// What each key recalls that was written, by its name.
function recallAll(settings) {
  const state = stateOf(settings);
  const known = NAMES.filter((name) => latest(name, settings.written) >= 0);
  return Object.fromEntries(known.map((name) => [name, recall(state, name, settings)]));
}

const rightIn = (all) => Object.values(all).filter(({ right }) => right).length;
const meanOf = (numbers) => sum(numbers) / numbers.length;
const meanError = (all) => meanOf(Object.values(all).map(({ error }) => error));
const vector = (numbers) => `(${numbers.map((number) => fixed(number, 2)).join(", ")})`;

export function describe(settings) {
  const { written, read, delta, decay, keys } = settings;
  const rule = `${delta ? "delta rule" : "no delta rule"}, decay ${fixed(decay, 2)}, ${keys} keys`;
  const { recalled, wanted, error, right } = recall(stateOf(settings), read, settings);
  const all = recallAll(settings);
  const many = Object.keys(all).length;
  const fit = right ? "and every other value fits worse" : "but another value fits at least as well";
  const result = wanted < 0
    ? ", but it was not written"
    : `. Its latest value is ${vector(values[wanted])}. ` +
      `The error is ${fixed(error, 2)} times the norm of that value, ${fit}`;
  const summary = many
    ? `. ${rightIn(all)} of ${many} keys recall the right value, and the mean error is ` +
      fixed(meanError(all), 2)
    : "";
  return (
    `${written} of ${writes.length} pairs written, ${rule}. Key ${read} recalls ` +
    vector(recalled) + result + summary + finding(settings, all) + "."
  );
}

// What the lesson asks to find, if this is it.
function finding(settings, all) {
  const { written, read, delta, decay } = settings;
  const errors = Object.values(all).map(({ error }) => error);
  if (written === D && Math.max(...errors) < EXACT) {
    return `; found: ${D} keys that do not overlap are all recalled exactly`;
  }
  if (!delta || decay < 1) return "";
  const added = recallAll({ ...settings, delta: false });
  if (written === 5 && read === "a") {
    return (
      `; found: the delta rule replaced the first value of a; without it, the error is ` +
      fixed(added.a.error, 2)
    );
  }
  if (rightIn(all) < rightIn(added)) {
    return (
      `; found: without the delta rule, ${rightIn(added)} keys recall the right value, although ` +
      `their mean error is ${fixed(meanError(added), 2)}`
    );
  }
  return "";
}

const [TOP, ROW] = [48, 32]; // of the pairs
const [KEY, VALUE, ERROR] = [34, 116, 204]; // where the columns of the pairs begin
const [CELL, HEIGHT] = [18, 22];
const [BAR, MOST] = [86, 2]; // pixels, for an error of so much
const SMALL = { "font-size": 12 };
const FRAME = { fill: "none", stroke: "currentColor" };

const look = filledBy(shades(colors, LOW, HIGH));

export function picture(svg, update) {
  const showPairs = pairs(svg, update);
  const showState = stateMap(svg, [386, TOP, 136, 136]);
  const showRead = readOut(svg, 386, 222);
  const [left, top] = [386, 326];
  fade(svg, [left, top, 136, 12], shades(colors, LOW, HIGH), [LOW, HIGH]);
  for (const [tick, at] of [["−2", 0], ["0", 68], ["2", 136]]) {
    const place = { x: left + at, y: top + 27, ...SMALL };
    shape(svg, "text", { ...place, "text-anchor": "middle", text: tick });
  }
  return (settings) => {
    const state = stateOf(settings);
    showPairs(settings, recallAll(settings));
    showState(state);
    showRead(settings, recall(state, settings.read, settings));
  };
}

// Draw a row for each pair, with the error of reading its key. Return a function that updates them.
function pairs(svg, update) {
  const title = (x, text) => shape(svg, "text", { x, y: TOP - 12, ...SMALL, text });
  title(KEY, "key");
  title(VALUE, "value");
  title(ERROR, "error (✗: wrong value)");
  const draw = layered(svg, [LOW, HIGH], look);
  const rows = writes.map((name, n) => {
    const y = TOP + ROW * n;
    const middle = { y: y + HEIGHT / 2 + 4.5 };
    shape(svg, "text", { x: 14, ...middle, "font-weight": "bold", text: name });
    for (const x of [KEY, VALUE]) {
      shape(svg, "rect", { x, y, width: D * CELL, height: HEIGHT, ...FRAME, "stroke-width": 0.5 });
    }
    const bar = shape(svg, "rect", { x: ERROR, y: y + 4, height: HEIGHT - 8, fill: COLORS[0] });
    return { bar, note: shape(svg, "text", { ...middle, ...SMALL }) };
  });
  const chosen = shape(svg, "path", { ...RED, "stroke-width": 2 });
  clicked(svg, [0, TOP - 5, 360, ROW * writes.length], ([, y]) => {
    update({ read: writes[within(Math.floor((y - TOP + 5) / ROW), writes.length)] });
  });
  return ({ written, read, keys }, all) => {
    draw(
      upTo(written).flatMap((n) => [
        ...tiled([KEY, TOP + ROW * n, D * CELL, HEIGHT], [keyOf(writes[n], keys)]),
        ...tiled([VALUE, TOP + ROW * n, D * CELL, HEIGHT], [values[n]]),
      ]),
    );
    rows.forEach(({ bar, note }, n) => {
      const last = latest(writes[n], written) === n;
      const { error = 0, right } = last ? all[writes[n]] : {};
      const width = (BAR * Math.min(error, MOST)) / MOST;
      change(bar, { width, fill: COLORS[right ? 0 : 1] });
      const text = last ? `${fixed(error, 2)}${right ? "" : " ✗"}` : "written again below";
      change(note, { x: ERROR + width + 6, text: n < written ? text : "" });
    });
    const framed = upTo(writes.length).filter((n) => writes[n] === read);
    const box = (n) => `M 7 ${TOP + ROW * n - 4} h ${VALUE + D * CELL - 2} v ${HEIGHT + 8} ` +
      `h ${2 - VALUE - D * CELL} Z`;
    change(chosen, { d: framed.map(box).join(" ") });
  };
}

// Draw the state. Return a function that updates it.
function stateMap(svg, frame) {
  const [left, top, width, height] = frame;
  const middle = { x: left + width / 2, "text-anchor": "middle", ...SMALL };
  shape(svg, "text", { ...middle, y: top - 12, text: "state (d_k rows, d_v columns)" });
  const draw = layered(svg, [LOW, HIGH], look);
  shape(svg, "rect", { x: left, y: top, width, height, ...FRAME });
  return (state) => draw(tiled(frame, state));
}

// Draw the recalled value above the one that was written. Return a function that updates them.
function readOut(svg, left, top) {
  const line = (y) => shape(svg, "text", { x: left, y, ...SMALL });
  const frames = [top, top + 50].map((y) => [left, y, 136, HEIGHT]);
  const titles = frames.map(([, y]) => line(y - 6));
  const draw = layered(svg, [LOW, HIGH], look);
  for (const [x, y, width, height] of frames) shape(svg, "rect", { x, y, width, height, ...FRAME });
  return ({ read }, { recalled, wanted }) => {
    change(titles[0], { text: `key ${read} recalls` });
    change(titles[1], { text: wanted < 0 ? `${read} was not written` : `latest value of ${read}` });
    const written = wanted < 0 ? [] : tiled(frames[1], [values[wanted]]);
    draw([...tiled(frames[0], [recalled]), ...written]);
  };
}
