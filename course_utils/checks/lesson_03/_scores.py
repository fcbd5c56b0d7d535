"""Lesson 03's shared pieces: logits of every size, on which a softmax or its sum may fail."""

import torch
from torch.overrides import TorchFunctionMode

from course_utils.checks.compare import difference, read
from course_utils.checks.exercise import NamedMistake, call_with_clones
from course_utils.checks.inputs import normals

INF = torch.inf
MANY = 2**16  # float16 ends below this sum of ones
LOW = -17.4  # e to this is 0 in float16


def logits_and_dims():
    """Return (x, dim) pairs: far apart, far from 0, with −inf, ties, in all formats, in any order
    in memory, and at last more than float16 can count, or add up; of one, dim is left to its
    default."""
    normal = normals(31)
    far_apart = torch.tensor(
        [[1000.0, 1001, 999], [-800, -801, -803], [0, 1, 3], [-690, -692, -691]]
    )
    gaps = [[-400.0, -401, -403, -409], [450, 442, 441.5, -350], [2, 2, 2, -INF], [0, -INF, 8, 8]]
    low = [[-800.0, -INF, -801], [-20_000, -20_001, -20_002], [20_000, 19_999, -INF]]
    allowed = normal(4, 6)
    allowed[1, 2:], allowed[3, 0] = -INF, -INF
    beside_many = torch.full((2, MANY), LOW, dtype=torch.float16)
    beside_many[:, -1] = 0  # its weight is 0.998; last, so that float32 can add it up
    half = torch.tensor([[13.0, 12.5, 0.0], [-30.0, -31.0, -29.0], [20_000, 20_000, -20_000]])
    batch = normal(2, 3, 4)
    return [
        (normal(3, 5), -1),
        (normal(5), 0),
        (batch, 0),
        (batch, 1),
        (batch, -2),
        (normal(2, 4, 3),),  # without dim
        (normal(3, 4) + 1000, -1),
        (200 * normal(3, 4), -1),
        (far_apart.double(), 1),
        (far_apart.double().T.contiguous(), 0),
        (torch.tensor(gaps).double(), -1),
        (torch.tensor(low).double(), -1),
        (allowed, -1),
        (half.half(), -1),
        (normal(2, 3).bfloat16() + 100, -1),
        (normal(2, 5).float() - 800, -1),
        (1e6 + 0.01 * normal(3, 4), -1),  # all the same in float32
        (normal(1, 3, 5), -1),
        (normal(4, 1), -1),
        (normal(3, 1, 4), -1),
        (normal(50, 2).T, 1),  # not contiguous
        (torch.zeros(3, MANY, dtype=torch.float16), -1),
        (beside_many, -1),
    ]


class Calls(TorchFunctionMode):
    """Collect the names of PyTorch's functions that are called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def see_that_nothing_is_added(result, targets):
    """Complain if a tuple, of one key or part, is off by more than float32 rounds, but not much."""
    results = map(read, result if isinstance(result, tuple | list) else ())
    for got, right in zip(results, targets, strict=False):
        if got is not None and got.shape == right.shape:
            if 5e-7 < (got / right - 1).abs().max() < 1e-3:
                hint = (
                    "Your result is off by a millionth or more where there is only one key or "
                    "part. If you add a small number to a sum (an eps), such errors add up from "
                    "step to step. Divide by the sum itself, and by 1 where it is 0."
                )
                raise NamedMistake("epsilon in the sum", hint)


def survives_many(answer, reference, others, x, dim):
    """Return whether more ones than float16 can count leave a result other than 0 and infinity;
    beside many low logits, whether the last weight is another than 1.

    1 if so, or if an answer is wrong on other inputs; 0 if not. One that goes through the logits
    one by one or leaves PyTorch is slow: of it only 4096 ones are asked, and -1 is returned if its
    sum ends at 2048, after which float16 counts no ones.
    """
    for args in others:
        if args[0].shape[-1] < MANY and difference(
            call_with_clones(answer, *args)[0], reference(*args)
        ):
            return torch.tensor(1)
    calls = []
    for n in (2, 4):
        with Calls() as each:
            answer(x[:, :n].detach().clone(), dim)
        calls.append(each.names)
    ones = not x.any()
    if calls[0] != calls[1] or {"tolist", "item", "numpy", "__array__"} & set(calls[0]):
        if not ones:
            return torch.tensor(1)
        few = x[:1, :4096].detach()
        result, right = read(answer(few.clone(), dim)), reference(few, dim).double()
        alike = result is not None and result.shape == right.shape
        return torch.tensor(1 if alike and torch.allclose(result, right, rtol=0.05) else -1)
    result = read(answer(x.detach().clone(), dim))
    if result is None or not result.isfinite().all():
        return torch.tensor(0)
    return torch.tensor(int(result.all() if ones else ((result[:, -1] - 1).abs() > 0.001).all()))
