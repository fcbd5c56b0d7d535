"""What every figure draws, read from its Axes, and what it says of itself."""

import base64
import html
import io
import re
import sys
import xml.etree.ElementTree as ET

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.colors import to_rgba
from PIL import Image
from seaborn.utils import relative_luminance

from course_utils import figures
from course_utils.figures import (
    arrows,
    as_labels,
    bars,
    heatmap,
    histograms,
    lines,
    mask_pattern,
    panels,
    printable,
    show,
)
from course_utils.views import head_lines, mosaic, query_products

WEIGHTS = torch.tensor([[0.7, 0.2, 0.1], [0.25, 0.25, 0.5]])
INF, NAN = float("inf"), float("nan")
BLANK = "2 entries are not finite and left blank"
LABELS = {"xlabel": "n", "ylabel": "ms"}
FIGURES = {
    "heatmap": heatmap,
    "mask_pattern": lambda values, **how: mask_pattern(values > 0.2, **how),
    "arrows": lambda values, **how: arrows(values[:, :2], labels=range(len(values)), **how),
    "lines": lambda values, **how: lines(values[0], {"a": values[1]}, **LABELS, **how),
    "bars": lambda values, **how: bars("ab", {"c": values[0, :2]}, **LABELS, **how),
    "histograms": lambda values, **how: histograms({"a": values}, xlabel="n", **how),
    "mosaic": lambda values, **how: mosaic(values[None, None], **how),
    "head_lines": head_lines,
}


def assert_cells(ax, values, queries=None, keys=None):
    """Assert that values are drawn between the labels at the left and below, or positions."""
    mesh = ax.collections[0]
    corners = mesh.get_coordinates()  # (rows + 1, columns + 1, 2)
    columns, rows = ((corners[:-1, :-1] + corners[1:, 1:]) / 2).T  # (columns, rows) each
    below, left = (
        dict(zip(axis.get_ticklocs(), (t.get_text() for t in axis.get_ticklabels()), strict=True))
        for axis in (ax.xaxis, ax.yaxis)
    )
    drawn = np.ma.filled(mesh.get_array(), np.nan).reshape(rows.T.shape)
    drawn = pd.DataFrame(drawn, [left[y] for y in rows[0]], [below[x] for x in columns[:, 0]])
    positions = map(range, np.shape(values))
    names = ([*map(str, given or at)] for given, at in zip((queries, keys), positions, strict=True))
    expected = pd.DataFrame(np.asarray(values, dtype=float), *names)
    pd.testing.assert_frame_equal(drawn, expected, check_dtype=False)


@pytest.fixture
def displayed(monkeypatch):
    """Return the list of what is displayed, with the options it is displayed with."""
    outputs = []
    monkeypatch.setattr(figures, "display", lambda item, **how: outputs.append((item, how)))
    return outputs


# Every figure


@pytest.mark.parametrize("draw", FIGURES.values(), ids=FIGURES)
def test_draws_into_the_axes_it_is_given_and_describes_itself(draw, displayed):
    figure, (left, right) = plt.subplots(1, 2)
    assert draw(WEIGHTS, ax=left) is left
    assert left.has_data() and not right.has_data() and plt.get_fignums() == [figure.number]
    assert not displayed
    ax = draw(WEIGHTS)
    assert ax.description == left.description and re.search(r"\d", ax.description)
    assert not ax.axison or ax.get_xlabel() and ax.get_ylabel()
    box = ax.figure.get_tightbbox()  # inches
    assert 1 < box.width < 20 and 0.5 < box.height < 20
    large = draw(torch.full((60, 60), 0.5)).figure  # a larger one could take gigabytes
    assert max(large.get_size_inches()) <= figures.LONGEST_SIDE


class OnGPU(torch.Tensor):
    """A tensor that NumPy cannot read before it is moved."""

    def cpu(self):
        return self.as_subclass(torch.Tensor)

    def numpy(self):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def __format__(self, spec):
        return format(self.item(), spec)


def products(weights):
    q = weights.detach().double().log() * 3**0.5  # so that softmax(q · k / √3) gives the weights
    return query_products(q, torch.eye(3).as_subclass(type(q)), weights, 1)


@pytest.mark.parametrize("draw", [*FIGURES.values(), products], ids=[*FIGURES, "query_products"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_takes_tensors_of_any_precision_and_device_that_need_gradients(draw, dtype):
    values = torch.tensor([[0.5, 0.25, 0.25], [0.75, 0.125, 0.125]])  # exact in all of them
    expected = draw(values).description
    assert draw(values.to(dtype).requires_grad_()).description == expected
    assert draw(values.as_subclass(OnGPU)).description == expected


def line(x, y, **how):
    return lines(x, {"a": y}, **LABELS | how)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: heatmap(torch.zeros(2, 4, 3, 3)), r"weights must .* \(2, 4, 3, 3\); choose one"),
        (lambda: heatmap(torch.zeros(3)), r"weights must have shape \(L, S\), got \(3,\)$"),
        (lambda: heatmap(torch.zeros(0, 3)), r"weights must have at least one .* \(0, 3\)"),
        (lambda: heatmap([[1, 2], [3]]), "weights must be numbers, in rows of one length"),
        (lambda: panels(heatmap, {}), "data must have at least one panel"),
        (lambda: heatmap(WEIGHTS, queries=["one"]), "queries must have 2 entries.* got 1"),
        (lambda: heatmap(WEIGHTS, keys=["one"]), "keys must have 3 entries.* got 1"),
        (lambda: heatmap(WEIGHTS, kind="odd"), "kind must be one of weights, .* got 'odd'"),
        (lambda: mask_pattern([True, False]), r"mask must have shape \(L, S\), got \(2,\)"),
        (lambda: mask_pattern([[0.0, -INF]]), r"mask must be True \(may attend\) or False"),
        (lambda: arrows(WEIGHTS, labels="ab"), r"vectors must have shape \(n, 2\), got \(2, 3\)"),
        (lambda: arrows([[1, 2]], labels="ab"), "labels must have 1 entries.* got 2"),
        (lambda: arrows([[1, NAN]], labels="a"), "vectors must be finite"),
        (lambda: line([1, 2], [1]), r"series\['a'\] must have shape \(2,\) .* got \(1,\)"),
        (lambda: line([1, 2], ["b", "c"]), r"series\['a'\] must be numbers"),
        (lambda: line([], []), r"x must have shape .* got \(0,\)"),
        (lambda: bars("x", {"a": [1, 2]}, **LABELS), r"series\['a'\] must have shape \(1,\)"),
        (lambda: bars("x", {}, **LABELS), "at least one entry"),
        (lambda: histograms({}, xlabel="score"), "must have at least one"),
        (lambda: histograms({"a": []}, xlabel="score"), "must have at least one"),
        (lambda: histograms({"a": [1, NAN]}, xlabel="score"), "must have at least one"),
        (lambda: show(WEIGHTS), "ax must be the Axes that heatmap returns, got Tensor"),
        (lambda: show(plt.subplots()[1]), "description must say"),
        (lambda: show(heatmap(WEIGHTS), ""), "description must say"),
    ],
)  # fmt: skip
def test_wrong_input_is_named(call, message, displayed):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
    assert not displayed


# panels


def test_panels_stand_side_by_side_in_rows_and_are_all_described():
    ax = panels(heatmap, {name: [[-2.0, 2.0]] for name in "abc"}, columns=2, kind="scores")
    drawn = [each for each in ax.figure.axes if each.get_title()]
    assert [each.get_title() for each in drawn] == ["a", "b", "c"]
    first, second, below = (each.get_position() for each in drawn)
    assert first.x1 < second.x0 and below.x0 == first.x0 and below.y1 < first.y0
    assert all(each.description.startswith(f"{each.get_title()}: 1×2") for each in drawn)


# heatmap


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (1, 4), (4, 1)])
def test_heatmap_has_queries_down_and_keys_across(shape):
    weights = torch.rand(shape)
    assert_cells(heatmap(weights), weights)
    queries, keys = [f"q{i}" for i in range(shape[0])], [f"k{j}" for j in range(shape[1])]
    ax = heatmap(weights, queries=queries, keys=keys)
    assert_cells(ax, weights, queries, keys)
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_aspect()) == ("keys", "queries", 1)
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, shape[1]), (shape[0], 0))  # query 0 on top


@pytest.mark.parametrize(
    "kind, limits",
    [("weights", (0, 1)), ("scores", (-3, 3)), ("distances", (0, 3)), ("shares", (0, 1))],
)
def test_heatmap_fixes_its_colors_by_kind(kind, limits):
    mesh = heatmap([[1.0, -3.0], [0.5, 2.0], [-INF, INF]], kind=kind).collections[0]
    assert mesh.get_clim() == (mesh.colorbar.vmin, mesh.colorbar.vmax) == limits
    steps = np.linspace(*limits, 5)
    assert mesh.norm(steps).tolist() == [0, 0.25, 0.5, 0.75, 1]
    light = [relative_luminance(color) for color in mesh.to_rgba(steps)]
    if kind == "scores":  # lightest at zero
        assert mesh.get_cmap().name == figures.DIVERGING and light[2] > max(light[::4]) + 0.3
    else:  # lighter where larger
        assert mesh.get_cmap().name == figures.SEQUENTIAL
        assert light == sorted(light) and light[-1] > light[0] + 0.3
    for value in (0.0, -INF, NAN):  # a range even for nothing
        low, high = heatmap(torch.full((2, 3), value), kind=kind).collections[0].get_clim()
        assert low < high


@pytest.mark.parametrize("kind", ["weights", "shares", "scores", "distances"])
@pytest.mark.parametrize("shape", [(10, 10), (2, 12), (12, 2)])
def test_numbers_fit_their_cells_and_stand_out(kind, shape):
    values = torch.linspace(-1, 1, shape[0] * shape[1]).view(shape)
    ax = heatmap(values, kind=kind)
    ax.figure.canvas.draw()
    numbers = {text.get_position(): float(text.get_text()) for text in ax.texts}
    expected = {(j + 0.5, i + 0.5): values[i, j].item() for i, j in np.ndindex(shape)}
    assert numbers == pytest.approx(expected, abs=0.006)
    width, height = abs(np.diff(ax.transData.transform([(0, 0), (1, 1)]), axis=0)[0])
    for text, ground in zip(ax.texts, ax.collections[0].get_facecolors(), strict=True):
        box = text.get_window_extent()
        assert box.width < width and height / 5 < box.height < height
        behind = relative_luminance(ground)
        white, dark = 1.05 / (behind + 0.05), (behind + 0.05) / (relative_luminance("0.15") + 0.05)
        assert {"w": white, "0.15": dark}[text.get_color()] > 0.97 * max(white, dark)


def test_heatmap_writes_numbers_where_there_is_room_and_something_to_read():
    assert len(heatmap(torch.rand(10, 10)).texts) == 100
    assert not heatmap(torch.rand(101, 1)).texts
    assert len(panels(heatmap, {"a": torch.rand(5, 5)}).texts) == 25
    assert not heatmap(torch.eye(3) * 0.997).texts  # all would read 0.00 or 1.00
    assert len(heatmap(torch.eye(3) * 0.5).texts) == 9


def test_only_long_keys_are_rotated():
    for keys, rotation in [(["ab", "c"], 0), (["abc", "d"], 90)]:
        ax = heatmap(torch.rand(3, 2), keys=keys, queries=["a long name", "b", "c"])
        assert {label.get_rotation() for label in ax.get_xticklabels()} == {rotation}
        assert {label.get_rotation() for label in ax.get_yticklabels()} == {0}


EACH = "largest weight in each row:"
ONE = f"rows sum to 1.000; {EACH}"
DESCRIBED = [  # kind, values, description after the shape
    ("weights", WEIGHTS.numpy(), f"{ONE} 0→0 0.70, 1→2 0.50"),
    ("weights", [[0.5], [0.2]], f"rows sum to 0.200 to 0.500; {EACH} 0→0 0.50, 1→0 0.20"),
    ("weights", [[1], [0.999]], f"rows sum to 0.999 to 1.000; {EACH} 0→0 1.00, 1→0 1.00"),
    ("weights", [[1], [0.9997]], f"rows sum to 1.000; {EACH} 0→0 1.00, 1→0 1.00"),
    ("weights", np.eye(10), f"{ONE} " + ", ".join(f"{i}→{i} 1.00" for i in range(10))),
    ("weights", np.eye(11)[::-1], "rows sum to 1.000; largest weight 0→10 1.00"),
    ("scores", [[1, -3], [0.5, 2]],
     "mean 0.125, smallest -3.00 (row 0, column 1), largest 2.00 (row 1, column 1)"),
    # entries that differ by rounding only, as on another CPU: the first counts
    ("weights", [[0.2, 0.4, 0.4 + 1e-6]], f"{ONE} 0→1 0.40"),
    ("weights", [[0.2, 0.399, 0.401]], f"{ONE} 0→2 0.40"),
    ("scores", [[-2, 9, 9 + 1e-4, -2 - 1e-4]],
     "mean 3.500, smallest -2.00 (row 0, column 0), largest 9.00 (row 0, column 1)"),
    ("scores", [[1, -INF], [NAN, 2]],
     f"mean 1.500, smallest 1.00 (row 0, column 0), largest 2.00 (row 1, column 1); {BLANK}"),
    ("scores", [[INF, INF]], BLANK),
    ("weights", [[NAN, NAN], [0.75, 0.25]], f"{ONE} 1→0 0.75; {BLANK}"),
    ("weights", [[NAN, NAN]], BLANK),
]  # fmt: skip


@pytest.mark.parametrize("kind, values, description", DESCRIBED)
def test_heatmap_describes_what_it_draws_and_leaves_blank_what_is_not_finite(
    kind, values, description
):
    values = np.asarray(values)
    ax = heatmap(values, kind=kind)
    shape, _, rest = re.split(r"( with |; )", ax.description, maxsplit=1)
    rows, columns = values.shape
    assert shape == f"{rows}×{columns} " + ("attention weights" if kind == "weights" else "numbers")
    assert rest == description
    assert_cells(ax, np.where(np.isfinite(values), values, NAN))
    names = heatmap([[0.9, 0.1]], queries=["it"], keys=["the", "cat"], title="one").description
    assert names.startswith("one: 1×2") and names.endswith("it→the 0.90")


# mask_pattern, arrows, lines


@pytest.mark.parametrize(
    "mask, counts", [([[1, 0, 1], [0, 0, 0]], "2, 0"), (np.ones((3, 2)), "2, 2, 2")]
)
def test_mask_pattern_is_light_where_a_query_may_attend_to_a_key(mask, counts):
    mask = np.array(mask) > 0
    rows, columns = mask.shape
    ax = mask_pattern(mask, title="holes")
    assert_cells(ax, mask)
    dark, light = map(relative_luminance, ax.collections[0].to_rgba([0, 1]))  # for every mask
    assert light > dark + 0.3
    assert (ax.get_xlim(), ax.get_ylim()) == ((-0.5, columns - 0.5), (rows - 0.5, -0.5))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("keys (light: may attend)", "queries")
    assert ax.get_aspect() == 1
    assert (
        ax.description
        == f"holes: {rows}×{columns} mask; number of keys allowed to each query: {counts}"
    )


def test_mask_pattern_draws_true_entries_that_are_wrong_in_red():
    ax = mask_pattern([[1, 1], [1, 0]], wrong=[[0, 1], [0, 1]], xlabel="changed input")
    red = ax.collections[1].get_array()
    assert red.filled(0).tolist() == [[0, 1], [0, 0]] and ax.get_xlabel() == "changed input"
    assert ax.description == (
        "2×2 cells; number of light or red cells in each row: 2, 1; red cells in all: 1"
    )


@pytest.mark.parametrize("vectors", [[[2, 0], [-1, 0.5], [0.5, -3]], [[-3, -1]], [[0, 0]]])
def test_arrows_go_from_the_middle_of_a_square_to_their_vectors(vectors):
    names = ["q", "k", "long"][: len(vectors)]
    ax = arrows(vectors, labels=names)
    ax.figure.canvas.draw()
    quiver = ax.collections[0]
    assert not quiver.get_offsets().any()
    origin, heads = ax.transData.transform((0, 0)), ax.transData.transform(vectors)
    for path, head in zip(quiver.get_paths(), heads, strict=True):
        outline = quiver.get_transform().transform(path.vertices)  # pixels, from the arrow's start
        tip = origin + outline[np.hypot(*outline.T).argmax()]
        np.testing.assert_allclose(tip, head, atol=5)
    (low_x, high_x), (low_y, high_y) = ax.get_xlim(), ax.get_ylim()
    assert -low_x == high_x == -low_y == high_y > 1.1 * np.abs(vectors).max()
    titled = arrows(vectors, labels=names, title="learned")
    assert titled.get_title() == "learned"
    assert titled.description == f"learned: {ax.description}"
    assert ax.get_aspect() == 1
    painted = [tuple(color) for color in quiver.get_facecolor()]
    assert painted == [to_rgba(text.get_color()) for text in ax.texts]
    assert len(set(painted)) == len(vectors)
    for text, name, head, vector in zip(ax.texts, names, heads, vectors, strict=True):
        assert text.get_text() == name
        assert 0 < np.hypot(*(text.get_window_extent().p0 - head)) < 15  # beside it, in pixels
        assert f"{name} at ({vector[0]:.2f}, {vector[1]:.2f})" in ax.description


def test_lines_draws_each_series_over_x():
    series = {"a": [1, 9, 100], "b": torch.tensor([3.0, 0, 4]), "c": [5, 6, 7]}
    ax = lines([10, 1, 5], series, **LABELS, title="times")
    assert [line.get_ydata().tolist() for line in ax.lines] == [[1, 9, 100], [3, 0, 4], [5, 6, 7]]
    assert [line.get_xdata().tolist() for line in ax.lines] == [[10, 1, 5]] * 3
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("n", "ms", "times")
    assert ax.description == "ms against n (10, 1, 5). a: 1, 9, 100; b: 3, 0, 4; c: 5, 6, 7"
    # of many points the ends, and extremes that are far from both in the picture
    x = [1, 2, *range(3, 20)]
    ax = lines(x, {"a": [3, 9, *[-2] * 16, 4], "b": [1, NAN, *[0] * 16, 4]}, **LABELS)
    assert ax.description == (
        "ms against n (from 1 to 19). "
        "a: from 3 to 4, with a peak of 9 at 2 and a low of -2 at 3; b: from 1 to 4"
    )
    for log in (False, True):
        ax = line([1, 10], [1, 100], log=log)
        assert {ax.get_xscale(), ax.get_yscale()} == {"log" if log else "linear"}
    ax = line([1, 10], [1, 100], log="x", ylim=(0, 200))
    assert (ax.get_xscale(), ax.get_yscale(), ax.get_ylim()) == ("log", "linear", (0, 200))


def test_lines_has_ticks_where_its_data_are_if_there_is_room():
    def ticks(x, log):
        ax = line(x, x, log=log)
        ax.figure.canvas.draw()
        assert not log or not len(ax.xaxis.get_minorticklocs())
        return {tick.get_loc(): tick.label1.get_text() for tick in ax.xaxis.get_major_ticks()}

    for x, log in [([2, 8, 32, 128], True), ([16384, 512], True), ([0, 5], False)]:
        assert ticks(x, log) == {value: str(value) for value in x}
    for x in (range(11), [0, 1, 100], [5], [0, NAN]):
        assert ticks(x, False) != {value: str(value) for value in x}


def test_each_line_differs_from_the_others_by_more_than_color_and_is_in_the_legend():
    _, ax = plt.subplots()
    ax.plot([1, 2], [0, 0], label="theory")
    names = [f"_{i}" for i in range(9)]
    lines([1, 2], {name: [i, i] for i, name in enumerate(names)}, **LABELS, ax=ax)
    legend = ax.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["theory", *names]
    styles = [(line.get_color(), line.get_marker()) for line in legend.get_lines()]
    assert styles == [(line.get_color(), line.get_marker()) for line in ax.lines]
    assert len(set(styles)) == 10
    assert len({marker for _, marker in styles[1:]} - {"", "None"}) == 7
    for points in (figures.MOST_MARKERS, figures.MOST_MARKERS + 1):  # more would hide the line
        (drawn,) = line(range(points), range(points)).lines
        assert (drawn.get_marker() == "None") == (points > figures.MOST_MARKERS)


def test_bars_stand_beside_or_after_one_another_and_are_read_out():
    series = {"a": [1, 2], "b": [30, 20], "c": [5, 6]}
    ax = bars(["x", "y"], series, xlabel="n", ylabel="ms")
    assert [bar.get_width() for bar in ax.patches] == [1, 2, 30, 20, 5, 6] and ax.yaxis_inverted()
    middles = [bar.get_y() + bar.get_height() / 2 for bar in ax.patches]
    np.testing.assert_allclose(middles[2:4], [0, 1], atol=1e-9)  # of three, the second
    assert middles[::2] == sorted(middles[::2]) and max(middles[::2]) < min(middles[1::2])
    assert [text.get_text() for text in ax.texts] == ["1", "2", "30", "20", "5", "6"]
    assert ax.description == "n (a, b, c): x 1, 30, 5; y 2, 20, 6"
    ax = bars(["x", "y"], series, xlabel="n", ylabel="ms", stacked=True, xlim=(0, 99))
    assert ax.get_xlim() == (0, 99)
    ax.figure.draw_without_rendering()
    assert ax.get_legend().get_window_extent().x0 > ax.bbox.x1  # it covers no bar
    assert [bar.get_x() for bar in ax.patches] == [0, 0, 1, 2, 31, 22]
    assert ax.description == "n (a, b, c): x 1 + 30 + 5; y 2 + 20 + 6"


def test_histograms_have_an_area_of_1_and_say_how_far_their_samples_spread():
    wide = [*torch.linspace(-4, 4, 2000), 300]  # one number far from the others
    samples = {"wide": wide, "narrow": [1, 3, 2, 2], "last": [-1, -9]}
    ax = histograms(samples, xlabel="score", title="two")
    outlines = [patch.get_xy() for patch in ax.patches]
    areas = [np.trapezoid(y, x) for x, y in (outline.T for outline in outlines)]
    np.testing.assert_allclose(np.abs(areas), 1, rtol=0.05)
    drawn = np.concatenate(outlines)[:, 0]
    np.testing.assert_allclose([drawn.min(), drawn.max()], [-9, 4], atol=0.1)  # of all samples
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [*samples]
    widths = [patch.get_linewidth() for patch in ax.patches]
    assert widths == sorted(widths, reverse=True) and len(set(widths)) == 3
    assert ax.description == (
        "two: distribution of score; mean and standard deviation: wide 0.1 and 7.1, "
        "narrow 2.0 and 0.7, last -5.0 and 4.0"
    )


# show


def folded(output):
    """Return the words that are folded under a picture."""
    summary, words = (details := ET.fromstring(output.data))
    assert (details.tag, summary.tag, details.get("open")) == ("details", "summary", None)
    return "".join(words.itertext())


def test_show_displays_one_picture_then_its_description_and_closes_the_figure(displayed):
    other = plt.figure()
    part = plt.figure().subfigures(1, 2)[0]  # an Axes of a part stands for the whole figure
    left, _, right = part.subplots(1, 3)
    heatmap(WEIGHTS, title="<i>", ax=left)
    heatmap(WEIGHTS, title="two", ax=right)
    show(left)
    (picture, how), (text, _) = displayed
    assert how["raw"] and set(picture) == {"image/png", "text/plain"}
    assert picture["text/plain"] == f"{left.description} | {right.description}"
    assert folded(text) == f"Picture: {picture['text/plain']}."
    assert plt.get_fignums() == [other.number]
    show(heatmap(WEIGHTS), "2 rows")
    assert displayed[2][0]["text/plain"] == "2 rows"


@pytest.mark.parametrize("inches, width", [(5, 400), (40, figures.WIDEST / 2)])
def test_a_picture_is_cut_to_what_is_drawn_and_dense_and_repeats(displayed, inches, width):
    for _ in range(2):
        _, ax = plt.subplots(figsize=(2 * inches, 4))
        ax.set(position=[0.4, 0.4, 0.5, 0.5], xticks=[], yticks=[])
        show(ax, "1 empty box")
    (first, how), _, (second, _), _ = displayed
    assert first == second
    page_width = how["metadata"]["image/png"]["width"]
    assert page_width == pytest.approx(width, abs=20) and page_width <= figures.WIDEST
    image = Image.open(io.BytesIO(base64.b64decode(first["image/png"])))
    assert image.format == "PNG" and "Software" not in image.info  # a version would change it
    assert image.width >= 2 * page_width and image.width == pytest.approx(2 * width, abs=40)


# Any text


EVIL = "$\\foo$ a_b^c <b>&amp; \0\x1b\ud800 \N{DOG FACE}"
SAFE = "$\\foo$ a_b^c <b>&amp; \\x00\\x1b\\ud800 \N{DOG FACE}"
TOKENS = [EVIL, "_\\$5$", "漢e\u0301", " ", "tab \t\r", "a" + "$" * 5000]
DRAWN = {SAFE, *TOKENS[1:4], "tab \\t\\r", "a" + "$" * 98 + "…"}
TITLE, LINES = EVIL + "\nsecond", {SAFE, "second"}
EYE = torch.eye(len(TOKENS))
WITH_TEXT = {  # and what is drawn of it
    "heatmap": (lambda: heatmap(EYE, queries=TOKENS, keys=TOKENS, title=TITLE), DRAWN | LINES),
    "arrows": (lambda: arrows(np.ones((len(EYE), 2)), labels=TOKENS), DRAWN),
    "lines": (lambda: lines([1], dict.fromkeys(TOKENS, [1]), **LABELS, title=TITLE), DRAWN | LINES),
    "xlabel": (lambda: line([1], [1], xlabel=TITLE), LINES),
    "ylabel": (lambda: line([1], [1], ylabel=TITLE), LINES),
    "mask": (lambda: mask_pattern(WEIGHTS > 0.2, title=TITLE), LINES),
    "mosaic": (lambda: mosaic(WEIGHTS[None, None], title=TITLE), LINES),
    "head_lines": (
        lambda: head_lines(EYE, queries=TOKENS, keys=TOKENS, title=TITLE),
        DRAWN | LINES,
    ),
}


@pytest.mark.filterwarnings("ignore:Glyph")  # no font has all
@pytest.mark.parametrize("draw, expected", WITH_TEXT.values(), ids=WITH_TEXT)
def test_any_text_is_drawn_letter_by_letter(draw, expected, displayed, monkeypatch):
    texts, draw_text = [], RendererAgg.draw_text

    def noted(self, gc, x, y, s, prop, angle, ismath=False, mtext=None):
        texts.append((s, bool(ismath)))
        return draw_text(self, gc, x, y, s, prop, angle, ismath, mtext)

    monkeypatch.setattr(RendererAgg, "draw_text", noted)
    show(draw())
    assert expected <= {text for text, _ in texts}
    assert not [text for text, formula in texts if formula]
    description = displayed[0][0]["text/plain"]
    assert printable(description) == description
    assert folded(displayed[1][0]) == f"Picture: {description}."


def test_every_character_becomes_one_that_xml_and_utf_8_take():
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    safe = printable(everything)
    assert ET.fromstring(f"<a>{html.escape(safe)}</a>".encode()).text == safe
    unchanged = "".join(c for c in everything if c.isprintable() or c == "\n")
    assert printable(unchanged) == unchanged
    assert as_labels(["a\nb", "\n", 3], 3, "keys") == ["a\\nb", "\\n", "3"]  # on one line each
