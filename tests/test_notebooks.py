"""All notebooks: stored whole, in step with each other and with the code. nbval runs them."""

import ast
import copy
import html
import inspect
import os
import re
import subprocess
import sys

import pytest

from course_utils import attention, progress, tiled
from stored_notebooks import (
    EXERCISES,
    IGNORED,
    LESSONS,
    ROOT,
    SOLUTIONS,
    code,
    last_problem,
    prose,
    read,
)
from tools.notebooks import (
    KERNEL,
    STUB,
    fingerprint,
    hide_results,
    picture_mark,
    strip_solutions,
    write,
)


def NAMED(path):
    return f"{path.parent.name}/{path.stem}"


@pytest.fixture(params=LESSONS + SOLUTIONS, ids=NAMED)
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


# What nbval shall not compare: versions, times, what a GPU does, other trainings, progress.
NOT_COMPARED = {
    "notebooks/00_start_here": {"1b38677b", "fb1b0b69"},
    "notebooks/01_dot_product_similarity": {"8d30bd09", "8baccdca"},
    "notebooks/02_variance_and_scaling": {"b2d0c1ea"},
    "notebooks/04_masking": {"02260e32", "f75b88dc"},
    "notebooks/05_multi_head": {"f92cc570"},
    "notebooks/06_sdpa_and_flash_attention": {"fcb072b5", "5d59fea4", "fed7ce07"},
    "notebooks/06b_flash_attention_on_a_gpu":
        {"813bac21", "1adbccfc", "948bfca1", "928556bf", "7ed932a5"},
    "notebooks/07_attention_learns":
        {"ea782bab", "8d709403", "8f3ceded", "06e77d0f", "247610f4", "5e1f9a37", "12173850"},
    "notebooks/08_reading_attention":
        {"94b3b7a4", "e63c8a24", "f1579005", "412e03e0", "b8ef8bdd", "b0e8c6e2", "d7bb2350",
         "3011b7f8"},
    "notebooks/09_positions": {"3a5b06e8", "0b7de52f"},
    "notebooks/10_a_real_model": {"10a00042", "10a00047"},
    "notebooks/10b_inside_a_real_model": {"6e586b24"},
} | {f"solutions/{path.stem}": {"a1b90c2e", "97413160"} for path in SOLUTIONS}  # fmt: skip
NOT_COMPARED["solutions/10_solutions_a_real_model"] |= {"10e00505"}  # drawn, as in the lesson


@pytest.mark.parametrize("path", LESSONS + SOLUTIONS, ids=NAMED)
def test_all_other_outputs_are_compared(path):
    cells = {cell.id: dict(cell.metadata) for cell in read(path).cells}
    folded = [metadata.pop("jupyter", {}) for metadata in cells.values()]
    assert {name for each in folded for name in each} <= {"source_hidden", "outputs_hidden"}
    marked = {id: metadata for id, metadata in cells.items() if metadata}
    assert marked.keys() == NOT_COMPARED.get(NAMED(path), set())
    assert all(metadata == {"tags": [IGNORED]} for metadata in marked.values())


def test_outputs_belong_to_the_stored_cells(executed):
    assert executed.metadata.course.executed == fingerprint(executed)


@pytest.mark.parametrize("path", LESSONS + SOLUTIONS + EXERCISES, ids=NAMED)
def test_nothing_of_one_machine_is_stored(path):
    notebook, text = read(path), path.read_text()
    assert set(notebook.metadata) == {"kernelspec", "course"}
    assert notebook.metadata.kernelspec == KERNEL
    assert len(text) < 1_000_000
    assert not re.search(r"/(?:home|root|tmp|Users|work)/", text)


# Pictures


def drawn(source):
    """Return how many statements of some code display a picture."""
    calls = re.compile(r"(show|display|\w+_explorer)\(|live$")  # 07 shows live again
    steps = [step for step in ast.parse(source).body if not isinstance(step, ast.Try)]  # refused
    nodes = [node for step in steps for node in ast.walk(step) if isinstance(node, ast.Expr)]
    return sum(bool(calls.match(ast.unparse(node))) for node in nodes)


def test_each_picture_is_stored_and_is_the_one_its_cell_drew(executed):
    for cell in code(executed):
        pictures = [output for output in cell.outputs if "image/png" in output.get("data", {})]
        assert len(pictures) == drawn(cell.source), cell.source
        for output in pictures:
            assert output.metadata.get("picture") == picture_mark(cell, output), (
                f"run python -m tools.notebooks refresh, and look at it: {cell.source}"
            )


def test_every_picture_says_what_it_shows(executed):
    for cell in code(executed):
        for output, after in zip(cell.outputs, [*cell.outputs[1:], {}], strict=False):
            if "image/png" in output.get("data", {}):
                description = output.data["text/plain"]
                assert not description.startswith("<"), cell.source
                assert re.search(r"\d", description), description
                if output.output_type == "display_data" and "live" not in cell.source:
                    assert f"Picture: {html.escape(description)}." in after.data["text/html"]


TAGS = {"details", "summary", "small", "p"}
KINDS = {"text/plain", "text/html", "image/png", "application/vnd.jupyter.widget-view+json"}


def test_no_output_runs_anything_in_a_browser(executed):
    for cell in code(executed):
        for output in cell.outputs:
            assert set(output.get("data", {})) <= KINDS
            page = output.get("data", {}).get("text/html", "")
            tags = set(re.findall(r"<([\w:-]+)", page))
            assert tags <= TAGS
            assert not re.search(r"\bon\w+\s*=|javascript:|url\(", page, re.I)
            assert "href" not in page


# Predictions


def test_the_result_of_every_prediction_is_folded(lesson):
    asks = re.compile(r"predict\W*first\W|predict_first\(", re.I)  # however it is worded
    waiting, found = None, 0
    for cell in lesson.cells:
        if asks.search(cell.source):
            waiting = cell.source
        elif waiting and cell.get("outputs"):
            assert cell.metadata.get("jupyter") == {"outputs_hidden": True}, waiting
            waiting, found = None, found + 1
    assert not waiting and found
    folded = copy.deepcopy(lesson)
    hide_results(folded)
    assert folded == lesson, "run: python -m tools.notebooks refresh"


def called(lesson, name):
    """Return all calls of a function, or of a method of any object."""
    nodes = [node for cell in code(lesson) for node in ast.walk(ast.parse(cell.source))]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    return [each for each in calls if ast.unparse(each.func).split(".")[-1] == name]


def test_every_question_is_compared_with_its_result_and_counted_at_the_end(lesson):
    asked = len(called(lesson, "predict_first"))
    assert len(called(lesson, "compare")) == asked
    assert len(called(lesson, "surprises")) == bool(asked)


def test_no_two_questions_are_the_same():
    asked = [call.args[0].value for path in LESSONS for call in called(read(path), "predict_first")]
    assert len(set(asked)) == len(asked) >= 3


# The shape of a lesson


def test_a_lesson_asks_a_question_and_has_the_parts_a_lesson_has(lesson):
    title = lesson.cells[0].source.splitlines()[0]
    assert re.fullmatch(r"# \d\db? · .+\?", title)
    text = "\n".join(cell.source for cell in prose(lesson))
    for part in ["**You will be able to**", "**Time:**", "**Needs:**", "**Predict first",
                 "## Claims, checked", "## What you", "**Next question"]:  # fmt: skip
        assert part in text, part
    assert len(re.findall(r"\*\*(?:False|Holds|True)\b", text)) >= 2  # verdicts
    explorer = "_explorer(" in "\n".join(cell.source for cell in code(lesson))
    # the tiles are stepped through in lesson 06, the real model's heads are explored in 10b
    assert explorer or title.startswith(("# 06b ", "# 10 "))


def test_cells_are_short(lesson):
    for cell in code(lesson):
        assert len(cell.source.splitlines()) <= 15, cell.source
    for cell in prose(lesson):
        assert len(cell.source.split()) <= 130, cell.source


@pytest.mark.parametrize("path", LESSONS + SOLUTIONS + EXERCISES + [ROOT / "README.md"], ids=str)
def test_links_lead_somewhere(path):
    text = (
        path.read_text() if path.suffix == ".md" else "\n".join(c.source for c in prose(read(path)))
    )
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (path.parent / target).exists(), target


# Solutions and exercises


def test_every_lesson_after_the_first_has_exercises_and_solutions():
    for folder, paths in {"solutions": SOLUTIONS, "exercises": EXERCISES}.items():
        names = [path.name.replace("_", f"_{folder}_", 1) for path in LESSONS[1:]]
        assert [path.name for path in paths] == names


@pytest.mark.parametrize("path", EXERCISES, ids=lambda path: path.stem)
def test_an_exercise_is_its_solution_without_the_answers(path):
    solution = ROOT / "solutions" / path.name.replace("_exercises_", "_solutions_")
    present, generated = read(path), strip_solutions(read(solution))
    assert present.metadata.course == generated.metadata.course, "run: make exercises"
    if not any(cell.execution_count for cell in code(present)):
        assert present.cells == generated.cells, "run: make exercises"
        return
    # Somebody has run cells: this is a learner's. Answers that were run may differ, and cells be
    # added.
    kept = [cell for cell in present.cells if cell.id in {each.id for each in generated.cells}]
    assert [cell.id for cell in kept] == [cell.id for cell in generated.cells]
    for cell, original in zip(kept, generated.cells, strict=True):
        if STUB not in original.source or not cell.execution_count:
            assert cell.source == original.source, "changed, but not run"


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_every_solution_but_the_last_problems_is_checked_and_correct(path):
    notebook = read(path)
    answers = sum("### BEGIN SOLUTION" in cell.source for cell in code(notebook))
    checks = sum(cell.source.startswith("check(") for cell in code(notebook))
    verdicts = [o.text for cell in code(notebook) for o in cell.outputs if o.get("text")]
    unsolved = last_problem(notebook) is not None  # its answer is nowhere to be read
    assert answers + unsolved == checks >= 6
    assert sum("✅" in text and text.endswith(": correct\n") for text in verdicts) == answers


def test_in_ci_a_fork_passes_with_a_right_answer_and_lists_it(tmp_path, monkeypatch, capsys):
    """Of a wrong one test_project.py tells, by the workflow that README gives."""
    notebook = strip_solutions(read(SOLUTIONS[0]))
    notebook.cells = notebook.cells[: 1 + [c.source for c in notebook.cells].index("check(dot)")]
    for cell in notebook.cells:
        if STUB in cell.source:
            cell.source = "def dot(a, b):\n    return (a * b).sum()"
    folder = tmp_path / "exercises"
    folder.mkdir()
    write(notebook, folder / "fork.ipynb")
    # Without the plugins of this run: one that shuffles would shuffle the notebook's cells.
    command = [sys.executable, "-m", "pytest", "-p", "nbval.plugin", "-p", "no:cacheprovider"]
    own = {"COURSE_STRICT": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    run = subprocess.run(
        [*command, "--nbval-lax", "--nbval-current-env", "fork.ipynb"],
        cwd=folder, env=os.environ | own, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout
    monkeypatch.chdir(folder)
    progress()
    assert "✅ 1.1 dot" in capsys.readouterr().out


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


@pytest.fixture(scope="module")
def in_lessons():
    """Return what lessons define, by name; where a function grows, the last lesson counts."""
    found = {}
    for path in LESSONS:
        for cell in code(read(path)):
            found |= definitions(cell.source)
    return found


SHARED = {name: node for module in (attention, tiled)
          for name, node in definitions(inspect.getsource(module)).items()}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_what_the_course_shares_is_what_its_lesson_builds(name, in_lessons):
    assert name in in_lessons, f"{name} is built in no lesson"
    assert SHARED[name] == in_lessons[name]
