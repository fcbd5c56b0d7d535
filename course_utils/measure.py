"""What a computation costs: memory held at once, time of a processor core, bytes that are sent."""

import os
import time
from itertools import accumulate

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

# Else the profiler writes a line to stderr at each start and stop.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def peak_memory(run):
    """Return the most memory, in bytes, that ``run()`` holds at once beyond what was held before.

    Counts what torch allocates on the CPU, buffers inside its kernels included, in allocations and
    releases as the profiler saw them. (`tracemalloc` sees no tensors.)

    Parameters
    ----------
    run : callable
        Called once, without arguments. What it returns counts as held.

    Returns
    -------
    int
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(accumulate((event.nbytes() for event in events), initial=0))


def cpu_seconds(run, *given, at_least=0.2):
    """Return how many seconds of one core's time ``run(*given)`` takes, the mean of many calls.

    What other programs do meanwhile does not count, so the result holds on a busy machine too.
    PyTorch is kept to one thread: threads that wait for each other would count as well.

    Parameters
    ----------
    run : callable
        Called once to warm up, then again until ``at_least`` is used up. It must compute: time in
        which it only waits does not count.
    *given
        What ``run`` is called with.
    at_least : float
        Seconds of the core's time to measure over. Some systems count in steps of 16 ms.

    Returns
    -------
    float
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run(*given)
        calls, start = 0, time.process_time()
        while (spent := time.process_time() - start) < at_least:
            run(*given)
            calls += 1
    finally:
        torch.set_num_threads(threads)
    return spent / calls


class _Sent(TorchDispatchMode):
    """Add up what each call of `torch.distributed` sends, those of a backward too."""

    total = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.namespace in ("c10d", "_c10d_functional"):
            self.total += _bytes_of(op.name().partition("::")[2], *args)
        return op(*args, **(kwargs or {}))


def _bytes_of(call, given, *rest):
    """Return what a rank sends in a call, in bytes, given a tensor or a list of them."""
    rank, W = dist.get_rank(), dist.get_world_size()
    if call in ("recv_", "wait_tensor", "_wrap_tensor_autograd"):
        return 0
    if call == "send":
        return sum(each.nbytes for each in given)
    if call == "allreduce_":
        return sum(2 * (W - 1) * each.nbytes // W for each in given)  # W parts, twice round a ring
    if call == "all_reduce":
        return _bytes_of("allreduce_", [given])
    if call == "all_to_all_single":
        _, parts, _ = rest  # how much goes to each rank
        return given.nbytes * (sum(parts) - parts[rank]) // max(sum(parts), 1)
    raise NotImplementedError(f"what {call} sends cannot be counted yet")


def bytes_sent(run, *given):
    """Return how many bytes this rank sends through `torch.distributed` in ``run(*given)``.

    Counted where PyTorch hands its calls on. What a rank keeps for itself is not sent; an
    all-reduce is counted as if the W ranks stood in a ring.

    Parameters
    ----------
    run : callable
        Called once. It may send, reduce over all ranks, and exchange all to all.
    *given
        What ``run`` is called with.

    Returns
    -------
    int

    Raises
    ------
    NotImplementedError
        If ``run`` sends in another way.
    """
    with _Sent() as sent:
        run(*given)
    return sent.total
