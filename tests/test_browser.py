"""The course as a learner meets it: a real JupyterLab, a real browser, a real kernel."""

import json
import re

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from sampling import some
from tools import jupyterlab_server
from tools.jupyterlab_server import ROOT

LESSONS = sorted(f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb"))
FIRST = "notebooks/01_dot_product_similarity.ipynb"
EXERCISES = "exercises/01_exercises_dot_product_similarity.ipynb"
OUTPUT = ".jp-OutputArea-output"
expect.set_options(timeout=jupyterlab_server.ELEMENT_PATIENCE)


@pytest.fixture(scope="module")
def jupyterlab(chromium, lab):
    """One page for all tests here, because JupyterLab takes long to load."""
    jupyterlab_server.configure(lab.folder)
    page = jupyterlab_server.new_page(chromium, 1300, 1000)
    jupyterlab_server.open_alone(page, lab.address)
    yield page
    page.close()


@pytest.fixture
def page(jupyterlab):
    yield jupyterlab
    jupyterlab_server.close_all(jupyterlab)


def open_and_save(page, lab, path):
    """Open a notebook, and assert that saving it changes no byte."""
    jupyterlab_server.open_beside(page, path)
    jupyterlab_server.save(page)
    assert (lab.folder / "course" / path).read_bytes() == (ROOT / path).read_bytes()


def run_cell(page):
    """Run the cell that has the focus by its keys, which moves the focus to the next one."""
    page.keyboard.press("Shift+Enter")
    jupyterlab_server.wait_until_run(page)


def replace_cell(page, text, source):
    """Replace the source of the first code cell that contains ``text``."""
    page.locator(".jp-CodeCell .cm-content", has_text=text).first.click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(source)


def test_opening_a_lesson_changes_nothing_and_shows_its_pictures_sharp_and_whole(page, lab):
    """EVERY_CASE=1 opens all lessons; this, two."""
    for path in some(LESSONS, 2):
        open_and_save(page, lab, path)
        for image in page.locator(".jp-RenderedImage img").all():
            pixels, width, column = image.evaluate(
                "i => [i.naturalWidth, i.clientWidth, i.parentElement.clientWidth]"
            )
            assert 100 < width <= column and pixels >= 2 * width, path
        jupyterlab_server.close_all(page)


def test_a_lesson_is_read_predicted_run_and_opened_again(page, lab):
    jupyterlab_server.open_beside(page, FIRST)
    notebook, outputs = page.locator(".jp-Notebook"), page.locator(OUTPUT)
    sources = [
        c.source for c in nbformat.read(ROOT / FIRST, 4).cells if "predict_first(" in c.source
    ]
    question = re.search(r'predict_first\(\s*"(.*?)"', sources[0])[1]

    # As it opens, the question is a text, no result is visible, and descriptions are folded.
    assert question in outputs.filter(has_text=question).first.inner_text()
    assert set(page.locator(".jp-OutputPlaceholder").all_inner_texts()) == {""}
    assert "q · long" not in notebook.aria_snapshot()
    words = page.locator("details").first
    words.locator("small").wait_for(state="hidden")
    words.locator("summary").click()
    words.locator("small").wait_for(state="visible")
    assert words.locator("small").inner_text() in notebook.aria_snapshot()

    # Answer by keys: from the next cell back to the question's first option.
    page.locator(".jp-CodeCell .cm-content").first.click()
    questions, statuses = page.locator("fieldset"), outputs.filter(has=page.locator("fieldset"))
    while questions.count() == 0:
        run_cell(page)
    first = questions.get_by_role("radio").first
    status = statuses.get_by_role("status").first
    before = status.inner_text()
    page.keyboard.press("Shift+Tab")
    expect(first).to_be_focused()
    page.keyboard.press("Space")
    expect(first).to_be_checked()
    expect(status).not_to_have_text(before)
    expect(status).to_contain_text("Shift+Enter")
    run_cell(page)  # not the question's cell again, where the focus is
    expect(first).to_be_disabled()

    # An answer to another question leaves this one as it is.
    while questions.count() == 1:
        run_cell(page)
    questions.nth(1).get_by_role("radio").first.check()
    expect(statuses.get_by_role("status").nth(1)).not_to_have_text(before)
    expect(first).to_be_checked()
    answers = json.loads((lab.folder / "course" / ".predictions.json").read_text())
    assert "near" in answers[question].values() and len(answers) == 2
    run_cell(page)  # from where a click has put the focus
    expect(questions.nth(1).get_by_role("radio").first).to_be_disabled()

    # So is a number.
    field = questions.get_by_role("textbox").first
    while field.count() == 0:
        run_cell(page)
    page.keyboard.press("Shift+Tab")
    expect(field).to_be_focused()
    page.keyboard.type("20")
    page.keyboard.press("Enter")  # as one does
    run_cell(page)
    expect(field).to_be_disabled()
    assert field.input_value() == "20"

    # In another kernel the answers are still there, and no others.
    jupyterlab_server.close_all(page)
    jupyterlab_server.open_beside(page, FIRST)
    assert questions.count() == 0
    jupyterlab_server.run_all(page)
    assert jupyterlab_server.errors(page) == []
    expect(first).to_be_checked()
    expect(first).to_be_disabled()
    assert page.locator("input[type=radio]:checked").count() == 2
    outputs.filter(has_text=re.compile(rf"\b3 of {len(sources)}\b")).wait_for()
    widgets = {"include": [[f"{OUTPUT}:has(input)"]], "exclude": []}
    axe = Axe().run(page, context=widgets, options={"resultTypes": ["violations", "passes"]})
    assert axe.response["violations"] == []
    labeled = [len(rule["nodes"]) for rule in axe.response["passes"] if rule["id"] == "label"]
    assert labeled[0] > 10  # it did look

    # The link to a surprise leads back to its question.
    page.get_by_role("link", name=question).click()
    page.wait_for_function(
        """on => { const {top, bottom} = on.getBoundingClientRect();
                  return top >= 0 && bottom <= innerHeight; }""",
        arg=first.element_handle(),
    )


def test_an_exercise_is_wrong_then_right_and_saved_and_leads_on(page, lab):
    open_and_save(page, lab, EXERCISES)
    jupyterlab_server.run_all(page)
    assert jupyterlab_server.errors(page) == []
    outputs = page.locator(OUTPUT)
    outputs.filter(has_text="⏳ 1.1 dot").first.wait_for()

    replace_cell(page, "def dot(a, b)", "def dot(a, b):\n    return a * b")
    run_cell(page)
    run_cell(page)  # its check
    outputs.filter(has_text="❌ 1.1 dot").first.wait_for()

    answer = "def dot(a, b):\n    return (a * b).sum()"
    replace_cell(page, "def dot(a, b)", answer)
    jupyterlab_server.run_all(page)
    outputs.filter(has_text="✅ 1.1 dot").first.wait_for()
    outputs.filter(has_text=re.compile(r"\b1 of \d+")).first.wait_for()  # the progress at the end
    page.get_by_role("link", name="1.2 dot_product_scores").last.click()  # the next to do
    expect(page.get_by_role("heading", name=re.compile("^1.2 "))).to_be_in_viewport()
    assert jupyterlab_server.errors(page) == []
    jupyterlab_server.save(page)
    jupyterlab_server.close_all(page)
    jupyterlab_server.open_beside(page, EXERCISES)
    outputs.filter(has_text="✅ 1.1 dot").first.wait_for()
    stored = nbformat.read(lab.folder / "course" / EXERCISES, as_version=4)
    assert answer in [cell.source for cell in stored.cells]

    replace_cell(page, "def dot(a, b)", "1 / 0")
    run_cell(page)
    assert "ZeroDivisionError" in jupyterlab_server.errors(page)[0]  # errors() does see errors

    page.get_by_role("link", name="lesson 02").last.click()
    jupyterlab_server.wait_until_open(page, next(path for path in LESSONS if "/02_" in path))
