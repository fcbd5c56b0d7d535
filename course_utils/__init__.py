"""Shared parts of the attention course: figures, explorers, checks, and the attention you build.

A name is imported when it is first used, so that the attention code needs no Jupyter.
"""

import importlib

_MODULES = {
    "check": "checks",
    "heatmap": "figures",
    "predict_first": "predictions",
    "progress": "checks",
    "show": "figures",
    "surprises": "predictions",
}
__all__ = list(_MODULES)


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
