"""The mask composer: set a control, compare words and pictures with masks written out."""

import functools
import re

import numpy as np
import pytest
import torch
from matplotlib.colors import same_color

from course_utils.explorers import mask_explorer
from explorer_pictures import (
    across,
    axes,
    headings,
    limits,
    pixel,
    pixels,
    press,
    set_controls,
    ticks,
)

N = 8
OFF = {"causal": False, "window": 0, "prefix": 0, "padding": 0, "side": "end", "documents": 1}
OFF |= {"join": "and", "turned": ""}


@functools.cache
def one_explorer():
    return mask_explorer()


def explorer_with(**values):
    return set_controls(one_explorer(), **OFF | values)


def pattern_told(explorer):
    """Read the mask back from the words."""
    rows = explorer.state.split("query sees keys ")[1].split("; ")[0].split(", ")
    mask = np.zeros((N, N), dtype=bool)
    for i, row in enumerate(rows):
        for run in re.findall(r"\d+(?:–\d+)?", row.split(": ")[1]):
            first, _, last = run.partition("–")
            mask[i, int(first) : int(last or first) + 1] = True
    return mask


def shown(ax):
    """Return the matrix an Axes shows, (L, S)."""
    (cells,) = ax.collections
    return np.asarray(cells.get_array()).reshape(N, N)


def marked(ax):
    """Return the queries marked as empty, and check that a mark covers its row and no other."""
    rows = []
    for mark in ax.patches:
        left, right, top, bottom = limits(mark)
        row = round((top + bottom) / 2)
        assert (left, right) == (-0.5, N - 0.5)
        assert row - 0.5 < top < row - 0.4 and row + 0.4 < bottom < row + 0.5
        assert same_color(mark.get_facecolor(), "mistyrose") and mark.get_hatch() == "//"
        assert same_color(mark.get_edgecolor(), "C3")
        rows += [row] * mark.get_visible()
    return rows


def scores():
    """Return the scores (L, S) of the eight tokens drawn at random."""
    rng = torch.Generator().manual_seed(4)
    q, k = torch.randn(N, 4, generator=rng), torch.randn(N, 4, generator=rng)
    return q @ k.T / 2


i, j = np.indices((N, N))  # query, key
PATTERNS = [
    ({}, i >= -1),
    ({"causal": True}, j <= i),
    ({"window": 3}, (j <= i) & (i - j < 3)),
    ({"window": 1}, i == j),
    ({"prefix": 4}, (j <= i) | (j < 4)),
    ({"padding": 3}, j < 5),
    ({"padding": 3, "side": "start"}, j >= 3),
    ({"documents": 2}, (i < 4) == (j < 4)),
    ({"documents": 3}, i * 3 // 8 == j * 3 // 8),
    ({"documents": 4, "causal": True}, (i // 2 == j // 2) & (j <= i)),
    ({"causal": True, "padding": 2, "side": "start"}, (j <= i) & (j >= 2)),
    ({"causal": True, "padding": 2, "side": "start", "join": "or"}, (j <= i) | (j >= 2)),
    ({"window": 2, "documents": 2, "join": "or"}, ((i < 4) == (j < 4)) | (j <= i) & (i - j < 2)),
    ({"padding": 8}, j < 0),
]


@pytest.mark.parametrize("values, mask", PATTERNS, ids=[str(values) for values, _ in PATTERNS])
def test_words_and_pictures_show_the_mask_the_weights_and_the_empty_rows(values, mask):
    explorer = explorer_with(**values)
    assert (pattern_told(explorer) == mask).all()
    assert f"{mask.sum()} of 64 pairs allowed" in explorer.state
    pattern, weights, _ = axes(explorer)
    assert (shown(pattern) == mask).all()
    expected = scores().masked_fill(~torch.tensor(mask), -torch.inf).softmax(dim=-1).nan_to_num()
    np.testing.assert_allclose(shown(weights), expected, atol=1e-6)
    empty = np.flatnonzero(~mask.any(axis=-1)).tolist()
    assert marked(pattern) == marked(weights) == empty
    assert ("empty rows: none" in explorer.state) == (not empty)


def test_empty_rows_are_named_and_marked():
    explorer = explorer_with(causal=True, padding=2, side="start")
    assert "empty rows: 0–1;" in explorer.state and "0: none, 1: none, 2: 2," in explorer.state
    light_red = (pixels(explorer) == (255, 228, 225)).all(axis=-1)
    assert light_red.sum() > 4000
    set_controls(explorer, padding=0)
    assert not (pixels(explorer) == (255, 228, 225)).all(axis=-1).any()


def test_the_words_name_the_masks_and_how_they_are_joined():
    assert explorer_with().state.startswith("no mask: ")
    two = explorer_with(causal=True, padding=1)
    assert two.state.startswith("causal and 1 of padding at the end: ")
    every = {"causal": True, "window": 3, "prefix": 4, "padding": 2, "side": "start"}
    five = explorer_with(**every, documents=2, join="or")
    assert five.state.startswith(
        "causal or window of 3 or prefix of 4 or 2 of padding at the start or 2 documents: "
    )


def test_what_is_allowed_is_light_in_the_picture():
    explorer = explorer_with(window=2, documents=2, prefix=3)
    mask = ((i < 4) == (j < 4)) & (i - j < 2) & (j <= i)
    pattern = axes(explorer)[0]
    for query, key in np.ndindex(N, N):
        brightness = np.mean(pixel(explorer, pattern, key, query))
        assert brightness > 150 if mask[query, key] else brightness < 60


def test_both_pictures_say_what_they_show_and_weights_have_a_scale():
    explorer = mask_explorer()
    pattern, weights, scale = axes(explorer)
    assert across(axes(explorer)) == [pattern, weights, scale]
    for ax, title in [(pattern, "allowed (light) or not"), (weights, "weights")]:
        assert headings(ax) == (title, "keys", "queries")
        assert ticks(ax.xaxis) == ticks(ax.yaxis) == {n: str(n) for n in range(N)}
        assert ax.get_xlim() == (-0.5, 7.5) and ax.get_ylim() == (7.5, -0.5)  # the first on top
        assert ax.get_aspect() == 1
        (cells,) = ax.collections
        edges = np.arange(N + 1) - 0.5
        np.testing.assert_array_equal(cells.get_coordinates(), np.dstack(np.meshgrid(edges, edges)))
        assert cells.get_clim() == (0, 1) and cells.get_cmap().name == "cividis"
        assert same_color(cells.get_edgecolor()[0], "w")
    assert scale.get_ylim() == (0, 1)


def test_every_number_has_its_range_and_every_list_its_words():
    controls = mask_explorer().controls
    starts = {name: control.value for name, control in controls.items()}
    assert starts == OFF | {"causal": True, "padding": 2}
    ranges = {n: (c.slider.min, c.slider.max) for n, c in controls.items() if hasattr(c, "slider")}
    of_all = (0, N)
    assert ranges == {"window": of_all, "prefix": of_all, "padding": of_all, "documents": (1, 4)}
    assert controls["side"].options == ("end", "start") and controls["join"].options == (
        "and",
        "or",
    )


def test_a_press_turns_a_pair_over_and_a_second_turns_it_back():
    explorer = explorer_with(causal=True)
    before = explorer.state, explorer.image.value
    pattern, weights, scale = axes(explorer)
    press(explorer, pattern, 7.3, 0.2)  # key 7 for query 0
    press(explorer, weights, 0.4, 2.6)  # key 0 for query 3
    assert explorer.controls["turned"].value == "0-7, 3-0"
    expected = j <= i
    expected[0, 7], expected[3, 0] = True, False
    assert (pattern_told(explorer) == expected).all() and (shown(pattern) == expected).all()
    assert shown(weights)[3, 0] == 0 < shown(weights)[0, 7]
    assert explorer.state.startswith("causal, pairs turned over: 0-7, 3-0: ")
    press(explorer, scale, 0.5, 0.5)
    press(explorer, pattern, 0, 3)
    press(explorer, pattern, 7, 0)
    assert (explorer.state, explorer.image.value) == before
    assert explorer.image.pressed


def test_the_last_allowed_pair_of_a_row_turned_over_empties_it():
    explorer = explorer_with(causal=True, turned="0-0")
    assert "empty rows: 0;" in explorer.state and marked(axes(explorer)[0]) == [0]


@pytest.mark.parametrize("text", ["", "0", "0-", "9-9", "0-8", "a-b", "-", "1 2"])
def test_what_is_no_pair_turns_nothing_over(text):
    assert explorer_with(causal=True, turned=text).state == explorer_with(causal=True).state


def test_a_pair_may_be_typed_in_many_ways():
    expected = explorer_with(turned="0-7, 3-4").state
    for text in ("0-7 3-4", "0 - 7;3-4", "0-7, 3-4, 0-7", "0-7, 3-4, "):
        assert explorer_with(turned=text).state == expected


START = {"causal": True, "padding": 2, "side": "start"}
FOUND = [
    (START, "rows 0–1 are empty, as many as there are padding tokens"),
    (START | {"padding": 5}, "rows 0–4 are empty, as many as there are padding tokens"),
    (START | {"join": "or"}, '"or" brings rows 0–1 back'),
    ({"causal": True, "prefix": 4}, "nothing is left of the prefix, the future is forbidden again"),
    ({"documents": 2, "window": 8}, "the widest window is causal, within each document"),
    (
        {"documents": 2, "causal": True, "join": "or"},
        "every token sees all before it, and its own document's future",
    ),
]


@pytest.mark.parametrize("values, told", FOUND, ids=[told for _, told in FOUND])
def test_what_the_lesson_asks_for_is_noticed(values, told):
    explorer = explorer_with(**values)
    assert explorer.state.endswith(f"; found: {told}")
    for name in values:  # without any one of them it is not there
        less = explorer_with(**{n: value for n, value in values.items() if n != name})
        assert told not in less.state
    assert "found" not in explorer_with(**values, turned="2-2").state


def test_a_window_that_leaves_something_out_is_not_causal():
    assert "found" not in explorer_with(documents=2, window=3).state
