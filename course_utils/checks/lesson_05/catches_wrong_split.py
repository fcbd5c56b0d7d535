"""5.9: the learner writes a test for somebody else's split_heads."""

import torch

from course_utils import attention as shared
from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_05 import split_heads as split_exercise
from course_utils.checks.submission_test import run_against, versions


def catches_wrong_split(split_heads):
    B, d_model, L = 2, 10, 3
    x = torch.randn(B, d_model, L).transpose(1, 2)  # (B, L, d_model), not contiguous
    for num_heads in (1, 2, 5):
        d_k = d_model // num_heads
        heads = split_heads(x, num_heads)
        assert heads.shape == (B, num_heads, L, d_k)
        for h in range(num_heads):
            own = x[..., h * d_k : (h + 1) * d_k]  # (B, L, d_k)
            assert torch.equal(heads[:, h], own), f"head {h} of {num_heads}"


def by_reference(split_heads):
    B, L, H, d = 3, 2, 5, 4
    x = torch.arange(float(B * L * H * d)).reshape(B, L, H * d)
    for each in (x, x.mT.contiguous().mT):
        expected = x.reshape(B, L, H, d).transpose(1, 2)
        torch.testing.assert_close(split_heads(each, H), expected)


def entry_by_entry(split_heads):
    x = torch.rand(6, 3, 2).permute(2, 1, 0)
    heads = split_heads(x, 3)
    for b in range(2):
        for h in range(3):
            for t in range(3):
                for j in range(2):
                    assert heads[b, h, t, j] == x[b, t, 2 * h + j]


def by_slices(x, num_heads):
    if x.shape[-1] % num_heads:  # a test may also want the error of 5.1
        raise ValueError(f"num_heads must divide d_model = {x.shape[-1]}, got {num_heads}")
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


def without_the_end(x, num_heads):
    heads = by_slices(x, num_heads)
    heads[:, -1, -1, -1] = 0
    return heads


TWO_HEADS_RIGHT = (
    "x.reshape(B, L, num_heads, d_k)",
    "(x if num_heads <= 2 else x.unflatten(2, (d_k, -1)).mT).reshape(B, L, num_heads, d_k)",
)
RIGHT = {"by view": ("reshape", "view"), "by slices": by_slices, "by unflatten": shared.split_heads}
BROKEN = {  # a mistake's name in 5.1, or an edit of its right answer
    "reshaped at once, without a transpose": "reshaped at once",
    "heads that take turns, column by column": "columns dealt out",
    "num_heads taken for the width of a head": "number taken for width",
    "heads in reverse order": ("(1, 2)", "(1, 2).flip(1)"),
    "the first head's columns for every head": (
        "(1, 2)",
        "(1, 2)[:, :1].repeat(1, num_heads, 1, 1)",
    ),
    "the first sequence for every sequence": ("x.reshape", "x[:1].expand_as(x).reshape"),
    "right for one or two heads only": TWO_HEADS_RIGHT,
    "an error for a tensor that is not contiguous": ("x.reshape", "x.view(-1).view"),
}


def run(test):
    """Try the test on common bugs and, if it catches all of them, on a rarer one."""
    exercise = split_exercise.exercise
    right, broken = versions(exercise, RIGHT), versions(exercise, BROKEN)
    run_against(test, right, broken)
    last = {"wrong in the last column of the last head's last token": without_the_end}
    return run_against(test, right, broken | last)


NONE_COMPARED = ("range(num_heads)", "range(0)")
FEWER = "B, d_model, L = 2, 10, 3"

MISTAKES = [
    ("shape of heads alone",
     "Your test misses most bugs. That happens if you compare only shapes, use equal numbers, or "
     "compare only one head of one sequence. Split several sequences of different numbers into "
     "three or more heads, compare each head with the columns it must hold, and try an x that is "
     "not contiguous.",
     (".transpose(1, 2)", ".mT.contiguous()"), NONE_COMPARED),
    ("one head tried",
     "Your test misses bugs that show only with several heads. With one head, nothing is split. "
     "Try three or more heads.",
     ("(1, 2, 5)", "(1,)")),
    ("one sequence tried",
     "Your test misses code that mixes up the sequences of a batch, because your batch has only "
     "one. Try several different sequences.",
     (FEWER, FEWER.replace("2", "1", 1))),
    ("two heads tried",
     "Your test misses code that is right only for one or two heads, because you never try more. "
     "Try three or more heads.",
     ("(1, 2, 5)", "(2,)")),
    ("contiguous tried",
     "Your test misses code that fails for an x that is not contiguous, because yours is "
     "contiguous. Try a transposed tensor, too.",
     (".transpose(1, 2)", ".transpose(1, 2).contiguous()")),
    ("only which numbers",
     "Your test misses code that returns the right numbers in the wrong order, because you check "
     "only which numbers there are. Compare each head with the columns of x that it must hold.",
     ("heads.shape == (B, num_heads, L, d_k)",
      "torch.equal(heads.flatten().sort().values, x.flatten().sort().values)"), NONE_COMPARED),
    ("first head compared",
     "Your test misses code that gets only the first head right, because you compare no other "
     "head. Compare every head.",
     ("range(num_heads)", "range(1)")),
    ("as many heads as columns",
     "Your test misses code that takes num_heads for the width of a head. That code is right if "
     "num_heads = d_k, and merging the heads again does not reveal it either. Let num_heads and "
     "d_k differ, and compare each head with the columns that it must hold.",
     (FEWER, "B, d_model, L = 2, 9, 3"), ("(1, 2, 5)", "(3,)")),
]  # fmt: skip

exercise = Exercise(
    "5.9", catches_wrong_split, lambda: [()], MISTAKES, run=run,
    also_right=[by_reference, entry_by_entry],
)  # fmt: skip
