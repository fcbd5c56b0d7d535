"""2.8: attention that scores by squared distance, and what to divide such scores by."""

import math

import torch
import torch.nn.functional as F

from course_utils.checks.compare import difference, read
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


def with_a_known_factor(answer, q, k, v):
    """Call the answer; raise if it is right but for a divisor c √d_k, and name c."""
    results = call_with_clones(answer, q, k, v)
    if difference(results[0], attention_by_distance(q, k, v)) and (c := factor(answer)):
        shrink = 6**0.25 / c**0.5  # of q and k has the effect of another divisor
        if difference(results[0], attention_by_distance(shrink * q, shrink * k, v)) is None:
            words = f"Your scores are divided by {c:.4g} √d_k"
            if abs(c / 6**0.5 - 1) < 0.03:
                hint = f"{words}, a rounded divisor. Compute the root instead of rounding it."
                raise NamedMistake("rounded", hint)
            hint = (
                f"{words}, which would be right if their variance over the keys of a query were "
                f"{c * c:.4g} d_k. Compute the variances of 2 q·k and of ‖k‖² once more, add them, "
                "and divide by the square root of the sum."
            )
            raise NamedMistake("another factor", hint)
    return results


def factor(answer):
    """Return c if the answer divides scores by c √d_k at two widths, else None."""
    found = []
    for d_k in (4, 9):
        q, k, v = torch.zeros(1, d_k), torch.zeros(2, d_k), torch.eye(2)
        k[1, 0] = 1  # its squared distance is 1, that of the other key is 0
        weights = read(call_with_clones(answer, *(each.double() for each in (q, k, v)))[0])
        if weights is None or weights.shape != (1, 2) or not (weights > 0).all():
            return None
        difference_of_scores = (weights[0, 0] / weights[0, 1]).log().item()
        found.append(1 / (difference_of_scores * d_k**0.5) if difference_of_scores else 0)
    return found[0] if found[0] > 0 and abs(found[1] / found[0] - 1) < 1e-4 else None


DIVISOR = "(6 * d_k) ** 0.5"

MISTAKES = [
    ("standard deviation over all queries",
     "Your scores are divided by √(8 d_k), and 8 d_k is their variance over all queries and "
     "keys. Part of this variance comes from ‖q‖², which is the same for all keys of a query "
     "and cancels in softmax. Leave that part out of the variance.",
     (DIVISOR, "(8 * d_k) ** 0.5")),
    ("by root d k",
     "Your scores are divided by √d_k, which is right for q·k. Here the score contains 2 q·k, "
     "and ‖k‖² differs from key to key as well. Add the variances of 2 q·k and ‖k‖², and take "
     "the square root of the sum.",
     (DIVISOR, "d_k**0.5")),
    ("variance of the products",
     "Your scores are divided by 4 d_k, which is only the variance of 2 q·k. ‖k‖² also differs "
     "from key to key, so add its variance to 4 d_k. Then take the square root of the sum, "
     "because the divisor must be a standard deviation.",
     (DIVISOR, "(4 * d_k)")),
    ("products alone",
     "Your scores are divided by 2√d_k, the standard deviation of 2 q·k alone. ‖k‖² also "
     "differs from key to key. Add the variance of ‖k‖² under the square root.",
     (DIVISOR, "(4 * d_k) ** 0.5")),
    ("by the mean distance",
     "Your scores are divided by 2 d_k, the mean of ‖q − k‖². Softmax does not change if the same "
     "number is added to all scores of a query, so the mean does not matter. Divide by the "
     "standard deviation of a query's scores. Write it as a formula in d_k.",
     (DIVISOR, "(2 * d_k)")),
    ("expected standard deviation of each query",
     "Your scores are divided by √(4‖q‖² + 2 d_k), which differs from query to query. The "
     "divisor may depend only on d_k. Replace ‖q‖² with its mean over the queries, d_k.",
     (DIVISOR, "(4 * q_squares + 2 * d_k) ** 0.5")),
    ("squares alone",
     "Your scores are divided by √(2 d_k), the standard deviation of ‖k‖² alone. The term 2 q·k "
     "also differs from key to key. Add the variance of 2 q·k under the square root.",
     (DIVISOR, "(2 * d_k) ** 0.5")),
    ("variance of a square 1",
     "Your scores are divided by √(5 d_k), which would be right if the square of a standard "
     "normal variable had variance 1. That variance is larger. Measure it, and use the measured "
     "value in your formula.",
     (DIVISOR, "(5 * d_k) ** 0.5")),
    ("mean of a fourth power",
     "Your scores are divided by √(7 d_k), which would be right if x² had variance 3. But 3 is "
     "the mean of x⁴. Subtract the square of the mean of x² to get the variance of x², and use "
     "that.",
     (DIVISOR, "(7 * d_k) ** 0.5")),
    ("product not doubled",
     "Your scores are divided by √(3 d_k), which would be right if q·k occurred only once in the "
     "score. ‖q − k‖² contains 2 q·k, whose variance is four times that of q·k. Include this "
     "factor.",
     (DIVISOR, "(3 * d_k) ** 0.5")),
    ("product not doubled in the scores",
     "Your divisor is right, but your scores contain q·k only once. Expanded, ‖q − k‖² is ‖q‖² "
     "− 2 q·k + ‖k‖². Subtract 2 q·k.",
     ("2 * products", "products")),
    ("root of the number left out",
     "Your scores are divided by 6√d_k. Only the square root of the whole variance, 6 d_k, is the "
     "standard deviation. Divide by √(6 d_k).",
     (DIVISOR, "(6 * d_k**0.5)")),
    ("root of the width left out",
     "Your scores are divided by √6 · d_k. Only the square root of the whole variance, 6 d_k, is "
     "the standard deviation. Divide by √(6 d_k).",
     (DIVISOR, "(6**0.5 * d_k)")),
    ("standard deviations added",
     "Your scores are divided by √(2 d_k) + √(4 d_k). The two terms are uncorrelated, so their "
     "variances add, not their standard deviations. Add the variances first, then take the "
     "square root.",
     (DIVISOR, "((2 * d_k) ** 0.5 + (4 * d_k) ** 0.5)")),
    ("measured over all scores",
     "Your scores are divided by their measured standard deviation. This makes the output of "
     "one query depend on the other queries. Find a divisor that depends only on d_k.",
     (DIVISOR, "distances.std()")),
    ("divided by the measured mean variance",
     "Your scores are divided by the square root of their measured variance, averaged over the "
     "queries. The divisor may depend only on d_k. Write a formula in d_k for this square root.",
     (DIVISOR, "distances.var(dim=-1).mean() ** 0.5")),
    ("measured for each query",
     "Your scores are divided by the measured standard deviation of each query's scores. This "
     "differs from query to query, and it is NaN for a single key. Find a divisor that depends "
     "only on d_k.",
     (DIVISOR, "distances.std(dim=-1, keepdim=True)")),
    ("exponent applied first",
     "Your scores are divided by 12 d_k. If you wrote scores / (6 * d_k) ** 1 / 2, Python "
     "computes the power first, and then divides by 6 d_k and by 2. Write ** 0.5.",
     (DIVISOR, "(6 * d_k) ** 1 / 2")),
    ("half of the variance",
     "Your scores are divided by 3 d_k, half their variance. Divide by their standard deviation, "
     "the square root of the variance. (In Python, (6 * d_k) ** 1 / 2 is 3 d_k, because the power "
     "comes first. Write ** 0.5.)",
     (DIVISOR, "(3 * d_k)")),
    ("multiplied",
     "Your scores are multiplied by √(6 d_k). Divide by √(6 d_k).",
     ("-distances / ", "-distances * ")),
    ("mean over the width",
     "Your distances are divided by d_k, as in a mean over the width. A squared distance is the "
     "sum of its d_k terms. Use sum(dim=-1) instead of the mean.",
     ("-distances", "-distances / d_k")),
    ("width left out",
     "Your scores are divided by √6, without the width. The variance grows with d_k. Multiply "
     "the 6 by d_k under the square root.",
     (DIVISOR, "6**0.5")),
    ("width of the values",
     "Your divisor uses d_v, the width of the values. A squared distance is a sum over the d_k "
     "entries of a key, so use d_k.",
     (DIVISOR, "(6 * v.shape[-1]) ** 0.5")),
    ("number of the keys",
     "Your scores are divided by √(6 S), where S is the number of keys. A squared distance is a "
     "sum over the d_k entries of a key, so divide by √(6 d_k).",
     (DIVISOR, "(6 * k.shape[-2]) ** 0.5")),
    ("root missing",
     "Your scores are divided by their variance, 6 d_k. Divide by their standard deviation, the "
     "square root of the variance.",
     (DIVISOR, "(6 * d_k)")),
    ("by the width",
     "Your scores are divided by d_k. The standard deviation of a sum of d_k independent terms "
     "grows as √d_k. Find the variance of a query's scores as a formula in d_k, and divide by "
     "its square root.",
     (DIVISOR, "d_k")),
    ("not divided",
     "Your scores are not divided. With wide vectors, one key then gets nearly all the weight. "
     "Divide by the standard deviation of a query's scores. Write it as a formula in d_k.",
     (" / " + DIVISOR, "")),
    ("far keys win",
     "You give the most weight to far keys. Use minus the squared distance as the score.",
     ("-distances", "distances")),
    ("distance not squared",
     "Your scores use the distance itself. Use the squared distance, without a square root.",
     ("-distances", "-distances.clamp(min=0).sqrt()")),
    ("plain attention",
     "Your result is the usual attention, with q·k / √d_k. Use minus the squared distance as the "
     "score. Divide it by the standard deviation of these scores over the keys. Write this "
     "standard deviation as a formula in d_k.",
     ("-distances", "products"), (DIVISOR, "d_k**0.5")),
    ("squares of keys left out",
     "Your scores leave out ‖k‖². It differs from key to key, so, unlike ‖q‖², it does not cancel "
     "in softmax. Add ‖k‖² to the squared distance.",
     ("- 2 * products + k_squares", "- 2 * products")),
    ("dot products",
     "Your scores are dot products. Use minus the squared distance as the score.",
     ("-distances", "products")),
    ("softmax over all queries", OVER_QUERIES, ("softmax(dim=-1)", "softmax(dim=-2)")),
    ("no softmax",
     "You use the scores themselves as weights. Weights must be positive and sum to 1. Apply "
     "softmax to the scores first.",
     (".softmax(dim=-1)", "")),
    ("weights returned alone", WEIGHTS_ALONE, ("weights @ v", "weights")),
]  # fmt: skip

exercise = Exercise(
    "2.8", attention_by_distance, inputs, MISTAKES, "L d_v", with_a_known_factor,
    differentiable=True, also_right=[by_differences, by_sdpa],
)  # fmt: skip
