"""6.1: one tile is taken into the state (m, ℓ, O) of some queries."""

import torch

from course_utils.checks.exercise import Exercise, call_with_clones
from course_utils.checks.inputs import normals, out_of_order

INF = torch.inf


def tile_update(m, ell, out, scores, v):
    m_new = torch.maximum(m, scores.amax(dim=-1))  # (..., B_q)
    base = m_new.masked_fill(m_new == -INF, 0)  # nothing seen yet: subtract 0
    p = (scores - base[..., None]).exp()  # (..., B_q, B_k)
    shrink = (m - base).exp()  # (..., B_q), what the past loses by the new maximum
    ell_new = ell * shrink + p.sum(dim=-1)  # (..., B_q)
    out_new = out * shrink[..., None] + p @ v  # (..., B_q, d_v)
    return m_new, ell_new, out_new


def by_rows(m, ell, out, scores, v):
    rows = []
    for place in torch.cartesian_prod(*(torch.arange(n) for n in m.shape)).reshape(-1, m.ndim):
        place = tuple(place.tolist())
        one_m, one_ell, one_out = m[place], ell[place], out[place]
        for s, value in zip(scores[place], v[place[:-1]], strict=True):
            if s > -INF:
                top = torch.maximum(one_m, s)
                shrink, p = torch.exp(one_m - top), torch.exp(s - top)
                one_m, one_ell, one_out = top, one_ell * shrink + p, one_out * shrink + p * value
        rows.append((one_m, one_ell, one_out))
    return [torch.stack(x).reshape(y.shape) for x, y in zip(zip(*rows), (m, ell, out))]  # noqa: B905


def by_einsum(m, ell, out, scores, v, detached=False):
    """Take a tile in by torch.where and einsum; return a list."""
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
    ]


def run(answer, *state):
    """Return the new state; for gradients what it stands for, O / ℓ and m + log ℓ.

    These depend on no maximum, so that an answer may detach it. Of what has seen nothing there are
    none.
    """
    results = call_with_clones(answer, *state)
    if not state[0].requires_grad:
        return results
    m, ell, out = results[0]
    blind = ell == 0
    ell = ell.masked_fill(blind, 1)
    return [(out.masked_fill(blind[..., None], 0) / ell[..., None], m + ell.log())]


MISTAKES = [
    ("accumulator not rescaled", "O is not rescaled: it was measured from the old maximum, as ℓ "
     "was: × e^(m − m_new)", ("out * shrink[..., None]", "out")),
    ("sum not rescaled", "ℓ is not rescaled: it was measured from the old maximum, as O was: × "
     "e^(m − m_new)", ("ell * shrink", "ell")),
    ("nothing rescaled", "neither ℓ nor O is rescaled: what was measured from the old maximum has "
     "to shrink by e^(m − m_new)", ("out * shrink[..., None]", "out"), ("ell * shrink", "ell")),
    ("maximum at least zero", "right while some score is above 0: the maximum must be able to stay "
     "negative", ("scores.amax(dim=-1))", "scores.amax(dim=-1)).clamp(min=0)")),
    ("maximum of the tile", "the maximum of this tile alone is taken: m is the largest score of "
     "*all* tiles so far", ("torch.maximum(m, scores.amax(dim=-1))", "scores.amax(dim=-1)")),
    ("rescaled upwards", "it is rescaled the wrong way round: e^(m − m_new), which is at most 1",
     ("(m - base)", "(m_new - m)")),
    ("powers from the old maximum", "the new powers are measured from the old maximum: subtract "
     "the new one", ("scores - base[..., None]", "scores - m[..., None]")),
    ("powers from the tiles maximum", "the new powers are measured from this tile's own maximum: "
     "subtract the new m, of all tiles",
     ("scores - base[..., None]", "scores - scores.amax(-1, keepdim=True).nan_to_num(neginf=0.0)")),
    ("maximum not subtracted", "the new powers are e^score: subtract the new maximum first, 1000 "
     "would overflow", ("(scores - base[..., None])", "scores")),
    ("no maximum at all", "m is kept but never used: ℓ and O are sums of e^score, which overflows "
     "at 1000; measure from the new maximum", ("(scores - base[..., None])", "scores"),
     ("ell * shrink", "ell"), ("out * shrink[..., None]", "out")),
    ("divided at every tile", "O is divided by ℓ already: keep the sum; divide once, after the "
     "last tile", ("m_new, ell_new, out_new",
      "m_new, ell_new, out_new / ell_new.masked_fill(ell_new == 0, 1)[..., None]")),
    ("divided and multiplied back", "O is kept divided by ℓ, as the first FlashAttention did; here "
     "it comes as a sum and stays one: × e^(m − m_new), + p v, and one division after all tiles",
     ("out * shrink[..., None] + p @ v",
      "(out * (ell * shrink)[..., None] + p @ v) / ell_new.masked_fill(ell_new == 0, 1)[..., "
      "None]")),
    ("softmax within the tile", "the tile gets a softmax of its own, which divides by this tile's "
     "sum: use e^(score − m_new), and divide once, after the last tile",
     ("p @ v", "scores.softmax(dim=-1) @ v")),
    ("tile maximum for all", "one maximum is taken for all queries; each has its own: the largest "
     "along dim −1", ("scores.amax(dim=-1)", "scores.max()")),
    ("nan for a blind query", "NaN where a query has met nothing it may see: m is still −inf "
     "there, and −inf − −inf is NaN; subtract 0 in that case",
     ("m_new.masked_fill(m_new == -INF, 0)", "m_new")),
    ("finite in place of infinity", "right, but for a query that has met nothing it may see: with "
     "-1e9 in place of −∞ its powers are e^0 = 1; keep −∞, and subtract 0 in that case",
     ("scores.amax(dim=-1))", "scores.amax(dim=-1)).clamp(min=-1e9)"),
     ("(scores -", "(scores.clamp(min=-1e9) -"), ("(m -", "(m.clamp(min=-1e9) -")),
    ("new part shrunk too", "what this tile adds is shrunk as well; it is measured from the new "
     "maximum already: shrink only what came before, then add",
     ("out * shrink[..., None] + p @ v", "(out + p @ v) * shrink[..., None]")),
    ("another number in place of infinity", "right, but for a query that has met nothing it may "
     "see: its m is a number in place of −∞; keep −∞, and subtract 0 in that case",
     ("scores.amax(dim=-1))", "scores.amax(dim=-1)).clamp(min=-1e4)")),
    ("scaled again", "the scores are divided by a root once more; they come scaled: take them as "
     "they are", ("m_new = torch", "scores = scores / v.shape[-1] ** 0.5\n    m_new = torch")),
    ("lse for the sum", "in ℓ's place comes m + log ℓ, the log-sum-exp: that is made once, after "
     "the last tile; return ℓ itself",
     ("m_new, ell_new, out_new", "m_new, m_new + ell_new.log(), out_new")),
    ("mean for the sum", "ℓ gets the mean of the new powers: it is their sum",
     ("p.sum(dim=-1)", "p.mean(dim=-1)")),
]  # fmt: skip

exercise = Exercise(
    "6.1", tile_update, inputs, MISTAKES, names="B_q|B_q|B_q d_v", run=run, differentiable=True,
    also_right=[by_rows, by_einsum],
)  # fmt: skip
