"""2.2: what to divide scores by if the entries of q and k have other variances than 1."""

import math

import numpy as np

from course_utils.checks.exercise import Exercise


def right_divisor(d_k, var_q, var_k):
    variance = d_k * var_q * var_k  # of a score
    return variance**0.5


def inputs():
    return [  # var_q is the larger variance as often as var_k
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
     "Your divisor is √d_k, which is only right if var_q · var_k = 1. Put var_q and var_k into "
     "the four lines of the lesson, and return the square root of the variance.",
     ("d_k * var_q * var_k", "d_k")),
    ("root missing",
     "Your divisor is the variance of the scores. Scores divided by their standard deviation have "
     "variance 1, so return the square root.",
     ("**0.5", "")),
    ("half of the variance",
     "Your divisor is half the variance of the scores. If you wrote x**1/2, Python computes x / "
     "2, because ** comes before /. Write x**0.5.",
     ("0.5", "1 / 2")),
    ("variances outside the root",
     "Your divisor is √d_k · var_q · var_k, with the variances outside the square root. The "
     "standard deviation is the square root of the whole variance. Return √(d_k · var_q · "
     "var_k).",
     "d_k**0.5 * var_q * var_k"),
    ("var k outside the root",
     "Your divisor is √(d_k · var_q) · var_k, with var_k outside the square root. Put all three "
     "factors under the square root.",
     "(d_k * var_q) ** 0.5 * var_k"),
    ("root of the last factor alone",
     "Your divisor is d_k · var_q · √var_k. If you wrote d_k * var_q * var_k ** 0.5, Python "
     "applies ** to var_k alone. Put the product in parentheses.",
     "d_k * var_q * var_k**0.5"),
    ("variances added",
     "You add the two variances. The entries are independent with mean 0, so the variance of a "
     "product is the product of the variances. Multiply var_q by var_k.",
     ("var_q * var_k", "(var_q + var_k)")),
    ("d k outside the root",
     "Your divisor has d_k outside the square root. The variance of a score is d_k times the "
     "variance of one product. Put d_k under the square root as well.",
     "d_k * (var_q * var_k) ** 0.5"),
    ("only var q",
     "Your divisor leaves out var_k. The variance of a product is var_q · var_k. Multiply by "
     "var_k under the square root.",
     (" * var_k", "")),
    ("only var k",
     "Your divisor leaves out var_q. The variance of a product is var_q · var_k. Multiply by "
     "var_q under the square root.",
     (" * var_q", "")),
    ("larger variance alone",
     "You use only the larger of the two variances. The variance of a product is var_q · var_k. "
     "Multiply d_k by var_q and by var_k under the square root.",
     ("var_q * var_k", "max(var_q, var_k)")),
    ("larger variance outside the root",
     "Your divisor is √d_k times the larger variance. The variance of a product is var_q · "
     "var_k. Return √(d_k · var_q · var_k).",
     "d_k**0.5 * max(var_q, var_k)"),
    ("variances averaged",
     "You use the mean of the two variances. The entries are independent with mean 0, so the "
     "variance of a product is the product of the variances. Multiply var_q by var_k.",
     ("var_q * var_k", "(var_q + var_k) / 2")),
    ("variances averaged outside the root",
     "Your divisor is √d_k times the mean of the two variances. The entries are independent "
     "with mean 0, so the variance of a product is the product of the variances. Return √(d_k · "
     "var_q · var_k).",
     "d_k**0.5 * (var_q + var_k) / 2"),
    ("standard deviations averaged",
     "Your divisor is √d_k times the mean of the two standard deviations. For a product of "
     "independent numbers with mean 0, the standard deviations multiply. Return √(d_k · var_q · "
     "var_k).",
     "d_k**0.5 * (var_q**0.5 + var_k**0.5) / 2"),
    ("factor in place of divisor",
     "Your result is 1 / √(d_k · var_q · var_k), the number to multiply by. Return the number "
     "to divide by.",
     ("0.5", "-0.5")),
    ("divided by the variances",
     "Your divisor gets smaller as the variances grow. Larger entries give larger scores, so "
     "the divisor must grow. Multiply d_k by the variances under the square root, instead of "
     "dividing.",
     ("var_q * var_k", "1 / (var_q * var_k)")),
    ("d k missing",
     "Your divisor leaves out d_k. A score is a sum of d_k products, and their variances add. "
     "Multiply by d_k under the square root.",
     ("d_k * ", "")),
    ("standard deviations added",
     "Your divisor is √d_k · (√var_q + √var_k). For a product of independent numbers with mean "
     "0, the standard deviations multiply. Return √(d_k · var_q · var_k).",
     "d_k**0.5 * (var_q**0.5 + var_k**0.5)"),
    ("root taken twice",
     "Your divisor is √d_k times the fourth root of var_q · var_k. One square root is enough. "
     "Return √(d_k · var_q · var_k).",
     "d_k**0.5 * (var_q * var_k) ** 0.25"),
]  # fmt: skip

exercise = Exercise(
    "2.2", right_divisor, inputs, MISTAKES,
    also_right=[lambda d_k, var_q, var_k: math.sqrt(d_k) * math.sqrt(var_q) * math.sqrt(var_k),
                lambda d_k, var_q, var_k: np.sqrt(np.float32(d_k * var_q * var_k))],
)  # fmt: skip
