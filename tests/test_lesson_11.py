"""Lesson 11: the ways of its cells are those of `parallel`, to the bit, and send what it says."""

import sys
from functools import partial

import cloudpickle
import nbformat
import pytest
import torch
import torch.distributed as dist

from course_utils import parallel
from course_utils.attention import MultiHeadAttention, merge
from course_utils.checks.lesson_11.back_in_order import back_in_order
from course_utils.checks.lesson_11.blocks_received import blocks_received
from course_utils.checks.lesson_11.bytes_sent import bytes_sent
from course_utils.checks.lesson_11.shard_tokens import shard_tokens
from course_utils.distributed import RankError
from course_utils.distributed import spawn as run_ranks_within
from course_utils.measure import bytes_sent as count_bytes
from course_utils.tiled import tiled_attention
from stored_notebooks import ROOT, code

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks need not import this file
spawn = partial(run_ranks_within, seconds=60)  # on a busy machine

CELLS = code(nbformat.read(ROOT / "notebooks" / "11_beyond_one_device.ipynb", as_version=4))
NEEDED = ["Sum", "pass_on", "by_heads", "output_and_gradient", "by_exchange", "with_own", "ring",
          "there_and_back", "seen", "causal_ring", "shares", "simulate", "decode"]  # fmt: skip


@pytest.fixture(scope="module")
def lesson():
    """Return what the lesson's cells define; they run up to where ranks are first called."""
    scope = {"__name__": "lesson_11"}
    for cell in CELLS:
        if cell.source.startswith(("import ", "from ", "class ", "def ")):
            definitions = cell.source.split("\n\n\n")
            kept = [each for each in definitions if each.startswith(STARTS)]
            exec("\n\n\n".join(kept), scope)
    return scope


STARTS = ("import ", "from ", "class ", "def ")


@pytest.fixture(scope="module")
def qkv():
    return torch.randn(4, 4, 48, 8, generator=torch.Generator().manual_seed(11))  # q, k, v, d_out


def with_gradients(way, q, k, v, d_out):
    """Return output and gradients of a way that autograd knows, for this rank's tokens."""
    leaves = [each.requires_grad_() for each in (q, k, v)]
    out = way(*leaves)
    out = out[0] if isinstance(out, tuple) else out
    return out.detach(), *torch.autograd.grad(out, leaves, d_out)


def test_the_lesson_defines_what_is_tried_here(lesson):
    assert set(NEEDED) <= lesson.keys()


@pytest.mark.parametrize("W", [2, 4])
def test_the_lessons_ring_is_that_of_parallel_forward_and_backward(lesson, qkv, W):
    def both(*parts):
        out, _ = lesson["ring"](*parts[:3])
        ours = out, *lesson["there_and_back"](*parts)
        return ours, with_gradients(parallel.ring_attention, *parts)

    for ours, final in spawn(lesson["with_own"], W, both, *qkv):
        assert all(torch.equal(a, b) for a, b in zip(ours, final, strict=True))


@pytest.mark.parametrize("W", [2, 4])
def test_the_lessons_exchange_is_that_of_parallel_forward_and_backward(lesson, qkv, W):
    def both(*parts):
        ways = lesson["by_exchange"], parallel.all_to_all_attention
        return [with_gradients(way, *(each.clone() for each in parts)) for way in ways]

    for ours, final in spawn(lesson["with_own"], W, both, *qkv):
        torch.testing.assert_close(ours, final)  # naive attention within, there in tiles


@pytest.mark.parametrize("zigzag", [False, True])
@pytest.mark.parametrize("W", [1, 2, 4])
def test_the_lessons_causal_ring_is_that_of_parallel_and_counts_its_products(
    lesson, qkv, W, zigzag
):
    held = parallel.shard_positions(48, W, zigzag)

    def both(q, k, v):
        own = [each[:, held[dist.get_rank()]] for each in (q, k, v)]
        final, _ = parallel.ring_attention(*own, is_causal=True, zigzag=zigzag)
        return *lesson["causal_ring"](*own, zigzag), final

    block = 2 * 2 * 4 * (48 // W) ** 2 * 8  # two products of four heads of width 8
    work = lesson["shares"](held)  # (W ranks, W steps); step 0 is computed whole
    for rank, (ours, products, final) in enumerate(spawn(both, W, *qkv[:3])):
        assert torch.equal(ours, final)
        assert products == [block, *(block * work[rank, 1:]).tolist()]


def test_the_lessons_heads_are_those_of_parallel_but_for_the_backwards_all_reduce(lesson):
    layer = MultiHeadAttention(32, num_heads=4)
    x, g = torch.randn(2, 12, 32)
    both = lesson["output_and_gradient"]
    ours = spawn(both, 4, lesson["by_heads"], x, layer, g)
    final = spawn(both, 4, parallel.attention_by_heads, x, layer, g)
    for (out, _), (right, right_dx) in zip(ours, final, strict=True):
        assert torch.equal(out, right)
        torch.testing.assert_close(sum(dx for _, dx in ours), right_dx)


@pytest.mark.parametrize("W", [2, 4])
def test_a_cache_on_several_ranks_decodes_as_on_one(lesson, qkv, W):
    q, k, v, _ = qkv
    new = q[:, -1:]
    found = spawn(lesson["with_own"], W, lambda k, v: lesson["decode"](new, k, v), k, v)
    exact = torch.nn.functional.scaled_dot_product_attention(new.double(), k.double(), v.double())
    for each in found:
        torch.testing.assert_close(each, exact.float())


@pytest.mark.parametrize("zigzag", [False, True])
@pytest.mark.parametrize("W", [1, 3, 4])
def test_shares_are_those_of_the_whole_causal_mask(lesson, W, zigzag):
    """With m tokens a piece a block of its own has m (m + 1) / 2 pairs, not the half of m²."""
    m, pieces = 50, (1 + zigzag) * W
    held = parallel.shard_positions(m * pieces, W, zigzag)
    found = lesson["shares"](parallel.shard_positions(pieces, W, zigzag))
    for rank in range(W):
        for step in range(W):
            allowed = held[(rank - step) % W] <= held[rank][:, None]
            # the diagonal of each own piece: m / 2 of m² pairs more, in one of its pieces' blocks
            off = (step == 0) / (2 * m * (1 + zigzag))
            assert found[rank, step] + off == pytest.approx(allowed.float().mean().item())


def test_a_simulated_ring_takes_as_long_as_its_slowest_part(lesson):
    """With equal work, W steps of it, or of one block's sending between two steps."""
    work = torch.full((8, 8), 2.0)
    assert lesson["simulate"](work, block=3, link=3.0) == (16.0, 21)  # sent in 1 s, hidden
    assert lesson["simulate"](work, block=30, link=3.0) == (72.0, 210)  # 7 times 10 s, and 2 s
    one_slow = work.clone()
    one_slow[3, 0] = 9  # all others wait for it in the end
    assert lesson["simulate"](one_slow, block=3, link=3.0)[0] == 23
    late = torch.zeros(4, 4)
    late[0, 0], late[2, 3] = 5, 10  # two hops of 1 s further, rank 2 gets what waited on rank 0
    assert lesson["simulate"](late, block=1, link=1.0)[0] == 17


# Exercises: what they ask is what the processes do


@pytest.mark.parametrize("W", [2, 3])
def test_bytes_of_a_training_step_are_those_that_are_sent(qkv, W):
    N, H, d = 48, 6, 4
    layer = MultiHeadAttention(H * d, num_heads=H)
    x, g = torch.randn(2, N, H * d)
    q, k, v, d_out = torch.randn(4, H, N, d)

    def all_ways():
        def by_heads():
            parallel.attention_by_heads(x.requires_grad_(), layer).backward(g)

        own = [each.chunk(W, dim=-2)[dist.get_rank()].contiguous() for each in (q, k, v, d_out)]
        return count_bytes(by_heads), *(
            count_bytes(with_gradients, way, *(each.clone() for each in own))
            for way in (parallel.all_to_all_attention, parallel.ring_attention)
        )

    assert spawn(all_ways, W) == W * [bytes_sent(N, W, H, H, d, 4)]


def test_blocks_are_seen_in_the_order_of_11_1():
    def go_round(hop):
        rank, W = dist.get_rank(), dist.get_world_size()
        held, seen = torch.tensor([rank]), []
        for _ in range(W):
            seen.append(held.item())
            arriving = torch.empty_like(held)
            work = [dist.isend(held, (rank + hop) % W), dist.irecv(arriving, (rank - hop) % W)]
            for each in work:
                each.wait()
            held = arriving
        return seen

    found = spawn(go_round, 4, 3)
    assert found == [blocks_received(rank, 4, 3).tolist() for rank in range(4)]


def test_what_zigzag_ranks_hold_comes_back_in_order():
    x = torch.randn(24, 3)
    assert torch.equal(back_in_order(x[torch.stack(parallel.shard_positions(24, 3, zigzag=True))]), x)


@pytest.mark.parametrize("first, comes", [("all send", False), ("every second sends", True)])
def test_real_calls_that_block_stand_still_as_11_7_says(first, comes):
    def swap():
        rank, W = dist.get_rank(), dist.get_world_size()
        arriving, send_first = torch.empty(1), first == "all send" or rank % 2 == 0
        for send in (send_first, not send_first):
            if send:
                dist.send(torch.tensor([float(rank)]), (rank + 1) % W)
            else:
                dist.recv(arriving, (rank - 1) % W)
        return arriving.item()

    if comes:
        assert spawn(swap, 3) == [2, 0, 1]
    else:
        with pytest.raises(RankError, match="waited, in line"):
            spawn(swap, 3, seconds=3)


def test_documents_dealt_fairly_are_attended_to_exactly():
    """With a mask made from places, as 11.8 says: here of what rank 0 holds, of two documents."""
    lengths, held = torch.tensor([9, 15]), shard_tokens((9, 15), 4)  # (W, n)
    q, k, v = torch.randn(3, 2, 24, 4)
    document = torch.arange(2).repeat_interleave(lengths)  # (N,)
    place = torch.arange(24)
    out, lse = torch.zeros(2, 6, 4), torch.full((2, 6), -torch.inf)
    for theirs in held:
        mine = held[0][:, None]
        mask = (theirs <= mine) & (document[theirs] == document[mine])  # (n, n)
        part = tiled_attention(q[:, held[0]], k[:, theirs], v[:, theirs], mask)
        out, lse = merge(out, lse, *part)
    mask = (place <= place[:, None]) & (document == document[:, None])
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
    torch.testing.assert_close(out, exact[:, held[0]])
