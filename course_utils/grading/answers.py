"""The program that runs in a student's process, which knows neither checks nor references."""

import ast
import importlib
import importlib.abc
import importlib.util
import linecache
import os
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


def load(task):
    """Return a task's exercise and the module `exercise`, where an answer does not find them."""
    finder = Sources(task["checks"])
    sys.meta_path.insert(0, finder)
    importlib.import_module(task["module"])
    sys.meta_path.remove(finder)
    loaded = {name: sys.modules[name] for name in [*sys.modules] if name in task["checks"]}
    for name in loaded.keys() - NEEDED | {task["module"]}:
        del sys.modules[name]
    base = loaded["course_utils.checks.exercise"]
    return base.EXERCISES.pop(task["name"]), base


def work(peer, task):
    """Run the cells of one exercise, then answer calls until the process is ended."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    try:
        if task["checks"]:
            exercise, base = load(task)
            answer = base.tag_learner_errors(run_cells(task["cells"], task["name"]))

            def run(layout, *args):
                with base.one_layout(layout):
                    return exercise.run(answer, *args)

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
    peer.send("value")
    while True:
        _, task = peer.receive()
        child = os.fork()
        if not child:
            try:
                work(peer, task)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        try:
            os.killpg(child, signal.SIGKILL)
        except OSError:
            pass
        peer.send("ended", status)
