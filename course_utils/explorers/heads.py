"""The explorer of lesson 05: what each head looks at."""

import ipywidgets as widgets
import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_utils.explorers.base import Explorer, Number, cut
from course_utils.figures import SEQUENTIAL, as_labels, first_largest
from course_utils.shapes import expects

EVERY = "every token"
FEWEST_TOLD = 0.05  # weights below it are left out of the words
MOST_NAMED = 12  # small pictures over which there is room for the word "head"
RULES = {  # of query i and key j, and whether their tokens are the same
    "the token before": lambda i, j, same: j == i - 1,
    "the token after": lambda i, j, same: j == i + 1,
    "the first token": lambda i, j, same: j == 0,
    "the same token": lambda i, j, same: same,
    "itself": lambda i, j, same: j == i,
    "all tokens so far": lambda i, j, same: j <= i,
}
MOST_STRAY = 0.25  # of each query's weight: so much may lie elsewhere than its rule says


@expects(weights="H L L")
def head_explorer(weights=None, tokens=None):
    """See all heads at once, choose one, and follow its weights from token to token.

    Parameters
    ----------
    weights : torch.Tensor, (H, L, L), optional
        Of one sequence with itself. By default those of six heads written by hand, one rule each.
    tokens : sequence of str, (L,), optional
        By default their numbers, from 0.

    Returns
    -------
    Explorer
        With controls ``head`` (counted from 0) and ``query`` (one token, as "0 the", or `EVERY`).
        A press chooses a head by its small picture, a token by its row of the large one.

    Raises
    ------
    TypeError, ValueError
        If weights is not a tensor of that shape, holds what is no weight, or there are not L
        tokens.
    """
    if weights is None:
        weights, tokens = _by_hand()
    values = weights.detach().cpu().double().numpy()
    if not values.size or not ((values >= 0) & (values <= 1.001)).all():
        raise ValueError("weights must be from 0 to 1, and at least one; are these scores?")
    H, L, _ = values.shape
    numbers = [str(i) for i in range(L)]
    tokens = as_labels(numbers if tokens is None else tokens, L, "tokens")
    labels = cut(tokens)

    figure = Figure(figsize=(7, 5.4), dpi=80)
    small, large = figure.subfigures(2, 1, height_ratios=[1, 2.8])
    outline = {"fill": False, "ec": "C3", "zorder": 3}  # over the axes' own frame
    tiles, frames = [*small.subplots(1, H, squeeze=False)[0]], []
    for h, ax in enumerate(tiles):
        ax.imshow(values[h], cmap=SEQUENTIAL, vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
        ax.set_title(f"head {h}" if H <= MOST_NAMED else h, fontsize=9)
        frames.append(ax.add_patch(Rectangle((-0.5, -0.5), L, L, lw=5, **outline)))
    small.subplots_adjust(left=0.02, right=0.98, bottom=0.02, top=0.84)
    matrix, paths = large.subplots(1, 2)
    picture = matrix.imshow(values[0], cmap=SEQUENTIAL, vmin=0, vmax=1)
    row = matrix.add_patch(Rectangle((-0.5, 0), L, 1, lw=2, **outline))
    matrix.set(xticks=range(L), yticks=range(L), xlabel="keys", ylabel="queries")
    matrix.set_xticklabels(labels, rotation=90 if max(map(len, labels)) > 2 else 0)
    matrix.set_yticklabels(labels)
    for side, align in ((0, "right"), (1, "left")):
        for i, label in enumerate(labels):
            paths.text(side + 0.04 * (2 * side - 1), i, label, ha=align, va="center")
    ends = [[(0, i), (1, j)] for i in range(L) for j in range(L)]
    lines = paths.add_collection(LineCollection(ends))
    paths.set(xlim=(-0.6, 1.6), ylim=(L - 0.5, -0.5), title="queries → keys")
    paths.axis("off")
    key = large.add_axes((0.72, 0.12, 0.2, 0.03))
    large.colorbar(picture, key, orientation="horizontal", ticks=[0, 0.5, 1], label="weight")
    large.subplots_adjust(left=0.19, right=0.97, bottom=0.28, top=0.92, wspace=0.05)
    named = zip(numbers, tokens, strict=True)
    names = [number if number == token else f"{number} {token}" for number, token in named]
    rules = _rules(tokens)
    followed = [[name for name in rules if _follows(head, rules[name])] for head in values]

    def update(head, query):
        chosen = slice(None) if query == EVERY else names.index(query)
        picture.set_data(values[head])
        for h, frame in enumerate(frames):
            frame.set_visible(h == head)
        row.set_visible(query != EVERY)
        shown = np.zeros((L, L))
        shown[chosen] = values[head, chosen]
        lines.set_color(colormaps["Blues"](0.4 + 0.6 * shown.flatten()))
        lines.set_alpha(shown.flatten().clip(0, 1))
        lines.set_linewidth(4 * shown.flatten())
        if query == EVERY:
            strongest = first_largest(values[head])
            told = [_entry(values[head], names, i, j) for i, j in enumerate(strongest)]
            return f"head {head} of {H}; strongest of each token: {', '.join(told)}"
        row.set_y(chosen - 0.5)
        order = np.argsort(-values[head, chosen].round(6), kind="stable")  # ties in their order
        told = [f"{names[j]} {values[head, chosen, j]:.2f}" for j in order]
        told = told[: max(1, int((values[head, chosen] >= FEWEST_TOLD).sum()))]
        # a token for which the rule has no key shows nothing of it
        found = " or ".join(name for name in followed[head] if rules[name][chosen].any())
        found = f"; found: each token looks at {found}" if found else ""
        return f"head {head} of {H}; {query} looks at: {', '.join(told)}{found}"

    def press(ax, x, y):
        if ax in tiles:
            return {"head": tiles.index(ax)}
        return {"query": names[min(int(y + 0.5), L - 1)]} if ax is matrix else {}

    controls = {
        "head": Number("head", 0, 0, H - 1, 1),
        "query": widgets.Dropdown(
            description="from",
            options=[EVERY, *names],
            style={"description_width": "initial"},
            layout={"width": "14em"},
        ),
    }
    return Explorer(figure, [*frames, picture, row, lines], controls, update, press=press)


def _entry(matrix, names, i, j):
    return f"{names[i]} → {names[j]} {matrix[i, j]:.2f}"


def _rules(tokens):
    """Return for each of `RULES` where it lets a query look, (L, L)."""
    i, j = np.indices((len(tokens), len(tokens)))
    same = np.array(tokens)[:, None] == np.array(tokens)
    return {name: np.broadcast_to(rule(i, j, same), i.shape) for name, rule in RULES.items()}


def _follows(weights, rule):
    """Say whether each query that has keys by the rule spreads its weight evenly over them."""
    has = rule.any(axis=1)
    even = rule[has] / rule[has].sum(axis=1, keepdims=True)
    return (np.maximum(even - weights[has], 0).sum(axis=1) <= MOST_STRAY).all()


def _by_hand():
    """Return the weights (6, L, L) of six heads with one rule each, and their tokens."""
    tokens = "the cat saw the dog because the dog barked".split()
    scores = torch.tensor(np.array([*_rules(tokens).values()])) * 4.0  # (H, L, L)
    return scores.softmax(dim=-1), tokens
