"""Widgets whose keys are their own in JupyterLab, and that Shift+Enter and Escape leave."""

from pathlib import Path

import anywidget


class Listener(anywidget.AnyWidget):
    """Loads ``keys.js`` into the page that shows the notebook. It is never shown itself."""

    _esm = Path(__file__).with_name("keys.js")


Listener()  # at import, so that the page listens before the first widget is there


def take_keys(widget):
    """Give a widget the keys pressed in it."""
    widget.add_class("course-keys")
