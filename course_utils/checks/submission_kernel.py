"""Launch a learner's Triton kernel in the interpreter, within the memory of its arguments.

Triton's interpreter reads and writes at any address, which can crash Python. Here an address
outside the arguments' memory raises `OutOfBounds`.

Kernels are interpreted even where there is a GPU, whatever TRITON_INTERPRET says, so that verdicts
are the same everywhere.
"""

import contextlib
import contextvars
import functools
import inspect
import linecache
import os
import re
import types
import warnings
from collections import Counter
from dataclasses import dataclass, field
from unittest import mock

import numpy as np

from course_utils.checks.calls import Refused

try:
    import triton
    import triton.language as tl
    from triton.runtime import interpreter
    from triton.runtime.errors import InterpreterError
    from triton.runtime.jit import JITFunction
except ImportError:  # Triton exists for Linux only; these suffice to define a kernel
    triton = types.SimpleNamespace(jit=lambda kernel: kernel)
    tl = types.SimpleNamespace(constexpr=int)
    interpreter = None
else:

    class _Interpreted(interpreter.InterpretedFunction):
        """A function that a kernel calls, interpreted; `launch` has patched the language."""

        def __call__(self, *args, **kwargs):  # Triton's own would patch it again at each call
            # a copy, for the functions that it calls
            return _interpreted(_copied(self.fn)).rewrite()(*args, **kwargs)


NO_TRITON = (
    "This exercise needs Triton, which is not installed here. Triton exists only for Linux: "
    "`pip install triton`. Exercises without a kernel work without it."
)


_recorders = []  # lists to which each launch adds its `Work`


@contextlib.contextmanager
def launches():
    """Yield a list to which each `launch` within this context adds its `Work`."""
    _recorders.append([])
    try:
        yield _recorders[-1]
    finally:
        _recorders.pop()


_unlaunched = contextvars.ContextVar("whether launches run nothing", default=False)


@contextlib.contextmanager
def unlaunched():
    """Let each `launch` within this context run nothing: what a kernel would write is unchanged."""
    token = _unlaunched.set(True)
    try:
        yield
    finally:
        _unlaunched.reset(token)


class OutOfBounds(IndexError):
    """A kernel reads or writes outside the memory of its arguments."""


@dataclass
class Work:
    """What the programs of one launch did.

    Attributes
    ----------
    read : Counter
        How many numbers were read, by (name of the pointer, program).
    products : list of tuple of str
        The dtypes of each tl.dot: of both factors and of the accumulator.
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
        The kernel's arguments. Tensors, on the CPU, are passed as pointers to their first entry.

    Raises
    ------
    OutOfBounds
        If it reads or writes outside its arguments' memory.
    """
    if interpreter is None:
        raise Refused("not checked", "no Triton", NO_TRITON)
    work = Work()
    if _unlaunched.get():
        return work
    kernel = _copied(kernel)
    for recorder in _recorders:
        recorder.append(work)
    try:
        arguments = inspect.signature(kernel).bind(*args, **constants).arguments
        with (
            _interpreted_language(),
            mock.patch.object(interpreter, "_interpreter", _Memory(arguments, work)),
            mock.patch.object(type(interpreter.interpreter_builder), "create_dot", _recorded(work)),
            # The check for overflow is costly, and its result is read in debug mode only.
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
        while isinstance(error, InterpreterError):  # it wraps the error of the kernel
            error = error.__cause__
        error.is_learners = True  # as by `exercise.tag_learner_errors`: the code is theirs
        raise error from None
    return work


def _copied(kernel):
    """Return the kernel's Python function with a copy of its globals, which the launch changes.

    The functions among them that were made to be compiled are interpreted.
    """
    kernel = inspect.unwrap(kernel)
    function = getattr(kernel, "fn", kernel)
    if not isinstance(function, types.FunctionType):
        hint = "Your kernel is not a function. Define it with `def`, below the line `@triton.jit`."
        raise Refused("wrong", "not a function", hint)
    scope = {name: _interpretable(value) for name, value in function.__globals__.items()}
    scope |= {"tl": tl, "tl.core": tl.core}  # the parts of the language that Triton patches
    copy = _copy(function)
    copy.__globals__.update(scope)  # the notebook may have changed them
    return copy


@functools.cache
def _copy(function):
    """Return one copy of a function for all its launches: rewriting it is slow."""
    code, defaults = function.__code__, function.__defaults__
    copy = types.FunctionType(code, {}, function.__name__, defaults, function.__closure__)
    copy.__annotations__ = function.__annotations__
    return copy


def _interpretable(value):
    is_kernel = isinstance(value, JITFunction | interpreter.InterpretedFunction)
    return _interpreted(value.fn) if is_kernel else value


@functools.cache
def _interpreted(function):
    return _Interpreted(function)


@contextlib.contextmanager
def _interpreted_language():
    """Interpret the functions of Triton that are written in Triton, such as tl.max."""
    interpreted, before = {}, []
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, {"TRITON_INTERPRET": "1"}))
        for holder in (tl.standard, tl, tl.tensor):
            for name, value in [*vars(holder).items()]:
                new = _interpretable(value)
                if new is not value:
                    new = interpreted.setdefault(id(value), new)
                    # a class binds plain functions only
                    new = _method(new) if holder is tl.tensor else new
                    before.append((holder, name, value))
                    setattr(holder, name, new)
        try:
            yield
        finally:
            for holder, name, value in before:
                setattr(holder, name, value)


def _method(function):
    return lambda *args, **kwargs: function(*args, **kwargs)


def _recorded(work):
    create_dot = interpreter.InterpreterBuilder.create_dot

    def recorded(builder, a, b, d, *rest):
        work.products.append(tuple(str(block.dtype.scalar) for block in (a, b, d)))
        return create_dot(builder, a, b, d, *rest)

    return recorded


class _Memory:
    """Replaces what reads and writes for the interpreter; checks the addresses first."""

    def __init__(self, arguments, work):
        self.work, self.original = work, interpreter._interpreter
        self.ranges = {}  # by name: first address, and the one behind the last
        for name, arg in arguments.items():
            if hasattr(arg, "untyped_storage"):
                start = arg.untyped_storage().data_ptr()
                self.ranges[name] = start, start + arg.untyped_storage().nbytes()

    def __getattr__(self, name):
        return getattr(self.original, name)

    def load(self, addresses, mask, other, dtype):
        name, count = self._check("reads", addresses, mask, np.dtype(dtype).itemsize)
        self.work.read[name, interpreter.interpreter_builder.grid_idx] += count
        return self.original.load(addresses, mask, other, dtype)

    def store(self, addresses, values, mask):
        self._check("writes", addresses, mask, values.dtype.itemsize)
        return self.original.store(addresses, values, mask)

    def atomic_rmw(self, operation, addresses, values, mask, order):
        self._check("writes", addresses, mask, values.dtype.itemsize)
        return self.original.atomic_rmw(operation, addresses, values, mask, order)

    def atomic_cas(self, addresses, expected, values, order):
        self._check("writes", addresses, True, values.dtype.itemsize)
        return self.original.atomic_cas(addresses, expected, values, order)

    def _check(self, verb, addresses, mask, size):
        """Return the name of the pointer whose memory is used, and for how many numbers."""
        used = np.asarray(addresses)[np.broadcast_to(mask, np.shape(addresses))].astype(np.int64)
        if not used.size:
            return "", 0
        low, high = used.min(), used.max() + size
        named = self._pointer_in_line(verb)
        for name in [named] if named else self.ranges:
            start, stop = self.ranges[name]
            if start <= low and high <= stop:
                return name, used.size
        if named is None:
            raise OutOfBounds(f"the kernel {verb} outside the memory of its tensors")
        where, off = max(
            ("before the first", start - low),
            ("beyond the last", high - stop),
            key=lambda each: each[1],
        )
        by = off // size
        raise OutOfBounds(f"the kernel {verb} {where} entry of {named}, by up to {by} entries")

    def _pointer_in_line(self, verb):
        """Return the pointer that the kernel's present line reads from or writes to.

        None if there is no such pointer, or several. Where an address lies cannot tell: tensors may
        be neighbors in memory, and then what lies beyond one is in another.
        """
        frame = inspect.currentframe()
        while frame is not None and self.ranges.keys().isdisjoint(frame.f_code.co_varnames):
            frame = frame.f_back
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno) if frame else ""
        calls = r"\bload\(([^,]*)" if verb == "reads" else r"\b(?:store|atomic_\w+)\(([^,]*)"
        addresses = " ".join(re.findall(calls, line))
        named = self.ranges.keys() & set(re.findall(r"\w+", addresses))
        named = {name for name in named if self._points_into(name, frame.f_locals.get(name))}
        return named.pop() if len(named) == 1 else None

    def _points_into(self, name, pointer):
        """Return whether a name still stands for its tensor, and not for another one's addresses.

        A helper may have a parameter of the same name.
        """
        if not isinstance(pointer, tl.tensor):
            return False
        start, stop = self.ranges[name]
        addresses = pointer.handle.data.astype(np.int64)
        return start <= addresses.min() and addresses.max() < stop
