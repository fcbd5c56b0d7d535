"""4.1: the causal mask (L, S), whose last query is aligned with the last key."""

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


def cache_before_a_square(L, S=None):
    S = L if S is None else S
    return torch.cat([torch.ones(L, S - L).bool(), causal_mask(L)], dim=1)


def rows_of_a_square(L, S=None):
    S = L if S is None else S
    return causal_mask(S)[S - L :]


ONLY_LONGER = (
    "Right, except with fewer keys than queries, where {}. Start from a matrix of shape (L, S), "
    "and allow key j for j <= i + S - L."
)
MISTAKES = [
    *other_kinds(causal_mask),
    ("diagonal forbidden",
     "Your mask allows one key too few, because a query does not see its own key. Allow key j for "
     "j <= i + S - L.",
     ("S - L)", "S - L - 1)")),
    ("one too far",
     "Your mask allows one key too many, because a query sees the next key, which holds the token "
     "to predict. Allow key j only for j <= i + S - L.",
     ("S - L)", "S - L + 1)")),
    ("upper left",
     "Right for L = S. Otherwise, your mask aligns the first query with the first key, as "
     "is_causal does. Align the last query with the last key.", ("tril(S - L)", "tril()")),
    ("future marked",
     "Your mask is True in the future, as in nn.MultiheadAttention, where True means 'ignore'. "
     "Here, True must mean 'may attend'. Invert the mask, and align the last query with the last "
     "key.",
     ("everything.tril(S - L)", "~everything.tril()")),
    ("one below the main diagonal",
     "Your mask allows key j only for j < i. A query must see its own key, and if S ≠ L, the last "
     "query must be aligned with the last key. Allow key j for j <= i + S - L.",
     ("tril(S - L)", "tril(-1)")),
    ("offset without its sign",
     "Right, except with fewer keys than queries. There, the offset S - L is negative, and you get "
     "this result if you drop its sign. Keep the sign.",
     ("(S - L)", "(abs(S - L))")),
    ("offset of the wrong sign",
     "Right for L = S. Otherwise, your diagonal is shifted in the wrong direction. Use the offset "
     "S - L, not L - S.",
     ("(S - L)", "(L - S)")),
    ("rows of a square",
     ONLY_LONGER.format("your mask has too few rows"), rows_of_a_square),
    ("cache before a square",
     ONLY_LONGER.format("S - L is negative and your code fails"), cache_before_a_square),
    ("cache hidden",
     "Right for S ≤ L. With more keys than queries, your mask forbids the first S − L keys, which "
     "are in the cache. Allow every key j with j <= i + S - L.",
     ("everything.tril(S - L)", "everything.tril(S - L) & (torch.arange(S) >= S - L)")),
    ("no mask with a cache",
     "Right for S ≤ L. With more keys than queries, your mask allows everything, even the future. "
     "Allow key j only for j <= i + S - L.",
     ("tril(S - L)", "tril(S - L if S <= L else S)")),
    ("oldest keys hidden",
     "Your mask hides the first i keys from query i, as if it had also been cut with `triu()`. "
     "Allow every key j with j <= i + S - L.",
     ("everything.tril(S - L)", "everything.tril(S - L) & everything.triu()")),
    ("always square",
     "Right for L = S. Otherwise, your mask still has the shape (L, L). Use S for the number of "
     "keys.",
     ("L if S is None else S", "L")),
    ("no keys taken for none given",
     "Right, except for S = 0, where your mask has L keys. If you write `S or L`, a 0 counts as "
     "not given. Compare S with None instead.",
     ("S is None", "not S")),
    ("sizes swapped",
     "Right for L = S. Otherwise, your mask has the shape (S, L). Rows are queries and columns "
     "are keys. Give the mask the shape (L, S).",
     ("ones(L, S", "ones(S, L")),
    ("transposed",
     "Your mask allows the diagonal and the future. Allow the diagonal and the past, which is the "
     "lower triangle.",
     ("tril", "triu")),
    ("offset never negative",
     "Right, except with fewer keys than queries. Then your mask allows keys in the future. Use "
     "the offset S - L even if it is negative.", ("(S - L)", "(max(S - L, 0))")),
    ("upper triangle",
     "Your mask allows the upper triangle, which holds the future. Allow the *lower* triangle, "
     "with the last query aligned with the last key.",
     ("tril(S - L)", "triu()")),
]  # fmt: skip

exercise = Exercise(
    "4.1", causal_mask, inputs, MISTAKES, names="L S", also_right=[by_triu, in_numpy]
)
