"""Widgets whose keys are their own in JupyterLab, and that Shift+Enter and Escape leave."""

from pathlib import Path

# JavaScript that a widget's module begins with.
KEYS = Path(__file__).with_name("keys.js").read_text(encoding="utf-8")


def take_keys(widget):
    """Give a widget the keys pressed in it. It must be, or contain, one whose module has `KEYS`."""
    widget.add_class("course-keys")
