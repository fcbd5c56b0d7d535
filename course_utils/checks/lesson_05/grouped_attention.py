"""5.7: H query heads share H_kv heads of keys and values."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.wordings import BY_D_V, NOT_SCALED, OVER_QUERIES, SCALED_TWICE


def grouped_attention(q, k, v):
    d_k, group = q.shape[-1], q.shape[1] // k.shape[1]
    k = k.repeat_interleave(group, dim=1)  # (B, H_kv, S, d_k) -> (B, H, S, d_k)
    v = v.repeat_interleave(group, dim=1)  # (B, H_kv, S, d_v) -> (B, H, S, d_v)
    scores = q @ k.mT / d_k**0.5  # (B, H, L, d_k) @ (B, H, d_k, S) -> (B, H, L, S)
    weights = scores.softmax(dim=-1)
    return weights @ v, weights


def inputs():
    normal = normals(57)

    def probe(B, H, H_kv, L, S, d_k, d_v, dtype=torch.float64):
        shapes = (B, H, L, d_k), (B, H_kv, S, d_k), (B, H_kv, S, d_v)
        return tuple(normal(*shape, dtype=dtype) for shape in shapes)

    return [
        probe(2, 6, 2, 4, 5, 3, 2),
        probe(3, 4, 1, 5, 4, 2, 3),
        probe(1, 6, 3, 3, 7, 4, 5, dtype=torch.float32),
        probe(2, 3, 3, 4, 5, 2, 4),
        probe(1, 12, 4, 1, 1, 3, 2),
        tuple(each.transpose(1, 2) for each in probe(2, 5, 3, 8, 2, 4, 6)),  # as split_heads gives
    ]


TURNED = "as repeat_interleave does and repeat does not"
TOKENS_REPEATED = "tokens are repeated in place of heads: dim=1 is the heads', dim=2 the tokens'"
EACH_REPEATED = "repeat each key head H / H_kv times along the heads, dim=1"
SAME_WAY = "spread both the same way"

MISTAKES = [
    ("key heads take turns",
     f"the key heads take turns, 0 1 0 1: neighbouring query heads share one, 0 0 1 1, {TURNED}",
     ("k.repeat_interleave(group, dim=1)", "k.repeat(1, group, 1, 1)"),
     ("v.repeat_interleave(group, dim=1)", "v.repeat(1, group, 1, 1)")),
    ("first key head for all",
     "all query heads use the first key head; that is right only if there is one",
     ("k.repeat_interleave(group, dim=1)", "k[:, :1]"),
     ("v.repeat_interleave(group, dim=1)", "v[:, :1]")),
    ("key heads averaged", "the key heads are averaged; each group keeps its own",
     ("k.repeat_interleave(group, dim=1)", "k.mean(dim=1, keepdim=True)"),
     ("v.repeat_interleave(group, dim=1)", "v.mean(dim=1, keepdim=True)")),
    ("queries averaged",
     "the queries of a group are averaged: all H query heads stay, keys are shared",
     ("k.repeat_interleave(group, dim=1)", "k"), ("v.repeat_interleave(group, dim=1)", "v"),
     ("q @ k.mT", "q.unflatten(1, (-1, group)).mean(dim=2) @ k.mT")),
    ("values take turns", f"the keys are spread rightly, the values take turns: {SAME_WAY}",
     ("v.repeat_interleave(group, dim=1)", "v.repeat(1, group, 1, 1)")),
    ("keys take turns", f"the values are spread rightly, the keys take turns: {SAME_WAY}",
     ("k.repeat_interleave(group, dim=1)", "k.repeat(1, group, 1, 1)")),
    ("grouped output alone", "right output, but the weights are missing: return both",
     ("weights @ v, weights", "weights @ v")),
    ("grouped not scaled", NOT_SCALED, (" / d_k**0.5", "")),
    ("grouped weights first", "output and weights stand in the wrong order: output first",
     ("weights @ v, weights", "weights, weights @ v")),
    ("grouped scaled twice", SCALED_TWICE, (" / d_k**0.5", " / d_k")),
    ("key heads not repeated", f"right if H_kv is 1 or H, an error otherwise: {EACH_REPEATED}",
     ("k.repeat_interleave(group, dim=1)", "k"), ("v.repeat_interleave(group, dim=1)", "v")),
    ("repeated H_kv times", f"right if H_kv is 1, an error otherwise: {EACH_REPEATED}",
     ("k.repeat_interleave(group, dim=1)", "k.repeat_interleave(k.shape[1], dim=1)"),
     ("v.repeat_interleave(group, dim=1)", "v.repeat_interleave(v.shape[1], dim=1)")),
    ("batch repeated", f"right if H_kv is H, an error otherwise: {EACH_REPEATED}",
     ("k.repeat_interleave(group, dim=1)", "k.repeat_interleave(group, dim=0)"),
     ("v.repeat_interleave(group, dim=1)", "v.repeat_interleave(group, dim=0)")),
    ("divided by root of the group", "divided by √(d_k · H / H_kv): keys are as wide as before, "
     "however many share them, so √d_k", ("d_k**0.5", "(d_k * group) ** 0.5")),
    ("divided by root d_v", BY_D_V, ("d_k**0.5", "v.shape[-1]**0.5")),
    ("softmax over the queries", OVER_QUERIES, ("dim=-1", "dim=-2")),
    ("causal", "keys after the query's own place are left out, but no mask is asked",
     ("scores.softmax", "scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -torch.inf)"
      ".softmax")),
    ("tokens repeated alone", TOKENS_REPEATED,
     ("k.repeat_interleave(group, dim=1)", "k.repeat_interleave(group, dim=2)"),
     ("v.repeat_interleave(group, dim=1)", "v.repeat_interleave(group, dim=2)")),
    ("tokens repeated", TOKENS_REPEATED,
     ("scores = q", "k, v = (x.repeat_interleave(group, dim=2) for x in (k, v))\n    scores = q")),
]  # fmt: skip

exercise = Exercise(
    "5.7",
    grouped_attention,
    inputs,
    MISTAKES,
    names="H L d_v|H L S",
    differentiable=True,
)
