"""The explorer of lesson 01: two arrows and three measures of similarity."""

from course_utils.explorers.browser_explorer import BrowserExplorer, number

Q_LENGTH, REACH = 2.0, 3.0
ANGLE_STEP = 5  # degrees
SHORTEST = 0.1  # length of k that is not 0, and the step from one length to the next


def similarity_explorer():
    """Show q = (2, 0), an arrow k to change, and their dot product, cosine and distance.

    You can also drag the tip of k.

    Returns
    -------
    BrowserExplorer
        With controls ``angle`` (of k, in degrees from q) and ``length`` (of k).
    """
    controls = {
        "angle": number("angle from q to k (degrees)", 60, -180, 180, ANGLE_STEP),
        "length": number("length of k", 1.5, 0, REACH, SHORTEST),
    }
    given = {"q_length": Q_LENGTH, "reach": REACH, "shortest": SHORTEST, "step": ANGLE_STEP}
    return BrowserExplorer("similarity", controls, **given)
