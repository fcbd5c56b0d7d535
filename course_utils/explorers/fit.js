// Does a kernel with these tiles fit on a multiprocessor? What it needs was recorded by a compiler.
export const size = [560, 330];

const { gpus, compiled, threads, registers, most_registers } = given;
const BYTES = 2; // of a number in float16
const KIB = 1024;
const LARGEST = 300; // KiB on the axis
const MOST = 4; // programs that are drawn

// Return what a kernel needs, what of it are queries and keys, and how many programs fit.
function needsOf({ gpu, d, block_q, block_k, stages }) {
  const key = [gpu, d, block_q, block_k, stages].join(",");
  const [shared, used, spilled] = compiled[key];
  const limit = gpus[gpu];
  const perProgram = Math.ceil(used / 8) * 8 * threads; // registers are given out in eights
  const byMemory = Math.floor(limit.in_all / (shared + 1)); // the system takes 1 KiB
  const byRegisters = Math.floor(registers / perProgram);
  const queries = (block_q * d * BYTES) / KIB;
  const pair = (2 * block_k * d * BYTES) / KIB; // a tile of keys and one of values
  return {
    shared, used, spilled, queries, pair, byMemory, byRegisters,
    pairs: Math.floor((shared - queries) / pair),
    limit: limit.per_program,
    programs: shared > limit.per_program ? 0 : Math.min(byMemory, byRegisters),
  };
}

const inWords = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

function verdictOf({ shared, limit, spilled }) {
  if (shared > limit) return "does not fit, because shared memory is too small";
  return spilled ? "fits, but registers are spilled" : "fits";
}

function limitOf({ programs, byMemory, byRegisters }) {
  if (!programs) return "";
  if (byMemory === byRegisters) return ", limited by both shared memory and registers";
  return `, limited by ${byMemory < byRegisters ? "shared memory" : "registers"}`;
}

export function describe(values) {
  const { gpu, d, block_q, block_k, stages } = values;
  const needs = needsOf(values);
  return (
    `${gpu}, d = ${d}, tiles of ${block_q} × ${block_k}, ${stages} stages: ` +
    `${verdictOf(needs)}; shared memory ${fixed(needs.shared, 0)} of ${needs.limit} KiB; ` +
    `registers ${needs.used} of ${most_registers} for each thread, ${needs.spilled} bytes ` +
    `spilled; ${inWords(needs.programs, "program")} at a time on a multiprocessor` +
    limitOf(needs) +
    finding(values, needs)
  );
}

function finding({ d, block_q, block_k }, { programs, spilled }) {
  if (d !== 128 || !programs) return "";
  if (block_q === 128 && block_k === 128 && spilled) {
    return "; found: shared memory would be enough, but the registers are not";
  }
  return programs > 1 ? `; found: ${programs} programs at a time with d = 128` : "";
}

const [LEFT, WIDTH, HEIGHT] = [16, 528, 26];

export function picture(svg) {
  const verdict = shape(svg, "text", { x: LEFT, y: 18, "font-size": 15, "font-weight": "bold" });
  const showMemory = memory(svg, [LEFT, 62, WIDTH, HEIGHT]);
  const showRegisters = registersOfThread(svg, [LEFT, 176, WIDTH, HEIGHT]);
  const showPrograms = programs(svg, LEFT, 278);
  return (values) => {
    const needs = needsOf(values);
    change(verdict, { text: `${values.gpu}: ${verdictOf(needs)}` });
    showMemory(needs);
    showRegisters(needs);
    showPrograms(needs);
  };
}

// Draw a limit as a line over a bar. Return a function that moves it.
function limitLine(svg, ax, [, top, , height]) {
  const line = { y1: top - 6, y2: top + height + 6, stroke: COLORS[3], "stroke-width": 3 };
  const drawn = shape(svg, "line", line);
  return (value) => change(drawn, { x1: ax.x(value), x2: ax.x(value) });
}

// Draw shared memory: the queries, then a part for each pair of a tile of keys and one of values.
function memory(svg, frame) {
  const [left, top, , height] = frame;
  const title = shape(svg, "text", { x: left, y: top - 12 });
  const ax = axes(svg, {
    frame,
    x: [0, LARGEST], y: [0, 1], xticks: [0, 50, 100, 150, 200, 250, 300],
    xlabel: "KiB (blue: queries, orange: keys and values, gray: other, red line: limit)",
  });
  const group = shape(svg, "g", { stroke: "#fff" });
  const showLimit = limitLine(svg, ax, frame);
  return ({ shared, queries, pair, pairs, limit }) => {
    group.replaceChildren();
    const part = (from, to, fill) => {
      const box = { x: ax.x(from), width: ax.x(to) - ax.x(from), y: top + 1, height: height - 2 };
      shape(group, "rect", { ...box, fill });
    };
    part(0, queries, COLORS[0]);
    for (let n = 0; n < pairs; n += 1) {
      part(queries + n * pair, queries + (n + 1) * pair, COLORS[1]);
    }
    part(queries + pairs * pair, shared, "#808080"); // weights on their way, barriers
    showLimit(limit);
    const count = `${inWords(pairs, "pair")} of key and value tiles`;
    const text = `shared memory: ${fixed(shared, 0)} of ${limit} KiB (${count})`;
    change(title, { text });
  };
}

// Draw the registers of a thread.
function registersOfThread(svg, frame) {
  const [left, top, , height] = frame;
  const title = shape(svg, "text", { x: left, y: top - 12 });
  const ax = axes(svg, {
    frame,
    x: [0, LARGEST], y: [0, 1], xticks: [0, 50, 100, 150, 200, 250, 300],
    xlabel: "registers of a thread (red line: limit)",
  });
  const bar = shape(svg, "rect", { x: ax.x(0), y: top + 1, height: height - 2, fill: COLORS[2] });
  limitLine(svg, ax, frame)(most_registers);
  return ({ used, spilled }) => {
    change(bar, { width: ax.x(used) - ax.x(0) });
    const more = spilled ? `, and ${spilled} bytes are spilled` : "";
    change(title, { text: `registers: ${used} of ${most_registers} for each thread${more}` });
  };
}

// Draw a box for each program that fits on a multiprocessor.
function programs(svg, left, top) {
  const title = shape(svg, "text", { x: left, y: top - 9 });
  const boxes = Array.from({ length: MOST }, (_, n) => {
    const box = { x: left + 44 * n, y: top, width: 36, height: 36, rx: 4 };
    return shape(svg, "rect", { ...box, stroke: "#808080" });
  });
  return ({ programs: count, ...needs }) => {
    const limit = limitOf({ programs: count, ...needs });
    change(title, { text: `programs on a multiprocessor: ${count}${limit}` });
    boxes.forEach((box, n) => change(box, { fill: n < count ? COLORS[0] : "none" }));
  };
}
