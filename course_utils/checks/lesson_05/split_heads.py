"""5.1: (B, L, d_model) is split into heads (B, H, L, d_k)."""

import re

import torch

from course_utils.checks.exercise import Exercise, call_with_clones
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_05._layers import TAKEN_FOR_WIDTH, TURNS


def split_heads(x, num_heads):
    B, L, d_model = x.shape
    if d_model % num_heads:
        raise ValueError(f"num_heads must divide d_model = {d_model}, got {num_heads}")
    d_k = d_model // num_heads
    heads = x.reshape(B, L, num_heads, d_k)  # (B, L, d_model) -> (B, L, H, d_k)
    return heads.transpose(1, 2)  # (B, H, L, d_k)


def refuse(d_model, num_heads):
    if d_model % num_heads != 0:
        raise ValueError(f"{d_model} columns do not divide into {num_heads} heads")


def by_chunks(x, num_heads):
    refuse(x.shape[-1], num_heads)
    return torch.stack(torch.chunk(x, num_heads, dim=2), dim=1)


def by_loops(x, num_heads):
    B, L, d_model = x.shape
    refuse(d_model, num_heads)
    d_k = d_model // num_heads
    out = x.new_zeros(B, num_heads, L, d_k)
    for h in range(num_heads):
        for j in range(d_k):
            out[:, h, :, j] = x[:, :, h * d_k + j]
    return out


def inputs():
    normal = normals(51)
    return [
        (normal(2, 5, 12), 3),
        (normal(3, 4, 8, dtype=torch.float32), 2),
        (normal(10, 3, 2).permute(2, 1, 0), 5),  # not contiguous
        (normal(4, 7, 6), 6),
        (normal(2, 4, 6), 1),
        (normal(1, 3, 6), 2),
        (normal(2, 5, 6), 4),  # does not divide
    ]


def split_or_error(answer, x, num_heads):
    """Return the result. If num_heads does not divide d_model, grade the error from 0 to 1."""
    if x.shape[-1] % num_heads == 0:
        return call_with_clones(answer, x, num_heads)
    try:
        answer(x.clone(), num_heads)
    except NotImplementedError:
        raise
    except ValueError as error:
        named = {int(number) for number in re.findall(r"\d+", str(error))}
        return [torch.tensor(1.0 if {x.shape[-1], num_heads} <= named else 0.5)]
    except Exception:
        return [torch.tensor(0.0)]
    return [torch.tensor(0.0)]


MISTAKES = [
    ("division the wrong way round",
     "You raise a ValueError although num_heads divides d_model. If you compute `num_heads % "
     "d_model`, compute `d_model % num_heads` instead.",
     ("d_model % num_heads:", "num_heads % d_model:")),
    ("error where it divides",
     "You raise a ValueError where num_heads divides d_model, and none where it does not. Raise it "
     "in the opposite case.",
     ("d_model % num_heads:", "d_model % num_heads == 0:")),
    ("heads folded into the batch",
     "Right for one sequence or one head. With several of both, your result mixes sequences and "
     "heads. If you concatenate the heads along the batch dimension, stack them instead, "
     "with `torch.stack(..., dim=1)`.",
     ("x.reshape(B, L, num_heads, d_k)",
      "torch.cat(x.chunk(num_heads, dim=-1)).reshape(B, num_heads, L, d_k)"),
     ("heads.transpose(1, 2)", "heads")),
    ("heads reversed",
     "Your heads are in reverse order. Give head 0 the first d_k columns.",
     ("heads.transpose(1, 2)", "heads.flip(2).transpose(1, 2)")),
    ("no value error",
     "Right when num_heads divides d_model. Otherwise, raise a ValueError whose message contains "
     "both numbers, d_model and num_heads.",
     ("d_model % num_heads:", "False:")),
    ("error without numbers",
     "Everything is right except the message of the ValueError. Name both numbers in it, d_model "
     "and num_heads.",
     (" = {d_model}, got {num_heads}", "")),
    ("reshaped at once",
     "Right shape, wrong numbers. You get this result if you reshape x to (B, H, L, d_k) in one "
     "step, which splits the sequence instead of the width. Reshape to (B, L, H, d_k), then swap "
     "L and H.",
     ("B, L, num_heads, d_k)", "B, num_heads, L, d_k)"), ("heads.transpose(1, 2)", "heads")),
    ("heads after tokens",
     "Your result has shape (B, L, H, d_k). Swap L and H.",
     ("heads.transpose(1, 2)", "heads")),
    ("columns dealt out", TURNS,
     ("num_heads, d_k)", "d_k, num_heads)"), ("transpose(1, 2)", "permute(0, 3, 1, 2)")),
    ("tokens last",
     "The last two dimensions of your result are swapped. Return (B, H, L, d_k), with tokens "
     "before columns.",
     ("transpose(1, 2)", "permute(0, 2, 3, 1)")),
    ("batch and tokens exchanged",
     "Right shape, wrong numbers. You get this result if you reshape x to (L, B, H, d_k), which "
     "mixes sequences. Reshape it to (B, L, H, d_k), then swap L and H.",
     ("B, L, num_heads, d_k)", "L, B, num_heads, d_k)"),
     ("transpose(1, 2)", "permute(1, 2, 0, 3)")),
    ("heads before the batch",
     "Your result has the shape (H, B, L, d_k). Put the batch first: (B, H, L, d_k).",
     ("transpose(1, 2)", "permute(2, 0, 1, 3)")),
    ("number taken for width",
     TAKEN_FOR_WIDTH,
     ("num_heads, d_k)", "d_k, num_heads)")),
    ("one head alone",
     "Your result is only the first head. Return all H heads, with the shape (B, H, L, d_k).",
     ("heads.transpose(1, 2)", "heads[:, :, 0]")),
]  # fmt: skip

exercise = Exercise(
    "5.1", split_heads, inputs, MISTAKES, names="H L d_k", run=split_or_error, differentiable=True,
    also_right=[by_chunks, by_loops],
)  # fmt: skip
