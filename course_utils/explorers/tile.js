// Attention tile by tile: the tile in fast memory, the state of each query, and the bytes moved.
export const size = [560, 420];

const { q, k, v, start, diverging, sequential } = given;
const [N, D] = [q.length, q[0].length];
const NAIVE = 4 * (4 * N * N + 4 * N * D); // bytes: scores and weights, each written and read
const EVERY = upTo(N);
const shade = shades(sequential, 0, 1);
const LOOKS = {
  "not yet": "#fff",
  skipped: "#bfbfbf",
  done: shade(0.1),
  "in fast memory": shade(0.95),
};
const EDGE = "#808080";
const LARGEST = 2; // output with a color of its own; beyond it, all look alike
const outputColor = shades(diverging, -LARGEST, LARGEST);

function upTo(end, from = 0) {
  return Array.from({ length: end - from }, (_, index) => from + index);
}

const dot = (a, b) => a.reduce((total, value, index) => total + value * b[index], 0);

// Return the blocks of a length from 0 to `end`, each as [first, last + 1].
function blocks(end, length) {
  return upTo(Math.ceil(end / length)).map((index) => {
    return [index * length, Math.min((index + 1) * length, end)];
  });
}

// Return the tiles in the order in which they are read. Tiles past the diagonal are never read.
function planOf({ block_q, block_k, causal }) {
  return blocks(N, block_q).flatMap((rows) =>
    blocks(causal ? rows[1] : N, block_k).map((columns) => ({ rows, columns })),
  );
}

export function highest(values) {
  return { step: planOf(values).length };
}

// Return the state of each query after some tiles: its largest score m, Σ e^(score - m) as `sum`,
// and Σ e^(score - m) v as `out`.
function stateAfter(tiles, causal) {
  const state = EVERY.map(() => ({ m: -Infinity, sum: 0, out: Array(D).fill(0) }));
  for (const { rows, columns } of tiles) {
    for (const i of upTo(rows[1], rows[0])) {
      const keys = upTo(columns[1], columns[0]).filter((j) => !causal || j <= i);
      state[i] = taken(state[i], keys.map((j) => dot(q[i], k[j]) / Math.sqrt(D)), keys);
    }
  }
  return state;
}

// Update the state of one query with its scores against more keys.
function taken({ m, sum, out }, scores, keys) {
  const largest = Math.max(m, ...scores);
  const shrink = Math.exp(m - largest); // rescales the old sums to the new maximum
  const powers = scores.map((score) => Math.exp(score - largest));
  return {
    m: largest,
    sum: powers.reduce((total, power) => total + power, sum * shrink),
    out: out.map((past, c) => past * shrink + dot(powers, keys.map((j) => v[j][c]))),
  };
}

// Return how many bytes the first steps move between slow and fast memory.
function bytesMoved(plan, step) {
  const numbers = plan.slice(0, step).map(({ rows, columns }, index) => {
    const queries = rows[1] - rows[0];
    const begins = columns[0] === 0; // then Q is read, and kept for the whole row of tiles
    const ends = plan[index + 1]?.rows[0] !== rows[0]; // then O and lse are written
    return 2 * (columns[1] - columns[0]) * D + queries * (begins * D + ends * (D + 1));
  });
  return 4 * numbers.reduce((total, each) => total + each, 0);
}

const span = ([from, to]) => `${from}–${to - 1}`;

export function describe(values) {
  const { step, causal } = values;
  const plan = planOf(values);
  const skipped = planOf({ ...values, causal: false }).length - plan.length;
  let now = "nothing read yet";
  if (step) {
    const { rows, columns } = plan[step - 1];
    const { m, sum } = stateAfter(plan.slice(0, step), causal)[rows[0]];
    now =
      `in fast memory: queries ${span(rows)}, keys and values ${span(columns)}; query ${rows[0]} ` +
      `has m = ${fixed(m, 2)}, ℓ = ${fixed(sum, 2)}`;
  }
  return (
    `step ${step} of ${plan.length}: ${now}; ${bytesMoved(plan, step)} bytes moved (naive ` +
    `attention: ${NAIVE} in all); tiles skipped: ${skipped}${finding(values, plan)}`
  );
}

// After the last tile, compare the blocks with those at the start.
function finding({ step, block_q, block_k, causal }, plan) {
  const asItBegan = block_q === start.block_q && block_k === start.block_k;
  if (step < plan.length || asItBegan) return "";
  const before = planOf({ ...start, causal });
  return (
    `; found: ${bytesMoved(plan, step)} bytes in all; block_q = ${start.block_q} and ` +
    `block_k = ${start.block_k} move ${bytesMoved(before, before.length)}`
  );
}

export function picture(svg, update) {
  const top = 26;
  const showTiles = map(svg, [50, top, 240, 240], update);
  const showState = table(svg, [326, top, 176, 240]);
  legend(svg, 50, 314);
  const showBytes = traffic(svg, [50, 338, 500, 40]);
  return (values) => {
    const { step, causal } = values;
    const plan = planOf(values);
    showTiles(plan, step);
    showState(stateAfter(plan.slice(0, step), causal), plan[step - 1]?.rows);
    showBytes(bytesMoved(plan, step));
  };
}

const OUTLINE = { fill: "none", "stroke-width": 2.5 };

// Draw all tiles. Return a function that shows a plan after a step. A click goes to a tile.
function map(svg, frame, update) {
  const [left, top, width, height] = frame;
  const middle = { x: left + width / 2, "text-anchor": "middle" };
  shape(svg, "text", { ...middle, y: top - 9, text: "tiles" });
  shape(svg, "rect", { x: left, y: top, width, height, fill: LOOKS.skipped });
  const group = shape(svg, "g", { stroke: EDGE });
  const ax = axes(svg, {
    frame,
    x: [-0.5, N - 0.5], y: [N - 0.5, -0.5], xticks: EVERY, yticks: EVERY,
    xlabel: "keys: rows of K and V", ylabel: "queries: rows of Q",
  });
  const here = shape(svg, "rect", { ...OUTLINE, stroke: "#000" }); // no tile is as dark
  let plan;
  clicked(svg, frame, (point) => {
    const [j, i] = ax.at(point).map(Math.round);
    const covers = ([from, to], at) => from <= at && at < to;
    const at = plan.findIndex(({ rows, columns }) => covers(rows, i) && covers(columns, j));
    if (at >= 0) update({ step: at + 1 });
  });
  const box = ({ rows, columns }) => ({
    x: ax.x(columns[0] - 0.5),
    y: ax.y(rows[0] - 0.5),
    width: ax.x(columns[1]) - ax.x(columns[0]),
    height: ax.y(rows[1]) - ax.y(rows[0]),
  });
  return (newPlan, step) => {
    plan = newPlan;
    group.replaceChildren();
    for (const [index, tile] of plan.entries()) {
      const look = index < step - 1 ? "done" : index < step ? "in fast memory" : "not yet";
      shape(group, "rect", { ...box(tile), fill: LOOKS[look] });
    }
    change(here, step ? box(plan[step - 1]) : { x: left, y: top, width: 0, height: 0 });
  };
}

// Draw m, ℓ and O of each query. Return a function that shows them and marks those in fast memory.
function table(svg, frame) {
  const [left, top, width, height] = frame;
  const columns = { m: left + 26, "ℓ": left + 74, "O / ℓ so far": left + 138 };
  const middle = { "text-anchor": "middle" };
  for (const [text, x] of Object.entries(columns)) {
    shape(svg, "text", { x, y: top - 9, ...middle, text });
  }
  const output = [left + 100, top, width - 100, height];
  const parts = cells(svg, output, N, D);
  const all = { frame, x: [0, 1], yticks: EVERY };
  const ax = axes(svg, { ...all, y: [N - 0.5, -0.5] });
  axes(svg, {
    frame: output,
    x: [-0.5, D - 0.5], y: [0, 1], xticks: upTo(D),
    xlabel: "O (gray: no keys yet)",
  });
  const write = (name) => EVERY.map((i) => {
    const at = { x: columns[name], y: ax.y(i) + 4.5 };
    return shape(svg, "text", { ...at, ...middle, "font-size": 12 });
  });
  const [largest, sums] = ["m", "ℓ"].map(write);
  const right = left + width;
  shape(svg, "text", { x: right + 21, y: top + 11, ...middle, "font-size": 12, text: "O / ℓ" });
  const beside = [right + 10, top + 24, 12, height - 36];
  scale(svg, beside, outputColor, [-LARGEST, LARGEST], [-2, -1, 0, 1, 2]);
  const here = shape(svg, "rect", { ...OUTLINE, stroke: "currentColor", x: left, width });
  return (state, rows) => {
    state.forEach(({ m, sum, out }, i) => {
      change(largest[i], { text: sum ? fixed(m, 2).replace("-", "−") : "−∞" });
      change(sums[i], { text: sum ? fixed(sum, 2) : "0" });
      out.forEach((value, c) => change(parts[i][c], { fill: outputColor(value / sum) }));
    });
    const [from, to] = rows ?? [0, 0];
    change(here, { y: ax.y(from - 0.5), height: ax.y(to) - ax.y(from) });
  };
}

// Draw the legend: what each color of a tile means.
function legend(svg, left, top) {
  let x = left;
  for (const [text, fill] of Object.entries(LOOKS)) {
    shape(svg, "rect", { x, y: top, width: 20, height: 11, fill, stroke: EDGE });
    shape(svg, "text", { x: x + 27, y: top + 10, "font-size": 12, text });
    x += 54 + 7 * text.length;
  }
}

// Draw the bytes moved above those of naive attention. Return a function that moves the bar.
function traffic(svg, frame) {
  const ax = axes(svg, {
    frame,
    x: [0, 1.05 * NAIVE], y: [2, 0],
    xticks: [0, 500, 1000, 1500, 2000, 2500, 3000], yticks: [[0.5, "tiled"], [1.5, "naive"]],
    xlabel: "bytes moved",
  });
  const bar = { x: ax.x(0), height: 14 };
  const tiled = shape(svg, "rect", { ...bar, y: ax.y(0.5) - 7, fill: COLORS[0] });
  const width = ax.x(NAIVE) - ax.x(0);
  shape(svg, "rect", { ...bar, y: ax.y(1.5) - 7, width, fill: "#b3b3b3" });
  const small = { "font-size": 12 };
  const inside = { x: ax.x(NAIVE) - 5, y: ax.y(1.5) + 4.5, "text-anchor": "end", fill: "#000" };
  shape(svg, "text", { ...inside, ...small, text: NAIVE });
  const count = shape(svg, "text", { y: ax.y(0.5) + 4.5, ...small });
  return (bytes) => {
    change(tiled, { width: ax.x(bytes) - ax.x(0) });
    change(count, { x: ax.x(bytes) + 5, text: bytes });
  };
}
