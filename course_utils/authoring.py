"""For authors: make the exercises from the solutions, and run notebooks reproducibly.

python -m course_utils.authoring exercises
python -m course_utils.authoring refresh [NOTEBOOK ...]
"""

import argparse
import copy
import hashlib
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
STUB = 'raise NotImplementedError("your turn")'
SOLUTION = re.compile(r"^([ \t]*)### BEGIN SOLUTION\n.*?### END SOLUTION[ \t]*$", re.M | re.S)
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


class Filled(Exception):
    """An exercise notebook holds somebody's work and must not be written over."""


def strip_solutions(notebook):
    """Return a copy of a solutions notebook with every marked answer replaced by the stub.

    Raises
    ------
    ValueError
        If no cell holds an answer between ``### BEGIN SOLUTION`` and ``### END SOLUTION``, or a
        marker is left that has no partner.
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
        raise ValueError("the notebook has no ### BEGIN SOLUTION ... ### END SOLUTION")
    exercise.metadata["course"] = {"generated": fingerprint(exercise)}
    return exercise


def fingerprint(notebook):
    """Return a checksum of all cells' sources; whatever a learner writes changes it."""
    sources = "\0".join(f"{cell.cell_type}\0{cell.source}" for cell in notebook.cells)
    return hashlib.sha256(sources.encode()).hexdigest()[:16]


def write_exercise(solution_path, exercise_path):
    """Generate one exercise notebook from its solutions.

    Raises
    ------
    Filled
        If the exercise on disk is not as it was generated: it holds somebody's work.
    """
    exercise = strip_solutions(nbformat.read(solution_path, as_version=4))
    if exercise_path.exists():
        present = nbformat.read(exercise_path, as_version=4)
        if present.metadata.get("course", {}).get("generated") != fingerprint(present):
            raise Filled(
                f"{exercise_path.name} was edited since it was generated and is left alone; "
                "move it away to generate it afresh"
            )
    write(exercise, exercise_path)


def refresh(path):
    """Execute a notebook from top to bottom and store it; the same again changes no byte.

    Cells tagged ``nbval-ignore-output`` show times, which differ in every run. As long as no cell
    of the notebook has changed they keep the outputs they have.
    """
    notebook = nbformat.read(path, as_version=4)
    unchanged = notebook.metadata.get("course", {}).get("executed") == fingerprint(notebook)
    before = {cell.id: copy.deepcopy(cell.get("outputs")) for cell in notebook.cells}
    NotebookClient(
        notebook,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,  # else slow cells print in as many pieces as they take
        resources={"metadata": {"path": str(path.parent)}},  # as JupyterLab does
    ).execute()
    for cell in notebook.cells:
        if unchanged and before[cell.id] and "nbval-ignore-output" in cell.metadata.get("tags", []):
            cell.outputs = before[cell.id]
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = cell.execution_count
        for output in cell.get("outputs", []):
            # Ids of live widgets are new in every run and mean nothing without their kernel.
            view = output.get("data", {}).get("application/vnd.jupyter.widget-view+json")
            if view:
                view["model_id"] = hashlib.sha256(cell.id.encode()).hexdigest()[:32]
    notebook.metadata["course"] = {"executed": fingerprint(notebook)}
    write(notebook, path)


def write(notebook, path):
    """Store a notebook with only the metadata that matters."""
    kept = {"kernelspec": KERNEL}
    if "course" in notebook.metadata:
        kept["course"] = notebook.metadata["course"]
    notebook.metadata = nbformat.from_dict(kept)
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def main(arguments=None):
    """Run one of the two commands; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["exercises", "refresh"])
    parser.add_argument("notebooks", nargs="*", type=Path, help="all, if none is named")
    given = parser.parse_args(arguments)
    if given.command == "refresh":
        executed = [ROOT / "notebooks", ROOT / "solutions"]
        for path in given.notebooks or [p for f in executed for p in sorted(f.glob("*.ipynb"))]:
            print(f"running {path.name}")
            refresh(path.resolve())
        return 0
    code = 0
    for solution in given.notebooks or sorted((ROOT / "solutions").glob("*.ipynb")):
        try:
            write_exercise(solution, ROOT / "exercises" / solution.name)
        except Filled as reason:
            print(reason, file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
