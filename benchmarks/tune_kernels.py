"""Try block sizes, warps and stages for the kernels on a CUDA device; print the fastest first.

Copy the results for your GPU into its row of the table in `course_utils/kernel_tiles.py`. One
kernel's tiles are varied while the others' stay; a backward pass is timed as a whole.

    python benchmarks/tune_kernels.py [--kernel forward] [--width 64] [--most 12]
"""

import argparse
import itertools
import statistics

import torch

import gpu  # noqa: F401  it finds the course, which need not be installed
import timing
from course_utils import kernel_tiles, kernels

KERNELS = kernel_tiles.Cuts._fields
WIDTHS = kernel_tiles.WIDTHS
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
    inputs, d_out = timing.draw(case, device)

    def forward():
        return kernels.flash_attention(*inputs, is_causal=case.is_causal)[0]

    if kernel == "forward":
        return torch.no_grad()(forward)
    out = forward()
    return lambda: torch.autograd.grad(out, inputs, d_out, retain_graph=True)


def tune(kernel, D, device="cuda", most=None):
    """Return (total milliseconds, tiles), fastest first, and (reason, tiles) of those that fail.

    At most ``most`` candidates are tried beside the tiles of the table, all if it is None.
    """
    row = kernel_tiles.cuts(kernels.capability(torch.device(device)))
    shipped = row[D]
    runs = [work(kernel, timing.case(N, D, is_causal), device) for is_causal, N in CASES]
    timed, failed = [], []
    try:
        for tiles in dict.fromkeys([getattr(shipped, kernel), *candidates(kernel)[:most]]):
            row[D] = shipped._replace(**{kernel: tiles})
            try:
                times = [statistics.median(timing.milliseconds(run, device)) for run in runs]
                timed.append((sum(times), tiles))
            except timing.FAILURES as error:
                failed.append((timing.reason(error), tiles))
    finally:
        row[D] = shipped
    return sorted(timed), failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", choices=KERNELS, help="all, if none is named")
    parser.add_argument("--width", type=int, choices=WIDTHS, help="of a head; all, if none is")
    parser.add_argument("--most", type=int, help="the number of candidates to try for each")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this measurement needs a GPU that PyTorch can use, and there is none here")
    if reason := kernels.why_not(torch.device("cuda")):
        parser.error(f"there is nothing to tune: {reason}")
    chosen = [given.kernel] if given.kernel else KERNELS, [given.width] if given.width else WIDTHS
    timing.warm_up("cuda")
    for kernel, D in itertools.product(*chosen):
        shipped = getattr(kernel_tiles.cuts(torch.cuda.get_device_capability())[D], kernel)
        print(f"\n{kernel}, D = {D}; shipped: {tuple(shipped)}", flush=True)
        timed, failed = tune(kernel, D, most=given.most)
        print(*(f"{ms:9.3f} ms  {tuple(tiles)}" for ms, tiles in timed), sep="\n")
        print(*(f"{tuple(tiles)}: {why}" for why, tiles in failed), sep="\n", flush=True)


if __name__ == "__main__":
    main()
