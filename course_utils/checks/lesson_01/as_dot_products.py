"""1.10: new queries and keys whose dot products look up by distance."""

import torch
import torch.nn.functional as F

from course_utils.checks.compare import is_same, read
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import normals, queries_and_keys


def as_dot_products(q, k):
    ones = torch.ones_like(q[..., :1])  # (..., L, 1)
    squares = k.square().sum(dim=-1, keepdim=True)  # (..., S, 1), ‖k‖²
    wide_q = torch.cat([q, ones], dim=-1)  # (..., L, d + 1)
    wide_k = torch.cat([k, -squares / 2], dim=-1)  # (..., S, d + 1)
    return wide_q, wide_k


def by_padding(q, k):
    return F.pad(q, (1, 0), value=-0.5), torch.cat([k.pow(2).sum(-1, keepdim=True), k], -1)


def with_lists(q, k):
    """Another scale for queries and keys, and the keys one by one."""
    rows = [torch.cat([row / 2, (-row @ row / 8)[None]]) for row in k.reshape(-1, k.shape[-1])]
    return F.pad(2 * q, (0, 1), value=4.0), torch.stack(rows).reshape(*k.shape[:-1], -1)


def inputs():
    normal = normals(10)
    return [
        *queries_and_keys(seed=11),
        (normal(12, 10), normal(9, 10)),
        (normal(3, 3), normal(3, 3)),
        (normal(5, 2), torch.tensor([[0.1], [1], [3]], dtype=torch.float64) * normal(3, 2)),
        (normal(4, 3) + 2, normal(6, 3) - 1),
    ]


def weights(answer, q, k):
    """Return the weights of a soft lookup with the learner's queries and keys."""
    wide_q, wide_k = pair(answer, q, k)
    with_others = pair(answer, q, 2 * k.flip(-2))[0], pair(answer, 2 * q.flip(-2), k)[1]
    for one, other, name in zip((wide_q, wide_k), with_others, ("query", "key"), strict=True):
        if not is_same(other, one.detach()):
            rest = "keys" if name == "query" else "queries"
            hint = (
                f"Your new {name} changes if the {rest} change. Compute each new {name} without "
                f"the {rest}."
            )
            raise NamedMistake("looks at the other side", hint)
    return [(wide_q @ wide_k.transpose(-2, -1)).softmax(dim=-1)]  # (..., L, S)


def pair(answer, q, k):
    """Call the answer; raise NamedMistake unless it returns a pair that can be multiplied."""
    (result,) = call_with_clones(answer, q, k)
    if not (isinstance(result, tuple | list) and len(result) == 2):
        raise NamedMistake("not a pair", "Return two tensors: the new queries and the new keys.")
    if not all(isinstance(part, torch.Tensor) and read(part) is not None for part in result):
        raise NamedMistake(
            "not tensors", "Your new queries and keys are not both tensors. Return two tensors."
        )
    wide_q, wide_k = result
    shapes = f"{tuple(wide_q.shape)} and {tuple(wide_k.shape)}"
    if wide_q.shape[:-1] != q.shape[:-1] or wide_k.shape[:-1] != k.shape[:-1]:
        hint = (
            f"Your shapes are {shapes}. Return as many queries and keys as before: (..., L, D) and "
            "(..., S, D)."
        )
        raise NamedMistake("other rows", hint)
    if wide_q.shape[-1] != wide_k.shape[-1]:
        raise NamedMistake(
            "two widths", f"Your shapes are {shapes}. Make queries and keys equally wide."
        )
    if wide_q.dtype != wide_k.dtype or not wide_q.is_floating_point():
        hint = (
            f"Your new queries are {wide_q.dtype} and your new keys {wide_k.dtype}. Both must have "
            f"the dtype of the inputs, {q.dtype}. If you use torch.zeros(...), it makes float32. "
            "Use k.new_zeros(...), which has the dtype of k."
        )
        raise NamedMistake("two dtypes", hint)
    if wide_q.shape[-1] > q.shape[-1] + 2:
        raise NamedMistake(
            "too wide",
            f"Your shapes are {shapes}. Use at most d + 2 numbers, with d = {q.shape[-1]}.",
        )
    return result


MISTAKES = [
    ("dot products alone",
     "Your weights are those of plain dot products, so a long key can still win. Multiply out −‖q "
     "− k‖² / 2. Besides q·k, it has two more terms. The one with ‖q‖² is the same for all keys, "
     "so it cancels in the softmax. The other one depends only on k. Make room for it with one "
     "more number in each query and each key.",
     "(q, k)"),
    ("square added", "You add ‖k‖² / 2 to q·k, so long keys win. Subtract ‖k‖² / 2 instead.",
     ("-squares / 2", "squares / 2")),
    ("square not halved",
     "You subtract ‖k‖² from q·k. In −‖q − k‖² / 2, only half of ‖k‖² is subtracted. Subtract "
     "‖k‖² / 2.",
     ("-squares / 2", "-squares")),
    ("distance not halved",
     "Your weights are proportional to e^(−‖q − k‖²). Halve your scores, so that the exponent is "
     "−‖q − k‖² / 2.",
     ("[q, ones]", "[2 * q, ones]"), ("-squares / 2", "-squares")),
    ("length not squared",
     "You subtract ‖k‖ / 2, half the length of the key. In −‖q − k‖² / 2, the term for the key "
     "is −‖k‖² / 2. Square the length.",
     ("squares = k.square().sum(dim=-1, keepdim=True)", "squares = k.norm(dim=-1, keepdim=True)")),
    ("length subtracted",
     "You subtract the length of the key. In −‖q − k‖² / 2, the term for the key is −‖k‖² / 2. "
     "Subtract half of the squared length.",
     ("-squares / 2", "-k.norm(dim=-1, keepdim=True)")),
    ("squares averaged",
     "You use the mean of the squared entries. ‖k‖² is the sum of these squares, so use sum "
     "instead of mean.",
     ("sum(dim", "mean(dim")),
    ("sum of the entries",
     "You add the entries of the key without squaring them. ‖k‖² is a sum of squares, so square "
     "each entry first.",
     ("k.square().sum", "k.sum")),
    ("sum squared",
     "You square the sum of the entries. ‖k‖² is the sum of the squared entries, so square each "
     "entry before you add.",
     ("k.square().sum(dim=-1, keepdim=True)", "k.sum(dim=-1, keepdim=True).square()")),
    ("squares meet squares",
     "In your dot products, ‖q‖² is multiplied by ‖k‖². Put a 1 in the query where the key has "
     "−‖k‖² / 2, so that this term is added as it is. The query needs no ‖q‖², because ‖q‖² is the "
     "same for all keys and cancels in the softmax.",
     ("[q, ones]", "[q, -q.square().sum(dim=-1, keepdim=True) / 2, ones]"),
     ("-squares / 2]", "-squares / 2, torch.ones_like(squares)]")),
    ("squares multiplied by squares",
     "In your dot products, ‖q‖² is multiplied by ‖k‖². Put a 1 in the query where the key has "
     "−‖k‖² / 2, so that this term is added as it is. The query needs no ‖q‖², because ‖q‖² is the "
     "same for all keys and cancels in the softmax.",
     ("[q, ones]", "[q, q.square().sum(dim=-1, keepdim=True), ones]"),
     ("-squares / 2]", "-squares / 2, torch.ones_like(squares)]")),
    ("product doubled",
     "Your exponent is 2 q·k − ‖k‖² / 2. In −‖q − k‖² / 2, q·k appears only once. Do not double "
     "q·k.",
     ("[q, ones]", "[2 * q, ones]")),
    ("keys divided by root 2",
     "Your q·k is divided by √2, but your ‖k‖² / 2 is not. In −‖q − k‖² / 2, q·k is not divided "
     "by anything. Divide neither q nor k.",
     ("[k, -sq", "[k / 2**0.5, -sq")),
    ("divided by root d",
     "Your exponent is −‖q − k‖² / (2 √d). It should be −‖q − k‖² / 2, so do not divide by √d.",
     ("[q, ones], dim=-1)", "[q, ones], dim=-1) / q.shape[-1] ** 0.5")),
    ("product divided by root d",
     "Your q·k is divided by √d, but your ‖k‖² / 2 is not. In −‖q − k‖² / 2, q·k is not divided "
     "by anything. Do not divide q·k by √d.",
     ("[q, ones]", "[q / q.shape[-1] ** 0.5, ones]")),
    ("cosines",
     "Your queries and keys have length 1, so only their directions count. But the distance also "
     "depends on the lengths, so do not normalize the vectors. Then expand −‖q − k‖² / 2. One "
     "term other than q · k differs from key to key, so give each query and each key one more "
     "entry for it.",
     "(q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True))"),
    ("direction alone",
     "Your keys have length 1, so only their directions count. But the distance also depends on "
     "the lengths of the keys, so do not normalize the keys. Then expand −‖q − k‖² / 2. One term "
     "other than q · k differs from key to key, so give each query and each key one more entry "
     "for it.",
     "(q, k / k.norm(dim=-1, keepdim=True))"),
    ("sign of the product",
     "Your queries attend most to the keys near −q. In −‖q − k‖² / 2, q·k has a plus sign. Change "
     "the sign of your term q·k.",
     ("[q, ones]", "[-q, ones]")),
    ("multiplied by root d",
     "Your exponent is −√d ‖q − k‖² / 2. soft_lookup does not divide its scores, so do not "
     "multiply by √d.",
     ("[q, ones], dim=-1)", "[q, ones], dim=-1) * q.shape[-1] ** 0.5")),
    ("product multiplied by root d",
     "Your q·k is multiplied by √d, but your ‖k‖² / 2 is not. soft_lookup does not divide its "
     "scores, so do not multiply q·k by √d.",
     ("[q, ones]", "[q * q.shape[-1] ** 0.5, ones]")),
    ("square quartered",
     "You subtract ‖k‖² / 4. In −‖q − k‖² / 2, the term for the key is −‖k‖² / 2. Subtract ‖k‖² "
     "/ 2.",
     ("-squares / 2", "-squares / 4")),
    ("square subtracted from every entry",
     "You subtract ‖k‖² / 2 from every entry of the key. Append −‖k‖² / 2 to the key as a new "
     "entry, and append a 1 to the query.",
     "(q, k - k.square().sum(dim=-1, keepdim=True) / 2)"),
]  # fmt: skip

exercise = Exercise(
    "1.10", as_dot_products, inputs, MISTAKES, names="L S", run=weights, differentiable=True,
    compared="the weights they make", also_right=[by_padding, with_lists],
)  # fmt: skip
