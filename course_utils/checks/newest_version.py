"""Tell whether a notebook holds the newest version of an answer, or one before it.

After a cell with a mistake in it, a check would otherwise praise the version before.
"""

import ast
import inspect
import re
import traceback

from IPython import get_ipython

from course_utils.checks.pickled_answer import functions_of

# what a line of a cell defines that may be no Python: def dot, import dot, a, dot = or dot(a, b):
_DEFINES = (
    r"^(?:async +)?(?i:def|class|function)\s+(\w+)|^(?:from\s.*\s)?import\s([ \w,.]+)"
    r"|(?:^|[;:] *)(\w[\w, ]*)=[^=]"
    r"|^(?:>>> )?(?!if|elif|while|with|return|assert)(?:\w+ +){0,2}(\w+) *(?:\(.*?\) *)?(?::|=[^=])"
)


def newest_version_error(answer):
    """Return the error that kept the cell run last from defining the answer anew, or None."""
    shell = get_ipython()
    last = shell and shell.last_execution_result
    error = last and (last.error_before_exec or last.error_in_exec)
    if not error:
        return None
    names = {name for name, value in shell.user_ns.items() if value is answer}
    if inspect.isfunction(answer) or inspect.isclass(answer):
        names.add(answer.__name__)  # a decorator may have given it another
    if names & _defined(shell.history_manager.input_hist_raw[-1]):  # the cell that runs now
        return None
    code = re.sub(r"\A(?:\s*%%.*\n)+", "", last.info.raw_cell)  # without %%time, for instance
    lines = [
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_name == "<module>" and frame.f_globals is shell.user_ns
    ]
    defined = _defined(code, lines[-1] if last.error_in_exec and lines else 0)
    file = shell.compile.get_code_name(last.info.raw_cell, code, last.execution_count)
    files = {each.__code__.co_filename for each in functions_of(answer)}
    return error if names & defined and file not in files else None


def _defined(cell, line=0):
    """Return the names that a cell's statements bind, but for those that end above a line."""
    try:
        code = ast.parse(get_ipython().transform_cell(cell))
    except SyntaxError:
        return {*re.findall(r"\w+", " ".join(map(" ".join, re.findall(_DEFINES, cell, re.M))))}
    code.body = [each for each in code.body if each.end_lineno >= line]
    return {*_bound(code)}


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
