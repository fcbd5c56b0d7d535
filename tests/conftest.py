"""Shared by all tests: figures without a screen, closed again; lenient checks; a browser."""

import importlib.util
import os
import sys
from types import SimpleNamespace

import matplotlib
import matplotlib.pyplot as plt
import pytest

from tools import jupyterlab_server

matplotlib.use("Agg")


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items):
    """Mark browsers and kernels, keep together what shares results, skip kernels without Triton.

    One process runs all tests of an exercise, because each process computes the results of its
    mistakes once. One process runs all tests in JupyterLab, since two at a time are slower. Other
    tests stay together by file, and so do the cells of a notebook, which share a kernel.
    """
    skip = pytest.mark.skip(reason="Triton exists for Linux only")
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):  # a cell has none
            item.add_marker("browser")
        exercise, file = exercise_of(item), item.path.name
        of_file = "JupyterLab" if file.startswith("test_browser") else file
        item.add_marker(pytest.mark.xdist_group(exercise.name if exercise else of_file))
        if exercise and is_kernel(exercise):
            item.add_marker("kernel" if importlib.util.find_spec("triton") else skip)


def exercise_of(item):
    """Return the exercise that a parameter of a test names, if one does."""
    if not hasattr(item, "callspec"):
        return None
    from course_utils.checks.exercise import EXERCISES

    given = [each for each in item.callspec.params.values() if isinstance(each, str)]
    return next((EXERCISES[each] for each in given if each in EXERCISES), None)


def is_kernel(exercise):
    """Tell whether the answer to an exercise is a kernel."""
    return hasattr(sys.modules[exercise.reference.__module__], "launch")


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


@pytest.fixture(autouse=True)
def lenient_and_in_process(monkeypatch):
    from course_utils.checks import judge_process

    monkeypatch.delenv("COURSE_STRICT", raising=False)
    monkeypatch.setattr(judge_process, "in_process", True)


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """The one JupyterLab of all tests: the folder that it serves, and its address."""
    folder = tmp_path_factory.mktemp("lab")
    with jupyterlab_server.server(folder) as address:
        yield SimpleNamespace(folder=folder, address=address)


@pytest.fixture(scope="module")  # while it is open nothing else may run an event loop
def chromium():
    with jupyterlab_server.browser() as found:
        if found is None:
            missing = "no Chromium was found; install one, or run: playwright install chromium"
            (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
        yield found
