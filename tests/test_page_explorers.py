"""Explorers that live in the page: what they say, draw and do, in a browser without a kernel."""

import functools
import math
import random
import re

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from seaborn.utils import relative_luminance

import explorer_oracles as oracles
from course_utils import explorers
from course_utils.attention import (
    attention,
    follows_same_token,
    induction_score,
    previous_token_score,
)
from course_utils.explorers import head_explorer, training_explorer, views_explorer
from course_utils.explorers.browser_explorer import (
    BrowserExplorer,
    check,
    choice,
    descriptions,
    number,
)
from course_utils.explorers.memory import pairs
from course_utils.explorers.views import HEAD_COLORS
from course_utils.figures import DIVERGING, SEQUENTIAL
from tools import render_previews


def other_weights(heads=3, L=4):
    """Return weights (layers, H, L, L) of another model, with its queries and keys."""
    q, k = torch.randn(2, 2, heads, L, 8, generator=torch.Generator().manual_seed(0)).double()
    return q, k, attention(q, k, k)[1]


TOKENS = torch.arange(4).repeat(3)  # of trainings


def perfect_heads():
    """Return weights (layers, H, L, L): one head looks at the token before, one is induction."""
    wanted = follows_same_token(TOKENS).float()
    induction = wanted / wanted.sum(dim=-1, keepdim=True).clamp(min=1)
    return torch.stack([torch.eye(12).roll(-1, dims=-1), induction])[:, None]


def training_after(losses, weights):
    """Return the explorer of a training of 40 steps of two heads, after some losses."""
    explorer = training_explorer(TOKENS, num_layers=2, num_heads=1, steps=40, every=10)
    for step, loss in enumerate(losses):
        explorer.add(loss, lambda step=step: weights(step))
    return explorer


def trained(first=10, second=20):
    """Return a training in which each of the two heads is learned in two steps from its own on."""
    losses = [3 - step / 20 for step in range(40)]
    learned = lambda step: [0.6 * (step >= at) + 0.4 * (step > at) for at in (first, second)]  # noqa: E731
    scale = lambda step: torch.tensor(learned(step))[:, None, None, None]  # noqa: E731
    return training_after(losses, lambda step: perfect_heads() * scale(step))


MAKE = {name: getattr(explorers, name) for name in render_previews.LIVE} | {
    "training": trained,
    "head of other weights": lambda: head_explorer(other_weights()[2][1]),
    "views of other weights": lambda: views_explorer("abcd", *other_weights()),
}
every_explorer = pytest.mark.parametrize("name", MAKE)
with_preview = pytest.mark.parametrize("name", render_previews.LIVE)


@functools.cache
def made(name):
    return MAKE[name]()


@pytest.fixture(scope="module")
def browse(chromium):
    """A function that shows an explorer, by its name or itself, alone on the one page of all tests.

    What goes wrong there is in ``.errors``.
    """
    page = render_previews.new_page(chromium)

    def show(explorer, width=1000, **values):
        explorer = made(explorer) if isinstance(explorer, str) else explorer
        assert page.errors == []
        render_previews.show(page, explorer, width)
        move(page, **(explorer.values | values))
        return page

    yield show
    assert page.errors == []
    page.close()


def move(page, **values):
    """Set controls of the explorer on a page, as Python would."""
    page.evaluate("v => model.set('values', {...model.get('values'), ...v})", values)


def now(page):
    return page.evaluate("model.get('values')")


def words(page):
    return page.get_by_role("status").text_content()


# Into the one text box there is: pairs of numbers below 8, and what are none.
RNG = random.Random(8)
TYPED = ["", "0-3", "7 - 0;00-1, 1-2,0-1", "8-0, 3-30, -4-5-6 7", "1,2 a-b - ٣-٤"]
TYPED += [", ".join(f"{RNG.randrange(8)}-{RNG.randrange(9)}" for _ in range(n)) for n in range(9)]


def values_of(control, rng):
    """Return a value that a hand may give a control: an end, on the slider, or typed between."""
    if control["kind"] != "number" or rng.random() < 0.2:
        return rng.choice(ends_of(control))
    low, high, step = control["low"], min(control["high"], 1000), control["step"]
    if rng.random() < 0.25:
        return rng.randint(low, high) if isinstance(step, int) else round(rng.uniform(low, high), 3)
    return round(low + step * rng.randrange(round((high - low) / step) + 1), 10)


def ends_of(control):
    """Return the ends of a control's values; where there is no order, all or enough of them."""
    if control["kind"] == "number":
        return [control["low"], min(control["high"], 1000)]
    return TYPED if control["kind"] == "text" else control.get("options", [False, True])


@functools.cache
def states(name, number):
    """Return states to look at: all ends, and some at random."""
    rng, explorer = random.Random(20), made(name)
    first, controls = explorer.values, explorer.controls
    ends = [first | {each: end} for each, control in controls.items() for end in ends_of(control)]
    some = [{n: values_of(control, rng) for n, control in controls.items()} for _ in range(number)]
    return [first, *ends, *some]


# What it says


@with_preview
def test_the_words_are_true(browse, name):
    page, oracle = browse(name), getattr(oracles, made(name).name)
    every = states(name, 200)
    said = page.evaluate(
        """all => all.map(values => {
            model.set("values", values);
            return document.querySelector("[role=status]").textContent;
        })""",
        every,
    )
    wrong = [
        (state, spoken, wanted)
        for state, spoken in zip(every, said, strict=True)
        if (wanted := oracles.disagreements(spoken, oracle(**state)))
    ]
    assert not wrong, (
        "if you only reworded it, edit the phrase in tests/explorer_oracles.py: "
        f"{wrong[0][2]} expected of {wrong[0][1]!r} for {wrong[0][0]}"
    )
    assert len(set(said)) > 20
    assert "found" not in said[0]  # it opens on nothing found


@with_preview
def test_the_preview_is_what_the_page_draws_and_says(browse, name):
    assert render_previews.description(browse(name)) == descriptions()[made(name).name], (
        "after a change of what it draws or says run: .venv/bin/python -m tools.render_previews"
    )


@with_preview
def test_stored_it_is_its_preview_and_moved_or_of_other_data_it_says_what_it_is(name):
    explorer = MAKE[name]()
    bundle, metadata = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle and "image/png" in bundle
    assert metadata["image/png"].keys() == {"width", "height"}
    assert bundle["text/plain"] == explorer.state == descriptions()[explorer.name]["words"]
    control, *_ = explorer.controls
    label, ends = explorer.controls[control]["label"], ends_of(explorer.controls[control])
    other = next(end for end in ends if end != explorer.values[control])
    explorer.values = explorer.values | {control: other}
    bundle = explorer._repr_mimebundle_()
    assert "image/png" not in bundle and f"{label} {other}" in bundle["text/plain"]


def test_other_data_is_named_and_has_no_preview():
    bundle = made("views of other weights")._repr_mimebundle_()
    assert bundle["text/plain"].startswith("2 layers of 3 heads over 4 tokens: ")
    assert "image/png" not in bundle


@pytest.mark.parametrize(
    "token", [r"$\foo$<b>&amp;", "a\0\x1b[31m", "\ud800", "a\r\x85\u2028\nb", "", "long" * 999]
)
def test_a_token_may_be_any_text(browse, token):
    tokens = ["b", token, "c", token]
    q, k, weights = other_weights()
    for explorer in (head_explorer(weights[1], tokens), views_explorer(tokens, q, k, weights)):
        last = {name: ends_of(control)[-1] for name, control in explorer.controls.items()}
        page = browse(explorer, **last)
        for sent in [words(page), *page.locator("option, svg text").all_text_contents()]:
            assert not re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", sent)
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 1000
        column = page.locator("div:has(> label)").bounding_box()
        for control in page.locator("input, select").all():
            box = control.bounding_box()
            assert box["x"] + box["width"] <= column["x"] + column["width"] + 4


# What stands on the page


@every_explorer
def test_picture_and_words_change_with_every_control_and_back_they_are_the_same(browse, name):
    homes = {  # where every control makes a difference, which it need not where an explorer opens
        "saturation_explorer": {"score_2": 1.5, "d_k": 4, "scaled": False, "method": "naive"}
        | {"dtype": "bfloat16"},
        "mask_explorer": {"causal": False, "prefix": 5, "side": "left", "documents": 2},
    }
    home = made(name).values | homes.get(name, {})
    page = browse(name, **home)
    seen = """() => [document.querySelector("svg").outerHTML,
                     document.querySelector("[role=status]").textContent]"""
    for each, control in made(name).controls.items():
        before = page.evaluate(seen)
        move(page, **{each: next(end for end in ends_of(control) if end != home[each])})
        after = page.evaluate(seen)
        assert all(a != b for a, b in zip(before, after, strict=True)), each
        move(page, **home)
        assert page.evaluate(seen) == before, each


@every_explorer
def test_nothing_is_drawn_beside_the_picture_or_nowhere(browse, name):
    every = states(name, 40)
    marks = browse(name).evaluate(
        """all => all.map(values => {
            model.set("values", values);
            const svg = document.querySelector("svg"), around = svg.getBoundingClientRect();
            const beside = [...svg.querySelectorAll(":not(svg svg *)")]
                .map(part => part.getBoundingClientRect())
                .filter(box => box.width + box.height && (
                    box.left < around.left - 1 || box.right > around.right + 1 ||
                    box.top < around.top - 1 || box.bottom > around.bottom + 1));
            return [beside.length, /NaN|undefined|Infinity/.test(
                [...svg.querySelectorAll("*")].flatMap(part => [...part.attributes])
                    .map(each => each.value).join(" "))];
        })""",
        every,
    )
    assert [state for state, mark in zip(every, marks, strict=True) if mark != [0, False]] == []


@every_explorer
def test_letters_on_colored_ground_can_be_read_on_light_and_dark_pages(browse, name):
    """WCAG 2.1 asks of small letters a contrast of 4.5."""
    page = browse(name)
    for ink, paper in [("rgb(0, 0, 0)", "white"), ("rgb(230, 230, 230)", "rgb(17, 17, 17)")]:
        page.add_style_tag(content=f"body {{ color: {ink}; background: {paper} }}")
        picture = page.locator("svg[role=img]")
        assert picture.evaluate("svg => getComputedStyle(svg).fill") == ink  # it has the page's
        for state, letters, color, ground in page.evaluate(GROUNDS, states(name, 12)):
            darker, lighter = sorted(relative_luminance(rgb(each)) for each in (color, ground))
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (letters, color, ground, state)


# In each state, each text with its color and that of what was drawn before, where its middle is.
GROUNDS = """all => all.flatMap(values => {
    model.set("values", values);
    const svg = document.querySelector("svg[role=img]"), found = [];
    const before = [], point = svg.createSVGPoint();
    for (const part of svg.querySelectorAll("rect, path, circle, text")) {
        const { fill, visibility } = getComputedStyle(part);
        if (visibility !== "visible") continue;
        if (part.tagName !== "text") {
            if (/^rgb\\(/.test(fill)) before.push([part, fill]);
            continue;
        }
        if (!part.textContent) continue;
        const box = part.getBoundingClientRect(), around = svg.getBoundingClientRect();
        point.x = (box.left + box.right) / 2 - around.left;
        point.y = (box.top + box.bottom) / 2 - around.top;
        const under = before.findLast(([shape]) =>
            !shape.hasAttribute("transform") && shape.isPointInFill(point));
        if (under) found.push([values, part.textContent, fill, under[1]]);
    }
    return found;
})"""


def rgb(color):
    """Return the parts of a color of CSS, each from 0 to 1."""
    if color[0] == "#":
        return to_rgb(color)
    return [float(part) / 255 for part in re.findall(r"[\d.]+", color)[:3]]


@every_explorer
def test_on_a_phone_the_picture_comes_first(browse, name):
    page = browse(name, 390)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    picture = page.locator("svg[role=img]").bounding_box()
    first = page.locator("input, select").first.bounding_box()
    assert picture["y"] + picture["height"] <= first["y"] and picture["width"] > 300
    assert first["y"] < page.get_by_role("status").bounding_box()["y"]


# What keys do


@every_explorer
def test_every_control_is_reached_by_tab_seen_there_and_moved_by_keys(browse, name):
    page, controls = browse(name), made(name).controls
    focused = """() => {
        const { activeElement: part } = document;
        const label = part.ariaLabel ?? part.closest("label")?.textContent ?? "";
        const controls = Object.entries(model.get("controls"));
        const named = controls.find(([, control]) => label.startsWith(control.label));
        return [part.type ?? "", named?.[0], getComputedStyle(part).outlineStyle];
    }"""
    keys = {"range": ["Home", "ArrowRight", "ArrowRight", "End"],
            "number": ["ArrowUp", "ArrowDown"], "text": ["0-7", ""],
            "checkbox": ["Space", "Space"], "select-one": ["ArrowDown", "ArrowUp"]}  # fmt: skip
    reached = set()
    numbers = [control for control in controls.values() if control["kind"] == "number"]
    for _ in [*controls, *numbers]:  # a number has a box and a slider
        page.keyboard.press("Tab")
        kind, each, outline = page.evaluate(focused)
        assert outline != "none" and (kind, each) not in reached
        reached.add((kind, each))
        seen = {now(page)[each]}
        for key in keys[kind]:
            if kind == "text":
                page.keyboard.press("Control+a")
                page.keyboard.type(key) if key else page.keyboard.press("Delete")
                assert now(page)[each] in seen  # not before it is done
                key = "Enter"
            page.keyboard.press(key)
            seen.add(now(page)[each])
            assert page.evaluate(focused)[:2] == [kind, each], "the focus was lost"
        fractions = kind == "range" and controls[each]["step"] != 1
        assert len(seen) > (3 if fractions else 1), (each, kind)  # not only the ends of a slider
        if kind in ("range", "number"):
            shown = page.evaluate("document.activeElement.value")
            assert float(shown) == now(page)[each]
    assert {each for _, each in reached} == controls.keys()


def test_what_is_typed_counts_when_it_is_done_and_is_moved_to_the_nearest_that_can_be(browse):
    page = browse("similarity_explorer")
    box, slider = (page.get_by_role(role, name="length of k") for role in ("spinbutton", "slider"))
    for typed, length in [("2.5", 2.5), ("9", 3), ("-4", 0), ("", 0), ("1.2", 1.2)]:
        box.fill(typed)
        box.press("Tab" if typed == "1.2" else "Enter")  # to leave the box is to be done, too
        assert now(page)["length"] == length, typed
        assert float(box.input_value()) == float(slider.input_value()) == length
    page = browse("positions_explorer")
    box = page.get_by_role("spinbutton").first
    box.fill("7.6")  # of a whole number the nearest
    box.press("Enter")
    assert now(page)["i"] == 8 and box.input_value() == "8"
    page = browse("mask_explorer")
    box = page.get_by_role("textbox")
    box.evaluate("""box => box.addEventListener("keydown",
        event => event.key === "Enter" && event.preventDefault())""")  # as JupyterLab may
    box.fill("1-2")
    box.press("Enter")
    assert now(page)["toggled"] == "1-2" and "toggled pairs: 1-2" in words(page)


@pytest.mark.parametrize(
    "name, start, changes",  # each change with the step and its end after it
    [("tile_explorer", {"step": 3}, [
        ("step", 99, 9, 9), ("block_q", 2, 16, 16), ("causal", False, 24, 24),
        ("step", 23, 23, 24), ("causal", True, 16, 16), ("step", 4, 4, 16),
        ("block_q", 4, 4, 9)]),
     ("ring_explorer", {"ranks": 3, "step": 2}, [
        ("ranks", 6, 5, 5), ("step", 4, 4, 5), ("ranks", 8, 4, 7), ("ranks", 3, 2, 2)])],
)  # fmt: skip
def test_the_last_step_stays_the_last_and_none_goes_beyond_it(browse, name, start, changes):
    page = browse(name, **start)
    box, slider = (page.get_by_role(role, name="step") for role in ("spinbutton", "slider"))
    for each, value, step, end in changes:
        label = made(name).controls[each]["label"]
        if isinstance(value, bool):
            page.get_by_role("checkbox", name=label).set_checked(value)
        elif each == "block_q":
            page.get_by_role("combobox", name=label).select_option(str(value))
        else:
            page.get_by_role("spinbutton", name=label).fill(str(value))
            page.keyboard.press("Enter")
        assert (box.input_value(), box.get_attribute("max")) == (str(step), str(end)), each
        assert (slider.input_value(), slider.get_attribute("max")) == (str(step), str(end))
        assert words(page).startswith(f"step {step} ")
    move(page, step=99)  # Python may ask for more than there is
    assert words(page).startswith(f"step {end} ") and box.input_value() == str(end)


# What a pointer does


@pytest.mark.parametrize(
    "name, start, points, expected",  # in pixels of the picture; of several the last is let go
    [
        ("similarity_explorer", {}, [(300, 190), (238, 76)], {"angle": 90, "length": 2}),
        ("similarity_explorer", {}, [(300, 190), (62, 366)], {"angle": -135, "length": 3}),
        ("similarity_explorer", {}, [(329, 121)], {"angle": 35, "length": 2}),  # of 37°, a step
        ("positions_explorer", {}, [(245, 42), (290, 70)], {"i": 15}),  # q stays in the hand
        ("positions_explorer", {}, [(200, 70), (1, -9)], {"j": 0}),
        ("mask_explorer", {}, [(40 + 29 * 7.5, 26 + 29 * 0.9)], {"toggled": "0-7"}),
        ("mask_explorer", {"toggled": "0-7, 1-2"}, [(326 + 29 * 7.9, 28)], {"toggled": "1-2"}),
        ("head_explorer", {}, [(44 + 85.6 * 2.8, 30)], {"head": 2}),
        ("head_explorer", {}, [(100, 126 + 210 * 3.8 / 9)], {"query": "3 the"}),
        ("tile_explorer", {}, [(50 + 20 * 3.1, 26 + 20 * 11.9)], {"step": 7}),
        ("tile_explorer", {}, [(50 + 20 * 11.5, 30)], {}),  # skipped
        ("ring_explorer", {}, [(54 + 33 * 1.1, 50 + 33 * 7.9)], {"step": 6}),
        ("ring_explorer", {"zigzag": True}, [(54 + 33 * 6.8, 50 + 33 * 7.8)], {"step": 6}),
        ("memory_explorer", {}, [(100, 48 + 32 * 3.3)], {"read": "d"}),
        ("memory_explorer", {"read": "b"}, [(20, 48 + 32 * 4.75)], {"read": "a"}),
        ("views_explorer", {}, [(42 + 23 * 9.8, 24 + 23 * 5.8)], {"head": 9, "layer": 5}),
        ("views_explorer", {}, [(380, 24 + 280 * 8.8 / 9)], {"query": 8}),
        ("views_explorer", {}, [(520, 24 + 280 * 3.8 / 9)], {"key": 3}),
        *[("views_explorer", {}, [(x, 357 + 141 * 4.8 / 9)], {"key": 4}) for x in (150, 372, 493)],
        ("training", {}, [(246 + 300 / 40 * 17, 100)], {"step": 20}),
        ("training", {}, [(100, 60)], {}),  # a head
    ],
)
def test_a_pointer_moves_what_it_points_at_and_nothing_once_it_is_let_go(
    browse, name, start, points, expected
):
    for width in (1000, 390):  # on a phone the picture shrinks
        page = browse(name, width, **start)
        before = now(page)
        picture = page.locator("svg[role=img]").bounding_box()
        scale = picture["width"] / page.evaluate("module.size[0]")
        at = [(picture["x"] + x * scale, picture["y"] + y * scale) for x, y in points]
        page.mouse.click(*at[0], button="right")  # that is for the browser's menu
        assert now(page) == before
        page.mouse.move(*at[0])
        page.mouse.down()
        for point in at[1:]:
            page.mouse.move(*point, steps=4)
        page.mouse.up()
        assert now(page) == before | expected
        page.mouse.move(picture["x"] + 200, picture["y"] + 60, steps=3)
        assert now(page) == before | expected


# What is drawn

# All parts of a picture: name, corners, text, whether they are seen and grouped, and attributes.
PARTS = """() => {
    const svg = document.querySelector("svg[role=img]"), around = svg.getBoundingClientRect();
    return [...svg.querySelectorAll("text, rect, path, line, circle")].map(part => {
        const { left, top, right, bottom } = part.getBoundingClientRect();
        const [x, y] = [left - around.left, top - around.top];
        const seen = getComputedStyle(part).visibility === "visible";
        return { ...Object.fromEntries([...part.attributes].map(one => [one.name, one.value])),
            name: part.tagName, box: [x, y, x + right - left, y + bottom - top],
            text: part.textContent, seen, grouped: part.parentNode.tagName === "g" };
    });
}"""
SHADE = 0.026  # of a scale: of layers there are 64, and eleven colors stand for it
PIXEL = 0.03  # pictures are drawn to a hundredth, and read back in float32


def drawn(page, **values):
    move(page, **values)
    return page.evaluate(PARTS)


def named(parts, name, **attributes):
    """Return the parts of a picture of that name and with these attributes."""
    attributes = {"name": name} | {key.replace("_", "-"): v for key, v in attributes.items()}
    return [part for part in parts if attributes.items() <= part.items()]


def frames(parts):
    """Return the corners of all axes, in the order in which they are drawn."""
    rects = named(parts, "rect", fill="none", stroke="currentColor")
    return [part["box"] for part in rects if "stroke-width" not in part]


def numbers_in(parts, frame, rows, columns, colors=SEQUENTIAL):
    """Return the numbers from 0 to 1, (rows, columns), whose colored cells fill a frame.

    NaN for a color that is none of the scale. Cells are rects, or parts of paths.
    """
    left, top, right, bottom = frame
    across, down = (right - left) / columns, (bottom - top) / rows
    scale = colormaps[colors](np.linspace(0, 1, 1001))[:, :3]
    found = np.full((rows, columns), np.inf)
    for part in parts:
        boxes = re.findall(r"M(\S+) (\S+?)H(\S+?)V(\S+?)H", part.get("d", ""))
        for box in boxes or [part["box"]] * (part["name"] == "rect"):
            x, y, end, below = map(float, box)
            j, i = (x - left) / across, (y - top) / down
            is_cell = abs(end - x - across) + abs(below - y - down) < 0.1 and part["fill"] != "none"
            if is_cell and -0.1 < j < columns - 0.9 and -0.1 < i < rows - 0.9:
                i, j = round(i, 1), round(j, 1)  # that it stands where no cell does is an error
                assert i % 1 == j % 1 == 0 and np.isinf(found[int(i), int(j)])
                far = np.abs(scale - rgb(part["fill"])).sum(axis=1)
                found[int(i), int(j)] = far.argmin() / 1000 if far.min() < 0.08 else np.nan
    return found


def test_cells_of_a_mask_and_its_weights_have_the_colors_of_their_numbers(browse):
    values = made("mask_explorer").values | {"causal": True, "padding": 2, "side": "left"}
    allowed, *_ = oracles.mask_of(**values)
    rng = torch.Generator().manual_seed(4)
    scores = torch.randn(8, 4, generator=rng) @ torch.randn(8, 4, generator=rng).T / 2
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1).nan_to_num()
    parts = drawn(browse("mask_explorer"), **values)
    for frame, expected in zip(frames(parts), (allowed.double(), weights), strict=True):
        np.testing.assert_allclose(numbers_in(parts, frame, 8, 8), expected, atol=SHADE)
    hatched = [part["box"][1] for part in named(parts, "rect", grouped=True, seen=True)]
    assert hatched == pytest.approx([28, 57] * 2, abs=2)  # the two empty rows of both
    written = [part["text"] for part in parts if re.match(r"\d\.\d\d", part["text"])]
    assert written == [f"{weight:.2f}" for weight in weights[allowed]]


def test_cells_of_views_are_the_weights_of_a_pair_and_products(browse):
    q, k, weights = other_weights()
    page = browse("views of other weights")
    parts = drawn(page, layer=1, head=2, query=3, key=1)
    products = (q[1, 2, 3] * k[1, 2]) / (q[1, 2, 3] * k[1, 2]).abs().max()
    found = numbers_in(parts, frames(parts)[0], 4, 8, DIVERGING)
    np.testing.assert_allclose(2 * found - 1, products, atol=2 * SHADE)
    scores = k[1, 2] @ q[1, 2, 3]
    for frame, zero, numbers in zip(frames(parts)[1:], (0.5, 0), (scores, weights[1, 2, 3])):  # noqa: B905
        left, top, right, bottom = frame
        bars = [part["box"] for part in named(parts, "rect", fill=page.evaluate("module.COLORS[0]"))
                if left <= part["box"][0] < right and top < part["box"][1] < bottom]  # fmt: skip
        lengths = np.array([bar[0] + bar[2] for bar in bars]) - 2 * (left + zero * (right - left))
        relative = [each / abs(each).max() for each in (lengths, numbers)]
        np.testing.assert_allclose(*relative, atol=0.01)
    outline = next(part for part in named(parts, "rect", fill="none") if "stroke-width" in part)
    inwards = float(outline["stroke-width"]) / 2 * np.array([1, 1, -1, -1])
    tile = np.array(outline["box"]) + inwards  # around the chosen head
    np.testing.assert_allclose(numbers_in(parts, tile, 1, 1), [[weights[1, 2, 3, 1]]], atol=SHADE)


def test_the_output_so_far_has_the_colors_of_its_numbers_and_of_the_scale_beside_it(browse):
    page = browse("tile_explorer")
    parts = drawn(page)
    frame = next(frame for frame in frames(parts) if frame[2] - frame[0] < 30)
    steps = [part for part in named(parts, "rect") if part["fill"] != "none"
             and part["box"][0] == pytest.approx(frame[0], abs=1)]  # fmt: skip
    steps.sort(key=lambda part: part["box"][1])
    for step, end in ((steps[0], 1.0), (steps[-1], 0.0)):  # the largest number on top
        assert rgb(step["fill"]) == pytest.approx(colormaps[DIVERGING](end)[:3], abs=0.08)
    parts = drawn(page, block_q=5, block_k=3, step=5)  # tiles of three rows
    q, k, v = torch.randn(3, 12, 4, generator=torch.Generator().manual_seed(6))
    read = torch.zeros(12, 12).bool()
    read[:5, :5], read[5:10, :9] = True, True
    scores = (q @ k.T / 2).masked_fill(~read.tril(), -torch.inf)
    expected = (scores.softmax(dim=-1) @ v).numpy()
    found = numbers_in(parts, frames(parts)[2], 12, 4, DIVERGING)
    np.testing.assert_allclose(4 * found - 2, expected.clip(-2, 2), atol=4 * SHADE)
    assert np.isnan(found[10:]).all()
    texts = [part["text"].replace("−", "-") for part in parts]
    largest = [text for text in texts if re.search(r"\.\d\d$|∞", text)]
    assert largest[:12] == [f"{m:.2f}".replace("inf", "∞") for m in scores.amax(dim=-1)]


@pytest.mark.parametrize(
    "name, values, weights",
    [
        ("sentence_explorer", {"last": "old"}, [0, 3, 0, 0, 0, 3, 0, 0, 0, 0]),
        ("saturation_explorer", {"temperature": 0.5}, [4, 2, 0, -2, -4]),
    ],
)
def test_bars_are_as_high_as_the_weights_that_are_written_over_them(browse, name, values, weights):
    page = browse(name)
    parts = drawn(page, **values)
    frame, *_ = frames(parts)
    bars = [part["box"] for part in named(parts, "rect", fill=page.evaluate("module.COLORS[0]"))]
    assert all(bar[3] == pytest.approx(frame[3], abs=PIXEL) for bar in bars)
    one = next(part["box"] for part in parts if part["text"] in ("1", "1.00"))
    one = (one[1] + one[3]) / 2
    heights = np.array([bar[3] - bar[1] for bar in bars]) / (frame[3] - one)
    expected = torch.tensor(weights).double().softmax(dim=-1)
    np.testing.assert_allclose(heights, expected, atol=0.02)
    for bar, weight in zip(bars, expected, strict=True):
        middle = (bar[0] + bar[2]) / 2
        above = [part["text"] for part in parts if part["name"] == "text" and part["text"]
                 and abs((part["box"][0] + part["box"][2]) / 2 - middle) < 1
                 and bar[1] - 25 < part["box"][1] < bar[1]]  # fmt: skip
        assert above == [f"{weight:.2f}"]


def test_arrow_shadow_and_distance_end_where_q_and_k_do(browse):
    parts = drawn(browse("similarity_explorer"), angle=150, length=1.5)
    (left, top, right, bottom), *_ = frames(parts)
    at = lambda x, y: [left + (right - left) * (x + 3.2) / 6.4,  # noqa: E731
                       bottom - (bottom - top) * (y + 3.2) / 6.4]  # fmt: skip
    ends = lambda part: [float(part[end]) for end in ("x1", "y1", "x2", "y2")]  # noqa: E731
    k = 1.5 * np.cos(np.pi * 5 / 6), 1.5 * np.sin(np.pi * 5 / 6)
    lines = [part for part in named(parts, "line") if "transform" not in part]
    *_, shadow, distance = lines
    assert ends(shadow) == pytest.approx([*at(0, 0), *at(k[0], 0)], abs=PIXEL)
    assert ends(distance) == pytest.approx([*at(2, 0), *at(*k)], abs=PIXEL)
    heads = [re.findall(r"-?[\d.]+", part["transform"]) for part in named(parts, "path")]
    tips = [[float(x), float(y), -float(angle)] for x, y, angle, *_ in heads]
    assert tips == [pytest.approx([*at(2, 0), 0], abs=PIXEL),
                    pytest.approx([*at(*k), 150], abs=PIXEL)]  # fmt: skip
    look = lambda line: {k: v for k, v in line.items() if k.startswith("stroke")}  # noqa: E731
    for name, line in {"projection": shadow, "distance": distance}.items():  # in the legend
        x, top, _, bottom = next(part["box"] for part in parts if name in part["text"])
        beside = [one for one in lines if top < float(one["y1"]) < bottom and float(one["x2"]) < x]
        assert look(max(beside, key=lambda one: float(one["x2"]))) == look(line)


def test_what_overflowed_is_hatched_and_named(browse):
    parts = drawn(browse("saturation_explorer"), score_2=90, score_4=95, method="naive")
    hatched = [part["seen"] for part in named(parts, "rect", grouped=True)]
    assert hatched == [False, True, False, True, False]
    texts = [part["text"] for part in parts]
    assert texts.count("NaN") == texts.count("exp = inf") == 2
    jacobian = numbers_in(parts, frames(parts)[1], 5, 5, DIVERGING)
    assert np.isnan(jacobian[[1, 3]]).all() and np.isnan(jacobian[:, [1, 3]]).all()


def test_lines_run_from_queries_to_keys_as_strong_as_the_weights(browse):
    *_, weights = other_weights()
    rest = weights[1, 2].clone()
    rest[:, 0] = 0  # the first key is hidden
    rest /= rest.sum(dim=-1, keepdim=True).clamp(min=1e-9)
    page = browse("views of other weights")

    def ways(parts, top, tall):
        """Return opacity and color of each line, by its query and key."""
        row = lambda y: int((float(y) - top) // tall)  # noqa: E731
        return {
            (row(y), row(end)): (float(part["stroke-opacity"]), part["stroke"])
            for part in parts
            if "stroke-opacity" in part
            for y, end in re.findall(r"M\S+ (\S+?)L\S+ (\S+?)(?=M|$)", part.get("d", ""))
        }

    for hide, expected in [(False, weights[1, 2]), (True, rest)]:
        parts = drawn(page, layer=1, head=2, query=1, hide=hide, several=False)
        found = ways(parts, 24, 70)
        assert len(found) == 16
        for (i, j), (opacity, color) in found.items():
            assert opacity == pytest.approx(expected[i, j].item(), abs=0.014)
            # those of the chosen query stand out
            assert (color == HEAD_COLORS[0]) == (i == 1)
    page = browse("head of other weights")
    for query, rows in [("every token", range(4)), ("2", [2])]:
        parts = drawn(page, query=query)
        found = {pair: opacity for pair, (opacity, _) in ways(parts, 126, 52.5).items()}
        shown = {(i, j): weights[1, 0, i, j].item() for i in rows for j in range(4)}
        assert found == pytest.approx(shown, abs=0.014)
        (row,) = named(parts, "rect", stroke_width="2")  # of the query that is chosen
        assert row["seen"] == (query == "2")
    parts = drawn(browse("views_explorer"), several=True)
    ways = [part for part in named(parts, "path") if "stroke-opacity" in part and part.get("d")]
    assert len({part["stroke"] for part in ways}) == 12


def test_tiles_have_the_color_that_the_legend_gives_their_state(browse):
    page = browse("tile_explorer")
    parts = drawn(page, block_q=5, block_k=3, step=3)
    legend = {}
    for name in ["not yet", "skipped", "done", "in fast memory"]:
        x, y, *_ = next(part["box"] for part in parts if part["text"] == name)
        (legend[name],) = [part["fill"] for part in named(parts, "rect", height="11")
                           if x - 30 < part["box"][0] < x]  # fmt: skip
    tiles = named(parts, "rect", grouped=True)
    states = ["done", "done", "in fast memory"] + ["not yet"] * (len(tiles) - 3)
    assert [tile["fill"] for tile in tiles] == [legend[state] for state in states]
    (ground,) = [part for part in named(parts, "rect", fill=legend["skipped"])
                 if part["box"] == frames(parts)[0]]  # fmt: skip
    assert len(set(legend.values())) == 4
    page = browse("ring_explorer")
    for causal in (True, False):  # only then is there a future that is never computed
        assert all(part["seen"] for part in drawn(page, causal=causal)) == causal


@pytest.mark.parametrize("keys, delta", [("random", False), ("orthogonal", True)])
def test_the_state_and_what_a_key_recalls_have_the_colors_of_their_numbers(browse, keys, delta):
    values = {"written": 6, "keys": keys, "delta": delta, "decay": 0.8}
    page = browse("memory_explorer")
    parts = drawn(page, read="a", **values)
    state, unit = oracles.memory_state(**values)
    recalled, written = unit[:1] @ state, pairs()[1][4:5]  # (1, 4) each
    where = [*frames(parts), *[part["box"] for part in named(parts, "rect", stroke_width="0.5")]]
    expected = [state, recalled, written]
    for name, value in zip("abcdae", pairs()[1][:6], strict=True):  # the list of pairs
        expected += [unit[["abcde".index(name)]], value[None]]
    for frame, numbers in zip(where, expected):  # noqa: B905 two pairs are not written
        found = numbers_in(parts, frame, *numbers.shape, DIVERGING)
        np.testing.assert_allclose(4 * found - 2, numbers.clamp(-2, 2), atol=4 * SHADE)
    bars = [part for part in named(parts, "rect", height="14") if float(part["width"])]
    right, wrong = page.evaluate("module.COLORS.slice(0, 2)")
    for bar in bars:
        _, top, _, bottom = bar["box"]
        (error,) = [part["text"] for part in named(parts, "text") if "." in part["text"]
                    and top < part["box"][3] and part["box"][1] < bottom]  # fmt: skip
        assert bar["fill"] == (wrong if "✗" in error else right), error


@pytest.mark.parametrize(
    "name, width, height, counted, unit",
    [("fit_explorer", "36", 36, r"([\d.]+) programs? at a time", 1),
     ("cache_explorer", "21", 48, r"bits: ([\d.,]+) GB", 80)],
)  # fmt: skip
def test_as_many_boxes_are_filled_as_the_words_count(browse, name, width, height, counted, unit):
    page = browse(name)
    for values in states(name, 20):
        boxes = named(drawn(page, **values), "rect", width=width)
        full = sum(float(box["height"]) for box in boxes if box["fill"] != "none") / height
        count = float(re.search(counted, words(page))[1].replace(",", "")) / unit
        assert full == pytest.approx(min(count, 12), abs=0.01), values


def test_the_point_is_where_the_tokens_stand_and_their_product_is(browse):
    page = browse("positions_explorer")
    for i, j in [(9, 4), (4, 9), (31, 0)]:
        parts = drawn(page, i=i, j=j, power=1)
        left, top, right, bottom = frames(parts)[-1]
        product = float(re.search(r"dot product (-?[\d.]+)", words(page))[1])
        (point,) = [part for part in named(parts, "circle") if part["fill"] != "none"]
        across = (float(point["cx"]) - left) / (right - left) * 62 - 31
        up = (bottom - float(point["cy"])) / (bottom - top) * 8.8 - 4.4
        assert (across, up) == pytest.approx((i - j, product), abs=0.01)


@pytest.mark.parametrize("zigzag", [False, True])
def test_over_each_chunk_of_keys_stands_the_rank_that_holds_it_in_this_step(browse, zigzag):
    for step in range(4):
        parts = drawn(browse("ring_explorer"), ranks=4, step=step, zigzag=zigzag)
        top = frames(parts)[0][1]  # the map begins where the rows do
        above = [part for part in parts if part["text"].isdigit() and part["box"][3] < top]
        above.sort(key=lambda part: part["box"][0])
        homes = [0, 1, 2, 3, *[3, 2, 1, 0] * zigzag]
        assert [int(part["text"]) for part in above] == [(home + step) % 4 for home in homes]


@pytest.mark.parametrize("name, number, rows", [("training", 0, 12), ("tile_explorer", 0, 12),
                         ("mask_explorer", 0, 8), ("head of other weights", -2, 4)])  # fmt: skip
def test_rows_of_a_matrix_are_numbered_from_the_top(browse, name, number, rows):
    parts = drawn(browse(name))
    left, top, _, bottom = frames(parts)[number]
    found = {}
    for part in named(parts, "text", text_anchor="end"):
        x, y = part["box"][2], (part["box"][1] + part["box"][3]) / 2
        if part["text"].isdigit() and left - 12 < x < left and top < y < bottom:
            found[int(part["text"])] = int((y - top) / (bottom - top) * rows)
    assert found and all(n == row for n, row in found.items())


def test_the_picture_says_that_there_are_more_gpus_than_are_drawn(browse):
    page = browse("cache_explorer")
    few, many = (drawn(page, model="Llama 3.1 70B", texts=texts) for texts in (1, 4096))
    seen = [len([part for part in parts if part["seen"]]) for parts in (few, many)]
    assert seen[1] == seen[0] + 2  # that, and the arrow at the end of the bar


# A training, to which the kernel sends its data


CANVAS = """() => [...document.querySelectorAll("canvas")].map(part =>
    [...part.getContext("2d").getImageData(0, 0, part.width, part.height).data])"""


def test_heads_and_loss_of_the_step_that_is_chosen_are_drawn(browse):
    assert words(browse(training_after([], None))) == "step 0: the training has not started"
    losses = [3.0, 2.5, math.nan, 2.0, *[1.0] * 20]
    weights = torch.rand(24, 2, 1, 12, 12, generator=torch.Generator().manual_seed(1))
    weights[10, 0, 0, 3, 5] = torch.nan
    reused = weights.clone()
    explorer = training_after(losses, lambda step: reused[step])
    reused.zero_()  # what is recorded stays as it was
    page = browse(explorer)
    scale = colormaps[SEQUENTIAL](np.linspace(0, 1, 256), bytes=True)[:, :3].astype(int)
    for step, latest in [(20, 20), (10, 10), (19, 10), (9, 0), (99, 20)]:
        move(page, step=step)
        assert f"step {latest}: loss {losses[latest]:.2f}; " in words(page)
        heads = weights[latest].transpose(0, 1)  # (1, layers, L, L), of one head each
        scores = previous_token_score(heads), induction_score(heads.nan_to_num(), TOKENS[None])
        written = re.findall(r"layer . head 0: ([\d.]+), ([\d.]+)", words(page))
        np.testing.assert_allclose(np.float64(written).T, torch.stack(scores), atol=0.006)
        for head, pixels in zip(weights[latest], page.evaluate(CANVAS), strict=True):
            far = np.abs(np.reshape(pixels, (12, 12, 1, 4))[..., :3] - scale).sum(axis=-1)
            found = np.where(far.min(axis=-1) < 20, far.argmin(axis=-1) / 255, np.nan)
            np.testing.assert_allclose(found, head[0], atol=0.02)
    parts = page.evaluate(PARTS)
    curve = next(part["d"] for part in named(parts, "path", fill="none", stroke_width="1.5"))
    left, top, right, bottom = frames(parts)[-1]
    points = [[(float(x) - left) / (right - left) * 40, 4 * (bottom - float(y)) / (bottom - top)]
              for x, y in re.findall(r"([\d.]+) ([\d.]+)", curve)]  # fmt: skip
    np.testing.assert_allclose(points, [p for p in enumerate(losses) if p[0] != 2], atol=0.01)
    assert curve.count("M") == 2  # after a loss that is no number it begins anew


@pytest.mark.parametrize("at", [(10, 20), (20, 10), (10, 10), (10, 99), (99, 10)])
def test_the_words_say_where_both_scores_rise_if_they_do(browse, at):
    page = browse(trained(*at))
    for step in (0, 10, 20, 30):
        move(page, step=step)
        before, after = (0.6 * (step >= one) + 0.4 * (step > one) for one in at)
        scores = f"layer 0 head 0: {before:.2f}, 0.00; layer 1 head 0: 0.00, {after:.2f}"
        assert scores in words(page)
        rises = 99 not in at and min(at) <= step <= max(at)
        assert ("found: halfway to its final score" in words(page)) == rises
        assert not rises or words(page).endswith(
            f"previous-token score of layer 0 head 0 at step {at[0]} and the induction score of "
            f"layer 1 head 0 at step {at[1]}"
        )


def test_a_stored_training_has_the_preview_only_if_it_is_the_training_of_the_preview():
    preview = descriptions()["training"]["words"]
    step, loss = re.match(r"step (\d+): loss ([\d.]+);", preview).groups()
    steps = int(step) // 10 + 1
    for last, same in [(float(loss), True), (float(loss) + 0.1, False)]:
        explorer = training_explorer(TOKENS, num_layers=2, num_heads=1, steps=steps, every=10)
        for _ in range(10 * steps - 9):
            explorer.add(last, perfect_heads)
        bundle = explorer._repr_mimebundle_()
        assert isinstance(bundle, tuple) == same  # with the size of a picture
        assert (explorer.state == preview) == same
    assert explorer.state == f"2 layers of 1 heads over 12 tokens: step {step}"


# What Python takes


def test_values_are_those_of_the_controls_within_their_ends():
    controls = {"n": number("n", 2, 0, 9, 1), "x": number("x", 0.5, 0, 1, 0.1),
                "kind": choice("kind", "a", ["a", "b"]), "on": check("on", True)}  # fmt: skip
    explorer = BrowserExplorer("similarity", controls)
    explorer.values = {"n": 12.0, "x": -1, "kind": "b", "on": False}
    assert explorer.values == {"n": 9, "x": 0, "kind": "b", "on": False}
    for name, wrong in [("kind", "c"), ("on", "yes"), ("n", math.nan)]:
        with pytest.raises(ValueError, match=f"{name} must be .*, got"):
            explorer.values = explorer.values | {name: wrong}
    with pytest.raises(ValueError, match="must be those of n, x, kind, on, got n"):
        explorer.values = {"n": 1}


def test_what_the_browser_moved_is_not_sent_back_to_it(monkeypatch):
    """On a slow line an echo would come late, and pull a slider back from under the hand."""
    explorer, sent = MAKE["similarity_explorer"](), []
    monkeypatch.setattr(explorer, "_send", lambda message, **_: sent.append(message))
    explorer.set_state({"values": explorer.values | {"angle": 5}})
    assert explorer.values["angle"] == 5 and sent == []
    explorer.values = explorer.values | {"angle": 90}
    assert [message["state"]["values"]["angle"] for message in sent] == [90]


def test_views_open_on_the_largest_weight_but_not_on_a_sink():
    q, k = torch.zeros(2, 1, 2, 3, 4)
    q[..., 0], k[0, 0, 0, 0] = 9, 9  # head 0: all weight on key 0
    q[0, 1, 2, 1], k[0, 1, 1, 1] = 3, 3  # head 1: query 2 looks at key 1
    explorer = views_explorer("abc", q, k, attention(q, k, k)[1])
    assert [*explorer.values.values()][:4] == [0, 1, 2, 1]


W = other_weights()[2][0]  # (H, L, L)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: head_explorer(W[None]), r"shape \(H, L, L\), got .*weights\[0\]"),
        (lambda: head_explorer(W.tolist()), "weights must be a torch.Tensor"),
        (lambda: head_explorer(W, "abc"), "tokens must have 4 entries, one for each, got 3"),
        (lambda: head_explorer(W * 5), "weights must be from 0 to 1.* are these scores"),
        (lambda: head_explorer(W * torch.nan), "weights must be from 0 to 1"),
        (lambda: head_explorer(W[:0]), "and at least one"),
        (lambda: views_explorer("abcd"), "belong together: give all four, or none"),
        (lambda: views_explorer("abcd", *other_weights()[:2], W[None]), "must have shape"),
        (lambda: views_explorer("abcd", *other_weights()[:2], other_weights()[2] * 0),
         r"weights must be softmax\(q · k / √d_k\)"),
        (lambda: training_explorer([[1]], num_layers=1, num_heads=1, steps=4), r"shape \(L,\)"),
        (lambda: training_explorer([1], num_layers=1, num_heads=0, steps=4), "num_heads must be 1"),
        (lambda: training_after([3.0], lambda _: torch.ones(2, 2, 12, 12)),
         r"weights must have shape \(2, 1, 12, 12\), got \(2, 2, 12, 12\)"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
