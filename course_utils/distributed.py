"""Run one function in several processes at once, joined by `torch.distributed`.

Any function will do, one of a notebook too. Whatever becomes of a rank, an answer comes in time,
and no process is left behind.
"""

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

GRACE = 1  # seconds that the others have left once one rank has failed, or to say where they are
GLANCE = 0.3  # seconds in which a rank is seen to be busy
JOINED, DIED = b"joined", cloudpickle.dumps(("died",))


class RankError(RuntimeError):
    """What went wrong, and at which rank."""


def spawn(function, ranks, *args, seconds=8):
    """Call ``function(*args)`` in several processes, and return what each returns.

    In each of them `torch.distributed` is ready, with its gloo backend: ``dist.get_rank()`` tells
    them apart.

    Parameters
    ----------
    function : callable
        One that a notebook has defined is sent by value, with what it refers to.
    ranks : int
        How many processes, 1 or more.
    *args
        The same for all ranks.
    seconds : float
        How long it may take. Then a rank that has not come back is asked for its line.

    Returns
    -------
    list
        What rank 0 returned, rank 1, and so on.

    Raises
    ------
    RankError
        If a rank raises, dies or does not come back in time: which, and why.
    TypeError, ValueError
        If function cannot be called, or ranks is not a whole number from 1.
    """
    if not callable(function):
        raise TypeError(f"function must be callable, got {type(function).__name__}")
    if not isinstance(ranks, int) or ranks < 1:
        raise ValueError(f"ranks must be a whole number from 1, got {ranks!r}")
    task = cloudpickle.dumps((function, args))
    with tempfile.TemporaryDirectory() as folder:
        processes, pipes = [], []
        try:
            for rank in range(ranks):
                ours, theirs = _context().Pipe()
                plan = rank, ranks, str(Path(folder, "store")), timedelta(seconds=seconds + 300)
                process = _context().Process(target=_work, args=(theirs, task, plan), daemon=True)
                process.start()
                theirs.close()  # now the pipe ends with the process
                processes.append(process)
                pipes.append(ours)
            answers = _collect(pipes, seconds)
        finally:
            for process in processes:
                process.kill()
                process.join()
    failures = _told(answers, processes)
    if failures:
        raise RankError("\n".join(failures))
    return [answers[rank][1] for rank in range(ranks)]


def _context():
    """Return how processes are made: from one that has only imported, where the system can."""
    if "forkserver" not in multiprocessing.get_all_start_methods():  # on Windows
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "torch._dynamo"])  # collectives import it, slowly
    return context


def _work(pipe, task, plan):
    """Join the other ranks, call the function, send what came of it, and wait to be ended."""
    rank, ranks, store, patience = plan
    torch.set_num_threads(1)  # the ranks share the cores
    asked = threading.Thread(target=_tell_where, args=(pipe,), daemon=True)
    asked.start()
    try:
        store = dist.FileStore(store, ranks)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=patience)
        dist.barrier()
        function, args = cloudpickle.loads(task)
        pipe.send_bytes(JOINED)
        answer = cloudpickle.dumps(("returned", function(*args)))
    except BaseException as error:  # SystemExit too: the notebook is told of all
        place = _place(traceback.extract_tb(error.__traceback__))
        answer = cloudpickle.dumps(("raised", place, f"{type(error).__name__}: {error}"))
    pipe.send_bytes(answer)
    asked.join()  # the others may still be reading from this rank


def _tell_where(pipe):
    """When asked, say in which line of its function this rank is, and whether it waits there."""
    with suppress(EOFError):
        pipe.recv_bytes()
        before = time.process_time()
        time.sleep(GLANCE)
        waits = (
            time.process_time() - before < GLANCE / 20
        )  # who waits uses no time of the processor
        stack = traceback.extract_stack(sys._current_frames()[threading.main_thread().ident])
        pipe.send_bytes(cloudpickle.dumps(("waiting" if waits else "busy", _place(stack))))


def _place(stack):
    """Return the line of the function that `_work` has called."""
    called = next(i for i, frame in enumerate(stack) if frame.name == _work.__name__) + 1
    return f"line {stack[called].lineno} of {stack[called].name}" if called < len(stack) else "end"


def _collect(pipes, seconds):
    """Return what each rank sent, by its number; those that are late are asked where they are."""
    answers, pending = {}, dict(zip(pipes, range(len(pipes)), strict=True))
    end, asked = math.inf, False  # the clock starts when all have joined
    while pending:
        left = None if end == math.inf else max(0, end - time.monotonic())
        heard = wait(list(pending), left)
        if not heard and asked:
            break
        if not heard:
            for pipe in pending:
                with suppress(OSError):  # it has just died
                    pipe.send_bytes(b"where?")
            asked, end = True, time.monotonic() + GRACE
        for pipe in heard:
            try:
                message = pipe.recv_bytes()
            except (EOFError, OSError):
                message = DIED
            if message == JOINED:
                end = min(end, time.monotonic() + seconds)
                continue
            answers[pending.pop(pipe)] = answer = cloudpickle.loads(message)
            if answer[0] in ("raised", "died"):
                end = min(end, time.monotonic() + GRACE)
    return answers


def _told(answers, processes):
    """Return what to say of the ranks that did not return, the likeliest cause first."""
    said = defaultdict(list)  # (how likely a cause, what is said of a rank): the ranks
    for rank, process in enumerate(processes):
        kind, *rest = answers.get(rank, ("silent",))
        if kind == "died":
            said[0, f"died (exit code {process.exitcode})"].append(rank)
        elif kind == "raised":
            lost = "gloo/transport" in rest[1]
            what = "lost the connection to another rank" if lost else f"raised {rest[1]}"
            said[5 if lost else 1, f"{what}, in {rest[0]}"].append(rank)
        elif kind == "busy":
            said[2, f"had not come back: it was busy in {rest[0]}"].append(rank)
        elif kind == "silent":
            said[3, "had not come back, and did not say where it was"].append(rank)
        elif kind == "waiting":
            said[4, f"waited, in {rest[0]}"].append(rank)
    return [
        f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))} {what}"
        for (_, what), ranks in sorted(said.items())
    ]
