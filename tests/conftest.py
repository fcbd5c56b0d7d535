"""Shared by all tests: figures without a screen, closed again; progress kept out of the way."""

import matplotlib
import matplotlib.pyplot as plt
import pytest

from course_utils.checks import saved

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


@pytest.fixture(autouse=True)
def progress_file(tmp_path, monkeypatch):
    file = tmp_path / "progress.json"
    monkeypatch.setattr(saved, "FILE", file)
    monkeypatch.delenv("COURSE_STRICT", raising=False)
    return file
