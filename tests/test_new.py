"""A new exercise and a new lesson, begun by `tools.new` in a copy of the course.

They turn nothing red but what tells their author what is left to do. So does a sentence that is
changed in a lesson.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from unittest.mock import Mock

import nbformat
import pytest

from stored_notebooks import ROOT
from tools import new

# What is red until a lesson or an exercise is finished, and what it names
LEFT_TO_DO = {
    "test_notebooks.py::test_nothing_that_a_template_leaves_to_its_author_is_unwritten": [
        "README.md", "notebooks/00_start", "notebooks/98b_", "solutions/98b_", "solutions/04_",
        "lesson_04/dilated_mask.py", "lesson_98b/look_back.py",
    ],
    "test_notebooks.py::test_a_lesson_has_enough_exercises": ["tools.new exercise 98b NAME"],
    "test_prose.py::test_all_exercises_of_a_lesson_take_as_long_as_their_notebook_says": [
        "[solutions/04_", "[solutions/98b_",
    ],
    "test_prose.py::test_the_map_of_lesson_00_draws_each_lesson": ["draw lessons ['98b']"],
}  # fmt: skip
LEFT_OUT = shutil.ignore_patterns(".*", "build", "__pycache__")


@pytest.mark.slow
def test_what_is_begun_by_the_tool_passes_the_tests_of_notebooks(tmp_path):
    course = tmp_path / "course"
    shutil.copytree(ROOT, course, ignore=LEFT_OUT)

    def run(*command, code=0):
        run = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=course, env=os.environ | {"PYTHONPATH": str(course), "PYTEST_ADDOPTS": ""},
            capture_output=True, text=True,
        )  # fmt: skip
        assert run.returncode == code, run.stdout + run.stderr
        return run.stdout

    steps = run("tools.new", "exercise", "04", "dilated_mask")
    assert "checks/lesson_04/dilated_mask.py" in steps and "make check K=dilated_mask" in steps
    run("tools.new", "lesson", "98b", "Long texts: how far back can a query look?")
    run("tools.new", "exercise", "98b", "look_back")
    lesson = next(course.glob("notebooks/03_*.ipynb"))
    notebook = nbformat.read(lesson, as_version=4)
    notebook.cells[0].source += "\n\nOne more sentence."
    nbformat.write(notebook, lesson)

    changed = [*course.glob("*/98b_*.ipynb"), *course.glob("solutions/04_*")]
    run("tools.notebooks", "refresh", *map(str, changed))
    run("tools.notebooks", "exercises")
    run("ruff", "check", "course_utils", "notebooks", "solutions")
    run("ruff", "format", "--check", "course_utils", "notebooks", "solutions")
    left = [f"tests/{name}" for name in LEFT_TO_DO]
    files = ["tests/test_notebooks.py", "tests/test_prose.py"]
    told = run("pytest", "-q", "-k", "not fork", *files, code=1)
    red = re.findall(r"^(?:FAILED|ERROR) ([^\s[]+)", told, re.M)
    assert set(red) == set(left), told
    *_, before = sorted(path.name for path in ROOT.glob("notebooks/*.ipynb"))
    for words in [*left, before, *sum(LEFT_TO_DO.values(), [])]:
        assert words in told, f"no red test names {words}"


class Begun(Exception):
    """Nothing was wrong before the first file was written."""


COMMAND = re.compile(r"^(?:Run `\.venv/bin/)?python -m tools\.new (.*?)(?:`|$)", re.M)
DOCUMENTED = COMMAND.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8") + new.__doc__)


@pytest.mark.parametrize("command", DOCUMENTED)
def test_a_command_that_is_documented_begins(monkeypatch, command):
    kind, lesson, name = shlex.split(command)
    if kind == "lesson" and re.fullmatch(r"\d\d", lesson):
        lesson = "98"  # so that the documents need no change when there is a lesson 14
    monkeypatch.setattr(new, "write_check", Mock(side_effect=Begun))
    with pytest.raises(Begun):
        new.main([kind, lesson, name])


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["exercise", "04", "causal_mask"], "choose another name"),
        (["exercise", "4", "dilated_mask"], "write the number as its file has"),
        (["lesson", "03", "A question?"], "a number of two digits above"),
        (["lesson", "98", "No question"], "a question as title"),
    ],
)
def test_a_slip_is_said_in_a_sentence_and_changes_nothing(capsys, arguments, complaint):
    assert new.main(arguments) == 1
    assert complaint in capsys.readouterr().err
