"""Laws for every explorer of the kernel: what is drawn stands, and each control moves it."""

import functools
import html
import io
import itertools
import warnings

import ipywidgets as widgets
import pytest
from matplotlib.transforms import Bbox
from PIL import Image

from course_utils.explorers import Number, language_explorer
from course_utils.explorers.kernel_explorer import HERE
from explorer_pictures import axes, drawn_anew, pixels, set_controls
from tiny_language_model import tiny_language_model
from tools import jupyterlab_server

# Each with a state in which nothing is symmetric, and for each control a value that changes it.
CASES = {
    "language": (
        lambda: language_explorer(*tiny_language_model()),
        {"text": "the cat saw the cat", "layer": 1, "head": 2, "knock": False, "out": "0.3"}
        | {"shade": "weight on the first token"},
        {"text": "the dog", "layer": 2, "head": 0, "knock": True, "out": "1.2, 2.2"}
        | {"shade": "added to the top logit"},
    ),
}
every_explorer = pytest.mark.parametrize("case", CASES)


@functools.cache  # a test leaves it in some state, and the next sets its own
def explorer_of(case):
    """Return the explorer of a case, its home and the values elsewhere."""
    make, home, elsewhere = CASES[case]
    return make(), home, elsewhere


def seen(explorer):
    """Return all that stands below the controls: picture, words, and details if there are any."""
    return [child.value for child in explorer.children[1:]]


def is_drawn(explorer):
    """Say whether the picture sent shows the figure as it stands, every part in its place."""
    sent, anew = pixels(explorer), drawn_anew(explorer)
    # a picture may graze the root of a tick mark, which is under it
    return sent.shape == anew.shape and abs(sent - anew).max() < 20


@every_explorer
def test_each_control_moves_picture_and_words_and_back_gives_the_same_bytes(case):
    explorer, home, elsewhere = explorer_of(case)
    here = seen(set_controls(explorer, **home))
    for name, value in elsewhere.items():
        set_controls(explorer, **{name: value})
        assert all(a != b for a, b in zip(seen(explorer), here, strict=True)), name
        set_controls(explorer, **{name: home[name]})
        assert seen(explorer) == here, name


@every_explorer
def test_the_picture_is_the_figure_drawn_anew(case):
    explorer, home, elsewhere = explorer_of(case)
    assert is_drawn(set_controls(explorer, **home))
    assert is_drawn(set_controls(explorer, **elsewhere))


@every_explorer
def test_at_both_ends_of_all_controls_the_picture_is_whole_and_nothing_warns(case):
    explorer, _, _ = explorer_of(case)
    for end in (0, -1):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            set_controls(explorer, **{n: values(c)[end] for n, c in explorer.controls.items()})
        assert is_drawn(explorer)
        assert is_inside(explorer)


def values(control):
    """Return the values of a control, of a number the first and the last."""
    if isinstance(control, Number):
        return control.slider.min, control.slider.max
    if isinstance(control, widgets.Text):
        return "", "0.3, 1.1"
    return getattr(control, "options", (False, True))


def is_inside(explorer):
    """Say whether each Axes and all that is written around it lie within the picture."""
    figure = explorer._canvas.figure
    needed = figure.get_tightbbox(explorer._canvas.get_renderer())  # inches
    return (needed.min >= 0).all() and (needed.max <= figure.get_size_inches()).all()


@every_explorer
def test_no_two_axes_stand_in_each_others_way(case):
    explorer, home, _ = explorer_of(case)
    renderer = set_controls(explorer, **home)._canvas.get_renderer()
    taken = [ax.get_tightbbox(renderer) for ax in axes(explorer)]
    for one, other in itertools.combinations(taken, 2):
        both = Bbox.intersection(one, other)
        assert both is None or min(both.width, both.height) < 4  # pixels: the room above a letter
    for ax in axes(explorer):
        if ax.images or ax.patches or ax.lines:  # no scale of colours
            assert min(ax.bbox.width, ax.bbox.height) > 40  # pixels: it can be read


def in_html(state):
    return html.escape(state).replace("found:", "<strong>found:</strong>")


# what a control is called, where it is not what the code calls it
OTHER_NAMES = {
    "knock": "knock this head out",
    "out": "heads out",
    "shade": "map",
}


@every_explorer
def test_every_control_has_a_name_and_its_place_before_the_picture(case):
    explorer, _, _ = explorer_of(case)
    column, picture, words, *_ = explorer.children
    assert (picture, words) == (explorer.image, explorer.words)
    assert list(column.children) == [*explorer.controls.values()]
    for name, control in explorer.controls.items():
        named = control.box if isinstance(control, Number) else control
        assert named.description == OTHER_NAMES.get(name, name)
    assert words.value == f'<p role="status">{in_html(explorer.state)}</p>'
    height, width, _ = pixels(explorer).shape
    assert (picture.width, picture.height) == (width, height) and picture.alt


def test_a_picture_tells_each_press_of_the_first_button_and_none_of_another(chromium):
    file = io.BytesIO()
    Image.new("RGB", (200, 100)).save(file, "png")
    page = jupyterlab_server.new_page(chromium)
    page.set_content("<main></main>")
    page.evaluate(
        """async ([text, png]) => {
            const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
            const { default: { render } } = await import(address);
            const own = { value: new Uint8Array(png), width: 200, height: 100, alt: "x" };
            window.told = [];
            const set = (name, value) => name === "place" && told.push(value);
            const model = { get: (name) => ({ ...own, pressed: true })[name], set, on() {},
                save_changes() {} };
            render({ model, el: document.querySelector("main") });
        }""",
        [(HERE / "picture.js").read_text(encoding="utf-8"), [*file.getvalue()]],
    )
    image = page.locator("img")
    assert not image.evaluate("image => image.draggable")
    for button in ("right", "middle"):  # for the browser's menu, and to scroll
        image.click(button=button)
    assert page.evaluate("told") == []
    for _ in range(2):  # on one place: two presses all the same
        image.click(position={"x": 50, "y": 75})
    one, other = page.evaluate("told")
    assert one[:2] == other[:2] == pytest.approx([0.25, 0.75], abs=0.01) and one[2] != other[2]
    page.close()
