"""9.8: a test that the output depends on the distances i − j, and only on them."""

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


POSITIONS, ROTATE = "at_q, at_k = at, at", "q, k = rotary(q, at_q), rotary(k, at_k)"
NEIGHBORS = ROTATE, "q, k = rotary(q, at_q, 10000, True), rotary(k, at_k, 10000, True)"
# The name that learners see, and the edit of right attention
BROKEN = {
    "sinusoids added to q and k": (
        (
            ROTATE,
            "positions = rotary(torch.ones_like(q), at)\n    q, k = q + positions, k + positions",
        ),
    ),
    "queries not rotated": ((ROTATE, "k = rotary(k, at_k)"),),
    "keys not rotated": ((ROTATE, "q = rotary(q, at_q)"),),
    "keys rotated in the other direction": ((POSITIONS, "at_q, at_k = at, -at"),),
    "keys rotated by half the angle of the queries": ((POSITIONS, "at_q, at_k = at, at / 2"),),
    "another base for keys": ((ROTATE, "q, k = rotary(q, at_q), rotary(k, at_k, base=500)"),),
    "interleaved layout for q, halves layout for k": (
        (ROTATE, "q, k = rotary(q, at_q, interleaved=True), rotary(k, at_k)"),
    ),
    "values that are rotated too": ((ROTATE, ROTATE + "\n    v = rotary(v, at)"),),
    "positions above 31 replaced by 31": ((POSITIONS, "at_q = at_k = at.clamp(max=31)"),),
    "positions counted modulo 8": ((POSITIONS, "at_q = at_k = at % 8"),),
    "positions in bfloat16": ((POSITIONS, "at_q = at_k = at.bfloat16()"),),
    "nothing rotated": ((ROTATE, ""),),
    "rows numbered from 0, with the given positions ignored": (
        (POSITIONS, "at_q = at_k = torch.arange(len(at))"),
    ),
}


@functools.cache
def implementations():
    right = {
        "rotary, halves": by_halves,
        "rotary, interleaved": edited(by_halves, "rotary, interleaved", NEIGHBORS),
        "a distance bias": by_distance,
    }
    return right, {words: edited(by_halves, words, *change) for words, change in BROKEN.items()}


ROUNDING = (
    "Your test rejects correct code because of rounding. Compare with torch.allclose and atol=1e-3."
)
MIRRORED = (
    "Your test rejects correct code: a bias that depends only on |i − j|. Mirrored positions, "
    "such as positions.flip(0), keep these distances, so the output may stay the same. Use "
    "stretched positions, such as 2 * positions."
)


@functools.cache
def spared():
    """Return (name, hint, versions) for each reason why a test may reject right code.

    These versions are right as well. A test that accepts them has only this one fault.
    """
    halves, neighbors, bias = implementations()[0].values()
    exact = POSITIONS, "at_q = at_k = at - at.min()"  # a shift changes no bit
    exactly = edited(by_halves, "halves", exact), edited(by_halves, "neighbors", exact, NEIGHBORS)
    signed = edited(by_distance, "signed", (".abs()", ""))
    return [
        ("rounding", ROUNDING, dict(enumerate([*exactly, bias]))),
        ("mirrored", MIRRORED, dict(enumerate([halves, neighbors, signed]))),
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
    "Your test misses positions in bfloat16 and positions that stop at 31, because all your "
    "positions are small. Shift them by a thousand or so."
)
BELOW = (
    "Your test misses positions in bfloat16, because your positions stay below 256, where "
    "bfloat16 represents every integer. Shift them by a thousand or so."
)
EIGHT = (
    "Your test misses code that counts positions modulo 8. Such code starts again from 0 at 8, 16, "
    "24, …. A shift by a multiple of 8 does not change its output, and a few tokens may all lie "
    "between two such jumps. Use more than eight tokens at consecutive positions, and shift them "
    "by an odd number."
)
DISTANCES = (
    "misses code that ignores the positions, because no shift changes its output. Also change the "
    "distances, and require a different output."
)
MISTAKES = [
    ("only shapes",
     "Your test catches no bug. It may compare only shapes, use the same positions twice, or "
     "accept all outputs as close. Use random q, k and v. Compare the outputs at positions 0 to L "
     "− 1 and at the same positions, all shifted by one number, with a tolerance of about 1e-3. "
     "Also change the distances, and require a different output.",
     (SHIFTED, "attend(q, k, v, at + far).shape == here.shape"), (STRETCHED, "True")),
    ("distances not asked",
     f"Your shifts are right. But your test {DISTANCES}",
     (STRETCHED, "True")),
    ("near and distances not asked", f"{NEAR} Your test also {DISTANCES}",
     (EACH, "far in (5,)"), (STRETCHED, "True")),
    ("below 256 and distances not asked", f"{BELOW} Your test also {DISTANCES}",
     (EACH, "far in (101,)"), (STRETCHED, "True")),
    ("multiple of eight and distances not asked", f"{EIGHT} Your test also {DISTANCES}",
     (EACH, "far in (1000,)"), (STRETCHED, "True")),
    ("near", NEAR, (EACH, "far in (5,)")),
    ("below 256", BELOW, (EACH, "far in (101,)")),
    ("multiple of eight", EIGHT, (EACH, "far in (1000,)")),
    ("only distances",
     "Your test misses code that depends on more than distances, because it requires only that "
     "different distances give a different output. Also shift all positions by the same number, "
     "and require the same output, with a tolerance of about 1e-3.",
     (SHIFTED, "True")),
    ("one token",
     "Your test catches only rotated values. With one token, with equal rows, or with queries of "
     "zeros, the positions do not change the weights. Use random q, k and v with several tokens. "
     "Also change the distances, and require a different output.",
     ("torch.randn(LENGTH, 8), torch.randn(LENGTH, 8), torch.randn(LENGTH, 8)",
      "torch.randn(1, 8), torch.randn(1, 8), torch.randn(1, 8)"),
     ("torch.arange(LENGTH)", "torch.arange(1)"), (STRETCHED, "True")),
    ("rounding", ROUNDING, (SHIFTED, "torch.equal(attend(q, k, v, at + far), here)")),
    ("mirrored", MIRRORED, ("at + at", "11 - at")),
]  # fmt: skip

exercise = Exercise(
    "9.8", catches_absolute, lambda: [()], MISTAKES, run=run, also_right=[by_many_shifts]
)
