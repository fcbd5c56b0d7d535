"""The explorer of lesson 11: keys travel around a ring of ranks, and some ranks are idle."""

from matplotlib.colors import to_rgb

from course_utils.explorers.browser_explorer import BrowserExplorer, check, number

COLORS = ["C0", "C1", "C2", "C3", "C4", "C5", "C6", "C9"]  # of the ranks; C7 is gray
MOST_RANKS = len(COLORS)


def ring_explorer():
    """Let keys travel around a ring, and show which rank holds, computes or is idle.

    A step takes as long as its busiest rank. Communication takes no time here.

    Returns
    -------
    BrowserExplorer
        With the controls ``step`` (from 0), ``ranks``, ``causal`` and ``zigzag``. A click on a
        tile goes to the step in which its queries attend to its keys.
    """
    controls = {
        "step": number("step", 2, 0, MOST_RANKS - 1, 1),
        "ranks": number("ranks", MOST_RANKS, 2, MOST_RANKS, 1),
        "causal": check("causal", True),
        "zigzag": check("zigzag", False),
    }
    colors = [[round(255 * part) for part in to_rgb(color)] for color in COLORS]
    return BrowserExplorer("ring", controls, colors=colors)
