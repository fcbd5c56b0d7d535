"""Mistakes as small changes of a right answer, written out and compiled when they are needed."""

import builtins
import dis
import functools
import inspect
import linecache
import sys
import textwrap
import types


class RowDoesNotFit(ValueError):
    """A row of MISTAKES whose edit no longer fits the reference.

    Learners never see it: their check goes on with the other rows. The row's test shows it.
    """


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
    RowDoesNotFit
        If an old piece does not stand in the source exactly once, or what is edited does not
        compile or uses a name that is not defined.
    """
    if len(change) == 1 and callable(change[0]):
        return change[0]
    if len(change) == 1 and isinstance(change[0], str):
        source = f"def {right.__name__}{inspect.signature(right)}:\n    return {change[0]}\n"
    else:
        source = _source(right)
        for old, new in change:
            if (times := source.count(old)) != 1:
                fault = f"{old!r} stands {times} times in {right.__name__}, not once"
                raise RowDoesNotFit(f"{name!r}: {fault}")
            source = source.replace(old, new)
    file = f"<{right.__name__}: {name}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    scope = dict(vars(sys.modules[right.__module__]))
    try:
        code = compile(source, file, "exec")
    except SyntaxError as error:
        raise RowDoesNotFit(f"{name!r}: {error.msg}: {(error.text or '').strip()}") from None
    exec(code, scope)
    if undefined := _globals_of(code) - scope.keys() - vars(builtins).keys():
        fault = f"{', '.join(sorted(undefined))} is not defined in {right.__name__}"
        raise RowDoesNotFit(f"{name!r}: {fault}")
    return scope[right.__name__]


def _globals_of(code):
    """Return the names that code, or a function in it, looks up outside of all functions."""
    inside = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    looked_up = (step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL")
    return set(looked_up).union(*map(_globals_of, inside))


@functools.cache
def _source(right):
    return textwrap.dedent(inspect.getsource(right))
