"""Run a learner's code so that the kernel stays usable, whatever the code does in Python."""

import _thread
import bdb
import builtins
import contextlib
import ctypes
import functools
import getpass
import io
import os
import random
import signal
import sys
import threading
import time
import warnings
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch
from IPython import get_ipython

from course_utils.checks.global_state import RANDOM, SETTINGS, restored

SECONDS = 5.0  # of computing, for one call; the checks' own inputs take milliseconds
PATIENCE = 30.0  # seconds, for what waits
BUSIEST = 20  # a machine so busy that an answer computes one second in so many is no reason to stop
TICK = 0.05  # seconds between two looks at a thread
STOPS = 100  # times that a thread is asked to end

LEAVES = "leaves Python", "it leaves Python (exit, quit, os._exit ...); end a function with return"
ASKS = "asks for input", "it asks for input; all that it needs to know is in its arguments"
DEBUGS = "starts a debugger", "it starts a debugger; take that line out before you check"
THREADS = "leaves a thread", "a thread that it started still runs; wait for its end with join()"
NESTED = "checks itself", "check is called inside the function; call it below, not indented"
REPLACES = "changes Python", "it replaces functions of Python itself; choose names of your own"
RESTART = "restart the kernel (in the menu: Kernel, Restart)"
BLOCKED = f"an earlier answer still runs and could not be stopped; {RESTART}"

SIGNALS = "raise_signal", "pthread_kill", "alarm", "setitimer"
# What the threads of an answer may not call; with None, what has no effect in them
DOORS = [
    *((os, name, LEAVES) for name in ("_exit", "abort", "kill", "execv", "execve")),
    *((signal, name, LEAVES) for name in SIGNALS),
    (_thread, "interrupt_main", LEAVES),
    (builtins, "input", ASKS),
    (getpass, "getpass", ASKS),
    (sys, "breakpointhook", DEBUGS),
    (bdb.Bdb, "set_trace", DEBUGS),
    (sys, "setrecursionlimit", None),
    (sys, "setswitchinterval", None),
]

_threads = []  # of the answer that is tried, and of earlier ones that could not be stopped


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


def call(function, *args, seconds=None):
    """Call ``function(*args)`` in a thread of its own and return a `Run`; raise nothing.

    Printed text is dropped, and what is global (`settings`) is put back. The thread is stopped
    after ``seconds`` (by default SECONDS) of its own computing, and if it waits for too long; a
    signal would do that on Unix only. Then, and if it tries to leave Python or to ask the learner,
    the error of the run is `Refused`. Nothing ends a long call inside a library, nor one that never
    lets other threads run.
    """
    if threading.current_thread() in _threads:
        return Run(error=Refused("wrong", *NESTED))
    _threads[:] = _at_work()
    if _threads:
        return Run(error=Refused("not checked", "could not be stopped", BLOCKED))
    answer = _Answer(function, args)
    _threads.append(answer)
    with restored(RANDOM):
        before = random_states()
        with _streams_dropped() as sink, warnings.catch_warnings(), restored(SETTINGS):
            try:
                with _doors_shut():
                    refusal = _try(answer, SECONDS if seconds is None else seconds)
            finally:  # also when the learner presses stop while we wait
                _stop()
        run = answer.outcome
        run.reseeded = random_states() != before
        run.printed = sink.used
    if refusal:
        mistake, hint = refusal
        stuck = f"; it could not be stopped: {RESTART}" if _at_work() else ""
        return Run(error=Refused("wrong", mistake, hint + stuck))
    return run


def stay():
    """Make what leaves Python an error from now on, in any cell of the notebook.

    For grading: where the kernel is gone, all other answers of the notebook count for nothing.
    """
    kernel, leave = os.getpid(), os._exit

    def refuse(*code):
        if os.getpid() == kernel and threading.current_thread() is threading.main_thread():
            raise RuntimeError(LEAVES[1])
        leave(*code)  # a child of the kernel ends so, and the kernel itself when Jupyter is gone

    os._exit = get_ipython().ask_exit = refuse


@contextlib.contextmanager
def seeded(seed=0):
    """Within it, random numbers start from a seed; after it, the random states are as before."""
    with restored(RANDOM):
        torch.default_generator.manual_seed(seed)  # the CPU's alone: to queue CUDA's is slow
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        yield


@contextlib.contextmanager
def drawing_from(states):
    """Within it, random numbers go on from `random_states`; after it, those are as before."""
    with restored(RANDOM):
        for (_, put), state in zip(RANDOM, states, strict=True):
            put(state)
        yield


def random_states():
    """Return the states of all that draws random numbers."""
    return [get() for get, _ in RANDOM]


class _Answer(threading.Thread):
    """The thread in which an answer is tried. It fills in a `Run`, and others can read its clock.

    The clock tells the seconds of computing, which do not pass while other programs compute.
    """

    def __init__(self, function, args):
        super().__init__(daemon=True)  # one that never ends must not keep Python from ending
        self.function, self.args, self.outcome = function, args, Run()
        self.clock = float  # 0.0 until it begins

    def run(self):
        try:
            restart_clock()
            self.outcome.value = self.function(*self.args)
        except SystemExit:
            self.outcome.error = Refused("wrong", *LEAVES)
        except BaseException as error:
            self.outcome.error = error


def _clock():
    """Return a clock of the seconds for which the calling thread computes from now on."""
    try:
        number = time.pthread_getcpuclockid(threading.get_ident())
    except AttributeError:  # on Windows and macOS: all threads of the kernel together
        read = time.process_time
    else:
        read = functools.partial(time.clock_gettime, number)
    begun = read()
    return lambda: read() - begun


def _try(answer, seconds):
    """Start the answer and wait until it has ended; return why it is refused, if it is."""
    names = builtins.__dict__.copy()
    try:
        answer.start()
        return _wait(answer, seconds)
    except Exception:  # not the answer's: waiting itself fails if max() or the like is replaced
        return REPLACES
    finally:
        builtins.__dict__.update(names)


def restart_clock():
    """Give the answer, in whose thread this is called, all its time again for what follows."""
    threading.current_thread().clock = _clock()


def _wait(answer, seconds):
    """Wait until the answer has ended; return why it is refused, if that takes too long."""
    clock = None
    answer.join(TICK)
    while answer.is_alive():
        if answer.clock != clock:
            clock = answer.clock
            waited = computed = last = 0.0
        waited += TICK  # not by the clock, which goes on while a laptop sleeps
        with contextlib.suppress(OSError):  # it ends just now, and its clock with it
            now = clock()
            share = 0.1 if _imports(answer) else 1  # an import is hardly the answer's own work
            computed += share * (now - last)
            last = now
        if computed > seconds:
            hint = f"still computing after {seconds:g} seconds; is there a loop without end?"
            return "runs for ever", hint + " (or a slow machine: run it again)"
        if waited > PATIENCE + BUSIEST * last:
            hint = f"still waiting after {PATIENCE:g} seconds; is there a sleep() or a lock?"
            return "waits", hint + " (or a very busy machine: run it again)"
        answer.join(TICK)
    for _ in range(20):  # a thread that the answer started may be about to end
        if not _at_work():
            return None
        time.sleep(TICK)
    return THREADS


def _imports(thread):
    """Tell whether the thread is inside an import."""
    frame = sys._current_frames().get(thread.ident)
    while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def _at_work():
    """Return the threads of answers that still run; those that rest in a pool do not.

    PyTorch's compiler keeps such a pool.
    """
    frames = sys._current_frames()
    modules = {t: frames[t.ident].f_globals.get("__name__") for t in _threads if t.ident in frames}
    return [t for t, m in modules.items() if t.is_alive() and m != "concurrent.futures.thread"]


def _stop():
    """Raise SystemExit in the threads at work until they end; a bare ``except:`` eats some.

    No Exception, so that `except Exception` lets it by; and Python prints nothing about it.
    """
    for _ in range(STOPS):
        if not _at_work():
            return
        for thread in _at_work():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
            )
        for thread in _at_work():
            thread.join(TICK)


@contextlib.contextmanager
def _doors_shut():
    """Refuse what is in DOORS to the threads of the answer, and note the threads that it starts."""
    doors, shell = DOORS, get_ipython()
    if shell:  # in a notebook, exit and input are the kernel's own
        kernel = getattr(shell, "kernel", None)
        doors = [*DOORS, (shell, "ask_exit", LEAVES), (kernel, "_input_request", ASKS)]
    start = threading.Thread.start

    def noted(thread):
        if threading.current_thread() in _threads:
            _threads.append(thread)
        start(thread)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(threading.Thread, "start", noted))
        for holder, name, refusal in doors:
            if hasattr(holder, name):  # not every system has them all
                door = _door(getattr(holder, name), name, refusal)
                stack.enter_context(mock.patch.object(holder, name, door))
        yield


def _door(original, name, refusal):
    kernel = os.getpid()

    def door(*args, **kwargs):
        in_answer = threading.current_thread() in _threads and os.getpid() == kernel
        if not in_answer or (name == "kill" and args[:1] != (kernel,)):  # may stop its own child
            return original(*args, **kwargs)
        if refusal:
            raise Refused("wrong", *refusal)

    return door


@contextlib.contextmanager
def _streams_dropped():
    """Yield the stream that takes all that is printed."""
    stdin, stdout, stderr = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = sys.stdout = sys.stderr = sink = _Sink()
    try:
        yield sink
    finally:
        if _at_work() and not isinstance(stdout, _Muted):
            stdout, stderr = _Muted(stdout), _Muted(stderr)
        sys.stdin, sys.stdout, sys.stderr = stdin, stdout, stderr


class _Sink(io.TextIOBase):
    """A stream that forgets what is written to it, however much that is; none can read from it."""

    used = False

    def write(self, text):
        self.used = True
        return len(text)

    def readline(self, *_):
        raise Refused("wrong", *ASKS)

    read = readline


class _Muted:
    """A stream as it was, but deaf to the threads that could not be stopped."""

    def __init__(self, stream):
        self.stream = stream

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def write(self, text):
        return len(text) if threading.current_thread() in _threads else self.stream.write(text)
