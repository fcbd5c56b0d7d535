"""The two forms of the saturation explorer: move a control, look at picture, words and numbers."""

import functools
import math
import re

import numpy as np
import pytest
import torch
from matplotlib.colors import same_color

from course_utils.explorers import saturation_explorer, scaling_explorer
from explorer_pictures import across, axes, headings, limits, pixels, set_controls, ticks


def told(explorer, name):
    """Read the number that stands after a name in the words."""
    return float(re.search(rf"{name} (-?[\d.e-]+|NaN)", explorer.state)[1].rstrip("."))


def weights_told(explorer):
    return [float(w) for w in re.search(r"weights ([^;]*);", explorer.state)[1].split(", ")]


def bars(explorer):
    """Return heights, which of them are broken, and what stands above, one a key.

    All of it is checked to stand at its key: bar, hatched bar and text.
    """
    ax = axes(explorer)[0]
    n = len(ax.texts)
    whole, broken = ax.patches[:n], ax.patches[n:]
    above = []
    for j, (bar, other, text) in enumerate(zip(whole, broken, ax.texts, strict=True)):
        left, right, bottom, top = limits(bar)
        assert bottom == 0 and left < j < right and left + right == pytest.approx(2 * j)
        assert limits(other) == (left, right, 0, 1)
        assert same_color(other.get_facecolor(), "mistyrose") and other.get_hatch() == "//"
        assert same_color(other.get_edgecolor(), "C3")
        x, y = text.get_position()
        assert x == j and 0 < y - (1 if other.get_visible() else top) < 0.05
        assert (text.get_ha(), text.get_va()) == ("center", "bottom")
        assert text.get_window_extent().y1 < ax.bbox.y1
        above.append(text.get_text())
    heights = [bar.get_height() for bar in whole]
    return heights, [bar.get_visible() for bar in broken], above


ROUNDING = 1e-5  # of weights whose scores, up to 48, are float32 and a few 48 · 2⁻²⁴ off


@functools.cache
def explorer_and_start():
    explorer = saturation_explorer()
    return explorer, {name: control.value for name, control in explorer.controls.items()}


def one_explorer():
    """Return an explorer that stands as it opens, whatever the last test did to it."""
    explorer, start = explorer_and_start()
    return set_controls(explorer, **start)


LOGITS = {f"logit_{j}": value for j, value in enumerate([3.0, -1.0, 0.5, 2.5, -4.0], start=1)}


@pytest.mark.parametrize("temperature", [0.25, 1, 4])
@pytest.mark.parametrize("d_k, scaled", [(1, True), (256, True), (4, False), (16, False)])
def test_words_and_pictures_agree_with_torch(temperature, d_k, scaled):
    explorer = set_controls(
        one_explorer(), **LOGITS, temperature=temperature, d_k=d_k, scaled=scaled
    )
    scores = torch.tensor(list(LOGITS.values()), dtype=torch.float64) / temperature
    scores = scores if scaled else scores * d_k**0.5
    p = torch.softmax(scores, dim=-1)
    jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), scores)
    scores_told = re.search(r"softmax of ([^:]*): ", explorer.state)[1].split(", ")
    assert [float(s) for s in scores_told] == pytest.approx(scores.tolist(), rel=1e-3)
    assert weights_told(explorer) == pytest.approx(p.tolist(), abs=1e-3)
    heights, broken, above = bars(explorer)
    assert heights == pytest.approx(p.tolist(), abs=ROUNDING) and not any(broken)
    assert [float(text) for text in above] == pytest.approx(p.tolist(), abs=0.0051)
    (image,) = axes(explorer)[1].images
    np.testing.assert_allclose(image.get_array(), jacobian, atol=ROUNDING)
    entropy = torch.distributions.Categorical(p).entropy().item()
    assert told(explorer, "entropy") == pytest.approx(entropy, abs=1e-3)
    assert told(explorer, "gradient norm") == pytest.approx(
        jacobian.norm().item(), rel=1e-2, abs=1e-6
    )
    assert "overflow" not in explorer.state


@pytest.mark.parametrize("dtype, last", [("float32", 88.5), ("float16", 11), ("bfloat16", 88.5)])
def test_naive_breaks_where_exp_of_the_dtype_does_and_stable_does_not(dtype, last):
    explorer = saturation_explorer()
    set_controls(explorer, dtype=dtype, method="naive", logit_1=last)
    assert "overflow" not in explorer.state
    assert weights_told(explorer)[0] == pytest.approx(1, abs=1e-3)
    set_controls(explorer, logit_1=last + 0.5)
    assert f"; overflow in {dtype}: exp is inf at key 1; found: " in explorer.state
    assert math.isnan(weights_told(explorer)[0])
    assert math.isnan(told(explorer, "entropy")) and math.isnan(told(explorer, "gradient norm"))
    set_controls(explorer, method="stable")
    assert "overflow" not in explorer.state
    assert weights_told(explorer)[0] == pytest.approx(1, abs=1e-3)


def test_a_sum_that_overflows_alone_is_told():
    explorer = saturation_explorer()
    set_controls(explorer, dtype="float16", method="naive", logit_1=11, logit_2=11)
    assert "the sum of the exponentials is inf" in explorer.state
    assert weights_told(explorer)[:2] == [0, 0]


def test_a_score_that_overflows_is_told_even_if_stable():
    explorer = saturation_explorer()
    set_controls(explorer, dtype="float16", logit_1=100, d_k=4096, scaled=False, temperature=0.05)
    assert "score is inf at key 1" in explorer.state
    assert "exp is NaN at key 1" in explorer.state


def test_what_overflowed_is_drawn_as_such():
    explorer = set_controls(saturation_explorer(), logit_2=90, logit_4=95, method="naive")
    heights, broken, above = bars(explorer)
    assert heights == [0] * 5 and broken == [False, True, False, True, False]
    assert above == ["0.00", "NaN\nexp = inf"] * 2 + ["0.00"]
    (image,) = axes(explorer)[1].images
    p = torch.tensor([0, torch.nan, 0, torch.nan, 0])
    nan = (p.diag() - p.outer(p)).isnan()
    assert nan.any() and (np.ma.getmaskarray(image.get_array()) == nan.numpy()).all()
    assert same_color(image.get_cmap().get_bad(), "0.55")
    grey, light_red = (140, 140, 140), (255, 228, 225)
    assert (pixels(explorer) == grey).all(axis=-1).sum() > 5000
    assert (pixels(explorer) == light_red).all(axis=-1).sum() > 3000
    set_controls(explorer, method="stable")
    assert not (pixels(explorer) == light_red).all(axis=-1).any() and not any(bars(explorer)[1])


def test_an_overflow_of_the_sum_leaves_bars_of_no_height():
    explorer = set_controls(saturation_explorer(), dtype="float16", method="naive")
    heights, broken, above = bars(set_controls(explorer, logit_1=11, logit_2=11))
    assert heights == [0] * 5 and not any(broken) and above == ["0.00"] * 5


@pytest.mark.parametrize("make, keys", [(scaling_explorer, 8), (saturation_explorer, 5)])
def test_bars_stand_over_the_names_of_the_keys_on_a_scale_up_to_one(make, keys):
    ax = axes(make())[0]
    assert ticks(ax.xaxis) == {j: f"key {j + 1}" for j in range(keys)}
    assert [*ticks(ax.yaxis)] == [0, 0.25, 0.5, 0.75, 1] and ax.get_ylim() == (0, 1.3)
    assert headings(ax) == ("", "", "weight")
    assert {tuple(bar.get_facecolor()) for bar in ax.patches[:keys]} != {(0, 0, 0, 0)}


def test_the_jacobian_stands_under_the_bars_with_names_and_a_scale_of_its_own():
    explorer = saturation_explorer()
    weights, jacobian, scale = axes(explorer)
    assert jacobian.bbox.y1 < weights.bbox.y0 and across([scale, jacobian]) == [jacobian, scale]
    keys = {j: f"key {j + 1}" for j in range(5)}
    assert ticks(jacobian.xaxis) == ticks(jacobian.yaxis) == keys
    assert {label.get_rotation() for label in jacobian.get_xticklabels()} == {45}
    named = "score that moves", "weight that answers"
    assert headings(jacobian) == ("Jacobian diag(p) − ppᵀ (grey: NaN)", *named)
    (image,) = jacobian.images
    assert image.get_extent() == [-0.5, 4.5, 4.5, -0.5]
    assert image.get_clim() == scale.get_ylim() == (-0.25, 0.25)  # p (1 - p) is at most 1/4
    assert image.get_cmap().name == "RdBu_r"


def test_controls_have_the_ranges_and_choices_of_the_lesson():
    controls = scaling_explorer().controls
    d_k = controls["d_k"].slider
    assert (d_k.value, d_k.min, d_k.max, d_k.step) == (4, 4, 512, 4)
    assert controls["scaled"].value is False
    controls = saturation_explorer().controls
    starts = {name: control.value for name, control in controls.items() if "logit" not in name}
    assert starts == {"temperature": 1, "d_k": 64, "scaled": True} | {
        "dtype": "float32",
        "method": "stable",
    }
    for j in range(1, 6):
        logit = controls[f"logit_{j}"]
        assert (logit.slider.min, logit.slider.max, logit.slider.step) == (-20, 100, 0.5)
        assert logit.box.description == f"logit {j}" and logit.value == 3 - j
    temperature = controls["temperature"].slider
    assert (temperature.min, temperature.max, temperature.step) == (0.05, 5, 0.05)
    assert controls["d_k"].options == (1, 4, 16, 64, 256, 1024, 4096)
    assert controls["dtype"].options == ("float32", "float16", "bfloat16")
    assert controls["method"].options == ("stable", "naive")


@pytest.mark.parametrize("make, keys", [(scaling_explorer, 8), (saturation_explorer, 5)])
def test_entropy_stands_beside_the_most_that_so_many_keys_can_have(make, keys):
    assert f" of at most {math.log(keys):.3f} nats;" in make().state


def test_typing_a_logit_is_moving_its_slider():
    explorer = saturation_explorer()
    explorer.controls["logit_3"].box.value = 7.5
    assert "softmax of 2, 1, 7.5, -1, -2" in explorer.state


def test_unscaled_weights_saturate_as_d_k_grows_and_scaled_ones_do_not():
    explorer = scaling_explorer()
    entropies = {}
    for scaled in (False, True):
        for d_k in (4, 16, 64, 256):
            set_controls(explorer, d_k=d_k, scaled=scaled)
            entropies[scaled, d_k] = told(explorer, "entropy")
    unscaled = [entropies[False, d_k] for d_k in (4, 16, 64, 256)]
    assert unscaled == sorted(unscaled, reverse=True) and unscaled[-1] < 0.01
    assert min(entropies[True, d_k] for d_k in (4, 16, 64, 256)) > 1.2


def test_scaling_explorer_scores_are_dot_products_of_the_first_d_k_numbers():
    explorer = scaling_explorer()
    rng = torch.Generator().manual_seed(31)
    q, k = torch.randn(512, generator=rng), torch.randn(8, 512, generator=rng)
    for d_k, scaled in [(4, False), (100, True), (512, True)]:
        set_controls(explorer, d_k=d_k, scaled=scaled)
        scores = k[:, :d_k] @ q[:d_k] / (d_k**0.5 if scaled else 1)
        largest = scores.abs().max().item()
        assert told(explorer, "largest score in size") == pytest.approx(largest, abs=0.051)
        p = scores.softmax(dim=-1).double()
        entropy = -(p * p.log()).sum().item()
        assert told(explorer, "entropy") == pytest.approx(entropy, abs=1e-3)
        jacobian = p.diag() - p.outer(p)
        assert told(explorer, "gradient norm") == pytest.approx(jacobian.norm().item(), rel=0.01)
        heights, broken, above = bars(explorer)
        assert heights == pytest.approx(p.tolist(), abs=ROUNDING) and not any(broken)
        assert [float(text) for text in above] == pytest.approx(p.tolist(), abs=0.0051)


STARTS = {f"logit_{j}": 3 - j for j in range(1, 6)}
STARTS |= {"temperature": 1, "d_k": 64, "scaled": True, "dtype": "float32", "method": "stable"}


def found(explorer):
    return explorer.state.partition("; found: ")[2]


@pytest.mark.parametrize("dtype, first", [("float16", 11.5), ("bfloat16", 89), ("float32", 89)])
def test_the_first_logit_with_an_infinite_power_is_noticed_and_no_other(dtype, first):
    values = STARTS | {"dtype": dtype, "method": "naive"}
    explorer = set_controls(one_explorer(), **values)
    noticed = [
        half / 2
        for half in range(-40, 201)  # without a picture, which takes a hundred times as long
        if "first logit 1" in explorer._update(**values | {"logit_1": half / 2})
    ]
    assert noticed == [first]
    explorer = set_controls(explorer, logit_1=first)
    assert f"found: {first:g} is the first logit 1 with an infinite power in {dtype}" in (
        explorer.state
    )
    set_controls(explorer, method="stable")
    assert found(explorer).startswith("the same scores, and weights where naive fails")


def test_powers_that_are_all_0_are_noticed():
    low = {f"logit_{j}": -20 for j in range(1, 6)} | {"dtype": "float16", "method": "naive"}
    explorer = set_controls(one_explorer(), **STARTS | low)
    assert found(explorer) == "every power is 0 in float16, and 0 / 0 is NaN"
    assert "NaN" in explorer.state.split(";")[0]
    set_controls(explorer, method="stable")
    assert found(explorer) == "the same scores, and weights where naive fails"
    assert found(set_controls(explorer, dtype="float32")) == ""


def test_the_temperature_with_the_largest_gradient_norm_is_noticed_and_the_lowest():
    explorer = set_controls(one_explorer(), **STARTS)
    norms, noticed = {}, {}
    for step in range(1, 101):
        set_controls(explorer, temperature=step / 20)
        norms[step] = jacobian_norm(torch.tensor([2.0, 1, 0, -1, -2]) / (step / 20))
        noticed[step] = found(explorer)
    best = max(norms, key=norms.get)
    assert {step for step, told in noticed.items() if told} == {1, best} and 1 < best < 100
    assert noticed[best] == "no other temperature has a larger gradient norm"
    assert noticed[1] == f"at the lowest temperature the gradient norm is {norms[1]:.3f}"


def jacobian_norm(scores):
    return torch.autograd.functional.jacobian(lambda x: x.softmax(-1), scores).norm().item()


def test_where_all_logits_are_alike_no_temperature_is_best():
    alike = {f"logit_{j}": 1 for j in range(1, 6)}
    explorer = set_controls(one_explorer(), **STARTS | alike)
    assert not any(found(set_controls(explorer, temperature=t)) for t in (0.05, 0.6, 5))


def test_the_scaling_explorer_notices_what_lesson_02_asks_for():
    explorer = scaling_explorer()
    rng = torch.Generator().manual_seed(31)
    q, k = torch.randn(512, generator=rng), torch.randn(8, 512, generator=rng)
    took_over, tied = [], []
    largest = {}
    for d_k in range(4, 513, 4):
        p = (k[:, :d_k] @ q[:d_k]).softmax(dim=-1)
        largest[d_k] = p.max().item()
        told = found(set_controls(explorer, d_k=d_k, scaled=False))
        if told.startswith("at d_k"):
            took_over.append(d_k)
            assert told == f"at d_k = {d_k} one key has {p.max():.2f} of the weight"
        elif told:
            tied.append(d_k)
            norm = (p.diag() - p.outer(p)).norm()
            assert norm > 0.45 and p.topk(2).values.sum() > 0.95
    (first,) = took_over
    assert all((weight >= 0.99) == (d_k >= first) for d_k, weight in largest.items())
    assert 64 in tied
    divided = [d for d in range(4, 513, 4) if found(set_controls(explorer, d_k=d, scaled=True))]
    assert divided == [4, 512]
    p = (k @ q / 512**0.5).softmax(dim=-1).max()
    assert found(set_controls(explorer, d_k=512)).endswith(f"from {largest[512]:.2f} to {p:.2f}")
