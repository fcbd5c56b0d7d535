"""Caches that keep less: what is stored, what is lost, and what must not change."""

import pytest
import torch

from course_utils.attention import attention, causal_mask, rotary, sliding_window_mask
from course_utils.cache import (
    QuantizedCache,
    WindowCache,
    absorbed_attention,
    dequantize,
    latent_attention,
    quantize,
)
from tiny_language_model import tiny_language_model

SHAPE = 2, 3, 7, 5


def normal(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.fixture(scope="module")
def model():
    return tiny_language_model()[0]


@pytest.fixture
def tokens():
    return torch.randint(200, (2, 23), generator=torch.Generator().manual_seed(1))


def read(model, tokens, cache, size, **options):
    """Return the logits (B, L, V) of tokens that are read in chunks of that size."""
    return torch.cat([model(new, cache, **options) for new in tokens.split(size, dim=1)], dim=1)


# Quantized tensors


@pytest.mark.parametrize("dim", [-1, -2, 0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("bits", range(1, 9))
def test_a_rounded_number_is_at_most_half_a_step_off(bits, dtype, dim):
    x = 5 * normal(*SHAPE, dtype=torch.float64).to(dtype) + 3
    quantized = quantize(x, bits, dim)
    back = dequantize(quantized)
    assert (back.shape, back.dtype) == (x.shape, x.dtype)
    ulp = 2 * torch.finfo(dtype).eps * x.abs().max()  # low, scale and result are rounded too
    half = quantized.scale.double() / 2 * (1 + 2**bits * torch.finfo(dtype).eps)
    assert ((back.double() - x.double()).abs() <= half + ulp).all()


@pytest.mark.parametrize("bits", range(1, 9))
def test_each_slice_has_at_most_as_many_levels_as_its_codes(bits):
    back = dequantize(quantize(normal(1, 600, 3), bits, 1))
    levels = [len(back[0, :, c].unique()) for c in range(3)]
    assert max(levels) <= 2**bits
    assert min(levels) > 2**bits // 2


@pytest.mark.parametrize("bits", range(1, 9))
def test_codes_are_stored_without_gaps(bits):
    quantized = quantize(normal(4, 16, 8), bits, -2)  # 512 numbers
    assert quantized.codes.dtype == torch.uint8
    assert quantized.codes.untyped_storage().nbytes() == 512 * bits // 8
    parts = quantized.codes, quantized.low, quantized.scale
    assert quantized.nbytes == sum(part.untyped_storage().nbytes() for part in parts)


def test_the_smallest_and_the_largest_number_of_a_slice_are_levels():
    x = normal(*SHAPE)
    back = dequantize(quantize(x, 3, -2))
    torch.testing.assert_close(back.amin(-2), x.amin(-2))
    torch.testing.assert_close(back.amax(-2), x.amax(-2))


def test_rounding_again_changes_nothing():
    once = dequantize(quantize(normal(*SHAPE), 3, -1))
    torch.testing.assert_close(dequantize(quantize(once, 3, -1)), once)


def test_slices_do_not_change_each_other():
    x = normal(*SHAPE)
    other = x.clone()
    other[..., 2] *= 100
    change = dequantize(quantize(x, 4, -2)) != dequantize(quantize(other, 4, -2))
    assert change[..., 2].any() and not change[..., [0, 1, 3, 4]].any()


def test_nan_and_infinities_make_their_slices_nan_and_no_other():
    x = normal(*SHAPE)
    x[0, 1, 2, :3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    lost = dequantize(quantize(x, 4, -2)).isnan()
    assert lost[0, 1, :, :3].all() and lost.sum() == 3 * SHAPE[-2]


def test_equal_numbers_come_back():
    x = torch.full((2, 6, 3), -1.7)
    assert dequantize(quantize(x, 2, -2)).equal(x)
    assert dequantize(quantize(torch.zeros(2, 6, 3), 8, -1)).equal(torch.zeros(2, 6, 3))


def test_the_range_may_exceed_the_dtype():
    x = torch.tensor([[-60000.0, 0, 60000]], dtype=torch.float16)  # their difference overflows
    back = dequantize(quantize(x, 8, 0))
    assert back.equal(x)
    for half in (x, x / 2):  # the codes times the scale overflow, too
        assert dequantize(quantize(half, 8, 1)).isfinite().all()


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ((normal(2, 3), 9, -1), ValueError, "from 1 to 8, got 9"),
        ((normal(2, 3), 0, -1), ValueError, "bits must be 1 or more, got 0"),
        ((normal(2, 3), 2.5, -1), TypeError, "bits must be an int"),
        ((normal(2, 3), 4, 2), ValueError, "dim must be from -2 to 1"),
        ((normal(0, 3), 4, -1), ValueError, r"x must not be empty, got shape \(0, 3\)"),
        ((torch.arange(3), 4, 0), TypeError, "floating point"),
        (([1.0, 2.0], 4, 0), TypeError, "x must be a torch.Tensor"),
    ],
)
def test_what_cannot_be_quantized_gets_a_reason(arguments, error, words):
    with pytest.raises(error, match=words):
        quantize(*arguments)


# Caches of the language model


@pytest.mark.parametrize("size", [1, 3, 23])
def test_a_cache_that_stays_whole_changes_nothing(model, tokens, size):
    cache = QuantizedCache(16, 16, recent=3, group=4, dtype=torch.float32)
    torch.testing.assert_close(read(model, tokens, cache, size), model(tokens), atol=1e-4, rtol=0)
    assert cache.num_tokens == 23
    whole = {}
    model(tokens, whole)
    assert cache.nbytes == sum(x.nbytes for pair in whole.values() for x in pair)


@pytest.mark.parametrize("size", [1, 5, 23])
def test_old_tokens_are_quantized_in_groups_however_they_come(size):
    k, v = normal(2, 2, 23, 6), normal(2, 2, 23, 6, seed=1)
    cache = QuantizedCache(2, 3, recent=5, group=4, dtype=torch.float64)
    for new_k, new_v in zip(k.split(size, -2), v.split(size, -2), strict=True):
        past_k, past_v = cache[0] if 0 in cache else (new_k[..., :0, :], new_v[..., :0, :])
        cache[0] = torch.cat([past_k, new_k], -2), torch.cat([past_v, new_v], -2)
    kept_k, kept_v = cache[0]
    assert kept_k[..., 16:, :].equal(k[..., 16:, :])  # 23 - 16 < 5 + 4
    assert kept_v[..., 16:, :].equal(v[..., 16:, :])
    for start in range(0, 16, 4):
        group = slice(start, start + 4)
        expected = dequantize(quantize(k[..., group, :], 2, -2))
        torch.testing.assert_close(kept_k[..., group, :], expected)
        expected = dequantize(quantize(v[..., group, :], 3, -1))
        torch.testing.assert_close(kept_v[..., group, :], expected)


def test_more_bits_lose_less_and_take_more(model, tokens):
    exact, lost, held = model(tokens), [], []
    for bits in (1, 2, 4, 8, 16):
        cache = QuantizedCache(bits, bits, recent=0, group=8)
        lost.append((read(model, tokens, cache, 4) - exact).square().mean().item())
        held.append(cache.nbytes)
    assert lost == sorted(lost, reverse=True) and lost[0] > 0
    assert held == sorted(held)


def test_bytes_are_those_of_what_is_stored(model, tokens):
    cache = QuantizedCache(4, 2, recent=2, group=8)
    model(tokens[:, :20], cache)  # 16 tokens in groups, 4 whole
    numbers = 2 * 2 * 4  # B, H_kv and d_k
    keys = 16 * numbers // 2 + 2 * numbers * 2 * 2  # half a byte each, low and scale of two groups
    values = 16 * numbers // 4 + 16 * 2 * 2 * 2 * 2  # low and scale of each token and head
    assert cache.nbytes == 3 * (keys + values + 2 * 4 * numbers * 2)  # 3 layers


@pytest.mark.parametrize("make", [lambda: QuantizedCache(2, 2, 0, 4), lambda: WindowCache(3)])
def test_nothing_that_is_dropped_stays_in_memory(model, tokens, make):
    cache = make()
    read(model, tokens, cache, 5, **({"attend": cache.attend} if hasattr(cache, "attend") else {}))
    stored = set()
    for pair in cache._layers.values():
        for part in [part for parts in pair for part in parts]:
            tensors = (
                [part] if isinstance(part, torch.Tensor) else [part.codes, part.low, part.scale]
            )
            stored |= {
                (x.untyped_storage().data_ptr(), x.untyped_storage().nbytes()) for x in tensors
            }
    assert sum(size for _, size in stored) == cache.nbytes


@pytest.mark.parametrize("sinks", [0, 2])
@pytest.mark.parametrize("window", [1, 2, 6, 40])
def test_a_window_cache_gives_what_a_mask_gives(model, tokens, window, sinks):
    L = tokens.shape[1]
    mask = sliding_window_mask(L, window) | (torch.arange(L) < sinks) & causal_mask(L)  # (L, L)
    expected = model(tokens, attend=lambda q, k, v, _: attention(q, k, v, mask))
    for size in (1, 4, L):
        cache = WindowCache(window, sinks, dtype=torch.float32)
        found = read(model, tokens, cache, size, attend=cache.attend)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
        assert cache.num_tokens == L
        assert cache[0][0].shape[-2] == min(L, sinks + window - 1)


def test_a_window_cache_does_not_grow(model, tokens):
    cache, sizes = WindowCache(4, sinks=1), []
    for new in tokens.split(1, dim=1):
        model(new, cache, attend=cache.attend)
        sizes.append(cache.nbytes)
    assert sizes[:4] == sorted(set(sizes[:4])) and len(set(sizes[3:])) == 1


def test_an_empty_cache_is_empty(model):
    for cache in (QuantizedCache(4, 4), WindowCache(4)):
        assert not cache and 0 not in cache and (cache.num_tokens, cache.nbytes) == (0, 0)


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: QuantizedCache(9, 4), ValueError, "bits_k must be from 1 to 8, or 16 .* got 9"),
        (lambda: QuantizedCache(4, 32), ValueError, "bits_v must be from 1 to 8, or 16 .* got 32"),
        (lambda: QuantizedCache(4, 0), ValueError, "bits_v must be 1 or more"),
        (lambda: QuantizedCache(4, 4, recent=-1), ValueError, "recent must be 0 or more"),
        (lambda: QuantizedCache(4, 4, group=0), ValueError, "group must be 1 or more"),
        (lambda: QuantizedCache(4.0, 4), TypeError, "bits_k must be an int"),
        (lambda: WindowCache(0), ValueError, "window must be 1 or more"),
        (lambda: WindowCache(4, sinks=-1), ValueError, "sinks must be 0 or more"),
    ],
)
def test_what_is_no_cache_gets_a_reason(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_a_cache_must_get_what_it_keeps_back():
    cache = WindowCache(4)
    cache[0] = normal(1, 2, 3, 4), normal(1, 2, 3, 4)
    with pytest.raises(ValueError, match=r"begin with the 3 kept tokens, got \(1, 2, 1, 4\)"):
        cache[0] = normal(1, 2, 1, 4), normal(1, 2, 1, 4)
    with pytest.raises(ValueError, match=r"got \(1, 2, 5, 4\) and \(1, 2, 6, 4\)"):
        cache[0] = normal(1, 2, 5, 4), normal(1, 2, 6, 4)


# Latent attention


def latents(B=2, H=3, L=4, S=6, d_k=5, d_rope=2, d_v=7, d_c=8):
    shapes = (B, H, L, d_k), (B, H, L, d_rope), (B, S, d_c), (B, S, d_rope)
    shapes = *shapes, (H, d_k, d_c), (H, d_v, d_c)
    return [normal(*shape, seed=n).requires_grad_() for n, shape in enumerate(shapes)]


@pytest.mark.parametrize("d_rope", [0, 2, 4])
@pytest.mark.parametrize("masked", [False, True])
def test_absorbed_and_expanded_attention_are_equal(d_rope, masked):
    inputs = latents(d_rope=d_rope)
    mask = causal_mask(4, 6, align="lower_right") if masked else None
    pairs = zip(latent_attention(*inputs, mask), absorbed_attention(*inputs, mask), strict=True)
    for expanded, absorbed in pairs:
        torch.testing.assert_close(expanded, absorbed, atol=1e-12, rtol=0)
        weight = normal(*expanded.shape, seed=9)
        gradients = [
            torch.autograd.grad((x * weight).sum(), inputs, retain_graph=True, allow_unused=True)
            for x in (expanded, absorbed)
        ]
        for one, other in zip(*gradients, strict=True):
            if one is not None or other is not None:  # the weights do not depend on W_v
                torch.testing.assert_close(one, other, atol=1e-11, rtol=0)


def test_latent_attention_follows_the_paper():
    """DeepSeek-V2, equations 9 to 19, written out for one head, one query and one key at a time."""
    q, q_rope, latent, k_rope, W_k, W_v = latents()
    expected = torch.zeros(2, 3, 4, 7, dtype=torch.float64)
    for b in range(2):
        for h in range(3):
            keys = [torch.cat([W_k[h] @ c, r]) for c, r in zip(latent[b], k_rope[b], strict=True)]
            for t in range(4):
                query = torch.cat([q[b, h, t], q_rope[b, h, t]])
                scores = torch.stack([query @ key for key in keys]) / (5 + 2) ** 0.5
                weights = scores.softmax(dim=0)
                expected[b, h, t] = weights @ (latent[b] @ W_v[h].T)
    torch.testing.assert_close(latent_attention(q, q_rope, latent, k_rope, W_k, W_v)[0], expected)


def test_with_the_rotated_part_only_distances_matter():
    q, q_rope, latent, k_rope, W_k, W_v = latents()
    results = []
    for start in (0, 1000):
        queries = rotary(q_rope, torch.arange(start + 2, start + 6))
        keys = rotary(k_rope, torch.arange(start, start + 6))
        results.append(absorbed_attention(q, queries, latent, keys, W_k, W_v)[0])
    torch.testing.assert_close(*results)


def test_latent_attention_names_the_wrong_shape():
    q, q_rope, latent, k_rope, W_k, W_v = latents()
    with pytest.raises(ValueError, match="W_v must have shape"):
        absorbed_attention(q, q_rope, latent, k_rope, W_k, W_v.mT)
    with pytest.raises(ValueError, match="k_rope must have shape"):
        latent_attention(q, q_rope, latent, k_rope[:, :-1], W_k, W_v)
