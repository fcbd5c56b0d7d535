"""9.6: a test that passes right decoding with rotated keys and catches wrong positions."""

import functools

import numpy as np
import torch

from course_utils.attention import attention, causal_mask, rotary
from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_09.decode_rotary import POSITIONS, decode_rotary
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
        position = torch.tensor([len(k_cache)])
        k_cache = torch.cat([k_cache, rotary(k[new], position)])
        v_cache = torch.cat([v_cache, v[new]])
        outputs.append(attention(rotary(q[new], position), k_cache, v_cache)[0])
    return torch.cat(outputs), k_cache, v_cache


# The name that learners see, and a mistake of 9.5 or an edit of right decoding
BROKEN = {
    "positions that start at 0 again in every call": "position 0 again",
    "queries at position 0 again, keys right": "queries only from position 0",
    "new keys at position 0 again, queries right": "keys only from position 0",
    "several new tokens at the same position": "all at one position",
    "cached keys that are rotated again in every call": "cache rotated again",
    "queries not rotated": "queries not rotated",
    "keys not rotated": "keys not rotated",
    "neither queries nor keys rotated": "nothing rotated",
    "values that are rotated too": "values rotated",
    "several new tokens that see later ones": "no mask",
    "unrotated keys put into the cache": "unrotated keys cached",
    "a cache that does not grow": "cache not grown",
    "a single new token at position 0, several at the right positions": (
        POSITIONS,
        "torch.arange(S - L, S) * (L > 1)",
    ),
    "positions counted modulo 8": (
        POSITIONS,
        "torch.arange(S - L, S) % 8",
    ),
}


@functools.cache
def implementations():
    right = {"all new tokens at once": decode_rotary, "one after another": one_after_another}
    return right, versions(decoding, BROKEN)


WHOLE = "whole, _ = attention(rotary(q, at), rotary(k, at), v, causal_mask(LENGTH))"
SAME = "torch.allclose(torch.cat(outputs), whole, atol=1e-4)"
MISTAKES = [
    ("only shapes",
     "Your test catches only bugs that change a shape. Most bugs here change numbers. Compare the"
     " outputs with those of attention over the whole text in one pass.",
     (SAME, "torch.cat(outputs).shape == whole.shape and len(k_cache) == LENGTH")),
    ("nothing asserted",
     "Your test asserts nothing about the outputs. Compare them with those of attention over the "
     "whole text in one pass.",
     (SAME, "True")),
    ("all at once",
     "Your test decodes the whole text in one call with an empty cache. There, the positions are "
     "right even in the broken versions that start at 0 again. Pass the tokens in several calls.",
     ("in PARTS", "in [[LENGTH]]")),
    ("one at a time only",
     "Your test misses bugs that show only with several new tokens, because it passes one token "
     "per call. Also use calls with several tokens.",
     ("in PARTS", "in [[1] * LENGTH]")),
    ("against itself",
     "Your test compares decode with decode, so it misses bugs that show in both calls, such as "
     "no rotation at all. Compare with `rotary` and `attention` over the whole text.",
     (WHOLE, "whole, *_ = decode(q, k, v, torch.empty(0, 8), torch.empty(0, 4))")),
    ("too short",
     "Your text is too short to show positions counted modulo 8, which differ only after the "
     "eighth token. Use at least ten tokens.",
     ("q, k, v = torch.randn(LENGTH, 8), torch.randn(LENGTH, 8), torch.randn(LENGTH, 4)",
      "q, k, v = torch.randn(6, 8), torch.randn(6, 8), torch.randn(6, 4)"),
     ("at = torch.arange(LENGTH)", "at = torch.arange(6)"),
     ("causal_mask(LENGTH)", "causal_mask(6)"), ("in PARTS", "in ([1] * 6, [2, 4])")),
    ("first call only",
     "Your test compares only the first call, in which the cache is empty. It misses bugs that "
     "show only with cached tokens. Compare the outputs of all calls.",
     (SAME, "torch.allclose(outputs[0], whole[: len(outputs[0])], atol=1e-4)")),
    ("last token only",
     "Your test compares only the last token. Among several new tokens, the last one may see all "
     "others, so a missing mask does not show there. Compare all rows.",
     (SAME, "torch.allclose(outputs[-1][-1], whole[-1], atol=1e-4)")),
]  # fmt: skip

exercise = Exercise(
    "9.6", catches_lost_place, lambda: [()], MISTAKES,
    run=lambda test: run_against(test, *implementations()), also_right=[by_scores],
)  # fmt: skip
