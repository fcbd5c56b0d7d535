"""Lesson 03's functions equal PyTorch's in float64, up to rounding, and obey their laws.

In float64, 100 roundings of terms that sum to 10,000 cost 1e-10. The tests allow 1e-7.
"""

import random

import pytest
import torch

from course_utils.attention import (
    log_softmax,
    logsumexp,
    merge,
    online_update,
    softmax,
    softmax_vjp,
)
from rounding import POWER, assert_same, assert_within, gamma, normal, rounded

INF = torch.inf
PAIRS = {
    softmax: torch.softmax,
    log_softmax: torch.log_softmax,
    logsumexp: torch.logsumexp,
}
everything = pytest.mark.parametrize("ours, theirs", PAIRS.items(), ids=lambda f: f.__name__)


def scores_of(dtype):
    """Return rows of 40 scores up to 1e4. A third of the rows contain -inf."""
    sizes = torch.tensor([1.0, 10, 200, 1e3, 1e4], dtype=torch.float64).repeat(40)[:, None]
    x = sizes * normal(200, 40).clamp(-1, 1)
    x[100:, ::4] = x[100:, :1] + normal(100, 10, seed=1)  # large scores that share their weight
    x = x.clamp(-1e4, 1e4)
    x[::3, 1:20:2] = -INF
    return x.to(dtype)


def may_err(function, x):
    """Return the error that rounding may cause in each row before the result is rounded."""
    dtype, x = x.dtype, x.double()
    p = x.softmax(dim=-1)
    below = gamma(1, dtype) * (x.amax(dim=-1, keepdim=True) - x).masked_fill(x == -INF, 0)
    exps = below + gamma(POWER, dtype)  # relative errors of e^-below
    # their sum takes one addition for each score, and a log, which is below 4
    total = (p * exps).sum(dim=-1, keepdim=True) + gamma(x.shape[-1] + 4 * POWER, torch.float64)
    return {softmax: p * (exps + total), log_softmax: below + total, logsumexp: total}[function]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@everything
def test_the_error_is_within_rounding(ours, theirs, dtype):
    x = scores_of(dtype)
    right = theirs(x.double(), -1)
    assert ours(x).dtype == dtype
    assert_within(ours(x), right, may_err(ours, x).view_as(right))


@everything
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_outputs_and_gradients_equal_torchs_along_any_dimension(ours, theirs, dim):
    x = scores_of(torch.float64)[:30, :24].reshape(5, 6, 24).clamp(-1e2, 1e2)
    before = x.clone()
    assert_same(lambda x: ours(x, dim), lambda x: theirs(x, dim), x)
    assert torch.equal(x, before)
    torch.testing.assert_close(ours(x[:1, :, :1], dim), theirs(x[:1, :, :1], dim))  # size 1 stays


@everything
def test_more_terms_than_float16_can_count(ours, theirs):
    x = torch.zeros(80_000, dtype=torch.float16)
    assert_within(ours(x), theirs(x.double(), -1), torch.zeros(()))  # rounded once, at the end


@everything
@pytest.mark.parametrize(
    "row", [[-INF] * 3, [INF, 1.0, 2.0], [-INF, INF, 0.0], [float("nan"), 1.0]]
)
def test_rows_without_a_finite_answer_are_as_in_torch(ours, theirs, row):
    x = torch.tensor([row, [1.0] * len(row)])
    torch.testing.assert_close(ours(x), theirs(x, -1), equal_nan=True)


@everything
def test_the_gradient_with_minus_inf_equals_torchs(ours, theirs):
    x = torch.tensor([[1.0, -INF, 2000.0, 1999.0]], dtype=torch.float64)
    assert_same(lambda x: ours(x)[..., -2:], lambda x: theirs(x, -1)[..., -2:], x)


def test_vjp_is_the_vector_jacobian_product():
    x, g = normal(3, 2, 7), normal(3, 2, 7, seed=1)
    _, expected = torch.func.vjp(lambda x: torch.softmax(x, -1), x)
    torch.testing.assert_close(softmax_vjp(torch.softmax(x, -1), g), *expected(g))
    n = 200_000  # the Jacobian would take 320 GB
    p, g = torch.softmax(normal(n), -1), normal(n, seed=1)
    # the terms of the sum add up to about 1, so each addition may cost 1e-16
    torch.testing.assert_close(softmax_vjp(p, g) / p, g - p @ g, rtol=0, atol=1e-10)


@pytest.mark.parametrize("sizes", [[40], [1] * 40, [7, 11, 1, 21], [20, 20]])
def test_the_online_state_does_not_depend_on_the_blocks(sizes):
    x = scores_of(torch.float64).reshape(4, 50, 40).clone()
    x[0, 0] = -INF
    m, ell = torch.full(x.shape[:-1], -INF, dtype=x.dtype), torch.zeros(x.shape[:-1]).double()
    for block in x.split(sizes, dim=-1):
        m, ell = online_update(m, ell, block)
    torch.testing.assert_close(m, x.amax(-1))
    torch.testing.assert_close(m + ell.log(), torch.logsumexp(x, -1))
    p = (x - m[..., None]).exp() / ell[..., None]
    torch.testing.assert_close(p, torch.softmax(x, -1), equal_nan=True)


def partial(scores, v):
    """Return the output and the log-sum-exp of attention over some of the keys."""
    return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)


@pytest.mark.parametrize("seed", range(5))
def test_merging_any_split_in_any_order_gives_the_whole(seed):
    choose = random.Random(seed)
    keys = choose.sample(range(24), 24)
    cuts = sorted(choose.sample(range(1, 24), 4))

    def merged(scores, v):
        parts = [
            partial(scores[..., i], v[..., i, :]) for i in torch.tensor(keys).tensor_split(cuts)
        ]
        while len(parts) > 1:  # merge any two
            choose.shuffle(parts)
            parts.append(merge(*parts.pop(), *parts.pop()))
        return parts[0]

    assert_same(merged, partial, 30 * normal(2, 5, 24, seed=seed), normal(2, 24, 3, seed=seed + 9))


def test_merge_keeps_float32_precision_for_large_scores():
    scores, v = 1e4 + normal(4, 20).float(), normal(20, 3, seed=1).float()
    (a, lse_a), (b, lse_b) = parts = partial(scores[:, :9], v[:9]), partial(scores[:, 9:], v[9:])
    out, _ = merge(*parts[0], *parts[1])
    expected = torch.softmax(scores.double(), -1) @ v.double()
    # Both log-sum-exps are rounded, near 1e4 by up to 6e-4. This changes a share by at most a
    # quarter of their difference. The rest is about 100 roundings of the values.
    share = (rounded(lse_a, scores.dtype) + rounded(lse_b, scores.dtype))[:, None] / 4
    error = share * (a - b).abs() + gamma(100, scores.dtype) * v.abs().amax()
    assert_within(out, expected, error)


@pytest.mark.parametrize("garbage", [0.0, 7.0, float("nan")])
def test_merge_with_an_empty_part_is_the_other_part_with_finite_gradients(garbage):
    out, lse = normal(2, 5, 3).requires_grad_(), normal(2, 5).requires_grad_()
    nothing = torch.full_like(out, garbage), torch.full_like(lse, -INF)
    for merged in (merge(out, lse, *nothing), merge(*nothing, out, lse)):
        torch.testing.assert_close(merged, (out, lse))
        slopes = torch.autograd.grad(merged[0].sum() + merged[1].sum(), (out, lse))
        torch.testing.assert_close(slopes, (torch.ones_like(out), torch.ones_like(lse)))
    both, none = merge(*nothing, *nothing)
    assert torch.equal(both, torch.zeros_like(out)) and (none == -INF).all()
