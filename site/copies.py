"""Copies of lessons and exercises that run anywhere: their first cell installs the course."""

import os
import re
import textwrap
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell

from addresses import LINK, ROOT, archive, colab, source
from tools.notebooks import KERNEL

FOLDERS = ["notebooks", "exercises"]
# For JupyterLab, tests, git and uv; and Triton comes with torch, in the version that fits.
NOT_NEEDED = {"jsonschema", "jupyterlab", "nbval", "nbdime", "pip", "triton"}
MODEL = "course_utils.language_model"
MAKE = re.compile("(`make [^`]*`)")
WORDS = """This copy runs anywhere, for example on Colab. Run the cell below first. It installs \
the course and the packages that it needs. Those that are already here, such as torch, stay as \
they are. Your answers are kept in the folder `attention-course` of this machine. On Colab they \
are deleted when the session ends."""
INSTALL = '''import os
import re
from importlib import metadata, util
from pathlib import Path

needed = """
{needed}
"""


def as_it_is(line):  # what is here already, in the version that it has
    name = re.match(r"[\\w-]+", line)[0]
    return f"{{name}}=={{metadata.version(name)}}" if util.find_spec(name) else line


%pip install --quiet {{" ".join(map(as_it_is, needed.split()))}}
%pip install --quiet --no-deps {course}
here = Path.home() / "attention-course" / "{folder}"
here.mkdir(parents=True, exist_ok=True)
os.chdir(here)'''
FETCH = """

from course_utils.model_file import fetch

fetch()"""


def write_copies(folder, repository):
    """Write into ``folder`` a copy of each lesson and of all exercises, without outputs."""
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
        for path in sorted((ROOT / name).glob("*.ipynb")):
            copy = nbformat.read(path, as_version=4)
            make_copy(copy, path.relative_to(ROOT), repository)
            nbformat.write(copy, folder / name / path.name)


def make_copy(notebook, path, repository):
    """Make of a notebook, whose path begins at the root, the copy that runs anywhere."""
    text = "\n".join(cell.source for cell in notebook.cells)
    leave_out_help(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = absolute(cell.source, path.parent, repository)
            cell.source = MAKE.sub(r"\1 (in a clone of the course)", cell.source, count=1)
        else:
            cell.outputs, cell.execution_count = [], None
            cell.metadata.pop("jupyter", None)  # there is nothing to fold
    cell = INSTALL.format(
        needed=textwrap.fill(" ".join(needed()), 90),
        course=archive(repository),
        folder=path.parent.name,
    )
    notebook.cells[:0] = [  # first, because lesson 00 counts the keys to its first picture
        new_markdown_cell(WORDS, id="anywhere"),
        new_code_cell(cell + FETCH * (MODEL in text), id="install"),
    ]
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL})


def leave_out_help(notebook):
    """Take out help with an installation: a folded cell, and the paragraph that leads to it."""
    for number, cell in reversed(list(enumerate(notebook.cells))):
        if cell.metadata.get("jupyter", {}).get("source_hidden"):
            before = notebook.cells[number - 1]
            before.source = before.source.rpartition("\n\n")[0]
            del notebook.cells[number]


def needed():
    """Return the lines of requirements.txt with the packages that the course itself imports."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    asked = [line.split(";")[0] for line in lines if line and not line.startswith(("#", "-e"))]
    return [line for line in asked if re.match(r"[\w-]+", line)[0] not in NOT_NEEDED]


def absolute(text, folder, repository):
    """Send links between notebooks to their copies, and all others to the repository."""

    def link(found):
        words, target = found.groups()
        path = Path(os.path.normpath(folder / target))
        if not (ROOT / path).is_file():
            return found[0]
        at = colab if path.parent.name in FOLDERS and path.suffix == ".ipynb" else source
        return f"[{words}]({at(repository, path)})"

    return LINK.sub(link, text)
