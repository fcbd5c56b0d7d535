"""Measure attention on a GPU: naive, tiled, the Triton kernels, and each SDPA backend.

Each contender is first compared with float64. One that is wrong or does not run is not timed, and
the reason is recorded. Writes a JSON file with every repeat, after each group of configurations.
Usage: make bench-gpu, or python benchmarks/gpu_attention.py [FILE]
"""

import datetime
import itertools
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from course_utils import attention as course

FILE = Path(__file__).parents[1] / "course_utils" / "data" / "gpu_attention.json"
TOKENS, WIDTH = 16384, 2048  # B · N and H · D, the same in every configuration
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
BACKENDS = {
    "SDPA math": SDPBackend.MATH,
    "SDPA flash": SDPBackend.FLASH_ATTENTION,
    "SDPA efficient": SDPBackend.EFFICIENT_ATTENTION,
    "SDPA cuDNN": SDPBackend.CUDNN_ATTENTION,
}
FLOP_CONVENTION = "4·B·H·N²·D forward, half of it when causal; backward 2.5 times the forward"
SECONDS = 0.3  # for all repeats of one measurement, 3 to 30


class Case(NamedTuple):
    """One configuration: self-attention of B sequences of N tokens, H heads of width D."""

    dtype: str
    D: int
    is_causal: bool
    N: int
    B: int
    H: int


def cases():
    """Return all configurations."""
    return [
        Case(dtype, D, is_causal, N, TOKENS // N, WIDTH // D)
        for dtype, D, is_causal, N in itertools.product(
            DTYPES, [64, 128], [False, True], [512, 1024, 2048, 4096, 8192, 16384]
        )
    ]


def flops(case, backward):
    """Return the floating-point operations of one pass, by FLOP_CONVENTION."""
    forward = 4 * case.B * case.H * case.N**2 * case.D * (0.5 if case.is_causal else 1)
    return 2.5 * forward if backward else forward


def contenders(case, device):
    """Return functions from q, k and v to the output, by name."""
    from course_utils.kernels import flash_attention  # not all machines have Triton

    is_causal = case.is_causal
    mask = course.causal_mask(case.N).to(device) if is_causal else None

    def through(backend):
        def run(q, k, v):
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

        return run

    return {
        "naive": lambda q, k, v: course.attention(q, k, v, mask)[0],
        "tiled": lambda q, k, v: course.tiled_attention(q, k, v, is_causal=is_causal)[0],
        "Triton": lambda q, k, v: flash_attention(q, k, v, is_causal=is_causal)[0],
    } | {name: through(backend) for name, backend in BACKENDS.items()}


def draw(case, device):
    """Return random q, k and v that require gradients, and a gradient at the output."""
    rng = torch.Generator(device).manual_seed(0)
    shape = (case.B, case.H, case.N, case.D)
    options = {"generator": rng, "device": device, "dtype": DTYPES[case.dtype]}
    q, k, v, d_out = (torch.randn(shape, **options) for _ in range(4))
    return [x.requires_grad_() for x in (q, k, v)], d_out


def results(run, inputs, d_out):
    """Return the output and gradients of a contender, by name."""
    out = run(*inputs)
    gradients = torch.autograd.grad(out, inputs, d_out)
    return dict(zip(["output", "d_q", "d_k", "d_v"], [out.detach(), *gradients], strict=True))


def check(case, device):
    """Return the largest errors of each contender against float64, or why it is skipped."""
    from triton.errors import TritonError  # not all machines have Triton

    from course_utils.kernels import why_not

    small = case._replace(N=min(case.N, 1024), B=1, H=2)
    inputs, d_out = draw(small, device)
    runs = contenders(small, device)
    reason = why_not(torch.device(device))
    exactly = [x.detach().double().requires_grad_() for x in inputs]
    right = results(runs["naive"], exactly, d_out.double())
    largest = {}
    for name, run in runs.items():
        if name == "Triton" and reason:  # flash_attention would run tiled_attention
            largest[name] = {"skipped": reason}
            continue
        try:
            got = results(run, inputs, d_out)
        except (RuntimeError, TritonError) as error:  # of PyTorch and CUDA, of the kernels
            largest[name] = {"skipped": first_line(error)}
            continue
        largest[name] = judge(got, right)
    return largest


def judge(got, right):
    """Return the largest error of each result, by name, or the first that is too large.

    Naive attention rounds a score below 8 twice to 16 bits, and a weight changes by up to twice as
    much as the scores: by 2 · 2 · 8 half units in the last place.
    """
    largest = {name: (got[name] - right[name]).abs().max().item() for name in right}
    for name, error in largest.items():
        eps = torch.finfo(got[name].dtype).eps
        if not error <= 16 * eps * right[name].abs().max().item():  # true for NaN too
            return {"skipped": f"wrong: {name} errs by {error:.2g}"}
    return largest


def first_line(error):
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"


def milliseconds(work):
    """Return the times of 3 to 30 runs on the device, after two to warm up."""
    timed(work, repeats=1)
    (second,) = timed(work, repeats=1)
    return timed(work, repeats=max(3, min(30, int(1000 * SECONDS / second))))


def timed(work, repeats):
    """Return the times of queued runs, in milliseconds.

    Half a gigabyte is cleared between runs, so that no run finds its inputs in the cache, and so
    that Python has time to queue the next run: otherwise the launch of a short run would be timed.
    """
    flush = torch.empty(2**29, dtype=torch.int8, device="cuda")
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for start, end in marks:
        flush.zero_()
        start.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return [round(start.elapsed_time(end), 4) for start, end in marks]


def measure(run, inputs, d_out):
    """Return the times of both passes, in milliseconds."""

    def forward():
        with torch.no_grad():
            run(*inputs)

    times = {"forward": milliseconds(forward)}
    out = run(*inputs)
    times["backward"] = milliseconds(
        lambda: torch.autograd.grad(out, inputs, d_out, retain_graph=True)
    )
    return times


def entries(case, errors, device="cuda"):
    """Measure one configuration: an entry for each contender."""
    from triton.errors import TritonError

    inputs, d_out = draw(case, device)
    for name, run in contenders(case, device).items():
        entry = {"contender": name, **case._asdict(), "errors": errors[name]}
        if "skipped" not in errors[name]:
            try:
                times = measure(run, inputs, d_out)
            except (torch.OutOfMemoryError, TritonError) as error:
                entry["skipped"] = first_line(error)
                times = {}
            for which, ms in times.items():
                entry[which] = {"flops": flops(case, which == "backward"), "milliseconds": ms}
        torch.cuda.empty_cache()
        yield entry


def summary(entry):
    """Return a line about an entry: median speed of both passes, or why it was not timed."""
    skipped = entry.get("skipped") or entry["errors"].get("skipped")
    if skipped:
        return f"{entry['contender']:15} not timed: {skipped}"
    speeds = [
        entry[which]["flops"] / statistics.median(entry[which]["milliseconds"]) / 1e9
        for which in ("forward", "backward")
    ]
    return "{:15} {:6.1f} TFLOP/s forward, {:6.1f} backward".format(entry["contender"], *speeds)


def machine():
    """Return what the results depend on; exit if there is no GPU."""
    if not torch.cuda.is_available():
        sys.exit("this measurement needs a GPU that torch can use; there is none here.")
    import triton

    device = {"device": torch.cuda.get_device_name()}
    if torch.version.hip:
        device["hip"] = torch.version.hip
    else:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
        device |= {"driver": driver, "cuda": torch.version.cuda}
    return device | {
        "compute_capability": ".".join(map(str, torch.cuda.get_device_capability())),
        "cudnn": torch.backends.cudnn.version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "date": datetime.date.today().isoformat(),
        "flop_convention": FLOP_CONVENTION,
    }


def main(file):
    report = {**machine(), "entries": []}
    print(*(f"{key}: {value}" for key, value in report.items() if key != "entries"), sep="\n")
    for group, together in itertools.groupby(cases(), key=lambda case: case[:3]):
        together = list(together)
        errors = check(together[-1], "cuda")
        for case in together:
            print(f"\n{case}", flush=True)
            for entry in entries(case, errors):
                report["entries"].append(entry)
                print(summary(entry), flush=True)
        file.write_text(json.dumps(report, ensure_ascii=False) + "\n")
        print(f"\n{group} written to {file}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
