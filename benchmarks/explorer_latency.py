"""Measure from key press to new pixels: explorers beside a figure by ipywidgets.interact.

All are in one JupyterLab and take turns in one run. Those that need no kernel are measured in a
page without one as well, and on the way of a pointer too, if they are dragged. Prints medians, and
their ratios to that of the figure: lesson 04's two pictures, drawn anew at each change.
Usage: make bench
"""

import statistics
import sys
import tempfile
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

sys.path.insert(0, str(Path(__file__).parents[1]))
from course_utils import explorers  # noqa: E402
from tools import jupyterlab_server, render_previews
from tools.notebooks import KERNEL  # noqa: E402

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
# What lesson 04's explorer shows of a window, as a notebook draws it without explorers.
SETUP = """
import ipywidgets as widgets
import matplotlib.pyplot as plt
import torch
from course_utils import explorers, heatmap
from course_utils.attention import attention, causal_mask, sliding_window_mask

torch.manual_seed(4)
q, k = torch.randn(2, 8, 4)

def draw(window):
    mask = causal_mask(8) & sliding_window_mask(8, window)
    _, panels = plt.subplots(1, 2, figsize=(7.6, 3.7))
    heatmap(mask.float(), title="allowed or not", ax=panels[0])
    heatmap(attention(q, k, k, mask)[1], title="weights", ax=panels[1])
    plt.show()
"""
INTERACT = "widgets.interact(draw, window=widgets.IntSlider(4, 1, 8))"


def cell_of(name):
    """Return the cell of an explorer, and the key that moves it."""
    if name == "training_explorer":
        return TRAINING, "Left"
    controls = getattr(explorers, name)().controls.values()
    first = next(each for each in controls if each["kind"] == "number")
    there = "Left" if first["value"] == first["high"] else "Right"
    return f"explorers.{name}()", there


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
    page = render_previews.shown(chromium, getattr(explorers, name)())
    ways = {"key": keys(page, "main", 0, cell_of(name)[1])}
    if name in DRAGGED:
        ways["drag"] = drags(page, "main", 0)
    for way, times in measured(page, ways).items():
        print(f"{name}, {way}: {told(times)}")
    page.close()


def main():
    cells = {name: cell_of(name) for name in NAMES} | {"interact": (INTERACT, "Right")}
    sources = [SETUP, *(source for source, _ in cells.values())]
    cells_to_run = [new_code_cell(source) for source in sources]
    notebook = new_notebook(cells=cells_to_run, metadata={"kernelspec": KERNEL})
    with tempfile.TemporaryDirectory() as folder, jupyterlab_server.browser() as chromium:
        if chromium is None:
            sys.exit("no Chromium was found; install one, or run: playwright install chromium")
        print(f"milliseconds to new pixels, of {PRESSES} presses, in a page without a kernel")
        for name in render_previews.LIVE:
            in_the_page(chromium, name)
        with jupyterlab_server.server(Path(folder)) as address:
            nbformat.write(notebook, Path(folder) / "course" / "bench.ipynb")
            page = jupyterlab_server.new_page(chromium, 1300, 2400)
            jupyterlab_server.open_notebook(page, address, "bench.ipynb")
            jupyterlab_server.run_all(page)
            assert jupyterlab_server.errors(page) == []
            page.wait_for_timeout(2000)
            places = {name: place for place, name in enumerate(cells, start=1)}
            acts = {
                (name, "key"): keys(page, ".jp-CodeCell", places[name], there)
                for name, (_, there) in cells.items()
            }
            for name in DRAGGED:
                acts[name, "drag"] = drags(page, ".jp-CodeCell", places[name])
            times = measured(page, acts)
    print(f"milliseconds to new pixels, of {PRESSES} presses, in JupyterLab")
    interact = statistics.median(times["interact", "key"])
    for (name, way), each in times.items():
        ratio = statistics.median(each) / interact
        print(f"{name}, {way}: {told(each)}; ratio to interact {ratio:.2f}")


if __name__ == "__main__":
    main()
