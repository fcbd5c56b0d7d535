// Two tokens on a line, their clock hands, and their dot product.
export const size = [560, 444];

const { content, last, pairs } = given;
const NEAR = 20; // degrees between hands that meet
const CLOCKS = Array.from({ length: content.length / 2 }, (_, clock) => clock);
const DISTANCES = Array.from({ length: 2 * last + 1 }, (_, index) => index - last);
const [Q_COLOR, K_COLOR, CURVE_COLOR, HERE_COLOR] = COLORS;

const frequency = (clock, base) => base ** (-clock / CLOCKS.length); // radians per position

// The two entries that are a clock's hand.
function entries(clock, layout) {
  const [within, next] = pairs[layout];
  return [clock * next, clock * next + within];
}

// Where the hands of a token at a position point, one for each clock.
function hands(position, base, layout) {
  return CLOCKS.map((clock) => {
    const [a, b] = entries(clock, layout).map((entry) => content[entry]);
    const angle = position * frequency(clock, base);
    const [across, up] = [Math.cos(angle), Math.sin(angle)];
    return [a * across - b * up, a * up + b * across];
  });
}

// The dot product of a query and a key that is `distance` positions before it.
function product(distance, base, layout) {
  const [q, k] = [hands(distance, base, layout).flat(), hands(0, base, layout).flat()];
  return q.reduce((total, entry, index) => total + entry * k[index], 0);
}

export function describe({ i, j, power, layout }) {
  const [distance, base] = [i - j, 10 ** power];
  const score = fixed(product(distance, base, layout), 2);
  return (
    `query at ${i}, key at ${j} (${where(distance)}): dot product ${score}; ` +
    `base ${base.toLocaleString("en")}; pairs: ${layout}${finding(distance, base, layout)}`
  );
}

function where(distance) {
  if (distance === 0) return "the same position";
  return `${Math.abs(distance)} ${distance > 0 ? "before" : "after"} the query`;
}

function finding(distance, base, layout) {
  if (layout === "interleaved") {
    return "; these entries are meant for halves, so two clocks have no hands";
  }
  const rotations = distance / (2 * Math.PI); // of clock 0
  if (distance && Math.abs(rotations - Math.round(rotations)) * 360 < NEAR) {
    return `; found: at distance ${distance} the hands of clock 0 meet again`;
  }
  if (last * frequency(CLOCKS.length - 1, base) > Math.PI) {
    return "; found: even the slowest clock makes half a rotation along the line";
  }
  return "";
}

export function picture(svg, update) {
  const moveTokens = line(svg, [56, 28, 492, 56], update);
  const clocks = CLOCKS.map((clock) => dial(svg, clock, [56 + 128 * clock, 134, 108, 108]));
  const moveCurve = curve(svg, [56, 264, 492, 136]);
  return ({ i, j, power, layout }) => {
    const base = 10 ** power;
    const [q, k] = [hands(i, base, layout), hands(j, base, layout)];
    moveTokens(i, j);
    for (const [clock, move] of clocks.entries()) {
      move(q[clock], k[clock], entries(clock, layout));
    }
    moveCurve(DISTANCES.map((distance) => product(distance, base, layout)), i - j);
  };
}

// Draw the line on which q and k are dragged; returns what moves them.
function line(svg, frame, update) {
  const [left, top, width, height] = frame;
  const middle = { "text-anchor": "middle" };
  const text = "positions: drag q or k";
  shape(svg, "text", { x: left + width / 2, y: top - 10, ...middle, "font-size": 15, text });
  const ax = axes(svg, {
    frame,
    x: [-0.8, last + 0.8],
    y: [-1, 1],
    xticks: [0, 5, 10, 15, 20, 25, 30],
  });
  for (let position = 0; position <= last; position += 1) {
    const x = ax.x(position);
    const ends = { x1: x, x2: x, y1: ax.y(0) - 4, y2: ax.y(0) + 4 };
    shape(svg, "line", { ...ends, stroke: "currentColor", "stroke-opacity": 0.5 });
  }
  const letter = { ...middle, "font-size": 18, "font-weight": "bold" };
  const q = shape(svg, "text", { y: ax.y(0.5) + 5, ...letter, fill: Q_COLOR, text: "q" });
  const k = shape(svg, "text", { y: ax.y(-0.5) + 4, ...letter, fill: K_COLOR, text: "k" });

  let dragged; // q above the line and k below it, until the pointer is let go
  const ground = { x: left, y: top, width, height, fill: "transparent" };
  follow(shape(svg, "rect", ground), (point, begins) => {
    const [x, y] = ax.at(point);
    if (begins) dragged = y > 0 ? "i" : "j";
    update({ [dragged]: Math.min(Math.max(Math.round(x), 0), last) });
  });
  return (i, j) => {
    change(q, { x: ax.x(i) });
    change(k, { x: ax.x(j) });
  };
}

// Draw a clock; returns what rotates its hands and writes which entries they are.
function dial(svg, clock, frame) {
  const [left, top, width] = frame;
  const ax = axes(svg, { frame, x: [-1.6, 1.6], y: [-1.6, 1.6] });
  const circle = { cx: ax.x(0), cy: ax.y(0), r: ax.x(1) - ax.x(0), fill: "none" };
  shape(svg, "circle", { ...circle, stroke: "currentColor", "stroke-opacity": 0.3 });
  const from = { x1: ax.x(0), y1: ax.y(0) };
  const q = shape(svg, "line", { ...from, stroke: Q_COLOR, "stroke-width": 6 });
  const k = shape(svg, "line", { ...from, stroke: K_COLOR, "stroke-width": 2.5 });
  const label = { x: left + width / 2, y: top - 6, "text-anchor": "middle", "font-size": 12 };
  const named = shape(svg, "text", label);
  return (ofQ, ofK, [first, second]) => {
    change(q, { x2: ax.x(ofQ[0]), y2: ax.y(ofQ[1]) });
    change(k, { x2: ax.x(ofK[0]), y2: ax.y(ofK[1]) });
    change(named, { text: `clock ${clock}: entries ${first}, ${second}` });
  };
}

// Draw the dot product over the distance; returns what moves the curve and the point on it.
function curve(svg, frame) {
  const ax = axes(svg, {
    frame,
    x: [-last, last],
    y: [-4.4, 4.4],
    xticks: [-30, -20, -10, 0, 10, 20, 30],
    yticks: [-4, -2, 0, 2, 4],
    xlabel: "how many positions k is before q: i − j",
    ylabel: "dot product of q and k",
  });
  const zero = { x1: ax.x(-last), x2: ax.x(last), y1: ax.y(0), y2: ax.y(0) };
  shape(svg, "line", { ...zero, stroke: "currentColor", "stroke-opacity": 0.3 });
  const path = shape(svg, "polyline", { fill: "none", stroke: CURVE_COLOR, "stroke-width": 2 });
  const here = shape(svg, "circle", { r: 5, fill: HERE_COLOR });
  return (products, distance) => {
    const corners = products.map((value, index) => [ax.x(DISTANCES[index]), ax.y(value)]);
    change(path, { points: corners.map(([x, y]) => `${x.toFixed(2)},${y.toFixed(2)}`).join(" ") });
    const [x, y] = corners[distance + last];
    change(here, { cx: x, cy: y });
  };
}
