"""`make test`: every stage is run, a red one is counted and stops none of the others."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import types
from unittest.mock import Mock

import jupyter_client
import nbval.kernel
import pytest

import cases
import noxfile
import stages

PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
GREEN, RED = ([sys.executable, "-c", f"raise SystemExit({code})"] for code in (0, 1))


@pytest.fixture
def suite(tmp_path):
    """Return what runs a file of two passing tests, one failing, one broken and three skipped."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_a(): pass\n"
        "def test_b(): pass\n"
        "def test_c(): assert 0\n"
        "def test_d(no_such_fixture): pass\n"
        "@pytest.mark.parametrize('n', range(3))\n"
        "def test_e(n): pytest.skip()\n"
    )
    return [*PYTEST, str(tmp_path)]


def table(text):
    rows = re.findall(r"^(\w+) +(\d+) +(\d+) +(\d+) +\d+$", text, re.M)
    return {name: list(map(int, counts)) for name, *counts in rows}


def test_all_stages_are_run_and_counted_though_the_first_is_red(suite, monkeypatch, capfd):
    nothing = [*PYTEST, "there_is_no_such_folder"]
    monkeypatch.setattr(
        stages, "STAGES", {"red": RED, "some": suite, "none": nothing, "green": GREEN}
    )
    assert stages.main() == 1
    told = capfd.readouterr().out
    assert table(told) == {
        "red": [0, 1, 0],
        "some": [2, 2, 3],
        "none": [0, 1, 0],
        "green": [1, 0, 0],
    }
    assert "\n3 passed, 4 failed, 3 skipped\n" in told


@pytest.mark.parametrize("every_case", [False, True])
def test_green_stages_end_well_and_it_is_said_if_cases_were_left_out(
    every_case, monkeypatch, capfd
):
    monkeypatch.setattr(stages, "STAGES", {"green": GREEN})
    monkeypatch.setattr(stages, "EVERY_CASE", every_case)
    assert stages.main() == 0
    assert ("took a sample of their cases" in capfd.readouterr().out) != every_case


@pytest.fixture
def environments(monkeypatch):
    """Return what runs all stages, as programs that do nothing, and returns their environments."""

    def run(command, cwd, env):
        seen.append(env)
        return subprocess.CompletedProcess(command, 0)

    def run_all():
        for name in stages.STAGES:
            stages.run(name)
        return dict(zip(stages.STAGES, seen, strict=True))

    seen = []
    monkeypatch.setattr(stages, "STAGES", dict.fromkeys(stages.STAGES, ["true"]))
    monkeypatch.setattr(subprocess, "run", run)
    return run_all


def test_a_sample_is_spread_over_the_cases_and_every_case_is_all(monkeypatch):
    for every_case, taken in [(False, [0, 3, 6, 9]), (True, list(range(10)))]:
        monkeypatch.setattr(cases, "EVERY_CASE", every_case)
        assert cases.some(range(10), 4) == taken
        assert cases.some(range(2), 4) == [0, 1]


def test_only_the_exercises_are_strict(environments):
    strict = {name for name, each in environments().items() if each["COURSE_STRICT"] == "1"}
    assert strict == {"exercises"}


@pytest.mark.parametrize("given, taken", [(None, "1"), ("2", "2")])
def test_a_stage_takes_one_thread_unless_told_otherwise(environments, monkeypatch, given, taken):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert {each["OMP_NUM_THREADS"] for each in environments().values()} == {taken}


def test_style_code_and_all_notebooks_are_stages():
    parallel = f"pytest -n {min(8, os.cpu_count() + 2)} --no-loadscope-reorder --dist"
    nbval = f"{parallel} loadfile -p no:cacheprovider --nbval-current-env --nbval-cell-timeout=900"
    nbval += " --nbval-kernel-startup-timeout=900"
    assert {name: " ".join(command[2:]) for name, command in stages.STAGES.items()} == {
        "style": "ruff check .",
        "format": "ruff format --check .",
        "tests": f"{parallel} loadgroup",
        "lessons and solutions": f"{nbval} --nbval notebooks solutions",
        "exercises": f"{nbval} --nbval-lax exercises",
    }


def test_what_python_compiles_is_kept_for_the_next_process(environments, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert all("PYTHONDONTWRITEBYTECODE" not in each for each in environments().values())


@pytest.mark.parametrize("given, group", [("dot", "dot"), ("none", "test_stages.py")])
def test_one_process_runs_all_tests_of_an_exercise_or_else_of_a_file(request, given, group):
    assert request.node.get_closest_marker("xdist_group").args == (group,)


def run_as_the_course_does(folder, *options, **variables):
    """Run the tests in a folder with the course's conftest.py alone; return what pytest says."""
    shutil.copy(stages.ROOT / "tests" / "conftest.py", folder)
    (folder / "lab.py").write_text("from contextlib import nullcontext as browser")
    variables |= {"PYTHONPATH": "", "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    run = subprocess.run(
        [*PYTEST, *options], cwd=folder, env=os.environ | variables, capture_output=True, text=True
    )
    return run.stdout + run.stderr


def test_xdist_gives_one_process_all_tests_of_a_group(tmp_path):
    for name in ("a", "b"):
        tests = "".join(f"def test_{n}(): pass\n" for n in range(8))
        (tmp_path / f"test_{name}.py").write_text(tests)
    options = "-v -p xdist -n 2 --dist loadgroup".split()
    told = run_as_the_course_does(tmp_path, *options)
    assert told.count("PASSED") == 16, told
    assert len(set(re.findall(r"\[(gw\d)\].* PASSED test_(.)", told))) == 2, told


@pytest.mark.parametrize("ci, counted", [("1", "1 passed, 1 error"), ("", "1 passed, 1 skipped")])
def test_tests_are_lenient_and_a_missing_browser_is_an_error_in_ci(tmp_path, ci, counted):
    (tmp_path / "test_it.py").write_text(
        "import os\n"
        "def test_lenient(): assert 'COURSE_STRICT' not in os.environ\n"
        "def test_browser(chromium): pass\n"
    )
    told = run_as_the_course_does(tmp_path, CI=ci, COURSE_STRICT="1")
    assert counted in told, told


@pytest.mark.skipif(os.name != "posix", reason="Windows has no sockets that are files")
def test_no_kernel_of_nbval_can_lose_its_port_to_another(monkeypatch):
    monkeypatch.setattr(nbval.kernel, "KernelManager", jupyter_client.KernelManager)
    runpy.run_path(stages.ROOT / "conftest.py")
    managers = [nbval.kernel.KernelManager(kernel_name="python3") for _ in range(2)]
    assert [each.transport for each in managers] == ["ipc"] * 2
    assert managers[0].ip != managers[1].ip  # the beginning of its files' names


def test_everywhere_means_all_stages_on_every_case_every_python_and_other_arithmetic():
    session = Mock()
    noxfile.python.func(session)
    session.install.assert_called_once_with("-r", "requirements-authors.txt")
    session.run.assert_called_once_with("python", "tests/stages.py")
    assert noxfile.python.python == ["3.11", "3.12", "3.13", "3.14"]
    noxfile.every_case.func(session)
    session.run.assert_called_with(sys.executable, "tests/stages.py", env={"EVERY_CASE": "1"})
    noxfile.arithmetic.func(session, {"A": "1"})
    session.run.assert_called_with(sys.executable, "tests/stages.py", env={"A": "1"})
    settings = {}
    for name, value in (pair for each in noxfile.ARITHMETIC for pair in each.items()):
        settings.setdefault(name, set()).add(value)
    assert settings == {
        "ATEN_CPU_CAPABILITY": {"default", "avx2"},  # default: as without AVX
        "OPENBLAS_CORETYPE": {"SkylakeX", "Haswell", "Nehalem"},
        "OMP_NUM_THREADS": {"1", "2"},
    }


def test_arithmetic_that_this_cpu_lacks_is_skipped_in_the_table(monkeypatch):
    monkeypatch.setattr(noxfile, "TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    session = Mock()
    session.skip.side_effect = StopIteration  # as nox's ends the session
    with pytest.raises(StopIteration):
        noxfile.arithmetic.func(session, {})
    session.run.assert_not_called()


def test_arithmetic_whose_trial_fails_by_an_error_is_run(monkeypatch):
    monkeypatch.setattr(noxfile, "TRIAL", "1 / 0")  # NumPy does not start, for instance
    session = Mock()
    noxfile.arithmetic.func(session, {})
    session.skip.assert_not_called()
    session.run.assert_called_once()


def test_without_triton_only_the_kernels_solutions_are_skipped(monkeypatch):
    hook = runpy.run_path(stages.ROOT / "conftest.py")["pytest_collection_modifyitems"]
    items = [
        types.SimpleNamespace(path=path, add_marker=Mock())
        for path in sorted((stages.ROOT / "solutions").glob("*.ipynb"))
    ]
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    hook(items)
    assert [each.path.name[:3] for each in items if each.add_marker.called] == ["06b"]
