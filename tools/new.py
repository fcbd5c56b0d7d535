"""For authors: begin a new exercise or a new lesson, and say what is left to do.

python -m tools.new exercise 04 dilated_mask
python -m tools.new lesson 14 "Long texts: how far back can a query look?"
"""

import argparse
import re
import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools.notebooks import IGNORED, STUB, read, write

ROOT = Path(__file__).parents[1]
FEWEST = 5  # exercises of a lesson, beside the last problem
TODO = "TODO:"  # stands in the templates before what their author must replace
CHECK = '''"""{number}: TODO: what the function returns, in a few words."""

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def {name}(x):
    return x  # TODO: the right answer, one step a line, each with its shape


def inputs():
    """Return arguments of several sizes, no two dimensions alike, and one with a size of 1."""
    # TODO: what the function takes
    normal = normals({seed})
    return [(normal(3, 5),), (normal(2, 4, 6),), (normal(1, 7),)]


MISTAKES = [  # TODO: at least five
    (
        "wrong sign",
        "Your result has the wrong sign. Remove the minus.",
        ("return x", "return -x"),
    ),
]

exercise = Exercise("{number}", {name}, inputs, MISTAKES, names="L S", also_right=[])
'''
EXERCISE = """## {number} {heading}

*Easy, 10 minutes.*

TODO: what the function must do. Say "Gradients must flow back to all inputs." if the
check compares gradients."""
ANSWER = '''def {name}(x):
    """TODO: Return ... (L, S) of x (L, S)."""
    ### BEGIN SOLUTION
    return x
    ### END SOLUTION'''
SOLUTIONS = """# Exercises {lesson} · {short}

These exercises go with [lesson {lesson}](../notebooks/{file}) and take about 1 hour in all. In \
each one, fill in the function, run its cell, and run the check below it. The check tries your \
function on inputs of several sizes and tells you what is wrong. Try as often as you like. Every \
correct solution counts, unless the exercise rules it out.

⏳ not attempted yet · ❌ wrong, with a hint · ✅ correct · ⚠️ not checked, with the reason"""
DONE = """## What you have done

The results of the checks that you run in the `exercises` folder are saved. Here is your progress \
in all lessons:"""
BACK = "[Back to lesson {lesson}](../notebooks/{file}) · [the solutions](../solutions/{solutions})"
LESSON = [
    """# {lesson} · {title}

**You will be able to** TODO: what the reader can do at the end.

**Time:** about 60 minutes, plus the exercises. **Needs:** TODO: which lessons.""",
    ["import torch\n\nfrom course_utils import heatmap, predict_first, show, surprises"],
    """## TODO: the first step

TODO: what this step is for. The cell below asks for a prediction, and the one after it shows \
the result.""",
    ['first = predict_first("TODO: What does lesson {lesson} show?", ["this", "that"])'],
    [
        'weights = torch.eye(3)  # (L, S)\nshow(heatmap(weights))\n'
        'first.compare("this" if weights[0, 0] == 1 else "that")'
    ],
    "TODO: what the result shows.",
    ["def scores(q, k):\n    return q @ k.T  # (L, d) @ (d, S) -> (L, S)"],
    '## Claims, checked\n\n### "TODO: a claim that people make"',
    ['print("TODO: a result that decides it")'],
    "**False.** TODO: why, or **Holds**, and when.",
    "## What you built\n\nTODO: what it was, and where `course_utils` keeps it.",
    """**Now you:** [exercises {lesson}](../exercises/{exercises}). **Next question:** TODO: \
what is still open, or that the course ends here.""",
    ["surprises()"],
]  # fmt: skip
DO_EXERCISE = """The new exercise is {number}. The last problem was {number} and is now {last}.
Wherever TODO: stands there is something to write. `make check` lists what is left.
Next:
1. {check}: write the right answer, its inputs, at least five mistakes, and at least one right \
answer in another style (also_right).
2. {solutions}, exercise {number}: write the heading, the minutes, the text and \
the answer. Correct the total time in the first cell.
3. make check K={name}
4. .venv/bin/python -m tools.notebooks refresh {solutions}
5. make exercises"""
DO_LESSON = """README, lesson 00 and the end of the previous lesson now link to the new one.
Wherever TODO: stands there is something to write. `make check` lists what is left.
Next:
1. notebooks/{file}: write the lesson. Take lesson 03 as a model.
2. {check}: the last problem, which has no published solution. Rename it after \
what it computes: in this file, in the file's name and in solutions/{solutions}.
3. .venv/bin/python -m tools.new exercise {lesson} NAME: once for each of at least {fewest} \
exercises. Steps 6 to 8 need at least one.
4. README.md and notebooks/00_start_here.ipynb: say in their tables of lessons what is built and \
which lessons it needs, and draw the lesson into the map of lesson 00.
5. notebooks/{before}, at the end: the link is there. Write the question that leads to it. Remove \
the words that end the course.
6. .venv/bin/python -m tools.notebooks refresh notebooks/{file} solutions/{solutions}
7. make exercises
8. make check"""


def find(folder, lesson):
    """Return the path of a lesson's notebook in a folder.

    Raises
    ------
    ValueError
        If there is none.
    """
    found = sorted((ROOT / folder).glob(f"{lesson}_*.ipynb"))
    if not found:
        raise ValueError(f"there is no {folder}/{lesson}_….ipynb; write the number as its file has")
    return found[0]


def cells_of(*parts, **values):
    """Return cells: Markdown for a text, code for a list with one text."""
    return [
        new_code_cell(fill(part[0], **values))
        if isinstance(part, list)
        else new_markdown_cell(fill(part, **values))
        for part in parts
    ]


def fill(text, **values):
    """Put values in the place of their names in braces; other braces stay."""
    return re.sub(r"{(\w+)}", lambda name: str(values.get(name[1], name[0])), text)


def write_check(lesson, name, number):
    """Write the file of an exercise from the template; return its path."""
    path = ROOT / "course_utils" / "checks" / f"lesson_{lesson}" / f"{name}.py"
    taken = list(path.parent.parent.glob(f"lesson_*/{name}.py"))
    if not name.isidentifier() or taken:
        reason = f"{taken[0].relative_to(ROOT)} has it" if taken else "it is no name of a function"
        raise ValueError(f"choose another name than {name!r}: {reason}")
    path.parent.mkdir(exist_ok=True)
    seed = re.sub(r"\D", "", number)
    path.write_text(fill(CHECK, name=name, number=number, seed=seed), encoding="utf-8")
    return path.relative_to(ROOT)


def new_exercise(lesson, name):
    """Add an exercise before the last problem of a lesson; return what is left to do."""
    path = find("solutions", lesson)
    solutions = read(path)
    headings = [i for i, c in enumerate(solutions.cells) if re.match(r"## \d+b?\.\d", c.source)]
    last = solutions.cells[headings[-1]]
    number = last.source.split()[1]
    before_dot, after_dot = number.split(".")
    check = write_check(lesson, name, number)
    solutions.cells[headings[-1] : headings[-1]] = cells_of(
        EXERCISE, [ANSWER], ["check({name})"], number=number, name=name, heading="TODO: a title"
    )
    write(solutions, path)
    moved = f"{before_dot}.{int(after_dot) + 1}"
    renumber(lesson, number, moved, last.id, check)
    solutions = path.relative_to(ROOT)
    return fill(DO_EXERCISE, last=moved, check=check, solutions=solutions, name=name, number=number)


def renumber(lesson, old, new, heading, check):
    """Give the last problem of a lesson its new number: heading, check, and references to it."""
    for path in (ROOT / "course_utils" / "checks" / f"lesson_{lesson}").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path != ROOT / check and f'Exercise("{old}"' in re.sub(r"\(\s+", "(", text):
            text = text.replace(f'"""{old}:', f'"""{new}:').replace(f'"{old}"', f'"{new}"')
            path.write_text(text, encoding="utf-8")
    for folder in ["notebooks", "solutions"]:
        for path in (ROOT / folder).glob("*.ipynb"):
            notebook = nbformat.read(path, as_version=4)
            before = [cell.source for cell in notebook.cells]
            for cell in notebook.cells:
                if cell.id == heading:
                    cell.source = cell.source.replace(f"## {old} ", f"## {new} ", 1)
                pattern = rf"(?i:(exercise )){re.escape(old)}(?!\d)"
                cell.source = re.sub(pattern, rf"\g<1>{new}", cell.source)
            if [cell.source for cell in notebook.cells] != before:
                write(notebook, path)


def new_lesson(lesson, title):
    """Make a lesson with its solutions and put it on the maps; return what is left to do."""
    numbers = [path.name.split("_")[0] for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    if not re.fullmatch(r"\d\db?", lesson) or lesson <= numbers[-1] or not title.endswith("?"):
        raise ValueError(
            f"give a number of two digits above {numbers[-1]}, and a question as title, such as "
            '14 "Long texts: how far back can a query look?"'
        )
    short = title.split(":")[0].rstrip("?")
    stem = re.sub(r"\W+", "_", short.lower())
    names = {
        "lesson": lesson, "title": title, "short": short, "file": f"{lesson}_{stem}.ipynb",
        "exercises": f"{lesson}_exercises_{stem}.ipynb",
        "solutions": f"{lesson}_solutions_{stem}.ipynb",
    }  # fmt: skip
    plain = lesson.lstrip("0")
    number = f"{plain}.1"
    progress = f"progress({plain})" if plain.isdigit() else f'progress("{plain}")'
    problem_name = f"open_problem_{lesson}"
    names["check"] = write_check(lesson, problem_name, number)
    init = ROOT / names["check"].parent / "__init__.py"
    init.write_text(f'"""Lesson {lesson}: {short}."""\n', encoding="utf-8")
    write(new_notebook(cells=cells_of(*LESSON, **names)), ROOT / "notebooks" / names["file"])

    problem = re.sub("    ### BEGIN.*", f"    {STUB}", ANSWER, flags=re.S)
    cells = cells_of(
        SOLUTIONS, ["from course_utils import check, progress"], [progress],
        EXERCISE.replace("Easy, 10", "Hard, 30"), [problem], ["check({name})"], DONE, [progress],
        BACK, number=number, heading="Last problem: TODO: a title", name=problem_name, **names,
    )  # fmt: skip
    for cell in cells:
        if cell.source == progress:
            cell.metadata["tags"] = [IGNORED]
    write(new_notebook(cells=cells), ROOT / "solutions" / names["solutions"])
    link_from_maps(numbers[-1], **names)
    names["before"] = find("notebooks", numbers[-1]).name
    return fill(DO_LESSON, fewest=FEWEST, **names)


def link_from_maps(before, lesson, title, file, **_):
    """Add a lesson after the one ``before`` in both maps, and to the end of the one before."""
    entry = f"[{lesson} · {title}]"
    readme = ROOT / "README.md"
    row = re.compile(rf"^\| \[{before} · .*\n", re.M)
    line = f"| {entry}(notebooks/{file}) | TODO: what is built, and which lessons it needs |\n"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(row.sub(lambda found: found[0] + line, text), encoding="utf-8")
    add_to(
        find("notebooks", "00"),
        re.compile(rf"^- \[{before} · .*$", re.M),
        f"\n- {entry}({file}) TODO: which lessons it needs.",
    )
    link = f" TODO: reword the end of this question so that it leads to the link. → {entry}({file})"
    add_to(find("notebooks", before), re.compile(r"\*\*Next question:?\*\*.*$", re.M), link)
    link = f" · next: [lesson {lesson}](../notebooks/{file})"
    add_to(find("solutions", before), re.compile(r"^\[Back to lesson.*$", re.M), link)


def add_to(path, place, text):
    """Add a text behind the place, a pattern, in the prose of a notebook."""
    notebook = read(path)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = place.sub(lambda found: found[0] + text, cell.source, count=1)
    write(notebook, path)


def main(arguments=None):
    """Run one of the two commands; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["exercise", "lesson"])
    parser.add_argument("lesson", help="its number as files have it, such as 04")
    parser.add_argument("name", help="of the exercise's function; or the title of the lesson")
    given = parser.parse_args(arguments)
    make = new_exercise if given.kind == "exercise" else new_lesson
    try:
        print(make(given.lesson, given.name))
    except (ValueError, OSError) as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
