"""The explorer of positions: hands, product and words are those of turned vectors."""

import cmath
import math

import pytest

from course_utils.explorers import positions_explorer
from explorer_pictures import set_controls
from tools import render_previews

PLACES = [
    (12, 9, 4, "halves"),
    (0, 31, 2, "halves"),
    (5, 5, 1, "interleaved"),
    (30, 2, 6, "interleaved"),
]
by_place = pytest.mark.parametrize("i, j, power, layout", PLACES)
HANDS = {"halves": [1, 1, 1, 1], "interleaved": [1 + 1j, 1 + 1j, 0, 0]}  # at place 0


Q, K, CURVE, HERE = "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728"


@pytest.fixture
def explorer():
    return positions_explorer()


@pytest.fixture(scope="module")
def page(chromium):
    page = render_previews.shown(chromium, positions_explorer())
    yield page
    page.close()


def drawn(page, **values):
    """Give the explorer on a page these values; return its texts, frames, hands, curve, point."""
    return page.evaluate(
        """values => {
            model.set("values", {...model.get("values"), ...values});
            const number = (part, names) => names.map(name => Number(part.getAttribute(name)));
            const all = name => [...document.querySelectorAll(`svg ${name}`)];
            return {
                texts: all("text").map(text => [text.textContent, ...number(text, ["x", "y"])]),
                frames: all("rect[fill=none]")
                    .map(rect => number(rect, ["x", "y", "width", "height"])),
                hands: all("line").filter(line => line.getAttribute("stroke").startsWith("#"))
                    .map(line => [line.getAttribute("stroke"),
                                  ...number(line, ["x1", "y1", "x2", "y2"])]),
                curve: [...all("polyline")[0].points].map(({ x, y }) => [x, y]),
                here: number(all("circle").at(-1), ["cx", "cy"]),
            };
        }""",
        values,
    )


# Pixels are drawn to a hundredth; half of one, and the same in what it is measured from.
PIXEL = 0.011


def turned(place, power, layout):
    """Return the four hands at a place, as complex numbers."""
    speeds = [10 ** (-power * m / 4) for m in range(4)]
    pairs = zip(HANDS[layout], speeds, strict=True)
    return [z * cmath.exp(1j * place * speed) for z, speed in pairs]


def product(distance, power, layout):
    at, home = turned(distance, power, layout), turned(0, power, layout)
    return sum((a * b.conjugate()).real for a, b in zip(at, home, strict=True))


@by_place
def test_hands_stand_where_the_turned_pairs_point(page, i, j, power, layout):
    picture = drawn(page, i=i, j=j, power=power, layout=layout)
    _, *clocks, _ = picture["frames"]
    q, k = turned(i, power, layout), turned(j, power, layout)
    named = {text: x for text, x, _ in picture["texts"]}
    assert len(clocks) == len(q) == len(picture["hands"]) / 2
    for m, (left, top, width, height) in enumerate(clocks):
        middle, radius = (left + width / 2, top + height / 2), width / 3.2
        for (colour, *ends), right in zip(picture["hands"][2 * m :], (q[m], k[m]), strict=False):
            tip = middle[0] + radius * right.real, middle[1] - radius * right.imag
            assert ends == pytest.approx([*middle, *tip], abs=PIXEL)
            assert colour == (Q if right is q[m] else K)
        entries = (m, m + 4) if layout == "halves" else (2 * m, 2 * m + 1)
        assert named[f"clock {m}: entries {entries[0]}, {entries[1]}"] == middle[0]


@by_place
def test_the_words_say_both_places_and_the_product(explorer, i, j, power, layout):
    told = set_controls(explorer, i=i, j=j, power=power, layout=layout).state
    assert f"query at {i}, key at {j}, {i - j} before it" in told
    assert f"product {product(i - j, power, layout):z.2f}, base {10**power:,}, {layout}" in told


@by_place
def test_the_curve_is_the_product_at_every_distance_and_the_point_is_here(
    page, i, j, power, layout
):
    picture = drawn(page, i=i, j=j, power=power, layout=layout)
    left, top, width, height = picture["frames"][-1]

    def at(distance):
        share = product(distance, power, layout) / 8.8  # from -4.4 to 4.4
        return [left + width * (distance + 31) / 62, top + height * (0.5 - share)]

    right = [at(distance) for distance in range(-31, 32)]
    for corner, expected in zip(picture["curve"], right, strict=True):
        assert corner == pytest.approx(expected, abs=PIXEL)
    assert picture["here"] == pytest.approx(at(i - j), abs=PIXEL)
    for tick in (-30, 0, 30):  # the ticks under it say the distances
        assert [f"{tick}".replace("-", "−"), pytest.approx(at(tick)[0], abs=PIXEL),
                top + height + 17] in picture["texts"]  # fmt: skip


def test_moved_by_the_same_number_of_places_the_product_stays(explorer):
    told = {
        set_controls(explorer, i=j + 4, j=j).state.partition("product ")[2] for j in range(0, 28, 3)
    }
    assert len(told) == 1


def test_what_the_lesson_asks_for_is_noticed_when_it_is_there_and_only_then(explorer):
    """Each distance, base and layout, against the questions written out."""
    for layout in HANDS:
        for power in range(1, 7):
            for distance in range(-31, 32):
                i, j = max(distance, 0), max(-distance, 0)
                told = set_controls(explorer, i=i, j=j, power=power, layout=layout).state
                off = abs(math.remainder(distance, 2 * math.pi)) * 180 / math.pi
                meet = layout == "halves" and distance != 0 and off < 20
                half = layout == "halves" and 31 * 10 ** (-power * 3 / 4) > math.pi
                assert ("of clock 0 meet again" in told) == meet
                assert ("even the slowest clock" in told) == (half and not meet)
                assert ("two clocks have no hands" in told) == (layout == "interleaved")


def test_it_opens_on_nothing_found(explorer):
    assert "found" not in explorer.state


def test_controls_have_the_ranges_of_the_lesson(explorer):
    i, j, power, layout = explorer.controls.values()
    for control, limits in [(i, [0, 31, 1]), (j, [0, 31, 1]), (power, [1, 6, 1])]:
        assert [control[name] for name in ("low", "high", "step")] == limits
    assert layout["options"] == ["halves", "interleaved"]


def place_on(page, x, y):
    """Return where in the window a place of the line is, y from -1 to 1."""
    svg = page.locator("svg").bounding_box()
    left, top, width, height = drawn(page)["frames"][0]
    return svg["x"] + left + width * (x + 0.8) / 32.6, svg["y"] + top + height * (0.5 - y / 2)


def values(page):
    return page.evaluate("model.get('values')")


@pytest.mark.parametrize("y, name", [(0.5, "i"), (-0.5, "j")])
def test_a_press_above_the_line_moves_q_and_below_it_k_and_no_further_than_its_end(page, y, name):
    drawn(page, i=12, j=9)
    before = values(page)
    page.mouse.click(*place_on(page, 20.2, y))
    assert values(page) == before | {name: 20}
    page.mouse.click(*place_on(page, 31.7, y))
    assert values(page) == before | {name: 31}
    page.mouse.click(*place_on(page, 3, -9))  # the clocks are not to be pressed
    assert values(page) == before | {name: 31}


def test_what_is_dragged_stays_in_the_hand_wherever_it_goes(page):
    drawn(page, i=12, j=9, power=4, layout="halves")
    page.mouse.move(*place_on(page, 12, 0.5))
    page.mouse.down()
    page.mouse.move(*place_on(page, 15, -0.5), steps=4)  # over to the side of k
    assert values(page) == {"i": 15, "j": 9, "power": 4, "layout": "halves"}
    assert "found: at distance 6 the hands" in page.get_by_role("status").inner_text()
    page.mouse.move(*place_on(page, -5, -6), steps=4)  # out of the line
    assert values(page)["i"] == 0 and values(page)["j"] == 9
    page.mouse.up()
    page.mouse.move(*place_on(page, 20, 0.5), steps=4)
    assert values(page)["i"] == 0
    page.mouse.move(*place_on(page, 9, -0.5))
    page.mouse.down()
    page.mouse.move(*place_on(page, 4, 0.5), steps=4)
    page.mouse.up()
    assert (values(page)["i"], values(page)["j"]) == (0, 4)


def test_a_finger_drags_on_the_line_and_scrolls_the_page_elsewhere(page):
    held = page.locator("svg, svg *").evaluate_all(
        """parts => parts.filter(part => getComputedStyle(part).touchAction !== "auto")
            .map(part => part.getAttribute("fill"))"""
    )
    assert held == ["transparent"]


def test_letters_stand_at_their_places(page):
    picture = drawn(page, i=7, j=22)
    (left, top, width, height), *_ = picture["frames"]
    letters = {text: (x, y) for text, x, y in picture["texts"] if text in ("q", "k")}
    for letter, place in (("q", 7), ("k", 22)):
        assert letters[letter][0] == pytest.approx(left + width * (place + 0.8) / 32.6, abs=PIXEL)
    assert top < letters["q"][1] < top + height / 2 < letters["k"][1] - 10
    ticks = {text: x for text, x, y in picture["texts"] if y == top + height + 17}
    assert ticks["30"] == pytest.approx(left + width * 30.8 / 32.6, abs=PIXEL)
