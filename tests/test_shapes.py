import inspect

import numpy as np
import pytest
import torch

from course_utils import attention
from course_utils.shapes import expects


@expects(q="... L d", k="... S d")
def pair(q, k):
    return q, k


def test_the_checked_function_keeps_its_name_and_its_signature():
    assert pair.__name__ == "pair" and list(inspect.signature(pair).parameters) == ["q", "k"]


def test_accepts_any_leading_dimensions():
    pair(torch.zeros(5, 4), torch.zeros(7, 4))
    pair(torch.zeros(2, 3, 5, 4), k=torch.zeros(7, 4))  # told apart from the last ones by place
    pair(torch.zeros(4, 5, 4), torch.zeros(5, 7, 4))


@pytest.mark.parametrize(
    "q, k, error, words",
    [
        ((5, 4), (7, 3), ValueError, r"k must have shape \(..., S, d\) with d = 4, got \(7, 3\)"),
        ((5,), (7, 4), ValueError, r"q must have shape \(..., L, d\), got \(5,\)"),
        ((5, 4), (), ValueError, r"k must have shape \(..., S, d\) with d = 4, got \(\)"),
        ((2, 5, 4), (2, 7, 3), ValueError, r"with d = 4, got \(2, 7, 3\)$"),
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
    with pytest.raises(TypeError, match="x must be a torch.Tensor of shape .* got NoneType"):
        optional(None)  # which is no default


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
        ({"ids": [True]}, TypeError, r"ids must be .* got \[True\]"),
        ({"ids": torch.ones(2, dtype=torch.complex64)}, TypeError, "ids must be .* got torch.comp"),
        ({"ids": [[1], [2, 3]]}, TypeError, r"ids must be .* got \[\[1\], \[2, 3\]\]"),
        ({"side": "of"}, ValueError, "side must be one of left, right, got 'of'"),
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


def test_a_corner_has_to_be_named_only_where_the_corners_differ():
    @expects(L="int from 0", S="int from 0", align="corner if is_causal")
    def aligned(L, S=None, *, is_causal=False, align=None):
        return align

    both = 'L = 2 and S = 3 differ: "lower_right" puts the last .* "upper_left" the first query'
    for given in ({}, {"align": None}):
        assert aligned(2, is_causal=True, **given) is None
        assert aligned(2, 2, is_causal=True, **given) is None
        assert aligned(2, 3, is_causal=False, **given) is None
        with pytest.raises(ValueError, match=f"align must be given, since {both}"):
            aligned(2, 3, is_causal=True, **given)
    assert aligned(2, 3, is_causal=True, align="upper_left") == "upper_left"
    with pytest.raises(ValueError, match="align must be one of lower_right, upper_left, got 'up'"):
        aligned(2, 2, is_causal=False, align="up")


def test_whole_numbers_of_numpy_are_whole_numbers():
    assert attention.causal_mask(np.int64(2)).tolist() == [[True, False], [True, True]]


def test_a_mask_that_does_not_fit_is_told_every_size():
    @expects(x="L S", mask="bool L S")
    def masked(x, mask):
        return mask

    with pytest.raises(ValueError, match=r"broadcast to \(L, S\) with L = 2, S = 4, got \(3, 4\)"):
        masked(torch.zeros(2, 4), torch.ones(3, 4, dtype=torch.bool))


@pytest.mark.parametrize("shape", [(2, 4), (1, 4), (2, 1), (4,), (1,), (), (3, 2, 4), (3, 1, 1)])
def test_a_mask_may_broadcast(shape):
    @expects(x="L S", mask="bool L S")
    def masked(x, mask):
        return mask

    assert masked(torch.zeros(2, 4), torch.ones(shape, dtype=torch.bool)).shape == shape
    with pytest.raises(
        TypeError, match=r"mask must be a boolean .* \(True = may .* got torch.float32"
    ):
        masked(torch.zeros(2, 4), torch.ones(shape))


@pytest.mark.parametrize("shape", [(2, 3), (2, 2), (4, 2), (1, 2), (3, 4), (5,), (2, 5), (2, 2, 5)])
def test_a_mask_of_another_size_is_refused(shape):
    @expects(x="L S", mask="bool L S")
    def masked(x, mask):
        return mask

    with pytest.raises(ValueError, match="mask must broadcast to .*with L = 2, S = 4, got "):
        masked(torch.zeros(2, 4), torch.ones(shape, dtype=torch.bool))


def test_leading_dimensions_with_a_name_are_the_same_wherever_it_stands():
    @expects(q="*batch L d", k="*batch S d")
    def batched(q, k):
        return q

    batched(torch.zeros(5, 4), torch.zeros(7, 4))
    batched(torch.zeros(2, 3, 5, 4), torch.zeros(2, 3, 7, 4))
    for leading in [(), (1,), (3, 2)]:
        with pytest.raises(
            ValueError, match=r"k must have shape \(\*batch, S, d\) with d = 4, \*ba"
        ):
            batched(torch.zeros(2, 3, 5, 4), torch.zeros(*leading, 7, 4))
    with pytest.raises(ValueError, match=r"q must have shape \(\*batch, L, d\), got \(4,\)$"):
        batched(torch.zeros(4), torch.zeros(7, 4))


def test_one_name_has_one_size_within_a_tensor_too():
    @expects(x="n n")
    def square(x):
        return x

    square(torch.zeros(3, 3))
    with pytest.raises(ValueError, match=r"x must have shape \(n, n\), got \(3, 4\)"):
        square(torch.zeros(3, 4))


def test_a_method_is_held_to_the_sizes_of_its_object():
    class Layer:
        width = 3

        @expects(lambda self: {"d_model": self.width}, x="... d_model")
        def forward(self, x):
            return x

    assert Layer().forward(torch.zeros(2, 3)).shape == (2, 3)
    with pytest.raises(ValueError, match=r"x must .* with d_model = 3, got \(2, 4\)"):
        Layer().forward(torch.zeros(2, 4))


@pytest.mark.parametrize("shape, dims", [((2, 3), [-2, -1, 0, 1]), ((), [-1, 0])])
def test_a_dimension_counts_from_either_end(shape, dims):
    @expects(x="...", dim="dim of x")
    def along(x, dim=-1):
        return dim

    x = torch.zeros(shape)
    assert [along(x, dim) for dim in dims] == dims and along(x) == -1
    for dim in (dims[0] - 1, dims[-1] + 1):
        with pytest.raises(
            ValueError, match=f"dim must be from {dims[0]} to {dims[-1]}, .* got {dim}"
        ):
            along(x, dim)
    with pytest.raises(TypeError, match="dim must be an int, got float"):
        along(x, 0.0)


def test_a_number_divides_a_size_that_stands_before_it():
    @expects(x="L d_model", d="int from 0", heads="divisor of d_model", groups="divisor of heads")
    def split(x, heads, groups=1, d=0):
        return heads

    x = torch.zeros(2, 12)
    assert [split(x, heads) for heads in (1, 3, 12)] == [1, 3, 12] and split(x, 6, 2, 0) == 6
    for heads in (5, 24):
        with pytest.raises(ValueError, match=f"heads must divide d_model = 12, got {heads}"):
            split(x, heads)
    with pytest.raises(ValueError, match="groups must divide heads = 6, got 4"):
        split(x, 6, 4)
    with pytest.raises(ValueError, match="heads must be 1 or more, got 0"):
        split(x, 0)
    with pytest.raises(ValueError, match="d must be 0 or more, got -1"):
        split(x, 1, d=-1)


def test_floating_point_entries_are_asked_for_by_name():
    @expects(x="floating n d")
    def scaled(x):
        return x

    assert scaled(torch.zeros(2, 3).half()).dtype == torch.float16
    with pytest.raises(TypeError, match="x must have floating point entries, got torch.int64"):
        scaled(torch.zeros(2, 3).long())
    with pytest.raises(ValueError, match=r"x must have shape \(n, d\), got \(3,\)"):
        scaled(torch.zeros(3).long())


def test_what_comes_in_pairs_is_asked_for_by_name():
    @expects(x="even ... L d", width="multiple of 2")
    def turned(x, width):
        return x

    assert turned(torch.zeros(3, 4), 6).shape == (3, 4)
    with pytest.raises(ValueError, match=r"x must have an even last dimension, got \(3, 5\)"):
        turned(torch.zeros(3, 5), 6)
    with pytest.raises(TypeError, match="x must have floating point entries, got torch.int64"):
        turned(torch.zeros(3, 4).long(), 6)
    with pytest.raises(ValueError, match="width must be a multiple of 2, got 5"):
        turned(torch.zeros(3, 4), 5)
    with pytest.raises(ValueError, match="width must be 1 or more, got 0"):
        turned(torch.zeros(3, 4), 0)
    with pytest.raises(TypeError, match="width must be an int, got float"):
        turned(torch.zeros(3, 4), 4.0)


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
