"""8.8: other weights that give the very same output, as far from the given ones as can be."""

import torch

from course_utils.checks.compare import read
from course_utils.checks.exercise import Complaint, Exercise, call_with_clones
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_08.js_divergence import js_divergence


def other_picture(weights, v):
    kept = torch.cat([v, torch.ones_like(v[:, :1])], dim=1)  # (S, d_v + 1), output and sum
    line = torch.linalg.svd(kept).U[:, -1]  # (S,), line @ kept = 0

    def end(line):
        room = torch.where(line < 0, weights / -line, torch.inf)  # (L, S), until a weight is 0
        step = room.amin(dim=-1, keepdim=True)  # (L, 1)
        return (weights + step * line).clamp(min=0)  # (L, S), a rounding below 0 is 0

    one, other = end(line), end(-line)
    apart = js_divergence(weights, one), js_divergence(weights, other)  # (L,) each
    farther = apart[0] > apart[1]  # (L,)
    return torch.where(farther[:, None], one, other)


def inputs():
    """Return (weights, v), with S = d_v + 2, so that the other weights lie on one line."""
    normal = normals(88)

    def case(L, d_v, sharp=1.0):
        return (sharp * normal(L, d_v + 2)).softmax(dim=-1), normal(d_v + 2, d_v)

    return [case(4, 3), case(6, 5, 2.0), case(1, 2), case(9, 1), case(5, 7, 0.5), case(3, 4, 1.5)]


def run(answer, weights, v):
    """Call an answer; complain if what it returns are no weights, or give another output."""
    found = call_with_clones(answer, weights, v)
    got = read(found[0])
    if got is None or got.shape != weights.shape:
        return found
    got = got.double()
    for wrong, complaint in (
        ((got.sum(dim=-1) - 1).abs().max() > 1e-4, SUM),
        (got.min() < -1e-6, NEGATIVE),
        ((got @ v - weights @ v).abs().max() > 1e-4, OUTPUT),
    ):
        if wrong:
            raise Complaint(*complaint)
    return found


SUM = (
    "sum not kept",
    "the new weights do not sum to 1: what you add must sum to 0, one more condition beside those "
    "of the output (put a column of ones beside v)",
)
NEGATIVE = (
    "negative weights",
    "some weights are negative, which softmax never gives: stop where the first one reaches 0",
)
OUTPUT = (
    "another output",
    "the output is another one: what you add, times v, must be 0 in all d_v columns",
)

NEARER = "to one end of the line, but for some queries the other end is farther, by 8.3's measure"

MISTAKES = [
    (*SUM, ("torch.cat([v, torch.ones_like(v[:, :1])], dim=1)", "v")),
    (*NEGATIVE, ("room.amin(dim=-1, keepdim=True)", "2 * room.amin(dim=-1, keepdim=True)"),
     (".clamp(min=0)", "")),
    (*OUTPUT, ("torch.linalg.svd(kept).U[:, -1]", "torch.linalg.svd(kept).U[:, -1].roll(1)")),
    ("nothing changed", "these are the weights given: other ones are asked", "weights"),
    ("nearer end", "to the nearer end of the line: go the other way, as far as it takes you",
     ("apart[0] > apart[1]", "apart[0] < apart[1]")),
    ("one way for all", NEARER + ": each query has a farther end of its own",
     ("farther[:, None]", "farther[:1, None]")),
    ("longer step", NEARER + "; you took the longer step, which is not always the farther",
     ("apart = js_divergence(weights, one), js_divergence(weights, other)",
      "apart = (weights - one).abs().sum(-1), (weights - other).abs().sum(-1)")),
    ("one step for all", "the same step is taken for all queries: each can go until the first of "
     "its own weights is 0", ("room.amin(dim=-1, keepdim=True)", "room.amin()")),
    ("half way", "on the right line, but not to its end: go on until the first weight is 0",
     ("step * line", "step / 2 * line")),
]  # fmt: skip

exercise = Exercise("8.8", other_picture, inputs, MISTAKES, names="L S", run=run)
