"""3.3: log Σ c e^x along any dimension, for scores that occur c times each."""

import torch

from course_utils.checks.compare import difference, read
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_03._scores import INF, LOW, MANY, scores_and_dims


def logsumexp(x, counts, dim=-1):
    x = x.masked_fill(counts == 0, -torch.inf)  # (..., n, ...), absent scores do not count
    m = x.amax(dim, keepdim=True)  # (..., 1, ...)
    m = m.masked_fill(m == -torch.inf, 0)  # empty row: subtract 0
    e = (x - m).double().exp()  # (..., n, ...), float64: small terms may occur often
    total = (counts * e).sum(dim)  # (...), a count may be larger than float16 can hold
    return (m.squeeze(dim) + total.log()).to(x.dtype)  # (...)


def with_log_counts(x, counts, dim=-1):
    return torch.logsumexp(x + counts.log(), dim)


def one_score_at_a_time(x, counts, dim=-1):
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
        """Return a count of 0 or more for each score, with one above 0 in each slice."""
        counts = torch.randint(0, most, x.shape, generator=rng)
        return counts.where((counts > 0) | (x < x.median()), 1)

    pairs = [(x, counted(x), *dim) for x, *dim in scores_and_dims() if x.shape[-1] < MANY]
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
        (absent, shown, -1),  # absent scores are far above the rest
        (absent.T, shown.T, 0),
        (far[1:] - 1e10, torch.tensor([[2, 3], [1, 4]]), -1),  # below any limit
        (half, torch.tensor([[80_000, 3, 0], [40_000, 40_000, 40_000]]), -1),
        (torch.tensor([0, LOW]).half(), torch.tensor([1, 4_000_000]), -1),
    ]


def to_the_digits_of_float64(answer, x, counts, *dim):
    """Return the result; complain if it is right but has only the digits of float32, or is right
    except for empty rows.

    The gradient of an empty row is not checked, because PyTorch's is NaN.
    """
    right = logsumexp(x, counts, *dim)
    given = x.detach() if right.isneginf().any() else x
    [result] = call_with_clones(answer, given, counts, *dim)
    empty, got = right.isneginf(), read(result)  # None for a plain number
    if x.dtype == torch.float64 and got is not None and difference(result, right) is None:
        if ((got - right).abs() > 1e-3).any():
            hint = (
                "Your result is right to 7 digits only, as in float32. Near 10⁶, this is an error "
                "of some hundredths. Keep the dtype of x."
            )
            raise NamedMistake("calculated in float32", hint, [result])
    if empty.any() and got is not None and got.shape == right.shape:
        near = difference(got.where(~empty, 0), right.double().where(~empty, 0)) is None
        if near and got[empty].isfinite().any():
            hint = (
                "Your result is a finite number for an empty row, which must give −inf. If you "
                "add a small number to the counts or to the sum, or clamp them from below, leave "
                "this out. log 0 = −inf is right."
            )
            raise NamedMistake("finite for an empty row", hint)
    return [result]


TOO_HIGH = (
    "Right, unless all scores of a row are very low. Then the number that you subtract is so far "
    "above every score that all exponentials underflow to 0, and log 0 is −inf. Subtract the true "
    "maximum, and replace it with 0 only where it is −inf."
)
ABSENT = "    x = x.masked_fill(counts == 0, -torch.inf)"
MISTAKES = [
    ("counts not used",
     "Your result does not depend on the counts. A score x that occurs c times must contribute c "
     "e^x to the sum. Multiply each exponential by its count.",
     (ABSENT, "    counts = torch.ones_like(counts)\n" + ABSENT)),
    ("counts only as 0 or not",
     "You count each score at most once. A score x that occurs c times must contribute c e^x to "
     "the sum. Multiply each exponential by its count.",
     ("counts * e", "(counts > 0) * e")),
    ("counts multiply the scores",
     "Your result is what you get with log Σ e^(n x), where the counts n multiply the scores. "
     "Multiply the exponentials by the counts instead: log Σ c e^x.",
     ("(x - m)", "(counts * x - m).nan_to_num(neginf=-torch.inf)"),
     ("counts * e", "e"), ("m = x.amax", "m = (counts * x).nan_to_num(neginf=-torch.inf).amax")),
    ("maximum of an absent score",
     "Right, unless a score with a count of 0 is far above the rest. Then this score becomes your "
     "maximum, and the other exponentials underflow to 0. Set scores with a count of 0 to −inf "
     "first.",
     (ABSENT, "    x = x")),
    ("maximum of an absent score, in half precision",
     "Your result has two errors. If a score with a count of 0 is far above the rest, it becomes "
     "your maximum, and the other exponentials underflow to 0. Set scores with a count of 0 to "
     "−inf first. In part 2, float16 is too narrow for the exponentials and their products with "
     "the counts. Take exp in a wider format: (x.double() - m).exp().",
     (ABSENT, "    x = x"), (".double()", "")),
    ("absent scores not low enough",
     "Right, unless a row has counts of 0 and all its other scores are very low. Then your "
     "maximum is too high, and the other exponentials underflow to 0. Set scores with a count of "
     "0 to −inf, not to a finite number.",
     ("counts == 0, -torch.inf", "counts == 0, -500")),
    ("counts from 1",
     "You count each score once too often. If you add 1 to the counts to avoid log 0, use the "
     "counts as they are. log 0 = −inf is correct, because a score with a count of 0 contributes "
     "e^−inf = 0.",
     (ABSENT, "    counts = counts + 1\n" + ABSENT)),
    ("counts of 0 taken for 1",
     "You count a score once even if its count is 0. If you replace counts of 0 to avoid log 0, "
     "use the counts as they are. log 0 = −inf is correct, because a score with a count of 0 "
     "contributes e^−inf = 0.",
     (ABSENT, "    counts = counts.clamp(min=1)\n" + ABSENT)),
    ("scores multiplied by 0",
     "Right, except where a score of −inf has a count of 0. If you multiply scores by 0 to leave "
     "them out, 0 · −inf is NaN. Set scores with a count of 0 to −inf with masked_fill or "
     "torch.where.",
     "torch.logsumexp(x * (counts > 0) + counts.log(), dim)"),
    ("counts squared",
     "A score x that occurs c times contributes c² e^x to your sum, as if its count were used "
     "twice. Use the count once, so that the score contributes c e^x.",
     ("counts * e", "counts**2.0 * e")),
    ("logarithm to base 2",
     "Your result is what you get with x + log₂ c for a score x that occurs c times. Only the "
     "natural logarithm gives e^(log n) = n. Use counts.log().",
     "torch.logsumexp(x + counts.log2(), dim)"),
    ("counts added to the scores",
     "Your result is what you get with e^(x + c) for a score x that occurs c times. This is e^c "
     "e^x, not c e^x. Add log c to the scores, not c.",
     "torch.logsumexp(x + counts, dim)"),
    ("divided by each count",
     "A score x that occurs c times contributes e^x / c to your sum. It must contribute c e^x. "
     "Multiply by the count, or, if you use x − log n, use x + log n.",
     "torch.logsumexp(x - counts.log(), dim)"),
    ("one factor for all",
     "Your result is the plain log-sum-exp plus the log of the total count, as if each score "
     "occurred that often. Each score has its own count. Multiply each exponential by its own "
     "count.",
     "torch.logsumexp(x, dim) + counts.sum(dim).log()"),
    ("counts overflow",
     "Part 1 is right. But with large counts and float16 scores, your product of count and "
     "exponential overflows. For example, 80,000 is larger than 65504, the largest float16 "
     "number. Multiply and add in a wider format: counts * (x.double() - m).exp().",
     (".double()", "")),
    ("counts in half precision",
     "Part 1 is right. With large counts, your result is what you get if the counts are converted "
     "to float16, where 80,000 overflows to inf. Keep the counts as they are, or use "
     "counts.double().",
     ("counts * e", "counts.to(x.dtype) * e")),
    ("sum in half precision",
     "Your result is inf where the sum of the exponentials is larger than 65504. If you convert "
     "the sum to float16 before you take its log, it overflows there. Take the log first, and "
     "convert only the result.",
     ("total.log()", "total.to(x.dtype).log()")),
    ("small exponentials lost in half precision",
     "Part 1 is right. But e^−17.4 is 0 in float16, although 4 million such terms add up to 0.1. "
     "Take exp in a wider format as well: (x.double() - m).exp().",
     (".double()", ""), ("counts * e", "counts * e.double()")),
    ("exponential of an absent score",
     "Your result is NaN where a score with a count of 0 is far above the rest. Its e^(x − m) "
     "overflows to inf, and 0 · inf is NaN. Set scores with a count of 0 to −inf before exp, not "
     "only for the maximum.",
     (ABSENT, "    there = x.masked_fill(counts == 0, -torch.inf)"), ("x.amax", "there.amax")),
    ("exponential of an absent score, in half precision",
     "Your result is NaN where a score with a count of 0 is far above the rest. Its e^(x − m) "
     "overflows to inf, and 0 · inf is NaN. Set scores with a count of 0 to −inf before exp. For "
     "part 2, also take exp in a wider format: (x.double() - m).exp().",
     (ABSENT, "    there = x.masked_fill(counts == 0, -torch.inf)"), ("x.amax", "there.amax"),
     (".double()", "")),
    ("divided by the counts",
     "Your result is the log of the mean exponential. Take the log of the sum, without dividing "
     "by the total count.",
     ("total.log()", "(total / counts.sum(dim)).log()")),
    ("no maximum taken out",
     "Your result is inf for large scores, where e^x overflows, and −inf for very low ones, "
     "where every e^x underflows to 0. Subtract the maximum along dim before exp (0 where it is "
     "−inf), and add the same number back after the logarithm. Compute in float64, so that many "
     "small terms are not lost.",
     ("masked_fill(m == -torch.inf, 0)", "mul(0).nan_to_num(0)"), (".double()", ""),
     ("counts * e", "counts * e.double()")),
    ("only a wider format for the sum",
     "Right, unless a score is above 709 or all scores of a row are below −745. In float64, e^710 "
     "overflows to inf, and e^−746 underflows to 0. Set scores with a count of 0 to −inf. Then "
     "subtract the maximum along dim before exp, or 0 where it is −inf. Add the same number back "
     "after the logarithm.",
     "(counts * x.double().exp()).nan_to_num(0, posinf=torch.inf).sum(dim).log().to(x.dtype)"),
    ("maximum not added back",
     "Your result is log Σ c e^(x − m), relative to the maximum m. Add the maximum back: m + log "
     "Σ c e^(x − m).",
     ("m.squeeze(dim) + total", "total")),
    ("maximum subtracted twice",
     "Your result is log Σ c e^(x − m) − m, which subtracts the maximum m a second time. Add it "
     "back instead: m + log Σ c e^(x − m).",
     ("(m.squeeze(dim) + total.log())", "(total.log() - m.squeeze(dim))")),
    ("log subtracted",
     "Your result is m − log Σ c e^(x − m), where m is the maximum. The logarithm of a product is "
     "a sum, so add the two: m + log Σ c e^(x − m).",
     ("m.squeeze(dim) + total", "m.squeeze(dim) - total")),
    ("maximum counted, too",
     "You add the maximum back multiplied by the total count. Add it back only once, after the "
     "logarithm.",
     ("m.squeeze(dim) +", "counts.sum(dim) * m.squeeze(dim) +")),
    ("nan for an empty row",
     "Your result is NaN for an empty row, because −inf − (−inf) is NaN. The result must be −inf "
     "there. Where the maximum is −inf, subtract 0 instead.",
     ("m.masked_fill(m == -torch.inf, 0)", "m")),
    ("nan for an empty row, and maximum of an absent score",
     "Your result has two errors. It is NaN for a row whose scores are all −inf, because −inf − "
     "(−inf) is NaN. And if a score with a count of 0 is far above the rest, it becomes your "
     "maximum, and the other exponentials underflow to 0. Set scores with a count of 0 to −inf "
     "first. Where the maximum is −inf, subtract 0 instead.",
     (ABSENT, "    x = x"), ("m.masked_fill(m == -torch.inf, 0)", "m")),
    ("maximum not below a limit",
     TOO_HIGH,
     ("m.masked_fill(m == -torch.inf, 0)", "m.clamp(min=-1e3)")),
    ("maximum not below a lower limit", TOO_HIGH,
     ("m.masked_fill(m == -torch.inf, 0)", "m.clamp(min=-1e4)")),
    ("maximum not below 0",
     "Right, unless all scores of a row are far below 0. Then the number that you subtract is too "
     "high, all exponentials underflow to 0, and log 0 is −inf. Subtract the maximum even if it "
     "is negative, and 0 only where it is −inf.",
     ("amax(dim, keepdim=True)", "amax(dim, keepdim=True).clamp(min=0)")),
    ("minimum taken out",
     "Your result is what you get by subtracting the smallest score. Then the exponential of a "
     "score far above the smallest one overflows. Subtract the largest score instead.",
     ("x.amax", "x.amin")),
    ("one maximum for all sums",
     "Your result is what you get with one maximum for the whole tensor. In a row far below it, "
     "all exponentials underflow to 0, and log 0 is −inf. Take the maximum along dim.",
     ("x.amax(dim, keepdim=True)", "x.amax(dim, keepdim=True) * 0 + x.max()")),
    ("only the maximum",
     "Your result is only the maximum m. The other scores count too. Add log Σ c e^(x − m).",
     ("m.squeeze(dim) + total.log()", "x.amax(dim)")),
    ("log missing",
     "Your result is what you get with m + Σ c e^(x − m), where m is the maximum. Take the log of "
     "the sum before you add the maximum.",
     ("total.log()", "total")),
    ("sum without its logarithm",
     "Your result is Σ c e^x, which overflows to inf for large scores. Return its logarithm, "
     "computed as m + log Σ c e^(x − m), where m is the maximum.",
     "torch.logsumexp(x + counts.log(), dim).exp()"),
    ("always along the last",
     "You always sum along the last dimension, whatever dim is. Sum along dim.",
     lambda x, counts, dim=-1: logsumexp(x, counts, -1)),
    ("another default",
     "Right whenever dim is given. Without it, logsumexp must sum along the last dimension. Keep "
     "dim=-1 in the line with `def`.",
     lambda x, counts, dim=0: logsumexp(x, counts, dim)),
    ("dim kept",
     "Your result still has the dimension dim, with size 1. End with .squeeze(dim), or sum "
     "without keepdim.",
     (".to(x.dtype)", ".to(x.dtype).unsqueeze(dim)")),
    ("every 1 squeezed",
     "Your result lacks every dimension of size 1, but only dim must disappear. If you use "
     "squeeze() to remove dim, write squeeze(dim).",
     (".to(x.dtype)", ".to(x.dtype).squeeze()")),
]  # fmt: skip

exercise = Exercise(
    "3.3", logsumexp, inputs, MISTAKES, run=to_the_digits_of_float64, differentiable=True,
    also_right=[with_log_counts, one_score_at_a_time],
)  # fmt: skip
