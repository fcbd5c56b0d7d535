"""9.10: the positions of the tokens in a padded batch, from its attention mask."""

import torch

from course_utils.checks.exercise import Exercise


def positions_from_mask(attention_mask):
    counted = attention_mask.cumsum(dim=-1)  # (B, L), real tokens up to and including each one
    return (counted - 1).masked_fill(attention_mask == 0, 0)  # (B, L)


def by_loops(attention_mask):
    positions = torch.zeros(attention_mask.shape, dtype=torch.int64)
    for b, row in enumerate(attention_mask.tolist()):
        seen = 0
        for i, real in enumerate(row):
            if real:
                positions[b, i] = seen
                seen += 1
    return positions


def by_tokens_before(attention_mask):
    real = attention_mask.long()
    return (real.cumsum(-1) - real) * real


def inputs():
    def padded(L, *sizes, dtype=torch.int64):
        """Return a mask with a row for each (padding before, real tokens)."""
        rows = [[0] * left + [1] * n + [0] * (L - left - n) for left, n in sizes]
        return torch.tensor(rows, dtype=dtype)

    return [
        (padded(5, (3, 2), (1, 4), (0, 5)),),  # left padding, the longest prompt last
        (padded(7, (0, 7), (4, 3)),),
        (padded(6, (0, 2), (0, 6), (0, 5), (0, 1)),),  # right padding
        (padded(8, (2, 4), (3, 5), dtype=torch.bool),),  # both sides
        (padded(1, (0, 1)),),
        (padded(3, (2, 1), (1, 2), (2, 1)),),  # B = L
        (padded(5, (0, 4), (2, 3)).T.contiguous().T,),  # not contiguous
        (padded(3, (1, 2), (0, 2)),),  # equally many real tokens
        (padded(300, (10, 290), (0, 299), dtype=torch.uint8),),
        (padded(4, (2, 2), (4, 0), (1, 3)),),  # a row of padding only
    ]


COUNT, FILL = "attention_mask.cumsum(dim=-1)", ".masked_fill(attention_mask == 0, 0)"
NOT_BOOLEAN = (
    "Right for a Boolean mask. For a mask of 0 and 1, your code raises an error. `masked_fill` and "
    "`torch.where` take only Boolean masks, and `~` turns 0 and 1 into −1 and −2. Write "
    "`attention_mask == 0`, or `!= 0`."
)
LAST_BIT = (
    "only the last bit of each position is left, so 2, for example, becomes 0. If you use `&` with "
    "the mask, multiply by the mask instead."
)
ALL_PADDING = (
    "Right for left padding. You subtract all the padding of a row, even padding that comes after "
    "the token. "
)
ON_AND_ON = (
    "Your count carries over from one row to the next. Each row has its own positions, so count "
    "along each row, with `dim=-1`."
)
ONE_TOO_EARLY = (
    "You subtract 1 from the mask before you count, so your sums change only at padding. Subtract "
    "1 after `cumsum`, and set the position of padding to 0."
)


def filled_by_index(attention_mask):
    positions = attention_mask.cumsum(dim=-1) - 1
    positions[~attention_mask] = 0
    return positions


MISTAKES = [
    ("integers inverted", NOT_BOOLEAN, (FILL, ".masked_fill(~attention_mask, 0)")),
    ("condition of integers", NOT_BOOLEAN,
     (FILL, ""), ("return (counted - 1)", "return torch.where(attention_mask, counted - 1, 0)")),
    ("integers as an index",
     "Right for a Boolean mask, but not for a mask of 0 and 1. If you use `~` on integers, it "
     "turns 0 and 1 into −1 and −2. As an index, these numbers select whole rows, not padding. Use "
     "`attention_mask == 0`.",
     filled_by_index),
    ("last bit", f"In your result, {LAST_BIT}", (FILL, " & attention_mask")),
    ("last bit of a Boolean mask", f"Right, except for a Boolean mask. There, {LAST_BIT}",
     lambda mask: (mask.cumsum(dim=-1) - 1) & mask if mask.dtype == torch.bool
     else (mask.cumsum(dim=-1) - 1) * mask),
    ("counted from 1",
     "Your positions start at 1. `cumsum` counts the token itself, so subtract 1.",
     ("(counted - 1)", "counted")),
    ("only clamped",
     "Right for left padding. But padding after a text gets the position of the last real "
     "token. Set the position of all padding to 0.", (FILL, ".clamp(min=0)")),
    ("tokens before each one",
     "The positions of your real tokens are right, but padding gets the number of real tokens "
     "before it. Set the position of all padding to 0.",
     "attention_mask.cumsum(dim=-1) - attention_mask.long()"),
    ("padding not reset",
     "The positions of your real tokens are right, but padding is not at position 0. Position −1, "
     "for example, has no row in a table. Set the position of all padding to 0.", (FILL, "")),
    ("padding at -1",
     "The positions of your real tokens are right, but padding is at position −1. It must be at "
     "position 0.",
     (FILL, ".masked_fill(attention_mask == 0, -1)")),
    ("a row of padding",
     "Right, except for a row that is all padding. Set the position of its tokens to 0, too.",
     ("    return", "    none = (attention_mask != 0).sum(dim=-1, keepdim=True) == 0\n    return"),
     (FILL, FILL + ".masked_fill(none, -1)")),
    ("from 2, padding at 1",
     "Your first real token is at position 2, and padding is at 1, as in some libraries. Subtract "
     "1 from `cumsum`, and set the position of padding to 0.",
     ("(counted - 1)", "(counted + 1)"), (FILL, ".masked_fill(attention_mask == 0, 1)")),
    ("all one too large",
     "All your positions are too large by 1. Both padding and the first real token must be at "
     "position 0.",
     ("(counted - 1)", "counted"), (FILL, ".masked_fill(attention_mask == 0, 1)")),
    ("Boolean mask subtracted",
     "Right for masks of 0 and 1. PyTorch cannot subtract a Boolean mask, so convert it first, "
     "for example with `.long()`.",
     "(attention_mask.cumsum(dim=-1) - attention_mask) * attention_mask"),
    ("padding at 1",
     "The positions of your real tokens are right, but padding is at position 1, as in some "
     "libraries. It must be at position 0.",
     (FILL, ".masked_fill(attention_mask == 0, 1)")),
    ("padding counted",
     "Your positions are the column numbers, so they count the padding. Count only the real "
     "tokens of each row, and set the position of padding to 0.",
     "torch.arange(attention_mask.shape[1]).expand(attention_mask.shape)"),
    ("padding counted, then reset",
     "Your real tokens are at their column numbers, so padding is counted. Count only the real "
     "tokens of each row.",
     (COUNT, "torch.arange(1, attention_mask.shape[1] + 1).expand(attention_mask.shape)")),
    ("over the flattened batch", ON_AND_ON,
     (COUNT, "attention_mask.flatten().cumsum(dim=0).view(attention_mask.shape)")),
    ("over the flattened batch, not reset",
     f"{ON_AND_ON} Then set the position of padding to 0.",
     (COUNT, "attention_mask.flatten().cumsum(dim=0).view(attention_mask.shape)"), (FILL, "")),
    ("over the flattened batch, clamped",
     f"{ON_AND_ON} Then set the position of padding to 0.",
     (COUNT, "attention_mask.flatten().cumsum(dim=0).view(attention_mask.shape)"),
     (FILL, ".clamp(min=0)")),
    ("padding numbered",
     "Your mask is inverted. You number the padding, and set the positions of real tokens to 0. "
     "Count the real tokens, where the mask is 1, and set the position of padding to 0.",
     (COUNT, "(attention_mask == 0).cumsum(dim=-1)"), (FILL, FILL.replace("==", "!="))),
    ("padding counted for the tokens",
     "You count the padding up to each token. Count the real tokens, where the mask is 1.",
     (COUNT, "(attention_mask == 0).cumsum(dim=-1)")),
    ("real tokens reset",
     "You set the positions of the real tokens to 0, and keep those of padding. Do it the other "
     "way around.",
     (FILL, FILL.replace("==", "!="))),
    ("1 subtracted too early", ONE_TOO_EARLY, "(attention_mask - 1).cumsum(dim=-1)"),
    ("1 subtracted too early, from integers", ONE_TOO_EARLY,
     "(attention_mask.long() - 1).cumsum(dim=-1)"),
    ("rows of different lengths",
     "Where the rows have different numbers of real tokens, your code raises an error. Elsewhere, "
     "your result has no positions for padding. Return L positions for each row.",
     "torch.stack([torch.arange(int(row.sum())) for row in attention_mask])"),
    ("over the batch",
     "You count down the columns, from sequence to sequence. Count along each row, with "
     "`dim=-1`.",
     (COUNT, "attention_mask.cumsum(dim=0)")),
    ("over the batch, not reset",
     "You count down the columns, from sequence to sequence. Count along each row, with "
     "`dim=-1`, and set the position of padding to 0.",
     (COUNT, "attention_mask.cumsum(dim=0)"), (FILL, "")),
    ("all padding subtracted",
     ALL_PADDING + "Count only the real tokens before each token.",
     (COUNT, "torch.arange(1, attention_mask.shape[1] + 1) "
      "- (attention_mask == 0).sum(dim=-1, keepdim=True)")),
    ("all padding subtracted, only clamped",
     ALL_PADDING
     + "Count only the real tokens before each token, and set the position of padding to 0.",
     (COUNT, "torch.arange(1, attention_mask.shape[1] + 1) "
      "- (attention_mask == 0).sum(dim=-1, keepdim=True)"), (FILL, ".clamp(min=0)")),
    ("all padding subtracted, clamped and reset",
     ALL_PADDING + "Count only the real tokens before each token.",
     (COUNT, "torch.arange(1, attention_mask.shape[1] + 1) "
      "- (attention_mask == 0).sum(dim=-1, keepdim=True)"),
     (FILL, ".clamp(min=0)" + FILL)),
    ("all padding subtracted, not reset",
     "Your positions are the column numbers minus the number of all padding in the row. Count only "
     "the real tokens before each token, and set the position of padding to 0.",
     (COUNT, "torch.arange(1, attention_mask.shape[1] + 1) "
      "- (attention_mask == 0).sum(dim=-1, keepdim=True)"), (FILL, "")),
    ("column of the first padding subtracted",
     "Right for left padding. If padding comes after a text, your positions are too small. If you "
     "subtract `argmin`, the column of the first padding, leave this out. `cumsum` counts only "
     "real tokens, so subtract 1, and set the position of padding to 0.",
     (COUNT, COUNT + " - attention_mask.int().argmin(dim=-1, keepdim=True)"),
     (FILL, ".clamp(min=0)")),
    ("padding after a text counted",
     "The positions of your real tokens are right, but padding after a text gets the positions "
     "that follow. Set the position of all padding to 0.",
     (COUNT, "torch.arange(1, attention_mask.shape[1] + 1) "
      "- attention_mask.int().argmax(dim=-1, keepdim=True)"), (FILL, ".clamp(min=0)")),
    ("first row for all, padding too",
     "All your rows have the positions of the first one. Each sequence has its own padding, so "
     "count in each row.",
     "(attention_mask[:1].cumsum(dim=-1) - 1).masked_fill(attention_mask[:1] == 0, 0)"
     ".expand(attention_mask.shape)"),
    ("first row for all",
     "All your rows have the positions of the first one. Each sequence has its own padding, so "
     "count in each row.",
     (COUNT, "attention_mask[:1].cumsum(dim=-1).expand(attention_mask.shape)")),
    ("from the end",
     "Your positions count from the end of each text. Count from its start.",
     (COUNT, "attention_mask.flip(-1).cumsum(dim=-1).flip(-1)")),
    ("lengths",
     "Your result is the number of real tokens in each row. Return a position for each token.",
     "attention_mask.sum(dim=-1)"),
]  # fmt: skip

exercise = Exercise(
    "9.10", positions_from_mask, inputs, MISTAKES, names="B L",
    also_right=[by_loops, by_tokens_before],
)  # fmt: skip
