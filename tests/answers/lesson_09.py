"""Answers to lesson 09's exercises, written apart from the checks: right ones and wrong ones."""

import functools
import math

import numpy as np
import torch
import torch.nn.functional as F

from course_utils.attention import attention, causal_mask, rotary

# right


def _sinusoids_by_loops(positions, d_model):
    half = d_model // 2
    rows = torch.zeros(len(positions), d_model)
    for row, p in enumerate(positions.tolist()):
        for i in range(half):
            angle = p / 10000 ** (2 * i / d_model)
            rows[row, i], rows[row, half + i] = math.sin(angle), math.cos(angle)
    return rows


def _sinusoids_by_numpy(positions, d_model):
    angles = np.outer(positions.numpy(), np.exp(-np.log(1e4) * np.arange(0, d_model, 2) / d_model))
    return torch.from_numpy(np.concatenate([np.sin(angles), np.cos(angles)], axis=1)).float()


def _sinusoids_shifted(positions, d_model):
    speeds = torch.logspace(0, 8 / d_model - 4, d_model // 2)
    angles = torch.einsum("l,i->li", positions.to(speeds), speeds)
    return torch.hstack([angles.sin(), (angles + torch.pi / 2).sin()])


def _turned_by_rotate_half(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos.repeat(1, 2) + turned * sin.repeat(1, 2)


def _turned_as_complex(x, cos, sin):
    half = x.shape[-1] // 2
    z = torch.complex(x[..., :half].contiguous(), x[..., half:].contiguous())
    z = z * torch.complex(cos, sin)
    return torch.cat([z.real, z.imag], dim=-1)


def _turned_by_matrices(x, cos, sin):
    half = x.shape[-1] // 2
    blocks = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)
    pairs = torch.stack([x[..., :half], x[..., half:]], dim=-1)  # (..., L, d / 2, 2)
    return torch.einsum("lpab,...lpb->...lpa", blocks, pairs).mT.flatten(-2)


def _slopes_recursively(num_heads):
    if num_heads & (num_heads - 1) == 0:
        start = 2 ** -(8 / num_heads)
        return torch.tensor([start ** (h + 1) for h in range(num_heads)])
    power = 2 ** int(math.log2(num_heads))
    rest = _slopes_recursively(2 * power)[::2][: num_heads - power]
    return torch.cat([_slopes_recursively(power), rest])


def _slopes_by_logspace(num_heads):
    power = 1 << int(math.floor(math.log2(num_heads)))
    first = torch.logspace(-8 / power, -8, power, base=2)
    both = torch.logspace(-4 / power, -8, 2 * power, base=2)
    return torch.hstack([first, both[0::2][: num_heads - power]])


def _slopes_in_a_list(num_heads):
    power = max(2**e for e in range(10) if 2**e <= num_heads)
    slopes = []
    for h in range(num_heads):
        e = 8 * (h + 1) / power if h < power else 4 * (2 * (h - power) + 1) / power
        slopes.append(1 / 2**e)
    return torch.tensor(slopes)


def _halves_by_index(W, num_heads):
    d_k = len(W) // num_heads
    order = [h * d_k + i for h in range(num_heads) for i in [*range(0, d_k, 2), *range(1, d_k, 2)]]
    return W[order]


def _halves_by_chunks(W, num_heads):
    return torch.cat([part for head in W.chunk(num_heads) for part in (head[::2], head[1::2])])


def _halves_by_matrix(W, num_heads):
    d_k = len(W) // num_heads
    one = torch.zeros(d_k, d_k, dtype=W.dtype)
    for i in range(d_k // 2):
        one[i, 2 * i] = one[i + d_k // 2, 2 * i + 1] = 1
    return torch.block_diag(*[one] * num_heads) @ W


def _decode_with_attention(q, k, v, k_cache, v_cache):
    old, L = k_cache.size(-2), q.size(-2)
    at = old + torch.arange(L)
    keys, values = torch.cat((k_cache, rotary(k, at)), -2), torch.cat((v_cache, v), -2)
    return (
        attention(rotary(q, at), keys, values, causal_mask(L, old + L, align="lower_right"))[0],
        keys,
        values,
    )


def _decode_one_by_one(q, k, v, k_cache, v_cache):
    outputs = []
    for t in range(q.shape[-2]):
        new, at = slice(t, t + 1), torch.tensor([k_cache.shape[-2]])
        k_cache = torch.cat([k_cache, rotary(k[..., new, :], at)], dim=-2)
        v_cache = torch.cat([v_cache, v[..., new, :]], dim=-2)
        outputs.append(attention(rotary(q[..., new, :], at), k_cache, v_cache)[0])
    return torch.cat(outputs, dim=-2), k_cache, v_cache


def _decode_by_sdpa(q, k, v, k_cache, v_cache):
    L, S = q.shape[-2], k_cache.shape[-2] + q.shape[-2]
    both = rotary(torch.stack([q, k]), torch.arange(S)[S - L :])
    keys, values = torch.cat([k_cache, both[1]], -2), torch.cat([v_cache, v], -2)
    mask = torch.arange(S) <= torch.arange(S - L, S)[:, None]
    return F.scaled_dot_product_attention(both[0], keys, values, mask), keys, values


def _finds_by_scores(decode):
    q, k, v = torch.randn(10, 6), torch.randn(10, 6), torch.randn(10, 3)
    at = torch.arange(10)
    scores = rotary(q, at) @ rotary(k, at).T / 6**0.5
    scores[torch.ones(10, 10).triu(1) > 0] = -torch.inf
    whole = scores.softmax(-1) @ v
    k_cache, v_cache = torch.zeros(0, 6), torch.zeros(0, 3)
    for first, last in [(0, 3), (3, 4), (4, 10)]:
        output, k_cache, v_cache = decode(
            q[first:last], k[first:last], v[first:last], k_cache, v_cache
        )
        np.testing.assert_allclose(output, whole[first:last], atol=1e-4)
    assert len(k_cache) == len(v_cache) == 10


def _finds_by_caches_too(decode):
    q, k, v = torch.randn(3, 16, 4).unbind()
    k_cache, v_cache, at = torch.empty(0, 4), torch.empty(0, 4), torch.arange(16)
    for t in range(0, 16, 2):
        output, k_cache, v_cache = decode(
            q[t : t + 2], k[t : t + 2], v[t : t + 2], k_cache, v_cache
        )
        n = t + 2
        right, _ = attention(rotary(q[:n], at[:n]), rotary(k[:n], at[:n]), v[:n], causal_mask(n))
        torch.testing.assert_close(output, right[t:], atol=1e-4, rtol=0)
        torch.testing.assert_close(k_cache, rotary(k[:n], at[:n]), atol=1e-4, rtol=0)
        torch.testing.assert_close(v_cache, v[:n])


def _finds_with_a_prompt(decode):
    q, k, v = torch.randn(12, 8), torch.randn(12, 8), torch.randn(12, 1)
    at = torch.arange(12)
    whole, _ = attention(rotary(q, at), rotary(k, at), v, causal_mask(12))
    output, *caches = decode(q[:4], k[:4], v[:4], torch.empty(0, 8), torch.empty(0, 1))
    if not torch.allclose(output, whole[:4], atol=1e-4):
        raise ValueError("the prompt")
    for t in range(4, 10):
        output, *caches = decode(q[t, None], k[t, None], v[t, None], *caches)
        if not torch.allclose(output, whole[t, None], atol=1e-4):
            raise ValueError(f"token {t}")
    output, *caches = decode(q[10:], k[10:], v[10:], *caches)
    assert torch.allclose(output, whole[10:], atol=1e-4)


def _interpolated_by_if(x, trained):
    places = torch.arange(x.shape[-2]).double()
    if len(places) > trained:
        places *= trained / len(places)
    return rotary(x, places)


def _interpolated_by_linspace(x, trained):
    L = x.size(-2)
    last = (L - 1) * trained / L if L > trained else L - 1
    return rotary(x, torch.linspace(0, last, L, dtype=torch.float64))


def _interpolated_by_halves(x, trained):
    L, d = x.shape[-2:]
    speeds = torch.tensor([10000 ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)
    angles = torch.arange(L)[:, None] * speeds * min(1.0, trained / L)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


def _asks_by_rotary(n):
    key = torch.cat([torch.ones(32), torch.zeros(32)])[None]  # (1, d_k)
    asked = [500 * rotary(key, torch.tensor([-b]))[0] for b in range(n)]
    return torch.stack(asked), key.repeat(n, 1)


def _asks_by_angles(n):
    half = 40
    angles = torch.arange(n)[:, None] * 10000.0 ** (-torch.arange(half) / half)
    hands = torch.cat([angles.cos(), -angles.sin()], dim=-1)
    return 300 * hands, F.pad(torch.ones(n, half), (0, half))


def _asks_with_loud_keys(n):
    key = torch.randn(1, 128, generator=torch.Generator().manual_seed(5))
    back = torch.arange(n)
    return 20 * rotary(key.expand(n, -1), -back), (20 * key).repeat(n, 1)


_SHIFTS, _MIXED = (1, 7, 30, 555, 9999), (40, 3, 17, 5, 0, 21, 22, 9, 60)
_PAIRS, _SAME = [((3, 7), (303, 307)), ((6, 9), (4006, 4009))], {"atol": 1e-3, "rtol": 0}


def _finds_by_many_shifts(attend):
    q, k, v = torch.randn(3, 20, 6).unbind()
    at = torch.arange(20)
    output = attend(q, k, v, at)
    for far in _SHIFTS:
        np.testing.assert_allclose(attend(q, k, v, at + far), output, **_SAME)
    if torch.allclose(attend(q, k, v, at * at), output, **_SAME):
        raise ValueError("other distances, and nothing came of it")


def _finds_in_any_order(attend):
    q, k, v = torch.randn(9, 4), torch.randn(9, 4), torch.randn(9, 2)
    at = torch.tensor(_MIXED)
    output = attend(q, k, v, at)
    for far in _SHIFTS:
        torch.testing.assert_close(attend(q, k, v, at + far), output, **_SAME)
    assert not torch.equal(attend(q, k, v, at.sort().values), output)


def _finds_by_two_tokens(attend):
    q, k, v = torch.randn(3, 2, 8).unbind()
    near, far = (
        [attend(q, k, v, torch.tensor(pair)) for pair in pairs]
        for pairs in zip(*_PAIRS, strict=True)
    )
    for one, other in zip(near, far, strict=True):
        assert torch.allclose(one, other, **_SAME)
    assert not torch.allclose(*near, **_SAME)


def _rolls_unturned(q, k, v, keys, values, window):
    keys, values = torch.cat([keys, k])[-window:], torch.cat([values, v])[-window:]
    places = torch.arange(1000, 1000 + len(keys))
    return attention(rotary(q, places[-1:]), rotary(keys, places), values)[0], keys, values


def _rolls_from_zero(q, k, v, keys, values, window):
    keys = torch.cat([rotary(keys, -torch.ones(len(keys))), k])[-window:]
    values = torch.cat([values, v])[-window:]
    (output,) = F.scaled_dot_product_attention(q[None], keys[None], values[None])
    return output, keys, values


def _rolls_afterwards(q, k, v, keys, values, window):
    at = torch.tensor([len(keys)])
    keys, values = torch.cat([keys, rotary(k, at)]), torch.cat([values, v])
    weights = (rotary(q, at) @ keys.T / k.shape[1] ** 0.5).softmax(-1)
    output = weights @ values
    if len(keys) == window:
        keys, values = rotary(keys, torch.full((window,), -1))[1:], values[1:]
    return [output, keys, values]


RIGHT = {
    "sinusoids_at": [_sinusoids_by_loops, _sinusoids_by_numpy, _sinusoids_shifted],
    "rotary_by_tables": [_turned_by_rotate_half, _turned_as_complex, _turned_by_matrices],
    "alibi_slopes": [_slopes_recursively, _slopes_by_logspace, _slopes_in_a_list],
    "interleaved_to_halves": [_halves_by_index, _halves_by_chunks, _halves_by_matrix],
    "decode_rotary": [_decode_with_attention, _decode_one_by_one, _decode_by_sdpa],
    "catches_lost_place": [_finds_by_scores, _finds_by_caches_too, _finds_with_a_prompt],
    "interpolated": [_interpolated_by_if, _interpolated_by_linspace, _interpolated_by_halves],
    "catches_absolute": [_finds_by_many_shifts, _finds_in_any_order, _finds_by_two_tokens],
    "rolling_step": [_rolls_unturned, _rolls_from_zero, _rolls_afterwards],
    "asks_back": [_asks_by_rotary, _asks_by_angles, _asks_with_loud_keys],
}


# wrong


def _too_strict(decode):
    q, k, v, at = torch.randn(9, 4), torch.randn(9, 4), torch.randn(9, 4), torch.arange(9)
    output, _, _ = decode(q, k, v, torch.empty(0, 4), torch.empty(0, 4))
    assert torch.allclose(output, attention(rotary(q, at), rotary(k, at), v)[0], atol=1e-4)


def _returns_a_verdict(decode):
    return decode(*torch.randn(3, 2, 4), torch.empty(0, 4), torch.empty(0, 4)) is not None


def _shifted(attend, shift, distances=None, factor=None):
    q, k, v, at = torch.randn(12, 8), torch.randn(12, 8), torch.randn(12, 8), torch.arange(12)
    output = attend(q, k, v, at)
    assert torch.allclose(attend(q, k, v, at + shift), output, atol=1e-3)
    if distances:
        assert not torch.allclose(attend(q, k, v, distances * at), output, atol=1e-3)
    if factor:
        assert torch.allclose(attend(q, k, v, factor * at), output, atol=1e-3)


def _as_rotary(attend):
    q, k, v, at = torch.randn(12, 8), torch.randn(12, 8), torch.randn(12, 8), torch.arange(12)
    right, _ = attention(rotary(q, at), rotary(k, at), v)
    assert torch.allclose(attend(q, k, v, at), right, atol=1e-3)


def _within(**limits):
    return functools.partial(torch.allclose, **limits)


_NEAR = _within(atol=1e-3)


def _compares(attend, close=_NEAR, *, n=12, alike=False, shift=1001, others=None):
    """Compare outputs at places, at shifted ones and, if asked, at others."""
    q, k, v = torch.ones(3, n, 8) if alike else torch.randn(3, n, 8)
    at = torch.arange(n)
    output = attend(q, k, v, at)
    assert close(attend(q, k, v, at + shift), output)
    if others:
        assert not torch.equal(attend(q, k, v, others(at)), output)


def _rolls(q, k, v, keys, values, window, *, late=0, back=1, clamp=False, grows=False):
    full = len(keys) == window
    if full and not clamp and not grows:
        keys, values = rotary(keys[1:], torch.full((window - 1,), -back)), values[1:]
    at = torch.tensor([min(len(keys), window - 1) if clamp else len(keys)])
    keys, values = torch.cat([keys, rotary(k, at)]), torch.cat([values, v])
    if not grows:
        keys, values = keys[-window:], values[-window:]
    return attention(rotary(q, at + late), keys, values)[0], keys, values


def _asks(key, n, places, loud=300):
    return loud * rotary(key.expand(n, -1), places), key.repeat(n, 1)


def _counts_outside(counted):
    def answer(q, k, v, keys, values, window):
        if not len(keys):
            counted.clear()
        place = torch.tensor([len(counted)])
        counted.append(place)
        keys = torch.cat([keys, rotary(k, place)])[-window:]
        values = torch.cat([values, v])[-window:]
        return attention(rotary(q, place), keys, values)[0], keys, values

    return answer


WRONG = [
    ("rotary_by_tables", None, lambda x, cos, sin: _turned_as_complex(x, cos, sin)[..., :2]),
    ("alibi_slopes", None, lambda H: torch.ones(H)),
    ("interleaved_to_halves", None, lambda W, H: W.flip(0)),
    ("decode_rotary", "another order", lambda *given: _decode_by_sdpa(*given)[::-1]),
    ("catches_lost_place", "rejects right code", _too_strict),
    ("catches_lost_place", "returns a verdict", _returns_a_verdict),
    ("catches_absolute", "rejects right code",
     lambda attend: _compares(attend, torch.equal, others=lambda at: 11 - at)),
    ("catches_absolute", "rejects right code", lambda attend: _shifted(attend, 777, factor=2)),
    ("catches_absolute", "rejects right code", _as_rotary),
    ("catches_absolute", "lets broken code through", lambda attend: _shifted(attend, 8)),
    ("catches_absolute", "returns a verdict",
     lambda attend: attend(*torch.randn(3, 2, 4), torch.arange(2)).shape == (2, 4)),
    ("rolling_step", "kept outside the cache", _counts_outside([])),
    ("rolling_step", "outgrows the window", lambda *given: _rolls(*given, grows=True)),
    ("rolling_step", "not three things", lambda *given: _rolls_unturned(*given)[0]),
    ("rolling_step", "wrong shape",
     lambda *given: (_rolls_unturned(*given)[0][0], *_rolls_unturned(*given)[1:])),
    ("rolling_step", None, lambda q, k, v, *rest: (v, *rest[:2])),
    ("asks_back", "not found", lambda n: _asks(torch.ones(1, 2), n, -torch.arange(n))),
    ("asks_back", "wrong shapes", lambda n: torch.zeros(n, 4)),
    ("asks_back", "infinite", lambda n: (torch.full((n, 4), torch.inf), torch.ones(n, 4))),
    ("asks_back", "not in float32", lambda n: (torch.ones(n, 4).double(), torch.ones(n, 4))),
]  # fmt: skip
