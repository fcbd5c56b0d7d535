"""10b.1: what a cache holds that drops old tokens, but never the first ones."""

import torch

from course_utils.attention import causal_mask, sliding_window_mask
from course_utils.checks.exercise import Exercise


def streaming_mask(L, window, sinks):
    i, j = torch.arange(L)[:, None], torch.arange(L)  # queries, keys
    recent = i - j < window  # (L, L), so many tokens with its own
    first = j < sinks  # (L,)
    return (recent | first) & (j <= i)  # (L, L)


def by_loops(L, window, sinks):
    mask = torch.zeros(L, L, dtype=torch.bool)
    for i in range(L):
        for j in range(i + 1):
            mask[i, j] = j < sinks or j > i - window
    return mask


def by_masks(L, window, sinks):
    mask = sliding_window_mask(L, window)
    mask[:, :sinks] = True
    return mask & causal_mask(L)


def inputs():
    sizes = [(9, 3, 1), (12, 4, 2), (7, 1, 3), (10, 5, 0), (6, 9, 2), (5, 2, 8), (1, 1, 1)]
    return [*sizes, (23, 6, 4)]


MISTAKES = [
    ("future seen",
     "a query sees sinks, or others, that come after it: keep j ≤ i as well",
     (" & (j <= i)", "")),
    ("window to both sides", "the window reaches into the future as well: keep j ≤ i",
     ("i - j < window", "(i - j).abs() < window"),
     ("(recent | first) & (j <= i)", "recent | first")),
    ("sinks of the future",
     "the first tokens see sinks that come after them: j ≤ i must hold for sinks, too",
     ("(recent | first) & (j <= i)", "(recent & (j <= i)) | first.expand(L, L)")),
    ("one too many", "the window is one too wide: it counts the query's own token",
     ("i - j < window", "i - j <= window")),
    ("one too few", "the window is one too narrow: it counts the query's own token",
     ("i - j < window", "i - j < window - 1")),
    ("window only", "the first tokens are dropped like all others; they stay",
     ("recent | first", "recent")),
    ("sinks for the last only",
     "the last query alone sees the sinks; each query that comes after them does",
     ("(recent | first)", "(recent | (first & (i == L - 1)))")),
    ("one sink", "the first token alone stays; as many as sinks are to stay",
     ("j < sinks", "j < min(sinks, 1)")),
    ("one sink too many", "tokens 0 to sinks − 1 stay: that is one too many",
     ("j < sinks", "j <= sinks")),
    ("sinks counted from 1", "the sinks begin at token 1; the very first stays: j < sinks",
     ("j < sinks", "(j >= 1) & (j <= sinks)")),
    ("window shrinks by the sinks",
     "the sinks take places of the window; they come beside it",
     ("i - j < window", "i - j < max(window - sinks, 1)")),
    ("sinks inside the window only", "sinks are seen only inside the window: | joins, & cuts",
     ("recent | first", "recent & first")),
    ("queries for keys", "the mask is transposed: rows are queries, columns keys",
     ("return (recent | first) & (j <= i)", "return ((recent | first) & (j <= i)).T")),
    ("True hides", "the mask is turned around: True = may attend",
     ("return (recent | first) & (j <= i)", "return ~((recent | first) & (j <= i))")),
]  # fmt: skip

exercise = Exercise(
    "10b.1", streaming_mask, inputs, MISTAKES, names="L L", also_right=[by_loops, by_masks]
)
