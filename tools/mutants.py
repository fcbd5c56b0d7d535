"""Show an author which mistakes a check misses: ``python -m tools.mutants split_heads``.

The tool makes one small change at a time to the right answers of an exercise (a sign, a comparison,
a number, two arguments swapped, a call left out). It prints the changed answers that the check
accepts, and those that it refuses without naming a mistake.
"""

import ast
import copy
import inspect
import linecache
import sys
import textwrap
from functools import partial

from course_utils import check
from course_utils.checks.exercise import EXERCISES

OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
COMPARISONS = {
    ast.Lt: [ast.LtE, ast.Gt],
    ast.LtE: [ast.Lt, ast.GtE],
    ast.Gt: [ast.GtE, ast.Lt],
    ast.GtE: [ast.Gt, ast.LtE],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
}
PARTS = {
    "correct": "Accepted. Where the changed answer is right as well, there is nothing to do:",
    "wrong": "Refused without a name:",
}
DROPPED = set(
    "softmax transpose exp log sqrt masked_fill flatten unsqueeze mean sum amax nan_to_num "
    "clamp abs square norm tril triu squeeze float".split()
)


def mutants(answer):
    """Yield (description, what makes it) of a function, class or kernel; nothing of a lambda."""
    answer = getattr(answer, "fn", answer)  # of a kernel
    if answer.__name__ == "<lambda>" or not answer.__module__.startswith("course_utils."):
        return
    tree = ast.parse(textwrap.dedent(inspect.getsource(answer)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body[:1] = [ast.Pass()]
    for place, node in enumerate(ast.walk(tree)):
        for description, change in changes(node):
            line = getattr(node, "lineno", 1)
            where = f"{answer.__name__}, line {line}"
            yield f"{where}: {description}", partial(mutant, answer, tree, place, change)


def mutant(answer, tree, place, change):
    """Return the answer of this tree with one place of it changed."""
    tree = copy.deepcopy(tree)
    change(list(ast.walk(tree))[place])
    return compiled(tree, answer)


def changes(node):
    """Yield (description, function that changes a copy of the node in place)."""
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        other = OPERATORS[type(node.op)]
        yield f"{ast.unparse(node)}: {other.__name__}", lambda n: setattr(n, "op", other())
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in COMPARISONS.get(type(node.ops[0]), []):
            yield (
                f"{ast.unparse(node)}: {other.__name__}",
                lambda n, other=other: setattr(n, "ops", [other()]),
            )
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        twice = ast.UnaryOp(ast.Invert(), node.operand)
        yield f"{ast.unparse(node)}: no ~", lambda n: setattr(n, "operand", twice)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        for step in (1, -1):
            value = node.value + step
            yield f"{node.value} -> {value}", lambda n, v=value: setattr(n, "value", v)
    if isinstance(node, ast.Constant) and type(node.value) is float:
        yield f"{node.value} doubled", lambda n: setattr(n, "value", 2 * n.value)
    if isinstance(node, ast.Call):
        if len(node.args) >= 2 and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
            yield f"{ast.unparse(node)}: arguments swapped", swap
        if isinstance(node.func, ast.Attribute) and node.func.attr in DROPPED:
            yield f"{ast.unparse(node)}: no {node.func.attr}", drop
    if isinstance(node, ast.AugAssign):
        yield f"{ast.unparse(node)}: replaced", lambda n: setattr(n, "value", ast.Constant(0))


def swap(call):
    call.args[:2] = call.args[1::-1]


def drop(call):
    """Leave of x.f(...) the x, of torch.f(x, ...) too."""
    of_module = isinstance(call.func.value, ast.Name) and call.func.value.id in ("torch", "F", "np")
    inner = call.args[0] if of_module and call.args else call.func.value
    call.func, call.args, call.keywords = ast.Name("_same", ast.Load()), [inner], []


def compiled(tree, answer):
    scope = dict(vars(sys.modules[answer.__module__])) | {"_same": lambda x: x}
    source = ast.unparse(ast.fix_missing_locations(tree))
    file = f"<mutant of {answer.__name__}: {hash(source)}>"
    # Triton's interpreter reads the source of a kernel
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    exec(compile(source, file, "exec"), scope)
    return scope[tree.body[0].name]


def main(name):
    if name not in EXERCISES:
        sys.exit(f"there is no exercise {name!r}; give a name from course_utils/checks/lesson_*/")
    answers = EXERCISES[name].right_answers()
    tried = [(what, check(make(), name)) for answer in answers for what, make in mutants(answer)]
    for status, heading in PARTS.items():
        print(heading)
        for description, verdict in tried:
            if verdict.status == status and verdict.mistake is None:
                print(f"{description}\n    {verdict}")


if __name__ == "__main__":
    main(sys.argv[1])
