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
    nearly_sure[1:, 1] = -torch.linspace(18.7, 19.3, 39)  # where Σp² - 2 Σp³ + (Σp²)² may be < 0
    return [
        (normal(5),),
        (normal(3, 4),),
        (2 * normal(2, 3, 6),),
        # far apart; two tied at the top; all the same
        (torch.tensor([[0.0, 40, -3, 1], [9, 9, -9, -9], [5, 5, 5, 5]], dtype=torch.float64),),
        (normal(2, 4) + 1000,),
        (normal(2, 7, dtype=torch.float32) - 800,),
        (torch.tensor([[320.0, 10, 0, 10], [1, 0, 2, 0]]),),
        (normal(1, 3, 4),),  # its 1 must not be squeezed away
        (torch.tensor([[1000.0, 999, 998], [-1000, -1001, -1003]]),),  # rows far apart
        (nearly_sure,),
        (normal(4, 3, 2).transpose(0, 2),),  # not contiguous
        (torch.tensor([[20000.0, 19999, -20000, 19998], [0, 1, 1, 0]]),),
        (normal(2, 50),),
        (normal(1, 4),),
        (torch.tensor([[8.0], [12]]) * torch.tensor([2.0, 1, 0, -1, -2]),),  # norms down to 1e-5
    ]


def small_ones_too(answer, scores):
    """Return the norms; complain if all are right but the small ones, measured by themselves."""
    results, right = call_with_clones(answer, scores), gradient_norm(scores.double())
    got = read(results[0])
    if right.max() < 1e-2 and got is not None and got.shape == right.shape:
        if ((got / right - 1).abs() > 0.05).any():
            hint = (
                "Your norms are right, except where softmax is saturated. There the norm is about "
                "1e-5, and yours is off by more than 5%. Small differences of numbers near 1 lose "
                "their digits. Add up the squares of all entries of diag(p) − ppᵀ."
            )
            raise NamedMistake("small norms lost", hint, [right])
        return [right]
    return results


MISTAKES = [
    ("scores as weights", "softmax is missing: the p in diag(p) − ppᵀ are weights, not scores",
     ("scores.softmax(dim=-1)", "scores")),
    ("diagonal alone",
     "that is the diagonal p(1 − p) alone; the entries beside it, −p_i p_j, count as well",
     ("jacobian.square().sum(dim=(-2, -1)).sqrt()", "(p * (1 - p)).norm(dim=-1)")),
    ("outer product alone", "diag(p) is missing: the Jacobian is diag(p) − ppᵀ",
     ("p.diag_embed() - outer", "outer")),
    ("no matrix", "p * p is no matrix: ppᵀ has p_i p_j in row i and column j, p[..., :, None] * "
     "p[..., None, :]", ("p[..., :, None] * p[..., None, :]", "p * p")),
    ("inner product of rows",
     "p @ p.T is no outer product: of one row it is the number p·p, of several the products of row "
     "with row; write p[..., :, None] * p[..., None, :]",
     ("p[..., :, None] * p[..., None, :]", "p @ p.T")),
    ("inner product",
     "p·p, a number, is subtracted from all entries; ppᵀ has p_i p_j in row i and column j, "
     "p[..., :, None] * p[..., None, :]",
     ("p[..., :, None] * p[..., None, :]", "(p * p).sum(dim=-1)[..., None, None]")),
    ("diag alone", "ppᵀ is missing: diag(p) alone does not become 0 when softmax saturates",
     (" - outer", "")),
    ("outer product added", "a plus where a minus belongs: diag(p) − ppᵀ",
     ("- outer", "+ outer")),
    ("root not taken", "the squares are added up, but the root is not taken", (".sqrt()", "")),
    ("entries added unsquared",
     "the entries are added with their signs, so they cancel to 0 (each row sums to 0): square "
     "first", (".square()", ""), (".sqrt()", "")),
    ("absolute values added", "that adds absolute values; square the entries, add, take the root",
     (".square()", ".abs()"), (".sqrt()", "")),
    ("spectral norm", "that is the largest singular value; the Frobenius norm takes all entries",
     ("jacobian.square().sum(dim=(-2, -1)).sqrt()", "torch.linalg.matrix_norm(jacobian, ord=2)")),
    ("softmax twice", "softmax runs twice, once more over weights: p is softmax of the scores",
     ("scores.softmax(dim=-1)", "scores.softmax(dim=-1).softmax(dim=-1)")),
    ("mean of the squares", "that is the root of the mean square; the Frobenius norm takes the sum",
     ("square().sum", "square().mean")),
    ("norm of each row",
     "those are the norms of the Jacobian's rows; one number is asked, of all its entries: "
     "dim=(-2, -1)",
     ("dim=(-2, -1)", "dim=-1")),
    ("norm over everything",
     "one number for all rows: each row of scores has a Jacobian of its own",
     ("dim=(-2, -1)", "")),
    ("softmax over first dimension",
     "softmax runs over the wrong dimension: the scores of one query stand in the last one",
     ("dim=-1)  # (..., S)", "dim=0)")),
    ("exponential overflows",
     "large scores give NaN: e^1000 overflows; torch.softmax takes care of it, exp / sum does not",
     ("scores.softmax(dim=-1)", "scores.exp() / scores.exp().sum(dim=-1, keepdim=True)")),
    ("rounded below zero",
     "Your norms are right, but NaN where a weight is nearly 1. There the terms cancel, and their "
     "sum came out a little below 0, which has no root. Add up the squares of all entries instead.",
     ("jacobian.square().sum(dim=(-2, -1)).sqrt()",
      "(p.pow(2).sum(-1) - 2 * p.pow(3).sum(-1) + p.pow(2).sum(-1) ** 2).sqrt()")),
    ("maximum of all rows",
     "one maximum is subtracted from all rows: in a row far below it every power is 0, and 0 / 0 "
     "is NaN; take each row's own",
     ("scores.softmax(dim=-1)",
      "(e := (scores - scores.max()).exp()) / e.sum(dim=-1, keepdim=True)")),
]  # fmt: skip

exercise = Exercise(
    "2.6", gradient_norm, inputs, MISTAKES, run=small_ones_too, also_right=[by_power_sums]
)
