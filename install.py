"""Install the course: python install.py [--cpu | --gpu] [--authors] [--here]

This makes a virtual environment in .venv. With --here it installs into the current environment,
such as conda's. Keep this file valid for Python 3.6, so that an old Python can run it and report
that it is too old.
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
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
LINES = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
TORCH = next(line for line in LINES if line.startswith("torch=="))


def main():
    """Install what is missing and set up git, or stop with a sentence that says what to do."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    build = parser.add_mutually_exclusive_group()
    build.add_argument(
        "--cpu", action="store_true", help="install PyTorch's CPU build, even with a GPU"
    )
    build.add_argument(
        "--gpu", action="store_true", help="install PyTorch's CUDA build, even without a GPU"
    )
    parser.add_argument("--authors", action="store_true", help="also install what the tests need")
    parser.add_argument(
        "--here", action="store_true", help="install into the Python that runs this"
    )
    options = parser.parse_args()
    if sys.version_info < (3, 11):  # noqa: UP036 (an old Python does read this)
        sys.exit(
            "The course needs Python 3.11 or newer, but this is Python "
            f"{sys.version_info[0]}.{sys.version_info[1]}. If you have a newer one, name it: "
            "make lab PYTHON=python3.12, or python3.12 install.py"
        )
    if options.here:
        python, disk = Path(sys.executable), sys.prefix
    else:
        python, disk = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python"), ROOT
        make_environment(python)
    if not has_torch(python):
        install_torch(python, disk, options)
    requirements = "requirements-authors.txt" if options.authors else "requirements.txt"
    if not pip(python, "-r", requirements):
        sys.exit(
            "pip could not install everything; its messages above say why. Check the network and "
            "the free disk space, then run the same command again. Finished downloads are kept."
        )
    set_up_git(python)


def make_environment(python):
    """Make .venv, unless it exists, works, and was made in this folder."""
    config = VENV / "pyvenv.cfg"
    if (
        config.exists()
        and f" {VENV}\n" in config.read_text(encoding="utf-8")
        and runs(python, "import pip, sys; assert sys.version_info >= (3, 11)")
    ):
        return
    if not runs(sys.executable, "import ensurepip"):
        sys.exit("This Python has no venv. On Debian or Ubuntu, run: apt install python3-venv")
    if subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)]).returncode:
        sys.exit(
            "Python could not create .venv in this folder, for the reason above. If the folder is "
            f"read-only, or its path contains '{os.pathsep}', copy the course to another folder."
        )


def has_torch(python):
    """Return whether the environment has the course's version of PyTorch, in any build."""
    name, version = TORCH.split("==")
    installed = f"importlib.metadata.version('{name}').split('+')[0]"
    return runs(python, f"import importlib.metadata; assert {installed} == '{version}'")


def install_torch(python, disk, options):
    """Install PyTorch's CPU build where there is no NVIDIA GPU; say which build, and why."""
    cpu = True
    if sys.platform != "linux":
        reason = "This installs the build of PyTorch that is usual on this system."
    elif options.cpu:
        reason = "As you asked, this installs PyTorch's CPU build."
    elif options.gpu:
        cpu = False
        reason = "As you asked, this installs PyTorch's CUDA build."
    elif has_nvidia_gpu():
        cpu = False
        reason = (
            "An NVIDIA GPU was found, so this installs PyTorch's CUDA build. For the smaller "
            "CPU build, run: make lab CPU=1, or python install.py --cpu"
        )
    else:
        reason = (
            "No NVIDIA GPU was found, so this installs PyTorch's CPU build. For the CUDA "
            "build, run: make lab GPU=1, or python install.py --gpu"
        )
    gigabytes, minutes = (2.3, "2 to 10") if cpu else (5.3, "5 to 30")
    free = shutil.disk_usage(str(disk)).free / 1e9
    if free < gigabytes:
        sys.exit(
            f"The course takes {gigabytes} GB, but this disk has only {free:.1f} GB free. Free "
            "some space, or copy the course to another disk."
        )
    print(reason)
    print(f"The course takes {gigabytes} GB on disk; installing it takes {minutes} minutes.")
    sys.stdout.flush()
    # Only Linux has two builds. PyTorch comes from its own index, all else from the usual one.
    if cpu and sys.platform == "linux":
        if not pip(python, "--no-deps", TORCH, "--index-url", CPU_INDEX):
            print(f"{CPU_INDEX} did not work. Installing the CUDA build instead: 5.3 GB.")
            sys.stdout.flush()


def has_nvidia_gpu():
    """Return whether an NVIDIA driver lists a GPU."""
    try:
        return b"GPU" in subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE).stdout
    except OSError:  # there is no driver
        return False


def runs(python, code):
    """Return whether ``python`` exists and runs ``code`` without an error."""
    try:
        return not subprocess.run([str(python), "-c", code], stderr=subprocess.DEVNULL).returncode
    except OSError:
        return False


def pip(python, *words):
    """Install with pip, which shows its progress; return whether it succeeded."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install"]
    return not subprocess.run(command + list(words), cwd=str(ROOT)).returncode


def set_up_git(python):
    """Let git compare and merge notebooks cell by cell, so that updates keep answers.

    Where both sides ran a cell, the merge takes the update's outputs. If this Python is gone, git
    merges line by line instead. Otherwise git would take the failure for a conflict and leave only
    one side in the file, without conflict markers.
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
        print("Git could not be set up to merge updates. You can take the course without it.")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nStopped. Run the same command again to continue.")
