"""The tile stepper: what it holds after each step is attention, and its bytes add up."""

import re

import pytest
import torch
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb

from course_utils.explorers import tile_explorer
from explorer_pictures import set_controls
from tools import render_previews

N, D = 12, 4
STATES = ["not yet", "skipped", "done", "in fast memory"]
CELL = 20  # pixels of the map, and of a row of the table
# Left, top, width and height of the map, the table, its cells of O, their scale, and the traffic.
MAP, TABLE, OUTPUT = [50, 26, 240, 240], [326, 26, 176, 240], [426, 26, 76, 240]
SCALE, TRAFFIC = [512, 50, 12, 204], [50, 338, 500, 40]


@pytest.fixture(scope="module")
def the_explorer():
    return tile_explorer()


@pytest.fixture
def explorer(the_explorer):
    return set_controls(the_explorer, block_q=4, block_k=3, causal=True, step=4)


@pytest.fixture(scope="module")
def page(chromium):
    page = render_previews.shown(chromium, tile_explorer())
    yield page
    assert page.errors == []
    page.close()


# Texts by their place; rectangles with their corners and colours, in the order of drawing.
DRAWN = """values => {
    model.set("values", values);
    const all = name => [...document.querySelectorAll(`svg ${name}`)];
    const number = (part, names) => names.map(name => Number(part.getAttribute(name)));
    return {
        texts: all("text").map(text => [text.textContent, ...number(text, ["x", "y"])]),
        rects: all("rect").map(rect => [
            ...number(rect, ["x", "y", "width", "height"]), rect.getAttribute("fill"),
            rect.getAttribute("stroke"), Number(rect.getAttribute("stroke-width"))]),
    };
}"""


def drawn(page, **values):
    """Return texts and rectangles that the page draws, with what is not given as it opens."""
    starts = {"step": 4, "causal": True, "block_q": 4, "block_k": 3}
    return page.evaluate(DRAWN, starts | values)


def outlined(picture):
    """Return left, top, width and height of what the thick lines go round, if it is anything."""
    boxes = [rect[:4] for rect in picture["rects"] if rect[6] > 2]
    return [box for box in boxes if box[2] and box[3]]


def filled(picture, frame):
    """Return left, top, width, height and fill of what is coloured within a frame, but the frame.

    In order of drawing.
    """
    left, top, width, height = frame
    return [
        rect[:5]
        for rect in picture["rects"]
        if rect[4] not in ("none", "transparent")
        and rect[:4] != frame
        and left <= rect[0] and rect[0] + rect[2] <= left + width + 0.01
        and top <= rect[1] and rect[1] + rect[3] <= top + height + 0.51
    ]  # fmt: skip


def rgb(colour):
    """Return red, green and blue, to 255, of a colour of the page."""
    found = re.findall(r"\d+", colour) if colour.startswith("rgb") else to_rgb(colour)
    return [round(float(each) * (1 if colour.startswith("rgb") else 255)) for each in found]


def shades(values):
    """Return what Matplotlib gives for outputs, in 256 steps: one is up to 4 of a shade's 255."""
    colours = colormaps["RdBu_r"]((values.numpy() + 2) / 4, bytes=True)
    return colours[..., :3].tolist()


def legend(picture):
    """Return the colours of the tiles by the names beside them."""
    texts = {name: (x, y) for name, x, y in picture["texts"]}
    found = {}
    for name in STATES:
        x, y = texts[name]
        (fill,) = [r[4] for r in picture["rects"] if x - 30 < r[0] < x and y - 11 < r[1] < y]
        found[name] = fill
    return found


def to_step(explorer, step):
    return set_controls(explorer, step=step).state


def bytes_moved(explorer):
    return int(re.search(r"(\d+) bytes moved", explorer.state)[1])


def plan(block_q, block_k, causal):
    """Return the first and last query, and the first and last key, of each tile that is read."""
    return [
        (top, min(top + block_q, N), left, min(left + block_k, N, top + block_q if causal else N))
        for top in range(0, N, block_q)
        for left in range(0, N, block_k)
        if not causal or left < min(top + block_q, N)
    ]


def test_each_step_changes_picture_and_words(explorer, page):
    pictures = [drawn(page, step=step) for step in range(10)]
    assert all(a not in pictures[:place] for place, a in enumerate(pictures))
    assert len({to_step(explorer, step) for step in range(10)}) == 10
    assert "step 0 of 9: nothing read yet; 0 bytes moved" in to_step(explorer, 0)


def set_page(page, **values):
    """Set a page's controls from without, as Python does."""
    page.evaluate("v => model.set('values', {...model.get('values'), ...v})", values)


def step_of(page):
    """Return the value of the box and of the slider, and where both end."""
    box, slider = page.locator("input[type=number]"), page.locator("input[type=range]")
    ends = [each.get_attribute("max") for each in (box, slider)]
    assert ends[0] == ends[1] and slider.get_attribute("min") == "0"
    step = int(box.input_value())
    assert step == int(slider.input_value()) == page.evaluate("model.get('values').step")
    return step, int(ends[0])


@pytest.mark.parametrize("block_q, block_k, causal", [(2, 2, False), (12, 12, True), (5, 3, True)])
def test_every_position_of_the_step_is_a_tile_and_box_and_words_agree(
    explorer, page, block_q, block_k, causal
):
    set_controls(explorer, block_q=block_q, block_k=block_k, causal=causal)
    tiles = len(plan(block_q, block_k, causal))
    for step in range(tiles + 1):
        assert to_step(explorer, step).startswith(f"step {step} of {tiles}: ")
        set_page(page, **explorer.values)
        assert step_of(page) == (step, tiles)
    assert to_step(explorer, tiles + 1) == to_step(explorer, tiles)


def test_blocks_that_leave_fewer_tiles_take_the_step_back_to_the_last(explorer, page):
    to_step(explorer, 8)
    set_controls(explorer, block_q=12, block_k=12)
    assert explorer.state.startswith("step 1 of 1: ")
    drawn(page, step=8)
    page.get_by_role("combobox", name="block_q").select_option("12")
    assert step_of(page) == (4, 4)
    assert page.get_by_role("status").inner_text().startswith("step 4 of 4: ")


def test_at_the_last_tile_other_blocks_show_their_last_tile(page):
    drawn(page, step=3)
    page.get_by_role("slider", name="step").press("End")
    assert step_of(page) == (9, 9)
    block_q = page.get_by_role("combobox", name="block_q")
    block_q.select_option("2")
    assert step_of(page) == (16, 16)
    assert page.get_by_role("status").inner_text().startswith("step 16 of 16: ")
    page.get_by_role("checkbox", name="causal").uncheck()
    assert step_of(page) == (24, 24)
    page.get_by_role("checkbox", name="causal").check()
    page.get_by_role("slider", name="step").press("ArrowLeft")
    block_q.select_option("3")
    assert step_of(page) == (10, 10)  # there were 15 steps before
    page.get_by_role("slider", name="step").press("ArrowLeft")
    block_q.select_option("2")
    assert step_of(page) == (9, 16)  # before the last tile the step stays


def test_a_step_that_is_typed_ends_at_the_last_tile(page):
    drawn(page, step=3, block_q=12)
    box = page.get_by_role("spinbutton", name="step")
    box.fill("7")
    box.press("Enter")
    assert step_of(page) == (4, 4)
    box.fill("2")
    box.press("Enter")
    assert step_of(page) == (2, 4)


@pytest.mark.parametrize("block_q, block_k, causal", [(12, 3, True), (4, 6, True), (2, 5, False)])
def test_at_the_end_other_blocks_are_compared_with_those_it_began_with(
    explorer, block_q, block_k, causal
):
    def total(**blocks):
        set_controls(explorer, causal=causal, **blocks)
        to_step(explorer, N * N)  # the last
        return bytes_moved(explorer)

    first = total(block_q=4, block_k=3)
    assert "found" not in explorer.state
    other = total(block_q=block_q, block_k=block_k)
    told = f"found: {other} bytes in all, where block_q = 4 and block_k = 3 move {first}"
    assert explorer.state.endswith("; " + told)
    assert (other == first) == (block_q == 4)  # the size of the blocks of keys is nothing to it
    assert "found" not in to_step(explorer, explorer.values["step"] - 1)


def test_a_press_on_a_tile_goes_to_its_step(page):
    drawn(page)
    svg = page.locator("svg").bounding_box()

    def press(x, y):  # of the picture
        page.mouse.click(svg["x"] + x, svg["y"] + y)

    for step, (top, bottom, left, right) in enumerate(plan(4, 3, True), start=1):
        for y, x in [(top + 0.1, left + 0.1), (bottom - 0.1, right - 0.1)]:
            set_page(page, step=0)
            press(MAP[0] + CELL * x, MAP[1] + CELL * y)
            assert step_of(page) == (step, 9)
    set_page(page, step=5)
    press(MAP[0] + CELL * 11.5, MAP[1] + CELL * 0.5)  # skipped
    press(MAP[0] - 5, MAP[1] + 5)  # beside it
    for left, top, width, height in (TABLE, OUTPUT, TRAFFIC):
        press(left + width / 2, top + height / 2)
    assert step_of(page) == (5, 9)


SETTINGS = [(0, 4, 3, True), (1, 5, 3, True), (5, 5, 3, True), (7, 2, 4, False), (8, 3, 5, True)]
by_setting = pytest.mark.parametrize("step, block_q, block_k, causal", SETTINGS)


@by_setting
def test_tiles_have_the_colour_of_their_state(page, step, block_q, block_k, causal):
    picture = drawn(page, block_q=block_q, block_k=block_k, causal=causal, step=step)
    colours = legend(picture)
    ground = next(rect for rect in picture["rects"] if rect[:4] == MAP)
    assert ground[4] == colours["skipped"]
    tiles = plan(block_q, block_k, causal)
    shown = filled(picture, MAP)
    assert len(shown) == len(tiles)
    for number, (tile, seen) in enumerate(zip(tiles, shown, strict=True), start=1):
        assert seen[:4] == box(*tile)
        state = "not yet" if number > step else "done" if number < step else "in fast memory"
        assert seen[4] == colours[state]
    around = [box(*tiles[step - 1])] if step else []
    assert [each for each in outlined(picture) if each[0] < TABLE[0]] == around


def box(top, bottom, left, right):
    """Return left, top, width and height of a tile in pixels of the picture."""
    return [MAP[0] + CELL * left, MAP[1] + CELL * top, CELL * (right - left), CELL * (bottom - top)]


@by_setting
def test_m_sum_and_output_are_those_of_the_keys_read(page, step, block_q, block_k, causal):
    picture = drawn(page, block_q=block_q, block_k=block_k, causal=causal, step=step)
    q, k, v = torch.randn(3, N, D, generator=torch.Generator().manual_seed(6)).double()
    scores = q @ k.T / D**0.5  # (N, N)
    allowed = torch.zeros(N, N, dtype=torch.bool)
    tiles = plan(block_q, block_k, causal)[:step]
    for top, bottom, left, right in tiles:
        allowed[top:bottom, left:right] = True
    allowed = allowed.tril() if causal else allowed
    scores = scores.masked_fill(~allowed, -torch.inf)
    out = shades(scores.softmax(dim=-1) @ v)  # of NaN for queries that have read no key
    cells = filled(picture, OUTPUT)
    assert len(cells) == N * D
    m_at, sum_at = (next(x for text, x, _ in picture["texts"] if text == name) for name in "mℓ")
    assert TABLE[0] < m_at < sum_at < OUTPUT[0]
    written = {(x, y): text for text, x, y in picture["texts"]}
    for row in range(N):
        y = TABLE[1] + CELL * row + 14.5  # letters stand on their line
        m, sum_ = written[m_at, y].replace("−", "-"), written[sum_at, y]
        of_row = cells[row * D : row * D + D]
        assert [cell[:2] for cell in of_row] == [
            [OUTPUT[0] + 19 * column, TABLE[1] + CELL * row] for column in range(D)
        ]
        if not allowed[row].any():
            assert (m, sum_) == ("-∞", "0")
            assert {cell[4] for cell in of_row} == {"#8c8c8c"}  # no colour of a number
            continue
        for cell, expected in zip(of_row, out[row], strict=True):
            assert rgb(cell[4]) == pytest.approx(expected, abs=4)
        assert float(m) == pytest.approx(scores[row].max().item(), abs=0.0051)
        total = (scores[row] - scores[row].max()).exp().sum().item()
        assert float(sum_) == pytest.approx(total, abs=0.0051)
    around = [each for each in outlined(picture) if each[0] >= TABLE[0]]
    assert around == [
        [TABLE[0], TABLE[1] + CELL * top, TABLE[2], CELL * (bottom - top)]
        for top, bottom, *_ in tiles[-1:]
    ]


@by_setting
def test_bytes_are_what_tiles_read_and_write(explorer, page, step, block_q, block_k, causal):
    set_controls(explorer, block_q=block_q, block_k=block_k, causal=causal, step=step)
    tiles = plan(block_q, block_k, causal)
    floats = 0
    for number, (top, bottom, left, right) in enumerate(tiles[:step]):
        floats += 2 * (right - left) * D  # K and V
        if left == 0:
            floats += (bottom - top) * D  # Q, which stays for the tiles beside
        if number + 1 == len(tiles) or tiles[number + 1][0] != top:
            floats += (bottom - top) * (D + 1)  # O and the log-sum-exp
    assert bytes_moved(explorer) == 4 * floats
    picture = drawn(page, **explorer.values)
    tiled, naive = filled(picture, TRAFFIC)
    # Q, K, V and O, and twice out and in again: scores and weights
    most = 4 * (4 * N * D + 4 * N * N)
    assert f"naive attention: {most} in all" in explorer.state
    ticks = {text: x for text, x, y in picture["texts"] if y == TRAFFIC[1] + TRAFFIC[3] + 17}
    assert list(ticks) == ["0", "500", "1000", "1500", "2000", "2500", "3000"]
    one = (ticks["3000"] - ticks["0"]) / 3000  # pixels of a byte
    for bar, count in [(tiled, 4 * floats), (naive, most)]:
        assert bar[0] == ticks["0"] and bar[2] == pytest.approx(count * one, abs=0.02)
        assert bar[2] < TRAFFIC[2]
        (x,) = [x for text, x, y in picture["texts"] if text == f"{count}"
                and bar[1] < y < bar[1] + bar[3]]  # fmt: skip
        assert abs(x - (bar[0] + bar[2])) < 6  # beside its end


def test_the_words_name_the_tile_in_fast_memory_and_its_first_query(explorer, page):
    set_controls(explorer, block_q=5, block_k=3, step=6)
    top, bottom, left, right = plan(5, 3, causal=True)[5]
    assert f"queries {top}–{bottom - 1}, keys and values {left}–{right - 1}" in explorer.state
    y = TABLE[1] + CELL * top + 14.5
    texts = drawn(page, **explorer.values)["texts"]
    m, sum_ = (text for text, x, at in texts if at == y and TABLE[0] < x < OUTPUT[0])
    assert f"m = {m}, ℓ = {sum_}" in explorer.state


def test_tiles_and_numbers_stand_side_by_side_over_the_traffic_and_say_what_they_show(page):
    picture = drawn(page)
    frames = [rect[:4] for rect in picture["rects"] if rect[4:6] == ["none", "currentColor"]]
    assert all(frame in frames for frame in (MAP, TABLE, OUTPUT, SCALE, TRAFFIC))
    texts = {text for text, *_ in picture["texts"]}
    assert texts >= {"tiles", "keys: rows of K and V", "queries: rows of Q", "bytes moved"}
    assert texts >= {"m", "ℓ", "O / ℓ so far", "columns of O (grey: none yet)", "O / ℓ"}

    def placed(places):  # every text stands there
        return all([str(text), *at] in picture["texts"] for text, at in places)

    counts = range(N)
    assert placed((n, (MAP[0] + CELL * (n + 0.5), MAP[1] + MAP[3] + 17)) for n in counts)
    for left in (MAP[0], TABLE[0]):
        assert placed((n, (left - 7, MAP[1] + CELL * (n + 0.5) + 4.5)) for n in counts)
    assert placed((n, (OUTPUT[0] + 19 * (n + 0.5), MAP[1] + MAP[3] + 17)) for n in range(D))
    heads = {name: x for name, x, y in picture["texts"] if y == MAP[1] - 9}
    assert list(heads) == ["tiles", "m", "ℓ", "O / ℓ so far"]
    assert heads["O / ℓ so far"] == OUTPUT[0] + OUTPUT[2] / 2
    # the scale, from red for 2 at the top to blue for -2 at the bottom
    marks = {text: y for text, x, y in picture["texts"] if x == SCALE[0] + SCALE[2] + 7}
    steps = filled(picture, SCALE)
    values = torch.linspace(2, -2, 2 * len(steps) + 1)[1::2]
    for (_, _, _, _, fill), expected in zip(steps, shades(values), strict=True):
        assert rgb(fill) == pytest.approx(expected, abs=4)
    for text in ("2", "1", "0", "−1", "−2"):
        share = (2 - float(text.replace("−", "-"))) / 4
        assert marks[text] - 4.5 == pytest.approx(SCALE[1] + share * SCALE[3], abs=0.01)
    # the bars stand at their names, tiled on top
    names = {text: y - 4.5 for text, x, y in picture["texts"] if text in ("tiled", "naive")}
    assert names["tiled"] < names["naive"]
    bars = filled(picture, TRAFFIC)
    for bar, name in zip(bars, ("tiled", "naive"), strict=True):
        assert bar[1] + bar[3] / 2 == pytest.approx(names[name], abs=0.01)
    assert bars[0][4] == to_hex("C0")


def test_the_legend_names_the_colours(page):
    colours = legend(drawn(page))
    assert list(colours) == STATES and len(set(colours.values())) == 4
    assert rgb(colours["not yet"]) == [255, 255, 255]  # white: nothing there
    for name, share in [("done", 0.1), ("in fast memory", 0.95)]:
        expected = [255 * part for part in colormaps["cividis"](share)[:3]]
        assert rgb(colours[name]) == pytest.approx(expected, abs=4)


def test_it_opens_in_the_middle_and_takes_blocks_that_divide_and_that_do_not():
    fresh = tile_explorer()
    assert fresh.values == {"step": 4, "causal": True, "block_q": 4, "block_k": 3}
    assert fresh.state.startswith("step 4 of 9: ")
    for name in ("block_q", "block_k"):
        assert fresh.controls[name]["options"] == [2, 3, 4, 5, 6, 12]
    # as high as the step may ever be
    assert fresh.controls["step"]["high"] == len(plan(2, 2, False))


def test_one_tile_reads_and_writes_everything_once(explorer):
    set_controls(explorer, causal=False, block_q=12, block_k=12)
    assert "step 1 of 1" in to_step(explorer, 1)
    q = k = v = out = 12 * 4
    assert bytes_moved(explorer) == 4 * (q + k + v + out + 12)  # and the log-sum-exp of 12 queries


@pytest.mark.parametrize("block_q, block_k, tiles, skipped", [(4, 3, 9, 3), (5, 3, 10, 2)])
def test_causality_skips_tiles_by_where_they_lie(explorer, block_q, block_k, tiles, skipped):
    set_controls(explorer, block_q=block_q, block_k=block_k)
    assert f"of {tiles}:" in to_step(explorer, 1)
    assert explorer.state.endswith(f"tiles skipped: {skipped}")
    set_controls(explorer, causal=False)
    assert explorer.state.endswith("tiles skipped: 0")


@pytest.mark.parametrize("block_k", [2, 3, 5, 12])
def test_blocks_of_keys_of_any_size_end_with_the_same_sums(explorer, block_k):
    set_controls(explorer, block_q=12, block_k=block_k)
    assert re.search(r"step (\d+) of \1:", to_step(explorer, N * N))
    assert "m = 1.22, ℓ = 1.00" in explorer.state
