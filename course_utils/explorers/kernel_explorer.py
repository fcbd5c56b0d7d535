"""The parts of an explorer that Python draws: controls, and a picture that follows them."""

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
from traitlets import Bool, Bytes, Float, Int, Unicode, Union, link, observe, validate

from course_utils.explorers.browser_explorer import STILL_DENSITY
from course_utils.mime_bundle import WithText
from course_utils.widget_keys import take_keys

HERE = Path(__file__).parent
CONTROL_WIDTH = "240px"  # beside a picture of 560 pixels it fits the window of a laptop
LONGEST_LABEL = 8  # characters of a token beside a picture of fixed size


class Slider(anywidget.AnyWidget):
    """A slider with an accessible name.

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
    """A picture with an alternative text, which can send where it is clicked.

    Parameters
    ----------
    value : bytes
        A PNG.
    width, height : int
        In CSS pixels. On a narrow page the picture shrinks and keeps its shape.
    density : float
        Screen pixels for one CSS pixel, set by the browser.
    alt : str
    clickable : bool
        A click sends how far "across" and "down" it was, from 0 to 1.
    """

    _esm = HERE / "picture.js"
    value = Bytes().tag(sync=True)
    width = Int().tag(sync=True)
    height = Int().tag(sync=True)
    density = Float(1.0).tag(sync=True)
    alt = Unicode().tag(sync=True)
    clickable = Bool().tag(sync=True)


class Number(widgets.VBox):
    """A number: a box to type in, and below it a slider with the same label.

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
        return type(self.slider.step)(self.slider.value)  # a browser may send 1 as 1.0


class Explorer(WithText, widgets.Box):
    """Controls, a picture that is updated in place, and its state in words.

    The parts of the figure that do not change are drawn once and stored as a background. When a
    control changes, only the artists in ``moving`` are drawn over it, which takes a fraction of a
    full redraw. Text that changes belongs in the words, not in the figure's titles.

    The controls are beside the picture where the page is wide enough for both, otherwise above it.
    On a laptop with the file browser open, a picture may be 560 pixels wide.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Not created by pyplot, which would display it a second time.
    moving : list of matplotlib.artist.Artist
        What ``update`` changes. It is drawn over everything else except the frames of its Axes.
    controls : dict of str to widget
        Widgets with a ``value``; `Number` for numbers.
    update : callable
        Called with the values of the controls as keyword arguments. Changes ``moving`` and returns
        the new state as one line of text, in which "found:" is displayed in bold.
    on_click : callable, optional
        Called as ``on_click(ax, x, y)``, in data coordinates, when an Axes is clicked. Returns a
        dict of the controls to change and their new values.
    """

    def __init__(self, figure, moving, controls, update, on_click=None):
        self.controls, self._update, self._on_click = controls, update, on_click
        self._canvas = FigureCanvasAgg(figure)
        axes = dict.fromkeys(artist.axes for artist in moving)
        frames = [spine for ax in axes if ax.axison for spine in ax.spines.values()]
        self._moving = sorted([*moving, *frames], key=lambda artist: artist.zorder)
        for artist in self._moving:
            artist.set_animated(True)
        for text in figure.findobj(Text):
            text.set_parse_math(False)  # a token with $ signs is not a formula
        self._dpi = figure.dpi
        width, height = self._canvas.get_width_height()
        self._draw_background(1.0)
        figure.set_layout_engine("none")  # a second run would shift the axes a little
        self.image = Picture(
            width=width,
            height=height,
            alt="picture of what is said in words below",
            clickable=on_click is not None,
            layout={"max_width": "100%"},
        )
        self.image.on_msg(lambda _, point, __: self._clicked(**point))
        self.image.observe(lambda change: self._set_density(change.new), names="density")
        self.words = widgets.HTML(layout={"flex": "1 0 100%"})  # a line of its own
        self._setting_several = False
        self._refresh()
        for control in controls.values():
            control.layout.max_width = "100%"  # of their column
            getattr(control, "slider", control).observe(lambda _: self._changed(), names="value")
            if isinstance(control, Number):
                # Observers are called in order: send the picture first, then the number beside it.
                control.link.unlink()
                control.link.link()
        column = widgets.VBox(list(controls.values()), layout={"width": CONTROL_WIDTH})
        super().__init__([column, self.image, self.words], layout={"flex_flow": "row wrap"})
        take_keys(self)

    @property
    def state(self):
        """The current state as one line of text."""
        return self._state

    def _clicked(self, across, down):
        width, height = self._canvas.get_width_height()
        pixel = across * width, (1 - down) * height
        for ax in self._canvas.figure.axes:
            if ax.bbox.contains(*pixel):
                self._set(self._on_click(ax, *ax.transData.inverted().transform(pixel)))

    def _set(self, values):
        """Give several controls their values, and draw once."""
        self._setting_several = True
        for name, value in values.items():
            control = self.controls[name]
            getattr(control, "slider", control).value = value
        self._setting_several = False
        self._refresh()

    def _changed(self):
        if not self._setting_several:
            self._refresh()

    def _refresh(self):
        values = {name: control.value for name, control in self.controls.items()}
        self._state = self._update(**values)
        self.image.value = _png(self._render(), compress_level=1)
        # role="status": a screen reader announces the new state
        words = html.escape(self._state).replace("found:", "<strong>found:</strong>")
        self.words.value = f'<p role="status">{words}</p>'

    def _set_density(self, density):
        self._draw_background(density)
        self._refresh()

    def _draw_background(self, density):
        """Draw what does not change, with this number of pixels for one CSS pixel."""
        figure = self._canvas.figure
        figure.dpi = self._dpi * density
        self._canvas.draw()
        self._background = self._canvas.copy_from_bbox(figure.bbox)

    def _render(self):
        """Draw the moving artists over the background, and return the picture."""
        self._canvas.restore_region(self._background)
        for artist in self._moving:
            artist.axes.draw_artist(artist)
        return Image.fromarray(np.asarray(self._canvas.buffer_rgba())).convert("RGB")

    def _repr_mimebundle_(self, **kwargs):
        # A picture beside the live widget, for viewers that run no code. It is as sharp as the
        # lessons' figures; rounding its shades to multiples of 8 saves a third of the bytes.
        bundle = super()._repr_mimebundle_(**kwargs)
        self._draw_background(STILL_DENSITY)
        still = self._render().point([min(255, round(shade / 8) * 8) for shade in range(256)] * 3)
        bundle["image/png"] = base64.b64encode(_png(still, optimize=True)).decode()
        self._draw_background(self.image.density)
        bundle["text/plain"] = self._state
        size = {"width": self.image.width, "height": self.image.height}
        return bundle, {"image/png": size}


def _png(picture, **options):
    file = io.BytesIO()
    picture.save(file, "png", **options)
    return file.getvalue()


def cut(labels, longest=LONGEST_LABEL):
    """Return labels for a picture of fixed size, with the long ones cut."""
    return [label if len(label) <= longest else label[: longest - 1] + "…" for label in labels]
