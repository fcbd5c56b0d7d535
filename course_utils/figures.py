"""Figures of the course: data in, Axes out. Each figure describes itself in words.

A figure function takes data and an optional ``ax``. It draws, sets ``ax.description`` to a
sentence computed from the data, and returns the Axes. `show` displays the picture with its
description.
"""

import base64
import html
import io
import re

import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import HTML, display
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from PIL import Image

# Color maps that work for color-blind readers; the sequential one works in grayscale too.
SEQUENTIAL, DIVERGING = "cividis", "RdBu_r"
WRONG = ListedColormap(["C3"])
plt.rcParams["image.cmap"] = SEQUENTIAL  # for pictures that a lesson draws itself
# Letters of 11 to 12 CSS pixels, at PER_INCH, in every picture.
plt.rcParams.update({"font.size": 10, "axes.titlesize": 11})
EVEN_CONTRAST = 0.22  # luminance of a cell on which white and dark numbers read equally well
LARGEST_ANNOTATED = 100  # most entries of a matrix with a number in each cell
NARROWEST_ANNOTATED = 0.28  # inches of a cell with a number, before the color bar takes its part
MOST_ROWS_DESCRIBED = 10  # most rows of a matrix that a description lists one by one
TIE = 1e-4  # of the largest entry: a smaller difference may be rounding, as on another CPU
LONGEST_SIDE = 20  # inches of a figure; in larger ones the cells shrink, to save memory
MOST_POINTS_DESCRIBED = 12  # most points of a line that a description lists one by one
MOST_TICKS = 10  # most x values with a tick at each
PER_INCH = 80  # CSS pixels for an inch of a figure
DENSITY = 2  # image pixels for a CSS pixel, as on a high-resolution screen
WIDEST = 820  # CSS pixels: JupyterLab's column in a 1280 window with the file browser open
MOST_MARKERS = 30  # most x values with a marker at each
HISTOGRAM_BINS = 80
LONGEST_TEXT = 100  # characters of a label or title; longer ones are cut


def show(ax, description=None):
    """Display the figure of ``ax`` once, with its description folded under it.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Any Axes of the figure.
    description : str, optional
        If not given, the descriptions of all Axes of the figure are joined.

    Raises
    ------
    TypeError
        If ax is not an Axes.
    ValueError
        If no description is given, and the figure function has set none.
    """
    if not isinstance(ax, Axes):
        raise TypeError(f"ax must be the Axes that heatmap returns, got {type(ax).__name__}")
    figure = ax.get_figure(root=True)
    if description is None:
        descriptions = [getattr(panel, "description", "") for panel in figure.axes]
        description = " | ".join(filter(None, descriptions))
    if not description:
        raise ValueError("description must say what the picture shows: this Axes has none")
    display_picture(figure, description)
    plt.close(figure)


def display_picture(figure, description):
    """Display a figure, with its description folded under it. Shrink one wider than the page.

    JupyterLab and nbconvert drop a picture's alternative text, so the description is a separate
    output. Screen readers can reach it, GitHub shows it, and nbval compares it.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    description : str
    """
    description = printable(description)
    widest = WIDEST / PER_INCH  # in a wider one, all letters would shrink
    figure.set_figwidth(min(figure.get_figwidth(), widest))
    rendered, picture = io.BytesIO(), io.BytesIO()
    figure.savefig(rendered, format="png", dpi=DENSITY * PER_INCH, bbox_inches="tight")
    opaque = Image.open(rendered).convert("RGB")  # a tenth smaller than with transparency
    opaque.save(picture, "png", optimize=True, dpi=(DENSITY * PER_INCH,) * 2)
    width = min(opaque.width // DENSITY, WIDEST)
    png = base64.b64encode(picture.getvalue()).decode()
    metadata = {"image/png": {"width": width}}
    display({"image/png": png, "text/plain": description}, metadata=metadata, raw=True)
    words = f"Picture: {html.escape(description)}."
    display(HTML(f"<details><summary>In words</summary><small>{words}</small></details>"))


def panels(draw, data, *, columns=None, **options):
    """Draw several figures of one kind side by side, with the keys of ``data`` as their titles.

    Parameters
    ----------
    draw : callable
        A function such as `heatmap`, called as ``draw(value, title=title, ax=ax, **options)``.
    data : dict of str to anything
        What each panel shows. The keys are the titles.
    columns : int, optional
        The number of panels in a row. If not given, all panels are in one row.
    **options
        Passed on to ``draw``.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes of the last panel. `show` displays the whole figure.

    Raises
    ------
    ValueError
        If data is empty.

    Examples
    --------
    ``show(panels(heatmap, {"scaled": scaled, "not scaled": raw}))``
    """
    if not data:
        raise ValueError("data must have at least one panel, got an empty dict")
    columns = len(data) if columns is None else min(columns, len(data))
    rows = -(-len(data) // columns)
    size = min(4.2 * columns, WIDEST / PER_INCH), 3.2 * rows
    _, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for empty in axes.flat[len(data) :]:
        empty.set_axis_off()
    for ax, (title, value) in zip(axes.flat, data.items(), strict=False):
        draw(value, title=title, ax=ax, **options)
    return ax


def heatmap(
    weights,
    *,
    queries=None,
    keys=None,
    xlabel="keys",
    ylabel="queries",
    kind="weights",
    title=None,
    ax=None,
):
    """Draw a matrix with one row per query and one column per key.

    Parameters
    ----------
    weights : torch.Tensor or array, (L, S)
    queries, keys : sequence of str, optional
        Tokens, as tick labels. If not given, the labels are positions.
    xlabel, ylabel : str
    kind : {"weights", "shares", "scores", "distances"}
        Sets the range of the colors: 0 to 1 for weights and shares, symmetric about 0 for scores,
        and from 0 up for distances. Shares are fractions, such as rates of success, whose rows
        need not sum to 1.
    title : str, optional
    ax : matplotlib.axes.Axes, optional
        A new figure if not given.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If weights is not a matrix, kind is unknown, or there are not L queries or S keys.
    """
    import seaborn as sns  # imports pandas, which would double the import time of course_utils

    values = _matrix(weights, "weights")
    largest = np.abs(values[np.isfinite(values)]).max(initial=1e-9)
    colors = {
        "weights": {"vmin": 0, "vmax": 1, "cmap": SEQUENTIAL},
        "shares": {"vmin": 0, "vmax": 1, "cmap": SEQUENTIAL},
        "scores": {"vmin": -largest, "vmax": largest, "cmap": DIVERGING},
        "distances": {"vmin": 0, "vmax": largest, "cmap": SEQUENTIAL},
    }
    if kind not in colors:
        raise ValueError(f"kind must be one of {', '.join(colors)}, got {kind!r}")
    queries = as_labels(queries, values.shape[0], "queries")
    keys = as_labels(keys, values.shape[1], "keys")
    if ax is None:
        rows, columns = values.shape
        size = np.minimum((2 + 0.5 * columns, 1.2 + 0.42 * rows), LONGEST_SIDE)
        _, ax = plt.subplots(figsize=size)
    inches = ax.get_position().size * ax.get_figure(root=True).get_size_inches()
    cell = min(inches / values.shape[::-1])
    longest = max(len(f"{value:.2f}") for value in values.flat)
    has_room = values.size <= LARGEST_ANNOTATED and bool(cell >= NARROWEST_ANNOTATED)
    sns.heatmap(
        values,  # entries that are not finite are left blank
        annot=has_room and (kind != "weights" or not np.isin(values.round(2), (0, 1)).all()),
        fmt=".2f",
        annot_kws={"size": 10 if 0.075 * longest < 0.72 * cell else 8},
        xticklabels=[plain(key) for key in keys],
        yticklabels=[plain(query) for query in queries],
        square=True,
        linewidths=0.5,
        cbar_kws={"shrink": 0.7},
        ax=ax,
        **colors[kind],
    )
    for text in ax.texts:  # seaborn keeps white numbers on cells that are too light for them
        column, row = map(int, text.get_position())
        cell = ax.collections[-1].to_rgba(values[row, column])
        text.set_color("w" if sns.utils.relative_luminance(cell) < EVEN_CONTRAST else "0.15")
    ax.set(xlabel=plain(xlabel), ylabel=plain(ylabel), title=plain(title))
    ax.tick_params(axis="x", rotation=90 if max(map(len, keys)) > 2 else 0)
    ax.tick_params(axis="y", rotation=0)
    ax.description = _describe_matrix(values, queries, keys, kind, title)
    return ax


def mask_pattern(
    mask,
    *,
    wrong=None,
    xlabel="keys (light: may attend)",
    ylabel="queries",
    title=None,
    ax=None,
):
    """Draw a mask: light where a query may attend to a key, dark elsewhere.

    Parameters
    ----------
    mask : torch.Tensor or array of bool, (L, S)
    wrong : torch.Tensor or array of bool, (L, S), optional
        True marks entries of ``mask`` that should be False. Those that are True in ``mask`` are
        drawn in red and counted.
    xlabel, ylabel : str
    title : str, optional
    ax : matplotlib.axes.Axes, optional
        A new figure if not given.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If mask is not a matrix of True and False or of 1 and 0.
    """
    values = _matrix(mask, "mask")
    if not np.isin(values, (0, 1)).all():
        raise ValueError("mask must be True (may attend) or False everywhere, got other numbers")
    rows, columns = values.shape
    if ax is None:
        size = np.minimum((1 + 0.35 * columns, 0.8 + 0.35 * rows), LONGEST_SIDE)
        _, ax = plt.subplots(figsize=size)
    edges = np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5
    ax.pcolormesh(*edges, values, cmap=SEQUENTIAL, vmin=0, vmax=1, edgecolors="w", linewidth=0.5)
    ax.set(xticks=range(columns), yticks=range(rows), aspect="equal", title=plain(title))
    ax.set(xlabel=plain(xlabel), ylabel=plain(ylabel))
    counts = ", ".join(f"{count:.0f}" for count in values.sum(axis=1))
    text = f"{rows}×{columns} mask; number of keys allowed to each query: {counts}"
    if wrong is not None:
        wrong = values * _matrix(wrong, "wrong")
        red = np.ma.masked_equal(wrong, 0)
        ax.pcolormesh(*edges, red, cmap=WRONG, vmin=0, vmax=1, edgecolors="w", linewidth=0.5)
        text = f"{rows}×{columns} cells; number of light or red cells in each row: {counts}"
        text += f"; red cells in all: {wrong.sum():.0f}"
    ax.invert_yaxis()
    ax.description = f"{title}: {text}" if title else text
    return ax


def arrows(vectors, *, labels, title=None, ax=None):
    """Draw vectors in the plane as arrows from the origin.

    Parameters
    ----------
    vectors : torch.Tensor or array, (n, 2)
    labels : sequence of str
    title : str, optional
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
        Its first collection is the quiver, and its texts are the labels.

    Raises
    ------
    ValueError
        If vectors does not have shape (n, 2) or is not finite, or there are not n labels.
    """
    vectors = _matrix(vectors, "vectors")
    if vectors.shape[1] != 2:
        raise ValueError(f"vectors must have shape (n, 2), got {vectors.shape}")
    if not np.isfinite(vectors).all():
        raise ValueError("vectors must be finite: an arrow to infinity or NaN cannot be drawn")
    labels = as_labels(labels, len(vectors), "labels")
    if ax is None:
        _, ax = plt.subplots(figsize=(4, 4))
    origin = np.zeros(len(vectors))
    colors = [f"C{i}" for i in range(len(vectors))]
    ax.quiver(
        origin,
        origin,
        *vectors.T,
        color=colors,
        angles="xy",
        scale_units="xy",
        scale=1,
        width=0.012,
    )
    for vector, label, color in zip(vectors, labels, colors, strict=True):
        offset = {"xytext": (5, 5), "textcoords": "offset points"}
        ax.annotate(plain(label), vector, **offset, color=color)
    reach = 1.25 * max(np.abs(vectors).max(), 1e-9)
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    ax.set(xlabel="first component", ylabel="second component", title=plain(title))
    ax.axhline(0, color="0.85", zorder=0)
    ax.axvline(0, color="0.85", zorder=0)
    tips = (f"{name} at ({x:.2f}, {y:.2f})" for name, (x, y) in zip(labels, vectors, strict=True))
    text = "arrows from the origin: " + ", ".join(tips)
    ax.description = f"{title}: {text}" if title else text
    return ax


def lines(x, series, *, xlabel, ylabel, log=False, ylim=None, title=None, ax=None):
    """Draw one line for each entry of ``series`` over the same x.

    Parameters
    ----------
    x : sequence of numbers, (n,)
    series : dict of str to sequence of numbers, (n,) each
    xlabel, ylabel : str
    log : bool or {"x", "y"}
        Which axes are logarithmic. True means both.
    ylim : tuple of two numbers, optional
    title : str, optional
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If x is not a sequence of at least one number, or a series does not have n numbers.
    """
    x = _numbers(x, "x")
    if x.ndim != 1 or not len(x):
        raise ValueError(f"x must have shape (n,) with n from 1, got {x.shape}")
    if ax is None:
        _, ax = plt.subplots(figsize=(6, 3.5))
    handles, ways = ax.get_legend_handles_labels()[0], []
    numbers = _series(series, "x", len(x))
    finite = np.array([*numbers.values()])
    finite = finite[np.isfinite(finite)]
    span = np.ptp(finite) if finite.size else 0
    for (name, y), marker in zip(numbers.items(), "osv^Dx*" * len(series), strict=False):
        marker = marker if len(x) <= MOST_MARKERS else None
        handles += ax.plot(x, y, marker=marker, markersize=4, label=plain(name))
        ways.append(f"{name}: {_way(x, y, span)}")
    for axis in ("x", "y") if log is True else filter(None, [log]):
        ax.set(**{f"{axis}scale": "log"})
    with np.errstate(divide="ignore", invalid="ignore"):
        spacing = np.diff(np.unique(np.log(x) if log in (True, "x") else x))
    if 0 < len(spacing) < MOST_TICKS and spacing.min() >= spacing.sum() / MOST_TICKS:
        ax.set_xticks(x, [f"{value:g}" for value in x])
        ax.set_xticks([], minor=True)
    ax.set(xlabel=plain(xlabel), ylabel=plain(ylabel), ylim=ylim, title=plain(title))
    ax.legend(handles=handles)  # without handles, names that begin with _ would be left out
    ax.grid(alpha=0.3)
    few = len(x) <= MOST_POINTS_DESCRIBED
    points = ", ".join(f"{value:g}" for value in x) if few else f"from {x[0]:g} to {x[-1]:g}"
    ax.description = f"{ylabel} against {xlabel} ({points}). " + "; ".join(ways)
    return ax


def _way(x, y, span):
    """Describe a line: all of a few points, or both ends, and where it goes far beyond them.

    Far means more than a fifth of ``span``, the range of all lines in the picture.
    """
    if len(x) <= MOST_POINTS_DESCRIBED:
        return ", ".join(map(_short, y))
    words, ends, extremes = f"from {_short(y[0])} to {_short(y[-1])}", y[[0, -1]], []
    if np.isfinite(y).all():
        if y.max() - ends.max() > span / 5:
            extremes.append(f"a peak of {_short(y.max())} at {x[y.argmax()]:.4g}")
        if ends.min() - y.min() > span / 5:
            extremes.append(f"a low of {_short(y.min())} at {x[y.argmin()]:.4g}")
    return f"{words}, with {' and '.join(extremes)}" if extremes else words


def _series(series, over, n):
    """Return each series as an array (n,). The argument named ``over`` has n entries, too."""
    numbers = {name: _numbers(values, f"series[{name!r}]") for name, values in series.items()}
    for name, values in numbers.items():
        if values.shape != (n,):
            raise ValueError(
                f"series[{name!r}] must have shape ({n},) as {over} has, got {values.shape}"
            )
    return numbers


def bars(labels, series, *, xlabel, ylabel, stacked=False, xlim=None, title=None, ax=None):
    """Draw horizontal bars: one group, or one stack, for each label.

    Parameters
    ----------
    labels : sequence of str, (n,)
    series : dict of str to sequence of numbers, (n,) each
        The legend shows its names if there are several.
    xlabel, ylabel : str
    stacked : bool
        Draw the bars of a label end to end, as parts of a sum.
    xlim : tuple of two numbers, optional
    title : str, optional
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If there is no series, or one of them does not have n numbers.
    """
    labels = as_labels(labels, len(labels), "labels")
    if not series:
        raise ValueError("series must have at least one entry, got an empty dict")
    numbers = _series(series, "labels", len(labels))
    in_group = 1 if stacked else len(numbers)
    if ax is None:
        _, ax = plt.subplots(figsize=(8, 1.4 + len(labels) * (0.16 + 0.2 * in_group)))
    height = 0.8 / in_group
    at, left = np.arange(len(labels)), np.zeros(len(labels))
    for index, (name, values) in enumerate(numbers.items()):
        y = at if stacked else at + (index - (in_group - 1) / 2) * height
        drawn = ax.barh(y, values, height, left=left if stacked else None, label=plain(name))
        if stacked:
            left = left + values
        else:
            ax.bar_label(drawn, labels=[_short(value) for value in values], padding=3, fontsize=9)
    ax.set_yticks(at, [plain(label) for label in labels])
    ax.invert_yaxis()
    ax.margins(x=0.12)  # for the numbers behind the bars
    ax.set(xlabel=plain(xlabel), ylabel=plain(ylabel), xlim=xlim, title=plain(title))
    if len(numbers) > 1:
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1))
    rows = (
        f"{label} " + (" + " if stacked else ", ").join(_short(v[i]) for v in numbers.values())
        for i, label in enumerate(labels)
    )
    of = f" ({', '.join(numbers)})" if len(numbers) > 1 else ""
    text = f"{xlabel}{of}: " + "; ".join(rows)
    ax.description = f"{title}: {text}" if title else text
    return ax


def histograms(samples, *, xlabel, title=None, ax=None):
    """Draw the distribution of each sample as an outline, scaled to an area of 1.

    Parameters
    ----------
    samples : dict of str to sequence of numbers
        They may differ in length. The first outline is the thickest, so that those drawn over it
        do not hide it.
    xlabel : str
    title : str, optional
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
        Its description gives the mean and the standard deviation of each sample.

    Raises
    ------
    ValueError
        If there is no sample, or one of them is empty or not finite.
    """
    samples = {name: _numbers(sample, f"samples[{name!r}]") for name, sample in samples.items()}
    for name, sample in samples.items():
        if not sample.size or not np.isfinite(sample).all():
            raise ValueError(f"samples[{name!r}] must have at least one number, all finite")
    if not samples:
        raise ValueError("samples must have at least one sample, got an empty dict")
    if ax is None:
        _, ax = plt.subplots(figsize=(6, 3.5))
    ends = np.array([np.quantile(sample, [0.001, 0.999]) for sample in samples.values()])
    moments = []
    for thickness, (name, sample) in zip(range(len(samples), 0, -1), samples.items(), strict=True):
        style = {"histtype": "step", "bins": HISTOGRAM_BINS, "label": plain(name)}
        style["linewidth"] = 1.5 * thickness
        ax.hist(sample.ravel(), range=(ends.min(), ends.max()), density=True, **style)
        mean = sample.mean().round(1) + 0.0  # never -0.0
        moments.append(f"{name} {mean:.1f} and {sample.std():.1f}")
    ax.set(xlabel=plain(xlabel), ylabel="density", title=plain(title))
    ax.legend()
    text = f"distribution of {xlabel}; mean and standard deviation: " + ", ".join(moments)
    ax.description = f"{title}: {text}" if title else text
    return ax


def _short(number):
    """Return a number with two significant digits, such as 0.12, 1200 or 1.2e+06."""
    return f"{float(f'{number:.2g}'):g}"


def _numbers(values, name):
    """Return ``values`` as a float array. ``name`` is what an error message calls them."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().double().numpy()
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers, in rows of one length: {error}") from None


def _matrix(values, name):
    """Return ``values`` as a float array (L, S). ``name`` is what an error message calls it."""
    values = _numbers(values, name)
    if values.ndim != 2:
        choose = f"; choose one batch item and head, e.g. {name}[0, 0]" if values.ndim > 2 else ""
        raise ValueError(f"{name} must have shape (L, S), got {values.shape}{choose}")
    if not values.size:
        raise ValueError(f"{name} must have at least one entry, got shape {values.shape}")
    return values


def printable(text):
    """Return ``text`` with escapes in place of characters that XML or fonts reject.

    Parameters
    ----------
    text : str

    Returns
    -------
    str
        Lone surrogates, and control characters other than line breaks, become escapes such as
        ``\\x1b``.
    """
    rejected = r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]"
    return re.sub(rejected, lambda match: repr(match[0])[1:-1], text)


def plain(text):
    """Return a label or title that Matplotlib draws letter by letter, not as a formula.

    Parameters
    ----------
    text : str or None

    Returns
    -------
    str
        The text as `printable` returns it, cut if it is very long. Empty for None.
    """
    text = printable("" if text is None else str(text))
    if len(text) > LONGEST_TEXT:
        text = text[: LONGEST_TEXT - 1] + "…"
    return text.replace("$", r"\$")


def first_largest(values):
    """Return the index of the largest entry of each row, or of the first one in a tie.

    Entries that differ only by rounding count as equal.

    Parameters
    ----------
    values : array, (..., n)
        An entry of -inf is the largest only in a row that has no other.

    Returns
    -------
    array of int, (...)
    """
    largest = values.max(axis=-1, keepdims=True)
    scale = np.abs(values[np.isfinite(values)]).max(initial=0)
    return (values >= largest - TIE * scale).argmax(axis=-1)


def as_labels(labels, n, name):
    """Return n one-line labels, which are positions if ``labels`` is None.

    ``name`` is what an error message calls them.
    """
    labels = range(n) if labels is None else labels
    labels = [printable(str(label)).replace("\n", r"\n") for label in labels]
    if len(labels) != n:
        raise ValueError(f"{name} must have {n} entries, one for each, got {len(labels)}")
    return labels


def _describe_matrix(values, queries, keys, kind, title):
    rows, columns = values.shape

    def entry(position):
        i, j = np.unravel_index(position, values.shape)
        number = f"{values[i, j]:.2f}"
        if kind == "weights":
            return f"{queries[i]}→{keys[j]} {number}"
        return f"{number} (row {queries[i]}, column {keys[j]})"

    finite = np.isfinite(values)
    entries, negated = (np.where(finite, x, -np.inf).flatten() for x in (values, -values))
    full = np.flatnonzero(finite.all(axis=1))  # a row with NaN has no sum
    if kind == "weights":
        text = f"{rows}×{columns} attention weights"
        if len(full):
            sums = values[full].sum(axis=1)
            span = f"{sums.min():.3f}" + ("" if np.ptp(sums) < 5e-4 else f" to {sums.max():.3f}")
            text += f"; rows sum to {span}"
            if rows <= MOST_ROWS_DESCRIBED:
                strongest = first_largest(values[full]) + columns * full
                text += "; largest weight in each row: " + ", ".join(map(entry, strongest))
            else:
                text += f"; largest weight {entry(first_largest(entries))}"
    else:
        text = f"{rows}×{columns} numbers"
        if finite.any():
            text += f" with mean {values[finite].mean().round(3) + 0.0:.3f}"
            text += f", smallest {entry(first_largest(negated))}"
            text += f", largest {entry(first_largest(entries))}"
    if not finite.all():
        text += f"; {np.sum(~finite)} entries are not finite and left blank"
    return f"{title}: {text}" if title else text
