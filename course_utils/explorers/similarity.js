// Two arrows: q is fixed, and the reader changes the angle and the length of k.
export const size = [440, 416];

const [Q_COLOR, K_COLOR, PROJECTION_COLOR] = COLORS;
const { q_length, reach, shortest, step } = given;

const tip = ({ angle, length }) => {
  const radians = angle * (Math.PI / 180);
  return [length * Math.cos(radians), length * Math.sin(radians)];
};

export function describe(values) {
  const [x, y] = tip(values);
  const measures = {
    dot: q_length * x,
    cosine: values.length ? fixed(x / values.length, 2) : "none, because k has no direction",
    distance: Math.hypot(q_length - x, y),
  };
  const { dot, cosine, distance } = measures;
  return (
    `k = (${fixed(x, 2)}, ${fixed(y, 2)}): dot product ${fixed(dot, 2)}, cosine ${cosine}, ` +
    `distance ${fixed(distance, 2)}${found(values, measures)}`
  );
}

// What the reader was asked to find, if this is it.
function found({ angle, length }, { dot, cosine, distance }) {
  const largest = Math.max(...[shortest, reach].map((end) => Math.abs(q_length - end)));
  if (dot > q_length ** 2 && cosine !== "1.00") {
    return `; found: dot product ${fixed(dot, 2)} is more than k = q gives, at cosine ${cosine}`;
  }
  if (angle === 0 && length > 0 && distance >= largest - 1e-9) {
    return `; found: the cosine is 1.00, although the distance is ${fixed(distance, 2)}`;
  }
  if (angle === 0 && length > 0 && length !== q_length) {
    return "; the cosine is 1.00, and a larger distance is possible";
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

  const projectionLine = { stroke: PROJECTION_COLOR, "stroke-width": 14, "stroke-opacity": 0.4 };
  const distanceLine = { stroke: "currentColor", "stroke-opacity": 0.6, "stroke-dasharray": "6 3" };
  const legend = [["distance from q to k", distanceLine], ["projection of k onto q", projectionLine]];
  legend.forEach(([text, style], row) => {
    const y = 342 + 18 * row;
    shape(svg, "line", { x1: 64, x2: 88, y1: y, y2: y, ...style });
    shape(svg, "text", { x: 94, y: y + 4, "font-size": 12, text });
  });

  const nameStyle = { "font-size": 15, "font-weight": "bold" };
  const projection = shape(svg, "line", projectionLine);
  const distance = shape(svg, "line", distanceLine);
  const q = arrow(svg, ax, Q_COLOR);
  const k = arrow(svg, ax, K_COLOR);
  const name = shape(svg, "text", { fill: K_COLOR, text: "k", ...nameStyle });
  const besideQ = { x: ax.x(q_length) + 6, y: ax.y(0) - 6 };
  shape(svg, "text", { ...besideQ, fill: Q_COLOR, text: "q", ...nameStyle });
  q([q_length, 0]);

  follow(svg, (point) => {
    const [x, y] = ax.at(point);
    if (Math.max(Math.abs(x), Math.abs(y)) > ends[1]) return; // outside the axes
    update({
      angle: step * Math.round((Math.atan2(y, x) * 180) / Math.PI / step),
      length: Math.min(Math.round(Math.hypot(x, y) * 10) / 10, reach),
    });
  });

  return (values) => {
    const [x, y] = tip(values);
    k([x, y]);
    change(name, { x: ax.x(x) + 6, y: ax.y(y) - 6 });
    change(distance, line(q_length, 0, x, y));
    change(projection, line(0, 0, x, 0));
  };
}

// Draw an arrow from the origin, and return a function that moves its tip.
function arrow(svg, ax, color) {
  const shaft = shape(svg, "line", { stroke: color, "stroke-width": 4.5 });
  const head = shape(svg, "path", { fill: color, d: "M 0 0 L -20 -8 L -16 0 L -20 8 Z" });
  return ([x, y]) => {
    const pixels = Math.hypot(x, y) * (ax.x(1) - ax.x(0));
    const scale = Math.min(1, pixels / 20); // the head of a short arrow is smaller
    const rotation = `rotate(${((-Math.atan2(y, x) * 180) / Math.PI).toFixed(2)})`;
    const from = (px, py) => `translate(${px.toFixed(2)} ${py.toFixed(2)}) ${rotation}`;
    change(shaft, { x2: pixels - 15 * scale, transform: from(ax.x(0), ax.y(0)) });
    change(head, { transform: `${from(ax.x(x), ax.y(y))} scale(${scale.toFixed(3)})` });
  };
}
