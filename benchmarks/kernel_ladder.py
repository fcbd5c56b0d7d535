"""Measure what each optimization of the forward kernel gains: a ladder of versions, one idea each.

The first rung is a straightforward tiled kernel; the seventh after it is
`course_utils.kernels.flash_attention`, which also writes the logsumexp. All others are the kernel
below with more and more switches on. The last rung is one step further, to see whether
`flash_attention` should take it. PyTorch's fused backends are measured in the same run for
comparison. It is a part of gpu.py. The instructions of each rung, which need no GPU, are counted by
kernel_instructions.py.
"""

import heapq
import itertools
from typing import NamedTuple

import torch

# Import Triton from `kernels`, which sets TRITON_INTERPRET where there is no GPU.
from course_utils import kernel_tiles, kernels
from course_utils.kernels import LOG2_E, tl, triton
from gpu_attention import BACKENDS, compare, sdpa
from timing import case

SMALL = kernel_tiles.Tiles(64, 64, num_warps=4, num_stages=3)  # modest blocks


class Rung(NamedTuple):
    """One version of the kernel: a switch set beside those below, why, and what to expect."""

    name: str
    switch: str
    idea: str
    prediction: str


# How many instructions a rung's loop has is counted by kernel_instructions.py.
RUNGS = [
    Rung(
        "plain",
        "",
        "attention in tiles: one loop over all keys, every tile masked, powers of e",
        "P and V in float32: their product is TF32's, at half the rate",
    ),
    Rung(
        "16-bit P",
        "P_16_BIT",
        "round the weights to the dtype of V before they are multiplied",
        "the products take 2/3 of the time, 1 + 1 in place of 1 + 2",
    ),
    Rung(
        "skip",
        "SKIP",
        "causal: stop at the last key that the block of queries may see",
        "causal: half of all work, products, powers and loads; otherwise nothing",
    ),
    Rung(
        "two loops",
        "TWO_LOOPS",
        "mask only tiles that need it: on the diagonal, and at the ragged end",
        "comparisons and a selection less for each score",
    ),
    Rung(
        "exp2",
        "EXP2",
        "powers of 2, with log₂e folded into the scale of the scores",
        "a multiply-add in place of scaling, subtraction and multiplication by log₂e, and no care "
        "for powers below 2^-126, which round to 0",
    ),
    Rung(
        "larger tiles",
        "TILES",
        "block sizes and warps from the table in kernel_tiles.py, by the width of a head",
        "128 queries in place of 64: K and V are loaded half as often, 128 FLOP for each byte",
    ),
    Rung(
        "longest first",
        "LONG_FIRST",
        "four heads at a time, and of these first the last queries, which see most keys if causal",
        "causal: short work fills the end, where processors would wait for the longest; both: the "
        "L2 cache holds the keys and values of four heads",
    ),
    Rung(
        "descriptors",
        "DESCRIPTORS",
        "tensor descriptors: Hopper's copy unit finds the addresses. This is flash_attention",
        "no addresses in registers",
    ),
    Rung(
        "persistent",
        "PERSISTENT",
        "not in flash_attention, to be compared with 'longest first': as many programs as run at "
        "a time, which take one block after another from a counter",
        "a start of a program less for each block, which is N / BLOCK_K trips of the loop",
    ),
]
SWITCHES = ["P_16_BIT", "SKIP", "TWO_LOOPS", "EXP2", "LONG_FIRST", "PERSISTENT"]  # of the kernel


# The kernel. For each block of queries of one head; read first what kernels.py says of the letters.


@triton.jit
def _attend(
    q_ptr,  # q, k, v and out: (B, H, N, D), in one piece
    k_ptr,
    v_ptr,
    out_ptr,
    taken_ptr,  # one int32: how many blocks of queries have been begun, if persistent
    B,
    H,
    N,
    scale,
    IS_CAUSAL: tl.constexpr,
    D: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    P_16_BIT: tl.constexpr,
    SKIP: tl.constexpr,
    TWO_LOOPS: tl.constexpr,
    EXP2: tl.constexpr,
    LONG_FIRST: tl.constexpr,
    PERSISTENT: tl.constexpr,
):
    """Compute the output of one block of queries of one head, or of many."""
    blocks = tl.cdiv(N, BLOCK_Q)
    if PERSISTENT:
        number = tl.atomic_add(taken_ptr, 1)
        while number < B * H * blocks:
            _attend_block(
                q_ptr, k_ptr, v_ptr, out_ptr, blocks - 1 - number // H % blocks,
                number // (H * blocks) * H + number % H, N, scale, IS_CAUSAL, D, BLOCK_Q, BLOCK_K,
                P_16_BIT, SKIP, TWO_LOOPS, EXP2,
            )  # fmt: skip
            number = tl.atomic_add(taken_ptr, 1)
    else:
        block, head = tl.program_id(0) % blocks, tl.program_id(0) // blocks
        if LONG_FIRST:
            head, block, batch = kernels._block_of_program(H, blocks)
            head, block = batch * H + head, blocks - 1 - block
        _attend_block(
            q_ptr, k_ptr, v_ptr, out_ptr, block, head, N, scale,
            IS_CAUSAL, D, BLOCK_Q, BLOCK_K, P_16_BIT, SKIP, TWO_LOOPS, EXP2,
        )  # fmt: skip


@triton.jit
def _attend_block(
    q_ptr, k_ptr, v_ptr, out_ptr, block, head, N, scale,
    IS_CAUSAL: tl.constexpr, D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    P_16_BIT: tl.constexpr, SKIP: tl.constexpr, TWO_LOOPS: tl.constexpr, EXP2: tl.constexpr,
):  # fmt: skip
    """Compute the output of one block of queries of one head."""
    head = head * N * D
    queries = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    at = head + queries[:, None] * D + tl.arange(0, D)[None, :]  # (BLOCK_Q, D)
    q = tl.load(q_ptr + at, mask=queries[:, None] < N, other=0)
    m = tl.full((BLOCK_Q,), -float("inf"), tl.float32)
    ell = tl.full((BLOCK_Q,), 0, tl.float32)
    acc = tl.full((BLOCK_Q, D), 0, tl.float32)

    last_key = queries if IS_CAUSAL else tl.full((BLOCK_Q,), N - 1, tl.int32)  # each may see
    stop = tl.minimum(block * BLOCK_Q + BLOCK_Q, N) if IS_CAUSAL and SKIP else N
    whole = 0  # up to here, no tile needs a mask
    if TWO_LOOPS:
        whole = (block * BLOCK_Q + 1 if IS_CAUSAL else N) // BLOCK_K * BLOCK_K
        m, ell, acc = _take_in(
            q, m, ell, acc, k_ptr + head, v_ptr + head, 0, whole, N, last_key, scale,
            D, BLOCK_K, P_16_BIT, EXP2, MASKED=False,
        )  # fmt: skip
    m, ell, acc = _take_in(
        q, m, ell, acc, k_ptr + head, v_ptr + head, whole, stop, N, last_key, scale,
        D, BLOCK_K, P_16_BIT, EXP2, MASKED=True,
    )  # fmt: skip
    tl.store(out_ptr + at, (acc / ell[:, None]).to(q.dtype), mask=queries[:, None] < N)


@triton.jit
def _take_in(
    q, m, ell, acc, k_ptr, v_ptr, first, stop, N, last_key, scale,
    D: tl.constexpr, BLOCK_K: tl.constexpr,
    P_16_BIT: tl.constexpr, EXP2: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Take the keys and values from first up to stop into (m, ell, acc), block by block."""
    for start in range(first, stop, BLOCK_K):
        keys = start + tl.arange(0, BLOCK_K)
        at = keys[:, None] * D + tl.arange(0, D)[None, :]  # (BLOCK_K, D)
        if MASKED:
            k = tl.load(k_ptr + at, mask=keys[:, None] < N, other=0)
            v = tl.load(v_ptr + at, mask=keys[:, None] < N, other=0)
        else:
            k = tl.load(k_ptr + at)
            v = tl.load(v_ptr + at)
        scores = tl.dot(q, k.T, input_precision="ieee")  # (BLOCK_Q, BLOCK_K), float32
        if MASKED:  # every query sees key 0, in the first block: m is finite from there on
            scores = tl.where(keys[None, :] <= last_key[:, None], scores, -float("inf"))
        if EXP2:
            unit = scale * LOG2_E
            m_new = tl.maximum(m, tl.max(scores, axis=1) * unit)
            p = tl.exp2(scores * unit - m_new[:, None])
            rescale = tl.exp2(m - m_new)
        else:
            scores *= scale
            m_new = tl.maximum(m, tl.max(scores, axis=1))
            p = tl.exp(scores - m_new[:, None])
            rescale = tl.exp(m - m_new)
        ell = ell * rescale + tl.sum(p, axis=1)
        acc = acc * rescale[:, None]
        if P_16_BIT:
            acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        else:
            acc = tl.dot(p, v.to(tl.float32), acc, input_precision="tf32")
        m = m_new
    return m, ell, acc


def plan(number, D, capability=(9, 0)):
    """Return the switches that are on at a rung, and its tiles; those of Hopper unless told."""
    on = {rung.switch for rung in RUNGS[: number + 1]}
    tiles = kernel_tiles.cuts(capability)[D].forward if "TILES" in on else SMALL
    return {name: name in on for name in SWITCHES}, tiles


def attend(number, q, k, v, is_causal):
    """Return attention of q, k and v, (B, H, N, D) each and in one piece, by a rung's kernel."""
    if RUNGS[number].switch == "DESCRIPTORS":
        return kernels.flash_attention(q, k, v, is_causal=is_causal)[0]
    B, H, N, D = q.shape
    switches, tiles = plan(number, D, kernels.capability(q.device))
    out, taken = torch.empty_like(q), None
    grid = (B * H * triton.cdiv(N, tiles.block_q),)
    if switches["PERSISTENT"]:
        taken = torch.zeros(1, dtype=torch.int32, device=q.device)
        grid = (2 * processors(q.device),)  # up to two on each; at D = 128 only one fits
    _attend[grid](
        q, k, v, out, taken, B, H, N, D**-0.5, is_causal, D, tiles.block_q, tiles.block_k,
        **switches, num_warps=tiles.num_warps, num_stages=tiles.num_stages,
    )  # fmt: skip
    return out


def processors(device):
    """Return the number of multiprocessors of a device; the interpreter counts as one."""
    on_gpu = device.type == "cuda"
    return torch.cuda.get_device_properties(device).multi_processor_count if on_gpu else 1


def count(number, case, programs=1):
    """Return the work of a rung in one configuration, by stepping through its loops.

    FLOP and powers (exponentials) are those computed, needed or not; loaded_bytes is what the
    programs read of K and V, in part from the cache; waiting is the share of time that is idle at
    the end, if so many programs run on a multiprocessor at a time.
    """
    on, tiles = plan(number, case.D)
    trips, masked = [], 0
    for start in range(0, case.N, tiles.block_q):
        stop = min(start + tiles.block_q, case.N) if case.is_causal and on["SKIP"] else case.N
        whole = (start + 1 if case.is_causal else case.N) // tiles.block_k
        trips.append(triton.cdiv(stop, tiles.block_k))
        masked += trips[-1] - (whole if on["TWO_LOOPS"] else 0)
    tile = case.B * case.H * tiles.block_q * tiles.block_k  # scores of one, in all heads
    if on["LONG_FIRST"]:
        heads, together = case.B * case.H, kernels.HEADS_TOGETHER.value
        groups = [min(together, heads - first) for first in range(0, heads, together)]
        order = [n for group in groups for n in reversed(trips) for _ in range(group)]
    else:
        order = trips * case.H * case.B
    return {
        "flop": 4 * tile * sum(trips) * case.D,
        "powers": tile * sum(trips),
        "masked_scores": tile * masked,
        "loaded_bytes": 2 * 2 * tile // tiles.block_q * sum(trips) * case.D,
        "waiting": waiting(order, programs),
    }


def waiting(lengths, programs):
    """Return the share of idle time, if each multiprocessor runs so many programs at a time."""
    busy = [0] * 132 * programs  # until when; an H200 has 132 multiprocessors
    for length in lengths:
        heapq.heapreplace(busy, busy[0] + length)
    return 1 - sum(busy) / (len(busy) * max(busy))


def cases():
    """Return all configurations."""
    given = itertools.product([4096, 16384], [64, 128], [False, True])
    return [case(N, D, is_causal) for N, D, is_causal in given]


def rung(number, is_causal):
    """Return attention by the kernel of a rung."""

    def run(q, k, v):
        if reason := kernels.why_not(q.device):
            raise RuntimeError(reason)
        return attend(number, q, k, v, is_causal)

    return run


def entries(device):
    """Yield an entry for each rung, and for PyTorch's fused backends, in each configuration."""
    rungs = {each.name: (number, each) for number, each in enumerate(RUNGS)}
    for each in cases():
        contenders = {name: rung(number, each.is_causal) for name, (number, _) in rungs.items()}
        for name, backend in BACKENDS.items():
            contenders[name] = sdpa(backend, each.is_causal)
        for entry in compare(each, contenders, device, backward=False):
            if entry["contender"] in rungs:
                number, step = rungs[entry["contender"]]
                entry |= {"rung": number, "idea": step.idea, "prediction": step.prediction}
                entry["counted"] = count(number, each)
            yield entry
