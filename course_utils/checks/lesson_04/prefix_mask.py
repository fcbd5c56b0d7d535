"""4.4: the prefix mask (B, 1, L, L) of sequences that each have a prefix of their own."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_04._masks import other_kinds


def prefix_mask(L, prefix):
    i, j = torch.arange(L)[:, None], torch.arange(L)  # queries (L, 1), keys (L,)
    causal = j <= i  # (L, L)
    opened = j < prefix[:, None, None, None]  # (L,) < (B, 1, 1, 1) -> (B, 1, 1, L)
    return causal | opened  # (L, L) | (B, 1, 1, L) -> (B, 1, L, L)


def by_where(L, prefix):
    i, j = torch.arange(L)[:, None], torch.arange(L)[None]
    return torch.where(j < prefix.view(-1, 1, 1, 1), True, j <= i)


def by_maximum(L, prefix):
    limit = torch.maximum(torch.arange(L), prefix[:, None] - 1)  # (B, L)
    return (torch.arange(L) <= limit[..., None]).unsqueeze(1)


def inputs():
    prefixes = [(6, [2, 0, 4]), (5, [0]), (4, [4, 1, 3, 0]), (7, [3, 6]), (3, [5, 2, 1]), (1, [0])]
    return [
        *((L, torch.tensor(each)) for L, each in prefixes),
        (12, torch.tensor([9, 1, 12, 0, 5])),
        (50, torch.tensor([10, 30, 2, 44])[::2]),  # not contiguous
        (2, torch.tensor([1, 2, 0], dtype=torch.int32)),
    ]


def one_for_all(L, prefix):
    return (torch.ones(L, L).tril() > 0) | (torch.arange(L) < prefix)


MISTAKES = [
    ("one prefix for all sequences",
     "that is the lesson's mask, of one prefix: here `prefix` holds one for each sequence, and "
     "keys (L,) against (B,) do not fit, or where B = L meet wrongly; give prefix the dimensions "
     "(B, 1, 1, 1)", one_for_all),
    ("prefixes as queries",
     "prefix[:, None] makes (B, L), and against (L, L) that does not fit, or takes sequences for "
     "queries; give prefix the dimensions (B, 1, 1, 1)",
     lambda L, prefix: one_for_all(L, prefix[:, None])),
    *other_kinds(prefix_mask),
    ("no place for heads",
     "right entries as (B, L, L): against scores (B, H, L, L) B would meet the heads; make it "
     "(B, 1, L, L)", ("[:, None, None, None]", "[:, None, None]")),
    ("the longest prefix for all", "every sequence has the longest prefix; each has its own",
     ("prefix[:, None, None, None]", "prefix.max().expand(len(prefix), 1, 1, 1)")),
    ("the first prefix for all", "every sequence has the first one's prefix; each has its own",
     ("prefix[:, None, None, None]", "prefix[:1].expand(len(prefix))[:, None, None, None]")),
    ("only causal", "that is the causal mask: tokens of the prefix must see all of the prefix",
     ("j < prefix[:, None, None, None]", "j < 0 * prefix[:, None, None, None]")),
    ("triu in place of tril",
     "the causal part is turned around, as from triu: it opens what lies ahead; tril opens what "
     "lies behind, j <= i", ("j <= i", "j >= i")),
    ("only the prefix", "the tokens after the prefix see it and nothing else: add the causal part "
     "by |", ("causal | opened", "opened.expand(-1, -1, L, -1)")),
    ("prefix sees everything",
     "queries and keys are swapped: tokens of the prefix see everything, also what comes after it",
     ("opened = j <", "opened = i <")),
    ("prefix too long", "one token too many is open: a prefix of 2 is the keys 0 and 1",
     ("j < prefix", "j <= prefix")),
    ("prefix too short", "one token too few is open: a prefix of 2 is the keys 0 and 1",
     ("j < prefix", "j < -1 + prefix")),
    ("joined by and", "joined by &, causal and prefix allow only what both allow: use |",
     ("causal |", "causal &")),
    ("diagonal moved",
     "a prefix moves the diagonal there, so that every query sees `prefix` keys ahead; the prefix "
     "is a block of columns", ("causal | opened", "j <= i + prefix[:, None, None, None]")),
    ("itself forbidden",
     "a token after the prefix must see itself too: in the causal part the diagonal is allowed",
     ("j <= i", "j < i")),
]  # fmt: skip

exercise = Exercise(
    "4.4", prefix_mask, inputs, MISTAKES, names="B 1 L L", also_right=[by_where, by_maximum]
)
