"""Tell whether a notebook holds the newest version of an answer, or one before it.

After a cell with a mistake in it, a check would otherwise praise the version before.
"""

import ast
import re

from IPython import get_ipython
from torch import nn

from course_utils.checks.errors import summarize

# What a line of a cell defines that is no Python: `def dot(a, b)` at any depth, and what stands
# at its beginning: `dot(a, b):`, `a, dot =` or `other = dot =`.
_DEFINES = (
    r"""^[^#'"\n]*\b(?i:def|class|function)\s+(\w+)"""
    r"|^(?!if|elif|while|for|with|return|assert|match)(?:\w+ +)?(\w+) *\(.*\) *(?:->.*)?:"
    r"|(?:^|; *)(\w+(?: *, *\w+)*) *(?::[^=\n]*)?=(?!=)|(?<==) *(\w+) *=(?!=)"
)
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
        found = re.findall(_DEFINES, cell, re.M)
        return {*re.findall(r"\w+", " ".join(map(" ".join, found)))}


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
