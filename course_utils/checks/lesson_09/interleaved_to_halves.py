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
     "Your order takes halves to neighbors. Go in the other direction: entries 0, 2, 4, … of a "
     "head must become its first half.",
     ("(num_heads, -1, 2)", "(num_heads, 2, -1)")),
    ("across heads",
     "Your order mixes all rows of W. Reorder each head on its own, d_k rows at a time.",
     "torch.cat([W[::2], W[1::2]])"),
    ("columns",
     "You reorder the columns of W. Queries are x @ W.T, so each row of W gives one entry. "
     "Reorder the rows.",
     "torch.cat([W.unflatten(1, (num_heads, -1))[..., ::2], "
     "W.unflatten(1, (num_heads, -1))[..., 1::2]], -1).flatten(1) "
     "if W.shape[1] % (2 * num_heads) == 0 else W.flip(1)"),
    ("halves of the heads",
     "You move whole halves of heads, so the pairs stay together. A head has d_k / 2 pairs of 2 "
     "rows. Swap these two dimensions.",
     "W.unflatten(0, (num_heads, 2, -1)).transpose(0, 1).flatten(0, 2)"),
    ("a head's halves swapped",
     "You swap the two halves of each head, so the pairs stay together. Put rows 0, 2, 4, … of "
     "each head into its first half.",
     "W.unflatten(0, (num_heads, 2, -1)).flip(1).flatten(0, 2)"),
    ("rows counted by columns",
     "Right only for a square W. You take the number of rows from the columns of W. Use d_k = "
     "len(W) // num_heads.",
     "torch.cat([part for rows in W.split(W.shape[1] // num_heads) "
     "for part in (rows[::2], rows[1::2])])"),
    ("not at all",
     "Your result is W itself. Reorder its rows.",
     "W"),
    ("only the first head",
     "Only the first head is reordered. Every head has pairs, so reorder all of them.",
     "torch.cat([W[: len(W) // num_heads : 2], W[1 : len(W) // num_heads : 2], "
     "W[len(W) // num_heads :]])"),
    ("odd entries first",
     "The two halves of each head are swapped. Entries 0, 2, 4, … must come first.",
     ("heads.transpose(1, 2)", "heads.flip(2).transpose(1, 2)")),
    ("odd entries first, across heads",
     "Your order mixes all rows of W, and its halves are swapped. Within each head, put entries "
     "0, 2, 4, … first.",
     "torch.cat([W[1::2], W[::2]])"),
    ("heads reversed",
     "Each head is right, but the heads are in reverse order. Keep the order of the heads.",
     ("heads.transpose", "heads.flip(0).transpose")),
    ("second half backwards",
     "The second half of each head is in reverse order. It must be 1, 3, 5, ….",
     "torch.cat([part for rows in W.chunk(num_heads) "
     "for part in (rows[::2], rows[1::2].flip(0))])"),
    ("backwards",
     "Both halves are right, but in reverse order. Keep the order of the pairs.",
     ("heads.transpose(1, 2)", "heads.flip(1).transpose(1, 2)")),
    ("width and number swapped",
     "You take num_heads for the width of a head. There are num_heads heads, each with len(W) // "
     "num_heads rows.",
     "torch.cat([part for rows in W.split(num_heads) for part in (rows[::2], rows[1::2])])"),
    ("number taken for the width",
     "You take num_heads for the width of a head. There are num_heads heads, each with len(W) // "
     "num_heads rows.",
     "W.unflatten(0, (-1, num_heads // 2, 2)).transpose(1, 2).flatten(0, 2)"),
    ("heads not joined",
     "Your rows are right, but the heads are still a separate dimension. Return shape (H · d_k, "
     "d_model).",
     ("flatten(0, 2)", "flatten(1, 2)")),
    ("transposed",
     "Your rows are right, but W is transposed. Return shape (H · d_k, d_model).",
     ("flatten(0, 2)", "flatten(0, 2).T")),
    ("pairs swapped",
     "You swap the two rows of each pair. Instead, move the first row of every pair to the first "
     "half, and the second row to the second half.",
     "W.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)"),
    ("all columns",
     "You reorder the columns of W. Queries are x @ W.T, so each row of W gives one entry. "
     "Reorder the rows.",
     "torch.cat([W[:, ::2], W[:, 1::2]], dim=1)"),
    ("the other way across heads",
     "Your order takes the halves of all rows to neighbors. Take neighbors to halves, within "
     "each head.",
     "torch.stack(W.chunk(2), dim=1).flatten(0, 1)"),
    ("first head's rows for all",
     "All your heads have the rows of the first one. Head h starts at row h · d_k.",
     ("heads.transpose", "heads[:1].expand_as(heads).transpose")),
    ("heads dealt out",
     "Your result alternates between the heads. Keep the d_k rows of each head together.",
     "W.unflatten(0, (num_heads, -1)).transpose(0, 1).flatten(0, 1)"),
    ("half missing",
     "Half of the rows are missing. The odd rows of each head come after its even rows.",
     ("heads.transpose(1, 2)", "heads[:, :, :1].transpose(1, 2)")),
    ("order alone",
     "Your result holds the numbers of the rows. Return W with its rows in this order.",
     "torch.arange(len(W)).unflatten(0, (num_heads, -1, 2)).transpose(1, 2).flatten()"),
]  # fmt: skip

exercise = Exercise(
    "9.4", interleaved_to_halves, inputs, MISTAKES, names="d_out d_model",
    also_right=[by_index, by_matrix],
)  # fmt: skip
