"""Answers to lesson 05's exercises, written apart from the checks: right ones and wrong ones."""

import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

INF = float("inf")


# right


def _refuse(d_model, num_heads):
    if d_model % num_heads != 0:
        raise ValueError(f"{d_model} columns cannot be cut into {num_heads} heads")


def _split_by_chunks(x, num_heads):
    _refuse(x.shape[-1], num_heads)
    return torch.stack(torch.chunk(x, num_heads, dim=2), dim=1)


def _split_by_permute(x, num_heads):
    _refuse(x.size(2), num_heads)
    return x.view(x.size(0), x.size(1), num_heads, -1).permute(0, 2, 1, 3).contiguous()


def _split_by_loops(x, num_heads):
    B, L, d_model = x.shape
    _refuse(d_model, num_heads)
    d_k = d_model // num_heads
    out = x.new_zeros(B, num_heads, L, d_k)
    for h in range(num_heads):
        for j in range(d_k):
            out[:, h, :, j] = x[:, :, h * d_k + j]
    return out


def _split_in_numpy(x, num_heads):
    _refuse(x.shape[-1], num_heads)
    pieces = np.split(x.numpy(), num_heads, axis=-1)
    return torch.from_numpy(np.stack(pieces, axis=1))


def _merge_by_cat(x):
    return torch.cat([x[:, h] for h in range(x.shape[1])], dim=-1)


def _merge_by_view(x):
    B, H, L, d = x.shape
    return x.transpose(1, 2).contiguous().view(B, L, H * d)


def _merge_by_einsum(x):
    return torch.einsum("bhld->blhd", x).flatten(2)


def _attend(q, k, v, mask):
    """Attend without the course's functions; zeros for a query that may see nothing."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -INF)
    weights = torch.nan_to_num(scores.softmax(-1), nan=0.0)
    return weights @ v, weights


class LayerByName(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.out_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.q_proj = nn.Linear(d_model, d_model)

    def forward(self, query, key, value, mask=None):
        B, _, d = query.shape
        q, k, v = (
            layer(x).view(B, -1, self.h, d // self.h).transpose(1, 2)
            for layer, x in [
                (self.q_proj, query),
                (self.k_proj, key),
                (self.v_proj, value),
            ]
        )
        out, weights = _attend(q, k, v, mask)
        return self.out_proj(out.transpose(1, 2).reshape(B, -1, d)), weights


class NumpyInside(LayerByName):
    def forward(self, query, key, value, mask=None):
        parts = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        q, k, v = (_split_by_permute(x, self.h).numpy() for x in parts)
        scores = q @ k.swapaxes(-2, -1) / q.shape[-1] ** 0.5
        allowed = np.ones_like(scores) if mask is None else np.broadcast_to(mask, scores.shape)
        powers = np.exp(scores - scores.max(-1, keepdims=True)) * allowed
        weights = powers / np.maximum(powers.sum(-1, keepdims=True), 1e-30)
        return self.out_proj(_merge_by_cat(torch.from_numpy(weights @ v))), torch.from_numpy(
            weights
        )


class FusedByRole(nn.Module):
    """One layer of 3·d_model rows: all of q, all of k, all of v."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.d = num_heads, d_model // num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model)

    def pick(self, x, i):
        return self.qkv(x).unflatten(-1, (3, self.h, self.d))[:, :, i].transpose(1, 2)

    def forward(self, query, key, value, mask=None):
        parts = self.pick(query, 0), self.pick(key, 1), self.pick(value, 2)
        out, weights = _attend(*parts, mask)
        return self.out(out.transpose(1, 2).flatten(-2)), weights


class FusedByHead(FusedByRole):
    """One layer of 3·d_model rows: q, k, v of the first head, then of the next."""

    def pick(self, x, i):
        return self.qkv(x).unflatten(-1, (self.h, 3, self.d))[:, :, :, i].transpose(1, 2)


class _OneHead(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.query = nn.Linear(d_model, d_k)
        self.key = nn.Linear(d_model, d_k)
        self.value = nn.Linear(d_model, d_k)

    def forward(self, query, key, value, mask):
        return _attend(self.query(query), self.key(key), self.value(value), mask)


class ListOfHeads(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.heads = nn.ModuleList(
            _OneHead(d_model, d_model // num_heads) for _ in range(num_heads)
        )
        self.proj = nn.Linear(d_model, d_model)

    def own(self, mask, h):
        if mask is None or mask.ndim < 4:
            return mask
        return mask[:, h if mask.shape[1] > 1 else 0]

    def forward(self, query, key, value, mask=None):
        results = [head(query, key, value, self.own(mask, h)) for h, head in enumerate(self.heads)]
        joined = torch.cat([out for out, _ in results], dim=-1)
        return self.proj(joined), torch.stack([weights for _, weights in results], dim=1)


class SumOfHeads(ListOfHeads):
    """Each head has its own block of the output projection."""

    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.proj = nn.ModuleList()
        d_k = d_model // num_heads
        self.W_o = nn.ModuleList(nn.Linear(d_k, d_model, bias=False) for _ in range(num_heads))

    def forward(self, query, key, value, mask=None):
        output, seen = 0, []
        for h, head in enumerate(self.heads):
            out, weights = head(query, key, value, self.own(mask, h))
            output = output + self.W_o[h](out)
            seen.append(weights)
        return output, torch.stack(seen, dim=1)


class BareMatrices(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        for name in ("W_q", "W_k", "W_v", "W_o"):
            setattr(self, name, nn.Parameter(torch.randn(d_model, d_model)))

    def project(self, x, matrix):
        return x @ matrix

    def forward(self, query, key, value, mask=None):
        q = _merge_by_view(_split_by_chunks(self.project(query, self.W_q), self.num_heads))
        k, v = self.project(key, self.W_k), self.project(value, self.W_v)
        heads = [_split_by_chunks(each, self.num_heads) for each in (q, k, v)]
        out, weights = _attend(*heads, mask)
        return self.project(_merge_by_cat(out), self.W_o), weights


class BareMatricesTheOtherWay(BareMatrices):
    def project(self, x, matrix):
        return F.linear(x, matrix)


class ByEinsum(nn.Module):
    """Matrices of three dimensions, one for each head."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        d_k = d_model // num_heads
        self.wq = nn.Parameter(torch.randn(num_heads, d_model, d_k))
        self.wk = nn.Parameter(torch.randn(num_heads, d_model, d_k))
        self.wv = nn.Parameter(torch.randn(num_heads, d_model, d_k))
        self.wo = nn.Parameter(torch.randn(num_heads, d_k, d_model))

    def forward(self, query, key, value, mask=None):
        q = torch.einsum("bld,hde->bhle", query, self.wq)
        k = torch.einsum("bsd,hde->bhse", key, self.wk)
        v = torch.einsum("bsd,hde->bhse", value, self.wv)
        out, weights = _attend(q, k, v, mask)
        return torch.einsum("bhle,hed->bld", out, self.wo), weights


class TorchInside(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.mha = nn.MultiheadAttention(d_model, num_heads, batch_first=True)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            sizes = len(query), self.mha.num_heads, query.shape[1], key.shape[1]
            mask = ~mask.expand(sizes).reshape(-1, *sizes[2:])
        out, weights = self.mha(query, key, value, attn_mask=mask, average_attn_weights=False)
        return out.nan_to_num(), weights.nan_to_num()


class SdpaInside(LayerByName):
    def forward(self, query, key, value, mask=None):
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        q, k, v = (_split_by_permute(x, self.h) for x in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        eye = torch.eye(k.shape[2], dtype=k.dtype).expand(*k.shape[:2], -1, -1)
        weights = F.scaled_dot_product_attention(q, k, eye, attn_mask=mask)
        return self.out_proj(_merge_by_cat(out)), weights


class ByConvolution(nn.Module):
    """Projections as convolutions of size 1, which want (B, d_model, L)."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.conv_q = nn.Conv1d(d_model, d_model, 1)
        self.conv_k = nn.Conv1d(d_model, d_model, 1)
        self.conv_v = nn.Conv1d(d_model, d_model, 1)
        self.conv_o = nn.Conv1d(d_model, d_model, 1)

    def forward(self, query, key, value, mask=None):
        convs = [(self.conv_q, query), (self.conv_k, key), (self.conv_v, value)]
        q, k, v = (_split_by_chunks(conv(x.mT).mT, self.h) for conv, x in convs)
        out, weights = _attend(q, k, v, mask)
        return self.conv_o(_merge_by_cat(out).mT).mT, weights


class Kernels(nn.Module):
    """As in JAX: (d_model, H, d_k) in, (H, d_k, d_model) out, biases of several dimensions."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        d_k = d_model // num_heads
        for role in "qkv":
            self.register_parameter(role, nn.Parameter(torch.randn(d_model, num_heads, d_k)))
            self.register_parameter(f"b_{role}", nn.Parameter(torch.randn(num_heads, d_k)))
        self.o = nn.Parameter(torch.randn(num_heads, d_k, d_model))
        self.bias_o = nn.Parameter(torch.randn(1, 1, d_model))

    def forward(self, query, key, value, mask=None):
        parts = {"q": query, "k": key, "v": value}
        q, k, v = (
            (torch.einsum("bld,dhk->blhk", x, getattr(self, role)) + getattr(self, f"b_{role}")).mT
            for role, x in parts.items()
        )
        q, k, v = (x.permute(0, 3, 1, 2) for x in (q, k, v))
        out, weights = _attend(q, k, v, mask)
        return torch.einsum("bhlk,hkd->bld", out, self.o) + self.bias_o, weights


class OneKernel(nn.Module):
    """One parameter (3, H, d_model, d_k), one (3, d_model) of biases, and the output made first."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        d_k = d_model // num_heads
        self.last = nn.Linear(d_model, d_model)
        self.kernel = nn.Parameter(torch.randn(3, num_heads, d_model, d_k))
        self.b = nn.Parameter(torch.randn(3, d_model))

    def forward(self, query, key, value, mask=None):
        heads = []
        for x, kernel, bias in zip((query, key, value), self.kernel, self.b, strict=True):
            bias = bias.view(len(kernel), 1, -1)
            heads.append(torch.einsum("bld,hdk->bhlk", x, kernel) + bias)
        out, weights = _attend(*heads, mask)
        return self.last(_merge_by_cat(out)), weights


class OneStack(BareMatrices):
    """All four matrices in one parameter (4, d_model, d_model)."""

    def __init__(self, d_model, num_heads):
        nn.Module.__init__(self)
        self.num_heads = num_heads
        self.all = nn.Parameter(torch.randn(4, d_model, d_model))

    def __getattr__(self, name):
        if name in ("W_q", "W_k", "W_v", "W_o"):
            return self.all["qkvo".index(name[-1])]
        return super().__getattr__(name)


class LazyInside(LayerByName):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        for name in ("q_proj", "k_proj", "v_proj"):
            setattr(self, name, nn.LazyLinear(d_model))


class ScaledAndDropped(LayerByName):
    """A scale for each head among the parameters, a norm's gain, and dropouts for training."""

    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        d_k = d_model // num_heads
        self.scale = nn.Parameter(torch.full((num_heads, 1, 1), d_k**0.5))
        self.norm = nn.RMSNorm(d_model)
        self.drop = nn.Dropout(0.5)

    def forward(self, query, key, value, mask=None):
        parts = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        q, k, v = (_split_by_chunks(x, self.h) for x in parts)
        scores = q @ k.mT / self.scale
        if mask is not None:
            scores = scores.masked_fill(~mask, -INF)
        weights = scores.softmax(-1).nan_to_num()
        out = self.out_proj(self.drop(_merge_by_cat(weights @ v)))
        return out * self.norm.weight, weights


def _count_by_building(d_model, num_heads, bias=True):
    layers = [nn.Linear(d_model, d_model, bias=bias) for _ in range(4)]
    return sum(p.numel() for layer in layers for p in layer.parameters())


def _count_head_by_head(d_model, num_heads, bias=True):
    d_k = d_model // num_heads
    one = 3 * (d_model * d_k + bias * d_k) + d_k * d_model
    return num_heads * one + bias * d_model


def _count_as_tensor(d_model, num_heads, bias=True):
    return torch.tensor(4 * d_model * (d_model + int(bias)))


def _count_in_numpy(d_model, num_heads, bias=True):
    return np.prod([4, d_model, d_model + bias])


def _copy_by_slices(theirs, ours):
    d = theirs.embed_dim
    for i, name in enumerate(["W_q", "W_k", "W_v"]):
        layer = getattr(ours, name)
        layer.weight.data = theirs.in_proj_weight.data[i * d : (i + 1) * d].clone()
        if theirs.in_proj_bias is not None:
            layer.bias.data = theirs.in_proj_bias.data[i * d : (i + 1) * d].clone()
    ours.W_o.weight.data.copy_(theirs.out_proj.weight.data)
    if theirs.out_proj.bias is not None:
        ours.W_o.bias.data.copy_(theirs.out_proj.bias.data)


def _copy_by_state_dict(theirs, ours):
    state = theirs.state_dict()
    new = {}
    for kind in ("weight", "bias"):
        if f"in_proj_{kind}" in state:
            parts = state[f"in_proj_{kind}"].split(theirs.embed_dim)
            new |= {f"W_{n}.{kind}": p for n, p in zip("qkv", parts, strict=True)}
            new[f"W_o.{kind}"] = state[f"out_proj.{kind}"]
    ours.load_state_dict(new)
    return ours


def _copy_as_new_parameters(theirs, ours):
    q, k, v = theirs.in_proj_weight.detach().clone().unflatten(0, (3, -1))
    ours.W_q.weight, ours.W_k.weight, ours.W_v.weight = map(nn.Parameter, (q, k, v))
    if theirs.in_proj_bias is not None:
        q, k, v = theirs.in_proj_bias.detach().clone().unflatten(0, (3, -1))
        ours.W_q.bias, ours.W_k.bias, ours.W_v.bias = map(nn.Parameter, (q, k, v))
    ours.W_o = copy.deepcopy(theirs.out_proj)


def _ablate_a_copy(layer, x, head):
    other = copy.deepcopy(layer)
    d_k = x.shape[-1] // layer.num_heads
    with torch.no_grad():
        other.W_o.weight[:, head * d_k : head * d_k + d_k] = 0
    return other(x, x, x)[0]


def _ablate_and_restore(layer, x, head):
    kept = layer.W_v.state_dict()
    kept = {name: value.clone() for name, value in kept.items()}
    d_k = x.shape[-1] // layer.num_heads
    layer.W_v.weight.data[head * d_k : (head + 1) * d_k] = 0
    layer.W_v.bias.data[head * d_k : (head + 1) * d_k] = 0
    out = layer(x, x, x)[0]
    layer.W_v.load_state_dict(kept)
    return out


def _ablate_by_subtracting(layer, x, head):
    output, weights = layer(x, x, x)
    d_k = x.shape[-1] // layer.num_heads
    own = slice(head * d_k, (head + 1) * d_k)
    part = weights[:, head] @ layer.W_v(x)[..., own] @ layer.W_o.weight[:, own].T
    return output - part


def _ablate_by_hook(layer, x, head):
    def silence(_, inputs):
        merged = inputs[0].unflatten(-1, (layer.num_heads, -1)).clone()
        merged[..., head, :] = 0
        return (merged.flatten(-2),)

    handle = layer.W_o.register_forward_pre_hook(silence)
    out = layer(x, x, x)[0]
    handle.remove()
    return out


def _grouped_by_loop(q, k, v):
    group = q.shape[1] // k.shape[1]
    pairs = [_attend(q[:, h], k[:, h // group], v[:, h // group], None) for h in range(q.shape[1])]
    return tuple(torch.stack(each, dim=1) for each in zip(*pairs, strict=True))


def _grouped_by_broadcasting(q, k, v):
    q = q.unflatten(1, (k.shape[1], -1))
    out, weights = _attend(q, k[:, :, None], v[:, :, None], None)
    return out.flatten(1, 2), weights.flatten(1, 2)


def _grouped_by_einsum(q, k, v):
    q = q.unflatten(1, (k.shape[1], -1))
    weights = torch.einsum("bgrld,bgsd->bgrls", q, k).div(q.shape[-1] ** 0.5).softmax(-1)
    return torch.einsum("bgrls,bgsv->bgrlv", weights, v).flatten(1, 2), weights.flatten(1, 2)


def _cache_by_tensors(B, S, layers, d_model, num_heads, num_kv_heads, bytes_each):
    one = torch.empty(B, num_kv_heads, S, d_model // num_heads, device="meta")
    return sum(2 * one.numel() for _ in range(layers)) * bytes_each


def _cache_by_share(B, S, layers, d_model, num_heads, num_kv_heads, bytes_each):
    return 2 * layers * B * S * d_model * bytes_each * num_kv_heads / num_heads


def _split_test_by_reference(split_heads):
    for B, L, H, d in [(2, 3, 5, 4), (3, 4, 2, 3), (1, 2, 1, 6)]:
        x = torch.arange(float(B * L * H * d)).reshape(B, L, H * d)
        expected = x.reshape(B, L, H, d).transpose(1, 2)
        torch.testing.assert_close(split_heads(x, H), expected)
        strange = x.flip(0).mT.contiguous().mT
        torch.testing.assert_close(split_heads(strange, H), expected.flip(0))


def _split_test_entry_by_entry(split_heads):
    x = torch.rand(6, 3, 2).permute(2, 1, 0)
    heads = split_heads(x, 3)
    for b in range(2):
        for h in range(3):
            for t in range(3):
                for j in range(2):
                    assert heads[b, h, t, j] == x[b, t, 2 * h + j]


def _layer_test_by_oracle(MultiHeadAttention):
    ours = MultiHeadAttention(8, 2)
    with torch.no_grad():
        for p in ours.parameters():
            p.copy_(torch.randn_like(p))
    theirs = nn.MultiheadAttention(8, 2, batch_first=True)
    theirs.in_proj_weight.data = torch.cat([ours.W_q.weight, ours.W_k.weight, ours.W_v.weight])
    theirs.in_proj_bias.data = torch.cat([ours.W_q.bias, ours.W_k.bias, ours.W_v.bias])
    theirs.out_proj.load_state_dict(ours.W_o.state_dict())
    q, k, v = torch.randn(3, 4, 8), torch.randn(3, 6, 8), torch.randn(3, 6, 8)
    mask = torch.rand(3, 2, 4, 6) < 0.6
    mask[..., 2] = True
    want = theirs(q, k, v, attn_mask=~mask.flatten(0, 1), average_attn_weights=False)
    for a, b in zip(ours(q, k, v, mask), want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def _layer_test_by_formula(MultiHeadAttention, d_model=6, masks=3):
    layer = MultiHeadAttention(d_model, 3).double()
    nn.init.ones_(layer.W_o.bias)
    q, k, v = (torch.randn(2, n, d_model).double() for n in (4, 5, 5))
    mask = torch.rand(2, masks, 4, 5) < 0.5
    mask[..., -1] = True
    heads = [_split_by_loops(W(x), 3) for W, x in [(layer.W_q, q), (layer.W_k, k), (layer.W_v, v)]]
    out, weights = _attend(*heads, mask)
    got, seen = layer(q, k, v, mask)
    assert torch.allclose(seen, weights) and torch.allclose(got, layer.W_o(_merge_by_cat(out)))


RIGHT = {
    "split_heads": [_split_by_chunks, _split_by_permute, _split_by_loops, _split_in_numpy],
    "merge_heads": [_merge_by_cat, _merge_by_view, _merge_by_einsum],
    "MultiHeadAttention": [
        LayerByName,
        NumpyInside,
        FusedByRole,
        FusedByHead,
        ListOfHeads,
        SumOfHeads,
        BareMatrices,
        BareMatricesTheOtherWay,
        ByEinsum,
        TorchInside,
        SdpaInside,
        ByConvolution,
        Kernels,
        OneKernel,
        OneStack,
        LazyInside,
        ScaledAndDropped,
    ],
    "count_parameters": [
        _count_by_building,
        _count_head_by_head,
        _count_as_tensor,
        _count_in_numpy,
    ],
    "copy_weights": [_copy_by_slices, _copy_by_state_dict, _copy_as_new_parameters],
    "without_head": [
        _ablate_a_copy,
        _ablate_and_restore,
        _ablate_by_subtracting,
        _ablate_by_hook,
    ],
    "grouped_attention": [
        _grouped_by_loop,
        _grouped_by_broadcasting,
        _grouped_by_einsum,
    ],
    "kv_cache_bytes": [
        _cache_by_tensors,
        _cache_by_share,
        lambda B, S, n, d, H, G, b: 2 * B * S * n * b * G * d // H,
    ],
    "catches_wrong_split": [_split_test_by_reference, _split_test_entry_by_entry],
    "catches_wrong_layer": [_layer_test_by_oracle, _layer_test_by_formula],
}


# wrong


def _split_no_check(x, num_heads):
    return x.view(*x.shape[:2], num_heads, -1).transpose(1, 2)


def _split_error_without_numbers(x, num_heads):
    pieces = np.split(x.numpy(), num_heads, axis=-1)  # raises ValueError
    return torch.from_numpy(np.stack(pieces, axis=1))


def _split_direct_and_no_check(x, num_heads):
    return x.reshape(x.shape[0], num_heads, x.shape[1], x.shape[2] // num_heads)


def _split_without_transpose(x, num_heads):
    _refuse(x.shape[-1], num_heads)
    return x.reshape(*x.shape[:2], num_heads, -1)


def _split_rearranged(x, num_heads):
    _refuse(x.shape[-1], num_heads)
    return torch.stack([x[..., h::num_heads] for h in range(num_heads)], dim=1)


class WholeWidthScale(LayerByName):
    def forward(self, query, key, value, mask=None):
        q = self.q_proj(query) * self.h**-0.5  # √d_k becomes √d_model
        q, k, v = (_split_by_chunks(x, self.h) for x in (q, self.k_proj(key), self.v_proj(value)))
        out, weights = _attend(q, k, v, mask)
        return self.out_proj(_merge_by_cat(out)), weights


class DividedByRootH(LayerByName):
    def forward(self, query, key, value, mask=None):
        parts = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        q, k, v = (_split_by_chunks(x, self.h) for x in parts)
        out, weights = _attend(q * (q.shape[-1] / self.h) ** 0.5, k, v, mask)
        return self.out_proj(_merge_by_cat(out)), weights


class HeadsOfThatWidth(LayerByName):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.h = d_model // num_heads


class OneMask(ListOfHeads):
    def own(self, mask, h):
        return super().own(mask, 0)


class FusedScrambled(FusedByRole):
    def pick(self, x, i):
        return self.qkv(x).chunk(3, dim=-1)[i].reshape(len(x), self.h, -1, self.d)


class MergedByReshape(LayerByName):
    def forward(self, query, key, value, mask=None):
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        out, weights = _attend(*(_split_by_chunks(x, self.h) for x in (q, k, v)), mask)
        return self.out_proj(out.reshape(query.shape)), weights


class ReshapedBothWays(LayerByName):
    def forward(self, query, key, value, mask=None):
        B, L, d = query.shape
        q = self.q_proj(query).reshape(B, self.h, L, -1)
        k = self.k_proj(key).reshape(B, self.h, -1, d // self.h)
        v = self.v_proj(value).reshape(B, self.h, -1, d // self.h)
        out, weights = _attend(q, k, v, mask)
        return self.out_proj(out.reshape(B, L, d)), weights


class EveryHthColumn(LayerByName):
    def cut(self, x):
        return torch.stack([x[..., h :: self.h] for h in range(self.h)], dim=1)

    def forward(self, query, key, value, mask=None):
        parts = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        out, weights = _attend(*(self.cut(x) for x in parts), mask)
        return self.out_proj(torch.stack(out.unbind(1), dim=-1).flatten(2)), weights


class SoftmaxOverHeads(LayerByName):
    dim = 1

    def forward(self, query, key, value, mask=None):
        parts = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        q, k, v = (_split_by_permute(x, self.h) for x in parts)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = torch.where(mask, scores, -INF)
        weights = torch.nan_to_num(torch.softmax(scores, self.dim))
        return self.out_proj(_merge_by_cat(weights @ v)), weights


class SoftmaxOverQueries(SoftmaxOverHeads):
    dim = 2


class OnlyQuery(LayerByName):
    def forward(self, query, key, value, mask=None):
        return super().forward(query, query, query, mask)


class TorchUnmended(TorchInside):
    def forward(self, query, key, value, mask=None):
        if mask is not None:
            sizes = len(query), self.mha.num_heads, query.shape[1], key.shape[1]
            mask = ~mask.expand(sizes).reshape(-1, *sizes[2:])
        return self.mha(query, key, value, attn_mask=mask, average_attn_weights=False)


class TorchAveraged(TorchInside):
    def forward(self, query, key, value, mask=None):
        out, weights = super().forward(query, key, value, mask)
        return out, weights.mean(1)


class TorchConvention(TorchInside):
    def forward(self, query, key, value, mask=None):
        return super().forward(query, key, value, None if mask is None else ~mask)


class NoProjection(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.q = nn.Linear(d_model, d_model)
        self.k = nn.Linear(d_model, d_model)
        self.v = nn.Linear(d_model, d_model)

    def forward(self, query, key, value, mask=None):
        parts = [self.q(query), self.k(key), self.v(value)]
        out, weights = _attend(*(_split_by_chunks(x, self.h) for x in parts), mask)
        return _merge_by_cat(out), weights


class WideHeads(ListOfHeads):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.heads = nn.ModuleList(_OneHead(d_model, d_model) for _ in range(num_heads))
        self.proj = nn.Linear(num_heads * d_model, d_model)


class HiddenInAList(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.projections = [nn.Linear(d_model, d_model) for _ in range(3)]
        self.out = nn.Linear(d_model, d_model)

    def forward(self, query, key, value, mask=None):
        parts = [each(x) for each, x in zip(self.projections, (query, key, value), strict=True)]
        out, weights = _attend(*(_split_by_chunks(x, self.h) for x in parts), mask)
        return self.out(_merge_by_cat(out)), weights


class SharedInsideHeads(nn.Module):
    """Cuts into heads first; one matrix d_k × d_k for all of them then."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, d_k = num_heads, d_model // num_heads
        self.q, self.k, self.v = (nn.Linear(d_k, d_k, bias=False) for _ in range(3))
        self.out = nn.Linear(d_model, d_model)

    def forward(self, query, key, value, mask=None):
        parts = [(self.q, query), (self.k, key), (self.v, value)]
        out, weights = _attend(*(layer(_split_by_chunks(x, self.h)) for layer, x in parts), mask)
        return self.out(_merge_by_cat(out)), weights


class NotALayer:
    def __init__(self, d_model, num_heads):
        pass


def _count_inputs_of_one_head(d_model, num_heads, bias=True):
    d_k = d_model // num_heads
    layers = [nn.Linear(d_model, d_k, bias) for _ in range(3)] + [nn.Linear(d_model, d_model, bias)]
    return sum(p.numel() for layer in layers for p in layer.parameters())


def _copy_transposed(theirs, ours):
    q, k, v = theirs.in_proj_weight.T.chunk(3, dim=1)
    ours.W_q.weight.data.copy_(q)
    ours.W_k.weight.data.copy_(k)
    ours.W_v.weight.data.copy_(v)
    ours.W_o.weight.data.copy_(theirs.out_proj.weight.data.T)
    _copy_biases(theirs, ours)


def _copy_biases(theirs, ours):
    if theirs.in_proj_bias is not None:
        q, k, v = theirs.in_proj_bias.data.clone().chunk(3)
        ours.W_q.bias.data, ours.W_k.bias.data, ours.W_v.bias.data = q, k, v
        ours.W_o.bias.data = theirs.out_proj.bias.data.clone()


def _copy_inputs_transposed(theirs, ours):
    q, k, v = theirs.in_proj_weight.data.clone().chunk(3)
    ours.W_q.weight.data, ours.W_k.weight.data, ours.W_v.weight.data = q.T, k.T, v.T
    ours.W_o.weight.data = theirs.out_proj.weight.data.clone()
    _copy_biases(theirs, ours)


def _copy_without_output_bias(theirs, ours):
    kept = copy.deepcopy(ours.W_o.bias)
    _copy_by_slices(theirs, ours)
    ours.W_o.bias = kept


def _copy_by_assigning(theirs, ours):
    q, k, v = theirs.in_proj_weight.data.chunk(3)
    ours.W_q.weight.data, ours.W_k.weight.data, ours.W_v.weight.data = q, k, v
    _copy_biases(theirs, ours)
    ours.W_o.weight.data = theirs.out_proj.weight.data.clone()


def _copy_the_layer_itself(theirs, ours):
    _copy_by_slices(theirs, ours)
    ours.W_o = theirs.out_proj


def _copy_weights_only(theirs, ours):
    for layer, w in zip(
        (ours.W_q, ours.W_k, ours.W_v), theirs.in_proj_weight.chunk(3), strict=True
    ):
        layer.weight.data = w.data.clone()
    ours.W_o.weight.data = theirs.out_proj.weight.data.clone()


def _copy_into_theirs(theirs, ours):
    joined = torch.cat([ours.W_q.weight, ours.W_k.weight, ours.W_v.weight])
    theirs.in_proj_weight.data.copy_(joined)


def _ablate_without_scale(layer, x, head):
    parts = [layer.W_q(x), layer.W_k(x), layer.W_v(x)]
    q, k, v = (_split_by_chunks(part, layer.num_heads) for part in parts)
    out = torch.softmax(q @ k.mT, dim=-1) @ v
    out = torch.stack([out[:, h] * (h != head) for h in range(layer.num_heads)], dim=1)
    return layer.W_o(_merge_by_cat(out))


def _ablate_for_good(layer, x, head):
    d_k = x.shape[-1] // layer.num_heads
    layer.W_o.weight.data[:, head * d_k : (head + 1) * d_k] = 0
    return layer(x, x, x)[0]


def _ablate_and_leave_the_hook(layer, x, head):
    d_k = x.shape[-1] // layer.num_heads

    def silence(_, inputs):
        merged = inputs[0].clone()
        merged[..., head * d_k : (head + 1) * d_k] = 0
        return (merged,)

    layer.W_o.register_forward_pre_hook(silence)
    return layer(x, x, x)[0]


def _ablate_a_row_of_a_copy(layer, x, head):
    other = copy.deepcopy(layer)
    d_k = x.shape[-1] // layer.num_heads
    other.W_o.weight.data[head * d_k : (head + 1) * d_k] = 0
    return other(x, x, x)[0]


def _ablate_query_weights(layer, x, head):
    other = copy.deepcopy(layer)
    own = slice(head * x.shape[-1] // layer.num_heads, (head + 1) * x.shape[-1] // layer.num_heads)
    other.W_q.weight.data[own] = 0
    other.W_q.bias.data[own] = 0
    return other(x, x, x)[0]


def _ablate_value_weights(layer, x, head):
    other = copy.deepcopy(layer)
    own = slice(head * x.shape[-1] // layer.num_heads, (head + 1) * x.shape[-1] // layer.num_heads)
    other.W_v.weight.data[own] = 0
    return other(x, x, x)[0]


def _grouped_repeat(q, k, v):
    n = q.shape[1] // k.shape[1]
    return _attend(q, torch.cat([k] * n, dim=1), torch.cat([v] * n, dim=1), None)


def _grouped_broadcast_first(q, k, v):
    return _attend(q, k[:, 0:1].expand(-1, q.shape[1], -1, -1), v[:, 0:1], None)


def _split_test_shape(split_heads):
    assert split_heads(torch.randn(2, 5, 6), 3).shape == (2, 3, 5, 2)


def _split_test_contiguous(split_heads):
    x = torch.randn(3, 4, 10)
    assert torch.equal(split_heads(x, 5), _split_by_chunks(x, 5))


def _split_test_returns(split_heads):
    x = torch.randn(3, 4, 10)
    return torch.equal(split_heads(x, 5), _split_by_chunks(x, 5))


def _split_test_strict(split_heads):
    x = torch.randn(3, 4, 10)
    assert split_heads(x, 5).is_contiguous()


def _split_test_square(split_heads):
    x = torch.randn(2, 9, 5).mT
    assert torch.equal(split_heads(x, 3), torch.stack(x.chunk(3, -1), 1))


def _split_test_round_trip(split_heads):
    x = torch.randn(2, 12, 5).mT
    y = split_heads(x, 4)
    assert torch.equal(y.transpose(1, 2).reshape(2, 5, 12), x)


def _split_test_pair(split_heads):
    x = torch.randn(10, 4, 3).permute(2, 1, 0)
    assert torch.equal(split_heads(x, 2), _split_by_chunks(x, 2))


def _layer_test_shapes(MultiHeadAttention):
    x = torch.randn(2, 5, 8)
    out, weights = MultiHeadAttention(8, 4)(x, x, x)
    assert out.shape == x.shape and weights.shape == (2, 4, 5, 5)


def _layer_test_row_sums(MultiHeadAttention):
    x, y = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    mask = torch.rand(2, 1, 3, 5) < 0.5
    mask[..., 4] = True
    sums = MultiHeadAttention(8, 4)(x, y, y, mask)[1].sum(-1)
    assert torch.allclose(sums, torch.ones_like(sums), atol=1e-4)


def _layer_test_of_outputs(MultiHeadAttention):
    layer = MultiHeadAttention(8, 2)
    right = LayerByName(8, 2)
    for name, theirs in zip("qkvo", "q_proj k_proj v_proj out_proj".split(), strict=True):
        own = getattr(layer, f"W_{name}")
        nn.init.normal_(own.bias)
        setattr(right, theirs, own)
    q, k, v = torch.randn(3, 4, 8), torch.randn(3, 5, 8), torch.randn(3, 5, 8)
    mask = torch.rand(3, 2, 4, 5) < 0.5
    mask[..., 1] = True
    assert torch.allclose(layer(q, k, v, mask)[0], right(q, k, v, mask)[0], atol=1e-4)


def _layer_test_square(MultiHeadAttention):
    _layer_test_by_formula(MultiHeadAttention, d_model=9)


def _layer_test_shared_mask(MultiHeadAttention):
    _layer_test_by_formula(MultiHeadAttention, masks=1)


def _layer_test_wrong_oracle(MultiHeadAttention):
    x = torch.randn(2, 5, 8)
    assert torch.allclose(MultiHeadAttention(8, 2)(x, x, x)[0], x)


WRONG = [
    ("split_heads", "no value error", _split_no_check),
    ("split_heads", "error without numbers", _split_error_without_numbers),
    ("split_heads", "reshaped at once", _split_direct_and_no_check),
    ("split_heads", "heads after tokens", _split_without_transpose),
    ("split_heads", "columns dealt out", _split_rearranged),
    ("split_heads", "one head alone", lambda x, n: x[..., : x.shape[-1] // n]),
    ("merge_heads", "merged without transpose", lambda x: x.reshape(len(x), x.shape[2], -1)),
    ("merge_heads", "heads added", lambda x: sum(x.unbind(1))),
    ("merge_heads", "transposed only", lambda x: x.permute(0, 2, 1, 3)),
    ("merge_heads", None, lambda x: 2 * _merge_by_cat(x)),
    ("MultiHeadAttention", "divided by root d model", WholeWidthScale),
    ("MultiHeadAttention", "divided by root num heads", DividedByRootH),
    ("MultiHeadAttention", "heads taken for width", HeadsOfThatWidth),
    ("MultiHeadAttention", "mask of the first head", OneMask),
    ("MultiHeadAttention", "cut without transpose", FusedScrambled),
    ("MultiHeadAttention", "joined without transpose", MergedByReshape),
    ("MultiHeadAttention", "cut and joined without transpose", ReshapedBothWays),
    ("MultiHeadAttention", "heads dealt out and collected", EveryHthColumn),
    ("MultiHeadAttention", "softmax over the heads mended", SoftmaxOverHeads),
    ("MultiHeadAttention", "softmax over the queries", SoftmaxOverQueries),
    ("MultiHeadAttention", "only query used", OnlyQuery),
    ("MultiHeadAttention", "not a class", LayerByName(12, 3)),
    ("MultiHeadAttention", "not a class", _attend),
    (
        "MultiHeadAttention",
        "not a class",
        lambda d_model, num_heads: LayerByName(d_model, num_heads),
    ),
    ("MultiHeadAttention", "unexpected parameters", HiddenInAList),
    ("MultiHeadAttention", "nan for an empty row", TorchUnmended),
    ("MultiHeadAttention", "weights averaged", TorchAveraged),
    ("MultiHeadAttention", "mask turned around", TorchConvention),
    ("MultiHeadAttention", "unexpected parameters", NoProjection),
    ("MultiHeadAttention", "unexpected parameters", WideHeads),
    ("MultiHeadAttention", "unexpected parameters", SharedInsideHeads),
    ("MultiHeadAttention", "not a module", NotALayer),
    ("count_parameters", "output not counted", lambda d, H, bias=True: 3 * d * (d + bias)),
    ("count_parameters", "every head full width", lambda d, H, bias=True: 4 * H * d * (d + bias)),
    ("count_parameters", "biases not counted", lambda d, H, bias=True: (2 * d) ** 2),
    ("count_parameters", "inputs of one head", _count_inputs_of_one_head),
    ("count_parameters", None, lambda d, H, bias=True: d),
    ("copy_weights", "weights transposed", _copy_transposed),
    ("copy_weights", "only inputs transposed", _copy_inputs_transposed),
    ("copy_weights", "output bias not copied", _copy_without_output_bias),
    ("copy_weights", "shares memory", _copy_by_assigning),
    ("copy_weights", "shares memory", _copy_the_layer_itself),
    ("copy_weights", "biases not copied", _copy_weights_only),
    ("copy_weights", "changes theirs", _copy_into_theirs),
    (
        "copy_weights",
        "nothing copied",
        lambda theirs, ours: theirs.in_proj_weight.chunk(3) and None,
    ),
    ("without_head", "the layer is changed", _ablate_for_good),
    ("without_head", "the layer is changed", _ablate_and_leave_the_hook),
    ("without_head", "rows in place of columns", _ablate_a_row_of_a_copy),
    ("without_head", "head made uniform", _ablate_query_weights),
    ("without_head", "bias of the values left", _ablate_value_weights),
    ("without_head", "ablated not scaled", _ablate_without_scale),
    ("without_head", "nothing taken away", lambda layer, x, head: layer(x, x, x)[0]),
    ("without_head", "counted from one", lambda layer, x, head: _ablate_a_copy(layer, x, head - 1)),
    ("grouped_attention", "key heads take turns", _grouped_repeat),
    ("grouped_attention", "first key head for all", _grouped_broadcast_first),
    ("grouped_attention", "grouped output alone", lambda *qkv: _grouped_by_loop(*qkv)[0]),
    ("kv_cache_bytes", "keys alone", lambda B, S, n, d, H, G, b: B * S * n * G * d // H * b),
    ("kv_cache_bytes", "all query heads kept", lambda B, S, n, d, H, G, b: 2 * B * S * n * d * b),
    (
        "kv_cache_bytes",
        "all query heads kept",
        lambda B, S, n, d, H, G, b: 2 * B * S * n * G * (d // G) * b,
    ),
    (
        "kv_cache_bytes",
        "width by key heads",
        lambda B, S, n, d, H, G, b: 2 * B * S * n * (H // G) * (d // H) * b,
    ),
    ("kv_cache_bytes", "bits counted", lambda B, S, n, d, H, G, b: 16 * B * S * n * G * d // H * b),
    ("catches_wrong_split", "shape of heads alone", _split_test_shape),
    ("catches_wrong_split", "contiguous tried", _split_test_contiguous),
    ("catches_wrong_split", "returns a verdict", _split_test_returns),
    ("catches_wrong_split", "rejects right code", _split_test_strict),
    ("catches_wrong_split", "two heads tried", _split_test_pair),
    ("catches_wrong_split", "as many heads as columns", _split_test_square),
    ("catches_wrong_split", "as many heads as columns", _split_test_round_trip),
    ("catches_wrong_layer", "shapes of the layer", _layer_test_shapes),
    ("catches_wrong_layer", "row sums of the layer", _layer_test_row_sums),
    ("catches_wrong_layer", "outputs compared", _layer_test_of_outputs),
    ("catches_wrong_layer", "square heads tried", _layer_test_square),
    ("catches_wrong_layer", "one mask for all heads", _layer_test_shared_mask),
    ("catches_wrong_layer", "rejects right code", _layer_test_wrong_oracle),
]

HINTS = {
    "split_heads": {
        "no value error": "otherwise raise ValueError",
        "error without numbers": "does not name",
        "reshaped at once": "runs on from token to token",
        "heads after tokens": "transpose L and H",
        "columns dealt out": "columns that are neighbours",
        "tokens last": "tokens before columns",
        "heads before the batch": "stand before the batch",
        "number taken for width": "taken for the width of a head",
        "one head alone": "the first head alone",
    },
    "merge_heads": {
        "merged without transpose": "several tokens of one head",
        "transposed only": "still apart: flatten",
        "dealt column by column": "keep each head's columns together",
        "heads added": "added up",
        "heads averaged": "averaged",
        "joined along tokens": "along the tokens",
        "tokens at the end": "the tokens stand last",
    },
    "MultiHeadAttention": {
        "cut without transpose": "cut the width, then transpose",
        "joined without transpose": "transpose back",
        "cut and joined without transpose": "both times",
        "divided by root d model": "so √d_k",
        "heads taken for width": "taken for the width of a head",
        "divided by root num heads": "divided by √num_heads",
        "mask of the first head": "used for all",
        "not divided": "not divided by √d_k",
        "one softmax for all": "a softmax of its own",
        "softmax over the heads": "dim=-1",
        "softmax over the heads mended": "what NaN the mask makes",
        "softmax over the queries": "over the queries",
        "mask not used": "the mask is not used",
        "mask turned around": "True = may attend",
        "weights masked late": "heard in the denominator",
        "nan for an empty row": "NaN there",
        "everything for an empty row": "attends to everything",
        "values made from key": "W_v reads value",
        "only query used": "only queries come from query",
        "merged heads not projected": "W_o is not used",
        "weights averaged": "averaged over heads",
        "output without weights": "return two things",
        "heads dealt out": "d_k neighbouring columns",
        "heads dealt out and collected": "consistent, but",
    },
    "count_parameters": {
        "every head full width": "d_model / H columns",
        "one head counted": "there are H of them",
        "inputs of one head": "for one head",
        "output not counted": "four matrices, not three",
        "biases not counted": "the biases are missing",
        "biases always counted": "look at bias",
        "one bias counted": "four of them, not one",
        "output for each head": "once for each head",
    },
    "copy_weights": {
        "weights transposed": "copy as is",
        "only inputs transposed": "W_q, W_k and W_v are transposed",
        "biases not copied": "in_proj_bias and out_proj.bias",
        "output bias not copied": "the bias of W_o",
        "output not copied": "called out_proj there",
        "key and value exchanged": "key and value are exchanged",
        "query and key exchanged": "query and key are exchanged",
        "value taken first": "q first, v last",
        "rows read head by head": "then all of k",
        "queries for all three": "W_k is the second",
        "nothing copied": "nothing is copied",
        "biases taken for granted": "in_proj_bias is None",
    },
    "without_head": {
        "nothing taken away": "the whole output",
        "ablated not scaled": "not divided by √d_k",
        "that head alone": "this head alone",
        "counted from one": "heads count from 0",
        "bias lost": "it belongs to no head",
        "others scaled up": "no more",
        "rows in place of columns": "the head's are columns",
        "one column of the head": "a head has d_k of them",
        "every hth column": "a head's columns are neighbours",
        "head made uniform": "still hands over an average",
        "bias of the values left": "its bias is still handed over",
    },
    "grouped_attention": {
        "key heads take turns": "neighbouring query heads share one",
        "first key head for all": "the first key head",
        "key heads averaged": "each group keeps its own",
        "queries averaged": "all H query heads stay",
        "values take turns": "the values take turns",
        "keys take turns": "the keys take turns",
        "grouped output alone": "return both",
        "grouped not scaled": "not divided by √d_k",
        "tokens repeated": "dim=1 is the heads'",
    },
    "kv_cache_bytes": {
        "keys alone": "keys and values are kept",
        "all query heads kept": "num_kv_heads of them are kept",
        "width by key heads": "d_model / num_heads, however few",
        "key heads at full width": "counted d_model wide",
        "one layer counted": "that is one layer",
        "one sequence counted": "that is one sequence",
        "numbers counted": "times bytes_each",
        "bits counted": "in bits",
        "weights kept": "grows as S",
    },
    "catches_wrong_split": {
        "shape of heads alone": "compare with numbers that all differ",
        "one head tried": "where nothing is cut",
        "one sequence tried": "mixes up the batch",
        "two heads tried": "right for two gets through",
        "contiguous tried": "a transposed one",
        "only which numbers": "most of these bugs only move them",
        "first head compared": "compare all",
        "as many heads as columns": "a round trip undoes it",
    },
    "catches_wrong_layer": {
        "shapes of the layer": "not one of these bugs changes a shape",
        "row sums of the layer": "look at the output too",
        "no mask tried": "all bugs of masking",
        "layer of one head": "try several",
        "square heads tried": "division by √num_heads is right",
        "self attention tried": "hand over three",
        "causal mask tried": "makes its own causal mask",
        "weights compared": "the weights alone",
        "outputs compared": "the output alone",
        "zero bias tried": "draw it at random",
        "one mask for the batch": "let it differ in the batch",
        "one mask for all heads": "one for each; let it differ",
        "only causality tried": "compare with a right layer too",
    },
}
