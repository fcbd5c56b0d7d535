"""Exercises whose answer is a test: it must pass right code and catch broken code."""

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
    for name, implementation in rights.items():
        which = f"a correct implementation ({name})" if name else THE_RIGHT
        _demand_pass(test, implementation, which)
    escaped = [name for name, implementation in broken.items() if passes(test, implementation)]
    if escaped:
        caught = len(broken) - len(escaped)
        hint = f"Your test catches {caught} of {len(broken)} broken versions. These pass: "
        if not caught:
            hint = "Your test asserts nothing, or only what broken code fulfills as well. " + hint
        raise NamedMistake("lets broken code through", hint + "; ".join(escaped) + ".")
    # a test that counts its calls could fail from the first broken version on
    again = f"{THE_RIGHT} when it runs again after the broken ones"
    _demand_pass(test, next(iter(rights.values())), again)
    return [tensor(True)]


def _demand_pass(test, implementation, which):
    """Raise a `NamedMistake` unless a test passes, as it must for a right implementation."""
    try:
        with seeded():
            returned = test(implementation)
    except NotImplementedError:
        raise
    except Exception as error:
        hint = f"Your test fails for {which}. {explained(error)}"
        raise NamedMistake("rejects right code", hint) from None
    if returned is not None:
        hint = (
            "Your test returns something. A test fails by raising an error, so write `assert "
            "...`, and return nothing."
        )
        raise NamedMistake("returns a verdict", hint)


def passes(test, implementation):
    """Tell whether a test passes an implementation."""
    try:
        with seeded():
            test(implementation)
    except Exception:
        return False
    return True
