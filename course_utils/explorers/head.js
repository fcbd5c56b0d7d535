// Small pictures of all heads, a large one of the chosen head, and its weights as lines.
export const size = [560, 432];

const { colors, every, labels, names, rules, weights } = given; // weights (H, L, L), rules (L, L)
const [H, L] = [weights.length, names.length];
const TILES = { left: 44, top: 22, pitch: Math.min(86, 514 / H), side: Math.min(76, 452 / H) };
const MATRIX = [92, 126, 210, 210];
const LINES = { left: 386, right: 482 };
const colorOf = shades(colors, 0, 1);
const SMALLEST = 0.05; // smaller weights are not listed in words
const MOST_STRAY = 0.25; // how much of a query's weight may go to keys that its rule does not name
const FOLLOWED = weights.map((head) => {
  return Object.keys(rules).filter((name) => follows(head, rules[name]));
});

// Tell whether each query spreads its weight evenly over the keys that the rule gives it, if any.
function follows(head, rule) {
  return head.every((row, i) => {
    const share = 1 / Math.max(1, rule[i].filter(Boolean).length);
    const missing = row.map((weight, j) => (rule[i][j] ? Math.max(share - weight, 0) : 0));
    return missing.reduce((total, part) => total + part, 0) <= MOST_STRAY;
  });
}

export function describe({ head, query }) {
  const i = names.indexOf(query);
  const entry = (from, to) => `${names[to]} ${fixed(weights[head][from][to], 2)}`;
  if (query === every) {
    const strongest = weights[head].map((row) => row.indexOf(Math.max(...row)));
    const entries = names.map((name, from) => `${name} → ${entry(from, strongest[from])}`);
    return `head ${head} of ${H}; strongest key of each query: ${entries.join(", ")}`;
  }
  const row = weights[head][i];
  const order = [...row.keys()].sort((a, b) => row[b] - row[a]); // ties stay in order
  const count = Math.max(1, row.filter((weight) => weight >= SMALLEST).length);
  const entries = order.slice(0, count).map((j) => entry(i, j));
  // a rule that gives this query no key cannot be seen in its weights
  const followed = FOLLOWED[head].filter((name) => rules[name][i].some(Boolean)).join(" or ");
  const finding = followed && `; rule: each token attends to ${followed}`;
  return `head ${head} of ${H}; ${query} attends to: ${entries.join(", ")}${finding}`;
}

export function picture(svg, update) {
  const frameTile = tiles(svg, update);
  const showMatrix = matrix(svg, update);
  const showLines = lines(svg);
  legend(svg);
  return ({ head, query }) => {
    const chosen = names.indexOf(query); // -1 for every token
    frameTile(head);
    showMatrix(weights[head], chosen);
    showLines(weights[head], chosen);
  };
}

// Draw all heads small; return a function that frames one of them.
function tiles(svg, update) {
  const { left, top, pitch, side } = TILES;
  const heads = [...weights.keys()];
  const frames = heads.map((head) => [left + head * pitch, top, side, side]);
  const under = top - 7;
  shape(svg, "text", { x: left - 7, y: under, "text-anchor": "end", "font-size": 12, text: "head" });
  const paint = layered(svg, [0, 1], filledBy(colorOf));
  paint(heads.flatMap((head) => tiled(frames[head], weights[head])));
  for (const head of withRoom(heads, pitch, NUMBER)) {
    const x = frames[head][0] + side / 2;
    shape(svg, "text", { x, y: under, "text-anchor": "middle", "font-size": 12, text: head });
  }
  for (const frame of frames) axes(svg, { frame, x: [0, 1], y: [0, 1] });
  const thick = Math.min(4, (pitch - side) / 2); // around the tile, without covering its weights
  const around = { width: side + thick + 1, height: side + thick + 1, y: top - (thick + 1) / 2 };
  const chosen = shape(svg, "rect", { ...around, ...RED, "stroke-width": thick });
  clicked(svg, [left, top, H * pitch, side], ([x]) => {
    update({ head: within(Math.floor((x - left) / pitch), H) });
  });
  return (head) => change(chosen, { x: frames[head][0] - (thick + 1) / 2 });
}

// Return a function that draws the weights of a head, and frames the row of a query.
function matrix(svg, update) {
  const [left, top, width, height] = MATRIX;
  const [cell, bottom, middle] = [height / L, top + height, left + width / 2];
  const paint = layered(svg, [0, 1], filledBy(colorOf));
  const labeled = withRoom([...labels.keys()], cell, LINE);
  const ax = axes(svg, {
    frame: MATRIX,
    x: [-0.5, L - 0.5], y: [L - 0.5, -0.5],
    yticks: labeled.map((i) => [i, labels[i]]),
    ylabel: "queries", away: 76,
  });
  const upright = labels.some((label) => label.length > 2);
  for (const j of labeled) {
    const x = ax.x(j);
    shape(svg, "line", { x1: x, x2: x, y1: bottom, y2: bottom + 4, stroke: "currentColor" });
    const transform = upright ? `translate(${x + 4.5} ${bottom + 7}) rotate(-90)`
      : `translate(${x} ${bottom + 17})`;
    const anchor = { "text-anchor": upright ? "end" : "middle", "font-size": 12 };
    shape(svg, "text", { transform, ...anchor, text: labels[j] });
  }
  shape(svg, "text", { x: middle, y: size[1] - 8, "text-anchor": "middle", text: "keys" });
  const row = shape(svg, "rect", { x: left, width, height: cell, ...RED, "stroke-width": 2 });
  clicked(svg, MATRIX, ([, y]) => {
    update({ query: names[within(Math.floor((y - top) / cell), L)] });
  });
  return (values, chosen) => {
    paint(tiled(MATRIX, values));
    change(row, { y: top + chosen * cell, visibility: chosen < 0 ? "hidden" : "visible" });
  };
}

// Draw two columns of tokens; return a function that draws lines between them.
function lines(svg) {
  const { left, right } = LINES;
  const [, top, , height] = MATRIX;
  const yOf = (i) => hundredth(top + ((i + 0.5) * height) / L);
  const title = { x: (left + right) / 2, y: top - 10, "text-anchor": "middle" };
  shape(svg, "text", { ...title, text: "queries → keys" });
  const look = { stroke: COLORS[0], fill: "none" };
  const draw = layered(svg, [0, 1], (weight) => {
    return { ...look, "stroke-opacity": weight, "stroke-width": 0.5 + 3.5 * weight };
  });
  for (const i of withRoom([...labels.keys()], height / L, LINE)) {
    const text = { y: yOf(i) + 4.5, text: labels[i] };
    shape(svg, "text", { x: left - 7, "text-anchor": "end", ...text });
    shape(svg, "text", { x: right + 7, ...text });
  }
  return (values, chosen) => {
    draw(values.flatMap((row, i) => {
      if (chosen >= 0 && chosen !== i) return [];
      return row.map((weight, j) => [weight, `M${left} ${yOf(i)}L${right} ${yOf(j)}`]);
    }));
  };
}

// Draw the color scale.
function legend(svg) {
  const frame = [LINES.left, 376, LINES.right - LINES.left, 12];
  fade(svg, frame, colorOf, [0, 1]);
  const ends = { x: [0, 1], y: [0, 1] };
  axes(svg, { frame, ...ends, xticks: [0, [0.5, "0.5"], 1], xlabel: "attention weight" });
}
