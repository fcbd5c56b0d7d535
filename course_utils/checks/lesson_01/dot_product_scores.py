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
     "k is not transposed: q @ k would pair the width d of q with the number S of keys",
     ("q @ columns", "q @ k")),
    ("entry by entry", "q * k multiplies entry by entry; every query must meet every key",
     "q * k"),
    ("all dimensions turned",
     "Your scores are right for matrices, but not with leading dimensions such as a batch. Only "
     "the last two dimensions of k may be exchanged. Write k.transpose(-2, -1).",
     ("k.transpose(-2, -1)", "k.permute(*reversed(range(k.ndim)))")),
    ("three letters in einsum",
     "right for three dimensions alone; there may be two, three or four: @ and .transpose(-2, -1) "
     "take any number, and so does einsum with `...` for the leading ones",
     "torch.einsum('bld,bsd->bls', q, k)"),
    ("divided by root d",
     "Your scores are divided by √d. Return the plain dot products; the scale comes in lesson 02.",
     ("q @ columns", "q @ columns / q.shape[-1] ** 0.5")),
    ("mean in place of sum", "right products, but divided by d: a mean where a sum is asked",
     ("q @ columns", "q @ columns / q.shape[-1]")),
    ("softmax applied", WEIGHTS_TOO_EARLY, "(q @ k.mT).softmax(dim=-1)"),
    ("cosine", "that is the cosine: right products, but divided by the lengths",
     ("k.transpose(-2, -1)", "k.div(k.norm(dim=-1, keepdim=True)).mT"),
     ("q @ columns", "q / q.norm(dim=-1, keepdim=True) @ columns")),
    ("mixes batch items",
     "right for a single matrix, but it mixes different batch items: leading dimensions must stay "
     "apart", "q @ k.flatten(0, -2).T"),
    ("queries with queries", "queries are compared with queries: the second factor should be k",
     ("k.transpose", "q.transpose")),
    ("keys with keys", "keys are compared with keys: the first factor should be q",
     ("q @ columns", "k @ columns")),
    ("reshaped not transposed",
     "right shape, wrong numbers: reshape and view re-read the entries of k in order, they do not "
     "exchange rows and columns; use .transpose(-2, -1)",
     ("k.transpose(-2, -1)", "k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])")),
    ("absolute scores", LOST_SIGN, ("q @ columns", "(q @ columns).abs()")),
]  # fmt: skip

exercise = Exercise(
    "1.2", dot_product_scores, inputs, MISTAKES, names="L S",
    also_right=[by_loops, lambda q, k: q.numpy() @ np.swapaxes(k.numpy(), -1, -2)],
)  # fmt: skip
