"""What a computation costs: the most memory it holds at once."""

import os
from itertools import accumulate

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
