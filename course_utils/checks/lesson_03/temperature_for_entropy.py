"""3.5: the temperature for which softmax(x / T) has a given entropy."""

import math
import numbers

import numpy as np
import torch

from course_utils.checks.compare import read
from course_utils.checks.exercise import (
    Exercise,
    NamedMistake,
    call_with_clones,
    tag_learner_errors,
)
from course_utils.checks.inputs import normals


def temperature_for_entropy(x, target):
    low, high = 1e-4, 1e4
    for _ in range(30):
        middle = math.sqrt(low * high)
        p = torch.softmax(x.double() / middle, dim=-1)  # (n,)
        entropy = torch.special.entr(p).sum()
        if entropy < target:
            low = middle
        else:
            high = middle
    return middle


def entropy_of(x, t):
    p = torch.softmax(x.double() / t, -1)
    return torch.special.entr(p).sum().item()


def by_doubling(x, target):
    low, high = 1e-4, 1e-4
    while entropy_of(x, high) < target:
        low, high = high, 2 * high
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if entropy_of(x, middle) > target else (middle, high)
    return torch.tensor(middle)


def by_grid(x, target):
    grid = torch.logspace(-4, 4, 8001, dtype=torch.float64)
    entropies = torch.special.entr(torch.softmax(x.double() / grid[:, None], -1)).sum(-1)
    return np.float64(grid[(entropies - target).abs().argmin()].item())


def inputs():
    normal = normals(80)
    scores = [normal(6), 200 * normal(9), normal(5) + 1000, 0.05 * normal(8)]
    pairs = [(x, part) for x in scores for part in (0.4, 0.9)]
    pairs += [(normal(2), 0.05), (torch.tensor([0, 3e-4, 1e-3]), 0.05), (5000 * normal(50), 0.9)]
    pairs += [(normals(8)(190), 0.3)]  # here a damped iteration oscillates
    targets = [(x, part * math.log(len(x))) for x, part in pairs]
    return [*targets, (torch.tensor([3.0, 1, 0, -2]), 0.5)]  # float32: weights of 0 at a small T


def entropy_reached(answer, x, target):
    """Return the entropy at the answer's temperature, or the target if both are within 1%.

    In half precision, because a mistake's temperature is only known roughly. Complain about
    temperatures that can be named exactly, and about one that is near the right one on all inputs,
    but not near enough on this one.
    """
    temperature = number(answer, x, target)
    entropy = entropy_at(temperature, x)
    if abs(entropy - target) <= 0.01 * target:
        return [torch.tensor(target).half()]
    found = [number(answer, *given) for given in inputs()]
    for name, formula in EXACT.items():
        pairs = zip(found, inputs(), strict=True)
        if all(math.isclose(t, formula(*given), rel_tol=1e-6) for t, given in pairs):
            raise NamedMistake(name, next(hint for row, hint, *_ in MISTAKES if row == name))
    if all(
        is_near(t, temperature_for_entropy(*given))
        for t, given in zip(found, inputs(), strict=True)
    ):
        hint = (
            "Your T is close everywhere, but its entropy is not always within 1% of the target. If "
            "you add a small number to p, leave it out. If your search stops after few steps or at "
            "an interval of a fixed length, let it run longer. If you halve the interval of T, "
            "halve that of log T instead."
        )
        raise NamedMistake("near but not near enough", hint)
    return [entropy.half()]


def is_near(temperature, right):
    """Return whether a search that stops early could have found this temperature."""
    return abs(temperature - right) < max(0.3 * right, 0.02)


def entropy_at(temperature, x):
    p = torch.softmax(x.detach().double() / temperature, -1)  # (n,)
    return torch.special.entr(p).sum()


def number(answer, x, target):
    """Return an answer's temperature as a float; complain if it is not a temperature."""
    (temperature,) = call_with_clones(answer, x, target)
    single = read(temperature)
    if single is not None and single.numel() == 1:
        temperature = single.item()
    if not isinstance(temperature, numbers.Real) and getattr(temperature, "size", 0) != 1:
        kind = type(temperature).__name__
        hint = f"Your result is of type {kind}. Return one number, the temperature."
        raise NamedMistake("not a number", hint)
    temperature = tag_learner_errors(float)(temperature)  # NumPy's, too
    if not 0 < temperature < math.inf:
        hint = f"Your temperature is {temperature:.4g}. It must be positive and finite."
        raise NamedMistake("not a temperature", hint)
    return temperature


EXACT = {
    "target returned": lambda x, target: target,
    "always one": lambda x, target: 1.0,
    "entropy returned": lambda x, target: entropy_of(x, 1.0) + 1e-12,
}
UNSTABLE = (
    ("torch.softmax(x.double() / middle, dim=-1)", "(x / middle).exp() / (x / middle).exp().sum()"),
    ("torch.special.entr(p).sum()", "-(p * p.log()).sum()"),
)


def damped_iteration(x, target):
    t = 1.0
    for _ in range(100):
        t *= math.exp(0.5 * (target - entropy_of(x, t)))
    return t


def steps_on_t(x, target):
    t = 1.0
    for _ in range(200):
        t = max(1e-4, t + 0.1 * (target - entropy_of(x, t)))
    return t


MISTAKES = [
    ("steps too small",
     "Your T is far off if the right T is far from 1. If each step adds a small multiple of the "
     "error to T, the search ends before it gets there. Halve an interval of log T instead.",
     steps_on_t),
    ("iteration that oscillates",
     "Your T is far off for a long row. If each step changes T in proportion to the error, the "
     "steps can overshoot again and again. Halve an interval of log T instead.", damped_iteration),
    ("searched between 0.01 and 100",
     "Your T never leaves the interval from 0.01 to 100. Scores far apart need a larger T, and "
     "scores close together need a smaller one. Search from 10⁻⁴ to 10⁴.",
     ("1e-4, 1e4", "0.01, 100")),
    ("searched between 0.001 and 1000",
     "Your T never leaves the interval from 0.001 to 1000. Scores far apart need a larger T, and "
     "scores close together need a smaller one. Search from 10⁻⁴ to 10⁴.",
     ("1e-4, 1e4", "1e-3, 1e3")),
    ("searched between 0.1 and 10",
     "Your T never leaves the interval from 0.1 to 10. Scores far apart need a larger T, and "
     "scores close together need a smaller one. Search from 10⁻⁴ to 10⁴.",
     ("1e-4, 1e4", "0.1, 10")),
    ("multiplied by T",
     "Your search runs to the wrong end. A larger T must give a larger entropy. If you multiply "
     "the scores by T, divide them by T instead.", ("x.double() / middle", "x.double() * middle")),
    ("inverse temperature",
     "Your result is 1 / T. The weights are softmax(x / T), so return T itself.",
     ("return middle", "return 1 / middle")),
    ("measured in bits",
     "Your T is right for an entropy in bits. The target is in nats. Use the natural logarithm, "
     "not log2.",
     ("entropy < target", "entropy / math.log(2) < target")),
    ("searched the wrong way",
     "Your T is far off, as if the search went the wrong way. A larger T gives a larger entropy. "
     "If the entropy is too small, raise T. If it is too large, lower T.",
     ("entropy < target", "entropy > target")),
    ("ran to the bottom",
     "Your T is near 0, as if the search went down to its lower end. If the entropy is below the "
     "target, raise T. If the entropy is NaN, find out why, because every comparison with NaN is "
     "false.",
     "1e-4"),
    ("ran to the top",
     "Your T is at the upper end of the search. If the entropy is above the target, lower T. "
     "Compare the entropy with the target, not with 0, and check that the entropy has its minus "
     "sign.", "1e4"),
    ("nan turns the search",
     "Your T is wrong where a weight is 0. If you compute p * p.log(), 0 · log 0 is 0 · −inf, "
     "which is NaN. Every comparison with NaN is false, so your search goes the wrong way. Use "
     "torch.xlogy(p, p), which gives 0.",
     ("torch.special.entr(p).sum()", "-(p * p.log()).sum()"), ("x.double()", "x")),
    ("overflow turns the search down",
     "Your T is wrong for large scores. If you divide e^(x / T) by its sum, e^(x / T) overflows "
     "to inf, and inf / inf is NaN. Every comparison with NaN is false, so your search goes the "
     "wrong way. Use torch.softmax, and torch.xlogy(p, p), which is 0 where p is 0.",
     *UNSTABLE),
    ("overflow turns the search up",
     "Your T is wrong for large scores. If you divide e^(x / T) by its sum, e^(x / T) overflows "
     "to inf, and inf / inf is NaN. Every comparison with NaN is false, so your search goes the "
     "wrong way. Use torch.softmax, and torch.xlogy(p, p), which is 0 where p is 0.",
     *UNSTABLE, ("entropy < target", "not entropy > target")),
    ("target returned",
     "Your result is the target itself. Return the T whose weights have this entropy.", "target"),
    ("always one",
     "Your result is T = 1 for every target. Let the search change T, and return the last T.",
     "1.0"),
    ("entropy returned",
     "Your result is the entropy at T = 1. Search for the temperature at which the entropy equals "
     "the target, and return this temperature.",
     ("math.sqrt(low * high)", "1.0"), ("return middle", "return entropy + 1e-12")),
    ("searched too low",
     "Your T is never above 10. Scores far apart need a larger T. Search from 10⁻⁴ to 10⁴.",
     ("1e4", "10")),
    ("searched too high",
     "Your T is never below 1. Scores close together, or a low target, need a smaller T. Search "
     "from 10⁻⁴ to 10⁴.",
     ("1e-4", "1")),
    ("target as a fraction",
     "Your T would be right if the target were a fraction of log n. But the target is the entropy "
     "itself, in nats. Do not multiply the target by log n.",
     ("entropy < target", "entropy < min(target, 0.9999) * math.log(len(x))")),
]  # fmt: skip

exercise = Exercise(
    "3.5", temperature_for_entropy, inputs, MISTAKES, run=entropy_reached,
    compared="the entropy at your T", also_right=[by_doubling, by_grid],
)  # fmt: skip
