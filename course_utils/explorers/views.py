"""The explorer of lesson 08: from all heads to one head to one pair."""

import ipywidgets as widgets
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_utils.explorers.base import Explorer, Number, cut
from course_utils.figures import SEQUENTIAL, as_labels
from course_utils.shapes import expects
from course_utils.views import example, head_lines, pair_products, tile

THE_LESSONS = 11, 0, 6, 1  # layer, head, query and key that lesson 08 draws: it looks at dog
# so wide that all of the explorer is seen at once in a window of 720 pixels
BESIDE = '<div style="display:flex;gap:1em;max-width:780px"><div>{}</div><div>{}</div></div>'


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
        With controls ``layer``, ``head``, ``query`` and ``key`` (positions of tokens). A press
        chooses a head in the left picture, a pair in the right one. It opens on the largest weight
        of what is given, or on the head that the lesson draws. Its last child shows the lines and
        the products as HTML.

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
    start = np.unravel_index(int(weights.argmax()), weights.shape) if any(given) else THE_LESSONS
    tokens = as_labels(tokens, L, "tokens")
    figure = Figure(figsize=(7, 3.5), dpi=80, layout="compressed")
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
    details = widgets.HTML(layout={"flex": "1 0 100%"})  # under the words

    def update(layer, head, query, key):
        frame.set_xy((head * (L + 1) - 1, layer * (L + 1) - 1))
        mark.set_xy((key - 0.5, query - 0.5))
        one = weights[layer, head]  # (L, L)
        image.set_data(one.detach().double().sqrt().numpy())
        named = {"queries": tokens, "keys": tokens}
        lines = head_lines(one, query=query, **named)
        pair = pair_products(q[layer, head], k[layer, head], one, query, key, **named)
        details.value = BESIDE.format(lines.svg, pair.svg)
        found = ""
        looks = key == int(one[query].argmax()) and one[query, key] > 2 / L  # as lines are drawn
        if looks and (query, key) != tuple(start[2:]):  # nobody looked for what it opens on
            found = f"; found: {tokens[query]} looks at {tokens[key]} more than at any other token"
        return f"layer {layer}, head {head}: {lines.description}; {pair.description}{found}"

    def press(ax, x, y):
        across, down = int(x + 0.5), int(y + 0.5)
        if ax is left:
            layer, head = down // (L + 1), across // (L + 1)
            return {"layer": min(layer, layers - 1), "head": min(head, heads - 1)}
        return {"query": min(down, L - 1), "key": min(across, L - 1)}

    # numbers and no dropdowns: their sliders move by arrow keys in JupyterLab too
    most = zip(("layer", "head", "query", "key"), start, weights.shape, strict=True)
    controls = {name: Number(name, int(at), 0, size - 1, 1) for name, at, size in most}
    explorer = Explorer(figure, [frame, image, mark], controls, update, press=press)
    explorer.children = (*explorer.children, details)
    return explorer
