"""4.8: new tokens attend to a cache and to each other, and the caches grow: a bug to fix."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.shared_hints import BY_D_V, NOT_SCALED, SCALED_TWICE


def decode(q, k, v, k_cache, v_cache):
    keys = torch.cat([k_cache, k], dim=-2)  # (..., S, d_k), the new ones last
    values = torch.cat([v_cache, v], dim=-2)  # (..., S, d_v)
    L, S = q.shape[-2], keys.shape[-2]
    mask = torch.ones(L, S, dtype=torch.bool).tril(S - L)  # key j where j <= i + S - L
    scores = q @ keys.transpose(-2, -1) / q.shape[-1] ** 0.5  # (..., L, S)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    return weights @ values, keys, values


def one_by_one(q, k, v, k_cache, v_cache):
    outputs = []
    for t in range(q.shape[-2]):
        k_cache = torch.cat([k_cache, k[..., t : t + 1, :]], dim=-2)
        v_cache = torch.cat([v_cache, v[..., t : t + 1, :]], dim=-2)
        scores = q[..., t : t + 1, :] @ k_cache.mT / q.shape[-1] ** 0.5
        outputs.append(scores.softmax(dim=-1) @ v_cache)
    return torch.cat(outputs, dim=-2), k_cache, v_cache


def with_sdpa(q, k, v, k_cache, v_cache):
    k, v = torch.cat([k_cache, k], -2), torch.cat([v_cache, v], -2)
    L, S = q.shape[-2], k.shape[-2]
    mask = torch.ones(L, S).tril(S - L).bool()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), k, v


def inputs():
    normal = normals(48)

    def probe(*leading, new, cached, d_k, d_v, dtype=torch.float64):
        sizes = (new, d_k), (new, d_k), (new, d_v), (cached, d_k), (cached, d_v)
        return tuple(normal(*leading, *size, dtype=dtype) for size in sizes)

    q, k, v, k_cache, v_cache = probe(2, new=3, cached=4, d_k=4, d_v=2)
    return [
        probe(new=1, cached=5, d_k=4, d_v=3),
        probe(2, 3, new=3, cached=4, d_k=5, d_v=2),  # several new tokens at once
        probe(2, new=4, cached=0, d_k=3, d_v=6),  # an empty cache
        probe(2, 2, new=2, cached=2, d_k=4, d_v=5),
        probe(new=1, cached=0, d_k=2, d_v=3),
        probe(1, 1, new=2, cached=11, d_k=3, d_v=4, dtype=torch.float32),
        probe(5, new=12, cached=9, d_k=4, d_v=1),
        (q.mT.contiguous().mT, k, v, k_cache.mT.contiguous().mT, v_cache),
        ((300 * q).round(), k.round(), v, k_cache.round(), v_cache),  # scores in the hundreds
        far_apart(*probe(2, new=3, cached=2, d_k=4, d_v=6)),
        far_apart(*probe(new=3, cached=5, d_k=16, d_v=2)),
        probe(2, new=2, cached=3, d_k=4, d_v=4),  # keys fit into the cache of values
    ]


def far_apart(q, k, v, k_cache, v_cache):
    """Return inputs with scores near -900, 900 and 0, whole numbers to be exact in float32 too."""
    q, k, k_cache = ((2 * each).round() / 2 for each in (q, k, k_cache))
    q[..., 0], k[..., 0], k_cache[..., 0] = torch.tensor([-900, 900, 0]), 2, 2
    return q * q.shape[-1] ** 0.5 / 2, k, v, k_cache, v_cache


ALLOWED = "torch.ones(L, S, dtype=torch.bool).tril(S - L)"

WEIGHTS = "scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)"
ALLOWED_SCORES = "scores.masked_fill(~mask, -torch.inf)"
ONE_MAXIMUM = f"({ALLOWED_SCORES} - {ALLOWED_SCORES}.amax((-2, -1), keepdim=True)).exp()"

MISTAKES = [
    ("no mask once there is a cache",
     "Your code still has the bug. It is right for one new token and for an empty cache. With "
     "several new tokens after a cache, the earlier ones see the later ones. Hide the later ones "
     "with a causal mask that aligns the last query with the last key.",
     (ALLOWED, "torch.ones(L, S, dtype=torch.bool).tril(0 if S == L else S)")),
    ("is causal",
     "Your mask aligns the first query with the first key, as is_causal does. The new tokens come "
     "at the end, so align the last query with the last key.", ("tril(S - L)", "tril()")),
    ("no mask",
     "Right for one new token. With several, the earlier ones see the later ones. Hide the later "
     "ones with a causal mask that aligns the last query with the last key.",
     (ALLOWED, "torch.ones(L, S, dtype=torch.bool)")),
    ("no mask without a cache",
     "Right, except with an empty cache. Then an earlier new token sees the later ones. Use a "
     "causal mask even if the cache is empty.",
     (ALLOWED, "torch.ones(L, S, dtype=torch.bool).tril(S - L if S > L else S)")),
    ("mask inverted",
     "Your new tokens see only what comes after them, as with an inverted mask. Let each new "
     "token see the cache, the new tokens before it, and itself. Hide only the later ones.",
     ("(~mask", "(mask"), ("softmax(dim=-1)", "softmax(dim=-1).nan_to_num(0)")),
    ("mask added to the scores",
     "Your mask forbids nothing. You get this result if you add it to the scores: True and False "
     "count as 1 and 0, so no score becomes −inf. Keep the mask boolean. Fill scores with −inf "
     "where it is False, or pass it to SDPA as attn_mask.",
     ("scores.masked_fill(~mask, -torch.inf)", "(scores + mask)")),
    ("masked after softmax",
     "Your weights do not sum to 1 where a query has forbidden keys, because their scores are "
     "still in the denominator of softmax. Fill forbidden scores with −inf before softmax.",
     (WEIGHTS, "scores.softmax(dim=-1) * mask")),
    ("mask multiplied into the scores",
     "Your forbidden keys still get a weight. If you multiply the scores by the mask, forbidden "
     "scores become 0, and e^0 is 1. Fill forbidden scores with −inf.",
     (WEIGHTS, "(scores * mask).softmax(dim=-1)")),
    *[(f"filled with {low}",
       "Right, unless all allowed scores of a query are very low. In that case, forbidden keys "
       f"get weight too, as if their scores were filled with a finite number, such as −{-low}. "
       "Fill forbidden scores with −inf.",
       (WEIGHTS, f"scores.masked_fill(~mask, {low}).softmax(dim=-1)")) for low in (-10, -100)],
    ("nothing subtracted",
     "Right only for moderate scores. If you take exp without first subtracting a maximum, e^900 "
     "overflows to inf, e^−900 underflows to 0, and inf / inf and 0 / 0 are NaN. Use softmax, or "
     "subtract each query's largest allowed score before exp.",
     (WEIGHTS, "scores.exp() * mask / (scores.exp() * mask).sum(dim=-1, keepdim=True)")),
    ("one maximum for all",
     "Your result is NaN for a query whose scores are all far below those of another query. If you "
     "subtract one maximum from the scores of all queries, the exponentials of the query with the "
     "low scores underflow to 0, and 0 / 0 is NaN. Subtract each query's own maximum.",
     (WEIGHTS, f"({ONE_MAXIMUM}) / ({ONE_MAXIMUM}).sum(dim=-1, keepdim=True)")),
    ("one maximum for all, 0 for 0 / 0",
     "Your output is 0 for a query whose scores are all far below those of another query. If you "
     "subtract one maximum from the scores of all queries, the exponentials of the query with the "
     "low scores underflow to 0. Subtract each query's own maximum.",
     (WEIGHTS, f"(({ONE_MAXIMUM}) / ({ONE_MAXIMUM}).sum(dim=-1, keepdim=True)).nan_to_num(0)")),
    ("offset of the new tokens",
     "Your query i sees the keys j <= i + L, where L is the number of new tokens. The offset must "
     "be the number of cached tokens, which is S − L. Allow key j for j <= i + S - L.",
     ("tril(S - L)", "tril(L)")),
    ("two outputs averaged",
     "Your output is the plain mean of attention to the cache and attention to the new tokens. "
     "The part with the larger sum of exponentials must count more. Use one softmax over all "
     "keys.",
     (WEIGHTS, "scores.masked_fill(~mask, -torch.inf)\n    n = (S > L) + 1.0\n"
      "    old, new = (x.softmax(dim=-1) for x in weights.split([S - L, L], dim=-1))\n"
      "    weights = torch.cat([old, new], dim=-1) / n")),
    ("keys in the cache of values",
     "You append the new keys to the cache of values. If keys and values differ in width, your "
     "code fails. Append v to v_cache.",
     ("[v_cache, v]", "[v_cache, k]")),
    ("values in the cache of keys",
     "You append the new values to the cache of keys. If keys and values differ in width, your "
     "code fails. Append k to k_cache.",
     ("[k_cache, k]", "[k_cache, v]")),
    ("new tokens do not see themselves",
     "Your new tokens do not see their own keys. Allow each token its own key: j <= i + S - L.",
     ("tril(S - L)", "tril(S - L - 1)")),
    ("one new token too far",
     "With several new tokens, each of them except the last also sees the next one. Allow each "
     "query one key fewer: j <= i + S - L.",
     ("tril(S - L)", "tril(S - L + 1)")),
    ("only the cache is seen",
     "Your new tokens see only the cache. Let each one also see itself and the new tokens before "
     "it.",
     (ALLOWED, "(torch.arange(S) < S - L).expand(L, S)")),
    ("the cache and itself alone",
     "Each of your new tokens sees only the cache and itself. Let it also see the new tokens "
     "before it.",
     ("\n    scores", "\n    mask &= ~torch.ones(L, S, dtype=torch.bool).tril(S - L - 1) | "
      "(torch.arange(S) < S - L)\n    scores")),
    ("cached scores not scaled", NOT_SCALED, (" / q.shape[-1] ** 0.5", "")),
    ("scaled twice", SCALED_TWICE, (" ** 0.5", "")),
    ("divided by √d_v", BY_D_V, ("q.shape[-1] ** 0.5", "v.shape[-1] ** 0.5")),
    ("divided by √S",
     "Your scores are divided by √S, where S is the number of keys. A score is a sum of d_k "
     "products, so divide by √d_k.",
     ("q.shape[-1] ** 0.5", "S**0.5")),
    ("joined along dimension 1",
     "Right for tensors of shape (B, L, d). With another number of dimensions, the caches are "
     "joined along the wrong dimension. Join them along dimension -2, which always holds the "
     "tokens.",
     ("[k_cache, k], dim=-2", "[k_cache, k], dim=1 if k.ndim == 3 else -1"),
     ("[v_cache, v], dim=-2", "[v_cache, v], dim=1 if v.ndim == 3 else -1")),
    ("cache at the end",
     "Your new tokens come before the cached ones. Put the oldest tokens first.",
     ("[k_cache, k]", "[k, k_cache]"), ("[v_cache, v]", "[v, v_cache]")),
    ("cache not used",
     "Your new tokens see only each other. Put the cached keys and values before the new ones.",
     ("[k_cache, k]", "[k]"), ("[v_cache, v]", "[v]")),
    ("cache grown and not used",
     "You return the extended caches, but the new tokens see only each other. Attend to the "
     "extended caches.",
     ("\n    scores", "\n    mask &= torch.arange(S) >= S - L\n    scores")),
    ("cache not grown",
     "The output is right, but you return the caches as they were. Return them with the new keys "
     "and values appended.",
     ("values, keys, values", "values, k_cache, v_cache")),
    ("only the new ones returned",
     "The output is right, but you return only the new keys and values. Return the caches with the "
     "new keys and values appended.",
     ("values, keys, values", "values, k, v")),
    ("the last token alone",
     "Your output is only that of the last new token. Return a row for each of the L new tokens.",
     ("weights @ values,", "(weights @ values)[..., -1:, :],")),
    ("only the output",
     "Your result is only the output. Return three results: the output and the two extended "
     "caches.",
     ("values, keys, values", "values")),
]  # fmt: skip

exercise = Exercise(
    "4.8", decode, inputs, MISTAKES, names="L d_v|S d_k|S d_v", differentiable=True,
    also_right=[one_by_one, with_sdpa],
)  # fmt: skip
