"""Functions in several processes: what they return, and what is said of a rank that does not."""

import multiprocessing
import os
import sys

import nbformat
import pytest
import torch
import torch.distributed as dist
from nbclient import NotebookClient

from course_utils.distributed import RankError, spawn

# The functions stand within the tests, so that they are sent by value, as those of a notebook are.


@pytest.fixture(autouse=True)
def nobody_left():
    yield
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_each_rank_returns_its_own_answer_in_order(ranks):
    def answer(x):
        return dist.get_rank(), dist.get_world_size(), x + dist.get_rank()

    answers = spawn(answer, ranks, torch.zeros(2))
    assert [each[:2] for each in answers] == [(rank, ranks) for rank in range(ranks)]
    assert [each[2].tolist() for each in answers] == [2 * [float(rank)] for rank in range(ranks)]


def test_ranks_reach_each_other():
    def total():
        x = torch.tensor([1.0 + dist.get_rank()])
        dist.all_reduce(x)
        return x.item()

    assert spawn(total, 3) == [6, 6, 6]


def test_the_ranks_share_the_cores():
    def threads():
        return torch.get_num_threads()

    assert spawn(threads, 2) == [1, 1]


def told(function, ranks, seconds=2):
    with pytest.raises(RankError) as failed:
        spawn(function, ranks, seconds=seconds)
    return str(failed.value).splitlines()


def test_a_rank_that_raises_is_told_with_its_error_and_line():
    def fails():
        if dist.get_rank() == 1:
            raise KeyError("nothing here")
        dist.barrier()

    line = fails.__code__.co_firstlineno + 2
    first, *others = told(fails, 3, seconds=60)  # the others need not wait in vain
    assert first == f"rank 1 raised KeyError: 'nothing here', in line {line} of fails"
    assert others == [f"ranks 0, 2 waited, in line {line + 1} of fails"]


def test_an_exit_is_told_like_an_error():
    def leaves():
        sys.exit("enough")

    assert told(leaves, 1)[0].startswith("rank 0 raised SystemExit: enough, in line")


def test_a_rank_that_dies_is_told_with_its_exit_code_at_once():
    def dies():
        if dist.get_rank() == 1:
            os._exit(3)
        dist.barrier()

    assert told(dies, 2, seconds=600)[0] == "rank 1 died (exit code 3)"  # without the wait


def test_a_rank_that_hangs_is_told_with_its_line_before_those_that_waited_for_it():
    def hangs():
        while dist.get_rank() == 1:
            pass
        dist.barrier()

    start = hangs.__code__.co_firstlineno
    first, second = told(hangs, 3)
    wanted = [f"rank 1 had not returned: it was busy in line {start + n} of hangs" for n in (1, 2)]
    assert first in wanted
    assert second == f"ranks 0, 2 waited, in line {start + 3} of hangs"


def test_ranks_that_wait_for_each_other_are_told():
    def waits():
        dist.recv(torch.zeros(1), 1 - dist.get_rank())

    line = waits.__code__.co_firstlineno + 1
    assert told(waits, 2) == [f"ranks 0, 1 waited, in line {line} of waits"]


def test_time_runs_only_when_all_have_joined():
    def slow_to_arrive():
        return dist.get_rank()

    assert spawn(slow_to_arrive, 4, seconds=0.5) == [0, 1, 2, 3]


def test_what_cannot_be_sent_back_is_told():
    def gives():
        return (number for number in range(3))

    assert told(gives, 1)[0].startswith("rank 0 raised TypeError: cannot pickle 'generator'")


@pytest.mark.parametrize("ranks", [0, -1, 2.0, "two"])
def test_the_number_of_ranks_is_checked(ranks):
    with pytest.raises(ValueError, match=f"ranks must be a whole number from 1, got {ranks!r}"):
        spawn(print, ranks)


def test_a_function_is_needed():
    with pytest.raises(TypeError, match="function must be callable, got int"):
        spawn(3, 2)


def test_a_notebooks_own_function_runs_with_what_it_refers_to():
    cells = [
        "import torch.distributed as dist\nfrom course_utils.distributed import spawn\n"
        "def twice(x):\n    return 2 * x\ndef answer():\n    return twice(dist.get_rank())",
        "spawn(answer, 2)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    NotebookClient(notebook, kernel_name="python3").execute()
    assert notebook.cells[1].outputs[0].data["text/plain"] == "[0, 2]"
