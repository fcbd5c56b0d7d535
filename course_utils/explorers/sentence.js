// A sentence with a bar above each word: its attention weight for the query of "it".
export const size = [544, 216];

const { words, keys, queries } = given;

const weigh = ({ last, sharpness }) => {
  const scores = [...words, last].map((word) => {
    const [alive, wide] = keys[word] ?? [0, 0];
    return sharpness * (alive * queries[last][0] + wide * queries[last][1]);
  });
  return softmax(scores);
};

export function describe(values) {
  return `“it was ${values.last}”: ${mostWeighted([...words, values.last], weigh(values))}`;
}

// Name the words with the largest weight. All other words have the same score, which is 0.
function mostWeighted(named, weights) {
  const [largest, least] = [Math.max(...weights), Math.min(...weights)];
  const most = named.filter((_, j) => weights[j] > largest - 1e-6);
  if (most.length === named.length) {
    return `the query is zero, so every word has weight ${fixed(largest, 2)}`;
  }
  const found = most.map((word) => `${word} ${fixed(largest, 2)}`).join(" and ");
  const comment = most.length > 1 ? " (undecided)" : "";
  return `the largest weight is ${found}${comment}; every other word has ${fixed(least, 2)}`;
}

export function picture(svg) {
  const n = words.length + 1;
  const ax = axes(svg, {
    frame: [52, 8, 484, 176],
    x: [-0.6, n - 0.4], y: [0, 1.15], yticks: [0, [0.5, "0.5"], 1],
    ylabel: "weight of each word",
  });
  // Words stand apart on a phone: the longer of its neighbors pushes a word aside.
  const aside = (j) => (words[j - 1] ?? "").length - (words[j + 1] ?? "").length;
  const bars = [...words, ""].map((word, j) => {
    const asks = word === "it" || j === n - 1;
    const [x, width] = [ax.x(j - 0.4), ax.x(0.8) - ax.x(0)];
    return {
      bar: shape(svg, "rect", { x, width, fill: COLORS[0] }),
      number: shape(svg, "text", { x: ax.x(j), "text-anchor": "middle", "font-size": 12 }),
      word: shape(svg, "text", {
        x: ax.x(j) + aside(j), y: 202, "text-anchor": "middle", "font-size": 12, text: word,
        ...(asks && { fill: COLORS[1], "font-weight": "bold" }),
      }),
    };
  });
  return (values) => {
    weigh(values).forEach((weight, j) => {
      const top = ax.y(weight);
      change(bars[j].bar, { y: top, height: ax.y(0) - top });
      change(bars[j].number, { y: top - 4, text: fixed(weight, 2) });
    });
    change(bars.at(-1).word, { text: values.last });
  };
}
