import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_utils import authoring
from course_utils.authoring import STUB, Filled, refresh, strip_solutions, write_exercise

ANSWER = '''def double(x):
    """Return twice x."""
    ### BEGIN SOLUTION
    return x + x
    ### END SOLUTION'''


@pytest.fixture
def solution(tmp_path):
    path = tmp_path / "solution.ipynb"
    cells = [new_markdown_cell("# Double"), new_code_cell(ANSWER), new_code_cell("double(2)")]
    nbformat.write(new_notebook(cells=cells), path)
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


@pytest.mark.parametrize("cell, source", [(1, "def double(x):\n    return 2 * x"), (0, "my notes")])
def test_whatever_somebody_wrote_into_an_exercise_is_left_alone(solution, tmp_path, cell, source):
    exercise = tmp_path / "exercise.ipynb"
    write_exercise(solution, exercise)
    edit(exercise, cell, source)
    before = exercise.read_bytes()
    with pytest.raises(Filled, match="exercise.ipynb was edited"):
        write_exercise(solution, exercise)
    assert exercise.read_bytes() == before


def test_an_exercise_of_unknown_origin_is_left_alone(solution, tmp_path):
    exercise = tmp_path / "exercise.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("precious = 1")]), exercise)
    with pytest.raises(Filled):
        write_exercise(solution, exercise)


def test_the_command_reports_a_filled_exercise_and_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(authoring, "ROOT", tmp_path)
    for name in ["solutions", "exercises"]:
        (tmp_path / name).mkdir()
    for stem in ["01_a", "02_b"]:
        notebook = new_notebook(cells=[new_code_cell(ANSWER)])
        nbformat.write(notebook, tmp_path / "solutions" / f"{stem}.ipynb")
    assert authoring.main(["exercises"]) == 0
    edit(tmp_path / "exercises" / "01_a.ipynb", 0, "mine")
    edit(tmp_path / "solutions" / "02_b.ipynb", 0, ANSWER.replace("twice x", "x doubled"))
    assert authoring.main(["exercises"]) == 1
    assert "01_a.ipynb was edited" in capsys.readouterr().err
    assert sources(tmp_path / "exercises" / "01_a.ipynb") == ["mine"]
    assert "x doubled" in sources(tmp_path / "exercises" / "02_b.ipynb")[0]


CELLS = {
    "plain": "x = 2\nx",
    "widget": "import ipywidgets\nipywidgets.IntSlider()",
    "timed": "import time\nprint(time.perf_counter_ns())",
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
    assert [cell.execution_count for cell in notebook.cells] == [1, 2, 3]
    assert notebook.cells[0].outputs[0].data["text/plain"] == "2"
    assert set(notebook.metadata) == {"kernelspec", "course"}
    before = executed.read_bytes()
    refresh(executed)
    assert executed.read_bytes() == before


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
