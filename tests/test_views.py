"""The three views of attention: what each draws, that it checks itself, and its description."""

import re

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba
from seaborn.utils import relative_luminance

from course_utils.attention import attention
from course_utils.figures import DIVERGING, PER_INCH, WIDEST
from course_utils.views import GAP, example, head_lines, mosaic, query_products

TOKENS, Q, K, WEIGHTS = example()


def random_head(L, S, d_k=4):
    """Return q (L, d_k), k (S, d_k) and the weights (L, S) they give."""
    q, k = torch.randn(L + S, d_k, generator=torch.Generator().manual_seed(0)).split([L, S])
    return q, k, attention(q, k, k)[1]


def panels(ax):
    """Return the Axes of products, scores and weights of a query."""
    return [panel for panel in ax.figure.axes if panel.get_label() != "<colorbar>"]


# mosaic


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (3, 2, 6, 4), (1, 1, 1, 1)])
def test_each_tile_of_the_mosaic_is_its_head(shape):
    layers, heads, L, S = shape
    weights = torch.randn(shape).softmax(dim=-1)
    ax = mosaic(weights)
    (image,) = ax.images
    assert ax.get_ylim() == (layers * (L + GAP) - 0.5, -0.5)  # the first layer is on top
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_aspect()) == ("head", "layer", 1)
    tiles = np.ma.filled(image.get_array(), np.nan).reshape(layers, L + GAP, heads, S + GAP)
    np.testing.assert_allclose(tiles[:, :L, :, :S], weights.transpose(1, 2), rtol=1e-6)
    assert np.isnan(tiles).sum() == tiles.size - weights.numel()
    for axis, n, size in ((ax.yaxis, layers, L), (ax.xaxis, heads, S)):
        assert axis.get_ticklocs().tolist() == [i * (size + GAP) + (size - 1) / 2 for i in range(n)]
        assert [label.get_text() for label in axis.get_ticklabels()] == [*map(str, range(n))]


def test_a_wide_mosaic_has_a_column_for_each_layer_and_fits_the_page():
    weights = torch.rand(30, 9, 4, 5).softmax(dim=-1)
    ax, turned = mosaic(weights, wide=True), mosaic(weights.transpose(0, 1))
    np.testing.assert_array_equal(ax.images[0].get_array(), turned.images[0].get_array())
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("layer", "head")
    assert ax.description == mosaic(weights).description
    assert ax.figure.get_figwidth() * PER_INCH <= WIDEST


def test_the_mosaics_shade_is_the_root_of_the_weight_and_its_color_bar_says_so():
    ax = mosaic(WEIGHTS)
    (image,) = ax.images
    assert image.norm([0, 0.04, 0.25, 1]).tolist() == pytest.approx([0, 0.2, 0.5, 1])
    assert (np.diff([relative_luminance(c) for c in image.cmap(np.linspace(0, 1, 64))]) > 0).all()
    assert tuple(image.cmap(np.nan)) == to_rgba("white")
    assert ["√weight" in panel.get_ylabel() for panel in ax.figure.axes] == [False, True]


def test_the_mosaic_names_the_sharpest_and_the_flattest_head():
    weights = torch.full((2, 3, 4, 4), 0.25)
    weights[1, 2] = torch.eye(4)
    weights[0, 1] = 0.1  # a model gives no such weights; here they are the flattest
    assert mosaic(weights).description == (
        "2 layers of 3 heads, each 4×4 weights; the largest weight in a row averages 1.00 in "
        "the sharpest head (layer 1, head 2) and 0.10 in the flattest (layer 0, head 1)"
    )


# head_lines


@pytest.mark.parametrize("L, S", [(3, 7), (7, 3), (1, 5), (3, 1)])
def test_each_weight_is_a_line_from_its_query_at_the_left_to_its_key_at_the_right(L, S):
    weights = random_head(L, S)[2]
    queries, keys = [f"q{i}" for i in range(L)], [f"k{j}" for j in range(S)]
    ax = head_lines(weights, queries=queries, keys=keys)
    lines = ax.collections[0]
    ends = [[[0, i], [1, j]] for i, j in np.ndindex(L, S)]
    assert np.array(lines.get_segments()).tolist() == ends
    np.testing.assert_allclose(lines.get_colors()[:, 3], weights.flatten(), atol=1e-6)  # opacity
    for side, names in (("right", ["query", *queries]), ("left", ["key", *keys])):
        texts = sorted((t.get_position(), t.get_text()) for t in ax.texts if t.get_ha() == side)
        assert [text for _, text in texts] == names
        assert [y for (_, y), _ in texts][1:] == [*range(len(names) - 1)] and texts[0][0][1] < 0
        assert all((x < 0) == (side == "right") for (x, _), _ in texts)
    bottom, top = ax.get_ylim()
    assert top < texts[0][0][1] and bottom > max(L, S) - 1  # the first token is on top
    i, j = divmod(int(weights.argmax()), S)
    largest = f"the largest is {weights[i, j]:.2f}, from query 'q{i}' to key 'k{j}'"
    assert ax.description == f"{L}×{S} weights as lines; {largest}"


def test_a_token_that_occurs_twice_gets_its_position():
    ax = head_lines(torch.eye(3), queries=["the", "dog", "the"], keys="abb")
    assert {"the 0", "dog", "the 2", "a", "b 1", "b 2"} < {text.get_text() for text in ax.texts}
    assert "1.00, from query 'the 0' to key 'a'" in ax.description


# query_products


@pytest.mark.parametrize("L, S, d_k, query", [(2, 3, 4, 0), (5, 1, 16, 0), (3, 5, 8, 2)])
def test_a_query_shows_the_products_with_all_keys_their_sums_and_the_weights(L, S, d_k, query):
    q, k, weights = random_head(L, S, d_k)
    queries, keys = [f"q{i}" for i in range(L)], [f"k{j}" for j in range(S)]
    ax = query_products(q, k, weights, query, queries=queries, keys=keys)
    products, scores = q[query] * k, q[query] @ k.mT / d_k**0.5
    (image,) = ax.images
    np.testing.assert_allclose(image.get_array(), products, rtol=1e-6)
    low, high = image.get_clim()
    assert (
        -low == high == pytest.approx(products.abs().max()) and image.get_cmap().name == DIVERGING
    )
    assert [label.get_text() for label in ax.get_yticklabels()] == keys
    left, middle, right = panels(ax)
    for panel, values in ((middle, scores), (right, weights[query])):
        np.testing.assert_allclose([bar.get_width() for bar in panel.patches], values, rtol=1e-4)
        rows = [bar.get_y() + bar.get_height() / 2 for bar in panel.patches]
        assert rows == pytest.approx(range(S))  # beside the products of the same key
        assert panel.get_ylim() == ax.get_ylim() == (S - 0.5, -0.5)
    titles = f"q{query}: q × k", f"sum / √{d_k}", "softmax"
    assert tuple(panel.get_title() for panel in panels(ax)) == titles
    assert [panel.get_xlabel() for panel in panels(ax)] == ["feature", "score", "weight"]
    assert ax is left and ax.get_ylabel() == "key" and right.get_xlim() == (0, 1)
    j = int(weights[query].argmax())
    assert ax.description == (
        f'"q{query}" with each of {S} keys: {d_k} products; those with "k{j}" sum to '
        f"{products[j].sum():.2f}, divided by √{d_k}: {scores[j]:.2f}; "
        f"softmax over {S} keys: {weights[query, j]:.2f}, the largest, as shown"
    )
    (image,) = query_products(-q, k, attention(-q, k, k)[1], query).images
    assert image.get_clim() == (low, high)  # the same for products of the other sign
    query_products(q * 0, k, torch.full((L, S), 1 / S), query)  # no product at all


def test_a_query_refuses_weights_that_do_not_come_from_its_q_and_k():
    with pytest.raises(ValueError, match="weights must be softmax.*another head"):
        query_products(Q[0, 0], K[0, 1], WEIGHTS[0, 0], 0)
    q, k, weights = random_head(3, 5)
    for error, accepted in [(0.0009, True), (-0.0009, True), (0.0014, False), (torch.nan, False)]:
        changed = weights.clone()
        changed[1, 4] += error
        query_products(q, k, changed, 2)  # another query
        if accepted:
            query_products(q, k, changed, 1)
            continue
        got = f"for query 1 and key 4 that is {weights[1, 4]:.3f}, got {changed[1, 4]:.3f};"
        with pytest.raises(ValueError, match=re.escape(got)):
            query_products(q, k, changed, 1)


# errors, data


HEAD = random_head(2, 5)
BAD_SHAPE = r"weights must have shape \(L, S\)"


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: mosaic(WEIGHTS[0]), ValueError, r"weights must have shape \(layers, H, L, S\)"),
        (lambda: mosaic(WEIGHTS.tolist()), TypeError, "weights must be a torch.Tensor"),
        (lambda: mosaic(WEIGHTS > 0), TypeError, "weights must be floating point, got torch.bool"),
        (lambda: mosaic(torch.zeros(1, 1, 2, 0)), ValueError, "and at least one"),
        (lambda: head_lines(WEIGHTS[0]), ValueError, BAD_SHAPE),
        (lambda: head_lines(torch.eye(2), keys="abc"), ValueError, "keys must have 2 .* got 3"),
        (lambda: head_lines(torch.eye(2).long()), TypeError, "weights must be floating point"),
        (lambda: query_products(*HEAD, True), TypeError, "query must .* got bool"),
        (lambda: query_products(*HEAD, 1.0), TypeError, "query must be an int"),
        (lambda: query_products(*HEAD, 2), ValueError, "query must be from 0 to 1"),
        (lambda: query_products(*HEAD, -1), ValueError, "from 0 to 1, got -1"),
        (lambda: query_products(*HEAD, 0, queries="abc"), ValueError, "queries must have 2"),
        (lambda: query_products(HEAD[0], HEAD[1][:4], HEAD[2], 0), ValueError, BAD_SHAPE),
    ],
)
def test_wrong_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("draw", [mosaic, lambda weights: head_lines(weights[0, 0])])
@pytest.mark.parametrize("bad", [torch.nan, -0.01, 1.01, torch.inf])
def test_an_entry_that_is_no_weight_is_refused_but_not_a_rounding_error_above_one(draw, bad):
    weights = torch.full((1, 1, 2, 3), 1.0009)
    draw(weights)
    weights[0, 0, 1, 2] = bad
    with pytest.raises(ValueError, match="weights must be from 0 to 1"):
        draw(weights)


def test_the_example_is_what_attention_gives_and_what_lesson_08_reads():
    assert WEIGHTS.shape == (12, 12, 9, 9) and Q.shape == K.shape == (12, 12, 9, 16)
    torch.testing.assert_close(WEIGHTS, attention(Q, K, K)[1])
    assert torch.equal(example()[3], WEIGHTS)
    example()[0].clear()
    assert example()[0] == TOKENS  # a new list each time
    it, dog = TOKENS.index("it"), TOKENS.index("dog")
    assert 0.8 < WEIGHTS[11, 0, it, dog] == WEIGHTS[11, 0].max()
