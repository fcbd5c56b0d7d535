"""9.4: reorder weights trained with neighbors as pairs for code that pairs halves."""

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
     "Your order is the inverse of the right one: it goes from halves to interleaved. In each "
     "head, rows 0, 2, 4, … must become the first half, and rows 1, 3, 5, … the second.",
     ("(num_heads, -1, 2)", "(num_heads, 2, -1)")),
    ("across heads",
     "Your order mixes the rows of different heads. Within each head, put rows 0, 2, 4, … before "
     "rows 1, 3, 5, ….",
     "torch.cat([W[::2], W[1::2]])"),
    ("columns",
     "You reorder the columns of W. Each row of W gives one entry of a query, so reorder the "
     "rows.",
     "torch.cat([W.unflatten(1, (num_heads, -1))[..., ::2], "
     "W.unflatten(1, (num_heads, -1))[..., 1::2]], -1).flatten(1) "
     "if W.shape[1] % (2 * num_heads) == 0 else W.flip(1)"),
    ("halves of the heads",
     "You put the first halves of all heads before the second halves. Keep the rows of each head "
     "together. Within each head, put rows 0, 2, 4, … before rows 1, 3, 5, ….",
     "W.unflatten(0, (num_heads, 2, -1)).transpose(0, 1).flatten(0, 2)"),
    ("a head's halves swapped",
     "You swap the two halves of each head. Instead, put rows 0, 2, 4, … before rows 1, 3, 5, … "
     "within each head.",
     "W.unflatten(0, (num_heads, 2, -1)).flip(1).flatten(0, 2)"),
    ("rows counted by columns",
     "Right only for a square W. Your d_k is the number of columns divided by num_heads. Use d_k "
     "= len(W) // num_heads.",
     "torch.cat([part for rows in W.split(W.shape[1] // num_heads) "
     "for part in (rows[::2], rows[1::2])])"),
    ("not at all",
     "Your result is W itself. Reorder the rows of each head.",
     "W"),
    ("only the first head",
     "Only the first head is reordered. Reorder the other heads in the same way.",
     "torch.cat([W[: len(W) // num_heads : 2], W[1 : len(W) // num_heads : 2], "
     "W[len(W) // num_heads :]])"),
    ("odd entries first",
     "The two halves of each head are swapped. Within each head, put rows 0, 2, 4, … before rows "
     "1, 3, 5, ….",
     ("heads.transpose(1, 2)", "heads.flip(2).transpose(1, 2)")),
    ("odd entries first, across heads",
     "Your order mixes the rows of different heads, and puts the odd rows first. Within each "
     "head, put rows 0, 2, 4, … before rows 1, 3, 5, ….",
     "torch.cat([W[1::2], W[::2]])"),
    ("heads reversed",
     "Each head is right, but the heads are in reverse order. Keep the order of the heads.",
     ("heads.transpose", "heads.flip(0).transpose")),
    ("second half backwards",
     "The second half of each head is in reverse order. It must be rows 1, 3, 5, ….",
     "torch.cat([part for rows in W.chunk(num_heads) "
     "for part in (rows[::2], rows[1::2].flip(0))])"),
    ("backwards",
     "Within each half of a head, your rows are in reverse order. Counted from the head's first "
     "row, the first half must be rows 0, 2, 4, …, and the second half rows 1, 3, 5, ….",
     ("heads.transpose(1, 2)", "heads.flip(1).transpose(1, 2)")),
    ("width and number swapped",
     "You split W into parts of num_heads rows. But num_heads is the number of heads. Split W "
     "into num_heads parts of len(W) // num_heads rows each.",
     "torch.cat([part for rows in W.split(num_heads) for part in (rows[::2], rows[1::2])])"),
    ("number taken for the width",
     "You split W into parts of num_heads rows. But num_heads is the number of heads. Split W "
     "into num_heads parts of len(W) // num_heads rows each.",
     "W.unflatten(0, (-1, num_heads // 2, 2)).transpose(1, 2).flatten(0, 2)"),
    ("heads not joined",
     "Your rows are right, but the heads are in a separate dimension. Return shape (H · d_k, "
     "d_model).",
     ("flatten(0, 2)", "flatten(1, 2)")),
    ("transposed",
     "Your numbers are right, but your result is transposed. Return shape (H · d_k, d_model).",
     ("flatten(0, 2)", "flatten(0, 2).T")),
    ("pairs swapped",
     "You swap the two rows of each pair. Instead, put rows 0, 2, 4, … before rows 1, 3, 5, … "
     "within each head.",
     "W.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)"),
    ("all columns",
     "You reorder the columns of W. Each row of W gives one entry of a query, so reorder the "
     "rows.",
     "torch.cat([W[:, ::2], W[:, 1::2]], dim=1)"),
    ("the other way across heads",
     "You interleave the two halves of W. Do the reverse, within each head: put rows 0, 2, 4, … "
     "before rows 1, 3, 5, ….",
     "torch.stack(W.chunk(2), dim=1).flatten(0, 1)"),
    ("first head's rows for all",
     "All your heads have the rows of the first head. Head h must be made of its own rows, h · d_k "
     "to (h + 1) · d_k − 1, reordered.",
     ("heads.transpose", "heads[:1].expand_as(heads).transpose")),
    ("heads dealt out",
     "You take one row from each head in turn. Keep the rows of each head together. Within each "
     "head, put rows 0, 2, 4, … before rows 1, 3, 5, ….",
     "W.unflatten(0, (num_heads, -1)).transpose(0, 1).flatten(0, 1)"),
    ("half missing",
     "Half of the rows are missing. In each head, put rows 1, 3, 5, … after rows 0, 2, 4, ….",
     ("heads.transpose(1, 2)", "heads[:, :, :1].transpose(1, 2)")),
    ("order alone",
     "Your result holds the row numbers, in the right order. Return the rows of W in this order.",
     "torch.arange(len(W)).unflatten(0, (num_heads, -1, 2)).transpose(1, 2).flatten()"),
]  # fmt: skip

exercise = Exercise(
    "9.4", interleaved_to_halves, inputs, MISTAKES, names="d_out d_model",
    also_right=[by_index, by_matrix],
)  # fmt: skip
