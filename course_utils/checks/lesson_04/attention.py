"""4.6: masked attention, with zeros for a query that has no allowed key."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from course_utils.attention import causal_mask, padding_mask
from course_utils.checks.exercise import Exercise, call_with_clones
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_03._scores import refuse_epsilon
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
    empty = ~mask.any(dim=-1, keepdim=True)  # (..., L, 1), no allowed key
    finite = scores.masked_fill(~mask & ~empty, -torch.inf)  # (..., L, S), not all -inf
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

    def random_mask(*shape):
        """Return a random mask in which each query has an allowed key."""
        mask = torch.rand(*shape, generator=rng) < 0.5
        mask[..., 1] = True
        return mask

    holes = random_mask(4, 6)
    holes[2] = False  # one query with no allowed key
    left_padded = causal_mask(5) & ~padding_mask([3, 1], 5)  # with empty rows
    # Scores in the hundreds, in pairs of close ones, and the largest pair is allowed. They are
    # whole numbers, so that they are exact in float32 too.
    q, k, v, _ = probe((2, 2), 3, 5, 4, 6, None)
    q, k = (200 * q).round(), (4 * k).round() / 4
    q[..., 3], k[..., 2:4, :3] = 1, k[..., :2, :3]
    scores = q @ k.mT
    large_scores = q, k, v, (scores > scores.amax(-1, keepdim=True) - 20) | padding_mask([4, 2], 5)
    # A forbidden score of trillions; then all scores in the ten thousands, below 0 and above 0,
    # so that a finite fill is no longer the lowest score
    q = torch.randint(-2, 3, (3, 16), generator=rng).double()
    k = torch.randint(-2, 3, (5, 16), generator=rng).double()
    q[:, 0], k[:, 0] = 2**15, 0
    high, low, up = k.clone(), k.clone(), k.clone()
    high[3, 0], low[:, 0], up[:, 0] = 2**30, -4, 4
    # Queries far above and far below 0; in the second sequence, all lie below the first one's
    q_far, k_far, v_far, _ = probe((2,), 3, 5, 4, 2, None)
    q_far, k_far = (2 * q_far).round() / 2, (2 * k_far).round() / 2
    q_far[..., 0], k_far[..., 0] = torch.tensor([[900, -900, 0], [-900, -900, -900]]), 2
    far_apart = q_far, k_far, v_far, random_mask(3, 5)
    v, third = normal(5, 2), torch.arange(5) != 3
    transposed = [normal(3, n, 2).permute(2, 1, 0) for n in (6, 7)]  # (2, 6, 3), (2, 7, 3)
    return [
        probe((), 5, 5, 3, 2, causal_mask(5)),
        probe((2, 3), 4, 6, 5, 7, causal_mask(4, 6, align="lower_right")),
        probe((2, 1), 5, 5, 3, 4, left_padded),
        probe((3, 2), 4, 6, 5, 3, holes),
        large_scores,
        far_apart,
        (q, high, v, third),
        (q, low, v, third),
        (q, up, v, third),
        probe((2, 3), 4, 6, 5, 3, random_mask(3, 4, 6)),  # a mask for each head
        probe((2, 3), 4, 6, 2, 3, random_mask(2, 1, 4, 6), dtype=torch.float32),
        probe((2, 3), 4, 5, 3, 2, random_mask(2, 1, 1, 5)),  # as a padding mask
        (*transposed, normal(2, 7, 4), random_mask(2, 6, 7)),  # not contiguous; three dimensions
        probe((1, 1), 1, 1, 3, 2, torch.ones(1, 1, dtype=torch.bool)),
        probe((1,), 12, 50, 4, 3, random_mask(12, 50)),
        probe((), 2, 3, 4, 5, torch.zeros(2, 3, dtype=torch.bool)),
    ]


def without_epsilon(answer, *given):
    """Call an answer. With a single key, its weight is 1, and no sum is rounded."""
    [result] = call_with_clones(answer, *given)
    if given[1].shape[-2] == 1:
        refuse_epsilon(result, attention(*given), EPSILON_HINT)
    return [result]


EPSILON_HINT = (
    "Your result is slightly off even with a single allowed key, whose weight must be 1. If you "
    "add a small number (an epsilon) to a sum, leave it out. Where the sum is 0, divide by 1."
)
WEIGHTS = "finite.softmax(dim=-1).masked_fill(empty, 0)"
UNSAFE = "scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)"

LESSONS = "scores.masked_fill(~mask, -torch.inf).masked_fill(empty, 0)"
BY_HAND = "finite.exp() / finite.exp().sum(dim=-1, keepdim=True)"
OVERFLOW = (
    "Right only for moderate scores. If you do not subtract the maximum before exp, e^score "
    "overflows to inf for large scores, and inf / inf is NaN. If all scores of a query are far "
    "below 0, every e^score underflows to 0. Fill forbidden scores with −inf, then subtract each "
    "row's largest score before exp. If a row has no allowed key, subtract 0."
)
FORBIDDEN_STILL_COUNT = (
    "Right, unless a forbidden score is far above the others. Then all allowed weights underflow "
    "to 0, because the forbidden score still counts in the denominator of softmax, or in the "
    "maximum that you subtract. "
)
FILL_FIRST = (
    "Fill forbidden scores with −inf before softmax, and set the weights of a query with no "
    "allowed key to 0."
)

ONE_MAXIMUM = (
    "Right, unless all scores of one query are far below those of another{}. If you subtract one "
    "maximum {}, all exponentials of the query with the low scores underflow to 0{}. Subtract "
    "each query's own maximum. If a query has no allowed key, subtract 0{}."
)
INDEXED = (
    "Your code fails unless the mask has the shape of the scores. If you write scores[~mask] = "
    "..., indexing does not broadcast. Use masked_fill, which does, and set the weights of a query "
    "with no allowed key to 0."
)

MISTAKES = [
    ("empty rows are NaN",
     "Right, except for queries with no allowed key. Their weights are NaN, because softmax over "
     "−inf alone is NaN. Set these weights to 0 after softmax.", (WEIGHTS, UNSAFE)),
    ("empty rows attend to everything",
     "Right, except that a query with no allowed key averages all values. This happens if you "
     "fill all its scores with the same number, such as -1e9. Set the weights of such a query to "
     "0 after softmax.",
     (WEIGHTS, "scores.masked_fill(~mask, -1e9).softmax(dim=-1)")),
    ("masked after softmax",
     "The rows of your weights do not sum to 1, because forbidden scores are still in the "
     "denominator of softmax. Fill forbidden scores with −inf before softmax. Then use "
     "masked_fill to set the weights of a query with no allowed key to 0.",
     (WEIGHTS, "scores.softmax(dim=-1) * mask")),
    ("divided by the new sums",
     "Your result is NaN for a query with no allowed key, and where a forbidden score is far "
     "above the others. If you mask after softmax and divide by the sum of the remaining weights, "
     "all allowed weights are 0 there, and 0 / 0 is NaN. Fill forbidden scores with −inf before "
     "softmax, and set the weights of a query with no allowed key to 0.",
     (WEIGHTS, "scores.softmax(dim=-1) * mask"),
     ("return", "weights = weights / weights.sum(dim=-1, keepdim=True)\n    return")),
    ("divided by the new sums and erased",
     FORBIDDEN_STILL_COUNT
     + "If you then divide by the sum of the allowed weights, 0 / 0 is NaN. " + FILL_FIRST,
     (WEIGHTS, "scores.softmax(dim=-1) * mask"),
     ("return", "weights = weights / weights.sum(dim=-1, keepdim=True)\n"
      "    weights = weights.masked_fill(empty, 0)\n    return")),
    ("divided by the new sums and a little",
     FORBIDDEN_STILL_COUNT
     + "Adding a small number to the sum of the allowed weights does not help. " + FILL_FIRST,
     (WEIGHTS, "scores.softmax(dim=-1) * mask"),
     ("return", "weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-9)\n    return")),
    ("filled with too little",
     "Right, unless all allowed scores of a query are far below 0. In that case, their weights "
     "underflow to 0, as if forbidden scores were filled with a larger number, such as −100. Fill "
     "forbidden scores with the lowest number of the dtype, torch.finfo(scores.dtype).min.",
     (WEIGHTS, "scores.masked_fill(~mask, -100.0).softmax(dim=-1) * mask")),
    ("filled with too little and erased",
     "Right, unless all allowed scores of a query are far below 0. In that case, forbidden keys "
     "get weight, as if their scores were filled with a larger number, such as -1e4. Fill "
     "forbidden scores with −inf, or with the lowest number of the dtype.",
     ("~mask & ~empty, -torch.inf", "~mask, -1e4")),
    ("nothing subtracted", OVERFLOW, (WEIGHTS, f"({BY_HAND}).masked_fill(empty, 0)")),
    ("nothing subtracted, NaN made 0", OVERFLOW, (WEIGHTS, f"({BY_HAND}).nan_to_num(0)"),
     ("~mask & ~empty", "~mask")),
    ("nothing subtracted, masked after exp", OVERFLOW,
     (WEIGHTS, "e / e.sum(dim=-1, keepdim=True).clamp(min=1e-30)"),
     ("    weights", "    e = scores.exp() * mask\n    weights")),
    ("nothing subtracted, set to 0 after exp", OVERFLOW,
     (WEIGHTS, "e / torch.where(total == 0, 1.0, total)"),
     ("    weights", "    e = torch.where(mask, scores.exp(), 0.0)\n"
      "    total = e.sum(dim=-1, keepdim=True)\n    weights")),
    ("nothing subtracted, masked after exp, empty rows are NaN",
     "Right as long as the scores are moderate and every query has an allowed key. If you do not "
     "subtract the maximum, e^score overflows to inf for large scores. If all scores of a query "
     "are far below 0, every e^score underflows to 0. Fill forbidden scores with −inf, and use "
     "softmax. Set the weights of a query with no allowed key to 0.",
     (WEIGHTS, "e / e.sum(dim=-1, keepdim=True)"),
     ("    weights", "    e = scores.exp() * mask\n    weights")),
    *[(f"one maximum for {part}{note}", ONE_MAXIMUM.format(unless, whole, *more),
       (WEIGHTS, weights),
       ("    weights", f"    allowed = scores.masked_fill(~mask, -torch.inf)\n    m = {m}\n"
        f"    e = (allowed - {base}).exp()\n    weights"))
      for part, whole, m in (
          ("all", "for the whole tensor", "allowed.max()"),
          ("each matrix", "for each matrix (L, S)", "allowed.amax((-2, -1), keepdim=True)"))
      for note, base, weights, unless, *more in (
          ("", "m.masked_fill(m == -torch.inf, 0)",
           "e / e.sum(dim=-1, keepdim=True).masked_fill(e.sum(dim=-1, keepdim=True) == 0, 1)",
           "", "", ""),
          (", NaN if nothing is allowed", "m", "e / e.sum(dim=-1, keepdim=True).clamp(min=1e-12)",
           ", or no query has an allowed key", "", ""),
          (", 0 / 0", "m.masked_fill(m == -torch.inf, 0)", "e / e.sum(dim=-1, keepdim=True)",
           ", or a query has no allowed key", ", and 0 / 0 is NaN",
           ". Where the sum is 0, divide by 1"))],
    ("scores clamped",
     "Right, unless scores are in the hundreds. If you limit the scores to a range, such as −80 "
     "to 80, all scores beyond a limit get the same weight. Do not limit the scores. Fill "
     "forbidden scores with −inf, use softmax, and set the weights of a query with no allowed "
     "key to 0.",
     (WEIGHTS, "e / torch.where(total == 0, 1.0, total)"),
     ("    weights", "    e = scores.clamp(-80, 80).exp() * mask\n"
      "    total = e.sum(dim=-1, keepdim=True)\n    weights")),
    *[(f"indexed with the mask{note}", INDEXED,
       (WEIGHTS, weights), ("    finite", "    at = scores.clone()\n    at[~mask] = -torch.inf\n"
                            "    finite"))
      for note, weights in ((", NaN made 0", "at.softmax(dim=-1).nan_to_num(0)"),
                            ("", "at.softmax(dim=-1)"))],
    ("too little added",
     "Right, unless a forbidden score is very large. Then the forbidden key gets weight, as if "
     "only a finite number were subtracted from its score. Fill forbidden scores with −inf.",
     ("scores.masked_fill(~mask & ~empty, -torch.inf)", "scores + ~mask * -1e4")),
    ("empty rows as without a mask",
     "Right, except that a query with no allowed key attends as if there were no mask. If you add "
     "the same number, such as -1e9, to every score of a row, the weights do not change. Set the "
     "weights of such a query to 0 after softmax.",
     (WEIGHTS, "(scores + ~mask * -1e9).softmax(dim=-1)")),
    ("zero times infinity",
     "Your result is NaN everywhere. If you multiply a mask by −inf, its zeros become NaN, "
     "because 0 · inf is NaN. Fill forbidden scores with masked_fill or torch.where, and set the "
     "weights of a query with no allowed key to 0.",
     (WEIGHTS, "(scores + ~mask * -torch.inf).softmax(dim=-1)")),
    ("zero times infinity, NaN made 0",
     "All your weights are 0. If you multiply a mask by −inf, its zeros become NaN, because 0 · "
     "inf is NaN. Then softmax makes the whole row NaN, and nan_to_num makes it 0. Use "
     "masked_fill or torch.where.",
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
     "Your softmax runs over the queries, so it is NaN for a key that no query may see. Use "
     "dim=-1, and set the weights of a query with no allowed key to 0.",
     (WEIGHTS, "scores.masked_fill(~mask, -torch.inf).softmax(dim=-2)")),
    ("the mask is inverted",
     "Your mask is used the wrong way around. True means 'may attend', so fill where the mask is "
     "False: ~mask.",
     ("scores = ", "mask = ~mask\n    scores = ")),
    ("the mask is inverted, but for empty rows",
     "Your mask is used the wrong way around. True means 'may attend', so fill where the mask is "
     "False: ~mask.",
     ("~mask & ~empty", "mask & ~empty")),
    ("all for any",
     "Your result is zero for every query that has a forbidden key. Only a query with no allowed "
     "key must get zeros. Find these queries with ~mask.any(dim=-1, keepdim=True).",
     ("mask.any", "mask.all")),
    ("the mask is multiplied into the scores",
     "Your forbidden keys still get a weight. If you multiply the scores by the mask, forbidden "
     "scores become 0, and e^0 is 1. Fill forbidden scores with −inf, and set the weights of a "
     "query with no allowed key to 0.",
     (WEIGHTS, "(scores * mask).softmax(dim=-1)")),
    ("the mask is multiplied in twice",
     "Your forbidden weights are 0, but the forbidden scores are still in the denominator. If you "
     "multiply the scores by the mask, forbidden scores become 0, and e^0 is 1. Fill forbidden "
     "scores with −inf. After softmax, use masked_fill to set the weights of a query with no "
     "allowed key to 0.",
     (WEIGHTS, "(scores * mask).softmax(dim=-1) * mask")),
    ("the mask is added to the scores",
     "Your mask forbids nothing. If you add it to the scores, True adds 1 and False adds 0. Fill "
     "scores with −inf where the mask is False, and set the weights of a query with no allowed "
     "key to 0.",
     (WEIGHTS, "(scores + mask).softmax(dim=-1)")),
    ("causal as well",
     "Your result hides later keys from every query, as a causal mask does (with the last query "
     "aligned with the last key). But `mask` may allow later keys. Forbid only what `mask` "
     "forbids.",
     ("empty =", "past = causal_mask(*scores.shape[-2:], align='lower_right')\n"
      "    mask = mask & past\n    empty =")),
    ("the mask is ignored", MASK_NOT_USED, (WEIGHTS, "scores.softmax(dim=-1)")),
    ("the first mask for all",
     "Right if one mask serves the whole batch. If each sequence or head has its own mask, you "
     "use the first mask for all of them. Use the whole mask, which broadcasts against the scores.",
     ("empty =", "mask = mask[:1] if mask.ndim > 2 else mask\n    empty =")),
    ("scores not scaled", NOT_SCALED, (" / q.shape[-1] ** 0.5", "")),
    ("divided by d_k", DIVIDED_BY_D_K, ("** 0.5", "")),
    ("divided by √L",
     "Your scores are divided by √L, where L is the number of queries. A score is a sum of d_k "
     "products, so divide by √d_k.",
     ("q.shape[-1]", "q.shape[-2]")),
    ("divided by √d_v", BY_D_V, ("q.shape[-1]", "v.shape[-1]")),
    ("only the output cleaned",
     "Your output is right, but the weights of a query with no allowed key are NaN. Set its "
     "weights to 0 before you multiply by v.",
     (WEIGHTS, UNSAFE), ("weights @ v,", "(weights @ v).nan_to_num(0.0),")),
    ("only the output erased",
     "Your output is right, but the weights of a query with no allowed key are not 0. Set its "
     "weights to 0 before you multiply by v.",
     (WEIGHTS, "scores.masked_fill(~mask, -1e9).softmax(dim=-1)"),
     ("weights @ v,", "(weights @ v).masked_fill(empty, 0),")),
    ("only the weights cleaned",
     "Your weights are right, but the output is NaN for a query with no allowed key. Set its "
     "weights to 0 before you multiply by v.",
     (WEIGHTS, UNSAFE), ("v, weights", "v, weights.nan_to_num(0.0)")),
    ("only the weights erased",
     "Your weights are right, but a query with no allowed key still averages the values. Set its "
     "weights to 0 before you multiply by v.",
     (WEIGHTS, "scores.masked_fill(~mask, -1e9).softmax(dim=-1)"),
     ("v, weights", "v, weights.masked_fill(empty, 0)")),
    ("scores for weights",
     "The output is right, but the second result is the masked scores. Return the weights, after "
     "softmax.",
     ("v, weights", "v, scores.masked_fill(~mask, -torch.inf)")),
    ("unmasked scores for weights",
     "The output is right, but the second result is the unmasked scores. Return the weights, "
     "after softmax.",
     ("v, weights", "v, scores")),
    ("weights without the mask",
     "The output is right, but the weights that you return ignore the mask. Return the weights "
     "with which you averaged the values.", ("v, weights", "v, scores.softmax(dim=-1)")),
    ("no softmax",
     "Your weights are the masked scores. Apply softmax to them, and set the weights of a query "
     "with no allowed key to 0.",
     (WEIGHTS, "scores.masked_fill(~mask, -torch.inf)")),
    ("weights first",
     "Both results are right, but in the wrong order. Return the output first, then the weights.",
     ("weights @ v, weights", "weights, weights @ v")),
    ("output alone", TWO_THINGS, ("v, weights", "v")),
]  # fmt: skip

exercise = Exercise(
    "4.6", attention, inputs, MISTAKES, "L d_v|L S", without_epsilon, differentiable=True,
    also_right=[by_loops, in_single_precision, by_sdpa],
)  # fmt: skip
