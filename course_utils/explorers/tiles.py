"""The explorer of lesson 06: attention tile by tile."""

import ipywidgets as widgets
import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.collections import PolyCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course_utils.explorers.base import Explorer, Number
from course_utils.figures import DIVERGING, SEQUENTIAL
from course_utils.tiled import blocks, key_blocks, tile_scores, tile_update

STATES = ["not yet", "skipped", "done", "in fast memory"]
COLOURS = ["1.0", "0.75", *colormaps[SEQUENTIAL]([0.1, 0.95])]
N, D = 12, 4
START = {"block_q": 4, "block_k": 3}


def tile_explorer():
    """Step through the tiles of attention over 12 tokens; watch m, ℓ, O and the bytes moved.

    Returns
    -------
    Explorer
        With controls ``step`` (tiles taken so far, up to all there are), ``block_q``, ``block_k``
        and ``causal``. A press on a tile goes to its step.
    """
    rng = torch.Generator().manual_seed(6)
    q, k, v = torch.randn(3, N, D, generator=rng).unbind()  # (N, D) each
    naive = 4 * (4 * N * N + 4 * N * D)  # bytes: scores and weights, each written and read
    figure = Figure(figsize=(7, 5.3), dpi=80)
    above, below = figure.subfigures(2, 1, height_ratios=[4, 1])
    left, right = above.subplots(1, 2, width_ratios=[3, 3.2])
    tiles = left.imshow(np.zeros((N, N)), cmap=ListedColormap(COLOURS), vmin=-0.5, vmax=3.5)
    edges = left.add_collection(PolyCollection([], facecolor="none", edgecolor="0.5"))
    left.set(xlabel="keys: rows of K and V", ylabel="queries: rows of Q", title="tiles")
    looks = [Patch(facecolor=c, edgecolor="0.3") for c in COLOURS]
    left.legend(looks, STATES, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize=8)
    cmap = colormaps[DIVERGING].with_extremes(bad=COLOURS[1])  # of 0 / 0, where nothing is read yet
    output = right.imshow(np.zeros((N, D)), cmap=cmap, vmin=-2, vmax=2, aspect="auto")
    right.set(
        xticks=range(D),
        xlabel="columns of O (grey: none yet)",
        title="m        ℓ        O / ℓ so far",
    )
    right.set(xlim=(-4.5, D - 0.5))
    above.colorbar(output, ax=right, shrink=0.8, label="O / ℓ")
    numbers = [[right.text(x, i, "", ha="center", va="center", fontsize=9) for x in (-3.6, -1.7)]
               for i in range(N)]  # fmt: skip
    for ax in (left, right):
        ax.set(yticks=range(N))
    left.set(xticks=range(N))
    left.tick_params(axis="x", labelsize=8)
    traffic = below.subplots()
    moved = traffic.barh(["tiled", "naive"], [0, naive], color=["C0", "0.7"])[0]
    traffic.set(xlabel="bytes moved", xlim=(0, 1.05 * naive))
    traffic.invert_yaxis()
    above.subplots_adjust(left=0.1, right=0.96, bottom=0.27, top=0.92, wspace=0.25)
    below.subplots_adjust(left=0.1, right=0.96, bottom=0.48, top=0.98)

    def update(step, block_q, block_k, causal):
        plan = _plan(block_q, block_k, causal)
        skipped = len(_plan(block_q, block_k, False)) - len(plan)
        states = np.ones((N, N))  # skipped, unless in the plan
        for tile in plan:
            states[tile] = 0
        m, ell, out = torch.full((N,), -torch.inf), torch.zeros(N), torch.zeros(N, D)
        for rows, columns in plan[:step]:
            states[states == 3] = 2
            states[rows, columns] = 3
            offset = 0 if causal else None
            scores = tile_scores(q[rows] / D**0.5, k[columns], None, offset, rows, columns)
            new = tile_update(m[rows], ell[rows], out[rows], scores, v[columns])
            m[rows], ell[rows], out[rows] = new
        tiles.set_data(states)
        edges.set_verts([_corners(*tile) for tile in plan])
        output.set_data((out / ell[:, None]).numpy())
        for row, (largest, total) in enumerate(numbers):
            begun = ell[row] > 0
            largest.set_text(f"{m[row]:.2f}" if begun else "−∞")
            total.set_text(f"{ell[row]:.2f}" if begun else "0")
        sent = _bytes_moved(plan, step)
        moved.set_width(sent)
        now = "nothing read yet"
        if step:
            rows, columns = plan[step - 1]
            now = (
                f"in fast memory queries {_span(rows)}, keys and values {_span(columns)}; the "
                f"first of these queries has m = {m[rows][0]:.2f}, ℓ = {ell[rows][0]:.2f}"
            )
        found = ""
        if step == len(plan) and START != {"block_q": block_q, "block_k": block_k}:
            before = _plan(**START, causal=causal)
            found = (
                f"; found: {sent} bytes in all, where block_q = {START['block_q']} and block_k = "
                f"{START['block_k']} move {_bytes_moved(before, len(before))}"
            )
        return (
            f"step {step} of {len(plan)}: {now}; {sent} bytes moved (naive attention: {naive} "
            f"in all); tiles skipped: {skipped}{found}"
        )

    sizes = {"options": [2, 3, 4, 5, 6, 12], "layout": {"width": "10em"}}
    sizes["style"] = {"description_width": "initial"}
    controls = {
        "step": Number("step", 4, 0, len(_plan(**START, causal=True)), 1),
        "causal": widgets.Checkbox(value=True, description="causal", indent=False),
    } | {name: widgets.Dropdown(description=name, value=at, **sizes) for name, at in START.items()}
    step = controls["step"]

    def plan_now():
        return _plan(*(controls[name].value for name in ("block_q", "block_k", "causal")))

    def rescale(_):
        at_the_end, most = step.value == step.slider.max, len(plan_now())
        step.slider.max = step.box.max = most
        if at_the_end:  # so that other blocks can be compared
            step.slider.value = most

    for name in ("block_q", "block_k", "causal"):
        controls[name].observe(rescale, names="value")  # before the explorer draws

    def press(ax, x, y):
        if ax is left:
            for number, (rows, columns) in enumerate(plan_now(), start=1):
                if rows.start <= y + 0.5 < rows.stop and columns.start <= x + 0.5 < columns.stop:
                    return {"step": number}
        return {}

    moving = [tiles, edges, output, moved, *(text for row in numbers for text in row)]
    return Explorer(figure, moving, controls, update, press=press)


def _plan(block_q, block_k, causal):
    """Return the tiles in the order in which they are read: their rows and columns."""
    offset = 0 if causal else None
    return [
        (rows, columns)
        for rows in blocks(N, block_q)
        for columns in key_blocks(N, block_k, rows, offset)
    ]


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


def _corners(rows, columns):
    """Return the corners of a tile, (4, 2), in the numbers of the picture."""
    left, right, top, bottom = columns.start, columns.stop, rows.start, rows.stop
    return np.array([(left, top), (right, top), (right, bottom), (left, bottom)]) - 0.5


def _span(part):
    return f"{part.start}–{part.stop - 1}"
