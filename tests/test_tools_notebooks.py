"""Tools for notebooks: no answer is published, no work lost, nothing stored anew without reason."""

import errno

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools import notebooks
from tools.notebooks import STUB, VEIL, hide_results, refresh, strip_solutions

ANSWER = '''def double(x):
    """Return twice x."""
    ### BEGIN SOLUTION
    return x + x
    ### END SOLUTION'''


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course of two lessons with their solutions, and exercises made from them."""
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    for folder in ["notebooks", "solutions", "exercises"]:
        (tmp_path / folder).mkdir()
        if folder != "exercises":
            for stem in ["01_a", "02_b"]:
                cells = [new_markdown_cell("# Double"), new_code_cell(ANSWER), new_code_cell("1")]
                nbformat.write(new_notebook(cells=cells), tmp_path / folder / f"{stem}.ipynb")
    assert notebooks.main(["exercises"]) == 0
    return tmp_path


def edit(path, change):
    """Change a notebook as Jupyter would: by a function, or a cell's source by (index, source)."""
    notebook = nbformat.read(path, as_version=4)
    if callable(change):
        change(notebook)
    else:
        notebook.cells[change[0]].source = change[1]
    nbformat.write(notebook, path)


def sources(path):
    return [cell.source for cell in nbformat.read(path, as_version=4).cells]


def test_an_exercise_is_its_solution_with_a_stub_for_each_answer(course):
    made, solved = (
        nbformat.read(course / folder / "01_a.ipynb", as_version=4)
        for folder in ["exercises", "solutions"]
    )
    stub = f'def double(x):\n    """Return twice x."""\n    {STUB}'
    assert [cell.source for cell in made.cells] == ["# Double", stub, "1"]
    assert [cell.id for cell in made.cells] == [cell.id for cell in solved.cells]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in made.cells)


def test_an_answer_within_a_method_keeps_its_indentation():
    source = "class A:\n    def f(self):\n        ### BEGIN SOLUTION\n        x = 1\n\n        "
    source += "return x\n        ### END SOLUTION\n\n    def g(self):\n        pass"
    made = strip_solutions(new_notebook(cells=[new_code_cell(source)]))
    assert made.cells[0].source == (
        f"class A:\n    def f(self):\n        {STUB}\n\n    def g(self):\n        pass"
    )


@pytest.mark.parametrize(
    "sources, complaint",
    [
        (["1"], "no exercise yet"),
        ([ANSWER, ANSWER.replace("### END SOLUTION", "### END SOLUTIONS")], "without its partner"),
        ([ANSWER, ANSWER.replace("### BEGIN", "###BEGIN")], "without its partner"),
    ],
    ids=["none", "END", "BEGIN"],
)
def test_a_slip_in_the_markers_publishes_no_answer(sources, complaint):
    with pytest.raises(ValueError, match=complaint):
        strip_solutions(new_notebook(cells=[new_code_cell(source) for source in sources]))


CELL_OUTPUT = new_output("stream", text="4\n")
LEARNERS = {
    "an answer": (1, "def double(x):\n    return 2 * x"),
    "notes": (0, "my notes"),
    "an output": lambda notebook: notebook.cells[2].update(outputs=[CELL_OUTPUT]),
    "a count": lambda notebook: notebook.cells[2].update(execution_count=1),
    "a tag": lambda notebook: notebook.cells[1].metadata.update(tags=["hard"]),
    "a picture": lambda notebook: notebook.cells[0].update(attachments={"a": {"image/png": "AA"}}),
    "one more cell": lambda notebook: notebook.cells.append(new_code_cell("double(3)")),
    "a cell less": lambda notebook: notebook.cells.pop(),
    "another order": lambda notebook: notebook.cells.reverse(),
    "a note on the whole": lambda notebook: notebook.metadata.update(mine="for Friday"),
    "another notebook": lambda notebook: notebook.metadata.pop("course"),
}


@pytest.mark.parametrize("change", LEARNERS.values(), ids=LEARNERS)
def test_whatever_somebody_did_to_an_exercise_is_left_alone(course, capsys, change):
    exercise = course / "exercises" / "01_a.ipynb"
    edit(exercise, change)
    before = exercise.read_bytes()
    for stem in ["01_a", "02_b"]:
        edit(course / "solutions" / f"{stem}.ipynb", (0, "# Double it"))
    assert notebooks.main(["exercises"]) == 1
    assert "01_a.ipynb was edited" in capsys.readouterr().err
    assert exercise.read_bytes() == before
    assert sources(course / "exercises" / "02_b.ipynb")[0] == "# Double it"  # the others are made


def test_an_exercise_that_was_only_opened_and_saved_is_made_anew(course):
    def save(notebook):
        notebook.metadata.kernelspec.display_name = "Python 3 (ipykernel)"
        notebook.metadata.language_info = {"name": "python", "version": "3.13.1"}

    exercise = course / "exercises" / "01_a.ipynb"
    generated = exercise.read_bytes()
    edit(exercise, save)
    assert notebooks.main(["exercises"]) == 0
    assert exercise.read_bytes() == generated


BROKEN = [b"", b"{", b"[]", b'{"cells": 3}', b"\xff\x00", b'{"cells": [{"cell_type": "x"}]}']


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_exercise_is_named_and_the_others_are_made(course, capsys, content):
    exercise = course / "exercises" / "01_a.ipynb"
    exercise.write_bytes(content)
    edit(course / "solutions" / "02_b.ipynb", (0, "# Double it"))
    assert notebooks.main(["exercises"]) == 1
    assert "exercises/01_a.ipynb cannot be read as a notebook" in capsys.readouterr().err
    assert exercise.read_bytes() == content
    assert sources(course / "exercises" / "02_b.ipynb")[0] == "# Double it"


NO_ANSWER = nbformat.writes(new_notebook(cells=[new_code_cell("1")])).encode()


@pytest.mark.parametrize("content", [*BROKEN, pytest.param(NO_ANSWER, id="no answer")])
def test_solutions_that_give_no_exercise_are_named_before_any_is_written(course, capsys, content):
    edit(course / "solutions" / "01_a.ipynb", (0, "# Double it"))
    (course / "solutions" / "02_b.ipynb").write_bytes(content)
    before = {path: path.read_bytes() for path in course.glob("exercises/*")}
    assert notebooks.main(["exercises"]) == 1
    told = "tools.new exercise 02 NAME" if content == NO_ANSWER else "solutions/02_b.ipynb cannot"
    assert told in capsys.readouterr().err
    assert {path: path.read_bytes() for path in course.glob("exercises/*")} == before


def test_a_full_disk_leaves_the_notebook_that_was_there(course, capsys, monkeypatch):
    def full(notebook, path):
        path.write_text('{"cells": [')
        raise OSError(errno.ENOSPC, "No space left on device")

    edit(course / "solutions" / "01_a.ipynb", (0, "# Double it"))
    before = {path: path.read_bytes() for path in course.rglob("*.*") if path.is_file()}
    monkeypatch.setattr(nbformat, "write", full)
    assert notebooks.main(["exercises"]) == 1
    assert "01_a.ipynb: [Errno 28] No space left on device" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in course.rglob("*.*") if path.is_file()} == before


# A notebook whose timed cell and whose picture differ in every run, though the code is the same
CELLS = [
    new_code_cell("x = 2\nx"),
    new_markdown_cell("A sentence."),
    new_code_cell("import ipywidgets\nipywidgets.IntSlider()"),
    new_code_cell(
        "import time\nprint(time.perf_counter_ns())", metadata={"tags": ["nbval-ignore-output"]}
    ),
    new_code_cell(
        "import base64\npng = base64.b64encode(str(time.perf_counter_ns()).encode()).decode()\n"
        "shown = {'image/png': png, 'text/plain': f'a picture of {x}'}\n"
        "from IPython.display import display\ndisplay(shown, raw=True)"
    ),
]


@pytest.fixture
def executed(tmp_path):
    path = tmp_path / "lesson.ipynb"
    nbformat.write(new_notebook(cells=CELLS, metadata={"stray": 1}), path)
    refresh(path)
    return path


def outputs(path):
    cells = nbformat.read(path, as_version=4).cells
    return cells[3].outputs[0].text, cells[4].outputs[0].data["image/png"]


@pytest.mark.slow
def test_refresh_stores_only_what_changed_for_a_reason(executed, monkeypatch):
    first, (time, picture) = executed.read_bytes(), outputs(executed)
    notebook = nbformat.read(executed, as_version=4)
    assert [cell.get("execution_count") for cell in notebook.cells] == [1, None, 2, 3, 4]
    assert set(notebook.metadata) == {"kernelspec", "course"}
    refresh(executed)
    assert executed.read_bytes() == first

    edit(executed, (1, "Another sentence."))
    edited = executed.read_bytes()
    refresh(executed)
    assert executed.read_bytes() == edited

    edit(executed, (2, "ipywidgets = None"))  # the picture shows the same
    refresh(executed)
    assert outputs(executed)[0] != time and outputs(executed)[1] == picture

    edit(executed, (0, "x = 3\nx"))  # and now something else
    refresh(executed)
    assert outputs(executed)[1] != picture
    picture = outputs(executed)[1]
    refresh(executed, redraw=True)
    assert outputs(executed)[1] != picture
    picture = outputs(executed)[1]
    monkeypatch.setattr("tools.notebooks.SEQUENTIAL", "viridis")
    refresh(executed)
    assert outputs(executed)[1] != picture

    edit(executed, (0, "1 / 0"))
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
    for _ in range(2):
        hide_results(notebook)
        assert folded(notebook) == ["answer", "more"]
    del notebook.cells[1]
    hide_results(notebook)
    assert not folded(notebook) and VEIL not in notebook.cells[4].outputs
