"""The explorer of a training: give it steps, go back and forth, read picture and words."""

import functools
import io
import json
import math
import re

import numpy as np
import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from course_utils.attention import follows_same_token
from course_utils.explorers import training_explorer
from explorer_pictures import headings, set_controls
from tools import render_previews

TOKENS = torch.arange(4).repeat(3)  # (L,)
L = len(TOKENS)


def learned():
    """Return perfect heads, (layers, H, L, L): one looks at the token before, one is induction."""
    wanted = follows_same_token(TOKENS).float()
    induction = wanted / wanted.sum(dim=-1, keepdim=True).clamp(min=1)
    return torch.stack([torch.eye(L).roll(-1, dims=-1), induction])[:, None]


def explorer_after(losses, weights=lambda step: torch.full((2, 1, L, L), 1 / L)):
    explorer = training_explorer(TOKENS, num_layers=2, num_heads=1, steps=40, every=10)
    for step, loss in enumerate(losses):
        explorer.add(loss, lambda step=step: weights(step))
    return explorer


def test_before_the_first_step_it_says_so():
    assert explorer_after([]).state == "step 0: nothing learned yet"


def test_it_follows_the_training_every_tenth_step():
    explorer = explorer_after([])
    for step in range(25):
        explorer.add(4 - step / 10, lambda step=step: torch.full((2, 1, L, L), (step + 5) / 30))
        assert explorer.state.startswith(f"step {step // 10 * 10}: ")
    assert explorer.values == {"step": 20}
    assert len(explorer.losses) == 25 and list(explorer.snapshots) == [0, 10, 20]


def test_words_give_loss_and_scores_of_the_step_chosen():
    explorer = explorer_after(
        [3.5] * 10 + [1.25] * 5,
        lambda step: learned() if step else torch.full((2, 1, L, L), 1 / L),
    )
    assert explorer.state == (
        "step 10: loss 1.25; previous-token score, induction score of "
        "layer 0 head 0: 1.00, 0.00; layer 1 head 0: 0.00, 1.00"
    )
    set_controls(explorer, step=0)
    assert explorer.state.startswith("step 0: loss 3.50;") and "1.00" not in explorer.state


def test_back_at_a_step_the_words_are_the_same_and_past_the_end_they_are_the_last_ones():
    rng = torch.Generator().manual_seed(0)
    explorer = explorer_after(
        [3.0, 2.0, 1.0] * 7, lambda _: torch.rand(2, 1, L, L, generator=rng).softmax(dim=-1)
    )
    last = explorer.state
    assert set_controls(explorer, step=10).state != last
    assert set_controls(explorer, step=40).state == last  # beyond the end
    assert explorer.values == {"step": 20} and explorer.controls["step"]["label"] == "step"
    set_controls(explorer, step=9)  # typed: what there was until then
    assert explorer.state.startswith("step 0: ")


def random_weights(layers, heads, length, seed=1):
    rng = torch.Generator().manual_seed(seed)
    return torch.rand(layers, heads, length, length, generator=rng)


@functools.cache
def random_explorer(layers=2, heads=3, length=L, steps=70):
    """Return an explorer after 23 steps, its losses, and its weights by step."""
    tokens = torch.arange(length) % 4
    explorer = training_explorer(tokens, num_layers=layers, num_heads=heads, steps=steps, every=5)
    losses = [3 / (1 + step) for step in range(23)]
    weights = {step: random_weights(layers, heads, length, step) for step in range(0, 23, 5)}
    for step, loss in enumerate(losses):
        explorer.add(loss, lambda step=step: weights[step])
    return explorer, losses, weights


def test_the_slider_goes_from_picture_to_picture_as_far_as_there_are_any():
    explorer = explorer_after([])
    seen = []
    for _ in range(25):
        explorer.add(2.0, lambda: torch.rand(2, 1, L, L))
        seen.append(explorer.highest(**explorer.values)["step"])
    assert seen == [10] * 20 + [20] * 5  # at first there is but one
    control = explorer.controls["step"]
    assert (control["low"], control["step"]) == (0, 10)


def test_a_training_may_become_longer_than_was_said():
    explorer = explorer_after([2.0] * 61)
    assert explorer.state.startswith("step 60: ")
    assert set_controls(explorer, step=50).state.startswith("step 50: ")


def rising(before, after):
    """Return an explorer of 40 steps in which two heads rise from nothing at their steps."""
    perfect = learned()
    parts = lambda step: torch.tensor([step >= before, step >= after])  # noqa: E731
    return explorer_after([2.0] * 40, lambda step: perfect * parts(step)[:, None, None, None])


@pytest.mark.parametrize("before, after", [(10, 20), (20, 10), (10, 10)])
def test_where_both_scores_rise_the_words_say_that_it_is_found(before, after):
    explorer = rising(before, after)
    told = (
        f"; found: half way up are the previous-token score of layer 0 head 0 at step {before} "
        f"and the induction score of layer 1 head 0 at step {after}"
    )
    for step in (0, 10, 20, 30):
        set_controls(explorer, step=step)
        found = min(before, after) <= step <= max(before, after)
        assert explorer.state.endswith(told) if found else "found" not in explorer.state


@pytest.mark.parametrize("before, after", [(10, 99), (99, 10)])
def test_where_one_score_never_rises_nothing_is_found(before, after):
    explorer = rising(before, after)
    for step in (0, 10, 20, 30):
        set_controls(explorer, step=step)
        assert "found" not in explorer.state


def test_while_it_learns_nothing_is_found():
    explorer = explorer_after([])
    for step in range(40):
        explorer.add(1.0, lambda step=step: learned() * (step >= 20))
        assert "found" not in explorer.state


# What is sent to the page


@pytest.fixture
def sent(monkeypatch):
    """All that is sent by explorers to their pages, as JSON: news, and changes of a state."""
    found = []
    monkeypatch.setattr(
        "course_utils.explorers.training.TrainingExplorer._send",
        lambda _, message, **kwargs: found.append(json.dumps(message, allow_nan=False)),
    )
    return found


def test_at_each_picture_what_is_new_is_sent_once_and_then_the_step(sent):
    explorer = explorer_after([])
    sent.clear()
    counts = []
    for step in range(40):
        explorer.add(step / 10, lambda: torch.eye(L).expand(2, 1, L, L))
        counts.append(len(sent))
    # the first needs no step, as it is chosen; the last losses come when the training is over
    assert counts == [1] * 10 + [3] * 10 + [5] * 10 + [7] * 9 + [8]
    messages = [json.loads(message) for message in sent]
    news = [message["content"] for message in messages if message["method"] == "custom"]
    assert [len(each["losses"]) for each in news] == [1, 10, 10, 10, 9]
    assert sum((each["losses"] for each in news), []) == [step / 10 for step in range(40)]
    pictures = [[picture["step"] for picture in each["pictures"]] for each in news]
    assert pictures == [[0], [10], [20], [30], []]
    states = [message["state"] for message in messages if message["method"] == "update"]
    assert states == [{"values": {"step": step}} for step in (10, 20, 30)]


def test_a_page_that_is_opened_later_is_told_all_that_was_sent(sent):
    explorer = explorer_after([])
    assert explorer.get_state()["known"] == explorer._news([], 0)
    sent.clear()
    for step in range(33):
        explorer.add(step / 10, lambda step=step: learned() * (step >= 20))
    messages = [json.loads(message) for message in sent]
    news = [message["content"] for message in messages if message["method"] == "custom"]
    known = json.loads(json.dumps(explorer.get_state()["known"], allow_nan=False))
    assert known["pictures"] == sum((each["pictures"] for each in news), [])
    assert known["losses"] == [step / 10 for step in range(33)]  # also those after a picture
    assert known["found"] == news[-1]["found"] and known["found"]["at"] == [20]


def test_what_is_no_number_is_sent_as_what_json_can_hold(sent):
    weights = torch.full((2, 1, L, L), 0.25)
    weights[0, 0, 1] = torch.nan
    explorer_after([math.nan, math.inf, *[2.5] * 9], lambda _: weights)
    first, second = [json.loads(each)["content"] for each in sent if '"content"' in each]
    assert first["losses"] + second["losses"] == [None, None, *[2.5] * 9]
    assert second["pictures"][0]["weights"][0][0][:3] == [[250] * L, [-1] * L, [250] * L]
    assert "step 0: loss nan; " in first["pictures"][0]["words"]


# In the page


@pytest.fixture(scope="module")
def browse(chromium):
    """A function that shows an explorer, with all it has been given, alone on the one page."""
    page = render_previews.new_page(chromium)

    def open_page(explorer, step=None, width=1000):
        assert page.errors == []
        render_previews.show(page, explorer, width)
        page.evaluate("known => module.begin(known)", explorer.get_state()["known"])
        choose(page, explorer.values["step"] if step is None else step)
        return page

    yield open_page
    assert page.errors == []
    page.close()


def choose(page, step):
    page.evaluate("step => model.set('values', { step })", step)


DRAWN = """() => {
    const svg = document.querySelector("svg[role=img]"), around = svg.getBoundingClientRect();
    const place = part => {
        const box = part.getBoundingClientRect();
        return [box.left - around.left, box.top - around.top, box.width, box.height];
    };
    const look = part => Object.fromEntries([...part.attributes].map(one => [one.name, one.value]));
    const parts = name => [...svg.querySelectorAll(name)].map(part =>
        ({ box: place(part), text: part.textContent, ...look(part) }));
    const cells = [...svg.querySelectorAll("canvas")].map(part => ({ box: place(part), cells:
        [...part.getContext("2d").getImageData(0, 0, part.width, part.height).data] }));
    return { heads: cells, texts: parts("text"), paths: parts("path"), lines: parts("line"),
             svgs: parts("svg"), rects: parts("rect") };
}"""


def weights_in(head, length):
    """Return the weights (L, L) whose colours a canvas has; NaN where it is grey."""
    pixels = np.array(head["cells"]).reshape(length, length, 4)
    assert (pixels[..., 3] == 255).all()
    scale = colormaps["cividis"](np.linspace(0, 1, 256), bytes=True)[:, :3].astype(int)
    far = np.abs(pixels[:, :, None, :3] - scale).sum(axis=-1)  # (L, L, 256)
    return np.where(far.min(axis=-1) <= 12, far.argmin(axis=-1) / 255, np.nan)


def middle_of(box):
    return box[0] + box[2] / 2, box[1] + box[3] / 2


SHAPES = [(2, 3, L), (1, 1, 5), (3, 2, 30), (2, 8, 6)]


@pytest.mark.parametrize("layers, heads, length", SHAPES)
def test_each_head_stands_under_its_name_with_the_weights_of_the_step(
    browse, layers, heads, length
):
    explorer, _, weights = random_explorer(layers, heads, length)
    page = browse(explorer, 10, 1600)
    for chosen, shown in [(20, 20), (5, 5), (0, 0), (70, 20), (13, 10)]:
        choose(page, chosen)
        drawn = page.evaluate(DRAWN)
        assert len(drawn["heads"]) == layers * heads
        names = {text["text"]: text["box"] for text in drawn["texts"]}
        tops, lefts = ({round(head["box"][side]) for head in drawn["heads"]} for side in (1, 0))
        assert (len(tops), len(lefts)) == (layers, heads)
        for head in drawn["heads"]:
            left, top, side, _ = head["box"]
            layer, place = sorted(tops).index(round(top)), sorted(lefts).index(round(left))
            name = names[f"layer {layer}, head {place}"]
            assert middle_of(name)[0] == pytest.approx(left + side / 2, abs=1)
            assert 0 < top - name[1] - name[3] < 12  # pixels
            found = weights_in(head, length)
            np.testing.assert_allclose(found, weights[shown][layer, place], atol=0.02)


def test_weights_from_0_to_1_have_the_colours_of_the_map_and_nan_is_grey(browse):
    weights = torch.linspace(0, 1, L * L).reshape(1, 1, L, L).clone()
    weights[0, 0, 3, 5] = torch.nan
    explorer = training_explorer(TOKENS, num_layers=1, num_heads=1, steps=40)
    explorer.add(1.0, lambda: weights)
    (head,) = browse(explorer).evaluate(DRAWN)["heads"]
    pixels = np.array(head["cells"]).reshape(L, L, 4)
    assert [*pixels[3, 5]] == [140, 140, 140, 255]
    expected = colormaps["cividis"](weights[0, 0].numpy(), bytes=True).astype(int)
    expected[3, 5] = pixels[3, 5]
    assert np.abs(pixels - expected).max() <= 8  # eleven colours stand for those of the map


def test_the_scale_of_weights_goes_from_0_at_its_left_to_1_at_its_right(browse):
    drawn = browse(random_explorer()[0]).evaluate(DRAWN)
    cells = [path for path in drawn["paths"] if path.get("shape-rendering") == "crispEdges"]
    first, *_, last = sorted(cells, key=lambda cell: cell["box"][0])
    (zero,) = (text["box"] for text in drawn["texts"] if text["text"] == "weight 0")
    one = max(text["box"] for text in drawn["texts"] if text["text"] == "1")
    assert zero[0] + zero[2] <= first["box"][0] and last["box"][0] + last["box"][2] <= one[0]
    ends = [[int(part) for part in re.findall(r"\d+", cell["fill"])] for cell in (first, last)]
    expected = colormaps["cividis"]([0.0, 1.0], bytes=True)[:, :3].astype(int)
    assert np.abs(ends - expected).max() <= 8


def test_before_the_first_step_the_heads_are_empty_and_the_page_says_so(browse):
    page = browse(explorer_after([]), 0)
    assert page.get_by_role("status").inner_text() == "step 0: nothing learned yet"
    drawn = page.evaluate(DRAWN)
    assert not any(any(head["cells"]) for head in drawn["heads"])
    assert [path["d"] for path in drawn["paths"] if path.get("stroke") == "#1f77b4"] == [""]


def loss_frame(drawn):
    """Return the frame of the loss: left, top, width and height."""
    (inside,) = drawn["svgs"]
    return [float(inside[side]) for side in ("x", "y", "width", "height")]


def loss_in(drawn, steps):
    """Return the points of the curve, (step, loss), in one list for each part without a gap."""
    left, top, width, height = loss_frame(drawn)
    (curve,) = [path for path in drawn["paths"] if path.get("stroke") == "#1f77b4"]
    parts = [re.findall(r"(-?[\d.]+) (-?[\d.]+)", part) for part in curve["d"].split("M")[1:]]
    return [
        [((float(x) - left) / width * steps, 4 * (1 - (float(y) - top) / height)) for x, y in part]
        for part in parts
    ]


@pytest.mark.parametrize("layers, heads, length", SHAPES)
def test_the_loss_stands_right_of_the_heads_on_scales_that_stay(browse, layers, heads, length):
    explorer, losses, _ = random_explorer(layers, heads, length)
    page = browse(explorer, 15, 1600)
    drawn = page.evaluate(DRAWN)
    left, top, width, height = loss_frame(drawn)
    ends = [(box[0] + box[2], box[1] + box[3]) for box in (one["box"] for one in drawn["heads"])]
    assert max(x for x, _ in ends) < left - 40
    assert top == pytest.approx(min(head["box"][1] for head in drawn["heads"]), abs=0.5)
    assert top + height == pytest.approx(max(y for _, y in ends), abs=0.5)
    (points,) = loss_in(drawn, 70)
    np.testing.assert_allclose(points, [*enumerate(losses)], atol=0.01)
    (cursor,) = [line for line in drawn["lines"] if line["stroke"] == "#ff7f0e"]
    assert (
        float(cursor["x1"]) == float(cursor["x2"]) == pytest.approx(left + width * 15 / 70, abs=0.1)
    )
    ends = float(cursor["y1"]), float(cursor["y2"])
    assert ends == pytest.approx((top, top + height), abs=0.1)
    assert "loss" in [text["text"] for text in drawn["texts"]]
    written = {text["text"]: middle_of(text["box"]) for text in drawn["texts"]}
    for step in (20, 40, 60):  # of the step, below the frame
        at = [text["box"] for text in drawn["texts"] if text["text"] == str(step)]
        assert any(
            middle_of(box)[0] == pytest.approx(left + width * step / 70, abs=1)
            and box[1] > top + height
            for box in at
        )
    # of the loss, left of it
    left_of = {t["text"]: middle_of(t["box"])[1] for t in drawn["texts"]
               if left - 20 < t["box"][0] < left - 4 and t["text"].isdigit()}  # fmt: skip
    for loss in range(1, 5):
        assert left_of[str(loss)] == pytest.approx(top + height * (1 - loss / 4), abs=3)
    assert written["step"][1] > top + height + 10


def test_a_loss_that_is_no_number_leaves_a_gap_and_one_beyond_the_frame_is_cut_off(browse):
    losses = [3.0, 2.5, math.nan, 2.0, 6.0, math.inf, 1.0, 0.5]
    page = browse(explorer_after(losses))
    drawn = page.evaluate(DRAWN)
    parts = loss_in(drawn, 40)
    expected = [[(0, 3), (1, 2.5)], [(3, 2), (4, 6)], [(6, 1), (7, 0.5)]]
    assert [len(part) for part in parts] == [2, 2, 2]
    np.testing.assert_allclose(parts, expected, atol=0.02)
    left, top, width, _ = loss_frame(drawn)
    picture = page.locator("svg[role=img]").bounding_box()
    x, y = picture["x"] + left, picture["y"] + top
    for above, is_seen in [(-8, False), (2, True)]:  # in the 6 pixels above the frame, and in it
        clip = {"x": x, "y": y + above, "width": width, "height": 6}
        with Image.open(io.BytesIO(page.screenshot(clip=clip))) as seen:
            red, _, blue = np.asarray(seen.convert("RGB"), dtype=int).transpose(2, 0, 1)
        assert ((blue - red).max() > 100) == is_seen


def test_numbers_stand_at_their_tokens_once_a_row_and_once_a_column(browse):
    drawn = browse(random_explorer(3, 2, 30)[0]).evaluate(DRAWN)
    boxes = [head["box"] for head in drawn["heads"]]
    left, bottom = min(box[0] for box in boxes), max(box[1] + box[3] for box in boxes)
    numbers = [(int(t["text"]), t["box"]) for t in drawn["texts"] if t["text"].isdigit()]
    rows = [(n, middle_of(box)[1]) for n, box in numbers if box[0] < left and box[1] < bottom]
    columns = [(n, middle_of(box)[0]) for n, box in numbers
               if left - 9 < box[0] < loss_frame(drawn)[0] - 9 and box[1] > bottom]  # fmt: skip
    cells = boxes[0][2] / 30
    tops, lefts = (sorted({round(box[side]) for box in boxes}) for side in (1, 0))
    places = range(0, 30, 10)
    for found, starts in ((rows, tops), (columns, lefts)):
        expected = [(n, start + cells * (n + 0.5)) for start in starts for n in places]
        assert [n for n, _ in found] == [n for n, _ in expected]
        np.testing.assert_allclose(found, expected, atol=1.5)


@pytest.mark.parametrize("layers, heads, length", SHAPES)
def test_nothing_is_drawn_beside_the_picture_and_no_two_texts_touch(browse, layers, heads, length):
    page = browse(random_explorer(layers, heads, length, 12345)[0], width=1600)
    width, height = page.evaluate("module.size")
    texts = [text for text in page.evaluate(DRAWN)["texts"] if text["text"]]
    for text in texts:
        x, y, across, down = text["box"]
        assert x >= 0 and y >= 0 and x + across <= width and y + down <= height, text
    for place, one in enumerate(texts):
        for other in texts[:place]:
            apart = [
                max(one["box"][side], other["box"][side])
                - min(one["box"][side] + one["box"][side + 2],
                      other["box"][side] + other["box"][side + 2])
                for side in (0, 1)
            ]  # fmt: skip
            assert max(apart) > -3, (one, other)  # pixels: the room above a letter


def test_the_page_says_what_python_says_at_every_step(browse):
    explorers = [rising(10, 20), rising(20, 10), rising(10, 99), random_explorer()[0],
                 explorer_after([math.nan, math.inf, *[2.5] * 9])]  # fmt: skip
    for explorer in explorers:
        page = browse(explorer)
        for step in range(45):
            said = page.evaluate("step => module.say({ step })", step)
            assert said == set_controls(explorer, step=step).state or step > explorer.values["step"]


def test_what_comes_is_drawn_and_added_to_the_rest_and_the_slider_reaches_it(browse):
    """As `initialize` and `render` of browser_explorer.js do with each message."""
    explorer = explorer_after([2.0] * 11)
    page = browse(explorer)
    slider, box = page.get_by_role("slider"), page.get_by_role("spinbutton")
    assert (slider.get_attribute("max"), box.get_attribute("max")) == ("10", "10")
    before = explorer.get_state()["known"]
    for _ in range(11, 21):
        explorer.add(1.5, lambda: learned())
    known = page.evaluate(
        "([all, news]) => { module.begin(all); module.take(news); return all }",
        [before, explorer._news([20], 11)],
    )
    assert known == explorer.get_state()["known"]  # what is saved with the notebook, if it is
    choose(page, 20)
    assert page.get_by_role("status").inner_text() == explorer.state
    assert (slider.get_attribute("max"), slider.input_value()) == ("20", "20")
    (points,) = loss_in(page.evaluate(DRAWN), 40)
    assert len(points) == 21
    slider.focus()
    for key, step in [("ArrowLeft", "10"), ("ArrowLeft", "0"), ("End", "20"), ("ArrowRight", "20")]:
        page.keyboard.press(key)
        assert box.input_value() == step
        assert page.get_by_role("status").inner_text().startswith(f"step {step}: ")


def test_a_press_on_the_loss_goes_to_the_picture_nearest_to_it(browse):
    page = browse(random_explorer()[0], width=840)
    left, top, width, height = loss_frame(page.evaluate(DRAWN))
    picture = page.locator("svg[role=img]").bounding_box()

    def at(x, y):
        return picture["x"] + left + width * x / 70, picture["y"] + top + height * y

    words = page.get_by_role("status")
    for x, step in [(2, 0), (11, 10), (13, 15), (60, 20), (0.3, 0)]:
        page.mouse.click(*at(x, 0.4))
        assert page.evaluate("model.get('values').step") == step
        assert words.inner_text().startswith(f"step {step}: ")
    page.mouse.move(*at(1, 0.4))
    page.mouse.down()
    page.mouse.move(*at(16, 0.9), steps=3)
    assert words.inner_text().startswith("step 15: ")
    page.mouse.move(*at(-9, 0.9), steps=3)  # beside it: the end that is near
    assert page.evaluate("model.get('values').step") == 0
    page.mouse.up()
    page.mouse.click(picture["x"] + 100, picture["y"] + 100)  # a head
    assert page.evaluate("model.get('values').step") == 0


def test_axe_finds_nothing_and_on_a_phone_the_picture_comes_first(browse):
    page = browse(random_explorer()[0], width=390)
    found = Axe().run(page, options={"resultTypes": ["violations", "passes"]}).response
    rules = {rule["id"] for rule in found["violations"]}
    assert rules <= {"landmark-one-main", "page-has-heading-one", "region"}  # the page's own
    assert "svg-img-alt" in {rule["id"] for rule in found["passes"]}
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    picture = page.locator("svg[role=img]").bounding_box()
    assert 300 < picture["width"] < 390
    assert picture["y"] + picture["height"] <= page.get_by_role("spinbutton").bounding_box()["y"]
    canvas = page.locator("canvas").first.bounding_box()  # shrinks with it
    assert canvas["width"] == pytest.approx(picture["width"] * 99.33 / 560, rel=0.02)


# The stored picture


def figure_of(explorer):
    """Return the figure of the stored picture, laid out, and its Axes: heads and loss."""
    figure = explorer._figure()
    FigureCanvasAgg(figure).draw()
    *heads, curve = figure.axes
    return figure, heads, curve


@pytest.mark.parametrize("chosen", [20, 5, 0])
def test_the_stored_picture_shows_heads_and_loss_of_the_step_chosen(chosen):
    explorer, losses, weights = random_explorer()
    _, heads, curve = figure_of(set_controls(explorer, step=chosen))
    by_name = {ax.get_title(): ax for ax in heads}
    rows, columns = ({round(ax.bbox.bounds[side]) for ax in heads} for side in (1, 0))
    assert (len(rows), len(columns)) == (2, 3)
    for layer, y in enumerate(sorted(rows, reverse=True)):  # the first layer is on top
        for head, x in enumerate(sorted(columns)):
            ax = by_name[f"layer {layer}, head {head}"]
            assert (round(ax.bbox.x0), round(ax.bbox.y0)) == (x, y)
            (image,) = ax.images
            np.testing.assert_allclose(image.get_array(), weights[chosen][layer, head])
            assert image.get_clim() == (0, 1) and image.get_cmap().name == "cividis"
            labels = "keys" if layer == 1 else "", "queries" if head == 0 else ""
            assert headings(ax)[1:] == labels
    assert all(ax.bbox.x1 < curve.bbox.x0 for ax in heads)
    assert headings(curve) == ("", "step", "loss")
    assert curve.get_xlim() == (0, 70) and curve.get_ylim() == (0, 4)
    line, cursor = curve.lines
    np.testing.assert_allclose(line.get_xydata(), [*enumerate(losses)])
    assert [*cursor.get_xdata()] == [chosen, chosen]


def written(axis):
    """Return the numbers that stand at an axis."""
    return [label.get_text() for label in axis.get_ticklabels() if label.get_text()]


def test_in_the_stored_picture_no_title_touches_the_numbers_of_the_head_above():
    figure, heads, _ = figure_of(random_explorer()[0])
    renderer = figure.canvas.get_renderer()
    above, below = heads[:3], heads[3:]
    for one, other in zip(above, below, strict=True):
        assert one.get_tightbbox(renderer).y0 - other.title.get_window_extent(renderer).y1 > 4
        assert not written(one.xaxis) and written(other.xaxis)
    for row in (above, below):
        assert [bool(written(ax.yaxis)) for ax in row] == [True, False, False]


def test_it_is_stored_with_its_picture_and_words_before_and_after():
    explorer = explorer_after([])
    before, metadata = explorer._repr_mimebundle_()
    assert before["text/plain"] == explorer.state
    assert metadata["image/png"] == {"width": 400, "height": 368}
    explorer.add(2.5, lambda: learned())
    after, _ = explorer._repr_mimebundle_()
    assert after["text/plain"] == explorer.state
    assert after["image/png"] != before["image/png"]


def test_of_its_pictures_none_is_stored_for_pages_without_a_training():
    assert "training_explorer" not in render_previews.LIVE
    assert not (render_previews.PREVIEWS / "training.png").exists()


def test_the_first_picture_is_drawn_at_once():
    explorer = training_explorer(TOKENS, num_layers=1, num_heads=1, steps=40)
    assert explorer.controls["step"]["step"] == 10  # if nothing else is said
    explorer.add(2.5, lambda: torch.rand(1, 1, L, L))
    assert explorer.state.startswith("step 0: loss 2.50")


def test_what_is_learned_later_does_not_change_what_was_recorded():
    weights = torch.full((2, 1, L, L), 1 / L)
    explorer = explorer_after([3.0], lambda _: weights)
    weights.zero_()
    assert explorer.snapshots[0].sum() > 0


def test_weights_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"weights must have shape \(2, 1, 12, 12\), got \(2, 2, "):
        explorer_after([3.0], lambda _: torch.ones(2, 2, L, L))


@pytest.mark.parametrize(
    "given, words",
    [
        ({"tokens": [[1, 2]]}, r"tokens must have shape \(L,\), got \(1, 2\)"),
        ({"tokens": [0.5]}, "tokens must be a tensor or sequence of whole numbers"),
        ({"num_heads": 0}, "num_heads must be 1 or more, got 0"),
        ({"steps": 40.0}, "steps must be an int, got float"),
    ],
)
def test_bad_arguments_are_named(given, words):
    good = {"tokens": [1, 2, 1], "num_layers": 2, "num_heads": 1, "steps": 40}
    assert training_explorer(**good).snapshots == {}
    with pytest.raises((TypeError, ValueError), match=words):
        training_explorer(**good | given)
