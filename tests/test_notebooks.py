"""All notebooks: stored whole, in step with each other and with the code. nbval runs them."""

import ast
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from course_utils import attention, tiled
from course_utils.authoring import KERNEL, STUB, fingerprint, strip_solutions, write

ROOT = Path(__file__).parents[1]
LESSONS, SOLUTIONS, EXERCISES = (
    sorted((ROOT / folder).glob("*.ipynb")) for folder in ("notebooks", "solutions", "exercises")
)


def read(path):
    return nbformat.read(path, as_version=4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def prose(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def shown(notebook):
    """Return all text that the notebook's outputs show."""
    outputs = [output for cell in code(notebook) for output in cell.outputs]
    plain = [output.get("data", {}).get("text/plain", "") for output in outputs]
    return "\n".join(plain + [output.get("text", "") for output in outputs])


@pytest.fixture(params=LESSONS + SOLUTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def executed(request):
    return read(request.param)


@pytest.fixture(params=LESSONS, ids=lambda path: path.stem)
def lesson(request):
    return read(request.param)


# Without these guards nbval could pass and compare nothing.


def test_cells_were_run_once_in_order(executed):
    counts = [cell.execution_count for cell in code(executed)]
    assert counts == list(range(1, len(counts) + 1))


def test_outputs_are_stored_and_none_is_an_error(executed):
    outputs = [output for cell in code(executed) for output in cell.outputs]
    assert len(outputs) >= len(code(executed)) / 3
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]


def test_most_outputs_are_compared(executed):
    ignored = [c for c in code(executed) if "nbval-ignore-output" in c.metadata.get("tags", [])]
    assert len(ignored) <= len(code(executed)) / 5
    tags = {tag for cell in executed.cells for tag in cell.metadata.get("tags", [])}
    assert tags <= {"nbval-ignore-output"}


def test_outputs_belong_to_the_stored_cells(executed):
    assert executed.metadata.course.executed == fingerprint(executed)


@pytest.mark.parametrize(
    "path", LESSONS + SOLUTIONS + EXERCISES, ids=lambda p: f"{p.parent.name}/{p.stem}"
)
def test_nothing_of_one_machine_is_stored(path):
    notebook, text = read(path), path.read_text()
    assert set(notebook.metadata) == {"kernelspec", "course"}
    assert notebook.metadata.kernelspec == KERNEL
    assert len(text) < 1_000_000
    assert not re.search(r"/(?:home|root|tmp|Users|work)/", text)


def test_every_picture_says_what_it_shows(executed):
    for cell in code(executed):
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                description = output.data["text/plain"]
                assert not description.startswith("<"), cell.source
                assert re.search(r"\d", description), description


# The shape of a lesson


def test_a_lesson_asks_a_question_and_has_the_parts_a_lesson_has(lesson):
    title = lesson.cells[0].source.splitlines()[0]
    assert re.fullmatch(r"# \d\d · .+\?", title)
    text = "\n".join(cell.source for cell in prose(lesson))
    for part in ["**You will be able to**", "**Time:**", "**Needs:**", "**Predict first",
                 "## Claims, checked", "## What you", "**Next question"]:  # fmt: skip
        assert part in text, part
    assert len(re.findall(r"\*\*(?:False|Holds|True)\b", text)) >= 2  # verdicts
    assert "_explorer(" in "\n".join(cell.source for cell in code(lesson))


def test_cells_are_short(lesson):
    for cell in code(lesson):
        assert len(cell.source.splitlines()) <= 15, cell.source
    for cell in prose(lesson):
        assert len(cell.source.split()) <= 130, cell.source


def test_numbers_in_the_prose_stand_in_an_output(lesson):
    known = shown(lesson) + "\n".join(cell.source for cell in code(lesson))
    for cell in prose(lesson):
        skipped = r"\$[^$]*\$|\]\([^)]*\)|exercises? [\d.]+"  # formulas, link targets
        text = re.sub(skipped, "", cell.source, flags=re.I | re.S)
        for number in re.findall(r"(?<![\w.])\d+[.,]\d+(?![\w.])", text):
            assert number in known, f"{number} in: {cell.source}"


@pytest.mark.parametrize("path", LESSONS + SOLUTIONS + EXERCISES + [ROOT / "README.md"], ids=str)
def test_links_lead_somewhere(path):
    text = (
        path.read_text() if path.suffix == ".md" else "\n".join(c.source for c in prose(read(path)))
    )
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (path.parent / target).exists(), target


# Solutions and exercises


def test_every_lesson_after_the_first_has_exercises_and_solutions():
    stems = [path.stem for path in LESSONS[1:]]
    assert stems == [path.stem for path in SOLUTIONS] == [path.stem for path in EXERCISES]


@pytest.mark.parametrize("path", EXERCISES, ids=lambda path: path.stem)
def test_an_exercise_differs_from_its_solution_in_the_answers_only(path):
    generated = strip_solutions(read(ROOT / "solutions" / path.name))
    present = {cell.id: cell.source for cell in read(path).cells}  # learners may add cells
    for cell in generated.cells:
        assert cell.id in present, f"missing: {cell.source}"
        if STUB not in cell.source:
            assert present[cell.id] == cell.source
    order = [cell.id for cell in read(path).cells if cell.id in {c.id for c in generated.cells}]
    assert order == [cell.id for cell in generated.cells]


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_every_solution_is_checked_and_correct(path):
    notebook = read(path)
    answers = sum("### BEGIN SOLUTION" in cell.source for cell in code(notebook))
    checks = sum(cell.source.startswith("check(") for cell in code(notebook))
    verdicts = [o.text for cell in code(notebook) for o in cell.outputs if o.get("text")]
    assert answers == checks >= 6
    assert sum("✅" in text and text.endswith(": correct\n") for text in verdicts) == checks


ANSWERS = {
    "untouched": (None, 0, "", "⏳ 1.1 dot"),
    "right": ("def dot(a, b):\n    return (a * b).sum()", 0, "", "✅ 1.1 dot"),
    "wrong": (
        "def dot(a, b):\n    return a * b",
        1,
        "❌ 1.1 dot: those are the prod",
        "❌ 1.1 dot",
    ),
}


@pytest.mark.parametrize("answer, code_expected, words, listed", ANSWERS.values(), ids=ANSWERS)
def test_in_ci_a_fork_fails_on_a_wrong_answer_with_its_hint_and_lists_what_is_solved(
    tmp_path, answer, code_expected, words, listed
):
    notebook = strip_solutions(read(SOLUTIONS[0]))
    notebook.cells = notebook.cells[: 1 + [c.source for c in notebook.cells].index("check(dot)")]
    for cell in notebook.cells:
        if answer and STUB in cell.source:
            cell.source = answer
    folder = tmp_path / "exercises"
    folder.mkdir()
    write(notebook, folder / "fork.ipynb")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--nbval-lax"]
    run = subprocess.run(
        [*command, "--nbval-current-env", "fork.ipynb"],
        cwd=folder, env=os.environ | {"COURSE_STRICT": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == code_expected, run.stdout
    assert words in run.stdout
    progress = [sys.executable, "-c", "from course_utils import progress; progress()"]
    assert listed in subprocess.run(progress, cwd=folder, capture_output=True, text=True).stdout


# The code that lessons and course_utils share


def definitions(source):
    """Return the public functions and classes of some source, without docstrings and decorators."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            for inner in ast.walk(node):
                if isinstance(inner, ast.FunctionDef | ast.ClassDef):
                    inner.decorator_list = []
                    if ast.get_docstring(inner) is not None:
                        inner.body = inner.body[1:]
            found[node.name] = ast.dump(node)
    return found


IN_LESSONS = {}  # by name; where a function grows, the last lesson that defines it counts
for path in LESSONS:
    for cell in code(read(path)):
        IN_LESSONS.update(definitions(cell.source))
SHARED = {name: node for module in (attention, tiled)
          for name, node in definitions(inspect.getsource(module)).items()}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_what_the_course_shares_is_what_its_lesson_builds(name):
    assert name in IN_LESSONS, f"{name} is built in no lesson"
    assert SHARED[name] == IN_LESSONS[name]
