"""Lesson 04: masks entry by entry, attention against PyTorch, and the proof that nothing leaks.

Results are compared bit for bit if the operations and their order are the same, because a masked
value adds 0 · v = 0.
"""

import itertools
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from course_utils.attention import (
    MultiHeadAttention,
    attention,
    causal_mask,
    document_mask,
    merge_heads,
    padding_mask,
    prefix_mask,
    rotary,
    sliding_window_mask,
    split_heads,
    tiled_attention,
)
from rounding import normal, outputs_and_gradients

MASKS = [  # mask, its shape, whether query i of sequence b may attend to key j
    *(
        (causal_mask(L, S, align=align), (L, S), lambda b, i, j, offset=offset: j <= i + offset)
        for L, S in [(1, 1), (5, 5), (3, 7), (1, 6), (6, 2), (0, 3), (4, 0)]
        for align, offset in [("lower_right", S - L), ("upper_left", 0)]
    ),
    (causal_mask(6), (6, 6), lambda b, i, j: j <= i),
    (padding_mask([3, 0, 6, 1], 6), (4, 1, 1, 6), lambda b, i, j: j < [3, 0, 6, 1][b]),
    (padding_mask(torch.tensor([2]), 3), (1, 1, 1, 3), lambda b, i, j: j < 2),
    *(
        (sliding_window_mask(L, window), (L, L), lambda b, i, j, w=window: 0 <= i - j < w)
        for L, window in [(7, 3), (5, 1), (4, 9), (0, 2)]
    ),
    *(
        (prefix_mask(L, prefix), (L, L), lambda b, i, j, prefix=prefix: j <= i or j < prefix)
        for L, prefix in [(6, 2), (5, 0), (4, 4), (3, 5)]
    ),
    (document_mask([0, 3, 0, 1]), (4, 4), lambda b, i, j: [0, 3, 0, 1][i] == [0, 3, 0, 1][j]),
    (document_mask(torch.tensor([[0, 1], [2, 2]])), (2, 2, 2), lambda b, i, j: b == 1 or i == j),
]


@pytest.mark.parametrize("mask, shape, allowed", MASKS)
def test_a_mask_entry_by_entry(mask, shape, allowed):
    assert mask.shape == shape and mask.dtype == torch.bool
    rows = mask.reshape(-1, *shape[-2:]) if mask.numel() else mask[None]
    for b, i, j in itertools.product(*map(range, rows.shape)):
        assert rows[b, i, j] == allowed(b, i, j), (b, i, j)


N = torch.ones(2, 3, dtype=torch.int, device="meta")
X = torch.ones(2, 3, 4, device="meta")


@pytest.mark.parametrize(
    "function, args",
    [(padding_mask, (N[0], 4)), (document_mask, (N,)), (attention, (X, X, X, N[:, None] > 1))]
    + [(partial(tiled_attention, is_causal=True), (X, X, X)), (rotary, (X, N))],
)
def test_all_is_computed_where_the_inputs_are(function, args):
    result = function(*args)
    assert all(each.is_meta for each in (result if isinstance(result, tuple) else [result]))


def test_upper_left_is_the_alignment_of_pytorchs_is_causal():
    q, k, v = normal(1, 3, 4), normal(1, 7, 4, seed=1), normal(1, 7, 4, seed=2)
    upper, _ = attention(q, k, v, causal_mask(3, 7, align="upper_left"))
    torch.testing.assert_close(upper, F.scaled_dot_product_attention(q, k, v, is_causal=True))


# attention against PyTorch: outputs and gradients, over many shapes and masks with empty rows


def drawn(seed):
    """Return q, k, v of random sizes and a random mask with some empty rows."""
    rng = torch.Generator().manual_seed(seed)
    B, H, L, S, d_k, d_v = (int(torch.randint(1, n, (), generator=rng)) for n in (4, 4, 7, 7, 6, 6))
    qkv = [normal(B, H, *shape, seed=seed) for shape in ((L, d_k), (S, d_k), (S, d_v))]
    leading = [(B, H), (B, 1), (1, 1), (1, H), ()][seed % 5]
    mask = torch.rand(*leading, [L, 1][seed % 7 == 0], S, generator=rng) < 0.4
    return qkv, mask, [None, 1.0, 0.3][seed % 3]


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_attention_and_its_gradients_equal_sdpa_even_for_rows_with_no_allowed_key(backend):
    empty_rows = 0
    for seed in range(60):
        (q, k, v), mask, scale = drawn(seed)
        if backend == SDPBackend.FLASH_ATTENTION and q.shape[-1] != v.shape[-1]:
            continue  # flash takes equal widths only
        mask = None if seed % 10 == 9 else mask

        def ours(q, k, v, mask=mask, scale=scale):
            return attention(q, k, v, mask, scale)[0]

        def theirs(q, k, v, mask=mask, scale=scale):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)

        with sdpa_kernel(backend):
            right = outputs_and_gradients(theirs, [q, k, v])
        for one, other in zip(outputs_and_gradients(ours, [q, k, v]), right, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)  # NaN equals nothing
        output, weights = attention(q, k, v, mask, scale)
        torch.testing.assert_close(weights @ v, output)
        mask = (torch.ones(1, 1) > 0 if mask is None else mask).expand(weights.shape)
        assert not weights[~mask].any()
        torch.testing.assert_close(weights.sum(dim=-1), mask.any(dim=-1).double())
        empty_rows += int((~mask.any(dim=-1)).sum())
    assert empty_rows > 20


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_an_empty_row_is_zeros_in_every_dtype_and_the_backward_pass_has_no_nan(dtype):
    q, k, v = (20 * normal(3, 4, seed=n, dtype=dtype).requires_grad_() for n in range(3))
    mask = causal_mask(3) & torch.tensor([False, True, True])
    with torch.autograd.detect_anomaly(check_nan=True):
        output, weights = attention(q, k, v, mask)
        output.sum().backward()
    assert output.dtype == weights.dtype == dtype
    assert output.isfinite().all() and not output[0].any() and not weights[0].any()
    assert output[1:].abs().sum(dim=-1).all()


def test_products_beyond_float16_do_not_overflow_if_the_scores_fit():
    q, k = torch.full((2, 2, 128), 30.0).half().unbind()  # q·k is 115200, the score 10182
    k[1] += 0.03125  # so the weights are not equal
    _, weights = attention(q, k, torch.eye(2).half())
    right = attention(q.double(), k.double(), torch.eye(2).double())[1]
    assert weights.isfinite().all() and torch.equal(weights.double().round(), right.round())


# The proof: masked values may be any finite number, and nothing changes, bit for bit

L = 7
PATTERNS = {
    "causal": causal_mask(L),
    "causal, more keys": causal_mask(4, L, align="lower_right"),
    "causal, fewer keys": causal_mask(L, 4, align="lower_right"),
    "left padding, causal": causal_mask(L) & padding_mask([5, 2], L).flip(-1),
    "documents, causal": document_mask([0, 0, 1, 1, 1, 2, 0]) & causal_mask(L),
    "one": torch.eye(L) > 0,
    "nothing": torch.zeros(L, L) > 0,
}


def multi_head(q, k, v, mask):
    """Apply the layer to heads that are concatenated, (B, L, H·d), and split its output again."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        layer = MultiHeadAttention(15, 3).to(q.dtype)
    v = F.pad(v, (0, q.shape[-1] - v.shape[-1]))  # its inputs are equally wide
    output, weights = layer(*map(merge_heads, (q, k, v)), mask)
    return split_heads(output, 3), weights


@pytest.mark.parametrize("function", [attention, multi_head, tiled_attention])
@pytest.mark.parametrize("mask", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_changing_what_is_masked_changes_nothing_bit_for_bit(function, mask, dtype):
    mask = mask.expand(2, 3, *mask.shape[-2:])
    queries, keys = mask.shape[-2:]
    q, k, v = (normal(2, 3, n, d, dtype=dtype) for n, d in ((queries, 5), (keys, 5), (keys, 4)))
    output, weights = function(q, k, v, mask)
    for j, size in itertools.product(range(keys), [1, 1e4]):
        other_k, other_v = k.clone(), v.clone()
        other_k[..., j, :] = size * normal(5, seed=j, dtype=dtype)
        other_v[..., j, :] = size * normal(4, seed=j, dtype=dtype)
        changed, other_weights = function(q, other_k, other_v, mask)
        masked = ~mask[..., j]  # (B, H, L)
        assert torch.equal(changed[masked], output[masked])
        assert torch.equal(other_weights[masked], weights[masked])
        if (~masked).any():
            assert not torch.equal(changed[~masked], output[~masked])
