"""Attention cut over real processes, against one process in float64."""

import copy

import pytest
import torch
import torch.distributed as dist

from course_utils import parallel
from course_utils.attention import MultiHeadAttention, causal_mask
from course_utils.ranks import RankError, run_ranks
from rounding import assert_within, attention_and_lse, attention_errors

B, H, N, D = 2, 4, 16, 8


def on_a_rank(function, q, k, v, arriving, held):
    """Return results and gradients of this rank's tokens, and what it sent; runs on a rank."""
    own = held[dist.get_rank()]
    q, k, v = (x[..., own, :].clone().requires_grad_() for x in (q, k, v))
    results = function(q, k, v)
    g_out, g_lse = arriving
    torch.autograd.backward(results, [g_out[..., own, :], g_lse[..., own]][: len(results)])
    return [x.detach() for x in results] + [q.grad, k.grad, v.grad], dict(parallel.sent)


def whole(parts, held):
    """Return one tensor of the ranks' tokens, in the order of their places."""
    tokens = -2 if parts[0].dim() == 4 else -1
    return torch.cat(parts, dim=tokens).index_select(tokens, held.flatten().argsort())


def compare(function, ranks, causal, held):
    """Compare (output,) or (output, lse) and gradients; return what each rank sent."""
    torch.manual_seed(0)
    q, k, v, g_out = torch.randn(4, B, H, N, D)
    g_lse = torch.randn(B, H, N)
    mask = causal_mask(N) if causal else torch.ones(N, N, dtype=torch.bool)
    answers = run_ranks(on_a_rank, ranks, function, q, k, v, (g_out, g_lse), held, seconds=60)
    with_lse = len(answers[0][0]) == 5
    arriving = g_out, g_lse * with_lse
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    right = attention_and_lse(*exact, mask)
    torch.autograd.backward(right, [x.double() for x in arriving])
    # Keys come in blocks of a rank's tokens; joining two parts is a step more than tile to tile.
    errors = attention_errors(q, k, v, mask, 2 * (N // ranks,), arriving=arriving)
    wanted = [*(x.detach() for x in right), *(x.grad for x in exact)]
    if not with_lse:
        del errors[1], wanted[1]
    for number, (want, error) in enumerate(zip(wanted, errors, strict=True)):
        assert_within(whole([each[0][number] for each in answers], held), want, 2 * error)
    return [each[1] for each in answers]


@pytest.mark.parametrize("zigzag", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_ring_gives_attention_and_its_gradients(ranks, causal, zigzag):
    held = parallel.places(N, ranks, zigzag)

    def ring(q, k, v):
        return parallel.ring_attention(q, k, v, held if causal else None)

    sent = compare(ring, ranks, causal, held)
    block = B * H * N // ranks * D * 4
    # forward: K and V, W - 1 times; backward: that again, and the gradients of both W times
    passes = 2 * 2 * (ranks - 1) + 2 * ranks if ranks > 1 else 0
    assert all(each.get("ring", 0) == passes * block for each in sent)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_an_exchange_gives_attention_and_its_gradients(ranks, causal):
    def exchange(q, k, v):
        return (parallel.exchange_attention(q, k, v, is_causal=causal),)

    sent = compare(exchange, ranks, causal, parallel.places(N, ranks))
    block = B * H * N // ranks * D * 4
    # q, k, v and the output, forward and backward; a rank keeps its own part of each
    assert all(each["exchange"] == 8 * block * (ranks - 1) // ranks for each in sent)


def layer_on_a_rank(layer, x, g, mask):
    x = x.clone().requires_grad_()
    out = parallel.attention_by_heads(x, layer, mask)
    out.backward(g)
    grads = {name: each.grad for name, each in layer.named_parameters()}
    return out.detach(), x.grad, grads, dict(parallel.sent)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_heads_dealt_out_give_the_layer_and_its_gradients(ranks, bias):
    torch.manual_seed(0)
    layer, mask = MultiHeadAttention(32, H, bias).double(), causal_mask(N)
    x, g = torch.randn(2, B, N, 32).double()
    answers = run_ranks(layer_on_a_rank, ranks, copy.deepcopy(layer), x, g, mask, seconds=60)
    x = x.clone().requires_grad_()
    out = layer(x, x, x, mask)[0]
    out.backward(g)
    for rank_out, x_grad, _, sent in answers:
        torch.testing.assert_close(rank_out, out.detach())
        torch.testing.assert_close(x_grad, x.grad)
        # the output forward, the input's gradient backward: 2 (W - 1) / W of each, in a ring
        assert sent["heads"] == 2 * (2 * (ranks - 1) * x.nbytes // ranks)
    for name, each in layer.named_parameters():
        parts = [grads[name] for _, _, grads, _ in answers]
        total = parts[0] if name == "W_o.bias" else sum(parts)
        torch.testing.assert_close(total, each.grad)


def test_heads_that_cannot_be_dealt_out_are_refused():
    def deal(layer, x):
        parallel.attention_by_heads(x, layer)

    with pytest.raises(RankError, match="ValueError: 4 heads cannot be dealt out to 3 ranks"):
        run_ranks(deal, 3, MultiHeadAttention(12, 4), torch.zeros(1, 2, 12))


def test_places_are_dealt_out_once_and_zigzag_pairs_early_with_late():
    assert parallel.places(8, 2).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert parallel.places(8, 2, zigzag=True).tolist() == [[0, 1, 6, 7], [2, 3, 4, 5]]
    for zigzag in [False, True]:
        assert parallel.places(24, 3, zigzag).flatten().sort().values.tolist() == list(range(24))


def test_under_a_causal_mask_zigzag_gives_all_ranks_the_same_work():
    held = parallel.places(48, 4, zigzag=True)
    work = [(torch.arange(48) <= own[:, None]).sum().item() for own in held]
    assert len(set(work)) == 1
    uneven = [(torch.arange(48) <= own[:, None]).sum().item() for own in parallel.places(48, 4)]
    assert uneven == sorted(set(uneven))


@pytest.mark.parametrize("N, ranks, zigzag, pieces", [(10, 4, False, 4), (12, 4, True, 8)])
def test_what_cannot_be_cut_evenly_is_refused(N, ranks, zigzag, pieces):
    with pytest.raises(ValueError, match=f"N must be a multiple of {pieces}.* got {N}"):
        parallel.places(N, ranks, zigzag)
