"""Explorers that Python draws: a control or a click changes the picture and the words, once."""

import base64
import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from course_utils.explorers import Explorer, Number
from course_utils.explorers.kernel_explorer import HERE
from kernel_explorers import assert_drawn, axes, click, pixels, set_controls
from tools import jupyterlab_server


@pytest.fixture
def dot():
    """An explorer of a single dot."""
    figure = Figure(figsize=(4, 3), dpi=80)
    figure.suptitle("$_$")  # as a formula it would be an error
    ax = figure.add_subplot()
    ax.set(xlim=(-0.5, 10.5), ylim=(-0.5, 10.5))
    (mark,) = ax.plot([], [], "o", markersize=12)

    def update(x, y):
        mark.set_data([x], [y])
        return f"dot <at> {x}, {y}" + ("; found: the corner" if x == y == 0 else "")

    def on_click(_, x, y):
        return {"x": round(x), "y": round(y)}

    controls = {"x": Number("x", 2, 0, 10, 1), "y": Number("y", 4, 0, 10, 1)}
    return Explorer(figure, [mark], controls, update, on_click=on_click)


WAYS = {
    "slider": (lambda dot: set_controls(dot, x=7), "7, 4"),
    "box": (lambda dot: setattr(dot.controls["y"].box, "value", 9), "2, 9"),
    "click": (lambda dot: click(dot, axes(dot)[0], 7.2, 8.9), "7, 9"),
    "click at the edge": (lambda dot: click(dot, axes(dot)[0], 10.49, -0.49), "10, 0"),
}


@pytest.mark.parametrize("change, state", WAYS.values(), ids=WAYS)
def test_each_way_of_changing_the_state_sends_one_picture_of_it(dot, change, state):
    pictures = []
    dot.image.observe(pictures.append, names="value")
    change(dot)
    assert dot.state == f"dot <at> {state}" and len(pictures) == 1
    assert [dot.controls[name].box.value for name in "xy"] == [*map(int, state.split(", "))]
    assert_drawn(dot)


def test_a_click_outside_the_axes_changes_nothing(dot):
    assert dot.image.clickable
    click(dot, axes(dot)[0], -0.6, 3)
    assert dot.state == "dot <at> 2, 4"


def test_a_screen_reader_announces_the_words_and_a_finding_is_bold(dot):
    click(dot, axes(dot)[0], 0, 0)
    words = "dot &lt;at&gt; 0, 0; <strong>found:</strong> the corner"
    assert dot.words.value == f'<p role="status">{words}</p>'
    assert dot.image.alt


def test_controls_are_in_one_column_beside_the_picture_and_the_words_below(dot):
    column, picture, words = dot.children
    assert (picture, words) == (dot.image, dot.words)
    assert type(column).__name__ == "VBox" and [*column.children] == [*dot.controls.values()]
    assert dot.layout.flex_flow == "row wrap" and words.layout.flex == "1 0 100%"  # a whole line
    assert picture.layout.max_width == "100%"


@pytest.mark.parametrize("step, kind", [(2, int), (0.5, float)])
def test_a_number_is_a_box_and_a_slider_that_follow_each_other_within_their_range(step, kind):
    number = Number("width", 4, 2, 8, step)
    assert number.children == (number.box, number.slider)
    assert number.box.description == number.slider.label == "width"
    for part in number.children:
        assert (part.value, part.min, part.max, part.step) == (4, 2, 8, step)
    for part, value, expected in [(number.slider, 6, 6), (number.box, 3, 3), (number.slider, 9, 8)]:
        part.value = value
        assert number.slider.value == number.box.value == number.value == expected
        assert type(number.value) is type(number.box.value) is kind
    number.box.max = number.slider.max = 5
    assert number.slider.value == number.box.value == 5


def test_a_dense_screen_gets_the_same_picture_in_more_pixels_and_so_does_a_viewer_without_code(dot):
    live = pixels(dot)
    bundle, metadata = dot._repr_mimebundle_()
    with Image.open(io.BytesIO(base64.b64decode(bundle["image/png"]))) as image:
        still = np.asarray(image.convert("RGB"), dtype=int)
    assert metadata["image/png"] == {"width": dot.image.width, "height": dot.image.height}
    assert bundle["text/plain"] == dot.state
    for x in (3, 2):
        set_controls(dot, x=x)
    np.testing.assert_array_equal(pixels(dot), live)  # as before
    dot.image.set_state({"density": 2.0})  # by the browser
    fine, (height, width, _) = pixels(dot), live.shape
    assert fine.shape == (2 * height, 2 * width, 3)
    assert (dot.image.width, dot.image.height) == (width, height)
    averaged = fine.reshape(height, 2, width, 2, 3).mean(axis=(1, 3))
    assert np.abs(averaged - live).mean() < 5  # lines and letters have other edges
    assert np.abs(still - fine).max() <= 4  # half a step between its shades
    click(dot, axes(dot)[0], 0, 2)
    assert dot.state == "dot <at> 0, 2"
    assert_drawn(dot)


def test_the_page_reports_each_click_of_the_first_button_only(chromium):
    file = io.BytesIO()
    Image.new("RGB", (200, 100)).save(file, "png")
    page = jupyterlab_server.new_page(chromium)
    page.set_content("<main></main>")
    page.evaluate(
        """async ([text, png]) => {
            const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
            const { default: { render } } = await import(address);
            const state = { value: new Uint8Array(png), width: 200, height: 100, clickable: true };
            window.clicks = [];
            const set = (name, value) => name === "clicked" && clicks.push(value);
            const model = { get: (name) => state[name], set, on() {}, save_changes() {} };
            render({ model, el: document.querySelector("main") });
        }""",
        [(HERE / "picture.js").read_text(encoding="utf-8"), [*file.getvalue()]],
    )
    image = page.locator("img")
    assert not image.evaluate("image => image.draggable")
    for button in ("right", "middle", "left", "left"):
        image.click(button=button, position={"x": 50, "y": 75})
    one, other = page.evaluate("clicks")
    assert one[:2] == other[:2] == pytest.approx([0.25, 0.75], abs=0.01)
    assert one[2] != other[2]  # so that the kernel gets both
    page.close()
