"""Run every stage of `make test` or `make check`, also after a red one; end with a table.

python -m tools.run_all              everything
python -m tools.run_all check [K]    style, and the tests that need neither a browser nor minutes,
                                     but not Triton kernels, which are interpreted; with K those
                                     whose name holds it, as pytest -k, kernels included
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
# Two more than there are cores: much of the time is spent waiting for a kernel or a browser.
WORKERS = str(min(8, os.cpu_count() + 2))
# Files start in their order; by their number of tests, the slow browser would be last and alone.
PYTEST = [*PYTHON, "pytest", "-n", WORKERS, "--no-loadscope-reorder"]
GROUPED = [*PYTEST, "--dist", "loadgroup"]  # by tests/conftest.py; the cells of a notebook too
# The time limits are for a kernel that died, not for a slow machine.
NBVAL = ["-p", "no:cacheprovider", "--nbval-current-env"]
NBVAL += ["--nbval-cell-timeout=900", "--nbval-kernel-startup-timeout=900"]
# The later lessons take longest, so they go first, and before the tests, which are short.
NOTEBOOKS = [
    path.relative_to(ROOT).as_posix()
    for folder in ("notebooks", "solutions")
    for path in sorted((ROOT / folder).glob("*.ipynb"), reverse=True)
]
STYLE = {
    "style": [*PYTHON, "ruff", "check", "."],
    "format": [*PYTHON, "ruff", "format", "--check", "."],
}
TEST = STYLE | {
    "lessons and tests": [*GROUPED, *NBVAL, "--nbval", *NOTEBOOKS, "tests"],
    "exercises": [*PYTEST, "--dist", "loadfile", *NBVAL, "--nbval-lax", "exercises"],
}
FAST = "not browser and not slow"
CORES = str(min(8, os.cpu_count()))  # fast tests do not wait, and each process imports PyTorch
CHECK = STYLE | {"tests": [*GROUPED, "tests", "-n", CORES, "-m", f"{FAST} and not kernel"]}
# The processes share the cores: one thread each, unless told otherwise, and a waiting one sleeps.
CALM = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def run(name, command):
    """Run one stage; return how many of its checks passed, failed, and were skipped."""
    # a wrong answer in an exercise is a failure; lesson 00 shows one on purpose
    settings = CALM | os.environ | {"COURSE_STRICT": str(int(name == "exercises"))}
    settings.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process compiles everything anew
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = [f"--junitxml={report}"] if "pytest" in command else []
        code = subprocess.run([*command, *options], cwd=ROOT, env=settings).returncode
        if not report.exists():  # of ruff, or of a pytest that could not start
            return int(code == 0), int(code != 0), 0
        suite = ElementTree.parse(report).find("testsuite")
    tests, failures, errors, skipped = (
        int(suite.get(kind)) for kind in ("tests", "failures", "errors", "skipped")
    )
    failed = failures + errors
    return tests - failed - skipped, failed or int(code != 0), skipped


def main(arguments):
    """Run all stages, print the table, and return the exit code."""
    stages = CHECK if arguments[:1] == ["check"] else TEST
    chosen = " ".join(arguments[1:])
    if chosen:  # few tests: they are done before other processes have started
        stages = STYLE | {"tests": [*GROUPED, "tests", "-n", "0", "-m", FAST, "-k", chosen]}
    rows = []
    for name, command in stages.items():
        print(f"\n== {name}", flush=True)
        start = time.monotonic()
        rows.append((name, *run(name, command), time.monotonic() - start))
    print(f"\n{'stage':24}{'passed':>8}{'failed':>8}{'skipped':>8}{'seconds':>8}")
    for name, *counts, seconds in rows:
        print(f"{name:24}" + "".join(f"{count:8}" for count in counts) + f"{seconds:8.0f}")
    passed, failed, skipped = (sum(row[column] for row in rows) for column in (1, 2, 3))
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
