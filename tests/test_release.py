"""What a release hands out: an archive for classes, in which no answer is found."""

import re
import zipfile

import nbformat
import pytest

from stored_notebooks import EXERCISES, LESSONS, ROOT, SOLUTIONS, code, read
from tools.release import write_archives

ANSWER = re.compile(r"### BEGIN SOLUTION\n(.*?)\s*### END SOLUTION", re.S)


def on_one_line(text):
    return " ".join(text.split())


def text_of(path, content):
    if path.endswith(".ipynb"):
        content = "\n".join(cell.source for cell in nbformat.reads(content, as_version=4).cells)
    return on_one_line(content)


@pytest.mark.slow
def test_the_archive_for_classes_has_all_lessons_and_exercises_and_no_answer(tmp_path):
    _, without_solutions = write_archives(tmp_path, "1.0.0")
    with zipfile.ZipFile(without_solutions) as archive:
        paths = {name.partition("/")[2]: name for name in archive.namelist()}
        for path in LESSONS + EXERCISES:
            assert path.relative_to(ROOT).as_posix() in paths
        texts = {
            path: text_of(path, archive.read(name).decode())
            for path, name in paths.items()
            if path.endswith((".ipynb", ".js", ".json", ".md", ".py", ".txt"))
        }
    answers = [
        on_one_line(found[1])
        for path in SOLUTIONS
        for cell in code(read(path))
        for found in ANSWER.finditer(cell.source)
    ]
    assert answers
    found = {path for path, text in texts.items() for each in answers if each in text}
    # A few exercises ask for what a lesson builds, and the checks need a right answer.
    found -= {path for path in found if path.startswith(("notebooks/", "course_utils/"))}
    assert not found and not [path for path in paths if "solutions" in path.split("/")[0]]
