"""The explorer of a training: give it steps, go back and forth, read picture and words."""

import functools

import numpy as np
import pytest
import torch
from matplotlib.colors import same_color

from course_utils.attention import follows_same_token
from course_utils.explorers import training_explorer
from explorer_pictures import axes, headings, press

TOKENS = torch.arange(4).repeat(3)  # (L,)
L = len(TOKENS)


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
    assert explorer.state == (
        "step 10: loss 1.25; previous-token score, induction score of "
        "layer 0 head 0: 1.00, 0.00; layer 1 head 0: 0.00, 1.00"
    )
    explorer.controls["step"].slider.value = 0
    assert explorer.state.startswith("step 0: loss 3.50;") and "1.00" not in explorer.state


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
    slider.value = 40  # beyond the end
    assert slider.value == 20
    assert (explorer.image.value, explorer.words.value) == (last, words)
    assert explorer.controls["step"].box.description == "step"


@functools.cache
def random_explorer():
    """Return an explorer of 2 layers of 3 heads, its losses, and its weights by step."""
    explorer = training_explorer(TOKENS, num_layers=2, num_heads=3, steps=70, every=5)
    rng = torch.Generator().manual_seed(1)
    losses = [3 / (1 + step) for step in range(23)]
    weights = {step: torch.rand(2, 3, L, L, generator=rng) for step in range(0, 23, 5)}
    for step, loss in enumerate(losses):
        explorer.add(loss, lambda step=step: weights[step])
    return explorer, losses, weights


@pytest.mark.parametrize("chosen, shown", [(20, 20), (5, 5), (0, 0), (70, 20)])
def test_each_head_stands_under_its_name_with_the_weights_of_the_step(chosen, shown):
    explorer, losses, weights = random_explorer()
    explorer.controls["step"].slider.value = 10
    explorer.controls["step"].slider.value = chosen
    *heads, curve = axes(explorer)
    by_name = {ax.get_title(): ax for ax in heads}
    rows, columns = ({round(ax.bbox.bounds[side]) for ax in heads} for side in (1, 0))
    assert (len(rows), len(columns)) == (2, 3)
    for layer, y in enumerate(sorted(rows, reverse=True)):  # the first layer is on top
        for head, x in enumerate(sorted(columns)):
            ax = by_name[f"layer {layer}, head {head}"]
            assert (round(ax.bbox.x0), round(ax.bbox.y0)) == (x, y)
            (image,) = ax.images
            np.testing.assert_allclose(image.get_array(), weights[shown][layer, head])
            assert image.get_clim() == (0, 1) and image.get_cmap().name == "cividis"
            assert image.get_extent() == [-0.5, L - 0.5, L - 0.5, -0.5]
            labels = "keys" if layer == 1 else "", "queries" if head == 0 else ""
            assert headings(ax)[1:] == labels
    line, cursor = curve.lines
    np.testing.assert_allclose(line.get_xydata(), [*enumerate(losses)])
    assert [*cursor.get_xdata()] == [shown, shown]


def test_the_loss_stands_right_of_the_heads_on_scales_that_stay():
    explorer, *_ = random_explorer()
    *heads, curve = axes(explorer)
    assert all(ax.bbox.x1 < curve.bbox.x0 for ax in heads)
    assert curve.bbox.height > 1.5 * heads[0].bbox.height
    assert headings(curve) == ("", "step", "loss")
    assert curve.get_xlim() == (0, 70) and curve.get_ylim() == (0, 4)
    line, cursor = curve.lines
    assert same_color(line.get_color(), "C0") and same_color(cursor.get_color(), "C1")
    assert line.get_linestyle() == cursor.get_linestyle() == "-"
    assert [*cursor.get_ydata()] == [0, 1]  # from the bottom to the top
    assert curve.xaxis.get_gridlines()[0].get_visible()


def test_the_slider_goes_from_picture_to_picture_as_far_as_there_are_any():
    explorer = explorer_after([])
    step, seen = explorer.controls["step"], []
    for _ in range(25):
        explorer.add(2.0, lambda: torch.rand(2, 1, L, L))
        seen.append(step.slider.max)
        assert step.box.max == step.slider.max
    assert seen == [10] * 20 + [20] * 5  # at first there is but one
    slider = random_explorer()[0].controls["step"].slider
    assert (slider.min, slider.max, slider.step) == (0, 20, 5)


def written(axis):
    """Return the numbers that stand at an axis."""
    return [label.get_text() for label in axis.get_ticklabels() if label.get_text()]


def test_no_title_touches_the_numbers_of_the_head_above():
    explorer, *_ = random_explorer()
    *heads, _ = axes(explorer)
    renderer = explorer._canvas.get_renderer()
    above, below = heads[:3], heads[3:]
    for one, other in zip(above, below, strict=True):
        assert one.get_tightbbox(renderer).y0 - other.title.get_window_extent(renderer).y1 > 4
        assert not written(one.xaxis) and written(other.xaxis)
    for row in (above, below):
        assert [bool(written(ax.yaxis)) for ax in row] == [True, False, False]


def rising(before, after):
    """Return an explorer of 40 steps in which two heads rise from nothing at their steps."""
    perfect = learned()
    parts = lambda step: torch.tensor([step >= before, step >= after])  # noqa: E731
    return explorer_after([2.0] * 40, lambda step: perfect * parts(step)[:, None, None, None])


@pytest.mark.parametrize("before, after", [(10, 20), (20, 10), (10, 10)])
def test_where_both_scores_rise_the_words_say_that_it_is_found(before, after):
    explorer = rising(before, after)
    told = (
        f"; found: half way up are the previous-token score of layer 0 head 0 at step {before} "
        f"and the induction score of layer 1 head 0 at step {after}"
    )
    for step in (0, 10, 20, 30):
        explorer.controls["step"].slider.value = step
        found = min(before, after) <= step <= max(before, after)
        assert explorer.state.endswith(told) if found else "found" not in explorer.state


@pytest.mark.parametrize("before, after", [(10, 99), (99, 10)])
def test_where_one_score_never_rises_nothing_is_found(before, after):
    explorer = rising(before, after)
    for step in (0, 10, 20, 30):
        explorer.controls["step"].slider.value = step
        assert "found" not in explorer.state


def test_while_it_learns_nothing_is_found():
    explorer = explorer_after([])
    for step in range(40):
        explorer.add(1.0, lambda step=step: learned() * (step >= 20))
        assert "found" not in explorer.state


def test_a_press_on_the_loss_goes_to_the_picture_nearest_to_it():
    explorer, *_ = random_explorer()
    first, *_, curve = axes(explorer)
    for x, step in [(2, 0), (11, 10), (13, 15), (60, 20)]:
        press(explorer, curve, x, 1.0)
        assert explorer.controls["step"].value == explorer.controls["step"].box.value == step
        assert explorer.state.startswith(f"step {step}: ")
    press(explorer, first, 5, 5)
    assert explorer.controls["step"].value == 20


def test_the_first_picture_is_drawn_at_once():
    explorer = training_explorer(TOKENS, num_layers=1, num_heads=1, steps=40)
    assert explorer.controls["step"].slider.step == 10  # if nothing else is said
    explorer.add(2.5, lambda: torch.rand(1, 1, L, L))
    assert explorer.state.startswith("step 0: loss 2.50")


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
