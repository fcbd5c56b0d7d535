"""Answers to lesson 04's exercises, written apart from the checks: right ones and wrong ones."""

import math

import numpy as np
import torch
import torch.nn.functional as F

INF = float("inf")


# right


def _causal_by_loops(L, S=None):
    S = S or L
    return torch.tensor([[j - i <= S - L for j in range(S)] for i in range(L)]).reshape(L, S)


def _causal_by_triu(L, S=None):
    S = L if S is None else S
    return ~torch.triu(torch.ones(L, S), diagonal=1 + S - L).bool()


def _causal_in_numpy(L, S=None):
    S = L if S is None else S
    return torch.from_numpy(np.tri(L, S, S - L, dtype=bool))


def _padding_by_loop(lengths, S):
    mask = torch.zeros(len(lengths), 1, 1, S, dtype=torch.bool)
    for b, n in enumerate(lengths.tolist()):
        mask[b, ..., :n] = True
    return mask


def _padding_by_rows(lengths, S):
    rows = [[j < n for j in range(S)] for n in lengths.tolist()]
    return torch.tensor(rows).view(len(lengths), 1, 1, S)


def _window_by_loops(L, window):
    mask = torch.zeros(L, L).bool()
    for i in range(L):
        mask[i, max(0, i - window + 1) : i + 1] = True
    return mask


def _window_by_triangles(L, window):
    return (torch.ones(L, L).tril() - torch.ones(L, L).tril(-window)) > 0


def _prefix_by_where(L, prefix):
    i, j = torch.arange(L)[:, None], torch.arange(L)[None]
    return torch.where(j < prefix, True, j <= i)


def _prefix_by_maximum(L, prefix):
    limit = torch.maximum(torch.arange(L), torch.tensor(prefix - 1))
    return torch.arange(L) <= limit[:, None]


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
    weights = scores.softmax(dim=-1).double() * mask
    return weights @ v, weights


def _attention_low_added_in_single_precision(q, k, v, mask):
    scores = q.float() @ k.float().mT / q.shape[-1] ** 0.5 + ~mask * -1e9
    weights = scores.softmax(dim=-1).double().masked_fill(~mask, 0.0)
    return weights @ v, weights


def _attention_then_zeros(q, k, v, mask):
    bias = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(mask.logical_not(), -INF)
    weights = torch.softmax(q * q.shape[-1] ** -0.5 @ k.mT + bias, dim=-1).nan_to_num(0)
    return weights @ v, weights


def _attention_finite(q, k, v, mask):
    low = torch.finfo(q.dtype).min
    scores = torch.where(mask, (q / q.shape[-1] ** 0.5) @ k.mT, low)
    weights = scores.log_softmax(dim=-1).exp() * mask
    return weights @ v, weights


def _attention_by_sdpa(q, k, v, mask):
    identity = torch.eye(k.shape[-2], dtype=q.dtype).expand(*k.shape[:-2], -1, -1)
    sdpa = F.scaled_dot_product_attention
    return sdpa(q, k, v, attn_mask=mask), sdpa(q, k, identity, attn_mask=mask)


def _translated_by_logic(attn_mask, key_padding_mask):
    ours = attn_mask.logical_not().unsqueeze(0) & (key_padding_mask == 0).unsqueeze(1)
    return ours.unsqueeze(1)


def _translated_by_loops(attn_mask, key_padding_mask):
    made = [[torch.logical_or(attn_mask, row).logical_not()] for row in key_padding_mask]
    return torch.stack([one[0][None] for one in made])


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


def _leak_by_perturbing_all(attention):
    generator = torch.Generator().manual_seed(3)
    for L, S in [(3, 5), (6, 4)]:
        q, k = torch.randn(L, 4, generator=generator), torch.randn(S, 4, generator=generator)
        v = torch.randn(S, 5, generator=generator)
        for i in range(L):
            mask = torch.rand(L, S, generator=generator) < 0.5
            mask[:, i % S] = True
            noise = 3 * torch.randn(S, 1, generator=generator) * ~mask[i][:, None]
            one = attention(q, k, v, mask)[0][i]
            two = attention(q, k + noise, v + noise, mask)[0][i]
            assert torch.allclose(one, two, atol=1e-6)


def _leak_by_jacobian(attention):
    q, k, v = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 2)
    mask = torch.tensor([[1, 0, 1, 0, 1], [0, 1, 0, 0, 1], [1, 1, 0, 1, 0]]) > 0
    for place in (0, 1):

        def run(x, place=place):
            given = [k, v]
            given[place] = x
            return attention(q, *given, mask)[0]

        slopes = torch.autograd.functional.jacobian(run, (k, v)[place])  # (L, d_v, S, d)
        heard = slopes.abs().amax(dim=(1, 3))  # (L, S)
        assert (heard[~mask] == 0).all()


def _leak_by_oracle(attention):
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 6, 8), torch.randn(2, 3, 6, 5)
    mask = torch.rand(4, 6) < 0.6
    mask[:, 2] = True
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(attention(q, k, v, mask)[0], expected)


def _mask_against_tril(causal_mask):
    for L, S in [(1, 1), (2, 5), (5, 5), (4, 9)]:
        expected = torch.ones(L, S, dtype=torch.bool).tril(S - L)
        torch.testing.assert_close(causal_mask(L, S), expected)


def _mask_row_by_row(causal_mask):
    mask = causal_mask(3, 5)
    assert mask.tolist() == [
        [True, True, True, False, False],
        [True, True, True, True, False],
        [True, True, True, True, True],
    ]


RIGHT = {
    "causal_mask": [_causal_by_loops, _causal_by_triu, _causal_in_numpy],
    "padding_mask": [_padding_by_loop, _padding_by_rows],
    "sliding_window_mask": [_window_by_loops, _window_by_triangles],
    "prefix_mask": [_prefix_by_where, _prefix_by_maximum],
    "packed_mask": [_packed_by_loops, _packed_by_subtraction],
    "attention": [
        _attention_by_loops,
        _attention_by_exponentials,
        _attention_in_single_precision,
        _attention_low_added_in_single_precision,
        _attention_then_zeros,
        _attention_finite,
        _attention_by_sdpa,
    ],
    "from_multihead": [_translated_by_logic, _translated_by_loops],
    "decode": [_decode_one_by_one, _decode_with_sdpa],
    "catches_leak": [_leak_by_perturbing_all, _leak_by_jacobian, _leak_by_oracle],
    "catches_wrong_mask": [_mask_against_tril, _mask_row_by_row],
}


# wrong


def _strictly_lower(L, S=None):
    S = S or L
    return torch.arange(S)[None] < torch.arange(L)[:, None] + S - L


def _hard_coded(L, S=None):
    return torch.tensor([[j <= i for j in range(5)] for i in range(5)])


def _additive(L, S=None):
    S = S or L
    return torch.full((L, S), -INF).triu(1 + S - L)


def _without_offset(L, S=None):
    return torch.ones(L, S or L, dtype=torch.bool).tril()


def _for_multihead(L, S=None):
    return torch.triu(torch.ones(L, L if S is None else S), diagonal=1).bool()


def _offset_negated(L, S=None):
    S = S or L
    return torch.tril(torch.ones(L, S), diagonal=L - S).bool()


def _upper(L, S=None):
    return torch.triu(torch.ones(L, S or L)).bool()


def _padding_only_matrix(lengths, S):
    return torch.stack([torch.arange(S) < n for n in lengths])


def _padding_at_most(lengths, S):
    return torch.arange(S)[None, None, None] <= lengths.view(-1, 1, 1, 1)


def _padding_true_is_padding(lengths, S):
    return (torch.arange(S) >= lengths[:, None])[:, None, None, :]


def _padding_from_longest(lengths, S):
    return (torch.arange(lengths.max()) < lengths[:, None])[:, None, None, :]


def _padding_in_rows(lengths, S):
    return (torch.arange(S) < lengths[:, None])[:, None, :, None]


def _window_too_wide(L, window):
    i, j = torch.arange(L)[:, None], torch.arange(L)[None]
    return (j <= i) & (j >= i - window)


def _window_too_narrow(L, window):
    i, j = torch.arange(L)[:, None], torch.arange(L)[None]
    return (j <= i) & (j > i - window + 1)


def _window_without_an_end(L, window):
    return torch.ones(L, L, dtype=torch.bool).triu(1 - window)


def _window_two_sided(L, window):
    ones = torch.ones(L, L, dtype=torch.bool)
    return ones.tril(window - 1) & ones.triu(1 - window)


def _window_upper(L, window):
    ones = torch.ones(L, L, dtype=torch.bool)
    return ones.triu() & ones.tril(window - 1)


def _window_by_slices(L, window):
    mask = torch.full((L, L), False)
    for row in range(L):
        mask[row, row + 1 - window : row + 1] = True
    return mask


def _prefix_rows(L, prefix):
    mask = torch.ones(L, L).tril().bool()
    mask[:prefix] = True
    return mask


def _prefix_and(L, prefix):
    mask = torch.ones(L, L).tril().bool()
    mask[:, prefix:] = False
    return mask


def _prefix_columns(L, prefix):
    mask = torch.zeros(L, L, dtype=torch.bool)
    mask[:, :prefix] = True
    return mask


def _packed_not_causal(ids):
    return torch.eq(ids.unsqueeze(-2), ids.unsqueeze(-1))


def _packed_one_row(ids):
    L = ids.shape[-1]
    return ids.unsqueeze(0).eq(ids.unsqueeze(1)) & torch.ones(L, L).tril().bool()


def _packed_at_least(ids):
    return (ids[..., :, None] >= ids[..., None, :]).tril()


def _packed_causal_only(ids):
    L = ids.shape[-1]
    return torch.ones(L, L, dtype=torch.bool).tril().expand(*ids.shape[:-1], L, L)


def _attention_plain(q, k, v, mask):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = torch.where(mask, scores, -INF).softmax(-1)
    return weights @ v, weights


def _attention_low(q, k, v, mask):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = torch.where(mask, scores, torch.finfo(q.dtype).min).softmax(-1)
    return weights @ v, weights


def _attention_zeroed(q, k, v, mask):
    weights = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1)
    weights = torch.where(mask, weights, 0)
    return weights @ v, weights


def _attention_renormalised(q, k, v, mask):
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1) * mask
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights @ v, weights


def _attention_renormalised_and_erased(q, k, v, mask):
    _, weights = _attention_renormalised(q, k, v, mask)
    weights = torch.where(mask.any(dim=-1, keepdim=True), weights, 0.0)
    return weights @ v, weights


def _attention_renormalised_with_clamp(q, k, v, mask):
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1) * mask
    weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-12)
    return weights @ v, weights


def _attention_filled_with_a_hundred(q, k, v, mask):
    weights = torch.where(mask, q @ k.mT / q.shape[-1] ** 0.5, -100.0).softmax(-1)
    weights = weights.masked_fill(~mask, 0)
    return weights @ v, weights


def _attention_filled_with_a_thousand(q, k, v, mask):
    weights = torch.where(mask, q @ k.mT / q.shape[-1] ** 0.5, -1000.0).softmax(-1)
    weights = torch.where(mask.any(-1, keepdim=True), weights, 0.0)
    return weights @ v, weights


def _attention_ten_thousand_added(q, k, v, mask):
    weights = (q @ k.mT / q.shape[-1] ** 0.5 + (~mask) * -10000.0).softmax(-1)
    weights = weights * mask.any(-1, keepdim=True)
    return weights @ v, weights


def _attention_added_and_masked(q, k, v, mask):
    weights = (q @ k.mT / q.shape[-1] ** 0.5 - 1e4 * mask.logical_not()).softmax(-1) * mask
    return weights @ v, weights


def _attention_output_cleaned(q, k, v, mask):
    weights = F.softmax(torch.where(mask, q @ k.mT / math.sqrt(q.shape[-1]), -INF), dim=-1)
    return torch.nan_to_num(weights @ v), weights


def _attention_low_added(q, k, v, mask):
    weights = (q @ k.mT / q.shape[-1] ** 0.5 + mask.logical_not() * -1e9).softmax(-1)
    return weights @ v, weights


def _attention_infinity_added(q, k, v, mask):
    weights = (q @ k.mT / q.shape[-1] ** 0.5 + (1 - mask.double()) * -INF).softmax(-1)
    return weights @ v, weights


def _attention_over_queries(q, k, v, mask):
    weights = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -INF).softmax(-2).nan_to_num()
    return weights @ v, weights


def _attention_over_queries_with_nan(q, k, v, mask):
    weights = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -INF).softmax(-2)
    return weights @ v, weights


def _attention_zero_scores(q, k, v, mask):
    weights = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, 0).softmax(-1)
    return weights @ v, weights


def _attention_inverted(q, k, v, mask):
    weights = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(mask, -INF).softmax(-1).nan_to_num()
    return weights @ v, weights


def _attention_unmasked(q, k, v, mask):
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return weights @ v, weights


def _translated_nothing(attn_mask, key_padding_mask):
    return (attn_mask[None] & key_padding_mask[:, None])[:, None]


def _translated_or(attn_mask, key_padding_mask):
    return ~(attn_mask[None, None] & key_padding_mask[:, None, None])


def _translated_union(attn_mask, key_padding_mask):
    return attn_mask[None, None] | key_padding_mask[:, None, None]


def _translated_three(attn_mask, key_padding_mask):
    return ~(attn_mask[None] | key_padding_mask[:, None])


def _translated_by_precedence(attn_mask, key_padding_mask):
    return ~attn_mask[None, None] | key_padding_mask.unsqueeze(1).unsqueeze(1)


def _decode_is_causal(q, k, v, k_cache, v_cache):
    k, v = torch.cat([k_cache, k], -2), torch.cat([v_cache, v], -2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True), k, v


def _decode_new_ones_only(q, k, v, k_cache, v_cache):
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return out, torch.cat([k_cache, k], -2), torch.cat([v_cache, v], -2)


def _decode_unmasked(q, k, v, k_cache, v_cache):
    k, v = torch.cat([k_cache, k], -2), torch.cat([v_cache, v], -2)
    return F.scaled_dot_product_attention(q, k, v), k, v


def _decode_prepended(q, k, v, k_cache, v_cache):
    k, v = torch.cat([k, k_cache], -2), torch.cat([v, v_cache], -2)
    L, S = q.shape[-2], k.shape[-2]
    mask = torch.ones(L, S).tril(S - L).bool()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), k, v


def _decode_unscaled(q, k, v, k_cache, v_cache):
    k, v = torch.cat([k_cache, k], -2), torch.cat([v_cache, v], -2)
    L, S = q.shape[-2], k.shape[-2]
    hidden = ~torch.ones(L, S).tril(S - L).bool()
    return (q @ k.mT).masked_fill(hidden, -INF).softmax(-1) @ v, k, v


def _leak_shapes(attention):
    out, weights = attention(torch.ones(2, 3), torch.ones(5, 3), torch.ones(5, 4), _half(2, 5))
    assert out.shape == torch.Size([2, 4])
    assert weights.shape[-1] == 5


def _half(L, S):
    mask = (torch.arange(L)[:, None] + torch.arange(S)) % 2 == 0
    mask[:, 0] = True
    return mask


def _leak_without_a_copy(attention):
    q, k, v = torch.randn(4, 3), torch.randn(6, 3), torch.randn(6, 2)
    mask = _half(4, 6)
    k2, v2 = k, v
    k2[1] += 10
    v2[1] += 10
    one, two = attention(q, k, v, mask)[0], attention(q, k2, v2, mask)[0]
    assert torch.equal(one[~mask[:, 1]], two[~mask[:, 1]])


def _leak_row_sums(attention):
    q, k, v = torch.randn(3, 4, 2), torch.randn(3, 6, 2), torch.randn(3, 6, 2)
    weights = attention(q, k, v, _half(4, 6))[1]
    assert (weights.sum(-1) - 1).abs().max() < 1e-4


def _leak_zeros(attention):
    torch.manual_seed(4)
    q, k, v = torch.randn(4, 2), torch.randn(6, 2), torch.randn(6, 2)
    mask = _half(4, 6)
    assert not attention(q, k, v, mask)[1][~mask].any()


def _leak_causal_square(attention):
    x = torch.randn(6, 4)
    mask = torch.ones(6, 6).tril() > 0
    one = attention(x, x, x, mask)[0]
    for t in range(1, 6):
        y = x.clone()
        y[t:] = torch.randn(6 - t, 4)
        assert torch.allclose(one[:t], attention(y, y, y, mask)[0][:t])


def _leak_returns(attention):
    q, k, v = torch.randn(4, 2), torch.randn(6, 2), torch.randn(6, 2)
    mask = _half(4, 6)
    return not attention(q, k, v, mask)[1][~mask].any()


def _leak_bitwise(attention):
    q, k, v = torch.randn(4, 7), torch.randn(6, 7), torch.randn(6, 5)
    mask = _half(4, 6)
    scores = (q @ k.T) / 7**0.5
    weights = scores.double().masked_fill(~mask, -INF).softmax(-1)
    assert torch.equal(attention(q, k, v, mask)[0].double(), weights @ v.double())


def _leak_wrong_call(attention):
    out = attention(torch.ones(2, 3), torch.ones(5, 3), torch.ones(5, 4), _half(2, 5))
    assert out.shape == (2, 4)


def _leak_of_empty_rows_only(attention):
    q, k, v = torch.randn(4, 2), torch.randn(6, 2), torch.randn(6, 2)
    out, _ = attention(q, k, v, torch.zeros(4, 6).bool())
    assert (out == 0).all()


def _mask_of_five(causal_mask):
    assert causal_mask(5, 5).tolist() == torch.ones(5, 5).tril().bool().tolist()


def _mask_squares(causal_mask):
    for n in range(1, 7):
        assert causal_mask(n, n).tolist() == torch.ones(n, n).tril().bool().tolist()


def _mask_upper_left(causal_mask):
    assert causal_mask(2, 4).tolist() == [[True, False, False, False], [True, True, False, False]]


def _mask_no_future(causal_mask):
    for L, S in [(3, 3), (2, 6)]:
        mask = causal_mask(L, S)
        assert mask.dtype is torch.bool
        assert not torch.triu(mask, 1 + S - L).any()


def _mask_diagonal_and_future(causal_mask):
    for L, S in [(4, 4), (3, 7)]:
        mask = causal_mask(L, S)
        assert not mask.triu(S - L + 1).any()
        assert mask.diagonal(S - L).all()


def _mask_first_row(causal_mask):
    assert causal_mask(3, 7)[0].tolist() == [True] * 5 + [False] * 2


def _mask_first_and_last_row(causal_mask):
    for L, S in [(4, 4), (3, 7)]:
        mask = causal_mask(L, S)
        assert mask[0].tolist() == [True] * (S - L + 1) + [False] * (L - 1)
        assert mask[-1].all()


def _mask_next_key(causal_mask):
    for L, S in [(4, 4), (3, 7)]:
        mask = causal_mask(L, S)
        for i in range(L):
            own = i + S - L
            assert mask[i, : own + 1].all()
            assert own == S - 1 or not mask[i, own + 1]


def _mask_last_key(causal_mask):
    for L, S in [(4, 4), (3, 7)]:
        mask = causal_mask(L, S)
        for i in range(L - 1):
            assert mask[i, : i + S - L + 1].all()
            assert not mask[i, -1]


def _mask_two_by_four(causal_mask):
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True] * 4]


WRONG = [
    ("causal_mask", "diagonal forbidden", _strictly_lower),
    ("causal_mask", None, _hard_coded),
    ("causal_mask", "future marked", _for_multihead),
    ("causal_mask", "offset of the wrong sign", _offset_negated),
    ("causal_mask", "added to scores", _additive),
    ("causal_mask", "upper left", _without_offset),
    ("causal_mask", "upper triangle", _upper),
    ("padding_mask", "two dimensions", _padding_only_matrix),
    ("padding_mask", "one token too many", _padding_at_most),
    ("padding_mask", "inverted", _padding_true_is_padding),
    ("padding_mask", "as wide as the longest", _padding_from_longest),
    ("padding_mask", "padding of queries", _padding_in_rows),
    ("sliding_window_mask", "window and itself", _window_too_wide),
    ("sliding_window_mask", "window too short", _window_too_narrow),
    ("sliding_window_mask", "future left open", _window_without_an_end),
    ("sliding_window_mask", "both sides", _window_two_sided),
    ("sliding_window_mask", "looks forward", _window_upper),
    ("sliding_window_mask", "slice from the end", _window_by_slices),
    ("prefix_mask", "prefix sees everything", _prefix_rows),
    ("prefix_mask", "joined by and", _prefix_and),
    ("prefix_mask", "only the prefix", _prefix_columns),
    ("packed_mask", "future allowed", _packed_not_causal),
    ("packed_mask", "smaller numbers allowed", _packed_at_least),
    ("packed_mask", "documents ignored", _packed_causal_only),
    ("packed_mask", "leading dimensions forgotten", _packed_one_row),
    ("attention", "empty rows are NaN", _attention_plain),
    ("attention", "empty rows attend to everything", _attention_low),
    ("attention", "masked after softmax", _attention_zeroed),
    ("attention", "divided by the new sums", _attention_renormalised),
    ("attention", "divided by the new sums and erased", _attention_renormalised_and_erased),
    ("attention", "divided by the new sums and a little", _attention_renormalised_with_clamp),
    ("attention", "filled with too little", _attention_filled_with_a_hundred),
    ("attention", "filled with too little and erased", _attention_filled_with_a_thousand),
    ("attention", "too little added", _attention_ten_thousand_added),
    ("attention", "divided by the new sums and a little", _attention_added_and_masked),
    ("attention", "only the output cleaned", _attention_output_cleaned),
    ("attention", "empty rows as without a mask", _attention_low_added),
    ("attention", "zero times infinity", _attention_infinity_added),
    ("attention", "softmax over queries", _attention_over_queries),
    ("attention", "softmax over queries and NaN", _attention_over_queries_with_nan),
    ("attention", "the mask is multiplied into the scores", _attention_zero_scores),
    ("attention", "the mask is inverted", _attention_inverted),
    ("attention", "the mask is ignored", _attention_unmasked),
    ("from_multihead", "nothing inverted", _translated_nothing),
    ("from_multihead", "either allows", _translated_or),
    ("from_multihead", "still true means ignore", _translated_union),
    ("from_multihead", "no place for heads", _translated_three),
    ("from_multihead", "only the first inverted", _translated_by_precedence),
    ("decode", "is causal", _decode_is_causal),
    ("decode", "cache grown and not used", _decode_new_ones_only),
    ("decode", "no mask", _decode_unmasked),
    ("decode", "cache at the end", _decode_prepended),
    ("decode", "cached scores not scaled", _decode_unscaled),
    ("catches_leak", "only shapes", _leak_shapes),
    ("catches_leak", "only row sums", _leak_row_sums),
    ("catches_leak", "only shapes", _leak_without_a_copy),
    ("catches_leak", "only zeros", _leak_zeros),
    ("catches_leak", "only the future of a square", _leak_causal_square),
    ("catches_leak", "returns a verdict", _leak_returns),
    ("catches_leak", "rejects right code", _leak_bitwise),
    ("catches_leak", "rejects right code", _leak_wrong_call),
    ("catches_leak", "lets broken code through", _leak_of_empty_rows_only),
    ("catches_wrong_mask", "one size written out", _mask_of_five),
    ("catches_wrong_mask", "square alone", _mask_squares),
    ("catches_wrong_mask", "rejects right code", _mask_upper_left),
    ("catches_wrong_mask", "only the future", _mask_no_future),
    ("catches_wrong_mask", "lets broken code through", _mask_diagonal_and_future),
    ("catches_wrong_mask", "lets broken code through", _mask_first_row),
    ("catches_wrong_mask", "lets broken code through", _mask_first_and_last_row),
    ("catches_wrong_mask", "lets broken code through", _mask_next_key),
    ("catches_wrong_mask", "lets broken code through", _mask_last_key),
    ("catches_wrong_mask", "two queries alone", _mask_two_by_four),
]


_KINDS = {
    "inverted": "True must mean may attend",
    "not boolean": "return a boolean tensor",
    "added to scores": "the mask to add to the scores",
}

HINTS = {
    "causal_mask": _KINDS
    | {
        "diagonal forbidden": "the diagonal is allowed",
        "one too far": "the very next token",
        "upper left": "the last query belongs at the last key",
        "future marked": "as nn.MultiheadAttention wants it",
        "offset of the wrong sign": "S - L, not L - S",
        "always square": "S is not used",
        "transposed": "it is transposed",
        "offset never negative": "negative there and must stay so",
        "upper triangle": "triu() keeps the future",
    },
    "padding_mask": _KINDS
    | {
        "two dimensions": "make it (B, 1, 1, S)",
        "three dimensions": "one dimension is missing",
        "one token too many": "positions count from 0",
        "padding at the start": "stands at the end",
        "as wide as the longest": "S keys are asked",
        "queries masked too": "mask keys only",
        "padding of queries": "the mask lies at the queries",
        "one token too few": "one token too few",
    },
    "sliding_window_mask": _KINDS
    | {
        "window and itself": "one key too many",
        "window too short": "one key too few",
        "future left open": "i - j is negative",
        "both sides": "the future must stay hidden",
        "itself forbidden": "includes the token",
        "no window": "that is the causal mask",
        "looks forward": "it looks forward",
        "blocks": "slides along",
        "slice from the end": "a slice counts from the end",
    },
    "prefix_mask": _KINDS
    | {
        "only causal": "that is the causal mask",
        "only the prefix": "add the causal part by |",
        "prefix sees everything": "queries and keys are swapped",
        "prefix too long": "one token too many is open",
        "joined by and": "use |",
        "diagonal moved": "tril(prefix) moves the diagonal",
    },
    "packed_mask": _KINDS
    | {
        "future allowed": "a token sees the future",
        "documents ignored": "causal alone",
        "joined by or": "both must hold",
        "smaller numbers allowed": "the numbers are names",
        "neighbours compared": "returns later in the row",
        "itself hidden": "a token must see itself",
        "first row for all": "documents of its own",
        "leading dimensions forgotten": "pairs the rows of the batch",
    },
    "attention": {
        "empty rows are NaN": "give zeros there",
        "empty rows attend to everything": "averages all the keys that were forbidden",
        "masked after softmax": "fill with -inf before",
        "divided by the new sums": "mends the rows on paper only",
        "divided by the new sums and erased": "and 0 / 0 is NaN",
        "divided by the new sums and a little": "they stay 0",
        "filled with too little": "fill with -inf",
        "filled with too little and erased": "these get the weight then",
        "too little added": "in spite of the number added",
        "empty rows as without a mask": "attends as without a mask",
        "zero times infinity": "0 · inf",
        "softmax over queries": "each query's weights must sum to 1",
        "softmax over queries and NaN": "a key that no query may see",
        "the mask is inverted": "fill where it is False",
        "the mask is multiplied into the scores": "e^0 is 1",
        "the mask is added to the scores": "forbids nothing",
        "the mask is ignored": "the mask is not used",
        "scores not scaled": "not divided by √d_k",
        "only the output cleaned": "zeros in both",
        "only the weights cleaned": "clean them before",
        "output alone": "return two things",
    },
    "from_multihead": {
        "nothing inverted": "nothing is turned round",
        "still true means ignore": "one ~ around it is missing",
        "either allows": "allowed by both masks",
        "padding not inverted": "the padding mask needs its ~",
        "attention not inverted": "the attention mask needs its ~",
        "padding left out": "left out",
        "only the first inverted": "~ binds tighter than |",
        "no place for heads": "(B, 1, L, S)",
        "padding at the queries": "keys are the last dimension",
    },
    "decode": {
        "is causal": "the new tokens stand at the end of the cache",
        "no mask": "the earlier must not see the later",
        "new tokens do not see themselves": "its own key too",
        "one new token too far": "one key too far",
        "only the cache is seen": "not each other or themselves",
        "cached scores not scaled": "not divided by √d_k",
        "cache at the end": "the oldest stands first",
        "cache not used": "the cache is not used",
        "cache grown and not used": "the caches grow",
        "cache not grown": "return the grown ones",
        "only the output": "return three things",
    },
    "catches_leak": {
        "only shapes": "not one of these bugs changes a shape",
        "only row sums": "look where the weights are 0",
        "only zeros": "not whether forbidden keys are heard otherwise",
        "only square and causal": "draw a mask at random, with L ≠ S",
        "only the future of a square": "gives nothing away there",
        "only square": "let L and S differ",
        "only values changed": "change both",
        "only weights": "compares the weights alone",
        "nothing forbidden": "forbid something",
        "one mask for all queries": "give each query its own row",
    },
    "catches_wrong_mask": {
        "shape alone": "compare every entry",
        "square alone": "try S > L",
        "one size written out": "try several sizes",
        "two queries alone": "in the rows between",
        "only the future": "not that the past is allowed",
        "only the past": "not that the future is forbidden",
        "only counts": "the right count in the wrong place",
    },
}
