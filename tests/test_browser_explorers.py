"""The explorers as they are used: a laptop's window, a keyboard, a pointer, a screen reader."""

import re
from pathlib import Path

import nbformat
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

import tiny_language_model
from course_utils import explorers
from tools import jupyterlab_server

# A cell each. The training is a short one, which adds to its picture while the cell runs.
TRAINING = """import torch
from IPython.display import display
live = explorers.training_explorer([1, 2, 1, 2], num_layers=2, num_heads=2, steps=25, every=10)
display(live)
for step in range(25):
    live.add(2 - step / 20, lambda: torch.eye(4).roll(step // 10, 1).expand(2, 2, 4, 4))"""
# As many heads as the real one has, since the picture must have room for them.
LANGUAGE = (
    Path(tiny_language_model.__file__).read_text()
    + """
explorers.language_explorer(*tiny_language_model(30, 9, 3), TEXT)"""
)
OPENED = [name for name in explorers.__all__ if name.endswith("_explorer")]
CELLS = {name: f"explorers.{name}()" for name in OPENED} | {
    "training_explorer": TRAINING, "language_explorer": LANGUAGE,
    "similarity_explorer": "arrows = explorers.similarity_explorer()\narrows",
}  # fmt: skip
AGAIN = "live"  # the training, shown a second time
MOVE, TELL = "arrows.values = arrows.values | {'angle': 90}", "print(arrows.values)"
PICTURE = "img.widget-image, svg[role=img]"  # of the kernel, or drawn in the page


@pytest.fixture(scope="module")
def address(chromium, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    with jupyterlab_server.server(folder) as address:
        sources = ["from course_utils import explorers", *CELLS.values(), MOVE, TELL, AGAIN]
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        notebook = nbformat.v4.new_notebook(cells=cells)
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "python3"}
        nbformat.write(notebook, folder / "course" / "explorers.ipynb")
        yield address


@pytest.fixture(scope="module")
def page(chromium, address):
    """A page as wide and as high as a small laptop, with the file browser open.

    All explorers have been run on it.
    """
    page = jupyterlab_server.new_page(chromium, 1280, 720)
    jupyterlab_server.open_notebook(page, address, "explorers.ipynb")
    jupyterlab_server.run_all(page)
    assert jupyterlab_server.errors(page) == []
    wait_for_pictures(page)
    yield page
    page.close()


def open_explorers(page, address):
    jupyterlab_server.open_notebook(page, address, "explorers.ipynb")
    wait_for_pictures(page)


def wait_for_pictures(page):
    page.wait_for_function(
        """([picture, number]) => [...document.querySelectorAll(picture)]
            .filter(image => image.naturalWidth !== 0).length === number""",
        arg=[PICTURE, len(CELLS) + 1],
    )


def test_every_explorer_is_alive(page):
    assert page.get_by_role("slider").count() >= len(CELLS)
    assert page.locator(".jupyter-widgets-error-widget").count() == 0
    added = explorer(page, "training_explorer").get_by_role("status")
    added.filter(has_text="step 20").wait_for()  # what came while the cell ran


def explorer(page, name):
    """Return the output of an explorer's cell, scrolled to the top of the window."""
    output = page.locator(".jp-CodeCell").nth(1 + [*CELLS].index(name))
    output = output.locator(".jp-OutputArea-output").last
    output.evaluate("element => element.scrollIntoView({block: 'start'})")
    return output


def test_axe_core_finds_nothing_wrong_in_any_explorer(page):
    outputs = {"include": [[".jp-OutputArea-output"]], "exclude": []}
    options = {"resultTypes": ["violations", "passes"]}
    results = Axe().run(page, context=outputs, options=options).response
    told = [
        f"{rule['impact']} {rule['id']}: {node['html'][:200]}"
        for rule in results["violations"]
        for node in rule["nodes"]
    ]
    assert told == []
    looked_at = {rule["id"]: len(rule["nodes"]) for rule in results["passes"]}
    pictures = looked_at["image-alt"] + looked_at["svg-img-alt"]
    assert pictures >= len(CELLS)  # it did look


def test_each_tab_stop_of_an_explorer_has_a_name(page):
    for name in CELLS:
        output = explorer(page, name)
        stops = output.locator("input, select, textarea, button, [tabindex='0']")
        assert stops.count() > 0
        for role in ("slider", "spinbutton", "combobox", "checkbox", "textbox", "button"):
            every = output.get_by_role(role)
            for place in range(every.count()):
                assert every.nth(place).aria_snapshot().count('"') >= 2, (name, role)


@pytest.mark.parametrize("name", CELLS)
def test_picture_controls_and_words_are_in_view_together_on_a_laptop(page, name):
    output = explorer(page, name)
    view = page.locator(".jp-WindowedPanel-outer").bounding_box()
    picture = output.locator(PICTURE)
    words = output.get_by_role("status")
    for part in [picture, words, *output.locator("input, select").all()]:
        box = part.bounding_box()
        assert box["y"] >= view["y"] - 1 and box["x"] >= view["x"]
        assert box["y"] + box["height"] <= view["y"] + view["height"]
        assert box["x"] + box["width"] <= view["x"] + view["width"]
    assert picture.bounding_box()["width"] == own_size(picture)[0]  # not shrunk to fit


def own_size(picture):
    """Return how wide and high a picture is drawn, in its own pixels."""
    return picture.evaluate(
        """({viewBox: box, naturalWidth, naturalHeight}) =>
            box ? [box.baseVal.width, box.baseVal.height] : [naturalWidth, naturalHeight]"""
    )


def words(page, name):
    return explorer(page, name).get_by_role("status")


def press(output, across, down):
    """Click an explorer's picture at a share of its width and height."""
    picture = output.locator(PICTURE)
    size = picture.bounding_box()
    picture.click(position={"x": size["width"] * across, "y": size["height"] * down})


def test_the_tip_of_the_arrow_goes_where_it_is_dragged(page):
    output = explorer(page, "similarity_explorer")
    box = output.locator(PICTURE).bounding_box()
    middle = box["x"] + box["width"] * 0.52, box["y"] + box["height"] * 0.47
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0], middle[1] - 60, steps=3)
    page.mouse.move(middle[0], middle[1] + 120, steps=3)
    below = output.get_by_role("status").filter(has_text=", -")
    below.wait_for()
    page.mouse.move(middle[0], middle[1] - 120, steps=3)
    page.mouse.up()
    below.wait_for(state="detached")
    page.mouse.move(middle[0], middle[1] + 120, steps=3)  # let go: nothing moves any more
    page.wait_for_timeout(500)
    assert below.count() == 0


def run_cell(page, number):
    """Run one cell as a hand would, and return it."""
    cell = page.locator(".jp-CodeCell").nth(number)
    cell.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    jupyterlab_server.wait_until_run(page)
    return cell


def test_python_moves_what_lives_in_the_page_and_is_told_what_a_hand_moved(page):
    place = 1 + [*CELLS].index("similarity_explorer")
    output = run_cell(page, place).locator(".jp-OutputArea-output").last
    words = output.get_by_role("status")
    words.filter(has_text="cosine 0.50").wait_for()
    run_cell(page, 1 + len(CELLS))
    words.filter(has_text="found: at 90°").wait_for()
    assert output.get_by_role("slider", name="angle").input_value() == "90"
    press(output, 0.2, 0.7)
    assert "k = (-" in words.inner_text()
    angle = output.get_by_role("slider", name="angle").input_value()
    run_cell(page, 2 + len(CELLS)).get_by_text(f"{{'angle': {angle}, ").wait_for()


def test_a_cell_of_the_mask_is_toggled_where_it_is_clicked(page):
    output = explorer(page, "mask_explorer")
    press(output, 0.42, 0.2)
    toggled = output.get_by_role("status").filter(has_text="toggled pairs")
    toggled.wait_for()
    assert output.get_by_role("textbox", name="toggled pairs").input_value()
    press(output, 0.42, 0.2)
    toggled.wait_for(state="detached")


def test_a_head_is_pressed_knocked_out_by_key_and_another_text_is_read_on_enter(page):
    output = explorer(page, "language_explorer")
    words = output.get_by_role("status")
    # in the middle of the map: 0.08 to 0.32 of the width, 0.05 to 0.835 of the height
    press(output, 0.2, 0.05 + 0.785 * 12.5 / 30)
    words.filter(has_text="head 12.4 looks").wait_for()
    output.get_by_role("checkbox", name="knock this head out").focus()
    page.keyboard.press("Space")
    words.filter(has_text="without head 12.4 (1 of 270)").wait_for()
    out = output.get_by_role("textbox", name="heads out")
    assert out.input_value() == "12.4"
    text = output.get_by_role("textbox", name="text")
    text.fill("the dog saw the cat")
    page.wait_for_timeout(500)
    assert words.filter(has_text="looks from ' cat' 7").count() == 1  # not before it is done
    text.press("Enter")
    words.filter(has_text="looks from ' cat' most").wait_for()
    out.fill("")
    out.press("Enter")
    words.filter(has_text="with all 270 heads").wait_for()
    assert not output.get_by_role("checkbox", name="knock this head out").is_checked()
    output.get_by_role("slider", name="layer").focus()
    page.keyboard.press("ArrowRight")
    words.filter(has_text="head 13.4 looks").wait_for()


def test_a_tile_pressed_goes_to_its_step_and_keys_turn_the_ring(page):
    output = explorer(page, "ring_explorer")
    words = output.get_by_role("status")
    # the middle of row 7, column 0 of 8 of the map: 264 of 560 pixels from 54, of 400 from 50
    press(output, (54 + 16.5) / 560, (50 + 264 - 16.5) / 400)
    words.filter(has_text="step 7 of 0 to 7").wait_for()
    output.get_by_role("slider", name="ranks").focus()
    page.keyboard.press("ArrowLeft")
    words.filter(has_text="step 6 of 0 to 6").wait_for()
    box = output.get_by_role("spinbutton", name="step")
    box.fill("7")  # more than there are: the step is where it was, and the box says so
    box.press("Enter")
    assert (box.input_value(), box.get_attribute("max")) == ("6", "6")
    output.get_by_role("checkbox", name="zigzag").focus()
    page.keyboard.press("Space")
    words.filter(has_text="nobody waits").wait_for()


def shown_weights(output):
    """Return the pixels of all heads of a training."""
    return output.locator("canvas").evaluate_all(
        """all => all.map(each => [...each.getContext("2d")
            .getImageData(0, 0, each.width, each.height).data])"""
    )


def steps_drawn(output):
    """Return how many losses the curve of a training goes through."""
    return len(re.findall("[ML]", output.locator("path[stroke='#1f77b4']").get_attribute("d")))


@pytest.mark.parametrize(
    "name, role, label, keys",  # there and back
    [("sentence_explorer", "combobox", "last word", ["ArrowDown", "ArrowUp"]),
     ("similarity_explorer", "slider", "angle", ["ArrowUp", "ArrowDown"]),
     ("language_explorer", "slider", "layer", ["ArrowUp", "ArrowDown"])],
)  # fmt: skip
def test_arrow_keys_move_a_control_and_are_no_shortcuts_of_jupyterlab(
    page, name, role, label, keys
):
    control = explorer(page, name).get_by_role(role, name=label)
    control.focus()
    control.evaluate(
        """control => {
            window.came = [];
            control.addEventListener("keydown", (event) => came.push(event));
        }"""
    )
    for key in keys:
        page.keyboard.press(key)
    came = page.evaluate("came.map(event => [event.key, event.defaultPrevented])")
    assert came == [[key, False] for key in keys]


def test_a_training_is_in_every_view(page):
    outputs = [explorer(page, "training_explorer")]
    outputs.append(page.locator(".jp-CodeCell").last.locator(".jp-OutputArea-output").last)
    for output in outputs:
        output.get_by_role("status").filter(has_text="step 20: loss 1.00").wait_for()
        assert steps_drawn(output) == 25  # also those after the last picture
    first, second = map(shown_weights, outputs)
    assert first == second and len(first) == 4 and any(first[0])
    outputs[0].get_by_role("slider", name="step").focus()
    page.keyboard.press("ArrowLeft")
    for output in outputs:  # both show one state
        output.get_by_role("status").filter(has_text="step 10: loss 1.50").wait_for()
    assert shown_weights(outputs[1]) == shown_weights(outputs[0]) != first
    page.keyboard.press("ArrowRight")  # as it was for other tests
    outputs[0].get_by_role("status").filter(has_text="step 20: loss 1.00").wait_for()


def test_after_running_a_cell_shift_tab_reaches_its_controls_and_keys_move_them(page):
    """As lesson 00 says: the last control first, and all keys of a slider are the slider's."""
    explorer(page, "similarity_explorer")
    cell = run_cell(page, 1 + [*CELLS].index("similarity_explorer"))
    output = cell.locator(".jp-OutputArea-output").last
    output.get_by_role("status").filter(has_text="k = ").wait_for()
    page.keyboard.press("Shift+Tab")
    length = output.get_by_role("spinbutton", name="length of k")
    assert page.evaluate("document.activeElement.ariaLabel") == "length of k"
    for key, value in [("ArrowRight", "1.6"), ("ArrowUp", "1.7"), ("ArrowLeft", "1.6"),
                       ("ArrowDown", "1.5"), ("End", "3"), ("Home", "0")]:  # fmt: skip
        page.keyboard.press(key)
        length.and_(page.locator("input")).evaluate(
            """(box, value) => new Promise(done => {
                const look = () => box.value === value ? done() : setTimeout(look, 20);
                look();
            })""",
            value,
        )
    output.get_by_role("status").filter(has_text="cosine none").wait_for()
    page.keyboard.press("Shift+Tab")
    assert length.evaluate("box => box === document.activeElement")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.ariaLabel") == "angle of k from q (degrees)"


@pytest.fixture
def opened_later(page, address):
    """Return a function that loads the page anew, of 1280×720 at 200%; the kernel runs on."""
    session = page.context.new_cdp_session(page)

    def open_later():
        jupyterlab_server.save(page)
        twice = {"width": 640, "height": 360, "deviceScaleFactor": 2, "mobile": False}
        session.send("Emulation.setDeviceMetricsOverride", twice)
        open_explorers(page, address)
        assert page.evaluate("[innerWidth, devicePixelRatio]") == [640, 2]

    yield open_later
    session.detach()  # for other tests the window is as it was
    open_explorers(page, address)


def test_a_page_opened_later_shows_all_as_it_was_left_and_at_twice_the_size_whole_and_sharp(
    page, opened_later
):
    explorer(page, "training_explorer").get_by_role("spinbutton", name="step").fill("10")
    page.keyboard.press("Enter")
    of_kernel = page.locator("img.widget-image")
    own_pixels = of_kernel.evaluate_all("all => all.map(image => image.naturalWidth)")
    opened_later()
    output = explorer(page, "training_explorer")
    output.get_by_role("status").filter(has_text="step 10: loss 1.50").wait_for()
    before = shown_weights(output)
    assert len(before) == 4 and any(before[0])
    assert steps_drawn(output) == 25
    output.get_by_role("slider", name="step").focus()
    page.keyboard.press("End")
    output.get_by_role("status").filter(has_text="step 20: loss 1.00").wait_for()
    # one step on the diagonal is one cell further right
    heads = [np.reshape(head, (4, 4, 4)) for head in before]  # rows, columns, colours
    assert shown_weights(output) == [np.roll(head, 1, axis=1).ravel().tolist() for head in heads]

    for name in CELLS:
        picture = explorer(page, name).locator(PICTURE)
        shown, (own_width, own_height) = picture.bounding_box(), own_size(picture)
        width, height = shown["width"], shown["height"]
        assert 0 < width <= own_width
        assert height / width == pytest.approx(own_height / own_width, rel=0.02)
        around = picture.evaluate(
            "({viewBox, parentElement: parent, clientHeight}) => "
            "viewBox ? clientHeight : parent.clientHeight"
        )
        assert around == pytest.approx(height, abs=8)
    assert own_pixels  # what lives in the page is sharp at any size
    page.wait_for_function(  # until the kernel has drawn as fine as the screen is
        "before => before.every((own, n) => "
        "document.querySelectorAll('img.widget-image')[n].naturalWidth === 2 * own)",
        arg=own_pixels,
    )
