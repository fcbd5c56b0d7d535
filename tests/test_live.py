"""Explorers that live in the page: words, keys, pointers, in a browser without a kernel."""

import functools
import math
import random
import re

import numpy as np
import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from PIL import Image

from course_utils import explorers
from course_utils.attention import attention
from course_utils.explorers import head_explorer, similarity_explorer, views_explorer
from course_utils.explorers.browser_explorer import (
    STILL_DENSITY,
    BrowserExplorer,
    check,
    choice,
    number,
    text,
)
from explorer_pictures import set_controls, svg_parts
from tools import render_previews

STATES = 200
every_live = pytest.mark.parametrize("name", render_previews.LIVE)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?")


@functools.cache
def made(name):
    return getattr(explorers, name)()


@pytest.fixture(scope="module")
def browse(chromium):
    """A function that shows an explorer, by its name or itself, alone on the one page of all tests.

    What goes wrong there is in ``.errors``.
    """
    page = render_previews.new_page(chromium)

    def show(explorer, *width):
        return render_previews.show(
            page, made(explorer) if isinstance(explorer, str) else explorer, *width
        )

    yield show
    page.close()


def values_of(control, rng):
    """Return a value that a hand may give a control: on the slider, or typed between."""
    if control["kind"] != "number":
        return rng.choice(ends_of(control))
    low, high, step = control["low"], control["high"], control["step"]
    if rng.random() < 0.25:
        return rng.randint(low, high) if isinstance(step, int) else round(rng.uniform(low, high), 3)
    return round(low + step * rng.randrange(round((high - low) / step) + 1), 10)


def ends_of(control):
    """Return the ends of a control's values; where there is no order, all or enough of them."""
    if control["kind"] == "number":
        return [control["low"], control["high"]]
    if control["kind"] == "text":
        return TYPED
    return control.get("options", [False, True])


# Into the one text box there is: pairs of numbers below 8, and what are none.
RNG = random.Random(8)
TYPED = ["", "0-3", "7 - 0;00-1, 1-2,0-1", "8-0, 3-30, -4-5-6 7", "1,2 a-b - ٣-٤"]
TYPED += [", ".join(f"{RNG.randrange(8)}-{RNG.randrange(9)}" for _ in range(n)) for n in range(9)]


def at_random(explorer, rng):
    """Return values that can stand together; each that a number may have is as likely."""
    controls = explorer.controls
    values = {name: values_of(controls[name], rng) for name in controls}
    ends = explorer.highest(**values)
    return values | {n: values_of(controls[n] | {"high": end}, rng) for n, end in ends.items()}


def standing(explorer, values):
    """Return the values with each number within what the others leave it."""
    return set_controls(explorer, **values).values


def states(explorer):
    """Return states to compare: all ends, and enough at random."""
    rng, controls = random.Random(20), explorer.controls
    first = {name: control["value"] for name, control in controls.items()}
    ends = [
        standing(explorer, first | {name: end})
        for name, control in controls.items()
        for end in ends_of(control)
    ]
    return [first, *ends, *(at_random(explorer, rng) for _ in range(STATES))]


def unit(text):
    """Return what the last digit of a number that is written counts: 0.01 for "1.25"."""
    digits, _, power = text.partition("e")
    return 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))


def differ(said, expected):
    """Say whether two texts differ, but for the last digits of their numbers by one.

    The page has no exp of float32: it rounds that of float64, and torch's may be one step of
    float32 off. Where a number stands between two it is then written as either.
    """
    if NUMBER.sub("#", said) != NUMBER.sub("#", expected):
        return True
    pairs = zip(NUMBER.findall(said), NUMBER.findall(expected), strict=True)
    return any(abs(float(a) - float(b)) > 1.01 * max(unit(a), unit(b)) for a, b in pairs)


@every_live
def test_the_page_says_what_python_says(browse, name):
    explorer = made(name)
    every = states(explorer)
    said = browse(name).evaluate("all => all.map(module.say)", every)
    expected = [set_controls(explorer, **state).state for state in every]
    assert len(set(said)) > STATES / 10
    wrong = [pair for pair in zip(said, expected, strict=True) if differ(*pair)]
    assert not wrong, wrong[:5]
    assert sum(a != b for a, b in zip(said, expected, strict=True)) <= len(every) / 50


def test_texts_that_differ_are_told_from_digits_that_were_rounded():
    assert not differ("weight 0.25", "weight 0.26") and differ("weight 0.25", "weight 0.27")
    assert not differ("norm 1.1e-05", "norm 1.2e-05") and differ("norm 1.1e-05", "norm 1.1e-06")
    assert differ("found: 1", "1") and differ("1", "NaN")


# Where every control makes a difference, which it need not where an explorer opens.
HOMES = {
    "saturation_explorer": {"logit_2": 1.5, "d_k": 4, "scaled": False, "method": "naive"}
    | {"dtype": "bfloat16"},
    "mask_explorer": {"causal": False, "prefix": 5, "side": "start", "documents": 2},
}


@every_live
def test_picture_and_words_change_at_once_with_every_control(browse, name):
    page, explorer = browse(name), made(name)
    first = {name: control["value"] for name, control in explorer.controls.items()}
    values = first | HOMES.get(name, {})
    for each, control in explorer.controls.items():
        page.evaluate("values => model.set('values', values)", values)
        before = page.evaluate(SEEN)
        other = next(value for value in ends_of(control) if value != values[each])
        after = page.evaluate(
            f"values => {{ model.set('values', values); return ({SEEN})() }}",
            standing(explorer, values | {each: other}),
        )
        assert all(a != b for a, b in zip(before, after, strict=True)), each
        page.evaluate("values => model.set('values', values)", values)
        assert page.evaluate(SEEN) == before, each
    assert page.errors == []


SEEN = """() => [document.querySelector("svg").outerHTML,
               document.querySelector("[role=status]").textContent]"""


@every_live
def test_nothing_is_drawn_beside_the_picture_or_nowhere(browse, name):
    page, explorer = browse(name), made(name)
    every = states(explorer)[:60]
    marks = page.evaluate(
        """all => all.map(values => {
            model.set("values", values);
            const svg = document.querySelector("svg"), around = svg.getBoundingClientRect();
            const beside = [...svg.querySelectorAll("*")].map(part => part.getBoundingClientRect())
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


@every_live
def test_axe_finds_nothing_and_every_control_has_a_name(browse, name):
    page = browse(name)
    found = Axe().run(page, options={"resultTypes": ["violations", "passes"]}).response
    rules = {rule["id"] for rule in found["violations"]}
    assert rules <= {"landmark-one-main", "page-has-heading-one", "region"}  # the page's own
    assert "svg-img-alt" in {rule["id"] for rule in found["passes"]}
    roles = {"number": ["spinbutton", "slider"], "choice": ["combobox"], "check": ["checkbox"]}
    roles |= {"text": ["textbox"]}
    for control in made(name).controls.values():
        for role in roles[control["kind"]]:
            assert page.get_by_role(role, name=control["label"], exact=True).count() == 1


@every_live
def test_on_a_phone_the_picture_comes_first_and_nothing_is_wider(browse, name):
    page = browse(name, 390)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    picture = page.locator("svg").bounding_box()
    control = page.locator("input, select").first.bounding_box()
    words = page.get_by_role("status").bounding_box()
    assert picture["y"] + picture["height"] <= control["y"] < words["y"]
    assert picture["width"] > 300


@every_live
def test_on_a_laptop_the_controls_stand_beside_the_picture(browse, name):
    page = browse(name, 840)
    # ipywidgets takes away what its own layout does not say, and when it does is left to chance
    page.evaluate("document.querySelector('main').removeAttribute('style')")
    picture = page.locator("svg").bounding_box()
    below = page.get_by_role("status").bounding_box()
    for control in page.locator("input, select").all():
        box = control.bounding_box()
        assert box["x"] + box["width"] <= picture["x"] and box["y"] >= picture["y"]
        assert box["y"] + box["height"] <= below["y"]


def value(page, name):
    return page.evaluate("name => model.get('values')[name]", name)


def test_keys_move_a_slider_and_what_is_typed_counts_when_it_is_done(browse):
    page = browse("similarity_explorer")
    slider = page.get_by_role("slider", name="length of k")
    box = page.get_by_role("spinbutton", name="length of k")
    slider.focus()
    for key, length in [("ArrowRight", 1.6), ("ArrowDown", 1.5), ("End", 3), ("Home", 0)]:
        page.keyboard.press(key)
        assert value(page, "length") == length and float(box.input_value()) == length
    assert "cosine none" in page.get_by_role("status").inner_text()
    for typed, length in [("2.5", 2.5), ("9", 3), ("-4", 0), ("", 0)]:
        box.fill(typed)
        box.press("Enter")
        assert value(page, "length") == length, typed
        assert float(box.input_value()) == float(slider.input_value()) == length
    box.fill("1.2")
    box.press("Tab")  # to leave the box is to be done, too
    assert value(page, "length") == 1.2
    assert page.errors == []


def test_of_a_whole_number_typed_with_a_fraction_the_nearest_whole_counts(browse):
    page = browse("positions_explorer")
    box = page.get_by_role("spinbutton", name="place of q")
    box.fill("7.6")
    box.press("Enter")
    assert value(page, "i") == 8 and box.input_value() == "8"
    assert page.errors == []


def test_a_width_between_those_of_the_slider_may_be_typed(browse):
    page, explorer = browse("scaling_explorer"), made("scaling_explorer")
    box = page.get_by_role("spinbutton", name="d_k")
    for typed in (6, 50, 511):
        box.fill(f"{typed}")
        box.press("Enter")
        told = page.get_by_role("status").inner_text()
        assert not differ(told, set_controls(explorer, d_k=typed, scaled=False).state)
        assert value(page, "d_k") == typed and box.input_value() == f"{typed}"
    assert page.errors == []


@every_live
def test_what_has_no_colour_of_its_own_has_the_pages(browse, name):
    page = browse(name)
    page.add_style_tag(content="body { color: rgb(1, 2, 3) }")  # as on a dark ground
    picture = page.locator("svg")
    assert picture.evaluate("svg => getComputedStyle(svg).fill") == "rgb(1, 2, 3)"


def test_a_menu_and_a_box_to_tick_set_their_value_and_show_one_that_is_set(browse):
    for name, each, role in [("sentence_explorer", "last", "combobox"),
                             ("scaling_explorer", "scaled", "checkbox")]:  # fmt: skip
        page = browse(name)
        control = page.get_by_role(role)
        options = ["tired", "wide", "old"] if role == "combobox" else [False, True]
        for option in options[::-1]:
            page.evaluate("([n, v]) => model.set('values', {...model.get('values'), [n]: v})",
                          [each, option])  # fmt: skip
            shown = control.input_value() if role == "combobox" else control.is_checked()
            assert shown == option
        for option in options[::-1]:
            control.select_option(option) if role == "combobox" else control.set_checked(option)
            assert value(page, each) == option
        assert page.errors == []


def test_what_is_typed_as_text_counts_when_it_is_done_and_one_that_is_set_is_shown(browse):
    page = browse("mask_explorer")
    box, words = page.get_by_role("textbox"), page.get_by_role("status")
    assert box.get_attribute("placeholder") == "0-7" and box.input_value() == ""
    box.press_sequentially("0-7")
    assert value(page, "turned") == "" and "turned over" not in words.inner_text()
    box.press("Enter")
    assert value(page, "turned") == "0-7" and "turned over: 0-7" in words.inner_text()
    box.fill("3-4, anything")
    box.press("Tab")  # to leave the box is to be done, too
    assert value(page, "turned") == box.input_value() == "3-4, anything"
    # JupyterLab keeps Enter from ending a change
    page.evaluate("""document.querySelector("[type=text]").addEventListener("keydown",
        event => event.key === "Enter" && event.preventDefault())""")
    box.fill("1-2")
    box.press("Enter")
    assert value(page, "turned") == "1-2"
    page.evaluate("model.set('values', {...model.get('values'), turned: '5-6'})")
    assert box.input_value() == "5-6"
    assert page.errors == []


def test_the_tip_of_the_arrow_goes_where_it_is_dragged_until_it_is_let_go(browse):
    page = browse("similarity_explorer", 390)  # shrunk
    box = page.locator("svg").bounding_box()
    scale = box["width"] / 440

    def at(x, y):  # numbers of the axes: 3.2 to each side in 364 pixels
        across, down = 56 + 364 * (x + 3.2) / 6.4, 8 + 364 * (3.2 - y) / 6.4
        return box["x"] + across * scale, box["y"] + down * scale

    page.mouse.move(*at(1, 1))
    page.mouse.down()
    page.mouse.move(*at(0, 2), steps=4)
    assert page.evaluate("model.get('values')") == {"angle": 90, "length": 2}
    assert "found: at 90°" in page.get_by_role("status").inner_text()
    assert page.locator("[role=status] strong").inner_text() == "found:"
    page.mouse.move(*at(-3.1, -3.1), steps=4)
    assert page.evaluate("model.get('values')") == {"angle": -135, "length": 3}
    page.mouse.up()
    page.mouse.move(*at(0, 1), steps=4)
    assert page.evaluate("model.get('values')") == {"angle": -135, "length": 3}
    page.mouse.click(*at(0, 3.5))  # beside the axes
    page.mouse.click(*at(0, 1), button="right")  # that is for the browser's menu
    assert page.evaluate("model.get('values')") == {"angle": -135, "length": 3}


def test_arrows_distance_and_shadow_are_drawn_where_q_and_k_are(browse):
    page = browse("similarity_explorer")
    page.evaluate("model.set('values', { angle: 90, length: 2 })")
    boxes = page.locator("svg path").evaluate_all(
        """heads => heads.map(head => head.getCTM()).map(place => [place.e, place.f])"""
    )
    across, up = (lambda x: 56 + 364 * (x + 3.2) / 6.4), (lambda y: 8 + 364 * (3.2 - y) / 6.4)
    assert boxes == [pytest.approx([across(2), up(0)], abs=0.01),
                     pytest.approx([across(0), up(2)], abs=0.01)]  # fmt: skip
    ends = page.locator("svg line[stroke-dasharray]").last.evaluate(
        "line => ['x1', 'y1', 'x2', 'y2'].map(name => Number(line.getAttribute(name)))"
    )
    assert ends == pytest.approx([across(2), up(0), across(0), up(2)], abs=0.01)
    page.evaluate("model.set('values', { angle: 180, length: 1.5 })")
    ends = page.locator("svg line[stroke='#2ca02c']").last.evaluate(
        "line => ['x1', 'y1', 'x2', 'y2'].map(name => Number(line.getAttribute(name)))"
    )
    assert ends == pytest.approx([across(0), up(0), across(-1.5), up(0)], abs=0.01)


@pytest.mark.parametrize("angle", [0, 90])
def test_an_arrow_is_as_long_as_k_however_short_and_its_head_points_where_it_goes(browse, angle):
    page = browse("similarity_explorer")
    for length in [0, 0.1, 0.3, 1.5, 3]:
        page.evaluate("values => model.set('values', values)", {"angle": angle, "length": length})
        corners = page.locator("svg path").last.evaluate(
            """head => {
                const corners = [...head.getAttribute("d").matchAll(/(-?\\d+) (-?\\d+)/g)];
                return corners.map(([_, x, y]) => {
                    const at = new DOMPoint(x, y).matrixTransform(head.getCTM());
                    return [at.x, at.y];
                });
            }"""
        )
        towards = -1 if angle else 1  # up is less in pixels
        one = 364 / 6.4  # the pixels of a 1
        start = 8 + 364 / 2 if angle else 56 + 364 / 2
        along = [towards * (corner[angle // 90] - start) for corner in corners]
        assert along[0] == pytest.approx(length * one, abs=0.01)  # its tip
        assert all(-0.02 <= each <= along[0] + 0.02 for each in along)
        assert length == 0 or min(along) < along[0] - 1


NUMBERS = [0.125, 0.375, -0.125, 2.5, -0.001, 2.675, 1.005, 0.145, 1e-9, -2.5, 0.5, 1.5, 12345.675]


def test_numbers_are_written_as_python_writes_them(browse):
    page = browse("similarity_explorer")
    cases = [(number, digits) for number in NUMBERS for digits in range(4)]
    written = page.evaluate("all => all.map(one => module.fixed(...one))", cases)
    assert written == [f"{number:z.{digits}f}" for number, digits in cases]


ODD = {
    "mathematics": r"$\foo$",
    "two dollars": "$$",
    "escaped dollars": r"\$_$^",
    "markup": "<b>&amp;",
    "a null": "a\0b",
    "an escape": "\x1b[31mred",
    "half a pair": "\ud800",
    "a line break": "a\nb",
    "another one": "a\r\x85\u2028b",
    "nothing": "",
    "very long": "internationalization" * 500,
}


def with_tokens(tokens):
    """Yield the explorers that take four tokens."""
    q = torch.randn(2, 3, 4, 8, generator=torch.Generator().manual_seed(0))  # (layers, H, L, d_k)
    weights = attention(q, q, q)[1]
    yield head_explorer(weights[1], tokens)
    yield views_explorer(tokens, q, q, weights)


@pytest.mark.parametrize("token", ODD.values(), ids=ODD)
def test_a_token_may_be_any_text(browse, token):
    for explorer in with_tokens(["b", token, "c", token]):
        page = browse(explorer)
        last = {name: control.get("options", [control.get("high", True)])[-1]
                for name, control in explorer.controls.items()}  # fmt: skip
        page.evaluate("last => model.set('values', last)", last)
        told = page.get_by_role("status").text_content()
        assert told == set_controls(explorer, **last).state
        for sent in [told, *page.locator("option, svg text").all_text_contents()]:
            assert not re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", sent)
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 1000
        column = page.locator("div:has(> label)").bounding_box()
        for each in page.locator("input, select").all():
            box = each.bounding_box()
            assert box["x"] + box["width"] <= column["x"] + column["width"] + 4  # a range's margin
        assert page.errors == []


# The still picture.


@pytest.fixture(scope="module")
def fine_page(chromium):
    page = render_previews.new_page(chromium, STILL_DENSITY)
    yield page
    page.close()


def letters_of(page):
    """Return the pixels of the texts of a picture, with room for a font a third wider."""
    boxes = np.array([box for _, box, _ in svg_parts(page)["texts"]]) * STILL_DENSITY  # (n, 4)
    room = (boxes[:, 2:] - boxes[:, :2]) / 3
    return (boxes + np.hstack([-room, room])).clip(min=0).round().astype(int)


@every_live
def test_the_still_picture_is_the_one_that_the_page_draws(fine_page, name):
    path = render_previews.PREVIEWS / f"{made(name).name}.png"
    again, mark = render_previews.taken(fine_page, getattr(explorers, name)())
    with Image.open(path) as stored:
        assert stored.text["drawing"] == mark, "look at it after: python tests/render_previews.py"
        shown = np.asarray(stored.convert("RGB"), dtype=int)
    again = np.asarray(again, dtype=int)
    assert shown.shape == again.shape
    differs = np.abs(shown - again).max(axis=-1) > 64  # its colours are one of a few
    for left, top, right, bottom in letters_of(fine_page):  # another font may be here
        differs[top:bottom, left:right] = False
    assert differs.mean() < 0.001
    assert path.stat().st_size < 60_000


# In Python.


def test_shown_statically_it_is_its_first_picture_with_its_words():
    explorer = similarity_explorer()
    bundle, metadata = explorer._repr_mimebundle_()
    assert metadata["image/png"] == {"width": 440, "height": 416}
    assert "image/png" in bundle and "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == explorer.state
    bundle = set_controls(explorer, angle=90)._repr_mimebundle_()
    assert "image/png" not in bundle  # it would not be the state that is told
    assert bundle["text/plain"] == explorer.state
    other = BrowserExplorer(
        "similarity", similarity_explorer().controls, lambda **_: "of other data"
    )
    assert "image/png" not in other._repr_mimebundle_()


@pytest.fixture
def explorer():
    controls = {"n": number("n", 2, 0, 9, 1), "x": number("x", 0.5, 0, 1, 0.1),
                "kind": choice("kind", "a", ["a", "b"]), "on": check("on", True),
                "line": text("line", "any", "such as")}  # fmt: skip
    return BrowserExplorer("similarity", controls, lambda **values: str(values), more=[1, 2])


def test_values_are_those_of_the_controls_within_their_ends(explorer):
    assert explorer.values == {"n": 2, "x": 0.5, "kind": "a", "on": True, "line": "any"}
    set_controls(explorer, n=12.0, x=-1, kind="b", on=False, line="$ <")
    moved = "{'n': 9, 'x': 0.0, 'kind': 'b', 'on': False, 'line': '$ <'}"
    assert explorer.state == moved
    for name, wrong in [("kind", "c"), ("on", "yes")]:
        with pytest.raises(ValueError, match=f"{name} must be one of .*, got '{wrong}'"):
            set_controls(explorer, **{name: wrong})
    for name in ("n", "x"):
        with pytest.raises(ValueError, match=f"{name} must be a number, got nan"):
            set_controls(explorer, **{name: math.nan})
    with pytest.raises(ValueError, match="line must be a str, got 7"):
        set_controls(explorer, line=7)
    with pytest.raises(ValueError, match="must be those of n, x, kind, on, line, got n"):
        explorer.values = {"n": 1}
    assert explorer.state == moved


def test_a_number_is_moved_to_the_highest_value_that_the_others_leave_it():
    controls = {"n": number("n", 2, 0, 9, 1), "most": number("most", 5, 0, 9, 1)}
    explorer = BrowserExplorer("similarity", controls, str, highest=lambda n, most: {"n": most})
    assert set_controls(explorer, n=7).values == {"n": 5, "most": 5}
    assert set_controls(explorer, most=3).values == {"n": 3, "most": 3}
    assert set_controls(explorer, most=9).values == {"n": 3, "most": 9}  # a hand takes it along
    assert set_controls(explorer, n=-1, most=12).values == {"n": 0, "most": 9}


def test_what_the_browser_moved_is_not_sent_back_to_it(explorer, monkeypatch):
    """On a slow line an echo would come late, and pull a slider back from under the hand."""
    sent = []
    monkeypatch.setattr(explorer, "_send", lambda message, **_: sent.append(message))
    explorer.set_state({"values": explorer.values | {"n": 5}})
    assert explorer.values["n"] == 5 and sent == []
    set_controls(explorer, n=6)
    assert [message["state"]["values"]["n"] for message in sent] == [6]  # but what Python moves


def test_the_module_holds_what_is_given_and_needs_nothing_else(explorer):
    assert explorer.module.startswith('const given = {"more": [1, 2]};')
    assert not re.search(r"^import\b|\bfetch\(|https?://(?!www\.w3\.org/2000/svg)",
                         explorer.module, re.M)  # fmt: skip
