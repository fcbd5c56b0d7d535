"""Lesson 09: positions against formulas written number by number, in float64, and their laws."""

import math

import pytest
import torch

from course_utils.attention import (
    alibi_bias,
    causal_mask,
    follows_same_token,
    rotary,
    sinusoidal_positions,
)
from induction_seeds import LESSON, definitions
from rounding import gamma

FAR = 100_000


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def speed(i, d, base=10000):
    """Return the radians a place by which pair i of d / 2 turns."""
    return math.exp(-2 * i / d * math.log(base))


# Sinusoids


@pytest.mark.parametrize("L, d_model", [(1, 2), (5, 6), (40, 16)])
def test_sinusoids_entry_by_entry(L, d_model):
    found = sinusoidal_positions(L, d_model)
    assert found.shape == (L, d_model) and found.dtype == torch.float32
    for p in range(L):
        for i in range(d_model // 2):
            angle = p * speed(i, d_model)
            for column, right in ((2 * i, math.sin(angle)), (2 * i + 1, math.cos(angle))):
                assert abs(found[p, column] - right) <= gamma(1, torch.float32)


def test_sinusoids_far_out_are_rounded_once():
    """Angles in float32 would err by 0.004 there."""
    found = sinusoidal_positions(FAR + 1, 8)[FAR]
    right = [f(FAR * speed(i, 8)) for i in range(4) for f in (math.sin, math.cos)]
    torch.testing.assert_close(
        found.double(), torch.tensor(right).double(), rtol=0, atol=2 * gamma(1, torch.float32)
    )


@pytest.mark.parametrize("k", [1, 7, -3])
def test_a_place_k_further_on_is_the_place_turned(k):
    """One matrix, the same for every place, made of blocks that turn."""
    d_model, places = 12, sinusoidal_positions(50, 12).double()
    blocks = []
    for i in range(d_model // 2):
        c, s = math.cos(k * speed(i, d_model)), math.sin(k * speed(i, d_model))
        blocks.append(torch.tensor([[c, s], [-s, c]]).double())  # on (sin, cos)
    turn = torch.block_diag(*blocks)
    assert torch.allclose(turn @ turn.T, torch.eye(d_model).double())
    start = max(0, -k)
    moved = places[start : 50 - max(0, k)] @ turn.T
    torch.testing.assert_close(moved, places[start + k :][: len(moved)], rtol=0, atol=3e-7)


# Rotary


def by_numbers(x, positions, base, interleaved):
    """Turn x (L, d) pair by pair, as complex numbers."""
    L, d = x.shape
    turned = torch.empty_like(x)
    for row in range(L):
        for i in range(d // 2):
            a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + d // 2)
            angle = float(positions[row]) * speed(i, d, base)
            z = complex(x[row, a], x[row, b]) * complex(math.cos(angle), math.sin(angle))
            turned[row, a], turned[row, b] = z.real, z.imag
    return turned


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("base", [10000, 100, 5e5])
@pytest.mark.parametrize("d", [2, 6, 16])
def test_rotary_turns_each_pair_like_a_complex_number(d, base, interleaved):
    x, positions = draw(5, d), torch.tensor([0, 1, 2, 40, 3])
    right = by_numbers(x, positions, base, interleaved)
    torch.testing.assert_close(rotary(x, positions, base, interleaved), right, rtol=0, atol=1e-12)


def test_by_itself_it_pairs_halves_at_base_10000():
    x, positions = draw(4, 8), torch.arange(4)
    assert torch.equal(rotary(x, positions), rotary(x, positions, 10000, False))
    assert not torch.allclose(rotary(x, positions), rotary(x, positions, interleaved=True))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_rotary_keeps_dtype_shape_and_memory_of_its_input_and_rounds_once(dtype):
    x = draw(2, 3, 5, 8).to(dtype)
    before, positions = x.clone(), torch.arange(FAR, FAR + 5)
    turned = rotary(x, positions)
    assert turned.dtype == dtype and turned.shape == x.shape and torch.equal(x, before)
    right = rotary(x.double(), positions)
    off = (turned.double() - right).abs()
    assert (off <= gamma(1, dtype) * right.abs() + torch.finfo(dtype).smallest_normal).all()


def test_leading_dimensions_and_positions_of_each_sequence_broadcast():
    x, positions = draw(2, 3, 5, 8), torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 0, 1]])  # (B, L)
    found = rotary(x, positions[:, None])  # (B, 1, L)
    for b in range(2):
        for h in range(3):
            assert torch.equal(found[b, h], rotary(x[b, h], positions[b]))


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_product_depends_on_the_distance_of_places_alone(interleaved):
    q, k = draw(1, 16, seed=1), draw(1, 16, seed=2)

    def product(i, j):
        at = [rotary(x, torch.tensor([p]), interleaved=interleaved) for x, p in ((q, i), (k, j))]
        return (at[0] * at[1]).sum().item()

    near = [product(i, i - 5) for i in (5, 6, 100, FAR)]
    # float64: an angle of 1e5 errs by 1e5 · 2^-53 from speed, product and cosine, 16 such terms
    assert max(near) - min(near) < 1e-8
    assert abs(product(5, 0) - product(6, 0)) > 1e-3
    assert abs(product(5, 0) - product(0, 5)) > 1e-3  # before is not after


def test_place_0_changes_nothing_and_turns_add_up():
    x, positions = draw(5, 8), torch.tensor([3, 1, 4, 1, 5])
    torch.testing.assert_close(rotary(x, torch.zeros(5)), x)
    torch.testing.assert_close(
        rotary(rotary(x, positions), 2 * positions), rotary(x, 3 * positions)
    )
    torch.testing.assert_close(rotary(rotary(x, positions), -positions), x)
    torch.testing.assert_close(rotary(x, positions / 4).norm(dim=-1), x.norm(dim=-1))


def test_one_layout_is_the_other_permuted():
    x, positions, d = draw(5, 12), torch.arange(5), 12
    order = torch.arange(d).reshape(2, d // 2).T.flatten()  # 0, 6, 1, 7, ...
    halves = rotary(x, positions)
    torch.testing.assert_close(rotary(x[:, order], positions, interleaved=True), halves[:, order])


def test_turning_passes_gradients_turned_back():
    x, positions = draw(5, 8).requires_grad_(), torch.arange(5)
    g = draw(5, 8, seed=3)
    (found,) = torch.autograd.grad(rotary(x, positions), x, g)
    torch.testing.assert_close(found, rotary(g, -positions))


# ALiBi


@pytest.mark.parametrize(
    "num_heads, exponents",
    [
        (1, [8]),
        (2, [4, 8]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        # of 3: those of 2, then every second of those of 4
        (3, [4, 8, 2]),
        (6, [2, 4, 6, 8, 1, 3]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
        (16, [i / 2 for i in range(1, 17)]),
    ],
)
def test_slopes_are_the_papers_for_any_number_of_heads(num_heads, exponents):
    bias = alibi_bias(4, 4, num_heads)
    assert bias.shape == (num_heads, 4, 4) and bias.dtype == torch.float32
    torch.testing.assert_close(-bias[:, 1, 0], torch.tensor([2.0**-e for e in exponents]))


def test_slopes_of_all_numbers_of_heads_by_the_recursive_rule():
    def slopes(n):
        if n & (n - 1) == 0:
            return [2 ** (-8 * (h + 1) / n) for h in range(n)]
        power = 1
        while 2 * power < n:
            power *= 2
        return slopes(power) + slopes(2 * power)[::2][: n - power]

    for n in range(1, 65):
        torch.testing.assert_close(-alibi_bias(2, 2, n)[:, 1, 0], torch.tensor(slopes(n)))


def test_the_bias_is_minus_slope_times_distance_and_lines_up_like_the_causal_mask():
    bias = alibi_bias(3, 7, 4)
    for i in range(3):
        for j in range(7):
            torch.testing.assert_close(bias[:, i, j], bias[:, 2, 5] * abs(i + 4 - j))
    last_seen = (
        causal_mask(3, 7, align="lower_right").sum(dim=-1) - 1
    )  # (L,), the key at the query's own place
    assert torch.equal(bias.argmax(dim=-1), last_seen.expand(4, -1))
    assert torch.equal(alibi_bias(5, 5, 6)[:, -2:], alibi_bias(2, 5, 6))  # decoding with a cache


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: sinusoidal_positions(4, 5), "d_model must be a multiple of 2, got 5"),
        (lambda: sinusoidal_positions(-1, 4), "L must be 0 or more, got -1"),
        (lambda: rotary(torch.ones(3, 5), torch.arange(3)), "x must have an even last dimension"),
        (lambda: rotary(torch.ones(3, 4).int(), torch.arange(3)), "x must have floating point"),
        (lambda: rotary(torch.ones(3, 4), torch.arange(4)), "positions must have shape"),
        (lambda: rotary(torch.ones(3, 4), [0, 1, 2]), "positions must be a torch.Tensor"),
        (lambda: alibi_bias(3, 3, 0), "num_heads must be 1 or more, got 0"),
        (lambda: alibi_bias(3, 2.0, 2), "S must be an int, got float"),
    ],
)
def test_bad_arguments_are_named(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()


# The lesson's own model without positions


def test_the_model_trained_with_patience_is_lesson_07s_without_its_positions():
    torch.manual_seed(0)
    known = definitions(LESSON)["AttentionOnly"](num_layers=2, positions=False)
    lesson = definitions(LESSON.with_name("09_positions.ipynb"))
    model = lesson["Unplaced"]()
    for part in ("embed", "layers", "unembed"):
        theirs = getattr(known, part).parameters()
        for mine, weights in zip(getattr(model, part).parameters(), theirs, strict=True):
            mine.data.copy_(weights)
    tokens, targets, repeated = lesson["draw_repeats"](40)  # (B, L) each
    torch.testing.assert_close(model(tokens), known(tokens)[0])
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    assert torch.equal(repeated, follows_same_token(tokens).any(dim=-1))
    assert not torch.equal(repeated, repeated[:1].expand_as(repeated))  # periods differ
