"""3.1: finite scores for which the naive softmax overflows."""

import math

import torch

from course_utils.checks.compare import read
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones


def overflowing_logits(dtype):
    edge = math.log(torch.finfo(dtype).max)  # e^edge is the largest number of this format
    return torch.tensor([edge + 2, 0.0], dtype=dtype)  # (n,)


def inputs():
    return [(dtype,) for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)]


def breaks_the_naive(answer, dtype):
    """Return True if the scores overflow, since many do; else say what is wrong with them."""
    (x,) = call_with_clones(answer, dtype)
    if x is None:
        hint = f"Your result for {dtype} is None. Return a tensor (n,) for each format."
        raise NamedMistake("nothing for a format", hint)
    edge = math.log(torch.finfo(dtype).max)
    if read(x) is None or x.ndim != 1 or len(x) < 2:
        fault = "not a row"
    elif x.dtype != dtype:
        fault = "wrong dtype"
    elif not x.isfinite().all():
        fault = "scores not finite"
    elif x.detach().exp().sum().isinf():  # an exponential, or their sum
        return [torch.tensor(True)]
    elif not x.exp().any():
        fault = "underflow"
    else:
        fault = "only low scores" if -x.min() > edge else "no overflow"
    raise NamedMistake(fault, next(hint for name, hint, _ in MISTAKES if name == fault))


MISTAKES = [
    ("not a row",
     "Your result is not a row of scores. Return a tensor (n,) with two or more scores.",
     "torch.tensor(1000.0, dtype=dtype)"),
    ("wrong dtype",
     "Your scores do not have the dtype that was passed. Create them with torch.tensor([...], "
     "dtype=dtype).",
     "torch.tensor([1000, 0], dtype=torch.int64)"),
    ("scores not finite",
     "In at least one format, one of your scores is infinite or NaN, but all scores must be "
     "finite. Choose smaller scores. For example, the largest float16 number is 65504.",
     ("edge + 2", "torch.inf")),
    ("underflow",
     "The naive softmax fails for your scores in at least one format, but not by overflow: every "
     "exponential underflows to 0. Choose a score above math.log(torch.finfo(dtype).max), so that "
     "its exponential overflows.",
     "torch.tensor([-1000.0, -1001.0], dtype=dtype)"),
    ("only low scores",
     "Your very low score has an exponential near 0, not inf, so nothing overflows. Choose a very "
     "high score instead, above math.log(torch.finfo(dtype).max).",
     "torch.tensor([0.0, -1000.0], dtype=dtype)"),
    ("no overflow",
     "The naive softmax still works for your scores in at least one format. An exponential "
     "overflows if its score is above math.log(torch.finfo(dtype).max). Choose such a score.",
     ("edge + 2", "2.0")),
]  # fmt: skip

exercise = Exercise(
    "3.1", overflowing_logits, inputs, MISTAKES, run=breaks_the_naive,
    also_right=[lambda dtype: torch.tensor([1000, 999, 3], dtype=dtype),
                lambda dtype: torch.full((50,), math.log(torch.finfo(dtype).max) - 1, dtype=dtype)],
)  # fmt: skip
