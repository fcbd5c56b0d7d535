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
    for size in (1, 6, 15):  # T around 0.001, 0.006 and 0.015
        targets.append((size * torch.tensor([0, 1e-3, 3e-3]), 0.5))
    targets.append((8000 * normal(6), 1.5))
    return [*targets, (torch.tensor([3.0, 1, 0, -2]), 0.5)]  # float32: weights of 0 at a small T


def entropy_reached(answer, x, target):
    """Return the entropy at the answer's temperature, or the target if both are within 1%.

    In half precision, because a mistake's temperature is only known roughly. Complain about
    temperatures that can be named exactly, about the end of an interval that is too short, and
    about one that is near the right one on all inputs, but not near enough on this one.
    """
    temperature = number(answer, x, target)
    entropy = entropy_at(temperature, x)
    if abs(entropy - target) <= 0.01 * target:
        return [torch.tensor(target).half()]
    given = inputs()
    found = Temperatures(answer, given)
    for name, formula in EXACT.items():
        pairs = zip(found, given, strict=True)
        if all(math.isclose(t, formula(*args), rel_tol=1e-6) for t, args in pairs):
            raise NamedMistake(name, next(hint for row, hint, *_ in MISTAKES if row == name))
    too_large = temperature > temperature_for_entropy(x, target)
    if is_an_end(temperature, found, given, 1 if too_large else -1):
        end = f"{float(f'{temperature:.2g}'):g}"
        if too_large:
            raise NamedMistake("interval too short", TOO_HIGH.format(end))
        raise NamedMistake("interval too short", TOO_LOW.format(end))
    pairs = zip(found, given, strict=True)
    if all(is_near(t, temperature_for_entropy(*args)) for t, args in pairs):
        raise NamedMistake("near but not near enough", NEAR)
    return [entropy.half()]


class Temperatures:
    """An answer's temperatures for some inputs, each found when it is first asked for."""

    def __init__(self, answer, given):
        self.answer, self.given, self.found = answer, given, []

    def __iter__(self):
        for i, args in enumerate(self.given):
            if i == len(self.found):
                self.found.append(number(self.answer, *args))
            yield self.found[i]


def is_an_end(end, found, given, side):
    """Return whether a search with this lower (side 1) or upper end (side -1) explains results.

    No temperature may lie beyond the end, all that are wrong on this side must be equal to it, and
    there must be two of these, and a right one.
    """
    there, right = 0, 0
    for t, (x, target) in zip(found, given, strict=True):
        if side * (t - end) < -1e-3 * end:
            return False
        if abs(entropy_at(t, x) - target) <= 0.01 * target:
            right += 1
        elif abs(t - end) <= 1e-3 * end:
            there += 1
        elif side * (t - temperature_for_entropy(x, target)) > 0:
            return False
    return there > 1 and right > 0


TOO_HIGH = (
    "Your T is never below {}. Scores close together, or a low target, need a smaller T. Search "
    "from 10⁻⁴ to 10⁴."
)
TOO_LOW = (
    "Your T is never above {}. Scores far apart, or a high target, need a larger T. Search from "
    "10⁻⁴ to 10⁴."
)
NEAR = (
    "Your T is always within 30% or 0.02 of the right one, but its entropy is not always within "
    "1% of the target. If you add a small number to p, leave it out. If your search stops after "
    "few steps, or at a fixed difference of T or of entropy, let it run longer. If you try a grid "
    "of T, make it finer. If you bisect on T, bisect on log T instead."
)


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
    "standard deviation over target": lambda x, target: (x.double().std() / target).item(),
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


def newtons_method(x, target):
    t = 1.0
    for _ in range(100):
        slope = (entropy_of(x, 1.001 * t) - entropy_of(x, t)) / (0.001 * t)
        t = max(1e-4, t - (entropy_of(x, t) - target) / slope) if slope else t
    return t


MISTAKES = [
    ("steps too small",
     "Your T is far off if the right T is far from 1. If each step adds a small multiple of the "
     "error to T, the search ends before it gets there. Bisect on log T instead.",
     steps_on_t),
    ("iteration that oscillates",
     "Your T is far off for a long row. If each step changes T in proportion to the error, the "
     "steps can overshoot again and again. Bisect on log T instead.", damped_iteration),
    ("Newton's method",
     "Your T is near 0 for some inputs, as if the search had jumped past the right T. If you use "
     "Newton's method, a step from where the entropy hardly changes is far too long. Bisect on "
     "log T instead.", newtons_method),
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
    ("perplexity for entropy",
     "Your result is what you get if you compare e^H, the effective number of keys, with the "
     "target. The target is an entropy, so compare it with H itself.",
     ("entropy < target", "entropy.exp() < target")),
    ("mean for sum",
     "Your T fits an entropy that is too small by a factor of n, as if you had taken a mean "
     "instead of a sum. The entropy is a sum, −Σ p log p. Use sum, not mean.",
     (".sum()", ".mean()")),
    ("ran to the bottom",
     "Your T is near 0, as if the search went down to its lower end. If the entropy is below the "
     "target, raise T. Every comparison with NaN is false, so a NaN entropy can also send the "
     "search down. If you get one, find out why.",
     "1e-4"),
    ("ran to the top",
     "Your T is at the upper end of the search. You get this result if your search raises T "
     "although the entropy is above the target, or if your entropy lacks its minus sign. Lower T "
     "whenever −Σ p log p is above the target.", "1e4"),
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
    ("standard deviation over target",
     "Your result is the standard deviation of the scores divided by the target. No such formula "
     "gives T in general. Search for the T whose weights have the target entropy.",
     "(x.double().std() / target).item()"),
    ("target as a fraction",
     "Your T would be right if the target were a fraction of log n. But the target is the entropy "
     "itself, in nats. Do not multiply the target by log n.",
     ("entropy < target", "entropy < min(target, 0.9999) * math.log(len(x))")),
]  # fmt: skip

exercise = Exercise(
    "3.5", temperature_for_entropy, inputs, MISTAKES, run=entropy_reached,
    compared="the entropy at your T", also_right=[by_doubling, by_grid],
)  # fmt: skip
