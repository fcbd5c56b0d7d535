// Shared by the explorers that color cells: shades, cells, and the scale beside them.

// Returns what finds the color of a number from low to high, between colors [red, green, blue]
// that lie evenly on the way. A NaN is gray.
function shades(colors, low, high) {
  return (value) => {
    if (Number.isNaN(value)) return "#8c8c8c";
    const part = Math.min(Math.max((value - low) / (high - low), 0), 1);
    const at = part * (colors.length - 1);
    const from = Math.min(Math.floor(at), colors.length - 2);
    const mixed = colors[from].map((shade, channel) => {
      return Math.round(shade + (at - from) * (colors[from + 1][channel] - shade));
    });
    return `rgb(${mixed.join(", ")})`;
  };
}

// Draw rows of cells in a frame as of `axes`; returns them, each an element of SVG, by row.
function cells(svg, [left, top, width, height], rows, columns) {
  const cell = { width: width / columns, height: height / rows, "shape-rendering": "crispEdges" };
  return Array.from({ length: rows }, (_, i) =>
    Array.from({ length: columns }, (_, j) => {
      return shape(svg, "rect", { x: left + j * cell.width, y: top + i * cell.height, ...cell });
    }),
  );
}

// Draw the scale of `shades` from low to high in a frame, with ticks as `axes` takes them.
function scale(svg, frame, colorOf, [low, high], ticks) {
  const [left, top, width, height] = frame;
  const steps = 40;
  for (let step = 0; step < steps; step += 1) {
    const fill = colorOf(high - ((high - low) * (step + 0.5)) / steps);
    const y = top + (height * step) / steps;
    shape(svg, "rect", { x: left, y, width, height: height / steps + 0.5, fill }); // no gaps
  }
  axes(svg, { frame, x: [0, 1], y: [low, high] });
  for (const tick of ticks) {
    const y = top + (height * (high - tick)) / (high - low) + 4.5;
    shape(svg, "text", { x: left + width + 7, y, text: pair(tick)[1] });
  }
}

// Draw many parts as a few paths, one for each step from low to high: thousands of elements would
// cost time at each change. `look` gives the attributes of a number's path. Returns what draws
// parts: pairs of a number and the path of its part.
function layered(svg, [low, high], look) {
  const steps = 64;
  const paths = Array.from({ length: steps + 1 }, (_, step) =>
    shape(svg, "path", look(low + ((high - low) * step) / steps)),
  );
  let before = [];
  return (parts) => {
    const drawn = paths.map(() => "");
    for (const [value, path] of parts) {
      const step = Math.round(((value - low) / (high - low)) * steps);
      drawn[Math.min(Math.max(step, 0), steps)] += path;
    }
    for (const [step, path] of paths.entries()) {
      if (drawn[step] !== before[step]) change(path, { d: drawn[step] });
    }
    before = drawn;
  };
}

// The look of a cell that `layered` draws, from what `shades` returns.
const filledBy = (colorOf) => (value) => {
  return { fill: colorOf(value), "shape-rendering": "crispEdges" };
};

// Rows of numbers as cells that fill a frame, for `layered`.
function tiled([left, top, width, height], rows) {
  return rows.flatMap((row, i) => {
    const [y, below] = [i, i + 1].map((each) => hundredth(top + (height * each) / rows.length));
    return row.map((value, j) => {
      const [x, right] = [j, j + 1].map((each) => hundredth(left + (width * each) / row.length));
      return [value, `M${x} ${y}H${right}V${below}H${x}Z`];
    });
  });
}

// Fill a frame, from left to right, with the colors of numbers from low to high.
function fade(svg, frame, colorOf, [low, high]) {
  const steps = Array.from({ length: 65 }, (_, step) => low + ((high - low) * step) / 64);
  layered(svg, [low, high], filledBy(colorOf))(tiled(frame, [steps]));
}

const hundredth = (pixels) => Number(pixels.toFixed(2));

// What is chosen among cells is framed, and as many of their names are written as have room.
const RED = { fill: "none", stroke: COLORS[3] };
const [LINE, NUMBER] = [12, 18]; // pixels for a line of text, for a number across

function withRoom(all, apart, room) {
  const step = Math.ceil(room / apart);
  return all.filter((_, index) => index % step === 0);
}

const within = (index, count) => Math.min(Math.max(index, 0), count - 1);
