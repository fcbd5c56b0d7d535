"""1.4: the distances between every query and every key, without all the differences."""

import torch

from course_utils.checks.compare import read
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import Shapes, normals, queries_and_keys
from course_utils.checks.shared_hints import TRANSPOSED


def euclidean_distance(q, k):
    q_squares = q.square().sum(dim=-1)[..., :, None]  # (..., L, 1)
    k_squares = k.square().sum(dim=-1)[..., None, :]  # (..., 1, S)
    products = q @ k.transpose(-2, -1)  # (..., L, S)
    squares = q_squares + k_squares - 2 * products  # (..., L, S)
    return squares.clamp(min=0).sqrt()


def by_einsum(q, k):
    cross = torch.einsum("...ld,...sd->...ls", q, k)
    squares = (q**2).sum(-1, keepdim=True) + (k**2).sum(-1).unsqueeze(-2) - 2 * cross
    return torch.sqrt(torch.relu(squares))


def inputs():
    normal = normals(4)
    same = normal(40, 64)  # wide enough that ‖q‖² and q·q are rounded differently
    return [
        *queries_and_keys(seed=3),
        (same, same[:30].clone()),
        (same.float(), same.float()),  # the square may come out as -1e-5, far below -1e-12
        (normal(12, 10), normal(9, 10)),
        (normal(3, 3), normal(3, 3)),  # L = S = d: whatever is paired fits
        (0.1 * normal(2, 5, 3), 0.1 * normal(2, 4, 3)),  # all near
    ]


def without_nan(answer, q, k):
    """Call the answer; NaN has one cause here, and shows in other places on each machine.

    In float32 the distance of a vector from itself is 0, or the root of a rounding error: any.
    """
    results = call_with_clones(answer, q, k)
    distances, right = read(results[0]), euclidean_distance(q, k)
    if distances is None or distances.shape != right.shape:
        return results
    if not distances.isnan().any():
        if q.dtype == torch.float32 and (right < 0.05).any():
            return [distances.masked_fill((right < 0.05) & (distances < 0.05), 0)]
        return results
    if right[distances.isnan()].max() < 0.05:
        hint = (
            "a distance came out as NaN: where q = k, rounding makes the square a little negative; "
            "clamp(min=0) before the root (a number such as 1e-12 added is too little)"
        )
    else:
        hint = (
            "a distance came out as NaN, the root of a negative number: ‖q‖² + ‖k‖² − 2 q·k is a "
            "square; are both lengths in it, and squared?"
        )
    raise NamedMistake("root of a negative", hint)


def without_differences(answer, q, k):
    """Call the answer; complain if it is right, but makes the difference of every pair."""
    with Shapes() as shapes:
        results = without_nan(answer, q, k)
    sizes = sorted([q.shape[-2], k.shape[-2], q.shape[-1]])
    if sizes[0] > 1 and any(sorted(shape[-3:]) == sizes for shape in shapes.results):
        hint = (
            "right numbers, but on the way it makes the differences of all pairs, L × S × d "
            "numbers, as the lesson does. Nothing larger than (..., L, S) is asked: write "
            "‖q − k‖² out, and every term has one number for a query, a key or a pair"
        )
        raise NamedMistake("makes all differences", hint, results)
    return results


MISTAKES = [
    ("squared distance", "that is the squared distance: take the square root",
     (".clamp(min=0).sqrt()", "")),
    ("plus cross term", "the sign of the cross term: ‖q−k‖² = ‖q‖² + ‖k‖² − 2 q·k",
     ("k_squares - 2", "k_squares + 2")),
    ("cross term once", "a 2 is missing before the cross term: ‖q−k‖² = ‖q‖² + ‖k‖² − 2 q·k",
     ("- 2 * products", "- products")),
    ("absolute differences",
     "that is the sum of absolute differences; square them, add, take the root",
     "(q[..., :, None, :] - k[..., None, :, :]).abs().sum(-1)"),
    ("root of the mean",
     "that takes the mean of the squared differences; Euclid's distance takes their sum",
     (".sqrt()", ".div(q.shape[-1]).sqrt()")),
    ("negative distance", "the sign is turned: a distance is never negative, and small means near",
     ("return squares", "return -squares")),
    ("added before squaring", "the differences are added before they are squared, so that they "
     "cancel", "(q[..., :, None, :] - k[..., None, :, :]).sum(-1).abs()"),
    ("transposed distances", TRANSPOSED, (".sqrt()", ".sqrt().mT")),
    ("difference of lengths",
     "that compares lengths alone, ‖q‖ − ‖k‖; the length of the difference is asked",
     "(q.norm(dim=-1)[..., :, None] - k.norm(dim=-1)[..., None, :]).abs()"),
    ("row minus row",
     "row i of q meets only row i of k: every query must meet every key, as in q @ kᵀ; the squares "
     "of the queries need an axis for the keys, [..., :, None], those of the keys one for the "
     "queries, [..., None, :]", "(q - k).norm(dim=-1)"),
    ("key square missing", "‖k‖² is missing: ‖q−k‖² = ‖q‖² + ‖k‖² − 2 q·k",
     ("q_squares + k_squares", "q_squares")),
    ("query square missing", "‖q‖² is missing: ‖q−k‖² = ‖q‖² + ‖k‖² − 2 q·k",
     ("q_squares + k_squares", "k_squares")),
    ("lengths taken for 1",
     "that is the distance of vectors of length 1, 2 − 2 q·k; the lengths may be any: ‖q‖² + ‖k‖² "
     "− 2 q·k", ("q_squares + k_squares", "2")),
    ("half in place of the root", "half of the square is returned: the root is asked",
     (".sqrt()", " / 2")),
    ("lengths subtracted", "that is ‖q‖ − ‖k‖; the length of the difference is asked",
     "q.norm(dim=-1)[..., :, None] - k.norm(dim=-1)[..., None, :]"),
    ("lengths not squared", "the lengths are not squared: ‖q−k‖² = ‖q‖² + ‖k‖² − 2 q·k",
     ("q.square().sum(dim=-1)", "q.norm(dim=-1)"), ("k.square().sum(dim=-1)", "k.norm(dim=-1)")),
]  # fmt: skip

exercise = Exercise(
    "1.4", euclidean_distance, inputs, MISTAKES, names="L S", run=without_differences,
    also_right=[by_einsum, torch.cdist],
)  # fmt: skip
