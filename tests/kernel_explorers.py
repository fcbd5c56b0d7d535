"""Shared by the tests of explorers that Python draws: use them, and read back what is drawn."""

import io

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image


def set_controls(explorer, **values):
    """Set controls by name, as a user does, and return the state."""
    for name, value in values.items():
        control = explorer.controls[name]
        getattr(control, "slider", control).value = value
    return explorer.state


def click(explorer, ax, x, y):
    """Click the picture at data coordinates of an Axes, as the browser reports it."""
    across, up = ax.transData.transform((x, y))
    width, height = explorer._canvas.get_width_height()
    explorer.image._handle_custom_msg({"across": across / width, "down": 1 - up / height}, [])


def axes(explorer):
    return explorer._canvas.figure.axes


def pixels(explorer):
    """Return the picture that the browser gets, (height, width, 3)."""
    return np.asarray(Image.open(io.BytesIO(explorer.image.value)).convert("RGB"), dtype=int)


def assert_drawn(explorer):
    """Assert that the picture in the browser shows the figure, as if all of it were drawn anew."""
    figure = explorer._canvas.figure
    moving = figure.findobj(lambda artist: artist.get_animated())
    for artist in moving:
        artist.set_animated(False)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    figure.set_canvas(explorer._canvas)
    for artist in moving:
        artist.set_animated(True)
    expected = np.asarray(canvas.buffer_rgba())[..., :3].astype(int)
    # moving artists are drawn last, so they may cover the root of a tick mark
    np.testing.assert_allclose(pixels(explorer), expected, atol=20)
