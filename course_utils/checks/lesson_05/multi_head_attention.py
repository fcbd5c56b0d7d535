"""5.3: the layer, from query, key and value to output and the weights of each head."""

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.attention import attention as lessons  # noqa: F401, for a row of MISTAKES
from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_05._layers import (
    BETWEEN_HEADS,
    DEALT_TWICE,
    MASK_OF_HEAD_0,
    MASK_OF_SEQUENCE_0,
    MASKED_LATE,
    OF_ANY_LAYER,
    RESHAPED_ACROSS_BATCH,
    RESHAPED_ALONE,
    RESHAPED_AT_ONCE,
    TURNS,
    TorchInside,
    layers_and_inputs,
    see_that_biases_count,
)
from course_utils.checks.shared_hints import BY_D_MODEL
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
        weights = scores.softmax(dim=-1).nan_to_num(0)  # zeros if no key is allowed
        heads = weights @ v  # (B, H, L, d_k)
        merged = heads.transpose(1, 2).flatten(2)  # (B, L, H, d_k) -> (B, L, d_model)
        return self.W_o(merged), weights


class FusedWithSdpa(nn.Module):
    """One layer for q, k and v, in this order. SDPA with an identity matrix gives the weights."""

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
    """Build the learner's layer, load our matrices in every parameter layout, and run it."""
    layer = answer(d_model, num_heads)
    if earlier:  # another length; the layer should remember nothing of it
        layer_outputs(layer, matrices, *earlier)
    if matrices["W_q"].max() > 1000:  # its gradients are rounding errors
        inputs = [each.detach() for each in inputs]
    outputs = layer_outputs(layer, matrices, *inputs)
    right = MultiHeadAttention(d_model, num_heads)
    see_that_biases_count(outputs, layer, right, matrices, *inputs)
    return outputs


class TorchSequenceFirst(TorchInside):
    """PyTorch's layer, which then takes the first dimension for the tokens, and no mask."""

    batch_first = False

    def forward(self, query, key, value, mask=None):
        return self.layer(query, key, value, average_attn_weights=False)


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
    ("mask of an earlier call",
     "Right for the first call. In a later call without a mask, your layer still uses the mask of "
     "an earlier call. Do not store the mask in the layer.",
     ("        if mask is not None:",
      "        mask = self.mask = getattr(self, 'mask', None) if mask is None else mask\n"
      "        if mask is not None:")),
    ("cut without transpose", RESHAPED_AT_ONCE,
     *BY_RESHAPING),
    ("batch and tokens exchanged", RESHAPED_ACROSS_BATCH,
     ("x.unflatten(-1, (self.num_heads, -1))",
      "x.reshape(x.shape[1], len(x), self.num_heads, -1)"),
     ("tokens.transpose(1, 2)", "tokens.permute(1, 2, 0, 3)")),
    ("no transpose at all", BETWEEN_HEADS,
     ("tokens.transpose(1, 2)", "tokens"),
     ("heads.transpose(1, 2)", "heads")),
    ("cut and joined without transpose", RESHAPED_ALONE,
     *BY_RESHAPING, ("heads.transpose(1, 2).flatten(2)", "heads.reshape(query.shape)")),
    ("as many keys as queries",
     "Right when S = L, but an error otherwise. Keys and values have a length of their own, so "
     "take S from `key.shape[1]`.",
     ("q, k, v = (self.cut(x)",
      "q, k, v = (self.cut(x.reshape(query.shape))")),
    ("divided by root d model", BY_D_MODEL, ("d_k**0.5", "query.shape[-1]**0.5")),
    ("divided by root num heads",
     "Your scores are divided by √num_heads. Each score is a sum of d_k products, so divide by "
     "√d_k.",
     ("d_k**0.5", "self.num_heads**0.5")),
    ("batch taken for tokens",
     "You get this result, or an error, if your layer takes the first dimension for the tokens, "
     "as nn.MultiheadAttention does unless `batch_first=True`. The first dimension is the batch, "
     "so take the second for the tokens. If you call nn.MultiheadAttention, compute the "
     "attention of each head yourself instead.",
     TorchSequenceFirst),
    ("one softmax for all",
     "Your layer has only one matrix of weights for each sequence, from all d_model columns. Each "
     "head must have its own. Split q, k and v into heads before you compute the scores, and "
     "merge the heads before W_o.",
     ("self.cut(x)", "x"),
     ("heads.transpose(1, 2).flatten(2)", "heads"), ("~mask",
      "~(mask[:, 0] if mask.ndim == 4 else mask)")),
    ("softmax over the heads",
     "Your weights sum to 1 over the heads. They must sum to 1 over the keys, so use `dim=-1`. If "
     "a query has no allowed key, set its weights to 0.",
     ("-torch.inf", "-1e9"), ("dim=-1", "dim=1")),
    ("softmax over the heads, NaN set to 0",
     "Your weights sum to 1 over the heads. They must sum to 1 over the keys, so use `dim=-1`.",
     ("dim=-1", "dim=1")),
    ("mask of the first head", MASK_OF_HEAD_0,
     ("~mask", "~(mask[..., :1, :, :] if mask.ndim > 2 else mask)")),
    ("mask of the first sequence", MASK_OF_SEQUENCE_0,
     ("~mask", "~(mask[:1] if mask.ndim == 4 else mask)")),
    ("heads taken for sequences",
     "Right, except for a mask of shape (H, L, S). You treat it as one mask for each sequence. "
     "But broadcasting to (B, H, L, S) makes it one mask for each head. Use the mask as it is.",
     ("~mask", "~(mask[:, None] if mask.ndim == 3 else mask)")),
    ("weights masked late", MASKED_LATE,
     ("mask is not None", "False"),
     (".nan_to_num(0)", " * (1 if mask is None else mask)")),
    ("query and key exchanged",
     "W_q and W_k are swapped. Apply W_q to query and W_k to key.",
     ("self.W_q(query), self.W_k(key)", "self.W_k(query), self.W_q(key)")),
    ("values made from key",
     "Your values are made from key. Apply W_v to value.",
     ("self.W_v(value)",
      "self.W_v(key)")),
    ("keys made from value",
     "Your keys are made from value. Apply W_k to key.",
     ("self.W_k(key)",
      "self.W_k(value)")),
    ("W_q not used",
     "Your result does not depend on W_q. Apply W_q to query to make the queries.",
     ("self.W_q(query)", "query")),
    ("W_k not used",
     "Your result does not depend on W_k. Apply W_k to key to make the keys.",
     ("self.W_k(key)", "key")),
    ("W_v not used",
     "Your result does not depend on W_v. Apply W_v to value to make the values.",
     ("self.W_v(value)", "value")),
    ("merged heads by W_v",
     "W_v projects your merged heads as well as the values. Project the merged heads with W_o.",
     ("self.W_o(merged)", "self.W_v(merged)")),
    ("one head alone",
     "Your result is that of one head with all d_model columns, whatever num_heads is. Split q, k "
     "and v into num_heads heads before you compute the scores.",
     ("(self.num_heads, -1)", "(1, -1)"),
     ("~mask", "~(mask[:, :1] if mask.ndim == 4 else mask[:1] if mask.ndim == 3 else mask)")),
    ("keys by W_q",
     "W_q makes your keys as well as the queries. Make the keys with W_k.",
     ("self.W_k(key)", "self.W_q(key)")),
    ("values by W_k",
     "W_k makes your values as well as the keys. Make the values with W_v.",
     ("self.W_v(value)", "self.W_k(value)")),
    ("key and value exchanged",
     "Key and value are swapped. The arguments come in the order query, key, value. Apply W_k to "
     "key and W_v to value.",
     ("self.W_k(key), self.W_v(value)",
      "self.W_k(value), self.W_v(key)")),
    ("keys made from query",
     "Your keys are made from query. Apply W_k to key.",
     ("self.W_k(key)",
      "self.W_k(query)")),
    ("values made from query",
     "Your values are made from query. Apply W_v to value.",
     ("self.W_v(value)", "self.W_v(query)")),
    ("only query used",
     "Your result does not depend on key and value. Keys and values must come from them. Apply "
     "W_k to key and W_v to value.",
     ("self.W_k(key), self.W_v(value)", "self.W_k(query), self.W_v(query)")),
    ("only query used, by the lesson's attention",
     "Your result does not depend on key and value. Keys and values must come from them. Apply "
     "W_k to key and W_v to value.",
     ("self.W_k(key), self.W_v(value)", "self.W_k(query), self.W_v(query)"),
     ("scores = q", "lessons(q, k, v, mask)  # its errors\n        scores = q")),
    ("a dimension for the heads in every mask",
     "Right without a mask. With a mask, you get this result, or an error, if you insert a "
     "dimension for the heads. The mask already broadcasts to (B, H, L, S), so use it as it is.",
     ("        if mask is not None:",
      "        mask = None if mask is None else mask.unsqueeze(1)\n        if mask is not None:")),
    ("residual added",
     "Your output is the right one plus query. This layer has no residual connection, so return "
     "the output of W_o alone.",
     ("self.W_o(merged)", "self.W_o(merged) + query")),
    ("unmasked weights returned",
     "The output is right, but the weights that you return ignore the mask. Return the weights "
     "with which you averaged the values.",
     ("self.W_o(merged), weights",
      "self.W_o(merged), (q @ k.mT / d_k**0.5).softmax(dim=-1)")),
    ("unmasked scores returned",
     "The output is right, but your second result is the scores without a mask. Return the "
     "weights with which you averaged the values.",
     ("(merged), weights", "(merged), q @ k.mT / d_k**0.5")),
    ("heads dealt out", TURNS, *DEALT),
    ("heads dealt out and collected", DEALT_TWICE,
     *DEALT, ("heads.transpose(1, 2)", "heads.permute(0, 2, 3, 1)")),
]  # fmt: skip

exercise = Exercise(
    "5.3", MultiHeadAttention, layers_and_inputs, MISTAKES, names="L d_model|H L S", run=run,
    differentiable=True, also_right=[FusedWithSdpa, ByEinsum],
)  # fmt: skip
