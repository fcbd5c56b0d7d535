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
        (padded(300, (10, 290), (0, 299), dtype=torch.uint8),),
        (padded(4, (2, 2), (4, 0), (1, 3)),),  # a row of padding only
    ]


COUNT, FILL = "attention_mask.cumsum(dim=-1)", ".masked_fill(attention_mask == 0, 0)"
MISTAKES = [
    ("counted from 1",
     "Your positions start at 1. `cumsum` counts the token itself, so subtract 1.",
     ("(counted - 1)", "counted")),
    ("only clamped",
     "Right for left padding. In your result, padding after a text gets the position of the last "
     "token. Set the position of all padding to 0.", (FILL, ".clamp(min=0)")),
    ("padding not reset",
     "Your real tokens are right, but padding is not at position 0. Position −1, for example, has"
     " no row in a table. Set the position of all padding to 0.", (FILL, "")),
    ("padding at -1",
     "Your real tokens are right, but padding is at position −1. It must be at position 0.",
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
     "Your positions are all one too large. Both padding and the first real token must be at "
     "position 0.",
     ("(counted - 1)", "counted"), (FILL, ".masked_fill(attention_mask == 0, 1)")),
    ("Boolean mask subtracted",
     "Right for masks of 0 and 1. PyTorch cannot subtract a Boolean mask, so convert it first, "
     "for example with `.long()`.",
     "(attention_mask.cumsum(dim=-1) - attention_mask) * attention_mask"),
    ("padding at 1",
     "Your real tokens are right, but padding is at position 1, as in some libraries. It must be "
     "at position 0.",
     (FILL, ".masked_fill(attention_mask == 0, 1)")),
    ("padding counted",
     "Your positions are the column numbers, so they count the padding. Count only the real "
     "tokens of each row, and set the position of padding to 0.",
     "torch.arange(attention_mask.shape[1]).expand(attention_mask.shape)"),
    ("padding counted, then reset",
     "Your real tokens are at their column numbers, so padding is counted. Count only the real "
     "tokens of each row.",
     (COUNT, "torch.arange(1, attention_mask.shape[1] + 1).expand(attention_mask.shape)")),
    ("over the batch",
     "You count down the columns, from sequence to sequence. Count along each row, with `dim=-1`.",
     (COUNT, "attention_mask.cumsum(dim=0)")),
    ("over the batch, not reset",
     "You count down the columns, from sequence to sequence. Count along each row, with `dim=-1`,"
     " and set the position of padding to 0.", (COUNT, "attention_mask.cumsum(dim=0)"), (FILL, "")),
    ("all padding subtracted",
     "Right for left padding. Padding after a text makes your positions too small. Count only the"
     " real tokens before each one.",
     (COUNT, "torch.arange(1, attention_mask.shape[1] + 1) "
      "- (attention_mask == 0).sum(dim=-1, keepdim=True)")),
    ("all padding subtracted, only clamped",
     "Right for left padding. Padding after a text makes your positions too small. Count only the "
     "real tokens before each one, and set the position of padding to 0.",
     (COUNT, "torch.arange(1, attention_mask.shape[1] + 1) "
      "- (attention_mask == 0).sum(dim=-1, keepdim=True)"), (FILL, ".clamp(min=0)")),
    ("padding after a text counted",
     "Your real tokens are right, but padding after a text gets the positions that follow. Set "
     "the position of all padding to 0.",
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
