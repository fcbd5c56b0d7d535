"""Lesson 06: tiled attention in float64 and within what rounding may cost; its memory."""

import random

import pytest
import torch

from course_utils.attention import attention, causal_mask, tiled_attention
from course_utils.measure import peak_memory
from course_utils.tiled import blocks, key_blocks
from rounding import (
    assert_within,
    attention_and_lse,
    attention_errors,
    normal,
    outputs_and_gradients,
)

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def configuration(seed):
    """Return inputs, a mask or None, what it and causality allow, and the other arguments."""
    draw, rng = random.Random(seed), torch.Generator().manual_seed(seed)
    batch = draw.choice([(), (2,), (2, 3)])
    largest = draw.choice([4, 40, 300])
    L, S = draw.randint(1, largest), draw.randint(1, largest)
    d_k, d_v = draw.randint(1, 24), draw.randint(1, 24)
    dtype = DTYPES[seed % len(DTYPES)]
    inputs = [
        normal(*batch, n, d, seed=seed + d, dtype=dtype) for n, d in ((L, d_k), (S, d_k), (S, d_v))
    ]
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
    return inputs, mask, allowed, plan


@pytest.mark.parametrize("seed", range(90))
def test_output_logsumexp_and_gradients_err_no_more_than_rounding_may_cost(seed):
    inputs, mask, allowed, plan = configuration(seed)
    got = outputs_and_gradients(lambda *qkv: tiled_attention(*qkv, mask, **plan), inputs)
    assert got[0].dtype == inputs[2].dtype and got[1].dtype == torch.float32
    arriving = [normal(*x.shape, seed=9, dtype=x.dtype) for x in got[:2]]
    exact = [x.double().requires_grad_() for x in inputs]
    right = attention_and_lse(*exact, allowed)
    right = [*right, *torch.autograd.grad(right, exact, [d.double() for d in arriving])]
    tile = plan["block_q"], plan["block_k"]
    errors = attention_errors(*inputs, allowed, tile, arriving=arriving)
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


def test_scores_beyond_float16_do_not_overflow_in_tiles():
    q, k = torch.full((2, 2, 128), 90.0).half().unbind()  # scores of 91641
    v = torch.randn(2, 3).half()
    assert tiled_attention(q, k, v)[0].isfinite().all()
    assert not attention(q, k, v)[0].isfinite().all()  # as its docstring says


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


@pytest.mark.parametrize("offset", [None, 0, 3, -5])
def test_no_tile_is_read_in_which_all_is_forbidden(offset):
    for rows in blocks(7, 3):
        read = [columns.start for columns in key_blocks(10, 4, rows, offset)]
        seen = 10 if offset is None else rows.stop + offset  # by the last query of the rows
        assert read == [start for start in (0, 4, 8) if start < seen]
