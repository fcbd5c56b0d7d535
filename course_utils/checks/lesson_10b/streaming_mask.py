"""10b.1: what a cache holds that drops old tokens, but never the first ones."""

import torch

from course_utils.attention import causal_mask, sliding_window_mask
from course_utils.checks.exercise import Exercise


def streaming_mask(L, window, sinks):
    i, j = torch.arange(L)[:, None], torch.arange(L)  # queries, keys
    recent = i - j < window  # (L, L), including its own token
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
     "Your mask allows all keys that come after the query. Allow a key only if its position is at"
     " most that of the query.",
     (" & (j <= i)", "")),
    ("own token hidden",
     "In your mask, no query sees its own token. That token belongs to the window, so allow it.",
     ("j <= i", "j < i")),
    ("window to both sides",
     "Your window also covers keys after the query, and early queries see sinks that come after "
     "them. Allow a key only if its position is at most that of the query.",
     ("i - j < window", "(i - j).abs() < window"),
     ("(recent | first) & (j <= i)", "recent | first")),
    ("sinks of the future",
     "In your mask, early queries see sinks that come after them. Allow a sink only if its "
     "position is at most that of the query.",
     ("(recent | first) & (j <= i)", "(recent & (j <= i)) | first.expand(L, L)")),
    ("one too many",
     "Your window is one token too wide. The query's own token already counts as one of the "
     "`window` tokens.",
     ("i - j < window", "i - j <= window")),
    ("one too few",
     "Your window is one token too narrow. It must have `window` tokens, including the query's "
     "own.",
     ("i - j < window", "i - j < window - 1")),
    ("window only",
     "Your mask allows only the window. Every query must also see the first `sinks` tokens, "
     "unless they come after it.",
     ("recent | first", "recent")),
    ("sinks for the last only",
     "In your mask, only the last query sees sinks outside its window. Show the sinks to every "
     "query that does not come before them.",
     ("(recent | first)", "(recent | (first & (i == L - 1)))")),
    ("one sink",
     "Your mask keeps only one sink, the first token. Keep the first `sinks` tokens.",
     ("j < sinks", "j < min(sinks, 1)")),
    ("one sink too many",
     "Your mask keeps one sink too many. Keep tokens 0 to `sinks` − 1.",
     ("j < sinks", "j <= sinks")),
    ("sinks counted from 1",
     "Your sinks are tokens 1 to `sinks`. Positions are counted from 0, so keep tokens 0 to "
     "`sinks` − 1.",
     ("j < sinks", "(j >= 1) & (j <= sinks)")),
    ("window shrinks by the sinks",
     "Your window gets narrower when there are more sinks. The sinks come in addition to the "
     "window, so keep all `window` tokens in it.",
     ("i - j < window", "i - j < max(window - sinks, 1)")),
    ("sinks inside the window only",
     "Your mask allows a key only if it is a sink *and* in the window. One of the two is enough, "
     "so combine them with |.",
     ("recent | first", "recent & first")),
    ("a sink although there are none",
     "Your mask keeps the first token even if `sinks` is 0. In this case, keep only the window.",
     ("j < sinks", "j < max(sinks, 1)")),
    ("window before the query",
     "Your window leaves out the query's own token and starts one token too early. It must have "
     "`window` tokens, including the query's own.",
     ("i - j < window", "i - j <= window"), ("j <= i", "j < i")),
    ("window and sinks exchanged",
     "Your result is what you get if `window` and `sinks` are swapped. Keep the first `sinks` "
     "tokens, and a window of `window` tokens.",
     ("    recent =", "    window, sinks = sinks, window\n    recent =")),
    ("sinks inside the window hidden",
     "Your mask hides the sinks that are also in the window. They must stay visible, so combine the"
     " two with |, not ^.",
     ("recent | first", "recent ^ first")),
    ("blocks",
     "Your windows are fixed blocks of `window` tokens. Each query has a window of its own, which "
     "ends at the query.",
     ("i - j < window", "i // window == j // window")),
    ("window wider by the sinks",
     "Your window has `window + sinks` tokens, and no sinks. Keep `window` tokens, and add the "
     "first `sinks` tokens of the text for every query.",
     ("i - j < window", "i - j < window + sinks"), ("recent | first", "recent")),
    ("sinks dropped later",
     "Your mask drops the sinks for queries far from the start. Each query after the sinks must see"
     " all of them.",
     ("j < sinks", "(j < sinks) & (i - j < window + sinks)")),
    ("sinks again and again",
     "Your mask keeps sinks at the start of each block of `window` tokens. Keep only the first "
     "`sinks` tokens of the text.",
     ("j < sinks", "j % window < sinks")),
    ("one too many, with sinks of the future",
     "Your window is one token too wide, and early queries see sinks that come after them. The "
     "query's own token is one of the `window` tokens. Allow a sink only if it does not come after "
     "the query.",
     ("i - j < window", "i - j <= window"),
     ("(recent | first) & (j <= i)", "(recent & (j <= i)) | first.expand(L, L)")),
    ("queries for keys",
     "Your mask is transposed. Make the queries its rows and the keys its columns.",
     ("return (recent | first) & (j <= i)", "return ((recent | first) & (j <= i)).T")),
    ("True hides",
     "Your mask is inverted. True must mean that the query may attend to the key.",
     ("return (recent | first) & (j <= i)", "return ~((recent | first) & (j <= i))")),
]  # fmt: skip

exercise = Exercise(
    "10b.1", streaming_mask, inputs, MISTAKES, names="L L", also_right=[by_loops, by_masks]
)
