"""The folder of someone who installed the package: what is put there, and what an update keeps."""

import os
import shutil
import subprocess
import sys
import time
import zipfile

import nbformat
import pytest
from jupyterlab.labapp import LabApp
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_utils import command, course_folder, grade, model_file
from stored_notebooks import EXERCISES, LESSONS, ROOT, SOLUTIONS

STUB = "raise NotImplementedError"
LESSON = "notebooks/04.ipynb"
EXERCISE = "exercises/04.ipynb"


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """What the installed version ships: a lesson and its exercise."""
    shipped = tmp_path / "shipped"
    monkeypatch.setattr(course_folder, "SHIPPED", shipped)
    store(shipped / LESSON, "mask = 1")
    store(shipped / EXERCISE, STUB)
    return shipped


@pytest.fixture
def folder(shipped, tmp_path):
    """A learner's folder, in which the course was started."""
    folder = tmp_path / "L'été à 100%"
    course_folder.start(folder)
    return folder


def store(path, code, *new, shown="1\n"):
    cells = [
        new_markdown_cell("Intent", id="a"),
        new_code_cell(code, id="b", execution_count=1, outputs=[new_output("stream", text=shown)]),
        new_markdown_cell("Reading", id="c"),
        *new,
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells), path)


def sources(path):
    return [cell.source for cell in nbformat.read(path, as_version=4).cells]


def everything(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


NEW = new_markdown_cell("One more idea", id="e")


def test_starting_again_changes_nothing_and_brings_back_what_was_deleted(folder, shipped):
    store(folder / EXERCISE, "return a @ b")
    (folder / LESSON).unlink()
    (folder / "exercises" / "mine.ipynb").write_text("mine")
    before = everything(folder)
    assert not course_folder.start(folder)
    after = everything(folder)
    assert after.pop(folder / LESSON) == (shipped / LESSON).read_bytes()
    assert after == before


def test_what_a_start_brings_back_is_new_and_updated_like_the_rest(folder, shipped):
    (folder / EXERCISE).unlink()
    store(shipped / EXERCISE, STUB, NEW)
    assert not course_folder.start(folder)  # nothing there is old
    store(folder / EXERCISE, "return a @ b", NEW)
    store(shipped / EXERCISE, STUB, new_markdown_cell("A better idea", id="e"))
    course_folder.update(folder)
    assert sources(folder / EXERCISE) == ["Intent", "return a @ b", "Reading", "A better idea"]


def test_a_start_writes_over_nothing_that_it_did_not_put_there(shipped, tmp_path):
    (tmp_path / "mine" / "exercises").mkdir(parents=True)
    (tmp_path / "mine" / EXERCISE).write_text("mine")
    course_folder.start(tmp_path / "mine")
    assert not (tmp_path / "mine" / course_folder.BASE / EXERCISE).exists()  # it is not ours
    store(shipped / EXERCISE, STUB, NEW)
    assert "it stays as it is" in course_folder.update(tmp_path / "mine")[0]
    assert (tmp_path / "mine" / EXERCISE).read_text() == "mine"


def test_an_update_keeps_the_answer_and_brings_the_new_text_and_outputs(folder, shipped, capsys):
    store(folder / EXERCISE, "return a @ b", shown="2\n")
    answered = (folder / EXERCISE).read_bytes()
    store(shipped / EXERCISE, STUB, NEW, shown="3\n")
    store(shipped / LESSON, "mask = 2")
    assert course_folder.start(folder)  # it says that there is a newer version, and waits
    assert (folder / EXERCISE).read_bytes() == answered

    store(shipped / "notebooks" / "14.ipynb", "new = True")
    command.main(["update", str(folder)])
    said = capsys.readouterr().out
    assert all(name in said for name in [EXERCISE, LESSON, "14.ipynb"])
    assert sources(folder / EXERCISE) == ["Intent", "return a @ b", "Reading", "One more idea"]
    assert nbformat.read(folder / EXERCISE, as_version=4).cells[1].outputs[0].text == "3\n"
    assert sources(folder / LESSON)[1] == "mask = 2"
    assert sources(folder / "notebooks" / "14.ipynb")[1] == "new = True"
    (kept,) = folder.glob(f"before_update/*/{EXERCISE}")
    assert kept.read_bytes() == answered
    assert not course_folder.update(folder) and not course_folder.start(folder)


def test_a_second_update_keeps_what_the_first_kept(folder, shipped):
    for pause, answer in [(0, "return a @ b"), (1, "return b @ a")]:
        time.sleep(pause)
        store(folder / EXERCISE, answer)
        store(shipped / EXERCISE, STUB, new_markdown_cell(f"After {answer}", id="e"))
        course_folder.update(folder)
    kept = folder.glob(f"before_update/*/{EXERCISE}")
    assert {sources(path)[1] for path in kept} == {"return a @ b", "return b @ a"}


def test_an_update_that_is_cut_off_leaves_the_old_text_and_can_be_repeated(
    folder, shipped, monkeypatch
):
    def fail(*_):
        raise OSError("cut off")

    before = everything(folder)
    store(shipped / LESSON, "mask = 2")
    with monkeypatch.context() as full, pytest.raises(OSError, match="cut off"):
        full.setattr(os, "replace", fail)
        course_folder.update(folder)
    assert {path: path.read_bytes() for path in before} == before
    course_folder.update(folder)
    assert sources(folder / LESSON)[1] == "mask = 2"


def test_an_update_tells_what_was_deleted_from_what_is_new(folder, shipped):
    (folder / LESSON).unlink()
    store(shipped / "notebooks" / "14.ipynb", "new = True")
    back, new = course_folder.update(folder)
    assert LESSON in back and "deleted" in back and (folder / LESSON).exists()
    assert "14.ipynb" in new and "is new" in new


def test_a_cell_that_both_sides_changed_shows_both_versions(folder, shipped):
    store(folder / EXERCISE, "return a @ b")
    store(shipped / EXERCISE, "return (a * b).sum()", NEW)
    assert "CONFLICT" in course_folder.update(folder)[0]
    both = sources(folder / EXERCISE)[1]
    assert "<<<<<<<" in both and "return a @ b" in both and "return (a * b).sum()" in both
    assert sources(folder / EXERCISE)[-1] == "One more idea"


def test_a_damaged_notebook_stays_as_it_is_until_it_is_repaired(folder, shipped):
    store(folder / EXERCISE, "return a @ b")
    whole = (folder / EXERCISE).read_bytes()
    (folder / EXERCISE).write_bytes(whole[:-9])
    store(shipped / EXERCISE, STUB, NEW)
    assert "cannot be merged" in course_folder.update(folder)[0]
    assert (folder / EXERCISE).read_bytes() == whole[:-9]
    (folder / EXERCISE).write_bytes(whole)
    course_folder.update(folder)
    assert sources(folder / EXERCISE) == ["Intent", "return a @ b", "Reading", "One more idea"]


def test_a_notebook_that_left_the_course_stays_only_if_it_has_an_answer(folder, shipped):
    store(folder / EXERCISE, "return a @ b")
    for name in [EXERCISE, LESSON]:
        (shipped / name).unlink()
    assert len(course_folder.update(folder)) == 2
    assert sources(folder / EXERCISE)[1] == "return a @ b" and not (folder / LESSON).exists()
    assert not course_folder.update(folder)


@pytest.mark.parametrize("name", ["a clone", "another folder"])
def test_only_a_folder_that_was_started_is_updated(shipped, tmp_path, name, capsys):
    if name == "a clone":
        (tmp_path / "install.py").touch()
        course_folder.start(tmp_path)
        assert not (tmp_path / "exercises").exists()  # a clone is left to git
    way = "git" if name == "a clone" else "has no"
    with pytest.raises(SystemExit, match=f"folder must be one that .* made.*{way}"):
        command.main(["update", str(tmp_path)])


def test_in_a_terminal_of_jupyterlab_no_second_jupyterlab_is_opened(
    shipped, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("JUPYTER_SERVER_ROOT", str(tmp_path))
    command.main(["start", str(tmp_path / "mine")])
    assert (tmp_path / "mine" / EXERCISE).exists()
    shown = capsys.readouterr().out
    assert "file browser" in shown and "attention-course update" not in shown
    store(shipped / LESSON, "mask = 2")
    command.main(["start", str(tmp_path / "mine")])
    assert f"attention-course update {tmp_path / 'mine'}" in capsys.readouterr().out


def test_the_value_of_an_option_is_not_taken_for_the_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        command.main(["start", "--port", "8889"])
    assert "write --port=8889" in capsys.readouterr().err and not any(tmp_path.iterdir())


@pytest.mark.parametrize("user", [0, 1000])
def test_a_start_opens_the_folder_also_for_root(shipped, tmp_path, monkeypatch, user, capsys):
    opened = []
    monkeypatch.delenv("JUPYTER_SERVER_ROOT", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: user, raising=False)
    monkeypatch.setattr(
        LabApp, "launch_instance", lambda words: opened.extend([*words, os.getcwd()])
    )
    mine = tmp_path / "mine"
    monkeypatch.chdir(tmp_path)  # and back, after the test
    command.main(["start", "mine", "--no-browser"])
    assert {".", "--no-browser", str(mine.resolve())} <= set(opened)
    assert ("--allow-root" in opened) == (user == 0)


@pytest.mark.parametrize("name", ["update", "model"])
def test_an_option_that_the_command_does_not_know_is_refused(folder, monkeypatch, name, capsys):
    monkeypatch.setattr(model_file, "fetch", lambda: None)
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit):
        command.main([name, "--dry-run"])
    assert "--dry-run" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_named_without_a_traceback(tmp_path):
    (tmp_path / "mine").write_text("a file")
    with pytest.raises(SystemExit, match="mine"):
        command.main(["start", str(tmp_path / "mine")])


def test_all_that_follows_grade_reaches_the_grader(monkeypatch):
    given = []
    monkeypatch.setattr(grade, "main", given.extend)
    command.main(["grade", "submitted", "--out", "grades.csv"])
    assert given == ["submitted", "--out", "grades.csv"]


@pytest.mark.slow
def test_the_installed_package_starts_the_course_in_an_empty_folder(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "installed")
    (tmp_path / "empty").mkdir()
    # JupyterLab, to which the last option goes, says its version and stops.
    start = [sys.executable, "-m", "course_utils.command", "start", "--version"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    environment.pop("JUPYTER_SERVER_ROOT", None)
    subprocess.run(start, cwd=tmp_path / "empty", env=environment, check=True)
    folder = tmp_path / "empty" / "attention-course"
    for path in LESSONS + EXERCISES + SOLUTIONS:
        assert (folder / path.relative_to(ROOT)).read_bytes() == path.read_bytes()
    shutil.rmtree(folder / "exercises")
    update = [*start[:-2], "update"]  # in the folder itself
    subprocess.run(update, cwd=folder, env=environment, check=True)
    assert len(list((folder / "exercises").iterdir())) == len(EXERCISES)
