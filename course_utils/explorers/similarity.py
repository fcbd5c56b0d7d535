"""The explorer of lesson 01: two arrows, three measures of likeness."""

import math

from matplotlib.figure import Figure

from course_utils.explorers.base import Explorer, Number
from course_utils.figures import arrows


def similarity_explorer():
    """Turn and stretch an arrow k beside a fixed q = (2, 0); watch dot, cosine and distance.

    Returns
    -------
    Explorer
        With controls ``angle`` (degrees from q) and ``length``.
    """
    q_length, reach = 2.0, 3.0
    figure = Figure(figsize=(5, 4), dpi=80)
    ax = arrows([[q_length, 0], [1, 1]], labels=["q", ""], ax=figure.add_subplot())
    ax.set(xlim=(-reach - 0.2, reach + 0.2), ylim=(-reach - 0.2, reach + 0.2))
    quiver = ax.collections[0]
    tip = ax.text(0, 0, "k", color="C1")
    (distance,) = ax.plot([], [], "--", color="0.5", label="distance from q to k")
    (shadow,) = ax.plot([], [], color="C2", linewidth=5, alpha=0.5, label="shadow of k on q")
    ax.legend(loc="lower left", fontsize=8).set_zorder(0)  # arrows pass over it

    def update(angle, length):
        k = length * math.cos(math.radians(angle)), length * math.sin(math.radians(angle))
        quiver.set_UVC([q_length, k[0]], [0, k[1]])
        tip.set_position((k[0] + 0.1, k[1] + 0.1))
        distance.set_data([q_length, k[0]], [0, k[1]])
        shadow.set_data([0, k[0]], [0, 0])
        cosine = f"{k[0] / length:.2f}" if length else "none (k has no direction)"
        return (
            f"k = ({k[0]:.2f}, {k[1]:.2f}): dot product {q_length * k[0]:.2f}, "
            f"cosine {cosine}, distance {math.dist((q_length, 0), k):.2f}"
        )

    controls = {
        "angle": Number("angle of k from q (degrees)", 60, -180, 180, 5),
        "length": Number("length of k", 1.5, 0, 3, 0.1),
    }
    return Explorer(figure, [quiver, distance, shadow, *ax.texts], controls, update)
