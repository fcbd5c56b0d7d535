"""0.1: the mean of the rows of a matrix."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def average(values):
    return values.mean(dim=0)  # (n, d) -> (d,)


def inputs():
    normal = normals(0)
    return [(normal(*shape, dtype=torch.float32),) for shape in [(4, 3), (2, 5), (6, 2)]]


MISTAKES = [
    ("sum of rows",
     "Your result is the sum of the rows. To get the mean, divide it by n, the number of rows.",
     ("mean", "sum")),
    ("mean of each row",
     "Your result has one mean for each row. Take the mean over the rows (dimension 0), so that "
     "d numbers are left.",
     ("dim=0", "dim=1")),
    ("mean of each row, kept",
     "Your result has one mean for each row, and shape (n, 1). Take the mean over the rows "
     "(dimension 0), and return it with shape (d,). If you use keepdim=True, remove it.",
     ("dim=0", "dim=1, keepdim=True")),
    ("sum of each row",
     "Your result has one sum for each row. Take the mean over the rows (dimension 0), so that d "
     "numbers are left.",
     "values.sum(dim=1)"),
    ("sum of everything",
     "Your result is the sum of all numbers. Take the mean only over the rows (dimension 0), so "
     "that d numbers are left.",
     "values.sum()"),
    ("mean of everything",
     "Your result is the mean of all numbers. Take the mean only over the rows (dimension 0), "
     "so that d numbers are left.",
     ("dim=0", "")),
    ("divided by the width",
     "Your result is the sum of the rows divided by d, the width of a row. Divide the sum by n, "
     "the number of rows.",
     "values.sum(dim=0) / values.shape[1]"),
    ("divided by n - 1",
     "Your result is the sum of the rows divided by n − 1. Divide the sum by n, the number of "
     "rows.",
     "values.sum(dim=0) / (values.shape[0] - 1)"),
    ("median of rows",
     "Your result is the median of the rows. For the mean, add up the rows and divide by n.",
     "values.median(dim=0).values"),
    ("kept a dimension",
     "Your numbers are correct, but your result has shape (1, d). It should have shape (d,). If "
     "you use keepdim=True, remove it.",
     ("dim=0", "dim=0, keepdim=True")),
    ("first row", "Your result is only the first row. Add up all rows, and divide by n.",
     "values[0]"),
    ("first row divided",
     "Your result is only the first row, divided by n. Add up all rows before you divide. If "
     "`return` is inside a loop, move it after the loop.",
     "values[0] / len(values)"),
    ("largest of each column",
     "Your result is the largest number of each column. Return the mean of each column.",
     "values.max(dim=0).values"),
    ("rounded down",
     "Your result is the mean, rounded down. If you use //, write / instead.",
     "values.sum(dim=0) // len(values)"),
]  # fmt: skip

exercise = Exercise(
    "0.1", average, inputs, MISTAKES, names="d",
    also_right=[lambda values: values.sum(0) / len(values),
                lambda values: sum(values) / values.shape[0]],
)  # fmt: skip
