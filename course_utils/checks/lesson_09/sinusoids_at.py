"""9.1: sinusoids of given positions, all sines before all cosines."""

import math

import numpy as np
import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_09._rounded import rounded


def sinusoids_at(positions, d_model):
    half = d_model // 2
    inv_freq = 10000.0 ** (-torch.arange(half) / half)  # (d_model / 2,)
    angles = positions[:, None] * inv_freq  # (L, d_model / 2)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)  # (L, d_model)


def by_loops(positions, d_model):
    half = d_model // 2
    rows = torch.zeros(len(positions), d_model)
    for row, p in enumerate(positions.tolist()):
        for i in range(half):
            angle = p / 10000 ** (2 * i / d_model)
            rows[row, i], rows[row, half + i] = math.sin(angle), math.cos(angle)
    return rows


def by_numpy(positions, d_model):
    angles = np.outer(positions.numpy(), np.exp(-np.log(1e4) * np.arange(0, d_model, 2) / d_model))
    return torch.from_numpy(np.concatenate([np.sin(angles), np.cos(angles)], axis=1)).float()


def inputs():
    def positions(*numbers):
        return torch.tensor(numbers)

    return [
        (positions(0.0, 1, 2, 3), 6),
        (positions(4.0, 2, 7), 8),  # in any order, not from 0
        (positions(0.5, 3.25, 1), 4),  # between positions
        (torch.arange(5), 10),  # whole numbers
        (positions(3.0), 2),
        (positions(-1.0, 30), 12),
        (
            positions(4099.0, 259, 2051),
            4,
        ),  # not representable in bfloat16; the odd ones not in float16
    ]


JOINED = "torch.cat([angles.sin(), angles.cos()], dim=-1)"
INV_FREQ = "10000.0 ** (-torch.arange(half) / half)"
GROW = (
    "Your frequencies grow from pair to pair. Pair i must have the frequency 10000^(−2i / "
    "d_model), and its angle is the position times this frequency."
)
ROUNDED = (
    "Your frequencies are rounded to {}, which keeps {} significant bits. Compute them in at least "
    "float32."
)
MISTAKES = [
    ("alternating",
     "Your sines and cosines alternate, as in the lesson. Put all sines before all cosines.",
     (JOINED, "torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)")),
    ("cosines first",
     "Your cosines come first. Put all sines before all cosines.",
     (JOINED, "torch.cat([angles.cos(), angles.sin()], dim=-1)")),
    ("frequencies grow", GROW, (INV_FREQ, "10000.0 ** (torch.arange(half) / half)")),
    ("frequencies grow, in float64", GROW,
     (INV_FREQ, "10000.0 ** (torch.arange(half).double() / half)")),
    ("number of the pair over d_model",
     "Your frequencies fall too slowly, as with the exponent −i / d_model. Pair i must have the "
     "frequency 10000^(−2i / d_model).",
     (INV_FREQ, "10000.0 ** (-torch.arange(half) / d_model)")),
    ("last speed 1 / 10000",
     "With several pairs, your last frequency is exactly 1 / 10000. Use the exponent −2i / "
     "d_model for pair i. It never reaches −1, because the last i is d_model / 2 − 1.",
     (INV_FREQ, "10000.0 ** (-torch.linspace(0, 1, half))")),
    ("evenly spaced frequencies",
     "Your frequencies are evenly spaced. They must fall by the same factor from pair to pair. "
     "Pair i must have the frequency 10000^(−2i / d_model).",
     (INV_FREQ, "torch.linspace(1, 1e-4, half)")),
    ("numbers of the rows",
     "Your rows are at positions 0, 1, 2, …. Use the given positions.",
     ("positions[:, None]", "torch.arange(len(positions))[:, None]")),
    ("whole numbers only",
     "Your positions are rounded to integers. Keep their fractions.",
     ("positions[:, None]", "positions.long()[:, None]")),
    ("counted from 1",
     "All your positions are too large by 1. Use the given positions as they are.",
     ("positions[:, None]", "(positions[:, None] + 1)")),
    *rounded("positions[:, None]", "positions{}[:, None]", "at least float32"),
    ("base 1000",
     "Your frequencies have base 1000. Use base 10000.",
     (INV_FREQ, "1000.0 ** (-torch.arange(half) / half)")),
    ("float16 frequencies", ROUNDED.format("float16", 11), (INV_FREQ, f"({INV_FREQ}).half()")),
    ("bfloat16 frequencies", ROUNDED.format("bfloat16", 8),
     (INV_FREQ, f"({INV_FREQ}).bfloat16()")),
    ("relative to the first",
     "Your positions are relative to the first one in the list. Use the given positions as they "
     "are.",
     ("positions[:, None]", "(positions - positions[0])[:, None]")),
    ("relative to the smallest",
     "Your positions are relative to the smallest one in the list. Use the given positions as "
     "they are.",
     ("positions[:, None]", "(positions - positions.min())[:, None]")),
    ("divided by the largest",
     "Your positions are divided by the largest of them. Use the given positions as they are.",
     ("positions[:, None]", "(positions / positions.abs().max())[:, None]")),
    ("divided by their number",
     "Your positions are divided by L, the number of positions. Use the given positions as they "
     "are.",
     ("positions[:, None]", "(positions / len(positions))[:, None]")),
    ("one frequency",
     "All your pairs have the frequency 1, as only pair 0 should. Pair i must have the frequency "
     "10000^(−2i / d_model).",
     (INV_FREQ, "torch.ones(half)")),
    ("sines alone",
     "Both of your halves are sines. The second half must be the cosines.",
     (JOINED, "torch.cat([angles.sin(), angles.sin()], dim=-1)")),
    ("degrees",
     "Your result is what you get by converting the angles from degrees to radians. They are in "
     "radians already, so use them as they are.",
     ("angles.sin(), angles.cos()", "angles.deg2rad().sin(), angles.deg2rad().cos()")),
    ("transposed",
     "Your numbers are right, but transposed. Return one row per position.",
     ("dim=-1)  # (L, d_model)", "dim=-1).T")),
    ("a speed for each entry",
     "Your sines are right, but each cosine has a lower frequency than its sine. The sine and "
     "the cosine of pair i must both have the frequency 10000^(−2i / d_model).",
     (INV_FREQ, "10000.0 ** (-torch.arange(d_model) / d_model)"),
     (JOINED, "torch.cat([angles[:, ::2].sin(), angles[:, 1::2].cos()], dim=-1)")),
    ("twice as wide",
     "Your result has d_model sines and d_model cosines. Return d_model / 2 of each.",
     (INV_FREQ, "10000.0 ** (-torch.arange(d_model) / d_model)")),
    ("twice as steep",
     "Your frequencies fall too fast, as with the exponent −4i / d_model. Pair i must have the "
     "frequency 10000^(−2i / d_model).",
     (INV_FREQ, "10000.0 ** (-2 * torch.arange(half) / half)")),
    ("slowest first",
     "Your frequencies are right, but in reverse order. The first one must be 1.",
     (INV_FREQ, "10000.0 ** (-torch.arange(half) / half).flip(0)")),
    ("frequencies counted from 1",
     "Your first frequency is below 1. Count i from 0, so that the first frequency is 1.",
     (INV_FREQ, "10000.0 ** (-torch.arange(1, half + 1) / half)")),
    ("frequencies counted from -1",
     "Your first frequency is above 1. Count i from 0, so that the first frequency is 1.",
     (INV_FREQ, "10000.0 ** (-torch.arange(-1, half - 1) / half)")),
    ("sorted",
     "Your rows are sorted by position. Keep the given order.",
     ("positions[:, None]", "positions.sort().values[:, None]")),
    ("times 2π",
     "Your angles are multiplied by 2π. They are in radians already, so use them as they are.",
     ("* inv_freq", "* inv_freq * 2 * math.pi")),
    ("cosines alone",
     "Both of your halves are cosines. The first half must be the sines.",
     (JOINED, "torch.cat([angles.cos(), angles.cos()], dim=-1)")),
    ("angles",
     "Your result holds the angles, twice. Return their sines, and then their cosines.",
     (JOINED, "torch.cat([angles, angles], dim=-1)")),
    ("rotated back",
     "Your sines have the wrong sign. The angle is the position times the frequency, without a "
     "minus.",
     ("* inv_freq", "* -inv_freq")),
    ("the lesson's function",
     "Your result is the lesson's table: its positions are 0, 1, 2, …, and its sines and cosines "
     "alternate. Use the given positions, and put all sines before all cosines.",
     ("positions[:, None]", "torch.arange(len(positions))[:, None]"),
     (JOINED, "torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)")),
]  # fmt: skip

exercise = Exercise(
    "9.1", sinusoids_at, inputs, MISTAKES, names="L d_model", also_right=[by_loops, by_numpy]
)
