"""4.4: the prefix mask (B, 1, L, L), with a prefix length for each sequence."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_04._masks import other_kinds


def prefix_mask(L, prefix):
    i, j = torch.arange(L)[:, None], torch.arange(L)  # queries (L, 1), keys (L,)
    causal = j <= i  # (L, L)
    in_prefix = j < prefix[:, None, None, None]  # (L,) < (B, 1, 1, 1) -> (B, 1, 1, L)
    return causal | in_prefix  # (L, L) | (B, 1, 1, L) -> (B, 1, L, L)


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
     "Your function works only with a single prefix, as in the lesson. Here `prefix` holds a "
     "length for each sequence. Give `prefix` the shape (B, 1, 1, 1) before you compare it with "
     "the keys.", one_for_all),
    ("prefixes as queries",
     "Your prefix lengths are aligned with the queries, as happens if `prefix` has the shape (B, "
     "1). Give it the shape (B, 1, 1, 1) before you compare it with the keys.",
     lambda L, prefix: one_for_all(L, prefix[:, None])),
    *other_kinds(prefix_mask),
    ("no dimension for heads",
     "The entries are right, but the shape is (B, L, L). Against scores (B, H, L, L), B would be "
     "aligned with H. Give the mask the shape (B, 1, L, L).",
     ("[:, None, None, None]", "[:, None, None]")),
    ("the longest prefix for all",
     "Your mask gives every sequence the longest prefix. Use each sequence's own prefix.",
     ("prefix[:, None, None, None]", "prefix.max().expand(len(prefix), 1, 1, 1)")),
    ("the first prefix for all",
     "Your mask gives every sequence the prefix of the first one. Use each sequence's own prefix.",
     ("prefix[:, None, None, None]", "prefix[:1].expand(len(prefix))[:, None, None, None]")),
    ("the shortest prefix for all",
     "Your mask gives every sequence the shortest prefix. Use each sequence's own prefix.",
     ("prefix[:, None, None, None]", "prefix.min().expand(len(prefix), 1, 1, 1)")),
    ("prefixes added up",
     "Your mask gives each sequence the sum of its own prefix and those before it, as cumsum does. "
     "Use each sequence's own prefix.",
     ("prefix[:, None, None, None]", "prefix.cumsum(0)[:, None, None, None]")),
    ("prefix at the end",
     "Your mask opens the *last* keys to every query, as many as the prefix is long. The prefix "
     "consists of the first keys. Allow the keys j < prefix.",
     ("j < prefix[:, None, None, None]", "j >= L - prefix[:, None, None, None]")),
    ("joined by exclusive or",
     "Your mask forbids a key that both the causal mask and the prefix allow, as happens with ^. "
     "One of the two is enough. Join them with |.", ("causal |", "causal ^")),
    ("rest sees everything",
     "In your mask, the tokens after the prefix see their future, but the prefix is only causal. "
     "It must be the other way around. Allow the keys j <= i or j < prefix.",
     ("causal | in_prefix", "causal | ((i >= prefix[:, None, None, None]) & ~in_prefix)")),
    ("only causal",
     "Your mask is the causal mask. Let every query also see the whole prefix, the keys j < "
     "prefix.",
     ("j < prefix[:, None, None, None]", "j < 0 * prefix[:, None, None, None]")),
    ("triu in place of tril",
     "The causal part of your mask allows the future. Allow the past, j <= i, as tril does.",
     ("j <= i", "j >= i")),
    ("only the prefix",
     "In your mask, all tokens see the prefix and nothing else. Add the causal part with |.",
     ("causal | in_prefix", "in_prefix.expand(-1, -1, L, -1)")),
    ("only the prefix, one row for all queries",
     "Your mask has shape (B, 1, 1, L), and it lets every token see the prefix and nothing else. "
     "Add the causal part (L, L) with |, which also gives the mask its shape (B, 1, L, L).",
     ("causal | in_prefix", "in_prefix")),
    ("prefix sees everything",
     "In your mask, the tokens of the prefix see everything, even what comes after the prefix. "
     "The prefix is a block of *keys*, not of queries. Allow the keys j < prefix instead of the "
     "queries i < prefix.",
     ("in_prefix = j <", "in_prefix = i <")),
    ("prefix hidden after the prefix",
     "In your mask, tokens after the prefix do not see the prefix. Let every query see all of it.",
     ("causal | in_prefix", "torch.where(i < prefix[:, None, None, None], in_prefix, "
      "causal & ~in_prefix)")),
    ("prefix too long",
     "Your prefix has one token too many. A prefix of length 2 holds the keys 0 and 1. Allow the "
     "keys j < prefix.",
     ("j < prefix", "j <= prefix")),
    ("prefix too short",
     "Your prefix has one token too few. A prefix of length 2 holds the keys 0 and 1. Allow the "
     "keys j < prefix.",
     ("j < prefix", "j < -1 + prefix")),
    ("joined by and",
     "Your mask allows only what the causal mask and the prefix both allow. One of them is "
     "enough. Join them with |.",
     ("causal |", "causal &")),
    ("diagonal moved",
     "In your mask, each query also sees the next `prefix` keys, as if the prefix length were "
     "added to i. But the prefix consists of the first keys of the sequence. Allow a key if j "
     "<= i or j < prefix.",
     ("causal | in_prefix", "j <= i + prefix[:, None, None, None]")),
    ("itself forbidden",
     "In your mask, a token after the prefix does not see itself. Allow the diagonal of the "
     "causal part.",
     ("j <= i", "j < i")),
]  # fmt: skip

exercise = Exercise(
    "4.4", prefix_mask, inputs, MISTAKES, names="B 1 L L", also_right=[by_where, by_maximum]
)
