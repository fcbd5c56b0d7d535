// Keys travel around a ring of ranks. Shows which rank holds them, computes a tile or is idle.
export const size = [560, 400];

const { colors } = given;
const MUCH_IDLE = 0.4; // share of the time
const FRACTIONS = { 0: "0", 0.5: "½", 1: "1" }; // of a block

const upTo = (end) => Array.from({ length: end }, (_, index) => index);
const sum = (values) => values.reduce((total, value) => total + value, 0);
const percent = (part) => `${fixed(100 * part, 0)}%`;

export function highest({ ranks }) {
  return { step: ranks - 1 };
}

// The chunks of the text that each rank holds.
function chunksOf(ranks, zigzag) {
  return upTo(ranks).map((rank) => (zigzag ? [rank, 2 * ranks - 1 - rank] : [rank]));
}

// The rank whose keys this rank holds in a step.
const holds = (rank, step, ranks) => (rank - step + ranks) % ranks;

// A tile is the queries of one chunk of the text against the keys of another. For each tile, this
// is the rank that computes it, the step, and the share of its pairs that the mask allows. In a
// chunk against itself, half of the pairs are allowed.
function tilesOf({ ranks, causal, zigzag }) {
  const chunks = chunksOf(ranks, zigzag);
  const share = (row, column) => (causal ? ((row > column) + (row >= column)) / 2 : 1);
  const meet = (rank, step) => chunks[rank].flatMap((row) =>
    chunks[holds(rank, step, ranks)].map((column) => {
      return { rank, step, row, column, share: share(row, column) };
    }),
  );
  return upTo(ranks).flatMap((rank) => upTo(ranks).flatMap((step) => meet(rank, step)));
}

// The work and the idle time of each rank in each step, and the time of each step, in blocks. A
// step takes as long as its busiest rank.
function timesOf({ ranks }, tiles) {
  const work = upTo(ranks).map(() => Array(ranks).fill(0));
  const whole = tiles.length / ranks ** 2; // tiles per block
  for (const { rank, step, share } of tiles) work[rank][step] += share / whole;
  const longest = upTo(ranks).map((step) => Math.max(...work.map((row) => row[step])));
  const idle = work.map((row) => row.map((done, step) => longest[step] - done));
  return { work, idle, longest };
}

// The sum for each rank, up to a step.
const soFar = (rows, step) => rows.map((row) => sum(row.slice(0, step + 1)));

export function describe(values) {
  const { step, ranks } = values;
  const tiles = tilesOf(values);
  const times = timesOf(values, tiles);
  const { work, idle, longest } = times;
  const every = upTo(ranks);
  const spent = sum(longest.slice(0, step + 1));
  const idleShare = sum(soFar(idle, step)) / ranks / spent;
  return (
    `step ${step} (steps 0 to ${ranks - 1}): ranks 0 to ${ranks - 1} hold the keys of ranks ` +
    `${listed(every.map((rank) => holds(rank, step, ranks)))}; work of each rank, in blocks: ` +
    `${listed(work.map((row) => FRACTIONS[row[step]]))}; ` +
    `${whoIsIdle(every.filter((rank) => idle[rank][step]))}; time so far ` +
    `${spent} of ${sum(longest)} blocks; on average, a rank was idle for ` +
    `${percent(idleShare)} of the time so far` +
    (step === ranks - 1 ? finding(tiles, times) : "")
  );
}

// What there is to find when the keys have been to every rank, if anything.
function finding(tiles, { idle, longest }) {
  const ranks = longest.length;
  const idleTimes = idle.map(sum);
  const most = Math.max(...idleTimes);
  const cut = new Set(tiles.filter(({ share }) => share === 0.5).map(({ step }) => step));
  if (most) {
    const never = upTo(ranks).filter((rank) => !idleTimes[rank]);
    const found =
      `; found: rank ${listed(never)} is never idle, and rank ${idleTimes.indexOf(most)} is idle ` +
      `the longest, for ${percent(most / sum(longest))} of the time`;
    if (shareIdle(ranks) <= MUCH_IDLE || shareIdle(ranks - 1) > MUCH_IDLE) return found;
    const limit = percent(MUCH_IDLE);
    const fewest = `in order, ${ranks} ranks are the fewest with a mean idle time above ${limit}`;
    return `${found}; found: ${fewest}`;
  }
  if (cut.size === 0) return "";
  return (
    "; found: all ranks have equal work in every step; the mask cuts through tiles only in step " +
    listed([...cut])
  );
}

// The share of the time for which ranks are idle, with a causal mask and in order.
function shareIdle(ranks) {
  const values = { ranks, causal: true, zigzag: false };
  const { idle, longest } = timesOf(values, tilesOf(values));
  return sum(idle.flat()) / (ranks * sum(longest));
}

function whoIsIdle(idle) {
  if (idle.length === 0) return "no rank is idle";
  return idle.length === 1 ? `rank ${idle} is idle` : `ranks ${listed(idle)} are idle`;
}

const listed = (values) => values.join(", ");

// How strong the color of a tile is on white: done, and in this step.
const [PALE, FULL] = [0.25, 0.65];
const EDGE = { stroke: "#999", "stroke-width": 0.6 };
const NOW = { stroke: "#000", "stroke-width": 2 };
const MET = { fill: "none", stroke: "#000", "stroke-dasharray": "3 3" };
const FUTURE = { fill: "#ededed" };
const DOTTED = { stroke: "#b3b3b3", "stroke-width": 2, "stroke-linecap": "round" };
const DONE = { stroke: "#000", "stroke-width": 5, "stroke-linecap": "round" };
const WORK = { stroke: "#666" };
const IDLE = { fill: "#fff", ...WORK };
const SMALL = { "font-size": 12 };
const MIDDLE = { "text-anchor": "middle" };

function shade(rank, strength) {
  const parts = colors[rank].map((part) => Math.round(255 - strength * (255 - part)));
  return `rgb(${parts.join(", ")})`;
}

export function picture(svg, update) {
  const showTiles = map(svg, [54, 50, 264, 264], update);
  const showRanks = rows(svg, [344, 50, 204, 264]);
  legends(svg, 354);
  return (values) => {
    const tiles = tilesOf(values);
    showTiles(values, tiles);
    showRanks(values, timesOf(values, tiles));
  };
}

// Draw the map of all tiles, with the ranks that hold their queries and keys. Return a function
// that updates it. A click on a tile goes to its step.
function map(svg, frame, update) {
  const [left, top, width, height] = frame;
  const middle = left + width / 2;
  const title = "keys: the rank that holds them now";
  shape(svg, "text", { x: middle, y: 17, ...MIDDLE, text: title });
  const below = { x: middle, y: top + height + 17, ...MIDDLE };
  shape(svg, "text", { ...below, text: "chunks of the text, in order" });
  const transform = `translate(20 ${top + height / 2}) rotate(-90)`;
  shape(svg, "text", { transform, ...MIDDLE, text: "queries: the rank that holds them" });

  const future = shape(svg, "g", {});
  shape(future, "path", { ...FUTURE, d: `M ${left} ${top} h ${width} v ${height} Z` });
  shape(future, "path", { ...DOTTED, d: dots(frame, (x, y) => x > y) });
  const paths = (look) => colors.map((_, rank) => shape(svg, "path", look(rank)));
  const coming = shape(svg, "path", { fill: "#fff", ...EDGE });
  const past = paths((rank) => ({ fill: shade(rank, PALE), ...EDGE }));
  const strips = paths((rank) => ({ fill: shade(rank, PALE) }));
  const done = shape(svg, "path", DONE);
  const now = paths((rank) => ({ fill: shade(rank, FULL), ...NOW }));
  const met = shape(svg, "path", MET);
  const names = shape(svg, "g", { ...SMALL, ...MIDDLE, fill: "#000" });
  const write = ([x, y], text, look) => shape(names, "text", { x, y: y + 4.3, text, ...look });

  let tilesNow, chunks;
  clicked(svg, [left, top, width, height], ([x, y]) => {
    const [column, row] = [(x - left) / width, (y - top) / height].map((part) =>
      Math.floor(part * chunks),
    );
    const tile = tilesNow.find((each) => each.row === row && each.column === column);
    if (tile) update({ step: tile.step });
  });

  return ({ step, ranks, causal, zigzag }, tiles) => {
    tilesNow = tiles;
    chunks = ranks * (1 + zigzag);
    const [across, down] = [width / chunks, height / chunks];
    const box = (tile) => {
      const [x, y] = [left + tile.column * across, top + tile.row * down];
      const corners = [[x, y], [x, y + down], [x + across, y + down], [x + across, y]];
      return tile.share === 0.5 ? corners.slice(0, 3) : corners; // the diagonal cuts it
    };
    const outline = (some) => some.map((tile) => polygon(box(tile))).join(" ");
    const needed = tiles.filter(({ share }) => share);
    const before = needed.filter((tile) => tile.step < step);
    const here = tiles.filter((tile) => tile.step === step);
    change(future, { visibility: causal ? "visible" : "hidden" });
    change(coming, { d: outline(needed.filter((tile) => tile.step >= step)) });
    change(done, { d: before.map((tile) => dot(center(box(tile)))).join(" ") });
    change(met, { d: outline(here.filter(({ share }) => !share)) });

    names.replaceChildren();
    for (const tile of here) write(center(box(tile)), tile.rank, { "font-weight": "bold" });
    const home = chunksOf(ranks, zigzag);
    colors.forEach((_, rank) => {
      const its = (tile) => tile.rank === rank;
      change(past[rank], { d: outline(before.filter(its)) });
      change(now[rank], { d: outline(here.filter((tile) => its(tile) && tile.share)) });
      const queries = (home[rank] ?? []).map((row) => {
        return [left - 24, top + row * down + 1, 20, down - 2];
      });
      const keys = (home[holds(rank, step, ranks)] ?? []).map((column) => {
        return [left + column * across + 1, top - 24, across - 2, 20];
      });
      const owned = rank < ranks ? [...queries, ...keys] : [];
      change(strips[rank], { d: owned.map((each) => polygon(cornersOf(each))).join(" ") });
      for (const each of owned) write(center(cornersOf(each)), rank);
    });
  };
}

function cornersOf([x, y, width, height]) {
  return [[x, y], [x, y + height], [x + width, y + height], [x + width, y]];
}

function center(corners) {
  return [0, 1].map((axis) => sum(corners.map((corner) => corner[axis])) / corners.length);
}

const written = (point) => point.map((each) => Number(each.toFixed(2))).join(" ");
const polygon = (corners) => `M ${corners.map(written).join(" L ")} Z`;
const dot = (point) => `M ${written(point)} h 0`;

// The path of dots in a frame; `wanted` takes where one is, from the corner of the frame.
function dots([left, top, width, height], wanted) {
  const all = upTo(height / 6).flatMap((row) =>
    upTo(width / 6).map((column) => [6 * column + 3 + (row % 2) * 3, 6 * row + 3]),
  );
  const inside = all.filter(([x, y]) => x < width && wanted(x - 3, y));
  return inside.map(([x, y]) => dot([left + x, top + y])).join(" ");
}

// Draw a row for each rank: the keys that it holds, the part of a block that it computes now, and
// its time so far. Return a function that updates them.
function rows(svg, frame) {
  const [left, top, width, height] = frame;
  const title = "ranks: keys and work in this step";
  const middle = { x: left + width / 2, ...MIDDLE };
  shape(svg, "text", { ...middle, y: top - 9, text: title });
  const ticks = [0, 0.2, 0.4, 0.6, 0.8, 1];
  const ax = axes(svg, { frame, x: [0, 1], y: [1, 0], xticks: ticks });
  const below = "time so far (1: all steps without a mask)";
  shape(svg, "text", { ...middle, y: top + height + 35, ...SMALL, text: below });
  const parts = colors.map((_, rank) => ({
    label: shape(svg, "text", { x: left + 5, ...SMALL }),
    worked: shape(svg, "rect", { x: left, fill: shade(rank, 1), ...WORK }),
    idleBar: shape(svg, "rect", IDLE),
    lines: shape(svg, "path", WORK),
  }));
  return ({ step, ranks }, { work, idle }) => {
    const [worked, idleSoFar] = [work, idle].map((each) => soFar(each, step));
    const tall = (0.4 * height) / ranks;
    parts.forEach(({ label, worked: bar, idleBar: rest, lines }, rank) => {
      if (rank >= ranks) {
        for (const each of [bar, rest]) change(each, { x: left, y: top, width: 0, height: 0 });
        change(lines, { d: "" });
        change(label, { y: top, text: "" });
        return;
      }
      const y = ax.y((rank + 0.5) / ranks);
      const [from, to] = [worked[rank], worked[rank] + idleSoFar[rank]].map((x) => ax.x(x / ranks));
      const keys = `keys of rank ${holds(rank, step, ranks)}`;
      const part = FRACTIONS[work[rank][step]];
      change(label, { y: y - 4, text: `rank ${rank}: ${keys}, work ${part}` });
      change(bar, { y, width: from - left, height: tall });
      change(rest, { x: from, y, width: to - from, height: tall });
      change(lines, { d: to > from ? hatch(from, y, to - from, tall) : "" });
    });
  };
}

// Draw the legends of the map and of the rows.
function legends(svg, top) {
  const swatch = (x, row, looks, text) => {
    const box = { x, y: top + 17 * row - 10, width: 22, height: 11 };
    for (const [name, look] of looks) shape(svg, name, { ...(name === "rect" && box), ...look });
    shape(svg, "text", { x: x + 29, y: top + 17 * row, ...SMALL, text });
  };
  const [left, middle, right] = [30, 160, 362];
  const inside = (x, row) => [x, top + 17 * row - 10, 22, 11];
  const point = ["path", { ...DONE, d: dot([left + 11, top - 4.5]) }];
  const dotted = ["path", { ...DOTTED, d: dots(inside(middle, 1), () => true) }];
  const lines = ["path", { ...WORK, d: hatch(...inside(right + 90, 1)) }];
  swatch(left, 0, [["rect", { fill: shade(0, PALE), ...EDGE }], point], "done");
  swatch(left, 1, [["rect", { fill: "#fff", ...EDGE }]], "to come");
  swatch(left, 2, [["rect", { fill: shade(0, FULL), ...NOW }]], "in this step, by this rank");
  swatch(middle, 0, [["rect", { ...MET, ...FUTURE }]], "in this step, skipped");
  swatch(middle, 1, [["rect", FUTURE], dotted], "future, never computed");
  swatch(right, 1, [["rect", { fill: shade(0, 1), ...WORK }]], "work");
  swatch(right + 90, 1, [["rect", IDLE], lines], "idle");
}
