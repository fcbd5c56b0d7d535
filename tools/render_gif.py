"""Record README's animation in a real JupyterLab: an answer is checked, an arrow is dragged.

python -m tools.render_gif

The machine needs a font with the emoji of a check (on Debian, fonts-noto-color-emoji).
"""

import io
import math
import tempfile
from pathlib import Path

from PIL import Image

from tools import jupyterlab_server

PICTURE = jupyterlab_server.ROOT / "notebooks" / "images" / "course.gif"
WIDTH, HEIGHT = 960, 690
COLORS = 64  # enough for a page that is mostly gray; with fewer the arrows change
ROUNDS = 2  # then it stops, because it is hard to read beside a moving picture
LESSON = "notebooks/01_dot_product_similarity.ipynb"
EXERCISES = "exercises/01_exercises_dot_product_similarity.ipynb"
EXPLORER, ANSWER = "0ebbb56b", "6c50467b"  # cells: lesson 01's explorer, exercise 1.1
CENTER, UNIT = (238, 190), 57  # of the explorer's axes, in pixels of its picture
MISTAKE = [
    "total = 0\n",
    "    for x, y in zip(a, b):\n",
    "        total = x * y\n",
    "    return total",
]


class Animation:
    """Screenshots of a page, with a duration for each."""

    def __init__(self, page):
        self.page, self.pictures, self.durations = page, [], []

    def take(self, milliseconds):
        notebook = self.page.locator(".jp-NotebookPanel-notebook:visible").bounding_box()
        shot = Image.open(io.BytesIO(self.page.screenshot(clip=notebook)))
        self.pictures.append(shot.convert("RGB"))
        self.durations.append(milliseconds)

    def save(self, path):
        # All pictures share one palette, so that colors do not flicker.
        width, height = self.pictures[0].size
        column = Image.new("RGB", (width, height * len(self.pictures)))
        for number, picture in enumerate(self.pictures):
            column.paste(picture, (0, height * number))
        palette = column.quantize(COLORS)
        first, *others = (
            picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in self.pictures
        )
        first.save(
            path, save_all=True, append_images=others, duration=self.durations, loop=ROUNDS - 1
        )


def cell(page, name):
    """Scroll to the cell with this id, and return it."""
    page.evaluate(
        """name => {
            const notebook = window.jupyterapp.shell.currentWidget.content;
            const index = notebook.widgets.findIndex(cell => cell.model.id === name);
            notebook.activeCellIndex = index;
            notebook.widgets[index].node.scrollIntoView();
        }""",
        name,
    )
    return page.locator(".jp-Notebook .jp-mod-active.jp-Cell:visible")


def open_and_run(page, address, path):
    """Open a notebook alone, without the file browser, and run all its cells."""
    jupyterlab_server.open_notebook(page, address, path)
    jupyterlab_server.execute(page, "application:toggle-left-area")
    jupyterlab_server.run_all(page)


def drag_an_arrow(animation, address):
    """Run lesson 01 and rotate the arrow of its explorer."""
    page = animation.page
    open_and_run(page, address, LESSON)
    box = cell(page, EXPLORER).locator("svg[role=img]").bounding_box()
    animation.take(1500)
    for step in range(25):
        radians, length = math.radians(60 - 6 * step), 1.5 + step / 30
        across = CENTER[0] + UNIT * length * math.cos(radians)
        down = CENTER[1] - UNIT * length * math.sin(radians)
        page.mouse.move(box["x"] + across, box["y"] + down)
        if step == 0:
            page.mouse.down()
        animation.take(120)
    page.mouse.up()
    animation.take(2000)


def write_an_answer(animation, address):
    """Answer exercise 1.1 with a mistake, read the hint, fix it."""
    page = animation.page
    open_and_run(page, address, EXERCISES)
    answer = cell(page, ANSWER)
    animation.take(1500)
    answer.locator(".cm-content").click()
    page.keyboard.press("Control+End")
    page.keyboard.press("Shift+Home")
    for line in MISTAKE:
        page.keyboard.insert_text(line)
        animation.take(350)
    run_check(animation)
    cell(page, ANSWER).get_by_text("total = x * y").dblclick()
    page.keyboard.press("End")
    for _ in "= x * y":
        page.keyboard.press("ArrowLeft")
    page.keyboard.insert_text("+")
    animation.take(800)
    run_check(animation)


def run_check(animation):
    """Run the answer and its check."""
    for _ in range(2):
        animation.page.keyboard.press("Shift+Enter")
        jupyterlab_server.wait_until_run(animation.page)
        animation.take(500)
    animation.take(3000)


def main():
    with tempfile.TemporaryDirectory() as folder, jupyterlab_server.browser() as chromium:
        with jupyterlab_server.server(Path(folder)) as address:
            page = jupyterlab_server.new_page(chromium, WIDTH, HEIGHT)
            animation = Animation(page)
            jupyterlab_server.open_alone(page, address)
            write_an_answer(animation, address)
            drag_an_arrow(animation, address)
    animation.save(PICTURE)


if __name__ == "__main__":
    main()
