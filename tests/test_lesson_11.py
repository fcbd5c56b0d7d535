"""Lesson 11: its cells compute what `parallel` does, and send and wait as its exercises say."""

import sys
from functools import partial

import cloudpickle
import pytest
import torch
import torch.distributed as dist

from course_utils import parallel
from course_utils.attention import merge
from course_utils.checks.lesson_11.blocks_received import blocks_received
from course_utils.checks.lesson_11.shard_tokens import shard_tokens
from course_utils.distributed import RankError
from course_utils.distributed import spawn as spawn_within
from course_utils.tiled import tiled_attention
from induction_seeds import definitions
from rounding import normal
from stored_notebooks import ROOT

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks need not import this file
spawn = partial(spawn_within, seconds=60)  # on a busy machine
pytestmark = pytest.mark.slow  # each test starts processes


@pytest.fixture(scope="module")
def lesson():
    return definitions(ROOT / "notebooks" / "11_beyond_one_device.ipynb")


@pytest.mark.parametrize("W, zigzag", [(2, False), (4, True)])
def test_the_lessons_causal_ring_is_that_of_parallel_and_counts_its_flops(lesson, W, zigzag):
    held = parallel.shard_positions(48, W, zigzag)

    def both(q, k, v):
        own = [each[:, held[dist.get_rank()]] for each in (q, k, v)]
        right, _ = parallel.ring_attention(*own, is_causal=True, zigzag=zigzag)
        return *lesson["causal_ring"](*own, zigzag), right

    block = 2 * 2 * 4 * (48 // W) ** 2 * 8  # two products of four heads of width 8
    work = lesson["allowed_share"](held)  # (W ranks, W steps); step 0 is computed whole
    answers = spawn(both, W, *normal(3, 4, 48, 8, dtype=torch.float32))
    for rank, (ours, flops, right) in enumerate(answers):
        torch.testing.assert_close(ours, right)
        assert flops == [block, *(block * work[rank, 1:]).tolist()]


@pytest.mark.parametrize("W, zigzag", [(1, True), (3, False), (4, True)])
def test_allowed_shares_are_those_of_the_whole_causal_mask(lesson, W, zigzag):
    """With m tokens per chunk, a chunk against itself has m (m + 1) / 2 pairs, not half of m²."""
    m, chunks = 50, (1 + zigzag) * W
    held = parallel.shard_positions(m * chunks, W, zigzag)
    found = lesson["allowed_share"](parallel.shard_positions(chunks, W, zigzag))
    for rank in range(W):
        for step in range(W):
            allowed = held[(rank - step) % W] <= held[rank][:, None]
            # the diagonal of each local chunk: m / 2 of m² pairs more, in one of its chunks' blocks
            off = (step == 0) / (2 * m * (1 + zigzag))
            assert found[rank, step] + off == pytest.approx(allowed.float().mean().item())


# Exercises: what they ask is what the processes do


def test_blocks_are_seen_in_the_order_of_11_1(lesson):
    def go_round():
        held, seen = torch.tensor([dist.get_rank()]), []
        for _ in range(dist.get_world_size()):
            seen.append(held.item())
            for _ in range(3):  # three ranks on
                (held,) = lesson["pass_on"](held)
        return seen

    found = spawn(go_round, 4)
    assert found == [blocks_received(rank, 4, 3).tolist() for rank in range(4)]


@pytest.mark.parametrize("all_send_first", [True, False])
def test_real_calls_that_block_wait_forever_as_11_7_says(all_send_first):
    def swap():
        rank, W = dist.get_rank(), dist.get_world_size()
        received, send_first = torch.empty(1), all_send_first or rank % 2 == 0
        for send in (send_first, not send_first):
            if send:
                dist.send(torch.tensor([float(rank)]), (rank + 1) % W)
            else:
                dist.recv(received, (rank - 1) % W)
        return received.item()

    if all_send_first:
        with pytest.raises(RankError, match="still waiting in line"):
            spawn(swap, 3, seconds=1)
    else:
        assert spawn(swap, 3) == [2, 0, 1]


def test_documents_sharded_fairly_are_attended_to_exactly():
    """With a mask made from positions, as 11.8 says: here on rank 0, of two documents."""
    lengths, held = torch.tensor([9, 15]), shard_tokens((9, 15), 4)  # (W, n)
    q, k, v = normal(3, 2, 24, 4, dtype=torch.float32)
    document, position = torch.arange(2).repeat_interleave(lengths), torch.arange(24)  # (N,) each
    mask = (position <= position[:, None]) & (document == document[:, None])
    out, lse = torch.zeros(2, 6, 4), torch.full((2, 6), -torch.inf)
    for theirs in held:
        block = mask[held[0]][:, theirs]
        part = tiled_attention(q[:, held[0]], k[:, theirs], v[:, theirs], block)
        out, lse = merge(out, lse, *part)
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
    torch.testing.assert_close(out, exact[:, held[0]])
