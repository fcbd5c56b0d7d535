"""Progress: the last verdicts are remembered, whatever becomes of their file."""

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

import pytest

from course_utils import check, json_store, progress
from course_utils.checks.exercise import EXERCISES

# the module; its function of the same name hides it
saved = importlib.import_module("course_utils.checks.progress")

RIGHT = EXERCISES["dot"].reference


@pytest.fixture
def in_exercises(tmp_path, monkeypatch):
    monkeypatch.setattr(saved, "trouble", None)
    folder = tmp_path / "exercises"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return tmp_path / ".progress.json"


def test_progress_remembers_the_last_verdicts(in_exercises, capsys):
    check(lambda a, b: a @ b, "dot")
    check(lambda a, b: a * b, "dot")
    check(lambda q, k: q @ k.mT, "dot_product_scores")

    def dot_product_scores(q, k):
        raise NotImplementedError("your turn")

    check(dot_product_scores)  # the cell run again from an older copy: what was solved stays
    assert json.loads(in_exercises.read_text()) == {
        "dot": "wrong",
        "dot_product_scores": "correct",
    }
    progress()
    out = capsys.readouterr().out
    assert out.startswith("Lesson 01: 1 of ")
    assert "❌ 1.1 dot\n   ✅ 1.2 dot_product_scores\n   ⏳ 1.3 cosine_similarity\n" in out
    assert "Lesson 02: 0 of " in out and "⏳ 2.1 " in out
    assert out.splitlines()[-1].startswith("All: 1 of ")


def test_the_lesson_asked_for_comes_first_and_alone_in_full(in_exercises, capsys):
    check(RIGHT)
    progress(3)
    first, *listed, last = capsys.readouterr().out.splitlines()
    assert first.startswith("Lesson 03: 0 of ") and last.startswith("All: 1 of ")
    others = [line for line in listed if not line.startswith("   ⏳ 3.")]
    assert [line[:11] for line in others] == [
        f"Lesson {name}: "[:11] for name in "01 02 04 05 06 06b 07 08 09 10 10b 11".split()
    ]
    assert others[0].startswith("Lesson 01: 1 of ")
    with pytest.raises(ValueError, match="lesson must be one of 1, 2, .*, 11, got '03'"):
        progress("03")


def test_solutions_and_lessons_are_no_progress(tmp_path, monkeypatch):
    (tmp_path / "solutions").mkdir()
    monkeypatch.chdir(tmp_path / "solutions")
    check(RIGHT)
    assert not (tmp_path / ".progress.json").exists()


@pytest.mark.parametrize(
    "content",
    ["", "{", "[1]", "null", "\x00\xff", "[" * 100_000, '{"dot":' * 100_000, "9" * 10_000],
    ids=lambda content: content[:8],
)
def test_a_damaged_file_is_no_obstacle(in_exercises, content, capsys):
    in_exercises.write_text(content)
    progress()
    assert capsys.readouterr().out.startswith("Lesson 01: 0 of ")
    check(RIGHT)
    assert saved.load() == {"dot": "correct"}


@pytest.mark.parametrize("value", [["correct"], {"correct": 1}, 3, None, True, "done", ""])
def test_what_is_no_verdict_is_left_out(in_exercises, value, capsys):
    in_exercises.write_text(
        json.dumps({"dot": value, "scale": "wrong", "from_a_later_lesson": "wrong"})
    )
    progress()
    assert "⏳ 1.1 dot\n" in capsys.readouterr().out
    check(EXERCISES["dot_product_scores"].reference)
    assert json.loads(in_exercises.read_text()) == {
        "scale": "wrong",
        "from_a_later_lesson": "wrong",  # the update that brought it may come back
        "dot_product_scores": "correct",
    }


def test_what_cannot_be_read_is_told_and_not_written_over(in_exercises, capsys):
    in_exercises.mkdir()
    (in_exercises / "mine").touch()
    assert check(RIGHT).status == "correct"
    progress()
    out = capsys.readouterr().out
    assert "cannot be read" in out and "could not be saved" in out and "\nAll: 0 of " in out
    assert sorted(os.listdir(in_exercises.parent)) == [".progress.json", "exercises"]


def fails(*_, **__):
    raise OSError(28, "No space left on device")


def half(statuses, file, **_):
    file.write("{")
    fails()


@pytest.mark.parametrize(
    "holder, name, broken",
    [(tempfile, "mkstemp", fails), (json, "dump", half), (os, "replace", fails)],
)
def test_a_full_disk_or_a_read_only_folder_spoils_no_check(
    in_exercises, monkeypatch, capsys, holder, name, broken
):
    check(RIGHT)
    with monkeypatch.context() as context:
        context.setattr(holder, name, broken)
        assert check(lambda a, b: a * b, "dot").status == "wrong"
    assert saved.load() == {"dot": "correct"}  # the old progress, whole
    assert sorted(os.listdir(in_exercises.parent)) == [".progress.json", "exercises"]
    progress()
    assert "could not be saved: [Errno 28] No space left" in capsys.readouterr().out
    check(lambda a, b: a * b, "dot")  # there is space again
    progress()
    assert "could not be saved" not in capsys.readouterr().out
    assert saved.load() == {"dot": "wrong"}


def test_pressing_stop_while_saving_leaves_the_old_progress(in_exercises, monkeypatch):
    check(RIGHT)

    def stopped(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(json, "dump", stopped)
        with pytest.raises(KeyboardInterrupt):
            check(lambda a, b: a * b, "dot")
    assert saved.load() == {"dot": "correct"}
    assert sorted(os.listdir(in_exercises.parent)) == [".progress.json", "exercises"]
    check(lambda a, b: a * b, "dot")
    assert saved.load() == {"dot": "wrong"}


@pytest.mark.skipif(os.name == "nt", reason="Windows removes no folder that is in use")
def test_a_folder_removed_and_made_again_is_found_again(in_exercises, monkeypatch, capsys):
    check(RIGHT)
    folder = Path.cwd()
    folder.rmdir()
    folder.mkdir()
    with pytest.raises(OSError):
        Path.cwd()  # the kernel is still in the removed one
    assert check(lambda q, k: q @ k.mT, "dot_product_scores").status == "correct"
    assert saved.load() == {"dot": "correct", "dot_product_scores": "correct"}
    progress()
    assert capsys.readouterr().out.startswith("Lesson 01: 2 of ")


@pytest.mark.skipif(os.name == "nt", reason="Windows removes no folder that is in use")
def test_a_kernel_that_begins_in_a_removed_folder_checks_as_well(in_exercises, monkeypatch, capsys):
    monkeypatch.setattr(json_store, "_last_folder", Path())
    Path.cwd().rmdir()
    assert check(RIGHT).status == "correct"
    progress()
    assert capsys.readouterr().out.startswith("Lesson 01: 0 of ")


# Two kernels


KERNEL = """
import sys
from course_utils.checks.progress import record
print("ready", flush=True)
sys.stdin.read()
for number in range(50):
    record(f"{sys.argv[1]}.{number}", "correct")
"""


def test_kernels_at_once_lose_no_verdict(in_exercises):
    arguments = [[sys.executable, "-c", KERNEL, name] for name in "ab"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with contextlib.ExitStack() as closing:
        kernels = [closing.enter_context(subprocess.Popen(each, **pipes)) for each in arguments]
        for kernel in kernels:
            kernel.stdout.readline()
        for kernel in kernels:  # all have imported: now at once
            kernel.stdin.close()
    assert [kernel.returncode for kernel in kernels] == [0] * 2
    assert set(saved.load()) == {f"{name}.{number}" for name in "ab" for number in range(50)}


needs_flock = pytest.mark.skipif(json_store.fcntl is None, reason="Windows locks otherwise")


@needs_flock
def test_a_kernel_that_hangs_with_the_lock_blocks_no_other(in_exercises, monkeypatch):
    monkeypatch.setattr(json_store, "TRIES", 3)
    with json_store._alone():
        check(RIGHT)
    assert saved.load() == {"dot": "correct"}


@needs_flock
def test_where_there_are_no_locks_a_verdict_is_saved_without_and_at_once(in_exercises, monkeypatch):
    def no_locks(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(json_store.fcntl, "flock", no_locks)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waited"))
    saved.record("dot", "correct")
    assert saved.load() == {"dot": "correct"}


def test_windows_locks_a_byte_that_nobody_reads(in_exercises, monkeypatch):
    tries = []

    def locking(descriptor, mode, size):
        tries.append((os.lseek(descriptor, 0, os.SEEK_CUR), mode, size))
        if len(tries) < 3:
            raise PermissionError(13, "Permission denied")  # another kernel has it

    windows = types.SimpleNamespace(locking=locking, LK_NBLCK="at once or not at all")
    monkeypatch.setattr(json_store, "fcntl", None)
    monkeypatch.setattr(json_store, "msvcrt", windows, raising=False)
    saved.record("dot", "correct")
    assert tries == [(2**30, "at once or not at all", 1)] * 3
    assert saved.load() == {"dot": "correct"}


def test_the_file_is_ignored_by_git():
    root = Path(saved.__file__).parents[2]
    assert ".progress.json*" in (root / ".gitignore").read_text().split()
