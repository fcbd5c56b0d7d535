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
    """Call the answer; raise if the root of 6 was rounded to two digits, or to a few more."""
    results = call_with_clones(answer, q, k, v)
    if difference(results[0], attention_by_distance(q, k, v)):
        for root in (2.4, 2.449, 2.45, 2.5):
            shrink = 6**0.25 / root**0.5  # of q and k has the effect of another divisor
            if difference(results[0], attention_by_distance(shrink * q, shrink * k, v)) is None:
                hint = (
                    f"Right, except for rounding. Your scores are divided by {root} √d_k. Compute "
                    "the root instead of rounding it."
                )
                raise NamedMistake("rounded", hint)
    return results


DIVISOR = "(6 * d_k) ** 0.5"

MISTAKES = [
    ("standard deviation over all queries",
     "Your scores are divided by √(8 d_k), and 8 d_k is their variance over all queries and keys. "
     "Part of this variance comes from ‖q‖², which is the same for all keys of a query and cancels "
     "in softmax. Leave that part out.",
     (DIVISOR, "(8 * d_k) ** 0.5")),
    ("by root d k",
     "Your scores are divided by √d_k, which is right for q·k. Here the score contains 2 q·k, and "
     "‖k‖² differs from key to key as well. Add the variances of these two terms, and take the "
     "square root.",
     (DIVISOR, "d_k**0.5")),
    ("variance of the products",
     "Your scores are divided by 4 d_k, the variance of 2 q·k. ‖k‖² also differs from key to key. "
     "Add its variance, and take the square root of the sum.",
     (DIVISOR, "(4 * d_k)")),
    ("products alone",
     "Your scores are divided by 2√d_k, the standard deviation of 2 q·k alone. ‖k‖² also differs "
     "from key to key. Add its variance under the square root.",
     (DIVISOR, "(4 * d_k) ** 0.5")),
    ("by the mean distance",
     "Your scores are divided by 2 d_k, the mean of ‖q − k‖². Softmax does not notice what all "
     "keys have in common. Divide by the standard deviation over the keys.",
     (DIVISOR, "(2 * d_k)")),
    ("expected standard deviation of each query",
     "Your scores are divided by √(4‖q‖² + 2 d_k), which differs from query to query. The divisor "
     "may depend only on d_k. Replace ‖q‖² by its mean, d_k.",
     (DIVISOR, "(4 * q_squares + 2 * d_k) ** 0.5")),
    ("squares alone",
     "Your scores are divided by √(2 d_k), the standard deviation of ‖k‖² alone. 2 q·k also "
     "differs from key to key. Add its variance under the square root.",
     (DIVISOR, "(2 * d_k) ** 0.5")),
    ("variance of a square 1",
     "Your scores are divided by √(5 d_k). This fits a variance of 1 for the square of a normal "
     "number, but that variance is larger. Measure it.",
     (DIVISOR, "(5 * d_k) ** 0.5")),
    ("mean of a fourth power",
     "Your scores are divided by √(7 d_k). The mean of k_i⁴ is 3. To get the variance of k_i², "
     "subtract the square of the mean of k_i².",
     (DIVISOR, "(7 * d_k) ** 0.5")),
    ("product not doubled",
     "Your scores are divided by √(3 d_k). In ‖q − k‖², q·k is multiplied by 2, so its variance is "
     "four times as large. Include this factor.",
     (DIVISOR, "(3 * d_k) ** 0.5")),
    ("product not doubled in the scores",
     "Your divisor is right, but q·k counts only once in the scores. Expand the square: "
     "‖q − k‖² = ‖q‖² − 2 q·k + ‖k‖². Subtract q·k twice.",
     ("2 * products", "products")),
    ("root of the number left out",
     "Your scores are divided by 6√d_k. Take the square root of the whole variance, 6 d_k.",
     (DIVISOR, "(6 * d_k**0.5)")),
    ("root of the width left out",
     "Your scores are divided by √6 · d_k. Take the square root of the whole variance, 6 d_k.",
     (DIVISOR, "(6**0.5 * d_k)")),
    ("standard deviations added",
     "Your scores are divided by √(2 d_k) + √(4 d_k). The two terms are uncorrelated, so their "
     "variances add, not their standard deviations. Add first, then take the square root.",
     (DIVISOR, "((2 * d_k) ** 0.5 + (4 * d_k) ** 0.5)")),
    ("measured over all scores",
     "Your scores are divided by their measured standard deviation. This makes the output of one "
     "query depend on the other queries. Find a divisor that depends only on d_k.",
     (DIVISOR, "distances.std()")),
    ("divided by the measured mean variance",
     "Your scores are divided by the square root of their own measured variance. The divisor may "
     "depend only on d_k. Measure to find it, then write it as a formula.",
     (DIVISOR, "distances.var(dim=-1).mean() ** 0.5")),
    ("measured for each query",
     "Your scores are divided by the measured standard deviation of each query. This makes all "
     "queries equally sharp, and a single key gives NaN. Find a divisor that depends only on d_k.",
     (DIVISOR, "distances.std(dim=-1, keepdim=True)")),
    ("exponent applied first",
     "Your scores are divided by 12 d_k. If you wrote s / (6 * d_k) ** 1 / 2, Python computes the "
     "power first, and then divides twice. Write ** 0.5.",
     (DIVISOR, "(6 * d_k) ** 1 / 2")),
    ("half of the variance",
     "Your scores are divided by 3 d_k. That is half their variance, but you need its square root. "
     "(In Python, (6 * d_k) ** 1 / 2 is 3 d_k, because the power comes first. Write ** 0.5.)",
     (DIVISOR, "(3 * d_k)")),
    ("multiplied",
     "Your scores are multiplied by √(6 d_k). Divide by it.",
     ("-distances / ", "-distances * ")),
    ("mean over the width",
     "Your distances are divided by d_k, as in a mean over the width. A squared distance is the "
     "sum of its d_k terms. Use sum(dim=-1).",
     ("-distances", "-distances / d_k")),
    ("width left out",
     "Your scores are divided by √6, without the width. Multiply by d_k under the square root.",
     (DIVISOR, "6**0.5")),
    ("width of the values",
     "Your divisor uses d_v, the width of the values. A distance is a sum over the d_k entries of "
     "a key, so use d_k.",
     (DIVISOR, "(6 * v.shape[-1]) ** 0.5")),
    ("number of the keys",
     "Your scores are divided by √(6 S), where S is the number of keys. A squared distance is a "
     "sum over the d_k entries of a key, so divide by √(6 d_k).",
     (DIVISOR, "(6 * k.shape[-2]) ** 0.5")),
    ("root missing",
     "Your scores are divided by their variance, 6 d_k. Divide by its square root.",
     (DIVISOR, "(6 * d_k)")),
    ("by the width",
     "Your scores are divided by d_k. The standard deviation of a sum of d_k independent terms "
     "grows as √d_k. Divide by a square root.",
     (DIVISOR, "d_k")),
    ("not divided",
     "Your scores are not divided. In wide vectors, one key then gets nearly all the weight. "
     "Divide by the standard deviation.",
     (" / " + DIVISOR, "")),
    ("far keys win",
     "Your result gives the most weight to far keys. Use minus the squared distance as the score.",
     ("-distances", "distances")),
    ("distance not squared",
     "Your scores use the distance itself. Use the squared distance, without a square root.",
     ("-distances", "-distances.clamp(min=0).sqrt()")),
    ("plain attention",
     "Your result is the usual attention, with q·k / √d_k. Use minus the squared distance as the "
     "score.",
     ("-distances", "products"), (DIVISOR, "d_k**0.5")),
    ("squares of keys left out",
     "Your scores leave out ‖k‖². It differs from key to key, so it does not cancel in softmax, "
     "whereas ‖q‖² does. Include ‖k‖².",
     ("- 2 * products + k_squares", "- 2 * products")),
    ("dot products",
     "Your scores are dot products. Use minus the squared distance as the score.",
     ("-distances", "products")),
    ("softmax over all queries", OVER_QUERIES, ("softmax(dim=-1)", "softmax(dim=-2)")),
    ("no softmax",
     "You use the scores themselves as weights. Apply softmax to the scores first.",
     (".softmax(dim=-1)", "")),
    ("weights returned alone", WEIGHTS_ALONE, ("weights @ v", "weights")),
]  # fmt: skip

exercise = Exercise(
    "2.8", attention_by_distance, inputs, MISTAKES, "L d_v", not_rounded, differentiable=True,
    also_right=[by_differences, by_sdpa],
)  # fmt: skip
