"""Shared by the tests of explorers of the kernel: set controls, and read back what is drawn."""

import io
import itertools

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

PRESSES = itertools.count(1.0)  # each at a time of its own


def set_controls(explorer, **values):
    """Set controls by name, as a hand at a slider would, and return the explorer."""
    for name, value in values.items():
        control = explorer.controls[name]
        getattr(control, "slider", control).value = value
    return explorer


def press(explorer, ax, x, y):
    """Press the picture at a place in the numbers of an Axes, as the browser tells it."""
    across, up = ax.transData.transform((x, y))
    width, height = explorer._canvas.get_width_height()
    explorer.image.set_state({"place": [across / width, 1 - up / height, next(PRESSES)]})


def pixels(explorer):
    """Return the picture as the browser gets it, (height, width, 3)."""
    return np.asarray(Image.open(io.BytesIO(explorer.image.value)).convert("RGB"), dtype=int)


def pixel(explorer, ax, x, y):
    """Return the colour of the picture at a place in the numbers of an Axes."""
    across, up = ax.transData.transform((x, y))
    picture = pixels(explorer)
    return tuple(picture[int(len(picture) - up), int(across)])


def drawn_anew(explorer):
    """Return the pixels of the whole figure, still and moving parts, drawn from nothing."""
    figure = explorer._canvas.figure
    moving = figure.findobj(lambda artist: artist.get_animated())
    for artist in moving:
        artist.set_animated(False)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    figure.set_canvas(explorer._canvas)
    for artist in moving:
        artist.set_animated(True)
    return np.asarray(canvas.buffer_rgba())[..., :3].astype(int)


def axes(explorer):
    """Return the Axes of the figure, in the order in which they were made."""
    return explorer._canvas.figure.axes


def headings(ax):
    """Return what is written around an Axes: title, label of x, label of y."""
    return ax.get_title(), ax.get_xlabel(), ax.get_ylabel()


def limits(patch):
    """Return left, right, and both ends in height of a rectangle, in the numbers of its Axes."""
    (x, y), width, height = patch.get_xy(), patch.get_width(), patch.get_height()
    return x, x + width, y, y + height
