"""Exercises whose answer is a test: it must pass right code and catch broken code."""

import random

from torch import tensor

from course_utils.checks.calls import seeded
from course_utils.checks.errors import explained
from course_utils.checks.exercise import NamedMistake
from course_utils.checks.source_edits import edited

THE_RIGHT = "the correct implementation"


def versions(exercise, changes):
    """Return implementations of an exercise, compiled from changes of its reference.

    Parameters
    ----------
    exercise : Exercise
    changes : dict of str to (str or tuple or callable)
        Under the words in which a learner reads of it: the name of one of the exercise's mistakes,
        or a change of its reference, (old, new), or an implementation itself.
    """
    mistakes = {mistake.name: mistake for mistake in exercise.mistakes}
    return {
        words: mistakes[change].answer
        if isinstance(change, str)
        else edited(exercise.reference, words, change)
        for words, change in changes.items()
    }


def run_against(test, right, broken):
    """Run a learner's test on right implementations and on broken ones: an exercise's ``run``.

    As with pytest, a test fails by raising AssertionError or any other error. It may draw random
    inputs: each call starts from the same seed, so that the verdict is always the same, and the
    random state is restored.

    Parameters
    ----------
    test : callable
        The learner's test; takes one implementation.
    right : callable, or dict of str to callable
        Implementations that must pass; several, each under a name for the learner, if a test could
        be too strict for some.
    broken : dict of str to callable
        Implementations that it must catch, each under the words that the learner reads if it gets
        through.

    Returns
    -------
    list of torch.Tensor
        ``[tensor(True)]``, as `Exercise` wants it: the test is good.

    Raises
    ------
    NamedMistake
        If the test returns something instead of raising, fails for right code, or lets broken code
        through. Two tests that let the same code through get the same message.
    NotImplementedError
        If the test raises it: it is not attempted yet.
    """
    rights = right if isinstance(right, dict) else {"": right}
    first, *_ = rights.values()
    runs = [*rights.values(), *broken.values(), first]
    outcomes = [None] * len(runs)
    # in an order that a test which counts its calls cannot know
    for place in random.SystemRandom().sample(range(len(runs)), len(runs)):
        outcomes[place] = _outcome(test, runs[place])
    for name, outcome in zip(rights, outcomes, strict=False):
        _demand_pass(outcome, f"a correct implementation ({name})" if name else THE_RIGHT)
    of_broken = zip(broken, outcomes[len(rights) :], strict=False)
    escaped = [name for name, outcome in of_broken if not isinstance(outcome, Exception)]
    if escaped:
        caught = len(broken) - len(escaped)
        hint = f"Your test catches {caught} of {len(broken)} broken versions. These pass: "
        if not caught:
            hint = "Your test asserts nothing, or only what broken code fulfills as well. " + hint
        raise NamedMistake("lets broken code through", hint + "; ".join(escaped) + ".")
    _demand_pass(outcomes[-1], f"{THE_RIGHT} when it runs a second time")
    return [tensor(True)]


def _outcome(test, implementation):
    """Return what a test returns for an implementation, or the error that it raises."""
    try:
        with seeded():
            return test(implementation)
    except Exception as error:
        return error


def _demand_pass(outcome, which):
    """Raise a `NamedMistake` unless a test has passed, as it must for a right implementation."""
    if isinstance(outcome, NotImplementedError):
        raise outcome
    if isinstance(outcome, Exception):
        hint = f"Your test fails for {which}. {explained(outcome)}"
        raise NamedMistake("rejects right code", hint) from None
    if outcome is not None:
        hint = (
            "Your test returns something. A test fails by raising an error, so write `assert "
            "...`, and return nothing."
        )
        raise NamedMistake("returns a verdict", hint)


def passes(test, implementation):
    """Tell whether a test passes an implementation."""
    return not isinstance(_outcome(test, implementation), Exception)
