"""The most memory held at once, against what is known to be held."""

import pytest
import torch

from course_utils.measure import peak_memory

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
        (lambda x: [x + 1, x + 2], 2),
        (lambda x: (x + 1).sum().item(), 1),  # what is released at the end was held too
        (lambda x: [(x + 1).sum().item() for _ in range(5)], 1),  # one after the other
        (lambda x: (torch.cat([x, x, x]).sum().item(), (x + 1).sum().item()), 3),  # the most
        (lambda x: torch.cat([(x + 1)[:10], torch.cat([x, x])[:10]]), 3),
    ],
)
def test_peak_memory_is_the_most_that_is_held_at_once(x, run, most):
    assert most * MB <= peak_memory(lambda: run(x)) < (most + 0.1) * MB


def test_peak_memory_runs_once():
    calls = []
    peak_memory(lambda: calls.append(1))
    assert calls == [1]


def test_peak_memory_writes_nothing(capfd):
    peak_memory(lambda: torch.ones(3))
    assert capfd.readouterr() == ("", "")
