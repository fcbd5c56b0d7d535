import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def dot_by_hand(a, b):
    total = 0
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        total += x * y
    return total


def scores_by_loops(q, k):
    if q.ndim > 2:
        return torch.stack([scores_by_loops(a, b) for a, b in zip(q, k, strict=True)])
    out = torch.zeros(len(q), len(k), dtype=q.dtype)
    for i in range(len(q)):
        for j in range(len(k)):
            out[i, j] = torch.dot(q[i], k[j])
    return out


def cosine_by_loops(q, k):
    if q.ndim > 2:
        return torch.stack([cosine_by_loops(a, b) for a, b in zip(q, k, strict=True)])
    rows = []
    for a in q:
        for b in k:
            size = a.norm() * b.norm()
            rows.append(a @ b / size if size > 0 else torch.zeros((), dtype=q.dtype))
    return torch.stack(rows).view(len(q), len(k))


def identity_distance(q, k):
    cross = torch.einsum("...ld,...sd->...ls", q, k)
    squares = (q**2).sum(-1, keepdim=True) + (k**2).sum(-1).unsqueeze(-2) - 2 * cross
    return torch.sqrt(torch.relu(squares))


def nearest_by_sorting(q, k, metric):
    if metric == "euclidean":
        return torch.cdist(q, k).argsort(dim=-1)[..., 0]
    if metric == "cosine":
        k = F.normalize(k, dim=-1)
    return (q @ k.mT).topk(1, dim=-1).indices.squeeze(-1)


def nearest_by_broadcasting(q, k, metric):
    a, b = q.unsqueeze(-2), k.unsqueeze(-3)
    if metric == "dot":
        return torch.argmax((a * b).sum(-1), -1)
    if metric == "cosine":
        return torch.argmax(F.cosine_similarity(a, b, dim=-1), -1)
    return torch.argmin(((a - b) ** 2).sum(-1), -1)


def lookup_by_exp(q, k, v):
    e = torch.exp(q @ k.mT)
    return (e @ v) / e.sum(-1, keepdim=True)


def lookup_in_numpy(q, k, v):
    q, k, v = q.numpy(), k.numpy(), v.numpy()
    s = q @ np.swapaxes(k, -1, -2)
    w = np.exp(s - s.max(-1, keepdims=True))
    return torch.from_numpy(w / w.sum(-1, keepdims=True) @ v)


class Named(nn.Module):
    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__()
        d_k = d_k or d_model
        d_v = d_v or d_k
        self.query = nn.Linear(d_model, d_k)
        self.key = nn.Linear(d_model, d_k)
        self.value = nn.Linear(d_model, d_v)
        self.out = nn.Linear(d_v, d_model)

    def forward(self, x):
        q = self.query(x) * self.query.out_features**-0.5
        w = F.softmax(torch.einsum("...ld,...sd->...ls", q, self.key(x)), -1)
        return self.out(w @ self.value(x)), w


class Fused(nn.Module):
    order = "qkv"

    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__()
        d_k = d_model if d_k is None else d_k
        d_v = d_k if d_v is None else d_v
        sizes = {"q": d_k, "k": d_k, "v": d_v}
        self.split = [sizes[letter] for letter in self.order]
        self.qkv = nn.Linear(d_model, sum(self.split), bias=False)
        self.proj = nn.Linear(d_v, d_model, bias=False)

    def forward(self, x):
        parts = dict(zip(self.order, self.qkv(x).split(self.split, dim=-1), strict=True))
        s = parts["q"] @ parts["k"].mT / math.sqrt(parts["k"].shape[-1])
        e = (s - s.amax(-1, keepdim=True)).exp()
        w = e / e.sum(-1, keepdim=True)
        return self.proj(w @ parts["v"]), w


class FusedOtherOrder(Fused):
    order = "vkq"


class Matrices(nn.Module):
    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__()
        d_k = d_k or d_model
        d_v = d_v or d_k
        self.Wq = nn.Parameter(torch.randn(d_model, d_k))
        self.Wk = nn.Parameter(torch.randn(d_model, d_k))
        self.Wv = nn.Parameter(torch.randn(d_model, d_v))
        self.Wo = nn.Parameter(torch.randn(d_v, d_model))

    def forward(self, x):
        q, k, v = x @ self.Wq, x @ self.Wk, x @ self.Wv
        w = torch.softmax(q @ k.transpose(-1, -2) / k.size(-1) ** 0.5, dim=-1)
        return [w @ v @ self.Wo, w]


class OutputFirst(nn.Module):
    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__()
        d_k = d_k or d_model
        d_v = d_v or d_k
        self.out_proj = nn.Linear(d_v, d_model)
        self.v_proj = nn.Linear(d_model, d_v)
        self.k_proj = nn.Linear(d_model, d_k)
        self.q_proj = nn.Linear(d_model, d_k)

    def forward(self, x):
        q, k = self.q_proj(x), self.k_proj(x)
        q, k = q * q.shape[-1] ** -0.25, k * k.shape[-1] ** -0.25
        weights = (q @ k.mT).log_softmax(-1).exp()
        return self.out_proj(weights @ self.v_proj(x)), weights


class ThroughSdpa(Named):
    def forward(self, x):
        q, k, v = self.query(x), self.key(x), self.value(x)
        eye = torch.eye(x.shape[-2], dtype=x.dtype).expand(*x.shape[:-1], -1)
        w = F.scaled_dot_product_attention(q, k, eye)
        return self.out(F.scaled_dot_product_attention(q, k, v)), w


class MatricesTurned(Matrices):
    """Bare matrices as nn.Linear stores them, (out, in)."""

    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__(d_model, d_k, d_v)
        for name, matrix in list(self.named_parameters()):
            setattr(self, name, nn.Parameter(matrix.detach().T.clone()))

    def forward(self, x):
        q, k, v = (F.linear(x, matrix) for matrix in (self.Wq, self.Wk, self.Wv))
        w = torch.softmax(q @ k.mT / k.size(-1) ** 0.5, dim=-1)
        return F.linear(w @ v, self.Wo), w


class WithoutNames(nn.Module):
    """Layers in a list, the keys' first."""

    roles = "kqvo"

    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__()
        d_k = d_k or d_model
        d_v = d_v or d_k
        sizes = {"q": (d_model, d_k), "k": (d_model, d_k), "v": (d_model, d_v), "o": (d_v, d_model)}
        self.layers = nn.ModuleList(nn.Linear(*sizes[role]) for role in self.roles)

    def forward(self, x):
        by = dict(zip(self.roles, self.layers, strict=True))
        q, k = by["q"](x), by["k"](x)
        w = torch.softmax(q @ k.mT / k.size(-1) ** 0.5, dim=-1)
        return by["o"](w @ by["v"](x)), w


class OutputFirstWithoutNames(WithoutNames):
    roles = "oqkv"


class LazyLayers(nn.Module):
    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__()
        d_k = d_k or d_model
        self.W_q, self.W_k = nn.LazyLinear(d_k), nn.LazyLinear(d_k)
        self.W_v, self.W_o = nn.LazyLinear(d_v or d_k), nn.LazyLinear(d_model, bias=False)
        self.unused = nn.LazyLinear(d_k)

    def forward(self, x):
        q, k = self.W_q(x), self.W_k(x)
        w = torch.softmax(q @ k.mT / k.size(-1) ** 0.5, dim=-1)
        return self.W_o(w @ self.W_v(x)), w


class ScaleAndBiases(Matrices):
    """A scale and a gain among the parameters, biases (1, d) and a dropout for training."""

    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__(d_model, d_k, d_v)
        width = self.Wq.shape[1]
        self.scale = nn.Parameter(torch.tensor(width**0.5), requires_grad=False)
        self.gain = nn.Parameter(torch.ones(d_model))
        self.b_q, self.offset_k = (nn.Parameter(torch.randn(1, width)) for _ in range(2))
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        q, k, v = x @ self.Wq + self.b_q, x @ self.Wk + self.offset_k, x @ self.Wv
        w = torch.softmax(q @ k.mT / self.scale, dim=-1)
        return self.gain * (self.drop(w) @ v @ self.Wo), w


RIGHT = {
    "dot": [
        dot_by_hand,
        lambda a, b: a @ b,
        lambda a, b: (a * b).sum(),
        lambda a, b: torch.einsum("i,i->", a, b),
        lambda a, b: sum(a[i] * b[i] for i in range(len(a))),
    ],
    "dot_product_scores": [
        scores_by_loops,
        lambda q, k: torch.matmul(q, k.mT),
        lambda q, k: torch.einsum("...ld,...sd->...ls", q, k),
        lambda q, k: (q.unsqueeze(-2) * k.unsqueeze(-3)).sum(-1),
        lambda q, k: (k @ q.transpose(-1, -2)).transpose(-1, -2),
        lambda q, k: torch.from_numpy(q.numpy() @ np.swapaxes(k.numpy(), -1, -2)),
        lambda q, k: q.double() @ k.double().mT,
    ],
    "cosine_similarity": [
        cosine_by_loops,
        lambda q, k: F.cosine_similarity(q.unsqueeze(-2), k.unsqueeze(-3), dim=-1),
        lambda q, k: F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT,
        lambda q, k: q @ k.mT / (q.norm(dim=-1)[..., None] * k.norm(dim=-1)[..., None, :] + 1e-9),
        lambda q, k: torch.nan_to_num(
            q @ k.mT / (q.norm(dim=-1)[..., None] * k.norm(dim=-1)[..., None, :])
        ),
    ],
    "euclidean_distance": [
        identity_distance,
        lambda q, k: torch.cdist(q, k),
        lambda q, k: torch.linalg.vector_norm(q.unsqueeze(-2) - k.unsqueeze(-3), dim=-1),
        lambda q, k: ((q.unsqueeze(-2) - k.unsqueeze(-3)) ** 2).sum(-1) ** 0.5,
    ],
    "nearest_key": [nearest_by_sorting, nearest_by_broadcasting],
    "disagreement": [
        lambda: (torch.tensor([0.0, 2.0]), torch.tensor([[-8, 5.0], [0.0, 0.1], [0.5, 2.0]])),
        lambda: [torch.tensor([1, 1]), torch.tensor([[30, 1], [5, 5], [1, 2]])],
    ],
    "soft_lookup": [
        lookup_by_exp,
        lookup_in_numpy,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=1.0),
        lambda q, k, v: F.log_softmax(q @ k.mT, -1).exp() @ v,
        lambda q, k, v: (q @ k.mT)[..., None].softmax(-2).mul(v.unsqueeze(-3)).sum(-2),
    ],
    "project_qkv": [
        lambda x, a, b, c: [x @ a, x @ b, x @ c],
        lambda x, a, b, c: tuple(torch.einsum("...lm,md->...ld", x, w) for w in (a, b, c)),
        lambda x, a, b, c: (x @ torch.cat([a, b, c], 1)).split(
            [a.shape[1], b.shape[1], c.shape[1]], -1
        ),
        lambda x, a, b, c: tuple(F.linear(x, w.T) for w in (a, b, c)),
    ],
    "SelfAttention": [
        Named,
        Fused,
        FusedOtherOrder,
        Matrices,
        OutputFirst,
        ThroughSdpa,
        MatricesTurned,
        WithoutNames,
        OutputFirstWithoutNames,
        LazyLayers,
        ScaleAndBiases,
    ],
}


def returned_inside_the_loop(a, b):
    total = 0
    for i in range(len(a)):
        total += a[i] * b[i]
        return total


def total_from_zeros_1(a, b):
    total = torch.zeros(1)
    for i in range(len(a)):
        total = total + a[i] * b[i]
    return total


def replaced_in_the_loop(a, b):
    for i in range(len(a)):
        total = a[i] * b[i]
    return total


def no_clamp(q, k):
    return (q.square().sum(-1)[..., None] + k.square().sum(-1)[..., None, :] - 2 * q @ k.mT).sqrt()


def keys_divided_by_their_lengths(q, k, metric):
    if metric == "euclidean":
        return torch.cdist(q, k).argmin(-1)
    if metric == "cosine":
        q, k = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)
    return torch.argmax(q @ k.mT, dim=-1)


def cosine_distance_ranked(q, k, metric):
    if metric == "euclidean":
        return torch.cdist(q, k).argmin(-1)
    if metric == "dot":
        return (q @ k.mT).argmax(-1)
    return (1 - F.cosine_similarity(q[..., :, None, :], k[..., None, :, :], dim=-1)).argmax(-1)


def nearest_squeezed(q, k, metric):
    return nearest_by_broadcasting(q, k, metric).squeeze()


def argmax_for_all(q, k, metric):
    scores = {
        "dot": q @ k.mT,
        "cosine": F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT,
        "euclidean": torch.cdist(q, k),
    }
    return scores[metric].argmax(-1)


class NoScale(Named):
    def forward(self, x):
        w = (self.query(x) @ self.key(x).mT).softmax(-1)
        return self.out(w @ self.value(x)), w


class PowerBeforeHalf(Named):
    def forward(self, x):
        q, k = self.query(x), self.key(x)
        w = F.softmax(q @ k.transpose(-2, -1) / k.shape[-1] ** 1 / 2, dim=-1)
        return self.out(w @ self.value(x)), w


class HalfTheWidth(Named):
    def forward(self, x):
        q, k = self.query(x), self.key(x)
        root = k.shape[-1] ** 1 / 2
        w = F.softmax(q @ k.transpose(-2, -1) / root, dim=-1)
        return self.out(w @ self.value(x)), w


class WideValues(Named):
    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__(d_model, d_k or d_model, d_v or d_model)


class ColumnSoftmax(Named):
    def forward(self, x):
        q = self.query(x)
        w = (q @ self.key(x).mT / q.shape[-1] ** 0.5).softmax(-2)
        return self.out(w @ self.value(x)), w


class Swapped(OutputFirst):
    def forward(self, x):
        q, k = self.q_proj(x), self.k_proj(x)
        weights = (k @ q.mT / q.shape[-1] ** 0.5).softmax(-1)
        return self.out_proj(weights @ self.v_proj(x)), weights


class ValuesAsWideAsKeys(Named):
    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__(d_model, d_k, d_v)
        self.value = nn.Linear(d_model, d_k or d_model)
        self.out = nn.Linear(d_k or d_model, d_model)


class OutputTooNarrow(Named):
    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__(d_model, d_k, d_v)
        width = d_v or d_k or d_model
        self.out = nn.Linear(width, width)


class KeysFromTheQueries(Named):
    def forward(self, x):
        q, k = self.query(x), self.query(x)
        w = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return self.out(w @ self.value(x)), w


class RootOfTheValues(Named):
    def forward(self, x):
        v = self.value(x)
        w = (self.query(x) @ self.key(x).mT / math.sqrt(v.shape[-1])).softmax(-1)
        return self.out(w @ v), w


class NoOutput(nn.Module):
    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__()
        d_k = d_k or d_model
        d_v = d_v or d_k
        self.W_q = nn.Linear(d_model, d_k)
        self.W_k = nn.Linear(d_model, d_k)
        self.W_v = nn.Linear(d_model, d_v)

    def forward(self, x):
        q = self.W_q(x)
        w = (q @ self.W_k(x).mT / q.shape[-1] ** 0.5).softmax(-1)
        return w @ self.W_v(x), w


class OverTheFirstDimension(Named):
    def forward(self, x):
        q = self.query(x)
        w = (q @ self.key(x).mT / q.shape[-1] ** 0.5).softmax(0)
        return self.out(w @ self.value(x)), w


def key_lengths_forgotten_and_no_limit(q, k):
    return q @ k.mT / q.norm(dim=-1, keepdim=True)


class UnpacksThree(Named):
    def forward(self, x):
        B, L, d_model = x.shape
        return super().forward(x)


class ByBmm(Named):
    def forward(self, x):
        q, k, v = self.query(x), self.key(x), self.value(x)
        w = (torch.bmm(q, k.permute(0, 2, 1)) / q.size(2) ** 0.5).softmax(dim=2)
        return self.out(torch.bmm(w, v)), w


class TransposesOneAndTwo(Named):
    def forward(self, x):
        q = self.query(x)
        w = (q @ self.key(x).transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1)
        return self.out(w @ self.value(x)), w


WRONG = [
    ("SelfAttention", "wants a batch", UnpacksThree),
    ("SelfAttention", "wants a batch", ByBmm),
    ("SelfAttention", "wants a batch", TransposesOneAndTwo),
    ("SelfAttention", "softmax over the queries", OverTheFirstDimension),
    ("cosine_similarity", "only query normalised", key_lengths_forgotten_and_no_limit),
    ("dot", "returned too early", returned_inside_the_loop),
    ("dot", "total replaced", replaced_in_the_loop),
    ("dot", "products not added", lambda a, b: torch.mul(a, b)),
    ("dot", "cosine of the angle", lambda a, b: F.cosine_similarity(a, b, dim=0)),
    ("dot", "mean of products", lambda a, b: a @ b / len(a)),
    ("dot", "number in a list of one", total_from_zeros_1),
    ("dot", None, lambda a, b: torch.outer(a, b)),
    ("dot_product_scores", "transposed", lambda q, k: torch.einsum("...ld,...sd->...sl", q, k)),
    ("dot_product_scores", "key not transposed", lambda q, k: torch.matmul(q, k)),
    ("dot_product_scores", "divided by root d", lambda q, k: q @ k.mT / math.sqrt(q.size(-1))),
    ("dot_product_scores", "softmax applied", lambda q, k: F.softmax(q @ k.mT, -1)),
    ("dot_product_scores", None, lambda q, k: (q @ k.mT).sum()),
    (
        "dot_product_scores",
        "three letters in einsum",
        lambda q, k: torch.einsum("bld,bsd->ls", q, k),
    ),
    ("dot_product_scores", None, lambda q, k: 2 * q @ k.mT),
    ("dot_product_scores", None, lambda q, k: (q @ k.mT).squeeze()),
    (
        "dot_product_scores",
        "all dimensions turned",
        lambda q, k: torch.einsum("ld,sd->ls", q, k),
    ),
    ("cosine_similarity", "not divided", lambda q, k: q @ k.mT),
    (
        "cosine_similarity",
        "zero vector gives nan",
        lambda q, k: (q / q.norm(dim=-1, keepdim=True)) @ (k / k.norm(dim=-1, keepdim=True)).mT,
    ),
    (
        "cosine_similarity",
        "only query normalised",
        lambda q, k: (q / q.norm(dim=-1, keepdim=True).clamp(min=1e-8)) @ k.mT,
    ),
    ("cosine_similarity", "rows paired one to one", lambda q, k: F.cosine_similarity(q, k, -1)),
    (
        "cosine_similarity",
        "rows paired one to one",
        lambda q, k: q @ k.mT / (q.norm(dim=-1) * k.norm(dim=-1)),
    ),
    (
        "cosine_similarity",
        None,
        lambda q, k: F.cosine_similarity(q[..., None, :], k[..., None, :, :], -1).squeeze(),
    ),
    (
        "euclidean_distance",
        "row minus row",
        lambda q, k: ((q**2).sum(-1) + (k**2).sum(-1) - 2 * q @ k.mT).sqrt(),
    ),
    ("euclidean_distance", None, lambda q, k: torch.cdist(q, k).squeeze()),
    ("euclidean_distance", "squared distance", lambda q, k: torch.cdist(q, k) ** 2),
    ("euclidean_distance", "root of a negative", no_clamp),
    ("euclidean_distance", "absolute differences", lambda q, k: torch.cdist(q, k, p=1)),
    ("euclidean_distance", "row minus row", lambda q, k: torch.norm(q - k, dim=-1)),
    ("nearest_key", "farthest by distance", argmax_for_all),
    ("nearest_key", "smallest for all", cosine_distance_ranked),
    ("nearest_key", "zero key wins", keys_divided_by_their_lengths),
    ("nearest_key", "positions as floats", lambda *given: nearest_by_sorting(*given).double()),
    ("nearest_key", None, nearest_squeezed),
    ("nearest_key", "always dot", lambda q, k, metric: (q @ k.mT).argmax(-1)),
    ("nearest_key", "query for each key", lambda q, k, m: nearest_by_broadcasting(k, q, m)),
    ("soft_lookup", "softmax over queries", lambda q, k, v: F.softmax(q @ k.mT, dim=-2) @ v),
    ("soft_lookup", "no softmax", lambda q, k, v: q @ k.mT @ v),
    ("soft_lookup", "scaled scores", F.scaled_dot_product_attention),
    ("soft_lookup", "weights returned", lambda q, k, v: (q @ k.mT).softmax(-1)),
    ("soft_lookup", "exp not normalised", lambda q, k, v: torch.exp(q @ k.mT) @ v),
    ("soft_lookup", "softmax over dimension 1", lambda q, k, v: F.softmax(q @ k.mT, dim=1) @ v),
    ("soft_lookup", None, lambda q, k, v: (q @ k.mT).softmax(-1) @ v + 0.01),
    ("soft_lookup", None, lambda q, k, v: ((q @ k.mT).softmax(-1) @ v).squeeze()),
    ("project_qkv", "values from keys", lambda x, a, b, c: (x @ a, x @ b, x @ b)),
    ("project_qkv", "values projected from keys", lambda x, a, b, c: (x @ a, x @ b, x @ b @ c)),
    ("project_qkv", "matrices transposed", lambda x, a, b, c: (x @ a.T, x @ b.T, x @ c.T)),
    ("SelfAttention", "not scaled", NoScale),
    ("SelfAttention", "divided by d k and by 2", PowerBeforeHalf),
    ("SelfAttention", "divided by half of d k", HalfTheWidth),
    ("SelfAttention", "values as wide as the model", WideValues),
    ("SelfAttention", "softmax over the queries", ColumnSoftmax),
    ("SelfAttention", "keys ask queries", Swapped),
    ("SelfAttention", "unexpected parameters", NoOutput),
    ("SelfAttention", "unexpected parameters", ValuesAsWideAsKeys),
    ("SelfAttention", "unexpected parameters", OutputTooNarrow),
    ("SelfAttention", "keys made by W q", KeysFromTheQueries),
    ("SelfAttention", "scaled by root d v", RootOfTheValues),
]

HINTS = {
    "dot": {
        "number in a list of one": "not at torch.zeros(1)",
        "total without sign": "must give a negative number",
        "squared differences": "it does not subtract",
        "products multiplied": "add them up",
        "products not added": "add them up",
        "mean of products": "a dot product is their sum",
        "product of sums": "position by position",
        "total replaced": "add to the total",
        "returned too early": "`return` stands inside the loop",
        "first left out": "first position is left out",
        "last left out": "last position is left out",
        "added instead of multiplied": "multiplied",
        "absolute values": "lost their sign",
        "cosine of the angle": "divided by both lengths",
    },
    "dot_product_scores": {
        "keys with keys": "first factor should be q",
        "reshaped not transposed": "re-read the entries of k in order",
        "absolute scores": "lost their sign",
        "transposed": "rows are queries, columns are keys",
        "key not transposed": "k is not transposed",
        "entry by entry": "every query must meet every key",
        "all dimensions turned": "know only two",
        "three letters in einsum": "a letter for each dimension",
        "divided by root d": "divided by √d",
        "mean in place of sum": "divided by d:",
        "softmax applied": "before any softmax",
        "cosine": "divided by the lengths",
        "mixes batch items": "different batch items",
        "queries with queries": "second factor should be k",
    },
    "cosine_similarity": {
        "normalised along dimension 1": "along dimension 1",
        "angle not cosine": "without the acos",
        "not divided": "divide by the lengths of both",
        "only query normalised": "divide by the key's as well",
        "only key normalised": "divide by the query's as well",
        "zero vector gives nan": "0 / 0",
        "squared lengths": "a square root is missing",
        "length of columns": "wrong dimension",
        "one length for all": "each row has its own",
        "sum of absolute values": "root of the sum of squares",
        "cosine distance": "1 - cosine",
        "transposed cosines": "rows are queries, columns are keys",
        "rows paired one to one": "in a product of lengths",
    },
    "euclidean_distance": {
        "key square missing": "‖k‖² is missing",
        "query square missing": "‖q‖² is missing",
        "squared distance": "take the square root",
        "plus cross term": "the sign of the cross term",
        "cross term once": "counts twice",
        "absolute differences": "square them",
        "root of the mean": "takes their sum",
        "negative distance": "the sign is turned",
        "added before squaring": "added before they are squared",
        "transposed distances": "rows are queries, columns are keys",
        "difference of lengths": "compares lengths alone",
        "row minus row": "in q - k or in ‖q‖² + ‖k‖²",
    },
    "nearest_key": {
        "farthest by distance": "by distance it finds the farthest",
        "smallest for all": "large is near there",
        "all reversed": "the wrong way round",
        "positions as floats": "return integers",
        "zero key wins": "argmax takes NaN for the largest",
        "query for each key": "best query for each key",
        "value not position": "argmax, not max",
        "always dot": "the dot product whatever",
        "always cosine": "the cosine whatever",
        "always euclidean": "the distance whatever",
        "cosine ranked as dot": "only the query's length",
        "one for the whole matrix": "dim=-1",
    },
    "disagreement": {
        "all three agree": "all three metrics choose the same",
        "dot and cosine agree": "dot product and cosine choose the same",
        "dot and distance agree": "dot product and distance choose the same",
        "cosine and distance agree": "cosine and distance choose the same",
    },
    "soft_lookup": {
        "softmax over dimension 1": "write dim=-1",
        "scores divided by d": "divided by d before",
        "sigmoid in place of softmax": "softmax shares 1 among keys",
        "relu in place of softmax": "relu drops negative",
        "softmax of the output": "once too often",
        "scored by distance": "dot products are asked",
        "softmax over queries": "over the keys must sum to 1",
        "no softmax": "turn them into weights with softmax",
        "hard lookup": "the best key's value alone",
        "weights returned": "multiply them with the values",
        "keys mixed": "in place of the values",
        "scaled scores": "divided by √d",
        "plain average": "the same weight",
        "divided without exp": "exp comes first",
        "exp not normalised": "do not sum to 1",
        "softmax over all pairs": "all pairs at once",
    },
    "project_qkv": {
        "values from queries": "the values come from W_q",
        "only queries": "all three",
        "matrix on the left": "so x @ W",
        "matrices transposed": "need no transpose",
        "values from keys": "W_v",
        "values projected from keys": "projected already",
        "keys from queries": "keys need W_k",
        "query and key swapped": "q and k are swapped",
        "value not last": "the value is not last",
        "key and value swapped": "key and value are swapped",
        "joined into one": "three tensors are asked",
    },
    "SelfAttention": {
        "divided by d k and by 2": "and then by 2",
        "divided by half of d k": "divided by d_k / 2",
        "values as wide as the model": "if d_v is None it is d_k",
        "scaled by root L": "√L",
        "weights transposed": "transposed before they mix",
        "values not mixed": "not mixed",
        "weights not normalised": "do not sum to 1: divide",
        "scaled after softmax": "after the softmax",
        "masked to the past": "later tokens are masked",
        "input added": "no residual",
        "not scaled": "not divided by √d_k",
        "scaled by d k": "the square root is missing",
        "scaled by root d model": "so √d_k",
        "scaled by root d v": "the width of the values",
        "keys made by W q": "W_k is not used",
        "multiplied by root d k": "should be divided",
        "keys ask queries": "q @ kᵀ",
        "softmax over the queries": "dim=-1",
        "softmax missing": "softmax is missing",
        "scores returned": "in place of the weights",
        "output not projected": "project the mixture back",
        "only the output": "output and weights, in this order",
        "weights first": "return output, weights",
        "transposes the batch": ".transpose(-2, -1)",
    },
}
