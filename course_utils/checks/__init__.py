"""Checks for the exercises: ``check(answer)`` and ``progress()``.

Each exercise has a file in its lesson's folder: the right answer, inputs, and mistakes with their
hints. To see how they become a verdict, read `exercise`, `source_edits` (a mistake is an edit of
the right answer), `known_results`, `judge`, `compare` and `diagnosis`, in this order. If no mistake
fits, `unknown_mistake` asks `result_hints`, `result_relations` and `where_right`. The modules named
`submission_` are for answers that are layers, kernels or tests. `judge_process` runs all of this in
a process of its own, to which `pickled_answer` sends the answer.
"""

import importlib
from pathlib import Path

from IPython import get_ipython

from course_utils import json_store
from course_utils.checks import judge_process, newest_version
from course_utils.checks.judge import check
from course_utils.checks.progress import progress

__all__ = ["check", "progress"]

for _path in sorted(Path(__file__).parent.glob("lesson_*/[!_]*.py")):  # each adds its exercise
    importlib.import_module(f"{__name__}.{_path.parent.name}.{_path.stem}")

newest_version.watch()
# elsewhere the first check does it
if get_ipython() and json_store.working_directory().name == "exercises":
    judge_process.start()
