"""11.3: the outputs of zigzag ranks, put back in the order of the text."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.parallel import shard_positions


def back_in_order(parts):
    early, late = parts.chunk(2, dim=1)  # (W, n / 2, d) each
    chunks = torch.cat([early, late.flip(0)])  # (2W, n / 2, d)
    return chunks.flatten(0, 1)  # (N, d)


def by_positions(parts):
    W, n, _ = parts.shape
    return parts.flatten(0, 1)[torch.cat(shard_positions(W * n, W, zigzag=True)).argsort()]


def by_loop(parts):
    W, n, _ = parts.shape
    chunks = [None] * (2 * W)
    for rank in range(W):
        chunks[rank], chunks[2 * W - 1 - rank] = parts[rank, : n // 2], parts[rank, n // 2 :]
    return torch.cat(chunks)


def inputs():
    normal = normals(113)
    sizes = [(2, 4, 3), (4, 2, 5), (3, 6, 2), (1, 4, 3), (5, 8, 1), (8, 2, 4)]
    made = [(normal(*size),) for size in sizes]
    return [*made, (normal(3, 4, 6, dtype=torch.float32).mT.contiguous().mT,)]


JOINED = "torch.cat([early, late.flip(0)])"
ROLLED = (
    "Your late chunks are in the order of the ranks, rolled by one. Rank 0 holds the last of the "
    "late chunks, and the last rank the first. Reverse their order."
)
MISTAKES = [
    ("rank after rank",
     "You put the ranks one after another. Each rank holds an early chunk and a late one, with "
     "other ranks' chunks between them (except on the last rank). Put all early chunks first, "
     "and then the late ones in reverse order.",
     "parts.flatten(0, 1)"),
    ("late chunks not reversed",
     "Your early half is right. But rank 0 holds the last of the late chunks, and the last rank "
     "holds the first. Reverse the order of the late chunks.",
     ("late.flip(0)", "late")),
    ("late chunks one too far",
     "Your late chunks are all one chunk too late, as if rank r held chunk 2W − r (modulo 2W). "
     "Rank 0 holds the last chunk, number 2W − 1, so rank r holds chunk 2W − 1 − r.",
     (JOINED, "torch.cat([late[:1], early[1:], torch.zeros_like(late[:1]), late.flip(0)[:-1]])")),
    ("late chunks rolled", ROLLED, ("late.flip(0)", "late.roll(1, 0)")),
    ("late chunks rolled back", ROLLED, ("late.flip(0)", "late.roll(-1, 0)")),
    ("both reversed",
     "Your early chunks are also in the reverse order of the ranks. Rank 0 holds the first of the "
     "early chunks, so reverse only the late chunks.",
     (JOINED, "torch.cat([early.flip(0), late.flip(0)])")),
    ("split after W tokens",
     "You split each rank's tokens after the first W. Split them in the middle, after n / 2.",
     "torch.cat([*parts[:, : len(parts)], *parts[:, len(parts) :].flip(0)])"),
    ("early chunks reversed",
     "Your early chunks are in the reverse order of the ranks, but your late ones are not. Rank 0 "
     "holds the first and the last chunk. Reverse the late chunks instead of the early ones.",
     (JOINED, "torch.cat([early.flip(0), late])")),
    ("all chunks reversed",
     "Your chunks run from the last to the first. Put the early chunks first, in the order of "
     "the ranks, and then the late ones in reverse order.",
     (JOINED, "torch.cat([late, early.flip(0)])")),
    ("text reversed",
     "Your whole text is reversed, even within the chunks. Return it from the first token to "
     "the last.",
     ("chunks.flatten(0, 1)", "chunks.flatten(0, 1).flip(0)")),
    ("early and late in turn",
     "Your result has an early chunk, then a late one, and so on. Put all early chunks before "
     "the late ones.",
     (JOINED, "torch.stack([early, late.flip(0)], dim=1).flatten(0, 1)")),
    ("late chunks first",
     "Your late chunks come first. The text starts with the early chunks, so put these first.",
     (JOINED, "torch.cat([late.flip(0), early])")),
    ("late chunks first, not reversed",
     "Your late chunks come first, and in the order of the ranks. Put the early chunks first, "
     "and reverse the order of the late ones.",
     (JOINED, "torch.cat([late, early])")),
    ("tokens reversed too",
     "The tokens within your late chunks are reversed. Reverse only the order of the late "
     "chunks.",
     ("late.flip(0)", "late.flip(0, 1)")),
    ("tokens reversed instead",
     "Your late chunks are in the order of the ranks, and their tokens are reversed. Reverse "
     "the order of the late chunks, not the tokens within them.",
     ("late.flip(0)", "late.flip(1)")),
    ("even and odd tokens",
     "You split each rank's tokens into even and odd ones. Split them in the middle: the first "
     "half is the early chunk, and the second half is the late one.",
     ("parts.chunk(2, dim=1)", "(parts[:, ::2], parts[:, 1::2])")),
    ("ranks split, not tokens",
     "You split the ranks into two halves. Split each rank's tokens into two halves, along "
     "dimension 1.",
     "torch.cat([parts[: len(parts) // 2], parts[len(parts) // 2 :].flip(0)]).flatten(0, 1)"),
    ("positions not inverted",
     "You get this result if you index with the positions of the rows in the text, which say where "
     "each row belongs. An index must say which row to take, so use `argsort` of the positions.",
     ("    early", "    W, cut = len(parts), torch.arange(parts[..., 0].numel())\n"
      "    cut = cut.reshape(2 * W, -1)\n    early"),
     ("chunks.flatten(0, 1)", "parts.flatten(0, 1)[torch.cat([cut[:W], cut.flip(0)[:W]], "
      "dim=1).flatten()]")),
    ("ranks in turn",
     "Your result has the first token of each rank, then the second of each rank, and so on. "
     "The tokens of a chunk stay together, so put whole chunks one after another.",
     "parts.transpose(0, 1).flatten(0, 1)"),
    ("chunks not joined",
     "Your order is right, but the chunks are still separate. Join them to shape (N, d).",
     ("chunks.flatten(0, 1)", "chunks")),
    ("early and late in turn, from the last rank",
     "You put the ranks one after another, from the last to the first. Put all early chunks first, "
     "and then the late ones in reverse order.",
     "parts.flip(0).flatten(0, 1)"),
]  # fmt: skip

exercise = Exercise(
    "11.3", back_in_order, inputs, MISTAKES, names="N d", differentiable=True,
    also_right=[by_positions, by_loop],
)  # fmt: skip
