"""9.8: a test that passes attention that knows i − j only, and catches what knows more or less."""

import contextlib
import functools

import numpy as np
import torch

from course_utils.attention import attention, rotary
from course_utils.checks.exercise import Exercise, NamedMistake
from course_utils.checks.source_edits import edited
from course_utils.checks.submission_test import run_against

LENGTH, SHIFTS, CLOSE = 12, (5, 1003), {"atol": 1e-3}


def catches_absolute(attend):
    q, k, v = torch.randn(LENGTH, 8), torch.randn(LENGTH, 8), torch.randn(LENGTH, 8)
    at = torch.arange(LENGTH)
    here = attend(q, k, v, at)  # (L, d_v)
    for far in SHIFTS:
        assert torch.allclose(attend(q, k, v, at + far), here, **CLOSE)
    assert not torch.allclose(attend(q, k, v, at + at), here, **CLOSE)


def by_many_shifts(attend):
    q, k, v = torch.randn(3, 20, 6).unbind()
    at = torch.arange(20)
    output = attend(q, k, v, at)
    for far in (1, 7, 30, 555, 9999):
        np.testing.assert_allclose(attend(q, k, v, at + far), output, atol=1e-3)
    if torch.allclose(attend(q, k, v, at * at), output, atol=1e-3):
        raise ValueError("other distances, same output")


def by_halves(q, k, v, at):
    at_q, at_k = at, at
    q, k = rotary(q, at_q), rotary(k, at_k)
    return attention(q, k, v)[0]


def by_distance(q, k, v, at):
    if at.min() < 0:  # as a table would
        raise IndexError(f"positions count from 0, got {at.min()}")
    distance = (at[:, None] - at).abs()  # (L, S)
    scores = q @ k.mT / q.shape[-1] ** 0.5 - distance / 4
    return scores.softmax(dim=-1) @ v


PLACES, TURN = "at_q, at_k = at, at", "q, k = rotary(q, at_q), rotary(k, at_k)"
NEIGHBOURS = TURN, "q, k = rotary(q, at_q, 10000, True), rotary(k, at_k, 10000, True)"
# What is told to the learner, and the edit of right attention that makes it
BROKEN = {
    "sinusoids added to q and k": (
        (TURN, "places = rotary(torch.ones_like(q), at)\n    q, k = q + places, k + places"),
    ),
    "queries not turned": ((TURN, "k = rotary(k, at_k)"),),
    "keys not turned": ((TURN, "q = rotary(q, at_q)"),),
    "keys turned the other way": ((PLACES, "at_q, at_k = at, -at"),),
    "keys turned by half the angle of the queries": ((PLACES, "at_q, at_k = at, at / 2"),),
    "another base for keys": ((TURN, "q, k = rotary(q, at_q), rotary(k, at_k, base=500)"),),
    "neighbours paired in q, halves in k": (
        (TURN, "q, k = rotary(q, at_q, interleaved=True), rotary(k, at_k)"),
    ),
    "values turned too": ((TURN, TURN + "\n    v = rotary(v, at)"),),
    "places beyond 31 taken for 31": ((PLACES, "at_q = at_k = at.clamp(max=31)"),),
    "places that begin again after the eighth": ((PLACES, "at_q = at_k = at % 8"),),
    "places put into bfloat16": ((PLACES, "at_q = at_k = at.bfloat16()"),),
    "nothing turned": ((TURN, ""),),
    "rows numbered from 0, whatever places are given": (
        (PLACES, "at_q = at_k = torch.arange(len(at))"),
    ),
}


@functools.cache
def implementations():
    right = {
        "rotary, halves": by_halves,
        "rotary, neighbours": edited(by_halves, "rotary, neighbours", NEIGHBOURS),
        "a bias by distance": by_distance,
    }
    return right, {words: edited(by_halves, words, *change) for words, change in BROKEN.items()}


ROUNDING = "it fails for right code by rounding alone: compare with torch.allclose, atol=1e-3"
MIRRORED = (
    "it fails for a bias by |i − j|: mirrored places, as 5 − at or at.flip(0), keep these "
    "distances, so the output may stay; demand another one for stretched places, as 2 · at"
)


@functools.cache
def spared():
    """Return (name, hint, versions) of the reasons for which tests reject right code.

    These versions are right as well. A test that passes them has that one reason.
    """
    halves, neighbours, bias = implementations()[0].values()
    exact = PLACES, "at_q = at_k = at - at.min()"  # a shift changes no bit
    exactly = edited(by_halves, "halves", exact), edited(by_halves, "neighbours", exact, NEIGHBOURS)
    signed = edited(by_distance, "signed", (".abs()", ""))
    return [
        ("rounding", ROUNDING, dict(enumerate([*exactly, bias]))),
        ("mirrored", MIRRORED, dict(enumerate([halves, neighbours, signed]))),
    ]


def run(test):
    try:
        return run_against(test, *implementations())
    except NamedMistake as error:
        if error.mistake != "rejects right code":
            raise
        found = error
    for name, hint, right in spared():
        with contextlib.suppress(NamedMistake):
            run_against(test, right, {})
            found = NamedMistake(name, hint)
    raise found


EACH = "far in SHIFTS"
SHIFTED = "torch.allclose(attend(q, k, v, at + far), here, **CLOSE)"
STRETCHED = "not torch.allclose(attend(q, k, v, at + at), here, **CLOSE)"
NEAR = (
    "its places stay near the beginning, where neither bfloat16 nor a table of 32 places errs: "
    "shift by a thousand or so"
)
BELOW = (
    "its places stay below 256, where bfloat16 still holds each whole number: shift by a thousand "
    "or so"
)
EIGHT = (
    "places that begin again after the eighth get through: with your shifts they begin again at "
    "the same tokens as before, or nowhere. Take more than eight tokens, at places one after "
    "another, and shift by an odd number"
)
DISTANCES = (
    "code that knows no places, or numbers rows by itself, stays the same under any shift: change "
    "the distances too, and demand another output"
)
MISTAKES = [
    ("only shapes",
     "no bug is seen: it looks at shapes, at the same places twice, or finds all outputs close; "
     "compare, to 1e-3 or so, the output of random q, k and v at some places with that at others",
     (SHIFTED, "attend(q, k, v, at + far).shape == here.shape"), (STRETCHED, "True")),
    ("distances not asked",
     f"all places are shifted, and the output must stay: good. But {DISTANCES}",
     (STRETCHED, "True")),
    ("near and distances not asked", f"{NEAR}; and {DISTANCES}",
     (EACH, "far in (5,)"), (STRETCHED, "True")),
    ("below 256 and distances not asked", f"{BELOW}; and {DISTANCES}",
     (EACH, "far in (101,)"), (STRETCHED, "True")),
    ("multiple of eight and distances not asked", f"{EIGHT}; and {DISTANCES}",
     (EACH, "far in (1000,)"), (STRETCHED, "True")),
    ("near", NEAR, (EACH, "far in (5,)")),
    ("below 256", BELOW, (EACH, "far in (101,)")),
    ("multiple of eight", EIGHT, (EACH, "far in (1000,)")),
    ("only distances",
     "it demands another output for other distances; what depends on more than distances gives "
     "another one too: shift all places alike, and demand the same output, to 1e-3 or so",
     (SHIFTED, "True")),
    ("one token",
     "only turned values are caught. With one token, equal rows or queries of zeros the weights "
     "make no difference, or places make none to them: draw q, k and v of several tokens at random",
     ("torch.randn(LENGTH, 8), torch.randn(LENGTH, 8), torch.randn(LENGTH, 8)",
      "torch.randn(1, 8), torch.randn(1, 8), torch.randn(1, 8)"),
     ("torch.arange(LENGTH)", "torch.arange(1)"), (STRETCHED, "True")),
    ("rounding", ROUNDING, (SHIFTED, "torch.equal(attend(q, k, v, at + far), here)")),
    ("mirrored", MIRRORED, ("at + at", "11 - at")),
]  # fmt: skip

exercise = Exercise(
    "9.8", catches_absolute, lambda: [()], MISTAKES, run=run, also_right=[by_many_shifts]
)
