// Keys go round a ring of ranks: who holds them, who computes which tile, and who waits.
export const size = [560, 400];

const { colours } = given;
const MUCH = 0.4; // of all time, spent waiting
const FRACTIONS = { 0: "0", 0.5: "½", 1: "1" }; // parts of a block

const upTo = (end) => Array.from({ length: end }, (_, index) => index);
const sum = (values) => values.reduce((total, value) => total + value, 0);
const percent = (part) => `${fixed(100 * part, 0)}%`;

export function highest({ ranks }) {
  return { step: ranks - 1 };
}

// Which pieces of the text each rank has.
function held(ranks, zigzag) {
  return upTo(ranks).map((rank) => (zigzag ? [rank, 2 * ranks - 1 - rank] : [rank]));
}

// Whose keys a rank has in a step.
const holds = (rank, step, ranks) => (rank - step + ranks) % ranks;

// The queries of one piece of the text against the keys of another: who computes it, in which
// step, and which share of its pairs is allowed. A piece against itself is allowed by half.
function tilesOf({ ranks, causal, zigzag }) {
  const pieces = held(ranks, zigzag);
  const share = (row, column) => (causal ? ((row > column) + (row >= column)) / 2 : 1);
  const meet = (rank, step) => pieces[rank].flatMap((row) =>
    pieces[holds(rank, step, ranks)].map((column) => {
      return { rank, step, row, column, share: share(row, column) };
    }),
  );
  return upTo(ranks).flatMap((rank) => upTo(ranks).flatMap((step) => meet(rank, step)));
}

// The work and the waiting of each rank in each step, and the length of each step, in blocks. A
// step takes as long as its busiest rank.
function timesOf({ ranks }, tiles) {
  const work = upTo(ranks).map(() => Array(ranks).fill(0));
  const whole = tiles.length / ranks ** 2; // tiles of a block
  for (const { rank, step, share } of tiles) work[rank][step] += share / whole;
  const longest = upTo(ranks).map((step) => Math.max(...work.map((row) => row[step])));
  const waits = work.map((row) => row.map((each, step) => longest[step] - each));
  return { work, waits, longest };
}

// What has come together for each rank by a step.
const soFar = (rows, step) => rows.map((row) => sum(row.slice(0, step + 1)));

export function describe(values) {
  const { step, ranks } = values;
  const tiles = tilesOf(values);
  const times = timesOf(values, tiles);
  const { work, waits, longest } = times;
  const every = upTo(ranks);
  const spent = sum(longest.slice(0, step + 1));
  const waited = sum(soFar(waits, step)) / ranks / spent;
  return (
    `step ${step} of 0 to ${ranks - 1}: ranks 0 to ${ranks - 1} hold the keys of ranks ` +
    `${listed(every.map((rank) => holds(rank, step, ranks)))}; work in each block: ` +
    `${listed(work.map((row) => FRACTIONS[row[step]]))}; ` +
    `${whoWaits(every.filter((rank) => waits[rank][step]))}; time so far ` +
    `${spent} of ${sum(longest)} blocks, ${percent(waited)} of it waiting` +
    (step === ranks - 1 ? finding(tiles, times) : "")
  );
}

// What is worth finding when keys have gone all the way round, if there is something.
function finding(tiles, { waits, longest }) {
  const ranks = longest.length;
  const waited = waits.map(sum);
  const most = Math.max(...waited);
  const cut = new Set(tiles.filter(({ share }) => share === 0.5).map(({ step }) => step));
  if (most) {
    const never = upTo(ranks).filter((rank) => !waited[rank]);
    const waiting =
      `; found: rank ${listed(never)} never waits, rank ${waited.indexOf(most)} most, ` +
      `${percent(most / sum(longest))} of the time`;
    if (shareWaited(ranks) <= MUCH || shareWaited(ranks - 1) > MUCH) return waiting;
    const limit = `${percent(MUCH)} of the time`;
    return `${waiting}; found: ${ranks} ranks are the fewest that in order wait more than ${limit}`;
  }
  if (cut.size === 0) return "";
  return (
    "; found: all ranks have equal work in every step; a mask cuts through tiles only in step " +
    listed([...cut])
  );
}

// The share of all time that ranks spend waiting: causal, in order.
function shareWaited(ranks) {
  const values = { ranks, causal: true, zigzag: false };
  const { waits, longest } = timesOf(values, tilesOf(values));
  return sum(waits.flat()) / (ranks * sum(longest));
}

function whoWaits(idle) {
  if (idle.length === 0) return "nobody waits";
  return idle.length === 1 ? `rank ${idle} waits` : `ranks ${listed(idle)} wait`;
}

const listed = (values) => values.join(", ");

// How much of its colour a tile has: done, and in this step. All of it stands on white.
const [PALE, FULL] = [0.25, 0.65];
const EDGE = { stroke: "#999", "stroke-width": 0.6 };
const NOW = { stroke: "#000", "stroke-width": 2 };
const MET = { fill: "none", stroke: "#000", "stroke-dasharray": "3 3" };
const FUTURE = { fill: "#ededed" };
const DOTTED = { stroke: "#b3b3b3", "stroke-width": 2, "stroke-linecap": "round" };
const DONE = { stroke: "#000", "stroke-width": 5, "stroke-linecap": "round" };
const WORK = { stroke: "#666" };
const WAITING = { fill: "#fff", ...WORK };
const SMALL = { "font-size": 12 };
const MIDDLE = { "text-anchor": "middle" };

function shade(rank, strength) {
  const parts = colours[rank].map((part) => Math.round(255 - strength * (255 - part)));
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

// Draw the map of all tiles, with whose queries and whose keys they are; returns what shows them.
// A click on a tile goes to its step.
function map(svg, frame, update) {
  const [left, top, width, height] = frame;
  const middle = left + width / 2;
  const title = "keys: which rank holds them now";
  shape(svg, "text", { x: middle, y: 17, ...MIDDLE, text: title });
  const below = { x: middle, y: top + height + 17, ...MIDDLE };
  shape(svg, "text", { ...below, text: "pieces of the text, from the first" });
  const transform = `translate(20 ${top + height / 2}) rotate(-90)`;
  shape(svg, "text", { transform, ...MIDDLE, text: "queries: their rank" });

  const future = shape(svg, "g", {});
  shape(future, "path", { ...FUTURE, d: `M ${left} ${top} h ${width} v ${height} Z` });
  shape(future, "path", { ...DOTTED, d: dots(frame, (x, y) => x > y) });
  const paths = (look) => colours.map((_, rank) => shape(svg, "path", look(rank)));
  const coming = shape(svg, "path", { fill: "#fff", ...EDGE });
  const past = paths((rank) => ({ fill: shade(rank, PALE), ...EDGE }));
  const strips = paths((rank) => ({ fill: shade(rank, PALE) }));
  const done = shape(svg, "path", DONE);
  const now = paths((rank) => ({ fill: shade(rank, FULL), ...NOW }));
  const met = shape(svg, "path", MET);
  const names = shape(svg, "g", { ...SMALL, ...MIDDLE, fill: "#000" });
  const write = ([x, y], text, look) => shape(names, "text", { x, y: y + 4.3, text, ...look });

  let tilesNow, pieces;
  clicked(svg, [left, top, width, height], ([x, y]) => {
    const [column, row] = [(x - left) / width, (y - top) / height].map((part) =>
      Math.floor(part * pieces),
    );
    const tile = tilesNow.find((each) => each.row === row && each.column === column);
    if (tile) update({ step: tile.step });
  });

  return ({ step, ranks, causal, zigzag }, tiles) => {
    tilesNow = tiles;
    pieces = ranks * (1 + zigzag);
    const [across, down] = [width / pieces, height / pieces];
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
    change(done, { d: before.map((tile) => dot(centre(box(tile)))).join(" ") });
    change(met, { d: outline(here.filter(({ share }) => !share)) });

    names.replaceChildren();
    for (const tile of here) write(centre(box(tile)), tile.rank, { "font-weight": "bold" });
    const home = held(ranks, zigzag);
    colours.forEach((_, rank) => {
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
      for (const each of owned) write(centre(cornersOf(each)), rank);
    });
  };
}

function cornersOf([x, y, width, height]) {
  return [[x, y], [x, y + height], [x + width, y + height], [x + width, y]];
}

function centre(corners) {
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

// Draw a row for each rank: whose keys it has, the part of a block that it computes now, and its
// time so far. Returns what shows them.
function rows(svg, frame) {
  const [left, top, width, height] = frame;
  const title = "ranks: keys now, work of a block";
  const middle = { x: left + width / 2, ...MIDDLE };
  shape(svg, "text", { ...middle, y: top - 9, text: title });
  const ticks = [0, 0.2, 0.4, 0.6, 0.8, 1];
  const ax = axes(svg, { frame, x: [0, 1], y: [1, 0], xticks: ticks });
  const below = "time so far (1: all steps, no mask)";
  shape(svg, "text", { ...middle, y: top + height + 35, ...SMALL, text: below });
  const parts = colours.map((_, rank) => ({
    label: shape(svg, "text", { x: left + 5, ...SMALL }),
    worked: shape(svg, "rect", { x: left, fill: shade(rank, 1), ...WORK }),
    waited: shape(svg, "rect", WAITING),
    lines: shape(svg, "path", WORK),
  }));
  return ({ step, ranks }, { work, waits }) => {
    const [worked, waited] = [work, waits].map((each) => soFar(each, step));
    const tall = (0.4 * height) / ranks;
    parts.forEach(({ label, worked: bar, waited: rest, lines }, rank) => {
      if (rank >= ranks) {
        for (const each of [bar, rest]) change(each, { x: left, y: top, width: 0, height: 0 });
        change(lines, { d: "" });
        change(label, { y: top, text: "" });
        return;
      }
      const y = ax.y((rank + 0.5) / ranks);
      const [from, to] = [worked[rank], worked[rank] + waited[rank]].map((x) => ax.x(x / ranks));
      const keys = `keys of rank ${holds(rank, step, ranks)}`;
      change(label, { y: y - 4, text: `rank ${rank}: ${keys}, work ${FRACTIONS[work[rank][step]]}` });
      change(bar, { y, width: from - left, height: tall });
      change(rest, { x: from, y, width: to - from, height: tall });
      change(lines, { d: to > from ? hatch(from, y, to - from, tall) : "" });
    });
  };
}

// Name what the map and the rows show.
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
  swatch(left, 2, [["rect", { fill: shade(0, FULL), ...NOW }]], "in this step, by that rank");
  swatch(middle, 0, [["rect", { ...MET, ...FUTURE }]], "met, nothing to do");
  swatch(middle, 1, [["rect", FUTURE], dotted], "future: never");
  swatch(right, 1, [["rect", { fill: shade(0, 1), ...WORK }]], "work");
  swatch(right + 90, 1, [["rect", WAITING], lines], "waiting");
}
