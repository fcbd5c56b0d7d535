"""4.9: a test that passes right attention and catches attention that hears what is forbidden."""

import functools

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_04.attention import WEIGHTS, attention
from course_utils.checks.source_edits import edited
from course_utils.checks.submission_test import run_against


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


def drawn(size=1):
    mask = torch.rand(4, 6) < 0.4
    mask[:, 0] = True
    return size * torch.randn(4, 3), torch.randn(6, 3), torch.randn(6, 2), mask


def by_change(attention):
    for size in (1, 1000) * 6:
        q, k, v, mask = drawn(size=size)
        for i in range(len(q)):
            noise = size * torch.randn(6, 1) * ~mask[i][:, None]
            one = attention(q, k, v, mask)[0][i]
            two = attention(q, k + noise, v + noise, mask)[0][i]
            assert torch.allclose(one, two, atol=1e-6)


def sdpa(q, k, v, mask=None):
    eye = torch.eye(k.shape[-2], dtype=q.dtype).expand(*k.shape[:-2], -1, -1)
    weights = F.scaled_dot_product_attention(q, k, eye, attn_mask=mask)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), weights


# What is told to the learner, and the edit of right attention that makes it
BROKEN = {
    "mask after softmax": (WEIGHTS, "scores.softmax(dim=-1) * mask"),
    "mask inverted": ("empty =", "mask = ~mask\n    empty ="),
    "mask ignored": (WEIGHTS, "scores.softmax(dim=-1)"),
    "one key too far": (
        "empty =",
        "mask = mask | torch.cat([mask[..., :1], mask[..., :-1]], -1)\n    empty =",
    ),
    "forbidden scores set to 0": (WEIGHTS, "(scores * mask).softmax(dim=-1)"),
    "mask used only where L = S": (
        "empty =",
        "mask = mask | (mask.shape[-2] != mask.shape[-1])\n    empty =",
    ),
    "a causal mask whatever the mask says": (
        "empty =",
        "mask = causal_mask(*mask.shape[-2:], align='lower_right')\n    empty =",
    ),
    "the first query's mask for all queries": (
        "empty =",
        "mask = mask[..., :1, :].expand(mask.shape)\n    empty =",
    ),
    "weights masked, but the output made from unmasked ones": (
        "weights @ v,",
        "scores.softmax(dim=-1) @ v,",
    ),
    "filled with -200: heard where all allowed scores are lower": (
        "~mask & ~empty, -torch.inf",
        "~mask, -200",
    ),
    "200 taken off: heard where a forbidden score is far above": (
        "scores.masked_fill(~mask & ~empty, -torch.inf)",
        "scores - 200 * ~mask",
    ),
    "masked after softmax, divided by the sums: NaN where a forbidden score is far above": (
        WEIGHTS,
        "scores.softmax(dim=-1) * mask\n    weights = weights / weights.sum(dim=-1, keepdim=True)",
    ),
}


@functools.cache
def implementations():
    right = {
        "scores filled with -inf": attention,
        "scores filled with -1e9": edited(attention, "-1e9", ("& ~empty, -torch.inf", ", -1e9")),
        "scaled_dot_product_attention": sdpa,
    }
    return right, {name: edited(attention, name, edit) for name, edit in BROKEN.items()}


def given(L=4, S=6):
    """Return q (L, 3), k (S, 3), v (S, 2) and a mask (L, S) with something allowed in each row."""
    mask = torch.rand(L, S) < 0.5
    mask[:, 0] = True
    return torch.randn(L, 3), torch.randn(S, 3), torch.randn(S, 2), mask


def only_the_future_of_a_square(attention):
    q, k, v, _ = given(5, 5)
    mask = torch.ones(5, 5).tril() > 0
    output, _ = attention(q, k, v, mask)
    for t in range(1, 5):
        later = (torch.arange(5) >= t)[:, None]
        changed, _ = attention(q + later, k + later, v + later, mask)
        assert torch.allclose(changed[:t], output[:t], atol=1e-6)


def only_values_changed(attention):
    q, k, v, mask = given()
    for j in range(6):
        changed = v.clone()
        changed[j] += 10
        output, other = attention(q, k, v, mask)[0], attention(q, k, changed, mask)[0]
        assert torch.equal(output[~mask[:, j]], other[~mask[:, j]])


QUIET = ("[1, 1000] * 9", "[1]")
SQUARE = ("4, 6", "5, 5")
RANDOM = "torch.rand(L, S) < 0.3"
ON_WEIGHTS = "torch.allclose(weights, expected, atol=1e-2)"
ON_OUTPUT = "torch.allclose(output, expected @ v, atol=1e-2)"

MISTAKES = [
    ("only shapes",
     "it fails for none of these bugs: nothing is asserted (to print is not enough, nor may `try` "
     "catch it), or shapes alone, which they leave as they are, or both calls got the same tensors "
     "(k2 = k copies nothing, k.clone() does); look whether numbers move when something forbidden "
     "is changed",
     QUIET, (ON_WEIGHTS, "weights.shape == (L, S)"), (ON_OUTPUT, "output.shape == (L, 2)")),
    ("only row sums",
     "it sees that rows sum to 1: of these bugs only the mask after softmax breaks that; look "
     "where the weights are 0, and change what is forbidden",
     QUIET, (ON_WEIGHTS, "torch.allclose(weights.sum(dim=-1), torch.ones(L))"),
     (ON_OUTPUT, "True")),
    ("only zeros",
     "it sees the forbidden weights are 0, and not whether forbidden keys are heard otherwise: the "
     "mask after softmax has the zeros too, and the output may be made from other weights",
     QUIET, (ON_WEIGHTS, "(weights[~mask] == 0).all()"), (ON_OUTPUT, "True")),
    ("only square and causal",
     "it tries a causal mask with L = S alone: code that makes its own causal mask, or uses a mask "
     "only where L = S, is right there; draw a mask at random, with L ≠ S",
     QUIET, SQUARE, (RANDOM, "torch.ones(L, S).tril() > 0")),
    ("only the future of a square",
     "it changes the future under a causal mask with L = S alone: code that makes its own causal "
     "mask, uses a mask only where L = S, or the first query's mask for all, gives nothing away "
     "there; draw a mask at random, with L ≠ S", only_the_future_of_a_square),
    ("only square",
     "its mask is random, but L = S: code that uses the mask only where L = S gets through; let L "
     "and S differ", QUIET, SQUARE),
    ("only values changed",
     "it changes forbidden values and not forbidden keys: the mask after softmax multiplies those "
     "values by 0 and still hears the keys, in its denominator; change both", only_values_changed),
    ("only weights",
     "it compares the weights alone; an output made from other weights gets through: look at it "
     "too", QUIET, (ON_OUTPUT, "True")),
    ("nothing forbidden",
     "its mask forbids nothing, so no bug of masking can show; forbid something",
     QUIET, ("< 0.3", "< 2")),
    ("one mask for all queries",
     "all its queries share one mask, so code that uses the first query's for all gets through; "
     "give each query its own row, at random",
     QUIET, (RANDOM, "(torch.rand(S) < 0.3).repeat(L, 1)")),
    ("never loud",
     "all its scores are small: code that takes a finite number off what is forbidden, or masks "
     "after softmax and divides, goes wrong only where scores are in the hundreds; try a q a "
     "thousand times larger too, in several draws", QUIET),
]  # fmt: skip

exercise = Exercise(
    "4.9", catches_leak, lambda: [()], MISTAKES,
    run=lambda test: run_against(test, *implementations()), also_right=[by_change],
)  # fmt: skip
