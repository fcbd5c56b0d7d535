"""Mistakes as small changes of a right answer, written out and compiled when they are needed."""

import functools
import inspect
import linecache
import sys
import textwrap


def edited(right, name, *change):
    """Return the wrong answer that a change of the right one makes.

    Parameters
    ----------
    right : function or class
    name : str
        The mistake's, for messages.
    *change
        Pairs (old, new) of pieces of source, one put in place of the other, one after another; or
        one string, an expression that a function with the same signature returns; or the wrong
        answer itself, where no edit would be clear.

    Raises
    ------
    ValueError
        If an old piece does not stand in the source exactly once.
    """
    if len(change) == 1 and callable(change[0]):
        return change[0]
    if len(change) == 1 and isinstance(change[0], str):
        source = f"def {right.__name__}{inspect.signature(right)}:\n    return {change[0]}\n"
    else:
        source = _edited(_source(right), right.__name__, name, change)
    file = f"<{right.__name__}: {name}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    scope = dict(vars(sys.modules[right.__module__]))
    exec(compile(source, file, "exec"), scope)
    return scope[right.__name__]


def _edited(source, right, name, edits):
    for old, new in edits:
        times = source.count(old)
        if times != 1:
            raise ValueError(f"{name!r}: {old!r} stands {times} times in {right}, not once")
        source = source.replace(old, new)
    return source


@functools.cache
def _source(right):
    return textwrap.dedent(inspect.getsource(right))
