"""For authors: make the exercises from the solutions, and run notebooks reproducibly.

python -m tools.notebooks exercises
python -m tools.notebooks refresh [--redraw] [NOTEBOOK ...]
"""

import argparse
import copy
import hashlib
import itertools
import json
import os
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from course_utils.figures import DIVERGING, SEQUENTIAL

ROOT = Path(__file__).parents[1]
STUB = 'raise NotImplementedError("your turn")'
SOLUTION = re.compile(r"^([ \t]*)### BEGIN SOLUTION\n.*?### END SOLUTION[ \t]*$", re.M | re.S)
# Where a lesson asks, in prose or by a control
ASKS = re.compile(r"\*\*Predict first|\bpredict_first\(")
# Beside what is folded JupyterLab shows the first line of the first output: this one has none.
# There is nothing in it to compare, and running the cell takes it away.
VEIL = nbformat.v4.new_output("display_data")
VIEW = "application/vnd.jupyter.widget-view+json"
IGNORED = "nbval-ignore-output"  # the tag of cells whose outputs nbval does not compare
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


class Filled(Exception):
    """An exercise notebook holds somebody's work and must not be written over."""


def strip_solutions(notebook, lesson="LESSON"):
    """Return a copy of a solutions notebook with every marked answer replaced by the stub.

    Its lesson is named if it has no answer yet.

    Raises
    ------
    ValueError
        If no cell holds an answer between ``### BEGIN SOLUTION`` and ``### END SOLUTION``, or if
        one marker stands without the other.
    """
    exercise = copy.deepcopy(notebook)
    found = 0
    for cell in exercise.cells:
        if cell.cell_type == "code":
            cell.source, n = SOLUTION.subn(rf"\1{STUB}", cell.source)
            cell.outputs, cell.execution_count = [], None
            found += n
            if left := re.search(r".*(BEGIN|END) SOLUTION.*", cell.source):
                raise ValueError(f"a marker without its partner: {left[0].strip()!r}")
    if not found:
        raise ValueError(
            f"it has no exercise yet; run: .venv/bin/python -m tools.new exercise {lesson} NAME"
        )
    exercise.metadata = nbformat.from_dict({})
    exercise.metadata["course"] = {"generated": state(exercise)}
    return exercise


def checksum(*parts):
    """Return sixteen characters that change with any of the strings."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def fingerprint(notebook):
    """Return a checksum of the sources of all code cells, which decide what the outputs are."""
    return checksum(*(cell.source for cell in notebook.cells if cell.cell_type == "code"))


def state(notebook):
    """Return a checksum of all that a notebook holds; whatever a learner does changes it.

    Only what Jupyter itself notes down when it saves, the kernel and its language, is left out.
    """
    by_jupyter = {"course", "kernelspec", "language_info"}
    metadata = {name: notebook.metadata[name] for name in notebook.metadata.keys() - by_jupyter}
    return checksum(json.dumps([notebook.cells, metadata], sort_keys=True))


def picture_mark(cell, output):
    """Return a checksum that ties a picture to its code, its description and the color maps."""
    parts = cell.source, output.data["text/plain"], output.data["image/png"]
    return checksum(*parts, SEQUENTIAL, DIVERGING)


def has_mark(cell, output):
    """Say whether a stored picture is still what its cell draws."""
    return output.metadata.get("picture") == picture_mark(cell, output)


def hide_results(notebook):
    """Fold away the outputs that answer a prediction; JupyterLab shows them once they are run.

    Those are the outputs of the code cells behind the one that asks, up to the next prose.
    """
    asked = answered = False
    for cell in notebook.cells:
        asks = bool(ASKS.search(cell.source))
        if asks or (answered and cell.cell_type == "markdown"):
            asked, answered = asks, False
        if cell.cell_type == "code":
            outputs = [output for output in cell.outputs if output != VEIL]
            hidden = asked and not asks and bool(outputs)
            answered = answered or hidden
            cell.outputs = [VEIL, *outputs] if hidden else outputs
            folds = {**cell.metadata.pop("jupyter", {}), "outputs_hidden": hidden}
            if folds := {name: folded for name, folded in folds.items() if folded}:
                cell.metadata["jupyter"] = folds


def read(path):
    """Read a notebook.

    Raises
    ------
    ValueError
        If the file is no notebook.
    """
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except OSError:
        raise
    except Exception as reason:  # nbformat and json raise a dozen kinds, by what is broken
        raise ValueError(
            f"{path.parent.name}/{path.name} cannot be read as a notebook "
            f"({type(reason).__name__}); is it cut off? Move it away, or take it from git again"
        ) from reason
    return notebook


def generated(solution_path):
    """Return the exercise notebook of a solutions notebook."""
    return strip_solutions(read(solution_path), lesson=solution_path.name.split("_")[0])


def write_exercise(solution_path, exercise):
    """Store the exercise notebook that was generated from its solutions.

    Raises
    ------
    Filled
        If the exercise on disk is not as it was generated: it holds somebody's work.
    """
    name = solution_path.name.replace("_solutions_", "_exercises_")
    exercise_path = ROOT / "exercises" / name
    if exercise_path.exists():
        present = read(exercise_path)
        if present.metadata.get("course", {}).get("generated") != state(present):
            raise Filled(
                f"{exercise_path.name} was edited since it was generated and is left alone; "
                "move it away to generate it afresh"
            )
    write(exercise, exercise_path)


def refresh(path, redraw=False):
    """Execute a notebook from top to bottom and store it; the same again changes no byte.

    What may differ in every run without a reason stays as it was stored, unless ``redraw``: a
    picture whose code, description and color maps are the same, and, as long as no code cell of
    the notebook has changed, the outputs of cells tagged ``nbval-ignore-output``, such as times.
    """
    notebook = read(path)
    unchanged = not redraw and notebook.metadata.get("course", {}).get("executed") == fingerprint(
        notebook
    )
    before = {cell.id: copy.deepcopy(cell.get("outputs", [])) for cell in notebook.cells}
    NotebookClient(
        notebook,
        kernel_name="python3",
        record_timing=False,
        extra_arguments=["--IPKernelApp.log_level=ERROR"],  # it warns of its own transport
        coalesce_streams=True,  # else slow cells print in as many pieces as they take
        resources={"metadata": {"path": str(path.parent)}},  # as JupyterLab does
    ).execute()
    for cell in notebook.cells:
        stored = pictures(before[cell.id])
        still_valid = unchanged and all(has_mark(cell, output) for output in stored)
        if still_valid and before[cell.id] and IGNORED in cell.metadata.get("tags", []):
            cell.outputs = before[cell.id]
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = cell.execution_count
        drawn = pictures(cell.get("outputs", []))
        for output, old in itertools.zip_longest(drawn, stored[: len(drawn)]):
            same = old and output.data["text/plain"] == old.data["text/plain"]
            # an explorer's picture comes from a file, and is always the right one
            if same and not redraw and VIEW not in output.data:
                if has_mark(cell, old):
                    output.data["image/png"] = old.data["image/png"]
            output.metadata["picture"] = picture_mark(cell, output)
        for output in cell.get("outputs", []):
            # Ids of live widgets are new in every run and mean nothing without their kernel.
            if view := output.get("data", {}).get(VIEW):
                view["model_id"] = hashlib.sha256(cell.id.encode()).hexdigest()[:32]
    hide_results(notebook)
    notebook.metadata["course"] = {"executed": fingerprint(notebook)}
    write(notebook, path)


def pictures(outputs):
    """Return the outputs of a cell that hold a picture."""
    return [output for output in outputs if "image/png" in output.get("data", {})]


def write(notebook, path):
    """Store a notebook with only the metadata that matters, whole or not at all."""
    metadata = {"kernelspec": KERNEL}
    if "course" in notebook.metadata:
        metadata["course"] = notebook.metadata["course"]
    notebook.metadata = nbformat.from_dict(metadata)
    nbformat.validate(notebook)
    part = path.with_name(path.name + ".part")  # a full disk or a kill leaves the old file
    try:
        nbformat.write(notebook, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def main(arguments=None):
    """Run one of the two commands; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["exercises", "refresh"])
    parser.add_argument("notebooks", nargs="*", type=Path, help="all, if none is named")
    parser.add_argument("--redraw", action="store_true", help="store all pictures and times again")
    given = parser.parse_args(arguments)
    folders = {"exercises": ["solutions"], "refresh": ["notebooks", "solutions"]}[given.command]
    paths = given.notebooks or [p for f in folders for p in sorted((ROOT / f).glob("*.ipynb"))]
    failed = []

    def attempt(step, path, *others):
        try:
            return step(path, *others)
        except (Filled, ValueError, OSError) as reason:
            print(f"{path.name}: {reason}", file=sys.stderr)
            failed.append(path)

    if given.command == "refresh":
        for path in paths:
            print(f"running {path.name}")
            attempt(refresh, path.resolve(), given.redraw)
    else:
        exercises = [attempt(generated, path) for path in paths]
        if failed:
            print("No exercise notebook was written.", file=sys.stderr)
        else:
            for path, exercise in zip(paths, exercises, strict=True):
                attempt(write_exercise, path, exercise)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
