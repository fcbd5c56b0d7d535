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
        (
            draw(2, 3, 7),
            draw(2, 3, 7),
        ),
        (draw(5), draw(5)),
        (draw(3, 4), draw(3, 4)),
        (zeros[0], zeros[1]),
        (torch.eye(3)[:2], torch.eye(3)[1:]),  # no key in common
        (zeros, draw(2, 4)),  # only one has zeros
        (once, once.flip(0)),  # the middle row equals its partner
        (draw(1, 4), draw(1, 4)),
        (draw(2, 3, 50).transpose(0, 1), draw(3, 2, 50)),  # not contiguous
    ]


CLAMPED = (
    "Your result is a little off, as if you had added a small number to the weights, or clamped "
    "them to a minimum. Use p and q as they are. With torch.xlogy(p, p) − torch.xlogy(p, m), a "
    "weight of 0 adds 0."
)
MISTAKES = [
    ("kl alone",
     "Your result is KL(p ‖ q). It is not symmetric, and it is infinite where only q is 0. Return "
     "the mean of KL(p ‖ m) and KL(q ‖ m).",
     "(torch.xlogy(p, p) - torch.xlogy(p, q)).sum(dim=-1)"),
    ("symmetric kl",
     "You compare p and q with each other. Compare each of them with their mean m, which is 0 only "
     "where both are 0.",
     ("(p, m)", "(p, q)"), ("(q, m)", "(q, p)")),
    ("entropy of p alone",
     "Your result is H(m) − H(p), where H is the entropy. Subtract the *mean* of H(p) and H(q) "
     "from H(m).",
     "(torch.special.entr((p + q) / 2) - torch.special.entr(p)).sum(dim=-1)"),
    ("total variation",
     "Your result is Σ |p − q| / 2, the total variation. Return the mean of KL(p ‖ m) and KL(q ‖ "
     "m).",
     "(p - q).abs().sum(dim=-1) / 2"),
    ("not halved",
     "Your result is the sum of KL(p ‖ m) and KL(q ‖ m). Return their mean.",
     ("(kl_p + kl_q) / 2", "kl_p + kl_q")),
    ("half of it",
     "Your result is KL(p ‖ m) alone. Return the mean of KL(p ‖ m) and KL(q ‖ m).",
     ("(kl_p + kl_q) / 2", "kl_p")),
    ("reversed kl",
     "You use KL(m ‖ p) and KL(m ‖ q), which are infinite where p or q is 0. Put m second. "
     "(F.kl_div is different: it takes ln m first.)",
     ("torch.xlogy(p, p) - torch.xlogy(p, m)", "torch.xlogy(m, m) - torch.xlogy(m, p)"),
     ("torch.xlogy(q, q) - torch.xlogy(q, m)", "torch.xlogy(m, m) - torch.xlogy(m, q)")),
    ("mean not halved",
     "Your result fits m = p + q. Use the mean, m = (p + q) / 2.",
     ("(p + q) / 2", "p + q")),
    ("entropies not halved",
     "Your result is H(m) − H(p) − H(q), where H is the entropy. Subtract the *mean* of H(p) and "
     "H(q), which is half of their sum.",
     "(torch.special.entr((p + q) / 2) - torch.special.entr(p) - torch.special.entr(q)).sum(-1)"),
    ("softmax of distributions",
     "Your result is what you get after another softmax of p and q. They are distributions "
     "already, so use p and q as they are.",
     ("    m =", "    p, q = p.softmax(dim=-1), q.softmax(dim=-1)\n    m =")),
    ("in bits",
     "Your result is in bits. Use the natural logarithm.",
     ("(kl_p + kl_q) / 2", "(kl_p + kl_q) / 2 / torch.tensor(2.0).log()")),
    ("sign flipped",
     "Your result is negative, and a divergence never is. Flip the sign.",
     ("(kl_p + kl_q) / 2", "-(kl_p + kl_q) / 2")),
    ("no logarithm for kl_div",
     "Your result has m where ln m belongs. If you use F.kl_div, its first argument must be ln m, "
     "kept finite: m.log().clamp(min=-1e9).",
     ("(p, m)", "(p, m.exp())"), ("(q, m)", "(q, m.exp())")),
    ("no logarithm for kl_div, and averaged",
     "Your result has m where ln m belongs, and everything is averaged into one number. If you use "
     'F.kl_div, give it m.log().clamp(min=-1e9). Use `reduction="none"`, and sum over the last '
     "dimension.",
     ("(p, m)", "(p, m.exp())"), ("(q, m)", "(q, m.exp())"),
     ("(kl_p + kl_q) / 2", "((kl_p + kl_q) / 2 / p.shape[-1]).mean()")),
    ("nan made 0 too late",
     "Your result is 0 for rows with a weight of 0. If you replace NaN by 0, do so before the sum, "
     "or use torch.xlogy(p, p) − torch.xlogy(p, m).",
     ("torch.xlogy(p, p) - torch.xlogy(p, m)", "p * (p / m).log()"),
     ("torch.xlogy(q, q) - torch.xlogy(q, m)", "q * (q / m).log()"),
     ("return (kl_p + kl_q) / 2", "return ((kl_p + kl_q) / 2).nan_to_num()")),
    ("nan made 0 in each half",
     "Where p has a weight of 0, your whole KL(p ‖ m) is 0, and the same holds for q. If you "
     "replace NaN by 0, do so before the sum, or use torch.xlogy(p, p) − torch.xlogy(p, m).",
     ("(torch.xlogy(p, p) - torch.xlogy(p, m)).sum(dim=-1)",
      "(p * (p / m).log()).sum(dim=-1).nan_to_num()"),
     ("(torch.xlogy(q, q) - torch.xlogy(q, m)).sum(dim=-1)",
      "(q * (q / m).log()).sum(dim=-1).nan_to_num()")),
    ("distance not divergence",
     "Your result is the Jensen–Shannon distance. Return its square, the divergence.",
     ("(kl_p + kl_q) / 2", "((kl_p + kl_q) / 2).clamp(min=0).sqrt()")),
    ("zeros of both are nan",
     "Your result is NaN where p and q are both 0, because p / m is 0 / 0 there. Use "
     "torch.xlogy(p, p) − torch.xlogy(p, m), which needs no division.",
     ("torch.xlogy(p, p) - torch.xlogy(p, m)", "torch.xlogy(p, p / m)"),
     ("torch.xlogy(q, q) - torch.xlogy(q, m)", "torch.xlogy(q, q / m)")),
    ("zeros are nan",
     "A weight of 0 gives NaN in your result, because 0 · ln 0 is NaN. Such a weight must add 0, "
     "so use torch.xlogy(p, p) − torch.xlogy(p, m).",
     ("torch.xlogy(p, p) - torch.xlogy(p, m)", "p * (p / m).log()"),
     ("torch.xlogy(q, q) - torch.xlogy(q, m)", "q * (q / m).log()")),
    ("keys of one alone left out",
     "You leave out keys to which only one of p and q gives weight. Where q is 0, p ln(p / m) is p "
     "ln 2, so include these keys.",
     ("torch.xlogy(p, p) - torch.xlogy(p, m)", "torch.xlogy(p, p / m).where(q > 0, 0)"),
     ("torch.xlogy(q, q) - torch.xlogy(q, m)", "torch.xlogy(q, q / m).where(p > 0, 0)")),
    ("mean over keys",
     "Your result is the mean over the keys. Sum over the keys, which are the last dimension.",
     ("(kl_p + kl_q) / 2", "(kl_p + kl_q) / 2 / p.shape[-1]")),
    ("one number for all",
     "Your result is one number, the sum over all rows. Return one number for each row, that "
     "is, for each pair of distributions. (If you index with a mask, the tensor becomes flat.)",
     ("(kl_p + kl_q) / 2", "((kl_p + kl_q) / 2).sum()")),
    ("mean over rows",
     "Your result is one number, the mean over all rows. Return one number for each row, that "
     "is, for each pair of distributions.",
     ("(kl_p + kl_q) / 2", "((kl_p + kl_q) / 2).mean()")),
    ("mean over dimension 0",
     "Your result is right for each row, but then averaged over dimension 0. Return one number "
     "for each row, that is, for each pair of distributions.",
     ("(kl_p + kl_q) / 2", "((kl_p + kl_q) / 2).mean(dim=0)")),
    ("averaged by kl_div",
     "Your result is the mean of all terms, over the rows too. Sum the terms over the last "
     'dimension. If you use F.kl_div, its default is this mean, so pass `reduction="none"`.',
     ("(kl_p + kl_q) / 2", "((kl_p + kl_q) / 2 / p.shape[-1]).mean()")),
    ("divided by rows",
     "Your result is the sum of all entries, divided by the size of dimension 0. F.kl_div does "
     "this with `reduction=\"batchmean\"`. Use `reduction=\"none\"`, and sum over the last "
     "dimension.",
     ("(kl_p + kl_q) / 2", "((kl_p + kl_q) / 2).sum() / len(p)")),
    ("cross-entropy",
     "Your result is the mean of −Σ p ln m and −Σ q ln m. These are cross-entropies, which are not "
     "0 for p = q. Subtract ln m from ln p inside the sum, Σ p (ln p − ln m), and do the same for "
     "q.",
     "-(torch.xlogy(p, (p + q) / 2) + torch.xlogy(q, (p + q) / 2)).sum(dim=-1) / 2"),
    ("log1p",
     "Your result fits ln(1 + p / m) in place of ln(p / m), as log1p gives. Use the logarithm of "
     "p / m itself.",
     ("torch.xlogy(p, p) - torch.xlogy(p, m)", "p * (p / m).nan_to_num(0).log1p()"),
     ("torch.xlogy(q, q) - torch.xlogy(q, m)", "q * (q / m).nan_to_num(0).log1p()")),
    *((f"geometric mean plus {eps}",
       "Your m is √(p · q), the geometric mean. Where only one of p and q is 0, your m is 0 or "
       "nearly 0, so dividing by it gives a huge or infinite number. Use m = (p + q) / 2.",
       ("(p + q) / 2  #", f"(p * q).sqrt() + {eps}  #"))
      for eps in ("0", "1e-12", "1e-10", "1e-8")),
    *((f"clamped at {eps}", CLAMPED,
       ("    m =", f"    p, q = p.clamp(min={eps}), q.clamp(min={eps})\n    m ="))
      for eps in ("1e-2", "1e-3", "1e-4")),
    *((f"{eps} added", CLAMPED, ("    m =", f"    p, q = p + {eps}, q + {eps}\n    m ="))
      for eps in ("1e-2", "1e-3", "1e-4", "1e-5")),
    *((f"{eps} added in the logarithm", CLAMPED,
       ("torch.xlogy(p, p) - torch.xlogy(p, m)", f"p * ((p + {eps}) / (m + {eps})).log()"),
       ("torch.xlogy(q, q) - torch.xlogy(q, m)", f"q * ((q + {eps}) / (m + {eps})).log()"))
      for eps in ("1e-2", "1e-3", "1e-4")),
]  # fmt: skip

exercise = Exercise("8.3", js_divergence, inputs, MISTAKES, also_right=[by_entropy, by_kl_div])
