"""9.1: sinusoids of given positions, all sines before all cosines."""

import math

import numpy as np
import torch

from course_utils.checks.exercise import Exercise


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
    "Your frequencies grow from pair to pair. Pair i has the frequency 10000^(−2i / d_model), "
    "and the angle is the position times the frequency."
)
MISTAKES = [
    ("alternating",
     "Your sines and cosines alternate, as in the lesson. Here, put all sines first.",
     (JOINED, "torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)")),
    ("cosines first",
     "Your cosines come first. Put all sines before all cosines.",
     (JOINED, "torch.cat([angles.cos(), angles.sin()], dim=-1)")),
    ("frequencies grow", GROW, (INV_FREQ, "10000.0 ** (torch.arange(half) / half)")),
    ("frequencies grow, in float64", GROW,
     (INV_FREQ, "10000.0 ** (torch.arange(half).double() / half)")),
    ("number of the pair over d_model",
     "Your frequencies fall too slowly, as with the exponent −i / d_model. Pair i has 10000^(−2i "
     "/ d_model).",
     (INV_FREQ, "10000.0 ** (-torch.arange(half) / d_model)")),
    ("last speed 1 / 10000",
     "Your last frequency is exactly 1 / 10000. The exponent is −2i / d_model, and i ends at "
     "d_model / 2 − 1, so it never reaches −1.",
     (INV_FREQ, "10000.0 ** (-torch.linspace(0, 1, half))")),
    ("evenly spaced frequencies",
     "Your frequencies are evenly spaced. From pair to pair, they must fall by the same factor.",
     (INV_FREQ, "torch.linspace(1, 1e-4, half)")),
    ("numbers of the rows",
     "Your result numbers the rows from 0. Use the given positions.",
     ("positions[:, None]", "torch.arange(len(positions))[:, None]")),
    ("whole numbers only",
     "Your positions are cut to whole numbers. Keep their fractions.",
     ("positions[:, None]", "positions.long()[:, None]")),
    ("counted from 1",
     "Every position is one too large in your result. Use the given positions as they are.",
     ("positions[:, None]", "(positions[:, None] + 1)")),
    ("bfloat16",
     "Your positions are rounded to bfloat16, which keeps 8 binary digits. Above 256, "
     "neighboring positions become equal. Use at least float32.",
     ("positions[:, None]", "positions.bfloat16()[:, None]")),
    ("float16",
     "Your positions are rounded to float16, which keeps 11 binary digits. Above 2048, "
     "neighboring positions become equal. Use at least float32.",
     ("positions[:, None]", "positions.half()[:, None]")),
    ("base 1000",
     "Your frequencies have base 1000. The base is 10000.",
     (INV_FREQ, "1000.0 ** (-torch.arange(half) / half)")),
    ("sines alone",
     "Both of your halves are sines. Make the second half the cosines.",
     (JOINED, "torch.cat([angles.sin(), angles.sin()], dim=-1)")),
    ("degrees",
     "Your angles are converted from degrees. They are radians already, as sin and cos need "
     "them.",
     ("angles.sin(), angles.cos()", "angles.deg2rad().sin(), angles.deg2rad().cos()")),
    ("transposed",
     "Your numbers are right, but transposed. Return one row per position.",
     ("dim=-1)  # (L, d_model)", "dim=-1).T")),
    ("a speed for each entry",
     "Each entry has its own frequency in your result. A sine and a cosine share one, so there "
     "are d_model / 2 frequencies.",
     (INV_FREQ, "10000.0 ** (-torch.arange(d_model) / d_model)"),
     (JOINED, "torch.cat([angles[:, ::2].sin(), angles[:, 1::2].cos()], dim=-1)")),
    ("twice as wide",
     "Your result has d_model sines and d_model cosines. Return d_model / 2 of each.",
     (INV_FREQ, "10000.0 ** (-torch.arange(d_model) / d_model)")),
    ("twice as steep",
     "Your frequencies fall too fast, as with the exponent −4i / d_model. Pair i has 10000^(−2i "
     "/ d_model).",
     (INV_FREQ, "10000.0 ** (-2 * torch.arange(half) / half)")),
    ("slowest first",
     "Your frequencies are right, but in reverse order. The first one is 1.",
     (INV_FREQ, "10000.0 ** (-torch.arange(half) / half).flip(0)")),
    ("frequencies counted from 1",
     "Your first frequency is below 1. Count i from 0, so that the first one is 1.",
     (INV_FREQ, "10000.0 ** (-torch.arange(1, half + 1) / half)")),
    ("frequencies counted from -1",
     "Your first frequency is above 1. Count i from 0, so that the first one is 1.",
     (INV_FREQ, "10000.0 ** (-torch.arange(-1, half - 1) / half)")),
    ("cosines alone",
     "Both of your halves are cosines. Make the first half the sines.",
     (JOINED, "torch.cat([angles.cos(), angles.cos()], dim=-1)")),
    ("angles",
     "Your result holds the angles. Return their sines and cosines.",
     (JOINED, "torch.cat([angles, angles], dim=-1)")),
    ("rotated back",
     "Your sines have the wrong sign. Use positive angles.",
     ("* inv_freq", "* -inv_freq")),
    ("the lesson's function",
     "Your result is the lesson's table: its rows are numbered from 0, and sines and cosines "
     "alternate. Use the given positions, and put all sines first.",
     ("positions[:, None]", "torch.arange(len(positions))[:, None]"),
     (JOINED, "torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)")),
]  # fmt: skip

exercise = Exercise(
    "9.1", sinusoids_at, inputs, MISTAKES, names="L d_model", also_right=[by_loops, by_numpy]
)
