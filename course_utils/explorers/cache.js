// How much memory does a cache take? Computed from published settings, not measured.
export const size = [350, 316]; // fits on a phone

const { models, kinds, pattern, latent } = given;
const GPU = 80; // GB of 10⁹ bytes
const LARGEST = 160; // GB, the end of the axis
const MOST = 12; // GPUs that are drawn
const SHARING = 32; // numbers that share a minimum and a scale, of 16 bits each
const [PUBLISHED, OWN, ONE, LATENT, WINDOWS] = kinds;

// Return how many numbers a layer keeps for a token.
function numbersOf(model, kind) {
  const pair = model.widths[0] + model.widths[1]; // of a key and a value
  if (kind === OWN) return model.heads * pair;
  if (kind === ONE) return pair;
  return (kind === LATENT ? latent : model.latent) ?? model.kv_heads * pair;
}

// Return the GB of the layers that keep all tokens, of the layers with a window, and in total.
function cacheOf({ model: name, tokens, texts, kind, bits }) {
  const model = models[name];
  const { window = Infinity, every = 1 } = kind === WINDOWS ? pattern : model;
  const whole = Math.floor(model.layers / every);
  const stored = bits === 16 ? 16 : bits + 32 / SHARING; // bits of a number
  const perToken = (numbersOf(model, kind) * stored) / 8; // bytes of a layer
  const all = (texts * whole * tokens * perToken) / 1e9;
  const windowed = (texts * (model.layers - whole) * Math.min(tokens, window) * perToken) / 1e9;
  const total = all + windowed;
  return { all, windowed, total, whole, layers: model.layers, perToken, gpus: total / GPU };
}

const inWords = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
const grouped = (value) => value.toLocaleString("en-US");
const inGB = (value) => {
  const digits = value < 10 ? 3 : 1;
  const shown = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return `${value.toLocaleString("en-US", shown)} GB`;
};

function verdictOf({ total, gpus }) {
  if (gpus > 1) return `${inGB(total)}, so the cache alone needs ${grouped(Math.ceil(gpus))} GPUs`;
  return `${inGB(total)}, ${fixed(100 * gpus, 1)}% of a GPU`;
}

export function describe(values) {
  const { model, tokens, texts, kind, bits } = values;
  const cache = cacheOf(values);
  const windows =
    cache.whole < cache.layers
      ? `; ${cache.whole} of ${cache.layers} layers keep all tokens and take ${inGB(cache.all)}, ` +
        `the others keep a window and take ${inGB(cache.windowed)}`
      : `; all ${cache.layers} layers keep all tokens`;
  return (
    `${model}, ${inWords(texts, "text")} of ${grouped(tokens)} tokens, ${kind}, ${bits} bits: ` +
    `${verdictOf(cache)}; a token takes ${grouped(Math.round(cache.perToken))} bytes in a layer` +
    windows + finding(values, cache)
  );
}

function finding(values, cache) {
  const { model, tokens, texts, kind, bits } = values;
  const { window } = kind === WINDOWS ? pattern : models[model];
  if (tokens <= window) {
    return `; found: a window of ${grouped(window)} tokens saves nothing here`;
  }
  const published = cacheOf({ ...values, kind: PUBLISHED, bits: 16 });
  if (models[model].latent && kind === OWN && bits === 2) {
    const more = fixed(cache.total / published.total, 1);
    return `; found: ${more} times the bytes as published in 16 bits`;
  }
  const oneMore = cacheOf({ ...values, texts: texts + 1 });
  return cache.gpus <= 1 && oneMore.gpus > 1
    ? `; found: at most ${inWords(texts, "text")} on one GPU`
    : "";
}

const [LEFT, WIDTH, HEIGHT] = [12, 322, 30];

export function picture(svg) {
  const name = shape(svg, "text", { x: LEFT, y: 18, "font-size": 15, "font-weight": "bold" });
  const [read, cached] = [40, 60].map((y) => shape(svg, "text", { x: LEFT, y }));
  const showMemory = memory(svg, [LEFT, 76, WIDTH, HEIGHT]);
  const showGpus = gpuBoxes(svg, LEFT, 232);
  return (values) => {
    const cache = cacheOf(values);
    const { model, tokens, texts, kind, bits } = values;
    change(name, { text: `${model}: ${inGB(cache.total)}` });
    change(read, { text: `${inWords(texts, "text")} of ${grouped(tokens)} tokens` });
    change(cached, { text: `cache: ${kind}, ${bits} bits` });
    showMemory(cache);
    showGpus(cache);
  };
}

// Draw the GB of both kinds of layers as a bar, and the memory of a GPU as a line. A bar that is
// longer than the axis ends in an arrow.
function memory(svg, frame) {
  const [left, top, width, height] = frame;
  const ax = axes(svg, {
    frame,
    x: [0, LARGEST], y: [0, 1], xticks: [0, 40, 80, 120, 160],
    xlabel: "GB",
  });
  const key = ["blue: layers that keep all tokens", "orange: layers with a window", "red: one GPU"];
  for (const [n, text] of key.entries()) {
    shape(svg, "text", { x: left, y: top + height + 58 + 19 * n, text });
  }
  const box = { y: top + 1, height: height - 2 };
  const parts = [0, 1].map((n) => shape(svg, "rect", { ...box, fill: COLORS[n] }));
  const line = { y1: top - 5, y2: top + height + 5, stroke: COLORS[3], "stroke-width": 3 };
  shape(svg, "line", { ...line, x1: ax.x(GPU), x2: ax.x(GPU) });
  const end = left + width;
  const tip = `M ${end - 16} ${top + 3} L ${end - 2} ${top + height / 2} L ${end - 16} ${
    top + height - 3
  } z`;
  const arrow = shape(svg, "path", { d: tip, fill: "#fff", stroke: "#000" });
  return ({ all, total }) => {
    const [first, last] = [all, total].map((value) => ax.x(Math.min(value, LARGEST)));
    change(parts[0], { x: left, width: first - left });
    change(parts[1], { x: first, width: last - first });
    arrow.style.visibility = total > LARGEST ? "visible" : "hidden";
  };
}

// Draw a box for each GPU that the cache needs. The last box may be filled only in part.
function gpuBoxes(svg, left, top) {
  const title = shape(svg, "text", { x: left, y: top });
  const more = shape(svg, "text", { x: left, y: top + 76, text: `(${MOST} are drawn)` });
  const boxes = Array.from({ length: MOST }, (_, n) => {
    const box = { x: left + 27 * n, y: top + 12, width: 21, height: 48 };
    const fill = shape(svg, "rect", { ...box, fill: COLORS[0] });
    shape(svg, "rect", { ...box, fill: "none", stroke: "#808080" });
    return fill;
  });
  return ({ gpus }) => {
    const count = Math.ceil(gpus);
    change(title, { text: `GPUs of ${GPU} GB that the cache alone needs: ${grouped(count)}` });
    more.style.visibility = count > MOST ? "visible" : "hidden";
    boxes.forEach((fill, n) => {
      const part = 48 * Math.min(Math.max(gpus - n, 0), 1);
      change(fill, { y: top + 60 - part, height: part });
    });
  };
}
