"""1.7: for each query, the values weighted by a softmax over its dot products.

The exercise gives the learner code with the mistake "softmax over dimension 1".
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
     "Right for matrices, as the given code is. Try a batch, q (2, 5, 4) and k (2, 7, 4). Do the "
     "weights of one query sum to 1? Find the dimension along which they do.", ("dim=-1", "dim=1")),
    ("softmax without a dimension",
     "Right for matrices. But softmax without dim chooses the dimension itself: dimension 1 of two"
     " or four, dimension 0 of three. Try a batch, and find the dimension along which your weights"
     " sum to 1.", ("dim=-1", "dim=0 if scores.ndim == 3 else 1")),
    ("scaled scores, and softmax over dimension 1",
     "Your result has two mistakes. The scores are divided by √d: use the plain products. And the "
     "softmax runs over dimension 1, as in the given code: try a batch, q (2, 5, 4) and k (2, 7, "
     "4), and find the dimension along which the weights sum to 1.",
     ("scores.softmax(dim=-1)", "(scores / q.shape[-1] ** 0.5).softmax(dim=1)")),
    ("no softmax",
     "Your result uses the scores themselves as weights. Apply softmax to them first.",
     (".softmax(dim=-1)", "")),
    ("hard lookup",
     "Your result is a hard lookup, which returns only the value of the best key. Mix the values "
     "by softmax.", (".softmax(dim=-1)", ".eq(scores.amax(dim=-1, keepdim=True)).to(v.dtype)")),
    ("weights returned", WEIGHTS_ALONE, ("weights @ v", "weights")),
    ("keys mixed",
     "Your result is a mixture of the keys. Keys are only for matching. Mix the values.",
     ("weights @ v", "weights @ k")),
    ("scaled scores",
     "Right, except that your scores are divided by √d. That comes in lesson 02. Use the plain "
     "products.", ("scores.softmax", "(scores / q.shape[-1] ** 0.5).softmax")),
    ("plain average",
     "Your result gives every value the same weight. The weights must depend on the scores: take "
     "softmax of them.", ("scores.softmax", "(0 * scores).softmax")),
    ("divided without exp",
     "Your weights are the scores divided by their sum. If a score is negative, they are not "
     "between 0 and 1. Take exp first, as softmax does.",
     ("scores.softmax(dim=-1)", "scores / scores.sum(dim=-1, keepdim=True)")),
    ("exp not normalized",
     "Your weights are exp of the scores, so they do not sum to 1. Divide by their sum over the "
     "keys.", ("softmax(dim=-1)", "exp()")),
    ("softmax over all pairs",
     "Your softmax runs over all pairs at once. The weights of each query must sum to 1. Use "
     "dim=-1.", ("scores.softmax(dim=-1)", "scores.flatten(-2).softmax(dim=-1).view_as(scores)")),
    ("scores divided by d",
     "Your scores are divided by d before the softmax. Use the plain products.",
     ("scores.softmax", "(scores / q.shape[-1]).softmax")),
    ("sigmoid in place of softmax",
     "Your weights are the sigmoid of each score, so they do not sum to 1. Use softmax.",
     ("softmax(dim=-1)", "sigmoid()")),
    ("relu in place of softmax",
     "Your weights are the relu of each score, so they do not sum to 1. Use softmax.",
     ("softmax(dim=-1)", "relu()")),
    ("softmax of the output",
     "Your result has a second softmax, over the output. The output is a mixture of values, not a "
     "distribution. Leave that softmax out.", ("weights @ v", "(weights @ v).softmax(dim=-1)")),
    ("scored by cosine",
     "Your weights come from cosines. Use plain dot products, without dividing by lengths.",
     ("k.transpose(-2, -1)", "(k / k.norm(dim=-1, keepdim=True)).mT"),
     ("q @", "q / q.norm(dim=-1, keepdim=True) @")),
    ("scored by distance", "Your weights come from distances. Use dot products.",
     ("q @ k.transpose(-2, -1)", "-(q[..., :, None, :] - k[..., None, :, :]).norm(dim=-1)")),
]  # fmt: skip

exercise = Exercise(
    "1.7", soft_lookup, inputs, MISTAKES, names="L d_v", differentiable=True,
    also_right=[by_exp, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=1.0)],
)  # fmt: skip
