"""What a learner reads: right answers pass, each mistake has its sentence, whoever is at fault."""

import functools
import re

import pytest
import torch
from torch import nn

from course_utils import check
from course_utils.checks import errors, judge
from course_utils.checks import exercise as exercises
from course_utils.checks.exercise import EXERCISES, NO_FIT, Exercise, NamedMistake, call_with_clones
from course_utils.checks.judge import BrokenCheck, WrongAnswer

ONES = torch.ones(2, 3)
INPUTS = [(ONES,), (3 * ONES[:1],)]
SQUARE = ("square", "that is the square", lambda x: x * x)


@pytest.fixture
def exercise(monkeypatch):
    """Return a function that makes an exercise, to double, in place of the course's."""
    monkeypatch.setattr(exercises, "EXERCISES", {})
    monkeypatch.setattr(judge, "EXERCISES", exercises.EXERCISES)

    def make(reference=lambda x: 2 * x, inputs=lambda: INPUTS, mistakes=(SQUARE,), **options):
        reference.__name__ = "double"
        return Exercise("9.9", reference, inputs, mistakes, **options)

    return make


def raises(error, condition=lambda *_: True):
    """Return an answer that raises an error, or returns its input where a condition is false."""

    def answer(*args, **_):
        if condition(*args):
            raise error
        return args[0]

    return answer


def without_source(message):
    """Leave out the learner's line: here it may be the row of a table that holds the words."""
    return message.split(", `")[0]


# Right answers


def doubled_by_a_new_layer(x):
    layer = nn.Linear(3, 3, bias=False)
    nn.init.eye_(layer.weight)
    return layer(2 * x)


@pytest.mark.parametrize(
    "answer",
    [
        lambda x: x + x,
        lambda x: torch.stack([x, 2 * x])[1],
        lambda x: 2 * x.double().numpy(),
        lambda x: nn.Parameter(2 * x),
        functools.partial(torch.mul, 2),
        lambda x: 2 * x * bool(torch.manual_seed(1)),  # chance decides nothing
        doubled_by_a_new_layer,
    ],
)
def test_a_right_answer_passes_whatever_its_layout(exercise, answer):
    exercise(inputs=lambda: [(torch.arange(6.0).view(2, 3),)])
    assert check(answer, "double").status == "correct"


def test_an_input_with_nan_may_be_left_as_it_is_but_not_changed(exercise):
    exercise(lambda x: 2 * x.nan_to_num(), lambda: [(torch.tensor([float("nan"), 1.0]),)], [])
    assert check(lambda x: 2 * torch.where(x.isnan(), 0, x), "double").status == "correct"
    assert check(lambda x: 2 * x.nan_to_num_(), "double").mistake == "changes its input"


def test_what_a_right_answer_prints_is_hidden_and_the_verdict_says_so(exercise, capsys):
    exercise()
    verdict = check(lambda x: print("here") or 2 * x, "double")
    assert verdict.status == "correct" and "prints" in verdict.message
    assert "here" not in capsys.readouterr().out


# Wrong answers: the status, the mistake, and words of the message


def asks_for_gradients(x):
    x.requires_grad_().square().sum().backward()
    return x.grad


class Silent(Exception):
    def __str__(self):
        raise KeyError("no words")


@pytest.mark.parametrize(
    "answer, status, mistake, words",
    [
        (raises(NotImplementedError("your turn")), "not attempted", None, "not attempted"),
        (raises(NotImplementedError()), "not attempted", None, "not attempted"),  # as nbgrader's
        (raises(NotImplementedError("sparse")), "wrong", None, "NotImplementedError: sparse"),
        (lambda x: x * x, "wrong", "square", "9.9 double: that is the square"),
        # its result
        (lambda x: x * x + 1j, "wrong", None, "floating point entries, got torch.complex"),
        (lambda x: 2.06 * x.bfloat16(), "wrong", "coarse dtype", "if these are integers."),
        (lambda x: (9 - len(x)) * x - 5, "wrong", None, "expected 6 at [0, 0], got 19; 3 of 3"),
        (lambda x: type("Real", (float,), {"__float__": str})(1), "wrong", None, "type Real"),
        # what it does besides
        (lambda x: 2 * x.unsqueeze_(0)[0], "wrong", "changes its input", "(argument 1) in place"),
        (asks_for_gradients, "wrong", "input asks for gradients", "(argument 1)"),
        (lambda x: x @ torch.randn(3, 3), "wrong", "depends on chance", "is random."),
        (lambda x: x * x + 0 * torch.randn(3), "wrong", "square", "that is the square"),
        (lambda x: nn.Linear(3, 3)(x), "wrong", "layer made anew", "nn.Linear"),
        # its errors, on one line
        (lambda x: unset * x, "wrong", None, "name 'unset' is not defined in line"),  # noqa: F821
        (raises(AssertionError()), "wrong", None, "AssertionError: the condition after `assert`"),
        (raises(Silent()), "wrong", None, "raised Silent in line"),
        (raises(ValueError("a\n b\tc\r\nd")), "wrong", None, "ValueError: a b c d in line"),
        (raises(ValueError("x" * 5000)), "wrong", None, f"{'x' * 199}… in line"),
        (raises(NamedMistake("named", "x" * 5000)), "wrong", "named", "xxx…"),
        # arguments: the exercise's, or those of a call in the answer
        (lambda x, y: 2 * x, "wrong", None, "the line with `def`"),
        (lambda x: (lambda q, k: q)(x), "wrong", None, "a call in this line"),
    ],
)
def test_a_wrong_answer_reads_what_is_wrong(exercise, answer, status, mistake, words):
    exercise()
    verdict = check(answer, "double")
    assert (verdict.status, verdict.mistake) == (status, mistake)
    assert words in without_source(verdict.message)
    assert "\n" not in verdict.message and len(verdict.message) < 700


@pytest.mark.parametrize("answer", [functools.partial(torch.add, "x"), torch.Tensor.view, max])
def test_an_error_without_a_line_of_the_learners_names_none_of_the_courses(exercise, answer):
    exercise()
    message = check(answer, "double").message
    assert "Your code raised" in message and " in line " not in message


def dot(a, b):
    raise NotImplementedError("your turn")


def test_a_stub_of_another_exercise_that_an_answer_calls_is_named():
    verdict = check(lambda a, b: dot(1, 2), "cosine_similarity")
    assert verdict.status == "wrong" and "calls dot," in verdict.message


def test_an_error_of_a_layer_is_the_layers():
    answer = EXERCISES["SelfAttention"].reference
    layer = type("Failing", (answer,), {"__init__": raises(KeyError("x"))})
    verdict = check(layer, "SelfAttention")
    assert verdict.status == "wrong" and "KeyError: 'x'" in verdict.message
    assert check(lambda x: x, "SelfAttention").mistake == "not a class"


NEW_LIST = "(argument 1) in place. Work on a new list."
NEW_DICT = "(argument 2) in place. Work on a new dict."


@pytest.mark.parametrize(
    "answer, words",
    [
        (lambda row, table: row.pop(0), NEW_LIST),
        (lambda row, table: row[1].append(7) or 2, NEW_LIST),
        (lambda row, table: row[2].add_(7) and 2, NEW_LIST),
        (lambda row, table: row.__setitem__(2, 3) or 2, NEW_LIST),
        (lambda row, table: row.insert(0, row.pop(0)) or row[0], "correct"),
        (lambda row, table: table.pop("x"), NEW_DICT),
        (lambda row, table: table["y"].append(7) or 2, NEW_DICT),
        (lambda row, table: table.update(z=3) or 2, NEW_DICT),
        (lambda row, table: table.update(x=table.pop("x")) or table["x"], "correct"),
    ],
)
def test_lists_and_dicts_must_be_left_as_they_were(exercise, answer, words):
    row, table = [2, [3, 4], torch.zeros(1)], {"x": 2, "y": [3]}
    exercise(lambda row, table: row[0], inputs=lambda: [[row, table]], mistakes=[])
    assert words in check(answer, "double").message
    assert row == [2, [3, 4], torch.zeros(1)] and table == {"x": 2, "y": [3]}  # the exercise's


def test_matrices_of_one_shape_are_pictured_at_the_first_difference(exercise):
    exercise()
    verdict = check(lambda x: 2 * x if len(x) == 2 else 7 * x, "double")
    assert verdict.got.tolist() == [[21.0] * 3] and verdict.expected.tolist() == [[6.0] * 3]
    assert check(lambda x: 2 * x[:, :1], "double").got is None


@pytest.mark.parametrize(
    "answer, words",
    [
        (lambda x: 2 * x.permute(0, 1), "right for inputs of 2 dimensions and wrong for more"),
        (lambda x: 2 * x.transpose(2, 1).mT, "wrong without one"),
        (lambda x: 3 * x if x.shape[-1] == 3 else 2 * x, "right for 2 of 3 inputs. Expected 2"),
        (lambda x: 2 * x if x.shape[-1] == 3 else 3 * x, "9.9 double: expected 2 at [0, 0], got"),
        (lambda x: 3 * x, "9.9 double: expected 2 at [0, 0], got 3"),
    ],
)
def test_the_inputs_for_which_an_answer_is_right_are_named(exercise, answer, words):
    exercise(inputs=lambda: [(ONES,), (torch.ones(1, 4),), (torch.ones(2, 3, 4),)], mistakes=[])
    assert words in without_source(check(answer, "double").message)


@pytest.mark.parametrize(
    "answer, words",
    [
        (lambda x, T: x * T * T, ["9.9 double: Your result is the right one times T. Check",
                                  "5 of 6 entries differ (for"]),  # not by which factor here
        (lambda x, T: x * T + x**2, ["double: expected 0.5 at [0, 1], got 1.5; 5 of 6 entries",
                                     "(for inputs of shape (2, 3), 'rows', T = 0.5)"]),
    ],
)  # fmt: skip
def test_what_the_results_show_comes_first_then_numbers_and_their_inputs(exercise, answer, words):
    x = torch.arange(6.0).view(2, 3)
    inputs = [(x, T, "rows", True) for T in (0.5, 2.0, 3.0)]
    exercise(lambda x, T, along, is_causal: x * T, lambda: inputs, mistakes=[])
    message = without_source(check(lambda x, T, *_: answer(x, T), "double").message)
    assert all(each in message for each in words)


# Which mistake is named


def large(x):
    return len(x) == 2


def fails_for_matrices(x):
    return 2 * x if x.ndim < 2 else 2 * x + x.new_ones(9)


def fails_otherwise_for_batches(x):
    return fails_for_matrices(x) if x.ndim < 3 else int("seven")


def views_a_matrix(x):
    return 2 * x if x.ndim < 2 else (2 * x).mT.view(-1)


FAILS_FOR_MATRICES = ("fails for matrices", "", lambda x: fails_for_matrices(x))
FIRST = ("first", "", raises(ValueError("first")))
FAILS = ("fails", "", raises(ValueError("these words"), large))
ROWS = ("rows", "", fails_for_matrices)
DIMENSIONS = [(ONES[0],), (ONES,), (ONES[None],)]


@pytest.mark.parametrize(
    "answer, mistakes, inputs, named",
    [
        (lambda x: x * x, [SQUARE, ("again", "", lambda x: x**2)], INPUTS, "square"),
        (torch.clone, [SQUARE], INPUTS, None),  # at ones it is the square as well
        (lambda x: torch.matmul(x, x), [("product", "", lambda x: x @ x)], INPUTS, "product"),
        (raises(ValueError("first")), [FIRST], INPUTS, "first"),  # errors alone, by their words
        (raises(ValueError("third")), [FIRST], INPUTS, None),
        (raises(ValueError("other words"), large), [FAILS], INPUTS, "fails"),
        (raises(KeyError(), large), [FAILS], INPUTS, None),
        (torch.clone, [FAILS], INPUTS, None),
        (fails_otherwise_for_batches, [ROWS], DIMENSIONS, "rows"),
        (raises(ValueError(), lambda x: x.ndim > 1), [ROWS], DIMENSIONS, None),
        (views_a_matrix, [FAILS_FOR_MATRICES], DIMENSIONS[:2], None),  # its error has its own cause
        (fails_for_matrices, [FAILS_FOR_MATRICES], DIMENSIONS[:2], "fails for matrices"),
    ],
)
def test_a_mistake_is_named_if_results_or_errors_are_its(exercise, answer, mistakes, inputs, named):
    exercise(mistakes=mistakes, inputs=lambda: inputs)
    verdict = check(answer, "double")
    assert (verdict.status, verdict.mistake) == ("wrong", named)


def sum_and_share(x):
    total = x.sum(-1, keepdim=True)
    return total, x / total


MEAN = ("mean", "the mean", lambda x: (x.mean(-1, keepdim=True), x / x.mean(-1, keepdim=True)))


@pytest.mark.parametrize(
    "answer, mistake, words",
    [
        (lambda x: (x.mean(-1, keepdim=True), x / x.sum(-1, keepdim=True)), "mean", "e: the mean"),
        # wrong where the mistake is right
        (lambda x: (x.mean(-1, keepdim=True), x), "mean", "need not be yours: the mean"),
        (lambda x: (x.sum(-1, keepdim=True) + (len(x) > 2), x**3), None, "3 at [0, 0], got 4; 3"),
        (lambda x: (x.sum(-1, keepdim=True), x), None, "Item 1 of your result is x, as it came"),
        (lambda x: (x.sum(-1, keepdim=True), x**3), None, "item 1 of the tuple (item 0 is right)"),
    ],
)
def test_of_a_tuple_the_first_wrong_item_names_the_mistake(exercise, answer, mistake, words):
    given = [ONES, 1 + torch.arange(6.0).view(2, 3), 3 * torch.ones(3, 1)]
    exercise(sum_and_share, lambda: [(x,) for x in given], [MEAN])
    verdict = check(answer, "double")
    assert verdict.mistake == mistake and words in verdict.message
    assert verdict.message.lower().count("item 1") <= 1


def test_items_in_another_order_get_the_positions_to_move_them_to(exercise):
    exercise(lambda x: (x, 2 * x, 3 * x), mistakes=[])
    verdict = check(lambda x: (2 * x, 3 * x, x), "double")
    assert verdict.mistake == "another order" and " 1, 2, 0" in verdict.message


@pytest.mark.parametrize("factor, mistake", [(2, "roundabout"), (1, None)])
def test_how_a_result_is_made_is_said_only_if_it_is_right(exercise, factor, mistake):
    def run(answer, x):
        results = call_with_clones(answer, x)
        if answer.__name__ != "double":
            raise NamedMistake("roundabout", "right, but roundabout", results)
        return results

    exercise(run=run, mistakes=[])
    assert check(lambda x: x * factor, "double").mistake == mistake


LAYOUTS = {  # the factor of x that each gives for the first input and for the second
    "right wrong": ([(2, 2), (3, 3)], "correct"),
    "wrong right": ([(3, 3), (2, 2)], "correct"),
    "unfit right": ([(0, 0), (2, 2)], "correct"),
    "unfit wrong": ([(0, 0), (3, 3)], "expected"),
    "none right for both": ([(2, 3), (3, 2)], "expected"),
    "more right than the first": ([(3, 7), (5, 2)], "got 5"),
    "none fits both": ([(0, 2), (2, 0)], "No single layout"),
}


@pytest.mark.parametrize("layouts, words", LAYOUTS.values(), ids=LAYOUTS)
def test_one_layout_of_parameters_must_be_right_on_all_inputs(exercise, layouts, words):
    def run(answer, x):
        factors = [layout[len(x) == 1] for layout in layouts]
        others = [factor * x if factor else NO_FIT for factor in factors]
        return call_with_clones(answer, x) if answer is made.reference else others

    made = exercise(run=run, mistakes=[])
    verdict = check(lambda x: 2 * x, "double")
    assert words in verdict.message and (verdict.status == "correct") == (words == "correct")


# Whose error

FAULT = raises(KeyError("fault"))


def run_fails_after(answer, x):
    (result,) = call_with_clones(answer, x)
    return [result / torch.ones(4)]  # a RuntimeError, which a mistake may raise


def run_fails_for_the_square(answer, x):
    (result,) = call_with_clones(answer, x)
    return [result if result.max() > 1 else result / torch.ones(4)]


def run_fails_for_the_wrong(answer, x):
    (result,) = call_with_clones(answer, x)
    return [result] if torch.equal(result, 2 * x) else dot(1, 2)  # as from a stub


@pytest.mark.parametrize(
    "options, words",
    [
        ({"inputs": FAULT}, "KeyError: 'fault'"),
        ({"reference": FAULT}, "KeyError: 'fault'"),
        ({"run": FAULT}, "KeyError: 'fault'"),
        ({"run": run_fails_after}, "RuntimeError: The size of tensor a"),
        ({"run": run_fails_for_the_square, "mistakes": [SQUARE]}, "RuntimeError: The size of"),
        ({"run": run_fails_for_the_wrong}, "NotImplementedError"),
        ({"mistakes": [("mistaken", "", FAULT)]}, "KeyError: 'fault'"),
        ({"mistakes": [("mistaken", "", lambda x: None.shape)]}, "AttributeError"),
    ],
)
def test_a_fault_of_the_check_is_not_blamed_on_the_answer(exercise, options, words, monkeypatch):
    recorded = []
    monkeypatch.setattr(judge, "record", lambda *args: recorded.append(args))
    exercise(**{"mistakes": []} | options)
    verdict = check(lambda x: 3 * x, "double")
    assert (verdict.status, verdict.mistake, recorded) == ("not checked", None, [])
    assert verdict.message.startswith("⚠️ 9.9 double: ") and "report" in verdict.message
    assert words in verdict.message and "\n" not in verdict.message
    where = r"\((?!test_)\w+\.py:\d+, Python [\d.]+\w*, torch [\d.]+"  # a file of the course
    assert re.search(where, verdict.message)
    monkeypatch.setenv("COURSE_STRICT", "1")
    with pytest.raises(BrokenCheck):
        check(lambda x: 3 * x, "double")


# Names


def dot_product_score(q, k):
    return q @ k.mT


@pytest.mark.parametrize(
    "given, words",
    [
        ((lambda a, b: a @ b,), "'<lambda>'. Name the exercise in quotes, as in `check(f, \"dot"),
        ((dot_product_score,), "Did you mean dot_product_scores?"),
        ((max, "selfattention"), "Did you mean SelfAttention?"),
        ((max, "y\n" * 10_000), r"'y\ny\ny"),
        ((max, ["dot"]), "no exercise ['dot']"),
        ((3, "dot"), "`check(dot)`, not `check(dot(a, b))`"),
        ((functools.partial(max),), "no exercise 'partial'"),
    ],
)
def test_an_unknown_name_gets_the_nearest_and_the_way_to_give_one(given, words, monkeypatch):
    monkeypatch.setenv("COURSE_STRICT", "0")  # not strict
    verdict = check(*given)
    assert verdict.status == "wrong" and words in verdict.message
    assert len(verdict.message) < 250 and "\n" not in verdict.message
    monkeypatch.setenv("COURSE_STRICT", "1")
    with pytest.raises(WrongAnswer):
        check(*given)


@pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")
def test_a_scripted_answer_has_its_name():
    assert check(torch.jit.script(EXERCISES["dot"].reference)).status == "correct"


def test_no_hint_of_the_course_is_cut():
    hints = [mistake.hint for each in EXERCISES.values() for mistake in each.mistakes]
    assert all(errors.on_one_line(hint, 600) == hint for hint in hints)
