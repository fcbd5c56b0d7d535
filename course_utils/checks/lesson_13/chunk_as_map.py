"""13.1: what the function returns, in a few words."""

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def open_problem_13(x):
    return x  # the right answer, one step a line, each with its shape


def inputs():
    """Return arguments of several sizes, no two dimensions alike, and one with a size of 1."""
    normal = normals(131)
    return [(normal(3, 5),), (normal(2, 4, 6),), (normal(1, 7),)]


MISTAKES = [
    (
        "wrong sign",
        "Your result has the wrong sign. Remove the minus.",
        ("return x", "return -x"),
    ),
]

exercise = Exercise("13.1", open_problem_13, inputs, MISTAKES, names="L S", also_right=[])
