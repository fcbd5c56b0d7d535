"""The head viewer: choose a head and a token, compare words and pictures with the weights."""

import io
import re

import numpy as np
import pytest
import torch
from PIL import Image

from course_utils.explorers import Number, head_explorer

WEIGHTS = torch.rand(3, 5, 5, generator=torch.Generator().manual_seed(0)).mul(6).softmax(dim=-1)
TOKENS = ["the", "cat", "saw", "the", "dog"]
NAMES = [f"{i} {token}" for i, token in enumerate(TOKENS, start=1)]


def explorer_at(head=0, query="every token", weights=WEIGHTS, tokens=TOKENS):
    explorer = head_explorer(weights, tokens)
    explorer.controls["head"].slider.value = head
    explorer.controls["query"].value = query
    return explorer


def picture(explorer):
    return np.asarray(Image.open(io.BytesIO(explorer.image.value)).convert("RGB"), dtype=int)


def coloured(explorer, colour):
    return (abs(picture(explorer) - colour) < 12).all(axis=-1)


RED = (214, 39, 40)


@pytest.mark.parametrize("head", range(3))
def test_the_words_tell_the_strongest_key_of_each_token(head):
    state = explorer_at(head).state
    assert state.startswith(f"head {head} of 3; strongest of each token: ")
    for row, name in zip(WEIGHTS[head], NAMES, strict=True):
        assert f"{name} → {NAMES[row.argmax()]} {row.max():.2f}" in state


@pytest.mark.parametrize("head, i", [(0, 0), (1, 3), (2, 4)])
def test_the_words_tell_what_one_token_looks_at_strongest_first(head, i):
    state = explorer_at(head, NAMES[i]).state
    told = re.findall(r"(\d) \w+ (\d\.\d\d)", state.split("looks at: ")[1])
    order = WEIGHTS[head, i].sort(descending=True)
    for (key, weight), j, exact in zip(told, order.indices, order.values, strict=False):
        assert int(key) == j + 1 and abs(float(weight) - exact) <= 0.0051
    assert len(told) == max(1, int((WEIGHTS[head, i] >= 0.05).sum()))


def test_the_chosen_head_is_framed_and_the_chosen_token_too():
    def columns_framed(explorer):
        top = coloured(explorer, RED)[:130]
        return np.nonzero(top.any(axis=0))[0].mean()

    assert columns_framed(explorer_at(0)) < columns_framed(explorer_at(1))
    assert columns_framed(explorer_at(1)) < columns_framed(explorer_at(2))
    assert not coloured(explorer_at(0), RED)[150:].any()
    rows = [
        np.nonzero(coloured(explorer_at(0, name), RED)[150:].any(axis=1))[0].mean()
        for name in NAMES
    ]
    assert rows == sorted(rows) and len(set(rows)) == 5


def test_lines_run_from_the_chosen_token_to_the_keys_it_looks_at():
    onto = torch.zeros(1, 4, 4)
    onto[0, 1, 3] = onto[0, [0, 2, 3], 0] = 1.0

    def blue(query):
        explorer = explorer_at(0, query, onto, list("abcd"))
        pixels = picture(explorer)[150:, 420:]
        mask = (pixels[..., 2] - pixels[..., 0]) > 60
        return np.nonzero(mask.any(axis=1))[0]

    one, all_lines = blue("2 b"), blue("every token")
    assert len(one) and one.min() > all_lines.min() and one.max() == all_lines.max()
    level = blue("1 a")  # from the first to the first: a level line
    assert np.ptp(level) <= 6 < np.ptp(one)


def test_the_six_heads_written_by_hand_follow_their_rules():
    explorer = head_explorer()
    assert explorer.state.startswith("head 0 of 6") and "3 saw → 2 cat 0.87" in explorer.state
    explorer.controls["head"].slider.value = 1
    assert "3 saw → 4 the" in explorer.state
    explorer.controls["head"].slider.value = 2
    assert explorer.state.count("→ 1 the") == 9
    explorer.controls["head"].slider.value = 3
    explorer.controls["query"].value = "5 dog"
    assert "looks at: 5 dog 0.47, 8 dog 0.47" in explorer.state


def test_every_control_has_a_name_moves_something_and_back_gives_the_same_bytes():
    explorer = explorer_at(1, NAMES[2])
    first, words = explorer.image.value, explorer.words.value
    assert words == f'<p role="status">{explorer.state}</p>'
    other = {"head": 2, "query": NAMES[4]}
    for name, control in explorer.controls.items():
        assert (control.box if isinstance(control, Number) else control).description
        control = getattr(control, "slider", control)
        before, control.value = control.value, other[name]
        assert explorer.image.value != first and explorer.words.value != words, name
        control.value = before
        assert (explorer.image.value, explorer.words.value) == (first, words), name


def test_weights_of_any_dtype_or_with_a_gradient_and_tokens_by_number():
    explorer = head_explorer(WEIGHTS.half().requires_grad_())
    assert "strongest of each token: 1 → " in explorer.state


@pytest.mark.parametrize(
    "given, error, words",
    [
        ((WEIGHTS[None], TOKENS), ValueError, r"shape \(H, L, L\), got .*weights\[0\]"),
        ((WEIGHTS[0], TOKENS), ValueError, r"weights must have shape \(H, L, L\), got \(5, 5\)"),
        ((WEIGHTS[..., :4], TOKENS), ValueError, "weights must have shape"),
        ((WEIGHTS.tolist(), TOKENS), TypeError, "weights must be a torch.Tensor"),
        ((WEIGHTS, TOKENS[1:]), ValueError, "tokens must have 5 entries, one for each, got 4"),
    ],
)
def test_bad_input_is_told_by_name(given, error, words):
    with pytest.raises(error, match=words):
        head_explorer(*given)


def test_queries_go_down_and_keys_across():
    labels = [(ax.get_xlabel(), ax.get_ylabel()) for ax in explorer_at()._canvas.figure.axes]
    assert ("keys", "queries") in labels
