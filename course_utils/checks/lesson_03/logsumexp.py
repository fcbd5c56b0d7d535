"""3.3: log Σ e^x along any dimension."""

import torch

from course_utils.checks.compare import difference, read
from course_utils.checks.exercise import Complaint, Exercise, call_with_clones
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_03.logits import INF, MANY, logits_and_dims, survives_many


def logsumexp(x, dim=-1):
    m = x.amax(dim, keepdim=True)  # (..., 1, ...)
    m = m.masked_fill(m == -torch.inf, 0)  # nothing allowed: subtract nothing
    e = (x - m).exp()  # (..., n, ...)
    total = e.sum(dim, dtype=torch.float64)  # (...), any number of terms
    return (m.squeeze(dim) + total.log()).to(x.dtype)  # (...)


def inputs():
    empty = normals(41)(4, 5)
    empty[0, 1:], empty[2] = -INF, -INF
    far = torch.tensor([[-INF, -INF], [1000.0, 999], [-800, -800]]).double()
    return [*logits_and_dims(), (empty, -1), (far, -1), (far.T.float(), 0)]


def to_the_digits_of_float64(answer, x, *dim):
    """Return the result; complain if it has the digits of float32 alone.

    The gradient at nothing but −inf is left open, for PyTorch's is NaN.
    """
    if x.shape[-1] == MANY:
        run = to_the_digits_of_float64
        return [survives_many(run, answer, logsumexp, inputs(), x, *dim)]
    right = logsumexp(x, *dim)
    [result] = call_with_clones(answer, x.detach() if right.isneginf().any() else x, *dim)
    if x.dtype == torch.float64 and difference(result, right) is None:
        if ((read(result) - right).abs() > 1e-3).any():
            raise Complaint(SINGLE[0], SINGLE[1])
    return [result]


SINGLE = (
    "calculated in float32",
    "right to 7 digits, as from float32: near 10⁶ that leaves log-sum-exps off by some "
    "hundredths, and so all weights made from them; keep the dtype of x",
    ("m = x.amax", "x = x.float(); m = x.amax"),
)
MISTAKES = [
    ("no maximum taken out",
     "large logits give inf, very low ones −inf: take the maximum out of the sum first",
     ("masked_fill(m == -torch.inf, 0)", "mul(0).nan_to_num(0)")),
    ("only a wider format for the sum",
     "in float64 the edge is e^710, and e^1000 still lies beyond: take the maximum out of the sum",
     "x.double().exp().sum(dim).log().to(x.dtype)"),
    ("sum overflows",
     "right but for many logits: 65,536 powers of 1 add up to more than float16 can hold; add them "
     "in a wider format, e.sum(dim, dtype=torch.float64), and end in the dtype of x",
     ("(dim, dtype=torch.float64)", "(dim)")),
    ("added one by one in half precision",
     "right but for many logits in half precision: added one by one in float16, the sum of 4096 "
     "ones stops at 2048 or before, for small terms are rounded away; add in a wider format",
     ("e.sum(dim, dtype=torch.float64)", "sum(e.unbind(dim))")),
    ("maximum not added back",
     "the maximum was subtracted and not added back: lse = m + log Σ e^(x − m)",
     ("m.squeeze(dim) + total", "total")),
    ("maximum subtracted twice",
     "the maximum is subtracted once more where it should be added back",
     ("(m.squeeze(dim) + total.log())", "(total.log() - m.squeeze(dim))")),
    ("nan for an empty row",
     "a row of nothing but −inf gives NaN, from −inf − (−inf); its log-sum-exp is −inf: subtract 0 "
     "where the maximum is infinite", ("m.masked_fill(m == -torch.inf, 0)", "m")),
    ("no maximum beside an empty row",
     "one row of nothing but −inf takes the maximum from all rows: put 0 in its own place alone, "
     "with masked_fill or torch.where",
     ("m.masked_fill(m == -torch.inf, 0)", "m * 0 if (m == -torch.inf).any() else m"),
     ("m.squeeze(dim)", "m.nan_to_num(0).squeeze(dim)"), ("(x - m)", "(x - m.nan_to_num(0))")),
    ("−inf taken for 0",
     "−inf is replaced by 0 before the maximum is taken, which is too large then where all others "
     "lie below 0, and their powers vanish: replace an infinite maximum instead",
     ("x.amax", "x.masked_fill(x == -torch.inf, 0).amax")),
    ("maximum not below 0",
     "right where a logit is above 0; all logits may lie far below: subtract their maximum then "
     "too, though it is negative",
     ("amax(dim, keepdim=True)", "amax(dim, keepdim=True).clamp(min=0)")),
    ("largest absolute value taken out",
     "the largest absolute value is taken out: a row near −800 is pushed down to −1600 and all "
     "its powers are 0; take the maximum with its sign",
     ("x.amax", "x.abs().amax")),
    ("minimum taken out",
     "the smallest logit is taken out: that makes all powers larger; take out the largest",
     ("x.amax", "x.amin")),
    ("one maximum for all sums",
     "one maximum for the whole tensor: a slice far below it underflows to log 0",
     "x.max() + (x - x.max()).exp().sum(dim).log()"),
    ("only the maximum", "that is the maximum; the other logits count too: + log Σ e^(x − m)",
     "x.amax(dim)"),
    ("log of the mean",
     "that is the logarithm of the mean power; the sum is asked, so do not divide by n",
     ("total.log()", "(total / x.shape[dim]).log()")),
    ("log missing", "the logarithm is missing: take the log of the sum, then add the maximum",
     ("total.log()", "total")),
    ("always along the last", "dim is not used: it always sums along the last dimension",
     lambda x, dim=-1: logsumexp(x, -1)),
    ("another default", "right wherever dim is given; without it, it should sum along the last "
     "dimension: keep dim=-1 in the line with `def`", lambda x, dim=0: logsumexp(x, dim)),
    ("dim kept",
     "dim is still there with size 1: end with .squeeze(dim), or sum without keepdim",
     (".to(x.dtype)", ".to(x.dtype).unsqueeze(dim)")),
    ("every 1 squeezed",
     "squeeze() drops every dimension of size 1, also one that should stay: name it, squeeze(dim)",
     (".to(x.dtype)", ".to(x.dtype).squeeze()")),
    ("everything summed", "one number for everything: sum along dim",
     lambda x, dim=-1: logsumexp(x.flatten(), 0)),
    ("log softmax returned",
     "that is the log-softmax, a value for each logit; one for each slice is asked",
     "torch.log_softmax(x, dim)"),
    SINGLE,
]  # fmt: skip

exercise = Exercise(
    "3.3", logsumexp, inputs, MISTAKES, run=to_the_digits_of_float64, differentiable=True
)
