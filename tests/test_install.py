"""The installer: it says what it is about to do, does it in order, and stops with a sentence."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import namedtuple
from pathlib import Path

import pytest

import install

ROOT = install.ROOT
PIP = ["-m", "pip", "--disable-pip-version-check", "install"]
LEARNER = ["-r", "requirements.txt"]
CPU = ["--no-deps", install.TORCH, "--index-url", install.CPU_INDEX]
HAS_GPU, HAS_TORCH, HAS_PIP = "nvidia-smi", "importlib.metadata", "import pip"


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A bare Linux machine on which commands are noted but not run; those in ``fails`` fail."""
    Machine = namedtuple("Machine", "commands fails")
    machine = Machine(commands=[], fails=[HAS_GPU, HAS_TORCH, HAS_PIP])

    def run(command, cwd=None, **_):
        machine.commands.append([str(word) for word in command])
        assert "requirements.txt" not in command or Path(cwd) == tmp_path  # where that file is
        fails = any(word in " ".join(machine.commands[-1]) for word in machine.fails)
        if fails and HAS_GPU in machine.commands[-1]:
            raise FileNotFoundError(HAS_GPU)  # which comes with the driver
        return subprocess.CompletedProcess(command, int(fails), b"" if fails else b"GPU 0: an H200")

    monkeypatch.setattr(install.subprocess, "run", run)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(install, "ROOT", tmp_path)
    monkeypatch.setattr(install, "VENV", tmp_path / ".venv")
    set_free_disk(monkeypatch, 100)
    return machine


def set_free_disk(monkeypatch, gigabytes):
    usage = namedtuple("usage", "free")(gigabytes * 1e9)
    monkeypatch.setattr(install.shutil, "disk_usage", lambda _: usage)


def call(monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", ["install.py", *options])
    install.main()


def stop(monkeypatch, *options):
    """Return the sentence with which the installer stops."""
    with pytest.raises(SystemExit) as stopped:
        call(monkeypatch, *options)
    return str(stopped.value)


def given_to_pip(machine):
    return [command[5:] for command in machine.commands if command[1:5] == PIP]


def test_an_old_python_can_read_the_installer_and_is_refused(machine, monkeypatch):
    ast.parse(Path(install.__file__).read_text(), feature_version=(3, 6))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = int(project["requires-python"].removeprefix(">=3."))
    monkeypatch.setattr(sys, "version_info", (3, oldest - 1, 13))
    told = f"3.{oldest} or newer, but this is Python 3.{oldest - 1}"
    assert told in stop(monkeypatch)
    assert not machine.commands
    monkeypatch.setattr(sys, "version_info", (3, oldest, 0))
    call(monkeypatch)
    assert given_to_pip(machine)
    assert f"python=3.{oldest}\n" in (ROOT / "environment.yml").read_text(encoding="utf-8")
    for said in re.findall(r"Python ([\d.]+) or newer", (ROOT / "README.md").read_text()):
        assert said == f"3.{oldest}", f"README.md names Python {said}"


@pytest.mark.parametrize(
    "platform, gpu, options, reason, gigabytes, pip",
    [
        ("linux", False, [], "No NVIDIA GPU was found", 2.3, [CPU, LEARNER]),
        ("linux", True, [], "An NVIDIA GPU was found", 5.3, [LEARNER]),
        ("linux", True, ["--cpu"], "As you asked", 2.3, [CPU, LEARNER]),
        ("linux", False, ["--gpu"], "As you asked", 5.3, [LEARNER]),
        ("darwin", False, [], "usual on this system", 2.3, [LEARNER]),
        ("win32", True, [], "usual on this system", 2.3, [LEARNER]),
        ("darwin", False, ["--gpu"], "usual on this system", 2.3, [LEARNER]),
        ("win32", True, ["--cpu"], "usual on this system", 2.3, [LEARNER]),
    ],
)
def test_it_chooses_a_build_of_pytorch_and_says_why_and_what_it_takes(
    machine, monkeypatch, capsys, platform, gpu, options, reason, gigabytes, pip
):
    """README says the same, once for each build."""
    monkeypatch.setattr(sys, "platform", platform)
    if gpu:
        machine.fails.remove(HAS_GPU)
    call(monkeypatch, *options)
    text = capsys.readouterr().out
    assert reason in text and f"takes {gigabytes} GB" in text
    minutes = re.search(r"([\d to]+) minutes", text)[1]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for said, size in re.findall(r"takes ([\d to]+) minutes and ([\d.]+) GB", readme):
        assert (said == minutes.strip()) == (float(size) == gigabytes), "README.md: correct it"
    assert given_to_pip(machine) == pip

    machine.commands.clear()
    set_free_disk(monkeypatch, gigabytes - 0.1)
    assert f"only {gigabytes - 0.1:.1f} GB free" in stop(monkeypatch, *options)
    assert not given_to_pip(machine)


def test_once_torch_is_installed_it_stays_whatever_its_build(machine, monkeypatch, capsys):
    machine.fails.remove(HAS_TORCH)
    set_free_disk(monkeypatch, 1)
    call(monkeypatch)
    assert given_to_pip(machine) == [LEARNER]
    assert "GB" not in capsys.readouterr().out
    (asked,) = (command[-1] for command in machine.commands if HAS_TORCH in command[-1])
    monkeypatch.setattr("importlib.metadata.version", lambda name: install.TORCH[-6:] + "+cpu")
    exec(asked)  # raises nothing


def test_git_will_merge_a_learners_notebooks_cell_by_cell(machine, monkeypatch):
    call(monkeypatch)
    assert any("nbdime" in command[-1] for command in machine.commands if command[0] == "git")


def test_without_the_cpu_index_the_usual_build_is_installed(machine, monkeypatch, capsys):
    machine.fails.append(install.CPU_INDEX)
    call(monkeypatch)
    assert given_to_pip(machine) == [CPU, LEARNER]
    assert "the CUDA build instead: 5.3 GB" in capsys.readouterr().out


def test_here_installs_into_the_python_that_runs_it(machine, monkeypatch):
    call(monkeypatch, "--here", "--authors", "--gpu")
    assert [sys.executable, *PIP, "-r", "requirements-authors.txt"] in machine.commands
    assert not any("venv" in command for command in machine.commands)
    assert "install.py --here" in (ROOT / "Dockerfile").read_text()  # its command is on PATH


@pytest.mark.parametrize(
    "made_in, works, again",
    [("here", True, False), ("here", False, True), ("elsewhere", True, True), (None, True, True)],
)
def test_an_environment_is_made_unless_it_works_and_was_made_here(
    machine, monkeypatch, made_in, works, again
):
    if works:
        machine.fails.remove(HAS_PIP)
    if made_in:
        install.VENV.mkdir()
        folder = install.VENV if made_in == "here" else f"/once{install.VENV}"
        (install.VENV / "pyvenv.cfg").write_text(f"command = python -m venv {folder}\n")
    call(monkeypatch)
    made = [sys.executable, "-m", "venv", "--clear", str(install.VENV)] in machine.commands
    assert made == again
    assert all(c[0].startswith(str(install.VENV)) for c in machine.commands if c[1:5] == PIP)


@pytest.mark.parametrize(
    "failing, sentence",
    [
        ("ensurepip", "python3-venv"),
        ("-m venv", "copy the course"),
        ("requirements.txt", "same command"),
    ],
)
def test_a_step_that_fails_ends_with_what_to_do(machine, monkeypatch, failing, sentence):
    machine.fails.append(failing)
    assert sentence in stop(monkeypatch)
    assert failing in " ".join(machine.commands[-1])  # nothing is tried after it
