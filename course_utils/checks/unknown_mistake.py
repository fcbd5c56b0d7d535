"""Write the hint for an answer that fits no known mistake: what it shows, what was expected."""

import functools
import inspect
import re

import torch

from course_utils.checks import result_hints
from course_utils.checks.compare import difference, is_same, read
from course_utils.checks.diagnosis import by_layout, columns_of, first_wrong
from course_utils.checks.errors import explained
from course_utils.checks.exercise import call_with_clones
from course_utils.checks.known_results import expected


def first_difference(runs, exercise):
    """Return what the results have in common, and the first difference.

    Parameters
    ----------
    runs : list of Run
        One for each input: an error, or the list of results under each parameter layout.
    exercise : Exercise

    Returns
    -------
    (str,) or (str, torch.Tensor, torch.Tensor)
        The hint, and two matrices to picture, the answer's and the expected one.
    """
    targets = expected(exercise)
    given = [_by_name(exercise, args) for args in exercise.inputs()]
    layouts = by_layout(runs)
    results = iter(_nearest(layouts, runs, targets) if layouts else ())
    outcomes = [None if run.error is not None else next(results, None) for run in runs]
    shown = _what_results_show(exercise, given, runs, outcomes) if layouts else ""
    cases = [*zip(given, runs, outcomes, targets, strict=True)]
    if item := re.search(r"[Ii]tem (\d+) of your result", shown):
        number = int(item[1])  # inputs for which it is right come last
        cases.sort(
            key=lambda case: case[1].error is None and is_same(case[2][number], case[3][number])
        )
    for args, run, got, target in cases:
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
    return max(layouts, key=lambda each: sum(map(is_same, each, right)))


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
        columns, right = columns_of(filled, targets), columns_of(targets, targets)
        if not columns:
            return ""
        number = first_wrong(columns, right)
        if number is None:
            return ""
        outcomes = [o[number] if ok else None for o, ok in zip(outcomes, fine, strict=True)]
        targets, name = right[number], names[number] if number < len(names) else ""
        subject = f"Item {number} of your result"
    probes = map(functools.partial(result_hints.probe, name), given, outcomes, targets)
    return result_hints.hint([*probes], subject)


def _describe(exercise, args):
    """Name some inputs: tensors by their shapes, texts as they are, and numbers by name."""
    shapes = [str(tuple(arg.shape)) for arg in args.values() if isinstance(arg, torch.Tensor)]
    if shapes:
        texts = [repr(arg) for arg in args.values() if isinstance(arg, str)]
        numbers = [f"{name} = {arg:.4g}" for name, arg in args.items() if _is_number(arg)]
        return f"inputs of shape {', '.join(shapes + texts + numbers)}"
    if args and exercise.run is call_with_clones:  # all are numbers
        return f"{exercise.name}({', '.join(map(str, args.values()))})"
    return ""


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)
