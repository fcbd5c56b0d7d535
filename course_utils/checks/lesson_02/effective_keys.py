"""2.5: how many keys a query listens to, e to the entropy."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_02.entropy import entropy, without_an_eps
from course_utils.checks.lesson_02.entropy import inputs as distributions


def effective_keys(weights):
    nats = entropy(weights)  # (...)
    return nats.exp()  # (...), from 1 to S


def inputs():
    return [*distributions(), (torch.ones(2, 1),)]  # a single key


ONE_FOR_ALL = "one number for all rows: each query listens to its own number of keys"
MISTAKES = [
    ("entropy itself", "that is the entropy; raise e to it to get a number of keys",
     (".exp()", "")),
    ("power of 2",
     "2 to the power of an entropy in nats; with the natural logarithm it takes e",
     ("nats.exp()", "2**nats")),
    ("e to an entropy in bits",
     "Your result is e to an entropy in bits. Use the natural logarithm, as in 2.4.",
     ("nats.exp()", "(nats / torch.tensor(2.0).log()).exp()")),
    ("weights above 0",
     "that counts the weights above 0, or above some small number: they would count alike, be it "
     "0.01 or 0.9",
     "(weights > 0).to(weights.dtype).sum(dim=-1)"),
    ("participation ratio",
     "that is 1 / Σp², the participation ratio: a good measure too, but e^H is asked",
     "1 / weights.square().sum(dim=-1)"),
    ("one over the largest", "that is 1 / max p: it looks at the largest weight alone",
     "1 / weights.amax(dim=-1)"),
    ("sign turned around",
     "the sign is turned around: e^(−H) is at most 1; e^H is between 1 and S",
     ("nats.", "(-nats).")),
    ("share of the keys",
     "divided by S: that is the share of the keys; the number of keys is asked, from 1 to S",
     (".exp()", ".exp() / weights.shape[-1]")),
    ("zero gives nan", "a weight of 0 gives NaN (0 · ln 0): let it add 0, as in 2.4",
     ("entropy(weights)", "-(weights * weights.log()).sum(dim=-1)")),
    ("weights above equal share",
     "that counts the weights above an equal share, 1/S; e^H needs no such threshold",
     "(weights > 1 / weights.shape[-1]).to(weights.dtype).sum(dim=-1)"),
    ("mean over queries", ONE_FOR_ALL, (".exp()", ".exp().mean()")),
    ("mean entropy over queries", ONE_FOR_ALL, (".exp()", ".mean().exp()")),
    ("less one", "each is 1 too small: e^H itself is asked, as torch.exp gives it",
     (".exp()", ".expm1()")),
    ("number of all keys", "that is S, the number of keys, whatever their weights: one that gets "
     "nothing should not count", (".exp()", ".mul(0).add(weights.shape[-1])")),
]  # fmt: skip

exercise = Exercise(
    "2.5", effective_keys, inputs, MISTAKES, run=without_an_eps(effective_keys, torch.log),
    also_right=[lambda weights: torch.distributions.Categorical(probs=weights).perplexity(),
                lambda weights: 2 ** -(weights * (weights + 1e-12).log2()).sum(-1)],
)  # fmt: skip
