"""Attention sharded over real processes, against one process in float64."""

import copy
import re

import pytest
import torch
import torch.distributed as dist
from torch.utils.flop_counter import FlopCounterMode

from course_utils import parallel
from course_utils.attention import MultiHeadAttention, causal_mask
from course_utils.distributed import RankError, spawn
from course_utils.measure import bytes_sent
from rounding import assert_within, attention_and_lse, attention_errors, normal

pytestmark = pytest.mark.slow  # each test starts processes

B, H, N, D = 2, 4, 16, 8


def check_bytes(ranks):
    """Return the bytes of the all-reduce that compares how many tokens the ranks hold."""
    return 2 * (ranks - 1) * 2 * 8 // ranks  # two int64


def on_a_rank(function, q, k, v, arriving, held):
    """Return outputs and gradients of this rank's tokens, and the bytes it sent."""
    own = held[dist.get_rank()]
    leaves = [x[..., own, :].clone().requires_grad_() for x in (q, k, v)]
    g_out, g_lse = arriving
    outputs = []

    def both_passes():
        outputs.extend(function(*leaves))
        torch.autograd.backward(outputs, [g_out[..., own, :], g_lse[..., own]][: len(outputs)])

    sent = bytes_sent(both_passes)
    return [x.detach() for x in outputs] + [x.grad for x in leaves], sent


def compare(function, ranks, causal, held, dtype):
    """Compare (output,) or (output, lse) and gradients; return the bytes each rank sent."""
    N = sum(map(len, held))
    q, k, v, g_out = normal(4, B, H, N, D, dtype=dtype)
    lse_dtype = torch.promote_types(dtype, torch.float32)
    g_lse = normal(B, H, N, dtype=lse_dtype, seed=1)
    mask = causal_mask(N) if causal else torch.ones(N, N, dtype=torch.bool)
    answers = spawn(on_a_rank, ranks, function, q, k, v, (g_out, g_lse), held, seconds=60)
    with_lse = len(answers[0][0]) == 5
    arriving = g_out, g_lse * with_lse
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    right = attention_and_lse(*exact, mask)
    torch.autograd.backward(right, [x.double() for x in arriving])
    # Keys come in blocks of a rank's tokens; merging two parts is a step more than tile to tile.
    errors = attention_errors(q, k, v, mask, 2 * (max(N // ranks, 1),), arriving=arriving)
    wanted = [*(x.detach() for x in right), *(x.grad for x in exact)]
    if not with_lse:
        del errors[1], wanted[1]
    for number, (want, error) in enumerate(zip(wanted, errors, strict=True)):
        parts = [results[number] for results, _ in answers]
        tokens = -2 if parts[0].dim() == 4 else -1
        got = torch.cat(parts, dim=tokens).index_select(tokens, torch.cat(held).argsort())
        assert got.dtype == (lse_dtype if with_lse and number == 1 else dtype)
        assert_within(got, want, 2 * error)
    return [sent for _, sent in answers]


@pytest.mark.parametrize("causal, zigzag", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("N, ranks", [(16, 1), (16, 2), (16, 4), (13, 2), (10, 4), (3, 4)])
def test_a_ring_gives_attention_and_its_gradients(N, ranks, causal, zigzag):
    held = parallel.shard_positions(N, ranks, zigzag)
    lengths = [len(each) for each in held]

    def ring(q, k, v):
        return parallel.ring_attention(
            q, k, v, is_causal=causal, zigzag=zigzag, lengths=None if N % ranks == 0 else lengths
        )

    dtype = torch.float64 if N == 13 else torch.float32
    sent = compare(ring, ranks, causal, held, dtype)
    check = check_bytes(ranks) if N % ranks == 0 else 0
    block = B * H * max(lengths) * D * dtype.itemsize
    # forward: K and V, W - 1 times; backward: that again, and the gradients of both W times
    passes = 2 * 2 * (ranks - 1) + 2 * ranks if ranks > 1 else 0
    assert sent == ranks * [passes * block + check]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_to_all_gives_attention_and_its_gradients(ranks, causal):
    def all_to_all(q, k, v):
        return (parallel.all_to_all_attention(q, k, v, is_causal=causal),)

    dtype = torch.float64 if ranks == 2 else torch.float32
    sent = compare(all_to_all, ranks, causal, parallel.shard_positions(N, ranks), dtype)
    block = B * H * N // ranks * D * dtype.itemsize
    # q, k, v and the output, forward and backward; a rank keeps its own part of each
    assert sent == ranks * [8 * block * (ranks - 1) // ranks + check_bytes(ranks)]


@pytest.mark.parametrize("way", ["ring", "all-to-all"])
def test_all_sums_are_in_float32_when_the_numbers_have_16_bits(way):
    """Then an error is that of float32, and one rounding of the result to bfloat16."""

    def ring(q, k, v):
        return parallel.ring_attention(q, k, v, is_causal=True, zigzag=True)

    def all_to_all(q, k, v):
        return (parallel.all_to_all_attention(q, k, v, is_causal=True),)

    held = parallel.shard_positions(32, 4, zigzag=way == "ring")
    compare(ring if way == "ring" else all_to_all, 4, True, held, torch.bfloat16)


def grouped_on_a_rank(q, k, v, d_out, held):
    """Return output and gradients of this rank's tokens, in a ring and by all-to-all."""
    leaves = [x[:, held[dist.get_rank()]].requires_grad_() for x in (q, k, v)]
    both = [parallel.ring_attention(*leaves, is_causal=True)[0],
            parallel.all_to_all_attention(*leaves, is_causal=True)]  # fmt: skip
    d_out = d_out[:, held[dist.get_rank()]]
    return [(out.detach(), *torch.autograd.grad(out, leaves, d_out)) for out in both]


def test_query_heads_may_share_kv_heads():
    q, d_out = normal(2, 4, N, D)
    k, v = normal(2, 2, N, D, seed=1)
    held = parallel.shard_positions(N, 2)
    answers = spawn(grouped_on_a_rank, 2, q, k, v, d_out, held, seconds=60)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    right = torch.nn.functional.scaled_dot_product_attention(
        *leaves, is_causal=True, enable_gqa=True
    )
    right = right.detach(), *torch.autograd.grad(right, leaves, d_out)
    for way in range(2):
        for parts, whole in zip(zip(*(a[way] for a in answers), strict=True), right, strict=True):
            torch.testing.assert_close(torch.cat(parts, dim=1), whole)


def both_rings(q, k, v, held, zigzag):
    """Return this rank's output of the course's ring and of PyTorch's."""
    from torch.distributed.tensor.experimental._context_parallel import _attention as pytorch

    pytorch._cp_options.enable_load_balance = zigzag
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    q, k, v = (x[:, held[dist.get_rank()]] for x in (q, k, v))
    theirs = pytorch._templated_ring_attention(
        dist.group.WORLD, 2, flash, q[None], k[None], v[None], True
    )
    ours, _ = parallel.ring_attention(q, k, v, is_causal=True, zigzag=zigzag)
    return ours, theirs[0][0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("zigzag", [False, True])
def test_pytorchs_own_ring_gives_the_same(zigzag, dtype):
    q, k, v = normal(3, H, 32, D).to(dtype)
    held = parallel.shard_positions(32, 4, zigzag)
    for ours, theirs in spawn(both_rings, 4, q, k, v, held, zigzag, seconds=60):
        # each rounds a sum of weighted values to the dtype; PyTorch's rounds each step's too
        limit = 4 * torch.finfo(dtype).eps * v.abs().max()
        assert (ours - theirs).abs().max() <= limit


def test_a_second_derivative_is_refused_and_not_given_wrong():
    def twice(x):
        x.requires_grad_()
        out, _ = parallel.ring_attention(x, x, x)
        (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        slope.square().sum().backward()

    with pytest.raises(RankError, match="once_differentiable"):
        spawn(twice, 1, torch.randn(1, 3, 2), seconds=60)


@pytest.mark.parametrize(
    "causal, zigzag, work",  # of each of four ranks, in forward products of two whole blocks
    [(False, False, [4, 4, 4, 4]), (True, False, [1, 2, 3, 4]), (True, True, [2.5] * 4)],
)
def test_a_rank_computes_what_is_visible_and_no_more(causal, zigzag, work):
    """A block of 16 tokens is below a tile: the local one is computed whole, and masked."""

    def flops(n):
        q, k, v = (torch.randn(1, n, D).requires_grad_() for _ in range(3))
        with FlopCounterMode(display=False) as forward:
            out, _ = parallel.ring_attention(q, k, v, is_causal=causal, zigzag=zigzag)
        with FlopCounterMode(display=False) as backward:
            out.sum().backward()
        return [c.get_total_flops() / (2 * 2 * n * n * D) for c in (forward, backward)]

    # five products backward for two forward
    assert spawn(flops, 4, 16, seconds=60) == [[each, 2.5 * each] for each in work]


def layer_on_a_rank(layer, x, g, mask):
    x, outs = x.clone().requires_grad_(), []

    def both_passes():
        outs.append(parallel.attention_by_heads(x, layer, mask))
        outs[0].backward(g)

    sent = bytes_sent(both_passes)
    grads = {name: each.grad for name, each in layer.named_parameters()}
    return outs[0].detach(), x.grad, grads, sent


@pytest.mark.parametrize("ranks, bias", [(1, True), (2, False), (4, True)])
def test_sharded_heads_give_the_layer_and_its_gradients(ranks, bias):
    layer, mask = MultiHeadAttention(32, H, bias).double(), causal_mask(N)
    x, g = normal(2, B, N, 32)
    answers = spawn(layer_on_a_rank, ranks, copy.deepcopy(layer), x, g, mask, seconds=60)
    x = x.clone().requires_grad_()
    out = layer(x, x, x, mask)[0]
    out.backward(g)
    for rank_out, x_grad, _, sent in answers:
        torch.testing.assert_close(rank_out, out.detach())
        torch.testing.assert_close(x_grad, x.grad)
        # the output forward, the input's gradient backward: 2 (W - 1) / W of each, in a ring
        assert sent == 2 * (2 * (ranks - 1) * x.nbytes // ranks)
    for name, each in layer.named_parameters():
        parts = [grads[name] for _, _, grads, _ in answers]
        total = parts[0] if name == "W_o.bias" else sum(parts)
        torch.testing.assert_close(total, each.grad)


def test_two_calls_on_one_input_add_their_gradients_and_an_input_may_need_none():
    def both(layer, x):
        parallel.attention_by_heads(x, layer).sum().backward()
        alone = layer.W_q.weight.grad.clone()
        x.requires_grad_()
        for _ in range(2):
            parallel.attention_by_heads(x, layer).sum().backward()
        return x.grad, alone

    layer, x = MultiHeadAttention(8, 4).double(), normal(5, 8)
    answers = spawn(both, 2, copy.deepcopy(layer), x, seconds=60)
    x = x.clone().requires_grad_()
    layer(x, x, x)[0].sum().backward()
    torch.testing.assert_close(sum(alone for _, alone in answers), layer.W_q.weight.grad)
    for grad, _ in answers:
        torch.testing.assert_close(grad, 2 * x.grad)


def uneven(rank):
    return torch.zeros(4, 3 + rank, 2)


REFUSED = [
    (3, lambda r: parallel.attention_by_heads(torch.zeros(1, 2, 12), MultiHeadAttention(12, 4)),
     "the number of ranks must divide 4 heads"),
    (2, lambda r: parallel.ring_attention(*[uneven(0)] * 3, lengths=[3, 4]) if r else None,
     r"lengths must have n = 3 for rank 1, got \[3, 4\]"),
    (2, lambda r: parallel.ring_attention(*[uneven(r)] * 3), "same number of tokens, got 3 to 4"),
    (2, lambda r: parallel.all_to_all_attention(*[uneven(r)] * 3),
     "same number of tokens, got 3 to 4"),
    (3, lambda r: parallel.all_to_all_attention(*[uneven(0)] * 3),
     "3 ranks must divide the 4 query heads and the 4 KV heads"),
    (2, lambda r: parallel.all_to_all_attention(uneven(0), *[uneven(0)[:1]] * 2),
     "2 ranks must divide the 4 query heads and the 1 KV heads"),
    (2, lambda r: parallel.all_to_all_attention(*[uneven(0)[:1]] * 3),
     "2 ranks must divide the 1 query heads and the 1 KV heads"),
    (2, lambda r: parallel.all_to_all_attention(torch.zeros(6, 3, 2), *[uneven(0)] * 2),
     "KV heads must divide 6 query heads, got 4"),
    (2, lambda r: parallel.ring_attention(uneven(0), *[torch.zeros(3, 3, 2)] * 2),
     "KV heads must divide 4 query heads, got 3"),
]  # fmt: skip


def refusals(calls):
    """Return the error of each call on this rank, or what it returns."""
    said = []
    for call in calls:
        try:
            said.append(call(dist.get_rank()))
        except ValueError as error:
            said.append(str(error))
    return said


@pytest.mark.parametrize("ranks", sorted({row[0] for row in REFUSED}))
def test_what_cannot_be_sharded_is_refused(ranks):
    _, calls, messages = zip(*(row for row in REFUSED if row[0] == ranks), strict=True)
    answers = zip(*spawn(refusals, ranks, calls, seconds=60), strict=True)
    for said, message in zip(answers, messages, strict=True):
        assert all(re.search(message, each) for each in said if each is not None), said


def test_each_token_is_on_one_rank_and_zigzag_gives_all_ranks_the_same_work():
    def lists(*given):
        return [each.tolist() for each in parallel.shard_positions(*given)]

    assert lists(8, 2) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert lists(8, 2, True) == [[0, 1, 6, 7], [2, 3, 4, 5]]
    for tokens, zigzag in [(24, False), (25, True), (29, False), (2, True)]:
        held = lists(tokens, 3, zigzag)
        assert sorted(sum(held, [])) == list(range(tokens))
        assert max(map(len, held)) - min(map(len, held)) <= 1
    work = [(torch.arange(48) <= own[:, None]).sum().item()
            for own in parallel.shard_positions(48, 4, zigzag=True)]  # fmt: skip
    assert len(set(work)) == 1
