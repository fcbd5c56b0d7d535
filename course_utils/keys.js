// Keys in a cell's widgets, for JupyterLab and Jupyter Notebook.
//
// A widget with the class "course-keys" has its keys for itself, so that an arrow or a letter is no
// shortcut there. Shift+Enter, Ctrl+Enter and Alt+Enter run the cell below, since running the
// widget's own cell again would reset it. Escape leaves the widget. One listener, before all others,
// serves all widgets of the page.
if (!window.courseKeys) {
  window.courseKeys = true;
  window.addEventListener("keydown", onKey, true);
}

function onKey(event) {
  const modified = event.ctrlKey || event.altKey || event.metaKey;
  const run = event.key === "Enter" && (modified || event.shiftKey);
  const cell = event.target.closest?.(".course-keys")?.closest(".jp-Cell");
  if (!cell) return;
  event.target.toggleAttribute("data-lm-suppress-shortcuts", !modified); // Ctrl+S saves
  if (!run && event.key !== "Escape") return;
  event.preventDefault();
  event.stopImmediatePropagation();
  const below = cell.nextElementSibling ?? cell;
  below.focus({ preventScroll: true }); // it is selected, and what was typed is done
  if (run) below.dispatchEvent(new KeyboardEvent("keydown", event));
}
