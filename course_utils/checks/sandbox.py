"""Run a learner's code so that the kernel stays usable, whatever the code does in Python."""

import contextlib
import ctypes
import io
import os
import random
import sys
import threading
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

SECONDS = 5.0  # for one call; the checks' own inputs take milliseconds


class _Stopped(BaseException):
    """Raised in the learner's thread; no Exception, so that `except Exception` lets it by."""


@dataclass
class Run:
    """What came of one call: a value or an error, and what it did besides."""

    value: Any = None
    error: BaseException | None = None
    timed_out: bool = False
    printed: bool = False
    reseeded: bool = False


class _Sink(io.TextIOBase):
    """A stream that forgets what is written to it, however much that is."""

    used = False

    def write(self, text):
        self.used = True
        return len(text)


def call(function, *args, seconds=None):
    """Call ``function(*args)`` in a thread of its own and return a `Run`; raise nothing.

    Printed text is dropped, what is global (random states, default dtype, working directory,
    warnings, recursion limit) is put back, and after ``seconds`` (by default SECONDS) the thread
    is stopped. A signal would do that on Unix only. Neither ends a long call inside a library, nor
    one that never lets other threads run.
    """
    run, sink = Run(), _Sink()

    def work():
        try:
            run.value = function(*args)
        except _Stopped:
            run.timed_out = True
        except BaseException as error:  # exit() in an answer must not end the kernel
            run.error = error

    before = _random_states()
    worker = threading.Thread(target=work, daemon=True)
    with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink), _settings_kept():
        try:
            worker.start()
            worker.join(SECONDS if seconds is None else seconds)
        finally:  # also when the learner presses stop while we wait
            run.timed_out = worker.is_alive()
            _stop(worker)
            run.reseeded = not _same_states(before, _random_states())
            _restore(before)
    run.printed = sink.used
    return run


@contextlib.contextmanager
def _settings_kept():
    dtype, folder, depth = torch.get_default_dtype(), os.getcwd(), sys.getrecursionlimit()
    with warnings.catch_warnings():
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            os.chdir(folder)
            sys.setrecursionlimit(depth)


@contextlib.contextmanager
def seeded(seed=0):
    """Within it, random numbers start from a seed; after it, the random states are as before."""
    before = _random_states()
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    try:
        yield
    finally:
        _restore(before)


def _stop(worker):
    """Raise `_Stopped` in the thread until it ends; a bare ``except:`` in a loop eats some."""
    for _ in range(20):
        if not worker.is_alive():
            return
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(worker.ident), ctypes.py_object(_Stopped)
        )
        worker.join(0.05)


def _random_states():
    return torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002


def _same_states(a, b):
    return torch.equal(a[0], b[0]) and str(a[1]) == str(b[1]) and a[2] == b[2]


def _restore(states):
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    random.setstate(states[2])
