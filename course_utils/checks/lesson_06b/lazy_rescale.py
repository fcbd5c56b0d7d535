"""6b.4: online softmax that rescales only where the maximum grew by much."""

import math

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def lazy_rescale(q, k, v, block, tau):
    scores = q @ k.mT / q.shape[-1] ** 0.5  # (..., L, S)
    m = scores[..., :block].amax(dim=-1)  # (..., L), what powers are measured from
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
    "output and logsumexp are right, but it rescales where the score passes m by just tau as well, "
    "by 0 if tau is 0: only by more than tau"
)
NEWEST = (
    "the powers are measured from the largest score, ℓ and O from m: as long as m stays, all are "
    "measured from m"
)

MISTAKES = [
    ("always rescaled", "output and logsumexp are right, but it rescales whenever the maximum "
     "grows: only if it grows by more than tau powers of 2", (GROWN, "top > m")),
    ("never rescaled", "nothing is ever rescaled, and the powers grow with the scores until they "
     "overflow: where the largest score lies more than tau powers of 2 above m, move m to it",
     (GROWN, "top > torch.inf")),
    ("tau in powers of e", "tau counts powers of 2, and scores are exponents of e: e^x = 2^(x / "
     "log 2), so compare (top − m) / log 2 with tau", (GROWN, "top - m > tau")),
    ("tau multiplied the wrong way", "log 2 is on the wrong side: e^x = 2^(x / log 2), so compare "
     "(top − m) / log 2 with tau", (GROWN, "(top - m) * math.log(2) > tau")),
    ("tau as a factor", "tau is taken for the factor itself: it counts powers of 2, so a factor of "
     "2^tau", (GROWN, "(top - m).exp() > tau")),
    ("compared with the block before", "a block is compared with the one before it: slow growth "
     "adds up; compare with m, from which the powers are measured",
     ("rescales = rescales + grown", "rescales, before = rescales + grown, top"),
     (GROWN, "(top - before) / math.log(2) > tau"),
     ("ell, rescales =", "before = m\n    ell, rescales =")),
    ("one decides for all", "all queries rescale as soon as one has grown: each decides for itself",
     (GROWN, f"(({GROWN}).any() & (top > m))")),
    ("one moves all", "m moves for all queries as soon as one has grown: each decides for itself",
     (GROWN, f"({GROWN}).any()"), (COUNT, "rescales + grown.long()")),
    ("m always moves", "growth is measured from the largest score so far, or m moves with it "
     "each time: slow growth adds up; m stays until a score passes it by more than tau powers of 2",
     (WHERE, "torch.maximum(m, top)")),
    ("m moved by tau", "m moves by tau powers of 2: move it to the largest score, which may be far "
     "above", (WHERE, "torch.where(grown, m + tau * math.log(2), m)")),
    ("factor as a power of 2", "the factor for ℓ and O is 2^(m − m_new), the powers are those of "
     "e: e^(m − m_new)", ("(m - m_new).exp()", "2 ** (m - m_new)")),
    ("others counted", "it counts the blocks without a rescale: count those with one",
     (COUNT, "rescales + ~grown")),
    ("blocks counted", "it counts the blocks: count, for each query, those where its m moves",
     (COUNT, "rescales + 1")),
    ("just tau counts too", JUST_TAU, (GROWN, "(top - m) / math.log(2) >= tau")),
    ("just tau counts, from the largest so far", JUST_TAU,
     (GROWN, "(top - m).clamp(min=0) / math.log(2) >= tau"),
     (WHERE, "torch.where(grown, torch.maximum(m, top), m)")),
    ("tau as a power", "(top − m) / log 2 is compared with 2^tau: it is the exponent of a power of "
     "2 already, as tau is", (GROWN, "(top - m) / math.log(2) > 2**tau")),
    ("m moved too little", "m moves to tau powers of 2 below the largest score: move it to that "
     "score, so that it may stay there for long",
     (WHERE, "torch.where(grown, top - tau * math.log(2), m)")),
    ("falls count too", "m also moves down, where a block lies far below it: only growth can "
     "overflow", (GROWN, "(top - m).abs() / math.log(2) > tau")),
    ("m moves and the sums stay", "m moves with every new maximum, but ℓ and O are rescaled only "
     "if it grew by more than tau: as long as they are not, m has to stay where it was",
     (WHERE, "torch.maximum(m, top)"),
     ("(m - m_new).exp()", "torch.where(grown, m - m_new, 0).exp()")),
    ("powers from the newest maximum", NEWEST,
     ("(s - m_new[..., None])", "(s - torch.maximum(m, top)[..., None])")),
    ("powers from the largest so far", NEWEST, ("ell, rescales =", "peak = m\n    ell, rescales ="),
     ("        grown =", "        peak = torch.maximum(peak, top)\n        grown ="),
     ("(s - m_new[..., None])", "(s - peak[..., None])")),
    ("powers from the block's largest", "the powers are measured from the block's largest score, ℓ "
     "and O from m: all are measured from m", ("(s - m_new[..., None])", "(s - top[..., None])")),
    ("powers from the old m", "where m moves, the powers are measured from the old m, ℓ and O from "
     "the new: all from the new", ("(s - m_new[..., None])", "(s - m[..., None])")),
    ("m follows after the sums", "after the block m moves to the largest score so far, and ℓ and O "
     "do not follow: m stays what they are measured from",
     ("        m = m_new", "        m = torch.maximum(m_new, top)")),
    ("m replaced by the tile's", "m becomes the block's largest score whether it grew or not: it "
     "moves only where it grew by more than tau", (WHERE, "top")),
    ("output not rescaled", "O is not rescaled where m moves: ℓ is, and O was measured from the "
     "old m too", ("out * shrink[..., None]", "out")),
    ("sum not rescaled", "ℓ is not rescaled where m moves: O is, and ℓ was measured from the old m "
     "too", ("ell * shrink", "ell")),
    ("nothing rescaled", "neither ℓ nor O is rescaled where m moves: × e^(m − m_new)",
     ("out * shrink[..., None]", "out"), ("ell * shrink", "ell")),
    ("rescaled upwards", "it is rescaled the wrong way round: e^(m − m_new), which is at most 1",
     ("(m - m_new)", "(m_new - m)")),
    ("logsumexp from the largest score", "the logsumexp is measured from the largest score: ℓ is "
     "measured from m, which may lie below it", ("m + ell.log()", "scores.amax(-1) + ell.log()")),
    ("saved ones counted", "it counts the rescales that were saved: count those that were done",
     (COUNT, "rescales + ((top > m_before) & ~grown)"), ("m_new = ", "m_before, m_new = m, ")),
    ("every growth counted", "output and logsumexp are right, but it counts where a score passes m "
     "by however little: count where m moves", (COUNT, "rescales + (top > m_before)"),
     ("m_new = ", "m_before, m_new = m, ")),
    ("first block counted", "one too many: the first block only sets m, nothing is rescaled yet",
     (COUNT, "rescales + grown"), ("m + ell.log(), rescales", "m + ell.log(), rescales + 1")),
    ("counted for all together", "the rescales of all queries are added up: return a count for "
     "each query, (..., L)", ("m + ell.log(), rescales",
      "m + ell.log(), rescales.sum() + 0 * rescales")),
    ("difference compared with a power", "top − m is compared with 2^tau: it is an exponent, of e; "
     "take it to powers of 2, (top − m) / log 2, and compare that with tau",
     (GROWN, "top - m > 2**tau")),
    ("fallen, not grown", "it rescales where the scores fell by more than tau: m − top stands "
     "where top − m is asked", (GROWN, "(m - top) / math.log(2) > tau")),
    ("score compared with tau", "the largest score itself is compared with tau: how far it lies "
     "above m is asked, top − m", (GROWN, "top / math.log(2) > tau")),
    ("counted for all if one rescales", "output and logsumexp are right; a rescale of one query "
     "is counted for all: each has a count of its own", (COUNT, "rescales + grown.any()")),
    ("one maximum for all queries", "one maximum is taken of all queries' scores: each has its "
     "own, along dim −1", ("s.amax(dim=-1)", "s.max()")),
    ("powers of 2 for the weights", "p is 2^(s − m_new), the factor for ℓ and O a power of e: both "
     "are powers of e", ("(s - m_new[..., None]).exp()", "(s - m_new[..., None]).exp2()")),
    ("powers of 2 throughout", "these are powers of 2 where those of e are asked: tau alone counts "
     "powers of 2", ("(s - m_new[..., None]).exp()", "(s - m_new[..., None]).exp2()"),
     ("(m - m_new).exp()", "(m - m_new).exp2()")),
    ("new sum rescaled as well", "the new sum of p is made smaller too where m moves: only what "
     "was there before shrinks, then the sum is added", ("ell * shrink + p.sum(dim=-1)",
      "(ell + p.sum(dim=-1)) * shrink")),
    ("new product rescaled as well", "the new product is made smaller too where m moves: only what "
     "was there before shrinks, then the product is added", ("out * shrink[..., None] + p @ values",
      "(out + p @ values) * shrink[..., None]")),
    ("both rescaled after adding", "what the block brings is made smaller too where m moves, in ℓ "
     "and in O: first shrink what was there before, then add", ("ell * shrink + p.sum(dim=-1)",
      "(ell + p.sum(dim=-1)) * shrink"), ("out * shrink[..., None] + p @ values",
      "(out + p @ values) * shrink[..., None]")),
]  # fmt: skip

exercise = Exercise(
    "6b.4", lazy_rescale, inputs, MISTAKES, names="L d_v|L|L", also_right=[query_by_query]
)
