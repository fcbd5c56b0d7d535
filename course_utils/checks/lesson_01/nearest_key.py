"""1.5: the position of each query's nearest key, by a given metric."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_01._metrics import METRICS


def nearest_key(q, k, metric):
    near = METRICS[metric](q, k)  # (..., L, d), (..., S, d) -> (..., L, S)
    return near.argmax(dim=-1)  # (..., L)


def by_sorting(q, k, metric):
    if metric == "euclidean":
        return torch.cdist(q, k).argsort(dim=-1)[..., 0]
    if metric == "cosine":
        k = F.normalize(k, dim=-1)
    return (q @ k.mT).topk(1, dim=-1).indices.squeeze(-1)


def inputs():
    normal = normals(5)
    sizes = (
        10 ** torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]
    )  # long and short keys, so that the metrics disagree
    pairs = [(normal(6, d), sizes * normal(9, d)) for d in (3, 5)]
    pairs += [(normal(B, 3, 4), normal(B, 5, 4)) for B in (2, 1)]
    pairs += [(normal(12, 10).float(), normal(11, 10).float()), (normal(1, 3), normal(1, 3))]
    pairs += [(normal(2, 3, 4, 3).mT, normal(2, 3, 4, 2).mT)]
    zero_between = normal(4, 3), normal(6, 3)
    zero_best = normal(4, 3).abs(), -normal(3, 3).abs()
    zero_between[1][2] = zero_best[1][1] = 0  # in zero_best, all other keys point away
    return [(q, k, metric) for q, k in [*pairs, zero_between, zero_best] for metric in METRICS]


def confused(given, used):
    """Return the hint and the edit for an answer that uses another metric than the given one."""
    return (
        f'For "{given}", your result is the nearest key by "{used}". The other two metrics are '
        "right. Check that each name is spelled as in the exercise, and that each branch returns "
        "its own result.",
        ("METRICS[metric]", f'METRICS["{used}" if metric == "{given}" else metric]'),
    )


MISTAKES = [
    ("farthest by distance",
     "Right for dot and cosine. But for euclidean, your result is the farthest key. A small "
     "distance means near, so use argmin.",
     ("METRICS[metric](q, k)", "METRICS[metric](q, k) * (-1 if metric == 'euclidean' else 1)")),
    ("smallest for all",
     "Right for euclidean. But for dot, for cosine or for both, your result is the least similar "
     "key. There, a large number means near, so use argmax.",
     ("METRICS[metric](q, k)", "METRICS[metric](q, k) * (1 if metric == 'euclidean' else -1)")),
    ("all reversed",
     "For every metric, your result is the least similar key. Swap argmin and argmax.",
     ("argmax", "argmin")),
    ("query for each key",
     "Your result is the nearest query of each key. Find the nearest key of each query, along its "
     "row: dim=-1.", ("dim=-1", "dim=-2")),
    ("value not position",
     "Your result contains the best values themselves. Return their positions: use argmax instead "
     "of max.", ("argmax", "amax")),
    ("value and position",
     "Your result is two tensors, the values and the positions, as max(dim) returns them. Return "
     "only the positions: use .indices or argmax.", ("argmax", "max")),
    ("key not position",
     "Your result is the nearest keys themselves. Return their positions, as argmax does.",
     ("near.argmax(dim=-1)", "k[..., near.argmax(dim=-1), :]")),
    ("positions as floats", "Your positions are floats. Return integers, as argmax does.",
     ("argmax(dim=-1)", "argmax(dim=-1).double()")),
    ("zero key wins",
     "Your cosine picks a zero key although another is nearer. If its cosine is 0 / 0 = NaN, "
     "argmax takes NaN for the largest. Divide a zero key by 1 instead, as in 1.3.",
     ("METRICS[metric](q, k)", "METRICS[metric](q, k).where("
     "(metric != 'cosine') | (k != 0).any(dim=-1)[..., None, :], torch.nan)")),
    ("zero key loses",
     "Your cosine ranks a zero key last. Its cosine is 0, which is larger than a negative one. "
     "Give it the cosine 0.",
     ("METRICS[metric](q, k)", "METRICS[metric](q, k).where("
     "(metric != 'cosine') | (k != 0).any(dim=-1)[..., None, :], -torch.inf)")),
    ("cosines along dimension 1",
     "Your cosine is right for matrices, but with leading dimensions its lengths run over "
     "dimension 1. F.normalize does that without dim. Write dim=-1.",
     ("METRICS[metric](q, k)", "(q / q.norm(dim=1, keepdim=True) @ (k / k.norm(dim=1, "
      "keepdim=True)).nan_to_num().mT) if metric == 'cosine' else METRICS[metric](q, k)")),
    ("keys along dimension 1",
     "Your cosine is right for matrices, but with leading dimensions the lengths of the keys run "
     "over dimension 1. F.normalize does that without dim. Write dim=-1.",
     ("METRICS[metric](q, k)", "q @ F.normalize(k, dim=1).mT if metric == 'cosine' else "
      "METRICS[metric](q, k)")),
    ("absolute differences",
     "Your distance is the sum of absolute differences. Square the differences, as in 1.4.",
     ("METRICS[metric](q, k)", "-torch.cdist(q, k, p=1) if metric == 'euclidean' else "
      "METRICS[metric](q, k)")),
    ("sizes compared",
     "For dot and cosine, your result counts a key in the opposite direction as near. Keep the "
     "sign: if you use abs, leave it out.",
     ("near.argmax", "near.where(torch.tensor(metric == 'euclidean'), near.abs()).argmax")),
    ("along dimension 1",
     "Right for matrices, but with leading dimensions your argmax runs over dimension 1, the "
     "queries. Write dim=-1.", ("dim=-1", "dim=1")),
    ("always dot",
     "Your result uses the dot product for every metric. Use the metric that is given.",
     ("[metric]", "['dot']")),
    ("always cosine", "Your result uses the cosine for every metric. Use the metric that is given.",
     ("[metric]", "['cosine']")),
    ("always euclidean",
     "Your result uses the distance for every metric. Use the metric that is given.",
     ("[metric]", "['euclidean']")),
    ("cosine ranked as dot",
     "Your cosine ranks the keys as the dot product does. Divide by the lengths of the keys.",
     ("[metric]", "['dot' if metric == 'cosine' else metric]")),
    ("cosine in place of dot", *confused("dot", "cosine")),
    ("euclidean in place of dot", *confused("dot", "euclidean")),
    ("euclidean in place of cosine", *confused("cosine", "euclidean")),
    ("dot in place of euclidean", *confused("euclidean", "dot")),
    ("cosine in place of euclidean", *confused("euclidean", "cosine")),
    ("one for the whole matrix",
     "Your result is one position for the whole matrix. Use argmax with dim=-1, which works row by"
     " row.", ("dim=-1", "")),
]  # fmt: skip

exercise = Exercise(
    "1.5", nearest_key, inputs, MISTAKES, names="L",
    also_right=[by_sorting, lambda *given: by_sorting(*given).numpy()],
)  # fmt: skip
