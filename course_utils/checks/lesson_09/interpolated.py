"""9.7: rotary with places divided where a text is longer than the training was."""

import torch

from course_utils.attention import rotary
from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def interpolated(x, trained):
    L = x.shape[-2]
    places = torch.arange(L) * min(1, trained / L)  # (L,), all below `trained`
    return rotary(x, places)


def by_if(x, trained):
    places = torch.arange(x.shape[-2]).double()
    if len(places) > trained:
        places *= trained / len(places)
    return rotary(x, places)


def by_halves(x, trained):
    L, d = x.shape[-2:]
    speeds = torch.tensor([10000 ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)
    angles = torch.arange(L)[:, None] * speeds * min(1.0, trained / L)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


def inputs():
    normal = normals(97)
    return [
        (normal(8, 6), 4),
        (normal(2, 3, 7, 4), 3),  # no whole number of times as long
        (normal(5, 8), 20),  # shorter than the training
        (normal(1, 6, 4), 6),  # its 1 must not be squeezed away
        (normal(2, 9, 4, dtype=torch.float32), 8),
        (normal(30, 10), 7),
        (normal(8, 12).T, 5),  # not contiguous
        (normal(600, 4).sign().bfloat16(), 300),  # whose dtype has no room for its places
    ]


PLACES = "torch.arange(L) * min(1, trained / L)"
MISTAKES = [
    ("shorter texts stretched",
     "a text shorter than the training is stretched to it; its places stay as they are",
     (PLACES, "torch.arange(L) * trained / L")),
    ("not divided", "places are not divided: those from `trained` on were never met",
     (PLACES, "torch.arange(L)")),
    ("always by 8", "places are divided by 8 whatever the text; the factor is L / trained, and "
     "none up to `trained`", (PLACES, "torch.arange(L) / 8")),
    ("by 8 where longer", "shorter texts are right; longer ones are divided by 8, as the lesson's "
     "were: here the factor is L / trained",
     (PLACES, "torch.arange(L) / (8 if L > trained else 1)")),
    ("counted from 1", "places begin at 1; they are counted from 0",
     (PLACES, "torch.arange(1, L + 1) * min(1, trained / L)")),
    ("far places only",
     "only the places from `trained` on are divided, so that they fall among the near ones: divide "
     "all",
     (PLACES, "torch.where((at := torch.arange(L)) < trained, at, at * min(1, trained / L))")),
    ("multiplied", "places are multiplied by L / trained, which takes them further out: divide",
     (PLACES, "torch.arange(L) * max(1, L / trained)")),
    ("whole places",
     "places are rounded down, so that neighbours share one; they may be fractions: / and not //",
     (PLACES, "(torch.arange(L) * min(1, trained / L)).long()")),
    ("factor rounded down",
     "right where L is a multiple of `trained`; else the factor is L / trained with its fraction",
     (PLACES, "torch.arange(L) / max(1, L // trained)")),
    ("factor rounded up",
     "right where L is a multiple of `trained`; else the factor is L / trained, not rounded up",
     (PLACES, "torch.arange(L) / -(-L // trained)")),
    ("last place to last place",
     "the last place goes to trained − 1 exactly; the factor is L / trained, as in the lesson",
     (PLACES, "torch.arange(L) * min(1, (trained - 1) / max(L - 1, 1))")),
    ("cut off", "places from `trained` on are all the last one: those tokens cannot be told apart",
     (PLACES, "torch.arange(L).clamp(max=trained - 1)")),
    ("begun again", "places begin again at `trained`: tokens far apart get the same one",
     (PLACES, "torch.arange(L) % trained")),
    ("larger base", "the base is made larger: that is NTK-aware scaling; here divide the places",
     ("rotary(x, places)", "rotary(x, torch.arange(L), 10000 * max(1, L / trained) ** "
      "(x.shape[-1] / max(x.shape[-1] - 2, 1)))")),
    ("base times factor", "the base is multiplied by the factor; divide the places by it",
     ("rotary(x, places)", "rotary(x, torch.arange(L), 10000 * max(1, L / trained))")),
    ("neighbours as pairs", "right places, but neighbours are paired: leave `interleaved` as it is",
     ("rotary(x, places)", "rotary(x, places, interleaved=True)")),
    ("wrong dimension", "the first dimension is taken for L; it is the last but one",
     (PLACES, "torch.arange(L) * min(1, trained / x.shape[0])")),
    ("x divided", "x itself is divided; only the places are",
     ("rotary(x, places)", "rotary(x * min(1, trained / L), torch.arange(L))")),
    ("1 added after dividing",
     "1 is added to places that were divided rightly; the first token stands at 0",
     (PLACES, PLACES + " + 1")),
    ("divided by trained", "places are divided by `trained`; the factor is L / trained",
     (PLACES, "torch.arange(L) / trained")),
    ("divided by L", "places are divided by L, so that all lie below 1; the factor is L / trained",
     (PLACES, "torch.arange(L) / L")),
    ("last place to trained",
     "the last place goes to `trained` exactly; the factor is L / trained, so it stays below",
     (PLACES, "torch.arange(L) * min(1, trained / max(L - 1, 1))")),
    ("L + 1 places", "the factor is (L + 1) / trained; it is L / trained",
     (PLACES, "torch.arange(L) * min(1, trained / (L + 1))")),
    ("width for length", "the last dimension is taken for L; it is the last but one",
     (PLACES, "torch.arange(L) * min(1, trained / x.shape[-1])")),
    ("rounded", "places are rounded, so that neighbours share one; they may be fractions",
     (PLACES, "(torch.arange(L) * min(1, trained / L)).round()")),
    ("root of the factor", "places are divided by the root of L / trained; divide by all of it",
     (PLACES, "torch.arange(L) * min(1, trained / L) ** 0.5")),
    ("divided twice", "places are divided twice; L / trained once is enough",
     (PLACES, "torch.arange(L) * min(1, trained / L) ** 2")),
    ("always halved", "places are halved whatever the text; the factor is L / trained, and none "
     "up to `trained`", (PLACES, "torch.arange(L) / 2")),
    ("moved back", "the places move back so that the last falls below `trained`; the first become "
     "negative: divide them", (PLACES, "torch.arange(L) - max(0, L - trained)")),
    ("shorter texts shrunk",
     "longer texts are right; a text shorter than the training keeps its places",
     (PLACES, "torch.arange(L) * min(trained / L, L / trained)")),
    ("base divided", "the base is divided, which makes the clocks faster; divide the places",
     ("rotary(x, places)", "rotary(x, torch.arange(L), 10000 / max(1, L / trained))")),
    ("cut to the training", "the tokens from `trained` on are missing; all are turned",
     ("rotary(x, places)", "rotary(x[..., :trained, :], torch.arange(min(L, trained)))")),
    ("bfloat16", "places are put into bfloat16, which keeps 8 binary digits of a fraction",
     (PLACES, "(torch.arange(L) * min(1, trained / L)).bfloat16()")),
    ("dtype of x",
     "places are in the dtype of x: in bfloat16, with its 8 binary digits, neighbours fall "
     "together, as the lesson shows; make them in float32 at least",
     (PLACES, "torch.arange(L, dtype=x.dtype) * min(1, trained / L)")),
    ("both rounded down", "the factor L / trained and the places are both rounded down, by //; "
     "both may be fractions: /", (PLACES, "torch.arange(L) // max(1, L // trained)")),
    ("difference for factor", "places are divided by L − trained; the factor is L / trained",
     (PLACES, "torch.arange(L) / (L - trained if L > trained else 1)")),
    ("turned backwards", "places are divided rightly, but negative: the hands go backwards",
     (PLACES, "-" + PLACES)),
    ("not turned", "x comes back as it was", "x"),
]  # fmt: skip

exercise = Exercise(
    "9.7", interpolated, inputs, MISTAKES, names="L d", also_right=[by_if, by_halves]
)
