"""9.1: sinusoids of any places, all sines before all cosines."""

import math

import numpy as np
import torch

from course_utils.checks.exercise import Exercise


def sinusoids_at(positions, d_model):
    half = d_model // 2
    speeds = 10000.0 ** (-torch.arange(half) / half)  # (d_model / 2,)
    angles = positions[:, None] * speeds  # (L, d_model / 2)
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
GROW = (
    "each clock is faster than the last: the speeds are 10000^(−2i / d_model), and places are "
    "multiplied by them"
)
MISTAKES = [
    ("in turns", "sine and cosine in turns, as in the lesson; here all sines come first",
     (JOINED, "torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)")),
    ("cosines first", "the cosines come first; first all sines, then all cosines",
     (JOINED, "torch.cat([angles.cos(), angles.sin()], dim=-1)")),
    ("speeds grow", GROW, (SPEEDS, "10000.0 ** (torch.arange(half) / half)")),
    ("speeds grow, in float64", GROW, (SPEEDS, "10000.0 ** (torch.arange(half).double() / half)")),
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
    ("a speed for each entry",
     "each entry has a speed of its own; a sine and a cosine share one, so there are d_model / 2",
     (SPEEDS, "10000.0 ** (-torch.arange(d_model) / d_model)"),
     (JOINED, "torch.cat([angles[:, ::2].sin(), angles[:, 1::2].cos()], dim=-1)")),
    ("twice as wide", "d_model sines and d_model cosines; d_model / 2 of each",
     (SPEEDS, "10000.0 ** (-torch.arange(d_model) / d_model)")),
    ("twice as steep",
     "the clocks slow down twice as fast as they should: pair i has 10000^(−2i / d_model)",
     (SPEEDS, "10000.0 ** (-2 * torch.arange(half) / half)")),
    ("slowest first", "right speeds, the slowest first; the first clock is the fastest",
     (SPEEDS, "10000.0 ** (-torch.arange(half) / half).flip(0)")),
    ("speeds counted from 1", "the first clock is too slow: i counts from 0, its speed is 1",
     (SPEEDS, "10000.0 ** (-torch.arange(1, half + 1) / half)")),
    ("cosines alone", "cosines twice; the first half is the sines",
     (JOINED, "torch.cat([angles.cos(), angles.cos()], dim=-1)")),
    ("angles", "those are the angles; their sines and cosines are asked",
     (JOINED, "torch.cat([angles, angles], dim=-1)")),
    ("turned back", "the sines have the wrong sign: the hands go backwards",
     ("* speeds", "* -speeds")),
    ("the lesson's function",
     "that is the lesson's table: its rows are numbered from 0, sine and cosine stand in turns; "
     "here the places are given, and all sines come first",
     ("positions[:, None]", "torch.arange(len(positions))[:, None]"),
     (JOINED, "torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)")),
]  # fmt: skip

exercise = Exercise(
    "9.1", sinusoids_at, inputs, MISTAKES, names="L d_model", also_right=[by_loops, by_numpy]
)
