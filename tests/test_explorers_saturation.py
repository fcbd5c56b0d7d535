"""The two explorers of softmax: move a control, look at the words, and at what the page draws."""

import functools
import math
import re

import pytest
import torch
from matplotlib import colormaps

from course_utils.explorers import saturation_explorer, scaling_explorer
from explorer_pictures import set_controls
from tools import render_previews


def told(explorer, name):
    """Read the number that stands after a name in the words."""
    return float(re.search(rf"{name} (-?[\d.e-]+|NaN)", explorer.state)[1].rstrip("."))


def weights_told(explorer):
    return [float(w) for w in re.search(r"weights ([^;]*);", explorer.state)[1].split(", ")]


@pytest.fixture(scope="module")
def pages(chromium):
    """Both explorers, each on a page of its own."""
    makes = [scaling_explorer, saturation_explorer]
    opened = {make: render_previews.shown(chromium, make()) for make in makes}
    yield opened
    for page in opened.values():
        page.close()


# What is drawn: texts by their place, and rectangles with their corners and colours, those of a
# hatched bar with what their group says of being seen.
DRAWN = """values => {
    model.set("values", {...Object.fromEntries(Object.entries(model.get("controls"))
        .map(([name, {value}]) => [name, value])), ...values});
    const number = (part, names) => names.map(name => Number(part.getAttribute(name)));
    const all = name => [...document.querySelectorAll(`svg ${name}`)];
    return {
        texts: all("text").map(text => [text.textContent, ...number(text, ["x", "y"])]),
        rects: all("rect").map(rect => [
            ...number(rect, ["x", "y", "width", "height"]), rect.getAttribute("fill"),
            getComputedStyle(rect).visibility]),
    };
}"""
BLUE, LIGHT_RED, GREY = "#1f77b4", "mistyrose", "#8c8c8c"


def drawn(page, **values):
    """Return texts and rectangles that a page draws with these values, the others as it opens."""
    return page.evaluate(DRAWN, values)


def bars(picture, keys):
    """Return heights, which of them are broken, and what stands above, one a key.

    All of it is checked to stand at its key, whose name is under it: bar, hatched bar and text.
    """
    _, top, _, height, *_ = picture["rects"][0]
    bottom = top + height
    names = {text: x for text, x, y in picture["texts"] if y == bottom + 17}
    assert list(names) == [f"key {key}" for key in range(1, keys + 1)]
    whole = [rect for rect in picture["rects"] if rect[4] == BLUE]
    broken = [rect for rect in picture["rects"] if rect[4] == LIGHT_RED]
    heights, above = [], []
    for bar, other, middle in zip(whole, broken, names.values(), strict=True):
        assert bar[0] + bar[2] / 2 == pytest.approx(middle, abs=0.01)
        assert (bar[0], bar[2]) == (other[0], other[2])
        assert other[3] == pytest.approx(height / 1.3, abs=0.01)
        for _, y, _, tall, *_ in (bar, other):
            assert not tall or y + tall == pytest.approx(bottom, abs=0.011)
        heights.append(bar[3] / height * 1.3)
        upper = other[1] if other[5] == "visible" else bar[1]
        over = [(text, y) for text, x, y in picture["texts"] if x == middle and y < bottom and text]
        assert all(upper - 30 < y < upper and y > top + 10 for _, y in over)
        assert over[0] is over[-1] or over[1][1] - over[0][1] >= 13  # letters of 13 pixels
        above.append([text for text, _ in over])
    return heights, [rect[5] == "visible" for rect in broken], above


def squares(picture):
    """Return the colours of the Jacobian's 25 cells, in order."""
    return [rect[4] for rect in picture["rects"] if (rect[2], rect[3]) == (56, 38)]


# Of weights whose scores, up to 48, are float32 and a few 48 · 2⁻²⁴ off; and of bars of at least
# 126 pixels, drawn to a hundredth of one at both ends.
ROUNDING = 1e-5 + 0.01 / 126


@functools.cache
def explorer_and_start():
    explorer = saturation_explorer()
    return explorer, explorer.values


def one_explorer():
    """Return an explorer that stands as it opens, whatever the last test did to it."""
    explorer, start = explorer_and_start()
    return set_controls(explorer, **start)


LOGITS = {f"logit_{j}": value for j, value in enumerate([3.0, -1.0, 0.5, 2.5, -4.0], start=1)}


@pytest.mark.parametrize("temperature", [0.25, 1, 4])
@pytest.mark.parametrize("d_k, scaled", [(1, True), (256, True), (4, False), (16, False)])
def test_words_and_pictures_agree_with_torch(pages, temperature, d_k, scaled):
    values = LOGITS | {"temperature": temperature, "d_k": d_k, "scaled": scaled}
    explorer = set_controls(one_explorer(), **values)
    scores = torch.tensor(list(LOGITS.values()), dtype=torch.float64) / temperature
    scores = scores if scaled else scores * d_k**0.5
    p = torch.softmax(scores, dim=-1)
    jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), scores)
    scores_told = re.search(r"softmax of ([^:]*): ", explorer.state)[1].split(", ")
    assert [float(s) for s in scores_told] == pytest.approx(scores.tolist(), rel=1e-3)
    assert weights_told(explorer) == pytest.approx(p.tolist(), abs=1e-3)
    picture = drawn(pages[saturation_explorer], **values)
    heights, broken, above = bars(picture, 5)
    assert heights == pytest.approx(p.tolist(), abs=ROUNDING) and not any(broken)
    assert [float(text) for (text,) in above] == pytest.approx(p.tolist(), abs=0.0051)
    assert shades(squares(picture)) == pytest.approx(right_shades(jacobian), abs=3)
    entropy = torch.distributions.Categorical(p).entropy().item()
    assert told(explorer, "entropy") == pytest.approx(entropy, abs=1e-3)
    assert told(explorer, "gradient norm") == pytest.approx(
        jacobian.norm().item(), rel=1e-2, abs=1e-6
    )
    assert "overflow" not in explorer.state


def shades(colours):
    """Return red, green and blue of each colour, one after the other."""
    return [int(shade) for colour in colours for shade in re.findall(r"\d+", colour)]


def right_shades(jacobian):
    """Return what Matplotlib gives, in 256 steps: one of them is up to 4 of a shade's 255."""
    colours = colormaps["RdBu_r"](((jacobian + 0.25) / 0.5).flatten().numpy(), bytes=True)
    return colours[:, :3].flatten().tolist()


@pytest.mark.parametrize("dtype, last", [("float32", 88.5), ("float16", 11), ("bfloat16", 88.5)])
def test_naive_breaks_where_exp_of_the_dtype_does_and_stable_does_not(dtype, last):
    explorer = saturation_explorer()
    set_controls(explorer, dtype=dtype, method="naive", logit_1=last)
    assert "overflow" not in explorer.state
    assert weights_told(explorer)[0] == pytest.approx(1, abs=1e-3)
    set_controls(explorer, logit_1=last + 0.5)
    assert f"; overflow in {dtype}: exp is inf at key 1; found: " in explorer.state
    assert math.isnan(weights_told(explorer)[0])
    assert math.isnan(told(explorer, "entropy")) and math.isnan(told(explorer, "gradient norm"))
    set_controls(explorer, method="stable")
    assert "overflow" not in explorer.state
    assert weights_told(explorer)[0] == pytest.approx(1, abs=1e-3)


def test_a_sum_that_overflows_alone_is_told():
    explorer = saturation_explorer()
    set_controls(explorer, dtype="float16", method="naive", logit_1=11, logit_2=11)
    assert "the sum of the exponentials is inf" in explorer.state
    assert weights_told(explorer)[:2] == [0, 0]


def test_a_score_that_overflows_is_told_even_if_stable():
    explorer = saturation_explorer()
    set_controls(explorer, dtype="float16", logit_1=100, d_k=4096, scaled=False, temperature=0.05)
    assert "score is inf at key 1" in explorer.state
    assert "exp is NaN at key 1" in explorer.state


def test_what_overflowed_is_drawn_as_such(pages):
    values = {"logit_2": 90, "logit_4": 95, "method": "naive"}
    picture = drawn(pages[saturation_explorer], **values)
    heights, broken, above = bars(picture, 5)
    assert heights == [0] * 5 and broken == [False, True, False, True, False]
    assert above == [["0.00"], ["NaN", "exp = inf"]] * 2 + [["0.00"]]
    p = torch.tensor([0, torch.nan, 0, torch.nan, 0])
    nan = (p.diag() - p.outer(p)).isnan().flatten().tolist()
    assert [colour == GREY for colour in squares(picture)] == nan and any(nan)
    picture = drawn(pages[saturation_explorer], **values | {"method": "stable"})
    assert not any(bars(picture, 5)[1]) and GREY not in squares(picture)


def test_a_broken_bar_is_hatched_from_edge_to_edge_and_not_beyond(pages):
    page = pages[saturation_explorer]
    drawn(page, logit_2=90, method="naive")
    boxes = page.locator("svg g").evaluate_all(
        """groups => groups.map(group => [...group.children].map(part => {
            const { x, y, width, height } = part.getBBox();
            return [x, y, width, height];
        }))"""
    )
    assert len(boxes) == 5
    for rect, lines in boxes:
        assert lines == pytest.approx(rect, abs=0.02)
    for path in page.locator("svg g path").evaluate_all("all => all.map(one => one.outerHTML)"):
        ends = re.findall(r"M (\S+) (\S+) L (\S+) (\S+) ", path)
        assert len(ends) > 20
        for x1, y1, x2, y2 in (map(float, each) for each in ends):
            assert x2 - x1 == pytest.approx(y1 - y2, abs=0.01) and x2 > x1


def test_an_overflow_of_the_sum_leaves_bars_of_no_height(pages):
    values = {"dtype": "float16", "method": "naive", "logit_1": 11, "logit_2": 11}
    heights, broken, above = bars(drawn(pages[saturation_explorer], **values), 5)
    assert heights == [0] * 5 and not any(broken) and above == [["0.00"]] * 5


@pytest.mark.parametrize("make", [scaling_explorer, saturation_explorer])
def test_bars_have_a_scale_up_to_one(pages, make):
    picture = drawn(pages[make])
    left, top, _, height, *_ = picture["rects"][0]
    ticks = {text: y for text, x, y in picture["texts"] if x == left - 7}
    marks = [f"{weight:.2f}" for weight in (0, 0.25, 0.5, 0.75, 1)]
    assert list(ticks)[:5] == marks
    for mark in marks:
        middle = ticks[mark] - 4.5  # letters stand on their line
        assert middle == pytest.approx(top + height * (1 - float(mark) / 1.3), abs=0.01)
    assert "weight" in {text for text, *_ in picture["texts"]}


def test_the_jacobian_stands_under_the_bars_with_names_and_a_scale_of_its_own(pages):
    page = pages[saturation_explorer]
    picture = drawn(page)
    _, top, _, height, *_ = picture["rects"][0]
    cells = [rect for rect in picture["rects"] if (rect[2], rect[3]) == (56, 38)]
    assert min(y for _, y, *_ in cells) > top + height + 17
    texts = [text for text, *_ in picture["texts"]]
    named = "score that moves", "weight that answers", "Jacobian diag(p) − ppᵀ (grey: NaN)"
    assert set(named) <= set(texts)
    at = {text: y for text, x, y in picture["texts"] if x < cells[0][0] and text.startswith("key")}
    for key in range(1, 6):  # rows from above, columns from the left
        x, y = cells[5 * (key - 1)][:2]
        assert at[f"key {key}"] == pytest.approx(y + 19 + 4.5)
        x = cells[key - 1][0]
        assert [f"key {key}", x + 28, cells[-1][1] + 38 + 17] in picture["texts"]
    # the scale: from red for 0.25 at the top to blue for -0.25 at the bottom
    scale = [rect for rect in picture["rects"] if rect[2] == 14 and rect[4] != "none"]
    values = torch.linspace(0.25, -0.25, 2 * len(scale) + 1)[1::2]
    assert shades(rect[4] for rect in scale) == pytest.approx(right_shades(values), abs=3)
    for text in ("0.2", "0", "−0.1"):
        y = next(y for each, x, y in picture["texts"] if each == text and x > scale[0][0])
        share = (0.25 - float(text.replace("−", "-"))) / 0.5
        height = scale[-1][1] + scale[-1][3] - scale[0][1]
        assert y - 4.5 == pytest.approx(scale[0][1] + share * height, abs=0.6)


def test_controls_have_the_ranges_and_choices_of_the_lesson():
    controls = scaling_explorer().controls
    limits = {"label": "d_k", "value": 4, "low": 4, "high": 512, "step": 4}
    assert controls["d_k"] == {"kind": "number"} | limits
    assert controls["scaled"] == {"kind": "check", "label": "divide by √d_k", "value": False}
    controls = saturation_explorer().controls
    starts = {name: control["value"] for name, control in controls.items()}
    assert starts == STARTS
    for j in range(1, 6):
        limits = {"low": -20, "high": 100, "step": 0.5}
        assert controls[f"logit_{j}"].items() >= ({"label": f"logit {j}"} | limits).items()
    assert controls["temperature"].items() >= {"low": 0.05, "high": 5, "step": 0.05}.items()
    assert controls["d_k"]["options"] == [1, 4, 16, 64, 256, 1024, 4096]
    assert controls["dtype"]["options"] == ["float32", "float16", "bfloat16"]
    assert controls["method"]["options"] == ["stable", "naive"]
    assert [controls[n]["label"] for n in ("scaled", "method")] == ["divide by √d_k", "softmax"]


@pytest.mark.parametrize("make, keys", [(scaling_explorer, 8), (saturation_explorer, 5)])
def test_entropy_stands_beside_the_most_that_so_many_keys_can_have(make, keys):
    assert f" of at most {math.log(keys):.3f} nats;" in make().state


def test_unscaled_weights_saturate_as_d_k_grows_and_scaled_ones_do_not():
    explorer = scaling_explorer()
    entropies = {}
    for scaled in (False, True):
        for d_k in (4, 16, 64, 256):
            set_controls(explorer, d_k=d_k, scaled=scaled)
            entropies[scaled, d_k] = told(explorer, "entropy")
    unscaled = [entropies[False, d_k] for d_k in (4, 16, 64, 256)]
    assert unscaled == sorted(unscaled, reverse=True) and unscaled[-1] < 0.01
    assert min(entropies[True, d_k] for d_k in (4, 16, 64, 256)) > 1.2


def test_scaling_explorer_scores_are_dot_products_of_the_first_d_k_numbers(pages):
    explorer = scaling_explorer()
    rng = torch.Generator().manual_seed(31)
    q, k = torch.randn(512, generator=rng), torch.randn(8, 512, generator=rng)
    for d_k, scaled in [(4, False), (6, True), (50, False), (100, True), (512, True)]:
        set_controls(explorer, d_k=d_k, scaled=scaled)
        scores = k[:, :d_k] @ q[:d_k] / (d_k**0.5 if scaled else 1)
        largest = scores.abs().max().item()
        assert told(explorer, "largest score in size") == pytest.approx(largest, abs=0.051)
        p = scores.softmax(dim=-1).double()
        entropy = -(p * p.log()).sum().item()
        assert told(explorer, "entropy") == pytest.approx(entropy, abs=1e-3)
        jacobian = p.diag() - p.outer(p)
        assert told(explorer, "gradient norm") == pytest.approx(jacobian.norm().item(), rel=0.01)
        picture = drawn(pages[scaling_explorer], d_k=d_k, scaled=scaled)
        heights, broken, above = bars(picture, 8)
        assert heights == pytest.approx(p.tolist(), abs=ROUNDING) and not any(broken)
        assert [float(text) for (text,) in above] == pytest.approx(p.tolist(), abs=0.0051)


STARTS = {f"logit_{j}": 3 - j for j in range(1, 6)}
STARTS |= {"temperature": 1, "d_k": 64, "scaled": True, "dtype": "float32", "method": "stable"}


def found(explorer):
    return explorer.state.partition("; found: ")[2]


@pytest.mark.parametrize("dtype, first", [("float16", 11.5), ("bfloat16", 89), ("float32", 89)])
def test_the_first_logit_with_an_infinite_power_is_noticed_and_no_other(dtype, first):
    values = STARTS | {"dtype": dtype, "method": "naive"}
    explorer = set_controls(one_explorer(), **values)
    noticed = [
        half / 2
        for half in range(-40, 201)
        if "first logit 1" in set_controls(explorer, logit_1=half / 2).state
    ]
    assert noticed == [first]
    explorer = set_controls(explorer, logit_1=first)
    assert f"found: {first:g} is the first logit 1 with an infinite power in {dtype}" in (
        explorer.state
    )
    set_controls(explorer, method="stable")
    assert found(explorer).startswith("the same scores, and weights where naive fails")


def test_powers_that_are_all_0_are_noticed():
    low = {f"logit_{j}": -20 for j in range(1, 6)} | {"dtype": "float16", "method": "naive"}
    explorer = set_controls(one_explorer(), **STARTS | low)
    assert found(explorer) == "every power is 0 in float16, and 0 / 0 is NaN"
    assert "NaN" in explorer.state.split(";")[0]
    set_controls(explorer, method="stable")
    assert found(explorer) == "the same scores, and weights where naive fails"
    assert found(set_controls(explorer, dtype="float32")) == ""


def test_the_temperature_with_the_largest_gradient_norm_is_noticed_and_the_lowest():
    explorer = set_controls(one_explorer(), **STARTS)
    norms, noticed = {}, {}
    for step in range(1, 101):
        set_controls(explorer, temperature=step / 20)
        norms[step] = jacobian_norm(torch.tensor([2.0, 1, 0, -1, -2]) / (step / 20))
        noticed[step] = found(explorer)
    best = max(norms, key=norms.get)
    assert {step for step, told in noticed.items() if told} == {1, best} and 1 < best < 100
    assert noticed[best] == "no other temperature has a larger gradient norm"
    assert noticed[1] == f"at the lowest temperature the gradient norm is {norms[1]:.3f}"


def test_what_is_typed_between_two_places_of_a_slider_is_not_taken_for_one_of_them():
    explorer = set_controls(one_explorer(), **STARTS)
    for temperature in (0.06, 0.07):
        assert found(set_controls(explorer, temperature=temperature)) == ""
    set_controls(explorer, **STARTS | {"method": "naive", "logit_1": 88.9})  # 88.73 is infinite too
    assert "exp is inf at key 1" in explorer.state and found(explorer) == ""


def jacobian_norm(scores):
    return torch.autograd.functional.jacobian(lambda x: x.softmax(-1), scores).norm().item()


def test_where_all_logits_are_alike_no_temperature_is_best():
    alike = {f"logit_{j}": 1 for j in range(1, 6)}
    explorer = set_controls(one_explorer(), **STARTS | alike)
    assert not any(found(set_controls(explorer, temperature=t)) for t in (0.05, 0.6, 5))


def test_the_scaling_explorer_notices_what_lesson_02_asks_for():
    explorer = scaling_explorer()
    rng = torch.Generator().manual_seed(31)
    q, k = torch.randn(512, generator=rng), torch.randn(8, 512, generator=rng)
    took_over, tied = [], []
    largest = {}
    for d_k in range(4, 513, 4):
        p = (k[:, :d_k] @ q[:d_k]).softmax(dim=-1)
        largest[d_k] = p.max().item()
        told = found(set_controls(explorer, d_k=d_k, scaled=False))
        if told.startswith("at d_k"):
            took_over.append(d_k)
            assert told == f"at d_k = {d_k} one key has {p.max():.2f} of the weight"
        elif told:
            tied.append(d_k)
            norm = (p.diag() - p.outer(p)).norm()
            assert norm > 0.45 and p.topk(2).values.sum() > 0.95
    (first,) = took_over
    assert all((weight >= 0.99) == (d_k >= first) for d_k, weight in largest.items())
    assert 64 in tied
    divided = [d for d in range(4, 513, 4) if found(set_controls(explorer, d_k=d, scaled=True))]
    assert divided == [4, 512]
    p = (k @ q / 512**0.5).softmax(dim=-1).max()
    assert found(set_controls(explorer, d_k=512)).endswith(f"from {largest[512]:.2f} to {p:.2f}")
