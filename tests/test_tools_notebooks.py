import errno
import itertools
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools import notebooks
from tools.notebooks import (
    STUB,
    VEIL,
    Filled,
    hide_results,
    picture_mark,
    refresh,
    strip_solutions,
    write_exercise,
)

ANSWER = '''def double(x):
    """Return twice x."""
    ### BEGIN SOLUTION
    return x + x
    ### END SOLUTION'''


@pytest.fixture
def solution(tmp_path):
    path = tmp_path / "solution.ipynb"
    cells = [new_markdown_cell("# Double"), new_code_cell(ANSWER), new_code_cell("double(2)")]
    nbformat.write(new_notebook(cells=cells, metadata={"stray": 1}), path)
    return path


def sources(path):
    return [cell.source for cell in nbformat.read(path, as_version=4).cells]


def edit(path, cell, source):
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[cell].source = source
    nbformat.write(notebook, path)


def test_an_exercise_is_its_solution_with_a_stub_for_each_answer(solution, tmp_path):
    refresh(solution)
    write_exercise(solution, tmp_path / "exercise.ipynb")
    made = nbformat.read(tmp_path / "exercise.ipynb", as_version=4)
    solved = nbformat.read(solution, as_version=4)
    stub = f'def double(x):\n    """Return twice x."""\n    {STUB}'
    assert [cell.source for cell in made.cells] == ["# Double", stub, "double(2)"]
    assert [cell.id for cell in made.cells] == [cell.id for cell in solved.cells]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in made.cells)


def test_answers_within_methods_keep_their_indentation():
    source = "class A:\n    def f(self):\n        ### BEGIN SOLUTION\n        x = 1\n\n        "
    source += "return x\n        ### END SOLUTION\n\n    def g(self):\n        pass"
    made = strip_solutions(new_notebook(cells=[new_code_cell(source)]))
    assert made.cells[0].source == (
        f"class A:\n    def f(self):\n        {STUB}\n\n    def g(self):\n        pass"
    )


def test_a_notebook_without_an_answer_is_refused():
    with pytest.raises(ValueError, match="no ### BEGIN SOLUTION"):
        strip_solutions(new_notebook(cells=[new_code_cell("1")]))


@pytest.mark.parametrize(
    "marker, typo",
    [("### END SOLUTION", "### END SOLUTIONS"), ("### BEGIN SOLUTION", "###BEGIN SOLUTION")],
)
def test_a_marker_without_its_partner_is_refused_for_it_publishes_the_answer(marker, typo):
    cells = [new_code_cell(ANSWER), new_code_cell(ANSWER.replace(marker, typo))]
    with pytest.raises(ValueError, match="marker without its partner"):
        strip_solutions(new_notebook(cells=cells))


def test_an_untouched_exercise_is_made_anew(solution, tmp_path):
    exercise = tmp_path / "exercise.ipynb"
    write_exercise(solution, exercise)
    edit(solution, 0, "# Double it")
    write_exercise(solution, exercise)
    assert sources(exercise)[0] == "# Double it"


def shown(notebook):
    notebook.cells[2].outputs = [new_output("stream", text="4\n")]


LEARNERS = {
    "an answer": lambda notebook: notebook.cells[1].update(
        source="def double(x):\n    return 2 * x"
    ),
    "notes": lambda notebook: notebook.cells[0].update(source="my notes"),
    "an output": shown,
    "a count": lambda notebook: notebook.cells[2].update(execution_count=1),
    "a tag": lambda notebook: notebook.cells[1].metadata.update(tags=["hard"]),
    "a picture": lambda notebook: notebook.cells[0].update(attachments={"a": {"image/png": "AA"}}),
    "one more cell": lambda notebook: notebook.cells.append(new_code_cell("double(3)")),
    "a cell less": lambda notebook: notebook.cells.pop(),
    "another order": lambda notebook: notebook.cells.reverse(),
    "a note on the whole": lambda notebook: notebook.metadata.update(mine="for Friday"),
}


@pytest.mark.parametrize("change", LEARNERS.values(), ids=LEARNERS)
def test_whatever_somebody_did_to_an_exercise_is_left_alone(solution, tmp_path, change):
    exercise = tmp_path / "exercise.ipynb"
    write_exercise(solution, exercise)
    notebook = nbformat.read(exercise, as_version=4)
    change(notebook)
    nbformat.write(notebook, exercise)
    before = exercise.read_bytes()
    with pytest.raises(Filled, match="exercise.ipynb was edited"):
        write_exercise(solution, exercise)
    assert exercise.read_bytes() == before


def test_an_exercise_that_was_only_opened_and_saved_is_made_anew(solution, tmp_path):
    exercise = tmp_path / "exercise.ipynb"
    write_exercise(solution, exercise)
    generated = exercise.read_bytes()
    notebook = nbformat.read(exercise, as_version=4)
    notebook.metadata.kernelspec.display_name = "Python 3 (ipykernel)"
    notebook.metadata.language_info = {"name": "python", "version": "3.13.1"}
    nbformat.write(notebook, exercise)
    write_exercise(solution, exercise)
    assert exercise.read_bytes() == generated


def test_an_exercise_of_unknown_origin_is_left_alone(solution, tmp_path):
    exercise = tmp_path / "exercise.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("precious = 1")]), exercise)
    with pytest.raises(Filled):
        write_exercise(solution, exercise)


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course of two lessons with their solutions, and exercises made from them."""
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    for name in ["notebooks", "solutions", "exercises"]:
        (tmp_path / name).mkdir()
    for folder, stem in itertools.product(["notebooks", "solutions"], ["01_a", "02_b"]):
        notebook = new_notebook(cells=[new_code_cell(ANSWER)])
        nbformat.write(notebook, tmp_path / folder / f"{stem}.ipynb")
    assert notebooks.main(["exercises"]) == 0
    return tmp_path


def test_the_command_reports_a_filled_exercise_and_goes_on(course, capsys):
    edit(course / "exercises" / "01_a.ipynb", 0, "mine")
    edit(course / "solutions" / "02_b.ipynb", 0, ANSWER.replace("twice x", "x doubled"))
    assert notebooks.main(["exercises"]) == 1
    assert "01_a.ipynb was edited" in capsys.readouterr().err
    assert sources(course / "exercises" / "01_a.ipynb") == ["mine"]
    assert "x doubled" in sources(course / "exercises" / "02_b.ipynb")[0]


BROKEN = {
    "cut off": b'{"cells": [{"cell_type": "co',
    "empty": b"",
    "no text": b"\xff\xfe\x00",
    "no notebook": b'{"a": 1}',
    "a list": b"[]",
    "invalid": b'{"cells": [{"cell_type": "markdown", "id": "a", "metadata": {}}],'  # no source
    b' "metadata": {}, "nbformat": 4, "nbformat_minor": 5}',
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("folder", ["solutions", "exercises"])
def test_the_command_says_what_it_cannot_read_and_goes_on(course, capsys, folder, content):
    broken = course / folder / "01_a.ipynb"
    broken.write_bytes(content)
    before = (course / "exercises" / "01_a.ipynb").read_bytes()
    edit(course / "solutions" / "02_b.ipynb", 0, ANSWER.replace("twice x", "x doubled"))
    assert notebooks.main(["exercises"]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "01_a" in line]
    assert f"{folder}/01_a.ipynb cannot be read as a notebook" in line
    assert (course / "exercises" / "01_a.ipynb").read_bytes() == before
    assert "x doubled" in sources(course / "exercises" / "02_b.ipynb")[0]


def test_a_full_disk_leaves_the_notebook_that_was_there(course, capsys, monkeypatch):
    def full(notebook, path):
        path.write_text('{"cells": [')
        raise OSError(errno.ENOSPC, "No space left on device")

    before = {path: path.read_bytes() for path in course.rglob("*.*") if path.is_file()}
    edit(course / "solutions" / "01_a.ipynb", 0, ANSWER.replace("twice x", "x doubled"))
    before[course / "solutions" / "01_a.ipynb"] = (course / "solutions" / "01_a.ipynb").read_bytes()
    monkeypatch.setattr(nbformat, "write", full)
    assert notebooks.main(["exercises"]) == 1
    assert "01_a.ipynb: [Errno 28] No space left on device" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in course.rglob("*.*") if path.is_file()} == before


@pytest.mark.parametrize("command, runs", [("exercises", "write_exercise"), ("refresh", "refresh")])
def test_a_command_takes_all_notebooks_or_those_that_are_named(course, monkeypatch, command, runs):
    taken = []
    monkeypatch.setattr(notebooks, runs, lambda path, *to: taken.append(path.relative_to(course)))
    folders = ["solutions"] if command == "exercises" else ["notebooks", "solutions"]
    assert notebooks.main([command]) == 0
    assert taken == [Path(f, name) for f in folders for name in ["01_a.ipynb", "02_b.ipynb"]]
    taken.clear()
    assert notebooks.main([command, str(course / "solutions" / "02_b.ipynb")]) == 0
    assert taken == [Path("solutions", "02_b.ipynb")]


CELLS = {
    "plain": "x = 2\nx",
    "widget": "import ipywidgets\nipywidgets.IntSlider()",
    "timed": "import time\nprint(time.perf_counter_ns())",
    "drawn": "from IPython.display import display\n"
    "display({'image/png': 'AAAA', 'text/plain': 'nothing'}, raw=True)",
}


@pytest.fixture
def executed(tmp_path):
    cells = [new_code_cell(source, id=name) for name, source in CELLS.items()]
    cells[2].metadata["tags"] = ["nbval-ignore-output"]
    path = tmp_path / "lesson.ipynb"
    nbformat.write(new_notebook(cells=cells, metadata={"stray": 1}), path)
    refresh(path)
    return path


def test_refresh_stores_outputs_counts_and_nothing_that_changes(executed):
    notebook = nbformat.read(executed, as_version=4)
    assert [cell.execution_count for cell in notebook.cells] == [1, 2, 3, 4]
    assert notebook.cells[0].outputs[0].data["text/plain"] == "2"
    assert set(notebook.metadata) == {"kernelspec", "course"}
    before = executed.read_bytes()
    refresh(executed)
    assert executed.read_bytes() == before


@pytest.mark.parametrize("part", ["source", "image/png", "text/plain"])
def test_refresh_marks_a_picture_so_that_another_in_its_place_is_noticed(executed, part):
    cell = nbformat.read(executed, as_version=4).cells[3]
    (output,) = cell.outputs
    assert output.metadata.picture == picture_mark(cell, output)
    holder = cell if part == "source" else output.data
    holder[part] += "A"
    assert output.metadata.picture != picture_mark(cell, output)


def test_refresh_times_anew_when_a_cell_has_changed(executed):
    def time_shown():
        return nbformat.read(executed, as_version=4).cells[2].outputs[0].text

    before = time_shown()
    edit(executed, 0, "x = 3\nx")
    refresh(executed)
    assert time_shown() != before
    assert nbformat.read(executed, as_version=4).cells[0].outputs[0].data["text/plain"] == "3"


def test_refresh_stops_at_an_error_and_stores_nothing(executed):
    edit(executed, 0, "1 / 0")
    before = executed.read_bytes()
    with pytest.raises(Exception, match="ZeroDivisionError"):
        refresh(executed)
    assert executed.read_bytes() == before


def result(text):
    return new_code_cell("1", outputs=[new_output("stream", text=text)])


def folded(notebook):
    return [cell.outputs[1].text for cell in notebook.cells if "jupyter" in cell.metadata]


QUESTIONS = {
    "prose": new_markdown_cell("More.\n\n**Predict first:** how many?"),
    "a full stop": new_markdown_cell("**Predict first.** Leave it out."),
    "a control": new_code_cell("many = predict_first('How many?')", outputs=[new_output("stream")]),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_what_answers_a_prediction_is_folded_and_nothing_else(question):
    cells = [result("before"), question, new_code_cell("a = 1"), new_markdown_cell("A formula.")]
    cells += [new_code_cell("b = 1"), result("answer"), new_code_cell("c = 1"), result("more")]
    cells += [new_markdown_cell("Read."), result("after")]
    notebook = new_notebook(cells=cells)
    hide_results(notebook)
    assert folded(notebook) == ["answer", "more"]
    hide_results(notebook)
    assert folded(notebook) == ["answer", "more"]


def test_a_question_taken_away_shows_what_was_folded():
    notebook = new_notebook(cells=[new_markdown_cell("**Predict first:** 1?"), result("answer")])
    hide_results(notebook)
    assert notebook.cells[1].outputs[0] == VEIL
    notebook.cells[0].source = "No question."
    hide_results(notebook)
    assert notebook.cells[1] == result("answer") | {"id": notebook.cells[1].id}


def test_refresh_folds_results_and_again_changes_no_byte(tmp_path):
    path = tmp_path / "lesson.ipynb"
    cells = [new_markdown_cell("**Predict first:** how many?"), new_code_cell("print(2)")]
    nbformat.write(new_notebook(cells=cells), path)
    refresh(path)
    assert folded(nbformat.read(path, as_version=4)) == ["2\n"]
    before = path.read_bytes()
    refresh(path)
    assert path.read_bytes() == before
