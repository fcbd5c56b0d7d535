"""Shared by all tests: figures without a screen, closed again; checks that raise nothing."""

import matplotlib
import matplotlib.pyplot as plt
import pytest

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


@pytest.fixture(autouse=True)
def not_strict(monkeypatch):
    monkeypatch.delenv("COURSE_STRICT", raising=False)
