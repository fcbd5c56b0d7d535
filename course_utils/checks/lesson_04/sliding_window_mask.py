"""4.3: a sliding window (L, L) that also keeps the first tokens visible: code to fix."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_04._masks import other_kinds


def sliding_window_mask(L, window, sinks):
    i, j = torch.arange(L)[:, None], torch.arange(L)  # queries (L, 1), keys (L,)
    back = i - j  # (L, L), how many positions key j is before query i
    return (0 <= back) & ((back < window) | (j < sinks))  # (L, L)


def by_loops(L, window, sinks):
    mask = torch.zeros(L, L).bool()
    for i in range(L):
        mask[i, max(0, i - window + 1) : i + 1] = True
        mask[i, : min(sinks, i + 1)] = True
    return mask


def by_triangles(L, window, sinks):
    far = torch.ones(L, L, dtype=torch.bool).tril(-window)
    far[:, :sinks] = False
    return torch.ones(L, L).tril().bool() & ~far


def inputs():
    small = [(7, 3, 2), (5, 1, 1), (6, 2, 3), (6, 2, 0), (4, 9, 1), (4, 4, 4), (1, 1, 1), (5, 2, 9)]
    return [*small, (12, 10, 1), (50, 9, 4), (8, 1, 0)]


def slice_from_the_end(L, window, sinks):
    mask = torch.zeros(L, L, dtype=torch.bool)
    for i in range(L):
        mask[i, i - window + 1 : i + 1] = True
    mask[:, :sinks] = True
    return mask.tril()


RULE = "(0 <= back) & ((back < window) | (j < sinks))"
MISTAKES = [
    ("nothing fixed",
     "Your mask still has the bug. With more than one sink, the first queries see sinks that are "
     "in their future. Print it for L = 6, window = 2, sinks = 3, and look at the first rows.",
     (RULE, "(0 <= back) & (back < window) | (j < sinks)")),
    *other_kinds(sliding_window_mask),
    ("sinks left out",
     "Your mask is the window alone. Let all later queries also see the first `sinks` keys.",
     (RULE, "(0 <= back) & (back < window)")),
    ("one sink alone",
     "Your mask keeps only the first key visible. Keep the first `sinks` keys.",
     ("j < sinks", "j < min(sinks, 1)")),
    ("sinks for the first queries",
     "Your mask treats the first *rows* as sinks. Sinks are keys, so they are columns. Allow the "
     "columns j < sinks.",
     ("j < sinks", "i < sinks")),
    ("one sink too many",
     "Your mask has one sink too many. The sinks are keys 0 to sinks − 1. Allow the keys j < "
     "sinks.",
     ("j < sinks", "j <= sinks")),
    ("sinks and window both needed",
     "Your mask allows a key only if it is a sink *and* in the window. One of the two is enough. "
     "Join them with |.",
     ("| (j", "& (j")),
    ("window longer by the sinks",
     "Your window is `sinks` keys too long. Allow the token itself and the window − 1 tokens "
     "before it, whatever the number of sinks.", ("back < window", "back < window + sinks")),
    ("window shorter by the sinks",
     "Your window is `sinks` keys too short. Allow the token itself and the window − 1 tokens "
     "before it, whatever the number of sinks.", ("back < window", "back < window - sinks")),
    ("sinks only beyond the window",
     "Your mask leaves a gap: a sink that is exactly `window` positions back is forbidden. Allow a "
     "sink at any distance in the past.", ("(j < sinks)", "(j < sinks) & (back > window)")),
    ("longer window for sinks",
     "Your mask is a single window of window + sinks keys. The sinks are the *first* keys. Keep "
     "them visible to all later queries.", (RULE, "(0 <= back) & (back < window + sinks)")),
    ("looks ahead",
     "Your mask allows keys in the future and none in the past. Key j is i − j positions before "
     "query i. Allow a key only if i − j is at least 0.",
     ("i - j", "j - i")),
    ("no sinks for the first queries",
     "Right, except for the first `sinks` queries. Let them also see the sinks that come before "
     "them, even outside the window.", ("(j < sinks)", "(j < sinks) & (i >= sinks)")),
    ("window and itself",
     "Your window has one key too many. Allow the token itself and only the window − 1 tokens "
     "before it.",
     ("back < window", "back <= window")),
    ("window too short",
     "Your window has one key too few. Allow the token itself and the window − 1 tokens before "
     "it.",
     ("back < window", "back < window - 1")),
    ("future left open",
     "Your mask allows the future. For a later key, i − j is negative, so it is also less than "
     "the window. Forbid later keys separately.",
     ("(0 <= back) & ", "")),
    ("both sides",
     "Your mask also allows keys in the future. Hide them.",
     (RULE, "(back.abs() < window) | (j < sinks)")),
    ("itself forbidden",
     "In your mask, some tokens do not see themselves. Allow a distance of 0.",
     ("0 <= back", "0 < back")),
    ("no window",
     "Your mask is the causal mask. Forbid keys that are outside the window, except the sinks.",
     ("((back < window) | (j < sinks))", "(back > -1)")),
    ("sinks after the window",
     "In your mask, a query sees the sinks only after its window has passed all of them. Allow "
     "each sink for every query that comes after it.",
     ("(j < sinks)", "(j < sinks) & (i >= sinks + window)")),
    ("transposed",
     "The pattern is right, but transposed. Make rows queries and columns keys.",
     lambda *given: sliding_window_mask(*given).mT),
    ("parentheses missing around <=",
     "Your mask allows everything. If your comparisons have no parentheses, Python evaluates & "
     "before <=. Put parentheses around each comparison.",
     (RULE, "0 <= back & ((back < window) | (j < sinks))")),
    ("slice from the end",
     "Some early rows see only the sinks. If you slice from i - window + 1, a negative start "
     "counts from the end. Start at max(0, i - window + 1).", slice_from_the_end),
]  # fmt: skip

exercise = Exercise(
    "4.3", sliding_window_mask, inputs, MISTAKES, names="L L", also_right=[by_loops, by_triangles]
)
