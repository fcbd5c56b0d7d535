"""What every explorer is made of: numbers to move, and a picture that answers at once."""

import base64
import html
import io
import math

import ipywidgets as widgets
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from PIL import Image
from traitlets import link

LONGEST_LABEL = 8  # letters of a token for which there is room beside a picture of fixed size


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
        named = {
            "description": label,
            "style": {"description_width": "initial"},
            "layout": {"width": f"{7 + len(label) / 2}em"},
        }
        if isinstance(step, int):
            self.box = widgets.BoundedIntText(**named, **limits)
            self.slider = widgets.IntSlider(readout=False, **limits)
        else:
            self.box = widgets.BoundedFloatText(**named, **limits)
            self.slider = widgets.FloatSlider(readout=False, **limits)
        # A browser's slider turns 0.3 into 0.30000000000000004; the box shall not show that.
        both = (self.box, "value"), (self.slider, "value")
        self.link = link(*both, transform=(lambda typed: typed, lambda slid: round(slid, 6)))
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
        What ``update`` changes. It is drawn over all that is still, but for the frames of its axes.
    controls : dict of str to widget
        Widgets with a ``value``; `Number` for numbers.
    update : callable
        Called with the values of the controls under their names. Changes ``moving`` and returns
        the new state as one line of text.
    columns : int
        How many columns the controls stand in, as far as the page is wide enough.
    """

    def __init__(self, figure, moving, controls, update, columns=1):
        self.controls, self._update = controls, update
        self._canvas = FigureCanvasAgg(figure)
        axes = dict.fromkeys(artist.axes for artist in moving)
        frames = [spine for ax in axes if ax.axison for spine in ax.spines.values()]
        self._moving = sorted([*moving, *frames], key=lambda artist: artist.zorder)
        for artist in self._moving:
            artist.set_animated(True)
        for text in figure.findobj(Text):
            text.set_parse_math(False)  # a token may hold $ signs, and is no formula
        self._canvas.draw()
        self._background = self._canvas.copy_from_bbox(figure.bbox)
        width, height = self._canvas.get_width_height()
        # At its own size: stretched over the page it would be a blur, and with a height left open
        # the browser would lay out the page anew for each picture.
        layout = {
            "width": f"{width}px",
            "height": f"{height}px",
            "max_width": "100%",
            "object_fit": "contain",
            "align_self": "flex-start",
        }
        self.image = widgets.Image(format="png", layout=layout)
        self.words = widgets.HTML()
        self._refresh()
        for control in controls.values():
            getattr(control, "slider", control).observe(lambda _: self._refresh(), names="value")
            if isinstance(control, Number):
                # Observers are told in order: the picture is sent first, then the number beside it.
                control.link.unlink()
                control.link.link()
        each = math.ceil(len(controls) / columns)
        named = list(controls.values())
        stacks = [widgets.VBox(named[i : i + each]) for i in range(0, len(named), each)]
        row = widgets.HBox(stacks, layout={"flex_flow": "row wrap"})
        super().__init__([row, self.image, self.words])

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
        drawn = Image.fromarray(np.asarray(self._canvas.buffer_rgba())).convert("RGB")
        drawn.save(png, "png", compress_level=1)
        self.image.value = png.getvalue()
        # role="status": a screen reader says the new state without being asked
        self.words.value = f'<p role="status">{html.escape(self._state)}</p>'

    def _repr_mimebundle_(self, **kwargs):
        # The picture stands beside the live widget, for viewers that run nothing.
        bundle = super()._repr_mimebundle_(**kwargs)
        bundle["image/png"] = base64.b64encode(self.image.value).decode()
        bundle["text/plain"] = self._state
        return bundle


def cut(labels):
    """Return labels for a picture of fixed size: of a long one its beginning."""
    return [
        label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…"
        for label in labels
    ]
