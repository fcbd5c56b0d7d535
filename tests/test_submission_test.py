"""The check of a learner's own test: right code must pass it, broken code must not."""

import random

import numpy as np
import pytest
import torch

from course_utils.checks import sandbox
from course_utils.checks.exercise import Complaint
from course_utils.checks.submission_test import run_against

BROKEN = {"negated": lambda x: -abs(x), "constant": lambda x: 3}


def good(f):
    assert f(-2) == 2
    assert f(5) == 5


def too_weak(f):
    assert f(-2) > 0


def too_strict(f):
    assert f(-2) == 2
    assert isinstance(f(-2), int)


def crashes_on_all(f):
    assert f(-2).item() == 2


def returns(f):
    return f(-2) == 2 and f(5) == 5


def unattempted(f):
    raise NotImplementedError("your turn")


RIGHT = {"built in": abs, "as a float": lambda x: float(abs(x))}


def test_a_good_test_is_told_so():
    assert [each.item() for each in run_against(good, abs, BROKEN)] == [True]
    assert [each.item() for each in run_against(good, RIGHT, BROKEN)] == [True]


@pytest.mark.parametrize(
    "test, mistake, words",
    [
        (too_weak, "lets broken code through", "catches 1 of 2 broken versions; .* constant$"),
        (too_strict, "rejects right code", r"\(as a float\): .* in line 27, `assert isinstance"),
        (
            crashes_on_all,
            "rejects right code",
            r"for .*built in.: it raised AttributeError: .* no attr",
        ),
        (returns, "returns a verdict", "return nothing"),
        (lambda f: False, "returns a verdict", "return nothing"),
        (lambda f: None, "lets broken code through", "catches 0 of 2.* negated; constant$"),
    ],
)
def test_a_bad_test_is_told_why(test, mistake, words):
    with pytest.raises(Complaint, match=words) as raised:
        run_against(test, RIGHT, BROKEN)
    assert raised.value.mistake == mistake


def test_an_unwritten_test_is_not_attempted():
    with pytest.raises(NotImplementedError):
        run_against(unattempted, abs, BROKEN)


def test_any_error_on_broken_code_counts_as_caught():
    def uses_the_result(f):
        assert len(f("ab")) == 2

    assert run_against(uses_the_result, str, {"no result": lambda x: None})


def test_a_test_may_draw_random_numbers_and_the_draws_repeat():
    drawn = []

    def draws(f):
        drawn.append((torch.rand(()).item(), np.random.rand(), random.random()))  # noqa: NPY002
        assert f(-2) == 2 and f(5) == 5

    run = sandbox.call(run_against, draws, abs, BROKEN)
    assert run.error is None and not run.reseeded
    assert len(drawn) == 3 and len(set(drawn)) == 1
