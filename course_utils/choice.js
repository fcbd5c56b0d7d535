// A question, with options of which one is chosen, or with a field for a number. All is one group,
// named by the question. (The widgets of ipywidgets belong to no group, so a screen reader can tell
// neither the question nor how many options there are.)
function render({ model, el }) {
  const group = document.createElement("fieldset");
  Object.assign(group.style, { border: "none", margin: "2px", padding: "0", minWidth: "0" });
  group.tabIndex = -1; // a click beside the options leaves the keys here
  group.style.outline = "none";
  const legend = document.createElement("legend");
  const lead = document.createElement("b");
  lead.textContent = "Predict first:";
  legend.append(lead, " " + model.get("question"));
  legend.style.padding = "0";
  group.append(legend);
  const set = (value) => {
    model.set("value", value);
    model.save_changes();
  };
  const options = model.get("options");
  const showValue = options.length ? radios(group, options, set) : field(group, set);
  const show = () => {
    group.disabled = model.get("disabled");
    showValue(model.get("value"));
  };
  model.on("change:value change:disabled", show);
  show();
  el.classList.add("jupyter-widgets", "widget-html-content"); // the page's font and colors
  el.append(group);
}

function radios(group, options, set) {
  const name = `choice-${Math.random()}`; // a cell shown in two places has two groups
  const all = options.map((option) => {
    const radio = labeled(group, { type: "radio", name, value: option });
    radio.after(" " + option);
    radio.addEventListener("change", () => set(option));
    return radio;
  });
  return (value) => {
    for (const radio of all) radio.checked = radio.value === value;
    const chosen = all.find((radio) => radio.checked);
    for (const radio of all) radio.tabIndex = radio === (chosen ?? all[0]) ? 0 : -1; // for Shift+Tab
    if (chosen && group.disabled) chosen.parentElement.style.fontWeight = "bold";
  };
}

function field(group, set) {
  const box = labeled(group, { type: "text", inputMode: "decimal", placeholder: "a number" });
  box.before("Your number: ");
  box.style = `font: inherit; color: var(--jp-content-font-color1, CanvasText); width: 7em;
    background: var(--jp-layout-color1, Canvas); border: 1px solid; border-radius: 2px`;
  box.addEventListener("input", () => set(box.value));
  return (value) => {
    if (box.value !== (value ?? "")) box.value = value ?? ""; // else the cursor would move
  };
}

function labeled(group, properties) {
  const label = document.createElement("label");
  Object.assign(label.style, { display: "block", width: "fit-content", lineHeight: "1.6" });
  const input = Object.assign(document.createElement("input"), properties);
  label.append(input);
  group.append(label);
  return input;
}
export default { render };
