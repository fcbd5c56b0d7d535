"""Lesson 01's exercises: dot products, other metrics, soft lookup, self-attention."""

import torch
import torch.nn.functional as F

from course_utils import attention
from course_utils.attention import dot_product_scores, euclidean_distance
from course_utils.checks.compare import read
from course_utils.checks.engine import Complaint, Exercise, call_with_clones
from course_utils.checks.layouts import layer_outputs
from course_utils.checks.probes import queries_and_keys

# 1.1 dot


def dot(a, b):
    total = 0.0
    for i in range(len(a)):
        total = total + a[i] * b[i]
    return total


def _pairs_of_vectors():
    rng = torch.Generator().manual_seed(1)
    pairs = [tuple(torch.randn(2, d, generator=rng, dtype=torch.float64)) for d in (3, 8, 5)]
    return [*pairs, (torch.tensor([1.0, -2.0]), torch.tensor([3.0, 4.0]))]


dot_product = Exercise("1.1", dot, _pairs_of_vectors)


@dot_product.mistake("those are the products, one for each position; add them up to one number")
def products_not_added(a, b):
    return a * b


@dot_product.mistake("that is the mean of the products; a dot product is their sum")
def mean_of_products(a, b):
    return (a * b).mean()


@dot_product.mistake("that multiplies the two sums; multiply position by position first, then add")
def product_of_sums(a, b):
    return a.sum() * b.sum()


@dot_product.mistake("only the last product is left: add to the total instead of replacing it")
def total_replaced(a, b):
    return a[-1] * b[-1]


@dot_product.mistake("only the first product is there: `return` stands inside the loop")
def returned_too_early(a, b):
    return a[0] * b[0]


@dot_product.mistake("the first position is left out: Python counts from 0")
def first_left_out(a, b):
    return (a[1:] * b[1:]).sum()


@dot_product.mistake("the last position is left out: range(n) already stops before n")
def last_left_out(a, b):
    return (a[:-1] * b[:-1]).sum()


@dot_product.mistake("the numbers are added where they should be multiplied: a[i] * b[i]")
def added_instead_of_multiplied(a, b):
    return (a + b).sum()


@dot_product.mistake("negative products lost their sign; opposite directions must count against")
def absolute_values(a, b):
    return (a * b).abs().sum()


@dot_product.mistake("that is the cosine: the right sum, but divided by both lengths")
def cosine_of_the_angle(a, b):
    return (a * b).sum() / (a.norm() * b.norm())


@dot_product.mistake("the total lost its sign; opposite directions must give a negative number")
def total_without_sign(a, b):
    return (a * b).sum().abs()


@dot_product.mistake("that is the squared distance; a dot product multiplies, it does not subtract")
def squared_differences(a, b):
    return (a - b).square().sum()


@dot_product.mistake("the products are multiplied with each other; add them up")
def products_multiplied(a, b):
    return (a * b).prod()


@dot_product.mistake(
    "the right number, but in a tensor of shape (1,): start the total at 0.0, not at "
    "torch.zeros(1), and sum without keepdim"
)
def number_in_a_list_of_one(a, b):
    return (a @ b)[None]


# 1.2 dot_product_scores

scores = Exercise("1.2", dot_product_scores, queries_and_keys, names="L S")


@scores.mistake("right numbers, but transposed: rows are queries, columns are keys")
def transposed(q, k):
    return k @ q.transpose(-2, -1)


@scores.mistake("k is not transposed: q @ k would pair the width d of q with the number S of keys")
def key_not_transposed(q, k):
    return q @ k


@scores.mistake("q * k multiplies entry by entry; every query must meet every key")
def entry_by_entry(q, k):
    return q * k


@scores.mistake(
    "right for matrices, but not with leading dimensions such as a batch: .T turns all of them "
    "around, loops and einsum('ld,sd->ls') know only two; use .transpose(-2, -1)"
)
def all_dimensions_turned(q, k):
    return q @ (k.T if k.ndim == 2 else k.permute(*reversed(range(k.ndim))))


@scores.mistake(
    "einsum wants a letter for each dimension; there may be two, three or four: `...` stands for "
    "any leading ones"
)
def three_letters_in_einsum(q, k):
    return torch.einsum("bld,bsd->bls", q, k)


@scores.mistake("right products, but divided by √d: that comes in lesson 02, here plain products")
def divided_by_root_d(q, k):
    return dot_product_scores(q, k) / q.shape[-1] ** 0.5


@scores.mistake("right products, but divided by d: a mean where a sum is asked")
def mean_in_place_of_sum(q, k):
    return dot_product_scores(q, k) / q.shape[-1]


@scores.mistake("those are weights already; the scores are asked, before any softmax")
def softmax_applied(q, k):
    return dot_product_scores(q, k).softmax(dim=-1)


@scores.mistake("that is the cosine: right products, but divided by the lengths")
def cosine(q, k):
    return dot_product_scores(F.normalize(q, dim=-1), F.normalize(k, dim=-1))


@scores.mistake(
    "right for a single matrix, but it mixes different batch items: leading dimensions "
    "must stay apart"
)
def mixes_batch_items(q, k):
    return q @ k.flatten(0, -2).T


@scores.mistake("queries are compared with queries: the second factor should be k")
def queries_with_queries(q, k):
    return q @ q.transpose(-2, -1)


@scores.mistake("keys are compared with keys: the first factor should be q")
def keys_with_keys(q, k):
    return k @ k.transpose(-2, -1)


@scores.mistake(
    "right shape, wrong numbers: reshape and view re-read the entries of k in order, they do not "
    "exchange rows and columns; use .transpose(-2, -1)"
)
def reshaped_not_transposed(q, k):
    return q @ k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])


@scores.mistake("negative products lost their sign; opposite directions must count against")
def absolute_scores(q, k):
    return dot_product_scores(q, k).abs()


# 1.3 cosine_similarity


def _with_zero_vector():
    q, k = (t.clone() for t in queries_and_keys(seed=2)[0])
    q[1], k[3] = 0, 0
    return [*queries_and_keys(seed=1), (q, k)]


cosines = Exercise("1.3", attention.cosine_similarity, _with_zero_vector, names="L S")


@cosines.mistake("that is the dot product: divide by the lengths of both vectors")
def not_divided(q, k):
    return dot_product_scores(q, k)


@cosines.mistake("only the query's length is divided out; divide by the key's as well")
def only_query_normalised(q, k):
    return dot_product_scores(F.normalize(q, dim=-1), k)


@cosines.mistake("only the key's length is divided out; divide by the query's as well")
def only_key_normalised(q, k):
    return dot_product_scores(q, F.normalize(k, dim=-1))


@cosines.mistake("a zero vector gives NaN (0 / 0): give its length a lower limit, such as 1e-8")
def zero_vector_gives_nan(q, k):
    lengths = q.norm(dim=-1)[..., :, None] * k.norm(dim=-1)[..., None, :]
    return dot_product_scores(q, k) / lengths


@cosines.mistake("divided by the squared lengths: a square root is missing")
def squared_lengths(q, k):
    squares = q.square().sum(-1)[..., :, None] * k.square().sum(-1)[..., None, :]
    return dot_product_scores(q, k) / squares.clamp(min=1e-12)


@cosines.mistake("the lengths run over the wrong dimension: a vector is a row, dim=-1")
def length_of_columns(q, k):
    return dot_product_scores(F.normalize(q, dim=-2), F.normalize(k, dim=-2))


@cosines.mistake(
    "one length for the whole matrix: each row has its own, norm(dim=-1, keepdim=True)"
)
def one_length_for_all(q, k):
    return dot_product_scores(q, k) / (q.norm() * k.norm())


@cosines.mistake(
    "divided by the sum of absolute values; a length is the root of the sum of squares"
)
def sum_of_absolute_values(q, k):
    return dot_product_scores(F.normalize(q, p=1, dim=-1), F.normalize(k, p=1, dim=-1))


@cosines.mistake("that is 1 - cosine, a distance; here large must mean similar")
def cosine_distance(q, k):
    return 1 - attention.cosine_similarity(q, k)


@cosines.mistake("right numbers, but transposed: rows are queries, columns are keys")
def transposed_cosines(q, k):
    return attention.cosine_similarity(k, q)


@cosines.mistake(
    "row i of q meets only row i of k, be it in F.cosine_similarity or in a product of lengths: "
    "give what belongs to q an axis for the keys, what belongs to k one for the queries"
)
def rows_paired_one_to_one(q, k):
    return F.cosine_similarity(q, k, dim=-1)


@cosines.mistake(
    "right for matrices, wrong with leading dimensions: F.normalize works along dimension 1 unless "
    "told dim=-1"
)
def normalised_along_dimension_1(q, k):
    return dot_product_scores(F.normalize(q, dim=1), F.normalize(k, dim=1))


@cosines.mistake("that is the angle; its cosine is asked, without the acos")
def angle_not_cosine(q, k):
    return attention.cosine_similarity(q, k).clamp(-1, 1).acos()


# 1.4 euclidean_distance


def _with_coinciding_points():
    # Wide enough that ‖q‖² and q·q are rounded differently.
    same = torch.randn(40, 64, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    return [*queries_and_keys(seed=3), (same, same[:30].clone())]


def _without_nan(answer, q, k):
    """Call the answer; NaN has one cause here, and shows in other places on each machine."""
    results = call_with_clones(answer, q, k)
    distances = read(results[0])
    if distances is not None and distances.isnan().any():
        raise Complaint(
            "root of a negative",
            "a distance came out as NaN: where q = k, rounding makes the square a little negative; "
            "clamp(min=0) before the root",
        )
    return results


distances = Exercise(
    "1.4", euclidean_distance, _with_coinciding_points, names="L S", run=_without_nan
)


def _squared(q, k, cross=-2.0):
    squares = q.square().sum(-1)[..., :, None] + k.square().sum(-1)[..., None, :]
    return squares + cross * dot_product_scores(q, k)


@distances.mistake("that is the squared distance: take the square root")
def squared_distance(q, k):
    return euclidean_distance(q, k).square()


@distances.mistake("the sign of the cross term: ‖q−k‖² = ‖q‖² + ‖k‖² − 2 q·k")
def plus_cross_term(q, k):
    return _squared(q, k, cross=2.0).clamp(min=0).sqrt()


@distances.mistake("the cross term counts twice: ‖q−k‖² = ‖q‖² + ‖k‖² − 2 q·k")
def cross_term_once(q, k):
    return _squared(q, k, cross=-1.0).clamp(min=0).sqrt()


@distances.mistake("that is the sum of absolute differences; square them, add, take the root")
def absolute_differences(q, k):
    return (q[..., :, None, :] - k[..., None, :, :]).abs().sum(-1)


@distances.mistake(
    "that takes the mean of the squared differences; Euclid's distance takes their sum"
)
def root_of_the_mean(q, k):
    return euclidean_distance(q, k) / q.shape[-1] ** 0.5


@distances.mistake("the sign is turned: a distance is never negative, and small means near")
def negative_distance(q, k):
    return -euclidean_distance(q, k)


@distances.mistake("the differences are added before they are squared, so that they cancel")
def added_before_squaring(q, k):
    return (q[..., :, None, :] - k[..., None, :, :]).sum(-1).abs()


@distances.mistake("right numbers, but transposed: rows are queries, columns are keys")
def transposed_distances(q, k):
    return euclidean_distance(k, q)


@distances.mistake("that compares lengths alone, ‖q‖ − ‖k‖; the length of the difference is asked")
def difference_of_lengths(q, k):
    return (q.norm(dim=-1)[..., :, None] - k.norm(dim=-1)[..., None, :]).abs()


@distances.mistake(
    "row i of q meets only row i of k, be it in q - k or in ‖q‖² + ‖k‖²: give what belongs to q an "
    "axis for the keys, what belongs to k one for the queries"
)
def row_minus_row(q, k):
    return (q - k).norm(dim=-1)


@distances.mistake("‖k‖² is missing: ‖q−k‖² = ‖q‖² + ‖k‖² − 2 q·k")
def key_square_missing(q, k):
    squares = q.square().sum(-1, keepdim=True) - 2 * dot_product_scores(q, k)
    return squares.clamp(min=0).sqrt()


@distances.mistake("‖q‖² is missing: ‖q−k‖² = ‖q‖² + ‖k‖² − 2 q·k")
def query_square_missing(q, k):
    squares = k.square().sum(-1)[..., None, :] - 2 * dot_product_scores(q, k)
    return squares.clamp(min=0).sqrt()


# 1.5 nearest_key

METRICS = {
    "dot": dot_product_scores,
    "cosine": attention.cosine_similarity,
    "euclidean": lambda q, k: -euclidean_distance(q, k),
}


def nearest_key(q, k, metric):
    return METRICS[metric](q, k).argmax(dim=-1)


def _each_metric():
    rng = torch.Generator().manual_seed(5)
    sizes = 10 ** torch.linspace(-1, 1, 9)[:, None]  # keys of very different lengths: no agreement
    pairs = [
        (torch.randn(6, d, generator=rng), sizes * torch.randn(9, d, generator=rng)) for d in (3, 5)
    ]
    pairs += [tuple(torch.randn(B, n, 4, generator=rng) for n in (3, 5)) for B in (2, 1)]
    with_zero = (torch.randn(4, 3, generator=rng), torch.randn(6, 3, generator=rng))
    with_zero[1][2] = 0
    return [(q, k, metric) for q, k in [*pairs, with_zero] for metric in METRICS]


VALUES_NOT_POSITIONS = "those are the best values; their positions are asked: argmax, not max"
POSITIONS_AS_FLOATS = "positions are whole numbers: return integers, as argmax gives them"


def _positions(answer, *args):
    """Call the answer; floating-point numbers are no positions."""
    results = call_with_clones(answer, *args)
    numbers = read(results[0])
    if numbers is not None and results[0].is_floating_point():
        if (numbers == numbers.round()).all():
            raise Complaint("positions as floats", POSITIONS_AS_FLOATS)
        raise Complaint("value not position", VALUES_NOT_POSITIONS)
    return results


nearest = Exercise("1.5", nearest_key, _each_metric, names="L", run=_positions)


@nearest.mistake(
    "right for dot and cosine, but by distance it finds the farthest key: small is near"
)
def farthest_by_distance(q, k, metric):
    sign = -1 if metric == "euclidean" else 1
    return (sign * METRICS[metric](q, k)).argmax(dim=-1)


@nearest.mistake(
    "right for the distance, but by dot product, by cosine or by both it finds the least similar "
    "key: large is near there"
)
def smallest_for_all(q, k, metric):
    sign = 1 if metric == "euclidean" else -1
    return (sign * METRICS[metric](q, k)).argmax(dim=-1)


@nearest.mistake("it always finds the opposite: argmin and argmax are the wrong way round")
def all_reversed(q, k, metric):
    return METRICS[metric](q, k).argmin(dim=-1)


@nearest.mistake("that is the best query for each key; for each query look along its row, dim=-1")
def query_for_each_key(q, k, metric):
    return METRICS[metric](q, k).argmax(dim=-2)


@nearest.mistake(VALUES_NOT_POSITIONS)
def value_not_position(q, k, metric):
    return METRICS[metric](q, k).amax(dim=-1)


@nearest.mistake(POSITIONS_AS_FLOATS)
def positions_as_floats(q, k, metric):
    return nearest_key(q, k, metric).float()


@nearest.mistake(
    "a zero key has cosine 0 / 0 = NaN, and argmax takes NaN for the largest: give its length a "
    "lower limit, as in 1.3"
)
def zero_key_wins(q, k, metric):
    if metric == "cosine":
        k = k / k.norm(dim=-1, keepdim=True)
    return METRICS["dot" if metric == "cosine" else metric](q, k).argmax(dim=-1)


@nearest.mistake("it uses the dot product whatever the metric says")
def always_dot(q, k, metric):
    return nearest_key(q, k, "dot")


@nearest.mistake("it uses the cosine whatever the metric says")
def always_cosine(q, k, metric):
    return nearest_key(q, k, "cosine")


@nearest.mistake("it uses the distance whatever the metric says")
def always_euclidean(q, k, metric):
    return nearest_key(q, k, "euclidean")


@nearest.mistake(
    "for the cosine only the query's length is divided out: that ranks keys as the dot product does"
)
def cosine_ranked_as_dot(q, k, metric):
    return nearest_key(q, k, "dot" if metric == "cosine" else metric)


@nearest.mistake("one position for the whole matrix: argmax needs dim=-1 to work row by row")
def one_for_the_whole_matrix(q, k, metric):
    return METRICS[metric](q, k).argmax()


# 1.6 disagreement


def disagreement():
    q = torch.tensor([1.0, 0.0])
    keys = torch.tensor([[9.0, 9.0], [3.0, 0.1], [1.0, 0.5]])
    return q, keys


def _winners(answer):
    """Return which of three keys each metric prefers, as [[dot, cosine, distance]]."""
    made = answer()
    if not (isinstance(made, tuple | list) and len(made) == 2):
        raise Complaint("not a pair", "return two tensors: the query q and the three keys")
    q, keys = map(read, made)
    if q is None or keys is None:
        raise Complaint("not tensors", "q and keys must be tensors: torch.tensor([...])")
    if q.shape != (2,) or keys.shape != (3, 2):
        got = f"{tuple(q.shape)} and {tuple(keys.shape)}"
        raise Complaint("wrong shapes", f"q must have shape (2,) and keys (3, 2), got {got}")
    if not (q.isfinite().all() and keys.isfinite().all()):
        raise Complaint("not finite", "q and keys must be finite numbers")
    if (q == 0).all() or (keys == 0).all(dim=-1).any():
        raise Complaint("a zero vector", "a zero vector has no direction, so no cosine; move it")
    near = torch.stack([metric(q[None], keys)[0] for metric in METRICS.values()])  # (3, 3)
    best, second = near.topk(2, dim=-1).values.T
    # float32, in which the learner may look at them, rounds sums of two by up to 3 · 2**-24 < 2e-7
    if (best - second < 1e-6 * best.abs().clamp(min=1)).any():
        raise Complaint("a tie", "two keys are equally near by one of the metrics; move one")
    dot_key, cosine_key, distance_key = near.argmax(dim=-1).tolist()
    pattern = [dot_key == cosine_key, cosine_key == distance_key, dot_key == distance_key]
    return [torch.tensor(pattern)]


disagree = Exercise("1.6", disagreement, lambda: [()], run=_winners)


def _answer(q, keys):
    return lambda: (torch.tensor(q), torch.tensor(keys))


_UNIT_KEYS = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
for _name, _hint, _keys in [
    (
        "all three agree",
        "all three metrics choose the same key; a long key far off the direction "
        "of q wins by dot product alone",
        _UNIT_KEYS,
    ),
    (
        "dot and cosine agree",
        "dot product and cosine choose the same key; make another key longer, "
        "so that it wins by dot product alone",
        [[9.0, 0.1], [1.0, 0.5], [-1.0, 1.0]],
    ),
    (
        "dot and distance agree",
        "dot product and distance choose the same key; a key near the tip of "
        "q should not be the longest",
        [[1.0, 0.3], [0.1, 0.0], [-1.0, 1.0]],
    ),
    (
        "cosine and distance agree",
        "cosine and distance choose the same key; let the key with the "
        "best direction be far too long or far too short",
        [[9.0, 9.0], [1.0, 0.1], [-1.0, 1.0]],
    ),
]:
    _wrong = _answer([1.0, 0.0], _keys)
    _wrong.__name__ = _name
    disagree.mistake(_hint)(_wrong)


# 1.7 soft_lookup


def soft_lookup(q, k, v):
    return dot_product_scores(q, k).softmax(dim=-1) @ v


def _queries_keys_values():
    rng = torch.Generator().manual_seed(7)
    return [
        (q, k, torch.randn(*k.shape[:-1], k.shape[-1] - 1, generator=rng, dtype=k.dtype))
        for q, k in queries_and_keys(seed=6)
    ]


lookup = Exercise("1.7", soft_lookup, _queries_keys_values, names="L d_v")


@lookup.mistake(
    "softmax runs over the queries: each query's weights over the keys must sum to 1, dim=-1"
)
def softmax_over_queries(q, k, v):
    return dot_product_scores(q, k).softmax(dim=-2) @ v


@lookup.mistake("the scores are used as they are: turn them into weights with softmax first")
def no_softmax(q, k, v):
    return dot_product_scores(q, k) @ v


@lookup.mistake("that is a hard lookup, the best key's value alone; a soft one mixes by softmax")
def hard_lookup(q, k, v):
    best = dot_product_scores(q, k).argmax(dim=-1, keepdim=True)
    return v.gather(-2, best.expand(*best.shape[:-1], v.shape[-1]))


@lookup.mistake("those are the weights; multiply them with the values")
def weights_returned(q, k, v):
    return dot_product_scores(q, k).softmax(dim=-1)


@lookup.mistake("the keys are mixed in place of the values: keys are matched, values handed over")
def keys_mixed(q, k, v):
    return dot_product_scores(q, k).softmax(dim=-1) @ k


@lookup.mistake("right, but for scores divided by √d: that comes in lesson 02, here plain products")
def scaled_scores(q, k, v):
    return (dot_product_scores(q, k) / q.shape[-1] ** 0.5).softmax(dim=-1) @ v


@lookup.mistake("every value has the same weight, whatever the query asks")
def plain_average(q, k, v):
    return v.mean(dim=-2, keepdim=True).expand(*q.shape[:-1], v.shape[-1])


@lookup.mistake(
    "scores divided by their sum are no weights: with negative scores they leave 0..1; "
    "exp comes first, as in softmax"
)
def divided_without_exp(q, k, v):
    scores = dot_product_scores(q, k)
    return scores / scores.sum(dim=-1, keepdim=True) @ v


@lookup.mistake("exp is there, but the weights do not sum to 1: divide by their sum over the keys")
def exp_not_normalised(q, k, v):
    return dot_product_scores(q, k).exp() @ v


@lookup.mistake("softmax runs over all pairs at once: every query needs weights of its own, dim=-1")
def softmax_over_all_pairs(q, k, v):
    scores = dot_product_scores(q, k)
    return scores.flatten(-2).softmax(dim=-1).view_as(scores) @ v


@lookup.mistake(
    "right for matrices; with leading dimensions softmax runs over dimension 1 (which F.softmax "
    "without dim does too): write dim=-1"
)
def softmax_over_dimension_1(q, k, v):
    return dot_product_scores(q, k).softmax(dim=1) @ v


@lookup.mistake("scores are divided by d before the softmax; here plain products are asked")
def scores_divided_by_d(q, k, v):
    return (dot_product_scores(q, k) / q.shape[-1]).softmax(dim=-1) @ v


@lookup.mistake(
    "sigmoid makes each weight on its own, so they do not sum to 1; softmax shares 1 among keys"
)
def sigmoid_in_place_of_softmax(q, k, v):
    return dot_product_scores(q, k).sigmoid() @ v


@lookup.mistake("relu drops negative scores and does not make weights that sum to 1; use softmax")
def relu_in_place_of_softmax(q, k, v):
    return dot_product_scores(q, k).relu() @ v


@lookup.mistake("softmax once too often: the output is a mixture of values, not a distribution")
def softmax_of_the_output(q, k, v):
    return soft_lookup(q, k, v).softmax(dim=-1)


@lookup.mistake("the weights come from distances; dot products are asked")
def scored_by_distance(q, k, v):
    return (-euclidean_distance(q, k)).softmax(dim=-1) @ v


# 1.8 project_qkv


def project_qkv(x, W_q, W_k, W_v):
    return x @ W_q, x @ W_k, x @ W_v


def _inputs_and_matrices():
    rng = torch.Generator().manual_seed(8)

    def normal(*shape, dtype=torch.float64):
        return torch.randn(*shape, generator=rng, dtype=dtype)

    def matrices(d_model, d_k, d_v, **kind):
        return (
            normal(d_model, d_k, **kind),
            normal(d_model, d_k, **kind),
            normal(d_model, d_v, **kind),
        )

    return [
        (normal(5, 6), *matrices(6, 4, 3)),
        (normal(2, 3, 5), *matrices(5, 2, 4)),
        (normal(4, 3, dtype=torch.float32), *matrices(3, 5, 2, dtype=torch.float32)),
    ]


projections = Exercise("1.8", project_qkv, _inputs_and_matrices, names="L d_k|L d_k|L d_v")


@projections.mistake("the matrices are on the left: rows of x are tokens, so x @ W")
def matrix_on_the_left(x, W_q, W_k, W_v):
    return W_q @ x, W_k @ x, W_v @ x


@projections.mistake(
    "these W are (d_model, d_k) and need no transpose; nn.Linear stores its the other way round"
)
def matrices_transposed(x, W_q, W_k, W_v):
    return F.linear(x, W_q), F.linear(x, W_k), F.linear(x, W_v)


@projections.mistake("the values come from W_k: values have a matrix of their own, W_v")
def values_from_keys(x, W_q, W_k, W_v):
    return x @ W_q, x @ W_k, x @ W_k


@projections.mistake(
    "W_v meets the keys, which are projected already: all three are projections of x"
)
def values_projected_from_keys(x, W_q, W_k, W_v):
    k = x @ W_k
    return x @ W_q, k, k @ W_v


@projections.mistake("queries and keys come from the same matrix: keys need W_k")
def keys_from_queries(x, W_q, W_k, W_v):
    return x @ W_q, x @ W_q, x @ W_v


@projections.mistake("the order is query, key, value: q and k are swapped")
def query_and_key_swapped(x, W_q, W_k, W_v):
    return x @ W_k, x @ W_q, x @ W_v


@projections.mistake("the order is query, key, value: the value is not last")
def value_not_last(x, W_q, W_k, W_v):
    return x @ W_v, x @ W_k, x @ W_q


@projections.mistake("the order is query, key, value: key and value are swapped")
def key_and_value_swapped(x, W_q, W_k, W_v):
    return x @ W_q, x @ W_v, x @ W_k


@projections.mistake(
    "three tensors are asked, not one: d_v may differ from d_k, so they do not stack"
)
def joined_into_one(x, W_q, W_k, W_v):
    return torch.cat([x @ W_q, x @ W_k, x @ W_v], dim=-1)


@projections.mistake("the values come from W_q: values have a matrix of their own, W_v")
def values_from_queries(x, W_q, W_k, W_v):
    return x @ W_q, x @ W_k, x @ W_q


@projections.mistake("only the queries are returned; return q, k, v, all three")
def only_queries(x, W_q, W_k, W_v):
    return x @ W_q


# 1.9 SelfAttention


def _widths_and_inputs():
    rng = torch.Generator().manual_seed(9)

    def probe(d_model, d_k, d_v, *leading):
        matrices = {
            "W_q": (d_k or d_model, d_model),
            "W_k": (d_k or d_model, d_model),
            "W_v": (d_v or d_k or d_model, d_model),
            "W_o": (d_model, d_v or d_k or d_model),
        }
        matrices = {name: torch.randn(*size, generator=rng) for name, size in matrices.items()}
        return (
            {"d_model": d_model, "d_k": d_k, "d_v": d_v},
            matrices,
            torch.randn(*leading, d_model, generator=rng),
        )

    return [
        probe(6, 4, 3, 5),
        probe(7, 2, 5, 2, 4),
        probe(6, 4, 4, 5),
        probe(5, None, None, 3),
        probe(6, 4, None, 5),
    ]


def _self_attention_outputs(answer, widths, matrices, x):
    """Build the learner's module, give it our matrices under every reading, and run it on x."""
    module = answer(**{name: width for name, width in widths.items() if width is not None})
    one_head = {name: (m.T if name == "W_o" else m)[None] for name, m in matrices.items()}
    try:
        return layer_outputs(module, one_head, x)
    except Exception:
        if x.ndim == 2 and _goes_through(module, one_head, x[None]):
            hint = (
                "x may come without a batch, as (L, d_model), and this fails there: count "
                "dimensions from the end, x.shape[-1] and .transpose(-2, -1), and multiply with @"
            )
            raise Complaint("wants a batch", hint) from None
        raise


def _goes_through(module, matrices, x):
    try:
        layer_outputs(module, matrices, x)
    except Exception:
        return False
    return True


self_attention = Exercise(
    "1.9",
    attention.SelfAttention,
    _widths_and_inputs,
    names="L d_model|L L",
    run=_self_attention_outputs,
)


class _Variant(attention.SelfAttention):
    """A SelfAttention with one step of the calculation done otherwise."""

    def scores(self, q, k):
        return dot_product_scores(q, k) / q.shape[-1] ** 0.5

    def weights(self, scores):
        return scores.softmax(dim=-1)

    def result(self, mixed, weights):
        return self.W_o(mixed), weights

    def forward(self, x):
        weights = self.weights(self.scores(self.W_q(x), self.W_k(x)))
        return self.result(weights @ self.W_v(x), weights)


@self_attention.mistake("right products, but not divided by √d_k")
class not_scaled(_Variant):
    def scores(self, q, k):
        return dot_product_scores(q, k)


@self_attention.mistake("divided by d_k: the square root is missing")
class scaled_by_d_k(_Variant):
    def scores(self, q, k):
        return dot_product_scores(q, k) / q.shape[-1]


@self_attention.mistake(
    "** comes before /, so scores / d_k**1/2 divides by d_k and then by 2: write d_k**0.5"
)
class divided_by_d_k_and_by_2(_Variant):
    def scores(self, q, k):
        return dot_product_scores(q, k) / q.shape[-1] / 2


@self_attention.mistake("divided by d_k / 2, for ** comes before / in d_k**1/2: write d_k**0.5")
class divided_by_half_of_d_k(_Variant):
    def scores(self, q, k):
        return dot_product_scores(q, k) / (q.shape[-1] / 2)


@self_attention.mistake("if d_v is None it is d_k, not d_model")
class values_as_wide_as_the_model(_Variant):
    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__(d_model, d_k, d_v or d_model)


@self_attention.mistake("divided by √d_model: the scores are sums over d_k products, so √d_k")
class scaled_by_root_d_model(_Variant):
    def scores(self, q, k):
        return dot_product_scores(q, k) / self.W_q.in_features**0.5


@self_attention.mistake("divided by √d_v, the width of the values; scores are made of keys: √d_k")
class scaled_by_root_d_v(_Variant):
    def scores(self, q, k):
        return dot_product_scores(q, k) / self.W_v.out_features**0.5


@self_attention.mistake("the keys come from W_q, and W_k is not used")
class keys_made_by_W_q(_Variant):
    def forward(self, x):
        q = self.W_q(x)
        weights = self.weights(self.scores(q, q))
        return self.result(weights @ self.W_v(x), weights)


@self_attention.mistake("multiplied by √d_k where it should be divided")
class multiplied_by_root_d_k(_Variant):
    def scores(self, q, k):
        return dot_product_scores(q, k) * q.shape[-1] ** 0.5


@self_attention.mistake("scores are transposed: rows are queries, columns keys, q @ kᵀ")
class keys_ask_queries(_Variant):
    def scores(self, q, k):
        return super().scores(k, q)


@self_attention.mistake(
    "softmax runs over the queries: the weights of one query must sum to 1, dim=-1"
)
class softmax_over_the_queries(_Variant):
    def weights(self, scores):
        return scores.softmax(dim=-2)


@self_attention.mistake("the scores are used as weights: softmax is missing")
class softmax_missing(_Variant):
    def weights(self, scores):
        return scores


@self_attention.mistake("right output, but the scores are returned in place of the weights")
class scores_returned(_Variant):
    def forward(self, x):
        scores = self.scores(self.W_q(x), self.W_k(x))
        return self.W_o(scores.softmax(dim=-1) @ self.W_v(x)), scores


@self_attention.mistake("W_o is there but not used: project the mixture back to d_model")
class output_not_projected(_Variant):
    def result(self, mixed, weights):
        return mixed, weights


@self_attention.mistake("return two things, output and weights, in this order")
class only_the_output(_Variant):
    def result(self, mixed, weights):
        return self.W_o(mixed)


@self_attention.mistake("output and weights are swapped: return output, weights")
class weights_first(_Variant):
    def result(self, mixed, weights):
        return weights, self.W_o(mixed)


@self_attention.mistake(
    "right for one sequence, but .T turns around all dimensions of a batch; use .transpose(-2, -1)"
)
class transposes_the_batch(_Variant):
    def scores(self, q, k):
        return q @ k.permute(*reversed(range(k.ndim))) / q.shape[-1] ** 0.5


@self_attention.mistake("divided by √L, the number of tokens; the width of the keys is meant, √d_k")
class scaled_by_root_L(_Variant):
    def scores(self, q, k):
        return dot_product_scores(q, k) / q.shape[-2] ** 0.5


@self_attention.mistake("the weights are transposed before they mix the values: weights @ v")
class weights_transposed(_Variant):
    def forward(self, x):
        weights = self.weights(self.scores(self.W_q(x), self.W_k(x)))
        return self.result(weights.transpose(-2, -1) @ self.W_v(x), weights)


@self_attention.mistake("the values are not mixed: multiply them by the weights, weights @ v")
class values_not_mixed(_Variant):
    def forward(self, x):
        weights = self.weights(self.scores(self.W_q(x), self.W_k(x)))
        return self.result(self.W_v(x), weights)


@self_attention.mistake("exp is there, but rows do not sum to 1: divide by the sum over the keys")
class weights_not_normalised(_Variant):
    def weights(self, scores):
        return scores.exp()


@self_attention.mistake(
    "divided by √d_k after the softmax, so that rows do not sum to 1: do it before"
)
class scaled_after_softmax(_Variant):
    def forward(self, x):
        q, k = self.W_q(x), self.W_k(x)
        weights = dot_product_scores(q, k).softmax(dim=-1) / q.shape[-1] ** 0.5
        return self.result(weights @ self.W_v(x), weights)


@self_attention.mistake("later tokens are masked out; here every token may see every other")
class masked_to_the_past(_Variant):
    def weights(self, scores):
        future = torch.ones_like(scores).triu(1).bool()
        return scores.masked_fill(future, -torch.inf).softmax(dim=-1)


@self_attention.mistake("the input is added to the output; no residual connection is asked here")
class input_added(_Variant):
    def forward(self, x):
        output, weights = super().forward(x)
        return x + output, weights
