"""Make the website from the committed notebooks, without running them.

python site/build.py [--repository OWNER/NAME] [--folder FOLDER]
"""

import argparse
import json
import os
import re
import shutil
import sys
import textwrap
from html import escape, unescape
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import numpy as np
from nbformat.v4 import new_markdown_cell, new_output

sys.path.append(str(Path(__file__).parents[1]))  # for tools, which no installation has

from addresses import LINK, ROOT, add_option, binder, colab, source, without_badges
from copies import FOLDERS as COPIED
from copies import write_copies
from course_utils import check, explorers
from course_utils.course_folder import FOLDERS
from course_utils.explorers.browser_explorer import PREVIEWS, lives_in_the_page
from course_utils.predictions import ON_A_PAGE, SAYS
from tools.notebooks import VEIL, VIEW, read

FIRST = "sentence_explorer"  # what moves on the front page
# Answers to the first exercise, which the front page shows with their verdicts.
ANSWERS = [
    "return a * b",
    """total = 0
for x, y in zip(a, b):
    total = x * y
return total""",
    """total = 0
for x, y in zip(a, b):
    total += x + y
return total""",
    "return (a * b).sum()",
]
PARTS = ["README.md", "LEARNING.md", "TEACHING.md", "CONTRIBUTING.md"]  # which pages include
MARKER = re.compile(r"^ *### (BEGIN|END) SOLUTION\n?", re.M)
IN_WORDS = re.compile("<summary>In words</summary><small>(.*)</small>")
STILL = """<div class="still"><p>{words}</p><p>A still picture. In JupyterLab it moves:
<a href="../index.html#start">how to start</a>.</p></div>"""
# One that lives in the page. Its picture is for where no JavaScript runs.
LIVE = """<div class="explorer" id="explorer-{name}">
<img src="{static}/{name}.png" width="{width}" height="{height}" alt="{words}" loading="lazy">
<p>{words}</p></div>
<script type="module">
import {{ alone }} from "{static}/{name}.js";
alone(document.getElementById("explorer-{name}"), {controls});
</script>"""
# With this method, a form goes nowhere when a browser without JavaScript submits it.
FORM = """<form class="prediction" id="ask-{name}" method="dialog" autocomplete="off"
 data-result="result-{name}" data-factor="{factor}">
<fieldset><legend><b>Predict first:</b> <span>{question}</span></legend>{fields}</fieldset>
<p role="status">{words}</p><button hidden>Show the result</button></form>"""
RADIO = '<label><input type="radio" name="predicted" value="{0}"> {0}</label>'
NUMBER = """<label>Your number:
<input name="predicted" inputmode="decimal" placeholder="a number"></label>"""
RESULT = """<p class="result" id="result-{name}" data-result="{result}" data-shown="{shown}"
 role="status"></p>"""
ANSWER = """<details class="answer" name="answer"{open}><summary><code>{answer}</code></summary>
<p>{verdict}</p></details>"""


def main(arguments=None):
    """Build the website, and return the exit code."""
    from sphinx.cmd.build import build_main  # slow to import, for who only needs the rest

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_option(parser)
    parser.add_argument(
        "--folder", default=ROOT / "build", type=Path, help="where site/ and its parts are made"
    )
    given = parser.parse_args(arguments)
    pages, doctrees, site = (given.folder / name for name in ["pages", "doctrees", "site"])
    for folder in [pages, doctrees, site]:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        lay_out(pages, given.repository)
    except ValueError as reason:  # of a notebook that a learner or an editor has changed
        print(reason, file=sys.stderr)
        return 1
    options = ["-q", "-W", "--keep-going", "-j", "2", "-d", str(doctrees)]
    options += ["-D", f"html_context.repository={given.repository}"]
    code = build_main([*options, str(pages), str(site)])
    if given.repository:
        write_copies(site / "colab", given.repository)
    return code


def lay_out(pages, repository):
    """Write into the folder ``pages`` what Sphinx makes the website of."""
    shutil.copytree(ROOT / "site", pages, ignore=shutil.ignore_patterns("__pycache__"))
    for name in PARTS:
        text = without_badges((ROOT / name).read_text(encoding="utf-8"))
        (pages / name).write_text(linked(text, ROOT, repository), encoding="utf-8")
    write_modules(pages / "static" / "explorers")
    # the icon, in pixels for the pictures of shared links: the causal mask of icon.svg
    plt.imsave(pages / "static" / "icon.png", np.kron(np.tri(4), np.ones((64, 64))), cmap="Blues")
    first = embedded(FIRST, "./_static/explorers")
    for name, text in [("first", first), ("answers", answers())]:
        (pages / f"{name}.md").write_text(f"```{{raw}} html\n{text}\n```\n", encoding="utf-8")
    for folder in FOLDERS:
        (pages / folder).mkdir()
        for path in sorted((ROOT / folder).glob("*.ipynb")):
            page = read(path)
            prepare(page, path, repository)
            nbformat.write(page, pages / folder / path.name)


def linked(text, folder, repository):
    """Send links to files that have no page to the repository; without one their words stay."""

    def link(found):
        words, target = found.groups()
        path = Path(os.path.normpath(folder / target))
        if not path.is_file() or path.parent in [ROOT / name for name in FOLDERS]:
            return found[0]
        if not repository:
            return words
        return f"[{words}]({source(repository, path.relative_to(ROOT))})"

    return LINK.sub(link, text)


def write_modules(folder):
    """Write the module and the still picture of each explorer that lives in the page."""
    folder.mkdir()
    for name in filter(lives_in_the_page, explorers.__all__):
        explorer = getattr(explorers, name)()
        (folder / f"{explorer.name}.js").write_text(explorer.module, encoding="utf-8")
        shutil.copy(PREVIEWS / f"{explorer.name}.png", folder)


def answers():
    """Return as HTML some answers to the first exercise, each with what its check says."""
    shown = []
    for answer in ANSWERS:
        source, scope = "def dot(a, b):\n" + textwrap.indent(answer, "    "), {}
        exec(source, scope)
        verdict = check(scope["dot"]).message
        opened = "" if shown else " open"
        shown.append(ANSWER.format(open=opened, answer=escape(source), verdict=escape(verdict)))
    return "\n".join(shown)


def embedded(name, static):
    """Return as HTML an explorer that lives in the page; its files are in the folder ``static``."""
    explorer = getattr(explorers, name)()
    _, metadata = explorer._repr_mimebundle_()
    return LIVE.format(
        name=explorer.name,
        static=static,
        **metadata["image/png"],
        words=escape(explorer.state),
        # nothing in a script may look like its end
        controls=json.dumps(explorer.controls).replace("<", "\\u003c"),
    )


def prepare(page, path, repository):
    """Make a page of a notebook: results and answers folded, questions to be answered.

    Raises
    ------
    ValueError
        If the notebook does not hold one result for each question that it asks.
    """
    if path.parent.name != "notebooks":  # the first words of these pages are all the same
        describe_page(page, path.parent.name.title())
    if path.parent.name == "solutions":  # each is headed as the exercises which it answers
        page.cells[0].source = page.cells[0].source.replace("# Exercises", "# Solutions", 1)
    outputs = [output for cell in page.cells for output in cell.get("outputs", [])]
    published = [output.get("metadata", {}).get("prediction", {}) for output in outputs]
    questions = [info["question"] for info in published if "options" in info]
    results = [info["question"] for info in published if "result" in info]
    if sorted(questions) != sorted(results):
        raise ValueError(
            f"{path.name} was run only in part, so some results are missing or unasked: to get "
            f"the stored notebook back, run `git checkout notebooks/{path.name}`, which discards "
            f"your changes to it, or run all of it by `python -m tools.notebooks refresh "
            f"notebooks/{path.name}`."
        )
    for cell in page.cells:
        if cell.cell_type == "markdown":
            cell.source = linked(cell.source, path.parent, repository)
        else:
            fold_parts(cell)
            describe(cell)
            parts = [replaced(output, cell.source, questions) for output in cell.outputs]
            cell.outputs = [output for outputs in parts for output in outputs]
    if repository and path.parent.name in COPIED:
        page.cells.insert(1, new_markdown_cell(ways_to_run(path, repository), id="run"))
    if path.parent.name == "notebooks":
        page.cells += pages_below(path)


def describe_page(page, kind):
    """Let searches and shared links say what the exercises of a page ask for."""
    text = "\n".join(cell.source for cell in page.cells)
    words = f"{kind}: {'; '.join(re.findall(r'^## [0-9b.]+ (.*)', text, re.M))}"
    page.metadata |= {"og:description": words, "myst": {"html_meta": {"description": words}}}


def ways_to_run(path, repository):
    """Return the links that open a notebook where it runs, with nothing to install."""
    path = path.relative_to(ROOT)
    return (
        f"Run this page, with nothing to install: [on Colab]({colab(repository, path)}) or "
        f"[on Binder]({binder(repository, path)})."
    )


def fold_parts(cell):
    """Fold what is folded in JupyterLab, and answers."""
    cell.outputs = [output for output in cell.outputs if output != VEIL]
    folded = cell.metadata.get("jupyter", {})
    if folded.get("outputs_hidden"):
        fold(cell, "output", "The result")
    if folded.get("source_hidden"):
        fold(cell, "input", "The code")
    if MARKER.search(cell.source):
        cell.source = MARKER.sub("", cell.source)
        fold(cell, "input", "The answer")


def fold(cell, part, label):
    cell.metadata["tags"] = [*cell.metadata.get("tags", []), f"hide-{part}"]
    cell.metadata.setdefault("mystnb", {})["code_prompt_show"] = label


def describe(cell):
    """Give a cell's picture its words."""
    for output in cell.outputs:
        words = IN_WORDS.search(output.get("data", {}).get("text/html", ""))
        if words or is_explorer(output):
            alt = unescape(words[1]) if words else output.data["text/plain"]
            cell.metadata.setdefault("mystnb", {})["image"] = {"alt": alt}


def is_explorer(output):
    return {VIEW, "image/png"} <= set(output.get("data", {}))


def replaced(output, source, questions):
    """Return what a page shows for an output; ``questions`` are those of the page, in order."""
    if is_explorer(output):
        name = re.search(r"(\w+_explorer)\(", source)
        if name and lives_in_the_page(name[1]):
            return [html_output(embedded(name[1], "../_static/explorers"))]
        return [output, html_output(STILL.format(words=escape(output.data["text/plain"])))]
    info = output.get("metadata", {}).get("prediction", {})
    if "count" in info:
        words = SAYS["count"].format(predicted=0, asked=info["count"], wrong=0)
        return [html_output(f'<div class="surprises"><p>{words}</p></div>')]
    if "options" in info:
        return [html_output(form(questions.index(info["question"]), **info))]
    if "result" in info:
        number, result = questions.index(info["question"]), escape(info["result"])
        shown = SAYS["nearest"].format(result=result) if "nearest" in info else result
        return [html_output(RESULT.format(name=number, result=result, shown=shown))]
    return [output]


def form(number, question, options, factor):
    """Return the form for a question."""
    return FORM.format(
        name=number,
        question=escape(question),
        fields="".join(RADIO.format(escape(option)) for option in options) or NUMBER,
        factor="" if options else factor,
        words=SAYS["choose" if options else "give"].format(**ON_A_PAGE),
    )


def html_output(text):
    return new_output("display_data", {"text/html": text})


def pages_below(path):
    """Return, as a list of cells, what puts exercises and solutions below their lesson."""
    number = path.stem.split("_")[0]
    lines = [
        f"{folder.title()} <../{folder}/{found.stem}>"
        for folder in FOLDERS[1:]
        for found in (ROOT / folder).glob(f"{number}_*.ipynb")
    ]
    text = "\n".join(["```{toctree}", ":hidden:", "", *lines, "```"])
    return [new_markdown_cell(text, id="below")] if lines else []


if __name__ == "__main__":
    sys.exit(main())
