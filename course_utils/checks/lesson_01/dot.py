"""1.1: the dot product of two vectors, with a running total."""

import numpy as np
import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


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


MISTAKES = [
    ("products not added",
     "Your result has one product for each position. A dot product is one number, so add up the "
     "products.",
     "a * b"),
    ("mean of products",
     "Your result is the mean of the products. A dot product is their sum, so do not divide.",
     ("return total", "return total / len(a)")),
    ("product of sums",
     "Your result is the sum of a times the sum of b. First multiply at each position, then add "
     "up the products.", "a.sum() * b.sum()"),
    ("total replaced",
     "Your result is only the last product. The total must keep the earlier products too. Write "
     "total = total + a[i] * b[i].",
     ("total + a[i]", "a[i]")),
    ("total unchanged",
     "Your result is 0, whatever the vectors are. If you wrote only `total + a[i] * b[i]`, the "
     "new total was not stored. Write total = total + a[i] * b[i].",
     ("total = total + a", "total + a")),
    ("total starts at 1", "Your result is too large by 1. Start the total at 0.",
     ("0.0", "1.0")),
    ("first counted twice",
     "Your total contains the first product twice. Count each product once. If your total starts "
     "at a[0] * b[0], start it at 0.",
     ("0.0", "a[0] * b[0]")),
    ("returned too early",
     "Your result is only the first product. If `return` is inside the loop, move it after the "
     "loop.", ("    return total", "        return total")),
    ("first left out",
     "Your result leaves out the first position. Python counts from 0, so start at position 0.",
     ("range(len(a))", "range(1, len(a))")),
    ("last left out",
     "Your result leaves out the last position. range(n) already stops before n, so use "
     "range(len(a)).",
     ("range(len(a))", "range(len(a) - 1)")),
    ("added instead of multiplied",
     "You add the two numbers at each position. Multiply them instead: a[i] * b[i].",
     ("a[i] * b[i]", "a[i] + b[i]")),
    ("absolute values",
     "Your negative products have lost their sign. A negative product must lower the sum. If "
     "you use abs, remove it.",
     ("a[i] * b[i]", "(a[i] * b[i]).abs()")),
    ("cosine of the angle",
     "Your result is the cosine, which is the dot product divided by the lengths of both vectors. "
     "Return the dot product, without this division.",
     ("return total", "return total / (a.norm() * b.norm())")),
    ("total without sign",
     "Your result is the absolute value of the dot product. For vectors in opposite directions, "
     "the dot product must be negative. If you use abs, remove it.",
     ("return total", "return total.abs()")),
    ("squared differences",
     "Your result is the sum of the squared differences. A dot product multiplies the two "
     "numbers at each position. Write a[i] * b[i].",
     ("a[i] * b[i]", "(a[i] - b[i]) ** 2")),
    ("vector with itself",
     "Your result is the dot product of a with itself. Multiply a[i] by b[i].",
     ("* b[i]", "* a[i]")),
    ("cut to whole numbers",
     "Your result is the dot product, truncated to a whole number. Keep the fraction. If you "
     "use int(...), remove it.",
     ("return total", "return total.trunc()")),
    ("factors cut to whole numbers",
     "The numbers in your products are truncated to whole numbers before they are multiplied. "
     "Keep the fractions. If you use int(...), remove it.",
     ("a[i] * b[i]", "a[i].trunc() * b[i].trunc()")),
    ("two numbers alone",
     "You use only the first two numbers of each vector. Go through all of them: range(len(a)).",
     "a[0] * b[0] + a[1] * b[1]"),
    ("three numbers alone",
     "You use only the first three numbers of each vector. Go through all of them: range(len(a)).",
     "a[0] * b[0] + a[1] * b[1] + a[2] * b[2]"),
    ("every second left out",
     "Your result leaves out every second position. Go through all positions: range(len(a)).",
     ("range(len(a))", "range(0, len(a), 2)")),
    ("sign flipped",
     "Your result has the wrong sign. Add the products to the total instead of subtracting "
     "them.",
     ("total + a", "total - a")),
    ("root taken",
     "Your result is the square root of the dot product, which is NaN for a negative dot "
     "product. Return the dot product itself, without the root.",
     ("return total", "return total**0.5")),
    ("products multiplied",
     "Your result is the product of all the products. Add up the products instead.",
     "(a * b).prod()"),
    ("number in a list of one",
     "Your number is correct, but it is in a tensor of shape (1,). Return one number, of shape "
     "(). If your total starts at torch.zeros(1), start it at 0.0. If you sum with "
     "keepdim=True, remove that.",
     ("0.0", "torch.zeros(1)")),
    ("factors cut to integers",
     "The numbers in your products are truncated to whole numbers before they are multiplied. "
     "Keep the fractions. If you use int(...), remove it.",
     ("0.0", "torch.tensor(0)"), ("a[i] * b[i]", "int(a[i]) * int(b[i])")),
    ("second vector from the back",
     "You multiply a[i] by b[-i]. Multiply a[i] by b[i].", ("* b[i]", "* b[-i]")),
]  # fmt: skip

exercise = Exercise(
    "1.1", dot, inputs, MISTAKES,
    also_right=[by_hand, lambda a, b: np.dot(a.detach().numpy(), b.detach().numpy())],
)  # fmt: skip
