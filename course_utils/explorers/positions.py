"""The explorer of lesson 09: two tokens on a line, their clock hands, the product of the two."""

import ipywidgets as widgets
import torch
from matplotlib.figure import Figure

from course_utils.attention import rotary
from course_utils.explorers.base import Explorer, Number

LAST = 31  # the last place
CONTENT = torch.tensor([1.0, 1, 1, 1, 0, 0, 0, 0]).double()  # (d_k,)
CLOCKS = len(CONTENT) // 2
MEET = 20  # degrees
PAIRS = {"halves": (4, 1), "interleaved": (1, 2)}  # steps within a pair, and to the next one


def positions_explorer():
    """Move a query and a key along a line; watch their hands turn, and their product.

    Query and key have the same eight numbers, 1 1 1 1 0 0 0 0, so without turning their product
    is 4. Both can be dragged along the line.

    Returns
    -------
    Explorer
        With controls ``i`` and ``j`` (places of query and key), ``power`` (the base is 10 to this
        power) and ``layout`` ("halves" or "interleaved").
    """
    figure = Figure(figsize=(7, 5.6), dpi=80)
    grid = figure.add_gridspec(3, CLOCKS, height_ratios=[0.75, 1.5, 1.5], hspace=0.55, wspace=0.25)
    line = figure.add_subplot(grid[0, :])
    clocks = [figure.add_subplot(grid[1, m]) for m in range(CLOCKS)]
    curve = figure.add_subplot(grid[2, :])
    figure.subplots_adjust(left=0.1, right=0.97, top=0.93, bottom=0.12)

    line.set(xlim=(-0.8, LAST + 0.8), ylim=(-1, 1), yticks=[], title="places: drag q or k")
    line.plot(range(LAST + 1), [0] * (LAST + 1), "|", color="0.6")
    tokens = [line.text(0, y, name, color=c, ha="center", va="center", fontsize=13, weight="bold")
              for y, name, c in ((0.5, "q", "C0"), (-0.5, "k", "C1"))]  # fmt: skip
    hands, names = [], []
    for m, ax in enumerate(clocks):
        ax.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), xticks=[], yticks=[], aspect="equal")
        ax.plot(*_circle(), color="0.8")
        hands.append([ax.plot([], [], color=c, linewidth=w)[0] for c, w in (("C0", 5), ("C1", 2))])
        names.append(ax.text(0, -1.5, "", ha="center", va="bottom", fontsize=8))
        ax.set_title(f"clock {m}", fontsize=9)
    (product,) = curve.plot([], [], color="C2")
    (here,) = curve.plot([], [], "o", color="C3")
    curve.set(xlim=(-LAST, LAST), ylim=(-4.4, 4.4), ylabel="product of q and k")
    curve.set_xlabel("how many places k stands before q: i − j")
    curve.axhline(0, color="0.8", linewidth=1, zorder=1)  # under what moves

    def update(i, j, power, layout):
        base, interleaved = 10**power, layout == "interleaved"
        both = CONTENT.expand(2, -1)  # (2, d_k)
        q, k = rotary(both, torch.tensor([i, j]), base, interleaved)  # (d_k,) each
        within, step = PAIRS[layout]
        for m, (of_q, of_k) in enumerate(hands):
            a, b = m * step, m * step + within
            of_q.set_data([0, q[a]], [0, q[b]])
            of_k.set_data([0, k[a]], [0, k[b]])
            names[m].set_text(f"entries {a}, {b}")
        for text, place in zip(tokens, (i, j), strict=True):
            text.set_x(place)
        distances = torch.arange(-LAST, LAST + 1)
        all_q = rotary(CONTENT.expand(len(distances), -1), distances, base, interleaved)
        product.set_data(distances, all_q @ CONTENT)  # as if k stood at place 0
        here.set_data([i - j], [q @ k])
        told = f"query at {i}, key at {j}, {i - j} before it: product {q @ k:z.2f}"
        return f"{told}, base {base:,}, {layout}{found(i - j, base, layout)}"

    def found(distance, base, layout):
        speeds = base ** (-torch.arange(CLOCKS) / CLOCKS)  # (CLOCKS,), radians a place
        apart = distance * speeds * 180 / torch.pi
        apart = (apart + 180) % 360 - 180  # (CLOCKS,), degrees from -180 to 180
        if layout == "interleaved":
            return "; these numbers were meant for halves: two clocks have no hands"
        if distance and apart[0].abs() < MEET:
            return f"; found: at distance {distance} the hands of clock 0 meet again"
        if LAST * speeds[-1] > torch.pi:
            return "; found: even the slowest clock goes round by half within the line"
        return ""

    def press(ax, x, y):
        if ax is not line:
            return {}
        return {"i" if y > 0 else "j": min(max(round(x), 0), LAST)}

    controls = {
        "i": Number("place of q", 12, 0, LAST, 1),
        "j": Number("place of k", 9, 0, LAST, 1),
        "power": Number("base: 10 to the power", 4, 1, 6, 1),
        "layout": widgets.Dropdown(
            description="pairs are", options=list(PAIRS), layout={"width": "220px"}
        ),
    }
    moving = [*tokens, *(hand for pair in hands for hand in pair), *names, product, here]
    return Explorer(figure, moving, controls, update, press=press, drag=True)


def _circle():
    angles = torch.linspace(0, 2 * torch.pi, 61)
    return angles.cos(), angles.sin()
