"""6.10: merge the result of one more part, which may be empty."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals

INF = torch.inf


def add_part(out, lse, part_out, part_lse):
    m = torch.maximum(lse, part_lse)  # (..., L)
    base = m.masked_fill(m == -INF, 0)  # both empty: subtract 0
    old, new = (lse - base).exp(), (part_lse - base).exp()  # (..., L), at most 1
    total = old + new  # (..., L), 0 if both are empty
    share = new / total.masked_fill(total == 0, 1)  # (..., L), of the part
    merged = out + share[..., None] * (part_out - out)  # (..., L, d_v)
    return merged, m + total.log()


def by_logaddexp(out, lse, part_out, part_lse):
    both = torch.logaddexp(lse, part_lse)
    safe = torch.where(both == -INF, torch.zeros_like(both), both)
    w, part_w = torch.exp(lse - safe), torch.exp(part_lse - safe)
    return [w.unsqueeze(-1) * out + part_w.unsqueeze(-1) * part_out, both]


def by_sigmoid(out, lse, part_out, part_lse):
    there = part_lse > -INF
    difference = torch.where(there, part_lse - lse, -INF)
    grown = torch.where(lse > -INF, lse + torch.nn.functional.softplus(difference), part_lse)
    share = torch.sigmoid(difference)[..., None]
    return out * (1 - share) + part_out * share, torch.where(there, grown, lse)


def inputs():
    normal = normals(66)

    def case(*rows, d_v=2, size=1.0, shift=0.0, dtype=torch.float64):
        outs = [normal(*rows, d_v, dtype=dtype) for _ in range(2)]
        lses = [size * normal(*rows, dtype=dtype) + shift for _ in range(2)]
        return outs[0], lses[0], outs[1], lses[1]

    def empty(state, which, *row):
        state[2 * which][row], state[2 * which + 1][row] = 0, -INF
        return state

    return [
        case(3),
        case(2, 4, d_v=5),
        case(2, 3, 5, d_v=4, size=3.0),
        case(4, dtype=torch.float32),
        case(5, size=2000.0),  # e^(part_lse - lse) overflows
        case(3, shift=-20_000.0),
        case(3, shift=1000.0),
        empty(case(3, d_v=4), 1, 1),  # the part has nothing for query 1
        empty(case(3, d_v=4), 0, ...),  # the first part of all
        empty(empty(case(4, d_v=3), 0, 2), 1, 2),  # query 2 has seen nothing
        case(1, d_v=1),
        empty(case(4, d_v=3), 0, 1),  # only query 1 has seen nothing yet
        empty(empty(case(4, dtype=torch.float32), 0, 2), 1, 0),
    ]


SIGMOID = "out + torch.sigmoid(part_lse - lse)[..., None] * (part_out - out)"
LSE = "m + total.log()"
RETURN = f"return merged, {LSE}"
CLAMPED = "lse, part_lse = (x.clamp(min={}) for x in (lse, part_lse))\n    "
BASE = "m.masked_fill(m == -INF, 0)"
OLD_LSE = "lse - torch.nn.functional.logsigmoid(lse - part_lse)"
NO_NAN = f"({OLD_LSE}).masked_fill(m == -INF, -INF)"  # where both lse are −∞
WITH_SIGMOID = "return merged", f"merged = {SIGMOID}\n    return merged"
FIRST = "return merged", "first = (lse == -INF).all()\n    return merged"
AS_IT_WAS = "return merged", f"merged = torch.where(first, merged, {SIGMOID})\n    return merged"

FINITE_LSE = (
    "Your result is right, except where both lse are −∞. Your lse is a finite number there, as if "
    "a key had been seen. Return −∞."
)

MISTAKES = [
    ("first part of all, both empty open",
     "Right if the old lse is −∞ for all queries or for none. If it is −∞ for only some, your lse "
     "is NaN for these queries, because −∞ − (−∞) is NaN. Where part_lse is −∞ too, your output is "
     "also NaN. Return part_out and part_lse for these queries, for example with `torch.where`.",
     FIRST, AS_IT_WAS, (LSE, f"torch.where(first, {LSE}, {OLD_LSE})")),
    ("first part of all",
     "Right if the old lse is −∞ for all queries. If it is −∞ only for some of them, and their "
     "part_lse is finite, your lse is NaN there, because −∞ − (−∞) is NaN. Return part_lse for "
     "these queries, for example with `torch.where`.",
     FIRST, (LSE, f"torch.where(first, {LSE}, {NO_NAN})")),
    ("part for all queries",
     "If the old lse is −∞ for any query, you return the part's output and lse for all queries. "
     "Return them only for that query, for example with `torch.where`.",
     ("return merged", "if (lse == -INF).any():\n        return part_out, part_lse\n"
      "    return merged")),
    ("part passed over for all queries",
     "If part_lse is −∞ for some query, you ignore the part for all queries. Ignore it only for "
     "that query, for example with `torch.where`.",
     ("return merged", "if (part_lse == -INF).any():\n        return out, lse\n"
      "    return merged")),
    ("bug still there",
     "Your lse is NaN where the old lse is −∞, and your output is NaN where both lse are −∞. In "
     "the formulas with sigmoids, −∞ − (−∞) is NaN. Treat these queries separately.",
     WITH_SIGMOID,
     (LSE, OLD_LSE)),
    ("lse still there, both empty right",
     "Right, except where the old lse is −∞ and part_lse is finite. Your lse is NaN there, because "
     "in the formula with logsigmoid, −∞ − (−∞) is NaN. Return part_lse there.",
     (LSE, NO_NAN)),
    ("bug still there, lse of both empty right",
     "Your lse is NaN where the old lse is −∞ and part_lse is finite, and your output is NaN where "
     "both lse are −∞. In the formulas with sigmoids, −∞ − (−∞) is NaN. Treat these queries "
     "separately.",
     WITH_SIGMOID, (LSE, NO_NAN)),
    ("lse still there",
     "Your output is right, but your lse is NaN where the old lse is −∞. In the formula with "
     "logsigmoid, −∞ − (−∞) is NaN. Return part_lse there.",
     (LSE, OLD_LSE)),
    ("output still there",
     "Your lse is right, but your output is NaN where both lse are −∞. In the formula with "
     "sigmoid, −∞ − (−∞) is NaN. Return 0 there.",
     WITH_SIGMOID),
    ("overflow",
     "Your lse is wrong if part_lse is much larger than lse, because e^(part_lse − lse) overflows "
     "to inf. Subtract the larger lse from both before you take exponentials. Where both are −∞, "
     "return an output of 0 and an lse of −∞.",
     WITH_SIGMOID,
     (LSE, "lse + (1 + (part_lse - lse).exp()).log()")),
    ("all overflows",
     "Your result is wrong if part_lse is much larger than lse, because e^(part_lse − lse) "
     "overflows to inf. Subtract the larger lse from both before you take exponentials. Where both "
     "are −∞, return an output of 0 and an lse of −∞.",
     (RETURN,
      "new_lse = lse + (1 + (part_lse - lse).exp()).log()\n"
      "    merged = (lse - new_lse).exp()[..., None] * out\n"
      "    merged = merged + (part_lse - new_lse).exp()[..., None] * part_out\n"
      "    return merged, new_lse")),
    ("lse overflows",
     "Your output is right. Your lse is wrong if part_lse is much larger than lse, because "
     "e^(part_lse − lse) overflows to inf. Subtract the larger lse from both before you take "
     "exponentials. Where both are −∞, your lse must be −∞.",
     (LSE, "lse + (1 + (part_lse - lse).exp()).log()")),
    ("nothing subtracted",
     "Your e^lse overflows to inf if lse is large, and underflows to 0 if lse is far below 0. "
     "Before you take exponentials, subtract the larger lse from both, or 0 if both are −∞.",
     (BASE, "torch.zeros_like(m)"), (LSE, "total.log()")),
    ("both empty",
     "Your result is right, except where both lse are −∞. There, −∞ − (−∞) and 0 / 0 are NaN. For "
     "such a query, return an output of 0 and an lse of −∞.",
     (BASE, "m"), ("total.masked_fill(total == 0, 1)", "total")),
    ("one maximum for all queries",
     "Your result is what you get with one maximum for all queries. If both lse of a query are far "
     "below it, both exponentials underflow to 0. Then its output is 0, and its lse is −∞. Take "
     "one maximum for each query, with `torch.maximum(lse, part_lse)`.",
     (BASE, "m.max().nan_to_num(neginf=0.0)"), (LSE, "base + total.log()"),
     ("out + share[..., None] * (part_out - out)",
      "(old / total.masked_fill(total == 0, 1))[..., None] * out + share[..., None] * part_out")),
    ("zero for the lse",
     "Your result is right, except where both lse are −∞. Your lse is 0 there, which would count "
     "as one score of 0. Return −∞.",
     (LSE, "base + total.masked_fill(total == 0, 1).log()")),
    *(
        (f"eps of {eps} in the logarithm",
         "Your output is right. Your lse is finite where both lse are −∞, as if a key had been "
         "seen. If you add an eps before you take the logarithm, leave it out: log 0 is −∞.",
         (LSE, f"base + (total + {eps}).log()"))
        for eps in (1e-6, 1e-8, 1e-9, 1e-10, 1e-12)
    ),
    ("finite lse", FINITE_LSE,
     (LSE, "(m + total.log()).clamp(min=torch.finfo(m.dtype).min)")),
    ("still empty",
     "Your output is right. Your lse stays −∞ where the old lse is −∞, but the part has keys. "
     "Return part_lse there.",
     (LSE, "m.masked_fill(lse == -INF, -INF) + total.log()")),
    ("old lse kept",
     "Your output is right, but you return the old lse. Return the lse of both together.",
     (LSE, "lse")),
    ("lse of the part",
     "Your output is right, but you return the lse of the part. Return the lse of both together.",
     (LSE, "part_lse")),
    ("larger lse",
     "Your output is right, but you return the larger lse. Return the lse of both together, "
     "log(e^lse + e^part_lse), for example with `torch.logaddexp`.",
     (LSE, "m")),
    ("lse added",
     "Your output is right, but you return the sum of the two lse values. An lse is a "
     "logarithm, so add the exponentials: log(e^lse + e^part_lse), for example with "
     "`torch.logaddexp`.",
     (LSE, "lse + part_lse")),
    ("outputs averaged",
     "Your output is the mean of the two outputs. The one with the larger lse must count more. "
     "Weight each by its e^lse, divided by the sum of the two. Before you take exponentials, "
     "subtract the larger lse from both, or 0 if both are −∞.",
     ("share[..., None] * (part_out - out)", "(part_out - out) / 2")),
    ("outputs added",
     "Your output is the sum of the two outputs, but each is already a weighted mean of values. "
     "Weight each by its e^lse, divided by the sum of the two. Before you take exponentials, "
     "subtract the larger lse from both, or 0 if both are −∞.",
     ("share[..., None] * (part_out - out)", "part_out")),
    ("shares exchanged",
     "Each of your outputs is weighted by the e^lse of the other. Weight each output by its *own* "
     "e^lse.",
     ("share = new / total", "share = old / total")),
    ("output alone",
     "Your output is right, but you return only the output. Return the lse of both together as "
     "well.",
     (RETURN, "return merged")),
    ("results exchanged",
     "Both results are right, but in the wrong order. Return the output first, then lse.",
     (RETURN, f"return {LSE}, merged")),
    ("lowest number in place of infinity",
     "Where both lse are −∞, your lse is finite, and where only the old lse is −∞, rounding "
     "loses part_lse. You get this result if you replace −∞ with a very low finite number. Keep "
     "−∞, and treat these queries separately.",
     WITH_SIGMOID,
     (LSE, OLD_LSE),
     ("m = torch", CLAMPED.format("torch.finfo(lse.dtype).min") + "m = torch")),
    ("1e9 in place of infinity, restored",
     "Right in float64. In float32, your lse is wrong where the old lse is −∞ and part_lse is "
     "finite. If you replace −∞ with a number such as −1e9, rounding loses part_lse. Keep −∞, "
     "and return part_lse there.",
     ("return merged", "low = lse.clamp(min=-1e9)\n    return merged"),
     (LSE, "(low - torch.nn.functional.logsigmoid(low - part_lse)).masked_fill(m == -INF, -INF)")),
    ("lowest number in place of infinity, restored",
     "Your lse is 0 where the old lse is −∞ and part_lse is finite. If you replace −∞ with a "
     "very low number, rounding loses part_lse. If you replace NaN with 0, a score of 0 counts "
     "as seen. Return part_lse there.",
     ("return merged", "low = lse.clamp(min=torch.finfo(lse.dtype).min)\n    return merged"),
     (LSE, "(low - torch.nn.functional.logsigmoid(low - part_lse)).masked_fill(m == -INF, -INF)")),
    ("1e9 in place of infinity",
     "Where both lse are −∞, your lse is finite, and where only the old lse is −∞, rounding "
     "loses part_lse in float32. You get this result if you replace −∞ with a number such as "
     "−1e9. Keep −∞, and treat these queries separately.",
     WITH_SIGMOID, (LSE, OLD_LSE),
     ("m = torch", CLAMPED.format("-1e9") + "m = torch")),
    ("1e9 in place of infinity, stable", FINITE_LSE,
     ("m = torch", CLAMPED.format("-1e9") + "m = torch")),
    ("finite number in place of infinity",
     "Where both lse are −∞, your lse is finite. You get this result if you replace −∞ with a "
     "finite number such as −1e4. A real lse may be even lower than this number. Keep −∞, and "
     "treat these queries separately.",
     ("m = torch", CLAMPED.format("-1e4") + "m = torch")),
    ("NaN replaced by 0",
     "Your lse is 0 where the old lse is −∞, as if a score of 0 had been seen. This happens if "
     "you replace NaN with 0. Return part_lse there.",
     ("return merged", f"merged = ({SIGMOID}).nan_to_num(0.0)\n    return merged"),
     (LSE, "(lse - torch.nn.functional.logsigmoid(lse - part_lse)).nan_to_num(0.0)")),
]  # fmt: skip

exercise = Exercise(
    "6.10", add_part, inputs, MISTAKES, names="L d_v|L", also_right=[by_logaddexp, by_sigmoid]
)
