"""What the measurements on a GPU share: cases, times, and comparison with float64."""

import subprocess
import time
from typing import NamedTuple

import torch
from triton.errors import TritonError

from course_utils import attention as course

TOKENS, WIDTH = 16384, 2048  # B · N and H · D
FAILURES = (RuntimeError, TritonError)  # of PyTorch and CUDA, out of memory too; of the kernels
SECONDS = 0.15  # for all repeats of one measurement, at most 30
WARM_UP = 1.0  # seconds: an idle GPU runs at a fraction of its clock rate


class Case(NamedTuple):
    """One configuration: self-attention of B sequences of N tokens, H heads of width D."""

    dtype: str
    D: int
    is_causal: bool
    N: int
    B: int
    H: int


def case(N, D, is_causal, dtype="bfloat16"):
    """Return the configuration that has as many tokens, and is as wide, as all others."""
    return Case(dtype, D, is_causal, N, TOKENS // N, WIDTH // D)


def draw(case, device):
    """Return random q, k and v that require gradients, and a gradient at the output."""
    rng = torch.Generator(device).manual_seed(0)
    shape = (case.B, case.H, case.N, case.D)
    options = {"generator": rng, "device": device, "dtype": getattr(torch, case.dtype)}
    q, k, v, d_out = (torch.randn(shape, **options) for _ in range(4))
    return [x.requires_grad_() for x in (q, k, v)], d_out


def exact(q, k, v, is_causal):
    """Return attention of q, k and v in float64, all weights at once."""
    mask = course.causal_mask(q.shape[-2]).to(q.device) if is_causal else None
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    return course.attention(q.double(), k.double(), v.double(), mask)[0]


def results(run, inputs, d_out):
    """Return the output and gradients of a contender, by name."""
    out = run(*inputs)
    gradients = torch.autograd.grad(out, inputs, d_out.to(out.dtype))
    return dict(zip(["output", "d_q", "d_k", "d_v"], [out.detach(), *gradients], strict=True))


def errors(got, right):
    """Return the largest error of each result, by name.

    Raises
    ------
    RuntimeError
        If one is too large. Naive attention rounds a score below 8 twice to 16 bits, and a weight
        changes by up to twice as much as the scores: by 2 · 2 · 8 half units in the last place.
    """
    largest = {name: (got[name] - right[name]).abs().max().item() for name in right}
    for name, error in largest.items():
        eps = torch.finfo(got[name].dtype).eps
        if not error <= 16 * eps * right[name].abs().max().item():  # true for NaN too
            raise RuntimeError(f"wrong: {name} errs by {error:.2g}")
    return largest


def attempt(entry, name, function, *arguments):
    """Put the result of a function into an entry, or the reason why it failed; say which."""
    try:
        entry[name] = function(*arguments)
        return True
    except FAILURES as error:
        entry[f"{name} failed"] = reason(error)
        return False
    finally:
        torch.cuda.empty_cache()


def reason(error):
    """Return the type and the first line of an error."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no reason').splitlines()[0]}"


def warm_up(device):
    """Multiply matrices until the GPU has left its idle clock rate."""
    x = torch.ones(1024, 1024, device=device)
    end = time.perf_counter() + WARM_UP
    while time.perf_counter() < end:
        (x @ x).sum().item()


def milliseconds(work, device):
    """Return the times of 1 to 30 runs on the device, after two to warm up."""
    timed(work, 1, device)
    (once,) = timed(work, 1, device)  # in milliseconds
    return timed(work, max(1, min(30, int(1000 * SECONDS / once))), device)


def timed(work, repeats, device):
    """Return the times of queued runs, in milliseconds.

    Two gigabytes are cleared between runs, so that no run finds its inputs in the cache, and so
    that Python has time to queue the next run: otherwise the launch of a short run would be timed.
    """
    if device == "cpu":
        return [round(1000 * seconds(work), 4) for _ in range(repeats)]
    flush = torch.empty(2**31, dtype=torch.int8, device=device)
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for start, end in marks:
        flush.zero_()
        start.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return [round(start.elapsed_time(end), 4) for start, end in marks]


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def clocks(device):
    """Return the GPU's clock rate, power and reasons for a lower rate, where it tells them."""
    if device == "cpu":
        return {}
    query = "clocks.sm,power.draw,clocks_throttle_reasons.active"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    told = subprocess.run(command, capture_output=True, text=True).stdout.split(",")
    names = ["clock rate", "power", "throttle reasons"]
    return dict(zip(names, map(str.strip, told), strict=False))
