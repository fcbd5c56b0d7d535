"""Lesson 02: entropy, and what the scale of scores does to it, in float64."""

import math

import pytest
import torch
import torch.nn.functional as F

from course_utils.attention import attention, entropy
from rounding import assert_same, normal


def test_scaled_weights_have_the_same_entropy_at_every_width():
    def mean_entropy(d_k, scale):
        q, k = normal(400, 1, d_k), normal(400, 16, d_k, seed=1)
        return entropy(attention(q, k, k, scale=scale)[1]).mean().item()

    scaled = [mean_entropy(d_k, None) for d_k in (16, 64, 256)]
    unscaled = [mean_entropy(d_k, 1.0) for d_k in (16, 64, 256)]
    assert max(scaled) - min(scaled) < 0.1
    assert unscaled[0] - unscaled[-1] > 0.5


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
