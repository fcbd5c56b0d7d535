// A picture that is replaced in place, keeps its shape on a narrow page, and tells where it is
// pressed. (An image of ipywidgets has no alternative text, and tells nothing.)
function render({ model, el }) {
  const image = document.createElement("img");
  image.className = "widget-image";
  for (const name of ["alt", "width", "height"]) image[name] = model.get(name);
  Object.assign(image.style, { display: "block", maxWidth: "100%", height: "auto" });
  image.draggable = false;
  const show = () => {
    URL.revokeObjectURL(image.src);
    image.src = URL.createObjectURL(new Blob([model.get("value")], { type: "image/png" }));
  };
  model.on("change:value", show);
  show();
  el.append(image);
  model.set("density", Math.min(window.devicePixelRatio, 3)); // drawn as fine as the screen shows
  model.save_changes();

  if (!model.get("pressed")) return;
  let press = 0; // when the button went down: two presses on one place are two
  const tell = (event) => {
    const box = image.getBoundingClientRect();
    const across = (event.clientX - box.left) / box.width;
    const down = (event.clientY - box.top) / box.height;
    model.set("place", [across, down, press]);
    model.save_changes();
  };
  image.style.cursor = "pointer";
  image.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    press = event.timeStamp;
    tell(event);
  });
}
export default { render };
