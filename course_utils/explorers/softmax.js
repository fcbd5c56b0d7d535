// Shared by the explorers of lessons 00 and 02 to 04: softmax, its weights as bars, and in words.
const BAR_COLOUR = COLOURS[0];
const BROKEN_COLOUR = COLOURS[3];
const LINE_HEIGHT = 15;

const sum = (values) => values.reduce((total, value) => total + value, 0);

// Weights of scores, with all digits that JavaScript has.
function softmax(scores) {
  const largest = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - largest));
  const total = sum(powers);
  return powers.map((power) => power / total);
}

// The size of the Jacobian of weights. Each row of it sums to 0, so its diagonal p (1 - p) is
// found without 1 - p, which has lost its digits where one key has nearly all the weight.
function normOf(weights) {
  const rows = weights.map((p, i) => weights.map((other, j) => (i === j ? 0 : p * other)));
  return Math.hypot(...rows.flat(), ...rows.map(sum));
}

// How far weights are saturated: their entropy and the size of their Jacobian.
function saturation(weights, norm) {
  const entropy = sum(weights.map((p) => (p === 0 ? 0 : -p * Math.log(p))));
  return (
    `entropy ${fixed(entropy, 3)} of at most ${fixed(Math.log(weights.length), 3)} nats; ` +
    `gradient norm ${general(norm, 3)} (Frobenius norm of the Jacobian)`
  );
}

// Write a number as Python does with `:.4g`.
function general(value, digits) {
  if (!Number.isFinite(value)) return { [Infinity]: "inf", [-Infinity]: "-inf" }[value] ?? "NaN";
  const [mantissa, power] = value.toExponential(digits - 1).split("e").map(Number);
  if (-4 <= power && power < digits) return `${Number(fixed(value, digits - 1 - power))}`;
  return `${mantissa}e${power < 0 ? "-" : "+"}${`${Math.abs(power)}`.padStart(2, "0")}`;
}

// Draw a bar for each key, in a frame as of `axes`. Returns what shows weights and, above each, a
// mark that may be empty. A NaN is a hatched bar of full height that says so.
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
    const bar = shape(svg, "rect", { ...corner, fill: BAR_COLOUR });
    const broken = shape(svg, "g", { stroke: BROKEN_COLOUR });
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
