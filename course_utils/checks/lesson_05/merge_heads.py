"""5.2: heads (B, H, L, d_k) are concatenated again, (B, L, H·d_k)."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def merge_heads(x):
    B, H, L, d_k = x.shape
    tokens = x.transpose(1, 2)  # (B, H, L, d_k) -> (B, L, H, d_k)
    return tokens.reshape(B, L, H * d_k)


def by_cat(x):
    return torch.cat([x[:, h] for h in range(x.shape[1])], dim=-1)


def by_einsum(x):
    return torch.einsum("bhld->blhd", x).flatten(2)


def inputs():
    normal = normals(52)
    return [
        (normal(2, 3, 5, 4),),
        (normal(3, 2, 4, 5, dtype=torch.float32),),
        (normal(2, 4, 3, 6).transpose(1, 2),),  # not contiguous
        (normal(2, 1, 4, 3),),
        (normal(1, 3, 4, 2),),  # the batch of 1 must stay
        (normal(2, 12, 3, 1),),
        (normal(1, 2, 1, 3),),
    ]


MISTAKES = [
    ("merged without transpose",
     "Right shape, wrong numbers. You get this result if you reshape while the heads still come "
     "before the tokens. Then a row mixes several tokens. Swap heads and tokens first, with "
     "`transpose(1, 2)`.",
     ("x.transpose(1, 2)", "x")),
    ("tokens and columns exchanged",
     "Right shape, wrong numbers. You get this result if you swap tokens and columns before you "
     "reshape. Swap heads and tokens instead, with `transpose(1, 2)`.",
     ("transpose(1, 2)", "transpose(2, 3)")),
    ("transposed only",
     "Your result has the shape (B, L, H, d_k), so the heads are still separate. Flatten the last "
     "two dimensions.",
     (".reshape(B, L, H * d_k)", "")),
    ("dealt column by column",
     "Your rows take one column of each head in turn. Keep the columns of each head together: all "
     "of head 0 first, then all of head 1, and so on.",
     ("transpose(1, 2)", "permute(0, 2, 3, 1)")),
    ("batch unbound",
     "You concatenate the sequences of the batch instead of the heads. A loop over x runs over its "
     "first dimension, the batch. Concatenate the heads, as in `x.unbind(1)`.",
     "torch.cat(list(x), dim=-1)"),
    ("tokens before the batch",
     "Your result has the shape (L, B, H·d_k). Put the batch first: (B, L, H·d_k).",
     ("H * d_k)", "H * d_k).transpose(0, 1)")),
    ("heads reversed",
     "Your heads are in reverse order. Put head 0 first, then head 1, and so on.",
     ("x.transpose(1, 2)", "x.flip(1).transpose(1, 2)")),
    ("heads added",
     "Your result is the sum of the heads. Concatenate them instead.",
     "x.sum(dim=1)"),
    ("heads averaged",
     "Your result is the mean of the heads. Concatenate them instead.",
     "x.mean(dim=1)"),
    ("joined along tokens",
     "Your heads are concatenated along the token dimension. Concatenate them along the last "
     "dimension, to get (B, L, H·d_k).",
     "x.flatten(1, 2)"),
    ("tokens at the end",
     "The heads are merged correctly, but the tokens come last. Return (B, L, H·d_k).",
     ("H * d_k)", "H * d_k).mT")),
]  # fmt: skip

exercise = Exercise(
    "5.2", merge_heads, inputs, MISTAKES, names="B L d_model", differentiable=True,
    also_right=[by_cat, by_einsum],
)  # fmt: skip
