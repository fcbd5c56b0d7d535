"""Progress: the last verdicts are stored, whatever becomes of their file."""

import contextlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from course_utils import check, json_store, progress
from course_utils.checks.exercise import EXERCISES
from stored_notebooks import ROOT

# the module; its function of the same name hides it
stored = importlib.import_module("course_utils.checks.progress")

RIGHT = EXERCISES["dot"].reference


def wrong(a, b):
    return a * b


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Return the path of the file in a new folder of the course, whose exercises are checked."""
    monkeypatch.setattr(stored, "trouble", None)
    (tmp_path / "exercises").mkdir()
    monkeypatch.chdir(tmp_path / "exercises")
    return tmp_path / ".progress.json"


@pytest.fixture
def listed(capsys):
    """Return a function that returns what `progress` prints."""

    def listed(*args):
        capsys.readouterr()
        progress(*args)
        return capsys.readouterr().out

    return listed


def test_progress_lists_the_last_verdicts(file, listed):
    check(RIGHT)
    check(wrong, "dot")
    check(lambda q, k: q @ k.mT, "dot_product_scores")

    def dot_product_scores(q, k):
        raise NotImplementedError("your turn")

    check(dot_product_scores)  # run again from an older copy: what was solved stays solved
    assert json.loads(file.read_text()) == {"dot": "wrong", "dot_product_scores": "correct"}
    out = listed()
    assert out.startswith("Lesson 01: 1 of ") and out.splitlines()[-1].startswith("All: 1 of ")
    assert "❌ 1.1 dot\n   ✅ 1.2 dot_product_scores\n   ⏳ 1.3 cosine_similarity\n" in out
    assert "Lesson 02: 0 of " in out and "⏳ 2.1 " in out


def test_the_lesson_asked_for_and_all_others_have_a_line_each(file, listed):
    check(RIGHT)
    check(wrong, "dot_product_scores")
    mine, others = listed(1).splitlines()
    assert mine.startswith("Lesson 01: 1 of ") and "✅ 1.1  ❌ 1.2  ⏳ 1.3" in mine
    assert mine.endswith("Next: 1.2 dot_product_scores")
    assert others.startswith("Other lessons: 0 of ") and "01" not in others
    for lesson in ("6b", "06b"):
        mine, others = listed(lesson).splitlines()
        assert mine.startswith("Lesson 06b: 0 of ") and "  01: 1 of " in others
    with pytest.raises(ValueError, match="lesson must be one of 1, 2, .*, got '6c'"):
        progress("6c")


def test_in_a_notebook_the_lines_link_to_the_next_exercise_and_to_other_notebooks(
    file, monkeypatch
):
    shown = []
    monkeypatch.setattr(stored, "get_ipython", lambda: "a shell")
    monkeypatch.setattr(stored, "display", lambda data, **_: shown.append(data["text/html"]))
    source = ROOT / "exercises" / "01_exercises_dot_product_similarity.ipynb"
    cells = json.loads(source.read_text(encoding="utf-8"))["cells"]
    second = next(cell["id"] for cell in cells if cell["source"][0].startswith("## 1.2 "))
    check(RIGHT)
    progress(1)  # without the notebooks, as on Colab
    shutil.copy(source, file.parent / "exercises")
    progress(1)
    progress(2)
    (file.parent / "exercises" / source.name).write_text("{")  # while JupyterLab saves it
    progress(1)
    link = f'<a href="#cell-id={second}">1.2 dot_product_scores</a>'
    assert [link in page for page in shown] == [False, True, False, False]
    assert [f'<a href="{source.name}">01: 1 of ' in page for page in shown[:3]] == [
        False,
        False,
        True,
    ]


def test_solutions_and_lessons_are_no_progress(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    check(RIGHT)
    assert not file.exists() and not Path("../.progress.json").exists()


DAMAGED = ["", "{", "[1]", "null", "\x00\xff", "[" * 100_000, "<<<<<<< HEAD\n{}"]


@pytest.mark.parametrize("content", DAMAGED, ids=lambda content: content[:8])
def test_a_damaged_file_is_renamed_and_progress_says_so(file, listed, content):
    file.write_text(content)
    assert "damaged" in listed() and file.read_text() == content
    assert check(RIGHT).message == "✅ 1.1 dot: correct"
    assert json.loads(file.read_text()) == {"dot": "correct"}
    assert file.with_name(".progress.json.damaged").read_text() == content
    out = listed()
    assert ".progress.json.damaged" in out and "Lesson 01: 1 of " in out
    file.write_text("{")
    check(RIGHT)  # a second one does not replace the first
    assert file.with_name(".progress.json.damaged").read_text() == content
    assert file.with_name(".progress.json.damaged1").read_text() == "{"


def test_what_is_no_verdict_is_left_out(file, listed):
    later = {"from_a_later_lesson": "wrong"}  # the update that brought it may come back
    file.write_text(json.dumps({"dot": ["correct"], "scale": None, "split_heads": "done"} | later))
    assert "⏳ 1.1 dot\n" in listed()
    check(EXERCISES["dot_product_scores"].reference)
    assert json.loads(file.read_text()) == later | {"dot_product_scores": "correct"}


def test_what_cannot_be_read_is_left_as_it_is(file, listed):
    file.mkdir()
    (file / "mine").touch()
    verdict = check(RIGHT)
    assert verdict.status == "correct" and "could not be saved" in verdict.message
    out = listed()
    assert "cannot be read" in out and "could not be saved" in out and "\nAll: 0 of " in out
    assert sorted(os.listdir(file.parent)) == [".progress.json", "exercises"]


def fails(*_, **__):
    raise OSError(28, "No space left on device")


def writes_half(entries, file, **_):
    file.write("{")
    fails()


@pytest.mark.parametrize(
    "module, name, broken",
    [(tempfile, "mkstemp", fails), (json, "dump", writes_half), (os, "replace", fails)],
)
def test_a_full_disk_loses_no_old_verdict(file, listed, monkeypatch, module, name, broken):
    check(RIGHT)
    with monkeypatch.context() as context:
        context.setattr(module, name, broken)
        message = check(wrong, "dot").message
    assert message.startswith("❌ 1.1 dot") and "No space left" in message
    assert "could not be saved: [Errno 28] No space left" in listed()
    assert stored.load() == {"dot": "correct"}  # the old progress, whole
    assert sorted(os.listdir(file.parent)) == [".progress.json", "exercises"]
    assert "could not be saved" not in check(wrong, "dot").message  # there is space again
    assert stored.load() == {"dot": "wrong"} and "could not be saved" not in listed()


def test_the_stop_button_loses_no_old_verdict(file, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    check(RIGHT)
    monkeypatch.setattr(json, "dump", stopped)
    with pytest.raises(KeyboardInterrupt):
        check(wrong, "dot")
    assert stored.load() == {"dot": "correct"}
    assert sorted(os.listdir(file.parent)) == [".progress.json", "exercises"]


@pytest.mark.skipif(os.name == "nt", reason="Windows removes no folder that is in use")
def test_a_folder_removed_and_made_again_is_found_again(file, listed):
    check(RIGHT)
    folder = Path.cwd()
    folder.rmdir()
    folder.mkdir()
    with pytest.raises(OSError):
        Path.cwd()  # the kernel is still in the removed one
    assert check(lambda q, k: q @ k.mT, "dot_product_scores").status == "correct"
    assert stored.load() == {"dot": "correct", "dot_product_scores": "correct"}
    assert listed().startswith("Lesson 01: 2 of ")


# Several kernels


KERNEL = """
import sys
sys.path.append(sys.argv[2])
import json_store  # alone: it needs no PyTorch
print("ready", flush=True)
sys.stdin.read()
for number in range(50):
    verdict = {f"{sys.argv[1]}.{number}": "correct"}
    json_store.update(".progress.json", lambda entries: entries | verdict)
"""


def test_kernels_at_once_lose_no_verdict(file):
    folder = str(Path(json_store.__file__).parent)
    arguments = [[sys.executable, "-c", KERNEL, name, folder] for name in "ab"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with contextlib.ExitStack() as stack:
        kernels = [stack.enter_context(subprocess.Popen(each, **pipes)) for each in arguments]
        for kernel in kernels:
            kernel.stdout.readline()
        for kernel in kernels:  # all have imported: now at once
            kernel.stdin.close()
    assert [kernel.returncode for kernel in kernels] == [0, 0]
    assert set(stored.load()) == {f"{name}.{number}" for name in "ab" for number in range(50)}


@pytest.mark.skipif(json_store.fcntl is None, reason="Windows locks otherwise")
def test_a_kernel_that_hangs_with_the_lock_blocks_no_other(file, monkeypatch):
    monkeypatch.setattr(json_store, "LOCK_TRIES", 3)
    with json_store._locked():
        check(RIGHT)
    assert stored.load() == {"dot": "correct"}


def test_where_no_file_can_be_locked_verdicts_are_saved_at_once(file, monkeypatch):
    monkeypatch.setattr(json_store, "_lock", fails)
    monkeypatch.setattr(json_store.time, "sleep", None)  # it would not help
    check(RIGHT)
    assert stored.load() == {"dot": "correct"}
