"""6b.6: decoding with the cache split among programs, whose results are merged."""

import contextlib

import torch

from course_utils.attention import merge
from course_utils.checks.compare import is_same
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import normals
from course_utils.checks.submission_kernel import launch, launches, tl, triton, unlaunched

BLOCK = 16


def split_decode(q, k, v, splits):
    def part(
        q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, S, share, scale, GROUP: tl.constexpr,
        D: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        head, split = tl.program_id(0), tl.program_id(1)
        d = tl.arange(0, D)
        q = tl.load(q_ptr + head * D + d)  # (D,)
        m, ell = -float("inf"), 0.0
        acc = tl.full((D,), 0, tl.float32)
        stop = tl.minimum((split + 1) * share, S)
        for start in range(split * share, stop, BLOCK):
            j = start + tl.arange(0, BLOCK)  # (BLOCK,)
            at = (head // GROUP * S + j[:, None]) * D + d[None, :]  # (BLOCK, D)
            k = tl.load(k_ptr + at, mask=j[:, None] < stop, other=0)
            v = tl.load(v_ptr + at, mask=j[:, None] < stop, other=0)
            scores = tl.sum(q[None, :] * k, axis=1) * scale  # (BLOCK,)
            scores = tl.where(j < stop, scores, -float("inf"))
            m_new = tl.maximum(m, tl.max(scores, axis=0))
            p, shrink = tl.exp(scores - m_new), tl.exp(m - m_new)
            ell = ell * shrink + tl.sum(p, axis=0)
            acc = acc * shrink + tl.sum(p[:, None] * v, axis=0)
            m = m_new
        row = head * tl.num_programs(1) + split
        tl.store(out_ptr + row * D + d, acc / tl.where(ell == 0, 1, ell))  # nothing read: zeros
        tl.store(lse_ptr + row, m + tl.log(ell))  # nothing read: -inf

    (Hq, D), (Hkv, S) = q.shape, k.shape[:2]
    out, lse = q.new_empty(Hq, splits, D), q.new_empty(Hq, splits)
    share = -(-S // splits)  # keys of a split; the last may have fewer, or none
    launch(
        part, (Hq, splits), q, k, v, out, lse, S, share, D**-0.5, GROUP=Hq // Hkv, D=D, BLOCK=BLOCK
    )
    weights = lse.softmax(dim=-1)  # (Hq, splits)
    return (weights[..., None] * out).sum(dim=1)  # (Hq, D)


@triton.jit
def plain(q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, S, D: tl.constexpr, BLOCK: tl.constexpr):
    """Attend to all keys of one head at once."""
    d, j = tl.arange(0, D), tl.arange(0, BLOCK)
    head = tl.program_id(0)
    at = (head * S + j[:, None]) * D + d
    k = tl.load(k_ptr + at, mask=j[:, None] < S, other=0)
    v = tl.load(v_ptr + at, mask=j[:, None] < S, other=0)
    s = tl.sum(tl.load(q_ptr + head * D + d) * k, 1) / tl.sqrt(D * 1.0)
    s = tl.where(j < S, s, -float("inf"))
    p = tl.exp(s - tl.max(s, 0))
    tl.store(out_ptr + head * D + d, tl.sum(p[:, None] * v, 0) / tl.sum(p, 0))
    tl.store(lse_ptr + head, tl.max(s, 0) + tl.log(tl.sum(p, 0)))


def by_launches(q, k, v, splits):
    """One launch for each split, on a copy of its keys, and lesson 03's merge."""
    Hq, D = q.shape
    out, lse = torch.zeros(Hq, D), torch.full((Hq,), -torch.inf)
    parts = zip(k.tensor_split(splits, 1), v.tensor_split(splits, 1), strict=True)
    for keys, values in parts:
        n = keys.shape[1]
        if n:
            keys, values = (x.repeat_interleave(Hq // len(k), 0) for x in (keys, values))
            here, there = torch.empty(Hq, D), torch.empty(Hq)
            launch(plain, (Hq,), q, keys, values, here, there, n, D=D, BLOCK=1 << n.bit_length())
            out, lse = merge(out, lse, here, there)
    return out


def inputs():
    """Return (q, k, v, splits): (Hq, D), (Hkv, S, D) twice, contiguous."""
    normal = normals(6600)

    def case(Hq, Hkv, S, D, splits, factor=1.0, values=1.0):
        q, k = normal(Hq, D, dtype=torch.float32), normal(Hkv, S, D, dtype=torch.float32)
        return factor * q, k, values * normal(Hkv, S, D, dtype=torch.float32), splits

    # The first query's scores lie around 10 in the first part, then around 120 and, in a last
    # block, around 0; the other's are the negative. e^x overflows above 88, is 0 below -104.
    q, k, v, splits = case(2, 1, 64, 16, 2)
    q[1] = -q[0]
    heights = torch.tensor([10.0, 120.0, 0.0]).repeat_interleave(torch.tensor([32, 16, 16]))
    far = 0.3 * k + heights[:, None] * 4 * q[0] / q[0].square().sum()
    low = case(1, 1, 9, 16, 2)
    return [
        (5 + 0.1 * low[0].abs(), -0.1 * low[1].abs() - 5.6, *low[2:]),  # all far below 0; quick
        case(1, 1, 129, 16, 5),  # a part is longer than a block, and the cache than a part by far
        case(6, 2, 17, 32, 1),
        (q, far, v, splits),
        case(1, 1, 3, 16, 5, values=1e5),  # more splits than keys
        case(1, 1, 1, 16, 2),
        case(1, 1, 79, 16, 40),  # rounded down, a share is 1: too much is left for one part
        case(6, 3, 35, 16, 3),  # several KV heads and several splits
    ]


def run(answer, q, k, v, splits):
    """Call an answer; complain if no kernel read the keys, or one program too many or too few."""
    if q.requires_grad:
        return [None]  # gradients are not asked
    with launches() as found, _unwritten_is_nan():
        results = call_with_clones(answer, q, k, v, splits)
    D, S = q.shape[-1], k.shape[1]
    read = [work.program_reads() for work in found]
    if sum(sum(each.values()) for each in read) < 2 * k.numel():
        raise NamedMistake("no kernel", NO_KERNEL, results)
    most = [max(each.values(), default=0) for each in read]
    share = -(-S // splits)
    if max(most) > 2 * D * (share + 2 * BLOCK) + q.numel():
        raise NamedMistake("not split", NOT_SPLIT, results)
    # However S keys are cut into so many parts, the longest has a share of them. More launches may
    # read that one after another.
    if sum(most) < 2 * D * share:
        raise NamedMistake("more parts than splits", MORE_PARTS, results)
    with unlaunched(), _unwritten_is_nan():
        without = _outcome(answer, q, k, v, splits)
    if is_same(without, results[0]):
        raise NamedMistake("kernel not used", NOT_USED, results)
    if isinstance(results[0], torch.Tensor) and results[0].dtype != torch.float32:
        raise NamedMistake("not float32", OTHER_DTYPE)
    return results


def _outcome(answer, *args):
    try:
        return call_with_clones(answer, *args)[0]
    except Exception:  # where kernels wrote nothing, what follows may fail
        return None


@contextlib.contextmanager
def _unwritten_is_nan():
    """Let new tensors hold NaN until they are written, as memory may that was used before."""
    torch.set_deterministic_debug_mode("warn")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode("default")


def mixed(x, kv_heads):
    """Read parts stored as (splits, KV heads, group) as (KV heads, splits, group)."""
    Hq, splits, *rest = x.shape
    return x.view(kv_heads, splits, Hq // kv_heads, *rest).transpose(1, 2).reshape(x.shape)


def crossed(x):
    """Read parts stored as (heads, splits) as (splits, heads), then transpose them."""
    Hq, splits, *rest = x.shape
    return x.reshape(splits, Hq, *rest).transpose(0, 1)


NO_KERNEL = (
    "Your result is right, but no kernel reads the keys and values. Write a kernel and run it "
    "with launch(...)."
)
NOT_SPLIT = (
    "Your result is right, but one program reads more keys than one split holds. For each head, "
    "start `splits` programs with about S / splits keys each. The last one must not get more."
)
NOT_USED = (
    "Your result does not depend on your kernels, because it is the same if none of them runs. "
    "Return the merged results of the kernels."
)
OTHER_DTYPE = "Your result is right, but its dtype is not float32. Return float32."
MORE_PARTS = (
    "Your result is right, but no program reads S / splits keys, so there must be more parts than "
    "splits. Give each program one part of this length, and let it loop over its part in blocks of "
    "16."
)
ORDERS = (
    "Your kernel stores the {} in one order of heads and splits, but your merge reads them in the "
    "other. Use the same order in both. For example, store each part in row number head * splits + "
    "split."
)
ONE_HEAD = (
    "All heads write their {} to the same rows, so only those of the last head remain. Give each "
    "pair of head and split its own row, for example head * splits + split."
)
NOT_SUMMED = (
    "You return one result for each split and head. Add up the weighted outputs of the splits, and "
    "return (Hq, D)."
)
OUT_ROW, LSE_ROW = "out_ptr + row * D", "lse_ptr + row"
EMPTY = "out, lse = q.new_empty(Hq, splits, D), q.new_empty(Hq, splits)"
ZEROS = "out, lse = q.new_zeros(Hq, splits, D), q.new_zeros(Hq, splits)"
AT = "(head // GROUP * S + j[:, None]) * D + d[None, :]"
OTHER_ROW = "split * tl.num_programs(0) + head"
MERGED = "weights = lse.softmax(dim=-1)"
LSE = "m + tl.log(ell)"

MISTAKES = [
    ("outputs averaged",
     "Your result is the mean of the splits' outputs. A split with larger scores must count more. "
     "Weight the outputs by the softmax of their lse.",
     (MERGED, "weights = lse * 0 + 1 / splits")),
    ("outputs added",
     "Your result is the sum of the splits' outputs, but their weights must sum to 1. Weight the "
     "outputs by the softmax of their lse.",
     (MERGED, "weights = torch.ones_like(lse)")),
    ("powers of 2",
     "Your lse mixes base 2 and base e. If the kernel computes e^x, lse must be m + log ℓ with "
     "the natural logarithm, tl.log.",
     (LSE, "m + tl.log2(ell)")),
    ("own head",
     "Your kernel reads past the end of the cache. There are fewer KV heads than query heads, "
     "because neighboring query heads share one. Use head // (Hq // Hkv) as the KV head.",
     ("head // GROUP * S", "head * S")),
    ("averaged where there are keys",
     "Your result gives all splits with keys the same weight. A split with larger scores must "
     "count more. Weight the outputs by the softmax of their lse.",
     (MERGED, "weights = (lse > -torch.inf).float()\n    weights /= weights.sum(-1, True)")),
    ("empty splits",
     "Your result is NaN if there are more splits than keys. A split without keys computes 0 / 0, "
     "or never writes its part of a tensor from torch.empty. Store lse = −∞ and a finite output "
     "(for example 0) for it.",
     ("tl.where(ell == 0, 1, ell)", "ell")),
    ("weighed without the maximum",
     "Your result is NaN where scores are far from 0. There e^x overflows to inf or underflows "
     "to 0, and inf / inf and 0 / 0 are NaN. In the merge, subtract the largest lse before you "
     "take the exponential, as softmax does. If your kernel computes e^score without subtracting "
     "m, subtract m there as well.",
     (MERGED, "weights = lse.exp() / lse.exp().sum(-1, True)")),
    ("maximum of all heads",
     "Your result is NaN for heads whose scores are far below those of another head. If you "
     "subtract the largest lse of *all* heads, their e^lse underflows to 0, and 0 / 0 is NaN. For "
     "each head, subtract the largest lse of its own splits.",
     (MERGED,
      "weights = (lse - lse.max()).exp()\n    weights /= weights.sum(-1, True)")),
    ("lse for powers of 2",
     "Your parts are right, but each lse is in base 2, and the merge uses base e. Multiply lse by "
     "log 2.",
     ("axis=1) * scale", "axis=1) * scale * 1.442695"),
     ("tl.exp(scores - m_new), tl.exp(m - m_new)", "tl.exp2(scores - m_new), tl.exp2(m - m_new)"),
     (LSE, "m + tl.log2(ell)")),
    ("empty splits weigh",
     "Your splits without keys have lse = 0, and e^0 = 1 is a weight like any other. Store lse = "
     "−∞ for them.",
     (LSE, "tl.where(ell == 0, 0, m + tl.log(ell))")),
    ("end of the first split",
     "Only your first split has keys, as if every split ended where the first one does. Each "
     "split must end at its own start plus its number of keys, or at S if that is smaller.",
     ("tl.minimum((split + 1) * share, S)",
      "tl.minimum(share, S)")),
    ("every split to the last key",
     "All your splits go on to the last key, so most keys count several times. End each split "
     "after its share of the keys, or at S if that is smaller.",
     ("tl.minimum((split + 1) * share, S)", "S")),
    ("all in one place",
     "All splits of a head write to the same row, so the other rows stay unwritten. Give each "
     "split its own row, for example head * splits + split.",
     ("num_programs(1) + split", "num_programs(1)")),
    ("parts before KV heads",
     "Your kernel stores the parts in the order (splits, KV heads, group), but your merge reads "
     "them as (KV heads, splits, group). Use the same order in both.",
     ("row = head * tl.num_programs(1) + split", "row = split * tl.num_programs(0) + head"),
     (MERGED, f"out, lse = (mixed(x, len(k)) for x in (out, lse))\n    {MERGED}")),
    ("splits before heads",
     "Your kernel stores the parts in the order (splits, heads), but your merge reads them as "
     "(heads, splits). Use the same order in both. For example, store each part in row number head "
     "* splits + split.",
     ("row = head * tl.num_programs(1) + split",
      "row = split * tl.num_programs(0) + head")),
    ("heads before splits",
     "Your kernel stores the parts in the order (heads, splits), but your merge reads them as "
     "(splits, heads). Use the same order in both, for example (heads, splits).",
     (MERGED, f"out, lse = crossed(out), crossed(lse)\n    {MERGED}")),
    ("outputs before splits", ORDERS.format("outputs"),
     (MERGED, f"out = crossed(out)\n    {MERGED}")),
    ("outputs before heads", ORDERS.format("outputs"),
     (OUT_ROW, f"out_ptr + ({OTHER_ROW}) * D")),
    ("lse before splits", ORDERS.format("lse values"),
     (MERGED, f"lse = crossed(lse)\n    {MERGED}")),
    ("lse before heads", ORDERS.format("lse values"), (LSE_ROW, f"lse_ptr + {OTHER_ROW}")),
    ("outputs of all splits in one place",
     "All splits of a head write their outputs to the same row, so only the last split's output "
     "remains. Give each split its own row, for example head * splits + split.",
     (OUT_ROW, "out_ptr + head * tl.num_programs(1) * D"), (EMPTY, ZEROS)),
    ("lse of all splits in one place",
     "All splits of a head write their lse to the same row, so only the last split's lse remains. "
     "Give each split its own row, for example head * splits + split.",
     (LSE_ROW, "lse_ptr + head * tl.num_programs(1)"), (EMPTY, ZEROS)),
    ("outputs of all heads in one place", ONE_HEAD.format("outputs"),
     (OUT_ROW, "out_ptr + split * D"), (EMPTY, ZEROS)),
    ("outputs of all heads in one place, splits first", ONE_HEAD.format("outputs"),
     (OUT_ROW, "out_ptr + split * D"), (EMPTY, ZEROS),
     (MERGED, f"out = crossed(out)\n    {MERGED}")),
    ("lse of all heads in one place", ONE_HEAD.format("lse values"),
     (LSE_ROW, "lse_ptr + split"), (EMPTY, ZEROS)),
    ("lse of all heads in one place, splits first", ONE_HEAD.format("lse values"),
     (LSE_ROW, "lse_ptr + split"), (EMPTY, ZEROS),
     (MERGED, f"lse = crossed(lse)\n    {MERGED}")),
    ("parts not added", NOT_SUMMED, (".sum(dim=1)", "")),
    ("parts not added, splits first", NOT_SUMMED, (".sum(dim=1)", ".transpose(0, 1)")),
    ("added over the heads",
     "You add up the outputs of the heads, but each head has its own result. Add up the weighted "
     "outputs of the splits, and return (Hq, D).",
     (".sum(dim=1)", ".sum(dim=0)")),
    ("one block of each split",
     "Your programs read only the first block of their split, but a split may be longer than a "
     "block. Loop over all blocks of the split.",
     ("range(split * share, stop,", 
      "range(split * share, tl.minimum(split * share + BLOCK, stop),")),
    ("splits of one block",
     "Each of your splits is one block long, so later keys are missing. Give each split about S / "
     "splits keys, and let its program loop over them in blocks of 16.",
     ("(split + 1) * share", "(split + 1) * BLOCK"),
     ("range(split * share", "range(split * BLOCK")),
    ("empty splits read the last key",
     "Splits that begin after the last key read the last key again, so it counts several times. "
     "Give such splits no keys, and let them store lse = −∞ and a finite output (for example 0).",
     ("range(split * share", "range(tl.minimum(split * share, S - 1)")),
    ("keys as columns",
     "Your kernel reads k and v as if each head were stored as (D, S). It is stored as (S, D), and "
     "the D numbers of a key are adjacent. Multiply j by D, and add d.",
     (AT, "head // GROUP * S * D + j[:, None] + d[None, :] * S")),
    ("heads of a split's length",
     "Your kernel reads KV heads as if each had only the keys of one split. A head has S keys. "
     "Multiply the index of the KV head by S * D.",
     (AT, AT.replace("* S", "* share"))),
    ("heads of one key",
     "Your kernel reads KV heads as if each had only one key. A head has S keys. Multiply the "
     "index of the KV head by S * D.",
     (AT, AT.replace("* S", ""))),
    ("keys for values",
     "Your result is what you get if both keys and values are loaded from k. Load the values from "
     "v_ptr.",
     ("v_ptr + at", "k_ptr + at")),
    ("values for keys",
     "Your result is what you get if both keys and values are loaded from v. Load the keys from "
     "k_ptr.",
     ("k_ptr + at", "v_ptr + at")),
    ("first query for all",
     "All your heads use the query of the first head, but each head has its own. Add head * D to "
     "the address of q.",
     ("q_ptr + head * D", "q_ptr")),
    ("sign of the weights",
     "You weight the outputs by the softmax of −lse, so a split with larger scores counts less. "
     "Use the softmax of lse.",
     (MERGED, "weights = (-lse).softmax(dim=-1)")),
    ("weights proportional to lse",
     "Your weights are proportional to lse. But each split must be weighted by the sum of its "
     "exponentials, which is e^lse. Use the softmax of lse.",
     (MERGED, "weights = lse / lse.sum(-1, keepdim=True)")),
    ("softmax of the sums",
     "You weight the outputs by the softmax of e^lse. The softmax itself computes exponentials. "
     "Use the softmax of lse.",
     (MERGED, "weights = lse.exp().softmax(dim=-1)")),
    ("outputs in 16 bits",
     "Your result is what you get if the outputs of the splits are stored in float16. They are "
     "rounded, and above 65,504 they overflow to inf. Store them in float32.",
     (EMPTY, EMPTY.replace("splits, D)", "splits, D, dtype=torch.float16)"))),
    ("sums in place of outputs",
     "Your parts are Σ p v, each relative to its own maximum, so they cannot be merged yet. "
     "Divide each part by its ℓ first.",
     ("acc / tl.where(ell == 0, 1, ell)",
      "acc")),
    ("weighed by the maximum",
     "You weight each split by e^m, where m is its largest score. A split with many keys must "
     "count more, so use lse = m + log ℓ.",
     (LSE, "m + 0 * ell")),
    ("weighed by the sum",
     "You weight the splits by ℓ, but each ℓ is relative to its own maximum. Use lse = m + log ℓ.",
     (LSE, "tl.log(ell)")),
    ("sign of the logsumexp",
     "In your lse, log ℓ has the wrong sign. Use lse = m + log ℓ.",
     (LSE, "m - tl.log(ell)")),
    ("softmax over the heads",
     "Your result is what you get with a softmax over the heads. For each head, the weights of "
     "its splits must sum to 1. Use softmax over the splits.",
     (MERGED, "weights = lse.softmax(dim=0)")),
    ("heads take turns",
     "Your query heads cycle through the KV heads: 0, 1, 0, 1 if there are 4 query heads and 2 "
     "KV heads. Neighboring query heads must share a KV head: 0, 0, 1, 1. Use head // (Hq // "
     "Hkv).",
     ("head // GROUP * S", "head % (tl.num_programs(0) // GROUP) * S")),
    ("last keys dropped",
     "If splits does not divide S, the last keys are missing from your result. Round S / splits "
     "up.",
     ("-(-S // splits)", "S // splits")),
    ("keys of the next split",
     "The last block of a split reaches into the next split, so some keys count twice. Mask with "
     "the end of the split, not with S.",
     ("mask=j[:, None] < stop, other=0)\n"
      "            v", "mask=j[:, None] < S, other=0)\n            v"), (
      "v_ptr + at, mask=j[:, None] < stop", "v_ptr + at, mask=j[:, None] < S"),
     ("tl.where(j < stop", "tl.where(j < S")),
    ("scores beyond the end zero",
     "Past the end of a split, your scores are 0, and e^0 = 1 is a weight like any other. Set "
     "them to −∞.",
     ('tl.where(j < stop, scores, -float("inf"))', "scores")),
    ("accumulator not rescaled",
     "Within a split, your O is not rescaled when m grows. Like ℓ, it is relative to the old m. "
     "Multiply it by e^(old m − new m).",
     ("acc * shrink", "acc")),
    ("sum not rescaled",
     "Within a split, your ℓ is not rescaled when m grows. Like O, it is relative to the old m. "
     "Multiply it by e^(old m − new m).",
     ("ell * shrink", "ell")),
    ("not scaled",
     "Your result is right, except that the scores are not scaled. Divide them by √D.",
     ("axis=1) * scale", "axis=1)")),
    ("powers of 2 throughout",
     "Your kernel's exponentials have base 2, but softmax uses base e. Use tl.exp instead of "
     "tl.exp2.",
     ("tl.exp(scores - m_new), tl.exp(m - m_new)",
      "tl.exp2(scores - m_new), tl.exp2(m - m_new)")),
    ("nothing rescaled",
     "Within a split, neither ℓ nor O is rescaled when m grows. Both are relative to the old m. "
     "Multiply both by e^(old m − new m).",
     ("acc * shrink", "acc"), ("ell * shrink", "ell")),
    ("sum without its logarithm",
     "Your lse adds ℓ instead of its logarithm. Use lse = m + log ℓ.",
     (LSE, "m + ell")),
    ("maximum of the block",
     "Your m is the largest score of the newest block only. Where the scores fall by more than "
     "about 88 from one block to the next, e^(old m − new m) overflows. Set m to the larger of the "
     "old m and the block's largest score.",
     ("tl.maximum(m, tl.max(scores, axis=0))", "tl.max(scores, axis=0)")),
    ("weights not normalised",
     "You weight the splits by e^lse, but these weights do not sum to 1. Use the softmax of lse.",
     (MERGED, "weights = lse.exp()")),
    ("largest weight 1",
     "In your merge, the largest split weight of each head is 1, so a head's weights sum to more "
     "than 1. Divide them by their sum, as softmax does.",
     (MERGED, "weights = (lse - lse.amax(-1, keepdim=True)).exp()")),
    ("one split alone",
     "Your result uses only the split with the largest lse, but all splits count. Weight the "
     "outputs by the softmax of their lse.",
     (MERGED, "weights = (lse == lse.amax(-1, keepdim=True)).float()")),
    ("first KV head for all",
     "All your query heads read the first KV head. Only neighboring query heads share a KV head. "
     "Use head // (Hq // Hkv) as the KV head.",
     ("head // GROUP * S + ", "")),
    ("divided by d",
     "Your scores are divided by D. Divide them by √D, and check that you scale only once.",
     ("D**-0.5", "D**-1.0")),
    ("no maximum",
     "Where scores are large, your e^score overflows to inf, and inf / inf is NaN. Where scores "
     "are far below 0, it underflows to 0. In the kernel, subtract m, the largest score so far, "
     "before you take the exponential.",
     ("m_new = tl.maximum(m, tl.max(scores, axis=0))", "m_new = 0.0"),
     (LSE, "m + tl.log(tl.where(ell == 0, 1, ell))")),
    ("divided by √S",
     "Your scores are divided by √S. A score is a sum of D products, so divide it by √D.",
     ("D**-0.5", "S**-0.5")),
    ("linear weights",
     "Your weights are proportional to lse minus the smallest lse. But each split must be "
     "weighted by the sum of its exponentials, which is e^lse. Use the softmax of lse.",
     (MERGED, "weights = lse - lse.amin(-1, keepdim=True)\n    weights /= weights.sum(-1, True)")),
]  # fmt: skip

exercise = Exercise(
    "6b.6", split_decode, inputs, MISTAKES, names="Hq D", run=run, also_right=[by_launches]
)
