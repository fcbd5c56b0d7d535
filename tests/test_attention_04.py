"""Lesson 04: masks entry by entry, attention against PyTorch, and the proof that nothing leaks.

In float64 100 roundings of terms that sum to 1000 cost 1e-11; 1e-10 and more are allowed. What is
compared bit for bit is the same operations in the same order: what is masked adds 0 · v = 0.
"""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from course_utils.attention import (
    MultiHeadAttention,
    MultiHeadSelfAttention,
    attention,
    causal_mask,
    document_mask,
    merge_heads,
    padding_mask,
    prefix_mask,
    sliding_window_mask,
    split_heads,
    tiled_attention,
)

SIZES = [(1, 1), (5, 5), (3, 7), (1, 6), (6, 2), (0, 3), (4, 0)]


def entries(mask):
    """Go over the entries of a mask (L, S) as (i, j, allowed)."""
    for i, j in itertools.product(*map(range, mask.shape)):
        yield i, j, bool(mask[i, j])


@pytest.mark.parametrize("L, S", SIZES)
@pytest.mark.parametrize("align", ["lower_right", "upper_left"])
def test_causal_mask_entry_by_entry(L, S, align):
    mask = causal_mask(L, S, align=align)
    assert mask.shape == (L, S) and mask.dtype == torch.bool
    offset = {"lower_right": S - L, "upper_left": 0}[align]
    assert all(allowed == (j <= i + offset) for i, j, allowed in entries(mask))


def test_causal_mask_without_S_is_square_and_both_alignments_agree_there():
    assert torch.equal(causal_mask(6), causal_mask(6, 6))
    assert torch.equal(causal_mask(6), causal_mask(6, align="upper_left"))


@pytest.mark.parametrize("L, S", [(5, 5), (3, 7), (1, 6)])
def test_alignments_are_those_of_pytorch(L, S):
    # Slow to import, in each process that collects tests.
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(n, 4, generator=rng).double() for n in (L, S, S))
    sdpa = F.scaled_dot_product_attention
    upper, _ = attention(q, k, v, causal_mask(L, S, align="upper_left"))
    torch.testing.assert_close(upper, sdpa(q[None], k[None], v[None], is_causal=True)[0])
    torch.testing.assert_close(upper, sdpa(q, k, v, attn_mask=causal_upper_left(L, S)))
    lower, _ = attention(q, k, v, causal_mask(L, S, align="lower_right"))
    torch.testing.assert_close(lower, sdpa(q, k, v, attn_mask=causal_lower_right(L, S)))


def test_padding_mask_entry_by_entry():
    mask = padding_mask(torch.tensor([3, 0, 6, 1]), 6)
    assert mask.shape == (4, 1, 1, 6) and mask.dtype == torch.bool
    for b, j, allowed in entries(mask[:, 0, 0]):
        assert allowed == (j < [3, 0, 6, 1][b])
    assert torch.equal(mask, padding_mask([3, 0, 6, 1], 6))


@pytest.mark.parametrize("L, window", [(7, 3), (5, 1), (4, 9), (0, 2)])
def test_sliding_window_mask_entry_by_entry(L, window):
    mask = sliding_window_mask(L, window)
    assert mask.shape == (L, L) and mask.dtype == torch.bool
    assert all(allowed == (0 <= i - j < window) for i, j, allowed in entries(mask))


@pytest.mark.parametrize("L, prefix", [(6, 2), (5, 0), (4, 4), (3, 5)])
def test_prefix_mask_entry_by_entry(L, prefix):
    mask = prefix_mask(L, prefix)
    assert mask.shape == (L, L) and mask.dtype == torch.bool
    assert all(allowed == (j <= i or j < prefix) for i, j, allowed in entries(mask))


def test_document_mask_entry_by_entry():
    ids = torch.tensor([[0, 0, 1, 2, 2], [5, 3, 3, 5, 5]])
    mask = document_mask(ids)
    assert mask.shape == (2, 5, 5) and mask.dtype == torch.bool
    for row, one in zip(ids, mask, strict=True):
        assert all(allowed == (row[i] == row[j]) for i, j, allowed in entries(one))
    assert torch.equal(document_mask([0, 0, 1]), document_mask(torch.tensor([0, 0, 1])))


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: causal_mask(2.0), TypeError, "L must be an int, got float"),
        (lambda: causal_mask(-1), ValueError, "L must be 0 or more, got -1"),
        (lambda: causal_mask(2, -3), ValueError, "S must be 0 or more, got -3"),
        (lambda: causal_mask(2, align="left"), ValueError, "align must be one of .* got 'left'"),
        (lambda: causal_mask(2, 3), ValueError, "align must be given, since L = 2 and S = 3"),
        (lambda: padding_mask([1.5], 3), TypeError, "lengths must be .* whole numbers"),
        (lambda: padding_mask([[1]], 3), ValueError, r"lengths must have shape \(B,\), got"),
        (lambda: padding_mask([1], "3"), TypeError, "S must be an int, got str"),
        (lambda: sliding_window_mask(3, 0), ValueError, "window must be 1 or more, got 0"),
        (lambda: prefix_mask(3, -1), ValueError, "prefix must be 0 or more, got -1"),
        (lambda: document_mask(torch.rand(3)), TypeError, "ids must be .* got torch.float32"),
        (lambda: attention(*[torch.ones(2, 3)] * 3, torch.ones(2, 2)), TypeError, "mask must be"),
        (
            lambda: attention(*[torch.ones(2, 3)] * 3, torch.ones(3, 2) > 0),
            ValueError,
            r"mask must broadcast to \(..., L, S\) with L = 2, S = 2, got \(3, 2\)",
        ),
    ],
)
def test_bad_input_is_told_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call()


# attention against PyTorch: forward and gradients, over many shapes and masks with empty rows


def drawn(seed):
    """Draw q, k, v of random sizes and a random mask, some of whose rows are empty."""
    rng = torch.Generator().manual_seed(seed)

    def size(high):
        return int(torch.randint(1, high + 1, (), generator=rng))

    B, H, L, S, d_k, d_v = size(3), size(3), size(6), size(6), size(5), size(5)
    shapes = (B, H, L, d_k), (B, H, S, d_k), (B, H, S, d_v)
    qkv = [torch.randn(*shape, generator=rng, dtype=torch.float64) for shape in shapes]
    leading = [(B, H), (B, 1), (1, 1), (1, H), ()][seed % 5]
    mask = torch.rand(*leading, [L, 1][seed % 7 == 0], S, generator=rng) < 0.4
    return *(each.requires_grad_() for each in qkv), mask


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_attention_is_sdpa_with_gradients_also_for_rows_with_nothing_allowed(backend):
    empty_rows = 0
    for seed in range(100):
        q, k, v, mask = drawn(seed)
        if backend == SDPBackend.FLASH_ATTENTION and q.shape[-1] != v.shape[-1]:
            continue  # flash takes equal widths only
        output, weights = attention(q, k, v, mask)
        with sdpa_kernel(backend):
            theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        torch.testing.assert_close(output, theirs, rtol=0, atol=1e-10)
        g = torch.randn_like(output)
        ours = torch.autograd.grad(output, (q, k, v), g)
        for one, other in zip(ours, torch.autograd.grad(theirs, (q, k, v), g), strict=True):
            assert one.isfinite().all()
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
        mask = mask.expand(weights.shape)
        assert not weights[~mask].any()
        sums = mask.any(dim=-1).double()
        torch.testing.assert_close(weights.sum(dim=-1), sums)
        empty_rows += int((sums == 0).sum())
    assert empty_rows > 20


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_an_empty_row_is_zeros_in_every_dtype_and_scores_may_be_large(dtype):
    q, k, v = (torch.randn(3, 4).to(dtype) * 20 for _ in range(3))
    mask = causal_mask(3) & torch.tensor([False, True, True])
    output, weights = attention(q, k, v, mask)
    assert output.dtype == weights.dtype == dtype
    assert output.isfinite().all() and not output[0].any() and not weights[0].any()
    assert output[1:].abs().sum(dim=-1).all()


def test_gradients_are_right_by_gradcheck():
    q, k, v, _ = drawn(3)
    mask = torch.rand(q.shape[-2], k.shape[-2]) < 0.5
    mask[0] = False
    assert torch.autograd.gradcheck(lambda *given: attention(*given, mask)[0], (q, k, v))


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_no_nan_arises_on_the_way_back_either():
    q, k, v = (torch.randn(3, 4, requires_grad=True) for _ in range(3))
    mask = causal_mask(3) & torch.tensor([False, True, True])
    with torch.autograd.detect_anomaly(check_nan=True):
        attention(q, k, v, mask)[0].square().sum().backward()


def test_without_a_mask_it_is_a_mask_that_allows_everything():
    q, k, v, mask = drawn(1)
    for one, other in zip(attention(q, k, v), attention(q, k, v, mask | True), strict=True):
        torch.testing.assert_close(one, other)


def test_products_beyond_float16_do_not_overflow_if_the_scores_fit():
    q, k = torch.full((2, 2, 128), 30.0).half().unbind()  # q·k is 115200, the score 10182
    k[1] += 0.03125  # so the weights are not equal
    _, weights = attention(q, k, torch.eye(2).half())
    right = attention(q.double(), k.double(), torch.eye(2).double())[1]
    assert weights.isfinite().all() and torch.equal(weights.double().round(), right.round())


# The proof: what is masked may be anything finite; nothing changes, bit for bit

L = 7
PATTERNS = {
    "causal": causal_mask(L),
    "causal, more keys": causal_mask(4, L, align="lower_right"),
    "causal, fewer keys": causal_mask(L, 4, align="lower_right"),
    "causal, upper left": causal_mask(4, L, align="upper_left"),
    "padding": padding_mask([5, 2], L),
    "padding at the start": causal_mask(L) & padding_mask([5, 2], L).flip(-1),
    "window": sliding_window_mask(L, 3),
    "prefix": prefix_mask(L, 2),
    "documents": document_mask([0, 0, 1, 1, 1, 2, 0]),
    "documents, causal": document_mask([0, 0, 1, 1, 1, 2, 0]) & causal_mask(L),
    "one": torch.eye(L) > 0,
    "nothing": torch.zeros(L, L) > 0,
}


def layer_of(kind, dtype, d_model=15, num_heads=3):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return kind(d_model, num_heads).to(dtype)


def multi_head(q, k, v, mask):
    """Give a layer of heads the heads side by side, (B, L, H·d), and cut its output again."""
    v = F.pad(v, (0, q.shape[-1] - v.shape[-1]))  # its inputs are equally wide
    inputs = [merge_heads(each) for each in (q, k, v)]
    output, weights = layer_of(MultiHeadAttention, q.dtype)(*inputs, mask)
    return split_heads(output, 3), weights


# Every function of course_utils.attention that takes a mask, on (B, H, L, d); self-attention below.
MASKED = {
    "attention": attention,
    "MultiHeadAttention": multi_head,
    "tiled_attention": tiled_attention,
}


@pytest.mark.parametrize("function", MASKED.values(), ids=MASKED)
@pytest.mark.parametrize("mask", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_changing_what_is_masked_changes_nothing_bit_for_bit(function, mask, dtype):
    rng = torch.Generator().manual_seed(0)
    mask = mask.expand(2, 3, *mask.shape[-2:])
    queries, keys = mask.shape[-2:]

    def normal(*shape):
        return torch.randn(2, 3, *shape, generator=rng, dtype=dtype)

    q, k, v = normal(queries, 5), normal(keys, 5), normal(keys, 4)
    output, weights = function(q, k, v, mask)
    for j, size in itertools.product(range(keys), [1, 1e4]):
        other_k, other_v = k.clone(), v.clone()
        other_k[..., j, :], other_v[..., j, :] = size * normal(5), size * normal(4)
        changed, other_weights = function(q, other_k, other_v, mask)
        blind = ~mask[..., j]  # (B, H, L)
        assert torch.equal(changed[blind], output[blind])
        assert torch.equal(other_weights[blind], weights[blind])
        if (~blind).any():
            assert not torch.equal(changed[~blind], output[~blind])


@pytest.mark.parametrize("mask", PATTERNS.values(), ids=PATTERNS)
def test_the_jacobian_is_zero_exactly_where_the_mask_forbids(mask):
    rng = torch.Generator().manual_seed(1)
    mask = mask.reshape(-1, *mask.shape[-2:])[0]  # (L, S)
    queries, keys = mask.shape
    q, k, v = (torch.randn(n, 3, generator=rng).double() for n in (queries, keys, keys))
    by_v = torch.func.jacrev(lambda v: attention(q, k, v, mask)[0])(v)  # (L, d_v, S, d_v)
    assert torch.equal(by_v.abs().amax(dim=(1, 3)) > 0, mask)
    by_k = torch.func.jacrev(lambda k: attention(q, k, v, mask)[0])(k).abs().amax(dim=(1, 3))
    assert not by_k[~mask].any()
    several = mask & (mask.sum(dim=-1, keepdim=True) > 1)  # one key alone has weight 1
    assert (by_k[several] > 0).all()


SELF_ATTENTION = {
    "attention": lambda x, mask: attention(x, x, x, mask),
    "MultiHeadAttention": lambda x, mask: layer_of(MultiHeadAttention, x.dtype)(x, x, x, mask),
    "MultiHeadSelfAttention": lambda x, mask: layer_of(MultiHeadSelfAttention, x.dtype)(x, mask),
}
SQUARE = {name: mask for name, mask in PATTERNS.items() if mask.shape[-2:] == (L, L)}


@pytest.mark.parametrize("function", SELF_ATTENTION.values(), ids=SELF_ATTENTION)
@pytest.mark.parametrize("mask", SQUARE.values(), ids=SQUARE)
def test_a_token_is_heard_only_where_the_mask_lets_it_bit_for_bit(function, mask):
    rng = torch.Generator().manual_seed(2)
    x = torch.randn(2, L, 15, generator=rng)
    allowed = mask.expand(2, 1, L, L)[:, 0]  # (B, L, L)
    if function is SELF_ATTENTION["attention"]:
        mask = allowed  # it has no heads
    output, _ = function(x, mask)
    for j in range(L):
        changed = x.clone()
        changed[:, j] = 10 * torch.randn(2, 15, generator=rng)
        deaf = ~allowed[..., j]  # (B, L)
        deaf[:, j] = False  # it asks otherwise itself, whatever it hears
        again, _ = function(changed, mask)
        assert torch.equal(again[deaf], output[deaf])
        for heard, before in zip(again[allowed[..., j]], output[allowed[..., j]], strict=True):
            assert not torch.equal(heard, before)


@pytest.mark.parametrize("function", SELF_ATTENTION.values(), ids=SELF_ATTENTION)
def test_a_causal_layer_on_tokens_cannot_see_the_future_bit_for_bit(function):
    rng = torch.Generator().manual_seed(2)
    x = torch.randn(9, 15, generator=rng)
    output, _ = function(x, causal_mask(9))
    for t in range(9):
        changed = x.clone()
        changed[t:] = 10 * torch.randn(9 - t, 15, generator=rng)
        assert torch.equal(function(changed, causal_mask(9))[0][:t], output[:t])


def test_decoding_with_a_cache_in_any_pieces_is_the_whole_at_once():
    rng = torch.Generator().manual_seed(3)
    q, k, v = torch.randn(3, 2, 9, 4, generator=rng, dtype=torch.float64)
    whole, _ = attention(q, k, v, causal_mask(9))
    for sizes in ([1] * 9, [4, 5], [2, 3, 1, 3]):
        pieces, end = [], 0
        for size in sizes:
            start, end = end, end + size
            mask = causal_mask(size, end, align="lower_right")
            pieces.append(attention(q[:, start:end], k[:, :end], v[:, :end], mask)[0])
        torch.testing.assert_close(torch.cat(pieces, dim=1), whole)
