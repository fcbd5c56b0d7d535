"""Call a learner's code, and note what it does besides returning a result."""

import contextlib
import io
import random
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import overrides
from torch.utils import _python_dispatch

LEAVES = (
    "leaves Python",
    "Your code exits Python (`exit`, `quit`, `os._exit`). End a function with `return`.",
)
ASKS = "asks for input", "Your code asks for input. Everything it needs is in its arguments."
NESTED = (
    "checks itself",
    "Your function calls `check` itself. Call it below the function, without indentation.",
)

_inside = False  # whether an answer runs now


class Refused(BaseException):
    """Raised where an answer does what no answer may; its args are (status, mistake, hint).

    No Exception, so that `except Exception` in the answer lets it by.
    """


@dataclass
class Run:
    """What came of one call: a value or an error, and what it did besides."""

    value: Any = None
    error: BaseException | None = None
    printed: bool = False
    reseeded: bool = False


def call(function, *args):
    """Call ``function(*args)`` and return a `Run`; raise nothing. Printed text is dropped."""
    global _inside
    if _inside:
        return Run(error=Refused("wrong", *NESTED))
    run, sink, before = Run(), _Sink(), random_states()
    streams = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = sys.stdout = sys.stderr = sink
    _inside = True
    with drawing_from(before):
        try:
            run.value = function(*args)
        except SystemExit:
            run.error = Refused("wrong", *LEAVES)
        except BaseException as error:
            run.error = error
        finally:
            sys.stdin, sys.stdout, sys.stderr = streams
            _inside = False
        run.reseeded = random_states() != before
    run.printed = sink.used
    return run


def restart_clock(of=b"answer"):
    """Give the answer all its time again for what follows; `judge_process` replaces this.

    What follows may also be a known mistake, b"mistake".
    """


@contextlib.contextmanager
def settings_kept():
    """After it, PyTorch's settings for all that follows are as before it."""
    kept = torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
    device = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    kinds = (overrides, "function"), (_python_dispatch, "dispatch")
    stacks = [(kind, getattr(kind, f"_get_current_{name}_mode_stack")) for kind, name in kinds]
    modes = [stack() for _, stack in stacks]
    try:
        yield
    finally:
        for (kind, stack), before in zip(stacks, modes, strict=True):
            while stack():
                kind._pop_mode()
            for mode in before:
                kind._push_mode(mode)
        torch._GLOBAL_DEVICE_CONTEXT.device_context = device
        torch.set_default_dtype(kept[0])
        torch.set_grad_enabled(kept[1])
        torch.set_autocast_enabled("cpu", kept[2])


@contextlib.contextmanager
def seeded(seed=0):
    """Within it, random numbers start from a seed; after it, the random states are as before."""
    with drawing_from(random_states()):
        torch.default_generator.manual_seed(seed)  # the CPU's alone: to queue CUDA's is slow
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        yield


@contextlib.contextmanager
def drawing_from(states):
    """Within it, random numbers go on from `random_states`; after it, those are as before."""
    before = random_states()
    _set_random_states(states)
    try:
        yield
    finally:
        _set_random_states(before)


def random_states():
    """Return the states of all that draws random numbers, to be compared with ==."""
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    numpy_state = name, keys.tobytes(), *rest
    return torch.get_rng_state().numpy().tobytes(), numpy_state, random.getstate()


def _set_random_states(states):
    torch_state, (name, keys, *rest), python_state = states
    torch.set_rng_state(torch.frombuffer(bytearray(torch_state), dtype=torch.uint8))
    np.random.set_state((name, np.frombuffer(keys, np.uint32), *rest))  # noqa: NPY002
    random.setstate(python_state)


class _Sink(io.TextIOBase):
    """A stream that forgets what is written to it, however much that is; none can read from it."""

    used = False

    def write(self, text):
        self.used = True
        return len(text)

    def readline(self, *_):
        raise Refused("wrong", *ASKS)

    read = readline
