"""8.2: Kendall's rank correlation with ties, τ-b."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def kendall_tau(a, b):
    signs_a = (a[:, None] - a).sign()  # (n, n), 1 where a_i > a_j; has each pair twice
    signs_b = (b[:, None] - b).sign()  # (n, n)
    total = (signs_a * signs_b).sum()
    n_a = signs_a.abs().sum()
    n_b = signs_b.abs().sum()
    return total / (n_a * n_b).sqrt()


def by_triangle(a, b):
    i, j = torch.triu_indices(len(a), len(a), 1)
    x, y = torch.sign(a[i] - a[j]), torch.sign(b[i] - b[j])
    return F.cosine_similarity(x, y.to(x.dtype), dim=0)


def by_counting(a, b):
    a, b = a.tolist(), b.tolist()
    pairs = [(i, j) for i in range(len(a)) for j in range(i)]
    agree = sum((a[i] - a[j]) * (b[i] - b[j]) > 0 for i, j in pairs)
    disagree = sum((a[i] - a[j]) * (b[i] - b[j]) < 0 for i, j in pairs)
    untied_a = sum(a[i] != a[j] for i, j in pairs)
    untied_b = sum(b[i] != b[j] for i, j in pairs)
    return (agree - disagree) / (untied_a * untied_b) ** 0.5


def inputs():
    normal = normals(82)
    a, b, c, free, other = (normal(n, dtype=torch.float32) for n in (9, 9, 6, 7, 12))
    tied = torch.tensor([3.0, 1.0, 3.0, 2.0, 2.0, 0.5, 3.0])
    return [
        (a, b),
        (c, c**3),  # the same order, other distances
        (a, a.exp() + b / 4),
        (tied, free),
        (free, tied),
        (tied, torch.tensor([4.0, 1.0, 5.0, 2.0, 4.0, 4.0, 3.0])),
        (torch.tensor([1.0, 1.0, 2.0, 0.0]), torch.tensor([2.0, 2.0, 2.0, 0.0])),
        (1000 * b, -a),
        (other.round()[::2], torch.stack([c, 2 * c]).T.round()[:, 1]),  # not contiguous
        ((2 * other).round(), (other + other.flip(0)).round()),
        (torch.tensor([1.0, 3.0]), torch.tensor([5.0, 4.0])),
        (torch.tensor([0.001, 0.0018, 0.0026, 0.5]), torch.tensor([3.0, 1.0, 2.0, 4.0])),
        (1e-9 * a, b),  # close, but no ties
    ]


NEAR = (
    "You treat nearly equal entries as tied. Compare them exactly, because any difference, "
    "however small, puts them in order."
)
BOTH_WAYS = (
    "Your result is right when there are no ties. If you compare `(a_i > a_j) == (b_i > b_j)`, a "
    "tied pair counts as an agreement or as a disagreement. It must add 0."
)
TIED = (
    "Your n_a and n_b count the pairs that *are* tied. Count the pairs that are not tied in a for "
    "n_a, and those not tied in b for n_b."
)
MISTAKES = [
    ("all pairs counted",
     "Your result is right when there are no ties. But you divide the sum by the total number of "
     "pairs. Divide it by √(n_a · n_b) instead.",
     ("(n_a * n_b).sqrt()", "(len(a) * (len(a) - 1))")),
    ("all pairs counted once",
     "Your sum counts each pair twice, but the divisor n(n − 1) / 2 counts each pair once. "
     "Count the pairs in the same way in both, and divide by √(n_a · n_b).",
     ("(n_a * n_b).sqrt()", "(len(a) * (len(a) - 1) / 2)")),
    ("sign dropped",
     "Your result is never negative. If more pairs disagree than agree, τ must be below 0. Keep "
     "the sign.",
     ("total /", "total.abs() /")),
    ("sign flipped",
     "Your result has the wrong sign. Count pairs that agree as +1 and pairs that disagree as −1.",
     ("total /", "-total /")),
    ("without the root",
     "Your sum is divided by n_a · n_b. Divide by √(n_a · n_b), so that equal rankings give 1.",
     ("total / (n_a * n_b).sqrt()", "2 * total / (n_a * n_b)")),  # pairs counted once
    ("without the root, pairs twice",
     "Your result is too close to 0, because the sum is divided by n_a · n_b. Divide by the "
     "square root, √(n_a · n_b).",
     (".sqrt()", "")),
    ("ties left out",
     "Your sum is divided by the number of pairs that agree or disagree. That is Goodman and "
     "Kruskal's γ. Here, a pair that is tied only in a still counts in n_b, so divide by √(n_a "
     "· n_b).",
     ("(n_a * n_b).sqrt()", "(signs_a * signs_b).abs().sum()")),
    ("pairs of a alone",
     "Your sum is divided by n_a alone, the number of pairs that are not tied in a. Divide by "
     "√(n_a · n_b), which treats a and b alike.",
     ("(n_a * n_b).sqrt()", "n_a")),
    ("pairs of b alone",
     "Your sum is divided by n_b alone, the number of pairs that are not tied in b. Divide by "
     "√(n_a · n_b), which treats a and b alike.",
     ("(n_a * n_b).sqrt()", "n_b")),
    ("diagonal counted",
     "Your sum is divided by n², which also counts ties and each entry paired with itself. "
     "Divide by √(n_a · n_b), which leaves out both.",
     ("(n_a * n_b).sqrt()", "len(a) ** 2")),
    ("one minus twice the disagreement",
     "Your result is right when there are no ties. It fits 1 − 2 · (pairs that disagree) / (all "
     "pairs), which counts a tied pair as an agreement. A tied pair must add 0, so divide (agree − "
     "disagree) by √(n_a · n_b).",
     ("(signs_a * signs_b).sum()", "(1 - 2 * (signs_a * signs_b < 0).double()).sum() - len(a)"),
     ("(n_a * n_b).sqrt()", "(len(a) * (len(a) - 1))")),
    ("larger number of pairs",
     "Your sum is divided by the larger of n_a and n_b. Divide by √(n_a · n_b) instead.",
     ("(n_a * n_b).sqrt()", "torch.maximum(n_a, n_b)")),
    ("signs without 0",
     "Your result is what you get if the sign of two equal entries is +1, as with `>=`. Then each "
     "entry paired with itself counts as an agreement. Use `sign`, which is 0 for equal entries.",
     ("(a[:, None] - a).sign()", "2 * (a[:, None] >= a).double() - 1"),
     ("(b[:, None] - b).sign()", "2 * (b[:, None] >= b).double() - 1")),
    ("pearson",
     "Your result is Pearson's correlation of the numbers. τ uses only their order, so count the "
     "pairs that agree and those that disagree.",
     "torch.corrcoef(torch.stack([a, b]))[0, 1]"),
    ("spearman",
     "Your result is Spearman's rank correlation. For τ, count the pairs that agree and those "
     "that disagree.",
     "torch.corrcoef(torch.stack([a, b]).argsort().argsort().double())[0, 1]"),
    ("share that agrees",
     "Your result is the share of pairs that agree, from 0 to 1. Subtract the number of pairs "
     "that disagree, and divide by √(n_a · n_b).",
     ("total / (n_a * n_b).sqrt()",
      "(signs_a * signs_b > 0).sum() / (len(a) * (len(a) - 1))")),
    ("disagreement adds nothing",
     "In your result, pairs that disagree add nothing. Count them as −1.",
     ("(signs_a * signs_b).sum()", "(signs_a * signs_b > 0).sum()")),
    ("near ties", NEAR,
     ("(a[:, None] - a)", "(a[:, None] - a).where(~torch.isclose(a[:, None], a), 0)"),
     ("(b[:, None] - b)", "(b[:, None] - b).where(~torch.isclose(b[:, None], b), 0)")),
    ("only neighbors",
     "You compare only entries next to each other. Compare all pairs.",
     ("(a[:, None] - a)", "a.diff()"), ("(b[:, None] - b)", "b.diff()")),
    ("pairs counted once",
     "Your result is half of the right one. If the divisor counts each pair twice, the sum must "
     "do so too.",
     ("total /", "total / 2 /")),
    ("pairs counted twice",
     "Your result is twice the right one. If the sum counts each pair twice, the divisor must do "
     "so too.",
     ("total /", "total * 2 /")),
    ("signs not taken",
     "You add up products of the differences, so large differences count more. Only the order "
     "matters, so use the signs of the differences: +1, −1 or 0.",
     ("(signs_a * signs_b).sum()", "((a[:, None] - a) * (b[:, None] - b)).sum()")),
    ("ties that agree", BOTH_WAYS,
     ("(signs_a * signs_b).sum()",
      "4 * (((a[:, None] > a) == (b[:, None] > b)).double() - 0.5).triu(1).sum()")),
    ("ties that agree, for pairs turned round", BOTH_WAYS,
     ("(signs_a * signs_b).sum()",
      "4 * (((a[:, None] < a) == (b[:, None] < b)).double() - 0.5).triu(1).sum()")),
    ("ties as agreement",
     "Your result is right when there are no ties. You count a tied pair as an agreement, but such "
     "a pair must add 0.",
     ("(signs_a * signs_b).sum()",
                    "(2 * (signs_a * signs_b >= 0).double() - 1).sum() - len(a)")),
    ("ties as disagreement",
     "Your result is right when there are no ties. You count a tied pair as a disagreement, but "
     "such a pair must add 0.",
     ("(signs_a * signs_b).sum()",
                           "(2 * (signs_a * signs_b > 0).double() - 1).sum() + len(a)")),
    ("signs compared",
     "Your result is right when there are no ties. If you test whether the signs are equal, a pair "
     "that is tied in both a and b counts as an agreement, and a pair that is tied in only one as "
     "a disagreement. Both must add 0.",
     ("(signs_a * signs_b).sum()",
      "(2 * (signs_a == signs_b).double() - 1).sum() - len(a)")),
    ("ties put in an order",
     "Your result is right when there are no ties. You treat one of two equal entries as larger. "
     "(Comparing with `a_i > a_j`, or ranking with argsort, does this.) A pair that is tied in a "
     "must add 0, and it does not count in n_a. The same holds for b.",
     ("(a[:, None] - a)", "((a := a.argsort().argsort())[:, None] - a)"),
     ("(b[:, None] - b)", "((b := b.argsort().argsort())[:, None] - b)")),
    ("argsort taken for ranks",
     "You compare what argsort returns. These are the positions of the sorted entries, not ranks. "
     "Compare the entries themselves.",
     ("(a[:, None] - a)", "((a := a.argsort())[:, None] - a)"),
     ("(b[:, None] - b)", "((b := b.argsort())[:, None] - b)")),
    ("ties as disagreement, all pairs counted",
     "Your result is right when there are no ties. You count a tied pair as a disagreement, and "
     "you divide by the total number of pairs. A tied pair must add 0, and the divisor is √(n_a · "
     "n_b).",
     ("(signs_a * signs_b).sum()",
                           "(2 * (signs_a * signs_b > 0).double() - 1).sum() + len(a)"),
     ("(n_a * n_b).sqrt()", "(len(a) * (len(a) - 1))")),
    ("pairs tied in both left out",
     "Your result is right when there are no ties. You divide the sum by the number of pairs that "
     "are tied in at most one of a and b. Divide it by √(n_a · n_b) instead.",
     ("(n_a * n_b).sqrt()", "((signs_a != 0) | (signs_b != 0)).sum()")),
    ("arithmetic mean of the numbers",
     "Your sum is divided by (n_a + n_b) / 2. Divide it by √(n_a · n_b) instead.",
     ("(n_a * n_b).sqrt()", "((n_a + n_b) / 2)")),
    ("smaller number of pairs",
     "Your sum is divided by the smaller of n_a and n_b. Divide by √(n_a · n_b) instead.",
     ("(n_a * n_b).sqrt()", "torch.minimum(n_a, n_b)")),
    ("root of pairs untied in both and in one",
     "Your divisor uses other counts: the pairs tied in neither a nor b, and the pairs tied in at "
     "most one of them. Count the pairs that are not tied in a for n_a, and those not tied in b "
     "for n_b.",
     ("(n_a * n_b).sqrt()",
      "((signs_a * signs_b).abs().sum() * ((signs_a != 0) | (signs_b != 0)).sum()).sqrt()")),
    ("tied pairs counted, each entry with itself as well", TIED,
     ("signs_a.abs().sum()", "(signs_a == 0).sum()"),
     ("signs_b.abs().sum()", "(signs_b == 0).sum()")),
    ("tied pairs counted", TIED,
     ("signs_a.abs().sum()", "((signs_a == 0).sum() - len(a))"),
     ("signs_b.abs().sum()", "((signs_b == 0).sum() - len(b))")),
    ("tied pairs counted, and the lower triangle", TIED,
     ("signs_a.abs().sum()", "2 * (signs_a.triu(1) == 0).sum()"),
     ("signs_b.abs().sum()", "2 * (signs_b.triu(1) == 0).sum()")),
    ("all pairs, each entry with itself as well",
     "Your sum is divided by n(n + 1) / 2, which also counts ties and each entry paired with "
     "itself. Divide by √(n_a · n_b), which leaves out both.",
     ("(n_a * n_b).sqrt()", "(len(a) * (len(a) + 1))")),
    ("from 0 to 1",
     "Your result is (τ + 1) / 2, which lies between 0 and 1. Return τ itself, from −1 to 1.",
     ("return total / (n_a * n_b).sqrt()", "return (total / (n_a * n_b).sqrt() + 1) / 2")),
    ("rounded down",
     "Your result is rounded down to a whole number. Divide with / instead of //.",
     ("total / (n_a * n_b).sqrt()", "total // (n_a * n_b).sqrt()")),
    ("cut to whole numbers",
     "You drop the decimals of the entries before you compare them. Compare the entries as they "
     "are.",
     ("(a[:, None] - a)", "((a := a.int())[:, None] - a)"),
     ("(b[:, None] - b)", "((b := b.int())[:, None] - b)")),
    ("sizes compared",
     "You compare the absolute values of the entries. Compare the entries with their signs.",
     ("(a[:, None] - a)", "((a := a.abs())[:, None] - a)"),
     ("(b[:, None] - b)", "((b := b.abs())[:, None] - b)")),
    ("entries rounded",
     "You round the entries before you compare them. Entries that differ only a little become "
     "ties. Compare the entries as they are.",
     ("(a[:, None] - a)", "((a := a.round(decimals=2))[:, None] - a)"),
     ("(b[:, None] - b)", "((b := b.round(decimals=2))[:, None] - b)")),
    ("differences below a limit as ties", NEAR,
     ("(a[:, None] - a)", "(d := a[:, None] - a).where(d.abs() > 1e-3, 0)"),
     ("(b[:, None] - b)", "(e := b[:, None] - b).where(e.abs() > 1e-3, 0)")),
    ("not divided",
     "Your result is the sum over the pairs. Divide it by √(n_a · n_b).",
     ("total / (n_a * n_b).sqrt()", "total / 2")),
    ("not divided, pairs twice",
     "Your result is the sum over the pairs, each counted twice. Count each pair once, and divide "
     "by √(n_a · n_b).",
     ("total / (n_a * n_b).sqrt()", "total")),
]  # fmt: skip

exercise = Exercise("8.2", kendall_tau, inputs, MISTAKES, also_right=[by_triangle, by_counting])
