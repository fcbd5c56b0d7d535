"""3.6: the state of a softmax that is read once, one block further."""

import torch

from course_utils.checks.exercise import Exercise, call_with_clones
from course_utils.checks.inputs import normals

INF = torch.inf


def online_update(m, ell, x):
    m_new = torch.maximum(m, x.amax(dim=-1))  # (...)
    base = m_new.masked_fill(m_new == -torch.inf, 0)  # (...), nothing allowed yet: subtract 0
    old = ell * (m - base).exp()  # (...), now measured from m_new
    new = (x - base[..., None]).exp().sum(dim=-1)  # (...), measured from m_new too
    return m_new, old + new


def inputs():
    normal = normals(90)
    empty, zero = torch.full((3,), -INF, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    half_empty, nothing = normal(3, 4), torch.full((2, 3), -INF)
    half_empty[0], half_empty[1, :3] = -INF, -INF
    x = normal(2, 3, 5)
    state = x.amax(-1), (x - x.amax(-1, keepdim=True)).exp().sum(-1)
    far = torch.tensor([1000.0, -800.0, 0.0], dtype=torch.float64)  # rows far apart
    return [
        (torch.tensor(-INF), torch.tensor(0.0), torch.tensor([1.0, 3.0, 2.0])),
        (torch.tensor(3.0), torch.tensor(1.5), torch.tensor([1.0, 0.0])),
        (torch.tensor(3.0), torch.tensor(1.5), torch.tensor([4.0, 6.0])),
        (torch.tensor(3.0), torch.tensor(1.5), torch.tensor([3.0, 3.0, -200])),  # ties
        (empty, zero, normal(3, 4)),
        (empty, zero, half_empty),
        (nothing[:, 0], torch.zeros(2), nothing),
        (*state, normal(2, 3, 4)),
        (*state, 200 * normal(2, 3, 4)),
        (far, zero + 1.25, normal(3, 6) + far[:, None]),
        (far, zero + 1.25, normal(3, 6) + far[:, None] + 900),
        (normal(3), zero + 2, half_empty),
        (normal(1), zero[:1] + 2, normal(1, 4)),
        (normal(4, 2).T, 1 + normal(4, 2).T ** 2, normal(50, 4, 2).permute(2, 1, 0)),
        (normal(3) - 20_000, zero + 1.5, normal(3, 2) - 20_000),
        (normal(3).float() - 120, zero.float() + 1.5, normal(3, 1).float() - 120),
    ]


def state_or_its_logsumexp(answer, m, ell, x):
    """Return the state; where gradients are asked, its log-sum-exp, which alone matters to them.

    (A maximum that is detached changes none.) Where the state is nothing at the start it has no
    gradient; after a block of nothing a second one follows, for log 0 has none.
    """
    if not x.requires_grad:
        return call_with_clones(answer, m, ell, x)
    if not m.isfinite().all():
        m, ell = m.detach(), ell.detach()
    [(m, ell)] = call_with_clones(answer, m, ell, x)
    if x.isneginf().all(-1).any():
        [(m, ell)] = call_with_clones(answer, m, ell, torch.zeros_like(x))
    return [torch.where(ell > 0, m + ell.clamp(min=1e-30).log(), 0)]


FROM_OLD = "base[..., None]", "m.masked_fill(m == -torch.inf, 0)[..., None]"
MISTAKES = [
    ("old sum not rescaled",
     "the old sum is kept as it is; it was measured from the old m: multiply by e^(m − m_new), and "
     "do not overwrite m before that", ("ell * (m - base).exp()", "ell")),
    ("rescaled backwards",
     "rescaled the wrong way round: the factor is e^(m − m_new), 1 or less",
     ("(m - base).exp()", "(base - m).exp().nan_to_num(posinf=0.0)")),
    ("block rescaled too",
     "the whole sum is rescaled, the new block too; only the old ℓ was measured from m",
     ("old + new", "(ell + new) * (m - base).exp()")),
    ("old maximum forgotten",
     "m is forgotten: the new maximum is the larger of m and the block's",
     ("torch.maximum(m, x.amax(dim=-1))", "x.amax(dim=-1)")),
    ("block measured from old maximum",
     "the block's powers are measured from the old m; use the new maximum for them", FROM_OLD),
    ("sum measured from old maximum",
     "m is new, but ℓ is measured from the old m all through: the old sum and the block's both "
     "belong to m_new", ("ell * (m - base).exp()", "ell"), FROM_OLD),
    ("block measured from its own maximum",
     "the block's powers are measured from its own maximum; use m_new for them",
     ("base[..., None]", "x.amax(dim=-1, keepdim=True).nan_to_num(neginf=0.0)")),
    ("block not shifted", "no maximum is subtracted in the block's powers: e^(x − m_new)",
     ("(x - base[..., None])", "x")),
    ("old sum dropped", "the old sum is dropped: ℓ · e^(m − m_new) + the block's sum",
     ("old + new", "new")),
    ("block not added", "the block's sum is missing: ℓ · e^(m − m_new) is the old part alone",
     ("old + new", "old")),
    ("old maximum returned",
     "m is not updated: return the larger of m and the block's maximum with the sum",
     ("return m_new", "return m")),
    ("nan while nothing is allowed",
     "where nothing was allowed yet and the block is all −inf, ℓ is NaN, from −inf − (−inf); keep "
     "m = −inf and ℓ = 0 there", ("m_new.masked_fill(m_new == -torch.inf, 0)", "m_new")),
    ("state swapped", "m and ℓ are swapped: return m, ell",
     ("m_new, old + new", "old + new, m_new")),
    ("one maximum for all rows", "all rows share one maximum: each row has its own, x.amax(dim=-1)",
     ("x.amax(dim=-1)", "x.max()")),
    ("mean of the block", "the mean of the block's powers is added; add their sum",
     (".sum(", ".mean(")),
    ("logarithm returned",
     "that is the log-sum-exp in place of ℓ; keep the sum e^(x − m) itself",
     ("old + new", "m_new + (old + new).log()")),
]  # fmt: skip

exercise = Exercise(
    "3.6",
    online_update,
    inputs,
    MISTAKES,
    names="|",
    run=state_or_its_logsumexp,
    differentiable=True,
)
