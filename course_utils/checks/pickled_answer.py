"""Pickle an answer, with what it uses of the learner's notebook, for another process."""

import builtins
import contextlib
import dis
import functools
import importlib
import inspect
import io
import marshal
import pickle
import re
import sys
import types
import typing
import weakref
from unittest import mock

import cloudpickle
import numpy as np
import torch
from IPython.core.autocall import ExitAutocall
from IPython.core.interactiveshell import InteractiveShell
from torch import nn
from torch.nn.parameter import is_lazy

from course_utils.checks.errors import summarize

LARGEST = 64 << 20  # bytes that are sent with an answer
SMALL = 1 << 20  # bytes of something that an answer only mentions
DEEPEST = 5000  # calls within one another; many more crash Python


def pickled(answer):
    """Pickle an answer with what it mentions of the notebook.

    Parameters
    ----------
    answer : function or class

    Returns
    -------
    list of bytes
        From each, `cloudpickle.loads` returns the answer and, by its name, what it mentions. In the
        second, that is nothing: for where the first cannot be loaded.

    Raises
    ------
    Exception
        Of whatever kind, if something that the answer uses cannot be pickled or is too large.
    """
    alone = _dumps((answer, {}))
    with contextlib.suppress(Exception):  # the answer may do without
        return [_dumps((answer, _mentioned(answer))), alone]
    return [alone]


def _mentioned(answer):
    """Return, of what the notebook defines, what an answer could look up by its name.

    Functions and classes have names, and so have annotations in quotes, and what `eval` reads.
    """
    words = {getattr(answer, "__name__", "")}
    with contextlib.suppress(OSError, TypeError):
        words.update(re.findall(r"\w+", inspect.getsource(answer)))
    main = vars(sys.modules["__main__"])
    return {word: main[word] for word in words & {*main} if _is_small(main[word])}


def used_by(answer):
    """Yield the name and value of each thing that an answer uses from outside."""
    for function in functions_of(answer):
        named = inspect.getclosurevars(function).nonlocals
        code = [function.__code__]
        while code:  # also that of functions inside it
            each = code.pop()
            code += (inner for inner in each.co_consts if isinstance(inner, types.CodeType))
            read = {i.argval for i in dis.get_instructions(each) if i.opname == "LOAD_GLOBAL"}
            named |= {name: function.__globals__[name] for name in read & {*function.__globals__}}
        yield from ((name, value) for name, value in named.items() if value is not answer)


def functions_of(answer):
    """Return a function without its decorators, or the methods of a class."""
    parts = vars(answer).values() if inspect.isclass(answer) else [inspect.unwrap(answer)]
    return [each for each in parts if inspect.isfunction(each)]


def _is_small(value):
    try:
        return len(_dumps(value)) <= SMALL
    except TimeoutError:  # there is no time for the others either
        raise
    except Exception:
        return False


def _dumps(value):
    letter = _Letter()
    pickler = _Pickler(letter)
    # a function's globals become the child's __main__, where pickle and others look names up
    pickler.globals_ref[id(vars(sys.modules["__main__"]))] = _Main()
    depth = sys.getrecursionlimit()
    sys.setrecursionlimit(min(depth, DEEPEST))
    try:
        pickler.dump(value)
    except SystemExit as error:  # from a __reduce__ of the learner's, for instance
        raise pickle.PicklingError(summarize(error)) from None
    finally:
        sys.setrecursionlimit(depth)
    return letter.getvalue()


class _Main:
    def __reduce__(self):
        return vars, (sys.modules["__main__"],)


class _Letter(io.BytesIO):
    def write(self, data):
        _limit(self.tell() + memoryview(data).nbytes)
        return super().write(data)


def _same(value):
    return value


def _is_importable(value):
    module = sys.modules.get(value.__module__)
    return value.__module__ != "__main__" and getattr(module, value.__qualname__, None) is value


def _cached(function, parameters):
    return functools.lru_cache(**parameters)(function)


def _set_grad(tensor, grad):
    tensor.grad = grad


class _Pickler(cloudpickle.Pickler):
    """Pickles what a notebook defines, also some things that no other pickler takes."""

    def reducer_override(self, value):
        if isinstance(value, torch.Tensor) and not is_lazy(value):
            if value.layout == torch.strided and not value.is_meta:
                stored = value.untyped_storage().nbytes()
                _limit(min(stored, value.nbytes))  # an expanded tensor has more bytes than storage
                if stored > LARGEST:  # a part of a larger one
                    return value.detach().clone().__reduce_ex__(2)
            if type(value) in (torch.Tensor, nn.Parameter):
                if (value.is_leaf or value.retains_grad) and value.grad is not None:
                    return *value.__reduce_ex__(2), value.grad, None, None, _set_grad
        if isinstance(value, np.lib.npyio.NpzFile):  # it reads when it is asked
            file = io.BytesIO()
            np.savez(file, **value)
            return np.load, (io.BytesIO(file.getvalue()),)
        if isinstance(value, typing.NewType):  # as others of typing it is pickled by its name only
            return typing.NewType, (value.__name__, value.__supertype__)
        if isinstance(value, typing.ParamSpec | typing.TypeVarTuple):
            return type(value), (value.__name__,)
        if isinstance(value, functools.cached_property):  # in Python 3.11 it has a lock
            return functools.cached_property, (value.func,), {"attrname": value.attrname}
        if isinstance(value, weakref.WeakKeyDictionary):  # functools.singledispatch has one
            return weakref.WeakKeyDictionary, (dict(value),)
        if isinstance(value, types.CodeType):  # cloudpickle drops the file that names its line
            return marshal.loads, (marshal.dumps(value),)
        if type(value).__module__.startswith("triton.runtime") and hasattr(value, "fn"):
            from course_utils.checks.submission_kernel import triton

            return triton.jit, (value.fn,)
        if isinstance(value, functools._lru_cache_wrapper) and not _is_importable(value):
            return _cached, (value.__wrapped__, value.cache_parameters())
        if isinstance(value, types.ModuleType) and type(value) is not types.ModuleType:
            return importlib.import_module, (value.__name__,)  # as torch.backends.cudnn
        if isinstance(value, types.FunctionType) and hasattr(value, "_torchdynamo_orig_callable"):
            return _same, (value._torchdynamo_orig_callable,)  # of torch.compile
        if type(value).__name__ == "OptimizedModule":
            return _same, (value._orig_mod,)
        if isinstance(value, torch.jit.ScriptFunction | torch.jit.ScriptModule):
            return torch.jit.load, (io.BytesIO(value.save_to_buffer()),)
        if isinstance(value, ExitAutocall):
            return getattr, (builtins, "exit")
        if isinstance(value, InteractiveShell):  # magics and shell commands do nothing there
            return mock.MagicMock, ()
        return super().reducer_override(value)


def _limit(size):
    if size > LARGEST:
        raise ValueError(f"it is larger than {LARGEST >> 20} MB")
