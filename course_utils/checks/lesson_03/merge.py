"""3.7: attention over two sets of keys is joined into attention over both."""

import torch

from course_utils.checks.exercise import Exercise, call_with_clones
from course_utils.checks.inputs import normals


def merge(out_a, lse_a, out_b, lse_b):
    m = torch.maximum(lse_a, lse_b)  # (..., L)
    m = m.masked_fill(m == -torch.inf, 0)  # (..., L), both empty: subtract 0
    a, b = (lse_a - m).exp(), (lse_b - m).exp()  # (..., L), one of them is 1 unless both are empty
    total = a + b  # (..., L), at least 1, or 0 if both are empty
    share_a, share_b = a / total.clamp(min=1), b / total.clamp(min=1)  # (..., L)
    out = share_a[..., None] * out_a + share_b[..., None] * out_b  # (..., L, d_v)
    return out, m + total.log()


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
    turned = [(out.mT, lse) for out, lse in (part(2, 5, d_v=5), part(2, 5, d_v=5))]
    return [
        (*part(3), *part(3)),
        (*part(2, 3, 5, d_v=4), *part(2, 3, 5, d_v=4)),
        (*part(3, size=200), *part(3, size=200)),
        (*part(3, shift=1000), *part(3, shift=1000)),
        (*part(3, shift=-800), *part(3, shift=-801)),
        (*part(4, d_v=4), *part(4, d_v=4)),
        (*part(3, empty=some), *part(3)),
        (*part(3), *part(3, empty=some)),
        (*part(3, empty=some), *part(3, empty=[True, False, False])),
        (*part(3, shift=far), *part(3, shift=far)),
        (*part(1), *part(1)),
        (*part(1, 4, d_v=1), *part(1, 4, d_v=1)),
        (*same, part(3)[0], same[1]),  # equal shares
        (*turned[0], *turned[1]),  # not contiguous
        (*part(2, 6, shift=-300, **single), *part(2, 6, shift=-300, **single)),
        (*part(2, 6, shift=900, **single), *part(2, 6, shift=899, **single)),
    ]


def without_gradients_of_log_0(answer, *parts):
    """Call an answer; where both parts are empty, gradients go from the output to lse alone."""
    out_a, lse_a, out_b, lse_b = parts
    if not lse_a.requires_grad or not (lse_a.isneginf() & lse_b.isneginf()).any():
        return call_with_clones(answer, *parts)
    [(out, _)] = call_with_clones(answer, out_a.detach(), lse_a, out_b.detach(), lse_b)
    return [out]


MIX = "share_a[..., None] * out_a + share_b[..., None] * out_b"
SHARES = "a / total.clamp(min=1), b / total.clamp(min=1)"
NAIVE_LSE = "(lse_a.exp() + lse_b.exp()).log()"
NAIVE_LSE_HINT = (
    "the joint lse is log(e^lse_a + e^lse_b), but at 1000 these overflow and at −800 they are 0: "
    "subtract the larger before exp and add it back, as torch.logaddexp does"
)
MISTAKES = [
    ("plain average",
     "the outputs are averaged; the part with the larger log-sum-exp must count more",
     (MIX, "(out_a + out_b) / 2")),
    ("outputs added",
     "the outputs are added; each is already divided by its own sum: weigh them",
     (MIX, "out_a + out_b")),
    ("logarithms as weights",
     "the log-sum-exps themselves are used as weights; they are logarithms: the shares are their "
     "softmax", (SHARES, "lse_a / (lse_a + lse_b), lse_b / (lse_a + lse_b)")),
    ("powers not shifted",
     "e^lse overflows at 1000 and is 0 at −800: subtract the larger log-sum-exp before exp",
     ("(lse_a - m).exp(), (lse_b - m).exp()", "lse_a.exp(), lse_b.exp()"),
     (SHARES, "a / total, b / total"), ("m + total.log()", "total.log()")),
    ("joint lse not shifted", NAIVE_LSE_HINT + " (replacing NaN by 0 loses a share)",
     (SHARES, f"[(lse - {NAIVE_LSE}).exp().nan_to_num(0) for lse in (lse_a, lse_b)]"),
     ("m + total.log()", NAIVE_LSE)),
    ("joint lse not shifted, nor kept from NaN", NAIVE_LSE_HINT,
     (SHARES, f"[(lse - {NAIVE_LSE}).exp() for lse in (lse_a, lse_b)]"),
     ("m + total.log()", NAIVE_LSE)),
    ("lse alone not shifted", "right output; " + NAIVE_LSE_HINT, ("m + total.log()", NAIVE_LSE)),
    ("one maximum for all queries",
     "all queries share one maximum: where both log-sum-exps lie far below it, both powers are 0; "
     "take the larger of the two for each query",
     ("torch.maximum(lse_a, lse_b)", "torch.maximum(lse_a, lse_b).max()"),
     (SHARES, "(a / total).nan_to_num(0), (b / total).nan_to_num(0)")),
    ("weights not normalised", "the weighted outputs are not divided by the sum of the weights",
     (SHARES, "a, b")),
    ("lse added", "right output; the new lse is log(e^lse_a + e^lse_b), not the sum of the two",
     ("m + total.log()", "lse_a + lse_b")),
    ("lse of the larger",
     "right output; the new lse is more than the larger of the two: + log Σ e^(lse − m)",
     ("m + total.log()", "torch.maximum(lse_a, lse_b)")),
    ("lse without the maximum",
     "right output; the maximum subtracted from the log-sum-exps must be added back",
     ("m + total.log()", "total.log()")),
    ("lse of the mean", "right output; lse is log of the sum of both, not of their mean",
     ("total.log()", "(total / 2).log()")),
    ("shares swapped", "the shares are swapped: out_a goes with lse_a",
     (MIX, "share_b[..., None] * out_a + share_a[..., None] * out_b")),
    ("nan for two empty parts",
     "two empty parts give NaN, from −inf − (−inf); their output shall be zeros and their lse −inf",
     ("m.masked_fill(m == -torch.inf, 0)", "m")),
    ("nan output for two empty parts",
     "the lse is right, but where both parts are empty the output is NaN, from −inf − (−inf) or "
     "0 / 0; it shall be zeros", (SHARES, "a / total, b / total")),
    ("share along the wrong axis",
     "a share is one number for each query: give it an axis for d_v, share[..., None], before "
     "multiplying", (MIX, "share_a * out_a + share_b * out_b")),
    ("only the joined output", "return two things: the output and its lse, in this order",
     ("return out, m + total.log()", "return out")),
    ("larger part alone", "the part with the larger lse is taken alone; the other has a share too",
     (MIX, "torch.where((lse_a > lse_b)[..., None], out_a, out_b)")),
]  # fmt: skip

exercise = Exercise(
    "3.7",
    merge,
    inputs,
    MISTAKES,
    names="L d_v|L",
    run=without_gradients_of_log_0,
    differentiable=True,
)
