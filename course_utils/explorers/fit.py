"""The explorer of lesson 06b: does a kernel with these tiles fit on a GPU?"""

import json

from course_utils.explorers.browser_explorer import HERE, BrowserExplorer, choice

# Per multiprocessor: shared memory for one program and in all, in KiB (CUDA C++ Programming Guide,
# "Compute Capabilities"), of which each program also takes 1 KiB for the system.
GPUS = {
    "A100": {"capability": (8, 0), "per_program": 163, "in_all": 164},
    "L4": {"capability": (8, 9), "per_program": 99, "in_all": 100},
    "H100": {"capability": (9, 0), "per_program": 227, "in_all": 228},
}
WIDTHS, BLOCK_Q, BLOCK_K = [64, 128], [64, 128], [32, 64, 128]
STAGES, WARPS = [2, 3, 4], 8
REGISTERS = 65_536  # of a multiprocessor
MOST_REGISTERS = 255  # of a thread


def fit_explorer():
    """Choose a GPU and tiles, and see whether shared memory and registers suffice.

    ``benchmarks/kernel_fit.py`` recorded what each compiled kernel needs, with 8 warps (256
    threads) per program.

    Returns
    -------
    BrowserExplorer
        With controls ``gpu``, ``d``, ``block_q``, ``block_k`` and ``stages``.
    """
    file = HERE.parent / "data" / "kernel_fit.json"
    controls = {
        "gpu": choice("GPU", "H100", GPUS),
        "d": choice("head width d", 128, WIDTHS),
        "block_q": choice("block_q", 128, BLOCK_Q),
        "block_k": choice("block_k", 128, BLOCK_K),
        "stages": choice("stages", 2, STAGES),
    }
    return BrowserExplorer(
        "fit",
        controls,
        compiled=json.loads(file.read_text(encoding="utf-8"))["compiled"],
        gpus=GPUS,
        threads=32 * WARPS,
        registers=REGISTERS,
        most_registers=MOST_REGISTERS,
    )
