"""Lesson 06's exercises: tiles forward and backward, what they cost, and one call of SDPA."""

import torch
import torch.nn.functional as F

from course_utils.attention import attention, causal_mask, merge, tiled_attention
from course_utils.checks.compare import difference
from course_utils.checks.engine import Complaint, Exercise, call_with_clones
from course_utils.checks.probes import Shapes
from course_utils.tiled import blocks

INF = torch.inf


def _normal(seed, *shape, dtype=torch.float64):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=rng, dtype=dtype)


# 6.1 tile_update


def _states():
    def state(seed, *rows, columns=4, d_v=2, shift=0.0, m=None, dtype=torch.float64):
        scores = _normal(seed, *rows, columns, dtype=dtype) + shift
        v = _normal(seed + 1, *rows[:-1], columns, d_v, dtype=dtype)
        if m is None:  # before the first tile
            start = torch.full(rows, -INF, dtype=dtype)
            return start, torch.zeros(rows, dtype=dtype), v.new_zeros(*rows, d_v), scores, v
        ell = _normal(seed + 2, *rows, dtype=dtype).abs() + 1
        return torch.full(rows, m, dtype=dtype), ell, _normal(seed + 3, *rows, d_v), scores, v

    blind = list(state(40, 3))
    blind[3][1] = -INF  # the first tile offers query 1 nothing
    late = list(state(45, 3, m=0.5))
    late[3][1] = -INF  # this tile offers query 1 nothing, an earlier one did
    return [
        state(10, 3, m=-1.0, d_v=5),  # the maximum grows
        state(15, 3, m=6.0),  # the maximum stays
        state(20, 2, 3, 5, columns=2, m=0.0, d_v=4),
        state(25, 3, shift=-50.0, m=-60.0),  # every score is negative
        state(30, 3, shift=1000.0, m=998.0),
        state(35, 3, columns=6),
        tuple(blind),
        tuple(late),
        state(50, 4, columns=3, m=0.0, dtype=torch.float32),
    ]


def tile_update(m, ell, out, scores, v):
    m_new = torch.maximum(m, scores.amax(dim=-1))
    base = m_new.masked_fill(m_new == -INF, 0)
    p = (scores - base[..., None]).exp()
    shrink = (m - base).exp()
    return m_new, ell * shrink + p.sum(dim=-1), out * shrink[..., None] + p @ v


update = Exercise("6.1", tile_update, _states, names="B_q|B_q|B_q d_v")


def _updated(m, ell, out, scores, v, m_new=None, shrink_ell=None, shrink_out=None, p=None):
    """Return tile_update's results with a part of the calculation replaced."""
    m_new = torch.maximum(m, scores.amax(dim=-1)) if m_new is None else m_new
    base = m_new.masked_fill(m_new == -INF, 0)
    p = (scores - base[..., None]).exp() if p is None else p
    shrink = (m - base).exp()
    shrink_ell = shrink if shrink_ell is None else shrink_ell
    shrink_out = shrink if shrink_out is None else shrink_out
    return m_new, ell * shrink_ell + p.sum(dim=-1), out * shrink_out[..., None] + p @ v


@update.mistake(
    "O is not rescaled: it was measured from the old maximum, as ℓ was: × e^(m − m_new)"
)
def accumulator_not_rescaled(m, ell, out, scores, v):
    return _updated(m, ell, out, scores, v, shrink_out=torch.ones_like(ell))


@update.mistake(
    "ℓ is not rescaled: it was measured from the old maximum, as O was: × e^(m − m_new)"
)
def sum_not_rescaled(m, ell, out, scores, v):
    return _updated(m, ell, out, scores, v, shrink_ell=torch.ones_like(ell))


@update.mistake(
    "neither ℓ nor O is rescaled: what was measured from the old maximum has to shrink by "
    "e^(m − m_new)"
)
def nothing_rescaled(m, ell, out, scores, v):
    one = torch.ones_like(ell)
    return _updated(m, ell, out, scores, v, shrink_ell=one, shrink_out=one)


@update.mistake("right while some score is above 0: the maximum must be able to stay negative")
def maximum_at_least_zero(m, ell, out, scores, v):
    m_new = torch.maximum(m, scores.amax(dim=-1)).clamp(min=0)
    return _updated(m, ell, out, scores, v, m_new=m_new)


@update.mistake(
    "the maximum of this tile alone is taken: m is the largest score of *all* tiles so far"
)
def maximum_of_the_tile(m, ell, out, scores, v):
    return _updated(m, ell, out, scores, v, m_new=scores.amax(dim=-1))


@update.mistake("it is rescaled the wrong way round: e^(m − m_new), which is at most 1")
def rescaled_upwards(m, ell, out, scores, v):
    m_new = torch.maximum(m, scores.amax(dim=-1))
    grow = (m_new - m).exp()
    return _updated(m, ell, out, scores, v, shrink_ell=grow, shrink_out=grow)


@update.mistake("the new powers are measured from the old maximum: subtract the new one")
def powers_from_the_old_maximum(m, ell, out, scores, v):
    return _updated(m, ell, out, scores, v, p=(scores - m[..., None]).exp())


@update.mistake(
    "the new powers are measured from this tile's own maximum: subtract the new m, of all tiles"
)
def powers_from_the_tiles_maximum(m, ell, out, scores, v):
    top = scores.amax(dim=-1, keepdim=True)
    return _updated(m, ell, out, scores, v, p=(scores - top.masked_fill(top == -INF, 0)).exp())


@update.mistake("the new powers are e^score: subtract the new maximum first, 1000 would overflow")
def maximum_not_subtracted(m, ell, out, scores, v):
    return _updated(m, ell, out, scores, v, p=scores.exp())


@update.mistake("O is divided by ℓ already: keep the sum; divide once, after the last tile")
def divided_at_every_tile(m, ell, out, scores, v):
    m_new, ell, out = tile_update(m, ell, out, scores, v)
    return m_new, ell, out / ell.masked_fill(ell == 0, 1)[..., None]


@update.mistake(
    "the tile gets a softmax of its own, which divides by this tile's sum: use e^(score − m_new), "
    "and divide once, after the last tile"
)
def softmax_within_the_tile(m, ell, out, scores, v):
    m_new, ell, _ = tile_update(m, ell, out, scores, v)
    shrink = (m - m_new).exp()
    return m_new, ell, out * shrink[..., None] + scores.softmax(dim=-1) @ v


@update.mistake("one maximum is taken for all queries; each has its own: the largest along dim −1")
def tile_maximum_for_all(m, ell, out, scores, v):
    return _updated(m, ell, out, scores, v, m_new=torch.maximum(m, scores.max()))


@update.mistake(
    "NaN where a query has met nothing it may see: m is still −inf there, and −inf − −inf is NaN; "
    "subtract 0 in that case"
)
def nan_for_a_blind_query(m, ell, out, scores, v):
    m_new = torch.maximum(m, scores.amax(dim=-1))
    p, shrink = (scores - m_new[..., None]).exp(), (m - m_new).exp()
    return m_new, ell * shrink + p.sum(dim=-1), out * shrink[..., None] + p @ v


@update.mistake(
    "right, but for a query that has met nothing it may see: with -1e9 in place of −∞ its powers "
    "are e^0 = 1; keep −∞, and subtract 0 in that case"
)
def finite_in_place_of_infinity(m, ell, out, scores, v):
    return tile_update(m.clamp(min=-1e9), ell, out, scores.clamp(min=-1e9), v)


# 6.2 flash_forward


def _in_tiles(answer, q, k, v, block_q, block_k):
    """Call an answer; complain if it is right but makes a tensor as large as the whole matrix."""
    with Shapes() as shapes:
        results = call_with_clones(answer, q, k, v, block_q, block_k)
    pairs = q.shape[:-1].numel() * k.shape[-2]
    inputs = max(q.numel(), k.numel(), v.numel())
    tile = q.shape[:-2].numel() * block_q * block_k
    largest = max((shape.numel() for shape in shapes.results + shapes.in_sdpa), default=0)
    if largest >= pairs > max(inputs, tile):
        if difference(results[0], tiled_attention(q, k, v)) is None:
            if q.shape[-2] <= block_q:
                hint = "right, but a block of queries meets all keys at once: cut the keys as well"
                raise Complaint("keys not cut", hint)
            hint = "right, but it makes all L × S scores: only one tile may exist at a time"
            raise Complaint("makes the whole matrix", hint)
    return results


def _tilings():
    def case(seed, L, S, d_k, d_v, *tile, batch=(), size=1.0, dtype=torch.float64):
        q, k = _normal(seed, *batch, L, d_k, dtype=dtype), _normal(seed + 1, *batch, S, d_k)
        return size * q, k.to(dtype), _normal(seed + 2, *batch, S, d_v, dtype=dtype), *tile

    return [
        case(60, 6, 8, 3, 2, 3, 4),
        case(63, 20, 24, 3, 2, 5, 8),
        case(66, 11, 13, 4, 3, 4, 5),  # tails on both sides
        case(69, 7, 9, 2, 5, 2, 4, batch=(2, 3)),
        case(72, 9, 10, 4, 3, 3, 4, size=2000.0),  # e^score overflows in float64 too
        case(75, 5, 6, 3, 4, 16, 16),  # one tile
        case(78, 8, 12, 3, 2, 4, 5, dtype=torch.float32),
        case(180, 4, 40, 3, 2, 4, 5),  # one block of queries, many of keys
    ]


def flash_forward(q, k, v, block_q, block_k):
    return tiled_attention(q, k, v, block_q=block_q, block_k=block_k)


forward = Exercise("6.2", flash_forward, _tilings, names="L d_v|L", run=_in_tiles)


def _tiled(q, k, v, block_q, block_k, scores_of=None, step=None, finish=None):
    """Go over all tiles with a part of the loop replaced; plain if none is."""
    step = tile_update if step is None else step
    outs, lses = [], []
    for rows in blocks(q.shape[-2], block_q):
        ell = q.new_zeros(q[..., rows, 0].shape)
        m, out = torch.full_like(ell, -INF), v.new_zeros(*ell.shape, v.shape[-1])
        for columns in blocks(k.shape[-2], block_k):
            scores = q[..., rows, :] @ k[..., columns, :].mT / q.shape[-1] ** 0.5
            scores = scores if scores_of is None else scores_of(scores, rows, columns)
            m, ell, out = step(m, ell, out, scores, v[..., columns, :])
        one = (out / ell[..., None], m + ell.log()) if finish is None else finish(m, ell, out)
        outs.append(one[0])
        lses.append(one[1])
    return torch.cat(outs, dim=-2), torch.cat(lses, dim=-1)


@forward.mistake("O is not divided by ℓ: after the last tile each row still has to be")
def never_divided(q, k, v, block_q, block_k):
    return _tiled(q, k, v, block_q, block_k, finish=lambda m, ell, out: (out, m + ell.log()))


@forward.mistake("O is divided by ℓ after every tile: divide once, after the last")
def divided_in_the_loop(q, k, v, block_q, block_k):
    finish = lambda m, ell, out: (out, m + ell.log())  # noqa: E731
    return _tiled(q, k, v, block_q, block_k, step=divided_at_every_tile, finish=finish)


@forward.mistake("the scores are not divided by √d_k")
def tiles_not_scaled(q, k, v, block_q, block_k):
    return flash_forward(q * q.shape[-1] ** 0.5, k, v, block_q, block_k)


@forward.mistake("the log-sum-exp is m + log ℓ: m is missing, and ℓ is measured from it")
def lse_without_m(q, k, v, block_q, block_k):
    finish = lambda m, ell, out: (out / ell[..., None], ell.log())  # noqa: E731
    return _tiled(q, k, v, block_q, block_k, finish=finish)


@forward.mistake("the log-sum-exp is m + log ℓ, and ℓ was added without its logarithm")
def lse_without_log(q, k, v, block_q, block_k):
    finish = lambda m, ell, out: (out / ell[..., None], m + ell)  # noqa: E731
    return _tiled(q, k, v, block_q, block_k, finish=finish)


@forward.mistake("the keys left over when S is no multiple of block_k are dropped")
def last_keys_dropped(q, k, v, block_q, block_k):
    S = max(k.shape[-2] // block_k * block_k, min(block_k, k.shape[-2]))
    return flash_forward(q, k[..., :S, :], v[..., :S, :], block_q, block_k)


@forward.mistake("the queries left over when L is no multiple of block_q are dropped")
def last_queries_dropped(q, k, v, block_q, block_k):
    L = q.shape[-2] // block_q * block_q
    return flash_forward(q[..., :L, :], k, v, block_q, block_k)


@forward.mistake("the queries left over when L is no multiple of block_q keep their zeros")
def last_queries_left_zero(q, k, v, block_q, block_k):
    output, lse = flash_forward(q, k, v, block_q, block_k)
    L = q.shape[-2] // block_q * block_q
    output[..., L:, :], lse[..., L:] = 0, 0
    return output, lse


@forward.mistake("O or ℓ is not rescaled when a tile brings a larger maximum: that is 6.1's shrink")
def loop_without_rescaling(q, k, v, block_q, block_k):
    return _tiled(q, k, v, block_q, block_k, step=nothing_rescaled)


@forward.mistake("each tile gets a softmax of its own and they are added: use m and ℓ of all tiles")
def softmax_in_each_tile(q, k, v, block_q, block_k):
    def step(m, ell, out, scores, v):
        return *tile_update(m, ell, out, scores, v)[:2], out + scores.softmax(dim=-1) @ v

    finish = lambda m, ell, out: (out, m + ell.log())  # noqa: E731
    return _tiled(q, k, v, block_q, block_k, step=step, finish=finish)


@forward.mistake(
    "e^score overflows where scores are large: subtract the largest so far, m, and rescale when it "
    "grows"
)
def tiles_without_maximum(q, k, v, block_q, block_k):
    def step(m, ell, out, scores, v):
        p = scores.exp()
        return torch.zeros_like(m), ell + p.sum(dim=-1), out + p @ v

    return _tiled(q, k, v, block_q, block_k, step=step)


@forward.mistake(
    "m, ℓ and O are carried on from one block of queries to the next; each block begins anew, with "
    "−∞, 0 and 0"
)
def state_carried_on(q, k, v, block_q, block_k):
    ell = q.new_zeros(*q.shape[:-2], block_q)
    m, out = torch.full_like(ell, -INF), v.new_zeros(*ell.shape, v.shape[-1])
    outs, lses = [], []
    for q_i in q.split(block_q, dim=-2):
        for k_j, v_j in zip(k.split(block_k, dim=-2), v.split(block_k, dim=-2), strict=True):
            m, ell, out = tile_update(m, ell, out, q_i @ k_j.mT / q.shape[-1] ** 0.5, v_j)
        outs.append(out / ell[..., None])
        lses.append(m + ell.log())
    return torch.cat(outs, dim=-2), torch.cat(lses, dim=-1)


@forward.mistake(
    "the tiles' outputs are averaged; a tile with larger scores must count more: use m and ℓ"
)
def tiles_averaged(q, k, v, block_q, block_k):
    outs, _ = _each_part(q, k, v, block_k)
    return outs.mean(dim=0), flash_forward(q, k, v, block_q, block_k)[1]


@forward.mistake(
    "the scores are divided by √d_v; the width of queries and keys, d_k, is what counts"
)
def scaled_by_the_width_of_values(q, k, v, block_q, block_k):
    return flash_forward(q * (q.shape[-1] / v.shape[-1]) ** 0.5, k, v, block_q, block_k)


@forward.mistake("O is right, but only O is returned: the log-sum-exp belongs to it")
def output_without_lse(q, k, v, block_q, block_k):
    return flash_forward(q, k, v, block_q, block_k)[0]


# 6.3 tiles_to_visit


def tiles_to_visit(L, block_q, block_k):
    result = []
    for rows in blocks(L, block_q):
        columns = blocks(rows.stop, block_k)
        whole = sum(c.stop - 1 <= rows.start for c in blocks(L, block_k))
        result.append([whole, len(columns)])
    return torch.tensor(result)


_SIZES = [(8, 2, 2), (12, 4, 3), (12, 3, 4), (12, 6, 2), (13, 4, 5), (7, 16, 16), (10, 2, 5)]
_SIZES += [(9, 4, 3), (9, 2, 4)]  # a short last block shows in the visited only, in the whole only
visit = Exercise("6.3", tiles_to_visit, lambda: _SIZES, names="blocks 2")


def _visits(L, block_q, block_k, whole=None, visited=None):
    """Return tiles_to_visit with one column made by a function of (number, rows)."""
    result = tiles_to_visit(L, block_q, block_k)
    for column, count in enumerate((whole, visited)):
        if count is not None:
            each = [count(number, rows) for number, rows in enumerate(blocks(L, block_q))]
            result[:, column] = torch.tensor(each)
    return result


@visit.mistake(
    "block number i is taken to see i + 1 blocks: that holds only if block_q = block_k; count by "
    "where the blocks lie"
)
def skipped_by_number(L, block_q, block_k):
    return _visits(L, block_q, block_k, lambda i, rows: i, lambda i, rows: i + 1)


@visit.mistake("all blocks of keys are visited: those past a block's last query hold nothing")
def nothing_skipped(L, block_q, block_k):
    return _visits(L, block_q, block_k, visited=lambda i, rows: len(blocks(L, block_k)))


@visit.mistake("rounded down: a block that only some of the queries see must be visited as well")
def visits_rounded_down(L, block_q, block_k):
    return _visits(L, block_q, block_k, visited=lambda i, rows: rows.stop // block_k)


@visit.mistake("one too many: a block that begins at the next query holds nothing for this one")
def one_block_too_many(L, block_q, block_k):
    most = len(blocks(L, block_k))
    return _visits(L, block_q, block_k, visited=lambda i, rows: min(rows.stop // block_k + 1, most))


@visit.mistake(
    "a tile needs no mask only if the block's *first* query sees all of it; the last one is asked"
)
def whole_by_the_last_query(L, block_q, block_k):
    return _visits(
        L, block_q, block_k, lambda i, rows: sum(c.stop <= rows.stop for c in blocks(L, block_k))
    )


@visit.mistake(
    "one too few need no mask: the first query sees its own key too, so a block may end with it"
)
def own_key_forgotten(L, block_q, block_k):
    return _visits(
        L, block_q, block_k, lambda i, rows: sum(c.stop <= rows.start for c in blocks(L, block_k))
    )


@visit.mistake(
    "a query sees its own key too: that counts for both numbers, keys up to i, not i - 1"
)
def own_key_not_seen(L, block_q, block_k):
    whole = own_key_forgotten(L, block_q, block_k)[:, 0]
    seen = lambda i, rows: len(blocks(rows.stop - 1, block_k))  # noqa: E731
    return torch.stack([whole, _visits(L, block_q, block_k, visited=seen)[:, 1]], dim=1)


@visit.mistake(
    "a short last block of keys is whole as soon as its own last key is seen: it ends at L, not at "
    "a multiple of block_k"
)
def short_last_keys_missed(L, block_q, block_k):
    return _visits(L, block_q, block_k, lambda i, rows: (rows.start + 1) // block_k)


@visit.mistake("the last block of queries may be shorter: it ends at L, and visits no keys past L")
def visits_past_the_end(L, block_q, block_k):
    past = lambda i, rows: -(-(rows.start + block_q) // block_k)  # noqa: E731
    return _visits(L, block_q, block_k, visited=past)


@visit.mistake("right but for the last blocks: they may be shorter, and end at L")
def last_blocks_taken_as_full(L, block_q, block_k):
    whole = short_last_keys_missed(L, block_q, block_k)[:, 0]
    return torch.stack([whole, visits_past_the_end(L, block_q, block_k)[:, 1]], dim=1)


@visit.mistake("the first number is of the tiles that need *no* mask, not of those that need one")
def masked_in_front(L, block_q, block_k):
    whole, visited = tiles_to_visit(L, block_q, block_k).unbind(dim=1)
    return torch.stack([visited - whole, visited], dim=1)


@visit.mistake("the second number is of all tiles visited, not only of those that need a mask")
def only_the_masked(L, block_q, block_k):
    whole, visited = tiles_to_visit(L, block_q, block_k).unbind(dim=1)
    return torch.stack([whole, visited - whole], dim=1)


@visit.mistake("the two are swapped: first those without a mask, then those visited")
def visits_swapped(L, block_q, block_k):
    return tiles_to_visit(L, block_q, block_k).flip(-1)


# 6.4 flash_causal


def _without_the_future(answer, q, k, v, block_q, block_k):
    """Call an answer; complain if it is right but reads tiles that causality empties."""
    results = call_with_clones(answer, q, k, v, block_q, block_k)
    first = min(block_q, q.shape[-2])  # queries in the first block
    seen = first + k.shape[-2] - q.shape[-2]  # keys that these see
    seen = -(-seen // block_k) * block_k  # in whole tiles
    if difference(results[0], flash_causal(q, k, v, block_q, block_k)) is None:
        poisoned = v.clone()
        poisoned[..., seen:, :] = torch.nan
        if answer(q.clone(), k.clone(), poisoned, block_q, block_k)[..., :first, :].isnan().any():
            hint = "right, but tiles in the future of all their queries are read too: skip them"
            raise Complaint("reads the future", hint)
    return results


def _causal_tilings():
    sizes = [
        (8, 8, 2, 2),
        (12, 12, 4, 3),
        (11, 11, 3, 4),
        (5, 13, 2, 3),
        (8, 10, 4, 3),
        (6, 6, 8, 8),
    ]
    return [
        (_normal(80, L, 3), _normal(81, S, 3), _normal(82, S, 2), block_q, block_k)
        for L, S, block_q, block_k in sizes
    ] + [
        (_normal(83, 2, 3, 7, 4), _normal(84, 2, 3, 9, 4), _normal(85, 2, 3, 9, 5), 3, 2),
        (2000 * _normal(86, 5, 3), _normal(87, 8, 3), _normal(88, 8, 2), 2, 3),  # overflows
    ]


def flash_causal(q, k, v, block_q, block_k):
    plan = {"block_q": block_q, "block_k": block_k, "is_causal": True, "align": "lower_right"}
    return tiled_attention(q, k, v, **plan)[0]


causal = Exercise("6.4", flash_causal, _causal_tilings, names="L d_v", run=_without_the_future)


def _masked_tiles(q, k, v, block_q, block_k, allowed):
    """Return tiled attention in which ``allowed(rows, columns)`` is the mask of each tile."""

    def scores_of(scores, rows, columns):
        return scores.masked_fill(~allowed(rows, columns), -INF)

    finish = lambda m, ell, out: (out / ell.masked_fill(ell == 0, 1)[..., None], m)  # noqa: E731
    return _tiled(q, k, v, block_q, block_k, scores_of=scores_of, finish=finish)[0]


def _reading(q, k, v, block_q, block_k, read):
    """Return causal attention of which only the tiles with ``read(rows, columns)`` are read."""
    allowed_at = causal_mask(q.shape[-2], k.shape[-2])

    def allowed(rows, columns):
        return allowed_at[rows, columns] & read(rows, columns)

    return _masked_tiles(q, k, v, block_q, block_k, allowed)


def _size(part):
    return part.stop - part.start


def _tril_of_the_tile(rows, columns):
    return torch.ones(_size(rows), _size(columns)).tril() > 0


@causal.mistake(
    "the causal mask is made inside each tile as if it began at 0: count queries and keys from the "
    "beginning of the sequence"
)
def local_causal_indices(q, k, v, block_q, block_k):
    return _masked_tiles(q, k, v, block_q, block_k, _tril_of_the_tile)


@causal.mistake(
    "on the diagonal `tril` starts at the tile's own corner, and the diagonal meets few corners: "
    "compare each query's number with each key's"
)
def tril_from_the_corner(q, k, v, block_q, block_k):
    offset = k.shape[-2] - q.shape[-2]

    def allowed(rows, columns):
        if columns.stop <= rows.start + offset:  # before the diagonal
            return torch.tensor(True)
        return _tril_of_the_tile(rows, columns) & (columns.start < rows.stop + offset)

    return _masked_tiles(q, k, v, block_q, block_k, allowed)


@causal.mistake(
    "the right tiles are read, but in each `tril` starts at its own corner: queries count from the "
    "first query of all, keys from the first key"
)
def tril_in_each_visited_tile(q, k, v, block_q, block_k):
    offset = k.shape[-2] - q.shape[-2]

    def allowed(rows, columns):
        return _tril_of_the_tile(rows, columns) & (columns.start < rows.stop + offset)

    return _masked_tiles(q, k, v, block_q, block_k, allowed)


@causal.mistake(
    "tiles that the block's *first* query may not see are skipped; the last one sees further: skip "
    "what begins past that"
)
def skipped_by_the_first_query(q, k, v, block_q, block_k):
    offset = k.shape[-2] - q.shape[-2]
    read = lambda rows, columns: columns.start <= rows.start + offset  # noqa: E731
    return _reading(q, k, v, block_q, block_k, read)


@causal.mistake(
    "the mask is right, but where to stop forgets S − L: the queries are the last L tokens, and "
    "the tiles to skip begin that much later"
)
def skipped_without_the_offset(q, k, v, block_q, block_k):
    read = lambda rows, columns: columns.start < rows.start + block_q  # noqa: E731
    return _reading(q, k, v, block_q, block_k, read)


@causal.mistake("right, but for the scale: the scores are not divided by √d_k")
def causal_not_scaled(q, k, v, block_q, block_k):
    return flash_causal(q * q.shape[-1] ** 0.5, k, v, block_q, block_k)


@causal.mistake(
    "e^score overflows where scores are large: subtract the largest so far, as 6.1 does"
)
def causal_without_maximum(q, k, v, block_q, block_k):
    p = (q @ k.mT / q.shape[-1] ** 0.5).exp()
    p = p.masked_fill(~causal_mask(q.shape[-2], k.shape[-2]), 0)
    return p @ v / p.sum(dim=-1, keepdim=True)


@causal.mistake(
    "tiles are skipped by number, block of keys j > block of queries i: that holds only if both "
    "blocks have one size and L = S; compare where they lie"
)
def tiles_skipped_by_number(q, k, v, block_q, block_k):
    read = lambda rows, columns: columns.start // block_k <= rows.start // block_q  # noqa: E731
    return _reading(q, k, v, block_q, block_k, read)


@causal.mistake(
    "right for L = S; with more keys the first query is lined up with the first key: the queries "
    "are the last L tokens"
)
def lined_up_at_the_start(q, k, v, block_q, block_k):
    return tiled_attention(q, k, v, is_causal=True)[0]


@causal.mistake("nothing is masked: in tiles on the diagonal the future has to be set to −inf")
def diagonal_tiles_not_masked(q, k, v, block_q, block_k):
    return tiled_attention(q, k, v)[0]


@causal.mistake(
    "tiles past the diagonal are skipped, but those on it are not masked: there a query still sees "
    "keys after its own"
)
def only_skipped(q, k, v, block_q, block_k):
    offset = k.shape[-2] - q.shape[-2]

    def allowed(rows, columns):
        return torch.tensor(columns.start < rows.stop + offset)

    return _masked_tiles(q, k, v, block_q, block_k, allowed)


@causal.mistake("a query must see its own key too: forbid only j > i")
def own_key_masked(q, k, v, block_q, block_k):
    L, S = q.shape[-2], k.shape[-2]
    scores = q @ k.mT / q.shape[-1] ** 0.5
    scores = scores.masked_fill(torch.ones(L, S).tril(S - L - 1) == 0, -INF)
    return scores.softmax(dim=-1) @ v  # NaN for a query without any key, as 0 / 0 in tiles


@causal.mistake("one key too far: each query sees the very next token")
def next_key_allowed(q, k, v, block_q, block_k):
    L, S = q.shape[-2], k.shape[-2]
    return attention(q, k, v, torch.ones(L, S).tril(S - L + 1) > 0)[0]


@causal.mistake(
    "forbidden scores are set to 0; that is a score like any other: e^0 is 1. Set them to −inf"
)
def forbidden_scores_zero(q, k, v, block_q, block_k):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    scores = scores.masked_fill(~causal_mask(q.shape[-2], k.shape[-2]), 0)
    return scores.softmax(dim=-1) @ v


# 6.5 attend_in_parts


def _in_parts(answer, q, k, v, size):
    """Call an answer; complain if it is right but scores more than ``size`` keys at once."""
    with Shapes() as shapes:
        results = call_with_clones(answer, q, k, v, size)
    rows = {
        shape[-1] for shape in shapes.results + shapes.in_sdpa if shape[-2:-1] == q.shape[-2:-1]
    }
    # Rows of q and of outputs are no scores, nor is what holds one number for each part.
    rows -= {q.shape[-1], v.shape[-1], len(blocks(k.shape[-2], size))}
    if (
        max(rows, default=0) > size
        and difference(results[0], attend_in_parts(q, k, v, size)) is None
    ):
        hint = "right, but more than `size` keys are scored at once; it is the keys of a part"
        raise Complaint("parts too large", hint + ", not the number of parts")
    return results


def _caches():
    def case(seed, S, d_k, d_v, size, *batch, L=1, loud=1.0):
        q, k = loud * _normal(seed, *batch, L, d_k), _normal(seed + 1, *batch, S, d_k)
        return q, k, _normal(seed + 2, *batch, S, d_v), size

    return [
        case(90, 12, 4, 3, 4),
        case(93, 13, 3, 2, 5),  # a part is left over
        case(96, 10, 2, 3, 3, 2, 3, L=4),
        case(99, 7, 4, 2, 2, loud=2000.0),  # `chunk(2)` has parts of 4 and 3; e^score overflows
        case(102, 5, 3, 2, 9),  # one part
    ]


def attend_in_parts(q, k, v, size):
    return tiled_attention(q, k, v, block_k=size)[0]


parts = Exercise("6.5", attend_in_parts, _caches, names="L d_v", run=_in_parts)


def _each_part(q, k, v, size):
    """Return the outputs (parts, ..., L, d_v) and log-sum-exps (parts, ..., L)."""
    all_parts = [
        tiled_attention(q, k[..., part, :], v[..., part, :]) for part in blocks(k.shape[-2], size)
    ]
    return (torch.stack(each) for each in zip(*all_parts, strict=True))


@parts.mistake("the outputs are averaged; a part with larger scores must count more: use its lse")
def parts_averaged(q, k, v, size):
    outs, _ = _each_part(q, k, v, size)
    return outs.mean(dim=0)


@parts.mistake("the outputs are added; each is divided by its own sum already: use merge")
def parts_added(q, k, v, size):
    outs, _ = _each_part(q, k, v, size)
    return outs.sum(dim=0)


@parts.mistake("parts are weighted by how many keys they hold, not by Σ e^score: use their lse")
def parts_weighted_by_length(q, k, v, size):
    outs, _ = _each_part(q, k, v, size)
    counts = torch.tensor([float(_size(part)) for part in blocks(k.shape[-2], size)]).to(outs)
    return torch.tensordot(counts / counts.sum(), outs, dims=1)


@parts.mistake("the keys left over when S is no multiple of size are dropped")
def last_part_dropped(q, k, v, size):
    S = max(k.shape[-2] // size * size, min(size, k.shape[-2]))
    return attention(q, k[..., :S, :], v[..., :S, :])[0]


@parts.mistake(
    "the parts are weighted by their largest score; a part also counts for how many scores are "
    "near it: use the log-sum-exp"
)
def parts_weighted_by_maximum(q, k, v, size):
    outs, _ = _each_part(q, k, v, size)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    most = torch.stack([scores[..., part].amax(dim=-1) for part in blocks(k.shape[-2], size)])
    return (most.softmax(dim=0)[..., None] * outs).sum(dim=0)


@parts.mistake("the log-sum-exps themselves are the weights; they are logarithms: merge does it")
def lse_as_weights(q, k, v, size):
    outs, lses = _each_part(q, k, v, size)
    return ((lses / lses.sum(dim=0))[..., None] * outs).sum(dim=0)


@parts.mistake(
    "after the first merge the log-sum-exp is not carried on: merge returns the output *and* the "
    "lse of what was merged so far"
)
def lse_not_carried_on(q, k, v, size):
    outs, lses = _each_part(q, k, v, size)
    out = outs[0]
    for i in range(1, len(outs)):
        out, _ = merge(out, lses[i - 1], outs[i], lses[i])
    return out


@parts.mistake(
    "the log-sum-exp stays the first part's: after a merge go on with the one that merge returned"
)
def lse_of_the_first_part(q, k, v, size):
    outs, lses = _each_part(q, k, v, size)
    out = outs[0]
    for i in range(1, len(outs)):
        out, _ = merge(out, lses[0], outs[i], lses[i])
    return out


@parts.mistake("the log-sum-exp is of unscaled scores; those of the output were divided by √d_k")
def lse_of_unscaled_scores(q, k, v, size):
    outs, _ = _each_part(q, k, v, size)
    _, lses = _each_part(q * q.shape[-1] ** 0.5, k, v, size)
    return (lses.softmax(dim=0)[..., None] * outs).sum(dim=0)


@parts.mistake(
    "the merge begins from lse = 0, the log-sum-exp of one score of 0: with nothing seen yet it is "
    "−∞"
)
def merged_from_zero(q, k, v, size):
    outs, lses = _each_part(q, k, v, size)
    outs, lses = (torch.cat([torch.zeros_like(each[:1]), each]) for each in (outs, lses))
    return (lses.softmax(dim=0)[..., None] * outs).sum(dim=0)


@parts.mistake("right, but for the scale: the scores are not divided by √d_k")
def parts_not_scaled(q, k, v, size):
    return attend_in_parts(q * q.shape[-1] ** 0.5, k, v, size)


@parts.mistake(
    "e^score, or e^lse, overflows where scores are large: subtract the largest first, or use merge"
)
def parts_without_maximum(q, k, v, size):
    p = (q @ k.mT / q.shape[-1] ** 0.5).exp()
    return p @ v / p.sum(dim=-1, keepdim=True)


@parts.mistake("only one part is used: go over all of them")
def first_part_alone(q, k, v, size):
    return attention(q, k[..., :size, :], v[..., :size, :])[0]


# 6.6 bytes_moved


def _shapes_moved():
    return [(8, 8, 4, 2, 4), (12, 20, 4, 5, 2), (7, 9, 3, 4, 1), (30, 10, 8, 7, 2), (5, 6, 2, 9, 4)]


def bytes_moved(L, S, d, block_q, size):
    naive = (L * d + S * d + L * S) + 2 * L * S + (L * S + S * d + L * d)
    tiled = 2 * L * d + 2 * len(blocks(L, block_q)) * S * d
    return naive * size, tiled * size


traffic = Exercise("6.6", bytes_moved, _shapes_moved)


@traffic.mistake("those are numbers, not bytes: multiply by size")
def numbers_not_bytes(L, S, d, block_q, size):
    return bytes_moved(L, S, d, block_q, 1)


@traffic.mistake(
    "naive attention moves the matrix four times: scores written, read, weights written, read"
)
def matrix_moved_twice(L, S, d, block_q, size):
    naive, tiled = bytes_moved(L, S, d, block_q, size)
    return naive - 2 * L * S * size, tiled


@traffic.mistake("the tiled one reads K and V again for every block of queries, not only once")
def keys_read_once(L, S, d, block_q, size):
    return bytes_moved(L, S, d, block_q, size)[0], (2 * L * d + 2 * S * d) * size


@traffic.mistake("K and V are read for every *block* of queries, not for every query")
def keys_read_for_each_query(L, S, d, block_q, size):
    return bytes_moved(L, S, d, block_q, size)[0], (2 * L * d + 2 * L * S * d) * size


@traffic.mistake("the last block of queries may be shorter, but it is a block: round L / B_q up")
def blocks_rounded_down(L, S, d, block_q, size):
    naive, _ = bytes_moved(L, S, d, block_q, size)
    return naive, (2 * L * d + 2 * (L // block_q) * S * d) * size


@traffic.mistake("a part of a block was counted: the number of blocks is whole, L / B_q rounded up")
def blocks_not_rounded(L, S, d, block_q, size):
    naive, _ = bytes_moved(L, S, d, block_q, size)
    return naive, (2 * L * d + 2 * (L / block_q) * S * d) * size


@traffic.mistake("the output is written too, by both: L · d numbers")
def output_not_written(L, S, d, block_q, size):
    naive, tiled = bytes_moved(L, S, d, block_q, size)
    return naive - L * d * size, tiled - L * d * size


@traffic.mistake("only K or V is counted in the tiled one; both are read, S · d numbers each")
def only_keys_read(L, S, d, block_q, size):
    naive, _ = bytes_moved(L, S, d, block_q, size)
    return naive, (2 * L * d + len(blocks(L, block_q)) * S * d) * size


@traffic.mistake("the two are swapped: first naive attention's, then the tiled one's")
def costs_swapped(L, S, d, block_q, size):
    return bytes_moved(L, S, d, block_q, size)[::-1]


@traffic.mistake("the log-sum-exp is counted; it is to be left out here")
def lse_counted(L, S, d, block_q, size):
    naive, tiled = bytes_moved(L, S, d, block_q, size)
    return naive, tiled + L * size


@traffic.mistake(
    "the matrix is moved once more: softmax reads the scores and writes the weights, and the mix "
    "reads them again"
)
def matrix_moved_three_times(L, S, d, block_q, size):
    naive, tiled = bytes_moved(L, S, d, block_q, size)
    return naive - L * S * size, tiled


@traffic.mistake("those are bits: `size` is in bytes already")
def bits_moved(L, S, d, block_q, size):
    return bytes_moved(L, S, d, block_q, 8 * size)


# 6.7 held_at_once


def _shapes_held():
    return [(1, 1, 8, 8, 4, 4), (2, 3, 12, 20, 4, 2), (3, 2, 7, 9, 5, 4), (1, 8, 30, 10, 8, 2)]


def held_at_once(B, H, L, S, d, size):
    output = B * H * L * d * size
    return 2 * B * H * L * S * size + output, output + B * H * L * 4


held = Exercise("6.7", held_at_once, _shapes_held)


@held.mistake("naive attention holds two matrices at once, the scores and the weights")
def one_matrix(B, H, L, S, d, size):
    naive, flash = held_at_once(B, H, L, S, d, size)
    return naive - B * H * L * S * size, flash


@held.mistake("naive attention holds two matrices, not three: the scores and the weights")
def three_matrices(B, H, L, S, d, size):
    naive, flash = held_at_once(B, H, L, S, d, size)
    return naive + B * H * L * S * size, flash


@held.mistake("the two are swapped: first what naive attention holds, then what flash holds")
def memory_swapped(B, H, L, S, d, size):
    return held_at_once(B, H, L, S, d, size)[::-1]


@held.mistake("q, k and v are counted; asked is what is held besides them")
def inputs_counted(B, H, L, S, d, size):
    inputs = B * H * (L + 2 * S) * d * size
    return tuple(each + inputs for each in held_at_once(B, H, L, S, d, size))


@held.mistake("the heads are forgotten: each has a matrix and an output of its own")
def heads_forgotten(B, H, L, S, d, size):
    return held_at_once(B, 1, L, S, d, size)


@held.mistake("the batch is forgotten: each sequence has matrices and an output of its own")
def batch_forgotten(B, H, L, S, d, size):
    return held_at_once(1, H, L, S, d, size)


@held.mistake("those are numbers, not bytes: multiply by size (the lse takes 4 bytes in any case)")
def counted_not_weighed(B, H, L, S, d, size):
    return 2 * B * H * L * S + B * H * L * d, B * H * L * d + B * H * L


@held.mistake("the matrix is L × S, not L × L or S × S")
def square_matrix(B, H, L, S, d, size):
    flash = held_at_once(B, H, L, S, d, size)[1]
    return held_at_once(B, H, L, L, d, size)[0], flash


@held.mistake("the output is missing from naive attention's; it holds that as well")
def naive_without_output(B, H, L, S, d, size):
    naive, flash = held_at_once(B, H, L, S, d, size)
    return naive - B * H * L * d * size, flash


@held.mistake("the log-sum-exp is missing: 4 bytes (float32) for each query of each head")
def lse_forgotten(B, H, L, S, d, size):
    naive, flash = held_at_once(B, H, L, S, d, size)
    return naive, flash - B * H * L * 4


@held.mistake("the log-sum-exp is kept in float32, 4 bytes each, whatever the inputs are in")
def lse_in_the_dtype(B, H, L, S, d, size):
    naive, flash = held_at_once(B, H, L, S, d, size)
    return naive, flash + B * H * L * (size - 4)


# 6.8 as_sdpa


def _calls():
    def case(seed, B, Hq, Hkv, L, S, d_k, d_v, temperature):
        ignore = _normal(seed + 3, B, 1, L, S) > 0.3
        ignore[..., 0] = False  # every query sees something
        q, k = _normal(seed, B, Hq, L, d_k), _normal(seed + 1, B, Hkv, S, d_k)
        return q, k, _normal(seed + 2, B, Hkv, S, d_v), ignore, temperature

    return [
        case(110, 2, 4, 2, 3, 5, 4, 6, 2.0),
        case(114, 3, 6, 3, 5, 4, 9, 3, 0.5),
        case(118, 1, 4, 1, 2, 6, 4, 4, 1.0),
        case(122, 2, 3, 3, 4, 5, 2, 3, 3.0),
    ]


def _in_one_call(answer, *args):
    """Call an answer; complain if it is right but not one call of SDPA."""
    with Shapes() as shapes:
        results = call_with_clones(answer, *args)
    if len(shapes.in_sdpa) != 1 and difference(results[0], as_sdpa(*args)) is None:
        hint = "right, but not one call of F.scaled_dot_product_attention: let its arguments do it"
        raise Complaint("not one call", hint)
    return results


def as_sdpa(q, k, v, ignore, temperature):
    scale = q.shape[-1] ** -0.5 / temperature
    return F.scaled_dot_product_attention(q, k, v, attn_mask=~ignore, scale=scale, enable_gqa=True)


call = Exercise("6.8", as_sdpa, _calls, names="B Hq L d_v", run=_in_one_call)


@call.mistake("the mask is not turned round: True means ignore here, may attend in SDPA")
def ignore_not_inverted(q, k, v, ignore, temperature):
    return as_sdpa(q, k, v, ~ignore, temperature)


@call.mistake("`scale` replaces 1/√d_k, it does not come on top: give both factors")
def temperature_alone(q, k, v, ignore, temperature):
    return as_sdpa(q, k, v, ignore, temperature / q.shape[-1] ** 0.5)


@call.mistake("the temperature is not used: it divides the scores, so it belongs into `scale`")
def temperature_ignored(q, k, v, ignore, temperature):
    return as_sdpa(q, k, v, ignore, 1.0)


@call.mistake("the scores are multiplied by the temperature; they are divided by it")
def temperature_upside_down(q, k, v, ignore, temperature):
    return as_sdpa(q, k, v, ignore, 1 / temperature)


@call.mistake("`scale` multiplies the scores: 1/√d_k and 1/temperature, not √d_k and temperature")
def scale_upside_down(q, k, v, ignore, temperature):
    d_k = q.shape[-1]
    return as_sdpa(q, k, v, ignore, 1 / (d_k * temperature))


@call.mistake("the mask is not given: what is ignored must get no weight")
def mask_not_given(q, k, v, ignore, temperature):
    return as_sdpa(q, k, v, torch.zeros_like(ignore), temperature)


@call.mistake(
    "a mask of numbers is *added* to the scores; 0 and 1 forbid nothing: give a boolean one"
)
def mask_as_numbers(q, k, v, ignore, temperature):
    scale = q.shape[-1] ** -0.5 / temperature
    mask = (~ignore).to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=True)


@call.mistake(
    "query head h must use key head h // (Hq / Hkv); repeat puts them in the order 0 1 0 1: use "
    "enable_gqa, or repeat_interleave"
)
def heads_in_turn(q, k, v, ignore, temperature):
    times = q.shape[1] // k.shape[1]
    return as_sdpa(q, k.repeat(1, times, 1, 1), v.repeat(1, times, 1, 1), ignore, temperature)


@call.mistake(
    "k and v have fewer heads than q, and SDPA shares them only if told to: enable_gqa=True"
)
def heads_not_shared(q, k, v, ignore, temperature):
    scale = q.shape[-1] ** -0.5 / temperature
    return F.scaled_dot_product_attention(q, k, v, attn_mask=~ignore, scale=scale)


@call.mistake("scaled twice: without `scale=` SDPA divides by √d_k itself")
def scaled_twice(q, k, v, ignore, temperature):
    return as_sdpa(q / q.shape[-1] ** 0.5, k, v, ignore, temperature)


@call.mistake("the temperature stands under the root: it is √d_k · temperature")
def temperature_under_the_root(q, k, v, ignore, temperature):
    return as_sdpa(q, k, v, ignore, temperature**0.5)


@call.mistake("the output is divided by the temperature; the scores are, before the softmax")
def output_over_temperature(q, k, v, ignore, temperature):
    return as_sdpa(q, k, v, ignore, 1.0) / temperature


@call.mistake(
    "NaN: 0 · −inf is no number, so a mask must not be multiplied by −inf; SDPA takes a boolean one"
)
def mask_times_infinity(q, k, v, ignore, temperature):
    scale, mask = q.shape[-1] ** -0.5 / temperature, ignore.to(q.dtype) * -INF
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)


# 6.9 tile_gradients


def _backward_tiles():
    def case(seed, L, S, d_k, d_v, rows, columns, *batch, dtype=torch.float64):
        q, k = _normal(seed, *batch, L, d_k), _normal(seed + 1, *batch, S, d_k)
        v, d_out = _normal(seed + 2, *batch, S, d_v), _normal(seed + 3, *batch, L, d_v)
        out, lse = tiled_attention(q, k, v)
        delta = (d_out * out).sum(dim=-1)
        tile = (q[..., rows, :], k[..., columns, :], v[..., columns, :], d_out[..., rows, :])
        return (*(x.to(dtype) for x in (*tile, lse[..., rows], delta[..., rows])),)

    return [
        case(130, 6, 9, 4, 3, slice(0, 4), slice(3, 6)),
        case(134, 7, 8, 3, 5, slice(2, 7), slice(0, 4)),
        case(138, 5, 7, 2, 3, slice(1, 3), slice(4, 7), 2, 3),
        case(142, 4, 6, 9, 2, slice(0, 3), slice(0, 6), dtype=torch.float32),
    ]


def _gradients(q, k, v, d_out, lse, delta, p=None, minus=None, scale_q=None, scale_k=None):
    """Return tile_gradients' results with a part of the calculation replaced."""
    scale = q.shape[-1] ** -0.5
    p = (q @ k.mT * scale - lse[..., None]).exp() if p is None else p
    minus = delta[..., None] if minus is None else minus
    d_scores = p * (d_out @ v.mT - minus)
    scale_q, scale_k = (scale if each is None else each for each in (scale_q, scale_k))
    return d_scores @ k * scale_q, d_scores.mT @ q * scale_k, p.mT @ d_out


def tile_gradients(q, k, v, d_out, lse, delta):
    return _gradients(q, k, v, d_out, lse, delta)


gradients = Exercise("6.9", tile_gradients, _backward_tiles, names="B_q d_k|B_k d_k|B_k d_v")


@gradients.mistake(
    "the weights are a softmax over this tile alone; with the lse of the whole row they are "
    "e^(score − lse)"
)
def weights_of_the_tile_alone(q, k, v, d_out, lse, delta):
    p = (q @ k.mT * q.shape[-1] ** -0.5).softmax(dim=-1)
    return _gradients(q, k, v, d_out, lse, delta, p=p)


@gradients.mistake("delta is not subtracted: dS = P ∘ (dP − δ)")
def delta_missing(q, k, v, d_out, lse, delta):
    return _gradients(q, k, v, d_out, lse, delta, minus=0)


@gradients.mistake("delta is added: dS = P ∘ (dP − δ)")
def delta_added(q, k, v, d_out, lse, delta):
    return _gradients(q, k, v, d_out, lse, -delta)


@gradients.mistake(
    "δ is summed over this tile's keys; softmax's gradient sums over the whole row: use the given "
    "delta"
)
def delta_of_the_tile_alone(q, k, v, d_out, lse, delta):
    p = (q @ k.mT * q.shape[-1] ** -0.5 - lse[..., None]).exp()
    minus = (p * (d_out @ v.mT)).sum(dim=-1, keepdim=True)
    return _gradients(q, k, v, d_out, lse, delta, p=p, minus=minus)


@gradients.mistake(
    "dQ and dK lack 1/√d_k: the scores are q · k times it, so their gradients are too"
)
def gradients_not_scaled(q, k, v, d_out, lse, delta):
    return _gradients(q, k, v, d_out, lse, delta, scale_q=1, scale_k=1)


@gradients.mistake("dQ lacks the factor 1/√d_k that dK has")
def query_gradient_not_scaled(q, k, v, d_out, lse, delta):
    return _gradients(q, k, v, d_out, lse, delta, scale_q=1)


@gradients.mistake("dK lacks the factor 1/√d_k that dQ has")
def key_gradient_not_scaled(q, k, v, d_out, lse, delta):
    return _gradients(q, k, v, d_out, lse, delta, scale_k=1)


@gradients.mistake("the scores are not divided by √d_k before lse is subtracted")
def weights_not_scaled(q, k, v, d_out, lse, delta):
    return _gradients(q, k, v, d_out, lse, delta, p=(q @ k.mT - lse[..., None]).exp())


@gradients.mistake("the weights are e^score: lse is not subtracted, so they do not sum to 1")
def lse_not_subtracted(q, k, v, d_out, lse, delta):
    p = (q @ k.mT * q.shape[-1] ** -0.5).exp()
    return _gradients(q, k, v, d_out, lse, delta, p=p)


@gradients.mistake(
    "1/√d_k is nowhere: the lesson's tile_backward gets q with it, here q comes without; the "
    "scores, dQ and dK need it"
)
def scale_nowhere(q, k, v, d_out, lse, delta):
    p = (q @ k.mT - lse[..., None]).exp()
    return _gradients(q, k, v, d_out, lse, delta, p=p, scale_q=1, scale_k=1)


@gradients.mistake("dK has 1/√d_k twice: the q it is made of was scaled already")
def key_gradient_scaled_twice(q, k, v, d_out, lse, delta):
    return _gradients(q, k, v, d_out, lse, delta, scale_k=1 / q.shape[-1])


@gradients.mistake("P ∘ (dP − δ) needs its brackets: δ is subtracted before the product with P")
def delta_outside_the_brackets(q, k, v, d_out, lse, delta):
    p = (q @ k.mT * q.shape[-1] ** -0.5 - lse[..., None]).exp()
    return _gradients(q, k, v, d_out, lse, delta, p=p, minus=delta[..., None] / p)


@gradients.mistake("dS is dP − δ there: P is missing, dS = P ∘ (dP − δ)")
def weights_missing(q, k, v, d_out, lse, delta):
    d_scores = (d_out @ v.mT - delta[..., None]) * q.shape[-1] ** -0.5
    return d_scores @ k, d_scores.mT @ q, tile_gradients(q, k, v, d_out, lse, delta)[2]


@gradients.mistake("dV = Pᵀ dO: values are mixed by the weights, so by P and not by dS")
def values_by_score_gradients(q, k, v, d_out, lse, delta):
    p = (q @ k.mT * q.shape[-1] ** -0.5 - lse[..., None]).exp()
    d_scores = p * (d_out @ v.mT - delta[..., None])
    return *tile_gradients(q, k, v, d_out, lse, delta)[:2], d_scores.mT @ d_out


@gradients.mistake("dQ and dK are exchanged: dS k has a row for each query, dSᵀ q one for each key")
def query_and_key_gradients_exchanged(q, k, v, d_out, lse, delta):
    d_q, d_k, d_v = tile_gradients(q, k, v, d_out, lse, delta)
    return d_k, d_q, d_v
