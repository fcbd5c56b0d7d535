"""What `expects` admits, and the errors of every public function: which argument, what came."""

import inspect

import numpy as np
import pytest
import torch

from course_utils import attention as a
from course_utils.shapes import expects

ONES = torch.ones


@expects(q="... L d", k="... S d")
def pair(q, k):
    return q, k


@expects(x="n d", mask="... L S")
def optional(x, mask=None):
    return mask


@expects(q="*batch L d", k="*batch S d")
def batched(q, k):
    return q


@expects(n="int from 1", side="one of left right", ids="whole ... L")
def pick(n=1, ids=((3, 4),), side="left"):
    return n, ids, side


@expects(x="n n")
def square(x):
    return x


@expects(x="L S", mask="bool L S")
def masked(x, mask):
    return mask


@expects(x="...", dim="dim of x")
def along(x, dim=-1):
    return dim


@expects(x="L d_model", d="int from 0", heads="divisor of d_model", groups="divisor of heads")
def split(x, heads, groups=1, d=0):
    return heads


@expects(x="even ... L d", width="multiple of 2")
def rotated(x, width=6):
    return x


@expects(L="int from 0", S="int from 0", align="corner if is_causal")
def aligned(L, S=None, *, is_causal=False, align=None):
    return align


class Layer:
    width = 3

    @expects(lambda self: {"d_model": self.width}, x="... d_model")
    def forward(self, x):
        return x


def test_the_checked_function_keeps_its_name_and_its_signature():
    assert pair.__name__ == "pair" and list(inspect.signature(pair).parameters) == ["q", "k"]


@pytest.mark.parametrize(
    "call",
    [
        lambda: pair(ONES(5, 4), ONES(7, 4)),
        lambda: pair(ONES(2, 3, 5, 4), k=ONES(7, 4)),
        lambda: pair(ONES(4, 5, 4), ONES(5, 7, 4)),
        lambda: optional(ONES(2, 3), mask=None),
        lambda: batched(ONES(2, 3, 5, 4), ONES(2, 3, 7, 4)),
        lambda: pick(np.int64(2)),
        lambda: square(ONES(3, 3)),
        *(lambda s=s: masked(ONES(2, 4), ONES(s) > 0)
          for s in [(2, 4), (1, 4), (2, 1), (4,), (), (3, 2, 4)]),
        *(lambda dim=dim: along(ONES(2, 3), dim) for dim in (-2, -1, 0, 1)),
        lambda: along(torch.tensor(1.0), 0),
        *(lambda heads=heads: split(ONES(2, 12), heads) for heads in (1, 3, 12)),
        lambda: split(ONES(2, 12), 6, 2, 0),
        lambda: rotated(ONES(3, 4), 6),
        lambda: aligned(2, 2, is_causal=True),
        lambda: aligned(2, 3),
        lambda: aligned(2, 3, is_causal=True, align="upper_left"),
        lambda: Layer().forward(ONES(2, 3)),
    ],
)  # fmt: skip
def test_what_fits_is_admitted(call):
    call()


ENGINE = [
    (lambda: pair(ONES(5, 4), ONES(7, 3)), r"k must .* \(..., S, d\) with d = 4, got \(7, 3\)"),
    (lambda: pair(ONES(5), ONES(7, 4)), r"q must have shape \(..., L, d\), got \(5,\)"),
    (lambda: pair(ONES(5, 4), [[1.0]]), r"k must be a torch.Tensor of shape .* got list"),
    (lambda: optional(None), "x must be a torch.Tensor of shape .* got NoneType"),
    (lambda: optional(ONES(1, 1, 2, 3)), r"x must have shape .* choose one, e.g. x\[0, 0\]$"),
    (lambda: optional(ONES(3)), r"got \(3,\)$"),
    (lambda: batched(ONES(2, 5, 4), ONES(3, 7, 4)), r"k must .* with d = 4, \*batch = \(2,\)"),
    (lambda: pick(2.0), "n must be an int, got float"),
    (lambda: pick(True), "n must be an int, got bool"),
    (lambda: pick(0), "n must be 1 or more, got 0"),
    (lambda: pick(side="up"), "side must be one of left, right, got 'up'"),
    (lambda: pick(ids=[0.5]), r"ids must be a tensor or sequence of whole .* got \[0.5\]"),
    (lambda: pick(ids=[True]), r"ids must be .* got \[True\]"),
    (lambda: pick(ids="ab"), "ids must be .* got 'ab'"),
    (lambda: pick(ids=[[1], [2, 3]]), r"ids must be .* got \[\[1\], \[2, 3\]\]"),
    (lambda: pick(ids=3), r"ids must have shape \(..., L\), got \(\)"),
    (lambda: square(ONES(3, 4)), r"x must have shape \(n, n\), got \(3, 4\)"),
    (lambda: masked(ONES(2, 4), ONES(2, 4)), r"mask must be a boolean .* got torch.float32"),
    *((lambda s=s: masked(ONES(2, 4), ONES(s) > 0), r"broadcast to \(L, S\) with L = 2, S = 4, got")
      for s in [(2, 3), (4, 2), (3, 4), (5,), (2, 2, 5)]),
    (lambda: along(ONES(2, 3), 2), "dim must be from -2 to 1, .* got 2"),
    (lambda: along(torch.tensor(1.0), -2), "dim must be from -1 to 0, .* got -2"),
    (lambda: split(ONES(2, 12), 24), "heads must divide d_model = 12, got 24"),
    (lambda: split(ONES(2, 12), 6, 4), "groups must divide heads = 6, got 4"),
    (lambda: rotated(ONES(3, 5)), r"x must have an even last dimension, got \(3, 5\)"),
    (lambda: rotated(ONES(3, 4).long()), "x must have floating point entries, got torch.int64"),
    (lambda: rotated(ONES(3, 4), 5), "width must be a multiple of 2, got 5"),
    (lambda: aligned(2, 3, is_causal=True), "align must be given, since L = 2 and S = 3 differ"),
    (lambda: aligned(2, 2, align="up"), "align must be one of lower_right, upper_left, got 'up'"),
    (lambda: Layer().forward(ONES(2, 4)), r"x must .* with d_model = 3, got \(2, 4\)"),
]  # fmt: skip
X, QKV = ONES(2, 6), [ONES(2, 3)] * 3
PUBLIC = [
    *((lambda f=f: f(X, ONES(2, 4)), "k must have shape .* with d = 6")
      for f in (a.dot_product_scores, a.cosine_similarity, a.euclidean_distance)),
    (lambda: a.AdditiveScore(6, 4, 5)(X, X), "k must have shape .* with d_k = 4"),
    (lambda: a.SelfAttention(5)(X), "x must have shape .* with d_model = 5"),
    (lambda: a.entropy([0.5, 0.5]), "weights must be a torch.Tensor"),
    (lambda: a.softmax([1.0]), "x must be a torch.Tensor"),
    (lambda: a.softmax(X, 2), "dim must be from -2 to 1"),
    (lambda: a.logsumexp(X.int()), "x must have floating point entries"),
    (lambda: a.log_softmax(X, dim=0.0), "dim must be an int"),
    (lambda: a.softmax_vjp(ONES(3), ONES(4)), r"g must .* n = 3, got \(4,\)"),
    (lambda: a.online_update(ONES(2), ONES(2), ONES(3, 4)), r"x must .* \*batch = \(2,\), got"),
    (lambda: a.merge(X, ONES(3), X, ONES(2)), "lse_a must have shape .* with L = 2"),
    (lambda: a.merge(X, ONES(2), ONES(3, 6), ONES(2)), "out_b must have shape .* with L = 2"),
    (lambda: a.causal_mask(2.0), "L must be an int, got float"),
    (lambda: a.causal_mask(2, align="left"), "align must be one of .* got 'left'"),
    (lambda: a.causal_mask(2, 3), "align must be given, since L = 2 and S = 3"),
    (lambda: a.padding_mask([1.5], 3), "lengths must be .* whole numbers"),
    (lambda: a.sliding_window_mask(3, 0), "window must be 1 or more, got 0"),
    (lambda: a.prefix_mask(3, -1), "prefix must be 0 or more, got -1"),
    (lambda: a.document_mask(X), "ids must be .* got torch.float32"),
    (lambda: a.attention(ONES(3), *QKV[1:]), r"q must have shape .* got \(3,\)"),
    (lambda: a.attention(*QKV[:2], ONES(4, 3)), "v must have shape .* with S = 2"),
    (lambda: a.attention(*QKV, ONES(2, 2)), "mask must be a boolean"),
    (lambda: a.attention(*QKV, ONES(3, 2) > 0), "mask must broadcast to .* L = 2, S = 2, got"),
    (lambda: a.split_heads(X, 4), "num_heads must divide d_model = 6, got 4"),
    (lambda: a.merge_heads(X), r"x must have shape \(..., H, L, d\)"),
    (lambda: a.MultiHeadAttention(6.0, 2), "d_model must be an int, got float"),
    (lambda: a.MultiHeadSelfAttention(6, 5), "num_heads must divide d_model = 6, got 5"),
    (lambda: a.MultiHeadAttention(4, 2)(X, X, X), "query must have shape .* with d_model = 4"),
    (lambda: a.MultiHeadAttention(6, 2)(X[None], X, X), "key must have shape"),
    (lambda: a.MultiHeadAttention(6, 2)(X, X, X, ONES(3, 2, 2) > 0), "mask must .* H = 2, L = 2"),
    (lambda: a.tiled_attention(X.int(), X, X), "q must have floating point entries"),
    (lambda: a.tiled_attention(X, X[:1], X[:1], is_causal=True), "align must be given"),
    (lambda: a.tiled_attention(X, X, X, block_q=0), "block_q must be 1 or more, got 0"),
    (lambda: a.tiled_attention(X, X, X, ONES(3, 2) > 0), "mask must broadcast"),
    (lambda: a.previous_token_score(ONES(1, 2, 3, 4)), r"weights must .* \(B, H, L, L\)"),
    (lambda: a.follows_same_token([1.5, 2]), "tokens must be a tensor or sequence of whole"),
    (lambda: a.induction_score(ONES(2, 1, 4, 4), ONES(2, 5).long()), "tokens must have shape"),
    (lambda: a.sinusoidal_positions(4, 5), "d_model must be a multiple of 2, got 5"),
    (lambda: a.rotary(ONES(3, 5), torch.arange(3)), "x must have an even last dimension"),
    (lambda: a.rotary(ONES(3, 4), torch.arange(4)), "positions must have shape"),
    (lambda: a.rotary(ONES(3, 4), [0, 1, 2]), "positions must be a torch.Tensor"),
    (lambda: a.alibi_bias(3, 3, 0), "num_heads must be 1 or more, got 0"),
]  # fmt: skip


@pytest.mark.parametrize("call, message", ENGINE + PUBLIC)
def test_an_error_names_the_argument_what_was_expected_and_what_came(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
