"""4.6: attention under a mask, zeros for a query that may see nothing."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from course_utils.attention import causal_mask, padding_mask
from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.shared_hints import (
    BY_D_V,
    DIVIDED_BY_D_K,
    MASK_NOT_USED,
    NOT_SCALED,
    OVER_DIMENSION_1,
    OVER_QUERIES,
    OVER_THE_FIRST,
    TWO_THINGS,
)


def attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # (..., L, S)
    empty = ~mask.any(dim=-1, keepdim=True)  # (..., L, 1), queries with nothing allowed
    finite = scores.masked_fill(~mask & ~empty, -torch.inf)  # (..., L, S), no row of -inf alone
    weights = finite.softmax(dim=-1).masked_fill(empty, 0)
    return weights @ v, weights


def by_loops(q, k, v, mask):
    scores = torch.einsum("...ld,...sd->...ls", q, k) / math.sqrt(q.shape[-1])
    mask = mask.expand(scores.shape)
    weights = torch.zeros_like(scores)
    for at in np.ndindex(scores.shape[:-1]):
        allowed = mask[at]
        if allowed.any():
            weights[at][allowed] = scores[at][allowed].softmax(dim=0)
    return torch.einsum("...ls,...sv->...lv", weights, v), weights


def in_single_precision(q, k, v, mask):
    scores = (q.float() @ k.float().mT / q.shape[-1] ** 0.5).masked_fill(~mask, -1e9)
    weights = scores.softmax(dim=-1).to(v.dtype) * mask
    return weights @ v, weights


def by_sdpa(q, k, v, mask):
    identity = torch.eye(k.shape[-2], dtype=q.dtype).expand(*k.shape[:-2], -1, -1)
    sdpa = F.scaled_dot_product_attention
    return sdpa(q, k, v, attn_mask=mask), sdpa(q, k, identity, attn_mask=mask)


def inputs():
    normal = normals(46)
    rng = torch.Generator().manual_seed(46)

    def probe(leading, L, S, d_k, d_v, mask, dtype=torch.float64):
        sizes = (L, d_k), (S, d_k), (S, d_v)
        return *(normal(*leading, *size, dtype=dtype) for size in sizes), mask

    def drawn(*shape):
        """Return a mask in which each query may see some key."""
        mask = torch.rand(*shape, generator=rng) < 0.5
        mask[..., 1] = True
        return mask

    holes = drawn(4, 6)
    holes[2] = False  # one query with nothing allowed
    late = causal_mask(5) & ~padding_mask([3, 1], 5)  # padding at the start: empty rows
    # Scores in the hundreds, in pairs that lie near each other, the best pair allowed; whole
    # numbers, to be exact in float32 as well
    q, k, v, _ = probe((2, 2), 3, 5, 4, 6, None)
    q, k = (200 * q).round(), (4 * k).round() / 4
    q[..., 3], k[..., 2:4, :3] = 1, k[..., :2, :3]
    scores = q @ k.mT
    loud = q, k, v, (scores > scores.amax(-1, keepdim=True) - 20) | padding_mask([4, 2], 5)
    # A forbidden score of trillions; then all scores in the ten thousands, below 0 and above
    # what the forbidden one may be filled with
    q = torch.randint(-2, 3, (3, 16), generator=rng).double()
    k = torch.randint(-2, 3, (5, 16), generator=rng).double()
    q[:, 0], k[:, 0] = 2**15, 0
    high, low, up = k.clone(), k.clone(), k.clone()
    high[3, 0], low[:, 0], up[:, 0] = 2**30, -4, 4
    v, third = normal(5, 2), torch.arange(5) != 3
    turned = [normal(3, 6, 2).permute(2, 1, 0), normal(3, 7, 2).permute(2, 1, 0)]  # (2, 6 or 7, 3)
    return [
        probe((), 5, 5, 3, 2, causal_mask(5)),
        probe((2, 3), 4, 6, 5, 7, causal_mask(4, 6, align="lower_right")),
        probe((2, 1), 5, 5, 3, 4, late),
        probe((3, 2), 4, 6, 5, 3, holes),
        loud,
        (q, high, v, third),
        (q, low, v, third),
        (q, up, v, third),
        probe((2, 3), 4, 6, 5, 3, drawn(3, 4, 6)),  # for each head one
        probe((2, 3), 4, 6, 2, 3, drawn(2, 1, 4, 6), dtype=torch.float32),
        probe((2, 3), 4, 5, 3, 2, drawn(2, 1, 1, 5)),  # the same for all queries, as of padding
        (*turned, normal(2, 7, 4), drawn(2, 6, 7)),  # not contiguous; three dimensions
        probe((1, 1), 1, 1, 3, 2, torch.ones(1, 1, dtype=torch.bool)),
        probe((1,), 12, 50, 4, 3, drawn(12, 50)),
        probe((), 2, 3, 4, 5, torch.zeros(2, 3, dtype=torch.bool)),
    ]


WEIGHTS = "finite.softmax(dim=-1).masked_fill(empty, 0)"
UNSAFE = "scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)"

LESSONS = "scores.masked_fill(~mask, -torch.inf).masked_fill(empty, 0)"
BY_HAND = "finite.exp() / finite.exp().sum(dim=-1, keepdim=True)"
OVERFLOW = (
    "right, until scores are large: e^score overflows then, or is 0 for all that is allowed; take "
    "the largest allowed score of each row off first, as softmax does by itself"
)
BEFORE = (
    "Your result is right until a forbidden score is far above the rest; then all allowed weights "
    "are lost. A forbidden score takes part in a sum, or in the maximum that you subtract. "
)

MISTAKES = [
    ("empty rows are NaN",
     "right, but for queries with nothing allowed: they are NaN (softmax of -inf alone, or 0 / 0); "
     "give zeros there", (WEIGHTS, UNSAFE)),
    ("empty rows attend to everything",
     "right, but a query with nothing allowed averages all the keys that were forbidden (so do "
     "-1e9 and finfo.min); give zeros there",
     (WEIGHTS, "scores.masked_fill(~mask, -1e9).softmax(dim=-1)")),
    ("masked after softmax",
     "the mask comes after softmax: the rows no longer sum to 1, and forbidden scores sit in the "
     "denominator; fill with -inf before", (WEIGHTS, "scores.softmax(dim=-1) * mask")),
    ("divided by the new sums",
     "the mask comes after softmax; dividing by the new sums mends the rows on paper only: where a "
     "forbidden score is far above the rest, all allowed weights are 0, and 0 / 0 is NaN",
     (WEIGHTS, "scores.softmax(dim=-1) * mask"),
     ("return", "weights = weights / weights.sum(dim=-1, keepdim=True)\n    return")),
    ("divided by the new sums and erased",
     BEFORE + "Fill forbidden scores with −∞ before all else.",
     (WEIGHTS, "scores.softmax(dim=-1) * mask"),
     ("return", "weights = weights / weights.sum(dim=-1, keepdim=True)\n"
      "    weights = weights.masked_fill(empty, 0)\n    return")),
    ("divided by the new sums and a little",
     BEFORE + "A small number added to the sum leaves them 0. Fill forbidden scores with −∞ before "
     "all else.", (WEIGHTS, "scores.softmax(dim=-1) * mask"),
     ("return", "weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-9)\n    return")),
    ("filled with too little",
     "right, until all allowed scores are lower than what the forbidden ones are filled with, if "
     "only for the maximum: their weights are 0 then; fill with -inf, or the dtype's lowest",
     (WEIGHTS, "scores.masked_fill(~mask, -100.0).softmax(dim=-1) * mask")),
    ("filled with too little and erased",
     "right, until all allowed scores are lower than what the forbidden ones are filled with: "
     "these get the weight then; fill with -inf, or the dtype's lowest",
     ("~mask & ~empty, -torch.inf", "~mask, -1e4")),
    ("nothing subtracted", OVERFLOW, (WEIGHTS, f"({BY_HAND}).masked_fill(empty, 0)")),
    ("nothing subtracted, NaN made 0", OVERFLOW, (WEIGHTS, f"({BY_HAND}).nan_to_num(0)"),
     ("~mask & ~empty", "~mask")),
    ("nothing subtracted, masked after exp", OVERFLOW,
     (WEIGHTS, "e / e.sum(dim=-1, keepdim=True).clamp(min=1e-30)"),
     ("    weights", "    e = scores.exp() * mask\n    weights")),
    ("nothing subtracted, masked after exp, empty rows are NaN",
     OVERFLOW + "; and a query with nothing allowed has a sum of 0: give zeros there",
     (WEIGHTS, "e / e.sum(dim=-1, keepdim=True)"),
     ("    weights", "    e = scores.exp() * mask\n    weights")),
    ("too little added",
     "right, until a forbidden score is so high that it wins in spite of the number added to it; "
     "fill with -inf, which no score outweighs",
     ("scores.masked_fill(~mask & ~empty, -torch.inf)", "scores + ~mask * -1e4")),
    ("empty rows as without a mask",
     "right, but a query with nothing allowed attends as without a mask (a number added to every "
     "score of a row changes nothing); give zeros there",
     (WEIGHTS, "(scores + ~mask * -1e9).softmax(dim=-1)")),
    ("zero times infinity",
     "all is NaN: a mask times -inf is 0 · inf where it is 0, and that is NaN; use masked_fill or "
     "torch.where", (WEIGHTS, "(scores + ~mask * -torch.inf).softmax(dim=-1)")),
    ("zero times infinity, NaN made 0",
     "all weights are 0, as where a mask is multiplied by -inf (0 · inf is NaN) and NaN made 0: "
     "use masked_fill or torch.where",
     (WEIGHTS, "(scores + ~mask * -torch.inf).softmax(dim=-1).nan_to_num(0)")),
    ("softmax over dimension 1", OVER_DIMENSION_1,
     (WEIGHTS, LESSONS + ".softmax(dim=1).masked_fill(empty, 0)")),
    ("softmax over dimension 1, NaN made 0", OVER_DIMENSION_1,
     (WEIGHTS, UNSAFE.replace("-1", "1") + ".nan_to_num(0)")),
    ("softmax over the first dimension", OVER_THE_FIRST,
     (WEIGHTS, LESSONS + ".softmax(dim=0).masked_fill(empty, 0)")),
    ("softmax over queries", OVER_QUERIES,
     (WEIGHTS, "scores.masked_fill(~mask, -torch.inf).softmax(dim=-2).nan_to_num(0.0)")),
    ("softmax over queries and NaN",
     "softmax runs over the queries, and is NaN for a key that no query may see: dim=-1",
     (WEIGHTS, "scores.masked_fill(~mask, -torch.inf).softmax(dim=-2)")),
    ("the mask is inverted",
     "the mask is used the wrong way round: True = may attend, so fill where it is False, ~mask",
     ("scores = ", "mask = ~mask\n    scores = ")),
    ("the mask is inverted, but for empty rows",
     "the mask is used the wrong way round: True = may attend, so fill where it is False, ~mask",
     ("~mask & ~empty", "mask & ~empty")),
    ("all for any",
     "a query from which anything is hidden gets zeros: only one that sees nothing at all does, "
     "~mask.any(...)", ("mask.any", "mask.all")),
    ("the mask is multiplied into the scores",
     "a forbidden score becomes 0, and e^0 is 1: a weight, not none; it must become -inf",
     (WEIGHTS, "(scores * mask).softmax(dim=-1)")),
    ("the mask is multiplied in twice",
     "a forbidden score becomes 0 before softmax, and e^0 is 1: its weight is erased afterwards, "
     "but still in the denominator; it must become -inf",
     (WEIGHTS, "(scores * mask).softmax(dim=-1) * mask")),
    ("the mask is added to the scores",
     "adding True adds 1 to an allowed score and forbids nothing; fill with -inf where False",
     (WEIGHTS, "(scores + mask).softmax(dim=-1)")),
    ("the mask is ignored", MASK_NOT_USED, (WEIGHTS, "scores.softmax(dim=-1)")),
    ("the first mask for all",
     "right where one mask serves the whole batch; where each sequence or head has its own, the "
     "first one's is used for all",
     ("empty =", "mask = mask[:1] if mask.ndim > 2 else mask\n    empty =")),
    ("scores not scaled", NOT_SCALED, (" / q.shape[-1] ** 0.5", "")),
    ("divided by d_k", DIVIDED_BY_D_K, ("** 0.5", "")),
    ("divided by √L",
     "divided by √L, the number of queries; scores are sums over d_k products: √d_k",
     ("q.shape[-1]", "q.shape[-2]")),
    ("divided by √d_v", BY_D_V, ("q.shape[-1]", "v.shape[-1]")),
    ("only the output cleaned",
     "the output is cleaned of NaN and the weights are not: a query with nothing allowed has zeros "
     "in both", (WEIGHTS, UNSAFE), ("weights @ v,", "(weights @ v).nan_to_num(0.0),")),
    ("only the output erased",
     "right output, but the weights of a query with nothing allowed are not 0: erase them, then "
     "multiply",
     (WEIGHTS, "scores.masked_fill(~mask, -1e9).softmax(dim=-1)"),
     ("weights @ v,", "(weights @ v).masked_fill(empty, 0),")),
    ("only the weights cleaned",
     "the weights are cleaned of NaN after the output was made from them: clean them before",
     (WEIGHTS, UNSAFE), ("v, weights", "v, weights.nan_to_num(0.0)")),
    ("only the weights erased",
     "right weights, but the output was made before they were erased: a query with nothing allowed "
     "still averages the values; erase first, then multiply",
     (WEIGHTS, "scores.masked_fill(~mask, -1e9).softmax(dim=-1)"),
     ("v, weights", "v, weights.masked_fill(empty, 0)")),
    ("scores for weights",
     "right output, but beside it stand the masked scores: return the weights, after softmax",
     ("v, weights", "v, scores.masked_fill(~mask, -torch.inf)")),
    ("unmasked scores for weights",
     "right output, but beside it stand the scores as they were: return the weights, after softmax",
     ("v, weights", "v, scores")),
    ("weights without the mask",
     "Your output is right, but the weights beside it know nothing of the mask. Return the weights "
     "that made the output.", ("v, weights", "v, scores.softmax(dim=-1)")),
    ("no softmax", "the masked scores are taken for the weights: softmax is missing",
     (WEIGHTS, "scores.masked_fill(~mask, -torch.inf)")),
    ("weights first", "both are right, in the wrong order: first the output, then the weights",
     ("weights @ v, weights", "weights, weights @ v")),
    ("output alone", TWO_THINGS, ("v, weights", "v")),
]  # fmt: skip

exercise = Exercise(
    "4.6", attention, inputs, MISTAKES, names="L d_v|L S", differentiable=True,
    also_right=[by_loops, in_single_precision, by_sdpa],
)  # fmt: skip
