"""3.1: finite logits at which the naive softmax overflows."""

import math

import torch

from course_utils.checks.compare import read
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones


def overflowing_logits(dtype):
    edge = math.log(torch.finfo(dtype).max)  # e to this power is the largest number there is
    return torch.tensor([edge + 2, 0.0], dtype=dtype)  # (n,)


def inputs():
    return [(dtype,) for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)]


def breaks_the_naive(answer, dtype):
    """Return True if the logits do what they should; else complain, for many logits are right."""
    (x,) = call_with_clones(answer, dtype)
    if x is None:
        hint = f"for {dtype} it returns None: return a tensor (n,) for each of the four formats"
        raise NamedMistake("nothing for a format", hint)
    edge = math.log(torch.finfo(dtype).max)
    if read(x) is None or x.ndim != 1 or len(x) < 2:
        fault = "not a row"
    elif x.dtype != dtype:
        fault = "wrong dtype"
    elif not x.isfinite().all():
        fault = "logits not finite"
    elif x.detach().exp().sum().isinf():  # a power, or the sum of powers that are finite
        return [torch.tensor(True)]
    elif not x.exp().any():
        fault = "underflow"
    else:
        fault = "only low logits" if -x.min() > edge else "no overflow"
    raise NamedMistake(fault, next(hint for name, hint, _ in MISTAKES if name == fault))


MISTAKES = [
    ("not a row", "return a tensor (n,) of two or more logits",
     "torch.tensor(1000.0, dtype=dtype)"),
    ("wrong dtype",
     "the logits must have the dtype asked for: torch.tensor([...], dtype=dtype)",
     "torch.tensor([1000, 0], dtype=torch.int64)"),
    ("logits not finite",
     "a logit is itself infinite or NaN in one of the formats, and no softmax can mend that: "
     "float16 ends at 65504; choose smaller logits", ("edge + 2", "torch.inf")),
    ("underflow",
     "the naive softmax fails, but by underflow: every power is 0; overflow is asked, so go above "
     "0", "torch.tensor([-1000.0, -1001.0], dtype=dtype)"),
    ("only low logits",
     "a very low logit gives a power of 0, not inf; overflow is at the other end",
     "torch.tensor([0.0, -1000.0], dtype=dtype)"),
    ("no overflow",
     "the naive softmax still works in at least one of the formats; the largest power it can hold "
     "is e to math.log(torch.finfo(dtype).max)", ("edge + 2", "2.0")),
]  # fmt: skip

exercise = Exercise(
    "3.1", overflowing_logits, inputs, MISTAKES, run=breaks_the_naive,
    also_right=[lambda dtype: torch.tensor([1000, 999, 3], dtype=dtype),
                lambda dtype: torch.full((50,), math.log(torch.finfo(dtype).max) - 1, dtype=dtype)],
)  # fmt: skip
