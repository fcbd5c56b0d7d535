// Three views: all heads, one head (or all of a layer) as lines, and one query as products.
export const size = [560, 539];

const { diverging, feature_ticks: featureTicks, gap, head_colors: headColors, labels } = given;
const { opened, reach, score_ticks: scoreTicks, tokens } = given;
const [LAYERS, H, L, D] = given.shape;
const [LAYER, HEAD, KEY] = [LAYERS, H, L].map((n) => [...Array(n).keys()]);
const MOSAIC = { left: 42, top: 24, side: 280 };
const PATHS = { left: 404, right: 484 }; // the tokens are beside them
const TOP = 357; // of the three frames at the bottom
const HEIGHT = 141;
const shadeOf = shades(given.shades, 0, 1);
const [Q, K] = [given.q, given.k].map((text) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return Float64Array.from(new Int16Array(bytes.buffer), (whole) => whole * given.unit);
});

// The query or key vector of a token in one head.
function vector(all, layer, head, token) {
  const start = ((layer * H + head) * L + token) * D;
  return all.subarray(start, start + D);
}

// Scores by layer, head, query and key.
const SCORES = LAYER.map((layer) => HEAD.map((head) => KEY.map((query) => KEY.map((key) => {
  const [q, k] = [vector(Q, layer, head, query), vector(K, layer, head, key)];
  return q.reduce((total, entry, n) => total + entry * k[n], 0) / Math.sqrt(D);
}))));
const WEIGHTS = SCORES.map((heads) => heads.map((queries) => queries.map(softmax)));
const TIE = 1e-4; // a smaller difference may be rounding

// The key with the largest weight in a row; in a tie, the first.
function strongest(row) {
  const largest = Math.max(...row);
  return row.findIndex((weight) => weight >= largest - TIE);
}

export function describe({ layer, head, query, key, several, hide }) {
  const strongestOf = (h) => {
    const at = strongest(WEIGHTS[layer][h][query]);
    return `"${tokens[at]}" in head ${h} (${fixed(WEIGHTS[layer][h][query][at], 2)})`;
  };
  const most = (several ? HEAD : [head]).map(strongestOf).join(", ");
  const weights = WEIGHTS[layer][head][query];
  const score = SCORES[layer][head][query][key];
  const all = WEIGHTS.flat().map((rows) => rows[query][key]); // of this pair in all heads
  const hidden = hide
    ? `; the lines leave out key 0, which has weight ${fixed(weights[0], 2)}` : "";
  const moved = query !== opened[0] || key !== opened[1]; // from where it opens
  const finding = key === strongest(weights) && moved
    ? `; found: "${tokens[query]}" attends most to "${tokens[key]}"` : "";
  return (
    `layer ${layer}: "${tokens[query]}" attends most to ${most}${hidden}` +
    `; ${tokens[query]}→${tokens[key]}: the ${D} products sum to ${fixed(score * Math.sqrt(D), 2)}` +
    `, divided by √${D} this is the score ${fixed(score, 2)}` +
    `, and softmax over ${L} keys gives ${fixed(weights[key], 2)}` +
    `; across the ${all.length} heads, this weight ranges from ${fixed(Math.min(...all), 2)}` +
    ` to ${fixed(Math.max(...all), 2)}${finding}`
  );
}

export function picture(svg, update) {
  const showHeads = allHeads(svg, update);
  const showLines = lines(svg, update);
  const showProducts = below(svg, update);
  return (values) => {
    showHeads(values);
    showLines(values);
    showProducts(values);
  };
}

// Draw a tile for each head; return the function that colors it by the weight of the chosen pair.
function allHeads(svg, update) {
  const { left, top, side } = MOSAIC;
  const cell = side / ((L + gap) * Math.max(LAYERS, H)); // all heads fit into a square
  const [pitch, tile] = [cell * (L + gap), cell * L];
  const [width, height] = [pitch * H, pitch * LAYERS]; // with a gap after each
  const [right, bottom] = [left + width - cell * gap, top + height - cell * gap];
  const centered = { "text-anchor": "middle" };
  const middle = left + (side - cell * gap) / 2;
  const title = shape(svg, "text", { x: middle, y: 14, ...centered });
  const paint = layered(svg, [0, 1], filledBy(shadeOf));
  for (const head of withRoom(HEAD, pitch, NUMBER)) {
    const place = { x: left + head * pitch + tile / 2, y: bottom + 14, ...centered };
    const look = { fill: headColors[head], "font-size": 12, "font-weight": "bold" };
    shape(svg, "text", { ...place, ...look, text: head });
  }
  for (const layer of withRoom(LAYER, pitch, LINE)) {
    const place = { x: left - 7, y: top + layer * pitch + tile / 2 + 4, "text-anchor": "end" };
    shape(svg, "text", { ...place, "font-size": 12, text: layer });
  }
  const [across, down] = [(left + right) / 2, (top + bottom) / 2];
  shape(svg, "text", { x: across, y: bottom + 29, ...centered, text: "head" });
  shape(svg, "text", { transform: `translate(12 ${down}) rotate(-90)`, ...centered, text: "layer" });

  const thick = Math.min(3, pitch - tile);
  const outline = { width: tile + thick, height: tile + thick, ...RED, "stroke-width": thick };
  const frame = shape(svg, "rect", outline);
  clicked(svg, [left, top, width, height], ([x, y]) => {
    update({
      head: within(Math.floor((x - left) / pitch), H),
      layer: within(Math.floor((y - top) / pitch), LAYERS),
    });
  });
  return ({ layer, head, query, key }) => {
    change(title, { text: `${labels[query]} → ${labels[key]} in all heads (light: large)` });
    paint(LAYER.flatMap((row) => HEAD.flatMap((column) => {
      const weight = WEIGHTS[row][column][query][key];
      return tiled([left + column * pitch, top + row * pitch, tile, tile], [[weight]]);
    })));
    const corner = [left + head * pitch, top + layer * pitch].map((each) => each - thick / 2);
    change(frame, { x: corner[0], y: corner[1] });
  };
}

// Draw two columns of tokens; return the function that draws lines between them.
function lines(svg, update) {
  const { left, right } = PATHS;
  const [top, row] = [MOSAIC.top, MOSAIC.side / L];
  const middle = (left + right) / 2;
  const yOf = (token) => top + (token + 0.5) * row;
  shape(svg, "text", { x: middle, y: 14, "text-anchor": "middle", text: "query → key" });
  for (const token of withRoom(KEY, row, LINE)) {
    const text = { y: yOf(token) + 4, "font-size": 12, text: labels[token] };
    shape(svg, "text", { x: left - 12, "text-anchor": "end", ...text });
    shape(svg, "text", { x: right + 12, ...text });
  }
  const drawIn = (stroke) => layered(svg, [0, 1], (weight) => {
    return { stroke, fill: "none", "stroke-width": 2, "stroke-opacity": weight };
  });
  const others = drawIn("#999999");
  const colored = [...new Set(headColors)].map(drawIn); // lines of the chosen query, over the others
  const ends = [left - 5, right + 5].map((x) => {
    return shape(svg, "rect", { x: x - 3.5, width: 7, height: 7, fill: COLORS[3] });
  });
  clicked(svg, [left - 64, top, right - left + 128, MOSAIC.side], ([x, y]) => {
    update({ [x < middle ? "query" : "key"]: within(Math.floor((y - top) / row), L) });
  });

  // the lines of one query in one head, with their ends shifted by some rows
  const fan = ({ layer, hide }, head, query, aside) => {
    const weights = WEIGHTS[layer][head][query];
    const visible = hide ? withoutFirst(weights) : weights;
    const from = `M${left} ${hundredth(yOf(query))}L${right} `;
    return visible.map((weight, key) => [weight, `${from}${hundredth(yOf(key + aside))}`]);
  };
  return (values) => {
    const { head, query, several } = values;
    const aside = (h) => (H > 1 ? -0.3 + (0.6 * h) / (H - 1) : 0); // so that heads do not cover each other
    others(several ? [] : KEY.flatMap((i) => (i === query ? [] : fan(values, head, i, 0))));
    colored.forEach((draw, index) => {
      const mine = HEAD.filter((h) => h % colored.length === index);
      if (several) draw(mine.flatMap((h) => fan(values, h, query, aside(h))));
      else draw(index === 0 ? fan(values, head, query, 0) : []);
    });
    [query, values.key].forEach((token, n) => change(ends[n], { y: yOf(token) - 3.5 }));
  };
}

// Weights without key 0, divided by the sum of the others.
function withoutFirst([, ...others]) {
  const rest = Math.max(sum(others), 1e-9);
  return [0, ...others.map((weight) => weight / rest)];
}

// Draw products, scores and weights side by side; return the function that shows those of a query.
function below(svg, update) {
  const row = HEIGHT / L;
  const small = shape(svg, "g", { "font-size": 12 });
  const labeled = withRoom(KEY, row, LINE);
  const named = { y: [L - 0.5, -0.5], yticks: labeled.map((key) => [key, labels[key]]) };
  const unnamed = { ...named, yticks: labeled.map((key) => [key, ""]) };
  const frames = [[92, TOP, 212, HEIGHT], [322, TOP, 100, HEIGHT], [440, TOP, 106, HEIGHT]];
  const paint = layered(small, [-1, 1], filledBy(shades(diverging, -1, 1)));
  const ofProducts = {
    x: [-0.5, D - 0.5], xticks: featureTicks, xlabel: "feature", ylabel: "keys", away: 78,
  };
  const ofScores = { x: [-reach, reach], xticks: scoreTicks, xlabel: "score" };
  const ofWeights = { x: [0, 1], xticks: [0, [0.5, "0.5"], 1], xlabel: "weight" };
  axes(small, { frame: frames[0], ...named, ...ofProducts });
  const sums = axes(small, { frame: frames[1], ...unnamed, ...ofScores });
  const shares = axes(small, { frame: frames[2], ...unnamed, ...ofWeights });
  const titles = ["q × k (red: positive)", `sum / √${D}`, "softmax"];
  frames.forEach(([left, , width], n) => {
    const place = { x: left + width / 2, y: TOP - 7, "text-anchor": "middle" };
    shape(svg, "text", { ...place, text: titles[n] });
  });
  const zero = { x1: sums.x(0), x2: sums.x(0), y1: TOP, y2: TOP + HEIGHT };
  shape(svg, "line", { ...zero, stroke: "currentColor", "stroke-opacity": 0.4 });
  const [showScores, showWeights] = [sums, shares].map((ax) => lying(svg, ax, row));
  const [left, , width] = frames[0];
  const mark = shape(svg, "rect", { x: left, width, height: row, ...RED, "stroke-width": 2 });
  clicked(svg, [left, TOP, 454, HEIGHT], ([, y]) => {
    update({ key: within(Math.floor((y - TOP) / row), L) });
  });
  return ({ layer, head, query, key }) => {
    const q = vector(Q, layer, head, query);
    const products = KEY.map((each) => {
      return Array.from(vector(K, layer, head, each), (entry, n) => entry * q[n]);
    });
    const largest = Math.max(...products.map((each) => Math.max(...each.map(Math.abs))), 1e-9);
    paint(tiled(frames[0], products.map((each) => each.map((value) => value / largest))));
    showScores(SCORES[layer][head][query]);
    showWeights(WEIGHTS[layer][head][query]);
    change(mark, { y: TOP + key * row });
  };
}

// Draw a bar from 0 in each row of the axes; return the function that sets their lengths.
function lying(svg, ax, row) {
  const height = Math.min(6, 0.6 * row);
  const parts = KEY.map((key) => {
    return shape(svg, "rect", { y: ax.y(key) - height / 2, height, fill: COLORS[0] });
  });
  return (values) => values.forEach((value, key) => {
    const ends = [ax.x(0), ax.x(value)];
    change(parts[key], { x: Math.min(...ends), width: Math.abs(ends[1] - ends[0]) });
  });
}
