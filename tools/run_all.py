"""Run every stage of `make test`, also after a red one, and end with a table of what came of each.

python -m tools.run_all
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
PYTHON = [sys.executable, "-m"]
# Two more than there are cores: much of the time is spent in waiting for a kernel or a browser.
WORKERS = str(min(8, os.cpu_count() + 2))
# Files start in their order; by their number of tests, the slow browser would be last and alone.
PYTEST = [*PYTHON, "pytest", "-n", WORKERS, "--no-loadscope-reorder"]
# A notebook's cells share a kernel. The limits are for one that died; a slow machine must not reach
# them.
NBVAL = [*PYTEST, "--dist", "loadfile", "-p", "no:cacheprovider", "--nbval-current-env"]
NBVAL += ["--nbval-cell-timeout=900", "--nbval-kernel-startup-timeout=900"]
STAGES = {
    "style": [*PYTHON, "ruff", "check", "."],
    "format": [*PYTHON, "ruff", "format", "--check", "."],
    "tests": [*PYTEST, "--dist", "loadgroup"],  # as tests/conftest.py groups them
    "lessons and solutions": [*NBVAL, "--nbval", "notebooks", "solutions"],
    "exercises": [*NBVAL, "--nbval-lax", "exercises"],
}
# The processes share the cores: one thread each, unless told otherwise, and who waits sleeps.
CALM = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
STRICT = {"exercises"}  # a wrong answer in them is a failure; lesson 00 shows one


def run(name):
    """Run one stage; return how many of its checks passed, failed, and were skipped."""
    settings = CALM | os.environ | {"COURSE_STRICT": str(int(name in STRICT))}
    settings.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process compiles all of it anew
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = [f"--junitxml={report}"] if "pytest" in STAGES[name] else []
        command = [*STAGES[name], *options]
        code = subprocess.run(command, cwd=ROOT, env=settings).returncode
        if not report.exists():  # of ruff, or of a pytest that could not start
            return int(code == 0), int(code != 0), 0
        suite = ElementTree.parse(report).find("testsuite")
    tests, failures, errors, skipped = (
        int(suite.get(kind)) for kind in ("tests", "failures", "errors", "skipped")
    )
    failed = failures + errors
    return tests - failed - skipped, failed or int(code != 0), skipped


def main():
    """Run all stages, print the table, and return the exit code."""
    rows = []
    for name, command in STAGES.items():
        print(f"\n== {name}: {' '.join(command[2:])}", flush=True)
        start = time.monotonic()
        rows.append((name, *run(name), time.monotonic() - start))
    print(f"\n{'stage':24}{'passed':>8}{'failed':>8}{'skipped':>8}{'seconds':>8}")
    for name, *counts, seconds in rows:
        print(f"{name:24}" + "".join(f"{count:8}" for count in counts) + f"{seconds:8.0f}")
    passed, failed, skipped = (sum(row[column] for row in rows) for column in (1, 2, 3))
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    if not os.environ.get("EVERY_CASE"):
        print("Some tests took a sample of their cases; EVERY_CASE=1 make test takes all.")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
