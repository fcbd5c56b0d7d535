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
    row = (batch * tl.num_programs(0) + head) * D  # q and out are (B, Hq, D), whole in memory
    q = tl.load(q_ptr + row + d)  # (D,), the newest query of this head
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

    def case(B, Hq, Hkv, S, D, k_spare=0, v_turned=False, loud=1.0):
        """Let k be the used part of a longer cache, and v hold the heads after the tokens."""
        q = loud * normal(B, Hq, D, dtype=torch.float32)
        k = normal(B, Hkv, S + k_spare, D, dtype=torch.float32)[:, :, :S]
        v = normal(B, S, Hkv, D, dtype=torch.float32).transpose(1, 2)
        return q, k, v if v_turned else v.contiguous()

    return [
        case(1, 6, 2, 7, 16),
        case(2, 4, 2, 9, 32, k_spare=5, v_turned=True),
        case(2, 2, 2, 5, 16, k_spare=3, loud=99.0),  # every head has its own
        case(2, 2, 1, 33, 16, k_spare=2),  # both share one
        case(1, 1, 1, 1, 16),
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
    ("heads take turns", "the key heads take turns, 0 1 0 1: neighbouring query heads share one, "
     "0 0 1 1, which is // and not %", (KV, "kv_head = head % (tl.num_programs(0) // GROUP)")),
    ("place in the group", "head % GROUP is a head's place within its group; the number of the "
     "group is head // GROUP", (KV, "kv_head = head % GROUP")),
    ("divided by the heads", "head is divided by the number of key heads: GROUP query heads share "
     "one, so head // GROUP", (KV, "kv_head = head // (tl.num_programs(0) // GROUP)")),
    ("first head for all", "all query heads read the first head of keys and values: GROUP of them "
     "share one, head // GROUP", (KV, "kv_head = head * 0")),
    ("own head", "it reads past the end: some query head looks for keys or values in a head that "
     "is not there; there are GROUP times fewer, and neighbours share one: head // GROUP",
     (KV, "kv_head = head")),
    ("keys of the group, values of the first", "the keys are right; the values are those of the "
     "first head: they need kv_head * v_h as well", (V_AT, V_AT.replace("kv_head * v_h + ", ""))),
    ("values of the group, keys of the first", "the values are right; the keys are those of the "
     "first head: they need kv_head * k_h as well", (K_AT, K_AT.replace("kv_head * k_h + ", ""))),
    ("first of the group", "it reads past the end: head // GROUP * GROUP is the first query head "
     "of the group; the number of the group is head // GROUP",
     (KV, "kv_head = head // GROUP * GROUP")),
    ("batch and head exchanged", "the strides of batch and head are exchanged: k_b belongs to the "
     "batch and k_h to the head, v_b and v_h too", ("batch * k_b + kv_head * k_h",
      "kv_head * k_b + batch * k_h"), ("batch * v_b + kv_head * v_h",
      "kv_head * v_b + batch * v_h")),
    ("one number of each", "of each key and value one number is read, D times: add d[None, :]",
     ("* k_s + d[None, :]", "* k_s + 0 * d[None, :]"),
     ("* v_s + d[None, :]", "* v_s + 0 * d[None, :]")),
    ("batch forgotten", "right in the first item of a batch; for the others its keys and values "
     "are read again: batch * k_b and batch * v_b are missing",
     (K_AT, K_AT.replace("batch * k_b + ", "")), (V_AT, V_AT.replace("batch * v_b + ", ""))),
    ("batch forgotten for the values", "right in the first item of a batch; for the others the "
     "first's values are read: batch * v_b is missing",
     (V_AT, V_AT.replace("batch * v_b + ", ""))),
    ("batch forgotten for the keys", "right in the first item of a batch; for the others the "
     "first's keys are read: batch * k_b is missing",
     (K_AT, K_AT.replace("batch * k_b + ", ""))),
    ("strides of the keys for both", "right where k and v lie in memory alike; they may not: the "
     "values have strides of their own, v_b, v_h and v_s",
     (V_AT, K_AT)),
    ("rows one after another", "right where the rows of a head lie one after another, D numbers "
     "apart; here they may lie otherwise: from key to key it is k_s, from value to value v_s",
     ("* k_s", "* D"), ("* v_s", "* D")),
    ("heads one after another", "right where a head's rows end where the next head begins; a cache "
     "may have spare rows: from head to head it is k_h and v_h",
     ("* k_h", "* S * D"), ("* v_h", "* S * D")),
    ("all as if whole", "right where k and v lie whole in memory, one number after another; here "
     "they may not: use their strides, k_b, k_h, k_s and v_b, v_h, v_s",
     (K_AT, "((batch * (tl.num_programs(0) // GROUP) + kv_head) * S + j[:, None]) * D"),
     (V_AT, "((batch * (tl.num_programs(0) // GROUP) + kv_head) * S + j[:, None]) * D")),
    ("strides exchanged", "the strides of head and key are exchanged: from head to head it is k_h "
     "and v_h, from key to key k_s and v_s", ("kv_head * k_h + j[:, None] * k_s",
      "kv_head * k_s + j[:, None] * k_h"), ("kv_head * v_h + j[:, None] * v_s",
      "kv_head * v_s + j[:, None] * v_h")),
    ("keys side by side, their numbers apart", "k_s and v_s are what lies from key to key: they "
     "belong to j; the D numbers of a key lie side by side, + d[None, :]",
     ("j[:, None] * k_s + d[None, :]", "j[:, None] + d[None, :] * k_s"),
     ("j[:, None] * v_s + d[None, :]", "j[:, None] + d[None, :] * v_s")),
    ("keys side by side", "the keys are read one number apart, and the values: from key to key it "
     "is k_s numbers, from value to value v_s", ("j[:, None] * k_s", "j[:, None]"),
     ("j[:, None] * v_s", "j[:, None]")),
    ("keys side by side, values right", "the keys are read one number apart: from key to key it is "
     "k_s numbers", ("j[:, None] * k_s", "j[:, None]")),
]  # fmt: skip

BY_COUNTING = (
    (KV, "heads = tl.num_programs(0) // GROUP\n    kv_head = head * heads // tl.num_programs(0)"),
)

exercise = Exercise(
    "6b.2", grouped_kernel, inputs, MISTAKES, names="B Hq D", run=run,
    also_right=[by_pointers, BY_COUNTING],
)  # fmt: skip
