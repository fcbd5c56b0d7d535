"""Answers to lesson 03's exercises, written apart from the checks: right ones and wrong ones."""

import math

import numpy as np
import torch
import torch.nn.functional as F

INF = float("inf")


# right


def _overflow_constant(dtype):
    return torch.tensor([1000, 999, 3], dtype=dtype)


def _overflow_by_search(dtype):
    n = 1
    while torch.tensor(float(n), dtype=dtype).exp().isfinite():
        n += 1
    return torch.full((4,), n, dtype=dtype)


def _overflow_of_the_sum(dtype):
    return torch.full((50,), math.log(torch.finfo(dtype).max) - 1, dtype=dtype)


def _softmax_by_loops(x, dim=-1):
    moved = x.movedim(dim, -1)
    flat = moved.reshape(-1, moved.shape[-1]).tolist()
    rows = []
    for row in flat:
        largest = max(row)
        powers = [math.exp(value - largest) for value in row]
        rows.append([power / sum(powers) for power in powers])
    made = torch.tensor(rows, dtype=x.dtype).reshape(moved.shape)
    return made.movedim(-1, dim)


def _softmax_in_numpy(x, dim=-1):
    a = x.numpy().astype(np.float64)
    e = np.exp(a - a.max(axis=dim, keepdims=True))
    return torch.from_numpy(e / e.sum(axis=dim, keepdims=True)).to(x.dtype)


def _softmax_max_unpacked(x, dim=-1):
    shifted = x - torch.max(x, dim=dim, keepdim=True)[0]
    return torch.exp(shifted) / torch.exp(shifted).sum(dim=dim).unsqueeze(dim)


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


def _lse_by_pairs(x, dim=-1):
    total = torch.full_like(x.select(dim, 0), -INF)
    for part in x.unbind(dim):
        total = torch.logaddexp(total, part)
    return total


def _lse_with_where(x, dim=-1):
    m = torch.max(x, dim, keepdim=True).values
    m = torch.where(torch.isfinite(m), m, torch.zeros_like(m))
    return torch.log(torch.exp(x - m).sum(dim)) + m.squeeze(dim)


def _lse_in_numpy(x, dim=-1):
    return torch.as_tensor(np.logaddexp.reduce(x.double().numpy(), axis=dim)).to(x.dtype)


def _vjp_by_rows(p, g):
    result = torch.empty_like(p)
    rows = zip(p.reshape(-1, p.shape[-1]), g.reshape(-1, g.shape[-1]), strict=True)
    for i, (weights, gradient) in enumerate(rows):
        result.view(-1, p.shape[-1])[i] = weights * (gradient - weights @ gradient)
    return result


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
    low, high = 1e-3, 1e-3
    while _entropy_of(x, high) < target:
        low, high = high, 2 * high
    for _ in range(50):
        middle = 0.5 * (low + high)
        if _entropy_of(x, middle) > target:
            high = middle
        else:
            low = middle
    return torch.tensor(middle)


def _temperature_by_grid(x, target):
    grid = torch.logspace(-4, 4, 8001, dtype=torch.float64)
    entropies = torch.special.entr(torch.softmax(x.double() / grid[:, None], -1)).sum(-1)
    return grid[(entropies - target).abs().argmin()].item()


def _temperature_in_numpy(x, target):
    return np.float64(_temperature_by_doubling(x, target).item())


def _online_through_lse(m, ell, x):
    new = torch.maximum(m, x.max(dim=-1).values)
    lse = torch.logaddexp(m + ell.log(), torch.logsumexp(x, -1))
    return new, torch.where(new == -INF, torch.zeros_like(new), (lse - new).exp())


def _online_one_logit_at_a_time(m, ell, x):
    for value in x.unbind(-1):
        new = torch.maximum(m, value)
        safe = torch.where(new == -INF, torch.zeros_like(new), new)
        m, ell = new, ell * torch.exp(m - safe) + torch.exp(value - safe)
    return m, ell


def _online_by_joining(m, ell, x):
    both = torch.cat([m[..., None], x], -1)
    new = both.amax(-1)
    powers = (both - new[..., None]).exp().nan_to_num(0.0)
    return [new, ell * powers[..., 0] + powers[..., 1:].sum(-1)]


def _merge_by_logaddexp(out_a, lse_a, out_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    share_a, share_b = (torch.exp(part - lse).nan_to_num(0.0) for part in (lse_a, lse_b))
    return out_a * share_a.unsqueeze(-1) + out_b * share_b.unsqueeze(-1), lse


def _merge_by_sigmoid(out_a, lse_a, out_b, lse_b):
    a = torch.sigmoid(lse_a - lse_b).nan_to_num(0.5)[..., None]
    return a * out_a + (1 - a) * out_b, torch.logaddexp(lse_a, lse_b)


def _merge_by_stacking(out_a, lse_a, out_b, lse_b):
    lses = torch.stack([lse_a, lse_b], -1)
    shares = torch.softmax(lses, -1).nan_to_num(0.0)[..., None, :]
    out = (shares @ torch.stack([out_a, out_b], -2))[..., 0, :]
    return out, torch.logsumexp(lses, -1)


def _merge_by_rows(out_a, lse_a, out_b, lse_b):
    out, lse = torch.zeros_like(out_a), torch.full_like(lse_a, -INF)
    for index in np.ndindex(*lse_a.shape):
        a, b = lse_a[index].item(), lse_b[index].item()
        top = max(a, b)
        if top > -INF:
            w_a, w_b = math.exp(a - top), math.exp(b - top)
            out[index] = (w_a * out_a[index] + w_b * out_b[index]) / (w_a + w_b)
            lse[index] = top + math.log(w_a + w_b)
    return out, lse


RIGHT = {
    "overflowing_logits": [_overflow_constant, _overflow_by_search, _overflow_of_the_sum],
    "softmax": [
        torch.softmax,
        lambda x, dim=-1: F.softmax(x, dim=dim),
        lambda x, dim=-1: torch.log_softmax(x, dim).exp(),
        _softmax_by_loops,
        _softmax_in_numpy,
        _softmax_max_unpacked,
        _softmax_from_lse,
        _softmax_one_pass,
    ],
    "logsumexp": [torch.logsumexp, _lse_by_pairs, _lse_with_where, _lse_in_numpy],
    "softmax_vjp": [_vjp_by_rows, _vjp_by_autograd, _vjp_by_einsum],
    "temperature_for_entropy": [
        _temperature_by_doubling,
        _temperature_by_grid,
        _temperature_in_numpy,
    ],
    "online_update": [_online_through_lse, _online_one_logit_at_a_time, _online_by_joining],
    "merge": [_merge_by_logaddexp, _merge_by_sigmoid, _merge_by_stacking, _merge_by_rows],
}


# wrong


def _in_place(x, dim=-1):
    x -= x.amax(dim, keepdim=True)
    return x.exp() / x.exp().sum(dim, keepdim=True)


def _overwrites_state(m, ell, x):
    new = torch.maximum(m, x.amax(-1))
    safe = new.nan_to_num(neginf=0.0)
    ell *= (m - safe).exp()
    ell += (x - safe[..., None]).exp().sum(-1)
    return new, ell


def _naive_through_log(x, dim=-1):
    return torch.exp(x) * torch.exp(x).sum(dim=dim, keepdim=True).reciprocal()


def _peak_of_everything(x, dim=-1):
    shifted = torch.exp(x - torch.max(x))
    return shifted / shifted.sum(dim=dim, keepdim=True)


def _centred(x, dim=-1):
    z = torch.exp(x - torch.mean(x, dim=dim, keepdim=True))
    return z / torch.sum(z, dim=dim, keepdim=True)


def _guarded(x, dim=-1):
    z = torch.exp(x)
    return z / (1e-9 + z.sum(dim=dim, keepdim=True))


def _forgets_dim(x, dim=-1):
    return F.softmax(x, dim=-1)


def _total_of_all(x, dim=-1):
    z = torch.exp(x - x.max(dim=dim, keepdim=True).values)
    return z / torch.sum(z)


def _in_double(x, dim=-1):
    z = torch.exp(x.to(torch.float64))
    return (z / z.sum(dim, keepdim=True)).to(x.dtype)


def _in_single(x, dim=-1):
    x = x.float()
    z = torch.exp(x - x.max(dim, keepdim=True).values)
    return z / z.sum(dim, keepdim=True)


def _lse_squeezed(x, dim=-1):
    top = x.amax(dim, keepdim=True)
    top = top.masked_fill(top == -INF, 0)
    return (top + (x - top).exp().sum(dim, keepdim=True).log()).squeeze()


def _lse_unguarded(x, dim=-1):
    top = torch.max(x, dim=dim).values
    return top + torch.log(torch.exp(x - top.unsqueeze(dim)).sum(dim=dim))


def _lse_forgot_top(x, dim=-1):
    top = torch.amax(x, dim, keepdim=True)
    top = torch.where(top == -INF, torch.zeros_like(top), top)
    return torch.log(torch.exp(x - top).sum(dim=dim))


def _lse_kept(x, dim=-1):
    return torch.logsumexp(x, dim=dim, keepdim=True)


def _vjp_by_matrix(p, g):
    jacobian = torch.diag_embed(p) - p[..., :, None] * p[..., None, :]
    return (g[..., None, :] @ jacobian)[..., 0, :]


def _vjp_by_one_matrix_a_row(p, g):
    result = torch.zeros_like(p)
    for at in np.ndindex(p.shape[:-1]):
        result[at] = (torch.diag(p[at]) - torch.outer(p[at], p[at])) @ g[at]
    return result


def _halving(entropy, x, target, lower_if_above=False):
    low, high = 1e-4, 1e4
    for _ in range(100):
        middle = (low * high) ** 0.5
        h = entropy(x, middle)
        lower = h > target if lower_if_above else not h < target
        if lower:
            high = middle
        else:
            low = middle
    return low


def _naive_entropy(x, t):
    e = torch.exp(x / t)
    return torch.special.entr(e / torch.sum(e)).sum()


def _no_minus(x, t):
    p = F.softmax(x / t, dim=0)
    return torch.xlogy(p, p).sum()


def _online_from_the_old_maximum(m, ell, x):
    new = torch.maximum(m, x.max(dim=-1).values)
    start = torch.where(m.isinf(), 0.0, m)
    return new, ell + torch.exp(x - start[..., None]).sum(-1)


def _merge_lse_by_exp(out_a, lse_a, out_b, lse_b):
    lse = torch.log(torch.exp(lse_a) + torch.exp(lse_b))
    a, b = torch.nan_to_num((lse_a - lse).exp()), torch.nan_to_num((lse_b - lse).exp())
    return a[..., None] * out_a + b[..., None] * out_b, lse


def _vjp_no_keepdim(p, g):
    return p * (g - torch.sum(p * g, dim=-1))


def _vjp_dot_over_all(p, g):
    return p * (g - torch.dot(p.flatten(), g.flatten()))


def _bits(x, target):
    low, high = 1e-4, 1e4
    for _ in range(60):
        mid = math.sqrt(low * high)
        p = torch.softmax(x.double() / mid, -1)
        bits = torch.special.entr(p).sum() / math.log(2)
        low, high = (mid, high) if bits < target else (low, mid)
    return mid


def _halving_by_log(x, target):
    a, b = 1e-4, 1e4
    for _ in range(60):
        m = (a * b) ** 0.5
        p = (x / m).softmax(-1)
        h = -(p * p.log()).sum()
        if h < target:
            a = m
        else:
            b = m
    return m


def _beta(x, target):
    return 1 / _temperature_by_grid(x, target)


def _wrong_side(x, target):
    low, high = 1e-6, 1e6
    for _ in range(80):
        mid = math.sqrt(low * high)
        low, high = (mid, high) if _entropy_of(x, mid) > target else (low, mid)
    return mid


def _no_rescue(m, ell, x):
    new = torch.max(m, x.max(-1).values)
    safe = torch.where(new.isinf(), torch.zeros_like(new), new)
    return new, ell + torch.exp(x - safe.unsqueeze(-1)).sum(-1)


def _plain_flash(m, ell, x):
    new = torch.maximum(m, x.max(dim=-1)[0])
    return new, torch.exp(m - new) * ell + torch.exp(x - new.unsqueeze(-1)).sum(dim=-1)


def _only_block_max(m, ell, x):
    new = x.max(dim=-1)[0]
    safe = torch.where(new.isinf(), torch.zeros_like(new), new)
    return new, torch.exp(m - safe) * ell + torch.exp(x - safe.unsqueeze(-1)).sum(dim=-1)


def _merge_exp(out_a, lse_a, out_b, lse_b):
    w_a, w_b = torch.exp(lse_a), torch.exp(lse_b)
    out = (w_a[..., None] * out_a + w_b[..., None] * out_b) / (w_a + w_b)[..., None]
    return out, torch.log(w_a + w_b)


def _merge_one_shift(out_a, lse_a, out_b, lse_b):
    m = max(lse_a.max(), lse_b.max())
    w_a, w_b = torch.exp(lse_a - m), torch.exp(lse_b - m)
    s = w_a + w_b
    out = (w_a / s)[..., None] * out_a + (w_b / s)[..., None] * out_b
    return out.nan_to_num(0), m + s.log()


def _merge_one_shift_and_logaddexp(out_a, lse_a, out_b, lse_b):
    return _merge_one_shift(out_a, lse_a, out_b, lse_b)[0], torch.logaddexp(lse_a, lse_b)


def _merge_half(out_a, lse_a, out_b, lse_b):
    return 0.5 * out_a + 0.5 * out_b, torch.logaddexp(lse_a, lse_b)


def _merge_max_lse(out_a, lse_a, out_b, lse_b):
    return _merge_by_logaddexp(out_a, lse_a, out_b, lse_b)[0], torch.max(lse_a, lse_b)


def _merge_no_axis(out_a, lse_a, out_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    safe = torch.where(lse == -INF, torch.zeros_like(lse), lse)
    return torch.exp(lse_a - safe) * out_a + torch.exp(lse_b - safe) * out_b, lse


def _merge_plain(out_a, lse_a, out_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    a, b = torch.exp(lse_a - lse), torch.exp(lse_b - lse)
    return a.unsqueeze(-1) * out_a + b.unsqueeze(-1) * out_b, lse


WRONG = [
    ("overflowing_logits", "underflow", lambda dtype: torch.full((3,), -900.0, dtype=dtype)),
    ("overflowing_logits", "no overflow", lambda dtype: torch.tensor([12.0, 3.0], dtype=dtype)),
    ("overflowing_logits", "no overflow", lambda dtype: torch.tensor([89.0, 89.0], dtype=dtype)),
    ("overflowing_logits", "logits not finite", lambda d: torch.tensor([1e6, 0.0], dtype=d)),
    ("overflowing_logits", "wrong dtype", lambda dtype: torch.tensor([1000.0, 0.0]).double()),
    ("overflowing_logits", "not a row", lambda dtype: 1000.0),
    ("softmax", "changes its input", _in_place),
    ("softmax", "nothing subtracted", _naive_through_log),
    ("softmax", "one maximum for all", _peak_of_everything),
    ("softmax", "mean subtracted", _centred),
    ("softmax", "epsilon in the sum", _guarded),
    ("softmax", "dim ignored", _forgets_dim),
    ("softmax", "one sum for all", _total_of_all),
    ("softmax", "only a wider format", _in_double),
    ("softmax", "logarithms returned", torch.log_softmax),
    ("softmax", "calculated in float32", _in_single),
    ("softmax", None, lambda x, dim=-1: torch.softmax(x, dim).squeeze()),
    ("softmax", None, lambda x, dim=-1: torch.sigmoid(x)),
    ("logsumexp", "nan for an empty row", _lse_unguarded),
    ("logsumexp", "maximum not added back", _lse_forgot_top),
    ("logsumexp", "dim kept", _lse_kept),
    ("logsumexp", "every 1 squeezed", _lse_squeezed),
    ("logsumexp", "no maximum taken out", lambda x, dim=-1: torch.log(torch.exp(x).sum(dim))),
    ("logsumexp", "only the maximum", lambda x, dim=-1: torch.max(x, dim=dim).values),
    ("logsumexp", "always along the last", lambda x, dim=-1: torch.logsumexp(x, -1)),
    ("softmax_vjp", "mean of g not subtracted", lambda p, g: torch.mul(g, p)),
    ("softmax_vjp", "diagonal only", lambda p, g: g * (p - p**2)),
    ("softmax_vjp", "row means meet columns", _vjp_no_keepdim),
    ("softmax_vjp", "one mean for all rows", _vjp_dot_over_all),
    ("softmax_vjp", "makes the n × n matrix", _vjp_by_matrix),
    ("softmax_vjp", "makes the n × n matrix", _vjp_by_one_matrix_a_row),
    ("softmax_vjp", "sum of g subtracted", lambda p, g: p * g - p * g.sum(-1)[..., None]),
    ("softmax_vjp", None, lambda p, g: _vjp_by_einsum(p, g).squeeze()),
    ("temperature_for_entropy", "nan turns the search", _halving_by_log),
    (
        "temperature_for_entropy",
        "overflow turns the search down",
        lambda x, target: _halving(_naive_entropy, x, target),
    ),
    (
        "temperature_for_entropy",
        "overflow turns the search up",
        lambda x, target: _halving(_naive_entropy, x, target, lower_if_above=True),
    ),
    ("temperature_for_entropy", "ran to the top", lambda x, goal: _halving(_no_minus, x, goal)),
    ("temperature_for_entropy", "measured in bits", _bits),
    ("temperature_for_entropy", "inverse temperature", _beta),
    ("temperature_for_entropy", "searched the wrong way", _wrong_side),
    ("temperature_for_entropy", "not a temperature", lambda x, target: 0.0),
    ("temperature_for_entropy", "not a number", lambda x, target: x),
    ("online_update", "changes its input", _overwrites_state),
    ("online_update", "old sum not rescaled", _no_rescue),
    ("online_update", "sum measured from old maximum", _online_from_the_old_maximum),
    ("online_update", "nan while nothing is allowed", _plain_flash),
    ("online_update", "old maximum forgotten", _only_block_max),
    ("online_update", "state swapped", lambda m, ell, x: _online_through_lse(m, ell, x)[::-1]),
    ("online_update", None, lambda *state: [t.squeeze() for t in _online_by_joining(*state)]),
    ("merge", "one maximum for all queries", _merge_one_shift),
    ("merge", None, _merge_one_shift_and_logaddexp),
    ("merge", None, lambda *parts: [t.squeeze() for t in _merge_by_rows(*parts)]),
    ("merge", "powers not shifted", _merge_exp),
    ("merge", "joint lse not shifted", _merge_lse_by_exp),
    ("merge", "plain average", _merge_half),
    ("merge", "lse of the larger", _merge_max_lse),
    ("merge", "share along the wrong axis", _merge_no_axis),
    ("merge", "nan output for two empty parts", _merge_plain),
    ("merge", "only the joined output", lambda *parts: _merge_by_rows(*parts)[0]),
]


# a phrase of each hint: the hint must say what is wrong, not only that something is

HINTS = {
    "overflowing_logits": {
        "underflow": "every power is 0",
        "logits not finite": "choose smaller logits",
        "wrong dtype": "must have the dtype asked for",
        "no overflow": "still works in at least one",
        "only low logits": "a power of 0, not inf",
        "not a row": "two or more logits",
    },
    "softmax": {
        "nothing subtracted": "subtract the largest logit",
        "only a wider format": "does not remove it",
        "one maximum for all": "take the maximum along dim",
        "calculated in float32": "keep the dtype of x",
        "maximum along last": "the maximum is taken along the last dimension",
        "sum along last": "the sum is taken along the last dimension",
        "dim ignored": "always works along the last dimension",
        "always first dim": "always works along the first dimension",
        "one sum for all": "each slice along dim should",
        "mean subtracted": "the mean is subtracted",
        "minimum subtracted": "the smallest logit is subtracted",
        "largest absolute value subtracted": "subtract the maximum with its sign",
        "epsilon in the sum": "the sum is at least 1",
        "nan replaced": "NaN is replaced",
        "logits clamped": "cut off at a limit",
        "logarithms returned": "take exp once more",
        "not normalised": "divide them by their sum",
        "keepdim missing": "keepdim=True is missing",
    },
    "logsumexp": {
        "no maximum taken out": "take the maximum out of the sum",
        "only a wider format for the sum": "still lies beyond",
        "maximum not added back": "not added back",
        "maximum subtracted twice": "subtracted once more",
        "nan for an empty row": "its log-sum-exp is −inf",
        "one maximum for all sums": "one maximum for the whole tensor",
        "only the maximum": "the other logits count too",
        "log of the mean": "do not divide by n",
        "log missing": "the logarithm is missing",
        "always along the last": "always sums along the last",
        "dim kept": "still there with size 1",
        "every 1 squeezed": "name it",
        "everything summed": "one number for everything",
        "log softmax returned": "that is the log-softmax",
    },
    "softmax_vjp": {
        "mean of g not subtracted": "subtract first the mean of g",
        "not multiplied by p": "p * is missing",
        "mean of g added": "is subtracted from g",
        "sign turned": "the sign is turned",
        "sum of g subtracted": "subtracts the sum of g",
        "plain mean subtracted": "weigh it by p",
        "number subtracted from products": "p * g − p * (p·g)",
        "diagonal only": "only the diagonal",
        "one mean for all rows": "each row has its own",
        "mean along the first": "wrong dimension",
        "row means meet columns": "keepdim=True is missing",
        "outer product only": "ppᵀg alone",
        "softmax taken again": "weights already",
    },
    "temperature_for_entropy": {
        "inverse temperature": "that is 1/T",
        "measured in bits": "natural logarithm",
        "nan turns the search": "let such a weight add 0",
        "searched the wrong way": "wrong way",
        "ran to the bottom": "raise T",
        "ran to the top": "the entropy needs its minus",
        "overflow turns the search down": "the search goes down",
        "overflow turns the search up": "the search goes up",
        "target returned": "the target itself",
        "always one": "T = 1 whatever the target",
        "entropy returned": "the temperature is asked",
        "searched too low": "widen the interval",
        "searched too high": "above 1 only",
        "target as a part": "in nats",
    },
    "online_update": {
        "old sum not rescaled": "multiply by e^(m − m_new)",
        "rescaled backwards": "1 or less",
        "block rescaled too": "only the old ℓ",
        "old maximum forgotten": "larger of m and the block's",
        "block measured from old maximum": "from the old m",
        "sum measured from old maximum": "both belong to m_new",
        "block measured from its own maximum": "its own maximum",
        "block not shifted": "no maximum is subtracted",
        "old sum dropped": "the old sum is dropped",
        "block not added": "the block's sum is missing",
        "old maximum returned": "m is not updated",
        "nan while nothing is allowed": "keep m = −inf and ℓ = 0",
        "state swapped": "swapped",
        "one maximum for all rows": "each row has its own",
        "mean of the block": "add their sum",
        "logarithm returned": "keep the sum",
    },
    "merge": {
        "plain average": "must count more",
        "outputs added": "weigh them",
        "logarithms as weights": "the shares are their softmax",
        "powers not shifted": "subtract the larger log-sum-exp",
        "joint lse not shifted": "as torch.logaddexp does",
        "one maximum for all queries": "for each query",
        "weights not normalised": "not divided by the sum of the weights",
        "lse added": "not the sum of the two",
        "lse of the larger": "more than the larger",
        "lse without the maximum": "must be added back",
        "lse of the mean": "not of their mean",
        "shares swapped": "out_a goes with lse_a",
        "nan for two empty parts": "two empty parts give NaN",
        "nan output for two empty parts": "where both parts are empty the output is NaN",
        "share along the wrong axis": "share[..., None]",
        "only the joined output": "return two things",
        "larger part alone": "the other has a share too",
    },
}
