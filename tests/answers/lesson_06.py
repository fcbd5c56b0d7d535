"""Answers to lesson 06's exercises, written apart from the checks: right ones and wrong ones."""

import math
from functools import partial

import torch
import torch.nn.functional as F

from course_utils.attention import merge

INF = float("inf")


# right


def _update_by_rows(m, ell, out, scores, v):
    rows = []
    for place in torch.cartesian_prod(*(torch.arange(n) for n in m.shape)).reshape(-1, m.ndim):
        place = tuple(place.tolist())
        one_m, one_ell, one_out = m[place], ell[place], out[place]
        for s, value in zip(scores[place], v[place[:-1]], strict=True):
            if s > -INF:
                top = torch.maximum(one_m, s)
                shrink, p = torch.exp(one_m - top), torch.exp(s - top)
                one_m, one_ell, one_out = top, one_ell * shrink + p, one_out * shrink + p * value
        rows.append((one_m, one_ell, one_out))
    return [torch.stack(x).reshape(y.shape) for x, y in zip(zip(*rows), (m, ell, out))]  # noqa: B905


def _update(m, ell, out, scores, v, detached=False):
    """Take a tile in by torch.where and einsum; return a list."""
    top = torch.max(m, scores.max(dim=-1).values)
    top = top.detach() if detached else top
    safe = torch.where(torch.isinf(top), torch.zeros_like(top), top)
    weights, old = torch.exp(scores - safe.unsqueeze(-1)), torch.exp(m - safe)
    mixed = torch.einsum("...qk,...kd->...qd", weights, v)
    return [top, old * ell + weights.sum(-1), old.unsqueeze(-1) * out + mixed]


def _tiles(q, k, v, block_q, block_k, start=-INF, dtype=None, last=lambda row, S: S, mask=None):
    """Return output and log-sum-exp by tiles, all of the state in columns.

    Keys are read up to ``last(the last query, S)``; ``mask(s, i, j)`` returns masked scores.
    """
    outs, lses = [], []
    for i, qi in zip(range(0, q.shape[-2], block_q), q.split(block_q, -2), strict=True):
        m = torch.full((*qi.shape[:-1], 1), start, dtype=q.dtype)
        ell, out = torch.zeros_like(m), torch.zeros(1, dtype=dtype or q.dtype)
        for j in range(0, last(i + qi.shape[-2] - 1, k.shape[-2]), block_k):
            s = qi @ k[..., j : j + block_k, :].transpose(-1, -2) / math.sqrt(q.shape[-1])
            s = mask(s, i, j) if mask else s
            top = torch.maximum(m, s.amax(-1, keepdim=True))
            p, old = torch.exp(s - top), torch.exp(m - top)
            m, ell = top, ell * old + p.sum(-1, keepdim=True)
            out = (out * old + p @ v[..., j : j + block_k, :]).to(out.dtype)
        outs.append(out.to(q.dtype) / ell)
        lses.append((m + ell.log())[..., 0])
    return torch.cat(outs, -2), torch.cat(lses, -1)


def _forward_dividing_as_it_goes(q, k, v, block_q, block_k):
    outs, lses = [], []
    for i in range(0, q.shape[-2], block_q):
        qi = q[..., i : i + block_q, :] / math.sqrt(q.shape[-1])
        out, lse = None, None
        for j in range(0, k.shape[-2], block_k):
            s = qi @ k[..., j : j + block_k, :].transpose(-1, -2)
            here, there = s.softmax(-1) @ v[..., j : j + block_k, :], s.logsumexp(-1)
            if out is None:
                out, lse = here, there
            else:
                both = torch.logaddexp(lse, there)
                out = out * (lse - both).exp()[..., None] + here * (there - both).exp()[..., None]
                lse = both
        outs.append(out)
        lses.append(lse)
    return torch.cat(outs, -2), torch.cat(lses, -1)


def _in_float64(q, k, v, block_q, block_k):
    return tuple(
        x.to(q.dtype) for x in _tiles(q.double(), k.double(), v.double(), block_q, block_k)
    )


def _forward_padded_and_turned(q, k, v, block_q, block_k):
    L, S, outs, lses = q.shape[-2], k.shape[-2], [], []
    q, k, v = (
        F.pad(x, (0, 0, 0, -x.shape[-2] % n)) for x, n in ((q, block_q), (k, block_k), (v, block_k))
    )
    for qi in q.split(block_q, -2):
        m = torch.full(qi.shape[:-1], -INF, dtype=q.dtype)
        ell, out = torch.zeros_like(m), 0
        for j in range(0, S, block_k):
            s = torch.einsum("...kd,...qd->...kq", k[..., j : j + block_k, :], qi)  # keys first
            there = torch.arange(j, j + block_k)[:, None] < S
            s = torch.where(there, s / q.shape[-1] ** 0.5, -INF)
            top = torch.maximum(m, s.amax(-2))
            p, old = torch.exp(s - top[..., None, :]), torch.exp(m - top)
            m, ell, out = top, ell * old + p.sum(-2), out * old[..., None]
            out = out + (p[..., None] * v[..., j : j + block_k, None, :]).sum(-3)
        outs.append(out / ell[..., None])
        lses.append(m + ell.log())
    return torch.cat(outs, -2)[..., :L, :], torch.cat(lses, -1)[..., :L]


def _forward_parts_stacked(q, k, v, block_q, block_k):
    """Keep output and log-sum-exp of each tile, but no scores, and join them at the end."""
    outs, lses = [], []
    for qi in q.split(block_q, -2):
        pairs = zip(k.split(block_k, -2), v.split(block_k, -2), strict=True)
        parts = [_all_at_once(qi, kj, vj) for kj, vj in pairs]
        out, lse = map(torch.stack, zip(*parts, strict=True))
        outs.append((lse.softmax(0)[..., None] * out).sum(0))
        lses.append(lse.logsumexp(0))
    return torch.cat(outs, -2), torch.cat(lses, -1)


def _visits_pair_by_pair(L, block_q, block_k):
    rows = []
    for i in range(0, L, block_q):
        queries = range(i, min(i + block_q, L))
        tiles = [range(j, min(j + block_k, L)) for j in range(0, L, block_k)]
        whole = sum(all(b <= a for a in queries for b in tile) for tile in tiles)
        some = sum(any(b <= a for a in queries for b in tile) for tile in tiles)
        rows.append([whole, some])
    return torch.tensor(rows)


def _visits_by_formula(L, block_q, block_k):
    first = torch.arange(0, L, block_q)
    end = (first + block_q).clamp(max=L)
    # a last block of keys that is short is whole as soon as its own last key is seen
    whole = torch.where(first + 1 >= L, math.ceil(L / block_k), (first + 1) // block_k)
    return torch.stack([whole, -(-end // block_k)], dim=1)


def _causal(q, k, v, block_q, block_k, skips=True):
    """Return causal attention by tiles; query i sees keys up to i + S - L."""
    offset = k.shape[-2] - q.shape[-2]

    def mask(s, i, j):
        allowed = torch.ones(s.shape[-2:]).tril(i + offset - j) > 0
        return s.masked_fill(~allowed, -1e9)

    last = (lambda row, S: row + 1 + offset) if skips else (lambda row, S: S)
    return _tiles(q, k, v, block_q, block_k, last=last, mask=mask)[0]


def _parts_by_stacking(q, k, v, size):
    outs, lses = [], []
    for kj, vj in zip(k.split(size, dim=-2), v.split(size, dim=-2), strict=True):
        s = q @ kj.mT / q.shape[-1] ** 0.5
        outs.append(s.softmax(-1) @ vj)
        lses.append(s.logsumexp(-1))
    share = torch.stack(lses).softmax(0)
    return (share.unsqueeze(-1) * torch.stack(outs)).sum(0)


def _bytes_by_formula(L, S, d, block_q, size):
    naive = size * (4 * L * S + 2 * L * d + 2 * S * d)
    return [naive, size * (2 * L * d + 2 * S * d * math.ceil(L / block_q))]


def _held_by_tensors(B, H, L, S, d, size):
    matrix = torch.empty(B, H, L, S, device="meta").numel() * size
    out = torch.empty(B, H, L, d, device="meta").numel() * size
    lse = torch.empty(B, H, L, dtype=torch.float32, device="meta").nbytes
    return torch.tensor(2 * matrix + out), torch.tensor(out + lse)


def _sdpa_with_repeated_heads(q, k, v, ignore, temperature):
    times = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1)
    bias = torch.zeros(ignore.shape, dtype=q.dtype).masked_fill(ignore, -INF)
    return F.scaled_dot_product_attention(q / temperature, k, v, attn_mask=bias)


def _sdpa_in_groups(q, k, v, ignore, temperature):
    grouped = q.unflatten(1, (k.shape[1], -1))  # (B, Hkv, group, L, d_k)
    out = F.scaled_dot_product_attention(
        query=grouped / temperature,
        key=k.unsqueeze(2).expand(*grouped.shape[:3], -1, -1),
        value=v.unsqueeze(2).expand(*grouped.shape[:3], -1, -1),
        attn_mask=torch.logical_not(ignore).unsqueeze(2),
    )
    return out.flatten(1, 2)


def _gradients_by_einsum(q, k, v, d_out, lse, delta):
    scale = 1 / math.sqrt(k.shape[-1])
    p = torch.exp(torch.einsum("...qd,...kd->...qk", q, k) * scale - lse.unsqueeze(-1))
    dp = torch.einsum("...qd,...kd->...qk", d_out, v)
    ds = p * dp - p * delta.unsqueeze(-1)
    dq = scale * torch.einsum("...qk,...kd->...qd", ds, k)
    dk = scale * torch.einsum("...qk,...qd->...kd", ds, q)
    return dq, dk, torch.einsum("...qk,...qd->...kd", p, d_out)


def _gradients_by_autograd(q, k, v, d_out, lse, delta):
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    s = q @ k.mT / q.shape[-1] ** 0.5
    p = (s - lse[..., None]).exp().detach()
    ds = p * (d_out @ v.mT - delta[..., None])
    dq, dk = torch.autograd.grad(s, (q, k), ds.detach())
    (dv,) = torch.autograd.grad(p @ v, v, d_out)
    return dq, dk, dv


def _pages_merged(q, k_pages, v_pages, tables, lengths):
    """Give each page a softmax of its own, head by head, and join by the log-sum-exps."""
    page, group = k_pages.shape[1], q.shape[1] // k_pages.shape[2]
    output = q.new_zeros(*q.shape[:2], v_pages.shape[-1])
    for b, (table, length) in enumerate(zip(tables, lengths, strict=True)):
        for h in range(q.shape[1]):
            out, lse = 0, torch.tensor(-INF, dtype=q.dtype)
            for i, number in enumerate(table[: math.ceil(length / page)]):
                own = slice(0, length - i * page), h // group
                s = k_pages[number][own] @ q[b, h] / q.shape[-1] ** 0.5
                both = torch.logaddexp(lse, s.logsumexp(0))
                out = out * (lse - both).exp() + (s - both).exp() @ v_pages[number][own]
                lse = both
            output[b, h] = out
    return output


def _pages_of_all_texts_at_once(q, k_pages, v_pages, tables, lengths):
    """Take in page i of every text together, whole, and mask what is past its end."""
    page, H_kv = k_pages.shape[1:3]
    lengths = torch.tensor(lengths)[:, None]
    q = q.unflatten(1, (H_kv, -1))  # (B, H_kv, group, d_k)
    m = torch.full(q.shape[:-1], -INF, dtype=q.dtype)
    ell, out = torch.zeros_like(m), torch.zeros(1, dtype=q.dtype)
    for i in range(max(map(len, tables))):
        numbers = [table[i] if i < len(table) else 0 for table in tables]
        there = i * page + torch.arange(page) < lengths  # (B, page)
        s = torch.einsum("bhgd,bphd->bhgp", q, k_pages[numbers]) / q.shape[-1] ** 0.5
        s = s.masked_fill(~there[:, None, None], -INF)
        top = torch.maximum(m, s.amax(-1))
        p, old = (s - top[..., None]).exp(), (m - top).exp()
        m, ell = top, ell * old + p.sum(-1)
        out = out * old[..., None] + torch.einsum("bhgp,bphd->bhgd", p, v_pages[numbers])
    return (out / ell[..., None]).flatten(1, 2)


def _pages_gathered(q, k_pages, v_pages, tables, lengths):
    outs = []
    for query, table, length in zip(q, tables, lengths, strict=True):
        k, v = (x[table].flatten(0, 1)[:length].transpose(0, 1) for x in (k_pages, v_pages))
        outs.append(_all_at_once(query.unflatten(0, (k.shape[0], -1)), k, v)[0].flatten(0, 1))
    return torch.stack(outs)


def _pages_by_merge(q, k_pages, v_pages, tables, lengths):
    """Join page by page with lesson 03's merge, the key heads of a page repeated."""
    page, group, outs = k_pages.shape[1], q.shape[1] // k_pages.shape[2], []
    for query, table, length in zip(q, tables, lengths, strict=True):
        out, lse = q.new_zeros(q.shape[1], v_pages.shape[-1]), q.new_full(q.shape[1:2], -INF)
        for start in range(0, length, page):
            number, n = table[start // page], min(page, length - start)
            k = k_pages[number, :n].repeat_interleave(group, dim=1)  # (n, H, d_k)
            v = v_pages[number, :n].repeat_interleave(group, dim=1)
            s = (query * k).sum(-1).T / q.shape[-1] ** 0.5  # (H, n)
            part = (s.softmax(-1)[:, None] @ v.transpose(0, 1))[:, 0]
            out, lse = merge(out, lse, part, s.logsumexp(-1))
        outs.append(out)
    return torch.stack(outs)


def _pages_halved(q, k_pages, v_pages, tables, lengths):
    """Join the two halves of the pages, each joined of its own halves, heads by an index."""
    page, H = k_pages.shape[1], q.shape[1]
    own = torch.arange(H) // (H // k_pages.shape[2])

    def part(query, table, n):
        if len(table) > 1:
            half = len(table) // 2
            return merge(
                *part(query, table[:half], half * page), *part(query, table[half:], n - half * page)
            )
        k, v = k_pages[table[0], :n][:, own], v_pages[table[0], :n][:, own]
        s = (query[None] * k).sum(-1) / q.shape[-1] ** 0.5  # (n, H)
        return (s.softmax(0)[..., None] * v).sum(0), s.logsumexp(0)

    rows = zip(q, tables, lengths, strict=True)
    return torch.stack([part(query, t[: math.ceil(n / page)], n)[0] for query, t, n in rows])


def _pages_scores_listed(q, k_pages, v_pages, tables, lengths):
    """Keep all scores in a list, page after page."""
    page, group, outs = k_pages.shape[1], q.shape[1] // k_pages.shape[2], []
    for query, table, length in zip(q, tables, lengths, strict=True):
        query = query.unflatten(0, (-1, group))
        starts = range(0, length, page)
        ks = ((table[i // page], min(page, length - i)) for i in starts)
        scores = [query @ k_pages[t, :n].permute(1, 2, 0) / q.shape[-1] ** 0.5 for t, n in ks]
        lse = torch.stack([s.logsumexp(-1) for s in scores]).logsumexp(0)[..., None]
        pairs = zip(scores, starts, strict=True)
        out = sum(
            (s - lse).exp() @ v_pages[table[i // page], : s.shape[-1]].transpose(0, 1)
            for s, i in pairs
        )
        outs.append(out.flatten(0, 1))
    return torch.stack(outs)


RIGHT = {
    "tile_update": [_update_by_rows, _update, partial(_update, detached=True)],
    "flash_forward": [
        _forward_dividing_as_it_goes,
        _forward_padded_and_turned,
        _forward_parts_stacked,
        _in_float64,
    ],
    "tiles_to_visit": [_visits_pair_by_pair, _visits_by_formula],
    "flash_causal": [_causal],
    "attend_in_parts": [_parts_by_stacking],
    "paged_attention": [
        _pages_merged,
        _pages_of_all_texts_at_once,
        _pages_by_merge,
        _pages_halved,
    ],
    "bytes_moved": [_bytes_by_formula, lambda *given: torch.tensor(_bytes_by_formula(*given))],
    "held_at_once": [_held_by_tensors, lambda *given: torch.stack(_held_by_tensors(*given))],
    "as_sdpa": [_sdpa_with_repeated_heads, _sdpa_in_groups],
    "tile_gradients": [_gradients_by_einsum, _gradients_by_autograd],
}


# wrong


def _update_in_place(m, ell, out, scores, v):
    top, new_ell, new_out = _update(m, ell, out, scores, v)
    for i in range(len(new_ell)):
        new_ell[i] = torch.exp(new_ell[i].log())
    return top, new_ell, new_out


def _update_by_nan_to_num(m, ell, out, scores, v):
    top = torch.maximum(m, scores.amax(-1))
    weights = (scores - top[..., None]).exp().nan_to_num()
    old = (m - top).exp().nan_to_num()
    return top, ell * old + weights.sum(-1), out * old[..., None] + weights @ v


def _all_at_once(q, k, v, *_):
    s = q @ k.mT / q.shape[-1] ** 0.5
    return s.softmax(-1) @ v, s.logsumexp(-1)


def _cut_afterwards(q, k, v, block_q, block_k):
    s = q @ k.mT / q.shape[-1] ** 0.5
    parts = [each.logsumexp(-1) for each in s.split(block_k, -1)]
    lse = torch.stack(parts).logsumexp(0)
    p = zip(s.split(block_k, -1), v.split(block_k, -2), strict=True)
    return sum((each - lse[..., None]).exp() @ vj for each, vj in p), lse


def _query_by_query(q, k, v, block_q, block_k):
    rows = [_all_at_once(qi, k, v) for qi in q.split(1, -2)]
    return torch.cat([out for out, _ in rows], -2), torch.cat([lse for _, lse in rows], -1)


def _scores_listed(q, k, v, block_q, block_k, causal=False):
    """Keep the scores of all tiles of a block of queries."""
    (L, d), S = q.shape[-2:], k.shape[-2]
    outs, lses = [], []
    for i, qi in zip(range(0, L, block_q), q.split(block_q, -2), strict=True):
        starts = range(0, i + qi.shape[-2] + S - L if causal else S, block_k)
        tiles = [qi @ k[..., j : j + block_k, :].mT / d**0.5 for j in starts]
        if causal:
            seen = [torch.ones(s.shape[-2:]).tril(i + S - L - j) > 0 for s, j in zip(tiles, starts)]  # noqa: B905
            tiles = [s.masked_fill(~allowed, -INF) for s, allowed in zip(tiles, seen)]  # noqa: B905
        lse = torch.stack([s.logsumexp(-1) for s in tiles]).logsumexp(0)
        pairs = zip(tiles, v.split(block_k, -2))  # noqa: B905
        outs.append(sum((s - lse[..., None]).exp() @ vj for s, vj in pairs))
        lses.append(lse)
    return torch.cat(outs, -2) if causal else (torch.cat(outs, -2), torch.cat(lses, -1))


def _whole_mask(q, k, v, block_q, block_k):
    L, S = q.shape[-2], k.shape[-2]
    mask = torch.ones(L, S).tril(S - L) > 0
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _causal_query_by_query(q, k, v, block_q, block_k):
    L, S, outs = q.shape[-2], k.shape[-2], []
    for i in range(L):
        end = i + 1 + S - L
        outs.append(_all_at_once(q[..., i : i + 1, :], k[..., :end, :], v[..., :end, :])[0])
    return torch.cat(outs, -2)


def _keys_by_queries(q, k, v, size):
    p = (k @ q.mT / q.shape[-1] ** 0.5).softmax(-2)
    return (p[..., None] * v[..., None, :]).sum(-3)


def _parts_all_at_once(q, k, v, size):
    S = k.shape[-2]
    short = -S % size
    k, v = (F.pad(x, (0, 0, 0, short)).unflatten(-2, (-1, size)) for x in (k, v))
    s = q.unsqueeze(-3) @ k.mT / q.shape[-1] ** 0.5  # (..., parts, L, size)
    there = torch.arange(S + short).reshape(-1, 1, size) < S
    s = torch.where(there, s, -INF)
    share = s.logsumexp(-1).softmax(-2)  # over the parts
    return (share.unsqueeze(-1) * (s.softmax(-1) @ v)).sum(-3)


def _parts_scores_listed(q, k, v, size):
    scores = [q @ kj.mT / q.shape[-1] ** 0.5 for kj in k.split(size, -2)]
    lse = torch.stack([s.logsumexp(-1) for s in scores]).logsumexp(0)[..., None]
    return sum((s - lse).exp() @ vj for s, vj in zip(scores, v.split(size, -2), strict=True))


def _pages_of_repeated_heads(q, k_pages, v_pages, *where):
    """Make of the whole store one with a key head for each query head."""
    group = q.shape[1] // k_pages.shape[2]
    return _pages_merged(q, *(x.repeat_interleave(group, 2) for x in (k_pages, v_pages)), *where)


def _pages_scored_whole(q, k_pages, v_pages, tables, lengths):
    """Score each page of the store for each text, and pick its own from these."""
    page, group, outs = k_pages.shape[1], q.shape[1] // k_pages.shape[2], []
    for query, table, length in zip(q, tables, lengths, strict=True):
        query = query.unflatten(0, (-1, group))
        scores = torch.einsum("hgd,pshd->pshg", query, k_pages) / q.shape[-1] ** 0.5
        out, lse = 0, torch.full(query.shape[:2], -INF, dtype=q.dtype)
        for start in range(0, length, page):
            s = scores[table[start // page], : length - start]  # (n, H_kv, group)
            both = torch.logaddexp(lse, s.logsumexp(0))
            here = torch.einsum(
                "shg,shd->hgd", (s - both).exp(), v_pages[table[start // page], : len(s)]
            )
            out, lse = out * (lse - both).exp()[..., None] + here, both
        outs.append(out.flatten(0, 1))
    return torch.stack(outs)


def _key_gradient_turned(*args):
    dq, dk, dv = _gradients_by_einsum(*args)
    return dq, dk.mT, dv


WRONG = [
    ("tile_update", "wrong gradients", _update_in_place),
    ("tile_update", "wrong gradients", _update_by_nan_to_num),
    ("flash_forward", "makes the whole matrix", _all_at_once),
    ("flash_forward", "makes the whole matrix", _cut_afterwards),
    ("flash_forward", "scores kept", _scores_listed),
    ("flash_forward", "blocks not used", _query_by_query),
    ("flash_forward", "keys not cut", lambda q, k, v, b_q, b_k: _tiles(q, k, v, b_q, 99)),
    ("flash_forward", "queries not cut", lambda q, k, v, b_q, b_k: _tiles(q, k, v, 1, b_k)),
    ("flash_forward", "blocks exchanged", lambda q, k, v, b_q, b_k: _tiles(q, k, v, b_k, b_q)),
    ("flash_forward", "wrong gradients", torch.no_grad()(_tiles)),
    ("flash_forward", None, partial(_tiles, dtype=torch.float16)),  # the sum
    ("flash_causal", "makes the whole matrix", _whole_mask),
    ("flash_causal", "scores kept", partial(_scores_listed, causal=True)),
    ("flash_causal", "blocks not used", _causal_query_by_query),
    ("flash_causal", "keys not cut", lambda q, k, v, b_q, b_k: _causal(q, k, v, b_q, 99)),
    ("flash_causal", "blocks exchanged", lambda q, k, v, b_q, b_k: _causal(q, k, v, b_k, b_q)),
    ("flash_causal", "reads the future", partial(_causal, skips=False)),
    ("attend_in_parts", "keys not cut", _keys_by_queries),
    ("attend_in_parts", "scores kept", _parts_all_at_once),
    ("attend_in_parts", "scores kept", _parts_scores_listed),
    (
        "attend_in_parts",
        "parts too large",
        lambda q, k, v, size: _parts_by_stacking(q, k, v, -(-k.shape[-2] // size)),
    ),
    ("paged_attention", "pages gathered", _pages_gathered),
    ("paged_attention", "pages gathered", _pages_scores_listed),
    ("paged_attention", "pages gathered", _pages_of_repeated_heads),
    ("paged_attention", "pages gathered", _pages_scored_whole),
    ("tile_gradients", None, _key_gradient_turned),
]
