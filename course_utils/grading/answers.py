"""The program that runs in a student's process, which knows neither checks nor references."""

import ast
import ctypes
import gc
import importlib
import importlib.abc
import importlib.util
import inspect
import linecache
import os
import re
import resource
import signal
import sys

import torch

from course_utils.grading.peer import Peer, described

SECONDS = 10  # of computing, for one exercise
DEFINES = ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign
# Modules of the checks that stay importable: a notebook imports one, and one is edited by a check.
NEEDED = {
    "course_utils.checks.submission_kernel",
    "course_utils.checks.lesson_05.multi_head_attention",
}


class Sources(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Imports modules from a dict of their sources, by name; packages' names end with a dot."""

    def __init__(self, sources):
        self.sources = sources

    def find_spec(self, name, path=None, target=None):
        for key in (name, name + "."):
            if key in self.sources:
                return importlib.util.spec_from_loader(name, self, is_package=key[-1] == ".")

    def get_filename(self, name):
        return f"<check {name}{'.' * (name + '.' in self.sources)}>"

    def get_data(self, path):
        source = self.sources[path.removeprefix("<check ")[:-1]]
        _remember(path, source)  # `edited` reads it
        return source.encode()


def _remember(file, source):
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file


def run_cells(cells, name):
    """Run cells up to the answer's, which is the last; return what then has the answer's name.

    Of the cells before it only imports, definitions and assignments are run, each by itself, so
    that an error in one of them costs only the answers that need it.
    """
    scope = {"__name__": "__main__"}
    for number, source in enumerate(cells):
        file = f"<cell {number}>"
        _remember(file, source)
        for statement in ast.parse(source).body:
            is_last = number == len(cells) - 1
            if is_last or isinstance(statement, DEFINES):
                try:
                    exec(compile(ast.Module([statement], []), file, "exec"), scope)
                except (Exception, SystemExit):
                    if is_last and name not in scope:
                        raise
    return scope[name]


def load(sources, name, answer):
    """Return an exercise's `run` and the module `exercise`, where an answer does not find more."""
    finder = Sources(sources)
    sys.meta_path.insert(0, finder)
    module = importlib.import_module(name)
    sys.meta_path.remove(finder)
    base = sys.modules["course_utils.checks.exercise"]
    exercise = base.EXERCISES[answer]
    base.EXERCISES.clear()
    right = [exercise, exercise.reference, *exercise.also_right]
    code = _code_of(exercise.run, module, right)  # where the check computes a right result
    for key, value in [*vars(module).items()]:
        if any(value is each for each in right) and key not in code:
            delattr(module, key)
    for each in {each for each in sources if each in sys.modules} - NEEDED | {name}:
        del sys.modules[each]
        package, _, attribute = each.rpartition(".")
        vars(sys.modules[package]).pop(attribute, None)
        linecache.cache.pop(f"<check {each}>", None)
    sources.clear()
    return exercise.run, base


def _code_of(run, module, right):
    """Return the source of an exercise's `run` and of the functions of its module that it calls."""
    code = inspect.getsource(run)
    own = (
        each for each in vars(module).values() if getattr(each, "__module__", "") == module.__name__
    )
    left = [each for each in own if inspect.isfunction(each) and each not in right]
    while called := [each for each in left if re.search(rf"\b{each.__name__}\b", code)]:
        code += "".join(map(inspect.getsource, called))
        left = [each for each in left if each not in called]
    return code


def work(peer, task):
    """Run the cells of one exercise, then answer calls until the process is ended."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    try:
        finder = Sources(task.pop("course"))
        if checks := task.pop("checks"):
            check, base = load(checks, task["module"], task["name"])
            gc.collect()  # the right answer is gone then, where the check does not use it
        sys.meta_path.insert(0, finder)
        if task["module"]:
            answer = base.tag_learner_errors(run_cells(task["cells"], task["name"]))

            def run(layout, *args):
                with base.one_layout(layout):
                    return check(answer, *args)

            peer.objects = [run]
        else:
            peer.objects = [run_cells(task["cells"], task["name"])]
    except (Exception, SystemExit) as error:
        peer.send("error", described(error, peer))
    else:
        peer.send("value")
    while True:
        verb, content = peer.receive()
        if verb == "done":
            os._exit(0)
        peer.answer(verb, content)


def main():
    """Run each task in a child of its own, and say how the child ended."""
    peer = Peer(os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    torch.set_num_threads(1)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE: an answer may read no memory in /proc
    exit_now = os._exit  # before an answer can replace it
    peer.send("value")
    while True:
        _, task = peer.receive()
        child = os.fork()
        if not child:
            try:
                work(peer, task)
            finally:
                exit_now(1)
        _, status = os.waitpid(child, 0)
        try:
            os.killpg(child, signal.SIGKILL)
        except OSError:
            pass
        peer.send("ended", status)
