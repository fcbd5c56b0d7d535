"""Checks see one-step mistakes that nobody wrote down.

Of all mutants of references and right answers a sample runs here; `python tests/test_mutants.py`
runs all, and prints those that are accepted. What is accepted and as right as the answer itself
stands in `equivalents/`, with the reason.
"""

import random
import sys
from pathlib import Path
from unittest import mock

import pytest

from answers import RIGHT
from course_utils import check
from course_utils.checks import sandbox
from course_utils.checks.exercise import EXERCISES
from mutants import mutants

EQUIVALENT = {
    tuple(part.strip() for part in line.split("|")[:3])
    for path in (Path(__file__).parent / "equivalents").glob("*.txt")
    for line in path.read_text().splitlines()
}
SAMPLE = 4  # of each exercise; all take minutes


def all_mutants(name):
    """Return (exercise, answer, description, what makes it) of the reference and right answers."""
    answers = [EXERCISES[name].reference, *(each for other, each in RIGHT if other == name)]
    return [
        (name, answer.__name__, description, make)
        for answer in answers
        if getattr(answer, "__name__", "<lambda>") != "<lambda>"
        for description, make in mutants(answer)
    ]


def is_caught(name, answer, description, make):
    # Whether it is right is settled before its mistake is looked for, which takes far longer.
    with mock.patch.object(EXERCISES[name], "mistakes", []):
        caught = check(make(), name).status != "correct"
    return caught or (name, answer, description) in EQUIVALENT


@pytest.mark.parametrize("name", EXERCISES)
def test_a_mutant_of_a_right_answer_is_refused_or_known_to_be_right(name, monkeypatch):
    monkeypatch.setattr(sandbox, "SECONDS", 1.0)  # some loop for ever
    made = all_mutants(name)
    sample = random.Random(name).sample(made, min(SAMPLE, len(made)))
    assert sample, "no mutant"
    for each in sample:
        assert is_caught(*each), each


if __name__ == "__main__":
    sandbox.SECONDS = 1.0
    made = [each for name in EXERCISES for each in all_mutants(name)]
    accepted = [each[:3] for each in made if not is_caught(*each)]
    print(*map(" | ".join, accepted), f"{len(made)} mutants, {len(accepted)} accepted", sep="\n")
    sys.exit(bool(accepted))
