"""2.1: the variance of n scores, estimated from the n scores themselves."""

import numpy as np
import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def score_variance(q, k):
    products = q * k  # (n, d_k)
    scores = products.sum(dim=-1)  # (n,), row i of q with row i of k
    return scores.var()  # one number, divided by n - 1


def by_hand(q, k):
    scores = [sum(a * b for a, b in zip(x, y, strict=True)) for x, y in zip(q, k, strict=True)]
    mean = sum(scores) / len(scores)
    return sum((s - mean) ** 2 for s in scores) / (len(scores) - 1)


def inputs():
    normal = normals(21)
    return [
        (normal(6, 4), normal(6, 4)),
        (normal(9, 5) + 2, normal(9, 5) - 1),  # means that are not 0
        (3 * normal(5, 8), normal(5, 8)),
        (normal(4, 3, dtype=torch.float32), normal(4, 3, dtype=torch.float32)),
        (normal(6, 50).T, normal(6, 50).T),  # not contiguous, many pairs
        (normal(7, 7), normal(7, 7)),
        (normal(2, 1), normal(2, 1)),
        (normal(5, 2) + 1e7, torch.ones(5, 2).double()),  # the mean is far above the spread
        (torch.full((4, 3), 2.0), torch.full((4, 3), 3.0)),  # all scores the same
    ]


MISTAKES = [
    ("standard deviation", "that is the standard deviation; the variance is its square",
     ("var()", "std()")),
    ("divided by n",
     "divided by n where n − 1 is asked: the mean was estimated from the same numbers",
     ("var()", "var(correction=0)")),
    ("divided by the width less one",
     "divided by d_k − 1; the squares that are added are those of n scores: n − 1",
     ("scores.var()", "scores.var(correction=0) * len(q) / (q.shape[-1] - 1)")),
    ("spread within the pairs",
     "that is the variance of the products within each pair, averaged; add them to one score for "
     "each pair, and take the variance of the n scores", "(q * k).var(dim=-1).mean()"),
    ("mean not subtracted",
     "that is the mean of the squares; first subtract the mean of the scores",
     ("var()", "square().mean()")),
    ("squares not centred",
     "divided by n − 1 as it should be, but the mean of the scores is not subtracted",
     ("var()", "square().sum() / (len(q) - 1)")),
    ("summed over the pairs",
     "summed down the columns, over the n pairs; a score is the sum over d_k, dim=-1",
     ("dim=-1", "dim=0")),
    ("all pairs",
     "those are all pairs of a query and a key; here row i of q belongs to row i of k alone",
     ("products.sum(dim=-1)", "q @ k.T")),
    ("variance of products", "the products are not added up: a score is the sum over d_k of them",
     ("products.sum(dim=-1)", "products")),
    ("mean square less squared mean",
     "Your variance is right, except where the mean is far larger than the spread. There the mean "
     "square less the squared mean is a difference of two huge numbers. Subtract the mean first.",
     ("scores.var()", "(scores.square().mean() - scores.mean() ** 2) * len(q) / (len(q) - 1)")),
    ("mean over the width", "that is the mean over d_k products; a score is their sum",
     ("sum", "mean")),
    ("of scaled scores",
     "the scores are scaled by √d_k already; here the plain dot products are asked",
     ("sum(dim=-1)", "sum(dim=-1) / q.shape[-1] ** 0.5")),
    ("sum of variances",
     "that adds up the variances of each position's products: only right if they are uncorrelated; "
     "add first, then take the variance", "(q * k).var(dim=0).sum()"),
    ("theory returned",
     "that is what theory expects of variance 1, d_k; estimate it from the numbers given",
     "torch.tensor(float(q.shape[-1]), dtype=q.dtype)"),
    ("theory with measured variances",
     "that is what theory expects, d_k times both variances; estimate it from the n scores "
     "themselves", "q.shape[-1] * q.var() * k.var()"),
    ("mean of scores", "that is the mean of the scores; asked is how far they spread around it",
     ("var()", "mean()")),
]  # fmt: skip

exercise = Exercise(
    "2.1", score_variance, inputs, MISTAKES,
    also_right=[by_hand,
                lambda q, k: float(np.var(np.einsum("nd,nd->n", q.numpy(), k.numpy()), ddof=1))],
)  # fmt: skip
