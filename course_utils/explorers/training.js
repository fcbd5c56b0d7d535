// The heads and the loss of a training: live while it runs, and step by step afterwards.
const { tokens, layers, heads, steps, every, colors } = given;
const length = tokens.length;
const LEFT = 48; // left edge of the heads, in pixels of the picture
const TOP = 24;
const BETWEEN = [12, 30]; // between two heads: beside each other, and above one for its name
const SIDE = Math.min(Math.max((322 - (heads - 1) * BETWEEN[0]) / heads, 96), 144);
const BELOW = 42;
const HEADS_END = LEFT + heads * (SIDE + BETWEEN[0]) - BETWEEN[0];
const LOSS_LEFT = HEADS_END + 54;

export const size = [
  Math.max(560, LOSS_LEFT + 136),
  TOP + layers * (SIDE + BETWEEN[1]) - BETWEEN[1] + BELOW,
];

const HEAD_NAMES = { "font-size": 12, "text-anchor": "middle" };
const GRAY = [140, 140, 140, 255];
// Red, green, blue and opacity of each weight, in thousandths. NaN is sent as -1 and drawn gray.
const colorOf = shades(colors, 0, 1000);
const PIXELS = Array.from({ length: 1001 }, (_, weight) => [
  ...colorOf(weight).match(/\d+/g).map(Number), 255,
]);

const LEAST_RISE = 0.2; // if a score rises less in the whole training, no head learned the pattern
const SCORES = ["previous-token", "induction"];
// For each score and query, the keys whose weights it adds up.
const positions = [...tokens.keys()];
const TARGETS = [
  positions.map((i) => positions.filter((j) => j === i - 1)),
  positions.map((i) => positions.filter((j) => j > 0 && j <= i && tokens[j - 1] === tokens[i])),
];

// The data so far: the loss of each step (null if it is not a number), and the pictures, each with
// its step and the weights (layers, heads, L, L) in thousandths.
let known = { losses: [], pictures: [] };

// Start with the data that the model has. New data is added to it, so a saved notebook has it too.
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

// The last picture up to the chosen step, if there is one.
const pictureAt = (step) => known.pictures.findLast((each) => each.step <= step);

const computed = new WeakMap();

// Both scores of all heads in a picture, [score][head], with the heads of all layers in one row.
function scoresOf(latest) {
  if (!computed.has(latest)) {
    const flat = latest.weights.flat(); // (layers * heads, L, L)
    computed.set(latest, TARGETS.map((keys) => flat.map((head) => meanOn(keys, head))));
  }
  return computed.get(latest);
}

// The mean weight that a head puts on the target keys, over the queries that have target keys.
function meanOn(keys, head) {
  const queries = positions.filter((i) => keys[i].length);
  const weights = queries.flatMap((i) => keys[i].map((j) => head[i][j]));
  const total = weights.reduce((sum, weight) => sum + (weight < 0 ? NaN : weight / 1000), 0);
  return total / queries.length;
}

const nameOf = (head) => `layer ${Math.floor(head / heads)} head ${head % heads}`;

export function describe({ step }) {
  const latest = pictureAt(step);
  if (!latest) return "step 0: the training has not started";
  const [previous, induction] = scoresOf(latest);
  const each = previous.map((score, head) => {
    return `${nameOf(head)}: ${fixed(score, 2)}, ${fixed(induction[head], 2)}`;
  });
  const loss = fixed(known.losses[latest.step] ?? NaN, 2);
  const scores = `previous-token and induction score of ${each.join("; ")}`;
  return `step ${latest.step}: loss ${loss}; ${scores}${finding(latest.step)}`;
}

// The steps at which both scores have risen halfway, if both rise. This is shown at these steps and
// between them, but never at the last step, so one has to go back to find it.
function finding(step) {
  const last = known.pictures.at(-1);
  const halves = SCORES.map((name, kind) => {
    const final = scoresOf(last)[kind];
    const head = final.indexOf(Math.max(...final));
    const rise = (picture) => scoresOf(picture)[kind][head] - scoresOf(known.pictures[0])[kind][head];
    if (!(rise(last) >= LEAST_RISE)) return null; // without repeated tokens there is no score
    const half = known.pictures.find((picture) => rise(picture) >= rise(last) / 2);
    return { at: half.step, text: `${name} score of ${nameOf(head)} at step ${half.step}` };
  });
  if (step === last.step || halves.includes(null)) return "";
  const [first, second] = halves.map(({ at }) => at).sort((a, b) => a - b);
  if (step < first || step > second) return "";
  return `; found: halfway to its final score: the ${halves.map(({ text }) => text).join(" and the ")}`;
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

// Draw the frame of a head, and return a function that shows its weights. They are pixels of a
// canvas, because many heads have more cells than a page can have elements.
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
  const [isFirst, isLast] = [head === 0, layer === layers - 1]; // only the outer heads have labels
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
    weights.flat().forEach((weight, cell) => image.data.set(PIXELS[weight] ?? GRAY, 4 * cell));
    context.putImageData(image, 0, 0);
  };
}

// Draw the color scale of the weights, above the loss.
function legend(svg) {
  const [right, wide] = [size[0] - 20, 60];
  fade(svg, [right - wide, 5, wide, 10], colorOf, [0, 1000]);
  const small = { y: 14, "font-size": 12 };
  shape(svg, "text", { x: right - wide - 6, ...small, "text-anchor": "end", text: "weight 0" });
  shape(svg, "text", { x: right + 6, ...small, text: "1" });
}

// Draw the axes of the loss, and return a function that draws its curve and the line at a step.
// A click on the curve moves to a step.
function curve(svg, update) {
  const frame = [LOSS_LEFT, TOP, size[0] - LOSS_LEFT - 14, size[1] - TOP - BELOW];
  const [x, y, width, height] = frame;
  const xticks = wholeUpTo(steps, 5);
  const yticks = [0, 1, 2, 3, 4];
  const labels = { xlabel: "step", ylabel: "loss", away: 28 };
  const ax = axes(svg, { frame, x: [0, steps], y: [0, 4], xticks, yticks, ...labels });
  // an svg inside the picture cuts off the curve at its frame
  const box = { x, y, width, height };
  const inside = shape(svg, "svg", { ...box, viewBox: [x, y, width, height].join(" ") });
  const faint = { stroke: "currentColor", "stroke-opacity": 0.2 };
  const across = yticks.map((loss) => `M ${x} ${ax.y(loss).toFixed(2)} h ${width}`);
  const down = xticks.map((step) => `M ${ax.x(step).toFixed(2)} ${y} v ${height}`);
  shape(inside, "path", { ...faint, d: [...across, ...down].join(" ") });
  const line = shape(inside, "path", { fill: "none", stroke: COLORS[0], "stroke-width": 1.5 });
  const orange = { stroke: COLORS[1], "stroke-width": 2 };
  const cursor = shape(inside, "line", { y1: y, y2: y + height, ...orange });
  follow(shape(svg, "rect", { ...box, fill: "transparent" }), (point) => {
    update({ step: Math.max(Math.round(ax.at(point)[0] / every) * every, 0) });
  });
  return (at) => {
    const parts = known.losses.map((loss, step) => {
      if (loss === null) return "";
      const towards = (known.losses[step - 1] ?? null) === null ? "M" : "L"; // M: after a gap
      return `${towards}${ax.x(step).toFixed(2)} ${ax.y(loss).toFixed(2)}`;
    });
    change(line, { d: parts.join("") });
    change(cursor, { x1: ax.x(at), x2: ax.x(at) });
  };
}

// At most so many whole numbers from 0 to an end, in steps of 1, 2, 5, 10, 20, …
function wholeUpTo(end, most) {
  let apart = 1;
  for (let n = 1; end / apart >= most; n += 1) apart = [1, 2, 5][n % 3] * 10 ** Math.floor(n / 3);
  return Array.from({ length: Math.floor(end / apart) + 1 }, (_, index) => index * apart);
}
