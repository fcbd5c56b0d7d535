// A sentence, and a bar above each word: the weight with which "it" looks there.
export const size = [544, 216];

const { words, keys, queries } = given;

const weigh = ({ last, sharpness }) => {
  const scores = [...words, last].map((word) => {
    const [lives, wide] = keys[word] ?? [0, 0];
    return sharpness * (lives * queries[last][0] + wide * queries[last][1]);
  });
  return softmax(scores);
};

export function describe(values) {
  return `“it was ${values.last}”: ${mostWeighted([...words, values.last], weigh(values))}`;
}

// At which words "it" looks most; what offers nothing weighs the same everywhere.
function mostWeighted(named, weights) {
  const [largest, least] = [Math.max(...weights), Math.min(...weights)];
  const most = named.filter((_, j) => weights[j] > largest - 1e-6);
  if (most.length === named.length) {
    return `it asks for nothing, and every word weighs ${fixed(largest, 2)}`;
  }
  const at = most.map((word) => `${word} ${fixed(largest, 2)}`).join(" and ");
  const undecided = most.length > 1 ? "undecided, " : "";
  return `${undecided}it looks most at ${at}; each other word ${fixed(least, 2)}`;
}

export function picture(svg) {
  const n = words.length + 1;
  const ax = axes(svg, {
    frame: [52, 8, 484, 176],
    x: [-0.6, n - 0.4], y: [0, 1.15], yticks: [0, [0.5, "0.5"], 1],
    ylabel: "weight of each word",
  });
  const bars = [...words, ""].map((word, j) => {
    const asks = word === "it" || j === n - 1;
    const [x, width] = [ax.x(j - 0.4), ax.x(0.8) - ax.x(0)];
    return {
      bar: shape(svg, "rect", { x, width, fill: COLOURS[0] }),
      number: shape(svg, "text", { x: ax.x(j), "text-anchor": "middle", "font-size": 12 }),
      word: shape(svg, "text", {
        x: ax.x(j), y: 202, "text-anchor": "middle", "font-size": 12, text: word,
        ...(asks && { fill: COLOURS[1], "font-weight": "bold" }),
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
