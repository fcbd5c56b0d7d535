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
        # two rows saturated down to exact zeros, two not
        ((sizes * normal(4, 5, dtype=torch.float32)).softmax(dim=-1),),
        (torch.full((2, 8), 1 / 8),),
        (normal(1, 3, 5).softmax(dim=-1),),  # its 1 must not be squeezed away
        (normal(3, 2, 4).softmax(dim=-1).transpose(0, 1),),  # .view() would not do
        ((4 * normal(3, 50)).softmax(dim=-1),),
        (normal(1, 6).softmax(dim=-1),),
    ]


def without_an_eps(reference, as_entropy):
    """Return a ``run`` that complains if a result is right to some digits, fewer than float32's.

    Of float64 weights rounding in float32 costs (S + 6)·2⁻²⁴ of an entropy, which is at most
    log S: less than is allowed here for up to 4,000 keys.
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
    "right to some digits, but farther off than even float32 rounds: is a small number added to "
    "the weights (an eps)? Let a weight of 0 add 0, with torch.xlogy or torch.where"
)
MISTAKES = [
    ("zero weight gives nan",
     "a weight of 0 gives NaN (0 · ln 0): let it add 0, with torch.xlogy or torch.where",
     ("torch.xlogy(weights, weights)", "weights * weights.log()")),
    ("nan replaced after the sum",
     "a row with a weight of 0 comes out as 0: its sum is NaN already (0 · ln 0) when that is "
     "replaced; replace it in the terms, before the sum",
     ("torch.xlogy(weights, weights)", "weights * weights.log()"),
     ("sum(dim=-1)", "sum(dim=-1).nan_to_num()")),
    ("bits in place of nats", "that is in bits, with log2; nats are asked, with the natural "
     "logarithm", ("sum(dim=-1)", "sum(dim=-1) / torch.tensor(2.0).log()")),
    ("logarithm to base 10", "that is with log10; nats are asked, with the natural logarithm",
     ("sum(dim=-1)", "sum(dim=-1) / torch.tensor(10.0).log()")),
    ("minus missing", "the sign is wrong: ln p is negative, so the sum needs a minus",
     ("-torch", "torch")),
    ("added over all rows",
     "Your result is one number for all rows. Each row has an entropy of its own. Keep the shape "
     "of weights, which weights[weights > 0] flattens, and sum with dim=-1.",
     ("dim=-1", "")),
    ("summed over queries",
     "it sums over the rows: the weights of one query stand in the last dimension, dim=-1",
     ("dim=-1", "dim=max(-2, -weights.ndim)")),
    ("summed over dimension 1",
     "it sums over dim=1: right for a matrix, but leading dimensions are free; dim=-1 is the last",
     ("dim=-1", "dim=1")),
    ("mean over keys", "those are the mean terms; entropy is their sum over the keys",
     ("sum", "mean")),
    ("share of the largest", "divided by ln S: that is a share of the most possible; nats are "
     "asked", ("sum(dim=-1)", "sum(dim=-1) / torch.tensor(weights.shape[-1]).log()")),
    ("logarithms not weighted", "only ln p is added: each term is weighted by its p, as in p · ln "
     "p", ("torch.xlogy(weights, weights)", "weights.clamp(min=1e-9).log()")),
    ("softmax once more",
     "these weights are weights already: applying softmax to them once more flattens them",
     ("torch.xlogy(weights, weights)", "torch.xlogy(p := weights.softmax(dim=-1), p)")),
    ("terms not added", "the terms are there but not added up: sum them over the keys, dim=-1",
     ("terms.sum(dim=-1)", "terms")),
    ("kept the dimension", "one dimension too many: sum without keepdim",
     ("dim=-1", "dim=-1, keepdim=True")),
    ("effective number",
     "that is the effective number of keys, e to the entropy; it comes in the next exercise",
     ("sum(dim=-1)", "sum(dim=-1).exp()")),
]  # fmt: skip

exercise = Exercise(
    "2.4", entropy, inputs, MISTAKES, run=without_an_eps(entropy, torch.clone),
    also_right=[in_numpy, lambda weights: torch.distributions.Categorical(probs=weights).entropy(),
                lambda weights: -(weights * (weights + 1e-9).log()).sum(-1)],
)  # fmt: skip
