"""3.6: attention that is read once, one block further; the output is divided at every block."""

import torch

from course_utils.checks.exercise import Exercise, call_with_clones
from course_utils.checks.inputs import normals, out_of_order

INF = torch.inf


def online_update(m, ell, out, x, v):
    m_new = torch.maximum(m, x.amax(dim=-1))  # (..., L)
    base = m_new.masked_fill(m_new == -torch.inf, 0)  # (..., L), nothing read yet: subtract 0
    old = ell * (m - base).exp()  # (..., L), now measured from m_new
    p = (x - base[..., None]).exp()  # (..., L, n), measured from m_new too
    total = old + p.sum(dim=-1)  # (..., L)
    both = old[..., None] * out + p @ v  # (..., L, d_v), the old output with all its weight
    return m_new, total, both / total.masked_fill(total == 0, 1)[..., None]


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
        with_nothing(state(3), 0, (1, slice(3))),
        with_nothing(state(2, 3), slice(None)),
        with_nothing(state(3, m=0.5), 0, (1, slice(3))),  # an earlier block offered something
        state(3, shift=-50.0, m=-60.0),  # every logit is negative
        state(3, shift=1000.0, m=998.0),
        (far, ell, out, x + far[:, None], v),
        (far, ell, out, x + far[:, None] + 900, v),
        state(1, 1, n=1, m=0.2, d_v=1),
        (m, *out_of_order(*others)),
        state(3, n=2, shift=-20_000, m=-20_000.0),
        state(4, n=3, m=-120.0, shift=-120, dtype=torch.float32),
    ]


def output_and_logsumexp(answer, m, ell, out, x, v):
    """Return the state; where gradients are asked, the output and the log-sum-exp.

    (A maximum that is detached changes none of them.) Where the state is nothing at the start it
    has no gradient; after a block of nothing a second one follows, for log 0 has none.
    """
    if not x.requires_grad:
        return call_with_clones(answer, m, ell, out, x, v)
    if not m.isfinite().all():
        m, ell, out = m.detach(), ell.detach(), out.detach()
    [(m, ell, out)] = call_with_clones(answer, m, ell, out, x, v)
    if x.isneginf().all(-1).any():
        [(m, ell, out)] = call_with_clones(answer, m, ell, out, torch.zeros_like(x), v)
    return [(out, torch.where(ell > 0, m + ell.clamp(min=1e-30).log(), 0))]


RESCALED = "ell * (m - base).exp()"
BOTH = "old[..., None] * out + p @ v"
SAFE = "total.masked_fill(total == 0, 1)"
WHOLE = f"both / {SAFE}[..., None]"
MISTAKES = [
    ("old sum not rescaled",
     "the old sum is kept as it is; it was measured from the old m: multiply by e^(m − m_new), and "
     "do not overwrite m before that", (RESCALED, "ell")),
    ("rescaled backwards",
     "rescaled the wrong way round: the factor is e^(m − m_new), 1 or less",
     ("(m - base).exp()", "(base - m).exp().nan_to_num(posinf=0.0)")),
    ("not divided, as in the lesson",
     "m and ℓ are right; out is Σ e^(x − m) v, as the lesson carries it. Here it comes divided by "
     "ℓ and must leave so: multiply the old one by its ℓ, and divide all by the new",
     (BOTH, "(m - base).exp()[..., None] * out + p @ v"), (WHOLE, "both")),
    ("not divided",
     "m and ℓ are right; out is a sum still: divide it by the new ℓ", (WHOLE, "both")),
    ("old output without its weight",
     "m and ℓ are right; the old output was divided by the old ℓ: it counts ℓ · e^(m − m_new) "
     "times, not e^(m − m_new) times", (BOTH, "(m - base).exp()[..., None] * out + p @ v")),
    ("old output not rescaled",
     "m and ℓ are right; the old output times ℓ is measured from the old m: × e^(m − m_new), too",
     (BOTH, "ell[..., None] * out + p @ v")),
    ("old output counted once",
     "m and ℓ are right; the old output stands for all keys so far: it counts ℓ · e^(m − m_new) "
     "times, not once", (BOTH, "out + p @ v")),
    ("old output dropped", "m and ℓ are right; the old output is left out of the new one",
     (BOTH, "p @ v")),
    ("block's output left out", "m and ℓ are right; the block's values are left out of the output",
     (BOTH, "old[..., None] * out")),
    ("divided by the old sum", "m and ℓ are right; out is divided by the old ℓ: divide by the new",
     (WHOLE, "both / ell.masked_fill(ell == 0, 1)[..., None]")),
    ("block not divided",
     "m and ℓ are right; the block's values are added undivided: divide them by the new ℓ, too",
     (BOTH, f"(old / {SAFE})[..., None] * out + p @ v"), (WHOLE, "both")),
    ("old output kept whole",
     "m and ℓ are right; the block's part is added to the old output as it is: that has lost "
     "weight to the block, and counts ℓ · e^(m − m_new) / ℓ_new times",
     (BOTH, f"out + p @ v / {SAFE}[..., None]"), (WHOLE, "both")),
    ("outputs averaged",
     "m and ℓ are right; the old output and the block's are averaged as if they counted alike: "
     "their weights are ℓ · e^(m − m_new) and the block's sum",
     (WHOLE, "(out + x.softmax(dim=-1).nan_to_num(0) @ v) / 2")),
    ("block divided by itself",
     "m and ℓ are right; the block's part is a softmax of its own, which divides by the block's "
     "sum: take e^(x − m_new) and divide once, by the new ℓ",
     (BOTH, "old[..., None] * out + x.softmax(dim=-1).nan_to_num(0) @ v")),
    ("old maximum forgotten",
     "m is forgotten: the new maximum is the larger of m and the block's",
     ("torch.maximum(m, x.amax(dim=-1))", "x.amax(dim=-1)")),
    ("block measured from old maximum",
     "the block's powers are measured from the old m; use the new maximum for them",
     ("base[..., None]", "m.masked_fill(m == -torch.inf, 0)[..., None]")),
    ("sum measured from old maximum",
     "m is new, but ℓ is measured from the old m all through: the old sum and the block's both "
     "belong to m_new", (RESCALED, "ell"),
     ("base[..., None]", "m.masked_fill(m == -torch.inf, 0)[..., None]")),
    ("block measured from its own maximum",
     "the block's powers are measured from its own maximum; use m_new for them",
     ("base[..., None]", "x.amax(dim=-1, keepdim=True).nan_to_num(neginf=0.0)")),
    ("block not shifted", "no maximum is subtracted in the block's powers: e^(x − m_new)",
     ("(x - base[..., None])", "x")),
    ("old sum dropped", "the old sum is dropped: ℓ · e^(m − m_new) + the block's sum",
     ("old + p.sum(dim=-1)", "p.sum(dim=-1)")),
    ("block not added", "the block's sum is missing: ℓ · e^(m − m_new) is the old part alone",
     ("old + p.sum(dim=-1)", "old")),
    ("old maximum returned",
     "m is not updated: return the larger of m and the block's maximum with the sum",
     ("return m_new", "return m")),
    ("nan while nothing is allowed",
     "where nothing was allowed yet and the block is all −inf, ℓ is NaN, from −inf − (−inf); keep "
     "m = −inf, ℓ = 0 and out = 0 there", ("m_new.masked_fill(m_new == -torch.inf, 0)", "m_new")),
    ("0 / 0 while nothing is allowed",
     "m and ℓ are right; where nothing was allowed yet and the block is all −inf, out is 0 / 0: "
     "keep 0 there", (SAFE, "total")),
    ("state out of order", "m and ℓ are swapped: return m, ell, out",
     ("return m_new, total", "return total, m_new")),
    ("one maximum for all rows", "all rows share one maximum: each row has its own, x.amax(dim=-1)",
     ("x.amax(dim=-1)", "x.max()")),
    ("logarithm returned",
     "that is the log-sum-exp in place of ℓ; keep the sum e^(x − m) itself",
     ("return m_new, total", "return m_new, m_new + total.log()")),
]  # fmt: skip

exercise = Exercise(
    "3.6",
    online_update,
    inputs,
    MISTAKES,
    names="L|L|L d_v",
    run=output_and_logsumexp,
    differentiable=True,
)
