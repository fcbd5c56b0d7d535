"""Launch a learner's Triton kernel: in the interpreter, within the memory of its arguments.

The interpreter reads and writes wherever an address leads, which can be the end of Python. Here an
address that leads out of the arguments' memory raises an `OutOfBounds`.

It interprets with a GPU too, whatever TRITON_INTERPRET says, so that answers are judged alike.
"""

import contextlib
import contextvars
import functools
import inspect
import os
import types
import warnings
from collections import Counter
from dataclasses import dataclass, field
from unittest import mock

import numpy as np

from course_utils.checks import sandbox

try:
    import triton
    import triton.language as tl
    from triton.runtime import interpreter
    from triton.runtime.errors import InterpreterError
    from triton.runtime.jit import JITFunction
except ImportError:  # Triton exists for Linux only; what is needed to define a kernel stands in
    triton = types.SimpleNamespace(jit=lambda kernel: kernel)
    tl = types.SimpleNamespace(constexpr=int)
    interpreter = None
else:

    class _Interpreted(interpreter.InterpretedFunction):
        """A function that a kernel calls, interpreted; `launch` has prepared the language."""

        def __call__(self, *args, **kwargs):  # Triton's prepares it again at each call
            # a copy, for what it calls itself
            return _interpreted(_copied(self.fn)).rewrite()(*args, **kwargs)


NO_TRITON = (
    "Triton is not installed here, and this exercise is a kernel for it; it exists for Linux only: "
    "there, `pip install triton==3.7.1`; the exercises without a kernel go without"
)


_seen = []  # lists to which the work of each launch is added


@contextlib.contextmanager
def launches():
    """Within it, the work of each `launch` is added to the list that it yields."""
    _seen.append([])
    try:
        yield _seen[-1]
    finally:
        _seen.pop()


_nothing = contextvars.ContextVar("whether launches run nothing", default=False)


@contextlib.contextmanager
def unlaunched():
    """Within it, a `launch` runs nothing: what a kernel would write stays as it was."""
    token = _nothing.set(True)
    try:
        yield
    finally:
        _nothing.reset(token)


class OutOfBounds(IndexError):
    """A kernel reads or writes where none of its arguments has memory."""


@dataclass
class Work:
    """What the programs of one launch did.

    Attributes
    ----------
    read : Counter
        How many numbers were read, by (name of the pointer, program).
    products : list of tuple of str
        The dtypes of each tl.dot: of both factors and of what they are added to.
    """

    read: Counter = field(default_factory=Counter)
    products: list = field(default_factory=list)

    def program_reads(self):
        """Return how many numbers each program read."""
        reads = Counter()
        for (_, program), count in self.read.items():
            reads[program] += count
        return reads


def launch(kernel, grid, *args, **constants):
    """Run a kernel in Triton's interpreter; return its `Work`.

    Parameters
    ----------
    kernel : function
        With or without @triton.jit.
    grid : tuple of int
        How many programs there are along each axis, up to three.
    *args, **constants
        The kernel's arguments; tensors, on the CPU, arrive as pointers to their first number.

    Raises
    ------
    OutOfBounds
        If it reads or writes outside of its arguments' memory.
    """
    if interpreter is None:
        raise sandbox.Refused("not checked", "no Triton", NO_TRITON)
    work = Work()
    if _nothing.get():
        return work
    kernel = _copied(kernel)
    for each in _seen:
        each.append(work)
    try:
        given = inspect.signature(kernel).bind(*args, **constants).arguments
        with (
            _interpreted_language(),
            mock.patch.object(interpreter, "_interpreter", _Memory(given, work)),
            mock.patch.object(type(interpreter.interpreter_builder), "create_dot", _noted(work)),
            # What looks for an overflow is calculated, and read in debug mode only.
            mock.patch.object(
                interpreter.interpreter_builder,
                "options",
                interpreter.InterpreterOptions(sanitize_overflow=False),
            ),
            np.errstate(all="ignore"),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            interpreter.InterpretedFunction(kernel)[grid](*args, **constants)
    except Exception as error:
        while isinstance(error, InterpreterError):  # around the kernel's own, or its function's
            error = error.__cause__
        error.tag_learner_errors = (
            True  # as `exercise.tag_learner_errors` says it: all that runs here is the learner's
        )
        raise error from None
    return work


def _copied(kernel):
    """Return the kernel's Python function with globals of its own, to which the interpreter adds.

    What was made to be compiled among them, other functions that it calls, is interpreted.
    """
    kernel = inspect.unwrap(kernel)
    function = getattr(kernel, "fn", kernel)
    scope = {name: _interpretable(value) for name, value in function.__globals__.items()}
    scope |= {"tl": tl, "tl.core": tl.core}  # what Triton prepares of its language
    copy = _copy(function)
    copy.__globals__.update(scope)  # a notebook may have other values by now
    return copy


@functools.cache
def _copy(function):
    """Return the copy of a function that all its launches share: to rewrite one is slow."""
    copy = types.FunctionType(function.__code__, {}, function.__name__, function.__defaults__)
    copy.__annotations__ = function.__annotations__
    return copy


def _interpretable(value):
    made = isinstance(value, JITFunction | interpreter.InterpretedFunction)
    return _interpreted(value.fn) if made else value


@functools.cache
def _interpreted(function):
    return _Interpreted(function)


@contextlib.contextmanager
def _interpreted_language():
    """Interpret the functions of Triton that are written in Triton, such as tl.max."""
    made, before = {}, []
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, {"TRITON_INTERPRET": "1"}))
        for holder in (tl.standard, tl, tl.tensor):
            for name, value in [*vars(holder).items()]:
                other = _interpretable(value)
                if other is not value:
                    other = made.setdefault(id(value), other)
                    # a class binds plain functions only
                    other = _method(other) if holder is tl.tensor else other
                    before.append((holder, name, value))
                    setattr(holder, name, other)
        try:
            yield
        finally:
            for holder, name, value in before:
                setattr(holder, name, value)


def _method(function):
    return lambda *args, **kwargs: function(*args, **kwargs)


def _noted(work):
    create_dot = interpreter.InterpreterBuilder.create_dot

    def noted(builder, a, b, d, *rest):
        work.products.append(tuple(str(each.dtype.scalar) for each in (a, b, d)))
        return create_dot(builder, a, b, d, *rest)

    return noted


class _Memory:
    """In place of what reads and writes for the interpreter: first looks where."""

    def __init__(self, given, work):
        self.work, self.own = work, interpreter._interpreter
        self.ranges = {}  # by name: first address, and the one behind the last
        for name, arg in given.items():
            if hasattr(arg, "untyped_storage"):
                start = arg.untyped_storage().data_ptr()
                self.ranges[name] = start, start + arg.untyped_storage().nbytes()

    def __getattr__(self, name):
        return getattr(self.own, name)

    def load(self, addresses, mask, other, dtype):
        name, count = self._looked("reads", addresses, mask, np.dtype(dtype).itemsize)
        self.work.read[name, interpreter.interpreter_builder.grid_idx] += count
        return self.own.load(addresses, mask, other, dtype)

    def store(self, addresses, values, mask):
        self._looked("writes", addresses, mask, values.dtype.itemsize)
        return self.own.store(addresses, values, mask)

    def atomic_rmw(self, operation, addresses, values, mask, order):
        self._looked("writes", addresses, mask, values.dtype.itemsize)
        return self.own.atomic_rmw(operation, addresses, values, mask, order)

    def atomic_cas(self, addresses, expected, values, order):
        self._looked("writes", addresses, True, values.dtype.itemsize)
        return self.own.atomic_cas(addresses, expected, values, order)

    def _looked(self, does, addresses, mask, size):
        """Return the name of the pointer whose memory is used, and for how many numbers."""
        used = np.asarray(addresses)[np.broadcast_to(mask, np.shape(addresses))].astype(np.int64)
        if not used.size:
            return "", 0
        low, high = used.min(), used.max() + size
        for name, (start, stop) in self.ranges.items():
            if start <= low and high <= stop:
                return name, used.size
        off = {name: max(start - low, high - stop) for name, (start, stop) in self.ranges.items()}
        near = min(off, key=off.get)
        where = "before the first" if self.ranges[near][0] > low else "beyond the last"
        raise OutOfBounds(f"it {does} {where} number of {near}, by up to {off[near] // size}")
