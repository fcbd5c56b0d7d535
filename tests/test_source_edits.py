"""A mistake is a change of the right answer: an edit, another result, or an answer of its own."""

import traceback

import pytest
import torch

from course_utils.checks.source_edits import edited


def doubled_sum(x, times=2):
    """Return the doubled sum."""
    total = x.sum()  # the sum
    return total * times


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def of(self, x):
        return doubled_sum(x) * self.factor


X = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    "change, result",
    [
        ([("x.sum()", "x.mean()")], 3),
        ([("x.sum()", "x.mean()"), ("x.mean()", "x.amax()")], 4),  # one after another
        (["x.prod() * times * times"], 8),  # what a function with the same signature returns
        ([torch.amin], 1),  # an answer of its own
    ],
)
def test_a_function_is_changed_as_a_row_says(change, result):
    assert edited(doubled_sum, "row", *change)(X) == result
    assert doubled_sum(X) == 6


def test_a_class_is_changed_too_and_sees_what_its_file_sees():
    assert edited(Scaled, "unscaled", ("* self.factor", ""))(5).of(X) == 6


def test_a_traceback_shows_the_changed_line():
    wrong = edited(doubled_sum, "no sum", ("x.sum()", "x.sums()"))
    with pytest.raises(AttributeError) as raised:
        wrong(X)
    last = traceback.extract_tb(raised.tb)[-1]
    assert (last.filename, last.line) == ("<doubled_sum: no sum>", "total = x.sums()  # the sum")
