"""Explorers: controls beside a picture, to move a lesson's main quantity by hand.

A new explorer is a function that draws a figure, names its controls, and says what moves:
see `similarity_explorer`.
"""

import base64
import html
import io
import math

import ipywidgets as widgets
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from traitlets import link

from course_utils.figures import arrows


class Number(widgets.HBox):
    """A number to type, which carries the name, linked to a slider.

    A slider of ipywidgets has no accessible name; the text box beside it does.

    Parameters
    ----------
    label : str
    value, low, high, step : int or float
        Whole numbers if the step is an int.
    """

    def __init__(self, label, value, low, high, step):
        limits = {"value": value, "min": low, "max": high, "step": step}
        style = {"description_width": "initial"}
        if isinstance(step, int):
            self.box = widgets.BoundedIntText(description=label, style=style, **limits)
            self.slider = widgets.IntSlider(readout=False, **limits)
        else:
            self.box = widgets.BoundedFloatText(description=label, style=style, **limits)
            self.slider = widgets.FloatSlider(readout=False, **limits)
        # A browser's slider turns 0.3 into 0.30000000000000004; the box shall not show that.
        both = (self.box, "value"), (self.slider, "value")
        link(*both, transform=(lambda typed: typed, lambda slid: round(slid, 6)))
        super().__init__([self.box, self.slider])

    @property
    def value(self):
        return self.slider.value


class Explorer(widgets.VBox):
    """Controls, a picture that is drawn once and then updated in place, and its state in words.

    The still parts of the figure are drawn once and kept as a background; a change of a control
    draws only ``moving`` over it. That keeps a key press to a fraction of a full redraw. Text that
    changes belongs in the words, not in the figure's titles.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Not one of pyplot's, so that it is not shown a second time.
    moving : list of matplotlib.artist.Artist
        What ``update`` changes.
    controls : dict of str to widget
        Widgets with a ``value``; `Number` for numbers.
    update : callable
        Called with the values of the controls under their names. Changes ``moving`` and returns
        the new state as one line of text.
    """

    def __init__(self, figure, moving, controls, update):
        self.controls, self._moving, self._update = controls, moving, update
        self._canvas = FigureCanvasAgg(figure)
        for artist in moving:
            artist.set_animated(True)
        self._canvas.draw()
        self._background = self._canvas.copy_from_bbox(figure.bbox)
        width, _ = self._canvas.get_width_height()
        # At its own size: stretched over the page it would be a blur.
        layout = {"width": f"{width}px", "max_width": "100%", "align_self": "flex-start"}
        self.image = widgets.Image(format="png", layout=layout)
        self.words = widgets.HTML()
        self._refresh()
        for control in controls.values():
            getattr(control, "slider", control).observe(lambda _: self._refresh(), names="value")
        super().__init__([*controls.values(), self.image, self.words])

    @property
    def state(self):
        """The present state as one line of text."""
        return self._state

    def _refresh(self):
        values = {name: control.value for name, control in self.controls.items()}
        self._state = self._update(**values)
        self._canvas.restore_region(self._background)
        for artist in self._moving:
            artist.axes.draw_artist(artist)
        png = io.BytesIO()
        Image.fromarray(np.asarray(self._canvas.buffer_rgba())).save(png, "png", compress_level=1)
        self.image.value = png.getvalue()
        # role="status": a screen reader says the new state without being asked
        self.words.value = f'<p role="status">{html.escape(self._state)}</p>'

    def _repr_mimebundle_(self, **kwargs):
        # The picture stands beside the live widget, for viewers that run nothing.
        bundle = super()._repr_mimebundle_(**kwargs)
        bundle["image/png"] = base64.b64encode(self.image.value).decode()
        bundle["text/plain"] = self._state
        return bundle


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
    ax.legend(loc="lower left", fontsize=8)

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
    return Explorer(figure, [quiver, tip, distance, shadow], controls, update)
