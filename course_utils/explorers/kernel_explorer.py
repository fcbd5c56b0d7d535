"""What explorers drawn by Python are made of: controls, and a picture that answers at once."""

import base64
import html
import io
from pathlib import Path

import anywidget
import ipywidgets as widgets
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from PIL import Image
from traitlets import Bool, Bytes, Float, Int, List, Unicode, Union, link, observe, validate

from course_utils.mime_bundle import WithText

HERE = Path(__file__).parent
CONTROL_WIDTH = "240px"  # beside a picture of 560 it fits the page of a laptop
STILL_DENSITY = 2
LONGEST_LABEL = 8  # letters of a token for which there is room beside a picture of fixed size


class Slider(anywidget.AnyWidget):
    """A slider with a name.

    Parameters
    ----------
    label : str
    value, min, max, step : int or float
    """

    _esm = HERE / "slider.js"
    label = Unicode().tag(sync=True)
    min = Union([Int(), Float()]).tag(sync=True)
    max = Union([Int(), Float()]).tag(sync=True)
    step = Union([Int(), Float()]).tag(sync=True)
    value = Union([Int(), Float()]).tag(sync=True, echo_update=False)  # the browser has it already

    @validate("value")
    def _within(self, proposal):
        return min(max(proposal["value"], self.min), self.max)

    @observe("min", "max")
    def _within_again(self, change):
        self.value = min(max(self.value, self.min), self.max)


class Picture(anywidget.AnyWidget):
    """A picture with a text in its place, which may tell where it is pressed.

    Parameters
    ----------
    value : bytes
        A PNG.
    width, height : int
        In pixels of the page. On a narrow page it shrinks and keeps its shape.
    density : float
        Pixels of the screen for one of the page, which the browser tells.
    alt : str
    pressed : bool
        Whether each press is told.
    """

    _esm = HERE / "picture.js"
    value = Bytes().tag(sync=True)
    width = Int().tag(sync=True)
    height = Int().tag(sync=True)
    density = Float(1.0).tag(sync=True)
    alt = Unicode().tag(sync=True)
    pressed = Bool().tag(sync=True)
    # how far across and how far down, from 0 to 1, and which press it was
    place = List(Float()).tag(sync=True, echo_update=False)


class Number(widgets.VBox):
    """A number: a named box to type in, and under it a slider of the same name.

    Parameters
    ----------
    label : str
    value, low, high, step : int or float
        Whole numbers if the step is an int.
    """

    def __init__(self, label, value, low, high, step):
        limits = {"value": value, "min": low, "max": high, "step": step}
        box = widgets.BoundedIntText if isinstance(step, int) else widgets.BoundedFloatText
        self.box = box(
            description=label,
            style={"description_width": "initial"},
            layout={"width": f"{7 + len(label) / 2}em", "max_width": "calc(100% - 4px)"},
            **limits,
        )
        self.slider = Slider(label=label, **limits)
        self.link = link((self.box, "value"), (self.slider, "value"))
        super().__init__([self.box, self.slider])

    @property
    def value(self):
        return type(self.slider.step)(self.slider.value)  # a browser's 1.0 is 1


class Explorer(WithText, widgets.Box):
    """Controls, a picture that is drawn once and then updated in place, and its state in words.

    The still parts of the figure are drawn once and kept as a background; a change of a control
    draws only ``moving`` over it. That keeps a key press to a fraction of a full redraw. Text that
    changes belongs in the words, not in the figure's titles.

    The controls stand beside the picture where the page is wide enough for both (a picture of 560
    pixels beside one column of controls, on a laptop with the file browser open), else above it.

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
        the new state as one line of text; "found:" in it is told in bold.
    press : callable, optional
        Called as ``press(ax, x, y)`` when the picture is pressed at a place of an Axes, in its
        numbers. Returns a dict: the controls to move and their new values.
    """

    def __init__(self, figure, moving, controls, update, press=None):
        self.controls, self._update, self._press = controls, update, press
        self._canvas = FigureCanvasAgg(figure)
        axes = dict.fromkeys(artist.axes for artist in moving)
        frames = [spine for ax in axes if ax.axison for spine in ax.spines.values()]
        self._moving = sorted([*moving, *frames], key=lambda artist: artist.zorder)
        for artist in self._moving:
            artist.set_animated(True)
        for text in figure.findobj(Text):
            text.set_parse_math(False)  # a token may hold $ signs, and is no formula
        self._dpi = figure.dpi
        width, height = self._canvas.get_width_height()
        self._lay_out(1.0)
        figure.set_layout_engine("none")  # a second round of it would shift the axes a little
        # At its own size: stretched over the page it would be a blur.
        self.image = Picture(
            width=width,
            height=height,
            alt="picture of what is said in words below",
            pressed=press is not None,
            layout={"max_width": "100%"},
        )
        self.image.observe(lambda change: self._pressed(*change.new[:2]), names="place")
        self.image.observe(lambda change: self._sharpen(change.new), names="density")
        self.words = widgets.HTML(layout={"flex": "1 0 100%"})  # a line of its own
        self._moved_together = False
        self._refresh()
        for control in controls.values():
            control.layout.max_width = "100%"  # of their column
            getattr(control, "slider", control).observe(lambda _: self._moved(), names="value")
            if isinstance(control, Number):
                # Observers are told in order: the picture is sent first, then the number beside it.
                control.link.unlink()
                control.link.link()
        beside = widgets.VBox(list(controls.values()), layout={"width": CONTROL_WIDTH})
        super().__init__([beside, self.image, self.words], layout={"flex_flow": "row wrap"})

    @property
    def state(self):
        """The present state as one line of text."""
        return self._state

    def _pressed(self, across, down):
        width, height = self._canvas.get_width_height()
        at = across * width, (1 - down) * height
        for ax in self._canvas.figure.axes:
            if ax.bbox.contains(*at):
                self._move(self._press(ax, *ax.transData.inverted().transform(at)))

    def _move(self, values):
        """Give several controls their values, and draw once."""
        self._moved_together = True
        for name, value in values.items():
            control = self.controls[name]
            getattr(control, "slider", control).value = value
        self._moved_together = False
        self._refresh()

    def _moved(self):
        if not self._moved_together:
            self._refresh()

    def _refresh(self):
        values = {name: control.value for name, control in self.controls.items()}
        self._state = self._update(**values)
        self.image.value = _png(self._drawn(), compress_level=1)
        # role="status": a screen reader says the new state without being asked
        told = html.escape(self._state).replace("found:", "<strong>found:</strong>")
        self.words.value = f'<p role="status">{told}</p>'

    def _sharpen(self, density):
        self._lay_out(density)
        self._refresh()

    def _lay_out(self, density):
        """Draw what is still, with so many pixels for one of the page."""
        figure = self._canvas.figure
        figure.dpi = self._dpi * density
        self._canvas.draw()
        self._background = self._canvas.copy_from_bbox(figure.bbox)

    def _drawn(self):
        self._canvas.restore_region(self._background)
        for artist in self._moving:
            artist.axes.draw_artist(artist)
        return Image.fromarray(np.asarray(self._canvas.buffer_rgba())).convert("RGB")

    def _repr_mimebundle_(self, **kwargs):
        # The picture stands beside the live widget, for viewers that run nothing: as sharp as the
        # lessons' others, with a step of 8 between its shades, which saves a third of the bytes.
        bundle = super()._repr_mimebundle_(**kwargs)
        self._lay_out(STILL_DENSITY)
        few = self._drawn().point([min(255, round(shade / 8) * 8) for shade in range(256)] * 3)
        bundle["image/png"] = base64.b64encode(_png(few, optimize=True)).decode()
        self._lay_out(self.image.density)
        bundle["text/plain"] = self._state
        size = {"width": self.image.width, "height": self.image.height}
        return bundle, {"image/png": size}


def _png(picture, **options):
    file = io.BytesIO()
    picture.save(file, "png", **options)
    return file.getvalue()


def cut(labels, longest=LONGEST_LABEL):
    """Return labels for a picture of fixed size: of a long one its beginning."""
    return [label if len(label) <= longest else label[: longest - 1] + "…" for label in labels]
