"""What README says of nbgrader: its script and its commands, run as a teacher would run them."""

import html
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat
import pytest

from course_utils import check
from course_utils.checks.exercise import EXERCISES
from stored_notebooks import last_problem, number_of
from tools.notebooks import STUB, strip_solutions

ROOT = Path(__file__).parents[1]
(PART,) = re.findall(r"^- nbgrader .*?(?=^- )", (ROOT / "README.md").read_text(), re.M | re.S)
SCRIPT, COMMANDS = (
    textwrap.dedent(block) for block in re.findall(r"```(?:python)?\n(.*?)  ```", PART, re.S)
)
SOLUTIONS = ROOT / "solutions" / "01_solutions_dot_product_similarity.ipynb"
LESSON = SOLUTIONS.stem


def read(path):
    return nbformat.read(path, as_version=4)


def exercises_of(path):
    """Return the names of a lesson's exercises that have a solution."""
    asked = {name for name, each in EXERCISES.items() if each.lesson == number_of(path)}
    return asked - {last_problem(read(path))}


NAMES = exercises_of(SOLUTIONS)
BODY = re.compile("### BEGIN SOLUTION.*### END SOLUTION", re.S)
WRONG = "def dot(a, b):\n    return (a * b).mean()"
# Ways to leave Python, each tried in an answer and below one.
LEAVING = ["exit()", "quit()", "__import__('sys').exit()", "__import__('os')._exit(0)"]
OWN_CHECK = """

class Praise:
    status = "correct"

def check(answer):
    return Praise
"""


def graded(notebook):
    """Return the cells that give points, by the name of their exercise."""
    marked = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    return {cell.metadata.nbgrader.grade_id: cell for cell in marked}


def submit(course):
    """Hand in five notebooks, made from what students get."""
    answers = {cell.id: cell.source for cell in read(SOLUTIONS).cells if "SOLUTION" in cell.source}
    (dot,) = (id for id, source in answers.items() if source.startswith("def dot("))
    write_into(hand_in(course, "right"), answers)
    called_by_none = list(answers.items())[4:8]
    leaving = list(zip(called_by_none, LEAVING, strict=True))
    inside = {id: BODY.sub(way, source) for (id, source), way in leaving}
    write_into(hand_in(course, "wrong"), answers | {dot: WRONG} | inside)
    below = {id: f"{source}\n{way}" for (id, source), way in leaving}
    write_into(hand_in(course, "leaving-below"), answers | below)
    hand_in(course, "empty")
    cheat(hand_in(course, "cheating"))


def hand_in(course, student):
    """Put what students get where nbgrader looks for the student's; return its notebook's path."""
    folder = shutil.copytree(course / "release" / LESSON, course / "submitted" / student / LESSON)
    return folder / SOLUTIONS.name


def write_into(path, answers):
    """Write answers, by the id of their cell, into the notebook."""
    notebook = read(path)
    for cell in notebook.cells:
        cell.source = answers.get(cell.id, cell.source)
    nbformat.write(notebook, path)


def cheat(path):
    """Praise empty answers in three ways: a check and a course of one's own, no test."""
    notebook = read(path)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    first.source += OWN_CHECK
    for cell in graded(notebook).values():
        cell.source = "pass"
    nbformat.write(notebook, path)
    (path.parent / "course_utils" / "__init__.py").write_text("progress = print" + OWN_CHECK)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A teacher's folder after README's commands, with five students."""
    folder = tmp_path_factory.mktemp("course")
    (folder / "mark.py").write_text(SCRIPT)
    # By default a cell has 30 seconds and its messages 4, too little on a busy machine.
    (folder / "nbgrader_config.py").write_text(
        "c.Execute.timeout = c.Execute.startup_timeout = c.Execute.iopub_timeout = 600"
    )
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(folder / "no-config-of-the-users-own"),
        # nbgrader runs alembic, which stands beside it, as in an activated environment
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    for name in ["COURSE_STRICT", "PYTHONPATH"]:  # students have neither: the copy must do
        environment.pop(name, None)
    for line in COMMANDS.splitlines():
        words = [word.replace("COURSE", str(ROOT)) for word in shlex.split(line, comments=True)]
        if words[:2] == ["nbgrader", "autograde"]:
            submit(folder)
        program = [sys.executable] if words[0] == "python" else [sys.executable, "-m", words[0]]
        run = subprocess.run(
            program + words[1:], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stdout + run.stderr
    return folder


def points(course, student):
    from nbgrader.api import Gradebook  # slow to import, in each process that collects tests

    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        (notebook,) = gradebook.find_submission(LESSON, student).notebooks
        assert not notebook.needs_manual_grade
        return {grade.name: grade.score for grade in notebook.grades}


def complaints(course, student):
    """Return what the graded cells failed with, by exercise."""
    notebook = read(course / "autograded" / student / LESSON / SOLUTIONS.name)
    return {
        name: output.evalue
        for name, cell in graded(notebook).items()
        for output in cell.outputs
        if output.output_type == "error"
    }


@pytest.mark.parametrize("path", sorted((ROOT / "solutions").glob("*.ipynb")), ids=lambda p: p.stem)
def test_every_exercise_of_a_lesson_but_the_last_problem_gives_one_point(
    path, tmp_path, monkeypatch
):
    (tmp_path / "mark.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["mark.py", str(path)])
    runpy.run_path("mark.py")
    cells = graded(read(tmp_path / f"source/{path.stem}/{path.name}"))
    assert set(cells) == exercises_of(path)
    assert {cell.metadata.nbgrader.points for cell in cells.values()} == {1}


def test_students_get_the_exercises_without_the_answers(course):
    released = read(course / "release" / LESSON / SOLUTIONS.name)
    stub = re.compile(r"# YOUR CODE HERE\n\s*raise NotImplementedError\(\)")
    exercises = strip_solutions(read(SOLUTIONS))
    assert released.cells.pop(0).source == "from course_utils.checks.sandbox import stay\n\nstay()"
    for cell, exercise in zip(released.cells, exercises.cells, strict=True):
        if cell.metadata.get("nbgrader", {}).get("grade"):
            assert exercise.source in cell.source
        else:
            assert stub.sub(STUB, cell.source) == exercise.source


def test_right_answers_get_all_points(course):
    assert points(course, "right") == dict.fromkeys(NAMES, 1)
    assert complaints(course, "right") == {}


def test_empty_answers_get_no_points_and_are_called_not_attempted(course):
    assert points(course, "empty") == dict.fromkeys(NAMES, 0)
    told = complaints(course, "empty")
    assert set(told) == NAMES
    assert all(text.endswith(f" {name}: not attempted yet") for name, text in told.items())


def test_answers_that_are_wrong_or_leave_python_lose_their_points_alone(course):
    told = complaints(course, "wrong")
    assert set(told) == {"dot", "nearest_key", "disagreement", "soft_lookup", "project_qkv"}
    assert points(course, "wrong") == {name: int(name not in told) for name in NAMES}
    answer = {}
    exec(WRONG, answer)
    hint = check(answer["dot"]).message
    assert told.pop("dot") == hint
    assert all("it leaves Python (exit" in text for text in told.values())
    feedback = (course / "feedback" / "wrong" / LESSON / f"{LESSON}.html").read_text()
    assert hint in html.unescape(re.sub(r"<[^>]+>", "", feedback))


def test_a_check_or_a_course_of_ones_own_gets_no_points(course):
    assert points(course, "cheating") == dict.fromkeys(NAMES, 0)


def test_leaving_python_below_an_answer_costs_no_points_and_is_told(course):
    assert points(course, "leaving-below") == dict.fromkeys(NAMES, 1)
    notebook = read(course / "autograded" / "leaving-below" / LESSON / SOLUTIONS.name)
    told = [
        output.evalue or output.ename
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output.output_type == "error"
    ]
    sentence = "it leaves Python (exit, quit, os._exit ...); end a function with return"
    assert told == [sentence, sentence, "SystemExit", sentence]
