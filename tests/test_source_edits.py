"""A traceback shows the line of a changed answer. Its rows are tested in test_checks.py."""

import traceback

import pytest
import torch

from course_utils.checks.source_edits import edited


def total(x):
    return x.sum()  # the sum


def test_a_traceback_shows_the_changed_line():
    wrong = edited(total, "no sum", ("x.sum()", "x.sums()"))
    with pytest.raises(AttributeError) as raised:
        wrong(torch.ones(2))
    assert total(torch.ones(2)) == 2  # the right answer stays as it is
    last = traceback.extract_tb(raised.tb)[-1]
    assert (last.filename, last.line) == ("<total: no sum>", "return x.sums()  # the sum")
