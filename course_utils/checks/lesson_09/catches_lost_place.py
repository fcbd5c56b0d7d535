"""9.6: a test that passes right decoding with turned keys and catches lost places."""

import functools

import numpy as np
import torch

from course_utils.attention import attention, causal_mask, rotary
from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_09.decode_rotary import PLACES, decode_rotary
from course_utils.checks.lesson_09.decode_rotary import exercise as decoding
from course_utils.checks.submission_test import run_against, versions

LENGTH, PARTS = 12, ([1] * 12, [5, 4, 3])


def catches_lost_place(decode):
    q, k, v = torch.randn(LENGTH, 8), torch.randn(LENGTH, 8), torch.randn(LENGTH, 4)
    at = torch.arange(LENGTH)
    whole, _ = attention(rotary(q, at), rotary(k, at), v, causal_mask(LENGTH))  # (L, d_v)
    for parts in PARTS:
        k_cache, v_cache, outputs = torch.empty(0, 8), torch.empty(0, 4), []
        for new in zip(q.split(parts), k.split(parts), v.split(parts), strict=True):
            output, k_cache, v_cache = decode(*new, k_cache, v_cache)
            outputs.append(output)
        assert torch.allclose(torch.cat(outputs), whole, atol=1e-4)


def by_scores(decode):
    q, k, v = torch.randn(10, 6), torch.randn(10, 6), torch.randn(10, 3)
    at = torch.arange(10)
    scores = rotary(q, at) @ rotary(k, at).T / 6**0.5
    scores[torch.ones(10, 10).triu(1) > 0] = -torch.inf
    whole = scores.softmax(-1) @ v
    k_cache, v_cache = torch.zeros(0, 6), torch.zeros(0, 3)
    for first, last in [(0, 3), (3, 4), (4, 10)]:
        output, k_cache, v_cache = decode(
            q[first:last], k[first:last], v[first:last], k_cache, v_cache
        )
        np.testing.assert_allclose(output, whole[first:last], atol=1e-4)
    assert len(k_cache) == len(v_cache) == 10


def one_after_another(q, k, v, k_cache, v_cache):
    outputs = []
    for t in range(len(q)):
        new = slice(t, t + 1)
        place = torch.tensor([len(k_cache)])
        k_cache = torch.cat([k_cache, rotary(k[new], place)])
        v_cache = torch.cat([v_cache, v[new]])
        outputs.append(attention(rotary(q[new], place), k_cache, v_cache)[0])
    return torch.cat(outputs), k_cache, v_cache


# What is told to the learner, and the mistake of 9.5, or the edit of right decoding, that makes it
BROKEN = {
    "every call begins at place 0 again": "place 0 again",
    "the new query at place 0, keys right": "queries only from place 0",
    "the new key at place 0, queries right": "keys only from place 0",
    "several new tokens, all at one place": "all at one place",
    "cached keys turned again at each call": "cache turned again",
    "queries not turned": "queries not turned",
    "keys not turned": "keys not turned",
    "neither queries nor keys turned": "nothing turned",
    "values turned too": "values turned",
    "several new tokens that see each other's future": "no mask",
    "unturned keys put into the cache": "unturned keys cached",
    "a cache that does not grow": "cache not grown",
    "a single new token at place 0, several at the right ones": (
        PLACES,
        "torch.arange(S - L, S) * (L > 1)",
    ),
    "places that begin again after the eighth": (PLACES, "torch.arange(S - L, S) % 8"),
}


@functools.cache
def implementations():
    right = {"all new tokens at once": decode_rotary, "one after another": one_after_another}
    return right, versions(decoding, BROKEN)


WHOLE = "whole, _ = attention(rotary(q, at), rotary(k, at), v, causal_mask(LENGTH))"
SAME = "torch.allclose(torch.cat(outputs), whole, atol=1e-4)"
MISTAKES = [
    ("only shapes",
     "it looks at shapes: of these bugs only a cache that does not grow changes one; compare "
     "the numbers with attention over the whole text in one pass",
     (SAME, "torch.cat(outputs).shape == whole.shape and len(k_cache) == LENGTH")),
    ("nothing asserted", "it asserts nothing about the output: compare it with the whole text's",
     (SAME, "True")),
    ("all at once",
     "it decodes the whole text in one call, with an empty cache: there every place is right; give "
     "the tokens in several calls", ("in PARTS", "in [[LENGTH]]")),
    ("one at a time only",
     "it gives one token a call: what goes wrong among several new ones is not seen; try parts of "
     "several tokens as well", ("in PARTS", "in [[1] * LENGTH]")),
    ("against itself",
     "it compares decode with decode: what is wrong in the same way in both, as nothing turned at "
     "all, gets through; compare with rotary and attention over the whole text",
     (WHOLE, "whole, *_ = decode(q, k, v, torch.empty(0, 8), torch.empty(0, 4))")),
    ("too short",
     "its text is so short that places that begin again after the eighth are all right; take "
     "twelve tokens or more",
     ("q, k, v = torch.randn(LENGTH, 8), torch.randn(LENGTH, 8), torch.randn(LENGTH, 4)",
      "q, k, v = torch.randn(6, 8), torch.randn(6, 8), torch.randn(6, 4)"),
     ("at = torch.arange(LENGTH)", "at = torch.arange(6)"),
     ("causal_mask(LENGTH)", "causal_mask(6)"), ("in PARTS", "in ([1] * 6, [2, 4])")),
    ("first call only",
     "it looks at the first call, where nothing is cached: the bugs show from the second on",
     (SAME, "torch.allclose(outputs[0], whole[: len(outputs[0])], atol=1e-4)")),
    ("last token only",
     "it looks at the last token alone; of several new tokens the last sees all anyway, so a "
     "missing mask gets through: compare all rows",
     (SAME, "torch.allclose(outputs[-1][-1], whole[-1], atol=1e-4)")),
]  # fmt: skip

exercise = Exercise(
    "9.6", catches_lost_place, lambda: [()], MISTAKES,
    run=lambda test: run_against(test, *implementations()), also_right=[by_scores],
)  # fmt: skip
