// Shared by the explorers that need softmax or sums: softmax, its weights as bars, and words.
const BAR_COLOR = COLORS[0];
const BROKEN_COLOR = COLORS[3];
const LINE_HEIGHT = 15;

const sum = (values) => values.reduce((total, value) => total + value, 0);

// Return the softmax of scores, in float64.
function softmax(scores) {
  const largest = Math.max(...scores);
  const exponentials = scores.map((score) => Math.exp(score - largest));
  const total = sum(exponentials);
  return exponentials.map((exponential) => exponential / total);
}

// Return the Frobenius norm of the Jacobian of softmax at these weights. Each row sums to 0, so the
// diagonal p (1 - p) is computed from the rest of its row: 1 - p loses its digits if p is near 1.
function normOf(weights) {
  const rows = weights.map((p, i) => weights.map((other, j) => (i === j ? 0 : p * other)));
  return Math.hypot(...rows.flat(), ...rows.map(sum));
}

// Describe how saturated the weights are, by their entropy and the norm of their Jacobian.
function saturation(weights, norm) {
  const entropy = sum(weights.map((p) => (p === 0 ? 0 : -p * Math.log(p))));
  return (
    `entropy ${fixed(entropy, 3)} of at most ${fixed(Math.log(weights.length), 3)} nats; ` +
    `gradient norm ${general(norm, 3)} (Frobenius norm of the Jacobian)`
  );
}

// Format a number as Python does with `:.4g`, if there are 4 digits.
function general(value, digits) {
  if (!Number.isFinite(value)) return { [Infinity]: "inf", [-Infinity]: "-inf" }[value] ?? "NaN";
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e").map(Number);
  if (-4 <= exponent && exponent < digits) return `${Number(fixed(value, digits - 1 - exponent))}`;
  return `${mantissa}e${exponent < 0 ? "-" : "+"}${`${Math.abs(exponent)}`.padStart(2, "0")}`;
}

// Draw a bar for each key, in a frame as for `axes`. Return a function that shows weights with marks
// above them, which may be empty. NaN is shown as a hatched bar of full height.
function bars(svg, frame, keys) {
  const ax = axes(svg, {
    frame,
    x: [0.4, keys.length + 0.6],
    y: [0, 1.3],
    xticks: keys.map((key) => [key, `key ${key}`]),
    yticks: [0, 0.25, 0.5, 0.75, 1].map((weight) => [weight, fixed(weight, 2)]),
    ylabel: "weight",
    away: 44,
  });
  const width = ax.x(0.8) - ax.x(0);
  const full = ax.y(0) - ax.y(1);
  const parts = keys.map((key) => {
    const corner = { x: ax.x(key - 0.4), y: ax.y(1), width };
    const bar = shape(svg, "rect", { ...corner, fill: BAR_COLOR });
    const broken = shape(svg, "g", { stroke: BROKEN_COLOR });
    shape(broken, "rect", { ...corner, height: full, fill: "mistyrose" });
    shape(broken, "path", { d: hatch(corner.x, corner.y, width, full) });
    const above = { x: ax.x(key), "text-anchor": "middle" };
    return { bar, broken, number: shape(svg, "text", above), mark: shape(svg, "text", above) };
  });
  return (weights, marks = []) => {
    for (const [index, { bar, broken, number, mark }] of parts.entries()) {
      const nan = Number.isNaN(weights[index]);
      const top = ax.y(nan ? 1 : weights[index]);
      const text = marks[index] ?? "";
      change(bar, { y: top, height: nan ? 0 : ax.y(0) - top });
      change(broken, { visibility: nan ? "visible" : "hidden" });
      change(number, { y: top - 5 - (text && LINE_HEIGHT), text: fixed(weights[index], 2) });
      change(mark, { y: top - 5, text });
    }
  };
}
