// Keys and scrolling around a cell's widgets, for JupyterLab and Jupyter Notebook.
//
// A widget with the class "course-keys" has its keys for itself, so that an arrow or a letter is no
// shortcut there. Shift+Enter, Ctrl+Enter and Alt+Enter run the cell below, since running the
// widget's own cell again would reset it. Escape leaves the widget. One listener, before all others,
// serves all widgets of the page. It also keeps in view what a cell outputs when it is run.
if (!window.courseKeys) {
  window.courseKeys = true;
  window.addEventListener("keydown", onKey, true);
  for (const kind of ["mousedown", "keydown"]) window.addEventListener(kind, onButton, true);
  // The cell that imports the course was run before anybody listened: the one above the active cell,
  // unless that is running too, as all cells may be.
  const active = activeCell(document.activeElement.closest(".jp-Notebook"));
  if (!active?.querySelector(".jp-InputPrompt")?.textContent.includes("*")) {
    keepInView(active?.previousElementSibling);
  }
}

function onKey(event) {
  const notebook = event.target.closest?.(".jp-Notebook");
  if (!notebook) return;
  const modified = event.ctrlKey || event.altKey || event.metaKey;
  const run = event.key === "Enter" && (modified || event.shiftKey);
  const cell = event.target.closest(".course-keys")?.closest(".jp-Cell");
  if (!cell) {
    // from a widget above, the cell is not yet the active one
    if (run) keepInView(event.target.closest(".jp-Cell") ?? activeCell(notebook));
    return;
  }
  event.target.toggleAttribute("data-lm-suppress-shortcuts", !modified); // Ctrl+S saves
  if (!run && event.key !== "Escape") return;
  event.preventDefault();
  event.stopImmediatePropagation();
  const below = cell.nextElementSibling ?? cell;
  below.focus({ preventScroll: true }); // it is selected, and what was typed is done
  if (run) below.dispatchEvent(new KeyboardEvent("keydown", event));
}

// The toolbar's button runs the active cell when it is pressed: at the click that follows, the next
// cell is the active one.
function onButton(event) {
  const button = event.target.closest?.("[data-command^='notebook:run-cell']");
  const pressed = event.type === "mousedown" || event.key === "Enter" || event.key === " ";
  if (button && pressed) keepInView(activeCell(button.closest(".jp-NotebookPanel")));
}

function activeCell(notebook) {
  return notebook?.querySelector(".jp-Cell.jp-mod-active");
}

// Keep a cell's output in view while the cell runs and three seconds more, or until the next key,
// click or turn of the wheel. JupyterLab scrolls to the cell below, often before the output is there,
// and moves the output out of view.
function keepInView(cell) {
  if (!cell) return;
  const panel = cell.closest(".jp-WindowedPanel-outer, .jp-Notebook");
  const look = () => {
    const output = cell.querySelector(".jp-OutputArea"); // none while it is folded
    if (!output?.offsetHeight) return;
    const fits = output.offsetHeight <= panel.clientHeight;
    output.scrollIntoView({ block: fits ? "nearest" : "start" });
  };
  const sizes = new ResizeObserver(look);
  sizes.observe(cell);
  const ended = new AbortController();
  panel.addEventListener("scroll", look, { signal: ended.signal });
  let left = 3;
  const seconds = setInterval(() => {
    const running = cell.querySelector(".jp-InputPrompt")?.textContent.includes("*");
    left = running ? 3 : left - 1;
    if (!left) end();
  }, 1000);
  const end = () => {
    clearInterval(seconds);
    ended.abort();
    sizes.disconnect();
  };
  for (const kind of ["keydown", "pointerdown", "wheel"]) {
    window.addEventListener(kind, end, { capture: true, signal: ended.signal });
  }
}

export default { initialize() {} };
