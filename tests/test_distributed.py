"""Functions in several processes: what they return, and the report of a rank that fails."""

import multiprocessing
import os
import sys

import nbformat
import pytest
import torch
import torch.distributed as dist
from nbclient import NotebookClient

from course_utils.distributed import RankError, spawn

pytestmark = pytest.mark.slow  # each test starts processes

# Functions are defined within the tests, so that they are sent by value, as those of a notebook.


@pytest.fixture(autouse=True)
def no_process_left():
    yield
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("ranks", [1, 4])
def test_each_rank_returns_its_own_answer_in_order(ranks):
    def answer(x):
        total = x + dist.get_rank()
        dist.all_reduce(total)  # the ranks reach each other, and share the cores
        return dist.get_rank(), dist.get_world_size(), total.item(), torch.get_num_threads()

    # time runs only when all have joined
    answers = spawn(answer, ranks, torch.ones(1), seconds=2)
    total = ranks * (ranks + 1) / 2
    assert answers == [(rank, ranks, total, 1) for rank in range(ranks)]


def failure(function, ranks, seconds):
    with pytest.raises(RankError) as failed:
        spawn(function, ranks, seconds=seconds)
    return str(failed.value).splitlines()


def test_a_rank_that_raises_is_reported_at_once_with_its_error_and_line():
    def fails():
        if dist.get_rank() == 1:
            raise KeyError("nothing here")
        dist.barrier()

    line = fails.__code__.co_firstlineno + 2
    first, *others = failure(fails, 3, seconds=600)
    assert first == f"rank 1 raised KeyError: 'nothing here', in line {line} of fails"
    assert others == [f"ranks 0, 2 had not returned: still waiting in line {line + 1} of fails"]


def test_the_ranks_that_waited_can_be_told_from_the_others():
    with pytest.raises(RankError) as failed:
        spawn(lambda: dist.get_rank() == 1 or dist.recv(torch.zeros(1), 1), 3, seconds=1)
    assert failed.value.waiting == [0, 2]


def test_a_function_may_call_operators_of_torch_ops():
    assert spawn(lambda x: torch.ops.aten.neg(x).item(), 1, torch.ones(())) == [-1]


def test_an_exit_is_reported_like_an_error_and_so_is_what_cannot_be_sent_back():
    assert failure(lambda: sys.exit("enough"), 1, 60)[0].startswith("rank 0 raised SystemExit: en")
    message = failure(lambda: (n for n in range(3)), 1, 60)[0]
    assert message.startswith("rank 0 raised TypeError: cannot pickle 'generator'")


def test_a_rank_that_dies_is_reported_with_its_exit_code_at_once():
    def dies():
        if dist.get_rank() == 1:
            os._exit(3)
        dist.barrier()

    assert failure(dies, 2, seconds=600)[0] == "rank 1 died (exit code 3)"  # without the wait


def test_a_rank_that_hangs_is_reported_before_those_that_waited_for_it():
    def hangs():
        while dist.get_rank() == 1:
            pass
        dist.recv(torch.zeros(1), 2 - dist.get_rank())  # ranks 0 and 2 wait for each other

    start = hangs.__code__.co_firstlineno
    first, second = failure(hangs, 3, seconds=1)
    wanted = [f"rank 1 had not returned: still busy in line {start + n} of hangs" for n in (1, 2)]
    assert first in wanted
    assert second == f"ranks 0, 2 had not returned: still waiting in line {start + 3} of hangs"


@pytest.mark.parametrize(
    "function, ranks, message",
    [(print, ranks, f"ranks must be an int of at least 1, got {ranks!r}") for ranks in (0, 2.0)]
    + [(3, 2, "function must be callable, got int")],
)
def test_wrong_arguments_are_named(function, ranks, message):
    with pytest.raises((TypeError, ValueError), match=message):
        spawn(function, ranks)


def test_a_notebooks_own_function_runs_with_what_it_refers_to():
    cells = [
        "import torch.distributed as dist\nfrom course_utils.distributed import spawn\n"
        "def twice(x):\n    return 2 * x\ndef answer():\n    return twice(dist.get_rank())",
        "spawn(answer, 2)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    NotebookClient(notebook, kernel_name="python3").execute()
    assert notebook.cells[1].outputs[0].data["text/plain"] == "[0, 2]"
