"""9.2: rotary from tables of cosines and sines."""

import torch

from course_utils.attention import rotary
from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def rotary_by_tables(x, cos, sin):
    a, b = x.chunk(2, dim=-1)  # (..., L, d / 2) each
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)  # (..., L, d)


def by_rotate_half(x, cos, sin):
    half = x.shape[-1] // 2
    rotated = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos.repeat(1, 2) + rotated * sin.repeat(1, 2)


def as_complex_numbers(x, cos, sin):
    half = x.shape[-1] // 2
    z = torch.complex(x[..., :half].contiguous(), x[..., half:].contiguous())
    z = z * torch.complex(cos, sin)
    return torch.cat([z.real, z.imag], dim=-1)


def inputs():
    normal = normals(92)

    def probe(*leading, L, d, dtype=torch.float64, first=0):
        angles = (first + torch.arange(L))[:, None] * torch.rand(
            d // 2, generator=torch.Generator().manual_seed(L)
        ).to(dtype)
        return normal(*leading, L, d, dtype=dtype), angles.cos(), angles.sin()

    x, cos, sin = probe(L=6, d=4)
    return [
        probe(L=5, d=6),
        probe(2, 3, L=4, d=10),
        probe(3, L=7, d=8, dtype=torch.float32, first=20),
        probe(L=1, d=4, first=3),
        probe(1, 2, L=3, d=2),
        (x.T.contiguous().T, cos, sin),
    ]


ROTATED = "a * cos - b * sin, a * sin + b * cos"
MISTAKES = [
    ("neighbors as pairs",
     "You pair entries 2i and 2i + 1. Here, entry i is paired with entry i + d / 2.",
     ("x.chunk(2, dim=-1)", "(x[..., ::2], x[..., 1::2])"),
     (f"torch.cat([{ROTATED}], dim=-1)", f"torch.stack([{ROTATED}], dim=-1).flatten(-2)")),
    ("neighbors in, halves out",
     "You pair neighbors, but put the result into halves. Pair entry i with entry i + d / 2.",
     ("x.chunk(2, dim=-1)", "(x[..., ::2], x[..., 1::2])")),
    ("halves in, neighbors out",
     "Your numbers are right, but in another order. Put all rotated first entries before all "
     "second ones.",
     (f"torch.cat([{ROTATED}], dim=-1)", f"torch.stack([{ROTATED}], dim=-1).flatten(-2)")),
    ("tables for neighbors",
     "You repeat each column of the tables for two neighbors, but pair x in halves. Repeat the "
     "whole table, because column i belongs to entries i and i + d / 2.",
     "x * cos.repeat_interleave(2, -1) + torch.cat([-x.chunk(2, -1)[1], x.chunk(2, -1)[0]], -1) "
     "* sin.repeat_interleave(2, -1)"),
    ("rotated back",
     "Your pairs are rotated in the opposite direction. The first entry is a cos − b sin, and "
     "the second is a sin + b cos.",
     (ROTATED, "a * cos + b * sin, b * cos - a * sin")),
    ("no minus",
     "Your pairs change their length, because nothing is subtracted. The first entry is a cos − "
     "b sin.",
     ("a * cos - b * sin", "a * cos + b * sin")),
    ("cosine and sine swapped",
     "Your cosine and sine are swapped. At position 0, the result must be x itself.",
     (ROTATED, "a * sin - b * cos, a * cos + b * sin")),
    ("only multiplied",
     "Each half is only multiplied by its own table. A rotation combines both entries: a cos − b "
     "sin and a sin + b cos.",
     (ROTATED, "a * cos, b * sin")),
    ("only cosines",
     "Your x is only multiplied by the cosine. Add the part with the sine of the other entry.",
     (ROTATED, "a * cos, b * cos")),
    ("second entry from the rotated first",
     "Your second entry is computed from the rotated first one. If you overwrite a, keep its old "
     "value for the second line.",
     ("    return", "    old, a = a, a * cos - b * sin\n    return"),
     (ROTATED, "a, a * sin + b * cos")),
    ("second half left",
     "Only the first entry of each pair is rotated. The second is a sin + b cos.",
     (ROTATED, "a * cos - b * sin, b")),
    ("halves swapped",
     "Your numbers are right, but the two halves are swapped. Put a cos − b sin first.",
     (ROTATED, "a * sin + b * cos, a * cos - b * sin")),
    ("not rotated",
     "Your result is x itself. Rotate each pair.",
     "x"),
    ("minus in the wrong half",
     "Each of your halves uses only one of the two entries. The first half is a cos − b sin, and "
     "the second is a sin + b cos.",
     (ROTATED, "a * cos - a * sin, b * cos + b * sin")),
    ("two minuses",
     "Both of your halves subtract. The second one adds: a sin + b cos.",
     (ROTATED, "a * cos - b * sin, a * sin - b * cos")),
    ("second half by the first's tables",
     "Your first half is right. In the second half, a is multiplied by the sine and b by the "
     "cosine.",
     (ROTATED, "a * cos - b * sin, a * cos + b * sin")),
    ("neighbors as partners",
     "Your sine is multiplied by the neighbor of each entry. The partner of entry i is entry i + "
     "d / 2.",
     "x * cos.repeat(1, 2) + torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2) "
     "* sin.repeat(1, 2)"),
    ("row rotated around",
     "Your partner of entry i is counted from the end of the row. It must be entry i + d / 2.",
     "x * cos.repeat(1, 2) - x.flip(-1) * sin.repeat(1, 2)"),
    ("halves exchanged",
     "Your two halves are swapped before the rotation. The first half is a.",
     (ROTATED, "b * cos - a * sin, b * sin + a * cos")),
    ("first half left",
     "Only the second entry of each pair is rotated. The first is a cos − b sin.",
     (ROTATED, "a * cos - b * sin, b * cos + a * sin"),
     ("torch.cat([a * cos - b * sin,", "torch.cat([a,")),
    ("first half alone",
     "Half of the row is missing. Put a sin + b cos after a cos − b sin.",
     (f"torch.cat([{ROTATED}], dim=-1)", "a * cos - b * sin")),
    ("pairs not joined",
     "Your numbers are right, but the pairs are a separate dimension. Concatenate the two halves "
     "with torch.cat.",
     (f"torch.cat([{ROTATED}], dim=-1)", f"torch.stack([{ROTATED}], dim=-1)")),
    ("tables not used",
     "Your x is rotated by positions 0, 1, 2, … with base 10000. Use the angles of the given "
     "tables.",
     lambda x, cos, sin: rotary(x, torch.arange(x.shape[-2]))),
]  # fmt: skip

exercise = Exercise(
    "9.2", rotary_by_tables, inputs, MISTAKES, names="L d", differentiable=True,
    also_right=[by_rotate_half, as_complex_numbers],
)  # fmt: skip
