"""Shared by all tests: figures without a screen, closed again; lenient checks; a browser."""

import os

import matplotlib
import matplotlib.pyplot as plt
import pytest

import lab

matplotlib.use("Agg")


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
