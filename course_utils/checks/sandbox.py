"""Run a learner's code so that whatever it does, the kernel stays usable."""

import contextlib
import ctypes
import random
import threading
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


class _Sink:
    """A stream that forgets what is written to it, however much that is."""

    def __init__(self):
        self.used = False

    def write(self, text):
        self.used = True
        return len(text)

    def flush(self):
        pass


def call(function, *args, seconds=None):
    """Call ``function(*args)`` in a thread of its own and return a `Run`; raise nothing.

    Printed text is dropped, the global random states of torch, numpy and Python are put back, and
    after ``seconds`` (by default SECONDS) the thread is stopped. A signal would do that on Unix
    only, and would not end a long call inside a library.
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
    with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        try:
            worker.start()
            worker.join(SECONDS if seconds is None else seconds)
        finally:  # also when the learner presses stop while we wait
            run.timed_out = worker.is_alive()
            _stop(worker)
    run.printed = sink.used
    run.reseeded = not _same_states(before, _random_states())
    _restore(before)
    return run


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
