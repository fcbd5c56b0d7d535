"""The explorer of a sentence: its weights are attention, and picture and words show them."""

import re
from pathlib import Path

import nbformat
import pytest
import torch

from course_utils.attention import attention
from course_utils.explorers import sentence_explorer
from explorer_pictures import axes, headings, set_controls, ticks

ROOT = Path(__file__).parents[1]
WORDS = "The hen never crossed the road because it was".split()
PLACES = [("tired", 3), ("wide", 3), ("old", 3), ("old", 0.5), ("wide", 8), ("tired", 0)]
by_place = pytest.mark.parametrize("last, sharpness", PLACES)


def weights(last, sharpness):
    """Return the weights by `attention`, which divides by √d_k; so the query is multiplied."""
    k = torch.zeros(10, 2)
    k[1, 0] = k[5, 1] = 1  # the hen lives, the road has a width
    asked = {"tired": (1.0, 0.0), "wide": (0.0, 1.0), "old": (1.0, 1.0)}[last]
    q = sharpness * torch.tensor([asked]) * 2**0.5  # (1, 2)
    return attention(q, k, k)[1][0].tolist()


@pytest.fixture
def explorer():
    return sentence_explorer()


@by_place
def test_bars_and_numbers_are_the_weights_over_their_words(explorer, last, sharpness):
    (ax,) = axes(set_controls(explorer, last=last, sharpness=sharpness))
    expected = weights(last, sharpness)
    bars = ax.patches
    assert [bar.get_height() for bar in bars] == pytest.approx(expected, abs=1e-6)
    assert [bar.get_x() + bar.get_width() / 2 for bar in bars] == pytest.approx(range(10))
    ending, *numbers = ax.texts
    assert ticks(ax.xaxis) == dict(enumerate([*WORDS, ""]))
    assert (ending.get_text(), ending.get_position()[0]) == (last, 9)
    assert [number.get_text() for number in numbers] == [f"{weight:.2f}" for weight in expected]
    for bar, number in zip(bars, numbers, strict=True):
        assert number.get_position()[1] > bar.get_height()


@by_place
def test_the_words_name_what_is_looked_at_most(explorer, last, sharpness):
    told = set_controls(explorer, last=last, sharpness=sharpness).state
    expected = weights(last, sharpness)
    assert told.startswith(f"“it was {last}”: ")
    if sharpness == 0:
        assert "asks for nothing" in told and "every word weighs 0.10" in told
        return
    most = {"tired": [1], "wide": [5], "old": [1, 5]}[last]
    named = re.findall(r"(\w+) (\d\.\d\d)", told.split(";")[0])
    assert named == [(WORDS[j], f"{expected[j]:.2f}") for j in most]
    assert told.endswith(f"each other word {expected[0]:.2f}")
    assert ("undecided" in told) == (last == "old")


def test_it_opens_on_one_word_that_stands_out_and_the_scale_holds_all_weights(explorer):
    (ax,) = axes(explorer)
    assert "looks most at hen" in explorer.state
    assert headings(ax) == ("", "", "weight of each word")
    assert ax.get_ylim() == (0, 1.15)
    sharpness = explorer.controls["sharpness"].slider
    assert (sharpness.value, sharpness.min, sharpness.max, sharpness.step) == (3, 0, 8, 0.5)
    assert explorer.controls["last"].options == ("tired", "wide", "old")


def test_it_and_the_word_that_changes_stand_out_and_no_other_word(explorer):
    (ax,) = axes(explorer)
    ending = ax.texts[0]
    look = ending.get_color(), ending.get_fontweight()
    labels = ax.get_xticklabels()
    alike = [
        each.get_text() for each in labels if (each.get_color(), each.get_fontweight()) == look
    ]
    assert alike == ["it"]


def test_the_lesson_types_the_same_weights_by_hand(explorer):
    lesson = nbformat.read(ROOT / "notebooks" / "00_start_here.ipynb", as_version=4)
    (typed,) = [cell for cell in lesson.cells if cell.source.startswith("import torch")]
    (output,) = typed.outputs
    drawn = dict(re.findall(r"^ *(\w+) +(\d\.\d\d)$", output.text, re.M))
    (ax,) = axes(explorer)
    _, *numbers = ax.texts
    assert drawn == dict(zip([*WORDS, "tired"], (n.get_text() for n in numbers), strict=True))
