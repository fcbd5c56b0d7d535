"""5.11: self-attention, with one mask for all sequences or one for each."""

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.attention import attention
from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
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
    arranged,
    loud,
    see_that_biases_count,
)
from course_utils.checks.shared_hints import BY_D_MODEL
from course_utils.checks.submission_layer import layer_outputs


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.W_qkv = nn.Linear(d_model, 3 * d_model)
        self.W_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        parts = self.W_qkv(x).chunk(3, dim=-1)  # three of (B, L, d_model)
        tokens = [each.unflatten(-1, (self.num_heads, -1)) for each in parts]  # (B, L, H, d_k)
        q, k, v = (each.transpose(1, 2) for each in tokens)  # (B, H, L, d_k)
        d_k = q.shape[-1]
        scores = q @ k.mT / d_k**0.5  # (B, H, L, L)
        if mask is not None:
            if mask.ndim == 3:
                mask = mask[:, None]  # (B, L, L) -> (B, 1, L, L)
            scores = scores.masked_fill(~mask, -torch.inf)
        weights = scores.softmax(dim=-1).nan_to_num(0)  # zeros if no key is allowed
        heads = weights @ v  # (B, H, L, d_k)
        merged = heads.transpose(1, 2).flatten(2)  # (B, L, d_model)
        return self.W_o(merged), weights


class Fused(nn.Module):
    """One layer makes q, k and v, and the weights have dropout during training."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q, k, v = (
            torch.stack(part.chunk(self.h, dim=2), dim=1) for part in self.qkv(x).chunk(3, dim=-1)
        )
        scores = torch.einsum("bhid,bhjd->bhij", q, k) / q.shape[-1] ** 0.5
        if mask is not None:
            mask = mask.unsqueeze(1) if mask.dim() == 3 else mask
            scores = torch.where(mask, scores, torch.tensor(-torch.inf))
        weights = F.dropout(scores.softmax(-1).nan_to_num(0), 0.1, training=self.training)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2)), weights


class HeadByHead(nn.Module):
    """One layer whose rows hold q, k and v of head 0, then those of head 1, as in GPT-NeoX."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.W_qkv = nn.Linear(d_model, 3 * d_model)
        self.W_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        parts = self.W_qkv(x).unflatten(-1, (self.num_heads, 3, -1))  # (B, L, H, 3, d_k)
        q, k, v = parts.permute(3, 0, 2, 1, 4)  # (B, H, L, d_k)
        heads, weights = lessons(q, k, v, mask)
        return self.W_o(heads.transpose(1, 2).flatten(2)), weights


class OneByOne(nn.Module):
    """Lists of small layers, one for each head; one sequence after another, each with its mask."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        d_k = d_model // num_heads
        self.q, self.k, self.v = (
            nn.ModuleList(nn.Linear(d_model, d_k) for _ in range(num_heads)) for _ in range(3)
        )
        self.W_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        rows = []
        for b, tokens in enumerate(x):
            own = mask if mask is None or mask.ndim == 2 else mask[b % len(mask)]
            q, k, v = (
                torch.stack([layer(tokens) for layer in layers])
                for layers in (self.q, self.k, self.v)
            )
            heads, weights = attention(q, k, v, own)
            rows.append((self.W_o(torch.cat(list(heads), dim=-1)), weights))
        return tuple(torch.stack(each) for each in zip(*rows, strict=True))


def inputs():
    """Return (d_model, num_heads, matrices, x, mask). No head is 3 wide, as q, k, v are three."""
    normal, rng = normals(511), torch.Generator().manual_seed(511)

    def probe(B, L, H, d_k, *mask, in_order=False):
        d_model = H * d_k
        names = "W_q", "W_k", "W_v", "W_o"
        matrices = {name: normal(H, d_k, d_model).float() / d_model**0.5 for name in names}
        x = arranged(normal(L, B, d_model).float(), in_order)
        allowed = torch.rand(mask, generator=rng) < 0.5 if mask else None
        if mask:
            allowed[..., mask[-1] // 2] = True
        return d_model, H, matrices, x, allowed

    *layer, _ = probe(2, 5, 3, 4)
    real = torch.arange(5) >= torch.tensor([0, 2])[:, None]  # (B, L), left-padded
    padded = *layer, torch.ones(5, 5).tril().bool() & real[:, None]  # (B, L, L)
    *other, _ = probe(1, 4, 2, 5)
    nothing_for_the_first = *other, torch.ones(4, 4).tril(-1) > 0
    single = probe(2, 1, 2, 4, 2, 1, 1, 1)
    single[-1][0] = False  # its only query has no allowed key
    for_each_head = probe(2, 4, 3, 2, 2, 3, 4, 4)
    for_each_head[-1][0, 0, 1] = False  # one query has no allowed key in one head
    return [
        probe(2, 5, 3, 2),
        probe(3, 4, 2, 4, in_order=True),
        probe(2, 4, 3, 2, 4, 4),  # one mask for all
        nothing_for_the_first,
        for_each_head,
        probe(3, 4, 2, 5, 3, 1, 4, 4),  # one for each sequence, with a dimension for heads
        probe(3, 5, 2, 4, 3, 5, 5, in_order=True),  # one for each sequence
        probe(3, 4, 2, 5, 3, 1, 1, 4),  # the same for all queries, as for padding
        probe(2, 4, 3, 2, 1, 3, 4, 4),  # one for each head
        loud(*probe(2, 5, 2, 4, 2, 1, 5, 5)),
        probe(3, 4, 3, 2, 3, 4, 4),  # the same, with as many heads as sequences
        probe(1, 6, 4, 2, 1, 6, 6),
        padded,
        probe(1, 1, 2, 4),
        single,
        probe(2, 3, 1, 6, 2, 3, 3),
        probe(4, 4, 3, 2, 4, 4),  # one mask for all, with as many sequences as tokens
    ]


def run(answer, d_model, num_heads, matrices, x, mask):
    """Build the learner's layer, load our matrices in every parameter layout, and run it."""
    layer = answer(d_model, num_heads)
    x = x.detach() if matrices["W_q"].max() > 1000 else x  # its gradients are rounding errors
    outputs = layer_outputs(layer, matrices, x, mask)
    right = MultiHeadSelfAttention(d_model, num_heads)
    see_that_biases_count(outputs, layer, right, matrices, x, mask)
    return outputs


def lessons(q, k, v, mask):
    """Return the lesson's attention, with a dimension for the heads in the mask."""
    return attention(q, k, v, mask[:, None] if mask is not None and mask.ndim == 3 else mask)


BY_RESHAPING = [
    (".unflatten(-1, (self.num_heads, -1))", ".reshape(len(x), self.num_heads, x.shape[1], -1)"),
    ("each.transpose(1, 2) for each in tokens", "tokens"),
]
UNMOVED = ("(each.transpose(1, 2) for each in tokens)", "tokens")
WITHOUT_A_PLACE = (
    "Right, except for a mask of shape (B, L, L). Broadcasting aligns its first dimension with the "
    "heads, so you get one mask for each head, or an error. If the mask has three dimensions, "
    "insert a dimension for the heads: `mask[:, None]`."
)

RESHAPED = (
    "Right for masks that hold one (L, L) matrix for each sequence. You get an error for other "
    "masks if you reshape every mask to (B, 1, L, L). Insert a dimension for the heads only if the "
    "mask has three dimensions, and use other masks as they are."
)

MISTAKES = [
    *OF_ANY_LAYER,
    ("no place for the heads", WITHOUT_A_PLACE, ("mask = mask[:, None]", "pass")),
    ("a place for heads in masks (L, L)",
     "Right, except for a mask of shape (L, L), which gives an error. It already broadcasts to (B, "
     "H, L, L), so use it as it is. Insert a dimension for the heads only if the mask has three "
     "dimensions.",
     ("mask.ndim == 3", "mask.ndim < 4"), ("mask[:, None]", "mask.unsqueeze(1)")),
    ("a matrix for each sequence in every mask", RESHAPED,
     ("mask.ndim == 3", "True"),
     ("mask[:, None]", "mask.reshape(len(x), 1, *mask.shape[-2:])")),
    ("a square matrix for each sequence in every mask", RESHAPED,
     ("mask.ndim == 3", "True"),
     ("mask[:, None]", "mask.reshape(len(x), 1, x.shape[1], x.shape[1])")),
    ("full masks alone",
     "Right, except for a mask with four dimensions that must broadcast, such as (B, 1, 1, L) or "
     "(1, H, L, L). It gives an error, as happens if you reshape it. Use a mask with four "
     "dimensions as it is.",
     ("if mask.ndim == 3", "if mask.ndim == 4:\n                mask = mask.view(len(x), -1, "
      "x.shape[1], x.shape[1])\n            if mask.ndim == 3")),
    ("mask squeezed",
     "Right, except for a mask of shape (1, H, L, L). You get an error, or treat its heads as "
     "sequences, if you squeeze the mask. Use a mask with four dimensions as it is.",
     ("mask.ndim == 3", "mask.squeeze().ndim == 3"), ("mask[:, None]", "mask.squeeze()[:, None]")),
    ("masks (L, L) taken for causal",
     "Right, except for a mask of shape (L, L). You use a causal mask in its place. Use the mask "
     "as it is.",
     ("masked_fill(~mask",
      "masked_fill(~(mask if mask.ndim > 2 else torch.ones_like(mask).tril())")),
    ("own token for an empty row",
     "Right, except for a query with no allowed key. It attends to its own token. Set the weights "
     "of such a query to 0.",
     ("~mask", "~(mask | ~mask.any(-1, keepdim=True) & (torch.eye(mask.shape[-1]) > 0))")),
    ("the first sequence's mask", MASK_OF_SEQUENCE_0,
     ("mask = mask[:, None]", "mask = mask[0]"),
     ("masked_fill(~mask", "masked_fill(~(mask[:1] if mask.ndim == 4 else mask)")),
    ("the first of masks (B, L, L)",
     "Right, unless a mask of shape (B, L, L) differs between sequences. You use the first "
     "sequence's mask for all sequences. Give each sequence its own mask, with `mask[:, None]`.",
     ("mask = mask[:, None]", "mask = mask[0]")),
    ("masks (B, L, L) passed over",
     "Right, except for a mask of shape (B, L, L), which you ignore. It has one mask for each "
     "sequence. Insert a dimension for the heads, `mask[:, None]`, and apply it.",
     ("mask = mask[:, None]", "mask = torch.ones_like(mask[0])")),
    ("no place where there are as many heads",
     "Right, except for a mask of shape (B, L, L) when B = H. Its first dimension stands for the "
     "sequences in this case too. Insert a dimension for the heads whenever the mask has three "
     "dimensions.",
     ("mask.ndim == 3", "mask.ndim == 3 and len(mask) != self.num_heads")),
    ("a place for heads in every mask",
     "Right without a mask and for a mask of shape (B, L, L). A mask with two or four dimensions "
     "already broadcasts to (B, H, L, L). Insert a dimension for the heads only if the mask has "
     "three dimensions.",
     ("if mask.ndim == 3", "if mask.ndim")),
    ("a square mask taken for padding",
     "Right, except for a mask of shape (L, L) when B = L. You treat it as a padding mask with a "
     "row for each sequence. But two dimensions always stand for queries and keys. Use such a "
     "mask as it is.",
     ("scores = scores.masked_fill(~mask", "twin = mask.shape == x.shape[:2]\n"
      "            scores = scores.masked_fill(~(mask[:, None, None] if twin else mask)")),
    ("every mask taken for one of each sequence",
     "Right, except for a mask with four dimensions that differs between heads. You get a wrong "
     "result, or an error, if you reshape such a mask to (..., 1, L, L), because its heads are "
     "then taken for sequences. Insert a dimension for the heads only if the mask has three "
     "dimensions, and use other masks as they are.",
     ("mask.ndim == 3", "True"), ("mask[:, None]", "mask.reshape(-1, 1, *mask.shape[-2:])")),
    ("masks repeated by turns",
     "Right, except for a mask of shape (B, L, L). You get this result if you copy it for the "
     "heads with `repeat`, which gives sequences each other's masks. Use `mask[:, None]` instead, "
     "which broadcasts over the heads.",
     ("mask = mask[:, None]",
      "mask = mask.repeat(self.num_heads, 1, 1).view(len(x), -1, *mask.shape[1:])")),
    ("one mask for all heads", MASK_OF_HEAD_0,
     ("masked_fill(~mask", "masked_fill(~(mask[:, :1] if mask.ndim == 4 else mask)")),
    ("diagonal opened",
     "Right, unless the mask stops a token from attending to itself. You allow this anyway. "
     "Forbid all that the mask forbids, and set the weights of a token with no allowed key to 0.",
     ("masked_fill(~mask", "masked_fill(~(mask | (torch.eye(mask.shape[-1]) > 0))")),
    ("mask inverted, and NaN",
     "Your mask is inverted. Here True means 'may attend', while in the attn_mask of "
     "nn.MultiheadAttention it means the opposite. Fill the scores where the mask is False, and "
     "replace NaN with 0 where no key is allowed.",
     ("~mask", "mask"), (".nan_to_num(0)", "")),
    ("weights masked late", MASKED_LATE,
     ("scores = scores.masked_fill(~mask, -torch.inf)", "pass"),
     (".nan_to_num(0)", " * (1 if mask is None else mask)")),
    ("divided by root d model", BY_D_MODEL, ("d_k**0.5", "x.shape[-1]**0.5")),
    ("parts before tokens",
     "You get this result if you read (B, L, 3 · d_model) as (3, B, L, d_model), which mixes "
     "sequences and tokens. Split q, k and v along the last dimension, with `chunk(3, dim=-1)`.",
     (".chunk(3, dim=-1)", ".reshape(3, *x.shape)")),
    ("heads dealt out", TURNS,
     ("(self.num_heads, -1)", "(-1, self.num_heads)"), ("each.transpose(1, 2)",
      "each.permute(0, 3, 1, 2)")),
    ("parts and heads before tokens",
     "You get this result if you read (B, L, 3 · d_model) as (3, B, H, L, d_k), which mixes "
     "sequences, tokens and heads. Split the last dimension into (3, H, d_k), then permute to (3, "
     "B, H, L, d_k).",
     (".chunk(3, dim=-1)", ".reshape(3, len(x), self.num_heads, x.shape[1], -1)"),
     ("[each.unflatten(-1, (self.num_heads, -1)) for each in parts]", "parts"), UNMOVED),
    ("no transpose at all", BETWEEN_HEADS, UNMOVED, ("heads.transpose(1, 2)", "heads")),
    ("no transpose at all, by the lesson's attention", BETWEEN_HEADS, UNMOVED,
     ("heads.transpose(1, 2)", "heads"), ("scores = q", "lessons(q, k, v, mask)  # its errors\n"
      "        scores = q")),
    ("heads dealt out and collected", DEALT_TWICE,
     ("(self.num_heads, -1)", "(-1, self.num_heads)"), ("each.transpose(1, 2)",
      "each.permute(0, 3, 1, 2)"), ("heads.transpose(1, 2)", "heads.permute(0, 2, 3, 1)")),
    ("batch and tokens exchanged", RESHAPED_ACROSS_BATCH,
     (".unflatten(-1, (self.num_heads, -1))",
      ".reshape(x.shape[1], len(x), self.num_heads, -1)"),
     ("each.transpose(1, 2)", "each.permute(1, 2, 0, 3)")),
    ("cut without transpose", RESHAPED_AT_ONCE,
     *BY_RESHAPING),
    ("cut and joined without transpose", RESHAPED_ALONE,
     *BY_RESHAPING,
     ("heads.transpose(1, 2).flatten(2)", "heads.reshape(x.shape)")),
    ("keys in place of values",
     "Your output is an average of keys instead of values. Multiply the weights by v.",
     ("weights @ v", "weights @ k")),
    ("queries and keys the same",
     "Your scores compare one part of the projection with itself. Use one part for the queries, "
     "and another one for the keys.",
     ("q @ k.mT", "k @ k.mT")),
    ("input added",
     "Your output is the right one plus x. This layer has no residual connection, so return the "
     "output of W_o alone.",
     ("self.W_o(merged)", "self.W_o(merged) + x")),
]  # fmt: skip

exercise = Exercise(
    "5.11", MultiHeadSelfAttention, inputs, MISTAKES, "L d_model|H L L", run, differentiable=True,
    also_right=[Fused, HeadByHead, OneByOne],
)  # fmt: skip
