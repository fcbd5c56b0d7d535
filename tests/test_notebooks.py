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
from course_utils.checks.exercise import EXERCISES as REGISTERED
from stored_notebooks import (
    EXERCISES,
    LESSONS,
    MOST_LINES,
    ROOT,
    SOLUTIONS,
    WITH_EXERCISES,
    code,
    last_problem,
    name_of,
    number_of,
    output_text,
    prose,
    published,
    read,
)
from tools.new import FEWEST, TODO
from tools.notebooks import (
    IGNORED,
    KERNEL,
    STUB,
    fingerprint,
    has_mark,
    hide_results,
    pictures,
    strip_solutions,
    write,
)

each_executed = pytest.mark.parametrize("path", LESSONS + SOLUTIONS, ids=name_of)
each_lesson = pytest.mark.parametrize("path", LESSONS, ids=name_of)
each_solutions = pytest.mark.parametrize("path", SOLUTIONS, ids=name_of)


def refresh_it(path):
    return f"run: .venv/bin/python -m tools.notebooks refresh {name_of(path)}"


# What is stored. Without these guards nbval could pass and compare nothing.


@each_executed
def test_outputs_are_stored_and_belong_to_the_code(path):
    notebook = read(path)
    cells = code(notebook)
    counts = [cell.execution_count for cell in cells]
    assert notebook.metadata.get("course", {}).get("executed") == fingerprint(notebook), (
        f"a code cell of {name_of(path)} was changed after it was run; {refresh_it(path)}"
    )
    assert counts == list(range(1, len(counts) + 1)), refresh_it(path)
    outputs = [output for cell in cells for output in cell.outputs]
    assert len(outputs) >= len(cells) / 3, f"most cells show nothing; {refresh_it(path)}"
    kinds = {output.get("name", output.output_type) for output in outputs}
    assert not kinds & {"error", "stderr"}, f"{name_of(path)} stores an error or a warning"


@each_executed
def test_nearly_all_outputs_are_compared(path):
    """Only times, versions, what a GPU does, progress, and long trainings may differ."""
    cells = code(read(path))
    ignored = [cell.source for cell in cells if IGNORED in cell.metadata.get("tags", [])]
    assert len(ignored) <= max(2, len(cells) / 5), (
        f"{name_of(path)} has too many cells tagged {IGNORED}, whose outputs no test compares; "
        "print what is the same in every run, rounded, and take the tag away:\n"
        + "\n---\n".join(ignored)
    )
    for cell in read(path).cells:
        assert set(cell.metadata) <= {"tags", "jupyter"} and set(cell.metadata.get("tags", [])) <= {
            IGNORED
        }, f"{name_of(path)}, cell {cell.id}: remove its metadata {cell.metadata}"


@pytest.mark.parametrize("path", LESSONS + SOLUTIONS + EXERCISES, ids=name_of)
def test_nothing_of_one_machine_is_stored(path):
    notebook, text = read(path), path.read_text(encoding="utf-8")
    what_to_do = "run: make exercises" if path in EXERCISES else refresh_it(path)
    assert set(notebook.metadata) == {"kernelspec", "course"}, what_to_do
    assert notebook.metadata.kernelspec == KERNEL, what_to_do
    assert len(text) < 1_000_000, f"{name_of(path)} is too large for git: draw fewer pictures"
    private = re.search(r"/(?:home|root|tmp|Users|work)/.*", text)
    assert not private, f"{name_of(path)} shows a path of your machine: {private[0]}"


@each_executed
def test_each_picture_is_the_one_its_cell_drew_and_is_described(path):
    for cell in code(read(path)):
        for output, below in zip(cell.outputs, [*cell.outputs[1:], {}], strict=False):
            if not pictures([output]):
                continue
            assert has_mark(cell, output), (
                f"cell {cell.id}: its picture is not the one that it drew; {refresh_it(path)}"
            )
            words = output.data["text/plain"]
            assert re.search(r"\d", words) and not words.startswith("<"), (
                f"{name_of(path)}, cell {cell.id}: end it with show(ax), which describes the "
                f"picture for those who do not see it; its description is {words!r}"
            )
            if output.output_type == "display_data" and "live" not in cell.source:
                assert f"Picture: {html.escape(words)}." in below.data["text/html"]


@each_executed
def test_each_figure_that_is_shown_is_stored(path):
    calls = re.compile(r"(show|display|\w+_explorer)\(|live$")  # 07 shows live again

    def shown(*steps):
        nodes = [node for step in steps for node in ast.walk(step) if isinstance(node, ast.Expr)]
        return sum(bool(calls.match(ast.unparse(node))) for node in nodes)

    for cell in code(read(path)):
        steps = [step for step in ast.parse(cell.source).body if not isinstance(step, ast.Try)]
        always = [step for step in steps if not isinstance(step, ast.If)]
        assert shown(*always) <= len(pictures(cell.outputs)) <= shown(*steps), (
            f"{name_of(path)}, cell {cell.id} shows {shown(*steps)} figures; {refresh_it(path)}"
        )


@each_executed
def test_no_output_runs_anything_in_a_browser(path):
    for cell in code(read(path)):
        for output in cell.outputs:
            page = output.get("data", {}).get("text/html", "")
            assert "application/javascript" not in output.get("data", {})
            tags = set(re.findall(r"<([\w:-]+)", page))
            assert tags <= {"details", "summary", "small", "p", "em"}
            assert not re.search(r"\bon\w+\s*=|javascript:|url\(|href", page, re.I)


# Predictions


@each_lesson
def test_each_question_has_its_result_among_its_options(path):
    questions, results = (published(read(path), key) for key in ["options", "result"])
    asked, answered = ([each["question"] for each in info] for info in [questions, results])
    assert answered == asked, (
        f"{name_of(path)}: call compare once for each predict_first, in the same order. "
        f"Without its result, or compared by another: {set(asked) ^ set(answered) or asked}"
    )
    for question, result in zip(questions, results, strict=True):
        if question["options"]:
            assert result["result"] in question["options"], (
                f"{name_of(path)}: add the result {result['result']!r} to the options of "
                f"{question['question']!r}, or mend the cell that computes it"
            )
    counts = [each["count"] for each in published(read(path), "count")]
    assert counts == [len(asked)] * bool(asked), f"end {name_of(path)} with a cell: surprises()"
    for other in LESSONS:  # what was predicted is stored by the question's words
        twice = {each["question"] for each in published(read(other), "options")} & set(asked)
        assert other == path or not twice, f"{name_of(other)} asks it too; reword one: {twice}"


@each_lesson
def test_the_result_of_every_prediction_is_folded(path):
    asks = re.compile(r"predict\W*first\W|predict_first\(", re.I)  # however it is worded
    waiting, cells = None, read(path).cells
    assert any(asks.search(cell.source) for cell in cells), (
        f"{name_of(path)} asks for no prediction: add predict_first before a result"
    )
    assert all(cell.execution_count for cell in code(read(path))), (
        f"{name_of(path)} has cells that were not run; {refresh_it(path)}"
    )
    for cell in cells:
        if asks.search(cell.source):
            waiting = cell.source
        elif waiting and cell.get("outputs"):
            assert cell.metadata.get("jupyter") == {"outputs_hidden": True}, refresh_it(path)
            waiting = None
    assert not waiting, f"{name_of(path)}: no cell shows the result of {waiting!r}"
    folded = copy.deepcopy(read(path))
    hide_results(folded)
    assert folded == read(path), refresh_it(path)


# A lesson


PARTS = ["**You will be able to**", "**Time:**", "**Needs:**", "## Claims, checked", "## What you",
         "**Next question"]  # fmt: skip


@each_lesson
def test_a_lesson_has_the_parts_a_lesson_has(path):
    cells = read(path).cells
    assert re.match(rf"# {number_of(path)} · .+\?\n", cells[0].source), (
        f"{name_of(path)}: begin it with a title such as '# {number_of(path)} · A question?'"
    )
    text = "\n".join(cell.source for cell in prose(read(path)))
    missing = [part for part in PARTS if part not in text]
    assert not missing, f"{name_of(path)} has no {missing}; lesson 03 shows how they look"


@each_lesson
def test_cells_are_short(path):
    for cell in read(path).cells:
        text = re.sub(r"^[-|].*", "", cell.source, flags=re.M)  # lists and tables apart
        lines, words = len(cell.source.splitlines()), len(text.split())
        short = lines <= MOST_LINES if cell.cell_type == "code" else words <= 130
        assert short, (
            f"{name_of(path)}: split this cell ({lines} lines, {words} words; at most "
            f"{MOST_LINES} lines of code or 130 words):\n{cell.source}"
        )


def test_nothing_that_a_template_leaves_to_its_author_is_unwritten():
    texts = {
        name_of(path): "\n".join(cell.source for cell in read(path).cells)
        for path in LESSONS + SOLUTIONS
    }
    for path in [ROOT / "README.md", *(ROOT / "course_utils" / "checks").glob("lesson_*/*.py")]:
        texts[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
    left = [
        f"{name}: {found}"
        for name, text in texts.items()
        for found in re.findall(f".{{,30}}{TODO}.{{,60}}", text)
    ]
    assert not left, f"write what these lines ask for, and remove {TODO}\n" + "\n".join(left)


# Solutions and exercises


def test_every_lesson_from_01_on_has_exercises_and_solutions():
    for folder, paths in {"solutions": SOLUTIONS, "exercises": EXERCISES}.items():
        expected = [path.name.replace("_", f"_{folder}_", 1) for path in WITH_EXERCISES]
        assert [path.name for path in paths] == expected, (
            f"{folder}/ does not match notebooks/; write the solutions, then run: make exercises"
        )


@each_solutions
def test_a_lesson_has_enough_exercises(path):
    asked = sum(bool(re.match(r"check\(\w+\)", cell.source)) for cell in code(read(path))) - 1
    assert asked >= FEWEST, (
        f"{name_of(path)}: beside the last problem it has {asked} of at least {FEWEST} exercises; "
        f"add one: .venv/bin/python -m tools.new exercise {number_of(path)} NAME"
    )


@pytest.mark.parametrize("path", EXERCISES, ids=name_of)
def test_an_exercise_is_its_solution_without_the_answers(path):
    solution = ROOT / "solutions" / path.name.replace("_exercises_", "_solutions_")
    present, generated = read(path), strip_solutions(read(solution))
    assert present.metadata.course == generated.metadata.course, "run: make exercises"
    if not any(cell.execution_count for cell in code(present)):
        assert present.cells == generated.cells, "run: make exercises"
        return
    # Somebody has run cells: this is a learner's. Answers that were run may differ, and cells be
    # added.
    ids = [cell.id for cell in generated.cells]
    originals = [cell for cell in present.cells if cell.id in ids]
    assert [cell.id for cell in originals] == ids, "run: make exercises"
    for cell, original in zip(originals, generated.cells, strict=True):
        if STUB not in original.source or not cell.execution_count:
            assert cell.source == original.source, "changed, but not run"


@pytest.mark.parametrize("path", EXERCISES, ids=name_of)
def test_a_stub_holds_nothing_of_the_answer(path):
    solution = ROOT / "solutions" / path.name.replace("_exercises_", "_solutions_")
    for cell in code(strip_solutions(read(solution))):
        for node in ast.walk(ast.parse(cell.source)) if STUB in cell.source else ():
            body = getattr(node, "body", None) or [None]
            # with code after it, the stub is a gap to fill in given code
            alone = len(body) == 1 + isinstance(body[0], ast.Expr)
            assert alone or not isinstance(body[-1], ast.Raise), (
                f"{name_of(solution)}: put ### BEGIN SOLUTION above the first and ### END SOLUTION "
                f"below the last line of the answer:\n{cell.source}"
            )


@each_solutions
def test_exercises_are_asked_in_order_under_their_registered_numbers(path):
    solutions, asked, number, unsolved = read(path), [], None, last_problem(read(path))
    for cell in solutions.cells:
        if heading := re.match(r"## (\d+b?\.\d+) ", cell.source):
            number = heading[1]
        if shown := re.search(r"^progress\(\W?(\w+)", cell.source, re.M):
            assert shown[1].zfill(len(number_of(path))) == number_of(path), "of another lesson"
        if answered := re.match(r"check\((\w+)\)", cell.source):
            asked.append((number, answered[1]))
            verdict = "⏳ {}: not attempted yet" if answered[1] == unsolved else "✅ {}: correct"
            assert output_text(cell) == verdict.format(f"{number} {answered[1]}") + "\n", (
                f"the check's output stored in {name_of(path)} is another; {refresh_it(path)}"
            )
    in_order = sorted(REGISTERED.values(), key=lambda exercise: exercise.place)
    registered = [(e.number, e.name) for e in in_order if e.lesson == number_of(path)]
    assert asked == registered, (
        f"the headings and check(...) cells of {name_of(path)} do not match the numbers in "
        f"course_utils/checks/lesson_{number_of(path)}/"
    )
    assert unsolved == registered[-1][1], (
        f"only the last problem of {name_of(path)} has no answer: "
        f'write it with {STUB} and no "### BEGIN SOLUTION"'
    )


@pytest.mark.slow
def test_in_ci_a_fork_passes_with_a_right_answer_and_lists_it(tmp_path, monkeypatch, capsys):
    """Of a wrong one test_project.py tells, by the workflow that TEACHING.md gives."""
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
    strict = {"COURSE_STRICT": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    run = subprocess.run(
        [*command, "--nbval-lax", "--nbval-current-env", "fork.ipynb"],
        cwd=folder, env=os.environ | strict, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout
    monkeypatch.chdir(folder)
    progress()
    assert "✅ 1.1 dot" in capsys.readouterr().out


# The code that lessons and course_utils share


def definitions(source):
    """Return the public functions and classes of some source, in a form for comparison.

    Docstrings and decorators are left out, and local names are numbered as they appear.
    """
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            for inner in ast.walk(node):
                if isinstance(inner, ast.FunctionDef | ast.ClassDef):
                    inner.decorator_list = []
                    if ast.get_docstring(inner) is not None:
                        inner.body = inner.body[1:]
            functions = [each for each in ast.walk(node) if isinstance(each, ast.FunctionDef)]
            for function in reversed(functions):  # inner ones first
                number_locals(function)
            found[node.name] = ast.dump(node)
    return found


def number_locals(function):
    """Rename the variables that a function assigns, but not its parameters."""
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    local = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    arguments = [node for node in ast.walk(function) if isinstance(node, ast.arg)]
    local -= {argument.arg for argument in arguments}
    names.sort(key=lambda node: (node.lineno, node.col_offset))
    order = list(dict.fromkeys(node.id for node in names if node.id in local))
    for node in names:
        if node.id in local:
            node.id = f"{function.name} {order.index(node.id)}"


@pytest.fixture(scope="module")
def in_lessons():
    """Return what lessons define, by name; where a function grows, the last lesson counts."""
    found = {}
    for path in LESSONS:
        for cell in code(read(path)):
            found |= {name: (form, path) for name, form in definitions(cell.source).items()}
    return found


SHARED = {(module, name): form for module in (attention, tiled)
          for name, form in definitions(inspect.getsource(module)).items()}  # fmt: skip


@pytest.mark.parametrize("module, name", SHARED, ids=lambda part: getattr(part, "__name__", part))
def test_what_the_course_shares_is_what_its_lesson_builds(module, name, in_lessons):
    file = f"{module.__name__.replace('.', '/')}.py"
    assert name in in_lessons, f"{name} in {file} is built in no lesson: move it to another module"
    form, path = in_lessons[name]
    assert SHARED[module, name] == form, (
        f"{name} is not the same code in {file} and in {name_of(path)}: change the other one too"
    )
