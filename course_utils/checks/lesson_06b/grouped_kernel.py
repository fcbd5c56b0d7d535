"""6b.2: which KV head a query head reads, and where it is."""

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

    def case(
        B, Hq, Hkv, S, D, k_spare=0, v_spare=0, k_transposed=False, v_transposed=False, factor=1.0
    ):  # fmt: skip
        """Let k or v be the used part of a longer cache, or store it with tokens before heads."""
        q = factor * normal(B, Hq, D, dtype=torch.float32)
        k = normal(B, Hkv, S + k_spare, D, dtype=torch.float32)[:, :, :S]
        v = normal(B, S + v_spare, Hkv, D, dtype=torch.float32).transpose(1, 2)
        k = k.transpose(1, 2).contiguous().transpose(1, 2) if k_transposed else k
        return q, k, (v if v_transposed else v.contiguous())[:, :, :S]

    return [
        case(1, 6, 2, 7, 16),
        case(2, 4, 2, 9, 32, k_spare=5, v_transposed=True),
        case(2, 2, 2, 5, 16, k_spare=3, factor=99.0),  # every head has its own
        case(2, 2, 1, 33, 16, k_spare=2),  # both share one
        case(1, 1, 1, 1, 16),
        case(2, 4, 2, 6, 16, k_transposed=True),
        case(2, 4, 2, 6, 16, k_spare=2, v_spare=3),
        case(2, 4, 2, 2, 16, k_spare=40, v_spare=50),  # wrong rows are read, but within the cache
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
BATCH = "batch * (tl.num_programs(0) // GROUP) * S * D"

MISTAKES = [
    ("heads take turns",
     "Your query heads cycle through the KV heads: 0, 1, 0, 1 if there are 4 query heads and 2 "
     "KV heads. Neighboring query heads must share a KV head: 0, 0, 1, 1. Use head // GROUP.",
     (KV, "kv_head = head % (tl.num_programs(0) // GROUP)")),
    ("place in the group",
     "Your result is what you get with head % GROUP, which is the position of a query head within "
     "its group. You need the number of the group, because each group has one KV head. Use head "
     "// GROUP.",
     (KV, "kv_head = head % GROUP")),
    ("divided by the heads",
     "Your result is what you get if head is divided by the number of KV heads. But GROUP query "
     "heads share one KV head. Use head // GROUP.",
     (KV, "kv_head = head // (tl.num_programs(0) // GROUP)")),
    ("first head for all",
     "All your query heads read the first KV head. Each group of GROUP query heads has its own KV "
     "head. Use head // GROUP.",
     (KV, "kv_head = head * 0")),
    ("own head",
     "Your kernel reads past the end of the cache. There are GROUP times fewer KV heads than "
     "query heads, because GROUP neighboring query heads share one. Use head // GROUP as the KV "
     "head.",
     (KV, "kv_head = head")),
    ("keys of the group, values of the first",
     "`k_at` is right, but `v_at` always points to the first head. Add head // GROUP * v_h to "
     "`v_at`.",
     (V_AT, V_AT.replace("kv_head * v_h + ", ""))),
    ("values of the group, keys of the first",
     "`v_at` is right, but `k_at` always points to the first head. Add head // GROUP * k_h to "
     "`k_at`.",
     (K_AT, K_AT.replace("kv_head * k_h + ", ""))),
    ("first of the group",
     "Your kernel reads past the end of the cache. This happens with head // GROUP * GROUP, which "
     "is the first query head of the group. You need the number of the group, because each group "
     "has one KV head. Use head // GROUP.",
     (KV, "kv_head = head // GROUP * GROUP")),
    ("batch and head exchanged",
     "You swap the strides of batch and head. Multiply the batch index by k_b and v_b, and the "
     "index of the KV head by k_h and v_h.",
     ("batch * k_b + kv_head * k_h",
      "kv_head * k_b + batch * k_h"), ("batch * v_b + kv_head * v_h",
      "kv_head * v_b + batch * v_h")),
    ("batch and head exchanged for the keys",
     "`v_at` is right, but in `k_at` you swap the strides of batch and head. Multiply the batch "
     "index by k_b, and the index of the KV head by k_h.",
     ("batch * k_b + kv_head * k_h", "kv_head * k_b + batch * k_h")),
    ("batch and head exchanged for the values",
     "`k_at` is right, but in `v_at` you swap the strides of batch and head. Multiply the batch "
     "index by v_b, and the index of the KV head by v_h.",
     ("batch * v_b + kv_head * v_h", "kv_head * v_b + batch * v_h")),
    ("one number of each",
     "Your kernel reads one number of each key and value, D times. A key has D numbers, which are "
     "adjacent. Add d[None, :] to `k_at` and `v_at`.",
     ("* k_s + d[None, :]", "* k_s + 0 * d[None, :]"),
     ("* v_s + d[None, :]", "* v_s + 0 * d[None, :]")),
    ("batch forgotten",
     "Your result is right for the first sequence of the batch, but the other sequences use its "
     "keys and values as well. Add batch * k_b to `k_at` and batch * v_b to `v_at`.",
     (K_AT, K_AT.replace("batch * k_b + ", "")), (V_AT, V_AT.replace("batch * v_b + ", ""))),
    ("batch forgotten for the values",
     "Your result is right for the first sequence of the batch, but the other sequences use its "
     "values as well. Add batch * v_b to `v_at`.",
     (V_AT, V_AT.replace("batch * v_b + ", ""))),
    ("batch forgotten for the keys",
     "Your result is right for the first sequence of the batch, but the other sequences use its "
     "keys as well. Add batch * k_b to `k_at`.",
     (K_AT, K_AT.replace("batch * k_b + ", ""))),
    ("strides of the keys for both",
     "Your result is right only if k and v have the same strides, but they may differ. Use v_b, "
     "v_h and v_s for the values.",
     (V_AT, K_AT)),
    ("rows one after another",
     "Your offsets are right only if neighboring rows of a head are D numbers apart, in k as well "
     "as in v. But they may be further apart. Multiply j by k_s in `k_at` and by v_s in `v_at`.",
     ("* k_s", "* D"), ("* v_s", "* D")),
    ("keys of a head one after another",
     "Your `k_at` is right only if neighboring keys of a head are D numbers apart. But they may be "
     "further apart. Multiply j by k_s.",
     ("* k_s", "* D")),
    ("values of a head one after another",
     "Your `v_at` is right only if neighboring values of a head are D numbers apart. But they may "
     "be further apart. Multiply j by v_s.",
     ("* v_s", "* D")),
    ("heads of the keys one after another",
     "Your `k_at` is right only if each head of k starts where the previous one ends. But a cache "
     "may have unused rows after each head. Multiply the index of the KV head by k_h.",
     ("* k_h", "* S * D")),
    ("heads of the values one after another",
     "Your `v_at` is right only if each head of v starts where the previous one ends. But a cache "
     "may have unused rows after each head. Multiply the index of the KV head by v_h.",
     ("* v_h", "* S * D")),
    ("heads one after another",
     "Your offsets are right only if each head starts where the previous one ends. But a cache may "
     "have unused rows after each head. Multiply the index of the KV head by k_h in `k_at` and by "
     "v_h in `v_at`.",
     ("* k_h", "* S * D"), ("* v_h", "* S * D")),
    ("strides of heads exchanged",
     "You multiply the index of the KV head by v_h in `k_at` and by k_h in `v_at`. But k and v "
     "may have different strides. Use k_h in `k_at` and v_h in `v_at`.",
     (K_AT, K_AT.replace("* k_h", "* v_h")), (V_AT, V_AT.replace("* v_h", "* k_h"))),
    ("items one after another",
     "Your offsets are right only if each sequence of the batch starts where the previous one "
     "ends. But a cache may have unused rows in between. Multiply batch by k_b in `k_at` and by "
     "v_b in `v_at`.",
     ("batch * k_b", BATCH), ("batch * v_b", BATCH)),
    ("items of the keys one after another",
     "Your `k_at` is right only if each sequence of the batch starts where the previous one ends. "
     "But a cache may have unused rows in between. Multiply batch by k_b.",
     ("batch * k_b", BATCH)),
    ("items of the values one after another",
     "Your `v_at` is right only if each sequence of the batch starts where the previous one ends. "
     "But a cache may have unused rows in between. Multiply batch by v_b.",
     ("batch * v_b", BATCH)),
    ("stride of the keys for the rows of values",
     "`k_at` is right, but in `v_at` you multiply j by k_s. This is a stride of k, and v may have "
     "different strides. Multiply j by v_s.",
     (V_AT, V_AT.replace("v_s", "k_s"))),
    ("stride of the keys for the items of values",
     "`k_at` is right, but in `v_at` you multiply batch by k_b. This is a stride of k, and v may "
     "have different strides. Multiply batch by v_b.",
     (V_AT, V_AT.replace("v_b", "k_b"))),
    ("stride of the keys for the heads of values",
     "`k_at` is right, but in `v_at` you multiply the index of the KV head by k_h. This is a "
     "stride of k, and v may have different strides. Multiply it by v_h.",
     (V_AT, V_AT.replace("* v_h", "* k_h"))),
    ("all as if whole",
     "Your offsets are right only if k and v are contiguous, and they need not be. Use the strides "
     "k_b, k_h and k_s in `k_at`, and v_b, v_h and v_s in `v_at`.",
     (K_AT, "((batch * (tl.num_programs(0) // GROUP) + kv_head) * S + j[:, None]) * D"),
     (V_AT, "((batch * (tl.num_programs(0) // GROUP) + kv_head) * S + j[:, None]) * D")),
    ("keys as if whole",
     "Your `k_at` is right only if k is contiguous, and it need not be. Use the strides of k: k_b, "
     "k_h and k_s.",
     (K_AT, "((batch * (tl.num_programs(0) // GROUP) + kv_head) * S + j[:, None]) * D")),
    ("values as if whole",
     "Your `v_at` is right only if v is contiguous, and it need not be. Use the strides of v: v_b, "
     "v_h and v_s.",
     (V_AT, "((batch * (tl.num_programs(0) // GROUP) + kv_head) * S + j[:, None]) * D")),
    ("strides exchanged",
     "You swap the strides of heads and rows. Multiply the index of the KV head by k_h and j by "
     "k_s in `k_at`, and use v_h and v_s in the same way in `v_at`.",
     ("kv_head * k_h + j[:, None] * k_s",
      "kv_head * k_s + j[:, None] * k_h"), ("kv_head * v_h + j[:, None] * v_s",
      "kv_head * v_s + j[:, None] * v_h")),
    ("strides of the keys exchanged",
     "`v_at` is right, but in `k_at` you swap the strides of heads and keys. Multiply the index of "
     "the KV head by k_h, and j by k_s.",
     ("kv_head * k_h + j[:, None] * k_s", "kv_head * k_s + j[:, None] * k_h")),
    ("strides of the values exchanged",
     "`k_at` is right, but in `v_at` you swap the strides of heads and values. Multiply the index "
     "of the KV head by v_h, and j by v_s.",
     ("kv_head * v_h + j[:, None] * v_s", "kv_head * v_s + j[:, None] * v_h")),
    ("strides of rows times D",
     "In your offsets, neighboring keys and neighboring values are D times too far apart. The "
     "strides k_s and v_s already count numbers, not rows. Multiply j by k_s or v_s alone.",
     ("* k_s", "* k_s * D"), ("* v_s", "* v_s * D")),
    ("strides of rows times the block",
     "In your offsets, neighboring keys and neighboring values are BLOCK times too far apart. The "
     "strides k_s and v_s already lead from one row to the next. Multiply j by k_s or v_s alone.",
     ("* k_s", "* k_s * BLOCK"), ("* v_s", "* v_s * BLOCK")),
    ("strides of heads times S",
     "In your offsets, neighboring KV heads are S times too far apart. The strides k_h and v_h "
     "already lead from one head to the next. Multiply the index of the KV head by k_h or v_h "
     "alone.",
     ("* k_h", "* S * k_h"), ("* v_h", "* S * v_h")),
    ("strides of items times the heads",
     "In your offsets, the sequences of the batch are too far apart. The strides k_b and v_b "
     "already lead from one sequence to the next. Multiply the batch index by k_b or v_b alone.",
     ("batch * k_b", "batch * tl.num_programs(0) * k_b"),
     ("batch * v_b", "batch * tl.num_programs(0) * v_b")),
    ("KV heads of the batch numbered",
     "Your result is what you get if the KV heads of the whole batch are numbered consecutively, "
     "and this index is multiplied by k_h and v_h. But the next sequence need not start one head "
     "stride after the last head. Multiply the batch index by k_b and v_b, and only the KV head's "
     "index within its sequence by k_h and v_h.",
     ("batch * k_b", "batch * (tl.num_programs(0) // GROUP) * k_h"),
     ("batch * v_b", "batch * (tl.num_programs(0) // GROUP) * v_h")),
    ("numbers of a key apart",
     "In your offsets, the D numbers of a key or value are D apart, but in memory they are "
     "adjacent. Add d[None, :] as it is.",
     ("* k_s + d[None, :]", "* k_s + d[None, :] * D"),
     ("* v_s + d[None, :]", "* v_s + d[None, :] * D")),
    ("row of the query added",
     "Your result is what you get if `row` is part of the offsets in k and v. But `row` is the "
     "offset of the query in q. Use batch * k_b and batch * v_b instead.",
     ("batch * k_b", "row"), ("batch * v_b", "row")),
    ("keys read backwards",
     "Your kernel reads the keys and values in reverse order, and starts one row after the last, "
     "as with S - j. Multiply j itself by k_s and v_s.",
     ("j[:, None] * k_s", "(S - j[:, None]) * k_s"),
     ("j[:, None] * v_s", "(S - j[:, None]) * v_s")),
    ("multiplied before it is divided",
     "In your result, query heads of one group read from different addresses, as with head * k_h "
     "// GROUP. They must all read the same KV head. Divide first: use head // GROUP * k_h and "
     "head // GROUP * v_h.",
     ("kv_head * k_h", "head * k_h // GROUP"), ("kv_head * v_h", "head * v_h // GROUP")),
    ("batch in place of head",
     "Your result is what you get if batch and head are swapped. Use head // GROUP as the KV "
     "head, and multiply batch by k_b and v_b.",
     (KV, "kv_head = batch // GROUP"), ("batch * k_b", "head * k_b"),
     ("batch * v_b", "head * v_b")),
    ("bytes",
     "Your offsets are 4 times too large, as if they counted bytes. Strides and pointers in Triton "
     "count numbers. Do not multiply by the size of a number.",
     (f"{K_AT} + d[None, :]", f"4 * ({K_AT} + d[None, :])"),
     (f"{V_AT} + d[None, :]", f"4 * ({V_AT} + d[None, :])")),
    ("keys side by side, their numbers apart",
     "You multiply k_s and v_s by the wrong index. They are the strides from key to key, so "
     "multiply them by j. The D numbers of a key are adjacent, so add d[None, :].",
     ("j[:, None] * k_s + d[None, :]", "j[:, None] + d[None, :] * k_s"),
     ("j[:, None] * v_s + d[None, :]", "j[:, None] + d[None, :] * v_s")),
    ("keys side by side",
     "Your result is what you get if j is added without a factor. Then each key or value starts "
     "only one number after the previous one, but they are k_s or v_s numbers apart. Multiply j by "
     "k_s in `k_at` and by v_s in `v_at`.",
     ("j[:, None] * k_s", "j[:, None]"),
     ("j[:, None] * v_s", "j[:, None]")),
    ("keys side by side, values right",
     "`v_at` is right, but your `k_at` adds j without a factor. Then each key starts only one "
     "number after the previous one, but they are k_s numbers apart. Multiply j by k_s.",
     ("j[:, None] * k_s", "j[:, None]")),
]  # fmt: skip

BY_COUNTING = (
    (KV, "heads = tl.num_programs(0) // GROUP\n    kv_head = head * heads // tl.num_programs(0)"),
)

exercise = Exercise(
    "6b.2", grouped_kernel, inputs, MISTAKES, names="B Hq D", run=run,
    also_right=[by_pointers, BY_COUNTING],
)  # fmt: skip
