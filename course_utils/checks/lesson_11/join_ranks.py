"""11.6: decoding with a cache that is sharded over ranks, merged from (m, ℓ, O)."""

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
        if empty:  # the last ranks hold no key yet
            m[-empty:], ell[-empty:], out[-empty:] = -torch.inf, 0, 0
        return m, ell, out

    return [
        probe(4, 3, 5),
        probe(3, 2, 4, empty=1),
        probe(5, 4, 2, keys=1),
        probe(3, 6, 1, far=300),  # exp(score) overflows
        probe(1, 2, 3),
        probe(2, 4, 3),
        probe(3, 2, 4, moved=-1000.0 * (torch.arange(3) == 0)[:, None, None]),  # rank 0 far below
        probe(3, 3, 2, moved=-900.0 * torch.arange(3)[:, None]),  # heads far apart
        probe(4, 3, 2, moved=-900.0, empty=1),
        probe(4, 1, 6, keys=20, dtype=torch.float32),
        probe(6, 2, 3, empty=5),
        [each.flip(0) for each in probe(4, 2, 5, empty=3)],  # the first ranks hold no key
        probe(3, 2, 3, moved=-30_000.0, empty=1),
    ]


SHRINK = "(m - top).exp()"
RESULT = "(shrink[..., None] * out).sum(dim=0) / total[..., None]"
TOO_SMALL = (
    "Your result is wrong where all scores are far below 0. If you limit m from below, as "
    "`m.clamp(min=-30)` does, all ranks get the same factor there. You need no limit: for a rank "
    "without keys, e^(−∞ − largest m) is already 0."
)
IN_PROPORTION = (
    "A rank must count in proportion to ℓ e^m. Rescale O and ℓ by e^(m − largest m), sum each over "
    "the ranks, and divide once."
)
OWN = "(out / ell[..., None]).nan_to_num()"  # each rank's output, 0 for an empty rank
ONE_RANK = "Your result is the output of {} alone. Merge the O and ℓ of all ranks."
BY_ELL = (
    "Your weights are {}, so m makes no difference. Rescale O and ℓ by e^(m − largest m), sum each "
    "over the ranks, and divide once."
)
SUBTRACTED = (
    "Your result is what you get if you subtract {} from m. If {} is empty, you subtract −∞, and "
    "−∞ − (−∞) is NaN. Elsewhere, the exponential can overflow. Subtract the largest m."
)
NOT_YET = (
    "Your factors are e^(m − largest m so far). When a later rank has a larger m, what you have "
    "summed must be rescaled as well. Multiply the old ℓ and O by e^(old largest m − new largest "
    "m)."
)
MISTAKES = [
    ("plain mean",
     "Your result is the mean of the ranks' outputs, O / ℓ. " + IN_PROPORTION,
     "(out / ell.clamp(min=1e-9)[..., None]).mean(dim=0)"),
    ("plain mean, NaN",
     "Your result is the mean of the ranks' outputs, O / ℓ, which is NaN for an empty rank. "
     + IN_PROPORTION,
     "(out / ell[..., None]).mean(dim=0)"),
    ("mean of the ranks with keys",
     "Your result is the mean of the outputs O / ℓ of the ranks that hold keys. " + IN_PROPORTION,
     f"{OWN}.sum(dim=0) / (ell > 0).sum(dim=0)[..., None]"),
    ("rank 0 alone", ONE_RANK.format("rank 0"), "out[0] / ell[0][:, None]"),
    ("last rank alone", ONE_RANK.format("the last rank"), "out[-1] / ell[-1][:, None]"),
    ("by m + ℓ",
     "Your weights are the softmax of m + ℓ. A rank's weight is ℓ e^m, so take the softmax of m + "
     "log ℓ.",
     f"((m + ell).softmax(dim=0)[..., None] * {OWN}).sum(dim=0)"),
    ("by m ℓ",
     "Your weights are in proportion to m ℓ. They must be in proportion to ℓ e^m, so take the "
     "exponential of m − largest m.",
     f"((m * ell).nan_to_num(neginf=0.0)[..., None] * {OWN}).sum(dim=0)"
     " / (m * ell).nan_to_num(neginf=0.0).sum(dim=0)[..., None]"),
    ("by e^ℓ", BY_ELL.format("the softmax of ℓ"),
     f"(ell.softmax(dim=0)[..., None] * {OWN}).sum(dim=0)"),
    ("O by e^ℓ", BY_ELL.format("the softmax of ℓ"),
     "(ell.softmax(dim=0)[..., None] * out).sum(dim=0)"),
    ("O by ℓ", BY_ELL.format("ℓ, divided by their sum"),
     "((ell / ell.sum(dim=0))[..., None] * out).sum(dim=0)"),
    ("maxima ignored",
     "You add the sums as they are. Each rank computed its sums relative to its own maximum, so "
     "first multiply ℓ and O by e^(m − largest m).",
     (SHRINK, "torch.ones_like(m)")),
    ("weighted by the maxima",
     "You weight the ranks' outputs O / ℓ by e^m alone. The weight must be ℓ e^m, because ℓ e^m is "
     "the sum of e^score over all keys of a rank.",
     "(m.softmax(dim=0)[..., None] * out / "
     "ell.clamp(min=1e-9)[..., None]).sum(dim=0)"),
    ("not divided",
     "Your result is the sum of the rescaled O, and you do not divide it. The weights must sum to "
     "1, so divide by the sum over the ranks of ℓ e^(m − largest m).",
     (" / total[..., None]", "")),
    ("divided by the factors",
     "Your result is divided by the sum of the factors e^(m − largest m). Multiply each factor "
     "by the rank's ℓ before you sum.",
     ("(shrink * ell).sum(dim=0)", "shrink.sum(dim=0)")),
    ("ℓ not rescaled",
     "Your O is rescaled to the largest maximum, but ℓ is not. Multiply both by e^(m − largest m).",
     ("(shrink * ell).sum(dim=0)", "ell.sum(dim=0)")),
    ("O not rescaled",
     "Your ℓ is rescaled to the largest maximum, but O is not. Multiply both by e^(m − largest m).",
     (RESULT, "out.sum(dim=0) / total[..., None]")),
    ("divided twice",
     "You divide O by ℓ on each rank and again at the end. Divide only once, at the end.",
     (RESULT, "(shrink[..., None] * out / ell.clamp(min=1e-9)[..., None]).sum(dim=0) / "
      "total[..., None]")),
    ("smallest maximum", SUBTRACTED.format("the smallest m of all ranks", "a rank"),
     ("m.amax(dim=0)", "m.amin(dim=0)")),
    ("mean maximum", SUBTRACTED.format("the mean of m over the ranks", "a rank"),
     ("m.amax(dim=0)", "m.mean(dim=0)")),
    ("first maximum", SUBTRACTED.format("the m of rank 0", "rank 0"),
     ("m.amax(dim=0)", "m[0]")),
    ("last maximum", SUBTRACTED.format("the last rank's m", "the last rank"),
     ("m.amax(dim=0)", "m[-1]")),
    ("old sums not rescaled", NOT_YET,
     (SHRINK, "(m - m.cummax(dim=0).values).exp().nan_to_num()")),
    ("old sums not rescaled, NaN", NOT_YET + " Let an empty rank add nothing: −∞ − (−∞) is NaN.",
     (SHRINK, "(m - m.cummax(dim=0).values).exp()")),
    ("new sums not rescaled",
     "If you merge one rank after another, you rescale what you have so far, but not what the "
     "next rank adds. Multiply that rank's ℓ and O by e^(its m − largest m so far).",
     (SHRINK, "(m.cummax(dim=0).values - top).exp()")),
    ("powers of 2",
     "Your factors are powers of 2. ℓ and O are sums of powers of e, so use e^(m − largest m).",
     (SHRINK, "torch.exp2(m - top)")),
    ("sign of the shift",
     "In your result, ranks with small scores count most. Multiply by e^(m − largest m), not by "
     "its inverse.",
     (SHRINK, "(top - m).exp()")),
    ("exponentials themselves",
     "Your result is NaN where scores are far from 0. If you use e^m itself, it overflows to inf "
     "or underflows to 0 there, and both inf / inf and 0 / 0 are NaN. For each head, subtract the "
     "largest m over the ranks before you take the exponential.",
     (SHRINK, "m.exp()")),
    ("one maximum for all heads",
     "Your result is NaN where the heads differ a lot. With one maximum for all heads, all "
     "factors of another head can underflow to 0, and 0 / 0 is NaN. Take the maximum over the "
     "ranks only, with `dim=0`.",
     ("m.amax(dim=0)", "m.amax()")),
    ("−∞ replaced by 0",
     "Your result is NaN where all scores are far below 0 and a rank is empty. If you replace "
     "the empty rank's m with 0, that 0 becomes the maximum, all other factors underflow to 0, "
     "and 0 / 0 is NaN. Leave m at −∞, so that the empty rank's factor is 0.",
     ("m.amax(dim=0)", "m.nan_to_num(neginf=0.0).amax(dim=0)")),
    ("maximum from 0",
     "Your result is NaN where all scores are far below 0. If your largest m cannot be below 0, "
     "all factors underflow to 0 there, and 0 / 0 is NaN. In a loop, start with −∞.",
     ("m.amax(dim=0)", "m.amax(dim=0).clamp(min=0)")),
    ("limited from below",
     TOO_SMALL,
     ("    top =", "    m = m.clamp(min=-30)\n    top =")),
    ("limited from far below",
     TOO_SMALL,
     ("    top =", "    m = m.clamp(min=-1e4)\n    top =")),
    ("maximum of a rank",
     "You rescale each rank to the largest m of its own heads. Rescale each head to the largest m "
     "of all ranks, with `dim=0`.",
     ("m.amax(dim=0)", "m.amax(dim=1, keepdim=True)")),
    ("one sum for all heads",
     "You divide all heads by one sum. Each head has its own sum over the ranks, so sum over "
     "dimension 0 only.",
     ("(shrink * ell).sum(dim=0)", "(shrink * ell).sum()")),
    ("best rank alone",
     "You take only the output of the rank with the largest m. The other ranks hold keys too, so "
     "merge the outputs of all ranks.",
     "(out / ell.clamp(min=1e-9)[..., None])[m.argmax(dim=0), torch.arange(m.shape[1])]"),
    ("heads joined",
     "You sum over the heads. Take the sums, and the maximum, over the ranks, which are "
     "dimension 0.",
     ("m.amax(dim=0)", "m.amax(dim=1, keepdim=True)"),
     ("(shrink * ell).sum(dim=0)", "(shrink * ell).sum(dim=1)"),
     ("(shrink[..., None] * out).sum(dim=0)", "(shrink[..., None] * out).sum(dim=1)")),
    ("maximum over heads",
     "Your maximum is taken over the heads. Take the maximum and the sums over the ranks, which "
     "are dimension 0.",
     ("m.amax(dim=0)", "m.amax(dim=1)"),
     ("(shrink * ell).sum(dim=0)", "(shrink * ell).sum(dim=1)"),
     ("(shrink[..., None] * out).sum(dim=0)", "(shrink[..., None] * out).sum(dim=1)")),
    ("O counted as an output",
     "You weight O by the softmax of the log-sum-exps. These weights belong to outputs, which are "
     "O / ℓ. Weight O by e^(m − largest m), and divide at the end.",
     "((m + ell.log()).softmax(dim=0)[..., None] * out).sum(dim=0)"),
    ("first ranks empty",
     "Your result is NaN where the first ranks hold no key. If you merge one rank after "
     "another, the largest m so far is −∞ there, and −∞ − (−∞) is NaN. Let such a rank add "
     "nothing.",
     (RESULT, RESULT + " * (m[0] - m[0]).exp()[..., None]")),
    ("empty ranks become NaN",
     "Your result is NaN where a rank holds no key. If you divide O by ℓ on each rank, this is 0 / "
     "0 there. Divide only once, after the sums over all ranks.",
     "((m + ell.log()).softmax(dim=0)[..., None] * (out / ell[..., None])).sum(dim=0)"),
]  # fmt: skip

exercise = Exercise(
    "11.6", join_ranks, inputs, MISTAKES, names="H d", also_right=[by_lse, one_by_one]
)
