"""0.1: the mean of some rows."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def average(values):
    return values.mean(dim=0)  # (n, d) -> (d,)


def inputs():
    normal = normals(0)
    return [(normal(*shape, dtype=torch.float32),) for shape in [(4, 3), (2, 5), (6, 2)]]


MISTAKES = [
    ("sum of rows", "that is the sum of the rows; an average divides it by their number n",
     ("mean", "sum")),
    ("mean of each row",
     "that averages each row; average over the rows, dimension 0, to keep d numbers",
     ("dim=0", "dim=1")),
    ("mean of everything",
     "that is one number for the whole table; average over dimension 0 alone", ("dim=0", "")),
    ("divided by the width",
     "the sum is divided by d, the width of a row; divide by n, the number of rows",
     "values.sum(dim=0) / values.shape[1]"),
    ("median of rows", "that is the median of the rows; an average adds them and divides by n",
     "values.median(dim=0).values"),
    ("kept a dimension",
     "the result keeps a dimension of size 1; return shape (d,), without keepdim",
     ("dim=0", "dim=0, keepdim=True")),
]  # fmt: skip

exercise = Exercise(
    "0.1", average, inputs, MISTAKES, names="d",
    also_right=[lambda values: values.sum(0) / len(values),
                lambda values: sum(values) / values.shape[0]],
)  # fmt: skip
