"""7.2: the mean weight of each head on the previous token."""

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


LARGEST = (
    "Your result is the mean of each query's largest weight, on whatever key. Take the weight on "
    "the key right before the query."
)
FIRST_KEY = (
    "Your result is the mean weight on the first key. Take the weight on the key right before each "
    "query."
)
MISTAKES = [
    ("weight on itself",
     "Your result is the mean of the diagonal, the weight of each token on itself. Take the "
     "diagonal below it, which holds the weights on the previous token.",
     ("-1, dim1", "0, dim1")),
    ("weight on the next",
     "Your result is the weight on the *next* token. Rows are queries, so take the diagonal "
     "just below the main one.",
     ("-1, dim1", "1, dim1")),
    ("two positions back",
     "You take the weight on the key two positions back. Take the weight on the key right before "
     "the query.",
     ("-1, dim1", "-2, dim1")),
    ("last key for query 0",
     "Your sum includes the weight of query 0 on the last key. An index of −1 means the last key. "
     "Start with query 1.",
     ("before.mean(dim=(0, -1))",
      "(before.sum(dim=(0, -1)) + weights[..., 0, -1].sum(dim=0)) / before[:, 0].numel()")),
    ("first query counted",
     "Your sum is divided by L. The first query has no previous token, so divide by L − 1.",
     ("before.mean(dim=(0, -1))", "before.sum(dim=-1).mean(dim=0) / weights.shape[-1]")),
    ("all keys before",
     "You add up the weights on all earlier keys. Count only the weight on the key right before "
     "the query.",
     "weights.tril(-1).sum(dim=-1)[..., 1:].mean(dim=(0, -1))"),
    ("summed over queries",
     "Your result is a sum over the queries. Take their mean.",
     ("mean(dim=(0, -1))", "sum(dim=-1).mean(dim=0)")),
    ("summed over queries and texts",
     "Your result is a sum over the sequences and the queries. Take the mean over both.",
     ("mean(dim", "sum(dim")),
    ("summed over texts",
     "Your result is a sum over the sequences. Take their mean.",
     ("mean(dim=(0, -1))", "mean(dim=-1).sum(dim=0)")),
    ("first sequence only",
     "You use only the first sequence. Take the mean over all of them.",
     ("dim=(0, -1))", "dim=-1)[0]")),
    ("last sequence only",
     "You use only the last sequence. Take the mean over all of them.",
     ("dim=(0, -1))", "dim=-1)[-1]")),
    ("queries without weight left out",
     "Your mean leaves out queries with weight 0 on the previous token. Count them too.",
     ("before.mean(dim=(0, -1))",
      "before.sum(dim=(0, -1)) / (before > 0).sum(dim=(0, -1)).clamp(min=1)")),
    ("diagonal of B and H",
     "Your result is a diagonal over B and H. By default, `diagonal` uses the first two "
     "dimensions. Pass `dim1=-2, dim2=-1`.", ("-1, dim1=-2, dim2=-1", "-1")),
    ("all heads together",
     "You return one number for all heads. Return one number per head: take the mean over "
     "sequences and queries only.", ("dim=(0, -1)", "")),
    ("sequences kept apart",
     "You return one number for each sequence and head. Take the mean over the sequences as well.",
     ("dim=(0, -1)", "dim=-1")),
    ("heads averaged",
     "You return one number per sequence. Return one per head: take the mean over the sequences, "
     "not over the heads.",
     ("dim=(0, -1)", "dim=(1, -1)")),
    ("queries kept apart",
     "You return one number per query. Return one per head: take the mean over the sequences and "
     "the queries, dim=(0, -1).",
     ("dim=(0, -1)", "dim=(0, 1)")),
    ("query 1 left out",
     "Your mean leaves out query 1, which has a previous token. Take the mean over queries "
     "1 to L − 1.",
     ("before.mean", "before[..., 1:].mean")),
    ("last query left out",
     "Your mean leaves out the last query. Take the mean over queries 1 to L − 1.",
     ("before.mean", "before[..., :-1].mean")),
    ("positions of the lesson",
     "You use only the first 25 positions. There may be more here. Use all positions.",
     ("weights.diagonal", "weights[..., :25, :25].diagonal")),
    ("largest weight", LARGEST, "weights.amax(dim=-1).mean(dim=(0, -1))"),
    ("largest weight, without query 0", LARGEST,
     "weights[..., 1:, :].amax(dim=-1).mean(dim=(0, -1))"),
    ("previous token or itself",
     "You add up the weights on the previous token and on the query itself. Count only the weight "
     "on the previous token.",
     ("before.mean", "(before + weights.diagonal(0, dim1=-2, dim2=-1)[..., 1:]).mean")),
    ("neighbors on both sides",
     "You add up the weights on the previous and on the next token. Count only the weight on the "
     "previous token.",
     ("before.mean", "(before + weights.diagonal(1, dim1=-2, dim2=-1)).mean")),
    ("first key", FIRST_KEY, "weights[..., 0].mean(dim=(0, -1))"),
    ("first key, without query 0", FIRST_KEY, "weights[..., 1:, 0].mean(dim=(0, -1))"),
    ("how often strongest",
     "Your result says how often the previous token gets the largest weight. Return its mean "
     "weight.",
     ("before.mean", "(before == weights[:, :, 1:].amax(dim=-1)).float().mean")),
    ("query 0 on itself",
     "Your mean includes the weight of query 0 on itself. Query 0 has no previous token. Take the "
     "mean over queries 1 to L − 1.",
     ("before.mean(dim=(0, -1))",
      "(before.sum(dim=(0, -1)) + weights[..., 0, 0].sum(dim=0)) / weights[:, 0, :, 0].numel()")),
]  # fmt: skip

exercise = Exercise(
    "7.2", previous_token_score, inputs, MISTAKES, names="H", also_right=[by_loops, by_mask]
)
