"""Explorers that live in the page: what they say, draw and do, in a browser without a kernel."""

import functools
import random
import re

import numpy as np
import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from PIL import Image

import explorer_oracles as oracles
from course_utils import explorers
from course_utils.attention import attention, follows_same_token
from course_utils.explorers import (
    head_explorer,
    training_explorer,
    views_explorer,
)
from course_utils.explorers.browser_explorer import (
    PREVIEWS,
    STILL_DENSITY,
    descriptions,
)
from tools import render_previews

STATES = 200
RENDER = "after a change of what it draws or says run: python -m tools.render_previews"
LAWLESS = {"landmark-one-main", "page-has-heading-one", "region"}  # the test page's own faults


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


def trained():
    """Return a training in which the first head is learned at step 10, the second at 20."""
    learned = lambda step: torch.tensor([step >= 10, step >= 20])[:, None, None, None]  # noqa: E731
    return training_after([3 - step / 20 for step in range(40)],
                          lambda step: perfect_heads() * learned(step))  # fmt: skip


def of_other_weights(make):
    q, k, weights = other_weights()
    return head_explorer(weights[1]) if make is head_explorer else make("abcd", q, k, weights)


MAKE = {name: getattr(explorers, name) for name in render_previews.LIVE} | {
    "training": trained,
    "head of other weights": lambda: of_other_weights(head_explorer),
    "views of other weights": lambda: of_other_weights(views_explorer),
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
        if hasattr(explorer, "snapshots"):  # a training: the page is told what is known so far
            page.evaluate("known => module.begin(known)", explorer.get_state()["known"])
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
    """Return a value that a hand may give a control: on the slider, or typed between."""
    if control["kind"] != "number":
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
    every = states(name, STATES)
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
    assert not wrong, f"{wrong[0]}; reworded? then edit the phrase in tests/explorer_oracles.py"
    assert len(set(said)) > 20
    assert "found" not in said[0]  # it opens on nothing found


@with_preview
def test_the_preview_is_what_the_page_draws_and_says(browse, name):
    page, explorer = browse(name), made(name)
    assert render_previews.description(page) == descriptions()[explorer.name], RENDER
    with Image.open(PREVIEWS / f"{explorer.name}.png") as picture:
        size = [pixels / STILL_DENSITY for pixels in picture.size]
    assert size == page.evaluate("module.size"), RENDER


@with_preview
def test_stored_it_is_its_preview_and_moved_or_of_other_data_it_says_what_it_is(name):
    explorer = MAKE[name]()
    bundle, metadata = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle and "image/png" in bundle
    assert metadata["image/png"].keys() == {"width", "height"}
    assert bundle["text/plain"] == explorer.state == descriptions()[explorer.name]["words"]
    control = next(iter(explorer.controls))
    other = next(
        end for end in ends_of(explorer.controls[control]) if end != explorer.values[control]
    )
    explorer.values = explorer.values | {control: other}
    bundle = explorer._repr_mimebundle_()
    assert "image/png" not in bundle
    assert f"{explorer.controls[control]['label']} {other}" in bundle["text/plain"]


@pytest.mark.parametrize("make, data", [(head_explorer, "3 heads over 4 tokens: head 0"),
                                        (views_explorer, "2 layers of 3 heads over 4 tokens")])  # fmt: skip
def test_other_data_is_named_and_has_no_preview(make, data):
    bundle = of_other_weights(make)._repr_mimebundle_()
    assert bundle["text/plain"].startswith(data) and "image/png" not in bundle


NUMBERS = [0.125, 0.375, -0.125, 2.5, -0.001, 2.675, 1.005, 0.145, 1e-9, -2.5, 0.5, 1.5, 12345.675]


def test_numbers_are_written_as_python_writes_them(browse):
    cases = [(number, digits) for number in NUMBERS for digits in range(4)]
    page = browse("similarity_explorer")
    written = page.evaluate("all => all.map(one => module.fixed(...one))", cases)
    assert written == [f"{number:z.{digits}f}" for number, digits in cases]


ODD = {
    "mathematics": r"$\foo$", "markup": "<b>&amp;", "a null": "a\0b", "an escape": "\x1b[31mred",
    "half a pair": "\ud800", "line breaks": "a\r\x85\u2028\nb", "nothing": "",
    "very long": "internationalization" * 500,
}  # fmt: skip


@pytest.mark.parametrize("token", ODD.values(), ids=ODD)
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
        "saturation_explorer": {"logit_2": 1.5, "d_k": 4, "scaled": False, "method": "naive"}
        | {"dtype": "bfloat16"},
        "mask_explorer": {"causal": False, "prefix": 5, "side": "start", "documents": 2},
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
def test_letters_on_coloured_ground_can_be_read_on_light_and_dark_pages(browse, name):
    """WCAG 2.1 asks of small letters a contrast of 4.5."""
    page = browse(name)
    for ink, paper in [("rgb(0, 0, 0)", "white"), ("rgb(230, 230, 230)", "rgb(17, 17, 17)")]:
        page.add_style_tag(content=f"body {{ color: {ink}; background: {paper} }}")
        picture = page.locator("svg[role=img]")
        assert picture.evaluate("svg => getComputedStyle(svg).fill") == ink  # it has the page's
        for state in states(name, 12):
            move(page, **state)
            for letters, colour, ground in page.evaluate(GROUNDS):
                assert contrast(colour, ground) >= 4.5, (letters, colour, ground, state)


# Each text with its colour and that of what was drawn before, where its middle is.
GROUNDS = """() => {
    const svg = document.querySelector("svg[role=img]"), found = [];
    const seen = part => getComputedStyle(part).visibility === "visible";
    const before = [], point = svg.createSVGPoint();
    for (const part of svg.querySelectorAll("rect, path, circle, text")) {
        const { fill } = getComputedStyle(part);
        if (!seen(part)) continue;
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
        if (under) found.push([part.textContent, fill, under[1]]);
    }
    return found;
}"""


def contrast(colour, ground):
    shades = np.array([rgb(colour), rgb(ground)]) / 255
    linear = np.where(shades <= 0.04045, shades / 12.92, ((shades + 0.055) / 1.055) ** 2.4)
    darker, lighter = sorted(linear @ [0.2126, 0.7152, 0.0722] + 0.05)
    return lighter / darker


def rgb(colour):
    return [float(part) for part in re.findall(r"[\d.]+", colour)[:3]]


@every_explorer
def test_axe_finds_nothing_and_every_control_has_a_name(browse, name):
    page = browse(name)
    found = Axe().run(page, options={"resultTypes": ["violations", "passes"]}).response
    assert {rule["id"] for rule in found["violations"]} <= LAWLESS
    assert "svg-img-alt" in {rule["id"] for rule in found["passes"]}
    for control in made(name).controls.values():
        for role in ROLES[control["kind"]]:
            assert page.get_by_role(role, name=control["label"], exact=True).count() == 1


ROLES = {"number": ["spinbutton", "slider"], "choice": ["combobox"], "check": ["checkbox"]}
ROLES["text"] = ["textbox"]


@every_explorer
def test_on_a_phone_the_picture_comes_first_and_on_a_laptop_the_controls_are_beside_it(
    browse, name
):
    page = browse(name, 390)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    picture = page.locator("svg[role=img]").bounding_box()
    first = page.locator("input, select").first.bounding_box()
    assert picture["y"] + picture["height"] <= first["y"] and picture["width"] > 300
    assert first["y"] < page.get_by_role("status").bounding_box()["y"]
    page = browse(name, 840)
    # ipywidgets takes away what its own layout does not say, and when it does is left to chance
    page.evaluate("document.querySelector('main').removeAttribute('style')")
    picture = page.locator("svg[role=img]").bounding_box()
    below = page.get_by_role("status").bounding_box()["y"]
    for control in page.locator("input, select").all():
        box = control.bounding_box()
        assert box["x"] + box["width"] <= picture["x"] and box["y"] >= picture["y"]
        assert box["y"] + box["height"] <= below


# What keys do


@every_explorer
def test_every_control_is_reached_by_tab_seen_there_and_moved_by_keys(browse, name):
    page, controls = browse(name), made(name).controls
    names = {control["label"]: each for each, control in controls.items()}
    focused = """() => {
        const { activeElement: part } = document;
        const label = part.ariaLabel ?? part.closest("label")?.textContent ?? "";
        return [part.type ?? "", Object.keys(model.get("controls")).find(name =>
            label.startsWith(model.get("controls")[name].label)), getComputedStyle(part).outlineStyle];
    }"""
    # there, and back to where it was
    keys = {"range": [("Home", "End")], "number": [("ArrowUp", "ArrowDown")],
            "checkbox": [("Space", "Space")], "select-one": [("ArrowDown", "ArrowUp")],
            "text": [("0-7", "")]}  # fmt: skip
    reached = []
    for _ in range(sum(len(ROLES[control["kind"]]) for control in controls.values())):
        page.keyboard.press("Tab")
        kind, each, outline = page.evaluate(focused)
        assert outline != "none"
        reached.append((kind, each))
        for there, back in keys[kind]:
            start = now(page)[each]
            seen = {start}
            for key in (there, back):
                if kind == "text":
                    page.keyboard.press("Control+a")
                    page.keyboard.type(key) if key else page.keyboard.press("Delete")
                    assert now(page)[each] in seen  # not before it is done
                    key = "Enter"
                page.keyboard.press(key)
                seen.add(now(page)[each])
                assert page.evaluate(focused)[:2] == [kind, each], "the focus was lost"
            assert len(seen) > 1, (each, kind)
        shown = page.evaluate("document.activeElement.value")
        if kind in ("range", "number"):
            assert float(shown) == now(page)[each]
    assert {each for _, each in reached} == set(names.values())
    assert len(set(reached)) == len(reached)


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


def test_jupyterlab_may_keep_enter_from_ending_a_change(browse):
    page = browse("mask_explorer")
    box = page.get_by_role("textbox")
    box.evaluate("""box => box.addEventListener("keydown",
        event => event.key === "Enter" && event.preventDefault())""")
    box.fill("1-2")
    box.press("Enter")
    assert now(page)["toggled"] == "1-2" and "toggled pairs: 1-2" in words(page)
    move(page, toggled="5-6")
    assert box.input_value() == "5-6"


@pytest.mark.parametrize(
    "name, start, changes",  # each change with the step and its end after it
    [("tile_explorer", {"step": 3}, [
        ({"step": 99}, 9, 9), ({"block_q": 2}, 16, 16), ({"causal": False}, 24, 24),
        ({"step": 23}, 23, 24), ({"causal": True}, 16, 16), ({"step": 4}, 4, 16),
        ({"block_q": 4}, 4, 9)]),
     ("ring_explorer", {"ranks": 3, "step": 2}, [
        ({"ranks": 6}, 5, 5), ({"step": 4}, 4, 5), ({"ranks": 8}, 4, 7), ({"ranks": 3}, 2, 2)])],
)  # fmt: skip
def test_the_last_step_stays_the_last_and_none_goes_beyond_it(browse, name, start, changes):
    page = browse(name, **start)
    box, slider = (page.get_by_role(role, name="step") for role in ("spinbutton", "slider"))
    for change, step, end in changes:
        ((each, value),) = change.items()
        label = made(name).controls[each]["label"]
        if isinstance(value, bool):
            page.get_by_role("checkbox", name=label).set_checked(value)
        elif each == "block_q":
            page.get_by_role("combobox", name=label).select_option(str(value))
        else:
            page.get_by_role("spinbutton", name=label).fill(str(value))
            page.keyboard.press("Enter")
        assert (box.input_value(), box.get_attribute("max")) == (str(step), str(end)), change
        assert (slider.input_value(), slider.get_attribute("max")) == (str(step), str(end))
        assert words(page).startswith(f"step {step} of ")
    move(page, step=99)  # Python may ask for more than there is
    assert words(page).startswith(f"step {end} of ") and box.input_value() == str(end)
