"""Read submissions: which notebooks there are, and which of their cells hold answers."""

import ast
import json
import re

from course_utils.checks.exercise import EXERCISES

LARGEST = 20 << 20  # bytes of a notebook


class Unreadable(ValueError):
    """A submission is no notebook of this course."""


def read_cells(path):
    """Return (id, source) of each code cell of a notebook."""
    if path.stat().st_size > LARGEST:
        raise Unreadable(f"larger than {LARGEST >> 20} MB")
    try:
        cells = json.loads(path.read_bytes())["cells"]
        pairs = [(cell.get("id"), cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        return [
            (id, source if isinstance(source, str) else "".join(source)) for id, source in pairs
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unreadable("this is no notebook, or a damaged one") from None


class Assignment:
    """One of the course's exercise notebooks: where its answers are, and what it imports."""

    def __init__(self, path):
        self.cells = read_cells(path)
        self.imports = set().union(*(_imports(_parsed(source)) for _, source in self.cells))
        self.ids = {}  # of the answers' cells, by the exercises' names
        for (id, source), (_, below) in zip(self.cells, self.cells[1:], strict=False):
            name = below.removeprefix("check(").rstrip(")")
            if name in EXERCISES and name in _defined(source):
                self.ids[name] = id

    def answered_in(self, cells):
        """Return the number of the cell that holds each answer, by the exercises' names."""
        numbers = {}
        for name, id in self.ids.items():
            defining = [n for n, (_, source) in enumerate(cells) if name in _defined(source)]
            answered = [n for n in defining if "NotImplementedError" not in cells[n][1]]
            same_id = [n for n, (theirs, _) in enumerate(cells) if theirs == id]
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
        sources = [cleaned for _, source in cells[:number] if (cleaned := self._allowed(source))]
        own = _without_magics(cells[number][1])
        if _parsed(own) is None:
            raise Unreadable("its cell is not valid Python")
        if refused := _imports(_parsed(own)) - self.imports:
            raise Unreadable(
                f"its cell imports {', '.join(sorted(refused))}, which these exercises do not "
                "offer; write that part yourself"
            )
        return [*sources, own]

    def _allowed(self, source):
        source = _without_magics(source)
        tree = _parsed(source)
        return source if tree and not _imports(tree) - self.imports else ""


def _parsed(source):
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _without_magics(source):
    plain = re.sub(r"^\s*[%!].*", "", source, flags=re.M)
    return source if _parsed(source) else plain


def _defined(source):
    tree = _parsed(_without_magics(source))
    named = (ast.FunctionDef, ast.ClassDef)
    names = {each.name for each in (tree.body if tree else ()) if isinstance(each, named)}
    assigned = [each for each in (tree.body if tree else ()) if isinstance(each, ast.Assign)]
    return names | {t.id for each in assigned for t in each.targets if isinstance(t, ast.Name)}


def _imports(tree):
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
        if path.name.startswith(".") or path.is_symlink():
            continue
        if path.is_dir():
            inside = (each for each in path.rglob("*.ipynb") if each.is_file())
            visible = [
                each
                for each in sorted(inside)
                if not each.is_symlink()
                and not any(part.startswith(".") for part in each.relative_to(folder).parts)
            ]
            found.setdefault(path.name, []).extend(visible)
        elif path.suffix == ".ipynb":
            found.setdefault(path.stem, []).append(path)
    return found
