"""The first minute: what is on the screen when the course opens, and what the first keys do."""

import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from playwright.sync_api import expect

from course_utils.course_folder import FOLDERS
from tools import jupyterlab_server

# Between long texts: a picture, a question, its result, explorers, and a training run that shows
# something late, when the cell's output would be out of view again, and lasts.
CELLS = [
    """import torch
from course_utils import explorers, heatmap, predict_first, show
show(heatmap(torch.eye(9)))""",
    "ask = predict_first('Which?', ['a', 'b'])",
    "ask.compare('a')",
    "explorers.similarity_explorer()",
    "explorers.mask_explorer()",
    """import time
time.sleep(3.5)
live = explorers.training_explorer([1, 2, 1, 2], num_layers=2, num_heads=2, steps=20, every=10)
display(live)
for step in range(20):
    time.sleep(0.05)
    live.add(2 - step / 20, lambda: torch.eye(4).expand(2, 2, 4, 4))""",
]


@pytest.fixture(scope="module")
def page(chromium, lab):
    """The course as `make lab` opens it with JupyterLab's default settings."""
    jupyterlab_server.configure(lab.folder, {})
    for path in jupyterlab_server.ROOT.glob("[!.]*"):
        if path.name not in FOLDERS:  # those are there
            (lab.folder / "course" / path.name).touch()
    notebook, text = new_notebook(), "\n\n".join(["A text."] * 9)
    for source in CELLS:
        notebook.cells += [new_code_cell(source), new_markdown_cell(text)]
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "python3"}
    nbformat.write(notebook, lab.folder / "course" / "view.ipynb")
    page = jupyterlab_server.new_page(chromium, 1280, 720)
    page.goto(f"{lab.address}/?token={jupyterlab_server.TOKEN}")
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    page.wait_for_load_state("networkidle")
    yield page
    page.close()


def test_the_course_opens_on_lesson_00_and_its_picture_with_nothing_in_the_way(page):
    question = page.locator(".jp-RenderedMarkdown").first.locator("strong").first
    assert question.inner_text().endswith("?")
    expect(question).to_be_in_viewport(ratio=1)
    picture = page.locator(".jp-OutputArea-output img").first
    expect(picture).to_be_in_viewport(ratio=1)
    assert picture.evaluate("image => image.naturalWidth") > 400
    assert page.get_by_role("slider").count() == 0  # nothing was run
    assert page.get_by_role("alert").count() == page.get_by_role("dialog").count() == 0
    assert page.get_by_text("Jupyter news").count() == 0
    files = page.locator(".jp-DirListing-item")
    for name in ["README.md", *FOLDERS]:
        expect(files.get_by_text(name, exact=True)).to_be_in_viewport(ratio=1)


def test_two_keys_bring_its_picture_to_life(page):
    output = page.locator(".jp-OutputArea-output").first
    words = output.get_by_role("status")
    page.keyboard.press("Shift+Enter")  # the text
    page.keyboard.press("Shift+Enter")  # the cell below
    words.filter(has_text=re.compile("hen.* 0.69")).wait_for()
    picture = output.locator("svg[role=img]")
    before = picture.inner_html()
    expect(picture).to_be_in_viewport(ratio=1)
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowLeft")
    words.filter(has_text=re.compile("hen.* 0.58")).wait_for()
    assert picture.inner_html() != before
    assert jupyterlab_server.errors(page) == []


@pytest.mark.parametrize("run", ["Shift+Enter", "the toolbar's button"])
def test_what_was_just_run_is_in_view_with_its_controls(page, run):
    """Also a training run, while it trains."""
    button = page.locator(".jp-NotebookPanel:visible [data-command^='notebook:run-cell']").first
    ways = [button.click, lambda: button.press("Enter"), lambda: button.press("Space")]
    if run == "Shift+Enter":
        ways = [lambda: page.keyboard.press(run)]
    jupyterlab_server.open_beside(page, "view.ipynb")
    for number in range(2 * len(CELLS)):
        ways[number % len(ways)]()
        cell = page.locator(".jp-Notebook:visible .jp-Cell").nth(number)
        output = cell.locator(".jp-OutputArea")
        source = "" if number % 2 else CELLS[number // 2]
        if not source or "compare" in source:
            jupyterlab_server.wait_until_run(page)
            continue
        output.locator("img, [role=status]").first.wait_for()
        page.wait_for_timeout(700)  # until JupyterLab has scrolled
        assert_in_view(page, output)
        if "live" in source and "button" in run:  # whoever scrolls away is left there
            page.locator(".jp-WindowedPanel-outer:visible").hover()
            page.mouse.wheel(0, -9999)
            jupyterlab_server.wait_until_run(page)
            expect(output).not_to_be_in_viewport()
            continue
        jupyterlab_server.wait_until_run(page)
        assert_in_view(page, output)
    assert jupyterlab_server.errors(page) == []
    jupyterlab_server.close_all(page)


def assert_in_view(page, output):
    panel = page.locator(".jp-WindowedPanel-outer:visible").bounding_box()
    box = output.bounding_box()
    assert panel["y"] <= box["y"] + 1
    assert box["y"] + box["height"] <= panel["y"] + panel["height"] + 1
