"""The explorer of lesson 04: masks, composed."""

import re

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

    The scores stay as they are; a query that may see nothing is marked in both pictures. A press
    on a cell turns that pair over: allowed or not.

    Returns
    -------
    Explorer
        With controls ``causal``, ``window`` and ``prefix`` (0: without), ``padding`` (how many
        tokens are padding), ``side`` (where those stand), ``documents``, ``join`` ("and", "or")
        and ``turned`` (pairs of query and key that are turned over, as "0-7, 3-4").
    """
    n = 8
    numbers = torch.arange(n)
    rng = torch.Generator().manual_seed(4)
    q, k = torch.randn(n, 4, generator=rng), torch.randn(n, 4, generator=rng)  # (L, d_k), (S, d_k)
    figure = Figure(figsize=(7.6, 3.7), dpi=80)
    panels = figure.subplots(1, 2, width_ratios=[1, 1.25])  # beside the second, its scale
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

    def update(causal, window, prefix, padding, side, documents, join, turned):
        real = padding_mask([n - padding], n)[0, 0]  # (1, S)
        real = real if side == "end" else real.flip(-1)
        pieces = {
            "causal": (causal, "causal", causal_mask(n)),
            "window": (window, f"window of {window}", sliding_window_mask(n, max(window, 1))),
            "prefix": (prefix, f"prefix of {prefix}", prefix_mask(n, prefix)),
            "padding": (padding, f"{padding} of padding at the {side}", real),
            "documents": (
                documents > 1,
                f"{documents} documents",
                document_mask(numbers * documents // n),
            ),
        }
        chosen = {piece: mask for piece, (wanted, _, mask) in pieces.items() if wanted}
        mask = _joined(chosen, join, n)
        told = f" {join} ".join(pieces[piece][1] for piece in chosen) or "no mask"
        pairs = _pairs(turned, n)
        for i, j in pairs:
            mask[i, j] = ~mask[i, j]
        _, weights = attention(q, k, k, mask)
        images[0].set_array(mask.float().numpy())
        images[1].set_array(weights.numpy())
        empty = ~mask.any(dim=-1)  # (L,)
        for row in range(n):
            for each in marks:
                each[row].set_visible(bool(empty[row]))
        by_hand = f", pairs turned over: {_written(pairs)}" if pairs else ""
        return (
            f"{told}{by_hand}: {int(mask.sum())} of {n * n} pairs allowed; "
            f"empty rows: {_runs(empty) or 'none'}; query sees keys "
            + ", ".join(f"{i}: {_runs(row) or 'none'}" for i, row in enumerate(mask))
            + ("" if pairs else _found(chosen, join, side, window, mask))
        )

    def press(ax, x, y):
        if ax not in panels:
            return {}
        pairs = _pairs(explorer.controls["turned"].value, n)
        pair = int(y + 0.5), int(x + 0.5)
        return {"turned": _written([p for p in pairs if p != pair] + [pair] * (pair not in pairs))}

    wide = {"style": {"description_width": "initial"}, "layout": {"width": "17em"}}
    controls = {
        "causal": widgets.Checkbox(value=True, description="causal", indent=False),
        "window": Number("window (0: without)", 0, 0, n, 1),
        "prefix": Number("prefix (0: without)", 0, 0, n, 1),
        "padding": Number("padding tokens", 2, 0, n, 1),
        "side": widgets.Dropdown(description="padding at the", options=["end", "start"], **wide),
        "documents": Number("documents", 1, 1, 4, 1),
        "join": widgets.Dropdown(description="joined by", options=["and", "or"], **wide),
        "turned": widgets.Text(description="pairs turned over", placeholder="0-7", **wide),
    }
    moving = [*images, *marks[0], *marks[1]]
    explorer = Explorer(figure, moving, controls, update, press=press)
    return explorer


def _joined(masks, join, n):
    """Join some masks (n, n), by name, into one; without any, all is allowed."""
    if not masks:
        return torch.ones(n, n, dtype=torch.bool)
    stacked = torch.stack([mask.expand(n, n) for mask in masks.values()])
    return stacked.all(dim=0) if join == "and" else stacked.any(dim=0)


def _found(chosen, join, side, window, mask):
    """Say which of the lesson's questions the chosen masks, joined into one, answer."""
    n = len(mask)
    before = ~_joined(chosen, "and", n).any(dim=-1)  # (L,), empty if joined by "and"
    if "causal" in chosen and "padding" in chosen and side == "start":
        if join == "and":
            return f"; found: rows {_runs(before)} are empty, as many as there are padding tokens"
        if before.any() and mask.any(dim=-1).all():
            return f'; found: "or" brings rows {_runs(before)} back'
    if {"causal", "prefix"} <= set(chosen) and join == "and":
        others = {name: each for name, each in chosen.items() if name != "prefix"}
        if _joined(others, join, n).equal(mask):
            return "; found: nothing is left of the prefix, the future is forbidden again"
    if "documents" in chosen and window == n and join == "and":
        return "; found: the widest window is causal, within each document"
    if set(chosen) == {"causal", "documents"} and join == "or":
        return "; found: every token sees all before it, and its own document's future"
    return ""


def _pairs(text, n):
    """Read pairs of query and key, as "0-7, 3-4"; what is none of n tokens' is left out."""
    pairs = [(int(i), int(j)) for i, j in re.findall(r"(\d+)\s*-\s*(\d+)", text)]
    return [pair for pair in dict.fromkeys(pairs) if max(pair) < n]


def _written(pairs):
    """Write pairs of query and key as `_pairs` reads them."""
    return ", ".join(f"{i}-{j}" for i, j in pairs)


def _runs(flags):
    """Say which of some flags (n,) are true, counted from 0: "0–2 and 4"."""
    at = [i for i, flag in enumerate(flags.tolist()) if flag]
    starts = [i for i in at if i - 1 not in at]
    ends = [i for i in at if i + 1 not in at]
    return " and ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in zip(starts, ends, strict=True))
