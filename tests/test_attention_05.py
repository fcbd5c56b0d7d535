"""Lesson 05: heads against PyTorch, outputs and gradients, over many shapes and masks, in float64.

500 roundings of terms that sum to 1000, as the largest gradients' do, cost 6e-11; 1e-10 is allowed.
"""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_utils.attention import (
    MultiHeadAttention,
    MultiHeadSelfAttention,
    causal_mask,
    merge_heads,
    padding_mask,
    split_heads,
)
from rounding import assert_same, normal


@pytest.mark.parametrize("B, H, L, d_k", [(5, 3, 4, 2), (2, 6, 1, 3), (0, 3, 4, 2), (2, 2, 0, 3)])
def test_split_heads_entry_by_entry_and_merge_is_its_inverse(B, H, L, d_k):
    x = normal(B, L, H * d_k)
    heads = split_heads(x, H)
    assert heads.shape == (B, H, L, d_k)
    assert heads.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()  # a view
    for h, j in itertools.product(range(H), range(d_k)):
        assert torch.equal(heads[:, h, :, j], x[..., h * d_k + j])
    strided = x.mT.contiguous().mT  # not contiguous
    assert torch.equal(split_heads(strided, H), heads)
    assert torch.equal(merge_heads(heads), x)
    assert torch.equal(merge_heads(heads.contiguous()), x)
    assert split_heads(normal(2, 3, 4, 6), 2).shape == (2, 3, 2, 4, 3)


def pair(d_model, num_heads, bias=True, seed=0):
    """Return our layer and PyTorch's with the same random weights, in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        ours = MultiHeadAttention(d_model, num_heads, bias).double()
        theirs = nn.MultiheadAttention(d_model, num_heads, bias=bias, batch_first=True).double()
        for parameter in ours.parameters():
            nn.init.normal_(parameter, std=d_model**-0.5)
    weights = {"in_proj_weight": [ours.W_q.weight, ours.W_k.weight, ours.W_v.weight],
               "out_proj.weight": [ours.W_o.weight]}  # fmt: skip
    if bias:
        weights["in_proj_bias"] = [ours.W_q.bias, ours.W_k.bias, ours.W_v.bias]
        weights["out_proj.bias"] = [ours.W_o.bias]
    theirs.load_state_dict({name: torch.cat(each) for name, each in weights.items()})
    return ours, theirs


def configuration(seed):
    """Return H, inputs (query, key, value), a mask without empty rows or none, and bias."""
    rng = torch.Generator().manual_seed(seed)
    B, H, L, S, d_k = (int(torch.randint(1, n, (), generator=rng)) for n in (5, 6, 7, 7, 6))
    inputs = [normal(B, n, H * d_k, seed=seed + n) for n in (L, S, S)]
    shape = [None, (B, H, L, S), (L, S), (B, 1, 1, S)][seed % 4]
    mask = None if shape is None else torch.rand(*shape, generator=rng) < 0.5
    if seed % 8 == 3:
        mask = padding_mask(torch.randint(1, S + 1, (B,), generator=rng), S).flip(-1)  # on the left
    if mask is not None:
        mask[..., int(torch.randint(S, (), generator=rng))] = True
    return H, inputs, mask, seed % 3 > 0


@pytest.mark.parametrize("start", range(0, 120, 40))
def test_it_is_pytorchs_layer_over_120_random_configurations(start):
    for seed in range(start, start + 40):
        H, inputs, mask, bias = configuration(seed)
        ours, theirs = pair(inputs[0].shape[-1], H, bias, seed)
        forbidden = None
        if mask is not None:  # (B·H, L, S), where True is masked
            B, L, S = len(inputs[0]), inputs[0].shape[1], inputs[1].shape[1]
            forbidden = ~mask.expand(B, H, L, S).flatten(0, 1)

        def theirs_with_weights(q, k, v, theirs=theirs, mask=forbidden):
            return theirs(q, k, v, attn_mask=mask, average_attn_weights=False)

        assert_same(lambda q, k, v, f=ours, m=mask: f(q, k, v, m), theirs_with_weights, *inputs)


def by_sdpa(layer, query, key, value, mask):
    """Return the layer's output by PyTorch's attention between its own projections."""
    q, k, v = layer.W_q(query), layer.W_k(key), layer.W_v(value)
    heads = (split_heads(x, layer.num_heads) for x in (q, k, v))
    return layer.W_o(merge_heads(F.scaled_dot_product_attention(*heads, attn_mask=mask)))


def test_it_is_sdpa_between_projections_also_for_rows_with_nothing_allowed():
    empty = 0
    for seed in range(80):
        H, inputs, _, bias = configuration(seed)
        layer, _ = pair(inputs[0].shape[-1], H, bias, seed)
        B, L, S = len(inputs[0]), inputs[0].shape[1], inputs[1].shape[1]
        leading = [(B, H), (B, 1), (H,), (1,)][seed % 4]
        mask = torch.rand(*leading, L, S, generator=torch.Generator().manual_seed(seed)) < 0.4

        def ours(q, k, v, layer=layer, mask=mask):
            return layer(q, k, v, mask)[0]

        def theirs(q, k, v, layer=layer, mask=mask):
            return by_sdpa(layer, q, k, v, mask)

        assert_same(ours, theirs, *inputs, parameters=list(layer.parameters()))
        weights, nothing = layer(*inputs, mask)[1], ~mask.expand(B, H, L, S).any(dim=-1)
        assert not weights[nothing].any()
        empty += int(nothing.sum())
    assert empty > 50


def test_self_attention_is_the_layer_on_one_sequence_in_a_batch_or_not():
    layer, x, mask = MultiHeadSelfAttention(6, 2).double(), normal(3, 5, 6), causal_mask(5)
    for one, other in zip(layer(x, mask), layer.attend(x, x, x, mask), strict=True):
        assert torch.equal(one, other)
    for one, other in zip(layer(x[1], mask), layer(x, mask), strict=True):
        torch.testing.assert_close(one, other[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_row_with_nothing_allowed_gives_the_bias_in_every_dtype(dtype):
    layer, x = MultiHeadAttention(6, 2).to(dtype), normal(2, 3, 6, dtype=dtype)
    mask = causal_mask(3) & torch.tensor([False, True, True])
    output, weights = layer(x, x, x, mask)
    assert output.dtype == weights.dtype == dtype
    assert output.isfinite().all() and not weights[:, :, 0].any()
    torch.testing.assert_close(output[:, 0], layer.W_o.bias.expand(2, -1))
