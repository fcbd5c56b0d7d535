"""The three views: what they draw, that they check themselves, their size, and their words."""

import base64
import io
import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch
from PIL import Image

from course_utils.attention import attention, causal_mask
from course_utils.views import SHADES, example, head_lines, mosaic, pair_products, tile

TOKENS, Q, K, WEIGHTS = example()


def drawn(picture):
    """Parse the SVG, which must be well-formed, and return its root."""
    return ET.fromstring(picture.svg)


def shades(picture):
    """Return the colour numbers of a mosaic's image and its palette."""
    data = re.search(r"base64,([^\"]+)", picture.svg)[1]
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    return np.asarray(image), np.asarray(image.getpalette()).reshape(-1, 3)


def titles(picture, tag):
    return [each.find("title").text for each in drawn(picture).iter(tag) if len(each)]


VIEWS = {
    "mosaic": lambda: mosaic(WEIGHTS),
    "lines": lambda: head_lines(WEIGHTS[1, 2], queries=TOKENS, keys=TOKENS),
    "pair": lambda: pair_products(Q[1, 2], K[1, 2], WEIGHTS[1, 2], 3, 4),
}


@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_a_view_names_and_describes_itself_and_repeats_to_the_byte(make):
    picture, root = make(), drawn(make())
    assert root.get("role") == "img"
    assert root.find("desc").text == picture.description
    assert root.get("aria-label") == f"{root.find('title').text}: {picture.description}"
    assert re.search(r"\d", picture.description)
    assert make() == picture
    bundle = picture._repr_mimebundle_()
    assert bundle["text/plain"] == picture.description
    assert bundle["text/html"].startswith("<svg") and "<p><small>Picture: " in bundle["text/html"]


@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_a_view_runs_nothing_and_fetches_nothing(make):
    html = make()._repr_mimebundle_()["text/html"]
    assert "<script" not in html and "http" not in html and "url(" not in html
    assert all(link.startswith("data:") for link in re.findall(r'(?:href|src)="([^"]*)', html))


@pytest.mark.parametrize("size", [(6, 12, 20, 20), (12, 12, 64, 64)])
def test_three_views_take_a_tenth_of_the_weights_written_out(size):
    # BertViz's page for one view holds the weights as JSON, twice over. See benchmarks/.
    layers, heads, L, _ = size
    q, k = torch.randn(2, layers, heads, L, 64)
    weights = attention(q, k, k)[1]
    head = weights[0, 0]
    views = mosaic(weights), head_lines(head), pair_products(q[0, 0], k[0, 0], head, 0, 1)
    ours = sum(len(each._repr_mimebundle_()["text/html"].encode()) for each in views)
    assert 10 * ours <= len(json.dumps(weights.tolist()))


def test_the_mosaic_shows_every_weight_of_every_head_in_its_tile():
    rng = torch.Generator().manual_seed(0)
    weights = torch.randn(2, 3, 4, 5, generator=rng).mul(3).softmax(dim=-1)
    found, palette = shades(mosaic(weights))
    assert found.shape == (2 * 5, 3 * 6)
    for layer in range(2):
        for head in range(3):
            seen = found[layer * 5 : layer * 5 + 4, head * 6 : head * 6 + 5]
            expected = weights[layer, head].sqrt() * (SHADES - 1)
            np.testing.assert_allclose(seen, expected, atol=0.51)
    gaps = found[4::5], found[:, 5::6]
    assert all((gap == SHADES).all() for gap in gaps)
    assert palette[SHADES].tolist() == [255, 255, 255]
    assert np.isnan(tile(weights)).sum() == found.size - weights.numel()


def test_the_mosaic_labels_layers_and_heads_and_names_the_sharpest():
    weights = torch.full((2, 3, 4, 4), 0.25)
    weights[1, 2] = torch.eye(4)
    weights[0, 1] = torch.full((4, 4), 0.1)  # no weights that a model gives, and the flattest
    picture = mosaic(weights)
    texts = [each.text for each in drawn(picture).iter("text")]
    assert texts == ["head", "0", "1", "2", "layer 0", "layer 1"]
    assert "1.00 in the sharpest head (layer 1, head 2)" in picture.description
    assert "0.10 in the flattest (layer 0, head 1)" in picture.description


def test_lines_join_the_right_tokens_where_a_weight_is_over_twice_its_share():
    weights = torch.tensor([[0.1, 0.9, 0.0, 0.0], [0.3, 0.3, 0.2, 0.2], [0.0, 0.0, 0.4, 0.6]])
    picture = head_lines(weights, queries="abc", keys="wxyz")
    assert titles(picture, "path") == ["a → x 0.90", "c → z 0.60"]
    assert picture.description == (
        "2 of 12 weights are over 0.50 and drawn; the largest is a→x 0.90"
    )
    paths = {each.find("title").text[0]: each for each in drawn(picture).iter("path")}
    texts = {each.text: float(each.get("y")) for each in drawn(picture).iter("text")}
    for query, key in ["ax", "cz"]:
        start, end = re.findall(r"[ML](\d+) (\d+)", paths[query].get("d"))
        assert (float(start[1]) + 4, float(end[1]) + 4) == (texts[query], texts[key])
        assert float(start[0]) < float(end[0])
    assert (paths["a"].get("opacity"), paths["c"].get("opacity")) == ("0.90", "0.60")


def test_lines_of_one_query_alone():
    picture = head_lines(torch.eye(3), query=1)
    assert titles(picture, "path") == ["1 → 1 1.00"]
    assert picture.description == "1 of 3 weights are over 0.67 and drawn; the largest is 1→1 1.00"


def test_an_even_head_has_no_lines_and_says_so():
    picture = head_lines(torch.full((2, 4), 0.25))
    assert titles(picture, "path") == []
    assert picture.description.startswith("0 of 8 weights")


def test_tokens_cannot_break_out_of_the_picture():
    evil = ['<script>"', "a & b"]
    given = {"queries": evil, "keys": evil}
    for picture in (
        head_lines(torch.eye(3), queries=[*evil, "c"], keys=[*evil, "c"]),
        pair_products(torch.zeros(2, 3), torch.zeros(2, 3), torch.full((2, 2), 0.5), 0, 1, **given),
    ):
        assert "<script" not in picture._repr_mimebundle_()["text/html"]
        assert "a & b" in [each.text for each in drawn(picture).iter("text")]


def test_a_pair_shows_its_products_their_sum_and_the_weight():
    q = torch.tensor([[1.0, 2.0, -1.0, 0.5], [0.0, 0.0, 0.0, 0.0]])
    k = torch.tensor([[2.0, 1.0, 1.0, -2.0], [1.0, 1.0, 1.0, 1.0], [0.0, 3.0, 0.0, 0.0]])
    weights = attention(q, k, k)[1]
    picture = pair_products(q, k, weights, 0, 2, keys="xyz")
    told = titles(picture, "rect")
    assert told[:12] == ("1.00 2.00 -1.00 0.50 0.00 3.00 0.00 0.00 0.00 6.00 -0.00 0.00".split())
    assert told[12:] == [f"{name} {w:.2f}" for name, w in zip("xyz", weights[0], strict=True)]
    marked = [each.get("opacity") for each in drawn(picture).iter("rect") if each.get("opacity")]
    assert marked == ["0.3", "0.3", "1"]  # of the three weights, that of the chosen key
    assert "sum 6.00, divided by √4: 3.00; softmax over 3 keys: " in picture.description
    assert f"{weights[0, 2]:.2f}, as shown" in picture.description


@pytest.mark.parametrize("at", [(0, 0, 0, 0), (11, 0, 6, 1), (5, 7, 2, 8)])
def test_every_pair_of_a_real_head_passes_its_own_check(at):
    layer, head, i, j = at
    picture = pair_products(Q[layer, head], K[layer, head], WEIGHTS[layer, head], i, j)
    assert f": {WEIGHTS[at]:.2f}, as shown" in picture.description


def test_a_pair_refuses_weights_that_do_not_come_from_its_q_and_k():
    with pytest.raises(ValueError, match="weights must be softmax.*of another head"):
        pair_products(Q[0, 0], K[0, 1], WEIGHTS[0, 0], 0, 0)
    with pytest.raises(ValueError, match="weights must be softmax"):
        pair_products(3 * Q[0, 0], K[0, 0], WEIGHTS[0, 0], 0, 0)


def test_a_pair_under_a_mask():
    masked = attention(Q[0, 0], K[0, 0], K[0, 0], causal_mask(len(TOKENS)))[1]
    with pytest.raises(ValueError, match="mask of another head"):
        pair_products(Q[0, 0], K[0, 0], masked, 3, 2)
    picture = pair_products(Q[0, 0], K[0, 0], masked, 3, 2, mask=causal_mask(len(TOKENS)))
    assert f": {masked[3, 2]:.2f}, as shown" in picture.description


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_views_take_weights_of_any_precision_that_need_gradients(dtype):
    weights = WEIGHTS.to(dtype).requires_grad_()
    mosaic(weights)
    head_lines(weights[0, 0])
    if dtype != torch.bfloat16:  # two digits, too few for the check
        pair_products(Q[0, 0].to(dtype), K[0, 0], weights[0, 0], 0, 1)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: mosaic(WEIGHTS[0]), ValueError, r"weights must have shape \(layers, H, L, S\)"),
        (lambda: mosaic(WEIGHTS.tolist()), TypeError, "weights must be a torch.Tensor"),
        (lambda: mosaic(WEIGHTS > 0), TypeError, "weights must be floating point, got torch.bool"),
        (lambda: mosaic(WEIGHTS - 1), ValueError, "weights must be from 0 to 1"),
        (lambda: mosaic(WEIGHTS * torch.nan), ValueError, "weights must be from 0 to 1"),
        (lambda: head_lines(WEIGHTS[0]), ValueError, r"weights must have shape \(L, S\)"),
        (lambda: head_lines(WEIGHTS[0, 0], keys="ab"), ValueError, "keys must have 9 .* got 2"),
        (lambda: head_lines(WEIGHTS[0, 0], query=9), ValueError, "query must be from 0 to 8"),
        (lambda: head_lines(WEIGHTS[0, 0], query=1.0), TypeError, "query must be an int"),
        (
            lambda: pair_products(Q[0, 0], K[0, 0], WEIGHTS[0, 0], 0, -1),
            ValueError,
            "key must be from 0 to 8, got -1",
        ),
        (
            lambda: pair_products(Q[0, 0], K[0, 0][:4], WEIGHTS[0, 0], 0, 0),
            ValueError,
            r"weights must have shape \(L, S\) with L = 9, S = 4",
        ),
    ],
)
def test_wrong_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_the_example_is_what_attention_makes_of_its_q_and_k_and_repeats():
    assert WEIGHTS.shape == (12, 12, 9, 9) and Q.shape == K.shape == (12, 12, 9, 16)
    torch.testing.assert_close(WEIGHTS, attention(Q, K, K)[1])
    assert torch.equal(example()[3], WEIGHTS)
