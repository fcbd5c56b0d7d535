"""2.4: the entropy of each row of weights, in nats."""

import numpy as np
import torch

from course_utils.checks.compare import difference, read
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import normals


def entropy(weights):
    terms = -torch.xlogy(weights, weights)  # (..., S), 0 for a weight of 0
    return terms.sum(dim=-1)  # (...)


def in_numpy(weights):
    w = weights.double().numpy()
    logs = np.log(w, out=np.zeros_like(w), where=w > 0)
    return torch.from_numpy(np.asarray(-(w * logs).sum(-1)))


def inputs():
    normal = normals(24)
    sizes = torch.tensor([[200.0], [200], [1], [1]])
    sharp = torch.tensor([[1.0, 0, 0], [0, 0.5, 0.5], [0.25, 0.75, 0], [0.2, 0.3, 0.5]])
    return [
        (normal(5, 7).softmax(dim=-1),),
        (sharp.double(),),
        ((3 * normal(2, 3, 4, 6)).softmax(dim=-1),),
        (normal(9).softmax(dim=-1),),
        # two rows are saturated down to exact zeros, two are not
        ((sizes * normal(4, 5, dtype=torch.float32)).softmax(dim=-1),),
        (torch.full((2, 8), 1 / 8),),
        (normal(1, 3, 5).softmax(dim=-1),),  # the dimension of size 1 must stay
        (normal(3, 2, 4).softmax(dim=-1).transpose(0, 1),),  # .view() would fail
        ((4 * normal(3, 50)).softmax(dim=-1),),
        (normal(1, 6).softmax(dim=-1),),
    ]


def without_an_eps(reference, as_entropy):
    """Return a ``run`` that raises if a result has some right digits, but fewer than float32 gives.

    If float64 weights are rounded to float32, their entropy changes by at most (S + 6)·2⁻²⁴ times
    itself, and it is at most log S. For up to 4,000 keys, that is less than this function allows.
    """

    def run(answer, weights):
        [result] = call_with_clones(answer, weights)
        right, got = reference(weights), read(result)
        near = got is not None and difference(result, right) is None
        if near and weights.dtype == torch.float64:
            off = as_entropy(got) - as_entropy(right)
            if (off.abs() > 5e-7 * weights.shape[-1]).any():
                raise NamedMistake("epsilon in the logarithm", EPSILON, [result])
        return [result]

    return run


EPSILON = (
    "Your result is right to a few digits, but its error is larger than rounding in float32 would "
    "cause. If you add a small number to the weights (an eps), leave it out. Let a weight of 0 "
    "add 0, with torch.xlogy or torch.where."
)
MISTAKES = [
    ("zero weight gives nan",
     "Right, except for a row with a weight of 0. There, ln 0 is −inf, and 0 · (−inf) is NaN. "
     "Let such a weight add 0, with torch.xlogy or torch.where.",
     ("torch.xlogy(weights, weights)", "weights * weights.log()")),
    ("nan replaced after the sum",
     "Your result is 0 for a row that contains a weight of 0. The term 0 · ln 0 is NaN, so the "
     "sum is NaN as well. If you replace NaN after the sum, you discard the other terms. "
     "Replace NaN in each term, before you sum.",
     ("torch.xlogy(weights, weights)", "weights * weights.log()"),
     ("sum(dim=-1)", "sum(dim=-1).nan_to_num()")),
    ("bits in place of nats",
     "Your entropies are in bits, as with log2. For nats, use the natural logarithm.",
     ("sum(dim=-1)", "sum(dim=-1) / torch.tensor(2.0).log()")),
    ("logarithm to base 10",
     "Your entropies are in base 10, as with log10. For nats, use the natural logarithm.",
     ("sum(dim=-1)", "sum(dim=-1) / torch.tensor(10.0).log()")),
    ("minus missing",
     "Your entropies have the wrong sign. ln p is never positive, so put a minus sign before "
     "the sum.",
     ("-torch", "torch")),
    ("added over all rows",
     "Your result is one number for all rows, but each row has its own entropy. If you use "
     "weights[weights > 0], this indexing flattens the rows. Keep the shape, and sum with dim=-1.",
     ("dim=-1", "")),
    ("summed over queries",
     "You sum over the queries. The weights of one query are in the last dimension, so use "
     "sum(dim=-1).",
     ("dim=-1", "dim=max(-2, -weights.ndim)")),
    ("summed over dimension 1",
     "Right for a matrix only. You sum over dimension 1, but the weights of one query are in the "
     "last dimension. Use dim=-1.",
     ("dim=-1", "dim=1")),
    ("mean over keys",
     "Your result is the mean of the terms −p ln p. Entropy is their sum over the keys, so use "
     "sum(dim=-1).",
     ("sum", "mean")),
    ("share of the largest",
     "Your entropies are divided by ln S, the largest possible entropy. Return them in nats, "
     "without this division.",
     ("sum(dim=-1)", "sum(dim=-1) / torch.tensor(weights.shape[-1]).log()")),
    ("sum of squares",
     "Your result is 1 − Σp², which measures spread in another way. Return the entropy, −Σ p ln p.",
     ("terms.sum(dim=-1)", "1 - weights.square().sum(dim=-1)")),
    ("logarithms not weighted",
     "Your result is the sum of −ln p alone. Multiply each ln p by its weight p before you sum.",
     ("torch.xlogy(weights, weights)", "weights.clamp(min=1e-9).log()")),
    ("softmax once more",
     "Your result is the entropy of weights that went through softmax once more, which makes "
     "them more uniform. The input already contains weights. Use them without softmax.",
     ("torch.xlogy(weights, weights)", "torch.xlogy(p := weights.softmax(dim=-1), p)")),
    ("terms not added",
     "Your result contains the right terms, one for each key. Sum them over the keys, with "
     "dim=-1.",
     ("terms.sum(dim=-1)", "terms")),
    ("kept the dimension",
     "Your entropies are right, but the result has one dimension too many. Sum without keepdim.",
     ("dim=-1", "dim=-1, keepdim=True")),
    ("effective number",
     "Your result is e^H, the effective number of keys. Exercise 2.5 asks for that. Here, "
     "return H itself.",
     ("sum(dim=-1)", "sum(dim=-1).exp()")),
]  # fmt: skip

exercise = Exercise(
    "2.4", entropy, inputs, MISTAKES, run=without_an_eps(entropy, torch.clone),
    also_right=[in_numpy, lambda weights: entropy(weights.float()),
                lambda weights: torch.distributions.Categorical(probs=weights).entropy(),
                lambda weights: -(weights * (weights + 1e-9).log()).sum(-1)],
)  # fmt: skip
