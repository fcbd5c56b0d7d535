"""Answers to the exercises of lesson 11, written apart from its checks."""

import torch

from course_utils.attention import attention, causal_mask, merge
from course_utils.parallel import places

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
    return parts.flatten(0, 1)[torch.cat(places(W * n, W, zigzag=True)).argsort()]


def _back_by_loop(parts):
    W, n, _ = parts.shape
    pieces = [None] * (2 * W)
    for rank in range(W):
        pieces[rank], pieces[2 * W - 1 - rank] = parts[rank, : n // 2], parts[rank, n // 2 :]
    return torch.cat(pieces)


def _back_by_index(parts):
    W, n, d = parts.shape
    back = torch.empty(W * n, dtype=torch.long)
    back[torch.cat(places(W * n, W, zigzag=True))] = torch.arange(W * n)
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
    "seen_by": [
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
    "deal": [_dealt_to_the_poorest, _dealt_in_pairs, _dealt_in_lists, _dealt_in_rows],
}


# wrong


def _step_detached(q, k, v, out, lse):
    return tuple(each.detach() for each in _step_with_merge(q, k, v, out, lse))


def _step_backwards(q, k, v, out, lse):
    out, lse, k, v = _step_with_merge(q, k, v, out, lse)
    return out, lse, k.roll(-2, 0), v.roll(-2, 0)


def _step_in_place(q, k, v, out, lse):
    new, both, k, v = _step_with_merge(q, k, v, out, lse)
    lse.copy_(both)
    return new, both, k, v


def _step_by_hand(divided_by=lambda q, v: q.shape[-1] ** 0.5, lse_of=torch.logsumexp):
    def step(q, k, v, out, lse):
        scores = q @ k.mT / divided_by(q, v)
        new = lse_of(scores, -1)
        out, lse = merge(out, lse, scores.softmax(-1) @ v, new)
        return out, lse, k.roll(1, 0), v.roll(1, 0)

    return step


def _step_passing(on):
    def step(q, k, v, out, lse):
        return *_step_with_merge(q, k, v, out, lse)[:2], *on(k, v)

    return step


def _step_seeing_the_past(q, k, v, out, lse):
    past = causal_mask(q.shape[1])
    scores = (q @ k.mT / q.shape[-1] ** 0.5).where(past, torch.tensor(-torch.inf, dtype=q.dtype))
    out, lse = merge(out, lse, attention(q, k, v, past)[0], scores.logsumexp(-1))
    return out, lse, k.roll(1, 0), v.roll(1, 0)


def _step_by_sums(q, k, v, out, lse):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    both = (lse.exp() + scores.exp().sum(-1)).log()
    out = out * (lse - both).exp()[..., None] + (scores - both[..., None]).exp() @ v
    return out, both, k.roll(1, 0), v.roll(1, 0)


def _bytes_changed(place, factor):
    """Change one of the three numbers, as for H_kv heads in place of H."""

    def wrong(N, W, H, H_kv, d, size):
        found = [*_bytes_by_hand(N, W, H, H_kv, d, size)]
        found[place] = found[place] * factor(H, H_kv)
        return found

    return wrong


def _joined_from_the_first_one(m, ell, out):
    M, total, mixed = m[0], ell[0], out[0]
    for m_r, ell_r, out_r in zip(m[1:], ell[1:], out[1:], strict=True):
        top = torch.maximum(M, m_r)
        a, b = (M - top).exp(), (m_r - top).exp()
        M, total = top, a * total + b * ell_r
        mixed = a[:, None] * mixed + b[:, None] * out_r
    return mixed / total[:, None]


def _joined_from_zero(m, ell, out):
    shrink = (m - torch.stack([*m, torch.zeros_like(m[0])]).amax(0)).exp()
    return torch.einsum("wh,whd->hd", shrink, out) / (shrink * ell).sum(0)[:, None]


def _every_third_receives_first(rank, ranks):
    calls = [("send", (rank + 1) % ranks), ("recv", (rank - 1) % ranks)]
    return calls[::-1] if rank % 3 == 1 else calls


def _half_send_first(rank, ranks):
    calls = [("send", (rank + 1) % ranks), ("recv", (rank - 1) % ranks)]
    return calls if rank < ranks // 2 else calls[::-1]


def _pairs_send_first(rank, ranks):
    calls = [("send", (rank + 1) % ranks), ("recv", (rank - 1) % ranks)]
    return calls if rank // 2 % 2 == 0 else calls[::-1]


def _calls_of_the_batch(rank, ranks):
    return [("isend", (rank + 1) % ranks), ("irecv", (rank - 1) % ranks)]


def _calls_of_a_chain(rank, ranks):
    calls = [("send", (rank + 1) % ranks), ("recv", (rank - 1) % ranks)]
    return calls if rank else calls[::-1]


def _calls_forwards_and_back(rank, ranks):
    return [("send", (rank + 1) % ranks), ("recv", (rank + 1) % ranks)]


def _dealt_as_cards(lengths, ranks):
    return torch.arange(sum(lengths)).reshape(-1, ranks).T


def _dealt_there_and_back(lengths, ranks):
    rows = torch.arange(sum(lengths)).reshape(-1, ranks)
    return torch.stack([row.flip(0) if i % 2 else row for i, row in enumerate(rows)], dim=1)


def _dealt_by_cost_in_pieces(lengths, ranks):
    cost = torch.cat([torch.arange(length) for length in lengths])
    return cost.argsort(descending=True).reshape(ranks, -1)


def _dealt_by_length(lengths, ranks):
    cost = torch.cat([torch.full((length,), length) for length in lengths])
    rows = cost.sort(descending=True, stable=True).indices.reshape(-1, ranks)
    return torch.stack([row.flip(0) if i % 2 else row for i, row in enumerate(rows)], dim=1)


def _dealt_by_document(lengths, ranks):
    held, work, begin = [[] for _ in range(ranks)], [0] * ranks, 0
    for length in lengths:
        poorest = work.index(min(work))
        held[poorest] += range(begin, begin + length)
        work[poorest] += length * (length + 1) // 2
        begin += length
    return held


WRONG = [
    ("seen_by", "forwards", lambda r, W, hop: torch.tensor([(r + s * hop) % W for s in range(W)])),
    ("seen_by", "sorted", lambda r, W, hop: _seen_by_list(r, W, hop).sort().values),
    ("seen_by", None, lambda r, W, hop: torch.zeros(W, dtype=torch.long)),
    ("seen_by", None, lambda r, W, hop: [str(seen) for seen in _seen_by_list(r, W, hop).tolist()]),
    ("seen_by", "sign of the hop lost",
     lambda r, W, hop: [(r - abs(hop) * s) % W for s in range(W)]),
    ("seen_by", "own block twice",
     lambda r, W, hop: [(r - hop * s) % W for s in range(W + 1)]),
    ("seen_by", "hop taken once", lambda r, W, hop: [(r - hop - s) % W for s in range(W)]),
    ("seen_by", "last first", lambda r, W, hop: _seen_by_plain_list(r, W, hop)[::-1]),
    ("seen_by", "sign kept", lambda r, W, hop: (r - hop * torch.arange(W)).fmod(W)),
    ("ring_step", "wrong gradients", _step_detached),
    ("ring_step", "values alone passed on", _step_passing(lambda k, v: (k, v.roll(1, 0)))),
    ("ring_step", "single numbers moved", _step_passing(lambda k, v: (k.roll(1), v.roll(1)))),
    ("ring_step", "logarithm of bare sums",
     _step_by_hand(lse_of=lambda scores, dim: scores.exp().sum(dim).log())),
    ("ring_step", "lse not scaled", lambda q, k, v, out, lse: (
        *merge(out, lse, attention(q, k, v)[0], (q @ k.mT).logsumexp(-1)),
        k.roll(1, 0), v.roll(1, 0))),
    ("ring_step", "causal", _step_seeing_the_past),
    ("ring_step", "sum of bare exponentials", _step_by_sums),
    ("ring_step", "passed back", _step_backwards),
    ("ring_step", "changes its input", _step_in_place),
    ("ring_step", "divided by d_k", _step_by_hand(lambda q, v: q.shape[-1])),
    ("ring_step", "divided by √d_v", _step_by_hand(lambda q, v: v.shape[-1] ** 0.5)),
    ("ring_step", "largest score for lse", _step_by_hand(lse_of=torch.amax)),
    ("ring_step", "logarithm left out",
     _step_by_hand(lse_of=lambda scores, dim: scores.exp().sum(dim))),
    ("ring_step", None, lambda q, k, v, out, lse: (out, lse)),
    ("back_in_order", "rank after rank", lambda parts: parts.reshape(-1, parts.shape[-1])),
    ("back_in_order", "late ones not turned round",
     lambda parts: torch.cat([*parts[:, : parts.shape[1] // 2], *parts[:, parts.shape[1] // 2 :]])),
    ("back_in_order", "places not turned round",
     lambda parts: parts.flatten(0, 1)[torch.cat(places(parts[..., 0].numel(), len(parts), True))]),
    ("back_in_order", "ranks in turns",
     lambda parts: parts.transpose(0, 1).reshape(-1, parts.shape[-1])),
    ("back_in_order", "text backwards", lambda parts: _back_by_loop(parts).flip(0)),
    ("tile_kinds", "cut counts as full",
     lambda q, k, size: 2 * (_kinds_by_mask(q, k, size) > 0).int()),
    ("tile_kinds", "the past forbidden", lambda q, k, size: _kinds_by_mask(-q, -k, size)),
    ("tile_kinds", "itself not seen", lambda q, k, size: _kinds_by_mask(q - 1, k, size)),
    ("tile_kinds", "sorted first",
     lambda q, k, size: _kinds_by_mask(q.sort().values, k.sort().values, size)),
    ("tile_kinds", None, lambda q, k, size: _kinds_by_mask(q, k, 1)),
    ("tile_kinds", "swapped", lambda q, k, size: _kinds_by_mask(k, q, size)),
    ("tile_kinds", "the mask", lambda q, k, size: (q[:, None] >= k) * 1),
    ("tile_kinds", "earliest with earliest",
     lambda q, k, size: [[2 if a.min() >= b.max() else int(a.min() >= b.min())
                          for b in k.split(size)] for a in q.split(size)]),
    ("tile_kinds", "all keys past",
     lambda q, k, size: [[2 if a.min() >= b.max() else int(a.max() >= b.max())
                          for b in k.split(size)] for a in q.split(size)]),
    ("bytes_sent", "numbers, not bytes", lambda *given: _bytes_by_hand(*given[:-1], 1)),
    ("bytes_sent", "as many heads of keys",
     lambda N, W, H, H_kv, d, size: _bytes_by_hand(N, W, H, H, d, size)),
    ("bytes_sent", "H_kv by heads", _bytes_changed(0, lambda H, H_kv: H_kv / H)),
    ("bytes_sent", "H_kv in the exchange",
     _bytes_changed(1, lambda H, H_kv: 2 * H_kv / (H + H_kv))),
    ("bytes_sent", "half by heads", _bytes_changed(0, lambda H, H_kv: 1 / 2)),
    ("bytes_sent", "exchange forward only", _bytes_changed(1, lambda H, H_kv: 1 / 2)),
    ("bytes_sent", "always four bytes", lambda *given: _bytes_by_hand(*given[:-1], 4)),
    ("bytes_sent", "forward only", lambda N, W, H, H_kv, d, size: (
        2 * (W - 1) * N * H * d * size // W, 2 * (W - 1) * N // W * (H + H_kv) * d * size // W,
        2 * (W - 1) * N // W * H_kv * d * size)),
    ("bytes_sent", "all ranks", lambda N, W, *given: [
        W * each for each in _bytes_by_hand(N, W, *given)]),
    ("bytes_sent", "output of H_kv heads",
     _bytes_changed(1, lambda H, H_kv: (H + 3 * H_kv) / (2 * H + 2 * H_kv))),
    ("bytes_sent", "keys come home backward", lambda N, W, H, H_kv, d, size: (
        *_bytes_by_hand(N, W, H, H_kv, d, size)[:2], (6 * W - 2) * (N // W) * H_kv * d * size)),
    ("bytes_sent", "three all-reduces", _bytes_changed(0, lambda H, H_kv: 3 / 2)),
    ("bytes_sent", "another order", lambda *given: _bytes_by_hand(*given)[::-1]),
    ("join_ranks", "plain mean",
     lambda m, ell, out: torch.where(ell[..., None] > 0, out / ell[..., None], 0).mean(0)),
    ("join_ranks", "not divided",
     lambda m, ell, out: ((m - m.amax(0)).exp()[..., None] * out).sum(0)),
    ("join_ranks", "first ranks empty", _joined_from_the_first_one),
    ("join_ranks", "sign of the shift", lambda m, ell, out: _joined_by_einsum(-m, ell, out)),
    ("join_ranks", "O counted as an output",
     lambda m, ell, out: ((m + ell.log()).softmax(0)[..., None] * out).sum(0)),
    ("join_ranks", "−∞ made 0",
     lambda m, ell, out: _joined_by_einsum(m.where(ell > 0, torch.zeros_like(m)), ell, out)),
    ("join_ranks", "maximum from 0", _joined_from_zero),
    ("join_ranks", None, lambda m, ell, out: out[0]),
    ("order_of_calls", "one receives first", _calls_of_a_chain),
    ("order_of_calls", "one after another", _every_third_receives_first),
    ("order_of_calls", "one after another", _half_send_first),
    ("order_of_calls", "stands still", _pairs_send_first),
    ("order_of_calls", "another name", _calls_of_the_batch),
    ("order_of_calls", "wrong neighbour", _calls_forwards_and_back),
    ("order_of_calls", "by name only", lambda rank, ranks: "send"),
    ("deal", "unbalanced", _dealt_as_cards),
    ("deal", "by length of the document", _dealt_by_length),
    ("deal", "over the places", _dealt_there_and_back),
    ("deal", "unbalanced", _dealt_by_cost_in_pieces),
    ("deal", "uneven", _dealt_by_document),
    ("deal", "columns", lambda lengths, ranks: _dealt_to_the_poorest(lengths, ranks).T),
    ("deal", "one token twice", lambda lengths, ranks: _dealt_to_the_poorest(lengths, ranks) * 0),
]  # fmt: skip
