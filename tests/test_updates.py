"""Updating the course with git: what the installer sets up keeps answers and brings new text."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import install
from stored_notebooks import ROOT

FILE = "lesson.ipynb"
# What a shell, git's configuration or its placeholders might take apart.
FOLDER = "L'été à 100%P, $HOME über\\x"


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A clone in a folder with a difficult name, and in it the Python that git is to run."""
    if os.name == "nt":
        pytest.skip("Windows has no folder of that name, nor commands that are scripts")
    course = tmp_path / FOLDER
    course.mkdir()
    for name in [".gitattributes", ".gitignore", "install.py"]:
        shutil.copy(install.ROOT / name, course)
    (course / ".venv").mkdir()
    python = course / ".venv" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(install, "ROOT", course)
    git = runner(course)
    git("init", "-qb", "main")
    git("add", ".")
    install.set_up_git(python)
    return course


def runner(course):
    def git(*words, fails=False):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        done = subprocess.run(["git", *who, *words], cwd=course, capture_output=True, text=True)
        assert bool(done.returncode) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    return git


def store(course, answer, time, *new):
    """Write and commit a lesson: an answer, the time its last cell took, and new cells."""
    shown = new_output("stream", text=f"{time} seconds\n")
    cells = [
        new_markdown_cell("Intent", id="a"),
        new_code_cell(answer, id="b", execution_count=1),
        new_markdown_cell("Reading", id="c"),
        new_code_cell("measure()", id="d", execution_count=2, outputs=[shown]),
        *new,
    ]
    nbformat.write(new_notebook(cells=cells), course / FILE)
    git = runner(course)
    git("add", ".")
    git("commit", "-qm", "stored")


def diverge(course, update="raise NotImplementedError"):
    """Commit an answer on the learner's branch, and on main an update with one cell more."""
    git = runner(course)
    store(course, "raise NotImplementedError", 1)
    git("switch", "-qc", "learner")
    store(course, "return a @ b", 2)
    git("switch", "-q", "main")
    store(course, update, 3, new_markdown_cell("One more idea", id="e"))
    git("switch", "-q", "learner")
    return git


def cells(course):
    return nbformat.read(course / FILE, as_version=4).cells


def test_an_update_keeps_the_answer_and_brings_new_cells_and_outputs(course):
    git = diverge(course)
    git("merge", "-q", "--no-edit", "main")
    assert [cell.source for cell in cells(course)] == [
        "Intent", "return a @ b", "Reading", "measure()", "One more idea",
    ]  # fmt: skip
    assert cells(course)[3].outputs[0].text == "3 seconds\n"


def test_a_cell_that_both_sides_changed_shows_both_versions_until_one_is_committed(course):
    text = (ROOT / "LEARNING.md").read_text(encoding="utf-8")
    commands = re.search(r"```\n(git commit .*?)```", text, re.S)[1].splitlines()
    commit, pull = (shlex.split(command)[1:] for command in commands)
    git = diverge(course, update="return (a * b).sum()")
    git("reset", "-q", "--soft", "HEAD~1")  # the answer is saved, not yet committed
    git("branch", "--set-upstream-to=main")
    git(*commit)
    assert "CONFLICT" in git(*pull, fails=True)
    both = cells(course)[1].source
    assert "<<<<<<<" in both and "return a @ b" in both and "return (a * b).sum()" in both
    assert cells(course)[-1].source == "One more idea"
    git("commit", "-qam", "Keep my answer")
    assert git("symbolic-ref", "--short", "HEAD").strip() == "learner"
    git("merge-base", "--is-ancestor", "main", "HEAD")
    assert not git("status", "--porcelain")


def test_where_the_environment_is_gone_no_side_of_an_update_is_lost(course):
    git = diverge(course)
    (course / ".venv").rename(course / ".venv.away")
    assert "not found" in git("merge", "-q", "--no-edit", "main", fails=True)
    text = (course / FILE).read_text()
    assert all(part in text for part in ["<<<<<<<", "return a @ b", "One more idea"])
    # What LEARNING.md advises: give up this merge, install again, merge again.
    git("merge", "--abort")
    (course / ".venv.away").rename(course / ".venv")
    git("merge", "-q", "--no-edit", "main")
    assert [cells(course)[i].source for i in (1, -1)] == ["return a @ b", "One more idea"]


def test_git_shows_what_changed_cell_by_cell(course):
    store(course, "raise NotImplementedError", 1)
    path = course / FILE
    path.write_text(path.read_text().replace("raise NotImplementedError", "return a @ b"))
    shown = runner(course)("diff")
    assert "modified /cells/1/source" in shown and "return a @ b" in shown


def test_git_takes_notebooks_for_what_they_are_and_leaves_out_what_is_made(course, capfd):
    install.set_up_git(course / ".venv" / "python")
    assert capfd.readouterr() == ("", "")  # it is silent
    git = runner(course)
    told = git("check-attr", "diff", "merge", "--", "exercises/01.ipynb", "x.ipynb")
    assert told.count(": jupyternotebook\n") == 4
    made = [".venv/bin/python", ".progress.json", ".predictions.json"]
    made += ["exercises/.ipynb_checkpoints/x.ipynb"]
    assert git("check-ignore", *made).split() == made


@pytest.mark.parametrize("path", ["/nowhere", None], ids=["without git", "not a clone"])
def test_without_git_or_a_clone_the_installer_only_says_so(path, monkeypatch, tmp_path, capfd):
    if path:
        monkeypatch.setenv("PATH", path)
    else:
        monkeypatch.setattr(install, "ROOT", tmp_path)
    install.set_up_git(Path(sys.executable))
    assert "Git" in capfd.readouterr().out
