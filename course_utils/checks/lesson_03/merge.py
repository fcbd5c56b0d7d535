"""3.7: attention over several sets of keys is joined into attention over all."""

import torch

from course_utils.checks.exercise import Exercise, NamedMistake
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_03._logits import see_that_nothing_is_added


def merge(parts):
    outs, lses = (torch.stack(each) for each in zip(*parts, strict=True))  # (n, ..., L[, d_v])
    m = lses.amax(dim=0)  # (..., L)
    m = m.masked_fill(m == -torch.inf, 0)  # (..., L), all empty: subtract 0
    powers = (lses - m).exp()  # (n, ..., L), one of them is 1 unless all are empty
    total = powers.sum(dim=0)  # (..., L), at least 1, or 0 if all are empty
    shares = powers / total.clamp(min=1)  # (n, ..., L)
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
    turned = [(out.mT, lse) for out, lse in (part(2, 5, d_v=5) for _ in range(3))]
    given = [
        [part(3) for _ in range(3)],
        [part(2, 3, 5, d_v=4) for _ in range(2)],
        [part(4, d_v=3)],  # a single worker
        [part(3) for _ in range(12)],
        [part(3, size=200) for _ in range(4)],
        [part(3, shift=1000) for _ in range(3)],
        [part(3, shift=-800), part(3, shift=-801), part(3, shift=-800)],
        [part(3, shift=-20_000), part(3, shift=-20_001)],
        [part(4, d_v=4) for _ in range(4)],  # as many parts as queries, and as values are wide
        [part(3, empty=some), part(3), part(3, empty=[True, True, False])],
        [part(3, empty=some), part(3, empty=[True, False, False])],
        [part(3, empty=some), part(3, empty=some), part(3)],  # the first two have nothing
        [part(3, shift=far) for _ in range(3)],
        [part(1) for _ in range(2)],
        [part(1, 4, d_v=1) for _ in range(3)],
        [same, (part(3)[0], same[1]), (part(3)[0], same[1])],  # equal shares
        turned,  # not contiguous
        [part(2, 6, shift=-300, **single) for _ in range(3)],
        [part(2, 6, shift=900 - n, **single) for n in range(3)],
    ]
    return [(tuple(parts),) for parts in given]


def without_gradients_of_log_0(answer, parts):
    """Call an answer; where all parts are empty, gradients go from the output to lse alone."""
    clones = tuple((out.clone(), lse.clone()) for out, lse in parts)
    result = answer(clones)
    changed = [
        not torch.equal(now, before)
        for pair, original in zip(clones, parts, strict=True)
        for now, before in zip(pair, original, strict=True)
    ]
    if any(changed):
        hint = "it changes its input in place: a part comes out as another; work on new tensors"
        raise NamedMistake("changes its input", hint)
    if len(parts) == 1:
        see_that_nothing_is_added(result, parts[0])
    lses = torch.stack([lse for _, lse in parts])
    if not lses.requires_grad or not lses.isneginf().all(dim=0).any():
        return [result]
    out, _ = answer(tuple((out.detach(), lse) for out, lse in parts))
    return [out]


MIX = "(shares[..., None] * outs).sum(dim=0)"
SHARES = "powers / total.clamp(min=1)"
POWERS_HINT = (
    "e^lse overflows at 1000 and is 0 at −800: subtract the largest log-sum-exp before exp"
)
NAIVE_LSE = "lses.exp().sum(dim=0).log()"
NAIVE_LSE_HINT = (
    "the joint lse is log Σ e^lse, but at 1000 these overflow and at −800 they are 0: subtract the "
    "largest before exp and add it back, as torch.logsumexp does"
)
NUMBER_FOR_EMPTY = "where all parts are empty the lse is −inf, and yours is a number there"
LOOP = """    out, lse = outs[0], lses[0]
    for o, other in zip(outs[1:], lses[1:]):
        share = torch.sigmoid(other - lse)[..., None]
        out, lse = share * o + (1 - share) * out, torch.logaddexp(lse, other)
    return out, lse"""
AFTER_EMPTY = (
    "Your result is right, but NaN where the first parts had no key. The old lse is −∞ there, and "
    "{} is −∞ − (−∞) or −∞ + ∞. Join the lses with torch.logaddexp, and give zeros where both "
    "parts are empty."
)
MISTAKES = [
    ("maximum not below a limit",
     "Your result is right until every lse lies far below 0: your maximum stays above it, and all "
     "exponentials are 0. Subtract the true maximum, and replace only −∞.",
     ("m.masked_fill(m == -torch.inf, 0)", "m.clamp(min=-1e4)")),
    ("by a sigmoid of the lses", AFTER_EMPTY.format("lse − logsigmoid(lse − other)"),
     ("    return out, m + total.log()",
      LOOP.replace("share * o + (1 - share) * out", "out - share * (out - o)").replace(
          "torch.logaddexp(lse, other)",
          "lse - torch.nn.functional.logsigmoid(lse - other)"))),
    ("by the logarithm of 1 + e^x", AFTER_EMPTY.format("lse + log(1 + e^(other − lse))"),
     ("    return out, m + total.log()", """    out, lse = outs[0], lses[0]
    for o, other in zip(outs[1:], lses[1:]):
        new = lse + torch.log(1 + torch.exp(other - lse))
        out = torch.exp(lse - new)[..., None] * out + torch.exp(other - new)[..., None] * o
        lse = new
    return out, lse""")),
    ("plain average",
     "the outputs are averaged; a part with a larger log-sum-exp must count more",
     (MIX, "outs.mean(dim=0)")),
    ("outputs added",
     "the outputs are added; each is already divided by its own sum: weigh them",
     (MIX, "outs.sum(dim=0)")),
    ("logarithms as weights",
     "the log-sum-exps themselves are used as weights; they are logarithms: the shares are their "
     "softmax", (SHARES, "lses / lses.sum(dim=0)")),
    ("the first two alone",
     "right for two parts; of more, all after the second are left out",
     ("zip(*parts,", "zip(*parts[:2],")),
    ("the last two alone", "right for two parts; of more, only the last two count",
     ("zip(*parts,", "zip(*parts[-2:],")),
    ("nan from two empty parts",
     "joining two at a time, it gives NaN where both are empty, from −inf − (−inf), and it stays "
     "NaN when others follow, for 0 · NaN is NaN: let two empty ones give zeros",
     ("    return out, m + total.log()", LOOP)),
    ("lse of the first kept",
     "the first two are joined rightly; each next one gets its share beside the lse of the first "
     "alone: after each step take the lse of all so far",
     ("    return out, m + total.log()", LOOP.replace("torch.logaddexp(lse, other)", "lse"))),
    ("mean of two each time",
     "the output so far and the next one are averaged, whatever their log-sum-exps; the larger lse "
     "must count more",
     ("    return out, m + total.log()",
      LOOP.replace("torch.sigmoid(other - lse)[..., None]", "0.5"))),
    ("part with an empty query left out",
     "a part that had no key for one query is left out for all of them: it has nothing to say for "
     "that query alone",
     ("zip(*parts,", "zip(*[(o, n) for o, n in parts if not n.isinf().any()] or [\n"
      "        (parts[0][0] * 0, parts[0][1] - torch.inf)],")),
    ("averaged two by two",
     "right for two parts; of more, each next one is joined with the weight it would have beside "
     "one part: give on the joint lse of all so far",
     ("    return", "    out, lse = outs[0], lses[0]\n"
      "    for o, other in zip(outs[1:], lses[1:]):\n"
      "        a = torch.stack([lse, other])\n"
      "        a = a.masked_fill(a.isneginf().all(0), 0).softmax(0)[..., None]\n"
      "        out, lse = a[0] * out + a[1] * o, other\n    return")),
    ("powers not shifted",
     POWERS_HINT,
     ("(lses - m).exp()", "lses.exp()"),
     (SHARES, "powers / total"), ("m + total.log()", "total.log()")),
    ("powers not shifted, nor divided by 0", POWERS_HINT,
     ("(lses - m).exp()", "lses.exp()"),
     (SHARES, "powers / total.clamp(min=1e-30)"), ("m + total.log()", "total.log()")),
    ("output's powers not shifted", "right lse; " + POWERS_HINT,
     (SHARES, "(lses.exp() / lses.exp().sum(dim=0)).nan_to_num(0)")),
    ("joint lse not shifted", NAIVE_LSE_HINT + " (replacing NaN by 0 loses a share)",
     (SHARES, f"(lses - {NAIVE_LSE}).exp().nan_to_num(0)"), ("m + total.log()", NAIVE_LSE)),
    ("joint lse not shifted, nor kept from NaN", NAIVE_LSE_HINT,
     (SHARES, f"(lses - {NAIVE_LSE}).exp()"), ("m + total.log()", NAIVE_LSE)),
    ("lse alone not shifted", "right output; " + NAIVE_LSE_HINT, ("m + total.log()", NAIVE_LSE)),
    ("one maximum for all queries",
     "all queries share one maximum: where all log-sum-exps lie far below it, all powers are 0; "
     "take the largest for each query",
     ("lses.amax(dim=0)", "lses.max()"), (SHARES, "(powers / total).nan_to_num(0)")),
    ("softmax over the queries",
     "the shares sum to 1 over the queries; they should over the parts of each query: stacked at "
     "the front, the parts are dim=0", (SHARES, "lses.softmax(dim=-1)")),
    ("weights not normalised", "the weighted outputs are not divided by the sum of the weights",
     (SHARES, "powers")),
    ("divided by the number of parts",
     "the weighted outputs are divided by the number of parts; divide by the sum of their weights",
     (SHARES, "powers / len(lses)")),
    ("lse 0 for empty parts", NUMBER_FOR_EMPTY, ("m + total.log()",
     "(m + total.log()).masked_fill(total == 0, 0)")),
    ("lse very low for empty parts", NUMBER_FOR_EMPTY,
     ("    m = lses", "    lses = lses.clamp(min=-1e9)\n    m = lses")),
    ("lse added", "right output; the new lse is log Σ e^lse, not the sum of them all",
     ("m + total.log()", "lses.sum(dim=0)")),
    ("lse of the largest",
     "right output; the new lse is more than the largest of them: + log Σ e^(lse − m)",
     ("m + total.log()", "lses.amax(dim=0)")),
    ("lse without the maximum",
     "right output; the maximum subtracted from the log-sum-exps must be added back",
     ("m + total.log()", "total.log()")),
    ("lse of the mean", "right output; lse is log of the sum of all, not of their mean",
     ("total.log()", "(total / len(lses)).log()")),
    ("shares in another order", "the shares are in another order: each part goes with its own lse",
     ("(shares[", "(shares.flip(0)[")),
    ("nan for empty parts",
     "where all parts are empty it gives NaN, from −inf − (−inf); the output shall be zeros and "
     "the lse −inf", ("m.masked_fill(m == -torch.inf, 0)", "m")),
    ("nan output for empty parts",
     "the lse is right, but where all parts are empty the output is NaN, from −inf − (−inf) or "
     "0 / 0; it shall be zeros", (SHARES, "powers / total")),
    ("share along the wrong axis",
     "a share is one number for each query: give it an axis for d_v, share[..., None], before "
     "multiplying", ("shares[..., None]", "shares")),
    ("only the joined output", "return two things: the output and its lse, in this order",
     ("return out, m + total.log()", "return out")),
    ("largest part alone", "the part with the largest lse is taken alone; the others have a share",
     (SHARES, "(lses == m) * 1.0")),
]  # fmt: skip

exercise = Exercise(
    "3.7", merge, inputs, MISTAKES, "L d_v|L", without_gradients_of_log_0, differentiable=True,
    also_right=[by_softmax, in_two_passes],
)  # fmt: skip
