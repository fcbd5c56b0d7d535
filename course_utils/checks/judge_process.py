"""Judge an answer in a process of its own: nothing that it does reaches the learner's kernel.

The kernel starts a *server*, a process that imports PyTorch and then waits. For each answer the
server has a fresh *child*. It watches the child, sends the verdict to the kernel, and kills it.
"""

import bdb
import builtins
import contextlib
import ctypes
import gc
import json
import linecache
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import types
from multiprocessing import forkserver, resource_tracker

import cloudpickle
import psutil
import torch
from IPython.display import display

from course_utils import json_store
from course_utils.checks import calls, errors
from course_utils.checks.exercise import EXERCISES
from course_utils.checks.known_results import expected
from course_utils.checks.newest_version import newest_version_error
from course_utils.checks.pickled_answer import pickled, used_by

SECONDS = 5.0  # of computing, for one input; the checks' own inputs take milliseconds
PICKLING = 10.0  # seconds, for what is sent
PATIENCE = 25.0  # seconds, for the answer on all inputs; a frozen server is ended 3 s later
MEMORY = 2 << 30  # bytes that an answer may add
LONGEST_REPLY = 1 << 20  # letters of a verdict with its picture
SETTINGS = {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}  # for the environment of an answer
TICK = 0.05  # seconds between two looks at a child
BEGUN = b"begun\n"  # the task, or a known mistake to compare it with
GRACE = 1.0  # seconds in which what an answer has started may end

LEFT = (
    "leaves a thread",
    "A thread or process that your code started is still running. Wait until it ends.",
)
DEBUGS = "starts a debugger", "Your code starts a debugger. Remove that line before you check."
CRASHES = "crashes Python", "Your code crashes Python. The system reports: "
GREEDY = (
    "takes memory",
    f"Your code takes more than {MEMORY >> 30} GB of memory. Is there an infinite loop?",
)
LOOPS = (
    "runs for ever",
    f"Your code still computes after {SECONDS:g} seconds. Is there an infinite loop?",
)
WAITS = (
    "waits",
    f"Your code is not finished after {PATIENCE:g} seconds. Does it sleep or wait for a lock?",
)
NOT_SENT = (
    "{} cannot be copied into the process that judges ({}). Create it inside the function, or keep "
    "what the function needs of it in a variable: `n = len(x)`, for example."
)
NOT_RUN = (
    "The cell with your newest version did not run ({}), so this would judge the version before. "
    "Fix that cell, run it, and then run this one."
)
GONE = (
    "The process that judges answers has ended or does not reply. Run this cell again. If you read "
    "this again, your code ends or stops that process."
)

_one_at_a_time = threading.RLock()
in_process = False  # whether to judge in this very process, as the course's own tests do
_server = None


# In the kernel


def start():
    """Start the server in the background, unless it runs; return it."""
    global _server
    if _server is None or _server.poll() is not None:
        path = [*map(str, sys.path)]
        code = f"import sys; sys.path[:] = {path!r}; from {__name__} import serve; serve()"
        _server = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | SETTINGS,
            start_new_session=True,  # what interrupts the kernel is not meant for the server
        )
    return _server


def judge(exercise, answer):
    """Return what `judge.judge_here` returns in another process, or why it cannot be asked."""
    error, used = None, []
    with _limited(PICKLING, Exception):  # whatever the answer's attributes do
        error = newest_version_error(answer)
    if error:
        return "not checked", "cell did not run", NOT_RUN.format(error)
    if _one_at_a_time._is_owned():  # something that is pickled checks, too
        return "wrong", *calls.NESTED
    with _one_at_a_time:
        late = time.monotonic() + 2 * PICKLING
        status, mistake, hint, *pictured = _asked(exercise.name, answer)
        if mistake == "cannot be sent":
            what = "It"
            with _limited(PICKLING, Exception):
                used = [*used_by(answer)]
            for name, value in used:
                if time.monotonic() > late:
                    break
                if _asked(exercise.name, [value])[1] == mistake:  # in a list, it is not called
                    what = f"Your code uses {name}, which"
                    break
            hint = NOT_SENT.format(what, hint)
    return status, mistake, hint, *pictured


def _asked(name, answer):
    """Return the verdict of another process on an answer, or why that cannot be had."""
    try:
        with _limited(PICKLING):
            letters = pickled(answer)
        # cells have no time of change; with them, an error can name its line
        cells = {k: each for k, each in linecache.cache.items() if len(each) > 1 and not each[1]}
        path, folder = [*map(str, sys.path)], str(json_store.working_directory())
        task = pickle.dumps((name, letters, cells, path, folder, {**os.environ}))
    except Exception as error:
        return "not checked", "cannot be sent", errors.summarize(error)
    server, token = start(), os.urandom(8).hex()
    try:
        pickle.dump((token, task), server.stdin)
        server.stdin.flush()
        line = server.stdout.readline()  # it has imported PyTorch
        while line == BEGUN:
            with _after(PATIENCE + 3 * GRACE, _end, server):  # an answer could stop the server
                line = server.stdout.readline()
        echo, reply = json.loads(line)
        if echo != token:
            raise ValueError("an answer has written this")
    except BaseException as error:  # KeyboardInterrupt too
        _end(server)
        server.wait()
        start()
        if isinstance(error, OSError | ValueError | TypeError):
            return "not checked", "process has ended", GONE
        raise
    return _verdict(reply)


@contextlib.contextmanager
def _limited(seconds, *ignored):
    """Raise TimeoutError if what is within takes longer; ignore errors of the kinds named."""
    thread, late = ctypes.c_ulong(threading.get_ident()), ctypes.py_object(TimeoutError)
    with contextlib.suppress(*ignored):
        with _after(seconds, ctypes.pythonapi.PyThreadState_SetAsyncExc, thread, late):
            yield


@contextlib.contextmanager
def _after(seconds, function, *args):
    """Call a function in another thread if what is within takes longer than that."""
    limit = threading.Timer(seconds, function, args)
    limit.start()
    try:
        yield
    finally:
        limit.cancel()
        limit.join()


def _end(server):
    with contextlib.suppress(psutil.Error):
        _kill_all_below(psutil.Process(server.pid))
    server.kill()


def _verdict(reply):
    """Return the verdict in a child's reply, or one of ours if the answer has spoiled it."""
    with contextlib.suppress(Exception):
        status, mistake, hint, *matrices = json.loads(reply[:LONGEST_REPLY])
        known = status in ("not attempted", "correct", "wrong", "not checked")
        pictured = torch.tensor(matrices, dtype=torch.float64, device="cpu") if matrices else ()
        fits = not matrices or pictured.ndim == 3 and len(pictured) == 2 and pictured.numel()
        if known and isinstance(mistake, str | None) and isinstance(hint, str) and fits:
            return status, mistake, hint, *pictured
    return "wrong", CRASHES[0], CRASHES[1] + "malformed verdict"


# In the server


def serve():
    """Read tasks from the standard input until it ends, and write lines for each.

    The last of them is JSON; those before it say that something has begun.
    """
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    forks = sys.platform == "linux"  # on macOS it is not safe after an import of PyTorch
    if forks:
        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: no process of an answer is lost
    context = multiprocessing.get_context("fork" if forks else "spawn")
    server = psutil.Process()
    torch.set_num_threads(1)  # so that a fork is safe
    expected(EXERCISES["dot"])  # PyTorch's first calls are slow; no gradients: they start threads
    gc.freeze()  # a child's garbage collection would copy what it shares with the server
    # until the kernel has ended; else none could ask a server that does not understand
    with contextlib.suppress(Exception):
        while True:
            ours, theirs = context.Pipe()
            inherited = (ours, requests, replies) if forks else ()
            child = context.Process(target=_work, args=(theirs, *inherited))
            child.start()
            theirs.close()
            token, task = pickle.load(requests)
            _send(replies, BEGUN)
            ours.send_bytes(task)
            reply = _watched(child, ours, replies).decode(errors="replace")
            ours.close()
            while server.children():  # none may be left to stop the server
                _kill_all_below(server)
                with contextlib.suppress(ChildProcessError, AttributeError):  # none; on Windows
                    while os.waitpid(-1, os.WNOHANG)[0]:
                        pass
            _send(replies, json.dumps((token, reply)).encode() + b"\n")
    _kill_all_below(server)


def _send(replies, line):
    replies.write(line)
    replies.flush()


def _watched(child, pipe, replies):
    """Return the child's verdict, or one of ours if it ends without or takes too much."""
    process, kernel, begun = psutil.Process(child.pid), os.getppid(), time.monotonic()
    computed, memory = _used(process)
    while os.getppid() == kernel and time.monotonic() < begun + PATIENCE:
        ended = child.exitcode is not None
        try:
            if pipe.poll(0 if ended else TICK):
                message = pipe.recv_bytes()
                if message not in (b"answer", b"mistake"):
                    return message
                computed, _ = _used(process)  # another input: the clock starts again
                if message == b"mistake":  # its time is ours, not the answer's
                    begun = time.monotonic()
                    _send(replies, BEGUN)
                continue
        except (EOFError, OSError):  # the answer has closed its end
            time.sleep(TICK)
        if ended:
            signal_name = signal.strsignal(-child.exitcode) if child.exitcode < 0 else None
            mistake, hint = CRASHES if signal_name else calls.LEAVES
            return _refusal(mistake, hint + (signal_name or ""))
        used = _used(process)
        if used[1] - memory > MEMORY:
            return _refusal(*GREEDY)
        if used[0] - computed > SECONDS:
            return _refusal(*LOOPS)
    return _refusal(*WAITS)


def _refusal(mistake, hint):
    return json.dumps(("wrong", mistake, hint)).encode()


def _used(process):
    """Return the seconds for which a process has computed, and its memory in bytes."""
    try:
        return sum(process.cpu_times()[:2]), process.memory_info().rss
    except psutil.Error:  # it has just ended
        return 0, 0


def _kill_all_below(process):
    for each in process.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            each.kill()


# In the child


def _work(pipe, *inherited):
    """Judge the one answer that comes through the pipe, and end without a return.

    After a return, this process would go on as a second server.
    """
    global in_process
    exit_now, process_number = os._exit, os.getpid  # before an answer can replace them
    process, in_process = process_number(), True
    for stream in inherited:
        stream.close()
    if inherited:  # forked, on Linux
        os.setsid()  # else os.killpg() would reach the server
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with the server
    bdb.Bdb.set_trace = _refuse_debugger
    task = pickle.loads(pipe.recv_bytes())
    calls.restart_clock = lambda of=b"answer": pipe.send_bytes(of)
    try:
        verdict = _judged(process, *task)
        if process_number() == process:  # else this is a fork that the answer has made
            reply = json.dumps(verdict, ensure_ascii=False, default=torch.Tensor.tolist)
            pipe.send_bytes(reply.encode(errors="replace"))
    finally:
        exit_now(0)


def _judged(process, name, letters, cells, path, folder, environment):
    from course_utils.checks.judge import judge_here

    sys.path[:] = path
    os.environ.clear()
    os.environ.update(environment | SETTINGS)
    linecache.cache.update(cells)
    with contextlib.suppress(OSError):
        os.chdir(folder)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    builtins.display = display  # as in a notebook; here it prints
    for letter in letters:
        try:
            answer, mentioned = cloudpickle.loads(letter)
            break
        except BaseException as error:
            why = errors.summarize(error)
    else:
        return "not checked", "cannot be sent", why
    vars(main).update(mentioned)
    try:
        verdict = judge_here(EXERCISES[name], answer)
    except BaseException:  # SystemExit from a result of the learner's own class, for instance
        return "wrong", *calls.LEAVES
    end = time.monotonic() + GRACE
    while _has_threads() or _has_children(process):
        if time.monotonic() > end:
            return "wrong", *LEFT
        time.sleep(TICK)
    return verdict


def _refuse_debugger(*_, **__):
    raise calls.Refused("wrong", *DEBUGS)


def _has_threads():
    """Tell whether the learner's code runs in another thread; libraries may have some."""
    for thread, frame in sys._current_frames().items():
        while thread != threading.get_ident() and frame:
            if errors.is_learners_file(frame.f_code.co_filename):
                return True
            frame = frame.f_back
    return False


def _has_children(process):
    """Tell whether a process of the answer runs; those that Python itself keeps do not count."""
    kept = resource_tracker._resource_tracker._pid, forkserver._forkserver._forkserver_pid
    below = psutil.Process(process).children(recursive=True)
    return any(each.pid not in kept and each.status() != psutil.STATUS_ZOMBIE for each in below)
