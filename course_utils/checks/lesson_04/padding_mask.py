"""4.2: the padding mask (B, 1, 1, S) of left-padded sequences."""

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


def rolled(lengths, S, of):
    """Return the mask of right padding, with all rows moved to the right by the same number."""
    mask = torch.arange(S) < lengths[:, None]
    return mask.roll(S - int(of(lengths)), -1)[:, None, None]


ONE_ROLL = (
    "Your mask is right only for the {} sequences. You get this result if you shift the masks of "
    "all sequences by the same number. Shift each sequence's mask by its own number of padding "
    "tokens, S − length."
)
MISTAKES = [
    ("padding at the end",
     "Your mask is for right padding, as in the lesson. Here the padding is on the left. Allow "
     "the *last* keys of each sequence, as many as the sequence has real tokens.",
     ("positions >= S - lengths",
     "positions < lengths")),
    *other_kinds(padding_mask),
    ("counted from the wrong side",
     "Your mask forbids as many keys as the sequence has real tokens. Forbid the first S − length "
     "keys, which are padding.", ("S - lengths", "lengths")),
    ("two dimensions",
     "The entries are right, but the shape is (B, S). Against scores (B, H, L, S), B would be "
     "aligned with L. Give the mask the shape (B, 1, 1, S).", ("[:, None, None, :]", "")),
    ("three dimensions",
     "The entries are right, but one dimension is missing. Against scores (B, H, L, S), B would "
     "be aligned with H. Give the mask the shape (B, 1, 1, S).",
     ("[:, None, None, :]", "[:, None]")),
    ("one token too many",
     "Your mask allows one key too many. The first real token is at position S − length. Forbid "
     "all positions before it.", (">= S - lengths", ">= S - 1 - lengths")),
    ("one token too few",
     "Your mask allows one key too few. The first real token is at position S − length. Allow "
     "this position too, with >=.", (">= S", "> S")),
    ("the longest length for S",
     "Your mask forbids max(lengths) − length keys. But the sequences are padded to S, which may "
     "be more than the longest length. Forbid S − length keys.",
     ("S - lengths[:, None]", "lengths.max() - lengths[:, None]")),
    ("the first length for all",
     "You use the first sequence's length for all sequences. Use each sequence's own length.",
     ("lengths[:, None]", "lengths[:1].expand(len(lengths))[:, None]")),
    ("causal as well",
     "Your mask also hides later keys, so its shape is (B, 1, S, S). A padding mask is only "
     "about padding. Hide only the padding, and return (B, 1, 1, S).",
     ("[:, None, None, :]", "[:, None, None, :] & torch.ones(S, S, dtype=torch.bool).tril()")),
    ("slice from the end",
     "Right, except for length 0, where everything is allowed. If you slice with [-n:] for a "
     "length n, then [-0:] is the whole row. Start the slice at S − n.",
     slice_from_the_end),
    ("as wide as the longest",
     "Your mask is only as wide as the longest sequence. But the sequences are padded to S, which "
     "may be larger. Make the mask S keys wide.",
     ("positions = ", "S = int(lengths.max()); positions = ")),
    ("flipped over the batch",
     "Your masks are in reverse order, so sequences get each other's masks. If you use flip, do "
     "not flip dimension 0, which is the batch.",
     ("[:, None, None, :]", "[:, None, None, :].flip(0)")),
    ("right padding, flipped over the batch",
     "Your mask is for right padding, and the sequences are in reverse order. If you use flip, "
     "do not flip `lengths` or dimension 0 of the mask, which is the batch. Flip the last "
     "dimension of the mask, which holds the keys.",
     ("positions >= S - lengths", "positions < lengths.flip(0)")),
    ("all shifted as the shortest", ONE_ROLL.format("shortest"),
     lambda lengths, S: rolled(lengths, S, torch.min)),
    ("all shifted as the longest", ONE_ROLL.format("longest"),
     lambda lengths, S: rolled(lengths, S, torch.max)),
    ("sequences and keys swapped",
     "Your mask has shape (S, 1, 1, B), with keys first and sequences last. Give lengths the shape "
     "(B, 1) before you compare, so that the mask gets the shape (B, 1, 1, S).",
     lambda lengths, S: (torch.arange(S)[:, None] >= S - lengths)[:, None, None]),
    ("only the first token",
     "Your mask allows only the first real token of each sequence. Allow all keys from position S "
     "− length on, with >=.", (">= S - lengths", "== S - lengths")),
    ("queries masked too",
     "Your mask also hides every key from queries at padding positions, so its shape is (B, 1, S, "
     "S). Then these queries have no allowed key. Mask only the keys.",
     ("return allowed", "return allowed[:, None, :, None] & allowed")),
    ("padding of queries",
     "Your mask has shape (B, 1, S, 1), so it masks queries. Keys are the last dimension of the "
     "scores. Give the mask the shape (B, 1, 1, S).",
     ("[:, None, None, :]", "[:, None, :, None]")),
]  # fmt: skip

exercise = Exercise(
    "4.2", padding_mask, inputs, MISTAKES, names="B 1 1 S",
    also_right=[by_rows,
                lambda lengths, S: (torch.arange(S) < lengths[:, None])[:, None, None].flip(-1)],
)  # fmt: skip
