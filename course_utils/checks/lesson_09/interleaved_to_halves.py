"""9.4: weights for neighbours as pairs, put in order for code that pairs halves."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def interleaved_to_halves(W, num_heads):
    heads = W.unflatten(0, (num_heads, -1, 2))  # (H, d_k / 2, 2, d_model)
    return heads.transpose(1, 2).flatten(0, 2)  # (H · d_k, d_model)


def by_index(W, num_heads):
    d_k = len(W) // num_heads
    order = [h * d_k + i for h in range(num_heads) for i in [*range(0, d_k, 2), *range(1, d_k, 2)]]
    return W[order]


def by_matrix(W, num_heads):
    d_k = len(W) // num_heads
    one = torch.zeros(d_k, d_k, dtype=W.dtype)
    for i in range(d_k // 2):
        one[i, 2 * i] = one[i + d_k // 2, 2 * i + 1] = 1
    return torch.block_diag(*[one] * num_heads) @ W


def inputs():
    normal = normals(94)
    sizes = [(1, 6, 6), (3, 6, 18), (2, 8, 5), (4, 4, 7), (3, 2, 6), (1, 12, 12), (2, 6, 12)]
    made = [(normal(H * d_k, d_model), H) for H, d_k, d_model in sizes]
    return [*made, (normal(12, 12, dtype=torch.float32).T, 2)]  # not contiguous


MISTAKES = [
    ("the other way",
     "that takes halves to neighbours; wanted is the other direction: entries 0, 2, 4, … of a head "
     "become its first half",
     ("(num_heads, -1, 2)", "(num_heads, 2, -1)")),
    ("across heads",
     "the order is made over all rows; each head has pairs of its own, d_k rows long",
     "torch.cat([W[::2], W[1::2]])"),
    ("columns", "the columns are put in order; what W gives out are its rows",
     "torch.cat([W.unflatten(1, (num_heads, -1))[..., ::2], "
     "W.unflatten(1, (num_heads, -1))[..., 1::2]], -1).flatten(1) "
     "if W.shape[1] % (2 * num_heads) == 0 else W.flip(1)"),
    ("halves of the heads",
     "whole halves of the heads change places and no pair is taken apart: a head's rows are "
     "d_k / 2 pairs of 2, and those two dimensions are swapped",
     "W.unflatten(0, (num_heads, 2, -1)).transpose(0, 1).flatten(0, 2)"),
    ("a head's halves swapped",
     "a head's two halves change places and no pair is taken apart: its rows 0, 2, 4, … become the "
     "first half", "W.unflatten(0, (num_heads, 2, -1)).flip(1).flatten(0, 2)"),
    ("rows counted by columns",
     "right for a square W only: a head's rows are counted by the columns of W; d_k is "
     "len(W) // num_heads",
     "torch.cat([part for rows in W.split(W.shape[1] // num_heads) "
     "for part in (rows[::2], rows[1::2])])"),
    ("not at all", "W comes back as it was", "W"),
    ("only the first head", "only the first head is put in order; all have pairs",
     "torch.cat([W[: len(W) // num_heads : 2], W[1 : len(W) // num_heads : 2], "
     "W[len(W) // num_heads :]])"),
    ("odd entries first",
     "each head's halves have changed places: entries 0, 2, 4, … become the first",
     ("heads.transpose(1, 2)", "heads.flip(2).transpose(1, 2)")),
    ("odd entries first, across heads",
     "the order is made over all rows, and its halves have changed places: within each head "
     "entries 0, 2, 4, … come first", "torch.cat([W[1::2], W[::2]])"),
    ("heads reversed", "each head is right, but the last comes first: keep the order of the heads",
     ("heads.transpose", "heads.flip(0).transpose")),
    ("second half backwards", "the second half of each head runs backwards: it is 1, 3, 5, …",
     "torch.cat([part for rows in W.chunk(num_heads) "
     "for part in (rows[::2], rows[1::2].flip(0))])"),
    ("backwards", "a head's halves are right but run backwards: keep the order of the pairs",
     ("heads.transpose(1, 2)", "heads.flip(1).transpose(1, 2)")),
    ("width and number swapped", "num_heads is taken for the width of a head",
     "torch.cat([part for rows in W.split(num_heads) for part in (rows[::2], rows[1::2])])"),
    ("number taken for the width",
     "num_heads is taken for the width of a head: there are num_heads of them, len(W) // num_heads "
     "rows each", "W.unflatten(0, (-1, num_heads // 2, 2)).transpose(1, 2).flatten(0, 2)"),
    ("heads not joined", "right rows, but the heads stand apart; join them: (H · d_k, d_model)",
     ("flatten(0, 2)", "flatten(1, 2)")),
    ("transposed", "right rows, but W comes back transposed",
     ("flatten(0, 2)", "flatten(0, 2).T")),
    ("pairs swapped", "the two rows of each pair change places; each pair is to be taken apart",
     "W.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)"),
    ("all columns", "the columns are put in order; what W gives out are its rows",
     "torch.cat([W[:, ::2], W[:, 1::2]], dim=1)"),
    ("the other way across heads",
     "that takes the halves of all rows to neighbours; take neighbours to halves, within each head",
     "torch.stack(W.chunk(2), dim=1).flatten(0, 1)"),
    ("first head's rows for all", "all heads have the first head's rows; head h begins at h · d_k",
     ("heads.transpose", "heads[:1].expand_as(heads).transpose")),
    ("heads dealt out", "the rows of the heads come in turns: a head keeps its d_k rows together",
     "W.unflatten(0, (num_heads, -1)).transpose(0, 1).flatten(0, 1)"),
    ("half missing", "half of the rows are missing: a head's odd ones come after its even ones",
     ("heads.transpose(1, 2)", "heads[:, :, :1].transpose(1, 2)")),
    ("order alone", "those are the numbers of the rows; return W with its rows in that order",
     "torch.arange(len(W)).unflatten(0, (num_heads, -1, 2)).transpose(1, 2).flatten()"),
]  # fmt: skip

exercise = Exercise(
    "9.4", interleaved_to_halves, inputs, MISTAKES, names="d_out d_model",
    also_right=[by_index, by_matrix],
)  # fmt: skip
