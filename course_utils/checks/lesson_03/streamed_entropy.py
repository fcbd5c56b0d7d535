"""3.8: the entropy of a softmax whose logits pass by in blocks. The last problem."""

import weakref

import torch

from course_utils.checks.compare import difference
from course_utils.checks.exercise import Exercise, NamedMistake
from course_utils.checks.inputs import Shapes, normals
from course_utils.checks.shared_hints import STARTS_FINITE

INF = torch.inf
FAR = 1e15  # here float64 goes in steps of 0.125


def streamed_entropy(blocks):
    m, ell, s = torch.tensor(-torch.inf), 0.0, 0.0  # max x, Σ e^(x − m), Σ (x − m) e^(x − m)
    for x in blocks:  # (..., n)
        m_new = torch.maximum(m, x.double().amax(dim=-1))  # (...)
        base = m_new.masked_fill(m_new == -torch.inf, 0)  # (...), nothing yet: subtract 0
        moved = (m - base).clamp(min=-1e4)  # (...), 0 or less; e to −10,000 is 0
        below = (x - base[..., None]).clamp(min=-1e4)  # (..., n), so that 0 · −inf never comes
        old = moved.exp() * (s + moved * ell)  # (...), now measured from m_new
        s = old + (below * below.exp()).sum(dim=-1)  # (...)
        ell = moved.exp() * ell + below.exp().sum(dim=-1)  # (...)
        m = m_new
    return ell.log() - s / ell  # (...), for −log p = log ℓ − (x − m)


def one_logit_at_a_time(blocks):
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
    gaps[:, 4:6], gaps[0, :4], gaps[2, 7:] = -INF, -INF, -INF  # row 0 begins with nothing
    steps = torch.tensor([[-800.0, 0, 700, 1400], [1400, 700, 0, -800]]).double()
    near = torch.tensor([[0.0, 1, 3, 0], [2, -7, 2, 1]]).double() + FAR
    logits = [
        (normal(6), 2, 2, 2),
        (normal(3, 8), 3, 4, 1),
        (normal(2, 3, 7), 1, 1, 5),
        (normal(4, 5), 5),  # one block alone
        (normal(1, 5), 2, 3),
        (torch.zeros(2, 10).double(), 4, 6),
        (gaps, 4, 2, 3),
        (steps, 1, 1, 2),
        (near, 2, 2),
        (near - 2 * FAR, 1, 3),
        (30 * normal(2, 12), 5, 4, 3),
        (20_000 + normal(3, 6), 3, 3),
        ((20_000 + 3 * normal(2, 9)).float(), 4, 5),
        (normal(50, 3).T, 20, 30),  # not contiguous
        (normal(2, 40), *[1] * 40),
        (normal(3, 5) + torch.tensor([[0.0], [-2000], [900]]), 2, 3),  # rows far apart
        (normal(2, 5) - 1500, 2, 3),
    ]
    return [(x.split(list(sizes), dim=-1),) for x, *sizes in logits]


LARGE = (
    "right where logits lie near 0; far from it, digits are lost: of numbers as large as x, such "
    "as log Σ e^x and Σ p x, rounding leaves no difference. Take x − m first, in float64, and go "
    "on with that alone; of m itself nothing stands in the result"
)
TWICE = (
    "the blocks can be read once: a second loop over them finds nothing; carry all you need along "
    "in one loop, as m and ℓ are, and mend it when m rises"
)


class Once:
    """Gives blocks one by one, once; sees how many are kept, and whether it is gone through again.

    Errors call it what it is to learners, a generator.
    """

    def __init__(self, blocks):
        self.blocks, self.given, self.most = iter(blocks), [], 0
        self.ended = self.again = False

    def __iter__(self):
        self.again = self.again or self.ended
        return self

    def __next__(self):
        try:
            block = next(self.blocks).detach().clone()  # for gradients, much would be kept
        except StopIteration:
            self.ended = True
            raise
        self.most = max(self.most, sum(each() is not None for each in self.given))
        self.given.append(weakref.ref(block))
        return block


Once.__name__ = "generator"


def passing_by(answer, blocks):
    """Give the blocks one by one, once; complain of a wrong answer that wants them again, and of a
    right one that keeps them, or the row."""
    passing, right = Once(blocks), streamed_entropy(blocks)
    with Shapes() as shapes:
        try:
            result = answer(passing)
        except Exception:
            if passing.again:
                raise NamedMistake("reads twice", TWICE) from None
            raise
    if passing.again and difference(result, right):
        raise NamedMistake("reads twice", TWICE)
    if (blocks[0] > FAR / 2).any() and difference(result, right):
        if difference(answer(block - FAR for block in blocks), right) is None:
            raise NamedMistake("difference of large numbers", LARGE)
    whole = sum(block.shape[-1] for block in blocks)
    put_together = len(blocks) > 1 and any(whole in shape for shape in shapes.results)
    # the last block, and the one before it in some name, may still be there
    if passing.most > 2 or put_together:
        hint = (
            "right, but it keeps all blocks, or puts the row together, for which there may be "
            "no room: carry a few numbers for each row from block to block, as m and ℓ are"
        )
        raise NamedMistake("keeps the whole row", hint, [result])
    return [result]


OLD = "moved.exp() * (s + moved * ell)"
RETURN = "ell.log() - s / ell"
MISTAKES = [
    ("second sum not moved",
     "right while the maximum stays; when it rises, every x − m in the second sum becomes smaller "
     "as well: Σ (x − m) e^(x − m) needs a factor e^(m − m_new) and also (m − m_new) times ℓ",
     (OLD, "moved.exp() * s")),
    ("second sum not rescaled",
     "the sum of (x − m) e^(x − m) is kept as it was; it was measured from the old m: when m "
     "rises, both its factors change", (OLD, "s")),
    ("second sum moved the wrong way",
     "the sign of the step: m − m_new is 0 or less, so every x − m becomes smaller when m rises",
     (OLD, "moved.exp() * (s - moved * ell)")),
    ("second sum moved once",
     "every x − m in the second sum moves by m − m_new, each with its power e^(x − m): in all that "
     "is m − m_new times ℓ, not once", (OLD, "moved.exp() * (s + moved)")),
    ("second sum moved by the whole ℓ",
     "the step m − m_new times ℓ is added with ℓ as it was; that, too, was measured from the old "
     "m: shrink it by e^(m − m_new) first", (OLD, "moved.exp() * s + moved * ell")),
    ("second sum moved by ℓ shrunk twice",
     "in the step m − m_new times ℓ, ℓ is shrunk by e^(m − m_new) twice; once is enough",
     (OLD, "moved.exp() * (s + moved * moved.exp() * ell)")),
    ("second sum moved by the new ℓ",
     "the old terms move by m − m_new times ℓ, with the ℓ of before this block: take in the block "
     "afterwards", ("        ell = moved.exp() * ell + below.exp().sum(dim=-1)  # (...)\n", ""),
     ("        old", "        ell = moved.exp() * ell + below.exp().sum(dim=-1)\n        old")),
    ("no sum rescaled", "right while the maximum stays; the old sums were measured from the old m",
     (OLD, "s"), ("moved.exp() * ell +", "ell +")),
    ("difference of large numbers", LARGE,
     (OLD, "moved.exp() * s"), ("(below * below.exp())", "(x.clamp(min=-1e15) * below.exp())"),
     (RETURN, "m + ell.log() - s / ell")),
    ("nothing subtracted", "e^x overflows: measure all powers from the largest logit so far",
     ("m_new.masked_fill(m_new == -torch.inf, 0)", "m_new * 0"), (OLD, "s"),
     (".clamp(min=-1e4)  # (..., n)", "  # (..., n)"), ("(m - base).clamp(min=-1e4)", "base")),
    ("NaN from the first block on",
     "NaN from the first block on: m begins with −inf, so m − m_new is −inf, and −inf times ℓ = 0 "
     "is NaN; nothing stands there yet: let what is old add 0", (" = (m - base).clamp(min=-1e4)",
     " = m - base")),
    ("NaN for forbidden logits",
     "a logit of −inf, or one far below, makes it NaN: its weight is 0, and 0 · −inf is NaN; let "
     "it add 0", (".clamp(min=-1e4)  # (..., n)", "  # (..., n)")),
    ("NaN while nothing is allowed",
     "where the first block is all −inf it is NaN, from −inf − (−inf): subtract 0 there",
     ("m_new.masked_fill(m_new == -torch.inf, 0)", "m_new")),
    ("mean of the blocks' entropies",
     "those are the blocks' own entropies, averaged; a block with higher logits counts more, and "
     "how the weight is spread over the blocks counts, too",
     ("    m, ell", "    found = []\n    m, ell"),
     ("m = m_new", "found.append(torch.special.entr(x.softmax(-1)).sum(-1))"),
     (RETURN, "torch.stack(found).nan_to_num(0).mean(dim=0)")),
    ("block entropies summed",
     "those are the blocks' own entropies, added; each is that of a softmax over its block alone, "
     "and how the weight is spread over the blocks counts, too",
     ("    m, ell", "    found = []\n    m, ell"),
     ("m = m_new", "found.append(torch.special.entr(x.softmax(-1)).sum(-1))"),
     (RETURN, "torch.stack(found).nan_to_num(0).sum(dim=0)")),
    ("block entropies weighted",
     "those are the blocks' own entropies, weighted by the blocks' shares; between the blocks the "
     "weight is spread, too: add the entropy of the shares",
     ("    m, ell", "    found = []\n    m, ell"),
     ("m = m_new", "found.append((torch.special.entr(x.softmax(-1)).sum(-1), x.logsumexp(-1)))"),
     (RETURN, "sum(e.nan_to_num(0) * p for (e, _), p in zip(\n"
      "        found, torch.stack([n for _, n in found]).softmax(0), strict=True))")),
    ("entropy of the shares",
     "that is the entropy of the blocks' shares; within each block the weight is spread, too",
     ("    m, ell", "    found = []\n    m, ell"), ("m = m_new", "found.append(x.logsumexp(-1))"),
     (RETURN, "torch.special.entr(torch.stack(found).softmax(0)).sum(0)")),
    ("the last block alone", "that is the entropy of the last block: carry what came before along",
     ("old + (", "("), ("moved.exp() * ell + ", ""), ("m = m_new", "pass")),
    ("sign turned", "the sign is turned: an entropy is 0 or more, −Σ p log p",
     (RETURN, "s / ell - ell.log()")),
    ("in bits", "that is the entropy in bits; nats are asked: natural logarithms alone",
     (RETURN, "(ell.log() - s / ell) / 0.6931471805599453")),
    ("second sum not divided",
     "the sum of (x − m) e^(x − m) is not divided by ℓ: a weight is e^(x − m) / ℓ",
     (RETURN, "ell.log() - s")),
    ("the logarithm of ℓ alone",
     "that is log Σ e^(x − m); the entropy is −Σ p log p, and log p is x − m less than that: its "
     "mean under p is missing", (RETURN, "ell.log()")),
    ("log-sum-exp",
     "that is the log-sum-exp of the row; the entropy is that less the mean of x under the weights",
     (RETURN, "m + ell.log()")),
    ("one maximum for all rows",
     "one maximum for all rows: a row 2000 below it has powers of 0 alone, and 0 / 0 is NaN; each "
     "row has its own m, amax(dim=-1)", ("x.double().amax(dim=-1)", "x.double().amax()"),
     ("torch.maximum(m, x", "torch.maximum(m.max(), x"),
     ("  # (...)\n        base", ".expand(x.shape[:-1])\n        base")),
    ("begins with 0", STARTS_FINITE, ("torch.tensor(-torch.inf), 0.0", "torch.tensor(0.0), 0.0")),
    ("begins with a finite number", STARTS_FINITE,
     ("torch.tensor(-torch.inf), 0.0", "torch.tensor(-1e9), 0.0")),
    ("first maximum kept",
     "Your result is right until a later block has a far larger logit. Measured from the first "
     "block's maximum, its exponential overflows. Raise m, and rescale both sums, when a larger "
     "logit comes.", ("m_new = torch.maximum(m, x.double().amax(dim=-1))",
     "m_new = torch.where(m == -torch.inf, x.double().amax(dim=-1), m)")),
    ("largest so far forgotten",
     "the maximum is that of the block; it is the larger of that and the largest so far",
     ("torch.maximum(m, x.double().amax(dim=-1))", "x.double().amax(dim=-1)"),
     ("moved = (m - base)", "moved = (m - base).nan_to_num(0)")),
]  # fmt: skip

exercise = Exercise(
    "3.8", streamed_entropy, inputs, MISTAKES, run=passing_by, also_right=[one_logit_at_a_time]
)
