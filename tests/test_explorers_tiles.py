"""The tile stepper: what it holds after each step is attention, and its bytes add up."""

import re

import pytest

from course_utils.explorers import tile_explorer


@pytest.fixture
def explorer():
    return tile_explorer()


def to_step(explorer, step):
    explorer.controls["step"].slider.value = step
    return explorer.state


def bytes_moved(explorer):
    return int(re.search(r"(\d+) bytes moved", explorer.state)[1])


def test_each_step_changes_picture_and_words(explorer):
    seen = {(to_step(explorer, step), explorer.image.value) for step in range(10)}
    assert len(seen) == 10
    assert "step 0 of 9: nothing read yet; 0 bytes moved" in to_step(explorer, 0)


def test_back_is_the_same_as_never_gone(explorer):
    before, picture = to_step(explorer, 3), explorer.image.value
    to_step(explorer, 7)
    assert (to_step(explorer, 3), explorer.image.value) == (before, picture)


def test_past_the_last_tile_nothing_more_happens(explorer):
    assert to_step(explorer, 9) == to_step(explorer, 36)


def test_one_tile_reads_and_writes_everything_once(explorer):
    explorer.controls["causal"].value = False
    explorer.controls["block_q"].value = explorer.controls["block_k"].value = 12
    assert "step 1 of 1" in to_step(explorer, 1)
    q = k = v = out = 12 * 4
    assert bytes_moved(explorer) == 4 * (q + k + v + out + 12)  # and the log-sum-exp of 12 queries


@pytest.mark.parametrize("block_q, block_k, tiles, skipped", [(4, 3, 9, 3), (5, 3, 10, 2)])
def test_causality_skips_tiles_by_where_they_lie(explorer, block_q, block_k, tiles, skipped):
    explorer.controls["block_q"].value, explorer.controls["block_k"].value = block_q, block_k
    assert f"of {tiles}:" in to_step(explorer, 1)
    assert explorer.state.endswith(f"tiles skipped: {skipped}")
    explorer.controls["causal"].value = False
    assert explorer.state.endswith("tiles skipped: 0")


@pytest.mark.parametrize("block_k", [2, 3, 5, 12])
def test_blocks_of_keys_of_any_size_end_with_the_same_sums(explorer, block_k):
    explorer.controls["block_q"].value = 12
    explorer.controls["block_k"].value = block_k
    assert re.search(r"step (\d+) of \1:", to_step(explorer, 36))
    assert "m = 1.22, ℓ = 1.00" in explorer.state


def test_queries_go_down_and_keys_across(explorer):
    tiles = explorer._canvas.figure.axes[0]
    assert tiles.get_xlabel().startswith("keys") and tiles.get_ylabel().startswith("queries")
