"""The explorer of positions: hands, product and words are those of turned vectors."""

import cmath
import math

import numpy as np
import pytest

from course_utils.explorers import positions_explorer
from explorer_pictures import axes, headings, press, set_controls

PLACES = [
    (12, 9, 4, "halves"),
    (0, 31, 2, "halves"),
    (5, 5, 1, "interleaved"),
    (30, 2, 6, "interleaved"),
]
by_place = pytest.mark.parametrize("i, j, power, layout", PLACES)
HANDS = {"halves": [1, 1, 1, 1], "interleaved": [1 + 1j, 1 + 1j, 0, 0]}  # at place 0


@pytest.fixture
def explorer():
    return positions_explorer()


def turned(place, power, layout):
    """Return the four hands at a place, as complex numbers."""
    speeds = [10 ** (-power * m / 4) for m in range(4)]
    pairs = zip(HANDS[layout], speeds, strict=True)
    return [z * cmath.exp(1j * place * speed) for z, speed in pairs]


def product(distance, power, layout):
    at, home = turned(distance, power, layout), turned(0, power, layout)
    return sum((a * b.conjugate()).real for a, b in zip(at, home, strict=True))


@by_place
def test_hands_stand_where_the_turned_pairs_point(explorer, i, j, power, layout):
    set_controls(explorer, i=i, j=j, power=power, layout=layout)
    _, *clocks, _ = axes(explorer)
    q, k = turned(i, power, layout), turned(j, power, layout)
    for m, ax in enumerate(clocks):
        _, of_q, of_k = ax.lines
        for hand, right in ((of_q, q[m]), (of_k, k[m])):
            tip = [[0, 0], [right.real, right.imag]]
            np.testing.assert_allclose(hand.get_xydata(), tip, atol=1e-9)
        entries = (m, m + 4) if layout == "halves" else (2 * m, 2 * m + 1)
        assert ax.texts[0].get_text() == f"entries {entries[0]}, {entries[1]}"
        assert headings(ax)[0] == f"clock {m}"


@by_place
def test_the_curve_is_the_product_at_every_distance_and_the_point_is_here(
    explorer, i, j, power, layout
):
    told = set_controls(explorer, i=i, j=j, power=power, layout=layout).state
    curve = axes(explorer)[-1]
    line, here = curve.lines[0], curve.lines[1]
    assert line.get_xdata().tolist() == list(range(-31, 32))
    right = [product(distance, power, layout) for distance in range(-31, 32)]
    np.testing.assert_allclose(line.get_ydata(), right, atol=1e-9)
    assert here.get_xdata() == [i - j]
    assert here.get_ydata()[0] == pytest.approx(product(i - j, power, layout), abs=1e-9)
    assert f"query at {i}, key at {j}, {i - j} before it" in told
    assert f"product {product(i - j, power, layout):z.2f}, base {10**power:,}, {layout}" in told


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
                told = explorer._update(i, j, power, layout)  # without a picture
                off = abs(math.remainder(distance, 2 * math.pi)) * 180 / math.pi
                meet = layout == "halves" and distance != 0 and off < 20
                half = layout == "halves" and 31 * 10 ** (-power * 3 / 4) > math.pi
                assert ("of clock 0 meet again" in told) == meet
                assert ("even the slowest clock" in told) == (half and not meet)
                assert ("two clocks have no hands" in told) == (layout == "interleaved")
    assert "found" not in explorer.state


@pytest.mark.parametrize("y, name", [(0.5, "i"), (-0.5, "j")])
def test_a_press_above_the_line_moves_q_and_below_it_k(explorer, y, name):
    before = {each: explorer.controls[each].value for each in "ij"}
    press(explorer, axes(explorer)[0], 20.2, y)
    assert explorer.controls[name].value == 20
    (other,) = set("ij") - {name}
    assert explorer.controls[other].value == before[other]
    press(explorer, axes(explorer)[0], 31.7, y)
    assert explorer.controls[name].value == 31
    press(explorer, axes(explorer)[-1], 3, 0)  # the curve is not to be pressed
    assert explorer.controls[name].value == 31


def test_letters_stand_at_their_places(explorer):
    line, *_ = axes(set_controls(explorer, i=7, j=22))
    q, k = line.texts
    assert (q.get_text(), q.get_position()[0], k.get_text(), k.get_position()[0]) == (
        "q",
        7,
        "k",
        22,
    )
    assert q.get_position()[1] > 0 > k.get_position()[1]
