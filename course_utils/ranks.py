"""Run one function in several processes at once, joined by `torch.distributed`.

Any function will do, one of a notebook too. Whatever becomes of a rank, an answer comes in time,
and no process is left behind.
"""

import multiprocessing
import tempfile
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

GRACE = 1.5  # seconds that the others have left once one rank has failed


class RankError(RuntimeError):
    """What went wrong, and at which rank."""


def run_ranks(function, ranks, *args, seconds=8):
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
        How long it may take, and how long a rank waits for a message.

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
                plan = rank, ranks, str(Path(folder, "store")), timedelta(seconds=seconds)
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
    failures = _told(answers, processes, seconds)
    if failures:
        raise RankError("\n".join(failures))
    return [answers[rank][1] for rank in range(ranks)]


def _context():
    """Return how processes are made: from one that has only imported, where the system can."""
    if "forkserver" not in multiprocessing.get_all_start_methods():  # on Windows
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _work(pipe, task, plan):
    """Join the other ranks, call the function, send what came of it, and wait to be ended."""
    rank, ranks, store, timeout = plan
    torch.set_num_threads(1)  # the ranks share the cores
    pipe.send_bytes(b"ready")
    try:
        store = dist.FileStore(store, ranks)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timeout)
        function, args = cloudpickle.loads(task)
        answer = cloudpickle.dumps(("returned", function(*args)))
    except BaseException as error:  # SystemExit too: the notebook is told of all
        frames = [f"line {f.lineno} of {f.name}" for f in traceback.extract_tb(error.__traceback__)]
        where = frames[1] if len(frames) > 1 else "the start"  # the first frame is of this file
        answer = cloudpickle.dumps(("raised", f"{type(error).__name__}: {error}", where))
    pipe.send_bytes(answer)
    with suppress(EOFError):
        pipe.recv_bytes()  # the others may still be reading from this rank


def _collect(pipes, seconds):
    """Return what each rank sent, by its number, until all have or time is up."""
    answers, waiting = {}, dict(zip(pipes, range(len(pipes)), strict=True))
    for pipe in pipes:  # the clock starts when all of them have
        with suppress(EOFError):
            pipe.recv_bytes()
    end = time.monotonic() + seconds + GRACE  # gloo tells of a lost message after ``seconds``
    while waiting and time.monotonic() < end:
        for pipe in wait(list(waiting), max(0, end - time.monotonic())):
            rank = waiting.pop(pipe)
            try:
                answers[rank] = cloudpickle.loads(pipe.recv_bytes())
            except EOFError:
                answers[rank] = ("died",)
            if answers[rank][0] != "returned":
                end = min(end, time.monotonic() + GRACE)
    return answers


def _told(answers, processes, seconds):
    """Return what to say of the ranks that did not return, the likeliest cause first."""
    said = defaultdict(list)  # (how likely a cause, what is said of a rank): the ranks
    for rank, process in enumerate(processes):
        kind, *rest = answers.get(rank, ("missing",))
        if kind == "died":
            said[0, f"died (exit code {process.exitcode})"].append(rank)
        elif kind == "missing":
            said[2, "had not come back"].append(rank)
        elif kind == "raised":
            error, where = rest
            if "Timed out waiting" in error:  # gloo says no more of these two
                said[3, f"waited {seconds:g} s for a message, in vain: {where}"].append(rank)
            elif "gloo/transport" in error:
                said[4, f"lost the connection to another rank: {where}"].append(rank)
            else:
                said[1, f"raised {error} in {where}"].append(rank)
    return [
        f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))} {what}"
        for (_, what), ranks in sorted(said.items())
    ]
