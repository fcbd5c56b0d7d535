"""Checks for the exercises: ``check(answer)`` and ``progress()``.

`engine` tries answers, `sandbox` runs them safely, `compare` finds the first difference, `saved`
remembers the verdicts, and one file a lesson holds the exercises: reference, probes, and mistakes
with their hints.
"""

from course_utils.checks import (  # noqa: F401  (the lessons register exercises)
    lesson_00,
    lesson_01,
    lesson_02,
    lesson_03,
    lesson_04,
    lesson_05,
    lesson_06,
    lesson_07,
    lesson_08,
    saved,
)
from course_utils.checks.engine import EXERCISES, check

__all__ = ["check", "progress"]


def progress():
    """Print which exercises are correct, wrong, or still to do."""
    try:
        statuses = saved.load()
    except OSError as error:
        statuses = {}
        print(f"What was done before cannot be read: {error}")
    if saved.trouble:
        print(f"The newest verdict could not be saved: {saved.trouble}")
    marks = {"correct": "✅", "wrong": "❌"}
    # 0.1 is done together in lesson 00 and has no place in the folder exercises
    counted = [each for each in EXERCISES.values() if not each.number.startswith("0.")]
    done = sum(statuses.get(exercise.name) == "correct" for exercise in counted)
    print(f"{done} of {len(counted)} exercises correct")
    for exercise in counted:
        print(marks.get(statuses.get(exercise.name), "⏳"), exercise.number, exercise.name)
