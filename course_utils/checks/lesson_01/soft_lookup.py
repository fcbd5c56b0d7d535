"""1.7: each query's mixture of the values, weighed by softmax over its dot products.

The learner is given the mistake "softmax over dimension 1", to find it.
"""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals, queries_and_keys
from course_utils.checks.shared_hints import (
    OVER_QUERIES,
    OVER_THE_FIRST,
    WEIGHTS_ALONE,
)


def soft_lookup(q, k, v):
    scores = q @ k.transpose(-2, -1)  # (..., L, d) @ (..., d, S) -> (..., L, S)
    weights = scores.softmax(dim=-1)  # (..., L, S), rows sum to 1
    return weights @ v  # (..., L, S) @ (..., S, d_v) -> (..., L, d_v)


def by_exp(q, k, v):
    e = torch.exp(q @ k.mT)
    return (e @ v) / e.sum(-1, keepdim=True)


def inputs():
    normal = normals(7)
    pairs = [
        *queries_and_keys(seed=6),
        (normal(12, 10), normal(11, 10)),
        (normal(3, 3), normal(3, 3)),
    ]
    triples = [(q, k, normal(*k.shape[:-1], k.shape[-1] - 1, dtype=k.dtype)) for q, k in pairs]
    return [*triples, (normal(2, 3, 4), normal(2, 5, 4), normal(2, 6, 5).mT)]


MISTAKES = [
    ("softmax over queries", OVER_QUERIES, ("dim=-1", "dim=-2")),
    ("softmax over the first dimension", OVER_THE_FIRST, ("dim=-1", "dim=0")),
    ("softmax over dimension 1",
     "right for matrices, as the code given is; try a batch, q (2, 5, 4), k (2, 7, 4): add up the "
     "weights of one query, then look along which dimension they do sum to 1",
     ("dim=-1", "dim=1")),
    ("softmax without a dimension",
     "right for matrices; but softmax without dim chooses for itself, dimension 1 of two or four, "
     "0 of three: try a batch, and look along which dimension the weights of one query sum to 1",
     ("dim=-1", "dim=0 if scores.ndim == 3 else 1")),
    ("scaled scores, and softmax over dimension 1",
     "two things: the scores are divided by √d, where plain products are asked; and softmax runs "
     "over dimension 1, as in the code given: try a batch, q (2, 5, 4), k (2, 7, 4), and look "
     "along which dimension the weights of one query sum to 1",
     ("scores.softmax(dim=-1)", "(scores / q.shape[-1] ** 0.5).softmax(dim=1)")),
    ("no softmax", "the scores are used as they are: turn them into weights with softmax first",
     (".softmax(dim=-1)", "")),
    ("hard lookup",
     "that is a hard lookup, the best key's value alone; a soft one mixes by softmax",
     (".softmax(dim=-1)", ".eq(scores.amax(dim=-1, keepdim=True)).to(v.dtype)")),
    ("weights returned", WEIGHTS_ALONE, ("weights @ v", "weights")),
    ("keys mixed",
     "the keys are mixed in place of the values: keys are matched, values handed over",
     ("weights @ v", "weights @ k")),
    ("scaled scores",
     "right, but for scores divided by √d: that comes in lesson 02, here plain products",
     ("scores.softmax", "(scores / q.shape[-1] ** 0.5).softmax")),
    ("plain average", "every value has the same weight, whatever the query asks",
     ("scores.softmax", "(0 * scores).softmax")),
    ("divided without exp",
     "scores divided by their sum are no weights: with negative scores they leave 0..1; exp comes "
     "first, as in softmax",
     ("scores.softmax(dim=-1)", "scores / scores.sum(dim=-1, keepdim=True)")),
    ("exp not normalised",
     "exp is there, but the weights do not sum to 1: divide by their sum over the keys",
     ("softmax(dim=-1)", "exp()")),
    ("softmax over all pairs",
     "softmax runs over all pairs at once: every query needs weights of its own, dim=-1",
     ("scores.softmax(dim=-1)", "scores.flatten(-2).softmax(dim=-1).view_as(scores)")),
    ("scores divided by d",
     "scores are divided by d before the softmax; here plain products are asked",
     ("scores.softmax", "(scores / q.shape[-1]).softmax")),
    ("sigmoid in place of softmax",
     "sigmoid makes each weight on its own, so they do not sum to 1; softmax shares 1 among keys",
     ("softmax(dim=-1)", "sigmoid()")),
    ("relu in place of softmax",
     "relu drops negative scores and does not make weights that sum to 1; use softmax",
     ("softmax(dim=-1)", "relu()")),
    ("softmax of the output",
     "softmax once too often: the output is a mixture of values, not a distribution",
     ("weights @ v", "(weights @ v).softmax(dim=-1)")),
    ("scored by cosine", "the weights come from cosines; plain dot products are asked, undivided",
     ("k.transpose(-2, -1)", "(k / k.norm(dim=-1, keepdim=True)).mT"),
     ("q @", "q / q.norm(dim=-1, keepdim=True) @")),
    ("scored by distance", "the weights come from distances; dot products are asked",
     ("q @ k.transpose(-2, -1)", "-(q[..., :, None, :] - k[..., None, :, :]).norm(dim=-1)")),
]  # fmt: skip

exercise = Exercise(
    "1.7", soft_lookup, inputs, MISTAKES, names="L d_v", differentiable=True,
    also_right=[by_exp, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=1.0)],
)  # fmt: skip
