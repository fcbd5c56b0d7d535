"""3.2: the softmax along any dimension, for logits of any size and number."""

import torch
import torch.nn.functional as F

from course_utils.checks.compare import read
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.lesson_03._logits import MANY, logits_and_dims, survives_many


def softmax(x, dim=-1):
    m = x.amax(dim, keepdim=True)  # (..., 1, ...)
    e = (x - m).double().exp()  # (..., n, ...), in float64 small powers count as well
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
    """Return the weights; complain if all are right but the small ones, measured by themselves."""
    if x.shape[-1] == MANY:
        return [survives_many(answer, softmax, logits_and_dims(), x, *dim)]
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
    """Return whether no weight is far off, on any input."""
    pairs = [
        (read(call_with_clones(answer, *args)[0]), softmax(*args))
        for args in logits_and_dims()
        if args[0].shape[-1] < MANY
    ]
    return all(
        got is not None and got.shape == right.shape and ((got - right).abs() < 0.02).all()
        for got, right in pairs
    )


# What rounding in float32 stays below: (n + 4)·2⁻²⁴ of a weight, n being few or all weights small.
EPSILON = 8e-7
EPSILON_HINT = (
    "right to some digits, but farther off than even float32 rounds: is a small number added to "
    "the sum (an eps)? Once the maximum is subtracted the sum is at least 1 and needs none"
)
SMALL = (
    "small weights lost",
    "right but for small weights, which are replaced or cut off: e^(x − m) may be as small as it "
    "is, and is 0 at −inf by itself",
    ("(x - m)", "(x - m).clamp(min=-50)"),
)
ABSOLUTE = (
    "the largest absolute value is subtracted: a row near −800 is pushed down to −1600 and all its "
    "powers are 0; subtract the maximum with its sign"
)
MISTAKES = [
    ("nothing subtracted",
     "large logits give NaN: e^1000 is infinite; subtract the largest logit first",
     ("(x - m).double()", "x")),
    ("only a wider format",
     "calculating in float64 moves the edge to e^710 and does not remove it: subtract the largest "
     "logit first", ("(x - m)", "x")),
    ("calculated in float32",
     "calculated in float32, which has 7 digits: float64 logits that differ a little near 10⁶ "
     "become the same; keep the dtype of x", "torch.softmax(x.float(), dim).to(x.dtype)"),
    ("sum overflows",
     "right but for many logits: 65,536 powers of 1 add up to more than float16 can hold; make and "
     "add the powers in a wider format, (x - m).double().exp(), and end in the dtype of x",
     (".double()", "")),
    ("small powers lost in half precision",
     "right but for many low logits in half precision: e^−17.4 is 0 in float16, and 65,000 of them "
     "add up to 0.002; make and add the powers in a wider format, (x - m).double().exp()",
     (".double()", ""), ("sum(dim, keepdim=True)", "sum(dim, keepdim=True, dtype=torch.float64)")),
    ("added one by one in half precision",
     "right but for many logits in half precision: added one by one in float16, the sum of 4096 "
     "ones stops at 2048, for 2048 + 1 is rounded to 2048; add in a wider format, x.double()",
     (".double()", ""), ("e.sum(dim, keepdim=True)", "sum(e.unbind(dim)).unsqueeze(dim)")),
    ("one maximum for all",
     "one maximum is subtracted from the whole tensor: a row far below it underflows to 0 / 0; "
     "take the maximum along dim, x.amax(dim, keepdim=True)",
     ("x.amax(dim, keepdim=True)", "x.max()")),
    ("maximum along last",
     "the maximum is taken along the last dimension whatever dim says: subtract the same number "
     "from all logits that share a sum", ("amax(dim", "amax(-1")),
    ("maximum along first",
     "the maximum is taken along the first dimension whatever dim says: subtract the same number "
     "from all logits that share a sum", ("amax(dim", "amax(0")),
    ("sum along last", "the sum is taken along the last dimension whatever dim says",
     ("sum(dim", "sum(-1")),
    ("dim ignored", "dim is not used: it always works along the last dimension",
     "torch.softmax(x, -1)"),
    ("always first dim", "dim is not used: it always works along the first dimension",
     "torch.softmax(x, 0)"),
    ("another default", "right wherever dim is given; without it, it should work along the last "
     "dimension: keep dim=-1 in the line with `def`", lambda x, dim=0: torch.softmax(x, dim)),
    ("one sum for all", "all weights together sum to 1; each slice along dim should: e.sum(dim, "
     "...)", ("e.sum(dim, keepdim=True)", "e.sum()")),
    ("mean subtracted",
     "the mean is subtracted; where logits spread, the largest still overflows: amax",
     ("amax", "mean")),
    ("minimum subtracted",
     "the smallest logit is subtracted: that makes all powers larger; subtract the max",
     ("amax", "amin")),
    ("largest absolute value subtracted",
     ABSOLUTE, ("x.amax", "x.masked_fill(x.isinf(), 0).abs().amax")),
    ("largest absolute value subtracted, also of −inf", ABSOLUTE + " (that of −inf is infinite)",
     ("x.amax", "x.abs().amax")),
    ("maximum not below 0",
     "right where a logit is above 0; all logits may lie far below: subtract their maximum then "
     "too, though it is negative",
     ("amax(dim, keepdim=True)", "amax(dim, keepdim=True).clamp(min=0)")),
    ("fixed number subtracted",
     "a fixed number only moves the edge, and low logits now underflow: subtract the maximum of "
     "each slice", ("x.amax(dim, keepdim=True)", "100")),
    ("divided by the maximum",
     "the logits are divided by the maximum, which changes the weights; subtract it",
     ("(x - m)", "(x / m)")),
    ("sum not shifted",
     "the maximum is subtracted above and not in the sum below: divide by the sum of the powers "
     "that stand above", ("e.sum(", "x.exp().sum(")),
    ("epsilon in the sum",
     "a small number added to the sum hides 0 / 0 and mends nothing: subtract the maximum, then "
     "the sum is at least 1", ("(x - m).double()", "x"), ("e / total", "e / (total + 1e-9)")),
    ("nan replaced",
     "NaN is replaced afterwards by 0; the weights are lost: subtract the maximum before",
     ("(x - m).double()", "x"), ("(e / total)", "(e / total).nan_to_num(0.0)")),
    ("logits clamped",
     "the logits are cut off at a limit: those above it all get the same weight; subtract instead",
     "torch.softmax(x.clamp(-50, 50), dim)"),
    ("low logits clamped",
     "the logits are cut off at a limit from below: those under it all get the same weight",
     "torch.softmax(x.clamp(min=-1e4), dim)"),
    ("logarithms returned", "those are the logarithms of the weights; take exp once more",
     "torch.log_softmax(x, dim)"),
    ("not normalised", "those are the powers; divide them by their sum", ("e / total", "e")),
    ("keepdim missing", "keepdim=True is missing: the maximum or the sum meets the wrong dimension",
     ("amax(dim, keepdim=True)", "amax(dim)"), (".double()", ""),
     ("sum(dim, keepdim=True)", "sum(dim)")),
    SMALL,
]  # fmt: skip

exercise = Exercise(
    "3.2", softmax, logits_and_dims, MISTAKES, run=small_ones_too, differentiable=True,
    also_right=[lambda x, dim=-1: F.softmax(x, dim=dim), one_pass],
)  # fmt: skip
