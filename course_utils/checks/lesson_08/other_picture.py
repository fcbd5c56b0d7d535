"""8.9: the most different weights that give exactly the same outputs."""

import numpy as np
import torch

from course_utils.checks.compare import read
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import Results, normals
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


def by_solving(weights, v):
    """Fix the change of the last key, solve for the others, and try both ways for each query."""
    kept = torch.cat([torch.ones(len(v), 1, dtype=v.dtype), v], dim=1).T  # (d_v + 1, S)
    line = torch.cat([torch.linalg.solve(kept[:, :-1], -kept[:, -1]), torch.ones(1)])
    rows = []
    for row in weights:
        ends = []
        for way in (line, -line):
            step = min(w / -n for w, n in zip(row, way, strict=True) if n < 0)
            ends.append((row + step * way).abs())
        rows.append(max(ends, key=lambda end: js_divergence(row, end)))
    return torch.stack(rows)


def in_numpy(weights, v):
    w, v = weights.numpy(), v.numpy()
    line = np.linalg.svd(np.vstack([v.T, np.ones(len(v))]))[2][-1]  # (S,)
    steps = -w / line  # (L, S), where each weight becomes 0
    far = np.where(steps > 0, steps, np.inf).min(1), np.where(steps < 0, steps, -np.inf).max(1)
    ends = [torch.from_numpy(np.maximum(w + step[:, None] * line, 0)) for step in far]
    apart = [js_divergence(weights, end) for end in ends]
    return torch.where((apart[0] > apart[1])[:, None], *ends)


def inputs():
    """Return (weights, v), with S = d_v + 2, so that the other weights lie on a line.

    The last one has many queries, because rounding below 0 gives NaN only in some of them.
    """
    normal = normals(88)

    def case(L, d_v, sharp=1.0):
        return (sharp * normal(L, d_v + 2)).softmax(dim=-1), normal(d_v + 2, d_v)

    small = [case(4, 3), case(6, 5, 2.0), case(1, 2), case(9, 1), case(5, 7, 0.5), case(3, 4, 1.5)]
    return [*small, case(300, 6)]


def run(answer, weights, v):
    """Call an answer; name the mistake if it returns other weights than those of the right end."""
    with Results() as results:
        found = call_with_clones(answer, weights, v)
    got = read(found[0])
    if got is None or got.shape != weights.shape:
        return found
    got = got.double()
    summed = (got.sum(dim=-1) - 1).abs().max() < 1e-4
    kept = (got @ v - weights @ v).abs().max() < 1e-4
    for wrong, complaint in (
        (not got.isfinite().all(), INFINITE),
        (not summed and not kept, LINE),
        (not summed, SUM),
        (got.min() < -1e-6, NEGATIVE),
        (not kept, OUTPUT),
    ):
        if wrong:
            raise NamedMistake(*complaint)
    way = other_picture(weights.detach(), v.detach()) - weights.detach()  # (L, S), to the right end
    change = got - weights.detach()  # (L, S), all are multiples of one line
    if change.abs().max() > 1e-6 and (got.amin(dim=-1) > END).any():
        steps = change @ way[0] / way[0].norm()  # (L,)
        ways = [steps[steps > 0], steps[steps < 0]]
        if len(steps) > 2 and all(len(w) == 0 or w.max() - w.min() < 1e-5 for w in ways):
            raise NamedMistake(*ONE_STEP)
        raise NamedMistake(*NOT_END)
    step = torch.where(way > 0, weights / way, torch.inf).amin(dim=-1, keepdim=True)  # backwards
    near = torch.isclose(got, weights - step * way, atol=1e-4).all(dim=-1)  # (L,)
    far = torch.isclose(got, weights + way, atol=1e-4).all(dim=-1)
    if (near | far).all() and near.any() and far.any():
        if any(made.is_floating_point() and made.isnan().any() for made in results.made):
            raise NamedMistake(*NAN)
        ways = change @ way[0]  # (L,)
        if len(ways) > 9 and ((ways > 0).all() or (ways < 0).all()):  # with few it may be chance
            raise NamedMistake(*SAME)
    return found


SUM = (
    "sum not kept",
    "The outputs are kept, but your new weights do not sum to 1. What you add must also sum to 0. "
    "Put a column of ones beside v, and find a direction whose product with this matrix is 0.",
)
LINE = (
    "not on the line",
    "Your new weights preserve neither the outputs nor the row sums. Put a column of ones beside "
    "v. What you add to the weights, times this matrix (S, d_v + 1), must be 0. Take the last "
    "column of U in the full SVD of this matrix (or the last row of Vh if you decompose its "
    "transpose). Do not clamp the new weights at a positive number, because that changes the "
    "outputs.",
)
INFINITE = (
    "infinite weights",
    "Your new weights contain NaN or infinity. Only weights that shrink limit the step, so "
    "ignore those to which something is added.",
)
NEGATIVE = (
    "negative weights",
    "Some of your weights are negative, but softmax never returns a negative weight. Stop where "
    "the first weight reaches 0.",
)
OUTPUT = (
    "another output",
    "Your weights sum to 1, but they give another output. What you add, times v, must be 0 in all "
    "d_v columns.",
)
ONE_STEP = (
    "one step for all",
    "You take the same step for all queries. Each query has its own limit: go on until the first "
    "of its weights is 0.",
)
NOT_END = (
    "not at an end",
    "Your new weights keep the outputs and the sums, but for some queries they are not at an end "
    "of the line. Go on exactly until the first weight is 0.",
)
NAN = (
    "divergence is NaN",
    "Your result is an end of the line, but for some queries the wrong one, and NaN occurs in "
    "the computation. At an end, a weight is 0 or, because of rounding, slightly below. The "
    "logarithm of a negative number is NaN, and so is 0 · log 0. Clamp the ends at 0, and use "
    "torch.xlogy, as in 8.3.",
)

END = 6e-5  # at an end, a weight is at most this, which a right answer may be off
NEARER = (
    "Your result is an end of the line, but for some queries the other end is farther away by "
    "the measure of 8.3. "
)
SAME = (
    "one way for all",
    "All queries go the same way along the line in your result. Choose the farther end for each "
    "query. (KL(given ‖ end) is infinite at both ends, so it cannot tell which one is farther.)",
)
APART = "apart = js_divergence(weights, one), js_divergence(weights, other)"

MISTAKES = [
    (*SUM, ("torch.cat([v, torch.ones_like(v[:, :1])], dim=1)", "v")),
    (*LINE, (".U[:, -1]", ".U[:, 0].abs() * torch.arange(-1.0, len(v) - 1)")),
    (*INFINITE, ("torch.where(line < 0, weights / -line, torch.inf)", "torch.where(line < 0, "
     "weights / -line, torch.nan)")),
    (*NEGATIVE, ("room.amin(dim=-1, keepdim=True)", "2 * room.amin(dim=-1, keepdim=True)"),
     (".clamp(min=0)", "")),
    (*OUTPUT, ("torch.linalg.svd(kept).U[:, -1]", "torch.linalg.svd(kept).U[:, -1].roll(1)")),
    ("nothing changed",
     "Your result is the given weights. Return other weights that give the same outputs.",
     "weights"),
    ("nearer end",
     "Your result is the nearer end of the line. Go the other way, to the farther end.",
     ("apart[0] > apart[1]", "apart[0] < apart[1]")),
    (*NAN, (APART, "entropy = lambda p: -(p * p.log()).sum(dim=-1)\n    apart = [entropy((weights "
     "+ p) / 2) - entropy(p) / 2 for p in (one, other)]")),
    (*SAME, ("farther[:, None]", "farther[:1, None]")),
    ("longer step",
     NEARER
     + "Your result fits the end with the larger sum of absolute differences. Choose by the "
     "divergence instead.",
     (APART, "apart = (weights - one).abs().sum(-1), (weights - other).abs().sum(-1)")),
    ("kl for js",
     NEARER
     + "Your result fits the measure KL(end ‖ given). Compare the end and the given weights each "
     "with their mean, as in 8.3.",
     (APART, "apart = [torch.xlogy(p, p / weights).sum(-1) for p in (one, other)]")),
    ("kl with zeros dropped",
     NEARER
     + "Your result fits KL(given ‖ end) without the key where the end is 0. Compare the end and "
     "the given weights each with their mean, as in 8.3.",
     (APART, "apart = [torch.xlogy(weights, weights / p).where(p > 0, 0).sum(-1) for p in (one, "
      "other)]")),
    ("lower entropy",
     NEARER
     + "Your result fits the end with the lower entropy. Choose by the divergence instead.",
     (APART, "apart = [-torch.special.entr(p).sum(-1) for p in (one, other)]")),
    ("sharper end",
     NEARER
     + "Your result fits the end with the largest weight. Choose by the divergence instead.",
     (APART, "apart = one.amax(-1), other.amax(-1)")),
    (*ONE_STEP, ("room.amin(dim=-1, keepdim=True)", "room.amin()")),
    (*NOT_END, ("step * line", "step / 2 * line")),
]  # fmt: skip

exercise = Exercise(
    "8.9", other_picture, inputs, MISTAKES, names="L S", run=run, also_right=[by_solving, in_numpy]
)
