"""A learner's error is told with its likely cause and the line where it came up."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_utils.checks.errors import explained

M, V, B = torch.ones(5, 4), torch.ones(3), torch.ones(2, 5, 4)


def of(function):
    """Return what is told of the error that a function raises."""
    with pytest.raises(Exception) as raised:
        function()
    return explained(raised.value)


def branch():
    if M.ndim == 3:
        found = 1
    return found


def forever():
    return forever()


class Unready(nn.Module):
    def __init__(self):
        self.W_q = nn.Linear(2, 2)


CASES = [
    (lambda: M.transpose(1, 2), "count from the end, -1 and -2"),
    (lambda: M.sum(dim=3), "count from the end, -1 and -2"),
    (lambda: M[0, 0, 0], "count from the end, -1 and -2"),
    (lambda: M @ M, "is a transpose missing"),
    (lambda: torch.ones(2, 5, 4) @ torch.ones(2, 5, 4), "is a transpose missing"),
    (lambda: M @ V, "is a transpose missing"),
    (lambda: M - M.sum(dim=-1), "keepdim=True"),
    (lambda: M + V, "keepdim=True"),
    (lambda: M.reshape(3, 3), "keepdim=True"),
    (lambda: [one for one, two, three in [M.shape]], "inputs may come with or without a batch"),
    (lambda: [one for one, two in [B.shape]], "inputs may come with or without a batch"),
    (lambda: [one for one, two in [(1, 2, 3)]], "go through them in a loop"),
    (lambda: (each for each in M)[0], "no [0] and no length"),
    (lambda: len(each for each in M), "no [0] and no length"),
    (lambda: 0 < V < 1, "put each comparison in parentheses"),
    (lambda: torch.bmm(M, M), "one number of dimensions only"),
    (lambda: torch.einsum("bld,bsd->bls", M, M), "einsum needs a letter for each dimension"),
    (lambda: M.T.view(20), "use .reshape()"),
    (lambda: M - M.max(dim=-1, keepdim=True), "take .values"),
    (lambda: M.max(dim=-1)[..., None], "take .values"),
    (lambda: bool(M > 0), "work entry by entry"),
    (lambda: float(V), "where one is needed"),
    (lambda: V.double() @ M.new_ones(3), "the dtype of the inputs"),
    (lambda: M.int().softmax(-1), "the dtype of the inputs"),
    (lambda: (lambda q, k: q)(M), "an argument is missing or too many"),
    (lambda: (lambda q: q)(M, k=M), "an argument is missing or too many"),
    (lambda: M.softmax(), "an argument is missing or too many"),
    (lambda: torch.zeros(dtype=M.dtype), "an argument is missing or too many"),
    (lambda: torch.max(M, 0.0), "an argument is missing or too many"),
    (lambda: torch.cat([B, torch.ones(5, 1, dtype=B.dtype)]), "these shapes do not fit together"),
    (lambda: torch.cat([M, M[:3]], dim=-1), "these shapes do not fit together"),
    (lambda: torch.stack([M, V]), "these shapes do not fit together"),
    (lambda: torch.mm(B, M), "one number of dimensions only"),
    (lambda: V[V], "`for i in range(len(x))` goes through places"),
    (lambda: range(V), "range(len(x))"),
    (lambda: range(V.shape), "range(len(x))"),
    (lambda: V @ nn.Linear(3, 3), "a layer is called"),
    (lambda: torch.cat(M, dim=0), "together, in a list"),
    (lambda: M & M, "masks of true and false"),
    (lambda: ~M, "masks of true and false"),
    (branch, "in a branch that was not taken"),
    (lambda: undefined, "is an import missing"),  # noqa: F821
    (lambda: None[0], "something is None"),
    (forever, "without an end"),
    (lambda: [1][3], "counts too far"),
    (lambda: M[7], "counts too far"),
    (lambda: F.linear(M, M[0:3, 0:3]), "is a transpose missing"),
    (lambda: B @ B.T, ".transpose(-2, -1) the last two"),
    (lambda: torch.Tensor(M) @ M, "is a transpose missing"),
    (lambda: torch.sqrt(2.0), "n ** 0.5"),
    (lambda: Unready(), "super().__init__()"),
    (lambda: M[torch.tensor([])], "name the dtype, torch.long"),
    (lambda: V.shape[1], "inputs may come without a batch"),
    (lambda: __import__("no_such_library"), "PyTorch alone will do"),
]


@pytest.mark.parametrize("function, words", CASES)
def test_the_likely_cause_comes_first(function, words):
    found = of(function)
    assert words in found.split("; it raised ")[0] and "\n" not in found


def test_a_dtype_in_the_learners_line_is_not_what_went_wrong():
    sizes = {torch.float16: 16}
    for answer in (lambda: sizes[M.dtype], lambda: M.dtype.max):
        assert of(answer).startswith("it raised ")


def test_an_error_of_unknown_cause_is_told_as_it_is():
    def answer():
        raise KeyError("oh")

    line = answer.__code__.co_firstlineno + 1
    assert of(answer) == f"""it raised KeyError: 'oh' in line {line}, `raise KeyError("oh")`"""


def test_the_line_is_the_learners_own_not_pytorchs():
    def answer(x):
        return F.softmax(x, -1)

    line = answer.__code__.co_firstlineno + 1
    assert of(lambda: answer("x")).endswith(f" in line {line}, `return F.softmax(x, -1)`")


def test_an_error_that_came_from_no_line_has_none():
    assert explained(ZeroDivisionError("oh")) == "it raised ZeroDivisionError: oh"
