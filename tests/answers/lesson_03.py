"""Answers to lesson 03's exercises, written apart from the checks: right ones and wrong ones."""

import functools
import math

import numpy as np
import torch
import torch.nn.functional as F

from course_utils import attention

INF = float("inf")


# right


def _overflow_by_search(dtype):
    n = 1
    while torch.tensor(float(n), dtype=dtype).exp().isfinite():
        n += 1
    return torch.full((4,), n, dtype=dtype)


def _softmax_with_a_fixed_peak(x, dim=-1):
    shifted = x - torch.max(x, dim=dim, keepdim=True)[0].detach()
    return torch.exp(shifted.double()).div(shifted.double().exp().sum(dim).unsqueeze(dim))


def _softmax_from_lse(x, dim=-1):
    return (x.double() - torch.logsumexp(x.double(), dim, keepdim=True)).exp()


def _softmax_one_pass(x, dim=-1):
    x = x.double().movedim(dim, 0)
    m, ell = torch.full_like(x[0], -INF), torch.zeros_like(x[0])
    for row in x:
        new = torch.maximum(m, row)
        base = torch.where(new == -INF, 0.0, new)
        ell, m = ell * (m - base).exp() + (row - base).exp(), new
    return ((x - m).exp() / ell).movedim(0, dim)


def _lse_with_where(x, counts, dim=-1):
    there = torch.where(counts > 0, x, -INF)
    m = torch.max(there, dim, keepdim=True).values
    m = torch.where(torch.isfinite(m), m, torch.zeros_like(m))
    return torch.log((torch.exp((there - m).float()) * counts).sum(dim)) + m.squeeze(dim)


def _lse_with_log_counts(x, counts, dim=-1):
    return torch.logsumexp(x + counts.log(), dim)


def _lse_one_logit_at_a_time(x, counts, dim=-1):
    m = torch.full_like(x.select(dim, 0), -INF)
    ell = torch.zeros_like(m).double()
    for value, n in zip(x.unbind(dim), counts.unbind(dim), strict=True):
        new = torch.where(n > 0, torch.maximum(m, value), m)
        base = new.nan_to_num(neginf=0.0)
        term = torch.where(n > 0, value - base, -INF).double().exp() * n
        m, ell = new, ell * (m - base).double().exp() + term
    return (m + ell.log()).to(x.dtype)


def _vjp_by_rows(x, g, T):
    p = torch.softmax(x / T, -1)
    rows = zip(p.reshape(-1, p.shape[-1]), g.reshape(-1, g.shape[-1]), strict=True)
    return torch.stack([a * (b - a @ b) / T for a, b in rows]).reshape(p.shape)


def _vjp_by_autograd(x, g, T):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(torch.softmax(x / T, -1), x, g)[0]


def _vjp_by_einsum(x, g, T):
    p = (x / T).softmax(-1) / T
    return p * g - T * p * torch.einsum("...n,...n->...", p, g).unsqueeze(-1)


def _entropy_of(x, t):
    p = torch.softmax(x.double() / t, -1)
    return torch.special.entr(p).sum().item()


def _temperature_by_doubling(x, target):
    low, high = 1e-4, 1e-4
    while _entropy_of(x, high) < target:
        low, high = high, 2 * high
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if _entropy_of(x, middle) > target else (middle, high)
    return torch.tensor(middle)


def _temperature_by_grid(x, target):
    grid = torch.logspace(-4, 4, 8001, dtype=torch.float64)
    entropies = torch.special.entr(torch.softmax(x.double() / grid[:, None], -1)).sum(-1)
    return np.float64(grid[(entropies - target).abs().argmin()].item())


def _online_one_key_at_a_time(m, ell, out, x, v):
    for j, value in enumerate(x.unbind(-1)):
        new = torch.maximum(m, value)
        safe = torch.where(new == -INF, torch.zeros_like(new), new)
        power = torch.exp(value - safe)
        m, ell = new, ell * torch.exp(m - safe) + power
        share = power / torch.where(ell > 0, ell, 1.0)
        out = out + share[..., None] * (v[..., j, None, :] - out)
    return m, ell, out


def _online_by_joining(m, ell, out, x, v):
    both = torch.cat([m[..., None], x], -1)
    new = both.detach().amax(-1)  # a maximum without a gradient changes none of m + log ℓ
    powers = (both - new[..., None].nan_to_num(neginf=0.0)).exp()
    old, block = ell * powers[..., 0], powers[..., 1:]
    total = old + block.sum(-1)
    whole = torch.where(total > 0, total, 1.0).unsqueeze(-1)
    return [new, total, old.unsqueeze(-1) / whole * out + torch.matmul(block / whole, v)]


def _online_undivided_inside(m, ell, out, x, v):
    out = out * ell[..., None]
    m, ell, out = _online_as_in_the_lesson(m, ell, out, x, v)
    return m, ell, out / ell.masked_fill(ell == 0, 1)[..., None]


def _online_as_in_the_lesson(m, ell, o, x, v):
    m_new, ell = attention.online_update(m, ell, x)
    base = m_new.masked_fill(m_new == -torch.inf, 0)
    p = (x - base[..., None]).exp()
    return m_new, ell, o * (m - base).exp()[..., None] + p @ v


def _merge_two_by_two(parts):
    out, lse = parts[0]
    for other, its in parts[1:]:
        empty = torch.maximum(lse, its) == -INF
        low, high = torch.minimum(lse, its), torch.maximum(lse, its)
        gap = low - high.masked_fill(empty, 0)  # no NaN, whose gradient would stay
        share = torch.sigmoid((lse - its).masked_fill(empty, 0))[..., None]
        out = share * out + (1 - share) * other
        lse = torch.where(empty, -INF, high + gap.exp().log1p())
    return out, lse


def _merge_by_softmax(parts):
    lses = torch.stack([lse for _, lse in parts], -1)  # (..., L, n)
    finite = lses.masked_fill((lses == -INF).all(-1, keepdim=True), 0.0)
    shares = torch.softmax(finite, -1)[..., None, :]
    out = (shares @ torch.stack([out for out, _ in parts], -2))[..., 0, :]
    return out, torch.logsumexp(lses, -1)


def _merge_in_two_passes(parts):
    m = torch.full_like(parts[0][1], -INF)
    for _, lse in parts:
        m = torch.maximum(m, lse.detach())
    m = m.nan_to_num(neginf=0.0)
    total = sum((lse - m).exp() for _, lse in parts)
    out = sum((lse - m).exp()[..., None] * out for out, lse in parts)
    return [out / total[..., None].clamp(min=0.5), total.log() + m]


def _entropy_by_the_mean(blocks):
    m = ell = mean = None  # the mean of x - m under the weights so far
    for x in blocks:
        x = x.to(torch.float64)
        top = x.max(-1).values if m is None else torch.maximum(m, x.max(-1).values)
        safe = torch.where(top.isinf(), 0.0, top)
        e = torch.exp(x - safe[..., None])
        gaps = torch.where(e > 0, x - safe[..., None], 0.0)
        total, part = e.sum(-1), (gaps * e).sum(-1)
        if m is not None:
            factor = torch.exp(m - safe)
            part = part + torch.where(factor > 0, (mean + (m - safe)) * ell * factor, 0.0)
            total = total + ell * factor
        m, ell, mean = top, total, torch.where(total > 0, part / total, 0.0)
    return torch.log(ell) - mean


def _entropy_by_shares(blocks):
    """A choice in two steps: first the part, then in it. m and log ℓ stay apart, to keep digits."""
    m, log_ell, entropy = None, None, 0.0
    for x in blocks:
        top = x.double().amax(-1)
        p = (x.double() - top.nan_to_num(neginf=0.0)[..., None]).exp()
        own, spread = p.sum(-1).log(), torch.special.entr(p / p.sum(-1, keepdim=True)).sum(-1)
        if m is None:
            m, log_ell, entropy = top, own, spread.nan_to_num(0)
            continue
        both = torch.maximum(m, top).nan_to_num(neginf=0.0)
        logs = torch.stack([m - both + log_ell, top - both + own])
        shares = logs.masked_fill(logs.isneginf().all(0), 0).softmax(0)
        entropy = (shares * torch.stack([entropy, spread.nan_to_num(0)])).sum(0)
        entropy = entropy + torch.special.entr(shares).sum(0)
        m, log_ell = torch.maximum(m, top), torch.logsumexp(logs, 0)
    return entropy


def _entropy_one_logit_at_a_time(blocks):
    m, ell, s = -INF, 0.0, 0.0
    for x in (x.double() for block in blocks for x in block.unbind(-1)):
        new = torch.maximum(torch.as_tensor(m).double(), x)
        step, gap = (m - new).nan_to_num(0), (x - new).nan_to_num(0)
        old, term = (m - new).exp().nan_to_num(0), (x - new).exp().nan_to_num(0)
        s = torch.where(old > 0, old * (s + step * ell), 0.0)
        s, ell, m = s + torch.where(term > 0, term * gap, 0.0), old * ell + term, new
    return ell.log() - s / ell


RIGHT = {
    "overflowing_logits": [
        _overflow_by_search,
        lambda dtype: torch.tensor([1000, 999, 3], dtype=dtype),
        lambda dtype: torch.full((50,), math.log(torch.finfo(dtype).max) - 1, dtype=dtype),
    ],
    "softmax": [
        lambda x, dim=-1: F.softmax(x, dim=dim),
        _softmax_with_a_fixed_peak,
        _softmax_from_lse,
        _softmax_one_pass,
    ],
    "logsumexp": [_lse_with_where, _lse_with_log_counts, _lse_one_logit_at_a_time],
    "softmax_vjp": [_vjp_by_rows, _vjp_by_autograd, _vjp_by_einsum],
    "temperature_for_entropy": [_temperature_by_doubling, _temperature_by_grid],
    "online_update": [
        _online_one_key_at_a_time,
        _online_by_joining,
        _online_undivided_inside,
    ],
    "merge": [_merge_two_by_two, _merge_by_softmax, _merge_in_two_passes],
    "streamed_entropy": [_entropy_by_the_mean, _entropy_by_shares, _entropy_one_logit_at_a_time],
}


# wrong


def _softmax(x, dim=-1, total=torch.sum):
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return e / total(e, dim, keepdim=True)


def _softmax_by_constant_total(x, dim=-1):
    return _softmax(x.double(), dim, total=lambda *a, **k: torch.sum(*a, **k).detach())


def _lse_of_small_powers(x, counts, dim=-1):
    m = torch.where(counts > 0, x, -INF).amax(dim, keepdim=True).nan_to_num(neginf=0)
    powers = torch.where(counts > 0, x - m, -INF).exp()
    return (powers.double() * counts).sum(dim).log().to(x.dtype) + m.squeeze(dim)


def _lse_by_pairs(x, counts, dim=-1):
    total = torch.full_like(x.select(dim, 0), -INF).double()
    for part in (x + counts.log()).double().unbind(dim):
        total = torch.logaddexp(total, part)  # its gradient at two -inf is NaN
    return total.to(x.dtype)


def _vjp_by_matrix(x, g, T):
    p = torch.softmax(x / T, -1)
    jacobian = torch.diag_embed(p) - p[..., :, None] * p[..., None, :]
    return (g[..., None, :] @ jacobian)[..., 0, :] / T


def _vjp_in_view(x, g, T):
    a, b = (each.view(-1, x.shape[-1]) for each in (x, g))
    return _vjp_by_einsum(a, b, T).view(x.shape)


def _temperature_close_enough(x, target):
    grid = torch.logspace(-4, 4, 2001).tolist()
    return next(t for t in grid if abs(_entropy_of(x, t) - target) < 0.01)


def _online_through_lse(m, ell, out, x, v):
    new = torch.maximum(m, x.max(dim=-1).values)
    before, block = m + ell.log(), torch.logsumexp(x, -1)
    out, lse = attention.merge(out, before, torch.softmax(x, -1) @ v, block)  # its gradient is NaN
    return new, torch.where(new == -INF, torch.zeros_like(new), (lse - new).exp()), out


def _online_zeros_for_nan(m, ell, out, x, v):
    new = torch.maximum(m, x.amax(-1))
    old, p = (ell * (m - new).exp()).nan_to_num(0), (x - new[..., None]).exp().nan_to_num(0)
    ell = old + p.sum(-1)
    return new, ell, ((old[..., None] * out + p @ v) / ell[..., None]).nan_to_num(0)


def _merge_by_logaddexp(parts):
    lse = functools.reduce(torch.logaddexp, [lse for _, lse in parts])
    shares = [torch.exp(its - lse).nan_to_num(0.0).unsqueeze(-1) for _, its in parts]
    return sum(share * out for share, (out, _) in zip(shares, parts, strict=True)), lse


def _merge_reduced(parts):
    return functools.reduce(lambda a, b: attention.merge(*a, *b), parts)


def _merge_constant_shares(parts):
    out, _ = _merge_by_softmax([(out, lse.detach()) for out, lse in parts])
    return out, torch.logsumexp(torch.stack([lse for _, lse in parts]), 0)


def _entropy_of_the_whole(blocks):
    return torch.special.entr(torch.cat(list(blocks), -1).double().softmax(-1)).sum(-1)


def _entropy_of_a_list(blocks):
    return _entropy_by_the_mean(list(blocks))


def _entropy_of_a_growing_row(blocks):
    row = next(blocks)
    for x in blocks:
        row = torch.cat([row, x], -1)
    return torch.special.entr(row.double().softmax(-1)).sum(-1)


def _entropy_in_two_loops(blocks):
    m = functools.reduce(torch.maximum, (x.amax(-1) for x in blocks))
    gaps = [x - m[..., None] for x in blocks]
    ell, s = sum(x.exp().sum(-1) for x in gaps), sum((x * x.exp()).sum(-1) for x in gaps)
    return math.log(ell) - s / ell


def _entropy_in_a_second_loop(blocks):
    lse = functools.reduce(torch.logaddexp, (x.logsumexp(-1) for x in blocks))
    return torch.zeros_like(lse) + sum(torch.special.entr((x - lse).exp()).sum(-1) for x in blocks)


WRONG = [
    (
        "overflowing_logits",
        "nothing for a format",
        lambda dtype: None if dtype == torch.float64 else torch.full((2,), 89, dtype=dtype),
    ),
    ("softmax", "wrong gradients", _softmax_by_constant_total),
    ("softmax", None, lambda x, dim=-1: torch.softmax(x, dim).squeeze()),
    (
        "softmax",
        "small powers lost in half precision",
        functools.partial(_softmax, total=functools.partial(torch.sum, dtype=torch.float32)),
    ),
    (
        "softmax",
        "epsilon in a sum of 1 or more",
        lambda x, dim=-1: _softmax(x.double(), dim, lambda *a, **k: torch.sum(*a, **k) + 1e-6),
    ),
    ("logsumexp", None, attention.logsumexp),
    ("logsumexp", None, lambda x, counts, dim=-1: _lse_with_where(x, counts, dim).sum().item()),
    (
        "logsumexp",
        "calculated in float32",
        lambda x, counts, dim=-1: torch.logsumexp(x.float() + counts.log(), dim),
    ),
    ("logsumexp", "small powers lost in half precision", _lse_of_small_powers),
    (
        "logsumexp",
        "finite where nothing stands",
        lambda x, counts, dim=-1: torch.logsumexp(x + (counts + 1e-6).double().log(), dim),
    ),
    ("logsumexp", "wrong gradients", _lse_by_pairs),
    ("softmax_vjp", None, attention.softmax_vjp),
    ("softmax_vjp", "makes the n × n matrix", _vjp_by_matrix),
    ("softmax_vjp", None, _vjp_in_view),
    ("temperature_for_entropy", "not a temperature", lambda x, target: 0.0),
    ("temperature_for_entropy", "not a number", lambda x, target: x),
    ("temperature_for_entropy", "near but not near enough", _temperature_close_enough),
    (
        "temperature_for_entropy",
        "near but not near enough",
        lambda x, t: max(1e-3, _temperature_by_grid(x, t)),
    ),
    ("temperature_for_entropy", None, lambda x, target: 2.0),
    ("online_update", "wrong gradients", _online_through_lse),
    ("online_update", "wrong gradients", _online_zeros_for_nan),
    ("online_update", "wrong gradients", lambda m, s, *b: _online_by_joining(m, s.detach(), *b)),
    ("online_update", None, lambda *state: [t.squeeze() for t in _online_by_joining(*state)]),
    ("online_update", None, attention.online_update),
    ("merge", None, attention.merge),
    ("merge", "wrong gradients", _merge_by_logaddexp),
    ("merge", "wrong gradients", _merge_constant_shares),
    ("merge", "wrong gradients", _merge_reduced),
    ("streamed_entropy", "reads twice", _entropy_in_two_loops),
    ("streamed_entropy", "reads twice", _entropy_in_a_second_loop),
    ("streamed_entropy", "keeps the whole row", _entropy_of_the_whole),
    ("streamed_entropy", "keeps the whole row", _entropy_of_a_list),
    ("streamed_entropy", "keeps the whole row", _entropy_of_a_growing_row),
]
