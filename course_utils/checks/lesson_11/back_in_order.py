"""11.3: what zigzag ranks hold, put back in the order of the text."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.parallel import places


def back_in_order(parts):
    early, late = parts.chunk(2, dim=1)  # (W, n / 2, d) each
    pieces = torch.cat([early, late.flip(0)])  # (2W, n / 2, d)
    return pieces.flatten(0, 1)  # (N, d)


def by_places(parts):
    W, n, _ = parts.shape
    return parts.flatten(0, 1)[torch.cat(places(W * n, W, zigzag=True)).argsort()]


def by_loop(parts):
    W, n, _ = parts.shape
    pieces = [None] * (2 * W)
    for rank in range(W):
        pieces[rank], pieces[2 * W - 1 - rank] = parts[rank, : n // 2], parts[rank, n // 2 :]
    return torch.cat(pieces)


def inputs():
    normal = normals(113)
    sizes = [(2, 4, 3), (4, 2, 5), (3, 6, 2), (1, 4, 3), (5, 8, 1), (8, 2, 4)]
    made = [(normal(*size),) for size in sizes]
    return [*made, (normal(3, 4, 6, dtype=torch.float32).mT.contiguous().mT,)]


JOINED = "torch.cat([early, late.flip(0)])"
MISTAKES = [
    ("rank after rank", "the ranks are put one behind another; each holds an early piece and a "
     "late one, which do not belong together", "parts.flatten(0, 1)"),
    ("late ones not turned round",
     "the early half is right; the late pieces run backwards over the ranks: rank 0 has the last",
     ("late.flip(0)", "late")),
    ("early ones turned round", "the early pieces run forwards over the ranks, the late backwards",
     (JOINED, "torch.cat([early.flip(0), late])")),
    ("all turned round", "pieces run from the last to the first; the text begins on rank 0",
     (JOINED, "torch.cat([late, early.flip(0)])")),
    ("text backwards", "the whole text runs backwards, within the pieces too; it begins on rank 0",
     ("pieces.flatten(0, 1)", "pieces.flatten(0, 1).flip(0)")),
    ("early and late by turns", "each early piece is followed by a late one; all early ones stand "
     "before the late ones",
     (JOINED, "torch.stack([early, late.flip(0)], dim=1).flatten(0, 1)")),
    ("late ones first", "the late pieces come first; the text begins with the early ones",
     (JOINED, "torch.cat([late.flip(0), early])")),
    ("late ones first, not turned round",
     "the late pieces come first, and in the order of the ranks: rank 0 has the first and the last",
     (JOINED, "torch.cat([late, early])")),
    ("tokens turned round", "tokens within the late pieces run backwards; only the pieces do",
     ("late.flip(0)", "late.flip(0, 1)")),
    ("tokens, not pieces, turned round",
     "within each late piece tokens run backwards; it is the order of the pieces that does",
     ("late.flip(0)", "late.flip(1)")),
    ("even and odd tokens", "every second token is taken for early; the first half of a rank is",
     ("parts.chunk(2, dim=1)", "(parts[:, ::2], parts[:, 1::2])")),
    ("ranks cut, not tokens", "the ranks are cut in two halves; each rank's tokens are",
     "torch.cat([parts[: len(parts) // 2], parts[len(parts) // 2 :].flip(0)]).flatten(0, 1)"),
    ("places not turned round", "places say where each row belongs; as an index "
     "they must say where it is taken from: their argsort",
     ("    early", "    W, cut = len(parts), torch.arange(parts[..., 0].numel())\n"
      "    cut = cut.reshape(2 * W, -1)\n    early"),
     ("pieces.flatten(0, 1)", "parts.flatten(0, 1)[torch.cat([cut[:W], cut.flip(0)[:W]], "
      "dim=1).flatten()]")),
    ("ranks in turns", "first tokens of all ranks come first, then the second ones; a rank's half "
     "stays together", "parts.transpose(0, 1).flatten(0, 1)"),
    ("pieces not joined", "right order, but the pieces stand apart; join them: (N, d)",
     ("pieces.flatten(0, 1)", "pieces")),
    ("early and late in turns",
     "each early piece is followed by its rank's late one, in order of the ranks backwards",
     "parts.flip(0).flatten(0, 1)"),
]  # fmt: skip

exercise = Exercise(
    "11.3", back_in_order, inputs, MISTAKES, names="N d", differentiable=True,
    also_right=[by_places, by_loop],
)  # fmt: skip
