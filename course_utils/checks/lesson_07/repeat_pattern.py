"""7.1: a pattern is repeated up to a length."""

import math

import numpy as np
import torch

from course_utils.checks.exercise import Exercise


def repeat_pattern(pattern, length):
    period = pattern.shape[-1]
    place = torch.arange(length) % period  # (length,)
    return pattern[..., place]  # (..., length)


def by_cat(pattern, length):
    times = math.ceil(length / pattern.shape[-1])
    return torch.cat([pattern] * times, dim=-1)[..., :length]


def inputs():
    return [
        (torch.tensor([5, 9, 2]), 8),
        (torch.tensor([4, 1, 7, 3]), 12),  # fits without rest
        (torch.tensor([6, 2, 8, 1, 3]), 4),  # not even once
        (torch.tensor([[3, 1], [0, 2], [5, 4]]), 7),
        (torch.tensor([3, 8]), 48),
        (torch.tensor([7]), 30),
        (torch.tensor([1, 1, 2]), 7),
        (torch.arange(6).reshape(2, 1, 3), 10),
        (torch.arange(8).reshape(4, 2).T, 9),  # not contiguous
        (torch.tensor([4]), 1),
    ]


TOO_FEW = ", whatever `length` is: long results stay too short; count how often it is needed"
MISTAKES = [
    ("tokens stutter",
     "each token is repeated where it stands, 5 5 9 9; the whole pattern must come again",
     "pattern.repeat_interleave(-(-length // pattern.shape[-1]), dim=-1)[..., :length]"),
    ("whole periods only",
     "the last, unfinished repetition is missing: the result must be `length` long",
     ("arange(length)", "arange(length // period * period)")),
    ("rest is zero",
     "the last, unfinished repetition is left at 0: it holds the beginning of the pattern",
     ("pattern[..., place]",
      "torch.where(torch.arange(length) < length // period * period, pattern[..., place], 0)")),
    ("long pattern not cut",
     "a pattern longer than `length` is left whole: cut it at `length` as well",
     ("arange(length)", "arange(max(length, period))")),
    ("two at most", "the pattern twice" + TOO_FEW,
     ("arange(length)", "arange(min(length, 2 * period))")),
    ("three at most", "the pattern three times" + TOO_FEW,
     ("arange(length)", "arange(min(length, 3 * period))")),
    ("beginning cut", "it ends with a whole pattern, and the beginning is cut: cut at the end, "
     "[..., :length]", ("arange(length)", "arange(-length, 0)")),
    ("repetitions rounded",
     "right where length / period is rounded up; where it is rounded down, the end is missing: "
     "always round up, then cut at `length`",
     ("arange(length)", "arange(min(length, round(length / period) * period))")),
    ("not cut", "one repetition too many is left standing: cut the result at `length`",
     ("arange(length)", "arange((length // period + 1) * period)")),
    ("last one not cut", "the last repetition is left whole: cut the result at `length`",
     ("arange(length)", "arange(-(-length // period) * period)")),
    ("one token too long", "one token too many: there should be `length` of them",
     ("arange(length)", "arange(length + 1)")),
    ("length counts patterns",
     "`length` repetitions: length is the number of tokens, not of patterns",
     ("arange(length)", "arange(length * period)")),
    ("there and back",
     "every other repetition runs backwards; the pattern starts again at its beginning",
     ("period = ", "pattern = torch.cat([pattern, pattern.flip(-1)], dim=-1); period = ")),
    ("starts one later", "it starts with the second token: place i holds token i % period",
     ("arange(length)", "arange(1, length + 1)")),
    ("starts one earlier", "it starts with the last token: place i holds token i % period",
     ("arange(length)", "arange(-1, length - 1)")),
    ("last token held",
     "after the first time the last token is repeated; start again at the beginning",
     (" % period", ".clamp(max=period - 1)")),
]  # fmt: skip

exercise = Exercise(
    "7.1", repeat_pattern, inputs, MISTAKES, names="length",
    also_right=[by_cat,
                lambda p, n: torch.from_numpy(np.take(p.numpy(), range(n), axis=-1, mode="wrap"))],
)  # fmt: skip
