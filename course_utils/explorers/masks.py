"""The explorer of lesson 04: masks, composed."""

import ipywidgets as widgets
import numpy as np
import torch
from matplotlib.figure import Figure

from course_utils.attention import (
    attention,
    causal_mask,
    document_mask,
    padding_mask,
    prefix_mask,
    sliding_window_mask,
)
from course_utils.explorers.base import Explorer, Number
from course_utils.figures import SEQUENTIAL


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
    edges = np.arange(n + 1) - 0.5
    look = {"cmap": SEQUENTIAL, "vmin": 0, "vmax": 1, "edgecolors": "w", "linewidth": 0.5}
    empty_look = {"facecolor": "mistyrose", "edgecolor": "C3", "hatch": "//"}
    images, marks = [], []
    for ax, title in zip(panels, ["allowed (light) or not", "weights"], strict=True):
        images.append(ax.pcolormesh(edges, edges, np.zeros((n, n)), **look))
        marks.append(ax.barh(range(n), n, left=-0.5, height=0.9, **empty_look).patches)
        ax.set(xticks=range(n), xlabel="keys", title=title, aspect="equal")
        ax.set(yticks=range(n), ylabel="queries", xlim=(-0.5, n - 0.5), ylim=(n - 0.5, -0.5))
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
        images[0].set_array(mask.float().numpy())
        images[1].set_array(weights.numpy())
        empty = ~mask.any(dim=-1)  # (L,)
        for row in range(n):
            for each in marks:
                each[row].set_visible(bool(empty[row]))
        return (
            f"{f' {join} '.join(chosen) or 'no mask'}: {int(mask.sum())} of {n * n} pairs allowed; "
            f"empty rows: {_runs(empty) or 'none'}; query sees keys "
            + ", ".join(f"{i}: {_runs(row) or 'none'}" for i, row in enumerate(mask))
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
    """Say which of some flags (n,) are true, counted from 0: "0–2 and 4"."""
    at = [i for i, flag in enumerate(flags.tolist()) if flag]
    starts = [i for i in at if i - 1 not in at]
    ends = [i for i in at if i + 1 not in at]
    return " and ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in zip(starts, ends, strict=True))
