"""Explorers without a browser: move a control, look at the picture and the words."""

import base64
import io
import math

import numpy as np
import pytest
from PIL import Image

from course_utils.explorers import similarity_explorer


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=int)


@pytest.fixture
def explorer():
    return similarity_explorer()


@pytest.mark.parametrize("angle, length", [(0, 2), (90, 1), (180, 3), (-45, 0.5)])
def test_words_say_dot_cosine_and_distance(explorer, angle, length):
    explorer.controls["angle"].slider.value = angle
    explorer.controls["length"].slider.value = length
    x, y = length * math.cos(math.radians(angle)), length * math.sin(math.radians(angle))
    assert f"dot product {2 * x:.2f}" in explorer.state
    assert f"cosine {x / length:.2f}" in explorer.state
    assert f"distance {math.hypot(2 - x, y):.2f}" in explorer.state


def test_a_zero_vector_has_no_cosine(explorer):
    explorer.controls["length"].slider.value = 0
    assert "cosine none" in explorer.state


def test_moving_a_slider_or_typing_draws_the_arrow_there(explorer):
    explorer.controls["angle"].slider.value = 90
    up = explorer.image.value
    explorer.controls["angle"].box.value = -90  # typed
    down = explorer.image.value
    height = pixels(up).shape[0]

    def orange(png):
        red, green, blue = np.moveaxis(pixels(png), -1, 0)
        return np.argwhere((red > 230) & (80 < green) & (green < 160) & (blue < 80))[:, 0].mean()

    assert orange(up) < height / 2 < orange(down)


def test_going_back_gives_the_same_picture_to_the_byte(explorer):
    first = explorer.image.value
    explorer.controls["angle"].slider.value = 10
    assert explorer.image.value != first
    explorer.controls["angle"].slider.value = 60
    assert explorer.image.value == first


def test_words_are_announced_and_follow_the_state(explorer):
    explorer.controls["angle"].slider.value = 35
    assert explorer.words.value == f'<p role="status">{explorer.state}</p>'


def test_every_control_has_a_name_and_every_slider_a_named_twin(explorer):
    for number in explorer.controls.values():
        assert number.box.description
        assert (number.box.min, number.box.max) == (number.slider.min, number.slider.max)


def test_shown_statically_it_is_a_picture_with_its_state(explorer):
    bundle = explorer._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]) == explorer.image.value
    assert bundle["text/plain"] == explorer.state
    assert "application/vnd.jupyter.widget-view+json" in bundle
