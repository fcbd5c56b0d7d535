"""The notebooks as they are stored."""

import functools
import itertools
from pathlib import Path

import nbformat

from tools.notebooks import STUB, VEIL

ROOT = Path(__file__).parents[1]
LESSONS, SOLUTIONS, EXERCISES = (
    sorted((ROOT / folder).glob("*.ipynb")) for folder in ("notebooks", "solutions", "exercises")
)
MOST_LINES = 15  # of a code cell


@functools.cache
def read(path):
    """Return a stored notebook, which all tests share: whoever changes it changes a copy."""
    return nbformat.read(path, as_version=4)


def name_of(path):
    return f"{path.parent.name}/{path.name}"


def number_of(path):
    """Return the number of the lesson that a notebook belongs to: "06", "06b"."""
    return path.stem.split("_")[0]


# 00 has one exercise in the lesson itself; 00b compares layers and builds nothing to keep
WITH_EXERCISES = [path for path in LESSONS if number_of(path) not in ("00", "00b")]


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def prose(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def last_problem(solutions):
    """Return the name of the exercise that a solutions notebook leaves unsolved, None without one.

    Raises
    ------
    ValueError
        If it leaves several.
    """
    cells = code(solutions)
    names = [
        below.source.removeprefix("check(").removesuffix(")")
        for cell, below in itertools.pairwise(cells)
        if STUB in cell.source
    ]
    if len(names) > 1:
        raise ValueError(f"several exercises are unsolved: {names}")
    return names[0] if names else None


def output_text(cell):
    """Return all text that a code cell's outputs show."""
    return "\n".join(
        output.get("text", "") + output.get("data", {}).get("text/plain", "")
        for output in cell.outputs
        if output != VEIL
    )


def published(notebook, key):
    """Return what the notebook's outputs publish of predictions, of those that have the key."""
    outputs = [output for cell in code(notebook) for output in cell.outputs]
    info = [output.get("metadata", {}).get("prediction", {}) for output in outputs]
    return [each for each in info if key in each]
