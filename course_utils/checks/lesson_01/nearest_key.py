"""1.5: the position of each query's nearest key, by the metric named."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_01._metrics import METRICS


def nearest_key(q, k, metric):
    near = METRICS[metric](q, k)  # (..., L, d), (..., S, d) -> (..., L, S), large for near
    return near.argmax(dim=-1)  # (..., L)


def by_sorting(q, k, metric):
    if metric == "euclidean":
        return torch.cdist(q, k).argsort(dim=-1)[..., 0]
    if metric == "cosine":
        k = F.normalize(k, dim=-1)
    return (q @ k.mT).topk(1, dim=-1).indices.squeeze(-1)


def inputs():
    normal = normals(5)
    sizes = 10 ** torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]  # so that metrics disagree
    pairs = [(normal(6, d), sizes * normal(9, d)) for d in (3, 5)]
    pairs += [(normal(B, 3, 4), normal(B, 5, 4)) for B in (2, 1)]
    pairs += [(normal(12, 10).float(), normal(11, 10).float()), (normal(1, 3), normal(1, 3))]
    pairs += [(normal(2, 3, 4, 3).mT, normal(2, 3, 4, 2).mT)]
    zero_between = normal(4, 3), normal(6, 3)
    zero_best = normal(4, 3).abs(), -normal(3, 3).abs()
    zero_between[1][2] = zero_best[1][1] = 0  # the best where all others point away
    return [(q, k, metric) for q, k in [*pairs, zero_between, zero_best] for metric in METRICS]


def taken(asked, metric):
    """Return the hint and the edit for an answer that by one metric does what another asks."""
    return (
        f'for "{asked}" it finds the nearest key by "{metric}", the other two are right: is each '
        "name spelt as in the exercise, and does each branch end with a result of its own?",
        ("METRICS[metric]", f'METRICS["{metric}" if metric == "{asked}" else metric]'),
    )


MISTAKES = [
    ("farthest by distance",
     "right for dot and cosine, but by distance it finds the farthest key: small is near",
     ("METRICS[metric](q, k)", "METRICS[metric](q, k) * (-1 if metric == 'euclidean' else 1)")),
    ("smallest for all",
     "right for the distance, but by dot product, by cosine or by both it finds the least similar "
     "key: large is near there",
     ("METRICS[metric](q, k)", "METRICS[metric](q, k) * (1 if metric == 'euclidean' else -1)")),
    ("all reversed",
     "it always finds the opposite: argmin and argmax are the wrong way round",
     ("argmax", "argmin")),
    ("query for each key",
     "that is the best query for each key; for each query look along its row, dim=-1",
     ("dim=-1", "dim=-2")),
    ("value not position",
     "those are the best values; their positions are asked: argmax, not max", ("argmax", "amax")),
    ("value and position",
     "max(dim) gives two things, values and positions; the positions are asked: .indices, or "
     "argmax", ("argmax", "max")),
    ("key not position",
     "those are the nearest keys themselves; their positions are asked, as argmax gives them",
     ("near.argmax(dim=-1)", "k[..., near.argmax(dim=-1), :]")),
    ("positions as floats",
     "positions are whole numbers: return integers, as argmax gives them",
     ("argmax(dim=-1)", "argmax(dim=-1).double()")),
    ("zero key wins",
     "Your cosine picks a zero key although another is nearer. If its cosine is 0 / 0 = NaN, "
     "argmax takes NaN for the largest. Divide a zero key by 1 instead, as in 1.3.",
     ("METRICS[metric](q, k)", "METRICS[metric](q, k).where("
     "(metric != 'cosine') | (k != 0).any(dim=-1)[..., None, :], torch.nan)")),
    ("zero key loses",
     "a zero key has cosine 0, which is more than a negative one: do not rank it last",
     ("METRICS[metric](q, k)", "METRICS[metric](q, k).where("
     "(metric != 'cosine') | (k != 0).any(dim=-1)[..., None, :], -torch.inf)")),
    ("cosines along dimension 1",
     "for the cosine, lengths run over dimension 1, right for matrices alone, as F.normalize does "
     "without dim: write dim=-1",
     ("METRICS[metric](q, k)", "(q / q.norm(dim=1, keepdim=True) @ (k / k.norm(dim=1, "
      "keepdim=True)).nan_to_num().mT) if metric == 'cosine' else METRICS[metric](q, k)")),
    ("absolute differences",
     "by distance it adds the absolute differences; square them, as in 1.4",
     ("METRICS[metric](q, k)", "-torch.cdist(q, k, p=1) if metric == 'euclidean' else "
      "METRICS[metric](q, k)")),
    ("sizes compared", "by dot product and by cosine a key of the opposite direction counts as "
     "near: the sign belongs to it, no abs",
     ("near.argmax", "near.where(torch.tensor(metric == 'euclidean'), near.abs()).argmax")),
    ("along dimension 1", "right for matrices; with leading dimensions argmax runs over dimension "
     "1, the queries: write dim=-1", ("dim=-1", "dim=1")),
    ("always dot", "it uses the dot product whatever the metric says", ("[metric]", "['dot']")),
    ("always cosine", "it uses the cosine whatever the metric says", ("[metric]", "['cosine']")),
    ("always euclidean", "it uses the distance whatever the metric says",
     ("[metric]", "['euclidean']")),
    ("cosine ranked as dot",
     "for the cosine it ranks keys as the dot product does: divide by the lengths of the keys",
     ("[metric]", "['dot' if metric == 'cosine' else metric]")),
    ("dot taken for cosine", *taken("dot", "cosine")),
    ("dot taken for euclidean", *taken("dot", "euclidean")),
    ("cosine taken for euclidean", *taken("cosine", "euclidean")),
    ("euclidean taken for dot", *taken("euclidean", "dot")),
    ("euclidean taken for cosine", *taken("euclidean", "cosine")),
    ("one for the whole matrix",
     "one position for the whole matrix: argmax needs dim=-1 to work row by row", ("dim=-1", "")),
]  # fmt: skip

exercise = Exercise(
    "1.5", nearest_key, inputs, MISTAKES, names="L",
    also_right=[by_sorting, lambda *given: by_sorting(*given).numpy()],
)  # fmt: skip
