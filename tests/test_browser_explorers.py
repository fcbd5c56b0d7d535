"""Explorers in JupyterLab: keys, clicks, the kernel, and what is left when a page opens again."""

import re
from pathlib import Path

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

import tiny_language_model
from course_utils import explorers
from tools import jupyterlab_server

# A short training run, which adds to its picture while the cell runs.
TRAINING = """import torch
from IPython.display import display
live = explorers.training_explorer([1, 2, 1, 2], num_layers=2, num_heads=2, steps=25, every=10)
display(live)
for step in range(25):
    live.add(2 - step / 20, lambda: torch.eye(4).roll(step // 10, 1).expand(2, 2, 4, 4))"""
# As many heads as the real model has, since the picture must have room for them.
LANGUAGE = f"""{Path(tiny_language_model.__file__).read_text()}
explorers.language_explorer(*tiny_language_model(30, 9, 3), TEXT)"""
CELLS = {name: f"explorers.{name}()" for name in explorers.__all__ if name.endswith("_explorer")}
CELLS |= {"training_explorer": TRAINING, "language_explorer": LANGUAGE}
CELLS["next_token_explorer"] = LANGUAGE.replace("language_explorer", "next_token_explorer")
CELLS["similarity_explorer"] = "arrows = explorers.similarity_explorer()\narrows"
CELLS |= {"set": "arrows.values = arrows.values | {'angle': 90}", "get": "print(arrows.values)"}
CELLS["again"] = "live"
OPENED = [name for name in CELLS if name.endswith("_explorer")]
PICTURE = "img.widget-image, svg[role=img]"  # drawn by the kernel, or in the page
NOTEBOOK = "window.jupyterapp.shell.currentWidget.content"
expect.set_options(timeout=jupyterlab_server.ELEMENT_PATIENCE)


@pytest.fixture(scope="module")
def page(chromium, lab):
    """A small laptop's window with the file browser open, in which all explorers were run."""
    jupyterlab_server.configure(lab.folder)
    sources = ["from course_utils import explorers", *CELLS.values()]
    notebook = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, sources)])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "python3"}
    nbformat.write(notebook, lab.folder / "course" / "explorers.ipynb")
    page = jupyterlab_server.new_page(chromium, 1280, 720)
    jupyterlab_server.open_notebook(page, lab.address, "explorers.ipynb")
    jupyterlab_server.run_all(page)
    assert jupyterlab_server.errors(page) == []
    wait_for_pictures(page)
    yield page
    jupyterlab_server.close_all(page)
    page.close()


def wait_for_pictures(page):
    page.wait_for_function(
        """([picture, number]) => [...document.querySelectorAll(picture)]
            .filter(image => image.naturalWidth !== 0).length === number""",
        arg=[PICTURE, len(OPENED) + 1],
    )


def output_of(page, name):
    """Return the output of a cell, scrolled to the top of the window."""
    page.mouse.wheel(0, 1)  # what was run last need not stay in view
    cell = page.locator(".jp-CodeCell").nth(1 + [*CELLS].index(name))
    output = cell.locator(".jp-OutputArea-output").last
    output.evaluate("element => element.scrollIntoView({block: 'start'})")
    return output


def run_cell(page, name):
    """Run one cell by its keys, and return its output."""
    cell = page.locator(".jp-CodeCell").nth(1 + [*CELLS].index(name))
    cell.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    jupyterlab_server.wait_until_run(page)
    return cell.locator(".jp-OutputArea-output").last


def click(output, across, down):
    """Click an explorer's picture at a fraction of its width and height."""
    picture = output.locator(PICTURE)
    box = picture.bounding_box()
    picture.click(position={"x": box["width"] * across, "y": box["height"] * down})


def test_every_explorer_is_alive_and_axe_finds_nothing_wrong(page):
    assert page.locator(".jupyter-widgets-error-widget").count() == 0
    outputs = {"include": [[".jp-OutputArea-output"]], "exclude": []}
    options = {"resultTypes": ["violations", "passes"]}
    results = Axe().run(page, context=outputs, options=options).response
    assert results["violations"] == []
    checked = {rule["id"]: len(rule["nodes"]) for rule in results["passes"]}
    assert checked["image-alt"] + checked["svg-img-alt"] >= len(OPENED)  # it did look


@pytest.mark.parametrize("name", OPENED)
def test_picture_controls_and_words_are_in_view_together_on_a_laptop(page, name):
    output = output_of(page, name)
    view = page.locator(".jp-WindowedPanel-outer").bounding_box()
    picture, words = output.locator(PICTURE), output.get_by_role("status")
    for part in [picture, words, *output.locator("input, select").all()]:
        box = part.bounding_box()
        assert box["y"] >= view["y"] - 1 and box["x"] >= view["x"]
        assert box["y"] + box["height"] <= view["y"] + view["height"]
        assert box["x"] + box["width"] <= view["x"] + view["width"]
    width = "i => i.viewBox ? i.viewBox.baseVal.width : i.naturalWidth"
    assert picture.bounding_box()["width"] == picture.evaluate(width)  # not shrunk to fit


def pointed_at(output, kind):
    """Give the focus to a control, or to the picture by a click, as a user does; return it."""
    part = output.locator(PICTURE if kind == "picture" else f"{kind} >> visible=true").first
    (part.focus if kind == "select" else part.click)()  # a click would open its list
    return part


@pytest.mark.parametrize(
    "name, kind",
    [
        ("sentence_explorer", "select"),
        ("sentence_explorer", "input[type=range]"),
        ("sentence_explorer", "input[type=number]"),
        ("similarity_explorer", "picture"),
        ("mask_explorer", "input[type=text]"),
        ("language_explorer", "picture"),
        ("language_explorer", "input[type=number]"),
        ("language_explorer", "input[type=text]"),
        ("language_explorer", "select"),
    ],
)
def test_enter_runs_the_cell_below_from_every_control_and_escape_leaves_it(page, name, kind):
    output, below = output_of(page, name), 2 + [*CELLS].index(name)
    number = page.locator(".jp-CodeCell").nth(below).locator(".jp-InputPrompt").first
    cells = page.locator(".jp-CodeCell").count()
    for key, cell in [("Shift+Enter", below + 1), ("Control+Enter", below), ("Escape", below)]:
        control, before = pointed_at(output, kind), number.inner_text()
        control.evaluate("element => { element.isTheSame = true }")
        page.keyboard.press(key)
        if key != "Escape":
            expect(number).not_to_have_text(before)
        jupyterlab_server.wait_until_run(page)
        state = [page.evaluate(f"{NOTEBOOK}.{part}") for part in ("activeCellIndex", "mode")]
        assert state == [cell, "command"], key
        assert control.evaluate("element => element.isTheSame"), "the explorer was drawn again"
    pointed_at(output, kind)
    page.keyboard.press("Meta+Enter")  # which runs the cell only on a Mac
    page.wait_for_function(f"{NOTEBOOK}.activeCellIndex === {below}")
    page.keyboard.press("Escape")
    pointed_at(output, kind)
    page.keyboard.press("Alt+Enter")  # which adds a cell as well
    page.wait_for_function(f"{NOTEBOOK}.mode === 'edit'")
    assert page.evaluate(f"{NOTEBOOK}.activeCellIndex") == below + 1
    jupyterlab_server.execute(page, "notebook:delete-cell")
    expect(page.locator(".jp-CodeCell")).to_have_count(cells)
    jupyterlab_server.wait_until_run(page)


def test_control_s_in_an_explorer_saves_the_notebook(page):
    pointed_at(output_of(page, "sentence_explorer"), "input[type=range]")
    with page.expect_response(
        lambda response: response.request.method == "PUT" and "/api/contents/" in response.url,
        timeout=30_000,
    ):
        page.keyboard.press("Control+S")


@pytest.mark.parametrize("name", ["sentence_explorer", "language_explorer"])
@pytest.mark.parametrize("kind", ["select", "input[type=range]", "input[type=number]", "picture"])
def test_keys_in_an_explorer_are_no_shortcuts_of_jupyterlab(page, name, kind):
    output, cells = output_of(page, name), page.locator(".jp-Cell").count()
    pointed_at(output, kind)
    active = page.evaluate(f"{NOTEBOOK}.activeCellIndex")
    # they would delete and add cells, restart the kernel, and go to other cells
    for key in ["ArrowDown", *"ddabmyrx00", "ArrowUp", "ArrowUp"]:
        page.keyboard.press(key)
    page.wait_for_timeout(200)
    assert page.evaluate(f"{NOTEBOOK}.activeCellIndex") == active
    assert page.locator(".jp-Cell").count() == cells
    assert page.get_by_role("dialog").count() == 0
    page.keyboard.press("Escape")


def test_a_finger_that_draws_does_not_scroll_the_page(page):
    picture = output_of(page, "similarity_explorer").locator(PICTURE)
    box = picture.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    finger = page.context.new_cdp_session(page)
    for n, kind in enumerate(["Start", *["Move"] * 8, "End"]):
        points = [] if kind == "End" else [{"x": x, "y": y - 10 * n}]
        finger.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})
    assert picture.bounding_box() == box


@pytest.mark.parametrize("name", ["sentence_explorer", "language_explorer"])
def test_an_explorer_follows_a_slider_while_it_is_held(page, name):
    output = output_of(page, name)
    words, slider = output.get_by_role("status"), output.get_by_role("slider").first
    before, box = words.inner_text(), slider.bounding_box()
    slider.hover(position={"x": 4, "y": box["height"] / 2})
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + box["height"] / 2, steps=4)
    expect(words).not_to_have_text(before)
    page.mouse.up()


def test_python_and_the_user_move_the_same_explorer(page):
    output = run_cell(page, "similarity_explorer")
    angle = output.get_by_role("slider", name="angle")
    expect(angle).to_have_value("60")
    run_cell(page, "set")
    expect(angle).to_have_value("90")
    click(output, 0.2, 0.7)  # the tip of the arrow goes there
    expect(angle).not_to_have_value("90")
    values = run_cell(page, "get").inner_text()
    assert f"'angle': {angle.input_value()}" in values


def test_a_head_is_clicked_and_ablated_by_keys_and_a_text_is_read_on_enter(page):
    output = output_of(page, "language_explorer")
    words = output.get_by_role("status")
    # head 12.4: the map is from 0.075 to 0.295 of the width and from 0.042 to 0.854 of the height
    click(output, 0.185, 0.042 + 0.812 * 12.5 / 30)
    words.filter(has_text="head 12.4").wait_for()
    output.get_by_role("checkbox").focus()
    page.keyboard.press("Space")
    words.filter(has_text="1 of 270").wait_for()
    expect(output.get_by_role("textbox", name="ablated")).to_have_value("12.4")
    text, before = output.get_by_role("textbox", name="text"), words.inner_text()
    text.fill("the dog saw the cat")
    page.wait_for_timeout(500)
    assert words.inner_text() == before  # it is not read at each letter
    text.press("Enter")
    expect(words).not_to_have_text(before)
    output.get_by_role("slider", name="layer").focus()
    page.keyboard.press("ArrowRight")
    words.filter(has_text="head 13.4").wait_for()
    click(output, 0.185, 0.042 + 0.812 * 12.5 / 30)  # where it was clicked before
    words.filter(has_text="head 12.4").wait_for()


def heads_drawn(output):
    """Return the pixels of all heads of a training run."""
    return output.locator("canvas").evaluate_all(
        """all => all.map(canvas => [...canvas.getContext("2d")
            .getImageData(0, 0, canvas.width, canvas.height).data])"""
    )


def test_a_training_run_is_in_every_view_and_survives_a_reload_on_a_sharper_screen(page, lab):
    outputs = [output_of(page, name) for name in ("training_explorer", "again")]
    for output in outputs:
        output.get_by_role("status").filter(has_text="step 20: loss 1.00").wait_for()
        curve = output.locator("path[stroke-width='1.5']").get_attribute("d")
        assert len(re.findall("[ML]", curve)) == 25  # the steps after the last picture, too
    last = heads_drawn(outputs[0])
    assert len(last) == 4 and any(last[0]) and heads_drawn(outputs[1]) == last
    outputs[0].get_by_role("slider", name="step").focus()
    page.keyboard.press("ArrowLeft")
    for output in outputs:  # both show one state
        output.get_by_role("status").filter(has_text="step 10: loss 1.50").wait_for()
    earlier = heads_drawn(outputs[0])
    assert heads_drawn(outputs[1]) == earlier != last

    kernel_pictures = page.locator("img.widget-image")
    widths = [image.evaluate("i => i.naturalWidth") for image in kernel_pictures.all()]
    jupyterlab_server.save(page)
    session = page.context.new_cdp_session(page)
    screen = {"width": 640, "height": 360, "deviceScaleFactor": 2, "mobile": False}
    session.send("Emulation.setDeviceMetricsOverride", screen)
    jupyterlab_server.open_notebook(page, lab.address, "explorers.ipynb")
    wait_for_pictures(page)
    output = output_of(page, "training_explorer")
    output.get_by_role("status").filter(has_text="step 10: loss 1.50").wait_for()
    assert heads_drawn(output) == earlier
    output.get_by_role("slider", name="step").focus()
    page.keyboard.press("End")
    output.get_by_role("status").filter(has_text="step 20: loss 1.00").wait_for()
    assert heads_drawn(output) == last and widths
    page.wait_for_function(  # until the kernel has drawn in the resolution of the screen
        """before => before.every((width, n) =>
            document.querySelectorAll('img.widget-image')[n].naturalWidth === 2 * width)""",
        arg=widths,
    )
    session.detach()
