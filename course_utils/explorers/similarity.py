"""The explorer of lesson 01: two arrows, three measures of likeness."""

from course_utils.explorers.browser_explorer import BrowserExplorer, number

Q_LENGTH, REACH = 2.0, 3.0
STEP = 5  # degrees
SHORTEST = 0.1  # of the lengths that have a direction


def similarity_explorer():
    """Rotate and stretch an arrow k beside a fixed q = (2, 0); watch dot, cosine and distance.

    The tip of k can also be dragged.

    Returns
    -------
    BrowserExplorer
        With controls ``angle`` (degrees from q) and ``length``.
    """
    controls = {
        "angle": number("angle of k from q (degrees)", 60, -180, 180, STEP),
        "length": number("length of k", 1.5, 0, REACH, SHORTEST),
    }
    given = {"q_length": Q_LENGTH, "reach": REACH, "shortest": SHORTEST, "step": STEP}
    return BrowserExplorer("similarity", controls, **given)
