"""3.5: the temperature at which softmax(x / T) has a wanted entropy."""

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
    logits = [normal(6), 200 * normal(9), normal(5) + 1000, 0.05 * normal(8)]
    pairs = [(x, part) for x in logits for part in (0.4, 0.9)]
    pairs += [(normal(2), 0.05), (torch.tensor([0, 3e-4, 1e-3]), 0.05), (5000 * normal(50), 0.9)]
    pairs += [(normals(8)(190), 0.3)]  # a damped iteration swings for ever
    at_parts = [(x, part * math.log(len(x))) for x, part in pairs]
    return [*at_parts, (torch.tensor([3.0, 1, 0, -2]), 0.5)]  # float32: weights of 0 at a small T


def entropy_reached(answer, x, target):
    """Return the entropy that the answer's temperature gives; the target if it is within 1 %.

    In half precision, as what is known of a mistake's temperature is only where it ends up.
    Complain if it is near T on all inputs, and not near enough on this.
    """
    temperature = number(answer, x, target)
    entropy = entropy_at(temperature, x)
    if abs(entropy - target) <= 0.01 * target:
        return [torch.tensor(target).half()]
    if all(is_near(number(answer, *given), temperature_for_entropy(*given)) for given in inputs()):
        hint = (
            "near T everywhere, but not always within 1 % of the entropy: does the search stop too "
            "early (after few steps, at a fixed distance and not at 1 % of the target, at an end "
            "of the interval), or halve T and not log T?"
        )
        raise NamedMistake("near but not near enough", hint)
    return [entropy.half()]


def is_near(temperature, right):
    """Tell whether a search could have stopped at a temperature on its way to the right one."""
    return abs(temperature - right) < max(0.3 * right, 0.02)


def entropy_at(temperature, x):
    p = torch.softmax(x.detach().double() / temperature, -1)  # (n,)
    return torch.special.entr(p).sum()


def number(answer, x, target):
    """Return the temperature that an answer gives as a float; complain if it is none."""
    (temperature,) = call_with_clones(answer, x, target)
    single = read(temperature)
    if single is not None and single.numel() == 1:
        temperature = single.item()
    if not isinstance(temperature, numbers.Real) and getattr(temperature, "size", 0) != 1:
        kind = type(temperature).__name__
        raise NamedMistake("not a number", f"return one number, the temperature, got {kind}")
    temperature = tag_learner_errors(float)(temperature)  # NumPy's, too
    if not 0 < temperature < math.inf:
        hint = f"the temperature must be above 0 and finite, got {temperature:.4g}"
        raise NamedMistake("not a temperature", hint)
    return temperature


UNSTABLE = (
    ("torch.softmax(x.double() / middle, dim=-1)", "(x / middle).exp() / (x / middle).exp().sum()"),
    ("torch.special.entr(p).sum()", "-(p * p.log()).sum()"),
)
MISTAKES = [
    ("searched between 0.01 and 100",
     "T is searched in too narrow an interval: logits that lie far apart need one above 100, close "
     "ones one below 0.01; widen it until it holds the target",
     ("1e-4, 1e4", "0.01, 100")),
    ("searched between 0.1 and 10",
     "T is searched in too narrow an interval: logits that lie far apart need one above 10, close "
     "ones one below 0.1; widen it until it holds the target",
     ("1e-4, 1e4", "0.1, 10")),
    ("multiplied by T",
     "the search runs to the wrong end: a larger T must give a larger entropy; are the logits "
     "multiplied by T? Divide them", ("x.double() / middle", "x.double() * middle")),
    ("inverse temperature", "this fits 1/T: the logits are divided by the temperature, x / T",
     ("return middle", "return 1 / middle")),
    ("measured in bits",
     "the entropy is measured in bits; use the natural logarithm, not log2",
     ("entropy < target", "entropy / math.log(2) < target")),
    ("searched the wrong way",  # halving around T = 1, it runs to the end away from the target
     "Your T is far off, as where a search goes the wrong way. A larger T gives a larger entropy. "
     "If the entropy is too small, raise T.", ("entropy < target", "entropy > target")),
    ("ran to the bottom",
     "it returns a T near 0, as where the search goes down to its lower end; if the entropy is "
     "below the target, raise T (is it NaN somewhere? NaN < target is false)", "1e-4"),
    ("ran to the top",
     "the search went up to its end; if the entropy is above the target, lower T (compare with the "
     "target, not with 0; and the entropy needs its minus, or it is never above)", "1e4"),
    ("nan turns the search",
     "where a weight is 0 the entropy comes out as NaN (0 · log 0), and NaN < target is false, so "
     "the search turns away: let such a weight add 0, with torch.xlogy",
     ("torch.special.entr(p).sum()", "-(p * p.log()).sum()"), ("x.double()", "x")),
    ("overflow turns the search down",
     "Your T is wrong where logits are large. If e^(x / T) overflows, the entropy is NaN, and "
     "NaN < target is false, so the search goes down. Use a stable softmax, in the dtype of x.",
     *UNSTABLE),
    ("overflow turns the search up",
     "Your T is wrong where logits are large. If e^(x / T) overflows, the entropy is NaN, and "
     "NaN > target is false, so the search goes up. Use a stable softmax, in the dtype of x.",
     *UNSTABLE, ("entropy < target", "not entropy > target")),
    ("target returned",
     "that is the target itself; look for a T whose weights have this entropy", "target"),
    ("always one", "that is T = 1 whatever the target: the search does not move", "1.0"),
    ("entropy returned", "that is the entropy at T = 1; the temperature is asked",
     ("math.sqrt(low * high)", "1.0"), ("return middle", "return entropy + 1e-12")),
    ("searched too low",
     "T is searched between 0 and 10 only; large logits need a larger one: widen the interval "
     "until it holds the target", ("1e4", "10")),
    ("searched too high",
     "T is searched above 1 only; small or close logits need a smaller one, down towards 0",
     ("1e-4", "1")),
    ("target as a part",
     "the target is taken as a part of log n; it is the entropy itself, in nats",
     ("entropy < target", "entropy < min(target, 0.9999) * math.log(len(x))")),
]  # fmt: skip

exercise = Exercise(
    "3.5", temperature_for_entropy, inputs, MISTAKES, run=entropy_reached,
    compared="the entropy at your T", also_right=[by_doubling, by_grid],
)  # fmt: skip
