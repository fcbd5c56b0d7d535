"""1.2: the dot products of every query with every key."""

import numpy as np
import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals, queries_and_keys
from course_utils.checks.shared_hints import TRANSPOSED, WEIGHTS_TOO_EARLY


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
     "Your code multiplies q by k without a transpose. In q @ k, each row of q is multiplied by "
     "the columns of k, but the keys are the rows of k. Write q @ k.transpose(-2, -1).",
     ("q @ columns", "q @ k")),
    ("entry by entry",
     "Your code multiplies q and k entry by entry. That pairs row i of q only with row i of k, "
     "and it does not add up the products. Use a matrix product: q @ k.transpose(-2, -1).",
     "q * k"),
    ("loops over the first dimensions",
     "Your result is correct for matrices, but not with leading dimensions. You get this result if "
     "you loop over range(len(q)) and range(len(k)), as the lesson does. Loop over "
     "range(q.shape[-2]) and range(k.shape[-2]), and use q[..., i, :] and k[..., j, :].",
     loops_of_the_lesson),
    ("all dimensions reversed",
     "Your scores are correct for matrices. With leading dimensions such as a batch, they are "
     "wrong or your code fails. This happens if you use .T, which reverses all dimensions. Swap "
     "only the last two: k.transpose(-2, -1).",
     ("k.transpose(-2, -1)", "k.permute(*reversed(range(k.ndim)))")),
    ("two letters in einsum",
     "Your scores are correct for matrices, but your code fails with leading dimensions such as a "
     "batch. If you use einsum, write '...ld,...sd->...ls'. If you use @, write it with "
     "k.transpose(-2, -1).", "torch.einsum('ld,sd->ls', q, k)"),
    ("three letters in einsum",
     "Your result is correct for three dimensions, but your code fails for two and for four. If "
     "you use einsum, write '...ld,...sd->...ls'. If you use @, write it with k.transpose(-2, "
     "-1).",
     "torch.einsum('bld,bsd->bls', q, k)"),
    ("divided by root d",
     "Your scores are divided by √d. Scaling comes in lesson 02. Return the plain dot products.",
     ("q @ columns", "q @ columns / q.shape[-1] ** 0.5")),
    ("mean in place of sum",
     "Your scores are divided by d, so each is a mean of d products. Return the sum of the "
     "products.",
     ("q @ columns", "q @ columns / q.shape[-1]")),
    ("softmax applied", WEIGHTS_TOO_EARLY, "(q @ k.mT).softmax(dim=-1)"),
    ("cosine",
     "Your results are cosines, which are dot products divided by the lengths of both vectors. "
     "Return the dot products, without this division.",
     ("k.transpose(-2, -1)", "k.div(k.norm(dim=-1, keepdim=True)).mT"),
     ("q @ columns", "q / q.norm(dim=-1, keepdim=True) @ columns")),
    ("mixes batch items",
     "Your result is correct for matrices. In a batch, you also compare queries with the keys of "
     "other batch items. Keep the leading dimensions of k: use q @ k.transpose(-2, -1).",
     "q @ k.flatten(0, -2).T"),
    ("queries with queries",
     "You compare queries with queries. Compare queries with keys: q @ k.transpose(-2, -1).",
     ("k.transpose", "q.transpose")),
    ("keys with keys",
     "You compare keys with keys. Compare queries with keys: q @ k.transpose(-2, -1).",
     ("q @ columns", "k @ columns")),
    ("reshaped not transposed",
     "Your result has the correct shape, but wrong numbers. You get this result if you use "
     "reshape or view on k, which keep the numbers in their order. To swap rows and columns, "
     "use k.transpose(-2, -1).",
     ("k.transpose(-2, -1)", "k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])")),
    ("absolute scores",
     "Your scores are the absolute values of the dot products. A negative dot product means an "
     "angle of more than 90°, so its sign must stay. If you use abs, remove it.",
     ("q @ columns", "(q @ columns).abs()")),
    ("last entry left out",
     "Your result leaves out the last entry of every vector. A dot product adds the products of "
     "all d entries. If you use [..., :-1], remove it.",
     ("k.transpose(-2, -1)", "k[..., :-1].mT"),
     ("q @ columns", "q[..., :-1] @ columns")),
]  # fmt: skip

exercise = Exercise(
    "1.2", dot_product_scores, inputs, MISTAKES, names="L S",
    also_right=[by_loops, lambda q, k: q.numpy() @ np.swapaxes(k.numpy(), -1, -2)],
)  # fmt: skip
