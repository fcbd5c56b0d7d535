"""Attention cut over real processes, against one process in float64."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch.utils.flop_counter import FlopCounterMode

from course_utils import parallel
from course_utils.attention import MultiHeadAttention, causal_mask
from course_utils.distributed import RankError, spawn
from course_utils.measure import bytes_sent
from rounding import assert_within, attention_and_lse, attention_errors

B, H, N, D = 2, 4, 16, 8


def on_a_rank(function, q, k, v, arriving, held):
    """Return results and gradients of this rank's tokens, and what it sent; runs on a rank."""
    own = held[dist.get_rank()]
    leaves = [x[..., own, :].clone().requires_grad_() for x in (q, k, v)]
    g_out, g_lse = arriving
    results = []

    def both_passes():
        results.extend(function(*leaves))
        torch.autograd.backward(results, [g_out[..., own, :], g_lse[..., own]][: len(results)])

    sent = bytes_sent(both_passes)
    return [x.detach() for x in results] + [x.grad for x in leaves], sent


def whole(parts, held):
    """Return one tensor of the ranks' tokens, in the order of their places."""
    tokens = -2 if parts[0].dim() == 4 else -1
    return torch.cat(parts, dim=tokens).index_select(tokens, torch.cat(held).argsort())


def compare(function, ranks, causal, held, B=B, dtype=torch.float32):
    """Compare (output,) or (output, lse) and gradients; return what each rank sent."""
    torch.manual_seed(0)
    N = sum(map(len, held))
    q, k, v, g_out = torch.randn(4, B, H, N, D, dtype=dtype)
    g_lse = torch.randn(B, H, N, dtype=dtype)
    mask = causal_mask(N) if causal else torch.ones(N, N, dtype=torch.bool)
    answers = spawn(on_a_rank, ranks, function, q, k, v, (g_out, g_lse), held, seconds=60)
    with_lse = len(answers[0][0]) == 5
    arriving = g_out, g_lse * with_lse
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    right = attention_and_lse(*exact, mask)
    torch.autograd.backward(right, [x.double() for x in arriving])
    # Keys come in blocks of a rank's tokens; joining two parts is a step more than tile to tile.
    errors = attention_errors(q, k, v, mask, 2 * (max(N // ranks, 1),), arriving=arriving)
    wanted = [*(x.detach() for x in right), *(x.grad for x in exact)]
    if not with_lse:
        del errors[1], wanted[1]
    for number, (want, error) in enumerate(zip(wanted, errors, strict=True)):
        got = whole([each[0][number] for each in answers], held)
        assert got.dtype == dtype
        assert_within(got, want, 2 * error)
    return [each[1] for each in answers]


@pytest.mark.parametrize("zigzag", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_ring_gives_attention_and_its_gradients(ranks, causal, zigzag):
    def ring(q, k, v):
        return parallel.ring_attention(q, k, v, is_causal=causal, zigzag=zigzag)

    sent = compare(ring, ranks, causal, parallel.shard_positions(N, ranks, zigzag))
    block = B * H * N // ranks * D * 4
    # forward: K and V, W - 1 times; backward: that again, and the gradients of both W times
    passes = 2 * 2 * (ranks - 1) + 2 * ranks if ranks > 1 else 0
    assert sent == ranks * [passes * block]


@pytest.mark.parametrize("zigzag", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("N, ranks", [(13, 2), (13, 4), (10, 4), (3, 4)])
def test_a_ring_takes_what_cannot_be_cut_evenly(N, ranks, causal, zigzag):
    held = parallel.shard_positions(N, ranks, zigzag)

    def ring(q, k, v):
        lengths = [len(each) for each in held]
        return parallel.ring_attention(q, k, v, is_causal=causal, zigzag=zigzag, lengths=lengths)

    compare(ring, ranks, causal, held, B=1)


def ring(q, k, v):
    return parallel.ring_attention(q, k, v)


def exchange(q, k, v):
    return (parallel.all_to_all_attention(q, k, v),)


@pytest.mark.parametrize("function", [ring, exchange])
def test_of_float64_no_digit_is_lost_on_the_way(function):
    compare(function, 2, False, parallel.shard_positions(N, 2), dtype=torch.float64)


def test_a_second_derivative_is_refused_and_not_given_wrong():
    def twice(x):
        x.requires_grad_()
        out, _ = parallel.ring_attention(x, x, x)
        (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        slope.square().sum().backward()

    with pytest.raises(RankError, match="once_differentiable"):
        spawn(twice, 1, torch.randn(1, 3, 2), seconds=60)


def work_on_a_rank(n, causal, zigzag):
    """Return the work of each step, forward and backward, in forward products of a whole block."""
    q, k, v = (torch.randn(1, n, D).requires_grad_() for _ in range(3))
    counter, visits, work = FlopCounterMode(display=False), parallel._ring_steps, []

    def counted(*given):
        for each in visits(*given):
            before = counter.get_total_flops()
            yield each
            work.append((counter.get_total_flops() - before) / (2 * 2 * n * n * D))

    parallel._ring_steps = counted
    with counter:
        parallel.ring_attention(q, k, v, is_causal=causal, zigzag=zigzag)[0].sum().backward()
    return work[: len(work) // 2], work[len(work) // 2 :]


@pytest.mark.parametrize("causal, zigzag", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_computes_in_each_step_what_is_visible_and_no_more(ranks, causal, zigzag):
    """A block of 16 tokens is below a tile: the rank's own is computed whole, and masked."""
    for rank, (forward, backward) in enumerate(
        spawn(work_on_a_rank, ranks, 16, causal, zigzag, seconds=60)
    ):
        others = [0.5 if zigzag else float(step <= rank or not causal) for step in range(1, ranks)]
        assert forward == [1, *others]
        assert backward == [2.5 * each for each in forward]  # five products for two
        assert sum(forward) == (
            (ranks + 1) / 2 if zigzag else rank + 1 if causal else ranks
        )  # in order r + 1 of W, in zigzag all alike


def test_a_rank_s_own_block_skips_the_tiles_beyond_the_diagonal():
    """Of four rows of tiles the first computes a quarter of the keys, the last all."""
    rows, _ = parallel.TILE
    forward, _ = spawn(work_on_a_rank, 1, 4 * rows, True, False, seconds=60)[0]
    assert forward == [(1 + 2 + 3 + 4) / 16]


def test_lengths_that_do_not_fit_are_refused():
    def ring(x):
        parallel.ring_attention(x, x, x, lengths=[3, 4])

    with pytest.raises(RankError, match=r"lengths must have n = 3 for rank 1, got \[3, 4\]"):
        spawn(ring, 2, torch.zeros(1, 3, 2), seconds=60)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_an_exchange_gives_attention_and_its_gradients(ranks, causal):
    def exchange(q, k, v):
        return (parallel.all_to_all_attention(q, k, v, is_causal=causal),)

    sent = compare(exchange, ranks, causal, parallel.shard_positions(N, ranks))
    block = B * H * N // ranks * D * 4
    # q, k, v and the output, forward and backward; a rank keeps its own part of each
    assert sent == ranks * [8 * block * (ranks - 1) // ranks]


def layer_on_a_rank(layer, x, g, mask):
    x, outs = x.clone().requires_grad_(), []

    def both_passes():
        outs.append(parallel.attention_by_heads(x, layer, mask))
        outs[0].backward(g)

    sent = bytes_sent(both_passes)
    grads = {name: each.grad for name, each in layer.named_parameters()}
    return outs[0].detach(), x.grad, grads, sent


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_heads_dealt_out_give_the_layer_and_its_gradients(ranks, bias):
    torch.manual_seed(0)
    layer, mask = MultiHeadAttention(32, H, bias).double(), causal_mask(N)
    x, g = torch.randn(2, B, N, 32).double()
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


def test_two_calls_on_one_input_add_their_gradients():
    def both(layer, x):
        x.requires_grad_()
        for _ in range(2):
            parallel.attention_by_heads(x, layer).sum().backward()
        return x.grad

    layer, x = MultiHeadAttention(8, 4).double(), torch.randn(5, 8).double()
    found = spawn(both, 2, copy.deepcopy(layer), x, seconds=60)
    x = x.clone().requires_grad_()
    layer(x, x, x)[0].sum().backward()
    for grad in found:
        torch.testing.assert_close(grad, 2 * x.grad)


def test_heads_that_cannot_be_dealt_out_are_refused():
    def deal(layer, x):
        parallel.attention_by_heads(x, layer)

    with pytest.raises(RankError, match="ValueError: the number of ranks must divide 4 heads, got 3 ranks"):
        spawn(deal, 3, MultiHeadAttention(12, 4), torch.zeros(1, 2, 12))


def test_heads_of_a_fixed_input_give_gradients_to_the_layer_alone():
    def layer_alone(layer, x):
        parallel.attention_by_heads(x, layer).sum().backward()
        return layer.W_q.weight.grad

    layer, x = MultiHeadAttention(8, 4), torch.randn(5, 8)
    found = sum(spawn(layer_alone, 2, copy.deepcopy(layer), x, seconds=60))
    layer(x, x, x)[0].sum().backward()
    torch.testing.assert_close(found, layer.W_q.weight.grad)


def test_places_are_dealt_out_once_and_zigzag_pairs_early_with_late():
    def lists(*given):
        return [each.tolist() for each in parallel.shard_positions(*given)]

    assert lists(8, 2) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert lists(8, 2, True) == [[0, 1, 6, 7], [2, 3, 4, 5]]
    for N in [24, 25, 29, 2]:
        for zigzag in [False, True]:
            held = lists(N, 3, zigzag)
            assert sorted(sum(held, [])) == list(range(N))
            assert max(map(len, held)) - min(map(len, held)) <= 1


def test_under_a_causal_mask_zigzag_gives_all_ranks_the_same_work():
    def work(zigzag):
        held = parallel.shard_positions(48, 4, zigzag)
        return [(torch.arange(48) <= own[:, None]).sum().item() for own in held]

    assert len(set(work(zigzag=True))) == 1
    assert work(zigzag=False) == sorted(set(work(zigzag=False)))
