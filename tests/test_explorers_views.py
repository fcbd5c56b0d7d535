"""The explorer of the three views: set a control, read the picture and the words."""

import itertools
import re

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from matplotlib.colors import same_color, to_hex, to_rgb

from course_utils.attention import attention
from course_utils.explorers import views_explorer
from course_utils.explorers.views import HEAD_COLOURS
from course_utils.views import GAP, example, told_apart, without_first
from explorer_pictures import cell_values, set_controls, svg_parts
from tools import render_previews

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


@pytest.fixture(scope="module")
def pages(chromium):
    """The explorer on a page: as lesson 08 shows it, and of another model."""
    makes = {"lesson": views_explorer, "other": lambda: views_explorer(*another_model())}
    opened = {name: render_previews.shown(chromium, make()) for name, make in makes.items()}
    yield opened
    for page in opened.values():
        assert page.errors == []
        page.close()


HOME = {"several": False, "hide": False}
LEFT, TOP, SIDE = 42, 24, 280  # of all heads; beside them the lines are as high
PRODUCTS, SCORES, SHARES = (92, 357, 304, 471), (322, 357, 422, 471), (440, 357, 546, 471)
BLUE, RED, GREY = "#1f77b4", "#d62728", "#999999"
STEP = 1 / 64  # cells and lines are drawn in so many shades
SHADE = STEP + 0.01  # between eleven colours of the map others lie on nearly straight lines


def tile_of(layer, head, layers, heads, L):
    """Return left, top, right, bottom of a head's tile."""
    cell = SIDE / (L + GAP) / max(layers, heads)
    left, top = LEFT + head * cell * (L + GAP), TOP + layer * cell * (L + GAP)
    return left, top, left + cell * L, top + cell * L


def outlines(picture):
    """Return the red frames: place and thickness."""
    return [(box, float(look["stroke-width"])) for box, look in picture["rects"]
            if look["stroke"] == RED]  # fmt: skip


@pytest.mark.parametrize("name, shape", [("lesson", (12, 12, 9)), ("other", (2, 3, 4))])
def test_each_head_is_a_tile_of_its_weights_in_its_layers_row_under_its_number(pages, name, shape):
    picture = svg_parts(pages[name], **HOME)
    weights = WEIGHTS if name == "lesson" else another_model()[3]
    layers, heads, L = shape
    tiles = [(layer, head) for layer in range(layers) for head in range(heads)]
    for layer, head in [*tiles[:5], *tiles[-30::7]]:
        box = tile_of(layer, head, *shape)
        roots = cell_values(picture, box, L, L, colormaps["cividis"])
        np.testing.assert_allclose(roots, weights[layer, head].sqrt(), atol=SHADE)
    inside = [box for box, _ in picture["cells"] if box[3] < PRODUCTS[1] - 20]
    assert len(inside) == weights.numel() and min(box[2] - box[0] for box in inside) > 1  # pixel
    bottom, end = tile_of(layers - 1, heads - 1, *shape)[3], tile_of(0, heads - 1, *shape)[2]
    under = [each for each in picture["texts"] if bottom - 2 < each[1][1] < bottom + 8
             and each[1][0] < end]  # fmt: skip
    for head, (text, box, look) in enumerate(under):
        left, _, right, _ = tile_of(0, head, *shape)
        assert text == str(head) and box[0] + box[2] == pytest.approx(left + right, abs=1)
        assert same_color(look["fill"], HEAD_COLOURS[head])
    beside = [each for each in picture["texts"] if each[1][2] < LEFT and each[0].isdigit()
              and each[1][3] < PRODUCTS[1]]  # fmt: skip
    for layer, (text, box, _) in enumerate(beside):
        _, top, _, bottom = tile_of(layer, 0, *shape)
        assert text == str(layer) and (box[1] + box[3]) / 2 == pytest.approx(
            (top + bottom) / 2, abs=2
        )
    assert (len(under), len(beside)) == (heads, layers)
    assert {"head", "layer"} <= {text for text, *_ in picture["texts"]}


@pytest.mark.parametrize("layer, head, query, key", [(0, 2, 1, 3), (1, 0, 3, 1), (1, 1, 0, 2)])
def test_the_frame_is_round_the_head_and_marks_are_at_query_and_key(pages, layer, head, query, key):
    picture = svg_parts(pages["other"], **HOME, layer=layer, head=head, query=query, key=key)
    (frame, thick), (mark, _) = outlines(picture)
    tile = tile_of(layer, head, 2, 3, 4)
    around = [each + side * thick / 2 for each, side in zip(tile, (-1, -1, 1, 1), strict=True)]
    assert frame == pytest.approx(around, abs=0.02)  # over none of its weights
    row = (471 - 357) / 4
    assert mark == pytest.approx((92, 357 + key * row, 304, 357 + (key + 1) * row), abs=0.02)
    ends = [box for box, look in picture["rects"] if look.get("fill") == RED]
    middles = [((x + right) / 2, (y + bottom) / 2) for x, y, right, bottom in ends]
    at = [TOP + SIDE * (place + 0.5) / 4 for place in (query, key)]
    assert middles == [pytest.approx((399, at[0]), abs=0.02),
                       pytest.approx((489, at[1]), abs=0.02)]  # fmt: skip


def test_tokens_stand_beside_the_lines_and_the_products_the_first_on_top(pages):
    texts = svg_parts(pages["lesson"], **HOME)["texts"]
    for left, right, top, bottom in [(325, 400, TOP, TOP + SIDE), (490, 560, TOP, TOP + SIDE),
                                     (20, 92, 357, 471)]:  # fmt: skip
        inside = [(text, (box[1] + box[3]) / 2) for text, box, _ in texts
                  if left <= box[0] and box[2] <= right and top - 2 <= box[1] < bottom
                  and text != "keys"]  # fmt: skip
        assert [text for text, _ in inside] == told_apart(TOKENS)
        rows = [top + (bottom - top) * (place + 0.5) / 9 for place in range(9)]
        assert [y for _, y in inside] == pytest.approx(rows, abs=2)


def lines_of(page, rows, **values):
    """Return for each line drawn (query, key, opacity, colour), keys that stand aside as shares."""
    found = []
    for path, look in svg_parts(page, **values)["lines"]:
        for ends in re.findall(r"M(\S+) (\S+)L(\S+) (\S+?)(?=M|$)", path):
            x, y, end, down = map(float, ends)
            assert (x, end) == (404, 484)
            places = [(each - TOP) / SIDE * rows - 0.5 for each in (y, down)]
            opacity = float(look["stroke-opacity"])
            found.append((*[round(place, 2) for place in places], opacity, look["stroke"]))
    return found


def opacity(weight):
    return pytest.approx(weight, abs=STEP / 2 + 0.006)  # of what is written with two digits


def test_lines_are_all_of_one_head_and_those_of_the_query_stand_out(pages):
    weights = another_model()[3]
    found = lines_of(pages["other"], 4, **HOME, layer=1, head=2, query=1)
    assert len(found) == 16 and {(i, j) for i, j, *_ in found} == {*np.ndindex(4, 4)}
    for i, j, shade, colour in found:
        assert shade == opacity(weights[1, 2, int(i), int(j)].item())
        assert colour == (BLUE if i == 1 else GREY)
    assert [colour for *_, colour in found] == [GREY] * 12 + [BLUE] * 4  # the query's over them


def test_several_heads_show_the_lines_of_one_query_each_in_the_colour_of_its_number(pages):
    tokens, q, k, weights = another_model()
    shown = {"layer": 1, "query": 3, "several": True, "hide": False}
    found = {
        (j, colour): (i, shade) for i, j, shade, colour in lines_of(pages["other"], 4, **shown)
    }
    assert len(found) == 12
    explorer = set_controls(views_explorer(tokens, q, k, weights), **shown)
    for h in range(3):
        for j in range(4):
            i, shade = found[round(j + 0.3 * (h - 1), 2), to_hex(f"C{h}")]
            assert i == 3 and shade == opacity(weights[1, h, 3, j].item())
        j = int(weights[1, h, 3].argmax())
        assert f"{h} at {tokens[j]} {weights[1, h, 3, j]:.2f}" in explorer.state


def test_twelve_heads_have_twelve_colours(pages):
    shown = {"layer": 4, "query": 2, "several": True, "hide": False}
    colours = [colour for *_, colour in lines_of(pages["lesson"], 9, **shown)]
    assert {colour: colours.count(colour) for colour in colours} == dict.fromkeys(HEAD_COLOURS, 9)
    apart = [
        np.linalg.norm(np.subtract(to_rgb(one), to_rgb(other)))
        for one, other in itertools.combinations(HEAD_COLOURS, 2)
    ]
    assert len(apart) == 12 * 11 / 2 and min(apart) > 0.2


def test_without_key_0_the_lines_share_what_it_leaves(pages):
    tokens, q, k, weights = another_model()
    shown = {"layer": 0, "head": 1, "query": 2, "several": False, "hide": True}
    rest = without_first(weights[0, 1])
    found = lines_of(pages["other"], 4, **shown)
    assert len(found) == 16
    for i, j, shade, _ in found:
        assert shade == opacity(rest[int(i), int(j)].item())
    explorer = set_controls(views_explorer(tokens, q, k, weights), **shown)
    assert f"key 0 left out of the lines, its weight {weights[0, 1, 2, 0]:.2f};" in explorer.state


def bars(picture, frame):
    """Return where each bar of a frame begins and ends, as shares of its width, from the top."""
    left, top, right, bottom = frame
    found = sorted((y, x, end) for (x, y, end, _), look in picture["rects"]
                   if look.get("fill") == BLUE and left - 1 < x < right)  # fmt: skip
    rows = [top + (bottom - top) * (place + 0.5) / len(found) for place in range(len(found))]
    assert [y + 3 for y, *_ in found] == pytest.approx(rows, abs=0.02)
    return [((x - left) / (right - left), (end - left) / (right - left)) for _, x, end in found]


def test_below_stand_products_scores_and_weights_of_all_keys_of_the_query(pages):
    _, q, k, weights = another_model()
    picture = svg_parts(pages["other"], **HOME, layer=1, head=2, query=3)
    expected = q[1, 2, 3] * k[1, 2]
    shares = cell_values(picture, PRODUCTS, 4, 8, colormaps["RdBu_r"])
    most = expected.abs().max()
    np.testing.assert_allclose(2 * shares - 1, expected / most, atol=2 * SHADE)
    reach = 1.05 * (q @ k.mT).abs().max() / 8**0.5
    for (start, end), score in zip(bars(picture, SCORES), expected.sum(-1) / 8**0.5, strict=True):
        low, high = sorted([0, float(score / reach)])
        assert (start, end) == pytest.approx(((1 + low) / 2, (1 + high) / 2), abs=2e-4)
    for (start, end), weight in zip(bars(picture, SHARES), weights[1, 2, 3], strict=True):
        assert (start, end) == pytest.approx((0, weight.item()), abs=2e-4)
    titles = [text for text, box, _ in picture["texts"] if box[3] < 357 and box[1] > 330]
    assert titles == ["q × k (red: positive)", "sum / √8", "softmax"]
    under = {text: (box[0] + box[2]) / 2 for text, box, _ in picture["texts"] if box[1] > 471}
    assert {"feature", "score", "weight"} < under.keys()
    assert {text: under[text] for text in ("0.5", "1")} == pytest.approx(
        {"0.5": 493, "1": 546}, abs=1
    )
    for feature in ("2", "4", "6"):
        assert under[feature] == pytest.approx(92 + (int(feature) + 0.5) / 8 * 212, abs=1)
    score = SCORES[0] + 50 * (1 + 1.5 / reach.item())
    assert under["1.5"] == pytest.approx(score, abs=1) and "−1.5" in under


def test_each_number_is_a_slider_over_all_there_is(explorer):
    for name, size in zip(("layer", "head", "query", "key"), WEIGHTS.shape, strict=True):
        control = explorer.controls[name]
        assert control["kind"] == "number"  # a menu does not hear arrow keys in JupyterLab
        assert (control["low"], control["high"], control["step"]) == (0, size - 1, 1)


def test_it_opens_on_the_head_and_pair_of_the_lesson(explorer):
    opened = dict(explorer.values)
    at = opened.pop("layer"), opened.pop("head")
    assert not opened.pop("several") and not opened.pop("hide")
    assert at == (11, 0) and [TOKENS[place] for place in opened.values()] == ["it", "dog"]
    assert WEIGHTS[at][6].max() == WEIGHTS[at].max() > 0.8  # it is worth looking at
    assert "found" not in explorer.state


def opened(explorer):
    """Return layer, head, query and key."""
    return tuple(explorer.values[name] for name in ("layer", "head", "query", "key"))


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


def test_a_press_chooses_a_head_among_the_tiles_a_query_and_keys_among_the_tokens(pages):
    page = pages["lesson"]
    svg_parts(page, **HOME)
    box, words = page.locator("svg").bounding_box(), page.get_by_role("status")

    def press(x, y):
        page.mouse.click(box["x"] + x, box["y"] + y)

    def now():
        return page.evaluate("['layer', 'head', 'query', 'key'].map(n => model.get('values')[n])")

    for layer, head in [(0, 0), (5, 9), (11, 11)]:
        left, top, right, bottom = tile_of(layer, head, 12, 12, 9)
        for at in [(left + 1, top + 1), (right - 1, bottom - 1)]:
            press(*at)
            assert now()[:2] == [layer, head]
    row = SIDE / 9
    press(380, TOP + 8.3 * row)
    press(520, TOP + 1.8 * row)
    assert "tired→dog: 16 products" in words.inner_text()
    row = (471 - 357) / 9
    press(150, 357 + 4.9 * row)
    assert "tired→park: 16 products" in words.inner_text()
    press(500, 357 + 2.1 * row)
    assert "tired→left: 16 products" in words.inner_text()
    assert now() == [11, 11, 8, 2]


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
    assert explorer.controls["layer"]["high"] == 1 and explorer.controls["head"]["high"] == 2
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
