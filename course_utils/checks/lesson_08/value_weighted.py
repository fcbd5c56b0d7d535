"""8.5: the length of the vector that each key adds to each query's output."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_08._weights import distributions


def value_weighted(weights, v):
    lengths = v.norm(dim=-1)  # (..., S, d_v) -> (..., S)
    return weights * lengths[..., None, :]  # (..., L, S) * (..., 1, S)


def by_einsum(weights, v):
    return torch.einsum("...ls,...s->...ls", weights, torch.linalg.vector_norm(v, dim=-1))


def by_vectors(weights, v):
    return (weights.unsqueeze(-1) * v.unsqueeze(-3)).norm(dim=-1)


def inputs():
    draw, normal = distributions(85), normals(85)

    def pair(*shape, d_v):
        v = 3 * normal(*shape[:-2], shape[-1], d_v, dtype=torch.float32)
        return draw(*shape), v

    weights, v = pair(4, 50, d_v=9)
    v[3] = 0
    return [
        pair(5, 7, d_v=3),
        pair(4, 4, d_v=4),  # where a norm along the wrong dimension fits
        pair(2, 3, 4, 6, d_v=5),
        pair(3, 5, d_v=2),
        (weights, v),
        pair(3, 3, 5, d_v=4),  # where lengths (3, 5) without a [..., None, :] fit
        pair(1, 1, 1, d_v=1),
        tuple(t.transpose(0, 1) for t in pair(4, 2, 3, 3, d_v=6)),  # not contiguous
    ]


MISTAKES = [
    ("length squared",
     "Your lengths are squared. Take the square root of the sum of squares.",
     ("v.norm(dim=-1)", "v.square().sum(dim=-1)")),
    ("sizes added",
     "You add the absolute values of the entries. The length is the square root of the sum of "
     "squares.",
     ("v.norm(dim=-1)", "v.abs().sum(dim=-1)")),
    ("entries added",
     "You add the entries of each value, with their signs. Take the length of the vector.",
     ("v.norm(dim=-1)", "v.sum(dim=-1)")),
    ("normalized again",
     "Your rows are divided by their sums. Return the products of weight and length without "
     "this division.",
     ("weights * lengths[..., None, :]",
      "(x := weights * lengths[..., None, :]) / x.sum(dim=-1, keepdim=True)")),
    ("lengths along queries",
     "Your lengths run along the queries. Each value belongs to a key, so give the lengths the "
     "shape (..., 1, S).",
     ("None, :]", ":, None]")),
    ("length over keys",
     "Your norm runs over the keys. The length of a value is the norm over its d_v entries, so "
     "use dim=-1.",
     ("dim=-1", "dim=-2")),
    ("one length for all",
     "You use one length for all values together. Each value has its own length, so take the norm "
     "with dim=-1.",
     "weights * v.norm()"),
    ("length of the mixture",
     "Your result is the length of the whole output of each query. Return one length for each "
     "key, before the sum over keys.",
     "(weights @ v).norm(dim=-1)"),
    ("length of the mixture for each key",
     "For each query, you give every key the length of that query's whole output. Return the "
     "length of the vector that this key alone adds.",
     "(weights @ v).norm(dim=-1, keepdim=True).expand(weights.shape)"),
    ("mean of the entries",
     "You multiply each weight by the mean of the value's entries. Multiply it by the value's "
     "length.",
     ("v.norm(dim=-1)", "v.mean(dim=-1)")),
    ("largest entry",
     "You multiply each weight by the largest absolute entry of the value. Multiply it by the "
     "value's length, the square root of the sum of squares.",
     ("v.norm(dim=-1)", "v.abs().amax(dim=-1)")),
    ("vectors not lengths",
     "You return the vectors themselves, (..., L, S, d_v). Return the length of each vector.",
     "weights[..., None] * v[..., None, :, :]"),
    ("values alone",
     "You return the lengths of the values alone. Multiply them by the weights.",
     ("weights * lengths[..., None, :]", "lengths[..., None, :].expand(weights.shape)")),
]  # fmt: skip

exercise = Exercise(
    "8.5", value_weighted, inputs, MISTAKES, names="L S", also_right=[by_einsum, by_vectors]
)
