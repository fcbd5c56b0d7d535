"""Small files of what a learner did, in the folder of the course, where git ignores them.

Notebooks of several kernels write into them at once, and a kernel may die while it writes.
"""

import contextlib
import json
import os
import tempfile
import time
from pathlib import Path

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None
    import msvcrt

TRIES = 200  # to be alone with the files, 20 ms apart

_last_folder = Path()


def load(name):
    """Return what the file holds; {} if there is none or it is damaged.

    Raises
    ------
    OSError
        If there is a file and it cannot be read.
    """
    try:
        entries = json.loads(_file(name).read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return entries if isinstance(entries, dict) else {}


def change(name, function):
    """Put ``function(entries)`` in the place of the file's entries.

    Raises
    ------
    OSError
        If the file cannot be read or written; it is then as it was.
    """
    with _alone():
        _write(name, function(load(name)))


def folder():
    """Return the working directory, or where it was if it is gone (and perhaps made again)."""
    global _last_folder
    with contextlib.suppress(OSError):
        _last_folder = Path.cwd()
    return _last_folder


def _write(name, entries):
    """Write the file whole or not at all, also in a crash."""
    handle, path = tempfile.mkstemp(dir=_file(name).parent, prefix=name)
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(entries, file, indent=1)
        os.replace(path, _file(name))
    finally:
        Path(path).unlink(missing_ok=True)


@contextlib.contextmanager
def _alone():
    """Keep other kernels out; go on without after some seconds, or if none can.

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


def _file(name):
    """Return the file in the folder of the course; notebooks run one folder below it."""
    return folder().parent / name


folder()  # where the kernel began
