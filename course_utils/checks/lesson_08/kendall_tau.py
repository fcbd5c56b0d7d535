"""8.2: Kendall's rank correlation with ties, τ-b."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def kendall_tau(a, b):
    order_a = (a[:, None] - a).sign()  # (n, n), 1 where a_i > a_j; each pair stands there twice
    order_b = (b[:, None] - b).sign()  # (n, n)
    total = (order_a * order_b).sum()
    n_a = order_a.abs().sum()
    n_b = order_b.abs().sum()
    return total / (n_a * n_b).sqrt()


def by_triangle(a, b):
    i, j = torch.triu_indices(len(a), len(a), 1)
    x, y = torch.sign(a[i] - a[j]), torch.sign(b[i] - b[j])
    return F.cosine_similarity(x, y.to(x.dtype), dim=0)


def by_counting(a, b):
    a, b = a.tolist(), b.tolist()
    pairs = [(i, j) for i in range(len(a)) for j in range(i)]
    agree = sum((a[i] - a[j]) * (b[i] - b[j]) > 0 for i, j in pairs)
    differ = sum((a[i] - a[j]) * (b[i] - b[j]) < 0 for i, j in pairs)
    free_a = sum(a[i] != a[j] for i, j in pairs)
    free_b = sum(b[i] != b[j] for i, j in pairs)
    return (agree - differ) / (free_a * free_b) ** 0.5


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
        (torch.tensor([0.001, 0.002, 0.003, 0.5]), torch.tensor([3.0, 1.0, 2.0, 4.0])),
        (1e-9 * a, b),  # close, but no ties
    ]


MISTAKES = [
    ("all pairs counted",
     "right without ties; where entries tie, divide by √(n_a · n_b), the pairs that do not tie, "
     "and not by all pairs", ("(n_a * n_b).sqrt()", "(len(a) * (len(a) - 1))")),
    ("all pairs counted once",
     "divided by n(n - 1) / 2 pairs, though the sum over all (i, j) counts each twice; and where "
     "entries tie, divide by √(n_a · n_b), the pairs that do not tie",
     ("(n_a * n_b).sqrt()", "(len(a) * (len(a) - 1) / 2)")),
    ("sign dropped", "the sign is lost: where more pairs disagree than agree, τ is below 0",
     ("total /", "total.abs() /")),
    ("sign turned", "the sign is turned: pairs that agree count +1, those that disagree −1",
     ("total /", "-total /")),
    ("without the root",
     "the root is missing: divide by √(n_a · n_b); that makes equal rankings 1",
     ("total / (n_a * n_b).sqrt()", "2 * total / (n_a * n_b)")),  # pairs counted once
    ("without the root, pairs twice",
     "divided by n_a · n_b, where each pair is counted twice; it is √(n_a · n_b)",
     (".sqrt()", "")),
    ("ties left out",
     "divided by the pairs that agree or disagree (that is Goodman and Kruskal's γ); here pairs "
     "that tie in one of the two count in the other: √(n_a · n_b)",
     ("(n_a * n_b).sqrt()", "(order_a * order_b).abs().sum()")),
    ("pairs of a alone",
     "divided by n_a, the pairs that do not tie in a; those of b count as well, √(n_a · n_b)",
     ("(n_a * n_b).sqrt()", "n_a")),
    ("pairs of b alone",
     "divided by n_b, the pairs that do not tie in b; those of a count as well, √(n_a · n_b)",
     ("(n_a * n_b).sqrt()", "n_b")),
    ("diagonal counted",
     "the diagonal is counted: a pair of an entry with itself is no pair; n(n - 1), not n²",
     ("(n_a * n_b).sqrt()", "len(a) ** 2")),
    ("pearson", "that is Pearson's correlation of the numbers; τ looks at their order alone",
     "torch.corrcoef(torch.stack([a, b]))[0, 1]"),
    ("spearman",
     "that is Spearman's correlation, of ranks; τ counts pairs that agree and disagree",
     "torch.corrcoef(torch.stack([a, b]).argsort().argsort().double())[0, 1]"),
    ("share that agrees",
     "that is the share of pairs that agree, from 0 to 1; pairs that disagree count -1",
     ("total / (n_a * n_b).sqrt()",
      "(order_a * order_b > 0).sum() / (len(a) * (len(a) - 1))")),
    ("disagreement adds nothing",
     "pairs that agree are counted, and those that disagree add nothing; they count −1",
     ("(order_a * order_b).sum()", "(order_a * order_b > 0).sum()")),
    ("near ties",
     "entries that lie close together are taken for ties, or rounded to be; any difference makes "
     "an order",
     ("(a[:, None] - a)", "(a[:, None] - a).where(~torch.isclose(a[:, None], a), 0)"),
     ("(b[:, None] - b)", "(b[:, None] - b).where(~torch.isclose(b[:, None], b), 0)")),
    ("only neighbours", "only neighbours in the row are compared; take all pairs",
     ("(a[:, None] - a)", "a.diff()"), ("(b[:, None] - b)", "b.diff()")),
    ("pairs counted once",
     "half as large as it should be: the sum counts each pair once, the divisor twice",
     ("total /", "total / 2 /")),
    ("pairs counted twice",
     "twice too large: the sum over all (i, j) counts each pair twice, the divisor once",
     ("total /", "total * 2 /")),
    ("signs not taken",
     "differences are multiplied as they are: only their signs count, +1, −1 or 0",
     ("(order_a * order_b).sum()", "((a[:, None] - a) * (b[:, None] - b)).sum()")),
    ("ties that agree",
     "right without ties; `(a_i > a_j) == (b_i > b_j)` takes a tie for an order, and it must add 0",
     ("(order_a * order_b).sum()",
      "4 * (((a[:, None] > a) == (b[:, None] > b)).double() - 0.5).triu(1).sum()")),
    ("ties as agreement", "right without ties; a pair that ties counts as one that agrees, and it "
     "must add 0", ("(order_a * order_b).sum()",
                    "(2 * (order_a * order_b >= 0).double() - 1).sum() - len(a)")),
    ("ties as disagreement", "right without ties; a pair that ties counts as one that disagrees, "
     "and it must add 0", ("(order_a * order_b).sum()",
                           "(2 * (order_a * order_b > 0).double() - 1).sum() + len(a)")),
    ("signs compared", "right without ties; equal signs count as agreement, and a tie has one as "
     "well, 0: a pair that ties in one of the two or in both must add 0",
     ("(order_a * order_b).sum()",
      "(2 * (order_a == order_b).double() - 1).sum() - len(a)")),
    ("ties put in an order",
     "right without ties; where entries tie, `a_i > a_j` and ranks by argsort see an order still: "
     "such a pair must add 0, and n_a or n_b leaves it out",
     ("(a[:, None] - a)", "((a := a.argsort().argsort())[:, None] - a)"),
     ("(b[:, None] - b)", "((b := b.argsort().argsort())[:, None] - b)")),
    ("argsort taken for ranks",
     "argsort tells where the smallest entry stands, then the next; those are no ranks: compare "
     "the entries themselves",
     ("(a[:, None] - a)", "((a := a.argsort())[:, None] - a)"),
     ("(b[:, None] - b)", "((b := b.argsort())[:, None] - b)")),
]  # fmt: skip

exercise = Exercise("8.2", kendall_tau, inputs, MISTAKES, also_right=[by_triangle, by_counting])
