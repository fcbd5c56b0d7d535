"""Exercises ask for more than the lessons show: what a lesson defines passes few of them."""

import ast
import contextlib
import inspect
import types

import nbformat
import pytest

from course_utils import check
from course_utils.checks.exercise import EXERCISES
from stored_notebooks import WITH_EXERCISES, code, number_of

MOST = 2  # the first easy one, to begin with, and the central piece of the lesson


def defined(lesson):
    """Return the functions and classes that a lesson's cells define, by name.

    Of its code only imports, definitions and constants run.
    """
    kinds = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
    scope = {"__name__": "lesson"}
    for cell in code(lesson):
        for node in ast.parse(cell.source).body:
            if isinstance(node, kinds) or _is_constant(node):
                with contextlib.suppress(NameError):  # it needs what has not run
                    exec(compile(ast.Module([node], []), cell.id, "exec"), scope)
    return {
        name: value
        for name, value in scope.items()
        if isinstance(value, types.FunctionType | type) and value.__module__ == "lesson"
    }


def _is_constant(node):
    constants = ast.Constant | ast.Tuple | ast.List
    return isinstance(node, ast.Assign) and isinstance(node.value, constants)


def fits(answer, exercise):
    """Tell whether something can be called, or built, as the exercise's right answer can."""
    if isinstance(answer, type) != isinstance(exercise.reference, type):
        return False
    try:
        inspect.signature(answer).bind(*inspect.signature(exercise.reference).parameters)
    except TypeError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_EXERCISES, ids=lambda path: path.stem)
def test_at_most_two_exercises_of_a_lesson_pass_with_the_lessons_code_pasted(path, monkeypatch):
    if number_of(path) == "06b":
        pytest.importorskip("triton", reason="Triton exists for Linux only")
    found = defined(nbformat.read(path, as_version=4))
    assert found
    asked = [e for e in EXERCISES.values() if e.lesson == number_of(path)]
    pasted = set()
    for exercise in asked:
        monkeypatch.setattr(exercise, "mistakes", [])  # to name them takes longer than to refuse
        for name, answer in found.items():
            if fits(answer, exercise) and check(answer, exercise.name).status == "correct":
                pasted.add(f"{exercise.number} {exercise.name}: {name}")
    assert len({each.split(":")[0] for each in pasted}) <= MOST, (
        f"the lesson's own code solves {sorted(pasted)}: let one of them ask for something else"
    )
