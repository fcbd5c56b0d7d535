"""A learner who predicts, in a real JupyterLab: asked, surprised, told at the end, remembered."""

import json
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

import lab
from course_utils import predictions

LESSON = "notebooks/01_dot_product_similarity.ipynb"
QUESTION = "Which vector has the largest dot product with q?"


@pytest.fixture
def page(chromium):
    page = lab.new_page(chromium)
    yield page
    page.close()


def step(page):
    page.keyboard.press("Shift+Enter")
    lab.wait_until_run(page)


def broken_rules(page):
    """Return what axe-core finds wrong in the questions, and that it looked at none."""
    questions = {"include": [[".jp-OutputArea-output:has(input[type=radio])"]], "exclude": []}
    options = {"resultTypes": ["violations", "passes"]}
    found = Axe().run(page, context=questions, options=options).response
    looked_at = {rule["id"]: len(rule["nodes"]) for rule in found["passes"]}
    none = [] if looked_at.get("label", 0) > 10 else [f"only {looked_at}"]
    return none + [(rule["id"], rule["nodes"][0]["html"]) for rule in found["violations"]]


def test_a_wrong_prediction_is_told_counted_and_remembered(page, tmp_path):
    outputs = page.locator(".jp-OutputArea-output")
    near = page.get_by_role("radio", name="near", exact=True)
    with lab.server(tmp_path) as address:
        lab.open_notebook(page, address, LESSON)

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
        told = "You said near, and it came long: a surprise."
        outputs.filter(has_text=told).wait_for()
        assert near.is_disabled() and near.is_checked()
        kept = json.loads((tmp_path / "course" / ".predictions.json").read_text())
        assert kept == {QUESTION: {"said": "near", "surprised": True}}

        # After a restart all is run: choice and surprise are still there, the others not made up.
        page.evaluate(
            "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
        )
        lab.open_notebook(page, address, LESSON)
        assert near.count() == 0
        lab.run_all(page)
        assert lab.errors(page) == []
        near.wait_for()
        assert near.is_disabled() and near.is_checked()
        outputs.filter(has_text=told).wait_for()
        assert outputs.filter(has_text="Nothing was predicted.").count() == 5
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


def test_an_answer_to_one_question_leaves_another_as_it_was(page):
    page.set_content('<html lang="en"><title>x</title><body></body></html>')
    module = Path(predictions.__file__).with_name("choice.js")
    page.evaluate(SHOW_TWO, module.read_text(encoding="utf-8"))
    near = page.get_by_role("radio", name="near")
    near.nth(0).check()
    near.nth(1).check()
    assert near.nth(0).is_checked() and near.nth(1).is_checked()
    assert page.evaluate("said.map(each => each.value)") == ["near", "near"]
