"""The explorer of the ring: its tiles, work and waiting are those of the whole causal mask."""

import re
from fractions import Fraction

import nbformat
import pytest
import torch
from matplotlib.colors import to_rgb

from course_utils.explorers import ring_explorer
from course_utils.parallel import shard_positions
from explorer_pictures import set_controls
from stored_notebooks import ROOT, code
from tools import render_previews

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
    scope = {"torch": torch, "shard_positions": shard_positions}
    exec(definition, scope)
    return scope["shares"]


@every_ring
def test_work_and_time_are_those_that_the_lesson_counts(explorer, shares, ranks, zigzag):
    work = shares(shard_positions(ranks * (1 + zigzag), ranks, zigzag))  # (W ranks, W steps)
    longest = work.amax(dim=0)  # (W steps,)
    for step in range(ranks):
        told = turned(explorer, ranks, True, zigzag, step).state
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
        assert "found" not in turned(explorer, ranks, causal, zigzag, step).state
    told = turned(explorer, ranks, causal, zigzag, ranks - 1).state
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


def test_in_every_state_the_page_says_what_python_says(explorer, page):
    every = [
        {"ranks": ranks, "causal": causal, "zigzag": zigzag, "step": step}
        for ranks in range(2, 9)
        for causal in (False, True)
        for zigzag in (False, True)
        for step in range(ranks)
    ]
    said = page.evaluate("all => all.map(module.say)", every)
    assert said == [turned(explorer, **values).state for values in every]


# Picture

LEFT, TOP, SIDE = 54, 50, 264  # of the map, in pixels of the picture
STRIP = [LEFT - 24, LEFT - 4], [TOP - 24, TOP - 4]  # beside the map, and above it
BARS = [344, 50, 204, 264]  # left, top, width and height
PALE, FULL = 0.25, 0.65  # of a rank's colour


@pytest.fixture(scope="module")
def page(chromium):
    page = render_previews.shown(chromium, ring_explorer())
    yield page
    assert page.errors == []
    page.close()


DRAWN = """values => {
    model.set("values", values);
    const all = name => [...document.querySelectorAll(`svg ${name}`)].map(part =>
        Object.fromEntries([...part.attributes].map(({ name, value }) => [name, value])
            .concat([["text", part.textContent], ["seen", getComputedStyle(part).visibility]])));
    return { path: all("path"), rect: all("rect"), text: all("text") };
}"""


def drawn(page, ranks=8, causal=True, zigzag=False, step=2):
    """Return all paths, rectangles and texts of the picture: their attributes."""
    values = {"ranks": ranks, "causal": causal, "zigzag": zigzag, "step": step}
    return page.evaluate(DRAWN, values)


def colour(rank, strength):
    """Return a rank's colour on white, as the page writes it; a half is rounded up there."""
    shades = [255 * (1 - strength * (1 - p)) for p in to_rgb(f"C{rank if rank < 7 else 9}")]
    return f"rgb({', '.join(str(int(shade + 0.5 + 1e-9)) for shade in shades)})"


def polygons(paths):
    """Return the corners of each polygon of some paths."""
    found = [part for path in paths for part in path["d"].split("Z")]
    points = [re.findall(r"(-?[\d.]+) (-?[\d.]+)", part) for part in found]
    return [[(float(x), float(y)) for x, y in each] for each in points if each]


def dots(path):
    return [(float(x), float(y)) for x, y in re.findall(r"M (\S+) (\S+) h 0", path["d"])]


def on_the_map(paths):
    """Return those that are no part of a legend below it."""
    return [path for path in paths if all(y < TOP + SIDE + 1 for (_, y), *_ in polygons([path]))]


def tile(corners, pieces):
    """Return row, column, and how many corners it has, of a polygon that is such a tile."""
    across, down = (
        [round((each - start) / SIDE * pieces, 2) for each in ends]
        for start, ends in zip((LEFT, TOP), zip(*corners, strict=True), strict=True)
    )  # in pieces: a hundredth of a pixel is less than a hundredth of them
    row, column = min(down), min(across)
    assert {*across} == {column, column + 1} and {*down} == {row, row + 1}
    if len(corners) == 3:  # what is allowed is below the diagonal
        assert (column + 1, row) not in zip(across, down, strict=True)
    return int(row), int(column), len({*corners})


def cell(x, y, pieces):
    """Return row and column of a place of the map; those of a strip are -1."""
    return tuple(int((at - start) / SIDE * pieces // 1) if at > start else -1
                 for at, start in ((y, TOP), (x, LEFT)))  # fmt: skip


def corners(part):
    return 3 if part == Fraction(1, 2) else 4


@by_setting
def test_tiles_are_done_in_this_step_to_come_or_never(page, ranks, causal, zigzag, step):
    picture = drawn(page, ranks, causal, zigzag, step)
    pieces = ranks * (1 + zigzag)
    every = {
        (row, column, corners(share(row, column, causal))): (rank, at)
        for at in range(ranks)
        for rank, row, column in meetings(ranks, zigzag, at)
        if share(row, column, causal)
    }

    def shown(**look):
        paths = [p for p in picture["path"] if look.items() <= p.items()]
        return sorted(tile(each, pieces) for each in polygons(on_the_map(paths)))

    def expected(wanted):
        return sorted(each for each, (rank, at) in every.items() if wanted(rank, at))

    # what is drawn later may lie on what is to come
    assert shown(fill="#fff", stroke="#999") == expected(lambda _, at: at >= step)
    for rank in range(8):
        done = expected(lambda of, at, rank=rank: of == rank and at < step)
        assert shown(fill=colour(rank, PALE), stroke="#999") == done
        now = expected(lambda of, at, rank=rank: of == rank and at == step)
        assert shown(fill=colour(rank, FULL), stroke="#000") == now
    here = meetings(ranks, zigzag, step)
    nothing = [(row, column, 4) for _, row, column in here if not share(row, column, causal)]
    assert shown(fill="none", **{"stroke-dasharray": "3 3"}) == sorted(nothing)

    future = [path for path in picture["path"] if path.get("fill") == "#ededed"]
    assert [path["d"] for path in future] == [f"M {LEFT} {TOP} h {SIDE} v {SIDE} Z"]
    grain, *_ = [path for path in picture["path"] if path.get("stroke") == "#b3b3b3"]
    assert all(x - LEFT > y - TOP and x < LEFT + SIDE and y > TOP for x, y in dots(grain))
    assert len(dots(grain)) > 500
    for path in (*future, grain):
        assert (path["seen"] == "visible") == causal

    # and without colour: a dot where a tile is done, the rank where it is in this step
    marks = next(p for p in picture["path"] if p.get("stroke-linecap") and p["stroke"] == "#000")
    done = expected(lambda _, at: at < step)
    assert sorted(cell(*at, pieces) for at in dots(marks)) == [each[:2] for each in done]
    for x, y in dots(marks):  # below the diagonal where it cuts the tile
        row, column = cell(x, y, pieces)
        assert share(row, column, causal) == 1 or y - TOP > x - LEFT
    labels = [text for text in picture["text"] if text.get("font-weight") == "bold"]
    found = [(int(each["text"]), *cell(*centre(each), pieces)) for each in labels]
    assert sorted(found) == sorted(here)


def centre(text):
    """Return where a text stands, of which the letters are about 9 pixels high."""
    return float(text["x"]), float(text["y"]) - 4.3


@by_setting
def test_strips_name_the_rank_of_queries_and_who_holds_the_keys_now(
    page, ranks, causal, zigzag, step
):
    picture = drawn(page, ranks, causal, zigzag, step)
    pieces = ranks * (1 + zigzag)
    beside, above = {}, {}
    for text in picture["text"]:
        if not text["text"].isdigit() or "font-weight" in text or "text-anchor" in text:
            continue  # the group of names is anchored as a whole; the ticks are each
        row, column = cell(*centre(text), pieces)
        side, along = (beside, row) if column < 0 else (above, column)
        assert min(row, column) < 0 and along not in side
        side[along] = int(text["text"])
    holder = {
        piece: rank for rank in range(ranks) for piece in pieces_of(rank, ranks, zigzag)
    }  # where the text's pieces are at home
    assert beside == holder
    assert above == {piece: (rank + step) % ranks for piece, rank in holder.items()}
    boxes = 0
    for rank in range(8):
        look = {"fill": colour(rank, PALE)}.items()
        paths = [p for p in picture["path"] if look <= p.items() and "stroke" not in p]
        for box in polygons(paths):
            (left, right), (top, bottom) = ((min(each), max(each)) for each in zip(*box))  # noqa: B905
            row, column = cell((left + right) / 2, (top + bottom) / 2, pieces)
            assert (beside[row] if column < 0 else above[column]) == rank
            assert [left, right] == STRIP[0] if column < 0 else [top, bottom] == STRIP[1]
            length = bottom - top if column < 0 else right - left
            assert length == pytest.approx(SIDE / pieces - 2, abs=0.02)
            boxes += 1
    assert boxes == 2 * pieces


@by_setting
def test_each_rank_has_a_row_with_its_keys_its_work_and_its_time(page, ranks, causal, zigzag, step):
    picture = drawn(page, ranks, causal, zigzag, step)
    work = work_of(ranks, causal, zigzag)
    waits = waits_of(work)
    rows = [text for text in picture["text"] if text["text"].startswith("rank ")]
    assert [text["text"] for text in rows] == [
        f"rank {r}: keys of rank {(r - step) % ranks}, work {SAID[work[r][step]]}"
        for r in range(ranks)
    ]
    left, top, width, height = BARS

    def bars(fill):
        """Return left, top, width and height of those on this ground, the legend's left out."""
        found = [r for r in picture["rect"] if r["fill"] == fill and r.get("stroke") == "#666"]
        found = [[float(r[n]) for n in ("x", "y", "width", "height")] for r in found]
        return [each for each in found if each[1] < top + height]

    waiting = bars("#fff")
    lines = [p["d"] for p in picture["path"] if p.get("stroke") == "#666"]
    for rank in range(8):
        (bar,), rest = bars(colour(rank, 1)), waiting[rank]
        if rank >= ranks:
            assert bar[2:] == rest[2:] == [0, 0] and not lines[rank]
            continue
        done, lost = (float(sum(each[rank][: step + 1]) / ranks) for each in (work, waits))
        assert bar[0] == left and bar[2] == pytest.approx(width * done, abs=0.011)
        assert rest[0] == pytest.approx(left + width * done, abs=0.011)
        assert rest[2] == pytest.approx(width * lost, abs=0.011)
        for _, y, _, tall in (bar, rest):
            assert top + height * rank / ranks < y < y + tall < top + height * (rank + 1) / ranks
            assert tall > 12
        at = float(rows[rank]["y"])
        assert top + height * rank / ranks + 12 <= at < bar[1] and float(rows[rank]["x"]) > left
        # hatched: lines from edge to edge of what waits, and nothing else
        ends = [float(x) - rest[0] for x in re.findall(r"[ML] (\S+) \S+", lines[rank])]
        assert bool(ends) == bool(lost)
        assert not ends or min(ends) > -0.02 and max(ends) < rest[2] + 0.02
        assert not ends or max(ends) > rest[2] - 8


def test_headings_and_legends_say_what_is_what(page):
    picture = drawn(page)
    texts = {text["text"]: text for text in picture["text"]}
    for text, x in [("keys: which rank holds them now", LEFT + SIDE / 2),
                    ("pieces of the text, from the first", LEFT + SIDE / 2),
                    ("ranks: keys now, work of a block", BARS[0] + BARS[2] / 2),
                    ("time so far (1: all steps, no mask)", BARS[0] + BARS[2] / 2)]:  # fmt: skip
        assert float(texts[text]["x"]) == x
    assert "rotate(-90)" in texts["queries: their rank"]["transform"]
    bottom = BARS[1] + BARS[3] + 17
    ticks = {t["text"]: float(t["x"]) for t in picture["text"] if t.get("y") == f"{bottom}"}
    for share in ("0", "0.2", "0.4", "0.6", "0.8", "1"):
        assert ticks[share] == pytest.approx(BARS[0] + BARS[2] * float(share), abs=0.01)
    # beside each name what it names, as it looks in the picture
    looks = {
        "done": [{"fill": colour(0, PALE), "stroke": "#999"},
                 {"stroke": "#000", "stroke-linecap": "round"}],
        "to come": [{"fill": "#fff", "stroke": "#999"}],
        "in this step, by that rank": [{"fill": colour(0, FULL), "stroke": "#000"}],
        "met, nothing to do": [{"stroke-dasharray": "3 3", "stroke": "#000"}],
        "future: never": [{"fill": "#ededed"}, {"stroke": "#b3b3b3"}],
        "work": [{"fill": colour(0, 1), "stroke": "#666"}],
        "waiting": [{"fill": "#fff", "stroke": "#666"}, {"stroke": "#666"}],
    }  # fmt: skip
    for name, wanted in looks.items():
        x, y = float(texts[name]["x"]), float(texts[name]["y"])
        parts = [part for part in picture["rect"] + picture["path"] if beside(part, x, y)]
        assert len(parts) == len(wanted), name
        for part, look in zip(parts, wanted, strict=True):
            assert look.items() <= part.items(), name


def beside(part, x, y):
    """Say whether a part begins just left of a text, at its height."""
    if "d" in part:
        points = re.findall(r"M (\S+) (\S+)", part["d"])
        points = [(float(left), float(top)) for left, top in points]
    else:
        points = [(float(part.get("x", 0)), float(part.get("y", 0)))]
    return bool(points) and all(x - 30 <= a < x and y - 12 <= b <= y + 2 for a, b in points)


# Controls


def set_page(page, **values):
    """Set a page's controls from without, as Python does."""
    page.evaluate("v => model.set('values', {...model.get('values'), ...v})", values)


def step_of(page):
    """Return the value of the box and of the slider of the step, and where both end."""
    box = page.get_by_role("spinbutton", name="step")
    slider = page.get_by_role("slider", name="step")
    assert box.get_attribute("max") == slider.get_attribute("max")
    assert slider.get_attribute("min") == "0"
    step = int(box.input_value())
    assert step == int(slider.input_value()) == page.evaluate("model.get('values').step")
    return step, int(slider.get_attribute("max"))


def press(page, x, y):
    """Press the picture at a place in its pixels."""
    svg = page.locator("svg").bounding_box()
    page.mouse.click(svg["x"] + x, svg["y"] + y)


@pytest.mark.parametrize("ranks, zigzag", [(8, False), (3, True)])
def test_a_press_on_a_tile_goes_to_the_step_in_which_its_queries_meet_its_keys(page, ranks, zigzag):
    drawn(page, ranks, True, zigzag, 0)
    one = SIDE / (ranks * (1 + zigzag))
    for step in range(ranks):
        for _, row, column in meetings(ranks, zigzag, step)[::3]:
            for inside in (0.1, 0.9):
                set_page(page, step=(step + 1) % ranks)
                press(page, LEFT + (column + inside) * one, TOP + (row + inside) * one)
                assert step_of(page) == (step, ranks - 1)
    before = page.get_by_role("status").inner_text()
    press(page, LEFT - 14, TOP + SIDE / 2)  # the strips
    press(page, LEFT + SIDE / 2, TOP - 14)
    press(page, BARS[0] + BARS[2] / 2, BARS[1] + BARS[3] / 2)
    assert page.get_by_role("status").inner_text() == before


def test_the_last_step_stays_the_last_and_one_before_it_stays_where_it_is(page):
    drawn(page, ranks=3, step=2)
    words, ranks = page.get_by_role("status"), page.get_by_role("spinbutton", name="ranks")

    def turn(number):
        ranks.fill(f"{number}")
        ranks.press("Enter")

    assert step_of(page) == (2, 2) and words.inner_text().startswith("step 2 of 0 to 2")
    turn(6)
    assert step_of(page) == (5, 5) and words.inner_text().startswith("step 5 of 0 to 5")
    page.get_by_role("slider", name="step").press("ArrowLeft")
    turn(8)
    assert step_of(page) == (4, 7)
    turn(3)
    assert step_of(page) == (2, 2) and words.inner_text().startswith("step 2 of 0 to 2")


def test_python_takes_the_step_back_to_the_last_that_the_ranks_have(explorer):
    assert set_controls(explorer, ranks=3, step=7).values["step"] == 2
    assert explorer.state.startswith("step 2 of 0 to 2")
    set_controls(explorer, ranks=8)
    assert explorer.state.startswith("step 2 of 0 to 7")


def test_it_opens_as_the_lesson_does_with_eight_ranks_in_order_under_a_mask():
    fresh = ring_explorer()
    assert fresh.values == {"step": 2, "ranks": 8, "causal": True, "zigzag": False}
    ends = {name: (fresh.controls[name]["low"], fresh.controls[name]["high"])
            for name in ("step", "ranks")}  # fmt: skip
    assert ends == {"step": (0, 7), "ranks": (2, 8)}
    assert "ranks 0, 1 wait; time so far 2.5 of 7.5 blocks, 15% of it waiting" in fresh.state
