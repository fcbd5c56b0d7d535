"""Tell whether a notebook holds the newest version of an answer, or one before it.

After a cell with a mistake in it, a check would otherwise praise the version before.
"""

import ast
import re

from IPython import get_ipython
from torch import nn

from course_utils.checks.errors import summarize

# what a line of a cell defines that may be no Python: def dot, import dot, a, dot = or dot(a, b):
_DEFINES = (
    r"^(?:async +)?(?i:def|class|function)\s+(\w+)|^(?:from\s.*\s)?import\s([ \w,.]+)"
    r"|(?:^|[;:=] *)(\w[\w, ]*)(?==[^=])"
    r"|^(?:>>> )?(?!if|elif|while|with|return|assert)(?:\w+ +){0,2}(\w+) *(?:\(.*?\) *)?(?::|=[^=])"
)
_HAS_A_BODY = r"(?:async +)?(?i:def|class|function)\b"  # whose names are not the notebook's
_TEXTS = r"""(\"{3}|'{3}).*?\1|"[^"\n]*"|'[^'\n]*'|#[^\n]*"""  # strings and comments
_values = {}  # what could be checked, by name, before the cell that runs
_failed = {}  # by name, the error of the cell that should have given it a new value


def watch():
    """From now on, note which cells fail, if this is a notebook."""
    if shell := get_ipython():
        shell.events.register("pre_run_cell", _begin)
        shell.events.register("post_run_cell", _end)


def newest_version_error(answer):
    """Return the error that kept the newest version of an answer from being defined, or None.

    It is told once: whoever checks again means the version that there is.
    """
    shell = get_ipython()
    names = {name for name, value in shell.user_ns.items() if value is answer} if shell else set()
    if shell and (name := getattr(answer, "__name__", None)) not in shell.user_ns:
        names.add(name)  # a decorator has given it another
    found = [_failed.pop(name) for name in names & {*_failed} if not _is_new(name)]
    return found[0] if found else None


def _begin(_):
    global _values
    values = get_ipython().user_ns.items()  # a model that the cell replaces should not stay
    _values = {k: each for k, each in values if callable(each) and not isinstance(each, nn.Module)}


def _end(result):
    error = result.error_before_exec or result.error_in_exec
    defined = _defined(result.info.raw_cell)
    for name in defined | {*_failed}:
        if _is_new(name) or name in defined and not error:
            _failed.pop(name, None)
        elif name in defined:
            _failed[name] = summarize(error)


def _is_new(name):
    """Tell whether the cell that runs, or has just run, has given a name another value."""
    return get_ipython().user_ns.get(name) is not _values.get(name)


def _defined(cell):
    """Return the names that a cell's statements bind."""
    cell = re.sub(r"^%%?(?:time|prun)\b *", "", cell, flags=re.M)  # the rest is Python
    try:
        return {*_bound(ast.parse(get_ipython().transform_cell(cell)))}
    except (SyntaxError, ValueError, RecursionError):
        found = re.findall(_DEFINES, "\n".join(_statements(cell)), re.M)
        return {*re.findall(r"\w+", " ".join(map(" ".join, found)))}


def _statements(cell):
    """Yield the first lines of statements that stand neither in functions nor in classes."""
    cell = re.sub(_TEXTS, "", cell, flags=re.S)
    last, left = ":", -1  # the line before, and how far to the right it begins
    for line in filter(str.strip, cell.splitlines()):
        depth, line = len(line) - len(line.lstrip()), line.strip()
        is_part = depth > left and (re.match(_HAS_A_BODY, last) or not last.endswith(":"))
        if not is_part and line[0] not in ")]}":
            last, left = line, depth
            yield re.sub(r"[\w.]+ +as +", "", line)


def _bound(code):
    """Yield the names that code binds, but those of loops and inside functions and classes."""
    for node in ast.iter_child_nodes(code):
        if isinstance(code, ast.For | ast.comprehension) and node is code.target:
            continue
        if isinstance(node, ast.alias):
            yield node.asname or node.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif not isinstance(node, ast.AnnAssign) or node.value:  # else it only names a type
            yield from _bound(node)
