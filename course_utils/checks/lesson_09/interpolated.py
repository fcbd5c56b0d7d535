"""9.7: rotary with divided positions if a text is longer than in training."""

import torch

from course_utils.attention import rotary
from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


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
        (normal(2, 9, 4, dtype=torch.float32), 8),
        (normal(30, 10), 7),
        (normal(8, 12).T, 5),  # not contiguous
        (normal(600, 4).sign().bfloat16(), 300),  # bfloat16 cannot represent these positions
    ]


POSITIONS = "torch.arange(L) * min(1, trained / L)"
MISTAKES = [
    ("shorter texts stretched",
     "Your result stretches the positions of short texts. If L is at most `trained`, leave them "
     "as they are.",
     (POSITIONS, "torch.arange(L) * trained / L")),
    ("not divided",
     "Your positions are not divided. If L is larger than `trained`, divide all of them by L / "
     "trained.",
     (POSITIONS, "torch.arange(L)")),
    ("always by 8",
     "Your positions are always divided by 8. The divisor is L / trained, and short texts have "
     "none.",
     (POSITIONS, "torch.arange(L) / 8")),
    ("by 8 where longer",
     "Short texts are right. Longer ones are divided by 8, as in the lesson. Here the divisor is "
     "L / trained.",
     (POSITIONS, "torch.arange(L) / (8 if L > trained else 1)")),
    ("counted from 1",
     "Your positions start at 1. Count from 0.",
     (POSITIONS, "torch.arange(1, L + 1) * min(1, trained / L)")),
    ("far positions only",
     "Only positions from `trained` on are divided, so they land among the first ones. Divide "
     "all positions.",
     (POSITIONS, "torch.where((at := torch.arange(L)) < trained, at, at * min(1, trained / L))")),
    ("multiplied",
     "Your positions are multiplied by L / trained. Divide them.",
     (POSITIONS, "torch.arange(L) * max(1, L / trained)")),
    ("whole positions",
     "Your positions are rounded down, so neighbors share one. Keep the fractions, as `/` does "
     "and `//` does not.",
     (POSITIONS, "(torch.arange(L) * min(1, trained / L)).long()")),
    ("factor rounded down",
     "Right if L is a multiple of `trained`. Otherwise your divisor is rounded down. Use L / "
     "trained with its fraction.",
     (POSITIONS, "torch.arange(L) / max(1, L // trained)")),
    ("factor rounded up",
     "Right if L is a multiple of `trained`. Otherwise your divisor is rounded up. Use L / "
     "trained with its fraction.",
     (POSITIONS, "torch.arange(L) / -(-L // trained)")),
    ("last position to last position",
     "Your last position is exactly trained − 1. The divisor is L / trained, as in the lesson.",
     (POSITIONS, "torch.arange(L) * min(1, (trained - 1) / max(L - 1, 1))")),
    ("cut off",
     "All your positions from `trained` on are the same, so these tokens cannot be told apart. "
     "Divide all positions.",
     (POSITIONS, "torch.arange(L).clamp(max=trained - 1)")),
    ("begun again",
     "Your positions start again at `trained`, so distant tokens share one. Divide all "
     "positions.",
     (POSITIONS, "torch.arange(L) % trained")),
    ("larger base",
     "Your base is larger, as in NTK-aware scaling. Keep the base and divide the positions.",
     ("rotary(x, positions)", "rotary(x, torch.arange(L), 10000 * max(1, L / trained) ** "
      "(x.shape[-1] / max(x.shape[-1] - 2, 1)))")),
    ("base times factor",
     "Your base is multiplied by L / trained. Keep the base and divide the positions.",
     ("rotary(x, positions)", "rotary(x, torch.arange(L), 10000 * max(1, L / trained))")),
    ("neighbors as pairs",
     "Your positions are right, but you pair neighbors. Leave `interleaved` at its default.",
     ("rotary(x, positions)", "rotary(x, positions, interleaved=True)")),
    ("wrong dimension",
     "You take L from the first dimension. It is the last but one.",
     (POSITIONS, "torch.arange(L) * min(1, trained / x.shape[0])")),
    ("x divided",
     "Your x is divided. Divide only the positions.",
     ("rotary(x, positions)", "rotary(x * min(1, trained / L), torch.arange(L))")),
    ("1 added after dividing",
     "Your positions are divided correctly, but then 1 is added. The first token is at position "
     "0.",
     (POSITIONS, POSITIONS + " + 1")),
    ("divided by trained",
     "Your positions are divided by `trained`. The divisor is L / trained.",
     (POSITIONS, "torch.arange(L) / trained")),
    ("divided by L",
     "Your positions are divided by L, so all are below 1. The divisor is L / trained.",
     (POSITIONS, "torch.arange(L) / L")),
    ("last position to trained",
     "Your last position is exactly `trained`. The divisor is L / trained, so it must stay "
     "below.",
     (POSITIONS, "torch.arange(L) * min(1, trained / max(L - 1, 1))")),
    ("L + 1 positions",
     "Your divisor is (L + 1) / trained. Use L / trained.",
     (POSITIONS, "torch.arange(L) * min(1, trained / (L + 1))")),
    ("width for length",
     "You take L from the last dimension. It is the last but one.",
     (POSITIONS, "torch.arange(L) * min(1, trained / x.shape[-1])")),
    ("rounded",
     "Your positions are rounded, so neighbors share one. Keep the fractions.",
     (POSITIONS, "(torch.arange(L) * min(1, trained / L)).round()")),
    ("root of the factor",
     "Your divisor is the square root of L / trained. Use L / trained itself.",
     (POSITIONS, "torch.arange(L) * min(1, trained / L) ** 0.5")),
    ("divided twice",
     "Your positions are divided by L / trained twice. Divide once.",
     (POSITIONS, "torch.arange(L) * min(1, trained / L) ** 2")),
    ("always halved",
     "Your positions are always halved. The divisor is L / trained, and short texts have none.",
     (POSITIONS, "torch.arange(L) / 2")),
    ("moved back",
     "Your positions are shifted so that the last one is below `trained`, and the first ones "
     "become negative. Divide them instead.",
     (POSITIONS, "torch.arange(L) - max(0, L - trained)")),
    ("shorter texts shrunk",
     "Longer texts are right. If L is at most `trained`, leave the positions as they are.",
     (POSITIONS, "torch.arange(L) * min(trained / L, L / trained)")),
    ("base divided",
     "Your base is divided, which makes the frequencies larger. Keep the base and divide the "
     "positions.",
     ("rotary(x, positions)", "rotary(x, torch.arange(L), 10000 / max(1, L / trained))")),
    ("cut to the training",
     "The tokens from `trained` on are missing. Return all of them.",
     ("rotary(x, positions)", "rotary(x[..., :trained, :], torch.arange(min(L, trained)))")),
    ("bfloat16",
     "Your positions are rounded to bfloat16, which keeps only 8 binary digits. Compute them in "
     "float32 or float64.",
     (POSITIONS, "(torch.arange(L) * min(1, trained / L)).bfloat16()")),
    ("dtype of x",
     "Right for x in float32. If x is in bfloat16, your positions are as well, and its 8 binary "
     "digits cannot tell neighbors apart. Compute positions in float32 or float64.",
     (POSITIONS, "torch.arange(L, dtype=x.dtype) * min(1, trained / L)")),
    ("both rounded down",
     "Your divisor and your positions are both rounded down, as by `//`. Keep both fractions.",
     (POSITIONS, "torch.arange(L) // max(1, L // trained)")),
    ("difference for factor",
     "Your positions are divided by L − trained. The divisor is L / trained.",
     (POSITIONS, "torch.arange(L) / (L - trained if L > trained else 1)")),
    ("rotated backwards",
     "Your positions are divided correctly, but they are negative. Keep them positive.",
     (POSITIONS, "-" + POSITIONS)),
    ("not rotated",
     "Your result is x itself. Rotate it by its positions.",
     "x"),
]  # fmt: skip

exercise = Exercise(
    "9.7", interpolated, inputs, MISTAKES, names="L d", also_right=[by_if, by_halves]
)
