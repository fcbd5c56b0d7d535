"""The tile stepper: what it holds after each step is attention, and its bytes add up."""

import re

import numpy as np
import pytest
import torch
from matplotlib.colors import same_color

from course_utils.explorers import tile_explorer
from explorer_pictures import across, axes, headings, limits, press, set_controls, ticks

N, D = 12, 4
NOT_YET, SKIPPED, DONE, IN_FAST_MEMORY = range(4)


@pytest.fixture(scope="module")
def the_explorer():
    return tile_explorer()


@pytest.fixture
def explorer(the_explorer):
    return set_controls(the_explorer, block_q=4, block_k=3, causal=True, step=4)


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


def test_each_step_changes_picture_and_words(explorer):
    seen = {(to_step(explorer, step), explorer.image.value) for step in range(10)}
    assert len(seen) == 10
    assert "step 0 of 9: nothing read yet; 0 bytes moved" in to_step(explorer, 0)


def numbers_of(explorer):
    """Return the values of the box and the slider, and where the slider ends."""
    step = explorer.controls["step"]
    assert step.box.max == step.slider.max and step.slider.min == 0
    return step.box.value, step.slider.value, step.slider.max


@pytest.mark.parametrize("block_q, block_k, causal", [(2, 2, False), (12, 12, True), (5, 3, True)])
def test_every_position_of_the_step_is_a_tile_and_box_and_words_agree(
    explorer, block_q, block_k, causal
):
    set_controls(explorer, block_q=block_q, block_k=block_k, causal=causal)
    tiles = len(plan(block_q, block_k, causal))
    assert numbers_of(explorer)[2] == tiles
    pictures = set()
    for step in range(tiles + 1):
        assert to_step(explorer, step).startswith(f"step {step} of {tiles}: ")
        pictures.add(explorer.image.value)
    assert len(pictures) == tiles + 1


def test_blocks_that_leave_fewer_tiles_take_the_step_back_to_the_last(explorer):
    to_step(explorer, 8)
    set_controls(explorer, block_q=12, block_k=12)
    assert numbers_of(explorer) == (1, 1, 1) and explorer.state.startswith("step 1 of 1: ")


def test_at_the_last_tile_other_blocks_show_their_last_tile(explorer):
    to_step(explorer, 9)
    set_controls(explorer, block_q=2)
    assert numbers_of(explorer) == (16, 16, 16) and explorer.state.startswith("step 16 of 16: ")
    to_step(explorer, 7)
    set_controls(explorer, block_q=4)
    assert numbers_of(explorer) == (7, 7, 9)  # before it the step stays


@pytest.mark.parametrize("block_q, block_k, causal", [(12, 3, True), (4, 6, True), (2, 5, False)])
def test_at_the_end_other_blocks_are_compared_with_those_it_began_with(
    explorer, block_q, block_k, causal
):
    def total(**blocks):
        set_controls(explorer, causal=causal, **blocks)
        to_step(explorer, numbers_of(explorer)[2])
        return bytes_moved(explorer)

    first = total(block_q=4, block_k=3)
    assert "found" not in explorer.state
    other = total(block_q=block_q, block_k=block_k)
    told = f"found: {other} bytes in all, where block_q = 4 and block_k = 3 move {first}"
    assert explorer.state.endswith("; " + told)
    assert (other == first) == (block_q == 4)  # the size of the blocks of keys is nothing to it
    assert "found" not in to_step(explorer, numbers_of(explorer)[2] - 1)


def test_a_press_on_a_tile_goes_to_its_step(explorer):
    tiles, *others = axes(explorer)
    for step, (top, bottom, left, right) in enumerate(plan(4, 3, True), start=1):
        for y, x in [(top - 0.4, left - 0.4), (bottom - 0.6, right - 0.6)]:
            to_step(explorer, 0)
            press(explorer, tiles, x, y)
            assert numbers_of(explorer)[:2] == (step, step)
    before = explorer.state
    press(explorer, tiles, 11, 0)  # skipped
    for ax in others:
        press(explorer, ax, 0, 0)
    assert explorer.state == before


SETTINGS = [(0, 4, 3, True), (1, 5, 3, True), (5, 5, 3, True), (7, 2, 4, False), (8, 3, 5, True)]
by_setting = pytest.mark.parametrize("step, block_q, block_k, causal", SETTINGS)


@by_setting
def test_tiles_have_the_colour_of_their_state(explorer, step, block_q, block_k, causal):
    set_controls(explorer, block_q=block_q, block_k=block_k, causal=causal, step=step)
    (image,) = axes(explorer)[0].images
    states = np.full((N, N), SKIPPED)
    tiles = plan(block_q, block_k, causal)
    for number, (top, bottom, left, right) in enumerate(tiles, start=1):
        states[top:bottom, left:right] = NOT_YET if number > step else DONE
    if step:
        top, bottom, left, right = tiles[min(step, len(tiles)) - 1]
        states[top:bottom, left:right] = IN_FAST_MEMORY
    assert (image.get_array() == states).all()
    (edges,) = axes(explorer)[0].collections
    drawn = [path.get_extents() for path in edges.get_paths()]
    assert [(box.y0, box.y1, box.x0, box.x1) for box in drawn] == [
        tuple(side - 0.5 for side in tile) for tile in tiles
    ]
    assert image.get_extent() == [-0.5, 11.5, 11.5, -0.5]


@by_setting
def test_m_sum_and_output_are_those_of_the_keys_read(explorer, step, block_q, block_k, causal):
    set_controls(explorer, block_q=block_q, block_k=block_k, causal=causal, step=step)
    q, k, v = torch.randn(3, N, D, generator=torch.Generator().manual_seed(6)).double()
    scores = q @ k.T / D**0.5  # (N, N)
    allowed = torch.zeros(N, N, dtype=torch.bool)
    for top, bottom, left, right in plan(block_q, block_k, causal)[:step]:
        allowed[top:bottom, left:right] = True
    allowed = allowed.tril() if causal else allowed
    scores = scores.masked_fill(~allowed, -torch.inf)
    ax = axes(explorer)[1]
    (image,) = ax.images
    out = scores.softmax(dim=-1) @ v  # NaN for queries that have read no key
    drawn = np.ma.filled(image.get_array(), np.nan)
    np.testing.assert_allclose(drawn, out, atol=1e-5)  # float32, and v up to 3
    assert same_color(image.cmap.get_bad(), "0.75")  # no colour of a number
    assert image.get_extent() == [-0.5, 3.5, 11.5, -0.5]
    written = {text.get_position(): text.get_text() for text in ax.texts}
    (m_column, sum_column) = sorted({x for x, _ in written})
    assert len(written) == 2 * N and -4.5 < m_column < sum_column < -0.5
    for row in range(N):
        m, sum_ = written[m_column, row], written[sum_column, row]
        if not allowed[row].any():
            assert (m, sum_) == ("−∞", "0")
            continue
        assert float(m) == pytest.approx(scores[row].max().item(), abs=0.0051)
        total = (scores[row] - scores[row].max()).exp().sum().item()
        assert float(sum_) == pytest.approx(total, abs=0.0051)


@by_setting
def test_bytes_are_what_tiles_read_and_write(explorer, step, block_q, block_k, causal):
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
    tiled, naive = axes(explorer)[3].patches
    assert tiled.get_width() == 4 * floats
    # Q, K, V and O, and twice out and in again: scores and weights
    assert naive.get_width() == 4 * (4 * N * D + 4 * N * N)
    assert f"naive attention: {naive.get_width()} in all" in explorer.state


def test_the_words_name_the_tile_in_fast_memory_and_its_first_query(explorer):
    set_controls(explorer, block_q=5, block_k=3, step=6)
    top, bottom, left, right = plan(5, 3, causal=True)[5]
    assert f"queries {top}–{bottom - 1}, keys and values {left}–{right - 1}" in explorer.state
    numbers = {text.get_position(): text.get_text() for text in axes(explorer)[1].texts}
    m, sum_ = (numbers[x, top] for x in sorted({x for x, _ in numbers}))
    assert f"m = {m}, ℓ = {sum_}" in explorer.state


def test_tiles_and_numbers_stand_side_by_side_over_the_traffic_and_say_what_they_show(explorer):
    tiles, numbers, scale, traffic = axes(explorer)
    assert across([tiles, numbers, scale]) == [tiles, numbers, scale]
    assert traffic.bbox.y1 < min(ax.bbox.y0 for ax in (tiles, numbers, scale))
    assert headings(tiles) == ("tiles", "keys: rows of K and V", "queries: rows of Q")
    title, below, beside = headings(numbers)
    assert title.split() == "m ℓ O / ℓ so far".split()
    assert (below, beside) == ("columns of O (grey: none yet)", "")
    assert scale.get_ylabel() == "O / ℓ"
    assert headings(traffic) == ("", "bytes moved", "")
    counted = {n: str(n) for n in range(N)}
    assert ticks(tiles.xaxis) == ticks(tiles.yaxis) == ticks(numbers.yaxis) == counted
    assert ticks(numbers.xaxis) == {n: str(n) for n in range(D)}
    assert numbers.get_xlim() == (-4.5, 3.5) and numbers.get_ylim() == (11.5, -0.5)
    (output,) = numbers.images
    assert output.get_clim() == scale.get_ylim() == (-2, 2)
    assert output.get_cmap().name == "RdBu_r"
    assert ticks(traffic.yaxis) == {0: "tiled", 1: "naive"}
    assert traffic.get_ylim()[0] > traffic.get_ylim()[1]  # tiled is on top
    for place, bar in enumerate(traffic.patches):
        left, right, bottom, top = limits(bar)
        assert bottom < place < top and left == 0
        assert right < traffic.get_xlim()[1]
    assert same_color(traffic.patches[0].get_facecolor(), "C0")


def test_the_legend_names_the_colours(explorer):
    tiles = axes(explorer)[0]
    (image,), legend = tiles.images, tiles.get_legend()
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["not yet", "skipped", "done", "in fast memory"]
    colours = [patch.get_facecolor() for patch in legend.get_patches()]
    assert len(set(colours)) == 4
    for state, colour in enumerate(colours):
        assert same_color(image.cmap(image.norm(state)), colour)
    brightness = [sum(colour[:3]) for colour in colours]
    assert brightness[NOT_YET] == 3  # white: nothing there


def test_it_opens_in_the_middle_and_takes_blocks_that_divide_and_that_do_not(explorer):
    fresh = tile_explorer()
    starts = {name: control.value for name, control in fresh.controls.items()}
    assert starts == {"step": 4, "causal": True, "block_q": 4, "block_k": 3}
    assert numbers_of(fresh) == (4, 4, 9)
    for name in ("block_q", "block_k"):
        assert fresh.controls[name].options == (2, 3, 4, 5, 6, 12)


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
    assert re.search(r"step (\d+) of \1:", to_step(explorer, numbers_of(explorer)[2]))
    assert "m = 1.22, ℓ = 1.00" in explorer.state
