"""The notebooks as they are stored, and what they state.

`stated` reduces a notebook to what must not change by accident: numbers, symbols, names and the
words that turn a sentence round. Plain wording is left out, so that a sentence can be improved
freely. The folder ``stated`` keeps the result; after reading what changed, write it anew with

python tests/stored.py
"""

import functools
import hashlib
import itertools
import re
from pathlib import Path

import nbformat

from tools.notebooks import STUB, VEIL

ROOT = Path(__file__).parents[1]
STATED = ROOT / "tests" / "stated"
LESSONS, SOLUTIONS, EXERCISES = (
    sorted((ROOT / folder).glob("*.ipynb")) for folder in ("notebooks", "solutions", "exercises")
)
IGNORED = "nbval-ignore-output"

TELLING = set(
    """
    not no never none nothing nobody neither nor without cannot only hardly all every each any both
    more most less least fewer larger largest smaller smallest greater longer longest shorter
    shortest wider narrower higher highest lower lowest faster slower sharper flatter better worse
    best worst above below over under before after first second third last left right up down upper
    lower past future start end near far same different equal equally unequal even together apart
    grow grows shrink shrinks rise rises fall falls rising falling true false holds correct wrong
    harmless overflow underflow infinite finite positive negative linear linearly quadruples
    query queries key keys value values row rows column columns weight weights score scores output
    input diagonal mean sum product difference variance deviation median maximum minimum entropy
    gradient norm root square half twice double third quarter tenth dozen one two three four five
    six seven eight nine ten eleven twelve sixteen hundred thousand million
    add adds subtract subtracts multiply multiplies divide divides divided times with
    attend attends attending ignore ignores ignored allow allows allowed forbid forbidden
    large small long short high low fast slow early late wide narrow sharp flat dark light bright
    always often seldom exact exactly approximate forward backward scaled unscaled trained untrained
    read reads write writes written agree agrees differ differs alike stay stays swap learn learns
    cost costs save saves gain gains lose loses lost
    clockwise anticlockwise forwards backwards back ahead solid dashed dotted
    black white grey red orange yellow green blue purple
    """.split()
)


@functools.cache
def read(path):
    """Return a stored notebook, which all tests share: whoever changes it changes a copy."""
    return nbformat.read(path, as_version=4)


def number_of(path):
    """Return the number of the lesson that a notebook belongs to: "06", "06b"."""
    return path.stem.split("_")[0]


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


def ignored(cell):
    return IGNORED in cell.metadata.get("tags", [])


def shown(cell):
    """Return all text that a code cell's outputs show."""
    return "\n".join(
        output.get("text", "") + output.get("data", {}).get("text/plain", "")
        for output in cell.outputs
        if output != VEIL
    )


def facts(text, symbols):
    """Return the numbers, names, telling words and ``symbols`` of a text, in their order."""
    tokens = re.findall(rf"\d+(?:[.,]\d+)*|\w+|{symbols}", text)
    return [
        token
        for token in tokens
        if not (token.isascii() and token.isalpha())
        or (token.isupper() and len(token) > 1)
        or (len(token) == 1 and token not in "aAI")
        or token.lower() in TELLING
    ]


def stated(notebook):
    """Return one line for each cell that states something.

    A code cell brings its numbers and comparisons, and a checksum of the outputs that nbval
    compares: when these change, the prose that reads them is to be read again.
    """
    lines = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            found = facts(cell.source, "[<>=!]=|[<>~]")
            if shown(cell) and not ignored(cell):
                found += ["=>", hashlib.sha256(shown(cell).encode()).hexdigest()[:6]]
        else:
            found = facts(cell.source, r"[^\w\s.,;:!?'\"“”’…()\[\]{}*_`#&|-]")
        if found:
            lines.append(f"{cell.id} {' '.join(found)}")
    return lines


def kept(path):
    """Return where the statements of a notebook are kept."""
    return STATED / f"{path.parent.name}-{path.stem}.txt"


if __name__ == "__main__":
    for path in LESSONS + SOLUTIONS:
        lines = stated(read(path))
        kept(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
