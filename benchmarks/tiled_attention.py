"""Measure tiled attention in plain torch against naive attention and SDPA: time and peak memory.

B = 1, H = 8, D = 64, float32, forward. Contenders alternate; prints ratios to naive.
Usage: make bench
"""

import os
import statistics
import time
from functools import partial

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # waiting threads must not occupy the cores

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from course_utils.attention import attention, tiled_attention  # noqa: E402
from course_utils.measure import peak_memory  # noqa: E402

ROUNDS = 7
CONTENDERS = {
    "naive": lambda q, k, v: attention(q, k, v)[0],
    "tiled": lambda q, k, v: tiled_attention(q, k, v)[0],
    "SDPA": F.scaled_dot_product_attention,
}


def main():
    for n in (1024, 4096, 8192):
        qkv = torch.randn(3, 1, 8, n, 64).unbind()  # (B, H, N, D) each
        held = {name: peak_memory(partial(run, *qkv)) for name, run in CONTENDERS.items()}
        times = {name: [] for name in CONTENDERS}
        for _ in range(ROUNDS):
            for name, run in CONTENDERS.items():
                start = time.perf_counter()
                run(*qkv)
                times[name].append(time.perf_counter() - start)
        for name in CONTENDERS:
            ratios = [a / b for a, b in zip(times[name], times["naive"], strict=True)]
            print(
                f"N = {n}: {name:5} {statistics.median(ratios):.2f} × naive's time "
                f"({min(ratios):.2f} to {max(ratios):.2f}), {held[name] / 2**20:.1f} MiB at most, "
                f"naive's / {held['naive'] / held[name]:.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
