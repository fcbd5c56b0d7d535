"""Lesson 00: it opens on the explorer, and its check of the installation speaks only if it must."""

import importlib.util

import nbformat
import pytest

from stored_notebooks import ROOT, code

CELLS = code(nbformat.read(ROOT / "notebooks" / "00_start_here.ipynb", as_version=4))
(CHECK,) = [cell for cell in CELLS if "find_spec" in cell.source]


def test_the_explorer_comes_first_in_sight_and_the_check_after_it_folded():
    assert CELLS[0].source.endswith("sentence_explorer()") and CELLS[1] is CHECK
    assert "jupyter" not in CELLS[0].metadata
    assert CHECK.metadata.jupyter == {"source_hidden": True} and not CHECK.outputs


@pytest.mark.parametrize("missing", ["torch", "course_utils", "seaborn"])
def test_the_check_names_what_is_missing_and_the_command_that_mends_it(
    missing, capsys, monkeypatch
):
    exec(CHECK.source, {})
    assert not capsys.readouterr().out
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find(name)
    )
    exec(CHECK.source, {})
    told = capsys.readouterr().out
    assert told.startswith(f"Missing: {missing}\n") and "make lab" in told
