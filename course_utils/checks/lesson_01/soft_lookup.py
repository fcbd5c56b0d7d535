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
    ("log-softmax",
     "Your result uses the logarithms of the weights. Multiply the values by the weights "
     "themselves, which softmax gives.",
     ("scores.softmax(", "scores.log_softmax(")),
    ("softmax over queries", OVER_QUERIES, ("dim=-1", "dim=-2")),
    ("softmax over the first dimension", OVER_THE_FIRST, ("dim=-1", "dim=0")),
    ("softmax over dimension 1",
     "Your result is correct for matrices, but not for a batch, as with the given code. Try q "
     "of shape (2, 5, 4) and k of shape (2, 7, 4). Find the dimension along which the weights "
     "of one query must sum to 1, and run the softmax along it.",
     ("dim=-1", "dim=1")),
    ("softmax without a dimension",
     "Your result is correct for matrices. With three dimensions, your softmax runs along "
     "dimension 0, and with four along dimension 1. F.softmax does this if you leave out dim. "
     "Find the dimension along which the weights of one query must sum to 1, and pass it as "
     "dim.",
     ("dim=-1", "dim=0 if scores.ndim == 3 else 1")),
    ("scaled scores, and softmax over dimension 1",
     "There are two mistakes. First, your scores are divided by √d. Use the plain dot products. "
     "Second, your softmax runs along dimension 1, as in the given code. Try q of shape (2, 5, "
     "4) and k of shape (2, 7, 4). Find the dimension along which the weights of one query must "
     "sum to 1, and run the softmax along it.",
     ("scores.softmax(dim=-1)", "(scores / q.shape[-1] ** 0.5).softmax(dim=1)")),
    ("no softmax",
     "You use the scores themselves as weights. Apply softmax to the scores first.",
     (".softmax(dim=-1)", "")),
    ("hard lookup",
     "Your result is a hard lookup, which returns only the value of the best key. Mix all values "
     "with softmax weights.",
     (".softmax(dim=-1)", ".eq(scores.amax(dim=-1, keepdim=True)).to(v.dtype)")),
    ("weights returned", WEIGHTS_ALONE, ("weights @ v", "weights")),
    ("keys mixed",
     "Your result is a mixture of the keys. Keys are only for matching. Mix the values v.",
     ("weights @ v", "weights @ k")),
    ("scaled scores",
     "Your scores are divided by √d. Scaling comes in lesson 02. Use the plain dot products as "
     "scores.",
     ("scores.softmax", "(scores / q.shape[-1] ** 0.5).softmax")),
    ("plain average",
     "You give every value the same weight. The weights must depend on the scores. Take the "
     "softmax of the scores.", ("scores.softmax", "(0 * scores).softmax")),
    ("divided without exp",
     "Your weights are the scores divided by their sum. If scores have different signs, some of "
     "these weights are negative. Use softmax, which takes exp of the scores first.",
     ("scores.softmax(dim=-1)", "scores / scores.sum(dim=-1, keepdim=True)")),
    ("exp not normalized",
     "Your weights are exp of the scores, so they do not sum to 1. Divide the weights of "
     "each query by their sum over the keys.", ("softmax(dim=-1)", "exp()")),
    ("softmax over all pairs",
     "Your softmax runs over all pairs of queries and keys at once. The weights of each query "
     "must sum to 1. Use softmax along the last dimension of the scores (..., L, S), without "
     "flattening them first.",
     ("scores.softmax(dim=-1)", "scores.flatten(-2).softmax(dim=-1).view_as(scores)")),
    ("scores divided by d",
     "Your scores are divided by d before the softmax. Do not scale them. Use the plain dot "
     "products as scores.",
     ("scores.softmax", "(scores / q.shape[-1]).softmax")),
    ("sigmoid in place of softmax",
     "Your weights are the sigmoid of each score, so they do not sum to 1. Use softmax.",
     ("softmax(dim=-1)", "sigmoid()")),
    ("relu in place of softmax",
     "Your weights are the relu of each score, so they do not sum to 1. Use softmax.",
     ("softmax(dim=-1)", "relu()")),
    ("softmax of the output",
     "Your result is the softmax of the correct output. The output is a mixture of values, not a "
     "distribution. Leave out this second softmax.",
     ("weights @ v", "(weights @ v).softmax(dim=-1)")),
    ("scored by cosine",
     "Your weights come from cosines. Use the plain dot products, without dividing by the "
     "lengths.",
     ("k.transpose(-2, -1)", "(k / k.norm(dim=-1, keepdim=True)).mT"),
     ("q @", "q / q.norm(dim=-1, keepdim=True) @")),
    ("scored by distance", "Your weights come from distances. Use dot products as scores.",
     ("q @ k.transpose(-2, -1)", "-(q[..., :, None, :] - k[..., None, :, :]).norm(dim=-1)")),
    ("softmax twice",
     "Your weights went through softmax twice. After the first softmax, they already sum to 1. "
     "Leave out the second.", ("softmax(dim=-1)", "softmax(dim=-1).softmax(dim=-1)")),
    ("keys and values swapped",
     "Your code multiplies q by v, and it fails because their widths differ. Compare q with k, "
     "and mix the values v.",
     ("k.transpose(-2, -1)", "v.transpose(-2, -1)"), ("weights @ v", "weights @ k")),
    ("later keys masked",
     "In your result, query i attends only to the keys at positions 0 to i. In this lookup, every "
     "query must attend to every key. Use no mask.",
     ("scores.softmax",
      "(scores + torch.full_like(scores, -torch.inf).triu(1)).softmax")),
    ("last key left out",
     "Your result leaves out the last key and its value. Every query must attend to all S keys. "
     "If you use [..., :-1, :], remove it.",
     ("k.transpose(-2, -1)", "k[..., :-1, :].mT"),
     ("weights @ v", "weights @ v[..., :-1, :]")),
]  # fmt: skip

exercise = Exercise(
    "1.7", soft_lookup, inputs, MISTAKES, names="L d_v", differentiable=True,
    also_right=[by_exp, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=1.0)],
)  # fmt: skip
