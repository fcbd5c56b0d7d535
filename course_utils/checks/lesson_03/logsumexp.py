"""3.3: log Σ n e^x along any dimension, of logits that stand n times each."""

import torch

from course_utils.checks.compare import difference, read
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_03._logits import INF, LOW, MANY, logits_and_dims


def logsumexp(x, counts, dim=-1):
    x = x.masked_fill(counts == 0, -torch.inf)  # (..., n, ...), what stands nowhere has no say
    m = x.amax(dim, keepdim=True)  # (..., 1, ...)
    m = m.masked_fill(m == -torch.inf, 0)  # nothing there: subtract nothing
    e = (x - m).double().exp()  # (..., n, ...), what is small in float16 may stand often
    total = (counts * e).sum(dim)  # (...), a count may be larger than float16 can hold
    return (m.squeeze(dim) + total.log()).to(x.dtype)  # (...)


def with_log_counts(x, counts, dim=-1):
    return torch.logsumexp(x + counts.log(), dim)


def one_logit_at_a_time(x, counts, dim=-1):
    m = torch.full_like(x.select(dim, 0), -INF)
    ell = torch.zeros_like(m).double()
    for value, n in zip(x.unbind(dim), counts.unbind(dim), strict=True):
        new = torch.where(n > 0, torch.maximum(m, value), m)
        base = new.nan_to_num(neginf=0.0)
        term = torch.where(n > 0, value - base, -INF).double().exp() * n
        m, ell = new, ell * (m - base).double().exp() + term
    return (m + ell.log()).to(x.dtype)


def inputs():
    rng = torch.Generator().manual_seed(41)

    def counted(x, most=6):
        """Return a count from 0 for each logit, in every row along every dimension one above 0."""
        counts = torch.randint(0, most, x.shape, generator=rng)
        return counts.where((counts > 0) | (x < x.median()), 1)

    pairs = [(x, counted(x), *dim) for x, *dim in logits_and_dims() if x.shape[-1] < MANY]
    empty = normals(41)(4, 5)
    empty[0, 1:], empty[2] = -INF, -INF
    some = torch.tensor([[3, 1, 4, 1, 5], [9, 0, 0, 2, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]])
    far = torch.tensor([[-INF, -INF], [1000.0, 999], [-800, -800]]).double()
    absent = torch.tensor([[1000.0, 1, 2], [-3, 700, 800], [0, -9000, -9001]]).double()
    shown = torch.tensor([[0, 1, 2], [3, 0, 0], [0, 1, 100_000]])
    half = torch.tensor([[0.0, 1, -2], [3, 3, 3]]).half()
    return [
        *pairs,
        (empty, some, -1),
        (far, torch.ones(3, 2, dtype=torch.int64), -1),
        (far.T.float(), torch.tensor([[0, 2, 3], [1, 0, 7]]), 0),
        (absent, shown, -1),  # what does not stand there is far above the rest
        (absent.T, shown.T, 0),
        (half, torch.tensor([[80_000, 3, 0], [40_000, 40_000, 40_000]]), -1),
        (torch.tensor([0, LOW]).half(), torch.tensor([1, 4_000_000]), -1),
    ]


def to_the_digits_of_float64(answer, x, counts, *dim):
    """Return the result; complain if it has the digits of float32 alone and is right otherwise, or
    is right but where nothing stands.

    The gradient where nothing stands is left open, for PyTorch's is NaN.
    """
    right = logsumexp(x, counts, *dim)
    given = x.detach() if right.isneginf().any() else x
    [result] = call_with_clones(answer, given, counts, *dim)
    nothing, got = right.isneginf(), read(result)  # which reads no plain number
    if x.dtype == torch.float64 and got is not None and difference(result, right) is None:
        if ((got - right).abs() > 1e-3).any():
            hint = (
                "right to 7 digits, as from float32: near 10⁶ that leaves log-sum-exps off by some "
                "hundredths, and so all weights made from them; keep the dtype of x"
            )
            raise NamedMistake("calculated in float32", hint, [result])
    if nothing.any() and got is not None and got.shape == right.shape:
        near = difference(got.where(~nothing, 0), right.double().where(~nothing, 0)) is None
        if near and got[nothing].isfinite().any():
            hint = (
                "where nothing stands the result is −inf, and yours is a number: let log 0 be "
                "−inf, with no small number added to the counts or the sum, and no limit set to "
                "them"
            )
            raise NamedMistake("finite where nothing stands", hint)
    return [result]


ABSENT = "    x = x.masked_fill(counts == 0, -torch.inf)"
MISTAKES = [
    ("counts not used", "the counts are not used: a logit that stands n times adds n e^x",
     (ABSENT, "    counts = torch.ones_like(counts)\n" + ABSENT)),
    ("counts only as 0 or not",
     "a logit counts once if it stands there at all; one that stands n times adds n e^x",
     ("counts * e", "(counts > 0) * e")),
    ("counts multiply the logits",
     "the counts multiply the logits: n e^x is not e^(n x); multiply the powers, or add log n",
     ("(x - m)", "(counts * x - m).nan_to_num(neginf=-torch.inf)"),
     ("counts * e", "e"), ("m = x.amax", "m = (counts * x).nan_to_num(neginf=-torch.inf).amax")),
    ("maximum of what is not there",
     "right, until a logit that stands 0 times lies far above the rest: it is taken for the "
     "maximum, and the others vanish beside it; put −inf in its place first",
     (ABSENT, "    x = x")),
    ("filled with too little",
     "right, until all logits that stand there lie below what the others are replaced by, which is "
     "the maximum then; replace them by −inf", ("counts == 0, -torch.inf", "counts == 0, -500")),
    ("counts from 1", "each count is one too large: n e^x is asked; in the logarithm log n, not "
     "log(n + 1), though log 0 is −inf: what stands 0 times adds 0",
     (ABSENT, "    counts = counts + 1\n" + ABSENT)),
    ("counts of 0 taken for 1",
     "what stands 0 times counts as if it stood once: log 0 = −inf is right there, its power is 0",
     (ABSENT, "    counts = counts.clamp(min=1)\n" + ABSENT)),
    ("counts squared", "a logit that stands n times adds n² e^x, as from 2 log n; n e^x is asked",
     ("counts * e", "counts**2.0 * e")),
    ("logarithm to base 2", "the counts come in as log₂ n; beside e^x the natural logarithm is "
     "asked, counts.log()", "torch.logsumexp(x + counts.log2(), dim)"),
    ("counts added to the logits", "the counts are added to the logits: e^(x + n) is e^n e^x; add "
     "log n", "torch.logsumexp(x + counts, dim)"),
    ("divided by each count", "each power is divided by its count, as from − log n: + log n",
     "torch.logsumexp(x - counts.log(), dim)"),
    ("one factor for all", "the logarithm of all counts together is added to the plain "
     "log-sum-exp; each logit has a count of its own",
     "torch.logsumexp(x, dim) + counts.sum(dim).log()"),
    ("counts overflow",
     "right but for large counts in half precision: 80,000 is more than float16 can hold; multiply "
     "and add in a wider format, counts * (x - m).double().exp(), and end in the dtype of x",
     (".double()", "")),
    ("counts in half precision",
     "right but for large counts in half precision: 80,000 is more than float16 can hold, so the "
     "count is inf there; leave the counts as they are, or make them wider, counts.double()",
     ("counts * e", "counts.to(x.dtype) * e")),
    ("small powers lost in half precision",
     "right but for small powers in half precision: e^−17.4 is 0 in float16, and 4 million of "
     "them add up to 0.1; make the powers in a wider format, too, (x - m).double().exp()",
     (".double()", ""), ("counts * e", "counts * e.double()")),
    ("power of what is not there",
     "NaN where a logit that stands 0 times lies far above the rest: its power is inf, and 0 · inf "
     "is NaN; put −inf in its place before the power is made, not for the maximum alone",
     (ABSENT, "    there = x.masked_fill(counts == 0, -torch.inf)"), ("x.amax", "there.amax")),
    ("power of what is not there, in half precision",
     "NaN where a logit that stands 0 times lies far above the rest: its power is inf, and 0 · inf "
     "is NaN; put −inf in its place before the power is made (and make that in a wider format)",
     (ABSENT, "    there = x.masked_fill(counts == 0, -torch.inf)"), ("x.amax", "there.amax"),
     (".double()", "")),
    ("divided by the counts",
     "that is the logarithm of the mean power; the sum is asked: do not divide by the counts",
     ("total.log()", "(total / counts.sum(dim)).log()")),
    ("no maximum taken out",
     "large logits give inf, very low ones −inf: take the maximum out of the sum first",
     ("masked_fill(m == -torch.inf, 0)", "mul(0).nan_to_num(0)"), (".double()", ""),
     ("counts * e", "counts * e.double()")),
    ("only a wider format for the sum",
     "in float64 the edge is e^710, and e^1000 still lies beyond: take the maximum out of the sum",
     "(counts * x.double().exp()).nan_to_num(0, posinf=torch.inf).sum(dim).log().to(x.dtype)"),
    ("maximum not added back",
     "the maximum was subtracted and not added back: lse = m + log Σ n e^(x − m)",
     ("m.squeeze(dim) + total", "total")),
    ("maximum subtracted twice",
     "the maximum is subtracted once more where it should be added back",
     ("(m.squeeze(dim) + total.log())", "(total.log() - m.squeeze(dim))")),
    ("maximum counted, too",
     "the maximum is added back n times or for each logit; it is added once, to the logarithm",
     ("m.squeeze(dim) +", "counts.sum(dim) * m.squeeze(dim) +")),
    ("nan for an empty row",
     "where nothing stands (counts of 0, or −inf alone) it gives NaN, from −inf − (−inf); the "
     "log-sum-exp is −inf: subtract 0 where the maximum is infinite",
     ("m.masked_fill(m == -torch.inf, 0)", "m")),
    ("maximum not below 0",
     "right where a logit is above 0; all logits may lie far below: subtract their maximum then "
     "too, though it is negative",
     ("amax(dim, keepdim=True)", "amax(dim, keepdim=True).clamp(min=0)")),
    ("minimum taken out",
     "the smallest logit is taken out: that makes all powers larger; take out the largest",
     ("x.amax", "x.amin")),
    ("one maximum for all sums",
     "one maximum for the whole tensor: a slice far below it underflows to log 0",
     ("x.amax(dim, keepdim=True)", "x.amax(dim, keepdim=True) * 0 + x.max()")),
    ("only the maximum", "that is the maximum; the other logits count too: + log Σ n e^(x − m)",
     ("m.squeeze(dim) + total.log()", "x.amax(dim)")),
    ("log missing", "the logarithm is missing: take the log of the sum, then add the maximum",
     ("total.log()", "total")),
    ("always along the last", "dim is not used: it always sums along the last dimension",
     lambda x, counts, dim=-1: logsumexp(x, counts, -1)),
    ("another default", "right wherever dim is given; without it, it should sum along the last "
     "dimension: keep dim=-1 in the line with `def`",
     lambda x, counts, dim=0: logsumexp(x, counts, dim)),
    ("dim kept",
     "dim is still there with size 1: end with .squeeze(dim), or sum without keepdim",
     (".to(x.dtype)", ".to(x.dtype).unsqueeze(dim)")),
    ("every 1 squeezed",
     "squeeze() drops every dimension of size 1, also one that should stay: name it, squeeze(dim)",
     (".to(x.dtype)", ".to(x.dtype).squeeze()")),
]  # fmt: skip

exercise = Exercise(
    "3.3", logsumexp, inputs, MISTAKES, run=to_the_digits_of_float64, differentiable=True,
    also_right=[with_log_counts, one_logit_at_a_time],
)  # fmt: skip
