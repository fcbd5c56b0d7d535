"""4.3: a sliding window (L, L) that keeps the first tokens in view: code to mend."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_04._masks import other_kinds


def sliding_window_mask(L, window, sinks):
    i, j = torch.arange(L)[:, None], torch.arange(L)  # queries (L, 1), keys (L,)
    back = i - j  # (L, L), how far back key j lies
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
    ("nothing mended",
     "that is as it was: with more than one sink the first queries see sinks that lie ahead of "
     "them; print it for L = 6, window = 2, sinks = 3, and look at the upper rows",
     (RULE, "(0 <= back) & (back < window) | (j < sinks)")),
    *other_kinds(sliding_window_mask),
    ("sinks left out",
     "that is the window alone: the first `sinks` keys stay open to all queries that come after",
     (RULE, "(0 <= back) & (back < window)")),
    ("one sink alone", "the first key alone is kept in view; the first `sinks` keys are asked",
     ("j < sinks", "j < min(sinks, 1)")),
    ("sinks for the first queries",
     "queries and keys are swapped: the sinks are keys, columns; here the first *rows* are open",
     ("j < sinks", "i < sinks")),
    ("one sink too many", "one sink too many: `sinks` keys are those from 0 to sinks − 1",
     ("j < sinks", "j <= sinks")),
    ("sinks and window both needed",
     "window and sinks are joined by &: a key may be seen if it is in the window *or* a sink",
     ("| (j", "& (j")),
    ("window longer by the sinks",
     "the window is `sinks` keys too long: a window of w is the token itself and the w − 1 before "
     "it, however many sinks there are", ("back < window", "back < window + sinks")),
    ("window shorter by the sinks",
     "the window is `sinks` keys too short: a window of w is the token itself and the w − 1 before "
     "it, however many sinks there are", ("back < window", "back < window - sinks")),
    ("longer window for sinks",
     "that is one window of window + sinks keys: the sinks are the first keys, and stay open "
     "however far they lie back", (RULE, "(0 <= back) & (back < window + sinks)")),
    ("looks ahead",
     "it opens keys that lie ahead and none that lie behind: key j lies i − j before query i",
     ("i - j", "j - i")),
    ("no sinks for the first queries",
     "right, but for the first `sinks` queries: of the sinks they see those before them too, also "
     "beyond the window", ("(j < sinks)", "(j < sinks) & (i >= sinks)")),
    ("window and itself",
     "one key too many: a window of w is the token itself and the w − 1 before it",
     ("back < window", "back <= window")),
    ("window too short",
     "one key too few: a window of w is the token itself and the w − 1 before it",
     ("back < window", "back < window - 1")),
    ("future left open",
     "for a key that lies ahead i - j is negative, and less than the window too: forbid the future",
     ("(0 <= back) & ", "")),
    ("both sides", "it looks to both sides: the future must stay hidden",
     (RULE, "(back.abs() < window) | (j < sinks)")),
    ("itself forbidden", "a token must see itself too: 0 <= back", ("0 <= back", "0 < back")),
    ("no window",
     "that is the causal mask: keys further back than the window are forbidden, but for the sinks",
     ("((back < window) | (j < sinks))", "(back > -1)")),
    ("sinks after the window",
     "the sinks are open only to queries whose window has passed them all",
     ("(j < sinks)", "(j < sinks) & (i >= sinks + window)")),
    ("transposed", "right pattern, but transposed: rows are queries, columns are keys",
     lambda *given: sliding_window_mask(*given).mT),
    ("parentheses missing around <=",
     "everything is open: & binds more tightly than <=, so 0 is compared with all the rest "
     "together; put parentheses around each comparison",
     (RULE, "0 <= back & ((back < window) | (j < sinks))")),
    ("slice from the end",
     "rows are empty but for the sinks where i - window + 1 is negative, for a slice counts from "
     "the end then; take max(0, ...)", slice_from_the_end),
]  # fmt: skip

exercise = Exercise(
    "4.3", sliding_window_mask, inputs, MISTAKES, names="L L", also_right=[by_loops, by_triangles]
)
