"""The explorer of the three views: set a control, read the picture, the words and the details."""

import io
import re

import numpy as np
import pytest
import torch
from PIL import Image

from course_utils.attention import attention
from course_utils.explorers import Number, views_explorer
from course_utils.views import example

TOKENS, Q, K, WEIGHTS = example()


def set_to(explorer, **values):
    for name, value in values.items():
        explorer.controls[name].slider.value = value
    return explorer


def red(explorer):
    """Return the places (rows, columns) of the frame's and the mark's colour."""
    picture = np.asarray(Image.open(io.BytesIO(explorer.image.value)).convert("RGB"), dtype=int)
    return np.argwhere(abs(picture - (214, 39, 40)).sum(axis=-1) < 30)


@pytest.fixture
def explorer():
    return views_explorer()


@pytest.mark.parametrize("layer, head, query, key", [(0, 0, 0, 0), (11, 0, 6, 1), (4, 11, 8, 3)])
def test_words_and_details_tell_the_pair_of_the_head(explorer, layer, head, query, key):
    set_to(explorer, layer=layer, head=head, query=query, key=key)
    weight = f"{WEIGHTS[layer, head, query, key]:.2f}"
    assert explorer.state.startswith(f"layer {layer}, head {head}: ")
    assert f"{TOKENS[query]}→{TOKENS[key]}: 16 products" in explorer.state
    assert f"softmax over 9 keys: {weight}, as shown" in explorer.state
    details = explorer.children[-1].value
    assert details.count("<svg role=") == 2 and f"<title>{TOKENS[key]} {weight}</title>" in details
    strongest = int(WEIGHTS[layer, head, query].argmax())
    assert f"the largest is {TOKENS[query]}→{TOKENS[strongest]}" in explorer.state


def test_the_frame_goes_to_the_head_and_the_mark_to_the_pair(explorer):
    width = Image.open(io.BytesIO(explorer.image.value)).width
    first = red(explorer)
    moved = red(set_to(explorer, layer=11, head=11))
    frames = [places[places[:, 1] < width * 0.55].mean(axis=0) for places in (first, moved)]
    assert (frames[1] > frames[0] + 100).all()  # down and to the right
    moved = red(set_to(explorer, query=8))
    further = red(set_to(explorer, key=8))
    a, b, c = (p[p[:, 1] > width * 0.55].mean(axis=0) for p in (first, moved, further))
    assert b[0] > a[0] + 100 and b[1] == pytest.approx(a[1], abs=3)
    assert c[1] > b[1] + 100 and c[0] == pytest.approx(b[0], abs=3)


def test_every_control_has_a_name_and_back_gives_the_same_bytes(explorer):
    first = explorer.image.value, explorer.words.value, explorer.children[-1].value
    for name, control in explorer.controls.items():
        assert control.box.description == name
        control = control.slider
        before, control.value = control.value, 3
        now = explorer.image.value, explorer.words.value, explorer.children[-1].value
        assert all(a != b for a, b in zip(first, now, strict=True)), name
        control.value = before
        now = explorer.image.value, explorer.words.value, explorer.children[-1].value
        assert now == first, name


def test_every_control_is_a_slider_over_all_there_is(explorer):
    sizes = dict(zip(explorer.controls, WEIGHTS.shape, strict=True))  # layer, head, query, key
    for name, control in explorer.controls.items():
        assert isinstance(control, Number), (
            name
        )  # a dropdown does not hear arrow keys in JupyterLab
        assert (control.slider.min, control.slider.max) == (0, sizes[name] - 1)


def test_it_takes_another_models_data():
    torch.manual_seed(0)
    q, k = torch.randn(2, 2, 3, 4, 8)  # two of (layers, H, L, d_k)
    weights = attention(q, k, k)[1]
    explorer = set_to(views_explorer(list("abcd"), q, k, weights), layer=1, head=2, query=3, key=0)
    assert "d→a: 8 products" in explorer.state
    assert f": {weights[1, 2, 3, 0]:.2f}, as shown" in explorer.state
    assert explorer.controls["layer"].slider.max == 1 and explorer.controls["head"].slider.max == 2


def test_data_that_do_not_belong_together_are_refused():
    with pytest.raises(ValueError, match="give all four, or none"):
        views_explorer(TOKENS, Q, K)
    with pytest.raises(ValueError, match="weights must be softmax"):
        views_explorer(TOKENS, K, Q, WEIGHTS)


def test_shown_statically_it_is_the_picture_and_its_state(explorer):
    bundle = explorer._repr_mimebundle_()
    assert bundle["text/plain"] == explorer.state and re.search(r"\d", explorer.state)
