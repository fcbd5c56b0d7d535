"""4.5: the mask (..., L, L) of packed documents, each with its own causal mask."""

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
    many = torch.tensor([0] * 12 + [1] * 10 + [9] * 9 + [-1] * 9 + [1000] * 10)
    return [
        (torch.tensor([0, 0, 0, 1, 1, 2]),),
        (returning,),
        (rows,),
        (rows[:, None],),  # (3, 1, 5)
        (rows.T,),  # not contiguous, and more rows than tokens
        (torch.stack([rows[:, :3], rows[:, 2:]]).int(),),  # as many rows as tokens
        (returning[None],),
        (torch.tensor([4]),),
        (torch.tensor([2, 2, 0, 0, 1, 1]),),
        (torch.tensor([10**5, 10**5, 10**5 + 1]),),
        (many,),
        (torch.tensor([2**40, 2**40, 2**40 + 1]),),  # the same in float32
        (torch.tensor([1, 1, 2**40 + 1]),),  # the same in 32 bits
        (torch.tensor([2**62, 2**62, 2**62 + 1]),),  # the same in float64
        (torch.tensor([7, 2**8 + 7, 7]),),  # the same in 8 bits
        (torch.tensor([7, 2**16 + 7, 7]),),  # the same in 16 bits
        (torch.tensor([10**6, 70_000, 10**6]),),  # the same in float16, where both are inf
        (torch.tensor([-3, -3, 3]),),
    ]


def blocks_of_sorted_ids(ids):
    L, masks = ids.shape[-1], []
    for row in ids.reshape(-1, L):
        counts = torch.unique(row, return_counts=True)[1].tolist()
        masks.append(torch.block_diag(*[torch.ones(n, n).tril() for n in counts]) > 0)
    return torch.stack(masks).reshape(*ids.shape, L)


ONE_HOT = (
    "Right for some ids, but for others your code stops with an error. one_hot, for example, "
    "accepts only int64 ids of 0 or more. It makes a column for every number up to the largest "
    "id, which can be far too many. Here, ids can be any integers. Compare all pairs of ids "
    "with ==."
)
MISTAKES = [
    *other_kinds(packed_mask),
    ("future allowed",
     "Your mask keeps the documents apart, but inside a document a token sees the future. Combine "
     "it with the causal mask, using &.",
     ("same & causal", "same")),
    ("documents ignored",
     "Your mask is the causal mask, so tokens see the documents before their own. Forbid other "
     "documents.",
     ("same & causal", "causal.expand_as(same)")),
    ("joined by or",
     "Your mask allows a key even if only one of the two conditions holds. The key must belong to "
     "the same document, and it must not be in the future. Join the two conditions with &.",
     ("same & causal", "same | causal")),
    ("smaller numbers allowed",
     "Your mask allows earlier documents with a smaller id. The ids are only names. Compare them "
     "with ==.", ("None] == ids", "None] >= ids")),
    ("larger numbers allowed",
     "Your mask allows earlier documents with a larger id. The ids are only names. Compare them "
     "with ==.", ("None] == ids", "None] <= ids")),
    ("ids that differ by 1",
     "Your mask treats ids that differ by 1 as the same document. Only equal ids name the same "
     "document. Compare them with ==.",
     ("ids[..., :, None] == ids[..., None, :]",
      "(ids[..., :, None] - ids[..., None, :]).abs() <= 1")),
    ("only the previous token",
     "In your mask, a token sees only itself and the token before it, if both belong to the same "
     "document. Allow all earlier tokens of the document. Compare all pairs of tokens.",
     ("tril()", "tril().triu(-1)")),
    ("first token seen by all",
     "In your mask, every token sees the first token of the row, even from another document. "
     "Allow only tokens of the same document.",
     ("return same", "same = same | (torch.arange(L) == 0)\n    return same")),
    ("blocks in the order of the ids",
     "Right if the ids in a row never decrease. You get this result if you build one block for "
     "each count from torch.unique, which sorts the ids. A document may also return later in the "
     "row. Compare all pairs of ids with ==.",
     blocks_of_sorted_ids),
    ("neighbors compared",
     "Your mask starts a new document whenever the id changes. But a document goes on if its id "
     "returns later in the row. Compare all pairs of tokens.",
     ("same =", "runs = (ids.diff(dim=-1) != 0).cumsum(dim=-1)\n"
      "    ids = torch.nn.functional.pad(runs, (1, 0))\n    same =")),
    ("negative ids left out",
     "In your mask, tokens of a document with a negative id see nothing, not even themselves. Ids "
     "can be any integers. Compare all pairs of ids with ==.",
     ("return same", "same = same & (ids >= 0)[..., :, None]\n    return same")),
    ("ids rounded to float32",
     "Right, except for large ids. You get this result if you turn the ids into float32, which "
     "rounds different integers above 2^24 to the same number. Compare the ids as they are.",
     ("    same =", "    ids = ids.float()\n    same =")),
    ("ids rounded to float64",
     "Right, except for very large ids. You get this result if you turn the ids into float64, "
     "which rounds different integers above 2^53 to the same number. Compare the ids as they are.",
     ("    same =", "    ids = ids.double()\n    same =")),
    ("ids rounded to float16",
     "Right, except for large ids. You get this result if you turn the ids into float16, where "
     "every id above 65504 becomes inf. Compare the ids as they are.",
     ("    same =", "    ids = ids.half()\n    same =")),
    *[(f"ids in {bits} bits",
       f"Right, except for some ids that are far apart. You get this result if you turn the ids "
       f"into int{bits}. Then ids that differ by a multiple of 2^{bits} become the same. Compare "
       "the ids as they are.",
       ("    same =", f"    ids = ids.to(torch.int{bits})\n    same =")) for bits in (8, 16, 32)],
    ("one-hot ids", ONE_HOT,
     ("    same =", "    ids = torch.nn.functional.one_hot(ids).float()\n    same ="),
     ("ids[..., :, None] == ids[..., None, :]", "ids @ ids.mT > 0")),
    ("one-hot ids, from the smallest", ONE_HOT,
     ("    same =", "    ids = torch.nn.functional.one_hot(ids - ids.min()).float()\n    same ="),
     ("ids[..., :, None] == ids[..., None, :]", "ids @ ids.mT > 0")),
    ("almost the same id",
     "Your mask treats large ids that are close to each other as the same, as torch.isclose does. "
     "Ids are the same only if they are equal. Compare them with ==.",
     ("ids[..., :, None] == ids[..., None, :]",
      "torch.isclose(ids[..., :, None].float(), ids[..., None, :].float())")),
    ("id without its sign",
     "Your mask treats an id and its negative, such as 3 and −3, as the same document. Compare the "
     "ids with their signs.",
     ("ids[..., :, None] == ids[..., None, :]", "ids[..., :, None].abs() == ids[..., None, :].abs()"
      )),
    ("negative ids taken for 0",
     "Right, except for negative ids. You get this result if you set all of them to 0, as "
     "clamp(min=0) does. Then their documents and document 0 become one. Compare the ids as they "
     "are.",
     ("    same =", "    ids = ids.clamp(min=0)\n    same =")),
    ("0 taken for padding",
     "In your mask, no token sees the document with id 0, as if its tokens were padding. But 0 "
     "is an id like any other. Compare all pairs of ids with ==.",
     ("return same", "same = same & (ids != 0)[..., None, :]\n    return same")),
    ("ids taken for sorted",
     "Right if the ids in a row never decrease. You get this result if you search for the first "
     "token of each document as in a sorted row. Compare all pairs of ids with ==.",
     ("    return same & causal", "    start = torch.searchsorted(ids.contiguous(), "
      "ids.contiguous())\n    return (torch.arange(L) >= start[..., None]) & causal")),
    ("document 0 seen by all",
     "In your mask, other documents see the document with id 0. This happens, for example, if "
     "you multiply ids, or treat 0 as special. Compare the ids with ==.",
     ("return same", "same = same | (ids == 0)[..., None, :]\n    return same")),
    ("document 0 sees all",
     "In your mask, the document with id 0 sees other documents. This happens, for example, if "
     "you multiply ids, or treat 0 as special. Compare the ids with ==.",
     ("return same", "same = same | (ids == 0)[..., :, None]\n    return same")),
    ("one key too far",
     "Your mask allows one key too many. Within a document, a token also sees the next token. Use "
     "tril() without an offset.",
     ("tril()", "tril(1)")),
    ("other documents",
     "Your mask allows other documents and hides the token's own. Compare the ids with ==.",
     ("None] == ids", "None] != ids")),
    ("itself hidden",
     "In your mask, no token sees itself. Allow the diagonal, as tril() without an offset does.",
     ("tril()", "tril(-1)")),
    ("only the future",
     "In your mask, a token sees itself and later tokens of its document. The past is the *lower* "
     "triangle. Use tril().", ("tril()", "triu()")),
    ("first row for all",
     "You use the documents of the first row for the whole batch. Use each row's own ids.",
     ("return same", "return same.reshape(-1, L, L)[:1].reshape(L, L).expand_as(same)")),
    ("leading dimensions forgotten, with tril",
     "Right for a single row of ids. With leading dimensions, you compare rows of the batch with "
     "each other, not the tokens of one row. Use ids[..., :, None] and ids[..., None, :].",
     ("[..., :, None]", "[:, None]"), ("[..., None, :]", "[None, :]"),
     ("same & causal", "same.tril()")),
    ("leading dimensions forgotten",
     "Right for a single row of ids. With leading dimensions, you compare rows of the batch with "
     "each other, not the tokens of one row. Use ids[..., :, None], ids[..., None, :] and L = "
     "ids.shape[-1].",
     ("ids.shape[-1]", "len(ids)"), ("[..., :, None]", "[:, None]"),
     ("[..., None, :]", "[None, :]")),
    ("rows of the batch paired",
     "Right for a single row of ids. With leading dimensions, you compare rows of the batch with "
     "each other, not the tokens of one row. Use ids[..., :, None] and ids[..., None, :].",
     ("[..., :, None]", "[:, None]"), ("[..., None, :]", "[None, :]")),
]  # fmt: skip

exercise = Exercise(
    "4.5", packed_mask, inputs, MISTAKES, names="L L",
    also_right=[by_loops, lambda ids: (ids.unsqueeze(-1) - ids.unsqueeze(-2) == 0).tril()],
)  # fmt: skip
