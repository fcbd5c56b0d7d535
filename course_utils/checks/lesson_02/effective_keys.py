"""2.5: how many keys a query attends to, e to the power of the entropy."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_02.entropy import entropy, without_an_eps
from course_utils.checks.lesson_02.entropy import inputs as distributions


def effective_keys(weights):
    nats = entropy(weights)  # (...)
    return nats.exp()  # (...), from 1 to S


def inputs():
    return [*distributions(), (torch.ones(2, 1),)]  # a single key


ONE_FOR_ALL = (
    "Your result is one number for all rows. Each query attends to its own number of keys, so "
    "return one number for each row."
)
MISTAKES = [
    ("entropy itself",
     "Your result is the entropy H. To turn it into a number of keys, return e^H.",
     (".exp()", "")),
    ("power of 2",
     "Your result is 2 to the power of an entropy in nats. Nats use the natural logarithm. Return "
     "e to the power of the entropy.",
     ("nats.exp()", "2**nats")),
    ("e to an entropy in bits",
     "Your result is e to the power of an entropy in bits. Use the natural logarithm, as in 2.4.",
     ("nats.exp()", "(nats / torch.tensor(2.0).log()).exp()")),
    ("weights above 0",
     "Your result is the number of weights above 0, or above some small number. In such a count, "
     "a weight of 0.01 counts as much as a weight of 0.9. Return e^H, in which small weights "
     "count less.",
     "(weights > 0).to(weights.dtype).sum(dim=-1)"),
    ("participation ratio",
     "Your result is 1 / Σp². This also measures how many keys count, but here the number must "
     "come from the entropy H. Return e^H.",
     "1 / weights.square().sum(dim=-1)"),
    ("one over the largest",
     "Your result is 1 / max p, which depends only on the largest weight. The number must come "
     "from the entropy H of all weights. Return e^H.",
     "1 / weights.amax(dim=-1)"),
    ("wrong sign",
     "Your result is e^(−H), which is at most 1. The number of keys is between 1 and S. Return "
     "e^H.",
     ("nats.", "(-nats).")),
    ("share of the keys",
     "Your result is e^H divided by S, a share of the keys. Return e^H itself, the number of "
     "keys between 1 and S.",
     (".exp()", ".exp() / weights.shape[-1]")),
    ("entropy as a share of the keys",
     "Your result is S · H / ln S. It grows in proportion to H, but the number of keys grows as "
     "e^H. Return e^H.",
     ("nats.exp()", "weights.shape[-1] * nats / torch.tensor(weights.shape[-1] + 0.0).log()")),
    ("exponential of each term",
     "You take the exponential of each term, and then add. First add the terms −p ln p, which "
     "gives the entropy. Then take the exponential of the sum.",
     "torch.special.entr(weights).exp().sum(dim=-1)"),
    ("zero gives nan",
     "Right, except for a row with a weight of 0. There, ln 0 is −inf, and 0 · (−inf) is NaN. "
     "Let such a weight add 0, as in 2.4.",
     ("entropy(weights)", "-(weights * weights.log()).sum(dim=-1)")),
    ("weights above equal share",
     "Your result is the number of weights above 1/S. The effective number also counts how far "
     "they are above or below it, and need not be whole. Return e^H.",
     "(weights > 1 / weights.shape[-1]).to(weights.dtype).sum(dim=-1)"),
    ("mean over queries", ONE_FOR_ALL, (".exp()", ".exp().mean()")),
    ("mean entropy over queries", ONE_FOR_ALL, (".exp()", ".mean().exp()")),
    ("less one",
     "Your results are too small by exactly 1. If you use torch.expm1, use torch.exp instead.",
     (".exp()", ".expm1()")),
    ("number of all keys",
     "Your result is always S, the number of all keys, whatever their weights are. If one key "
     "has all the weight, the result must be 1. Return e^H.",
     (".exp()", ".mul(0).add(weights.shape[-1])")),
    ("one plus the entropy",
     "Your result is 1 + H. If S keys have equal weights, this gives 1 + ln S instead of S. "
     "Return e^H.",
     (".exp()", " + 1")),
    ("line from one to all",
     "Your result is 1 + (S − 1) · H / ln S. This is right if all weights are equal, and if one "
     "key has all the weight, but wrong in between. For example, it is not 2 for two equal "
     "weights among three keys. Return e^H.",
     ("nats.exp()",
      "1 + (weights.shape[-1] - 1) * nats / torch.tensor(weights.shape[-1] + 0.0).log()")),
]  # fmt: skip

exercise = Exercise(
    "2.5", effective_keys, inputs, MISTAKES, run=without_an_eps(effective_keys, torch.log),
    also_right=[lambda weights: torch.distributions.Categorical(probs=weights).perplexity(),
                lambda weights: 2 ** -(weights * (weights + 1e-12).log2()).sum(-1)],
)  # fmt: skip
