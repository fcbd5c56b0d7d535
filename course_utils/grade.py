"""Grade a class: attention-course grade submitted --out grades.csv

Only the source of the answers is taken from a submission. It runs in a process of its own, and
this process compares what the answers return.
"""

import argparse
import csv
import html
import re
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from course_utils.checks.exercise import EXERCISES
from course_utils.checks.progress import MARKS
from course_utils.course_folder import SHIPPED
from course_utils.grading.students import MEMORY, Students
from course_utils.grading.submissions import Assignment, Unreadable, read_cells, submissions

NOTEBOOK = 120  # seconds, for all exercises of a notebook together; most take three
TOO_LONG = (
    f"not graded, because the exercises before it took {NOTEBOOK} seconds; the cells above an "
    "answer run again for each, so is there a sleep() or a long computation at the top?"
)


@dataclass
class Result:
    """A student's notebooks, verdicts (status, hint) by exercise, and messages for the teacher."""

    paths: list
    verdicts: dict
    messages: list

    @property
    def points(self):
        return sum(status == "correct" for status, _ in self.verdicts.values())

    def summary(self, student):
        return _printable(f"{student}: {self.points} of {len(self.verdicts)} points")


def grade(runner, paths, assignments):
    """Judge a student's answers in the process of a `Students`; return a `Result`."""
    verdicts, messages = {}, []
    for path in paths:
        try:
            cells = read_cells(path)
            answered = {each: each.answered_in(cells) for each in assignments}
            assignment = max(assignments, key=lambda each: len(answered[each]))
            if not answered[assignment]:
                raise Unreadable("it answers no exercise of this course")
            if verdicts.keys() & assignment.ids.keys():
                raise Unreadable("another notebook answers the same exercises")
        except (Unreadable, OSError) as error:
            messages.append(f"{path.name}: {error}")
            continue
        end = time.monotonic() + NOTEBOOK
        for name in assignment.ids:
            number = answered[assignment].get(name)
            try:
                if time.monotonic() > end:
                    raise Unreadable(TOO_LONG)
                if number is None:
                    raise Unreadable("its cell is missing")
                code = assignment.code(cells, number)
                verdicts[name] = runner.judge(EXERCISES[name], code, assignment.imports)
            except Unreadable as error:
                verdicts[name] = "wrong", str(error)
    runner.stop()
    if not paths:
        messages.append("there is no notebook")
    broken = [name for name, (status, _) in verdicts.items() if status == "not checked"]
    messages += [f"{name} could not be checked: read it yourself" for name in broken]
    return Result(paths, verdicts, messages)


def save_table(path, results, names):
    """Write a row for each student: points, one column for each exercise, and messages."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["student", "points", *names, "message"])
        for student, each in results.items():
            points = {name: int(status == "correct") for name, (status, _) in each.verdicts.items()}
            row = [each.points, *(points.get(name, "") for name in names)]
            writer.writerow([_no_formula(student), *row, _no_formula("; ".join(each.messages))])


def _no_formula(text):
    text = _printable(text)
    return f"'{text}" if text.startswith(tuple("=+-@＝＋－＠")) else text


def _printable(text):
    """Return a text without what could change or reorder the rest that a terminal shows."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", "?", text)


def save_page(folder, student, number, result):
    """Write a student's feedback as a page of HTML, in which nothing of theirs is markup."""
    lines = [
        f"{MARKS[status]} {EXERCISES[name].number} {name}: {hint}"
        for name, (status, hint) in result.verdicts.items()
    ] + result.messages
    title = html.escape(result.summary(student))
    items = "\n".join(f"<li>{html.escape(_printable(line))}</li>" for line in lines)
    safe = re.sub(r"[^\w.-]", "_", student)[:60]
    page = f'<!doctype html>\n<meta charset="utf-8">\n<title>{title}</title>\n'
    page += f"<h1>{title}</h1>\n<ul>\n{items}\n</ul>\n"
    (folder / f"{number:03}_{safe}.html").write_text(page, encoding="utf-8")


def save_points(database, results):
    """Write the points into nbgrader's gradebook; return the assignments that it does not know."""
    from nbgrader.api import Gradebook, MissingEntry

    unknown = set()
    with Gradebook(f"sqlite:///{database.resolve()}") as gradebook:
        for student, result in results.items():
            gradebook.update_or_create_student(student)
            for assignment in {path.parent.name for path in result.paths}:
                try:
                    submission = gradebook.update_or_create_submission(assignment, student)
                except MissingEntry:
                    unknown.add(assignment)
                    continue
                for grade in (each for book in submission.notebooks for each in book.grades):
                    status, _ = result.verdicts.get(grade.name, ("not attempted", ""))
                    grade.auto_score = grade.max_score * (status == "correct")
                    grade.needs_manual_grade = status == "not checked"
        gradebook.db.commit()
    return unknown


def main(arguments=None):
    """Grade all submissions in a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "folder", type=Path, help="with STUDENT.ipynb, or a folder for each student"
    )
    parser.add_argument("--out", type=Path, default=Path("grades.csv"))
    parser.add_argument("--gradebook", type=Path, help="nbgrader's gradebook.db, to add points to")
    given = parser.parse_args(arguments)
    if given.out.suffix != ".csv":  # without the suffix, it names the folder of pages
        parser.error(f"--out must end in .csv, got {given.out}")
    resource.setrlimit(resource.RLIMIT_DATA, (2 * MEMORY, resource.RLIM_INFINITY))
    torch.set_num_threads(1)
    assignments = [Assignment(path) for path in sorted((SHIPPED / "exercises").glob("*.ipynb"))]
    pages = given.out.with_suffix("")
    pages.mkdir(parents=True, exist_ok=True)
    students = submissions(given.folder)
    siblings = ("autograded", "feedback", "gradebook.db", "release", "source")
    hidden = [given.folder.resolve().parent / name for name in siblings]
    runner, results = Students([given.folder, given.out, pages, *hidden]), {}
    print(f"The answers run {runner.way[0]}.")
    try:
        for number, (student, paths) in enumerate(students.items(), 1):
            results[student] = result = grade(runner, paths, assignments)
            print(_printable("; ".join([result.summary(student), *result.messages])))
            save_page(pages, student, number, result)
    finally:
        runner.stop()
        order = sorted(EXERCISES.values(), key=lambda exercise: exercise.place)
        seen = {name for each in results.values() for name in each.verdicts}
        save_table(given.out, results, [each.name for each in order if each.name in seen])
    if given.gradebook and (unknown := save_points(given.gradebook, results)):
        print(_printable(f"{given.gradebook} has no assignment {', '.join(sorted(unknown))}"))


if __name__ == "__main__":
    main()
