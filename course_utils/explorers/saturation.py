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
LOGIT_STEP = 0.5
ENDS = 4, 512  # of d_k, when dot products are drawn
TEMPERATURES = torch.arange(1, 101) / 20  # where the slider can stand


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
    figure = Figure(figsize=(7, 4), dpi=80)
    bars = _Bars(figure.add_subplot(), [f"key {j}" for j in range(1, 9)])
    figure.tight_layout()

    def scores_of(d_k, scaled):
        scores = k[:, :d_k] @ q[:d_k]  # (S,)
        return scores / d_k**0.5 if scaled else scores

    def update(d_k, scaled):
        scores = scores_of(d_k, scaled)
        weights = scores.softmax(dim=-1)
        bars.set(weights)
        largest, told = scores.abs().max(), _saturation(weights, _jacobian(weights))
        return f"largest score in size {largest:.1f}; {told}{found(d_k, scaled, weights)}"

    def found(d_k, scaled, weights):
        unscaled = scores_of(d_k, False).softmax(dim=-1).max()
        if scaled and d_k in ENDS:
            told = f"{unscaled:.2f} to {weights.max():.2f}"
            return f"; found: at d_k = {d_k} the division takes the largest weight from {told}"
        narrower = scores_of(max(d_k - 4, 1), False).softmax(dim=-1).max()
        if not scaled and narrower < 0.99 <= unscaled:
            return f"; found: at d_k = {d_k} one key has {unscaled:.2f} of the weight"
        two = weights.topk(2).values.sum()
        if two >= 0.95 and _jacobian(weights).norm() >= 0.45:  # two that tie have 0.5
            return f"; found: two keys have {two:.2f} of the weight, and much gradient passes"
        return ""

    controls = {
        "d_k": Number("d_k", 4, *ENDS, 4),
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
    figure = Figure(figsize=(6.4, 6), dpi=80)
    upper, lower = figure.subplots(2, 1, height_ratios=[1, 1.1])
    bars = _Bars(upper, names)
    colours = colormaps[DIVERGING].with_extremes(bad="0.55")
    jacobian_image = lower.imshow(np.zeros((5, 5)), cmap=colours, vmin=-0.25, vmax=0.25)
    lower.set(xticks=range(5), xticklabels=names, yticks=range(5), yticklabels=names)
    lower.tick_params(axis="x", rotation=45)
    lower.set(xlabel="score that moves", ylabel="weight that answers")
    lower.set_title("Jacobian diag(p) − ppᵀ (grey: NaN)", fontsize=10)
    figure.colorbar(jacobian_image, ax=lower, shrink=0.8)
    figure.tight_layout()

    def update(temperature, d_k, scaled, dtype, method, **logits):
        untempered = _scores(list(logits.values()), d_k, scaled, dtype)
        scores = untempered / temperature  # (5,)
        exponents = scores - scores.max() if method == "stable" else scores
        powers = exponents.exp()
        weights = powers / powers.sum()
        jacobian = _jacobian(weights)
        bars.set(weights, marks=["exp = inf" if p.isinf() else "" for p in powers])
        jacobian_image.set_data(np.ma.masked_invalid(jacobian.double().numpy()))
        lower = _scores([logits["logit_1"] - LOGIT_STEP], d_k, scaled, dtype)[0] / temperature
        found = [
            *(_found_naively(scores, lower, logits["logit_1"], dtype) if method == "naive" else []),
            *(_found_stably(scores, untempered, temperature) if method == "stable" else []),
        ]
        return (
            f"softmax of {', '.join(f'{s:.4g}' for s in scores.tolist())}: "
            f"weights {', '.join(f'{w:.3f}' for w in weights.tolist()).replace('nan', 'NaN')}; "
            f"{_saturation(weights, jacobian)}{_overflows(scores, powers, dtype)}"
            f"{'; found: ' if found else ''}{', and '.join(found)}"
        )

    starts = (2, 1, 0, -1, -2)
    controls = {
        f"logit_{j}": Number(f"logit {j}", start, -20, 100, LOGIT_STEP)
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
    return Explorer(figure, moving, controls, update)


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


def _scores(logits, d_k, scaled, dtype):
    """Return logits as scores (n,) of width d_k, not yet divided by a temperature."""
    scores = torch.tensor(logits, dtype=torch.float64).to(DTYPES[dtype]) * d_k**0.5
    return scores / d_k**0.5 if scaled else scores


def _found_naively(scores, lower, logit_1, dtype):
    """Say what breaks in a naive softmax of scores (5,); lower is the first, a step before."""
    found = []
    if scores[0].isfinite() and scores[0].exp().isinf() and lower.exp().isfinite():
        found.append(f"{logit_1:g} is the first logit 1 with an infinite power in {dtype}")
    if scores.exp().sum() == 0:
        found.append(f"every power is 0 in {dtype}, and 0 / 0 is NaN")
    return found


def _found_stably(scores, untempered, temperature):
    """Say what a stable softmax saves, and at which temperatures its gradient is at an end."""
    found = []
    total = scores.exp().sum()
    if scores.isfinite().all() and (total.isinf() or total == 0):
        found.append("the same scores, and weights where naive fails")
    norms = _norms((untempered.double() / TEMPERATURES[:, None]).softmax(dim=-1))  # (100,)
    at = TEMPERATURES.sub(temperature).abs().argmin()
    if norms.max() > norms.min() + 0.01:  # else the temperature changes nothing
        if norms[at] == norms.max():
            found.append("no other temperature has a larger gradient norm")
        elif at == 0:
            found.append(f"at the lowest temperature the gradient norm is {norms[0]:.3f}")
    return found


def _norms(weights):
    """Return the Frobenius norms (n,) of the Jacobians of several weights (n, S)."""
    squares = weights.square()
    # Σ p² (1 - p)² on the diagonal and Σ pᵢ² pⱼ² beside it
    return (squares.sum(-1) - 2 * (squares * weights).sum(-1) + squares.sum(-1).square()).sqrt()


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
