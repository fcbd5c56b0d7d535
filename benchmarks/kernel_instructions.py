"""Count the instructions in the inner loop of each rung of the ladder on a Hopper GPU.

The kernels are compiled for compute capability 9.0 (H100, H200) and disassembled; neither needs a
GPU. Counts the first loop with matrix products, which is the unmasked one if there are two. Writes
a JSON file, which lesson 06b shows.
Usage: python benchmarks/kernel_instructions.py [FILE]
"""

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

os.environ["TRITON_INTERPRET"] = "0"  # read by every @triton.jit: compile

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction, driver

import kernel_ladder as ladder
from course_utils import kernels
from course_utils.explorers.fit import GPUS, REGISTERS

FILE = Path(__file__).parents[1] / "course_utils" / "data" / "kernel_instructions.json"
HOPPER = (9, 0)
# Shared memory that one block may have, by compute capability: CUDA C++ Programming Guide,
# "Compute Capabilities".
KIBIBYTES = {(8, 0): 163, (8, 6): 99, (8, 9): 99, (9, 0): 227, (10, 0): 227, (12, 0): 99}


class Driver:
    """The part of a driver that Triton needs to compile; the device is its compute capability."""

    def __init__(self, capability):
        self.capability = capability

    def get_current_device(self):
        return self.capability

    def get_current_target(self):
        major, minor = self.capability
        return GPUTarget("cuda", 10 * major + minor, 32)

    def get_current_stream(self, device):
        return 0


@contextlib.contextmanager
def compiling(capability):
    """Compile each launched kernel for a GPU of that capability; yield the list of results.

    Nothing runs, and no GPU is needed: tensors may be on the device "meta".
    """
    found = []
    compiled = JITFunction.run

    def run(kernel, *args, grid, warmup, **words):
        found.append(compiled(kernel, *args, grid=grid, warmup=True, **words))

    with (
        mock.patch.object(driver, "_active", Driver(capability)),
        mock.patch.object(JITFunction, "run", run),
        mock.patch.object(kernels, "capability", lambda device: capability),
    ):
        yield found


def compile_rung(number, D, is_causal):
    """Return a rung's kernel compiled for compute capability 9.0, and its tiles."""
    q, k, v = torch.empty(3, 1, 2, 256, D, dtype=torch.bfloat16, device="meta")
    with compiling(HOPPER) as found:
        if ladder.RUNGS[number].switch == "DESCRIPTORS":
            kernels._FlashAttention.apply(q, k, v, 0)
        else:
            ladder.attend(number, q, k, v, is_causal)
    return found[0], ladder.plan(number, D, HOPPER)[1]


def compile_attention(capability, D, dtype):
    """Return the kernels of flash_attention, forward and both backward, as they are launched."""
    q, k, v = torch.empty(3, 1, 2, 256, D, dtype=dtype, device="meta").requires_grad_()
    with compiling(capability) as found:
        out, _ = kernels._FlashAttention.apply(q, k, v, 0)
        torch.autograd.grad(out, (q, k, v), torch.empty_like(out))
    return found


def needs(kernel):
    """Return what a compiled kernel needs of a GPU.

    Shared memory per block in KiB, tensor memory in columns (Blackwell has 512), registers and
    bytes of stack per thread, and the number of asynchronous copies and of blocking loads from
    global memory.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    kinds = {
        "copies of 16 bytes": r"cp\.async\.cg\S* .*, 0x10,",
        "copies by descriptor": r"cp\.async\.bulk\.tensor",
        "loads of 16 bytes": r"ld\.global\S*v4\.b32",
        "loads of 2 bytes": r"ld\.global\S*b16",
    }
    return {
        "kernel": kernel.name,
        "shared": kernel.metadata.shared / 1024,
        "tensor memory": kernel.metadata.tmem_size,
        "registers": int(re.search(r"REG:(\d+)", usage)[1]),
        "stack": int(re.search(r"STACK:(\d+)", usage)[1]),
    } | {kind: len(re.findall(what, kernel.asm["ptx"])) for kind, what in kinds.items()}


def fitting(needed, tiles):
    """Return how many programs of a kernel fit on a Hopper multiprocessor at a time."""
    registers = 32 * tiles.num_warps * needed["registers"]
    shared = needed["shared"] + 1  # KiB, of which the system takes 1
    return min(REGISTERS // registers, int(GPUS["H100"]["in_all"] // shared))


def inner_loop(sass):
    """Return the instructions of the first loop with matrix products in disassembled code.

    A line is "control codes, tab, instruction"; a label, the target of jumps, is on its own line.
    """
    code, labels = [], {}
    for line in sass.splitlines():
        if re.fullmatch(r"LBB\d+:", line):
            labels[line[:-1]] = len(code)
        elif "\t" in line:
            code.append(line.split("\t")[1])
            jump = re.search(r"\bBRA.* (LBB\d+)", code[-1])
            if jump and jump[1] in labels:  # back
                loop = code[labels[jump[1]] :]
                if any("HGMMA" in each for each in loop):
                    return loop
    raise ValueError("no loop with matrix products in the code")


def order(loop):
    """Return in which order a loop computes, waits and copies, as one line of text.

    Each part is the number of its first instruction in the loop, its opcode, and how many of them
    follow before one of another kind.
    """
    kinds = ["HGMMA", "WARPGROUP.DEPBAR", "MUFU.EX2", "BAR.SYNC", "UTMALDG"]
    found = [(at, kind) for at, each in enumerate(loop) for kind in kinds if kind in each]
    groups = [[*group] for _, group in itertools.groupby(found, key=lambda pair: pair[1])]
    return ", ".join(f"{group[0][0]} {group[0][1]} {len(group)}" for group in groups)


def cases():
    """Return all configurations."""
    return [case for case in ladder.cases() if case.N == 16384]


def entries(cases):
    """Yield the counts of each rung in each configuration."""
    for case in cases:
        needed = case.B * case.H * case.N**2 * (0.5 if case.is_causal else 1)
        for number, rung in enumerate(ladder.RUNGS):
            compiled, tiles = compile_rung(number, case.D, case.is_causal)
            loop = inner_loop(compiled.asm["sass"])
            programs = fitting(needs(compiled), tiles)
            scores = tiles.block_q * tiles.block_k / (32 * tiles.num_warps)  # a thread, a trip
            counted = ladder.count(number, case, programs)
            yield {
                "rung": rung.name,
                "D": case.D,
                "is_causal": case.is_causal,
                "N": case.N,
                "instructions": round(len(loop) / scores, 2),  # of a thread, for each score
                "exponentials": round(sum("MUFU.EX2" in each for each in loop) / scores, 2),
                "tf32": any("TF32" in each for each in loop),
                "computed": round(counted["powers"] / needed, 3),  # scores, for each one needed
                "programs": programs,  # on a multiprocessor at a time
                "waiting": round(counted["waiting"], 3),
                "loop": len(loop),  # instructions of a trip
                "order": order(loop),
            }


def main(file):
    report = {
        "triton": triton.__version__,
        "compute_capability": 9.0,
        "entries": list(entries(cases())),
    }
    file.write_text(json.dumps(report, indent=1) + "\n")
    print(*report["entries"], f"written to {file}", sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
