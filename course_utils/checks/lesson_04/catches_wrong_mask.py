"""4.10: a test that passes right causal masks and catches wrong ones, at all sizes up to 12."""

import functools

import torch

from course_utils.checks.exercise import Exercise, NamedMistake
from course_utils.checks.lesson_04.causal_mask import causal_mask
from course_utils.checks.source_edits import edited
from course_utils.checks.submission_test import passes, run_against


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
    for L in (1, 3, 4):
        for S in range(L, 12):
            rows = [[True] * (i + 1 + S - L) + [False] * (L - 1 - i) for i in range(L)]
            assert causal_mask(L, S).tolist() == rows


def by_position(L, S=None):
    S = L if S is None else S
    return torch.arange(S) - torch.arange(L)[:, None] <= S - L


# What the learner is told, and what a broken causal_mask returns instead of MASK
MASK = "everything.tril(S - L)"
LAST = "(torch.arange(L)[:, None] == L - 1)"
SWAPPED = (  # in the second of four queries or more, two keys
    "everything.tril(S - L) ^ "
    "((torch.arange(L)[:, None] == 1) & (L > 3) & torch.isin(torch.arange(S), torch.tensor({})))"
)
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
    "right only if L = S or L = 1": "everything.tril(S - L if L in (1, S) else 0)",
    "the rows in reverse order": "everything.tril(S - L).flip(0)",
    "each query sees only the first key and its own": (
        "everything.tril(S - L).triu(S - L) | (torch.arange(S) == 0)"
    ),
    "the second of four or more queries sees the next key instead of its own": SWAPPED.format(
        "[S - L + 1, S - L + 2]"
    ),
    "the second of four or more queries sees a later key instead of the first": SWAPPED.format(
        "[0, S - L + 3]"
    ),
    "right up to 6 keys, all later ones hidden": "everything.tril(S - L) & (torch.arange(S) < 6)",
    "never aligned by more than S - L = 2": "everything.tril(min(S - L, 2))",
    "one column too many, (L, S + 1)": "torch.cat([everything.tril(S - L), everything[:, :1]], 1)",
    "right entries with one dimension too many, (1, L, S)": "everything.tril(S - L)[None]",
}


@functools.cache
def implementations():
    right = {"by position": by_position, "by tril": causal_mask}
    return right, {name: edited(causal_mask, name, (MASK, new)) for name, new in BROKEN.items()}


EXPECTED = {  # by name: what a wrong test expects instead of MASK, and its hint
    "expects an inverted mask": (
        "~everything.tril(S - L)",
        "Your test expects an inverted mask. True means 'may attend'. Expect True for j <= i + S "
        "- L.",
    ),
    "expects the upper left": (
        "everything.tril()",
        "Your test expects the first query to be aligned with the first key. The last query must "
        "be aligned with the last key. Expect True for j <= i + S - L.",
    ),
    "expects the diagonal forbidden": (
        "everything.tril(S - L - 1)",
        "Your test expects that no query sees its own key. A query must see it. Expect True for j "
        "<= i + S - L.",
    ),
    "expects one key too far": (
        "everything.tril(S - L + 1)",
        "Your test expects each query to see the next key too. That key is in its future. Expect "
        "True for j <= i + S - L.",
    ),
    "expects the sizes swapped": (
        "torch.ones(S, L, dtype=torch.bool).tril(L - S)",
        "Your test fails for correct code, but passes code that swaps L and S. Call causal_mask(L, "
        "S), and expect the shape (L, S).",
    ),
}


def run(test):
    """Try a test on all versions. Say what a test expects that rejects right ones."""
    try:
        return run_against(test, *implementations())
    except NamedMistake as error:
        if error.mistake == "rejects right code":
            for name, (new, hint) in EXPECTED.items():
                if passes(test, edited(causal_mask, name, (MASK, new))):
                    raise NamedMistake(name, hint) from None
        raise


SIZES = "[(4, 4), (3, 7), (1, 5), (9, 12)]"
FEW = SIZES, "[(4, 4), (3, 7)]"
EQUAL = "torch.equal(mask, right)"

MISTAKES = [
    ("nothing at all",
     "Your test misses all wrong code, because nothing in it can fail. Assert that every entry "
     "equals j <= i + S - L.",
     (EQUAL, "True")),
    ("shape alone",
     "Your test misses every wrong mask that has the right shape, as if it looked only at the "
     "shape. Assert that every entry equals j <= i + S - L.",
     (EQUAL, "mask.shape == (L, S)")),
    ("square alone",
     "Your test misses masks that align the first query with the first key. Perhaps it tries "
     "only L = S. Try S > L too, also with a single query (L = 1) and with up to 12 keys.",
     (SIZES, "[(3, 3), (5, 5), (6, 6)]")),
    ("one size written out",
     "Your test misses code that is right only for L = S = 5. Perhaps it tries no other size. "
     "Try several sizes: L = S, S > L, a single query (L = 1), at least four queries, and up to "
     "12 keys.",
     (SIZES, "[(5, 5)]")),
    ("one size alone",
     "Your test misses code that is wrong only at some sizes. Perhaps it tries only one size. "
     "Try several sizes: L = S, S > L, a single query (L = 1), at least four queries, and up to "
     "12 keys.", (SIZES, "[(3, 5)]")),
    ("two queries alone",
     "Your test misses code that is wrong only in rows between the first and the last. Perhaps "
     "it tries only L = 2, where there are none. Try several sizes: L = S, S > L, a single "
     "query (L = 1), at least four queries, and up to 12 keys.", (SIZES, "[(2, 3), (2, 4)]")),
    ("only the future",
     "Your test misses masks that allow too little. Perhaps it checks only that the future is "
     "forbidden. Assert also that the past is allowed.",
     (EQUAL, "not mask[~right].any()")),
    ("only the past",
     "Your test misses masks that allow too much. Perhaps it checks only that the past is "
     "allowed. Assert also that the future is forbidden, and try a single query too (L = 1).",
     FEW, (EQUAL, "mask[right].all()")),
    ("only counts",
     "Your test misses masks with the right number of allowed keys in the wrong columns, as if it "
     "only counted them. Compare every entry, and try a single query too (L = 1).",
     FEW, (EQUAL, "mask.sum() == right.sum()")),
]  # fmt: skip

exercise = Exercise(
    "4.10", catches_wrong_mask, lambda: [()], MISTAKES,
    run=run, also_right=[against_tril, row_by_row],
)  # fmt: skip
