"""Lesson 06: its `backend_of` tells SDPA's backends apart, those of a GPU too."""

import types

import nbformat
import pytest
import torch

from stored_notebooks import ROOT, code

CELLS = code(nbformat.read(ROOT / "notebooks" / "06_sdpa_and_flash_attention.ipynb", as_version=4))
(SOURCE,) = (cell.source for cell in CELLS if "def backend_of" in cell.source)
FORWARD = "aten::_scaled_dot_product_"
# the operators of this version of PyTorch, by the backend that is named in each
NAMES = {
    name: next(kind for kind in ("FLASH", "EFFICIENT", "CUDNN", "MATH") if kind.lower() in name)
    for name in torch._C._dispatch_get_all_op_names()
    if name.startswith(FORWARD) and "backward" not in name and "overrideable" not in name
}


def test_every_backend_has_an_operator():
    assert set(NAMES.values()) == {"FLASH", "EFFICIENT", "CUDNN", "MATH"}


@pytest.mark.parametrize("name", NAMES)
def test_a_backend_is_known_by_its_operator(name):
    called = ["aten::scaled_dot_product_attention", name, "aten::empty_like"]

    class Profile:
        def __init__(self, activities):
            pass

        __enter__ = __exit__ = lambda self, *_: self

        def events(self):
            return [types.SimpleNamespace(name=each) for each in called]

    steps = SOURCE[: SOURCE.index("\n\n\nbias = ")]
    names = {"sdpa": lambda *_, **__: None}
    exec(steps, names)
    names["profile"] = Profile
    assert names["backend_of"]() == NAMES[name]
