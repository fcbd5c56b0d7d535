"""11.6: decoding over a cache that lies on several ranks, joined from (m, ℓ, O)."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def join_ranks(m, ell, out):
    top = m.amax(dim=0)  # (H,)
    shrink = (m - top).exp()  # (W, H)
    total = (shrink * ell).sum(dim=0)  # (H,)
    return (shrink[..., None] * out).sum(dim=0) / total[..., None]  # (H, d)


def by_lse(m, ell, out):
    lse = m + ell.log()
    weights = lse.softmax(dim=0)
    own = torch.where(ell[..., None] > 0, out / ell[..., None], 0)
    return (weights[..., None] * own).sum(dim=0)


def one_by_one(m, ell, out):
    M, total, mixed = m[0], ell[0], out[0]
    for m_r, ell_r, out_r in zip(m[1:], ell[1:], out[1:], strict=True):
        top = torch.maximum(M, m_r)
        base = top.masked_fill(top == -torch.inf, 0)
        a, b = (M - base).exp(), (m_r - base).exp()
        M, total = top, a * total + b * ell_r
        mixed = a[:, None] * mixed + b[:, None] * out_r
    return mixed / total[:, None]


def inputs():
    normal = normals(116)

    def probe(W, H, d, keys=6, far=1.0, moved=0.0, empty=0, dtype=torch.float64):
        scores = far * normal(W, H, keys, dtype=dtype) + 3 * far * normal(W, 1, 1, dtype=dtype)
        scores = scores + moved
        m = scores.amax(dim=-1)  # (W, H)
        p, v = (scores - m[..., None]).exp(), normal(W, H, keys, d, dtype=dtype)
        ell, out = p.sum(dim=-1), (p[..., None, :] @ v)[..., 0, :]
        if empty:  # these ranks hold no key yet
            m[-empty:], ell[-empty:], out[-empty:] = -torch.inf, 0, 0
        return m, ell, out

    return [
        probe(4, 3, 5),
        probe(3, 2, 4, empty=1),
        probe(5, 4, 2, keys=1),
        probe(3, 6, 1, far=300),  # scores beyond what exp can take
        probe(1, 2, 3),
        probe(3, 3, 2, moved=-900.0 * torch.arange(3)[:, None]),  # from head to head
        probe(4, 3, 2, moved=-900.0, empty=1),
        probe(4, 1, 6, keys=20, dtype=torch.float32),
        probe(6, 2, 3, empty=5),
        [each.flip(0) for each in probe(4, 2, 5, empty=3)],  # the first ones empty
    ]


SHRINK = "(m - top).exp()"
RESULT = "(shrink[..., None] * out).sum(dim=0) / total[..., None]"
MISTAKES = [
    ("plain mean", "the ranks' outputs are averaged; each counts by its sum of exponentials",
     "(out / ell.clamp(min=1e-9)[..., None]).mean(dim=0)"),
    ("maxima ignored", "the sums are added as they are, though each was taken from a maximum of "
     "its own: bring them to the largest first", (SHRINK, "torch.ones_like(m)")),
    ("shares of the maxima", "the ranks count by e^m alone; how many keys stand behind a maximum "
     "is in ℓ: multiply by it", "(m.softmax(dim=0)[..., None] * out / "
     "ell.clamp(min=1e-9)[..., None]).sum(dim=0)"),
    ("not divided", "a sum of e^(score − m) v; divide it by the sum of e^(score − m)",
     (" / total[..., None]", "")),
    ("divided by the factors", "divided by the sum of the factors e^(m − largest m) alone; each "
     "rank's ℓ belongs in it", ("(shrink * ell).sum(dim=0)", "shrink.sum(dim=0)")),
    ("ℓ not shrunk", "O is brought to the largest maximum, ℓ is not: both need the same factor",
     ("(shrink * ell).sum(dim=0)", "ell.sum(dim=0)")),
    ("O not shrunk", "ℓ is brought to the largest maximum, O is not: both need the same factor",
     (RESULT, "out.sum(dim=0) / total[..., None]")),
    ("divided twice", "O is divided by ℓ on each rank and again at the end",
     (RESULT, "(shrink[..., None] * out / ell.clamp(min=1e-9)[..., None]).sum(dim=0) / "
      "total[..., None]")),
    ("sign of the shift", "ranks with small scores count most: the factor is e^(m − largest m)",
     (SHRINK, "(top - m).exp()")),
    ("exponentials themselves", "infinite or NaN where scores are large: subtract the largest m "
     "before the exponential", (SHRINK, "m.exp()")),
    ("one maximum for all heads", "NaN where heads differ much: under a maximum over all heads "
     "another head's exponentials are all 0; each head has its own, dim=0",
     ("m.amax(dim=0)", "m.amax()")),
    ("−∞ made 0", "NaN where all scores are far below 0 and a rank is empty: its m is made 0, and "
     "so the largest; left at −∞ it weighs e^−∞ = 0",
     ("m.amax(dim=0)", "m.nan_to_num(neginf=0.0).amax(dim=0)")),
    ("maximum from 0", "NaN where all scores are far below 0: the largest m is taken for 0 at "
     "least; let it begin at −∞", ("m.amax(dim=0)", "m.amax(dim=0).clamp(min=0)")),
    ("maximum of a rank", "each rank is brought to the largest m of its own heads; bring each head "
     "to the largest of all ranks, dim=0", ("m.amax(dim=0)", "m.amax(dim=1, keepdim=True)")),
    ("one sum for all heads", "all heads are divided by one sum; each head has its own, dim=0",
     ("(shrink * ell).sum(dim=0)", "(shrink * ell).sum()")),
    ("best rank alone", "the rank with the largest m counts alone; the others have keys as well",
     "(out / ell.clamp(min=1e-9)[..., None])[m.argmax(dim=0), torch.arange(m.shape[1])]"),
    ("heads joined", "the sum runs over heads; it runs over ranks, dim=0",
     ("m.amax(dim=0)", "m.amax(dim=1, keepdim=True)"),
     ("(shrink * ell).sum(dim=0)", "(shrink * ell).sum(dim=1)"),
     ("(shrink[..., None] * out).sum(dim=0)", "(shrink[..., None] * out).sum(dim=1)")),
    ("maximum over heads", "the maximum is taken over heads; it is taken over ranks, dim=0",
     ("m.amax(dim=0)", "m.amax(dim=1)"),
     ("(shrink * ell).sum(dim=0)", "(shrink * ell).sum(dim=1)"),
     ("(shrink[..., None] * out).sum(dim=0)", "(shrink[..., None] * out).sum(dim=1)")),
    ("O counted as an output", "the shares, by lse, are those of outputs; "
     "O is not divided by ℓ yet",
     "((m + ell.log()).softmax(dim=0)[..., None] * out).sum(dim=0)"),
    ("first ranks empty", "NaN where the first ranks hold no key: while the largest m so far "
     "is −∞, −∞ − (−∞) is NaN; such a rank adds nothing",
     (RESULT, RESULT + " * (m[0] - m[0]).exp()[..., None]")),
    ("empty ranks become NaN", "NaN where a rank holds no key: there ℓ is 0, so do not divide by "
     "it rank by rank",
     "((m + ell.log()).softmax(dim=0)[..., None] * (out / ell[..., None])).sum(dim=0)"),
]  # fmt: skip

exercise = Exercise(
    "11.6", join_ranks, inputs, MISTAKES, names="H d", also_right=[by_lse, one_by_one]
)
