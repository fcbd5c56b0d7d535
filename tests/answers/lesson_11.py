"""Answers to the exercises of lesson 11, written apart from its checks."""

import torch

from course_utils.attention import attention, merge
from course_utils.parallel import shard_positions

# right


def _seen_by_simulating(rank, ranks, hop):
    held, seen = list(range(ranks)), []
    for _ in range(ranks):
        seen.append(held[rank])
        held = [held[(r - hop) % ranks] for r in range(ranks)]
    return torch.tensor(seen)


def _seen_by_list(rank, ranks, hop):
    return torch.tensor([(rank - step * hop) % ranks for step in range(ranks)])


def _seen_by_numpy(rank, ranks, hop):
    return torch.arange(ranks).mul(-hop).add(rank).remainder(ranks).numpy()


def _seen_by_plain_list(rank, ranks, hop):
    return [(rank - step * hop) % ranks for step in range(ranks)]


def _seen_by_plain_tuple(rank, ranks, hop):
    return tuple(_seen_by_list(rank, ranks, hop))  # of tensors


def _step_with_merge(q, k, v, out, lse):
    part, weights = attention(q, k, v)
    part_lse = (q @ k.mT / q.shape[-1] ** 0.5).logsumexp(dim=-1)
    out, lse = merge(out, lse, part, part_lse)
    return out, lse, torch.cat([k[-1:], k[:-1]]), torch.cat([v[-1:], v[:-1]])


def _step_rank_by_rank(q, k, v, out, lse):
    outs, lses = [], []
    for rank in range(len(q)):
        scores = q[rank] @ k[rank].T * q.shape[-1] ** -0.5  # (n, n)
        both = torch.cat([lse[rank][:, None], scores], dim=-1)  # (n, 1 + n)
        weights = both.softmax(dim=-1)
        outs.append(weights[:, :1] * out[rank] + weights[:, 1:] @ v[rank])
        lses.append(both.logsumexp(dim=-1))
    W = len(q)
    order = [(rank - 1) % W for rank in range(W)]
    return torch.stack(outs), torch.stack(lses), k[order], v[order]


def _step_by_sigmoid(q, k, v, out, lse):
    scores = torch.einsum("wid,wjd->wij", q, k) / q.shape[-1] ** 0.5
    new = scores.logsumexp(-1)
    share = (lse - new).sigmoid()[..., None]
    mixed = share * out + (1 - share) * (scores - new[..., None]).exp() @ v
    return mixed, torch.stack([lse, new]).logsumexp(0), k.roll(1, 0), v.roll(1, 0)


def _back_by_places(parts):
    W, n, _ = parts.shape
    return parts.flatten(0, 1)[torch.cat(shard_positions(W * n, W, zigzag=True)).argsort()]


def _back_by_loop(parts):
    W, n, _ = parts.shape
    pieces = [None] * (2 * W)
    for rank in range(W):
        pieces[rank], pieces[2 * W - 1 - rank] = parts[rank, : n // 2], parts[rank, n // 2 :]
    return torch.cat(pieces)


def _back_by_index(parts):
    W, n, d = parts.shape
    back = torch.empty(W * n, dtype=torch.long)
    back[torch.cat(shard_positions(W * n, W, zigzag=True))] = torch.arange(W * n)
    return parts.reshape(-1, d)[back]


def _kinds_by_mask(queries, keys, size):
    mask = keys <= queries[:, None]  # (L, S)
    tiles = mask.unflatten(0, (-1, size)).unflatten(2, (-1, size)).float().mean(dim=(1, 3))
    return (tiles > 0).int() + (tiles == 1).int()


def _kinds_by_loops(queries, keys, size):
    kinds = torch.zeros(len(queries) // size, len(keys) // size, dtype=torch.int64)
    for i, q in enumerate(queries.split(size)):
        for j, k in enumerate(keys.split(size)):
            if k.max() <= q.min():
                kinds[i, j] = 2
            elif k.min() <= q.max():
                kinds[i, j] = 1
    return kinds


def _kinds_by_where(queries, keys, size):
    q = queries.reshape(-1, 1, size, 1)
    allowed = keys.reshape(1, -1, 1, size) <= q
    part = torch.where(allowed.any(-1).any(-1), 1, 0)
    return torch.where(allowed.all(-1).all(-1), 2, part)


def _kinds_in_lists(queries, keys, size):
    return _kinds_by_loops(queries, keys, size).tolist()


def _bytes_by_hand(N, W, H, H_kv, d, size):
    x = N * H * d * size
    q, k = N // W * H * d * size, N // W * H_kv * d * size
    forward, back = 2 * (W - 1) * k, 2 * (W - 1) * k + 2 * W * k
    return 4 * x * (W - 1) // W, 4 * (q + k) * (W - 1) // W, forward + back


def _bytes_step_by_step(N, W, H, H_kv, d, size):
    n, ring = N // W, 0
    for step in range(W):
        ring += 2 * n * H_kv * d * (step < W - 1)  # forward
        ring += 2 * n * H_kv * d * (step < W - 1) + 2 * n * H_kv * d
    per_pass = sum(n * heads * d * (W - 1) // W for heads in (H, H_kv, H_kv, H))
    return [2 * 2 * (N * H * d) * (W - 1) // W * size, 2 * per_pass * size, ring * size]


def _bytes_in_floats(N, W, H, H_kv, d, size):
    x, k, passed_on = N * H * d * size, N * H_kv * d * size, 1 - 1 / W  # the part of W that leaves
    ring = 2 * k * (2 * passed_on + 1)
    return 4 * x * passed_on, 4 * (x + k) * passed_on / W, ring


def _bytes_in_a_tensor(*given):
    return torch.tensor(_bytes_by_hand(*given))


def _bytes_in_an_array(*given):
    return torch.tensor(_bytes_in_floats(*given), dtype=torch.float64).numpy()


def _bytes_in_tensors(*given):
    return [torch.tensor(each) for each in _bytes_by_hand(*given)]


def _joined_by_lse(m, ell, out):
    lse = m + ell.log()
    weights = lse.softmax(dim=0)
    own = torch.where(ell[..., None] > 0, out / ell[..., None], 0)
    return (weights[..., None] * own).sum(dim=0)


def _joined_one_by_one(m, ell, out):
    M, total, mixed = m[0], ell[0], out[0]
    for m_r, ell_r, out_r in zip(m[1:], ell[1:], out[1:], strict=True):
        top = torch.maximum(M, m_r)
        base = top.masked_fill(top == -torch.inf, 0)
        a, b = (M - base).exp(), (m_r - base).exp()
        M, total = top, a * total + b * ell_r
        mixed = a[:, None] * mixed + b[:, None] * out_r
    return mixed / total[:, None]


def _joined_by_einsum(m, ell, out):
    shares = torch.exp(m - m.max(dim=0, keepdim=True).values)
    return torch.einsum("wh,whd->hd", shares, out) / torch.einsum("wh,wh->h", shares, ell)[:, None]


def _odd_ones_send(rank, ranks):
    calls = [("recv", (rank + ranks - 1) % ranks), ("send", (rank + 1) % ranks)]
    return calls[::-1] if rank % 2 else calls


def _even_ones_send(rank, ranks):
    calls = ("send", (rank + 1) % ranks), ("recv", (rank - 1) % ranks)
    return sorted(calls, reverse=rank % 2 == 0)


def _dealt_to_the_poorest(lengths, ranks):
    n = sum(lengths) // ranks
    seen = [place + 1 for length in lengths for place in range(length)]
    held, work = [[] for _ in range(ranks)], [0] * ranks
    for token in sorted(range(len(seen)), key=lambda t: -seen[t]):
        rank = min((r for r in range(ranks) if len(held[r]) < n), key=work.__getitem__)
        held[rank].append(token)
        work[rank] += seen[token]
    return torch.tensor(held)


def _dealt_in_pairs(lengths, ranks):
    """Give each rank the costliest token that is left, then the cheapest, in turns."""
    seen = torch.cat([torch.arange(length) for length in lengths])
    order = seen.argsort()
    n = len(order) // ranks
    half = n // 2 * ranks
    dear, cheap = order[len(order) - half :].flip(0), order[:half]
    rows = [dear.reshape(-1, ranks).T, cheap.reshape(-1, ranks).T]
    if n % 2:
        rows.append(order[half : len(order) - half][:, None])
    return torch.cat(rows, dim=1)


def _dealt_in_lists(lengths, ranks):
    return _dealt_to_the_poorest(lengths, ranks).tolist()


def _dealt_in_rows(lengths, ranks):
    return tuple(_dealt_to_the_poorest(lengths, ranks))  # of tensors


RIGHT = {
    "blocks_received": [
        _seen_by_simulating,
        _seen_by_list,
        _seen_by_numpy,
        _seen_by_plain_list,
        _seen_by_plain_tuple,
    ],
    "ring_step": [_step_with_merge, _step_rank_by_rank, _step_by_sigmoid],
    "back_in_order": [_back_by_places, _back_by_loop, _back_by_index],
    "tile_kinds": [_kinds_by_mask, _kinds_by_loops, _kinds_by_where, _kinds_in_lists],
    "bytes_sent": [
        _bytes_by_hand,
        _bytes_step_by_step,
        _bytes_in_floats,
        _bytes_in_a_tensor,
        _bytes_in_an_array,
        _bytes_in_tensors,
    ],
    "join_ranks": [_joined_by_lse, _joined_one_by_one, _joined_by_einsum],
    "order_of_calls": [_odd_ones_send, _even_ones_send],
    "shard_tokens": [_dealt_to_the_poorest, _dealt_in_pairs, _dealt_in_lists, _dealt_in_rows],
}


# wrong


def _step_detached(q, k, v, out, lse):
    return tuple(each.detach() for each in _step_with_merge(q, k, v, out, lse))


def _step_in_place(q, k, v, out, lse):
    new, both, k, v = _step_with_merge(q, k, v, out, lse)
    lse.copy_(both)
    return new, both, k, v


def _every_third_receives_first(rank, ranks):
    calls = [("send", (rank + 1) % ranks), ("recv", (rank - 1) % ranks)]
    return calls[::-1] if rank % 3 == 1 else calls


def _half_send_first(rank, ranks):
    calls = [("send", (rank + 1) % ranks), ("recv", (rank - 1) % ranks)]
    return calls if rank < ranks // 2 else calls[::-1]


def _pairs_send_first(rank, ranks):
    calls = [("send", (rank + 1) % ranks), ("recv", (rank - 1) % ranks)]
    return calls if rank // 2 % 2 == 0 else calls[::-1]


def _calls_forwards_and_back(rank, ranks):
    return [("send", (rank + 1) % ranks), ("recv", (rank + 1) % ranks)]


def _dealt_as_cards(lengths, ranks):
    return torch.arange(sum(lengths)).reshape(-1, ranks).T


def _dealt_by_cost_in_pieces(lengths, ranks):
    cost = torch.cat([torch.arange(length) for length in lengths])
    return cost.argsort(descending=True).reshape(ranks, -1)


WRONG = [
    ("blocks_received", None, lambda r, W, hop: torch.zeros(W, dtype=torch.long)),
    ("blocks_received", None, lambda *given: [str(s) for s in _seen_by_list(*given).tolist()]),
    ("ring_step", "wrong gradients", _step_detached),
    ("ring_step", "changes its input", _step_in_place),
    ("ring_step", None, lambda q, k, v, out, lse: (out, lse)),
    ("tile_kinds", None, lambda q, k, size: _kinds_by_mask(q, k, 1)),
    ("bytes_sent", "another order", lambda *given: _bytes_by_hand(*given)[::-1]),
    ("join_ranks", None, lambda m, ell, out: out[0]),
    ("order_of_calls", "one after another", _every_third_receives_first),
    ("order_of_calls", "one after another", _half_send_first),
    ("order_of_calls", "stands still", _pairs_send_first),
    ("order_of_calls", "wrong neighbour", _calls_forwards_and_back),
    ("shard_tokens", "unbalanced", _dealt_as_cards),
    ("shard_tokens", "unbalanced", _dealt_by_cost_in_pieces),
]  # fmt: skip
