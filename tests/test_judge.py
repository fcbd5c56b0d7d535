"""How an answer is judged: whose error it is, under which settings, and how it is told."""

import functools
import platform
import random
import re

import numpy as np
import pytest
import torch
from torch import nn

from course_utils import check
from course_utils.checks import errors, judge
from course_utils.checks import exercise as exercises
from course_utils.checks.exercise import EXERCISES, NO_FIT, Complaint, Exercise, call_with_clones
from course_utils.checks.judge import BrokenCheck, WrongAnswer, usual_settings

ONES = torch.ones(2, 3)
SQUARE = ("square", "that is the square", lambda x: x * x)


@pytest.fixture
def exercise(monkeypatch):
    """Return a function that makes an exercise of its own, to double, in place of the course's."""
    monkeypatch.setattr(exercises, "EXERCISES", {})
    monkeypatch.setattr(judge, "EXERCISES", exercises.EXERCISES)

    def double(x):
        return 2 * x

    def make(
        reference=double, inputs=lambda: [(ONES,), (3 * ONES[:1],)], mistakes=(SQUARE,), **kind
    ):
        reference.__name__ = "double"
        return Exercise("9.9", reference, inputs, mistakes, **kind)

    return make


def by_zero(*_, **__):
    return 1 / 0


# Whose error


def inputs_then_fail():
    yield (ONES,)
    by_zero()


def run_fails_before(answer, x):
    by_zero()


def run_fails_after(answer, x):
    (result,) = call_with_clones(answer, x)
    return [result / torch.ones(4)]  # a RuntimeError, as of a wrong answer


def run_fails_for_the_wrong(answer, x):
    (result,) = call_with_clones(answer, x)
    if not torch.equal(result, 2 * x):
        raise NotImplementedError  # as from the stub of an exercise
    return [result]


def typo(x):
    return undefined_name * x  # noqa: F821


FAULTS = {
    "inputs": ({"inputs": by_zero}, "ZeroDivisionError: division by zero"),
    "later inputs": ({"inputs": inputs_then_fail}, "ZeroDivisionError: division by zero"),
    "reference": ({"reference": lambda x: 1 / 0}, "ZeroDivisionError: division by zero"),
    "run before the answer": ({"run": run_fails_before}, "ZeroDivisionError: division by zero"),
    "run after the answer": ({"run": run_fails_after}, "RuntimeError: The size of tensor a"),
    "run for wrong answers": ({"run": run_fails_for_the_wrong}, "NotImplementedError"),
}


@pytest.mark.parametrize("kind, words", FAULTS.values(), ids=FAULTS)
def test_a_fault_of_the_check_is_not_told_as_the_answers(exercise, kind, words):
    exercise(mistakes=[], **kind)  # which might show the fault as well
    verdict = check(lambda x: 3 * x, "double")
    assert verdict.status == "not checked" and verdict.mistake is None
    assert verdict.message.startswith("⚠️ 9.9 double: this check is broken and cannot judge your")
    assert words in verdict.message and "\n" not in verdict.message
    files = "judge|exercise|sandbox"  # none of others
    assert re.search(rf"\(({files})\.py:\d+, Python", verdict.message)


@pytest.mark.parametrize("mistake", [typo, by_zero, lambda x: None.shape, lambda x: {}[x]])
def test_a_mistake_that_fails_by_its_authors_fault_is_told_so(exercise, mistake):
    exercise(mistakes=[("mistaken", "a mistake with a mistake", mistake)])
    assert check(lambda x: 3 * x, "double").status == "not checked"
    assert check(mistake, "double").status == "not checked"  # or the tests would not see it
    assert check(lambda x: x + x, "double").status == "correct"


def test_a_mistake_may_raise_as_shapes_do_that_do_not_fit(exercise):
    exercise(mistakes=[("product", "it multiplies matrices", lambda x: x @ x)])
    assert check(lambda x: torch.matmul(x, x), "double").mistake == "product"


def test_a_mistake_may_not_fail_in_run(exercise):
    def run(answer, x):
        (result,) = call_with_clones(answer, x)
        return [result if result.equal(2 * x) else result / torch.ones(4)]

    exercise(run=run)
    assert check(lambda x: 2 * x, "double").status == "correct"
    assert check(lambda: None, "double").status == "not checked"


def test_a_mistake_is_calculated_as_far_as_the_answer_goes_with_it(exercise):
    calculated = []

    def square(x):
        calculated.append(len(x))
        return x * x

    exercise(
        inputs=lambda: [(ONES,), (3 * ONES[:1],), (torch.full((5,), 4.0),)],
        mistakes=[("square", "that is the square", square), ("x", "x itself", lambda x: x)],
    )
    assert check(lambda x: x.clone(), "double").mistake == "x"
    assert calculated == [2, 1]  # at ones it is the square as well
    assert check(lambda x: x * x, "double").mistake == "square"
    assert calculated == [2, 1, 5]  # each once, whoever asks


def test_a_mistake_draws_on_from_input_to_input_as_an_answer_does(exercise):
    class double(nn.Module):
        def forward(self, x):
            return 2 * x

    class Draws(nn.Module):
        def forward(self, x):
            return torch.rand(x.shape)

    exercise(
        double,
        inputs=lambda: [(torch.rand(2, 3),), (ONES,), (ONES,)],
        mistakes=[("draws", "it draws", Draws)],
        run=lambda answer, x: [answer()(x)],
    )
    assert check(Draws, "double").mistake == "draws"


def test_what_to_report_is_on_the_line(exercise, monkeypatch):
    exercise(reference=lambda x: errors.on_one_line(x, 5))  # fails in a file of the course
    verdict = check(lambda x: 3 * x, "double")
    line = errors.on_one_line.__code__.co_firstlineno + 2
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    place = f"(errors.py:{line}, {versions})"
    assert verdict.message.endswith(place)
    assert "line: TypeError: Tensor.split() missing 1 required" in verdict.message


def test_in_strict_mode_a_broken_check_raises(exercise, monkeypatch):
    monkeypatch.setenv("COURSE_STRICT", "1")
    exercise(inputs=by_zero)
    with pytest.raises(BrokenCheck, match="9.9 double: this check is broken") as raised:
        check(lambda x: 2 * x, "double")
    assert not isinstance(raised.value, WrongAnswer)


def test_a_broken_check_is_no_progress_and_takes_none_away(exercise, monkeypatch):
    noted = []
    monkeypatch.setattr(judge, "record", lambda *each: noted.append(each))
    exercise(inputs=by_zero)
    check(lambda x: 2 * x, "double")
    assert noted == []


class Doubles:
    def __call__(self, x):
        return self.missing * x


OWN_ERRORS = [
    (by_zero, "it raised ZeroDivisionError: division by zero"),
    (typo, "it raised NameError: name 'undefined_name' is not defined"),
    (Doubles(), "it raised AttributeError: 'Doubles' object has no attribute 'missing'"),
    (functools.partial(torch.add, "x"), "it raised TypeError: add()"),
    (torch.Tensor.view, "it raised TypeError: view()"),
    (max, "it raised RuntimeError: Boolean value of Tensor"),
    (lambda: 1, "it raised TypeError"),
    (lambda x, y: 1, "it raised TypeError"),
    (lambda x: x.softmax("y"), "it raised TypeError"),
    (lambda x: check(x.nothing), "it raised AttributeError"),
]


@pytest.mark.parametrize("answer, words", OWN_ERRORS)
def test_an_error_of_the_answer_is_its_own(exercise, answer, words):
    exercise()
    verdict = check(answer, "double")
    assert verdict.status == "wrong" and words in verdict.message


def failing(name):
    """Return a right layer with a method that fails."""
    return type("Failing", (EXERCISES["SelfAttention"].reference,), {name: by_zero})


@pytest.mark.parametrize("name", ["__init__", "forward", "__call__", "eval", "train"])
def test_an_error_of_a_layer_is_its_own(name):
    verdict = check(failing(name), "SelfAttention")
    assert verdict.status == "wrong" and "ZeroDivisionError" in verdict.message


def leaves_a_hook(layer, x, head):
    layer.register_forward_hook(lambda *_: 3)
    return x


def leaves_a_float32_layer(theirs, ours):
    ours.W_q.float()


def expands(theirs, ours):
    ours.W_q.weight.data = theirs.in_proj_weight.data[:1].expand(theirs.embed_dim, -1)


@pytest.mark.parametrize(
    "name, answer",
    [
        ("without_head", leaves_a_hook),
        ("copy_weights", leaves_a_float32_layer),
        ("copy_weights", expands),
    ],
)
def test_what_an_answer_leaves_behind_is_its_own(name, answer):
    assert check(answer, name).status == "wrong"


# Random numbers


def test_inputs_that_draw_are_the_same_at_each_call(exercise):
    exercise(inputs=lambda: [(torch.rand(2, 3) + random.random() + np.random.rand(),)])  # noqa: NPY002
    for _ in range(3):
        assert check(lambda x: x + x, "double").status == "correct"


@pytest.mark.parametrize("seed", [0, 1, 42, 1234])
def test_a_seed_is_seen_whatever_the_notebook_has_seeded(exercise, seed):
    def seeds(x):
        torch.manual_seed(seed)
        return 2 * x

    exercise()
    torch.manual_seed(seed)
    assert check(seeds, "double").mistake == "changes the random state"


def test_a_seed_in_one_case_is_enough(exercise):
    def seeds_once(x):
        if len(x) == 2:
            torch.manual_seed(1)
        return 2 * x

    exercise()
    assert check(seeds_once, "double").mistake == "changes the random state"


def test_usual_settings_give_the_same_random_numbers_each_time():
    drawn = set()
    for _ in range(2):
        with usual_settings():
            drawn.add((torch.rand(()).item(), np.random.rand(), random.random()))  # noqa: NPY002
        torch.rand(3)
    assert len(drawn) == 1


# Names


def dot_product_score(q, k):
    return q @ k.mT


class Callable:
    def __call__(self, a, b):
        return a @ b


@pytest.mark.parametrize(
    "given, words",
    [
        (
            (lambda a, b: a @ b,),
            "'<lambda>'; Name the one it answers in quotes: check(f, \"dot\")",
        ),
        ((functools.partial(torch.mul, 2),), """'partial'; Name the one"""),
        ((Callable(),), "'Callable'; Name the one"),
        ((dot_product_score,), "did you mean dot_product_scores?"),
        ((dot_product_score,), 'check(f, "dot_product_scores")'),
        ((max, "Dot_Product_Scores"), "did you mean dot_product_scores?"),
        ((max, "selfattention"), "did you mean SelfAttention?"),
        ((max, "y" * 10_000), "'yyyyyyy"),
        ((max, "a\nb"), r"'a\nb'"),
        ((max, ""), "no exercise ''"),
        ((max, 3), "no exercise 3"),
        ((max, ["dot"]), "no exercise ['dot']"),
        ((max, max), "no exercise <built-in function max>"),
        ((3,), "check takes the function itself"),
        ((3, "dot"), "check takes the function itself"),
        ((None,), "check takes the function itself"),
    ],
)
def test_an_unknown_name_gets_the_nearest_and_the_way_to_give_one(given, words, monkeypatch):
    verdict = check(*given)
    assert verdict.status == "wrong" and words in verdict.message
    assert len(verdict.message) < 250 and "\n" not in verdict.message
    assert sum(name in verdict.message.split() for name in EXERCISES) <= 1
    monkeypatch.setenv("COURSE_STRICT", "1")
    with pytest.raises(WrongAnswer):
        check(*given)


def test_strict_mode_is_1_and_nothing_else(monkeypatch):
    monkeypatch.setenv("COURSE_STRICT", "0")
    assert check(lambda a, b: a, "dot").status == "wrong"


# Errors in words


class Silent(Exception):
    def __str__(self):
        raise KeyError("no words")


@pytest.mark.parametrize(
    "error, words",
    [
        (
            AssertionError(),
            "it raised AssertionError: what stands after `assert` is not true in line",
        ),
        (AssertionError("L must be 5"), "it raised AssertionError: L must be 5 in line"),
        (KeyError(), "it raised KeyError in line"),
        (ValueError("\n\n"), "it raised ValueError in line"),
        (
            ValueError("one\n  two\tthree\r\nfour"),
            "it raised ValueError: one two three four in line",
        ),
        (ValueError("x" * 5000), f"it raised ValueError: {'x' * 199}… in line"),
        (ValueError("x" * 200), f"it raised ValueError: {'x' * 200} in line"),
        (Silent(), "it raised Silent in line"),
        (NotImplementedError("not for sparse tensors"), "it raised NotImplementedError: not for"),
        (Complaint("a mistake", "one\ntwo"), "9.9 double: one two"),
        (Complaint("a mistake", "x" * 5000), "xxx…"),
    ],
)
def test_an_error_is_told_on_one_line(exercise, error, words):
    def answer(x):
        raise error

    exercise()
    verdict = check(answer, "double")
    assert verdict.status == "wrong" and words in verdict.message
    assert "\n" not in verdict.message and len(verdict.message) < 700


@pytest.mark.parametrize(
    "factor, mistake, hint", [(2, "roundabout", "right, but"), (1, None, "expected 2")]
)
def test_how_a_result_is_made_is_told_only_if_it_is_right(exercise, factor, mistake, hint):
    def run(answer, x):
        results = call_with_clones(answer, x)
        if x.shape == (1, 3) and answer.__name__ != "double":
            raise Complaint("roundabout", "right, but roundabout", results)
        return results

    exercise(run=run)
    verdict = check(lambda x: x * factor, "double")
    assert verdict.mistake == mistake and hint in verdict.message
    assert check(lambda x: x * x, "double").mistake == "square"


def test_a_small_number_added_to_weights_is_told_from_other_slips():
    def js_divergence(p, q):
        p, q = p + 1e-4, q + 1e-4
        m = (p + q) / 2
        return (p * (p / m).log() + q * (q / m).log()).sum(dim=-1) / 2

    assert "as from a small number added (an eps)" in check(js_divergence).message


def first_taken(given):
    return given.pop(0)


def first_put_again(given):
    given.insert(0, given.pop(0))
    return given[0]


def ending_changed(given):
    given[-1][0] = 7
    return given[0]


LISTS = [
    (first_taken, [[2, 3]], "wrong"),
    (first_put_again, [[2, 3]], "correct"),
    (ending_changed, [[2, [3, 4]]], "wrong"),  # a list in it
    (ending_changed, [[2, torch.zeros(2)]], "wrong"),  # a tensor in it
    (lambda given: given[0], [[2, [3, torch.zeros(2)]]], "correct"),
    (lambda given: given.__setitem__(1, ONES) or 2, [[2, 3]], "wrong"),
    (lambda given: given.__setitem__(1, 3) or 2, [[2, ONES]], "wrong"),
    (lambda given: given.__setitem__(1, 3) or 2, [[2, [3]]], "wrong"),
]


@pytest.mark.parametrize("answer, args, status", LISTS)
def test_a_list_given_must_come_back_as_it_was(exercise, answer, args, status):
    exercise(lambda given: given[0], inputs=lambda: [args], mistakes=[])
    verdict = check(answer, "double")
    assert verdict.status == status
    if status == "wrong":
        assert verdict.mistake == "changes its input"
        assert "(argument 1) in place; work on a new list" in verdict.message
    assert args[0][0] == 2  # the exercise's own


def test_an_input_must_not_ask_for_gradients_afterwards(exercise):
    def by_autograd(x):
        x.requires_grad_()
        x.square().sum().backward()
        return x.grad

    exercise()
    verdict = check(by_autograd, "double")
    assert verdict.mistake == "input asks for gradients" and "(argument 1)" in verdict.message
    assert check(lambda x: by_autograd(x.detach()), "double").status == "correct"


def test_no_hint_of_the_course_is_cut():
    hints = [mistake.hint for each in EXERCISES.values() for mistake in each.mistakes]
    assert all(errors.on_one_line(hint, 600) == hint for hint in hints)


@pytest.mark.parametrize("message", [(), ("your turn",)])
def test_a_stub_is_known_by_its_words(exercise, message):
    def double(x):
        raise NotImplementedError(*message)

    exercise()
    assert check(double).status == "not attempted"


def dot(a, b):
    raise NotImplementedError("your turn")


class SelfAttention(nn.Module):
    def __init__(self):
        raise NotImplementedError("your turn")


def test_a_stub_of_another_exercise_that_an_answer_calls_is_named():
    for other, name in ((lambda: dot(1, 2), "dot"), (SelfAttention, "SelfAttention")):
        verdict = check(lambda a, b, other=other: other(), "cosine_similarity")
        assert verdict.status == "wrong"
        assert verdict.message.endswith(f"it calls {name}, which is not solved yet")
    assert check(dot).status == "not attempted"


# Readings


@pytest.mark.parametrize(
    "readings, status",
    [
        (("right", "wrong"), "correct"),
        (("wrong", "right"), "correct"),
        (("wrong", "wrong"), "wrong"),
        (("first", "second"), "wrong"),  # all inputs are right under another reading
        (("unfit", "right"), "correct"),
        (("right", "unfit"), "correct"),
        (("unfit", "wrong"), "wrong"),
        (("unfit first", "unfit second"), "wrong"),
        (("right on the first, unfit on the second", "wrong"), "wrong"),
    ],
)
def test_one_reading_must_be_right_on_all_inputs(exercise, readings, status):
    def result(reading, x):
        first = len(x) == 2
        return {
            "right": 2 * x,
            "wrong": 3 * x,
            "first": 2 * x if first else 3 * x,
            "second": 3 * x if first else 2 * x,
            "unfit": NO_FIT,
            "unfit first": NO_FIT if first else 2 * x,
            "unfit second": 2 * x if first else NO_FIT,
            "right on the first, unfit on the second": 2 * x if first else NO_FIT,
        }[reading]

    def run(answer, x):
        (doubled,) = call_with_clones(answer, x)
        return [doubled] if answer is made.reference else [result(each, x) for each in readings]

    made = exercise(run=run, mistakes=[])
    verdict = check(lambda x: 2 * x, "double")
    assert verdict.status == status
    if status == "wrong":
        fit = "expected" if "wrong" in readings or "first" in readings else "no single reading"
        assert fit in verdict.message


def test_a_result_of_none_is_no_reading(exercise):
    exercise()
    assert "got None (is a `return` missing?)" in check(lambda x: None, "double").message


def test_the_first_input_that_differs_is_told_after_one_that_is_right(exercise):
    exercise()
    verdict = check(lambda x: 2 * x if len(x) == 2 else 7 * x, "double")
    assert "expected 6 at [0, 0], got 21; 3 of 3 entries differ" in verdict.message
    assert verdict.message.endswith("(for inputs of shape (1, 3))")
    assert verdict.got.tolist() == [[21.0] * 3] and verdict.expected.tolist() == [[6.0] * 3]


def test_only_what_has_the_expected_shape_is_pictured(exercise):
    exercise()
    assert check(lambda x: 2 * x[:, :1], "double").got is None
    assert check(lambda x: 2 * x > 0, "double").got is not None
    assert check(lambda x: (2 * x).to("meta"), "double").got is None


def test_of_mistakes_with_the_same_results_the_first_is_told(exercise):
    exercise(mistakes=[SQUARE, ("again", "that is the square, too", lambda x: x**2)])
    assert check(lambda x: x * x, "double").message.endswith("that is the square")


def test_errors_alone_name_a_mistake_by_their_words(exercise):
    def first(x):
        raise ValueError("first")

    def second(x):
        raise ValueError("second")

    exercise(mistakes=[("first", "the first", first), ("second", "the second", second)])
    assert check(second, "double").mistake == "second"
    assert check(lambda x: int("third"), "double").mistake is None


def test_errors_and_results_name_a_mistake_whatever_the_words(exercise):
    def fails_on_the_first(x):
        if len(x) == 2:
            raise ValueError("these words")
        return x

    def fails_in_other_words(x):
        if len(x) == 2:
            raise ValueError("other words")
        return x

    def fails_otherwise(x):
        if len(x) == 2:
            raise KeyError
        return x

    exercise(mistakes=[("it fails", "it fails on the first", fails_on_the_first)])
    assert check(fails_in_other_words, "double").mistake == "it fails"
    assert check(fails_otherwise, "double").mistake is None
    verdict = check(lambda x: x, "double")  # it does not fail where the mistake does
    assert (verdict.status, verdict.mistake) == ("wrong", None)


# What it is sure of


def sum_and_share(x):
    total = x.sum(-1, keepdim=True)
    return total, x / total


def mean_and_share(x):
    return x.mean(-1, keepdim=True), x / x.mean(-1, keepdim=True)


MEAN = ("mean", "that is the mean", mean_and_share)


@pytest.mark.parametrize(
    "answer, mistake, words",
    [
        (lambda x: sum_and_share(x)[::-1], "another order", "in the places 1, 0"),
        # the mistake's own first item is all that is the same
        (lambda x: (x.mean(-1, keepdim=True), x), "mean", "that is the mean"),
        (lambda x: (x.sum(-1, keepdim=True), x), None, "item 1 of the tuple (0 right)"),
        (lambda x: (x, x / x.mean(-1, keepdim=True)), None, "item 0 of the tuple: "),
    ],
)
def test_of_a_tuple_the_first_wrong_item_names_the_mistake(exercise, answer, mistake, words):
    exercise(sum_and_share, lambda: [(ONES,), (1 + torch.arange(6.0).view(2, 3),)], [MEAN])
    verdict = check(answer, "double")
    assert verdict.mistake == mistake and words in verdict.message


def fails_for_matrices(x):
    return 2 * x if x.ndim < 2 else 2 * x + x.new_ones(9)


@pytest.mark.parametrize("words, mistake", [("size of tensor", "for rows"), ("else", None)])
def test_errors_where_a_mistake_is_wrong_too_name_it_if_one_is_the_same(exercise, words, mistake):
    def answer(x):
        if x.ndim == 3 or (x.ndim == 2 and words == "else"):
            raise ValueError(words)
        return fails_for_matrices(x)

    inputs = [(ONES[0],), (ONES,), (ONES[None],)]
    exercise(inputs=lambda: inputs, mistakes=[("for rows", "rows alone", fails_for_matrices)])
    assert check(answer, "double").mistake == mistake


@pytest.mark.parametrize(
    "answer, mistake",
    [
        (lambda x: nn.Linear(3, 3)(x), "layer made anew"),
        (lambda x: x @ torch.randn(3, 3), "changes the random state"),
    ],
)
def test_a_layer_made_at_each_call_is_told_from_other_randomness(exercise, answer, mistake):
    exercise()
    assert check(answer, "double").mistake == mistake


@pytest.fixture
def batched(exercise):
    exercise(inputs=lambda: [(ONES,), (torch.ones(1, 4),), (torch.ones(2, 3, 4),)], mistakes=[])


@pytest.mark.parametrize(
    "answer, words",
    [
        (
            lambda x: 2 * x.permute(0, 1),
            "right for inputs tried of 2 dimensions, not for more (a batch): it works for one",
        ),
        (
            lambda x: 2 * x.transpose(2, 1).transpose(1, 2),
            "right for inputs tried with a batch, not for 2 dimensions alone: it names a dimension",
        ),
        (
            lambda x: 3 * x if x.shape[-1] == 3 else 2 * x,
            "right for 2 of 3 inputs tried: expected 2",
        ),
        (
            lambda x: 2 * x if x.shape[-1] == 3 else 3 * x,  # wrong for a matrix and for a batch
            "9.9 double: expected 2 at [0, 0], got 3",
        ),
        (lambda x: 3 * x, "9.9 double: expected 2 at [0, 0], got 3"),
    ],
)
def test_what_is_right_is_said_before_what_is_not(batched, answer, words):
    assert words in check(answer, "double").message


def test_a_text_is_named_beside_the_shapes(exercise):
    exercise(lambda x, text: 2 * x, lambda: [(ONES, "two words")], [])
    message = check(lambda x, text: 3 * x, "double").message
    assert message.endswith("(for inputs of shape (2, 3), 'two words')")


def test_arguments_that_the_check_gives_are_those_of_the_exercise(exercise):
    exercise()
    for answer in (lambda x, y: 2 * x, lambda: 2):
        assert "keep the line with `def` as it was" in check(answer, "double").message
    own = check(lambda x: (lambda q, k: q)(x), "double").message
    assert "an argument is missing or too many" in own and "`def`" not in own


def test_an_error_without_a_line_of_the_learners_names_none_of_the_courses(exercise):
    exercise()
    for answer in [functools.partial(torch.add, "x"), torch.Tensor.view, lambda: 1]:
        assert " in line " not in check(answer, "double").message
