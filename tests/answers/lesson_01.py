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


def cosines(q, k):
    return F.cosine_similarity(q.unsqueeze(-2), k.unsqueeze(-3), dim=-1)


def shorter(x):
    """Return the same directions, with 1 for the largest entry in size."""
    return torch.nan_to_num(x / x.abs().max(dim=-1, keepdim=True).values)


def cosines_by_powers_of_two(q, k):
    q, k = (torch.ldexp(x, -torch.frexp(x.abs().amax(-1, True)).exponent) for x in (q, k))
    return q @ k.mT / (math.prod(lengths(q, k)) + 1e-15)


def cosines_in_numpy(q, k):
    rows = []
    for x in (q.numpy(), k.numpy()):
        top = np.abs(x).max(-1, keepdims=True)
        x = x / np.where(top == 0, 1, top)
        length = np.sqrt((x**2).sum(-1, keepdims=True))
        rows.append(x / np.where(length == 0, 1, length))
    return torch.from_numpy(np.einsum("...ld,...sd->...ls", *rows))


def lengths(q, k):
    return q.norm(dim=-1)[..., None], k.norm(dim=-1)[..., None, :]


def identity_distance(q, k):
    cross = torch.einsum("...ld,...sd->...ls", q, k)
    squares = (q**2).sum(-1, keepdim=True) + (k**2).sum(-1).unsqueeze(-2) - 2 * cross
    return torch.sqrt(torch.relu(squares))


def distances_as_one_product(q, k):
    wide = [(x, x.square().sum(-1, keepdim=True), x.new_ones(*x.shape[:-1], 1)) for x in (q, k)]
    (q, q_squares, q_ones), (k, k_squares, k_ones) = wide
    q, k = torch.cat([-2 * q, q_squares, q_ones], -1), torch.cat([k, k_ones, k_squares], -1)
    return (q @ k.mT).clamp(min=0) ** 0.5


def nearest_by_sorting(q, k, metric):
    if metric == "euclidean":
        return torch.cdist(q, k).argsort(dim=-1)[..., 0]
    if metric == "cosine":
        k = F.normalize(k, dim=-1)
    return (q @ k.mT).topk(1, dim=-1).indices.squeeze(-1)


def lookup_by_exp(q, k, v):
    e = torch.exp(q @ k.mT)
    return (e @ v) / e.sum(-1, keepdim=True)


def projected_at_once(x, W_q, W_k, W_v):
    widths = [W.shape[1] for W in (W_q, W_k, W_v)]
    return (x @ torch.cat([W_q, W_k, W_v], dim=1)).split(widths, dim=-1)


def near_by_products(q, k):
    """All three terms of −‖q − k‖² / 2, each halved by a product."""
    q_squares, k_squares = (-0.5 * torch.linalg.vecdot(x, x).unsqueeze(-1) for x in (q, k))
    ones = torch.ones(*q.shape[:-1], 1, dtype=q.dtype), torch.ones(*k.shape[:-1], 1, dtype=k.dtype)
    return torch.cat([q, q_squares, ones[0]], -1), torch.cat([k, ones[1], k_squares], -1)


def near_by_padding(q, k):
    return F.pad(q, (1, 0), value=-0.5), torch.cat([k.pow(2).sum(-1, keepdim=True), k], -1)


def near_with_lists(q, k):
    """Both half as wide again, and the keys one by one."""
    rows = [torch.cat([row / 2, (-row @ row / 8)[None]]) for row in k.reshape(-1, k.shape[-1])]
    return F.pad(2 * q, (0, 1), value=4.0), torch.stack(rows).reshape(*k.shape[:-1], -1)


class Layer(nn.Module):
    """A layer of the widths asked for; each way to make its matrices is a class of its own."""

    names = {"q": "query", "k": "key", "v": "value", "o": "out"}  # in the order they are made

    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__()
        d_k = d_k or d_model
        d_v = d_v or d_k
        widths = {"q": d_k, "k": d_k, "v": d_v}
        self.make({role: (d_model, d) for role, d in widths.items()} | {"o": (d_v, d_model)})

    def make(self, sizes):
        for role, name in self.names.items():
            setattr(self, name, nn.Linear(*sizes[role]))

    def layer(self, role):
        return getattr(self, self.names[role])

    def forward(self, x):
        q, k, v = (self.layer(role)(x) for role in "qkv")
        w = self.weights(q, k)
        return self.layer("o")(w @ v), w

    def weights(self, q, k):
        return F.softmax(torch.einsum("...ld,...sd->...ls", q * q.shape[-1] ** -0.5, k), -1)


class KeysFirst(Layer):
    names = {"k": "fc_keys", "q": "fc_queries", "v": "fc_values", "o": "fc_out"}


class WithoutNames(Layer):
    """Layers in a list, the keys' first."""

    names = {"k": 0, "q": 1, "v": 2, "o": 3}

    def make(self, sizes):
        self.layers = nn.ModuleList(nn.Linear(*sizes[role]) for role in self.names)

    def layer(self, role):
        return self.layers[self.names[role]]


class LazyLayers(Layer):
    def make(self, sizes):
        for role, name in self.names.items():
            setattr(self, name, nn.LazyLinear(sizes[role][1]))
        self.unused = nn.LazyLinear(len(sizes))


class Fused(Layer):
    order = "vkq"

    def make(self, sizes):
        self.split = [sizes[role][1] for role in self.order]
        self.qkv = nn.Linear(sizes["q"][0], sum(self.split), bias=False)
        self.proj = nn.Linear(*sizes["o"], bias=False)

    def forward(self, x):
        parts = dict(zip(self.order, self.qkv(x).split(self.split, dim=-1), strict=True))
        s = parts["q"] @ parts["k"].mT / math.sqrt(parts["k"].shape[-1])
        e = (s - s.amax(-1, keepdim=True)).exp()
        w = e / e.sum(-1, keepdim=True)
        return self.proj(w @ parts["v"]), w


class Matrices(Layer):
    """Bare matrices (in, out), a scale and a gain, biases (1, d), and a dropout for training."""

    def make(self, sizes):
        for role, size in sizes.items():
            setattr(self, f"W{role}", nn.Parameter(torch.randn(*size)))
        d_model, d_k = sizes["q"]
        self.scale = nn.Parameter(torch.tensor(d_k**0.5), requires_grad=False)
        self.gain = nn.Parameter(torch.ones(d_model))
        self.b_q, self.offset_k = (nn.Parameter(torch.randn(1, d_k)) for _ in range(2))
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        q, k, v = x @ self.Wq + self.b_q, x @ self.Wk + self.offset_k, x @ self.Wv
        w = torch.softmax(q @ k.transpose(-1, -2) / self.scale, dim=-1)
        return [self.gain * (self.drop(w) @ v @ self.Wo), w]


class StackedAndTurned(Layer):
    """W_q and W_k in one parameter (2, d_k, d_model), all as nn.Linear stores them."""

    def make(self, sizes):
        self.W_qk = nn.Parameter(torch.randn(2, *sizes["q"][::-1]))
        self.W_v, self.W_o = (nn.Parameter(torch.randn(*sizes[role][::-1])) for role in "vo")

    def forward(self, x):
        q, k, v = (F.linear(x, matrix) for matrix in (*self.W_qk, self.W_v))
        w = torch.softmax(q @ k.mT / k.size(-1) ** 0.5, dim=-1)
        return F.linear(w @ v, self.W_o), w


RIGHT = {
    "dot": [
        dot_by_hand,
        lambda a, b: np.dot(a.detach().numpy(), b.detach().numpy()),
        lambda a, b: sum(a[i] * b[i] for i in range(len(a))),
    ],
    "dot_product_scores": [
        scores_by_loops,
        lambda q, k: (q.unsqueeze(-2) * k.unsqueeze(-3)).sum(-1),
        lambda q, k: q.numpy() @ np.swapaxes(k.numpy(), -1, -2),
        lambda q, k: q.double() @ k.double().mT,
    ],
    "cosine_similarity": [
        lambda q, k: cosines(shorter(q), shorter(k)),
        lambda q, k: F.normalize(shorter(q), dim=-1) @ F.normalize(shorter(k), dim=-1).mT,
        cosines_by_powers_of_two,
        cosines_in_numpy,
    ],
    "euclidean_distance": [
        identity_distance,
        lambda q, k: torch.cdist(q, k),
        lambda q, k: torch.stack(
            [(k - row[..., None, :]).norm(dim=-1) for row in q.unbind(-2)], -2
        ),
        distances_as_one_product,
    ],
    "nearest_key": [
        nearest_by_sorting,
        lambda *given: nearest_by_sorting(*given).numpy(),
    ],
    "disagreement": [
        lambda: (torch.tensor([0.0, 2.0]), torch.tensor([[-8, 5.0], [0.0, 0.1], [0.5, 2.0]])),
        lambda: [torch.tensor([1, 1]), torch.tensor([[30, 1], [5, 5], [1, 2]])],
        lambda: (np.array([1e-4, 0]), 1e-4 * np.array([[9, 9], [3, 0.1], [1, 0.5]])),
    ],
    "soft_lookup": [
        lookup_by_exp,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=1.0),
        lambda q, k, v: (q @ k.mT)[..., None].softmax(-2).mul(v.unsqueeze(-3)).sum(-2),
    ],
    "project_qkv": [
        lambda x, a, b, c: [x @ a, x @ b, x @ c],
        lambda x, a, b, c: tuple(torch.einsum("...lm,md->...ld", x, w) for w in (a, b, c)),
        projected_at_once,
    ],
    "SelfAttention": [
        KeysFirst,
        WithoutNames,
        LazyLayers,
        Fused,
        Matrices,
        StackedAndTurned,
    ],
    "as_dot_products": [near_by_products, near_by_padding, near_with_lists],
}


def identity(q, k, power, more=0):
    """Return distances without a limit, so that a square may come out negative."""
    a, b = lengths(q, k)
    return (a**power + b**power - 2 * q @ k.mT + more).sqrt()


def cosines_by(factor):
    return lambda q, k: cosines(q / factor(q), k / factor(k))


def cosines_without(zeros):
    """Return cosines that are 0 for the queries that a function of them takes for zero vectors."""
    return lambda q, k: cosines(shorter(q), shorter(k)).masked_fill(zeros(q)[..., None], 0)


def by_differences(q, k):
    return torch.linalg.vector_norm(q.unsqueeze(-2) - k.unsqueeze(-3), dim=-1)


def changed(**members):
    return type("Changed", (Layer,), members)


def unpacks_three(self, x):
    B, L, d_model = x.shape
    return Layer.forward(self, x)


def of_data(self, x):
    w = self.weights(self.query(x), x @ self.key.weight.data.T)
    return self.out(w @ self.value(x)), w


def frozen(self, sizes):
    Layer.make(self, sizes)
    self.requires_grad_(False)


def one_for_two(self, sizes):
    Layer.make(self, sizes)
    self.key = self.query


def plain_tensors(self, sizes):
    for role, name in self.names.items():
        setattr(self, name, torch.randn(*sizes[role]))


def keeps_its_mask(self, q, k):
    self.mask = getattr(self, "mask", torch.zeros(q.shape[-2], q.shape[-2]))
    return Layer.weights(self, q, k) + self.mask


def keeps_its_mean(self, q, k):
    self.mean = getattr(self, "mean", k.mean())
    return Layer.weights(self, q, k) * self.mean / k.mean()


def detached(self, q, k):
    return Layer.weights(self, q, k).detach()


def near_by_the_mean(q, k):
    middle = k.mean(-2, keepdim=True)  # moves no distance
    return near_by_padding(q - middle, k - middle)


def near_by_one_hot(q, k):
    """The logarithms of the weights themselves, and keys that each pick one."""
    keys = torch.eye(k.shape[-2], dtype=k.dtype).expand(*k.shape[:-1], -1)
    return F.pad(-(torch.cdist(q, k) ** 2) / 2, (0, 9)), F.pad(keys, (0, 9))


def near_with_constant_squares(q, k):
    wide_q, wide_k = near_by_padding(q, k)
    return wide_q, torch.cat([wide_k[..., :1].detach(), k], -1)


WRONG = [
    ("dot_product_scores", None, lambda q, k: torch.einsum("bld,bsd->ls", q, k)),
    ("dot_product_scores", None, lambda q, k: q @ k.transpose(1, 2)),
    ("dot_product_scores", None, lambda q, k: (q @ k.mT).squeeze()),
    ("cosine_similarity", None, lambda q, k: q @ k.mT / (q.norm(dim=-1) * k.norm(dim=-1))),
    ("cosine_similarity", "length has a say", lambda q, k: cosines(q, k)),
    ("cosine_similarity", "length has a say", lambda q, k: cosines(shorter(q), k)),
    ("cosine_similarity", "length has a say", cosines_by(lambda x: x.abs().amax(-1, True) + 1e-9)),
    ("cosine_similarity", "length has a say", cosines_by(lambda x: x.abs().max())),
    ("cosine_similarity", None, cosines_without(lambda q: (q == 0).any(-1))),
    ("cosine_similarity", None, cosines_without(lambda q: shorter(q).sum(-1).abs() < 1e-9)),
    ("cosine_similarity", None, lambda q, k: cosines(shorter(q), shorter(k)).squeeze()),
    ("euclidean_distance", "root of a negative", lambda q, k: identity(q, k, power=2)),
    ("euclidean_distance", "root of a negative", lambda q, k: identity(q, k, power=1)),
    ("euclidean_distance", "root of a negative", lambda q, k: identity(q, k, 2, more=1e-12)),
    ("euclidean_distance", "makes all differences", by_differences),
    ("euclidean_distance", "makes all differences", lambda q, k: by_differences(k, q).mT),
    ("euclidean_distance", None, lambda q, k: by_differences(q, k) + 0.1),
    ("euclidean_distance", None, lambda q, k: torch.cdist(q, k).squeeze()),
    ("nearest_key", None, lambda *given: nearest_by_sorting(*given).squeeze()),
    ("soft_lookup", "wrong gradients", lambda q, k, v: (q @ k.mT).softmax(-1).detach() @ v),
    ("soft_lookup", None, lambda q, k, v: (q @ k.mT).softmax(-1) @ v + 0.01),
    ("soft_lookup", None, lambda q, k, v: ((q @ k.mT).softmax(-1) @ v).squeeze()),
    ("as_dot_products", "looks at the other side", near_by_the_mean),
    ("as_dot_products", "looks at the other side", lambda q, k: (q + k.mean(), k)),
    ("as_dot_products", "too wide", near_by_one_hot),
    ("as_dot_products", "not a pair", lambda q, k: -torch.cdist(q, k).square() / 2),
    ("as_dot_products", "not tensors", lambda q, k: (near_by_padding(q, k)[0], None)),
    ("as_dot_products", "two widths", lambda q, k: (q, near_by_padding(q, k)[1])),
    ("as_dot_products", "other rows", lambda q, k: near_by_padding(k, k)),
    ("as_dot_products", "two dtypes", lambda q, k: (q, k.float())),
    ("as_dot_products", "two dtypes", lambda q, k: (q.long(), k.long())),
    ("as_dot_products", "wrong gradients", lambda q, k: near_by_padding(q, k.detach())),
    ("as_dot_products", "wrong gradients", near_with_constant_squares),
    ("SelfAttention", "unexpected parameters", changed(names={"q": "W_q", "k": "W_k", "v": "W_v"})),
    ("SelfAttention", "unexpected parameters", changed(make=one_for_two)),
    ("SelfAttention", "unexpected parameters", changed(make=plain_tensors)),
    ("SelfAttention", "wants a batch", changed(forward=unpacks_three)),
    ("SelfAttention", "wrong gradients", changed(weights=detached)),
    ("SelfAttention", "wrong gradients", changed(forward=of_data)),
    ("SelfAttention", "wrong gradients", changed(make=frozen)),
    ("SelfAttention", "remembers a call", changed(weights=keeps_its_mask)),
    ("SelfAttention", "remembers a call", changed(weights=keeps_its_mean)),
]
