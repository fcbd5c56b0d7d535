"""10.1: the trained weight of a norm, moved into the matrix that reads the norm."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def fold_norm(weight, W):
    return W * weight  # (d_out, d_model), one weight for each column


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
    ("rows scaled",
     "Your result multiplies the rows of W, which belong to the outputs. The weight of the norm "
     "belongs to the inputs. Multiply the columns.", (ALL, "W * weight[:, None]")),
    ("rows scaled where W is square",
     "Your result is right, except where W is square. There it multiplies the rows. Multiply the "
     "columns, whatever the shape of W is.",
     (ALL, "W * (weight[:, None] if W.shape[0] == W.shape[1] else weight)")),
    ("divided", "Your result divides by the weight. The norm multiplies by it, and now W must do "
     "that. Multiply.", "W / weight"),
    ("weight added", "Your result adds the weight. The norm multiplies by it, so multiply.",
     "W + weight"),
    ("one number for all", "Your result multiplies all of W by one number. Multiply each column "
     "by its own entry of the weight.", "W * weight.mean()"),
    ("multiplied out", "Your result is the vector W @ weight. W must stay a matrix, so multiply "
     "each of its columns by one entry of the weight.", "W @ weight"),
    ("columns transposed", "Your numbers are right, but the matrix is transposed. Return it with "
     "the shape of W, (d_out, d_model).", "(W * weight).T"),
    ("W as it was", "Your result is W itself. Without the weight in the norm, the products are "
     "different. Put the weight into W.", "W + 0"),
    ("sign lost", "Your result has lost the signs of negative weights. A negative weight must flip "
     "the sign of its column.", "W * weight.abs()"),
    ("W normalized", "Your result normalizes the rows of W. Only x is normalized, and that is not "
     "part of this exercise. Leave the norm out.",
     "W / (W.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * weight"),
    ("twice", "Your result contains the weight twice. Multiply each column by it once.",
     "W * weight * weight"),
    ("matrix on the left", "Your result is diag(weight) @ W, which multiplies the rows. The weight "
     "belongs to the columns. Put the diagonal matrix on the right of W.", "weight.diag() @ W"),
]  # fmt: skip

exercise = Exercise(
    "10.1", fold_norm, inputs, MISTAKES, names="d_out d_model", also_right=[by_diagonal, by_loops]
)
