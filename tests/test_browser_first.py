"""The first minute: what is on the screen when the course opens, and what the first keys do."""

import re

import pytest
from playwright.sync_api import expect

from tools import jupyterlab_server

FOLDERS = ["notebooks", "exercises", "solutions"]


@pytest.fixture(scope="module")
def page(chromium, tmp_path_factory):
    """The course as `make lab` opens it with JupyterLab's default settings."""
    folder = tmp_path_factory.mktemp("lab")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jupyterlab_server, "SETTINGS", {})
        with jupyterlab_server.server(folder) as address:
            for path in jupyterlab_server.ROOT.glob("[!.]*"):
                if path.name not in FOLDERS:  # those are there
                    (folder / "course" / path.name).touch()
            page = jupyterlab_server.new_page(chromium, 1280, 720)
            page.goto(f"{address}/?token={jupyterlab_server.TOKEN}")
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
    output.get_by_role("combobox").select_option("old")
    words.filter(has_text=re.compile("hen.* 0.38.* road.* 0.38")).wait_for()
    output.get_by_role("spinbutton").fill("0")
    page.keyboard.press("Enter")
    words.filter(has_text="0.10").wait_for()
    assert jupyterlab_server.errors(page) == []
