"""The three views: what they draw, that they check themselves, and their words."""

import re

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb, to_rgba

from course_utils.attention import attention, causal_mask
from course_utils.explorers import head_explorer, views_explorer
from course_utils.figures import heatmap, plain
from course_utils.views import (
    GAP,
    example,
    head_lines,
    mosaic,
    query_products,
    told_apart,
    without_first,
)

TOKENS, Q, K, WEIGHTS = example()
EVIL = ['<script>"', "$\\foo$ _^\\", "\0 \x1b", "\ud800", "a\nb", "\N{DOG FACE}'", 999 * "x"]


def random_head(L, S, d_k=4, seed=0):
    """Return q (L, d_k), k (S, d_k) and the weights (L, S) they make."""
    rng = torch.Generator().manual_seed(seed)
    q, k = torch.randn(L, d_k, generator=rng), torch.randn(S, d_k, generator=rng)
    return q, k, attention(q, k, k)[1]


def random_heads(*shape):
    """Return weights (layers, H, L, S) with rows that sum to 1."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).mul(3).softmax(dim=-1)


def alphas(ax):
    """Return how opaque the lines of a head are, in their order."""
    return ax.collections[0].get_colors()[:, 3]


def texts(ax):
    """Return what stands where: {(x, y): text}."""
    return {text.get_position(): text.get_text() for text in ax.texts}


def three(ax):
    """Return the Axes of products, scores and weights of a query's view."""
    return [each for each in ax.figure.axes if each.get_label() != "<colorbar>"]


VIEWS = {
    "mosaic": lambda: mosaic(WEIGHTS),
    "wide mosaic": lambda: mosaic(random_heads(2, 5, 3, 9)),
    "high mosaic": lambda: mosaic(random_heads(5, 2, 9, 3)),
    "large mosaic": lambda: mosaic(random_heads(1, 1, 150, 150)),
    "one weight": lambda: mosaic(torch.ones(1, 1, 1, 1)),
    "lines": lambda: head_lines(WEIGHTS[1, 2], queries=TOKENS, keys=TOKENS),
    "many queries": lambda: head_lines(random_head(9, 2)[2]),
    "many keys": lambda: head_lines(random_head(2, 9)[2], hide_first=True),
    "query": lambda: query_products(Q[1, 2], K[1, 2], WEIGHTS[1, 2], 3),
    "many features": lambda: query_products(*random_head(5, 3, 128), 4),
}


@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_all_of_a_view_is_seen_and_it_describes_itself(make):
    ax = make()
    assert re.search(r"\d", ax.description) and make().description == ax.description
    ax.figure.canvas.draw()
    whole = ax.figure.get_tightbbox()  # what is stored, in inches
    assert 1 < whole.width < 25 and 0.2 < whole.height < 25


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (3, 2, 6, 4)])
def test_the_mosaic_shows_every_weight_of_every_head_in_its_tile_under_its_number(shape):
    layers, heads, L, S = shape
    weights = random_heads(*shape)
    ax = mosaic(weights)
    (image,) = ax.images
    cells = np.ma.filled(image.get_array(), np.nan)
    tall, wide = L + GAP, S + GAP
    assert cells.shape == (layers * tall, heads * wide)
    for layer in range(layers):
        for head in range(heads):
            seen = cells[layer * tall :, head * wide :][:L, :S]
            np.testing.assert_allclose(seen, weights[layer, head], rtol=1e-6)
    assert np.isnan(cells).sum() == cells.size - weights.numel()
    middles = (np.arange(layers) * tall + (L - 1) / 2, np.arange(heads) * wide + (S - 1) / 2)
    assert (ax.get_yticks().tolist(), ax.get_xticks().tolist()) == (*map(list, middles),)
    assert [text.get_text() for text in ax.get_yticklabels()] == [*map(str, range(layers))]
    assert [text.get_text() for text in ax.get_xticklabels()] == [*map(str, range(heads))]
    assert ax.get_ylim() == (layers * tall - 0.5, -0.5)  # the first layer is on top
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_aspect()) == ("head", "layer", 1)


def test_the_mosaics_shade_is_the_root_of_the_weight_and_its_bar_says_so():
    ax = mosaic(WEIGHTS)
    (image,) = ax.images
    assert image.norm([0, 0.04, 0.25, 1]).tolist() == pytest.approx([0, 0.2, 0.5, 1])
    light = image.cmap(np.linspace(0, 1, 64))[:, :3].sum(axis=1)
    assert (np.diff(light) > 0).all() and tuple(image.cmap(np.nan)) == to_rgba("white")
    (bar,) = [each for each in ax.figure.axes if each is not ax]
    assert "√weight" in bar.get_ylabel()


def test_the_mosaic_draws_on_the_axes_it_is_given():
    ax = mosaic(WEIGHTS).figure.add_axes((0, 0, 1, 1))
    before = len(ax.figure.axes)
    assert mosaic(WEIGHTS, title="twelve", ax=ax) is ax and len(ax.figure.axes) == before
    assert ax.get_title() == "twelve" and ax.description.startswith("twelve: 12 layers")


def test_the_mosaic_names_the_sharpest_and_the_flattest_head():
    weights = torch.full((2, 3, 4, 4), 0.25)
    weights[1, 2] = torch.eye(4)
    weights[0, 1] = torch.full((4, 4), 0.1)  # no weights that a model gives, and the flattest
    assert mosaic(weights).description == (
        "2 layers of 3 heads, each 4×4 weights; largest weight of a row, on average: 1.00 in the "
        "sharpest head (layer 1, head 2), 0.10 in the flattest (layer 0, head 1)"
    )


@pytest.mark.parametrize("L, S", [(3, 7), (7, 3), (1, 5), (4, 2), (3, 1)])
def test_each_weight_is_a_line_from_its_query_at_the_left_to_its_key_at_the_right(L, S):
    weights = random_head(L, S, seed=1)[2]
    queries, keys = [f"q{i}" for i in range(L)], [f"k{j}" for j in range(S)]
    ax = head_lines(weights, queries=queries, keys=keys)
    ends = np.array(ax.collections[0].get_segments())  # (L · S, 2, 2)
    expected = [[[0, i], [1, j]] for i in range(L) for j in range(S)]
    np.testing.assert_array_equal(ends, expected)
    np.testing.assert_allclose(alphas(ax), weights.flatten(), atol=1e-6)  # none is left out
    where = texts(ax)
    left, right = (sorted(y for x, y in where if (x > 0.5) == side and y >= 0) for side in (0, 1))
    assert left == [*range(L)] and right == [*range(S)]
    for (x, y), text in where.items():
        assert y < 0 or text == (keys if x > 1 else queries)[y]
    assert [where[place] for place in sorted(where) if place[1] < 0] == ["query", "key"]
    i, j = divmod(int(weights.argmax()), S)
    assert ax.description == (
        f"{L}×{S} weights as lines; the largest is q{i}→k{j} {weights[i, j]:.2f}"
    )


def test_a_token_that_occurs_twice_is_told_by_its_position():
    assert told_apart(["the", "dog", "the"]) == ["the 0", "dog", "the 2"]
    ax = head_lines(torch.eye(3), queries=["the", "dog", "the"], keys="abb")
    assert {"the 0", "the 2", "b 1", "b 2"} < set(texts(ax).values())
    assert "the 0→a 1.00" in ax.description


def test_a_first_key_that_takes_most_can_be_left_out():
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.15, 0.05]])
    rest = torch.tensor([[0, 0, 0], [0, 0.75, 0.25]])
    torch.testing.assert_close(without_first(weights), rest)
    ax = head_lines(weights, hide_first=True)
    np.testing.assert_allclose(alphas(ax), rest.flatten(), atol=1e-6)
    told = "2×3 weights as lines, without key 0, which takes 0.90 on average; the largest is 1→1"
    assert ax.description == f"{told} 0.75"
    assert without_first(torch.ones(2, 1)).tolist() == [[0], [0]]


def test_products_scores_and_weights_say_what_they_are():
    products, scores, shares = three(query_products(*random_head(3, 2, 16), 1, queries="abc"))
    titles = [ax.get_title() for ax in (products, scores, shares)]
    assert titles == ["b: q × k", "sum / √16", "softmax"]
    labels = [ax.get_xlabel() for ax in (products, scores, shares)]
    assert labels == ["feature", "score", "weight"]
    assert products.get_ylabel() == "key" and shares.get_xlim() == (0, 1)


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("token", EVIL)
def test_any_token_is_drawn_letter_by_letter(token):
    seen = plain(token.replace("\n", "\\n"))
    given = {"queries": ["b", token], "keys": [token, "c", "d"]}
    ax = head_lines(torch.eye(3)[:2], **given, title=token)
    ax.figure.canvas.draw()  # no formula, no letter that has no picture
    assert list(texts(ax).values()).count(seen) == 2
    ax = query_products(*random_head(2, 3), 1, **given)
    ax.figure.canvas.draw()
    assert ax.get_yticklabels()[0].get_text() == seen


def test_a_query_shows_the_products_of_all_keys_their_sums_and_the_weights():
    q = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 2.0, -1.0, 0.5]])
    k = torch.tensor([[2.0, 1.0, 1.0, -2.0], [1.0, 1.0, 1.0, 1.0], [0.0, -3.0, 0.0, 0.0]])
    weights = attention(q, k, k)[1]
    ax = query_products(q, k, weights, 1, queries="ab", keys="xyz")
    products, scores, shares = three(ax)
    assert products is ax
    (image,) = ax.images
    np.testing.assert_array_equal(image.get_array(), q[1] * k)
    assert image.get_clim() == (-6, 6) and image.get_cmap().name == "RdBu_r"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["x", "y", "z"]
    for each, values in ((scores, (q[1] * k).sum(-1) / 2), (shares, weights[1])):
        np.testing.assert_allclose([bar.get_width() for bar in each.patches], values, rtol=1e-5)
        heights = [bar.get_y() + bar.get_height() / 2 for bar in each.patches]
        assert heights == pytest.approx([0, 1, 2])  # beside the products of the same key
        assert each.get_ylim() == ax.get_ylim() == (2.5, -0.5)
    assert ax.description == (
        "b and each of 3 keys: 4 products; those with y sum to 2.50, divided by √4: 1.25; "
        f"softmax over 3 keys: {weights[1, 1]:.2f}, the largest, as shown"
    )


def test_products_of_zero_are_white():
    zeros = torch.zeros(2, 3)
    (image,) = query_products(zeros, zeros, torch.full((2, 2), 0.5), 0).images
    shade = image.cmap(image.norm(image.get_array()))[0, 0, :3]
    np.testing.assert_allclose(shade, to_rgb("white"), atol=0.05)


@pytest.mark.parametrize("at", [(0, 0, 0), (11, 0, 6), (5, 7, 2)])
def test_every_query_of_a_head_passes_its_own_check(at):
    layer, head, i = at
    ax = query_products(Q[layer, head], K[layer, head], WEIGHTS[layer, head], i)
    assert f": {WEIGHTS[at].max():.2f}, the largest, as shown" in ax.description


def test_a_query_refuses_weights_that_do_not_come_from_its_q_and_k():
    with pytest.raises(ValueError, match="weights must be softmax.*of another head"):
        query_products(Q[0, 0], K[0, 1], WEIGHTS[0, 0], 0)
    with pytest.raises(ValueError, match="weights must be softmax"):
        query_products(3 * Q[0, 0], K[0, 0], WEIGHTS[0, 0], 0)


def test_a_query_admits_a_thousandth_and_names_the_key_that_is_off():
    q, k, weights = random_head(3, 5)
    for off, key in [(0.0009, 2), (-0.0009, 4)]:
        shifted = weights.clone()
        shifted[1, key] += off
        query_products(q, k, shifted, 1)
        shifted[1, key] += 0.4 * off
        told = (
            f"for query 1 and key {key} that is {weights[1, key]:.3f}, got {shifted[1, key]:.3f};"
        )
        with pytest.raises(ValueError, match=re.escape(told)):
            query_products(q, k, shifted, 1)
        query_products(q, k, shifted, 2)  # of another query, that one is not shown
    shifted[1, 3] = torch.nan
    with pytest.raises(ValueError, match="for query 1 and key 3 that is .*, got nan"):
        query_products(q, k, shifted, 1)


def test_a_query_under_a_mask():
    mask = causal_mask(len(TOKENS))
    masked = attention(Q[0, 0], K[0, 0], K[0, 0], mask)[1]
    with pytest.raises(ValueError, match="mask of another head"):
        query_products(Q[0, 0], K[0, 0], masked, 3)
    ax = query_products(Q[0, 0], K[0, 0], masked, 3, mask=mask)
    assert f": {masked[3].max():.2f}, the largest" in ax.description
    bars = [bar.get_width() for bar in three(ax)[2].patches]
    np.testing.assert_allclose(bars, masked[3], atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_views_take_weights_of_any_precision_that_need_gradients(dtype):
    weights = WEIGHTS.to(dtype).requires_grad_()
    mosaic(weights)
    head_lines(weights[0, 0])
    if dtype != torch.bfloat16:  # two digits, too few for the check
        query_products(Q[0, 0].to(dtype), K[0, 0], weights[0, 0], 0)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: mosaic(WEIGHTS[0]), ValueError, r"weights must have shape \(layers, H, L, S\)"),
        (lambda: mosaic(WEIGHTS.tolist()), TypeError, "weights must be a torch.Tensor"),
        (lambda: mosaic(WEIGHTS > 0), TypeError, "weights must be floating point, got torch.bool"),
        (lambda: mosaic(WEIGHTS - 1), ValueError, "weights must be from 0 to 1"),
        (lambda: head_lines(WEIGHTS[0]), ValueError, r"weights must have shape \(L, S\)"),
        (lambda: head_lines(WEIGHTS[0, 0], keys="ab"), ValueError, "keys must have 9 .* got 2"),
        (lambda: head_lines(torch.eye(2).long()), TypeError, "weights must be floating point"),
        (lambda: query_products(*random_head(2, 5), True), TypeError, "query must .* got bool"),
        (lambda: query_products(*random_head(2, 5), 1.0), TypeError, "query must be an int"),
        (lambda: query_products(*random_head(2, 5), 2), ValueError, "query must be from 0 to 1"),
        (lambda: query_products(*random_head(2, 5), -1), ValueError, "from 0 to 1, got -1"),
        (
            lambda: query_products(*random_head(2, 5), 0, mask=torch.ones(2, 5)),
            TypeError,
            "mask must be a boolean torch.Tensor",
        ),
        (
            lambda: query_products(*random_head(2, 5), 0, queries="abc"),
            ValueError,
            "queries must have 2 entries",
        ),
        (
            lambda: query_products(Q[0, 0], K[0, 0][:4], WEIGHTS[0, 0], 0),
            ValueError,
            r"weights must have shape \(L, S\) with L = 9, S = 4",
        ),
    ],
)
def test_wrong_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("draw", [mosaic, lambda weights: head_lines(weights[0, 0])])
def test_one_entry_that_is_no_weight_is_refused_and_a_rounding_over_one_is_not(draw):
    for bad in (torch.nan, -0.01, 1.01, torch.inf):
        weights = torch.full((1, 1, 2, 3), 1.0009)
        draw(weights)
        weights[0, 0, 1, 2] = bad
        with pytest.raises(ValueError, match="weights must be from 0 to 1"):
            draw(weights)
    with pytest.raises(ValueError, match="and at least one"):
        draw(torch.zeros(1, 1, 2, 0))


def test_the_example_is_what_attention_makes_of_its_q_and_k_and_repeats():
    assert WEIGHTS.shape == (12, 12, 9, 9) and Q.shape == K.shape == (12, 12, 9, 16)
    torch.testing.assert_close(WEIGHTS, attention(Q, K, K)[1])
    assert torch.equal(example()[3], WEIGHTS)
    assert TOKENS == "the dog left the park because it was tired".split()
    example()[0].clear()
    assert example()[0] == TOKENS  # a list of its own
    assert 0.9 < Q.std() < 1.1 and 0.9 < K.std() < 1.1  # as the features they are made of
    it, dog = TOKENS.index("it"), TOKENS.index("dog")
    assert 0.8 < WEIGHTS[11, 0, it, dog] == WEIGHTS[11, 0].max()  # what lesson 08 reads


class Elsewhere(torch.Tensor):
    """A tensor that NumPy cannot read before it is moved, as one on a GPU."""

    def cpu(self):
        return self.as_subclass(torch.Tensor)

    def numpy(self):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def __format__(self, spec):
        return format(self.item(), spec)


def elsewhere(*tensors):
    return [tensor.as_subclass(Elsewhere) for tensor in tensors]


@pytest.mark.parametrize(
    "draw",
    [
        lambda q, k, weights, mask: mosaic(weights[None, None]),
        lambda q, k, weights, mask: head_lines(weights),
        lambda q, k, weights, mask: head_lines(weights, hide_first=True),
        lambda q, k, weights, mask: query_products(q, k, weights, 2, mask=mask),
        lambda q, k, weights, mask: heatmap(weights),
        lambda q, k, weights, mask: head_explorer(weights[None]),
        lambda q, k, weights, mask: views_explorer(
            TOKENS[:4], *(each[None, None] for each in (q, k, attention(q, k, k)[1]))
        ),
    ],
)
def test_tensors_on_a_gpu_are_drawn_too(draw):
    q, k, _ = random_head(4, 4)
    mask = causal_mask(4)
    draw(*elsewhere(q, k, attention(q, k, k, mask)[1], mask))
