// What explorers share that live in the page, in a notebook as on the website: controls, words,
// and how pictures are drawn. An explorer's own part follows below in the same module: the `size`
// of its picture in pixels, `describe`, which returns its words, and its `picture`; and where the
// highest value of a number depends on other controls, `highest`, which returns it by its name. One
// that is given data while it is shown has two functions: `begin` is called with what is known
// already, and `take` with what comes.

export const COLORS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728"]; // C0 to C3 of Matplotlib
const SVG = "http://www.w3.org/2000/svg";

// Show an explorer with a model: the notebook's, or that of `alone`.
function render({ model, el }) {
  // Controls on the left; where there is no room for both, the picture comes first. All in an
  // element of its own: ipywidgets resets the style of the one that is given.
  const all = put(el, "div", {
    style: `display: flex; flex-flow: row-reverse wrap; justify-content: flex-end;
      align-items: flex-start; gap: 8px; outline: none`,
    tabindex: -1, // a click on the picture leaves the keys here
  });
  const svg = shape(all, "svg", {
    viewBox: `0 0 ${size.join(" ")}`,
    width: size[0],
    role: "img",
    "aria-label": "picture, described in words below",
    fill: "currentColor",
    "font-size": 13,
  });
  const column = put(all, "div");
  const words = put(all, "p", { role: "status" });
  svg.style = "max-width: 100%; height: auto; user-select: none";
  column.style = "flex: 1 1 200px; max-width: 240px";
  words.style = "flex: 1 0 100%; margin: 0; overflow-wrap: anywhere";

  const update = (changed) => {
    model.set("values", moved(possible(model.get("values")), changed));
    model.save_changes();
  };
  const setters = Object.entries(model.get("controls")).map(([name, control]) => [
    name,
    KINDS[control.kind](column, control, (value) => update({ [name]: value })),
  ]);
  const draw = picture(svg, update);
  const show = () => {
    const values = possible(model.get("values"));
    const ends = highestOf(values);
    for (const [name, set] of setters) set(values[name], ends[name]);
    draw(values);
    write(words, describe(values));
  };
  model.on("change:values", show);
  model.on("msg:custom", show); // after `take`
  show();
}

// Once for a model, which may be shown several times.
function initialize({ model }) {
  if (typeof take !== "function") return;
  begin(model.get("known"));
  model.on("msg:custom", take);
}
export default { initialize, render };

// Show an explorer in a page without a kernel, and return its model.
export function alone(el, controls) {
  const values = Object.entries(controls).map(([name, { value }]) => [name, value]);
  const state = { controls, values: Object.fromEntries(values) };
  let changed;
  const model = {
    get: (name) => state[name],
    set(name, value) {
      state[name] = value;
      changed();
    },
    on(_, call) {
      changed = call; // one alone, whatever its event: render has no other
    },
    save_changes() {},
  };
  el.replaceChildren();
  render({ model, el });
  return model;
}

const highestOf = (values) => (typeof highest === "function" ? highest(values) : {});

// Values, of which Python may have set a number beyond what the others leave it.
function possible(values) {
  const ends = Object.entries(highestOf(values));
  const moved = ends.map(([name, end]) => [name, Math.min(values[name], end)]);
  return { ...values, ...Object.fromEntries(moved) };
}

// The values after the user changed some of them. If a number is at its highest value and that value
// changes, the number follows it, so that ends can be compared. Others stay, or move to the end.
function moved(values, changed) {
  const [after, before] = [{ ...values, ...changed }, highestOf(values)];
  for (const [name, end] of Object.entries(highestOf(after))) {
    const goesWithIt = !(name in changed) && values[name] === before[name];
    after[name] = goesWithIt ? end : Math.min(after[name], end);
  }
  return after;
}

function write(words, text) {
  words.replaceChildren();
  for (const part of text.split(/(found:)/)) {
    if (part === "found:") put(words, "strong").textContent = part;
    else words.append(part);
  }
}

// Controls. Each puts its elements into the column, calls `set` with a new value when it is moved
// by hand, and returns what shows a value.
const KINDS = { number, choice, check, text };
// the page's own colors: what is typed is on its background
const FIELD = `font: inherit; color: var(--jp-content-font-color1, CanvasText);
  background: var(--jp-layout-color1, Canvas); border: 1px solid; border-radius: 2px`;

function number(column, { label, low, high, step }, set) {
  const box = named(column, label, "input", { type: "number", min: low, max: high, step });
  box.style = `${FIELD}; width: 5em`;
  const range = put(column, "input", { type: "range", min: low, max: high, step });
  range.ariaLabel = label;
  range.style = "display: block; width: 100%; margin: 2px 0 10px";
  let now, end;
  const show = (value, highest = high) => {
    [now, end] = [value, highest];
    box.max = range.max = end;
    box.value = range.value = value;
  };
  range.addEventListener("input", () => set(range.valueAsNumber));
  const take = () => {
    const typed = Number.isInteger(step) ? Math.round(box.valueAsNumber) : box.valueAsNumber;
    show(Number.isNaN(typed) ? now : Math.min(Math.max(typed, low), end), end);
    set(now);
  };
  whenDone(box, take);
  return show;
}

// Call `take` when what is typed in a box is done.
function whenDone(box, take) {
  box.addEventListener("change", take);
  // In JupyterLab, Enter does not end a change.
  box.addEventListener("keydown", ({ key }) => key === "Enter" && take());
}

function choice(column, { label, options }, set) {
  const select = named(column, label, "select");
  select.style = `${FIELD}; min-width: 0`; // an option may be wider than the column
  for (const option of options) put(select, "option").textContent = option;
  select.addEventListener("change", () => set(options[select.selectedIndex]));
  return (value) => {
    select.selectedIndex = options.indexOf(value);
  };
}

function check(column, { label }, set) {
  const box = named(column, label, "input", { type: "checkbox" });
  box.parentElement.prepend(box);
  box.addEventListener("change", () => set(box.checked));
  return (value) => {
    box.checked = value;
  };
}

function text(column, { label, placeholder }, set) {
  const box = named(column, label, "input", { type: "text", placeholder });
  box.style = `${FIELD}; width: 6em`;
  whenDone(box, () => set(box.value));
  return (value) => {
    box.value = value;
  };
}

function named(column, label, name, attributes) {
  const line = put(column, "label");
  line.style = "display: flex; align-items: center; gap: 6px; margin: 0 0 6px";
  put(line, "span").textContent = label;
  line.firstChild.style.flex = "1";
  return put(line, name, attributes);
}

function put(parent, name, attributes = {}) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent.append(element);
  return element;
}

// Pictures.

// Add an element of SVG to another; `text` is what is written in it.
export function shape(parent, name, attributes) {
  const element = document.createElementNS(SVG, name);
  change(element, attributes);
  parent.append(element);
  return element;
}

// Give an element other attributes. A hundredth of a pixel is fine enough.
export function change(element, { text, ...attributes }) {
  for (const [key, value] of Object.entries(attributes)) {
    element.setAttribute(key, typeof value === "number" ? Number(value.toFixed(2)) : value);
  }
  if (text !== undefined) element.textContent = text;
}

// Draw axes: a frame [left, top, width, height] in pixels of the picture, the numbers at the ends
// of x and y, ticks that are numbers or pairs of a number and its name, and labels; that of y stands
// `away` from the frame, to leave room for the names of its ticks. Returns x and y, which map a
// number to its pixel, and `at`, which maps a point of the picture to numbers.
export function axes(
  svg,
  { frame, x, y, xticks = [], yticks = [], xlabel = "", ylabel = "", away = 38 },
) {
  const [left, top, width, height] = frame;
  const bottom = top + height;
  const [across, up] = [width / (x[1] - x[0]), height / (y[1] - y[0])]; // pixels of a 1
  const ax = {
    x: (value) => left + (value - x[0]) * across,
    y: (value) => bottom - (value - y[0]) * up,
    at: ([px, py]) => [x[0] + (px - left) / across, y[0] + (bottom - py) / up],
  };
  const line = { stroke: "currentColor", fill: "none" };
  shape(svg, "rect", { x: left, y: top, width, height, ...line });
  for (const [value, text] of xticks.map(pair)) {
    const at = ax.x(value);
    shape(svg, "line", { x1: at, x2: at, y1: bottom, y2: bottom + 4, ...line });
    shape(svg, "text", { x: at, y: bottom + 17, "text-anchor": "middle", text });
  }
  for (const [value, text] of yticks.map(pair)) {
    const at = ax.y(value);
    shape(svg, "line", { x1: left - 4, x2: left, y1: at, y2: at, ...line });
    shape(svg, "text", { x: left - 7, y: at + 4.5, "text-anchor": "end", text });
  }
  const middle = [left + width / 2, top + height / 2];
  shape(svg, "text", { x: middle[0], y: bottom + 35, "text-anchor": "middle", text: xlabel });
  shape(svg, "text", {
    transform: `translate(${left - away} ${middle[1]}) rotate(-90)`,
    "text-anchor": "middle",
    text: ylabel,
  });
  return ax;
}

const pair = (tick) => (Array.isArray(tick) ? tick : [tick, `${tick}`.replace("-", "−")]);

// The path of slanting lines, 8 pixels apart, that fill a rectangle.
function hatch(left, top, width, height) {
  let path = "";
  for (let reach = 8; reach < width + height; reach += 8) {
    const [from, below] = [Math.max(reach - height, 0), Math.min(reach, height)];
    const [to, above] = [Math.min(reach, width), Math.max(reach - width, 0)];
    path += `M ${left + from} ${top + below} L ${left + to} ${top + above} `;
  }
  return path;
}

// Call `to` with the point of the picture where the pointer goes down on a part of it (or on the
// whole svg), then with each point to which it is dragged, and with whether the drag begins there.
export function follow(part, to) {
  const report = (event) => to(pointOf(event, part), event.type === "pointerdown");
  part.style.cursor = "pointer";
  part.style.touchAction = "none"; // a finger that draws does not scroll
  part.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    part.setPointerCapture(event.pointerId);
    report(event);
  });
  part.addEventListener("pointermove", (event) => {
    if (part.hasPointerCapture(event.pointerId)) report(event);
  });
}

// Call `to` with the point of the picture that is clicked in a frame as of `axes`. A finger that
// goes on scrolls the page.
function clicked(svg, [x, y, width, height], to) {
  const ground = shape(svg, "rect", { x, y, width, height, fill: "transparent" });
  ground.style.cursor = "pointer";
  ground.addEventListener("click", (event) => to(pointOf(event, ground)));
}

// The point of the picture where the pointer is; a part of it, or all, is what it points at.
function pointOf({ clientX, clientY }, part) {
  const box = (part.ownerSVGElement ?? part).getBoundingClientRect();
  const scale = size[0] / box.width; // on a narrow page it has shrunk
  return [(clientX - box.left) * scale, (clientY - box.top) * scale];
}

// Write a number with so many digits after the point, and no minus before a zero.
export function fixed(value, digits) {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text;
}
