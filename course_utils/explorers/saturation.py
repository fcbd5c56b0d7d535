"""The explorer of lesson 03: how softmax saturates, and what breaks it."""

from course_utils.explorers.browser_explorer import (
    BrowserExplorer,
    check,
    choice,
    colors_of,
    number,
)
from course_utils.figures import DIVERGING

SCORE_STEP = 0.5


def saturation_explorer():
    """Show the weights and the Jacobian of a softmax over five scores, and what breaks.

    Each score is multiplied by √d_k, as dot products of width d_k would be. If scaled, it is
    divided by √d_k again. Then it is divided by the temperature. All of this happens in the dtype.

    Returns
    -------
    BrowserExplorer
        With controls ``score_1`` to ``score_5``, ``temperature``, ``d_k``, ``scaled``, ``dtype``
        and ``method`` ("stable", which subtracts the maximum, or "naive").
    """
    controls = {
        f"score_{j}": number(f"score {j}", 3 - j, -20, 100, SCORE_STEP) for j in range(1, 6)
    } | {
        "temperature": number("temperature", 1, 0.05, 5, 0.05),
        "d_k": choice("d_k", 64, [1, 4, 16, 64, 256, 1024, 4096]),
        "scaled": check("divide by √d_k", True),
        "dtype": choice("dtype", "float32", ["float32", "float16", "bfloat16"]),
        "method": choice("softmax", "stable", ["stable", "naive"]),
    }
    given = {"colors": colors_of(DIVERGING), "score_step": SCORE_STEP}
    return BrowserExplorer("saturation", controls, needs=["softmax", "grid"], **given)
