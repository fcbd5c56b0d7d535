// The weights of one random query over 8 random keys, computed from their first d_k numbers.
export const size = [560, 320];

// products[d_k - 1] holds the dot product of the query with each key, for d_k = 1, 2, …
const { products, step } = given; // step is that of the slider
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
  return `largest absolute score ${largest}; ${saturated}${finding(values, weights)}`;
}

function finding({ d_k, scaled }, weights) {
  const [first, second] = [...weights].sort((a, b) => b - a);
  const unscaledAt = (d) => Math.max(...softmax(scoresOf({ d_k: d, scaled: false })));
  const unscaled = unscaledAt(d_k);
  if (scaled && (d_k === step || d_k === products.length)) {
    const change = `${fixed(unscaled, 2)} to ${fixed(first, 2)}`;
    return `; found: at d_k = ${d_k}, the division changes the largest weight from ${change}`;
  }
  if (!scaled && unscaled >= 0.99 && unscaledAt(Math.max(d_k - step, step)) < 0.99) {
    return `; found: at d_k = ${d_k}, one key has ${fixed(unscaled, 2)} of the weight`;
  }
  if (first + second >= 0.95 && normOf(weights) >= 0.45) {
    const two = fixed(first + second, 2);
    return `; found: two keys have ${two} of the weight, and the gradient norm is large`;
  }
  return "";
}

export function picture(svg) {
  const show = bars(svg, [56, 8, 496, 284], KEYS);
  return (values) => show(softmax(scoresOf(values)));
}
