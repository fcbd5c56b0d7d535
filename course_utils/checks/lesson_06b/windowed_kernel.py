"""6b.1: a sliding window in the loop of a flash kernel."""

import torch

from course_utils.checks.exercise import Exercise, NamedMistake
from course_utils.checks.inputs import normals
from course_utils.checks.submission_kernel import launch, tl, triton

BLOCK = 16


def windowed_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, N, window, scale, D: tl.constexpr, BLOCK: tl.constexpr
):
    start_q = tl.program_id(0) * BLOCK
    d = tl.arange(0, D)[None, :]  # (1, D)
    i = start_q + tl.arange(0, BLOCK)[:, None]  # (BLOCK, 1), this program's queries
    q = tl.load(q_ptr + i * D + d, mask=i < N, other=0)  # (BLOCK, D)
    m = tl.full((BLOCK,), -float("inf"), tl.float32)
    ell = tl.full((BLOCK,), 0, tl.float32)
    acc = tl.full((BLOCK, D), 0, tl.float32)
    first = tl.maximum(start_q - window + 1, 0) // BLOCK * BLOCK
    for start in range(first, tl.minimum(start_q + BLOCK, N), BLOCK):
        rows = start + tl.arange(0, BLOCK)[:, None]  # (BLOCK, 1), keys
        k = tl.load(k_ptr + rows * D + d, mask=rows < N, other=0)  # (BLOCK, D)
        v = tl.load(v_ptr + rows * D + d, mask=rows < N, other=0)  # (BLOCK, D)
        scores = tl.dot(q, tl.trans(k)) * scale  # (BLOCK, BLOCK)
        j = start + tl.arange(0, BLOCK)[None, :]  # (1, BLOCK), the same keys, as columns
        scores = tl.where((j <= i) & (i - j < window), scores, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        base = tl.where(m_new == -float("inf"), 0, m_new)  # a query may have seen no key yet
        p = tl.exp(scores - base[:, None])  # (BLOCK, BLOCK)
        shrink = tl.exp(m - base)
        ell = ell * shrink + tl.sum(p, axis=1)
        acc = acc * shrink[:, None] + tl.dot(p, v)
        m = m_new
    tl.store(out_ptr + i * D + d, acc / ell[:, None], mask=i < N)


@triton.jit
def window_backwards(
    q_ptr, k_ptr, v_ptr, out_ptr, N, window, scale, D: tl.constexpr, BLOCK: tl.constexpr
):
    """From the queries' own block back, in base 2, with a finite start."""
    own = tl.program_id(0)
    i = own * BLOCK + tl.arange(0, BLOCK)
    at = i[:, None] * D + tl.arange(0, D)
    q = tl.load(q_ptr + at, mask=i[:, None] < N, other=0) * (scale * 1.4426950408889634)
    m = tl.full((BLOCK,), -1e30, tl.float32)
    ell = tl.zeros((BLOCK,), tl.float32)
    acc = tl.zeros((BLOCK, D), tl.float32)
    for back in range(0, tl.minimum(own, (window + BLOCK - 2) // BLOCK) + 1):
        j = (own - back) * BLOCK + tl.arange(0, BLOCK)
        there = j[:, None] * D + tl.arange(0, D)
        k = tl.load(k_ptr + there, mask=j[:, None] < N, other=0)
        v = tl.load(v_ptr + there, mask=j[:, None] < N, other=0)
        age = i[:, None] - j[None, :]
        s = tl.dot(q, k.T) + tl.where((age >= 0) & (age < window), 0, -float("inf"))
        top = tl.maximum(m, tl.max(s, 1))
        p, old = tl.exp2(s - top[:, None]), tl.exp2(m - top)
        ell = ell * old + p.sum(1)
        acc = tl.dot(p, v, acc * old[:, None])
        m = top
    tl.store(out_ptr + at, acc / ell[:, None], mask=i[:, None] < N)


def inputs():
    """Return (q, k, v, window), (N, D) each; N is no multiple of BLOCK, or just one."""
    normal = normals(6100)

    def case(N, D, window, factor=1.0, shift=0.0):
        q, k, v = (normal(N, D, dtype=torch.float32) for _ in "qkv")
        return factor * q + shift, factor * k - shift, v, window

    return [
        case(21, 16, 5),
        case(33, 32, 17),  # the third program must not read the first block
        case(32, 16, 16, factor=6.0),
        case(21, 16, 1, shift=300.0),  # each query sees its own key alone, which scores -360,000
        case(25, 16, 100),  # the window holds all
        case(40, 16, 25, shift=8.0),  # every score is far below 0
        case(1, 16, 3),
        case(17, 16, 2),  # of the block before, a program's first query sees the last key alone
    ]


def run(answer, q, k, v, window):
    """Launch a kernel; complain if it reads more blocks of keys than its queries see."""
    if q.requires_grad:
        return [None]  # gradients are not asked
    N, D = q.shape
    out = torch.full_like(q, torch.nan)
    programs = -(-N // BLOCK)
    work = launch(
        answer, (programs,), *(x.clone() for x in (q, k, v)), out, N, window,
        D**-0.5, D=D, BLOCK=BLOCK,
    )  # fmt: skip
    for (name, (program, *_)), count in work.read.items():
        begin = max(program * BLOCK - window + 1, 0) // BLOCK * BLOCK
        if name in ("k_ptr", "v_ptr") and count > D * (min((program + 1) * BLOCK, N) - begin):
            raise NamedMistake("blocks before the window", EARLY, [out])
    return [out]


EARLY = (
    "Your result is right, but some programs read blocks of keys that none of their queries may "
    "see. The first query of a program sees keys from start_q - window + 1 on. Start the loop at "
    "the block that contains key start_q - window + 1, or at 0 if start_q - window + 1 is "
    "negative."
)
FIRST = "tl.maximum(start_q - window + 1, 0) // BLOCK * BLOCK"
SEEN = "(j <= i) & (i - j < window)"
BEFORE = (
    "Your kernel reads before the first key, because start_q - window + 1 is negative for the "
    "first queries. Start the loop at key tl.maximum(start_q - window + 1, 0), or at the start of "
    "the block that contains this key."
)
BRACKETS = (
    "Your result is what you get without parentheses around the conditions. In Python, & binds "
    "more tightly than comparisons such as <= and >. Write (j <= i) & (i - j < window)."
)
LATER = (
    "Your result respects the window, but queries also see later keys. Require j <= i as well: (j "
    "<= i) & (i - j < window). If you combine the conditions with `and`, only the last one counts."
)
AROUND = (
    "Your window extends to both sides of the query, but it must end at the query itself. Require "
    "j <= i as well."
)
FINITE = (
    "Your result is what you get if forbidden scores are set to a finite number. Allowed scores "
    "can be even lower, and then a forbidden key gets weight. Use −∞."
)
MASKED = f'tl.where({SEEN}, scores, -float("inf"))'

MISTAKES = [
    ("window one too wide",
     "Your queries see one key too many, because key i − window is not in the window of query i. "
     "Require i - j < window. Then the loop may also start later: at the block that contains key "
     "start_q - window + 1, or at 0 if start_q - window + 1 is negative.",
     ("i - j < window", "i - j <= window"),
     ("start_q - window + 1", "start_q - window")),
    ("window one too narrow",
     "Your queries see one key too few. The window holds the query's own key and the `window − 1` "
     "keys before it. Require i - j < window.",
     ("i - j < window", "i - j < window - 1")),
    ("window ahead",
     "Your window is ahead of the query instead of behind it. Require j <= i and i - j < window.",
     (SEEN, "(j >= i) & (j - i < window)")),
    ("both sides", LATER, ("(j <= i) & ", "")),
    ("both sides, up to the last key", LATER, ("(j <= i)", "(j < N)")),
    ("around the query", AROUND, (SEEN, "tl.abs(i - j) < window")),
    ("around the query, up to the last key", AROUND, (SEEN, "(tl.abs(i - j) < window) & (j < N)")),
    ("no window",
     "Your result is causal, but has no window. Require i - j < window as well: (j <= i) & (i - j "
     "< window). Then early blocks hold no allowed key, so start the loop later: at the block that "
     "contains key start_q - window + 1, or at 0 if start_q - window + 1 is negative.",
     ("(j <= i) & (i - j < window)", "j <= i"), (FIRST, "0")),
    ("window of the program",
     "Your window is computed relative to start_q, the first query of the program. Each query has "
     "its own window, so require i - j < window.",
     ("i - j < window", "start_q - j < window")),
    ("mask of the first query",
     "In your result, all queries of a program get the mask of its first query, start_q. Each "
     "query has its own window. Compare i, not start_q, with j.",
     (SEEN, "(j <= start_q) & (start_q - j < window)")),
    ("keys counted from the block",
     "Your mask numbers the keys from 0 in every block. It must number them from the start of the "
     "sequence, as j does. Use j as it is.",
     (SEEN, SEEN.replace("j", "(j - start)"))),
    ("queries counted from the block",
     "Your mask numbers the queries from 0 in every block, but the keys from the start of the "
     "sequence. Use i and j as they are: i starts at start_q, and j at start.",
     (SEEN, SEEN.replace("i", "(i - start_q)", 1).replace("& (i ", "& (i - start_q "))),
    ("both counted from their blocks",
     "Your mask numbers both queries and keys from the start of their own block. But the two "
     "blocks may be at different positions. Use i and j, which count from the start of the "
     "sequence.",
     (SEEN, "(j - start <= i - start_q) & (i - start_q - (j - start) < window)")),
    ("keys in rows",
     "Your mask allows or forbids each row of scores as a whole. But queries are rows and keys are "
     "columns. Compare i, of shape (BLOCK, 1), with j, of shape (1, BLOCK).",
     (SEEN, SEEN.replace("j", "rows"))),
    ("nothing times infinity",
     "Your result is NaN. If you multiply a condition by infinity, allowed keys get 0 · ∞, which "
     "is NaN. Choose between the score and −∞ with tl.where.",
     (MASKED, f'scores - (1 - ({SEEN}).to(tl.float32)) * float("inf")')),
    ("window of whole blocks",
     "Your loop starts at the right block, but within it some queries see keys before their "
     "window. Require i - j < window as well: (j <= i) & (i - j < window). If you combine the "
     "conditions with `and`, only the last one counts.",
     (" & (i - j < window)", "")),
    ("nothing masked",
     "In your result, no score is masked. If you combine the conditions with |, one of them "
     "always holds. Set a score to −∞ unless both hold: (j <= i) & (i - j < window).",
     (MASKED, "scores")),
    ("either",
     "In your result, queries see every key from 0 to the end of their block. If you join the two "
     "conditions with |, one of them always holds. Use (j <= i) & (i - j < window). Then early "
     "blocks hold no allowed key, so start the loop later: at the block that contains key start_q "
     "- window + 1, or at 0 if start_q - window + 1 is negative.",
     ("(j <= i) & (i", "(j <= i) | (i"), (FIRST, "0")),
    ("own key left out",
     "In your result, queries do not see their own keys. The window of query i includes key i, so "
     "require j <= i.",
     ("j <= i", "j < i")),
    ("first block too late",
     "Your loop starts too late. The first query, start_q, sees keys from start_q - window + 1 "
     "on. Start at the block that contains this key, or at 0 if start_q - window + 1 is "
     "negative. Round down with // BLOCK * BLOCK.",
     (FIRST, "tl.cdiv(tl.maximum(start_q - window + 1, 0), BLOCK) * BLOCK")),
    ("first key left out",
     "For some windows, your loop starts one block too late. The first key that query start_q "
     "sees is start_q - window + 1. Start at the block that contains this key, or at 0 if "
     "start_q - window + 1 is negative.",
     (FIRST, "tl.maximum(start_q - window + 2, 0) // BLOCK * BLOCK")),
    ("own block only",
     "Each of your programs uses only the keys at the positions of its own queries. The window "
     "can reach further back. Start the loop at the block that contains key start_q - window + 1, "
     "or at 0 if start_q - window + 1 is negative.",
     (FIRST, "start_q")),
    ("one block before",
     "Your kernel goes back only one block from its queries' own block. The window can reach "
     "further back. Start the loop at the block that contains key start_q - window + 1, or at 0 "
     "if start_q - window + 1 is negative.",
     (FIRST, "tl.maximum(start_q - BLOCK, 0)")),
    ("begins before the first key", BEFORE, (FIRST, "(start_q - window + 1) // BLOCK * BLOCK")),
    ("begins at a key before the first", BEFORE, (FIRST, "start_q - window + 1")),
    ("walk of the last query",
     "All your programs start where the window of the last query of the sequence starts. Each "
     "program must start at the window of its own first query. Start at the block that contains "
     "key start_q - window + 1, or at 0 if start_q - window + 1 is negative.",
     (FIRST, "tl.maximum(N - window, 0) // BLOCK * BLOCK")),
    ("no brackets", BRACKETS, (SEEN, "j <= i & j > i - window")),
    ("no brackets about the difference", BRACKETS, (SEEN, "j <= i & i - j < window")),
    ("beyond the end alone",
     "Your mask hides only positions after the last key. Query i may see only the keys i − window "
     "+ 1 to i, so require (j <= i) & (i - j < window).",
     (SEEN, "j < N")),
    ("window of the last query",
     "Your window is computed relative to the last query of the program. Each query has its own "
     "window, so require i - j < window.",
     ("i - j < window", "start_q + BLOCK - 1 - j < window")),
    ("not far enough below", FINITE, (MASKED, f"tl.where({SEEN}, scores, -100.0)")),
    ("hardly below", FINITE, (MASKED, f"tl.where({SEEN}, scores, -10.0)")),
    ("further below", FINITE, (MASKED, f"tl.where({SEEN}, scores, -10000.0)")),
    ("forbidden scores zero",
     "Your forbidden scores are 0, but e^0 = 1 is a weight like any other. Set them to −∞ with "
     "tl.where.",
     (MASKED, f"tl.where({SEEN}, scores, 0.0)")),
    ("masked after the softmax",
     "You leave forbidden keys out of the product with v, but ℓ still includes their weights. Mask "
     "the *scores*, before the exponentials. Then both are right.",
     (MASKED, "scores"),
     ("+ tl.dot(p, v)", f"+ tl.dot(tl.where({SEEN}, p, 0.0), v)")),
    ("masked in the maximum alone",
     "Your mask affects only the maximum, so forbidden keys still get weight. Compute the "
     "exponentials p from the masked scores as well.",
     (MASKED, f"scores\n        seen = {MASKED}"),
     ("tl.max(scores, axis=1)", "tl.max(seen, axis=1)")),
    ("mask turned around",
     "Your mask is inverted, so queries see only forbidden keys. tl.where returns its second "
     "argument where the condition is true. Put the score second and −∞ third.",
     (MASKED, f'tl.where({SEEN}, -float("inf"), scores)')),
    ("mask transposed",
     "In your mask, queries are columns and keys are rows. In the scores it is the other way "
     "around. Compare i, of shape (BLOCK, 1), with j, of shape (1, BLOCK), and do not transpose "
     "the result.",
     (SEEN, f"tl.trans({SEEN})")),
]  # fmt: skip

TWO_LIMITS = (FIRST, "max(0, (start_q - window + 1) // BLOCK * BLOCK)"), (
    MASKED, 'tl.where(j > i, -float("inf"), tl.where(j + window > i, scores, -float("inf")))',
)  # fmt: skip

exercise = Exercise(
    "6b.1", windowed_kernel, inputs, MISTAKES, names="N D", run=run,
    also_right=[window_backwards, TWO_LIMITS],
)  # fmt: skip
