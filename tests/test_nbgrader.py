"""Grading with nbgrader: TEACHING's commands, run as a teacher would run them."""

import html
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from course_utils.checks.exercise import EXERCISES
from stored_notebooks import SOLUTIONS, last_problem, number_of
from tools.mark_for_nbgrader import assignment
from tools.notebooks import STUB

ROOT = Path(__file__).parents[1]
TEACHING = (ROOT / "TEACHING.md").read_text(encoding="utf-8")
(COMMANDS,) = re.findall(r"```\n(python COURSE/tools.*?)```", TEACHING, re.S)
LESSON = SOLUTIONS[0].stem
WRONG = "def dot(a, b):\n    return (a * b).mean()"
OWN_CHECK = """

class Praise:
    status = "correct"

def check(answer):
    return Praise
"""
BODY = re.compile("### BEGIN SOLUTION.*### END SOLUTION", re.S)
# Ways to leave Python, each tried in an answer and below one.
LEAVING = ["exit()", "quit()", "__import__('sys').exit()", "__import__('os')._exit(0)"]


def read(path):
    return nbformat.read(path, as_version=4)


def exercises_of(path):
    """Return the names of a lesson's exercises that have a solution."""
    names = {name for name, each in EXERCISES.items() if each.lesson == number_of(path)}
    return names - {last_problem(read(path))}


NAMES = exercises_of(SOLUTIONS[0])


def graded(notebook):
    """Return the cells that give points, by the name of their exercise."""
    marked = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    return {cell.metadata.nbgrader.grade_id: cell for cell in marked}


def hand_in(course, student, answers):
    """Submit a student's notebook with these answers, by the id of their cell; return its path."""
    folder = shutil.copytree(course / "release" / LESSON, course / "submitted" / student / LESSON)
    notebook = read(folder / SOLUTIONS[0].name)
    for cell in notebook.cells:
        cell.source = answers.get(cell.id, cell.source)
    nbformat.write(notebook, folder / SOLUTIONS[0].name)
    return folder


def hand_in_all(course):
    """Hand in five notebooks, made from what students get."""
    right = {cell.id: cell.source for cell in read(SOLUTIONS[0]).cells if "SOLUTION" in cell.source}
    (dot,) = (id for id, source in right.items() if source.startswith("def dot("))
    leaving = dict(zip(list(right)[4:8], LEAVING, strict=True))
    inside = {id: BODY.sub(way, right[id]) for id, way in leaving.items()}
    below = {id: f"{right[id]}\n{way}" for id, way in leaving.items()}
    hand_in(course, "right", right)
    hand_in(course, "empty", {})
    hand_in(course, "wrong", right | {dot: WRONG} | inside)
    hand_in(course, "leaving", right | below)
    released = graded(read(course / "release" / LESSON / SOLUTIONS[0].name))
    cheat = hand_in(course, "cheating", {cell.id: "pass" for cell in released.values()})
    (cheat / "course_utils" / "__init__.py").write_text("progress = print" + OWN_CHECK)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A teacher's folder after TEACHING's commands, with five students."""
    folder = tmp_path_factory.mktemp("course")
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
            hand_in_all(folder)
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


def failures(course, student):
    """Return what the graded cells failed with, by exercise."""
    notebook = read(course / "autograded" / student / LESSON / SOLUTIONS[0].name)
    return {
        name: output.evalue
        for name, cell in graded(notebook).items()
        for output in cell.outputs
        if output.output_type == "error"
    }


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_every_exercise_of_a_lesson_but_the_last_problem_gives_one_point(path):
    cells = graded(assignment(read(path)))
    assert set(cells) == exercises_of(path)
    assert {cell.metadata.nbgrader.points for cell in cells.values()} <= {1}


@pytest.mark.slow
def test_students_get_the_exercises_without_the_answers(course):
    sources = [cell.source for cell in read(course / "release" / LESSON / SOLUTIONS[0].name).cells]
    assert not any("SOLUTION" in source for source in sources)
    assert sum("raise NotImplementedError()" in source for source in sources) == len(NAMES)
    assert sum(STUB in source for source in sources) == 1  # the last problem


@pytest.mark.slow
@pytest.mark.parametrize(
    "student, wrong",
    [
        ("right", set()),
        ("empty", NAMES),
        ("cheating", NAMES),
        ("leaving", set()),
        ("wrong", {"dot", "nearest_key", "disagreement", "soft_lookup", "project_qkv"}),
    ],
)
def test_each_wrong_answer_costs_its_own_point_and_no_other(course, student, wrong):
    assert points(course, student) == {name: int(name not in wrong) for name in NAMES}


@pytest.mark.slow
def test_students_read_why_they_lost_a_point(course):
    assert all("not attempted yet" in text for text in failures(course, "empty").values())
    hint = failures(course, "wrong")["dot"]
    assert "1.1 dot" in hint
    feedback = (course / "feedback" / "wrong" / LESSON / f"{LESSON}.html").read_text()
    assert hint in html.unescape(re.sub(r"<[^>]+>", "", feedback))
