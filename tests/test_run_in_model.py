"""A right answer is tried in the language model; a sentence says what is missing for that."""

import re

import nbformat
import pytest

from course_utils import model_file, run_in_model
from course_utils.checks.exercise import EXERCISES
from course_utils.run_in_model import in_the_model
from stored_notebooks import SOLUTIONS, code
from tiny_language_model import tiny_language_model

PATHS = [path for path in SOLUTIONS if "in_the_model(" in path.read_text(encoding="utf-8")]
LEFT_OUT = re.compile(r"^(check|progress)\(", re.M)
RIGHT = EXERCISES["fold_norm"].reference


@pytest.fixture
def tiny(monkeypatch):
    model, tokenizer = tiny_language_model()
    monkeypatch.setattr(run_in_model, "_loaded", lambda: (model.requires_grad_(False), tokenizer))


def test_only_a_right_answer_is_tried(tiny, capsys):
    def fold_norm(weight, W):
        return W

    in_the_model(RIGHT, lambda model, tokenizer: print(len(model.blocks)))
    assert capsys.readouterr().out == "3\n"
    in_the_model(fold_norm, lambda *_: pytest.fail("tried"))
    assert "fold_norm is correct" in capsys.readouterr().out


def test_without_the_file_a_sentence_says_how_to_get_it(monkeypatch, capsys, tmp_path):
    run_in_model._loaded.cache_clear()
    monkeypatch.setattr(model_file, "_cache", lambda: tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    in_the_model(RIGHT, lambda *_: pytest.fail("tried"))
    assert "`make model`" in capsys.readouterr().out


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_cell_that_tries_an_answer_runs_with_a_right_one(tiny, capsys, path):
    names = {name: exercise.reference for name, exercise in EXERCISES.items()}
    for cell in code(nbformat.read(path, as_version=4)):
        if not LEFT_OUT.search(cell.source) and "your turn" not in cell.source:
            exec(cell.source, names)
            out = capsys.readouterr().out
            if "in_the_model(" in cell.source:
                assert out and "is correct, this cell" not in out
