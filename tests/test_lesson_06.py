"""Lesson 06: its `backend_of` tells SDPA's backends apart, those of a GPU too."""

import types

import pytest
import torch

from induction_seeds import definitions
from stored_notebooks import ROOT

# the operators of this version of PyTorch, by the backend that is named in each
NAMES = {
    name: next(kind for kind in ("FLASH", "EFFICIENT", "CUDNN", "MATH") if kind.lower() in name)
    for name in torch._C._dispatch_get_all_op_names()
    if name.startswith("aten::_scaled_dot_product_")
    and not ("backward" in name or "overrideable" in name)
}


@pytest.mark.parametrize("name", NAMES)
def test_a_backend_is_known_by_its_operator(name):
    assert set(NAMES.values()) == {"FLASH", "EFFICIENT", "CUDNN", "MATH"}

    class Profile:
        __init__ = __exit__ = lambda *_, **__: None

        def __enter__(self):
            return self

        def events(self):
            called = ["aten::scaled_dot_product_attention", name, "aten::empty_like"]
            return [types.SimpleNamespace(name=each) for each in called]

    lesson = definitions(ROOT / "notebooks" / "06_sdpa_and_flash_attention.ipynb")
    lesson |= {"profile": Profile, "sdpa": lambda: None}
    backend_of = types.FunctionType(lesson["backend_of"].__code__, lesson)
    assert backend_of() == NAMES[name]
