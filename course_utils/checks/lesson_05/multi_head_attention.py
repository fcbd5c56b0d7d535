"""5.3: the layer, from query, key and value to output and the weights of each head."""

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.checks import shared_hints
from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_05._layers import (
    OF_ANY_LAYER,
    layers_and_inputs,
    see_that_biases_count,
)
from course_utils.checks.submission_layer import layer_outputs


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def cut(self, x):
        tokens = x.unflatten(-1, (self.num_heads, -1))  # (B, n, d_model) -> (B, n, H, d_k)
        return tokens.transpose(1, 2)  # (B, H, n, d_k)

    def forward(self, query, key, value, mask=None):
        projected = self.W_q(query), self.W_k(key), self.W_v(value)  # (B, L or S, d_model)
        q, k, v = (self.cut(x) for x in projected)  # (B, H, L or S, d_k)
        d_k = q.shape[-1]
        scores = q @ k.mT / d_k**0.5  # (B, H, L, d_k) @ (B, H, d_k, S) -> (B, H, L, S)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        weights = scores.softmax(dim=-1).nan_to_num(0)  # zeros where nothing is allowed
        heads = weights @ v  # (B, H, L, d_k)
        merged = heads.transpose(1, 2).flatten(2)  # (B, L, H, d_k) -> (B, L, d_model)
        return self.W_o(merged), weights


class FusedWithSdpa(nn.Module):
    """One layer of 3 · d_model rows, all of q, all of k, all of v; the weights as SDPA's output."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, query, key, value, mask=None):
        parts = [self.qkv(x).chunk(3, dim=-1)[i] for i, x in enumerate((query, key, value))]
        q, k, v = (torch.stack(part.chunk(self.h, dim=2), dim=1) for part in parts)
        eye = torch.eye(k.shape[2], dtype=k.dtype).expand(*k.shape[:2], -1, -1)
        out, weights = (
            F.scaled_dot_product_attention(q, k, each, attn_mask=mask) for each in (v, eye)
        )
        return self.out_proj(torch.cat(out.unbind(1), dim=-1)), weights


class ByEinsum(nn.Module):
    """A tensor (d_model, H, d_k) for each role, as in JAX, and biases (1, H, 1, d_k)."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        d_k = d_model // num_heads
        for role in "qkvo":
            setattr(self, role, nn.Parameter(torch.randn(d_model, num_heads, d_k)))
            setattr(self, f"add_{role}", nn.Parameter(torch.randn(1, num_heads, 1, d_k)))

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            torch.einsum("blm,mhd->bhld", x, getattr(self, role)) + getattr(self, f"add_{role}")
            for role, x in zip("qkv", (query, key, value), strict=True)
        )
        scores = torch.einsum("bhld,bhsd->bhls", q, k) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask.logical_not(), -torch.inf)
        weights = torch.softmax(scores, -1).nan_to_num(0)
        out = torch.einsum("bhld,mhd->blm", weights @ v, self.o) + self.add_o.flatten()
        return out, weights


def run(answer, d_model, num_heads, matrices, earlier, inputs):
    """Build the learner's layer, give it our matrices in every parameter layout, and run it."""
    layer = answer(d_model, num_heads)
    if earlier:  # of another length, of which the layer should keep nothing
        layer_outputs(layer, matrices, *earlier)
    if matrices["W_q"].max() > 1000:  # gradients are roundings there
        inputs = [each.detach() for each in inputs]
    outputs = layer_outputs(layer, matrices, *inputs)
    see_that_biases_count(outputs, layer, MultiHeadAttention(d_model, num_heads), *inputs)
    return outputs


BY_RESHAPING = [
    ("(-1, (self.num_heads, -1))", "(-1, (1, -1)).reshape(len(x), self.num_heads, x.shape[1], -1)"),
    ("tokens.transpose(1, 2)", "tokens"),
]
DEALT = (
    ("(self.num_heads, -1)", "(-1, self.num_heads)"),
    ("tokens.transpose(1, 2)", "tokens.permute(0, 3, 1, 2)"),
)


MISTAKES = [
    *OF_ANY_LAYER,
    ("cut without transpose", "the heads are cut by reshaping to (B, H, L, d_k) at once: right "
     "shape, tokens mixed up; cut the width, then transpose", *BY_RESHAPING),
    ("no transpose at all", "tokens stand before heads, (B, L, H, d_k), so that the heads of a "
     "token attend to each other: transpose L and H first", ("tokens.transpose(1, 2)", "tokens"),
     ("heads.transpose(1, 2)", "heads")),
    ("cut and joined without transpose", "the heads are cut and merged by reshaping alone: what is "
     "cut so is no token's, though the merge puts it back in place; transpose L and H, both times",
     *BY_RESHAPING, ("heads.transpose(1, 2).flatten(2)", "heads.reshape(query.shape)")),
    ("as many keys as queries", "right if there are as many keys as queries, an error otherwise: "
     "keys and values have a length of their own, S = key.shape[1]", ("q, k, v = (self.cut(x)",
      "q, k, v = (self.cut(x.reshape(query.shape))")),
    ("divided by root d model", shared_hints.BY_D_MODEL, ("d_k**0.5", "query.shape[-1]**0.5")),
    ("divided by root num heads", "the scores are divided by √num_heads: a head's scores are sums "
     "over d_k products", ("d_k**0.5", "self.num_heads**0.5")),
    ("one softmax for all", "there is one set of weights for all heads: split into heads before "
     "the scores, so that each has a softmax of its own", ("self.cut(x)", "x"),
     ("heads.transpose(1, 2).flatten(2)", "heads"), ("~mask",
      "~(mask[:, 0] if mask.ndim == 4 else mask)")),
    ("softmax over the heads", "softmax runs over the heads: the weights over the keys must sum to "
     "1, dim=-1", ("-torch.inf", "-1e9"), ("dim=-1", "dim=1")),
    ("softmax over the heads mended", "softmax runs over the heads, and what NaN the mask makes is "
     "set to 0: the weights over the keys must sum to 1, dim=-1", ("dim=-1", "dim=1")),
    ("mask of the first head", "right, unless each head has a mask of its own, (B, H, L, S): head "
     "0's is used for all", ("~mask", "~(mask[..., :1, :, :] if mask.ndim > 2 else mask)")),
    ("mask of the first sequence", "right, unless each sequence has a mask of its own: the first "
     "one's is used for all", ("~mask", "~(mask[:1] if mask.ndim == 4 else mask)")),
    ("heads taken for sequences", "right, but for a mask (H, L, S): a missing dimension in front "
     "stands for all sequences, as broadcasting has it; one of each sequence would come as (B, 1, "
     "L, S)", ("~mask", "~(mask[:, None] if mask.ndim == 3 else mask)")),
    ("weights masked late", "the weights are masked after softmax: rows no longer sum to 1, and "
     "the forbidden keys are heard in the denominator", ("mask is not None", "False"),
     (".nan_to_num(0)", " * (1 if mask is None else mask)")),
    ("query and key exchanged", "right, if W_q and W_k exchanged their names: W_q makes the "
     "queries, W_k the keys", ("self.W_q(query), self.W_k(key)", "self.W_k(query), self.W_q(key)")),
    ("values made from key", "the values are made from key: W_v reads value", ("self.W_v(value)",
      "self.W_v(key)")),
    ("keys made from value", "the keys are made from value: W_k reads key", ("self.W_k(key)",
      "self.W_k(value)")),
    ("W_q not used", "W_q is not used: it makes the queries", ("self.W_q(query)", "query")),
    ("W_k not used", "W_k is not used: it makes the keys", ("self.W_k(key)", "key")),
    ("W_v not used", "W_v is not used: it makes the values", ("self.W_v(value)", "value")),
    ("merged heads by W_v", "W_v projects the merged heads as well as the values: that is for W_o",
     ("self.W_o(merged)", "self.W_v(merged)")),
    ("one head alone", "num_heads makes no difference: it is one head of all d_model columns; cut "
     "into heads before the scores",
     ("(self.num_heads, -1)", "(1, -1)"),
     ("~mask", "~(mask[:, :1] if mask.ndim == 4 else mask[:1] if mask.ndim == 3 else mask)")),
    ("keys by W_q", "W_q makes the keys as well as the queries: W_k makes the keys",
     ("self.W_k(key)", "self.W_q(key)")),
    ("values by W_k", "W_k makes the values as well as the keys: W_v makes the values",
     ("self.W_v(value)", "self.W_k(value)")),
    ("key and value exchanged", "key and value are exchanged: W_k reads key, W_v reads value, and "
     "they come in this order", ("self.W_k(key), self.W_v(value)",
      "self.W_k(value), self.W_v(key)")),
    ("keys made from query", "the keys are made from query: W_k reads key", ("self.W_k(key)",
      "self.W_k(query)")),
    ("values made from query", "the values are made from query: W_v reads value",
     ("self.W_v(value)", "self.W_v(query)")),
    ("only query used", "key and value are not used: only queries come from query",
     ("self.W_k(key), self.W_v(value)", "self.W_k(query), self.W_v(query)")),
    ("residual added", "query is added to the output: that is left to the block around the layer",
     ("self.W_o(merged)", "self.W_o(merged) + query")),
    ("unmasked weights returned", "right output, but the weights returned with it know nothing of "
     "the mask", ("self.W_o(merged), weights",
      "self.W_o(merged), (q @ k.mT / d_k**0.5).softmax(dim=-1)")),
    ("unmasked scores returned", "right output, but scores are returned with it: return the "
     "weights, what softmax gives", ("(merged), weights", "(merged), q @ k.mT / d_k**0.5")),
    ("heads dealt out", shared_hints.DEALT_OUT, *DEALT),
    ("heads dealt out and collected",
     "the heads are dealt out column by column and collected so again: consistent, but "
     + shared_hints.OWN_COLUMNS,
     *DEALT, ("heads.transpose(1, 2)", "heads.permute(0, 2, 3, 1)")),
]  # fmt: skip

exercise = Exercise(
    "5.3", MultiHeadAttention, layers_and_inputs, MISTAKES, names="L d_model|H L S", run=run,
    differentiable=True, also_right=[FusedWithSdpa, ByEinsum],
)  # fmt: skip
