"""3.8: the entropy of a softmax whose scores arrive in blocks. The last problem."""

import weakref

import torch

from course_utils.checks.compare import difference, read
from course_utils.checks.exercise import Exercise, NamedMistake
from course_utils.checks.inputs import Held, Shapes, normals
from course_utils.checks.shared_hints import STARTS_FINITE

INF = torch.inf
MANY = 40  # blocks
FAR = 1e15  # here neighboring float64 numbers are 0.125 apart


def streamed_entropy(blocks):
    m, ell, s = torch.tensor(-torch.inf), 0.0, 0.0  # max x, Σ e^(x − m), Σ (x − m) e^(x − m)
    for x in blocks:  # (..., n)
        m_new = torch.maximum(m, x.double().amax(dim=-1))  # (...)
        base = m_new.masked_fill(m_new == -torch.inf, 0)  # (...), all -inf so far: subtract 0
        change = (m - base).clamp(min=-1e4)  # (...), 0 or less; e^−10,000 is 0
        below = (x - base[..., None]).clamp(min=-1e4)  # (..., n), to avoid 0 · −inf
        old = change.exp() * (s + change * ell)  # (...), relative to m_new
        s = old + (below * below.exp()).sum(dim=-1)  # (...)
        ell = change.exp() * ell + below.exp().sum(dim=-1)  # (...)
        m = m_new
    return ell.log() - s / ell  # (...), because −log p = log ℓ − (x − m)


def one_score_at_a_time(blocks):
    m, ell, s = -INF, 0.0, 0.0
    for x in (x.double() for block in blocks for x in block.unbind(-1)):
        new = torch.maximum(torch.as_tensor(m).double(), x)
        step, gap = (m - new).nan_to_num(0), (x - new).nan_to_num(0)
        old, term = (m - new).exp().nan_to_num(0), (x - new).exp().nan_to_num(0)
        s = torch.where(old > 0, old * (s + step * ell), 0.0)
        s, ell, m = s + torch.where(term > 0, term * gap, 0.0), old * ell + term, new
    return ell.log() - s / ell


def inputs():
    normal = normals(38)
    gaps = normal(3, 9)
    gaps[:, 4:6], gaps[0, :4], gaps[2, 7:] = -INF, -INF, -INF  # row 0 starts with a block of −inf
    steps = torch.tensor([[-800.0, 0, 700, 1400], [1400, 700, 0, -800]]).double()
    near = torch.tensor([[0.0, 1, 3, 0], [2, -7, 2, 1]]).double() + FAR
    scores = [
        (normal(6), 2, 2, 2),
        (normal(3, 8), 3, 4, 1),
        (normal(2, 3, 7), 1, 1, 5),
        (normal(4, 5), 5),  # a single block
        (normal(1, 5), 2, 3),
        (torch.zeros(2, 10).double(), 4, 6),
        (gaps, 4, 2, 3),
        (steps, 1, 1, 2),
        (near, 2, 2),
        (near - 2 * FAR, 1, 3),
        ((near - 2 * FAR).index_fill(1, torch.tensor([1, 2]), -INF), 1, 3),
        (30 * normal(2, 12), 5, 4, 3),
        (20_000 + normal(3, 6), 3, 3),
        ((20_000 + 3 * normal(2, 9)).float(), 4, 5),
        (normal(50, 3).T, 20, 30),  # not contiguous
        (normal(2, MANY), *[1] * MANY),
        (normal(3, 5) + torch.tensor([[0.0], [-2000], [900]]), 2, 3),  # rows far apart
        (normal(2, 5) - 1500, 2, 3),
    ]
    return [(x.split(list(sizes), dim=-1),) for x, *sizes in scores]


LARGE = (
    "Right for scores near 0, but wrong for scores near 10¹⁵. There, a log-sum-exp or Σ p x is "
    "rounded to a multiple of 0.125, even in float64. Compute neither of the two. Sum e^(x − m) "
    "and (x − m) e^(x − m) in float64, and convert both sums to the new m when m rises."
)
SINGLE = (
    "Your result for scores near 10¹⁵ is what you get in float32. Neighboring float32 numbers are "
    "6.7 · 10⁷ apart there, so all scores of a row become equal. Compute in float64."
)
TWICE = (
    "Your function reads the blocks twice, but the second loop finds nothing. Keep all you need in "
    "one loop, as with m and ℓ, and rescale it when m rises."
)


class Once:
    """Yields blocks once, and notes how many are kept and whether it is read again.

    Error messages call it a generator, as learners would.
    """

    def __init__(self, blocks):
        self.blocks, self.given, self.most = iter(blocks), [], 0
        self.ended = self.again = False

    def __iter__(self):
        self.again = self.again or self.ended
        return self

    def __next__(self):
        try:
            block = next(self.blocks).detach().clone()  # a graph for gradients would keep blocks
        except StopIteration:
            self.ended = True
            raise
        self.most = max(self.most, sum(each() is not None for each in self.given))
        self.given.append(weakref.ref(block))
        return block


Once.__name__ = "generator"


def blocks_once(answer, blocks):
    """Give the blocks one by one. Complain about a wrong answer that reads them again, and about a
    right one that keeps them or the row."""
    once = Once(blocks)
    with Shapes() as shapes:
        try:
            result = answer(once)
        except Exception:
            if once.again:
                raise NamedMistake("reads twice", TWICE) from None
            raise
    row = torch.cat(blocks, dim=-1).double()
    right = torch.special.entr(row.softmax(dim=-1)).sum(dim=-1)  # after the call, out of its reach
    if once.again and difference(result, right):
        raise NamedMistake("reads twice", TWICE)
    finite = (got := read(result)) is not None and got.isfinite().all()
    if finite and (blocks[0] > FAR / 2).any() and difference(result, right):
        single = torch.special.entr(row.float().double().softmax(dim=-1)).sum(dim=-1)
        if difference(result, single) is None:
            raise NamedMistake("calculated in float32", SINGLE)
        if difference(answer(block - FAR for block in blocks), right) is None:
            raise NamedMistake("difference of large numbers", LARGE)
    whole = sum(block.shape[-1] for block in blocks)
    concatenated = len(blocks) > 1 and any(whole in shape for shape in shapes.results)
    # variables may still hold the last two blocks
    if once.most > 2 or concatenated or (len(blocks) == MANY and _grows(answer, blocks)):
        hint = (
            "Right, but what your function keeps grows with the length of the row, so it may not "
            "fit into memory. From block to block, keep only a few numbers for each row, such as m "
            "and ℓ."
        )
        raise NamedMistake("keeps the whole row", hint, [result])
    return [result]


def _grows(answer, blocks):
    """Check whether what is held grows by a number for each block, where blocks come again."""
    times, most = (1, 5), []
    for n in times:
        with Held([]) as watch:
            answer(block.detach().clone() for _ in range(n) for block in blocks)
        most.append(watch.most)
    return most[1] - most[0] >= (times[1] - times[0]) * len(blocks) * 4  # bytes of a float32


def merged_entropies(blocks, first, second):
    """Merge block entropies by their shares w and u, with these multiples of −w log w, −u log u."""
    m, ell, entropy = torch.tensor(-INF).double(), torch.tensor(0.0), 0.0
    for x in (block.double() for block in blocks):
        m_new = torch.maximum(m, x.amax(dim=-1))
        e = (x - m_new.nan_to_num(neginf=0)[..., None]).exp()
        old, new = ell * (m - m_new.nan_to_num(neginf=0)).exp(), e.sum(dim=-1)
        ell, m = old + new, m_new
        w, u = (each / torch.where(ell > 0, ell, 1.0) for each in (old, new))
        inside = torch.special.entr(e / torch.where(new > 0, new, 1.0)[..., None]).sum(dim=-1)
        entropy = w * entropy + u * inside + first * torch.special.entr(w)
        entropy = entropy + second * torch.special.entr(u)
    return entropy


OLD = "change.exp() * (s + change * ell)"
RETURN = "ell.log() - s / ell"
MISTAKES = [
    ("second sum not shifted",
     "Right as long as the maximum stays the same. When m rises, every x − m in your old Σ (x − "
     "m) e^(x − m) changes too, not only e^(x − m). Add e^(old m − new m) · (old m − new m) · "
     "old ℓ to the rescaled old sum.",
     (OLD, "change.exp() * s")),
    ("second sum not rescaled",
     "Your old s = Σ (x − m) e^(x − m) is still relative to the old m. When m rises, both x − m "
     "and e^(x − m) change in every term. Replace s with e^(old m − new m) · (s + (old m − new "
     "m) · old ℓ).", (OLD, "s")),
    ("second sum shifted the wrong way",
     "Your Σ (x − m) e^(x − m) is shifted in the wrong direction. When m rises, every x − m "
     "becomes smaller. Add (old m − new m) · old ℓ, which is 0 or less, instead of subtracting "
     "it.",
     (OLD, "change.exp() * (s - change * ell)")),
    ("second sum shifted once",
     "When m rises, your Σ (x − m) e^(x − m) changes by old m − new m only once. But every x − m "
     "in it changes by this amount, with the weight e^(x − m). Add (old m − new m) · old ℓ "
     "instead.",
     (OLD, "change.exp() * (s + change)")),
    ("second sum shifted by the old ℓ",
     "Your term (old m − new m) · ℓ uses the old ℓ, which is still relative to the old m. "
     "Multiply this term by e^(old m − new m) as well.", (OLD, "change.exp() * s + change * ell")),
    ("second sum shifted by ℓ rescaled twice",
     "In your term (old m − new m) · old ℓ, the old ℓ is multiplied by e^(old m − new m) twice. "
     "Multiply it once.",
     (OLD, "change.exp() * (s + change * change.exp() * ell)")),
    ("second sum shifted by the new ℓ",
     "Your term (old m − new m) · ℓ uses the new ℓ, which includes this block. Use the old ℓ, "
     "from before the block.",
     ("        ell = change.exp() * ell + below.exp().sum(dim=-1)  # (...)\n", ""),
     ("        old", "        ell = change.exp() * ell + below.exp().sum(dim=-1)\n        old")),
    ("second sum shifted by the new ℓ, not rescaled",
     "Your term (old m − new m) · ℓ uses the new ℓ, which includes this block. In this term, "
     "replace the new ℓ with e^(old m − new m) · old ℓ, where the old ℓ is from before the block.",
     ("        ell = change.exp() * ell + below.exp().sum(dim=-1)  # (...)\n", ""),
     ("        old", "        ell = change.exp() * ell + below.exp().sum(dim=-1)\n        old"),
     (OLD, "change.exp() * s + change.masked_fill(m == -INF, 0) * ell")),
    ("no sum rescaled",
     "Right as long as the maximum stays the same. When m rises, your old sums are still "
     "relative to the old m. Replace s = Σ (x − m) e^(x − m) with e^(old m − new m) · (s + (old "
     "m − new m) · old ℓ). Then multiply the old ℓ by e^(old m − new m).",
     (OLD, "s"), ("change.exp() * ell +", "ell +")),
    ("calculated in float32", SINGLE,
     lambda blocks: streamed_entropy(x.float() for x in blocks)),
    ("difference of large numbers",
     LARGE,
     (OLD, "change.exp() * s"), ("(below * below.exp())", "(x.clamp(min=-1e15) * below.exp())"),
     (RETURN, "m + ell.log() - s / ell")),
    ("nothing subtracted",
     "Your result is wrong for large scores, where e^x overflows to inf and inf / inf is NaN. "
     "Subtract the largest score so far, m, before exp. When m rises, convert Σ e^(x − m) and Σ "
     "(x − m) e^(x − m) to the new m. Let a score of −inf add 0, because 0 · −inf is NaN.",
     ("m_new.masked_fill(m_new == -torch.inf, 0)", "m_new * 0"), (OLD, "s"),
     (".clamp(min=-1e4)  # (..., n)", "  # (..., n)"), ("(m - base).clamp(min=-1e4)", "base")),
    ("NaN from the first block on",
     "Your result is NaN from the first block on. At first, old m − new m is −inf and ℓ is 0, "
     "and −inf · 0 is NaN. As long as m is −inf, let the old sums contribute 0.",
     (" = (m - base).clamp(min=-1e4)",
     " = m - base")),
    ("NaN for forbidden scores",
     "Your result is NaN where a score is −inf. Its e^(x − m) is 0, and 0 · −inf is NaN. Let such "
     "a score add 0.", (".clamp(min=-1e4)  # (..., n)", "  # (..., n)")),
    ("NaN while nothing is allowed",
     "Your result is NaN where the first block is all −inf, because −inf − (−inf) is NaN. Where "
     "the new m is −inf, subtract 0 instead.",
     ("m_new.masked_fill(m_new == -torch.inf, 0)", "m_new")),
    ("mean of the blocks' entropies",
     "Your result is the mean of the blocks' own entropies. But a block with higher scores counts "
     "more, and spreading weight over several blocks adds entropy. Carry Σ e^(x − m) and Σ (x − "
     "m) e^(x − m) over all blocks, and compute one entropy at the end.",
     ("    m, ell", "    entropies = []\n    m, ell"),
     ("m = m_new", "entropies.append(torch.special.entr(x.softmax(-1)).sum(-1))"),
     (RETURN, "torch.stack(entropies).nan_to_num(0).mean(dim=0)")),
    ("block entropies summed",
     "Your result is the sum of the blocks' own entropies. Each one belongs to a softmax over its "
     "block only. Carry Σ e^(x − m) and Σ (x − m) e^(x − m) over all blocks, and compute one "
     "entropy at the end.",
     ("    m, ell", "    entropies = []\n    m, ell"),
     ("m = m_new", "entropies.append(torch.special.entr(x.softmax(-1)).sum(-1))"),
     (RETURN, "torch.stack(entropies).nan_to_num(0).sum(dim=0)")),
    ("block entropies weighted",
     "Your result is the average of the blocks' entropies, each weighted by its block's total "
     "weight. This leaves out how the weight is spread over the blocks. Merge block by block: "
     "entropies H₁ and H₂ with the shares w and u give w H₁ + u H₂ − w log w − u log u. Compute "
     "the shares from e^(old m − new m), without a log-sum-exp.",
     ("    m, ell", "    entropies = []\n    m, ell"),
     ("m = m_new",
      "entropies.append((torch.special.entr(x.softmax(-1)).sum(-1), x.logsumexp(-1)))"),
     (RETURN, "sum(e.nan_to_num(0) * p for (e, _), p in zip(\n"
      "        entropies, torch.stack([n for _, n in entropies]).softmax(0), strict=True))")),
    ("entropy of the shares",
     "Your result is the entropy of the total weights of the blocks. But weight is also spread "
     "within each block. Merge block by block: entropies H₁ and H₂ with the shares w and u give "
     "w H₁ + u H₂ − w log w − u log u. Compute the shares from e^(old m − new m), without a "
     "log-sum-exp. Let a block of −inf add 0.",
     ("    m, ell", "    lses = []\n    m, ell"), ("m = m_new", "lses.append(x.logsumexp(-1))"),
     (RETURN, "torch.special.entr(torch.stack(lses).softmax(0)).sum(0)")),
    ("only the last block",
     "Your result is the entropy of the last block only. Carry Σ e^(x − m) and Σ (x − m) e^(x − "
     "m) from block to block, and convert both sums to the new m when m rises.",
     ("old + (", "("), ("change.exp() * ell + ", ""), ("m = m_new", "pass")),
    ("old share's entropy left out",
     "Your result leaves out −w log w, where w is the share of the earlier blocks. If you merge "
     "entropies H₁ and H₂ with the shares w and u, use w H₁ + u H₂ − w log w − u log u. Compute "
     "the shares from e^(old m − new m), without a log-sum-exp.",
     lambda blocks: merged_entropies(blocks, 0, 1)),
    ("block share's entropy left out",
     "Your result leaves out −u log u, where u is the share of each new block. If you merge "
     "entropies H₁ and H₂ with the shares w and u, use w H₁ + u H₂ − w log w − u log u. Compute "
     "the shares from e^(old m − new m), without a log-sum-exp.",
     lambda blocks: merged_entropies(blocks, 1, 0)),
    ("one entropy for all rows",
     "Your result is one number, the entropy over all rows together. Each row has its own "
     "softmax. Reduce only the last dimension, with dim=-1.",
     lambda blocks: streamed_entropy(x.flatten() for x in blocks)),
    ("low scores clamped",
     "Right, unless scores are extremely low. If you clamp the scores from below, for example at "
     "−10⁹, all scores below this limit become equal. Leave the scores as they are, and let a "
     "score of −inf add 0 to both sums.",
     lambda blocks: streamed_entropy(x.clamp(min=-1e9) for x in blocks)),
    ("−inf replaced by a finite number",
     "Right, unless all finite scores of a row are extremely low. If you replace −inf with a "
     "finite number, such as −10⁹, the replaced scores can then get all the weight. Keep −inf for "
     "the maximum. In the product of x − m and its exponential, set x − m to 0 for scores of −inf, "
     "because 0 · −inf is NaN.",
     lambda blocks: streamed_entropy(x.double().nan_to_num(neginf=-1e9) for x in blocks)),
    ("wrong sign",
     "Your result has the wrong sign. The entropy, −Σ p log p, is 0 or more. Flip the sign.",
     (RETURN, "s / ell - ell.log()")),
    ("in bits",
     "Your result is in bits. Use natural logarithms to get nats.",
     (RETURN, "(ell.log() - s / ell) / 0.6931471805599453")),
    ("second sum not divided",
     "Your sum of (x − m) e^(x − m) is not divided by ℓ. A weight is e^(x − m) / ℓ. Divide the sum "
     "by ℓ.",
     (RETURN, "ell.log() - s")),
    ("second sum added",
     "Your result is log ℓ plus Σ (x − m) e^(x − m) / ℓ. Since −log p = log ℓ − (x − m), subtract "
     "the second term.",
     (RETURN, "ell.log() + s / ell")),
    ("maximum subtracted",
     "Your result is the entropy minus m. You get this result if you sum x e^(x − m) and subtract "
     "it, divided by ℓ, from log ℓ. Sum (x − m) e^(x − m) instead.",
     (RETURN, "ell.log() - s / ell - m")),
    ("only the logarithm of ℓ",
     "Your result is log ℓ. Since −log p = log ℓ − (x − m), subtract the weighted mean of x − m, "
     "which is Σ (x − m) e^(x − m) / ℓ.", (RETURN, "ell.log()")),
    ("log-sum-exp",
     "Your result is the log-sum-exp of the row, m + log ℓ. The entropy is the mean of −log p = "
     "log ℓ − (x − m). Leave out m, and subtract Σ (x − m) e^(x − m) / ℓ.",
     (RETURN, "m + ell.log()")),
    ("one maximum for all rows",
     "Your result is what you get with one maximum for all rows. In a row whose scores lie 2000 "
     "below this maximum, all exponentials underflow to 0, and 0 / 0 is NaN. Give each row its "
     "own m: amax(dim=-1).",
     ("x.double().amax(dim=-1)", "x.double().amax()"),
     ("torch.maximum(m, x", "torch.maximum(m.max(), x"),
     ("  # (...)\n        base", ".expand(x.shape[:-1])\n        base")),
    ("starts with 0",
     STARTS_FINITE, ("torch.tensor(-torch.inf), 0.0", "torch.tensor(0.0), 0.0")),
    ("starts with a finite number",
     STARTS_FINITE,
     ("torch.tensor(-torch.inf), 0.0", "torch.tensor(-1e9), 0.0")),
    ("first maximum kept",
     "Right, unless a later block has a far larger score. Relative to the first maximum, the "
     "exponential of this score overflows to inf, and inf / inf is NaN. When a block has a larger "
     "score, set m to it, and convert both sums, Σ e^(x − m) and Σ (x − m) e^(x − m), to the new "
     "m.",
     ("m_new = torch.maximum(m, x.double().amax(dim=-1))",
     "m_new = torch.where(m == -torch.inf, x.double().amax(dim=-1), m)")),
    ("largest so far forgotten",
     "Your result is what you get if m is the maximum of the latest block alone. Then m can fall "
     "from block to block, and e^(old m − new m) can overflow. Take the larger of the block's "
     "maximum and the largest score so far.",
     ("torch.maximum(m, x.double().amax(dim=-1))", "x.double().amax(dim=-1)"),
     ("change = (m - base)", "change = (m - base).nan_to_num(0)")),
]  # fmt: skip

exercise = Exercise(
    "3.8", streamed_entropy, inputs, MISTAKES, run=blocks_once,
    also_right=[one_score_at_a_time, lambda blocks: merged_entropies(blocks, 1, 1)],
)  # fmt: skip
