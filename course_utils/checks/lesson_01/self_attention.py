"""1.9: self-attention as a layer, with projections of its own."""

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
    """One matrix makes values, keys and queries."""

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
    """Bare matrices (in, out), some biases (1, d), a scale, a gain, and dropout for training."""

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
    """Return (widths that are given, our matrices for one head, x)."""
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
                "x may come without a batch, as (L, d_model), and this fails there: count "
                "dimensions from the end, x.shape[-1] and .transpose(-2, -1), and multiply with @"
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
    """Raise NamedMistake if a layer that was called before does something else than a new one."""
    hint = "called once more, with fewer tokens, one and the same layer "
    try:
        pairs = zip(layer_outputs(used, matrices, x), layer_outputs(new, matrices, x), strict=True)
    except Exception as error:
        hint += f"fails: does it keep something that has the first length? {explained(error)}"
        raise NamedMistake("remembers a call", hint) from None
    for again, first in pairs:
        if first is not NO_FIT and isinstance(first, tuple) and difference(again, first):
            hint += (
                "gives something else than a new one: does it keep something, or drop entries at "
                "random (F.dropout needs training=self.training)?"
            )
            raise NamedMistake("remembers a call", hint)


MISTAKES = [
    ("not scaled", NOT_SCALED, ("scores / q.shape[-1] ** 0.5", "scores")),
    ("scaled by d k", DIVIDED_BY_D_K, ("q.shape[-1] ** 0.5", "q.shape[-1]")),
    ("divided by d k and by 2",
     "divided by 2 d_k: ** comes before /, so scores / d_k**1/2 divides by d_k and then by 2; "
     "write d_k**0.5", ("q.shape[-1] ** 0.5", "q.shape[-1] / 2")),
    ("divided by half of d k", HALF_OF_D_K, ("q.shape[-1] ** 0.5", "(q.shape[-1] / 2)")),
    ("divided by 8", "divided by 8 = √64 whatever the width is: √d_k, of the d_k that is given",
     ("q.shape[-1] ** 0.5", "8")),
    ("values as wide as the model", "if d_v is None it is d_k, not d_model",
     ("d_k if d_v is None", "d_model if d_v is None")),
    ("scaled by root d model", "divided by √d_model: the scores are sums over d_k products, so "
     "√d_k", ("q.shape[-1] ** 0.5", "x.shape[-1] ** 0.5")),
    ("scaled by root d v", BY_D_V, ("q.shape[-1] ** 0.5", "v.shape[-1] ** 0.5")),
    ("keys made by W q", "the keys come from W_q, and W_k is not used",
     ("self.W_k(x)", "self.W_q(x)")),
    ("multiplied by root d k", MULTIPLIED, ("scores / q", "scores * q")),
    ("keys ask queries", "scores are transposed: rows are queries, columns keys, q @ kᵀ",
     ("q @ k.transpose", "k @ q.transpose")),
    ("softmax over the queries", OVER_QUERIES, ("dim=-1", "dim=-2")),
    ("softmax over the first dimension", OVER_THE_FIRST, ("dim=-1", "dim=0")),
    ("softmax over dimension 1", OVER_DIMENSION_1, ("dim=-1", "dim=1")),
    ("softmax without a dimension",
     "softmax without dim chooses for itself, dimension 1 of two or four, 0 of three; the keys are "
     "the last: write dim=-1", ("dim=-1", "dim=0 if scaled.ndim == 3 else 1")),
    ("softmax twice", "softmax runs twice over the scores: after the first the rows sum to 1",
     ("scaled.softmax(dim=-1)", "scaled.softmax(dim=-1).softmax(dim=-1)")),
    ("transposed weights returned",
     "right output, but the weights returned are transposed: rows are queries, columns keys",
     ("(mixed), weights", "(mixed), weights.mT")),
    ("softmax missing", "the scores are used as weights: softmax is missing",
     (".softmax(dim=-1)", "")),
    ("scores returned", "right output, but the scores are returned in place of the weights",
     ("(mixed), weights", "(mixed), scaled")),
    ("output not projected", "W_o is there but not used: project the mixture back to d_model",
     ("self.W_o(mixed)", "mixed")),
    ("only the output", TWO_THINGS, ("(mixed), weights", "(mixed)")),
    ("weights first", "output and weights are swapped: return output, weights",
     ("return self.W_o(mixed), weights", "return weights, self.W_o(mixed)")),
    ("transposes the batch",
     "right for one sequence, but .T turns around all dimensions of a batch; use "
     ".transpose(-2, -1)", ("k.transpose(-2, -1)", "k.permute(*reversed(range(k.ndim)))")),
    ("scaled by root L",
     "divided by √L, the number of tokens; the width of the keys is meant, √d_k",
     ("q.shape[-1]", "q.shape[-2]")),
    ("weights transposed", "the weights are transposed before they mix the values: weights @ v",
     ("weights @ v", "weights.mT @ v")),
    ("values not projected", "Your weights mix the inputs themselves, and W_v is not used. Mix the "
     "values, self.W_v(x).", ("weights @ v", "weights @ x")),
    ("values not mixed", "the values are not mixed: multiply them by the weights, weights @ v",
     ("weights @ v", "v")),
    ("weights not normalised",
     "exp is there, but rows do not sum to 1: divide by the sum over the keys",
     ("softmax(dim=-1)", "exp()")),
    ("scaled after softmax",
     "divided by √d_k after the softmax, so that rows do not sum to 1: do it before",
     ("scaled.softmax(dim=-1)", "scores.softmax(dim=-1) / q.shape[-1] ** 0.5")),
    ("masked to the past", "later tokens are masked out; here every token may see every other",
     ("scaled.softmax", "(scaled + torch.full_like(scaled, -torch.inf).triu(1)).softmax")),
    ("input added", "the input is added to the output; no residual connection is asked here",
     ("return self", "return x + self")),
]  # fmt: skip

exercise = Exercise(
    "1.9", SelfAttention, inputs, MISTAKES, names="L d_model|L L", run=outputs, differentiable=True,
    also_right=[Fused, WithMatrices],
)  # fmt: skip
