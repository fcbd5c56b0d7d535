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


def test_an_edit_changes_one_piece_and_several_change_one_after_another():
    assert edited(doubled_sum, "mean", ("x.sum()", "x.mean()"))(X) == 3
    assert edited(doubled_sum, "mean", ("x.sum()", "x.mean()"), ("x.mean()", "x.amax()"))(X) == 4
    assert doubled_sum(X) == 6


def test_an_expression_is_what_a_function_of_the_same_signature_returns():
    assert edited(doubled_sum, "product", "x.prod() * times")(X, times=3) == 6


def test_an_answer_of_its_own_is_taken_as_it_is():
    assert edited(doubled_sum, "own", max) is max


def test_a_class_is_edited_too_and_sees_what_its_file_sees():
    assert edited(Scaled, "twice", ("* self.factor", ""))(5).of(X) == 6


def test_a_traceback_shows_the_changed_line():
    wrong = edited(doubled_sum, "no sum", ("x.sum()", "x.sums()"))
    with pytest.raises(AttributeError) as raised:
        wrong(X)
    last = traceback.extract_tb(raised.tb)[-1]
    assert (last.filename, last.line) == ("<doubled_sum: no sum>", "total = x.sums()  # the sum")
