"""Predictions: what was said is compared with what came, and kept, whatever becomes of the file."""

import json
import os
import tempfile

import pytest
import torch

from course_utils import predict_first, predictions, surprises
from course_utils.predictions import FILE
from stored_notebooks import ROOT

QUESTION = "Which is larger?"


class Frontend:
    """What a kernel knows of the request that runs the present cell."""

    person = True

    def get_parent(self):
        return {"content": {"allow_stdin": self.person}, "metadata": {"cellId": "abc"}}


@pytest.fixture
def frontend(tmp_path, monkeypatch):
    """A new kernel with somebody before it; the file is ``tmp_path / FILE``."""
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    monkeypatch.setattr(predictions, "get_ipython", Frontend)
    restart(monkeypatch)
    return tmp_path / FILE


def restart(monkeypatch):
    monkeypatch.setattr(predictions, "_asked", {})


def ask(options=("near", "long")):
    return predict_first(QUESTION, options)


def printed(capsys, compare, *values):
    capsys.readouterr()
    for value in values:
        compare(value)
    return capsys.readouterr().out


def test_a_choice_is_compared_with_what_came(frontend, capsys):
    right, wrong = ask(), predict_first("Another?", [1, 2])
    right.control.value = "long"
    wrong.control.value = "2"
    assert (
        printed(capsys, right.compare, "long") == "You said long, and it came long: as predicted.\n"
    )
    assert printed(capsys, wrong.compare, 1) == "You said 2, and it came 1: a surprise.\n"
    surprises()
    out = capsys.readouterr().out
    assert "You predicted 2 of 2 results; 1 came as a surprise." in out
    assert out.count("#cell-id=abc") == 1 and "Another?</a>" in out


def test_a_surprise_is_told_as_it_was_asked(frontend, capsys):
    question = predict_first("Is a <b> & c?", ["yes", "no"])
    question.control.value = "yes"
    question.compare("no")
    capsys.readouterr()
    surprises()
    assert "Is a &lt;b&gt; &amp; c?</a>" in capsys.readouterr().out


def test_where_cells_have_no_ids_a_surprise_is_told_without_a_link(frontend, capsys, monkeypatch):
    person = {"content": {"allow_stdin": True}, "metadata": {}}
    monkeypatch.setattr(Frontend, "get_parent", lambda self: person)
    question = ask()
    question.control.value = "near"
    question.compare("long")
    surprises()
    out = capsys.readouterr().out
    assert f"<li>{QUESTION}</li>" in out and "cell-id" not in out


@pytest.mark.parametrize("options", [["near", "long"], None], ids=["options", "number"])
def test_without_a_choice_the_result_alone_is_told(frontend, capsys, options):
    question = ask(options)
    assert printed(capsys, question.compare, "long" if options else 3) == (
        f"It came: {'long' if options else 3}. Nothing was predicted.\n"
    )
    surprises()
    assert "You predicted 0 of 1 results" in capsys.readouterr().out
    assert not frontend.exists()


@pytest.mark.parametrize(
    "said, came, right",
    [("20", 30, True), ("20", 9.9, False), ("20", 41, False),
     ("1e3", torch.tensor([[999.0]]), True), ("-4", -2, True), ("4", -2, False), ("0", 0, True),
     ("0", 1e-9, False),
     ("inf", 2, False), ("nan", 2, False), ("2", float("nan"), False)],
)  # fmt: skip
def test_a_number_is_right_within_its_factor(frontend, capsys, said, came, right):
    number = predict_first("How many?", factor=2)
    number.control.value = said
    assert printed(capsys, number.compare, came).endswith(
        ": as predicted.\n" if right else ": a surprise.\n"
    )


@pytest.mark.parametrize("said", ["many", "", " ", "2,5"])
def test_what_is_no_number_is_asked_for_again_and_does_not_count(frontend, capsys, said):
    number = predict_first("How many?")
    number.control.value = "1"
    number.control.value = said
    assert "such as 20" in number.words.value
    assert "Nothing was predicted" in printed(capsys, number.compare, 1)


def test_the_first_result_after_a_choice_fixes_it(frontend, capsys):
    question = ask()
    question.control.value = "near"
    question.control.value = "long"  # till then one may think again
    printed(capsys, question.compare, "near")
    assert question.control.disabled
    assert printed(capsys, question.compare, "long").endswith(": as predicted.\n")
    assert question.surprised
    again = ask()
    assert again.control.disabled and again.control.value == "long" and again.surprised


def test_a_choice_made_after_the_result_does_not_count(frontend, capsys):
    question = ask()
    printed(capsys, question.compare, "long")
    for each in [question, ask()]:  # also not when the question is asked again
        each.control.value = "near"
        assert "does not count" in each.words.value
        each.control.value = "long"
        assert "on the screen already" in printed(capsys, each.compare, "long")
    surprises()
    assert "You predicted 0 of 1" in capsys.readouterr().out
    assert not frontend.exists()


@pytest.mark.parametrize("options", [["near", "long"], None], ids=["options", "number"])
def test_a_restart_keeps_choice_and_surprise(frontend, capsys, monkeypatch, options):
    said, came = ("near", "long") if options else ("1", 9)
    ask(options).control.value = said
    restart(monkeypatch)
    question = ask(options)
    assert question.control.value == said and not question.control.disabled
    printed(capsys, question.compare, came)
    restart(monkeypatch)
    question = ask(options)
    assert question.control.value == said and question.control.disabled
    surprises()
    assert "You predicted 1 of 1 results; 1 came" in capsys.readouterr().out


def test_where_nobody_sits_no_choice_is_shown_or_kept(frontend, capsys, monkeypatch):
    ask().control.value = "near"
    restart(monkeypatch)
    monkeypatch.setattr(Frontend, "person", False)
    question = ask()
    assert "Nothing was predicted" in printed(capsys, question.compare, "long")
    predict_first("Another?", ["yes"]).control.value = "yes"
    assert set(json.loads(frontend.read_text())) == {question.question}


def test_in_another_folder_nothing_is_written(frontend, monkeypatch):
    (frontend.parent / "mine").mkdir()
    monkeypatch.chdir(frontend.parent / "mine")
    ask().control.value = "near"
    assert not list(frontend.parent.rglob("*.json*"))


ENTRIES = [None, 3, [], {}, {"said": 3}, {"said": ["near"]}, {"said": "far"}, {"said": None}]
KNOWN = [json.dumps(entry) for entry in ENTRIES]
CONTENTS = ["", "{", "[1]", "\x00\xff", *KNOWN]


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("options", [["near", "long"], None], ids=["options", "number"])
def test_a_damaged_file_is_no_obstacle(frontend, monkeypatch, content, options):
    key = ask(options).question
    restart(monkeypatch)
    frontend.write_text(json.dumps({key: json.loads(content)}) if content in KNOWN else content)
    question = ask(options)
    assert not question.control.disabled and question.said is None
    question.control.value = "near" if options else "3"
    restart(monkeypatch)
    assert ask(options).control.value == question.said


def test_a_surprise_that_is_neither_is_forgotten(frontend, monkeypatch):
    frontend.write_text(json.dumps({QUESTION: {"said": "near", "surprised": "very"}}))
    question = ask()
    assert question.said == "near" and question.surprised is None and not question.control.disabled


def test_what_cannot_be_saved_is_told_and_counts_until_the_restart(frontend, capsys, monkeypatch):
    def full(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkstemp", full)
    question = ask()
    question.control.value = "near"
    assert "could not be saved: [Errno 28] No space left" in question.words.value
    assert "a surprise" in printed(capsys, question.compare, "long")


def test_a_file_that_cannot_be_read_is_left_as_it_is(frontend):
    frontend.mkdir()
    (frontend / "mine").touch()
    ask().control.value = "near"
    assert os.listdir(frontend) == ["mine"]


def test_other_choices_and_strange_entries_stay(frontend):
    frontend.write_text(json.dumps({"of a later lesson": [1]}))
    ask().control.value = "near"
    assert json.loads(frontend.read_text())["of a later lesson"] == [1]


def test_a_viewer_that_runs_nothing_shows_question_and_options(frontend, monkeypatch):
    ask().control.value = "near"
    shown = [ask()._repr_mimebundle_()["text/plain"]]
    restart(monkeypatch)
    monkeypatch.setattr(predictions, "get_ipython", lambda: None)
    shown.append(ask()._repr_mimebundle_()["text/plain"])
    assert shown == ["Predict first: Which is larger?\n  ○ near\n  ○ long"] * 2  # and no choice


def test_the_file_is_ignored_by_git():
    assert f"{FILE}*" in (ROOT / ".gitignore").read_text().split()
