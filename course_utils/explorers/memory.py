"""The explorer of lesson 13: write pairs into a small state, and read them back."""

import itertools

import torch
from torch.nn.functional import normalize

from course_utils.explorers.browser_explorer import (
    BrowserExplorer,
    check,
    choice,
    colors_of,
    number,
)
from course_utils.figures import DIVERGING

WRITES = "abcdaefg"  # the key of each pair, in the order in which they are written
D = 4  # numbers in a key, and in a value
SEED = 31


def pairs():
    """Return keys (7, 4) of norm 1 for a to g, and values (8, 4) of +1 and −1, one per write."""
    rng = torch.Generator().manual_seed(SEED)
    keys = normalize(torch.randn(len(set(WRITES)), D, generator=rng, dtype=torch.float64), dim=-1)
    possible = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=D)), dtype=torch.float64)
    return keys, possible[torch.randperm(len(possible), generator=rng)[: len(WRITES)]]


def memory_explorer():
    """Write up to eight pairs into a state of 4 × 4 numbers, and read the value of a key.

    Key a is written twice. With orthogonal keys, a to d are the rows of the identity matrix.

    Returns
    -------
    BrowserExplorer
        With the controls ``written`` (how many pairs), ``read`` (a key), ``delta`` (the delta
        rule), ``decay`` (of each step) and ``keys``. A click on a pair reads its key.
    """
    controls = {
        "written": number("pairs written", 3, 0, len(WRITES), 1),
        "read": choice("read key", "a", sorted(set(WRITES))),
        "delta": check("delta rule", False),
        "decay": number("decay", 1.0, 0.5, 1.0, 0.05),
        "keys": choice("keys", "random", ["random", "orthogonal"]),
    }
    keys, values = pairs()
    orthogonal = keys.clone()
    orthogonal[:D] = torch.eye(D)
    return BrowserExplorer(
        "memory",
        controls,
        needs=["grid"],
        writes=[*WRITES],
        keys={"random": keys.tolist(), "orthogonal": orthogonal.tolist()},
        values=values.tolist(),
        colors=colors_of(DIVERGING),
    )
