"""Measure from key press to new pixels: explorers beside the same figures by ipywidgets.interact.

All are in one JupyterLab and take turns in one run. Those that live in the page have no figure for
interact; they are measured in a page without a kernel as well, and on the way of a pointer too, if
they are dragged. Prints medians and their ratios.
Usage: make bench
"""

import statistics
import sys
import tempfile
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import lab  # noqa: E402
import stills  # noqa: E402
from course_utils import explorers  # noqa: E402
from course_utils.authoring import KERNEL  # noqa: E402

PRESSES, WARM_UP = 40, 6
DRAGGED = ["similarity_explorer", "positions_explorer"]
NAMES = [name for name in explorers.__all__ if name.endswith("_explorer")]
NAMES.remove("language_explorer")  # it needs a model, whose answer takes longer than its picture
# It needs a training, and is moved after it.
TRAINING = """
import torch
live = explorers.training_explorer(
    torch.arange(16).repeat(3), num_layers=2, num_heads=2, steps=400)
for step in range(100):
    live.add(4 - step / 100, lambda: torch.eye(48).roll(step, 1).expand(2, 2, 48, 48))
live"""
# The same figure, drawn as a notebook does without explorers: all of it, at each change.
SETUP = """
import sys
from unittest import mock
import ipywidgets as widgets
from IPython.display import display
from course_utils import explorers

class Parts:
    def __init__(self, figure, moving, controls, update, **_):
        self.figure, self.controls, self.update = figure, controls, update

def interact(explorer, first):
    def parts():
        with mock.patch.object(sys.modules[explorer.__module__], "Explorer", Parts):
            return explorer()

    def draw(x):
        made = parts()
        values = {name: control.value for name, control in made.controls.items()}
        made.update(**values | {first: x})
        display(made.figure)

    box = parts().controls[first].box
    slider = widgets.IntSlider if isinstance(box.step, int) else widgets.FloatSlider
    limits = {name: getattr(box, name) for name in ["value", "min", "max", "step"]}
    widgets.interact(draw, x=slider(**limits))
"""


def cells_of(name):
    """Return the cells of an explorer, by what makes them, and the key that moves it."""
    if name == "training_explorer":
        return {"explorer": TRAINING}, "Left"
    controls = getattr(explorers, name)().controls
    cells = {"explorer": f"explorers.{name}()"}
    if name in stills.LIVE:
        first = next(each for each in controls.values() if each["kind"] == "number")
        return cells, "Left" if first["value"] == first["high"] else "Right"
    first = next(each for each in controls if isinstance(controls[each], explorers.Number))
    cells["interact"] = f"interact(explorers.{name}, {first!r})"
    return cells, "Left" if controls[first].value == controls[first].slider.max else "Right"


# From the key or pointer on, once the picture has other pixels, take the time of the frame that
# paints them.
WATCH = """([selector, place, event]) => {
    const output = document.querySelectorAll(selector)[place];
    const drawn = output.querySelector('svg[role=img]');  // in the page; else by the kernel
    const picture = () => [...output.querySelectorAll('img')].at(-1);
    const before = picture()?.src;
    let start;
    window.took = new Promise(resolve => {
        const look = () => {
            const image = picture();
            if (!drawn && (!image || image.src === before)) return;
            observer.disconnect();
            Promise.resolve(drawn || image.decode()).then(
                () => requestAnimationFrame(() => resolve(performance.now() - start)));
        };
        const observer = new MutationObserver(look);
        observer.observe(drawn ?? output, {subtree: true, childList: true, attributes: true});
    });
    output.querySelector('[role=slider], [type=range]').focus();
    window.addEventListener(
        event, () => { start = performance.now() }, {once: true, capture: true});
}"""


def keys(page, selector, place, there):
    """Return a function that presses a key, there and back in turn, and takes its time."""
    back = {"Left": "Right", "Right": "Left"}[there]

    def press(n):
        page.evaluate(WATCH, [selector, place, "keydown"])
        page.keyboard.press(f"Arrow{back if n % 2 else there}")
        return page.evaluate("window.took")

    return press


def drags(page, selector, place):
    """Return a function that takes the time of one step of a drag."""
    picture = page.locator(selector).nth(place).locator("svg[role=img]")

    def drag(n):
        picture.scroll_into_view_if_needed()
        box = picture.bounding_box()
        at = box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.1
        page.mouse.move(*at)
        page.mouse.down()
        page.evaluate(WATCH, [selector, place, "pointermove"])
        page.mouse.move(at[0] + 60 + 60 * (n % 2), at[1])
        took = page.evaluate("window.took")
        page.mouse.up()
        return took

    return drag


def measured(page, ways):
    """Return the times of each of several ways, which take turns."""
    times = {way: [] for way in ways}
    for n in range(PRESSES + WARM_UP):
        for way, act in ways.items():
            took = act(n)
            times[way] += [took] if n >= WARM_UP else []
            page.wait_for_timeout(50)
    return times


def told(times):
    tenth = statistics.quantiles(times, n=10)[-1]
    return f"median {statistics.median(times):.1f}, 90th percentile {tenth:.1f}"


def in_the_page(chromium, name):
    """Print the times of an explorer that lives in the page, without a kernel."""
    _, there = cells_of(name)
    page = stills.shown(chromium, getattr(explorers, name)())
    ways = {"key": keys(page, "main", 0, there)}
    if name in DRAGGED:
        ways["drag"] = drags(page, "main", 0)
    for way, times in measured(page, ways).items():
        print(f"{name}, {way}: {told(times)}")
    page.close()


def main():
    cells = {name: cells_of(name) for name in NAMES}
    ways = [(name, way) for name in NAMES for way in cells[name][0]]
    sources = [SETUP, *(cells[name][0][way] for name, way in ways)]
    cells_to_run = [new_code_cell(source) for source in sources]
    notebook = new_notebook(cells=cells_to_run, metadata={"kernelspec": KERNEL})
    with tempfile.TemporaryDirectory() as folder, lab.browser() as chromium:
        if chromium is None:
            sys.exit("no Chromium was found; install one, or run: playwright install chromium")
        print(f"milliseconds to new pixels, of {PRESSES} presses, in a page without a kernel")
        for name in stills.LIVE:
            in_the_page(chromium, name)
        with lab.server(Path(folder)) as address:
            nbformat.write(notebook, Path(folder) / "course" / "bench.ipynb")
            page = lab.new_page(chromium, 1300, 2400)
            lab.open_notebook(page, address, "bench.ipynb")
            lab.run_all(page)
            assert lab.errors(page) == []
            page.wait_for_timeout(2000)
            places = dict(zip(ways, range(1, len(sources)), strict=True))
            acts = {way: keys(page, ".jp-CodeCell", places[way], cells[way[0]][1]) for way in ways}
            for name in DRAGGED:
                acts[name, "drag"] = drags(page, ".jp-CodeCell", places[name, "explorer"])
            times = measured(page, acts)
    print(f"milliseconds from key press to new pixels, of {PRESSES} presses, in JupyterLab")
    for name in NAMES:
        line = f"{name}: {told(times[name, 'explorer'])}"
        if (name, "interact") in times:
            explorer, interact = (
                statistics.median(times[name, way]) for way in ("explorer", "interact")
            )
            line += f"; interact median {interact:.1f}; ratio {explorer / interact:.2f}"
        if (name, "drag") in times:
            line += f"; dragged: {told(times[name, 'drag'])}"
        print(line)


if __name__ == "__main__":
    main()
