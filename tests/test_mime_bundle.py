"""Widgets are stored with words beside them, by ipywidgets 8 and by the 7 of Colab."""

import ipywidgets
import pytest
from IPython.core.formatters import DisplayFormatter

from course_utils.explorers import language_explorer, similarity_explorer, training_explorer
from course_utils.predictions import Prediction
from tiny_language_model import tiny_language_model

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(params=[7, 8])
def ipywidgets_version(request, monkeypatch):
    """Let widgets be shown as by ipywidgets 8, or by a method of their own as by 7."""
    if request.param == 7:
        monkeypatch.delattr(ipywidgets.Widget, "_repr_mimebundle_")
        monkeypatch.setattr(
            ipywidgets.Widget, "_ipython_display_", lambda self: None, raising=False
        )


def test_a_question_is_stored_with_its_words(ipywidgets_version):
    question = Prediction("Which is larger?", ["near", "long"], 2)
    data, _ = DisplayFormatter().format(question)
    assert data["text/plain"] == "Predict first: Which is larger?\n  ○ near\n  ○ long"
    assert data[VIEW] == {"version_major": 2, "version_minor": 0, "model_id": question.model_id}


def language():
    return language_explorer(*tiny_language_model())


def training():
    return training_explorer([1, 2, 1, 2], num_layers=2, num_heads=2, steps=20, every=10)


# drawn by Python, in the page, in the page with data that come
@pytest.mark.parametrize("explorer", [language, similarity_explorer, training])
def test_an_explorer_is_stored_with_its_picture_and_words(ipywidgets_version, explorer):
    explorer = explorer()
    data, metadata = DisplayFormatter().format(explorer)
    assert data["text/plain"] == explorer.state and data[VIEW]["model_id"] == explorer.model_id
    assert data["image/png"] and metadata["image/png"]["width"] > 400
