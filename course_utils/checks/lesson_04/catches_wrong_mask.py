"""4.10: a test that passes right causal masks and catches wrong ones, of whatever size."""

import functools

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_04.causal_mask import causal_mask
from course_utils.checks.source_edits import edited
from course_utils.checks.submission_test import run_against


def catches_wrong_mask(causal_mask):
    for L, S in [(4, 4), (3, 7), (1, 5), (9, 12)]:
        mask = causal_mask(L, S)
        right = torch.ones(L, S, dtype=torch.bool).tril(S - L)
        assert torch.equal(mask, right)


def against_tril(causal_mask):
    for L, S in [(1, 3), (2, 5), (5, 5), (4, 9)]:
        expected = torch.ones(L, S, dtype=torch.bool).tril(S - L)
        torch.testing.assert_close(causal_mask(L, S), expected)


def row_by_row(causal_mask):
    for L in (1, 3):
        for S in range(L, 12):
            rows = [[True] * (i + 1 + S - L) + [False] * (L - 1 - i) for i in range(L)]
            assert causal_mask(L, S).tolist() == rows


def by_position(L, S=None):
    S = L if S is None else S
    return torch.arange(S) - torch.arange(L)[:, None] <= S - L


# What is told to the learner, and what a broken causal_mask returns in place of MASK
MASK = "everything.tril(S - L)"
LAST = "(torch.arange(L)[:, None] == L - 1)"
BROKEN = {
    "the diagonal forbidden": "everything.tril(S - L - 1)",
    "one key too far": "everything.tril(S - L + 1)",
    "the future in place of the past": "everything.triu(S - L)",
    "upper left where S > L": "everything.tril()",
    "as many keys as right, but the latest": "everything.tril(S - L).flip(-1)",
    "right for L = S = 5 only": "everything.tril() if L == S == 5 else everything",
    "nothing allowed at all": "~everything",
    "each query sees its own key alone": "everything.tril(S - L).triu(S - L)",
    "the last query's row right, all others see their own key alone": (
        f"everything.tril(S - L).triu(S - L) | {LAST}"
    ),
    "the first query's row for all queries": "everything.tril(S - L)[:1].repeat(L, 1)",
    "the first query's row right, all others open": (
        "everything.tril(S - L) | (torch.arange(L)[:, None] > 0)"
    ),
    "only the very next key hidden": "~everything.tril(S - L + 1).triu(S - L + 1)",
    "only the last key hidden, from all queries but the last": (
        f"(torch.arange(S) < S - 1) | {LAST}"
    ),
    "no mask at all where L = S": "everything.tril(S - L if S > L else S)",
    "a single query (L = 1) sees the first key alone": "everything.tril(S - L if L > 1 else 0)",
    "right up to 6 keys, all later ones hidden": "everything.tril(S - L) & (torch.arange(S) < 6)",
    "S - L taken for 2 at most": "everything.tril(min(S - L, 2))",
    "a column too many, (L, S + 1)": "torch.cat([everything.tril(S - L), everything[:, :1]], 1)",
    "right entries with a dimension too many, (1, L, S)": "everything.tril(S - L)[None]",
}


@functools.cache
def implementations():
    right = {"by position": by_position, "by tril": causal_mask}
    return right, {name: edited(causal_mask, name, (MASK, new)) for name, new in BROKEN.items()}


SIZES = "[(4, 4), (3, 7), (1, 5), (9, 12)]"
FEW = SIZES, "[(4, 4), (3, 7)]"
EQUAL = "torch.equal(mask, right)"

MISTAKES = [
    ("nothing at all", "nothing in it can fail: compare every entry with j <= i + S - L, by assert",
     (EQUAL, "True")),
    ("shape alone", "it looks at the shape alone: compare every entry with j <= i + S - L",
     (EQUAL, "mask.shape == (L, S)")),
    ("square alone",
     "it tries L = S alone: a mask that lines up the first query with the first key gets through; "
     "try S > L", (SIZES, "[(3, 3), (5, 5), (6, 6)]")),
    ("one size written out",
     "it compares with one mask written out, of one size: code that knows that size alone gets "
     "through, and so does the wrong corner where S > L; try several sizes", (SIZES, "[(5, 5)]")),
    ("one size alone",
     "it tries one size alone: code that is wrong at others, for L = S, for a single query, or "
     "with many keys, gets through; try several", (SIZES, "[(3, 5)]")),
    ("two queries alone",
     "it tries L = 2 alone, where the first row and the last are all there is: some bugs show in "
     "the rows between; try more queries", (SIZES, "[(2, 3), (2, 4)]")),
    ("only the future",
     "it sees that the future is forbidden, and not that the past is allowed: a mask that allows "
     "too little gets through", (EQUAL, "not mask[~right].any()")),
    ("only the past",
     "it sees that the past is allowed, and not that the future is forbidden: a mask that allows "
     "too much gets through", FEW, (EQUAL, "mask[right].all()")),
    ("only counts",
     "it counts what is allowed and not where: a mask may have the right count in the wrong place",
     FEW, (EQUAL, "mask.sum() == right.sum()")),
]  # fmt: skip

exercise = Exercise(
    "4.10", catches_wrong_mask, lambda: [()], MISTAKES,
    run=lambda test: run_against(test, *implementations()), also_right=[against_tril, row_by_row],
)  # fmt: skip
