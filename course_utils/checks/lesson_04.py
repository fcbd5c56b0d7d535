"""Lesson 04's exercises: masks of every kind, empty rows, conventions, a cache, and a test."""

import torch
import torch.nn.functional as F

from course_utils.attention import (
    attention,
    causal_mask,
    document_mask,
    dot_product_scores,
    padding_mask,
    prefix_mask,
    sliding_window_mask,
)
from course_utils.checks.catching import run_against
from course_utils.checks.engine import Exercise

INF = torch.inf

# A mask that is right but of the wrong kind gets the same hints in every exercise.
INVERTED = "it is inverted: True must mean may attend, as in scaled_dot_product_attention"
NOT_BOOLEAN = "right pattern, but numbers: return a boolean tensor, for example by comparing"
ADDED = "that is the mask to add to the scores, 0 and -inf; return a boolean one, True = may attend"


def _added(mask):
    return torch.zeros(mask.shape).masked_fill(~mask, -INF)


def _kinds(exercise):
    """Register the mistakes of kind that any mask may hold."""
    reference = exercise.reference

    def inverted(*given):
        return ~reference(*given)

    def not_boolean(*given):
        return reference(*given).float()

    def added_to_scores(*given):
        return _added(reference(*given))

    for hint, wrong in [
        (INVERTED, inverted),
        (NOT_BOOLEAN, not_boolean),
        (ADDED, added_to_scores),
    ]:
        exercise.mistake(hint)(wrong)


# 4.1 causal_mask

_SIZES = [(5,), (1,), (3, 7), (1, 6), (4, 4), (5, 2)]
causal = Exercise("4.1", causal_mask, lambda: _SIZES, names="L S")
_kinds(causal)


@causal.mistake("a query must see its own key too: the diagonal is allowed")
def diagonal_forbidden(L, S=None):
    S = L if S is None else S
    return torch.ones(L, S).tril(S - L - 1) > 0


@causal.mistake("one key too far: each query sees the very next token, the one to be predicted")
def one_too_far(L, S=None):
    S = L if S is None else S
    return torch.ones(L, S).tril(S - L + 1) > 0


@causal.mistake(
    "right for L = S; with more keys it lines up the first query with the first key, as is_causal "
    "does: the last query belongs at the last key"
)
def upper_left(L, S=None):
    return causal_mask(L, S, align="upper_left")


@causal.mistake(
    "that marks the future, as nn.MultiheadAttention wants it; here True = may attend, and the "
    "last query belongs at the last key"
)
def future_marked(L, S=None):
    return ~upper_left(L, S)


@causal.mistake(
    "right for L = S; with more keys the diagonal moves the wrong way: S - L, not L - S"
)
def offset_of_the_wrong_sign(L, S=None):
    S = L if S is None else S
    return torch.ones(L, S).tril(L - S) > 0


@causal.mistake("right for L = S, but S is not used: with S keys the mask is (L, S)")
def always_square(L, S=None):
    return causal_mask(L)


@causal.mistake("it is transposed: queries are rows, keys columns; it allows only the future")
def transposed(L, S=None):
    S = L if S is None else S
    return torch.ones(L, S).triu(S - L) > 0


@causal.mistake(
    "with fewer keys than queries something is allowed that lies in the future: the offset S - L "
    "is negative there and must stay so"
)
def offset_never_negative(L, S=None):
    S = L if S is None else S
    return torch.ones(L, S).tril(max(S - L, 0)) > 0


@causal.mistake(
    "triu() keeps the future and the diagonal; what a query may see is the *lower* triangle"
)
def upper_triangle(L, S=None):
    return torch.ones(L, L if S is None else S).triu() > 0


# 4.2 padding_mask


def _lengths():
    # B differs from S and from 1; an empty and a full sequence
    return [
        (torch.tensor([3, 5]), 6),
        (torch.tensor([4, 0, 7, 2]), 7),
        (torch.tensor([2]), 3),
        (torch.tensor([1, 3, 2]), 3),
    ]


padding = Exercise("4.2", padding_mask, _lengths, names="B 1 1 S")
_kinds(padding)


@padding.mistake(
    "right entries as (B, S), but against scores (B, H, L, S) B would meet L: make it (B, 1, 1, S)"
)
def two_dimensions(lengths, S):
    return padding_mask(lengths, S)[:, 0, 0]


@padding.mistake("one dimension is missing: (B, 1, S) would meet (B, H, L, S) with B at the heads")
def three_dimensions(lengths, S):
    return padding_mask(lengths, S)[:, 0]


@padding.mistake("one token too many: positions count from 0, so a length of 3 allows 0, 1, 2: <")
def one_token_too_many(lengths, S):
    return (torch.arange(S) <= lengths[:, None])[:, None, None]


@padding.mistake("the padding is taken to stand at the start; here it stands at the end")
def padding_at_the_start(lengths, S):
    return padding_mask(lengths, S).flip(-1)


@padding.mistake("it is as wide as the longest sequence; S keys are asked")
def as_wide_as_the_longest(lengths, S):
    return padding_mask(lengths, int(lengths.max()))


@padding.mistake(
    "the padding is forbidden as a query too, (B, 1, S, S); mask keys only: a query that is "
    "padding may compute what nobody reads, and without keys its row would be empty"
)
def queries_masked_too(lengths, S):
    keys = padding_mask(lengths, S)
    return keys & keys.transpose(-2, -1)


@padding.mistake(
    "the mask lies at the queries, (B, 1, S, 1): keys are the last dimension of the scores"
)
def padding_of_queries(lengths, S):
    return padding_mask(lengths, S).transpose(-2, -1)


@padding.mistake(
    "one token too few: positions count from 0, so a length of 3 allows 0, 1, 2; count them from "
    "0 and compare by <"
)
def one_token_too_few(lengths, S):
    return (torch.arange(1, S + 1) < lengths[:, None])[:, None, None]


# 4.3 sliding_window_mask

window = Exercise(
    "4.3", sliding_window_mask, lambda: [(7, 3), (5, 1), (4, 9), (6, 2), (1, 1)], names="L L"
)
_kinds(window)


@window.mistake("one key too many: a window of w is the token itself and the w - 1 before it")
def window_and_itself(L, window):
    return sliding_window_mask(L, window + 1)


@window.mistake("one key too few: a window of w is the token itself and the w - 1 before it")
def window_too_short(L, window):
    back = torch.arange(L)[:, None] - torch.arange(L)
    return (0 <= back) & (back < window - 1)


@window.mistake(
    "only the far past is forbidden: for a key that lies ahead i - j is negative, and less than "
    "the window too"
)
def future_left_open(L, window):
    return torch.arange(L)[:, None] - torch.arange(L) < window


@window.mistake("it looks to both sides: the future must stay hidden")
def both_sides(L, window):
    return (torch.arange(L)[:, None] - torch.arange(L)).abs() < window


@window.mistake("the window ends before the token itself; it includes the token")
def itself_forbidden(L, window):
    back = torch.arange(L)[:, None] - torch.arange(L)
    return (0 < back) & (back < window)


@window.mistake("that is the causal mask: nothing further back than the window is forbidden")
def no_window(L, window):
    return causal_mask(L)


@window.mistake("it looks forward: the window is the token and those before it")
def looks_forward(L, window):
    return sliding_window_mask(L, window).T


@window.mistake("those are blocks side by side; the window slides along with every token")
def blocks(L, window):
    return document_mask(torch.arange(L) // window) & causal_mask(L)


@window.mistake(
    "the first rows are empty: where i - window + 1 is negative a slice counts from the end; take "
    "max(0, ...)"
)
def slice_from_the_end(L, window):
    mask = torch.zeros(L, L, dtype=torch.bool)
    for i in range(L):
        mask[i, i - window + 1 : i + 1] = True
    return mask


# 4.4 prefix_mask

prefix = Exercise("4.4", prefix_mask, lambda: [(6, 2), (5, 0), (4, 4), (7, 3), (3, 5)], names="L L")
_kinds(prefix)


@prefix.mistake("that is the causal mask: tokens of the prefix must see all of the prefix")
def only_causal(L, prefix):
    return causal_mask(L)


@prefix.mistake("the tokens after the prefix see it and nothing else: add the causal part by |")
def only_the_prefix(L, prefix):
    return (torch.arange(L) < prefix).expand(L, L)


@prefix.mistake(
    "queries and keys are swapped: tokens of the prefix see everything, also what comes after it"
)
def prefix_sees_everything(L, prefix):
    return causal_mask(L) | (torch.arange(L)[:, None] < prefix)


@prefix.mistake("one token too many is open: a prefix of 2 is the keys 0 and 1")
def prefix_too_long(L, prefix):
    return prefix_mask(L, prefix + 1)


@prefix.mistake("joined by &, causal and prefix allow only what both allow: use |")
def joined_by_and(L, prefix):
    return causal_mask(L) & (torch.arange(L) < prefix)


@prefix.mistake(
    "tril(prefix) moves the diagonal, so that every query sees `prefix` keys ahead; the prefix is "
    "a block of columns"
)
def diagonal_moved(L, prefix):
    return torch.ones(L, L).tril(prefix) > 0


# 4.5 packed_mask


def packed_mask(ids):
    return document_mask(ids) & causal_mask(ids.shape[-1])


def _documents():
    return [
        (torch.tensor([0, 0, 0, 1, 1, 2]),),
        (torch.tensor([5, 5, 3, 3, 3, 5, 5]),),  # ids fall, and one returns
        (torch.tensor([[0, 0, 1, 1, 1], [2, 2, 2, 2, 7], [1, 3, 3, 3, 3]]),),
    ]


packed = Exercise("4.5", packed_mask, _documents, names="L L")
_kinds(packed)


@packed.mistake("documents are kept apart, but within one a token sees the future: & causal")
def future_allowed(ids):
    return document_mask(ids)


@packed.mistake("that is causal alone: tokens see the documents before their own")
def documents_ignored(ids):
    L = ids.shape[-1]
    return causal_mask(L).expand(*ids.shape, L)


@packed.mistake("joined by |, one of the two suffices; both must hold: &")
def joined_by_or(ids):
    return document_mask(ids) | causal_mask(ids.shape[-1])


@packed.mistake(
    "earlier documents are open where their number is smaller: the numbers are names, compare by =="
)
def smaller_numbers_allowed(ids):
    return (ids[..., None, :] <= ids[..., :, None]) & causal_mask(ids.shape[-1])


@packed.mistake(
    "only neighbours are compared: a document goes on when its number returns later in the row"
)
def neighbours_compared(ids):
    runs = (ids.diff(dim=-1) != 0).cumsum(dim=-1)
    return packed_mask(F.pad(runs, (1, 0)))


@packed.mistake("a token must see itself too: the diagonal is allowed")
def itself_hidden(ids):
    return packed_mask(ids) & ~torch.eye(ids.shape[-1], dtype=torch.bool)


@packed.mistake(
    "all rows of the batch share one mask, made from the first; each row has documents of its own"
)
def first_row_for_all(ids):
    first = packed_mask(ids.reshape(-1, ids.shape[-1])[0])
    return first.expand(*ids.shape, ids.shape[-1])


@packed.mistake(
    "right for one row of ids; with leading dimensions [:, None] pairs the rows of the batch: use "
    "[..., :, None] and [..., None, :], and L = ids.shape[-1]"
)
def leading_dimensions_forgotten(ids):
    return (ids[:, None] == ids[None, :]) & causal_mask(len(ids))


# 4.6 attention


def _masked_inputs():
    rng = torch.Generator().manual_seed(46)

    def normal(*shape):
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    def probe(B, H, L, S, d_k, d_v, mask, size=1.0):
        return size * normal(B, H, L, d_k), normal(B, H, S, d_k), normal(B, H, S, d_v), mask

    holes = torch.rand(4, 6, generator=rng) < 0.5
    holes[:, 0], holes[2] = True, False  # one query with nothing allowed
    late = causal_mask(5) & ~padding_mask([3, 1], 5)  # padding at the start: empty rows
    # scores in the hundreds, the best key allowed
    loud = probe(2, 2, 3, 5, 4, 6, None, size=300.0)
    best = F.one_hot(dot_product_scores(*loud[:2]).argmax(dim=-1), 5) > 0
    loud = (*loud[:3], best | padding_mask([4, 2], 5))
    # scores in the ten thousands: a forbidden one far above the rest; all of them far below what
    # the forbidden one may be filled with. Integers and a d_k of 16 keep them exact in float32 too
    q = torch.randint(-2, 3, (3, 16), generator=rng).double()
    k = torch.randint(-2, 3, (5, 16), generator=rng).double()
    high, low = k.clone(), k.clone()
    q[:, 0], high[3, 0], low[:, 0] = 512, 256, -256
    drowned = q, high, normal(5, 2), torch.arange(5) != 3
    sunk = q, low, normal(5, 2), torch.arange(5) != 3
    return [
        (normal(5, 3), normal(5, 3), normal(5, 2), causal_mask(5)),
        probe(2, 3, 4, 6, 5, 7, causal_mask(4, 6)),
        probe(2, 1, 5, 5, 3, 4, late),
        probe(3, 2, 4, 6, 5, 3, holes),
        loud,
        drowned,
        sunk,
    ]


masked = Exercise("4.6", attention, _masked_inputs, names="L d_v|L S")


def _variant(weigh):
    """Return attention with its weights made from scores and mask by ``weigh``."""

    def answer(q, k, v, mask=None):
        mask = torch.ones(k.shape[-2], dtype=torch.bool) if mask is None else mask
        weights = weigh(dot_product_scores(q, k) / q.shape[-1] ** 0.5, mask)
        return weights @ v, weights

    return answer


def _erase(weights, mask):
    return weights.masked_fill(~mask.any(dim=-1, keepdim=True), 0)


def _renormalised(scores, mask, little=0.0):
    weights = scores.softmax(dim=-1) * mask
    return weights / (weights.sum(dim=-1, keepdim=True) + little)


def attention_weights(scores, mask):
    """Return what is right: softmax over what is allowed, zeros where nothing is."""
    return scores.masked_fill(~mask, -INF).softmax(dim=-1).nan_to_num(0.0)


for _name, _hint, _weigh in [
    (
        "empty rows are NaN",
        "right, but for queries with nothing allowed: they are NaN (softmax of -inf alone, or "
        "0 / 0); give zeros there",
        lambda s, m: s.masked_fill(~m, -INF).softmax(dim=-1),
    ),
    (
        "empty rows attend to everything",
        "right, but a query with nothing allowed averages all the keys that were forbidden (so do "
        "-1e9 and finfo.min); give zeros there",
        lambda s, m: s.masked_fill(~m, -1e9).softmax(dim=-1),
    ),
    (
        "masked after softmax",
        "the mask comes after softmax: the rows no longer sum to 1, and forbidden scores sit in "
        "the denominator; fill with -inf before",
        lambda s, m: s.softmax(dim=-1) * m,
    ),
    (
        "divided by the new sums",
        "the mask comes after softmax; dividing by the new sums mends the rows on paper only: "
        "where a forbidden score is far above the rest, all allowed weights are 0, and 0 / 0 is "
        "NaN",
        lambda s, m: _renormalised(s, m),
    ),
    (
        "divided by the new sums and erased",
        "right, until a forbidden score is far above the rest: softmax has then made all allowed "
        "weights 0, and 0 / 0 is NaN; the mask must come before softmax",
        lambda s, m: _erase(_renormalised(s, m), m),
    ),
    (
        "divided by the new sums and a little",
        "right, until a forbidden score is far above the rest: softmax has then made all allowed "
        "weights 0, and they stay 0; forbid by -inf before softmax, not by a mask after it, nor "
        "by a small number added",
        lambda s, m: _renormalised(s, m, 1e-9),
    ),
    (
        "filled with too little",
        "right, until all allowed scores are lower than what the forbidden ones are filled with: "
        "they are 0 then; fill with -inf, or the dtype's lowest",
        lambda s, m: s.masked_fill(~m, -100.0).softmax(dim=-1) * m,
    ),
    (
        "filled with too little and erased",
        "right, until all allowed scores are lower than what the forbidden ones are filled with: "
        "these get the weight then; fill with -inf, or the dtype's lowest",
        lambda s, m: _erase(s.masked_fill(~m, -1e4).softmax(dim=-1), m),
    ),
    (
        "too little added",
        "right, until a forbidden score is so high that it wins in spite of the number added to "
        "it; fill with -inf, which no score outweighs",
        lambda s, m: _erase((s + ~m * -1e4).softmax(dim=-1), m),
    ),
    (
        "empty rows as without a mask",
        "right, but in a row with nothing allowed -1e9 is added to every score, which changes "
        "nothing: it attends as without a mask; give zeros there",
        lambda s, m: (s + ~m * -1e9).softmax(dim=-1),
    ),
    (
        "zero times infinity",
        "all is NaN: a mask times -inf is 0 · inf where it is 0, and that is NaN; use masked_fill "
        "or torch.where",
        lambda s, m: (s + ~m * -INF).softmax(dim=-1),
    ),
    (
        "softmax over queries",
        "softmax runs over the queries: each query's weights must sum to 1, dim=-1",
        lambda s, m: s.masked_fill(~m, -INF).softmax(dim=-2).nan_to_num(0.0),
    ),
    (
        "softmax over queries and NaN",
        "softmax runs over the queries, and is NaN for a key that no query may see: dim=-1",
        lambda s, m: s.masked_fill(~m, -INF).softmax(dim=-2),
    ),
    (
        "the mask is inverted",
        "the mask is used the wrong way round: True = may attend, so fill where it is False, ~mask",
        lambda s, m: attention_weights(s, ~m),
    ),
    (
        "the mask is multiplied into the scores",
        "a forbidden score becomes 0, and e^0 is 1: a weight, not none; it must become -inf",
        lambda s, m: (s * m).softmax(dim=-1),
    ),
    (
        "the mask is added to the scores",
        "adding True adds 1 to an allowed score and forbids nothing; fill with -inf where False",
        lambda s, m: (s + m).softmax(dim=-1),
    ),
    (
        "the mask is ignored",
        "the mask is not used",
        lambda s, m: s.softmax(dim=-1),
    ),
]:
    _wrong = _variant(_weigh)
    _wrong.__name__ = _name.replace(" ", "_")
    masked.mistake(_hint)(_wrong)


@masked.mistake("right, but the scores are not divided by √d_k")
def scores_not_scaled(q, k, v, mask):
    return attention(q, k, v, mask, scale=1.0)


@masked.mistake(
    "the output is cleaned of NaN and the weights are not: a query with nothing allowed has zeros "
    "in both"
)
def only_the_output_cleaned(q, k, v, mask):
    weights = dot_product_scores(q, k) / q.shape[-1] ** 0.5
    weights = weights.masked_fill(~mask, -INF).softmax(dim=-1)
    return (weights @ v).nan_to_num(0.0), weights


@masked.mistake(
    "the weights are cleaned of NaN after the output was made from them: clean them before"
)
def only_the_weights_cleaned(q, k, v, mask):
    output, weights = only_the_output_cleaned(q, k, v, mask)
    return weights @ v, weights.nan_to_num(0.0)


@masked.mistake("return two things, output and weights, in this order")
def output_alone(q, k, v, mask):
    return attention(q, k, v, mask)[0]


# 4.7 from_multihead


def from_multihead(attn_mask, key_padding_mask):
    return ~attn_mask & ~key_padding_mask[:, None, None, :]


def _two_masks():
    return [
        (~causal_mask(4, 6), ~padding_mask([6, 3], 6)[:, 0, 0]),
        (~sliding_window_mask(5, 2), ~padding_mask([5, 1, 4], 5)[:, 0, 0]),
        (~prefix_mask(3, 2), ~padding_mask([2, 3, 1], 3)[:, 0, 0].flip(-1)),  # B = L, at the start
    ]


convention = Exercise("4.7", from_multihead, _two_masks, names="B 1 L S")


@convention.mistake(
    "nothing is turned round: MultiheadAttention's True means ignore, here it must mean may attend"
)
def nothing_inverted(attn_mask, key_padding_mask):
    return attn_mask & key_padding_mask[:, None, None, :]


@convention.mistake(
    "the union of what is to be ignored, still True = ignore: one ~ around it is missing"
)
def still_true_means_ignore(attn_mask, key_padding_mask):
    return ~from_multihead(attn_mask, key_padding_mask)


@convention.mistake(
    "a key must be allowed by both masks: ~a & ~b, or ~(a | b); ~a | ~b, which is ~(a & b), lets "
    "one of them suffice"
)
def either_allows(attn_mask, key_padding_mask):
    return ~attn_mask | ~key_padding_mask[:, None, None, :]


@convention.mistake("only the attention mask is turned round; the padding mask needs its ~ too")
def padding_not_inverted(attn_mask, key_padding_mask):
    return ~attn_mask & key_padding_mask[:, None, None, :]


@convention.mistake("only the padding mask is turned round; the attention mask needs its ~ too")
def attention_not_inverted(attn_mask, key_padding_mask):
    return attn_mask & ~key_padding_mask[:, None, None, :]


@convention.mistake(
    "~ binds tighter than |: ~a | b turns a round and then adds what b ignores; ~(a | b)"
)
def only_the_first_inverted(attn_mask, key_padding_mask):
    return ~attn_mask | key_padding_mask[:, None, None, :]


@convention.mistake("the padding mask is left out")
def padding_left_out(attn_mask, key_padding_mask):
    return (~attn_mask).expand(len(key_padding_mask), 1, *attn_mask.shape)


@convention.mistake(
    "right entries as (B, L, S): against scores (B, H, L, S) B would meet the heads; (B, 1, L, S)"
)
def no_place_for_heads(attn_mask, key_padding_mask):
    return from_multihead(attn_mask, key_padding_mask)[:, 0]


@convention.mistake(
    "the padding masks queries: (B, S) became (B, 1, S, 1); keys are the last dimension"
)
def padding_at_the_queries(attn_mask, key_padding_mask):
    L, S = attn_mask.shape
    queries = key_padding_mask[:, None, :, None]
    return ~attn_mask & ~queries if L == S else queries.new_zeros(())


# 4.8 decode


def decode(q, k, v, k_cache, v_cache):
    k, v = torch.cat([k_cache, k], dim=-2), torch.cat([v_cache, v], dim=-2)  # (..., S, d)
    output, _ = attention(q, k, v, causal_mask(q.shape[-2], k.shape[-2]))
    return output, k, v


def _with_caches():
    rng = torch.Generator().manual_seed(48)

    def normal(*shape):
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    def probe(*leading, new, cached, d_k, d_v):
        sizes = (new, d_k), (new, d_k), (new, d_v), (cached, d_k), (cached, d_v)
        return tuple(normal(*leading, *size) for size in sizes)

    return [
        probe(new=1, cached=5, d_k=4, d_v=3),
        probe(2, 3, new=3, cached=4, d_k=5, d_v=2),  # several tokens at once
        probe(2, new=4, cached=0, d_k=3, d_v=6),  # nothing cached yet
        probe(2, 2, new=2, cached=2, d_k=4, d_v=5),
    ]


cached = Exercise("4.8", decode, _with_caches, names="L d_v|S d_k|S d_v")


def _decode(mask):
    """Return decode with another mask, made from L and S."""

    def answer(q, k, v, k_cache, v_cache):
        k, v = torch.cat([k_cache, k], dim=-2), torch.cat([v_cache, v], dim=-2)
        return attention(q, k, v, mask(q.shape[-2], k.shape[-2]))[0], k, v

    return answer


for _name, _hint, _mask in [
    (
        "is causal",
        "the mask lines up the first query with the first key, as is_causal does: the new tokens "
        "stand at the end of the cache, causal_mask(L, S)",
        lambda L, S: causal_mask(L, S, align="upper_left"),
    ),
    (
        "no mask",
        "right for one new token; of several, the earlier must not see the later",
        lambda L, S: None,
    ),
    (
        "new tokens do not see themselves",
        "a new token must see its own key too",
        lambda L, S: torch.ones(L, S).tril(S - L - 1) > 0,
    ),
    (
        "one new token too far",
        "of several new tokens, each sees the next one: one key too far",
        lambda L, S: torch.ones(L, S).tril(S - L + 1) > 0,
    ),
    (
        "only the cache is seen",
        "the new tokens see the cache and not each other or themselves",
        lambda L, S: (torch.arange(S) < S - L).expand(L, S),
    ),
]:
    _wrong = _decode(_mask)
    _wrong.__name__ = _name.replace(" ", "_")
    cached.mistake(_hint)(_wrong)


@cached.mistake("right, but the scores are not divided by √d_k")
def cached_scores_not_scaled(q, k, v, k_cache, v_cache):
    return decode(q * q.shape[-1] ** 0.5, k, v, k_cache, v_cache)


@cached.mistake("the new tokens are put before the cache: the oldest stands first")
def cache_at_the_end(q, k, v, k_cache, v_cache):
    k, v = torch.cat([k, k_cache], dim=-2), torch.cat([v, v_cache], dim=-2)
    return attention(q, k, v, causal_mask(q.shape[-2], k.shape[-2]))[0], k, v


@cached.mistake("the cache is not used: the new tokens see only each other")
def cache_not_used(q, k, v, k_cache, v_cache):
    return attention(q, k, v, causal_mask(q.shape[-2]))[0], k, v


@cached.mistake(
    "the caches grow, but attention has the new keys and values alone: the new tokens see only "
    "each other"
)
def cache_grown_and_not_used(q, k, v, k_cache, v_cache):
    _, keys, values = decode(q, k, v, k_cache, v_cache)
    return attention(q, k, v, causal_mask(q.shape[-2]))[0], keys, values


@cached.mistake("right output, but the caches come back as they were: return the grown ones")
def cache_not_grown(q, k, v, k_cache, v_cache):
    return decode(q, k, v, k_cache, v_cache)[0], k_cache, v_cache


@cached.mistake("return three things: the output and the two grown caches")
def only_the_output(q, k, v, k_cache, v_cache):
    return decode(q, k, v, k_cache, v_cache)[0]


# 4.9 catches_leak


def catches_leak(attention):
    torch.manual_seed(0)
    q, k, v = torch.randn(4, 3), torch.randn(6, 3), torch.randn(6, 2)
    mask = torch.rand(4, 6) < 0.5
    mask[:, 0] = True
    out, weights = attention(q, k, v, mask)
    assert torch.allclose(weights, attention_weights(q @ k.T / 3**0.5, mask), atol=1e-5)
    assert torch.allclose(out, weights @ v, atol=1e-5)


def _sdpa(q, k, v, mask=None):
    eye = torch.eye(k.shape[-2], dtype=q.dtype)
    given = {"attn_mask": mask}
    weights = F.scaled_dot_product_attention(q, k, eye.expand(*k.shape[:-2], -1, -1), **given)
    return F.scaled_dot_product_attention(q, k, v, **given), weights


_RIGHT = {
    "scores filled with -inf": attention,
    "scores filled with -1e9": _variant(
        lambda s, m: _erase(s.masked_fill(~m, -1e9).softmax(dim=-1), m)
    ),
    "scaled_dot_product_attention": _sdpa,
}


def _ignores_rest(q, k, v, mask):
    """Mask as the first query is masked, in every row."""
    return attention(q, k, v, mask[..., :1, :].expand(mask.shape))


def _only_square(q, k, v, mask):
    L, S = mask.shape[-2:]
    return attention(q, k, v, mask if L == S else None)


def _assumes_causal(q, k, v, mask):
    return attention(q, k, v, causal_mask(*mask.shape[-2:]))


def _leaks_output(q, k, v, mask):
    """Right weights, but an output mixed with unmasked ones."""
    return attention(q, k, v)[0], attention(q, k, v, mask)[1]


_BROKEN = {
    "mask after softmax": _variant(lambda s, m: s.softmax(dim=-1) * m),
    "mask inverted": _variant(lambda s, m: attention_weights(s, ~m)),
    "mask ignored": _variant(lambda s, m: s.softmax(dim=-1)),
    "one key too far": _variant(lambda s, m: attention_weights(s, m | F.pad(m, (1, 0))[..., :-1])),
    "forbidden scores set to 0": _variant(lambda s, m: (s * m).softmax(dim=-1)),
    "mask used only where L = S": _only_square,
    "a causal mask whatever the mask says": _assumes_causal,
    "the first query's mask for all queries": _ignores_rest,
    "weights masked, but the output made from unmasked ones": _leaks_output,
}


caught = Exercise(
    "4.9",
    catches_leak,
    lambda: [()],
    run=lambda test: run_against(test, _RIGHT, _BROKEN),
)


def _given(L=4, S=6, causal=False):
    """Return q (L, 3), k (S, 3), v (S, 2) and a mask (L, S) with something allowed in each row."""
    torch.manual_seed(1)
    mask = causal_mask(L, S) if causal else torch.rand(L, S) < 0.5
    mask[:, 0] = True
    return torch.randn(L, 3), torch.randn(S, 3), torch.randn(S, 2), mask


@caught.mistake(
    "it looks at shapes, or at nothing (or both calls got the same tensors: k2 = k copies nothing, "
    "k.clone() does): not one of these bugs changes a shape; look whether the numbers move when "
    "something forbidden is changed"
)
def only_shapes(attention):
    q, k, v, mask = _given()
    out, weights = attention(q, k, v, mask)
    assert out.shape == (4, 2) and weights.shape == (4, 6)


@caught.mistake(
    "it sees that rows sum to 1: of these bugs only the mask after softmax breaks that; look where "
    "the weights are 0, and change what is forbidden"
)
def only_row_sums(attention):
    q, k, v, mask = _given()
    _, weights = attention(q, k, v, mask)
    assert torch.allclose(weights.sum(dim=-1), torch.ones(4), atol=1e-5)


@caught.mistake(
    "it sees the forbidden weights are 0, and not whether forbidden keys are heard otherwise: the "
    "mask after softmax has the zeros too, and the output may be made from other weights"
)
def only_zeros(attention):
    q, k, v, mask = _given()
    _, weights = attention(q, k, v, mask)
    assert (weights[~mask] == 0).all()


@caught.mistake(
    "it tries a causal mask with L = S alone: code that makes its own causal mask, or uses a mask "
    "only where L = S, is right there; draw a mask at random, with L ≠ S"
)
def only_square_and_causal(attention):
    q, k, v, mask = _given(5, 5, causal=True)
    out, weights = attention(q, k, v, mask)
    assert torch.allclose(weights, attention_weights(q @ k.T / 3**0.5, mask), atol=1e-5)
    assert torch.allclose(out, weights @ v, atol=1e-5)


@caught.mistake(
    "it changes the future under a causal mask with L = S alone: code that makes its own causal "
    "mask, uses a mask only where L = S, or the first query's mask for all, gives nothing away "
    "there; draw a mask at random, with L ≠ S"
)
def only_the_future_of_a_square(attention):
    q, k, v, mask = _given(5, 5, causal=True)
    out, _ = attention(q, k, v, mask)
    for t in range(1, 5):
        later = (torch.arange(5) >= t)[:, None]
        changed, _ = attention(q + later, k + later, v + later, mask)
        assert torch.allclose(changed[:t], out[:t], atol=1e-6)


@caught.mistake(
    "its mask is random, but L = S: code that uses the mask only where L = S gets through; let L "
    "and S differ"
)
def only_square(attention):
    q, k, v, mask = _given(5, 5)
    out, weights = attention(q, k, v, mask)
    assert torch.allclose(weights, attention_weights(q @ k.T / 3**0.5, mask), atol=1e-5)
    assert torch.allclose(out, weights @ v, atol=1e-5)


@caught.mistake(
    "it changes forbidden values and not forbidden keys: the mask after softmax multiplies those "
    "values by 0 and still hears the keys, in its denominator; change both"
)
def only_values_changed(attention):
    q, k, v, mask = _given()
    for j in range(6):
        changed = v.clone()
        changed[j] += 10
        out, other = attention(q, k, v, mask)[0], attention(q, k, changed, mask)[0]
        assert torch.equal(out[~mask[:, j]], other[~mask[:, j]])


@caught.mistake(
    "it compares the weights alone; an output made from other weights gets through: look at it too"
)
def only_weights(attention):
    q, k, v, mask = _given()
    _, weights = attention(q, k, v, mask)
    assert torch.allclose(weights, attention_weights(q @ k.T / 3**0.5, mask), atol=1e-5)


@caught.mistake("its mask forbids nothing, so no bug of masking can show; forbid something")
def nothing_forbidden(attention):
    q, k, v, mask = _given()
    mask[:] = True
    out, weights = attention(q, k, v, mask)
    assert torch.allclose(out, (q @ k.T / 3**0.5).softmax(dim=-1) @ v, atol=1e-5)


@caught.mistake(
    "all its queries share one mask, so code that uses the first query's for all gets through; "
    "give each query its own row, at random"
)
def one_mask_for_all_queries(attention):
    q, k, v, mask = _given()
    mask[:] = mask[:1]
    mask[:, -2] = False
    out, weights = attention(q, k, v, mask)
    assert torch.allclose(weights, attention_weights(q @ k.T / 3**0.5, mask), atol=1e-5)
    assert torch.allclose(out, weights @ v, atol=1e-5)


# 4.10 catches_wrong_mask


def catches_wrong_mask(causal_mask):
    for L, S in [(4, 4), (3, 7), (1, 5), (6, 6)]:
        mask = causal_mask(L, S)
        assert mask.shape == (L, S) and mask.dtype == torch.bool
        for i in range(L):
            for j in range(S):
                assert mask[i, j] == (j <= i + S - L)


def _by_position(L, S=None):
    S = L if S is None else S
    return torch.arange(S) - torch.arange(L)[:, None] <= S - L


def _by_tril(L, S=None):
    S = L if S is None else S
    return torch.ones(L, S, dtype=torch.bool).tril(S - L)


def _written_out(L, S=None):
    five = [[j <= i for j in range(5)] for i in range(5)]
    return torch.tensor(five) if (L, S) in [(5, 5), (5, None)] else torch.ones(L, S or L) > 0


def _nothing(L, S=None):
    return torch.zeros(L, S or L, dtype=torch.bool)


def _latest(L, S=None):
    return _by_tril(L, S).flip(-1)


def _first_row_for_all(L, S=None):
    return _by_tril(L, S)[:1].repeat(L, 1)


def _only_first_row(L, S=None):
    mask = _by_tril(L, S)
    mask[1:] = True
    return mask


def _only_itself(L, S=None):
    return _by_tril(L, S) & ~diagonal_forbidden(L, S)


def _only_next_hidden(L, S=None):
    return _by_tril(L, S) | ~one_too_far(L, S)


def _only_last_hidden(L, S=None):
    mask = torch.ones(L, S or L, dtype=torch.bool)
    mask[:-1, -1] = False
    return mask


wrong_mask = Exercise(
    "4.10",
    catches_wrong_mask,
    lambda: [()],
    run=lambda test: run_against(
        test,
        {"by position": _by_position, "by tril": _by_tril},
        {
            "the diagonal forbidden": diagonal_forbidden,
            "one key too far": one_too_far,
            "the future in place of the past": transposed,
            "upper left where S > L": upper_left,
            "as many keys as right, but the latest": _latest,
            "right for L = S = 5 only": _written_out,
            "nothing allowed at all": _nothing,
            "each query sees its own key alone": _only_itself,
            "the first query's row for all queries": _first_row_for_all,
            "the first query's row right, all others open": _only_first_row,
            "only the very next key hidden": _only_next_hidden,
            "only the last key hidden, from all queries but the last": _only_last_hidden,
        },
    ),
)


@wrong_mask.mistake(
    "it looks at the shape alone, or at nothing: compare every entry with j <= i + S - L"
)
def shape_alone(causal_mask):
    assert causal_mask(3, 7).shape == (3, 7)


@wrong_mask.mistake(
    "it tries L = S alone: a mask that lines up the first query with the first key gets through; "
    "try S > L"
)
def square_alone(causal_mask):
    for L in (3, 5, 6):
        mask = causal_mask(L, L)
        assert mask.dtype == torch.bool and torch.equal(mask, _by_tril(L))


@wrong_mask.mistake(
    "it compares with one mask written out, of one size: code that knows that size alone gets "
    "through, and so does the wrong corner where S > L; try several sizes"
)
def one_size_written_out(causal_mask):
    mask = causal_mask(5, 5)
    assert mask.dtype == torch.bool and torch.equal(mask, _by_tril(5))


@wrong_mask.mistake(
    "it tries L = 2 alone, where the first row and the last are all there is: some bugs show in "
    "the rows between; try more queries"
)
def two_queries_alone(causal_mask):
    for S in (2, 3, 4):
        assert causal_mask(2, S).tolist() == _by_tril(2, S).tolist()


@wrong_mask.mistake(
    "it sees that the future is forbidden, and not that the past is allowed: a mask that allows "
    "too little gets through"
)
def only_the_future(causal_mask):
    for L, S in [(4, 4), (3, 7)]:
        mask = causal_mask(L, S)
        assert mask.dtype == torch.bool and not mask[~_by_tril(L, S)].any()


@wrong_mask.mistake(
    "it sees that the past is allowed, and not that the future is forbidden: a mask that allows "
    "too much gets through"
)
def only_the_past(causal_mask):
    for L, S in [(4, 4), (3, 7)]:
        mask = causal_mask(L, S)
        assert mask.dtype == torch.bool and mask[_by_tril(L, S)].all()


@wrong_mask.mistake(
    "it counts what is allowed and not where: a mask may have the right count in the wrong place"
)
def only_counts(causal_mask):
    for L, S in [(4, 4), (3, 7)]:
        mask = causal_mask(L, S)
        assert mask.dtype == torch.bool and mask.sum() == _by_tril(L, S).sum()
