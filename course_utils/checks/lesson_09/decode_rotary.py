"""9.5: new tokens attend to a cache of rotated keys and to each other."""

import torch
import torch.nn.functional as F

from course_utils.attention import rotary
from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.shared_hints import MASK_INVERTED, NOT_SCALED, WEIGHTS_ALONE


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
        probe(new=1, cached=5, d_k=4, d_v=3),
        probe(2, 3, new=3, cached=4, d_k=6, d_v=2),  # several tokens at once
        probe(2, new=4, cached=0, d_k=2, d_v=6),  # nothing cached yet
        probe(2, 2, new=2, cached=2, d_k=4, d_v=5),
        probe(1, 1, new=2, cached=11, d_k=6, d_v=4, dtype=torch.float32),
        probe(5, new=7, cached=9, d_k=8, d_v=1),
        probe(new=2, cached=2051, d_k=4, d_v=1),  # positions that bfloat16 and float16 round
        (q.mT.contiguous().mT, k, v, k_cache.mT.contiguous().mT, v_cache),
    ]


POSITIONS = "torch.arange(S - L, S)"
ROTATE = "q, k = rotary(q, positions), rotary(k, positions)"
MISTAKES = [
    ("position 0 again",
     "Your new tokens are at positions 0, 1, …. They come after the cached tokens, so start at "
     "the number of these.",
     (POSITIONS, "torch.arange(L)")),
    ("queries only from position 0",
     "Your keys are at the right positions, but your queries start at 0 again. Both come after "
     "the cached tokens.",
     (ROTATE, "q, k = rotary(q, torch.arange(L)), rotary(k, positions)")),
    ("keys only from position 0",
     "Your queries are at the right positions, but your new keys start at 0 again. Both come "
     "after the cached tokens.",
     (ROTATE, "q, k = rotary(q, positions), rotary(k, torch.arange(L))")),
    ("all at one position",
     "Right for one new token. With several, each one must be one position after the one before.",
     (POSITIONS, "torch.full((L,), S - L)")),
    ("queries all at the last position",
     "Your keys are right, but all your queries are at the position of the last one. Each query "
     "has its own position.",
     (ROTATE, "q, k = rotary(q, torch.full((L,), S - 1)), rotary(k, positions)")),
    ("bfloat16",
     "Your positions are rounded to bfloat16, which keeps 8 binary digits. Above 256, "
     "neighboring positions become equal. Use whole numbers or at least float32.",
     (POSITIONS, POSITIONS + ".bfloat16()")),
    ("float16",
     "Your positions are rounded to float16, which keeps 11 binary digits. Above 2048, "
     "neighboring positions become equal. Use whole numbers or at least float32.",
     (POSITIONS, POSITIONS + ".half()")),
    ("begin again", "Your result is right for short texts, but not after 2,000 cached tokens. If "
     "your positions start again after some number, remove this limit.",
     (POSITIONS, POSITIONS + " % 64")),
    ("one position too early",
     "Your new tokens are one position too early. With t tokens in the cache, at positions 0 to "
     "t − 1, the first new one is at t.",
     (POSITIONS, POSITIONS + " - 1")),
    ("first dimension counted",
     "Right without leading dimensions. With them, you count the cached tokens in the first "
     "dimension. Count them in the last but one.",
     (POSITIONS, "k_cache.shape[0] + torch.arange(L)")),
    ("one position too late",
     "Your new tokens are one position too late. The position of the first new token is the "
     "number of cached tokens.",
     (POSITIONS, "torch.arange(S - L, S) + 1")),
    ("last position for all",
     "All your new tokens are at the position of the last one. Each one has its own position.",
     (POSITIONS, "torch.full((L,), S - 1)")),
    ("cache rotated again",
     "The cached keys are rotated a second time. They are already rotated, so rotate only the "
     "new keys.",
     ("torch.cat([k_cache, k], dim=-2)", "torch.cat([rotary(k_cache, torch.arange(S - L)), k], "
      "dim=-2)")),
    ("queries not rotated",
     "Your queries are not rotated. Rotate them by their own positions, as the keys are.",
     (ROTATE, "k = rotary(k, positions)")),
    ("keys not rotated",
     "Your new keys are not rotated. Rotate them before you append them to the cache.",
     (ROTATE, "q = rotary(q, positions)")),
    ("nothing rotated",
     "Your new queries and keys are not rotated. Rotate both by their positions.",
     (ROTATE, "")),
    ("values rotated",
     "Your values are rotated as well. Leave them as they are, because positions only decide "
     "where a query looks.",
     (ROTATE, ROTATE + "\n    d = v.shape[-1]  # an odd width gets a 0 to pair with"
      "\n    v = rotary(torch.nn.functional.pad(v, (0, d % 2)), positions)[..., :d]")),
    ("neighbors as pairs",
     "You pair neighbors. The cached keys are rotated with the two halves as pairs, so use the "
     "same layout.",
     (ROTATE, "q, k = rotary(q, positions, 10000, True), rotary(k, positions, 10000, True)")),
    ("no mask",
     "Right for one new token. With several, the earlier ones must not see the later ones.",
     (".tril(S - L)", "")),
    ("itself not seen",
     "Your new tokens do not see themselves. Allow the diagonal in the mask.",
     (".tril(S - L)", ".tril(S - L - 1)")),
    ("new ones not seen",
     "Your new tokens only attend to the old cache. Append their keys and values first.",
     ("scores.masked_fill(~mask, -torch.inf)", "scores[..., : S - L]"),
     ("weights @ values", "weights @ v_cache")),
    ("new ones in front",
     "Your new keys and values come before the cached ones. Append them at the end.",
     ("[k_cache, k]", "[k, k_cache]"), ("[v_cache, v]", "[v, v_cache]")),
    ("is causal",
     "Your mask aligns the first query with the first key. The new tokens come at the end, so "
     "align the last query with the last key.",
     ("tril(S - L)", "tril()")),
    ("not scaled", NOT_SCALED, (" / q.shape[-1] ** 0.5", "")),
    ("unrotated keys cached",
     "Your output is right, but the new keys that you return are not rotated. The cache must "
     "hold rotated keys.",
     ("    q, k = rot", "    plain = torch.cat([k_cache, k], dim=-2)\n    q, k = rot"),
     ("values, keys, values", "values, plain, values")),
    ("cache not grown",
     "Your output is right, but the caches come back unchanged. Return them with the new rows.",
     ("values, keys, values", "values, k_cache, v_cache")),
    ("only the output",
     "You return only the output. Return three things: the output, the keys and the values.",
     ("values, keys, values", "values")),
    ("query one position late",
     "Your keys are right, but the queries are one position too far, as if they were read from a "
     "cache that has grown already. A token's query and key have the same position.",
     (ROTATE, "q, k = rotary(q, positions + 1), rotary(k, positions)")),
    ("key one position late",
     "Your queries are right, but the new keys are one position too far. A token's query and key "
     "have the same position.",
     (ROTATE, "q, k = rotary(q, positions), rotary(k, positions + 1)")),
    ("query one position early",
     "Your keys are right, but the queries are one position too early. A token's query and key "
     "have the same position.",
     (ROTATE, "q, k = rotary(q, positions - 1), rotary(k, positions)")),
    ("rotated backwards",
     "Your queries and new keys are rotated in the opposite direction of the cached keys. Use "
     "positive positions.",
     (POSITIONS, "-" + POSITIONS)),
    ("mask inverted", MASK_INVERTED, ("~mask, -torch.inf", "mask, -torch.inf"),
     ("dim=-1)\n    return", "dim=-1).nan_to_num()\n    return")),
    ("cache not used",
     "Your new tokens only see each other. Let them see the cached tokens, too.",
     ("weights = scores.masked_fill(~mask, -torch.inf)",
      "weights = scores.masked_fill(~mask | (torch.arange(S) < S - L), -torch.inf)")),
    ("weights", WEIGHTS_ALONE, ("return weights @ values", "return weights")),
    ("only the new ones",
     "Your output is right, but you return only the new rows of the caches. Return all rows.",
     ("values, keys, values", "values, keys[..., S - L :, :], values[..., S - L :, :]")),
]  # fmt: skip

exercise = Exercise(
    "9.5", decode_rotary, inputs, MISTAKES, names="L d_v|S d_k|S d_v", differentiable=True,
    also_right=[by_sdpa],
)  # fmt: skip
