"""3.6: one step of online attention, with an output that is divided after every block."""

import torch

from course_utils.checks.exercise import Exercise, call_with_clones
from course_utils.checks.inputs import normals, out_of_order
from course_utils.checks.lesson_03._scores import STEPS, refuse_epsilon

INF = torch.inf


def online_update(m, ell, out, x, v):
    m_new = torch.maximum(m, x.amax(dim=-1))  # (..., L)
    base = m_new.masked_fill(m_new == -torch.inf, 0)  # (..., L), all -inf so far: subtract 0
    old = ell * (m - base).exp()  # (..., L), the old sum, relative to m_new
    p = (x - base[..., None]).exp()  # (..., L, n), relative to m_new too
    total = old + p.sum(dim=-1)  # (..., L)
    both = old[..., None] * out + p @ v  # (..., L, d_v), out times its sum is undivided again
    return m_new, total, both / total.masked_fill(total == 0, 1)[..., None]


def one_key_at_a_time(m, ell, out, x, v):
    for j, value in enumerate(x.unbind(-1)):
        new = torch.maximum(m, value)
        safe = torch.where(new == -INF, torch.zeros_like(new), new)
        e = torch.exp(value - safe)
        m, ell = new, ell * torch.exp(m - safe) + e
        share = e / torch.where(ell > 0, ell, 1.0)
        out = out + share[..., None] * (v[..., j, None, :] - out)
    return m, ell, out


def by_joining(m, ell, out, x, v):
    both = torch.cat([m[..., None], x], -1)
    new = both.detach().amax(-1)  # the gradient of m + log ℓ needs none of m
    e = (both - new[..., None].nan_to_num(neginf=0.0)).exp()
    old, block = ell * e[..., 0], e[..., 1:]
    total = old + block.sum(-1)
    whole = torch.where(total > 0, total, 1.0).unsqueeze(-1)
    return [new, total, old.unsqueeze(-1) / whole * out + torch.matmul(block / whole, v)]


def inputs():
    normal = normals(90)

    def state(*rows, n=4, d_v=2, shift=0.0, m=None, dtype=torch.float64):
        x = normal(*rows, n, dtype=dtype) + shift
        v = normal(*rows[:-1], n, d_v, dtype=dtype)
        if m is None:  # before the first block
            start = torch.full(rows, -INF, dtype=dtype)
            return start, torch.zeros(rows, dtype=dtype), v.new_zeros(*rows, d_v), x, v
        ell, out = normal(*rows, dtype=dtype).abs() + 1.25, normal(*rows, d_v, dtype=dtype)
        return torch.full(rows, m, dtype=dtype), ell, out, x, v

    def forbidden(given, *indices):
        for index in indices:
            given[3][index] = -INF
        return given

    far = torch.tensor([1000.0, -800.0, 0.0], dtype=torch.float64)  # rows far apart
    _, ell, out, x, v = state(3, n=6, m=0.0)
    m, *others = state(2, 4, n=3, m=0.5)
    some_new = state(4, n=3, m=0.25)  # for some rows, this is the first block with allowed keys
    for each, before in zip(some_new[:3], (-INF, 0, 0), strict=True):
        each[1::2] = before
    return [
        state(3, m=-2.0, d_v=5),  # the maximum grows
        state(3, m=6.0),  # the maximum stays
        state(2, 3, 5, n=2, m=0.0, d_v=4),
        state(3, n=6),
        state(3, n=1),  # ℓ is 1, out is v
        forbidden(state(3), 0, (1, slice(3))),
        forbidden(state(2, 3), slice(None)),
        forbidden(state(3, m=0.5), 0, (1, slice(3))),  # an earlier block had allowed keys
        some_new,
        state(3, shift=-50.0, m=-60.0),  # every score is negative
        state(3, shift=1000.0, m=998.0),
        (far, ell, out, x + far[:, None], v),
        (far, ell, out, x + far[:, None] + 900, v),
        state(1, 1, n=1, m=0.2, d_v=1),
        (m, *out_of_order(*others)),
        state(3, n=2, shift=-200_000, m=-200_000.0),
        state(3, n=2, shift=-1e10, m=-1e10),  # below any limit
        state(4, n=3, m=-120.0, shift=-120, dtype=torch.float32),
    ]


def output_and_logsumexp(answer, m, ell, out, x, v):
    """Return the state or, for gradients, the output and the log-sum-exp.

    A detached maximum changes neither of them. The state before the first block has no gradient.
    After a block of -inf, a second block follows, because log 0 has no gradient.
    """
    if not x.requires_grad:
        results = call_with_clones(answer, m, ell, out, x, v)
        if x.shape[-1] == 1 and m.isneginf().all():
            right, nothing = (x[:, 0], torch.ones_like(m), v.expand(3, -1)), -INF * torch.ones(3, 1)
            refuse_epsilon(results[0], right)
            state = results[0]
            shapes = [tensor.shape for tensor in right]
            for _ in range(STEPS):  # blocks of -inf change nothing, but the errors of an eps add up
                if isinstance(state, tuple | list):
                    if [getattr(tensor, "shape", None) for tensor in state] != shapes:
                        break  # it cannot be given back
                    [state] = call_with_clones(answer, *state, nothing.double(), v)
            refuse_epsilon(state, right)
        return results
    if not m.isfinite().all():
        m, ell, out = m.detach(), ell.detach(), out.detach()
    [(m, ell, out)] = call_with_clones(answer, m, ell, out, x, v)
    if x.isneginf().all(-1).any():
        [(m, ell, out)] = call_with_clones(answer, m, ell, out, torch.zeros_like(x), v)
    return [(out, torch.where(ell > 0, m + ell.clamp(min=1e-30).log(), 0))]


OLD = "old[..., None] * out"
BOTH = f"{OLD} + p @ v"
SAFE = "total.masked_fill(total == 0, 1)"
WHOLE = f"both / {SAFE}[..., None]"
SHRUNK = "(m - base).exp()"
RESCALED = f"ell * {SHRUNK}"
AGAIN = f"({SHRUNK} / ell.masked_fill(ell == 0, 1))[..., None] * out"
OK = "Your new m and ℓ are right. "
OLD_DIVIDED = OK + (
    "You divide the given out by the old ℓ, but it is already divided by it. Multiply it by old ℓ "
    "· e^(old m − new m), add Σ e^(x − new m) v, and then divide by the new ℓ."
)
MISTAKES = [
    ("old sum not rescaled",
     "Your ℓ is wrong when m rises, because the old sum in it is still relative to the old m. "
     "Multiply the old ℓ by e^(old m − new m).",
     (RESCALED, "ell")),
    ("rescaled backwards",
     "Your old ℓ is rescaled in the wrong direction. Multiply it by e^(old m − new m), which is "
     "never above 1.",
     (SHRUNK, "(base - m).exp().nan_to_num(posinf=0.0)")),
    ("not divided, as in the lesson",
     OK + "Your out is the undivided sum of the lesson. Here, the out that you are given is "
          "already divided by the old ℓ, and the out that you return must be divided too. "
          "Multiply the old out by old ℓ · e^(old m − new m). Divide the whole sum by the new ℓ, "
          "or by 1 where the new ℓ is 0.",
     (BOTH, f"{SHRUNK}[..., None] * out + p @ v"), (WHOLE, "both")),
    ("not divided",
     OK + "Your out is an undivided sum. Divide it by the new ℓ, or by 1 where the new ℓ is 0.",
     (WHOLE, "both")),
    ("divided twice",
     OK + "Your out is divided by ℓ twice. One division already makes the weights sum to 1, so "
          "divide once.", (BOTH, f"({BOTH}) / {SAFE}[..., None]")),
    ("old output without its weight",
     OK + "But before the division, you multiply the given out only by e^(old m − new m), "
          "although it is already divided by the old ℓ. Multiply it by old ℓ · e^(old m − new m).",
     (BOTH, f"{SHRUNK}[..., None] * out + p @ v")),
    ("old output divided again",
     OK + "You divide the given out by the old ℓ, but it is already divided by it. Before you "
          "divide by the new ℓ, multiply the given out by old ℓ · e^(old m − new m).",
     (OLD, AGAIN)),
    ("old output divided again, the block's divided",
     OLD_DIVIDED,
     (BOTH, f"{AGAIN} + p @ v / {SAFE}[..., None]"), (WHOLE, "both")),
    ("old output divided again, the block's by its sum",
     OLD_DIVIDED,
     (BOTH, f"{AGAIN} + x.softmax(dim=-1).nan_to_num(0) @ v"), (WHOLE, "both")),
    ("old output not rescaled",
     OK + "Your product of the old ℓ and the old out is still relative to the old m. Multiply it "
          "by e^(old m − new m) too.",
     (OLD, "ell[..., None] * out")),
    ("old output times the new sum",
     OK + "You multiply the given out by the new ℓ, but it is divided by the old ℓ. Before you "
          "divide by the new ℓ, multiply the given out by old ℓ · e^(old m − new m).",
     (OLD, f"(total * {SHRUNK})[..., None] * out")),
    ("old output counted once",
     OK + "But before the division, the given out counts like a single key, although it stands for "
          "all earlier keys. Multiply it by old ℓ · e^(old m − new m).",
     (BOTH, "out + p @ v")),
    ("old output not divided",
     OK + "Only the block's part of your out is divided. Divide the old part by the new ℓ too.",
     (BOTH, f"{OLD} + p @ v / {SAFE}[..., None]"), (WHOLE, "both")),
    ("old output dropped",
     OK + "Your out omits the old output. Before you divide by the new ℓ, add the given out, "
          "multiplied by old ℓ · e^(old m − new m).",
     (BOTH, "p @ v")),
    ("block alone",
     OK + "Your out is attention over this block only. Multiply the old out by old ℓ · e^(old m "
          "− new m), which turns it back into a sum. Add Σ e^(x − new m) v. Divide by the new ℓ, "
          "or by 1 where the new ℓ is 0.",
     (WHOLE, "x.softmax(dim=-1).nan_to_num(0) @ v")),
    ("block's output left out",
     OK + "Your out omits the values of this block. Before you divide by the new ℓ, add Σ e^(x − "
          "new m) v.", (BOTH, OLD)),
    ("divided by the old sum",
     OK + "Your out is divided by the old ℓ, which leaves out this block. Divide it by the new ℓ.",
     (WHOLE, "both / ell.masked_fill(ell == 0, 1)[..., None]")),
    ("divided by the block's sum",
     OK + "Your out is divided by the sum of this block, which leaves out the earlier keys. "
     "Divide it by the new ℓ.",
     (WHOLE, "both / p.sum(-1).masked_fill(total == 0, 1)[..., None]")),
    ("block not divided",
     OK + "The block's part of your out is not divided. Divide it by the new ℓ, like the old "
     "part.",
     (BOTH, f"(old / {SAFE})[..., None] * out + p @ v"), (WHOLE, "both")),
    ("old output kept whole",
     OK + "The given out keeps its full weight when the block is added. Multiply it by old ℓ · "
          "e^(old m − new m) / new ℓ.",
     (BOTH, f"out + p @ v / {SAFE}[..., None]"), (WHOLE, "both")),
    ("outputs averaged",
     OK + "Your out is the plain mean of the old output and the block's output. Each must be "
          "weighted by its sum of exponentials. Multiply the old out by old ℓ · e^(old m − new "
          "m), and add Σ e^(x − new m) v. Divide by the new ℓ, or by 1 where the new ℓ is 0.",
     (WHOLE, "(out + x.softmax(dim=-1).nan_to_num(0) @ v) / 2")),
    ("both outputs added",
     OK + "Your out is the plain sum of the old output and the block's output. Each must be "
          "weighted by its sum of exponentials. Multiply the old out by old ℓ · e^(old m − new "
          "m), and add Σ e^(x − new m) v. Divide by the new ℓ, or by 1 where the new ℓ is 0.",
     (WHOLE, "out + x.softmax(dim=-1).nan_to_num(0) @ v")),
    ("block divided by itself",
     OK + "The block's part of your out matches a softmax over the block, so it is divided by "
          "the block's own sum. Use Σ e^(x − new m) v for the block, and divide only once, by "
          "the new ℓ.",
     (BOTH, f"{OLD} + x.softmax(dim=-1).nan_to_num(0) @ v")),
    ("the block's own softmax, NaN for an empty block",
     OK + "Your out is NaN where a row of the block is all −inf. A softmax over −inf alone is "
          "NaN, and 0 · NaN is NaN. Add Σ e^(x − new m) v / new ℓ for the block instead, because "
          "all its exponentials are 0 there.",
     (BOTH, f"(old / {SAFE})[..., None] * out + "
      f"(p.sum(-1) / {SAFE})[..., None] * (x.softmax(dim=-1) @ v)"), (WHOLE, "both")),
    ("block's values averaged",
     OK + "The block's part of your out is divided by the number of its keys, as by a mean over "
          "them. Add the sum, Σ e^(x − new m) v, before you divide by the new ℓ.",
     ("p @ v", "p @ v / x.shape[-1]")),
    ("first block in some rows",
     "Right, unless m is −inf in some rows only. Then you drop the old state of the other rows. "
     "Decide for each row whether m is −inf, not for the whole tensor.",
     ("    old =", "    if (m == -torch.inf).any():\n        m, ell, out = "
      "m.detach() - torch.inf, ell * 0, out * 0\n    old =")),
    ("block's softmax added",
     OK + "Your old output has the right weight. But the block's part is divided by the block's "
          "own sum, as in a softmax over the block. Divide Σ e^(x − new m) v by the new ℓ "
          "instead.",
     (BOTH, f"(old / {SAFE})[..., None] * out + x.softmax(dim=-1).nan_to_num(0) @ v"),
     (WHOLE, "both")),
    ("a softmax for the exponentials",
     "Your ℓ grows by 1 with each block that is not all −inf, as if you added the weights of a "
     "softmax over the block. Add the exponentials e^(x − new m), without dividing them.",
     ("(x - base[..., None]).exp()", "x.softmax(dim=-1).nan_to_num(0)")),
    ("old maximum forgotten",
     "Your m is the maximum of this block only. Take the larger of the old m and the block's "
     "maximum.",
     ("torch.maximum(m, x.amax(dim=-1))", "x.amax(dim=-1)")),
    ("smaller maximum",
     "Your m is the smaller of the old m and the block's maximum, so an exponential can be above "
     "1 and overflow. Use torch.maximum.", ("maximum(", "minimum(")),
    ("block relative to the old maximum",
     "The exponentials of your block are relative to the old m, but the new ℓ must be relative to "
     "the new m. Use e^(x − new m).",
     ("base[..., None]", "m.masked_fill(m == -torch.inf, 0)[..., None]")),
    ("sum relative to the old maximum",
     "You return the new m, but your ℓ is still relative to the old m. Multiply the old ℓ by "
     "e^(old m − new m), and use e^(x − new m) for the block.", (RESCALED, "ell"),
     ("base[..., None]", "m.masked_fill(m == -torch.inf, 0)[..., None]")),
    ("block relative to itself",
     "The exponentials of your block are relative to the block's own maximum. The new m can be "
     "larger, and all exponentials must be relative to it. Use e^(x − new m).",
     ("base[..., None]", "x.amax(dim=-1, keepdim=True).nan_to_num(neginf=0.0)")),
    ("block not shifted",
     "The exponentials of your block are e^x. They can overflow, and they are not relative to the "
     "new m. Use e^(x − new m).",
     ("(x - base[..., None])", "x")),
    ("nothing shifted",
     "Your ℓ is the old ℓ plus Σ e^x, with no maximum subtracted. Multiply the old ℓ by e^(old m "
     "− new m), and use e^(x − new m) for the block.",
     ("(x - base[..., None])", "x"), (RESCALED, "ell")),
    ("old sum dropped",
     "Your ℓ drops the sum of the earlier blocks. Return old ℓ · e^(old m − new m) plus the sum "
     "of this block.",
     ("old + p.sum(dim=-1)", "p.sum(dim=-1)")),
    ("block not added",
     "Your new ℓ is only the old part, old ℓ · e^(old m − new m). Add the sum of this block's "
     "exponentials, e^(x − new m).",
     ("old + p.sum(dim=-1)", "old")),
    ("mean of the block",
     "You add the mean of the block's exponentials to ℓ. But ℓ is a sum over all keys. Add the "
     "sum of the exponentials.", ("sum(", "mean(")),
    ("old maximum returned",
     "Your m is the old one. Return the larger of the old m and the block's maximum.",
     ("return m_new", "return m")),
    ("maximum not below a limit",
     "Right, unless all scores so far are very low. Then the number that you subtract is larger "
     "than every score, and all exponentials underflow to 0. Subtract the true maximum, and "
     "replace it with 0 only where it is −inf.",
     ("m_new.masked_fill(m_new == -torch.inf, 0)", "m_new.clamp(min=-1e4)")),
    ("nan while nothing is allowed",
     "While a query has seen only scores of −inf, your ℓ is NaN, because −inf − (−inf) is NaN. "
     "Where the new m is −inf, subtract 0 instead, so that m stays −inf, and ℓ and out stay 0.",
     ("m_new.masked_fill(m_new == -torch.inf, 0)", "m_new")),
    ("0 / 0 while nothing is allowed",
     OK + "But while a query has seen only scores of −inf, your out is NaN, because 0 / 0 is NaN. "
          "Where the new ℓ is 0, divide by 1.", (SAFE, "total")),
    *[(f"−inf replaced by {low}",
       "While a query has seen only scores of −inf, its m must stay −inf, but yours is finite. If "
       "you replace −inf with a very low number, e^(x − m) is e^0 = 1 for these scores, so they "
       "count. Keep −inf in x and m, and subtract 0 where the new m is −inf.",
       ("    m_new", f"    m, x = m.clamp(min={low}), x.clamp(min={low})\n    m_new"))
      for low in ("-1e9", "-1e30")],
    ("m is 0",
     "While a query has seen only scores of −inf, its m must stay −inf, but yours is 0. If you "
     "replace −inf with 0 in order to subtract it, do not return this 0. Return −inf there.",
     ("return m_new", "return base")),
    ("ℓ is 1",
     "While a query has seen only scores of −inf, its ℓ must stay 0, but yours is 1. If you "
     "replace 0 with 1 in order to divide by it, do not return this 1. Return 0 there.",
     ("new, total", f"new, {SAFE}")),
    ("state out of order",
     "Your m and ℓ are swapped. Return m, ell, out, in this order.",
     ("return m_new, total", "return total, m_new")),
    ("output before sum",
     "Your ℓ and out are swapped. Return m, ell, out, in this order.",
     (f"total, {WHOLE}", f"{WHOLE}, total")),
    ("one maximum for all rows",
     "All your rows share one maximum, but each row has its own running maximum. Use "
     "x.amax(dim=-1).",
     ("x.amax(dim=-1)", "x.max()")),
    ("one maximum returned for all rows",
     "You return one maximum, taken over all rows. Return one running maximum for each row.",
     ("return m_new", "return m_new.max().expand(m_new.shape)")),
    ("logarithm returned",
     "You return the log-sum-exp in place of ℓ. The next block needs ℓ itself, so return the sum "
     "of the exponentials.",
     ("return m_new, total", "return m_new, m_new + total.log()")),
    ("logarithm in m",
     "You return m + log ℓ in place of m. The next block needs m and ℓ separately. Return the "
     "maximum itself.",
     ("n m_new", "n m_new + total.log()")),
    ("rounded to float32",
     "Your result is what you get with float32, where numbers near −200,000 are 0.016 apart. Keep "
     "float64.",
     ("x.amax", "x.float().amax"), ("(x - base", "(x.float() - base")),
]  # fmt: skip

exercise = Exercise(
    "3.6", online_update, inputs, MISTAKES, "L|L|L d_v", output_and_logsumexp, differentiable=True,
    also_right=[one_key_at_a_time, by_joining],
)  # fmt: skip
