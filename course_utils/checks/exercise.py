"""What an exercise is written with: a right answer, inputs that tell answers apart, and mistakes.

Each exercise has a file of its own, such as `lesson_05/split_heads.py`.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

import torch

from course_utils.checks import calls
from course_utils.checks.compare import of_numpy
from course_utils.checks.source_edits import edited

EXERCISES = {}  # by name; each exercise's file adds its own

NO_FIT = object()  # in place of a result, for a parameter layout that does not fit

ONLY_LAYOUT = ContextVar("the number of the only parameter layout to try", default=None)


class NamedMistake(Exception):
    """Raised by an exercise's own ``run`` to name a mistake that values alone do not show.

    With ``results``, what ``run`` would return, it counts only if these are right on all inputs.
    """

    def __init__(self, mistake, hint, results=None):
        super().__init__(hint)
        self.mistake, self.hint, self.results = mistake, hint, results


@contextlib.contextmanager
def one_layout(layout):
    """Within it, ``run`` tries one parameter layout, and need not return results for later ones."""
    token = ONLY_LAYOUT.set(layout)
    try:
        yield
    finally:
        ONLY_LAYOUT.reset(token)


def tag_learner_errors(function):
    """Return a learner's function such that its errors can be told from those of the check.

    An exercise's ``run`` gets its answer like this. If ``run`` calls what the answer returned, such
    as a layer, it passes that to this function first. NumPy's arrays come back as tensors.
    """

    def marked(*args, **kwargs):
        try:
            with calls.settings_kept():
                return _with_tensors(function(*args, **kwargs))
        except BaseException as error:
            error.is_learners = True
            raise

    marked.__wrapped__ = function  # a kernel is launched itself
    return marked


def _with_tensors(result):
    """Return a result with tensors in place of arrays, also of those in tuples and lists."""
    if type(result) not in (tuple, list):
        return of_numpy(result)
    made = [*map(_with_tensors, result)]
    has_arrays = any(new is not old for new, old in zip(made, result, strict=True))
    return type(result)(made) if has_arrays else result


def call_with_clones(answer, *args):
    """Call a learner's function on copies of tensors, lists and dicts; return [its result]."""
    clones = [_clone(arg) for arg in args]
    result = answer(*clones)
    refuse_changes(clones, args)
    for position, (now, before) in enumerate(zip(clones, args, strict=True)):
        if isinstance(now, torch.Tensor) and now.requires_grad and not before.requires_grad:
            hint = (
                "Your result is right, but your code turns on gradients for its input (argument "
                f"{position + 1}), where they add up from call to call. Use a new tensor, "
                "`x.detach().requires_grad_()`."
            )
            raise NamedMistake("input asks for gradients", hint, [result])
    return [result]


def refuse_changes(given, before):
    """Name the mistake if an answer has changed one of the arguments that it was given."""
    for position, (now, original) in enumerate(zip(given, before, strict=True)):
        if not _unchanged(now, original):
            kind = type(original).__name__ if isinstance(original, list | dict) else "tensor"
            hint = (
                f"Your code changes its input (argument {position + 1}) in place. Work on a new "
                f"{kind}."
            )
            raise NamedMistake("changes its input", hint)


def _clone(given):
    """Return a copy of a tensor, or of a list or dict with all that is in it; else the same."""
    if isinstance(given, list):
        return [_clone(each) for each in given]
    if type(given) is dict:
        return {key: _clone(value) for key, value in given.items()}
    return given.clone() if isinstance(given, torch.Tensor) else given


def _unchanged(now, before):
    if isinstance(before, list):
        same = isinstance(now, list) and len(now) == len(before)
        return same and all(map(_unchanged, now, before))
    if type(before) is dict:
        same = type(now) is dict and now.keys() == before.keys()
        return same and all(_unchanged(now[key], before[key]) for key in before)
    if isinstance(before, torch.Tensor):
        return isinstance(now, torch.Tensor) and _same_entries(now, before)
    return now is before or (type(now) is type(before) and now == before)


def _same_entries(now, before):
    """Tell whether two tensors are equal, NaN included: a check may pass on a learner's results."""
    if now.shape != before.shape:
        return False
    both_nan = (now != now) & (before != before)
    return bool(((now == before) | both_nan).all())


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that people really give, and what a tutor would say to it.

    Parameters
    ----------
    name : str
        Short; no other mistake of the exercise has it.
    hint : str
        What the learner's result shows, then what to do.
    right : callable
        The right answer.
    change : tuple
        What makes it wrong, as `edited` takes it.
    """

    name: str
    hint: str
    right: Callable
    change: tuple

    @functools.cached_property
    def answer(self):
        """The wrong answer itself."""
        return edited(self.right, self.name, *self.change)


@dataclass(eq=False)
class Exercise:
    """One exercise.

    Parameters
    ----------
    number : str
        As the learner sees it, e.g. "1.2", or "6b.1" in lesson 06b.
    reference : callable
        A right answer, written open: a mistake is an edit of its source. Its ``__name__`` is the
        exercise's name.
    inputs : callable
        Returns the argument tuples to try answers on, the same at every call.
    mistakes : sequence of tuple
        Rows of (name, hint, *change), see `Mistake`. The first that fits is named.
    names : str
        Names of the result's last dimensions, for messages, e.g. "L S"; "|" between results.
    run : callable
        ``run(answer, *args)`` returns the results to compare, a list with one entry for each
        parameter layout: one, except for modules, whose parameters may be laid out freely. NO_FIT
        stands for a layout that does not fit these arguments.
    differentiable : bool
        Whether gradients must flow through it. They are compared with the reference's.
    compared : str
        For messages: what ``run`` returns, if that is not simply what the answer returned.
    also_right : sequence of callable or tuple
        Right answers in other styles (a loop, einsum, NumPy, a library's function), to see that
        the check is fair: functions or classes, or changes of the reference as `edited` takes them.
    """

    number: str
    reference: Callable
    inputs: Callable[[], Iterable[tuple]]
    mistakes: Sequence
    names: str = ""
    run: Callable = call_with_clones
    differentiable: bool = False
    compared: str = ""
    also_right: Sequence = ()

    def __post_init__(self):
        if self.name in EXERCISES:
            raise ValueError(f"there is an exercise named {self.name!r} already")
        EXERCISES[self.name] = self
        self.mistakes = [
            Mistake(name, hint, self.reference, tuple(change))
            for name, hint, *change in self.mistakes
        ]

    def right_answers(self):
        """Return the reference and the right answers in other styles."""
        others = (
            each if callable(each) else edited(self.reference, "also right", *each)
            for each in self.also_right
        )
        return [self.reference, *others]

    @property
    def name(self):
        return self.reference.__name__

    @property
    def lesson(self):
        """Its lesson as the names of files begin: "06" for 6.1, "06b" for 6b.1."""
        number = self.number.split(".")[0]
        return number.rjust(3 if number[-1].isalpha() else 2, "0")

    @property
    def place(self):
        """What to sort by: the lesson, and the number within it."""
        return self.lesson, int(self.number.split(".")[1])
