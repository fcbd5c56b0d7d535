"""8.3: the Jensen–Shannon divergence of two distributions, in nats."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_08._weights import distributions


def js_divergence(p, q):
    m = (p + q) / 2  # (..., S)
    kl_p = (torch.xlogy(p, p) - torch.xlogy(p, m)).sum(dim=-1)  # (...), a weight of 0 adds 0
    kl_q = (torch.xlogy(q, q) - torch.xlogy(q, m)).sum(dim=-1)
    return (kl_p + kl_q) / 2


def by_entropy(p, q):
    def h(w):
        return torch.special.entr(w).sum(-1)

    return h(0.5 * p + 0.5 * q) - 0.5 * h(p) - 0.5 * h(q)


def by_kl_div(p, q):
    log_m = (0.5 * (p + q)).log().clamp(min=-1e9)
    kl = [F.kl_div(log_m, w, reduction="none").sum(-1) for w in (p, q)]
    return sum(kl) / 2


def inputs():
    draw = distributions(83)
    zeros = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.0, 0.2, 0.3, 0.5]])
    once = draw(3, 6)
    return [
        (draw(2, 3, 7), draw(2, 3, 7)),  # of several rows an eps is told from other slips
        (draw(5), draw(5)),
        (draw(3, 4), draw(3, 4)),
        (zeros[0], zeros[1]),
        (torch.eye(3)[:2], torch.eye(3)[1:]),  # no key shared
        (zeros, draw(2, 4)),  # only one has zeros
        (once, once.flip(0)),  # the middle row equals its partner
        (draw(1, 4), draw(1, 4)),
        (draw(2, 3, 50).transpose(0, 1), draw(3, 2, 50)),  # not contiguous
    ]


MISTAKES = [
    ("kl alone", "that is KL(p ‖ q), which is not symmetric, and infinite where q alone is 0",
     "(torch.xlogy(p, p) - torch.xlogy(p, q)).sum(dim=-1)"),
    ("symmetric kl",
     "p and q are compared with each other; compare each with their mean m, which is 0 only where "
     "both are", ("(p, m)", "(p, q)"), ("(q, m)", "(q, p)")),
    ("entropy of p alone",
     "that is H(m) less H(p): take the *mean* of H(p) and H(q) from H(m)",
     "(torch.special.entr((p + q) / 2) - torch.special.entr(p)).sum(dim=-1)"),
    ("total variation", "that is Σ |p − q| / 2, the total variation; asked is the mean of two KLs",
     "(p - q).abs().sum(dim=-1) / 2"),
    ("not halved", "KL(p ‖ m) and KL(q ‖ m) are added; take their mean",
     ("(kl_p + kl_q) / 2", "kl_p + kl_q")),
    ("half of it", "only KL(p ‖ m); the half of q is missing", ("(kl_p + kl_q) / 2", "kl_p")),
    ("reversed kl",
     "those are KL(m ‖ p) and KL(m ‖ q), infinite where p or q is 0; m belongs second (F.kl_div, "
     "though, takes it first, as a logarithm)",
     ("torch.xlogy(p, p) - torch.xlogy(p, m)", "torch.xlogy(m, m) - torch.xlogy(m, p)"),
     ("torch.xlogy(q, q) - torch.xlogy(q, m)", "torch.xlogy(m, m) - torch.xlogy(m, q)")),
    ("mean not halved", "m is the sum there and not the mean: (p + q) / 2",
     ("(p + q) / 2", "p + q")),
    ("entropies not halved", "H(m) less the *mean* of H(p) and H(q): halve their sum",
     "(torch.special.entr((p + q) / 2) - torch.special.entr(p) - torch.special.entr(q)).sum(-1)"),
    ("in bits", "that is in bits; take the natural logarithm",
     ("(kl_p + kl_q) / 2", "(kl_p + kl_q) / 2 / torch.tensor(2.0).log()")),
    ("signs turned", "it comes out below 0: signs are turned, as in H(p) and H(q) less H(m); a "
     "divergence is never negative", ("(kl_p + kl_q) / 2", "-(kl_p + kl_q) / 2")),
    ("no logarithm for kl_div",
     "KL with m where its logarithm belongs: F.kl_div wants ln m, F.kl_div(m.log(), p)",
     ("(p, m)", "(p, m.exp())"), ("(q, m)", "(q, m.exp())")),
    ("no logarithm for kl_div, and averaged",
     "KL with m where its logarithm belongs, and all averaged into one number, as F.kl_div does: "
     "F.kl_div(m.log(), p, reduction=\"none\"), then Σ over the last dimension",
     ("(p, m)", "(p, m.exp())"), ("(q, m)", "(q, m.exp())"),
     ("(kl_p + kl_q) / 2", "((kl_p + kl_q) / 2 / p.shape[-1]).mean()")),
    ("nan made 0 too late",
     "a row with a weight of 0 comes out as 0: NaN is made 0 after the sum; do it before, or take "
     "torch.xlogy",
     ("torch.xlogy(p, p) - torch.xlogy(p, m)", "p * (p / m).log()"),
     ("torch.xlogy(q, q) - torch.xlogy(q, m)", "q * (q / m).log()"),
     ("return (kl_p + kl_q) / 2", "return ((kl_p + kl_q) / 2).nan_to_num()")),
    ("nan made 0 in each half",
     "the half of a distribution with a weight of 0 is lost: NaN is made 0 after its sum; do it "
     "before, or take torch.xlogy",
     ("(torch.xlogy(p, p) - torch.xlogy(p, m)).sum(dim=-1)",
      "(p * (p / m).log()).sum(dim=-1).nan_to_num()"),
     ("(torch.xlogy(q, q) - torch.xlogy(q, m)).sum(dim=-1)",
      "(q * (q / m).log()).sum(dim=-1).nan_to_num()")),
    ("distance not divergence", "that is its square root, the Jensen–Shannon distance",
     ("(kl_p + kl_q) / 2", "((kl_p + kl_q) / 2).clamp(min=0).sqrt()")),
    ("zeros of both are nan",
     "where neither p nor q gives weight, p / m is 0 / 0 = NaN; torch.xlogy(p, p) - "
     "torch.xlogy(p, m) divides nothing",
     ("torch.xlogy(p, p) - torch.xlogy(p, m)", "torch.xlogy(p, p / m)"),
     ("torch.xlogy(q, q) - torch.xlogy(q, m)", "torch.xlogy(q, q / m)")),
    ("zeros are nan", "a weight of 0 gives 0 · ln 0 = NaN; it must add 0: torch.xlogy, or where",
     ("torch.xlogy(p, p) - torch.xlogy(p, m)", "p * (p / m).log()"),
     ("torch.xlogy(q, q) - torch.xlogy(q, m)", "q * (q / m).log()")),
    ("keys of one alone left out",
     "keys to which only one of p and q gives weight are left out; there p ln(p / m) is p ln 2",
     ("torch.xlogy(p, p) - torch.xlogy(p, m)", "torch.xlogy(p, p / m).where(q > 0, 0)"),
     ("torch.xlogy(q, q) - torch.xlogy(q, m)", "torch.xlogy(q, q / m).where(p > 0, 0)")),
    ("mean over keys", "the keys are averaged; Σ over the last dimension",
     ("(kl_p + kl_q) / 2", "(kl_p + kl_q) / 2 / p.shape[-1]")),
    ("one number for all",
     "all rows are added up to one number, which an index by a mask makes of them as well: it "
     "flattens; one for each distribution, (...)",
     ("(kl_p + kl_q) / 2", "((kl_p + kl_q) / 2).sum()")),
    ("mean over rows", "all rows are averaged into one number; one for each distribution, (...)",
     ("(kl_p + kl_q) / 2", "((kl_p + kl_q) / 2).mean()")),
    ("mean over dimension 0",
     "right for each row, but then averaged over dimension 0; one for each distribution, (...)",
     ("(kl_p + kl_q) / 2", "((kl_p + kl_q) / 2).mean(dim=0)")),
    ("averaged by kl_div",
     "all numbers are averaged into one, as F.kl_div does by itself: reduction=\"none\", then Σ "
     "over the last dimension",
     ("(kl_p + kl_q) / 2", "((kl_p + kl_q) / 2 / p.shape[-1]).mean()")),
    ("divided by rows",
     "all is added and divided by the size of dimension 0, as F.kl_div(reduction=\"batchmean\") "
     "does: reduction=\"none\", then Σ over the last dimension",
     ("(kl_p + kl_q) / 2", "((kl_p + kl_q) / 2).sum() / len(p)")),
]  # fmt: skip

exercise = Exercise("8.3", js_divergence, inputs, MISTAKES, also_right=[by_entropy, by_kl_div])
