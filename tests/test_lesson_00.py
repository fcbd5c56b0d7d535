"""Lesson 00: its check of the installation says what is missing, and otherwise nothing."""

import importlib.util

import nbformat
import pytest

from stored_notebooks import ROOT, code

CELLS = code(nbformat.read(ROOT / "notebooks" / "00_start_here.ipynb", as_version=4))
(CHECK,) = [cell.source for cell in CELLS if "find_spec" in cell.source]


@pytest.mark.parametrize("missing", ["torch", "seaborn", None])
def test_the_check_names_what_is_missing_and_the_command_that_fixes_it(
    missing, capsys, monkeypatch
):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find(name)
    )
    exec(CHECK, {})
    printed = capsys.readouterr().out
    if missing:
        assert missing in printed and "make lab" in printed
    else:
        assert not printed
