"""9.11: rotary on the first entries of each head, in a left-padded batch."""

import torch

from course_utils.attention import rotary
from course_utils.checks.exercise import Exercise, call_with_clones
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_09._rounded import rounded


def partial_rotary(x, attention_mask, width):
    positions = (attention_mask.cumsum(dim=-1) - 1)[:, None]  # (B, 1, L)
    rotated = rotary(x[..., :width], positions)  # (B, H, L, width)
    return torch.cat([rotated, x[..., width:]], dim=-1)  # (B, H, L, d_k)


def row_by_row(x, attention_mask, width):
    outputs = []
    for row, mask in zip(x, attention_mask, strict=True):  # (H, L, d_k), (L,)
        row = row.clone()
        row[..., :width] = rotary(row[..., :width], (mask.cumsum(-1) - 1).clamp(min=0))
        outputs.append(row)
    return torch.stack(outputs)


def by_complex_numbers(x, attention_mask, width):
    positions = attention_mask.cumsum(-1) - 1
    inv_freq = 10000.0 ** (-torch.arange(0, width, 2) / width)
    angles = positions[:, None, :, None] * inv_freq.to(x.dtype)
    z = torch.complex(x[..., : width // 2].contiguous(), x[..., width // 2 : width].contiguous())
    z = z * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([z.real, z.imag, x[..., width:]], dim=-1)


def inputs():
    normal = normals(911)

    def batch(*lengths, H, L, d_k, width, dtype=torch.float64):
        mask = torch.tensor([[0] * (L - n) + [1] * n for n in lengths])  # (B, L), left padding
        return normal(len(lengths), H, L, d_k, dtype=dtype), mask, width

    x, mask, width = batch(3, 6, H=2, L=6, d_k=8, width=4)
    return [
        batch(2, 5, H=3, L=5, d_k=16, width=4),
        batch(1, 4, 3, H=3, L=4, d_k=8, width=6),  # B = H
        batch(4, 7, 2, H=2, L=7, d_k=12, width=4, dtype=torch.float32),
        batch(6, H=4, L=6, d_k=8, width=2),  # B = 1, no padding
        batch(1, 1, H=2, L=1, d_k=4, width=2),
        batch(2, 3, H=5, L=3, d_k=6, width=6),  # all entries
        (x.mT.contiguous().mT, mask, width),
        # positions that bfloat16 and float16 round; with one frequency, 1, float32 is exact
        batch(7, 2055, H=1, L=2055, d_k=4, width=2, dtype=torch.float32),
    ]


def run(answer, x, attention_mask, width):
    """Return the result with padding set to 0, because its position does not matter."""
    result = call_with_clones(answer, x, attention_mask, width)[0]
    if isinstance(result, torch.Tensor) and result.shape == x.shape:
        result = result.masked_fill(attention_mask[:, None, :, None] == 0, 0)
    return [result]


POSITIONS = "(attention_mask.cumsum(dim=-1) - 1)[:, None]"
ROTATED = "rotary(x[..., :width], positions)"
LIMIT = (
    "Your result is right for short texts, but not for 2,000 tokens. If your positions wrap around "
    "or stop at some number, remove this limit."
)
RESULT = "torch.cat([rotated, x[..., width:]], dim=-1)"
WITHOUT_NEGATIVE = "(attention_mask.cumsum(dim=-1) - 1).clamp(min=0)"
BY_HEAD = (
    "Your positions depend on the head. Head 0 gets those of sequence 0, head 1 those of sequence "
    "1, and so on. All heads of a sequence have the same positions, so give the positions the "
    "shape (B, 1, L)."
)
OTHER_BASE = "Your frequencies have another base. Leave `base` at its default, 10000."
HALF_AS_MANY = (
    "With width = 4, for example, you rotate only 2 entries, which are one pair. Rotate the first "
    "`width` entries, which are width / 2 pairs."
)
FROM_THE_END = (
    "Your positions {}. Count from the start of each sequence, where the first real token is at "
    "position 0."
)
SUBTRACTED = (
    "Your positions are the column numbers minus the number of real tokens. Subtract the number of "
    "padding tokens instead."
)


def pairs_across_the_head(x, attention_mask, width):
    positions = (attention_mask.cumsum(dim=-1) - 1)[:, None]
    half, middle = width // 2, x.shape[-1] // 2
    entries = [*range(half), *range(middle, middle + half)]
    result = x.clone()
    result[..., entries] = rotary(x[..., entries], positions)
    return result


MISTAKES = [
    ("padding counted",
     "Your positions count the padding, so the tokens after it are rotated too far. Count only "
     "real tokens.", (POSITIONS, "torch.arange(x.shape[-2])")),
    ("counted from 1",
     "Your positions start at 1. The first real token of each row must be at position 0.",
     (" - 1)[:, None]", ")[:, None]")),
    ("first row for all",
     "You rotate all sequences by the positions of the first one. Each sequence has its own "
     "positions.", ("[:, None]  #", "[:1, None]  #")),
    ("first row for all, clamped",
     "You rotate all sequences by the positions of the first one. Each sequence has its own "
     "positions.", (POSITIONS, "(attention_mask.cumsum(dim=-1) - 1).clamp(min=0)[:1, None]")),
    *rounded(POSITIONS, POSITIONS + "{}", "integers or at least float32"),
    ("begin again", LIMIT, (POSITIONS, POSITIONS + " % 8")),
    ("stop at 31", LIMIT, (POSITIONS, POSITIONS + ".clamp(max=31)")),
    ("a row for each head",
     "Right unless B = H. Then the positions of sequence b go to head b. Give the positions a "
     "dimension for the heads: (B, 1, L).",
     (POSITIONS, "attention_mask.cumsum(dim=-1) - 1\n"
      "    positions = positions[None] if len(x) == x.shape[1] else positions[:, None]")),
    ("positions by the head", BY_HEAD,
     (POSITIONS, POSITIONS[: -len("[:, None]")] + "[torch.arange(x.shape[1]) % len(x)][None]")),
    ("positions by the head, clamped", BY_HEAD,
     (POSITIONS, WITHOUT_NEGATIVE + "[torch.arange(x.shape[1]) % len(x)][None]")),
    ("over the batch",
     "You count down the columns of the mask, from sequence to sequence. Count along each row, "
     "with `dim=-1`.",
     (POSITIONS, "(attention_mask.cumsum(dim=0) - 1)[:, None]")),
    ("over the flattened batch",
     "Your count carries over from one sequence to the next. Count along each row, with `dim=-1`.",
     (POSITIONS, "(attention_mask.flatten().cumsum(0).view(attention_mask.shape) - 1)[:, None]")),
    ("from the end", FROM_THE_END.format("count from the last token back"),
     (POSITIONS, "(attention_mask.flip(-1).cumsum(dim=-1).flip(-1) - 1)[:, None]")),
    ("0 at the end",
     FROM_THE_END.format("end with 0 at the last token, and are negative before it"),
     (POSITIONS, "torch.arange(x.shape[-2]) - x.shape[-2] + 1")),
    ("-1 at the end", FROM_THE_END.format("are all negative, and end with −1 at the last token"),
     (POSITIONS, "torch.arange(x.shape[-2]) - x.shape[-2]")),
    ("real tokens subtracted", SUBTRACTED,
     (POSITIONS, "(torch.arange(x.shape[-2]) - attention_mask.sum(-1, keepdim=True))[:, None]")),
    ("real tokens subtracted, clamped", SUBTRACTED,
     (POSITIONS, "(torch.arange(x.shape[-2]) - attention_mask.sum(-1, keepdim=True))"
      ".clamp(min=0)[:, None]")),
    ("paired across the head",
     "You pair entry i with entry i + d_k / 2. Only the first `width` entries are rotated, so pair "
     "entry i with entry i + width / 2.",
     pairs_across_the_head),
    ("half as many entries", HALF_AS_MANY,
     (ROTATED, "rotary(x[..., : width // 2], positions)"),
     (RESULT, "torch.cat([rotated, x[..., width // 2 :]], dim=-1)")),
    ("half as many entries, an even number", HALF_AS_MANY,
     (ROTATED, "rotary(x[..., : max(2, width // 4 * 2)], positions)"),
     (RESULT, "torch.cat([rotated, x[..., max(2, width // 4 * 2) :]], dim=-1)")),
    ("half as many entries where even", HALF_AS_MANY,
     ("    rotated", "    half = width if width % 4 else width // 2\n    rotated"),
     (ROTATED, "rotary(x[..., :half], positions)"),
     (RESULT, "torch.cat([rotated, x[..., half:]], dim=-1)")),
    ("base 1000", OTHER_BASE, (ROTATED, "rotary(x[..., :width], positions, base=1000)")),
    ("base 500,000", OTHER_BASE, (ROTATED, "rotary(x[..., :width], positions, base=500000)")),
    ("in bfloat16",
     "Your result is rounded to bfloat16, which keeps 8 significant bits. Compute in the dtype of "
     "x.",
     (ROTATED, "rotary(x[..., :width].bfloat16(), positions).float()"),
     (RESULT, "torch.cat([rotated, x[..., width:].bfloat16().float()], dim=-1)")),
    ("all entries",
     "All entries are rotated. Rotate only the first `width` entries of each head.",
     (ROTATED, "rotary(x, positions)"), (RESULT, "rotated")),
    ("frequencies of the whole head",
     "Your frequencies are those of a vector with d_k entries. Use those of a vector with `width`"
     " entries.",
     (ROTATED, "rotary(x[..., :width], positions, base=10000 ** (width / x.shape[-1]))")),
    ("rotated as a whole, then cut",
     "Your pairs and frequencies are those of the whole head. Take the first `width` entries "
     "before you rotate, not after.", (ROTATED, "rotary(x, positions)[..., :width]")),
    ("last entries",
     "You rotate the last `width` entries of each head. Rotate the first `width` entries.",
     (ROTATED, "rotary(x[..., -width:], positions)"),
     (RESULT, "torch.cat([x[..., :-width], rotated], dim=-1)")),
    ("the others rotated",
     "You rotate the entries after the first `width`. Rotate the first `width` entries.",
     (ROTATED, "rotary(x[..., width:], positions)"),
     (RESULT, "torch.cat([x[..., :width], rotated], dim=-1)")),
    ("rotated ones last",
     "Your numbers are right, but the rotated entries come last. Put them first, where they were.",
     (RESULT, "torch.cat([x[..., width:], rotated], dim=-1)")),
    ("only the rotated ones",
     "You return only the rotated entries. Append the other entries, unchanged.",
     (RESULT, "rotated")),
    ("others set to zero",
     "The entries after the first `width` are 0 in your result. Leave them as they are.",
     ("x[..., width:]]", "0 * x[..., width:]]")),
    ("neighbors as pairs",
     "You use the interleaved layout. Within the first `width` entries, pair entry i with entry i "
     "+ width / 2.",
     (ROTATED, "rotary(x[..., :width], positions, interleaved=True)")),
    ("rotated backwards",
     "Your x is rotated in the opposite direction. Use positive positions.",
     (POSITIONS, "-" + POSITIONS)),
    ("not rotated", "Your result is x itself. Rotate the first `width` entries.", "x"),
]  # fmt: skip

exercise = Exercise(
    "9.11", partial_rotary, inputs, MISTAKES, names="B H L d_k", run=run, differentiable=True,
    also_right=[row_by_row, by_complex_numbers],
)  # fmt: skip
