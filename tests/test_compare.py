"""Comparing: what is as good as expected on any machine, and the first difference in words."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from course_utils.checks.compare import TOLERANCE, difference, is_same
from course_utils.checks.exercise import EXERCISES, one_layout
from course_utils.checks.known_results import expected
from sampling import some
from worst_case_rounding import rough

INF, NAN = float("inf"), float("nan")
CALCULATED = [name for name in EXERCISES if not name.startswith("catches")]


@pytest.mark.parametrize("name", some(CALCULATED, 30))
def test_right_answers_pass_whatever_machine_adds(name):
    """EVERY_CASE=1 tries all exercises; this, thirty."""
    exercise = EXERCISES[name]
    with one_layout(0):
        for args, right in zip(exercise.inputs(), expected(exercise), strict=True):
            result = exercise.run(rough(exercise.reference), *args)[0]
            assert difference(result, right) is None


ONE, TWO, SOME = torch.ones(1, 1), torch.ones(2), torch.tensor([[1.0, -2, 3], [0.5, 4, -1.5]])


@pytest.mark.parametrize(
    "got, expected, words",
    [
        # shapes
        (SOME, torch.zeros(3, 2), "expected shape (L, S) = (3, 2), got (2, 3)"),
        (SOME[None], torch.zeros(1, 3, 2), "expected shape (..., L, S) = (1, 3, 2)"),
        (torch.zeros(1), torch.tensor(0.0), "expected shape"),
        (SOME.T, SOME, "the last two dimensions are swapped"),
        (SOME.reshape(3, 2), SOME, "right, but in another shape"),
        # entries
        (torch.ones(1, 3), torch.tensor([[1, 3.0, 1]]), "3 at [0, 1], got 1; 1 of 3 entries"),
        (torch.tensor([[NAN]]), ONE, "NaN at [0, 0], where 1 was expected"),
        (2 * SOME, SOME, "6 of 6 entries differ: each is 2 times"),
        (-SOME, SOME, "each is -1 times"),
        (SOME + 0.25, SOME, "each is 0.25 too large"),
        (SOME - 1, SOME, "each is 1 too small"),
        (SOME / (1 + 1e-3 * SOME.abs()), SOME, "all by less than 1%"),
        (SOME * 1.0004, SOME, "expected 1 at [0, 0], got 1.0004; 5 of 6 entries differ, all by"),
        # dtypes
        (ONE.long(), ONE, "floating point entries, got torch.int64"),
        (ONE * 1j, ONE.long(), "expected integer entries, got torch.complex64"),
        (ONE > 0, ONE.long(), "expected integer entries, got torch.bool"),
        (ONE, ONE > 0, "expected true/false entries"),
        (1.03 * SOME.bfloat16(), SOME, "within 6%, but in bfloat16. Keep the dtype"),
        (SOME.half() / 3, SOME.double() / 3, "within 1%, but in float16. Keep the dtype"),
        (2 * SOME.bfloat16(), SOME, "each is 2 times"),
        # numbers
        (None, 3.0, "expected a number, got None (is a `return` missing?)"),
        (10**400, 3, "expected a number, got an int"),
        (np.int64(4), 3, "expected 3, got 4"),
        (2**40 + 1, 2**40, "got 1099511627777"),
        (torch.tensor(28801), torch.tensor(28800), "expected 28800, got 28801"),
        (3.7, torch.tensor(3), "expected 3, got 3.7"),
        # tuples
        ((1, 2, 3), (ONE, ONE), "expected a tuple of 2 tensors, got a tuple of 3"),
        (ONE, (1, 2), "expected a tuple of 2 numbers, got one tensor"),
        (TWO, (1, 2), "item 1 of the tuple (item 0 is right): expected 2, got 1"),
        ((TWO, TWO), (TWO, torch.ones(3)), "item 1 of the tuple (item 0 is right): expected shape"),
        ((1, None), (1, 2), "item 1 of the tuple (item 0 is right): expected a number, got None"),
        # other types
        (None, ONE, "expected a torch.Tensor, got None (is a `return` missing?)"),
        (np.zeros(2), TWO, "expected 1 at [0], got 0; 2 of 2 entries differ"),
    ],
)
def test_the_first_difference_in_words(got, expected, words):
    names = "L|S" if isinstance(expected, tuple) else "L S"
    told = difference(got, expected, names)
    assert words in told and not (isinstance(got, tuple) and "return" in told)
    assert not is_same(got, expected)


@pytest.mark.parametrize("got", [SOME**2, SOME.sort().values, SOME.T.contiguous() * 2, SOME * 0])
def test_where_the_entries_have_nothing_in_common_nothing_is_claimed(got):
    words = difference(got, SOME)
    assert "each is" not in words and "right numbers" not in words and "none by" not in words


@pytest.mark.parametrize(
    "got, expected",
    [
        (3.0, torch.tensor(3.0)),
        (np.int64(3), 3),
        (np.float32(3), 3.0),
        (Fraction(1, 2), 0.5),
        (torch.tensor(3), 3.0),
        (True, 1),
        ([torch.ones(1), 2.0], (torch.ones(1), 2)),
        (SOME.double().numpy()[::-1], SOME.flip(0)),  # PyTorch has no such strides
        (SOME.clone().requires_grad_(), SOME),
        (SOME.T.contiguous().T, SOME),
        (torch.ones(0, 3), torch.ones(0, 3)),
        (SOME.double() / 3, SOME.half() / 3),  # a finer dtype than expected
        (torch.tensor([2e-5, 100]), torch.tensor([1e-5, 100])),  # terms around 100 that cancel
        (torch.zeros(3).double() + 1e-12, torch.zeros(3)),  # a finer dtype has no 0 there
        (INF, INF),
        (torch.tensor([INF, -INF, NAN]), torch.tensor([INF, -INF, NAN])),
    ],
)
def test_what_is_as_good_as_expected(got, expected):
    assert difference(got, expected) is None


@pytest.mark.parametrize(
    "one, other",
    [
        (torch.tensor([INF, 2]), torch.tensor([0.0, 2])),
        (torch.tensor([INF, 2]), torch.tensor([-INF, 2])),
        (torch.tensor([INF, 2]), torch.tensor([INF, 3])),  # finite entries count as well
        (torch.tensor([INF, 2]), torch.tensor([NAN, 2])),
        (torch.tensor([1e-5, 100]), torch.tensor([1e-5, 100.1])),
        (torch.zeros(3), torch.full((3,), 1e-9)),  # too large for what is left of 0
    ],
)
def test_what_differs_either_way(one, other):
    assert not is_same(one, other) and not is_same(other, one)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", [1e-3, -1.0, 1e3])
def test_rounding_is_no_difference_and_anything_larger_is(dtype, size):
    right = (torch.linspace(0.5, 1, 9, dtype=torch.float64) * size).to(dtype)
    allowed = TOLERANCE[dtype] * right.abs().max()
    assert is_same(right.double() + 0.9 * allowed, right)
    assert not is_same(right.double() + 1.1 * allowed, right)
    assert not is_same(right.double() - 1.1 * allowed, right)
