"""10b.3: a control for an ablation: as many other heads, from the same layers."""

import contextlib
import operator
import random
import time  # noqa: F401 - of one mistake
from collections import Counter

import torch

from course_utils.checks.exercise import Exercise, NamedMistake


def control_heads(suspects, num_heads, rng):
    taken = {tuple(head) for head in suspects}
    control = []
    for layer, _ in suspects:
        free = [(layer, h) for h in range(num_heads) if (layer, h) not in taken]
        at = torch.randint(len(free), (1,), generator=rng).item()
        control.append(free[at])
        taken.add(free[at])
    return control


def by_python(suspects, num_heads, rng):
    dice = random.Random(int(torch.randint(2**31, (1,), generator=rng)))
    control = []
    for layer in {layer for layer, _ in suspects}:
        inside = [head for at, head in suspects if at == layer]
        free = sorted(set(range(num_heads)) - set(inside))
        control.extend([layer, head] for head in dice.sample(free, len(inside)))
    return control


def inputs():
    """Return (suspects, num_heads)."""
    some = [(18, 6), (17, 3), (17, 4), (18, 7), (23, 2), (23, 7), (17, 5), (20, 6)]
    return [(some, 9), ([(0, 1), (0, 0), (2, 3)], 4), ([(5, 2)], 6), ([(1, 0), (1, 3), (4, 4)], 8)]


SAME_COUNT = "Your control has {} heads for {} suspects. Return as many heads as suspects."
NOT_HEADS = (
    "Your result is not a list of heads of this model. Return a list of pairs (layer, head) of "
    "whole numbers, with heads from 0 to num_heads − 1."
)
SUSPECTED = (
    "Your control contains a suspect. A control is what the suspects are compared with, so draw "
    "only from the other heads."
)
FROM_1 = (
    "Your heads seem to be counted from 1, because subtracting 1 from each head number makes your "
    "control right. Heads are numbered from 0 to num_heads − 1, so count them from 0."
)
TWICE = (
    "Your control contains a head twice. Ablating it twice does no more than ablating it once, so "
    "the control is too small. Draw each head at most once."
)
LAYERS = (
    "Your control does not have as many heads in each layer as there are suspects. The damage of "
    "an ablation depends on the layer, so from each layer draw as many heads as there are suspects"
    " in it."
)
FIXED = (
    "Your control is the same in 40 calls with the same `rng` object. Each call must give a new "
    "draw, so use `generator=rng` and set no seed."
)
SKEWED = (
    "In 400 draws, your control never contained some of the other heads in these layers. Each of "
    "them must have a chance of being drawn, so draw from all of them."
)
OWN_CHANCE = (
    "Two generators with the same seed gave you different controls. Take all random numbers from "
    "`rng`, so that a control can be reproduced."
)
CHANGED = (
    "Your code changes the list `suspects` itself, but the caller still needs it. Work on a copy."
)


def run(answer, suspects, num_heads):
    """Draw many controls; return 1 if all are valid and every head occurs, else raise."""

    def draw(seed, rng=None):
        given = list(suspects)
        control = answer(given, num_heads, rng or torch.Generator().manual_seed(seed))
        hint = what_is_wrong(control, suspects, num_heads)
        if hint and all(map(fits_if_lowered, range(40))):
            raise NamedMistake("counted from 1", FROM_1)
        if hint:
            raise NamedMistake("no control", hint)
        if given != suspects:
            raise NamedMistake("changes its input", CHANGED)
        return whole(control)

    def fits_if_lowered(seed):
        control = answer(list(suspects), num_heads, torch.Generator().manual_seed(seed))
        with contextlib.suppress(TypeError, ValueError):
            lower = [(layer, head - 1) for layer, head in whole(control)]
            return what_is_wrong(lower, suspects, num_heads) is None
        return False

    drawn = [draw(seed) for seed in range(400)]
    again = [draw(seed) for seed in range(40)]
    if again != drawn[:40]:  # of 40, because two draws may be equal by chance
        raise NamedMistake("its own chance", OWN_CHANCE)
    rng = torch.Generator().manual_seed(0)
    if len({frozenset(draw(0, rng)) for _ in range(40)}) == 1:
        raise NamedMistake("always the same", FIXED)
    layers = {layer for layer, _ in suspects}
    others = {(layer, h) for layer in layers for h in range(num_heads)} - set(suspects)
    if set().union(*drawn) != others:
        raise NamedMistake("never some", SKEWED)
    return [torch.ones(())]


def whole(control):
    """Return pairs of int, also if the numbers are tensors or NumPy's."""
    return [(operator.index(layer), operator.index(head)) for layer, head in control]


def what_is_wrong(control, suspects, num_heads):
    try:
        pairs = whole(control)
    except (TypeError, ValueError):
        return NOT_HEADS
    if not isinstance(control, list) or not all(0 <= head < num_heads for _, head in pairs):
        return NOT_HEADS
    if len(pairs) != len(suspects):
        return SAME_COUNT.format(len(pairs), len(suspects))
    if set(pairs) & set(suspects):
        return SUSPECTED
    if Counter(layer for layer, _ in pairs) != Counter(layer for layer, _ in suspects):
        return LAYERS
    return TWICE if len(set(pairs)) < len(pairs) else None


def from_anywhere(suspects, num_heads, rng):
    """Draw from all heads of 30 layers."""
    free = [(layer, h) for layer in range(30) for h in range(num_heads)]
    free = [head for head in free if head not in suspects]
    return [free[i] for i in torch.randperm(len(free), generator=rng)[: len(suspects)].tolist()]


MISTAKES = [
    ("counted from 1", FROM_1,
     ("control.append(free[at])", "control.append((layer, free[at][1] + 1))")),
    ("from anywhere", LAYERS, from_anywhere),
    ("suspects among them", SUSPECTED, (" if (layer, h) not in taken", "")),
    ("some twice", TWICE, ("        taken.add(free[at])\n", "")),
    ("always the first",
     FIXED, ("at = torch.randint(len(free), (1,), generator=rng).item()", "at = 0")),
    ("never the last", SKEWED, ("torch.randint(len(free), (1,)",
                                "torch.randint(max(len(free) - 1, 1), (1,)")),
    ("its own chance", OWN_CHANCE,
     ("generator=rng", "generator=torch.Generator().manual_seed(time.perf_counter_ns() % 2**31)")),
    ("suspects changed", CHANGED,
     ("    taken = {tuple(head) for head in suspects}\n", "    taken = suspects\n"),
     ("for layer, _ in suspects:", "for layer, _ in list(suspects):"), (".add(", ".append(")),
    ("numbers alone", NOT_HEADS, ("control.append(free[at])", "control.append(free[at][1])")),
]  # fmt: skip

exercise = Exercise("10b.3", control_heads, inputs, MISTAKES, run=run, also_right=[by_python])
