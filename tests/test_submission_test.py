"""The check of a learner's own test: right code must pass it, broken code must not."""

import random

import numpy as np
import pytest
import torch

from course_utils.checks.exercise import NamedMistake
from course_utils.checks.submission_test import run_against

RIGHT = {"built in": abs, "as a float": lambda x: float(abs(x))}
BROKEN = {"negated": lambda x: -abs(x), "constant": lambda x: 3}


def good(f):
    assert f(-2) == 2
    assert f(5) == 5


def too_weak(f):
    assert f(-2) > 0


def too_strict(f):
    assert f(-2) == 2
    assert isinstance(f(-2), int)


def fails_for_all(f):
    assert f(-2).item() == 2


def uses_the_result(f):
    assert (f(-2) - 2) + (f(5) - 5) == 0


def unwritten(f):
    raise NotImplementedError("your turn")


def test_a_good_test_passes_and_a_stub_is_known():
    assert run_against(good, abs, BROKEN) == [torch.tensor(True)]
    assert run_against(good, RIGHT, BROKEN) == [torch.tensor(True)]
    broken = {"no result": lambda x: None}  # any error counts as caught
    assert run_against(uses_the_result, abs, broken) == [torch.tensor(True)]
    with pytest.raises(NotImplementedError):  # not attempted
        run_against(unwritten, abs, BROKEN)


@pytest.mark.parametrize(
    "test, mistake, words",
    [
        (too_weak, "lets broken code through", "^Your test catches 1 of 2 .* constant.$"),
        (lambda f: None, "lets broken code through", "asserts nothing.* 0 of 2 .*; constant.$"),
        (too_strict, "rejects right code", r"\(as a float\)\. .* in line \d+, `assert isinstance"),
        (fails_for_all, "rejects right code", r"\(built in\)\. .*AttributeError"),
        (lambda f: f(-2) == 2, "returns a verdict", "assert"),
        (lambda f: False, "returns a verdict", "assert"),
    ],
)
def test_a_bad_test_gets_a_reason(test, mistake, words):
    with pytest.raises(NamedMistake, match=words) as raised:
        run_against(test, RIGHT, BROKEN)
    assert raised.value.mistake == mistake


def test_a_test_cannot_tell_broken_code_by_counting_its_calls():
    names = [f"broken {number}" for number in range(200)]  # by chance it passes once in a million
    calls = []

    def counts(f):  # all right code comes first, and once more at the end
        calls.append(f)
        assert len(calls) <= len(RIGHT) or len(calls) > len(RIGHT) + len(names)

    with pytest.raises(NamedMistake):
        run_against(counts, RIGHT, dict.fromkeys(names, BROKEN["constant"]))


def test_a_test_that_fails_when_it_runs_again_is_refused():
    def once(f):
        good(f)
        assert f not in seen
        seen.append(f)

    for _ in range(20):  # the two runs come in either order
        seen = []
        with pytest.raises(NamedMistake):
            run_against(once, abs, BROKEN)


def test_a_test_may_draw_random_numbers_and_gets_the_same_each_time():
    draws = set()

    def draw():
        return torch.rand(()).item(), np.random.rand(), random.random()  # noqa: NPY002

    def draws_inputs(f):
        draws.add(draw())
        good(f)

    run_against(draws_inputs, abs, BROKEN)
    assert len(draws) == 1 and draw() not in draws
