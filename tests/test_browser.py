"""The course as a learner meets it: a real JupyterLab, a real browser, a real kernel."""

import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe

from course_utils import predictions
from sampling import some
from tools import jupyterlab_server

LESSONS = sorted(
    f"notebooks/{path.name}" for path in (jupyterlab_server.ROOT / "notebooks").glob("*.ipynb")
)
FIRST = "notebooks/01_dot_product_similarity.ipynb"
QUESTION = "Which vector has the largest dot product with q?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def jupyterlab(chromium, folder):
    """The one page of all tests that need JupyterLab, which is much to load."""
    with jupyterlab_server.server(folder) as address:
        page = jupyterlab_server.new_page(chromium, 1300, 1000)
        jupyterlab_server.open_alone(page, address)
        yield page
        page.close()


@pytest.fixture
def page(jupyterlab):
    """JupyterLab without a notebook, as each test leaves it."""
    yield jupyterlab
    jupyterlab_server.close_all(jupyterlab)


@pytest.fixture
def blank(chromium):
    page = jupyterlab_server.new_page(chromium)
    yield page
    page.close()


def saving_changes_nothing(page, folder, path):
    """Save the notebook just opened, and assert that no byte of it changes."""
    jupyterlab_server.save(page)
    assert (folder / "course" / path).read_bytes() == (jupyterlab_server.ROOT / path).read_bytes()


def test_opening_a_lesson_changes_nothing(page, folder):
    """EVERY_CASE=1 opens all lessons; this, three."""
    for path in some(LESSONS, 3):
        jupyterlab_server.open_beside(page, path)
        saving_changes_nothing(page, folder, path)
        jupyterlab_server.close_all(page)


def step(page):
    """Run the cell that has the focus, as a hand would, and go on to the next."""
    page.keyboard.press("Shift+Enter")
    jupyterlab_server.wait_until_run(page)


def broken_rules(page):
    """Return what axe-core finds wrong in the questions, and that it looked at none."""
    questions = {"include": [[".jp-OutputArea-output:has(input[type=radio])"]], "exclude": []}
    options = {"resultTypes": ["violations", "passes"]}
    found = Axe().run(page, context=questions, options=options).response
    looked_at = {rule["id"]: len(rule["nodes"]) for rule in found["passes"]}
    none = [] if looked_at.get("label", 0) > 10 else [f"only {looked_at}"]
    return none + [(rule["id"], rule["nodes"][0]["html"]) for rule in found["violations"]]


def test_a_lesson_runs_to_its_end_a_wrong_prediction_is_told_and_its_explorer_moves(page, folder):
    outputs = page.locator(".jp-OutputArea-output")
    near = page.get_by_role("radio", name="near", exact=True)
    jupyterlab_server.open_beside(page, FIRST)

    # As it opens: the question as text, and not a word of its result.
    assert QUESTION in outputs.filter(has_text="Predict first").first.inner_text()
    folded = page.locator(".jp-CodeCell", has_text="largest.compare").first
    assert "3.0" not in folded.inner_text()
    assert page.locator(".jp-OutputPlaceholder").all_inner_texts() == [""] * 12
    assert "q · long" not in page.locator(".jp-Notebook").aria_snapshot()

    page.locator(".jp-CodeCell .cm-content").first.click()
    for _ in range(4):  # imports, prose, arrows, question
        step(page)
    near.wait_for()
    page.keyboard.press("Shift+Tab")  # from the cell that comes next, back to the last option
    assert page.evaluate("document.activeElement.value") == "away"
    page.keyboard.press("ArrowDown")  # round to the first
    page.get_by_role("status").filter(has_text="Noted. Now run the next cell.").wait_for()
    step(page)  # asks once more, as the focus is in this cell
    step(page)
    told = "You predicted near. The result is long."
    outputs.filter(has_text=told).wait_for()
    assert near.is_disabled() and near.is_checked()
    kept = json.loads((folder / "course" / ".predictions.json").read_text())
    assert kept == {QUESTION: {"said": "near", "surprised": True}}

    # In another kernel all is run: choice and surprise are still there, the others not made up.
    jupyterlab_server.close_all(page)
    jupyterlab_server.open_beside(page, FIRST)
    assert near.count() == 0
    jupyterlab_server.run_all(page)
    assert jupyterlab_server.errors(page) == []
    near.wait_for()
    assert near.is_disabled() and near.is_checked()
    outputs.filter(has_text=told).wait_for()
    assert outputs.filter(has_text=re.compile("^The result is")).count() == 5
    outputs.filter(has_text="You predicted 1 of 6 results; 1 came as a surprise.").wait_for()
    unnamed = page.locator(".jp-OutputArea-output :is(input[type=radio], input[type=text])")
    assert unnamed.count() > 10
    assert all(unnamed.evaluate_all("all => all.map(each => each.labels[0].innerText)"))
    group = page.get_by_role("group", name=f"Predict first: {QUESTION}", exact=True)
    assert group.get_by_role("radio").count() == 4
    questions = page.get_by_role("group", name="Predict first:").get_by_role("radio")
    assert questions.count() == page.get_by_role("radio").count()
    assert broken_rules(page) == []

    # The link leads back to the question.
    page.get_by_role("link", name=QUESTION).click()
    page.wait_for_function(
        """on => { const {top, bottom} = on.getBoundingClientRect();
                  return top >= 0 && bottom <= innerHeight; }""",
        arg=near.element_handle(),
    )

    # The explorer moves.
    picture = page.locator("svg[role=img]")
    words = page.get_by_role("status").filter(has_text="dot product")
    before = picture.inner_html(), words.inner_text()
    assert page.get_by_role("spinbutton", name="angle of k from q (degrees)").input_value() == "60"
    page.get_by_role("slider").first.focus()
    page.keyboard.press("ArrowRight")
    words.filter(has_text="dot product 1.27").wait_for()
    assert picture.inner_html() != before[0] and words.inner_text() != before[1]
    assert page.get_by_role("spinbutton", name="angle of k from q (degrees)").input_value() == "65"
    assert picture.bounding_box()["width"] == 440  # its own size

    # What the pictures show reaches a screen reader.
    notebook, told = page.locator(".jp-Notebook"), "Picture: kitten looks up: 4×4 attention"
    page.locator("details", has_text=told).get_by_text("In words").click()
    assert told in notebook.aria_snapshot()


def write_into_cell_of(page, text, answer):
    """Replace the source of the code cell that contains ``text``."""
    page.locator(".jp-CodeCell .cm-content", has_text=text).first.click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(answer)


def test_an_exercise_is_checked_wrong_then_right_and_leads_on(page, folder):
    path = "exercises/01_exercises_dot_product_similarity.ipynb"
    jupyterlab_server.open_beside(page, path)
    saving_changes_nothing(page, folder, path)
    jupyterlab_server.run_all(page)
    assert jupyterlab_server.errors(page) == []
    outputs = page.locator(".jp-OutputArea-output")
    assert outputs.filter(has_text="⏳ 1.1 dot: not attempted yet").count() == 1

    write_into_cell_of(page, "def dot(a, b)", "def dot(a, b):\n    return a * b")
    step(page)
    step(page)  # its check
    outputs.filter(has_text="❌ 1.1 dot: those are the products").wait_for()

    write_into_cell_of(page, "def dot(a, b)", "def dot(a, b):\n    return (a * b).sum()")
    jupyterlab_server.run_all(page)
    outputs.filter(has_text="✅ 1.1 dot: correct").wait_for()
    assert outputs.filter(has_text="Lesson 01: 1 of").count() == 1  # told at the end
    assert jupyterlab_server.errors(page) == []
    jupyterlab_server.save(page)
    stored = nbformat.read(folder / "course" / path, as_version=4)
    (written,) = [cell for cell in stored.cells if cell.source.startswith("def dot(a, b)")]
    assert written.source == "def dot(a, b):\n    return (a * b).sum()"
    assert "✅ 1.1 dot: correct" in str(stored.cells)

    write_into_cell_of(page, "def dot(a, b)", "1 / 0")
    step(page)
    assert "ZeroDivisionError" in jupyterlab_server.errors(page)[0]  # errors() does see errors

    page.get_by_role("link", name="lesson 02").last.click()
    jupyterlab_server.wait_until_open(page, "notebooks/02_variance_and_scaling.ipynb")


def test_a_notebook_not_trusted_shows_pictures_within_the_column_and_words_folded(page, folder):
    stored = nbformat.read(
        jupyterlab_server.ROOT / "notebooks" / "08_reading_attention.ipynb", as_version=4
    )
    views = [c for c in stored.cells if re.match(r"(?s).*(mosaic|lines|products)\(", c.source)]
    cells = [nbformat.v4.new_code_cell("1", outputs=cell.get("outputs", [])) for cell in views]
    fresh = nbformat.v4.new_notebook(cells=cells, metadata=stored.metadata)
    nbformat.write(fresh, folder / "course" / "notebooks" / "fresh.ipynb")
    jupyterlab_server.open_beside(page, "notebooks/fresh.ipynb")
    model = "window.jupyterapp.shell.currentWidget.content.model"
    assert not page.evaluate(f"{model}.cells.get(0).trusted")
    images = page.locator(".jp-RenderedImage img")
    images.nth(2).wait_for()
    for image in images.all():
        dense, wide, column = image.evaluate(
            "i => [i.naturalWidth, i.clientWidth, i.parentElement.clientWidth]"
        )
        assert 100 < wide <= column and dense >= 2 * wide
    words = page.locator("details")
    assert words.count() == images.count()
    words.first.locator("small").wait_for(state="hidden")
    words.first.locator("summary").click()
    words.first.locator("small").wait_for(state="visible")


def test_exported_html_shows_pictures_descriptions_and_the_explorer(blank, tmp_path):
    stem = "01_dot_product_similarity"
    source = jupyterlab_server.ROOT / "notebooks" / f"{stem}.ipynb"
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--output-dir", str(tmp_path)]
    subprocess.run([*command, str(source)], check=True, capture_output=True)
    blank.route(
        "**/*", lambda route: route.abort() if "http" in route.request.url else route.continue_()
    )
    blank.goto((tmp_path / f"{stem}.html").as_uri(), wait_until="domcontentloaded")
    stored = sum(
        "image/png" in output.get("data", {})
        for cell in nbformat.read(source, as_version=4).cells
        for output in cell.get("outputs", [])
    )
    assert blank.locator(".jp-RenderedImage img").count() == stored
    widths = blank.locator(".jp-RenderedImage img").evaluate_all(
        "all => all.map(i => i.naturalWidth)"
    )
    assert min(widths) > 100
    blank.locator("details").evaluate_all("all => all.forEach(one => { one.open = true })")
    spoken = blank.locator("body").aria_snapshot()
    assert "Picture: cosine: 10×10 scores with mean" in spoken


SHOW_TWO = """async text => {
    const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    const { default: widget } = await import(address);
    window.said = ["first", "second"].map(question => {
        const state = { question, options: ["near", "long"], value: null, disabled: false };
        const el = document.body.appendChild(document.createElement("div"));
        const model = {
            get: name => state[name], set: (name, value) => { state[name] = value; },
            on() {}, save_changes() {},
        };
        widget.render({ model, el });
        return state;
    });
}"""


def test_an_answer_to_one_question_leaves_another_as_it_was(blank):
    blank.set_content('<html lang="en"><title>x</title><body></body></html>')
    module = Path(predictions.__file__).with_name("choice.js")
    blank.evaluate(SHOW_TWO, module.read_text(encoding="utf-8"))
    near = blank.get_by_role("radio", name="near")
    near.nth(0).check()
    near.nth(1).check()
    assert near.nth(0).is_checked() and near.nth(1).is_checked()
    assert blank.evaluate("said.map(each => each.value)") == ["near", "near"]
