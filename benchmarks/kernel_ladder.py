"""Measure what each optimization of the forward kernel gains: a ladder of versions, one idea each.

The first rung is a straightforward tiled kernel; the seventh after it is
`course_utils.kernels.flash_attention`, which also writes the logsumexp. All others are the kernel
below with more and more switches on. The last rung is one step further, to see whether
`flash_attention` should take it. PyTorch's fused backends are measured in the same run for
comparison. What is wrong or does not run is not timed, and the reason is recorded. Writes a JSON
file with every repeat and the predicted counts. The instructions of each rung, which need no GPU,
are counted by kernel_instructions.py.
Usage: make bench-gpu, or python benchmarks/kernel_ladder.py [FILE]
"""

import heapq
import itertools
import json
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.nn.attention import sdpa_kernel
from triton.errors import TritonError

import gpu_attention as bench
from course_utils import attention as course
from course_utils import kernel_tiles, kernels
from course_utils.kernels import LOG2_E

FILE = Path(__file__).parents[1] / "course_utils" / "data" / "kernel_ladder.json"
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
        "two stages",
        "TWO_STAGES",
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
        "long work first",
        "LONG_FIRST",
        "causal: begin with the last queries of all heads of a sequence, which see most keys",
        "causal: short work fills the end, where processors would wait for the longest",
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
        "not in flash_attention, to be compared with 'long work first': as many programs as run at "
        "a time, which take one block after another from a counter",
        "a start of a program less for each block, which is N / BLOCK_K trips of the loop",
    ),
]
SWITCHES = ["P_16_BIT", "SKIP", "TWO_STAGES", "EXP2", "LONG_FIRST", "PERSISTENT"]  # of the kernel


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
    TWO_STAGES: tl.constexpr,
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
                P_16_BIT, SKIP, TWO_STAGES, EXP2,
            )  # fmt: skip
            number = tl.atomic_add(taken_ptr, 1)
    else:  # programs start in the order of axis 0, then 1, then 2
        block, head = tl.program_id(0), tl.program_id(1)
        if LONG_FIRST:
            head, block = tl.program_id(0), blocks - 1 - tl.program_id(1)
        _attend_block(
            q_ptr, k_ptr, v_ptr, out_ptr, block, tl.program_id(2) * H + head, N, scale,
            IS_CAUSAL, D, BLOCK_Q, BLOCK_K, P_16_BIT, SKIP, TWO_STAGES, EXP2,
        )  # fmt: skip


@triton.jit
def _attend_block(
    q_ptr, k_ptr, v_ptr, out_ptr, block, head, N, scale,
    IS_CAUSAL: tl.constexpr, D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    P_16_BIT: tl.constexpr, SKIP: tl.constexpr, TWO_STAGES: tl.constexpr, EXP2: tl.constexpr,
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
    if TWO_STAGES:
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
    blocks = triton.cdiv(N, tiles.block_q)
    grid = (H, blocks, B) if switches["LONG_FIRST"] else (blocks, H, B)
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


def count(number, case):
    """Return the work of a rung in one configuration, by stepping through its loops.

    FLOP and powers (exponentials) are those computed, needed or not; loaded_bytes is what the
    programs read of K and V, in part from the cache; waiting is the share of time in which
    multiprocessors are idle after their last program.
    """
    on, tiles = plan(number, case.D)
    trips, masked = [], 0
    for start in range(0, case.N, tiles.block_q):
        stop = min(start + tiles.block_q, case.N) if case.is_causal and on["SKIP"] else case.N
        whole = (start + 1 if case.is_causal else case.N) // tiles.block_k
        trips.append(triton.cdiv(stop, tiles.block_k))
        masked += trips[-1] - (whole if on["TWO_STAGES"] else 0)
    tile = case.B * case.H * tiles.block_q * tiles.block_k  # scores of one, in all heads
    if on["LONG_FIRST"]:
        order = [n for n in reversed(trips) for _ in range(case.H)] * case.B
    else:
        order = trips * case.H * case.B
    return {
        "flop": 4 * tile * sum(trips) * case.D,
        "powers": tile * sum(trips),
        "masked_scores": tile * masked,
        "loaded_bytes": 2 * 2 * tile // tiles.block_q * sum(trips) * case.D,
        "waiting": waiting(order),
    }


def waiting(lengths, among=132):
    """Return the share of idle time, if each processor takes the next program when free."""
    busy = [0] * among  # until when; the multiprocessors of an H200, a program at a time on each
    for length in lengths:
        heapq.heapreplace(busy, busy[0] + length)
    return 1 - sum(busy) / (among * max(busy))


def cases():
    """Return all configurations."""
    return [
        bench.Case("bfloat16", D, is_causal, N, bench.TOKENS // N, bench.WIDTH // D)
        for D, is_causal, N in itertools.product([64, 128], [False, True], [4096, 16384])
    ]


def contenders(case):
    """Return functions of q, k and v that give the output: the rungs and PyTorch's, by name."""

    def by_rung(number):
        return lambda q, k, v: attend(number, q, k, v, case.is_causal)

    def through(backend):
        def run(q, k, v):
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=case.is_causal)

        return run

    fused = {name: through(it) for name, it in bench.BACKENDS.items() if name != "SDPA math"}
    return {rung.name: by_rung(number) for number, rung in enumerate(RUNGS)} | fused


@torch.no_grad()
def check(case, device):
    """Return the largest error of each contender against float64, or why it is skipped."""
    small = case._replace(N=min(case.N, 1024), B=1, H=2)
    (q, k, v), _ = bench.draw(small, device)
    mask = course.causal_mask(small.N).to(device) if case.is_causal else None
    right = course.attention(q.double(), k.double(), v.double(), mask)[0]
    largest = {}
    rungs, reason = {rung.name for rung in RUNGS}, kernels.why_not(torch.device(device))
    for name, run in contenders(small).items():
        if name in rungs and reason:
            largest[name] = {"skipped": reason}
            continue
        try:
            largest[name] = bench.judge({"output": run(q, k, v)}, {"output": right})
        except (RuntimeError, TritonError) as error:
            largest[name] = {"skipped": bench.first_line(error)}
    return largest


@torch.no_grad()
def entries(case, errors, device="cuda"):
    """Measure one configuration: an entry for each contender."""
    (q, k, v), _ = bench.draw(case, device)
    rungs = {rung.name: (number, rung) for number, rung in enumerate(RUNGS)}
    for name, run in contenders(case).items():
        entry = {"contender": name, **case._asdict(), "errors": errors[name]}
        if name in rungs:
            number, rung = rungs[name]
            texts = {"idea": rung.idea, "prediction": rung.prediction}
            entry |= {"rung": number, **texts, "counted": count(number, case)}
        if "skipped" not in errors[name]:
            try:
                ms = bench.milliseconds(lambda run=run: run(q, k, v))
                entry["forward"] = {"flops": bench.flops(case, backward=False), "milliseconds": ms}
            except (torch.OutOfMemoryError, TritonError) as error:
                entry["skipped"] = bench.first_line(error)
        yield entry


def summary(entry):
    """Return a line about an entry: median speed, or why it was not timed."""
    skipped = entry.get("skipped") or entry["errors"].get("skipped")
    if skipped:
        return f"{entry['contender']:15} not timed: {skipped}"
    forward = entry["forward"]
    speed = forward["flops"] / statistics.median(forward["milliseconds"]) / 1e9
    return f"{entry['contender']:15} {speed:6.1f} TFLOP/s   {entry.get('idea', '')}"


def main(file):
    report = {**bench.machine(), "entries": []}
    for case in cases():
        print(f"\n{case}", flush=True)
        for entry in entries(case, check(case, "cuda")):
            report["entries"].append(entry)
            print(summary(entry), flush=True)
        file.write_text(json.dumps(report, ensure_ascii=False) + "\n")
    print(f"\nwritten to {file}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
