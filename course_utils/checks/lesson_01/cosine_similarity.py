"""1.3: the cosines between every query and every key."""

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals, queries_and_keys
from course_utils.checks.wordings import LOST_SIGN, TRANSPOSED


def cosine_similarity(q, k):
    q_lengths = q.norm(dim=-1, keepdim=True)  # (..., L, 1)
    k_lengths = k.norm(dim=-1, keepdim=True)  # (..., S, 1)
    q = q / q_lengths.clamp(min=1e-8)  # (..., L, d), rows of length 1
    k = k / k_lengths.clamp(min=1e-8)  # (..., S, d)
    return q @ k.transpose(-2, -1)  # (..., L, S)


def inputs():
    normal = normals(2)
    zeros_in, long_and_short = (normal(5, 4), normal(7, 4)), (normal(2, 4, 3), normal(2, 3, 3))
    for rows in zeros_in:
        rows[1] = 0
        rows[2, 0] = 0  # a zero in it makes no zero vector,
        rows[3, -1] -= rows[3].sum()  # nor does a sum of zero
    long_and_short[0][:] *= 0.1
    long_and_short[1][0, 1], long_and_short[1][1] = 0, 1000 * long_and_short[1][1]
    return [
        *queries_and_keys(seed=1),
        zeros_in,
        long_and_short,
        (normal(12, 10), normal(9, 10)),
        (normal(3, 3), normal(3, 3)),  # L = S = d: whatever is paired fits
    ]


MISTAKES = [
    ("not divided", "that is the dot product: divide by the lengths of both vectors", "q @ k.mT"),
    ("only query normalised", "only the query's length is divided out; divide by the key's as well",
     ("k / k_lengths.clamp(min=1e-8)", "k")),
    ("only key normalised", "only the key's length is divided out; divide by the query's as well",
     ("q / q_lengths.clamp(min=1e-8)", "q")),
    ("key lengths multiplied",
     "the keys' lengths are multiplied where they should divide: in a / b * c only b divides, so "
     "put brackets around the product, a / (b * c)",
     ("k / k_lengths.clamp(min=1e-8)", "k * k_lengths")),
    ("lengths added", "divided by the sum of the two lengths; divide by their product",
     "q @ k.mT / (q.norm(dim=-1)[..., :, None] + k.norm(dim=-1)[..., None, :]).clamp(min=1e-8)"),
    ("zero vector gives nan",
     "a zero vector gives NaN (0 / 0): give its length a lower limit, such as 1e-8",
     ("q_lengths.clamp(min=1e-8)", "q_lengths"), ("k_lengths.clamp(min=1e-8)", "k_lengths")),
    ("squared lengths", "divided by the squared lengths: a square root is missing",
     ("q_lengths.clamp(min=1e-8)", "q_lengths.square().clamp(min=1e-8)"),
     ("k_lengths.clamp(min=1e-8)", "k_lengths.square().clamp(min=1e-8)")),
    ("length of columns", "the lengths run over the wrong dimension: a vector is a row, dim=-1",
     ("q.norm(dim=-1", "q.norm(dim=-2"), ("k.norm(dim=-1", "k.norm(dim=-2")),
    ("one length for all",
     "one length for the whole matrix: each row has its own, norm(dim=-1, keepdim=True)",
     ("q.norm(dim=-1, keepdim=True)", "q.norm()"), ("k.norm(dim=-1, keepdim=True)", "k.norm()")),
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
     "unless told dim=-1", ("q.norm(dim=-1", "q.norm(dim=1"), ("k.norm(dim=-1", "k.norm(dim=1")),
    ("absolute cosines", LOST_SIGN, ("q @ k.transpose(-2, -1)", "(q @ k.transpose(-2, -1)).abs()")),
    ("angle not cosine", "that is the angle; its cosine is asked, without the acos",
     ("q @ k.transpose(-2, -1)", "(q @ k.transpose(-2, -1)).clamp(-1, 1).acos()")),
]  # fmt: skip

exercise = Exercise("1.3", cosine_similarity, inputs, MISTAKES, names="L S")
