"""Small JSON files of what a learner did, in the folder of the course, where git ignores them.

Notebooks of several kernels write into them at once, and a kernel may die while it writes.
"""

import contextlib
import itertools
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

LOCK_TRIES = 200  # 20 ms apart

_last_working_directory = Path()


class DamagedFile(OSError):
    """A file holds no JSON object."""


def load(name):
    """Return what the file holds; {} if there is none.

    Raises
    ------
    OSError
        If there is a file and it cannot be read; `DamagedFile` if it holds no JSON object.
    """
    try:
        entries = json.loads(_path(name).read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, dict):
        raise DamagedFile(f"{name} is damaged; the next time something is saved, it is renamed")
    return entries


def update(name, function):
    """Replace the stored entries with ``function(entries)``, under a lock.

    A damaged file is renamed first, so that it can still be repaired (see `damaged`).

    Raises
    ------
    OSError
        If the file cannot be read or written; it is then as it was.
    """
    with _locked():
        try:
            entries = load(name)
        except DamagedFile:
            numbered = (_path(f"{name}.damaged{n or ''}") for n in itertools.count())
            os.replace(_path(name), next(path for path in numbered if not path.exists()))
            entries = {}
        _write(name, function(entries))


def damaged(name):
    """Return the names of the damaged files that `update` has renamed."""
    return sorted(path.name for path in _path(name).parent.glob(f"{name}.damaged*"))


def working_directory():
    """Return the working directory, or the last one if it is gone (and perhaps made again)."""
    global _last_working_directory
    with contextlib.suppress(OSError):
        _last_working_directory = Path.cwd()
    return _last_working_directory


def _write(name, entries):
    """Write the whole file or nothing, even in a crash."""
    handle, path = tempfile.mkstemp(dir=_path(name).parent, prefix=name)
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(entries, file, indent=1)
        os.replace(path, _path(name))
    finally:
        Path(path).unlink(missing_ok=True)


@contextlib.contextmanager
def _locked():
    """Keep other kernels out. Go on without a lock after some seconds, or where there are none.

    The file that is locked is this very module: it is always there and never replaced. The system
    unlocks it when it is closed, even by a crash.
    """
    with open(__file__, "rb") as file:
        for _ in range(LOCK_TRIES):
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
        file.seek(2**30)  # a byte behind its end: on Windows, nobody can read a locked byte
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)


def _path(name):
    """Return the path in the folder of the course; notebooks run one folder below it."""
    return working_directory().parent / name


working_directory()  # where the kernel began
