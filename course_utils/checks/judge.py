"""``check``: try an answer on an exercise's inputs, compare, and name the mistake."""

import contextlib
import difflib
import functools
import inspect
import itertools
import os
import platform
import re
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import torch

from course_utils.checks import calls, judge_process, result_hints
from course_utils.checks.compare import difference, is_same, read
from course_utils.checks.errors import explained, is_ours, on_one_line, summarize
from course_utils.checks.exercise import (
    EXERCISES,
    NO_FIT,
    NamedMistake,
    call_with_clones,
    one_layout,
    tag_learner_errors,
)
from course_utils.checks.gradients import IN_PLACE, NONE, fault, gradients, names_of_inputs
from course_utils.checks.inputs import parameters_made
from course_utils.checks.progress import MARKS, record
from course_utils.checks.source_edits import RowDoesNotFit
from course_utils.figures import heatmap, show

# A known mistake may raise these, as PyTorch and the course do for shapes that do not fit. Any
# other error in a known mistake is a fault of the check.
EXPECTED_ERRORS = (RuntimeError, IndexError, ValueError, AssertionError, ZeroDivisionError)

_COARSE = torch.float16, torch.bfloat16
_SEED = 20170612  # an answer that sets this very seed is not noticed, so it is an unlikely one


class WrongAnswer(AssertionError):
    """Raised by `check` on a wrong answer in strict mode (COURSE_STRICT=1), as continuous
    integration uses it."""


class BrokenCheck(RuntimeError):
    """Raised by `check` in strict mode if it cannot judge, by a fault of its own: its cause."""


@contextlib.contextmanager
def usual_settings():
    """Draw from a fixed seed, and give no warnings."""
    with calls.seeded(_SEED), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class Verdict:
    """The result of a `check`.

    Attributes
    ----------
    status : {"not attempted", "correct", "wrong", "not checked"}
        "not checked" if the check itself is broken, or the answer cannot be sent to the process
        that judges; that says nothing about the answer.
    mistake : str or None
        The short name of the mistake, if it is a known one.
    message : str
        What the learner reads.
    got, expected : torch.Tensor or None
        Two matrices that differ, to be drawn.
    """

    status: str
    mistake: str | None
    message: str
    got: torch.Tensor | None = field(default=None, repr=False)
    expected: torch.Tensor | None = field(default=None, repr=False)

    def __str__(self):
        return self.message

    __repr__ = __str__

    def _ipython_display_(self):
        print(self.message)
        if self.got is not None:
            _show_difference(self.got, self.expected)


def check(answer, name=None):
    """Check an answer to an exercise. Never raises, unless in strict mode.

    It does not depend on the notebook's settings of PyTorch, such as the default dtype or no_grad.

    Parameters
    ----------
    answer : function or class
        The learner's function itself, not its result.
    name : str, optional
        The exercise; by default the one with the name of the function or class.

    Returns
    -------
    Verdict

    Raises
    ------
    WrongAnswer
        If the answer is wrong and the environment variable COURSE_STRICT is 1.
    BrokenCheck
        If the check is broken and COURSE_STRICT is 1: nothing has been checked then.
    """
    strict = os.environ.get("COURSE_STRICT") == "1"
    called = getattr(answer, "__name__", type(answer).__name__) if name is None else name
    exercise = EXERCISES.get(called) if isinstance(called, str) else None
    if exercise is None or not callable(answer):
        verdict = Verdict("wrong", None, "❌ " + _not_checkable(answer, called))
    else:
        judged = judge_here if judge_process.in_process else judge_process.judge
        status, mistake, hint, *pictured = judged(exercise, answer)
        text = f"{MARKS[status]} {exercise.number} {exercise.name}: {on_one_line(hint, 600)}"
        if status != "not checked" and (trouble := record(exercise.name, status)):
            text += f" (This verdict could not be saved: {on_one_line(str(trouble), 200)})"
        verdict = Verdict(status, mistake, text, *pictured)
        if status == "not checked" and strict:
            raise BrokenCheck(text)
    if verdict.status == "wrong" and strict:
        raise WrongAnswer(verdict.message)
    return verdict


def judge_here(exercise, answer, run=None):
    """Judge in this process: return (status, mistake, hint), and (got, expected) for a picture.

    ``run`` replaces the exercise's own for the answer, if the answer is in another process.
    """
    try:
        return _judge(exercise, answer, run or exercise.run)
    except Exception as error:  # none of the answer's: those are in the runs
        return "not checked", None, _broken(error)


def _not_checkable(answer, called):
    if not callable(answer):
        return "`check` takes the function itself. Write `check(dot)`, not `check(dot(a, b))`."
    near = difflib.get_close_matches(str(called), EXERCISES, n=1)
    guess = f" Did you mean {near[0]}?" if near else ""
    example = near[0] if near else "dot"
    return (
        f"There is no exercise {on_one_line(repr(called), 60)}.{guess} Name the exercise in "
        f'quotes, as in `check(f, "{example}")`.'
    )


def _broken(error):
    """Say that an error is a fault of the check, and what to report."""
    trace = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in trace if is_ours(frame.filename)]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown line"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return (
        "This check is broken and cannot judge your answer, which may be right. Please report this "
        f"line: {summarize(error)} ({where}, {versions})"
    )


@functools.cache
@usual_settings()
def expected(exercise):
    """Return the reference's result on all inputs."""
    with one_layout(0):
        return [exercise.run(exercise.reference, *args)[0] for args in exercise.inputs()]


@functools.cache
@usual_settings()
def expected_gradients(exercise):
    """Return the reference's gradients on all inputs."""
    return [gradients(exercise.run, exercise.reference, args) for args in exercise.inputs()]


@functools.cache
def mistaken(exercise, mistake):
    """Return the results of a known mistake on all inputs. Call it within `usual_settings`."""
    try:
        return _Outcomes(exercise, mistake)
    except RowDoesNotFit as error:  # the check goes on with the other rows
        return [error] * len(expected(exercise))


class _Outcomes:
    """The results of a known mistake on all inputs, one after the other; an error in place of some.

    Each is computed when it is first needed: most answers differ from most mistakes at once.
    """

    def __init__(self, exercise, mistake):
        self.run, self.answer, self.computed = exercise.run, tag_learner_errors(mistake.answer), []
        with calls.seeded(_SEED):  # all inputs are drawn first, as for an answer
            self.inputs = [*exercise.inputs()]
            self.states = calls.random_states()

    def __iter__(self):
        for number, args in enumerate(self.inputs):
            if number == len(self.computed):
                with calls.drawing_from(self.states):
                    outcome = _outcome(self.run, self.answer, args)
                    self.states = calls.random_states()
                self.computed.append(outcome)
            yield self.computed[number]


def _outcome(run, answer, args):
    calls.restart_clock()
    try:
        with one_layout(0):
            return run(answer, *args)[0]
    except NamedMistake as error:
        return error if error.results is None else error.results[0]
    except EXPECTED_ERRORS as error:
        if not hasattr(error, "is_learners"):
            raise
        return error


@usual_settings()
def _judge(exercise, answer, run_answer):
    """Return (status, mistake, hint) and, for two differing matrices, (got, expected)."""
    if isinstance(exercise.reference, type) and not isinstance(answer, type):
        hint = f"`check` takes the class itself. Write `check({exercise.name})`."
        return "wrong", "not a class", hint
    makes_layers = []
    tried = answer if isinstance(answer, type) else _noting_layers(answer, makes_layers)
    whole = calls.call(_on_all, run_answer, tried, [*exercise.inputs()])
    if isinstance(whole.error, calls.Refused):
        return whole.error.args
    if whole.error:
        raise whole.error
    runs, asides = whole.value, []
    for run in runs:
        if stub := _stub(run.error):
            if stub in EXERCISES and stub != exercise.name:
                return (
                    "wrong",
                    "calls a stub",
                    f"Your code calls {stub}, which you have not solved yet.",
                )
            return "not attempted", None, "not attempted yet"
        if not _is_answers(run.error):
            raise run.error
        if isinstance(run.error, NamedMistake) and run.error.results is not None:
            asides.append(run.error)
            run.value, run.error = run.error.results, None
    if whole.reseeded and not isinstance(answer, type):
        if makes_layers:
            hint = (
                "Your function creates a layer, such as `nn.Linear`, at each call. The layer has "
                "weights of its own, so no gradient reaches the matrices that are given. Multiply "
                "by these matrices themselves."
            )
            return "wrong", "layer made anew", hint
        hint = "Your code sets a seed or draws random numbers. Nothing in this exercise is random."
        if "rng" in inspect.signature(exercise.reference).parameters:
            hint = (
                "Your code sets a seed or draws random numbers without `rng`. Draw all of them "
                "with `generator=rng`."
            )
        return "wrong", "changes the random state", hint
    if fitting := _fitting(runs, expected(exercise)):
        if asides:
            return "wrong", asides[0].mistake, asides[0].hint
        mistake, hint = _judge_gradients(exercise, answer, run_answer, fitting[0])
        if mistake:
            return "wrong", mistake, hint
        hidden = " (`check` hides what your code prints)" * whole.printed
        return "correct", None, "correct" + hint + hidden
    for mistake in exercise.mistakes:
        if _fitting(runs, mistaken(exercise, mistake)):
            return "wrong", mistake.name, mistake.hint
    for run in runs:
        if isinstance(run.error, NamedMistake):
            return "wrong", run.error.mistake, run.error.hint
    if order := _order(runs, exercise):
        positions = ", ".join(map(str, order))
        hint = f"Your items are right, but in the wrong order. Move them to positions {positions}."
        return "wrong", "another order", hint
    if in_dtype := _coarse_dtype(runs, exercise):
        return "wrong", "coarse dtype", in_dtype
    if likely := _alike_in_an_item(runs, exercise):
        return "wrong", likely.name, likely.hint
    if found := _most_alike(runs, exercise):
        likely, explained_results, wrong_results = found
        hint = f"This fits {explained_results} of your {wrong_results} wrong results: {likely.hint}"
        return "wrong", likely.name, hint
    return "wrong", None, *_first_difference(exercise, runs)


def _noting_layers(answer, made):
    """Return a function that adds to a list whatever parameters of layers its calls make."""

    @functools.wraps(answer)  # a kernel is unwrapped again, to be launched
    def noting(*args, **kwargs):
        with parameters_made() as now:
            result = answer(*args, **kwargs)
        made.extend(now)
        return result

    return noting


def _on_all(run, answer, inputs):
    """Return a `Run` for each input."""
    runs = [calls.Run() for _ in inputs]
    for each, args in zip(runs, inputs, strict=True):
        calls.restart_clock()
        try:
            each.value = run(tag_learner_errors(answer), *args)
        except (SystemExit, calls.Refused):
            raise
        except BaseException as error:
            each.error = error
    return runs


def _judge_gradients(exercise, answer, run, reading):
    """Return (mistake, hint) for gradients that are wrong, else (None, what is to be said)."""
    asked = [
        (args, right)
        for args, right in zip(exercise.inputs(), expected_gradients(exercise), strict=True)
        if any(gradient is not None and gradient.any() for gradient in right)
    ]

    def run_gradients(answer, *args):
        return gradients(run, answer, args, reading)

    whole = calls.call(_on_all, run_gradients, answer, [args for args, _ in asked])
    if isinstance(whole.error, calls.Refused):
        return whole.error.args[1:]
    if whole.error:
        raise whole.error
    for (args, right), made in zip(asked, whole.value, strict=True):
        if isinstance(made.error, NamedMistake):
            found = made.error.hint
        elif made.error is not None and not _is_answers(made.error):
            raise made.error
        elif made.error is not None:
            in_place = "inplace operation" in str(made.error)
            found = IN_PLACE if in_place else f"{NONE} ({summarize(made.error)})"
        else:
            names = names_of_inputs(exercise.reference, args)
            found = fault(made.value, right, names)
        if found and exercise.differentiable:
            return "wrong gradients", found
        if found and found.startswith(NONE):
            return None, " (no gradient gets through, but this exercise does not need one)"
    return None, ""


def _is_answers(error):
    """Tell whether an error, if there is one, is the answer's and not the check's."""
    return error is None or isinstance(error, NamedMistake) or hasattr(error, "is_learners")


def _stub(error):
    """Return the name of the function or class, still a stub, that raised an error; else None.

    PyTorch has NotImplementedErrors of its own, of a module without a ``forward`` for instance.
    """
    stub = type(error) is NotImplementedError and error.args in ((), ("your turn",))
    if not stub or not hasattr(error, "is_learners"):
        return None
    if hasattr(error, "elsewhere"):
        return error.elsewhere["stub"]
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_code.co_qualname.split(".")[0]


def _coarse_dtype(runs, exercise):
    """Return the hint for results that are right, but in a coarser dtype than expected."""
    targets = expected(exercise)
    for _, results in _by_layout(runs) if all(run.error is None for run in runs) else ():
        if _all_same(results, map(_rounded, results, targets)):
            pairs = zip(results, targets, strict=True)
            found = next(filter(None, (difference(*pair) for pair in pairs)), "")
            return f"Your result is {found}" if found.startswith("right") else found
    return None


def _rounded(got, target):
    """Return a right result in the dtype of a result, where that is float16 or bfloat16."""
    if isinstance(target, tuple):
        fits = isinstance(got, tuple | list) and len(got) == len(target)
        return tuple(map(_rounded, got, target)) if fits else target
    right = torch.as_tensor(target)
    is_coarse = isinstance(got, torch.Tensor) and got.dtype in _COARSE
    return right.to(got.dtype) if is_coarse and right.is_floating_point() else target


def _in_columns(runs, exercise):
    """Yield, for each parameter layout, the results that are tuples, as one list for each item."""
    targets = expected(exercise)
    if isinstance(targets[0], tuple) and all(run.error is None for run in runs):
        for _, results in _by_layout(runs):
            if columns := _columns(results, targets):
                yield columns


def _columns(results, targets):
    """Return a list for each item of the tuples; nothing if a result is no such tuple."""
    pairs = zip(results, targets, strict=True)
    fits = all(isinstance(got, tuple | list) and len(got) == len(right) for got, right in pairs)
    return list(zip(*results, strict=True)) if fits else []


def _order(runs, exercise):
    """Return the positions to which the items of results belong, if only their order is wrong."""
    right = _columns(expected(exercise), expected(exercise))
    for columns in _in_columns(runs, exercise):
        for order in itertools.permutations(range(len(right))):
            if all(_all_same(column, right[i]) for column, i in zip(columns, order, strict=True)):
                return order
    return None


def _alike_in_an_item(runs, exercise):
    """Return the mistake that gives the same first wrong item, of results that are tuples.

    Later items may be wrong as a consequence, or by another mistake.
    """
    targets = expected(exercise)
    right = _columns(targets, targets)
    for columns in _in_columns(runs, exercise):
        item = _first_wrong(columns, right)
        for mistake in exercise.mistakes:
            results = mistaken(exercise, mistake)
            if not all(map(functools.partial(_same_item, item), columns[item], results)):
                continue  # most differ at once: the other results are not needed
            wrong = _columns(results, targets)
            if _first_wrong(wrong, right) == item and _all_same(columns[item], wrong[item]):
                return mistake
    return None


def _same_item(item, got, result):
    fits = isinstance(result, tuple | list) and len(result) > item
    return fits and is_same(got, result[item])


def _first_wrong(columns, right):
    pairs = enumerate(zip(columns, right, strict=False))
    return next((item for item, pair in pairs if not _all_same(*pair)), None)


def _all_same(results, targets):
    return all(map(is_same, results, targets))


def _most_alike(runs, exercise):
    """Return the `Mistake` that explains most of the wrong results, if it explains over half.

    An answer with two mistakes, or with one that also shows in a special input, matches no mistake
    on all inputs. Inputs on which a mistake would show, but the answer is right, count against it.
    Failing that, return a mistake that explains some results, if the answer raises errors on all
    other inputs where the mistake is wrong: after a wrong shape, it depends on the rest of the code
    what fails.

    Returns
    -------
    (Mistake, int, int) or None
        The mistake, how many wrong results it explains, and how many there are.
    """

    def matches(run, target):
        return bool(_fitting([run], [target]))

    targets = expected(exercise)
    right = list(map(matches, runs, targets))
    wrong_results = right.count(False)
    best, failing = None, None
    for mistake in exercise.mistakes:
        enough = best[1] if best else wrong_results / 2
        in_favor, against, at_most, same_errors = 0, 0, wrong_results, 0
        may_fail = failing is None and any(right)
        # Its results are computed one by one, and some take long: stop when it cannot fit any more.
        for run, result, target, ok in zip(
            runs, mistaken(exercise, mistake), targets, right, strict=True
        ):
            same, harmless = not ok and matches(run, result), is_same(result, target)
            in_favor += same and run.error is None
            same_errors += same and run.error is not None
            against += ok and not harmless
            at_most -= not ok and not (same and run.error is None)
            may_fail &= harmless == ok and (ok or same or run.error is not None)
            if not may_fail and (at_most <= enough or at_most < against):
                break
        else:
            if in_favor >= against and in_favor > enough:
                best = mistake, in_favor, wrong_results
            if may_fail and in_favor + same_errors:
                failing = mistake, in_favor + same_errors, wrong_results
    return best or failing


def _fitting(runs, targets):
    """Return the numbers of the parameter layouts under which all runs gave the targets.

    Where both raised the same errors on all inputs, any layout fits. A `NamedMistake` must be the
    same on every input. No target is computed after the first that no layout fits.
    """
    all_failed = all(run.error is not None for run in runs)
    layouts = None  # all
    for run, target in zip(runs, targets, strict=True):
        if run.error is not None:
            by_message = all_failed or isinstance(run.error, NamedMistake)
            if type(run.error) is not type(target) or _of_view(run.error) != _of_view(target):
                return []
            if by_message and _message(run.error) != _message(target):
                return []
        elif isinstance(target, BaseException):
            return []
        else:
            layouts = range(len(run.value)) if layouts is None else layouts
            layouts = [number for number in layouts if is_same(run.value[number], target)]
            if not layouts:
                return []
    return [0] if layouts is None else layouts


def _of_view(error):
    """Tell whether `.view()` raised an error: that has its own cause, whatever shapes fit."""
    return "view size is not compatible" in summarize(error)


def _message(error):
    """Return the message of an error, on one line; the whole hint of a `NamedMistake`."""
    return error.hint if isinstance(error, NamedMistake) else summarize(error)


def _by_layout(runs):
    """Return (number, results of all runs without error) of each parameter layout that fits."""
    layouts = zip(*(run.value for run in runs if run.error is None), strict=True)
    return [
        (number, results)
        for number, results in enumerate(layouts)
        if not any(got is NO_FIT for got in results)
    ]


def _first_difference(exercise, runs):
    """Return the hint for an answer that matches no known mistake, and matrices to picture."""
    targets = expected(exercise)
    given = [_by_name(exercise, args) for args in exercise.inputs()]
    layouts = _by_layout(runs)
    results = iter(_nearest(layouts, runs, targets) if layouts else ())
    outcomes = [None if run.error is not None else next(results, None) for run in runs]
    shown = _what_results_show(exercise, given, runs, outcomes) if layouts else ""
    for args, run, got, target in zip(given, runs, outcomes, targets, strict=True):
        where = _describe(exercise, args)
        where = f" (for {where})" if where else ""
        if run.error is not None:
            return (_joined(shown, explained(run.error)) + where,)
        if not layouts:
            return ("No single layout of your layer's parameters fits all inputs.",)
        if found := difference(got, target, exercise.names):
            if shown:
                found = found.split(": each is ")[0]  # it holds for this input alone
            elif exercise.compared:
                found = f"{exercise.compared}: {found}"
            got = read(got)
            matrices = isinstance(target, torch.Tensor) and target.ndim == 2
            hint = _joined(shown, found) + where
            if matrices and got is not None and got.shape == target.shape:
                return hint, got, target.detach()
            return (hint,)


def _joined(sentences, rest):
    """Put sentences before what was expected, without naming an item of a tuple twice."""
    named = re.search(r"[Ii]tem (\d+) of your result", sentences)
    rest = re.sub(rf"^item {named[1]} .*?: ", "", rest) if named else rest
    return f"{sentences} {rest[0].upper()}{rest[1:]}" if sentences else rest


def _nearest(layouts, runs, targets):
    """Return the results under the parameter layout that makes most of them right."""
    right = [target for run, target in zip(runs, targets, strict=True) if run.error is None]
    return max((results for _, results in layouts), key=lambda each: sum(map(is_same, each, right)))


def _by_name(exercise, args):
    """Return some inputs by the names that they have in the exercise, or in its ``run``."""
    parameters = inspect.signature(exercise.run).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return inspect.signature(exercise.reference).bind(*args).arguments
    return dict(zip([each.name for each in parameters][1:], args, strict=False))


def _what_results_show(exercise, given, runs, outcomes):
    """Return what the results have in common as sentences, "" if nothing is sure."""
    targets, names = expected(exercise), exercise.names.split("|")
    subject, name = "Your result", names[0]
    if exercise.compared:
        subject = f"Your result ({exercise.compared})"
    if isinstance(targets[0], tuple):
        fine = [run.error is None for run in runs]
        filled = [o if ok else t for o, t, ok in zip(outcomes, targets, fine, strict=True)]
        columns, right = _columns(filled, targets), _columns(targets, targets)
        if not columns:
            return ""
        number = _first_wrong(columns, right)
        if number is None:
            return ""
        outcomes = [o[number] if ok else None for o, ok in zip(outcomes, fine, strict=True)]
        targets, name = right[number], names[number] if number < len(names) else ""
        subject = f"Item {number} of your result"
    probes = map(functools.partial(result_hints.probe, name), given, outcomes, targets)
    return result_hints.hint([*probes], subject)


def _describe(exercise, args):
    """Name some inputs: tensors by their shapes, texts as they are, and numbers by name."""
    shapes = _shapes(args.values())
    if shapes:
        texts = [repr(arg) for arg in args.values() if isinstance(arg, str)]
        numbers = [f"{name} = {arg:.4g}" for name, arg in args.items() if _is_number(arg)]
        return f"inputs of shape {', '.join([*map(str, shapes), *texts, *numbers])}"
    if args and exercise.run is call_with_clones:  # all are numbers
        return f"{exercise.name}({', '.join(map(str, args.values()))})"
    return ""


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shapes(args):
    return [tuple(arg.shape) for arg in args if isinstance(arg, torch.Tensor)]


def _show_difference(got, expected):
    import matplotlib.pyplot as plt

    rows, columns = (min(n, 40) for n in got.shape)  # panels below each other: room for numbers
    size = 2.5 + 0.5 * columns, 3 * (0.9 + 0.35 * rows)
    _, axes = plt.subplots(3, 1, figsize=size, layout="constrained")
    panels = {"yours": got, "expected": expected, "difference": got - expected.double()}
    for ax, (title, values) in zip(axes, panels.items(), strict=True):
        heatmap(values, kind="scores", title=title, ax=ax)
    show(axes[0])
