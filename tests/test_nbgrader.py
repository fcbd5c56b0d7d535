"""A class on nbgrader: TEACHING's commands, run as a teacher would run them."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from course_utils import grade
from course_utils.checks.exercise import EXERCISES
from stored_notebooks import SOLUTIONS, last_problem, number_of
from tools.mark_for_nbgrader import assignment
from tools.notebooks import STUB

ROOT = Path(__file__).parents[1]
TEACHING = (ROOT / "TEACHING.md").read_text(encoding="utf-8")
(COMMANDS,) = re.findall(r"```\n(python COURSE/tools.*?)```", TEACHING, re.S)
LESSON = SOLUTIONS[0].stem


def read(path):
    return nbformat.read(path, as_version=4)


def exercises_of(path):
    """Return the names of a lesson's exercises that have a solution."""
    names = {name for name, each in EXERCISES.items() if each.lesson == number_of(path)}
    return names - {last_problem(read(path))}


NAMES = exercises_of(SOLUTIONS[0])


def hand_in(course, student, answers):
    """Submit a student's notebook with these answers, by the id of their cell."""
    folder = shutil.copytree(course / "release" / LESSON, course / "submitted" / student / LESSON)
    notebook = read(folder / SOLUTIONS[0].name)
    for cell in notebook.cells:
        cell.source = answers.get(cell.id, cell.source)
    nbformat.write(notebook, folder / SOLUTIONS[0].name)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A teacher's folder after TEACHING's commands, with three students."""
    folder = tmp_path_factory.mktemp("course")
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(folder / "no-config-of-the-users-own"),
        # nbgrader runs alembic, which stands beside it, as in an activated environment
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    environment.pop("PYTHONPATH", None)
    right = {cell.id: cell.source for cell in read(SOLUTIONS[0]).cells if "SOLUTION" in cell.source}
    (dot,) = (id for id, source in right.items() if source.startswith("def dot("))
    for line in COMMANDS.splitlines():
        words = [word.replace("COURSE", str(ROOT)) for word in shlex.split(line, comments=True)]
        if "--gradebook" in words:
            hand_in(folder, "right", right)
            hand_in(folder, "empty", {})
            hand_in(folder, "wrong", right | {dot: "def dot(a, b):\n    return (a * b).mean()"})
        if "=" in words[0]:
            environment.update([words.pop(0).split("=")])
        program = [sys.executable] if words[0] == "python" else [sys.executable, "-m", words[0]]
        run = subprocess.run(
            program + words[1:], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_every_exercise_of_a_lesson_but_the_last_problem_gives_one_point(path):
    cells = [cell.metadata.get("nbgrader", {}) for cell in assignment(read(path)).cells]
    graded = [cell for cell in cells if cell.get("grade")]
    assert {cell.grade_id for cell in graded} == exercises_of(path)
    assert {cell.points for cell in graded} <= {1}


@pytest.mark.slow
def test_students_get_the_exercises_without_the_answers(course):
    sources = [cell.source for cell in read(course / "release" / LESSON / SOLUTIONS[0].name).cells]
    assert not any("SOLUTION" in source for source in sources)
    assert sum("raise NotImplementedError()" in source for source in sources) == len(NAMES)
    assert sum(STUB in source for source in sources) == 1  # the last problem


@pytest.mark.slow
@pytest.mark.parametrize("student, wrong", [("right", set()), ("empty", NAMES), ("wrong", {"dot"})])
def test_the_gradebook_gets_the_points(course, student, wrong):
    from nbgrader.api import Gradebook  # slow to import, in each process that collects tests

    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        (notebook,) = gradebook.find_submission(LESSON, student).notebooks
        assert not notebook.needs_manual_grade
        found = {grade.name: grade.score for grade in notebook.grades}
    assert found == {name: int(name not in wrong) for name in NAMES}


@pytest.mark.slow
def test_the_gradebook_asks_the_teacher_to_read_what_could_not_be_checked(course, tmp_path):
    from nbgrader.api import Gradebook

    copy = Path(shutil.copy(course / "gradebook.db", tmp_path))
    paths = [course / "submitted" / "right" / folder / "1.ipynb" for folder in (LESSON, "other")]
    verdicts = {name: ("correct", "") for name in NAMES} | {"dot": ("not checked", "")}
    result = grade.Result(paths, verdicts, [])
    with Gradebook(f"sqlite:///{copy}") as gradebook:  # TEACHING: You can change the points
        for each in gradebook.find_submission(LESSON, "right").notebooks[0].grades:
            each.cell.max_score = 3
        gradebook.db.commit()
    assert grade.save_points(copy, {"right": result}) == {"other"}  # an unknown assignment
    with Gradebook(f"sqlite:///{copy}") as gradebook:
        (notebook,) = gradebook.find_submission(LESSON, "right").notebooks
        to_read = {each.name for each in notebook.grades if each.needs_manual_grade}
        points = {each.name: each.auto_score for each in notebook.grades}
    assert to_read == {"dot"} and points == {name: 3 * (name != "dot") for name in NAMES}
