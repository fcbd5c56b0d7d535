"""2.1: the variance of n scores, estimated from the n scores themselves."""

import numpy as np
import torch

from course_utils.checks.compare import difference
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
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


def with_a_large_mean(answer, q, k):
    """Return the variance; raise if it is wrong where the mean is far larger than the spread."""
    results, right = call_with_clones(answer, q, k), score_variance(q, k)
    scores = (q * k).sum(dim=-1)
    far = scores.mean().abs() > 1e4 * scores.std() > 0
    coarse = getattr(results[0], "dtype", None) == torch.float32 != q.dtype
    if far and coarse and difference(results[0], right):
        raise NamedMistake("computed in float32", FLOAT32, [right])
    if far and difference(results[0], right):
        raise NamedMistake("mean far above the spread", LARGE_MEAN, [right])
    return results


FLOAT32 = (
    "Your variance is right, except where the mean is far larger than the standard deviation. "
    "Your result is in float32, which rounds such scores too coarsely. Keep the dtype of the "
    "inputs."
)
LARGE_MEAN = (
    "Your variance is right, except where the mean is far larger than the standard deviation. If "
    "you subtract the squared mean from the mean of the squares, rounding destroys the small "
    "difference between these two huge numbers. Subtract the mean from each score first, then "
    "square."
)
MISTAKES = [
    ("standard deviation",
     "Your result is the standard deviation. Return the variance, which is its square.",
     ("var()", "std()")),
    ("divided by n",
     "Your sum of squares is divided by n. The mean was estimated from the same scores, so "
     "divide by n − 1 instead.",
     ("var()", "var(correction=0)")),
    ("divided by the width less one",
     "Your sum of squares is divided by d_k − 1. It has one square for each of the n scores, so "
     "divide by n − 1.",
     ("scores.var()", "scores.var(correction=0) * len(q) / (q.shape[-1] - 1)")),
    ("spread within the pairs",
     "Your result is the variance of the products within each pair, averaged over the pairs. A "
     "score is the sum of the products of a pair. First add these products, then take the "
     "variance of the n scores.",
     "(q * k).var(dim=-1).mean()"),
    ("mean not subtracted",
     "Your result is the mean of the squared scores. Subtract the mean of the scores before you "
     "square them, and divide the sum of the squares by n − 1.",
     ("var()", "square().mean()")),
    ("squares not centered",
     "Your result is the sum of the squared scores, divided by n − 1. Subtract the mean of the "
     "scores before you square them.",
     ("var()", "square().sum() / (len(q) - 1)")),
    ("summed over the pairs",
     "You add the products of different pairs. A score is the sum of the d_k products of one "
     "pair, so use sum(dim=-1).",
     ("dim=-1", "dim=0")),
    ("all pairs",
     "You score every query against every key. Here row i of q is paired only with row i of k. "
     "Use these n pairs.",
     ("products.sum(dim=-1)", "q @ k.T")),
    ("variance of products",
     "Your result is the variance of all the individual products. A score is the sum of the d_k "
     "products of a pair. Add the products of each pair first, then take the variance of the n "
     "scores.",
     ("products.sum(dim=-1)", "products")),
    ("mean over the width",
     "Your scores are the means of the d_k products of each pair. A score is the sum of these "
     "products, so use sum(dim=-1).",
     ("sum", "mean")),
    ("of scaled scores",
     "Your result is the variance of the scores divided by √d_k. The exercise asks for the "
     "variance of the plain dot products. Do not divide the scores.",
     ("sum(dim=-1)", "sum(dim=-1) / q.shape[-1] ** 0.5")),
    ("sum of variances",
     "Your result is the sum of the variances of the d_k columns of products. This equals the "
     "variance of the scores only if the columns are uncorrelated. Add the products of each pair "
     "first, then take the variance.",
     "(q * k).var(dim=0).sum()"),
    ("width times the variance of products",
     "Your result is d_k times the variance of all the individual products. This is close to the "
     "variance of the scores only if the products in different columns are uncorrelated and have "
     "equal means. Add the products of each pair first, then take the variance.",
     "(q * k).var() * q.shape[-1]"),
    ("theory returned",
     "Your result is d_k, the variance that the lesson predicts for entries of variance 1. "
     "Compute the variance of the n scores from q and k instead.",
     "torch.tensor(float(q.shape[-1]), dtype=q.dtype)"),
    ("theory with measured variances",
     "Your result is d_k · Var(q) · Var(k), the value that the four lines of the lesson "
     "predict. The exercise asks for a measurement, so take the variance of the n scores "
     "themselves.",
     "q.shape[-1] * q.var() * k.var()"),
    ("mean of scores",
     "Your result is the mean of the scores. Return their variance, which says how far they spread "
     "around the mean.",
     ("var()", "mean()")),
    ("median in place of the mean",
     "You use the squared differences from the median of the scores. A variance uses those from "
     "the mean. Subtract the mean instead of the median.",
     ("scores.var()", "(scores - scores.median()).square().sum() / (len(q) - 1)")),
    ("queries and keys centered",
     "Your result is what you get if you subtract the mean of each column from q and k. This "
     "changes the scores. Use q and k as they are, and subtract only the mean of the scores.",
     ("q * k", "(q - q.mean(dim=0)) * (k - k.mean(dim=0))")),
    ("queries and keys centered by one number",
     "Your result is what you get if you subtract from q the mean of all entries of q, and from "
     "k the mean of all entries of k. This changes the scores. Use q and k as they are, and "
     "subtract only the mean of the scores.",
     ("q * k", "(q - q.mean()) * (k - k.mean())")),
]  # fmt: skip

exercise = Exercise(
    "2.1", score_variance, inputs, MISTAKES, run=with_a_large_mean,
    also_right=[by_hand,
                lambda q, k: float(np.var(np.einsum("nd,nd->n", q.numpy(), k.numpy()), ddof=1))],
)  # fmt: skip
