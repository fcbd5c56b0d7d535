"""The explorer of lesson 08: from all heads to one head to one query."""

import ipywidgets as widgets
import numpy as np
import torch
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_utils.attention import attention
from course_utils.explorers.base import Explorer, Number, cut
from course_utils.figures import DIVERGING, as_labels
from course_utils.shapes import expects
from course_utils.views import GAP, example, mosaic, told_apart, without_first

THE_LESSONS = 11, 0, 6, 1  # layer, head, query and key that lesson 08 draws: it looks at dog
GREYS = {True: "C0", False: "0.6"}  # lines of the chosen query, of the others


@expects(q="layers H L d_k", k="layers H L d_k", weights="layers H L L")
def views_explorer(tokens=None, q=None, k=None, weights=None):
    """Move between three views of attention: all heads, one as lines, one query as products.

    Parameters
    ----------
    tokens : sequence of str, (L,), optional
        The four belong together; `course_utils.views.example` if not given.
    q, k : torch.Tensor, (layers, H, L, d_k)
    weights : torch.Tensor, (layers, H, L, L)

    Returns
    -------
    Explorer
        With controls ``layer``, ``head``, ``query`` and ``key`` (positions of tokens), ``several``
        (lines of all heads of the layer, each in the colour of its number) and ``hide`` (lines
        without key 0). A press chooses a head among the tiles, a query or a key among the tokens.
        It opens on the largest weight of what is given, or on the head that the lesson draws.

    Raises
    ------
    TypeError, ValueError
        If only some of the four are given, one is not of the shape above, there are not L tokens,
        or softmax(q · k / √d_k) is not the weight.
    """
    given = [each is not None for each in (tokens, q, k, weights)]
    if not any(given):
        tokens, q, k, weights = example()
    elif not all(given):
        raise ValueError("tokens, q, k and weights belong together: give all four, or none")
    q, k, weights = (each.detach().cpu().double() for each in (q, k, weights))
    if not torch.allclose(attention(q, k, k)[1], weights, atol=1e-3):
        raise ValueError("weights must be softmax(q · k / √d_k); are q and k of another model?")
    layers, heads, L, d_k = q.shape
    opens = weights.clone()
    opens[..., 0] /= 2  # all the weight on the first key may be put aside there: it tells little
    start = np.unravel_index(int(opens.argmax()), opens.shape) if any(given) else THE_LESSONS
    tokens = told_apart(as_labels(tokens, L, "tokens"))
    labels = cut(tokens)
    scores = q @ k.mT / d_k**0.5  # (layers, H, L, L)

    figure = Figure(figsize=(7, 6.5), dpi=80)
    above, below = figure.subfigures(2, 1, height_ratios=[2.1, 1])
    tiles, paths = above.subplots(1, 2, width_ratios=[1.55, 1])  # of the lesson 132 weights a side
    above.subplots_adjust(left=0.07, right=0.975, bottom=0.1, top=0.945, wspace=0.02)
    mosaic(weights, title="all heads", ax=tiles)
    colours = [f"C{h % 10}" for h in range(heads)]
    for number, colour in zip(tiles.get_xticklabels(), colours, strict=True):
        number.set_color(colour)
    for x, align in ((0.2, "right"), (0.8, "left")):
        for y, label in enumerate(labels):
            paths.text(x, y, label, ha=align, va="center", fontsize=8)
    paths.set(xlim=(-0.1, 1.1), ylim=(L - 0.5, -0.5), title="query → key")
    paths.axis("off")
    product, sums, shares = below.subplots(1, 3, sharey=True, width_ratios=[2, 1, 1])
    below.subplots_adjust(left=0.16, right=0.97, bottom=0.26, top=0.88, wspace=0.1)
    product.set(xlabel="feature", ylabel="keys", title="q × k", yticks=range(L))
    product.set_yticklabels(labels, fontsize=8)
    product.locator_params(axis="x", integer=True)
    reach = 1.05 * scores.abs().max().clamp(min=1e-9).item()
    sums.set(xlim=(-reach, reach), xlabel="score", title=f"sum / √{d_k}")
    sums.axvline(0, color="0.7")
    shares.set(xlim=(0, 1), xticks=(0, 0.5, 1), xlabel="weight", title="softmax")

    outline = {"fill": False, "edgecolor": "C3", "linewidth": 3, "clip_on": False, "zorder": 3}
    frame = tiles.add_patch(Rectangle((0, 0), L + 1, L + 1, **outline))
    lines = paths.add_collection(LineCollection([]))
    (ends,) = paths.plot([0.24, 0.76], [0, 0], "s", color="C3", markersize=5)
    image = product.imshow(np.zeros((L, d_k)), cmap=DIVERGING, aspect="auto")
    mark = product.add_patch(Rectangle((-0.5, 0), d_k, 1, **outline))
    bars = [ax.hlines(range(L), 0, 0, lw=5, color="C0") for ax in (sums, shares)]

    def update(layer, head, query, key, several, hide):
        frame.set_xy((head * (L + GAP) - 1, layer * (L + GAP) - 1))
        ends.set_ydata([query, key])
        mark.set_y(key - 0.5)
        shown = weights[layer].clamp(max=1)  # (H, L, L)
        shown = without_first(shown) if hide else shown
        if several:
            drawn = [(h, query, j, colours[h]) for h in range(heads) for j in range(L)]
            aside = np.linspace(-0.3, 0.3, heads)  # so that no head's line covers another's
        else:  # the chosen query's lines last, over the others
            order = sorted(range(L), key=lambda i: i == query)
            drawn = [(head, i, j, GREYS[i == query]) for i in order for j in range(L)]
            aside = np.zeros(heads)
        lines.set_segments([[(0.26, i), (0.74, j + aside[h])] for h, i, j, _ in drawn])
        lines.set_color([(colour, shown[h, i, j].item()) for h, i, j, colour in drawn])
        products = q[layer, head, query] * k[layer, head]  # (L, d_k)
        largest = products.abs().max().clamp(min=1e-9).item()
        image.set_data(products.numpy())
        image.set_clim(-largest, largest)
        score, weight = scores[layer, head, query], weights[layer, head, query]  # (L,) each
        for each, values in zip(bars, (score, weight), strict=True):
            each.set_segments([[(0, j), (value, j)] for j, value in enumerate(values.tolist())])

        most, looks = weights[layer, :, query].max(dim=-1)  # (H,) each
        told = [f"{h} at {tokens[looks[h]]} {most[h]:.2f}" for h in range(heads)]
        told = ", ".join(told if several else told[head : head + 1])
        text = f"layer {layer}, {tokens[query]} looks most in head {told}"
        if hide:
            text += f"; key 0 left out of the lines, its weight {weight[0]:.2f}"
        text += (
            f"; {tokens[query]}→{tokens[key]}: {d_k} products sum to {products[key].sum():.2f}, "
            f"divided by √{d_k}: {score[key]:.2f}; softmax over {L} keys: {weight[key]:.2f}"
        )
        if key == looks[head] and (query, key) != tuple(start[2:]):  # not what it opens on
            text += f"; found: {tokens[query]} looks at {tokens[key]} more than at any other token"
        return text

    def press(ax, x, y):
        down = min(max(int(y + 0.5), 0), L - 1)
        if ax is tiles:
            layer, head = int(y + 0.5) // (L + GAP), int(x + 0.5) // (L + GAP)
            return {"layer": min(layer, layers - 1), "head": min(head, heads - 1)}
        return {"query" if ax is paths and x < 0.5 else "key": down}

    # numbers and no dropdowns: their sliders move by arrow keys in JupyterLab too
    opened = zip(("layer", "head", "query", "key"), start, weights.shape, strict=True)
    controls = {name: Number(name, int(at), 0, size - 1, 1) for name, at, size in opened}
    for name, label in (("several", "all heads of the layer"), ("hide", "lines without key 0")):
        controls[name] = widgets.Checkbox(value=False, description=label, indent=False)
    moving = [frame, lines, ends, image, mark, *bars]
    return Explorer(figure, moving, controls, update, press=press)
