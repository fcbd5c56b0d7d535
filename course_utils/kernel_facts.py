"""What lesson 06b shows of the kernels without running them: source, counts and measurements.

Importing `course_utils.kernels` needs Triton. Reading its source does not.
"""

import ast
import json
import statistics
from pathlib import Path

HERE = Path(__file__).parent


def kernel_source(name):
    """Return the source of a function in kernels.py, without its decorator.

    Raises
    ------
    ValueError
        If there is no such function.
    """
    source = (HERE / "kernels.py").read_text(encoding="utf-8")
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    for function in functions:
        if function.name == name:
            return ast.get_source_segment(source, function)
    names = ", ".join(function.name for function in functions)
    raise ValueError(f"name must be one of {names}, got {name!r}")


def kernel_counts(d, is_causal):
    """Return counts of instructions in eight versions of the forward kernel, compiled for an H100.

    ``benchmarks/kernel_instructions.py`` counts them. Each version is a dict. It has the ``name``
    of the version and the fields that course_utils/data/README.md lists under
    kernel_instructions.json.

    Parameters
    ----------
    d : {64, 128}
    is_causal : bool

    Returns
    -------
    list of dict
        The versions in order, from the first to the one in kernels.py, for N = 16,384.
    """
    file = HERE / "data" / "kernel_instructions.json"
    entries = json.loads(file.read_text(encoding="utf-8"))["entries"]
    wanted = [each for each in entries if (each["D"], each["is_causal"]) == (d, is_causal)]
    versions = [{"name": each["rung"], **each} for each in wanted]
    return versions[:8]  # the file has a ninth, which is not in our kernel


def measured_rates(d, is_causal, folder=HERE / "data"):
    """Return what ``benchmarks/gpu.py`` measured of the forward kernel at N = 16,384 in bfloat16.

    Parameters
    ----------
    d : {64, 128}
    is_causal : bool
    folder : pathlib.Path
        The folder with ``gpu_ladder.json``.

    Returns
    -------
    device : str or None
        The name of the GPU. None if nothing has been measured.
    rates : dict of str to float
        Median TFLOP/s of each version of the kernel, and of each SDPA backend, whose results were
        right. With a causal mask, half of the FLOP count.
    """
    file = Path(folder, "gpu_ladder.json")
    if not file.exists():
        return None, {}
    report = json.loads(file.read_text(encoding="utf-8"))
    rates = {
        each["contender"]: each["flops"]["forward"] / statistics.median(each["forward"]) / 1e9
        for each in report["entries"]
        if (each["N"], each["D"], each["is_causal"]) == (16384, d, is_causal) and "forward" in each
    }
    return report["device"], rates
