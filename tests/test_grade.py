"""Grading a class: right answers get their points, and nobody gets or loses one by a trick."""

import csv
import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import nbformat
import numpy as np
import pytest
import torch

from course_utils import grade
from course_utils.checks.exercise import EXERCISES, NamedMistake
from course_utils.checks.judge import judge_here
from course_utils.checks.source_edits import edited
from course_utils.grading import students, submissions
from course_utils.grading.answers import Sources, run_cells
from course_utils.grading.peer import described
from stored_notebooks import EXERCISES as NOTEBOOKS
from stored_notebooks import ROOT, SOLUTIONS, last_problem, read
from wrong_answers import WRONG as WRONG_ANSWERS

ASSIGNMENT = submissions.Assignment(NOTEBOOKS[0])
RIGHT = {cell.id: cell.source for cell in read(SOLUTIONS[0]).cells if "SOLUTION" in cell.source}
ALL = set(ASSIGNMENT.ids) - {last_problem(read(SOLUTIONS[0]))}
RIGHT = {name: RIGHT[id] for name, id in ASSIGNMENT.ids.items() if name in ALL}
FORGED = """
import gc, sys
def dot(a, b):
    for peer in [each for each in gc.get_objects() if type(each).__name__ == "Peer"]:
        peer.send("value", {"status": "correct"})
        peer.send("ended", 0)
    return 0
"""
ATTACK = """
import glob, os, shutil
def dot(a, b):
    assert "TOKEN" not in os.environ, "it reads others' work"
    for path in glob.glob(FOLDER + "/**", recursive=True):
        try:
            with open(path) as file: text = file.read()
            assert "def dot_product_scores" not in text, "it reads others' work"
            with open(path, "a") as file: file.write("changed")
        except OSError: pass
    raise ValueError("<script>alert(1)</script>")
"""
WRONG = {
    "dot": "def dot(a, b) return a",
    "dot_product_scores": "def dot_product_scores(q, k): return (q @ k.mT).mean()",
    "cosine_similarity": "def cosine_similarity(q, k): exit()",
    "euclidean_distance": "def euclidean_distance(q, k):\n    import posix; posix._exit(0)",
    "nearest_key": "import resource\n"
    "allowed, _ = resource.getrlimit(resource.RLIMIT_CPU)\n"
    "def nearest_key(*given):\n"
    "    resource.setrlimit(resource.RLIMIT_CPU, (2, 2))  # so that this test is quick\n"
    "    while 0 < allowed < 60: pass",
    "soft_lookup": "def soft_lookup(q, k, v): return torch.ones(10 << 30, dtype=torch.uint8)",
    "project_qkv": f"open('/tmp/big', 'wb').write(bytes(65 << 20))\n{RIGHT['project_qkv']}",
}
SIBLINGS = "autograded", "feedback", "gradebook.db", "release", "source"  # of nbgrader
LEFT = "/tmp/left"  # by one student for the next
READ = ["course_utils", "tests", ".git", "solutions", "notebooks"]
READ = dict(zip(RIGHT, [LEFT, *(each for each in READ if (ROOT / each).exists())], strict=False))
# What each student hands in: answers, cells above the first one, and the exercises that get a point
CLASS = {
    "right": (
        RIGHT
        | {"dot": "%matplotlib inline\ndef dot(a, b): return ONE * total(a * b)\ncheck(dot)"}
        | {"nearest_key": RIGHT["nearest_key"] + "\nexit()"},
        [
            "import numpy as np\nONE: int = 1\ndef total(x): return x.sum()\n1 / 0",
            "def leave(code=__import__('sys').exit()): pass",
        ],
        ALL,
    ),
    "empty": ({}, [f"LEFT = open({LEFT!r}, 'w').write('left')"], set()),
    "wrong": (RIGHT | WRONG, [], ALL - WRONG.keys()),
    "tricks": (
        {
            "dot": FORGED,
            "cosine_similarity": "from course_utils.checks.exercise import EXERCISES\n"
            "cosine_similarity = EXERCISES['cosine_similarity'].reference",
            "soft_lookup": f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
            "modules = __import__('course_' + 'utils.checks.exercise').checks\n"
            "soft_lookup = modules.exercise.EXERCISES['soft_lookup'].reference",
            "euclidean_distance": "import sys\ndef euclidean_distance(q, k):\n"
            "    frame = sys._getframe()\n"
            "    while 'Made' not in frame.f_globals: frame = frame.f_back\n"
            "    return frame.f_globals['euclidean_distance'](q, k)",
            "dot_product_scores": "import importlib\nshared = 'course_utils.attention'\n"
            "dot_product_scores = importlib.import_module(shared).dot_product_scores",
            "SelfAttention": "import gc\nfor each in gc.get_objects():\n"
            "    if isinstance(each, type) and each.__name__ == 'SelfAttention':\n"
            "        SelfAttention = each",
        },
        [
            "from course_utils.checks import judge\njudge._judge = lambda *_: ('correct', '', '')",
            "get_ipython().ast_transformers.append(None)",
        ],
        {"soft_lookup"},  # only where the course's folder is not hidden
    ),
    "reader": (
        {
            name: f"from pathlib import Path\npath = Path({str(ROOT / hidden)!r})\n"
            f"assert path.is_file() or any(path.iterdir())\n{RIGHT[name]}"
            for name, hidden in READ.items()
        },
        [],
        {*READ},  # as above
    ),
    "=1+1<script>\x1b": ({"dot": ATTACK}, [], set()),
}
# Layers, kernels, tests and what may not take memory: the checks run beside most of the answers.
# Some answers use functions of the course.
GRADED = [path for path in SOLUTIONS if path.name.startswith((*"03 05 06 07 13".split(),))]


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A class after grading: its folder, what was printed, the rows, and the pages by student."""
    folder = tmp_path_factory.mktemp("class")
    (folder / "gradebook.db").write_text("the gradebook")
    (folder / "submitted").mkdir()
    for student, (answers, above, _) in CLASS.items():
        notebook = nbformat.read(NOTEBOOKS[0], as_version=4)
        sources = {ASSIGNMENT.ids[name]: source for name, source in answers.items()}
        for cell in notebook.cells:
            cell.source = sources.get(cell.id, cell.source)
            cell.metadata["points"] = 100
        first = [cell.id for cell in notebook.cells].index(ASSIGNMENT.ids["dot"])
        above = [f"FOLDER = {str(folder)!r}", *above]
        notebook.cells[first:first] = map(nbformat.v4.new_code_cell, above)
        nbformat.write(notebook, folder / "submitted" / f"{student}.ipynb")
    (folder / "submitted" / "solutions").mkdir()
    for path in GRADED:
        shutil.copy(path, folder / "submitted" / "solutions")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = subprocess.run(
        [sys.executable, "-m", "course_utils.grade", "submitted"], cwd=folder, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TOKEN": "1"},
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    with open(folder / "grades.csv", newline="", encoding="utf-8") as file:
        rows = {row["student"].lstrip("'"): row for row in csv.DictReader(file)}
    pages = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("grades/*")}
    return before, done.stdout, rows, pages


@pytest.mark.slow
@pytest.mark.parametrize("student", CLASS)
def test_right_answers_get_their_points_and_tricks_get_none(graded, student):
    _, printed, rows, _ = graded
    *_, expected = CLASS[student]
    student = student.replace("\x1b", "?")
    if student in ("tricks", "reader") and students.PLAIN not in printed:
        expected = set()
    assert {name for name in ASSIGNMENT.ids if rows[student][name] == "1"} == expected
    assert rows[student]["points"] == str(len(expected))


@pytest.mark.slow
def test_no_student_changes_what_others_or_the_teacher_have(graded):
    before, printed, *_ = graded
    if students.PLAIN not in printed:
        assert {path: path.read_bytes() for path in before} == before


@pytest.mark.slow
def test_students_read_hints_and_no_markup_or_formula_comes_from_them(graded):
    _, _, rows, pages = graded
    assert not any("<script" in page for page in pages.values())
    (page,) = (page for page in pages.values() if "=1+1" in page)
    assert "ValueError: &lt;script&gt;" in page and "others&#x27; work" not in page
    (wrong,) = (page for name, page in pages.items() if name.endswith("wrong.html"))
    assert "❌ 1.1 dot: its cell is not valid" in wrong and "✅ 1.9 " in wrong
    assert "is there a loop without end?" in wrong
    (empty,) = (page for name, page in pages.items() if name.endswith("empty.html"))
    assert "⏳ 1.1 dot: not attempted yet" in empty and "❌" not in empty


def alone(tmp_path, contents, status="correct"):
    """Grade a student's notebooks, 0.ipynb and so on, where each answer gets the same status."""
    paths = [tmp_path / f"{number}.ipynb" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_text(content) if content else path.mkdir()
    judged = []
    runner = SimpleNamespace(
        judge=lambda exercise, *_: judged.append(exercise.name) or (status, ""), stop=lambda: None
    )
    return grade.grade(runner, paths, [*map(submissions.Assignment, NOTEBOOKS[:2])]), judged


STUBS = NOTEBOOKS[0].read_text(encoding="utf-8")


# of them the last, a folder, cannot be read
UNGRADED = [STUBS, '{"cells": []}', "hello", "[]", "{}", "[" * 100_000, ""]


@pytest.mark.parametrize("content", UNGRADED, ids=lambda content: content[:8])
def test_a_notebook_that_is_not_graded_is_named_and_the_others_points_stay(tmp_path, content):
    result, judged = alone(tmp_path, [STUBS, content])
    assert judged == list(result.verdicts) == list(ASSIGNMENT.ids)
    (message,) = result.messages
    assert result.points == len(judged) and message.startswith("1.ipynb: ")


def test_the_teacher_is_told_of_what_is_missing_or_could_not_be_checked(tmp_path):
    result, _ = alone(tmp_path, [])
    assert result.points == 0 and len(result.messages) == 1
    result, _ = alone(tmp_path, [STUBS], "not checked")
    assert result.points == 0
    assert [message.split()[0] for message in result.messages] == list(ASSIGNMENT.ids)


def test_an_answer_whose_cell_is_missing_is_wrong_and_the_others_are_graded(tmp_path):
    notebook = json.loads(STUBS)
    notebook["cells"] = [c for c in notebook["cells"] if c["id"] != ASSIGNMENT.ids["dot"]]
    result, judged = alone(tmp_path, [json.dumps(notebook)])
    assert judged == [name for name in ASSIGNMENT.ids if name != "dot"]
    assert result.verdicts["dot"][0] == "wrong" and not result.messages


def test_the_time_for_a_notebook_is_limited_and_no_answer_can_use_up_most_of_it(
    tmp_path, monkeypatch
):
    assert students.PATIENCE <= grade.NOTEBOOK / 2
    clock = itertools.count(0, 0.6 * grade.NOTEBOOK)  # each look at it costs most of the time
    monkeypatch.setattr(grade.time, "monotonic", lambda: next(clock))
    result, judged = alone(tmp_path, [path.read_text() for path in NOTEBOOKS[:2]])
    assert [EXERCISES[name].number for name in judged] == ["1.1", "2.1"]
    assert {result.verdicts[name][1] for name in result.verdicts if name not in judged} == {
        grade.TOO_LONG
    }


@pytest.mark.parametrize("sign", "=+-@")
def test_a_name_that_begins_like_a_formula_is_a_text_in_the_table(tmp_path, sign):
    nothing = grade.Result([], {}, [f"{sign}1+1", "another"])
    grade.save_table(tmp_path / "grades.csv", {f"{sign}1+1": nothing}, [])
    (row,) = csv.DictReader((tmp_path / "grades.csv").open())
    assert row["student"][0] not in "=+-@" and row["message"][0] not in "=+-@"
    assert "1+1" in row["message"] and "another" in row["message"]


def test_a_page_can_be_saved_however_long_a_name_is(tmp_path):
    result = grade.Result([], {"dot": ("wrong", "a hint")}, ["one message", "another"])
    for number in (1, 2):  # two names that begin alike
        grade.save_page(tmp_path, 300 * "a", number, result)
    page, _ = tmp_path.iterdir()
    for text in [300 * "a", "a hint", "one message", "another"]:
        assert text in page.read_text(encoding="utf-8")


def test_who_is_graded_before_an_interruption_is_in_the_table(tmp_path, monkeypatch):
    names = [name for path in NOTEBOOKS for name in submissions.Assignment(path).ids]

    def judged(runner, paths, assignments):
        if paths[0].stem == "second":
            raise KeyboardInterrupt
        return grade.Result(paths, dict.fromkeys(sorted(names), ("correct", "")), [])

    def started(hidden):  # with what an answer may not read
        assert {tmp_path / name for name in SIBLINGS} <= {*hidden}
        return SimpleNamespace(way=["nowhere"], stop=lambda: None)

    for name, value in {
        "grade": judged, "Students": started, "Assignment": str,
        "resource": Mock(), "torch": Mock(),
    }.items():  # fmt: skip
        monkeypatch.setattr(grade, name, value)
    (tmp_path / "class").mkdir()
    for name in ("first", "second"):
        (tmp_path / "class" / f"{name}.ipynb").touch()
    with pytest.raises(KeyboardInterrupt):
        grade.main([str(tmp_path / "class"), "--out", str(tmp_path / "grades.csv")])
    (row,) = csv.DictReader((tmp_path / "grades.csv").open())
    (tmp_path / "class" / "second.ipynb").unlink()
    grade.main([str(tmp_path / "class"), "--out", str(tmp_path / "grades.csv")])  # once more
    points = {"points": str(len(names))} | dict.fromkeys(names, "1")
    assert row == {"student": "first", "message": ""} | points
    assert [each for each in row if each in names] == names  # in the order of the course


def test_values_and_errors_arrive_as_they_were():
    peer, tensors = students._Peer(*os.pipe()), []
    assert peer.unpack(peer.pack(np.int64(3), tensors), tensors) == 3
    named = peer.rebuilt(described(NamedMistake("odd", "a hint", [torch.ones(1)]), peer))
    assert (named.mistake, named.hint, named.results) == ("odd", "a hint", [1])
    with pytest.raises(NotImplementedError) as raised:
        run_cells(["def dot(a, b):\n    raise NotImplementedError"], "dot")(1, 2)
    assert peer.rebuilt(described(raised.value, peer)).elsewhere["stub"] == "dot"


def test_bubblewrap_takes_the_network_and_hides_what_is_to_be_hidden(tmp_path, monkeypatch):
    monkeypatch.setattr(students.shutil, "which", lambda name: f"/usr/bin/{name}")
    kept, secret, key = tmp_path / "python", tmp_path / "submitted", tmp_path / "grades.csv"
    secret.mkdir()
    key.touch()
    runner = SimpleNamespace(folder=tmp_path / "copy", hidden=[secret, key], kept=[kept])
    _, command, *_ = next(students.Students._ways(runner))
    assert {"--unshare-all", "--unshare-net"} & {*command}
    covers = {path: list(command[: command.index(str(path))][-2:]) for path in (secret, key)}
    assert covers[secret][-1] == "--tmpfs" and covers[key] == ["--ro-bind", os.devnull]
    home = command.index(str(Path.home()))  # empty, except for what is shown again after it
    assert command[home - 1] == "--tmpfs" and home < command.index(str(kept))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({name for name, *_ in WRONG_ANSWERS} - students.BESIDE))
def test_results_show_what_is_wrong_or_the_check_runs_beside_the_answer(name):
    def apart(answer):  # the check sees nothing of how a thread of its own computes
        def in_mode(is_traced, *args, **kwargs):
            with torch.set_grad_enabled(is_traced):
                return answer(*args, **kwargs)

        return lambda *args, **kwargs: thread.submit(
            in_mode, torch.is_grad_enabled(), *args, **kwargs
        ).result()

    exercise = EXERCISES[name]
    with ThreadPoolExecutor(1) as thread:
        for _, mistake, row in (each for each in WRONG_ANSWERS if each[0] == name):
            answer = row if callable(row) else edited(exercise.reference, "row", *row)
            verdict = judge_here(exercise, apart(answer))
            assert verdict[:2] == ("wrong", mistake), (
                f"the check of {name} looks at more than results: add it to BESIDE in "
                "course_utils/grading/students.py"
            )


def test_a_check_that_runs_beside_an_answer_explains_its_error_and_names_its_line():
    name, path = "course_utils.checks.errors", ROOT / "course_utils" / "checks" / "errors.py"
    spec = Sources({name: path.read_text(encoding="utf-8")}).find_spec(name)
    errors = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(errors)
    with pytest.raises(AttributeError) as raised:
        run_cells(["def dot(a, b):\n    return a.missing"], "dot")(1, 2)
    assert "`return a.missing`" in errors.explained(raised.value)
    assert errors.is_ours(errors.__file__)
    cells = ["def helper(x):\n    return x.missing", "def dot(a, b):\n    return helper(a)"]
    with pytest.raises(AttributeError) as raised:
        run_cells(cells, "dot")(1, 2)
    assert "`return x.missing`" in described(raised.value, None)["where"]


@pytest.mark.slow
def test_solutions_get_their_points(graded):
    _, _, rows, _ = graded
    wrong = {name for name, point in rows["solutions"].items() if point == "0"}
    assert wrong == {last_problem(read(path)) for path in GRADED} - {None}, (
        "does a check look at more than results? See BESIDE in grading/students.py"
    )


def test_an_answer_whose_process_does_not_start_is_left_to_the_teacher():
    def start(way):
        raise OSError

    runner = SimpleNamespace(process=None, way=None, start=start, stop=lambda: None, usual=set())
    status, _ = students.Students.judge(runner, EXERCISES["dot"], [], set())
    assert status == "not checked"


def test_each_exercise_is_found_in_its_notebook():
    found = [name for path in NOTEBOOKS for name in submissions.Assignment(path).ids]
    assert sorted(found) == sorted(set(EXERCISES) - {"average"})
    assert students.BESIDE <= set(found)


@pytest.mark.parametrize("line", ["%time 1", "!pip install einops", "  !ls"])
def test_a_cell_may_hold_commands_of_ipython(line):
    cell = submissions.Cell.parsed(None, f"{line}\ndef dot(a, b):\n    return 1")
    assert cell.is_python and cell.defined == {"dot"}


@pytest.mark.parametrize("out", ["grades", "grades.html"])
def test_the_table_cannot_take_the_place_of_the_folder_of_pages(tmp_path, out, capsys):
    with pytest.raises(SystemExit):
        grade.main([str(tmp_path), "--out", str(tmp_path / out)])
    assert "--out must end in .csv" in capsys.readouterr().err and not any(tmp_path.iterdir())


def test_as_much_is_read_as_teaching_md_allows(tmp_path, monkeypatch):
    for kilobytes in (99, 101):
        cell = {"cell_type": "code", "source": "x = 1 + 1\n" * 100 * kilobytes}
        (tmp_path / f"{kilobytes}.ipynb").write_text(json.dumps({"cells": [cell]}))
    assert len(submissions.read_cells(tmp_path / "99.ipynb")) == 1
    with pytest.raises(submissions.Unreadable):
        submissions.read_cells(tmp_path / "101.ipynb")
    monkeypatch.setattr(submissions, "LARGEST", 10)  # of a file, before it is read
    with pytest.raises(submissions.Unreadable):
        submissions.read_cells(tmp_path / "99.ipynb")


def test_of_the_course_only_what_the_exercises_import_reaches_an_answer():
    stub, forbidden = "def dot(a, b): return 0", "from course_utils.checks import judge\n"
    offered = f"from {min(ASSIGNMENT.imports).replace('.check', ' import check')}\n"
    sources = [offered, forbidden, "def dot(a, b) return a", stub, offered + stub, forbidden + stub]
    *cells, refused = [submissions.Cell.parsed(None, source) for source in sources]
    assert ASSIGNMENT.code(cells, 4) == [offered, stub, offered + stub]
    for cell in (refused, cells[2]):
        with pytest.raises(submissions.Unreadable):
            ASSIGNMENT.code([cell], 0)


def test_an_answer_may_not_pass_large_tensors_to_a_function_of_ours():
    with pytest.raises(ValueError, match="too large"):
        students._Peer._called(
            None, {"tensors": [torch.empty(students.LARGEST_CALL), torch.ones(1)]}
        )


def test_an_answer_is_found_in_another_cell_by_its_name():
    cells = [submissions.Cell.parsed(None, each) for each in ("def dot(a): pass", "dot = len")]
    cells[1:1] = ASSIGNMENT.cells
    assert ASSIGNMENT.answered_in(cells)["dot"] == len(cells) - 1
    assert ASSIGNMENT.answered_in(cells[:1]) == {"dot": 0}
    (own,) = (n for n, cell in enumerate(cells) if cell.id == ASSIGNMENT.ids["dot"])
    cells[own] = submissions.Cell.parsed(cells[own].id, "def dot(a, b): return a @ b")
    assert ASSIGNMENT.answered_in(cells)["dot"] == own  # what stands below it is a sketch


def test_submissions_lie_flat_or_in_a_folder_for_each_student(tmp_path):
    hidden = ["b/.ipynb_checkpoints/1.ipynb", ".ipynb_checkpoints/a.ipynb", ".f.ipynb"]
    hidden += ["._a.ipynb", "b/._1.ipynb"]  # which macOS writes beside each file
    for name in ["a.ipynb", "b/1.ipynb", "c/lesson/1.ipynb", *hidden]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for link in ("d.ipynb", "b/2.ipynb"):  # to what may be another student's
        os.symlink(tmp_path / "a.ipynb", tmp_path / link)
    os.mkfifo(tmp_path / "e.ipynb")  # reading it would never end
    (tmp_path / "g").mkdir()
    found = submissions.submissions(tmp_path)
    assert {student: [path.name for path in paths] for student, paths in found.items()} == {
        "a": ["a.ipynb"], "b": ["1.ipynb", "2.ipynb"], "c": ["1.ipynb"], "d": ["d.ipynb"],
        "e": ["e.ipynb"], ".f": [".f.ipynb"], "g": [],
    }  # fmt: skip
    refused = found["d"] + found["e"] + found[".f"]
    assert len(grade.grade(Mock(), refused, []).messages) == 3
