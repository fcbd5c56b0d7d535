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
     "You multiply the rows of W, which belong to the outputs. The weight of the norm belongs to "
     "the inputs. Multiply the columns.", (ALL, "W * weight[:, None]")),
    ("rows scaled where W is square",
     "Your result is right, except where W is square. There you multiply the rows. Always multiply "
     "the columns.",
     (ALL, "W * (weight[:, None] if W.shape[0] == W.shape[1] else weight)")),
    ("divided", "You divide the columns by the weight. The norm multiplies by the weight, and W′ "
     "must now do this. Multiply each column by the matching entry of the weight.", "W / weight"),
    ("weight added", "You add the weight to each row of W. The norm multiplies by the weight, and "
     "W′ must now do this. Multiply each column of W by the matching entry of the weight.",
     "W + weight"),
    ("one added to the weight", "You multiply by 1 + weight, as the norms of some other models do. "
     "This norm multiplies by the weight itself. Do not add 1.", "W * (1 + weight)"),
    ("one number for all", "You multiply all of W by one number, the mean of the weight. The norm "
     "multiplies each entry of x by its own weight. Multiply each column of W by the matching "
     "entry of the weight.", "W * weight.mean()"),
    ("multiplied out", "Your result is the vector W @ weight. W′ must be a matrix with the shape "
     "of W. Multiply each column of W by the matching entry of the weight, and do not add the "
     "columns up.",
     "W @ weight"),
    ("columns transposed", "Your numbers are right, but your matrix is transposed. Return it with "
     "the shape of W, (d_out, d_model).", "(W * weight).T"),
    ("W as it was", "Your result is W itself. With a weight of ones in the norm, the products "
     "would change. Multiply each column of W by the matching entry of the weight.", "W + 0"),
    ("sign lost", "You multiply by the absolute value of the weight. A negative weight must flip "
     "the sign of its column. Multiply by the weight as it is.", "W * weight.abs()"),
    ("W normalized", "You normalize the rows of W before you multiply. Only x is normalized, and "
     "`rms_norm` does that. Leave the rows as they are.",
     "W / (W.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * weight"),
    ("twice", "You multiply by the weight twice. Multiply each column only once by the "
     "matching entry of the weight.", "W * weight * weight"),
    ("matrix on the left", "Your result is diag(weight) @ W, which multiplies the rows. The weight "
     "belongs to the columns. Put the diagonal matrix on the right of W.", "weight.diag() @ W"),
    ("W transposed first", "You multiply the columns of W.T, which belong to the outputs. The "
     "weight belongs to the inputs. Leave out .T.",
     "W.T * weight"),
    ("only the first row scaled", "You multiply only the first row of W. Every row is "
     "applied to the output of the norm. Multiply each column as a whole.",
     "torch.cat([W[:1] * weight, W[1:]])"),
    ("only the first column scaled", "You multiply only the first column of W. Multiply each "
     "column by the matching entry of the weight.",
     "torch.cat([W[:, :1] * weight[:1], W[:, 1:]], dim=1)"),
    ("weight reversed", "Your columns are multiplied by the weight in reverse order. Multiply "
        "column i of W by entry i of the weight.", "W * weight.flip(0)"),
    ("weight normalized", "You divide the weight by its root mean square before you multiply. "
     "Only x is normalized, and `rms_norm` does that. Multiply by the weight as it is.",
     "W * weight / weight.square().mean().sqrt()"),
    ("weight of length 1", "You divide the weight by its length before you multiply. Multiply by "
     "the weight as it is.", "W * weight / weight.norm()"),
]  # fmt: skip

exercise = Exercise(
    "10.1", fold_norm, inputs, MISTAKES, names="d_out d_model", also_right=[by_diagonal, by_loops]
)
