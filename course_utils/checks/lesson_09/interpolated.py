"""9.7: rotary with divided positions if a text is longer than in training."""

import torch

from course_utils.attention import rotary
from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.shared_hints import INTERLEAVED


def interpolated(x, trained):
    L = x.shape[-2]
    positions = torch.arange(L) * min(1, trained / L)  # (L,), all below `trained`
    return rotary(x, positions)


def by_if(x, trained):
    positions = torch.arange(x.shape[-2]).double()
    if len(positions) > trained:
        positions *= trained / len(positions)
    return rotary(x, positions)


def by_halves(x, trained):
    L, d = x.shape[-2:]
    inv_freq = torch.tensor([10000 ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)
    angles = torch.arange(L)[:, None] * inv_freq * min(1.0, trained / L)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


def inputs():
    normal = normals(97)
    return [
        (normal(8, 6), 4),
        (normal(2, 3, 7, 4), 3),  # L is no multiple of `trained`
        (normal(5, 8), 20),  # shorter than the training
        (normal(1, 6, 4), 6),  # the dimension of size 1 must stay
        (normal(2, 9, 4, dtype=torch.float32), 8),  # one row longer
        (normal(3, 10, 6), 8),
        (normal(30, 10), 7),
        (normal(8, 12).T, 5),  # not contiguous
        (normal(600, 4).sign().bfloat16(), 300),  # bfloat16 cannot represent these positions
    ]


POSITIONS = "torch.arange(L) * min(1, trained / L)"
NOT_ALWAYS = (
    "You divide the positions of some long texts, but not of others. Divide the positions "
    "whenever L is larger than `trained`."
)
MISTAKES = [
    ("shorter texts stretched",
     "You stretch the positions of short texts. If L is at most `trained`, leave the positions as "
     "they are.",
     (POSITIONS, "torch.arange(L) * trained / L")),
    ("one row longer not divided", NOT_ALWAYS,
     (POSITIONS, "torch.arange(L) * (trained / L if L > trained + 1 else 1)")),
    ("two rows longer not divided", NOT_ALWAYS,
     (POSITIONS, "torch.arange(L) * (trained / L if L > trained + 2 else 1)")),
    ("divided if twice as long", NOT_ALWAYS,
     (POSITIONS, "torch.arange(L) * (trained / L if L > 2 * trained else 1)")),
    ("dimension 1",
     "You divide x.shape[1] by `trained`, but that is not always the number of rows. Use "
     "x.shape[-2].",
     (POSITIONS, "torch.arange(L) * min(1, trained / x.shape[1])")),
    ("not divided",
     "Your positions are not divided. If L is larger than `trained`, divide all of them by L / "
     "trained.",
     (POSITIONS, "torch.arange(L)")),
    ("always by 8",
     "Your positions are always divided by 8. Divide by L / trained, and only if L is larger than"
     " `trained`.",
     (POSITIONS, "torch.arange(L) / 8")),
    ("by 8 where longer",
     "Right for short texts. The positions of longer ones are divided by 8, as in the lesson. "
     "Divide them by L / trained.",
     (POSITIONS, "torch.arange(L) / (8 if L > trained else 1)")),
    ("counted from 1",
     "Your positions start at 1. Count from 0.",
     (POSITIONS, "torch.arange(1, L + 1) * min(1, trained / L)")),
    ("far positions only",
     "You divide only the positions from `trained` on, so the later tokens get positions among the "
     "first ones. Divide all positions by L / trained.",
     (POSITIONS, "torch.where((at := torch.arange(L)) < trained, at, at * min(1, trained / L))")),
    ("multiplied",
     "Your positions are multiplied by L / trained. Divide them by L / trained.",
     (POSITIONS, "torch.arange(L) * max(1, L / trained)")),
    ("whole positions",
     "Your positions are rounded down to integers, so some neighbors share a position. Keep the "
     "fractions. `//` drops them, and `/` keeps them.",
     (POSITIONS, "(torch.arange(L) * min(1, trained / L)).long()")),
    ("factor rounded down",
     "Your divisor is rounded down to an integer. Use L / trained with its fraction.",
     (POSITIONS, "torch.arange(L) / max(1, L // trained)")),
    ("factor rounded up",
     "Your divisor is rounded up to an integer. Use L / trained with its fraction.",
     (POSITIONS, "torch.arange(L) / -(-L // trained)")),
    ("last position to last position",
     "In texts longer than `trained`, your last position is exactly trained − 1. There, divide "
     "all positions by L / trained, not by (L − 1) / (trained − 1).",
     (POSITIONS, "torch.arange(L) * min(1, (trained - 1) / max(L - 1, 1))")),
    ("cut off",
     "All your positions above trained − 1 become trained − 1, so these tokens cannot be told "
     "apart. Divide all positions by L / trained.",
     (POSITIONS, "torch.arange(L).clamp(max=trained - 1)")),
    ("begun again",
     "Your positions start again at 0 after every `trained` tokens, so distant tokens share a "
     "position. Divide all positions by L / trained.",
     (POSITIONS, "torch.arange(L) % trained")),
    ("larger base",
     "Your base is larger, as in NTK-aware scaling. Keep the base, and divide the positions by L "
     "/ trained.",
     ("rotary(x, positions)", "rotary(x, torch.arange(L), 10000 * max(1, L / trained) ** "
      "(x.shape[-1] / max(x.shape[-1] - 2, 1)))")),
    ("base times factor",
     "Your base is multiplied by L / trained. Keep the base, and divide the positions by L / "
     "trained.",
     ("rotary(x, positions)", "rotary(x, torch.arange(L), 10000 * max(1, L / trained))")),
    ("neighbors as pairs", INTERLEAVED,
     ("rotary(x, positions)", "rotary(x, positions, interleaved=True)")),
    ("wrong dimension",
     "Right only if x has two dimensions. You divide x.shape[0] by `trained`. With more "
     "dimensions, x.shape[0] is not the number of rows. Use x.shape[-2].",
     (POSITIONS, "torch.arange(L) * min(1, trained / x.shape[0])")),
    ("x divided",
     "You divide x itself. Divide its positions instead.",
     ("rotary(x, positions)", "rotary(x * min(1, trained / L), torch.arange(L))")),
    ("1 added after dividing",
     "Your positions are divided correctly, but then 1 is added. The first token must be at "
     "position 0.",
     (POSITIONS, POSITIONS + " + 1")),
    ("divided by trained",
     "Your positions are divided by `trained`. Divide by L / trained, and only if L is larger "
     "than `trained`.",
     (POSITIONS, "torch.arange(L) / trained")),
    ("divided by L",
     "Your positions are divided by L, so all are below 1. Divide by L / trained, and only if L "
     "is larger than `trained`.",
     (POSITIONS, "torch.arange(L) / L")),
    ("last position to trained",
     "In texts longer than `trained`, your last position is exactly `trained`, but all positions "
     "must be below it. There, divide by L / trained, not by (L − 1) / trained.",
     (POSITIONS, "torch.arange(L) * min(1, trained / max(L - 1, 1))")),
    ("L + 1 positions",
     "Your divisor is (L + 1) / trained. Use L / trained.",
     (POSITIONS, "torch.arange(L) * min(1, trained / (L + 1))")),
    ("width for length",
     "You divide x.shape[-1] by `trained`, but x.shape[-1] is d, the number of entries in a row. "
     "Use x.shape[-2].",
     (POSITIONS, "torch.arange(L) * min(1, trained / x.shape[-1])")),
    ("rounded",
     "Your positions are rounded to integers, so some neighbors share a position. Keep the "
     "fractions.",
     (POSITIONS, "(torch.arange(L) * min(1, trained / L)).round()")),
    ("root of the factor",
     "Your divisor is the square root of L / trained. Use L / trained itself.",
     (POSITIONS, "torch.arange(L) * min(1, trained / L) ** 0.5")),
    ("divided twice",
     "Your positions are divided by L / trained twice. Divide only once.",
     (POSITIONS, "torch.arange(L) * min(1, trained / L) ** 2")),
    ("always halved",
     "Your positions are always halved. Divide by L / trained, and only if L is larger than "
     "`trained`.",
     (POSITIONS, "torch.arange(L) / 2")),
    ("moved back",
     "In long texts, you subtract L − trained from the positions, so the first ones are negative."
     " Do not subtract. Divide all positions by L / trained.",
     (POSITIONS, "torch.arange(L) - max(0, L - trained)")),
    ("shorter texts shrunk",
     "Right for long texts. If L is less than `trained`, you multiply the positions by L / "
     "trained. Leave them as they are.",
     (POSITIONS, "torch.arange(L) * min(trained / L, L / trained)")),
    ("base divided",
     "Your base is divided by L / trained, which makes the frequencies larger. Keep the base, and"
     " divide the positions by L / trained.",
     ("rotary(x, positions)", "rotary(x, torch.arange(L), 10000 / max(1, L / trained))")),
    ("cut to the training",
     "Your result has only the first `trained` tokens. Return all L rows.",
     ("rotary(x, positions)", "rotary(x[..., :trained, :], torch.arange(min(L, trained)))")),
    ("bfloat16",
     "Your positions are rounded to bfloat16, which keeps only 8 significant bits. Compute them "
     "in float32 or float64.",
     (POSITIONS, "(torch.arange(L) * min(1, trained / L)).bfloat16()")),
    ("dtype of x",
     "Right unless x is in bfloat16. Then your positions are in bfloat16, too, and its 8 "
     "significant bits cannot tell all neighboring positions apart. Compute positions in float32 "
     "or float64.",
     (POSITIONS, "torch.arange(L, dtype=x.dtype) * min(1, trained / L)")),
    ("both rounded down",
     "Your divisor and your positions are both rounded down to integers. Keep the fractions. `//`"
     " drops them, and `/` keeps them.",
     (POSITIONS, "torch.arange(L) // max(1, L // trained)")),
    ("difference for factor",
     "In long texts, your positions are divided by L − trained. Divide them by L / trained.",
     (POSITIONS, "torch.arange(L) / (L - trained if L > trained else 1)")),
    ("rotated backwards",
     "Your positions are divided correctly, but they are negative. Make them positive.",
     (POSITIONS, "-" + POSITIONS)),
    ("not rotated",
     "Your result is x itself. Rotate it by its positions.",
     "x"),
]  # fmt: skip

exercise = Exercise(
    "9.7", interpolated, inputs, MISTAKES, names="L d", also_right=[by_if, by_halves]
)
