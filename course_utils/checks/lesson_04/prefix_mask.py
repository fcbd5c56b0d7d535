"""4.4: the prefix mask (L, L): the first tokens are open to all, the rest causal."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_04.masks import other_kinds


def prefix_mask(L, prefix):
    i, j = torch.arange(L)[:, None], torch.arange(L)  # queries (L, 1), keys (L,)
    causal = j <= i  # (L, L)
    return causal | (j < prefix)  # (L, L) | (L,) -> (L, L)


def inputs():
    small = [(6, 2), (5, 0), (4, 4), (7, 3), (3, 5), (1, 0), (1, 1), (5, 1), (4, 3)]
    return [*small, (12, 9), (50, 10)]


MISTAKES = [
    *other_kinds(prefix_mask),
    ("only causal", "that is the causal mask: tokens of the prefix must see all of the prefix",
     (" | (j < prefix)", "")),
    ("only the prefix", "the tokens after the prefix see it and nothing else: add the causal part "
     "by |", ("causal | (j < prefix)", "(j < prefix).expand(L, L)")),
    ("prefix sees everything",
     "queries and keys are swapped: tokens of the prefix see everything, also what comes after it",
     ("j < prefix", "i < prefix")),
    ("prefix too long", "one token too many is open: a prefix of 2 is the keys 0 and 1",
     ("j < prefix", "j <= prefix")),
    ("joined by and", "joined by &, causal and prefix allow only what both allow: use |",
     ("causal |", "causal &")),
    ("diagonal moved",
     "tril(prefix) moves the diagonal, so that every query sees `prefix` keys ahead; the prefix is "
     "a block of columns", ("causal | (j < prefix)", "j <= i + prefix")),
    ("itself forbidden",
     "a token after the prefix must see itself too: in the causal part the diagonal is allowed",
     ("j <= i", "j < i")),
]  # fmt: skip

exercise = Exercise("4.4", prefix_mask, inputs, MISTAKES, names="L L")
