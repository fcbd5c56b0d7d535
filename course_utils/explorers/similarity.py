"""The explorer of lesson 01: two arrows, three measures of likeness."""

import math

from course_utils.explorers.browser_explorer import BrowserExplorer, number

Q_LENGTH, REACH = 2.0, 3.0
STEP = 5  # degrees
SHORTEST = 0.1  # of the lengths that have a direction


def similarity_explorer():
    """Turn and stretch an arrow k beside a fixed q = (2, 0); watch dot, cosine and distance.

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
    return BrowserExplorer("similarity", controls, _say, **given)


def _say(angle, length):
    k = length * math.cos(math.radians(angle)), length * math.sin(math.radians(angle))
    dot, apart = Q_LENGTH * k[0], math.dist((Q_LENGTH, 0), k)
    cosine = f"{k[0] / length:z.2f}" if length else "none (k has no direction)"
    return (
        f"k = ({k[0]:z.2f}, {k[1]:z.2f}): dot product {dot:z.2f}, cosine {cosine}, "
        f"distance {apart:.2f}{_found(angle, length, dot, cosine, apart)}"
    )


def _found(angle, length, dot, cosine, apart):
    farthest = max(abs(Q_LENGTH - each) for each in (SHORTEST, REACH))
    if dot > Q_LENGTH**2 and cosine != "1.00":
        return f"; found: dot product {dot:.2f}, more than k = q has, at cosine {cosine}"
    if angle == 0 and 0 < length and apart >= farthest - 1e-9:
        return f"; found: cosine 1.00 at distance {apart:.2f}, no k here is farther"
    if angle == 0 and 0 < length != Q_LENGTH:
        return "; cosine 1.00, and it can be farther"
    if abs(angle) == 90 and length:
        return "; found: at 90° the dot product is 0.00, whatever the length"
    return ""
