"""Shared by lesson 03's exercises: scores on which a softmax or its sum may fail."""

import torch
from torch.overrides import TorchFunctionMode

from course_utils.checks.compare import difference, read
from course_utils.checks.exercise import NamedMistake, call_with_clones
from course_utils.checks.inputs import normals

INF = torch.inf
MANY = 2**16  # so many ones add up to more than float16 can hold
LOW = -17.4  # e^-17.4 is 0 in float16
STEPS = 200  # so many times an epsilon of 1e-8 shows


def scores_and_dims():
    """Return pairs (x, dim): scores far apart or far from 0, with −inf, with ties, in all formats,
    not contiguous, and, at the end, more scores than float16 can count. One has no dim, so that the
    default is used."""
    normal = normals(31)
    far_apart = torch.tensor(
        [[1000.0, 1001, 999], [-800, -801, -803], [0, 1, 3], [-690, -692, -691]]
    )
    gaps = [[-400.0, -401, -403, -409], [450, 442, 441.5, -350], [2, 2, 2, -INF], [0, -INF, 8, 8]]
    low = [[-800.0, -INF, -801], [-20_000, -20_001, -20_002], [20_000, 19_999, -INF]]
    beyond_any_limit = [[-1e6, -1e6 - 1, -INF], [-1e10, -2e10, -INF]]
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
        (torch.tensor(beyond_any_limit).double(), -1),
        (torch.tensor([[30.0, 15, 5, -10]]).double(), -1),  # weights down to 4e-18
        (allowed, -1),
        (half.half(), -1),
        (normal(2, 3).bfloat16() + 100, -1),
        (torch.tensor([[0.3, -5.1, -4.7], [7.1, 2.3, 3.9]]).bfloat16(), -1),  # x − m is not exact
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


EPSILON_HINT = (
    "Your result is slightly off even with a single key or part. If you add a small number (an "
    "epsilon) to a sum, leave it out. Divide by the sum itself, and by 1 where the sum is 0."
)


def refuse_epsilon(result, targets, hint=EPSILON_HINT):
    """Complain if a tuple is slightly off, by more than the rounding of float32.

    With only one key or part, no sum is rounded, so the error must be an epsilon.
    """
    results = map(read, result if isinstance(result, tuple | list) else ())
    for got, right in zip(results, targets, strict=False):
        if got is not None and got.shape == right.shape:
            if 5e-7 < (got / right - 1).abs().max() < 1e-3:
                raise NamedMistake("epsilon in the sum", hint)


def result_for_many(answer, reference, others, x, dim):
    """Return 1 if an answer gets the weights of very many half-precision scores right, else 0.

    For equal scores, the weights must be neither 0 nor infinite. For one score of 0 beside many
    low ones, its weight must be below 1. An answer that is wrong on other inputs gets 1, so that it
    is told about these first. Answers that loop over the scores or leave PyTorch are slow. They get
    4096 equal scores at most, and -1 if their sum stops at 2048, where float16 cannot count on.
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
