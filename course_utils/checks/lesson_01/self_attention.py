"""1.9: self-attention as a layer with learned projections."""

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.checks.compare import difference
from course_utils.checks.errors import explained
from course_utils.checks.exercise import NO_FIT, Exercise, NamedMistake
from course_utils.checks.inputs import normals
from course_utils.checks.shared_hints import (
    BY_D_V,
    DIVIDED_BY_D_K,
    HALF_OF_D_K,
    MULTIPLIED,
    NOT_SCALED,
    OVER_DIMENSION_1,
    OVER_QUERIES,
    OVER_THE_FIRST,
    TWO_THINGS,
)
from course_utils.checks.submission_layer import layer_outputs


class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__()
        d_k = d_model if d_k is None else d_k
        d_v = d_k if d_v is None else d_v
        self.W_q = nn.Linear(d_model, d_k, bias=False)
        self.W_k = nn.Linear(d_model, d_k, bias=False)
        self.W_v = nn.Linear(d_model, d_v, bias=False)
        self.W_o = nn.Linear(d_v, d_model, bias=False)

    def forward(self, x):
        q = self.W_q(x)  # (..., L, d_model) -> (..., L, d_k)
        k = self.W_k(x)  # (..., L, d_k)
        v = self.W_v(x)  # (..., L, d_v)
        scores = q @ k.transpose(-2, -1)  # (..., L, d_k) @ (..., d_k, L) -> (..., L, L)
        scaled = scores / q.shape[-1] ** 0.5
        weights = scaled.softmax(dim=-1)  # (..., L, L), rows sum to 1
        mixed = weights @ v  # (..., L, d_v)
        return self.W_o(mixed), weights  # (..., L, d_model), (..., L, L)


class Fused(nn.Module):
    """One fused matrix for values, keys and queries."""

    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__()
        d_k = d_k or d_model
        self.widths = [d_v or d_k, d_k, d_k]
        self.vkq = nn.Linear(d_model, sum(self.widths), bias=False)
        self.proj = nn.Linear(self.widths[0], d_model, bias=False)

    def forward(self, x):
        v, k, q = self.vkq(x).split(self.widths, dim=-1)
        weights = F.softmax(torch.einsum("...ld,...sd->...ls", q * q.shape[-1] ** -0.5, k), dim=-1)
        return self.proj(weights @ v), weights


class WithMatrices(nn.Module):
    """Plain matrices (in, out), some biases (1, d), a scale, a gain, and dropout in training."""

    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__()
        d_k = d_k or d_model
        d_v = d_v or d_k
        sizes = {"q": (d_model, d_k), "k": (d_model, d_k), "v": (d_model, d_v), "o": (d_v, d_model)}
        for role, size in sizes.items():
            setattr(self, f"W{role}", nn.Parameter(torch.randn(*size)))
        self.scale = nn.Parameter(torch.tensor(d_k**0.5), requires_grad=False)
        self.gain = nn.Parameter(torch.ones(d_model))
        self.b_q, self.offset_k = (nn.Parameter(torch.randn(1, d_k)) for _ in range(2))
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        q, k, v = x @ self.Wq + self.b_q, x @ self.Wk + self.offset_k, x @ self.Wv
        weights = torch.softmax(q @ k.transpose(-1, -2) / self.scale, dim=-1)
        return [self.gain * (self.drop(weights) @ v @ self.Wo), weights]


def inputs():
    """Return (the widths to build with, our matrices for one head, x)."""
    normal = normals(9)

    def case(leading, d_model, d_k=None, d_v=None):
        width_k = d_k or d_model
        width_v = d_v or width_k
        widths = {"W_q": width_k, "W_k": width_k, "W_v": width_v, "W_o": width_v}
        matrices = {
            name: normal(1, width, d_model, dtype=torch.float32) for name, width in widths.items()
        }
        given = {"d_model": d_model, "d_k": d_k, "d_v": d_v}
        given = {name: width for name, width in given.items() if width is not None}
        return given, matrices, normal(*leading, d_model, dtype=torch.float32)

    *widths, x = case((4, 2), 6, 5, 2)
    return [
        case((5,), 6, 4, 3),
        case((2, 4), 7, 2, 5),
        case((5,), 6, 3, 3),
        case((3,), 5),
        case((5,), 6, 7),
        case((1, 3), 4, d_v=2),
        case((2, 1, 12), 10, 9, 11),
        case((1,), 3, 2),
        (*widths, x.transpose(0, 1)),  # not contiguous
    ]


def outputs(answer, widths, matrices, x):
    """Build the learner's layer, give it our matrices in every parameter layout, run it on x."""
    module = answer(**widths)
    try:
        found = layer_outputs(module, matrices, x)
    except Exception:
        if x.ndim == 2 and goes_through(module, matrices, x[None]):
            hint = (
                "Your layer fails on x without a batch, of shape (L, d_model). Count dimensions "
                "from the end: use x.shape[-1], .transpose(-2, -1) and @."
            )
            raise NamedMistake("wants a batch", hint) from None
        raise
    if x.ndim == 3 and not x.requires_grad:
        see_that_it_forgets(module, answer(**widths), matrices, x[:, 1:])
    return found


def goes_through(module, matrices, x):
    try:
        layer_outputs(module, matrices, x)
    except Exception:
        return False
    return True


def see_that_it_forgets(used, new, matrices, x):
    """Raise NamedMistake if a layer that was called before differs from a new one."""
    hint = "Your layer was called twice, the second time with fewer tokens. "
    try:
        pairs = zip(layer_outputs(used, matrices, x), layer_outputs(new, matrices, x), strict=True)
    except Exception as error:
        hint += f"The second call fails: {explained(error)}. "
        hint += "Keep nothing that has the length of the first x."
        raise NamedMistake("remembers a call", hint) from None
    for again, first in pairs:
        if first is not NO_FIT and isinstance(first, tuple) and difference(again, first):
            hint += (
                "The second result differs from that of a new layer. Keep nothing from one call to "
                "the next. If you use F.dropout, pass training=self.training."
            )
            raise NamedMistake("remembers a call", hint)


WITHOUT_KEEPDIM = (
    "For one sequence, your weights in column j are divided by the sum of row j. You get this "
    "result if e holds the exponentials and you write e / e.sum(dim=-1). Write e / e.sum(dim=-1, "
    "keepdim=True), or use softmax."
)
MISTAKES = [
    ("not scaled", NOT_SCALED, ("scores / q.shape[-1] ** 0.5", "scores")),
    ("scaled by d k", DIVIDED_BY_D_K, ("q.shape[-1] ** 0.5", "q.shape[-1]")),
    ("divided by d k and by 2",
     "Your scores are divided by 2 d_k. You get this result if you write scores / d_k**1/2, "
     "because Python divides by d_k and then by 2. Write scores / d_k**0.5.",
     ("q.shape[-1] ** 0.5", "q.shape[-1] / 2")),
    ("divided by half of d k", HALF_OF_D_K, ("q.shape[-1] ** 0.5", "(q.shape[-1] / 2)")),
    ("divided by 8",
     "Your scores are divided by 8 = √64, whatever the width is. Divide by √d_k, with the given "
     "d_k.", ("q.shape[-1] ** 0.5", "8")),
    ("values as wide as the model",
     "If d_v is None, your values have width d_model. They must then have width d_k, so use d_k "
     "in place of d_model.",
     ("d_k if d_v is None", "d_model if d_v is None")),
    ("scaled by root d model",
     "Your scores are divided by √d_model. Each score is a sum of d_k products, so divide by √d_k.",
     ("q.shape[-1] ** 0.5", "x.shape[-1] ** 0.5")),
    ("scaled by root d v", BY_D_V, ("q.shape[-1] ** 0.5", "v.shape[-1] ** 0.5")),
    ("keys made by W q", "Your keys come from W_q, and W_k is not used. Use W_k for the keys.",
     ("self.W_k(x)", "self.W_q(x)")),
    ("multiplied by root d k", MULTIPLIED, ("scores / q", "scores * q")),
    ("scores transposed",
     "Your scores are transposed. You get this result if you write k @ qᵀ, or if you swap W_q and "
     "W_k. Make queries the rows and keys the columns: write q @ kᵀ, with q from W_q and k from "
     "W_k.",
     ("q @ k.transpose", "k @ q.transpose")),
    ("softmax over the queries", OVER_QUERIES, ("dim=-1", "dim=-2")),
    ("softmax over the first dimension", OVER_THE_FIRST, ("dim=-1", "dim=0")),
    ("softmax over dimension 1", OVER_DIMENSION_1, ("dim=-1", "dim=1")),
    ("softmax without a dimension",
     "Your softmax runs over dimension 0 if the scores have three dimensions, and over dimension "
     "1 if they have two or four. F.softmax does this if you leave out dim. In the scores, the "
     "keys lie along the last dimension, so write dim=-1.",
     ("dim=-1", "dim=0 if scaled.ndim == 3 else 1")),
    ("softmax twice",
     "Your weights went through softmax twice. After the first softmax, the rows already sum to 1. "
     "Leave out the second.", ("scaled.softmax(dim=-1)", "scaled.softmax(dim=-1).softmax(dim=-1)")),
    ("transposed weights returned",
     "Your output is correct, but the weights you return are transposed. Return weights whose rows "
     "are queries and whose columns are keys.", ("(mixed), weights", "(mixed), weights.mT")),
    ("softmax missing",
     "You use the scores as weights. Apply softmax to the scores first.",
     (".softmax(dim=-1)", "")),
    ("scores returned",
     "Your output is correct, but your second result is the scores. Return the weights instead.",
     ("(mixed), weights", "(mixed), scaled")),
    ("output not projected",
     "Your output does not use W_o. Project the mixture of the values back to d_model with W_o.",
     ("self.W_o(mixed)", "mixed")),
    ("only the output", TWO_THINGS, ("(mixed), weights", "(mixed)")),
    ("weights first",
     "Your output and weights are swapped. Return the output first, then the weights.",
     ("return self.W_o(mixed), weights", "return weights, self.W_o(mixed)")),
    ("transposes the batch",
     "Your result is correct for one sequence, but not for a batch. If you use k.T, it reverses "
     "all dimensions of k. Use k.transpose(-2, -1).",
     ("k.transpose(-2, -1)", "k.permute(*reversed(range(k.ndim)))")),
    ("scaled by root L",
     "Your scores are divided by √L, where L is the number of tokens. Divide by √d_k, where d_k is "
     "the width of the keys.", ("q.shape[-1]", "q.shape[-2]")),
    ("weights transposed",
     "Your values are mixed with the transposed weights. Row i of the weights holds the weights "
     "of query i, so write weights @ v.",
     ("weights @ v", "weights.mT @ v")),
    ("values not projected",
     "Your output mixes the inputs themselves, and W_v is not used. Mix the values, self.W_v(x).",
     ("weights @ v", "weights @ x")),
    ("neither values nor output projected",
     "Your output is a mixture of the inputs themselves. Mix the values, self.W_v(x), and project "
     "the mixture with W_o.", ("weights @ v", "weights @ x"), ("self.W_o(mixed)", "mixed")),
    ("values not mixed",
     "Your output does not mix the values. Multiply them by the weights before W_o: weights @ "
     "v.",
     ("weights @ v", "v")),
    ("weights not normalized",
     "Your weights are exp of the scores, so the rows do not sum to 1. Divide each row by its sum "
     "over the keys.", ("softmax(dim=-1)", "exp()")),
    ("scaled after softmax",
     "Your weights are divided by √d_k after the softmax, so the rows do not sum to 1. Divide "
     "the scores before the softmax.",
     ("scaled.softmax(dim=-1)", "scores.softmax(dim=-1) / q.shape[-1] ** 0.5")),
    ("masked to the past",
     "Your layer masks later tokens. Here, every token attends to all tokens, later ones too. Use "
     "no mask.",
     ("scaled.softmax", "(scaled + torch.full_like(scaled, -torch.inf).triu(1)).softmax")),
    ("input added",
     "Your output includes the input. This layer has no residual connection, so do not add x.",
     ("return self", "return x + self")),
    ("keys mixed", "Your output is a mixture of the keys. Mix the values: weights @ v.",
     ("weights @ v", "weights @ k")),
    ("sums along the wrong dimension", WITHOUT_KEEPDIM,
     ("scaled.softmax(dim=-1)", "scaled.exp() / scaled.exp().sum(dim=-1)")),
    ("sums along the wrong dimension, maximum subtracted", WITHOUT_KEEPDIM,
     ("scaled.softmax(dim=-1)", "e / e.sum(dim=-1)"),
     ("        weights =",
      "        e = (scaled - scaled.amax(dim=-1, keepdim=True)).exp()\n        weights =")),
]  # fmt: skip

exercise = Exercise(
    "1.9", SelfAttention, inputs, MISTAKES, names="L d_model|L L", run=outputs, differentiable=True,
    also_right=[Fused, WithMatrices],
)  # fmt: skip
