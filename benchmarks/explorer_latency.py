"""Measure from key press to new pixels: the similarity explorer beside ipywidgets.interact.

Both draw the same figure, in one JupyterLab, in one run, a press of each in turn. Prints medians
and their ratio. Usage: make bench
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
EXPLORER = "from course_utils.explorers import similarity_explorer\nsimilarity_explorer()"
INTERACT = """
import math
import ipywidgets as widgets
import matplotlib.pyplot as plt
from course_utils.figures import arrows

def draw(angle=60, length=1.5):
    figure, ax = plt.subplots(figsize=(5, 4), dpi=80)
    k = length * math.cos(math.radians(angle)), length * math.sin(math.radians(angle))
    arrows([[2, 0], k], labels=["q", "k"], ax=ax)
    ax.set(xlim=(-3.2, 3.2), ylim=(-3.2, 3.2))
    ax.plot([2, k[0]], [0, k[1]], "--", color="0.5", label="distance from q to k")
    ax.plot([0, k[0]], [0, 0], color="C2", linewidth=5, alpha=0.5, label="shadow of k on q")
    ax.legend(loc="lower left", fontsize=8)
    plt.show()

widgets.interact(draw, angle=(-180, 180, 5), length=(0, 3, 0.1))
"""

# Press the key; once another picture has its pixels, take the time of the frame that paints it.
PRESS = """([cell, key]) => new Promise(resolve => {
    const output = document.querySelectorAll('.jp-CodeCell')[cell];
    const picture = () => [...output.querySelectorAll('img')].at(-1);
    const before = picture()?.src;
    const look = () => {
        const image = picture();
        if (!image || image.src === before) return;
        observer.disconnect();
        image.decode().then(() => requestAnimationFrame(() => resolve(performance.now() - start)));
    };
    const observer = new MutationObserver(look);
    observer.observe(output, {subtree: true, childList: true, attributeFilter: ['src']});
    const start = performance.now();
    output.querySelector('[role=slider]').dispatchEvent(
        new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
})"""


def main():
    cells = [new_code_cell(EXPLORER), new_code_cell(INTERACT)]
    notebook = new_notebook(cells=cells, metadata={"kernelspec": KERNEL})
    with tempfile.TemporaryDirectory() as folder, lab.browser() as chromium:
        if chromium is None:
            sys.exit("no Chromium was found; install one, or run: playwright install chromium")
        with lab.server(Path(folder)) as address:
            nbformat.write(notebook, Path(folder) / "course" / "bench.ipynb")
            page = chromium.new_page(viewport={"width": 1300, "height": 1600})
            lab.open_notebook(page, address, "bench.ipynb")
            lab.run_all(page)
            page.wait_for_timeout(2000)
            times = {0: [], 1: []}
            for press in range(PRESSES + 5):  # the first five warm up
                for cell in times:
                    took = page.evaluate(
                        PRESS, [cell, "ArrowRight" if press % 8 < 4 else "ArrowLeft"]
                    )
                    times[cell] += [took] if press >= 5 else []
                    page.wait_for_timeout(50)
    explorer, interact = (statistics.median(each) for each in times.values())
    print(f"key press to new pixels, median of {PRESSES}, in milliseconds")
    print(f"  explorer  {explorer:6.1f}")
    print(f"  interact  {interact:6.1f}")
    print(f"  ratio     {explorer / interact:6.2f}")


if __name__ == "__main__":
    main()
