"""What a computation costs: peak memory, CPU time, and bytes sent between ranks."""

import os
import time
from itertools import accumulate

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

# Otherwise the profiler logs to stderr at each start and stop.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def peak_memory(run):
    """Return the peak memory of ``run()`` in bytes, not counting what was allocated before.

    PyTorch's profiler counts what is allocated on the CPU, including buffers inside kernels.
    (`tracemalloc` does not see tensors.)

    Parameters
    ----------
    run : callable
        Called once, without arguments. The memory of its result counts.

    Returns
    -------
    int
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(accumulate((event.nbytes() for event in events), initial=0))


def cpu_seconds(run, *args, at_least=0.2):
    """Return the CPU time of ``run(*args)`` in seconds, averaged over many calls.

    Time spent by other processes does not count, so the result is valid even on a busy machine.
    PyTorch is limited to one thread, because threads that busy-wait for each other would count too.

    Parameters
    ----------
    run : callable
        Called once to warm up, then repeatedly for ``at_least`` seconds. Time in which it only
        waits does not count.
    *args
        The arguments of ``run``.
    at_least : float
        Seconds of CPU time to measure. A short time is inaccurate, because some systems count in
        steps of 16 ms.

    Returns
    -------
    float
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run(*args)
        calls, start = 0, time.process_time()
        while (spent := time.process_time() - start) < at_least:
            run(*args)
            calls += 1
    finally:
        torch.set_num_threads(threads)
    return spent / calls


class _CountBytesSent(TorchDispatchMode):
    """Add up what each call of `torch.distributed` sends, even in backward passes."""

    total = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.namespace in ("c10d", "_c10d_functional"):
            self.total += _bytes_of(op.name().partition("::")[2], *args)
        return op(*args, **(kwargs or {}))


def _bytes_of(call, tensors, *rest):
    """Return how many bytes this rank sends in a call with a tensor or a list of tensors."""
    rank, W = dist.get_rank(), dist.get_world_size()
    if call in ("recv_", "wait_tensor", "_wrap_tensor_autograd"):
        return 0
    if call == "send":
        return sum(x.nbytes for x in tensors)
    if call == "allreduce_":
        return sum(2 * (W - 1) * x.nbytes // W for x in tensors)  # reduce-scatter + all-gather
    if call == "all_reduce":
        return _bytes_of("allreduce_", [tensors])
    if call == "all_to_all_single":
        _, split_sizes, _ = rest
        total = sum(split_sizes)
        return tensors.nbytes * (total - split_sizes[rank]) // max(total, 1)
    raise NotImplementedError(f"the bytes that {call} sends cannot be counted yet")


def bytes_sent(run, *args):
    """Return the number of bytes this rank sends through `torch.distributed` in ``run(*args)``.

    Calls are counted at PyTorch's dispatcher. What a rank keeps for itself does not count. An
    all-reduce counts as a ring all-reduce.

    Parameters
    ----------
    run : callable
        Called once. It may use point-to-point sends, all-reduce and all-to-all.
    *args
        The arguments of ``run``.

    Returns
    -------
    int

    Raises
    ------
    NotImplementedError
        If ``run`` uses another collective.
    """
    with _CountBytesSent() as counter:
        run(*args)
    return counter.total
