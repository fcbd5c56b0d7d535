"""1.2: the dot products of every query with every key."""

import numpy as np
import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals, queries_and_keys
from course_utils.checks.shared_hints import LOST_SIGN, TRANSPOSED, WEIGHTS_TOO_EARLY


def dot_product_scores(q, k):
    columns = k.transpose(-2, -1)  # (..., S, d) -> (..., d, S)
    return q @ columns  # (..., L, d) @ (..., d, S) -> (..., L, S)


def by_loops(q, k):
    if q.ndim > 2:
        return torch.stack([by_loops(a, b) for a, b in zip(q, k, strict=True)])
    out = torch.zeros(len(q), len(k), dtype=q.dtype)
    for i in range(len(q)):
        for j in range(len(k)):
            out[i, j] = torch.dot(q[i], k[j])
    return out


def inputs():
    normal = normals(12)
    return [
        *queries_and_keys(),
        (normal(12, 10, dtype=torch.float32), normal(9, 10, dtype=torch.float32)),
        (normal(3, 3), normal(3, 3)),  # L = S = d: any product fits
    ]


MISTAKES = [
    ("transposed", TRANSPOSED, ("return q @ columns", "return (q @ columns).mT")),
    ("key not transposed",
     "Your result multiplies q by k as it is. That pairs the width d of q with the number S of "
     "keys. Transpose k first.", ("q @ columns", "q @ k")),
    ("entry by entry",
     "Your result multiplies q and k entry by entry. Compare every query with every key: use a "
     "matrix product.", "q * k"),
    ("all dimensions reversed",
     "Your scores are right for matrices, but not with leading dimensions such as a batch. Swap "
     "only the last two dimensions of k: k.transpose(-2, -1).",
     ("k.transpose(-2, -1)", "k.permute(*reversed(range(k.ndim)))")),
    ("three letters in einsum",
     "Right for three dimensions, but there may also be two or four. Use @ and .transpose(-2, -1),"
     " or write `...` for the leading dimensions in einsum.", "torch.einsum('bld,bsd->bls', q, k)"),
    ("divided by root d",
     "Your scores are divided by √d. Return the plain dot products; the scale comes in lesson 02.",
     ("q @ columns", "q @ columns / q.shape[-1] ** 0.5")),
    ("mean in place of sum",
     "Your scores are divided by d, so each is a mean of products. Return their sum.",
     ("q @ columns", "q @ columns / q.shape[-1]")),
    ("softmax applied", WEIGHTS_TOO_EARLY, "(q @ k.mT).softmax(dim=-1)"),
    ("cosine",
     "Your result is the cosine: the right products, divided by the lengths. Return the products.",
     ("k.transpose(-2, -1)", "k.div(k.norm(dim=-1, keepdim=True)).mT"),
     ("q @ columns", "q / q.norm(dim=-1, keepdim=True) @ columns")),
    ("mixes batch items",
     "Right for a single matrix, but your result compares queries with the keys of other batch "
     "items. Keep the leading dimensions apart.", "q @ k.flatten(0, -2).T"),
    ("queries with queries",
     "Your result compares queries with queries. Use k as the second factor.",
     ("k.transpose", "q.transpose")),
    ("keys with keys", "Your result compares keys with keys. Use q as the first factor.",
     ("q @ columns", "k @ columns")),
    ("reshaped not transposed",
     "The shape is right, but the numbers are wrong. If you used reshape or view on k, they keep "
     "the order of its entries and do not swap rows and columns. Use .transpose(-2, -1).",
     ("k.transpose(-2, -1)", "k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])")),
    ("absolute scores", LOST_SIGN, ("q @ columns", "(q @ columns).abs()")),
]  # fmt: skip

exercise = Exercise(
    "1.2", dot_product_scores, inputs, MISTAKES, names="L S",
    also_right=[by_loops, lambda q, k: q.numpy() @ np.swapaxes(k.numpy(), -1, -2)],
)  # fmt: skip
