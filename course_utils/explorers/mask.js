// A mask of eight tokens, combined from five masks, and the attention weights with it.
export const size = [560, 300];

const { n, scores, colors } = given;
const TOKENS = Array.from({ length: n }, (_, token) => token);
const CELL = 29; // pixels, with room for a weight
const EVEN = 0.47; // the weight at which black and white text are equally easy to read
const colorOf = shades(colors, 0, 1);

// The chosen masks by name: what each is called, and whether query i may see key j.
function chosenFrom({ causal, window, prefix, padding, side, documents }) {
  const documentOf = (i) => Math.floor((i * documents) / n);
  const tokens = padding === 1 ? "token" : "tokens";
  const isReal = (j) => (side === "right" ? j < n - padding : j >= padding);
  const all = {
    causal: [causal, "causal", (i, j) => j <= i],
    window: [window, `window ${window}`, (i, j) => j <= i && i - j < window],
    prefix: [prefix, `prefix ${prefix}`, (i, j) => j <= i || j < prefix],
    padding: [padding, `${padding} padding ${tokens} on the ${side}`, (_, j) => isReal(j)],
    documents: [
      documents > 1, `${documents} documents`, (i, j) => documentOf(i) === documentOf(j),
    ],
  };
  const chosen = Object.entries(all).filter(([, [isChosen]]) => isChosen);
  return Object.fromEntries(chosen.map(([name, [, called, sees]]) => [name, { called, sees }]));
}

// Combine masks into one, as rows of booleans. Without any mask, everything is allowed.
function combined(masks, join) {
  const every = Object.values(masks).map(({ sees }) => sees);
  const allows = (i, j) => {
    if (join === "and") return every.every((sees) => sees(i, j));
    return !every.length || every.some((sees) => sees(i, j));
  };
  return TOKENS.map((i) => TOKENS.map((j) => allows(i, j)));
}

function finalMask(values) {
  const mask = combined(chosenFrom(values), values.join);
  for (const [i, j] of pairsIn(values.toggled)) mask[i][j] = !mask[i][j];
  return mask;
}

export function describe(values) {
  const { join, toggled } = values;
  const chosen = chosenFrom(values);
  const names = Object.values(chosen).map(({ called }) => called);
  const pairs = pairsIn(toggled);
  const mask = finalMask(values);
  const byHand = pairs.length ? `, toggled pairs: ${written(pairs)}` : "";
  const seen = mask.map((row, i) => `query ${i}: ${runs(row) || "none"}`);
  return (
    `${names.join(` ${join} `) || "no mask"}${byHand}: ` +
    `${mask.flat().filter(Boolean).length} of ${n * n} pairs allowed; ` +
    `rows with no allowed key: ${runs(mask.map(isEmpty)) || "none"}; keys that each query sees: ${seen.join("; ")}` +
    `${pairs.length ? "" : finding(chosen, values, mask)}`
  );
}

// Which of the lesson's questions the combined mask answers.
function finding(chosen, { join, side, window }, mask) {
  const before = combined(chosen, "and").map(isEmpty);
  if (chosen.causal && chosen.padding && side === "left") {
    if (join === "and") {
      return `; found: rows ${runs(before)} have no allowed key, one for each padding token`;
    }
    if (before.some(Boolean) && !mask.some(isEmpty)) {
      return `; found: with "or", rows ${runs(before)} have an allowed key again`;
    }
  }
  if (chosen.causal && chosen.prefix && join === "and") {
    const { prefix, ...others } = chosen;
    if (`${combined(others, join)}` === `${mask}`) {
      return "; found: with \"and\", the prefix has no effect: the causal mask still hides the future";
    }
  }
  if (chosen.documents && window === n && join === "and") {
    return "; found: the widest window is the causal mask, inside each document";
  }
  if (`${Object.keys(chosen)}` === "causal,documents" && join === "or") {
    return "; found: every token sees all earlier tokens, and the future of its own document";
  }
  return "";
}

const isEmpty = (row) => !row.some(Boolean);

// Pairs of query and key, read from "0-7, 3-4". Pairs outside the n tokens are left out.
function pairsIn(text) {
  const read = [...text.matchAll(/([0-9]+)\s*-\s*([0-9]+)/g)];
  const pairs = read.map(([, i, j]) => [Number(i), Number(j)]);
  return pairs.filter((pair, index) => {
    return Math.max(...pair) < n && pairs.findIndex((other) => same(other, pair)) === index;
  });
}

const same = (one, other) => one[0] === other[0] && one[1] === other[1];

// Write pairs of query and key as `pairsIn` reads them.
const written = (pairs) => pairs.map((pair) => pair.join("-")).join(", ");

// The positions of the true flags, counted from 0: "0–2 and 4".
function runs(flags) {
  const at = [...flags.keys()].filter((i) => flags[i]);
  const ends = at.filter((i) => !flags[i + 1]);
  const starts = at.filter((i) => !flags[i - 1]);
  return starts.map((a, run) => (a === ends[run] ? `${a}` : `${a}–${ends[run]}`)).join(" and ");
}

// The attention weights with a mask. A query with no allowed key has weights of 0.
function weigh(mask) {
  return mask.map((row, i) => {
    if (isEmpty(row)) return row.map(() => 0);
    return softmax(row.map((allowed, j) => (allowed ? scores[i][j] : -Infinity)));
  });
}

export function picture(svg, update) {
  let pairs; // the toggled ones
  const toggle = (pair) => {
    const others = pairs.filter((other) => !same(other, pair));
    update({ toggled: written(others.length < pairs.length ? others : [...pairs, pair]) });
  };
  const showPattern = square(svg, 40, "mask (light: may attend)", toggle);
  const showWeights = square(svg, 326, "weights", toggle);
  return (values) => {
    pairs = pairsIn(values.toggled);
    const mask = finalMask(values);
    const weights = weigh(mask);
    showPattern(mask, mask.map((row) => row.map(Number)));
    showWeights(mask, weights, (i, j) => (mask[i][j] ? fixed(weights[i][j], 2) : ""));
  };
}

// Draw a matrix of queries and keys, in which a click toggles a pair. Returns a function that
// shows numbers from 0 to 1 with their labels, and hatches the rows with no allowed key.
function square(svg, left, title, toggle) {
  const frame = [left, 26, n * CELL, n * CELL];
  const above = { x: left + (n * CELL) / 2, y: 16, "text-anchor": "middle", "font-size": 15 };
  shape(svg, "text", { ...above, text: title });
  const parts = cells(svg, frame, n, n);
  for (const part of parts.flat()) change(part, { stroke: "white" });
  const ax = axes(svg, {
    frame,
    x: [-0.5, n - 0.5], y: [n - 0.5, -0.5], xticks: TOKENS, yticks: TOKENS,
    xlabel: "keys", ylabel: "queries", away: 24,
  });
  const small = { "font-size": 12, "text-anchor": "middle" };
  const texts = TOKENS.map((i) =>
    TOKENS.map((j) => shape(svg, "text", { x: ax.x(j), y: ax.y(i) + 4.5, ...small })),
  );
  const marks = TOKENS.map((i) => {
    const mark = shape(svg, "g", { stroke: BROKEN_COLOR });
    const [x, y, width, height] = [left + 1, ax.y(i) - CELL / 2 + 2, n * CELL - 2, CELL - 4];
    shape(mark, "rect", { x, y, width, height, fill: "mistyrose" });
    shape(mark, "path", { d: hatch(x, y, width, height) });
    return mark;
  });
  clicked(svg, frame, (point) => {
    const [key, query] = ax.at(point).map((at) => Math.min(Math.round(at), n - 1));
    toggle([query, key]);
  });
  return (mask, values, write = () => "") => {
    for (const i of TOKENS) {
      for (const j of TOKENS) {
        const fill = values[i][j] > EVEN ? "black" : "white";
        change(parts[i][j], { fill: colorOf(values[i][j]) });
        change(texts[i][j], { fill, text: write(i, j) });
      }
      change(marks[i], { visibility: isEmpty(mask[i]) ? "visible" : "hidden" });
    }
  };
}
