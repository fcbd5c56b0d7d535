"""Which exercises are done: stored in a small file that git ignores, and listed by `progress`."""

import html
import json
from itertools import groupby, starmap

from IPython import get_ipython
from IPython.display import display

from course_utils import json_store
from course_utils.checks.exercise import EXERCISES

FILE = ".progress.json"
VERDICTS = ("correct", "wrong")
MARKS = {"correct": "✅", "wrong": "❌", "not attempted": "⏳", "not checked": "⚠️"}

trouble = None  # the error for which the newest verdict is not in the file


def progress(lesson=None):
    """Show how many exercises are correct.

    Parameters
    ----------
    lesson : int or str, optional
        The lesson with whose number its exercises begin: 6, or "6b". It gets one line, with a link
        to its first exercise that is not correct, and all others get one line together, with links
        to their exercises. By default all exercises are printed, lesson by lesson.

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
    if lesson is None:
        for name, exercises in lessons.items():
            print(f"Lesson {name}: {_count(exercises, statuses)} correct")
            for each in exercises:
                print("  ", _mark(each, statuses), each.number, each.name)
        print(f"All: {_count(counted, statuses)} correct")
        return
    numbers = {name.lstrip("0"): name for name in lessons}
    number = str(lesson).lstrip("0")
    if number not in numbers:
        raise ValueError(f"lesson must be one of {', '.join(numbers)}, got {lesson!r}")
    chosen = numbers[number]
    exercises = lessons.pop(chosen)
    _show(_of_lesson(chosen, exercises, statuses), _of_others(lessons, statuses))


def _of_lesson(name, exercises, statuses):
    """Return the line of a lesson as pairs of a text and an address, or None for no link."""
    marks = "  ".join(f"{_mark(each, statuses)} {each.number}" for each in exercises)
    line = [(f"Lesson {name}: {_count(exercises, statuses)} correct.  {marks}", None)]
    to_do = [each for each in exercises if statuses.get(each.name) != "correct"]
    if to_do:
        line += [("  Next: ", None), (f"{to_do[0].number} {to_do[0].name}", _address_of(to_do[0]))]
    return line


def _of_others(lessons, statuses):
    """Return the line of several lessons."""
    others = [each for exercises in lessons.values() for each in exercises]
    line = [(f"Other lessons: {_count(others, statuses)} correct.", None)]
    for name, exercises in lessons.items():
        notebook = _notebook_of(name)
        line += [
            ("  ", None),
            (f"{name}: {_count(exercises, statuses)}", notebook and notebook.name),
        ]
    return line


def _notebook_of(lesson):
    """Return the path of the notebook with a lesson's exercises, None if it is not there."""
    return next(json_store.working_directory().glob(f"{lesson}_exercises_*.ipynb"), None)


def _address_of(exercise):
    """Return the address of an exercise in its notebook, for a link there; None without it."""
    try:
        cells = json.loads(_notebook_of(exercise.lesson).read_text(encoding="utf-8"))["cells"]
        heading = f"## {exercise.number} "
        ids = [cell["id"] for cell in cells if "".join(cell["source"]).startswith(heading)]
        return f"#cell-id={ids[0]}"
    except (AttributeError, IndexError, KeyError, OSError, ValueError):
        return None  # on Colab, or while the file is being saved


def _show(*lines):
    """Print lines of pairs of a text and an address; in a notebook, show them with links."""
    text = "\n".join("".join(words for words, _ in line) for line in lines)
    if get_ipython() is None:
        print(text)
        return
    page = "".join(f"<p>{''.join(starmap(_link, line))}</p>" for line in lines)
    display({"text/plain": text, "text/html": page}, raw=True)


def _link(words, address):
    words = html.escape(words).replace("  ", " &nbsp;")
    return f'<a href="{address}">{words}</a>' if address else words


def _mark(exercise, statuses):
    return MARKS[statuses.get(exercise.name, "not attempted")]


def _count(exercises, statuses):
    correct = [each for each in exercises if statuses.get(each.name) == "correct"]
    return f"{len(correct)} of {len(exercises)}"


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
