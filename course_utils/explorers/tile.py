"""The explorer of lesson 06: attention tile by tile."""

import torch

from course_utils.explorers.browser_explorer import (
    BrowserExplorer,
    check,
    choice,
    colours_of,
    number,
)
from course_utils.figures import DIVERGING, SEQUENTIAL
from course_utils.tiled import blocks, key_blocks, tile_scores, tile_update

N, D = 12, 4
SIZES = [2, 3, 4, 5, 6, 12]  # of blocks
START = {"block_q": 4, "block_k": 3}
NAIVE = 4 * (4 * N * N + 4 * N * D)  # bytes: scores and weights, each written and read


def tile_explorer():
    """Step through the tiles of attention over 12 tokens; watch m, ℓ, O and the bytes moved.

    Returns
    -------
    BrowserExplorer
        With controls ``step`` (tiles taken so far, up to all there are), ``block_q``, ``block_k``
        and ``causal``. A press on a tile goes to its step.
    """
    rng = torch.Generator().manual_seed(6)
    # as few digits as are needed, and here the same as in the page
    qkv = torch.randn(3, N, D, generator=rng).double().round(decimals=6)

    def say(step, block_q, block_k, causal):
        plan = _plan(block_q, block_k, causal)
        skipped = len(_plan(block_q, block_k, False)) - len(plan)
        sent, now, found = _bytes_moved(plan, step), "nothing read yet", ""
        if step:
            rows, columns = plan[step - 1]
            m, ell = _first_query(*qkv, plan[:step], causal)
            now = (
                f"in fast memory queries {_span(rows)}, keys and values {_span(columns)}; the "
                f"first of these queries has m = {m:z.2f}, ℓ = {ell:.2f}"
            )
        if step == len(plan) and START != {"block_q": block_q, "block_k": block_k}:
            before = _plan(**START, causal=causal)
            found = (
                f"; found: {sent} bytes in all, where block_q = {START['block_q']} and block_k = "
                f"{START['block_k']} move {_bytes_moved(before, len(before))}"
            )
        return (
            f"step {step} of {len(plan)}: {now}; {sent} bytes moved (naive attention: {NAIVE} "
            f"in all); tiles skipped: {skipped}{found}"
        )

    controls = {
        "step": number("step", 4, 0, (N // SIZES[0]) ** 2, 1),
        "causal": check("causal", True),
    } | {name: choice(name, at, SIZES) for name, at in START.items()}
    return BrowserExplorer(
        "tile",
        controls,
        say,
        highest=_highest,
        needs=["grid"],
        **dict(zip("qkv", qkv.tolist(), strict=True)),
        start=START,
        naive=NAIVE,
        diverging=colours_of(DIVERGING),
        sequential=colours_of(SEQUENTIAL),
    )


def _highest(block_q, block_k, causal, **_):
    return {"step": len(_plan(block_q, block_k, causal))}


def _plan(block_q, block_k, causal):
    """Return the tiles in the order in which they are read: their rows and columns."""
    offset = 0 if causal else None
    return [
        (rows, columns)
        for rows in blocks(N, block_q)
        for columns in key_blocks(N, block_k, rows, offset)
    ]


def _first_query(q, k, v, taken, causal):
    """Return m and ℓ of the first query of the last tile that was taken."""
    m, ell, out = q.new_full((N,), -torch.inf), q.new_zeros(N), torch.zeros_like(v)
    offset = 0 if causal else None
    for rows, columns in taken:
        scores = tile_scores(q[rows] / D**0.5, k[columns], None, offset, rows, columns)
        new = tile_update(m[rows], ell[rows], out[rows], scores, v[columns])
        m[rows], ell[rows], out[rows] = new
    first = rows.start
    return m[first].item(), ell[first].item()


def _bytes_moved(plan, step):
    """Return how many bytes the first steps move between slow and fast memory."""
    numbers = 0
    for index, (rows, columns) in enumerate(plan[:step], start=1):
        queries = rows.stop - rows.start
        numbers += 2 * (columns.stop - columns.start) * D  # K and V
        if columns.start == 0:
            numbers += queries * D  # Q, which stays for the tiles beside
        if plan[index : index + 1] == [] or plan[index][0] != rows:  # these queries are done
            numbers += queries * (D + 1)  # O and lse
    return 4 * numbers


def _span(part):
    return f"{part.start}–{part.stop - 1}"
