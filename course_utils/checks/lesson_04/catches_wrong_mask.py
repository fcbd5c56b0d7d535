"""4.10: a test that passes right causal masks and catches wrong ones, at all sizes up to 12."""

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


# What the learner is told, and what a broken causal_mask returns instead of MASK
MASK = "everything.tril(S - L)"
LAST = "(torch.arange(L)[:, None] == L - 1)"
BROKEN = {
    "the diagonal forbidden": "everything.tril(S - L - 1)",
    "one key too far": "everything.tril(S - L + 1)",
    "the future instead of the past": "everything.triu(S - L)",
    "first query aligned with first key if S > L": "everything.tril()",
    "the right number of keys, but the latest ones": "everything.tril(S - L).flip(-1)",
    "right only for L = S = 5": "everything.tril() if L == S == 5 else everything",
    "nothing allowed at all": "~everything",
    "each query sees only its own key": "everything.tril(S - L).triu(S - L)",
    "only the last query right, all others see only their own key": (
        f"everything.tril(S - L).triu(S - L) | {LAST}"
    ),
    "the first query's row for all queries": "everything.tril(S - L)[:1].repeat(L, 1)",
    "only the first query right, all others see everything": (
        "everything.tril(S - L) | (torch.arange(L)[:, None] > 0)"
    ),
    "only the next key hidden": "~everything.tril(S - L + 1).triu(S - L + 1)",
    "only the last key hidden, from all queries but the last": (
        f"(torch.arange(S) < S - 1) | {LAST}"
    ),
    "no mask if L = S": "everything.tril(S - L if S > L else S)",
    "a single query (L = 1) sees only the first key": "everything.tril(S - L if L > 1 else 0)",
    "right up to 6 keys, all later ones hidden": "everything.tril(S - L) & (torch.arange(S) < 6)",
    "never aligned by more than S - L = 2": "everything.tril(min(S - L, 2))",
    "one column too many, (L, S + 1)": "torch.cat([everything.tril(S - L), everything[:, :1]], 1)",
    "right entries with one dimension too many, (1, L, S)": "everything.tril(S - L)[None]",
}


@functools.cache
def implementations():
    right = {"by position": by_position, "by tril": causal_mask}
    return right, {name: edited(causal_mask, name, (MASK, new)) for name, new in BROKEN.items()}


SIZES = "[(4, 4), (3, 7), (1, 5), (9, 12)]"
FEW = SIZES, "[(4, 4), (3, 7)]"
EQUAL = "torch.equal(mask, right)"

MISTAKES = [
    ("nothing at all",
     "Nothing in your test can fail. Assert that every entry equals j <= i + S - L.",
     (EQUAL, "True")),
    ("shape alone",
     "Your test looks only at the shape. Assert that every entry equals j <= i + S - L.",
     (EQUAL, "mask.shape == (L, S)")),
    ("square alone",
     "Your test tries only L = S. A mask that aligns the first query with the first key still "
     "passes your test. Try S > L.", (SIZES, "[(3, 3), (5, 5), (6, 6)]")),
    ("one size written out",
     "Your test compares with one mask of one size. Code that is correct only at this size still "
     "passes your test. Try several sizes, some with S > L.", (SIZES, "[(5, 5)]")),
    ("one size alone",
     "Your test tries only one size. Code that is wrong at other sizes still passes your test: "
     "for L = S, for a single query, or with many keys. Try several sizes.", (SIZES, "[(3, 5)]")),
    ("two queries alone",
     "Your test tries only L = 2, where no row is between the first and the last. Some bugs show "
     "only in such rows. Try more queries.", (SIZES, "[(2, 3), (2, 4)]")),
    ("only the future",
     "Your test checks that the future is forbidden, but not that the past is allowed. A mask "
     "that allows too little still passes your test. Assert both.",
     (EQUAL, "not mask[~right].any()")),
    ("only the past",
     "Your test checks that the past is allowed, but not that the future is forbidden. A mask "
     "that allows too much still passes your test. Assert both.",
     FEW, (EQUAL, "mask[right].all()")),
    ("only counts",
     "Your test counts the allowed keys, but does not check which keys they are. A mask can have "
     "the right count in the wrong columns. Compare every entry.",
     FEW, (EQUAL, "mask.sum() == right.sum()")),
]  # fmt: skip

exercise = Exercise(
    "4.10", catches_wrong_mask, lambda: [()], MISTAKES,
    run=lambda test: run_against(test, *implementations()), also_right=[against_tril, row_by_row],
)  # fmt: skip
