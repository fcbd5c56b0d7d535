"""What rounding may cost: bounds for any CPU, in whatever order its libraries add.

n roundings in a row leave a term times 1 + δ with |δ| ≤ γ_n = n·u / (1 - n·u), where u is half the
distance from 1 to the next number. A sum errs by γ_n Σ|terms|, however small it is itself where
they cancel (Higham, "Accuracy and stability of numerical algorithms", 2nd edition, 2002, sections
3.1 and 4.2). Products of two such errors are left out, as usual.
"""

import math

import torch

from course_utils.attention import attention

POWER = 8  # roundings that an exp, exp2 or log counts for: the fast ones err by 4 units, each 2 u


def gamma(n, dtype):
    """Return γ_n, the share by which n roundings may change a number."""
    u = torch.finfo(dtype).eps / 2
    return n * u / (1 - n * u)


def rounded(x, dtype):
    """Return how far rounding to a dtype may move x; below the normal numbers steps are equal."""
    return gamma(1, dtype) * x.abs() + torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps


def assert_within(got, right, error):
    """Assert that got is right, which is in float64, up to error and the rounding to its dtype."""
    off = torch.where(got == right, 0, (got - right).abs())  # -inf is 0 from itself
    may = error + rounded(right.masked_fill(right.isinf(), 0), got.dtype)
    assert (off <= may).all(), f"errs by {(off / may).max():.2g} times what rounding may cost"


def attention_and_lse(q, k, v, mask):
    """Return output and logsumexp by the whole matrix of scores, in the precision of q."""
    empty = ~mask.any(dim=-1)  # (..., L)
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf)
    scores = scores.masked_fill(empty[..., None], 0)  # or NaN would come back from their gradient
    lse = scores.logsumexp(dim=-1).masked_fill(empty, -torch.inf)
    return attention(q, k, v, mask)[0], lse


def attention_errors(q, k, v, mask, blocks, rounded_to=None, arriving=None):
    """Return how far attention in tiles may err: output and logsumexp, then gradients of q, k, v.

    Every line is one of the algorithm, with the size of each term and the roundings it passes.

    Parameters
    ----------
    q, k, v : torch.Tensor, (..., L, D), (..., S, D), (..., S, d_v)
        As the function gets them, in the dtype it gets them in; it adds in float32 at least.
    mask : torch.Tensor of bool, broadcastable to (..., L, S)
        True = may attend.
    blocks : (int, int)
        How many queries and keys a tile has.
    rounded_to : torch.dtype, optional
        What it rounds weights, scores' gradients and the output to before it multiplies them.
    arriving : (torch.Tensor, torch.Tensor), optional
        The gradients at output and logsumexp; without them those of q, k and v are left out.
    """
    adds_in = torch.promote_types(q.dtype, torch.float32)
    q, k, v = (x.detach().double() for x in (q, k, v))
    (L, D), S = q.shape[-2:], k.shape[-2]

    def g(n):
        return gamma(n, adds_in)

    def rounding(x):
        return 0 if rounded_to is None else rounded(x, rounded_to)

    # A sum over queries or keys: an addition for each term of a tile; then for each tile an
    # addition, and what was summed shrinks by a factor, the power of a difference.
    over_q, over_k = (
        min(n, block) + (POWER + 3) * math.ceil(n / block)
        for n, block in zip((L, S), blocks, strict=True)
    )
    scores = (q @ k.mT / D**0.5).masked_fill(~mask, -torch.inf)  # (..., L, S)
    sizes = (q.abs() @ k.abs().mT / D**0.5).masked_fill(~mask, 0)  # (..., L, S), Σ|terms|
    lse = scores.logsumexp(dim=-1, keepdim=True)  # (..., L, 1)
    m = scores.amax(dim=-1, keepdim=True)
    lse, m = lse.masked_fill(lse.isinf(), 0), m.masked_fill(m.isinf(), 0)  # nothing allowed
    p = (scores - lse).exp()

    # A power of score - m: D products and sums, a few factors, the difference, the power.
    powers = g(D + 4) * sizes + g(1) * (lse - scores).masked_fill(~mask, 0) + g(POWER)
    lse_errors = (p * powers).sum(dim=-1, keepdim=True) + g(over_k)  # of their sum
    lse_errors += g(POWER) * (lse - m) + g(6) * (m.abs() + lse.abs())  # its log, and m + log
    p_errors = p * (powers + lse_errors) + torch.finfo(adds_in).tiny
    out_errors = (p_errors + g(over_k) * p + rounding(p)) @ v.abs()
    errors = [out_errors, lse_errors.squeeze(-1)]
    if arriving is None:
        return errors

    d_out, d_lse = (x.detach().double() for x in arriving)
    out, d_p = p @ v, d_out @ v.mT
    from_p = d_p - ((d_out * out).sum(dim=-1) - d_lse)[..., None]  # (..., L, S), to d_s / p
    from_p_errors = g(D + 2) * (d_out.abs() @ v.mT.abs() + d_lse.abs()[..., None])
    delta_terms = out_errors + rounding(out) + g(D + 2) * out.abs()
    from_p_errors += (d_out.abs() * delta_terms).sum(dim=-1, keepdim=True)
    d_s = p * from_p
    d_s_errors = p_errors * from_p.abs() + p * from_p_errors + g(2) * d_s.abs() + rounding(d_s)
    d_q_errors = (d_s_errors + g(over_k) * d_s.abs()) @ k.abs() / D**0.5
    d_k_errors = (d_s_errors + g(over_q) * d_s.abs()).mT @ q.abs() / D**0.5
    d_v_errors = (p_errors + g(over_q) * p + rounding(p)).mT @ d_out.abs()
    return [*errors, d_q_errors, d_k_errors, d_v_errors]


def normal(*shape, seed=0, dtype=torch.float64):
    """Return random normal numbers, the same ones each time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def outputs_and_gradients(function, inputs, parameters=(), seed=9):
    """Return outputs, then gradients of inputs and parameters, for random ones at the outputs."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    outputs = function(*leaves)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    arriving = [normal(*x.shape, seed=seed, dtype=x.dtype) for x in outputs]
    return [*outputs, *torch.autograd.grad(outputs, [*leaves, *parameters], arriving)]


def assert_same(ours, theirs, *inputs, parameters=()):
    """Assert that two functions agree in float64, with gradients, whatever the inputs' strides.

    1e-10 is a hundred times what 500 roundings of terms that sum to 1000 cost.
    """
    right = outputs_and_gradients(theirs, inputs, parameters)
    for given in (inputs, [x.mT.contiguous().mT for x in inputs]):
        for one, other in zip(outputs_and_gradients(ours, given, parameters), right, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
