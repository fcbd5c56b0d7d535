"""The head viewer: choose a head and a token, compare words and pictures with the weights."""

import re

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from matplotlib.colors import same_color

from course_utils.explorers import head_explorer
from explorer_pictures import across, axes, headings, limits, pixels, press, set_controls, ticks

WEIGHTS = torch.rand(3, 5, 5, generator=torch.Generator().manual_seed(0)).mul(6).softmax(dim=-1)
TOKENS = ["the", "cat", "saw", "the", "dog"]
NAMES = [f"{i} {token}" for i, token in enumerate(TOKENS)]
EVERY = "every token"


def explorer_at(head=0, query=EVERY, weights=WEIGHTS, tokens=TOKENS):
    return set_controls(head_explorer(weights, tokens), head=head, query=query)


def panels(explorer):
    """Return the small Axes, one a head, and the large ones of the matrix and the lines."""
    *small, matrix, paths, _ = axes(explorer)
    assert across([matrix, paths]) == [matrix, paths]
    return across(small), matrix, paths


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


def test_small_pictures_show_the_heads_from_left_to_right_under_their_numbers():
    small, _, _ = panels(explorer_at(head=1))
    for head, (ax, weights) in enumerate(zip(small, WEIGHTS, strict=True)):
        (image,) = ax.images
        np.testing.assert_allclose(image.get_array(), weights)
        assert image.get_clim() == (0, 1) and image.get_cmap().name == "cividis"
        assert headings(ax) == (f"head {head}", "", "") and ticks(ax.xaxis) == ticks(ax.yaxis) == {}


@pytest.mark.parametrize("head", range(3))
def test_the_chosen_head_alone_is_framed_all_round(head):
    small, _, _ = panels(explorer_at(head))
    frames = [frame for ax in small for frame in ax.patches]
    assert [frame.get_visible() for frame in frames] == [h == head for h in range(3)]
    for ax, frame in zip(small, frames, strict=True):
        assert limits(frame) == (-0.5, 4.5, -0.5, 4.5) and not frame.get_fill()
        assert sorted(ax.get_xlim()) == sorted(ax.get_ylim()) == [-0.5, 4.5]
        assert same_color(frame.get_edgecolor(), "C3") and frame.get_linewidth() == 5
        (image,) = ax.images
        assert frame.zorder > image.zorder


@pytest.mark.parametrize("head, query", [(0, EVERY), (1, NAMES[3]), (2, NAMES[0])])
def test_the_matrix_is_the_chosen_head_with_the_chosen_token_framed(head, query):
    _, matrix, _ = panels(explorer_at(head, query))
    (image,), (row,) = matrix.images, matrix.patches
    np.testing.assert_allclose(image.get_array(), WEIGHTS[head])
    assert image.get_clim() == (0, 1) and image.get_cmap().name == "cividis"
    assert image.get_extent() == [-0.5, 4.5, 4.5, -0.5]  # the first query is on top
    assert row.get_visible() == (query != EVERY)
    if query != EVERY:
        i = NAMES.index(query)
        assert limits(row) == (-0.5, 4.5, i - 0.5, i + 0.5) and not row.get_fill()
        assert same_color(row.get_edgecolor(), "C3") and row.get_linewidth() == 2
        assert row.zorder > image.zorder
    assert headings(matrix) == ("", "keys", "queries")
    assert ticks(matrix.xaxis) == ticks(matrix.yaxis) == dict(enumerate(TOKENS))


def test_labels_of_more_than_two_letters_stand_upright():
    def rotation(tokens):
        _, matrix, _ = panels(explorer_at(tokens=tokens))
        return {label.get_rotation() for label in matrix.get_xticklabels()}

    assert rotation(TOKENS) == {90} and rotation(["a", "bc", "d", "e", "f"]) == {0}


@pytest.mark.parametrize("head, query", [(0, EVERY), (1, NAMES[3]), (2, NAMES[0])])
def test_lines_run_from_the_chosen_token_to_its_keys_as_strong_as_the_weights(head, query):
    _, _, paths = panels(explorer_at(head, query))
    (lines,) = paths.collections
    drawn = zip(
        lines.get_segments(),
        lines.get_alpha(),
        lines.get_linewidth(),
        lines.get_edgecolor(),
        strict=True,
    )
    found = np.full((5, 5), np.nan)
    for ((x0, i), (x1, j)), alpha, width, colour in drawn:
        chosen = query in (EVERY, NAMES[int(i)])
        weight = float(WEIGHTS[head, int(i), int(j)]) if chosen else 0.0
        assert (x0, x1) == (0, 1) and alpha == pytest.approx(weight)
        assert width == pytest.approx(4 * weight)
        assert colour[:3] == pytest.approx(colormaps["Blues"](0.4 + 0.6 * weight)[:3], abs=0.01)
        found[int(i), int(j)] = weight
    assert np.isfinite(found).all() and lines.get_visible()


def test_lines_run_between_two_columns_of_tokens_the_first_on_top():
    _, _, paths = panels(explorer_at())
    beside = {"right": {}, "left": {}}  # by alignment: those on the left end at the lines
    for text in paths.texts:
        x, y = text.get_position()
        beside[text.get_horizontalalignment()][y] = text.get_text()
        assert -0.1 < x < 0 if text.get_horizontalalignment() == "right" else 1 < x < 1.1
        assert text.get_verticalalignment() == "center"
    assert beside["right"] == beside["left"] == dict(enumerate(TOKENS))
    assert paths.get_ylim() == (4.5, -0.5) and paths.get_xlim() == (-0.6, 1.6)
    assert headings(paths)[0] == "queries → keys" and not paths.axison


def test_lines_show_in_the_picture():
    onto = torch.zeros(1, 4, 4)
    onto[0, 1, 3] = onto[0, [0, 2, 3], 0] = 1.0

    def blue(query):
        lines = pixels(explorer_at(0, query, onto, list("abcd")))[
            150:375, 420:
        ]  # above the colour bar
        return np.nonzero(((lines[..., 2] - lines[..., 0]) > 60).any(axis=1))[0]

    one, all_lines = blue("1 b"), blue(EVERY)
    assert len(one) and one.min() > all_lines.min() and one.max() == all_lines.max()
    level = blue("0 a")  # from the first to the first: a level line
    assert np.ptp(level) <= 6 < np.ptp(one)


def test_the_six_heads_written_by_hand_follow_their_rules():
    tokens = "the cat saw the dog because the dog barked".split()
    i, j = np.indices((9, 9))  # query, key
    same = np.array(tokens)[:, None] == np.array(tokens)
    explorer = head_explorer()
    small, matrix, _ = panels(explorer)
    assert [*ticks(matrix.xaxis).values()] == tokens
    rules = [j == i - 1, j == i + 1, j == 0, same, j == i, j <= i]
    for head, (ax, rule) in enumerate(zip(small, rules, strict=True)):
        expected = np.exp(4.0 * rule) / np.exp(4.0 * rule).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(ax.images[0].get_array(), expected, atol=1e-6)
        set_controls(explorer, head=head)
        np.testing.assert_allclose(matrix.images[0].get_array(), expected, atol=1e-6)
    assert explorer.state.startswith("head 5 of 6; strongest of each token: 0 the → 0 the 0.87")


def test_every_head_and_every_token_can_be_chosen():
    controls = head_explorer(WEIGHTS, TOKENS).controls
    head = controls["head"].slider
    assert (head.value, head.min, head.max) == (0, 0, 2)
    assert controls["query"].options == (EVERY, *NAMES) and controls["query"].value == EVERY


def test_a_press_chooses_a_head_by_its_small_picture_and_a_token_by_its_row():
    explorer = explorer_at()
    small, matrix, paths = panels(explorer)
    for head in (1, 0, 2):
        press(explorer, small[head], 1, 3)
        assert explorer.state.startswith(f"head {head} of 3; strongest of each token")
    for y, name in [(-0.4, "0 the"), (2.6, "3 the"), (3.4, "3 the"), (4.49, "4 dog")]:
        press(explorer, matrix, 0, y)
        assert explorer.state.startswith(f"head 2 of 3; {name} looks at")
    before = explorer.state
    press(explorer, paths, 0.5, 2)
    assert explorer.state == before


RULES = ["the token before", "the token after", "the first token", "the same token", "itself"]
RULES.append("all tokens so far")


@pytest.mark.parametrize("head, rule", [*enumerate(RULES)])
def test_a_rule_is_found_once_a_token_is_chosen_that_shows_it(head, rule):
    explorer = set_controls(head_explorer(), head=head)
    assert "found" not in explorer.state  # not before anybody looked
    nothing = {0: "0 the", 1: "8 barked"}.get(head)  # there is no token before, or after
    for name in explorer.controls["query"].options[1:]:
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
    explorer.controls["query"].value = "1 b"
    assert explorer.state.endswith("found: each token looks at the same token or itself")


def test_of_many_heads_the_numbers_alone_stand_over_the_pictures():
    explorer = head_explorer(torch.eye(2).expand(24, 2, 2), ["a", "b"])
    small, _, _ = panels(explorer)
    assert [ax.get_title() for ax in small] == [str(head) for head in range(24)]


def test_weights_of_any_dtype_or_with_a_gradient_and_tokens_by_number():
    explorer = head_explorer(WEIGHTS.half().requires_grad_())
    assert "strongest of each token: 0 → " in explorer.state
    assert explorer.controls["query"].options == (EVERY, *"01234")


def test_a_long_token_is_cut_in_the_picture_and_whole_in_the_words():
    tokens = ["because", "internationalization", "doorstep", "d", "e"]
    explorer = explorer_at(tokens=tokens)
    _, matrix, paths = panels(explorer)
    short = ["because", "interna…", "doorstep", "d", "e"]
    assert [*ticks(matrix.xaxis).values()] == [*ticks(matrix.yaxis).values()] == short
    assert [text.get_text() for text in paths.texts] == short * 2
    assert "1 internationalization" in explorer.state


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
    explorer.controls["query"].value = "0"
    assert explorer.state.endswith("0 looks at: 0 0.50, 1 0.50")
