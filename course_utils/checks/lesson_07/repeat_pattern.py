"""7.1: repeat a pattern up to a length."""

import math

import numpy as np
import torch

from course_utils.checks.exercise import Exercise


def repeat_pattern(pattern, length):
    period = pattern.shape[-1]
    position = torch.arange(length) % period  # (length,)
    return pattern[..., position]  # (..., length)


def by_cat(pattern, length):
    times = math.ceil(length / pattern.shape[-1])
    return torch.cat([pattern] * times, dim=-1)[..., :length]


def inputs():
    return [
        (torch.tensor([5, 9, 2]), 8),
        (torch.tensor([4, 1, 7, 3]), 12),  # whole repetitions only
        (torch.tensor([6, 2, 8, 1, 3]), 4),  # less than one repetition
        (torch.tensor([[3, 1], [0, 2], [5, 4]]), 7),
        (torch.tensor([3, 8]), 48),
        (torch.tensor([300]), 30),
        (torch.tensor([1, 1, 2]), 7),
        (torch.arange(6).reshape(2, 1, 3), 10),
        (torch.arange(8).reshape(4, 2).T, 9),  # not contiguous
        (torch.tensor([4]), 1),
    ]


TIMES = "-(-length // pattern.shape[-1])"
MORE = "length // pattern.shape[-1] + 1"
DOWN = (
    "Your repetitions are below each other, as `pattern.repeat(n, 1)` puts them. Put them one "
    "after another along the last dimension, and cut them at `length`: `torch.cat([pattern] * n, "
    "dim=-1)[..., :length]`."
)
STACKED = (
    "Your repetitions are in a new dimension. Put them one after another along the last dimension, "
    "and cut them at `length`: `torch.cat([pattern] * n, dim=-1)[..., :length]`."
)
TOO_FEW = "so it is too short if `length` is large. Compute how many repetitions `length` needs."
MISTAKES = [
    ("tokens stutter",
     "Your result repeats each token several times in a row, as in 5 5 9 9. Repeat the whole "
     "pattern, as in 5 9 5 9.",
     "pattern.repeat_interleave(-(-length // pattern.shape[-1]), dim=-1)[..., :length]"),
    ("whole periods only",
     "Your result lacks the last, incomplete repetition. Return exactly `length` tokens.",
     ("arange(length)", "arange(length // period * period)")),
    ("rest is zero",
     "The last, incomplete repetition is 0 in your result. Fill it with the first tokens of the "
     "pattern.",
     ("pattern[..., position]",
      "torch.where(torch.arange(length) < length // period * period, pattern[..., position], 0)")),
    ("long pattern not cut",
     "If the pattern is longer than `length`, you return all of it. Cut it at `length`, too.",
     ("arange(length)", "arange(max(length, period))")),
    ("two at most", "Your result contains the pattern at most twice, " + TOO_FEW,
     ("arange(length)", "arange(min(length, 2 * period))")),
    ("three at most", "Your result contains the pattern at most three times, " + TOO_FEW,
     ("arange(length)", "arange(min(length, 3 * period))")),
    ("beginning cut",
     "Your result ends with a complete pattern but may start in the middle of one. Start with the "
     "first token, and cut at the end: `[..., :length]`.",
     ("arange(length)", "arange(-length, 0)")),
    ("repetitions rounded",
     "Your result is too short where `round(length / period)` rounds down. Always round up, and "
     "then cut at `length`.",
     ("arange(length)", "arange(min(length, round(length / period) * period))")),
    ("not cut",
     "Your result always ends with a complete repetition, and has one too many if `length` is a "
     "multiple of the period. Cut your result at `length`.",
     ("arange(length)", "arange((length // period + 1) * period)")),
    ("last one not cut",
     "Your result always completes the last repetition. Cut your result at `length`.",
     ("arange(length)", "arange(-(-length // period) * period)")),
    ("one token too short",
     "Your result has one token too few. Return exactly `length` tokens.",
     ("arange(length)", "arange(length - 1)")),
    ("rest from the end",
     "The last, incomplete repetition consists of the last tokens of the pattern. Fill it with the "
     "first tokens of the pattern.",
     ("pattern[..., position]",
      "pattern[..., torch.where(torch.arange(length) < length // period * period, position, "
      "torch.arange(length) - length + period)]")),
    ("stacked", STACKED, f"torch.stack([pattern] * {TIMES}, dim=-2)"),
    ("stacked and cut", STACKED, f"torch.stack([pattern] * {TIMES}, dim=-2)[..., :length]"),
    ("repeated downwards", DOWN, f"pattern.repeat({TIMES}, 1)[..., :length]"),
    ("repeated downwards, once more", DOWN, f"pattern.repeat({MORE}, 1)[..., :length]"),
    ("stacked, once more", STACKED, f"torch.stack([pattern] * ({MORE}), dim=-2)"),
    ("one token too long",
     "Your result has one token too many. Return exactly `length` tokens.",
     ("arange(length)", "arange(length + 1)")),
    ("length counts patterns",
     "Your result has `length` repetitions. `length` counts tokens, not patterns.",
     ("arange(length)", "arange(length * period)")),
    ("there and back",
     "Every second repetition runs backwards. Always start again with the first token.",
     ("period = ", "pattern = torch.cat([pattern, pattern.flip(-1)], dim=-1); period = ")),
    ("starts one later",
     "Your result starts with the second token. Position i must hold token i % period.",
     ("arange(length)", "arange(1, length + 1)")),
    ("starts one earlier",
     "Your result starts with the last token. Position i must hold token i % period.",
     ("arange(length)", "arange(-1, length - 1)")),
    ("last token held",
     "After the first copy of the pattern, your result only repeats the pattern's last token. "
     "Start the pattern again each time.",
     (" % period", ".clamp(max=period - 1)")),
]  # fmt: skip

exercise = Exercise(
    "7.1", repeat_pattern, inputs, MISTAKES, names="length",
    also_right=[by_cat,
                lambda p, n: torch.from_numpy(np.take(p.numpy(), range(n), axis=-1, mode="wrap"))],
)  # fmt: skip
