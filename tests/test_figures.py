"""The figures, read from their Axes as a viewer reads them: places, colours, labels, words."""

import base64
import html
import io
import sys
import xml.etree.ElementTree as ET

import matplotlib.pyplot as plt
import numpy as np
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
    heatmap,
    lines,
    mask_pattern,
    printable,
    show,
)

WEIGHTS = torch.tensor([[0.7, 0.2, 0.1], [0.25, 0.25, 0.5]])
EVIL = "$\\foo$ a_b^c <b>&amp; \0\x1b\ud800 \N{DOG FACE}"  # every kind of trouble in one title
TOLD = "$\\foo$ a_b^c <b>&amp; \\x00\\x1b\\ud800 \N{DOG FACE}"  # what shall be seen of it
# what a token may be, and what is drawn of it where that is not the token itself
TOKENS = {
    "$\\foo$": None,
    "$a$ and $b$": None,
    "100 $": None,
    "\\$5$": None,
    "a\\b^2_3": None,
    "_underscore": None,
    '<script>alert("1")</script>&lt;\'': None,
    "\N{DOG FACE}e\u0301漢": None,
    " ": None,
    "tab \t\r": "tab \\t\\r",
    "nul \0": "nul \\x00",
    "\x1b[31m\x85": "\\x1b[31m\\x85",
    "\ud83d lone \udc36": "\\ud83d lone \\udc36",
    "\ufffe\uffff": "\\ufffe\\uffff",
    "x" * 100: None,
    "a" + "$" * 5000: "a" + "$" * 98 + "…",
}
SEEN = [token if seen is None else seen for token, seen in TOKENS.items()]


def read(ax):
    """Return the value that a viewer reads at each pair of labels, {(left, below): value}."""
    mesh = ax.collections[0]
    corners = mesh.get_coordinates()  # (rows + 1, columns + 1, 2)
    middles = (corners[:-1, :-1] + corners[1:, 1:]) / 2  # (rows, columns, 2)
    below, left = (
        dict(zip(axis.get_ticklocs(), (t.get_text() for t in axis.get_ticklabels()), strict=True))
        for axis in (ax.xaxis, ax.yaxis)
    )
    values = np.ma.filled(mesh.get_array(), np.nan).reshape(middles.shape[:2])
    return {
        (left[y], below[x]): float(value)
        for (x, y), value in zip(middles.reshape(-1, 2), values.flatten(), strict=True)
    }


def as_read(values, queries, keys):
    """Return what `read` shall give for a matrix and its labels."""
    return {
        (query, key): pytest.approx(float(value), nan_ok=True)
        for query, row in zip(queries, values, strict=True)
        for key, value in zip(keys, row, strict=True)
    }


def colours(ax, *values):
    """Return the RGB colours in which a mesh draws these values."""
    return [ax.collections[0].to_rgba(value)[:3] for value in values]


def inside(ax, x, y):
    """Say whether a place is within the limits of the Axes."""
    (low_x, high_x), (low_y, high_y) = sorted(ax.get_xlim()), sorted(ax.get_ylim())
    return low_x <= x <= high_x and low_y <= y <= high_y


@pytest.fixture
def shown(monkeypatch):
    """Return the list of what `show` displays, each with the options it is displayed with."""
    displayed = []
    monkeypatch.setattr(figures, "display", lambda item, **how: displayed.append((item, how)))
    return displayed


def folded(output):
    """Return the words that stand folded under a picture."""
    summary, words = (fold := ET.fromstring(output.data))
    assert (fold.tag, summary.tag, fold.get("open")) == ("details", "summary", None)
    return "".join(words.itertext())


@pytest.fixture
def drawn(monkeypatch):
    """Return the list of what the renderer is told to draw: (text, whether as a formula)."""
    told, draw = [], RendererAgg.draw_text

    def recorded(self, gc, x, y, s, prop, angle, ismath=False, mtext=None):
        told.append((s, bool(ismath)))
        return draw(self, gc, x, y, s, prop, angle, ismath, mtext)

    monkeypatch.setattr(RendererAgg, "draw_text", recorded)
    return told


# heatmap


def test_heatmap_draws_the_weights_it_was_given_queries_down_keys_across():
    ax = heatmap(WEIGHTS, queries=["it", "was"], keys=["the", "cat", "sat"], title="one head")
    assert read(ax) == as_read(WEIGHTS, ["it", "was"], ["the", "cat", "sat"])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("keys", "queries")
    assert ax.get_title() == "one head"
    assert ax.yaxis_inverted() and not ax.xaxis_inverted()  # the first query is at the top
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 3), (2, 0))  # all is seen
    assert ax.get_aspect() == 1
    assert 0 < ax.collections[0].get_linewidth()[0] < 1  # a thin line between the cells


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (1, 4), (4, 1)])
def test_heatmap_numbers_queries_and_keys_that_have_no_names(shape):
    values = torch.rand(shape)
    rows, columns = ([str(i) for i in range(n)] for n in shape)
    assert read(heatmap(values)) == as_read(values, rows, columns)


def test_heatmap_writes_each_number_into_its_cell():
    ax = heatmap(WEIGHTS)
    assert [text.get_text() for text in ax.texts] == "0.70 0.20 0.10 0.25 0.25 0.50".split()
    places = [text.get_position() for text in ax.texts]
    assert places == [(j + 0.5, i + 0.5) for i in range(2) for j in range(3)]


@pytest.mark.parametrize("shape", [(10, 10), (2, 12), (12, 2)])
def test_heatmap_has_room_for_its_numbers(shape):
    ax = heatmap(-torch.rand(shape), kind="scores")
    ax.figure.canvas.draw()
    cell = abs(np.diff(ax.transData.transform([(0, 0), (1, 1)]), axis=0)[0])
    number = ax.texts[0].get_window_extent()
    assert number.width < cell[0]
    assert cell[1] / 5 < number.height < cell[1]  # and they can be read


@pytest.mark.parametrize("kind", ["weights", "scores", "distances"])
def test_heatmap_writes_its_numbers_in_the_colour_that_stands_out_more(kind):
    ax = heatmap(torch.linspace(0, 1, 100).view(10, 10), kind=kind)
    for text, ground in zip(ax.texts, ax.collections[0].get_facecolors(), strict=True):
        behind = relative_luminance(ground)
        contrasts = {"w": 1.05 / (behind + 0.05)}
        contrasts["0.15"] = (behind + 0.05) / (relative_luminance("0.15") + 0.05)
        assert contrasts[text.get_color()] > 0.97 * max(contrasts.values())


def test_heatmap_writes_no_number_where_all_are_0_or_1():
    assert not heatmap(torch.eye(3)).texts
    assert not heatmap(torch.eye(3) * 0.997).texts  # as they would be written
    assert len(heatmap(torch.eye(3) * 0.5).texts) == 9


def test_heatmap_writes_numbers_into_a_hundred_cells_and_no_more():
    assert len(heatmap(torch.rand(10, 10)).texts) == 100
    assert not heatmap(torch.rand(101, 1)).texts


@pytest.mark.parametrize(
    "kind, limits, colour_map",
    [
        ("weights", (0, 1), "cividis"),
        ("scores", (-3, 3), "RdBu_r"),
        ("distances", (0, 3), "cividis"),
    ],
)
def test_heatmap_fixes_the_colours_by_kind(kind, limits, colour_map):
    ax = heatmap([[1.0, -3.0], [0.5, 2.0]], kind=kind)
    mesh = ax.collections[0]
    assert mesh.get_clim() == limits and mesh.cmap.name == colour_map
    assert type(mesh.norm).__name__ == "Normalize"  # even steps
    assert (mesh.colorbar.vmin, mesh.colorbar.vmax) == limits
    assert mesh.colorbar.ax.get_window_extent().height > ax.get_window_extent().height / 2


def test_heatmap_spends_its_colours_on_the_distances_from_the_lowest():
    ax = heatmap([[1.2, 1.9]], kind="distances", lowest=1)
    assert ax.collections[0].get_clim() == (1, 1.9)


def test_heatmap_is_lighter_where_a_weight_is_larger():
    light = [sum(colour) for colour in colours(heatmap(WEIGHTS), 0, 0.25, 0.5, 0.75, 1)]
    assert light == sorted(light) and light[-1] > light[0] + 1


def test_heatmap_is_white_at_a_score_of_zero_red_above_and_blue_below():
    blue, white, red = colours(heatmap([[0.1, -0.02]], kind="scores"), -0.1, 0, 0.1)
    assert min(white) > 0.95
    assert blue[2] > 2 * blue[0] and red[0] > 2 * red[2]


@pytest.mark.parametrize("kind", ["weights", "scores", "distances"])
@pytest.mark.parametrize("value", [0.0, float("-inf"), float("nan")])
def test_heatmap_has_a_range_of_colours_even_for_nothing(kind, value):
    low, high = heatmap(torch.full((2, 3), value), kind=kind).collections[0].get_clim()
    assert low < high


@pytest.mark.parametrize("names, turned", [("ab", 0), (["ab", "c"], 0), (["abc", "d"], 90)])
def test_heatmap_turns_the_names_of_keys_that_are_long_and_of_queries_never(names, turned):
    wide = heatmap(torch.rand(3, 2), keys=names, queries=["a long name", "b", "c"])
    assert [label.get_rotation() for label in wide.get_xticklabels()] == [turned] * 2
    assert [label.get_rotation() for label in wide.get_yticklabels()] == [0] * 3


def test_heatmap_grows_with_its_matrix_up_to_a_limit():
    small, wide, high = (
        heatmap(np.zeros(shape)).figure.get_size_inches() for shape in [(4, 4), (4, 12), (12, 4)]
    )
    assert wide[0] > small[0] and wide[1] == small[1]
    assert high[0] == small[0] and high[1] > small[1]
    for draw in (heatmap, mask_pattern):  # a figure of 1000 × 1000 cells would take gigabytes
        assert draw(np.zeros((1, 60))).figure.get_size_inches()[0] == 20
        assert draw(np.zeros((60, 1))).figure.get_size_inches()[1] == 20


def test_heatmap_draws_into_the_axes_it_is_given():
    _, (left, right) = plt.subplots(1, 2)
    assert heatmap(WEIGHTS, ax=left) is left
    assert left.collections and not right.collections and len(plt.get_fignums()) == 1


def test_heatmap_describes_what_it_draws():
    ax = heatmap(WEIGHTS, queries=["it", "was"], keys=["the", "cat", "sat"])
    assert ax.description == (
        "2×3 attention weights; rows sum to 1.000; strongest of each row it→the 0.70, was→sat 0.50"
    )
    ax = heatmap([[1.0, -3.0], [0.5, 2.0]], kind="scores", title="dot")
    assert ax.description == (
        "dot: 2×2 scores with mean 0.125, smallest 0→1 -3.00, largest 1→1 2.00"
    )
    ax = heatmap([[4.0, 3.0, 5.0]], kind="distances", queries=["a"], keys="xyz")
    assert ax.description == "1×3 distances with mean 4.000, smallest a→y 3.00, largest a→z 5.00"
    negative = heatmap([[-4.0], [-3.0]], kind="scores").description
    assert negative == "2×1 scores with mean -3.500, smallest 0→0 -4.00, largest 1→0 -3.00"


def test_heatmap_leaves_blank_what_is_not_finite_and_says_so():
    inf, nan = float("inf"), float("nan")
    ax = heatmap([[1.0, -inf, 0.5], [nan, 2.0, inf]], kind="scores")
    assert ax.collections[0].get_clim() == (-2, 2)
    assert read(ax) == as_read([[1, nan, 0.5], [nan, 2, nan]], "01", "012")
    assert [text.get_text() for text in ax.texts] == ["1.00", "0.50", "2.00"]
    assert ax.description == (
        "2×3 scores with mean 1.167, smallest 0→2 0.50, largest 1→1 2.00; "
        "3 entries are not finite and left blank"
    )
    below = heatmap([[-inf, -3.0], [-2.0, nan]], kind="scores").description
    assert "mean -2.500, smallest 0→1 -3.00, largest 1→0 -2.00; 2 entries" in below
    nothing = heatmap([[inf, inf]] * 2, kind="scores").description
    assert nothing == "2×2 scores; 4 entries are not finite and left blank"


def test_heatmap_sums_only_rows_of_weights_without_nan():
    weights = torch.full((3, 2), torch.nan)  # row 0: softmax of nothing but -inf
    weights[1:] = torch.tensor([[0.75, 0.25], [0.0, 0.5]])
    assert heatmap(weights, keys="ab").description == (
        "3×2 attention weights; rows sum to 0.500 to 1.000; strongest of each row "
        "1→a 0.75, 2→b 0.50; 2 entries are not finite and left blank"
    )
    blank = "attention weights; 6 entries are not finite and left blank"
    assert heatmap(weights * torch.nan).description == f"3×2 {blank}"
    long = torch.cat([weights[:1], torch.eye(2).repeat(5, 1)])
    assert "; strongest 1→0 1.00; 2 entries" in heatmap(long).description


def test_heatmap_goes_through_the_rows_of_ten_and_no_more():
    ten, eleven = (heatmap(np.eye(n)[::-1]).description for n in (10, 11))
    strongest = ", ".join(f"{i}→{9 - i} 1.00" for i in range(10))
    assert ten == f"10×10 attention weights; rows sum to 1.000; strongest of each row {strongest}"
    assert eleven == "11×11 attention weights; rows sum to 1.000; strongest 0→10 1.00"


def test_heatmap_says_so_when_rows_do_not_sum_to_one():
    assert "rows sum to 0.500 to 1.000" in heatmap([[0.5, 0.5], [0.25, 0.25]]).description
    assert "rows sum to 0.999 to 1.000;" in heatmap([[0.5, 0.4993], [0.5, 0.5]]).description
    assert "rows sum to 1.000;" in heatmap([[0.5, 0.4998], [0.5, 0.5]]).description


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_figures_take_any_precision_and_what_needs_gradients(dtype):
    values = torch.tensor([[0.5, 1.0]], dtype=dtype, requires_grad=True)
    assert list(read(heatmap(values)).values()) == [0.5, 1]
    assert lines(values[0], {"a": values[0]}, xlabel="x", ylabel="y").lines
    assert arrows(values, labels="a").collections
    assert heatmap([[1, 0]]).description == heatmap([[True, False]]).description


# mask_pattern


def test_mask_pattern_is_light_where_a_query_may_see_a_key():
    mask = torch.tensor([[True, False, True], [False, False, False]])
    ax = mask_pattern(mask, title="holes")
    assert read(ax) == as_read(mask, "01", "012")
    assert ax.yaxis_inverted() and not ax.xaxis_inverted()  # query 0 on top, as in heatmap
    assert (ax.get_xlim(), ax.get_ylim()) == ((-0.5, 2.5), (1.5, -0.5))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("keys (light: may attend)", "queries")
    assert ax.get_title() == "holes"
    assert ax.get_aspect() == 1
    assert ax.description == "holes: 2×3 mask; keys allowed to each query: 2, 0"
    assert mask_pattern(mask.T).description == "3×2 mask; keys allowed to each query: 1, 0, 1"


@pytest.mark.parametrize("mask", [np.eye(3), np.ones((2, 3)), np.zeros((2, 3))])
def test_mask_pattern_has_the_same_two_colours_for_every_mask(mask):
    ax = mask_pattern(mask > 0)
    dark, light = colours(ax, 0, 1)
    assert min(light[:2]) > 0.8 and max(dark) < 0.4  # cividis ends in yellow
    lines_between = ax.collections[0].get_edgecolor()
    assert (lines_between == 1).all() and 0 < ax.collections[0].get_linewidth()[0] < 1


def test_mask_pattern_grows_with_its_mask_and_draws_into_the_axes_it_is_given():
    wide, high = (mask_pattern(np.ones(s)).figure.get_size_inches() for s in [(4, 12), (12, 4)])
    assert wide[0] > 4 > wide[1] and high[1] > 4 > high[0]
    _, (left, right) = plt.subplots(1, 2)
    assert mask_pattern(np.eye(3), ax=left) is left
    assert left.collections and not right.collections


# arrows


def test_arrows_end_where_their_vectors_point():
    vectors = np.array([[2, 0], [-1, 0.5], [0, -3]])
    ax = arrows(vectors, labels=["q", "k", "long"])
    ax.figure.canvas.draw()
    quiver = ax.collections[0]
    np.testing.assert_array_equal(quiver.get_offsets(), np.zeros((3, 2)))
    start = ax.transData.transform((0, 0))
    for path, vector in zip(quiver.get_paths(), vectors, strict=True):
        outline = quiver.get_transform().transform(path.vertices)  # pixels, from the arrow's start
        head = outline[np.hypot(*outline.T).argmax()]
        np.testing.assert_allclose(
            ax.transData.inverted().transform(start + head), vector, atol=0.01
        )
    assert 0.005 < quiver.width < 0.03  # of the Axes: neither a hair nor a beam
    assert ax.description == (
        "arrows from the origin: q at (2.00, 0.00), k at (-1.00, 0.50), long at (0.00, -3.00)"
    )


def test_arrows_carry_their_labels_at_their_heads_in_their_colours():
    ax = arrows([[2, 0], [-1, 0.5], [0.5, -3]], labels=["q", "k", 7])
    ax.figure.canvas.draw()
    assert [text.get_text() for text in ax.texts] == ["q", "k", "7"]
    painted = [tuple(colour) for colour in ax.collections[0].get_facecolor()]
    assert painted == [to_rgba(text.get_color()) for text in ax.texts]
    assert len(set(painted)) == 3
    for text, head in zip(
        ax.texts, ax.transData.transform([[2, 0], [-1, 0.5], [0.5, -3]]), strict=True
    ):
        corner = text.get_window_extent().p0
        assert 0 < np.hypot(*(corner - head)) < 15  # pixels: beside the head, not on it


@pytest.mark.parametrize("vectors", [[[2, 0], [-1, 0.5]], [[-3, -1]], [[1, -5]], [[0, 0]]])
def test_arrows_stand_in_a_square_with_the_origin_in_its_middle(vectors):
    ax = arrows(vectors, labels=range(len(vectors)))
    (low_x, high_x), (low_y, high_y) = ax.get_xlim(), ax.get_ylim()
    assert -low_x == high_x == -low_y == high_y > 0 and ax.get_aspect() == 1
    assert all(inside(ax, *np.multiply(1.1, vector)) for vector in vectors)
    assert high_x <= 1.5 * max(np.abs(vectors).max(), 1e-6)
    axes = [line.get_xydata().tolist() for line in ax.lines]
    assert axes == [[[0, 0], [1, 0]], [[0, 0], [0, 1]]]  # from edge to edge
    assert all(line.get_zorder() < ax.collections[0].get_zorder() for line in ax.lines)


# lines


def test_lines_draws_each_series_over_x():
    series = {"a": [1, 100], "b": torch.tensor([3.0, 4.0])}
    ax = lines([1, 10], series, xlabel="n", ylabel="ms", title="times")
    assert [line.get_xydata().tolist() for line in ax.lines] == [
        [[1, 1], [10, 100]],
        [[1, 3], [10, 4]],
    ]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("n", "ms", "times")
    assert (ax.get_xscale(), ax.get_yscale()) == ("linear", "linear")
    assert ax.xaxis.get_gridlines()[0].get_visible() and ax.yaxis.get_gridlines()[0].get_visible()
    assert ax.description == "ms as n goes from 1 to 10: a from 1 to 1e+02, b from 3 to 4"
    back = lines([10, 5, 7], {"a": [3, 9, 1]}, xlabel="n", ylabel="ms")
    assert back.description == "ms as n goes from 10 to 7: a from 3 to 1"  # ends, not extremes


def test_lines_has_logarithmic_axes_both_if_asked():
    ax = lines([1, 10], {"a": [1, 100]}, xlabel="n", ylabel="ms", log=True)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


@pytest.mark.parametrize("x, log", [([2, 8, 32, 128], True), ([16384, 512], True), ([0, 5], False)])
def test_lines_has_ticks_where_its_data_are(x, log):
    ax = lines(x, {"a": x}, xlabel="n", ylabel="ms", log=log)
    ax.figure.canvas.draw()
    seen = {tick.get_loc(): tick.label1.get_text() for tick in ax.xaxis.get_major_ticks()}
    assert seen == {place: str(place) for place in x}
    assert not len(ax.xaxis.get_minorticklocs())


@pytest.mark.parametrize("x", [range(11), [0, 1, 100], [5], [0, float("nan")]])
def test_lines_leaves_the_ticks_to_matplotlib_where_the_datas_would_crowd(x):
    ax = lines(x, {"a": x}, xlabel="n", ylabel="ms")
    assert ax.get_xticks().tolist() != list(x)


def test_lines_names_each_line_by_its_look():
    ax = lines([1, 2], {f"_{i}": [i, i] for i in range(9)}, xlabel="x", ylabel="y")
    legend = ax.get_legend()
    names = [text.get_text() for text in legend.get_texts()]
    looks = [(line.get_color(), line.get_marker()) for line in legend.get_lines()]
    assert dict(zip(names, looks, strict=True)) == {
        f"_{int(line.get_ydata()[0])}": (line.get_color(), line.get_marker()) for line in ax.lines
    }
    assert len(names) == len(set(looks)) == 9
    markers = [line.get_marker() for line in ax.lines]
    assert len(set(markers)) == 7 and not {"", "None"} & set(markers)  # for eyes without colours
    assert all(line.get_markersize() > 2 for line in ax.lines)


def test_lines_adds_to_the_axes_it_is_given():
    _, ax = plt.subplots()
    ax.plot([1, 2], [1, 2], label="theory")
    assert lines([1, 2], {"measured": [1, 2]}, xlabel="x", ylabel="y", ax=ax) is ax
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["theory", "measured"]
    assert len(plt.get_fignums()) == 1


# show


def test_show_gives_one_picture_and_then_its_description_as_text(shown):
    ax = heatmap(WEIGHTS, queries=["<i>", "b"])
    show(ax)
    (picture, how), (text, _) = shown
    assert how["raw"] and set(picture) == {"image/png", "text/plain"}
    assert picture["text/plain"] == ax.description
    assert folded(text) == f"Picture: {ax.description}."
    assert "&lt;i&gt;→0 0.70" in text.data


def test_show_closes_its_figure_so_that_the_kernel_does_not_show_it_again(shown):
    other = plt.figure()
    show(heatmap(WEIGHTS))
    assert plt.get_fignums() == [other.number]


def test_shows_picture_is_cut_to_what_is_drawn_and_repeats_on_every_machine(shown):
    for _ in range(2):
        figure, ax = plt.subplots(figsize=(10, 6))
        ax.set(position=[0.4, 0.4, 0.2, 0.2], xticks=[], yticks=[])  # inches 2 by 1.2
        show(ax, "1 empty box")
    first, second = (item["image/png"] for item, how in shown if how)
    assert first == second
    image = Image.open(io.BytesIO(base64.b64decode(first)))
    assert image.format == "PNG" and "Software" not in image.info
    assert image.info["dpi"] == pytest.approx((160, 160), abs=0.1)
    assert image.size == pytest.approx((160 * 2.2, 160 * 1.4), abs=12)  # and a margin


@pytest.mark.parametrize("inches, pixels", [(5, 400), (40, 820)])
def test_a_picture_is_twice_as_dense_as_the_page_and_no_wider_than_its_column(
    shown, inches, pixels
):
    _, ax = plt.subplots(figsize=(inches, 2))
    ax.set(position=[0, 0, 1, 1], xticks=[], yticks=[])
    show(ax, "1 empty box")
    picture, how = shown[0]
    width = how["metadata"]["image/png"]["width"]
    assert width == pytest.approx(pixels, abs=20) and width <= 820
    image = Image.open(io.BytesIO(base64.b64decode(picture["image/png"])))
    assert image.width >= 2 * width


DRAWN = {
    "heatmap": lambda: heatmap(WEIGHTS),
    "mask_pattern": lambda: mask_pattern(np.eye(2)),
    "arrows": lambda: arrows([[1, 0]], labels="a"),
    "lines": lambda: lines([1, 2], {"a": [1, 2]}, xlabel="n", ylabel="ms"),
}


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
def test_every_axis_has_a_name(draw):
    ax = draw()
    assert ax.get_xlabel() and ax.get_ylabel()


def test_show_joins_the_descriptions_of_all_axes(shown):
    _, (left, middle, right) = plt.subplots(1, 3)
    heatmap(WEIGHTS, title="one", ax=left)
    heatmap(WEIGHTS, title="two", ax=right)
    show(left)
    one, two = shown[0][0]["text/plain"].split(" | ")
    assert one.startswith("one: 2×3") and two.startswith("two: 2×3")


def test_show_takes_a_description_instead(shown):
    show(heatmap(WEIGHTS), "2 rows")
    assert shown[0][0]["text/plain"] == "2 rows" and "Picture: 2 rows." in shown[1][0].data


def test_show_takes_an_axes_of_a_part_of_a_figure(shown):
    part = plt.figure().subfigures(1, 2)[0]
    show(heatmap(WEIGHTS, ax=part.subplots()))
    assert "2×3" in shown[0][0]["text/plain"] and not plt.get_fignums()


# errors


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: heatmap(torch.zeros(2, 4, 3, 3)), r"weights must .* \(2, 4, 3, 3\); choose one"),
        (lambda: heatmap(torch.zeros(3)), r"weights must have shape \(L, S\), got \(3,\)$"),
        (lambda: heatmap(torch.zeros(0, 3)), r"weights must have at least one .* \(0, 3\)"),
        (lambda: heatmap([[1, 2], [3]]), "weights must be numbers, in rows of one length"),
        (lambda: heatmap([["a"]]), "weights must be numbers"),
        (lambda: heatmap({}), "weights must be numbers"),
        (lambda: heatmap(None), r"weights must have shape \(L, S\), got \(\)"),
        (lambda: heatmap(WEIGHTS, queries=["one"]), "queries must have 2 entries.* got 1"),
        (lambda: heatmap(WEIGHTS, keys=["one"]), "keys must have 3 entries.* got 1"),
        (lambda: heatmap(WEIGHTS, kind="odd"), "kind must be one of weights, .* got 'odd'"),
        (lambda: mask_pattern([True, False]), r"mask must have shape \(L, S\), got \(2,\)"),
        (lambda: mask_pattern([[0.0, -np.inf]]), r"mask must be True \(may attend\) or False"),
        (lambda: mask_pattern([[1, 2]]), r"mask must be True \(may attend\) or False"),
        (lambda: arrows(WEIGHTS, labels="ab"), r"vectors must have shape \(n, 2\), got \(2, 3\)"),
        (lambda: arrows([[1, 2]], labels="ab"), "labels must have 1 entries.* got 2"),
        (lambda: arrows([[1, np.nan]], labels="a"), "vectors must be finite"),
        (lambda: arrows([[1, -np.inf]], labels="a"), "vectors must be finite"),
        (
            lambda: lines([1, 2], {"a": [1]}, xlabel="x", ylabel="y"),
            r"series\['a'\] must have shape \(2,\) as x has, got \(1,\)",
        ),
        (
            lambda: lines([1, 2], {"a": ["b", "c"]}, xlabel="x", ylabel="y"),
            r"series\['a'\] must be numbers",
        ),
        (lambda: lines([], {"a": []}, xlabel="x", ylabel="y"), r"x must have shape .* got \(0,\)"),
        (lambda: lines([[1]], {}, xlabel="x", ylabel="y"), r"x must have shape .* got \(1, 1\)"),
        (lambda: show(plt.subplots()[1]), "description must say"),
        (lambda: show(heatmap(WEIGHTS), ""), "description must say"),
    ],
)
def test_wrong_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_show_names_what_is_no_axes(shown):
    with pytest.raises(TypeError, match="ax must be the Axes that heatmap returns, got Tensor"):
        show(WEIGHTS)
    assert not shown


# any text


WITH_TOKENS = {
    "queries": lambda tokens: heatmap(np.eye(len(tokens)), queries=tokens),
    "keys": lambda tokens: heatmap(np.eye(len(tokens)), keys=tokens),
    "labels": lambda tokens: arrows(np.ones((len(tokens), 2)), labels=tokens),
    "names": lambda tokens: lines([1], {each: [1] for each in tokens}, xlabel="x", ylabel="y"),
}


@pytest.mark.filterwarnings("ignore:Glyph")  # no font has all
@pytest.mark.parametrize("draw", WITH_TOKENS.values(), ids=WITH_TOKENS)
def test_any_token_is_drawn_letter_by_letter(draw, shown, drawn):
    show(draw(list(TOKENS)))
    assert {text for text, _ in drawn} >= set(SEEN)
    assert not [text for text, formula in drawn if formula]
    told = shown[0][0]["text/plain"]
    assert printable(told) == told
    assert folded(shown[1][0]) == f"Picture: {told}."


WITH_TITLE = {
    "heatmap": lambda text: heatmap(WEIGHTS, title=text),
    "mask": lambda text: mask_pattern(WEIGHTS > 0.2, title=text),
    "lines": lambda text: lines([1], {"a": [1]}, xlabel="x", ylabel="y", title=text),
    "xlabel": lambda text: lines([1], {"a": [1]}, xlabel=text, ylabel="y"),
    "ylabel": lambda text: lines([1], {"a": [1]}, xlabel="x", ylabel=text),
}


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("draw", WITH_TITLE.values(), ids=WITH_TITLE)
def test_any_title_is_drawn_letter_by_letter_and_breaks_its_lines(draw, shown, drawn):
    show(draw(EVIL + "\nsecond"))
    assert {(TOLD, False), ("second", False)} <= set(drawn)
    told = shown[0][0]["text/plain"]
    assert printable(told) == told
    assert folded(shown[1][0]) == f"Picture: {told}."


@pytest.mark.filterwarnings("ignore:Glyph")
def test_a_description_may_be_any_text(shown):
    show(heatmap(WEIGHTS), EVIL)
    assert shown[0][0]["text/plain"] == TOLD
    assert folded(shown[1][0]) == f"Picture: {TOLD}."


def test_a_figure_without_a_title_has_none():
    ax = lines([1], {"a": [1]}, xlabel="x", ylabel="y")
    assert {each.get_title() for each in (ax, heatmap(WEIGHTS), mask_pattern(np.eye(2)))} == {""}


def test_labels_stand_on_one_line_each():
    assert as_labels(["a\nb", "\n", 3], 3, "keys") == ["a\\nb", "\\n", "3"]


def test_every_character_becomes_one_that_xml_and_utf_8_take():
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    told = printable(everything)
    assert ET.fromstring(f"<a>{html.escape(told)}</a>".encode()).text == told
    kept = [c for c in everything if c.isprintable() or c == "\n"]
    assert printable("".join(kept)) == "".join(kept)


def test_a_logarithmic_axis_keeps_its_powers_of_ten(drawn):
    lines([1, 1000], {"a": [1, 1000]}, xlabel="$", ylabel="$", log=True).figure.canvas.draw()
    assert [text for text, formula in drawn if formula and "10^{2}" in text]


# Another CPU rounds otherwise, and must not tell of another entry.


@pytest.mark.parametrize("sign", [1, -1])
def test_of_entries_that_differ_by_rounding_the_first_is_told(sign):
    tied = np.array([[0.2, 0.9, 0.9 + 1e-6], [0.1, 0.3, 0.3 - 1e-6]])
    assert "strongest of each row 0→1 0.90, 1→1 0.30" in heatmap(tied).description
    extreme = "largest" if sign > 0 else "smallest"
    assert f"{extreme} 0→1" in heatmap(sign * tied, kind="scores").description
    apart = np.array([[0.2, 0.9, 0.91]])
    assert "strongest of each row 0→2 0.91" in heatmap(apart).description
    assert f"{extreme} 0→2" in heatmap(sign * apart, kind="scores").description
