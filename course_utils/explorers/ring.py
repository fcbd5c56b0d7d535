"""The explorer of lesson 11: keys go round a ring of ranks, and some ranks wait."""

from collections import namedtuple

import numpy as np
from matplotlib.colors import to_rgb

from course_utils.explorers.browser_explorer import BrowserExplorer, check, number
from course_utils.parallel import shard_positions

COLOURS = ["C0", "C1", "C2", "C3", "C4", "C5", "C6", "C9"]  # of ranks; C7 is a grey
MOST = len(COLOURS)  # ranks
MUCH = 0.4  # of all time, spent waiting
SAID = {0: "0", 0.5: "½", 1: "1"}  # parts of a block

# The queries of one piece of the text against the keys of another: who computes it, in which
# step, and which share of its pairs is allowed
Tile = namedtuple("Tile", "rank step row column share")


def ring_explorer():
    """Let keys go round a ring; see who holds them, who computes which tile, and who waits.

    A step takes as long as its busiest rank. That the keys must be sent costs nothing here.

    Returns
    -------
    BrowserExplorer
        With controls ``step`` (from 0), ``ranks``, ``causal`` and ``zigzag``. A press on a tile
        goes to the step in which its queries meet its keys.
    """
    controls = {
        "step": number("step", 2, 0, MOST - 1, 1),
        "ranks": number("ranks", MOST, 2, MOST, 1),
        "causal": check("causal", True),
        "zigzag": check("zigzag", False),
    }
    colours = [[round(255 * part) for part in to_rgb(colour)] for colour in COLOURS]
    given = {"colours": colours, "much": MUCH}
    return BrowserExplorer("ring", controls, _say, highest=_highest, **given)


def _highest(ranks, **_):
    return {"step": ranks - 1}


def _say(step, ranks, causal, zigzag):
    tiles = _tiles(ranks, causal, zigzag)
    work = _work(tiles, ranks)  # (W ranks, W steps), in blocks
    longest = work.max(axis=0)  # (W steps,)
    waits = longest - work  # (W ranks, W steps)
    keys_of = [(rank - step) % ranks for rank in range(ranks)]
    spent = longest[: step + 1].sum()
    waited = waits[:, : step + 1].sum() / ranks / spent
    return (
        f"step {step} of 0 to {ranks - 1}: ranks 0 to {ranks - 1} hold the keys of ranks "
        f"{_listed(keys_of)}; work in each block: "
        f"{_listed(SAID[each] for each in work[:, step])}; "
        f"{_who_waits(np.flatnonzero(waits[:, step]))}; time so far "
        f"{spent:g} of {longest.sum():g} blocks, {waited:.0%} of it waiting"
        + (_found(tiles, work, waits) if step == ranks - 1 else "")
    )


def _tiles(ranks, causal, zigzag):
    """Return each pair of pieces as a `Tile`; a piece against itself is allowed by half."""
    held = shard_positions(ranks * (1 + zigzag), ranks, zigzag)  # one token stands for a piece
    return [
        Tile(rank, step, row, column, ((row > column) + (row >= column)) / 2 if causal else 1)
        for rank in range(ranks)
        for step in range(ranks)
        for row in held[rank].tolist()
        for column in held[(rank - step) % ranks].tolist()
    ]


def _work(tiles, ranks):
    """Return what each rank computes in each step, (W ranks, W steps), in whole blocks."""
    work = np.zeros((ranks, ranks))
    for tile in tiles:
        work[tile.rank, tile.step] += tile.share * ranks**2 / len(tiles)
    return work


def _share_waited(ranks):
    """Return the share of all time that ranks spend waiting: causal, in order."""
    work = _work(_tiles(ranks, causal=True, zigzag=False), ranks)
    time = ranks * work.max(axis=0).sum()
    return (time - work.sum()) / time


def _found(tiles, work, waits):
    """Return what is worth finding when keys have gone all the way round, if there is something."""
    ranks, waited, told = len(work), waits.sum(axis=1), ""
    cut = {tile.step for tile in tiles if 0 < tile.share < 1}
    if waited.any():
        told += (
            f"; found: rank {_listed(np.flatnonzero(waited == 0))} never waits, rank "
            f"{waited.argmax()} most, {waited.max() / work.max(axis=0).sum():.0%} of the time"
        )
        if _share_waited(ranks) > MUCH >= _share_waited(ranks - 1):
            told += (
                f"; found: {ranks} ranks are the fewest that in order wait more than {MUCH:.0%} "
                "of the time"
            )
    elif cut:
        told += (
            "; found: all ranks have equal work in every step; a mask cuts through tiles only in "
            f"step {_listed(cut)}"
        )
    return told


def _who_waits(idle):
    if len(idle) == 0:
        return "nobody waits"
    return f"rank {idle[0]} waits" if len(idle) == 1 else f"ranks {_listed(idle)} wait"


def _listed(values):
    return ", ".join(map(str, values))
