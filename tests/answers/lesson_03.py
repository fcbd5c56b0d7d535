"""Answers to lesson 03's exercises, written apart from the checks: right ones and wrong ones."""

import math

import numpy as np
import torch
import torch.nn.functional as F

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


def _lse_with_where(x, dim=-1):
    m = torch.max(x, dim, keepdim=True).values
    m = torch.where(torch.isfinite(m), m, torch.zeros_like(m))
    return torch.log(torch.exp(x - m).sum(dim, dtype=torch.float32)) + m.squeeze(dim)


def _lse_from_a_safe_lowest(x, dim=-1):
    m = x.detach().amax(dim, keepdim=True).clamp(min=torch.finfo(x.dtype).min)
    return m.squeeze(dim) + (x - m).double().exp().sum(dim).log()


def _vjp_by_rows(p, g):
    rows = zip(p.reshape(-1, p.shape[-1]), g.reshape(-1, g.shape[-1]), strict=True)
    return torch.stack([a * (b - a @ b) for a, b in rows]).reshape(p.shape)


def _vjp_by_autograd(p, g):
    with torch.enable_grad():
        x = p.clamp(min=1e-300 if p.dtype == torch.float64 else 1e-38).log().requires_grad_()
        return torch.autograd.grad(torch.softmax(x, -1), x, g)[0]


def _vjp_by_einsum(p, g):
    return p * g - p * torch.einsum("...n,...n->...", p, g).unsqueeze(-1)


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


def _online_one_logit_at_a_time(m, ell, x):
    for value in x.unbind(-1):
        new = torch.maximum(m, value)
        safe = torch.where(new == -INF, torch.zeros_like(new), new)
        m, ell = new, ell * torch.exp(m - safe) + torch.exp(value - safe)
    return m, ell


def _online_by_joining(m, ell, x):
    both = torch.cat([m[..., None], x], -1)
    new = both.detach().amax(-1)  # a maximum without a gradient changes none of m + log ℓ
    powers = (both - new[..., None].nan_to_num(neginf=0.0)).exp()
    return [new, ell * powers[..., 0] + powers[..., 1:].sum(-1)]


def _merge_by_sigmoid(out_a, lse_a, out_b, lse_b):
    gap = (lse_a - lse_b).masked_fill(lse_a.isneginf() & lse_b.isneginf(), 0)
    a = torch.sigmoid(gap)[..., None]
    return a * out_a + (1 - a) * out_b, torch.logaddexp(lse_a, lse_b)


def _merge_by_stacking(out_a, lse_a, out_b, lse_b):
    lses = torch.stack([lse_a, lse_b], -1)
    finite = lses.masked_fill((lses == -INF).all(-1, keepdim=True), 0.0)
    shares = torch.softmax(finite, -1)[..., None, :]
    out = (shares @ torch.stack([out_a, out_b], -2))[..., 0, :]
    return out, torch.logsumexp(lses, -1)


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
    "logsumexp": [
        lambda x, dim=-1: torch.logsumexp(x.double(), dim).to(x.dtype),
        _lse_with_where,
        _lse_from_a_safe_lowest,
    ],
    "softmax_vjp": [_vjp_by_rows, _vjp_by_autograd, _vjp_by_einsum],
    "temperature_for_entropy": [_temperature_by_doubling, _temperature_by_grid],
    "online_update": [_online_one_logit_at_a_time, _online_by_joining],
    "merge": [_merge_by_sigmoid, _merge_by_stacking],
}


# wrong


def _softmax(x, dim=-1, powers=torch.exp, total=torch.sum):
    e = powers(x - x.amax(dim, keepdim=True))
    return e / total(e, dim, keepdim=True)


def _softmax_by_lists(x, dim=-1):
    rows = x.movedim(dim, -1).reshape(-1, x.shape[dim]).tolist()
    powers = [[math.exp(value - max(row)) for value in row] for row in rows]
    made = torch.tensor([[each / sum(row) for each in row] for row in powers], dtype=x.dtype)
    return made.reshape(x.movedim(dim, -1).shape).movedim(-1, dim)


def _softmax_by_constant_total(x, dim=-1):
    return _softmax(x.double(), dim, total=lambda *a, **k: torch.sum(*a, **k).detach())


def _lse(x, dim=-1, fix=lambda m: m.masked_fill(m == -INF, 0), peak=lambda x: x):
    top = fix(peak(x).amax(dim, keepdim=True))
    return top.squeeze(dim) + (x - top).exp().sum(dim).log()


def _lse_by_pairs(x, dim=-1):
    total = torch.full_like(x.select(dim, 0), -INF)
    for part in x.unbind(dim):
        total = torch.logaddexp(total, part)  # its gradient at two -inf is NaN
    return total


def _lse_by_wide_pairs(x, dim=-1):
    return _lse_by_pairs(x.double(), dim).to(x.dtype)


def _vjp_by_matrix(p, g):
    jacobian = torch.diag_embed(p) - p[..., :, None] * p[..., None, :]
    return (g[..., None, :] @ jacobian)[..., 0, :]


def _vjp_in_view(p, g):
    a, b = (each.view(-1, p.shape[-1]) for each in (p, g))
    return _vjp_by_einsum(a, b).view(p.shape)


def _temperature_without_minus(x, target):
    low, high = 1e-4, 1e4
    for _ in range(100):
        middle = (low * high) ** 0.5
        p = F.softmax(x / middle, dim=0)
        low, high = (low, middle) if torch.xlogy(p, p).sum() > target else (middle, high)
    return low


def _temperature_close_enough(x, target):
    grid = torch.logspace(-4, 4, 2001).tolist()
    return next(t for t in grid if abs(_entropy_of(x, t) - target) < 0.01)


def _online_overwritten(m, ell, x):
    m = torch.maximum(m, x.amax(-1))
    safe = m.nan_to_num(neginf=0.0)
    return m, ell * (m - safe).exp() + (x - safe[..., None]).exp().sum(-1)


def _online_through_lse(m, ell, x):
    new = torch.maximum(m, x.max(dim=-1).values)
    lse = torch.logaddexp(m + ell.log(), torch.logsumexp(x, -1))  # its gradient is NaN at two −inf
    return new, torch.where(new == -INF, torch.zeros_like(new), (lse - new).exp())


def _online_zeros_for_nan(m, ell, x):
    new = torch.maximum(m, x.amax(-1))
    powers = (x - new[..., None]).exp()
    return new, (ell * (m - new).exp() + powers.sum(-1)).nan_to_num(0)


def _merge_by_logaddexp(out_a, lse_a, out_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    share_a, share_b = (torch.exp(part - lse).nan_to_num(0.0) for part in (lse_a, lse_b))
    return out_a * share_a.unsqueeze(-1) + out_b * share_b.unsqueeze(-1), lse


def _merge_by_rows(out_a, lse_a, out_b, lse_b):
    out, lse = torch.zeros_like(out_a), torch.full_like(lse_a, -INF)
    for index in np.ndindex(*lse_a.shape):
        a, b = lse_a[index].item(), lse_b[index].item()
        if max(a, b) > -INF:
            share = 1 / (1 + math.exp(min(b - a, 700)))
            out[index] = share * out_a[index] + (1 - share) * out_b[index]
            lse[index] = max(a, b) + math.log1p(math.exp(-abs(a - b)))
    return out, lse


def _merge_one_shift_and_logaddexp(out_a, lse_a, out_b, lse_b):
    m = max(lse_a.max(), lse_b.max())
    a, b = (lse_a - m).exp()[..., None], (lse_b - m).exp()[..., None]
    return ((a * out_a + b * out_b) / (a + b)).nan_to_num(0), torch.logaddexp(lse_a, lse_b)


def _merge_constant_shares(out_a, lse_a, out_b, lse_b):
    out, _ = _merge_by_stacking(out_a, lse_a.detach(), out_b, lse_b.detach())
    return out, torch.logaddexp(lse_a, lse_b)


WRONG = [
    ("overflowing_logits", "no overflow", lambda dtype: torch.tensor([89.0, 89.0], dtype=dtype)),
    ("overflowing_logits", "logits not finite", lambda d: torch.tensor([1e6, 0.0], dtype=d)),
    ("overflowing_logits", "not a row", lambda dtype: 1000.0),
    ("softmax", "sum overflows", _softmax),
    ("softmax", "sum overflows", lambda x, dim=-1: torch.log_softmax(x, dim).exp()),
    ("softmax", "low logits clamped", lambda x, dim=-1: _softmax(x.clamp(min=-1000), dim)),
    ("softmax", "small weights lost", lambda x, d=-1: _softmax(x, d, lambda y: y.exp() + 1e-9)),
    (
        "softmax",
        "small weights lost",
        lambda x, dim=-1: _softmax(x, dim, lambda y: y.exp().where(y > -7, 0)),
    ),
    (
        "softmax",
        "added one by one in half precision",
        lambda x, dim=-1: _softmax(x, dim, total=lambda e, d, **k: sum(e.unbind(d)).unsqueeze(d)),
    ),
    ("softmax", "logits clamped", lambda x, dim=-1: _softmax(x.clamp(-80, 80), dim)),
    ("softmax", "wrong gradients", _softmax_by_constant_total),
    ("softmax", "wrong gradients", _softmax_by_lists),
    ("softmax", None, lambda x, dim=-1: torch.softmax(x, dim).squeeze()),
    ("logsumexp", "sum overflows", lambda x, dim=-1: torch.logsumexp(x, dim)),
    ("logsumexp", "calculated in float32", lambda x, dim=-1: torch.logsumexp(x.float(), dim)),
    ("logsumexp", "nan for an empty row", lambda x, dim=-1: _lse(x, dim, fix=lambda m: m)),
    (
        "logsumexp",
        "no maximum beside an empty row",
        lambda x, dim=-1: _lse(x, dim, lambda m: torch.zeros_like(m) if m.isinf().any() else m),
    ),
    (
        "logsumexp",
        "−inf taken for 0",
        lambda x, dim=-1: _lse(x, dim, peak=lambda x: torch.where(x.isfinite(), x, 0)),
    ),
    ("logsumexp", "every 1 squeezed", lambda x, dim=-1: _lse(x, dim).squeeze()),
    ("logsumexp", "added one by one in half precision", _lse_by_pairs),
    ("logsumexp", "wrong gradients", _lse_by_wide_pairs),
    ("softmax_vjp", "makes the n × n matrix", _vjp_by_matrix),
    ("softmax_vjp", None, _vjp_in_view),
    ("temperature_for_entropy", "ran to the top", _temperature_without_minus),
    ("temperature_for_entropy", "not a temperature", lambda x, target: 0.0),
    ("temperature_for_entropy", "not a number", lambda x, target: x),
    ("temperature_for_entropy", None, _temperature_close_enough),
    ("temperature_for_entropy", None, lambda x, t: max(1e-3, _temperature_by_grid(x, t))),
    ("temperature_for_entropy", None, lambda x, target: 2.0),
    ("online_update", "old sum not rescaled", _online_overwritten),
    ("online_update", "wrong gradients", _online_through_lse),
    ("online_update", "wrong gradients", _online_zeros_for_nan),
    ("online_update", "wrong gradients", lambda m, s, x: _online_by_joining(m, s.detach(), x)),
    ("online_update", None, lambda *state: [t.squeeze() for t in _online_by_joining(*state)]),
    ("merge", "wrong gradients", _merge_by_rows),
    ("merge", "wrong gradients", _merge_by_logaddexp),
    ("merge", "wrong gradients", _merge_constant_shares),
    ("merge", None, _merge_one_shift_and_logaddexp),
]
