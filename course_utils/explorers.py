"""Explorers: controls beside a picture, to move a lesson's main quantity by hand.

A new explorer is a function that draws a figure, names its controls, and says what moves:
see `similarity_explorer`.
"""

import base64
import html
import io
import math

import ipywidgets as widgets
import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from traitlets import link

from course_utils.attention import (
    attention,
    causal_mask,
    document_mask,
    entropy,
    padding_mask,
    prefix_mask,
    sliding_window_mask,
)
from course_utils.figures import DIVERGING, SEQUENTIAL, arrows


class Number(widgets.HBox):
    """A number to type, which carries the name, linked to a slider.

    A slider of ipywidgets has no accessible name; the text box beside it does.

    Parameters
    ----------
    label : str
    value, low, high, step : int or float
        Whole numbers if the step is an int.
    """

    def __init__(self, label, value, low, high, step):
        limits = {"value": value, "min": low, "max": high, "step": step}
        named = {
            "description": label,
            "style": {"description_width": "initial"},
            "layout": {"width": f"{7 + len(label) / 2}em"},
        }
        if isinstance(step, int):
            self.box = widgets.BoundedIntText(**named, **limits)
            self.slider = widgets.IntSlider(readout=False, **limits)
        else:
            self.box = widgets.BoundedFloatText(**named, **limits)
            self.slider = widgets.FloatSlider(readout=False, **limits)
        # A browser's slider turns 0.3 into 0.30000000000000004; the box shall not show that.
        both = (self.box, "value"), (self.slider, "value")
        self.link = link(*both, transform=(lambda typed: typed, lambda slid: round(slid, 6)))
        super().__init__([self.box, self.slider])

    @property
    def value(self):
        return self.slider.value


class Explorer(widgets.VBox):
    """Controls, a picture that is drawn once and then updated in place, and its state in words.

    The still parts of the figure are drawn once and kept as a background; a change of a control
    draws only ``moving`` over it. That keeps a key press to a fraction of a full redraw. Text that
    changes belongs in the words, not in the figure's titles.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Not one of pyplot's, so that it is not shown a second time.
    moving : list of matplotlib.artist.Artist
        What ``update`` changes.
    controls : dict of str to widget
        Widgets with a ``value``; `Number` for numbers.
    update : callable
        Called with the values of the controls under their names. Changes ``moving`` and returns
        the new state as one line of text.
    columns : int
        How many columns the controls stand in, as far as the page is wide enough.
    """

    def __init__(self, figure, moving, controls, update, columns=1):
        self.controls, self._moving, self._update = controls, moving, update
        self._canvas = FigureCanvasAgg(figure)
        for artist in moving:
            artist.set_animated(True)
        self._canvas.draw()
        self._background = self._canvas.copy_from_bbox(figure.bbox)
        width, height = self._canvas.get_width_height()
        # At its own size: stretched over the page it would be a blur, and with a height left open
        # the browser would lay out the page anew for each picture.
        layout = {
            "width": f"{width}px",
            "height": f"{height}px",
            "max_width": "100%",
            "object_fit": "contain",
            "align_self": "flex-start",
        }
        self.image = widgets.Image(format="png", layout=layout)
        self.words = widgets.HTML()
        self._refresh()
        for control in controls.values():
            getattr(control, "slider", control).observe(lambda _: self._refresh(), names="value")
            if isinstance(control, Number):
                # Observers are told in order: the picture is sent first, then the number beside it.
                control.link.unlink()
                control.link.link()
        each = math.ceil(len(controls) / columns)
        named = list(controls.values())
        stacks = [widgets.VBox(named[i : i + each]) for i in range(0, len(named), each)]
        row = widgets.HBox(stacks, layout={"flex_flow": "row wrap"})
        super().__init__([row, self.image, self.words])

    @property
    def state(self):
        """The present state as one line of text."""
        return self._state

    def _refresh(self):
        values = {name: control.value for name, control in self.controls.items()}
        self._state = self._update(**values)
        self._canvas.restore_region(self._background)
        for artist in self._moving:
            artist.axes.draw_artist(artist)
        png = io.BytesIO()
        drawn = Image.fromarray(np.asarray(self._canvas.buffer_rgba())).convert("RGB")
        drawn.save(png, "png", compress_level=1)
        self.image.value = png.getvalue()
        # role="status": a screen reader says the new state without being asked
        self.words.value = f'<p role="status">{html.escape(self._state)}</p>'

    def _repr_mimebundle_(self, **kwargs):
        # The picture stands beside the live widget, for viewers that run nothing.
        bundle = super()._repr_mimebundle_(**kwargs)
        bundle["image/png"] = base64.b64encode(self.image.value).decode()
        bundle["text/plain"] = self._state
        return bundle


def similarity_explorer():
    """Turn and stretch an arrow k beside a fixed q = (2, 0); watch dot, cosine and distance.

    Returns
    -------
    Explorer
        With controls ``angle`` (degrees from q) and ``length``.
    """
    q_length, reach = 2.0, 3.0
    figure = Figure(figsize=(5, 4), dpi=80)
    ax = arrows([[q_length, 0], [1, 1]], labels=["q", ""], ax=figure.add_subplot())
    ax.set(xlim=(-reach - 0.2, reach + 0.2), ylim=(-reach - 0.2, reach + 0.2))
    quiver = ax.collections[0]
    tip = ax.text(0, 0, "k", color="C1")
    (distance,) = ax.plot([], [], "--", color="0.5", label="distance from q to k")
    (shadow,) = ax.plot([], [], color="C2", linewidth=5, alpha=0.5, label="shadow of k on q")
    ax.legend(loc="lower left", fontsize=8)

    def update(angle, length):
        k = length * math.cos(math.radians(angle)), length * math.sin(math.radians(angle))
        quiver.set_UVC([q_length, k[0]], [0, k[1]])
        tip.set_position((k[0] + 0.1, k[1] + 0.1))
        distance.set_data([q_length, k[0]], [0, k[1]])
        shadow.set_data([0, k[0]], [0, 0])
        cosine = f"{k[0] / length:.2f}" if length else "none (k has no direction)"
        return (
            f"k = ({k[0]:.2f}, {k[1]:.2f}): dot product {q_length * k[0]:.2f}, "
            f"cosine {cosine}, distance {math.dist((q_length, 0), k):.2f}"
        )

    controls = {
        "angle": Number("angle of k from q (degrees)", 60, -180, 180, 5),
        "length": Number("length of k", 1.5, 0, 3, 0.1),
    }
    return Explorer(figure, [quiver, tip, distance, shadow], controls, update)


DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def scaling_explorer():
    """Widen q and k, with or without division by √d_k; watch the weights of 8 keys saturate.

    The query and the keys are drawn once, 512 random numbers each, and the first d_k are used.

    Returns
    -------
    Explorer
        With controls ``d_k`` and ``scaled``.
    """
    # a seed whose scores spread steadily as d_k grows, so that no two keys tie at the top
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
        "d_k": Number("d_k", 64, 4, 512, 4),
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


def mask_explorer():
    """Compose a mask of eight tokens from five; watch the pattern, the weights, and empty rows.

    The scores stay as they are; a query that may see nothing is marked in both pictures.

    Returns
    -------
    Explorer
        With controls ``causal``, ``window`` and ``prefix`` (0: without), ``padding`` (how many
        tokens are padding), ``side`` (where those stand), ``documents`` and ``join`` ("and", "or").
    """
    n = 8
    numbers = torch.arange(n)
    rng = torch.Generator().manual_seed(4)
    q, k = torch.randn(n, 4, generator=rng), torch.randn(n, 4, generator=rng)  # (L, d_k), (S, d_k)
    figure = Figure(figsize=(8.6, 4), dpi=80)
    panels = figure.subplots(1, 2)
    images, marks = [], []
    for ax, title in zip(panels, ["allowed (light) or not", "weights"], strict=True):
        images.append(ax.imshow(np.zeros((n, n)), cmap=SEQUENTIAL, vmin=0, vmax=1))
        ax.set(xticks=range(n), xticklabels=range(1, n + 1), xlabel="keys", title=title)
        ax.set(yticks=range(n), yticklabels=range(1, n + 1), ylabel="queries")
        ax.set_xticks(np.arange(n + 1) - 0.5, minor=True)
        ax.set_yticks(np.arange(n + 1) - 0.5, minor=True)
        ax.grid(which="minor", color="w", linewidth=0.5)
        ax.tick_params(which="minor", length=0)
        look = {"facecolor": "mistyrose", "edgecolor": "C3", "hatch": "//"}
        marks.append(ax.barh(range(n), n, left=-0.5, height=0.9, **look).patches)
    figure.colorbar(images[1], ax=panels[1], shrink=0.8)
    figure.tight_layout()

    def update(causal, window, prefix, padding, side, documents, join):
        real = padding_mask([n - padding], n)[0, 0]  # (1, S)
        real = real if side == "end" else real.flip(-1)
        pieces = [
            (causal, "causal", causal_mask(n)),
            (window, f"window of {window}", sliding_window_mask(n, max(window, 1))),
            (prefix, f"prefix of {prefix}", prefix_mask(n, prefix)),
            (padding, f"{padding} of padding at the {side}", real),
            (documents > 1, f"{documents} documents", document_mask(numbers * documents // n)),
        ]
        chosen = {name: mask for wanted, name, mask in pieces if wanted}
        masks = torch.stack([m.expand(n, n) for m in chosen.values()] or [torch.ones(n, n) > 0])
        mask = masks.all(dim=0) if join == "and" else masks.any(dim=0)  # (L, S)
        _, weights = attention(q, k, k, mask)
        images[0].set_data(mask.float().numpy())
        images[1].set_data(weights.numpy())
        empty = ~mask.any(dim=-1)  # (L,)
        for row in range(n):
            for each in marks:
                each[row].set_visible(bool(empty[row]))
        return (
            f"{f' {join} '.join(chosen) or 'no mask'}: {int(mask.sum())} of {n * n} pairs allowed; "
            f"empty rows: {_runs(empty) or 'none'}; query sees keys "
            + ", ".join(f"{i}: {_runs(row) or 'none'}" for i, row in enumerate(mask, start=1))
        )

    wide = {"style": {"description_width": "initial"}, "layout": {"width": "16em"}}
    controls = {
        "causal": widgets.Checkbox(value=True, description="causal", indent=False),
        "window": Number("window (0: without)", 0, 0, n, 1),
        "prefix": Number("prefix (0: without)", 0, 0, n, 1),
        "padding": Number("padding tokens", 2, 0, n, 1),
        "side": widgets.Dropdown(description="padding at the", options=["end", "start"], **wide),
        "documents": Number("documents", 1, 1, 4, 1),
        "join": widgets.Dropdown(description="joined by", options=["and", "or"], **wide),
    }
    moving = [*images, *marks[0], *marks[1]]
    return Explorer(figure, moving, controls, update, columns=2)


def _runs(flags):
    """Say which of some flags (n,) are true, counted from 1: "1–3 and 5"."""
    at = [i for i, flag in enumerate(flags.tolist(), start=1) if flag]
    starts = [i for i in at if i - 1 not in at]
    ends = [i for i in at if i + 1 not in at]
    return " and ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in zip(starts, ends, strict=True))


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
