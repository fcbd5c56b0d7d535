"""Make an nbgrader assignment of a lesson's solutions: one point for each exercise.

In the folder of the nbgrader course, where COURSE is this course's folder:

python COURSE/tools/mark_for_nbgrader.py COURSE/solutions/01_solutions_dot_product_similarity.ipynb

This writes source/01_solutions_dot_product_similarity/, with a copy of course_utils beside the
notebook. It marks what a teacher would mark by hand in nbgrader's panel.
"""

import shutil
import sys
from pathlib import Path

import nbformat

# With this, `nbgrader validate` shows what the check says. The points come from course_utils.grade.
TEST = """from course_utils import check

v = {}
assert v.status == "correct", v"""


def mark(cell, name, *, graded=False, solution=False):
    """Mark a cell as a solution, as a test for one point, or as locked."""
    cell.metadata["nbgrader"] = {
        "schema_version": 3,
        "grade_id": name,
        "points": 1,
        "grade": graded,
        "locked": not solution,
        "solution": solution,
    }


def assignment(notebook):
    """Return a solutions notebook with its answers and checks marked."""
    answered = False
    for cell in notebook.cells:
        if answered and cell.source.startswith("check("):
            mark(cell, cell.source[len("check(") : -1], graded=True)
            cell.source = TEST.format(cell.source)
        answered = "### BEGIN SOLUTION" in cell.source
        if answered:
            mark(cell, cell.id, solution=True)
    return notebook


def main(solutions):
    """Write the assignment into ``source/``, in the working directory."""
    folder = Path("source") / solutions.stem
    shutil.copytree(solutions.parents[1] / "course_utils", folder / "course_utils")
    nbformat.write(assignment(nbformat.read(solutions, as_version=4)), folder / solutions.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
