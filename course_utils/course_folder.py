"""A learner's folder: put the lessons and exercises into it, update them, and keep the answers.

The folder's `.attention-course` has a copy of what was put there last. It is the base of the
three-way merge with which an update keeps what the learner changed.
"""

import os
import tempfile
from datetime import datetime
from pathlib import Path

FOLDERS = ("notebooks", "exercises", "solutions")
_IN_THE_WHEEL = Path(__file__).with_name("shipped")
# Where this installation has the course: in the package, or in the clone that it was made from.
SHIPPED = _IN_THE_WHEEL if _IN_THE_WHEEL.is_dir() else Path(__file__).parents[1]
BASE = ".attention-course"


def start(folder):
    """Put into ``folder`` what is missing there of the course, and change no file.

    Parameters
    ----------
    folder : pathlib.Path
        It is made unless it exists. A clone of the whole course is left as it is.

    Returns
    -------
    bool
        Whether this version ships a newer text than the one that was put there last.
    """
    if _is_a_clone(folder):
        return False
    is_newer = False
    for path in _notebooks(SHIPPED):
        new, base = SHIPPED / path, folder / BASE / path
        if not (folder / path).exists():
            # after an interruption or a deletion: an old base would belie the new file
            base.unlink(missing_ok=True)
            _write(folder / path, new.read_bytes())
        if not base.exists() and _same(folder / path, new):
            _write(base, new.read_bytes())
        is_newer |= base.exists() and not _same(base, new)
    return is_newer


def update(folder):
    """Bring this version's text into ``folder``, and keep what the learner changed, cell by cell.

    Parameters
    ----------
    folder : pathlib.Path
        A folder of `start`.

    Returns
    -------
    list of str
        What happened to each file that is not as it was.

    Raises
    ------
    ValueError
        If ``folder`` is a clone, or if the course was not started there.
    """
    if _is_a_clone(folder):
        raise ValueError(
            f"folder must be one that `attention-course start` made, but {folder} has the whole "
            "course: update it with git, as LEARNING.md says"
        )
    if not (folder / BASE).is_dir():
        raise ValueError(
            f"folder must be one that `attention-course start` made, but {folder} has no {BASE}"
        )
    before = folder / "before_update" / datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    changes = [_update(folder, path, before) for path in _notebooks(SHIPPED)]
    for path in _notebooks(folder / BASE):
        if not (SHIPPED / path).exists():
            changes.append(_retire(folder, path))
    return list(filter(None, changes))


def _update(folder, path, before):
    """Update one notebook; return what happened to it, or None."""
    mine, base, new = folder / path, folder / BASE / path, SHIPPED / path
    if not mine.exists():
        change = f"{path} is back: you had deleted it" if base.exists() else f"{path} is new"
        _write(base, new.read_bytes())
        _write(mine, new.read_bytes())
        return change
    if base.exists() and _same(base, new):
        return None
    change = None
    if not _same(mine, new):
        if not base.exists():
            return f"{path} was not put here by this command, so it stays as it is"
        if _same(mine, base):
            change = f"{path} has a new text"
            _write(mine, new.read_bytes())
        else:
            try:
                merged, conflicts = _merged(base, mine, new)
            except Exception as error:  # nbdime has no class of its own for what it cannot merge
                return f"{path} cannot be merged, so it stays as it is: {error}"
            _write(before / path, mine.read_bytes())
            change = f"{path} has a new text around your changes"
            if conflicts:
                change = f"{path}: CONFLICT. Look for <<<<<<< in it, and keep one of both versions"
            _write(mine, merged)
    _write(base, new.read_bytes())
    return change


def _retire(folder, path):
    """Remove a notebook that is no longer shipped, unless the learner changed it."""
    mine, base = folder / path, folder / BASE / path
    change = None
    if mine.exists():
        change = f"{path} is no longer in the course, and you changed it, so it stays"
        if _same(mine, base):
            change = f"{path} is no longer in the course, so it is removed"
            mine.unlink()
    base.unlink()
    return change


def _merged(base, mine, new):
    """Return the merged notebook as bytes, and whether a cell holds two versions.

    It is the merge that install.py sets up for git. Where both sides ran a cell, the outputs of
    the new version win.
    """
    from nbdime.nbmergeapp import main  # slow to import

    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "merged.ipynb")
        options = ["--output-strategy", "use-remote", "--log-level", "ERROR", "--out", str(out)]
        conflicts = main([*options, str(base), str(mine), str(new)])
        return out.read_bytes(), bool(conflicts)


def _notebooks(folder):
    found = [path for name in FOLDERS for path in sorted((folder / name).glob("*.ipynb"))]
    return [path.relative_to(folder) for path in found]


def _is_a_clone(folder):
    return (folder / "install.py").exists()


def _same(path, other):
    return path.read_bytes() == other.read_bytes()


def _write(path, content):
    """Write the whole file or nothing, even in a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.new")
    scratch.write_bytes(content)
    os.replace(scratch, path)
