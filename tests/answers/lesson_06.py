"""Answers to lesson 06's exercises, written apart from the checks: right ones and wrong ones."""

import math

import torch
import torch.nn.functional as F

INF = float("inf")


# right


def _update_by_rows(m, ell, out, scores, v):
    flat = scores.reshape(-1, scores.shape[-1])
    new_m, new_ell = m.clone().reshape(-1), ell.clone().reshape(-1)
    new_out = out.clone().reshape(len(flat), -1)
    values = v[..., None, :, :].expand(*scores.shape, v.shape[-1]).reshape(*flat.shape, -1)
    for i in range(len(flat)):
        for j in range(flat.shape[1]):
            s = flat[i, j]
            if s == -INF:
                continue
            top = torch.maximum(new_m[i], s)
            shrink = torch.exp(new_m[i] - top)
            new_ell[i] = new_ell[i] * shrink + torch.exp(s - top)
            new_out[i] = new_out[i] * shrink + torch.exp(s - top) * values[i, j]
            new_m[i] = top
    return new_m.reshape(m.shape), new_ell.reshape(ell.shape), new_out.reshape(out.shape)


def _update_with_where(m, ell, out, scores, v):
    top = torch.max(m, scores.max(dim=-1).values)
    safe = torch.where(torch.isinf(top), torch.zeros_like(top), top)
    weights = torch.exp(scores - safe.unsqueeze(-1))
    old = torch.exp(m - safe)
    mixed = torch.einsum("...qk,...kd->...qd", weights, v)
    return [top, old * ell + weights.sum(-1), old.unsqueeze(-1) * out + mixed]


def _update_by_nan_to_num(m, ell, out, scores, v):
    top = torch.maximum(m, scores.amax(-1))
    weights = (scores - top[..., None]).exp().nan_to_num()
    old = (m - top).exp().nan_to_num()
    return top, ell * old + weights.sum(-1), out * old[..., None] + weights @ v


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


def _forward_row_by_row(q, k, v, block_q, block_k):
    out, lse = q.new_zeros(*q.shape[:-1], v.shape[-1]), q.new_zeros(q.shape[:-1])
    for i in range(q.shape[-2]):
        s = (k @ q[..., i, :, None])[..., 0] / q.shape[-1] ** 0.5
        lse[..., i] = s.logsumexp(-1)
        out[..., i, :] = (s.softmax(-1)[..., None] * v).sum(-2)
    return out, lse


def _forward_in_float64(q, k, v, block_q, block_k):
    out, lse = _forward_dividing_as_it_goes(q.double(), k.double(), v.double(), block_q, block_k)
    return out.to(q.dtype), lse.to(q.dtype)


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


def _causal_cut_at_the_diagonal(q, k, v, block_q, block_k):
    L, S = q.shape[-2], k.shape[-2]
    outs = []
    for i in range(L):
        s = (q[..., i : i + 1, :] @ k[..., : i + 1 + S - L, :].mT) / q.shape[-1] ** 0.5
        outs.append(s.softmax(-1) @ v[..., : i + 1 + S - L, :])
    return torch.cat(outs, -2)


def _causal_in_tiles(q, k, v, block_q, block_k):
    L, S = q.shape[-2], k.shape[-2]
    outs = []
    for i in range(0, L, block_q):
        qi = q[..., i : i + block_q, :] / q.shape[-1] ** 0.5
        last = i + qi.shape[-2] - 1 + S - L
        total, acc, top = 0, 0, torch.tensor(-INF)
        for j in range(0, last + 1, block_k):
            kj, vj = k[..., j : j + block_k, :], v[..., j : j + block_k, :]
            s = qi @ kj.mT
            a = torch.arange(i, i + qi.shape[-2]).unsqueeze(1) + S - L
            s = s.masked_fill(torch.arange(j, j + kj.shape[-2]) > a, -1e9)
            new = torch.maximum(top, s.amax(-1, keepdim=True))
            p, old = (s - new).exp(), (top - new).exp()
            total, acc, top = total * old + p.sum(-1, keepdim=True), acc * old + p @ vj, new
        outs.append(acc / total)
    return torch.cat(outs, -2)


def _parts_by_stacking(q, k, v, size):
    outs, lses = [], []
    for kj, vj in zip(k.split(size, dim=-2), v.split(size, dim=-2), strict=True):
        s = q @ kj.mT / q.shape[-1] ** 0.5
        outs.append(s.softmax(-1) @ vj)
        lses.append(s.logsumexp(-1))
    share = torch.stack(lses).softmax(0)
    return (share.unsqueeze(-1) * torch.stack(outs)).sum(0)


def _parts_all_at_once(q, k, v, size):
    S = k.shape[-2]
    short = -S % size
    k, v = (F.pad(x, (0, 0, 0, short)).unflatten(-2, (-1, size)) for x in (k, v))
    s = q.unsqueeze(-3) @ k.mT / q.shape[-1] ** 0.5  # (..., parts, L, size)
    there = torch.arange(S + short).reshape(-1, 1, size) < S
    s = torch.where(there, s, -INF)
    share = s.logsumexp(-1).softmax(-2)  # over the parts
    return (share.unsqueeze(-1) * (s.softmax(-1) @ v)).sum(-3)


def _parts_with_lse_last(q, k, v, size):
    k_parts, v_parts = k.split(size, -2), v.split(size, -2)
    pairs = zip(k_parts, v_parts, strict=True)
    outs = torch.stack([F.scaled_dot_product_attention(q, *pair) for pair in pairs], dim=-1)
    lses = [torch.logsumexp(q @ kj.mT / math.sqrt(q.shape[-1]), -1) for kj in k_parts]
    share = torch.stack(lses, dim=-1).softmax(-1)  # (..., L, parts)
    return (outs * share.unsqueeze(-2)).sum(-1)


def _bytes_counted(L, S, d, block_q, size):
    naive = tiled = 0
    naive += L * d + S * d + L * S  # scores
    naive += L * S + L * S  # softmax
    naive += L * S + S * d + L * d  # mix
    for i in range(0, L, block_q):
        rows = min(block_q, L - i)
        tiled += rows * d + S * d + S * d + rows * d
    return torch.tensor(naive * size), torch.tensor(tiled * size)


def _bytes_by_formula(L, S, d, block_q, size):
    naive = size * (4 * L * S + 2 * L * d + 2 * S * d)
    return [naive, size * (2 * L * d + 2 * S * d * math.ceil(L / block_q))]


def _held(B, H, L, S, d, size):
    out = B * H * L * d * size
    scores = weights = B * H * L * S * size
    return scores + weights + out, out + 4 * B * H * L


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


def _sdpa_by_keywords(q, k, v, ignore, temperature):
    scale = q.shape[-1] ** -0.5 / temperature
    given = {"attn_mask": ~ignore, "scale": scale, "enable_gqa": True}
    return F.scaled_dot_product_attention(**given, value=v, key=k, query=q)


RIGHT = {
    "tile_update": [_update_by_rows, _update_with_where, _update_by_nan_to_num],
    "flash_forward": [_forward_dividing_as_it_goes, _forward_row_by_row, _forward_in_float64],
    "tiles_to_visit": [_visits_pair_by_pair, _visits_by_formula],
    "flash_causal": [_causal_cut_at_the_diagonal, _causal_in_tiles],
    "attend_in_parts": [_parts_by_stacking, _parts_all_at_once, _parts_with_lse_last],
    "bytes_moved": [_bytes_counted, _bytes_by_formula],
    "held_at_once": [_held, _held_by_tensors],
    "as_sdpa": [_sdpa_with_repeated_heads, _sdpa_in_groups, _sdpa_by_keywords],
    "tile_gradients": [_gradients_by_einsum, _gradients_by_autograd],
}


# wrong


def _no_shrink_for_out(m, ell, out, scores, v):
    m2 = torch.maximum(m, scores.max(-1)[0])
    safe = torch.where(m2 == -INF, 0.0, m2)
    e = torch.exp(scores - safe[..., None])
    return m2, ell * torch.exp(m - safe) + e.sum(-1), out + e @ v


def _starts_from_zero(m, ell, out, scores, v):
    m2 = torch.maximum(torch.maximum(m, torch.zeros_like(m)), scores.max(-1)[0])
    e = torch.exp(scores - m2[..., None])
    old = torch.exp(m - m2)
    return m2, ell * old + e.sum(-1), out * old[..., None] + e @ v


def _softmax_of_the_tile(m, ell, out, scores, v):
    m2 = torch.maximum(m, scores.amax(-1))
    safe = m2.clamp(min=torch.finfo(m.dtype).min)
    old = torch.exp(m - safe)
    p = torch.exp(scores - safe[..., None])
    mixed = scores.softmax(-1).nan_to_num() @ v
    return m2, ell * old + p.sum(-1), out * old[..., None] + mixed


def _largest_of_the_tile(m, ell, out, scores, v):
    m2 = torch.maximum(m, scores.max())
    p, old = torch.exp(scores - m2[..., None]), torch.exp(m - m2)
    return m2, ell * old + p.sum(-1), out * old[..., None] + p @ v


def _from_the_tiles_top(m, ell, out, scores, v):
    m2 = torch.maximum(m, scores.amax(-1))
    safe = torch.where(m2 == -INF, 0.0, m2)
    e = torch.exp(scores - scores.amax(-1, keepdim=True).clamp(min=-1e300))
    old = torch.exp(m - safe)
    return m2, ell * old + e.sum(-1), out * old[..., None] + e @ v


def _minus_a_billion(m, ell, out, scores, v):
    scores = torch.where(scores == -INF, -1e9, scores)
    m = torch.where(m == -INF, -1e9, m)
    m2 = torch.maximum(m, scores.max(-1)[0])
    e, old = torch.exp(scores - m2[..., None]), torch.exp(m - m2)
    return m2, ell * old + e.sum(-1), out * old[..., None] + e @ v


def _divides_in_the_loop(q, k, v, block_q, block_k):
    outs, lses = [], []
    for qi in q.split(block_q, -2):
        m = torch.full(qi.shape[:-1], -INF)
        ell = out = 0
        for kj, vj in zip(k.split(block_k, -2), v.split(block_k, -2), strict=True):
            s = qi @ kj.mT / q.shape[-1] ** 0.5
            top = torch.maximum(m, s.amax(-1))
            e, old = torch.exp(s - top[..., None]), torch.exp(m - top)
            m, ell, out = top, ell * old + e.sum(-1), out * old[..., None] + e @ vj
            out = out / ell[..., None]
        outs.append(out)
        lses.append(m + ell.log())
    return torch.cat(outs, -2), torch.cat(lses, -1)


def _all_at_once(q, k, v, block_q, block_k):
    s = q @ k.mT / q.shape[-1] ** 0.5
    return s.softmax(-1) @ v, s.logsumexp(-1)


def _loses_the_tail(q, k, v, block_q, block_k):
    whole = k.shape[-2] // block_k * block_k or k.shape[-2]
    return _forward_row_by_row(q, k[..., :whole, :], v[..., :whole, :], block_q, block_k)


def _rows_of_a_block(q, k, v, block_q, block_k):
    outs, lses = [], []
    for qi in q.split(block_q, -2):
        s = qi @ k.mT / q.shape[-1] ** 0.5
        outs.append(s.softmax(-1) @ v)
        lses.append(s.logsumexp(-1))
    return torch.cat(outs, -2), torch.cat(lses, -1)


def _sdpa_and_lse(q, k, v, block_q, block_k):
    return F.scaled_dot_product_attention(q, k, v), _rows_of_a_block(q, k, v, 1, block_k)[1]


def _tiles_of_powers(q, k, v, block_q, block_k):
    outs, lses = [], []
    for qi in q.split(block_q, -2):
        ell = out = 0
        for kj, vj in zip(k.split(block_k, -2), v.split(block_k, -2), strict=True):
            p = torch.exp(qi @ kj.mT / q.shape[-1] ** 0.5)
            ell, out = ell + p.sum(-1, keepdim=True), out + p @ vj
        outs.append(out / ell)
        lses.append(ell[..., 0].log())
    return torch.cat(outs, -2), torch.cat(lses, -1)


def _state_before_the_loops(q, k, v, block_q, block_k):
    shape = (*q.shape[:-2], block_q)
    m, ell = torch.full(shape, -INF), torch.zeros(shape)
    out = torch.zeros(*shape, v.shape[-1])
    outs, lses = [], []
    for i in range(0, q.shape[-2], block_q):
        qi = q[..., i : i + block_q, :]
        n = qi.shape[-2]
        m, ell, out = m[..., :n], ell[..., :n], out[..., :n, :]
        for j in range(0, k.shape[-2], block_k):
            s = qi @ k[..., j : j + block_k, :].mT / q.shape[-1] ** 0.5
            top = torch.maximum(m, s.amax(-1))
            p, old = torch.exp(s - top[..., None]), torch.exp(m - top)
            mixed = p @ v[..., j : j + block_k, :]
            m, ell, out = top, ell * old + p.sum(-1), out * old[..., None] + mixed
        outs.append(out / ell[..., None])
        lses.append(m + ell.log())
    return torch.cat(outs, -2), torch.cat(lses, -1)


def _mean_of_tiles(q, k, v, block_q, block_k):
    outs, lses = [], []
    for qi in q.split(block_q, -2):
        tiles = zip(k.split(block_k, -2), v.split(block_k, -2), strict=True)
        each = [_all_at_once(qi, kj, vj, 0, 0) for kj, vj in tiles]
        outs.append(sum(out for out, _ in each) / len(each))
        lses.append(torch.logsumexp(torch.stack([lse for _, lse in each]), 0))
    return torch.cat(outs, -2), torch.cat(lses, -1)


def _by_number(L, block_q, block_k):
    n = len(range(0, L, block_q))
    return torch.tensor([[i, i + 1] for i in range(n)])


def _whole_by_division(L, block_q, block_k):
    starts = range(0, L, block_q)
    return torch.tensor(
        [[(i + 1) // block_k, math.ceil(min(i + block_q, L) / block_k)] for i in starts]
    )


def _both_by_division(L, block_q, block_k):
    i = torch.arange(0, L, block_q)
    return torch.stack([(i + 1) // block_k, (i + block_q + block_k - 1) // block_k], 1)


def _strict_visits(L, block_q, block_k):
    rows = [row.split(block_k, 1) for row in torch.ones(L, L).tril(-1).split(block_q, 0)]
    return torch.tensor(
        [[sum(bool(f(t)) for t in row) for f in (torch.all, torch.any)] for row in rows]
    )


def _masked_first(L, block_q, block_k):
    rows = _visits_pair_by_pair(L, block_q, block_k)
    return torch.stack([rows[:, 1] - rows[:, 0], rows[:, 1]], 1)


def _masks_all_tiles(q, k, v, block_q, block_k):
    L, S = q.shape[-2], k.shape[-2]
    s = q @ k.mT / q.shape[-1] ** 0.5
    s = s.masked_fill(torch.arange(S) > torch.arange(L)[:, None] + S - L, -INF)
    return s.softmax(-1) @ v


def _tril_in_each_tile(q, k, v, block_q, block_k):
    outs = []
    for qi in q.split(block_q, -2):
        s = [qi @ kj.mT / q.shape[-1] ** 0.5 for kj in k.split(block_k, -2)]
        s = [each.masked_fill(torch.ones_like(each).tril() == 0, -INF) for each in s]
        outs.append(torch.cat(s, -1).softmax(-1) @ v)
    return torch.cat(outs, -2)


def _causal_tiles(q, k, v, block_q, block_k, begins, mask):
    """Return attention in tiles: while begins(j, first, last), with -inf where mask(s, i, j) is."""
    offset, outs = k.shape[-2] - q.shape[-2], []
    for i in range(0, q.shape[-2], block_q):
        qi = q[..., i : i + block_q, :] / math.sqrt(q.shape[-1])
        first = i + offset
        pieces, values = [], []
        for j in range(0, k.shape[-2], block_k):
            if not begins(j, first, first + qi.shape[-2] - 1):
                break
            s = qi @ k[..., j : j + block_k, :].mT
            pieces.append(s.masked_fill(mask(s, first, j), -INF))
            values.append(v[..., j : j + block_k, :])
        outs.append(torch.cat(pieces, -1).softmax(-1) @ torch.cat(values, -2))
    return torch.cat(outs, -2)


def _by_position(s, i, j):
    return torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None]


def _break_by_the_first(q, k, v, block_q, block_k):
    begins = lambda j, first, last: j <= first  # noqa: E731
    return _causal_tiles(q, k, v, block_q, block_k, begins, _by_position)


def _break_without_offset(q, k, v, block_q, block_k):
    offset = k.shape[-2] - q.shape[-2]
    begins = lambda j, first, last: j <= last - offset  # noqa: E731
    return _causal_tiles(q, k, v, block_q, block_k, begins, _by_position)


def _break_by_whole_blocks(q, k, v, block_q, block_k):
    offset = k.shape[-2] - q.shape[-2]
    begins = lambda j, first, last: not j > first - offset + block_q - 1  # noqa: E731
    return _causal_tiles(q, k, v, block_q, block_k, begins, _by_position)


def _tril_on_the_diagonal(q, k, v, block_q, block_k):
    def mask(s, i, j):
        crosses = j + s.shape[-1] > i
        ones = torch.ones(s.shape[-2:], dtype=torch.bool)
        return ~ones.tril() if crosses else ~ones

    return _causal_tiles(q, k, v, block_q, block_k, lambda j, first, last: j <= last, mask)


def _tril_wherever_it_reads(q, k, v, block_q, block_k):
    mask = lambda s, i, j: torch.ones_like(s).tril() == 0  # noqa: E731
    return _causal_tiles(q, k, v, block_q, block_k, lambda j, first, last: j <= last, mask)


def _causal_without_scale(q, k, v, block_q, block_k):
    begins = lambda j, first, last: j <= last  # noqa: E731
    return _causal_tiles(q * math.sqrt(q.shape[-1]), k, v, block_q, block_k, begins, _by_position)


def _strict_tiles(q, k, v, block_q, block_k):
    begins = lambda j, first, last: j <= last  # noqa: E731
    mask = lambda s, i, j: _by_position(s, i - 1, j)  # noqa: E731
    return _causal_tiles(q, k, v, block_q, block_k, begins, mask)


def _causal_powers(q, k, v, block_q, block_k):
    outs, offset = [], k.shape[-2] - q.shape[-2]
    for i in range(0, q.shape[-2], block_q):
        qi, ell, out = q[..., i : i + block_q, :] / q.shape[-1] ** 0.5, 0, 0
        for j in range(0, i + qi.shape[-2] + offset, block_k):
            s = qi @ k[..., j : j + block_k, :].mT
            p = torch.where(_by_position(s, i + offset, j), 0, s.exp())
            ell, out = ell + p.sum(-1, keepdim=True), out + p @ v[..., j : j + block_k, :]
        outs.append(out / ell)
    return torch.cat(outs, -2)


def _sdpa_on_all_keys(q, k, v, size):
    return F.scaled_dot_product_attention(q, k, v)


def _softmax_on_all_keys(q, k, v, size):
    return torch.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, -1) @ v


def _merged(q, k_parts, v_parts, start=None, scale_of_lse=1.0, keep=False):
    out = lse = None if start is None else start
    if start is not None:
        out = torch.zeros(*q.shape[:-1], v_parts[0].shape[-1])
        lse = torch.full(q.shape[:-1], float(start))
    for kj, vj in zip(k_parts, v_parts, strict=True):
        s = q @ kj.mT / q.shape[-1] ** 0.5
        here, there = s.softmax(-1) @ vj, (s * scale_of_lse).logsumexp(-1)
        if out is None:
            out, lse = here, there
        else:
            both = torch.logaddexp(lse, there)
            out = out * (lse - both).exp()[..., None] + here * (there - both).exp()[..., None]
            lse = lse if keep else both
    return out


def _size_pieces(q, k, v, size):
    return _merged(q, k.chunk(size, -2), v.chunk(size, -2))


def _begun_with_zero(q, k, v, size):
    return _merged(q, k.split(size, -2), v.split(size, -2), start=0.0)


def _lse_without_scale(q, k, v, size):
    return _merged(q, k.split(size, -2), v.split(size, -2), scale_of_lse=q.shape[-1] ** 0.5)


def _first_lse_for_ever(q, k, v, size):
    return _merged(q, k.split(size, -2), v.split(size, -2), keep=True)


def _parts_of_powers(q, k, v, size):
    above = below = 0
    for kj, vj in zip(k.split(size, -2), v.split(size, -2), strict=True):
        p = torch.exp(q @ kj.mT / q.shape[-1] ** 0.5)
        above, below = above + p @ vj, below + p.sum(-1, keepdim=True)
    return above / below


def _weighted_by_exp_lse(q, k, v, size):
    outs, weights = [], []
    for kj, vj in zip(k.split(size, -2), v.split(size, -2), strict=True):
        s = q @ kj.mT / q.shape[-1] ** 0.5
        outs.append(s.softmax(-1) @ vj)
        weights.append(s.logsumexp(-1).exp()[..., None])
    return sum(w * o for w, o in zip(weights, outs, strict=True)) / sum(weights)


def _mean_of_parts(q, k, v, size):
    outs = [
        F.scaled_dot_product_attention(q, kj, vj)
        for kj, vj in zip(k.split(size, -2), v.split(size, -2), strict=True)
    ]
    return sum(outs) / len(outs)


def _elements(L, S, d, block_q, size):
    return 4 * L * S + 2 * (L + S) * d, 2 * L * d + 2 * S * d * -(-L // block_q)


def _in_place_softmax(L, S, d, block_q, size):
    naive, tiled = _bytes_by_formula(L, S, d, block_q, size)
    return naive - L * S * size, tiled


def _with_lse(L, S, d, block_q, size):
    naive, tiled = _bytes_by_formula(L, S, d, block_q, size)
    return naive, tiled + size * L


def _swapped(L, S, d, block_q, size):
    naive, tiled = _bytes_by_formula(L, S, d, block_q, size)
    return tiled, naive


def _bits(L, S, d, block_q, size):
    return [8 * each for each in _bytes_by_formula(L, S, d, block_q, size)]


def _with_inputs(B, H, L, S, d, size):
    qkv = size * d * B * H * (L + S + S)
    naive, flash = _held(B, H, L, S, d, size)
    return naive + qkv, flash + qkv


def _with_scaled_scores(B, H, L, S, d, size):
    naive, flash = _held(B, H, L, S, d, size)
    return naive + size * B * H * L * S, flash


def _weights_only(B, H, L, S, d, size):
    return B * H * L * (S + d) * size, B * H * L * (d * size + 4)


def _mask_as_it_came(q, k, v, ignore, temperature):
    scale = 1 / (math.sqrt(q.shape[-1]) * temperature)
    return F.scaled_dot_product_attention(q, k, v, ignore, scale=scale, enable_gqa=True)


def _sdpa_by_hand(q, k, v, ignore, temperature):
    times = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1)
    scores = q @ k.mT / math.sqrt(q.shape[-1]) / temperature
    return scores.masked_fill(ignore, -INF).softmax(-1) @ v


def _sdpa_head_by_head(q, k, v, ignore, temperature):
    group, outs = q.shape[1] // k.shape[1], []
    for h in range(q.shape[1]):
        kv = k[:, h // group], v[:, h // group]
        one = F.scaled_dot_product_attention(q[:, h] / temperature, *kv, ~ignore[:, 0])
        outs.append(one)
    return torch.stack(outs, 1)


def _heads_as_they_are(q, k, v, ignore, temperature):
    return F.scaled_dot_product_attention(q / temperature, k, v, attn_mask=~ignore)


def _scaled_before_and_inside(q, k, v, ignore, temperature):
    q = q / (math.sqrt(q.shape[-1]) * temperature)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=~ignore, enable_gqa=True)


def _one_root(q, k, v, ignore, temperature):
    scale = 1 / math.sqrt(q.shape[-1] * temperature)
    return F.scaled_dot_product_attention(q, k, v, ~ignore, scale=scale, enable_gqa=True)


def _temperature_last(q, k, v, ignore, temperature):
    return F.scaled_dot_product_attention(q, k, v, ~ignore, enable_gqa=True) / temperature


def _mask_times_infinity(q, k, v, ignore, temperature):
    scale = 1 / (math.sqrt(q.shape[-1]) * temperature)
    bias = ignore.double() * -INF
    return F.scaled_dot_product_attention(q, k, v, bias, scale=scale, enable_gqa=True)


def _as_in_the_lesson(q, k, v, d_out, lse, delta):
    p = (q @ k.mT - lse[..., None]).exp()
    ds = p * (d_out @ v.mT - delta[..., None])
    return ds @ k, ds.mT @ q, p.mT @ d_out


def _scaled_first_and_last(q, k, v, d_out, lse, delta):
    scale = q.shape[-1] ** -0.5
    q = q * scale
    p = (q @ k.mT - lse[..., None]).exp()
    ds = p * (d_out @ v.mT - delta[..., None]) * scale
    return ds @ k, ds.mT @ q, p.mT @ d_out


def _without_brackets(q, k, v, d_out, lse, delta):
    scale = q.shape[-1] ** -0.5
    p = (q @ k.mT * scale - lse[..., None]).exp()
    ds = p * (d_out @ v.mT) - delta[..., None]
    return ds @ k * scale, ds.mT @ q * scale, p.mT @ d_out


def _values_by_ds(q, k, v, d_out, lse, delta):
    scale = q.shape[-1] ** -0.5
    p = (q @ k.mT * scale - lse[..., None]).exp()
    ds = p * (d_out @ v.mT - delta[..., None])
    return ds @ k * scale, ds.mT @ q * scale, ds.mT @ d_out


def _no_weights(q, k, v, d_out, lse, delta):
    scale = q.shape[-1] ** -0.5
    p = (q @ k.mT * scale - lse[..., None]).exp()
    ds = d_out @ v.mT - delta[..., None]
    return ds @ k * scale, ds.mT @ q * scale, p.mT @ d_out


def _keys_first(q, k, v, d_out, lse, delta):
    scale = q.shape[-1] ** -0.5
    p = (q @ k.mT * scale - lse[..., None]).exp()
    ds = scale * p * (d_out @ v.mT - delta[..., None])
    return ds.mT @ q, ds @ k, p.mT @ d_out


def _local_softmax(q, k, v, d_out, lse, delta):
    scale = q.shape[-1] ** -0.5
    p = (q @ k.mT * scale).softmax(-1)
    ds = p * (d_out @ v.mT - delta[..., None]) * scale
    return ds @ k, ds.mT @ q, p.mT @ d_out


WRONG = [
    ("tile_update", "accumulator not rescaled", _no_shrink_for_out),
    ("tile_update", "maximum at least zero", _starts_from_zero),
    ("tile_update", "softmax within the tile", _softmax_of_the_tile),
    ("tile_update", "tile maximum for all", _largest_of_the_tile),
    ("tile_update", "powers from the tiles maximum", _from_the_tiles_top),
    ("tile_update", "finite in place of infinity", _minus_a_billion),
    ("flash_forward", "makes the whole matrix", _all_at_once),
    ("flash_forward", "makes the whole matrix", _sdpa_and_lse),
    ("flash_forward", "keys not cut", _rows_of_a_block),
    ("flash_forward", "tiles without maximum", _tiles_of_powers),
    ("flash_forward", "state carried on", _state_before_the_loops),
    ("flash_forward", "divided in the loop", _divides_in_the_loop),
    ("flash_forward", "tiles averaged", _mean_of_tiles),
    ("flash_forward", "last keys dropped", _loses_the_tail),
    ("tiles_to_visit", "skipped by number", _by_number),
    ("tiles_to_visit", "short last keys missed", _whole_by_division),
    ("tiles_to_visit", "last blocks taken as full", _both_by_division),
    ("tiles_to_visit", "own key not seen", _strict_visits),
    ("tiles_to_visit", "masked in front", _masked_first),
    ("flash_causal", "reads the future", _masks_all_tiles),
    ("flash_causal", "skipped by the first query", _break_by_the_first),
    ("flash_causal", "skipped without the offset", _break_without_offset),
    ("flash_causal", "skipped without the offset", _break_by_whole_blocks),
    ("flash_causal", "tril from the corner", _tril_on_the_diagonal),
    ("flash_causal", "tril in each visited tile", _tril_wherever_it_reads),
    ("flash_causal", "causal not scaled", _causal_without_scale),
    ("flash_causal", "own key masked", _strict_tiles),
    ("flash_causal", "causal without maximum", _causal_powers),
    ("flash_causal", "local causal indices", _tril_in_each_tile),
    ("attend_in_parts", "parts averaged", _mean_of_parts),
    ("attend_in_parts", "parts too large", _sdpa_on_all_keys),
    ("attend_in_parts", "parts too large", _softmax_on_all_keys),
    ("attend_in_parts", "parts too large", _size_pieces),
    ("attend_in_parts", "merged from zero", _begun_with_zero),
    ("attend_in_parts", "lse of unscaled scores", _lse_without_scale),
    ("attend_in_parts", "lse of the first part", _first_lse_for_ever),
    ("attend_in_parts", "parts without maximum", _parts_of_powers),
    ("attend_in_parts", "parts without maximum", _weighted_by_exp_lse),
    ("bytes_moved", "numbers not bytes", _elements),
    ("bytes_moved", "matrix moved three times", _in_place_softmax),
    ("bytes_moved", "lse counted", _with_lse),
    ("bytes_moved", "costs swapped", _swapped),
    ("bytes_moved", "bits moved", _bits),
    ("held_at_once", "one matrix", _weights_only),
    ("held_at_once", "inputs counted", _with_inputs),
    ("held_at_once", "three matrices", _with_scaled_scores),
    ("as_sdpa", "ignore not inverted", _mask_as_it_came),
    ("as_sdpa", "not one call", _sdpa_by_hand),
    ("as_sdpa", "not one call", _sdpa_head_by_head),
    ("as_sdpa", "heads not shared", _heads_as_they_are),
    ("as_sdpa", "scaled twice", _scaled_before_and_inside),
    ("as_sdpa", "temperature under the root", _one_root),
    ("as_sdpa", "output over temperature", _temperature_last),
    ("as_sdpa", "mask times infinity", _mask_times_infinity),
    ("tile_gradients", "scale nowhere", _as_in_the_lesson),
    ("tile_gradients", "key gradient scaled twice", _scaled_first_and_last),
    ("tile_gradients", "delta outside the brackets", _without_brackets),
    ("tile_gradients", "weights missing", _no_weights),
    ("tile_gradients", "values by score gradients", _values_by_ds),
    ("tile_gradients", "query and key gradients exchanged", _keys_first),
    ("tile_gradients", "weights of the tile alone", _local_softmax),
]


HINTS = {
    "tile_update": {
        "accumulator not rescaled": "O is not rescaled",
        "sum not rescaled": "ℓ is not rescaled",
        "nothing rescaled": "neither ℓ nor O is rescaled",
        "maximum at least zero": "must be able to stay negative",
        "maximum of the tile": "*all* tiles so far",
        "rescaled upwards": "at most 1",
        "powers from the old maximum": "subtract the new one",
        "maximum not subtracted": "1000 would overflow",
        "divided at every tile": "after the last tile",
        "softmax within the tile": "a softmax of its own",
        "tile maximum for all": "each has its own",
        "nan for a blind query": "−inf − −inf is NaN",
        "powers from the tiles maximum": "this tile's own maximum",
        "finite in place of infinity": "keep −∞",
    },
    "flash_forward": {
        "divided in the loop": "after every tile",
        "never divided": "not divided by ℓ",
        "tiles not scaled": "not divided by √d_k",
        "lse without m": "m is missing",
        "lse without log": "without its logarithm",
        "last keys dropped": "no multiple of block_k",
        "last queries dropped": "are dropped",
        "last queries left zero": "keep their zeros",
        "loop without rescaling": "6.1's shrink",
        "softmax in each tile": "a softmax of its own",
        "tiles without maximum": "e^score overflows",
        "state carried on": "each block begins anew",
        "tiles averaged": "outputs are averaged",
        "scaled by the width of values": "√d_v",
        "output without lse": "only O is returned",
    },
    "tiles_to_visit": {
        "skipped by number": "only if block_q = block_k",
        "nothing skipped": "all blocks of keys are visited",
        "visits rounded down": "rounded down",
        "one block too many": "begins at the next query",
        "whole by the last query": "the block's *first* query",
        "own key forgotten": "may end with it",
        "own key not seen": "counts for both numbers",
        "short last keys missed": "a short last block of keys is whole",
        "visits past the end": "no keys past L",
        "last blocks taken as full": "right but for the last blocks",
        "masked in front": "*no* mask",
        "only the masked": "all tiles visited",
        "visits swapped": "the two are swapped",
    },
    "flash_causal": {
        "local causal indices": "as if it began at 0",
        "tril from the corner": "the tile's own corner",
        "tril in each visited tile": "the right tiles are read",
        "skipped by the first query": "the last one sees further",
        "skipped without the offset": "forgets S − L",
        "causal not scaled": "not divided by √d_k",
        "causal without maximum": "e^score overflows",
        "tiles skipped by number": "skipped by number",
        "lined up at the start": "the queries are the last L tokens",
        "diagonal tiles not masked": "nothing is masked",
        "only skipped": "those on it are not masked",
        "own key masked": "forbid only j > i",
        "next key allowed": "the very next token",
        "forbidden scores zero": "e^0 is 1",
    },
    "attend_in_parts": {
        "parts averaged": "the outputs are averaged",
        "parts added": "the outputs are added",
        "parts weighted by length": "how many keys they hold",
        "last part dropped": "no multiple of size",
        "parts weighted by maximum": "how many scores are near it",
        "lse as weights": "they are logarithms",
        "lse not carried on": "not carried on",
        "lse of the first part": "stays the first part's",
        "lse of unscaled scores": "of unscaled scores",
        "parts not scaled": "not divided by √d_k",
        "merged from zero": "begins from lse = 0",
        "parts without maximum": "overflows",
        "first part alone": "only one part",
    },
    "bytes_moved": {
        "numbers not bytes": "multiply by size",
        "matrix moved twice": "four times",
        "keys read once": "again for every block of queries",
        "keys read for each query": "not for every query",
        "blocks rounded down": "round L / B_q up",
        "blocks not rounded": "the number of blocks is whole",
        "output not written": "the output is written too",
        "only keys read": "both are read",
        "costs swapped": "the two are swapped",
        "lse counted": "to be left out",
        "matrix moved three times": "once more",
        "bits moved": "in bytes already",
    },
    "held_at_once": {
        "one matrix": "two matrices at once",
        "three matrices": "two matrices, not three",
        "memory swapped": "the two are swapped",
        "inputs counted": "besides them",
        "heads forgotten": "the heads are forgotten",
        "batch forgotten": "the batch is forgotten",
        "counted not weighed": "multiply by size",
        "square matrix": "the matrix is L × S",
        "naive without output": "the output is missing",
        "lse forgotten": "the log-sum-exp is missing",
        "lse in the dtype": "kept in float32",
    },
    "as_sdpa": {
        "ignore not inverted": "True means ignore here",
        "temperature alone": "it does not come on top",
        "temperature ignored": "the temperature is not used",
        "temperature upside down": "multiplied by the temperature",
        "scale upside down": "`scale` multiplies the scores",
        "mask not given": "the mask is not given",
        "mask as numbers": "*added* to the scores",
        "heads in turn": "0 1 0 1",
        "heads not shared": "enable_gqa=True",
        "scaled twice": "SDPA divides by √d_k itself",
        "temperature under the root": "under the root",
        "output over temperature": "before the softmax",
        "mask times infinity": "0 · −inf",
    },
    "tile_gradients": {
        "weights of the tile alone": "a softmax over this tile alone",
        "delta missing": "not subtracted",
        "delta added": "delta is added",
        "delta of the tile alone": "summed over this tile's keys",
        "gradients not scaled": "dQ and dK lack",
        "query gradient not scaled": "dQ lacks the factor",
        "key gradient not scaled": "dK lacks the factor",
        "weights not scaled": "before lse is subtracted",
        "lse not subtracted": "do not sum to 1",
        "scale nowhere": "q comes without",
        "key gradient scaled twice": "was scaled already",
        "weights missing": "P is missing",
        "values by score gradients": "dV = Pᵀ dO",
        "query and key gradients exchanged": "dQ and dK are exchanged",
        "delta outside the brackets": "needs its brackets",
    },
}
