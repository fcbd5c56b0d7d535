"""The explorers of lessons 02 and 03: how softmax saturates, and what breaks it."""

import math

import ipywidgets as widgets
import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure

from course_utils.attention import entropy
from course_utils.explorers.base import Explorer, Number
from course_utils.figures import DIVERGING

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def scaling_explorer():
    """Widen q and k, with or without division by √d_k; watch the weights of 8 keys saturate.

    The query and the keys are drawn once, 512 random numbers each, and the first d_k are used.

    Returns
    -------
    Explorer
        With controls ``d_k`` and ``scaled``.
    """
    # a seed with which two keys nearly tie around d_k = 64 and one has all the weight from 128 on
    rng = torch.Generator().manual_seed(31)
    q, k = torch.randn(512, generator=rng), torch.randn(8, 512, generator=rng)
    figure = Figure(figsize=(5.5, 3), dpi=80)
    bars = _Bars(figure.add_subplot(), [f"key {j}" for j in range(1, 9)])
    figure.tight_layout()

    def update(d_k, scaled):
        scores = k[:, :d_k] @ q[:d_k]  # (S,)
        scores = scores / d_k**0.5 if scaled else scores
        weights = scores.softmax(dim=-1)
        bars.set(weights)
        largest = scores.abs().max()
        return f"largest score in size {largest:.1f}; {_saturation(weights, _jacobian(weights))}"

    controls = {
        "d_k": Number("d_k", 4, 4, 512, 4),
        "scaled": widgets.Checkbox(value=False, description="divide by √d_k", indent=False),
    }
    return Explorer(figure, bars.artists, controls, update)


def saturation_explorer():
    """Set five logits and how softmax is calculated; watch weights, Jacobian, and what breaks.

    Each logit is multiplied by √d_k, as dot products of width d_k would be, divided by it again
    if scaled, and divided by the temperature. All of it is calculated in the dtype chosen.

    Returns
    -------
    Explorer
        With controls ``logit_1`` to ``logit_5``, ``temperature``, ``d_k``, ``scaled``, ``dtype``
        (one of `DTYPES`) and ``method`` ("stable", which subtracts the maximum, or "naive").
    """
    names = [f"key {j}" for j in range(1, 6)]
    figure = Figure(figsize=(9.5, 3.4), dpi=80)
    left, right = figure.subplots(1, 2, width_ratios=[1.2, 1])
    bars = _Bars(left, names)
    colours = colormaps[DIVERGING].with_extremes(bad="0.55")
    jacobian_image = right.imshow(np.zeros((5, 5)), cmap=colours, vmin=-0.25, vmax=0.25)
    right.set(xticks=range(5), xticklabels=names, yticks=range(5), yticklabels=names)
    right.tick_params(axis="x", rotation=45)
    right.set_title("Jacobian diag(p) − ppᵀ (grey: NaN)", fontsize=10)
    figure.colorbar(jacobian_image, ax=right, shrink=0.8)
    figure.tight_layout()

    def update(temperature, d_k, scaled, dtype, method, **logits):
        raw = torch.tensor(list(logits.values()), dtype=torch.float64).to(DTYPES[dtype])
        scores = raw * d_k**0.5
        scores = (scores / d_k**0.5 if scaled else scores) / temperature  # (5,)
        exponents = scores - scores.max() if method == "stable" else scores
        powers = exponents.exp()
        weights = powers / powers.sum()
        jacobian = _jacobian(weights)
        bars.set(weights, marks=["exp = inf" if p.isinf() else "" for p in powers])
        jacobian_image.set_data(np.ma.masked_invalid(jacobian.double().numpy()))
        return (
            f"softmax of {', '.join(f'{s:.4g}' for s in scores.tolist())}: "
            f"weights {', '.join(f'{w:.3f}' for w in weights.tolist()).replace('nan', 'NaN')}; "
            f"{_saturation(weights, jacobian)}{_overflows(scores, powers, dtype)}"
        )

    starts = (2, 1, 0, -1, -2)
    controls = {
        f"logit_{j}": Number(f"logit {j}", start, -100, 100, 0.5)
        for j, start in enumerate(starts, start=1)
    }
    wide = {"style": {"description_width": "initial"}, "layout": {"width": "15em"}}
    controls |= {
        "temperature": Number("temperature", 1, 0.05, 5, 0.05),
        "d_k": widgets.Dropdown(
            description="d_k", options=[1, 4, 16, 64, 256, 1024, 4096], value=64, **wide
        ),
        "scaled": widgets.Checkbox(value=True, description="divide by √d_k", indent=False),
        "dtype": widgets.Dropdown(description="dtype", options=list(DTYPES), **wide),
        "method": widgets.Dropdown(description="softmax", options=["stable", "naive"], **wide),
    }
    moving = [*bars.artists, jacobian_image]
    return Explorer(figure, moving, controls, update, columns=2)


class _Bars:
    """Weights as bars with their numbers; a NaN is a hatched bar of full height that says so."""

    def __init__(self, ax, names):
        self.bars = ax.bar(names, [0.0] * len(names)).patches
        # an entry that broke, where its bar would be
        self.broken = ax.bar(names, 1.0, color="mistyrose", edgecolor="C3", hatch="//").patches
        self.texts = [ax.text(j, 0, "", ha="center", va="bottom") for j in range(len(names))]
        ax.set(ylim=(0, 1.3), ylabel="weight", yticks=[0, 0.25, 0.5, 0.75, 1])
        self.artists = [*self.bars, *self.broken, *self.texts]

    def set(self, weights, marks=None):
        """Show weights (S,), and above each a mark that may be empty."""
        marks = [""] * len(weights) if marks is None else marks
        rows = zip(self.bars, self.broken, self.texts, weights.tolist(), marks, strict=True)
        for bar, broken, text, weight, mark in rows:
            nan = math.isnan(weight)
            bar.set_height(0 if nan else weight)
            broken.set_visible(nan)
            text.set_y(1.02 if nan else weight + 0.02)
            text.set_text(f"{'NaN' if nan else f'{weight:.2f}'}\n{mark}".rstrip())


def _jacobian(weights):
    """Return the (S, S) derivatives of softmax's weights (S,) by its scores."""
    return weights.diag() - weights.outer(weights)


def _saturation(weights, jacobian):
    """Say how far weights (S,) are saturated: their entropy and the size of the Jacobian."""
    spread, size = entropy(weights.double()).item(), jacobian.double().norm().item()
    most = math.log(len(weights))
    return (
        f"entropy {spread:.3f} of at most {most:.3f} nats; "
        f"gradient norm {size:.3g} (Frobenius norm of the Jacobian)"
    ).replace("nan", "NaN")


def _overflows(scores, powers, dtype):
    """Say which entries of scores (S,) or of their exponentials are no numbers any more."""
    told = []
    for name, values in {"score": scores, "exp": powers}.items():
        for kind, found in {"inf": values.isinf(), "NaN": values.isnan()}.items():
            if found.any():
                keys = ", ".join(str(j + 1) for j in found.nonzero()[:, 0].tolist())
                told.append(f"{name} is {kind} at key {keys}")
    if powers.isfinite().all() and powers.sum().isinf():
        told.append("the sum of the exponentials is inf")
    return f"; overflow in {dtype}: {'; '.join(told)}" if told else ""
