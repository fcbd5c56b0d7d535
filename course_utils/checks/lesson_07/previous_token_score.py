"""7.2: the mean weight of each head on the token before."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_07._heads import causal_weights


def previous_token_score(weights):
    before = weights.diagonal(-1, dim1=-2, dim2=-1)  # (B, H, L - 1), from query i + 1 to key i
    return before.mean(dim=(0, -1))  # (H,)


def by_loops(weights):
    B, H, L, _ = weights.shape
    total = torch.zeros(H, dtype=weights.dtype)
    for b in range(B):
        for i in range(1, L):
            total += weights[b, :, i, i - 1]
    return total / (B * (L - 1))


def by_mask(weights):
    L = weights.shape[-1]
    below = torch.diag(torch.ones(L - 1), -1)
    return torch.einsum("bhij,ij->h", weights, below) / (len(weights) * (L - 1))


def inputs():
    rng = torch.Generator().manual_seed(73)
    shapes = [(3, 2, 5), (1, 4, 7), (2, 3, 6), (1, 2, 26), (1, 1, 2)]
    free = torch.randn(2, 3, 5, 5, generator=rng).softmax(dim=-1)  # no mask
    turned = torch.randn(4, 4, 2, 3, generator=rng).softmax(dim=1).permute(3, 2, 0, 1)
    made = [causal_weights(rng, *shape) for shape in shapes]
    one_key = F.one_hot(made[1].argmax(dim=-1), 7).float()  # many weights of 0
    return [(weights,) for weights in [*made, free, turned, one_key]]


MISTAKES = [
    ("weight on itself",
     "that is the diagonal: each token's weight on itself; one place to the left of it",
     ("-1, dim1", "0, dim1")),
    ("weight on the next",
     "that is the weight on the token after: rows are queries, so key i - 1 of query i lies below "
     "the diagonal", ("-1, dim1", "1, dim1")),
    ("first query counted",
     "divided by L, but the first query has no token before it: there are L - 1 to average over",
     ("before.mean(dim=(0, -1))", "before.sum(dim=-1).mean(dim=0) / weights.shape[-1]")),
    ("all keys before", "all earlier keys are added up; only the one right before counts",
     "weights.tril(-1).sum(dim=-1)[..., 1:].mean(dim=(0, -1))"),
    ("summed over queries", "summed over the queries; a score from 0 to 1 is their mean",
     ("mean(dim=(0, -1))", "sum(dim=-1).mean(dim=0)")),
    ("summed over queries and texts",
     "summed over B and the queries; a score from 0 to 1 is the mean over both",
     ("mean(dim", "sum(dim")),
    ("summed over texts", "summed over B; a score from 0 to 1 is the mean over the sequences too",
     ("mean(dim=(0, -1))", "mean(dim=-1).sum(dim=0)")),
    ("first sequence only", "only the first sequence counts there: take the mean over all of them",
     ("dim=(0, -1))", "dim=-1)[0]")),
    ("last sequence only", "only the last sequence counts there: take the mean over all of them",
     ("dim=(0, -1))", "dim=-1)[-1]")),
    ("queries without weight left out",
     "queries that put no weight on the token before are left out; they count as well, with 0",
     ("before.mean(dim=(0, -1))",
      "before.sum(dim=(0, -1)) / (before > 0).sum(dim=(0, -1)).clamp(min=1)")),
    ("diagonal of B and H",
     "`diagonal` without dims takes the first two, B and H; of queries and keys it is dim1=-2, "
     "dim2=-1", ("-1, dim1=-2, dim2=-1", "-1")),
    ("all heads together",
     "one number for all heads together: average over B and queries, keep H", ("dim=(0, -1)", "")),
    ("sequences kept apart",
     "one number for each sequence and head, (B, H): average over the sequences too",
     ("dim=(0, -1)", "dim=-1")),
    ("heads averaged", "one number for each sequence, (B,): average over the sequences, keep H",
     ("dim=(0, -1)", "dim=(1, -1)")),
    ("how often strongest",
     "that is how often the previous token is the strongest; asked is the weight it gets, on "
     "average",
     ("before.mean", "(before == weights[:, :, 1:].amax(dim=-1)).float().mean")),
]  # fmt: skip

exercise = Exercise(
    "7.2", previous_token_score, inputs, MISTAKES, names="H", also_right=[by_loops, by_mask]
)
