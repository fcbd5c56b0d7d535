"""1.3: the cosine of every query with every key, even if a vector is very long or very short."""

import numpy as np
import torch
import torch.nn.functional as F

from course_utils.checks.compare import difference
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import normals, queries_and_keys
from course_utils.checks.shared_hints import TRANSPOSED


def cosine_similarity(q, k):
    q_largest = q.abs().amax(dim=-1, keepdim=True)  # (..., L, 1)
    k_largest = k.abs().amax(dim=-1, keepdim=True)  # (..., S, 1)
    q = q / q_largest.where(q_largest > 0, 1)  # (..., L, d), entries up to 1: their squares fit
    k = k / k_largest.where(k_largest > 0, 1)  # (..., S, d)
    q_lengths = q.norm(dim=-1, keepdim=True).clamp(min=1)  # (..., L, 1), 1 for a zero vector
    k_lengths = k.norm(dim=-1, keepdim=True).clamp(min=1)  # (..., S, 1)
    q = q / q_lengths  # (..., L, d), rows of length 1, or 0
    k = k / k_lengths  # (..., S, d)
    return q @ k.transpose(-2, -1)  # (..., L, S)


def scaled(x):
    """Return vectors of the same directions whose largest absolute entry is 1."""
    return torch.nan_to_num(x / x.abs().max(dim=-1, keepdim=True).values)


def in_numpy(q, k):
    rows = []
    for x in (q.numpy(), k.numpy()):
        largest = np.abs(x).max(-1, keepdims=True)
        x = x / np.where(largest == 0, 1, largest)
        length = np.sqrt((x**2).sum(-1, keepdims=True))
        rows.append(x / np.where(length == 0, 1, length))
    return torch.from_numpy(np.einsum("...ld,...sd->...ls", *rows))


def inputs():
    normal = normals(2)
    zeros_in, long_and_short = (normal(5, 4), normal(7, 4)), (normal(2, 4, 3), normal(2, 3, 3))
    for rows in zeros_in:
        rows[1] = 0
        rows[2, 0] = 0  # one zero does not make a zero vector,
        rows[3, -1] -= rows[3].sum()  # and a sum of zero does not either
    long_and_short[0][:] *= 0.1
    long_and_short[1][0, 1], long_and_short[1][1] = 0, 1000 * long_and_short[1][1]
    single = [torch.cat([normal(n, 4), torch.zeros(1, 4)]).float() for n in (2, 4)]
    sizes = torch.tensor([[1e200], [1], [1e-200], [-1e-3]], dtype=torch.float64)
    return [
        *queries_and_keys(seed=1),
        zeros_in,
        long_and_short,
        (normal(12, 10), normal(9, 10)),
        (normal(3, 3), normal(3, 3)),  # L = S = d: every product fits
        (1e200 * normal(4, 5), 1e200 * normal(6, 5)),  # squares and products overflow
        (1e-200 * normal(4, 5), 1e-200 * normal(6, 5)),  # squares and products vanish
        (sizes * normal(4, 3), sizes * normal(2, 4, 3)),
        (normal(2, 5, 3), normal(4, 3)),  # leading dimensions broadcast
        (normal(1, 5, 3), normal(2, 4, 3)),
        tuple(single),  # zero vectors in float32, where 1e-300 is 0
        (1e30 * normal(3, 4).float(), 1e-30 * normal(5, 4).float()),
    ]


FLOAT32 = (
    "Your cosines are correct for ordinary vectors, but not for float64 vectors with entries of "
    "1e100. No float32 number is that large. If you convert to float32, remove this conversion."
)


def whatever_the_length(answer, q, k):
    """Call the answer; raise NamedMistake if only very long or very short vectors are wrong."""
    results, right = call_with_clones(answer, q, k), cosine_similarity(q, k)
    lengths = torch.cat([each.abs().amax(dim=-1).flatten() for each in (q, k)])
    usual = lengths[lengths > 0].log10().abs().max() < 9
    if usual or difference(results[0], right) is None:
        return results
    far = [1e100 * scaled(normals(3)(2, 4)) for _ in range(2)]
    if difference(answer(*far), cosine_similarity(*far)):
        raise NamedMistake("computed in float32", FLOAT32, [right])
    hint = (
        "Your cosines are correct for ordinary vectors. Only the part Extremes is left to do. "
        "There, the squares of huge numbers overflow to inf, and the squares of tiny numbers "
        "underflow to 0. A positive factor does not change a direction. So first scale each row by "
        "a factor that keeps its squares in range."
    )
    raise NamedMistake("extreme lengths", hint, [right])


MISTAKES = [
    ("not divided", "Your result is the dot product. Divide it by the lengths of both vectors.",
     "q @ k.mT"),
    ("only query normalized",
     "Your result is divided by the lengths of the queries only. Divide by the lengths of the "
     "keys too.", "torch.nn.functional.normalize(q, dim=-1) @ k.mT"),
    ("only key normalized",
     "Your result is divided by the lengths of the keys only. Divide by the lengths of the "
     "queries too.", "q @ torch.nn.functional.normalize(k, dim=-1).mT"),
    ("key lengths multiplied",
     "Your result is divided by the lengths of the queries, but multiplied by the lengths of "
     "the keys. You get this result if you write x / a * b, where Python divides only by a. "
     "Write x / (a * b), with a and b for the two lengths.",
     "torch.nn.functional.normalize(q, dim=-1) @ (k * k.norm(dim=-1, keepdim=True)).mT"),
    ("lengths added",
     "Your result is divided by the sum of the two lengths. Divide by their product.",
     "q @ k.mT / (q.norm(dim=-1)[..., :, None] + k.norm(dim=-1)[..., None, :]).clamp(min=1e-8)"),
    ("zero vector gives nan",
     "Your result is NaN for a zero vector, because 0 / 0 is NaN. If a row is all zeros, divide it"
     " by 1.",
     ("q_largest.where(q_largest > 0, 1)", "q_largest"),
     ("k_largest.where(k_largest > 0, 1)", "k_largest")),
    ("zero vector gives nan in float32",
     "Your function is right in float64. In float32, PyTorch's default, a zero vector still "
     "gives NaN. This happens if you add a number such as 1e-300, because that number is 0 in "
     "float32, and 0 / 0 is NaN. If a row is all zeros, divide it by 1.",
     ("q_largest.where(q_largest > 0, 1)", "(q_largest + 1e-300)"),
     ("k_largest.where(k_largest > 0, 1)", "(k_largest + 1e-300)")),
    ("largest without its sign",
     "Your cosines have the wrong sign where all numbers of exactly one of the two vectors are "
     "negative. If you divide by the largest number of a vector, that number is then negative, "
     "and the division flips all signs. Divide by the largest absolute value, "
     "x.abs().amax(dim=-1, keepdim=True).",
     ("q.abs().amax", "q.amax"),
     ("k.abs().amax", "k.amax"),
     ("q_largest > 0", "q_largest != 0"),
     ("k_largest > 0", "k_largest != 0")),
    ("largest entry 1",
     "You divide each vector by its largest absolute entry, but not by its length. After this "
     "division, also divide each row by its norm(dim=-1, keepdim=True), and a zero row by 1.",
     ("q.norm(dim=-1, keepdim=True).clamp(min=1)", "1"),
     ("k.norm(dim=-1, keepdim=True).clamp(min=1)", "1")),
    ("squared lengths",
     "Your result is divided by the squared lengths. A length is the square root of the sum of "
     "squares, so divide by that square root.",
     "q / q.square().sum(dim=-1, keepdim=True).clamp(min=1e-8)"
     " @ (k / k.square().sum(dim=-1, keepdim=True).clamp(min=1e-8)).mT"),
    ("length of columns",
     "You use the lengths of the columns of q and k. A vector is a row, so compute the lengths "
     "with dim=-1.",
     "torch.nn.functional.normalize(q, dim=-2) @ torch.nn.functional.normalize(k, dim=-2).mT"),
    ("length along dimension 1",
     "Your result is correct for matrices, but with leading dimensions your lengths are computed "
     "along dimension 1, which is not the last dimension there. You get this result if you use "
     "norm(dim=1), or F.normalize with dim=1 or without dim. Write dim=-1.",
     ("q.norm(dim=-1, keepdim=True).clamp(min=1)", "q.norm(dim=1, keepdim=True).clamp(min=1e-9)"),
     ("k.norm(dim=-1, keepdim=True).clamp(min=1)", "k.norm(dim=1, keepdim=True).clamp(min=1e-9)")),
    ("zero vector has a direction",
     "Your cosines of a zero vector are not 0. A zero vector has no direction, so its cosines "
     "must be 0. Divide a zero vector by 1, so that it stays zero.",
     ("q / q_largest.where(q_largest > 0, 1)", "(q / q_largest).nan_to_num(1)"),
     ("k / k_largest.where(k_largest > 0, 1)", "(k / k_largest).nan_to_num(1)")),
    ("one length for all",
     "You use one length for all of q, and one for all of k. Each row is a vector with a length "
     "of its own. Divide each row by its norm(dim=-1, keepdim=True), and a zero row by 1.",
     "q @ k.mT / (q.norm() * k.norm())"),
    ("sum of absolute values",
     "Each of your vectors is divided by the sum of the absolute values of its entries. A length "
     "is the square root of the sum of squares, so divide by norm(dim=-1, keepdim=True) instead.",
     ("q.norm(dim", "q.norm(p=1, dim"), ("k.norm(dim", "k.norm(p=1, dim")),
    ("cosine distance",
     "Your result is 1 − cosine, which is small for similar vectors. Return the cosine itself.",
     ("return q", "return 1 - q")),
    ("transposed cosines", TRANSPOSED, ("q @ k.transpose", "k @ q.transpose")),
    ("rows paired one to one",
     "Your code compares row i of q only with row i of k. Compare every query with every key: "
     "give q the shape (..., L, 1, d) and k the shape (..., 1, S, d), or use a matrix product. "
     "If you use F.cosine_similarity, pass dim=-1.",
     "(q * k).sum(dim=-1) / (q.norm(dim=-1) * k.norm(dim=-1)).clamp(min=1e-8)"),
    ("normalized along dimension 1",
     "Your result is correct for matrices, but with leading dimensions your vectors are "
     "normalized along dimension 1, which is not the last dimension there. You get this result "
     "if you use F.normalize with dim=1, or without dim (the default is 1). Write dim=-1.",
     "torch.nn.functional.normalize(q, dim=1) @ torch.nn.functional.normalize(k, dim=1).mT"),
    ("absolute cosines",
     "Your result is the absolute value of the cosine. Vectors in opposite directions must have "
     "the cosine −1. If you use abs, remove it.",
     ("q @ k.transpose(-2, -1)", "(q @ k.transpose(-2, -1)).abs()")),
    ("angle not cosine",
     "Your result is the angle. Return its cosine. If you use acos, remove it.",
     ("q @ k.transpose(-2, -1)", "(q @ k.transpose(-2, -1)).clamp(-1, 1).acos()")),
    ("lengths below 1 ignored",
     "Your cosines are too close to 0 where a vector is shorter than 1. You get this result if "
     "you use clamp(min=1) on the lengths. Divide every row by its length, and only a zero row "
     "by 1.",
     "q / q.norm(dim=-1, keepdim=True).clamp(min=1)"
     " @ (k / k.norm(dim=-1, keepdim=True).clamp(min=1)).mT"),
]  # fmt: skip

exercise = Exercise(
    "1.3", cosine_similarity, inputs, MISTAKES, names="L S", run=whatever_the_length,
    also_right=[lambda q, k: F.normalize(scaled(q), dim=-1) @ F.normalize(scaled(k), dim=-1).mT,
                in_numpy],
)  # fmt: skip
