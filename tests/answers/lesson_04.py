"""Answers to lesson 04's exercises, written apart from the checks: right ones and wrong ones."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from course_utils import attention

INF = float("inf")


# right


def _causal_by_triu(L, S=None):
    S = L if S is None else S
    return ~torch.triu(torch.ones(L, S), diagonal=1 + S - L).bool()


def _causal_in_numpy(L, S=None):
    S = L if S is None else S
    return torch.from_numpy(np.tri(L, S, S - L, dtype=bool))


def _padding_by_rows(lengths, S):
    rows = [[False] * (S - n) + [True] * n for n in lengths.tolist()]
    return torch.tensor(rows, dtype=torch.bool).view(len(lengths), 1, 1, S)


def _padding_turned_round(lengths, S):
    return (torch.arange(S) < lengths[:, None])[:, None, None].flip(-1)


def _window_by_loops(L, window, sinks):
    mask = torch.zeros(L, L).bool()
    for i in range(L):
        mask[i, max(0, i - window + 1) : i + 1] = True
        mask[i, : min(sinks, i + 1)] = True
    return mask


def _window_by_triangles(L, window, sinks):
    far = torch.ones(L, L, dtype=torch.bool).tril(-window)
    far[:, :sinks] = False
    return torch.ones(L, L).tril().bool() & ~far


def _prefix_by_where(L, prefix):
    i, j = torch.arange(L)[:, None], torch.arange(L)[None]
    return torch.where(j < prefix.view(-1, 1, 1, 1), True, j <= i)


def _prefix_by_maximum(L, prefix):
    limit = torch.maximum(torch.arange(L), prefix[:, None] - 1)  # (B, L)
    return (torch.arange(L) <= limit[..., None]).unsqueeze(1)


def _packed_by_loops(ids):
    L = ids.shape[-1]
    rows = ids.reshape(-1, L).tolist()
    made = [[[j <= i and row[i] == row[j] for j in range(L)] for i in range(L)] for row in rows]
    return torch.tensor(made).reshape(*ids.shape, L)


def _packed_by_subtraction(ids):
    return (ids.unsqueeze(-1) - ids.unsqueeze(-2) == 0).tril()


def _attention_by_loops(q, k, v, mask):
    scores = torch.einsum("...ld,...sd->...ls", q, k) / math.sqrt(q.shape[-1])
    mask = mask.expand(scores.shape)
    weights = torch.zeros_like(scores)
    for at in np.ndindex(scores.shape[:-1]):
        allowed = mask[at]
        if allowed.any():
            weights[at][allowed] = scores[at][allowed].softmax(dim=0)
    return torch.einsum("...ls,...sv->...lv", weights, v), weights


def _attention_by_exponentials(q, k, v, mask):
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, torch.finfo(q.dtype).min)
    powers = torch.exp(scores - scores.max(dim=-1, keepdim=True).values) * mask
    weights = powers / powers.sum(dim=-1, keepdim=True).clamp(min=1e-30)
    return weights @ v, weights


def _attention_in_single_precision(q, k, v, mask):
    scores = (q.float() @ k.float().mT / q.shape[-1] ** 0.5).masked_fill(~mask, -1e9)
    weights = scores.softmax(dim=-1).to(v.dtype) * mask
    return weights @ v, weights


def _attention_cleaned_in_time(q, k, v, mask):
    scores = torch.where(mask, (q / q.shape[-1] ** 0.5) @ k.mT, -INF)
    weights = scores.softmax(dim=-1).nan_to_num(0)
    return weights @ v, weights


def _attention_by_sdpa(q, k, v, mask):
    identity = torch.eye(k.shape[-2], dtype=q.dtype).expand(*k.shape[:-2], -1, -1)
    sdpa = F.scaled_dot_product_attention
    return sdpa(q, k, v, attn_mask=mask), sdpa(q, k, identity, attn_mask=mask)


def _translated_by_logic(attn_mask, key_padding_mask):
    return (attn_mask.logical_not() & (key_padding_mask == 0).unsqueeze(1)).unsqueeze(1)


def _translated_by_loops(attn_mask, key_padding_mask):
    return torch.stack([torch.logical_or(attn_mask, row)[None] == 0 for row in key_padding_mask])


def _decode_one_by_one(q, k, v, k_cache, v_cache):
    outputs = []
    for t in range(q.shape[-2]):
        k_cache = torch.cat([k_cache, k[..., t : t + 1, :]], dim=-2)
        v_cache = torch.cat([v_cache, v[..., t : t + 1, :]], dim=-2)
        scores = q[..., t : t + 1, :] @ k_cache.mT / q.shape[-1] ** 0.5
        outputs.append(scores.softmax(dim=-1) @ v_cache)
    return torch.cat(outputs, dim=-2), k_cache, v_cache


def _decode_with_sdpa(q, k, v, k_cache, v_cache):
    k, v = torch.cat([k_cache, k], -2), torch.cat([v_cache, v], -2)
    L, S = q.shape[-2], k.shape[-2]
    mask = torch.ones(L, S).tril(S - L).bool()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), k, v


def _drawn(size=1):
    mask = torch.rand(4, 6) < 0.4
    mask[:, 0] = True
    return size * torch.randn(4, 3), torch.randn(6, 3), torch.randn(6, 2), mask


def _leak_by_change(attention):
    for size in (1, 1000) * 6:
        q, k, v, mask = _drawn(size=size)
        for i in range(len(q)):
            noise = size * torch.randn(6, 1) * ~mask[i][:, None]
            one = attention(q, k, v, mask)[0][i]
            two = attention(q, k + noise, v + noise, mask)[0][i]
            assert torch.allclose(one, two, atol=1e-6)


def _leak_by_jacobian(attention):
    for size in (1, 1000) * 6:
        q, *given, mask = _drawn(size=size)
        slopes = torch.autograd.functional.jacobian(
            lambda k, v, q=q, mask=mask: attention(q, k, v, mask)[0], tuple(given)
        )
        for each in slopes:  # (L, d_v, S, d)
            heard = each.abs().amax(dim=(1, 3))  # (L, S)
            assert (heard[~mask] == 0).all()


def _mask_against_tril(causal_mask):
    for L, S in [(1, 3), (2, 5), (5, 5), (4, 9)]:
        expected = torch.ones(L, S, dtype=torch.bool).tril(S - L)
        torch.testing.assert_close(causal_mask(L, S), expected)


def _mask_row_by_row(causal_mask):
    for L in (1, 3):
        for S in range(L, 12):
            rows = [[True] * (i + 1 + S - L) + [False] * (L - 1 - i) for i in range(L)]
            assert causal_mask(L, S).tolist() == rows


def _shared_by_lse(q, k, v, k_prefix, v_prefix, mask):
    scale = math.sqrt(q.shape[-1])
    first = torch.matmul(q / scale, k_prefix.transpose(-2, -1))
    second = torch.where(mask, q @ k.mT / scale, -INF)
    lse_a = torch.logsumexp(first, -1)
    empty = ~mask.any(-1).expand(lse_a.shape)
    second = second.masked_fill(empty[..., None], 0)
    lse_b = torch.logsumexp(second, -1).masked_fill(empty, -INF)
    share = torch.sigmoid(lse_a - lse_b)[..., None]
    return share * (first.softmax(-1) @ v_prefix) + (1 - share) * (second.softmax(-1) @ v)


def _shared_by_einsum(q, k, v, k_prefix, v_prefix, mask):
    first = torch.einsum("bhld,hpd->bhlp", q, k_prefix) / q.shape[-1] ** 0.5
    second = torch.einsum("bhld,bhsd->bhls", q, k) / q.shape[-1] ** 0.5
    second = second.masked_fill(~mask, torch.finfo(q.dtype).min)
    m = torch.maximum(first.max(-1).values, second.max(-1).values).detach()[..., None]
    a, b = (first - m).exp(), (second - m).exp() * mask
    values = torch.einsum("bhlp,hpe->bhle", a, v_prefix) + b @ v
    return values / (a.sum(-1) + b.sum(-1)).unsqueeze(-1)


def _shared_one_by_one(q, k, v, k_prefix, v_prefix, mask):
    mask = mask.expand(*q.shape[:2], *mask.shape[-2:])
    rows = []
    for b, h, i in np.ndindex(q.shape[:3]):
        x = k_prefix[h] @ q[b, h, i] / q.shape[-1] ** 0.5
        y = (k[b, h] @ q[b, h, i] / q.shape[-1] ** 0.5)[mask[b, h, i]]
        m = max([x.max(), *y.detach()])
        total = (x - m).exp().sum() + (y - m).exp().sum()
        rows.append((x - m).exp() / total @ v_prefix[h])
        rows[-1] = rows[-1] + (y - m).exp() / total @ v[b, h][mask[b, h, i]]
    return torch.stack(rows).reshape(*q.shape[:3], -1)


RIGHT = {
    "causal_mask": [_causal_by_triu, _causal_in_numpy],
    "padding_mask": [_padding_by_rows, _padding_turned_round],
    "sliding_window_mask": [_window_by_loops, _window_by_triangles],
    "prefix_mask": [_prefix_by_where, _prefix_by_maximum],
    "packed_mask": [_packed_by_loops, _packed_by_subtraction],
    "attention": [
        _attention_by_loops,
        _attention_by_exponentials,
        _attention_in_single_precision,
        _attention_cleaned_in_time,
        _attention_by_sdpa,
    ],
    "from_multihead": [_translated_by_logic, _translated_by_loops],
    "decode": [_decode_one_by_one, _decode_with_sdpa],
    "catches_leak": [_leak_by_change, _leak_by_jacobian],
    "catches_wrong_mask": [_mask_against_tril, _mask_row_by_row],
    "shared_prefix_attention": [
        _shared_by_lse,
        _shared_by_einsum,
        _shared_one_by_one,
        lambda q, k, v, *prefix_and_mask: _shared_by_lse(
            q, k, v, *(x.expand(len(q), *x.shape) for x in prefix_and_mask[:2]), prefix_and_mask[2]
        ),
    ],
}


# wrong


def _shared_together(q, k, v, k_prefix, v_prefix, mask):
    def whole(prefix, own):
        return torch.cat([prefix.expand(len(q), *prefix.shape), own], -2)

    L, P = q.shape[-2], k_prefix.shape[-2]
    mask = torch.cat([torch.ones(L, P).bool().expand(*mask.shape[:-2], L, P), mask], -1)
    return F.scaled_dot_product_attention(q, whole(k_prefix, k), whole(v_prefix, v), mask)


def _shared_copied(q, k, v, k_prefix, v_prefix, mask, copy=lambda x, n: x.repeat(n, 1, 1, 1)):
    return _shared_by_lse(q, k, v, copy(k_prefix, len(q)), v_prefix, mask)


def _shared_copied_flat(*given):
    return _shared_copied(*given, copy=lambda x, n: torch.cat([x] * n).view(n, *x.shape))


def _shared_scores_together(q, k, v, k_prefix, v_prefix, mask):
    own = (q @ k.mT).masked_fill(~mask, -INF)
    weights = (torch.cat([q @ k_prefix.mT, own], -1) / q.shape[-1] ** 0.5).softmax(-1)
    P = k_prefix.shape[-2]
    return weights[..., :P] @ v_prefix + weights[..., P:] @ v


def _shared_replaced(q, k, v, k_prefix, v_prefix, mask):
    one = q @ k_prefix.mT / q.shape[-1] ** 0.5
    two = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -INF)
    share = torch.sigmoid(one.logsumexp(-1, True) - two.logsumexp(-1, True))
    own = (two.softmax(-1) @ v).nan_to_num(0)
    return share * (one.softmax(-1) @ v_prefix) + (1 - share) * own


def _hard_coded(L, S=None):
    return torch.tensor([[j <= i for j in range(5)] for i in range(5)])


def _right_without(change):
    """Return attention that is right in its numbers but for what ``change`` makes of it."""

    def answer(q, k, v, mask):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        return change(scores, mask, v, scores.masked_fill(~mask, -INF).softmax(dim=-1))

    return answer


def _added_infinity(s, m, v, w):
    weights = (s + torch.zeros(m.shape).masked_fill(~m, -INF)).softmax(dim=-1).nan_to_num(0)
    return weights @ v, weights


def _a_small_number(s, m, v, w):
    weights = s.softmax(dim=-1) * m
    weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-4)
    return weights @ v, weights


def _three_dimensions_taken_for_a_batch(s, m, v, w):
    weights = s.masked_fill(~(m.unsqueeze(1) if m.dim() == 3 else m), -INF)
    weights = weights.softmax(dim=-1).nan_to_num(0)
    return weights @ v, weights


def _decode_detached(q, k, v, k_cache, v_cache):
    return _decode_with_sdpa(q, k, v, k_cache.detach(), v_cache.detach())


def _leak_of_quiet_keys(attention):
    q, k, v, mask = _drawn()
    for j in range(6):
        other = k + (torch.arange(6) == j)[:, None]
        one, two = attention(q, k, v, mask)[0], attention(q, other, v, mask)[0]
        assert torch.allclose(one[~mask[:, j]], two[~mask[:, j]])


def _leak_returns(attention):
    q, k, v, mask = _drawn()
    return not attention(q, k, v, mask)[1][~mask].any()


def _leak_bitwise(attention):
    q, k, v, mask = _drawn()
    weights = (q @ k.T / 3**0.5).double().masked_fill(~mask, -INF).softmax(-1)
    assert torch.equal(attention(q, k, v, mask)[0].double(), weights @ v.double())


def _leak_of_empty_rows_only(attention):
    q, k, v, _ = _drawn()
    out, _ = attention(q, k, v, torch.zeros(4, 6).bool())
    assert (out == 0).all()


def _mask_of(*sizes):
    def test(causal_mask):
        for L, S in sizes:
            assert torch.equal(causal_mask(L, S), torch.ones(L, S).tril(S - L).bool())

    return test


def _mask_broadcast(causal_mask):
    for L, S in [(4, 4), (3, 7), (1, 5), (10, 12)]:
        assert (causal_mask(L, S) == torch.ones(L, S).tril(S - L).bool()).all()


def _mask_upper_left(causal_mask):
    assert causal_mask(2, 4).tolist() == [[True, False, False, False], [True, True, False, False]]


def _mask_last_row_and_future(causal_mask):
    for L, S in [(4, 4), (3, 7), (1, 5), (10, 12)]:
        mask = causal_mask(L, S)
        assert mask.shape == (L, S) and mask[-1].all() and not mask.triu(S - L + 1).any()


def _mask_without_its_shape(causal_mask):
    for L, S in [(4, 4), (3, 7), (1, 5), (10, 12)]:
        mask = causal_mask(L, S)
        assert all(mask[i, j] == (j <= i + S - L) for i in range(L) for j in range(S))


def _mask_next_key(causal_mask):
    for L, S in [(4, 4), (3, 7), (1, 5), (10, 12)]:
        mask = causal_mask(L, S)
        for i in range(L):
            own = i + S - L
            assert mask[i, : own + 1].all()
            assert own == S - 1 or not mask[i, own + 1]


GET_THROUGH = "lets broken code through"
WRONG = [
    ("causal_mask", None, _hard_coded),
    ("causal_mask", None, lambda L, S=None: _causal_by_triu(L, S).T),
    ("causal_mask", None, lambda L, S=None: _causal_by_triu(L, S).int()),
    ("attention", "wrong gradients", _right_without(_added_infinity)),
    (
        "attention",
        "wrong gradients",
        _right_without(lambda s, m, v, w: ((w @ v).nan_to_num(0), w.nan_to_num(0))),
    ),
    ("attention", None, _right_without(_a_small_number)),
    ("attention", None, _right_without(_three_dimensions_taken_for_a_batch)),
    ("attention", None, lambda *given: [each.squeeze() for each in _attention_by_sdpa(*given)]),
    ("sliding_window_mask", None, attention.sliding_window_mask),
    ("decode", "wrong gradients", _decode_detached),
    ("catches_leak", GET_THROUGH, _leak_of_quiet_keys),
    ("catches_leak", "returns a verdict", _leak_returns),
    ("catches_leak", "rejects right code", _leak_bitwise),
    ("catches_leak", GET_THROUGH, _leak_of_empty_rows_only),
    ("catches_wrong_mask", GET_THROUGH, _mask_of((3, 3), (1, 4))),
    ("catches_wrong_mask", GET_THROUGH, _mask_of((1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3))),
    ("catches_wrong_mask", "rejects right code", _mask_upper_left),
    ("catches_wrong_mask", GET_THROUGH, _mask_last_row_and_future),
    ("catches_wrong_mask", GET_THROUGH, _mask_without_its_shape),
    ("catches_wrong_mask", GET_THROUGH, _mask_next_key),
    ("catches_wrong_mask", GET_THROUGH, _mask_broadcast),
    ("shared_prefix_attention", "puts both together", _shared_together),
    ("shared_prefix_attention", "puts both together", _shared_scores_together),
    ("shared_prefix_attention", "wrong gradients", _shared_replaced),
    ("shared_prefix_attention", "copies the prefix", _shared_copied),
    ("shared_prefix_attention", "copies the prefix", _shared_copied_flat),
]
