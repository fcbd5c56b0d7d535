"""The words of the two arrows, and what explorers of the kernel are made of."""

import base64
import io
import math

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from course_utils.explorers import Explorer, Number, similarity_explorer
from explorer_pictures import axes, drawn_anew, pixels, press, set_controls

PLACES = [(0, 2), (90, 1), (180, 3), (-45, 0.5), (155, 1.3)]


@pytest.fixture
def explorer():
    return similarity_explorer()


def tip(angle, length):
    return length * math.cos(math.radians(angle)), length * math.sin(math.radians(angle))


@pytest.mark.parametrize("angle, length", PLACES)
def test_words_say_dot_cosine_and_distance(explorer, angle, length):
    set_controls(explorer, angle=angle, length=length)
    x, y = tip(angle, length)
    assert f"k = ({x:.2f}, {y:.2f})" in explorer.state
    assert f"dot product {2 * x:.2f}" in explorer.state
    assert f"cosine {x / length:.2f}" in explorer.state
    assert f"distance {math.hypot(2 - x, y):.2f}" in explorer.state


def test_a_zero_vector_has_no_cosine(explorer):
    set_controls(explorer, length=0)
    assert "cosine none" in explorer.state


@pytest.mark.parametrize("angle, length", [(90, 2), (-90, 0.3), (180, 0.0), (-180, 1)])
def test_no_number_is_minus_zero(explorer, angle, length):
    assert "-0.00" not in set_controls(explorer, angle=angle, length=length).state


def test_what_the_lesson_asks_for_is_noticed_when_it_is_there_and_only_then(explorer):
    """Each state of the sliders, against the questions written out."""
    larger, farthest, right_angled = set(), {}, set()
    for angle in range(-180, 181, 5):
        for tenths in range(31):
            told = set_controls(explorer, angle=angle, length=tenths / 10).state.partition(
                "; found: "
            )[2]
            if told.startswith("dot product"):
                cosine = math.cos(math.radians(angle))
                dot = f"{2 * tenths / 10 * cosine:.2f}"
                assert told == f"dot product {dot}, more than k = q has, at cosine {cosine:.2f}"
                larger.add((angle, tenths))
            elif told.startswith("cosine 1.00 at distance"):
                farthest[angle, tenths] = float(told.split("distance ")[1].split(",")[0])
            elif told:
                assert told == "at 90° the dot product is 0.00, whatever the length"
                right_angled.add((angle, tenths))
    steps = [(a, t) for a in range(-180, 181, 5) for t in range(31)]
    assert larger == {  # at 5° the cosine is 1.00 as it is written
        (a, t) for a, t in steps if abs(a) > 5 and t / 10 * math.cos(math.radians(a)) > 2 + 1e-9
    }
    distances = {(a, t): abs(2 - t / 10) for a, t in steps if a == 0 and t}
    assert farthest == {max(distances, key=distances.get): pytest.approx(max(distances.values()))}
    assert right_angled == {(a, t) for a, t in steps if abs(a) == 90 and t}


def test_the_explorer_opens_on_nothing_found(explorer):
    assert "found" not in explorer.state


def test_the_sliders_of_similarity_have_the_ranges_of_the_lesson():
    angle, length = similarity_explorer().controls.values()
    limits = [[each[name] for name in ("value", "low", "high", "step")] for each in (angle, length)]
    assert limits == [[60, -180, 180, 5], [1.5, 0, 3, 0.1]]


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
