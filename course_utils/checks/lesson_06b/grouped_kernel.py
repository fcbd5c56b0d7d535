"""6b.2: which head of keys and values a query head reads, and where it lies."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.submission_kernel import launch, tl, triton


def grouped_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, k_b, k_h, k_s, v_b, v_h, v_s, S, scale,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    head, batch = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, D)  # (D,)
    j = tl.arange(0, BLOCK)  # (BLOCK,), all keys at once
    row = (batch * tl.num_programs(0) + head) * D  # q and out are (B, Hq, D), contiguous
    q = tl.load(q_ptr + row + d)  # (D,), the query of this head
    kv_head = head // GROUP
    k_at = batch * k_b + kv_head * k_h + j[:, None] * k_s + d[None, :]  # (BLOCK, D)
    v_at = batch * v_b + kv_head * v_h + j[:, None] * v_s + d[None, :]  # (BLOCK, D)
    k = tl.load(k_ptr + k_at, mask=j[:, None] < S, other=0)  # (BLOCK, D)
    v = tl.load(v_ptr + v_at, mask=j[:, None] < S, other=0)  # (BLOCK, D)
    scores = tl.sum(q[None, :] * k, axis=1) * scale  # (BLOCK,)
    scores = tl.where(j < S, scores, -float("inf"))
    p = tl.exp(scores - tl.max(scores, axis=0))  # (BLOCK,)
    out = tl.sum(p[:, None] * v, axis=0) / tl.sum(p, axis=0)  # (D,)
    tl.store(out_ptr + row + d, out)


@triton.jit
def by_pointers(
    q_ptr, k_ptr, v_ptr, out_ptr, k_b, k_h, k_s, v_b, v_h, v_s, S, scale,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    head, batch = tl.program_id(0), tl.program_id(1)
    k_ptr += batch * k_b + (head - head % GROUP) // GROUP * k_h
    v_ptr += v_b * batch + v_h * (head // GROUP)
    mine = (tl.num_programs(0) * batch + head) * D + tl.arange(0, D)
    j = tl.arange(0, BLOCK)[:, None]
    q = tl.load(q_ptr + mine)[None, :]
    k = tl.load(k_ptr + (j * k_s + tl.arange(0, D)), mask=j < S, other=0.0)
    v = tl.load(v_ptr + (j * v_s + tl.arange(0, D)), mask=j < S, other=0.0)
    p = tl.softmax(tl.where(j < S, tl.sum(q * k, 1)[:, None] * scale, -float("inf")), 0)
    tl.store(out_ptr + mine, tl.sum(p * v, 0))


def inputs():
    """Return (q, k, v) of (B, Hq, D) and (B, Hkv, S, D); k and v lie in memory in several ways."""
    normal = normals(6200)

    def case(B, Hq, Hkv, S, D, k_spare=0, k_transposed=False, v_transposed=False, factor=1.0):
        """Let k be the used part of a longer cache, and store k or v with tokens before heads."""
        q = factor * normal(B, Hq, D, dtype=torch.float32)
        k = normal(B, Hkv, S + k_spare, D, dtype=torch.float32)[:, :, :S]
        v = normal(B, S, Hkv, D, dtype=torch.float32).transpose(1, 2)
        k = k.transpose(1, 2).contiguous().transpose(1, 2) if k_transposed else k
        return q, k, v if v_transposed else v.contiguous()

    return [
        case(1, 6, 2, 7, 16),
        case(2, 4, 2, 9, 32, k_spare=5, v_transposed=True),
        case(2, 2, 2, 5, 16, k_spare=3, factor=99.0),  # every head has its own
        case(2, 2, 1, 33, 16, k_spare=2),  # both share one
        case(1, 1, 1, 1, 16),
        case(2, 4, 2, 6, 16, k_transposed=True),
    ]


def run(answer, q, k, v):
    if q.requires_grad:
        return [None]  # gradients are not asked
    (B, Hq, D), (Hkv, S) = q.shape, k.shape[1:3]
    q, k, v = (_alone(x) for x in (q, k, v))
    out = torch.full_like(q, torch.nan)
    launch(
        answer, (Hq, B), q, k, v, out, *k.stride()[:3], *v.stride()[:3], S, D**-0.5,
        GROUP=Hq // Hkv, D=D, BLOCK=1 << (S - 1).bit_length(),
    )  # fmt: skip
    return [out]


def _alone(x):
    """Return a copy that lies in memory as x does, gaps included."""
    storage = x.new_empty(0).set_(x.untyped_storage().clone())
    return storage.as_strided(x.shape, x.stride(), x.storage_offset())


KV = "kv_head = head // GROUP"
K_AT = "batch * k_b + kv_head * k_h + j[:, None] * k_s"
V_AT = "batch * v_b + kv_head * v_h + j[:, None] * v_s"

MISTAKES = [
    ("heads take turns",
     "Your query heads use the key heads in the order 0 1 0 1. Neighboring query heads share one, "
     "0 0 1 1. Use head // GROUP.",
     (KV, "kv_head = head % (tl.num_programs(0) // GROUP)")),
    ("place in the group",
     "Your result fits head % GROUP, which is the position of a head within its group. The number "
     "of the group is head // GROUP.",
     (KV, "kv_head = head % GROUP")),
    ("divided by the heads",
     "Your result fits head divided by the number of key heads. GROUP query heads share one key "
     "head, so use head // GROUP.",
     (KV, "kv_head = head // (tl.num_programs(0) // GROUP)")),
    ("first head for all",
     "All your query heads read the first head of keys and values. Each group of GROUP query heads "
     "has its own, head // GROUP.",
     (KV, "kv_head = head * 0")),
    ("own head",
     "Your kernel reads past the end of the cache. There are GROUP times fewer key heads than "
     "query heads, and neighboring query heads share one. Use head // GROUP.",
     (KV, "kv_head = head")),
    ("keys of the group, values of the first",
     "The keys are right, but the values are those of the first head. Add v_h times the number of "
     "the group to their addresses.",
     (V_AT, V_AT.replace("kv_head * v_h + ", ""))),
    ("values of the group, keys of the first",
     "The values are right, but the keys are those of the first head. Add k_h times the number of "
     "the group to their addresses.",
     (K_AT, K_AT.replace("kv_head * k_h + ", ""))),
    ("first of the group",
     "Your kernel reads past the end of the cache. If you use head // GROUP * GROUP, this is the "
     "first query head of the group. The number of the group is head // GROUP.",
     (KV, "kv_head = head // GROUP * GROUP")),
    ("batch and head exchanged",
     "Your result swaps the strides of batch and head. Multiply the batch index by k_b and v_b, "
     "and the key head by k_h and v_h.",
     ("batch * k_b + kv_head * k_h",
      "kv_head * k_b + batch * k_h"), ("batch * v_b + kv_head * v_h",
      "kv_head * v_b + batch * v_h")),
    ("one number of each",
     "Your kernel reads one number of each key and value, D times. Add d[None, :] to the "
     "addresses.",
     ("* k_s + d[None, :]", "* k_s + 0 * d[None, :]"),
     ("* v_s + d[None, :]", "* v_s + 0 * d[None, :]")),
    ("batch forgotten",
     "Right for the first item of the batch. The other items read its keys and values again. Add "
     "batch * k_b and batch * v_b.",
     (K_AT, K_AT.replace("batch * k_b + ", "")), (V_AT, V_AT.replace("batch * v_b + ", ""))),
    ("batch forgotten for the values",
     "Right for the first item of the batch. The other items read its values again. Add batch * "
     "v_b.",
     (V_AT, V_AT.replace("batch * v_b + ", ""))),
    ("batch forgotten for the keys",
     "Right for the first item of the batch. The other items read its keys again. Add batch * k_b.",
     (K_AT, K_AT.replace("batch * k_b + ", ""))),
    ("strides of the keys for both",
     "Right if k and v have the same strides, but here they may differ. Use v_b, v_h and v_s for "
     "the values.",
     (V_AT, K_AT)),
    ("rows one after another",
     "Right if the rows of a head are D numbers apart in memory. Here they may be further apart. "
     "Use the strides k_s and v_s.",
     ("* k_s", "* D"), ("* v_s", "* D")),
    ("keys of a head one after another",
     "Right if the keys of a head are D numbers apart in memory. Here they may be further apart. "
     "Use the stride k_s.",
     ("* k_s", "* D")),
    ("values of a head one after another",
     "Right if the values of a head are D numbers apart in memory. Here they may be further apart. "
     "Use the stride v_s.",
     ("* v_s", "* D")),
    ("heads of the keys one after another",
     "Right if each head of k starts where the previous one ends. But a cache may have unused rows "
     "after each head. Use the stride k_h.",
     ("* k_h", "* S * D")),
    ("heads of the values one after another",
     "Right if each head of v starts where the previous one ends. Here this need not be so. Use "
     "the stride v_h.",
     ("* v_h", "* S * D")),
    ("heads one after another",
     "Right if each head starts where the previous one ends. But a cache may have unused rows "
     "after each head. Use the strides k_h and v_h.",
     ("* k_h", "* S * D"), ("* v_h", "* S * D")),
    ("all as if whole",
     "Right if k and v are contiguous. Here they may not be. Use their strides k_b, k_h, k_s and "
     "v_b, v_h, v_s.",
     (K_AT, "((batch * (tl.num_programs(0) // GROUP) + kv_head) * S + j[:, None]) * D"),
     (V_AT, "((batch * (tl.num_programs(0) // GROUP) + kv_head) * S + j[:, None]) * D")),
    ("keys as if whole",
     "Right if k is contiguous. Here it may not be. Use its strides k_b, k_h and k_s.",
     (K_AT, "((batch * (tl.num_programs(0) // GROUP) + kv_head) * S + j[:, None]) * D")),
    ("values as if whole",
     "Right if v is contiguous. Here it may not be. Use its strides v_b, v_h and v_s.",
     (V_AT, "((batch * (tl.num_programs(0) // GROUP) + kv_head) * S + j[:, None]) * D")),
    ("strides exchanged",
     "Your result swaps the strides of heads and keys. Multiply the key head by k_h and v_h, and j "
     "by k_s and v_s.",
     ("kv_head * k_h + j[:, None] * k_s",
      "kv_head * k_s + j[:, None] * k_h"), ("kv_head * v_h + j[:, None] * v_s",
      "kv_head * v_s + j[:, None] * v_h")),
    ("keys side by side, their numbers apart",
     "Your result multiplies k_s and v_s by the wrong index. They are the strides from key to key, "
     "so multiply them by j. The D numbers of a key are adjacent, so add d[None, :].",
     ("j[:, None] * k_s + d[None, :]", "j[:, None] + d[None, :] * k_s"),
     ("j[:, None] * v_s + d[None, :]", "j[:, None] + d[None, :] * v_s")),
    ("keys side by side",
     "Your kernel reads keys and values that are one number apart. From key to key, the strides "
     "are k_s and v_s.",
     ("j[:, None] * k_s", "j[:, None]"),
     ("j[:, None] * v_s", "j[:, None]")),
    ("keys side by side, values right",
     "The values are right, but your kernel reads keys that are one number apart. From key to key, "
     "the stride is k_s.",
     ("j[:, None] * k_s", "j[:, None]")),
]  # fmt: skip

BY_COUNTING = (
    (KV, "heads = tl.num_programs(0) // GROUP\n    kv_head = head * heads // tl.num_programs(0)"),
)

exercise = Exercise(
    "6b.2", grouped_kernel, inputs, MISTAKES, names="B Hq D", run=run,
    also_right=[by_pointers, BY_COUNTING],
)  # fmt: skip
