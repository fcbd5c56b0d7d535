"""2.6: the Frobenius norm of softmax's Jacobian, at scores of any size."""

import torch

from course_utils.checks.compare import read
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import normals


def gradient_norm(scores):
    p = scores.softmax(dim=-1)  # (..., S)
    outer = p[..., :, None] * p[..., None, :]  # (..., S, S)
    jacobian = p.diag_embed() - outer  # (..., S, S)
    return jacobian.square().sum(dim=(-2, -1)).sqrt()  # (...)


def by_power_sums(scores):
    p = scores.double().softmax(-1)
    squares = p.pow(2).sum(-1)
    return (squares - 2 * p.pow(3).sum(-1) + squares**2).clamp(min=0).sqrt()


def inputs():
    normal = normals(26)
    nearly_sure = torch.zeros(40, 2, dtype=torch.float64)
    # here Σp² - 2 Σp³ + (Σp²)² may round below 0
    nearly_sure[1:, 1] = -torch.linspace(18.7, 19.3, 39)
    return [
        (normal(5),),
        (normal(3, 4),),
        (2 * normal(2, 3, 6),),
        # far apart; two tied at the top; all the same
        (torch.tensor([[0.0, 40, -3, 1], [9, 9, -9, -9], [5, 5, 5, 5]], dtype=torch.float64),),
        (normal(2, 4) + 1000,),
        (normal(2, 7, dtype=torch.float32) - 800,),
        (torch.tensor([[320.0, 10, 0, 10], [1, 0, 2, 0]]),),
        (normal(1, 3, 4),),  # the dimension of size 1 must stay
        (torch.tensor([[1000.0, 999, 998], [-1000, -1001, -1003]]),),  # rows far apart
        (nearly_sure,),
        (normal(4, 3, 2).transpose(0, 2),),  # not contiguous
        (torch.tensor([[20000.0, 19999, -20000, 19998], [0, 1, 1, 0]]),),
        (normal(2, 50),),
        (normal(1, 4),),
        (torch.tensor([[8.0], [12]]) * torch.tensor([2.0, 1, 0, -1, -2]),),  # norms down to 1e-5
    ]


def small_ones_too(answer, scores):
    """Return the norms; raise if only the small ones are wrong, measured relative to themselves."""
    results, right = call_with_clones(answer, scores), gradient_norm(scores.double())
    got = read(results[0])
    if right.max() < 1e-2 and got is not None and got.shape == right.shape:
        if ((got / right - 1).abs() > 0.05).any():
            hint = (
                "Your norms are right, except where softmax is saturated. There, the norm is "
                "below 0.001, and yours is off by more than 5%. If you subtract numbers near 1, "
                "their small difference has few correct digits. Add up the squares of all "
                "entries of diag(p) − ppᵀ instead."
            )
            raise NamedMistake("small norms lost", hint, [right])
        return [right]
    return results


MISTAKES = [
    ("scores as weights",
     "You use the scores in place of the weights p. Take the softmax of the scores first.",
     ("scores.softmax(dim=-1)", "scores")),
    ("diagonal alone",
     "You use only the diagonal entries of the matrix, p_i (1 − p_i). The other entries, −p_i "
     "p_j, count as well. Square all entries, add the squares, and take the square root.",
     ("jacobian.square().sum(dim=(-2, -1)).sqrt()", "(p * (1 - p)).norm(dim=-1)")),
    ("diagonal left out",
     "You use only the entries off the diagonal, −p_i p_j. The diagonal entries, p_i (1 − p_i), "
     "count as well. Square all entries, add the squares, and take the square root.",
     ("jacobian.square()", "(jacobian - jacobian.diagonal(0, -2, -1).diag_embed()).square()")),
    ("trace",
     "Your result is the sum of the diagonal entries, Σ p_i (1 − p_i), which is the trace. For "
     "the Frobenius norm, square all entries of the matrix, add the squares, and take the "
     "square root.",
     ("jacobian.square().sum(dim=(-2, -1)).sqrt()", "(p * (1 - p)).sum(dim=-1)")),
    ("outer product alone",
     "Your result is the norm of ppᵀ, without diag(p). Subtract ppᵀ from diag(p).",
     ("p.diag_embed() - outer", "outer")),
    ("no matrix",
     "You subtract the vector p * p in place of the matrix ppᵀ, whose entry in row i and column j "
     "is p_i p_j. Write p[..., :, None] * p[..., None, :].",
     ("p[..., :, None] * p[..., None, :]", "p * p")),
    ("inner product of rows",
     "You subtract dot products between rows of weights, which is what p @ p.T gives. For the "
     "weights p of one row, ppᵀ is the S × S matrix whose entry (i, j) is p_i p_j. Write p[..., "
     ":, None] * p[..., None, :].",
     ("p[..., :, None] * p[..., None, :]", "p @ p.T")),
    ("inner product",
     "You subtract one number, p·p, from all entries. The entry of ppᵀ in row i and column j is "
     "p_i p_j. Write p[..., :, None] * p[..., None, :].",
     ("p[..., :, None] * p[..., None, :]", "(p * p).sum(dim=-1)[..., None, None]")),
    ("diag alone",
     "Your result is the norm of diag(p), without ppᵀ. This norm does not fall to 0 when "
     "softmax saturates. Subtract ppᵀ from diag(p).",
     (" - outer", "")),
    ("outer product added",
     "You add ppᵀ to diag(p). The Jacobian is diag(p) − ppᵀ, so subtract ppᵀ.",
     ("- outer", "+ outer")),
    ("root not taken",
     "Your result is the sum of the squared entries. Take the square root of this sum.",
     (".sqrt()", "")),
    ("entries added unsquared",
     "You add the entries with their signs. Each row of diag(p) − ppᵀ sums to 0, so the entries "
     "cancel. Square the entries first, and take the square root of the sum.",
     (".square()", ""), (".sqrt()", "")),
    ("absolute values added",
     "You add the absolute values of the entries. Square the entries, add the squares, and take "
     "the square root.",
     (".square()", ".abs()"), (".sqrt()", "")),
    ("spectral norm",
     "Your result is the largest singular value, which is the spectral norm. For the Frobenius "
     "norm, square all entries, add the squares, and take the square root.",
     ("jacobian.square().sum(dim=(-2, -1)).sqrt()", "torch.linalg.matrix_norm(jacobian, ord=2)")),
    ("softmax twice",
     "Your result is what you get if you apply softmax twice. p is the softmax of the scores, "
     "so apply it once.",
     ("scores.softmax(dim=-1)", "scores.softmax(dim=-1).softmax(dim=-1)")),
    ("mean of the squares",
     "Your result is the square root of the mean of the squares. The Frobenius norm is the "
     "square root of their sum. Use the sum instead of the mean.",
     ("square().sum", "square().mean")),
    ("norm of each row",
     "Your result has one norm for each row of the matrix. Return one norm for the whole "
     "matrix: sum the squares over dim=(-2, -1), then take the square root.",
     ("dim=(-2, -1)", "dim=-1")),
    ("norm over everything",
     "Your result is one number for all rows of scores. Each row has a matrix of its own, so "
     "sum only over dim=(-2, -1).",
     ("dim=(-2, -1)", "")),
    ("softmax over first dimension",
     "Your weights sum to 1 along the first dimension. The scores of one row are in the last "
     "dimension, so use softmax(dim=-1).",
     ("dim=-1)  # (..., S)", "dim=0)")),
    ("exponential overflows",
     "Right, except for scores far from 0, where your result is NaN. If you compute exp / sum, "
     "e^1000 overflows to inf, and inf / inf is NaN. For very negative scores, all exponentials "
     "underflow to 0, and 0 / 0 is NaN. Use torch.softmax, which subtracts the largest score "
     "first.",
     ("scores.softmax(dim=-1)", "scores.exp() / scores.exp().sum(dim=-1, keepdim=True)")),
    ("rounded below zero",
     "Your norms are right, except where a weight is nearly 1. There they are NaN. If you add "
     "terms such as Σp² and −2 Σp³, these terms cancel there. Rounding can then make the sum "
     "negative, and the root of a negative number is NaN. Add up the squares of all entries of "
     "diag(p) − ppᵀ instead.",
     ("jacobian.square().sum(dim=(-2, -1)).sqrt()",
      "(p.pow(2).sum(-1) - 2 * p.pow(3).sum(-1) + p.pow(2).sum(-1) ** 2).sqrt()")),
    ("maximum of all rows",
     "Your result is what you get if one maximum is subtracted from all rows of scores. In a "
     "row far below this maximum, all exponentials underflow to 0, and 0 / 0 is NaN. Subtract "
     "from each row its own maximum, amax(dim=-1, keepdim=True).",
     ("scores.softmax(dim=-1)",
      "(e := (scores - scores.max()).exp()) / e.sum(dim=-1, keepdim=True)")),
    ("identity in place of diag",
     "You subtract ppᵀ from the identity matrix. The Jacobian is diag(p) − ppᵀ, and diag(p) has "
     "the weights p_i on its diagonal, not ones. Use torch.diag_embed(p).",
     ("p.diag_embed()", "torch.eye(p.shape[-1], dtype=p.dtype)")),
    ("first row alone",
     "Your result is the norm of only the first row of the matrix. Use all rows: sum the "
     "squares over dim=(-2, -1), then take the square root.",
     ("jacobian.square().sum(dim=(-2, -1))", "jacobian[..., 0, :].square().sum(dim=-1)")),
]  # fmt: skip

exercise = Exercise(
    "2.6", gradient_norm, inputs, MISTAKES, run=small_ones_too, also_right=[by_power_sums]
)
