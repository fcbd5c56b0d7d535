"""Lesson 05: heads against PyTorch, forward and gradients, over many shapes and masks.

All in float64, where 500 roundings of terms that sum to 1000, as the largest gradients' do, cost
6e-11; 1e-10 and more are allowed.
"""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_utils.attention import (
    MultiHeadAttention,
    MultiHeadSelfAttention,
    attention,
    causal_mask,
    merge_heads,
    padding_mask,
    split_heads,
)

SIZES = [(5, 3, 4, 2), (1, 1, 1, 1), (2, 6, 1, 3), (0, 3, 4, 2), (2, 2, 0, 3), (3, 2, 5, 1)]


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# Splitting and merging


@pytest.mark.parametrize("B, H, L, d_k", SIZES)
def test_split_heads_entry_by_entry_and_merge_is_its_inverse(B, H, L, d_k):
    x = normal(B, L, H * d_k)
    heads = split_heads(x, H)
    assert heads.shape == (B, H, L, d_k)
    for h, j in itertools.product(range(H), range(d_k)):
        assert torch.equal(heads[:, h, :, j], x[..., h * d_k + j])
    assert torch.equal(merge_heads(heads), x)
    assert torch.equal(split_heads(merge_heads(heads), H), heads)


def test_splitting_copies_nothing_and_takes_any_strides_and_leading_dimensions():
    x = normal(2, 5, 6)
    assert split_heads(x, 3).data_ptr() == x.data_ptr()
    turned = normal(6, 5, 2).permute(2, 1, 0)  # (2, 5, 6), not contiguous
    assert not turned.is_contiguous()
    assert torch.equal(split_heads(turned, 3), split_heads(turned.contiguous(), 3))
    heads = normal(2, 5, 4, 3).mT[..., ::2, :]
    assert torch.equal(merge_heads(heads), merge_heads(heads.contiguous()))
    assert torch.equal(split_heads(x[0], 3), split_heads(x, 3)[0])
    assert split_heads(normal(2, 3, 4, 6), 2).shape == (2, 3, 2, 4, 3)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: split_heads(torch.ones(2, 6), 4), ValueError, "num_heads must divide d_model = 6"),
        (lambda: split_heads(torch.ones(2, 6), 0), ValueError, "num_heads must be 1 or more"),
        (lambda: split_heads(torch.ones(2, 6), 2.0), TypeError, "num_heads must be an int"),
        (lambda: split_heads(torch.ones(6), 2), ValueError, r"x must have shape \(..., L, d_model"),
        (lambda: merge_heads(torch.ones(2, 6)), ValueError, r"x must have shape \(..., H, L, d\)"),
        (lambda: MultiHeadAttention(6, 4), ValueError, "num_heads must divide d_model = 6, got 4"),
        (lambda: MultiHeadSelfAttention(6, 5), ValueError, "must divide d_model = 6, got 5"),
        (lambda: MultiHeadAttention(6.0, 2), TypeError, "d_model must be an int, got float"),
        (
            lambda: MultiHeadAttention(6, 2)(*[torch.ones(2, 5, 4)] * 3),
            ValueError,
            "query must have shape .* with d_model = 6, got",
        ),
        (
            lambda: MultiHeadAttention(6, 2)(torch.ones(2, 5, 6), *[torch.ones(3, 5, 6)] * 2),
            ValueError,
            "key must have shape",
        ),
        (
            lambda: MultiHeadAttention(6, 3)(*[torch.ones(2, 5, 6)] * 3, torch.ones(2, 5, 5) > 0),
            ValueError,
            r"mask must broadcast to \(..., H, L, S\) with H = 3, L = 5, S = 5, got \(2, 5, 5\)",
        ),
        (
            lambda: MultiHeadAttention(6, 3)(*[torch.ones(2, 5, 6)] * 3, torch.ones(5, 5)),
            TypeError,
            "mask must be a boolean",
        ),
    ],
)
def test_bad_input_is_told_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call()


# Against PyTorch


def pair(d_model, num_heads, *, bias=True, seed=0, dtype=torch.float64):
    """Return our layer and PyTorch's with the same random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        ours = MultiHeadAttention(d_model, num_heads, bias).to(dtype)
        for parameter in ours.parameters():
            nn.init.normal_(parameter, std=d_model**-0.5)
    theirs = nn.MultiheadAttention(d_model, num_heads, bias=bias, batch_first=True).to(dtype)
    with torch.no_grad():
        inputs = [ours.W_q, ours.W_k, ours.W_v]
        theirs.in_proj_weight.copy_(torch.cat([each.weight for each in inputs]))
        theirs.out_proj.weight.copy_(ours.W_o.weight)
        if bias:
            theirs.in_proj_bias.copy_(torch.cat([each.bias for each in inputs]))
            theirs.out_proj.bias.copy_(ours.W_o.bias)
    return ours, theirs


def configuration(seed):
    """Draw sizes, inputs (query, key, value) and a mask without empty rows, or none."""
    rng = torch.Generator().manual_seed(seed)

    def size(high):
        return int(torch.randint(1, high + 1, (), generator=rng))

    B, H, L, S, d_k = size(4), size(5), size(6), size(6), size(5)
    inputs = [
        torch.randn(B, n, H * d_k, generator=rng, dtype=torch.float64).requires_grad_()
        for n in (L, S, S)
    ]
    masks = {
        0: None,
        1: padding_mask(torch.randint(1, S + 1, (B,), generator=rng), S).flip(-1),  # at the start
        2: torch.rand(B, H, L, S, generator=rng) < 0.5,
        3: torch.rand(L, S, generator=rng) < 0.5,
        4: torch.rand(B, 1, 1, S, generator=rng) < 0.5,  # padding anywhere
    }
    mask = masks[seed % 5]
    if mask is not None:
        mask = mask.clone()
        mask[..., int(torch.randint(S, (), generator=rng))] = True
    return (H, H * d_k, L, S), inputs, mask, seed % 3 > 0


@pytest.mark.parametrize("start", range(0, 240, 40))
def test_it_is_pytorchs_layer_over_240_random_configurations(start):
    for seed in range(start, start + 40):
        (H, d_model, L, S), inputs, mask, bias = configuration(seed)
        ours, theirs = pair(d_model, H, bias=bias, seed=seed)
        output, weights = ours(*inputs, mask)
        forbidden = None
        if mask is not None:
            forbidden = ~mask.expand(len(inputs[0]), H, L, S).flatten(0, 1)  # (B·H, L, S)
        expected, expected_weights = theirs(
            *inputs, attn_mask=forbidden, average_attn_weights=False
        )
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-10)
        torch.testing.assert_close(weights, expected_weights, rtol=0, atol=1e-10)

        g = normal(*output.shape, seed=seed)
        layers = [ours.W_q, ours.W_k, ours.W_v]
        leaves = [*inputs, *[each.weight for each in layers], ours.W_o.weight]
        their_leaves = [*inputs, theirs.in_proj_weight, theirs.out_proj.weight]
        if bias:
            leaves += [*[each.bias for each in layers], ours.W_o.bias]
            their_leaves += [theirs.in_proj_bias, theirs.out_proj.bias]
        slopes = list(torch.autograd.grad(output, leaves, g))
        slopes[3:6] = [torch.cat(slopes[3:6])]
        if bias:
            slopes[5:8] = [torch.cat(slopes[5:8])]
        for one, other in zip(slopes, torch.autograd.grad(expected, their_leaves, g), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def by_sdpa(layer, query, key, value, mask):
    """Return the layer's output by PyTorch's attention, heads cut out by slices."""
    sizes = layer.W_q.in_features // layer.num_heads
    parts = []
    for h in range(layer.num_heads):
        columns = slice(h * sizes, (h + 1) * sizes)
        q, k, v = layer.W_q(query), layer.W_k(key), layer.W_v(value)
        own = mask if mask.ndim < 3 or mask.shape[-3] == 1 else mask[..., h : h + 1, :, :]
        parts.append(
            F.scaled_dot_product_attention(
                *(each[:, None, :, columns] for each in (q, k, v)), attn_mask=own
            )
        )
    return layer.W_o(torch.cat(parts, dim=-1)[:, 0])


def test_it_is_sdpa_between_projections_also_for_rows_with_nothing_allowed():
    empty = 0
    for seed in range(200):
        (H, d_model, L, S), inputs, _, bias = configuration(seed)
        ours, _ = pair(d_model, H, bias=bias, seed=seed)
        rng = torch.Generator().manual_seed(seed)
        leading = [(len(inputs[0]), H), (len(inputs[0]), 1), (H,), (1,)][seed % 4]
        mask = torch.rand(*leading, L, S, generator=rng) < 0.4
        output, weights = ours(*inputs, mask)
        expected = by_sdpa(ours, *inputs, mask)
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-10)
        g = normal(*output.shape, seed=seed)
        leaves = [*inputs, *ours.parameters()]
        # the bias of keys adds the same to all scores of a row: its gradient is 0 up to rounding
        for one, other in zip(
            torch.autograd.grad(output, leaves, g),
            torch.autograd.grad(expected, leaves, g),
            strict=True,
        ):
            assert one.isfinite().all()
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
        nothing = ~mask.expand(weights.shape).any(dim=-1)  # (B, H, L)
        assert not weights[nothing].any()
        empty += int(nothing.sum())
    assert empty > 100


def test_heads_are_independent_and_the_output_is_the_sum_of_their_parts():
    layer, x = pair(12, 3)[0], normal(2, 5, 12)
    output, weights = layer(x, x, x)
    v = split_heads(layer.W_v(x), 3)  # (B, H, L, d_k)
    blocks = layer.W_o.weight.split(4, dim=1)  # H of (d_model, d_k)
    parts = [weights[:, h] @ v[:, h] @ blocks[h].T for h in range(3)]
    torch.testing.assert_close(output, sum(parts) + layer.W_o.bias)


def test_renaming_the_heads_changes_nothing():
    layer, x = pair(12, 3)[0], normal(2, 5, 12)
    output, weights = layer(x, x, x)
    order = torch.tensor([2, 0, 1])
    rows = split_heads(torch.arange(12)[None], 3)[order].flatten()
    with torch.no_grad():
        for each in (layer.W_q, layer.W_k, layer.W_v):
            each.weight.copy_(each.weight[rows])
            each.bias.copy_(each.bias[rows])
        layer.W_o.weight.copy_(layer.W_o.weight[:, rows])
    again, turned = layer(x, x, x)
    torch.testing.assert_close(again, output)
    torch.testing.assert_close(turned, weights[:, order])


@pytest.mark.parametrize("num_heads", [1, 2, 3, 4, 6, 12])
def test_the_number_of_heads_changes_no_parameter_count(num_heads):
    def count(layer):
        return sum(parameter.numel() for parameter in layer.parameters())

    assert count(MultiHeadAttention(12, num_heads)) == 4 * 12 * 12 + 4 * 12
    assert count(MultiHeadAttention(12, num_heads, bias=False)) == 4 * 12 * 12
    assert count(MultiHeadSelfAttention(12, num_heads)) == 4 * 12 * 12 + 4 * 12
    assert count(nn.MultiheadAttention(12, num_heads)) == 4 * 12 * 12 + 4 * 12


def test_one_head_is_attention_between_projections():
    layer, x = pair(6, 1)[0], normal(2, 5, 6)
    mixed, weights = attention(layer.W_q(x), layer.W_k(x), layer.W_v(x))
    torch.testing.assert_close(layer(x, x, x)[0], layer.W_o(mixed))
    torch.testing.assert_close(layer(x, x, x)[1][:, 0], weights)


def test_self_attention_is_the_layer_on_one_sequence():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = MultiHeadSelfAttention(6, 2).double()
    x, mask = normal(3, 5, 6), causal_mask(5)
    for one, other in zip(layer(x, mask), layer.attend(x, x, x, mask), strict=True):
        assert torch.equal(one, other)


def test_inputs_need_not_be_contiguous_or_in_a_batch():
    layer = pair(6, 3)[0]
    turned = normal(6, 5, 2).permute(2, 1, 0)  # (B, L, d_model)
    output, weights = layer(turned, turned, turned)
    torch.testing.assert_close(output, layer(*[turned.contiguous()] * 3)[0])
    alone, its_weights = layer(*[turned[0]] * 3)
    torch.testing.assert_close(alone, output[0])
    torch.testing.assert_close(its_weights, weights[0])


def test_gradients_are_right_by_gradcheck():
    layer = pair(6, 2)[0]
    query, key = normal(2, 3, 6).requires_grad_(), normal(2, 4, 6, seed=1).requires_grad_()
    mask = normal(2, 1, 3, 4, seed=2) < 0.3
    mask[0, 0, 0] = False
    assert torch.autograd.gradcheck(lambda q, k: layer(q, k, k, mask)[0], (query, key))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_row_with_nothing_allowed_gives_the_bias_in_every_dtype(dtype):
    layer = pair(6, 2, dtype=dtype)[0]
    x = normal(2, 3, 6, dtype=torch.float32).to(dtype)
    mask = causal_mask(3) & torch.tensor([False, True, True])
    output, weights = layer(x, x, x, mask)
    assert output.dtype == weights.dtype == dtype
    assert output.isfinite().all() and not weights[:, :, 0].any()
    torch.testing.assert_close(output[:, 0], layer.W_o.bias.expand(2, -1))
