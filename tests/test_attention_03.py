"""Lesson 03's functions against PyTorch, against high precision, and against laws.

In float64 100 roundings of terms that sum to 10000 cost 1e-10, and are allowed 1e-7.
"""

import functools
import random

import mpmath
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
from rounding import POWER, assert_within, gamma, rounded

INF = torch.inf
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
PAIRS = {
    softmax: torch.softmax,
    log_softmax: torch.log_softmax,
    logsumexp: torch.logsumexp,
}
everything = pytest.mark.parametrize("ours, theirs", PAIRS.items(), ids=lambda f: f.__name__)


@functools.cache
def logits(dtype):
    """Rows of 40 logits, of every size up to 1e4, a third of them with entries of -inf."""
    rng = torch.Generator().manual_seed(0)
    sizes = torch.tensor([1.0, 10, 200, 1e3, 1e4], dtype=torch.float64).repeat(40)[:, None]
    x = sizes * (2 * torch.rand(200, 40, generator=rng, dtype=torch.float64) - 1)
    # rows whose largest logits lie close together, so that also large ones share their weight
    x[100:, ::4] = x[100:, :1] + torch.randn(100, 10, generator=rng, dtype=torch.float64)
    x = x.clamp(-1e4, 1e4)
    x[::3, 1:20:2] = -INF
    return x.to(dtype)


@functools.cache
def exact(dtype):
    """The three functions of every row of `logits` to 50 digits."""
    results = {softmax: [], log_softmax: [], logsumexp: []}
    with mpmath.workdps(50):
        for row in logits(dtype).tolist():
            row = [mpmath.mpf(value) for value in row]
            powers = [mpmath.exp(value) for value in row]
            total = mpmath.fsum(powers)
            results[softmax].append([power / total for power in powers])
            results[logsumexp].append([mpmath.log(total)])
            results[log_softmax].append([value - mpmath.log(total) for value in row])
    return results


def off(got, expected):
    """Return how far got is from what `exact` found, in rows; -inf is 0 from itself."""
    with mpmath.workdps(50):
        distances = [
            [0 if a == b else float(abs(a - b)) for a, b in zip(*rows, strict=True)]
            for rows in zip(got.reshape(len(expected), -1).tolist(), expected, strict=True)
        ]
    return torch.tensor(distances, dtype=torch.float64)


def may_err(function, x):
    """Return what the roundings of a function may cost, in rows; its sums are in float64."""
    dtype, x = x.dtype, x.double()
    p, lse = x.softmax(dim=-1), x.logsumexp(dim=-1, keepdim=True)
    below = (x.amax(dim=-1, keepdim=True) - x).masked_fill(x == -INF, 0)
    powers = gamma(1, dtype) * below + gamma(POWER, dtype)  # of e^-below, as shares of each
    # their sum has an addition for each, and a log, which is below 4
    total = (p * powers).sum(dim=-1, keepdim=True) + gamma(x.shape[-1] + 4 * POWER, torch.float64)
    if function is softmax:
        return p * (powers + total) + rounded(p, dtype)
    if function is logsumexp:
        return total + rounded(lse, dtype)
    return gamma(1, dtype) * below + total + rounded((x - lse).masked_fill(x == -INF, 0), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@everything
def test_error_against_high_precision_is_what_rounding_may_cost(ours, theirs, dtype):
    x = logits(dtype)
    assert ours(x).dtype == dtype
    assert (off(ours(x), exact(dtype)[ours]) <= may_err(ours, x)).all()


@everything
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_equals_torch_along_any_dimension(ours, theirs, dim):
    x = logits(torch.float64)[:30, :24].reshape(5, 6, 24).nan_to_num(neginf=-1e4)
    torch.testing.assert_close(ours(x, dim), theirs(x, dim))
    torch.testing.assert_close(ours(x, dim=dim), theirs(x, dim=dim))


@everything
def test_dimensions_of_size_one_stay(ours, theirs):
    x = torch.randn(1, 3, 1, dtype=torch.float64)
    for dim in range(3):
        torch.testing.assert_close(ours(x, dim), theirs(x, dim))


@everything
def test_more_terms_than_float16_can_count(ours, theirs):
    x = torch.zeros(80_000, dtype=torch.float16)
    assert_within(ours(x), theirs(x.double(), -1), torch.zeros(()))  # rounded once, at the end


@everything
@pytest.mark.parametrize(
    "row", [[-INF] * 3, [INF, 1.0, 2.0], [-INF, INF, 0.0], [float("nan"), 1.0]]
)
def test_rows_without_an_answer_are_as_in_torch(ours, theirs, row):
    x = torch.tensor([row, [1.0] * len(row)])
    torch.testing.assert_close(ours(x), theirs(x, -1), equal_nan=True)


@everything
def test_gradient_and_input_unchanged(ours, theirs):
    x = logits(torch.float64)[5:9, :6].nan_to_num(neginf=-3.0).clamp(-5, 5).requires_grad_()
    before = x.detach().clone()
    assert torch.autograd.gradcheck(ours, (x,))
    assert torch.equal(x, before)


@everything
def test_gradient_with_minus_inf_is_torchs(ours, theirs):
    x = torch.tensor([[1.0, -INF, 2000.0, 1999.0]], dtype=torch.float64, requires_grad=True)
    g = torch.tensor([1.0, 0.0, -2.0, 3.0], dtype=torch.float64)
    (found,) = torch.autograd.grad((ours(x) * g)[..., 2:].sum(), x)
    (wanted,) = torch.autograd.grad((theirs(x, -1) * g)[..., 2:].sum(), x)
    torch.testing.assert_close(found, wanted)


def test_a_constant_added_to_every_logit_changes_nothing():
    x = torch.randn(4, 7, dtype=torch.float64)
    torch.testing.assert_close(softmax(x + 1000), softmax(x))
    torch.testing.assert_close(log_softmax(x - 800), log_softmax(x))
    torch.testing.assert_close(logsumexp(x + 1000), logsumexp(x) + 1000)


def test_vjp_is_the_jacobians_vector_product():
    x = torch.randn(3, 2, 7, dtype=torch.float64, requires_grad=True)
    g = torch.randn(3, 2, 7, dtype=torch.float64)
    p = torch.softmax(x, -1)
    (expected,) = torch.autograd.grad(p, x, g, retain_graph=True)
    found = softmax_vjp(p.detach(), g)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found.sum(-1), torch.zeros(3, 2, dtype=torch.float64))
    jacobian = torch.func.jacrev(softmax)(x[0, 0].detach())
    torch.testing.assert_close(g[0, 0] @ jacobian, found[0, 0])


def test_vjp_of_long_rows_needs_no_matrix():
    n = 200_000  # the Jacobian would take 320 GB
    p, g = torch.softmax(torch.randn(n, dtype=torch.float64), -1), torch.randn(n).double()
    # the sum's terms sum to about 1, so that each of their additions may cost 1e-16
    torch.testing.assert_close(softmax_vjp(p, g) / p, g - p @ g, rtol=0, atol=1e-10)


def read_online(x, sizes):
    m = torch.full(x.shape[:-1], -INF, dtype=x.dtype)
    ell = torch.zeros_like(m)
    for block in x.split(sizes, dim=-1):
        m, ell = online_update(m, ell, block)
    return m, ell


@pytest.mark.parametrize("sizes", [[40], [1] * 40, [7, 11, 1, 21], [20, 20]])
def test_online_state_does_not_depend_on_the_blocks(sizes):
    x = logits(torch.float64).reshape(4, 50, 40)
    m, ell = read_online(x, sizes)
    torch.testing.assert_close(m, x.amax(-1))
    torch.testing.assert_close(m + ell.log(), torch.logsumexp(x, -1))
    torch.testing.assert_close((x - m[..., None]).exp() / ell[..., None], torch.softmax(x, -1))


def test_online_state_survives_blocks_of_nothing():
    x = torch.tensor([[-INF, -INF, 1.0, 2.0, -INF], [-INF] * 5])
    m, ell = read_online(x, [1, 1, 1, 1, 1])
    torch.testing.assert_close(m + ell.log(), torch.logsumexp(x, -1))
    assert ell[1] == 0 and m[1] == -INF


def partial(scores, v):
    """Attention over some keys: what a worker that holds only these would hand in."""
    return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)


@pytest.mark.parametrize("seed", range(10))
def test_merge_in_any_split_and_order_is_the_whole(seed):
    rng = torch.Generator().manual_seed(seed)
    scores = 300 * torch.randn(2, 5, 24, generator=rng, dtype=torch.float64)
    v = torch.randn(2, 24, 3, generator=rng, dtype=torch.float64)
    whole = partial(scores, v)
    choose = random.Random(seed)
    keys = torch.randperm(24, generator=rng)
    cuts = sorted(choose.sample(range(1, 24), 4))
    parts = [partial(scores[..., i], v[..., i, :]) for i in keys.tensor_split(cuts)]
    while len(parts) > 1:  # take any two, put back one
        choose.shuffle(parts)
        parts.append(merge(*parts.pop(), *parts.pop()))
    for got, expected in zip(parts[0], whole, strict=True):
        torch.testing.assert_close(got, expected)


def test_merge_keeps_float32_precision_where_logits_are_large():
    scores = 1e4 + torch.randn(4, 20)
    v = torch.randn(20, 3)
    (a, lse_a), (b, lse_b) = parts = partial(scores[:, :9], v[:9]), partial(scores[:, 9:], v[9:])
    out, _ = merge(*parts[0], *parts[1])
    expected = torch.softmax(scores.double(), -1) @ v.double()
    # Both log-sum-exps are rounded, near 1e4 by up to 6e-4, and a share moves by a quarter of their
    # difference at most; all else is some 100 roundings of the values.
    share = (rounded(lse_a, scores.dtype) + rounded(lse_b, scores.dtype))[:, None] / 4
    error = share * (a - b).abs() + gamma(100, scores.dtype) * v.abs().amax()
    assert_within(out, expected, error)
    ones, _ = merge(
        *partial(scores[:, :9], torch.ones(9, 3)), torch.ones(4, 3), torch.full((4,), 1e4)
    )
    torch.testing.assert_close(ones, torch.ones(4, 3))  # shares sum to 1 whatever the size


@pytest.mark.parametrize("garbage", [0.0, 7.0, float("nan")])
def test_merge_with_an_empty_part(garbage):
    out, lse = torch.randn(2, 5, 3), torch.randn(2, 5)
    nothing = torch.full_like(out, garbage), torch.full_like(lse, -INF)
    for merged in (merge(out, lse, *nothing), merge(*nothing, out, lse)):
        torch.testing.assert_close(merged, (out, lse))
    both, none = merge(*nothing, *nothing)
    assert torch.equal(both, torch.zeros_like(out)) and (none == -INF).all()


def test_merge_has_finite_gradients_beside_empty_rows():
    scores = torch.randn(3, 6, dtype=torch.float64)
    v = torch.randn(6, 2, dtype=torch.float64)
    out_a, lse_a = partial(scores[:, :4], v[:4])
    out_b, lse_b = partial(scores[:, 4:], v[4:])
    lse_a[1], lse_a[2], lse_b[2] = -INF, -INF, -INF
    inputs = [t.requires_grad_() for t in (out_a, lse_a, out_b, lse_b)]
    grads = torch.autograd.grad(merge(*inputs)[0].sum(), inputs)
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: softmax([1.0]), TypeError, "x must be a torch.Tensor"),
        (lambda: softmax(torch.zeros(2, 3), 2), ValueError, "dim must be from -2 to 1"),
        (lambda: logsumexp(torch.zeros(2, 3), dim=-3), ValueError, "got -3"),
        (lambda: log_softmax(torch.zeros(2), dim=0.0), TypeError, "dim must be an int"),
        (lambda: softmax_vjp(torch.zeros(3), torch.zeros(4)), ValueError, "n = 3, got (4,)"),
        (
            lambda: online_update(torch.zeros(2), torch.zeros(2), torch.zeros(3, 4)),
            ValueError,
            "x must have shape (*batch, n) with *batch = (2,), got (3, 4)",
        ),
        (
            lambda: merge(torch.zeros(2, 3, 4), torch.zeros(3), *[torch.zeros(2, 3, 4)] * 2),
            ValueError,
            "lse_a must have shape (*batch, L)",
        ),
        (
            lambda: merge(*[torch.zeros(3, 4), torch.zeros(3)], torch.zeros(2, 4), torch.zeros(2)),
            ValueError,
            "out_b must have shape (*batch, L, d_v) with L = 3",
        ),
    ],
)
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error) as raised:
        call()
    assert words in str(raised.value)
