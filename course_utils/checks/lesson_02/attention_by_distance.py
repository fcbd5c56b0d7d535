"""2.8: attention that scores by squared distance, and what to divide such scores by."""

import math

import torch
import torch.nn.functional as F

from course_utils.checks.compare import difference
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import normals, queries_and_keys
from course_utils.checks.shared_hints import OVER_QUERIES, WEIGHTS_ALONE


def attention_by_distance(q, k, v):
    d_k = q.shape[-1]
    q_squares = q.square().sum(dim=-1)[..., :, None]  # (..., L, 1), the same for all keys
    k_squares = k.square().sum(dim=-1)[..., None, :]  # (..., 1, S), variance over keys 2 d_k
    products = q @ k.transpose(-2, -1)  # (..., L, S), variance over keys ‖q‖², on average d_k
    distances = q_squares - 2 * products + k_squares  # variance over keys 4 d_k + 2 d_k
    scores = -distances / (6 * d_k) ** 0.5  # (..., L, S)
    weights = scores.softmax(dim=-1)  # rows sum to 1
    return weights @ v  # (..., L, S) @ (..., S, d_v) -> (..., L, d_v)


def by_differences(q, k, v):
    scores = -(q[..., :, None, :] - k[..., None, :, :]).square().sum(dim=-1)
    return F.softmax(scores / math.sqrt(6 * q.shape[-1]), dim=-1) @ v


def by_sdpa(q, k, v):
    wide_q, wide_k = F.pad(q, (0, 1), value=-0.5), torch.cat([k, (k * k).sum(-1, True)], -1)
    return F.scaled_dot_product_attention(wide_q, wide_k, v, scale=2 / (6 * q.size(-1)) ** 0.5)


def inputs():
    normal = normals(28)
    pairs = [*queries_and_keys(seed=29), (normal(12, 9), normal(50, 9)), (normal(3, 3),) * 2]
    pairs += [(normal(2, 4, 16) / 2, normal(2, 6, 16) / 2), (normal(3, 1), normal(4, 1))]
    return [(q, k, normal(*k.shape[:-1], k.shape[-1] + 1, dtype=k.dtype)) for q, k in pairs]


def not_rounded(answer, q, k, v):
    """Call the answer; complain of a root of 6 that was rounded to two digits, or some more."""
    results = call_with_clones(answer, q, k, v)
    if difference(results[0], attention_by_distance(q, k, v)):
        for root in (2.4, 2.449, 2.45, 2.5):
            shrink = 6**0.25 / root**0.5  # as good as another divisor
            if difference(results[0], attention_by_distance(shrink * q, shrink * k, v)) is None:
                hint = f"right but for rounding: divided by {root} √d_k; write the root out in full"
                raise NamedMistake("rounded", hint)
    return results


DIVISOR = "(6 * d_k) ** 0.5"

MISTAKES = [
    ("spread of all scores",
     "divided by √(8 d_k), the spread of all scores; part of it is ‖q‖². Softmax sees one query "
     "at a time: what is the same for all its keys drops out", (DIVISOR, "(8 * d_k) ** 0.5")),
    ("by root d k", "divided by √d_k, which is right for q·k; now there is 2 q·k in the score, and "
     "‖k‖² differs from key to key as well", (DIVISOR, "d_k**0.5")),
    ("products alone", "divided by 2√d_k: that is the spread of 2 q·k alone; the term ‖k‖² differs "
     "from key to key as well", (DIVISOR, "(4 * d_k) ** 0.5")),
    ("by the mean distance",
     "divided by 2 d_k, the mean of ‖q − k‖²; what all keys have in common drops out of softmax: "
     "divide by their spread, the root of the variance", (DIVISOR, "(2 * d_k)")),
    ("by each query's expected spread",
     "divided by √(4‖q‖² + 2 d_k), so that every query is equally sharp; the divisor is made of "
     "d_k alone, and ‖q‖² is d_k on average", (DIVISOR, "(4 * q_squares + 2 * d_k) ** 0.5")),
    ("squares alone", "divided by √(2 d_k): that is the spread of ‖k‖² alone; 2 q·k has more",
     (DIVISOR, "(2 * d_k) ** 0.5")),
    ("variance of a square 1",
     "divided by √(5 d_k): the variance of the square of a normal number is not 1; measure it",
     (DIVISOR, "(5 * d_k) ** 0.5")),
    ("mean of a fourth power",
     "divided by √(7 d_k): 3 is the mean of k_i⁴; from it goes the square of the mean of k_i²",
     (DIVISOR, "(7 * d_k) ** 0.5")),
    ("product not doubled", "divided by √(3 d_k): q·k stands twice in ‖q − k‖², so its variance "
     "counts four times", (DIVISOR, "(3 * d_k) ** 0.5")),
    ("product not doubled in the scores",
     "Your divisor is right, but q·k counts only once in the scores. It stands twice in "
     "‖q − k‖² = ‖q‖² − 2 q·k + ‖k‖². Subtract it twice.", ("2 * products", "products")),
    ("root of the number left out", "divided by 6√d_k: the root is over the whole variance",
     (DIVISOR, "(6 * d_k**0.5)")),
    ("root of the width left out", "divided by √6 d_k: the root is over the whole variance",
     (DIVISOR, "(6**0.5 * d_k)")),
    ("spreads added",
     "divided by √(2 d_k) + √(4 d_k): of independent terms the variances add up, not the spreads; "
     "add first, then take the root", (DIVISOR, "((2 * d_k) ** 0.5 + (4 * d_k) ** 0.5)")),
    ("divided by measured spread",
     "divided by the measured spread of all scores, so that one query's output depends on the "
     "others; the divisor is made of d_k alone", (DIVISOR, "distances.std()")),
    ("divided by the measured mean variance",
     "divided by what was measured, the root of the variance of these scores; the divisor is made "
     "of d_k alone: measure to find it, then write it down",
     (DIVISOR, "distances.var(dim=-1).mean() ** 0.5")),
    ("divided by each query's spread",
     "divided by the measured spread of each query's scores, so that every query is equally sharp, "
     "and a single key gives NaN; the divisor is made of d_k alone",
     (DIVISOR, "distances.std(dim=-1, keepdim=True)")),
    ("power taken first",
     "divided by 12 d_k: in s / (6 * d_k) ** 1 / 2, ** comes first, then both divisions; write "
     "** 0.5", (DIVISOR, "(6 * d_k) ** 1 / 2")),
    ("half of the variance",
     "divided by 3 d_k, half of the variance: ** comes before /, so (6 * d_k) ** 1 / 2 is no root; "
     "write ** 0.5", (DIVISOR, "(3 * d_k)")),
    ("multiplied", "multiplied by √(6 d_k) where it should be divided",
     ("-distances / ", "-distances * ")),
    ("width left out", "divided by √6: the width is left out, √(6 d_k)", (DIVISOR, "6**0.5")),
    ("width of the values",
     "made of the width of the values, d_v; a distance is a sum over the d_k entries of a key",
     (DIVISOR, "(6 * v.shape[-1]) ** 0.5")),
    ("root missing", "divided by the variance of the scores, 6 d_k; divide by its root",
     (DIVISOR, "(6 * d_k)")),
    ("by the width", "divided by d_k: like every sum of d_k terms, they spread as a root of it",
     (DIVISOR, "d_k")),
    ("not divided", "−‖q − k‖² goes into softmax as it is: wide vectors make one key win",
     (" / " + DIVISOR, "")),
    ("far keys win", "far keys get most of the weight: the score is minus the squared distance",
     ("-distances", "distances")),
    ("distance not squared", "the score is the distance; its square is asked, without a root",
     ("-distances", "-distances.clamp(min=0).sqrt()")),
    ("plain attention",
     "that is the usual attention, q·k / √d_k; the score asked for is minus the squared distance",
     ("-distances", "products"), (DIVISOR, "d_k**0.5")),
    ("squares of keys left out",
     "‖k‖² is left out of the scores; it differs from key to key, so softmax does not drop it, as "
     "it does ‖q‖²", ("- 2 * products + k_squares", "- 2 * products")),
    ("dot products", "the scores are dot products; minus the squared distance is asked",
     ("-distances", "products")),
    ("softmax over all queries", OVER_QUERIES, ("softmax(dim=-1)", "softmax(dim=-2)")),
    ("no softmax", "softmax is missing: scores are no weights", (".softmax(dim=-1)", "")),
    ("weights returned alone", WEIGHTS_ALONE, ("weights @ v", "weights")),
]  # fmt: skip

exercise = Exercise(
    "2.8", attention_by_distance, inputs, MISTAKES, "L d_v", not_rounded, differentiable=True,
    also_right=[by_differences, by_sdpa],
)  # fmt: skip
