"""Lesson 00's exercise: one average, done together."""

import torch

from course_utils.checks.engine import Exercise


def average(values):
    return values.mean(dim=0)


def _probes():
    rng = torch.Generator().manual_seed(0)
    return [(torch.randn(n, d, generator=rng),) for n, d in [(4, 3), (2, 5), (6, 2)]]


mean_of_rows = Exercise("0.1", average, _probes, names="d")


@mean_of_rows.mistake("that is the sum of the rows; an average divides it by their number n")
def sum_of_rows(values):
    return values.sum(dim=0)


@mean_of_rows.mistake(
    "that averages each row; average over the rows, dimension 0, to keep d numbers"
)
def mean_of_each_row(values):
    return values.mean(dim=1)


@mean_of_rows.mistake("that is one number for the whole table; average over dimension 0 alone")
def mean_of_everything(values):
    return values.mean()


@mean_of_rows.mistake(
    "the sum is divided by d, the width of a row; divide by n, the number of rows"
)
def divided_by_the_width(values):
    return values.sum(dim=0) / values.shape[1]


@mean_of_rows.mistake("that is the median of the rows; an average adds them and divides by n")
def median_of_rows(values):
    return values.median(dim=0).values


@mean_of_rows.mistake("the result keeps a dimension of size 1; return shape (d,), without keepdim")
def kept_a_dimension(values):
    return values.mean(dim=0, keepdim=True)
