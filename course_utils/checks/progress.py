"""Which exercises are done: kept in one small file that git ignores, and listed."""

from course_utils import kept
from course_utils.checks.exercise import EXERCISES

FILE = ".progress.json"
VERDICTS = ("correct", "wrong")

trouble = None  # the error for which the newest verdict is not in the file


def progress():
    """Print which exercises are correct, wrong, or still to do."""
    try:
        statuses = load()
    except OSError as error:
        statuses = {}
        print(f"What was done before cannot be read: {error}")
    if trouble:
        print(f"The newest verdict could not be saved: {trouble}")
    marks = {"correct": "✅", "wrong": "❌"}
    # 0.1 is done together in lesson 00 and has no place in the folder exercises
    counted = [each for each in EXERCISES.values() if not each.number.startswith("0.")]
    counted.sort(key=lambda exercise: exercise.place)
    done = sum(statuses.get(exercise.name) == "correct" for exercise in counted)
    print(f"{done} of {len(counted)} exercises correct")
    for exercise in counted:
        print(marks.get(statuses.get(exercise.name), "⏳"), exercise.number, exercise.name)


def record(name, status):
    """Note the newest verdict on an exercise, if it was checked in the folder ``exercises``.

    Solutions and lessons call `check` too; running those is no progress of the learner's. A full
    disk or a read-only folder must not spoil a check: it is kept in `trouble`.
    """
    global trouble
    if kept.folder().name != "exercises" or status not in VERDICTS:
        return
    try:
        kept.change(FILE, lambda entries: _verdicts(entries) | {name: status})
        trouble = None
    except OSError as error:
        trouble = error


def load():
    """Return the last verdict on each exercise checked so far; {} if the file is damaged.

    Raises
    ------
    OSError
        If there is a file and it cannot be read.
    """
    return _verdicts(kept.load(FILE))


def _verdicts(entries):
    return {name: status for name, status in entries.items() if status in VERDICTS}
