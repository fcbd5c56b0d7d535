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
     "Your mask still has the bug of the given code. With more than one sink, the first queries "
     "see sinks in their future. Python evaluates & before |, so 0 <= distance does not apply to "
     "the sinks. Add parentheses, and test with L = 6, window = 2, sinks = 3.",
     (RULE, "(0 <= back) & (back < window) | (j < sinks)")),
    *other_kinds(sliding_window_mask),
    ("sinks left out",
     "Your mask is the window alone. Let every query also see the first `sinks` keys, if they are "
     "not in its future.",
     (RULE, "(0 <= back) & (back < window)")),
    ("one sink alone",
     "With several sinks, your mask keeps only the first sink visible. Allow the first `sinks` "
     "keys.",
     ("j < sinks", "j < min(sinks, 1)")),
    ("sinks for the first queries",
     "Your mask treats the first *rows* as sinks. Sinks are keys, so they are columns. Allow the "
     "columns j < sinks instead of the rows i < sinks.",
     ("j < sinks", "i < sinks")),
    ("last keys as sinks",
     "Your mask treats the last `sinks` keys as sinks. Sinks are the first keys of the text. Allow "
     "the keys j < sinks.",
     ("j < sinks", "j >= L - sinks")),
    ("one key as sink",
     "Your mask treats only key number `sinks` as a sink. The sinks are the keys 0 to sinks − 1. "
     "Allow the keys j < sinks.",
     ("j < sinks", "j == sinks")),
    ("no more sinks than the window is long",
     "If `sinks` is larger than `window`, your mask keeps only the first `window` sinks visible. "
     "Allow all keys j < sinks, however short the window is.",
     ("j < sinks", "j < min(sinks, window)")),
    ("sinks in the future, after the window",
     "If `sinks` is larger than `window`, your mask lets some queries see sinks in their future. "
     "You get this result if every query from position `window` on sees all sinks. Allow a sink "
     "only if j <= i.",
     (RULE, "(0 <= back) & (back < window) | ((j < sinks) & (i >= window))")),
    ("one sink too many",
     "Your mask has one sink too many. The sinks are keys 0 to sinks − 1. Allow the keys j < "
     "sinks.",
     ("j < sinks", "j <= sinks")),
    ("sinks and window both needed",
     "Your mask allows a key only if it is a sink *and* in the window. One of the two is enough. "
     "Join them with |.",
     ("| (j", "& (j")),
    ("window longer by the sinks",
     "Your window is `sinks` keys too long. Allow the token itself and the `window − 1` tokens "
     "before it, whatever the number of sinks.", ("back < window", "back < window + sinks")),
    ("window shorter by the sinks",
     "Your window is `sinks` keys too short. Allow the token itself and the `window − 1` tokens "
     "before it, whatever the number of sinks.", ("back < window", "back < window - sinks")),
    ("sinks only beyond the window",
     "Your mask leaves a gap, because it forbids a sink that is exactly `window` positions back. "
     "Allow a sink at any distance in the past.", ("(j < sinks)", "(j < sinks) & (back > window)")),
    ("longer window for sinks",
     "Your mask is a single window of window + sinks keys. But the sinks are the *first* keys of "
     "the text. Allow a window of `window` keys, and also the keys j < sinks, if they are not in "
     "the future.", (RULE, "(0 <= back) & (back < window + sinks)")),
    ("looks ahead",
     "Your mask allows keys in the future and none in the past, as if the distance were j − i. "
     "Key j is i − j positions before query i. Use i − j.",
     ("i - j", "j - i")),
    ("no sinks for the first queries",
     "Right, except for the first `sinks` queries. Let each of them also see the sinks before "
     "it, even those outside its window.", ("(j < sinks)", "(j < sinks) & (i >= sinks)")),
    ("window and itself",
     "Your window has one key too many. Allow the token itself and only the `window − 1` tokens "
     "before it.",
     ("back < window", "back <= window")),
    ("window too short",
     "Your window has one key too few. Allow the token itself and the `window − 1` tokens before "
     "it.",
     ("back < window", "back < window - 1")),
    ("future left open",
     "Your mask allows the future. For a later key, i − j is negative, so it is also less than "
     "the window. Forbid later keys separately.",
     ("(0 <= back) & ", "")),
    ("both sides",
     "Your mask also allows keys in the future. Forbid every key j with i − j below 0.",
     (RULE, "(back.abs() < window) | (j < sinks)")),
    ("itself forbidden",
     "In your mask, no token sees itself. Allow a distance of 0.",
     ("0 <= back", "0 < back")),
    ("no window",
     "Your mask is the causal mask. Forbid keys that are outside the window, except the sinks.",
     ("((back < window) | (j < sinks))", "(back > -1)")),
    ("sinks after the window",
     "In your mask, only the queries from sinks + window on see the sinks outside their window. "
     "Let every query see each sink that is not in its future.",
     ("(j < sinks)", "(j < sinks) & (i >= sinks + window)")),
    ("transposed",
     "The pattern is right, but transposed. Make rows queries and columns keys.",
     lambda *given: sliding_window_mask(*given).mT),
    ("parentheses missing around <=",
     "Your mask allows everything. If your comparisons have no parentheses, Python evaluates & "
     "before <=. Put parentheses around each comparison.",
     (RULE, "0 <= back & ((back < window) | (j < sinks))")),
    ("slice from the end",
     "In your mask, some early rows lack the keys of their window. If you slice from i - window + "
     "1, a negative start counts from the end. Start at max(0, i - window + 1).",
     slice_from_the_end),
]  # fmt: skip

exercise = Exercise(
    "4.3", sliding_window_mask, inputs, MISTAKES, names="L L", also_right=[by_loops, by_triangles]
)
