"""Checks for the exercises: ``check(answer)`` and ``progress()``.

`engine` tries answers, `sandbox` runs them safely, `compare` finds the first difference, and one
file a lesson holds the exercises: reference, probes, and mistakes with their hints.
"""

from course_utils.checks import lesson_00, lesson_01  # noqa: F401  (they register exercises)
from course_utils.checks.engine import EXERCISES, check
from course_utils.checks.saved import load

__all__ = ["check", "progress"]


def progress():
    """Print which exercises are correct, wrong, or still to do."""
    statuses = load()
    marks = {"correct": "✅", "wrong": "❌"}
    done = sum(statuses.get(name) == "correct" for name in EXERCISES)
    print(f"{done} of {len(EXERCISES)} exercises correct")
    for name, exercise in EXERCISES.items():
        print(marks.get(statuses.get(name), "⏳"), exercise.number, name)
