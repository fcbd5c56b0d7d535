"""The installer: it says what it is about to do, does it in order, and stops with a sentence."""

import argparse
import ast
import io
import runpy
import subprocess
import sys
from collections import namedtuple
from importlib import metadata
from pathlib import Path
from unittest.mock import Mock

import pytest

import install

PIP = ["-m", "pip", "--disable-pip-version-check", "install"]
LEARNER = ["-r", "requirements.txt"]
GB = 10**9


@pytest.fixture
def machine(monkeypatch, tmp_path, capsys):
    """A Linux machine on which commands are noted, not run, with what was said before each."""
    Machine = namedtuple("Machine", "ran said refuses")
    machine = Machine(ran=[], said=[], refuses=["version('torch')", "import pip"])

    def run(command, **_):
        machine.ran.append([str(word) for word in command])
        machine.said.append(capsys.readouterr().out)
        refused = any(word in " ".join(machine.ran[-1]) for word in machine.refuses)
        return subprocess.CompletedProcess(command, int(refused))

    monkeypatch.setattr(install.subprocess, "run", run)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(install, "ROOT", tmp_path)
    monkeypatch.setattr(install, "VENV", tmp_path / ".venv")
    room(monkeypatch, 100)
    return machine


def room(monkeypatch, free):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(install.shutil, "disk_usage", lambda _: usage(free * GB))


def call(monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", ["install.py", *options])
    install.main()


def stop(monkeypatch, *options):
    """Return the sentence with which the installer stops."""
    with pytest.raises(SystemExit) as stopped:
        call(monkeypatch, *options)
    return str(stopped.value)


def asked_of_pip(machine):
    return [command[5:] for command in machine.ran if command[1:5] == PIP]


def test_an_old_python_can_read_the_installer():
    ast.parse(Path(install.__file__).read_text(), feature_version=(3, 6))


def test_what_a_python_lacks_is_found_out_in_silence(tmp_path, capfd):
    assert install.runs(sys.executable, "import json")
    assert not install.runs(sys.executable, "import no_such_module")
    assert not install.runs(tmp_path / "a Python that is gone", "import json")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("version", [(3, 6, 15), (3, 10, 13)])
def test_an_old_python_is_refused_before_anything_happens(machine, monkeypatch, version):
    monkeypatch.setattr(sys, "version_info", version)
    sentence = stop(monkeypatch)
    assert "3.11 or newer" in sentence and f"{version[0]}.{version[1]}." in sentence
    assert "PYTHON=" in sentence
    assert not machine.ran


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 13, 1), (4, 0, 0)])
def test_other_pythons_are_welcome(machine, monkeypatch, version):
    monkeypatch.setattr(sys, "version_info", version)
    call(monkeypatch)
    assert asked_of_pip(machine) == [LEARNER]


@pytest.mark.parametrize(
    "platform, options, size",
    [("linux", [], 5.3), ("linux", ["--cpu"], 2.3), ("darwin", [], 2.3), ("win32", [], 2.3)],
)
def test_what_it_takes_is_said_before_it_starts(machine, monkeypatch, platform, options, size):
    monkeypatch.setattr(sys, "platform", platform)
    call(monkeypatch, *options)
    starts = next(i for i, command in enumerate(machine.ran) if command[1:5] == PIP)
    said = "".join(machine.said[: starts + 1])
    assert f"takes {size} GB" in said and "minutes" in said
    assert ("CPU=1" in said) == (size == 5.3)

    machine.ran.clear()
    room(monkeypatch, size - 0.1)
    sentence = stop(monkeypatch, *options)
    assert f"takes {size} GB" in sentence and f"{size - 0.1:.1f} GB are free" in sentence
    assert not asked_of_pip(machine)


def test_what_it_takes_is_written_before_pip_writes(machine, monkeypatch):
    stdout = io.TextIOWrapper(io.BytesIO())  # as to a file, which is not written line by line
    monkeypatch.setattr(sys, "stdout", stdout)
    install.announce("python", ".", cpu=True)
    assert b"2.3 GB" in stdout.buffer.getvalue()


def test_room_is_looked_for_where_it_is_installed(machine, monkeypatch):
    asked = []
    usage = namedtuple("usage", "free")(100 * GB)
    monkeypatch.setattr(install.shutil, "disk_usage", lambda path: asked.append(path) or usage)
    call(monkeypatch, "--here")
    call(monkeypatch)
    assert asked == [sys.prefix, str(install.ROOT)]


def test_pip_finds_the_lists_wherever_it_is_called(monkeypatch):
    run = Mock(return_value=Mock(returncode=0))
    monkeypatch.setattr(install.subprocess, "run", run)
    install.pip("python", *LEARNER)
    assert run.call_args.kwargs["cwd"] == str(install.ROOT)


def test_once_torch_is_there_nothing_is_said_of_its_size(machine, monkeypatch):
    machine.refuses.remove("version('torch')")
    room(monkeypatch, 1)
    call(monkeypatch)
    assert asked_of_pip(machine) == [LEARNER]
    assert "GB" not in "".join(machine.said)


def test_the_cpu_build_of_torch_counts_as_torch(monkeypatch, capsys):
    version = install.TORCH.partition("==")[2]
    monkeypatch.setattr(metadata, "version", lambda _: f"{version}+cpu")
    monkeypatch.setattr(install, "runs", lambda _, code: exec(code) is None)
    install.announce("python", ".", cpu=True)
    assert capsys.readouterr().out == ""


def test_the_environment_is_made_once(machine, monkeypatch):
    call(monkeypatch)
    venv = [sys.executable, "-m", "venv", "--clear", str(install.VENV)]
    assert venv in machine.ran
    machine.ran.clear()
    machine.refuses.remove("import pip")
    note = install.VENV / "pyvenv.cfg"
    note.parent.mkdir()
    note.write_text(f"version = 3.11.7\ncommand = python -m venv --clear {install.VENV}\n")
    call(monkeypatch)
    assert venv not in machine.ran
    assert all(
        command[0].startswith(str(install.VENV)) for command in machine.ran if PIP in command
    )


def test_the_cpu_build_of_torch_alone_comes_from_its_own_index(machine, monkeypatch):
    call(monkeypatch, "--cpu")
    torch, rest = asked_of_pip(machine)
    assert torch == ["--no-deps", install.TORCH, "--index-url", install.CPU_BUILD]
    assert rest == LEARNER


def test_here_installs_into_the_python_that_runs_it(machine, monkeypatch):
    call(monkeypatch, "--here", "--authors")
    assert asked_of_pip(machine) == [["-r", "requirements-authors.txt"]]
    assert not any("venv" in command for command in machine.ran)
    assert [sys.executable, *PIP, "-r", "requirements-authors.txt"] in machine.ran


def test_an_environment_of_an_old_python_is_made_anew(machine, monkeypatch):
    def runs(_, code):
        old = "import sys; sys.version_info = 3, 10, 13; "
        # in a process of its own: what is imported there would remember the old version
        return not subprocess.call([sys.executable, "-c", old + code], stderr=subprocess.DEVNULL)

    install.VENV.mkdir()
    (install.VENV / "pyvenv.cfg").write_text(f"command = python -m venv {install.VENV}\n")
    monkeypatch.setattr(install, "runs", runs)
    install.make_environment("python")
    assert [sys.executable, "-m", "venv", "--clear", str(install.VENV)] in machine.ran


def test_an_environment_that_was_moved_is_made_anew(machine, monkeypatch):
    machine.refuses.remove("import pip")
    install.VENV.mkdir()
    (install.VENV / "pyvenv.cfg").write_text(f"command = python -m venv /once{install.VENV}\n")
    call(monkeypatch)
    assert [sys.executable, "-m", "venv", "--clear", str(install.VENV)] in machine.ran


@pytest.mark.parametrize(
    "failing, sentence",
    [("ensurepip", "python3-venv"), ("-m venv", "copy the course"), ("-m pip", "same command")],
)
def test_a_step_that_fails_ends_with_what_to_do(machine, monkeypatch, failing, sentence):
    machine.refuses.append(failing)
    assert sentence in stop(monkeypatch)
    assert failing in " ".join(machine.ran[-1])  # nothing is tried after it


def test_git_is_set_up_last(machine, monkeypatch):
    call(monkeypatch)
    assert [command[0] for command in machine.ran[-4:]] == ["git"] * 4


def test_who_stops_it_is_told_how_to_go_on(monkeypatch):
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises((SystemExit, KeyboardInterrupt)) as stopped:
        runpy.run_path(install.__file__, run_name="__main__")
    assert str(stopped.value).strip() == "Stopped. Give the same command again to go on."
