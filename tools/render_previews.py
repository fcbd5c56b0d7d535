"""The still pictures of the explorers that live in the page, for where nothing runs.

After a change of what an explorer draws, take them anew and look at them:

python tests/render_previews.py
"""

import io

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from course_utils import explorers
from course_utils.explorers.browser_explorer import PREVIEWS, STILL_DENSITY, lives_in_the_page
from tools import jupyterlab_server
from tools.notebooks import checksum

LIVE = [name for name in explorers.__all__ if lives_in_the_page(name)]
SHADES = 192
# All of a page but an explorer; written into it, it takes away what another one left there.
EMPTY = """<title>x</title>
<style>body { font-family: sans-serif; background: white }</style><main></main>"""


def shown(chromium, explorer, width=1000):
    """Return a new page with nothing but an explorer."""
    return show(new_page(chromium), explorer, width)


def new_page(chromium, density=1):
    """Return a page on which to show explorers, one after the other."""
    page = jupyterlab_server.new_page(chromium, density=density)
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    return page


def show(page, explorer, width=1000):
    """Show nothing but an explorer, with its ``model`` and ``module``; return the page."""
    page.errors.clear()
    page.set_viewport_size({"width": width, "height": 800})
    page.evaluate(
        """async ([empty, text, controls]) => {
            document.documentElement.lang = "en";
            document.documentElement.innerHTML = empty;
            const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
            window.module = await import(address);
            window.model = module.alone(document.querySelector("main"), controls);
        }""",
        [EMPTY, explorer.module, explorer.controls],
    )
    return page


def taken(page, explorer):
    """Return the picture of an explorer in its first state, and the mark of what is drawn.

    The mark is a checksum of the drawing as text, in which fonts make no difference.
    """
    picture = show(page, explorer).locator("svg")
    with Image.open(io.BytesIO(picture.screenshot())) as still:
        still = still.convert("RGB")
    return still, checksum(picture.evaluate("svg => svg.outerHTML"))


def main():
    PREVIEWS.mkdir(exist_ok=True)
    with jupyterlab_server.browser() as chromium:
        page = new_page(chromium, STILL_DENSITY)
        for name in LIVE:
            explorer = getattr(explorers, name)()
            still, mark = taken(page, explorer)
            noted = PngInfo()
            noted.add_text("drawing", mark)
            noted.add_itxt("Description", explorer.state)
            # of the ways to choose them, the one that keeps the shades of a scale apart
            few = still.quantize(SHADES, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
            few.save(PREVIEWS / f"{explorer.name}.png", optimize=True, pnginfo=noted)


if __name__ == "__main__":
    main()
