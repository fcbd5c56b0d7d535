"""Comparing: what is as good as expected on any machine, and the first difference in words."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from answers import RIGHT
from course_utils.checks import compare
from course_utils.checks.compare import difference, read
from course_utils.checks.exercise import EXERCISES, one_layout
from course_utils.checks.judge import expected
from sampling import some
from worst_case_rounding import rough

INF, NAN = float("inf"), float("nan")
CALCULATED = [name for name in EXERCISES if not name.startswith("catches")]


@pytest.mark.parametrize("name", CALCULATED)
def test_right_answers_pass_on_whatever_machine_adds(name):
    """EVERY_CASE=1 tries all right answers; this, two."""
    exercise = EXERCISES[name]
    answers = [exercise.reference, *(each for other, each in RIGHT if other == name)]
    for answer in some(answers, 2):
        found = []
        for args, right in zip(exercise.inputs(), expected(exercise), strict=True):
            if len(found) != 1:  # one reading is none to choose from
                found = [difference(each, right) for each in exercise.run(answer, *args)]
                reading = found.index(None)
            with one_layout(reading):  # the others take most of the time
                result = exercise.run(rough(answer), *args)[reading]
            assert difference(result, right) is None, answer


def test_the_bad_arithmetic_is_bad():
    x = torch.rand(50, 40, generator=torch.Generator().manual_seed(0))
    for function in (lambda x: x @ x.T, lambda x: x.sum(-1), lambda x: x.softmax(-1), torch.exp):
        error = (rough(function)(x) / function(x) - 1).abs().max()
        assert 1e-7 < error < 1e-5, function


@pytest.mark.parametrize(
    "got, expected, words",
    [
        (torch.zeros(2, 3), torch.zeros(3, 2), "expected shape (L, S) = (3, 2), got (2, 3)"),
        (torch.zeros(1, 2, 3), torch.zeros(1, 3, 2), "expected shape (..., L, S) = (1, 3, 2)"),
        (torch.ones(2, 3, dtype=torch.long), torch.ones(3, 2), "expected shape (L, S) = (3, 2)"),
        (
            torch.ones(1, 3),
            torch.tensor([[1.0, 3, 1]]),
            "3 at [0, 1], got 1; 1 of 3 entries differ",
        ),
        (torch.zeros(2, 2), torch.eye(2), "expected 1 at [0, 0], got 0; 2 of 4 entries differ"),
        (torch.ones(1, 1, dtype=torch.long), torch.ones(1, 1), "floating point entries, got"),
        (torch.ones(1, 1) * 1j, torch.ones(1, 1, dtype=torch.long), "expected integer entries"),
        (torch.ones(1, 1) > 0, torch.ones(1, 1, dtype=torch.long), "expected integer entries"),
        (torch.ones(1, 1), torch.ones(1, 1) > 0, "expected true/false entries"),
        (torch.zeros(1), torch.tensor(0.0), "expected shape"),
        ((1, 2, 3), (torch.zeros(1), torch.zeros(1)), "expected a tuple of 2 tensors"),
        (
            (torch.zeros(1), torch.ones(1)),
            (torch.zeros(1),) * 2,
            "item 1 of the tuple (0 right): expec",
        ),
        ((torch.ones(2), torch.ones(2)), (torch.ones(2), torch.ones(3)), "shape (S) = (3,), got"),
        ("ab", (torch.zeros(1), torch.zeros(1)), "expected a tuple of 2 tensors, got a str"),
        (None, 3.0, "expected a number, got None (is a `return` missing?)"),
        (None, torch.ones(1), "expected a torch.Tensor, got None (is a `return` missing?)"),
        ("3", 3, "expected a number, got a str"),
        (10**400, 3, "expected a number, got a int"),
        (np.int64(4), 3, "expected 3, got 4"),
        (3.7, torch.tensor(3), "expected 3, got 3.7"),
        (1j, 1.0, "expected a number, got a complex"),
        (torch.ones(2, 1), (1, 2), "expected a tuple of 2 numbers, got one tensor"),
        (torch.ones(2), (1, 2), "item 1 of the tuple (0 right): expected 2, got 1"),
        (np.zeros(2), torch.ones(2), "expected 1 at [0], got 0; 2 of 2 entries differ"),
        (np.array([None]), torch.ones(1), "expected a torch.Tensor, got a numpy.ndarray"),
        (torch.tensor([[NAN]]), torch.ones(1, 1), "NaN at [0, 0], where 1 was expected"),
    ],
)
def test_difference_names_the_first_difference(got, expected, words):
    names = "L|S" if isinstance(expected, tuple) else "L S"
    assert words in difference(got, expected, names)


SOME = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.5]])


@pytest.mark.parametrize(
    "got, words",
    [
        (2 * SOME, "6 of 6 entries differ: each is 2 times what it should be"),
        (-SOME, "each is -1 times what it should be"),
        (SOME / 3**0.5, "each is 0.5774 times what it should be"),
        (SOME + 0.25, "each is 0.25 too large"),
        (SOME - 1, "each is 1 too small"),
        (SOME.T, "got (3, 2): the right numbers, with the last two dimensions exchanged"),
        (SOME[None], "got (1, 2, 3): the right numbers, in another shape"),
        (SOME.reshape(3, 2), "got (3, 2): the right numbers, in another shape"),
        (
            SOME / (1 + 1e-3 * SOME.abs()),
            "none by as much as 1% of the largest, as from a small number added",
        ),
        (SOME.bfloat16().float() + 1e-3, "expected 1 at [0, 0], got 1.001"),
        (SOME * 1.0004, "expected 1 at [0, 0], got 1.0004; 5 of 6 entries differ: none by as"),
    ],
)
def test_what_all_entries_have_in_common_is_told(got, words):
    assert words in difference(got, SOME)


@pytest.mark.parametrize("got", [SOME**2, SOME.sort().values, SOME.T.contiguous() * 2, SOME * 0])
def test_where_they_have_nothing_in_common_nothing_is_told(got):
    told = difference(got, SOME)
    assert "each is" not in told and "right numbers" not in told and "none by" not in told


@pytest.mark.parametrize(
    "got, expected",
    [
        (torch.full((1, 1), INF), torch.zeros(1, 1)),
        (torch.tensor([1.0, 2]), torch.tensor([INF, 2])),
        (torch.tensor([-INF, 2]), torch.tensor([INF, 2])),
        (torch.tensor([INF, 3]), torch.tensor([INF, 2])),  # the finite ones are looked at as well
        (torch.tensor([INF, 2]), torch.tensor([NAN, 2])),
        (torch.tensor([NAN]), torch.tensor([INF])),
    ],
)
def test_infinities_and_nan_are_equal_to_themselves_alone(got, expected):
    assert difference(got, expected)
    assert difference(expected, got)
    assert difference(expected.clone(), expected) is None


@pytest.mark.parametrize("dtype", compare.TOLERANCE)
@pytest.mark.parametrize("size", [1e-3, 1.0, -1.0, 1e3])
def test_rounding_is_no_difference_and_anything_larger_is(dtype, size):
    one = (torch.linspace(0.5, 1, 9, dtype=torch.float64) * size).to(dtype)
    tolerance = compare.TOLERANCE[dtype]
    assert difference(one.double() + 0.9 * tolerance * one.abs().max(), one) is None
    assert difference(one.double() + 1.1 * tolerance * one.abs().max(), one)
    assert difference(one.double() - 1.1 * tolerance * one.abs().max(), one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_four_sums_of_64_terms_pass_also_if_calculated_in_float32(dtype):
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(64, 64, generator=rng, dtype=torch.float64) / 8
    right = x @ x @ x @ x @ x
    got = rough(lambda x: x @ x @ x @ x @ x)(x.float())
    assert (got - right).abs().max() > 1e-6
    assert difference(got.to(dtype), right.to(dtype)) is None


def test_the_coarser_of_two_formats_counts():
    third = torch.tensor([1 / 3], dtype=torch.float64)
    assert difference(third.half(), third) is None
    assert difference(third, third.half()) is None


def test_entries_are_measured_against_the_largest():
    expected = torch.tensor([1e-5, 100.0])  # what is left of terms around 100 that cancel
    assert difference(torch.tensor([2e-5, 100.0]), expected) is None
    assert difference(torch.tensor([1e-5, 100.1]), expected)


def test_nothing_may_come_as_next_to_nothing():
    nothing = torch.zeros(3)
    assert difference(nothing.double() + 1e-12, nothing) is None  # a wider format has no 0 there
    assert difference(nothing + 1e-6, nothing)


@pytest.mark.parametrize(
    "got, expected",
    [
        (3.0, torch.tensor(3.0)),
        (3, torch.tensor(3.0)),
        (np.int64(3), 3),
        (np.float32(3), 3.0),
        (Fraction(1, 2), 0.5),
        (torch.tensor(3), 3.0),
        (torch.tensor(28800.0), 28800),
        (True, 1),
        ([torch.ones(1), 2.0], (torch.ones(1), 2)),
        (torch.ones(2).requires_grad_(), torch.ones(2)),
        (torch.ones(0, 3), torch.ones(0, 3)),
        (INF, INF),
    ],
)
def test_a_number_may_come_in_any_form_and_tensors_in_a_list(got, expected):
    assert difference(got, expected) is None


@pytest.mark.parametrize("number", [28800, 2**40])
def test_whole_numbers_are_exact(number):
    assert difference(number, number) is None
    assert difference(number + 1, number) and difference(number - 1, number)
    assert difference(torch.tensor(number + 1), torch.tensor(number))


class Stubborn(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise ArithmeticError


@pytest.mark.parametrize(
    "make",  # when it is asked for: torch imports a lot for the first jagged tensor
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.empty(3, 3, device="meta"),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        lambda: torch.eye(3).as_subclass(Stubborn),
    ],
    ids=["sparse", "meta", "nested", "jagged", "stubborn"],
)
def test_what_cannot_be_read_is_told_so(make):
    unreadable = make()
    assert read(unreadable) is None
    assert "unreadable" in difference(unreadable, torch.eye(3))


def test_reading_takes_tensors_and_arrays_alone():
    assert read(torch.tensor([1, 2])).tolist() == [1.0, 2.0]
    assert not read(torch.ones(2, requires_grad=True)).requires_grad
    assert read(np.array([1, 2])).tolist() == [1.0, 2.0]
    assert read(np.arange(3)[::-1]).tolist() == [2.0, 1.0, 0.0]  # not a layout of PyTorch's
    unread = None, 3, "x", [1.0], np.array([None])
    assert [read(each) for each in unread] == [None] * 5
