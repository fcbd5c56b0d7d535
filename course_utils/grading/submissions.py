"""Read submissions: which notebooks there are, and which of their cells hold answers."""

import ast
import itertools
import json
import re
from dataclasses import dataclass

from course_utils.checks.exercise import EXERCISES

LARGEST = 20 << 20  # bytes of a notebook
LONGEST = 100_000  # characters of its code


class Unreadable(ValueError):
    """A submission is no notebook of this course."""


def read_cells(path):
    """Return the code cells of a notebook."""
    if path.name.startswith(".") or path.is_symlink() or not path.is_file():
        raise Unreadable("hidden files and links are not graded")  # a pipe would never end
    if path.stat().st_size > LARGEST:
        raise Unreadable(f"larger than {LARGEST >> 20} MB")
    try:
        cells = json.loads(path.read_bytes())["cells"]
        pairs = [(cell.get("id"), cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        sources = [source if isinstance(source, str) else "".join(source) for _, source in pairs]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unreadable("this is no notebook, or a damaged one") from None
    if sum(map(len, sources)) > LONGEST:
        raise Unreadable(f"it has more than {LONGEST // 1000} kB of code")
    return [Cell.parsed(id, source) for (id, _), source in zip(pairs, sources, strict=True)]


@dataclass
class Cell:
    """A code cell, parsed once: its tree is not kept, since a class of trees is large."""

    id: object
    source: str  # without magics, if it is no Python with them
    is_python: bool
    defined: set
    imports: set

    @classmethod
    def parsed(cls, id, source):
        tree = _parsed(source)
        if tree is None:
            source = re.sub(r"^[^\S\n]*[%!].*", "", source, flags=re.M)
            tree = _parsed(source)
        return cls(id, source, tree is not None, _defined(tree), imports_of(tree))


class Assignment:
    """One of the course's exercise notebooks: where its answers are, and what it imports."""

    def __init__(self, path):
        self.cells = read_cells(path)
        self.imports = set().union(*(cell.imports for cell in self.cells))
        self.ids = {}  # of the answers' cells, by the exercises' names
        for cell, below in itertools.pairwise(self.cells):
            name = below.source.removeprefix("check(").rstrip(")")
            if name in EXERCISES and name in cell.defined:
                self.ids[name] = cell.id

    def answered_in(self, cells):
        """Return the number of the cell that holds each answer, by the exercises' names."""
        numbers = {}
        for name, id in self.ids.items():
            defining = [n for n, cell in enumerate(cells) if name in cell.defined]
            answered = [n for n in defining if "NotImplementedError" not in cells[n].source]
            same_id = [n for n, cell in enumerate(cells) if cell.id == id]
            # a cell that does not define the answer is the answer's if its code is no Python
            found = [n for n in same_id if n in answered] or answered or same_id or defining
            if found:
                numbers[name] = found[-1]
        return numbers

    def code(self, cells, number):
        """Return the sources to run for an answer: those above it, without what is not offered.

        Raises
        ------
        Unreadable
            If the answer's own cell is no Python, or imports what the exercises do not offer.
        """
        own = cells[number]
        if not own.is_python:
            raise Unreadable("its cell is not valid Python")
        if refused := own.imports - self.imports:
            raise Unreadable(
                f"its cell imports {', '.join(sorted(refused))}, which these exercises do not "
                "offer; write that part yourself"
            )
        above = (cell for cell in cells[:number] if cell.is_python)
        return [*(cell.source for cell in above if cell.imports <= self.imports), own.source]


def _parsed(source):
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _defined(tree):
    named = (ast.FunctionDef, ast.ClassDef)
    names = {each.name for each in (tree.body if tree else ()) if isinstance(each, named)}
    assigned = [each for each in (tree.body if tree else ()) if isinstance(each, ast.Assign)]
    return names | {t.id for each in assigned for t in each.targets if isinstance(t, ast.Name)}


def imports_of(tree):
    """Return what is imported of this course: "course_utils.attention.rotary"."""
    found = set()
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{each.name}" for each in node.names}
    return {name for name in found if name.split(".")[0] == "course_utils"}


def submissions(folder):
    """Return each student's notebooks: STUDENT.ipynb, or all below the folder STUDENT."""
    found = {}
    for path in sorted(folder.iterdir()):
        is_folder = path.is_dir() and not path.is_symlink()
        for each in sorted(path.rglob("*.ipynb")) if is_folder else [path]:
            folders = each.relative_to(folder).parts[:-1]
            is_system = any(name.startswith(".") for name in folders) or each.name.startswith("._")
            if each.suffix == ".ipynb" and not is_system:  # as .ipynb_checkpoints, and macOS's ._
                found.setdefault(path.name if is_folder else path.stem, []).append(each)
        if is_folder and not path.name.startswith("."):
            found.setdefault(path.name, [])
    return found
