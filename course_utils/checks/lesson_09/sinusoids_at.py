"""9.1: sinusoids of any places, all sines before all cosines."""

import torch

from course_utils.checks.exercise import Exercise


def sinusoids_at(positions, d_model):
    half = d_model // 2
    speeds = 10000.0 ** (-torch.arange(half) / half)  # (d_model / 2,)
    angles = positions[:, None] * speeds  # (L, d_model / 2)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)  # (L, d_model)


def inputs():
    def places(*numbers):
        return torch.tensor(numbers)

    return [
        (places(0.0, 1, 2, 3), 6),
        (places(4.0, 2, 7), 8),  # in any order, not from 0
        (places(0.5, 3.25, 1), 4),  # between places
        (torch.arange(5), 10),  # whole numbers
        (places(3.0), 2),
        (places(-1.0, 30), 12),
        (places(4099.0, 259, 2051), 4),  # bfloat16 holds neither, nor does float16 the odd ones
    ]


JOINED = "torch.cat([angles.sin(), angles.cos()], dim=-1)"
SPEEDS = "10000.0 ** (-torch.arange(half) / half)"
MISTAKES = [
    ("in turns", "sine and cosine in turns, as in the lesson; here all sines come first",
     (JOINED, "torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)")),
    ("cosines first", "the cosines come first; first all sines, then all cosines",
     (JOINED, "torch.cat([angles.cos(), angles.sin()], dim=-1)")),
    ("speeds grow", "each clock is faster than the last: the exponent is negative",
     (SPEEDS, "10000.0 ** (torch.arange(half) / half)")),
    ("number of the pair over d_model",
     "the clocks slow down half as much as they should: pair i has 10000^(−2i / d_model)",
     (SPEEDS, "10000.0 ** (-torch.arange(half) / d_model)")),
    ("last speed 1 / 10000",
     "the last clock has 1 / 10000 exactly: the exponent is −2i / d_model, with i up to "
     "d_model / 2 − 1, so it never gets to −1",
     (SPEEDS, "10000.0 ** (-torch.linspace(0, 1, half))")),
    ("evenly spaced speeds", "the speeds are evenly spaced; they fall by the same factor each",
     (SPEEDS, "torch.linspace(1, 1e-4, half)")),
    ("numbers of the rows", "the rows are numbered from 0; `positions` says where each stands",
     ("positions[:, None]", "torch.arange(len(positions))[:, None]")),
    ("whole numbers only", "places are cut to whole numbers; they may be fractions",
     ("positions[:, None]", "positions.long()[:, None]")),
    ("counted from 1", "every place is one too high: they are given, and counted from 0",
     ("positions[:, None]", "(positions[:, None] + 1)")),
    ("bfloat16", "places are put into bfloat16, which keeps 8 binary digits: above 256 neighbours "
     "fall together, as the lesson shows", ("positions[:, None]", "positions.bfloat16()[:, None]")),
    ("float16", "places are put into float16, which keeps 11 binary digits: above 2048 neighbours "
     "fall together", ("positions[:, None]", "positions.half()[:, None]")),
    ("base 1000", "the speeds fall from 1 towards 1 / 1000; the base is 10000",
     (SPEEDS, "1000.0 ** (-torch.arange(half) / half)")),
    ("sines alone", "sines twice; the second half is the cosines",
     (JOINED, "torch.cat([angles.sin(), angles.sin()], dim=-1)")),
    ("degrees", "the angles are taken for degrees; sin and cos want radians, as they are",
     ("angles.sin(), angles.cos()", "angles.deg2rad().sin(), angles.deg2rad().cos()")),
    ("transposed", "right numbers, but transposed: one row for each place",
     ("dim=-1)  # (L, d_model)", "dim=-1).T")),
]  # fmt: skip

exercise = Exercise("9.1", sinusoids_at, inputs, MISTAKES, names="L d_model")
