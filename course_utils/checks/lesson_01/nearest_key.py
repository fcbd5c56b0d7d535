"""1.5: the position of each query's nearest key, by a given measure."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_01._measures import MEASURES


def nearest_key(q, k, measure):
    near = MEASURES[measure](q, k)  # (..., L, d), (..., S, d) -> (..., L, S)
    return near.argmax(dim=-1)  # (..., L)


def by_sorting(q, k, measure):
    if measure == "euclidean":
        return torch.cdist(q, k).argsort(dim=-1)[..., 0]
    if measure == "cosine":
        k = F.normalize(k, dim=-1)
    return (q @ k.mT).topk(1, dim=-1).indices.squeeze(-1)


def inputs():
    normal = normals(5)
    sizes = (
        10 ** torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]
    )  # long and short keys, so that the measures disagree
    pairs = [(normal(6, d), sizes * normal(9, d)) for d in (3, 5)]
    pairs += [(normal(B, 3, 4), normal(B, 5, 4)) for B in (2, 1)]
    pairs += [(normal(12, 10).float(), normal(11, 10).float()), (normal(1, 3), normal(1, 3))]
    pairs += [(normal(2, 3, 4, 3).mT, normal(2, 3, 4, 2).mT)]
    zero_between = normal(4, 3), normal(6, 3)
    zero_best = normal(4, 3).abs(), -normal(3, 3).abs()
    zero_between[1][2] = zero_best[1][1] = 0  # in zero_best, all other keys point away
    pairs += [zero_between, zero_best]
    for d in range(3, 8):  # a short key in the best direction, which any large eps would hide
        best, side = torch.eye(2, d, dtype=torch.float64)
        keys = torch.stack([100 * best + 200 * side, 0.001 * best, 4 * best + 3 * side])
        pairs.append((best + 0.05 * normal(3, d), keys))
    return [(q, k, measure) for q, k in pairs for measure in MEASURES]


def confused(given, used):
    """Return the hint and the edit for an answer that uses another measure than the given one."""
    return (
        f'For "{given}", your result is the nearest key by "{used}". The other two measures are '
        "correct. Check that each name is spelled as in the exercise, and that each branch returns "
        "its own result.",
        ("MEASURES[measure]", f'MEASURES["{used}" if measure == "{given}" else measure]'),
    )


MISTAKES = [
    ("farthest by distance",
     "Your result is correct for dot and cosine. For euclidean, you return the key with the "
     "largest distance. The nearest key has the smallest, so take the argmin of the distances.",
     ("MEASURES[measure](q, k)",
      "MEASURES[measure](q, k) * (-1 if measure == 'euclidean' else 1)")),
    ("smallest for all",
     "Your result is correct for euclidean. For dot and cosine, you return the key with the "
     "smallest value. The nearest key has the largest, so use argmax for these two.",
     ("MEASURES[measure](q, k)",
      "MEASURES[measure](q, k) * (1 if measure == 'euclidean' else -1)")),
    ("all reversed",
     "For every measure, your result is the least similar key. The nearest key has the largest dot "
     "product or cosine, but the smallest distance. Take the argmax of dot products and cosines, "
     "and the argmin of distances.",
     ("argmax", "argmin")),
    ("query for each key",
     "Your result is the nearest query for each key. Return the nearest key for each query. In "
     "the scores (..., L, S), the keys lie along the last dimension, so use dim=-1.",
     ("dim=-1", "dim=-2")),
    ("value not position",
     "Your result contains the similarities of the nearest keys. Return the positions of these "
     "keys. Use argmax, or argmin for distances.",
     ("argmax", "amax")),
    ("value and position",
     "Your result is two tensors. If you use max(dim=-1), it returns both the largest "
     "similarities and their positions. Return only the positions: use .indices or argmax.",
     ("argmax", "max")),
    ("key not position",
     "Your result contains the nearest keys themselves. Return their positions, as argmax does.",
     ("near.argmax(dim=-1)", "k[..., near.argmax(dim=-1), :]")),
    ("positions as floats", "Your positions are floats. Return integers, as argmax does.",
     ("argmax(dim=-1)", "argmax(dim=-1).double()")),
    ("zero key wins",
     "For cosine, your result is a zero key although another key is nearer. If you divide a "
     "zero key by its length, 0 / 0 is NaN, and argmax treats NaN as the largest value. Divide "
     "a zero key by 1 instead, as in 1.3.",
     ("MEASURES[measure](q, k)", "MEASURES[measure](q, k).where("
     "(measure != 'cosine') | (k != 0).any(dim=-1)[..., None, :], torch.nan)")),
    ("zero key loses",
     "For cosine, you rank a zero key last. The cosine of a zero key is 0, which is larger than "
     "any negative cosine. Give a zero key the cosine 0.",
     ("MEASURES[measure](q, k)", "MEASURES[measure](q, k).where("
     "(measure != 'cosine') | (k != 0).any(dim=-1)[..., None, :], -torch.inf)")),
    ("cosines along dimension 1",
     "Your cosine is correct for matrices, but with leading dimensions the lengths are computed "
     "along dimension 1, which is not the last dimension there. You get this result if you use "
     "norm(dim=1), or F.normalize with dim=1 or without dim. Use dim=-1.",
     ("MEASURES[measure](q, k)", "(q / q.norm(dim=1, keepdim=True) @ (k / k.norm(dim=1, "
      "keepdim=True)).nan_to_num().mT) if measure == 'cosine' else MEASURES[measure](q, k)")),
    ("keys along dimension 1",
     "Your cosine is correct for matrices, but with leading dimensions the lengths of the keys "
     "are computed along dimension 1, which is not the last dimension there. You get this result "
     "if you use norm(dim=1), or F.normalize with dim=1 or without dim. Use dim=-1.",
     ("MEASURES[measure](q, k)", "q @ F.normalize(k, dim=1).mT if measure == 'cosine' else "
      "MEASURES[measure](q, k)")),
    ("absolute differences",
     "For euclidean, your result is the key with the smallest sum of absolute differences. A "
     "distance squares the differences. Use your euclidean_distance from 1.4.",
     ("MEASURES[measure](q, k)", "-torch.cdist(q, k, p=1) if measure == 'euclidean' else "
      "MEASURES[measure](q, k)")),
    ("sizes compared",
     "For dot and cosine, you count a key in the opposite direction as near. A negative number "
     "must rank below a positive one. If you use abs, remove it.",
     ("near.argmax", "near.where(torch.tensor(measure == 'euclidean'), near.abs()).argmax")),
    ("along dimension 1",
     "Your result is correct for matrices, but with leading dimensions your argmax runs over "
     "dimension 1, which does not hold the keys. Use dim=-1.",
     ("dim=-1", "dim=1")),
    ("always dot",
     "For every measure, your result is the nearest key by dot product. Use the measure that "
     "`measure` names, and check that each name is spelled as in the exercise.",
     ("[measure]", "['dot']")),
    ("always cosine",
     "For every measure, your result is the nearest key by cosine. Use the measure that `measure` "
     "names, and check that each name is spelled as in the exercise.",
     ("[measure]", "['cosine']")),
    ("always euclidean",
     "For every measure, your result is the nearest key by distance. Use the measure that "
     "`measure` names, and check that each name is spelled as in the exercise.",
     ("[measure]", "['euclidean']")),
    ("cosine ranked as dot",
     "For cosine, your result is the key with the largest dot product. Divide the dot products "
     "by the lengths of the keys, and by 1 for a zero key.",
     ("[measure]", "['dot' if measure == 'cosine' else measure]")),
    ("cosine in place of dot", *confused("dot", "cosine")),
    ("euclidean in place of dot", *confused("dot", "euclidean")),
    ("euclidean in place of cosine", *confused("cosine", "euclidean")),
    ("dot in place of euclidean", *confused("euclidean", "dot")),
    ("cosine in place of euclidean", *confused("euclidean", "cosine")),
    ("one for the whole matrix",
     "Your result is one position for all scores together. Each query has its own nearest key, "
     "so use argmax with dim=-1.",
     ("dim=-1", "")),
    ("smallest for dot",
     "Your result is correct for cosine and euclidean. For dot, you return the key with the "
     "smallest dot product. The nearest key has the largest, so use argmax.",
     ("MEASURES[measure](q, k)",
      "MEASURES[measure](q, k) * (-1 if measure == 'dot' else 1)")),
    ("smallest for cosine",
     "Your result is correct for dot and euclidean. For cosine, you return the key with the "
     "smallest cosine. The nearest key has the largest, so use argmax.",
     ("MEASURES[measure](q, k)",
      "MEASURES[measure](q, k) * (-1 if measure == 'cosine' else 1)")),
    ("divided by squared lengths",
     "For cosine, your dot products are divided by the squared lengths of the keys. A length is "
     "the square root of the sum of squares, so divide by that square root.",
     ("MEASURES[measure](q, k)", "q @ (k / k.square().sum(dim=-1, keepdim=True)).nan_to_num().mT "
      "if measure == 'cosine' else MEASURES[measure](q, k)")),
    ("square of the key not halved",
     "For euclidean, your result is the key with the largest q·k − ‖k‖². Multiplied out, −‖q − "
     "k‖² / 2 contains q·k − ‖k‖² / 2. Halve ‖k‖², or use your euclidean_distance from 1.4.",
     ("MEASURES[measure](q, k)", "q @ k.mT - k.square().sum(dim=-1)[..., None, :] "
      "if measure == 'euclidean' else MEASURES[measure](q, k)")),
    ("eps in the cosine",
     "For cosine, your result is a long key although a short key has a better direction. If you "
     "add a constant to the lengths, or clamp them, the constant is too large for keys as short "
     "as 0.001. Divide each key by its own length, and only a zero key by 1, as in 1.3.",
     ("MEASURES[measure](q, k)", "q @ (k / (k.norm(dim=-1, keepdim=True) + 0.01)).mT "
      "if measure == 'cosine' else MEASURES[measure](q, k)")),
]  # fmt: skip

exercise = Exercise(
    "1.5", nearest_key, inputs, MISTAKES, names="L",
    also_right=[by_sorting, lambda *given: by_sorting(*given).numpy()],
)  # fmt: skip
