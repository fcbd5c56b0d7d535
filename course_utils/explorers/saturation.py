"""The explorer of lesson 03: how softmax saturates, and what breaks it."""

from course_utils.explorers.browser_explorer import (
    BrowserExplorer,
    check,
    choice,
    colours_of,
    number,
)
from course_utils.figures import DIVERGING

LOGIT_STEP = 0.5


def saturation_explorer():
    """Set five logits and how softmax is calculated; watch weights, Jacobian, and what breaks.

    Each logit is multiplied by √d_k, as dot products of width d_k would be, divided by it again
    if scaled, and divided by the temperature. All of it is calculated in the dtype chosen.

    Returns
    -------
    BrowserExplorer
        With controls ``logit_1`` to ``logit_5``, ``temperature``, ``d_k``, ``scaled``, ``dtype``
        and ``method`` ("stable", which subtracts the maximum, or "naive").
    """
    controls = {
        f"logit_{j}": number(f"logit {j}", 3 - j, -20, 100, LOGIT_STEP) for j in range(1, 6)
    } | {
        "temperature": number("temperature", 1, 0.05, 5, 0.05),
        "d_k": choice("d_k", 64, [1, 4, 16, 64, 256, 1024, 4096]),
        "scaled": check("divide by √d_k", True),
        "dtype": choice("dtype", "float32", ["float32", "float16", "bfloat16"]),
        "method": choice("softmax", "stable", ["stable", "naive"]),
    }
    given = {"colours": colours_of(DIVERGING), "logit_step": LOGIT_STEP}
    return BrowserExplorer("saturation", controls, needs=["softmax", "grid"], **given)
