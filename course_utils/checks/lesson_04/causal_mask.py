"""4.1: the causal mask (L, S), whose last query stands at the last key."""

import numpy as np
import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_04._masks import other_kinds


def causal_mask(L, S=None):
    S = L if S is None else S
    everything = torch.ones(L, S, dtype=torch.bool)  # (L, S)
    return everything.tril(S - L)  # key j is allowed where j <= i + S - L


def by_triu(L, S=None):
    S = L if S is None else S
    return ~torch.triu(torch.ones(L, S), diagonal=1 + S - L).bool()


def in_numpy(L, S=None):
    S = L if S is None else S
    return torch.from_numpy(np.tri(L, S, S - L, dtype=bool))


def inputs():
    squares = [(5,), (1,), (12,), (4, 4)]
    return [(3, 7), *squares, (1, 6), (5, 2), (10, 13), (3, 1), (2, 50), (3, 0)]


MISTAKES = [
    *other_kinds(causal_mask),
    ("diagonal forbidden", "a query must see its own key too: the diagonal is allowed",
     ("S - L)", "S - L - 1)")),
    ("one too far",
     "one key too far: each query sees the very next token, the one to be predicted",
     ("S - L)", "S - L + 1)")),
    ("upper left",
     "right for L = S; with more keys it lines up the first query with the first key, as is_causal "
     "does: the last query belongs at the last key", ("tril(S - L)", "tril()")),
    ("future marked",
     "that marks the future, as nn.MultiheadAttention wants it; here True = may attend, and the "
     "last query belongs at the last key", ("everything.tril(S - L)", "~everything.tril()")),
    ("offset without its sign",
     "right, but with fewer keys than queries: the offset S - L is negative there and must stay so",
     ("(S - L)", "(abs(S - L))")),
    ("offset of the wrong sign",
     "right for L = S; with more keys the diagonal moves the wrong way: S - L, not L - S",
     ("(S - L)", "(L - S)")),
    ("always square", "right for L = S, but S is not used: with S keys the mask is (L, S)",
     ("L if S is None else S", "L")),
    ("no keys taken for none given",
     "right, but S = 0 is taken for an S that is not given, as by `S or L`: ask whether S is None",
     ("S is None", "not S")),
    ("sizes swapped", "right for L = S, but otherwise (S, L): queries are rows, keys columns",
     ("ones(L, S", "ones(S, L")),
    ("transposed", "it is transposed: queries are rows, keys columns; it allows only the future",
     ("tril", "triu")),
    ("offset never negative",
     "with fewer keys than queries something is allowed that lies in the future: the offset S - L "
     "is negative there and must stay so", ("(S - L)", "(max(S - L, 0))")),
    ("upper triangle",
     "triu() keeps the future and the diagonal; what a query may see is the *lower* triangle",
     ("tril(S - L)", "triu()")),
]  # fmt: skip

exercise = Exercise(
    "4.1", causal_mask, inputs, MISTAKES, names="L S", also_right=[by_triu, in_numpy]
)
