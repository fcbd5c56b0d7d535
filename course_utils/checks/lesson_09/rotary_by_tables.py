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
NEAR = (
    "Your sine terms use the entry {} each one. They must use the other entry of its pair, which "
    "is d / 2 entries away."
)
MISTAKES = [
    ("neighbors as pairs",
     "You pair entries 2i and 2i + 1. Pair entries i and i + d / 2 instead.",
     ("x.chunk(2, dim=-1)", "(x[..., ::2], x[..., 1::2])"),
     (f"torch.cat([{ROTATED}], dim=-1)", f"torch.stack([{ROTATED}], dim=-1).flatten(-2)")),
    ("neighbors in, halves out",
     "You pair entries 2i and 2i + 1, and then put the rotated pairs into two halves. Pair "
     "entries i and i + d / 2 from the start.",
     ("x.chunk(2, dim=-1)", "(x[..., ::2], x[..., 1::2])")),
    ("halves in, neighbors out",
     "Your numbers are right, but the two entries of each pair are next to each other. Put the "
     "first entries of all pairs before all second entries.",
     (f"torch.cat([{ROTATED}], dim=-1)", f"torch.stack([{ROTATED}], dim=-1).flatten(-2)")),
    ("tables for neighbors",
     "You pair entries i and i + d / 2, but use each column of the tables for two neighboring "
     "entries. Column i belongs to entries i and i + d / 2. Repeat the whole table, not each "
     "column.",
     "x * cos.repeat_interleave(2, -1) + torch.cat([-x.chunk(2, -1)[1], x.chunk(2, -1)[0]], -1) "
     "* sin.repeat_interleave(2, -1)"),
    ("rotated back",
     "Your pairs are rotated in the opposite direction. The first half must be a cos − b sin, and"
     " the second half a sin + b cos.",
     (ROTATED, "a * cos + b * sin, b * cos - a * sin")),
    ("no minus",
     "Your pairs change their length, because nothing is subtracted. The first half must be a cos"
     " − b sin.",
     ("a * cos - b * sin", "a * cos + b * sin")),
    ("reflected",
     "Your pairs are reflected, because b has the wrong sign in both halves. The first half must "
     "be a cos − b sin, and the second half a sin + b cos.",
     (ROTATED, "a * cos + b * sin, a * sin - b * cos")),
    ("minus in the second half",
     "Your first half is right. Your second half is b cos − a sin, so the term a sin has the wrong "
     "sign. It must be a sin + b cos.",
     (ROTATED, "a * cos - b * sin, b * cos - a * sin")),
    ("cosine and sine swapped",
     "The cosine and the sine are swapped in your result. The first half must be a cos − b sin, "
     "and the second half a sin + b cos.",
     (ROTATED, "a * sin - b * cos, a * cos + b * sin")),
    ("only multiplied",
     "Your halves are a cos and b sin. A rotation mixes both entries of a pair. The first half "
     "must be a cos − b sin, and the second half a sin + b cos.",
     (ROTATED, "a * cos, b * sin")),
    ("only cosines",
     "Your halves are a cos and b cos. A rotation mixes both entries of a pair. The first half "
     "must be a cos − b sin, and the second half a sin + b cos.",
     (ROTATED, "a * cos, b * cos")),
    ("second entry from the rotated first",
     "Your second half is computed from the rotated first half. If you overwrite a, keep its old "
     "value for the second half.",
     ("    return", "    old, a = a, a * cos - b * sin\n    return"),
     (ROTATED, "a, a * sin + b * cos")),
    ("second half left",
     "Only the first half is rotated. The second half must be a sin + b cos.",
     (ROTATED, "a * cos - b * sin, b")),
    ("halves swapped",
     "Your numbers are right, but the two halves are swapped. Put a cos − b sin first, and then a"
     " sin + b cos.",
     (ROTATED, "a * sin + b * cos, a * cos - b * sin")),
    ("not rotated",
     "Your result is x itself. Rotate each pair.",
     "x"),
    ("minus in the wrong half",
     "Each half of your result is computed from that half alone. A rotation mixes both entries of"
     " a pair. The first half must be a cos − b sin, and the second half a sin + b cos.",
     (ROTATED, "a * cos - a * sin, b * cos + b * sin")),
    ("two minuses",
     "Both of your halves subtract. The second half must add: a sin + b cos.",
     (ROTATED, "a * cos - b * sin, a * sin - b * cos")),
    ("second half by the first's tables",
     "Your first half is right. In the second half, cosine and sine are swapped. It must be a sin"
     " + b cos.",
     (ROTATED, "a * cos - b * sin, a * cos + b * sin")),
    ("neighbors as partners",
     "Your sine terms use the neighbor of each entry. They must use the other entry of its pair, "
     "d / 2 entries away. The first half must be a cos − b sin, and the second half a sin + b "
     "cos.",
     "x * cos.repeat(1, 2) + torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2) "
     "* sin.repeat(1, 2)"),
    ("rolled by one", NEAR.format("before"),
     "x * cos.repeat(1, 2) + x.roll(1, -1) * torch.cat([-sin, sin], dim=-1)"),
    ("rolled back by one", NEAR.format("after"),
     "x * cos.repeat(1, 2) + x.roll(-1, -1) * torch.cat([-sin, sin], dim=-1)"),
    ("partners from the other end",
     "Your sine terms pair entry i with entry d − 1 − i. Pair entries i and i + d / 2 instead. "
     "`x.flip(-1)` also reverses the order within each half. If you used it, swap the two halves "
     "without reversing them.",
     "x * cos.repeat(1, 2) + x.flip(-1) * torch.cat([-sin, sin], dim=-1)"),
    ("tables upside down",
     "You use the rows of the tables in reverse order. Row p of the tables belongs to row p of x.",
     (ROTATED, "a * cos.flip(0) - b * sin.flip(0), a * sin.flip(0) + b * cos.flip(0)")),
    ("columns reversed",
     "You use the columns of the tables in reverse order. Column i belongs to entries i and i + "
     "d / 2.",
     (ROTATED, "a * cos.flip(1) - b * sin.flip(1), a * sin.flip(1) + b * cos.flip(1)")),
    ("first row of the tables",
     "You rotate all rows of x by the first row of the tables. Row p of the tables belongs to row "
     "p of x.",
     (ROTATED, "a * cos[:1] - b * sin[:1], a * sin[:1] + b * cos[:1]")),
    ("no negative cosine",
     "Right where no cosine is negative. Your result uses the absolute values of the cosines. If "
     "you compute the angles with `asin`, their cosines are never negative. Use both tables as "
     "they are.",
     (ROTATED, "a * sin.asin().cos() - b * sin, a * sin + b * sin.asin().cos()")),
    ("no negative sine",
     "Right where no sine is negative. Your result uses the absolute values of the sines. If you "
     "compute the angles with `acos`, their sines are never negative. Use both tables as they are.",
     (ROTATED, "a * cos - b * cos.acos().sin(), a * cos.acos().sin() + b * cos")),
    ("row rotated around",
     "You pair entry i with entry d − 1 − i, and subtract in both halves. Pair entries i and i + "
     "d / 2. The first half must be a cos − b sin, and the second half a sin + b cos.",
     "x * cos.repeat(1, 2) - x.flip(-1) * sin.repeat(1, 2)"),
    ("halves exchanged",
     "You swap the two halves before the rotation. The first half of x is a, and the second half "
     "is b.",
     (ROTATED, "b * cos - a * sin, b * sin + a * cos")),
    ("first half left",
     "Only the second half is rotated. The first half must be a cos − b sin.",
     (ROTATED, "a * cos - b * sin, b * cos + a * sin"),
     ("torch.cat([a * cos - b * sin,", "torch.cat([a,")),
    ("first half alone",
     "Your result has only the first half. Put a sin + b cos after a cos − b sin.",
     (f"torch.cat([{ROTATED}], dim=-1)", "a * cos - b * sin")),
    ("pairs not joined",
     "Your numbers are right, but the two halves are in a separate dimension. Concatenate them "
     "along the last dimension with torch.cat.",
     (f"torch.cat([{ROTATED}], dim=-1)", f"torch.stack([{ROTATED}], dim=-1)")),
    ("tables not used",
     "Your x is rotated by positions 0, 1, 2, … with base 10000. Use the given tables instead.",
     lambda x, cos, sin: rotary(x, torch.arange(x.shape[-2]))),
]  # fmt: skip

exercise = Exercise(
    "9.2", rotary_by_tables, inputs, MISTAKES, names="L d", differentiable=True,
    also_right=[by_rotate_half, as_complex_numbers],
)  # fmt: skip
