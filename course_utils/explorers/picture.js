// A picture that is replaced in place, keeps its shape on a narrow page, and reports clicks.
// (The image of ipywidgets has no alternative text and reports nothing.)
function render({ model, el }) {
  const image = document.createElement("img");
  image.className = "widget-image";
  for (const name of ["alt", "width", "height"]) image[name] = model.get(name);
  Object.assign(image.style, { display: "block", maxWidth: "100%", height: "auto" });
  image.draggable = false;
  image.tabIndex = -1; // a click leaves the keys here
  image.style.outline = "none";
  const show = () => {
    URL.revokeObjectURL(image.src);
    image.src = URL.createObjectURL(new Blob([model.get("value")], { type: "image/png" }));
  };
  model.on("change:value", show);
  show();
  el.append(image);
  model.set("density", Math.min(window.devicePixelRatio, 3)); // as sharp as the screen
  model.save_changes();

  if (!model.get("clickable")) return;
  image.style.cursor = "pointer";
  image.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const box = image.getBoundingClientRect();
    const across = (event.clientX - box.left) / box.width;
    const down = (event.clientY - box.top) / box.height;
    model.send({ across, down });
  });
}
export default { render };
