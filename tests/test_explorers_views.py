"""The explorer of the three views: set a control, read the picture and the words."""

import re

import numpy as np
import pytest
import torch
from matplotlib.colors import same_color, to_hex

from course_utils.attention import attention
from course_utils.explorers import Number, views_explorer
from course_utils.views import example, told_apart, without_first
from explorer_pictures import axes, headings, limits, press, set_controls, ticks

TOKENS, Q, K, WEIGHTS = example()


def another_model():
    """Return tokens, q, k and weights of two layers of three heads over four tokens."""
    q, k = torch.randn(2, 2, 3, 4, 8, generator=torch.Generator().manual_seed(0))
    return list("abcd"), q, k, attention(q, k, k)[1]


@pytest.fixture
def explorer():
    return views_explorer()


@pytest.mark.parametrize("layer, head, query, key", [(0, 0, 0, 0), (11, 0, 6, 1), (4, 11, 8, 3)])
def test_words_tell_the_pair_of_the_head_and_where_the_query_looks_most(
    explorer, layer, head, query, key
):
    set_controls(explorer, layer=layer, head=head, query=query, key=key)
    one = WEIGHTS[layer, head, query]
    names = told_apart(TOKENS)
    assert explorer.state.startswith(
        f"layer {layer}, {names[query]} looks most in head {head} at {names[one.argmax()]} "
        f"{one.max():.2f}; {names[query]}→{names[key]}: 16 products sum to "
    )
    assert f"softmax over 9 keys: {one[key]:.2f}" in explorer.state


def test_the_mosaic_has_a_pixel_for_each_weight_at_least(explorer):
    tiles = axes(explorer)[0]
    rows, columns = tiles.images[0].get_array().shape
    assert tiles.bbox.width > columns and tiles.bbox.height > rows
    assert tiles.get_window_extent().width == pytest.approx(tiles.get_window_extent().height)


@pytest.mark.parametrize("layer, head, query, key", [(0, 2, 1, 3), (1, 0, 3, 1), (1, 1, 0, 2)])
def test_the_frame_is_round_the_head_and_marks_are_at_query_and_key(layer, head, query, key):
    explorer = views_explorer(*another_model())
    set_controls(explorer, layer=layer, head=head, query=query, key=key)
    tiles, paths, products, *_ = axes(explorer)
    (frame,), (mark,), (ends,) = tiles.patches, products.patches, paths.lines
    left, top = 6 * head - 0.5, 6 * layer - 0.5  # where the tile begins, 4 wide
    assert limits(frame) == (left - 0.5, left + 4.5, top - 0.5, top + 4.5)
    assert limits(mark) == (-0.5, 7.5, key - 0.5, key + 0.5)
    assert [*ends.get_ydata()] == [query, key]
    for outline in (frame, mark):
        assert same_color(outline.get_edgecolor(), "C3") and not outline.get_fill()
        assert outline.get_linewidth() == 3 and not outline.get_clip_on()


def test_the_first_token_stands_above_the_last_in_each_list(explorer):
    _, paths, *lists = axes(explorer)
    for ax in (paths, *lists):
        first, last = ax.transData.transform([(0, 0), (0, len(TOKENS) - 1)])[:, 1]
        assert ax.bbox.y1 > first > last > ax.bbox.y0


def drawn(explorer):
    """Return for each line drawn (query, key, opacity), and the colours used."""
    (lines,) = axes(explorer)[1].collections
    ends = [(start[1], stop[1]) for start, stop in lines.get_segments()]
    shades = lines.get_colors()
    found = [(*end, alpha) for end, alpha in zip(ends, shades[:, 3], strict=True)]
    return found, {to_hex(shade) for shade in shades}


def test_lines_are_all_of_one_head_and_those_of_the_query_stand_out():
    tokens, q, k, weights = another_model()
    explorer = set_controls(views_explorer(tokens, q, k, weights), layer=1, head=2, query=1)
    found, colours = drawn(explorer)
    expected = [(i, j, weights[1, 2, i, j]) for i in (0, 2, 3, 1) for j in range(4)]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert colours == {to_hex("C0"), to_hex("0.6")}


def test_several_heads_show_the_lines_of_one_query_each_in_the_colour_of_its_number():
    tokens, q, k, weights = another_model()
    explorer = set_controls(views_explorer(tokens, q, k, weights), layer=1, query=3, several=True)
    found, colours = drawn(explorer)
    expected = [(3, j + 0.3 * (h - 1), weights[1, h, 3, j]) for h in range(3) for j in range(4)]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    numbers = axes(explorer)[0].get_xticklabels()
    assert colours == {to_hex(number.get_color()) for number in numbers} and len(colours) == 3
    for h in range(3):
        j = int(weights[1, h, 3].argmax())
        assert f"{h} at {tokens[j]} {weights[1, h, 3, j]:.2f}" in explorer.state


def test_without_key_0_the_lines_share_what_it_leaves():
    tokens, q, k, weights = another_model()
    explorer = set_controls(views_explorer(tokens, q, k, weights), layer=0, head=1, query=2)
    set_controls(explorer, hide=True)
    rest = without_first(weights[0, 1])
    expected = [(i, j, rest[i, j]) for i in (0, 1, 3, 2) for j in range(4)]
    np.testing.assert_allclose(drawn(explorer)[0], expected, atol=1e-6)
    assert f"key 0 left out of the lines, its weight {weights[0, 1, 2, 0]:.2f};" in explorer.state


def test_below_stand_products_scores_and_weights_of_all_keys_of_the_query():
    tokens, q, k, weights = another_model()
    explorer = set_controls(views_explorer(tokens, q, k, weights), layer=1, head=2, query=3)
    _, _, products, scores, shares = axes(explorer)
    (image,) = products.images
    expected = q[1, 2, 3] * k[1, 2]
    np.testing.assert_allclose(image.get_array(), expected, rtol=1e-6)
    most = expected.abs().max().item()
    assert image.get_clim() == pytest.approx((-most, most))
    for ax, values in ((scores, expected.sum(-1) / 8**0.5), (shares, weights[1, 2, 3])):
        bars = np.array(ax.collections[0].get_segments())
        np.testing.assert_allclose(bars[:, 1, 0], values, rtol=1e-5)
        assert (bars[:, 0, 0] == 0).all() and bars[:, 1, 1].tolist() == [0, 1, 2, 3]
        assert ax.get_ylim() == products.get_ylim()
        assert (abs(values) <= ax.get_xlim()[1]).all()
    assert headings(products) == ("q × k", "feature", "keys")
    assert ticks(products.yaxis) == dict(enumerate("abcd"))


def test_a_token_that_occurs_twice_is_told_by_its_position(explorer):
    assert [text.get_text() for text in axes(explorer)[1].texts[:9]] == told_apart(TOKENS)


def test_each_number_is_a_slider_over_all_there_is(explorer):
    for name, size in zip(("layer", "head", "query", "key"), WEIGHTS.shape, strict=True):
        control = explorer.controls[name]
        assert isinstance(control, Number)  # a dropdown does not hear arrow keys in JupyterLab
        assert (control.slider.min, control.slider.max) == (0, size - 1)


def test_it_opens_on_the_head_and_pair_of_the_lesson(explorer):
    opened = {name: control.value for name, control in explorer.controls.items()}
    at = opened.pop("layer"), opened.pop("head")
    assert not opened.pop("several") and not opened.pop("hide")
    assert at == (11, 0) and [TOKENS[place] for place in opened.values()] == ["it", "dog"]
    assert WEIGHTS[at][6].max() == WEIGHTS[at].max() > 0.8  # it is worth looking at
    assert "found" not in explorer.state


def opened(explorer):
    """Return layer, head, query and key."""
    return tuple(control.value for control in explorer.controls.values())[:4]


def test_on_other_data_it_opens_on_the_largest_weight():
    tokens, q, k, weights = another_model()
    explorer = views_explorer(tokens, q, k, weights)
    assert weights[opened(explorer)] == weights.max() and "found" not in explorer.state


def test_a_sink_is_not_what_it_opens_on():
    q, k = torch.zeros(2, 1, 2, 3, 4)
    q[..., 0], k[0, 0, 0, 0] = 9, 9  # head 0: all weight on key 0
    q[0, 1, 2, 1], k[0, 1, 1, 1] = 3, 3  # head 1: query 2 looks at key 1
    explorer = views_explorer("abc", q, k, attention(q, k, k)[1])
    assert opened(explorer) == (0, 1, 2, 1)
    one = torch.zeros(1, 1, 1, 4)
    assert opened(views_explorer("a", one, one, torch.ones(1, 1, 1, 1))) == (0, 0, 0, 0)


def test_a_press_chooses_a_head_among_the_tiles_a_query_and_keys_among_the_tokens(explorer):
    tiles, paths, products, _, shares = axes(explorer)
    for layer, head in [(0, 0), (5, 9), (11, 11)]:
        for within in (0, 8):  # the first and the last weight of a tile of 9
            press(explorer, tiles, head * 11 + within, layer * 11 + within)
            assert (layer, head) == opened(explorer)[:2]
    press(explorer, paths, 0.1, 7.8)
    press(explorer, paths, 0.9, 1.3)
    assert "tired→dog: 16 products" in explorer.state
    press(explorer, products, 3, 4.4)
    assert "tired→park: 16 products" in explorer.state
    press(explorer, shares, 0.7, 2)
    assert "tired→left: 16 products" in explorer.state
    values = {name: explorer.controls[name].box.value for name in ("layer", "head", "query", "key")}
    assert values == {"layer": 11, "head": 11, "query": 8, "key": 2}


@pytest.mark.parametrize("query, key", [(8, 1), (4, 5)])  # tired and dog, park and because
def test_a_head_that_looks_from_one_token_at_the_other_is_found(explorer, query, key):
    set_controls(explorer, query=query, key=key)
    found = set()
    told = f"; found: {TOKENS[query]} looks at {TOKENS[key]} more than at any other token"
    for layer in range(12):
        for head in range(12):
            if told in set_controls(explorer, layer=layer, head=head).state:
                found.add((layer, head))
    wanted = WEIGHTS[:, :, query].argmax(dim=-1) == key  # (layers, H)
    assert 1 < len(found) < 36 and found == set(map(tuple, wanted.nonzero().tolist()))


def test_it_takes_another_models_data():
    tokens, q, k, weights = another_model()
    explorer = set_controls(views_explorer(tokens, q, k, weights), layer=1, head=2, query=3, key=0)
    assert "d→a: 8 products" in explorer.state
    assert explorer.state.endswith(f"softmax over 4 keys: {weights[1, 2, 3, 0]:.2f}")
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
    bundle, _ = explorer._repr_mimebundle_()
    assert bundle["text/plain"] == explorer.state and re.search(r"\d", explorer.state)
