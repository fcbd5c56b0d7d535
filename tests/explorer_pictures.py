"""Shared by the tests of explorers: set controls, and read back what is drawn."""

import io
import itertools
import re

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from course_utils.explorers.browser_explorer import BrowserExplorer

PRESSES = itertools.count(1.0)  # each at a time of its own


def set_controls(explorer, **values):
    """Set controls by name, as a hand at a slider would, and return the explorer."""
    if isinstance(explorer, BrowserExplorer):
        explorer.values = explorer.values | values
        return explorer
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


def ticks(axis):
    """Return the labels of an axis by their places."""
    return {
        place: label.get_text()
        for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
    }


def across(axes):
    """Return Axes from left to right."""
    return sorted(axes, key=lambda ax: ax.bbox.x0)


def limits(patch):
    """Return left, right, and both ends in height of a rectangle, in the numbers of its Axes."""
    (x, y), width, height = patch.get_xy(), patch.get_width(), patch.get_height()
    return x, x + width, y, y + height


# In the page: parts of the picture with their places, (left, top, right, bottom), and their looks.
PARTS = """values => {
    model.set("values", {...model.get("values"), ...values});
    const svg = document.querySelector("svg"), around = svg.getBoundingClientRect();
    const look = part => Object.fromEntries([...part.attributes].map(one => [one.name, one.value]));
    const parts = (name, place) => {
        return [...svg.querySelectorAll(name)].map(part => [place(part), look(part)]);
    };
    const seen = part => {
        const box = part.getBoundingClientRect();
        return [box.left, box.top, box.right, box.bottom]
            .map((side, n) => side - (n % 2 ? around.top : around.left));
    };
    const drawn = ({ x, y, width, height }) => [x, y, width, height].map(one => one.baseVal.value);
    return {
        texts: parts("text", part => [part.textContent, seen(part)]),
        rects: parts("rect", drawn), paths: parts("path", () => null),
    };
}"""


def svg_parts(page, **values):
    """Return what a page draws with these values, in the pixels of its picture.

    Each with the attributes of its element: texts with their places as they are seen, rects with
    theirs, lines as paths. Cells of `layered` have a place and a fill.
    """
    found = page.evaluate(PARTS, values)
    cells = [
        (tuple(map(float, (x, y, right, below))), look["fill"])
        for _, look in found["paths"]
        for x, y, right, below in re.findall(r"M(\S+) (\S+)H(\S+)V(\S+)H", look["d"])
    ]
    return {
        "texts": [(text, box, look) for (text, box), look in found["texts"] if text],
        "rects": [
            ((x, y, x + width, y + height), {"stroke": None, "visibility": None} | look)
            for (x, y, width, height), look in found["rects"]
        ],
        "lines": [(look["d"], look) for _, look in found["paths"] if "stroke" in look],
        "cells": cells,
    }


def cell_values(picture, frame, rows, columns, colours):
    """Return the numbers from 0 to 1, (rows, columns), whose cells fill a frame.

    Read from their colours by Matplotlib's map of them.
    """
    left, top, right, bottom = frame
    scale = colours(np.linspace(0, 1, 1001), bytes=True)[:, :3].astype(int)
    found = np.full((rows, columns), np.nan)
    for box, fill in picture["cells"]:
        beside = left - box[0], top - box[1], box[2] - right, box[3] - bottom
        if max(beside) > 0.02:  # pixels: corners are drawn to a hundredth of one
            continue
        place = [(box[0] - left) / (right - left) * columns, (box[1] - top) / (bottom - top) * rows]
        j, i = map(round, place)
        assert place == pytest.approx([j, i], abs=0.01) and np.isnan(found[i, j])
        size = box[2] - box[0], box[3] - box[1]
        assert size == pytest.approx(((right - left) / columns, (bottom - top) / rows), abs=0.03)
        shade = [int(each) for each in re.findall(r"\d+", fill)]
        found[i, j] = np.abs(scale - shade).sum(axis=1).argmin() / 1000
    return found
