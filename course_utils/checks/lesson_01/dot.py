"""1.1: the dot product of two vectors, with a running total."""

import numpy as np
import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.shared_hints import LOST_SIGN


def dot(a, b):
    total = 0.0  # ()
    for i in range(len(a)):
        total = total + a[i] * b[i]  # () + () * ()
    return total


def by_hand(a, b):
    total = 0
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        total += x * y
    return total


def inputs():
    normal = normals(1)
    return [
        *((normal(d), normal(d)) for d in (3, 8, 5)),
        (torch.tensor([1.0, -2.0]), torch.tensor([3.0, 4.0])),  # negative, in single precision
        (normal(12), normal(12)),
        (normal(3, 2)[:, 0], normal(3, 2)[:, 1]),  # not contiguous
        (normal(1), normal(1)),
    ]


ALONE = "the first numbers alone are multiplied: go through all of them, however many there are"
MISTAKES = [
    ("products not added",
     "those are the products, one for each position; add them up to one number", "a * b"),
    ("mean of products", "that is the mean of the products; a dot product is their sum",
     ("return total", "return total / len(a)")),
    ("product of sums",
     "that multiplies the two sums; multiply position by position first, then add",
     "a.sum() * b.sum()"),
    ("total replaced", "only the last product is left: add to the total instead of replacing it",
     ("total + a[i]", "a[i]")),
    ("total unchanged",
     "the total is 0, whatever the vectors are: `total + ...` alone changes nothing; write "
     "total = total + ...", ("total = total + a", "total + a")),
    ("total starts at 1", "each result is 1 too large: start the total at 0", ("0.0", "1.0")),
    ("first counted twice",
     "the first product counts twice: start the total at 0, or the loop at 1",
     ("0.0", "a[0] * b[0]")),
    ("returned too early", "only the first product is there: `return` stands inside the loop",
     ("    return total", "        return total")),
    ("first left out", "the first position is left out: Python counts from 0",
     ("range(len(a))", "range(1, len(a))")),
    ("last left out", "the last position is left out: range(n) already stops before n",
     ("range(len(a))", "range(len(a) - 1)")),
    ("added instead of multiplied",
     "the numbers are added where they should be multiplied: a[i] * b[i]",
     ("a[i] * b[i]", "a[i] + b[i]")),
    ("absolute values", LOST_SIGN, ("a[i] * b[i]", "(a[i] * b[i]).abs()")),
    ("cosine of the angle", "that is the cosine: the right sum, but divided by both lengths",
     ("return total", "return total / (a.norm() * b.norm())")),
    ("total without sign",
     "the total lost its sign; opposite directions must give a negative number",
     ("return total", "return total.abs()")),
    ("squared differences",
     "that is the squared distance; a dot product multiplies, it does not subtract",
     ("a[i] * b[i]", "(a[i] - b[i]) ** 2")),
    ("vector with itself", "the first vector meets itself, a · a: multiply a[i] by b[i]",
     ("* b[i]", "* a[i]")),
    ("cut to whole numbers", "the result is cut to a whole number: leave out the int(...)",
     ("return total", "return total.trunc()")),
    ("factors cut to whole numbers",
     "the numbers are cut to whole ones before they are multiplied: leave out the int(...)",
     ("a[i] * b[i]", "a[i].trunc() * b[i].trunc()")),
    ("two numbers alone", ALONE, "a[0] * b[0] + a[1] * b[1]"),
    ("three numbers alone", ALONE, "a[0] * b[0] + a[1] * b[1] + a[2] * b[2]"),
    ("every second left out", "every second position is left out: range(len(a)) has them all",
     ("range(len(a))", "range(0, len(a), 2)")),
    ("sign turned", "the sign is turned: the products are subtracted where they should be added",
     ("total + a", "total - a")),
    ("root taken", "that is the root of the dot product: the sum itself is asked",
     ("return total", "return total**0.5")),
    ("products multiplied", "the products are multiplied with each other; add them up",
     "(a * b).prod()"),
    ("number in a list of one",
     "the right number, but in a tensor of shape (1,): start the total at 0.0, not at "
     "torch.zeros(1), and sum without keepdim", ("0.0", "torch.zeros(1)")),
]  # fmt: skip

exercise = Exercise(
    "1.1", dot, inputs, MISTAKES,
    also_right=[by_hand, lambda a, b: np.dot(a.detach().numpy(), b.detach().numpy())],
)  # fmt: skip
