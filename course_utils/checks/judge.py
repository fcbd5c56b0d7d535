"""``check``: try an answer on an exercise's inputs, compare, and name the mistake."""

import difflib
import functools
import inspect
import os
import platform
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import torch

from course_utils.checks import calls, judge_process
from course_utils.checks.diagnosis import diagnose, fitting
from course_utils.checks.errors import is_ours, on_one_line, summarize
from course_utils.checks.exercise import EXERCISES, NamedMistake, tag_learner_errors
from course_utils.checks.gradients import IN_PLACE, NONE, fault, gradients, names_of_inputs
from course_utils.checks.inputs import parameters_made
from course_utils.checks.known_results import expected, expected_gradients, usual_settings
from course_utils.checks.progress import MARKS, record
from course_utils.checks.unknown_mistake import first_difference


class WrongAnswer(AssertionError):
    """Raised by `check` on a wrong answer in strict mode (COURSE_STRICT=1), as continuous
    integration uses it."""


class BrokenCheck(RuntimeError):
    """Raised by `check` in strict mode if it cannot judge, by a fault of its own: its cause."""


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
    kept = "name" if isinstance(answer, torch.jit.ScriptFunction) else "__name__"
    called = getattr(answer, kept, type(answer).__name__) if name is None else name
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
    except calls.Refused as refused:
        return refused.args
    except Exception as error:  # none of the answer's: those are in the runs
        return "not checked", None, _broken(error)


def _not_checkable(answer, called):
    if type(answer).__name__ in ("Autotuner", "Heuristics"):
        return "Check the kernel alone, without @triton.autotune: the check launches it itself."
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


@usual_settings()
def _judge(exercise, answer, run_answer):
    """Return (status, mistake, hint) and, for two differing matrices, (got, expected)."""
    if isinstance(exercise.reference, type) and not isinstance(answer, type):
        hint = f"`check` takes the class itself. Write `check({exercise.name})`."
        return "wrong", "not a class", hint
    makes_layers = []
    tried = answer if isinstance(answer, type) else _noting_layers(answer, makes_layers)
    whole = calls.call(_on_all, run_answer, tried, [*exercise.inputs()])
    if whole.error:
        raise whole.error
    runs = whole.value
    for run in runs:
        if stub := _stub(run.error):
            if stub in EXERCISES and stub != exercise.name:
                hint = f"Your code calls {stub}, which you have not solved yet."
                return "wrong", "calls a stub", hint
            return "not attempted", None, "not attempted yet"
        if not _is_answers(run.error):
            raise run.error
    asides = _set_aside(runs)
    if whole.reseeded and not isinstance(answer, type):
        if "rng" in inspect.signature(exercise.reference).parameters:
            hint = (
                "Your code sets a seed or draws random numbers without `rng`. Draw all of them "
                "with `generator=rng`."
            )
            return "wrong", "changes the random state", hint
        with calls.seeded(1):  # a layer may be made anew, and then get the weights that are given
            again = calls.call(_on_all, run_answer, tried, [*exercise.inputs()])
        _set_aside(again.value or [])
        first = [run.error or run.value[0] for run in runs]
        if again.error or not fitting(again.value, first):
            hint = "Your result depends on random numbers. Nothing in this exercise is random."
            if makes_layers:
                hint = (
                    "Your function creates a layer, such as `nn.Linear`, at each call, and your "
                    "result depends on its random weights. Use the matrices that are given."
                )
            return "wrong", "layer made anew" if makes_layers else "depends on chance", hint
    printed = " (`check` hides what your code prints)" * whole.printed
    try:
        return _compared(exercise, answer, run_answer, runs, asides, printed)
    except Exception as error:
        if odd := _odd_type([run.value for run in runs]):
            hint = f"Your result has the type {odd}, which cannot be compared"
            return "wrong", None, f"{hint} ({summarize(error)}). Return tensors or numbers."
        raise


def _set_aside(runs):
    """Let runs whose mistake counts only for right results return these; return the mistakes."""
    asides = []
    for run in runs:
        if isinstance(run.error, NamedMistake) and run.error.results is not None:
            asides.append(run.error)
            run.value, run.error = run.error.results, None
    return asides


def _compared(exercise, answer, run_answer, runs, asides, printed):
    if layouts := fitting(runs, expected(exercise)):
        if asides:
            return "wrong", asides[0].mistake, asides[0].hint
        mistake, hint = _judge_gradients(exercise, answer, run_answer, layouts[0])
        if mistake:
            return "wrong", mistake, hint
        return "correct", None, "correct" + hint + printed
    if found := diagnose(runs, exercise):
        return "wrong", *found
    return "wrong", None, *first_difference(runs, exercise)


def _odd_type(result):
    """Return the name of the first type in a result that is not Python's, PyTorch's or NumPy's."""
    if type(result) in (tuple, list):
        return next(filter(None, map(_odd_type, result)), None)
    known = ("builtins", "numpy", "torch", "torch.nn.parameter")
    return None if type(result).__module__ in known else type(result).__name__


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
    if whole.error:
        raise whole.error
    for (args, right), made in zip(asked, whole.value, strict=True):
        if isinstance(made.error, NamedMistake):
            found = made.error.hint or NONE  # a peer may send an empty one
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


def _show_difference(got, expected):
    # here, since the process that judges starts without Matplotlib a fifth of a second sooner
    import matplotlib.pyplot as plt

    from course_utils.figures import heatmap, show

    rows, columns = (min(n, 40) for n in got.shape)  # panels below each other: room for numbers
    size = 2.5 + 0.5 * columns, 3 * (0.9 + 0.35 * rows)
    _, axes = plt.subplots(3, 1, figsize=size, layout="constrained")
    panels = {"yours": got, "expected": expected, "difference": got - expected.double()}
    for ax, (title, values) in zip(axes, panels.items(), strict=True):
        heatmap(values, kind="scores", title=title, ax=ax)
    show(axes[0])
