"""Updating the course with git: what `make lab` sets up keeps answers and brings the new text."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).parents[1]
FILE = "lesson.ipynb"


@pytest.fixture
def git(tmp_path):
    def run(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        done = subprocess.run(["git", *who, *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    (driver,) = re.findall(
        r'merge\.jupyternotebook\.driver "(.*)";', (ROOT / "Makefile").read_text()
    )
    run("init", "-qb", "main")
    run(
        "config",
        "merge.jupyternotebook.driver",
        driver.replace("$(BIN)", str(Path(sys.executable).parent)),
    )
    (tmp_path / ".gitattributes").write_text((ROOT / ".gitattributes").read_text())
    run("add", ".")
    return run


def test_an_update_keeps_the_answer_and_brings_new_cells_and_outputs(git, tmp_path):
    path = tmp_path / FILE

    def store(answer, time, *new):
        shown = new_output("stream", text=f"{time} seconds\n")
        cells = [
            new_markdown_cell("Intent", id="a"),
            new_code_cell(answer, id="b", execution_count=1),
            new_markdown_cell("Reading", id="c"),
            new_code_cell("measure()", id="d", execution_count=2, outputs=[shown]),
            *new,
        ]
        nbformat.write(new_notebook(cells=cells), path)
        git("add", ".")
        git("commit", "-qm", "stored")

    store("raise NotImplementedError", 1)
    git("switch", "-qc", "learner")
    store("return a @ b", 2)
    git("switch", "-q", "main")
    store("raise NotImplementedError", 3, new_markdown_cell("One more idea", id="e"))
    git("switch", "-q", "learner")
    git("merge", "-q", "--no-edit", "main")

    cells = nbformat.read(path, as_version=4).cells
    assert [cell.source for cell in cells] == [
        "Intent", "return a @ b", "Reading", "measure()", "One more idea",
    ]  # fmt: skip
    assert cells[3].outputs[0].text == "3 seconds\n"
