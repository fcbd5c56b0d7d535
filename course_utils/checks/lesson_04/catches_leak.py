"""4.9: a test that passes right attention and catches attention that leaks forbidden keys."""

import contextlib
import functools
import itertools

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise, NamedMistake
from course_utils.checks.lesson_04.attention import WEIGHTS, attention
from course_utils.checks.source_edits import edited
from course_utils.checks.submission_test import passes, run_against


def catches_leak(attention):
    for size in [1, 1000] * 9:  # scores around 1, and in the hundreds
        L, S = 4, 6
        q, k, v = size * torch.randn(L, 3), torch.randn(S, 3), torch.randn(S, 2)
        mask = torch.rand(L, S) < 0.3
        mask[:, 0] = True
        output, weights = attention(q, k, v, mask)
        scores = (q @ k.T / 3**0.5).masked_fill(~mask, -torch.inf)
        expected = scores.softmax(dim=-1)  # (L, S)
        assert torch.allclose(weights, expected, atol=1e-2)
        assert torch.allclose(output, expected @ v, atol=1e-2)


def random_inputs(size=1):
    mask = torch.rand(4, 6) < 0.4
    mask[:, 0] = True
    return size * torch.randn(4, 3), torch.randn(6, 3), torch.randn(6, 2), mask


def by_change(attention):
    for size in (1, 1000) * 6:
        q, k, v, mask = random_inputs(size=size)
        for i in range(len(q)):
            noise = size * torch.randn(6, 1) * ~mask[i][:, None]
            one = attention(q, k, v, mask)[0][i]
            two = attention(q, k + noise, v + noise, mask)[0][i]
            assert torch.allclose(one, two, atol=1e-6)


def sdpa(q, k, v, mask=None):
    eye = torch.eye(k.shape[-2], dtype=q.dtype).expand(*k.shape[:-2], -1, -1)
    weights = F.scaled_dot_product_attention(q, k, eye, attn_mask=mask)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), weights


# What the learner is told, and the edit of right attention that makes this bug
BROKEN = {
    "mask after softmax": (WEIGHTS, "scores.softmax(dim=-1) * mask"),
    "mask inverted": ("empty =", "mask = ~mask\n    empty ="),
    "mask ignored": (WEIGHTS, "scores.softmax(dim=-1)"),
    "one key too far": (
        "empty =",
        "mask = mask | torch.cat([mask[..., :1], mask[..., :-1]], -1)\n    empty =",
    ),
    "forbidden scores set to 0": (WEIGHTS, "(scores * mask).softmax(dim=-1)"),
    "mask used only if L = S": (
        "empty =",
        "mask = mask | (mask.shape[-2] != mask.shape[-1])\n    empty =",
    ),
    "a causal mask, whatever the mask says": (
        "empty =",
        "mask = causal_mask(*mask.shape[-2:], align='lower_right')\n    empty =",
    ),
    "the first query's mask for all queries": (
        "empty =",
        "mask = mask[..., :1, :].expand(mask.shape)\n    empty =",
    ),
    "weights masked, but output made from unmasked ones": (
        "weights @ v,",
        "scores.softmax(dim=-1) @ v,",
    ),
    "filled with -200: leaks if all allowed scores are lower": (
        "~mask & ~empty, -torch.inf",
        "~mask, -200",
    ),
    "200 subtracted: leaks if a forbidden score is far above the others": (
        "scores.masked_fill(~mask & ~empty, -torch.inf)",
        "scores - 200 * ~mask",
    ),
    "masked after softmax, divided by the sums: NaN if a forbidden score is far above the others": (
        WEIGHTS,
        "scores.softmax(dim=-1) * mask\n    weights = weights / weights.sum(dim=-1, keepdim=True)",
    ),
}


FILLED = "scores filled with -inf"
NEEDS_LARGE = set(list(BROKEN)[-3:])
GIVES_NAN = list(BROKEN)[-1]
FEW_LARGE = (
    "Your test misses code that fails only for some queries, although it has scores in the "
    "hundreds. Such code fails for a query whose allowed scores are all far below −200, or for one "
    "with a forbidden score far above the allowed ones. Make q a thousand times as large, and "
    "repeat the test with twenty random inputs. These pass: "
)


@functools.cache
def implementations():
    right = {
        FILLED: attention,
        "scores filled with -1e9": edited(attention, "-1e9", ("& ~empty, -torch.inf", ", -1e9")),
        "scaled_dot_product_attention": sdpa,
    }
    return right, {name: edited(attention, name, edit) for name, edit in BROKEN.items()}


def run(test):
    """Try a test on all versions, and measure the scores of its inputs.

    Where only code gets through that needs large scores, and the scores are large, the hint says
    which ones are missing.
    """
    right, broken = implementations()
    largest = [0.0]

    def measured(q, k, v, mask=None):
        with contextlib.suppress(Exception):  # it is for the test to say what is wrong
            largest.append((q @ k.mT / q.shape[-1] ** 0.5).abs().max().item())
        return attention(q, k, v, mask)

    try:
        return run_against(test, {**right, FILLED: measured}, broken)
    except NamedMistake as error:
        if error.mistake == "rejects right code":
            for name, (implementation, hint) in accepted_instead().items():
                if passes(test, implementation):
                    raise NamedMistake(name, hint) from None
        escaped = error.hint.partition(" These pass: ")[2].rstrip(".").split("; ")
        if {*broken} - {GIVES_NAN} <= {*escaped}:  # only NaN is caught, or nothing
            other_numbers, wrong_shapes = nonsense()
            if passes(test, zeros) and not passes(test, other_numbers):
                raise NamedMistake("the same tensors twice", SAME_TENSORS) from None
            if GIVES_NAN in escaped and passes(test, wrong_shapes):
                raise NamedMistake("nothing at all", NOTHING) from None
        if max(largest) > 200 and set(escaped) <= NEEDS_LARGE:
            raise NamedMistake(
                "too few large scores", FEW_LARGE + "; ".join(escaped) + "."
            ) from None
        raise


def nonsense():
    """Return an implementation with other numbers at each call, and one with wrong shapes."""
    count = itertools.count()

    def other_numbers(q, k, v, mask=None):
        numbers = torch.full((*q.shape[:-1], v.shape[-1] + k.shape[-2]), float(next(count)))
        return numbers[..., : v.shape[-1]], numbers[..., v.shape[-1] :]

    def wrong_shapes(q, k, v, mask=None):
        return q.new_zeros(*q.shape[:-1], v.shape[-1] + 1), q.new_zeros(*q.shape[:-1], 1)

    return other_numbers, wrong_shapes


def without_forbidden_values(q, k, v, mask):
    """Return right attention, even if a forbidden key or value is inf or NaN."""
    _, weights = attention(q, k, v, mask)
    allowed = v[..., None, :, :].masked_fill(~mask[..., None], 0)  # (..., L, S, d_v)
    return (weights[..., None] * allowed).sum(dim=-2), weights


def zeros(q, k, v, mask=None):
    return q.new_zeros(*q.shape[:-1], v.shape[-1]), q.new_zeros(*q.shape[:-1], k.shape[-2])


def accepted_instead():
    """Return (implementation, hint) for tests that reject right code, by a mistake's name."""
    inverted = implementations()[1]["mask inverted"]
    return {
        "forbidden inf or NaN": (without_forbidden_values, FINITE_NUMBERS),
        "mask read as forbidden": (inverted, READ_AS_FORBIDDEN),
        "queries that may see the key": (zeros, ONLY_HIDDEN),
    }


FINITE_NUMBERS = (
    "Your test fails for correct code if a forbidden value is inf or NaN, because 0 · inf is NaN. "
    "Change forbidden keys and values to other finite numbers."
)
READ_AS_FORBIDDEN = (
    "Your test fails for correct code, but passes code that inverts the mask. True in the mask "
    "means 'may attend'. Change only keys and values where the mask is False."
)
ONLY_HIDDEN = (
    "Your test fails for correct code, but passes code whose output is always 0. If you compare "
    "the outputs of two calls, leave out the queries that may see a changed key, and keep the rows "
    "where ~mask[:, j]. If you compare them exactly, allow for rounding with torch.allclose."
)
SAME_TENSORS = (
    "Your test misses code that leaks, because the two outputs that it compares are equal for "
    "leaking code too. If you write k2 = k, both names stand for one tensor. Use k.clone(), "
    "change forbidden keys and values in the copies, and compare the outputs. Repeat with scores "
    "in the hundreds, to catch leaks that show only there."
)
NOTHING = (
    "Your test misses all broken code, because nothing in it can fail. Write `assert` before the "
    'comparison. If you give it a message, use no parentheses: `assert (same, "leak")` is always '
    "true, because it asserts a tuple."
)


def inputs_of_size(L=4, S=6):
    """Return q (L, 3), k (S, 3), v (S, 2) and a mask (L, S) with an allowed key in each row."""
    mask = torch.rand(L, S) < 0.5
    mask[:, 0] = True
    return torch.randn(L, 3), torch.randn(S, 3), torch.randn(S, 2), mask


def only_the_future_of_a_square(attention):
    q, k, v, _ = inputs_of_size(5, 5)
    mask = torch.ones(5, 5).tril() > 0
    output, _ = attention(q, k, v, mask)
    for t in range(1, 5):
        later = (torch.arange(5) >= t)[:, None]
        changed, _ = attention(q + later, k + later, v + later, mask)
        assert torch.allclose(changed[:t], output[:t], atol=1e-6)


def only_values_changed(attention):
    q, k, v, mask = inputs_of_size()
    for j in range(6):
        changed = v.clone()
        changed[j] += 10
        output, other = attention(q, k, v, mask)[0], attention(q, k, changed, mask)[0]
        assert torch.equal(output[~mask[:, j]], other[~mask[:, j]])


def same_tensors_twice(attention):
    q, k, v, mask = inputs_of_size()
    k2, v2 = k, v
    k2[1:], v2[1:] = k2[1:] + ~mask.any(0)[1:, None], v2[1:] + ~mask.any(0)[1:, None]
    assert torch.allclose(attention(q, k, v, mask)[0], attention(q, k2, v2, mask)[0])


SMALL_SCORES = ("[1, 1000] * 9", "[1]")
SQUARE = ("4, 6", "5, 5")
RANDOM = "torch.rand(L, S) < 0.3"
ON_WEIGHTS = "torch.allclose(weights, expected, atol=1e-2)"
ON_OUTPUT = "torch.allclose(output, expected @ v, atol=1e-2)"

MISTAKES = [
    ("nothing at all", NOTHING, SMALL_SCORES, (ON_WEIGHTS, "True"), (ON_OUTPUT, "True")),
    ("the same tensors twice", SAME_TENSORS, same_tensors_twice),
    ("only shapes",
     "Your test misses all broken code, because nothing that it asserts depends on forbidden "
     "keys, as if it looked only at shapes. Change forbidden keys and values, and assert that "
     "the output stays the same. Repeat with scores in the hundreds, to catch leaks that show "
     "only there.",
     SMALL_SCORES, (ON_WEIGHTS, "weights.shape == (L, S)"), (ON_OUTPUT, "output.shape == (L, 2)")),
    ("only row sums",
     "Your test misses every leak in which the weights of a query still sum to 1, as a test of "
     "these sums does. Change forbidden keys and values, and assert that the output stays the "
     "same. Repeat with scores in the hundreds, to catch leaks that show only there.",
     SMALL_SCORES, (ON_WEIGHTS, "torch.allclose(weights.sum(dim=-1), torch.ones(L))"),
     (ON_OUTPUT, "True")),
    ("only zeros",
     "Your test misses code that masks after softmax, and code that computes its output from "
     "weights other than those it returns. Both can return forbidden weights of 0, so it is not "
     "enough to check those weights. Change forbidden keys, and assert that the output stays the "
     "same. Repeat with scores in the hundreds, to catch leaks that show only there.",
     SMALL_SCORES, (ON_WEIGHTS, "(weights[~mask] == 0).all()"), (ON_OUTPUT, "True")),
    ("only square and causal",
     "Your test misses code that makes its own causal mask, and code that ignores the mask when "
     "L ≠ S, because your mask is always causal with L = S. Try a random mask with L ≠ S. Repeat "
     "with scores in the hundreds, to catch leaks that show only there.",
     SMALL_SCORES, SQUARE, (RANDOM, "torch.ones(L, S).tril() > 0")),
    ("only the future of a square",
     "Your test changes only the future, under a causal mask with L = S. Code that makes its own "
     "causal mask, or applies the first query's mask to every query, passes it. Try a random "
     "mask with L ≠ S, and change every forbidden key. Repeat with scores in the hundreds, to "
     "catch leaks that show only there.", only_the_future_of_a_square),
    ("only square",
     "Your test misses code that ignores the mask when L ≠ S, because L = S in your test. Try L "
     "≠ S. Repeat with scores in the hundreds, to catch leaks that show only there.",
     SMALL_SCORES, SQUARE),
    ("only values changed",
     "Your test misses code that masks after softmax, because you change forbidden values, but "
     "not forbidden keys. Such code multiplies the values by 0, but the keys still count in the "
     "denominator. Change both keys and values. Repeat with scores in the hundreds, to catch "
     "leaks that show only there.",
     only_values_changed),
    ("only weights",
     "Your test misses code that computes its output from unmasked weights, because you compare "
     "only the weights. Compare the outputs too. Repeat with scores in the hundreds, to catch "
     "leaks that show only there.",
     SMALL_SCORES, (ON_OUTPUT, "True")),
    ("nothing forbidden",
     "Your test misses most leaks, because its mask forbids nothing. Use a mask that forbids "
     "some of the keys. Repeat with scores in the hundreds, to catch leaks that show only there.",
     SMALL_SCORES, ("< 0.3", "< 2")),
    ("one mask for all queries",
     "Your test misses code that applies the first query's mask to every query. You get this "
     "result if all queries share one mask, or if each key that you change is forbidden to every "
     "query. Give each query its own random row of the mask. Change every key in turn, and check "
     "the queries that must not see it. Repeat with scores in the hundreds, to catch leaks that "
     "show only there.",
     SMALL_SCORES, (RANDOM, "(torch.rand(S) < 0.3).repeat(L, 1)")),
    ("never large scores",
     "Your test misses code that fails only with scores in the hundreds, because all scores in "
     "your test are small. Such code subtracts a finite number from forbidden scores, or masks "
     "after softmax and divides. Repeat the test with a q that is a thousand times as large.",
     SMALL_SCORES),
]  # fmt: skip

exercise = Exercise(
    "4.9", catches_leak, lambda: [()], MISTAKES,
    run=run, also_right=[by_change],
)  # fmt: skip
