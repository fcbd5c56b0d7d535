"""Explorers that live in the page: calculated and drawn by JavaScript, with no kernel."""

import base64
import io
import json
import math
from pathlib import Path

import anywidget
import numpy as np
from matplotlib import colormaps
from PIL import Image
from traitlets import Dict, validate

from course_utils.mime_bundle import WithText
from course_utils.widget_keys import take_keys

HERE = Path(__file__).parent
PREVIEWS = HERE / "previews"
STILL_DENSITY = 2  # pixels of a preview for one of the page
FROM_KERNEL = ["training"]  # those to which a kernel sends data while they are shown


def number(label, value, low, high, step):
    """Return a control for a number: a box to type in and a slider. Whole if the step is an int."""
    limits = {"low": low, "high": high, "step": step}
    return {"kind": "number", "label": label, "value": value, **limits}


def choice(label, value, options):
    """Return a control that takes one of several options."""
    return {"kind": "choice", "label": label, "value": value, "options": list(options)}


def check(label, value):
    """Return a control that is on or off."""
    return {"kind": "check", "label": label, "value": value}


def text(label, value, placeholder):
    """Return a control for one line of any text; the placeholder shows how it may look."""
    return {"kind": "text", "label": label, "value": value, "placeholder": placeholder}


def colors_of(name):
    """Return eleven colors, (red, green, blue) to 255, of Matplotlib's color map of that name.

    Between them, the others of the maps that the course uses lie on nearly straight lines.
    """
    return colormaps[name](np.linspace(0, 1, 11), bytes=True)[:, :3].tolist()


def lives_in_the_page(name):
    """Say whether the function of that name makes an explorer for a page without a kernel.

    It has a module of its own, and all its data from the start.
    """
    name = name.removesuffix("_explorer")
    return name not in FROM_KERNEL and (HERE / f"{name}.js").is_file()


class BrowserExplorer(WithText, anywidget.AnyWidget):
    """Controls, a picture, and its state in words, all of them made in the page.

    What it calculates, draws and says is in ``<name>.js`` beside this file; what explorers share is
    in ``browser_explorer.js``, and both go to the page as one module.

    To move it from Python, give ``values`` a new dict: ``e.values = e.values | {"angle": 90}``.

    Parameters
    ----------
    name : str
        Of the JavaScript file, and of the picture in ``previews``.
    controls : dict of str to dict
        From `number`, `choice`, `check` and `text`.
    data : str, optional
        What it shows, in a few words, if that is not the data of the preview.
    needs : list of str
        Names of JavaScript files whose functions it uses, beside those of ``browser_explorer.js``.
    **given
        Constants that the JavaScript reads as ``given.<name>``; anything that JSON can hold.

    Attributes
    ----------
    module : str
        The JavaScript module, for pages without a kernel.

    Raises
    ------
    ValueError
        If ``values`` are given that the controls do not have. A number beyond its ends is moved
        to the nearer one.
    """

    controls = Dict().tag(sync=True)
    values = Dict().tag(sync=True, echo_update=False)  # the browser has it already

    def __init__(self, name, controls, *, data="", needs=(), **given):
        self.name, self._data = name, data
        files = [HERE / f"{part}.js" for part in ("browser_explorer", *needs, name)]
        parts = [file.read_text(encoding="utf-8") for file in files]
        self.module = "\n".join([f"const given = {json.dumps(given)};", *parts])
        self._esm = self.module
        super().__init__(controls=controls, values=opening_values(controls))
        take_keys(self)

    @property
    def state(self):
        """One line of text: what the page says of its preview, or else the data and the values."""
        if self._preview():
            return descriptions()[self.name]["words"]
        settings = [f"{self.controls[n]['label']} {value}" for n, value in self.values.items()]
        return f"{self._data or self.name + ' explorer'}: {', '.join(settings)}"

    @validate("values")
    def _validated(self, proposal):
        values = proposal["value"]
        if values.keys() != self.controls.keys():
            expected, got = ", ".join(self.controls), ", ".join(values)
            raise ValueError(f"values must be those of {expected}, got {got}")
        return {name: _allowed(name, self.controls[name], values[name]) for name in self.controls}

    def _repr_mimebundle_(self, **kwargs):
        bundle = super()._repr_mimebundle_(**kwargs)
        bundle["text/plain"] = self.state
        preview = self._preview()
        if preview is None:
            return bundle
        with Image.open(io.BytesIO(preview)) as picture:
            width, height = (pixels // STILL_DENSITY for pixels in picture.size)
        bundle["image/png"] = base64.b64encode(preview).decode()
        return bundle, {"image/png": {"width": width, "height": height}}

    def _preview(self):
        """Return a PNG for viewers that run nothing, or None if it has other data or values."""
        if self._data or self.values != opening_values(self.controls):
            return None
        return (PREVIEWS / f"{self.name}.png").read_bytes()


def descriptions():
    """Return what the page says and draws of each preview: words, and a checksum, by name."""
    return json.loads((PREVIEWS / "descriptions.json").read_text(encoding="utf-8"))


def opening_values(controls):
    """Return the values that controls have at first, by name."""
    return {name: control["value"] for name, control in controls.items()}


def _allowed(name, control, value):
    if control["kind"] == "number":
        if math.isnan(value):
            raise ValueError(f"{name} must be a number, got {value!r}")
        value = min(max(value, control["low"]), control["high"])
        return round(value) if isinstance(control["step"], int) else float(value)
    if control["kind"] == "text":
        if not isinstance(value, str):
            raise ValueError(f"{name} must be a str, got {value!r}")
        return value
    options = control.get("options", [False, True])
    if value not in options:
        raise ValueError(f"{name} must be one of {options}, got {value!r}")
    return value
