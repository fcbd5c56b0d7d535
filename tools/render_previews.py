"""Store what each explorer of the page draws and says at first, for viewers that run nothing.

After a change in what an explorer draws or says, or in colors, run this and look at the pictures.
Then refresh the lessons, which store them:

python -m tools.render_previews             all explorers but lesson 07's training
python -m tools.render_previews training    the training, whose losses differ between machines
"""

import argparse
import io
import json
import re

import nbformat
import torch
from PIL import Image

from benchmarks.induction_seeds import LESSON, definitions
from course_utils import explorers
from course_utils.explorers.browser_explorer import (
    PREVIEWS,
    STILL_DENSITY,
    descriptions,
    lives_in_the_page,
)
from tools import jupyterlab_server
from tools.notebooks import checksum

LIVE = [name for name in explorers.__all__ if lives_in_the_page(name)]
COLOR = re.compile(r"#[0-9a-f]{3,6}\b|rgb\([\d, ]+\)")
SHADES = 192
# All of a page but an explorer; written into it, it takes away what another one left there.
EMPTY = """<title>x</title>
<style>body { font-family: sans-serif; background: white }</style><main></main>"""


def new_page(chromium, density=1):
    """Return a page on which to show explorers, one after the other."""
    page = jupyterlab_server.new_page(chromium, density=density)
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    return page


def show(page, explorer, width=1000):
    """Show nothing but an explorer, with its ``model`` and ``module``; return the page."""
    page.errors.clear()
    known = explorer.get_state().get("known")  # what a kernel has sent to it
    page.set_viewport_size({"width": width, "height": 800})
    page.evaluate(
        """async ([empty, text, controls, values, known]) => {
            document.documentElement.lang = "en";
            document.documentElement.innerHTML = empty;
            const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
            window.module = await import(address);
            if (known) module.begin(known);
            window.model = module.alone(document.querySelector("main"), controls);
            model.set("values", values);
        }""",
        [EMPTY, explorer.module, explorer.controls, explorer.values, known],
    )
    return page


def description(page):
    """Return what a page says, and a checksum of what it draws but for fonts and colors."""
    drawing = page.locator("svg[role=img]").evaluate("svg => svg.outerHTML")
    words = page.get_by_role("status").text_content()
    return {"words": words, "drawing": checksum(COLOR.sub("color", drawing))}


def store(screenshot, path):
    """Store a screenshot in few colors, unless the file has its pixels already."""
    with Image.open(io.BytesIO(screenshot)) as picture:
        # of the ways to choose colors, the one that keeps the shades of a scale apart
        few = picture.convert("RGB").quantize(
            SHADES, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
    if path.exists():
        with Image.open(path) as stored:
            if stored.convert("RGB").tobytes() == few.convert("RGB").tobytes():
                return
    few.save(path, optimize=True)


def trained():
    """Return the explorer of lesson 07 after the lesson's training, which takes half a minute."""
    torch.set_num_threads(1)  # as the lesson does, so that the losses are the same
    scope = definitions(LESSON)
    for cell in nbformat.read(LESSON, as_version=4).cells:
        if cell.cell_type == "code" and "training_explorer" in cell.source:
            exec(cell.source, scope)
    return scope["live"]


def main(arguments=None):
    """Draw and describe the explorers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "training", nargs="?", choices=["training"],
        help="only lesson 07's training; without it, all other explorers",
    )  # fmt: skip
    training = parser.parse_args(arguments).training
    PREVIEWS.mkdir(exist_ok=True)
    stored = descriptions()
    with jupyterlab_server.browser() as chromium:
        page = new_page(chromium, STILL_DENSITY)
        for explorer in [trained()] if training else [getattr(explorers, name)() for name in LIVE]:
            picture = show(page, explorer).locator("svg[role=img]").screenshot()
            stored[explorer.name] = description(page)
            store(picture, PREVIEWS / f"{explorer.name}.png")
    text = json.dumps(stored, indent=1, ensure_ascii=False, sort_keys=True)
    (PREVIEWS / "descriptions.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
