"""The three views: what they draw, that they check themselves, their size, and their words."""

import base64
import html
import io
import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Normalize, to_hex, to_rgb
from PIL import Image

from course_utils import figures
from course_utils.attention import attention, causal_mask
from course_utils.figures import plain, printable
from course_utils.views import SHADES, example, head_lines, mosaic, pair_products, tile

TOKENS, Q, K, WEIGHTS = example()
EVIL = [
    '<script>"',
    "a & b",
    "$\\foo$ _^\\",
    "\0 \x1b",
    "\ud800",
    "a\nb",
    "\N{DOG FACE}'",
    999 * "x",
]


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


def numbers(element, *names):
    return [float(element.get(name)) for name in names]


def texts(picture):
    """Return what stands where: {text: (x, y)}; no text may stand in two places."""
    found = [(each.text, tuple(numbers(each, "x", "y"))) for each in drawn(picture).iter("text")]
    assert len(dict(found)) == len(found)
    return dict(found)


def random_head(L, S, d_k=4, seed=0):
    """Return q (L, d_k), k (S, d_k) and the weights (L, S) they make."""
    rng = torch.Generator().manual_seed(seed)
    q, k = torch.randn(L, d_k, generator=rng), torch.randn(S, d_k, generator=rng)
    return q, k, attention(q, k, k)[1]


def random_heads(*shape):
    """Return weights (layers, H, L, S) with rows that sum to 1."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).mul(3).softmax(dim=-1)


VIEWS = {
    "mosaic": lambda: mosaic(WEIGHTS),
    "wide mosaic": lambda: mosaic(random_heads(2, 5, 3, 9)),
    "high mosaic": lambda: mosaic(random_heads(5, 2, 9, 3)),
    "large mosaic": lambda: mosaic(random_heads(1, 1, 150, 150)),
    "lines": lambda: head_lines(WEIGHTS[1, 2], queries=TOKENS, keys=TOKENS),
    "many queries": lambda: head_lines(random_head(9, 2)[2]),
    "many keys": lambda: head_lines(random_head(2, 9)[2]),
    "pair": lambda: pair_products(Q[1, 2], K[1, 2], WEIGHTS[1, 2], 3, 4),
    "wide pair": lambda: pair_products(*random_head(2, 60, 2), 1, 59),
    "pair of many features": lambda: pair_products(*random_head(5, 3, 128), 4, 2),
}


@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_a_view_names_and_describes_itself_and_repeats_to_the_byte(make):
    picture, root = make(), drawn(make())
    assert root.get("role") == "img"
    assert root.find("desc").text == picture.description
    assert root.get("aria-label") == f"{root.find('title').text}: {picture.description}"
    assert re.search(r"\d", picture.description)
    assert make() == picture


@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_a_notebook_shows_it_as_png_with_its_words(make, monkeypatch):
    shown = []
    monkeypatch.setattr(figures, "display", lambda item, **how: shown.append(item))
    make()._ipython_display_()
    picture, words = shown
    assert set(picture) == {"image/png", "text/plain"}  # no SVG: it is taken out if not trusted
    assert picture["text/plain"] == make().description
    assert html.escape(make().description) in words.data


def blended(colour, opacity):
    """Return the RGB of a colour over white, from 0 to 255."""
    return 255 * (1 - opacity * (1 - np.array(to_rgb(colour))))


@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_the_png_shows_what_the_svg_says_where_it_says_it(make):
    picture, root = make(), drawn(make())
    figure = picture.figure()
    figure.set_dpi(figures.PER_INCH)  # a pixel for each of the SVG's
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3].astype(int)
    width, height = map(int, root.get("viewBox").split()[2:])
    assert abs(np.subtract(pixels.shape, (height, width, 3))).max() <= 1
    for cell in root.iter("rect"):
        x, y, wide, tall = numbers(cell, "x", "y", "width", "height")
        if tall > 3:
            wanted = blended(cell.get("fill"), float(cell.get("opacity", 1)))
            there = pixels[int(y + tall / 2), int(x + wide / 2)]
            np.testing.assert_allclose(there, wanted, atol=3)
    for image in root.iter("image"):
        x, y, wide, tall = numbers(image, "x", "y", "width", "height")
        found, palette = shades(picture)
        scale = wide / found.shape[1]
        for i, j in [(0, 0), (1, 1), (found.shape[0] - 2, found.shape[1] - 2), (-1, -1)]:
            i, j = i % found.shape[0], j % found.shape[1]
            if scale > 3:
                there = pixels[int(y + (i + 0.5) * scale), int(x + (j + 0.5) * scale)]
                np.testing.assert_allclose(there, palette[found[i, j]], atol=3)
    (ax,) = figure.axes
    lines = [(*line.get_xydata().flatten(), line.get_alpha()) for line in ax.lines]
    told = [
        (*map(float, re.findall(r"[\d.]+", each.get("d"))), float(each.get("opacity")))
        for each in root.iter("path")
    ]
    assert lines == told
    placed = {text.get_text(): (*text.get_position(), text.get_ha()) for text in ax.texts}
    sides = {"start": "left", "middle": "center", "end": "right"}
    assert placed == {
        plain(each.text): (*numbers(each, "x", "y"), sides[each.get("text-anchor")])
        for each in root.iter("text")
    }


@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_all_of_a_view_is_inside_its_picture_which_shrinks_with_the_page(make):
    root = drawn(make())
    assert root.get("viewBox").startswith("0 0 ")
    width, height = map(float, root.get("viewBox").split()[2:])
    assert float(root.get("width")) == width
    assert root.get("style") == "max-width:100%;height:auto;background:white"
    places = [numbers(each, "x", "y") for each in root.iter() if each.get("x")]
    for each in [*root.iter("rect"), *root.iter("image")]:
        x, y, wide, tall = numbers(each, "x", "y", "width", "height")
        assert wide > 0 and tall >= 0
        places.append((x + wide, y + tall))
    for path in root.iter("path"):
        places += [map(float, place) for place in re.findall(r"([\d.]+) ([\d.]+)", path.get("d"))]
    assert all(0 <= x <= width and 0 <= y <= height for x, y in places)


@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_a_view_runs_nothing_and_fetches_nothing(make):
    svg = make().svg
    assert "<script" not in svg and "http" not in svg and "url(" not in svg
    assert all(link.startswith("data:") for link in re.findall(r'(?:href|src)="([^"]*)', svg))


@pytest.mark.parametrize("size", [(6, 12, 20, 20), (12, 12, 64, 64)])
def test_three_views_take_a_tenth_of_the_weights_written_out(size):
    # BertViz's page for one view holds the weights as JSON, twice over. See benchmarks/.
    layers, heads, L, _ = size
    q, k = torch.randn(2, layers, heads, L, 64)
    weights = attention(q, k, k)[1]
    head = weights[0, 0]
    views = mosaic(weights), head_lines(head), pair_products(q[0, 0], k[0, 0], head, 0, 1)
    ours = sum(len(each.svg.encode()) for each in views)
    assert 10 * ours <= len(json.dumps(weights.tolist()))


def test_the_mosaic_shows_every_weight_of_every_head_in_its_tile():
    rng = torch.Generator().manual_seed(0)
    weights = torch.randn(2, 3, 4, 5, generator=rng).mul(3).softmax(dim=-1)
    found, palette = shades(mosaic(weights))
    assert found.shape == (2 * 5, 3 * 6)
    light = palette[:SHADES].sum(axis=1)
    assert (np.diff(light) > 0).all() and palette[0].max() < 100 and palette[SHADES - 1].min() < 80
    for layer in range(2):
        for head in range(3):
            seen = found[layer * 5 : layer * 5 + 4, head * 6 : head * 6 + 5]
            expected = weights[layer, head].sqrt() * (SHADES - 1)
            np.testing.assert_allclose(seen, expected, atol=0.51)
            np.testing.assert_allclose((seen / (SHADES - 1)) ** 2, weights[layer, head], atol=0.02)
    gaps = found[4::5], found[:, 5::6]
    assert all((gap == SHADES).all() for gap in gaps)
    assert palette[SHADES].tolist() == [255, 255, 255]
    assert np.isnan(tile(weights)).sum() == found.size - weights.numel()


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (3, 2, 6, 4)])
def test_the_mosaic_labels_each_layer_and_head_at_its_tiles(shape):
    layers, heads, L, S = shape
    picture = mosaic(random_heads(*shape))
    image = drawn(picture).find("image")
    assert "image-rendering:pixelated" in image.get("style")  # sharp edges, no blur
    left, top, width, height = numbers(image, "x", "y", "width", "height")
    rows, columns = shades(picture)[0].shape
    assert width / columns == height / rows  # a weight is a square
    assert 50 <= max(L, S) * width / columns <= 80
    where = texts(picture)
    assert list(where) == ["head", *map(str, range(heads)), *(f"layer {n}" for n in range(layers))]
    for h in range(heads):
        x, y = where[str(h)]
        assert h * (S + 1) < (x - left) / width * columns < h * (S + 1) + S and y < top
    for n in range(layers):
        x, y = where[f"layer {n}"]
        assert n * (L + 1) < (y - top) / height * rows < n * (L + 1) + L and x < left
    sides = {each.text: each.get("text-anchor") for each in drawn(picture).iter("text")}
    assert sides["layer 0"] == "end" and sides["0"] == sides["head"] == "middle"
    assert where["head"][1] < where["0"][1]


def test_the_mosaic_names_the_sharpest_and_the_flattest_head():
    weights = torch.full((2, 3, 4, 4), 0.25)
    weights[1, 2] = torch.eye(4)
    weights[0, 1] = torch.full((4, 4), 0.1)  # no weights that a model gives, and the flattest
    assert mosaic(weights).description == (
        "2 layers of 3 heads, each 4×4 weights; largest weight of a row, on average: 1.00 in the "
        "sharpest head (layer 1, head 2), 0.10 in the flattest (layer 0, head 1)"
    )
    weights = random_heads(3, 2, 4, 5)
    peaks = {
        (layer, head): sum(max(row) for row in weights[layer, head].tolist()) / 4
        for layer in range(3)
        for head in range(2)
    }
    for word, pick in (("sharpest head", max), ("flattest", min)):
        layer, head = at = pick(peaks, key=peaks.get)
        told = f"{peaks[at]:.2f} in the {word} (layer {layer}, head {head})"
        assert told in mosaic(weights).description
    assert "each 4×5 weights" in mosaic(weights).description


def test_the_mosaic_takes_weights_a_rounding_over_one():
    weights = torch.zeros(1, 1, 2, 3)
    weights[..., 0] = 1.0009
    assert shades(mosaic(weights))[0][:2, 0].tolist() == [SHADES - 1] * 2  # not the gaps' white


def test_lines_join_the_right_tokens_where_a_weight_is_over_twice_its_share():
    weights = torch.tensor([[0.1, 0.9, 0.0, 0.0], [0.3, 0.3, 0.2, 0.2], [0.0, 0.0, 0.4, 0.6]])
    picture = head_lines(weights, queries="abc", keys="wxyz")
    assert titles(picture, "path") == ["a → x 0.90", "c → z 0.60"]
    assert picture.description == (
        "2 of 12 weights are over 0.50 and drawn; the largest is a→x 0.90"
    )
    paths = {each.find("title").text[0]: each for each in drawn(picture).iter("path")}
    assert (paths["a"].get("opacity"), paths["c"].get("opacity")) == ("0.90", "0.60")


@pytest.mark.parametrize("L, S", [(3, 7), (7, 3), (1, 5)])
def test_each_line_goes_from_its_query_at_the_left_to_its_key_at_the_right(L, S):
    weights = random_head(L, S, seed=1)[2] ** 3
    weights /= weights.sum(dim=-1, keepdim=True)
    queries, keys = [f"q{i}" for i in range(L)], [f"k{j}" for j in range(S)]
    picture = head_lines(weights, queries=queries, keys=keys)
    told = [f"q{i} → k{j} {weights[i, j]:.2f}" for i in range(L) for j in range(S)
            if weights[i, j] > 2 / S]  # fmt: skip
    assert told and titles(picture, "path") == told
    where = texts(picture)
    for path in drawn(picture).iter("path"):
        query, _, key, weight = path.find("title").text.split()
        found = re.fullmatch(r"M(\d+) (\d+)L(\d+) (\d+)", path.get("d")).groups()
        x1, y1, x2, y2 = map(float, found)
        assert where[query][0] < x1 < x2 < where[key][0]
        assert (y1 + 4, y2 + 4) == (where[query][1], where[key][1])
        assert path.get("opacity") == weight
    for side, names, align in (("query", queries, "end"), ("key", keys, "start")):
        found = [where[name] for name in names]
        assert {x for x, _ in found} == {where[side][0]} and where[side][1] < found[0][1]
        assert all(
            below - above >= 16 for (_, above), (_, below) in zip(found, found[1:], strict=False)
        )
        anchors = {each.text: each.get("text-anchor") for each in drawn(picture).iter("text")}
        assert {anchors[name] for name in [side, *names]} == {align}  # away from the lines
    (group,) = drawn(picture).iter("g")
    assert group.get("stroke") == "#1f77b4" and group.get("fill") == "none"
    assert len(group) == len(told) and 1 < float(group.get("stroke-width")) < 10
    i, j = divmod(int(weights.argmax()), S)
    assert picture.description.endswith(f"; the largest is q{i}→k{j} {weights[i, j]:.2f}")


@pytest.mark.parametrize("query", [0, 1, np.int64(2)])
def test_lines_of_one_query_alone(query):
    weights = torch.eye(3)[[2, 0, 1]]
    picture = head_lines(weights, query=query)
    key = [2, 0, 1][query]
    assert titles(picture, "path") == [f"{query} → {key} 1.00"]
    assert picture.description == (
        f"1 of 3 weights are over 0.67 and drawn; the largest is {query}→{key} 1.00"
    )


def test_of_equal_weights_the_first_is_named_and_twice_an_equal_share_is_no_line():
    picture = head_lines(torch.tensor([[0.0, 0.5, 0.0, 0.5], [0.5, 0.5, 0.0, 0.0]]))
    assert titles(picture, "path") == []
    assert picture.description.endswith("the largest is 0→1 0.50")


def test_lines_carry_the_title_they_are_given():
    assert drawn(head_lines(torch.eye(2))).find("title").text == "One head as lines"
    assert drawn(head_lines(torch.eye(2), title="Head 3")).find("title").text == "Head 3"


def test_an_even_head_has_no_lines_and_says_so():
    picture = head_lines(torch.full((2, 4), 0.25))
    assert titles(picture, "path") == []
    assert picture.description.startswith("0 of 8 weights")


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("token", EVIL)
def test_any_token_is_seen_and_none_breaks_out_of_the_picture(token):
    seen = printable(token).replace("\n", "\\n")
    given = {"queries": ["b", token], "keys": [token, "c", "d"]}
    for picture in (
        head_lines(torch.eye(3)[:2], **given),
        head_lines(torch.tensor([[0.5, 0.3, 0.2], [0, 1, 0]]), **given, title=token),
        pair_products(*random_head(2, 3), 1, 0, **given),
    ):
        page = ET.fromstring(picture.svg.encode())
        picture.figure().savefig(io.BytesIO())  # no formula, no letter that has no picture
        assert seen in [each.text for each in page.iter("text")]
        assert any(seen in (each.text or "") for each in page.iter("title"))
        assert not [each for each in page.iter() if each.tag == "script"]
        assert seen in picture.description


def test_a_pair_shows_its_products_their_sum_and_the_weight():
    q = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 2.0, -1.0, 0.5]])
    k = torch.tensor([[2.0, 1.0, 1.0, -2.0], [1.0, 1.0, 1.0, 1.0], [0.0, 3.0, 0.0, 0.0]])
    weights = attention(q, k, k)[1]
    picture = pair_products(q, k, weights, 1, 2, queries="ab", keys="xyz")
    told = titles(picture, "rect")
    assert told[:12] == ("1.00 2.00 -1.00 0.50 0.00 3.00 0.00 0.00 0.00 6.00 -0.00 0.00".split())
    assert told[12:] == [f"{name} {w:.2f}" for name, w in zip("xyz", weights[1], strict=True)]
    marked = [each.get("opacity") for each in drawn(picture).iter("rect") if each.get("opacity")]
    assert marked == ["0.3", "0.3", "1"]  # of the three weights, that of the chosen key
    sums = f"sum 6.00, divided by √4: 3.00; softmax over 3 keys: {weights[1, 2]:.2f}"
    assert picture.description == (
        f"b→z: 4 products, the largest in size number 1 with 6.00; {sums}, as shown"
    )
    assert sums in texts(picture)
    picture = pair_products(-q, k, attention(-q, k, k)[1], 1, 2)
    assert (
        "1→2: 4 products, the largest in size number 1 with -6.00; sum -6.00" in picture.description
    )


@pytest.mark.parametrize(
    "L, S, d_k, query, key", [(2, 5, 3, 1, 4), (6, 3, 30, 5, 0), (1, 2, 1, 0, 1)]
)
def test_a_pair_paints_each_number_above_the_product_it_goes_into(L, S, d_k, query, key):
    q, k, weights = random_head(L, S, d_k)
    picture = pair_products(q, k, weights, query, key)
    cells = list(drawn(picture).iter("rect"))[: 3 * d_k]
    where, below = texts(picture), 0
    for n, (name, values) in enumerate(
        {"q": q[query], "k": k[key], "q × k": q[query] * k[key]}.items()
    ):
        strip = cells[n * d_k : (n + 1) * d_k]
        largest = values.abs().max().item()
        for cell, above, value in zip(strip, cells, values.tolist(), strict=False):
            assert cell.find("title").text == f"{value:.2f}"
            expected = colormaps["RdBu_r"](Normalize(-largest, largest)(value))
            close = [int(cell.get("fill")[i : i + 2], 16) - int(to_hex(expected)[i : i + 2], 16)
                     for i in (1, 3, 5)]  # fmt: skip
            assert max(map(abs, close)) <= 6  # one step of the map, which has 256
            assert numbers(cell, "x", "width") == numbers(above, "x", "width")
        x, y, wide, tall = np.transpose([numbers(c, "x", "y", "width", "height") for c in strip])
        assert (np.diff(x) == wide[0]).all() and len(set(y)) == len(set(tall)) == 1
        assert y[0] >= below and y[0] < where[name][1] < y[0] + tall[0] and where[name][0] < x[0]
        assert 6 <= wide[0] <= 26
        below = y[0] + tall[0]


def test_a_pair_paints_zeros_white():
    zeros = torch.zeros(2, 3)
    cells = drawn(pair_products(zeros, zeros, torch.full((2, 2), 0.5), 0, 1)).iter("rect")
    white = to_hex(colormaps["RdBu_r"](0.5))
    assert [cell.get("fill") for cell in cells][:9] == [white] * 9


@pytest.mark.parametrize("L, S, query, key", [(2, 5, 1, 3), (6, 3, 5, 0), (3, 50, 1, 2)])
def test_a_pair_shows_the_weights_of_its_query_as_bars(L, S, query, key):
    q, k, weights = random_head(L, S)
    keys = [f"key {j}" for j in range(S)]
    picture = pair_products(q, k, weights, query, key, keys=keys)
    *bars, floor = list(drawn(picture).iter("rect"))[3 * 4 :]
    assert [bar.find("title").text for bar in bars] == [
        f"{name} {weight:.2f}" for name, weight in zip(keys, weights[query], strict=True)
    ]
    x, y, wide, tall = np.transpose([numbers(bar, "x", "y", "width", "height") for bar in bars])
    np.testing.assert_allclose(tall, weights[query] * 56, atol=0.06)
    left, ground, across, _ = numbers(floor, "x", "y", "width", "height")
    np.testing.assert_allclose(y + tall, ground, atol=0.11)
    assert (x[1:] > (x + wide)[:-1]).all() and left == x[0] and left + across >= (x + wide)[-1]
    assert [bar.get("opacity") for bar in bars] == ["1" if j == key else "0.3" for j in range(S)]
    label_x, label_y = texts(picture)[f"key {key}"]
    assert x[key] < label_x < x[key] + wide[key] + 2 and label_y > ground
    label_x, label_y = texts(picture)["weights"]
    assert label_x < left and ground - 56 < label_y < ground
    (chosen,) = [each for each in drawn(picture).iter("text") if each.text == f"key {key}"]
    assert chosen.get("text-anchor") == "middle"


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


def test_a_pair_admits_a_thousandth_and_names_the_key_that_is_off():
    q, k, weights = random_head(3, 5)
    for off, key in [(0.0009, 2), (-0.0009, 4)]:
        shifted = weights.clone()
        shifted[1, key] += off
        pair_products(q, k, shifted, 1, 0)
        shifted[1, key] += 0.4 * off
        told = (
            f"for query 1 and key {key} that is {weights[1, key]:.3f}, got {shifted[1, key]:.3f};"
        )
        with pytest.raises(ValueError, match=re.escape(told)):
            pair_products(q, k, shifted, 1, 0)
        pair_products(q, k, shifted, 2, 0)  # of another query, that one is not shown
    shifted[1, 3] = torch.nan
    with pytest.raises(ValueError, match="for query 1 and key 3 that is .*, got nan"):
        pair_products(q, k, shifted, 1, 0)


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
        (lambda: tile(WEIGHTS[0]), ValueError, r"weights must have shape \(layers, H, L, S\)"),
        (lambda: head_lines(WEIGHTS[0]), ValueError, r"weights must have shape \(L, S\)"),
        (lambda: head_lines(WEIGHTS[0, 0], keys="ab"), ValueError, "keys must have 9 .* got 2"),
        (lambda: head_lines(WEIGHTS[0, 0], query=9), ValueError, "query must be from 0 to 8"),
        (lambda: head_lines(WEIGHTS[0, 0], query=-1), ValueError, "query must be from 0 to 8"),
        (lambda: head_lines(WEIGHTS[0, 0], query=1.0), TypeError, "query must be an int"),
        (
            lambda: head_lines(WEIGHTS[0, 0], query=True),
            TypeError,
            "query must be an int, got bool",
        ),
        (lambda: head_lines(torch.eye(2).long()), TypeError, "weights must be floating point"),
        (lambda: pair_products(*random_head(2, 5), True, 0), TypeError, "query .* got bool"),
        (lambda: pair_products(*random_head(2, 5), 0, False), TypeError, "key .* got bool"),
        (lambda: pair_products(*random_head(2, 5), 2, 0), ValueError, "query must be from 0 to 1"),
        (lambda: pair_products(*random_head(2, 5), 0, 5), ValueError, "key must be from 0 to 4"),
        (lambda: pair_products(*random_head(5, 2), 0, 2), ValueError, "key must be from 0 to 1"),
        (
            lambda: pair_products(*random_head(2, 5), 0, 0, mask=torch.ones(2, 5)),
            TypeError,
            "mask must be a boolean torch.Tensor",
        ),
        (
            lambda: pair_products(*random_head(2, 5), 0, 0, queries="abc"),
            ValueError,
            "queries must have 2 entries",
        ),
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


@pytest.mark.parametrize("draw", [mosaic, tile, lambda weights: head_lines(weights[0, 0])])
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
