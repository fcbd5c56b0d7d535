"""3.4: the gradient through softmax, without the n × n matrix."""

import torch

from course_utils.checks.compare import difference
from course_utils.checks.exercise import Complaint, Exercise, call_with_clones
from course_utils.checks.inputs import Shapes, normals


def softmax_vjp(p, g):
    mean = (p * g).sum(dim=-1, keepdim=True)  # (..., 1), the mean of g under p
    return p * (g - mean)  # (..., n)


def inputs():
    normal = normals(50)
    shapes = [(5,), (3, 4), (2, 3, 6), (3, 3), (1, 4), (1, 1), (2, 1, 3, 2), (3, 50)]
    pairs = [(normal(*shape), normal(*shape)) for shape in shapes]
    forbidden = normal(3, 5)
    forbidden[:, 3:] = -torch.inf
    pairs += [(200 * normal(3, 4), normal(3, 4) + 5), (forbidden, 3 * normal(3, 5))]
    pairs += [(normal(4, dtype=torch.float32),) * 2]
    # not contiguous
    turned = [each.permute(2, 1, 0) for each in (normal(4, 3, 2).softmax(0), normal(4, 3, 2))]
    return [*((torch.softmax(x, -1), g) for x, g in pairs), turned]


def without_the_matrix(answer, p, g):
    """Call an answer; complain if it is right but makes an n × n matrix on the way."""
    with Shapes() as shapes:
        results = call_with_clones(answer, p, g)
    n, rows = p.shape[-1], p.shape[:-1].numel()
    # where the rows come in multiples of n, n of them are n × n too: nothing shows there
    if (n, n) in {shape[-2:] for shape in shapes.results} and rows % n:
        if difference(results[0], softmax_vjp(p, g)) is None:
            hint = "right here, but it makes the n × n matrix: multiply out gᵀ(diag(p) − ppᵀ) first"
            raise Complaint("makes the n × n matrix", hint)
    return results


MISTAKES = [
    ("mean of g not subtracted",
     "that is half of it: from g, subtract first the mean of g under p, "
     "(p * g).sum(-1, keepdim=True)", ("(g - mean)", "g")),
    ("not multiplied by p", "p * is missing in front: p * (g − p·g)",
     ("p * (g - mean)", "g - mean")),
    ("mean of g added", "the sign: p·g is subtracted from g, as J = diag(p) − ppᵀ",
     ("g - mean", "g + mean")),
    ("sign turned", "the sign is turned: g − p·g, not p·g − g", ("g - mean", "mean - g")),
    ("sum of g subtracted",
     "that subtracts the sum of g; its mean under p is needed, (p * g).sum(-1, keepdim=True)",
     ("(p * g)", "g")),
    ("plain mean subtracted",
     "that subtracts the plain mean of g; weigh it by p: (p * g).sum(-1, keepdim=True)",
     ("(p * g).sum", "g.mean")),
    ("mean of the products",
     "that divides p·g by n; the weights sum to 1 already: (p * g).sum(-1, keepdim=True)",
     (".sum(", ".mean(")),
    ("number subtracted from products",
     "p·g is multiplied with p only once in all: p * g − p * (p·g)",
     ("p * (g - mean)", "p * g - mean")),
    ("diagonal only",
     "only the diagonal p(1 − p) is used; each weight also answers to the other logits",
     ("(g - mean)", "(1 - p) * g")),
    ("one mean for all rows",
     "p·g runs over all rows together; each row has its own: sum(dim=-1, keepdim=True)",
     ("dim=-1, keepdim=True", "")),
    ("mean along the first",
     "p·g runs along the wrong dimension: the weights sum to 1 along the last, dim=-1",
     ("dim=-1", "dim=0")),
    ("row means meet columns", "keepdim=True is missing: each row's p·g must meet its own row",
     (", keepdim=True", "")),
    ("outer product only", "that is ppᵀg alone; the whole is diag(p)g − ppᵀg",
     ("(g - mean)", "mean")),
    ("softmax taken again", "softmax is taken of p once more: p are the weights already",
     ("mean = ", "p = torch.softmax(p, -1); mean = ")),
]  # fmt: skip

exercise = Exercise("3.4", softmax_vjp, inputs, MISTAKES, run=without_the_matrix)
