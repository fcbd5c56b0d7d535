"""9.5: new tokens attend to a cache of rotated keys and to each other."""

import torch
import torch.nn.functional as F

from course_utils.attention import rotary
from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_09._rounded import rounded
from course_utils.checks.shared_hints import (
    BY_D_V,
    MASK_INVERTED,
    NOT_SCALED,
    OVER_QUERIES,
    VALUES_ROTATED,
    WEIGHTS_ALONE,
)


def decode_rotary(q, k, v, k_cache, v_cache):
    L, S = q.shape[-2], k_cache.shape[-2] + k.shape[-2]
    positions = torch.arange(S - L, S)  # (L,), after what is cached
    q, k = rotary(q, positions), rotary(k, positions)
    keys = torch.cat([k_cache, k], dim=-2)  # (..., S, d_k), the cached keys are already rotated
    values = torch.cat([v_cache, v], dim=-2)  # (..., S, d_v)
    mask = torch.ones(L, S, dtype=torch.bool).tril(S - L)  # (L, S)
    scores = q @ keys.mT / q.shape[-1] ** 0.5  # (..., L, S)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    return weights @ values, keys, values


def by_sdpa(q, k, v, k_cache, v_cache):
    L, S = q.shape[-2], k_cache.shape[-2] + q.shape[-2]
    both = rotary(torch.stack([q, k]), torch.arange(S)[S - L :])
    keys, values = torch.cat([k_cache, both[1]], -2), torch.cat([v_cache, v], -2)
    mask = torch.arange(S) <= torch.arange(S - L, S)[:, None]
    return F.scaled_dot_product_attention(both[0], keys, values, mask), keys, values


def inputs():
    normal = normals(95)

    def probe(*leading, new, cached, d_k, d_v, dtype=torch.float64):
        sizes = (new, d_k), (new, d_k), (new, d_v), (cached, d_k), (cached, d_v)
        q, k, v, k_cache, v_cache = (normal(*leading, *size, dtype=dtype) for size in sizes)
        return 2 * q, k, v, rotary(k_cache, torch.arange(cached)), v_cache

    q, k, v, k_cache, v_cache = probe(2, new=3, cached=4, d_k=4, d_v=2)
    return [
        probe(new=1, cached=5, d_k=4, d_v=6),
        probe(new=3, cached=5, d_k=4, d_v=6),
        probe(2, 3, new=3, cached=4, d_k=6, d_v=2),  # several tokens at once
        probe(2, new=4, cached=0, d_k=2, d_v=6),  # nothing cached yet
        probe(2, 2, new=2, cached=2, d_k=4, d_v=8),
        probe(1, 1, new=2, cached=11, d_k=6, d_v=4, dtype=torch.float32),
        probe(5, new=7, cached=9, d_k=8, d_v=2),
        probe(new=2, cached=2051, d_k=4, d_v=2),  # positions that bfloat16 and float16 round
        (q.mT.contiguous().mT, k, v, k_cache.mT.contiguous().mT, v_cache),
    ]


POSITIONS = "torch.arange(S - L, S)"
ROTATE = "q, k = rotary(q, positions), rotary(k, positions)"
WEIGHTS = "scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)"
LIMIT = (
    "Your result is right with a few cached tokens, but not with 2,000. If your positions wrap "
    "around or stop at some number, remove this limit."
)
GROWN = (
    "start at position S, where S counts the new tokens, too. Start at S − L, the length of the "
    "cache before you append to it."
)
OTHER_BASE = (
    "Your queries and new keys are rotated with another base than the cached keys. Use the default "
    "base of `rotary`."
)
MISTAKES = [
    ("position 0 again",
     "Your new tokens are at positions 0, 1, …. They come after the cached tokens, so start at "
     "the number of cached tokens.",
     (POSITIONS, "torch.arange(L)")),
    ("queries only from position 0",
     "Your keys are at the right positions, but your queries start at position 0. Start them at "
     "the number of cached tokens, like the keys.",
     (ROTATE, "q, k = rotary(q, torch.arange(L)), rotary(k, positions)")),
    ("keys only from position 0",
     "Your queries are at the right positions, but your new keys start at position 0. Start them "
     "at the number of cached tokens, like the queries.",
     (ROTATE, "q, k = rotary(q, positions), rotary(k, torch.arange(L))")),
    ("all at one position",
     "Right for one new token. With several, all your tokens are at the position of the first one. "
     "Give each token its own position.",
     (POSITIONS, "torch.full((L,), S - L)")),
    ("queries all at the last position",
     "Your keys are right, but all your queries are at the position of the last one. Give each "
     "query its own position.",
     (ROTATE, "q, k = rotary(q, torch.full((L,), S - 1)), rotary(k, positions)")),
    ("queries after the grown cache",
     f"Your keys are at the right positions, but your queries {GROWN}",
     (ROTATE, "q, k = rotary(q, positions + L), rotary(k, positions)")),
    ("keys after the grown cache",
     f"Your queries are at the right positions, but your new keys {GROWN}",
     (ROTATE, "q, k = rotary(q, positions), rotary(k, positions + L)")),
    ("both after the grown cache",
     f"Your new tokens {GROWN}",
     (POSITIONS, "torch.arange(S, S + L)")),
    ("width for the length",
     "Your new tokens start at position d_k. They come after the cached tokens, so start at the "
     "number of cached tokens, k_cache.shape[-2].",
     (POSITIONS, "k_cache.shape[-1] + torch.arange(L)")),
    ("number of new tokens",
     "Your new tokens start at position L, the number of new tokens. They come after the cached "
     "tokens, so start at the number of these, k_cache.shape[-2].",
     (POSITIONS, "torch.arange(L, 2 * L)")),
    *rounded(POSITIONS, POSITIONS + "{}", "integers or at least float32"),
    ("begin again", LIMIT, (POSITIONS, POSITIONS + " % 64")),
    ("stop at 31", LIMIT, (POSITIONS, POSITIONS + ".clamp(max=31)")),
    ("one position too early",
     "Your new tokens are one position too early. With t cached tokens, at positions 0 to t − 1, "
     "the first new token is at position t.",
     (POSITIONS, POSITIONS + " - 1")),
    ("first dimension counted",
     "Right without leading dimensions. With them, your number of cached tokens is the size of "
     "the first dimension. Use k_cache.shape[-2].",
     (POSITIONS, "k_cache.shape[0] + torch.arange(L)")),
    ("one position too late",
     "Your new tokens are one position too late. With t cached tokens, at positions 0 to t − 1, "
     "the first new token is at position t.",
     (POSITIONS, "torch.arange(S - L, S) + 1")),
    ("last position for all",
     "Right for one new token. With several, all your tokens are at the position of the last one. "
     "Give each token its own position.",
     (POSITIONS, "torch.full((L,), S - 1)")),
    ("cache rotated again",
     "You rotate the cached keys a second time. They are already rotated, so rotate only the new "
     "keys.",
     ("torch.cat([k_cache, k], dim=-2)", "torch.cat([rotary(k_cache, torch.arange(S - L)), k], "
      "dim=-2)")),
    ("queries not rotated",
     "Your queries are not rotated. Rotate them by their own positions, as you do with the new "
     "keys.",
     (ROTATE, "k = rotary(k, positions)")),
    ("keys not rotated",
     "Your new keys are not rotated. Rotate them before you append them to the cache.",
     (ROTATE, "q = rotary(q, positions)")),
    ("nothing rotated",
     "Your new queries and keys are not rotated. Rotate both by their positions.",
     (ROTATE, "")),
    ("values rotated", VALUES_ROTATED,
     (ROTATE, ROTATE + "\n    v = rotary(v, positions)")),
    ("neighbors as pairs",
     "You use the interleaved layout. The cached keys are rotated with the halves layout. Use the"
     " halves layout for the new tokens, too.",
     (ROTATE, "q, k = rotary(q, positions, 10000, True), rotary(k, positions, 10000, True)")),
    ("no mask",
     "Right for one new token. With several, the earlier tokens see the later ones. Use a causal "
     "mask.",
     (".tril(S - L)", "")),
    ("one later token seen",
     "Right for one new token. With several, each query also sees the next token. Let it see only "
     "the keys up to its own.",
     (".tril(S - L)", ".tril(S - L + 1)")),
    ("new ones do not see each other",
     "Right for one new token. With several, each one sees the cached tokens and itself, but not "
     "the new tokens before it. Let it see these, too.",
     (".tril(S - L)", ".tril(S - L) & ((torch.arange(S) < S - L) | torch.eye(S).bool()[S - L :])")),
    ("masked after softmax",
     "You mask after softmax, so the weights of a query no longer sum to 1. Set the masked scores "
     "to −∞ before softmax.",
     (WEIGHTS, "scores.softmax(dim=-1).masked_fill(~mask, 0)")),
    ("masked scores are 0",
     "Right for one new token. With several, you set the masked scores to 0, but e^0 is 1, so "
     "these keys still get weight. Set the masked scores to −∞.",
     (WEIGHTS, "(scores * mask).softmax(dim=-1)")),
    ("softmax over the queries", OVER_QUERIES, (WEIGHTS, WEIGHTS.replace("-1", "-2"))),
    ("scaled by the values' width", BY_D_V, ("q.shape[-1] ** 0.5", "v.shape[-1] ** 0.5")),
    ("base 500,000", OTHER_BASE,
     (ROTATE, "q, k = rotary(q, positions, 500000), rotary(k, positions, 500000)")),
    ("base 1,000,000", OTHER_BASE,
     (ROTATE, "q, k = rotary(q, positions, 1000000), rotary(k, positions, 1000000)")),
    ("itself not seen",
     "Your new tokens do not see themselves. Let each query attend to its own key, too.",
     (".tril(S - L)", ".tril(S - L - 1)")),
    ("new ones not seen",
     "Your new tokens attend only to the cached tokens. Let them also attend, causally, to each "
     "other: append the new keys and values to the caches before you compute attention.",
     ("scores.masked_fill(~mask, -torch.inf)", "scores[..., : S - L]"),
     ("weights @ values", "weights @ v_cache")),
    ("new ones in front",
     "Your new keys and values come before the cached ones. Append them after the cached ones.",
     ("[k_cache, k]", "[k, k_cache]"), ("[v_cache, v]", "[v, v_cache]")),
    ("is causal",
     "Your mask aligns the first query with the first key. The new tokens come at the end, so "
     "align the last query with the last key.",
     ("tril(S - L)", "tril()")),
    ("not scaled", NOT_SCALED, (" / q.shape[-1] ** 0.5", "")),
    ("unrotated keys cached",
     "Your output is right, but the new keys that you return are not rotated. Return the rotated "
     "ones, because the next call expects rotated keys.",
     ("    q, k = rot", "    plain = torch.cat([k_cache, k], dim=-2)\n    q, k = rot"),
     ("values, keys, values", "values, plain, values")),
    ("cache not grown",
     "Your output is right, but the caches come back unchanged. Return them with the rows of the "
     "new tokens.",
     ("values, keys, values", "values, k_cache, v_cache")),
    ("only the output",
     "You return only the output. Return three things: the output, the keys and the values.",
     ("values, keys, values", "values")),
    ("query one position late",
     "Your keys are right, but your queries are rotated as if they were one position later. Give "
     "a token's query and key the same position.",
     (ROTATE, "q, k = rotary(q, positions + 1), rotary(k, positions)")),
    ("key one position late",
     "Your queries are right, but your new keys are rotated as if they were one position later. "
     "Give a token's query and key the same position.",
     (ROTATE, "q, k = rotary(q, positions), rotary(k, positions + 1)")),
    ("query one position early",
     "Your keys are right, but your queries are rotated as if they were one position earlier. "
     "Give a token's query and key the same position.",
     (ROTATE, "q, k = rotary(q, positions - 1), rotary(k, positions)")),
    ("rotated backwards",
     "Your queries and new keys are rotated in the opposite direction from the cached keys. Use "
     "positive positions.",
     (POSITIONS, "-" + POSITIONS)),
    ("mask inverted", MASK_INVERTED, ("~mask, -torch.inf", "mask, -torch.inf"),
     ("dim=-1)\n    return", "dim=-1).nan_to_num()\n    return")),
    ("cache not used",
     "Your new tokens attend only to each other. Let them attend to the cached tokens, too.",
     ("weights = scores.masked_fill(~mask, -torch.inf)",
      "weights = scores.masked_fill(~mask | (torch.arange(S) < S - L), -torch.inf)")),
    ("weights", WEIGHTS_ALONE, ("return weights @ values", "return weights")),
    ("only the new ones",
     "Your output is right, but you return only the rows of the new tokens. Return the cached "
     "rows as well, in front of the new ones.",
     ("values, keys, values", "values, keys[..., S - L :, :], values[..., S - L :, :]")),
]  # fmt: skip

exercise = Exercise(
    "9.5", decode_rotary, inputs, MISTAKES, names="L d_v|S d_k|S d_v", differentiable=True,
    also_right=[by_sdpa],
)  # fmt: skip
