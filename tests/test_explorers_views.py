"""The explorer of the three views: set a control, read the picture, the words and the details."""

import re

import numpy as np
import pytest
import torch
from matplotlib.colors import same_color

from course_utils.attention import attention
from course_utils.explorers import Number, views_explorer
from course_utils.views import example, head_lines, pair_products
from explorer_pictures import across, axes, headings, limits, press, set_controls, ticks

TOKENS, Q, K, WEIGHTS = example()


def another_model():
    """Return tokens, q, k and weights of two layers of three heads over four tokens."""
    q, k = torch.randn(2, 2, 3, 4, 8, generator=torch.Generator().manual_seed(0))
    return list("abcd"), q, k, attention(q, k, k)[1]


@pytest.fixture
def explorer():
    return views_explorer()


@pytest.mark.parametrize("layer, head, query, key", [(0, 0, 0, 0), (11, 0, 6, 1), (4, 11, 8, 3)])
def test_words_and_details_tell_the_pair_of_the_head(explorer, layer, head, query, key):
    set_controls(explorer, layer=layer, head=head, query=query, key=key)
    weight = f"{WEIGHTS[layer, head, query, key]:.2f}"
    assert explorer.state.startswith(f"layer {layer}, head {head}: ")
    assert f"{TOKENS[query]}→{TOKENS[key]}: 16 products" in explorer.state
    assert f"softmax over 9 keys: {weight}, as shown" in explorer.state
    details = explorer.children[-1].value
    assert details.count("<svg role=") == 2 and f"<title>{TOKENS[key]} {weight}</title>" in details
    strongest = int(WEIGHTS[layer, head, query].argmax())
    assert f"the largest is {TOKENS[query]}→{TOKENS[strongest]}" in explorer.state


def test_the_mosaic_has_a_pixel_for_each_weight_at_least(explorer):
    mosaic = axes(explorer)[0]
    rows, columns = mosaic.images[0].get_array().shape
    assert mosaic.bbox.width > columns and mosaic.bbox.height > rows


def test_the_mosaic_shows_each_head_at_its_layer_and_number():
    tokens, q, k, weights = another_model()
    mosaic = axes(views_explorer(tokens, q, k, weights))[0]
    (image,) = mosaic.images
    cells = np.ma.filled(image.get_array(), np.nan)
    assert cells.shape == (2 * 5, 3 * 5)
    for layer in range(2):
        for head in range(3):
            tile = cells[5 * layer : 5 * layer + 4, 5 * head : 5 * head + 4]
            np.testing.assert_allclose(tile, weights[layer, head].sqrt(), rtol=1e-6)
    assert np.isnan(cells[4::5]).all() and np.isnan(cells[:, 4::5]).all()
    assert image.get_clim() == (0, 1) and image.get_cmap().name == "cividis"
    assert image.get_extent() == [-0.5, 14.5, 9.5, -0.5]  # the first layer is on top
    assert headings(mosaic) == ("all heads", "head", "layer")
    assert ticks(mosaic.xaxis) == {5 * head + 1.5: str(head) for head in range(3)}
    assert ticks(mosaic.yaxis) == {5 * layer + 1.5: str(layer) for layer in range(2)}


@pytest.mark.parametrize("layer, head, query, key", [(0, 2, 1, 3), (1, 0, 3, 1), (1, 1, 0, 2)])
def test_the_frame_is_round_the_head_and_the_mark_round_the_pair(layer, head, query, key):
    tokens, q, k, weights = another_model()
    explorer = views_explorer(tokens, q, k, weights)
    set_controls(explorer, layer=layer, head=head, query=query, key=key)
    mosaic, one = axes(explorer)
    assert across([mosaic, one]) == [mosaic, one]
    (frame,), (mark,), (image,) = mosaic.patches, one.patches, one.images
    left, top = 5 * head - 0.5, 5 * layer - 0.5  # where the tile begins, 4 wide
    assert limits(frame) == (left - 0.5, left + 4.5, top - 0.5, top + 4.5)
    assert limits(mark) == (key - 0.5, key + 0.5, query - 0.5, query + 0.5)
    for outline in (frame, mark):
        assert same_color(outline.get_edgecolor(), "C3") and not outline.get_fill()
        assert outline.get_linewidth() == 3 and not outline.get_clip_on()
        assert outline.zorder > image.zorder
    np.testing.assert_allclose(image.get_array(), weights[layer, head].sqrt(), rtol=1e-6)
    assert image.get_clim() == (0, 1) and image.get_cmap().name == "cividis"
    assert image.get_extent() == [-0.5, 3.5, 3.5, -0.5]


def test_the_one_head_names_its_tokens_and_their_places():
    one = axes(views_explorer(*another_model()))[1]
    assert headings(one) == ("one head: √weight", "keys", "queries")
    named = {0: "a 0", 1: "b 1", 2: "c 2", 3: "d 3"}
    assert ticks(one.xaxis) == ticks(one.yaxis) == named
    assert {label.get_rotation() for label in one.get_xticklabels()} == {90}


def test_details_are_the_lines_of_the_query_and_then_the_products_of_the_pair():
    tokens, q, k, weights = another_model()
    explorer = views_explorer(tokens, q, k, weights)
    set_controls(explorer, layer=1, head=2, query=3, key=0)
    names = {"queries": tokens, "keys": tokens}
    lines = head_lines(weights[1, 2], query=3, **names)
    pair = pair_products(q[1, 2], k[1, 2], weights[1, 2], 3, 0, **names)
    parts = re.split("(?=<svg)", explorer.children[-1].value)
    assert [part[: part.find("</svg>") + 6] for part in parts[1:]] == [lines.svg, pair.svg]
    assert explorer.state.startswith(f"layer 1, head 2: {lines.description}; {pair.description}")


def test_every_control_is_a_slider_over_all_there_is(explorer):
    sizes = dict(zip(explorer.controls, WEIGHTS.shape, strict=True))  # layer, head, query, key
    for name, control in explorer.controls.items():
        assert isinstance(control, Number), (
            name
        )  # a dropdown does not hear arrow keys in JupyterLab
        slider = control.slider
        assert (slider.min, slider.max) == (0, sizes[name] - 1)


def test_it_opens_on_the_head_and_pair_of_the_lesson(explorer):
    opened = {name: control.value for name, control in explorer.controls.items()}
    at = opened.pop("layer"), opened.pop("head")
    assert at == (11, 0) and [TOKENS[place] for place in opened.values()] == ["it", "dog"]
    assert WEIGHTS[at][6].max() == WEIGHTS[at].max() > 0.8  # it is worth looking at
    assert "found" not in explorer.state


def test_on_other_data_it_opens_on_the_largest_weight():
    explorer = views_explorer(*another_model())
    at = tuple(control.value for control in explorer.controls.values())
    weights = another_model()[3]
    assert weights[at] == weights.max() and "found" not in explorer.state


def test_a_press_chooses_a_head_in_the_left_picture_and_a_pair_in_the_right_one(explorer):
    mosaic, one = axes(explorer)
    for layer, head in [(0, 0), (5, 9), (11, 11)]:
        for within in (0, 8):  # the first and the last weight of a tile of 9
            press(explorer, mosaic, head * 10 + within, layer * 10 + within)
            assert explorer.state.startswith(f"layer {layer}, head {head}: ")
    press(explorer, one, 1.3, 7.8)
    assert "tired→dog: 16 products" in explorer.state
    values = {name: control.box.value for name, control in explorer.controls.items()}
    assert values == {"layer": 11, "head": 11, "query": 8, "key": 1}


@pytest.mark.parametrize("query, key", [(8, 1), (4, 5)])  # tired and dog, park and because
def test_a_head_that_looks_from_one_token_at_the_other_is_found(explorer, query, key):
    set_controls(explorer, query=query, key=key)
    found = set()
    told = f"; found: {TOKENS[query]} looks at {TOKENS[key]} more than at any other token"
    for layer in range(12):
        for head in range(12):
            if told in set_controls(explorer, layer=layer, head=head).state:
                found.add((layer, head))
    row = WEIGHTS[:, :, query]  # (layers, H, L)
    wanted = (row.argmax(dim=-1) == key) & (row[..., key] > 2 / 9)
    assert 1 < len(found) < 36 and found == set(map(tuple, wanted.nonzero().tolist()))


def test_it_takes_another_models_data():
    tokens, q, k, weights = another_model()
    explorer = set_controls(views_explorer(tokens, q, k, weights), layer=1, head=2, query=3, key=0)
    assert "d→a: 8 products" in explorer.state
    assert f": {weights[1, 2, 3, 0]:.2f}, as shown" in explorer.state
    assert explorer.controls["layer"].slider.max == 1 and explorer.controls["head"].slider.max == 2
    explorer = views_explorer(tokens, q, k, weights.requires_grad_())
    assert "8 products" in explorer.state


def test_data_that_do_not_belong_together_are_refused():
    with pytest.raises(ValueError, match="give all four, or none"):
        views_explorer(TOKENS, Q, K)
    with pytest.raises(ValueError, match="weights must be softmax"):
        views_explorer(TOKENS, K, Q, WEIGHTS)
    with pytest.raises(ValueError, match="tokens must have 9 entries, one for each, got 8"):
        views_explorer(TOKENS[1:], Q, K, WEIGHTS)
    with pytest.raises(ValueError, match=r"q must have shape \(layers, H, L, d_k\), got \(12, 9"):
        views_explorer(TOKENS, Q[0], K, WEIGHTS)
    with pytest.raises(TypeError, match="weights must be a torch.Tensor of shape"):
        views_explorer(TOKENS, Q, K, WEIGHTS.tolist())


def test_shown_statically_it_is_the_picture_and_its_state(explorer):
    bundle = explorer._repr_mimebundle_()
    assert bundle["text/plain"] == explorer.state and re.search(r"\d", explorer.state)
