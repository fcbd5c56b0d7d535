"""6b.4: online softmax that rescales only where the maximum grew by much."""

import math

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def lazy_rescale(q, k, v, block, tau):
    scores = q @ k.mT / q.shape[-1] ** 0.5  # (..., L, S)
    m = scores[..., :block].amax(dim=-1)  # (..., L), exponentials are e^(score - m)
    ell, rescales = torch.zeros_like(m), torch.zeros_like(m, dtype=torch.long)  # (..., L)
    out = v.new_zeros(*m.shape, v.shape[-1])  # (..., L, d_v)
    for s, values in zip(scores.split(block, dim=-1), v.split(block, dim=-2), strict=True):
        top = s.amax(dim=-1)  # (..., L)
        grown = (top - m) / math.log(2) > tau  # (..., L)
        m_new = torch.where(grown, top, m)
        shrink = (m - m_new).exp()  # 1 where m stays
        p = (s - m_new[..., None]).exp()  # (..., L, B_k), up to 2^tau
        ell = ell * shrink + p.sum(dim=-1)
        out = out * shrink[..., None] + p @ values
        m = m_new
        rescales = rescales + grown
    return out / ell[..., None], m + ell.log(), rescales


def query_by_query(q, k, v, block, tau):
    if q.ndim > 2:
        each = [query_by_query(*x, block, tau) for x in zip(q, k, v, strict=True)]
        return tuple(torch.stack(x) for x in zip(*each, strict=True))
    outs, lses, counts = [], [], []
    for query in q:
        m, ell, out, count = None, 0.0, 0.0, 0
        for keys, values in zip(k.split(block), v.split(block), strict=True):
            s = keys @ query * query.shape[0] ** -0.5
            if m is None:
                m = s.max()
            elif s.max() - m > tau * math.log(2):
                factor = (m - s.max()).exp()
                m, ell, out, count = s.max(), ell * factor, out * factor, count + 1
            p = (s - m).exp()
            ell, out = ell + p.sum(), out + p @ values
        outs, lses, counts = [*outs, out / ell], [*lses, m + ell.log()], [*counts, count]
    return torch.stack(outs), torch.stack(lses), torch.tensor(counts)


def inputs():
    """Return (q, k, v, block, tau). Scores grow slowly, by much, or fall, query by query."""
    normal = normals(6400)

    def case(block, tau, *heights, L=6, d_v=3, spread=1.0, dtype=torch.float64):
        """Let each block of keys score ``heights`` powers of 2 for the first query, for the others
        less and less, and for the last ones the other way round."""
        S, d = block * len(heights), 4
        heights = torch.tensor(heights, dtype=dtype).repeat_interleave(block)[: S - 1]
        k = spread * normal(S - 1, d, dtype=dtype)
        k[:, 0] = heights * math.log(2)
        q = normal(L, d, dtype=dtype)
        q[:, 0] = torch.linspace(1, -1, L, dtype=dtype)
        return 2 * q, k, normal(S - 1, d_v, dtype=dtype), block, tau

    # The scores of `ties` are whole numbers: the same keys again have the very same ones.
    some = normal(3, 4).round() * 2
    ties = (normal(5, 4).round(), torch.cat([some, some.flip(0), some]), normal(9, 2), 3, 0)
    batch = tuple(normal(2, 3, n, 6) for n in (5, 11, 11))
    return [
        case(4, 8, 0, 3, 6, 9, 12, 15),  # each block grows by 3, all together by 15
        case(3, 4, 0, 2, 20, 1, 30),
        case(2, 8, 0, 0, 0),  # nothing grows by so much
        case(3, 0, 0, 1, 2, 1),
        case(2, 6, 0, 500, 1500, 2500),  # e^score overflows, and so would 2^1000
        case(3, 3, -900, -890, -889),  # every score is far below 0, or far above
        ties,
        (2 * batch[0], batch[1], batch[2], 4, 1),
        (3 * batch[0][0], batch[1][0], batch[2][0], 2, 2),
        case(4, 5, 0, 4, 8, dtype=torch.float32),
        case(5, 8, 0),  # a single block
    ]


GROWN = "(top - m) / math.log(2) > tau"
WHERE = "torch.where(grown, top, m)"
COUNT = "rescales + grown"
JUST_TAU = (
    "The output and the logsumexp are right, but you also rescale where the score exceeds m by "
    "exactly tau (by 0 if tau is 0). Rescale only if it is more than tau."
)
NEWEST = (
    "Your exponentials are measured from the largest score so far, but ℓ and O from m. As long as "
    "m stays, measure all of them from m."
)

MISTAKES = [
    ("always rescaled",
     "The output and the logsumexp are right, but you rescale whenever the maximum grows. Rescale "
     "only if it grows by more than tau powers of 2.",
     (GROWN, "top > m")),
    ("never rescaled",
     "Your result is never rescaled, so the exponentials grow until they overflow. Where the "
     "largest score is more than tau powers of 2 above m, move m to it.",
     (GROWN, "top > torch.inf")),
    ("tau in powers of e",
     "Your result fits comparing top − m with tau. tau counts powers of 2, and e^x = 2^(x / log "
     "2). Compare (top − m) / log 2 with tau.",
     (GROWN, "top - m > tau")),
    ("tau multiplied the wrong way",
     "Your result fits comparing (top − m) · log 2 with tau. But e^x = 2^(x / log 2), so compare "
     "(top − m) / log 2 with tau.",
     (GROWN, "(top - m) * math.log(2) > tau")),
    ("tau as a factor",
     "Your result fits comparing the factor e^(top − m) with tau. tau is an exponent of 2, so "
     "compare (top − m) / log 2 with it.",
     (GROWN, "(top - m).exp() > tau")),
    ("compared with the block before",
     "Your result fits comparing each block with the block before it. Then slow growth adds up and "
     "is never noticed. Compare with m, from which the exponentials are measured.",
     ("rescales = rescales + grown", "rescales, before = rescales + grown, top"),
     (GROWN, "(top - before) / math.log(2) > tau"),
     ("ell, rescales =", "before = m\n    ell, rescales =")),
    ("one decides for all",
     "In your result, all queries rescale as soon as one of them has grown by more than tau. Let "
     "each query decide for itself.",
     (GROWN, f"(({GROWN}).any() & (top > m))")),
    ("one moves all",
     "In your result, m moves for all queries as soon as one of them has grown by more than tau. "
     "Let each query decide for itself.",
     (GROWN, f"({GROWN}).any()"), (COUNT, "rescales + grown.long()")),
    ("m always moves",
     "Your result fits an m that follows every new maximum. Then slow growth never triggers a "
     "rescale. Keep m until a score exceeds it by more than tau powers of 2.",
     (WHERE, "torch.maximum(m, top)")),
    ("m moved by tau",
     "Your m moves by tau powers of 2. Move it to the largest score, which may be much higher.",
     (WHERE, "torch.where(grown, m + tau * math.log(2), m)")),
    ("factor as a power of 2",
     "Your factor for ℓ and O fits 2^(m − m_new). The exponentials have base e, so use e^(m − "
     "m_new).",
     ("(m - m_new).exp()", "2 ** (m - m_new)")),
    ("others counted",
     "You count the blocks without a rescale. Count the blocks with a rescale.",
     (COUNT, "rescales + ~grown")),
    ("blocks counted",
     "You count all blocks. For each query, count only the blocks in which its m moves.",
     (COUNT, "rescales + 1")),
    ("just tau counts too", JUST_TAU, (GROWN, "(top - m) / math.log(2) >= tau")),
    ("just tau counts, from the largest so far", JUST_TAU,
     (GROWN, "(top - m).clamp(min=0) / math.log(2) >= tau"),
     (WHERE, "torch.where(grown, torch.maximum(m, top), m)")),
    ("tau as a power",
     "Your result fits comparing (top − m) / log 2 with 2^tau. It is already an exponent of 2, as "
     "tau is, so compare it with tau.",
     (GROWN, "(top - m) / math.log(2) > 2**tau")),
    ("m moved too little",
     "Your m moves to a value tau powers of 2 below the largest score. Move it to the largest "
     "score itself, so that it can stay there longer.",
     (WHERE, "torch.where(grown, top - tau * math.log(2), m)")),
    ("falls count too",
     "Your m also moves down when a block is far below it. Only growth can overflow, so let m move "
     "only up.",
     (GROWN, "(top - m).abs() / math.log(2) > tau")),
    ("m moves and the sums stay",
     "Your m follows every new maximum, but ℓ and O are rescaled only if it grew by more than tau. "
     "As long as you do not rescale them, m must stay.",
     (WHERE, "torch.maximum(m, top)"),
     ("(m - m_new).exp()", "torch.where(grown, m - m_new, 0).exp()")),
    ("powers from the newest maximum", NEWEST,
     ("(s - m_new[..., None])", "(s - torch.maximum(m, top)[..., None])")),
    ("powers from the largest so far", NEWEST, ("ell, rescales =", "peak = m\n    ell, rescales ="),
     ("        grown =", "        peak = torch.maximum(peak, top)\n        grown ="),
     ("(s - m_new[..., None])", "(s - peak[..., None])")),
    ("powers from the block's largest",
     "Your exponentials are measured from the largest score of the block, but ℓ and O from m. "
     "Measure all of them from m.",
     ("(s - m_new[..., None])", "(s - top[..., None])")),
    ("powers from the old m",
     "Where m moves, your exponentials are measured from the old m, but ℓ and O from the new one. "
     "Measure all of them from the new m.",
     ("(s - m_new[..., None])", "(s - m[..., None])")),
    ("m follows after the sums",
     "In your result, m moves to the largest score after each block, but ℓ and O do not. Keep m at "
     "the value from which they are measured.",
     ("        m = m_new", "        m = torch.maximum(m_new, top)")),
    ("m not stored",
     "Your m keeps its first value, although ℓ and O are rescaled. Both are then measured from the "
     "new m, so store it for the next block.",
     ("        m = m_new\n", "")),
    ("m of the block stored",
     "After each block, your m becomes the largest score of this block, but ℓ and O are not "
     "measured from it. Store the m from which they are measured.",
     ("        m = m_new", "        m = top")),
    ("m replaced by the tile's",
     "Your m becomes the largest score of each block. Move it only where this score exceeds m by "
     "more than tau powers of 2.",
     (WHERE, "top")),
    ("output not rescaled",
     "Where m moves, you rescale ℓ but not O. O was measured from the old m as well, so multiply "
     "it by e^(m − m_new).",
     ("out * shrink[..., None]", "out")),
    ("sum not rescaled",
     "Where m moves, you rescale O but not ℓ. ℓ was measured from the old m as well, so multiply "
     "it by e^(m − m_new).",
     ("ell * shrink", "ell")),
    ("nothing rescaled",
     "Where m moves, neither ℓ nor O is rescaled. Multiply both by e^(m − m_new).",
     ("out * shrink[..., None]", "out"), ("ell * shrink", "ell")),
    ("rescaled upwards",
     "Your factor is the inverse of the right one. Use e^(m − m_new), which is at most 1.",
     ("(m - m_new)", "(m_new - m)")),
    ("logsumexp from the largest score",
     "Your logsumexp adds log ℓ to the largest score. But ℓ is measured from m, which may be "
     "lower. Return m + log ℓ.",
     ("m + ell.log()", "scores.amax(-1) + ell.log()")),
    ("saved ones counted",
     "You count the rescales that were avoided. Count those that were done.",
     (COUNT, "rescales + ((top > m_before) & ~grown)"), ("m_new = ", "m_before, m_new = m, ")),
    ("every growth counted",
     "The output and the logsumexp are right, but you count every block in which a score exceeds "
     "m. Count only those in which m moves.",
     (COUNT, "rescales + (top > m_before)"),
     ("m_new = ", "m_before, m_new = m, ")),
    ("first block counted",
     "Your count is one too high. The first block only sets m, and nothing is rescaled yet.",
     (COUNT, "rescales + grown"), ("m + ell.log(), rescales", "m + ell.log(), rescales + 1")),
    ("counted for all together",
     "Your rescales are added up over all queries. Return one count for each query, (..., L).",
     ("m + ell.log(), rescales",
      "m + ell.log(), rescales.sum() + 0 * rescales")),
    ("difference compared with a power",
     "Your result fits comparing top − m with 2^tau. top − m is an exponent of e, so compare (top "
     "− m) / log 2 with tau.",
     (GROWN, "top - m > 2**tau")),
    ("fallen, not grown",
     "You rescale where the scores fell by more than tau, as with m − top. Use top − m.",
     (GROWN, "(m - top) / math.log(2) > tau")),
    ("score compared with tau",
     "Your result compares the largest score itself with tau. Compare how far it is above m, top − "
     "m.",
     (GROWN, "top / math.log(2) > tau")),
    ("counted for all if one rescales",
     "The output and the logsumexp are right, but a rescale of one query is counted for all "
     "queries. Each query has its own count.",
     (COUNT, "rescales + grown.any()")),
    ("one maximum for all queries",
     "Your result takes one maximum over all queries. Each query has its own, so use dim=-1.",
     ("s.amax(dim=-1)", "s.max()")),
    ("powers of 2 for the weights",
     "Your p fits 2^(s − m_new), but the factor for ℓ and O is a power of e. Use powers of e for "
     "both.",
     ("(s - m_new[..., None]).exp()", "(s - m_new[..., None]).exp2()")),
    ("powers of 2 throughout",
     "Your exponentials have base 2, but softmax uses base e. Only tau counts powers of 2.",
     ("(s - m_new[..., None]).exp()", "(s - m_new[..., None]).exp2()"),
     ("(m - m_new).exp()", "(m - m_new).exp2()")),
    ("new sum rescaled as well",
     "Where m moves, your result also rescales the new sum of p. Rescale only the old ℓ, and then "
     "add the sum.",
     ("ell * shrink + p.sum(dim=-1)",
      "(ell + p.sum(dim=-1)) * shrink")),
    ("new product rescaled as well",
     "Where m moves, your result also rescales the new product. Rescale only the old O, and then "
     "add the product.",
     ("out * shrink[..., None] + p @ values",
      "(out + p @ values) * shrink[..., None]")),
    ("both rescaled after adding",
     "Where m moves, your result also rescales what the new block adds to ℓ and O. Rescale the old "
     "ℓ and O first, and then add.",
     ("ell * shrink + p.sum(dim=-1)",
      "(ell + p.sum(dim=-1)) * shrink"), ("out * shrink[..., None] + p @ values",
      "(out + p @ values) * shrink[..., None]")),
]  # fmt: skip

exercise = Exercise(
    "6b.4", lazy_rescale, inputs, MISTAKES, names="L d_v|L|L", also_right=[query_by_query]
)
