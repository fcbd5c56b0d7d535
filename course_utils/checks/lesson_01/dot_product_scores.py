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


def loops_of_the_lesson(q, k):
    scores = torch.empty(len(q), len(k))
    for i in range(len(q)):
        for j in range(len(k)):
            scores[i, j] = (q[i] * k[j]).sum()
    return scores


def inputs():
    normal = normals(12)
    return [
        *queries_and_keys(),
        (normal(12, 10, dtype=torch.float32), normal(9, 10, dtype=torch.float32)),
        (normal(3, 3), normal(3, 3)),  # L = S = d: any product fits
        (normal(2, 3, 4), normal(2, 3, 4)),  # L = S in a batch: loops over it run
        (normal(3, 3, 3), normal(3, 3, 3)),  # and so does k.T
    ]


MISTAKES = [
    ("transposed", TRANSPOSED, ("return q @ columns", "return (q @ columns).mT")),
    ("key not transposed",
     "Your result multiplies q by k as it is. That pairs the width d of q with the number S of "
     "keys. Transpose k first.", ("q @ columns", "q @ k")),
    ("entry by entry",
     "Your result multiplies q and k entry by entry. Compare every query with every key: use a "
     "matrix product.", "q * k"),
    ("loops over the first dimensions",
     "Your result is correct for matrices, but not with leading dimensions. You get this result if "
     "you loop over len(q) and len(k), as the lesson does. Loop over q.shape[-2] and k.shape[-2], "
     "and use q[..., i, :] and k[..., j, :].", loops_of_the_lesson),
    ("all dimensions reversed",
     "Your scores are correct for matrices, but not with leading dimensions such as a batch. You "
     "get this result if you use .T, which reverses all dimensions. Swap only the last two: "
     "k.transpose(-2, -1).", ("k.transpose(-2, -1)", "k.permute(*reversed(range(k.ndim)))")),
    ("two letters in einsum",
     "Your scores are correct for matrices, but your code fails with leading dimensions such as a "
     "batch. If you use einsum, write '...ld,...sd->...ls'. If you use @, write it with "
     "k.transpose(-2, -1).", "torch.einsum('ld,sd->ls', q, k)"),
    ("three letters in einsum",
     "Your result is correct for three dimensions, but there may also be two or four. Use @ and "
     ".transpose(-2, -1), or write `...` for the leading dimensions in einsum.",
     "torch.einsum('bld,bsd->bls', q, k)"),
    ("divided by root d",
     "Your scores are divided by √d. Scaling comes in lesson 02. Return the plain dot products.",
     ("q @ columns", "q @ columns / q.shape[-1] ** 0.5")),
    ("mean in place of sum",
     "Your scores are divided by d, so each is a mean of products. Return the sum of the products.",
     ("q @ columns", "q @ columns / q.shape[-1]")),
    ("softmax applied", WEIGHTS_TOO_EARLY, "(q @ k.mT).softmax(dim=-1)"),
    ("cosine",
     "Your result is the cosine, a product divided by two lengths. Do not divide by the lengths.",
     ("k.transpose(-2, -1)", "k.div(k.norm(dim=-1, keepdim=True)).mT"),
     ("q @ columns", "q / q.norm(dim=-1, keepdim=True) @ columns")),
    ("mixes batch items",
     "Your result is correct for matrices. In a batch, it also compares queries with the keys of "
     "other batch items. Keep the leading dimensions of k, and use q @ k.transpose(-2, -1).",
     "q @ k.flatten(0, -2).T"),
    ("queries with queries",
     "Your result compares queries with queries. Use k as the second factor.",
     ("k.transpose", "q.transpose")),
    ("keys with keys", "Your result compares keys with keys. Use q as the first factor.",
     ("q @ columns", "k @ columns")),
    ("reshaped not transposed",
     "Your result has the correct shape, but wrong numbers. You get this result if you use "
     "reshape or view on k: they do not swap rows and columns. Use .transpose(-2, -1).",
     ("k.transpose(-2, -1)", "k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])")),
    ("absolute scores", LOST_SIGN, ("q @ columns", "(q @ columns).abs()")),
]  # fmt: skip

exercise = Exercise(
    "1.2", dot_product_scores, inputs, MISTAKES, names="L S",
    also_right=[by_loops, lambda q, k: q.numpy() @ np.swapaxes(k.numpy(), -1, -2)],
)  # fmt: skip
