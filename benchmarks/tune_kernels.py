"""Try block sizes, warps and stages for the kernels on a CUDA device; print the fastest first.

Copy the results for your GPU into its row of the table in `course_utils/kernel_tiles.py`. One
kernel's tiles are varied while the others' stay; a backward pass is timed as a whole.
Usage: python benchmarks/tune_kernels.py
"""

import itertools
import statistics
import sys

import torch
from triton.errors import TritonError

import gpu_attention as bench
from course_utils import kernel_tiles, kernels

KERNELS = kernel_tiles.Cuts._fields
WIDTHS = [64, 128]
CASES = [(False, 4096), (True, 16384)]  # is_causal, N


def candidates(kernel):
    """Return the tiles to try.

    A product needs 16 rows per warp (on Hopper 64 per 4 warps). If a program's own block, of
    queries or in backward_kv of keys, has fewer, warps duplicate work.
    """
    tiles = []
    for own, other, warps, stages in itertools.product([64, 128], [32, 64, 128], [4, 8], [2, 3, 4]):
        if own >= 16 * warps:
            blocks = (other, own) if kernel == "backward_kv" else (own, other)
            tiles.append(kernel_tiles.Tiles(*blocks, warps, stages))
    return tiles


def work(kernel, case, device):
    """Return a function that runs the pass of a kernel, forward or backward."""
    inputs, d_out = bench.draw(case, device)

    def forward():
        return kernels.flash_attention(*inputs, is_causal=case.is_causal)[0]

    if kernel == "forward":
        return torch.no_grad()(forward)
    out = forward()
    return lambda: torch.autograd.grad(out, inputs, d_out, retain_graph=True)


def tune(kernel, D, device="cuda"):
    """Return (total milliseconds, tiles), fastest first, and (error, tiles) of those that fail."""
    row = kernel_tiles.cuts(kernels.capability(torch.device(device)))
    shipped = row[D]
    runs = [
        work(
            kernel,
            bench.Case("bfloat16", D, causal, N, bench.TOKENS // N, bench.WIDTH // D),
            device,
        )
        for causal, N in CASES
    ]
    timed, failed = [], []
    try:
        for tiles in dict.fromkeys([getattr(shipped, kernel), *candidates(kernel)]):
            row[D] = shipped._replace(**{kernel: tiles})
            try:
                times = [statistics.median(bench.milliseconds(run)) for run in runs]
                timed.append((sum(times), tiles))
            except (RuntimeError, TritonError) as error:
                failed.append((bench.first_line(error), tiles))
    finally:
        row[D] = shipped
    return sorted(timed), failed


def main():
    print(*(f"{key}: {value}" for key, value in bench.machine().items()), sep="\n")
    reason = kernels.why_not(torch.device("cuda"))
    if reason:
        sys.exit(f"nothing to tune: {reason}")
    for kernel, D in itertools.product(KERNELS, WIDTHS):
        shipped = getattr(kernel_tiles.cuts(torch.cuda.get_device_capability())[D], kernel)
        print(f"\n{kernel}, D = {D}; shipped: {tuple(shipped)}", flush=True)
        timed, failed = tune(kernel, D)
        print(*(f"{ms:9.3f} ms  {tuple(tiles)}" for ms, tiles in timed), sep="\n")
        print(*(f"{tuple(tiles)}: {why}" for why, tiles in failed), sep="\n", flush=True)


if __name__ == "__main__":
    main()
