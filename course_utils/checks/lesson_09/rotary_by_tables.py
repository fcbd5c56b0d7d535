"""9.2: rotary from tables of cosines and sines, as models keep them."""

import torch

from course_utils.attention import rotary
from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def rotary_by_tables(x, cos, sin):
    a, b = x.chunk(2, dim=-1)  # (..., L, d / 2) each
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)  # (..., L, d)


def by_rotate_half(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos.repeat(1, 2) + turned * sin.repeat(1, 2)


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


TURNED = "a * cos - b * sin, a * sin + b * cos"
MISTAKES = [
    ("neighbours as pairs",
     "entries 2i and 2i + 1 are paired; here entry i goes with entry i + d / 2",
     ("x.chunk(2, dim=-1)", "(x[..., ::2], x[..., 1::2])"),
     (f"torch.cat([{TURNED}], dim=-1)", f"torch.stack([{TURNED}], dim=-1).flatten(-2)")),
    ("neighbours in, halves out",
     "neighbours are paired going in, halves come out: pair entry i with i + d / 2 both times",
     ("x.chunk(2, dim=-1)", "(x[..., ::2], x[..., 1::2])")),
    ("halves in, neighbours out",
     "right numbers in another order: the turned first entries come first, then the second ones",
     (f"torch.cat([{TURNED}], dim=-1)", f"torch.stack([{TURNED}], dim=-1).flatten(-2)")),
    ("tables for neighbours",
     "x is paired in halves, but each column of the tables is repeated for two neighbours; repeat "
     "the whole table: column i belongs to entries i and i + d / 2",
     "x * cos.repeat_interleave(2, -1) + torch.cat([-x.chunk(2, -1)[1], x.chunk(2, -1)[0]], -1) "
     "* sin.repeat_interleave(2, -1)"),
    ("turned back", "turned the other way: the minus belongs to the first of the two entries",
     (TURNED, "a * cos + b * sin, b * cos - a * sin")),
    ("no minus", "nothing is subtracted, so the hands change their length: a cos − b sin",
     ("a * cos - b * sin", "a * cos + b * sin")),
    ("cosine and sine swapped", "cosine and sine are swapped: at place 0 nothing should change",
     (TURNED, "a * sin - b * cos, a * cos + b * sin")),
    ("only multiplied",
     "each half is multiplied by its own table; a hand that turns mixes its two numbers",
     (TURNED, "a * cos, b * sin")),
    ("only cosines", "x times cosine only shrinks; the sine of the other entry is missing",
     (TURNED, "a * cos, b * cos")),
    ("second entry from the turned first",
     "the second entry is calculated from the first after it was turned; use the old one",
     ("    return", "    old, a = a, a * cos - b * sin\n    return"),
     (TURNED, "a, a * sin + b * cos")),
    ("second half left", "only the first of the two entries changes; the second turns as well",
     (TURNED, "a * cos - b * sin, b")),
    ("halves swapped", "right numbers, but the halves have changed places",
     (TURNED, "a * sin + b * cos, a * cos - b * sin")),
    ("not turned", "x comes back as it was", "x"),
    ("minus in the wrong half",
     "a goes with the cosine and with the sine; the sine goes with the other entry: "
     "a cos − b sin",
     (TURNED, "a * cos - a * sin, b * cos + b * sin")),
    ("two minuses", "both halves subtract; the second adds: a sin + b cos",
     (TURNED, "a * cos - b * sin, a * sin - b * cos")),
    ("second half by the first's tables",
     "the first half is right; in the second a goes with the sine and b with the cosine",
     (TURNED, "a * cos - b * sin, a * cos + b * sin")),
    ("neighbours as partners",
     "the tables are laid out for halves, but the sine comes with the neighbour: the partner of "
     "entry i is entry i + d / 2",
     "x * cos.repeat(1, 2) + torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2) "
     "* sin.repeat(1, 2)"),
    ("row turned around",
     "the partner of entry i is taken from the end of the row; it is entry i + d / 2",
     "x * cos.repeat(1, 2) - x.flip(-1) * sin.repeat(1, 2)"),
    ("halves exchanged", "the halves are exchanged before they are turned: the first one is a",
     (TURNED, "b * cos - a * sin, b * sin + a * cos")),
    ("first half left", "only the second of the two entries changes; the first turns as well",
     (TURNED, "a * cos - b * sin, b * cos + a * sin"),
     ("torch.cat([a * cos - b * sin,", "torch.cat([a,")),
    ("first half alone", "half of the row is missing: a sin + b cos comes after a cos − b sin",
     (f"torch.cat([{TURNED}], dim=-1)", "a * cos - b * sin")),
    ("pairs not joined", "right numbers, in pairs; here they stand one half after the other: cat",
     (f"torch.cat([{TURNED}], dim=-1)", f"torch.stack([{TURNED}], dim=-1)")),
    ("tables not used", "x is turned by places 0, 1, 2, … and base 10000; the angles are those of "
     "the tables", lambda x, cos, sin: rotary(x, torch.arange(x.shape[-2]))),
]  # fmt: skip

exercise = Exercise(
    "9.2", rotary_by_tables, inputs, MISTAKES, names="L d", differentiable=True,
    also_right=[by_rotate_half, as_complex_numbers],
)  # fmt: skip
