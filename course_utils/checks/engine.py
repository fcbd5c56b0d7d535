"""The engine behind ``check``: try an answer on probes, compare, name the mistake."""

import functools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch

from course_utils.checks import sandbox, saved
from course_utils.checks.compare import difference
from course_utils.figures import heatmap, show

EXERCISES = {}  # by name; the lesson files fill it


class WrongAnswer(AssertionError):
    """Raised by `check` on a wrong answer in strict mode (COURSE_STRICT=1), as continuous
    integration uses it."""


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
        way of reading the answer (one, but for modules whose parameters may be laid out freely).
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
    def expected(self):
        """The reference's result on every probe."""
        return [self.run(self.reference, *args)[0] for args in self.probes()]

    @functools.cached_property
    def mistaken(self):
        """What each known mistake gives on every probe: results, or errors."""
        return {mistake: self._outcomes(mistake.answer) for mistake in self.mistakes}

    def _outcomes(self, answer):
        runs = [sandbox.call(self.run, answer, *args) for args in self.probes()]
        return [run.error if run.error is not None else run.value[0] for run in runs]


@dataclass(frozen=True)
class Verdict:
    """What `check` found.

    Attributes
    ----------
    status : {"not attempted", "correct", "wrong"}
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
    """
    exercise = EXERCISES.get(name or getattr(answer, "__name__", type(answer).__name__))
    if exercise is None or not callable(answer):
        verdict = Verdict("wrong", None, "❌ " + _not_checkable(answer, name))
    else:
        try:
            with torch.device("cpu"):  # whatever torch.set_default_device was told
                status, mistake, hint, *pictured = _judge(exercise, answer)
        except Exception as error:  # a result no comparison can read, such as a sparse tensor
            kind = type(error).__name__
            status, mistake, hint, *pictured = "wrong", None, f"its result is unreadable ({kind})"
        mark = {"correct": "✅", "wrong": "❌", "not attempted": "⏳"}[status]
        text = f"{mark} {exercise.number} {exercise.name}: {hint}"
        verdict = Verdict(status, mistake, text, *pictured)
        saved.record(exercise.name, status)
    if verdict.status == "wrong" and os.environ.get("COURSE_STRICT") == "1":
        raise WrongAnswer(verdict.message)
    return verdict


def _not_checkable(answer, name):
    if not callable(answer):
        return "check takes the function itself: check(dot), not check(dot(a, b))"
    called = name or getattr(answer, "__name__", "without a name")
    return f"there is no exercise {called!r}; the exercises are {', '.join(EXERCISES)}"


def _judge(exercise, answer):
    """Return (status, mistake, hint) and, for two differing matrices, (got, expected)."""
    if isinstance(exercise.reference, type) and not isinstance(answer, type):
        hint = f"check takes the class itself, check({exercise.name}), no object or function"
        return "wrong", "not a class", hint
    runs = []
    for args in exercise.probes():
        runs.append(sandbox.call(exercise.run, answer, *args))
        if _is_stub(runs[-1].error):
            return "not attempted", None, "not attempted yet"
        if isinstance(runs[-1].error, sandbox.Refused):
            return runs[-1].error.args
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
    return type(error) is NotImplementedError and str(error) in ("", "your turn")


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
        same_text = len(errors) < len(runs) or str(error) == str(target)
        if type(error) is not type(target) or not same_text:
            return False
    results = [(run.value, t) for run, t in zip(runs, targets, strict=True) if run.error is None]
    if any(isinstance(target, BaseException) for _, target in results):
        return False
    readings = min((len(value) for value, _ in results), default=1)
    return any(
        all(difference(value[i], target) is None for value, target in results)
        for i in range(readings)
    )


def _first_difference(exercise, runs):
    """Return the hint for an answer that matches no known mistake, and matrices to picture."""
    for args, run, expected in zip(exercise.probes(), runs, exercise.expected, strict=True):
        shapes = [tuple(arg.shape) for arg in args if isinstance(arg, torch.Tensor)]
        given = f" (for inputs of shape {', '.join(map(str, shapes))})" if shapes else ""
        if args and not shapes and exercise.run is call_with_clones:  # all are numbers
            given = f" (for {exercise.name}({', '.join(map(str, args))}))"
        if run.error is not None:
            text = " ".join(str(run.error).split())[:200]
            return (f"it raised {type(run.error).__name__}: {text}{given}",)
        if found := difference(run.value[0], expected, exercise.names):
            got = run.value[0]
            pictured = [t for t in (got, expected) if isinstance(t, torch.Tensor) and t.ndim == 2]
            if len(pictured) == 2 and got.shape == expected.shape:
                return found + given, got.detach(), expected.detach()
            return (found + given,)
    return ("no single reading of its parameters gives the expected results on all inputs",)


def _show_difference(got, expected):
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(1, 3, figsize=(12, 3))
    panels = {"yours": got, "expected": expected, "difference": got.double() - expected.double()}
    for ax, (title, values) in zip(axes, panels.items(), strict=True):
        heatmap(values, kind="scores", title=title, ax=ax)
    show(axes[0])
