"""Answers to lesson 06b's exercises, written apart from the checks: right ones and wrong ones."""

import math

import numpy as np
import torch

from course_utils.attention import merge
from course_utils.checks.exercise import EXERCISES
from course_utils.checks.source_edits import edited
from course_utils.checks.submission_kernel import launch, tl, triton

INF = float("inf")


def completed(name, *edits):
    """Return a given kernel completed with other lines than the reference's."""
    return edited(EXERCISES[name].reference, f"another {hash(edits)}", *edits)


FIRST = "tl.maximum(start_q - window + 1, 0) // BLOCK * BLOCK"
MASKED = 'tl.where((j <= i) & (i - j < window), scores, -float("inf"))'
KV = "kv_head = head // GROUP"
ELL, ACC = "ell = ell * shrink + tl.sum(p, axis=1)", "acc = acc * shrink[:, None]"
DOT = "acc = tl.dot(p.to(v.dtype), v, acc)"


# right


@triton.jit
def _window_backwards(
    q_ptr, k_ptr, v_ptr, out_ptr, N, window, scale, D: tl.constexpr, BLOCK: tl.constexpr
):
    """From the queries' own block back, in powers of 2, with a finite start."""
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


@triton.jit
def _grouped_by_pointers(
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


@triton.jit
def _half_on_p_and_v_turned(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, L, S, scale, D: tl.constexpr, BLOCK: tl.constexpr
):
    """Keys as rows, everything turned round, in powers of 2."""
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


def _lazy_in_place(q, k, v, block, tau):
    scores = (q @ k.mT / math.sqrt(q.shape[-1]) * math.log2(math.e)).detach()
    m = torch.full(scores.shape[:-1], -INF, dtype=q.dtype)
    rescales = torch.full(m.shape, -1)
    ell, out = torch.zeros_like(m), torch.zeros(*m.shape, v.shape[-1], dtype=q.dtype)
    for j in range(0, scores.shape[-1], block):
        s = scores[..., j : j + block]
        far = s.max(dim=-1).values > m + tau
        old = m.clone()
        m[far] = s.max(dim=-1).values[far]
        rescales[far] += 1
        ell[far] *= torch.exp2(old - m)[far]
        out[far] *= torch.exp2(old - m)[far][..., None]
        p = torch.exp2(s - m[..., None])
        ell, out = ell + p.sum(-1), out + p @ v[..., j : j + block, :]
    return out / ell[..., None], (m + ell.log2()) * math.log(2), rescales


def _lazy_query_by_query(q, k, v, block, tau):
    if q.ndim > 2:
        each = [_lazy_query_by_query(*x, block, tau) for x in zip(q, k, v, strict=True)]
        return tuple(torch.stack(x) for x in zip(*each, strict=True))
    outs, lses, counts = [], [], []
    for query in q:
        m, ell, out, count = None, 0.0, 0.0, 0
        for keys, values in zip(k.split(block), v.split(block), strict=True):
            s = keys @ query * query.shape[0] ** -0.5
            if m is None:
                m = s.max()
            elif s.max() - m > tau * math.log(2):
                factor = (m - s.max()).exp()
                m, ell, out, count = s.max(), ell * factor, out * factor, count + 1
            p = (s - m).exp()
            ell, out = ell + p.sum(), out + p @ values
        outs, lses, counts = [*outs, out / ell], [*lses, m + ell.log()], [*counts, count]
    return torch.stack(outs), torch.stack(lses), torch.tensor(counts)


def _lazy_by_where(q, k, v, block, tau):
    s = torch.einsum("...ld,...sd->...ls", q, k) / q.shape[-1] ** 0.5
    tops = [x.amax(-1) for x in s.split(block, -1)]
    m, count, parts = tops[0], torch.zeros_like(tops[0], dtype=torch.int32), []
    for top in tops:  # first see what m is when, then sum from the last m
        moves = torch.exp2(torch.tensor(float(tau), dtype=q.dtype)).log() < top - m
        m, count = torch.where(moves, top, m), count + moves
        parts.append(m)
    shares = [
        ((x - n[..., None]).exp(), (n - m).exp(), y)
        for x, n, y in zip(s.split(block, -1), parts, v.split(block, -2), strict=True)
    ]
    ell = sum(p.sum(-1) * f for p, f, _ in shares)
    return sum(p @ y * f[..., None] for p, f, y in shares) / ell[..., None], m + ell.log(), count


C = (1.0, 0.69512, 0.22764, 0.07707)


def _cubic_by_ldexp(x):
    x = torch.clamp(x, min=-126.0)
    n = torch.floor(x)
    f = x - n
    y = torch.ldexp(C[0] + C[1] * f + C[2] * f**2 + C[3] * f**3, n)
    return y, ((y.double() - 2 ** x.double()) / 2 ** x.double()).abs().max().item()


def _cubic_by_a_product(x):
    """With a power of 2 made of bits, and 0 in place of what is very small."""
    n = x.clamp(-126, 127).floor().int()
    f = x.clamp(min=-126) - n
    two_to_n = ((n + 127) << 23).view(torch.float32)
    y = (((C[3] * f + C[2]) * f + C[1]) * f + C[0]) * two_to_n
    error = max(abs(a / 2**b - 1) for a, b in zip(y.flatten().tolist(), x.flatten().tolist())  # noqa: B905
                if b >= -126)  # fmt: skip
    return torch.where(x < -126, 0.0, y), torch.tensor(error)


def _cubic_in_numpy(x):
    x = np.maximum(x.numpy(), np.float32(-126))
    n = np.floor(x)
    p = np.polyval(np.array(C[::-1], dtype=np.float32), x - n).astype(np.float32)
    y = (p.view(np.int32) + n.astype(np.int32) * 2**23).view(np.float32)
    return y, np.abs(y.astype(np.float64) / np.exp2(x.astype(np.float64)) - 1).max()


@triton.jit
def _part_of_a_group(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, S, share, scale, GROUP: tl.constexpr,
    ROWS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Let one program take the queries that share a head of keys."""
    kv_head, split = tl.program_id(0), tl.program_id(1)
    g, d = tl.arange(0, ROWS), tl.arange(0, D)[None, :]
    rows = (kv_head * GROUP + g)[:, None]
    q = tl.load(q_ptr + rows * D + d, mask=g[:, None] < GROUP, other=0)
    m = tl.full((ROWS,), -1e30, tl.float32)
    ell = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, D), tl.float32)
    stop = tl.minimum((split + 1) * share, S)
    for start in range(split * share, stop, BLOCK):
        j = start + tl.arange(0, BLOCK)
        at = (kv_head * S + j[:, None]) * D + d
        k = tl.load(k_ptr + at, mask=j[:, None] < stop, other=0)
        v = tl.load(v_ptr + at, mask=j[:, None] < stop, other=0)
        s = tl.where(j[None, :] < stop, tl.dot(q, tl.trans(k)) * scale, -float("inf"))
        top = tl.maximum(m, tl.max(s, 1))
        p, old = tl.exp(s - top[:, None]), tl.exp(m - top)
        ell, acc, m = ell * old + tl.sum(p, 1), tl.dot(p, v, acc * old[:, None]), top
    row = rows * tl.num_programs(1) + split
    some = g[:, None] < GROUP
    tl.store(out_ptr + row * D + d, acc / tl.maximum(ell, 1e-30)[:, None], mask=some)
    tl.store(lse_ptr + row, (m + tl.log(ell))[:, None], mask=some)


def _split_by_groups(q, k, v, splits):
    (Hq, D), (Hkv, S) = q.shape, k.shape[:2]
    out, lse = torch.zeros(Hq, splits, D), torch.full((Hq, splits), -INF)
    blocks = math.ceil(math.ceil(S / 16) / splits)  # of 16 keys, for each split
    rows = triton.next_power_of_2(Hq // Hkv)
    launch(
        _part_of_a_group, (Hkv, splits), q, k, v, out, lse, S, 16 * blocks, 1 / math.sqrt(D),
        Hq // Hkv, rows, D, 16,
    )  # fmt: skip
    shares = (lse - lse.logsumexp(1, keepdim=True)).exp()
    return torch.einsum("hs,hsd->hd", shares, out)


@triton.jit
def _plain(q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, S, D: tl.constexpr, BLOCK: tl.constexpr):
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


def _split_by_launches(q, k, v, splits):
    """One launch for each split, on a copy of its keys, and lesson 03's merge."""
    Hq, D = q.shape
    out, lse = torch.zeros(Hq, D), torch.full((Hq,), -INF)
    parts = zip(k.tensor_split(splits, 1), v.tensor_split(splits, 1), strict=True)
    for keys, values in parts:
        n = keys.shape[1]
        if n:
            keys, values = (x.repeat_interleave(Hq // len(k), 0) for x in (keys, values))
            here, there = torch.empty(Hq, D), torch.empty(Hq)
            launch(_plain, (Hq,), q, keys, values, here, there, n, D=D, BLOCK=1 << n.bit_length())
            out, lse = merge(out, lse, here, there)
    return out


@triton.jit
def _merged(out_ptr, lse_ptr, to_ptr, N: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(0)
    top = -float("inf")
    for split in range(N):
        top = tl.maximum(top, tl.load(lse_ptr + head * N + split))
    total, acc = 0.0, tl.zeros((D,), tl.float32)
    for split in range(N):
        share = tl.exp(tl.load(lse_ptr + head * N + split) - top)
        total += share
        acc += share * tl.load(out_ptr + (head * N + split) * D + tl.arange(0, D))
    tl.store(to_ptr + head * D + tl.arange(0, D), acc / total)


def _split_and_merged_by_a_kernel(q, k, v, splits):
    (Hq, D), (Hkv, S) = q.shape, k.shape[:2]
    out, lse, to = q.new_zeros(Hq, splits, D), q.new_zeros(Hq, splits), torch.empty_like(q)
    launch(
        _part_of_a_group, (Hkv, splits), q, k, v, out, lse, S, -(-S // splits), D**-0.5,
        GROUP=Hq // Hkv, ROWS=8, D=D, BLOCK=8,
    )  # fmt: skip
    launch(_merged, (Hq,), out, lse, to, splits, D)
    return to


RIGHT = {
    "windowed_kernel": [
        _window_backwards,
        completed("windowed_kernel", (FIRST, "tl.maximum(start_q - window + 1, 0)"), (MASKED,
                  'scores + tl.where((i >= j) & (j > i - window), 0.0, -float("inf"))')),
        completed("windowed_kernel", (FIRST, "max(0, (start_q - window + 1) // BLOCK * BLOCK)"), (
                  MASKED, 'tl.where(j > i, -float("inf"), tl.where(j + window > i, scores, '
                  '-float("inf")))')),
    ],
    "grouped_kernel": [
        _grouped_by_pointers,
        completed("grouped_kernel", (KV, "kv_head = (head - head % GROUP) // GROUP"),
                  ("k = tl.load(k_ptr + k_at", "k = tl.load(k_ptr + batch * 0 + k_at")),
        completed("grouped_kernel", (KV, "heads = tl.num_programs(0) // GROUP\n"
                  "    kv_head = head * heads // tl.num_programs(0)")),
    ],
    "half_kernel": [
        _half_on_p_and_v_turned,
        completed("half_kernel", (ELL, "ell *= shrink\n        ell += tl.sum(p, 1)"),
                  (ACC, ""), (DOT, "acc = acc * shrink[:, None] + tl.dot(p.to(tl.float16), v)")),
        completed("half_kernel", (ELL, "ell = tl.fma(ell, shrink, p.sum(1))"),
                  (DOT, "acc += tl.dot(p.to(v.dtype), v)")),
    ],
    "lazy_rescale": [_lazy_in_place, _lazy_query_by_query, _lazy_by_where],
    "exp2_polynomial": [_cubic_by_ldexp, _cubic_by_a_product, _cubic_in_numpy],
    "split_decode": [_split_by_groups, _split_by_launches, _split_and_merged_by_a_kernel],
}  # fmt: skip


# wrong


def _lazy_without_a_count(q, k, v, block, tau):
    out, lse, _ = _lazy_by_where(q, k, v, block, tau)
    return out, lse


def _cubic_in_float32(x):
    y, _ = _cubic_by_ldexp(x)
    return y, (y / x.clamp(min=-126).exp2() - 1).abs().max()


def _split_without_a_kernel(q, k, v, splits):
    group = len(q) // len(k)
    scores = torch.einsum("gnd,gsd->gns", q.unflatten(0, (-1, group)), k) / q.shape[-1] ** 0.5
    return (scores.softmax(-1) @ v).flatten(0, 1)


def _split_in_one(q, k, v, splits):
    return _split_by_groups(q, k, v, 1)


def _split_in_two(q, k, v, splits):
    return _split_by_groups(q, k, v, 2)


def _split_in_blocks(q, k, v, splits):
    return _split_by_groups(q, k, v, -(-k.shape[1] // 16))


def _split_and_thrown_away(q, k, v, splits):
    _split_by_groups(q, k, v, splits)
    return _split_without_a_kernel(q, k, v, splits)


ALLOWED = "(j <= i) & (i - j < window)"

WRONG = [
    ("windowed_kernel", "blocks before the window", completed("windowed_kernel", (FIRST, "0"))),
    ("windowed_kernel", "blocks before the window", completed("windowed_kernel", (FIRST,
     "tl.maximum(start_q - window, 0) // BLOCK * BLOCK"))),
    ("windowed_kernel", "both sides", completed("windowed_kernel", (ALLOWED,
     "j <= i and i - j < window"))),
    ("windowed_kernel", "not far enough below", completed("windowed_kernel", (MASKED,
     MASKED.replace('-float("inf")', "-1e4")))),
    ("windowed_kernel", "beyond the end alone", completed("windowed_kernel", (FIRST, "0"),
     (ALLOWED, "j < N"))),
    ("grouped_kernel", None, completed("grouped_kernel", (KV, "kv_head = head / GROUP"))),
    ("half_kernel", "factors in 32 bits", completed("half_kernel", (DOT,
     "acc = tl.dot(p, v.to(tl.float32), acc)"))),
    ("half_kernel", "sum in 16 bits", completed("half_kernel", (ELL,
     "p = p.to(v.dtype)\n        ell = ell * shrink + tl.sum(p, axis=1)"))),
    ("half_kernel", "accumulated in 16 bits", completed("half_kernel", (DOT,
     "acc = acc + tl.dot(p.to(v.dtype), v, out_dtype=tl.float16)"))),
    ("grouped_kernel", "own head", completed("grouped_kernel", (KV, "kv_head = head * GROUP"))),
    ("grouped_kernel", "own head", completed("grouped_kernel", (KV,
     "kv_head = (head + GROUP - 1) // GROUP"))),
    ("half_kernel", "sum kept in 16 bits", completed("half_kernel", (ELL,
     "ell = (ell * shrink).to(tl.float16) + tl.sum(p.to(tl.float16), 1)"))),
    ("lazy_rescale", None, _lazy_without_a_count),
    ("exp2_polynomial", "the power itself", lambda x: (x.exp2(), 0.0)),
    ("exp2_polynomial", "error in float32", _cubic_in_float32),
    ("exp2_polynomial", "powers all the same", completed("exp2_polynomial", (
     "(p.view(torch.int32) + (n.to(torch.int32) << 23)).view(torch.float32)", "p * 2.0**n"))),
    ("exp2_polynomial", "not two", lambda x: _cubic_by_ldexp(x)[0]),
    ("split_decode", "no kernel", _split_without_a_kernel),
    ("split_decode", "kernel not used", _split_and_thrown_away),
    ("split_decode", "not float32", lambda *args: _split_by_groups(*args).half()),
    ("split_decode", "not float32", lambda *args: _split_by_groups(*args).double()),
    ("split_decode", "own head", completed("split_decode", ("GROUP=Hq // Hkv", "GROUP=Hkv"))),
    ("split_decode", "not split", completed("split_decode", ("D=D, BLOCK=BLOCK", "D=D, BLOCK=64"),
     ("mask=j[:, None] < stop, other=0)\n            v", "mask=j[:, None] < S, other=0)\n"
      "            v"), ("v_ptr + at, mask=j[:, None] < stop", "v_ptr + at, mask=j[:, None] < S"))),
    ("split_decode", "not split", _split_in_one),
    ("split_decode", "not split", _split_in_two),
    ("split_decode", "more parts than splits", _split_in_blocks),
    ("split_decode", "empty splits", completed("split_decode", (
     "tl.store(out_ptr + row * D + d, acc / tl.where(ell == 0, 1, ell))",
     "if ell > 0:\n            tl.store(out_ptr + row * D + d, acc / ell)"))),
]  # fmt: skip
