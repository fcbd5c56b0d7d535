"""Whatever an answer does, it gets its verdict, and the learner's kernel never notices."""

import io
import itertools
import multiprocessing
import os
import textwrap
import time
from types import SimpleNamespace

import jupyter_client.manager
import psutil
import pytest
import torch

from course_utils import check
from course_utils.checks import calls, judge_process, known_results
from course_utils.checks.exercise import EXERCISES

pytestmark = pytest.mark.slow
NOTEBOOK = """
    import ctypes, functools, io, numpy, os, pickle, subprocess, sys, tempfile, threading, time
    import torch
    from concurrent.futures import ThreadPoolExecutor as Pool
    from multiprocessing import get_context, shared_memory
    from torch import nn
    from torch.overrides import BaseTorchFunctionMode as Mode
    from tqdm.auto import tqdm
    from typing import NewType, TypeVarTuple
    from course_utils import check
    from course_utils.checks import judge_process
    from course_utils.checks.exercise import EXERCISES
    from course_utils.checks.submission_kernel import triton

    model, lazy, lock = nn.Linear(9000, 9000), nn.LazyLinear(1), threading.Lock()
    traced = torch.jit.trace(lambda a, b: a @ b, (torch.ones(2), torch.ones(2)))
    part, wide = torch.ones(20_000_000)[:3], torch.ones(1).expand(20_000_000)
    sparse, traced_one = torch.ones(1, 1).to_sparse(), torch.ones((), requires_grad=True)
    kept = traced_one * 1
    kept.retain_grad()
    kept.backward()
    Vector, Sizes = NewType("Vector", torch.Tensor), TypeVarTuple("Sizes")
    sys.setrecursionlimit(10**6)
    deep = []
    for _ in range(10**5): deep = [deep]
    numpy.savez(file := io.BytesIO(), 1)
    stored = numpy.load(io.BytesIO(file.getvalue()))
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")

    check(lambda a, b: a, "dot")  # the process that judges has begun, in this folder
    os.chdir(tempfile.gettempdir())
    folder = os.getcwd()
    os.environ["LATER"] = "1"
    sys.path.append(type("Path", (str,), {})("lib"))

    def pipe():
        frame = sys._getframe()
        while "pipe" not in frame.f_locals: frame = frame.f_back
        return frame.f_locals["pipe"]

    def turns():
        while True: time.sleep(0.01)
    @functools.lru_cache(maxsize=8)
    def one(): return 1
    @functools.singledispatch
    def two(x): return 2

    class Dot(nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.scale = scale

        def forward(self, a, b): return self.scale * (a * b).sum()

    class Methods:
        @functools.cached_property
        def one(self): return 1
        @torch.compile
        def dot(self, a, b): return a @ b

    class Config:
        def __init__(self): self.values = {}
        def __getattr__(self, name): return self.values[name]

    class Spoilt:
        def __reduce__(self): return int, ("no number",)
    class Fatal:
        def __init__(self, error): self.error = error
        def __reduce__(self):
            while not self.error: pass
            raise self.error

    class Nested:
        def __reduce__(self): return str, (check(lambda a, b: nested, "dot").mistake,)

    spoilt, config, fatal, endless = Spoilt(), Config(), Fatal(SystemExit), Fatal(None)
    nested = Nested()

    class Endless(torch.Tensor):
        def detach(self):
            while True: pass
"""
# What the function does that answers exercise 1.1, and the mistake, or other words, in the verdict
ANSWERS = {
    "return Dot(1)(a, b)": "correct",
    "return one() * (a @ b) if one.cache_parameters()['maxsize'] == 8 else a": "correct",
    "return two(a) / 2 * (a @ b)": "correct",
    "return traced_one.grad * kept.grad * (a @ b)": "correct",
    "print(a); display(b); return a @ b": "hides what your code prints",
    "get_ipython().system('ls'); return a @ b": "correct",
    "return eval('Dot(1)')(a, b)": "correct",
    "from __main__ import Dot; return Dot(1)(a, b)": "correct",
    "return pickle.loads(pickle.dumps(Dot(1)))(a, b)": "correct",
    "return a @ b  # neither spoilt nor fatal": "correct",
    "return (not isinstance(lazy, nn.LazyLinear)) + a @ b": "correct",
    "return traced(a, b)": "correct",
    "def same(x: Vector) -> Sizes: return x\n    return same(a) @ b": "correct",
    "return stored[stored.files[0]].item() * part[0].item() * (a @ b)": "correct",
    "return wide[0].item() * sparse.sum().item() * (a @ b)": "correct",
    "return Methods().one * Methods().dot(a, b)": "correct",
    "os.getpid = lambda: 1 << 30; os._exit = lambda *_: None; return a @ b": "correct",
    "return sum(x * y for x, y in zip(tqdm(a), b))": "correct",
    "with Pool(2) as p: return sum(p.map(float, a * b))": "correct",
    "with get_context('spawn').Pool(1) as p: return p.map(abs, [1])[0] * (a @ b)": "correct",
    "s = shared_memory.SharedMemory(None, True, 8); s.unlink(); return a @ b": "correct",
    "torch.set_default_device('meta'); Mode().__enter__(); return a @ b": "correct",
    "half = torch.get_default_dtype() == torch.float16; torch.set_default_dtype(torch.float16); "
    "return a if half else a @ b": "correct",
    "torch.backends.cudnn.deterministic = True; return a @ b": "correct",
    "if os.fork() == 0: os._exit(0)\n    return a @ b": "correct",
    "check(f, 'dot'); return a @ b": "correct",
    "return a @ b if nested == 'checks itself' else a": "correct",
    "torch.Tensor.all = lambda *_, **__: torch.tensor(True); return a @ b": "correct",
    "return torch.rand(()) + a @ b": "depends on chance",
    "return a @ b if 'LATER' in os.environ and 'lib' in sys.path else a": "correct",
    "return a @ b if os.getcwd() == folder and os.environ['MPLBACKEND'] == 'agg' else a": "correct",
    "pipe().send_bytes(b'[\"great\", null, 5]'); os._exit(0)": "malformed verdict",
    'pipe().send_bytes(b\'["wrong", null, "", [[]], [[]]]\'); os._exit(0)': "malformed verdict",
    "pipe().close(); return a @ b": "leaves Python",
    "return a @ undefined": "in line 2, `return a @ undefined`",
    "return 7 ** 10**9": "runs for ever",
    "return Endless(1)": "runs for ever",
    "exit()": "leaves Python",
    "sys.exit()": "leaves Python",
    "os._exit(0)": "leaves Python",
    "os.kill(os.getpid(), 9)": "crashes Python",
    "os.killpg(0, 9) if sys.platform == 'linux' else os.kill(os.getpid(), 9)": "crashes Python",
    "ctypes.string_at(0)": "crashes Python",
    "return input('?')": "asks for input",
    "breakpoint()": "starts a debugger",
    "threading.Thread(target=turns).start(); return a @ b": "leaves a thread",
    "subprocess.Popen(['sleep', '99']); return a @ b": "leaves a thread",
    "return a @ model.weight": "uses model, which cannot be copied",
    "return deep, a @ b": "uses deep, which cannot be copied",
    "return fatal, a @ b": "uses fatal, which cannot be copied",
    "return config, a @ b": "uses config, which cannot be copied",
    "return endless, a @ b": "uses endless, which cannot be copied",
    "with lock: return a @ b": "uses lock, which cannot be copied",
    "return (lambda: (lock, a @ b))()[1]": "uses lock, which cannot be copied",
}
RIGHT = "print(check(lambda a, b: a @ b, 'dot'))"
STATE = "print(torch.initial_seed(), os.getcwd(), threading.enumerate(), torch.Tensor.all)"


@pytest.fixture(scope="module")
def notebook():
    """Return a function that runs a cell in a kernel and returns what it shows."""
    manager, client = jupyter_client.manager.start_new_kernel(kernel_name="python3")

    def run(code, interrupt=False):
        shown = []

        def show(message):
            shown.append(message["content"].get("text") or message["content"].get("ename") or "")
            if interrupt and shown[-1]:
                time.sleep(0.5)
                manager.interrupt_kernel()

        code = textwrap.dedent(code)
        client.execute_interactive(code, timeout=300, allow_stdin=False, output_hook=show)
        return "".join(shown)

    assert run(NOTEBOOK) == ""
    yield run
    kernel = psutil.Process(int(run("print(os.getpid())")))
    processes = kernel.children(recursive=True)
    kernel.kill()
    assert processes and not psutil.wait_procs(processes, timeout=60)[1]
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("body", ANSWERS)
def test_every_answer_gets_its_verdict_and_the_next_are_judged(notebook, body):
    before = notebook(STATE)
    notebook(f"judge_process.PICKLING = {2.0 if 'endless' in body else 60.0}")
    assert notebook(f"def f(a, b):\n    {body}") == ""
    verdict = notebook("verdict = check(f, 'dot')\nprint(verdict.mistake, verdict)")
    assert ANSWERS[body] in verdict
    assert "❌" in notebook("print(check(lambda a, b: a, 'dot'))")
    assert "✅" in notebook(RIGHT)
    assert notebook(STATE) == before


@pytest.mark.skipif(os.name == "nt", reason="Triton exists for Linux only")
def test_a_kernel_is_judged(notebook):
    answer = "triton.jit(EXERCISES['windowed_kernel'].reference)"
    assert "✅" in notebook(f"print(check({answer}, 'windowed_kernel'))")


def test_checks_in_several_threads_wait_for_each_other(notebook):
    dots = "Pool(3).map(lambda f: check(f, 'dot').status, 3 * [lambda a, b: a @ b])"
    assert notebook(f"print({{*{dots}}})") == "{'correct'}\n"


def test_stop_ends_a_check_at_once(notebook):
    notebook("def f(a, b):\n    while True: pass")
    assert notebook("print('now')\ncheck(f, 'dot')", interrupt=True) == "now\nKeyboardInterrupt"
    assert "✅" in notebook(RIGHT)


@pytest.mark.parametrize(
    "edit, told",
    [
        ("def dot(a, b): return a @", True),
        ("async def dot(a, b): return a @", True),
        ("@renamed\ndef dot(a, b): return a @", True),
        ("dot = lambda a, b: a @", True),
        ("norm, dot = 1, lambda a, b: a @", True),
        ("from nowhere import dot", True),
        ("import torch; dot = lambda a, b: a @", True),
        ("if no_such_name:\n    def dot(a, b): return a", True),
        ("dot: object = lambda a b: a", True),
        ("define dot(a, b): return a", True),
        ("def other(): pass\nno_such_name\ndot = other", True),
        ("dot = functools.partial(dot); no_such_name", False),
        ("%%time\ndot = functools.partial(dot)\nno_such_name", False),
        ("dot: object\nno_such_name", False),
        ("with torch.no_grad():\n    def dot(a, b): return a @", True),
        ("other = dot = lambda a b: a", True),
        ("%time dot = no_such_name", True),
        ("if True:\n    def norm(a):\n\n        dot = a @ a\n        return (dot", False),
        ('# dot = 1\n"""\ndot: 1\n"""\nplot(\n    dot=dot,\n    1 2)', False),
        ("del dot\ndef dot(a, b): return a\ndef dot(a, b): return a @ b\nno_such_name", False),
        ("%%time\nno_such_name\ndef dot(a, b): return a", True),
        ("%%time\ndef dot(a, b): return a @", True),
        ("Def dot(a, b): return a", True),
        ("class Sizes:\n    dot = no_such_name", False),
        ("x = 1\n def dot(a, b):\n    return 0", True),  # a stray space
        ('def helper(x):\n    """Helper.\n    return x\n\ndef dot(a, b): return 0', True),
        ("print('Here's the result: dot =', dot(1, 2))", False),
        ("sizes = dict(norm=abs, dot=dot", False),
        ("dot(a, b) -> float: return a @", True),
        ("# import dot\ndot.calls = no_such_name", False),
        ("for fn in [dot]: no_such_name", False),
        ("def inner(: pass", True),  # the name that a decorator left
        ("dot == 1 @", False),
        ("other = dot(1, 2", False),
        ("no_such_name\ndef dot(a, b): return a", True),
        ("def dot(a, b): return a @ b\nno_such_name", False),
    ],
)
def test_an_answer_whose_newest_version_did_not_run_is_not_judged(notebook, edit, told):
    name = "inner" if "inner(" in edit else "("  # a decorator may leave it
    notebook(f"def dot(a, b): return a @ b\ndot.__name__ = {name!r}")
    # _IncompleteInputError is raised from Python 3.13 on
    errors = (
        "SyntaxError",
        "IndentationError",
        "_IncompleteInputError",
        "NotFoundError",
        "NameError",
    )
    assert notebook(edit).endswith(errors) and notebook("x = 1") == ""
    verdict = notebook("print(check(dot, 'dot'))")
    assert ("did not run (" in verdict and "_Inc" not in verdict) == told
    assert "✅" in (notebook("print(check(dot, 'dot'))") if told else verdict)


def test_an_answer_that_the_cell_with_its_check_defines_is_judged(notebook):
    assert notebook("no_such_name\ndef dot(a, b): return a") == "NameError"
    assert "✅" in notebook("if True:\n    dot = lambda a, b: a @ b\nprint(check(dot, 'dot'))")


def test_a_class_whose_newest_version_raised_an_error_is_not_judged(notebook):
    kind = "class SelfAttention(torch.nn.Module):\n    def forward(self, x): return x"
    assert notebook(kind) == "" and notebook(f"{kind}\n    width = no_such_name") == "NameError"
    assert "did not run (" in notebook("print(check(SelfAttention))")
    assert notebook(f"{kind}\nno_such_name") == "NameError"
    assert "❌" in notebook("print(check(SelfAttention))")


def test_matrices_come_back_for_the_picture_also_from_a_new_server(monkeypatch):
    monkeypatch.setattr(judge_process, "in_process", False)
    server = judge_process.start()
    server.kill()
    server.wait()
    verdict = check(lambda q, k: 3 * (q @ k.mT), "dot_product_scores")
    assert torch.allclose(verdict.got, 3 * verdict.expected)


def test_an_answer_that_stops_the_server_is_ended(monkeypatch):
    monkeypatch.setattr(judge_process, "in_process", False)
    assert check(torch.dot, "dot").status == "correct"  # the server has begun
    with monkeypatch.context() as shortly:
        shortly.setattr(judge_process, "PATIENCE", 2.0)
        code = "import os, signal; os.kill(os.getppid(), signal.SIGSTOP)"
        assert judge_process.GONE in check(lambda a, b: exec(code), "dot").message
    assert check(torch.dot, "dot").status == "correct"


def test_the_clock_starts_again_for_each_input(monkeypatch):
    seconds = itertools.count(0, 0.6 * judge_process.SECONDS)
    used_before = judge_process.MEMORY + 1  # of memory, which is not the answer's
    monkeypatch.setattr(judge_process, "_used", lambda _: (next(seconds), used_before))
    waits, messages = itertools.cycle([False, True]), iter([*[b"answer"] * 3, b"verdict"])
    pipe = SimpleNamespace(poll=lambda _: next(waits), recv_bytes=lambda: next(messages))
    child = SimpleNamespace(pid=os.getpid(), exitcode=None)
    assert judge_process._watched(child, pipe, io.BytesIO()) == b"verdict"


@pytest.mark.parametrize("of, words", [(b"mistake", b"verdict"), (b"answer", b"Does it sleep")])
def test_time_for_known_mistakes_is_not_taken_from_the_answer(monkeypatch, of, words):
    seconds = itertools.count(0, 0.6 * judge_process.PATIENCE)  # on a machine that is busy
    clock = SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr(judge_process, "time", clock)
    messages, replies = iter([of, of, of, b"verdict"]), io.BytesIO()
    pipe = SimpleNamespace(poll=lambda _: True, recv_bytes=lambda: next(messages))
    child = SimpleNamespace(pid=os.getpid(), exitcode=None)
    assert words in judge_process._watched(child, pipe, replies)
    assert (len(replies.getvalue().splitlines()) == 3) == (of == b"mistake")  # the kernel hears it


def test_a_check_says_that_an_input_is_done(monkeypatch):
    begun, dot = [], EXERCISES["dot"]
    known_results.expected(dot)  # is known from now on
    monkeypatch.setattr(calls, "restart_clock", lambda of="": begun.append(of))
    assert check(dot.reference).status == "correct"
    tried = len(begun)
    results = [*known_results.mistaken.__wrapped__(dot, dot.mistakes[0])]
    assert tried >= len(results) == len(begun) - tried


@pytest.mark.parametrize(
    "name, limit, words", [("PATIENCE", 0.2, b"Does it sleep"), ("MEMORY", 1 << 27, b"of memory")]
)
def test_what_waits_or_takes_memory_is_ended(monkeypatch, name, limit, words):
    monkeypatch.setattr(judge_process, name, limit)
    code = "[b'x' * (1 << 29), __import__('time').sleep(99)]"  # half a gigabyte
    child = multiprocessing.get_context("spawn").Process(target=eval, args=(code,))
    child.start()
    ours, _ = multiprocessing.Pipe()
    assert words in judge_process._watched(child, ours, io.BytesIO())
    child.kill()
