"""Which exercises are done: kept in one small file that git ignores, and listed."""

import contextlib
import json
import os
import tempfile
import time
from itertools import groupby
from pathlib import Path

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None
    import msvcrt

from course_utils.checks.exercise import EXERCISES

VERDICTS = ("correct", "wrong")
TRIES = 200  # to be alone with the file, 20 ms apart

trouble = None  # the error for which the newest verdict is not in the file
_last_folder = Path()


def progress(lesson=None):
    """Print which exercises are correct, wrong, or still to do, lesson by lesson.

    Parameters
    ----------
    lesson : int, optional
        The number of the lesson whose exercises are listed; of the others only how many are
        correct. By default all are listed.

    Raises
    ------
    ValueError
        If no lesson of that number has exercises.
    """
    try:
        statuses = load()
    except OSError as error:
        statuses = {}
        print(f"What was done before cannot be read: {error}")
    if trouble:
        print(f"The newest verdict could not be saved: {trouble}")
    # 0.1 is done together in lesson 00 and has no place in the folder exercises
    counted = [each for each in EXERCISES.values() if not each.number.startswith("0.")]
    counted.sort(key=lambda exercise: exercise.place)
    lessons = {number: list(group) for number, group in groupby(counted, lambda e: e.place[0])}
    if lesson is not None and lesson not in lessons:
        raise ValueError(f"lesson must be one of {', '.join(map(str, lessons))}, got {lesson!r}")
    marks = {"correct": "✅", "wrong": "❌"}
    for number in sorted(lessons, key=lambda number: number != lesson):
        print(f"Lesson {number:02}: {_correct(lessons[number], statuses)}")
        if lesson in (number, None):
            for each in lessons[number]:
                print("  ", marks.get(statuses.get(each.name), "⏳"), each.number, each.name)
    print(f"All: {_correct(counted, statuses)}")


def _correct(exercises, statuses):
    correct = [each for each in exercises if statuses.get(each.name) == "correct"]
    return f"{len(correct)} of {len(exercises)} correct"


def record(name, status):
    """Note the newest verdict on an exercise, if it was checked in the folder ``exercises``.

    Solutions and lessons call `check` too; running those is no progress of the learner's. A full
    disk or a read-only folder must not spoil a check: it is kept in `trouble`.
    """
    global trouble
    if _folder().name != "exercises" or status not in VERDICTS:
        return
    try:
        with _alone():
            _write(load() | {name: status})
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
    try:
        statuses = json.loads(_file().read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    if not isinstance(statuses, dict):
        return {}
    return {name: status for name, status in statuses.items() if status in VERDICTS}


def _write(statuses):
    """Write the file whole or not at all, also in a crash."""
    handle, path = tempfile.mkstemp(dir=_file().parent, prefix=_file().name)
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(statuses, file, indent=1)
        os.replace(path, _file())
    finally:
        Path(path).unlink(missing_ok=True)


@contextlib.contextmanager
def _alone():
    """Keep the checks of other kernels out; go on without after some seconds, or if none can.

    What is locked is this very module, since it is always there and never replaced. The system
    unlocks it when it is closed, also by a crash.
    """
    with open(__file__, "rb") as file:
        for _ in range(TRIES):
            try:
                _lock(file)
                break
            except (BlockingIOError, PermissionError):  # another kernel has it
                time.sleep(0.02)
            except OSError:  # this file system has no locks
                break
        yield


def _lock(file):
    if fcntl:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        file.seek(2**30)  # a byte behind its end, for what is locked cannot be read on Windows
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)


def _file():
    """Return the file in the folder of the course; notebooks run one folder below it."""
    return _folder().parent / ".progress.json"


def _folder():
    """Return the working directory, or where it was if it is gone (and perhaps made again)."""
    global _last_folder
    with contextlib.suppress(OSError):
        _last_folder = Path.cwd()
    return _last_folder


_folder()  # where the kernel began
