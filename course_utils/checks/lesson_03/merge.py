"""3.7: merge attention over several sets of keys into attention over all keys."""

import torch

from course_utils.checks.compare import read
from course_utils.checks.exercise import Exercise, NamedMistake
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_03._scores import refuse_epsilon


def merge(parts):
    outs, lses = (torch.stack(each) for each in zip(*parts, strict=True))  # (n, ..., L[, d_v])
    m = lses.amax(dim=0)  # (..., L)
    m = m.masked_fill(m == -torch.inf, 0)  # (..., L), all parts empty: subtract 0
    e = (lses - m).exp()  # (n, ..., L), the largest is 1, unless all parts are empty
    total = e.sum(dim=0)  # (..., L)
    shares = e / total.masked_fill(total == 0, 1)  # (n, ..., L)
    out = (shares[..., None] * outs).sum(dim=0)  # (..., L, d_v)
    return out, m + total.log()


def by_softmax(parts):
    lses = torch.stack([lse for _, lse in parts], -1)  # (..., L, n)
    finite = lses.masked_fill((lses == -torch.inf).all(-1, keepdim=True), 0.0)
    shares = torch.softmax(finite, -1)[..., None, :]
    out = (shares @ torch.stack([out for out, _ in parts], -2))[..., 0, :]
    return out, torch.logsumexp(lses, -1)


def in_two_passes(parts):
    m = torch.full_like(parts[0][1], -torch.inf)
    for _, lse in parts:
        m = torch.maximum(m, lse.detach())
    m = m.nan_to_num(neginf=0.0)
    total = sum((lse - m).exp() for _, lse in parts)
    out = sum((lse - m).exp()[..., None] * out for out, lse in parts)
    return [out / total[..., None].clamp(min=0.5), total.log() + m]


def in_pairs(parts):
    """Merge the parts two by two, and lose the last of an odd number."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [merge(pair) for pair in pairs]
    return parts[0]


def inputs():
    normal = normals(100)

    def part(*shape, size=1.0, shift=0.0, d_v=2, dtype=torch.float64, empty=None):
        out, lse = normal(*shape, d_v, dtype=dtype), size * normal(*shape, dtype=dtype) + shift
        if empty:
            out[empty], lse[empty] = 0, -torch.inf
        return out, lse

    some, single = [True, False, True], dict(d_v=5, dtype=torch.float32)
    far = torch.tensor([1000.0, -1000.0, 0.0]).double()  # rows far apart
    same = part(3)
    permuted = [(out.mT, lse) for out, lse in (part(2, 5, d_v=5) for _ in range(3))]
    given = [
        [part(3) for _ in range(3)],
        [part(2, 3, 5, d_v=4) for _ in range(2)],
        [part(4, d_v=3)],  # a single worker
        [part(3) for _ in range(12)],
        [part(3, size=200) for _ in range(4)],
        [part(3, shift=1000) for _ in range(3)],
        [part(3, shift=-800), part(3, shift=-801), part(3, shift=-800)],
        [part(3, shift=-20_000), part(3, shift=-20_001)],
        [part(3, shift=-1e10), part(3, shift=-1e10)],  # below any limit
        [part(4, d_v=4) for _ in range(4)],  # as many parts as queries, and as values are wide
        [part(3, empty=some), part(3), part(3, empty=[True, True, False])],
        [part(3, empty=some), part(3, empty=[True, False, False])],
        [part(3, empty=some), part(3, empty=some), part(3)],  # the first two are empty
        [part(3, shift=far) for _ in range(3)],
        [part(1) for _ in range(2)],
        [part(1, 4, d_v=1) for _ in range(3)],
        [same, (part(3)[0], same[1]), (part(3)[0], same[1])],  # equal shares
        permuted,  # not contiguous
        [part(2, 6, shift=-300, **single) for _ in range(3)],
        [part(2, 6, shift=900 - n, **single) for n in range(3)],
    ]
    return [(tuple(parts),) for parts in given]


def without_gradients_of_log_0(answer, parts):
    """Call an answer; where all parts are empty, check only the gradient from out to each lse."""
    clones = tuple((out.clone(), lse.clone()) for out, lse in parts)
    result = answer(clones)
    pairs = zip(clones, parts, strict=True)
    if not all(torch.equal(*each) for pair in pairs for each in zip(*pair, strict=True)):
        hint = "Your function changes its input in place. Work on new tensors."
        raise NamedMistake("changes its input", hint)
    if len(parts) == 1:
        refuse_epsilon(result, parts[0])
    refuse_low_lse(result, parts)
    lses = torch.stack([lse for _, lse in parts])
    if not lses.requires_grad or not lses.isneginf().all(dim=0).any():
        return [result]
    out, _ = answer(tuple((out.detach(), lse) for out, lse in parts))
    return [out]


def refuse_low_lse(result, parts):
    """Complain if a result is right, except that the lse of empty parts is low, but not −inf."""
    empty = torch.stack([lse for _, lse in parts]).isneginf().all(dim=0)
    if not empty.any() or not isinstance(result, tuple | list) or len(result) != 2:
        return
    lse = read(result[1])
    if lse is not None and lse.shape == empty.shape and (lse[empty] < -10).all():
        if lse[empty].isfinite().any():
            rest = result[0], lse.masked_fill(empty, -torch.inf)
            raise NamedMistake("low lse for empty parts", LOW_FOR_EMPTY, [rest])


MIX = "(shares[..., None] * outs).sum(dim=0)"
SHARES = "e / total.masked_fill(total == 0, 1)"
EXP_HINT = (
    "Your result is wrong for very high or very low log-sum-exps, because e^1000 overflows to inf "
    "and e^−800 underflows to 0. Subtract the largest log-sum-exp before exp, or 0 where it is "
    "−inf. Add it back to the lse. Where the sum of exponentials is 0, divide by 1."
)
NAIVE_LSE = "lses.exp().sum(dim=0).log()"
NAIVE_LSE_HINT = (
    "Your lse is what you get with a plain log Σ e^lse, where e^1000 overflows to inf and e^−800 "
    "underflows to 0. Use torch.logsumexp, which subtracts the largest lse first."
)
MERGED_LSE_HINT = (
    NAIVE_LSE_HINT + " Where all parts are empty, −inf − (−inf) is NaN, so use 0 in place of the "
    "merged lse in e^(lse − merged lse)."
)
ZERO_FOR_EMPTY = (
    "Your lse is 0 where all parts are empty. The sum of exponentials is 0 there, and log 0 is "
    "−inf. Return −inf."
)
LOW_FOR_EMPTY = (
    "Your lse is a finite number where all parts are empty, but it must be −inf. If you clamp the "
    "log-sum-exps from below, or add a small number to the sum of exponentials, leave this out. "
    "log 0 = −inf is right."
)
LOOP = """    out, lse = outs[0], lses[0]
    for o, other in zip(outs[1:], lses[1:]):
        share = torch.sigmoid(other - lse)[..., None]
        out, lse = share * o + (1 - share) * out, torch.logaddexp(lse, other)
    return out, lse"""
STACK = (
    "Stack all log-sum-exps instead. Use their softmax over the parts as weights, and "
    "torch.logsumexp for the lse."
)
AFTER_EMPTY = (
    "Right, except where the first of several parts is empty and your lse is NaN. If you merge two "
    "parts at a time, {} is NaN when lse is −inf. " + STACK
)
MISTAKES = [
    ("maximum not below a limit",
     "Right, unless every lse of a query is far below 0. Then the number that you subtract is "
     "so far above every lse that all exponentials underflow to 0. Subtract the true maximum, and "
     "replace it with 0 only where it is −inf.",
     ("m.masked_fill(m == -torch.inf, 0)", "m.clamp(min=-1e4)")),
    ("by a sigmoid of the lses",
     AFTER_EMPTY.format("lse − logsigmoid(lse − other)"),
     ("    return out, m + total.log()",
      LOOP.replace("share * o + (1 - share) * out", "out - share * (out - o)").replace(
          "torch.logaddexp(lse, other)",
          "lse - torch.nn.functional.logsigmoid(lse - other)"))),
    ("by the logarithm of 1 + e^x",
     AFTER_EMPTY.format("lse + log(1 + e^(other − lse))"),
     ("    return out, m + total.log()", """    out, lse = outs[0], lses[0]
    for o, other in zip(outs[1:], lses[1:]):
        new = lse + torch.log(1 + torch.exp(other - lse))
        out = torch.exp(lse - new)[..., None] * out + torch.exp(other - new)[..., None] * o
        lse = new
    return out, lse""")),
    ("base 2",
     "Your result is what you get with 2^lse. The log-sum-exps are natural logarithms. Use e^lse.",
     ("(lses - m).exp()", "(lses - m).exp2()")),
    ("plain average",
     "Your output is the plain mean of the outputs. A part with a larger log-sum-exp must count "
     "more. Weight the outputs by the softmax of the log-sum-exps.",
     (MIX, "outs.mean(dim=0)")),
    ("outputs added",
     "Your output is the plain sum of the outputs. Each of them is already divided by its own sum "
     "of exponentials. Weight the outputs by the softmax of the log-sum-exps.",
     (MIX, "outs.sum(dim=0)")),
    ("logarithms as weights",
     "Your weights are the log-sum-exps, divided by their sum. A log-sum-exp is a logarithm and "
     "may be negative. Use the softmax of the log-sum-exps as weights.",
     (SHARES, "lses / lses.sum(dim=0)")),
    ("only the first two",
     "Right for two parts. With more, you leave out all parts after the second. Merge all of them.",
     ("zip(*parts,", "zip(*parts[:2],")),
    ("odd part lost",
     "Right for one, two or four parts. If you merge the parts in pairs, the last of an odd number "
     "is lost. " + STACK,
     in_pairs),
    ("only the last two",
     "Right for two parts. With more, you leave out all parts before the last two. Merge all of "
     "them.",
     ("zip(*parts,", "zip(*parts[-2:],")),
    ("only the first and the last",
     "Right for two parts. With more, you leave out those in between, and a single part counts "
     "twice. Merge each part once.",
     ("zip(*parts,", "zip(parts[0], parts[-1],")),
    ("nan from two empty parts",
     "Your result is NaN where the first two parts are empty. If you merge two at a time, −inf − "
     "(−inf) is NaN there, and later parts cannot repair it. " + STACK,
     ("    return out, m + total.log()", LOOP)),
    ("lse of the first kept",
     "Your lse is that of the first part only. If you merge two at a time, each later part is "
     "weighted against this lse, so the output is right for two parts at most. " + STACK,
     ("    return out, m + total.log()", LOOP.replace("torch.logaddexp(lse, other)", "lse"))),
    ("mean of two each time",
     "You merge the parts one by one, each time taking the plain mean of the output so far and "
     "the next part's output. A part with a larger lse must count more. " + STACK,
     ("    return out, m + total.log()",
      LOOP.replace("torch.sigmoid(other - lse)[..., None]", "0.5"))),
    ("part with an empty query left out",
     "You leave out a whole part if it has no key for one of the queries. But it may have keys "
     "for other queries. Leave it out for that one query only.",
     ("zip(*parts,", "zip(*[(o, n) for o, n in parts if not n.isinf().any()] or [\n"
      "        (parts[0][0] * 0, parts[0][1] - torch.inf)],")),
    ("averaged two by two",
     "Right for two parts. With more, each further part is weighted as if only one part came "
     "before it. " + STACK,
     ("    return", "    out, lse = outs[0], lses[0]\n"
      "    for o, other in zip(outs[1:], lses[1:]):\n"
      "        a = torch.stack([lse, other])\n"
      "        a = a.masked_fill(a.isneginf().all(0), 0).softmax(0)[..., None]\n"
      "        out, lse = a[0] * out + a[1] * o, other\n    return")),
    ("exponentials not shifted",
     EXP_HINT,
     ("(lses - m).exp()", "lses.exp()"),
     (SHARES, "e / total"), ("m + total.log()", "total.log()")),
    ("exponentials not shifted, nor divided by 0",
     EXP_HINT,
     ("(lses - m).exp()", "lses.exp()"),
     (SHARES, "e / total.clamp(min=1e-30)"), ("m + total.log()", "total.log()")),
    ("output's exponentials not shifted",
     "Your lse is right. But your output is wrong for very high or very low log-sum-exps, because "
     "e^1000 overflows to inf and e^−800 underflows to 0. Subtract the largest log-sum-exp before "
     "exp, or 0 where it is −inf.",
     (SHARES, "(lses.exp() / lses.exp().sum(dim=0)).nan_to_num(0)")),
    ("merged lse not shifted",
     MERGED_LSE_HINT,
     (SHARES, f"(lses - {NAIVE_LSE}).exp().nan_to_num(0)"), ("m + total.log()", NAIVE_LSE)),
    ("merged lse not shifted, nor kept from NaN",
     MERGED_LSE_HINT,
     (SHARES, f"(lses - {NAIVE_LSE}).exp()"), ("m + total.log()", NAIVE_LSE)),
    ("only the lse not shifted",
     "Your output is right. " + NAIVE_LSE_HINT, ("m + total.log()", NAIVE_LSE)),
    ("one maximum for all queries",
     "Your result is what you get with one maximum for all queries. If every lse of a query is "
     "far below this maximum, all exponentials of the query underflow to 0. Then its output is 0, "
     "and its lse is −inf. Take one maximum for each query.",
     ("lses.amax(dim=0)", "lses.max()"), (SHARES, "(e / total).nan_to_num(0)")),
    ("softmax over the queries",
     "Your shares sum to 1 over the queries. For each query, they must sum to 1 over the parts. "
     "If you stack the parts along dimension 0, use dim=0. Where all parts are empty, replace "
     "the log-sum-exps with 0 before softmax, because softmax over −inf alone is NaN.",
     (SHARES, "lses.softmax(dim=-1)")),
    ("weights not normalized",
     "Your output is the sum of the weighted outputs, but the weights do not sum to 1. Divide it "
     "by the sum of the weights, or by 1 where this sum is 0.",
     (SHARES, "e")),
    ("divided by the number of parts",
     "Your weighted outputs are divided by the number of parts. Divide by the sum of their "
     "weights, or by 1 where this sum is 0.",
     (SHARES, "e / len(lses)")),
    ("lse 0 for empty parts",
     ZERO_FOR_EMPTY, ("m + total.log()",
     "(m + total.log()).masked_fill(total == 0, 0)")),
    ("lse log n for empty parts",
     "Your lse is log n where all n parts are empty, as if each lse were 0 there. If you replace "
     "−inf with 0 before softmax, do not compute the lse from these zeros. Return −inf there.",
     ("m + total.log()", "lses.masked_fill(lses.isneginf().all(0), 0).logsumexp(0)")),
    ("lse very low for empty parts",
     "Your lse is a finite number where all parts are empty, and all parts get the same weight "
     "where every lse is below some limit, such as −10⁹. Do not clamp the log-sum-exps from "
     "below. Where all parts are empty, subtract 0 instead of the maximum.",
     ("    m = lses", "    lses = lses.clamp(min=-1e9)\n    m = lses")),
    ("query with an empty part left out",
     "Your result is 0 and −inf for a query as soon as one part has no key for it. Other parts "
     "may have keys for this query. Return zeros and −inf only where all parts are empty.",
     ("    return", "    some = lses.isneginf().any(0)\n    out = out.masked_fill(some[..., None], "
      "0)\n    total = total.masked_fill(some, 0)\n    return")),
    ("plain average where a part is empty",
     "Where any part is empty, your output is the plain mean of all outputs. If you replace a "
     "query's log-sum-exps with 0, do so only where all its parts are empty. Elsewhere, softmax "
     "gives −inf a weight of 0 by itself.",
     (SHARES, "lses.masked_fill(lses.isneginf().any(0), 0).softmax(0)")),
    ("log-sum-exps cut off",
     "Right, unless every lse of a query is far below 0. If you clamp the log-sum-exps from "
     "below, for example at −10⁴, all parts below the limit get the same weight. Use the "
     "log-sum-exps as they are.",
     ("    m = lses", "    lses = torch.where(lses.isinf(), lses, lses.clamp(min=-1e4))\n"
      "    m = lses")),
    ("lse added",
     "Your output is right, but your lse is the sum of all log-sum-exps. Return log Σ e^lse, for "
     "example with torch.logsumexp.",
     ("m + total.log()", "lses.sum(dim=0)")),
    ("lse of the largest",
     "Your output is right, but your lse is only the largest log-sum-exp, m. The other parts "
     "count too. Add log Σ e^(lse − m).",
     ("m + total.log()", "lses.amax(dim=0)")),
    ("lse without the maximum",
     "Your output is right, but your lse lacks the maximum that was subtracted. Add the maximum "
     "back.",
     ("m + total.log()", "total.log()")),
    ("lse of the mean",
     "Your output is right, but your lse is the log of the mean exponential. Take the log of the "
     "sum.",
     ("total.log()", "(total / len(lses)).log()")),
    ("shares in another order",
     "Your outputs get the shares of other parts, because the shares are in a different order. "
     "Pair each output with its own lse.",
     ("(shares[", "(shares.flip(0)[")),
    ("nan for empty parts",
     "Your result is NaN where all parts are empty, because −inf − (−inf) is NaN. Subtract 0 "
     "there, and return zeros and −inf.", ("m.masked_fill(m == -torch.inf, 0)", "m")),
    ("nan output for empty parts",
     "Your lse is right, but your output is NaN where all parts are empty, because 0 / 0 is NaN. "
     "Where the sum of exponentials is 0, divide by 1.",
     (SHARES, "e / total")),
    ("share along the wrong axis",
     "Your shares are broadcast along the wrong dimension of the outputs. A share is one number "
     "for each query. Give the shares a last dimension for d_v: share[..., None].",
     ("shares[..., None]", "shares")),
    ("only the merged output",
     "Your result is only the output. Return the output and its lse, in this order.",
     ("return out, m + total.log()", "return out")),
    ("only the largest part",
     "Your output is that of the part with the largest lse. The other parts count too. Use e^(lse "
     "− m) as weights, where m is the maximum that you subtract. Divide by the sum of the "
     "weights, or by 1 where this sum is 0.",
     (SHARES, "(lses == m) * 1.0")),
]  # fmt: skip

exercise = Exercise(
    "3.7", merge, inputs, MISTAKES, "L d_v|L", without_gradients_of_log_0, differentiable=True,
    also_right=[by_softmax, in_two_passes],
)  # fmt: skip
