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
     "the lengths are squared: that is the sum of squares; its root is the length",
     ("v.norm(dim=-1)", "v.square().sum(dim=-1)")),
    ("sizes added",
     "the sizes of the entries are added; the length is the root of the squares' sum",
     ("v.norm(dim=-1)", "v.abs().sum(dim=-1)")),
    ("entries added",
     "the entries of each value are added with their signs; take the vector's length",
     ("v.norm(dim=-1)", "v.sum(dim=-1)")),
    ("normalised again", "rows are divided by their sums again; the lengths themselves are asked",
     ("weights * lengths[..., None, :]",
      "(x := weights * lengths[..., None, :]) / x.sum(dim=-1, keepdim=True)")),
    ("lengths along queries",
     "values belong to keys: their lengths go along the columns, (..., 1, S)",
     ("None, :]", ":, None]")),
    ("length over keys", "the length is taken over the keys; each value's length is over d_v",
     ("dim=-1", "dim=-2")),
    ("one length for all", "the length is taken of all values at once; each key's has its own, "
     "dim=-1", "weights * v.norm()"),
    ("length of the mixture",
     "that is the length of the whole output; one length for each key is asked",
     "(weights @ v).norm(dim=-1)"),
    ("vectors not lengths", "those are the vectors, (..., L, S, d_v); take their lengths",
     "weights[..., None] * v[..., None, :, :]"),
    ("values alone", "the lengths of the values alone; multiply by the weights",
     ("weights * lengths[..., None, :]", "lengths[..., None, :].expand(weights.shape)")),
]  # fmt: skip

exercise = Exercise(
    "8.5", value_weighted, inputs, MISTAKES, names="L S", also_right=[by_einsum, by_vectors]
)
