"""2.3: every query with every key, divided by √d_k.

Learners are given the mistake "by d k and by 2" and must find it.
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
        (normal(1, 4), normal(5, 4)),  # one query, several keys
        (normal(3, 64), normal(9, 64)),
        (100 * normal(12, 9), 100 * normal(50, 9)),  # scores at 20,000
        (normal(3, 2, 16, dtype=torch.float32), normal(3, 2, 16, dtype=torch.float32)),
        (normal(1, 1, 1), normal(1, 2, 1)),
    ]


MISTAKES = [
    ("not divided by root d k", NOT_SCALED, ("products / d_k**0.5", "products")),
    ("divided by d k", DIVIDED_BY_D_K, ("**0.5", "")),
    ("by d k and by 2",
     "Your scores are divided by 2 d_k, as in the code above. In x / d_k**1 / 2, Python computes "
     "the power first, and then divides twice, by d_k and by 2. Divide by d_k**0.5, which is "
     "√d_k.",
     ("0.5", "1 / 2")),
    ("by half of d k", HALF_OF_D_K, ("d_k**0.5", "(d_k**1 / 2)")),
    ("multiplied by root d k", MULTIPLIED, ("products /", "products *")),
    ("divided by root of keys",
     "Your scores are divided by √S, where S is the number of keys. Divide by √d_k, where d_k is "
     "the width, the size of the last dimension.",
     ("q.shape[-1]", "k.shape[-2]")),
    ("divided by root of queries",
     "Your scores are divided by √L, where L is the number of queries. Divide by √d_k, where "
     "d_k is the width, the size of the last dimension.",
     ("q.shape[-1]", "q.shape[-2]")),
    ("width from dimension 1",
     "Right for matrices, but not with leading dimensions. There, dimension 1 is not the width, "
     "which is always the last dimension. Use q.shape[-1].",
     ("q.shape[-1]", "q.shape[1]")),
    ("leading dimensions reversed",
     "Right for matrices, but not with leading dimensions. There, k.T, for example, reverses "
     "all dimensions. Swap only the last two, with k.transpose(-2, -1).",
     ("k.transpose(-2, -1)", "k.permute(*reversed(range(k.ndim)))")),
    ("keys reshaped",
     "Your result is what you get if k is reshaped to (d_k, S) instead of transposed. A reshape "
     "keeps the numbers in their order, so it mixes the keys. Swap the last two dimensions, "
     "with k.transpose(-2, -1).",
     ("k.transpose(-2, -1)", "k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])")),
    ("dimensions counted from the front",
     "Right for three dimensions only. If you use transpose(1, 2), it always swaps dimensions 1 "
     "and 2, but there may be any number of leading dimensions. Swap the last two dimensions, "
     "with k.transpose(-2, -1).",
     ("transpose(-2, -1)", "transpose(1, 2)")),
    ("weights in place of scores", WEIGHTS_TOO_EARLY,
     ("products / d_k**0.5", "(products / d_k**0.5).softmax(dim=-1)")),
    ("rows are keys", TRANSPOSED,
     ("products / d_k**0.5", "products.transpose(-2, -1) / d_k**0.5")),
    ("width of 64 assumed",
     "Your scores are divided by 8, which is √64. The width is not always 64, so take it from q.",
     ("d_k**0.5", "8")),
    ("cosines in place of scores",
     "In your result, each product is divided by the lengths of its two vectors, so it is a "
     "cosine. Divide all products by the same number, √d_k.",
     ("d_k**0.5", "q.norm(dim=-1)[..., :, None] / k.norm(dim=-1)[..., None, :]")),
    ("divided by measured std",
     "Your scores are divided by their own standard deviation. This makes each score depend on "
     "all other queries and keys. Divide by √d_k, which depends on none of them.",
     ("d_k**0.5", "products.std()")),
]  # fmt: skip

exercise = Exercise(
    "2.3", scaled_scores, inputs, MISTAKES, names="L S", differentiable=True,
    also_right=[with_q_scaled_in_loops,
                lambda q, k: torch.einsum("...ld,...sd->...ls", q, k) / k.shape[-1] ** 0.5],
)  # fmt: skip
