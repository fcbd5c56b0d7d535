"""Make the moving picture of README in a real JupyterLab: an answer judged, an arrow dragged.

python -m tools.render_gif

The machine needs a font with the signs of a check (on Debian, fonts-noto-color-emoji).
"""

import io
import math
import tempfile
from pathlib import Path

from PIL import Image

from tools import jupyterlab_server

PICTURE = jupyterlab_server.ROOT / "notebooks" / "images" / "course.gif"
WIDTH, HEIGHT = 960, 690
COLOURS = 64  # of a page that is mostly grey; fewer show in the arrows
ROUNDS = 2  # then it stands still: nobody should have to read beside a thing that moves
LESSON = "notebooks/01_dot_product_similarity.ipynb"
EXERCISES = "exercises/01_exercises_dot_product_similarity.ipynb"
EXPLORER, ANSWER = "0ebbb56b", "6c50467b"  # cells: lesson 01's explorer, exercise 1.1
CENTRE, UNIT = (238, 190), 57  # of the explorer's axes, in pixels of its picture
SLIP = [
    "total = 0\n",
    "    for x, y in zip(a, b):\n",
    "        total = x * y\n",
    "    return total",
]


class Film:
    """Pictures of a page, each with the milliseconds for which it is shown."""

    def __init__(self, page):
        self.page, self.pictures, self.times = page, [], []

    def take(self, milliseconds):
        notebook = self.page.locator(".jp-NotebookPanel-notebook:visible").bounding_box()
        shot = Image.open(io.BytesIO(self.page.screenshot(clip=notebook)))
        self.pictures.append(shot.convert("RGB"))
        self.times.append(milliseconds)

    def save(self, path):
        # One palette for all, of the pictures beside each other: colours must not flicker.
        width, height = self.pictures[0].size
        beside = Image.new("RGB", (width, height * len(self.pictures)))
        for number, picture in enumerate(self.pictures):
            beside.paste(picture, (0, height * number))
        palette = beside.quantize(COLOURS)
        first, *others = (
            picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in self.pictures
        )
        first.save(path, save_all=True, append_images=others, duration=self.times, loop=ROUNDS - 1)


def cell(page, name):
    """Return the cell of a notebook whose id is this, after it was scrolled to the top."""
    page.evaluate(
        """name => {
            const notebook = window.jupyterapp.shell.currentWidget.content;
            const at = notebook.widgets.findIndex(each => each.model.id === name);
            notebook.activeCellIndex = at;
            notebook.widgets[at].node.scrollIntoView();
        }""",
        name,
    )
    return page.locator(".jp-Notebook .jp-mod-active.jp-Cell:visible")


def open_and_run(page, address, path):
    """Open a notebook alone, without the file browser, and run all its cells."""
    jupyterlab_server.open_notebook(page, address, path)
    jupyterlab_server.execute(page, "application:toggle-left-area")
    jupyterlab_server.run_all(page)


def drag_an_arrow(film, address):
    """Run lesson 01 and turn its explorer's arrow."""
    page = film.page
    open_and_run(page, address, LESSON)
    drawn = cell(page, EXPLORER).locator("svg[role=img]").bounding_box()
    film.take(1500)
    for step in range(25):
        radians, length = math.radians(60 - 6 * step), 1.5 + step / 30
        across = CENTRE[0] + UNIT * length * math.cos(radians)
        down = CENTRE[1] - UNIT * length * math.sin(radians)
        page.mouse.move(drawn["x"] + across, drawn["y"] + down)
        if step == 0:
            page.mouse.down()
        film.take(120)
    page.mouse.up()
    film.take(2000)


def write_an_answer(film, address):
    """Answer exercise 1.1 with a slip, read the hint, mend it."""
    page = film.page
    open_and_run(page, address, EXERCISES)
    answer = cell(page, ANSWER)
    film.take(1500)
    answer.locator(".cm-content").click()
    page.keyboard.press("Control+End")
    page.keyboard.press("Shift+Home")
    for line in SLIP:
        page.keyboard.insert_text(line)
        film.take(350)
    judge(film)
    cell(page, ANSWER).get_by_text("total = x * y").dblclick()
    page.keyboard.press("End")
    for _ in "= x * y":
        page.keyboard.press("ArrowLeft")
    page.keyboard.insert_text("+")
    film.take(800)
    judge(film)


def judge(film):
    """Run the answer and its check."""
    for _ in range(2):
        film.page.keyboard.press("Shift+Enter")
        jupyterlab_server.wait_until_run(film.page)
        film.take(500)
    film.take(3000)


def main():
    """Make the picture."""
    with tempfile.TemporaryDirectory() as folder, jupyterlab_server.browser() as chromium:
        with jupyterlab_server.server(Path(folder)) as address:
            page = jupyterlab_server.new_page(chromium, WIDTH, HEIGHT)
            film = Film(page)
            jupyterlab_server.open_alone(page, address)
            write_an_answer(film, address)
            drag_an_arrow(film, address)
    film.save(PICTURE)


if __name__ == "__main__":
    main()
