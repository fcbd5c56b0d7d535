"""Make the website from the committed notebooks, without running them.

python site/build.py [--repository OWNER/NAME] [--out FOLDER]
"""

import argparse
import base64
import html
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_markdown_cell, new_output
from sphinx.cmd.build import build_main

from course_utils.authoring import VEIL
from course_utils.predictions import SAYS

ROOT = Path(__file__).parents[1]
HERE = Path(__file__).parent
WIDGET = "application/vnd.jupyter.widget-view+json"
GO_ON = "open the result below"
ASKS, OPTION = "Predict first: ", "\n  ○ "
FACTOR = re.compile(r"Within a factor of (\S+) is near enough")
CAME = re.compile(re.escape(SAYS["alone"]).replace(r"\{came\}", "(.+)") + "\n?")
COUNT = SAYS["count"].split("{")[0]
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)\)")
MARKER = re.compile(r"^ *### (BEGIN|END) SOLUTION\n?", re.M)
FOLDERS = ["notebooks", "exercises", "solutions"]


def main(arguments=None):
    """Build the website, and return Sphinx's exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repository", default=remote(), metavar="OWNER/NAME")
    parser.add_argument("--out", default=ROOT / "build" / "site", type=Path)
    given = parser.parse_args(arguments)
    pages = given.out.with_name("pages")
    for folder in [given.out, pages]:
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE, pages, ignore=shutil.ignore_patterns("__pycache__"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (pages / "README.md").write_text(linked(readme, ROOT, given.repository), encoding="utf-8")
    for folder in FOLDERS:
        (pages / folder).mkdir()
        for path in sorted((ROOT / folder).glob("*.ipynb")):
            page = nbformat.read(path, as_version=4)
            prepare(page, path, given.repository)
            nbformat.write(page, pages / folder / path.name)
    first_explorer(pages)
    settings = ["-D", f"html_context.repository={given.repository}"]
    return build_main(["-q", "-j", "2", "-W", *settings, "--keep-going", str(pages), str(given.out)])


def remote():
    """Return the owner/name under which git knows this repository on GitHub, "" if it does not."""
    command = ["git", "remote", "get-url", "origin"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    found = re.search(r"github\.com[:/](\S+?/\S+?)(\.git)?$", run.stdout.strip())
    return found[1] if found else ""


def linked(text, folder, repository):
    """Send links to files that have no page to the repository; without one their words stay."""

    def link(found):
        words, target = found.groups()
        path = Path(os.path.normpath(folder / target))
        if not path.is_file() or path.parent in [ROOT / name for name in FOLDERS]:
            return found[0]
        if not repository:
            return words
        return f"[{words}](https://github.com/{repository}/blob/HEAD/{path.relative_to(ROOT)})"

    return LINK.sub(link, text)


def prepare(page, path, repository):
    """Make a page of a notebook: results and answers folded, questions to be answered."""
    names = []  # of its questions
    for cell in page.cells:
        if cell.cell_type == "markdown":
            cell.source = linked(cell.source, path.parent, repository)
            continue
        cell.outputs = [output for output in cell.outputs if output != VEIL]
        hidden = cell.metadata.get("jupyter", {})
        if hidden.get("outputs_hidden"):
            fold(cell, "output", "The result")
        if hidden.get("source_hidden"):
            fold(cell, "input", "The code")
        if "### BEGIN SOLUTION" in cell.source:
            cell.source = MARKER.sub("", cell.source)
            fold(cell, "input", "The answer")
        illustrate(cell)
        names += ask(cell)
    missing = set(names) - {name for cell in page.cells for name in answer(cell)}
    if missing:
        raise ValueError(f"{path.name}: no result is stored for the questions {missing}")
    number = path.stem.split("_")[0]
    below = [each for name in FOLDERS[1:] for each in (ROOT / name).glob(f"{number}_*.ipynb")]
    if path.parent.name == "notebooks" and below:
        lines = [f"{each.parent.name.title()} <../{each.parent.name}/{each.stem}>" for each in below]
        page.cells.append(
            new_markdown_cell("\n".join(["```{toctree}", ":hidden:", "", *lines, "```"]))
        )


def fold(cell, part, label):
    cell.metadata["tags"] = [*cell.metadata.get("tags", []), f"hide-{part}"]
    cell.metadata.setdefault("mystnb", {})["code_prompt_show"] = label


def illustrate(cell):
    """Give a cell's picture its words, and say of an explorer that it does not move here."""
    for output in cell.outputs:
        data = output.get("data", {})
        words = re.search("<summary>In words</summary><small>(.*)</small>", data.get("text/html", ""))
        if words:
            describe(cell, html.unescape(words[1]))
        if WIDGET in data and "image/png" in data:
            describe(cell, data["text/plain"])
            still = f'<div class="still"><p>{html.escape(data["text/plain"])}</p>' + (
                '<p>A still picture. In JupyterLab it moves: <a href="../index.html#start">how to '
                "start</a>.</p></div>"
            )
            cell.outputs = [output, html_output(still)]


def describe(cell, words):
    cell.metadata.setdefault("mystnb", {})["image"] = {"alt": words}


def ask(cell):
    """Turn the question that a cell asks into a control; return its name, in a list."""
    for output in cell.outputs:
        text = output.get("data", {}).get("text/plain", "")
        if text.startswith(ASKS):
            name = re.search(r"(\w+) = predict_first\(", cell.source)[1]
            cell.outputs = [html_output(control(name, text.removeprefix(ASKS)))]
            return [name]
    return []


def control(name, text):
    """Return the form for a question, stored as text with its options."""
    question, *options = map(html.escape, text.split(OPTION))
    factor = FACTOR.search(question)
    fields = [f'<label><input type="radio" name="said" value="{each}"> {each}</label>'
              for each in options]  # fmt: skip
    if factor:
        fields = ['<label>Your number: <input name="said" inputmode="decimal" '
                  'placeholder="a number"></label>']  # fmt: skip
    words = SAYS["give" if factor else "choose"].format(go_on=GO_ON)
    return (
        # Of this kind, a form goes nowhere when a browser without JavaScript submits it.
        f'<form class="prediction" id="ask-{name}" data-result="came-{name}" method="dialog" '
        f'data-factor="{factor[1] if factor else ""}" autocomplete="off">'
        f"<fieldset><legend><b>Predict first:</b> <span>{question}</span></legend>"
        f"{''.join(fields)}</fieldset>"
        f'<p role="status">{words}</p><button hidden>Show the result</button></form>'
    )


def answer(cell):
    """Set apart what a cell says of a prediction; return the question's name, in a list."""
    for place, output in enumerate(cell.get("outputs", [])):
        came = CAME.search(output.get("text", ""))
        if came:
            name = re.search(r"(\w+)\.compare\(", cell.source)[1]
            told = (
                f'<p class="came" id="came-{name}" data-came="{html.escape(came[1])}" '
                f'role="status">{html.escape(came[0])}</p>'
            )
            around = [output.text[: came.start()], output.text[came.end() :]]
            before, after = [
                [new_output("stream", text=text)] if text else [] for text in around
            ]
            cell.outputs[place : place + 1] = [*before, html_output(told), *after]
            return [name]
        if output.get("data", {}).get("text/plain", "").startswith(COUNT):
            cell.outputs = [html_output('<div class="surprises">' + output.data["text/html"] + "</div>")]
    return []


def html_output(text):
    return new_output("display_data", {"text/html": text})


def first_explorer(pages):
    """Write the first lesson's explorer as a picture and its words, for the front page."""
    lesson = nbformat.read(min((ROOT / "notebooks").glob("00_*.ipynb")), as_version=4)
    data = next(
        output.data
        for cell in lesson.cells
        for output in cell.get("outputs", [])
        if WIDGET in output.get("data", {}) and "image/png" in output.data
    )
    (pages / "first.png").write_bytes(base64.b64decode(data["image/png"]))
    words = data["text/plain"]
    (pages / "first.md").write_text(
        f"```{{image}} first.png\n:alt: {words}\n:width: 544\n```\n\nIn words: {words}.\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    sys.exit(main())
