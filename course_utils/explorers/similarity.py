"""The explorer of lesson 01: two arrows, three measures of likeness."""

import math

from matplotlib.figure import Figure

from course_utils.explorers.base import Explorer, Number
from course_utils.figures import arrows

STEP = 5  # degrees
SHORTEST = 0.1  # of the lengths that have a direction


def similarity_explorer():
    """Turn and stretch an arrow k beside a fixed q = (2, 0); watch dot, cosine and distance.

    The tip of k can also be dragged.

    Returns
    -------
    Explorer
        With controls ``angle`` (degrees from q) and ``length``.
    """
    q_length, reach = 2.0, 3.0
    figure = Figure(figsize=(5.5, 5.2), dpi=80)
    ax = arrows([[q_length, 0], [1, 1]], labels=["q", ""], ax=figure.add_subplot())
    ax.set(xlim=(-reach - 0.2, reach + 0.2), ylim=(-reach - 0.2, reach + 0.2))
    quiver = ax.collections[0]
    tip = ax.text(0, 0, "k", color="C1")
    (distance,) = ax.plot([], [], "--", color="0.5", label="distance from q to k")
    (shadow,) = ax.plot([], [], color="C2", linewidth=5, alpha=0.5, label="shadow of k on q")
    ax.legend(loc="lower left", fontsize=8).set_zorder(0)  # arrows pass over it

    figure.tight_layout()

    def update(angle, length):
        k = length * math.cos(math.radians(angle)), length * math.sin(math.radians(angle))
        quiver.set_UVC([q_length, k[0]], [0, k[1]])
        tip.set_position((k[0] + 0.1, k[1] + 0.1))
        distance.set_data([q_length, k[0]], [0, k[1]])
        shadow.set_data([0, k[0]], [0, 0])
        dot, apart = q_length * k[0], math.dist((q_length, 0), k)
        cosine = f"{k[0] / length:z.2f}" if length else "none (k has no direction)"
        return (
            f"k = ({k[0]:z.2f}, {k[1]:z.2f}): dot product {dot:z.2f}, cosine {cosine}, "
            f"distance {apart:.2f}{found(angle, length, dot, cosine, apart)}"
        )

    def found(angle, length, dot, cosine, apart):
        farthest = max(abs(q_length - each) for each in (SHORTEST, reach))
        if dot > q_length**2 and cosine != "1.00":
            return f"; found: dot product {dot:.2f}, more than k = q has, at cosine {cosine}"
        if angle == 0 and 0 < length and apart >= farthest - 1e-9:
            return f"; found: cosine 1.00 at distance {apart:.2f}, no k here is farther"
        if angle == 0 and 0 < length != q_length:
            return "; cosine 1.00, and it can be farther"
        if abs(angle) == 90 and length:
            return "; found: at 90° the dot product is 0.00, whatever the length"
        return ""

    def press(_, x, y):
        angle = STEP * round(math.degrees(math.atan2(y, x)) / STEP)
        return {"angle": angle, "length": round(math.hypot(x, y), 1)}

    controls = {
        "angle": Number("angle of k from q (degrees)", 60, -180, 180, STEP),
        "length": Number("length of k", 1.5, 0, reach, SHORTEST),
    }
    moving = [quiver, distance, shadow, *ax.texts]
    return Explorer(figure, moving, controls, update, press=press, drag=True)
