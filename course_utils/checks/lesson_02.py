"""Lesson 02's exercises: the size of scores, the right divisor, entropy, saturation."""

import torch
import torch.nn.functional as F

from course_utils import attention
from course_utils.attention import dot_product_scores
from course_utils.checks.engine import Exercise
from course_utils.checks.probes import queries_and_keys


def _normal(rng, *shape, dtype=torch.float64):
    return torch.randn(*shape, generator=rng, dtype=dtype)


# 2.1 score_variance


def score_variance(q, k):
    return (q * k).sum(dim=-1).var()


def _pairs():
    rng = torch.Generator().manual_seed(21)
    return [
        (_normal(rng, 6, 4), _normal(rng, 6, 4)),
        (_normal(rng, 9, 5) + 2, _normal(rng, 9, 5) - 1),  # means that are not 0
        (3 * _normal(rng, 5, 8), _normal(rng, 5, 8)),
        (_normal(rng, 4, 3, dtype=torch.float32), _normal(rng, 4, 3, dtype=torch.float32)),
    ]


variance = Exercise("2.1", score_variance, _pairs)


@variance.mistake("that is the standard deviation; the variance is its square")
def standard_deviation(q, k):
    return (q * k).sum(dim=-1).std()


@variance.mistake("divided by n where n − 1 is asked: the mean was estimated from the same numbers")
def divided_by_n(q, k):
    return (q * k).sum(dim=-1).var(correction=0)


@variance.mistake("that is the mean of the squares; first subtract the mean of the scores")
def mean_not_subtracted(q, k):
    return (q * k).sum(dim=-1).square().mean()


@variance.mistake("divided by n − 1 as it should be, but the mean of the scores is not subtracted")
def squares_not_centred(q, k):
    return (q * k).sum(dim=-1).square().sum() / (len(q) - 1)


@variance.mistake("summed down the columns, over the n pairs; a score is the sum over d_k, dim=-1")
def summed_over_the_pairs(q, k):
    return (q * k).sum(dim=0).var()


@variance.mistake(
    "those are all pairs of a query and a key; here row i of q belongs to row i of k alone"
)
def all_pairs(q, k):
    return (q @ k.T).var()


@variance.mistake("the products are not added up: a score is the sum over d_k of them")
def variance_of_products(q, k):
    return (q * k).var()


@variance.mistake("that is the mean over d_k products; a score is their sum")
def mean_over_the_width(q, k):
    return (q * k).mean(dim=-1).var()


@variance.mistake("the scores are scaled by √d_k already; here the plain dot products are asked")
def of_scaled_scores(q, k):
    return ((q * k).sum(dim=-1) / q.shape[-1] ** 0.5).var()


@variance.mistake(
    "that adds up the variances of each position's products: only right if they are uncorrelated; "
    "add first, then take the variance"
)
def sum_of_variances(q, k):
    return (q * k).var(dim=0).sum()


@variance.mistake(
    "that is what theory expects of variance 1, d_k; estimate it from the numbers given"
)
def theory_returned(q, k):
    return torch.tensor(float(q.shape[-1]), dtype=q.dtype)


# 2.2 right_divisor


def right_divisor(d_k, var_q, var_k):
    return (d_k * var_q * var_k) ** 0.5


_WIDTHS = [(64, 1.0, 1.0), (64, 4.0, 4.0), (16, 0.25, 9.0), (7, 2.0, 0.5), (128, 1 / 3, 3.0)]
divisor = Exercise("2.2", right_divisor, lambda: _WIDTHS)


@divisor.mistake("√d_k is right for entries of variance 1 only; here they have var_q and var_k")
def root_of_d_k_alone(d_k, var_q, var_k):
    return d_k**0.5


@divisor.mistake("that is the variance of the scores; divide by its root")
def root_missing(d_k, var_q, var_k):
    return d_k * var_q * var_k


@divisor.mistake("half of the variance: ** comes before /, so x**1/2 is x / 2; write x**0.5")
def half_of_the_variance(d_k, var_q, var_k):
    return (d_k * var_q * var_k) ** 1 / 2


@divisor.mistake(
    "the variances stand outside the root: it is √(d_k · var_q · var_k), "
    "for the standard deviation is the root of the whole variance"
)
def variances_outside_the_root(d_k, var_q, var_k):
    return d_k**0.5 * var_q * var_k


@divisor.mistake("var_k stands outside the root; all three belong under it")
def var_k_outside_the_root(d_k, var_q, var_k):
    return (d_k * var_q) ** 0.5 * var_k


@divisor.mistake("the variance of a product of independent numbers is the product, not the sum")
def variances_added(d_k, var_q, var_k):
    return (d_k * (var_q + var_k)) ** 0.5


@divisor.mistake("d_k belongs under the root too: the variances of d_k products add up")
def d_k_outside_the_root(d_k, var_q, var_k):
    return d_k * (var_q * var_k) ** 0.5


@divisor.mistake("var_k is left out: both factors of a product bring their variance")
def only_var_q(d_k, var_q, var_k):
    return (d_k * var_q) ** 0.5


@divisor.mistake("var_q is left out: both factors of a product bring their variance")
def only_var_k(d_k, var_q, var_k):
    return (d_k * var_k) ** 0.5


@divisor.mistake("that is what to multiply by; the divisor is asked")
def factor_in_place_of_divisor(d_k, var_q, var_k):
    return (d_k * var_q * var_k) ** -0.5


@divisor.mistake("divided by the variances: larger entries make larger scores, so they multiply")
def divided_by_the_variances(d_k, var_q, var_k):
    return (d_k / (var_q * var_k)) ** 0.5


@divisor.mistake("d_k is missing: a score is a sum over d_k products")
def d_k_missing(d_k, var_q, var_k):
    return (var_q * var_k) ** 0.5


# 2.3 scaled_scores


def scaled_scores(q, k):
    return dot_product_scores(q, k) / q.shape[-1] ** 0.5


scaled = Exercise("2.3", scaled_scores, lambda: queries_and_keys(seed=23), names="L S")


@scaled.mistake("right products, but not divided by √d_k")
def not_divided_by_root_d_k(q, k):
    return dot_product_scores(q, k)


@scaled.mistake("divided by d_k: the square root is missing")
def divided_by_d_k(q, k):
    return dot_product_scores(q, k) / q.shape[-1]


@scaled.mistake(
    "** comes before /, so q @ kᵀ / d_k**1/2 divides by d_k and then by 2: write d_k**0.5"
)
def by_d_k_and_by_2(q, k):
    return dot_product_scores(q, k) / q.shape[-1] ** 1 / 2


@scaled.mistake("divided by d_k / 2, for ** comes before / in d_k**1/2: write d_k**0.5")
def by_half_of_d_k(q, k):
    return dot_product_scores(q, k) / (q.shape[-1] ** 1 / 2)


@scaled.mistake("multiplied by √d_k where it should be divided")
def multiplied_by_root_d_k(q, k):
    return dot_product_scores(q, k) * q.shape[-1] ** 0.5


@scaled.mistake(
    "divided by √S, from the number of keys; it is the width, the last dimension, that counts"
)
def divided_by_root_of_keys(q, k):
    return dot_product_scores(q, k) / k.shape[-2] ** 0.5


@scaled.mistake(
    "divided by √L, from the number of queries; it is the width, the last dimension, that counts"
)
def divided_by_root_of_queries(q, k):
    return dot_product_scores(q, k) / q.shape[-2] ** 0.5


@scaled.mistake(
    "right for matrices; with leading dimensions the width is not dimension 1: q.shape[-1]"
)
def width_from_dimension_1(q, k):
    return dot_product_scores(q, k) / q.shape[1] ** 0.5


@scaled.mistake(
    "right for matrices; with leading dimensions .T turns all of them around: .transpose(-2, -1)"
)
def leading_dimensions_turned(q, k):
    return q @ k.permute(*reversed(range(k.ndim))) / q.shape[-1] ** 0.5


@scaled.mistake("those are weights already; the scores are asked, before any softmax")
def weights_in_place_of_scores(q, k):
    return scaled_scores(q, k).softmax(dim=-1)


@scaled.mistake("right numbers, but transposed: rows are queries, columns are keys")
def rows_are_keys(q, k):
    return scaled_scores(q, k).transpose(-2, -1)


@scaled.mistake("divided by 8, which is √64: take the width from q, it differs here")
def width_of_64_assumed(q, k):
    return dot_product_scores(q, k) / 8


@scaled.mistake(
    "divided by the lengths of the vectors: that is the cosine, here every score has one divisor"
)
def cosines_in_place_of_scores(q, k):
    return attention.cosine_similarity(q, k)


@scaled.mistake(
    "divided by their own standard deviation: then a score depends on the other queries and keys; "
    "√d_k is fixed"
)
def divided_by_measured_std(q, k):
    scores = dot_product_scores(q, k)
    return scores / scores.std()


# 2.4 entropy


def _weights():
    rng = torch.Generator().manual_seed(24)
    size = torch.tensor([[200.0], [200], [1], [1]])
    sharp = torch.tensor([[1.0, 0, 0], [0, 0.5, 0.5], [0.25, 0.75, 0], [0.2, 0.3, 0.5]])
    return [
        (_normal(rng, 5, 7).softmax(dim=-1),),
        (sharp.double(),),
        ((3 * _normal(rng, 2, 3, 4, 6)).softmax(dim=-1),),
        (_normal(rng, 9).softmax(dim=-1),),
        # two rows saturated down to exact zeros, two not
        ((size * _normal(rng, 4, 5, dtype=torch.float32)).softmax(dim=-1),),
        (torch.full((2, 8), 1 / 8),),
        (_normal(rng, 1, 3, 5).softmax(dim=-1),),  # its 1 must not be squeezed away
    ]


undecided = Exercise("2.4", attention.entropy, _weights, names="")


@undecided.mistake(
    "a weight of 0 gives NaN (0 · ln 0): let it add 0, with torch.xlogy or torch.where"
)
def zero_weight_gives_nan(weights):
    return -(weights * weights.log()).sum(dim=-1)


@undecided.mistake("that is in bits, with log2; nats are asked, with the natural logarithm")
def bits_in_place_of_nats(weights):
    return attention.entropy(weights) / torch.log(torch.tensor(2.0))


@undecided.mistake("the sign is wrong: ln p is negative, so the sum needs a minus")
def minus_missing(weights):
    return torch.xlogy(weights, weights).sum(dim=-1)


@undecided.mistake("all rows are added into one number: each row has an entropy of its own, dim=-1")
def added_over_all_rows(weights):
    return attention.entropy(weights).sum()


@undecided.mistake(
    "it sums over the rows: the weights of one query stand in the last dimension, dim=-1"
)
def summed_over_queries(weights):
    return (-torch.xlogy(weights, weights)).sum(dim=0 if weights.ndim == 1 else -2)


@undecided.mistake(
    "it sums over dim=1: right for a matrix, but leading dimensions are free; dim=-1 is the last"
)
def summed_over_dimension_1(weights):
    return (-torch.xlogy(weights, weights)).sum(dim=1)


@undecided.mistake("those are the mean terms; entropy is their sum over the keys")
def mean_over_keys(weights):
    return (-torch.xlogy(weights, weights)).mean(dim=-1)


@undecided.mistake("divided by ln S: that is a share of the most possible; nats are asked")
def share_of_the_largest(weights):
    return attention.entropy(weights) / torch.log(torch.tensor(float(weights.shape[-1])))


@undecided.mistake("only ln p is added: each term is weighted by its p, as in p · ln p")
def logarithms_not_weighted(weights):
    return -weights.clamp(min=1e-9).log().sum(dim=-1)


@undecided.mistake(
    "these weights are weights already: applying softmax to them once more flattens them"
)
def softmax_once_more(weights):
    return attention.entropy(weights.softmax(dim=-1))


@undecided.mistake("the terms are there but not added up: sum them over the keys, dim=-1")
def terms_not_added(weights):
    return -torch.xlogy(weights, weights)


@undecided.mistake("one dimension too many: sum without keepdim")
def kept_the_dimension(weights):
    return (-torch.xlogy(weights, weights)).sum(dim=-1, keepdim=True)


@undecided.mistake(
    "that is the effective number of keys, e to the entropy; it comes in the next exercise"
)
def effective_number(weights):
    return attention.entropy(weights).exp()


# 2.5 effective_keys


def effective_keys(weights):
    return attention.entropy(weights).exp()


attended = Exercise("2.5", effective_keys, _weights, names="")


@attended.mistake("that is the entropy; raise e to it to get a number of keys")
def entropy_itself(weights):
    return attention.entropy(weights)


@attended.mistake("2 to the power of an entropy in nats; with the natural logarithm it takes e")
def power_of_2(weights):
    return 2 ** attention.entropy(weights)


@attended.mistake(
    "that counts the weights above 0: a key with weight 0.001 would count as much as one with 0.9"
)
def weights_above_0(weights):
    return (weights > 0).to(weights.dtype).sum(dim=-1)


@attended.mistake("that is 1 / Σp², the participation ratio: a good measure too, but e^H is asked")
def participation_ratio(weights):
    return 1 / weights.square().sum(dim=-1)


@attended.mistake("that is 1 / max p: it looks at the largest weight alone")
def one_over_the_largest(weights):
    return 1 / weights.amax(dim=-1)


@attended.mistake("the sign is turned around: e^(−H) is at most 1; e^H is between 1 and S")
def sign_turned_around(weights):
    return (-attention.entropy(weights)).exp()


@attended.mistake(
    "divided by S: that is the share of the keys; the number of keys is asked, from 1 to S"
)
def share_of_the_keys(weights):
    return attention.entropy(weights).exp() / weights.shape[-1]


@attended.mistake("a weight of 0 gives NaN (0 · ln 0): let it add 0, as in 2.4")
def zero_gives_nan(weights):
    return (-(weights * weights.log()).sum(dim=-1)).exp()


@attended.mistake("that counts the weights above an equal share, 1/S; e^H needs no such threshold")
def weights_above_equal_share(weights):
    return (weights > 1 / weights.shape[-1]).to(weights.dtype).sum(dim=-1)


@attended.mistake("one number for all rows: each query listens to its own number of keys")
def mean_over_queries(weights):
    return attention.entropy(weights).exp().mean()


# 2.6 gradient_norm


def gradient_norm(scores):
    return _jacobian(scores.softmax(dim=-1)).flatten(-2).norm(dim=-1)


def _jacobian(p):
    return p.diag_embed() - p[..., :, None] * p[..., None, :]  # (..., S, S)


def _scores():
    rng = torch.Generator().manual_seed(26)
    return [
        (_normal(rng, 5),),
        (_normal(rng, 3, 4),),
        (2 * _normal(rng, 2, 3, 6),),
        # far apart; two tied at the top; all the same
        (torch.tensor([[0.0, 40, -3, 1], [9, 9, -9, -9], [5, 5, 5, 5]], dtype=torch.float64),),
        (_normal(rng, 2, 4) + 1000,),
        (_normal(rng, 2, 7, dtype=torch.float32) - 800,),
        (torch.tensor([320.0, 10, 0, 10]),),
        (_normal(rng, 1, 3, 4),),  # its 1 must not be squeezed away
        (torch.tensor([[1000.0, 999, 998], [-1000, -1001, -1003]]),),  # rows far apart
    ]


steepness = Exercise("2.6", gradient_norm, _scores, names="")


@steepness.mistake("softmax is missing: the p in diag(p) − ppᵀ are weights, not scores")
def scores_as_weights(scores):
    return _jacobian(scores).flatten(-2).norm(dim=-1)


@steepness.mistake(
    "that is the diagonal p(1 − p) alone; the entries beside it, −p_i p_j, count as well"
)
def diagonal_alone(scores):
    p = scores.softmax(dim=-1)
    return (p * (1 - p)).norm(dim=-1)


@steepness.mistake("diag(p) is missing: the Jacobian is diag(p) − ppᵀ")
def outer_product_alone(scores):
    p = scores.softmax(dim=-1)
    return (p[..., :, None] * p[..., None, :]).flatten(-2).norm(dim=-1)


@steepness.mistake("ppᵀ is missing: diag(p) alone does not become 0 when softmax saturates")
def diag_alone(scores):
    return scores.softmax(dim=-1).norm(dim=-1)


@steepness.mistake("a plus where a minus belongs: diag(p) − ppᵀ")
def outer_product_added(scores):
    p = scores.softmax(dim=-1)
    return (p.diag_embed() + p[..., :, None] * p[..., None, :]).flatten(-2).norm(dim=-1)


@steepness.mistake("the squares are added up, but the root is not taken")
def root_not_taken(scores):
    return _jacobian(scores.softmax(dim=-1)).square().sum(dim=(-2, -1))


@steepness.mistake(
    "the entries are added with their signs, so they cancel to 0 (each row sums to 0): square first"
)
def entries_added_unsquared(scores):
    return _jacobian(scores.softmax(dim=-1)).sum(dim=(-2, -1))


@steepness.mistake("that adds absolute values; square the entries, add, take the root")
def absolute_values_added(scores):
    return _jacobian(scores.softmax(dim=-1)).abs().sum(dim=(-2, -1))


@steepness.mistake("that is the largest singular value; the Frobenius norm takes all entries")
def spectral_norm(scores):
    return torch.linalg.matrix_norm(_jacobian(scores.softmax(dim=-1)), ord=2)


@steepness.mistake("one number for all rows: each row of scores has a Jacobian of its own")
def norm_over_everything(scores):
    return _jacobian(scores.softmax(dim=-1)).norm()


@steepness.mistake(
    "softmax runs over the wrong dimension: the scores of one query stand in the last one"
)
def softmax_over_first_dimension(scores):
    return _jacobian(scores.softmax(dim=0)).flatten(-2).norm(dim=-1)


@steepness.mistake(
    "large scores give NaN: e^1000 overflows; torch.softmax takes care of it, exp / sum does not"
)
def exponential_overflows(scores):
    powers = scores.exp()
    return _jacobian(powers / powers.sum(dim=-1, keepdim=True)).flatten(-2).norm(dim=-1)


@steepness.mistake(
    "one maximum is subtracted from all rows: in a row far below it every power is 0, and 0 / 0 is "
    "NaN; take each row's own"
)
def maximum_of_all_rows(scores):
    powers = (scores - scores.max()).exp()
    return _jacobian(powers / powers.sum(dim=-1, keepdim=True)).flatten(-2).norm(dim=-1)


# 2.7 cosine_attention


def cosine_attention(q, k, v, temperature):
    scores = attention.cosine_similarity(q, k) / temperature
    return scores.softmax(dim=-1) @ v


def _with_temperature():
    rng = torch.Generator().manual_seed(27)
    probes = []
    temperatures = [0.1, 0.5, 2.0, 0.25, 0.0005]  # e^(cosine / 0.0005) overflows
    for (q, k), temperature in zip(queries_and_keys(seed=28), temperatures, strict=True):
        v = _normal(rng, *k.shape[:-1], k.shape[-1] - 1, dtype=k.dtype)
        probes.append((q, k, v, temperature))
    q, k, v, _ = (probes[0][0].clone(), probes[0][1].clone(), probes[0][2], None)
    q[0], k[2] = 0, 0
    return [*probes, (200 * q, k, v, 0.2)]


bounded = Exercise("2.7", cosine_attention, _with_temperature, names="L d_v")


def _mix(scores, v):
    return scores.softmax(dim=-1) @ v


@bounded.mistake("q and k are not normalised: the length of a query still changes the weights")
def not_normalised(q, k, v, temperature):
    return _mix(dot_product_scores(q, k) / temperature, v)


@bounded.mistake("only q is normalised: a long key still wins by its length")
def only_queries_normalised(q, k, v, temperature):
    return _mix(dot_product_scores(F.normalize(q, dim=-1), k) / temperature, v)


@bounded.mistake("only k is normalised: a long query still sharpens its weights")
def only_keys_normalised(q, k, v, temperature):
    return _mix(dot_product_scores(q, F.normalize(k, dim=-1)) / temperature, v)


@bounded.mistake("multiplied by the temperature where it should be divided: small means sharp")
def multiplied_by_temperature(q, k, v, temperature):
    return _mix(attention.cosine_similarity(q, k) * temperature, v)


@bounded.mistake(
    "divided by √d_k as well: a cosine does not grow with the width, the temperature is enough"
)
def divided_by_root_d_k_as_well(q, k, v, temperature):
    return _mix(attention.cosine_similarity(q, k) / temperature / q.shape[-1] ** 0.5, v)


@bounded.mistake(
    "the temperature is not used (or cancels: dividing before normalising does nothing)"
)
def temperature_not_used(q, k, v, temperature):
    return _mix(attention.cosine_similarity(q, k), v)


@bounded.mistake("the temperature comes after softmax: divide the scores, not the weights")
def temperature_after_softmax(q, k, v, temperature):
    return _mix(attention.cosine_similarity(q, k), v) / temperature


@bounded.mistake("the values are normalised too: only the comparison is by direction")
def values_normalised(q, k, v, temperature):
    return cosine_attention(q, k, F.normalize(v, dim=-1), temperature)


@bounded.mistake("normalised over the wrong dimension: a vector is a row, dim=-1")
def normalised_over_positions(q, k, v, temperature):
    scores = dot_product_scores(F.normalize(q, dim=-2), F.normalize(k, dim=-2))
    return _mix(scores / temperature, v)


@bounded.mistake(
    "right for matrices, wrong with leading dimensions: F.normalize takes dimension 1 unless told "
    "dim=-1"
)
def lengths_along_dimension_1(q, k, v, temperature):
    return _mix(dot_product_scores(F.normalize(q), F.normalize(k)) / temperature, v)


@bounded.mistake(
    "right for matrices; with leading dimensions softmax runs over dimension 1, as F.softmax does "
    "without dim: write dim=-1"
)
def weights_along_dimension_1(q, k, v, temperature):
    return (attention.cosine_similarity(q, k) / temperature).softmax(dim=1) @ v


@bounded.mistake(
    "at a small temperature e^(cosine / temperature) is infinite or 0, and the weights are NaN; "
    "torch.softmax takes care of it, exp / sum does not"
)
def powers_overflow(q, k, v, temperature):
    powers = (attention.cosine_similarity(q, k) / temperature).exp()
    return powers @ v / powers.sum(dim=-1, keepdim=True)


@bounded.mistake("softmax runs over the queries: weights sum to 1 over the keys, dim=-1")
def softmax_along_the_queries(q, k, v, temperature):
    return (attention.cosine_similarity(q, k) / temperature).softmax(dim=-2) @ v


@bounded.mistake("softmax is missing: cosines of any sign are no weights")
def no_softmax_over_cosines(q, k, v, temperature):
    return attention.cosine_similarity(q, k) / temperature @ v


@bounded.mistake(
    "a zero vector gives NaN (0 / 0): give its length a lower limit, as F.normalize does"
)
def zero_vector_breaks_it(q, k, v, temperature):
    q, k = (t / t.norm(dim=-1, keepdim=True) for t in (q, k))
    return _mix(dot_product_scores(q, k) / temperature, v)


@bounded.mistake("those are the weights; multiply them with the values")
def weights_not_applied(q, k, v, temperature):
    return (attention.cosine_similarity(q, k) / temperature).softmax(dim=-1)
