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
from course_utils.authoring import KERNEL  # noqa: E402

PRESSES = 40
EXPLORER = "from course_utils.explorers import {0}\n{0}()"
SIMILARITY = """
import math
import ipywidgets as widgets
import matplotlib.pyplot as plt
from course_utils.figures import arrows

def draw(angle=60, length=1.5):
    figure, ax = plt.subplots(figsize=(5.5, 5.2), dpi=80, layout="tight")
    k = length * math.cos(math.radians(angle)), length * math.sin(math.radians(angle))
    arrows([[2, 0], k], labels=["q", "k"], ax=ax)
    ax.set(xlim=(-3.2, 3.2), ylim=(-3.2, 3.2))
    ax.plot([2, k[0]], [0, k[1]], "--", color="0.5", label="distance from q to k")
    ax.plot([0, k[0]], [0, 0], color="C2", linewidth=5, alpha=0.5, label="shadow of k on q")
    ax.legend(loc="lower left", fontsize=8)
    plt.show()

widgets.interact(draw, angle=(-180, 180, 5), length=(0, 3, 0.1))
"""
SATURATION = """
import ipywidgets as widgets
import matplotlib.pyplot as plt
import torch

def draw(logit_1=2.0, temperature=1.0):
    names = [f"key {j}" for j in range(1, 6)]
    weights = (torch.tensor([logit_1, 1.0, 0.0, -1.0, -2.0]) / temperature).softmax(dim=-1)
    figure, (upper, lower) = plt.subplots(
        2, 1, figsize=(6.4, 6), dpi=80, height_ratios=[1, 1.1], layout="tight"
    )
    upper.bar_label(upper.bar(names, weights), fmt="%.2f")
    upper.set(ylim=(0, 1.3), ylabel="weight")
    jacobian = weights.diag() - weights.outer(weights)
    image = lower.imshow(jacobian, cmap="RdBu_r", vmin=-0.25, vmax=0.25)
    lower.set(xticks=range(5), xticklabels=names, yticks=range(5), yticklabels=names)
    lower.tick_params(axis="x", rotation=45)
    figure.colorbar(image, ax=lower, shrink=0.8)
    plt.show()

widgets.interact(draw, logit_1=(-20, 100, 0.5), temperature=(0.05, 5, 0.05))
"""
CELLS = {
    ("similarity", "explorer"): EXPLORER.format("similarity_explorer"),
    ("similarity", "interact"): SIMILARITY,
    ("saturation", "explorer"): EXPLORER.format("saturation_explorer"),
    ("saturation", "interact"): SATURATION,
}

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
    cells = [new_code_cell(source) for source in CELLS.values()]
    notebook = new_notebook(cells=cells, metadata={"kernelspec": KERNEL})
    times = {name: [] for name in CELLS}
    with tempfile.TemporaryDirectory() as folder, lab.browser() as chromium:
        if chromium is None:
            sys.exit("no Chromium was found; install one, or run: playwright install chromium")
        with lab.server(Path(folder)) as address:
            nbformat.write(notebook, Path(folder) / "course" / "bench.ipynb")
            page = chromium.new_page(viewport={"width": 1300, "height": 2400})
            lab.open_notebook(page, address, "bench.ipynb")
            lab.run_all(page)
            page.wait_for_timeout(2000)
            for press in range(PRESSES + 5):  # the first five warm up
                key = "ArrowRight" if press % 8 < 4 else "ArrowLeft"
                for place, name in enumerate(CELLS):
                    page.evaluate(WATCH, place)
                    page.keyboard.press(key)
                    took = page.evaluate("window.took")
                    times[name] += [took] if press >= 5 else []
                    page.wait_for_timeout(50)
    print(f"key press to new pixels, of {PRESSES} presses, in milliseconds")
    for figure in dict.fromkeys(figure for figure, _ in CELLS):
        explorer, interact = times[figure, "explorer"], times[figure, "interact"]
        ratio = statistics.median(explorer) / statistics.median(interact)
        print(
            f"{figure}: explorer median {statistics.median(explorer):.1f}, "
            f"90th percentile {statistics.quantiles(explorer, n=10)[-1]:.1f}; "
            f"interact median {statistics.median(interact):.1f}; ratio {ratio:.2f}"
        )


if __name__ == "__main__":
    main()
