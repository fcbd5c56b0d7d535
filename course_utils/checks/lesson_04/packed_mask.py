"""4.5: the mask (..., L, L) of documents packed into one row, each causal by itself."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_04._masks import other_kinds


def packed_mask(ids):
    L = ids.shape[-1]
    same = ids[..., :, None] == ids[..., None, :]  # (..., L, 1) == (..., 1, L) -> (..., L, L)
    causal = torch.ones(L, L, dtype=torch.bool).tril()  # (L, L)
    return same & causal


def by_loops(ids):
    L = ids.shape[-1]
    rows = ids.reshape(-1, L).tolist()
    made = [[[j <= i and row[i] == row[j] for j in range(L)] for i in range(L)] for row in rows]
    return torch.tensor(made).reshape(*ids.shape, L)


def inputs():
    returning = torch.tensor([5, 5, 3, 3, 3, 5, 5])  # ids fall, and one returns
    rows = torch.tensor([[0, 0, 1, 1, 1], [2, 2, 2, 2, 7], [1, 3, 3, 3, 3]])
    many = torch.tensor([0] * 12 + [1] * 10 + [9] * 9 + [-1] * 9 + [10**6] * 10)
    return [
        (torch.tensor([0, 0, 0, 1, 1, 2]),),
        (returning,),
        (rows,),
        (rows[:, None],),  # (3, 1, 5)
        (rows.T,),  # not contiguous, and more rows than tokens
        (torch.stack([rows[:, :3], rows[:, 2:]]).int(),),  # as many rows as tokens
        (returning[None],),
        (torch.tensor([4]),),
        (many,),
    ]


MISTAKES = [
    *other_kinds(packed_mask),
    ("future allowed",
     "documents are kept apart, but within one a token sees the future: & causal",
     ("same & causal", "same")),
    ("documents ignored", "that is causal alone: tokens see the documents before their own",
     ("same & causal", "causal.expand_as(same)")),
    ("joined by or", "joined by |, one of the two suffices; both must hold: &",
     ("same & causal", "same | causal")),
    ("smaller numbers allowed",
     "earlier documents are open where their number is smaller: the numbers are names, compare by "
     "==", ("None] == ids", "None] >= ids")),
    ("neighbours compared",
     "only neighbours are compared: a document goes on when its number returns later in the row",
     ("same =", "runs = (ids.diff(dim=-1) != 0).cumsum(dim=-1)\n"
      "    ids = torch.nn.functional.pad(runs, (1, 0))\n    same =")),
    ("one key too far", "one key too far: within a document a token sees the next one, tril()",
     ("tril()", "tril(1)")),
    ("other documents", "that opens the documents before a token's own and hides its own: ==",
     ("None] == ids", "None] != ids")),
    ("itself hidden", "a token must see itself too: the diagonal is allowed",
     ("tril()", "tril(-1)")),
    ("only the future",
     "within a document a token sees itself and what comes after it; the past is the *lower* "
     "triangle, tril()", ("tril()", "triu()")),
    ("first row for all",
     "all rows of the batch share one mask, made from the first; each row has documents of its own",
     ("return same", "return same.reshape(-1, L, L)[:1].reshape(L, L).expand_as(same)")),
    ("leading dimensions forgotten, with tril",
     "right for one row of ids; with leading dimensions [:, None] pairs the rows of the batch: use "
     "[..., :, None] and [..., None, :]",
     ("[..., :, None]", "[:, None]"), ("[..., None, :]", "[None, :]"),
     ("same & causal", "same.tril()")),
    ("leading dimensions forgotten",
     "right for one row of ids; with leading dimensions [:, None] pairs the rows of the batch: use "
     "[..., :, None] and [..., None, :], and L = ids.shape[-1]",
     ("ids.shape[-1]", "len(ids)"), ("[..., :, None]", "[:, None]"),
     ("[..., None, :]", "[None, :]")),
    ("rows of the batch paired",
     "right for one row of ids; with leading dimensions [:, None] pairs the rows of the batch: use "
     "[..., :, None] and [..., None, :]",
     ("[..., :, None]", "[:, None]"), ("[..., None, :]", "[None, :]")),
]  # fmt: skip

exercise = Exercise(
    "4.5", packed_mask, inputs, MISTAKES, names="L L",
    also_right=[by_loops, lambda ids: (ids.unsqueeze(-1) - ids.unsqueeze(-2) == 0).tril()],
)  # fmt: skip
