"""Lesson 06: tiled attention against float64, PyTorch's own error as the measure; its memory."""

import random

import pytest
import torch
import torch.nn.functional as F

from course_utils.attention import attention, causal_mask, tiled_attention
from course_utils.measure import peak_memory

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def configuration(seed):
    """Draw sizes, blocks and a mask; inputs are float64 numbers that float16 holds exactly."""
    draw, rng = random.Random(seed), torch.Generator().manual_seed(seed)
    batch = draw.choice([(), (2,), (2, 3)])
    largest = draw.choice([4, 40, 300])
    L, S = draw.randint(1, largest), draw.randint(1, largest)
    d_k, d_v = draw.randint(1, 24), draw.randint(1, 24)
    dtype = DTYPES[seed % len(DTYPES)]
    q, k, v = (
        torch.randn(*batch, n, d, generator=rng).bfloat16().to(dtype).requires_grad_()
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
    allowed = mask
    if kind in ("upper_left", "lower_right"):
        plan |= {"is_causal": True, "align": kind}
        allowed = causal_mask(L, S, align=kind)
    elif kind == "mask and causal":
        plan |= {"is_causal": True}
        allowed = mask & causal_mask(L, S, align="upper_left")
    return (q, k, v), mask, allowed, plan


def with_gradients(function, inputs):
    """Return the output of a function and its gradients at q, k, v, all in float64."""
    output = function(*inputs)
    upstream = torch.ones_like(output).cumsum(-1).cos()
    grads = torch.autograd.grad(output, inputs, upstream)
    return [tensor.detach().double() for tensor in (output, *grads)]


@pytest.mark.parametrize("seed", range(240))
def test_it_errs_no_more_than_twice_as_far_as_pytorch(seed):
    inputs, mask, allowed, plan = configuration(seed)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    exact = with_gradients(lambda *qkv: attention(*qkv, allowed)[0], wide)
    ours = with_gradients(lambda *qkv: tiled_attention(*qkv, mask, **plan)[0], inputs)
    torchs = with_gradients(
        lambda *qkv: F.scaled_dot_product_attention(*qkv, attn_mask=allowed), inputs
    )
    # Some gradients are 0 by cancellation: a few roundings of what cancels are no error.
    floor = 8 * torch.finfo(inputs[0].dtype).eps * max(1, *(c.abs().max() for c in exact))
    for name, a, b, c in zip(["output", "dq", "dk", "dv"], ours, torchs, exact, strict=True):
        error, allowed_error = (a - c).abs().max(), 2 * (b - c).abs().max() + floor
        assert error <= allowed_error, f"{name}: {error:.2g} > {allowed_error:.2g}"


@pytest.mark.parametrize("seed", range(60))
def test_lse_is_the_logsumexp_of_the_scores(seed):
    (q, k, v), mask, allowed, plan = configuration(seed)
    scores = q.double() @ k.double().mT / q.shape[-1] ** 0.5
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    _, lse = tiled_attention(q, k, v, mask, **plan)
    assert lse.dtype == (torch.float64 if q.dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(lse.double(), scores.logsumexp(dim=-1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "plan", [{}, {"is_causal": True}, {"is_causal": True, "align": "lower_right"}], ids=str
)
@pytest.mark.parametrize("L, S", [(5, 7), (7, 5), (6, 6)])
def test_first_and_second_gradients_of_output_and_lse_pass_gradcheck(L, S, plan):
    rng = torch.Generator().manual_seed(0)
    shapes = (2, L, 3), (2, S, 3), (2, S, 4)
    inputs = [
        torch.randn(shape, generator=rng, dtype=torch.float64).requires_grad_() for shape in shapes
    ]

    def both(q, k, v):
        output, lse = tiled_attention(q, k, v, block_q=2, block_k=3, **plan)
        return output, lse.masked_fill(lse.isinf(), 0)

    assert torch.autograd.gradcheck(both, inputs)
    assert torch.autograd.gradgradcheck(both, inputs)


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
    torch.testing.assert_close(tiled_attention(q, k, v, block_k=2)[0], expected)


def test_scores_beyond_float16_do_not_overflow_in_tiles():
    q, k = torch.full((2, 2, 128), 30.0).half().unbind()  # scores of 115200, scaled 10182
    v = torch.randn(2, 3).half()
    assert tiled_attention(q, k, v)[0].isfinite().all()
    assert not attention(q, k, v)[0].isfinite().all()  # as its docstring says


def test_it_takes_no_more_memory_than_a_hundredth_of_naive_attention():
    q, k, v = (torch.randn(1, 8, 8192, 64) for _ in range(3))
    assert peak_memory(lambda: tiled_attention(q, k, v)) < 2 * 8 * 8192**2 * 4 / 100


def test_memory_for_the_gradients_grows_with_length_not_with_its_square():
    def needed(n):
        q, k, v = (torch.randn(1, 2, n, 16).requires_grad_() for _ in range(3))
        return peak_memory(
            lambda: tiled_attention(q, k, v, block_q=64, block_k=64)[0].sum().backward()
        )

    assert needed(2048) < 2.5 * needed(1024)


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
        ({"align": "left"}, "align must be one of upper_left, lower_right, got 'left'"),
        ({"block_q": 0}, "block_q must be 1 or more, got 0"),
        ({"q": torch.zeros(2, 6, 4).long()}, "q must have floating point entries, got torch.int64"),
    ],
    ids=["k", "v", "mask", "align", "block_q", "dtype"],
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
