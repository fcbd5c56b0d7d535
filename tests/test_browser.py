"""The course as a learner meets it: a real JupyterLab, a real browser, a real kernel."""

import re
import subprocess
import sys

import nbformat
import pytest

import lab

LESSONS = sorted(path.stem for path in (lab.ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def address(chromium, folder):
    with lab.server(folder) as address:
        yield address


@pytest.fixture
def page(chromium):
    page = lab.new_page(chromium, 1300, 1000)
    yield page
    page.close()


def saving_changes_nothing(page, folder, path):
    """Save the notebook just opened, and assert that no byte of it changes."""
    lab.save(page)
    assert (folder / "course" / path).read_bytes() == (lab.ROOT / path).read_bytes()


def test_opening_a_lesson_changes_nothing(page, address, folder):
    page.goto(f"{address}/lab/workspaces/test?reset&token={lab.TOKEN}")
    page.wait_for_function("window.jupyterapp?.shell.currentWidget", timeout=lab.PATIENCE)
    for lesson in LESSONS:
        path = f"notebooks/{lesson}.ipynb"
        lab.open_beside(page, path)
        saving_changes_nothing(page, folder, path)
        lab.close(page)


def test_a_lesson_runs_to_its_end_its_explorer_moves_and_its_pictures_are_told(page, address):
    lab.open_notebook(page, address, "notebooks/01_dot_product_similarity.ipynb")
    lab.run_all(page)
    assert lab.errors(page) == []
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


def test_an_exercise_is_checked_wrong_then_right_and_leads_on(page, address, folder):
    path = "exercises/01_exercises_dot_product_similarity.ipynb"
    lab.open_notebook(page, address, path)
    saving_changes_nothing(page, folder, path)
    lab.run_all(page)
    assert lab.errors(page) == []
    outputs = page.locator(".jp-OutputArea-output")
    assert outputs.filter(has_text="⏳ 1.1 dot: not attempted yet").count() == 1

    write_into_cell_of(page, "def dot(a, b)", "def dot(a, b):\n    return a * b")
    lab.run_all(page)
    outputs.filter(has_text="❌ 1.1 dot: those are the products").wait_for()

    write_into_cell_of(page, "def dot(a, b)", "def dot(a, b):\n    return (a * b).sum()")
    lab.run_all(page)
    outputs.filter(has_text="✅ 1.1 dot: correct").wait_for()
    assert outputs.filter(has_text="Lesson 01: 1 of").count() == 1  # told at the end
    assert lab.errors(page) == []
    lab.save(page)
    stored = nbformat.read(folder / "course" / path, as_version=4)
    (written,) = [cell for cell in stored.cells if cell.source.startswith("def dot(a, b)")]
    assert written.source == "def dot(a, b):\n    return (a * b).sum()"
    assert "✅ 1.1 dot: correct" in str(stored.cells)

    write_into_cell_of(page, "def dot(a, b)", "1 / 0")
    lab.run_all(page)
    assert "ZeroDivisionError" in lab.errors(page)[0]  # errors() does see errors

    page.get_by_role("link", name="lesson 02").last.click()
    lab.wait_until_open(page, "notebooks/02_variance_and_scaling.ipynb")


def test_a_notebook_not_trusted_shows_pictures_within_the_column_and_words_folded(
    page, address, folder
):
    stored = nbformat.read(lab.ROOT / "notebooks" / "08_reading_attention.ipynb", as_version=4)
    views = [c for c in stored.cells if re.match(r"(?s).*(mosaic|lines|products)\(", c.source)]
    cells = [nbformat.v4.new_code_cell("1", outputs=cell.get("outputs", [])) for cell in views]
    fresh = nbformat.v4.new_notebook(cells=cells, metadata=stored.metadata)
    nbformat.write(fresh, folder / "course" / "notebooks" / "fresh.ipynb")
    lab.open_notebook(page, address, "notebooks/fresh.ipynb")
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


def test_exported_html_shows_pictures_descriptions_and_the_explorer(page, tmp_path):
    stem = "01_dot_product_similarity"
    source = lab.ROOT / "notebooks" / f"{stem}.ipynb"
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--output-dir", str(tmp_path)]
    subprocess.run([*command, str(source)], check=True, capture_output=True)
    page.route(
        "**/*", lambda route: route.abort() if "http" in route.request.url else route.continue_()
    )
    page.goto((tmp_path / f"{stem}.html").as_uri(), wait_until="domcontentloaded")
    stored = sum(
        "image/png" in output.get("data", {})
        for cell in nbformat.read(source, as_version=4).cells
        for output in cell.get("outputs", [])
    )
    assert page.locator(".jp-RenderedImage img").count() == stored
    widths = page.locator(".jp-RenderedImage img").evaluate_all(
        "all => all.map(i => i.naturalWidth)"
    )
    assert min(widths) > 100
    page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true })")
    spoken = page.locator("body").aria_snapshot()
    assert "Picture: cosine: 10×10 scores with mean" in spoken
