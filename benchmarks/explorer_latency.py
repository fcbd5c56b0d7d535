"""Measure the time from a key press to new pixels, for explorers and for ipywidgets.interact.

All are in one JupyterLab and take turns. Explorers that need no kernel are also measured in a page
without one, and with the pointer if they can be dragged. Prints medians and their ratios to that
of interact, which redraws lesson 04's two figures at each change.
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
NAMES.remove("language_explorer")  # running its model takes longer than drawing
# This explorer needs a training run before it can be moved.
TRAINING = """
import torch
live = explorers.training_explorer(
    torch.arange(16).repeat(3), num_layers=2, num_heads=2, steps=400)
for step in range(100):
    live.add(4 - step / 100, lambda: torch.eye(48).roll(step, 1).expand(2, 2, 48, 48))
live"""
# The figures of lesson 04's explorer, as a notebook would draw them without explorers.
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
    """Return the source of an explorer's cell, and the arrow key that moves its first control."""
    if name == "training_explorer":
        return TRAINING, "Left"
    controls = getattr(explorers, name)().controls.values()
    first = next(each for each in controls if each["kind"] == "number")
    there = "Left" if first["value"] == first["high"] else "Right"
    return f"explorers.{name}()", there


# The time from the event to the frame that paints new pixels.
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
    """Return a function that presses a key, back and forth in turn, and returns the time."""
    back = {"Left": "Right", "Right": "Left"}[there]

    def press(n):
        page.evaluate(WATCH, [selector, place, "keydown"])
        page.keyboard.press(f"Arrow{back if n % 2 else there}")
        return page.evaluate("window.took")

    return press


def drags(page, selector, place):
    """Return a function that drags one step and returns the time."""
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


def measure(page, actions):
    """Return the times of several actions, which take turns."""
    times = {name: [] for name in actions}
    for n in range(PRESSES + WARM_UP):
        for name, act in actions.items():
            took = act(n)
            times[name] += [took] if n >= WARM_UP else []
            page.wait_for_timeout(50)
    return times


def summary(times):
    tenth = statistics.quantiles(times, n=10)[-1]
    return f"median {statistics.median(times):.1f}, 90th percentile {tenth:.1f}"


def measure_without_kernel(chromium, name):
    """Print the times of an explorer in a page without a kernel."""
    page = render_previews.shown(chromium, getattr(explorers, name)())
    actions = {"key": keys(page, "main", 0, cell_of(name)[1])}
    if name in DRAGGED:
        actions["drag"] = drags(page, "main", 0)
    for action, times in measure(page, actions).items():
        print(f"{name}, {action}: {summary(times)}")
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
            measure_without_kernel(chromium, name)
        with jupyterlab_server.server(Path(folder)) as address:
            nbformat.write(notebook, Path(folder) / "course" / "bench.ipynb")
            page = jupyterlab_server.new_page(chromium, 1300, 2400)
            jupyterlab_server.open_notebook(page, address, "bench.ipynb")
            jupyterlab_server.run_all(page)
            assert jupyterlab_server.errors(page) == []
            page.wait_for_timeout(2000)
            places = {name: place for place, name in enumerate(cells, start=1)}
            actions = {
                (name, "key"): keys(page, ".jp-CodeCell", places[name], there)
                for name, (_, there) in cells.items()
            }
            for name in DRAGGED:
                actions[name, "drag"] = drags(page, ".jp-CodeCell", places[name])
            times = measure(page, actions)
    print(f"milliseconds to new pixels, of {PRESSES} presses, in JupyterLab")
    interact = statistics.median(times["interact", "key"])
    for (name, action), samples in times.items():
        ratio = statistics.median(samples) / interact
        print(f"{name}, {action}: {summary(samples)}; ratio to interact {ratio:.2f}")


if __name__ == "__main__":
    main()
