"""The explorer of the next token, against the same model called directly."""

import numpy as np
import pytest

from course_utils.explorers import next_token_explorer
from kernel_explorers import assert_drawn, axes, set_controls
from test_explorers_language import MODEL, TEXT, TOKENIZER, quoted, run

pytestmark = pytest.mark.filterwarnings("error")
HOME = {"text": TEXT, "temperature": 1.0, "layer": 1, "head": 2}
ELSEWHERE = {"text": "the dog", "temperature": 0.5, "layer": 2, "head": 0}


@pytest.fixture
def explorer():
    return next_token_explorer(MODEL, TOKENIZER, TEXT)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 2.0])
def test_bars_are_the_largest_probabilities_at_this_temperature(explorer, temperature):
    state = set_controls(explorer, temperature=temperature)
    logits = MODEL.read_out(run(TEXT)[3]).detach()
    expected = (logits / temperature).softmax(dim=-1)
    top = expected.topk(10)
    assert not explorer.controls["text"].continuous_update  # read on Enter, not at each letter
    ax = axes(explorer)[0]
    assert ax.yaxis_inverted()
    lengths = [bar.get_width() for bar in ax.patches]
    np.testing.assert_allclose(lengths, top.values, atol=1e-5)
    words, numbers = np.reshape([text.get_text() for text in ax.texts], (2, -1)).tolist()
    assert words == [quoted(token) for token in top.indices]
    assert numbers == [f"{p:.2f}" for p in top.values]
    bits = -(expected * expected.log2()).nansum()
    assert f"{words[0]} with probability {numbers[0]}" in state and f"{bits:.1f} bits" in state
    assert ("found:" in state) == bool(top.values[0] > 0.95)


@pytest.mark.parametrize("text", [TEXT, "b", "the dog"])
@pytest.mark.parametrize("layer, head", [(0, 0), (2, 3)])
def test_the_weights_are_those_of_the_chosen_head_from_the_last_token(explorer, text, layer, head):
    state = set_controls(explorer, text=text, layer=layer, head=head)
    expected = run(text)[1][layer, head, -1]
    ax = axes(explorer)[1]
    heights = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(heights[: len(expected)], expected, atol=1e-5)
    assert not any(heights[len(expected) :])
    labels = [label.get_text() for label in ax.texts]
    tokens = [quoted(token) for token in TOKENIZER.encode(text).ids]
    assert labels == tokens + [""] * (24 - len(tokens))
    assert f"in layer {layer}, head {head}, the token {tokens[-1]}" in state
    assert f"{expected.max():.2f}" in state


@pytest.mark.parametrize("name", HOME)
def test_each_control_changes_picture_and_words_and_back_gives_the_same(explorer, name):
    home = set_controls(explorer, **HOME), explorer.image.value
    changed = set_controls(explorer, **{name: ELSEWHERE[name]}), explorer.image.value
    assert_drawn(explorer)
    assert all(a != b for a, b in zip(home, changed, strict=True))
    assert (set_controls(explorer, **{name: HOME[name]}), explorer.image.value) == home


@pytest.mark.parametrize("text", ["the" + " cat" * 30, "$x_1$ $$", "a\nb", "x" * 300, "\ud800"])
def test_any_text_stays_inside_the_picture(explorer, text):
    state = set_controls(explorer, text=text)
    assert state.encode() and ("the first 24 of" in state) == (len(text) > 20)
    figure = explorer._canvas.figure
    box = figure.get_tightbbox(explorer._canvas.get_renderer())  # inches
    assert (box.min >= 0).all() and (box.max <= figure.get_size_inches()).all()


def test_without_a_text_nothing_is_drawn_until_there_is_one(explorer):
    assert "no text" in set_controls(explorer, text="")
    for ax in axes(explorer):
        assert not any(text.get_text() for text in ax.texts)
        assert not any(bar.get_width() * bar.get_height() for bar in ax.patches)
    assert "no text" not in set_controls(explorer, text=TEXT)
