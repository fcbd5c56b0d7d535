"""Lesson 03's exercises: overflow, stable softmax and log-sum-exp, gradient, one pass, merging."""

import math
import numbers

import torch

from course_utils import attention
from course_utils.attention import logsumexp, merge, online_update, softmax, softmax_vjp
from course_utils.checks.compare import difference, read
from course_utils.checks.engine import Complaint, Exercise, call_with_clones, owned
from course_utils.checks.probes import Shapes

INF = torch.inf


def _normal(seed, *shape):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


# 3.1 overflowing_logits


def overflowing_logits(dtype):
    return torch.tensor([math.log(torch.finfo(dtype).max) + 2, 0.0], dtype=dtype)


# Seen by looking at what comes back, since many different logits are right.
_BREAKING = {
    "not a row": "return a tensor (n,) of two or more logits",
    "wrong dtype": "the logits must have the dtype asked for: torch.tensor([...], dtype=dtype)",
    "logits not finite": (
        "a logit is itself infinite or NaN in one of the formats, and no softmax can mend that: "
        "float16 ends at 65504; choose smaller logits"
    ),
    "underflow": (
        "the naive softmax fails, but by underflow: every power is 0; overflow is asked, so go "
        "above 0"
    ),
    "only low logits": "a very low logit gives a power of 0, not inf; overflow is at the other end",
    "no overflow": (
        "the naive softmax still works in at least one of the formats; the largest power it can "
        "hold is e to math.log(torch.finfo(dtype).max)"
    ),
}


def _breaks_the_naive(answer, dtype):
    """Return True if the logits do what they should; else complain."""
    (x,) = call_with_clones(answer, dtype)
    if read(x) is None or x.ndim != 1 or len(x) < 2:
        fault = "not a row"
    elif x.dtype != dtype:
        fault = "wrong dtype"
    elif not x.isfinite().all():
        fault = "logits not finite"
    elif x.detach().exp().sum().isinf():  # a power, or the sum of powers that are finite
        return [torch.tensor(True)]
    elif not x.exp().any():
        fault = "underflow"
    else:
        fault = "only low logits" if -x.min() > math.log(torch.finfo(dtype).max) else "no overflow"
    raise Complaint(fault, _BREAKING[fault])


overflow = Exercise(
    "3.1",
    overflowing_logits,
    lambda: [(dtype,) for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)],
    run=_breaks_the_naive,
)


@overflow.mistake(_BREAKING["not a row"])
def not_a_row(dtype):
    return torch.tensor(1000.0, dtype=dtype)


@overflow.mistake(_BREAKING["wrong dtype"])
def wrong_dtype(dtype):
    return torch.tensor([1000, 0], dtype=torch.int64)


@overflow.mistake(_BREAKING["logits not finite"])
def logits_not_finite(dtype):
    return torch.tensor([INF, 0.0], dtype=dtype)


@overflow.mistake(_BREAKING["underflow"])
def underflow(dtype):
    return torch.tensor([-1000.0, -1001.0], dtype=dtype)


@overflow.mistake(_BREAKING["only low logits"])
def only_low_logits(dtype):
    return torch.tensor([0.0, -1000.0], dtype=dtype)


@overflow.mistake(_BREAKING["no overflow"])
def no_overflow(dtype):
    return torch.tensor([2.0, 1.0], dtype=dtype)


# 3.2 softmax


def _logits_and_dims():
    far_apart = torch.tensor([[1000.0, 1001, 999], [-800, -801, -803], [0, 1, 3], [-20, -22, -21]])
    allowed = _normal(31, 4, 6)
    allowed[1, 2:], allowed[3, 0] = -INF, -INF
    half = torch.tensor([[13.0, 12.5, 0.0], [-30.0, -31.0, -29.0], [1.0, 2.0, 3.0]])
    batch = _normal(32, 2, 3, 4)
    return [
        (_normal(33, 3, 5), -1),
        (_normal(34, 5), 0),
        (batch, 0),
        (batch, 1),
        (batch, -2),
        (_normal(35, 3, 4) + 1000, -1),
        (200 * _normal(36, 3, 4), -1),
        (far_apart.double(), 1),
        (far_apart.double().T.contiguous(), 0),
        (allowed, -1),
        (half.half(), -1),
        (_normal(37, 2, 5).float() - 800, -1),
        (1e6 + 0.01 * _normal(38, 3, 4), -1),  # all the same in float32
        (_normal(39, 1, 3, 5), -1),
    ]


weights = Exercise("3.2", softmax, _logits_and_dims)


@weights.mistake("large logits give NaN: e^1000 is infinite; subtract the largest logit first")
def nothing_subtracted(x, dim=-1):
    return x.exp() / x.exp().sum(dim, keepdim=True)


@weights.mistake(
    "calculating in float64 moves the edge to e^710 and does not remove it: subtract the largest "
    "logit first"
)
def only_a_wider_format(x, dim=-1):
    return nothing_subtracted(x.double(), dim).to(x.dtype)


@weights.mistake(
    "calculated in float32, which has 7 digits: float64 logits that differ a little near 10⁶ "
    "become the same; keep the dtype of x"
)
def calculated_in_float32(x, dim=-1):
    return torch.softmax(x.float(), dim).to(x.dtype)


@weights.mistake(
    "one maximum is subtracted from the whole tensor: a row far below it underflows to 0 / 0; "
    "take the maximum along dim, x.amax(dim, keepdim=True)"
)
def one_maximum_for_all(x, dim=-1):
    e = (x - x.max()).exp()
    return e / e.sum(dim, keepdim=True)


@weights.mistake(
    "the maximum is taken along the last dimension whatever dim says: subtract the same number "
    "from all logits that share a sum"
)
def maximum_along_last(x, dim=-1):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


@weights.mistake("the sum is taken along the last dimension whatever dim says")
def sum_along_last(x, dim=-1):
    e = (x - x.amax(dim, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


@weights.mistake("dim is not used: it always works along the last dimension")
def dim_ignored(x, dim=-1):
    return softmax(x, -1)


@weights.mistake("dim is not used: it always works along the first dimension")
def always_first_dim(x, dim=-1):
    return softmax(x, 0)


@weights.mistake("all weights together sum to 1; each slice along dim should: e.sum(dim, ...)")
def one_sum_for_all(x, dim=-1):
    e = (x - x.amax(dim, keepdim=True)).exp()
    return e / e.sum()


@weights.mistake("the mean is subtracted; where logits spread, the largest still overflows: amax")
def mean_subtracted(x, dim=-1):
    e = (x - x.mean(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


@weights.mistake("the smallest logit is subtracted: that makes all powers larger; subtract the max")
def minimum_subtracted(x, dim=-1):
    e = (x - x.amin(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


@weights.mistake(
    "the largest absolute value is subtracted: a row near −800 is pushed down to −1600 and all "
    "its powers are 0; subtract the maximum with its sign"
)
def largest_absolute_value_subtracted(x, dim=-1):
    m = x.masked_fill(x.isinf(), 0).abs().amax(dim, keepdim=True)
    e = (x - m).exp()
    return e / e.sum(dim, keepdim=True)


@weights.mistake(
    "a small number added to the sum hides 0 / 0 and mends nothing: subtract the maximum, then "
    "the sum is at least 1"
)
def epsilon_in_the_sum(x, dim=-1):
    return x.exp() / (x.exp().sum(dim, keepdim=True) + 1e-9)


@weights.mistake(
    "NaN is replaced afterwards by 0; the weights are lost: subtract the maximum before"
)
def nan_replaced(x, dim=-1):
    return nothing_subtracted(x, dim).nan_to_num(0.0)


@weights.mistake(
    "the logits are cut off at a limit: those above it all get the same weight; subtract instead"
)
def logits_clamped(x, dim=-1):
    return softmax(x.clamp(-50, 50), dim)


@weights.mistake("those are the logarithms of the weights; take exp once more")
def logarithms_returned(x, dim=-1):
    return attention.log_softmax(x, dim)


@weights.mistake("those are the powers; divide them by their sum")
def not_normalised(x, dim=-1):
    return (x - x.amax(dim, keepdim=True)).exp()


@weights.mistake("keepdim=True is missing: the maximum or the sum meets the wrong dimension")
def keepdim_missing(x, dim=-1):
    e = (x - x.amax(dim)).exp()
    return e / e.sum(dim)


# 3.3 logsumexp


def _with_empty_rows():
    empty = _normal(41, 4, 5)
    empty[0, 1:], empty[2] = -INF, -INF
    return [*((x, dim) for x, dim in _logits_and_dims()), (empty, -1)]


lse = Exercise("3.3", logsumexp, _with_empty_rows)


@lse.mistake("large logits give inf, very low ones −inf: take the maximum out of the sum first")
def no_maximum_taken_out(x, dim=-1):
    return x.exp().sum(dim).log()


@lse.mistake(
    "in float64 the edge is e^710, and e^1000 still lies beyond: take the maximum out of the sum"
)
def only_a_wider_format_for_the_sum(x, dim=-1):
    return x.double().exp().sum(dim).log().to(x.dtype)


@lse.mistake("the maximum was subtracted and not added back: lse = m + log Σ e^(x − m)")
def maximum_not_added_back(x, dim=-1):
    return logsumexp(x, dim) - _finite_max(x, dim)


@lse.mistake("the maximum is subtracted once more where it should be added back")
def maximum_subtracted_twice(x, dim=-1):
    return logsumexp(x, dim) - 2 * _finite_max(x, dim)


def _finite_max(x, dim):
    m = x.amax(dim)
    return m.masked_fill(m.isinf(), 0)


@lse.mistake(
    "a row of nothing but −inf gives NaN, from −inf − (−inf); its log-sum-exp is −inf: subtract 0 "
    "where the maximum is infinite"
)
def nan_for_an_empty_row(x, dim=-1):
    m = x.amax(dim, keepdim=True)
    return (m + (x - m).exp().sum(dim, keepdim=True).log()).squeeze(dim)


@lse.mistake("one maximum for the whole tensor: a slice far below it underflows to log 0")
def one_maximum_for_all_sums(x, dim=-1):
    m = x.max()
    return m + (x - m).exp().sum(dim).log()


@lse.mistake("that is the maximum; the other logits count too: + log Σ e^(x − m)")
def only_the_maximum(x, dim=-1):
    return x.amax(dim)


@lse.mistake("that is the logarithm of the mean power; the sum is asked, so do not divide by n")
def log_of_the_mean(x, dim=-1):
    return logsumexp(x, dim) - math.log(x.shape[dim])


@lse.mistake("the logarithm is missing: take the log of the sum, then add the maximum")
def log_missing(x, dim=-1):
    m = x.amax(dim, keepdim=True).nan_to_num(neginf=0.0)
    return (m + (x - m).exp().sum(dim, keepdim=True)).squeeze(dim)


@lse.mistake("dim is not used: it always sums along the last dimension")
def always_along_the_last(x, dim=-1):
    return logsumexp(x, -1)


@lse.mistake("dim is still there with size 1: end with .squeeze(dim), or sum without keepdim")
def dim_kept(x, dim=-1):
    return logsumexp(x, dim).unsqueeze(dim)


@lse.mistake(
    "squeeze() drops every dimension of size 1, also one that should stay: name it, squeeze(dim)"
)
def every_1_squeezed(x, dim=-1):
    return logsumexp(x, dim).squeeze()


@lse.mistake("one number for everything: sum along dim")
def everything_summed(x, dim=-1):
    return logsumexp(x.flatten(), 0)


@lse.mistake("that is the log-softmax, a value for each logit; one for each slice is asked")
def log_softmax_returned(x, dim=-1):
    return attention.log_softmax(x, dim)


# 3.4 softmax_vjp


def _weights_and_gradients():
    pairs = [(_normal(50 + i, *shape), _normal(60 + i, *shape)) for i, shape in enumerate(_SHAPES)]
    saturated = 200 * _normal(70, 3, 4), _normal(71, 3, 4) + 5
    forbidden = _normal(72, 3, 5)
    forbidden[:, 3:] = -INF
    pairs += [saturated, (forbidden, 3 * _normal(73, 3, 5)), (_normal(74, 4).float(),) * 2]
    return [(torch.softmax(x, -1), g) for x, g in pairs]


_SHAPES = [(5,), (3, 4), (2, 3, 6), (3, 3), (1, 4)]


def _without_the_matrix(answer, p, g):
    """Call an answer; complain if it is right but makes an n × n matrix on the way."""
    with Shapes() as shapes:
        results = call_with_clones(answer, p, g)
    n, rows = p.shape[-1], p.shape[:-1].numel()
    # where the rows come in multiples of n, n of them are n × n too: nothing shows there
    if (n, n) in {shape[-2:] for shape in shapes.results} and rows % n:
        if difference(results[0], softmax_vjp(p, g)) is None:
            hint = "right, but it makes the n × n matrix: multiply out gᵀ(diag(p) − ppᵀ) first"
            raise Complaint("makes the n × n matrix", hint)
    return results


vjp = Exercise("3.4", softmax_vjp, _weights_and_gradients, run=_without_the_matrix)


@vjp.mistake(
    "that is half of it: from g, subtract first the mean of g under p, "
    "(p * g).sum(-1, keepdim=True)"
)
def mean_of_g_not_subtracted(p, g):
    return p * g


@vjp.mistake("p * is missing in front: p * (g − p·g)")
def not_multiplied_by_p(p, g):
    return g - (p * g).sum(-1, keepdim=True)


@vjp.mistake("the sign: p·g is subtracted from g, as J = diag(p) − ppᵀ")
def mean_of_g_added(p, g):
    return p * (g + (p * g).sum(-1, keepdim=True))


@vjp.mistake("the sign is turned: g − p·g, not p·g − g")
def sign_turned(p, g):
    return -softmax_vjp(p, g)


@vjp.mistake(
    "that subtracts the sum of g; its mean under p is needed, (p * g).sum(-1, keepdim=True)"
)
def sum_of_g_subtracted(p, g):
    return p * (g - g.sum(-1, keepdim=True))


@vjp.mistake("that subtracts the plain mean of g; weigh it by p: (p * g).sum(-1, keepdim=True)")
def plain_mean_subtracted(p, g):
    return p * (g - g.mean(-1, keepdim=True))


@vjp.mistake("p·g is multiplied with p only once in all: p * g − p * (p·g)")
def number_subtracted_from_products(p, g):
    return p * g - (p * g).sum(-1, keepdim=True)


@vjp.mistake("only the diagonal p(1 − p) is used; each weight also answers to the other logits")
def diagonal_only(p, g):
    return p * (1 - p) * g


@vjp.mistake("p·g runs over all rows together; each row has its own: sum(dim=-1, keepdim=True)")
def one_mean_for_all_rows(p, g):
    return p * (g - (p * g).sum())


@vjp.mistake("p·g runs along the wrong dimension: the weights sum to 1 along the last, dim=-1")
def mean_along_the_first(p, g):
    return p * (g - (p * g).sum(0, keepdim=True))


@vjp.mistake("keepdim=True is missing: each row's p·g must meet its own row")
def row_means_meet_columns(p, g):
    return p * (g - (p * g).sum(-1))


@vjp.mistake("that is ppᵀg alone; the whole is diag(p)g − ppᵀg")
def outer_product_only(p, g):
    return p * (p * g).sum(-1, keepdim=True)


@vjp.mistake("softmax is taken of p once more: p are the weights already")
def softmax_taken_again(p, g):
    return softmax_vjp(torch.softmax(p, -1), g)


# 3.5 temperature_for_entropy


def _entropy(x, temperature):
    logs = torch.log_softmax(x.double() / temperature, -1)
    return -(logs.exp() * logs.masked_fill(logs.isinf(), 0)).sum()


def temperature_for_entropy(x, target):
    low, high = -16.0, 16.0  # logarithms of T
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _entropy(x, math.exp(middle)) < target else (low, middle)
    return math.exp(middle)


def _entropy_reached(answer, x, target):
    """Return the entropy that the answer's temperature gives; the target if it is within 1 %.

    In half precision, as what is known of a mistake's temperature is only where it ends up.
    """
    (temperature,) = call_with_clones(answer, x, target)
    single = read(temperature)
    if single is not None and single.numel() == 1:
        temperature = single.item()
    if not isinstance(temperature, numbers.Real) and getattr(temperature, "size", 0) != 1:
        kind = type(temperature).__name__
        raise Complaint("not a number", f"return one number, the temperature, got {kind}")
    temperature = owned(float)(temperature)  # NumPy's, too
    if not 0 < temperature < INF:
        hint = f"the temperature must be above 0 and finite, got {temperature:.4g}"
        raise Complaint("not a temperature", hint)
    entropy = _entropy(x, temperature)
    return [(entropy if abs(entropy - target) > 0.01 * target else torch.tensor(target)).half()]


def _logits_and_targets():
    logits = [_normal(80, 6), 200 * _normal(81, 9), _normal(82, 5) + 1000, 0.05 * _normal(83, 8)]
    at_parts = [(x, part * math.log(len(x))) for x in logits for part in (0.4, 0.9)]
    return [*at_parts, (torch.tensor([3.0, 1, 0, -2]), 0.5)]  # float32: weights of 0 at a small T


temperature = Exercise(
    "3.5", temperature_for_entropy, _logits_and_targets, run=_entropy_reached, names=""
)


@temperature.mistake("that is 1/T: the logits are divided by the temperature, x / T")
def inverse_temperature(x, target):
    return 1 / temperature_for_entropy(x, target)


@temperature.mistake("the entropy is measured in bits; use the natural logarithm, not log2")
def measured_in_bits(x, target):
    return temperature_for_entropy(x, target * math.log(2))


@temperature.mistake(
    "the search goes the wrong way: a larger T gives a *larger* entropy, so if the entropy is too "
    "small, raise T"
)
def searched_the_wrong_way(x, target):
    # halving around T = 1: it runs from there to the end that lies away from the target
    return 1e6 if _entropy(x, 1.0) > target else 1e-6


@temperature.mistake(
    "the search went down to its lower end; if the entropy is below the target, raise T (is it "
    "NaN somewhere? NaN < target is false)"
)
def ran_to_the_bottom(x, target):
    return 1e-6


@temperature.mistake(
    "the search went up to its end; if the entropy is above the target, lower T (compare with the "
    "target, not with 0; and the entropy needs its minus, or it is never above)"
)
def ran_to_the_top(x, target):
    return 1e6


@temperature.mistake(
    "where a weight is 0 the entropy comes out as NaN (0 · log 0), and NaN < target is false, so "
    "the search turns away: let such a weight add 0, with torch.xlogy"
)
def nan_turns_the_search(x, target):
    low, high = 1e-4, 1e4
    for _ in range(60):
        middle = math.sqrt(low * high)
        p = torch.softmax(x / middle, -1)
        low, high = (middle, high) if -(p * p.log()).sum() < target else (low, middle)
    return middle


def _halving_without_maximum(x, target, nan_lowers):
    low, high = 1e-4, 1e4
    for _ in range(60):
        middle = math.sqrt(low * high)
        powers = (x / middle).exp()
        p = powers / powers.sum()
        entropy = -(p * p.log()).sum()
        lower = not entropy < target if nan_lowers else entropy > target
        low, high = (low, middle) if lower else (middle, high)
    return middle


@temperature.mistake(
    "e^(x / T) overflows where T is small or x large; the entropy is NaN then, and NaN < target is "
    "false, so the search goes down: use a stable softmax, as in 3.2"
)
def overflow_turns_the_search_down(x, target):
    return _halving_without_maximum(x, target, nan_lowers=True)


@temperature.mistake(
    "e^(x / T) overflows where T is small or x large; the entropy is NaN then, and NaN > target is "
    "false, so the search goes up: use a stable softmax, as in 3.2"
)
def overflow_turns_the_search_up(x, target):
    return _halving_without_maximum(x, target, nan_lowers=False)


@temperature.mistake("that is the target itself; look for a T whose weights have this entropy")
def target_returned(x, target):
    return target


@temperature.mistake("that is T = 1 whatever the target: the search does not move")
def always_one(x, target):
    return 1.0


@temperature.mistake("that is the entropy at T = 1; the temperature is asked")
def entropy_returned(x, target):
    return _entropy(x, 1.0).item() + 1e-12


@temperature.mistake(
    "T is searched between 0 and 10 only; large logits need a larger one: widen the interval "
    "until it holds the target"
)
def searched_too_low(x, target):
    return min(temperature_for_entropy(x, target), 10.0)


@temperature.mistake(
    "T is searched above 1 only; small or close logits need a smaller one, down towards 0"
)
def searched_too_high(x, target):
    return max(temperature_for_entropy(x, target), 1.0)


@temperature.mistake("the target is taken as a part of log n; it is the entropy itself, in nats")
def target_as_a_part(x, target):
    return temperature_for_entropy(x, min(target * math.log(len(x)), 0.9999 * math.log(len(x))))


# 3.6 online_update


def _states_and_blocks():
    empty, zero = torch.full((3,), -INF, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    half_empty = _normal(90, 3, 4)
    half_empty[0], half_empty[1, :3] = -INF, -INF
    x = _normal(91, 2, 3, 5)
    state = x.amax(-1), (x - x.amax(-1, keepdim=True)).exp().sum(-1)
    far = torch.tensor([1000.0, -800.0, 0.0], dtype=torch.float64)  # rows far apart
    return [
        (torch.tensor(-INF), torch.tensor(0.0), torch.tensor([1.0, 3.0, 2.0])),
        (torch.tensor(3.0), torch.tensor(1.5), torch.tensor([1.0, 0.0])),
        (torch.tensor(3.0), torch.tensor(1.5), torch.tensor([4.0, 6.0])),
        (empty, zero, _normal(92, 3, 4)),
        (empty, zero, half_empty),
        (*state, _normal(93, 2, 3, 4)),
        (*state, 200 * _normal(94, 2, 3, 4)),
        (far, zero + 1.25, _normal(95, 3, 6) + far[:, None]),
        (far, zero + 1.25, _normal(96, 3, 6) + far[:, None] + 900),
        (_normal(97, 3), zero + 2, half_empty),
        (_normal(98, 1), zero[:1] + 2, _normal(99, 1, 4)),
    ]


online = Exercise("3.6", online_update, _states_and_blocks, names="|")


def _base(m):
    return m.masked_fill(m == -INF, 0)


def _block(m, x):
    return (x - _base(m)[..., None]).exp().sum(-1)


@online.mistake("the old sum is kept as it is; it was measured from m: multiply by e^(m − m_new)")
def old_sum_not_rescaled(m, ell, x):
    m_new = torch.maximum(m, x.amax(-1))
    return m_new, ell + _block(m_new, x)


@online.mistake("rescaled the wrong way round: the factor is e^(m − m_new), 1 or less")
def rescaled_backwards(m, ell, x):
    m_new = torch.maximum(m, x.amax(-1))
    factor = (_base(m_new) - m).exp().nan_to_num(posinf=0.0)
    return m_new, ell * factor + _block(m_new, x)


@online.mistake("the whole sum is rescaled, the new block too; only the old ℓ was measured from m")
def block_rescaled_too(m, ell, x):
    m_new = torch.maximum(m, x.amax(-1))
    return m_new, (ell + _block(m_new, x)) * (m - _base(m_new)).exp()


@online.mistake("m is forgotten: the new maximum is the larger of m and the block's")
def old_maximum_forgotten(m, ell, x):
    m_new = x.amax(-1)
    return m_new, ell * (m - _base(m_new)).exp() + _block(m_new, x)


@online.mistake("the block's powers are measured from the old m; use the new maximum for them")
def block_measured_from_old_maximum(m, ell, x):
    m_new = torch.maximum(m, x.amax(-1))
    return m_new, ell * (m - _base(m_new)).exp() + _block(m, x)


@online.mistake(
    "m is new, but ℓ is measured from the old m all through: the old sum and the block's both "
    "belong to m_new"
)
def sum_measured_from_old_maximum(m, ell, x):
    return torch.maximum(m, x.amax(-1)), ell + _block(m, x)


@online.mistake("the block's powers are measured from its own maximum; use m_new for them")
def block_measured_from_its_own_maximum(m, ell, x):
    m_new = torch.maximum(m, x.amax(-1))
    return m_new, ell * (m - _base(m_new)).exp() + _block(x.amax(-1), x)


@online.mistake("no maximum is subtracted in the block's powers: e^(x − m_new)")
def block_not_shifted(m, ell, x):
    m_new = torch.maximum(m, x.amax(-1))
    return m_new, ell * (m - _base(m_new)).exp() + x.exp().sum(-1)


@online.mistake("the old sum is dropped: ℓ · e^(m − m_new) + the block's sum")
def old_sum_dropped(m, ell, x):
    m_new = torch.maximum(m, x.amax(-1))
    return m_new, _block(m_new, x)


@online.mistake("the block's sum is missing: ℓ · e^(m − m_new) is the old part alone")
def block_not_added(m, ell, x):
    m_new = torch.maximum(m, x.amax(-1))
    return m_new, ell * (m - _base(m_new)).exp()


@online.mistake("m is not updated: return the larger of m and the block's maximum with the sum")
def old_maximum_returned(m, ell, x):
    return m, online_update(m, ell, x)[1]


@online.mistake(
    "where nothing was allowed yet and the block is all −inf, ℓ is NaN, from −inf − (−inf); keep "
    "m = −inf and ℓ = 0 there"
)
def nan_while_nothing_is_allowed(m, ell, x):
    m_new = torch.maximum(m, x.amax(-1))
    return m_new, ell * (m - m_new).exp() + (x - m_new[..., None]).exp().sum(-1)


@online.mistake("m and ℓ are swapped: return m, ell")
def state_swapped(m, ell, x):
    return online_update(m, ell, x)[::-1]


@online.mistake("all rows share one maximum: each row has its own, x.amax(dim=-1)")
def one_maximum_for_all_rows(m, ell, x):
    m_new = torch.maximum(m, x.max())
    return m_new, ell * (m - _base(m_new)).exp() + _block(m_new, x)


@online.mistake("the mean of the block's powers is added; add their sum")
def mean_of_the_block(m, ell, x):
    m_new = torch.maximum(m, x.amax(-1))
    return m_new, ell * (m - _base(m_new)).exp() + _block(m_new, x) / x.shape[-1]


@online.mistake("that is the log-sum-exp in place of ℓ; keep the sum e^(x − m) itself")
def logarithm_returned(m, ell, x):
    m, ell = online_update(m, ell, x)
    return m, m + ell.log()


# 3.7 merge


def _parts():
    def part(seed, size=1.0, shift=0.0, shape=(3,), d_v=2):
        return _normal(seed, *shape, d_v), size * _normal(seed + 1, *shape) + shift

    def emptied(out, lse, rows):
        out[rows], lse[rows] = 0, -INF
        return out, lse

    some = [True, False, True]
    far = torch.tensor([1000.0, -1000.0, 0.0])  # rows far apart
    return [
        (*part(100), *part(102)),
        (*part(104, shape=(2, 3, 5), d_v=4), *part(106, shape=(2, 3, 5), d_v=4)),
        (*part(108, size=200), *part(110, size=200)),
        (*part(112, shift=1000), *part(114, shift=1000)),
        (*part(116, shift=-800), *part(118, shift=-801)),
        (*part(120, shape=(4,), d_v=4), *part(122, shape=(4,), d_v=4)),
        (*emptied(*part(124), some), *part(126)),
        (*part(128), *emptied(*part(130), some)),
        (*emptied(*part(132), some), *emptied(*part(134), [True, False, False])),
        (*part(136, shift=far), *part(138, shift=far)),
        (*part(140, shape=(1,)), *part(142, shape=(1,))),
    ]


joined = Exercise("3.7", merge, _parts, names="L d_v|L")


def _mix(out_a, share_a, out_b, share_b):
    return share_a[..., None] * out_a + share_b[..., None] * out_b


def _true_lse(lse_a, lse_b):
    return torch.logaddexp(lse_a, lse_b)


@joined.mistake("the outputs are averaged; the part with the larger log-sum-exp must count more")
def plain_average(out_a, lse_a, out_b, lse_b):
    return (out_a + out_b) / 2, _true_lse(lse_a, lse_b)


@joined.mistake("the outputs are added; each is already divided by its own sum: weigh them")
def outputs_added(out_a, lse_a, out_b, lse_b):
    return out_a + out_b, _true_lse(lse_a, lse_b)


@joined.mistake(
    "the log-sum-exps themselves are used as weights; they are logarithms: the shares are their "
    "softmax"
)
def logarithms_as_weights(out_a, lse_a, out_b, lse_b):
    total = lse_a + lse_b
    return _mix(out_a, lse_a / total, out_b, lse_b / total), _true_lse(lse_a, lse_b)


@joined.mistake(
    "e^lse overflows at 1000 and is 0 at −800: subtract the larger log-sum-exp before exp"
)
def powers_not_shifted(out_a, lse_a, out_b, lse_b):
    a, b = lse_a.exp(), lse_b.exp()
    return _mix(out_a, a / (a + b), out_b, b / (a + b)), (a + b).log()


@joined.mistake(
    "the joint lse is log(e^lse_a + e^lse_b), but at 1000 these overflow and at −800 they are 0: "
    "subtract the larger before exp and add it back, as torch.logaddexp does"
)
def joint_lse_not_shifted(out_a, lse_a, out_b, lse_b):
    lse = (lse_a.exp() + lse_b.exp()).log()
    a, b = (lse_a - lse).exp().nan_to_num(0.0), (lse_b - lse).exp().nan_to_num(0.0)
    return _mix(out_a, a, out_b, b), lse


@joined.mistake(
    "all queries share one maximum: where both log-sum-exps lie far below it, both powers are 0; "
    "take the larger of the two for each query"
)
def one_maximum_for_all_queries(out_a, lse_a, out_b, lse_b):
    m = torch.maximum(lse_a, lse_b).max()
    a, b = (lse_a - m).exp(), (lse_b - m).exp()
    out = _mix(out_a, a, out_b, b) / (a + b)[..., None]
    return out.nan_to_num(0.0), m + (a + b).log()


@joined.mistake("the weighted outputs are not divided by the sum of the weights")
def weights_not_normalised(out_a, lse_a, out_b, lse_b):
    m = _base(torch.maximum(lse_a, lse_b))
    return _mix(out_a, (lse_a - m).exp(), out_b, (lse_b - m).exp()), _true_lse(lse_a, lse_b)


def _stable_mix(out_a, lse_a, out_b, lse_b):
    return merge(out_a, lse_a, out_b, lse_b)[0]


@joined.mistake("right output; the new lse is log(e^lse_a + e^lse_b), not the sum of the two")
def lse_added(out_a, lse_a, out_b, lse_b):
    return _stable_mix(out_a, lse_a, out_b, lse_b), lse_a + lse_b


@joined.mistake("right output; the new lse is more than the larger of the two: + log Σ e^(lse − m)")
def lse_of_the_larger(out_a, lse_a, out_b, lse_b):
    return _stable_mix(out_a, lse_a, out_b, lse_b), torch.maximum(lse_a, lse_b)


@joined.mistake("right output; the maximum subtracted from the log-sum-exps must be added back")
def lse_without_the_maximum(out_a, lse_a, out_b, lse_b):
    m = _base(torch.maximum(lse_a, lse_b))
    return _stable_mix(out_a, lse_a, out_b, lse_b), _true_lse(lse_a, lse_b) - m


@joined.mistake("right output; lse is log of the sum of both, not of their mean")
def lse_of_the_mean(out_a, lse_a, out_b, lse_b):
    return _stable_mix(out_a, lse_a, out_b, lse_b), _true_lse(lse_a, lse_b) - math.log(2)


@joined.mistake("the shares are swapped: out_a goes with lse_a")
def shares_swapped(out_a, lse_a, out_b, lse_b):
    return _stable_mix(out_a, lse_b, out_b, lse_a), _true_lse(lse_a, lse_b)


@joined.mistake(
    "two empty parts give NaN, from −inf − (−inf); their output shall be zeros and their lse −inf"
)
def nan_for_two_empty_parts(out_a, lse_a, out_b, lse_b):
    m = torch.maximum(lse_a, lse_b)
    a, b = (lse_a - m).exp(), (lse_b - m).exp()
    return _mix(out_a, a / (a + b), out_b, b / (a + b)), m + (a + b).log()


@joined.mistake(
    "the lse is right, but where both parts are empty the output is NaN, from −inf − (−inf); it "
    "shall be zeros"
)
def nan_output_for_two_empty_parts(out_a, lse_a, out_b, lse_b):
    lse = _true_lse(lse_a, lse_b)
    return _mix(out_a, (lse_a - lse).exp(), out_b, (lse_b - lse).exp()), lse


@joined.mistake(
    "a share is one number for each query: give it an axis for d_v, share[..., None], before "
    "multiplying"
)
def share_along_the_wrong_axis(out_a, lse_a, out_b, lse_b):
    lse = _true_lse(lse_a, lse_b)
    base = _base(lse)
    return out_a * (lse_a - base).exp() + out_b * (lse_b - base).exp(), lse


@joined.mistake("return two things: the output and its lse, in this order")
def only_the_joined_output(out_a, lse_a, out_b, lse_b):
    return _stable_mix(out_a, lse_a, out_b, lse_b)


@joined.mistake("the part with the larger lse is taken alone; the other has a share too")
def larger_part_alone(out_a, lse_a, out_b, lse_b):
    out = torch.where((lse_a > lse_b)[..., None], out_a, out_b)
    return out.masked_fill((_true_lse(lse_a, lse_b) == -INF)[..., None], 0), _true_lse(lse_a, lse_b)
