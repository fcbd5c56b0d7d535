"""2.3: every query with every key, divided by √d_k.

The learner is given the mistake "by d k and by 2", to find it.
"""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals, queries_and_keys
from course_utils.checks.shared_hints import (
    DIVIDED_BY_D_K,
    HALF_OF_D_K,
    MULTIPLIED,
    NOT_SCALED,
    TRANSPOSED,
    WEIGHTS_TOO_EARLY,
)


def scaled_scores(q, k):
    d_k = q.shape[-1]
    products = q @ k.transpose(-2, -1)  # (..., L, d_k) @ (..., d_k, S) -> (..., L, S)
    return products / d_k**0.5


def with_q_scaled_in_loops(q, k):
    if q.ndim > 2:
        return torch.stack([with_q_scaled_in_loops(a, b) for a, b in zip(q, k, strict=True)])
    return torch.stack([torch.stack([x / len(x) ** 0.5 @ y for y in k]) for x in q])


def inputs():
    normal = normals(32)
    return [
        *queries_and_keys(seed=23),
        (normal(3, 64), normal(9, 64)),
        (100 * normal(12, 9), 100 * normal(50, 9)),  # scores at 20,000
        (normal(3, 2, 16, dtype=torch.float32), normal(3, 2, 16, dtype=torch.float32)),
        (normal(1, 1, 1), normal(1, 2, 1)),
    ]


MISTAKES = [
    ("not divided by root d k", NOT_SCALED, ("products / d_k**0.5", "products")),
    ("divided by d k", DIVIDED_BY_D_K, ("**0.5", "")),
    ("by d k and by 2",
     "as in the code given, its standard deviation falls with the width: 0.25, 0.06, 0.02 are "
     "√d_k / (2 d_k). In x / d_k**1 / 2, what is done first, what next?",
     ("0.5", "1 / 2")),
    ("by half of d k", HALF_OF_D_K, ("d_k**0.5", "(d_k**1 / 2)")),
    ("multiplied by root d k", MULTIPLIED, ("products /", "products *")),
    ("divided by root of keys",
     "divided by √S, from the number of keys; it is the width, the last dimension, that counts",
     ("q.shape[-1]", "k.shape[-2]")),
    ("divided by root of queries",
     "divided by √L, from the number of queries; it is the width, the last dimension, that counts",
     ("q.shape[-1]", "q.shape[-2]")),
    ("width from dimension 1",
     "right for matrices; with leading dimensions the width is not dimension 1: q.shape[-1]",
     ("q.shape[-1]", "q.shape[1]")),
    ("leading dimensions turned",
     "right for matrices; with leading dimensions .T turns all of them around: .transpose(-2, -1)",
     ("k.transpose(-2, -1)", "k.permute(*reversed(range(k.ndim)))")),
    ("dimensions counted from the front",
     "transpose(1, 2) names the last two dimensions only if there are three; leading dimensions "
     "are free, so count from the end: .transpose(-2, -1)",
     ("transpose(-2, -1)", "transpose(1, 2)")),
    ("weights in place of scores", WEIGHTS_TOO_EARLY,
     ("products / d_k**0.5", "(products / d_k**0.5).softmax(dim=-1)")),
    ("rows are keys", TRANSPOSED,
     ("products / d_k**0.5", "products.transpose(-2, -1) / d_k**0.5")),
    ("width of 64 assumed", "divided by 8, which is √64: take the width from q, it differs here",
     ("d_k**0.5", "8")),
    ("cosines in place of scores",
     "divided by the lengths of the vectors: that is the cosine, here every score has one divisor",
     ("d_k**0.5", "q.norm(dim=-1)[..., :, None] / k.norm(dim=-1)[..., None, :]")),
    ("divided by measured std",
     "divided by their own standard deviation: then a score depends on the other queries and keys; "
     "√d_k is fixed", ("d_k**0.5", "products.std()")),
]  # fmt: skip

exercise = Exercise(
    "2.3", scaled_scores, inputs, MISTAKES, names="L S", differentiable=True,
    also_right=[with_q_scaled_in_loops,
                lambda q, k: torch.einsum("...ld,...sd->...ls", q, k) / k.shape[-1] ** 0.5],
)  # fmt: skip
