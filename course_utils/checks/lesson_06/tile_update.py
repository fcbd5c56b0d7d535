"""6.1: update the state (m, ℓ, O) of some queries with one tile."""

import torch

from course_utils.checks.exercise import Exercise, call_with_clones
from course_utils.checks.inputs import normals, out_of_order
from course_utils.checks.lesson_06._tiles import BOTH_OF_OLD_MAXIMUM, OUT_OF_OLD_MAXIMUM

INF = torch.inf


def tile_update(m, ell, out, scores, v):
    m_new = torch.maximum(m, scores.amax(dim=-1))  # (..., B_q)
    base = m_new.masked_fill(m_new == -INF, 0)  # no allowed key so far: subtract 0
    p = (scores - base[..., None]).exp()  # (..., B_q, B_k)
    shrink = (m - base).exp()  # (..., B_q), rescales the old sums to the new maximum
    ell_new = ell * shrink + p.sum(dim=-1)  # (..., B_q)
    out_new = out * shrink[..., None] + p @ v  # (..., B_q, d_v)
    return m_new, ell_new, out_new


def by_rows(m, ell, out, scores, v):
    rows = []
    for position in torch.cartesian_prod(*(torch.arange(n) for n in m.shape)).reshape(-1, m.ndim):
        position = tuple(position.tolist())
        one_m, one_ell, one_out = m[position], ell[position], out[position]
        for s, value in zip(scores[position], v[position[:-1]], strict=True):
            if s > -INF:
                top = torch.maximum(one_m, s)
                shrink, p = torch.exp(one_m - top), torch.exp(s - top)
                one_m, one_ell, one_out = top, one_ell * shrink + p, one_out * shrink + p * value
        rows.append((one_m, one_ell, one_out))
    return [torch.stack(x).reshape(y.shape) for x, y in zip(zip(*rows), (m, ell, out))]  # noqa: B905


def by_einsum(m, ell, out, scores, v, detached=False):
    """Update the state with torch.where and einsum, and return a list."""
    top = torch.max(m, scores.max(dim=-1).values)
    top = top.detach() if detached else top
    safe = torch.where(torch.isinf(top), torch.zeros_like(top), top)
    weights, old = torch.exp(scores - safe.unsqueeze(-1)), torch.exp(m - safe)
    mixed = torch.einsum("...qk,...kd->...qd", weights, v)
    return [top, old * ell + weights.sum(-1), old.unsqueeze(-1) * out + mixed]


def inputs():
    normal = normals(60)

    def state(*rows, columns=4, d_v=2, shift=0.0, m=None, dtype=torch.float64):
        scores = normal(*rows, columns, dtype=dtype) + shift
        v = normal(*rows[:-1], columns, d_v, dtype=dtype)
        if m is None:  # before the first tile
            start = torch.full(rows, -INF, dtype=dtype)
            return start, torch.zeros(rows, dtype=dtype), v.new_zeros(*rows, d_v), scores, v
        ell, out = normal(*rows, dtype=dtype).abs() + 1, normal(*rows, d_v, dtype=dtype)
        return torch.full(rows, m, dtype=dtype), ell, out, scores, v

    blind = state(3)
    blind[3][1] = -INF  # the first tile offers query 1 nothing
    late = state(3, m=0.5)
    late[3][1] = -INF  # this tile offers query 1 nothing, an earlier one did
    m, ell, out, scores, v = state(2, 3, m=0.0)
    nothing = state(2)
    nothing[3][:] = -INF
    return [
        state(3, m=-1.0, d_v=5),  # the maximum grows
        state(3, m=6.0),  # the maximum stays
        state(2, 3, 5, columns=2, m=0.0, d_v=4),
        state(3, shift=-50.0, m=-60.0),  # every score is negative
        state(3, shift=1000.0, m=998.0),
        state(3, shift=-20_000.0),  # before the first tile, and far below any fixed limit
        state(3, columns=6),
        blind,
        late,
        state(4, columns=3, m=0.0, dtype=torch.float32),
        state(1, 1, columns=1, m=0.2, d_v=1),
        (m, ell, *out_of_order(out, scores, v)),
        state(3, m=0.0, columns=3),  # as many keys as queries
        nothing,  # no query has seen a key yet: ℓ is 0 exactly
    ]


def run(answer, *state):
    """Return the new state, or for gradients O / ℓ and m + log ℓ.

    These two do not depend on the choice of the maximum, so an answer may detach it. A query with
    no allowed key has neither.
    """
    results = call_with_clones(answer, *state)
    if not state[0].requires_grad:
        return results
    m, ell, out = results[0]
    blind = ell == 0
    ell = ell.masked_fill(blind, 1)
    return [(out.masked_fill(blind[..., None], 0) / ell[..., None], m + ell.log())]


MISTAKES = [
    *(
        (f"eps of {eps} in the sum",
         "Your ℓ is not 0 for a query that has seen no allowed key. If you add an eps to ℓ, leave "
         "it out: it would be added with every tile.",
         ("return m_new", f"ell_new = ell_new + {eps}\n    return m_new"))
        for eps in (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
    ),
    ("tile left out for all queries",
     "Right, unless a query has no allowed key in the tile. Then you return the old state for all "
     "queries. Keep it only for that query, and update the others.",
     ("return m_new", "if (scores == -INF).all(dim=-1).any():\n        return m, ell, out\n"
      "    return m_new")),
    ("nothing subtracted from the first tile",
     "Right, except where the old m is −∞. Your exponentials are e^score there, because you "
     "subtract 0. Subtract m_new, and subtract 0 only where m_new is still −∞.",
     ("m_new == -INF", "m == -INF")),
    ("old maximum kept",
     "Your m is the old one. Take the larger of the old m and the maximum of this tile.",
     ("torch.maximum(m, scores.amax(dim=-1))", "m")),
    ("maximum over the batch",
     "Right for a single matrix of scores. In a batch, you use one maximum for queries of several "
     "matrices, but each query has its own. Take the maximum along dim −1 only.",
     ("scores.amax(dim=-1)", "scores.amax(dim=(0, -1) if scores.ndim > 2 else -1)")),
    ("maximum over the first dimension",
     "You take the maximum over the first dimension too, but each query has its own maximum. Take "
     "it along dim −1 only.",
     ("scores.amax(dim=-1)", "scores.amax(dim=(0, -1))")),
    ("maximum over the queries",
     "You get this result, or an error, if you take the maximum along dim −2, which holds the "
     "queries. Each query has its own maximum over its keys. Take it along dim −1.",
     ("scores.amax(dim=-1)", "scores.amax(dim=-2)")),
    ("sum rescaled twice",
     "Your old ℓ is rescaled twice. Multiply it by e^(m − m_new) once.",
     ("ell * shrink", "ell * shrink**2")),
    ("accumulator rescaled twice",
     "Your old O is rescaled twice. Multiply it by e^(m − m_new) once.",
     ("out * shrink[..., None]", "out * shrink[..., None] ** 2")),
    ("all rescaled twice",
     "Your old ℓ and O are rescaled twice. Multiply both by e^(m − m_new) once.",
     ("ell * shrink", "ell * shrink**2"),
     ("out * shrink[..., None]", "out * shrink[..., None] ** 2")),
    ("accumulator not rescaled", OUT_OF_OLD_MAXIMUM,
     ("out * shrink[..., None]", "out")),
    ("sum not rescaled",
     "You do not rescale the old ℓ. Like the old O, it is relative to the old maximum. Multiply "
     "it by e^(m − m_new) before you add the new terms.",
     ("ell * shrink", "ell")),
    ("nothing rescaled", BOTH_OF_OLD_MAXIMUM,
     ("out * shrink[..., None]", "out"),
     ("ell * shrink", "ell")),
    ("maximum at least zero",
     "Your m is never below 0, but the largest score so far may be negative. If you clamp m at 0, "
     "leave that out.",
     ("scores.amax(dim=-1))", "scores.amax(dim=-1)).clamp(min=0)")),
    ("maximum of the tile",
     "Your m is the maximum of this tile only. It must be the maximum over all tiles so far. Take "
     "the larger of the old m and this maximum.",
     ("torch.maximum(m, scores.amax(dim=-1))", "scores.amax(dim=-1)")),
    ("rescaled upwards",
     "Your rescaling has the wrong sign in the exponent. The factor must be e^(m − m_new), which "
     "is at most 1.",
     ("(m - base)", "(m_new - m)")),
    ("powers from the old maximum",
     "Your new exponentials are e^(score − m), with the old m. Subtract m_new, the maximum that "
     "includes this tile.",
     ("scores - base[..., None]", "scores - m[..., None]")),
    ("powers from the tiles maximum",
     "Your new exponentials are computed relative to the maximum of this tile. Subtract m_new, "
     "the maximum of all tiles so far.",
     ("scores - base[..., None]", "scores - scores.amax(-1, keepdim=True).nan_to_num(neginf=0.0)")),
    ("maximum not subtracted",
     "Your new exponentials are e^score, and e^1000 overflows to inf. Subtract m_new from the "
     "scores first.",
     ("(scores - base[..., None])", "scores")),
    ("no maximum at all",
     "Your ℓ and O are sums of e^score, which overflows to inf at a score of 1000. Subtract m_new "
     "from the scores, and multiply the old sums by e^(m − m_new).",
     ("(scores - base[..., None])", "scores"),
     ("ell * shrink", "ell"),
     ("out * shrink[..., None]", "out")),
    ("divided at every tile",
     "Your O is divided by ℓ. Here O must remain the undivided sum. Divide only once, after the "
     "last tile.",
     ("m_new, ell_new, out_new",
      "m_new, ell_new, out_new / ell_new.masked_fill(ell_new == 0, 1)[..., None]")),
    ("divided and multiplied back",
     "Your O is divided by ℓ after every tile, as in the first FlashAttention paper. Here O "
     "must remain the undivided sum. Multiply the old O by e^(m − m_new), add p v, and do not "
     "divide.",
     ("out * shrink[..., None] + p @ v",
      "(out * (ell * shrink)[..., None] + p @ v) / ell_new.masked_fill(ell_new == 0, 1)[..., "
      "None]")),
    ("softmax within the tile",
     "You add softmax(scores) @ v to O. This softmax is already divided by the tile's own sum. Add "
     "e^(score − m_new) · v instead, and divide only after the last tile.",
     ("p @ v", "scores.softmax(dim=-1) @ v")),
    ("tile maximum for all",
     "You use one maximum for all queries, but each query has its own. Take the maximum along dim "
     "−1.",
     ("scores.amax(dim=-1)", "scores.max()")),
    ("nan unless all queries are blind",
     "Your result is NaN for a query that has seen no allowed key, if other queries have seen one. "
     "Its maximum is still −∞, and −∞ − (−∞) is NaN. Subtract 0 for each query whose maximum is "
     "−∞, and the maximum for all others.",
     ("m_new == -INF, 0)", "m_new == -INF, 0) if (m_new == -INF).all() else m_new")),
    ("nothing subtracted if one query is blind",
     "Right, unless some query has seen no allowed key. Then you subtract 0 for all queries. "
     "Subtract 0 only for queries whose maximum is −∞, and the maximum for all others.",
     ("m_new == -INF, 0)",
      "torch.tensor(True), 0) if (m_new == -INF).any() else m_new")),
    ("nan for a blind query",
     "Your result is NaN for a query that has seen no allowed key. Its maximum is still −∞, and "
     "−∞ − (−∞) is NaN. Subtract 0 in place of the maximum for such a query.",
     ("m_new.masked_fill(m_new == -INF, 0)", "m_new")),
    ("finite in place of infinity",
     "Your result is right, except for a query that has seen no allowed key. With −1e9 instead "
     "of −∞, each of its exponentials is e^0 = 1. Keep −∞, and subtract 0 for such a query.",
     ("scores.amax(dim=-1))", "scores.amax(dim=-1)).clamp(min=-1e9)"),
     ("(scores -", "(scores.clamp(min=-1e9) -"),
     ("(m -", "(m.clamp(min=-1e9) -")),
    ("new part shrunk too",
     "You also rescale what this tile adds to O, although it is already relative to the new "
     "maximum. Rescale the old O first, and then add the new part.",
     ("out * shrink[..., None] + p @ v", "(out + p @ v) * shrink[..., None]")),
    ("another number in place of infinity",
     "Your m never falls below a finite number. It must be −∞ for a query that has seen no "
     "allowed key, and scores may be lower than any number you choose. Do not clamp m. Subtract 0 "
     "in place of m for such a query.",
     ("scores.amax(dim=-1))", "scores.amax(dim=-1)).clamp(min=-1e4)")),
    ("zero for a blind query",
     "Your result is right, except for a query that has seen no allowed key. Your m is 0 "
     "there. Subtract 0 from its scores, but return −∞ as m.",
     ("return m_new", "return base")),
    ("scaled again",
     "Your scores are divided by √d_v. They are scaled already, so use them as they are.",
     ("m_new = torch", "scores = scores / v.shape[-1] ** 0.5\n    m_new = torch")),
    ("lse for the sum",
     "Your second result is m + log ℓ, the log-sum-exp. The log-sum-exp is needed only after the "
     "last tile. Return ℓ.",
     ("m_new, ell_new, out_new", "m_new, m_new + ell_new.log(), out_new")),
    ("mean for the sum",
     "You add the mean of the new exponentials to ℓ. Add their sum.",
     ("p.sum(dim=-1)", "p.mean(dim=-1)")),
    ("exponentials in base 2",
     "Your exponentials are powers of 2. Softmax uses powers of e. Use `.exp()`, not `.exp2()`.",
     ("(scores - base[..., None]).exp()", "(scores - base[..., None]).exp2()"),
     ("(m - base).exp()", "(m - base).exp2()")),
    ("new parts shrunk too",
     "You also rescale what this tile adds to ℓ and O, although it is already relative to the new "
     "maximum. Rescale the old sums first, and then add the new parts.",
     ("ell * shrink + p.sum(dim=-1)", "(ell + p.sum(dim=-1)) * shrink"),
     ("out * shrink[..., None] + p @ v", "(out + p @ v) * shrink[..., None]")),
    ("new sum shrunk too",
     "You also rescale what this tile adds to ℓ, although it is already relative to the new "
     "maximum. Rescale the old ℓ first, and then add the new sum.",
     ("ell * shrink + p.sum(dim=-1)", "(ell + p.sum(dim=-1)) * shrink")),
]  # fmt: skip

exercise = Exercise(
    "6.1", tile_update, inputs, MISTAKES, names="B_q|B_q|B_q d_v", run=run, differentiable=True,
    also_right=[by_rows, by_einsum],
)  # fmt: skip
