"""The figure of the explorer of lesson 10b."""

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_utils.explorers.kernel_explorer import cut
from course_utils.figures import DIVERGING, SEQUENTIAL

MOST_TOKENS = 24  # more labels would not fit, and the model would take over a second
WORDS = 10  # tokens with a bar
PALE, DARK = "0.78", "C0"  # bars with all heads, and without those that are out


class LanguageFigure:
    """A map of all heads, bars of the most likely tokens, the weights of one head.

    Parameters
    ----------
    size : (int, int)
        Numbers of layers, and of heads in each.
    """

    def __init__(self, size):
        layers, heads = size
        self.figure = Figure(figsize=(7, 6.5), dpi=80)
        add_axes = self.figure.add_axes
        self.map = add_axes((0.075, 0.1462, 0.22, 0.8115))
        scale = add_axes((0.075, 0.0596, 0.22, 0.0173))
        bars, matrix = add_axes((0.48, 0.7385, 0.5, 0.2192)), add_axes((0.48, 0.1654, 0.5, 0.4962))
        cmap = colormaps[SEQUENTIAL].with_extremes(bad="w")
        self.tiles = self.map.imshow(np.zeros(size), cmap=cmap, aspect="auto")
        self.map.set(xlabel="head", ylabel="layer", title="all heads: click one")
        self.map.locator_params(nbins=9, integer=True)
        outline = {"fill": False, "ec": "C3", "lw": 2, "clip_on": False}
        self.frame = self.map.add_patch(Rectangle((0, 0), 1, 1, zorder=3, **outline))
        (self.crosses,) = self.map.plot([], [], "X", mfc="C3", mec="w", ms=8, zorder=4)
        self.map.set(xlim=(-0.5, heads - 0.5), ylim=(layers - 0.5, -0.5))
        self.scale = scale.pcolormesh(np.linspace(0, 1, 257), [0, 1], np.linspace(0, 1, 256)[None])
        scale.set(xticks=[], yticks=[])
        small = {"fontsize": 10, "va": "top"}
        ends = [scale.text(x, -0.2, "", ha=ha, **small) for x, ha in ((0, "left"), (1, "right"))]
        self.ends = [*ends, scale.text(0, -1.5, "", **small)]

        rows = np.arange(WORDS)
        self.before = bars.barh(rows, 0, height=0.85, color=PALE, label="all heads").patches
        self.after = bars.barh(rows, 0, height=0.4, color=DARK, label="after ablation").patches
        # room for both numbers beside a bar of 1
        bars.set(xlim=(0, 1.4), ylim=(WORDS - 0.4, -0.6), xticks=(0, 0.5, 1), yticks=[])
        bars.set(title="probability of the next token")
        bars.legend(loc="lower right", fontsize=10)
        small["va"] = "center_baseline"
        self.words = [bars.text(-0.02, row, "", ha="right", **small) for row in rows]
        self.numbers = [bars.text(0, row, "", **small) for row in rows]

        extent = {"extent": (0, 1, 1, 0), "vmin": 0, "vmax": 1}
        self.weights = matrix.imshow(np.zeros((1, 1)), cmap=cmap, aspect="auto", **extent)
        matrix.set(xticks=[], yticks=[])
        matrix.set_xlabel("keys", labelpad=60)
        matrix.set_ylabel("queries", labelpad=66)
        self.title = matrix.text(0.5, -0.03, "", ha="center", va="bottom", fontsize=12)
        tokens = range(MOST_TOKENS)
        labels = {"fontsize": 10, "va": "center_baseline"}
        self.queries = [matrix.text(-0.02, 0, "", ha="right", **labels) for _ in tokens]
        labels |= {"va": "top", "rotation": 90}
        self.keys = [matrix.text(0, 1.02, "", ha="center", **labels) for _ in tokens]
        self.moving = [
            *(self.tiles, self.frame, self.crosses, self.scale, *self.ends),
            *(*self.before, *self.after, *self.words, *self.numbers),
            *(self.weights, self.title, *self.queries, *self.keys),
        ]

    def draw_heads(self, values, shade, limit, selected, ablated):
        """Draw values (layers, H), a frame around the selected head, crosses on ablated heads.

        Colors go from 0 to 1, or from -limit to limit if ``limit`` is given. ``shade`` names the
        values; a head is (layer, head).
        """
        signed = limit is not None
        self.tiles.set_data(values)
        self.tiles.set_clim(*((-limit, limit) if signed else (0, 1)))
        for colored in (self.tiles, self.scale):
            colored.set_cmap(colormaps[DIVERGING if signed else SEQUENTIAL].with_extremes(bad="w"))
        ends = (f"−{limit:.1f}", f"{limit:.1f}") if signed else "01"
        for text, label in zip(self.ends, (*ends, shade), strict=True):
            text.set_text(label)
        self.frame.set_visible(selected is not None)
        if selected is not None:
            self.frame.set_xy((selected[1] - 0.5, selected[0] - 0.5))
        self.crosses.set_data([head for _, head in ablated], [layer for layer, _ in ablated])

    def draw_words(self, words, both):
        """Draw tokens with their probabilities (2, n), with all heads and without some."""
        words = [*cut(words, 14), *[""] * (WORDS - len(words))]
        before, after = ([*row, *[0] * (WORDS - len(row))] for row in both)
        for row, (word, p, q) in enumerate(zip(words, before, after, strict=True)):
            self.before[row].set_width(p)
            self.after[row].set_width(q)
            self.words[row].set_text(word)
            self.numbers[row].set_x(max(p, q) + 0.02)
            number = f"{p:.2f}" if before == after else f"{p:.2f} → {q:.2f}"
            self.numbers[row].set_text(number if word else "")

    def draw_weights(self, weights, tokens, title):
        """Draw the weights (L, L) of one head between tokens."""
        self.weights.set_data(weights)
        self.title.set_text(title)
        labels = [*cut(tokens, 10), *[""] * (MOST_TOKENS - len(tokens))]
        for n, label in enumerate(labels):
            middle = (n + 0.5) / max(len(tokens), 1)
            for text, axis in ((self.queries[n], "y"), (self.keys[n], "x")):
                text.set(text=label, **{axis: middle})

    def clear(self):
        """Draw nothing, when there is no text."""
        nothing = np.full(self.tiles.get_size(), np.nan)
        self.draw_heads(nothing, "", None, None, [])
        self.draw_words([], [[], []])
        self.draw_weights(nothing, [], "")
