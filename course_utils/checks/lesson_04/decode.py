"""4.8: new tokens attend to a cache and to each other, and the caches grow."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.shared_hints import BY_D_V, NOT_SCALED


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
        probe(2, 3, new=3, cached=4, d_k=5, d_v=2),  # several tokens at once
        probe(2, new=4, cached=0, d_k=3, d_v=6),  # nothing cached yet
        probe(2, 2, new=2, cached=2, d_k=4, d_v=5),
        probe(new=1, cached=0, d_k=2, d_v=3),
        probe(1, 1, new=2, cached=11, d_k=3, d_v=4, dtype=torch.float32),
        probe(5, new=12, cached=9, d_k=4, d_v=1),
        (q.mT.contiguous().mT, k, v, k_cache.mT.contiguous().mT, v_cache),
        ((300 * q).round(), k.round(), v, k_cache.round(), v_cache),  # scores in the hundreds
    ]


ALLOWED = "torch.ones(L, S, dtype=torch.bool).tril(S - L)"

MISTAKES = [
    ("is causal",
     "the mask lines up the first query with the first key, as is_causal does: the new tokens "
     "stand at the end of the cache, causal_mask(L, S)", ("tril(S - L)", "tril()")),
    ("no mask", "right for one new token; of several, the earlier must not see the later",
     (ALLOWED, "torch.ones(L, S, dtype=torch.bool)")),
    ("no mask without a cache",
     "right, but with nothing cached yet: there too an earlier token must not see a later one",
     (ALLOWED, "torch.ones(L, S, dtype=torch.bool).tril(S - L if S > L else S)")),
    ("mask inverted",
     "the mask is used the wrong way round: the new tokens see only what comes after them",
     ("(~mask", "(mask"), ("softmax(dim=-1)", "softmax(dim=-1).nan_to_num(0)")),
    ("new tokens do not see themselves", "a new token must see its own key too",
     ("tril(S - L)", "tril(S - L - 1)")),
    ("one new token too far", "of several new tokens, each sees the next one: one key too far",
     ("tril(S - L)", "tril(S - L + 1)")),
    ("only the cache is seen", "the new tokens see the cache and not each other or themselves",
     (ALLOWED, "(torch.arange(S) < S - L).expand(L, S)")),
    ("the cache and itself alone",
     "each new token sees the cache and itself, but not the new tokens before it",
     ("\n    scores", "\n    mask &= ~torch.ones(L, S, dtype=torch.bool).tril(S - L - 1) | "
      "(torch.arange(S) < S - L)\n    scores")),
    ("cached scores not scaled", NOT_SCALED, (" / q.shape[-1] ** 0.5", "")),
    ("divided by √d_v", BY_D_V, ("q.shape[-1] ** 0.5", "v.shape[-1] ** 0.5")),
    ("divided by √S", "divided by √S, the number of keys; scores are sums over d_k products: √d_k",
     ("q.shape[-1] ** 0.5", "S**0.5")),
    ("cache at the end", "the new tokens are put before the cache: the oldest stands first",
     ("[k_cache, k]", "[k, k_cache]"), ("[v_cache, v]", "[v, v_cache]")),
    ("cache not used", "the cache is not used: the new tokens see only each other",
     ("[k_cache, k]", "[k]"), ("[v_cache, v]", "[v]")),
    ("cache grown and not used",
     "the caches grow, but attention has the new keys and values alone: the new tokens see only "
     "each other", ("\n    scores", "\n    mask &= torch.arange(S) >= S - L\n    scores")),
    ("cache not grown",
     "right output, but the caches come back as they were: return the grown ones",
     ("values, keys, values", "values, k_cache, v_cache")),
    ("only the new ones returned",
     "right output, but of the caches only the new rows come back: return the grown ones",
     ("values, keys, values", "values, k, v")),
    ("the last token alone",
     "the output is that of the last new token alone: each of the L new ones has its row",
     ("weights @ values,", "(weights @ values)[..., -1:, :],")),
    ("only the output", "return three things: the output and the two grown caches",
     ("values, keys, values", "values")),
]  # fmt: skip

exercise = Exercise(
    "4.8", decode, inputs, MISTAKES, names="L d_v|S d_k|S d_v", differentiable=True,
    also_right=[one_by_one, with_sdpa],
)  # fmt: skip
