"""The first minute: what is on the screen when the course opens, and what the first keys do."""

import pytest

from tools import jupyterlab_server

WIDTH, HEIGHT = 1280, 720
FOLDERS = ["notebooks", "exercises", "solutions"]


@pytest.fixture(scope="module")
def page(chromium, tmp_path_factory):
    """The course as `make lab` opens it for somebody who has set nothing in JupyterLab."""
    folder = tmp_path_factory.mktemp("lab")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jupyterlab_server, "SETTINGS", {})
        with jupyterlab_server.server(folder) as address:
            for path in jupyterlab_server.ROOT.glob("[!.]*"):
                if path.name not in FOLDERS:  # those are there
                    (folder / "course" / path.name).touch()
            page = jupyterlab_server.new_page(chromium, WIDTH, HEIGHT)
            page.goto(f"{address}/?token={jupyterlab_server.TOKEN}")
            page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
            page.wait_for_load_state("networkidle")
            yield page
            page.close()


def is_on_the_screen(located):
    """Say whether all of an element is in view, none of it under another."""
    box = located.bounding_box()
    left, top = box["x"], box["y"]
    right, bottom = left + box["width"], top + box["height"]
    inside = 0 <= left and 0 <= top and right <= WIDTH and bottom <= HEIGHT
    return inside and located.evaluate(
        """(element, corners) => corners.every(([x, y]) => {
               const seen = document.elementFromPoint(x, y);
               return element.contains(seen) || seen.contains(element) })""",
        [[x, y] for x in (left + 1, right - 1) for y in (top + 1, bottom - 1)],
    )


def test_the_course_opens_on_a_question_and_its_picture_and_two_keys_bring_it_to_life(page):
    assert page.get_by_role("heading", name="00 · Start here: why attention?").count() == 1
    text = page.locator(".jp-RenderedMarkdown").first
    assert is_on_the_screen(text.get_by_text("How does a program find out what “it” is?"))
    picture = page.locator(".jp-OutputArea-output img").first
    assert is_on_the_screen(picture)
    assert picture.evaluate("image => image.naturalWidth") > 400
    assert page.get_by_role("slider").count() == 0  # nothing was run

    # The keys that it names move it.
    words = page.get_by_role("status").filter(has_text="it was")
    page.keyboard.press("Shift+Enter")  # the text
    page.keyboard.press("Shift+Enter")  # the cell below
    words.filter(has_text="looks most at hen 0.69").wait_for()
    picture = page.locator(".jp-OutputArea-output svg[role=img]")
    before = picture.inner_html()
    assert is_on_the_screen(picture)
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowLeft")
    words.filter(has_text="hen 0.58").wait_for()
    assert picture.inner_html() != before
    page.get_by_role("combobox", name="last word").select_option("old")
    words.filter(has_text="undecided, it looks most at hen 0.38 and road 0.38").wait_for()
    page.get_by_role("spinbutton", name="how sharply “it” asks").fill("0")
    page.keyboard.press("Enter")
    words.filter(has_text="every word weighs 0.10").wait_for()
    assert jupyterlab_server.errors(page) == []


def test_readme_lessons_and_exercises_are_in_view(page):
    files = page.locator(".jp-DirListing-item")
    for name in ["README.md", *FOLDERS]:
        assert is_on_the_screen(files.get_by_text(name, exact=True)), name


def test_nothing_pops_up(page):
    assert page.get_by_role("alert").count() == page.get_by_role("dialog").count() == 0
    assert page.get_by_text("Jupyter news").count() == 0
