"""5.2: heads (B, H, L, d_k) are put side by side again, (B, L, H·d_k)."""

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
        (normal(1, 3, 4, 2),),  # its 1 must not be squeezed away
        (normal(2, 12, 3, 1),),
        (normal(1, 2, 1, 3),),
    ]


MISTAKES = [
    ("merged without transpose",
     "right shape, wrong numbers: without a transpose first, a row holds several tokens of one "
     "head", ("x.transpose(1, 2)", "x")),
    ("tokens and columns exchanged",
     "right shape, wrong numbers: tokens and columns were exchanged before the reshape; exchange "
     "heads and tokens, transpose(1, 2)", ("transpose(1, 2)", "transpose(2, 3)")),
    ("transposed only",
     "the tokens stand before the heads now, but the heads are still apart: flatten",
     (".reshape(B, L, H * d_k)", "")),
    ("dealt column by column",
     "the heads are dealt out column by column: keep each head's columns together",
     ("transpose(1, 2)", "permute(0, 2, 3, 1)")),
    ("heads reversed", "the heads stand in reverse order: head 0 comes first",
     ("x.transpose(1, 2)", "x.flip(1).transpose(1, 2)")),
    ("heads added", "the heads are added up: put them side by side", "x.sum(dim=1)"),
    ("heads averaged", "the heads are averaged: put them side by side", "x.mean(dim=1)"),
    ("joined along tokens",
     "the heads are joined one after another along the tokens, not side by side",
     "x.flatten(1, 2)"),
    ("tokens at the end", "head and width are merged, but the tokens stand last: (B, L, H·d_k)",
     ("H * d_k)", "H * d_k).mT")),
]  # fmt: skip

exercise = Exercise(
    "5.2", merge_heads, inputs, MISTAKES, names="B L d_model", differentiable=True,
    also_right=[by_cat, by_einsum],
)  # fmt: skip
