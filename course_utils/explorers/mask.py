"""The explorer of lesson 04: masks, composed."""

import re

import torch

from course_utils.attention import (
    causal_mask,
    document_mask,
    padding_mask,
    prefix_mask,
    sliding_window_mask,
)
from course_utils.explorers.browser_explorer import (
    BrowserExplorer,
    check,
    choice,
    colours_of,
    number,
    text,
)
from course_utils.figures import SEQUENTIAL

N = 8  # tokens


def mask_explorer():
    """Compose a mask of eight tokens from five; watch the pattern, the weights, and empty rows.

    The scores stay as they are; a query that may see nothing is marked in both pictures. A press
    on a cell turns that pair over: allowed or not.

    Returns
    -------
    BrowserExplorer
        With controls ``causal``, ``window`` and ``prefix`` (0: without), ``padding`` (how many
        tokens are padding), ``side`` (where those stand), ``documents``, ``join`` ("and", "or")
        and ``turned`` (pairs of query and key that are turned over, as "0-7, 3-4").
    """
    rng = torch.Generator().manual_seed(4)
    q, k = torch.randn(N, 4, generator=rng), torch.randn(N, 4, generator=rng)  # (L, d_k), (S, d_k)
    scores = (q.double() @ k.double().T / 4**0.5).round(decimals=6)  # (L, S)
    controls = {
        "causal": check("causal", True),
        "window": number("window (0: without)", 0, 0, N, 1),
        "prefix": number("prefix (0: without)", 0, 0, N, 1),
        "padding": number("padding tokens", 2, 0, N, 1),
        "side": choice("padding at the", "end", ["end", "start"]),
        "documents": number("documents", 1, 1, 4, 1),
        "join": choice("joined by", "and", ["and", "or"]),
        "turned": text("pairs turned over", "", "0-7"),
    }
    given = {"n": N, "scores": scores.tolist(), "colours": colours_of(SEQUENTIAL)}
    return BrowserExplorer("mask", controls, _say, needs=["softmax", "grid"], **given)


def _say(causal, window, prefix, padding, side, documents, join, turned):
    real = padding_mask([N - padding], N)[0, 0]  # (1, S)
    real = real if side == "end" else real.flip(-1)
    pieces = {
        "causal": (causal, "causal", causal_mask(N)),
        "window": (window, f"window of {window}", sliding_window_mask(N, max(window, 1))),
        "prefix": (prefix, f"prefix of {prefix}", prefix_mask(N, prefix)),
        "padding": (padding, f"{padding} of padding at the {side}", real),
        "documents": (
            documents > 1,
            f"{documents} documents",
            document_mask(torch.arange(N) * documents // N),
        ),
    }
    chosen = {piece: mask for piece, (wanted, _, mask) in pieces.items() if wanted}
    mask = _joined(chosen, join)
    told = f" {join} ".join(pieces[piece][1] for piece in chosen) or "no mask"
    pairs = _pairs(turned)
    for i, j in pairs:
        mask[i, j] = ~mask[i, j]
    written = ", ".join(f"{i}-{j}" for i, j in pairs)
    by_hand = f", pairs turned over: {written}" if pairs else ""
    return (
        f"{told}{by_hand}: {int(mask.sum())} of {N * N} pairs allowed; "
        f"empty rows: {_runs(~mask.any(dim=-1)) or 'none'}; query sees keys "
        + ", ".join(f"{i}: {_runs(row) or 'none'}" for i, row in enumerate(mask))
        + ("" if pairs else _found(chosen, join, side, window, mask))
    )


def _joined(masks, join):
    """Join some masks (L, S), by name, into one; without any, all is allowed."""
    if not masks:
        return torch.ones(N, N, dtype=torch.bool)
    stacked = torch.stack([mask.expand(N, N) for mask in masks.values()])
    return stacked.all(dim=0) if join == "and" else stacked.any(dim=0)


def _found(chosen, join, side, window, mask):
    """Say which of the lesson's questions the chosen masks, joined into one, answer."""
    before = ~_joined(chosen, "and").any(dim=-1)  # (L,), empty if joined by "and"
    if "causal" in chosen and "padding" in chosen and side == "start":
        if join == "and":
            return f"; found: rows {_runs(before)} are empty, as many as there are padding tokens"
        if before.any() and mask.any(dim=-1).all():
            return f'; found: "or" brings rows {_runs(before)} back'
    if {"causal", "prefix"} <= set(chosen) and join == "and":
        others = {name: each for name, each in chosen.items() if name != "prefix"}
        if _joined(others, join).equal(mask):
            return "; found: nothing is left of the prefix, the future is forbidden again"
    if "documents" in chosen and window == N and join == "and":
        return "; found: the widest window is causal, within each document"
    if set(chosen) == {"causal", "documents"} and join == "or":
        return "; found: every token sees all before it, and its own document's future"
    return ""


def _pairs(turned):
    """Read pairs of query and key, as "0-7, 3-4"; what is none of the tokens' is left out."""
    pairs = [(int(i), int(j)) for i, j in re.findall(r"([0-9]+)\s*-\s*([0-9]+)", turned)]
    return [pair for pair in dict.fromkeys(pairs) if max(pair) < N]


def _runs(flags):
    """Say which of some flags (n,) are true, counted from 0: "0–2 and 4"."""
    at = [i for i, flag in enumerate(flags.tolist()) if flag]
    starts = [i for i in at if i - 1 not in at]
    ends = [i for i in at if i + 1 not in at]
    return " and ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in zip(starts, ends, strict=True))
