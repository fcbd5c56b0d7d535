"""3.4: the gradient through a softmax with a temperature, mended, without the n × n matrix."""

import torch

from course_utils.checks.compare import difference
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import Shapes, normals


def softmax_vjp(x, g, T):
    p = torch.softmax(x / T, dim=-1)  # (..., n)
    mean = (p * g).sum(dim=-1, keepdim=True)  # (..., 1), the mean of g under p, row by row
    return p * (g - mean) / T  # (..., n)


def by_rows(x, g, T):
    p = torch.softmax(x / T, -1)
    rows = zip(p.reshape(-1, p.shape[-1]), g.reshape(-1, g.shape[-1]), strict=True)
    return torch.stack([a * (b - a @ b) / T for a, b in rows]).reshape(p.shape)


def by_autograd(x, g, T):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(torch.softmax(x / T, -1), x, g)[0]


def inputs():
    normal = normals(50)
    shapes = [(5,), (3, 4), (2, 3, 6), (3, 3), (1, 4), (1, 1), (2, 1, 3, 2), (3, 50)]
    temperatures = [1.0, 0.5, 2.0, 3.0, 0.25, 2, 1.5, 0.7]
    given = [
        (normal(*shape), normal(*shape), T) for shape, T in zip(shapes, temperatures, strict=True)
    ]
    forbidden = normal(3, 5)
    forbidden[:, 3:] = -torch.inf
    given += [(200 * normal(3, 4), normal(3, 4) + 5, 40.0), (forbidden, 3 * normal(3, 5), 1.3)]
    given += [(1000 + normal(4, 3), normal(4, 3), 0.1)]
    single = normal(4, dtype=torch.float32)
    turned = [normal(4, 3, 2).permute(2, 1, 0) for _ in range(2)]  # not contiguous
    far = torch.tensor([[0.0, -200]]), torch.tensor([[1.0, -1]]), 100.0  # e^−200 is 0 in float32
    return [*given, (single, single, 2.5), (*turned, 0.5), far]


def without_the_matrix(answer, x, g, T):
    """Call an answer; complain if it is right but makes an n × n matrix on the way."""
    with Shapes() as shapes:
        results = call_with_clones(answer, x, g, T)
    n, rows = x.shape[-1], x.shape[:-1].numel()
    # where the rows come in multiples of n, n of them are n × n too: nothing shows there
    if (n, n) in {shape[-2:] for shape in shapes.results} and rows % n:
        if difference(results[0], softmax_vjp(x, g, T)) is None:
            hint = "right here, but it makes the n × n matrix: multiply out gᵀ(diag(p) − ppᵀ) first"
            raise NamedMistake("makes the n × n matrix", hint)
    return results


PRODUCT = "p * (g - mean) / T"
MISTAKES = [
    ("nothing mended",
     "that is as it was: it agrees with autograd for one row at T = 1; compare them for two rows, "
     "and at T = 2",
     ("dim=-1, keepdim=True", ""), (PRODUCT, "p * (g - mean)")),
    ("the temperature left out",
     "right for T = 1 alone: x is divided by T before softmax, so by the chain rule the gradient "
     "at x is divided by T as well", (PRODUCT, "p * (g - mean)")),
    ("one mean for all rows",
     "right for one row: p·g runs over all rows together; each row has its own mean, "
     "sum(dim=-1, keepdim=True)", ("dim=-1, keepdim=True", "")),
    ("multiplied by the temperature",
     "it is multiplied by T; the gradient of x / T is 1 / T: the sharper, the steeper",
     (PRODUCT, "p * (g - mean) * T")),
    ("divided twice", "it is divided by T twice; one 1 / T comes from x / T, and that is all",
     (PRODUCT, "p * (g - mean) / T**2")),
    ("divided by the root of the temperature",
     "it is divided by √T; the gradient of x / T is 1 / T, without a root",
     (PRODUCT, "p * (g - mean) / T**0.5")),
    ("only g divided by the temperature",
     "g is divided by T, its mean p·g is not: 1 / T belongs to the whole, p * (g − p·g) / T",
     (PRODUCT, "p * (g / T - mean)")),
    ("only the mean divided by the temperature",
     "the mean p·g is divided by T, g is not: 1 / T belongs to the whole, p * (g − p·g) / T",
     (PRODUCT, "p * (g - mean / T)")),
    ("powers overflow",
     "right until x / T is large: e^(x / T) is infinite then, and the weights are NaN; "
     "torch.softmax takes care of it, exp / sum does not",
     ("torch.softmax(x / T, dim=-1)", "(x / T).exp() / (x / T).exp().sum(-1, keepdim=True)")),
    ("temperature after softmax",
     "Your gradient is right, except where a weight of softmax(x) is too small for a float. x / T "
     "would still give it a share. Divide the logits by T before softmax, not the weights after.",
     ("torch.softmax(x / T, dim=-1)",
      "(r := torch.softmax(x, dim=-1) ** (1 / T)) / r.sum(dim=-1, keepdim=True)")),
    ("temperature only outside", "the gradient is divided by T, but the weights are those of T = 1",
     ("x / T", "x")),
    ("temperature not used", "T is not used: the weights are softmax(x / T)",
     ("x / T", "x"), (PRODUCT, "p * (g - mean)")),
    ("mean of g not subtracted",
     "that is half of it: from g, subtract first the mean of g under p, "
     "(p * g).sum(-1, keepdim=True)", ("(g - mean)", "g")),
    ("not multiplied by p", "p * is missing in front: p * (g − p·g)", ("p * (g - mean)",
     "(g - mean)")),
    ("mean of g added", "the sign: p·g is subtracted from g, as J = diag(p) − ppᵀ",
     ("g - mean", "g + mean")),
    ("sign turned", "the sign is turned: g − p·g, not p·g − g", ("g - mean", "mean - g")),
    ("plain mean subtracted",
     "that subtracts the plain mean of g; weigh it by p: (p * g).sum(-1, keepdim=True)",
     ("(p * g).sum", "g.mean")),
    ("plain sum subtracted",
     "that subtracts the plain sum of g; weigh it by p: (p * g).sum(-1, keepdim=True)",
     ("(p * g).sum", "g.sum")),
    ("mean of the products",
     "that divides p·g by n; the weights sum to 1 already: (p * g).sum(-1, keepdim=True)",
     (".sum(", ".mean(")),
    ("diagonal only",
     "only the diagonal p(1 − p) is used; each weight also answers to the other logits",
     ("(g - mean)", "(1 - p) * g")),
    ("mean along the first",
     "p·g runs along the wrong dimension: the weights sum to 1 along the last, dim=-1",
     ("(dim=-1, k", "(dim=0, k")),
    ("row means meet columns", "keepdim=True is missing: each row's p·g must meet its own row",
     (", keepdim=True", "")),
]  # fmt: skip

exercise = Exercise(
    "3.4", softmax_vjp, inputs, MISTAKES, run=without_the_matrix, also_right=[by_rows, by_autograd]
)
