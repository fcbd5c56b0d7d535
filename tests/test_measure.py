"""Peak memory, CPU time and bytes sent, against what is known to be held, taken and sent."""

import time

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as collectives

from course_utils.distributed import RankError, spawn
from course_utils.measure import bytes_sent, cpu_seconds, peak_memory

MB = 1_000_000


@pytest.fixture(scope="module")
def x():
    return torch.zeros(MB // 4)


@pytest.mark.parametrize(
    "run, most",
    [
        (lambda x: None, 0),
        (lambda x: x[:10], 0),  # a view: nothing new
        (lambda x: x + 1, 1),  # the result counts
        (lambda x: (x + 1).sum().item(), 1),  # what is released at the end was held too
        (lambda x: [(x + 1).sum().item() for _ in range(5)], 1),  # one after the other
        (lambda x: (torch.cat([x, x, x]).sum().item(), (x + 1).sum().item()), 3),  # the most
    ],
)
def test_peak_memory_is_the_most_that_is_held_at_once(x, run, most):
    assert most * MB <= peak_memory(lambda: run(x)) < (most + 0.1) * MB


def test_peak_memory_runs_once_and_prints_nothing(capfd):
    calls = []
    peak_memory(lambda: calls.append(1))
    assert calls == [1] and capfd.readouterr() == ("", "")


@pytest.fixture
def clock(monkeypatch):
    """Return the CPU time, as a list of one number that a test sets."""
    now = [100.0]
    monkeypatch.setattr(time, "process_time", lambda: now[0])
    return now


def test_cpu_seconds_are_the_mean_of_calls_without_the_first(clock):
    calls = []

    def run(a, b):
        calls.append((a, b))
        clock[0] += 0.25 if len(calls) > 1 else 50.0

    assert cpu_seconds(run, 1, 2, at_least=1.0) == 0.25
    assert calls == [(1, 2)] * 5


def test_cpu_seconds_are_counted_in_one_thread_and_the_threads_come_back(clock):
    seen = []

    def interrupted():
        seen.append(torch.get_num_threads())
        raise KeyboardInterrupt

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with pytest.raises(KeyboardInterrupt):
            cpu_seconds(interrupted)
        assert torch.get_num_threads() == 3 and seen == [1]
    finally:
        torch.set_num_threads(before)


def send(way):
    """Return the bytes counted on this rank of two."""
    x = torch.ones(6, 2)  # 48 bytes
    rank, other = dist.get_rank(), 1 - dist.get_rank()

    def run():
        if way == "pair":
            calls = [(dist.isend, x), (dist.irecv, torch.empty_like(x))]
            for work in dist.batch_isend_irecv([dist.P2POp(*call, other) for call in calls]):
                work.wait()
        elif way == "sum":
            dist.all_reduce(x)
        elif way == "uneven":
            sizes, received = ([2, 4], [2, 5]) if rank == 0 else ([5, 1], [4, 1])
            collectives.all_to_all_single(x, received, sizes, dist.group.WORLD).wait()
        elif way == "all-to-all and back":
            leaf = x.clone().requires_grad_()
            out = collectives.all_to_all_single_autograd(leaf, None, None, dist.group.WORLD)
            (2 * out).sum().backward()
        elif way == "gather":
            dist.all_gather([torch.empty_like(x) for _ in range(2)], x)

    return bytes_sent(run)


@pytest.mark.slow
@pytest.mark.parametrize(
    "way, sent",
    [
        ("nothing", [0, 0]),
        ("pair", [48, 48]),
        ("sum", [48, 48]),  # half of it, twice
        ("uneven", [4 * 8, 5 * 8]),  # without what each keeps
        ("all-to-all and back", [48, 48]),  # half of it, forward and backward
    ],
)
def test_bytes_are_those_that_leave_a_rank(way, sent):
    assert spawn(send, 2, way, seconds=60) == sent


def test_what_cannot_be_counted_is_an_error():
    with pytest.raises(RankError, match="NotImplementedError: the bytes that allgather_ sends"):
        spawn(send, 2, "gather", seconds=60)
