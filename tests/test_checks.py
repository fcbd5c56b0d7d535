"""The checks: right answers pass however they are written, wrong ones are told what is wrong.

``pytest -k split_heads`` runs the tests of one exercise.
"""

import gc
import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from course_utils import check
from course_utils.checks import compare, judge, known_results
from course_utils.checks import exercise as exercises
from course_utils.checks.compare import difference
from course_utils.checks.exercise import EXERCISES, Exercise
from course_utils.checks.judge import WrongAnswer
from course_utils.checks.lesson_07._suspects import suspect
from course_utils.checks.source_edits import RowDoesNotFit, edited
from wrong_answers import MIRRORED, WRONG

RIGHT = [(e.name, place) for e in EXERCISES.values() for place in range(len(e.also_right) + 1)]
MISTAKES = [(e.name, m) for e in EXERCISES.values() for m in e.mistakes]
FUNCTIONS = [name for name, e in EXERCISES.items() if inspect.isfunction(e.reference)]
CALCULATED = [name for name in EXERCISES if not name.startswith("catches")]  # those give a verdict


def file_of(exercise):
    """Return the path of an exercise's file, as an author opens it."""
    return Path(inspect.getfile(exercise.reference)).relative_to(Path(__file__).parents[1])


def label(value):
    """Return the name of a mistake or an answer, else None."""
    return getattr(value, "name", getattr(value, "__name__", None))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_error_in_an_answer_does_not_break_its_check(name):
    known_results.expected.cache_clear()  # so that the right answer is called after this one

    def answer(*_, **__):
        raise NameError("name 'missing' is not defined")

    verdict = check(answer, name)
    assert verdict.status == "wrong" and "missing" in verdict.message, verdict


def as_arrays(result):
    """Return a result with arrays in place of tensors, also those in a tuple."""
    if isinstance(result, tuple):
        return tuple(map(as_arrays, result))
    can_be = isinstance(result, torch.Tensor) and result.dtype != torch.bfloat16
    return result.detach().numpy() if can_be else result


@pytest.mark.parametrize("name", [each for each in FUNCTIONS if not each.endswith("_kernel")])
def test_an_array_counts_as_the_tensor_it_holds(name):
    reference = EXERCISES[name].reference
    verdict = check(lambda *args: as_arrays(reference(*args)), name)
    of_gradients = "gradient" in verdict.message  # which no array lets through
    assert verdict.status == "correct" or of_gradients, verdict


@pytest.mark.parametrize("name, place", RIGHT)
def test_a_right_answer_passes_however_it_is_written(name, place):
    exercise = EXERCISES[name]
    answer = exercise.right_answers()[place]
    verdict = check(answer, name)
    assert verdict.status == "correct", (
        f"{file_of(exercise)}: {label(answer)}, which should be right, gets {verdict}"
    )


@pytest.mark.parametrize("name, mistake, answer", WRONG + MIRRORED, ids=label)
def test_a_wrong_answer_is_refused_and_only_its_own_mistake_named(name, mistake, answer):
    try:
        answer = answer if callable(answer) else edited(EXERCISES[name].reference, "row", *answer)
    except RowDoesNotFit as error:
        pytest.fail(f"tests/wrong_answers.py, {name}: adapt the edit to the reference: {error}")
    verdict = check(answer, name)
    assert (verdict.status, verdict.mistake) == ("wrong", mistake), verdict


@pytest.mark.parametrize("name, mistake", MISTAKES, ids=label)
def test_each_mistake_is_recognized_and_gets_its_own_hint(name, mistake):
    file, row = file_of(EXERCISES[name]), f"the row {mistake.name!r} of MISTAKES"
    others = {other.name for other in EXERCISES[name].mistakes} - {mistake.name}
    try:
        verdict = check(mistake.answer, name)
    except RowDoesNotFit as error:
        pytest.fail(f"{file}: adapt {row} to the right answer it edits: {error}")
    assert verdict.mistake not in others, (
        f"{file}: {row} gets the message of the row {verdict.mistake!r}: they give the same "
        "results on all inputs; add an input on which they differ, or remove one"
    )
    assert verdict.mistake == mistake.name, f"{file}: the answer of {row} is told {verdict}"
    assert verdict.message == f"❌ {EXERCISES[name].number} {name}: {mistake.hint}"


@pytest.mark.parametrize("name", CALCULATED)
def test_wrong_answers_lie_ten_times_as_far_off_as_rounding_may(name, monkeypatch):
    wide = {dtype: 10 * size for dtype, size in compare.TOLERANCE.items()}
    wide[torch.float16] = compare.TOLERANCE[torch.float16]  # three digits have no such room
    monkeypatch.setattr(compare, "TOLERANCE", wide)
    exercise = EXERCISES[name]
    for mistake in exercise.mistakes:
        results = known_results.mistaken(exercise, mistake)
        pairs = zip(results, known_results.expected(exercise), strict=True)
        off = (isinstance(got, Exception) or difference(got, right) for got, right in pairs)
        assert any(off), (  # at the first input that shows it
            f"{file_of(exercise)}: {mistake.name!r} is hardly wrong on any of the inputs; add one "
            "on which it is"
        )


ODD = [
    torch.tensor(1.0, device="meta"),
    torch.ones(2) * 1j,
    10**400,
    np.array("x"),
    torch._subclasses.FakeTensorMode().from_tensor(torch.ones(2)),
    (torch.ones(2), torch.ones(3, 2).to_sparse()),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXERCISES)
def test_no_odd_result_breaks_a_check(name):
    reference = EXERCISES[name].reference
    for odd in ODD:
        answer = lambda *_, odd=odd, **__: odd  # noqa: E731
        if isinstance(reference, type):
            answer = type(name, (reference,), {"forward": answer})
        verdict = check(answer, name)
        assert verdict.status == "wrong", (odd, verdict)


def tensors(given):
    """Return the tensors in arguments, also those in tuples, lists and dicts."""
    given = list(given.values()) if isinstance(given, dict) else given
    if isinstance(given, list | tuple):
        return [tensor for each in given for tensor in tensors(each)]
    return [given] if isinstance(given, torch.Tensor) else []


@pytest.mark.parametrize("name", [n for n, e in EXERCISES.items() if "01" <= e.lesson <= "05"])
def test_a_check_of_matrices_tries_one_that_is_not_contiguous(name):
    exercise = EXERCISES[name]
    matrices = [each for each in tensors([*exercise.inputs()]) if each.ndim > 1]
    assert not matrices or not all(each.is_contiguous() for each in matrices), (
        f"{file_of(exercise)}: add an input that is not contiguous, such as a transposed one"
    )


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_knows_enough_mistakes_and_right_answers(name):
    # `disagreement` names its other mistakes by looking at what was built: see below.
    fewest = 4 if name == "disagreement" else 5
    names = [mistake.name for mistake in EXERCISES[name].mistakes]
    file = file_of(EXERCISES[name])
    assert len(names) >= fewest, f"{file}: add rows to MISTAKES, to at least {fewest}"
    twice = {each for each in names if names.count(each) > 1}
    assert not twice, f"{file}: rename one row of MISTAKES of those named {twice}"
    assert EXERCISES[name].also_right, (
        f"{file}: write another right answer, in another style (a loop, einsum, NumPy), and give "
        "it to Exercise(..., also_right=[...])"
    )
    number = EXERCISES[name].number
    others = {e.name for e in EXERCISES.values() if e.number == number} - {name}
    assert not others, f"{file}: {number} is the number of {others} as well; take another"


@pytest.fixture
def double(monkeypatch):
    """Return what makes an exercise 9.9, `double`, the only one, with some inputs and mistakes."""
    monkeypatch.setattr(exercises, "EXERCISES", {})
    monkeypatch.setattr(judge, "EXERCISES", exercises.EXERCISES)

    def double(x):
        twice = 2
        return twice * x

    return lambda inputs, mistakes: Exercise(
        "9.9", double, lambda: [(torch.tensor(x),) for x in inputs], mistakes
    )


@pytest.mark.parametrize(
    "change, words",
    [
        ([("three", "2")], "'the row': 'three' stands 0 times in double, not once"),
        ([("twice", "2")], "'the row': 'twice' stands 2 times in double, not once"),
        ([("return twice", "return (twice")], "'the row': '(' was never closed"),
        ([("2\n", "2 * two\n")], "'the row': two is not defined in double"),
    ],
)
def test_a_row_that_no_longer_fits_breaks_itself_alone(double, change, words):
    made = double([1.0, 3.0], [("the row", "a hint", *change), ("square", "squared", "x * x")])
    with pytest.raises(RowDoesNotFit) as raised:
        _ = made.mistakes[0].answer
    assert str(raised.value).startswith(words)
    assert check(lambda x: x + x, "double").status == "correct"
    assert check(lambda x: x**2, "double").mistake == "square"
    verdict = check(lambda x: x + 9, "double")
    assert (verdict.status, verdict.mistake) == ("wrong", None)


def test_a_mistake_is_named_for_the_wrong_results_it_explains_not_for_the_right_ones(double):
    # On 0 and 2 the square is right as well: three results are wrong, and it explains one of them.
    cube = "cube", "Right for 0.", lambda x: x**3
    double([0.0, 0, 2, 2, 3, 4, 5], [("square", "that is the square", lambda x: x * x), cube])

    def explained(results):
        return check(lambda x: results(x).get(int(x), 2 * x), "double").mistake

    assert explained(lambda x: {3: x * x, 4: x + 1, 5: x - 1}) is None
    assert explained(lambda x: {3: x * x, 4: x * x, 5: x}) == "square"
    assert explained(lambda x: {3: x**3, 4: x**3, 5: x**3}) is None  # it is right for 2 as well


def test_a_mistake_that_would_show_where_the_answer_is_right_is_not_named():
    def dot(a, b):  # wrong for one of the inputs, by a mistake that shows in most
        total = (a * b).abs() if len(a) == 12 else a * b
        return total.sum()

    verdict = check(dot, "dot")
    assert verdict.status == "wrong" and verdict.mistake is None, verdict


def vectors(q, keys):
    return lambda: (torch.tensor(q), torch.tensor(keys))


@pytest.mark.parametrize(
    "answer, mistake",
    [
        (vectors([1.0, 0.0], [[1.0, 1.0], [1.0, 1.0], [2.0, 0.0]]), "a tie"),
        (vectors([0.0, 0.0], [[1.0, 1.0], [3.0, 1.0], [2.0, 0.0]]), "a zero vector"),
        (vectors([1.0, 0.0], [[0.0, 0.0], [3.0, 1.0], [2.0, 0.0]]), "a zero vector"),
        (vectors([1.0, 0.0], [[1.0, 1.0], [3.0, 1.0]]), "wrong shapes"),
        (vectors([1.0, 0.0], [[float("nan"), 1.0], [3.0, 1.0], [1.0, 0.0]]), "not finite"),
        (lambda: torch.zeros(2), "not a pair"),
        (lambda: ("near", [[1, 2]] * 3), "not tensors"),
    ],
)
def test_disagreement_says_what_is_wrong_with_the_vectors(answer, mistake):
    verdict = check(answer, "disagreement")
    assert (verdict.status, verdict.mistake) == ("wrong", mistake)


TOO_LARGE = {"if held <= whole / 4": "if i and held > whole / 4"}
SECOND = {"min(fits, key=fits.get)": "sorted(fits, key=fits.get)[:2][-1]"}


@pytest.mark.parametrize("edits, words", [(SECOND, "smaller loss"), (TOO_LARGE, "a quarter of")])
def test_a_cache_that_is_not_the_best_is_too_large_or_loses_more(edits, words):
    verdict = check(edited(EXERCISES["choose_cache"].reference, "row", *edits.items()))
    assert verdict.mistake == "another cache" and words in verdict.message, verdict


# Answers that misbehave


@pytest.mark.parametrize(
    "answer, status, words",
    [
        (lambda q, k: nn.Parameter(q) @ k.mT, "correct", "correct"),
        (lambda q, k: q, "wrong", "expected shape"),
        (lambda q, k: q[..., :1], "wrong", "expected shape (L, S) = (5, 7), got (5, 1)"),
        (lambda q, k: None, "wrong", "is a `return` missing?"),
        (lambda q, k: (q @ k.mT).numpy(), "correct", "no gradient gets through"),
        (lambda q, k: (q @ k.mT).numpy().astype(object), "wrong", "got a numpy.ndarray"),
        (lambda q, k: (q @ k.mT).tolist(), "wrong", "expected a torch.Tensor, got a list"),
        (lambda q, k: q @ k.mT > 0, "wrong", "expected floating point entries, got torch.bool"),
        (lambda q, k: q @ k.mT * float("nan"), "wrong", "NaN at [0, 0]"),
        (lambda q, k: (q @ k.mT).to_sparse(), "wrong", "dot_product_scores"),
        (lambda q, k: (q @ k.mT).to("meta"), "wrong", "dot_product_scores"),
        (lambda q, k: (q.long() @ k.long().mT).softmax(-1), "wrong", "softmax"),
        (lambda q: q, "wrong", "raised TypeError"),
        (lambda q, k: 3, "wrong", "expected a torch.Tensor, got an int"),
        (lambda q, k: q @ k.mT + 0.5, "wrong", "(for inputs of shape (5, 4), (7, 4))"),
    ],
    ids=label,
)
def test_whatever_an_answer_does_it_gets_one_sentence(answer, status, words, capsys):
    verdict = check(answer, "dot_product_scores")
    assert verdict.status == status
    assert words in verdict.message
    assert "\n" not in verdict.message and len(verdict.message) < 400
    assert capsys.readouterr() == ("", "")
    assert check(EXERCISES["dot"].reference, "dot").status == "correct"  # still usable


def test_a_difference_between_numbers_names_the_inputs():
    verdict = check(lambda L, S, d, block_q, size: (0, 0), "bytes_moved")
    assert verdict.message.endswith("xpected 1536, got 0 (for bytes_moved(8, 8, 4, 2, 4))")


class Misspelt(EXERCISES["SelfAttention"].reference):
    forward = nn.Module.forward  # as if its own were called "foward"


class Unfinished(nn.Module):
    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__()
        raise NotImplementedError("your turn")


def unfinished(values):
    raise NotImplementedError("your turn")


@pytest.mark.parametrize(
    "given, status, words",
    [
        ((unfinished, "average"), "not attempted", "⏳ 0.1 average: not attempted yet"),
        ((Unfinished, "SelfAttention"), "not attempted", "not attempted yet"),
        ((Misspelt, "SelfAttention"), "wrong", 'missing the required "forward"'),  # no stub
        ((EXERCISES["SelfAttention"].reference(4),), "wrong", "Write `check(SelfAttention)`"),
    ],
)
def test_what_is_no_answer_gets_an_explanation(given, status, words):
    verdict = check(*given)
    assert verdict.status == status and words in verdict.message, verdict


class RaisesInForward(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        raise KeyError("oh")


class CollectsGarbage(EXERCISES["MultiHeadAttention"].reference):
    def forward(self, query, key, value, mask=None):
        gc.collect()
        return super().forward(query, key, value, mask)


@pytest.fixture
def young_heap():
    """All objects so far are none that a garbage collection looks at, so that it takes no time."""
    gc.freeze()
    yield
    gc.unfreeze()


def test_a_layer_that_raised_leaves_the_gradients_of_later_code_alone(young_heap):
    assert "KeyError" in str(check(RaisesInForward, "MultiHeadAttention"))
    assert check(CollectsGarbage, "MultiHeadAttention").status == "correct"
    check(RaisesInForward, "MultiHeadAttention")
    with torch.no_grad():
        gc.collect()
        assert not torch.is_grad_enabled()


def test_a_second_exercise_of_the_same_name_is_refused():
    with pytest.raises(ValueError, match="named 'dot' already"):
        Exercise("9.9", EXERCISES["dot"].reference, list, [])


def test_strict_mode_raises_on_a_wrong_answer_only(monkeypatch):
    monkeypatch.setenv("COURSE_STRICT", "1")
    assert check(lambda values: values.mean(0), "average").status == "correct"
    assert check(unfinished, "average").status == "not attempted"
    with pytest.raises(WrongAnswer, match="sum"):
        check(lambda values: values.sum(0), "average")


@pytest.mark.parametrize("head, told", [((2, 0), "2 layers of 4 heads"), (3, "must be pairs")])
def test_a_suspect_says_which_heads_it_has(head, told):
    model, texts = suspect(1)
    with pytest.raises(ValueError, match=told):
        model(texts, [head])


@pytest.fixture
def pictures(monkeypatch):
    """What checks have drawn, a list of figures."""
    figures = []
    monkeypatch.setattr("course_utils.figures.show", lambda ax: figures.append(ax.figure))
    return figures


def test_an_unknown_difference_is_pictured(pictures, capsys):
    verdict = check(lambda q, k: q @ k.mT + 0.5, "dot_product_scores")
    assert verdict.mistake is None
    verdict._ipython_display_()
    assert capsys.readouterr().out.strip() == verdict.message
    yours, expected, off = pictures[0].axes[:3]
    assert [ax.get_title() for ax in (yours, expected, off)] == ["yours", "expected", "difference"]
    drawn = [np.asarray(ax.collections[0].get_array()) for ax in (yours, expected, off)]
    np.testing.assert_allclose(drawn[0] - drawn[1], drawn[2], atol=1e-6)
    np.testing.assert_allclose(drawn[2], 0.5, atol=1e-6)
    assert 80 * pictures[0].get_size_inches()[0] < 820  # of the page
    check(lambda q, k: q @ k.mT / 0, "dot_product_scores")._ipython_display_()  # nothing is finite


@pytest.mark.parametrize("shape", [(5, 7), (2, 14), (14, 2)])
def test_every_number_has_room_in_a_picture(pictures, shape):
    judge._show_difference(torch.full(shape, -12.75), torch.full(shape, 0.5))
    pictures[0].canvas.draw()
    for ax in pictures[0].axes[:3]:
        width, height = abs(np.diff(ax.transData.transform([(0, 0), (1, 1)]), axis=0)[0])
        assert len(ax.texts) == shape[0] * shape[1]
        boxes = [text.get_window_extent() for text in ax.texts]
        assert all(box.width < width and box.height < height for box in boxes)
