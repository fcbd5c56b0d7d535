"""Lesson 06: tiled attention against float64, within what rounding may cost it; its memory."""

import random

import pytest
import torch

from course_utils.attention import attention, causal_mask, tiled_attention
from course_utils.measure import peak_memory
from course_utils.tiled import blocks, key_blocks
from rounding import assert_within, attention_and_lse, attention_errors

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def configuration(seed):
    """Draw sizes, blocks and a mask."""
    draw, rng = random.Random(seed), torch.Generator().manual_seed(seed)
    batch = draw.choice([(), (2,), (2, 3)])
    largest = draw.choice([4, 40, 300])
    L, S = draw.randint(1, largest), draw.randint(1, largest)
    d_k, d_v = draw.randint(1, 24), draw.randint(1, 24)
    dtype = DTYPES[seed % len(DTYPES)]
    q, k, v = (
        torch.randn(*batch, n, d, generator=rng).to(dtype).requires_grad_()
        for n, d in ((L, d_k), (S, d_k), (S, d_v))
    )
    kind = draw.choice(
        ["full", "mask", "broadcast", "upper_left", "lower_right", "mask and causal"]
    )
    plan = {"block_q": draw.randint(1, 90), "block_k": draw.randint(1, 90)}
    mask = None
    if "mask" in kind:  # about a tenth of the rows are empty
        mask = torch.rand(L, S, generator=rng) < 0.5
        mask &= torch.rand(L, 1, generator=rng) < 0.9
    elif kind == "broadcast":
        mask = torch.rand(*batch, 1, S, generator=rng) < 0.7
    allowed = torch.ones(L, S, dtype=torch.bool) if mask is None else mask
    if kind in ("upper_left", "lower_right"):
        plan |= {"is_causal": True, "align": kind}
        allowed = causal_mask(L, S, align=kind)
    elif kind == "mask and causal":
        plan |= {"is_causal": True, "align": "upper_left"}
        allowed = mask & causal_mask(L, S, align="upper_left")
    return (q, k, v), mask, allowed, plan


@pytest.mark.parametrize("seed", range(180))
def test_output_logsumexp_and_gradients_err_no_more_than_rounding_may_cost(seed):
    inputs, mask, allowed, plan = configuration(seed)
    got = tiled_attention(*inputs, mask, **plan)
    assert got[1].dtype == torch.float32
    rng = torch.Generator().manual_seed(seed)
    arriving = [torch.randn(x.shape, generator=rng).to(x) for x in got]
    got = [*got, *torch.autograd.grad(got, inputs, arriving)]

    wide = [x.detach().double().requires_grad_() for x in inputs]
    right = attention_and_lse(*wide, allowed)
    right = [*right, *torch.autograd.grad(right, wide, [d.double() for d in arriving])]
    blocks = plan["block_q"], plan["block_k"]
    errors = attention_errors(*inputs, allowed, blocks, arriving=arriving)
    for one, other, error in zip(got, right, errors, strict=True):
        assert_within(one, other, error)


@pytest.mark.parametrize("align", [None, "upper_left", "lower_right"])
@pytest.mark.parametrize("L, S", [(5, 7), (7, 5), (6, 6)])
def test_first_and_second_gradients_of_output_and_lse_pass_gradcheck(L, S, align):
    rng = torch.Generator().manual_seed(0)
    shapes = (2, L, 3), (2, S, 3), (2, S, 4)
    inputs = [
        torch.randn(shape, generator=rng, dtype=torch.float64).requires_grad_() for shape in shapes
    ]

    def both(q, k, v):
        plan = {"is_causal": True, "align": align} if align else {}
        output, lse = tiled_attention(q, k, v, block_q=2, block_k=3, **plan)
        return output, lse.masked_fill(lse.isinf(), 0)

    assert torch.autograd.gradcheck(both, inputs)
    assert torch.autograd.gradgradcheck(both, inputs, fast_mode=True)  # in random directions


def test_a_query_with_nothing_allowed_gives_zeros_and_finite_gradients():
    q, k, v = (torch.randn(4, 3).requires_grad_() for _ in range(3))
    mask = torch.tensor([True, False, True, True])[:, None]
    output, lse = tiled_attention(q, k, v, mask, block_q=3, block_k=2)
    assert (output[1] == 0).all() and lse[1] == -torch.inf
    for grad in torch.autograd.grad(output.sum(), (q, k, v)):
        assert grad.isfinite().all()


def test_scores_of_any_size_do_not_overflow():
    q, k, v = torch.full((3, 4), 400.0), torch.full((5, 4), 400.0), torch.randn(5, 2)
    k[2] = -400
    expected = attention(q.double(), k.double(), v.double())[0].float()
    # the scores are exact: what is rounded are sums over four keys
    torch.testing.assert_close(tiled_attention(q, k, v, block_k=2)[0], expected)


def test_scores_beyond_float16_do_not_overflow_in_tiles():
    q, k = torch.full((2, 2, 128), 90.0).half().unbind()  # scores of 91641
    v = torch.randn(2, 3).half()
    assert tiled_attention(q, k, v)[0].isfinite().all()
    assert not attention(q, k, v)[0].isfinite().all()  # as its docstring says


def test_where_there_are_as_many_keys_as_queries_the_alignments_agree_and_none_is_needed():
    q, k, v = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(0))
    output, _ = tiled_attention(q, k, v, is_causal=True)
    assert torch.equal(output, tiled_attention(q, k, v, is_causal=True, align="lower_right")[0])
    assert torch.equal(output, tiled_attention(q, k, v, is_causal=True, align="upper_left")[0])
    tiled_attention(q[:3], k, v)  # without a diagonal nothing has to be aligned
    tiled_attention(q[:3], k, v, is_causal=False, align=None)


def test_it_takes_no_more_memory_than_a_hundredth_of_naive_attention():
    q, k, v = (torch.randn(1, 1, 8192, 64) for _ in range(3))
    assert peak_memory(lambda: tiled_attention(q, k, v)) < 2 * 8192**2 * 4 / 100


def test_memory_for_the_gradients_grows_with_length_not_with_its_square():
    def needed(n):
        q, k, v = (torch.randn(1, 1, n, 16).requires_grad_() for _ in range(3))
        return peak_memory(
            lambda: tiled_attention(q, k, v, block_q=64, block_k=64)[0].sum().backward()
        )

    assert needed(512) < 2.5 * needed(256)


def test_peak_memory_sees_what_is_held_at_once():
    x = torch.zeros(250_000)  # 1 MB
    assert 1.0e6 <= peak_memory(lambda: x + 1) < 1.1e6
    assert 2.0e6 <= peak_memory(lambda: (x + 1).exp()) < 2.1e6  # input and result of exp


@pytest.mark.parametrize(
    "change, words",
    [
        ({"k": torch.zeros(2, 5, 9)}, r"k must have shape \(\*batch, S, d_k\).*d_k = 4"),
        ({"v": torch.zeros(3, 5, 4)}, r"v must have shape \(\*batch, S, d_v\).*\*batch = \(2,\)"),
        ({"mask": torch.zeros(3, 6) > 0}, "mask must"),
        ({"align": "left"}, "align must be one of lower_right, upper_left, got 'left'"),
        ({"is_causal": True}, "align must be given, since L = 6 and S = 5 differ"),
        ({"block_q": 0}, "block_q must be 1 or more, got 0"),
        ({"q": torch.zeros(2, 6, 4).long()}, "q must have floating point entries, got torch.int64"),
    ],
    ids=["k", "v", "mask", "align", "no align", "block_q", "dtype"],
)
def test_errors_name_the_argument(change, words):
    right = {"q": torch.zeros(2, 6, 4), "k": torch.zeros(2, 5, 4), "v": torch.zeros(2, 5, 4)}
    with pytest.raises((TypeError, ValueError), match=words):
        tiled_attention(**right | change)


def test_the_output_has_the_dtype_of_the_values_and_lse_that_of_the_sums():
    q, k, v = torch.randn(3, 4, 2)
    for dtype in (torch.float16, torch.float32, torch.float64):
        output, lse = tiled_attention(q.half(), k.half(), v.to(dtype))
        assert (output.dtype, lse.dtype) == (dtype, torch.float32)


@pytest.mark.parametrize("offset", [None, 0, 3, -5])
def test_no_tile_is_read_in_which_all_is_forbidden(offset):
    for rows in blocks(7, 3):
        read = [columns.start for columns in key_blocks(10, 4, rows, offset)]
        seen = 10 if offset is None else rows.stop + offset  # by the last query of the rows
        assert read == [start for start in (0, 4, 8) if start < seen]
