// Two arrows, q fixed and k to be rotated and stretched.
export const size = [440, 416];

const [Q_COLOUR, K_COLOUR, SHADOW_COLOUR] = COLOURS;
const { q_length, reach, shortest, step } = given;

const tip = ({ angle, length }) => {
  const radians = angle * (Math.PI / 180);
  return [length * Math.cos(radians), length * Math.sin(radians)];
};

export function describe(values) {
  const [x, y] = tip(values);
  const measured = {
    dot: q_length * x,
    cosine: values.length ? fixed(x / values.length, 2) : "none (k has no direction)",
    apart: Math.hypot(q_length - x, y),
  };
  const { dot, cosine, apart } = measured;
  return (
    `k = (${fixed(x, 2)}, ${fixed(y, 2)}): dot product ${fixed(dot, 2)}, cosine ${cosine}, ` +
    `distance ${fixed(apart, 2)}${finding(values, measured)}`
  );
}

function finding({ angle, length }, { dot, cosine, apart }) {
  const farthest = Math.max(...[shortest, reach].map((each) => Math.abs(q_length - each)));
  if (dot > q_length ** 2 && cosine !== "1.00") {
    return `; found: dot product ${fixed(dot, 2)}, more than k = q has, at cosine ${cosine}`;
  }
  if (angle === 0 && length > 0 && apart >= farthest - 1e-9) {
    return `; found: cosine 1.00 at distance ${fixed(apart, 2)}, no k here is farther`;
  }
  if (angle === 0 && length > 0 && length !== q_length) {
    return "; cosine 1.00, and it can be farther";
  }
  if (Math.abs(angle) === 90 && length) {
    return "; found: at 90° the dot product is 0.00, whatever the length";
  }
  return "";
}

export function picture(svg, update) {
  const ends = [-reach - 0.2, reach + 0.2];
  const ticks = [-3, -2, -1, 0, 1, 2, 3];
  const ax = axes(svg, {
    frame: [56, 8, 364, 364],
    x: ends, y: ends, xticks: ticks, yticks: ticks,
    xlabel: "first component", ylabel: "second component",
  });
  const line = (x1, y1, x2, y2) => ({ x1: ax.x(x1), y1: ax.y(y1), x2: ax.x(x2), y2: ax.y(y2) });
  const faint = { stroke: "currentColor", "stroke-opacity": 0.15 };
  shape(svg, "line", { ...line(ends[0], 0, ends[1], 0), ...faint });
  shape(svg, "line", { ...line(0, ends[0], 0, ends[1]), ...faint });

  const shadowLine = { stroke: SHADOW_COLOUR, "stroke-width": 14, "stroke-opacity": 0.4 };
  const apartLine = { stroke: "currentColor", "stroke-opacity": 0.6, "stroke-dasharray": "6 3" };
  const legend = [["distance from q to k", apartLine], ["shadow of k on q", shadowLine]];
  legend.forEach(([text, look], row) => {
    const y = 342 + 18 * row;
    shape(svg, "line", { x1: 64, x2: 88, y1: y, y2: y, ...look });
    shape(svg, "text", { x: 94, y: y + 4, "font-size": 12, text });
  });

  const letter = { "font-size": 15, "font-weight": "bold" };
  const shadow = shape(svg, "line", shadowLine);
  const apart = shape(svg, "line", apartLine);
  const q = arrow(svg, ax, Q_COLOUR);
  const k = arrow(svg, ax, K_COLOUR);
  const name = shape(svg, "text", { fill: K_COLOUR, text: "k", ...letter });
  const besideQ = { x: ax.x(q_length) + 6, y: ax.y(0) - 6 };
  shape(svg, "text", { ...besideQ, fill: Q_COLOUR, text: "q", ...letter });
  q([q_length, 0]);

  follow(svg, (point) => {
    const [x, y] = ax.at(point);
    if (Math.max(Math.abs(x), Math.abs(y)) > ends[1]) return; // beside the axes
    update({
      angle: step * Math.round((Math.atan2(y, x) * 180) / Math.PI / step),
      length: Math.min(Math.round(Math.hypot(x, y) * 10) / 10, reach),
    });
  });

  return (values) => {
    const [x, y] = tip(values);
    k([x, y]);
    change(name, { x: ax.x(x) + 6, y: ax.y(y) - 6 });
    change(apart, line(q_length, 0, x, y));
    change(shadow, line(0, 0, x, 0));
  };
}

// Draw an arrow from the origin; returns what moves its tip.
function arrow(svg, ax, colour) {
  const shaft = shape(svg, "line", { stroke: colour, "stroke-width": 4.5 });
  const head = shape(svg, "path", { fill: colour, d: "M 0 0 L -20 -8 L -16 0 L -20 8 Z" });
  return ([x, y]) => {
    const pixels = Math.hypot(x, y) * (ax.x(1) - ax.x(0));
    const share = Math.min(1, pixels / 20); // of the head of a long arrow
    const towards = `rotate(${((-Math.atan2(y, x) * 180) / Math.PI).toFixed(2)})`;
    const from = (px, py) => `translate(${px.toFixed(2)} ${py.toFixed(2)}) ${towards}`;
    change(shaft, { x2: pixels - 15 * share, transform: from(ax.x(0), ax.y(0)) });
    change(head, { transform: `${from(ax.x(x), ax.y(y))} scale(${share.toFixed(3)})` });
  };
}
