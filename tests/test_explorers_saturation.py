"""The two forms of the saturation explorer: move a control, look at picture, words and numbers."""

import io
import math
import re

import numpy as np
import pytest
import torch
from PIL import Image

from course_utils.explorers import Number, saturation_explorer, scaling_explorer


def pixels(explorer):
    return np.asarray(Image.open(io.BytesIO(explorer.image.value)).convert("RGB"), dtype=int)


def set_controls(explorer, **values):
    for name, value in values.items():
        control = explorer.controls[name]
        getattr(control, "slider", control).value = value


def told(explorer, name):
    """Read the number that stands after a name in the words."""
    return float(re.search(rf"{name} (-?[\d.e-]+|NaN)", explorer.state)[1].rstrip("."))


def weights_told(explorer):
    return [float(w) for w in re.search(r"weights ([^;]*);", explorer.state)[1].split(", ")]


def blue(explorer):
    """Count the pixels of bars."""
    red, green, b = np.moveaxis(pixels(explorer), -1, 0)
    return int(((red < 60) & (90 < green) & (green < 140) & (b > 150)).sum())


LOGITS = {f"logit_{j}": value for j, value in enumerate([3.0, -1.0, 0.5, 2.5, -4.0], start=1)}


@pytest.mark.parametrize("temperature", [0.25, 1, 4])
@pytest.mark.parametrize("d_k, scaled", [(1, True), (256, True), (4, False), (16, False)])
def test_words_agree_with_torch(temperature, d_k, scaled):
    explorer = saturation_explorer()
    set_controls(explorer, **LOGITS, temperature=temperature, d_k=d_k, scaled=scaled)
    scores = torch.tensor(list(LOGITS.values()), dtype=torch.float64) / temperature
    scores = scores if scaled else scores * d_k**0.5
    p = torch.softmax(scores, dim=-1)
    jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), scores)
    assert weights_told(explorer) == pytest.approx(p.tolist(), abs=1e-3)
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
    assert f"overflow in {dtype}: exp is inf at key 1" in explorer.state
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
    explorer = saturation_explorer()
    assert blue(explorer) > 1000
    grey = (pixels(explorer) == 140).all(axis=-1).sum()  # 0.55, the colour of NaN
    set_controls(explorer, logit_1=90, logit_2=95, method="naive")
    assert (pixels(explorer) == 140).all(axis=-1).sum() > grey + 5000
    # bars of the broken weights, of full height, light red
    light_red = (pixels(explorer) == (255, 228, 225)).all(axis=-1)
    assert light_red.sum() > 3000
    set_controls(explorer, method="stable")
    assert not (pixels(explorer) == (255, 228, 225)).all(axis=-1).any()


def test_the_jacobian_fades_as_the_weights_saturate():
    explorer = saturation_explorer()

    def coloured():
        right = pixels(explorer)[:, 470:680]
        return int((np.ptp(right, axis=-1) > 40).sum())

    spread = coloured()
    set_controls(explorer, temperature=0.05)
    assert coloured() < spread / 10
    assert told(explorer, "gradient norm") < 1e-6


def test_bars_have_the_height_of_the_weights():
    explorer = saturation_explorer()
    set_controls(explorer, **{f"logit_{j}": 0 for j in range(1, 6)})
    even = blue(explorer)
    set_controls(explorer, logit_1=50)
    assert blue(explorer) == pytest.approx(even, rel=0.05)  # the same total, on one key


@pytest.mark.parametrize("make", [scaling_explorer, saturation_explorer])
def test_every_control_moves_something_and_back_gives_the_same_bytes(make):
    explorer = make()
    if make is saturation_explorer:  # so that neither dtype, d_k nor method is without effect
        set_controls(explorer, scaled=False, logit_1=40, method="naive")
    first, words = explorer.image.value, explorer.words.value
    other = {"scaled": True, "d_k": 16, "dtype": "float16", "method": "stable"}
    if make is scaling_explorer:
        other = {"scaled": True, "d_k": 16}
    for name, control in explorer.controls.items():
        control = getattr(control, "slider", control)
        before, away = control.value, other.get(name, 0.5)
        control.value = away
        assert (explorer.image.value, explorer.words.value) != (first, words), name
        control.value = before
        assert (explorer.image.value, explorer.words.value) == (first, words), name


@pytest.mark.parametrize("make", [scaling_explorer, saturation_explorer])
def test_every_control_has_a_name_and_words_are_announced(make):
    explorer = make()
    for control in explorer.controls.values():
        assert (control.box if isinstance(control, Number) else control).description
    assert explorer.words.value == f'<p role="status">{explorer.state}</p>'


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
        p = torch.softmax(k[:, :d_k] @ q[:d_k] / (d_k**0.5 if scaled else 1), dim=-1).double()
        entropy = -(p * p.log()).sum().item()
        assert told(explorer, "entropy") == pytest.approx(entropy, abs=1e-3)
        jacobian = p.diag() - p.outer(p)
        assert told(explorer, "gradient norm") == pytest.approx(jacobian.norm().item(), rel=0.01)
