"""The explorer of lesson 04: masks, composed."""

import torch

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

    The scores stay as they are; a query that may see nothing is marked in both pictures. A click
    on a cell toggles that pair: allowed or not.

    Returns
    -------
    BrowserExplorer
        With controls ``causal``, ``window`` and ``prefix`` (0: without), ``padding`` (how many
        tokens are padding), ``side`` (where those stand), ``documents``, ``join`` ("and", "or")
        and ``toggled`` (pairs of query and key that are toggled, as "0-7, 3-4").
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
        "toggled": text("toggled pairs", "", "0-7"),
    }
    given = {"n": N, "scores": scores.tolist(), "colours": colours_of(SEQUENTIAL)}
    return BrowserExplorer("mask", controls, needs=["softmax", "grid"], **given)
