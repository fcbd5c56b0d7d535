"""2.2: what to divide scores by if the entries of q and k have other variances than 1."""

import math

import numpy as np

from course_utils.checks.exercise import Exercise


def right_divisor(d_k, var_q, var_k):
    variance = d_k * var_q * var_k  # of a score
    return variance**0.5


def inputs():
    return [  # as often var_q is the larger as var_k
        (64, 1.0, 1.0),
        (16, 0.25, 9.0),
        (7, 2.0, 0.5),
        (128, 1 / 3, 3.0),
        (50, 9.0, 0.25),
        (12, 6.0, 5.0),
        (3, 0.04, 0.1),
        (1, 0.5, 0.02),
        (4096, 0.0004, 25.0),
    ]


MISTAKES = [
    ("root of d k alone",
     "√d_k is right for entries of variance 1 only; here they have var_q and var_k",
     ("d_k * var_q * var_k", "d_k")),
    ("root missing", "that is the variance of the scores; divide by its root", ("**0.5", "")),
    ("half of the variance",
     "half of the variance: ** comes before /, so x**1/2 is x / 2; write x**0.5",
     ("0.5", "1 / 2")),
    ("variances outside the root",
     "Your result is √d_k · var_q · var_k: the variances stand outside the root, or are squared "
     "under it. The standard deviation is the root of the whole variance. Return "
     "√(d_k · var_q · var_k).", "d_k**0.5 * var_q * var_k"),
    ("var k outside the root", "var_k stands outside the root; all three belong under it",
     "(d_k * var_q) ** 0.5 * var_k"),
    ("variances added",
     "the variance of a product of independent numbers is the product, not the sum",
     ("var_q * var_k", "(var_q + var_k)")),
    ("d k outside the root",
     "d_k belongs under the root too: the variances of d_k products add up",
     "d_k * (var_q * var_k) ** 0.5"),
    ("only var q", "var_k is left out: both factors of a product bring their variance",
     (" * var_k", "")),
    ("only var k", "var_q is left out: both factors of a product bring their variance",
     (" * var_q", "")),
    ("larger variance alone",
     "only one of the variances is used, the larger: both factors of a product bring theirs",
     ("var_q * var_k", "max(var_q, var_k)")),
    ("variances averaged",
     "the mean of both variances is taken: that of a product of independent numbers is their "
     "product", ("var_q * var_k", "(var_q + var_k) / 2")),
    ("factor in place of divisor", "that is what to multiply by; the divisor is asked",
     ("0.5", "-0.5")),
    ("divided by the variances",
     "divided by the variances: larger entries make larger scores, so they multiply",
     ("var_q * var_k", "1 / (var_q * var_k)")),
    ("d k missing", "d_k is missing: a score is a sum over d_k products", ("d_k * ", "")),
]  # fmt: skip

exercise = Exercise(
    "2.2", right_divisor, inputs, MISTAKES,
    also_right=[lambda d_k, var_q, var_k: math.sqrt(d_k) * math.sqrt(var_q) * math.sqrt(var_k),
                lambda d_k, var_q, var_k: np.sqrt(np.float32(d_k * var_q * var_k))],
)  # fmt: skip
