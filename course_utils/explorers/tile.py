"""The explorer of lesson 06: attention tile by tile."""

import torch

from course_utils.explorers.browser_explorer import (
    BrowserExplorer,
    check,
    choice,
    colors_of,
    number,
)
from course_utils.figures import DIVERGING, SEQUENTIAL

N, D = 12, 4
SIZES = [2, 3, 4, 5, 6, 12]  # of a block
START = {"block_q": 4, "block_k": 3}


def tile_explorer():
    """Step through the tiles of attention over 12 tokens, and watch m, ℓ, O and the bytes moved.

    Returns
    -------
    BrowserExplorer
        With controls ``step`` (how many tiles were read so far), ``block_q``, ``block_k`` and
        ``causal``. A click on a tile goes to its step.
    """
    rng = torch.Generator().manual_seed(6)
    # rounded, so that the page holds few digits
    qkv = torch.randn(3, N, D, generator=rng).double().round(decimals=6)
    controls = {
        "step": number("step", 4, 0, (N // SIZES[0]) ** 2, 1),
        "causal": check("causal", True),
    } | {name: choice(name, at, SIZES) for name, at in START.items()}
    return BrowserExplorer(
        "tile",
        controls,
        needs=["grid"],
        **dict(zip("qkv", qkv.tolist(), strict=True)),
        start=START,
        diverging=colors_of(DIVERGING),
        sequential=colors_of(SEQUENTIAL),
    )
