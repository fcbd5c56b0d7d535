"""The explorer of lesson 06: attention tile by tile."""

import ipywidgets as widgets
import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course_utils.explorers.base import Explorer, Number
from course_utils.figures import DIVERGING, SEQUENTIAL
from course_utils.tiled import blocks, key_blocks, tile_scores, tile_update

STATES = ["not yet", "skipped", "done", "in fast memory"]
COLOURS = ["1.0", "0.75", *colormaps[SEQUENTIAL]([0.1, 0.95])]


def tile_explorer():
    """Step through the tiles of attention over 12 tokens; watch m, ℓ, O and the bytes moved.

    Returns
    -------
    Explorer
        With controls ``step`` (tiles taken so far), ``block_q``, ``block_k`` and ``causal``.
    """
    n, d = 12, 4
    rng = torch.Generator().manual_seed(6)
    q, k, v = torch.randn(3, n, d, generator=rng).unbind()  # (N, d) each
    naive = 4 * (4 * n * n + 4 * n * d)  # bytes: scores and weights, each written and read
    figure = Figure(figsize=(9.6, 4), dpi=80)
    left, middle, right = figure.subplots(1, 3, width_ratios=[3, 2.6, 0.9])
    tiles = left.imshow(np.zeros((n, n)), cmap=ListedColormap(COLOURS), vmin=-0.5, vmax=3.5)
    left.set(xlabel="keys: rows of K and V", ylabel="queries: rows of Q", title="tiles")
    looks = [Patch(facecolor=c, edgecolor="0.3") for c in COLOURS]
    left.legend(looks, STATES, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize=8)
    output = middle.imshow(np.zeros((n, d)), cmap=DIVERGING, vmin=-2, vmax=2, aspect="auto")
    middle.set(xticks=range(d), xlabel="columns of O", title="m        ℓ        O / ℓ so far")
    middle.set(xlim=(-4.5, d - 0.5))
    figure.colorbar(output, ax=middle, shrink=0.8)
    numbers = [[middle.text(x, i, "", ha="center", va="center", fontsize=9) for x in (-3.6, -1.7)]
               for i in range(n)]  # fmt: skip
    for ax in (left, middle):
        ax.set(yticks=range(n), yticklabels=range(1, n + 1))
    left.set(xticks=range(n), xticklabels=range(1, n + 1))
    moved = right.bar(["tiled", "naive"], [0, naive], color=["C0", "0.7"])[0]
    right.set(ylabel="bytes moved", title="traffic")
    figure.tight_layout()

    def update(step, block_q, block_k, causal):
        offset = 0 if causal else None
        cut = blocks(n, block_q)
        plan = [(rows, columns) for rows in cut for columns in key_blocks(n, block_k, rows, offset)]
        skipped = len(cut) * len(blocks(n, block_k)) - len(plan)
        states = np.ones((n, n))  # skipped, unless in the plan
        for tile in plan:
            states[tile] = 0
        m, ell, out = torch.full((n,), -torch.inf), torch.zeros(n), torch.zeros(n, d)
        sent = 0  # numbers moved between slow and fast memory
        for index, (rows, columns) in enumerate(plan[:step], start=1):
            states[states == 3] = 2
            states[rows, columns] = 3
            scores = tile_scores(q[rows] / d**0.5, k[columns], None, offset, rows, columns)
            new = tile_update(m[rows], ell[rows], out[rows], scores, v[columns])
            m[rows], ell[rows], out[rows] = new
            sent += 2 * k[columns].numel() + (q[rows].numel() if columns.start == 0 else 0)
            if plan[index : index + 1] == [] or plan[index][0] != rows:  # these queries are done
                sent += out[rows].numel() + ell[rows].numel()
        tiles.set_data(states)
        output.set_data((out / ell.clamp(min=1e-9)[:, None]).numpy())
        for row, (largest, total) in enumerate(numbers):
            begun = ell[row] > 0
            largest.set_text(f"{m[row]:.2f}" if begun else "−∞")
            total.set_text(f"{ell[row]:.2f}" if begun else "0")
        moved.set_height(4 * sent)
        done = min(step, len(plan))
        now = "nothing read yet"
        if done:
            rows, columns = plan[done - 1]
            now = (
                f"in fast memory queries {_span(rows)}, keys and values {_span(columns)}; the "
                f"first of these queries has m = {m[rows][0]:.2f}, ℓ = {ell[rows][0]:.2f}"
            )
        return (
            f"step {done} of {len(plan)}: {now}; {4 * sent} bytes moved (naive attention: {naive} "
            f"in all); tiles skipped: {skipped}"
        )

    sizes = {"options": [2, 3, 4, 5, 6, 12], "layout": {"width": "10em"}}
    sizes["style"] = {"description_width": "initial"}
    controls = {
        "step": Number("step", 4, 0, 36, 1),
        "causal": widgets.Checkbox(value=True, description="causal", indent=False),
        "block_q": widgets.Dropdown(description="block_q", value=4, **sizes),
        "block_k": widgets.Dropdown(description="block_k", value=3, **sizes),
    }
    moving = [tiles, output, moved, *(text for row in numbers for text in row)]
    return Explorer(figure, moving, controls, update, columns=2)


def _span(part):
    return f"{part.start + 1}–{part.stop}"
