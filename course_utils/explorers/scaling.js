// A query and 8 keys of random numbers, of which the first d_k are used.
export const size = [560, 320];

const { products, step } = given; // of query and keys, for d_k = 1, 2, …; the slider's step
const KEYS = [1, 2, 3, 4, 5, 6, 7, 8];

function scoresOf({ d_k, scaled }) {
  const scores = products[d_k - 1];
  return scaled ? scores.map((score) => score / Math.sqrt(d_k)) : scores;
}

export function describe(values) {
  const scores = scoresOf(values);
  const weights = softmax(scores);
  const largest = fixed(Math.max(...scores.map(Math.abs)), 1);
  const saturated = saturation(weights, normOf(weights));
  return `largest score in size ${largest}; ${saturated}${finding(values, weights)}`;
}

function finding({ d_k, scaled }, weights) {
  const [first, second] = [...weights].sort((a, b) => b - a);
  const unscaledAt = (d) => Math.max(...softmax(scoresOf({ d_k: d, scaled: false })));
  const unscaled = unscaledAt(d_k);
  if (scaled && (d_k === step || d_k === products.length)) {
    const change = `${fixed(unscaled, 2)} to ${fixed(first, 2)}`;
    return `; found: at d_k = ${d_k} the division takes the largest weight from ${change}`;
  }
  if (!scaled && unscaled >= 0.99 && unscaledAt(Math.max(d_k - step, step)) < 0.99) {
    return `; found: at d_k = ${d_k} one key has ${fixed(unscaled, 2)} of the weight`;
  }
  if (first + second >= 0.95 && normOf(weights) >= 0.45) {
    const two = fixed(first + second, 2);
    return `; found: two keys have ${two} of the weight, and much gradient passes`;
  }
  return "";
}

export function picture(svg) {
  const show = bars(svg, [56, 8, 496, 284], KEYS);
  return (values) => show(softmax(scoresOf(values)));
}
