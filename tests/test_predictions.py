"""Predictions: the choice is compared with the result and saved, whatever happens to the file."""

import json
import os
import tempfile

import pytest
import torch

from course_utils import predict_first, predictions, surprises
from course_utils.predictions import FILE, IN_JUPYTER, SAYS

QUESTION = "Is a <b> & c larger?"
OPTIONS = ["near", "long"]
BOTH_KINDS = pytest.mark.parametrize("options", [OPTIONS, None], ids=["options", "number"])


class Frontend:
    """What a kernel knows of the request that runs the present cell."""

    person, metadata = True, {"cellId": "abc"}

    def get_parent(self):
        return {"content": {"allow_stdin": self.person}, "metadata": self.metadata}


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The file of a new kernel with a person in front of it."""
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    monkeypatch.setattr(predictions, "get_ipython", Frontend)
    # Files are often temporary on another file system, from which none can be moved here.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    restart(monkeypatch)
    return tmp_path / FILE


def restart(monkeypatch):
    monkeypatch.setattr(predictions, "_asked", {})


@pytest.fixture
def output(file, monkeypatch):
    """What a call displays, as text, as HTML and as metadata."""
    outputs = []
    monkeypatch.setattr(
        predictions, "display", lambda data, metadata=None, **_: outputs.append((data, metadata))
    )

    def of(function, *args):
        function(*args)
        data, metadata = outputs[-1]
        return data["text/plain"], data["text/html"], metadata["prediction"]

    return of


def counted(predicted, wrong):
    return SAYS["count"].format(predicted=predicted, asked=1, wrong=wrong)


def ask(options=OPTIONS, choose=None):
    question = predict_first(QUESTION, options)
    if choose is not None:
        question.control.value = choose
    return question


@pytest.mark.parametrize(
    "options, predicted, result, words",
    [
        (OPTIONS, "near", "long", "wrong"),
        (OPTIONS, "long", "long", "right"),
        ([1, 2], "2", 1, "wrong"),
        (None, "20", 30, "right"),
        (None, "20", 50.04, "wrong"),
    ],
)
def test_the_choice_stands_beside_the_result(output, options, predicted, result, words):
    question = ask(options, predicted)
    text, page, info = output(question.compare, result)
    result = f"{result:.3g}" if options is None else str(result)
    assert text == SAYS[words].format(predicted=predicted, result=result)
    assert page.replace("<em>", "").replace("</em>", "") == text and "<em>" in page
    assert info == {"question": question.question, "result": result}


@pytest.mark.parametrize("metadata, link", [({"cellId": "abc"}, True), ({}, False)])
def test_surprises_link_to_their_questions_where_cells_have_ids(
    output, monkeypatch, metadata, link
):
    monkeypatch.setattr(Frontend, "metadata", metadata)
    ask(choose="near").compare("long")
    words, page, info = output(surprises)
    assert words == counted(1, 1) and info == {"count": 1}
    item = "Is a &lt;b&gt; &amp; c larger?"
    assert (f'<li><a href="#cell-id=abc">{item}</a></li>' if link else f"<li>{item}</li>") in page


@pytest.mark.parametrize(
    "predicted, result, right",
    [("20", 30, True), ("20", 9.9, False), ("20", 41, False),
     ("1e3", torch.tensor([[999.0]]), True), ("-4", -2, True), ("4", -2, False), ("0", 0, True),
     ("0", 1e-9, False), ("inf", 2, False), ("nan", 2, False), ("2", float("nan"), False)],
)  # fmt: skip
def test_a_number_is_right_within_its_factor(output, predicted, result, right):
    question = ask(None, predicted)
    question.compare(result)
    assert question.surprised == (not right)


@pytest.mark.parametrize("typed", ["many", "", " ", "2,5"])
def test_what_is_no_number_is_asked_for_again_and_does_not_count(output, typed):
    question = ask(None, "1")
    question.control.value = typed
    assert SAYS["no number"] in question.status.value
    assert output(question.compare, 1)[1] == ""


@pytest.mark.parametrize("result, option", [(0.5, "it falls"), (1.0, "same"), (3, "it grows")])
def test_a_measured_result_belongs_to_the_option_with_its_range(output, result, option):
    ranges = {"it falls": (0, 1), "same": (1, 1.1), "it grows": (1.1, float("inf"))}
    question = ask(ranges, option)
    words = SAYS["right"].format(predicted=option, result=option)
    assert output(question.compare, torch.tensor(result))[0] == words


def test_a_measured_result_belongs_to_the_nearest_of_numbers(file):
    question = ask([1, 8, 64], "8")
    question.compare(torch.tensor(7.9))
    assert not question.surprised


@pytest.mark.parametrize(
    "result, shown", [(122_070.3, "nearest to 100,000"), (100_000, "100,000"), (1e3, "1,000")]
)
def test_only_a_result_that_is_no_option_is_nearest_to_one(output, result, shown):
    question = ask([1_000, 100_000], "100,000")
    text, _, info = output(question.compare, result)
    words = "wrong" if result == 1e3 else "right"
    assert text == SAYS[words].format(predicted="100,000", result=shown)
    assert ("nearest" in info) == shown.startswith("nearest")


def test_a_number_that_was_saved_without_separators_is_still_chosen(file):
    file.write_text(json.dumps({QUESTION: {"said": "100000", "surprised": None}}))
    question = ask([1_000, 100_000])
    assert question.control.value == "100,000"
    question.compare(100_000)
    assert not question.surprised


@pytest.mark.parametrize("options, result", [({"a": (0, 1)}, 2), (OPTIONS, 3), (OPTIONS, "far")])
def test_a_result_that_belongs_to_no_option_is_an_error(file, options, result):
    with pytest.raises(ValueError, match=f"result {result} belongs to no option"):
        ask(options).compare(result)


def test_a_choice_may_change_until_the_result_is_shown(output):
    question = ask(choose="near")
    question.control.value = "long"
    for result in ("near", "long"):  # what is shown first counts, even if the cell runs again
        question.compare(result)
        assert question.control.disabled and question.surprised
    again = ask()
    assert again.control.disabled and again.control.value == "long" and again.surprised


def test_asked_again_a_question_says_whether_its_choice_can_still_be_changed(file):
    noted = SAYS["noted"].format(**IN_JUPYTER)
    assert noted in ask(choose="near").status.value
    question = ask()
    assert noted in question.status.value and not question.control.disabled
    question.compare("near")
    for each in [question, ask()]:
        assert SAYS["fixed"] in each.status.value and each.control.disabled


def test_a_choice_made_after_the_result_does_not_count(output, file):
    question = ask()
    question.compare("long")
    question.control.value = "near"
    for each in [question, ask()]:  # also not when the question is asked again
        assert SAYS["late"] in each.status.value
        words = SAYS["too late"].format(predicted="near", result="long")
        assert output(each.compare, "long")[0] == words
    assert output(surprises)[0] == counted(0, 0)
    assert not file.exists()


@BOTH_KINDS
def test_a_restart_keeps_choice_and_surprise(output, monkeypatch, options):
    predicted, result = ("near", "long") if options else ("1", 9)
    ask(options, predicted)
    restart(monkeypatch)
    question = ask(options)
    assert question.control.value == predicted and not question.control.disabled
    question.compare(result)
    restart(monkeypatch)
    question = ask(options)
    assert question.control.value == predicted and question.control.disabled
    assert output(surprises)[0] == counted(1, 1)


def test_choices_of_earlier_versions_are_read(file):
    file.write_text(json.dumps({QUESTION: {"said": "near", "surprised": True}, "other": [1]}))
    question = ask()
    assert question.predicted == "near" and question.surprised and question.control.disabled
    predict_first("Another?", OPTIONS).control.value = "long"
    assert json.loads(file.read_text())["other"] == [1]  # what it does not know stays


def test_without_a_person_no_choice_is_shown_or_saved(output, file, monkeypatch):
    ask(choose="near")
    restart(monkeypatch)
    monkeypatch.setattr(Frontend, "person", False)
    question = ask()
    assert output(question.compare, "long")[:2] == ("The result is long.", "")
    predict_first("Another?", ["yes"]).control.value = "yes"
    assert set(json.loads(file.read_text())) == {question.question}


def test_in_another_folder_nothing_is_written(file, monkeypatch):
    (file.parent / "mine").mkdir()
    monkeypatch.chdir(file.parent / "mine")
    ask(choose="near")
    assert not list(file.parent.rglob("*.json*"))


ENTRIES = [None, 3, [], {}, {"said": 3}, {"said": ["near"]}, {"said": "far"}, {"said": None}]
DAMAGED = ["", "{", "[1]", "\x00\xff", *ENTRIES]


@BOTH_KINDS
@pytest.mark.parametrize("content", DAMAGED, ids=repr)
def test_a_damaged_file_is_no_obstacle(file, monkeypatch, content, options):
    key = ask(options).question
    restart(monkeypatch)
    file.write_text(content if isinstance(content, str) else json.dumps({key: content}))
    question = ask(options)
    assert not question.control.disabled and question.predicted is None
    question.control.value = "near" if options else "3"
    restart(monkeypatch)
    assert ask(options).control.value == question.predicted


def test_what_cannot_be_saved_is_said_and_counts_until_the_restart(output, monkeypatch):
    def full(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkstemp", full)
    question = ask(choose="near")
    assert "could not be saved: [Errno 28] No space left" in question.status.value
    question.compare("long")
    assert "could not be saved: [Errno 28] No space left" in question.status.value
    assert question.surprised and output(surprises)[0] == counted(1, 1)


def test_a_file_that_cannot_be_read_is_left_as_it_is(file):
    file.mkdir()
    (file / "mine").touch()
    ask(choose="near")
    assert os.listdir(file) == ["mine"]


def test_a_viewer_that_runs_nothing_shows_question_and_options_but_no_choice(file):
    data, metadata = ask(choose="near")._repr_mimebundle_()
    assert data["text/plain"] == f"Predict first: {QUESTION}\n  ○ near\n  ○ long"
    assert metadata["prediction"]["options"] == OPTIONS
