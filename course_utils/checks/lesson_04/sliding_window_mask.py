"""4.3: the sliding window (L, L): each token and those just before it."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_04.masks import other_kinds


def sliding_window_mask(L, window):
    i, j = torch.arange(L)[:, None], torch.arange(L)  # queries (L, 1), keys (L,)
    back = i - j  # (L, L), how far back key j lies
    return (0 <= back) & (back < window)


def inputs():
    small = [(7, 3), (5, 1), (4, 9), (6, 2), (1, 1), (4, 4), (5, 4), (1, 3)]
    return [*small, (12, 10), (50, 9)]


def slice_from_the_end(L, window):
    mask = torch.zeros(L, L, dtype=torch.bool)
    for i in range(L):
        mask[i, i - window + 1 : i + 1] = True
    return mask


MISTAKES = [
    *other_kinds(sliding_window_mask),
    ("window and itself",
     "one key too many: a window of w is the token itself and the w - 1 before it",
     ("back < window", "back <= window")),
    ("window too short",
     "one key too few: a window of w is the token itself and the w - 1 before it",
     ("back < window", "back < window - 1")),
    ("future left open",
     "only the far past is forbidden: for a key that lies ahead i - j is negative, and less than "
     "the window too", ("(0 <= back) & ", "")),
    ("both sides", "it looks to both sides: the future must stay hidden",
     ("(0 <= back) & (back < window)", "back.abs() < window")),
    ("itself forbidden", "the window ends before the token itself; it includes the token",
     ("0 <= back", "0 < back")),
    ("no window", "that is the causal mask: nothing further back than the window is forbidden",
     (" & (back < window)", "")),
    ("looks forward", "it looks forward: the window is the token and those before it",
     ("back = i - j", "back = j - i")),
    ("blocks", "those are blocks side by side; the window slides along with every token",
     ("(back < window)", "(i // window == j // window)")),
    ("slice from the end",
     "the first rows are empty: where i - window + 1 is negative a slice counts from the end; take "
     "max(0, ...)", slice_from_the_end),
]  # fmt: skip

exercise = Exercise("4.3", sliding_window_mask, inputs, MISTAKES, names="L L")
