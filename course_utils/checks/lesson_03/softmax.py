"""3.2: softmax along any dimension, for scores of any size and any number of them."""

import torch
import torch.nn.functional as F

from course_utils.checks.compare import read
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.lesson_03._scores import MANY, result_for_many, scores_and_dims


def softmax(x, dim=-1):
    m = x.amax(dim, keepdim=True)  # (..., 1, ...)
    e = (x.double() - m).exp()  # (..., n, ...), float64: exact differences, no small term lost
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
    exact = softmax(x.double(), *dim)
    if same_shape and x.dtype == torch.bfloat16 and ((got - exact).abs() < 0.02).all():
        if ((got / exact - 1).abs() > HALF_UNIT).any():
            raise NamedMistake("subtracted in half precision", ROUNDED_HINT, [weights])
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
    "Your weights are right to some digits, but their error is larger than rounding in float32 "
    "would cause. Once the maximum is subtracted, the sum is at least 1 and needs no epsilon. If "
    "you add a small number to the sum, leave it out."
)
# A weight of bfloat16 has 8 significant bits, so rounding it costs at most 2⁻⁸ of it.
HALF_UNIT = 1.02 * 2**-8
ROUNDED_HINT = (
    "Part 1 is right. But some of your bfloat16 weights are off by more than the rounding of the "
    "result. If you subtract in bfloat16, x − m is rounded too, and exp makes this error larger. "
    "Convert the scores to a wider format before you subtract: (x.double() - m).exp()."
)
SMALL = (
    "small weights lost",
    "Right, except for small weights, which are too large or replaced by 0. The exponential e^(x "
    "− m) may be tiny, and for a score of −inf it is exactly 0. Do not clamp x − m, and do not "
    "replace small exponentials.",
    ("(x.double() - m)", "(x.double() - m).clamp(min=-50)"),
)
NOT_MOVED_BACK = (
    "Right if dim is the last dimension. Otherwise, the dimensions of your result are in a "
    "different order from those of x. If you move dim to the end, move it back after softmax."
)
CLAMPED = (
    "Your result is what you get if every score below a limit, such as {}, is replaced by the "
    "limit. Then all these scores get the same weight. Leave low scores as they are, and "
    "subtract the maximum."
)
FINITE = (
    "A score of −inf gets weight in your result if the other scores of its row are very low. You "
    "get this result if you replace −inf with a finite number, such as {}. Keep −inf, because "
    "its exponential is exactly 0."
)
ABSOLUTE = (
    "Your result is what you get by subtracting the largest absolute value. In a row near −800, "
    "you subtract 800, all exponentials underflow to 0, and 0 / 0 is NaN.{} Subtract the maximum, "
    "with its sign."
)
MISTAKES = [
    ("through a log-sum-exp",
     "Your result is what you get with e^(x − lse) in the format of x. Near 20,000, float16 "
     "numbers are 16 apart, so lse is rounded, and the weights are wrong. Convert the scores to "
     "float64 before you compute lse and subtract it.",
     "(x - torch.logsumexp(x, dim, keepdim=True)).exp()"),
    ("nothing subtracted",
     "Your weights are NaN for large scores: e^1000 overflows to inf, and inf / inf is NaN. "
     "Convert the scores to a wider format, and subtract the largest score before exp: "
     "(x.double() - m).exp().",
     ("(x.double() - m)", "x")),
    ("only a wider format",
     "Right, unless a score is above 709 or all scores of a row are below −745. In float64, e^710 "
     "overflows to inf, and inf / inf is NaN. Likewise, e^−746 underflows to 0, and 0 / 0 is NaN. "
     "Subtract the largest score before exp.", ("(x.double() - m)", "x.double()")),
    ("calculated in float32",
     "For scores in float64, your result has the precision of float32, about 7 digits. Near 10⁶, "
     "float32 numbers are 0.06 apart, so scores that differ by 0.01 become equal. Calculate in "
     "float64 instead: x.double().",
     "torch.softmax(x.float(), dim).to(x.dtype)"),
    ("sum overflows",
     "Part 1 is right. But with 65,536 equal float16 scores, every exponential is 1, and their "
     "sum overflows, because it is larger than 65504. Calculate in a wider format, (x.double() - "
     "m).exp(), and convert the weights to the dtype of x at the end.",
     (".double()", "")),
    ("small exponentials lost in half precision",
     "Part 1 is right, and your sum does not overflow. But e^−17.4 is 0 in float16, although "
     "65,000 such terms add up to 0.002. Take exp in a wider format as well: (x.double() - "
     "m).exp().",
     (".double()", ""), ("sum(dim, keepdim=True)", "sum(dim, keepdim=True, dtype=torch.float64)")),
    ("added one by one in half precision",
     "Part 1 is right. But with 4096 equal float16 scores, every exponential is 1, and your sum "
     "of them stops at 2048, because 2048 + 1 rounds to 2048. Calculate in a wider format: "
     "(x.double() - m).exp().",
     (".double()", ""), ("e.sum(dim, keepdim=True)", "sum(e.unbind(dim)).unsqueeze(dim)")),
    ("one maximum for all",
     "Your result is what you get with one maximum for the whole tensor. If all scores of a row "
     "are far below it, all exponentials of the row underflow to 0, and 0 / 0 is NaN. Take the "
     "maximum along dim: x.amax(dim, keepdim=True).",
     ("x.amax(dim, keepdim=True)", "x.max()")),
    ("maximum along last",
     "Your result is what you get with a maximum along the last dimension, whatever dim is. "
     "Scores that share a sum must share a maximum. Take the maximum along dim.",
     ("amax(dim", "amax(-1")),
    ("maximum along first",
     "Your result is what you get with a maximum along the first dimension, whatever dim is. "
     "Scores that share a sum must share a maximum. Take the maximum along dim.",
     ("amax(dim", "amax(0")),
    ("sum along last",
     "Your result is what you get with a sum along the last dimension, whatever dim is. The "
     "weights must sum to 1 along dim, so sum along dim.",
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
     "Your result is what you get by subtracting the mean. If the largest score is far above the "
     "mean, its exponential still overflows. A score of −inf even makes the mean −inf. Subtract "
     "the maximum instead.",
     ("amax", "mean")),
    ("minimum subtracted",
     "Your result is what you get by subtracting the smallest score. Then the exponential of a "
     "score far above the smallest one overflows to inf, and inf / inf is NaN. Subtract the "
     "largest score instead.",
     ("amax", "amin")),
    ("largest absolute value subtracted",
     ABSOLUTE.format(""), ("x.amax", "x.masked_fill(x.isinf(), 0).abs().amax")),
    ("largest absolute value subtracted, even of −inf",
     ABSOLUTE.format(" If a score is −inf, you subtract inf, and its whole row is NaN."),
     ("x.amax", "x.abs().amax")),
    ("maximum not below 0",
     "Right, unless all scores of a row are far below 0. Then the number that you subtract is too "
     "high, all exponentials underflow to 0, and 0 / 0 is NaN. Subtract the maximum even if it is "
     "negative.",
     ("amax(dim, keepdim=True)", "amax(dim, keepdim=True).clamp(min=0)")),
    ("fixed number subtracted",
     "Your result is what you get by subtracting the same number from all scores. Scores far "
     "above this number still overflow. If all scores of a row are far below it, all exponentials "
     "underflow to 0. Subtract the maximum along dim.",
     ("x.amax(dim, keepdim=True)", "100")),
    ("divided by the maximum",
     "Your result is what you get by dividing the scores by the maximum, which changes the "
     "weights. Subtract the maximum instead.",
     ("(x.double() - m)", "(x.double() / m)")),
    ("sum not shifted",
     "Your result is what you get with e^(x − m) divided by the sum of e^x. Numerator and "
     "denominator must be relative to the same maximum. Use the same exponentials, e^(x − m), in "
     "the sum.",
     ("e.sum(", "x.exp().sum(")),
    ("epsilon in the sum",
     "Your weights are NaN where an exponential overflows, and 0 where all exponentials of a row "
     "underflow. If you add a small number to the sum, this only hides 0 / 0, so leave it out. "
     "Convert the scores to a wider format, and subtract the maximum along dim before exp. Then "
     "the sum is at least 1.",
     ("(x.double() - m)", "x"), ("e / total", "e / (total + 1e-9)")),
    ("nan replaced",
     "Your weights are 0 where an exponential overflows to inf. There, inf / inf is NaN, and you "
     "get 0 if you replace NaN with 0. Convert the scores to a wider format, and subtract the "
     "maximum along dim before exp. Then there is no NaN to replace.",
     ("(x.double() - m)", "x"), ("(e / total)", "(e / total).nan_to_num(0.0)")),
    ("scores clamped",
     "Your result is what you get if the scores are clamped to a range, such as −50 to 50. All "
     "scores beyond a limit become equal, so they get the same weight. Leave the scores as they "
     "are, and subtract the maximum.",
     "torch.softmax(x.clamp(-50, 50), dim)"),
    ("low scores clamped", CLAMPED.format("−10⁴"), "torch.softmax(x.clamp(min=-1e4), dim)"),
    ("very low scores clamped", CLAMPED.format("−10⁹"), "torch.softmax(x.clamp(min=-1e9), dim)"),
    ("−inf replaced by −100", FINITE.format("−100"),
     "torch.softmax(x.double().nan_to_num(neginf=-100), dim).to(x.dtype)"),
    ("−inf replaced by −65504", FINITE.format("−65504, the lowest number of float16"),
     "torch.softmax(x.double().nan_to_num(neginf=-65504), dim).to(x.dtype)"),
    ("−inf replaced by −10⁹", FINITE.format("−10⁹"),
     "torch.softmax(x.double().nan_to_num(neginf=-1e9), dim).to(x.dtype)"),
    ("dim swapped with the last", NOT_MOVED_BACK,
     "torch.softmax(x.double().transpose(dim, -1), -1).to(x.dtype)"),
    ("dim moved to the end", NOT_MOVED_BACK,
     "torch.softmax(x.double().movedim(dim, -1), -1).to(x.dtype)"),
    ("logarithms returned",
     "Your result contains the logarithms of the weights. Take exp once more.",
     "torch.log_softmax(x, dim)"),
    ("powers of 2",
     "Your result is what you get with 2^x instead of e^x. Use exp, not exp2.",
     (".exp()", ".exp2()")),
    ("not normalized",
     "Your result contains the exponentials. The weights must sum to 1 along dim, so divide them "
     "by their sum.", ("e / total", "e")),
    ("keepdim missing",
     "Your maximum or your sum is broadcast along the wrong dimension. Pass keepdim=True to both.",
     ("amax(dim, keepdim=True)", "amax(dim)"), (".double()", ""),
     ("sum(dim, keepdim=True)", "sum(dim)")),
    SMALL,
]  # fmt: skip

exercise = Exercise(
    "3.2", softmax, scores_and_dims, MISTAKES, run=small_ones_too, differentiable=True,
    also_right=[lambda x, dim=-1: F.softmax(x, dim=dim), one_pass],
)  # fmt: skip
