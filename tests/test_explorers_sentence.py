"""The explorer of a sentence: its weights are attention, and picture and words show them."""

import re
from pathlib import Path

import nbformat
import pytest
import torch

from course_utils.attention import attention
from course_utils.explorers import sentence_explorer
from explorer_pictures import set_controls
from tools import render_previews

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


@pytest.fixture(scope="module")
def page(chromium):
    page = render_previews.shown(chromium, sentence_explorer())
    yield page
    page.close()


@by_place
def test_bars_and_numbers_are_the_weights_over_their_words(page, last, sharpness):
    values = {"last": last, "sharpness": sharpness}
    page.evaluate("values => model.set('values', values)", values)
    expected = weights(last, sharpness)
    frame, *bars = page.locator("svg rect").evaluate_all(
        "all => all.map(one => one.getBBox()).map(b => [b.x, b.y, b.width, b.height])"
    )
    one = frame[3] / 1.15  # the pixels of a weight of 1
    # getBBox is float32, and what is drawn is written to a hundredth of a pixel
    assert [height / one for *_, height in bars] == pytest.approx(expected, abs=0.02 / one)
    assert all(y + h == pytest.approx(frame[1] + frame[3], abs=0.02) for _, y, _, h in bars)
    written = page.locator("svg text").evaluate_all(
        "all => all.map(one => [one.textContent, Number(one.getAttribute('x'))])"
    )
    middles = [x + width / 2 for x, _, width, _ in bars]
    for texts in ([f"{weight:.2f}" for weight in expected], [*WORDS, last]):
        for text, middle in zip(texts, middles, strict=True):
            assert [text, pytest.approx(middle, abs=0.02)] in written


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


def test_it_opens_on_one_word_that_stands_out(explorer):
    assert "looks most at hen" in explorer.state
    last, sharpness = explorer.controls["last"], explorer.controls["sharpness"]
    limits = [sharpness[name] for name in ("value", "low", "high", "step")]
    assert limits == [3, 0, 8, 0.5] and last["options"] == ["tired", "wide", "old"]


def test_it_and_the_word_that_changes_stand_out_and_no_other_word(page):
    page.evaluate("model.set('values', { last: 'old', sharpness: 3 })")
    assert page.locator("svg text[font-weight=bold]").all_text_contents() == ["it", "old"]


def test_the_lesson_types_the_same_weights_by_hand():
    lesson = nbformat.read(ROOT / "notebooks" / "00_start_here.ipynb", as_version=4)
    (typed,) = [cell for cell in lesson.cells if cell.source.startswith("import torch")]
    (output,) = typed.outputs
    printed = dict(re.findall(r"^ *(\w+) +(\d\.\d\d)$", output.text, re.M))
    expected = [f"{weight:.2f}" for weight in weights("tired", 3)]
    assert printed == dict(zip([*WORDS, "tired"], expected, strict=True))
