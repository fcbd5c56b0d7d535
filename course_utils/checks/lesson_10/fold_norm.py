"""10.1: the trained weight of a norm, taken into the matrix that reads the norm."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def fold_norm(weight, W):
    return W * weight  # (d_out, d_model), a column for each entry of the norm


def by_diagonal(weight, W):
    return W @ torch.diag(weight)


def by_loops(weight, W):
    return torch.stack([W[:, i] * weight[i] for i in range(len(weight))], dim=1)


def inputs():
    normal = normals(101)
    sizes = [(5, 3), (4, 4), (2, 7), (1, 6), (6, 1)]
    made = [(normal(d_model), normal(d_out, d_model)) for d_out, d_model in sizes]
    single = normal(4).float(), normal(4, 3).float().T  # not contiguous
    return [*made, single]


ALL = "W * weight"
MISTAKES = [
    ("rows stretched",
     "the rows of W are stretched, one for each number that comes out; the norm's weight belongs "
     "to what goes in, which are the columns", (ALL, "W * weight[:, None]")),
    ("divided", "divided by the weight: the norm multiplies with it, and now W must", "W / weight"),
    ("weight added", "the weight is added; the norm multiplies with it", "W + weight"),
    ("one number for all", "W is stretched by one number; each column has its own",
     "W * weight.mean()"),
    ("multiplied out", "that is W times the weight as a vector; W stays a matrix, and each of its "
     "columns is stretched", "W @ weight"),
    ("columns transposed", "right numbers, but transposed: (d_out, d_model) as W was",
     "(W * weight).T"),
    ("W as it was", "W comes back as it was: without the norm's weight something must make up for "
     "it", "W + 0"),
    ("sign lost", "a weight below zero lost its sign: it turns its column around",
     "W * weight.abs()"),
    ("W normed", "the rows of W are normed; only x is, and that not here",
     "W / (W.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * weight"),
    ("twice", "the weight comes in twice", "W * weight * weight"),
    ("matrix on the left", "the diagonal matrix stands on the left of W, where it stretches rows",
     "weight.diag() @ W"),
]  # fmt: skip

exercise = Exercise(
    "10.1", fold_norm, inputs, MISTAKES, names="d_out d_model", also_right=[by_diagonal, by_loops]
)
