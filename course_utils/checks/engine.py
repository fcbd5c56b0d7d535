"""The engine behind ``check``: try an answer on probes, compare, name the mistake."""

import contextlib
import difflib
import functools
import os
import platform
import traceback
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from course_utils.checks import sandbox, saved
from course_utils.checks.compare import difference, read
from course_utils.checks.settings import SETTINGS, kept
from course_utils.figures import heatmap, show

EXERCISES = {}  # by name; the lesson files fill it

# What a known mistake may raise, as PyTorch and the course do for shapes that do not fit. Any other
# error in one is its author's.
EXPECTED_ERRORS = (RuntimeError, IndexError, ValueError)

UNFIT = object()  # in place of a result under a reading that does not fit
_SEED = 20170612  # none that an answer would set itself, which could not be told from no seed then


class WrongAnswer(AssertionError):
    """Raised by `check` on a wrong answer in strict mode (COURSE_STRICT=1), as continuous
    integration uses it."""


class BrokenCheck(RuntimeError):
    """Raised by `check` in strict mode if it cannot judge, by a fault of its own: its cause."""


class Complaint(Exception):
    """Raised by an exercise's own ``run`` to name a mistake that values alone do not show."""

    def __init__(self, mistake, hint):
        super().__init__(hint)
        self.mistake, self.hint = mistake, hint


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that people really give, and what a tutor would say to it."""

    name: str
    hint: str
    answer: Callable


@contextlib.contextmanager
def usual_settings():
    """Calculate as PyTorch does in a new kernel and draw from one seed, whatever a notebook set."""
    with (
        kept(SETTINGS),
        torch.device("cpu"),
        torch.inference_mode(False),  # which turns gradients on as well
        torch.autocast("cpu", enabled=False),
        sandbox.seeded(_SEED),
        warnings.catch_warnings(),
    ):
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")
        torch.set_deterministic_debug_mode("default")
        warnings.simplefilter("ignore")
        yield


def owned(function):
    """Return a function that a learner wrote, such that what it raises is known for its own.

    An exercise's ``run`` gets its answer like this. What the answer returns and ``run`` calls, such
    as a layer, it hands to this function itself.
    """

    def marked(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            error.owned = True
            raise

    return marked


def call_with_clones(answer, *args):
    """Call a learner's function; return its only candidate result."""
    clones = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
    result = answer(*clones)
    for position, (now, before) in enumerate(zip(clones, args, strict=True)):
        changed = isinstance(before, torch.Tensor) and not torch.equal(now, before)
        if changed:
            hint = f"it changes its input (argument {position + 1}) in place; work on a new tensor"
            raise Complaint("changes its input", hint)
    return [result]


@dataclass
class Exercise:
    """One exercise: what is right, what people get wrong, and inputs that tell them apart.

    Parameters
    ----------
    number : str
        As the learner sees it, e.g. "1.2".
    reference : callable
        A right answer. Its ``__name__`` is the exercise's name.
    probes : callable
        Returns the argument tuples to try answers on, the same at every call.
    names : str
        Names of the result's last dimensions, for messages, e.g. "L S"; "|" between results.
    run : callable
        ``run(answer, *args)`` returns the results to compare, a list with one entry for every
        way of reading the answer (one, but for modules whose parameters may be laid out freely);
        UNFIT for a reading that does not fit with these arguments.
    """

    number: str
    reference: Callable
    probes: Callable[[], Iterable[tuple]]
    names: str = ""
    run: Callable = call_with_clones
    mistakes: list[Mistake] = field(default_factory=list)

    def __post_init__(self):
        if self.name in EXERCISES:
            raise ValueError(f"there is an exercise named {self.name!r} already")
        EXERCISES[self.name] = self

    @property
    def name(self):
        return self.reference.__name__

    def mistake(self, hint):
        """Register the decorated function or class as a wrong answer with this hint."""

        def register(answer):
            self.mistakes.append(Mistake(answer.__name__.replace("_", " "), hint, answer))
            return answer

        return register

    @functools.cached_property
    @usual_settings()
    def expected(self):
        """The reference's result on every probe."""
        return [self.run(self.reference, *args)[0] for args in self.probes()]

    @functools.cached_property
    @usual_settings()
    def mistaken(self):
        """What each known mistake gives on every probe: results, or errors."""
        return {
            mistake: [self._outcome(owned(mistake.answer), args) for args in self.probes()]
            for mistake in self.mistakes
        }

    def _outcome(self, answer, args):
        try:
            return self.run(answer, *args)[0]
        except Complaint as error:
            return error
        except EXPECTED_ERRORS as error:
            if not hasattr(error, "owned"):
                raise
            return error


@dataclass(frozen=True)
class Verdict:
    """What `check` found.

    Attributes
    ----------
    status : {"not attempted", "correct", "wrong", "not checked"}
        "not checked" if the check itself is broken or an earlier answer could not be stopped, which
        says nothing about this one.
    mistake : str or None
        The short name of the mistake, if it is a known one.
    message : str
        What the learner reads.
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

    What the notebook has set for PyTorch changes nothing, such as the default dtype or no_grad.

    Parameters
    ----------
    answer : function or class
        The learner's, itself, not called.
    name : str, optional
        The exercise; by default the one called as the function or class is.

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
        try:
            status, mistake, hint, *pictured = _judge(exercise, answer)
        except Exception as error:  # none of the answer's: those are in the runs
            status, mistake, hint, *pictured = "not checked", None, _broken(error)
            if strict:
                raise BrokenCheck(f"{exercise.number} {exercise.name}: {hint}") from error
        mark = {"correct": "✅", "wrong": "❌", "not attempted": "⏳", "not checked": "⚠️"}[status]
        text = f"{mark} {exercise.number} {exercise.name}: {_one_line(hint, 600)}"
        verdict = Verdict(status, mistake, text, *pictured)
        if status != "not checked":
            saved.record(exercise.name, status)
    if verdict.status == "wrong" and strict:
        raise WrongAnswer(verdict.message)
    return verdict


def _not_checkable(answer, called):
    if not callable(answer):
        return "check takes the function itself: check(dot), not check(dot(a, b))"
    near = difflib.get_close_matches(str(called), EXERCISES, n=1)
    guess = f"; did you mean {near[0]}?" if near else ";"
    example = near[0] if near else "dot"
    return (
        f"there is no exercise {_one_line(repr(called), 60)}{guess} Name the one it answers in "
        f'quotes: check(f, "{example}")'
    )


def _broken(error):
    """Say that an error is the check's own, and what to report."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_ours(frame)]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown place"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return (
        "this check is broken and cannot judge your answer, which may be right. Please report this "
        f"line: {told(error)} ({where}, {versions})"
    )


def _is_ours(frame):
    return Path(__file__).parents[1] in Path(frame.filename).parents


def told(error):
    """Return on one line what kind of error it is and what it says."""
    kind = type(error).__name__
    try:
        text = _one_line(str(error), 200)
    except Exception:  # a learner's class may fail even here
        text = ""
    if not text and isinstance(error, AssertionError):
        text = "what stands after `assert` is not true"
    return f"{kind}: {text}" if text else kind


def _one_line(text, longest):
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


@usual_settings()
def _judge(exercise, answer):
    """Return (status, mistake, hint) and, for two differing matrices, (got, expected)."""
    if isinstance(exercise.reference, type) and not isinstance(answer, type):
        hint = f"check takes the class itself, check({exercise.name}), no object or function"
        return "wrong", "not a class", hint
    runs = []
    for args in exercise.probes():
        runs.append(sandbox.call(exercise.run, owned(answer), *args))
        if _is_stub(runs[-1].error):
            return "not attempted", None, "not attempted yet"
        if isinstance(runs[-1].error, sandbox.Refused):
            return runs[-1].error.args
        error = runs[-1].error
        if not (error is None or isinstance(error, Complaint) or hasattr(error, "owned")):
            raise error
    if any(run.reseeded for run in runs) and not isinstance(answer, type):
        hint = "it sets a seed or draws random numbers; nothing in this exercise is random"
        return "wrong", "changes the random state", hint
    if _matches(runs, exercise.expected):
        printed = any(run.printed for run in runs)
        return "correct", None, "correct" + (" (what it prints is hidden here)" if printed else "")
    for mistake, targets in exercise.mistaken.items():
        if _matches(runs, targets):
            return "wrong", mistake.name, mistake.hint
    for run in runs:
        if isinstance(run.error, Complaint):
            return "wrong", run.error.mistake, run.error.hint
    if likely := _most_alike(runs, exercise):
        return "wrong", likely.name, likely.hint
    return "wrong", None, *_first_difference(exercise, runs)


def _is_stub(error):
    """Tell the stub of an exercise from PyTorch's NotImplementedErrors, of a module without a
    ``forward`` for instance."""
    stub = type(error) is NotImplementedError and error.args in ((), ("your turn",))
    return stub and hasattr(error, "owned")


def _most_alike(runs, exercise):
    """Return the mistake that explains most of the wrong results, if it explains over half.

    Two mistakes at once, or one that also shows in a special input, match no mistake everywhere.
    """

    def alike(targets):
        pairs = zip(runs, targets, strict=True)
        return [run.error is None and _matches([run], [target]) for run, target in pairs]

    right = alike(exercise.expected)
    explained = {
        mistake: sum(same and not fine for same, fine in zip(alike(targets), right, strict=True))
        for mistake, targets in exercise.mistaken.items()
    }
    best = max(explained, key=explained.get, default=None)
    return best if best and explained[best] > right.count(False) / 2 else None


def _matches(runs, targets):
    """Tell whether the runs came out as the targets did, under one reading of the answer."""
    errors = [(run.error, t) for run, t in zip(runs, targets, strict=True) if run.error is not None]
    for error, target in errors:
        same_text = len(errors) < len(runs) or told(error) == told(target)
        if type(error) is not type(target) or not same_text:
            return False
    results = [(run.value, t) for run, t in zip(runs, targets, strict=True) if run.error is None]
    if any(isinstance(target, BaseException) for _, target in results):
        return False
    targets = [target for _, target in results]
    return not results or any(
        all(difference(got, target) is None for got, target in zip(reading, targets, strict=True))
        for reading in _readings(runs)
    )


def _readings(runs):
    """Return the results under each reading that fits wherever no error came, run after run."""
    readings = zip(*(run.value for run in runs if run.error is None), strict=True)
    return [reading for reading in readings if not any(got is UNFIT for got in reading)]


def _first_difference(exercise, runs):
    """Return the hint for an answer that matches no known mistake, and matrices to picture."""
    readings = _readings(runs)
    results = iter(readings[0] if readings else ())
    for args, run, expected in zip(exercise.probes(), runs, exercise.expected, strict=True):
        shapes = [tuple(arg.shape) for arg in args if isinstance(arg, torch.Tensor)]
        given = f" (for inputs of shape {', '.join(map(str, shapes))})" if shapes else ""
        if args and not shapes and exercise.run is call_with_clones:  # all are numbers
            given = f" (for {exercise.name}({', '.join(map(str, args))}))"
        if run.error is not None:
            return (f"it raised {told(run.error)}{given}",)
        if not readings:
            return ("no single reading of its parameters fits on all inputs",)
        got = next(results)
        if found := difference(got, expected, exercise.names):
            got = read(got)
            matrices = isinstance(expected, torch.Tensor) and expected.ndim == 2
            if matrices and got is not None and got.shape == expected.shape:
                return found + given, got, expected.detach()
            return (found + given,)


def _show_difference(got, expected):
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(1, 3, figsize=(12, 3))
    panels = {"yours": got, "expected": expected, "difference": got - expected.double()}
    for ax, (title, values) in zip(axes, panels.items(), strict=True):
        heatmap(values, kind="scores", title=title, ax=ax)
    show(axes[0])
