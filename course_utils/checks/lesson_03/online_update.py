"""3.6: attention that is read once, one block further; the output is divided at every block."""

import torch

from course_utils.checks.exercise import Exercise, call_with_clones
from course_utils.checks.inputs import normals, out_of_order
from course_utils.checks.lesson_03._logits import see_that_nothing_is_added

INF = torch.inf


def online_update(m, ell, out, x, v):
    m_new = torch.maximum(m, x.amax(dim=-1))  # (..., L)
    base = m_new.masked_fill(m_new == -torch.inf, 0)  # (..., L), nothing read yet: subtract 0
    old = ell * (m - base).exp()  # (..., L), now measured from m_new
    p = (x - base[..., None]).exp()  # (..., L, n), measured from m_new too
    total = old + p.sum(dim=-1)  # (..., L)
    both = old[..., None] * out + p @ v  # (..., L, d_v), the old output with all its weight
    return m_new, total, both / total.masked_fill(total == 0, 1)[..., None]


def one_key_at_a_time(m, ell, out, x, v):
    for j, value in enumerate(x.unbind(-1)):
        new = torch.maximum(m, value)
        safe = torch.where(new == -INF, torch.zeros_like(new), new)
        power = torch.exp(value - safe)
        m, ell = new, ell * torch.exp(m - safe) + power
        share = power / torch.where(ell > 0, ell, 1.0)
        out = out + share[..., None] * (v[..., j, None, :] - out)
    return m, ell, out


def by_joining(m, ell, out, x, v):
    both = torch.cat([m[..., None], x], -1)
    new = both.detach().amax(-1)  # a maximum without a gradient changes none of m + log ℓ
    powers = (both - new[..., None].nan_to_num(neginf=0.0)).exp()
    old, block = ell * powers[..., 0], powers[..., 1:]
    total = old + block.sum(-1)
    whole = torch.where(total > 0, total, 1.0).unsqueeze(-1)
    return [new, total, old.unsqueeze(-1) / whole * out + torch.matmul(block / whole, v)]


def inputs():
    normal = normals(90)

    def state(*rows, n=4, d_v=2, shift=0.0, m=None, dtype=torch.float64):
        x = normal(*rows, n, dtype=dtype) + shift
        v = normal(*rows[:-1], n, d_v, dtype=dtype)
        if m is None:  # before the first block
            start = torch.full(rows, -INF, dtype=dtype)
            return start, torch.zeros(rows, dtype=dtype), v.new_zeros(*rows, d_v), x, v
        ell, out = normal(*rows, dtype=dtype).abs() + 1.25, normal(*rows, d_v, dtype=dtype)
        return torch.full(rows, m, dtype=dtype), ell, out, x, v

    def with_nothing(given, *places):
        for place in places:
            given[3][place] = -INF
        return given

    far = torch.tensor([1000.0, -800.0, 0.0], dtype=torch.float64)  # rows far apart
    _, ell, out, x, v = state(3, n=6, m=0.0)
    m, *others = state(2, 4, n=3, m=0.5)
    return [
        state(3, m=-2.0, d_v=5),  # the maximum grows
        state(3, m=6.0),  # the maximum stays
        state(2, 3, 5, n=2, m=0.0, d_v=4),
        state(3, n=6),
        state(3, n=1),  # ℓ is 1, out is v
        with_nothing(state(3), 0, (1, slice(3))),
        with_nothing(state(2, 3), slice(None)),
        with_nothing(state(3, m=0.5), 0, (1, slice(3))),  # an earlier block offered something
        state(3, shift=-50.0, m=-60.0),  # every logit is negative
        state(3, shift=1000.0, m=998.0),
        (far, ell, out, x + far[:, None], v),
        (far, ell, out, x + far[:, None] + 900, v),
        state(1, 1, n=1, m=0.2, d_v=1),
        (m, *out_of_order(*others)),
        state(3, n=2, shift=-200_000, m=-200_000.0),
        state(4, n=3, m=-120.0, shift=-120, dtype=torch.float32),
    ]


def output_and_logsumexp(answer, m, ell, out, x, v):
    """Return the state; where gradients are asked, the output and the log-sum-exp.

    (A maximum that is detached changes none of them.) Where the state is nothing at the start it
    has no gradient; after a block of nothing a second one follows, for log 0 has none.
    """
    if not x.requires_grad:
        results = call_with_clones(answer, m, ell, out, x, v)
        if x.shape[-1] == 1 and m.isneginf().all():
            see_that_nothing_is_added(results[0], (x[:, 0], torch.ones_like(m), v.expand(3, -1)))
        return results
    if not m.isfinite().all():
        m, ell, out = m.detach(), ell.detach(), out.detach()
    [(m, ell, out)] = call_with_clones(answer, m, ell, out, x, v)
    if x.isneginf().all(-1).any():
        [(m, ell, out)] = call_with_clones(answer, m, ell, out, torch.zeros_like(x), v)
    return [(out, torch.where(ell > 0, m + ell.clamp(min=1e-30).log(), 0))]


OLD = "old[..., None] * out"
BOTH = f"{OLD} + p @ v"
SAFE = "total.masked_fill(total == 0, 1)"
WHOLE = f"both / {SAFE}[..., None]"
SHRUNK = "(m - base).exp()"
RESCALED = f"ell * {SHRUNK}"
AGAIN = f"({SHRUNK} / ell.masked_fill(ell == 0, 1))[..., None] * out"
OK = "m and ℓ are right; "
OLD_DIVIDED = OK + (
    "the old output comes divided by the old ℓ, and is divided by it again: it counts "
    "ℓ · e^(m − m_new) / ℓ_new times, and p @ v 1 / ℓ_new times"
)
MISTAKES = [
    ("old sum not rescaled",
     "the old sum is measured from the old m: × e^(m − m_new) before m changes", (RESCALED, "ell")),
    ("rescaled backwards", "rescaled the wrong way round: the factor is e^(m − m_new), 1 or less",
     (SHRUNK, "(base - m).exp().nan_to_num(posinf=0.0)")),
    ("not divided, as in the lesson",
     OK + "out is Σ e^(x − m) v, as the lesson carries it. Here it comes divided by ℓ and must "
     "leave so: multiply the old one by its ℓ, and divide all by the new",
     (BOTH, f"{SHRUNK}[..., None] * out + p @ v"), (WHOLE, "both")),
    ("not divided", OK + "out is a sum still: divide it by the new ℓ", (WHOLE, "both")),
    ("divided twice", OK + "out is divided by ℓ twice", (BOTH, f"({BOTH}) / {SAFE}[..., None]")),
    ("old output without its weight",
     OK + "the old output was divided by the old ℓ: it counts ℓ · e^(m − m_new) times, not "
     "e^(m − m_new) times", (BOTH, f"{SHRUNK}[..., None] * out + p @ v")),
    ("old output divided again", OK + "out comes divided by the old ℓ: multiply it by that",
     (OLD, AGAIN)),
    ("old output divided again, the block's divided", OLD_DIVIDED,
     (BOTH, f"{AGAIN} + p @ v / {SAFE}[..., None]"), (WHOLE, "both")),
    ("old output divided again, the block's by its sum", OLD_DIVIDED,
     (BOTH, f"{AGAIN} + x.softmax(dim=-1).nan_to_num(0) @ v"), (WHOLE, "both")),
    ("old output not rescaled", OK + "ℓ · out is measured from the old m: × e^(m − m_new), too",
     (OLD, "ell[..., None] * out")),
    ("old output times the new sum", OK + "the old output counts by the old ℓ, not the new",
     (OLD, f"(total * {SHRUNK})[..., None] * out")),
    ("old output counted once", OK + "the old output stands for all keys so far: it counts "
     "ℓ · e^(m − m_new) times, not once", (BOTH, "out + p @ v")),
    ("old output not divided", OK + "the block's part alone is divided: divide both by the new ℓ",
     (BOTH, f"{OLD} + p @ v / {SAFE}[..., None]"), (WHOLE, "both")),
    ("old output dropped", OK + "the old output is left out of the new one", (BOTH, "p @ v")),
    ("block alone", OK + "out is the block's own softmax @ v: the old output is left out",
     (WHOLE, "x.softmax(dim=-1).nan_to_num(0) @ v")),
    ("block's output left out", OK + "the block's values are left out of the output", (BOTH, OLD)),
    ("divided by the old sum", OK + "out is divided by the old ℓ: divide by the new",
     (WHOLE, "both / ell.masked_fill(ell == 0, 1)[..., None]")),
    ("divided by the block's sum", OK + "out is divided by the block's sum: divide by the new ℓ",
     (WHOLE, "both / p.sum(-1).masked_fill(total == 0, 1)[..., None]")),
    ("block not divided", OK + "the block's values are added undivided: divide by the new ℓ, too",
     (BOTH, f"(old / {SAFE})[..., None] * out + p @ v"), (WHOLE, "both")),
    ("old output kept whole",
     OK + "the block's part is added to the old output as it is; it has lost weight, and counts ℓ "
     "· e^(m − m_new) / ℓ_new times", (BOTH, f"out + p @ v / {SAFE}[..., None]"), (WHOLE, "both")),
    ("outputs averaged", OK + "the old output and the block's are averaged as if they counted "
     "alike: their weights are ℓ · e^(m − m_new) and the block's sum",
     (WHOLE, "(out + x.softmax(dim=-1).nan_to_num(0) @ v) / 2")),
    ("block divided by itself", OK + "the block's part is a softmax of its own, which divides by "
     "the block's sum: take e^(x − m_new) and divide once, by the new ℓ",
     (BOTH, f"{OLD} + x.softmax(dim=-1).nan_to_num(0) @ v")),
    ("block's softmax added", OK + "the old output has its weight; the block's part is a softmax "
     "of its own, as if it stood alone: divide p @ v by the new ℓ",
     (BOTH, f"(old / {SAFE})[..., None] * out + x.softmax(dim=-1).nan_to_num(0) @ v"),
     (WHOLE, "both")),
    ("a softmax for the powers", "the block adds 1 to ℓ, as the sum of its softmax: p is not "
     "divided by anything, e^(x − m_new)",
     ("(x - base[..., None]).exp()", "x.softmax(dim=-1).nan_to_num(0)")),
    ("old maximum forgotten", "m is forgotten: the new maximum is the larger of m and the block's",
     ("torch.maximum(m, x.amax(dim=-1))", "x.amax(dim=-1)")),
    ("smaller maximum", "m is the smaller of two: take torch.maximum", ("maximum(", "minimum(")),
    ("block measured from old maximum", "the block's powers are measured from the old m: use m_new",
     ("base[..., None]", "m.masked_fill(m == -torch.inf, 0)[..., None]")),
    ("sum measured from old maximum",
     "m is new, but ℓ is measured from the old m all through: the old sum and the block's both "
     "belong to m_new", (RESCALED, "ell"),
     ("base[..., None]", "m.masked_fill(m == -torch.inf, 0)[..., None]")),
    ("block measured from itself", "the block's powers are measured from its maximum: use m_new",
     ("base[..., None]", "x.amax(dim=-1, keepdim=True).nan_to_num(neginf=0.0)")),
    ("block not shifted", "no maximum is subtracted in the block's powers: e^(x − m_new)",
     ("(x - base[..., None])", "x")),
    ("nothing shifted", "no maximum is used: ℓ · e^(m − m_new) + the sum of e^(x − m_new)",
     ("(x - base[..., None])", "x"), (RESCALED, "ell")),
    ("old sum dropped", "the old sum is dropped: ℓ · e^(m − m_new) + the block's sum",
     ("old + p.sum(dim=-1)", "p.sum(dim=-1)")),
    ("block not added", "the block's sum is missing: ℓ · e^(m − m_new) is the old part alone",
     ("old + p.sum(dim=-1)", "old")),
    ("mean of the block", "ℓ takes the mean of the block's powers: sum them", ("sum(", "mean(")),
    ("old maximum returned", "m is not updated: return the larger of m and the block's maximum",
     ("return m_new", "return m")),
    ("nan while nothing is allowed",
     "where nothing was allowed yet and the block is all −inf, ℓ is NaN, from −inf − (−inf); keep "
     "m = −inf, ℓ = 0 and out = 0 there", ("m_new.masked_fill(m_new == -torch.inf, 0)", "m_new")),
    ("0 / 0 while nothing is allowed", OK + "where nothing was allowed yet and the block is all "
     "−inf, out is 0 / 0: keep 0 there", (SAFE, "total")),
    ("m is 0", "while nothing is allowed, m stays −inf, not 0", ("return m_new", "return base")),
    ("ℓ is 1", "while nothing is allowed, ℓ stays 0, not 1", ("new, total", f"new, {SAFE}")),
    ("state out of order", "m and ℓ are swapped: return m, ell, out",
     ("return m_new, total", "return total, m_new")),
    ("output before sum", "out and ℓ are swapped", (f"total, {WHOLE}", f"{WHOLE}, total")),
    ("one maximum for all rows", "all rows share one maximum: each row has its own, x.amax(dim=-1)",
     ("x.amax(dim=-1)", "x.max()")),
    ("logarithm returned", "that is the log-sum-exp in place of ℓ; keep the sum e^(x − m) itself",
     ("return m_new, total", "return m_new, m_new + total.log()")),
    ("logarithm in m", "log ℓ is added to m: return m", ("n m_new", "n m_new + total.log()")),
    ("rounded to float32", "logits near −200,000 are rounded to 0.016 in float32: stay in float64",
     ("x.amax", "x.float().amax"), ("(x - base", "(x.float() - base")),
]  # fmt: skip

exercise = Exercise(
    "3.6", online_update, inputs, MISTAKES, "L|L|L d_v", output_and_logsumexp, differentiable=True,
    also_right=[one_key_at_a_time, by_joining],
)  # fmt: skip
