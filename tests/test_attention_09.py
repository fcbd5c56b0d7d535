"""Lesson 09: positions against formulas written number by number, in float64, and their laws."""

import math

import pytest
import torch

from course_utils.attention import alibi_bias, causal_mask, rotary, sinusoidal_positions
from rounding import gamma, normal

FAR = 100_000


def frequency(i, d, base=10000):
    """Return the radians per position by which pair i of d / 2 rotates."""
    return math.exp(-2 * i / d * math.log(base))


@pytest.mark.parametrize(
    "positions, d_model", [(range(1), 2), (range(5), 6), (range(40), 16), ([FAR], 8)]
)
def test_sinusoids_entry_by_entry(positions, d_model):
    """Far out too: angles in float32 would err by 0.004 there."""
    encoded = sinusoidal_positions(positions[-1] + 1, d_model)
    assert encoded.shape == (positions[-1] + 1, d_model) and encoded.dtype == torch.float32
    for p in positions:
        angles = [p * frequency(i, d_model) for i in range(d_model // 2)]
        right = torch.tensor([f(a) for a in angles for f in (math.sin, math.cos)]).double()
        error = 2 * gamma(1, torch.float32)
        torch.testing.assert_close(encoded[p].double(), right, rtol=0, atol=error)


# Rotary


def by_numbers(x, positions, base, interleaved):
    """Rotate x (L, d) pair by pair, as complex numbers."""
    L, d = x.shape
    rotated = torch.empty_like(x)
    for row in range(L):
        for i in range(d // 2):
            a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + d // 2)
            angle = float(positions[row]) * frequency(i, d, base)
            z = complex(x[row, a], x[row, b]) * complex(math.cos(angle), math.sin(angle))
            rotated[row, a], rotated[row, b] = z.real, z.imag
    return rotated


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("base", [10000, 100, 5e5])
@pytest.mark.parametrize("d", [2, 6, 16])
def test_rotary_rotates_each_pair_like_a_complex_number(d, base, interleaved):
    x, positions = normal(5, d), torch.tensor([0, 1, 2, FAR, 3.5])
    right = by_numbers(x, positions, base, interleaved)
    # float64: an angle of 1e5 errs by 1e5 · 2^-53 from frequency, product and cosine
    for given in (x, x.T.contiguous().T):
        rotated = rotary(given, positions, base, interleaved)
        torch.testing.assert_close(rotated, right, rtol=0, atol=1e-9)
    if base == 10000 and not interleaved:  # the defaults
        assert torch.equal(rotary(x, positions), rotary(x, positions, base, interleaved))


def test_rotary_takes_positions_of_each_sequence_and_refuses_them_without_a_dimension_for_heads():
    x, positions = torch.randn(3, 3, 4, 8), torch.arange(12).view(3, 4)  # B = H
    rows = [rotary(x[b], positions[b]) for b in range(3)]
    torch.testing.assert_close(rotary(x, positions[:, None]), torch.stack(rows))
    torch.testing.assert_close(rotary(x[:, 0], positions), torch.stack(rows)[:, 0])
    with pytest.raises(ValueError, match="one dimension fewer"):
        rotary(x, positions)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_rotary_keeps_dtype_shape_and_memory_of_its_input_and_rounds_once(dtype):
    x = normal(2, 3, 5, 8, dtype=dtype)
    before, positions = x.clone(), FAR + torch.arange(10).view(2, 1, 5)  # of each sequence
    rotated = rotary(x, positions)
    assert rotated.dtype == dtype and rotated.shape == x.shape and torch.equal(x, before)
    right = rotary(x.double(), positions)
    torch.testing.assert_close(right[1, 2], rotary(x[1, 2].double(), FAR + torch.arange(5, 10)))
    off = (rotated.double() - right).abs()
    assert (off <= gamma(1, dtype) * right.abs() + torch.finfo(dtype).smallest_normal).all()


def test_rotations_add_up_and_gradients_are_rotated_back():
    x, positions = normal(5, 8).requires_grad_(), torch.tensor([3, 1, 4, 1, 5])
    once = rotary(x, positions)
    torch.testing.assert_close(rotary(once, 2 * positions), rotary(x, 3 * positions))
    torch.testing.assert_close(rotary(once, -positions), x)
    torch.testing.assert_close(once.norm(dim=-1), x.norm(dim=-1))
    g = normal(5, 8, seed=3)
    torch.testing.assert_close(torch.autograd.grad(once, x, g)[0], rotary(g, -positions))


# ALiBi


def test_slopes_for_any_number_of_heads():
    def slopes(n):  # the paper's code
        if n & (n - 1) == 0:
            return [2 ** (-8 * (h + 1) / n) for h in range(n)]
        power = 2 ** math.floor(math.log2(n))
        return slopes(power) + slopes(2 * power)[::2][: n - power]

    assert slopes(3) == [2**-4, 2**-8, 2**-2]
    for n in range(1, 33):
        torch.testing.assert_close(-alibi_bias(2, 2, n)[:, 1, 0], torch.tensor(slopes(n)))


def test_the_bias_is_minus_slope_times_distance_and_aligns_like_the_causal_mask():
    bias = alibi_bias(3, 7, 4)
    assert bias.shape == (4, 3, 7) and bias.dtype == torch.float32
    for i in range(3):
        for j in range(7):
            torch.testing.assert_close(bias[:, i, j], bias[:, 2, 5] * abs(i + 4 - j))
    own = causal_mask(3, 7, align="lower_right").sum(dim=-1) - 1  # (L,), the query's own position
    assert torch.equal(bias.argmax(dim=-1), own.expand(4, -1))
    assert torch.equal(alibi_bias(5, 5, 6)[:, -2:], alibi_bias(2, 5, 6))  # decoding with a cache
