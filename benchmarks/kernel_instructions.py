"""Count what the inner loop of each rung of the ladder asks of a Hopper multiprocessor.

The kernels are compiled for compute capability 9.0, as an H100 or H200 would run them, and
disassembled; neither needs a GPU. Counted is the first loop with matrix products, which is the one
without a mask where there are two. Writes one JSON file, which lesson 06 plots.
Usage: python benchmarks/kernel_instructions.py [FILE]
"""

import json
import os
import re
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "0"  # read by every @triton.jit: compile

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import kernel_ladder as ladder
from course_utils import kernels

FILE = Path(__file__).parents[1] / "course_utils" / "data" / "kernel_instructions.json"
POINTERS = {"taken_ptr": "*i32"} | dict.fromkeys(["lse_ptr", "d_lse_ptr", "delta_ptr"], "*fp32")


def compile_for_hopper(kernel, tiles, D, **constants):
    """Return a kernel compiled for compute capability 9.0 and bfloat16, aligned as tensors are."""
    constants |= {"D": D, "BLOCK_Q": tiles.block_q, "BLOCK_K": tiles.block_k}
    signature, aligned = {}, {}
    for place, name in enumerate(kernel.arg_names):
        of_keys = name.removeprefix("d_").startswith(("k_", "v_"))
        rows = tiles.block_k if of_keys else tiles.block_q
        if name.endswith("_desc"):
            signature[name] = f"tensordesc<bf16[1, 1, {rows}, {D}]>"
        elif name.endswith("_ptr"):
            signature[name] = POINTERS.get(name, "*bf16")
        else:
            number = "fp32" if name == "scale" else "i32"
            signature[name] = "constexpr" if name in constants else number
        if name.endswith("_ptr") or name == "N":
            aligned[(place,)] = [["tt.divisibility", 16]]
    return triton.compile(
        ASTSource(kernel, signature, constants, aligned),
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": tiles.num_warps, "num_stages": tiles.num_stages},
    )


def compile_rung(number, D, is_causal):
    """Return a rung's kernel compiled for compute capability 9.0, and its tiles."""
    switches, tiles = ladder.plan(number, D)
    if ladder.RUNGS[number].switch == "DESCRIPTORS":
        return compile_for_hopper(kernels._forward, tiles, D, GROUP=1), tiles
    return compile_for_hopper(ladder._attend, tiles, D, IS_CAUSAL=is_causal, **switches), tiles


def inner_loop(sass):
    """Return the instructions of the first loop with matrix products, of disassembled code.

    A line is "control codes, tab, instruction"; a label, to which the end of a loop jumps back,
    stands alone.
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


def cases():
    """Return every configuration that is counted."""
    return [case for case in ladder.cases() if case.N == 16384]


def entries(cases):
    """Count one rung after another, in each configuration."""
    for case in cases:
        needed = case.B * case.H * case.N**2 * (0.5 if case.is_causal else 1)
        for number, rung in enumerate(ladder.RUNGS):
            compiled, tiles = compile_rung(number, case.D, case.is_causal)
            loop = inner_loop(compiled.asm["sass"])
            scores = tiles.block_q * tiles.block_k / (32 * tiles.num_warps)  # a thread, a trip
            counted = ladder.count(number, case)
            yield {
                "rung": rung.name,
                "D": case.D,
                "is_causal": case.is_causal,
                "N": case.N,
                "instructions": round(len(loop) / scores, 2),  # of a thread, for each score
                "powers": round(sum("MUFU.EX2" in each for each in loop) / scores, 2),
                "tf32": any("TF32" in each for each in loop),
                "computed": round(counted["powers"] / needed, 3),  # scores, for each one needed
                "waiting": round(counted["waiting"], 3),
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
