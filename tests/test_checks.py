"""The checks: right answers pass however they are written, wrong ones are told what is wrong."""

import gc

import numpy as np
import pytest
import torch
from torch import nn

from answers import RIGHT, WRONG
from course_utils import check
from course_utils.checks import compare, judge
from course_utils.checks import exercise as exercises
from course_utils.checks.compare import difference
from course_utils.checks.exercise import EXERCISES, Exercise
from course_utils.checks.judge import WrongAnswer
from course_utils.checks.lesson_07._suspects import suspect

MISTAKES = [(e.name, m) for e in EXERCISES.values() for m in e.mistakes]
CALCULATED = [name for name in EXERCISES if not name.startswith("catches")]  # those give a verdict


def label(value):
    return value if isinstance(value, str) else getattr(value, "__name__", None)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_reference_is_right(name):
    assert check(EXERCISES[name].reference, name).status == "correct"


@pytest.mark.parametrize("name, answer", RIGHT, ids=label)
def test_a_right_answer_passes_however_it_is_written(name, answer):
    verdict = check(answer, name)
    assert verdict.status == "correct", verdict


@pytest.mark.parametrize("name, mistake, answer", WRONG, ids=label)
def test_a_wrong_answer_is_refused_and_its_mistake_named(name, mistake, answer):
    verdict = check(answer, name)
    assert (verdict.status, verdict.mistake) == ("wrong", mistake), verdict


@pytest.mark.parametrize("name, mistake", MISTAKES, ids=lambda v: getattr(v, "name", v))
def test_each_mistake_is_told_apart_and_gets_its_own_hint(name, mistake):
    verdict = check(mistake.answer, name)
    assert verdict.mistake == mistake.name
    assert verdict.message == f"❌ {EXERCISES[name].number} {name}: {mistake.hint}"


@pytest.mark.parametrize("name", CALCULATED)
def test_wrong_answers_lie_ten_times_as_far_off_as_rounding_may(name, monkeypatch):
    wide = {dtype: 10 * size for dtype, size in compare.TOLERANCE.items()}
    wide[torch.float16] = compare.TOLERANCE[torch.float16]  # three digits have no such room
    monkeypatch.setattr(compare, "TOLERANCE", wide)
    exercise = EXERCISES[name]
    for mistake in exercise.mistakes:
        pairs = zip(judge.mistaken(exercise, mistake), judge.expected(exercise), strict=True)
        off = (isinstance(got, Exception) or difference(got, right) for got, right in pairs)
        assert any(off), mistake.name  # at the first input that shows it


ODD = [
    torch.tensor(1.0, device="meta"),
    torch.ones(2) * 1j,
    10**400,
    np.array("x"),
    (torch.ones(2), torch.ones(3, 2).to_sparse()),
]


@pytest.mark.parametrize("name", EXERCISES)
def test_no_odd_result_breaks_a_check(name):
    reference = EXERCISES[name].reference
    for odd in ODD:
        answer = lambda *_, odd=odd, **__: odd  # noqa: E731
        if isinstance(reference, type):
            answer = type(name, (reference,), {"forward": answer})
        verdict = check(answer, name)
        assert verdict.status == "wrong", (odd, verdict)


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_knows_enough_mistakes_and_has_right_answers_to_try(name):
    # `disagreement` names its other mistakes by looking at what was built: see below.
    fewest = 4 if name == "disagreement" else 5
    names = [mistake.name for mistake in EXERCISES[name].mistakes]
    assert len(names) >= fewest
    assert len(set(names)) == len(names)
    assert any(name == each for each, _ in RIGHT)


def test_numbers_are_unique():
    numbers = [exercise.number for exercise in EXERCISES.values()]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize(
    "q, keys, mistake",
    [
        ([1.0, 0.0], [[1.0, 1.0], [1.0, 1.0], [2.0, 0.0]], "a tie"),
        ([0.0, 0.0], [[1.0, 1.0], [3.0, 1.0], [2.0, 0.0]], "a zero vector"),
        ([1.0, 0.0], [[0.0, 0.0], [3.0, 1.0], [2.0, 0.0]], "a zero vector"),
        ([1.0, 0.0], [[1.0, 1.0], [3.0, 1.0]], "wrong shapes"),
        ([1.0, 0.0], [[float("nan"), 1.0], [3.0, 1.0], [1.0, 0.0]], "not finite"),
    ],
)
def test_disagreement_says_what_is_wrong_with_the_vectors(q, keys, mistake):
    verdict = check(lambda: (torch.tensor(q), torch.tensor(keys)), "disagreement")
    assert (verdict.status, verdict.mistake) == ("wrong", mistake)


def test_disagreement_wants_a_pair_of_tensors():
    assert check(lambda: torch.zeros(2), "disagreement").mistake == "not a pair"
    assert check(lambda: ([1, 0], [[1, 2]] * 3), "disagreement").mistake == "not tensors"


# Answers that misbehave


def raises(q, k):
    raise KeyError("oh")


def mutates(q, k):
    result = q @ k.mT
    q.mul_(2)
    return result


def needs_grad(q, k):
    return nn.Parameter(q) @ k.mT


HOSTILE = [
    (raises, "wrong", "raised KeyError"),
    (mutates, "wrong", "changes its input"),
    (needs_grad, "correct", "correct"),
    (lambda q, k: q, "wrong", "expected shape"),
    (lambda q, k: q[..., :1], "wrong", "expected shape (L, S) = (5, 7), got (5, 1)"),
    (lambda q, k: None, "wrong", "is a `return` missing?"),
    (lambda q, k: (q @ k.mT).numpy(), "correct", "no gradient gets through it"),
    (lambda q, k: (q @ k.mT).numpy().astype(object), "wrong", "got a numpy.ndarray"),
    (lambda q, k: (q @ k.mT).tolist(), "wrong", "expected a torch.Tensor, got a list"),
    (lambda q, k: q @ k.mT > 0, "wrong", "expected floating point entries, got torch.bool"),
    (lambda q, k: q @ k.mT * float("nan"), "wrong", "NaN at [0, 0]"),
    (lambda q, k: (q @ k.mT).to_sparse(), "wrong", "dot_product_scores"),
    (lambda q, k: (q @ k.mT).to("meta"), "wrong", "dot_product_scores"),
    (lambda q: q, "wrong", "raised TypeError"),
    (lambda q, k: 3, "wrong", "expected a torch.Tensor, got a int"),
]


@pytest.mark.parametrize("answer, status, words", HOSTILE, ids=label)
def test_whatever_an_answer_does_it_gets_one_sentence(answer, status, words, capsys):
    verdict = check(answer, "dot_product_scores")
    assert verdict.status == status
    assert words in verdict.message
    assert "\n" not in verdict.message and len(verdict.message) < 400
    assert capsys.readouterr() == ("", "")
    assert check(EXERCISES["dot"].reference, "dot").status == "correct"  # still usable


def test_a_mistake_is_named_for_the_wrong_results_it_explains_not_for_the_right_ones(monkeypatch):
    monkeypatch.setattr(exercises, "EXERCISES", {})
    monkeypatch.setattr(judge, "EXERCISES", exercises.EXERCISES)

    def double(x):
        return 2 * x

    # On 0 and 2 the square is right as well: three results are wrong, and it explains one of them.
    inputs = [(torch.tensor(float(x)),) for x in (0, 0, 2, 2, 3, 4, 5)]
    Exercise("9.9", double, lambda: inputs, [("square", "that is the square", lambda x: x * x)])

    def explained(results):
        return check(lambda x: results(x).get(int(x), 2 * x), "double").mistake

    assert explained(lambda x: {3: x * x, 4: x + 1, 5: x - 1}) is None
    assert explained(lambda x: {3: x * x, 4: x * x, 5: x}) == "square"


def test_an_unattempted_exercise_says_so():
    def average(values):
        raise NotImplementedError("your turn")

    assert check(average).status == "not attempted"
    assert str(check(average)) == "⏳ 0.1 average: not attempted yet"


class Misspelt(EXERCISES["SelfAttention"].reference):
    forward = nn.Module.forward  # as if its own were called "foward"


def test_pytorchs_own_not_implemented_errors_are_no_stubs():
    verdict = check(Misspelt, "SelfAttention")
    assert verdict.status == "wrong"
    assert 'missing the required "forward"' in verdict.message
    whole = check(lambda q, k: (q.long() @ k.long().mT).softmax(-1), "dot_product_scores")
    assert whole.status == "wrong" and "softmax" in whole.message


class Forgotten(nn.Module):
    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__()
        raise NotImplementedError("your turn")


def test_an_unattempted_class_says_so():
    assert check(Forgotten, "SelfAttention").status == "not attempted"


def test_a_class_that_is_no_module_is_told():
    class SelfAttention:
        def __init__(self, d_model, d_k=None, d_v=None):
            pass

    assert check(SelfAttention).mistake == "not a module"


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


@pytest.mark.parametrize(
    "given, words",
    [
        ((3,), "check takes the function itself"),
        ((lambda: 0,), "there is no exercise '<lambda>'"),
        ((EXERCISES["SelfAttention"].reference(4),), "check(SelfAttention), no object"),
        ((print, "nonsense"), "there is no exercise 'nonsense'"),
    ],
)
def test_what_cannot_be_checked_is_told_in_words(given, words):
    verdict = check(*given)
    assert verdict.status == "wrong" and words in verdict.message


def test_a_second_exercise_of_the_same_name_is_refused():
    with pytest.raises(ValueError, match="named 'dot' already"):
        Exercise("9.9", EXERCISES["dot"].reference, list, [])


def test_strict_mode_raises_on_a_wrong_answer_only(monkeypatch):
    monkeypatch.setenv("COURSE_STRICT", "1")
    assert check(lambda values: values.mean(0), "average").status == "correct"

    def unfinished(values):
        raise NotImplementedError

    assert check(unfinished, "average").status == "not attempted"
    with pytest.raises(WrongAnswer, match="that is the sum of the rows"):
        check(lambda values: values.sum(0), "average")


def test_a_mistake_that_would_show_where_the_answer_is_right_is_not_named():
    def dot(a, b):  # wrong for one of the inputs, by a mistake that shows in most
        total = (a * b).abs() if len(a) == 12 else a * b
        return total.sum()

    verdict = check(dot, "dot")
    assert verdict.status == "wrong" and verdict.mistake is None, verdict


@pytest.mark.parametrize("head, told", [((2, 0), "2 layers of 4 heads"), (3, "must be pairs")])
def test_a_suspect_says_which_heads_it_has(head, told):
    model, texts = suspect(1)
    with pytest.raises(ValueError, match=told):
        model(texts, [head])


def test_an_unknown_difference_is_pictured(monkeypatch, capsys):
    shown = []
    monkeypatch.setattr(judge, "show", lambda ax: shown.append(ax.figure))
    verdict = check(lambda q, k: q @ k.mT + 0.5, "dot_product_scores")
    assert verdict.mistake is None
    verdict._ipython_display_()
    assert capsys.readouterr().out.strip() == verdict.message
    titles = [ax.get_title() for ax in shown[0].axes[:3]]
    assert titles == ["yours", "expected", "difference"]
    drawn = [np.asarray(ax.collections[0].get_array()) for ax in shown[0].axes[:3]]
    np.testing.assert_allclose(drawn[0] - drawn[1], drawn[2], atol=1e-6)
    np.testing.assert_allclose(drawn[2], 0.5, atol=1e-6)
    shown[0].canvas.draw()
    for ax in shown[0].axes[:3]:  # every number has room in its cell
        cell = abs(np.diff(ax.transData.transform([(0, 0), (1, 1)]), axis=0)[0])
        assert len(ax.texts) == 35
        assert all(text.get_window_extent().width < cell[0] for text in ax.texts)
    assert 80 * shown[0].get_size_inches()[0] < 820  # of the page
    check(lambda q, k: q @ k.mT / 0, "dot_product_scores")._ipython_display_()  # nothing is finite


@pytest.mark.parametrize("shape", [(2, 14), (14, 2)])
def test_every_number_has_room_in_a_wide_and_in_a_high_picture(monkeypatch, shape):
    shown = []
    monkeypatch.setattr(judge, "show", lambda ax: shown.append(ax.figure))
    judge._show_difference(torch.full(shape, 0.75), torch.full(shape, 0.5))
    shown[0].canvas.draw()
    for ax in shown[0].axes[:3]:
        width, height = abs(np.diff(ax.transData.transform([(0, 0), (1, 1)]), axis=0)[0])
        assert len(ax.texts) == 28
        boxes = [text.get_window_extent() for text in ax.texts]
        assert all(box.width < width and box.height < height for box in boxes)


def test_a_difference_names_the_inputs():
    verdict = check(lambda q, k: q @ k.mT + 0.5, "dot_product_scores")
    assert verdict.message.endswith("(for inputs of shape (5, 4), (7, 4))")
    verdict = check(lambda L, S, d, block_q, size: (0, 0), "bytes_moved")
    assert verdict.message.endswith("expected 1536, got 0 (for bytes_moved(8, 8, 4, 2, 4))")
