"""The head viewer: choose a head and a token, compare words and drawing with the weights."""

import re

import numpy as np
import pytest
import torch
from matplotlib import colormaps

from course_utils.explorers import head_explorer
from explorer_pictures import cell_values, set_controls, svg_parts
from tools import render_previews

WEIGHTS = torch.rand(3, 5, 5, generator=torch.Generator().manual_seed(0)).mul(6).softmax(dim=-1)
TOKENS = ["the", "cat", "saw", "the", "dog"]
NAMES = [f"{i} {token}" for i, token in enumerate(TOKENS)]
EVERY = "every token"
BLUE, RED = "#1f77b4", "#d62728"
STEP = 1 / 64  # of a weight: cells and lines are drawn in so many shades
SHADE = STEP + 0.01  # between eleven colours of the map others lie on nearly straight lines
MATRIX = (92, 126, 302, 336)  # left, top, right, bottom


def explorer_at(head=0, query=EVERY, weights=WEIGHTS, tokens=TOKENS):
    return set_controls(head_explorer(weights, tokens), head=head, query=query)


@pytest.fixture(scope="module")
def page_of(chromium):
    """A function that shows weights with their tokens on a page; by default those above."""
    pages = {}

    def shown(weights=WEIGHTS, tokens=TOKENS):
        key = id(weights), tuple(tokens)
        if key not in pages:
            pages[key] = render_previews.shown(chromium, head_explorer(weights, tokens)), weights
        return pages[key][0]

    yield shown
    for page, _ in pages.values():
        assert page.errors == []
        page.close()


def drawn(page, head=0, query=EVERY):
    """Return what `svg_parts` finds in a state."""
    return svg_parts(page, head=head, query=query)


def frames(picture):
    """Return left, top, right, bottom of each small picture's frame, from left to right."""
    return sorted(box for box, look in picture["rects"]
                  if look["stroke"] == "currentColor" and box[3] < MATRIX[1])  # fmt: skip


def outlines(picture):
    """Return the red frames that are seen: place and thickness."""
    return [(box, float(look["stroke-width"])) for box, look in picture["rects"]
            if look["stroke"] == RED and look["visibility"] != "hidden"]  # fmt: skip


def beside_rows(picture, left, right):
    """Return what is written beside the matrix between two places, by the height of its middle."""
    return {(top + bottom) / 2: text for text, (x, top, end, bottom), _ in picture["texts"]
            if left <= x and end <= right and MATRIX[1] <= top and bottom <= MATRIX[3]}  # fmt: skip


@pytest.mark.parametrize("head", range(3))
def test_the_words_tell_the_strongest_key_of_each_token(head):
    state = explorer_at(head).state
    assert state.startswith(f"head {head} of 3; strongest of each token: ")
    for row, name in zip(WEIGHTS[head], NAMES, strict=True):
        assert f"{name} → {NAMES[row.argmax()]} {row.max():.2f}" in state


@pytest.mark.parametrize("head, i", [(0, 0), (1, 3), (2, 4)])
def test_the_words_tell_what_one_token_looks_at_strongest_first(head, i):
    state = explorer_at(head, NAMES[i]).state
    told = re.findall(r"(\d) \w+ (\d\.\d\d)", state.split("looks at: ")[1])
    order = WEIGHTS[head, i].sort(descending=True)
    for (key, weight), j, exact in zip(told, order.indices, order.values, strict=False):
        assert int(key) == j and abs(float(weight) - exact) <= 0.0051
    assert len(told) == max(1, int((WEIGHTS[head, i] >= 0.05).sum()))


def test_a_token_that_looks_at_one_key_alone_is_told_with_that_key_alone():
    state = explorer_at(0, "1 cat", torch.eye(5).roll(1, dims=1)[None]).state
    assert state.startswith("head 0 of 1; 1 cat looks at: 2 saw 1.00")
    assert "3 the" not in state


def test_small_pictures_show_the_heads_from_left_to_right_under_their_numbers(page_of):
    picture = drawn(page_of(), head=1)
    numbers = {text: box for text, box, _ in picture["texts"] if box[3] < MATRIX[1] - 30}
    assert list(numbers) == ["head", "0", "1", "2"] and len(frames(picture)) == 3
    assert numbers["head"][2] < frames(picture)[0][0]  # of all of them, on their left
    for weights, frame, number in zip(WEIGHTS, frames(picture), "012", strict=True):
        found = cell_values(picture, frame, 5, 5, colormaps["cividis"])
        np.testing.assert_allclose(found, weights, atol=SHADE)
        left, top, right, bottom = numbers[number]
        assert left + right == pytest.approx(frame[0] + frame[2], abs=1) and bottom < frame[1] + 1


@pytest.mark.parametrize("head", range(3))
def test_the_chosen_head_alone_is_framed_all_round_over_none_of_its_weights(page_of, head):
    picture = drawn(page_of(), head)
    (((left, top, right, bottom), thick),) = outlines(picture)
    tile = frames(picture)[head]
    beside = tile[0] - left, tile[1] - top, right - tile[2], bottom - tile[3]
    assert thick == 4 and all(thick / 2 <= each < 5 for each in beside)


@pytest.mark.parametrize("head, query", [(0, EVERY), (1, NAMES[3]), (2, NAMES[0])])
def test_the_matrix_is_the_chosen_head_with_the_chosen_token_framed(page_of, head, query):
    picture = drawn(page_of(), head, query)
    found = cell_values(picture, MATRIX, 5, 5, colormaps["cividis"])
    np.testing.assert_allclose(found, WEIGHTS[head], atol=SHADE)
    _, *row = outlines(picture)
    if query == EVERY:
        assert row == []
    else:
        left, top, right, bottom = MATRIX
        i = NAMES.index(query)
        assert row == [((left, top + 42 * i, right, top + 42 * (i + 1)), 2)]
    assert {"keys", "queries"} <= {text for text, *_ in picture["texts"]}


def test_a_weight_of_0_and_one_of_1_have_the_colours_at_the_ends_of_the_scale(page_of):
    picture = drawn(page_of(torch.eye(2)[None], "ab"))
    fills = {fill for box, fill in picture["cells"] if box[2] <= MATRIX[2]}
    ends = [colormaps["cividis"](end, bytes=True)[:3] for end in (0.0, 1.0)]
    assert fills == {"rgb({}, {}, {})".format(*end) for end in ends}
    below = sorted((box, fill) for box, fill in picture["cells"] if box[1] > MATRIX[3])
    assert (below[0][1], below[-1][1]) == tuple("rgb({}, {}, {})".format(*end) for end in ends)
    ticks = [text for text, box, _ in picture["texts"] if box[1] > below[0][0][3]]
    assert ticks[-4:] == ["0", "0.5", "1", "weight"]


def test_labels_stand_at_their_rows_and_columns_upright_if_one_has_more_than_two_letters(page_of):
    for tokens in (TOKENS, ["a", "bc", "d", "e", "f"]):
        picture = drawn(page_of(tokens=tokens))
        left, top, right, bottom = MATRIX
        beside = beside_rows(picture, 24, left)
        middles = [top + 42 * (i + 0.5) for i in range(5)]
        assert [*beside] == pytest.approx(middles, abs=2) and [*beside.values()] == tokens
        under = [each for each in picture["texts"] if bottom < each[1][1] < bottom + 25
                 and left < each[1][0] < right]  # fmt: skip
        assert [text for text, *_ in under] == tokens
        middles = [left + 42 * (j + 0.5) for j in range(5)]
        assert [(box[0] + box[2]) / 2 for _, box, _ in under] == pytest.approx(middles, abs=2)
        upright = tokens is TOKENS
        assert {"rotate(-90)" in look.get("transform", "") for *_, look in under} == {upright}


def lines(picture):
    """Return from which to which height each line runs, and the look of it."""
    found = {}
    for path, look in picture["lines"]:
        for x, y, end, down in re.findall(r"M(\S+) (\S+)L(\S+) (\S+?)(?=M|$)", path):
            assert (float(x), float(end)) == (386, 482)
            found[float(y), float(down)] = look
    return found


@pytest.mark.parametrize("head, query", [(0, EVERY), (1, NAMES[3]), (2, NAMES[0])])
def test_lines_run_from_the_chosen_token_to_its_keys_as_strong_as_the_weights(page_of, head, query):
    picture = drawn(page_of(), head, query)
    rows = [126 + 42 * (i + 0.5) for i in range(5)]
    chosen = range(5) if query == EVERY else [NAMES.index(query)]
    found = lines(picture)
    assert found.keys() == {(rows[i], rows[j]) for i in chosen for j in range(5)}
    for i in chosen:
        for j, weight in enumerate(WEIGHTS[head, i].tolist()):
            look = found[rows[i], rows[j]]
            assert float(look["stroke-opacity"]) == pytest.approx(weight, abs=0.51 * STEP + 0.005)
            assert float(look["stroke-width"]) == pytest.approx(0.5 + 3.5 * weight, abs=0.04)
            assert look["stroke"] == BLUE


def test_lines_run_between_two_columns_of_tokens_the_first_on_top(page_of):
    picture = drawn(page_of())
    for left, right in ((303, 386), (482, 560)):
        column = beside_rows(picture, left, right)
        assert [*column.values()] == TOKENS
        assert [*column] == pytest.approx([126 + 42 * (i + 0.5) for i in range(5)], abs=2)
    assert "queries → keys" in {text for text, *_ in picture["texts"]}


def test_the_six_heads_written_by_hand_follow_their_rules(chromium):
    tokens = "the cat saw the dog because the dog barked".split()
    i, j = np.indices((9, 9))  # query, key
    same = np.array(tokens)[:, None] == np.array(tokens)
    page = render_previews.shown(chromium, head_explorer())
    rules = [j == i - 1, j == i + 1, j == 0, same, j == i, j <= i]
    for head, rule in enumerate(rules):
        expected = np.exp(4.0 * rule) / np.exp(4.0 * rule).sum(axis=1, keepdims=True)
        picture = drawn(page, head)
        for frame in (MATRIX, frames(picture)[head]):
            found = cell_values(picture, frame, 9, 9, colormaps["cividis"])
            np.testing.assert_allclose(found, expected, atol=SHADE)
    page.close()
    state = set_controls(head_explorer(), head=5).state
    assert state.startswith("head 5 of 6; strongest of each token: 0 the → 0 the 0.87")


def test_every_head_and_every_token_can_be_chosen():
    head, query = head_explorer(WEIGHTS, TOKENS).controls.values()
    assert (head["value"], head["low"], head["high"], head["step"]) == (0, 0, 2, 1)
    assert query["options"] == [EVERY, *NAMES] and query["value"] == EVERY


def test_a_press_chooses_a_head_by_its_small_picture_and_a_token_by_its_row(page_of):
    page = page_of()
    picture = drawn(page)
    box = page.locator("svg").bounding_box()
    state = page.get_by_role("status")

    def press(x, y):
        page.mouse.click(box["x"] + x, box["y"] + y)

    for head in (1, 0, 2):
        left, top, right, bottom = frames(picture)[head]
        for x, y in [(left + 1, top + 1), (right - 1, bottom - 1)]:
            press(x, y)
            assert state.inner_text().startswith(f"head {head} of 3; strongest of each token")
    left, top, right, bottom = MATRIX
    for y, name in [(top + 1, "0 the"), (top + 127, "3 the"), (top + 167, "3 the"),
                    (bottom - 1, "4 dog")]:  # fmt: skip
        press(left + 3, y)
        assert state.inner_text().startswith(f"head 2 of 3; {name} looks at")
    before = state.inner_text()
    press(430, 200)  # among the lines
    assert state.inner_text() == before


def test_of_many_heads_and_tokens_as_many_are_named_as_have_room(page_of):
    many = torch.eye(40).expand(60, 40, 40)
    picture = drawn(page_of(many, [str(i) for i in range(40)]), head=59, query="39")
    assert len(frames(picture)) == 60
    boxes = [box for _, box, look in picture["texts"] if "transform" not in look]
    for one in boxes:
        for other in boxes:
            apart = [max(one[n], other[n]) - min(one[n + 2], other[n + 2]) for n in (0, 1)]
            assert one is other or max(apart) > -4  # a line is a little higher than its letters
    (_, row) = outlines(picture)
    assert row[0][3] == pytest.approx(MATRIX[3])


RULES = ["the token before", "the token after", "the first token", "the same token", "itself"]
RULES.append("all tokens so far")


@pytest.mark.parametrize("head, rule", [*enumerate(RULES)])
def test_a_rule_is_found_once_a_token_is_chosen_that_shows_it(head, rule):
    explorer = set_controls(head_explorer(), head=head)
    assert "found" not in explorer.state  # not before anybody looked
    nothing = {0: "0 the", 1: "8 barked"}.get(head)  # there is no token before, or after
    for name in explorer.controls["query"]["options"][1:]:
        state = set_controls(explorer, query=name).state
        found = re.findall("; found: each token looks at (.*)$", state)
        assert found == ([] if name == nothing else [rule])


def test_one_stray_query_is_enough_for_no_rule():
    weights = torch.eye(5)[None]
    assert explorer_at(0, "1 cat", weights).state.endswith("found: each token looks at itself")
    stray = weights.clone()
    stray[0, 4] = torch.tensor([0.0, 0.3, 0, 0, 0.7])
    assert "found" not in explorer_at(0, "1 cat", stray).state
    assert "found" not in explorer_at(0, "1 cat").state  # of weights at random


def test_rules_that_cannot_be_told_apart_are_both_told():
    explorer = head_explorer(torch.eye(2)[None], ["a", "b"])
    set_controls(explorer, query="1 b")
    assert explorer.state.endswith("found: each token looks at the same token or itself")


def test_weights_of_any_dtype_or_with_a_gradient_and_tokens_by_number():
    explorer = head_explorer(WEIGHTS.half().requires_grad_())
    assert "strongest of each token: 0 → " in explorer.state
    assert explorer.controls["query"]["options"] == [EVERY, *"01234"]


def test_a_long_token_is_cut_in_the_picture_and_whole_in_the_words(page_of):
    tokens = ["because", "internationalization", "doorstep", "$d$", "<e>"]
    picture = drawn(page_of(tokens=tokens))
    short = ["because", "interna…", "doorstep", "$d$", "<e>"]
    written = [text for text, *_ in picture["texts"]]
    assert [written.count(label) for label in short] == [4] * 5  # at rows, columns, and lines
    assert "1 internationalization" in explorer_at(tokens=tokens).state


@pytest.mark.parametrize(
    "given, error, words",
    [
        ((WEIGHTS[None], TOKENS), ValueError, r"shape \(H, L, L\), got .*weights\[0\]"),
        ((WEIGHTS[0], TOKENS), ValueError, r"weights must have shape \(H, L, L\), got \(5, 5\)"),
        ((WEIGHTS[..., :4], TOKENS), ValueError, "weights must have shape"),
        ((WEIGHTS.tolist(), TOKENS), TypeError, "weights must be a torch.Tensor"),
        ((WEIGHTS, TOKENS[1:]), ValueError, "tokens must have 5 entries, one for each, got 4"),
        ((WEIGHTS * 5, TOKENS), ValueError, "weights must be from 0 to 1.* are these scores"),
        ((WEIGHTS - 0.5, TOKENS), ValueError, "weights must be from 0 to 1"),
        ((WEIGHTS * torch.nan, TOKENS), ValueError, "weights must be from 0 to 1"),
        ((WEIGHTS[:0], TOKENS), ValueError, "and at least one"),
    ],
)
def test_bad_input_is_told_by_name(given, error, words):
    with pytest.raises(error, match=words):
        head_explorer(*given)


def test_of_weights_that_differ_by_rounding_the_first_is_told():
    weights = torch.tensor([[[0.5 - 1e-7, 0.5 + 1e-7], [0.5, 0.5]]])
    explorer = head_explorer(weights)
    assert "strongest of each token: 0 → 0 0.50, 1 → 0 0.50" in explorer.state
    set_controls(explorer, query="0")
    assert explorer.state.endswith("0 looks at: 0 0.50, 1 0.50")
