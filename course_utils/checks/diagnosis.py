"""Name the mistake in an answer by its results on all inputs."""

import functools
import itertools
import re

import torch

from course_utils.checks.compare import difference, is_same
from course_utils.checks.errors import summarize
from course_utils.checks.exercise import NO_FIT, NamedMistake
from course_utils.checks.known_results import expected, mistaken

SAYS_WHERE_RIGHT = re.compile("(Your result is r|R)ight\\b")
AS_WITH = "the same as with this mistake, which need not be yours: "  # other results differ


def diagnose(runs, exercise):
    """Return the name of a mistake, and its hint.

    Parameters
    ----------
    runs : list of Run
        One for each input: an error, or the list of results under each parameter layout.
    exercise : Exercise

    Returns
    -------
    (str, str) or None
        None if no mistake explains the results.
    """
    for mistake in exercise.mistakes:
        if fitting(runs, mistaken(exercise, mistake)):
            return mistake.name, mistake.hint
    for run in runs:
        if isinstance(run.error, NamedMistake):
            return run.error.mistake, run.error.hint
    if order := _order(runs, exercise):
        positions = ", ".join(map(str, order))
        hint = f"Your items are right, but in the wrong order. Move them to positions {positions}."
        return "another order", hint
    if in_dtype := _coarse_dtype(runs, exercise):
        return "coarse dtype", in_dtype
    if found := _alike_in_an_item(runs, exercise):
        return found
    if found := _most_alike(runs, exercise):
        likely, explained, wrong = found
        are = (
            f"{explained} of your {wrong} wrong results are"
            if wrong > 1
            else "Your wrong result is"
        )
        return likely.name, f"{are} {AS_WITH}{likely.hint}"
    return None


def fitting(runs, targets):
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


def by_layout(runs):
    """Return the results of all runs without error, under each parameter layout that fits."""
    layouts = zip(*(run.value for run in runs if run.error is None), strict=True)
    return [results for results in layouts if not any(got is NO_FIT for got in results)]


def columns_of(results, targets):
    """Return a list for each item of the tuples; nothing if a result is no such tuple."""
    pairs = zip(results, targets, strict=True)
    fits = all(isinstance(got, tuple | list) and len(got) == len(right) for got, right in pairs)
    return list(zip(*results, strict=True)) if fits else []


def first_wrong(columns, right):
    """Return the number of the first item that is wrong on some input, None if all are right."""
    pairs = enumerate(zip(columns, right, strict=False))
    return next((item for item, pair in pairs if not _all_same(*pair)), None)


def _all_same(results, targets):
    return all(map(is_same, results, targets))


def _coarse_dtype(runs, exercise):
    """Return the hint for results that are right, but in a coarser dtype than expected."""
    targets = expected(exercise)
    for results in by_layout(runs) if all(run.error is None for run in runs) else ():
        if _all_same(results, map(_rounded, results, targets)):
            pairs = zip(results, targets, strict=True)
            found = next(filter(None, (difference(*pair) for pair in pairs)), "")
            return f"Your result is {found}." if found.startswith("right") else found
    return None


def _rounded(got, target):
    """Return a right result in the dtype of a result, where that is float16 or bfloat16."""
    if isinstance(target, tuple):
        fits = isinstance(got, tuple | list) and len(got) == len(target)
        return tuple(map(_rounded, got, target)) if fits else target
    right = torch.as_tensor(target)
    is_coarse = isinstance(got, torch.Tensor) and got.dtype in (torch.float16, torch.bfloat16)
    return right.to(got.dtype) if is_coarse and right.is_floating_point() else target


def _in_columns(runs, exercise):
    """Yield, for each parameter layout, the results that are tuples, as one list for each item."""
    targets = expected(exercise)
    if isinstance(targets[0], tuple) and all(run.error is None for run in runs):
        for results in by_layout(runs):
            if columns := columns_of(results, targets):
                yield columns


def _order(runs, exercise):
    """Return the positions to which the items of results belong, if only their order is wrong."""
    right = columns_of(expected(exercise), expected(exercise))
    for columns in _in_columns(runs, exercise):
        for order in itertools.permutations(range(len(right))):
            if all(_all_same(column, right[i]) for column, i in zip(columns, order, strict=True)):
                return order
    return None


def _alike_in_an_item(runs, exercise):
    """Return the name and hint of a mistake that gives the same first wrong item of tuples.

    Later items may be wrong as a consequence, or by another mistake. If they are wrong where the
    mistake does not show, its hint is for the item alone: it may say where results are right.
    """
    targets = expected(exercise)
    right = columns_of(targets, targets)
    for columns in _in_columns(runs, exercise):
        item = first_wrong(columns, right)
        for mistake in exercise.mistakes:
            results = mistaken(exercise, mistake)
            if not all(map(functools.partial(_same_item, item), columns[item], results)):
                continue  # most differ at once: the other results are not needed
            wrong = columns_of(results, targets)
            if first_wrong(wrong, right) == item and _all_same(columns[item], wrong[item]):
                harmless = map(is_same, results, targets)
                pairs = zip(zip(*columns, strict=True), targets, harmless, strict=True)
                if any(ok and not is_same(got, target) for got, target, ok in pairs):
                    return mistake.name, f"Item {item} of your result is {AS_WITH}{mistake.hint}"
                return mistake.name, mistake.hint
    return None


def _same_item(item, got, result):
    fits = isinstance(result, tuple | list) and len(result) > item
    return fits and is_same(got, result[item])


def _most_alike(runs, exercise):
    """Return the `Mistake` that explains most of the wrong results, if it explains over half.

    An answer with two mistakes, or with one that also shows in a special input, matches no mistake
    on all inputs. Inputs on which a mistake would show, but the answer is right, count against it,
    and rule it out if its hint says where the answer is right.
    Failing that, return a mistake that explains some results, if the answer raises errors on all
    other inputs where the mistake is wrong: after a wrong shape, it depends on the rest of the code
    what fails.

    Returns
    -------
    (Mistake, int, int) or None
        The mistake, how many wrong results it explains, and how many there are.
    """

    def matches(run, target):
        return bool(fitting([run], [target]))

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
            if in_favor > enough and not (against and SAYS_WHERE_RIGHT.match(mistake.hint)):
                best = mistake, in_favor, wrong_results
            if may_fail and in_favor + same_errors:
                failing = mistake, in_favor + same_errors, wrong_results
    return best or failing
