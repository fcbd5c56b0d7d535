"""Measure from key press to new pixels: explorers beside the same figures by ipywidgets.interact.

All live in one JupyterLab and take turns in one run. Prints medians and their ratios.
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
from course_utils import explorers  # noqa: E402
from course_utils.authoring import KERNEL  # noqa: E402

PRESSES = 40
NAMES = [name for name in explorers.__all__ if name.endswith("_explorer")]
NAMES.remove("training_explorer")  # it is moved by a training, not by hand
NAMES.remove("language_explorer")  # it needs a model, whose answer takes longer than its picture
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
    """Return the cells of an explorer and of the same under interact, and which key moves both."""
    controls = getattr(explorers, name)().controls
    first = next(each for each in controls if isinstance(controls[each], explorers.Number))
    full = controls[first].value == controls[first].slider.max
    interact = f"interact(explorers.{name}, {first!r})"
    return f"explorers.{name}()", interact, "Left" if full else "Right"


# From the key on, once another picture has its pixels, take the time of the frame that paints it.
WATCH = """cell => {
    const output = document.querySelectorAll('.jp-CodeCell')[cell];
    const picture = () => [...output.querySelectorAll('img')].at(-1);
    const before = picture()?.src;
    let start;
    window.took = new Promise(resolve => {
        const look = () => {
            const image = picture();
            if (!image || image.src === before) return;
            observer.disconnect();
            image.decode().then(
                () => requestAnimationFrame(() => resolve(performance.now() - start)));
        };
        const observer = new MutationObserver(look);
        observer.observe(output, {subtree: true, childList: true, attributeFilter: ['src']});
    });
    output.querySelector('[role=slider], [type=range]').focus();
    window.addEventListener(
        'keydown', () => { start = performance.now() }, {once: true, capture: true});
}"""


def main():
    cells = {name: cells_of(name) for name in NAMES}
    sources = [SETUP, *(source for name in NAMES for source in cells[name][:2])]
    cells_to_run = [new_code_cell(source) for source in sources]
    notebook = new_notebook(cells=cells_to_run, metadata={"kernelspec": KERNEL})
    times = {(name, way): [] for name in NAMES for way in ("explorer", "interact")}
    with tempfile.TemporaryDirectory() as folder, lab.browser() as chromium:
        if chromium is None:
            sys.exit("no Chromium was found; install one, or run: playwright install chromium")
        with lab.server(Path(folder)) as address:
            nbformat.write(notebook, Path(folder) / "course" / "bench.ipynb")
            page = lab.new_page(chromium, 1300, 2400)
            lab.open_notebook(page, address, "bench.ipynb")
            lab.run_all(page)
            assert lab.errors(page) == []
            page.wait_for_timeout(2000)
            for press in range(PRESSES + 6):  # the first six warm up
                for place, (name, way) in enumerate(times, start=1):
                    there = cells[name][2]
                    back = {"Left": "Right", "Right": "Left"}[there]
                    page.evaluate(WATCH, place)
                    page.keyboard.press(f"Arrow{back if press % 2 else there}")
                    took = page.evaluate("window.took")
                    times[name, way] += [took] if press >= 6 else []
                    page.wait_for_timeout(50)
    print(f"key press to new pixels, of {PRESSES} presses, in milliseconds")
    for name in NAMES:
        explorer, interact = times[name, "explorer"], times[name, "interact"]
        ratio = statistics.median(explorer) / statistics.median(interact)
        print(
            f"{name}: median {statistics.median(explorer):.1f}, "
            f"90th percentile {statistics.quantiles(explorer, n=10)[-1]:.1f}; "
            f"interact median {statistics.median(interact):.1f}; ratio {ratio:.2f}"
        )


if __name__ == "__main__":
    main()
