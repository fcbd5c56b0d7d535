"""The still pictures of the explorers that live in the page, for where nothing runs.

After a change of what an explorer draws, take them anew and look at them:

python tests/stills.py
"""

import io

from PIL import Image
from PIL.PngImagePlugin import PngInfo

import lab
from course_utils import explorers
from course_utils.authoring import checksum
from course_utils.explorers.live import STILL_DENSITY, STILLS, lives_in_the_page

LIVE = [name for name in explorers.__all__ if lives_in_the_page(name)]
SHADES = 128


def shown(chromium, explorer, width=1000, density=1):
    """Return a page with nothing but an explorer, and with its ``model`` and ``module``."""
    page = lab.new_page(chromium, width, 800, density)
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.set_content('<html lang="en"><title>x</title><body><main></main></body></html>')
    page.add_style_tag(content="body { font-family: sans-serif; background: white }")
    page.evaluate(
        """async ([text, controls]) => {
            const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
            window.module = await import(address);
            window.model = module.alone(document.querySelector("main"), controls);
        }""",
        [explorer.module, explorer.controls],
    )
    return page


def taken(chromium, explorer):
    """Return the picture of an explorer in its first state, and the mark of what is drawn.

    The mark is a checksum of the drawing as text, in which fonts make no difference.
    """
    page = shown(chromium, explorer, density=STILL_DENSITY)
    picture = page.locator("svg")
    with Image.open(io.BytesIO(picture.screenshot())) as still:
        still = still.convert("RGB")
    mark = checksum(picture.evaluate("svg => svg.outerHTML"))
    page.close()
    return still, mark


def main():
    STILLS.mkdir(exist_ok=True)
    with lab.browser() as chromium:
        for name in LIVE:
            explorer = getattr(explorers, name)()
            still, mark = taken(chromium, explorer)
            noted = PngInfo()
            noted.add_text("drawing", mark)
            noted.add_itxt("Description", explorer.state)
            # kmeans: also the shades of small things, such as a scale of colours
            few = still.quantize(SHADES, kmeans=3, dither=Image.Dither.NONE)
            few.save(STILLS / f"{explorer.name}.png", optimize=True, pnginfo=noted)


if __name__ == "__main__":
    main()
