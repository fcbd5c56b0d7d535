"""9.5: new tokens attend to a cache of turned keys and to each other, each from its own place."""

import torch
import torch.nn.functional as F

from course_utils.attention import rotary
from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.shared_hints import MASK_INVERTED, NOT_SCALED, WEIGHTS_ALONE


def decode_rotary(q, k, v, k_cache, v_cache):
    L, S = q.shape[-2], k_cache.shape[-2] + k.shape[-2]
    places = torch.arange(S - L, S)  # (L,), after what is cached
    q, k = rotary(q, places), rotary(k, places)
    keys = torch.cat([k_cache, k], dim=-2)  # (..., S, d_k), the cached ones are turned already
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
        probe(new=2, cached=2051, d_k=4, d_v=1),  # places beyond bfloat16 and float16
        (q.mT.contiguous().mT, k, v, k_cache.mT.contiguous().mT, v_cache),
    ]


PLACES = "torch.arange(S - L, S)"
TURN = "q, k = rotary(q, places), rotary(k, places)"
MISTAKES = [
    ("place 0 again",
     "the new tokens are turned as if they stood at places 0, 1, …: they come after what is cached",
     (PLACES, "torch.arange(L)")),
    ("queries only from place 0",
     "the keys are at their places, the queries begin at 0 again: both come after what is cached",
     (TURN, "q, k = rotary(q, torch.arange(L)), rotary(k, places)")),
    ("keys only from place 0",
     "the queries are at their places, the new keys begin at 0 again: both stand after the cache",
     (TURN, "q, k = rotary(q, places), rotary(k, torch.arange(L))")),
    ("all at one place",
     "right for one new token; of several, each stands one place after the other",
     (PLACES, "torch.full((L,), S - L)")),
    ("queries all at the last place",
     "the keys are at their places, but the queries are all turned as the last of them; each has "
     "its own place, which differs where several are new",
     (TURN, "q, k = rotary(q, torch.full((L,), S - 1)), rotary(k, places)")),
    ("bfloat16", "places are put into bfloat16, which keeps 8 binary digits: above 256 neighbours "
     "fall together, as the lesson shows", (PLACES, PLACES + ".bfloat16()")),
    ("float16", "places are put into float16, which keeps 11 binary digits: above 2048 neighbours "
     "fall together", (PLACES, PLACES + ".half()")),
    ("begin again", "Your result is right for short texts, but not after 2,000 cached tokens, as "
     "where positions begin again after some number. Count on without a limit.",
     (PLACES, PLACES + " % 64")),
    ("one place too early", "one place too early: with t tokens cached, at places 0 to t − 1, the "
     "first new one stands at t", (PLACES, PLACES + " - 1")),
    ("first dimension counted",
     "right without leading dimensions; the first is taken for the cached tokens, which are "
     "counted by the last but one", (PLACES, "k_cache.shape[0] + torch.arange(L)")),
    ("one place too late", "one place too late: counted from 0, the first new token has as many "
     "before it as are cached", (PLACES, "torch.arange(S - L, S) + 1")),
    ("last place for all", "all new tokens are turned as the last of them; each has its own place",
     (PLACES, "torch.full((L,), S - 1)")),
    ("cache turned again",
     "what comes from the cache is turned once more, alone or with the new keys; it is turned "
     "already",
     ("torch.cat([k_cache, k], dim=-2)", "torch.cat([rotary(k_cache, torch.arange(S - L)), k], "
      "dim=-2)")),
    ("queries not turned", "the queries are not turned; only the difference of both places counts",
     (TURN, "k = rotary(k, places)")),
    ("keys not turned", "the new keys are not turned before they are cached",
     (TURN, "q = rotary(q, places)")),
    ("nothing turned", "nothing new is turned: q and k both go to their places",
     (TURN, "")),
    ("values turned", "the values are turned as well; a place says where to look",
     (TURN, TURN + "\n    d = v.shape[-1]  # an odd width gets a 0 to pair with"
      "\n    v = rotary(torch.nn.functional.pad(v, (0, d % 2)), places)[..., :d]")),
    ("neighbours as pairs", "neighbours are paired; the cached keys were turned by halves",
     (TURN, "q, k = rotary(q, places, 10000, True), rotary(k, places, 10000, True)")),
    ("no mask", "right for one new token; of several, the earlier must not see the later",
     (".tril(S - L)", "")),
    ("itself not seen", "no new token sees itself: the mask leaves out the diagonal",
     (".tril(S - L)", ".tril(S - L - 1)")),
    ("new ones not seen",
     "the new tokens attend to the old cache alone: their own keys and values belong to it first",
     ("scores.masked_fill(~mask, -torch.inf)", "scores[..., : S - L]"),
     ("weights @ values", "weights @ v_cache")),
    ("new ones in front", "the new keys and values stand before the cached ones; they come after",
     ("[k_cache, k]", "[k, k_cache]"), ("[v_cache, v]", "[v, v_cache]")),
    ("is causal",
     "the mask lines up the first query with the first key; the new tokens stand at the end",
     ("tril(S - L)", "tril()")),
    ("not scaled", NOT_SCALED, (" / q.shape[-1] ** 0.5", "")),
    ("unturned keys cached",
     "right output, but the new keys come back unturned; the cache holds turned ones",
     ("    q, k = rot", "    plain = torch.cat([k_cache, k], dim=-2)\n    q, k = rot"),
     ("values, keys, values", "values, plain, values")),
    ("cache not grown", "right output, but the caches come back as they were; return them grown",
     ("values, keys, values", "values, k_cache, v_cache")),
    ("only the output", "return three things: the output and the two grown caches",
     ("values, keys, values", "values")),
    ("query one place late",
     "the keys are at their places, the queries one place further: the last token stands at S − 1, "
     "counted from 0", (TURN, "q, k = rotary(q, places + 1), rotary(k, places)")),
    ("key one place late",
     "the queries are at their places, the new keys one place further: a token's query and key "
     "stand at the same place", (TURN, "q, k = rotary(q, places), rotary(k, places + 1)")),
    ("query one place early",
     "the keys are at their places, the queries one place before: a token's query and key stand "
     "at the same place", (TURN, "q, k = rotary(q, places - 1), rotary(k, places)")),
    ("turned backwards", "queries and new keys are turned backwards, against the cached ones",
     (PLACES, "-" + PLACES)),
    ("mask inverted", MASK_INVERTED, ("~mask, -torch.inf", "mask, -torch.inf"),
     ("dim=-1)\n    return", "dim=-1).nan_to_num()\n    return")),
    ("cache not used", "the new tokens see each other alone; they see the cached ones too",
     ("weights = scores.masked_fill(~mask, -torch.inf)",
      "weights = scores.masked_fill(~mask | (torch.arange(S) < S - L), -torch.inf)")),
    ("weights", WEIGHTS_ALONE, ("return weights @ values", "return weights")),
    ("only the new ones", "right output, but of the caches only the new rows come back; return all",
     ("values, keys, values", "values, keys[..., S - L :, :], values[..., S - L :, :]")),
]  # fmt: skip

exercise = Exercise(
    "9.5", decode_rotary, inputs, MISTAKES, names="L d_v|S d_k|S d_v", differentiable=True,
    also_right=[by_sdpa],
)  # fmt: skip
