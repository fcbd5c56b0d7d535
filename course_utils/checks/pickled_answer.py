"""Pickle an answer, with what it uses of the learner's notebook, for another process."""

import builtins
import contextlib
import functools
import inspect
import io
import marshal
import re
import sys
import types
from unittest import mock

import cloudpickle
import torch
from IPython.core.autocall import ExitAutocall
from IPython.core.interactiveshell import InteractiveShell

LARGEST = 64 << 20  # bytes that are sent with an answer


def pickled(answer):
    """Pickle an answer with the notebook's functions and classes that it mentions.

    Parameters
    ----------
    answer : function or class

    Returns
    -------
    bytes
        `cloudpickle.loads` returns the answer, and what it mentions as a dict by name; the dict is
        empty if that cannot be pickled.

    Raises
    ------
    Exception
        Of whatever kind, if something that the answer uses cannot be pickled or is too large.
    """
    with contextlib.suppress(Exception):  # the answer may do without
        return _dumps((answer, _mentioned(answer)))
    return _dumps((answer, {}))


def not_picklable(answer):
    """Return the name of the first thing that a function uses and that cannot be pickled.

    Parameters
    ----------
    answer : function or class

    Returns
    -------
    str or None
        None if there is no such thing, and for a class.
    """
    used = inspect.getclosurevars(answer) if inspect.isfunction(answer) else None
    for name, value in (used.nonlocals | used.globals).items() if used else ():
        try:
            _dumps(value)
        except Exception:
            return name
    return None


def _mentioned(answer):
    """Return the notebook's functions and classes that an answer could look up by their names."""
    words = {getattr(answer, "__name__", "")}
    with contextlib.suppress(OSError, TypeError):
        words.update(re.findall(r"\w+", inspect.getsource(answer)))
    main = vars(sys.modules["__main__"])
    mine = {word: main[word] for word in words & {*main}}
    return {
        word: value
        for word, value in mine.items()
        if isinstance(value, type | types.FunctionType) and value.__module__ == "__main__"
    }


def _dumps(value):
    letter = _Letter()
    pickler = _Pickler(letter)
    # a function's globals become the child's __main__, where pickle and others look names up
    pickler.globals_ref[id(vars(sys.modules["__main__"]))] = _Main()
    pickler.dump(value)
    return letter.getvalue()


class _Main:
    def __reduce__(self):
        return vars, (sys.modules["__main__"],)


class _Letter(io.BytesIO):
    def write(self, data):
        _limit(self.tell() + memoryview(data).nbytes)
        return super().write(data)


class _Pickler(cloudpickle.Pickler):
    """Pickles what a notebook defines, also some things that no other pickler takes."""

    def reducer_override(self, value):
        if isinstance(value, torch.Tensor):
            _limit(value.untyped_storage().nbytes())
        if isinstance(value, types.CodeType):  # cloudpickle drops the file that names its line
            return marshal.loads, (marshal.dumps(value),)
        if type(value).__module__.startswith("triton.runtime") and hasattr(value, "fn"):
            from course_utils.checks.submission_kernel import triton

            return triton.jit, (value.fn,)
        if isinstance(value, functools._lru_cache_wrapper) and value.__module__ == "__main__":
            return functools.cache, (value.__wrapped__,)
        if isinstance(value, ExitAutocall):
            return getattr, (builtins, "exit")
        if isinstance(value, InteractiveShell):  # magics and shell commands do nothing there
            return mock.MagicMock, ()
        return super().reducer_override(value)


def _limit(size):
    if size > LARGEST:
        raise ValueError(f"it is larger than {LARGEST >> 20} MB")
