"""1.4: the distance of every query from every key, without the differences of all pairs."""

import tracemalloc

import torch
import torch.nn.functional as F  # noqa: F401 - of one mistake
from torch.utils._python_dispatch import TorchDispatchMode

from course_utils.checks.compare import read
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import normals, queries_and_keys
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
        (same.float(), same.float()),  # the square may become -1e-5, far below -1e-12
        (normal(12, 10), normal(9, 10)),
        (normal(3, 3), normal(3, 3)),  # L = S = d: every product fits
        (0.1 * normal(2, 5, 3), 0.1 * normal(2, 4, 3)),  # all close together
    ]


CDIST = "aten::_cdist_forward", "aten::_euclidean_dist"  # for small inputs, and for large ones


class Made(TorchDispatchMode):
    """Collect the shapes of all tensors that are made, inside PyTorch's own functions as well, and
    whether one of these computes distances."""

    def __init__(self):
        super().__init__()
        self.shapes, self.by_cdist = [], False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.by_cdist = self.by_cdist or func.name() in CDIST
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not func.is_view:
            self.shapes.append(result.shape)
        return result


def without_nan(results, q, k):
    """Return the results of an answer; raise NamedMistake if a distance is NaN.

    Which distances are NaN differs between machines. In float32 the distance of a vector from
    itself may be the square root of a rounding error, so it counts as 0.
    """
    right = (q[..., :, None, :] - k[..., None, :, :]).norm(dim=-1)
    distances = read(results[0])
    if distances is None or distances.shape != right.shape:
        return results
    if not distances.isnan().any():
        if q.dtype == torch.float32 and (right < 0.05).any():
            return [distances.masked_fill((right < 0.05) & (distances < 0.05), 0)]
        return results
    if right[distances.isnan()].max() < 0.05:
        hint = (
            "Your distance is NaN where a query equals a key, or nearly so. There, rounding can "
            "make the squared distance slightly negative, and the square root of a negative number "
            "is NaN. Use clamp(min=0) before the square root. (Adding a small number such as 1e-12 "
            "is not enough.)"
        )
    else:
        hint = (
            "Your result contains NaN. The square root of a negative number is NaN, but ‖q‖² + "
            "‖k‖² − 2 q·k is never negative, except for rounding. Check that you take the root "
            "of this sum, with both lengths squared."
        )
    raise NamedMistake("root of a negative", hint)


def without_differences(answer, q, k):
    """Call the answer; raise NamedMistake if it makes L × S × d numbers anywhere, or uses cdist."""
    folded = q.shape[:-1].numel() * k.shape[-2]  # as many as a whole batch of L × S has
    differences = folded * q.shape[-1]
    if differences > 20_000:  # of fewer, other memory would be more, and tracing is slow
        tracemalloc.start()
    try:
        with Made() as made:
            results = call_with_clones(answer, q, k)
        _, peak = tracemalloc.get_traced_memory()  # bytes of NumPy's arrays, but not of tensors
    finally:
        tracemalloc.stop()
    results = without_nan(results, q, k)
    if made.by_cdist:
        hint = (
            "Your distances are correct, but `cdist` computes them. Write your own function, for "
            "example with ‖q − k‖² = ‖q‖² + ‖k‖² − 2 q·k."
        )
        raise NamedMistake("uses cdist", hint, results)
    sizes = sorted([q.shape[-2], k.shape[-2], q.shape[-1]])
    large = [shape for shape in made.shapes if sorted(shape[-3:]) == sizes]
    as_arrays = peak > 6 * differences  # of 8 bytes each
    if as_arrays or sizes[0] > 1 and any(shape.numel() != folded for shape in large):
        hint = (
            "Your distances are correct, but your code makes L × S × d numbers along the way, such "
            "as the differences of all pairs. Make no tensor of that size. Multiply out ‖q − k‖²: "
            "each term is one number for a query, for a key or for a pair."
        )
        raise NamedMistake("makes all differences", hint, results)
    return results


MISTAKES = [
    ("squared distance",
     "Your result is the squared distance. Take its square root. Use clamp(min=0) before the "
     "root, because rounding can make the squared distance slightly negative.",
     (".clamp(min=0).sqrt()", "")),
    ("plus cross term",
     "You add 2 q·k. Subtract 2 q·k instead: ‖q − k‖² = ‖q‖² + ‖k‖² − 2 q·k.",
     ("k_squares - 2", "k_squares + 2")),
    ("cross term once",
     "You subtract q·k only once. Subtract 2 q·k: ‖q − k‖² = ‖q‖² + ‖k‖² − 2 q·k.",
     ("- 2 * products", "- products")),
    ("absolute differences",
     "Your result is the sum of the absolute differences. A distance is the square root of the "
     "sum of the squared differences. Compute it as √(‖q‖² + ‖k‖² − 2 q·k).",
     "(q[..., :, None, :] - k[..., None, :, :]).abs().sum(-1)"),
    ("root of the mean",
     "Your result is the square root of the mean squared difference. Use the sum of the squared "
     "differences instead of their mean.",
     (".sqrt()", ".div(q.shape[-1]).sqrt()")),
    ("negative distance",
     "Your result is the negative of the distance. A distance is never negative, so remove the "
     "minus sign.", ("return squares", "return -squares")),
    ("added before squaring",
     "You add up the differences before you square them, so positive and negative differences "
     "cancel. Square each difference first, then add. Multiplied out, the distance is √(‖q‖² + "
     "‖k‖² − 2 q·k).",
     "(q[..., :, None, :] - k[..., None, :, :]).sum(-1).abs()"),
    ("transposed distances", TRANSPOSED, (".sqrt()", ".sqrt().mT")),
    ("difference of lengths",
     "Your result is the absolute value of ‖q‖ − ‖k‖, the difference of the two lengths. Return "
     "the length of the difference, ‖q − k‖ = √(‖q‖² + ‖k‖² − 2 q·k).",
     "(q.norm(dim=-1)[..., :, None] - k.norm(dim=-1)[..., None, :]).abs()"),
    ("row minus row",
     "Your code compares row i of q only with row i of k. Compare every query with every key. "
     "Give the squared lengths of the queries shape (..., L, 1) and those of the keys shape "
     "(..., 1, S). Their sum then has shape (..., L, S), one number for each pair.",
     "(q - k).norm(dim=-1)"),
    ("key square missing",
     "Your result leaves out ‖k‖². Add ‖k‖²: ‖q − k‖² = ‖q‖² + ‖k‖² − 2 q·k.",
     ("q_squares + k_squares", "q_squares")),
    ("query square missing",
     "Your result leaves out ‖q‖². Add ‖q‖²: ‖q − k‖² = ‖q‖² + ‖k‖² − 2 q·k.",
     ("q_squares + k_squares", "k_squares")),
    ("lengths assumed to be 1",
     "Your result is correct only for vectors of length 1, where the squared distance is 2 − 2 "
     "q·k. Vectors of other lengths need the squared lengths instead of 2. Return √(‖q‖² + ‖k‖² "
     "− 2 q·k).",
     ("q_squares + k_squares", "2")),
    ("half in place of the root",
     "Your result is half of the squared distance. Take the square root of the squared distance "
     "instead.",
     (".sqrt()", " / 2")),
    ("lengths subtracted",
     "Your result is ‖q‖ − ‖k‖, the difference of the two lengths. Return the length of the "
     "difference, ‖q − k‖ = √(‖q‖² + ‖k‖² − 2 q·k).",
     "q.norm(dim=-1)[..., :, None] - k.norm(dim=-1)[..., None, :]"),
    ("lengths not squared",
     "You add the lengths without squaring them. Square both lengths: ‖q − k‖² = ‖q‖² + ‖k‖² − 2 "
     "q·k.",
     ("q.square().sum(dim=-1)", "q.norm(dim=-1)"), ("k.square().sum(dim=-1)", "k.norm(dim=-1)")),
    ("distance of unit vectors",
     "Your result is the distance of vectors that were first scaled to length 1. The distance "
     "also depends on the lengths, so do not normalize q and k. Return √(‖q‖² + ‖k‖² − 2 q·k).",
     "(2 - 2 * F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT).clamp(min=0).sqrt()"),
    ("each centered by its own mean",
     "You get this result if you subtract the mean of the queries from q, and the mean of the "
     "keys from k. Distances stay the same only if both are shifted by the same vector. Subtract "
     "the mean of the keys from both, or subtract nothing.",
     ("    q_squares",
      "    q, k = q - q.mean(dim=-2, keepdim=True), k - k.mean(dim=-2, keepdim=True)\n"
      "    q_squares")),
    ("only the keys centered",
     "You get this result if you subtract the mean of the keys from k, but not from q. Distances "
     "stay the same only if both are shifted by the same vector. Subtract this mean from q as "
     "well.",
     ("    q_squares", "    k = k - k.mean(dim=-2, keepdim=True)\n    q_squares")),
    ("only the queries centered",
     "You get this result if you subtract the mean of the queries from q, and nothing from k. "
     "Distances stay the same only if both are shifted by the same vector. Subtract the mean of "
     "the keys from both, or subtract nothing.",
     ("    q_squares", "    q = q - q.mean(dim=-2, keepdim=True)\n    q_squares")),
]  # fmt: skip

exercise = Exercise(
    "1.4", euclidean_distance, inputs, MISTAKES, names="L S", run=without_differences,
    also_right=[by_einsum],
)  # fmt: skip
