"""The explorer of lesson 11: keys go round a ring of ranks, and some ranks wait."""

from matplotlib.colors import to_rgb

from course_utils.explorers.browser_explorer import BrowserExplorer, check, number

COLOURS = ["C0", "C1", "C2", "C3", "C4", "C5", "C6", "C9"]  # of ranks; C7 is a grey
MOST = len(COLOURS)  # ranks


def ring_explorer():
    """Let keys go round a ring; see who holds them, who computes which tile, and who waits.

    A step takes as long as its busiest rank. That the keys must be sent costs nothing here.

    Returns
    -------
    BrowserExplorer
        With controls ``step`` (from 0), ``ranks``, ``causal`` and ``zigzag``. A click on a tile
        goes to the step in which its queries meet its keys.
    """
    controls = {
        "step": number("step", 2, 0, MOST - 1, 1),
        "ranks": number("ranks", MOST, 2, MOST, 1),
        "causal": check("causal", True),
        "zigzag": check("zigzag", False),
    }
    colours = [[round(255 * part) for part in to_rgb(colour)] for colour in COLOURS]
    return BrowserExplorer("ring", controls, colours=colours)
