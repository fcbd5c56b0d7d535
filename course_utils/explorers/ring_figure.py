"""What the explorer of lesson 11 draws."""

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Polygon, Rectangle

COLOURS = ["C0", "C1", "C2", "C3", "C4", "C5", "C6", "C9"]  # of ranks; C7 is a grey
SAID = {0: "0", 0.5: "½", 1: "1"}  # parts of a block
PALE, FULL = 0.25, 0.65  # how much of its colour a tile has: done, and in this step
STRIP = 0.1  # beside the map and above it, as a part of the map
IDLE = {"facecolor": "w", "edgecolor": "0.4", "hatch": "////", "linewidth": 0.8}
FUTURE = {"facecolor": "0.93", "edgecolor": "0.7", "hatch": "...", "linewidth": 0}
NOW = {"edgecolor": "k", "linewidth": 2}
MET = {"facecolor": "none", "edgecolor": "k", "linewidth": 1, "linestyle": (0, (2, 2))}


class RingFigure:
    """A map of all tiles, and for each rank its keys, its work, and its time so far.

    Parameters
    ----------
    most : int
        The largest number of ranks.
    """

    def __init__(self, most):
        self._pieces = most  # of the text, as drawn last
        self.figure = Figure(figsize=(7, 5.4), dpi=80)
        self.map = self.figure.add_axes((0.05, 0.25, 0.52, 0.674))
        self.bars = self.figure.add_axes((0.61, 0.25, 0.36, 0.674))
        self._draw_still()
        self.future = self.map.add_patch(Polygon([(0, 0), (1, 0), (1, 1)], zorder=1, **FUTURE))
        self.tiles, self.now, self.met, self.strips = (
            self.map.add_collection(PolyCollection([], zorder=zorder, clip_on=False, **look))
            for zorder, look in (
                (1, {"edgecolor": "0.6", "linewidth": 0.6}),
                (3, NOW),
                (3, MET),
                (2, {"edgecolor": "w", "linewidth": 1}),
            )
        )
        (self.done,) = self.map.plot([], [], "k.", markersize=4, zorder=2)
        middle = {"ha": "center", "va": "center_baseline", "fontsize": 8, "zorder": 4}
        # with zigzag two pieces a rank: four tiles meet in a step, and four pieces have a rank
        self.labels = [self.map.text(0, 0, "", weight="bold", **middle) for _ in range(4 * most)]
        self.owners = [self.map.text(0, 0, "", **middle) for _ in range(4 * most)]
        self.rows = [self.bars.text(0, 0, "", fontsize=8, va="center") for _ in range(most)]
        self.worked, self.waited = (
            [self.bars.add_patch(Rectangle((0, 0), 0, 0, **look)) for look in looks]
            for looks in ([{"facecolor": c, "edgecolor": "0.4"} for c in COLOURS], [IDLE] * most)
        )
        self.moving = [
            *(self.future, self.tiles, self.now, self.met, self.strips, self.done),
            *(*self.labels, *self.owners, *self.rows, *self.worked, *self.waited),
        ]

    def _draw_still(self):
        for ax in (self.map, self.bars):
            ax.set(ylim=(1, -STRIP), yticks=[])
            ax.spines[:].set_visible(False)
        self.map.set(xlim=(-STRIP, 1), xticks=[])
        self.map.set_title("keys: which rank holds them now", fontsize=10)
        self.map.set(xlabel="pieces of the text, from the first", ylabel="queries: their rank")
        self.bars.set(xlim=(0, 1), xlabel="time so far (1: all steps, no mask)")
        self.bars.set_title("ranks: keys now, work of a block", fontsize=10)
        done = Patch(facecolor=_colour(0, PALE)), Line2D([], [], color="k", marker=".", ls="")
        this = Patch(facecolor=_colour(0, FULL), **NOW)
        looks = {"done": done, "to come": Patch(facecolor="w", edgecolor="0.6"),
                 "in this step, by that rank": this, "met, nothing to do": Patch(**MET),
                 "future: never": Patch(**FUTURE)}  # fmt: skip
        below = {"loc": "upper center", "fontsize": 8, "borderaxespad": 0}
        self.map.legend(looks.values(), looks, bbox_to_anchor=(0.5, -0.12), ncols=2, **below)
        looks = {"work": Patch(facecolor=COLOURS[0], edgecolor="0.4"), "waiting": Patch(**IDLE)}
        self.bars.legend(looks.values(), looks, bbox_to_anchor=(0.5, -0.18), ncols=2, **below)

    def draw_map(self, tiles, step, causal):
        """Draw the tiles of all ranks and steps, in this step."""
        self._pieces = 1 + max(tile.row for tile in tiles)
        self.future.set_visible(causal)
        needed = [tile for tile in tiles if tile.share]
        self.tiles.set_verts([self._corners(tile) for tile in needed])
        self.tiles.set_facecolor(
            [_colour(tile.rank, PALE if tile.step < step else 0) for tile in needed]
        )
        past = [self._corners(tile).mean(axis=0) for tile in needed if tile.step < step]
        self.done.set_data(*np.reshape(past, (-1, 2)).T)
        now = [tile for tile in needed if tile.step == step]
        self.now.set_verts([self._corners(tile) for tile in now])
        self.now.set_facecolor([_colour(tile.rank, FULL) for tile in now])
        meeting = [tile for tile in tiles if tile.step == step]
        self.met.set_verts([self._corners(tile) for tile in meeting if not tile.share])
        _write(self.labels, [(*self._corners(t).mean(axis=0), t.rank) for t in meeting])

        queries = sorted({(tile.row, tile.rank) for tile in tiles})
        keys = sorted({(tile.column, tile.rank) for tile in meeting})
        ends = np.array([-0.9, -0.15]) * STRIP
        beside = [(ends, self._ends(row), rank) for row, rank in queries]
        above = [(self._ends(column), ends, rank) for column, rank in keys]
        self.strips.set_verts([_box(x, y) for x, y, _ in beside + above])
        self.strips.set_facecolor([_colour(rank, PALE) for *_, rank in beside + above])
        _write(self.owners, [(x.mean(), y.mean(), rank) for x, y, rank in beside + above])

    def draw_ranks(self, keys_of, work, worked, waited):
        """Draw a row for each rank.

        ``keys_of`` is whose keys it has, ``work`` the part of a block that it computes now, and
        ``worked`` and ``waited`` are its time so far, in blocks.
        """
        ranks = len(keys_of)
        _write(self.rows, [
            (0, (rank + 0.25) / ranks, f"rank {rank}: keys of rank {other}, work {SAID[part]}")
            for rank, (other, part) in enumerate(zip(keys_of, work, strict=True))
        ])  # fmt: skip
        for rank, (bar, rest) in enumerate(zip(self.worked, self.waited, strict=True)):
            here = rank < ranks
            a, b = (worked[rank] / ranks, waited[rank] / ranks) if here else (0, 0)
            y, height = (rank + 0.5) / ranks, 0.4 / ranks
            bar.set_bounds(0, y, a, height)
            rest.set_bounds(a, y, b, height)
            bar.set_visible(here)
            rest.set_visible(b > 0)

    def covers(self, tile, x, y):
        """Say whether a place of the map lies in the square of a tile."""
        return (x * self._pieces // 1, y * self._pieces // 1) == (tile.column, tile.row)

    def _ends(self, piece):
        return np.array([piece, piece + 1]) / self._pieces

    def _corners(self, tile):
        """Return the corners of what is allowed in a tile, of all of it if nothing is, (3 or 4, 2).

        A piece against itself is cut by the diagonal.
        """
        corners = _box(self._ends(tile.column), self._ends(tile.row))
        return corners[:3] if tile.share == 0.5 else corners


def _box(x, y):
    """Return corners from top left over bottom left, (4, 2), of a box from x[0] to x[1]."""
    return np.array([(x[0], y[0]), (x[0], y[1]), (x[1], y[1]), (x[1], y[0])])


def _colour(rank, strength):
    """Return a rank's colour on white, (3,)."""
    return 1 - strength * (1 - np.array(to_rgb(COLOURS[rank])))


def _write(texts, told):
    """Let some of the texts say something, each (x, y, what), and the others nothing."""
    for text, (x, y, what) in zip(
        texts, told + [(0, 0, "")] * (len(texts) - len(told)), strict=True
    ):
        text.set(x=x, y=y, text=what)
