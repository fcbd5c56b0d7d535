"""What a release hands out: what was committed, and an archive for classes without answers."""

import re
import subprocess
import sys
import zipfile

import nbformat
import pytest

from stored_notebooks import EXERCISES, LESSONS, ROOT, SOLUTIONS, code, read
from tools import release
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


NEWS = {"1.1.0": "A lesson.\n\n- An explorer.\n", "1.0.0": "The first release.\n"}


@pytest.mark.parametrize("version", NEWS)
@pytest.mark.slow
def test_a_release_is_made_from_what_is_committed_and_says_what_is_new_in_its_version(
    tmp_path, monkeypatch, version
):
    course, built = tmp_path / "course", []
    course.mkdir()
    news = "\n".join(f"## {each}\n\n{text}" for each, text in NEWS.items())
    (course / "CHANGELOG.md").write_text(f"# Changelog\n\n{news}")
    (course / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    exercise = course / "exercise"
    exercise.write_text("your turn")
    settings = ["user.name=A", "user.email=a@b.c", "commit.gpgsign=false"]
    git = ["git", *(word for setting in settings for word in ("-c", setting))]
    for command in [["init", "-q"], ["add", "."], ["commit", "-qm", "Write an exercise"]]:
        subprocess.run([*git, *command], cwd=course, check=True)
    exercise.write_text("an answer")
    run = subprocess.run

    def building(command, cwd, **rest):
        if command[0] != sys.executable:
            return run(command, cwd=cwd, **rest)
        built.append(command)
        assert (cwd / "exercise").read_text() == "your turn", "an answer gets into the release"
        (cwd / "build" / "site").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(subprocess, "run", building)
    for name, path in [("ROOT", "."), ("RELEASE", "out"), ("NOTES", "notes.md")]:
        monkeypatch.setattr(release, name, course / path)
    monkeypatch.setattr(sys, "argv", ["release"])
    release.main()
    assert len(built) == 2  # the wheel and the website
    assert (course / "notes.md").read_text().strip() == NEWS[version].strip()
    assert len([*(course / "out").iterdir()]) == 3
