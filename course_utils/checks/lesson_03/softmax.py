"""3.2: softmax along any dimension, for scores of any size and any number of them."""

import torch
import torch.nn.functional as F

from course_utils.checks.compare import read
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.lesson_03._scores import MANY, result_for_many, scores_and_dims


def softmax(x, dim=-1):
    m = x.amax(dim, keepdim=True)  # (..., 1, ...)
    e = (x - m).double().exp()  # (..., n, ...), in float64, where small terms are not lost
    total = e.sum(dim, keepdim=True)  # (..., 1, ...), any number of terms
    return (e / total).to(x.dtype)  # (..., n, ...)


def one_pass(x, dim=-1):
    x = x.double().movedim(dim, 0)
    m, ell = torch.full_like(x[0], -torch.inf), torch.zeros_like(x[0])
    for row in x:
        new = torch.maximum(m, row)
        base = torch.where(new == -torch.inf, 0.0, new)
        ell, m = ell * (m - base).exp() + (row - base).exp(), new
    return ((x - m).exp() / ell).movedim(0, dim)


def small_ones_too(answer, x, *dim):
    """Return the weights; complain if only the small ones are wrong, relative to their size."""
    if x.shape[-1] == MANY:
        return [result_for_many(answer, softmax, scores_and_dims(), x, *dim)]
    [weights] = call_with_clones(answer, x, *dim)
    got, right = read(weights), softmax(x, *dim)
    same_shape = got is not None and got.shape == right.shape
    if same_shape and x.dtype == torch.float64 and ((got - right).abs() < 0.002).all():
        if (got - right).abs().max() > EPSILON:
            raise NamedMistake("epsilon in a sum of 1 or more", EPSILON_HINT, [weights])
        off = (got / right - 1).abs() > 0.01
        lost = (off & (right > 1e-30)).any() or got[x == -torch.inf].any()
        if lost and nearly_right(answer):
            raise NamedMistake(SMALL[0], SMALL[1])
    return [weights]


def nearly_right(answer):
    """Return whether all weights are roughly right, on all inputs."""
    pairs = [
        (read(call_with_clones(answer, *args)[0]), softmax(*args))
        for args in scores_and_dims()
        if args[0].shape[-1] < MANY
    ]
    return all(
        got is not None and got.shape == right.shape and ((got - right).abs() < 0.02).all()
        for got, right in pairs
    )


# Rounding in float32 costs less: (n + 4)·2⁻²⁴ of a weight, where n or all weights are small.
EPSILON = 8e-7
EPSILON_HINT = (
    "Your weights are right to some digits, but their error is larger than that of float32. Once "
    "the maximum is subtracted, the sum is at least 1. If you add a small number (an epsilon) to "
    "the sum, leave it out."
)
SMALL = (
    "small weights lost",
    "Right, except for small weights, which are replaced or cut off. e^(x − m) may be tiny, and at "
    "−inf it is 0 by itself. Leave the exponentials as they are.",
    ("(x - m)", "(x - m).clamp(min=-50)"),
)
ABSOLUTE = (
    "Your result is what you get by subtracting the largest absolute value. A row near −800 is "
    "moved to −1600, where all its exponentials are 0. Subtract the maximum, with its sign."
)
MISTAKES = [
    ("through a log-sum-exp",
     "Your weights are wrong for large scores in float16. They match e^(x − lse), and near 20,000 "
     "a float16 lse is rounded to a multiple of 16. Subtract the maximum, not the log-sum-exp.",
     "(x - torch.logsumexp(x, dim, keepdim=True)).exp()"),
    ("nothing subtracted",
     "Your weights are NaN for large scores, because e^1000 is infinite. Subtract the largest "
     "score before taking exp.",
     ("(x - m).double()", "x")),
    ("only a wider format",
     "Your result overflows only for very large scores, as in float64, where the limit is e^710. "
     "Subtract the largest score first.", ("(x - m)", "x")),
    ("calculated in float32",
     "Your result has the precision of float32, about 7 digits. In float32, scores near 10⁶ that "
     "differ by 0.01 become equal. Keep the dtype of x, or use a wider one.",
     "torch.softmax(x.float(), dim).to(x.dtype)"),
    ("sum overflows",
     "Part 1 is right. With 65,536 scores in float16, your sum overflows, because it exceeds "
     "65504. Compute and add the exponentials in a wider format, (x.double() - m).exp(), and "
     "return the dtype of x.",
     (".double()", "")),
    ("small exponentials lost in half precision",
     "Part 1 is right, and your sum does not overflow. But e^−17.4 is 0 in float16, although "
     "65,000 such terms add up to 0.002. Take exp in a wider format as well: (x.double() - "
     "m).exp().",
     (".double()", ""), ("sum(dim, keepdim=True)", "sum(dim, keepdim=True, dtype=torch.float64)")),
    ("added one by one in half precision",
     "Part 1 is right. With many scores in float16, your sum of 4096 ones stops at 2048, because "
     "2048 + 1 rounds to 2048. Add in a wider format: x.double().",
     (".double()", ""), ("e.sum(dim, keepdim=True)", "sum(e.unbind(dim)).unsqueeze(dim)")),
    ("one maximum for all",
     "Your result is what you get with one maximum for the whole tensor. In a row far below it, "
     "all "
     "exponentials are 0, and 0 / 0 is NaN. Take the maximum along dim: x.amax(dim, keepdim=True).",
     ("x.amax(dim, keepdim=True)", "x.max()")),
    ("maximum along last",
     "Your result is what you get with a maximum along the last dimension, whatever dim is. "
     "Scores that share "
     "a sum must share a maximum. Take it along dim.", ("amax(dim", "amax(-1")),
    ("maximum along first",
     "Your result is what you get with a maximum along the first dimension, whatever dim is. "
     "Scores that share "
     "a sum must share a maximum. Take it along dim.", ("amax(dim", "amax(0")),
    ("sum along last",
     "Your result is what you get with a sum along the last dimension, whatever dim is. Sum along "
     "dim.",
     ("sum(dim", "sum(-1")),
    ("dim ignored",
     "Your weights sum to 1 along the last dimension, whatever dim is. Take both the maximum and "
     "the sum along dim.",
     "torch.softmax(x, -1)"),
    ("always first dim",
     "Your weights sum to 1 along the first dimension, whatever dim is. Take both the maximum and "
     "the sum along dim.",
     "torch.softmax(x, 0)"),
    ("another default",
     "Right whenever dim is given. Without it, softmax must work along the last dimension. Keep "
     "dim=-1 in the line with `def`.", lambda x, dim=0: torch.softmax(x, dim)),
    ("one sum for all",
     "All your weights together sum to 1. Each slice along dim must sum to 1. Use e.sum(dim, "
     "keepdim=True).", ("e.sum(dim, keepdim=True)", "e.sum()")),
    ("mean subtracted",
     "Your result is what you get by subtracting the mean. If the scores are spread out, the "
     "largest one still overflows. Subtract the maximum.",
     ("amax", "mean")),
    ("minimum subtracted",
     "Your result is what you get by subtracting the smallest score, which makes all exponentials "
     "larger. Subtract the largest.",
     ("amax", "amin")),
    ("largest absolute value subtracted",
     ABSOLUTE, ("x.amax", "x.masked_fill(x.isinf(), 0).abs().amax")),
    ("largest absolute value subtracted, even of −inf",
     ABSOLUTE + " (The absolute value of −inf is infinite.)",
     ("x.amax", "x.abs().amax")),
    ("maximum not below 0",
     "Right if some score is above 0. If all scores are far below 0, your exponentials are all 0. "
     "Subtract the maximum even when it is negative.",
     ("amax(dim, keepdim=True)", "amax(dim, keepdim=True).clamp(min=0)")),
    ("fixed number subtracted",
     "Your result is what you get by subtracting a fixed number. This only moves the overflow, "
     "and low scores now underflow. Subtract the maximum of each slice along dim.",
     ("x.amax(dim, keepdim=True)", "100")),
    ("divided by the maximum",
     "Your result is what you get by dividing the scores by the maximum, which changes the "
     "weights. Subtract the maximum instead.",
     ("(x - m)", "(x / m)")),
    ("sum not shifted",
     "Your result is what you get with e^(x − m) divided by the sum of e^x. Use the same "
     "exponentials, e^(x − "
     "m), in the sum.", ("e.sum(", "x.exp().sum(")),
    ("epsilon in the sum",
     "Your weights are NaN or 0 where the exponentials overflow or underflow. Adding a small "
     "number to the sum only hides 0 / 0. First subtract the maximum along dim from the scores. "
     "Then the sum is at least 1.",
     ("(x - m).double()", "x"), ("e / total", "e / (total + 1e-9)")),
    ("nan replaced",
     "Your weights are 0 where an exponential overflows. If you replace NaN after the division, "
     "the weights are already lost. Subtract the maximum before exp.",
     ("(x - m).double()", "x"), ("(e / total)", "(e / total).nan_to_num(0.0)")),
    ("scores clamped",
     "Your result is what you get if the scores are cut off at a limit. All scores beyond it get "
     "the same weight. Subtract the maximum instead.",
     "torch.softmax(x.clamp(-50, 50), dim)"),
    ("low scores clamped",
     "Your result is what you get if low scores are cut off at a limit. All scores below it get "
     "the same weight. Leave low scores as they are.",
     "torch.softmax(x.clamp(min=-1e4), dim)"),
    ("logarithms returned",
     "Your result contains the logarithms of the weights. Take exp once more.",
     "torch.log_softmax(x, dim)"),
    ("not normalized",
     "Your result contains the exponentials. Divide them by their sum.", ("e / total", "e")),
    ("keepdim missing",
     "Your maximum or your sum is aligned with the wrong dimension. Pass keepdim=True to both.",
     ("amax(dim, keepdim=True)", "amax(dim)"), (".double()", ""),
     ("sum(dim, keepdim=True)", "sum(dim)")),
    SMALL,
]  # fmt: skip

exercise = Exercise(
    "3.2", softmax, scores_and_dims, MISTAKES, run=small_ones_too, differentiable=True,
    also_right=[lambda x, dim=-1: F.softmax(x, dim=dim), one_pass],
)  # fmt: skip
