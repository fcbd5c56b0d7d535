"""1.3: the cosines between every query and every key, however long or short these are."""

import numpy as np
import torch
import torch.nn.functional as F

from course_utils.checks.compare import difference
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import normals, queries_and_keys
from course_utils.checks.shared_hints import LOST_SIGN, TRANSPOSED


def cosine_similarity(q, k):
    q_largest = q.abs().amax(dim=-1, keepdim=True)  # (..., L, 1)
    k_largest = k.abs().amax(dim=-1, keepdim=True)  # (..., S, 1)
    q = q / q_largest.where(q_largest > 0, 1)  # (..., L, d), entries up to 1: their squares fit
    k = k / k_largest.where(k_largest > 0, 1)  # (..., S, d)
    q_lengths = q.norm(dim=-1, keepdim=True).clamp(min=1)  # (..., L, 1), under 1 for zero alone
    k_lengths = k.norm(dim=-1, keepdim=True).clamp(min=1)  # (..., S, 1)
    q = q / q_lengths  # (..., L, d), rows of length 1, or 0
    k = k / k_lengths  # (..., S, d)
    return q @ k.transpose(-2, -1)  # (..., L, S)


def shorter(x):
    """Return the same directions, with 1 for the largest entry in size."""
    return torch.nan_to_num(x / x.abs().max(dim=-1, keepdim=True).values)


def in_numpy(q, k):
    rows = []
    for x in (q.numpy(), k.numpy()):
        top = np.abs(x).max(-1, keepdims=True)
        x = x / np.where(top == 0, 1, top)
        length = np.sqrt((x**2).sum(-1, keepdims=True))
        rows.append(x / np.where(length == 0, 1, length))
    return torch.from_numpy(np.einsum("...ld,...sd->...ls", *rows))


def inputs():
    normal = normals(2)
    zeros_in, long_and_short = (normal(5, 4), normal(7, 4)), (normal(2, 4, 3), normal(2, 3, 3))
    for rows in zeros_in:
        rows[1] = 0
        rows[2, 0] = 0  # a zero in it makes no zero vector,
        rows[3, -1] -= rows[3].sum()  # nor does a sum of zero
    long_and_short[0][:] *= 0.1
    long_and_short[1][0, 1], long_and_short[1][1] = 0, 1000 * long_and_short[1][1]
    single = [torch.cat([normal(n, 4), torch.zeros(1, 4)]).float() for n in (2, 4)]
    sizes = torch.tensor([[1e200], [1], [1e-200], [-1e-3]], dtype=torch.float64)
    return [
        *queries_and_keys(seed=1),
        zeros_in,
        long_and_short,
        (normal(12, 10), normal(9, 10)),
        (normal(3, 3), normal(3, 3)),  # L = S = d: whatever is paired fits
        (1e200 * normal(4, 5), 1e200 * normal(6, 5)),  # squares and products overflow
        (1e-200 * normal(4, 5), 1e-200 * normal(6, 5)),  # squares and products vanish
        (sizes * normal(4, 3), sizes * normal(2, 4, 3)),
        tuple(single),  # zero vectors in float32, where 1e-300 is 0
        (1e30 * normal(3, 4).float(), 1e-30 * normal(5, 4).float()),
    ]


def whatever_the_length(answer, q, k):
    """Call the answer. If only very long and very short vectors are wrong, that is the mistake."""
    results, right = call_with_clones(answer, q, k), cosine_similarity(q, k)
    lengths = torch.cat([each.abs().amax(dim=-1).flatten() for each in (q, k)])
    usual = lengths[lengths > 0].log10().abs().max() < 9
    if usual or difference(results[0], right) is None:
        return results
    hint = (
        "right for usual lengths; but vectors of length 1e200 have a direction too, and their "
        "squares and products are infinite, as those of 1e-200 are 0. A positive factor changes no "
        "direction: choose one for each row that makes its squares fit, before you multiply"
    )
    raise NamedMistake("length has a say", hint, [right])


MISTAKES = [
    ("not divided", "that is the dot product: divide by the lengths of both vectors", "q @ k.mT"),
    ("only query normalised", "only the query's length is divided out; divide by the key's as well",
     "torch.nn.functional.normalize(q, dim=-1) @ k.mT"),
    ("only key normalised", "only the key's length is divided out; divide by the query's as well",
     "q @ torch.nn.functional.normalize(k, dim=-1).mT"),
    ("key lengths multiplied",
     "the keys' lengths are multiplied where they should divide: in a / b * c only b divides, so "
     "put brackets around the product, a / (b * c)",
     "torch.nn.functional.normalize(q, dim=-1) @ (k * k.norm(dim=-1, keepdim=True)).mT"),
    ("lengths added", "divided by the sum of the two lengths; divide by their product",
     "q @ k.mT / (q.norm(dim=-1)[..., :, None] + k.norm(dim=-1)[..., None, :]).clamp(min=1e-8)"),
    ("zero vector gives nan",
     "a zero vector gives NaN (0 / 0): where a row has nothing but zeros, divide by 1",
     ("q_largest.where(q_largest > 0, 1)", "q_largest"),
     ("k_largest.where(k_largest > 0, 1)", "k_largest")),
    ("zero vector gives nan in float32",
     "right in float64; but in float32, PyTorch's default, 1e-300 is 0 itself, and a zero vector "
     "gives NaN (0 / 0): where a row has nothing but zeros, divide by 1",
     ("q_largest.where(q_largest > 0, 1)", "(q_largest + 1e-300)"),
     ("k_largest.where(k_largest > 0, 1)", "(k_largest + 1e-300)")),
    ("largest without its sign",
     "a vector whose numbers are all negative comes out turned around: its largest number is "
     "negative, and to divide by that turns signs; take the largest in size, x.abs().amax(...)",
     ("q.abs().amax", "q.amax"), ("k.abs().amax", "k.amax"),
     ("q_largest > 0", "q_largest != 0"), ("k_largest > 0", "k_largest != 0")),
    ("largest entry 1",
     "divided by the largest entry alone: that is no length yet; divide by norm(dim=-1) then",
     ("q.norm(dim=-1, keepdim=True).clamp(min=1)", "1"),
     ("k.norm(dim=-1, keepdim=True).clamp(min=1)", "1")),
    ("squared lengths", "divided by the squared lengths: a square root is missing",
     "q / q.square().sum(dim=-1, keepdim=True).clamp(min=1e-8)"
     " @ (k / k.square().sum(dim=-1, keepdim=True).clamp(min=1e-8)).mT"),
    ("length of columns", "the lengths run over the wrong dimension: a vector is a row, dim=-1",
     "torch.nn.functional.normalize(q, dim=-2) @ torch.nn.functional.normalize(k, dim=-2).mT"),
    ("length along dimension 1",
     "right for matrices, wrong with leading dimensions: the lengths run over dimension 1, as with "
     "norm(dim=1), or F.normalize without dim; write dim=-1",
     ("q.norm(dim=-1, keepdim=True).clamp(min=1)", "q.norm(dim=1, keepdim=True).clamp(min=1e-9)"),
     ("k.norm(dim=-1, keepdim=True).clamp(min=1)", "k.norm(dim=1, keepdim=True).clamp(min=1e-9)")),
    ("a zero vector takes part",
     "a zero vector gets cosines other than 0: it points nowhere, so leave it as it is and divide "
     "by 1",
     ("q / q_largest.where(q_largest > 0, 1)", "(q / q_largest).nan_to_num(1)"),
     ("k / k_largest.where(k_largest > 0, 1)", "(k / k_largest).nan_to_num(1)")),
    ("one length for all",
     "one length for the whole matrix: each row has its own, norm(dim=-1, keepdim=True)",
     "q @ k.mT / (q.norm() * k.norm())"),
    ("sum of absolute values",
     "divided by the sum of absolute values; a length is the root of the sum of squares",
     ("q.norm(dim", "q.norm(p=1, dim"), ("k.norm(dim", "k.norm(p=1, dim")),
    ("cosine distance", "that is 1 - cosine, a distance; here large must mean similar",
     ("return q", "return 1 - q")),
    ("transposed cosines", TRANSPOSED, ("q @ k.transpose", "k @ q.transpose")),
    ("rows paired one to one",
     "row i of q meets only row i of k, as in F.cosine_similarity(q, k): give q an axis for the "
     "keys, q[..., :, None, :], and k one for the queries, k[..., None, :, :]",
     "(q * k).sum(dim=-1) / (q.norm(dim=-1) * k.norm(dim=-1)).clamp(min=1e-8)"),
    ("normalised along dimension 1",
     "right for matrices, wrong with leading dimensions: F.normalize works along dimension 1 "
     "unless told dim=-1",
     "torch.nn.functional.normalize(q, dim=1) @ torch.nn.functional.normalize(k, dim=1).mT"),
    ("absolute cosines", LOST_SIGN, ("q @ k.transpose(-2, -1)", "(q @ k.transpose(-2, -1)).abs()")),
    ("angle not cosine", "that is the angle; its cosine is asked, without the acos",
     ("q @ k.transpose(-2, -1)", "(q @ k.transpose(-2, -1)).clamp(-1, 1).acos()")),
]  # fmt: skip

exercise = Exercise(
    "1.3", cosine_similarity, inputs, MISTAKES, names="L S", run=whatever_the_length,
    also_right=[lambda q, k: F.normalize(shorter(q), dim=-1) @ F.normalize(shorter(k), dim=-1).mT,
                in_numpy],
)  # fmt: skip
