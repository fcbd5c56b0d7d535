"""Run one function in several processes that are connected by `torch.distributed`.

Any function works, including one defined in a notebook. Whatever happens to a rank, `spawn` returns
or raises in time, and leaves no process behind.
"""

import copyreg
import importlib
import math
import multiprocessing
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path

import cloudpickle
import torch
import torch.distributed as dist

GRACE = 1  # seconds to wait for the other ranks after one has failed, or for their reports
SAMPLE = 0.3  # seconds over which a rank's CPU time is sampled
JOINED, DIED = b"joined", cloudpickle.dumps(("died",))

# Send torch.ops by name, as other modules are, so that functions may call its operators.
copyreg.pickle(type(torch.ops), lambda ops: (importlib.import_module, (ops.__name__,)))


class RankError(RuntimeError):
    """Which ranks failed, and how. ``waiting`` lists the ranks that waited for another one."""

    def __init__(self, failures, waiting=()):
        super().__init__(failures)
        self.waiting = list(waiting)


def spawn(function, ranks, *args, seconds=8):
    """Call ``function(*args)`` in several processes, and return the results.

    In each process, `torch.distributed` is initialized with the gloo backend. ``dist.get_rank()``
    returns the number of the process.

    Parameters
    ----------
    function : callable
        A function defined in a notebook is sent by value, with everything it refers to.
    ranks : int
        Number of processes, 1 or more.
    *args
        The arguments, the same on all ranks.
    seconds : float
        Time limit. A rank that has not returned by then reports the line it is in.

    Returns
    -------
    list
        The results of rank 0, rank 1, and so on.

    Raises
    ------
    RankError
        If a rank raises an error, dies or does not return in time. It says which one, and why.
    TypeError, ValueError
        If function is not callable, or ranks is not an int of at least 1.
    """
    if not callable(function):
        raise TypeError(f"function must be callable, got {type(function).__name__}")
    if not isinstance(ranks, int) or ranks < 1:
        raise ValueError(f"ranks must be an int of at least 1, got {ranks!r}")
    task = cloudpickle.dumps((function, args))
    with tempfile.TemporaryDirectory() as folder:
        processes, pipes = [], []
        try:
            for rank in range(ranks):
                ours, theirs = _context().Pipe()
                plan = rank, ranks, str(Path(folder, "store")), timedelta(seconds=seconds + 300)
                process = _context().Process(target=_run, args=(theirs, task, plan), daemon=True)
                process.start()
                theirs.close()  # so that the pipe closes when the process ends
                processes.append(process)
                pipes.append(ours)
            messages = _collect(pipes, seconds)
        finally:
            for process in processes:
                process.kill()
                process.join()
    failures = _describe_failures(messages, processes)
    if failures:
        waiting = sorted(rank for rank, message in messages.items() if message[0] == "waiting")
        raise RankError("\n".join(failures), waiting)
    return [messages[rank][1] for rank in range(ranks)]


def _context():
    """Return a fork server that has already imported this module or, on Windows, plain spawn."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "torch._dynamo"])  # collectives import it, slowly
    return context


def _run(pipe, task, plan):
    """Join the process group, call the function, send its result, then wait to be killed."""
    rank, ranks, store, timeout = plan
    torch.set_num_threads(1)  # the ranks share the cores
    reporter = threading.Thread(target=_report_line, args=(pipe,), daemon=True)
    reporter.start()
    try:
        store = dist.FileStore(store, ranks)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timeout)
        dist.barrier()
        function, args = cloudpickle.loads(task)
        pipe.send_bytes(JOINED)
        message = cloudpickle.dumps(("returned", function(*args)))
    except BaseException as error:  # SystemExit too: the notebook must hear of it
        line = _line(traceback.extract_tb(error.__traceback__))
        message = cloudpickle.dumps(("raised", line, f"{type(error).__name__}: {error}"))
    pipe.send_bytes(message)
    reporter.join()  # stay alive: other ranks may still be reading from this one


def _report_line(pipe):
    """On request, report which line of the function this rank is in, and whether it waits there."""
    with suppress(EOFError):
        pipe.recv_bytes()
        before = time.process_time()
        time.sleep(SAMPLE)
        waiting = time.process_time() - before < SAMPLE / 20  # a waiting rank uses no CPU time
        stack = traceback.extract_stack(sys._current_frames()[threading.main_thread().ident])
        pipe.send_bytes(cloudpickle.dumps(("waiting" if waiting else "busy", _line(stack))))


def _line(stack):
    """Return the line of the function that `_run` called."""
    called = next(i for i, frame in enumerate(stack) if frame.name == _run.__name__) + 1
    return f"line {stack[called].lineno} of {stack[called].name}" if called < len(stack) else "end"


def _collect(pipes, seconds):
    """Return the last message of each rank. Ask late ranks which line they are in."""
    messages, pending = {}, dict(zip(pipes, range(len(pipes)), strict=True))
    deadline, asked = math.inf, False  # the time limit starts when all have joined
    while pending:
        left = None if deadline == math.inf else max(0, deadline - time.monotonic())
        ready = wait(list(pending), left)
        if not ready and asked:
            break
        if not ready:
            for pipe in pending:
                with suppress(OSError):  # it has just died
                    pipe.send_bytes(b"where?")
            asked, deadline = True, time.monotonic() + GRACE
        for pipe in ready:
            try:
                message = pipe.recv_bytes()
            except (EOFError, OSError):
                message = DIED
            if message == JOINED:
                deadline = min(deadline, time.monotonic() + seconds)
                continue
            messages[pending.pop(pipe)] = message = cloudpickle.loads(message)
            if message[0] in ("raised", "died"):
                deadline = min(deadline, time.monotonic() + GRACE)
    return messages


def _describe_failures(messages, processes):
    """Return a line for each kind of failure with its ranks, the most likely cause first."""
    failures = defaultdict(list)  # (priority, description): ranks
    for rank, process in enumerate(processes):
        kind, *details = messages.get(rank, ("silent",))
        if kind == "died":
            failures[0, f"died (exit code {process.exitcode})"].append(rank)
        elif kind == "raised":
            line, error = details
            lost = "gloo/transport" in error
            error = "lost the connection to another rank" if lost else f"raised {error}"
            failures[5 if lost else 1, f"{error}, in {line}"].append(rank)
        elif kind == "busy":
            failures[2, f"had not returned: still busy in {details[0]}"].append(rank)
        elif kind == "silent":
            failures[3, "had not returned, for an unknown reason"].append(rank)
        elif kind == "waiting":
            failures[4, f"had not returned: still waiting in {details[0]}"].append(rank)
    return [
        f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))} {description}"
        for (_, description), ranks in sorted(failures.items())
    ]
