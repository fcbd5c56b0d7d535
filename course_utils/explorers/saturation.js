// Five logits, and softmax as the digits of a dtype let it be.
export const size = [560, 470];

const { colours, logit_step: logitStep } = given;
const KEYS = [1, 2, 3, 4, 5];
const LARGEST = 0.25; // of a Jacobian: p (1 - p)
const colourOf = shades(colours, -LARGEST, LARGEST);
const TEMPERATURES = Array.from({ length: 100 }, (_, index) => (index + 1) / 20);
// As PyTorch's CPU rounds: it calculates in float32 and writes the result in the dtype.
const ROUND = {
  float32: rounding(24, -126, 127),
  float16: rounding(11, -14, 15),
  bfloat16: rounding(8, -126, 127),
};

// Returns what rounds to so many binary digits, with powers of 2 from the lowest to the highest.
function rounding(digits, lowest, highest) {
  return (value) => {
    const single = Math.fround(value);
    if (!Number.isFinite(single)) return single;
    const power = Math.max(Math.floor(Math.log2(Math.abs(single))), lowest);
    // Beside so large a number there is room for these digits only: the sum is rounded to them.
    const large = 1.5 * 2 ** (power - digits + 53);
    const near = single + large - large;
    return Math.abs(near) < 2 ** (highest + 1) ? near : near * Infinity;
  };
}

// Logits as scores of width d_k, not yet divided by a temperature.
function scoresOf(logits, { d_k, scaled, dtype }) {
  const round = ROUND[dtype];
  const scores = logits.map((logit) => round(round(logit) * Math.sqrt(d_k)));
  return scaled ? scores.map((score) => round(score / Math.sqrt(d_k))) : scores;
}

function calculated(values) {
  const { temperature, dtype, method } = values;
  const round = ROUND[dtype];
  const powerOf = (score) => round(Math.exp(score));
  const untempered = scoresOf(KEYS.map((key) => values[`logit_${key}`]), values);
  const scores = untempered.map((score) => round(score / Math.fround(temperature)));
  const largest = Math.max(...scores);
  const naive = scores.map(powerOf);
  const stable = scores.map((score) => powerOf(round(score - largest)));
  const powers = { naive, stable }[method];
  const total = round(sum(powers));
  const weights = powers.map((power) => round(power / total));
  const jacobian = weights.map((p, i) =>
    weights.map((other, j) => round((i === j ? p : 0) - round(p * other))),
  );
  const [below] = scoresOf([values.logit_1 - logitStep], values); // the first, a step before
  const powerBelow = powerOf(round(below / Math.fround(temperature)));
  return { untempered, scores, naive, powers, total, weights, jacobian, powerBelow };
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

// What breaks in a naive softmax.
function findNaive({ logit_1: logit, dtype }, { scores, naive, total, powerBelow }) {
  const findings = [];
  const first =
    Number.isFinite(scores[0]) && naive[0] === Infinity && Number.isFinite(powerBelow);
  if (first && logit % logitStep === 0) {
    // typed between, it may be another
    findings.push(`${general(logit, 6)} is the first logit 1 whose exponential is inf in ${dtype}`);
  }
  if (total === 0) findings.push(`every exponential is 0 in ${dtype}, and 0 / 0 is NaN`);
  return findings;
}

// What a stable softmax saves, and at which temperature its gradient norm is largest.
function findStable({ temperature, dtype }, { scores, naive, untempered }) {
  const findings = [];
  const total = ROUND[dtype](sum(naive));
  if (scores.every(Number.isFinite) && (total === Infinity || total === 0)) {
    findings.push("the same scores, and weights where naive fails");
  }
  const normAt = (divisor) => normOf(softmax(untempered.map((x) => x / divisor)));
  const norms = TEMPERATURES.map(normAt);
  const largest = Math.max(...norms);
  const now = normAt(temperature);
  if (largest > Math.min(...norms) + 0.01) {
    // else the temperature changes nothing; of two that tie one may be larger by rounding
    if (now >= largest - 1e-9) {
      findings.push("no other temperature has a larger gradient norm");
    } else if (temperature === TEMPERATURES[0]) {
      findings.push(`at the lowest temperature the gradient norm is ${fixed(now, 3)}`);
    }
  }
  return findings;
}

// Which scores or exponentials are not finite.
function overflows(dtype, { scores, powers, total }) {
  const parts = [];
  const kinds = { inf: (value) => Math.abs(value) === Infinity, NaN: Number.isNaN };
  for (const [name, values] of Object.entries({ score: scores, exp: powers })) {
    for (const [kind, is] of Object.entries(kinds)) {
      const keys = KEYS.filter((key) => is(values[key - 1]));
      if (keys.length) parts.push(`${name} is ${kind} at key ${keys.join(", ")}`);
    }
  }
  if (powers.every(Number.isFinite) && total === Infinity) {
    parts.push("the sum of the exponentials is inf");
  }
  return parts.length ? `; overflow in ${dtype}: ${parts.join("; ")}` : "";
}

export function picture(svg) {
  const showWeights = bars(svg, [56, 8, 496, 164], KEYS);
  const showJacobian = square(svg, [132, 232, 280, 190]);
  return (values) => {
    const { weights, powers, jacobian } = calculated(values);
    showWeights(weights, powers.map((power) => (power === Infinity ? "exp = inf" : "")));
    showJacobian(jacobian);
  };
}

// Draw the Jacobian's cells, with names and a scale; returns what colours them.
function square(svg, frame) {
  const [left, top, width, height] = frame;
  const above = { x: left + width / 2, y: top - 10, "text-anchor": "middle" };
  shape(svg, "text", { ...above, text: "Jacobian diag(p) − ppᵀ (grey: NaN)" });
  const parts = cells(svg, frame, KEYS.length, KEYS.length);
  const names = KEYS.map((key) => [key, `key ${key}`]);
  axes(svg, {
    frame,
    x: [0.5, 5.5], y: [5.5, 0.5], xticks: names, yticks: names,
    xlabel: "score that moves", ylabel: "weight that answers", away: 58,
  });
  const beside = [left + width + 24, top + 15, 14, height - 30];
  scale(svg, beside, colourOf, [-LARGEST, LARGEST], [-0.2, -0.1, 0, 0.1, 0.2]);
  return (jacobian) => {
    parts.forEach((row, i) => {
      row.forEach((each, j) => change(each, { fill: colourOf(jacobian[i][j]) }));
    });
  };
}
