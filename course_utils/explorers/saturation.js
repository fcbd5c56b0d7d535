// Softmax of five scores, computed with the range and the digits of a dtype.
export const size = [560, 470];

const { colors, score_step: scoreStep } = given;
const KEYS = [1, 2, 3, 4, 5];
const LARGEST = 0.25; // the largest possible entry of the Jacobian, p (1 - p) at p = 0.5
const colorOf = shades(colors, -LARGEST, LARGEST);
const TEMPERATURES = Array.from({ length: 100 }, (_, index) => (index + 1) / 20);
// PyTorch on a CPU computes in float32 and rounds the result to the dtype.
const ROUND = {
  float32: rounding(24, -126, 127),
  float16: rounding(11, -14, 15),
  bfloat16: rounding(8, -126, 127),
};

// Return a function that rounds to a number of binary digits, within a range of exponents.
function rounding(digits, lowest, highest) {
  return (value) => {
    const single = Math.fround(value);
    if (!Number.isFinite(single)) return single;
    const exponent = Math.max(Math.floor(Math.log2(Math.abs(single))), lowest);
    // Adding a large number rounds to the wanted digits, and subtracting it again keeps them.
    const large = 1.5 * 2 ** (exponent - digits + 53);
    const rounded = single + large - large;
    return Math.abs(rounded) < 2 ** (highest + 1) ? rounded : rounded * Infinity;
  };
}

// Scale scores as dot products of width d_k would be, before the temperature.
function scaledScores(values, { d_k, scaled, dtype }) {
  const round = ROUND[dtype];
  const scores = values.map((value) => round(round(value) * Math.sqrt(d_k)));
  return scaled ? scores.map((score) => round(score / Math.sqrt(d_k))) : scores;
}

function calculated(values) {
  const { temperature, dtype, method } = values;
  const round = ROUND[dtype];
  const exponential = (score) => round(Math.exp(score));
  const beforeTemperature = scaledScores(KEYS.map((key) => values[`score_${key}`]), values);
  const scores = beforeTemperature.map((score) => round(score / Math.fround(temperature)));
  const largest = Math.max(...scores);
  const naive = scores.map(exponential);
  const stable = scores.map((score) => exponential(round(score - largest)));
  const exponentials = { naive, stable }[method];
  const total = round(sum(exponentials));
  const weights = exponentials.map((each) => round(each / total));
  const jacobian = weights.map((p, i) =>
    weights.map((other, j) => round((i === j ? p : 0) - round(p * other))),
  );
  const [below] = scaledScores([values.score_1 - scoreStep], values); // score 1, one step lower
  const exponentialBelow = exponential(round(below / Math.fround(temperature)));
  const parts = { scores, naive, exponentials, total, weights, jacobian };
  return { ...parts, beforeTemperature, exponentialBelow };
}

export function describe(values) {
  const all = calculated(values);
  const { scores, weights, jacobian } = all;
  const findings = { naive: findNaive, stable: findStable }[values.method](values, all);
  return (
    `softmax of ${scores.map((score) => general(score, 4)).join(", ")}: ` +
    `weights ${weights.map((weight) => fixed(weight, 3)).join(", ")}; ` +
    `${saturation(weights, Math.hypot(...jacobian.flat()))}${overflows(values.dtype, all)}` +
    `${findings.length ? "; found: " : ""}${findings.join(", and ")}`
  );
}

// Say what breaks in the naive softmax.
function findNaive({ score_1: score, dtype }, { scores, naive, total, exponentialBelow }) {
  const findings = [];
  const first =
    Number.isFinite(scores[0]) && naive[0] === Infinity && Number.isFinite(exponentialBelow);
  if (first && score % scoreStep === 0) {
    // a value typed between two steps may not be the smallest
    const smallest = `${general(score, 6)} is the smallest value of score 1`;
    findings.push(`${smallest} whose exponential is inf in ${dtype}`);
  }
  if (total === 0) findings.push(`every exponential is 0 in ${dtype}, and 0 / 0 is NaN`);
  return findings;
}

// Say what the stable softmax saves, and at which temperature its gradient norm is largest.
function findStable({ temperature, dtype }, { scores, naive, beforeTemperature }) {
  const findings = [];
  const total = ROUND[dtype](sum(naive));
  if (scores.every(Number.isFinite) && (total === Infinity || total === 0)) {
    findings.push("stable gives weights for scores for which naive fails");
  }
  const normAt = (divisor) => normOf(softmax(beforeTemperature.map((x) => x / divisor)));
  const norms = TEMPERATURES.map(normAt);
  const largest = Math.max(...norms);
  const now = normAt(temperature);
  if (largest > Math.min(...norms) + 0.01) {
    // otherwise the temperature changes nothing; 1e-9 allows for rounding in a tie
    if (now >= largest - 1e-9) {
      findings.push("no other temperature has a larger gradient norm");
    } else if (temperature === TEMPERATURES[0]) {
      findings.push(`at the lowest temperature the gradient norm is ${fixed(now, 3)}`);
    }
  }
  return findings;
}

// Say which scores or exponentials are not finite.
function overflows(dtype, { scores, exponentials, total }) {
  const parts = [];
  const kinds = { inf: (value) => Math.abs(value) === Infinity, NaN: Number.isNaN };
  for (const [name, values] of Object.entries({ score: scores, exp: exponentials })) {
    for (const [kind, is] of Object.entries(kinds)) {
      const keys = KEYS.filter((key) => is(values[key - 1]));
      if (keys.length) parts.push(`${name} is ${kind} at key ${keys.join(", ")}`);
    }
  }
  if (exponentials.every(Number.isFinite) && total === Infinity) {
    parts.push("the sum of the exponentials is inf");
  }
  return parts.length ? `; overflow in ${dtype}: ${parts.join("; ")}` : "";
}

export function picture(svg) {
  const showWeights = bars(svg, [56, 8, 496, 164], KEYS);
  const showJacobian = square(svg, [132, 232, 280, 190]);
  return (values) => {
    const { weights, exponentials, jacobian } = calculated(values);
    const marks = exponentials.map((each) => (each === Infinity ? "exp = inf" : ""));
    showWeights(weights, marks);
    showJacobian(jacobian);
  };
}

// Draw the cells of the Jacobian with labels and a color scale. Return a function that colors them.
function square(svg, frame) {
  const [left, top, width, height] = frame;
  const above = { x: left + width / 2, y: top - 10, "text-anchor": "middle" };
  shape(svg, "text", { ...above, text: "Jacobian diag(p) − ppᵀ (gray: NaN)" });
  const parts = cells(svg, frame, KEYS.length, KEYS.length);
  const names = KEYS.map((key) => [key, `key ${key}`]);
  axes(svg, {
    frame,
    x: [0.5, 5.5], y: [5.5, 0.5], xticks: names, yticks: names,
    xlabel: "score that changes", ylabel: "weight that reacts", away: 58,
  });
  const beside = [left + width + 24, top + 15, 14, height - 30];
  scale(svg, beside, colorOf, [-LARGEST, LARGEST], [-0.2, -0.1, 0, 0.1, 0.2]);
  return (jacobian) => {
    parts.forEach((row, i) => {
      row.forEach((each, j) => change(each, { fill: colorOf(jacobian[i][j]) }));
    });
  };
}
