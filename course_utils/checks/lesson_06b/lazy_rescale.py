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
        case(7, 8, 0),  # a single block, with as many keys as queries
    ]


GROWN = "(top - m) / math.log(2) > tau"
WHERE = "torch.where(grown, top, m)"
COUNT = "rescales + grown"
JUST_TAU = (
    "Your output and logsumexp are right, but you also rescale where the largest e^(score − m) is "
    "exactly 2^tau. Rescale only where it exceeds 2^tau: > instead of >=."
)
SO_FAR = (
    "Your exponentials are relative to the largest score so far, but ℓ and O are relative to m, "
    "which may be lower. As long as m stays, use e^(score − m)."
)
NEWEST = (
    "Where the largest score of a block is above m, your exponentials are relative to this score, "
    "but ℓ and O are relative to m. As long as m stays, use e^(score − m)."
)

MISTAKES = [
    ("nothing counted",
     "Your output and logsumexp are right, but your count stays 0. m starts as the largest score "
     "of the first block only, and may change in later blocks. Add 1 to the count of a query "
     "wherever its m changes.",
     (COUNT, "rescales")),
    ("counted once at most",
     "Your output and logsumexp are right, but your count never exceeds 1. Add 1 to the count of a "
     "query each time its m changes. If you set m to the largest score of *all* blocks, set it to "
     "the largest score of this block instead.",
     (COUNT, "(rescales + grown).clamp(max=1)")),
    ("last block counted",
     "Your output and logsumexp are right, but your count only covers the last block. Add the "
     "rescales of each block to the count so far.",
     (COUNT, "grown.long()")),
    ("always rescaled",
     "Your output and logsumexp are right, but you rescale whenever the maximum grows. Rescale "
     "only if some e^(score − m) exceeds 2^tau.",
     (GROWN, "top > m")),
    ("never rescaled",
     "You never rescale, so the exponentials grow until they overflow. Where (largest score − m) "
     "/ log 2 exceeds tau, set m to the largest score of the block, and rescale ℓ and O.",
     (GROWN, "top > torch.inf")),
    ("tau in powers of e",
     "Your result is what you get if (largest score − m) is compared with tau. But tau is an "
     "exponent of 2, and e^x = 2^(x / log 2). Divide the difference by log 2 first.",
     (GROWN, "top - m > tau")),
    ("tau multiplied the wrong way",
     "Your result is what you get if (largest score − m) · log 2 is compared with tau. But e^x = "
     "2^(x / log 2). Divide the difference by log 2 instead.",
     (GROWN, "(top - m) * math.log(2) > tau")),
    ("tau as a factor",
     "Your result is what you get if e^(largest score − m) is compared with tau. But tau is an "
     "exponent of 2. Compare this exponential with 2^tau.",
     (GROWN, "(top - m).exp() > tau")),
    ("compared with the block before",
     "Your result is what you get if each block's largest score is compared with that of the "
     "block before. If the scores grow slowly, m never changes, and e^(score − m) can exceed "
     "2^tau. Compare the largest score with m.",
     ("rescales = rescales + grown", "rescales, before = rescales + grown, top"),
     (GROWN, "(top - before) / math.log(2) > tau"),
     ("ell, rescales =", "before = m\n    ell, rescales =")),
    ("compared with the first block",
     "Your result is what you get if each block's largest score is compared with that of the first "
     "block. After a rescale, m is higher than that. Compare the largest score with m.",
     (GROWN, "(top - scores[..., :block].amax(dim=-1)) / math.log(2) > tau")),
    ("one decides for all",
     "As soon as one of your queries needs a rescale, every query whose maximum has grown is "
     "rescaled. Let each query decide for itself.",
     (GROWN, f"(({GROWN}).any() & (top > m))")),
    ("one moves all",
     "As soon as one of your queries needs a rescale, m changes for all queries. Let each query "
     "decide for itself.",
     (GROWN, f"({GROWN}).any()"), (COUNT, "rescales + grown.long()")),
    ("m always moves",
     "Your output and logsumexp are right, but your count is what you get if m follows every new "
     "maximum. Then m can rise in many small steps, and none of them is counted. Change m only "
     "where some e^(score − m) exceeds 2^tau.",
     (WHERE, "torch.maximum(m, top)")),
    ("m moved by tau",
     "Where you rescale, your m grows by only tau · log 2. Set it to the largest score of the "
     "block, which may be much higher.",
     (WHERE, "torch.where(grown, m + tau * math.log(2), m)")),
    ("factor as a power of 2",
     "Your factor for ℓ and O is 2^(old m − new m). The exponentials have base e, so use e^(old m "
     "− new m).",
     ("(m - m_new).exp()", "2 ** (m - m_new)")),
    ("others counted",
     "You count the blocks without a rescale. Count the blocks in which m changes.",
     (COUNT, "rescales + ~grown")),
    ("blocks counted",
     "You count all blocks. For each query, count only the blocks in which its m changes.",
     (COUNT, "rescales + 1")),
    ("just tau counts too", JUST_TAU, (GROWN, "(top - m) / math.log(2) >= tau")),
    ("just tau counts, from the largest so far", JUST_TAU,
     (GROWN, "(top - m).clamp(min=0) / math.log(2) >= tau"),
     (WHERE, "torch.where(grown, torch.maximum(m, top), m)")),
    ("tau as a power",
     "Your result is what you get if (largest score − m) / log 2 is compared with 2^tau. This "
     "quotient is an exponent of 2, as tau is. Compare it with tau.",
     (GROWN, "(top - m) / math.log(2) > 2**tau")),
    ("m moved too little",
     "Where you rescale, your m stays tau · log 2 below the largest score. Set it to the largest "
     "score itself, so that fewer rescales are needed later.",
     (WHERE, "torch.where(grown, top - tau * math.log(2), m)")),
    ("falls count too",
     "Your m also moves down when all scores of a block are far below it. But only a score above m "
     "has an exponential that can overflow. Rescale only if the largest score is above m by more "
     "than tau · log 2.",
     (GROWN, "(top - m).abs() / math.log(2) > tau")),
    ("m moves and the sums stay",
     "Your m follows every new maximum, but you rescale ℓ and O only at some of them. Then ℓ and O "
     "are relative to an old m. Where you do not rescale them, keep the old m as well.",
     (WHERE, "torch.maximum(m, top)"),
     ("(m - m_new).exp()", "torch.where(grown, m - m_new, 0).exp()")),
    ("powers from the newest maximum", NEWEST,
     ("(s - m_new[..., None])", "(s - torch.maximum(m, top)[..., None])")),
    ("powers from the largest so far", SO_FAR, ("ell, rescales =", "peak = m\n    ell, rescales ="),
     ("        grown =", "        peak = torch.maximum(peak, top)\n        grown ="),
     ("(s - m_new[..., None])", "(s - peak[..., None])")),
    ("powers from the block's largest",
     "Your exponentials are relative to the largest score of the block, but ℓ and O are relative "
     "to m. Use e^(score − m), with the new m where m changes.",
     ("(s - m_new[..., None])", "(s - top[..., None])")),
    ("powers from the old m",
     "Where m changes, your exponentials are relative to the old m, but ℓ and O are relative to "
     "the new one. Use the new m for all of them.",
     ("(s - m_new[..., None])", "(s - m[..., None])")),
    ("m follows after the sums",
     "After each block, your m is raised to the largest score so far, but ℓ and O keep their "
     "values. Keep the m that you used in the exponentials of this block.",
     ("        m = m_new", "        m = torch.maximum(m_new, top)")),
    ("m not stored",
     "Your m keeps its first value, although you rescale ℓ and O. After a rescale, ℓ and O are "
     "relative to the new m. Store the new m for the next block.",
     ("        m = m_new\n", "")),
    ("m of the block stored",
     "After each block, your m becomes the largest score of that block, but ℓ and O keep their "
     "values. Store the m that you used in the exponentials instead.",
     ("        m = m_new", "        m = top")),
    ("m replaced by the tile's",
     "Your m becomes the largest score of each block, even if this score is lower or only a "
     "little higher. Change m only where (largest score − m) / log 2 exceeds tau.",
     (WHERE, "top")),
    ("output not rescaled",
     "Where m changes, you rescale ℓ but not O. O is relative to the old m as well, so multiply "
     "it by e^(old m − new m).",
     ("out * shrink[..., None]", "out")),
    ("sum not rescaled",
     "Where m changes, you rescale O but not ℓ. ℓ is relative to the old m as well, so multiply "
     "it by e^(old m − new m).",
     ("ell * shrink", "ell")),
    ("nothing rescaled",
     "Where m changes, neither ℓ nor O is rescaled. Both are relative to the old m. Multiply both "
     "by e^(old m − new m).",
     ("out * shrink[..., None]", "out"), ("ell * shrink", "ell")),
    ("rescaled upwards",
     "Your factor for ℓ and O is the inverse of the right one. Use e^(old m − new m), which is at "
     "most 1.",
     ("(m - m_new)", "(m_new - m)")),
    ("logsumexp from the largest score",
     "Your logsumexp adds log ℓ to the largest score. But ℓ is a sum of e^(score − m), and m may "
     "be lower than the largest score. Return m + log ℓ.",
     ("m + ell.log()", "scores.amax(-1) + ell.log()")),
    ("saved ones counted",
     "You count the rescales that were avoided. Count those that were done, which are the blocks "
     "in which m changes.",
     (COUNT, "rescales + ((top > m_before) & ~grown)"), ("m_new = ", "m_before, m_new = m, ")),
    ("every growth counted",
     "Your output and logsumexp are right, but you count every block in which a score exceeds m. "
     "Count only those in which m changes.",
     (COUNT, "rescales + (top > m_before)"),
     ("m_new = ", "m_before, m_new = m, ")),
    ("first block counted",
     "Each of your counts is one too high. The first block only sets m, without a rescale. Do not "
     "count it.",
     (COUNT, "rescales + grown"), ("m + ell.log(), rescales", "m + ell.log(), rescales + 1")),
    ("counted for all together",
     "You add up the rescales of all queries. Return one count for each query, (..., L).",
     ("m + ell.log(), rescales",
      "m + ell.log(), rescales.sum() + 0 * rescales")),
    ("difference compared with a power",
     "Your result is what you get if (largest score − m) is compared with 2^tau. This difference "
     "is an exponent of e. Divide it by log 2, and compare the quotient with tau.",
     (GROWN, "top - m > 2**tau")),
    ("fallen, not grown",
     "You rescale where the largest score of a block is far below m. But only a score above m has "
     "an exponential that can overflow. Rescale where (largest score − m) / log 2 exceeds tau.",
     (GROWN, "(m - top) / math.log(2) > tau")),
    ("score compared with tau",
     "Your result is what you get if the largest score itself, divided by log 2, is compared with "
     "tau. What matters is how far it is above m. Compare (largest score − m) / log 2 with tau.",
     (GROWN, "top / math.log(2) > tau")),
    ("counted for all if one rescales",
     "Your output and logsumexp are right, but if one query is rescaled, your count goes up for "
     "all queries. Count the rescales of each query separately.",
     (COUNT, "rescales + grown.any()")),
    ("one maximum for all queries",
     "You take one maximum over all queries, but each query has its own. Use dim=-1.",
     ("s.amax(dim=-1)", "s.max()")),
    ("powers of 2 for the weights",
     "Your p is 2^(score − m). But softmax uses base e, and so does your factor for ℓ and O. Use "
     "e^(score − m).",
     ("(s - m_new[..., None]).exp()", "(s - m_new[..., None]).exp2()")),
    ("powers of 2 throughout",
     "Your exponentials have base 2, but softmax uses base e. Only tau is an exponent of 2. Use "
     "exp instead of exp2.",
     ("(s - m_new[..., None]).exp()", "(s - m_new[..., None]).exp2()"),
     ("(m - m_new).exp()", "(m - m_new).exp2()")),
    ("new sum rescaled as well",
     "Where m changes, you also rescale the new sum of p, which is already relative to the new m. "
     "Rescale only the old ℓ, and then add the sum.",
     ("ell * shrink + p.sum(dim=-1)",
      "(ell + p.sum(dim=-1)) * shrink")),
    ("new product rescaled as well",
     "Where m changes, you also rescale the new product, which is already relative to the new m. "
     "Rescale only the old O, and then add the product.",
     ("out * shrink[..., None] + p @ values",
      "(out + p @ values) * shrink[..., None]")),
    ("both rescaled after adding",
     "Where m changes, you also rescale what the new block adds to ℓ and O. But that part is "
     "already relative to the new m. Rescale the old ℓ and O first, and then add.",
     ("ell * shrink + p.sum(dim=-1)",
      "(ell + p.sum(dim=-1)) * shrink"), ("out * shrink[..., None] + p @ values",
      "(out + p @ values) * shrink[..., None]")),
    ("scores counted",
     "You count every score that is far enough above m. But one rescale serves all scores of a "
     "block. For each query, count the block once.",
     (COUNT, "rescales + ((s - m_before[..., None]) / math.log(2) > tau).sum(-1)"),
     ("m_new = ", "m_before, m_new = m, ")),
    ("sum compared with tau",
     "Your result is what you get if the sum of e^(score − m) over the block is compared with "
     "2^tau. But 2^tau limits each exponential, not their sum. Compare only the largest one.",
     (GROWN, "(s - m[..., None]).exp().sum(-1) > 2**tau")),
    ("divided at every block",
     "You divide O by ℓ in every block, and the last line divides by ℓ again. Do not divide in the "
     "loop.",
     ("+ p @ values", "+ p @ values\n        out = out / ell[..., None]")),
    ("weights divided by the sum so far",
     "You divide p by ℓ in each block, and the last line divides by ℓ again. Do not divide in the "
     "loop.",
     ("+ p @ values", "+ p / ell[..., None] @ values")),
    ("softmax within the block",
     "You divide p by the sum of its block. But the weights must be divided by the sum over all "
     "blocks, and dividing by ℓ at the end does that. Do not divide in the loop.",
     ("+ p @ values", "+ p / p.sum(dim=-1, keepdim=True) @ values")),
    ("exponentials cut off at the limit",
     "Your result is what you get if m never changes and every e^(score − m) above 2^tau is "
     "replaced by 2^tau. Then large scores lose weight. Where (largest score − m) / log 2 exceeds "
     "tau, set m to the largest score of the block, and rescale ℓ and O.",
     (GROWN, "top > torch.inf"),
     ("(s - m_new[..., None]).exp()", "(s - m_new[..., None]).exp().clamp(max=2.0**tau)")),
    ("exponentials cut off at 1",
     "Your result is what you get if every e^(score − m) above 1 is replaced by 1. Exponentials "
     "up to 2^tau are allowed. Do not clamp them.",
     ("(s - m_new[..., None]).exp()", "(s - m_new[..., None]).clamp(max=0).exp()")),
    ("limit twice as high",
     "Your result is what you get if you rescale only where some e^(score − m) exceeds 2^(tau + "
     "1). Rescale where one exceeds 2^tau.",
     (GROWN, "(top - m) / math.log(2) > tau + 1")),
    ("limit half as high",
     "Your result is what you get if you rescale where some e^(score − m) exceeds 2^(tau − 1). "
     "Rescale only where one exceeds 2^tau.",
     (GROWN, "(top - m) / math.log(2) > tau - 1")),
    ("smallest score",
     "Your result is what you get if the smallest score of each block is compared with m. But the "
     "exponential of the largest one may overflow. Use amax.",
     ("top = s.amax(", "top = s.amin(")),
]  # fmt: skip

exercise = Exercise(
    "6b.4", lazy_rescale, inputs, MISTAKES, names="L d_v|L|L", also_right=[query_by_query]
)
