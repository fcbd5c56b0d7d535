// Options to choose one of: one group, named by its question. (The radio buttons of ipywidgets
// belong to no group, so a screen reader can tell neither the question nor how many they are.)
function render({ model, el }) {
  const group = document.createElement("fieldset");
  Object.assign(group.style, { border: "none", margin: "2px", padding: "0", minWidth: "0" });
  const legend = document.createElement("legend");
  const lead = document.createElement("b");
  lead.textContent = "Predict first:";
  legend.append(lead, " " + model.get("question"));
  legend.style.padding = "0";
  group.append(legend);
  const name = `choice-${Math.random()}`; // a cell shown in two places has two groups
  const radios = model.get("options").map((option) => {
    const radio = document.createElement("input");
    Object.assign(radio, { type: "radio", name, value: option });
    radio.addEventListener("change", () => {
      model.set("value", option);
      model.save_changes();
    });
    const label = document.createElement("label");
    Object.assign(label.style, { display: "block", width: "fit-content", lineHeight: "1.6" });
    label.append(radio, " " + option);
    group.append(label);
    return radio;
  });
  group.addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow")) event.stopPropagation(); // else JupyterLab's: the next cell
  });
  const show = () => {
    for (const radio of radios) radio.checked = radio.value === model.get("value");
    group.disabled = model.get("disabled");
  };
  model.on("change:value change:disabled", show);
  show();
  el.classList.add("jupyter-widgets", "widget-html-content"); // the page's font and colours
  el.append(group);
}
export default { render };
