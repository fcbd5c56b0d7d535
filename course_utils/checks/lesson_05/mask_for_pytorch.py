"""5.12: a mask for each sequence is written as nn.MultiheadAttention expects it."""

import torch

from course_utils.checks.exercise import Exercise


def mask_for_pytorch(mask, num_heads):
    heads = mask.repeat_interleave(num_heads, dim=0)  # (B·H, L, S), sequence after sequence
    return ~heads  # True = may not attend


def by_expanding(mask, num_heads):
    heads = mask[:, None].expand(-1, num_heads, -1, -1)  # (B, H, L, S)
    return heads.logical_not().flatten(0, 1)


def by_loop(mask, num_heads):
    return torch.stack([~mask[b] for b in range(len(mask)) for _ in range(num_heads)])


def by_index(mask, num_heads):
    return ~mask[torch.arange(len(mask) * num_heads) // num_heads]


def inputs():
    """Return (mask (B, L, S), num_heads), masks of sequences that differ."""
    rng = torch.Generator().manual_seed(512)

    def probe(B, H, L, S):
        mask = torch.rand(B, L, S, generator=rng) < 0.5
        mask[..., 0] = True
        return mask, H

    real = torch.arange(5) < torch.tensor([5, 2, 3])[:, None]  # (B, S), right-padded
    return [
        probe(2, 3, 4, 5),
        (real[:, None].expand(-1, 4, -1), 2),
        probe(3, 2, 5, 4),
        probe(4, 2, 3, 3),
        probe(2, 2, 3, 6),
        probe(1, 3, 4, 2),
        probe(3, 1, 2, 4),
    ]


MISTAKES = [
    ("masks take turns",
     "Right for one sequence or one head. With several of both, the masks of your sequences take "
     "turns, so some heads get another sequence's mask. Repeat each sequence's mask num_heads "
     "times before the next one.",
     ("mask.repeat_interleave(num_heads, dim=0)", "mask.repeat(num_heads, 1, 1)")),
    ("masks take turns, not inverted",
     "There are two mistakes. Your mask is not inverted, although True means 'may not attend' in "
     "PyTorch's mask. And the masks of the sequences alternate, although PyTorch expects all "
     "heads of one sequence together. Invert the mask, and repeat each sequence's mask num_heads "
     "times before the next one.",
     ("mask.repeat_interleave(num_heads, dim=0)", "mask.repeat(num_heads, 1, 1)"),
     ("~heads", "heads")),
    ("mask not inverted",
     "The order is right, but your mask is not inverted. In PyTorch's mask, True means 'may not "
     "attend'. Invert the mask with ~.", ("~heads", "heads")),
    ("repeated along the queries",
     "Your masks are repeated along the queries, which are dimension 1. The result must have the "
     "shape (B·H, L, S), so repeat them along dimension 0.",
     ("dim=0", "dim=1")),
    ("queries repeated, then reshaped",
     "You get this result if you repeat each row of a mask num_heads times, and then reshape to "
     "(B·H, L, S). That mixes queries with heads. Repeat each sequence's whole mask num_heads "
     "times, along dimension 0.",
     ("mask.repeat_interleave(num_heads, dim=0)",
      "mask.repeat_interleave(num_heads, dim=1).reshape(-1, *mask.shape[1:])")),
    ("repeated along the keys",
     "Your masks are repeated along the keys, which are dimension 2. The result must have the "
     "shape (B·H, L, S), so repeat them along dimension 0.",
     ("dim=0", "dim=2")),
    ("heads in a dimension of their own",
     "Your result has a separate dimension for the heads. nn.MultiheadAttention expects three "
     "dimensions. Flatten (B, H, L, S) to (B·H, L, S).",
     ("mask.repeat_interleave(num_heads, dim=0)",
      "mask[:, None].expand(-1, num_heads, -1, -1)")),
    ("one dimension for all heads",
     "Your result has the shape (B, 1, L, S), which our own layer takes. nn.MultiheadAttention "
     "does not broadcast this mask. Return a mask of shape (B·H, L, S), with each sequence's mask "
     "repeated num_heads times before the next one.",
     ("mask.repeat_interleave(num_heads, dim=0)", "mask[:, None]")),
    ("masks not repeated",
     "Your result has one mask for each sequence. nn.MultiheadAttention expects one for each "
     "sequence and head. Return a mask of shape (B·H, L, S), with each sequence's mask repeated "
     "num_heads times before the next one.",
     ("mask.repeat_interleave(num_heads, dim=0)", "mask")),
    ("repeated as often as there are sequences",
     "Right only if there are as many sequences as heads. You repeat each mask B times. Repeat it "
     "num_heads times.",
     ("repeat_interleave(num_heads", "repeat_interleave(len(mask)")),
    ("repeated once too often",
     "You have num_heads + 1 masks for each sequence. Repeat each mask num_heads times in all.",
     ("repeat_interleave(num_heads", "repeat_interleave(num_heads + 1")),
    ("repeated once too few",
     "You have num_heads − 1 masks for each sequence. Repeat each mask num_heads times in all.",
     ("repeat_interleave(num_heads", "repeat_interleave(num_heads - 1")),
    ("keys of any sequence",
     "You give every sequence the same mask, which allows a key wherever the mask of any sequence "
     "allows it. Give each sequence its own mask.",
     ("mask.repeat_interleave",
      "mask.any(dim=0, keepdim=True).expand_as(mask).repeat_interleave")),
    ("keys of all sequences",
     "You give every sequence the same mask, which allows a key only where the masks of all "
     "sequences allow it. Give each sequence its own mask.",
     ("mask.repeat_interleave",
      "mask.all(dim=0, keepdim=True).expand_as(mask).repeat_interleave")),
    ("first mask for all",
     "You give every sequence the mask of the first one. Give each sequence its own mask.",
     ("mask.repeat_interleave", "mask[:1].expand_as(mask).repeat_interleave")),
]  # fmt: skip

exercise = Exercise(
    "5.12", mask_for_pytorch, inputs, MISTAKES, names="L S",
    also_right=[by_expanding, by_loop, by_index],
)  # fmt: skip
