"""Which exercises are done: stored in a small file that git ignores, and listed by `progress`."""

from itertools import groupby

from course_utils import json_store
from course_utils.checks.exercise import EXERCISES

FILE = ".progress.json"
VERDICTS = ("correct", "wrong")

trouble = None  # the error for which the newest verdict is not in the file


def progress(lesson=None):
    """Print which exercises are correct, wrong, or still to do, lesson by lesson.

    Parameters
    ----------
    lesson : int or str, optional
        The lesson whose exercises are listed, as their numbers begin: 6, or "6b"; of the others
        only how many are correct. By default all are listed.

    Raises
    ------
    ValueError
        If the number of no exercise begins so.
    """
    try:
        statuses = load()
    except OSError as error:
        statuses = {}
        print(f"Your earlier verdicts cannot be read: {error}")
    if renamed := json_store.damaged(FILE):
        print(
            f"{FILE} was damaged and has been renamed to {', '.join(renamed)}. Verdicts before "
            "that are missing here: check your answers again, then delete it."
        )
    if trouble:
        print(f"The newest verdict could not be saved: {trouble}")
    # 0.1 is done together in lesson 00 and is not in the folder exercises
    counted = [each for each in EXERCISES.values() if not each.number.startswith("0.")]
    counted.sort(key=lambda exercise: exercise.place)
    lessons = {name: list(group) for name, group in groupby(counted, lambda e: e.lesson)}
    numbers = {name.lstrip("0"): name for name in lessons}
    if lesson is not None and str(lesson) not in numbers:
        raise ValueError(f"lesson must be one of {', '.join(numbers)}, got {lesson!r}")
    chosen = numbers.get(str(lesson))
    marks = {"correct": "✅", "wrong": "❌"}
    for name in sorted(lessons, key=lambda name: name != chosen):
        print(f"Lesson {name}: {_count(lessons[name], statuses)}")
        if chosen in (name, None):
            for each in lessons[name]:
                print("  ", marks.get(statuses.get(each.name), "⏳"), each.number, each.name)
    print(f"All: {_count(counted, statuses)}")


def _count(exercises, statuses):
    correct = [each for each in exercises if statuses.get(each.name) == "correct"]
    return f"{len(correct)} of {len(exercises)} correct"


def record(name, status):
    """Store the newest verdict on an exercise, if it was checked in the folder ``exercises``.

    Solutions and lessons call `check` too, and running those is not the learner's progress. A full
    disk or a read-only folder must not spoil a check: its error is returned, and stored in
    `trouble`.
    """
    global trouble
    if json_store.working_directory().name != "exercises" or status not in VERDICTS:
        return None
    try:
        json_store.update(FILE, lambda entries: _verdicts(entries) | {name: status})
        trouble = None
    except OSError as error:
        trouble = error
    return trouble


def load():
    """Return the last verdict on each exercise checked so far.

    Raises
    ------
    OSError
        If there is a file and it cannot be read, or is damaged.
    """
    return _verdicts(json_store.load(FILE))


def _verdicts(entries):
    return {name: status for name, status in entries.items() if status in VERDICTS}
