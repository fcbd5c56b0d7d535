"""Lesson 02: entropy, in float64."""

import math

import pytest
import torch
import torch.nn.functional as F

from course_utils.attention import entropy
from rounding import assert_same, normal


@pytest.mark.parametrize("shape", [(1, 7), (5, 7), (2, 3, 5, 7)], ids=str)
def test_entropy_is_that_of_torch_distributions(shape):
    def theirs(x):
        return torch.distributions.Categorical(x.softmax(dim=-1)).entropy()

    assert_same(lambda x: entropy(x.softmax(dim=-1)), theirs, normal(*shape))


def test_entropy_of_uniform_weights_certainty_and_independent_choices():
    for n in (1, 2, 5):
        p = F.pad(torch.full((n,), 1 / n, dtype=torch.float64), (0, 3))  # the rest has weight 0
        torch.testing.assert_close(entropy(p).item(), math.log(n))
    assert f"{entropy(torch.tensor([0.0, 1.0, 0.0])).item()}" == "0.0"  # without a minus sign
    p, other = normal(7).softmax(-1), normal(4, seed=1).softmax(-1)
    torch.testing.assert_close(entropy(p.outer(other).flatten()), entropy(p) + entropy(other))
