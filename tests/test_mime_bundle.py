"""Widgets are stored with a text beside them, with ipywidgets 8 and with Colab's 7."""

import ipywidgets
import pytest
from IPython.core.formatters import DisplayFormatter

from course_utils.explorers import language_explorer, similarity_explorer, training_explorer
from course_utils.predictions import Prediction
from tiny_language_model import tiny_language_model

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(params=[7, 8])
def ipywidgets_version(request, monkeypatch):
    if request.param == 7:
        monkeypatch.delattr(ipywidgets.Widget, "_repr_mimebundle_")
        nothing = {"name": "_ipython_display_", "value": lambda self: None, "raising": False}
        monkeypatch.setattr(ipywidgets.Widget, **nothing)


WIDGETS = {
    "question": lambda: Prediction("Which is larger?", ["near", "long"], 2),
    "drawn by Python": lambda: language_explorer(*tiny_language_model()),
    "drawn in the page": similarity_explorer,
    "drawn in the page with data from Python": lambda: training_explorer(
        [1, 2, 1, 2], num_layers=2, num_heads=2, steps=20, every=10
    ),
}


@pytest.mark.parametrize("name", WIDGETS)
def test_a_widget_is_stored_with_its_words_and_an_explorer_with_its_picture(
    ipywidgets_version, name
):
    widget = WIDGETS[name]()
    data, metadata = DisplayFormatter().format(widget)
    assert data[VIEW] == {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    if name == "question":
        assert all(word in data["text/plain"] for word in ("Which is larger?", "near", "long"))
    else:
        assert data["text/plain"] == widget.state
        assert data["image/png"] and metadata["image/png"]["width"] > 400
