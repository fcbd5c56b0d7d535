"""The mask composer: set a control, compare words and pictures with masks written out."""

import functools
import re

import numpy as np
import pytest
import torch
from matplotlib import colormaps

from course_utils.explorers import mask_explorer
from explorer_pictures import set_controls
from tools import render_previews

N = 8
OFF = {"causal": False, "window": 0, "prefix": 0, "padding": 0, "side": "end", "documents": 1}
OFF |= {"join": "and", "turned": ""}
TITLES = ["allowed (light) or not", "weights"]
CELL = 29  # pixels, each way


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


@pytest.fixture(scope="module")
def page(chromium):
    """The explorer on a page."""
    page = render_previews.shown(chromium, mask_explorer())
    yield page
    assert page.errors == []
    page.close()


# All rectangles with their corners and colours, and whether they are seen; all texts with their
# places, colours and sizes.
DRAWN = """values => {
    model.set("values", values);
    const number = (part, names) => names.map(name => Number(part.getAttribute(name)));
    const all = name => [...document.querySelectorAll(`svg ${name}`)];
    const seen = part => getComputedStyle(part).visibility === "visible";
    return {
        rects: all("rect").map(rect => [...number(rect, ["x", "y", "width", "height"]),
            getComputedStyle(rect).fill, seen(rect)]),
        texts: all("text").map(text => [...number(text, ["x", "y"]), text.textContent,
            getComputedStyle(text).fill]),
    };
}"""
LIGHT_RED = "rgb(255, 228, 225)"


def drawn(page, **values):
    """Return the pattern and the weights that a page draws, as pictures (left, rects, texts)."""
    whole = page.evaluate(DRAWN, OFF | values)
    titles = {text: x for x, y, text, _ in whole["texts"] if text in TITLES}
    assert titles[TITLES[0]] < 280 < titles[TITLES[1]]
    pictures = []
    for title in TITLES:
        left = titles[title] - N * CELL / 2
        parts = (
            [part for part in whole[kind] if left - 40 < part[0] < left + N * CELL + 4]
            for kind in ("rects", "texts")
        )
        pictures.append((left, *parts))
    return pictures


TOP = 26


def place(left, query, key):
    """Return the corner of a cell in the picture."""
    return left + key * CELL, TOP + query * CELL


def colours(picture):
    """Return the colours (L, S, 3) of the cells; each stands alone at its place."""
    left, rects, _ = picture
    cells = {tuple(rect[:2]): rect[4] for rect in rects if rect[2:4] == [CELL, CELL]}
    assert len(cells) == N * N
    read = [
        [re.findall(r"\d+", cells[place(left, query, key)]) for key in range(N)]
        for query in range(N)
    ]
    return np.array(read, dtype=int)


def written(picture):
    """Return what is written on the cells, by query and key, and in which colours."""
    left, _, texts = picture
    on = {(x, y): (text, colour) for x, y, text, colour in texts}
    middle = CELL / 2
    at = {
        pair: (place(left, *pair)[0] + middle, place(left, *pair)[1] + middle + 4.5)
        for pair in np.ndindex(N, N)
    }
    return {pair: on[at[pair]] for pair in at}


def marked(picture):
    """Return the queries marked as empty, and check that a mark covers its row and no other."""
    left, rects, _ = picture
    rows = []
    for x, y, width, height, _, seen in (rect for rect in rects if rect[4] == LIGHT_RED):
        row = round((y + height / 2 - TOP) / CELL - 0.5)
        assert left <= x <= left + 2 and left + N * CELL - 2 <= x + width <= left + N * CELL
        above, below = TOP + row * CELL, TOP + (row + 1) * CELL
        assert above < y <= above + 2 and below - 2 <= y + height < below
        rows += [row] * seen
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
def test_words_and_pictures_show_the_mask_the_weights_and_the_empty_rows(page, values, mask):
    explorer = explorer_with(**values)
    assert (pattern_told(explorer) == mask).all()
    assert f"{mask.sum()} of 64 pairs allowed" in explorer.state
    pattern, weights = drawn(page, **values)
    check_pictures(pattern, weights, mask)
    empty = np.flatnonzero(~mask.any(axis=-1)).tolist()
    assert marked(pattern) == marked(weights) == empty
    assert ("empty rows: none" in explorer.state) == (not empty)


def check_pictures(pattern, weights, mask):
    """Check the colours of a mask and of its weights, and that those are written where allowed."""
    cividis = colormaps["cividis"]
    np.testing.assert_array_equal(colours(pattern), cividis(mask * 1.0, bytes=True)[..., :3])
    assert {text for text, _ in written(pattern).values()} == {""}
    expected = scores().masked_fill(~torch.tensor(mask), -torch.inf).softmax(dim=-1).nan_to_num()
    shades = cividis(expected.numpy(), bytes=True)[..., :3].astype(int)
    # eleven shades with lines between them are so near to the map's 256
    assert abs(colours(weights) - shades).max() <= 8
    for pair, (text, colour) in written(weights).items():
        assert (text != "") == mask[pair]
        if text:
            assert abs(float(text) - expected[pair].item()) < 0.005 + 1e-5
            assert contrast(colour, shades[pair]) >= 4.5  # as WCAG asks for small letters


def contrast(colour, ground):
    """Return the contrast of two colours, the first as the page writes it; WCAG 2.1."""
    shades = np.array([re.findall(r"\d+", colour), ground], dtype=float) / 255
    linear = np.where(shades <= 0.04045, shades / 12.92, ((shades + 0.055) / 1.055) ** 2.4)
    darker, lighter = sorted(linear @ [0.2126, 0.7152, 0.0722] + 0.05)
    return lighter / darker


def test_empty_rows_are_named_and_hatched(page):
    explorer = explorer_with(causal=True, padding=2, side="start")
    assert "empty rows: 0–1;" in explorer.state and "0: none, 1: none, 2: 2," in explorer.state
    drawn(page, causal=True, padding=2, side="start")
    lines = page.locator("svg path").evaluate_all(
        """paths => paths.filter(path => getComputedStyle(path).visibility === "visible")
            .map(path => [path.getBBox().height, getComputedStyle(path).stroke])"""
    )
    # two rows of each picture, red
    assert lines == [[pytest.approx(CELL - 4, abs=1), "rgb(214, 39, 40)"]] * 4


def test_both_pictures_say_what_they_show_and_number_their_rows_and_columns(page):
    for left, rects, texts in drawn(page):
        assert [left, TOP, N * CELL, N * CELL, "none", True] in rects
        middle = left + CELL * N / 2
        said = [(x, text) for x, y, text, _ in texts if text in (*TITLES, "keys")]
        assert said[0][1] in TITLES and said == [(middle, said[0][1]), (middle, "keys")]
        bottom = TOP + N * CELL
        below = {text: x for x, y, text, _ in texts if y == bottom + 17}
        assert below == {str(key): left + (key + 0.5) * CELL for key in range(N)}
        beside = {text: y for x, y, text, _ in texts if x == left - 7}
        assert beside == {str(row): TOP + (row + 0.5) * CELL + 4.5 for row in range(N)}
    assert (
        page.locator("svg text", has_text="queries").evaluate_all(
            "all => all.map(text => text.getAttribute('transform').match(/rotate.*/)[0])"
        )
        == ["rotate(-90)"] * 2
    )


def test_the_words_name_the_masks_and_how_they_are_joined():
    assert explorer_with().state.startswith("no mask: ")
    two = explorer_with(causal=True, padding=1)
    assert two.state.startswith("causal and 1 of padding at the end: ")
    every = {"causal": True, "window": 3, "prefix": 4, "padding": 2, "side": "start"}
    five = explorer_with(**every, documents=2, join="or")
    assert five.state.startswith(
        "causal or window of 3 or prefix of 4 or 2 of padding at the start or 2 documents: "
    )


def test_every_number_has_its_range_and_every_list_its_words():
    controls = mask_explorer().controls
    starts = {name: control["value"] for name, control in controls.items()}
    assert starts == OFF | {"causal": True, "padding": 2}
    ranges = {n: (c["low"], c["high"]) for n, c in controls.items() if c["kind"] == "number"}
    of_all = (0, N)
    assert ranges == {"window": of_all, "prefix": of_all, "padding": of_all, "documents": (1, 4)}
    assert controls["side"]["options"] == ["end", "start"]
    assert controls["join"]["options"] == ["and", "or"]


def press(page, picture, query, key, across=0.5, down=0.5):
    """Press a cell of a picture, at a share of its width and height."""
    x, y = place(picture[0], query, key)
    page.locator("svg").click(position={"x": x + across * CELL, "y": y + down * CELL})


def test_a_press_turns_a_pair_over_and_a_second_turns_it_back(page):
    before = drawn(page, causal=True)
    pattern, weights = before
    said = page.get_by_role("status").inner_text()
    press(page, pattern, 0, 7, 0.95, 0.05)
    press(page, weights, 3, 0, 0.05, 0.95)
    values = page.evaluate("model.get('values')")
    assert values == OFF | {"causal": True, "turned": "0-7, 3-0"}
    mask = j <= i
    mask[0, 7], mask[3, 0] = True, False
    explorer = explorer_with(**values)
    assert (pattern_told(explorer) == mask).all()
    check_pictures(*drawn(page, **values), mask)
    assert explorer.state.startswith("causal, pairs turned over: 0-7, 3-0: ")
    page.locator("svg").click(position={"x": 300, "y": 100})  # between the pictures
    page.locator("svg").click(position={"x": 100, "y": TOP + N * CELL + 10})
    press(page, pattern, 3, 0)
    press(page, weights, 0, 7)
    assert page.evaluate("model.get('values')") == OFF | {"causal": True}
    assert drawn(page, causal=True) == before
    assert page.get_by_role("status").inner_text() == said


def test_a_press_that_is_held_turns_the_pair_over_where_it_ends(page):
    pattern, _ = drawn(page)
    box = page.locator("svg").bounding_box()
    x, y = place(pattern[0], 2, 1)
    page.mouse.move(box["x"] + x + 9, box["y"] + y + 9)
    page.mouse.down()
    page.mouse.move(box["x"] + x + 99, box["y"] + y + 99, steps=9)
    page.mouse.up()
    assert page.evaluate("model.get('values').turned") == "5-4"


def test_the_last_allowed_pair_of_a_row_turned_over_empties_it(page):
    values = {"causal": True, "turned": "0-0"}
    assert "empty rows: 0;" in explorer_with(**values).state
    assert [marked(picture) for picture in drawn(page, **values)] == [[0], [0]]


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


def test_a_press_allows_a_pair_in_a_row_that_is_empty(page):
    values = {"causal": True, "padding": 2, "side": "start"}
    for picture, pair in zip(drawn(page, **values), ["0-0", "0-0, 1-7"], strict=True):
        press(page, picture, *map(int, pair[-3:].split("-")))
        assert page.evaluate("model.get('values').turned") == pair
