"""Shared by all tests: figures without a screen, closed again; lenient checks; a browser."""

import importlib.util
import os
import sys

import matplotlib
import matplotlib.pyplot as plt
import pytest

import lab

matplotlib.use("Agg")


def pytest_collection_modifyitems(items):
    """Skip what judges a kernel, by the name of its exercise, where there is no Triton."""
    if importlib.util.find_spec("triton"):
        return
    skip = pytest.mark.skip(reason="Triton exists for Linux only")
    for item in items:
        given = item.callspec.params.values() if hasattr(item, "callspec") else []
        if any(is_kernel(each) for each in given):
            item.add_marker(skip)


def is_kernel(name):
    """Tell whether a test's parameter names an exercise whose answer is a kernel."""
    from course_utils.checks.exercise import EXERCISES

    exercise = EXERCISES.get(name) if isinstance(name, str) else None
    return exercise and hasattr(sys.modules[exercise.reference.__module__], "launch")


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


@pytest.fixture(autouse=True)
def not_strict(monkeypatch):
    monkeypatch.delenv("COURSE_STRICT", raising=False)


@pytest.fixture(scope="module")  # while it is open nothing else may run an event loop
def chromium():
    with lab.browser() as found:
        if found is None:
            # A missing browser is an error where it must not go unseen.
            missing = "no Chromium was found; install one, or run: playwright install chromium"
            (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
        yield found
