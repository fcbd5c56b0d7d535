// The browser's own slider. It has an accessible name, which the one of ipywidgets lacks.
function render({ model, el }) {
  const range = document.createElement("input");
  range.type = "range";
  range.setAttribute("aria-label", model.get("label"));
  Object.assign(range.style, { width: "100%", margin: "0" });
  const show = () => {
    for (const name of ["min", "max", "step", "value"]) range[name] = model.get(name);
  };
  range.addEventListener("input", () => {
    model.set("value", range.valueAsNumber);
    model.save_changes();
  });
  model.on("change:min change:max change:value", show);
  show();
  el.append(range);
}
export default { render };
