"""A learner's error is explained by its likely cause and the line where it was raised."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_utils.checks.errors import explained, summarize

M, V, B = torch.ones(5, 4), torch.ones(3), torch.ones(2, 5, 4)
ROWS = (row for row in M)


def explanation(function):
    """Return how the error that a function raises is explained."""
    with pytest.raises(Exception) as raised, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function()
    return explained(raised.value)


def unset():
    if M.ndim == 3:
        entry = 1
    return entry


def forever():
    return forever()


class Unready(nn.Module):
    def __init__(self):
        self.W_q = nn.Linear(2, 2)


CASES = {  # a word of the likely cause, and what raises such errors
    "-1 and -2": [lambda: M.transpose(1, 2), lambda: M.sum(dim=3), lambda: M[0, 0, 0]],
    "a transpose missing": [
        lambda: M @ M,
        lambda: B @ B,
        lambda: M @ V,
        lambda: M.T @ M.T,
        lambda: F.linear(M, M.T),
    ],
    ".transpose(-2, -1)": [lambda: B @ B.T],
    "keepdim=True": [lambda: M - M.sum(dim=-1), lambda: M + V, lambda: M.reshape(3, 3)],
    "do not fit together": [
        lambda: torch.cat([B, torch.ones(5, 1)]),
        lambda: torch.cat([M, M[:3]], dim=-1),
        lambda: torch.stack([M, V]),
    ],
    "x.shape[-1]": [
        lambda: [one for one, two, three in [M.shape]],
        lambda: [one for one, two in [B.shape]],
    ],
    "unpacked along its first dimension": [lambda: [one for one, two in [(1, 2, 3)]]],
    "generator": [lambda: ROWS[0], lambda: len(ROWS)],
    "parentheses": [lambda: 0 < V < 1, lambda: bool(M > 0)],
    "one fixed number of dimensions": [lambda: torch.bmm(M, M), lambda: torch.mm(B, M)],
    "one row at a time": [lambda: torch.outer(M, M), lambda: torch.dot(M, M)],
    "einsum": [lambda: torch.einsum("bld,bsd->bls", M, M)],
    ".reshape()": [lambda: M.T.view(20), lambda: B.permute(0, 2, 1).view(2, 20)],
    "no_grad()": [lambda: nn.Linear(3, 3).weight[0].zero_(), lambda: nn.Linear(3, 3).bias.zero_()],
    ".values": [lambda: M - M.max(dim=-1, keepdim=True), lambda: M.max(dim=-1)[..., None]],
    "where a single number is needed": [lambda: float(V), lambda: V.item()],
    "dtype": [lambda: V.double() @ M.new_ones(3)],
    "`.float()`": [lambda: (V > 0).mean(), lambda: M.int().softmax(-1), lambda: M.int().std()],
    "`.int()`": [lambda: (M > 0).argmax(-1)],
    "`.to(torch.int32)`": [lambda: V << 23, lambda: V >> 1],
    "an integer that fits": [lambda: M.int().masked_fill(M > 0, -torch.inf)],
    "boolean": [lambda: V.masked_fill(~V.int(), 0), lambda: torch.where(V.int(), V, V)],
    "missing a slice": [lambda: M[M[:, 1:] > 0]],
    "`//`": [lambda: M[:, : 4 / 2]],
    "empty": [lambda: torch.cat([]), lambda: torch.stack([])],
    "circular": [lambda: F.pad(M, (0, 9), mode="circular")],
    "a call in this line": [
        lambda: (lambda q, k: q)(M),
        lambda: (lambda q: q)(M, k=M),
        lambda: M.softmax(),
        lambda: torch.zeros(dtype=M.dtype),
        lambda: torch.max(M, 0.0),
    ],
    "for i in range(len(x))": [lambda: V[V], lambda: M[torch.tensor([])]],
    "range(len(x))": [lambda: range(V), lambda: range(V.shape)],
    "self.W_q(x)": [lambda: V @ nn.Linear(3, 3)],
    "torch.cat([a, b]": [lambda: torch.cat(M, dim=0)],
    "masks": [lambda: M & M, lambda: ~M],
    "branch": [unset],
    "import": [lambda: undefined],  # noqa: F821
    "None": [lambda: V.grad[0], lambda: V.grad + 1, lambda: V.grad.shape],
    "calls itself": [forever],
    "index": [lambda: [1][3], lambda: M[7]],
    "math.exp(x)": [lambda: torch.sqrt(2.0)],
    "super().__init__()": [lambda: Unready()],
    "without a batch": [lambda: V.shape[1]],
    "installed": [lambda: __import__("no_such_library")],
}


@pytest.mark.parametrize("words, functions", CASES.items(), ids=CASES)
def test_the_likely_cause_comes_first(words, functions):
    for function in functions:
        text = explanation(function)
        assert words in text.split("Your code raised ")[0] and "\n" not in text


def test_a_dtype_in_the_learners_line_is_not_what_went_wrong():
    for answer in (lambda: {torch.float16: 16}[M.dtype], lambda: M.dtype.max):
        assert explanation(answer).startswith("Your code raised ")


def test_an_unknown_error_is_repeated_with_the_learners_line_not_pytorchs():
    def answer(x):
        return F.softmax(x, -1)

    line = answer.__code__.co_firstlineno + 1
    text = explanation(lambda: answer("x"))
    assert text.startswith("Your code raised AttributeError: 'str' object has no")
    assert text.endswith(f" in line {line}, `return F.softmax(x, -1)`")
    assert explained(ZeroDivisionError("oh")) == "Your code raised ZeroDivisionError: oh"


@pytest.mark.parametrize("name, shown", [("1837172001.py", ""), ("mine.py", "mine.py, ")])
def test_a_syntax_error_names_its_line_and_no_file_that_ipython_made(name, shown):
    error = SyntaxError("invalid syntax", (name, 2, 1, "a @"))
    assert summarize(error) == f"SyntaxError: invalid syntax ({shown}line 2)"
    incomplete = type("_IncompleteInputError", (SyntaxError,), {})  # a private class of Python
    assert summarize(incomplete("incomplete input")) == "SyntaxError: incomplete input"
