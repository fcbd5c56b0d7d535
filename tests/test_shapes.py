import numpy as np
import pytest
import torch

from course_utils import attention
from course_utils.shapes import expects


@expects(q="... L d", k="... S d")
def pair(q, k):
    return q, k


def test_accepts_any_leading_dimensions():
    pair(torch.zeros(5, 4), torch.zeros(7, 4))
    pair(torch.zeros(2, 3, 5, 4), k=torch.zeros(7, 4))


@pytest.mark.parametrize(
    "q, k, error, words",
    [
        ((5, 4), (7, 3), ValueError, r"k must have shape \(..., S, d\) with d = 4, got \(7, 3\)"),
        ((5,), (7, 4), ValueError, r"q must have shape \(..., L, d\), got \(5,\)"),
        ((5, 4), (), ValueError, r"k must have shape \(..., S, d\) with d = 4, got \(\)"),
        ((5, 4), [[1.0]], TypeError, r"k must be a torch.Tensor of shape .* got list"),
    ],
)
def test_says_which_argument_what_was_expected_and_what_came(q, k, error, words):
    made = [torch.zeros(each) if isinstance(each, tuple) else each for each in (q, k)]
    with pytest.raises(error, match=words):
        pair(*made)


def test_a_shape_without_dots_admits_no_leading_dimensions():
    @expects(x="n d")
    def matrix(x):
        return x

    assert matrix(torch.zeros(2, 3)).shape == (2, 3)
    with pytest.raises(ValueError, match=r"x must have shape .* choose one, e.g. x\[0, 0\]$"):
        matrix(torch.zeros(1, 1, 2, 3))
    with pytest.raises(ValueError, match=r"got \(3,\)$"):
        matrix(torch.zeros(3))


def test_none_is_left_alone():
    @expects(x="n d", mask="... L S")
    def optional(x, mask=None):
        return mask

    assert optional(torch.zeros(2, 3)) is None
    assert optional(torch.zeros(2, 3), mask=None) is None


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ({"n": 2.0}, TypeError, "n must be an int, got float"),
        ({"n": True}, TypeError, "n must be an int, got bool"),
        ({"n": None}, TypeError, "n must be an int, got NoneType"),
        ({"n": 0}, ValueError, "n must be 1 or more, got 0"),
        ({"side": "up"}, ValueError, "side must be one of left, right, got 'up'"),
        ({"ids": [0.5]}, TypeError, r"ids must be a tensor or sequence of whole .* got \[0.5\]"),
        ({"ids": torch.ones(2)}, TypeError, "ids must be .* got torch.float32"),
        ({"ids": "ab"}, TypeError, "ids must be .* got 'ab'"),
        ({"ids": 3}, ValueError, r"ids must have shape \(..., L\), got \(\)"),
    ],
)
def test_numbers_and_words_are_checked_too(arguments, error, words):
    @expects(n="int from 1", side="one of left right", ids="whole ... L")
    def pick(n, ids, side="left"):
        return n, ids, side

    good = {"n": 1, "ids": [[3, 4]]}
    assert pick(**good) == (1, [[3, 4]], "left")
    with pytest.raises(error, match=words):
        pick(**good | arguments)


def test_whole_numbers_of_numpy_are_whole_numbers():
    assert attention.causal_mask(np.int64(2)).tolist() == [[True, False], [True, True]]


def test_a_mask_that_does_not_fit_is_told_every_size():
    @expects(x="L S", mask="bool L S")
    def masked(x, mask):
        return mask

    with pytest.raises(ValueError, match=r"broadcast to \(L, S\) with L = 2, S = 4, got \(3, 4\)"):
        masked(torch.zeros(2, 4), torch.ones(3, 4, dtype=torch.bool))


@pytest.mark.parametrize(
    "call",
    [
        lambda: attention.dot_product_scores(torch.ones(2, 3), torch.ones(2, 4)),
        lambda: attention.cosine_similarity(torch.ones(2, 3), torch.ones(2, 4)),
        lambda: attention.euclidean_distance(torch.ones(2, 3), torch.ones(2, 4)),
        lambda: attention.AdditiveScore(3, 4, 5)(torch.ones(2, 3), torch.ones(2, 3)),
        lambda: attention.SelfAttention(6)(torch.ones(2, 5)),
    ],
)
def test_public_functions_refuse_wrong_widths_by_name(call):
    with pytest.raises(ValueError, match=r"^(q|k|x) must have shape .* got "):
        call()
