"""The explorer of the ring: its tiles, work and waiting are those of the whole causal mask."""

import re
from fractions import Fraction

import nbformat
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

from course_utils.explorers import ring_explorer
from course_utils.parallel import places
from explorer_pictures import axes, headings, press, set_controls
from stored import ROOT, code

SAID = {0: "0", Fraction(1, 2): "½", 1: "1"}
SETTINGS = [(2, True, False, 1), (5, True, False, 2), (8, True, True, 3), (4, True, True, 0),
            (3, False, True, 2), (7, False, False, 4), (8, True, False, 7)]  # fmt: skip
by_setting = pytest.mark.parametrize("ranks, causal, zigzag, step", SETTINGS)
every_ring = pytest.mark.parametrize(
    "ranks, zigzag", [(ranks, zigzag) for ranks in range(2, 9) for zigzag in (False, True)]
)


@pytest.fixture(scope="module")
def the_explorer():
    return ring_explorer()


@pytest.fixture
def explorer(the_explorer):
    return set_controls(the_explorer, ranks=8, causal=True, zigzag=False, step=2)


def turned(explorer, ranks, causal, zigzag, step):
    return set_controls(explorer, ranks=ranks, causal=causal, zigzag=zigzag, step=step)


def pieces_of(rank, ranks, zigzag):
    return [rank, 2 * ranks - 1 - rank] if zigzag else [rank]


def share(row, column, causal):
    """Return which share of a piece's queries and another's keys is allowed, of many tokens."""
    if not causal or row > column:
        return Fraction(1)
    return Fraction(row == column, 2)


def meetings(ranks, zigzag, step):
    """Return (rank, row, column) of the tiles that meet: keys move on by one rank in each step."""
    return [
        (rank, row, column)
        for rank in range(ranks)
        for row in pieces_of(rank, ranks, zigzag)
        for column in pieces_of((rank - step) % ranks, ranks, zigzag)
    ]


def work_of(ranks, causal, zigzag):
    """Return the work of each rank in each step in blocks, exactly: [rank][step]."""
    work = [[Fraction(0)] * ranks for _ in range(ranks)]
    for step in range(ranks):
        for rank, row, column in meetings(ranks, zigzag, step):
            work[rank][step] += share(row, column, causal) / (1 + zigzag) ** 2
    return work


def waits_of(work):
    """Return how long each rank waits in each step for the busiest: [rank][step]."""
    longest = [max(of_step) for of_step in zip(*work, strict=True)]
    return [[a - b for a, b in zip(longest, row, strict=True)] for row in work]


def numbers(text):
    return [int(number) for number in re.findall(r"\d+", text)]


# Words


@by_setting
def test_words_tell_keys_work_who_waits_and_the_time(explorer, ranks, causal, zigzag, step):
    told = turned(explorer, ranks, causal, zigzag, step).state
    work = work_of(ranks, causal, zigzag)
    waits = waits_of(work)
    assert told.startswith(f"step {step} of 0 to {ranks - 1}: ranks 0 to {ranks - 1} hold ")
    keys = re.search(r"keys of ranks ([\d, ]+);", told)[1]
    assert numbers(keys) == [(rank - step) % ranks for rank in range(ranks)]
    blocks = re.search(r"in each block: ([\d½, ]+);", told)[1].split(", ")
    assert blocks == [SAID[row[step]] for row in work]
    idle = [rank for rank in range(ranks) if waits[rank][step]]
    waiting = re.search(r"; (nobody waits|ranks? ([\d, ]+) waits?);", told)
    assert numbers(waiting[2] or "") == idle
    assert ("waits" in waiting[0]) == (len(idle) < 2)
    spent = sum(work[0][: step + 1]) + sum(waits[0][: step + 1])
    whole = sum(work[0]) + sum(waits[0])
    assert f"time so far {float(spent):g} of {float(whole):g} blocks" in told
    part = sum(sum(row[: step + 1]) for row in waits) / (ranks * spent)
    assert f", {float(part):.0%} of it waiting" in told


@pytest.fixture(scope="module")
def shares():
    """The function of the lesson."""
    cells = code(nbformat.read(ROOT / "notebooks" / "11_beyond_one_device.ipynb", as_version=4))
    (source,) = [cell.source for cell in cells if "def shares(" in cell.source]
    (definition,) = [part for part in source.split("\n\n\n") if part.startswith("def shares(")]
    scope = {"torch": torch, "places": places}
    exec(definition, scope)
    return scope["shares"]


@every_ring
def test_work_and_time_are_those_that_the_lesson_counts(explorer, shares, ranks, zigzag):
    work = shares(places(ranks * (1 + zigzag), ranks, zigzag))  # (W ranks, W steps)
    longest = work.amax(dim=0)  # (W steps,)
    for step in range(ranks):
        told = explorer._update(step, ranks, True, zigzag)  # without a picture
        blocks = re.search(r"in each block: ([\d½, ]+);", told)[1].replace("½", "0.5")
        assert [float(each) for each in blocks.split(", ")] == work[:, step].tolist()
        spent = longest[: step + 1].sum()
        assert f"time so far {spent:g} of {longest.sum():g} blocks" in told
        waited = 1 - work[:, : step + 1].sum() / (ranks * spent)
        assert f", {waited:.0%} of it waiting" in told


@pytest.mark.parametrize("causal", [False, True])
@every_ring
def test_what_the_lesson_asks_for_is_noticed_at_the_last_step_and_only_then(
    explorer, ranks, zigzag, causal
):
    for step in range(ranks - 1):
        assert "found" not in explorer._update(step, ranks, causal, zigzag)  # without a picture
    told = explorer._update(ranks - 1, ranks, causal, zigzag)
    waits = [sum(row) for row in waits_of(work_of(ranks, causal, zigzag))]
    in_order = causal and not zigzag
    assert ("never waits" in told) == any(waits) == in_order
    if in_order:
        # in order the first rank has only its own keys to look at, and the last has all
        most = float(waits[0] / (ranks - Fraction(1, 2)))
        assert f"found: rank {ranks - 1} never waits, rank 0 most, {most:.0%} of the time" in told
        assert (waits[-1], max(waits)) == (0, waits[0])
    assert ("4 ranks are the fewest that in order wait more than 40% of" in told) == (
        in_order and ranks == 4
    )
    equal = "found: all ranks have equal work in every step; a mask cuts through tiles only in "
    assert (equal + "step 0" in told) == (causal and zigzag)
    assert ("found" in told) == causal


def test_three_ranks_wait_for_two_fifths_and_no_more():
    """(W − 1) / (2W − 1) of all time: the limit of the question is met exactly."""
    for ranks in range(2, 9):
        work = work_of(ranks, True, False)
        time = ranks * (ranks - Fraction(1, 2))
        part = (time - sum(map(sum, work))) / time
        assert part == Fraction(ranks - 1, 2 * ranks - 1)
        assert (part > Fraction(2, 5)) == (ranks >= 4) and (part == Fraction(2, 5)) == (ranks == 3)


# Picture


def boxes(collection):
    """Return left, top, right, bottom of each polygon, and how many corners it has."""
    found = [path.vertices for path in collection.get_paths()]
    return [
        (tuple(np.round([*each.min(axis=0), *each.max(axis=0)], 9)), len(set(map(tuple, each))))
        for each in found
    ]


def square(row, column, pieces):
    ends = column / pieces, row / pieces, (column + 1) / pieces, (row + 1) / pieces
    return tuple(np.round(ends, 9))


def corners(part):
    return 3 if part == Fraction(1, 2) else 4


def paler(rank, face):
    """Return how much of the rank's colour a face has."""
    whole = 1 - np.array(to_rgb(f"C{rank if rank < 7 else 9}"))
    strength = (1 - np.array(face[:3])) / np.where(whole == 0, np.nan, whole)
    (value,) = set(np.round(strength[~np.isnan(strength)], 6))
    return value


@by_setting
def test_tiles_are_done_in_this_step_to_come_or_never(explorer, ranks, causal, zigzag, step):
    ax = axes(turned(explorer, ranks, causal, zigzag, step))[0]
    tiles, now, met, _ = ax.collections
    pieces = ranks * (1 + zigzag)
    every = {
        (square(row, column, pieces), corners(share(row, column, causal))): (rank, at)
        for at in range(ranks)
        for rank, row, column in meetings(ranks, zigzag, at)
        if share(row, column, causal)
    }
    assert sorted(boxes(tiles)) == sorted(every)
    for each, face in zip(boxes(tiles), tiles.get_facecolor(), strict=True):
        rank, at = every[each]
        assert paler(rank, face) == (0.25 if at < step else 0)
    assert sorted(boxes(now)) == sorted(each for each, (_, at) in every.items() if at == step)
    for path in [*tiles.get_paths(), *now.get_paths()]:
        if len({*map(tuple, path.vertices)}) == 3:  # what is allowed is below the diagonal
            box = path.get_extents()
            assert (box.x1, box.y0) not in {*map(tuple, path.vertices)}
    for each, face in zip(boxes(now), now.get_facecolor(), strict=True):
        assert paler(every[each][0], face) == 0.65
    here = meetings(ranks, zigzag, step)
    nothing = [(row, column) for _, row, column in here if not share(row, column, causal)]
    assert sorted(boxes(met)) == sorted((square(*each, pieces), 4) for each in nothing)
    (future,) = ax.patches
    assert future.get_visible() == causal
    assert sorted(map(tuple, future.get_xy()[:3])) == [(0, 0), (1, 0), (1, 1)]

    # and without colour: a dot where a tile is done, the rank where it is in this step
    (dots,) = ax.lines
    done = [where for (where, _), (_, at) in every.items() if at < step]
    assert len(dots.get_xydata()) == len(done)
    for x, y in dots.get_xydata():
        assert sum(a < x < c and b < y < d for a, b, c, d in done) == 1
    labels = [text for text in ax.texts if text.get_text() and min(text.get_position()) > 0]
    found = [(text.get_text(), *text.get_position()) for text in labels]
    assert len(found) == len(here)
    for rank, row, column in here:
        left, top, right, bottom = square(row, column, pieces)
        assert [n for n, x, y in found if left < x < right and top < y < bottom] == [str(rank)]


@by_setting
def test_strips_name_the_rank_of_queries_and_who_holds_the_keys_now(
    explorer, ranks, causal, zigzag, step
):
    ax = axes(turned(explorer, ranks, causal, zigzag, step))[0]
    *_, strips = ax.collections
    pieces = ranks * (1 + zigzag)
    beside, above = {}, {}
    for text in ax.texts:
        x, y = text.get_position()
        if text.get_text() and min(x, y) < 0:
            side, along = (beside, y) if x < 0 else (above, x)
            side[int(along * pieces)] = int(text.get_text())
    holder = {
        piece: rank for rank in range(ranks) for piece in pieces_of(rank, ranks, zigzag)
    }  # where the text's pieces are at home
    assert beside == holder
    assert above == {piece: (rank + step) % ranks for piece, rank in holder.items()}
    assert len(strips.get_paths()) == 2 * pieces
    for (box, _), face in zip(boxes(strips), strips.get_facecolor(), strict=True):
        left, top, right, bottom = box
        row, column = (int(mean * pieces) for mean in ((top + bottom) / 2, (left + right) / 2))
        assert paler(beside[row] if right < 0 else above[column], face) == 0.25
        assert right < 0 or bottom < 0  # not over the map


@by_setting
def test_each_rank_has_a_row_with_its_keys_its_work_and_its_time(
    explorer, ranks, causal, zigzag, step
):
    ax = axes(turned(explorer, ranks, causal, zigzag, step))[1]
    work = work_of(ranks, causal, zigzag)
    waits = waits_of(work)
    rows = [text for text in ax.texts if text.get_text()]
    assert [text.get_text() for text in rows] == [
        f"rank {r}: keys of rank {(r - step) % ranks}, work {SAID[work[r][step]]}"
        for r in range(ranks)
    ]
    worked, waited = ax.patches[: len(ax.patches) // 2], ax.patches[len(ax.patches) // 2 :]
    assert [bar.get_visible() for bar in worked] == [rank < ranks for rank in range(8)]
    for rank in range(ranks):
        bar, rest = worked[rank], waited[rank]
        done, lost = (sum(each[rank][: step + 1]) / ranks for each in (work, waits))
        assert (bar.get_x(), bar.get_width()) == (0, pytest.approx(float(done)))
        assert rest.get_visible() == bool(lost)
        assert rest.get_x() == pytest.approx(float(done))
        assert rest.get_width() == pytest.approx(float(lost))
        top, bottom = rank / ranks, (rank + 1) / ranks
        for each in (bar, rest):
            assert top < each.get_y() < each.get_y() + each.get_height() < bottom
        assert top < rows[rank].get_position()[1] < bar.get_y()
        assert rest.get_hatch() and not bar.get_hatch()
    assert not any(bar.get_visible() for bar in waited[ranks:])


def test_headings_and_legends_say_what_is_what(explorer):
    tiles, bars = axes(explorer)
    title, below, beside = headings(tiles)
    assert (title, beside) == ("keys: which rank holds them now", "queries: their rank")
    assert below == "pieces of the text, from the first"
    title, below, _ = headings(bars)
    assert title == "ranks: keys now, work of a block"
    assert below == "time so far (1: all steps, no mask)"
    assert tiles.get_ylim()[0] > tiles.get_ylim()[1]  # the first queries are on top
    assert bars.get_xlim() == (0, 1)
    names = [text.get_text() for text in tiles.get_legend().get_texts()]
    assert names == ["done", "to come", "in this step, by that rank", "met, nothing to do",
                     "future: never"]  # fmt: skip
    assert [text.get_text() for text in bars.get_legend().get_texts()] == ["work", "waiting"]


# Controls


def step_of(explorer):
    """Return the value of the box and of the slider, and where both end."""
    step = explorer.controls["step"]
    assert step.box.max == step.slider.max and step.slider.min == 0
    return step.box.value, step.slider.value, step.slider.max


@pytest.mark.parametrize("ranks, zigzag", [(8, False), (3, True)])
def test_a_press_on_a_tile_goes_to_the_step_in_which_its_queries_meet_its_keys(
    explorer, ranks, zigzag
):
    set_controls(explorer, ranks=ranks, zigzag=zigzag)
    tiles, bars = axes(explorer)
    pieces = ranks * (1 + zigzag)
    for step in range(ranks):
        for _, row, column in meetings(ranks, zigzag, step)[::3]:
            for inside in (0.1, 0.9):
                set_controls(explorer, step=(step + 1) % ranks)
                press(explorer, tiles, (column + inside) / pieces, (row + inside) / pieces)
                assert step_of(explorer)[:2] == (step, step)
    before = explorer.state
    press(explorer, tiles, -0.05, 0.5)  # the strips
    press(explorer, tiles, 0.5, -0.05)
    press(explorer, bars, 0.5, 0.5)
    assert explorer.state == before


def test_the_last_step_stays_the_last_and_one_before_it_stays_where_it_is(explorer):
    set_controls(explorer, step=7, ranks=3)
    set_controls(explorer, ranks=3)
    assert step_of(explorer) == (2, 2, 2) and explorer.state.startswith("step 2 of 0 to 2")
    set_controls(explorer, ranks=6)
    assert step_of(explorer) == (5, 5, 5)
    set_controls(explorer, step=3)
    set_controls(explorer, ranks=8)
    assert step_of(explorer) == (3, 3, 7)
    set_controls(explorer, ranks=2)
    assert step_of(explorer) == (1, 1, 1) and explorer.state.startswith("step 1 of 0 to 1")


def test_it_opens_as_the_lesson_does_with_eight_ranks_in_order_under_a_mask():
    fresh = ring_explorer()
    starts = {name: control.value for name, control in fresh.controls.items()}
    assert starts == {"step": 2, "ranks": 8, "causal": True, "zigzag": False}
    ranks = fresh.controls["ranks"].slider
    assert (ranks.min, ranks.max) == (2, 8) and step_of(fresh) == (2, 2, 7)
    assert "ranks 0, 1 wait; time so far 2.5 of 7.5 blocks, 15% of it waiting" in fresh.state
