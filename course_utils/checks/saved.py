"""Which exercises are done: kept in one small file that git ignores."""

import contextlib
import json
import os
import tempfile
from pathlib import Path


def record(name, status):
    """Note the newest verdict on an exercise, if it was checked in the folder ``exercises``.

    Solutions and lessons call `check` too; running those is no progress of the learner's.
    """
    if Path.cwd().name != "exercises" or status == "not attempted":
        return
    statuses = load() | {name: status}
    with contextlib.suppress(OSError):  # a read-only folder must not spoil a check
        handle, path = tempfile.mkstemp(dir=_file().parent, prefix=_file().name)
        with os.fdopen(handle, "w") as file:
            json.dump(statuses, file, indent=1)
        os.replace(path, _file())  # whole or not at all, also in a crash


def load():
    """Return the last verdict on each exercise checked so far; {} if the file cannot be read."""
    try:
        statuses = json.loads(_file().read_text())
    except (OSError, ValueError):
        return {}
    return statuses if isinstance(statuses, dict) else {}


def _file():
    """Return the file in the folder of the course; notebooks run one folder below it."""
    return Path.cwd().parent / ".progress.json"
