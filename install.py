"""Install the course: python install.py [--cpu] [--authors] [--here]

A virtual environment is made in .venv, unless --here names the one that runs this (conda's, say).
This needs nothing but Python, and even 3.6 can read it, to be told that it is too old.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
CPU_BUILD = "https://download.pytorch.org/whl/cpu"
LINES = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
TORCH = next(line for line in LINES if line.startswith("torch=="))


def main():
    """Install what is missing and set up git; stop with a sentence where that cannot be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", action="store_true", help="torch without CUDA: 3 GB less on Linux")
    parser.add_argument("--authors", action="store_true", help="also what the tests need")
    parser.add_argument("--here", action="store_true", help="into the Python that runs this")
    given = parser.parse_args()
    if sys.version_info < (3, 11):  # noqa: UP036 (an old Python does read this)
        sys.exit(
            "The course needs Python 3.11 or newer; this is "
            f"{sys.version_info[0]}.{sys.version_info[1]}. Name one that you have: "
            "make lab PYTHON=python3.12, or python3.12 install.py"
        )
    if given.here:
        python, disk = Path(sys.executable), sys.prefix
    else:
        python, disk = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python"), ROOT
    if not given.here:
        make_environment(python)
    announce(python, disk, given.cpu or sys.platform != "linux")
    if given.cpu:
        # torch alone comes from there; all else from where pip always looks.
        pip(python, "--no-deps", TORCH, "--index-url", CPU_BUILD)
    pip(python, "-r", "requirements-authors.txt" if given.authors else "requirements.txt")
    set_up_git(python)


def announce(python, disk, cpu):
    """Say what the download takes, if there is one; refuse where the disk has no room for it."""
    version = TORCH.split("==")[1]
    there = "import importlib.metadata as m; assert m.version('torch').split('+')[0] == "
    if runs(python, f"{there}'{version}'"):
        return
    needed, minutes = (2.3, "2 to 10") if cpu else (5.3, "5 to 30")
    free = shutil.disk_usage(str(disk)).free / 1e9
    if free < needed:
        sys.exit(
            f"The course takes {needed} GB, and {free:.1f} GB are free on this disk: free some, "
            "or copy the course to another disk."
        )
    print(f"The course takes {needed} GB on disk; installing it takes {minutes} minutes.")
    if not cpu:
        print(
            "Without an NVIDIA GPU, 2.3 GB are enough: stop this (Ctrl+C) and start it again as "
            "make lab CPU=1, or python install.py --cpu"
        )
    sys.stdout.flush()


def make_environment(python):
    """Make .venv, unless it is there, works, and was made in this folder."""
    made = VENV / "pyvenv.cfg"
    if (
        made.exists()
        and f" {VENV}\n" in made.read_text(encoding="utf-8")
        and runs(python, "import pip, sys; assert sys.version_info >= (3, 11)")
    ):
        return
    if not runs(sys.executable, "import ensurepip"):
        sys.exit("This Python lacks venv. On Debian and Ubuntu: apt install python3-venv")
    if subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)]).returncode:
        sys.exit(
            "No .venv could be made in this folder, for the reason above. If the folder is "
            f"read-only or a '{os.pathsep}' is in its name, copy the course elsewhere."
        )


def runs(python, code):
    """Tell whether ``python`` is there and runs ``code`` without an error."""
    try:
        return not subprocess.run([str(python), "-c", code], stderr=subprocess.DEVNULL).returncode
    except OSError:
        return False


def pip(python, *what):
    """Install with pip, whose progress is seen."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install"]
    if subprocess.run(command + list(what), cwd=str(ROOT)).returncode:
        sys.exit(
            "pip could not install everything, and says above why. Is there a network, and room "
            "on the disk? Then give the same command again: it keeps what it has downloaded."
        )


def set_up_git(python):
    """Let git compare and merge notebooks cell by cell, so that updates keep answers.

    The merge takes the update's outputs where both sides ran a cell. Where this Python is gone (1
    would be a conflict), git merges line by line: else the file would hold one side only, unmarked.
    """
    nbdime = shlex.quote(python.as_posix()) + " -m nbdime.vcs.git."
    merge = nbdime.replace("%", "%%") + "mergedriver merge --output-strategy use-remote"
    commands = [
        ("ls-files", "--error-unmatch", "install.py"),  # is this a clone of the course?
        ("config", "diff.jupyternotebook.command", nbdime + "diffdriver diff"),
        ("config", "merge.jupyternotebook.name", "merge notebooks cell by cell"),
        (
            "config",
            "merge.jupyternotebook.driver",
            merge + " %O %A %B %L %P || { [ $? = 1 ] && exit 1; git merge-file %A %O %B; }",
        ),
    ]
    try:
        for command in commands:
            subprocess.run(["git", *command], cwd=str(ROOT), check=True, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        print("Git is not set up for updates; to learn without updates, that does not matter.")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nStopped. Give the same command again to go on.")
