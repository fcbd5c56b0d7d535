// Heads and loss of a training: new steps while it is shown, and all of them afterwards.
const { tokens, layers, heads, steps, every, colours } = given;
const length = tokens.length;
const LEFT = 48; // of the heads, in pixels of the picture
const TOP = 24;
const BETWEEN = [12, 30]; // heads: beside, and above one its name
const SIDE = Math.min(Math.max((322 - (heads - 1) * BETWEEN[0]) / heads, 96), 144);
const BELOW = 42;
const HEADS_END = LEFT + heads * (SIDE + BETWEEN[0]) - BETWEEN[0];
const LOSS_LEFT = HEADS_END + 54;

export const size = [
  Math.max(560, LOSS_LEFT + 136),
  TOP + layers * (SIDE + BETWEEN[1]) - BETWEEN[1] + BELOW,
];

const HEAD_NAMES = { "font-size": 12, "text-anchor": "middle" };
const GREY = [140, 140, 140, 255];
// red, green, blue and opacity of each weight in thousandths; of NaN, which is sent as -1
const colourOf = shades(colours, 0, 1000);
const PIXELS = Array.from({ length: 1001 }, (_, weight) => [
  ...colourOf(weight).match(/\d+/g).map(Number), 255,
]);

const LEAST_RISE = 0.2; // of a score in the whole training: below it no head learned that pattern
const SCORES = ["previous-token", "induction"];
// For each score and query, the keys whose weights it adds up.
const positions = [...tokens.keys()];
const TARGETS = [
  positions.map((i) => positions.filter((j) => j === i - 1)),
  positions.map((i) => positions.filter((j) => j > 0 && j <= i && tokens[j - 1] === tokens[i])),
];

// What is known so far: the loss of each step, null where it is no number, and pictures, each with
// its step and the weights (layers, heads, L, L) in thousandths.
let known = { losses: [], pictures: [] };

// Begin with what is known to the model. All that comes is added to it: what is saved has it, too.
export function begin(all) {
  known = all;
}

export function take(news) {
  known.losses.push(...news.losses);
  known.pictures.push(...news.pictures);
}

export function highest() {
  return { step: Math.max(known.pictures.at(-1)?.step ?? 0, every) };
}

// The last picture of those up to the step that is chosen, if there is one.
const pictureAt = (step) => known.pictures.findLast((each) => each.step <= step);

const computed = new WeakMap();

// The two scores of a picture's heads, [score][head], with the heads of all layers in one row.
function scoresOf(latest) {
  if (!computed.has(latest)) {
    const flat = latest.weights.flat(); // (layers * heads, L, L)
    computed.set(latest, TARGETS.map((keys) => flat.map((head) => meanOn(keys, head))));
  }
  return computed.get(latest);
}

// The weight that a query of a head puts on its target keys: the mean over queries that have any.
function meanOn(keys, head) {
  const queries = positions.filter((i) => keys[i].length);
  const weights = queries.flatMap((i) => keys[i].map((j) => head[i][j]));
  const total = weights.reduce((sum, weight) => sum + (weight < 0 ? NaN : weight / 1000), 0);
  return total / queries.length;
}

const nameOf = (head) => `layer ${Math.floor(head / heads)} head ${head % heads}`;

export function describe({ step }) {
  const latest = pictureAt(step);
  if (!latest) return "step 0: nothing learned yet";
  const [previous, induction] = scoresOf(latest);
  const each = previous.map((score, head) => {
    return `${nameOf(head)}: ${fixed(score, 2)}, ${fixed(induction[head], 2)}`;
  });
  const loss = fixed(known.losses[latest.step] ?? NaN, 2);
  const scores = `previous-token score, induction score of ${each.join("; ")}`;
  return `step ${latest.step}: loss ${loss}; ${scores}${finding(latest.step)}`;
}

// Where both kinds of heads are half way up, said at these steps and between them, if both rise. It
// is never said at the last step: one must go back to find it.
function finding(step) {
  const last = known.pictures.at(-1);
  const halves = SCORES.map((name, kind) => {
    const final = scoresOf(last)[kind];
    const head = final.indexOf(Math.max(...final));
    const rise = (picture) => scoresOf(picture)[kind][head] - scoresOf(known.pictures[0])[kind][head];
    if (!(rise(last) >= LEAST_RISE)) return null; // there is no score where no token repeats
    const half = known.pictures.find((picture) => rise(picture) >= rise(last) / 2);
    return { at: half.step, text: `${name} score of ${nameOf(head)} at step ${half.step}` };
  });
  if (step === last.step || halves.includes(null)) return "";
  const [first, second] = halves.map(({ at }) => at).sort((a, b) => a - b);
  if (step < first || step > second) return "";
  return `; found: half way up are the ${halves.map(({ text }) => text).join(" and the ")}`;
}

export function picture(svg, update) {
  const show = Array.from({ length: layers }, (_, layer) =>
    Array.from({ length: heads }, (_, head) => square(svg, layer, head)),
  );
  legend(svg);
  const showLoss = curve(svg, update);
  return ({ step }) => {
    const latest = pictureAt(step);
    showLoss(latest?.step ?? 0);
    latest?.weights.forEach((row, layer) => {
      row.forEach((weights, head) => show[layer][head](weights));
    });
  };
}

// Draw the frame of a head; returns what shows its weights. They are the pixels of a canvas:
// many heads have more cells than a page has room for elements.
function square(svg, layer, head) {
  const left = LEFT + head * (SIDE + BETWEEN[0]);
  const top = TOP + layer * (SIDE + BETWEEN[1]);
  const box = { x: left, y: top, width: SIDE, height: SIDE };
  const canvas = put(shape(svg, "foreignObject", box), "canvas", {
    width: length,
    height: length,
    style: "display: block; width: 100%; height: 100%; image-rendering: pixelated",
  });
  const name = `layer ${layer}, head ${head}`;
  shape(svg, "text", { x: left + SIDE / 2, y: top - 7, ...HEAD_NAMES, text: name });
  const ticks = wholeUpTo(length - 1, 5);
  const [isFirst, isLast] = [head === 0, layer === layers - 1]; // one scale for all
  axes(svg, {
    frame: [left, top, SIDE, SIDE],
    x: [-0.5, length - 0.5],
    y: [length - 0.5, -0.5],
    xticks: isLast ? ticks : [],
    yticks: isFirst ? ticks : [],
    xlabel: isLast ? "keys" : "",
    ylabel: isFirst ? "queries" : "",
    away: 34,
  });
  const context = canvas.getContext("2d");
  const image = context.createImageData(length, length);
  return (weights) => {
    weights.flat().forEach((weight, cell) => image.data.set(PIXELS[weight] ?? GREY, 4 * cell));
    context.putImageData(image, 0, 0);
  };
}

// Draw which colours stand for which weights, above the loss.
function legend(svg) {
  const [right, wide] = [size[0] - 20, 60];
  fade(svg, [right - wide, 5, wide, 10], colourOf, [0, 1000]);
  const small = { y: 14, "font-size": 12 };
  shape(svg, "text", { x: right - wide - 6, ...small, "text-anchor": "end", text: "weight 0" });
  shape(svg, "text", { x: right + 6, ...small, text: "1" });
}

// Draw the axes of the loss; returns what shows it, with a line at a step. A click goes to a step.
function curve(svg, update) {
  const frame = [LOSS_LEFT, TOP, size[0] - LOSS_LEFT - 14, size[1] - TOP - BELOW];
  const [x, y, width, height] = frame;
  const xticks = wholeUpTo(steps, 5);
  const yticks = [0, 1, 2, 3, 4];
  const labels = { xlabel: "step", ylabel: "loss", away: 28 };
  const ax = axes(svg, { frame, x: [0, steps], y: [0, 4], xticks, yticks, ...labels });
  // what is drawn in it ends at its frame, as an svg of its own does
  const box = { x, y, width, height };
  const inside = shape(svg, "svg", { ...box, viewBox: [x, y, width, height].join(" ") });
  const faint = { stroke: "currentColor", "stroke-opacity": 0.2 };
  const across = yticks.map((loss) => `M ${x} ${ax.y(loss).toFixed(2)} h ${width}`);
  const down = xticks.map((step) => `M ${ax.x(step).toFixed(2)} ${y} v ${height}`);
  shape(inside, "path", { ...faint, d: [...across, ...down].join(" ") });
  const line = shape(inside, "path", { fill: "none", stroke: COLOURS[0], "stroke-width": 1.5 });
  const orange = { stroke: COLOURS[1], "stroke-width": 2 };
  const cursor = shape(inside, "line", { y1: y, y2: y + height, ...orange });
  follow(shape(svg, "rect", { ...box, fill: "transparent" }), (point) => {
    update({ step: Math.max(Math.round(ax.at(point)[0] / every) * every, 0) });
  });
  return (at) => {
    const parts = known.losses.map((loss, step) => {
      if (loss === null) return "";
      const towards = (known.losses[step - 1] ?? null) === null ? "M" : "L"; // after a gap, anew
      return `${towards}${ax.x(step).toFixed(2)} ${ax.y(loss).toFixed(2)}`;
    });
    change(line, { d: parts.join("") });
    change(cursor, { x1: ax.x(at), x2: ax.x(at) });
  };
}

// Whole numbers from 0 up to an end, not more than so many: at distances of 1, 2, 5, 10, 20, …
function wholeUpTo(end, most) {
  let apart = 1;
  for (let n = 1; end / apart >= most; n += 1) apart = [1, 2, 5][n % 3] * 10 ** Math.floor(n / 3);
  return Array.from({ length: Math.floor(end / apart) + 1 }, (_, index) => index * apart);
}
