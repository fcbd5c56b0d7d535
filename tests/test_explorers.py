"""The explorer of two arrows, and what all explorers are made of, without a browser."""

import base64
import io
import math

import numpy as np
import pytest
from matplotlib.colors import same_color
from PIL import Image

from course_utils.explorers import Number, similarity_explorer
from explorer_pictures import axes, drawn_anew, headings, pixels, press, set_controls

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
            # without a picture, which takes a hundred times as long
            told = explorer._update(angle, tenths / 10).partition("; found: ")[2]
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


@pytest.mark.parametrize("angle, length", [(0, 2), (90, 1), (180, 3), (-45, 0.5), (155, 1.3)])
def test_a_press_puts_the_tip_there(explorer, angle, length):
    x, y = tip(angle, length)
    before = pixels(explorer)
    press(explorer, axes(explorer)[0], x + 0.01, y + 0.01)
    assert (explorer.controls["angle"].box.value, explorer.controls["length"].box.value) == (
        angle,
        length,
    )
    assert (pixels(explorer) != before).any() and f"k = ({x:z.2f}, {y:z.2f})" in explorer.state
    assert explorer.image.pressed == "drag"


def test_a_press_far_out_gives_the_longest_arrow_and_one_beside_the_axes_nothing(explorer):
    (ax,) = axes(explorer)
    press(explorer, ax, -3.1, 3.1)
    assert (explorer.controls["angle"].value, explorer.controls["length"].value) == (135, 3)
    press(explorer, ax, -3.3, 0)
    assert (explorer.controls["angle"].value, explorer.controls["length"].value) == (135, 3)


def test_a_press_that_moves_two_controls_draws_once(explorer):
    sent = []
    explorer.image.observe(sent.append, names="value")
    press(explorer, axes(explorer)[0], -1, -1)
    assert len(sent) == 1


@pytest.mark.parametrize("angle, length", PLACES)
def test_arrows_distance_and_shadow_are_drawn_where_q_and_k_are(explorer, angle, length):
    set_controls(explorer, angle=angle, length=length)
    x, y = tip(angle, length)
    (ax,) = axes(explorer)
    (arrows,) = ax.collections
    assert (arrows.XY == 0).all()  # both begin at the origin
    np.testing.assert_allclose(np.stack([arrows.U, arrows.V], axis=1), [[2, 0], [x, y]])
    lines = {line.get_label(): line for line in ax.lines}
    np.testing.assert_allclose(
        lines["distance from q to k"].get_xydata(), [[2, 0], [x, y]], atol=1e-9
    )
    np.testing.assert_allclose(lines["shadow of k on q"].get_xydata(), [[0, 0], [x, 0]], atol=1e-9)
    names = {text.get_text(): text for text in ax.texts}
    assert math.dist(names["k"].get_position(), (x, y)) < 0.2
    assert names["q"].xy == pytest.approx((2, 0))


def test_arrows_and_letters_share_colours_and_the_legend_tells_the_lines_apart(explorer):
    (ax,) = axes(explorer)
    names = {text.get_text(): text for text in ax.texts}
    for name, colour in zip("qk", ax.collections[0].get_facecolor(), strict=True):
        assert same_color(names[name].get_color(), colour)
    distance, shadow = ax.get_legend().get_lines()
    told = [text.get_text() for text in ax.get_legend().get_texts()]
    assert told == ["distance from q to k", "shadow of k on q"]
    drawn = {line.get_label(): line for line in ax.lines}
    for name, line in zip(told, (distance, shadow), strict=True):
        assert same_color(line.get_color(), drawn[name].get_color())
        assert line.get_linestyle() == drawn[name].get_linestyle()
        assert line.get_linewidth() == drawn[name].get_linewidth()
    assert distance.get_linestyle() == "--" and shadow.get_linestyle() == "-"
    assert shadow.get_linewidth() > distance.get_linewidth() and shadow.get_alpha() == 0.5


def test_the_longest_arrow_fits_in_every_direction(explorer):
    (ax,) = axes(explorer)
    assert ax.get_xlim() == ax.get_ylim() == (-3.2, 3.2) and ax.get_aspect() == 1
    angle, length = explorer.controls["angle"].slider, explorer.controls["length"].slider
    assert (angle.value, angle.min, angle.max, angle.step) == (60, -180, 180, 5)
    assert (length.value, length.min, length.max, length.step) == (1.5, 0, 3, 0.1)
    assert headings(ax) == ("", "first component", "second component")


def test_moving_a_slider_or_typing_draws_the_arrow_there(explorer):
    explorer.controls["angle"].slider.value = 90
    up = pixels(explorer)
    explorer.controls["angle"].box.value = -90  # typed
    down = pixels(explorer)

    def orange(picture):
        red, green, blue = np.moveaxis(picture, -1, 0)
        return np.argwhere((red > 230) & (80 < green) & (green < 160) & (blue < 80))[:, 0].mean()

    assert orange(up) < len(up) / 2 < orange(down)


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


def test_controls_stand_below_each_other(explorer):
    assert len(explorer.children[0].children) == 2
    assert type(explorer.children[0]).__name__ == "VBox"


def test_the_picture_stands_beside_the_controls_and_the_words_below(explorer):
    assert explorer.layout.flex_flow == "row wrap"
    assert explorer.words.layout.flex == "1 0 100%"  # a whole line
    assert explorer.image.layout.max_width == "100%"
    assert bytes(explorer.image.value[:4]) == b"\x89PNG"


def test_on_a_dense_screen_the_same_picture_is_drawn_finer(explorer):
    coarse, size = pixels(explorer), (explorer.image.width, explorer.image.height)
    explorer.image.set_state({"density": 2.0})  # as the browser tells it
    fine = pixels(explorer)
    height, width = coarse.shape[:2]
    assert fine.shape == (2 * height, 2 * width, 3)
    assert (explorer.image.width, explorer.image.height) == size == (width, height)
    averaged = fine.reshape(height, 2, width, 2, 3).mean(axis=(1, 3))
    assert np.abs(averaged - coarse).mean() < 5  # edges differ, of lines and letters
    np.testing.assert_array_equal(fine, drawn_anew(explorer))
    press(explorer, axes(explorer)[0], 0, 2)
    assert (explorer.controls["angle"].value, explorer.controls["length"].value) == (90, 2)


def test_shown_statically_it_is_a_fine_picture_with_its_state(explorer):
    live = pixels(explorer)
    bundle, metadata = explorer._repr_mimebundle_()
    with Image.open(io.BytesIO(base64.b64decode(bundle["image/png"]))) as still:
        shown = np.asarray(still.convert("RGB"), dtype=int)
    explorer.image.set_state({"density": 2.0})
    assert np.abs(shown - pixels(explorer)).max() <= 4  # half a step between its shades
    assert metadata["image/png"] == {"width": live.shape[1], "height": live.shape[0]}
    explorer.image.set_state({"density": 1.0})
    np.testing.assert_array_equal(pixels(explorer), live)
    assert bundle["text/plain"] == explorer.state
    assert "application/vnd.jupyter.widget-view+json" in bundle
