"""The explorer of a training: give it steps, go back and forth, read picture and words."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from course_utils.attention import follows_same_token
from course_utils.explorers import training_explorer

TOKENS = torch.arange(4).repeat(3)  # (L,)
L = len(TOKENS)


def picture(explorer):
    return np.asarray(Image.open(io.BytesIO(explorer.image.value)).convert("RGB"), dtype=int)


def yellow(explorer):
    """Count the pixels of weight 1."""
    return int((abs(picture(explorer) - (254, 232, 56)) < 4).all(axis=-1).sum())


def learned():
    """Return perfect heads, (layers, H, L, L): one looks at the token before, one is induction."""
    wanted = follows_same_token(TOKENS).float()
    induction = wanted / wanted.sum(dim=-1, keepdim=True).clamp(min=1)
    return torch.stack([torch.eye(L).roll(-1, dims=-1), induction])[:, None]


def explorer_after(losses, weights=lambda step: torch.full((2, 1, L, L), 1 / L)):
    explorer = training_explorer(TOKENS, num_layers=2, num_heads=1, steps=40, every=10)
    for step, loss in enumerate(losses):
        explorer.add(loss, lambda step=step: weights(step))
    return explorer


def test_before_the_first_step_it_says_so():
    assert explorer_after([]).state == "step 0: nothing learned yet"


def test_it_follows_the_training_every_tenth_step():
    explorer = explorer_after([])
    pictures = {explorer.image.value}
    for step in range(25):
        explorer.add(4 - step / 10, lambda step=step: torch.full((2, 1, L, L), (step + 5) / 30))
        pictures.add(explorer.image.value)
        assert explorer.state.startswith(f"step {step // 10 * 10}: ")
    assert len(pictures) == 4  # empty, and steps 0, 10, 20
    assert explorer.controls["step"].value == 20
    assert len(explorer.losses) == 25 and list(explorer.snapshots) == [0, 10, 20]


def test_words_give_loss_and_scores_of_the_step_chosen():
    explorer = explorer_after(
        [3.5] * 10 + [1.25] * 5,
        lambda step: learned() if step else torch.full((2, 1, L, L), 1 / L),
    )
    told = "layer 1 head 1: 1.00, 0.00; layer 2 head 1: 0.00, 1.00"
    assert explorer.state.startswith("step 10: loss 1.25;") and explorer.state.endswith(told)
    drawn = yellow(explorer)
    explorer.controls["step"].slider.value = 0
    assert explorer.state.startswith("step 0: loss 3.50;") and "1.00" not in explorer.state
    assert yellow(explorer) < drawn / 2


def test_the_slider_goes_back_to_the_same_picture_and_past_the_end_to_the_last_one():
    rng = torch.Generator().manual_seed(0)
    explorer = explorer_after(
        [3.0, 2.0, 1.0] * 7, lambda _: torch.rand(2, 1, L, L, generator=rng).softmax(dim=-1)
    )
    last, words = explorer.image.value, explorer.words.value
    assert words == f'<p role="status">{explorer.state}</p>'
    slider = explorer.controls["step"].slider
    slider.value = 10
    assert explorer.image.value != last
    slider.value = 40
    assert (explorer.image.value, explorer.words.value) == (last, words)
    assert explorer.controls["step"].box.description == "step"


def test_what_is_learned_later_does_not_change_what_was_recorded():
    weights = torch.full((2, 1, L, L), 1 / L)
    explorer = explorer_after([3.0], lambda _: weights)
    weights.zero_()
    assert explorer.snapshots[0].sum() > 0


def test_weights_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"weights must have shape \(2, 1, 12, 12\), got \(2, 2, "):
        explorer_after([3.0], lambda _: torch.ones(2, 2, L, L))


@pytest.mark.parametrize(
    "given, words",
    [
        ({"tokens": [[1, 2]]}, r"tokens must have shape \(L,\), got \(1, 2\)"),
        ({"tokens": [0.5]}, "tokens must be a tensor or sequence of whole numbers"),
        ({"num_heads": 0}, "num_heads must be 1 or more, got 0"),
        ({"steps": 40.0}, "steps must be an int, got float"),
    ],
)
def test_bad_arguments_are_named(given, words):
    good = {"tokens": [1, 2, 1], "num_layers": 2, "num_heads": 1, "steps": 40}
    assert training_explorer(**good).snapshots == {}
    with pytest.raises((TypeError, ValueError), match=words):
        training_explorer(**good | given)
