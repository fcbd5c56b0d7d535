"""The explorer of lesson 04: combine masks."""

import torch

from course_utils.explorers.browser_explorer import (
    BrowserExplorer,
    check,
    choice,
    colors_of,
    number,
    text,
)
from course_utils.figures import SEQUENTIAL

N = 8  # tokens


def mask_explorer():
    """Combine up to five masks of eight tokens, and see the mask and the attention weights.

    The scores stay the same. Rows with no allowed key are hatched in both pictures. A click on a
    cell toggles that pair: allowed or not.

    Returns
    -------
    BrowserExplorer
        With controls ``causal``, ``window`` and ``prefix`` (0: none), ``padding`` (the number of
        padding tokens), ``side`` ("right", "left"), ``documents``, ``join`` ("and", "or") and
        ``toggled`` (pairs of query and key, such as "0-7, 3-4").
    """
    rng = torch.Generator().manual_seed(4)
    q, k = torch.randn(N, 4, generator=rng), torch.randn(N, 4, generator=rng)  # (L, d_k), (S, d_k)
    scores = (q.double() @ k.double().T / 4**0.5).round(decimals=6)  # (L, S)
    controls = {
        "causal": check("causal", True),
        "window": number("window (0: none)", 0, 0, N, 1),
        "prefix": number("prefix (0: none)", 0, 0, N, 1),
        "padding": number("padding tokens", 2, 0, N, 1),
        "side": choice("padding on the", "right", ["right", "left"]),
        "documents": number("documents", 1, 1, 4, 1),
        "join": choice("combined with", "and", ["and", "or"]),
        "toggled": text("toggled pairs", "", "0-7"),
    }
    given = {"n": N, "scores": scores.tolist(), "colors": colors_of(SEQUENTIAL)}
    return BrowserExplorer("mask", controls, needs=["softmax", "grid"], **given)
