"""Compile the forward kernel with many tile sizes, and record what each needs of a GPU.

Compiling needs no GPU. Writes a JSON file, which the explorer of lesson 06b shows. A key is "GPU,
head width, block_q, block_k, stages", in this order. Its values are shared memory in KiB,
registers of a thread, and bytes of a thread that are spilled to slow memory.
Usage: python benchmarks/kernel_fit.py [FILE]
"""

import itertools
import json
import os
import sys
from pathlib import Path
from unittest import mock

os.environ["TRITON_INTERPRET"] = "0"  # read by every @triton.jit: compile

import torch
import triton

import kernel_instructions as instructions
from course_utils import kernel_tiles, kernels
from course_utils.explorers.fit import BLOCK_K, BLOCK_Q, GPUS, STAGES, WARPS, WIDTHS
from course_utils.kernel_tiles import Cuts, Tiles

FILE = Path(__file__).parents[1] / "course_utils" / "data" / "kernel_fit.json"


def compile_forward(capability, D, tiles):
    """Return the forward kernel, compiled for float16 with these tiles and a causal mask."""
    q, k, v = torch.empty(3, 1, 2, 256, D, dtype=torch.float16, device="meta")
    row = kernel_tiles.cuts(capability)
    with (
        mock.patch.dict(row, {D: Cuts(tiles, tiles, tiles)}),
        instructions.compiling(capability) as found,
    ):
        kernels._FlashAttention.apply(q, k, v, 0)
    return found[0]


def cases():
    """Yield all keys, as tuples."""
    return itertools.product(GPUS, WIDTHS, BLOCK_Q, BLOCK_K, STAGES)


def entries(cases):
    """Yield each case as text, and what its kernel needs."""
    for case in cases:
        name, D, block_q, block_k, stages = case
        tiles = Tiles(block_q, block_k, WARPS, stages)
        needs = instructions.needs(compile_forward(GPUS[name]["capability"], D, tiles))
        yield ",".join(map(str, case)), [needs["shared"], needs["registers"], needs["stack"]]


def main(file):
    lines = [f'  "{case}": {json.dumps(needs)}' for case, needs in entries(cases())]
    report = ",\n".join(lines)
    file.write_text(f'{{\n "triton": "{triton.__version__}",\n "compiled": {{\n{report}\n }}\n}}\n')
    print(f"{len(lines)} cases written to {file}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
