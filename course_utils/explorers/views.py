"""The explorer of lesson 08: from all heads to one head to one pair."""

import ipywidgets as widgets
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_utils.explorers.base import Explorer, Number, cut
from course_utils.figures import SEQUENTIAL, as_labels
from course_utils.shapes import expects
from course_utils.views import example, head_lines, pair_products, tile


@expects(q="layers H L d_k", k="layers H L d_k", weights="layers H L L")
def views_explorer(tokens=None, q=None, k=None, weights=None):
    """Move between three views of attention: all heads, one head as lines, one pair as products.

    Parameters
    ----------
    tokens : sequence of str, (L,), optional
        The four belong together; `course_utils.views.example` if not given.
    q, k : torch.Tensor, (layers, H, L, d_k)
    weights : torch.Tensor, (layers, H, L, L)

    Returns
    -------
    Explorer
        With controls ``layer``, ``head``, ``query`` and ``key`` (positions of tokens). Its last
        child shows the lines and the products as HTML.

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
    layers, heads, L, _ = weights.shape
    tokens = as_labels(tokens, L, "tokens")
    figure = Figure(figsize=(9.5, 4.4), dpi=80, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.3, 1])
    look = {"cmap": SEQUENTIAL, "vmin": 0, "vmax": 1}
    left.imshow(np.sqrt(tile(weights)), interpolation="nearest", aspect="auto", **look)
    # a tile is L + 1 wide, with its gap
    places = [np.arange(n) * (L + 1) + (L - 1) / 2 for n in (heads, layers)]
    left.set(xticks=places[0], xticklabels=range(heads), xlabel="head", title="all heads")
    left.set(yticks=places[1], yticklabels=range(layers), ylabel="layer")
    outline = {"fill": False, "edgecolor": "C3", "linewidth": 3, "clip_on": False, "zorder": 3}
    frame = left.add_patch(Rectangle((0, 0), L + 1, L + 1, **outline))
    image = right.imshow(np.zeros((L, L)), **look)
    numbered = [f"{label} {place}" for place, label in enumerate(cut(tokens))]
    right.set(xticks=range(L), xticklabels=numbered, yticks=range(L), yticklabels=numbered)
    right.tick_params(axis="x", rotation=90)
    right.set(xlabel="keys", ylabel="queries", title="one head: √weight")
    mark = right.add_patch(Rectangle((0, 0), 1, 1, **outline))
    details = widgets.HTML()

    def update(layer, head, query, key):
        frame.set_xy((head * (L + 1) - 1, layer * (L + 1) - 1))
        mark.set_xy((key - 0.5, query - 0.5))
        one = weights[layer, head]  # (L, L)
        image.set_data(one.detach().double().sqrt().numpy())
        named = {"queries": tokens, "keys": tokens}
        lines = head_lines(one, query=query, **named)
        pair = pair_products(q[layer, head], k[layer, head], one, query, key, **named)
        details.value = lines.svg + pair.svg
        return f"layer {layer}, head {head}: {lines.description}; {pair.description}"

    controls = {
        "layer": Number("layer", 0, 0, layers - 1, 1),
        "head": Number("head", 0, 0, heads - 1, 1),
        # numbers and no dropdowns: their sliders move by arrow keys in JupyterLab too
        "query": Number("query", 0, 0, L - 1, 1),
        "key": Number("key", 0, 0, L - 1, 1),
    }
    explorer = Explorer(figure, [frame, image, mark], controls, update, columns=2)
    explorer.children = (*explorer.children, details)
    return explorer
