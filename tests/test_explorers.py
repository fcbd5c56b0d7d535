"""What explorers of the kernel are made of."""

import base64
import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from course_utils.explorers import Explorer, Number
from explorer_pictures import axes, drawn_anew, pixels, press

# What explorers of the kernel are made of, with one of a single dot.


@pytest.fixture
def dot():
    figure = Figure(figsize=(4, 3), dpi=80)
    ax = figure.add_subplot()
    ax.set(xlim=(-0.5, 10.5), ylim=(-0.5, 10.5))
    (mark,) = ax.plot([], [], "o", color="C1", markersize=12)

    def update(x, y):
        mark.set_data([x], [y])
        return f"dot at {x}, {y}{'; found: the corner' if x == y == 0 else ''}"

    def press(_, x, y):
        return {"x": round(x), "y": round(y)}

    controls = {"x": Number("x", 2, 0, 10, 1), "y": Number("y", 4, 0, 10, 1)}
    return Explorer(figure, [mark], controls, update, press=press)


def test_a_text_with_dollar_signs_is_drawn_as_it_is_and_not_read_as_a_formula():
    figure = Figure()
    figure.suptitle("$_$")  # as a formula it is an error
    assert bytes(Explorer(figure, [], {}, lambda: "said").image.value[:4]) == b"\x89PNG"


def test_a_press_moves_the_controls_and_draws_once(dot):
    sent, before = [], pixels(dot)
    dot.image.observe(sent.append, names="value")
    press(dot, axes(dot)[0], 7.2, 8.9)
    assert dot.state == "dot at 7, 9" and len(sent) == 1
    assert [dot.controls[name].box.value for name in "xy"] == [7, 9]
    assert (pixels(dot) != before).any() and dot.image.pressed


def test_a_press_far_out_goes_to_the_ends_and_one_beside_the_axes_nowhere(dot):
    press(dot, axes(dot)[0], 10.49, -0.49)
    assert dot.state == "dot at 10, 0"
    press(dot, axes(dot)[0], -0.6, 3)
    assert dot.state == "dot at 10, 0"


def test_moving_a_slider_or_typing_draws_there(dot):
    dot.controls["y"].slider.value = 9
    up = pixels(dot)
    dot.controls["y"].box.value = 1  # typed
    down = pixels(dot)

    def orange(picture):
        red, green, blue = np.moveaxis(picture, -1, 0)
        return np.argwhere((red > 230) & (80 < green) & (green < 160) & (blue < 80))[:, 0].mean()

    assert orange(up) < len(up) / 2 < orange(down)


def test_what_is_found_stands_out_and_is_told_to_a_screen_reader(dot):
    press(dot, axes(dot)[0], 0, 0)
    told = "dot at 0, 0; <strong>found:</strong> the corner"
    assert dot.words.value == f'<p role="status">{told}</p>'


def test_a_number_is_a_named_box_and_a_slider_of_one_range_that_move_each_other():
    for step, kind in [(2, int), (0.5, float)]:
        number = Number("width", 4, 2, 8, step)
        assert number.children == (number.box, number.slider)
        assert number.box.description == number.slider.label == "width"
        assert number.box.style.description_width == "initial"  # as wide as the name
        em = float(number.box.layout.width.removesuffix("em"))  # twice the width of a letter
        assert em > len("width") / 2 + 5  # room for the number
        for part in number.children:
            assert (part.value, part.min, part.max, part.step) == (4, 2, 8, step)
        number.slider.value = 6
        assert number.box.value == number.value == 6
        number.box.value = 3
        assert number.slider.value == number.value == 3
        assert type(number.value) is type(number.box.value) is kind


def test_a_slider_stays_within_its_ends_also_when_they_move():
    number = Number("width", 4, 2, 8, 1)
    number.slider.value = 9
    assert number.slider.value == number.box.value == 8
    number.box.max = number.slider.max = 5
    assert number.slider.value == number.box.value == 5


def test_controls_stand_below_each_other(dot):
    assert len(dot.children[0].children) == 2
    assert type(dot.children[0]).__name__ == "VBox"


def test_the_picture_stands_beside_the_controls_and_the_words_below(dot):
    assert dot.layout.flex_flow == "row wrap"
    assert dot.words.layout.flex == "1 0 100%"  # a whole line
    assert dot.image.layout.max_width == "100%"
    assert bytes(dot.image.value[:4]) == b"\x89PNG"


def test_on_a_dense_screen_the_same_picture_is_drawn_finer(dot):
    coarse, size = pixels(dot), (dot.image.width, dot.image.height)
    dot.image.set_state({"density": 2.0})  # as the browser tells it
    fine = pixels(dot)
    height, width = coarse.shape[:2]
    assert fine.shape == (2 * height, 2 * width, 3)
    assert (dot.image.width, dot.image.height) == size == (width, height)
    averaged = fine.reshape(height, 2, width, 2, 3).mean(axis=(1, 3))
    assert np.abs(averaged - coarse).mean() < 5  # edges differ, of lines and letters
    np.testing.assert_array_equal(fine, drawn_anew(dot))
    press(dot, axes(dot)[0], 0, 2)
    assert dot.state == "dot at 0, 2"


def test_shown_statically_it_is_a_fine_picture_with_its_state(dot):
    live = pixels(dot)
    bundle, metadata = dot._repr_mimebundle_()
    with Image.open(io.BytesIO(base64.b64decode(bundle["image/png"]))) as still:
        shown = np.asarray(still.convert("RGB"), dtype=int)
    dot.image.set_state({"density": 2.0})
    assert np.abs(shown - pixels(dot)).max() <= 4  # half a step between its shades
    assert metadata["image/png"] == {"width": live.shape[1], "height": live.shape[0]}
    dot.image.set_state({"density": 1.0})
    np.testing.assert_array_equal(pixels(dot), live)
    assert bundle["text/plain"] == dot.state
    assert "application/vnd.jupyter.widget-view+json" in bundle
