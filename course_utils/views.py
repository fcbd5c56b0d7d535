"""Three views of attention: all heads as a mosaic, one head as lines, one query as products.

The three scales are those of Jesse Vig's BertViz ("A multiscale visualization of attention in the
transformer model", 2019). Each view works like the figures of `course_utils.figures`: it takes
data, returns Axes and describes itself in words.
"""

from numbers import Integral

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.collections import LineCollection
from matplotlib.colors import PowerNorm

from course_utils.attention import attention
from course_utils.figures import (
    DIVERGING,
    LONGEST_SIDE,
    PER_INCH,
    SEQUENTIAL,
    WIDEST,
    as_labels,
    plain,
)
from course_utils.shapes import expects

TOKENS = "the dog left the park because it was tired".split()
# Square roots, so that small weights differ visibly from zero. White is not in the color map.
SHADES = {"cmap": colormaps[SEQUENTIAL].with_extremes(bad="w"), "norm": PowerNorm(0.5, 0, 1)}
GAP = 2  # weights; a narrower gap would hide the light column of a first key


def example():
    """Return the tokens, queries, keys and weights of 12 layers of 12 heads, all drawn at random.

    Every token has a random vector, and every head has random W_q and W_k. Nothing is trained, and
    no layer feeds into the next, so every pattern in these heads is there by chance.

    Returns
    -------
    tokens : list of str, (L,)
    q, k : torch.Tensor, (layers, H, L, d_k)
    weights : torch.Tensor, (layers, H, L, L)
    """
    rng = torch.Generator().manual_seed(8)
    d_model, d_k = 64, 16
    x = torch.randn(len(TOKENS), d_model, generator=rng)  # (L, d_model)
    W_q, W_k = torch.randn(2, 12, 12, d_model, d_k, generator=rng) / d_model**0.5
    q, k = x @ W_q, x @ W_k  # (layers, H, L, d_k)
    return list(TOKENS), q, k, attention(q, k, k)[1]


@expects(weights="layers H L S")
def mosaic(weights, *, wide=False, title=None, ax=None):
    """Draw all heads at once, with one row of tiles per layer and one column per head.

    Each tile is the weight matrix of a head. The shade is the square root of the weight, so small
    weights differ visibly from zero. It has the same range in all tiles, so they can be compared.

    Parameters
    ----------
    weights : torch.Tensor, (layers, H, L, S)
    wide : bool
        Draw one column per layer and one row per head instead, for a model of many layers.
    title : str, optional
    ax : matplotlib.axes.Axes, optional
        If not given, a new figure with a color bar is made.

    Returns
    -------
    matplotlib.axes.Axes
        Its image has shape (rows · (L + `GAP`), columns · (S + `GAP`)), with NaN in the gaps.

    Raises
    ------
    TypeError, ValueError
        If weights is not a tensor of the shape above, or has entries outside [0, 1].
    """
    check_weights(weights)
    layers, heads, L, S = weights.shape
    tiles = weights.transpose(0, 1) if wide else weights
    rows, columns, height, width = len(tiles), len(tiles[0]), L + GAP, S + GAP
    tiled = np.full((rows, height, columns, width), np.nan)
    tiled[:, :L, :, :S] = tiles.detach().cpu().double().transpose(1, 2).numpy()
    with_bar = ax is None
    if with_bar:
        size = np.minimum((2 + 0.5 * columns, 1 + 0.5 * rows * height / width), LONGEST_SIDE)
        size *= min(1, WIDEST / PER_INCH / size[0]) if wide else 1
        _, ax = plt.subplots(figsize=size, layout="constrained")
    shape = rows * height, columns * width
    image = ax.imshow(tiled.reshape(shape), interpolation="nearest", **SHADES)
    ax.set_xticks(np.arange(columns) * width + (S - 1) / 2, range(columns))
    ax.set_yticks(np.arange(rows) * height + (L - 1) / 2, range(rows))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    names = ("layer", "head") if wide else ("head", "layer")
    ax.set(xlabel=names[0], ylabel=names[1], title=plain(title))
    if with_bar:
        ticks = {"ticks": [0, 0.05, 0.25, 0.5, 1], "format": "%g"}
        bar = {"pad": 0.01, "fraction": 0.05} if wide else {"shrink": 0.7}
        ax.figure.colorbar(image, label="weight (shade: √weight)", **bar, **ticks)
    peaks = weights.amax(dim=-1).mean(dim=-1)  # (layers, H), the average row's largest weight
    sharp, flat = (divmod(int(i), heads) for i in (peaks.argmax(), peaks.argmin()))
    text = (
        f"{layers} layers of {heads} heads, each {L}×{S} weights; the largest weight in "
        f"a row averages {peaks[sharp]:.2f} in the sharpest head (layer {sharp[0]}, head "
        f"{sharp[1]}) and {peaks[flat]:.2f} in the flattest (layer {flat[0]}, head {flat[1]})"
    )
    ax.description = f"{title}: {text}" if title else text
    return ax


@expects(weights="L S")
def head_lines(weights, *, queries=None, keys=None, title=None, ax=None):
    """Draw one head as lines from queries to keys. The opacity of a line is its weight.

    Parameters
    ----------
    weights : torch.Tensor, (L, S)
    queries, keys : sequence of str, optional
        Tokens, or positions if not given. The position is added to a token that occurs twice.
    title : str, optional
    ax : matplotlib.axes.Axes, optional
        A new figure if not given.

    Returns
    -------
    matplotlib.axes.Axes
        Queries are at x = 0, and keys at x = 1. Its first collection holds the L · S lines.

    Raises
    ------
    TypeError, ValueError
        If weights is not a matrix of weights, or there are not L queries or S keys.
    """
    check_weights(weights)
    L, S = weights.shape
    queries = unique_labels(as_labels(queries, L, "queries"))
    keys = unique_labels(as_labels(keys, S, "keys"))
    values = weights.detach().cpu().double().clamp(max=1).numpy()
    if ax is None:
        _, ax = plt.subplots(figsize=(4, min(0.8 + 0.3 * max(L, S), LONGEST_SIDE)))
    ends = [[(0, i), (1, j)] for i in range(L) for j in range(S)]
    ax.add_collection(LineCollection(ends, colors=[("C0", weight) for weight in values.flat], lw=3))
    for x, align, words in ((-0.04, "right", queries), (1.04, "left", keys)):
        for y, word in enumerate(words):
            ax.text(x, y, plain(word), ha=align, va="center")
    ax.text(-0.04, -1.2, "query", ha="right", va="center", color="0.4")
    ax.text(1.04, -1.2, "key", ha="left", va="center", color="0.4")
    ax.set(xlim=(-0.1, 1.1), ylim=(max(L, S) - 0.5, -1.7), title=plain(title))
    ax.axis("off")
    i, j = divmod(int(values.argmax()), S)
    text = (
        f"{L}×{S} weights as lines; the largest is {values[i, j]:.2f}, from query {queries[i]!r} "
        f"to key {keys[j]!r}"
    )
    ax.description = f"{title}: {text}" if title else text
    return ax


@expects(q="L d_k", k="S d_k", weights="L S")
def query_products(q, k, weights, query, *, queries=None, keys=None):
    """Draw where a query's weights come from: its products with each key, their sums, softmax.

    Parameters
    ----------
    q : torch.Tensor, (L, d_k)
    k : torch.Tensor, (S, d_k)
    weights : torch.Tensor, (L, S)
        The attention weights of this head, softmax(q · k / √d_k).
    query : int
        The index of the query.
    queries, keys : sequence of str, optional
        Tokens, or positions if not given. The position is added to a token that occurs twice.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes of the products, (S, d_k). Next to it, scores and weights are drawn as bars.

    Raises
    ------
    TypeError, ValueError
        If shapes do not fit, or the weights are not softmax(q · k / √d_k), for example because q
        and k belong to another head.
    """
    (L, S), d_k = weights.shape, q.shape[-1]
    queries = unique_labels(as_labels(queries, L, "queries"))
    keys = unique_labels(as_labels(keys, S, "keys"))
    _check_query(query, L)
    q, k, weights = (x.detach().cpu().double() for x in (q, k, weights))
    row = attention(q, k, k)[1][query]  # (S,)
    if not torch.allclose(row, weights[query], atol=1e-3):
        worst = int((row - weights[query]).abs().argmax())
        raise ValueError(
            f"weights must be softmax(q · k / √d_k): for query {query} and key {worst} that is "
            f"{row[worst]:.3f}, got {weights[query, worst]:.3f}; does q or k belong to "
            "another head?"
        )
    products, row = (q[query] * k).numpy(), row.numpy()  # (S, d_k), (S,)
    scores = products.sum(axis=1) / d_k**0.5  # (S,)
    height = min(1.4 + 0.3 * S, LONGEST_SIDE)
    layout = {"sharey": True, "width_ratios": [3, 1.4, 1.4], "layout": "constrained"}
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10, height), **layout)
    largest = max(np.abs(products).max(), 1e-9)
    colors = {"cmap": DIVERGING, "vmin": -largest, "vmax": largest, "aspect": "auto"}
    bar = figure.colorbar(left.imshow(products, **colors))
    bar.ax.set_xlabel("product")  # a label beside the bar would look like that of the scores
    left.set(xlabel="feature", ylabel="key", title=plain(f"{queries[query]}: q × k"))
    left.set_yticks(range(S), [plain(key) for key in keys])
    middle.barh(range(S), scores)
    middle.axvline(0, color="0.7")
    middle.set(xlabel="score", title=f"sum / √{d_k}")
    right.barh(range(S), row)
    right.set(xlabel="weight", xlim=(0, 1), xticks=(0, 0.5, 1), title="softmax")
    j = int(row.argmax())
    left.description = (
        f'"{queries[query]}" with each of {S} keys: {d_k} products; those with "{keys[j]}" sum to '
        f"{products[j].sum():.2f}, divided by √{d_k}: {scores[j]:.2f}; softmax over {S} keys: "
        f"{row[j]:.2f}, the largest, as shown"
    )
    return left


def unique_labels(labels):
    """Return labels that all differ. The position is added to a label that occurs twice."""
    return [f"{label} {n}" if labels.count(label) > 1 else label for n, label in enumerate(labels)]


def check_weights(weights):
    """Raise an error unless the entries of a tensor are floating point, and from 0 to 1."""
    if not weights.is_floating_point():
        raise TypeError(f"weights must be floating point, got {weights.dtype}")
    if weights.numel() == 0 or not (weights >= 0).all() or not (weights <= 1.001).all():
        raise ValueError("weights must be from 0 to 1, and at least one; are these scores?")


def _check_query(query, n):
    if isinstance(query, bool) or not isinstance(query, Integral):
        raise TypeError(f"query must be an int, got {type(query).__name__}")
    if not 0 <= query < n:
        raise ValueError(f"query must be from 0 to {n - 1}, got {query}")
