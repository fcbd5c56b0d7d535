"""4.2: the padding mask (B, 1, 1, S) of sequences that begin after their padding."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_04._masks import other_kinds


def padding_mask(lengths, S):
    positions = torch.arange(S)  # (S,)
    allowed = positions >= S - lengths[:, None]  # (S,) >= (B, 1) -> (B, S)
    return allowed[:, None, None, :]  # (B, 1, 1, S), to broadcast against (B, H, L, S)


def by_rows(lengths, S):
    rows = [[False] * (S - n) + [True] * n for n in lengths.tolist()]
    return torch.tensor(rows, dtype=torch.bool).view(len(lengths), 1, 1, S)


def inputs():
    lengths = [([3, 5], 6), ([4, 0, 7, 2], 7), ([2], 3), ([1, 3, 2], 3), ([1], 1), ([0, 0], 2)]
    longer = torch.tensor([12, 9, 0, 40, 10, 1])
    return [
        *((torch.tensor(each), S) for each, S in lengths),
        (longer, 50),
        (longer[::2], 13),  # not contiguous
        (torch.tensor([2, 4], dtype=torch.int32), 5),
    ]


def slice_from_the_end(lengths, S):
    mask = torch.zeros(len(lengths), 1, 1, S, dtype=torch.bool)
    for row, n in zip(mask, lengths.tolist(), strict=True):
        row[..., -n:] = True
    return mask


MISTAKES = [
    ("padding at the end",
     "that is the lesson's mask, for padding at the end; here it stands at the start: of S keys "
     "the *last* ones are real, as many as the length says", ("positions >= S - lengths",
     "positions < lengths")),
    *other_kinds(padding_mask),
    ("counted from the wrong side",
     "it forbids as many keys at the start as the sequence is *long*; forbid as many as are "
     "missing, S − length", ("S - lengths", "lengths")),
    ("two dimensions",
     "right entries as (B, S), but against scores (B, H, L, S) B would meet L: make it "
     "(B, 1, 1, S)", ("[:, None, None, :]", "")),
    ("three dimensions",
     "one dimension is missing: (B, 1, S) would meet (B, H, L, S) with B at the heads",
     ("[:, None, None, :]", "[:, None]")),
    ("one token too many",
     "one token too many: of S keys with a length of 3 the last three are allowed, S − 3, S − 2 "
     "and S − 1", (">= S - lengths", ">= S - 1 - lengths")),
    ("one token too few",
     "one token too few: positions count from 0, so the first real token stands at S − length "
     "itself: >=", (">= S", "> S")),
    ("the longest length for S",
     "it forbids max(lengths) − length keys at the start; the sequences were filled up to S, which "
     "may be more than the longest: S − length",
     ("S - lengths[:, None]", "lengths.max() - lengths[:, None]")),
    ("the first length for all", "every sequence has the first one's length; each has its own",
     ("lengths[:, None]", "lengths[:1].expand(len(lengths))[:, None]")),
    ("causal as well",
     "what comes after a query is hidden as well, (B, 1, S, S): this mask hides the padding alone",
     ("[:, None, None, :]", "[:, None, None, :] & torch.ones(S, S, dtype=torch.bool).tril()")),
    ("slice from the end",
     "right but for a length of 0: [-0:] is [0:], which is everything; begin the slice at S − n",
     slice_from_the_end),
    ("as wide as the longest", "it is as wide as the longest sequence; S keys are asked",
     ("positions = ", "S = int(lengths.max()); positions = ")),
    ("flipped over the batch",
     "flip(0) turns the batch round, not the keys: each sequence has another one's length",
     ("[:, None, None, :]", "[:, None, None, :].flip(0)")),
    ("queries masked too",
     "the padding is forbidden as a query too, (B, 1, S, S); mask keys only: a query that is "
     "padding may compute what nobody reads, and without keys its row would be empty",
     ("return allowed", "return allowed[:, None, :, None] & allowed")),
    ("padding of queries",
     "the mask lies at the queries, (B, 1, S, 1): keys are the last dimension of the scores",
     ("[:, None, None, :]", "[:, None, :, None]")),
]  # fmt: skip

exercise = Exercise(
    "4.2", padding_mask, inputs, MISTAKES, names="B 1 1 S",
    also_right=[by_rows,
                lambda lengths, S: (torch.arange(S) < lengths[:, None])[:, None, None].flip(-1)],
)  # fmt: skip
