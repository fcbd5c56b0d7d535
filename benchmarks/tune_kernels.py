"""Try block sizes, warps and stages for the kernels on a CUDA device, and print the fastest first.

The tables at the top of `course_utils/kernels.py` are set by hand from what this prints. A table is
tried while the others stay as they are; a backward pass is timed as a whole.
Usage: python benchmarks/tune_kernels.py
"""

import itertools
import statistics

import torch
from triton.errors import TritonError

import gpu_attention as bench
from course_utils import kernels

TABLES = ["FORWARD", "BACKWARD_Q", "BACKWARD_KV"]
WIDTHS = [64, 128]
CASES = [(False, 4096), (True, 16384)]  # is_causal, N


def candidates(table):
    """Return the tiles to try.

    A Hopper product takes 64 rows from 4 warps: the block a program owns, of queries or for
    BACKWARD_KV of keys, must have as many, or warps repeat each other's work.
    """
    found = []
    for own, other, warps, stages in itertools.product([64, 128], [32, 64, 128], [4, 8], [2, 3, 4]):
        if own >= 16 * warps:
            blocks = (other, own) if table == "BACKWARD_KV" else (own, other)
            found.append(kernels.Tiles(*blocks, warps, stages))
    return found


def work(table, case, device):
    """Return a function that runs the pass to which a table belongs."""
    inputs, d_out = bench.draw(case, device)

    def forward():
        return kernels.flash_attention(*inputs, is_causal=case.is_causal)[0]

    if table == "FORWARD":
        return torch.no_grad()(forward)
    out = forward()
    return lambda: torch.autograd.grad(out, inputs, d_out, retain_graph=True)


def tune(table, D, device="cuda"):
    """Return (milliseconds of all cases, tiles), fastest first, and (why not, tiles) of others."""
    sizes = getattr(kernels, table)
    shipped = sizes[D]
    runs = [
        work(
            table, bench.Case("bfloat16", D, causal, N, bench.TOKENS // N, bench.WIDTH // D), device
        )
        for causal, N in CASES
    ]
    timed, failed = [], []
    try:
        for tiles in candidates(table):
            sizes[D] = tiles
            try:
                times = [statistics.median(bench.milliseconds(run)) for run in runs]
                timed.append((sum(times), tiles))
            except (RuntimeError, TritonError) as error:
                failed.append((bench.first_line(error), tiles))
    finally:
        sizes[D] = shipped
    return sorted(timed), failed


def main():
    print(*(f"{key}: {value}" for key, value in bench.machine().items()), sep="\n")
    for table, D in itertools.product(TABLES, WIDTHS):
        print(f"\n{table}, D = {D}; shipped: {tuple(getattr(kernels, table)[D])}", flush=True)
        timed, failed = tune(table, D)
        print(*(f"{ms:9.3f} ms  {tuple(tiles)}" for ms, tiles in timed), sep="\n")
        print(*(f"{tuple(tiles)}: {why}" for why, tiles in failed), sep="\n", flush=True)


if __name__ == "__main__":
    main()
