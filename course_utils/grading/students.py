"""Run students' answers in processes that cannot reach others' work, and judge what they return."""

import ast
import contextlib
import ctypes
import functools
import json
import os
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from course_utils.checks import calls
from course_utils.checks.errors import explained, on_one_line
from course_utils.checks.exercise import NO_FIT, ONLY_LAYOUT, NamedMistake
from course_utils.checks.judge import judge_here
from course_utils.checks.known_results import expected, expected_gradients, mistaken, usual_settings
from course_utils.course_folder import SHIPPED
from course_utils.grading.peer import Peer
from course_utils.grading.submissions import imports_of

ROOT = Path(__file__).parents[2]
PATIENCE = 60  # seconds, for one exercise
MEMORY = 3 << 30  # bytes, for each process of a student
PROCESSES = 200  # of a student, threads included
# Folders that are empty for a student, as the home is, except for Python itself
EMPTIED = [*map(Path, ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run"))]
LARGEST_CALL = 20_000  # numbers that an answer may pass to a function of ours
# Of these, the check looks at more than what the answer returns, so that it runs beside the answer.
BESIDE = {
    "SelfAttention", "MultiHeadAttention", "MultiHeadSelfAttention", "catches_wrong_layer",
    "copy_weights", "without_head", "continue_text", "windowed_kernel", "grouped_kernel",
    "half_kernel", "split_decode", "streamed_entropy", "merge", "flash_forward", "flash_causal",
    "as_sdpa", "paged_attention", "generate_together", "silence_heads", "causal_linear_attention",
    "decayed_in_chunks", "chunk_as_map", "absorbed_attention", "euclidean_distance", "softmax_vjp",
    "shared_prefix_attention", "grouped_attention", "attend_in_parts",
}  # fmt: skip
ATTENTION = "course_utils.attention"
# What a student's process can read of the course; no exercise asks for what these files define.
COPIED = (
    "figures.py", "shapes.py", "views.py",
    "grading/__init__.py", "grading/answers.py", "grading/peer.py",
)  # fmt: skip
STUB = """def check(*_, **__):
    pass

heatmap = predict_first = progress = show = surprises = check
"""
ENDS = {
    "waits": ("waits", f"not finished after {PATIENCE} seconds; is there a sleep() or a lock?"),
    "ended": calls.LEAVES,
    "unreadable": ("unreadable", "its result cannot be read; is it very large?"),
    "loops": ("runs for ever", "it computes for too long; is there a loop without end?"),
}
BWRAP = "in bubblewrap: without a network, and without access to other students' work"
NOBODY = "as a user without rights, without a network and without access to other students' work"
ONLY_NOBODY = (
    "as a user without rights. It may read what every user may read: other submissions, for "
    "example, unless you run chmod 700 on their folder"
)
FAILED = OSError, subprocess.SubprocessError, calls.Refused  # to start
PLAIN = (
    "with your permissions: it can read and change all your files. To prevent that, install "
    "bubblewrap, or grade as root in a container"
)


class _Peer(Peer):
    """The grader's end, which trusts nothing that comes."""

    has_ended = False  # whether the child that runs the answer has

    def lost(self, reason):
        return calls.Refused("wrong", *ENDS[reason])

    def seed(self, _):
        return None  # the random state here is the check's

    def answer(self, verb, content):
        if verb == "ended":
            self.has_ended = True
            status = content if isinstance(content, int) else 0
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            reason = ENDS["loops" if number in (signal.SIGXCPU, signal.SIGKILL) else "ended"]
            if number and reason is ENDS["ended"]:
                reason = "crashes Python", f"it makes Python crash: signal {number}"
            raise calls.Refused("wrong", *reason)
        super().answer(verb, content)

    def _called(self, content):
        if sum(each.numel() for each in content["tensors"]) > LARGEST_CALL:
            raise ValueError("these arguments are too large for a check")
        return super()._called(content)

    def rebuilt(self, content):
        error = super().rebuilt(content)
        if content["type"] == "SystemExit":
            return self.lost("ended")
        try:
            if named := content["named"]:
                mistake, hint, results = self.unpack(*named)
                error = NamedMistake(str(mistake), str(hint), results)
            elif content["learner's"]:
                error.is_learners = True
        except Exception:
            raise self.lost("unreadable") from None
        return error


class Students:
    """Runs answers, one student after another, each in a process that others cannot reach."""

    def __init__(self, hidden):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder, self.process = Path(self.temporary.name), None
        self.spared = set(psutil.Process().children(recursive=True))
        here = ROOT / "course_utils"
        copy = self.folder / "course_utils"
        (copy / "grading").mkdir(parents=True)
        for name in COPIED:
            shutil.copy(here / name, copy / name)
        (copy / "__init__.py").write_text(STUB)
        os.chmod(self.folder, 0o755)
        sources = {}
        for path in [*here.glob("*.py"), *here.glob("checks/**/*.py")]:
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            sources[re.sub("__init__$", "", name)] = path.read_text(encoding="utf-8")
        self.sources = sources | {"course_utils.checks.": ""}
        del self.sources["course_utils."]
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: no process is lost
        hidden = [here, ROOT / ".git", ROOT / "tests", *hidden]
        hidden += [SHIPPED / "solutions", SHIPPED / "notebooks"]
        self.hidden = [path.resolve() for path in hidden if path.exists()]
        python = {Path(each) for each in (sys.prefix, sys.base_prefix)}
        self.kept = [path for path in python if set(path.parents) & {Path.home(), *EMPTIED}]
        for number in range(len(self.kept)):
            (self.folder / f"kept{number}").mkdir()
        self.way = next(filter(self._works, self._ways()))

    def _ways(self):
        """Yield (words, command, what to do in the new process, path of the copy), best first."""
        mask = functools.partial(_mask, self.folder, self.hidden, self.kept)
        mine = [each.info for each in psutil.process_iter(["num_threads", "uids"])]
        mine = [each["num_threads"] for each in mine if each["uids"].real == os.getuid()]
        limit = functools.partial(_limit, PROCESSES + sum(mine))  # the system counts all of a user
        if bwrap := shutil.which("bwrap"):
            command = [bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
            command += ["--ro-bind", str(self.folder), "/mnt", "--tmpfs", "/var/tmp"]
            command += ["--tmpfs", "/run", "--tmpfs", "/tmp", "--tmpfs", str(Path.home())]
            for path in self.kept:
                command += ["--ro-bind", str(path), str(path)]
            for path in self.hidden:
                command += ["--tmpfs"] if path.is_dir() else ["--ro-bind", os.devnull]
                command += [str(path)]
            command += ["--unshare-all", "--die-with-parent", "--new-session", "--chdir", "/tmp"]
            yield BWRAP, command, limit, "/mnt"
        if os.geteuid() == 0:
            yield NOBODY, [], lambda: (mask(), _be_nobody()), "/mnt"
            yield ONLY_NOBODY, [], _be_nobody, str(self.folder)
        yield PLAIN, [], limit, str(self.folder)

    def _works(self, way):
        try:
            self.start(way)
        except FAILED:
            return False
        return True

    def start(self, way):
        """Start a process that imports PyTorch and waits."""
        self.stop()
        _, command, prepare, path = way
        program = f"import sys; sys.path.insert(0, {path!r}); "
        program += "from course_utils.grading.answers import main; main()"
        self.process = subprocess.Popen(
            [*command, sys.executable, "-P", "-B", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=prepare,
            cwd="/",
            env={"PATH": os.defpath, "HOME": "/tmp", "USER": "student"}
            | {"LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        self._peer().wait()
        self.usual = self._started()

    def _peer(self):
        peer = _Peer(self.process.stdout.fileno(), self.process.stdin.fileno())
        peer.deadline = time.monotonic() + PATIENCE
        return peer

    def _started(self):
        """Return all processes that run for the student."""
        return set(psutil.Process().children(recursive=True)) - self.spared

    def stop(self):
        """End the process, and whatever it has started."""
        for _ in range(100):
            rest = self._started()
            for each in rest:
                with contextlib.suppress(psutil.Error):
                    each.kill()
            psutil.wait_procs(rest, timeout=1)
            if not rest:
                break
        if self.process:
            self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait()
        self.process = None

    def judge(self, exercise, cells, imports):
        """Return (status, hint) for the answer in the last of the cells.

        Of `course_utils.attention` there is only what the exercise notebook imports.
        """
        try:
            if self.process is None:
                self.start(self.way)
            expected(exercise), expected_gradients(exercise)  # each once, for the whole class
            status, hint, is_over = _in_child(lambda: self._judged(exercise, cells, imports))
        except FAILED:
            status, hint, is_over = "not checked", "its process could not be started", False
        if not is_over or self._started() - self.usual:
            self.stop()
        if status == "wrong":
            with usual_settings():
                for mistake in exercise.mistakes:
                    [*mistaken(exercise, mistake)]  # others will need its results, too
        return status, hint

    def _judged(self, exercise, cells, imports):
        """Return (status, hint, whether the process is ready for the next answer)."""
        peer, beside = self._peer(), exercise.name in BESIDE
        task = {"cells": cells, "name": exercise.name, "module": None, "checks": None}
        task["course"] = {ATTENTION: _part(self.sources[ATTENTION], imports)}
        if beside:
            files = (name for name in self.sources if ".lesson_" in name and name in sys.modules)
            module = (each for each in files if vars(sys.modules[each]).get("exercise") is exercise)
            task["module"] = next(module)
            task["checks"] = _needed(self.sources, task["module"])

        def answer(*args, **kwargs):
            return peer.call(0, args, kwargs)

        def run(_, *args):
            results = peer.call(0, (ONLY_LAYOUT.get(), *args))
            return [NO_FIT if type(each).__name__ == "object" else each for each in results]

        try:
            peer.ask("task", task)
            given = type(exercise.name, (), {}) if isinstance(exercise.reference, type) else answer
            status, _, hint, *_ = judge_here(exercise, given, run if beside else None)
        except calls.Refused as refused:
            status, _, hint = refused.args
        except Exception as error:  # of the cell
            stub = type(error) is NotImplementedError
            status = "not attempted" if stub else "wrong"
            hint = "not attempted yet" if stub else explained(error)
        with contextlib.suppress(calls.Refused, Exception):
            if not peer.has_ended:
                peer.deadline = time.monotonic() + 2
                peer.ask("done")
        return status, on_one_line(hint, 600), peer.has_ended


def _needed(sources, module):
    """Return the sources of a module and of what it imports of the course."""
    found, left = {}, [module]
    while left:
        name = left.pop()
        for key in {name, f"{name}."} & sources.keys() - found.keys():
            found[key] = sources[key]
            left += imports_of(ast.parse(sources[key]))
        if package := name.rpartition(".")[0]:
            left.append(package)
    return found


def _part(source, imports):
    """Return the part of `course_utils.attention` that some imports need."""
    tree, used = ast.parse(source), {each.removeprefix(f"{ATTENTION}.") for each in imports}
    kept = []
    for each in reversed(tree.body):  # each stands below what it uses
        names = {each.name} if isinstance(each, ast.FunctionDef | ast.ClassDef) else set()
        if isinstance(each, ast.Import | ast.ImportFrom):
            names = {alias.asname or alias.name for alias in each.names}
        if names & used:
            kept.insert(0, each)
            used |= {node.id for node in ast.walk(each) if isinstance(node, ast.Name)}
    return ast.unparse(ast.Module(kept, []))


def _in_child(function):
    """Return what a function returns in a copy of this process, which no answer can spoil."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            os.write(writer, json.dumps(function()).encode())
        os._exit(0)
    os.close(writer)
    is_ready, *_ = select.select([reader], [], [], PATIENCE + 20)
    with open(reader, "rb") as file:
        text = file.read() if is_ready else b""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return json.loads(text) if text else ["wrong", *ENDS["unreadable"][1:], False]


def _limit(processes):
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def _be_nobody():
    _limit(PROCESSES)
    os.setgroups([])
    os.setgid(65534)
    # each its own, so that no two share a keyring; systemd keeps these for users without a name
    os.setuid(61_184 + os.getpid() % 4_336)


_libc = ctypes.CDLL(None, use_errno=True)


def _mask(copy, hidden, kept):
    """Leave the network, and hide files, in this process and all that it starts."""

    def mount(source, target, kind=None, flags=0x1000):  # MS_BIND
        options = b"mode=755" if target == home or target in hidden else None
        if _libc.mount(str(source).encode(), str(target).encode(), kind, flags, options):
            raise OSError(ctypes.get_errno(), f"mounting on {target} failed")

    home = Path.home()
    if _libc.unshare(0x00020000 | 0x08000000 | 0x40000000):  # mounts, IPC, network
        raise OSError(ctypes.get_errno(), "unshare failed")
    mount("none", "/", None, 0x4000 | 0x40000)  # MS_REC | MS_PRIVATE: only for this process
    mount(copy, "/mnt")
    for number, path in enumerate(kept):
        mount(path, f"/mnt/kept{number}")
    for path in (home, *EMPTIED):
        if path.is_dir():
            mount("none", path, b"tmpfs", 0)
    for number, path in enumerate(kept):
        path.mkdir(parents=True, exist_ok=True)
        mount(f"/mnt/kept{number}", path)
    for path in hidden:
        if path.is_dir():
            mount("none", path, b"tmpfs", 0)
        elif path.exists():
            mount(os.devnull, path)
