"""3.4: the gradient through a softmax with a temperature, without the n × n matrix."""

import torch

from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import Shapes, normals


def softmax_vjp(x, g, T):
    p = torch.softmax(x / T, dim=-1)  # (..., n)
    mean = (p * g).sum(dim=-1, keepdim=True)  # (..., 1), one mean of g under p for each row
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
    given += [((1000 + normal(4, 3)).half().double(), normal(4, 3), 0.5)]
    given += [(1e9 + normal(3, 4), normal(3, 4), 2.0)]  # all the same in float32
    single = normal(4, dtype=torch.float32)
    permuted = [normal(4, 3, 2).permute(2, 1, 0) for _ in range(2)]  # not contiguous
    far = torch.tensor([[0.0, -200]]), torch.tensor([[1.0, -1]]), 100.0  # e^−200 is 0 in float32
    return [*given, (single, single, 2.5), (*permuted, 0.5), far]


def without_the_matrix(answer, x, g, T):
    """Call an answer; complain if it is right but builds an n × n matrix."""
    with Shapes() as shapes:
        results = call_with_clones(answer, x, g, T)
    n, rows = x.shape[-1], x.shape[:-1].numel()
    # if the number of rows is a multiple of n, some are n × n too, and nothing can be seen
    if (n, n) in {shape[-2:] for shape in shapes.results} and rows % n:
        hint = (
            "Right, but your function builds an n × n matrix. Multiply out gᵀ(diag(p) − ppᵀ) first."
        )
        raise NamedMistake("makes the n × n matrix", hint, results)
    return results


PRODUCT = "p * (g - mean) / T"
MISTAKES = [
    ("nothing fixed",
     "Your result is that of the given code, which is right only for one row and T = 1. Compare "
     "it with autograd for two rows, and for T = 2. Each row needs its own p·g, and the gradient "
     "must be divided by T.",
     ("dim=-1, keepdim=True", ""), (PRODUCT, "p * (g - mean)")),
    ("the temperature left out",
     "Right for T = 1 only. x is divided by T before the softmax. By the chain rule, divide the "
     "gradient with respect to x by T too.", (PRODUCT, "p * (g - mean)")),
    ("one mean for all rows",
     "Right for one row. With several rows, your p·g is a sum over all of them. Give each row its "
     "own p·g: (p * g).sum(dim=-1, keepdim=True).", ("dim=-1, keepdim=True", "")),
    ("multiplied by the temperature",
     "Your result is multiplied by T. The derivative of x / T is 1 / T, so divide by T instead.",
     (PRODUCT, "p * (g - mean) * T")),
    ("divided twice",
     "Your result is divided by T twice. Only x / T contributes a factor 1 / T, so divide once.",
     (PRODUCT, "p * (g - mean) / T**2")),
    ("divided by the root of the temperature",
     "Your result is divided by √T. The derivative of x / T is 1 / T. Divide by T itself.",
     (PRODUCT, "p * (g - mean) / T**0.5")),
    ("only g divided by the temperature",
     "In your result, g is divided by T, but its mean p·g is not. Divide the whole: p * (g − p·g) "
     "/ T.",
     (PRODUCT, "p * (g / T - mean)")),
    ("only the mean divided by the temperature",
     "In your result, the mean p·g is divided by T, but g is not. Divide the whole: p * (g − p·g) "
     "/ T.",
     (PRODUCT, "p * (g - mean / T)")),
    ("exponentials overflow",
     "Right for moderate x / T. For large x / T, e^(x / T) overflows to inf, and inf / inf is "
     "NaN. Use torch.softmax, which subtracts the maximum first.",
     ("torch.softmax(x / T, dim=-1)", "(x / T).exp() / (x / T).exp().sum(-1, keepdim=True)")),
    ("temperature after softmax",
     "Right, except where a weight of softmax(x) underflows to 0. Your result is what you get with "
     "softmax(x)^(1/T), normalized. Such a weight then stays 0, although a large T should raise "
     "it. Divide the scores by T before the softmax.",
     ("torch.softmax(x / T, dim=-1)",
      "(r := torch.softmax(x, dim=-1) ** (1 / T)) / r.sum(dim=-1, keepdim=True)")),
    ("temperature only outside",
     "Your result is the gradient through softmax(x), divided by T. Compute the weights as "
     "softmax(x / T).",
     ("x / T", "x")),
    ("temperature not used",
     "Your result does not depend on T. Use softmax(x / T), and divide the gradient by T.",
     ("x / T", "x"), (PRODUCT, "p * (g - mean)")),
    ("mean of g not subtracted",
     "Your result is what you get with p * g / T, which leaves out a term, because each score "
     "also changes all the other weights. Before multiplying by p, subtract from g its mean "
     "weighted by p: (p * g).sum(-1, keepdim=True).", ("(g - mean)", "g")),
    ("mean not multiplied by p",
     "Your result is what you get with (p * g − p·g) / T, where p multiplies only g. But p must "
     "multiply the whole difference. Add parentheses: p * (g − p·g) / T.",
     (PRODUCT, "(p * g - mean) / T")),
    ("p outside the sum",
     "Your result is what you get with p * (g − p · Σg) / T, where p multiplies the sum of g. But "
     "p must multiply each g before the sum. Add parentheses: (p * g).sum(-1, keepdim=True).",
     (PRODUCT, "p * (g - p * g.sum(dim=-1, keepdim=True)) / T")),
    ("through a log-softmax",
     "Your result is the gradient through a log-softmax, g − p · Σg, divided by T. Here g is the "
     "gradient with respect to the weights, not to their logarithms. Return p * (g − p·g) / T.",
     (PRODUCT, "(g - p * g.sum(dim=-1, keepdim=True)) / T")),
    ("through a log-softmax, without the temperature",
     "Your result is g − p · Σg, the gradient through a log-softmax. Here g is the gradient with "
     "respect to the weights, not to their logarithms. Return p * (g − p·g) / T.",
     (PRODUCT, "g - p * g.sum(dim=-1, keepdim=True)")),
    ("not multiplied by p",
     "Your result is (g − p·g) / T, without the factor p. But g is the gradient with respect to "
     "the weights, and ∂p/∂x contains p. Return p * (g − p·g) / T.", ("p * (g - mean)",
     "(g - mean)")),
    ("mean of g added",
     "You add p·g to g. In diag(p) − ppᵀ, the second term has a minus sign, so subtract p·g.",
     ("g - mean", "g + mean")),
    ("wrong sign",
     "Your result has the wrong sign. Use g − p·g, not p·g − g.", ("g - mean", "mean - g")),
    ("calculated in float32",
     "Your result is what you get with float32, where numbers near 10⁹ are 64 apart. Scores that "
     "differ by less become equal. Keep the dtype of x.",
     ("torch.softmax(x / T, dim=-1)", "torch.softmax(x.float() / T, dim=-1)")),
    ("sum of the weights subtracted",
     "You subtract 1 from g, which is what you get if you sum the weights p without g. Sum their "
     "products with g: (p * g).sum(-1, keepdim=True).", ("(p * g).sum", "p.sum")),
    ("sum of the squared weights subtracted",
     "You subtract Σ p² from g. Multiply p by g before you sum, not by itself: (p * g).sum(-1, "
     "keepdim=True).", ("(p * g).sum", "(p * p).sum")),
    ("plain mean subtracted",
     "You subtract the plain mean of g. In gᵀppᵀ, each entry of g is weighted by p. Subtract the "
     "weighted mean: (p * g).sum(-1, keepdim=True).",
     ("(p * g).sum", "g.mean")),
    ("plain sum subtracted",
     "You subtract the plain sum of g. In gᵀppᵀ, each entry of g is weighted by p. Subtract the "
     "weighted sum: (p * g).sum(-1, keepdim=True).",
     ("(p * g).sum", "g.sum")),
    ("mean of the products",
     "You divide p·g by n. The weights already sum to 1, so take the sum: (p * g).sum(-1, "
     "keepdim=True).",
     (".sum(", ".mean(")),
    ("diagonal only",
     "You use only the diagonal of diag(p) − ppᵀ, which is p(1 − p). Each weight also depends on "
     "the other scores. Return p * (g − p·g) / T.",
     ("(g - mean)", "(1 - p) * g")),
    ("mean along the first",
     "Right for a single row of shape (n,). With more dimensions, your p·g is a sum along the "
     "first dimension. A row lies along the last one, so use dim=-1.",
     ("(dim=-1, k", "(dim=0, k")),
    ("softmax along the first",
     "Right for a single row of shape (n,). With more dimensions, your softmax and your sum of "
     "p · g run along the first dimension. A row lies along the last one, so use dim=-1 for both.",
     ("dim=-1)", "dim=0)"), ("dim=-1, keepdim", "dim=0, keepdim")),
    ("scores multiplied by the temperature",
     "Your result is the gradient through softmax(x · T). The scores must be divided by T. Use "
     "softmax(x / T), and divide the gradient by T.",
     ("x / T", "x * T"), (PRODUCT, "p * (g - mean) * T")),
    ("keepdim missing",
     "Your p·g is not aligned with the rows. Without keepdim, its shape is (...), and "
     "broadcasting aligns it with the columns. Pass keepdim=True to the sum.",
     (", keepdim=True", "")),
]  # fmt: skip

exercise = Exercise(
    "3.4", softmax_vjp, inputs, MISTAKES, run=without_the_matrix, also_right=[by_rows, by_autograd]
)
