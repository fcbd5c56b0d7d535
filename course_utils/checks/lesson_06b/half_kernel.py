"""6b.3: which of the numbers in the loop may have 16 bits."""

import torch

from course_utils.checks.exercise import Exercise, NamedMistake
from course_utils.checks.inputs import normals
from course_utils.checks.submission_kernel import launch, tl, triton

BLOCK = 16


def half_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, L, S, scale, D: tl.constexpr, BLOCK: tl.constexpr
):
    d = tl.arange(0, D)[None, :]  # (1, D)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,), this program's queries
    q = tl.load(q_ptr + i[:, None] * D + d, mask=i[:, None] < L, other=0)  # (BLOCK, D), float16
    m = tl.full((BLOCK,), -float("inf"), tl.float32)
    ell = tl.full((BLOCK,), 0, tl.float32)
    acc = tl.full((BLOCK, D), 0, tl.float32)
    for start in range(0, S, BLOCK):
        j = start + tl.arange(0, BLOCK)  # (BLOCK,), keys
        k = tl.load(k_ptr + j[:, None] * D + d, mask=j[:, None] < S, other=0)  # float16
        v = tl.load(v_ptr + j[:, None] * D + d, mask=j[:, None] < S, other=0)  # float16
        scores = tl.dot(q, tl.trans(k)) * scale  # (BLOCK, BLOCK), float32
        scores = tl.where(j[None, :] < S, scores, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        shrink = tl.exp(m - m_new)  # (BLOCK,)
        p = tl.exp(scores - m_new[:, None])  # (BLOCK, BLOCK), float32
        ell = ell * shrink + tl.sum(p, axis=1)  # (BLOCK,), float32
        acc = acc * shrink[:, None]  # (BLOCK, D), float32
        acc = tl.dot(p.to(v.dtype), v, acc)  # float16 times float16, added to float32
        m = m_new
    tl.store(out_ptr + i[:, None] * D + d, acc / ell[:, None], mask=i[:, None] < L)
    tl.store(lse_ptr + i, m + tl.log(ell), mask=i < L)


@triton.jit
def transposed(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, L, S, scale, D: tl.constexpr, BLOCK: tl.constexpr
):
    """Keys as rows, everything transposed, in base 2."""
    LOG2_E = 1.4426950408889634
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + i[None, :] * D + d[:, None], mask=i[None, :] < L, other=0)
    m = tl.full((BLOCK,), -float("inf"), tl.float32)
    ell = tl.full((BLOCK,), 0, tl.float32)
    acc = tl.full((D, BLOCK), 0, tl.float32)
    for start in range(0, S, BLOCK):
        j = start + tl.arange(0, BLOCK)
        k = tl.load(k_ptr + j[:, None] * D + d[None, :], mask=j[:, None] < S, other=0)
        v = tl.load(v_ptr + j[None, :] * D + d[:, None], mask=j[None, :] < S, other=0)
        s = tl.where(j[:, None] < S, tl.dot(k, q) * (scale * LOG2_E), -float("inf"))
        top = tl.maximum(m, tl.max(s, 0))
        p, old = tl.exp2(s - top[None, :]), tl.exp2(m - top)
        ell, acc = ell * old + tl.sum(p, 0), acc * old[None, :] + tl.dot(v, p.to(tl.float16))
        m = top
    out = (acc / ell[None, :]).to(tl.float16)
    tl.store(out_ptr + i[None, :] * D + d[:, None], out, mask=i[None, :] < L)
    tl.store(lse_ptr + i, (m + tl.log2(ell)) / LOG2_E, mask=i < L)


def inputs():
    """Return (q, k, v) in float16, (L, D) and (S, D)."""
    normal = normals(6300)

    def case(L, S, D, factor=1.0, values=1.0):
        q, k, v = (normal(n, D, dtype=torch.float32) for n in (L, S, S))
        return (factor * q).half(), (factor * k).half(), (values * v).half()

    q, k, v = case(5, 33, 16)
    q, k = torch.zeros_like(q), torch.zeros_like(k)
    # One score is A0 and the others are A1 = A0 + log p, where p is rounded by much in float16. The
    # logsumexp is small, and so is what it may be off.
    q[:, 0], k[:, 0], k[7, 0] = 4, A1, A0
    # All scores are the same, half way between two numbers of float16, and not far from -log S.
    between_q, between_k, between_v = case(5, 16, 16)
    between_q[:], between_k[:] = 0, 0
    between_q[:, 0], between_q[:, 1] = 4, 2**-8
    between_k[:, 0], between_k[:, 1] = -2.65, 1
    # The maximum grows by 7/8 * 2^-12 in each of 112 blocks. Rounded to float16, the factor
    # e^(-7/8 * 2^-12) is 1. If it is rounded each time, O is off by 1%.
    slow_q, slow_k, slow_v = case(2, 112 * BLOCK, 16)
    slow_q[:], slow_k[:], slow_v = 0, 0, 1 + slow_v / 16
    slow_q[:, 0], slow_k[:, 0] = 4, torch.arange(112).repeat_interleave(BLOCK) * 7 / 2**15
    return [
        case(18, 21, 16),
        (q, k, v),
        (q, k, (20_000 + 9_000 * v.float().sin()).half()),  # Σ p v is far above 65504
        (between_q, between_k, between_v),
        case(5, 40, 32, factor=3.0),
        case(3, 16, 16, values=30.0),
        case(1, 1, 16),
        (slow_q, slow_k, slow_v),
    ]


A0, A1 = -2.75, -3.40625  # p = 0.51879; log(1 + 32 p) = 2.868


def run(answer, q, k, v):
    """Launch a kernel; complain if it multiplies or adds in other dtypes than asked."""
    if q.requires_grad:
        return [None]  # gradients are not asked
    L, D = q.shape
    out, lse = torch.full_like(q, torch.nan), torch.full((L,), torch.nan)
    work = launch(
        answer, (-(-L // BLOCK),), *(x.clone() for x in (q, k, v)), out, lse, L, len(k),
        D**-0.5, D=D, BLOCK=BLOCK,
    )  # fmt: skip
    for left, right, added in work.products:
        if (left, right) != ("fp16", "fp16"):
            raise NamedMistake("factors in 32 bits", WIDE, [(out, lse)])
        if added != "fp32":
            raise NamedMistake("products added in 16 bits", NARROW, [(out, lse)])
    return [(out, lse)]


WIDE = (
    "Your result is right, but one of your products multiplies 32-bit numbers, which takes tensor "
    "cores at least twice as long. Convert p to the dtype of v, instead of v to the dtype of p."
)
NARROW = (
    "Your result is right for these inputs, but your products are added in 16 bits, where larger "
    "sums overflow. Give tl.dot a float32 accumulator, and do not ask for a 16-bit out_dtype."
)
ELL = "tl.sum(p, axis=1)"
DOT = "tl.dot(p.to(v.dtype), v, acc)"

MISTAKES = [
    ("p in 32 bits",
     "tl.dot needs two blocks of the same dtype, but p is float32 and v is float16. Round p for "
     "the product: p.to(v.dtype).",
     (DOT, "tl.dot(p, v, acc)")),
    ("accumulated in 16 bits",
     "Your result is what you get if O is kept in float16. The largest float16 number is 65,504. "
     "Here Σ p v exceeds it before the division by ℓ, so O overflows to inf. Keep acc in float32.",
     (DOT, f"{DOT}.to(v.dtype)")),
    ("sum of rounded p",
     "Your output is right, but your logsumexp is slightly off, as if p were rounded to float16 "
     "before the sum. Sum p in float32, and round it only for the product.",
     (ELL, "tl.sum(p.to(v.dtype).to(tl.float32), axis=1)")),
    ("sum in 16 bits",
     "Your output is right, but your logsumexp is slightly off, as if p were summed in float16. "
     "Sum p in float32, and round it only for the product.",
     (ELL, "tl.sum(p.to(v.dtype), axis=1)")),
    ("sum kept in 16 bits",
     "Your kernel passes a 16-bit block to tl.exp or tl.log, which take only float32. Keep ℓ and "
     "the scores in float32. Only the factors of the product may have 16 bits.",
     (ELL, f"{ELL}\n        ell = ell.to(v.dtype)")),
    ("sum rounded in each block",
     "Your result is what you get if ℓ is rounded to float16 in each block, which makes the "
     "logsumexp inaccurate. Keep ℓ in float32. Only the factors of the product may have 16 bits.",
     (f"ell * shrink + {ELL}", f"(ell * shrink + {ELL}).to(v.dtype).to(tl.float32)")),
    ("scores in 16 bits",
     "Your result is what you get if the scores are rounded to float16 before the exponential. A "
     "score between 16 and 32 then changes by up to 0.008, so its weight changes by almost 1%. "
     "Keep the scores in float32, and round only p, for the product.",
     (
      "p = tl.exp(scores - m_new[:, None])",
      "p = tl.exp(scores.to(v.dtype).to(tl.float32) - m_new[:, None])")),
    ("accumulator not rescaled",
     "Your O is not rescaled. Like ℓ, it was computed relative to the old maximum. Use acc * "
     "shrink[:, None].",
     ("acc = acc * shrink[:, None]", "acc = acc")),
    ("factor in 16 bits",
     "Your O is slightly off, as if its factor shrink were rounded to float16. This error grows "
     "with each block. Keep shrink in float32.",
     ("acc * shrink[:, None]", "acc * shrink.to(v.dtype)[:, None]")),
    ("factor of the sum in 16 bits",
     "Your ℓ is slightly off, as if its factor shrink were rounded to float16. This error grows "
     "with each block. Keep shrink in float32.",
     ("ell * shrink", "ell * shrink.to(v.dtype)")),
    ("both factors in 16 bits",
     "Your ℓ and O are slightly off, as if their factor shrink were rounded to float16. This error "
     "grows with each block. Keep shrink in float32.",
     ("ell * shrink", "ell * shrink.to(v.dtype)"),
     ("acc * shrink[:, None]", "acc * shrink.to(v.dtype)[:, None]")),
    ("sum not rescaled",
     "Your ℓ is not rescaled. Like O, it was computed relative to the old maximum. Use ell * "
     "shrink.",
     ("ell * shrink", "ell")),
    ("nothing rescaled",
     "Neither ℓ nor O is rescaled. Both were computed relative to the old maximum. Multiply ell "
     "by shrink, and acc by shrink[:, None].",
     ("acc = acc * shrink[:, None]", "acc = acc"), ("ell * shrink", "ell")),
    ("product rescaled as well",
     "You also rescale the new product, but only the old O was computed relative to the old "
     "maximum. Rescale acc first, and then add the product.",
     ("acc = acc * shrink[:, None]", "acc = acc"),
     (DOT, f"{DOT} * shrink[:, None]")),
    ("rescaled by columns",
     "You rescale the columns of O. Queries are its rows, and each query has its own factor. Use "
     "shrink[:, None].",
     ("acc * shrink[:, None]", "acc * shrink[None, :]")),
    ("added twice",
     "You add acc twice, because tl.dot(a, b, acc) already adds it. Store the result of tl.dot(a, "
     "b, acc) in acc, and add nothing to it.",
     (DOT, f"acc + {DOT}")),
    ("softmax within the block",
     "You divide p by the sum of its block. But the weights need the sum over all blocks, and the "
     "last lines already divide by it. Do not divide in the loop.",
     (DOT, "tl.dot((p / tl.sum(p, axis=1)[:, None]).to(v.dtype), v, acc)")),
    ("divided by the sum so far",
     "You divide p by ℓ in each block, and the last lines divide by ℓ again. Do not divide in the "
     "loop.",
     (DOT, "tl.dot((p / ell[:, None]).to(v.dtype), v, acc)")),
    ("new sum rescaled as well",
     "You also rescale the new sum of p, but only the old ℓ was computed relative to the old "
     "maximum. Rescale ell first, and then add the sum.",
     ("ell * shrink + tl.sum(p, axis=1)",
      "(ell + tl.sum(p, axis=1)) * shrink")),
    ("sum over the queries",
     "Your ℓ sums over the queries, but it must sum over the keys. Each row of p belongs to one "
     "query, so sum along the rows: axis=1.",
     (ELL, "tl.sum(p, axis=0)")),
    ("one sum for all",
     "Your ℓ is one sum for all queries, but each query needs its own. Each row of p belongs to "
     "one query, so sum along the rows: axis=1.",
     (ELL, "tl.sum(p)")),
    ("bfloat16",
     "Your result is what you get if p and v are converted to bfloat16. That loses precision, and "
     "the interpreter computes bfloat16 products incorrectly. Leave v in float16, and use "
     "p.to(v.dtype).",
     (DOT, "tl.dot(p.to(tl.bfloat16), v.to(tl.bfloat16), acc)")),
    ("sum replaced",
     "Your ℓ is the sum of the last block only, so the earlier blocks are lost. Add the sum of "
     "each block to ell * shrink.",
     ("ell * shrink + ", "")),
    ("product replaced",
     "Your O is the product of the last block only, so the earlier blocks are lost. Add the "
     "product of each block to acc * shrink[:, None].",
     (DOT, "tl.dot(p.to(v.dtype), v)")),
    ("divided at every block",
     "You divide O by ℓ in every block, and the last lines divide by ℓ again. Do not divide in "
     "the loop.",
     (DOT, f"{DOT} / ell[:, None]")),
    ("nothing kept",
     "Your ℓ and O come from the last block only, so the earlier blocks are lost. Add the sum of "
     "each block to ell * shrink, and its product to acc * shrink[:, None].",
     ("ell * shrink + ", ""), (DOT, "tl.dot(p.to(v.dtype), v)")),
    ("both rescaled after adding",
     "You also rescale what the new block adds to ℓ and O. Only the old ℓ and O were computed "
     "relative to the old maximum. Rescale these first, and then add.",
     ("ell * shrink + tl.sum(p, axis=1)", "(ell + tl.sum(p, axis=1)) * shrink"),
     ("acc = acc * shrink[:, None]", "acc = acc"), (DOT, f"{DOT} * shrink[:, None]")),
    ("values transposed",
     "You multiply p by the transpose of v. The columns of p are keys, and so are the rows of v. "
     "Use v as it is.",
     (DOT, "tl.dot(p.to(v.dtype), tl.trans(v), acc)")),
    ("largest in place of the sum",
     "Your ℓ adds only the largest p of each block, but every key has a weight. Add the sum of all "
     "p in the block.",
     (ELL, "tl.max(p, axis=1)")),
    ("keys for values",
     "Your O is what you get if p is multiplied by k. O is the weighted sum of the values. "
     "Multiply p by v.",
     (DOT, "tl.dot(p.to(v.dtype), k, acc)")),
    ("entry by entry",
     "Your result is what you get if p and v are multiplied entry by entry. O needs the matrix "
     "product, which adds up the weighted values of all keys. Use tl.dot.",
     (DOT, "acc + p.to(v.dtype) * v")),
    ("values before p",
     "Your result is what you get from the product v · p. Queries are the rows of p and of O. "
     "Multiply in the order tl.dot(p, v), with p rounded to the dtype of v.",
     (DOT, "tl.dot(v, p.to(v.dtype), acc)")),
    ("p transposed",
     "Your result is what you get if p is transposed in the product. Queries are the rows of p and "
     "of O. Use p without a transpose.",
     (DOT, "tl.dot(tl.trans(p.to(v.dtype)), v, acc)")),
    ("sum stays 0",
     "Your ℓ is 0, so log ℓ is −∞, and the last lines divide O by 0. In each block, add the sum of "
     "p to ell * shrink.",
     ("ell * shrink + tl.sum(p, axis=1)", "ell")),
    ("accumulator divided by the factor",
     "Your O is NaN. If you divide it by shrink, you divide 0 by 0 in the first block, because "
     "e^(−∞) is 0. Multiply the old O by shrink[:, None], and then add the product.",
     ("acc * shrink[:, None]", "acc / shrink[:, None]")),
    ("product divided by the factor as well",
     "Your O is infinite. If you divide it by shrink, you divide by 0 in the first block, because "
     "e^(−∞) is 0. Multiply the old O by shrink[:, None], and then add the product.",
     ("acc = acc * shrink[:, None]", "acc = acc"), (DOT, f"{DOT} / shrink[:, None]")),
    ("sum divided by the factor",
     "Your ℓ is NaN. If you divide it by shrink, you divide 0 by 0 in the first block, because "
     "e^(−∞) is 0. Multiply the old ℓ by shrink, and then add the sum of p.",
     ("ell * shrink", "ell / shrink")),
    ("product not stored",
     "Your O is 0, because no product reaches acc. tl.dot returns its result. Store this result "
     "in acc.",
     (DOT, "acc")),
]  # fmt: skip

FUSED = (
    ("ell * shrink + " + ELL, "tl.fma(ell, shrink, p.sum(1))"),
    ("acc = " + DOT, "acc += tl.dot(p.to(v.dtype), v)"),
)

exercise = Exercise(
    "6b.3", half_kernel, inputs, MISTAKES, names="L D|L", run=run, also_right=[transposed, FUSED]
)
