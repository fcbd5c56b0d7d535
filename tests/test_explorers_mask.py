"""The mask composer: set a control, compare words and pictures with masks written out."""

import io
import re

import numpy as np
import pytest
from PIL import Image

from course_utils.explorers import Number, mask_explorer

N = 8
OFF = {"causal": False, "window": 0, "prefix": 0, "padding": 0, "documents": 1, "join": "and"}
LIGHT_RED = (255, 228, 225)


def explorer_with(**values):
    explorer = mask_explorer()
    for name, value in (OFF | values).items():
        control = explorer.controls[name]
        getattr(control, "slider", control).value = value
    return explorer


def pattern_told(explorer):
    """Read the mask back from the words."""
    rows = explorer.state.split("query sees keys ")[1].split(", ")
    mask = np.zeros((N, N), dtype=bool)
    for i, row in enumerate(rows):
        for run in re.findall(r"\d+(?:–\d+)?", row.split(": ")[1]):
            first, _, last = run.partition("–")
            mask[i, int(first) : int(last or first) + 1] = True
    return mask


def pattern_drawn(explorer):
    """Read the mask back from the left picture: the light cells (or light red rows)."""
    picture = np.asarray(Image.open(io.BytesIO(explorer.image.value)).convert("RGB"), dtype=int)
    left = picture[:, : picture.shape[1] // 2]
    dark = (abs(left - (0, 34, 78)) < 4).all(axis=-1)
    light = (abs(left - (254, 232, 56)) < 4).all(axis=-1)
    rows, columns = np.nonzero(dark | light)
    ys = np.linspace(rows.min(), rows.max() + 1, 2 * N + 1)[1::2].astype(int)
    xs = np.linspace(columns.min(), columns.max() + 1, 2 * N + 1)[1::2].astype(int)
    return light[np.ix_(ys, xs)]


i, j = np.indices((N, N))  # query, key
PATTERNS = [
    ({}, i >= -1),
    ({"causal": True}, j <= i),
    ({"window": 3}, (j <= i) & (i - j < 3)),
    ({"prefix": 4}, (j <= i) | (j < 4)),
    ({"padding": 3}, j < 5),
    ({"padding": 3, "side": "start"}, j >= 3),
    ({"documents": 2}, (i < 4) == (j < 4)),
    ({"documents": 4, "causal": True}, (i // 2 == j // 2) & (j <= i)),
    ({"causal": True, "padding": 2, "side": "start"}, (j <= i) & (j >= 2)),
    ({"causal": True, "padding": 2, "side": "start", "join": "or"}, (j <= i) | (j >= 2)),
    ({"window": 2, "documents": 2, "join": "or"}, ((i < 4) == (j < 4)) | (j <= i) & (i - j < 2)),
]


@pytest.mark.parametrize("values, mask", PATTERNS, ids=lambda v: str(v) if v is dict else None)
def test_words_and_picture_show_the_mask(values, mask):
    explorer = explorer_with(**values)
    assert (pattern_told(explorer) == mask).all()
    assert f"{mask.sum()} of 64 pairs allowed" in explorer.state
    if mask.any(axis=-1).all():
        assert "empty rows: none" in explorer.state
        assert (pattern_drawn(explorer) == mask).all()


def test_empty_rows_are_named_and_marked():
    explorer = explorer_with(causal=True, padding=2, side="start")
    assert "empty rows: 0–1;" in explorer.state and "0: none, 1: none, 2: 2," in explorer.state

    def marked():
        picture = np.asarray(Image.open(io.BytesIO(explorer.image.value)).convert("RGB"))
        return int((picture == LIGHT_RED).all(axis=-1).sum())

    two = marked()
    explorer.controls["padding"].slider.value = 1
    assert marked() == pytest.approx(two / 2, rel=0.1)
    explorer.controls["padding"].slider.value = 0
    assert marked() == 0


def test_every_control_has_a_name_moves_something_and_back_gives_the_same_bytes():
    explorer = explorer_with(causal=True, padding=2, documents=2)
    first, words = explorer.image.value, explorer.words.value
    assert words == f'<p role="status">{explorer.state}</p>'
    other = {"causal": False, "side": "start", "join": "or", "prefix": 6, "documents": 3}
    for name, control in explorer.controls.items():
        assert (control.box if isinstance(control, Number) else control).description
        if name == "prefix":  # nothing beside causal, by "and"
            continue
        control = getattr(control, "slider", control)
        before, control.value = control.value, other.get(name, 1)
        assert explorer.image.value != first and explorer.words.value != words, name
        control.value = before
        assert (explorer.image.value, explorer.words.value) == (first, words), name


def test_queries_go_down_and_keys_across_in_both_pictures():
    pattern, weights, *_ = mask_explorer()._canvas.figure.axes
    for ax in (pattern, weights):
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("keys", "queries")
    assert (pattern.get_title(), weights.get_title()) == ("allowed (light) or not", "weights")
