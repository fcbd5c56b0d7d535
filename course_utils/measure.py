"""What a computation costs: the most memory it holds at once, the time of one processor core."""

import os
import time
from itertools import accumulate

import torch
from torch.profiler import ProfilerActivity, profile

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
