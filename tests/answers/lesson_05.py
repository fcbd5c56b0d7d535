"""Answers to lesson 05's exercises, written apart from the checks: right ones and wrong ones."""

import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

INF = float("inf")


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


def _merge_by_cat(x):
    return torch.cat([x[:, h] for h in range(x.shape[1])], dim=-1)


def _merge_by_view(x):
    B, H, L, d = x.shape
    return x.transpose(1, 2).contiguous().view(B, L, H * d)


def _merge_by_einsum(x):
    return torch.einsum("bhld->blhd", x).flatten(2)


# Layers, each another kind of layout; all orders of rows and axes are tried in test_learners_layer


def _attend(q, k, v, mask=None):
    """Attend without the course's functions; zeros for a query that may see nothing."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -INF)
    weights = torch.nan_to_num(scores.softmax(-1), nan=0.0)
    return weights @ v, weights


class LayerByName(nn.Module):
    """The output made first, the key before the query; a step of it may be done otherwise."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.out_proj = nn.Linear(d_model, d_model)
        self.fc_values = nn.Linear(d_model, d_model)
        self.mat_k = nn.Linear(d_model, d_model, bias=False)
        self.query_layer = nn.Linear(d_model, d_model)

    def parts(self, query, key, value):
        projected = self.query_layer(query), self.mat_k(key), self.fc_values(value)
        return [_split_by_permute(x, self.h) for x in projected]

    def mix(self, q, k, v, mask):
        return _attend(q, k, v, mask)

    def project(self, heads):
        return self.out_proj(_merge_by_view(heads))

    def forward(self, query, key, value, mask=None):
        out, weights = self.mix(*self.parts(query, key, value), mask)
        return self.project(out), weights


class FusedByRole(LayerByName):
    """One layer of 3·d_model rows: all of q, all of k, all of v."""

    def __init__(self, d_model, num_heads):
        nn.Module.__init__(self)
        self.h = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out_proj = nn.Linear(d_model, d_model)

    def parts(self, *inputs):
        parts = [self.qkv(x).chunk(3, dim=-1)[i] for i, x in enumerate(inputs)]
        return [self.cut(x) for x in parts]

    def cut(self, x):
        return _split_by_chunks(x, self.h)


class ListOfHeads(LayerByName):
    """Small layers for each head, and for each head its own block of the output projection."""

    def __init__(self, d_model, num_heads):
        nn.Module.__init__(self)
        d_k = d_model // num_heads
        self.q, self.k, self.v = (
            nn.ModuleList(nn.Linear(d_model, d_k) for _ in range(num_heads)) for _ in range(3)
        )
        self.W_o = nn.ModuleList(nn.Linear(d_k, d_model, bias=False) for _ in range(num_heads))

    def parts(self, *inputs):
        lists = zip((self.q, self.k, self.v), inputs, strict=True)
        return [torch.stack([layer(x) for layer in layers], dim=1) for layers, x in lists]

    def project(self, heads):
        return sum(layer(heads[:, h]) for h, layer in enumerate(self.W_o))


class BareMatrices(LayerByName):
    def __init__(self, d_model, num_heads):
        nn.Module.__init__(self)
        self.h = num_heads
        for name in "qkvo":
            setattr(self, f"W_{name}", nn.Parameter(torch.randn(d_model, d_model)))

    def times(self, x, matrix):
        return x @ matrix

    def parts(self, *inputs):
        pairs = zip(inputs, (self.W_q, self.W_k, self.W_v), strict=True)
        return [_split_by_chunks(self.times(x, matrix), self.h) for x, matrix in pairs]

    def project(self, heads):
        return self.times(_merge_by_cat(heads), self.W_o)


class BareMatricesTheOtherWay(BareMatrices):
    def times(self, x, matrix):
        return F.linear(x, matrix)


class Kernels(LayerByName):
    """A tensor (d_model, H, d_k) for each role, as in JAX, and biases (1, H, 1, d_k)."""

    def __init__(self, d_model, num_heads):
        nn.Module.__init__(self)
        d_k = d_model // num_heads
        for name in "qkvo":
            setattr(self, name, nn.Parameter(torch.randn(d_model, num_heads, d_k)))
            setattr(self, f"add_{name}", nn.Parameter(torch.randn(1, num_heads, 1, d_k)))

    def parts(self, *inputs):
        return [
            torch.einsum("blm,mhd->bhld", x, getattr(self, name)) + getattr(self, f"add_{name}")
            for name, x in zip("qkv", inputs, strict=True)
        ]

    def project(self, heads):
        return torch.einsum("bhld,mhd->blm", heads, self.o) + self.add_o.flatten()


class ByConvolution(LayerByName):
    """Projections as convolutions of size 1, which want (B, d_model, L)."""

    def __init__(self, d_model, num_heads):
        nn.Module.__init__(self)
        self.h = num_heads
        self.convs = nn.ModuleList(nn.Conv1d(d_model, d_model, 1) for _ in range(4))

    def parts(self, *inputs):
        pairs = zip(inputs, self.convs, strict=False)
        return [_split_by_chunks(conv(x.mT).mT, self.h) for x, conv in pairs]

    def project(self, heads):
        return self.convs[3](_merge_by_cat(heads).mT).mT


class LazyInside(LayerByName):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.query_layer, self.mat_k = nn.LazyLinear(d_model), nn.LazyLinear(d_model)


class ScaledAndDropped(LayerByName):
    """A scale for each head among the parameters, a norm's gain, and dropouts for training."""

    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        d_k = d_model // num_heads
        self.scale = nn.Parameter(torch.full((num_heads, 1, 1), d_k**0.5), requires_grad=False)
        self.norm = nn.RMSNorm(d_model)
        self.drop = nn.Dropout(0.5)

    def mix(self, q, k, v, mask):
        out, weights = _attend(q * q.shape[-1] ** 0.5 / self.scale, k, v, mask)
        return self.drop(out), weights

    def project(self, heads):
        return super().project(heads) * self.norm.weight


class SdpaInside(LayerByName):
    def mix(self, q, k, v, mask):
        eye = torch.eye(k.shape[2], dtype=k.dtype).expand(*k.shape[:2], -1, -1)
        return [F.scaled_dot_product_attention(q, k, each, attn_mask=mask) for each in (v, eye)]


class SelfByName(LayerByName):
    """The layer fed with one x; a mask of each sequence is repeated for its heads."""

    def forward(self, x, mask=None):
        if mask is not None and mask.ndim == 3:
            mask = torch.stack([mask] * self.h, dim=1)
        return super().forward(x, x, x, mask)


class SelfFused(FusedByRole):
    """Scores by einsum, and dropout for training."""

    def forward(self, x, mask=None):
        q, k, v = (self.cut(part) for part in self.qkv(x).chunk(3, dim=-1))
        scores = torch.einsum("bhid,bhjd->bhij", q, k) / q.shape[-1] ** 0.5
        if mask is not None:
            mask = mask.unsqueeze(1) if mask.dim() == 3 else mask
            scores = torch.where(mask, scores, torch.tensor(-INF))
        weights = F.dropout(scores.softmax(-1).nan_to_num(0), 0.1, training=self.training)
        return self.project(weights @ v), weights


class SelfOneByOne(LayerByName):
    """One sequence after another, each under its own mask."""

    def forward(self, x, mask=None):
        if mask is None or mask.ndim == 2:
            masks = [mask] * len(x)
        else:
            masks = mask.expand(len(x), *mask.shape[1:])
        runs = [
            super(SelfOneByOne, self).forward(*[e[None]] * 3, m)
            for e, m in zip(x, masks, strict=True)
        ]
        return tuple(torch.cat(each) for each in zip(*runs, strict=True))


def _count_by_building(d_model, num_heads, bias=True):
    layers = [nn.Linear(d_model, d_model, bias=bias) for _ in range(4)]
    return sum(p.numel() for layer in layers for p in layer.parameters())


def _count_head_by_head(d_model, num_heads, bias=True):
    d_k = d_model // num_heads
    return num_heads * (3 * (d_model * d_k + bias * d_k) + d_k * d_model) + bias * d_model


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
    ours.W_o.load_state_dict(theirs.out_proj.state_dict())


def _copy_by_state_dict(theirs, ours):
    state, new = theirs.state_dict(), {}
    for kind in ("weight", "bias"):
        if f"in_proj_{kind}" in state:
            parts = state[f"in_proj_{kind}"].split(theirs.embed_dim)
            new |= {f"W_{n}.{kind}": p for n, p in zip("qkv", parts, strict=True)}
            new[f"W_o.{kind}"] = state[f"out_proj.{kind}"]
    ours.load_state_dict(new)
    return ours


def _copy_as_new_parameters(theirs, ours):
    for kind in ("weight", "bias"):
        stacked = getattr(theirs, f"in_proj_{kind}")
        if stacked is not None:
            for layer, part in zip((ours.W_q, ours.W_k, ours.W_v), stacked.chunk(3), strict=True):
                setattr(layer, kind, nn.Parameter(part.detach().clone()))
    ours.W_o = copy.deepcopy(theirs.out_proj)


def _ablate_a_copy(layer, x, head):
    other = copy.deepcopy(layer)
    d_k = x.shape[-1] // layer.num_heads
    with torch.no_grad():
        other.W_o.weight[:, head * d_k : head * d_k + d_k] = 0
    return other(x, x, x)[0]


def _ablate_and_restore(layer, x, head):
    kept = {name: value.clone() for name, value in layer.W_v.state_dict().items()}
    d_k = x.shape[-1] // layer.num_heads
    layer.W_v.weight.data[head * d_k : (head + 1) * d_k] = 0
    if layer.W_v.bias is not None:
        layer.W_v.bias.data[head * d_k : (head + 1) * d_k] = 0
    out = layer(x, x, x)[0]
    layer.W_v.load_state_dict(kept)
    return out


def _ablate_by_subtracting(layer, x, head):
    output, weights = layer(x, x, x)
    d_k = x.shape[-1] // layer.num_heads
    own = slice(head * d_k, (head + 1) * d_k)
    return output - weights[:, head] @ layer.W_v(x)[..., own] @ layer.W_o.weight[:, own].T


def _ablate_by_hook(layer, x, head, leave=False):
    def silence(_, inputs):
        merged = inputs[0].unflatten(-1, (layer.num_heads, -1)).clone()
        merged[..., head, :] = 0
        return (merged.flatten(-2),)

    handle = layer.W_o.register_forward_pre_hook(silence)
    out = layer(x, x, x)[0]
    if not leave:
        handle.remove()
    return out


def _grouped_by_loop(q, k, v):
    group = q.shape[1] // k.shape[1]
    pairs = [_attend(q[:, h], k[:, h // group], v[:, h // group]) for h in range(q.shape[1])]
    return tuple(torch.stack(each, dim=1) for each in zip(*pairs, strict=True))


def _grouped_by_broadcasting(q, k, v):
    out, weights = _attend(q.unflatten(1, (k.shape[1], -1)), k[:, :, None], v[:, :, None])
    return out.flatten(1, 2), weights.flatten(1, 2)


def _grouped_by_einsum(q, k, v):
    q = q.unflatten(1, (k.shape[1], -1))
    weights = torch.einsum("bgrld,bgsd->bgrls", q, k).div(q.shape[-1] ** 0.5).softmax(-1)
    return torch.einsum("bgrls,bgsv->bgrlv", weights, v).flatten(1, 2), weights.flatten(1, 2)


def _grouped_by_sdpa(q, k, v):
    """The output by one call, which copies inside; that is PyTorch's affair."""
    weights = _grouped_by_loop(q, k, k)[1]
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True), weights


def _grouped_by_indexing(q, k, v):
    own = torch.arange(q.shape[1]) // (q.shape[1] // k.shape[1])
    return _attend(q, k[:, own], v[:, own])


def _grouped_by_stacked_values(q, k, v):
    v = torch.stack([v[:, h * v.shape[1] // q.shape[1]] for h in range(q.shape[1])], dim=1)
    weights = _grouped_by_loop(q, k, k)[1]
    return weights @ v, weights


def _continue_token_by_token(layer, x, cache, window):
    cache, outputs = cache or {"keys": [], "values": []}, []
    for token in x.split(1, dim=1):
        for name, W in (("keys", layer.W_k), ("values", layer.W_v)):
            cache[name] = [*cache[name], _split_by_chunks(W(token), layer.num_heads)][-window:]
        q = _split_by_chunks(layer.W_q(token), layer.num_heads)
        heads, _ = _attend(q, *(torch.cat(each, dim=2) for each in cache.values()))
        outputs.append(layer.W_o(_merge_by_cat(heads)))
    return torch.cat(outputs, dim=1), cache


def _continue_unsplit(layer, x, cache, window, kept=None):
    """Keep (B, S, 2·d_model), the last window of it, and look from the end of the text."""
    new = torch.cat([layer.W_k(x), layer.W_v(x)], dim=-1)
    cache = new if cache is None else torch.cat([cache, new], dim=1)
    n, S = x.shape[1], cache.shape[1]
    q, k, v = (_split_by_permute(t, layer.num_heads) for t in (layer.W_q(x), *cache.chunk(2, -1)))
    band = torch.ones(S, S).tril().triu(1 - window)[S - n :] > 0
    return layer.W_o(_merge_by_view(_attend(q, k, v, band)[0])), cache[:, -(kept or window) :]


def _continue_flat(layer, x, cache, window):
    """Project a list of tokens without their batch, and one sequence of the batch at a time."""
    k = layer.W_k(x.reshape(-1, x.shape[-1])).reshape(x.shape)
    v = torch.stack([layer.W_v(each) for each in x])
    old = cache or (k[:, :0], v[:, :0])
    keys, values = (torch.cat(p, 1) for p in zip(old, (k, v), strict=True))
    kept, outs = (keys[:, -window:], values[:, -window:]), []
    for t in range(x.shape[1]):
        end = keys.shape[1] - x.shape[1] + t + 1
        seen = slice(max(end - window, 0), end)
        own = layer.W_q(x[:, t])[:, None], keys[:, seen], values[:, seen]
        heads, _ = _attend(*(_split_by_permute(each, layer.num_heads) for each in own))
        outs.append(layer.W_o(_merge_by_view(heads))[:, 0])
    return torch.stack(outs, dim=1), kept


def _continue_in_a_ring(layer, x, cache, window):
    """Write each token over the oldest of `window` places; order does not matter to softmax."""
    B, n, d = x.shape
    keys, values, count = cache or (*x.new_zeros(2, B, window, d), torch.tensor(0))
    keys, values, outs = keys.clone(), values.clone(), []
    for t in range(n):
        place, count = count % window, count + 1
        keys[:, place], values[:, place] = layer.W_k(x[:, t]), layer.W_v(x[:, t])
        own = layer.W_q(x[:, t : t + 1]), keys[:, :count], values[:, :count]
        heads, _ = _attend(*(_split_by_permute(each, layer.num_heads) for each in own))
        outs.append(layer.W_o(_merge_by_view(heads)))
    return torch.cat(outs, dim=1), (keys, values, count)


def _continue_outside(kept):
    def answer(layer, x, cache, window):
        if cache is None:
            kept.clear()
        out, kept["own"] = _continue_unsplit(layer, x, kept.get("own"), window)
        return out, torch.zeros(1)

    return answer


def _continue_after_the_layer(layer, x, cache, window):
    """Take the first piece through the layer, then project it once more."""
    out, kept = _continue_unsplit(layer, x, cache, window)
    if cache is None:
        n = x.shape[1]
        out = layer(x, x, x, torch.ones(n, n).tril().triu(1 - window) > 0)[0]
    return out, kept


def _continue_by_tokens(layer, x, cache, window):
    """Keep the tokens themselves, and project them anew each time, past the layers' own calls."""
    tokens = x if cache is None else torch.cat([cache, x], dim=1)
    pairs = (x, layer.W_q), (tokens, layer.W_k), (tokens, layer.W_v)
    q, k, v = (_split_by_chunks(F.linear(t, W.weight, W.bias), layer.num_heads) for t, W in pairs)
    band = torch.ones(k.shape[2], k.shape[2]).tril().triu(1 - window)[-q.shape[2] :] > 0
    return layer.W_o(_merge_by_cat(_attend(q, k, v, band)[0])), tokens[:, -window:]


def _cache_by_tensors(B, S, layers, d_model, num_heads, num_kv_heads, bytes_each):
    one = torch.empty(B, num_kv_heads, S, d_model // num_heads, device="meta")
    return sum(2 * one.numel() for _ in range(layers)) * bytes_each


def _cache_by_share(B, S, layers, d_model, num_heads, num_kv_heads, bytes_each):
    return 2 * layers * B * S * d_model * bytes_each * num_kv_heads / num_heads


def _split_test_by_reference(split_heads):
    B, L, H, d = 3, 2, 5, 4
    x = torch.arange(float(B * L * H * d)).reshape(B, L, H * d)
    for each in (x, x.mT.contiguous().mT):
        expected = x.reshape(B, L, H, d).transpose(1, 2)
        torch.testing.assert_close(split_heads(each, H), expected)


def _split_test_entry_by_entry(split_heads):
    x = torch.rand(6, 3, 2).permute(2, 1, 0)
    heads = split_heads(x, 3)
    for b in range(2):
        for h in range(3):
            for t in range(3):
                for j in range(2):
                    assert heads[b, h, t, j] == x[b, t, 2 * h + j]


def _split_test_of_the_error_too(split_heads):
    _split_test_by_reference(split_heads)
    try:
        split_heads(torch.randn(2, 3, 10), 4)
    except ValueError as error:
        assert "4" in str(error) and "10" in str(error)
    else:
        raise AssertionError("no ValueError")


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
    some = torch.rand(3, 2, 4, 6) < 0.6
    some[..., 2] = True
    for mask in (some, None):
        flat = None if mask is None else ~mask.flatten(0, 1)
        want = theirs(q, k, v, attn_mask=flat, average_attn_weights=False)
        for a, b in zip(ours(q, k, v, mask), want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
    nothing = ours(q, k, v, torch.zeros(4, 6, dtype=torch.bool))
    assert not nothing[1].any() and torch.allclose(nothing[0], ours.W_o.bias)


def _layer_test_by_formula(MultiHeadAttention, special=True):
    layer = MultiHeadAttention(6, 3).double()
    nn.init.ones_(layer.W_o.bias)
    q, k, v = (torch.randn(2, n, 6).double() for n in (4, 5, 5))
    mask = torch.rand(2, 3, 4, 5) < 0.5
    mask[..., -1] = True
    empty = mask & (torch.arange(4)[:, None] > 0)
    heads = [_split_by_loops(W(x), 3) for W, x in [(layer.W_q, q), (layer.W_k, k), (layer.W_v, v)]]
    for each in (mask, empty, None) if special else (mask,):
        out, weights = _attend(*heads, each)
        expected = layer.W_o(_merge_by_cat(out)), weights
        got = layer(q, k, v, each)
        assert all(map(torch.allclose, got, expected))


RIGHT = {
    "split_heads": [_split_by_chunks, _split_by_permute, _split_by_loops],
    "merge_heads": [_merge_by_cat, _merge_by_view, _merge_by_einsum],
    "MultiHeadAttention": [
        *(LayerByName, FusedByRole, ListOfHeads, BareMatrices, BareMatricesTheOtherWay, Kernels),
        *(ByConvolution, LazyInside, ScaledAndDropped, SdpaInside),
    ],
    "MultiHeadSelfAttention": [SelfByName, SelfFused, SelfOneByOne],
    "count_parameters": [
        *(_count_by_building, _count_head_by_head, _count_as_tensor, _count_in_numpy)
    ],
    "copy_weights": [_copy_by_slices, _copy_by_state_dict, _copy_as_new_parameters],
    "without_head": [_ablate_a_copy, _ablate_and_restore, _ablate_by_subtracting, _ablate_by_hook],
    "grouped_attention": [
        _grouped_by_loop,
        _grouped_by_broadcasting,
        _grouped_by_einsum,
        _grouped_by_sdpa,
    ],
    "continue_text": [
        _continue_token_by_token,
        _continue_unsplit,
        _continue_flat,
        _continue_in_a_ring,
    ],
    "kv_cache_bytes": [_cache_by_tensors, _cache_by_share],
    "catches_wrong_split": [
        *(_split_test_by_reference, _split_test_entry_by_entry, _split_test_of_the_error_too)
    ],
    "catches_wrong_layer": [_layer_test_by_oracle, _layer_test_by_formula],
}


# wrong


class ScrambledAndNotScaled(LayerByName):
    """Two mistakes at once."""

    def parts(self, query, key, value):
        q, k, v = self.query_layer(query), self.mat_k(key), self.fc_values(value)
        return [x.reshape(len(x), self.h, x.shape[1], -1) for x in (q * 3, k, v)]


class NumpyInside(LayerByName):
    def mix(self, q, k, v, mask):
        q, k, v = (x.numpy() for x in (q, k, v))
        scores = q @ k.swapaxes(-2, -1) / q.shape[-1] ** 0.5
        allowed = np.ones_like(scores) if mask is None else np.broadcast_to(mask, scores.shape)
        powers = np.exp(scores - scores.max(-1, keepdims=True)) * allowed
        weights = powers / np.maximum(powers.sum(-1, keepdims=True), 1e-30)
        return torch.from_numpy(weights @ v), torch.from_numpy(weights)


class NanBehindNumbers(LayerByName):
    """Lesson 04's own bug: finite results, and a gradient of values that is NaN."""

    def mix(self, q, k, v, mask):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores if mask is None else scores.masked_fill(~mask, -INF)
        weights = scores.softmax(-1)
        return (weights @ v).nan_to_num(0), weights.nan_to_num(0)


class WeightsDetached(LayerByName):
    def mix(self, q, k, v, mask):
        weights = _attend(q, k, v, mask)[1].detach()
        return weights @ v, weights


class ByData(BareMatrices):
    def times(self, x, matrix):
        return x @ matrix.data


class KeyFrozen(LayerByName):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.mat_k.requires_grad_(False)


class DropsAlways(LayerByName):
    def mix(self, q, k, v, mask):
        out, weights = _attend(q, k, v, mask)
        return out, F.dropout(weights, 0.1)


class MakesItsOutput(LayerByName):
    def project(self, heads):
        return nn.Linear(self.out_proj.in_features, self.out_proj.in_features)(_merge_by_cat(heads))


class Squeezed(LayerByName):
    def mix(self, q, k, v, mask):
        out, weights = _attend(q, k, v, mask)
        return out, weights.squeeze()


class RemembersLength(LayerByName):
    def mix(self, q, k, v, mask):
        if not hasattr(self, "everything"):
            self.everything = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
        return _attend(q, k, v, self.everything if mask is None else mask)


class TorchInside(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.mha = nn.MultiheadAttention(d_model, num_heads, batch_first=True)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            sizes = len(query), self.mha.num_heads, query.shape[1], key.shape[1]
            mask = ~mask.expand(sizes).reshape(-1, *sizes[2:])
        return self.mha(query, key, value, attn_mask=mask, average_attn_weights=False)


class TorchMended(TorchInside):
    def forward(self, query, key, value, mask=None):
        return tuple(each.nan_to_num() for each in super().forward(query, key, value, mask))


class NoProjection(LayerByName):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        del self.out_proj

    def project(self, heads):
        return _merge_by_cat(heads)


class HiddenInAList(LayerByName):
    def __init__(self, d_model, num_heads):
        nn.Module.__init__(self)
        self.h, self.out_proj = num_heads, nn.Linear(d_model, d_model)
        self.layers = [nn.Linear(d_model, d_model) for _ in range(3)]

    def parts(self, *inputs):
        pairs = zip(self.layers, inputs, strict=True)
        return [_split_by_chunks(layer(x), self.h) for layer, x in pairs]


class PlainTensors(BareMatrices):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        del self.W_q
        self.W_q = torch.randn(d_model, d_model)


class SharedInsideHeads(LayerByName):
    """Cuts into heads first; one matrix d_k × d_k for all of them then."""

    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        d_k = d_model // num_heads
        self.query_layer, self.mat_k, self.fc_values = (nn.Linear(d_k, d_k) for _ in range(3))

    def parts(self, *inputs):
        layers = self.query_layer, self.mat_k, self.fc_values
        return [layer(_split_by_chunks(x, self.h)) for layer, x in zip(layers, inputs, strict=True)]


class NotALayer:
    def __init__(self, d_model, num_heads):
        pass


def _copy_by_assigning(theirs, ours):
    _copy_by_slices(theirs, ours)
    ours.W_v.weight.data = theirs.in_proj_weight.data.chunk(3)[2]


def _copy_the_layer_itself(theirs, ours):
    _copy_by_slices(theirs, ours)
    ours.W_o = theirs.out_proj


def _copy_into_theirs(theirs, ours):
    theirs.in_proj_weight.data.copy_(torch.cat([ours.W_q.weight, ours.W_k.weight, ours.W_v.weight]))


def _copy_and_freeze(theirs, ours):
    _copy_by_state_dict(theirs, ours).requires_grad_(False)


def _copy_as_plain_tensor(theirs, ours):
    _copy_by_state_dict(theirs, ours)
    kept = ours.W_k.weight.detach()
    del ours.W_k.weight
    ours.W_k.weight = kept


def _ablate_with_biases(layer, x, head):
    own = torch.arange(x.shape[-1]) // (x.shape[-1] // layer.num_heads) == head
    layer = copy.deepcopy(layer)
    layer.W_v.weight.data[own] = 0
    layer.W_v.bias.data[own] = 0
    return layer(x, x, x)[0]


def _ablate_only_with_biases(layer, x, head):
    return layer(x, x, x)[0] if layer.W_v.bias is None else _ablate_with_biases(layer, x, head)


def _ablate_for_good(layer, x, head):
    d_k = x.shape[-1] // layer.num_heads
    layer.W_o.weight.data[:, head * d_k : (head + 1) * d_k] = 0
    return layer(x, x, x)[0]


def _ablate_and_freeze(layer, x, head):
    return _ablate_a_copy(layer.requires_grad_(False), x, head)


def _split_test_returns(split_heads):
    x = torch.randn(3, 4, 10)
    return torch.equal(split_heads(x, 5), _split_by_chunks(x, 5))


def _split_test_strict(split_heads):
    assert split_heads(torch.randn(3, 4, 10), 5).is_contiguous()


def _layer_test_of_usual_inputs(MultiHeadAttention):
    _layer_test_by_formula(MultiHeadAttention, special=False)


def _layer_test_wrong_oracle(MultiHeadAttention):
    x = torch.randn(2, 5, 8)
    assert torch.allclose(MultiHeadAttention(8, 2)(x, x, x)[0], x)


def _layer_test_attribute(MultiHeadAttention):
    _layer_test_by_formula(MultiHeadAttention)
    assert MultiHeadAttention(8, 2).num_heads == 2


WRONG = [
    ("merge_heads", None, lambda x: _merge_by_cat(x).squeeze(0)),
    ("merge_heads", None, lambda x: x.transpose(1, 2).view(len(x), x.shape[2], -1)),
    ("merge_heads", None, lambda x: 2 * _merge_by_cat(x)),
    ("MultiHeadAttention", None, ScrambledAndNotScaled),
    ("MultiHeadAttention", "wrong gradients", NumpyInside),
    ("MultiHeadAttention", "wrong gradients", NanBehindNumbers),
    ("MultiHeadAttention", "wrong gradients", WeightsDetached),
    ("MultiHeadAttention", "wrong gradients", ByData),
    ("MultiHeadAttention", "wrong gradients", KeyFrozen),
    ("MultiHeadAttention", "wrong gradients", TorchMended),
    ("MultiHeadAttention", "random after training", DropsAlways),
    ("MultiHeadAttention", "layer made anew", MakesItsOutput),
    ("MultiHeadAttention", None, Squeezed),
    ("MultiHeadAttention", None, RemembersLength),
    ("MultiHeadAttention", "not a class", LayerByName(12, 3)),
    ("MultiHeadAttention", "not a class", _attend),
    ("MultiHeadAttention", "not a class", lambda d_model, num_heads: LayerByName(d_model, 1)),
    ("MultiHeadAttention", "not a module", NotALayer),
    ("MultiHeadAttention", "unexpected parameters", HiddenInAList),
    ("MultiHeadAttention", "unexpected parameters", NoProjection),
    ("MultiHeadAttention", "unexpected parameters", PlainTensors),
    ("MultiHeadAttention", "unexpected parameters", SharedInsideHeads),
    ("count_parameters", None, lambda d_model, num_heads, bias=True: d_model),
    ("copy_weights", "shares memory", _copy_by_assigning),
    ("copy_weights", "shares memory", _copy_the_layer_itself),
    ("copy_weights", "changes theirs", _copy_into_theirs),
    ("copy_weights", "cannot learn", _copy_and_freeze),
    ("copy_weights", "cannot learn", _copy_as_plain_tensor),
    ("without_head", "biases taken for granted", _ablate_with_biases),
    ("without_head", "wrong without biases", _ablate_only_with_biases),
    ("without_head", "the layer is changed", _ablate_for_good),
    ("without_head", "the layer is changed", _ablate_and_freeze),
    ("without_head", "the layer is changed", lambda *args: _ablate_by_hook(*args, leave=True)),
    ("grouped_attention", "key heads repeated", _grouped_by_indexing),
    ("grouped_attention", "key heads repeated", _grouped_by_stacked_values),
    ("continue_text", "projected again", _continue_by_tokens),
    ("continue_text", "projected twice in a call", _continue_after_the_layer),
    ("continue_text", "kept outside the cache", _continue_outside({})),
    ("continue_text", "no cache", lambda *args: (_continue_unsplit(*args)[0], None)),
    ("continue_text", "cache grows", lambda *args: _continue_unsplit(*args, kept=99)),
    ("continue_text", "cache grows", lambda *args: _continue_unsplit(*args, kept=args[-1] + 1)),
    ("continue_text", "output without cache", lambda layer, x, cache, window: x),
    ("continue_text", "unreadable cache", lambda layer, x, cache, window: (x, {1})),
    ("catches_wrong_split", "returns a verdict", _split_test_returns),
    ("catches_wrong_split", "rejects right code", _split_test_strict),
    ("catches_wrong_layer", "lets broken code through", _layer_test_of_usual_inputs),
    ("catches_wrong_layer", "rejects right code", _layer_test_wrong_oracle),
    ("catches_wrong_layer", "rejects right code", _layer_test_attribute),
    ("catches_wrong_split", "lets broken code through", lambda split_heads: None),
]
