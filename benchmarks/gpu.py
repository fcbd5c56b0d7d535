"""Measure the course's attention on a GPU: is it right, how fast is it, and what gains what?

    python benchmarks/gpu.py [PART ...] [--out FOLDER]

needs Python, PyTorch and Triton, but neither Jupyter nor a network, and takes about ten minutes.
The parts, in this order:

    correctness  forward, backward and decoding against float64
    table        naive, tiled and Triton attention, FlexAttention, and each backend of SDPA
    ladder       the versions of the forward kernel, one optimization after another
    decoding     one new token with a long cache

A part writes gpu_PART.json into the folder, after each entry, so an interrupted run keeps what it
has measured. Whatever fails becomes an entry with the reason. Lesson 06b shows what it finds in
course_utils/data, where the files are written unless --out says otherwise.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the course need not be installed

import torch  # noqa: E402

import gpu_attention  # noqa: E402
import gpu_correctness  # noqa: E402
import gpu_decoding  # noqa: E402
import kernel_ladder  # noqa: E402
from timing import clocks  # noqa: E402

PARTS = {
    "correctness": gpu_correctness.entries,
    "table": gpu_attention.entries,
    "ladder": kernel_ladder.entries,
    "decoding": gpu_decoding.entries,
}


def machine(device):
    """Return what the results depend on."""
    import triton

    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    found = {"device": name, "torch": torch.__version__, "triton": triton.__version__}
    if device == "cuda":
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(query, capture_output=True, text=True).stdout.split()
        found |= {
            "driver": driver[0] if driver else None,
            "cuda": torch.version.cuda or torch.version.hip,
            "cudnn": torch.backends.cudnn.version(),
            "compute_capability": ".".join(map(str, torch.cuda.get_device_capability())),
        }
    return found | {"date": datetime.date.today().isoformat()}


def run(part, path, device):
    """Measure one part, and write its entries to a file as they come."""
    about, lines = json.dumps(machine(device), ensure_ascii=False), []
    for entry in PARTS[part](device):
        lines.append(json.dumps(entry | clocks(device), ensure_ascii=False))
        print(lines[-1], flush=True)
        whole = path.with_suffix(".part")  # an interrupted run leaves the last file whole
        entries = ",\n".join(lines)
        whole.write_text(f'{about[:-1]}, "entries": [\n{entries}\n]}}\n', encoding="utf-8")
        os.replace(whole, path)


def main(arguments=None, device="cuda"):
    """Run the chosen parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--out", type=Path, default=ROOT / "course_utils" / "data")
    given = parser.parse_args(arguments)
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"PART must be one of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    if device == "cuda" and not torch.cuda.is_available():
        parser.error("this measurement needs a GPU that PyTorch can use, and there is none here")
    given.out.mkdir(parents=True, exist_ok=True)
    for part in given.parts or PARTS:
        print(f"\n== {part}", flush=True)
        run(part, given.out / f"gpu_{part}.json", device)


if __name__ == "__main__":
    main()
