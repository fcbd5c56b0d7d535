"""6.2: attention and its log-sum-exp, tile by tile."""

import math

import torch

from course_utils.attention import tiled_attention
from course_utils.checks import shared_hints
from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals, out_of_order
from course_utils.checks.lesson_06._tiles import (
    ELL_NOT_RESCALED,
    NEVER_DIVIDED,
    NOTHING_RESCALED,
    OUT_NOT_RESCALED,
    in_tiles,
)

INF = torch.inf


def flash_forward(q, k, v, block_q, block_k):
    L, S, d_k = q.shape[-2], k.shape[-2], q.shape[-1]
    output, lse = v.new_zeros(*q.shape[:-1], v.shape[-1]), v.new_zeros(q.shape[:-1])
    for i in range(0, L, block_q):
        q_i = q[..., i : i + block_q, :]  # (..., B_q, d_k)
        m = torch.full_like(q_i[..., 0], -INF)  # (..., B_q)
        ell = torch.zeros_like(m)  # (..., B_q)
        out = torch.zeros_like(output[..., i : i + block_q, :])  # (..., B_q, d_v)
        for j in range(0, S, block_k):
            k_j, v_j = k[..., j : j + block_k, :], v[..., j : j + block_k, :]  # (..., B_k, d)
            scores = q_i @ k_j.mT / d_k**0.5  # (..., B_q, B_k)
            m_new = torch.maximum(m, scores.amax(dim=-1))
            p = (scores - m_new[..., None]).exp()  # (..., B_q, B_k)
            shrink = (m - m_new).exp()  # (..., B_q)
            ell = ell * shrink + p.sum(dim=-1)
            out = out * shrink[..., None] + p @ v_j
            m = m_new
        output[..., i : i + block_q, :] = out / ell[..., None]
        lse[..., i : i + block_q] = m + ell.log()
    return output, lse


def dividing_as_it_goes(q, k, v, block_q, block_k):
    outs, lses = [], []
    for i in range(0, q.shape[-2], block_q):
        qi = q[..., i : i + block_q, :] / math.sqrt(q.shape[-1])
        out, lse = None, None
        for j in range(0, k.shape[-2], block_k):
            s = qi @ k[..., j : j + block_k, :].transpose(-1, -2)
            here, there = s.softmax(-1) @ v[..., j : j + block_k, :], s.logsumexp(-1)
            if out is None:
                out, lse = here, there
            else:
                both = torch.logaddexp(lse, there)
                out = out * (lse - both).exp()[..., None] + here * (there - both).exp()[..., None]
                lse = both
        outs.append(out)
        lses.append(lse)
    return torch.cat(outs, -2), torch.cat(lses, -1)


def inputs():
    normal = normals(62)

    def case(L, S, d_k, d_v, *tile, batch=(), loud=1.0, dtype=torch.float64):
        q, k = loud * normal(*batch, L, d_k, dtype=dtype), normal(*batch, S, d_k, dtype=dtype)
        return q, k, normal(*batch, S, d_v, dtype=dtype), *tile

    q, k, v, *tile = case(7, 9, 4, 3, 4, 2, batch=(2,))
    return [
        case(6, 8, 3, 2, 3, 4),
        case(20, 24, 3, 2, 5, 8),
        case(11, 13, 4, 3, 4, 5),  # tails on both sides
        case(7, 9, 2, 5, 4, 5, batch=(2, 3)),
        case(9, 10, 4, 3, 3, 4, loud=2000.0),  # e^score overflows in float64 too
        case(5, 6, 3, 4, 16, 16),  # one tile
        case(8, 12, 3, 2, 4, 5, dtype=torch.float32),
        case(16, 256, 1, 1, 16, 8),  # one block of queries, many of keys
        (100 + 100 * q[0].abs(), -100 - 100 * k[0].abs(), v[0], *tile),  # all below -20,000
        (*out_of_order(q, k, v), *tile),
        case(1, 9, 3, 2, 1, 2, batch=(1, 2)),
        case(1, 1, 1, 1, 1, 1),
        case(7, 7, 4, 3, 3, 2),
    ]


def run(answer, q, k, v, block_q, block_k):
    return in_tiles(answer, tiled_attention(q, k, v), q, k, v, block_q, block_k)


CAUSAL = [
    ("            m_new =",
     "            rows = torch.arange(i, i + q_i.shape[-2])[:, None]  # causal\n"
     "            future = torch.arange(j, j + k_j.shape[-2]) > rows\n"
     "            scores = scores.masked_fill(future, -INF)\n            m_new ="),
]  # fmt: skip

MISTAKES = [
    ("never divided", NEVER_DIVIDED,
     ("out / ell[..., None]", "out")),
    ("divided in the loop",
     "Your O is divided by ℓ after every tile. Divide it only once, after the last tile.",
     ("out / ell[..., None]", "out"),
     ("out * shrink[..., None] + p @ v_j", "(out * shrink[..., None] + p @ v_j) / ell[..., None]")),
    ("tiles not scaled", shared_hints.NOT_SCALED, (" / d_k**0.5", "")),
    ("scaled twice", shared_hints.SCALED_TWICE, ("d_k**0.5", "d_k")),
    ("scaled by the width of values", shared_hints.BY_D_V, ("d_k**0.5", "v.shape[-1] ** 0.5")),
    ("lse without m",
     "Your log-sum-exp is log ℓ. But ℓ is a sum of e^(score − m), so add m: m + log ℓ.",
     ("m + ell.log()", "ell.log()")),
    ("lse without log",
     "Your log-sum-exp is m + ℓ. Take the logarithm of ℓ: m + log ℓ.",
     ("m + ell.log()", "m + ell")),
    ("lse with minus",
     "Your O is right. The log-sum-exp is log(e^m · ℓ), which is m + log ℓ and not m − log ℓ.",
     ("m + ell.log()", "m - ell.log()")),
    ("lse in powers of two",
     "Your O is right, but your log-sum-exp is in base 2. Use the natural logarithm.",
     ("m + ell.log()", "(m + ell.log()) / ell.new_tensor(2).log()")),
    ("log to base two",
     "Your O is right. In your log-sum-exp, the logarithm of ℓ is in base 2. Use the natural "
     "logarithm.",
     ("m + ell.log()", "m + ell.log2()")),
    ("maximum for lse",
     "Your O is right, but your second result is m. Return the log-sum-exp, m + log ℓ.",
     ("m + ell.log()", "m")),
    ("causal by habit", shared_hints.CAUSAL_BY_HABIT, *CAUSAL),
    ("causal by habit, at the end", shared_hints.CAUSAL_BY_HABIT,
     *CAUSAL, ("[:, None]  # causal", "[:, None] + S - L")),
    ("output as wide as keys", shared_hints.AS_WIDE_AS_KEYS,
     ("v.new_zeros(*q.shape[:-1], v.shape[-1])", "torch.zeros_like(q)")),
    ("first key left out", shared_hints.FIRST_KEY_LEFT_OUT,
     ("range(0, S, block_k)", "range(1, S, block_k)")),
    ("first keys left out", shared_hints.FIRST_KEYS_LEFT_OUT,
     ("range(0, S, block_k)", "range(block_k, S, block_k)")),
    ("last keys dropped", shared_hints.LAST_KEYS_DROPPED,
     ("range(0, S, block_k)", "range(0, max(S - block_k, 0) + 1, block_k)")),
    ("keys padded with zeros",
     "You count extra all-zero keys when block_k does not divide S. Their score is 0, which is a "
     "score like any other. If you pad the last block, set the scores of the padding to −∞.",
     ("for i in", "k, v = (torch.nn.functional.pad(x, (0, 0, 0, -S % block_k)) for x in (k, v))\n"
      "    for i in")),
    ("last queries dropped", shared_hints.LAST_QUERIES_DROPPED,
     ("return", "L = L // block_q * block_q\n    return"),
     ("output, lse\n", "output[..., :L, :], lse[..., :L]\n")),
    ("last queries left zero", shared_hints.LAST_QUERIES_ZERO,
     ("range(0, L, block_q)", "range(0, L - block_q + 1, block_q)")),
    ("both tails cut off",
     "You leave out the last keys and the last queries when the block sizes do not divide S and L. "
     "Include the last, shorter blocks of both.",
     ("range(0, S, block_k)", "range(0, S // block_k * block_k, block_k)"),
     ("return", "L = L // block_q * block_q\n    return"),
     ("output, lse\n", "output[..., :L, :], lse[..., :L]\n")),
    ("both tails left out",
     "You leave out the last keys and the last queries when the block sizes do not divide S and L. "
     "Include the last, shorter blocks of both.",
     ("range(0, L, block_q)", "range(0, L // block_q * block_q, block_q)"),
     ("range(0, S, block_k)", "range(0, S // block_k * block_k, block_k)")),
    ("loop without rescaling", NOTHING_RESCALED,
     ("ell * shrink", "ell"),
     ("out * shrink[..., None]", "out")),
    ("output not rescaled", OUT_NOT_RESCALED,
     ("out * shrink[..., None]", "out")),
    ("sum not rescaled", ELL_NOT_RESCALED,
     ("ell * shrink", "ell")),
    ("softmax in each tile",
     "Your output is the sum of the tiles' outputs, each with a softmax of its own. The weights of "
     "a query must sum to 1 over all tiles. Carry m, ℓ and O from tile to tile, and divide O by ℓ "
     "at the end.",
     ("out * shrink[..., None] + p @ v_j", "out + scores.softmax(dim=-1) @ v_j"),
     ("out / ell[..., None]", "out")),
    ("tiles averaged",
     "Your output is the mean of the tiles' outputs. A tile with larger scores must count more. "
     "Carry m, ℓ and O from tile to tile, and divide O by ℓ at the end.",
     ("out * shrink[..., None] + p @ v_j", "out + scores.softmax(dim=-1) @ v_j"),
     ("out / ell[..., None]", "out / len(range(0, S, block_k))")),
    ("tiles without maximum",
     "Your e^score overflows to inf for large scores, and inf / inf is NaN. Subtract m, the "
     "largest score so far, and rescale ℓ and O when m grows.",
     ("torch.maximum(m, scores.amax(dim=-1))", "torch.zeros_like(m)")),
    ("maximum begins at zero", shared_hints.STARTS_FINITE, ("-INF", "0.0")),
    ("maximum of the tile",
     "Your result is right unless the scores fall a lot from one tile to the next. Then e^(m − "
     "m_new) overflows, because your m is the maximum of the latest tile alone. Take the maximum "
     "over all tiles so far.",
     ("torch.maximum(m, scores.amax(dim=-1))", "scores.amax(dim=-1)")),
    ("one maximum for all queries",
     "Your result is right unless the scores of the queries lie far apart. If all scores of a "
     "query are far below one common maximum m, every e^(score − m) underflows to 0. Give each "
     "query its own maximum, along dim −1.",
     ("scores.amax(dim=-1)", "scores.max()")),
    ("rescaled upwards",
     "Your rescaling has the wrong sign in the exponent. The factor must be e^(m − m_new), which "
     "is at most 1, and 0 where m is still −∞.",
     ("(m - m_new)", "(m_new - m)")),
    ("rescaled upwards from the second tile",
     "From the second tile on, your rescaling has the wrong sign in the exponent. The factor "
     "must be e^(m − m_new), which is at most 1.",
     ("(m - m_new)", "((m_new - m) if j else (m - m_new))")),
    ("state carried on",
     "Your result is what you get if m, ℓ and O are carried over from one block of queries to the "
     "next. (Where the last block is shorter, that gives an error.) Start each block with m = −∞, "
     "ℓ = 0 and O = 0.",
     ("torch.full_like(q_i[..., 0]", "m if i else q.new_full((*q.shape[:-2], block_q)"),
     ("ell = torch", "ell = ell if i else torch"),
     ("out = torch", "out = out if i else torch")),
    ("state carried on and cut",
     "Your result is what you get if m, ℓ and O are carried over from one block of queries to the "
     "next. Start each block with m = −∞, ℓ = 0 and O = 0.",
     ("m = torch", "m = m[..., : q_i.shape[-2]] if i else torch"),
     ("ell = torch", "ell = ell[..., : q_i.shape[-2]] if i else torch"),
     ("out = torch", "out = out[..., : q_i.shape[-2], :] if i else torch")),
    ("output without lse",
     "Your O is right, but you return only O. Return the log-sum-exp as well.",
     ("return output, lse", "return output")),
    ("results exchanged",
     "Both results are right, but in the wrong order. Return the output first, then the "
     "log-sum-exp.",
     ("return output, lse", "return lse, output")),
    ("sum for lse",
     "Your O is right, but your second result is ℓ. Return the log-sum-exp, m + log ℓ.",
     ("m + ell.log()", "ell")),
    ("first tile alone",
     "You use only the first block of keys. Go over all blocks of keys.",
     ("range(0, S, block_k)", "range(0, min(S, block_k), block_k)")),
    ("last tile alone",
     "You use only the last block of keys. Update m, ℓ and O with each tile, and do not "
     "overwrite them.",
     ("ell * shrink +", "0 * ell +"),
     ("out * shrink[..., None] +", "0 * out +"),
     ("torch.maximum(m, scores.amax(dim=-1))",
      "scores.amax(dim=-1)")),
    ("new product rescaled as well",
     "You also rescale what the new tile adds to O, although it is already relative to the new "
     "maximum. Rescale the old O first, and then add the new part.",
     ("out * shrink[..., None] + p @ v_j",
      "(out + p @ v_j) * shrink[..., None]")),
    ("new sum rescaled as well",
     "You also rescale what the new tile adds to ℓ, although it is already relative to the new "
     "maximum. Rescale the old ℓ first, and then add the new sum.",
     ("ell * shrink + p.sum(dim=-1)",
      "(ell + p.sum(dim=-1)) * shrink")),
    ("softmax for the powers",
     "Your weights are a softmax within the tile, which divides too early. Use e^(score − m_new), "
     "and divide by ℓ once, after the last tile.",
     ("(scores - m_new[..., None]).exp()", "scores.softmax(dim=-1)")),
    ("log of m and sum",
     "Your O is right. But the log-sum-exp is log(e^m · ℓ) = m + log ℓ, not log(m + ℓ).",
     ("m + ell.log()", "(m + ell).log()")),
    ("lse of the last tile",
     "Your O is right. But your log-sum-exp uses the sum of the last tile only. Use ℓ, the sum "
     "over all tiles.",
     ("m + ell.log()", "m + p.sum(dim=-1).log()")),
    ("lse of unscaled scores",
     "Your O is right. But your log-sum-exp comes from unscaled scores. Divide the scores by √d_k "
     "there, too.",
     ("m + ell.log()", "(q_i @ k.mT).logsumexp(dim=-1)")),
    ("sum of the last tile",
     "Your ℓ is the sum of the last tile alone, but O adds all tiles. Rescale ℓ as well, and add "
     "the sum of each tile to it.",
     ("ell * shrink + p.sum(dim=-1)", "p.sum(dim=-1)")),
]  # fmt: skip

exercise = Exercise(
    "6.2", flash_forward, inputs, MISTAKES, names="L d_v|L", run=run, differentiable=True,
    also_right=[dividing_as_it_goes],
)  # fmt: skip
