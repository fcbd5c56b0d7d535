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
    short = pair(3, 4, d_v=5)
    return [
        pair(5, 7, d_v=3),
        pair(4, 4, d_v=4),  # where a norm along the wrong dimension fits
        pair(2, 3, 4, 6, d_v=5),
        pair(3, 5, d_v=2),
        (weights, v),
        pair(3, 3, 5, d_v=4),  # where lengths (3, 5) without a [..., None, :] fit
        pair(1, 1, 1, d_v=1),
        tuple(t.transpose(0, 1) for t in pair(4, 2, 3, 3, d_v=6)),  # not contiguous
        (short[0], 1e-4 * short[1]),  # so short that an added eps shows
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
     "length ‖v‖, the square root of the sum of squares.",
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
    ("length over the keys of the products",
     "Your norm runs over the keys, so you get one length for each of the d_v entries instead of "
     "one for each key. Take the norm over the d_v entries, with dim=-1.",
     "(weights[..., None] * v[..., None, :, :]).norm(dim=-2)"),
    ("lengths averaged",
     "Your result has one number for each query: the weighted sum of the values' lengths. Multiply "
     "entry by entry, and do not add up over the keys, so that each query has one length for each "
     "key.",
     "weights @ v.norm(dim=-1, keepdim=True)"),
    ("lengths averaged, without a column",
     "Your result has one number for each query: the weighted sum of the values' lengths. Multiply "
     "entry by entry, and do not add up over the keys, so that each query has one length for each "
     "key.",
     "(weights @ v.norm(dim=-1, keepdim=True))[..., 0]"),
    *((f"{eps} added under the root",
       "Your result is right, except where values are very short. There, your lengths are too "
       "large, as if a small number were added under the root. Add nothing.",
       ("v.norm(dim=-1)", f"(v.square().sum(dim=-1) + {eps}).sqrt()"))
      for eps in ("1e-5", "1e-6", "1e-8")),
    *((f"{eps} added to the length",
       "Your result is right, except where values are very short. There, your lengths are too "
       "large, as if a small number were added to them. Add nothing.",
       ("v.norm(dim=-1)", f"v.norm(dim=-1) + {eps}"))
      for eps in ("1e-5", "1e-6")),
    ("weights squared",
     "Your weights are squared. Multiply each length by the weight itself.",
     ("weights * lengths", "weights**2 * lengths")),
    ("root of the weights",
     "Your result has the square roots of the weights. Multiply each length by the weight itself.",
     ("weights * lengths", "weights**0.5 * lengths")),
    ("values centered",
     "You subtract the mean over the keys from each value. Use the values as they are.",
     ("v.norm(dim=-1)", "(v - v.mean(dim=-2, keepdim=True)).norm(dim=-1)")),
    ("output without the key",
     "Your result is the length of the output *without* each key. Return the length of the vector "
     "that this key alone adds.",
     "((weights @ v)[..., None, :] - weights[..., None] * v[..., None, :, :]).norm(dim=-1)"),
    ("values of length 1",
     "Your result is the weights, as if every value had length 1. Multiply each weight by the "
     "length of the value.",
     ("v.norm(dim=-1)", "v.norm(dim=-1).sign()")),
    ("divided by the lengths",
     "You divide the weights by the lengths. A longer value adds a longer vector, so multiply.",
     ("weights * lengths", "weights / lengths")),
]  # fmt: skip

exercise = Exercise(
    "8.5", value_weighted, inputs, MISTAKES, names="L S", also_right=[by_einsum, by_vectors]
)
