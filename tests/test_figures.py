import base64
import io

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from PIL import Image

from course_utils import figures
from course_utils.figures import arrows, heatmap, lines, mask_pattern, roadmap, show

WEIGHTS = torch.tensor([[0.7, 0.2, 0.1], [0.25, 0.25, 0.5]])


def mesh(ax):
    return np.asarray(ax.collections[0].get_array()).reshape(-1)


def test_heatmap_draws_the_weights_it_was_given_queries_down_keys_across():
    ax = heatmap(WEIGHTS, queries=["it", "was"], keys=["the", "cat", "sat"])
    np.testing.assert_allclose(mesh(ax), WEIGHTS.flatten(), rtol=1e-6)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["it", "was"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["the", "cat", "sat"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("keys", "queries")
    assert [text.get_text() for text in ax.texts] == "0.70 0.20 0.10 0.25 0.25 0.50".split()
    assert ax.yaxis_inverted()  # the first query is at the top


@pytest.mark.parametrize(
    "kind, limits", [("weights", (0, 1)), ("scores", (-3, 3)), ("distances", (0, 3))]
)
def test_heatmap_fixes_the_colours_by_kind(kind, limits):
    ax = heatmap([[1.0, -3.0], [0.5, 2.0]], kind=kind)
    assert ax.collections[0].get_clim() == limits


def test_heatmap_describes_what_it_draws():
    ax = heatmap(WEIGHTS, queries=["it", "was"], keys=["the", "cat", "sat"])
    assert ax.description == (
        "2×3 attention weights; rows sum to 1.000; strongest of each row it→the 0.70, was→sat 0.50"
    )
    ax = heatmap([[1.0, -3.0], [0.5, 2.0]], kind="scores", title="dot")
    assert ax.description == (
        "dot: 2×2 scores with mean 0.125, smallest 0→1 -3.00, largest 1→1 2.00"
    )


def test_heatmap_leaves_blank_what_is_not_finite_and_says_so():
    inf = float("inf")
    ax = heatmap([[1.0, -inf], [float("nan"), 2.0]], kind="scores")
    assert ax.collections[0].get_clim() == (-2, 2)
    assert np.ma.getmaskarray(ax.collections[0].get_array()).flatten().tolist() == [0, 1, 1, 0]
    assert ax.description == (
        "2×2 scores with mean 1.500, smallest 0→0 1.00, largest 1→1 2.00; "
        "2 entries are not finite and left blank"
    )
    assert "4 entries are not" in heatmap([[inf, inf]] * 2, kind="scores").description


def test_heatmap_goes_through_the_rows_of_ten_and_no_more():
    ten, eleven = (heatmap(np.eye(n)).description for n in (10, 11))
    assert "9→9 1.00" in ten and "10→10" not in eleven and "strongest 0→0" in eleven


def test_heatmap_says_so_when_rows_do_not_sum_to_one():
    assert "rows sum to 0.500 to 1.000" in heatmap([[0.5, 0.5], [0.25, 0.25]]).description


def test_heatmap_draws_into_the_axes_it_is_given_and_annotates_only_small_matrices():
    _, ax = plt.subplots()
    assert heatmap(torch.rand(20, 20), ax=ax) is ax
    assert not ax.texts


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: heatmap(torch.zeros(2, 4, 3, 3)), r"weights must .* \(2, 4, 3, 3\); choose one"),
        (lambda: heatmap(torch.zeros(3)), r"weights must have shape \(L, S\), got \(3,\)$"),
        (lambda: heatmap(WEIGHTS, queries=["one"]), "queries must have 2 entries.* got 1"),
        (lambda: heatmap(WEIGHTS, keys=["one"]), "keys must have 3 entries.* got 1"),
        (lambda: heatmap(WEIGHTS, kind="odd"), "kind must be one of weights, .* got 'odd'"),
        (lambda: arrows(WEIGHTS, labels="ab"), r"vectors must have shape \(n, 2\), got \(2, 3\)"),
        (lambda: arrows([[1, 2]], labels="ab"), "labels must have 1 entries.* got 2"),
        (
            lambda: lines([1, 2], {"a": [1]}, xlabel="x", ylabel="y"),
            r"series\['a'\] must have shape \(2,\)",
        ),
        (lambda: show(plt.subplots()[1]), "description must say"),
    ],
)
def test_wrong_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_arrows_start_at_the_origin_and_carry_their_labels():
    ax = arrows([[2, 0], [-1, 0.5]], labels=["q", "k"])
    quiver = ax.collections[0]
    np.testing.assert_allclose(quiver.get_offsets(), np.zeros((2, 2)))
    np.testing.assert_allclose(np.c_[quiver.U, quiver.V], [[2, 0], [-1, 0.5]])
    assert [text.get_text() for text in ax.texts] == ["q", "k"]
    assert ax.description == "arrows from the origin: q at (2.00, 0.00), k at (-1.00, 0.50)"


def test_lines_draws_each_series_over_x():
    ax = lines([1, 10], {"a": [1, 100], "b": [3, 4]}, xlabel="n", ylabel="ms", log=True)
    drawn = {line.get_label(): line.get_xydata().tolist() for line in ax.lines}
    assert drawn == {"a": [[1, 1], [10, 100]], "b": [[1, 3], [10, 4]]}
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert ax.description == "ms as n goes from 1 to 10: a from 1 to 1e+02, b from 3 to 4"


def test_roadmap_names_every_lesson_in_order():
    ax = roadmap(["00 · a", "01 · b"])
    assert [text.get_text() for text in ax.texts if text.get_text()] == ["00 · a", "01 · b"]
    assert ax.description == "the 2 lessons in order: 00 · a → 01 · b"


def test_show_gives_the_picture_and_then_its_description_as_text(monkeypatch):
    shown = []
    monkeypatch.setattr(figures, "display", lambda item, **_: shown.append(item))
    ax = heatmap(WEIGHTS, queries=["<i>", "b"])
    show(ax)
    picture, text = shown
    assert picture["text/plain"] == ax.description
    assert Image.open(io.BytesIO(base64.b64decode(picture["image/png"]))).width > 100
    assert "&lt;i&gt;→0 0.70" in text.data
    assert not plt.get_fignums()  # closed, so that the kernel does not show it a second time


def test_show_joins_the_descriptions_of_all_axes(monkeypatch):
    shown = []
    monkeypatch.setattr(figures, "display", lambda item, **_: shown.append(item))
    _, (left, right) = plt.subplots(1, 2)
    heatmap(WEIGHTS, title="one", ax=left)
    heatmap(WEIGHTS, title="two", ax=right)
    show(left)
    one, two = shown[0]["text/plain"].split(" | ")
    assert one.startswith("one: 2×3") and two.startswith("two: 2×3")


def test_mask_pattern_is_light_where_a_query_may_see_a_key():
    mask = torch.tensor([[True, False, True], [False, False, False]])
    ax = mask_pattern(mask, title="holes")
    drawn = np.asarray(ax.collections[0].get_array()).reshape(2, 3)
    assert (drawn == mask.numpy()).all()
    assert ax.yaxis_inverted()  # query 0 on top, as in heatmap
    assert ax.description == "holes: 2×3 mask; keys allowed to each query: 2, 0"
    with pytest.raises(ValueError, match=r"mask must have shape \(L, S\), got \(3,\)"):
        mask_pattern([True, False, True])
