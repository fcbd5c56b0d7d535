"""FlashAttention as Triton kernels: lesson 06's tiled attention on a GPU.

Each program of a kernel computes the output of one block of queries. It loops over the blocks of
keys, which pass through shared memory. (For the gradients of keys and values, queries and keys swap
roles.) Read `_forward` first and then its loop, `_attend_to_keys`. The backward kernels have the
same form.

There are B sequences, H heads, L queries and S keys, and each head has width D. `_load` loads a
block of rows of one head. If the block extends past the end of the tensor, `_load` fills the
missing rows with zeros, and `_store` does not write them. On Hopper and later data-center GPUs, a
tensor is passed as a descriptor for the Tensor Memory Accelerator (TMA). On other GPUs, it is
passed as a pointer with strides, from which each thread computes its addresses.

Without a CUDA device, the kernels run in Triton's interpreter, which runs the same code on NumPy
arrays, slowly.

Dao, "FlashAttention-2: faster attention with better parallelism and work partitioning", 2023.
"""

import functools
import importlib
import os
import warnings
from typing import NamedTuple

import torch
from torch.autograd.function import once_differentiable

from course_utils import kernel_tiles
from course_utils.shapes import expects
from course_utils.tiled import tiled_attention

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read by every @triton.jit below
try:
    import triton
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError as error:
    raise ImportError(
        "course_utils.kernels needs Triton, which exists for Linux only. On Linux, install it with "
        "`pip install triton`; the rest of the course works without it"
    ) from error

INTERPRETED = triton.knobs.runtime.interpret
if INTERPRETED and not isinstance(tl.max, InterpretedFunction):
    # Triton was imported before, for example by the first step of an optimizer. Its own functions
    # were then defined to be compiled, so define them again.
    importlib.reload(tl.standard)
    importlib.reload(tl)


class Strided(NamedTuple):
    """A tensor (B, H, N, D), passed to a kernel as a pointer and strides. Its last stride is 1."""

    start: torch.Tensor
    batch_stride: int
    head_stride: int
    row_stride: int


LOG2_E = tl.constexpr(1.4426950408889634)  # GPUs compute exp2, and e^x = 2^(x · log₂e)
HEADS_TOGETHER = tl.constexpr(4)  # see `_block_of_program`


# Reading and writing


@triton.jit
def _load(x_at, batch, head, start, N, BLOCK: tl.constexpr, D: tl.constexpr):
    """Return BLOCK rows of one head from start on, (BLOCK, D). Rows from N on are 0."""
    if isinstance(x_at, tl.tensor_descriptor):
        return x_at.load([batch, head, start, 0]).reshape(BLOCK, D)
    else:
        rows = start + tl.arange(0, BLOCK)
        return tl.load(_addresses(x_at, batch, head, rows, D), mask=rows[:, None] < N, other=0)


@triton.jit
def _store(x_at, batch, head, start, N, x, BLOCK: tl.constexpr, D: tl.constexpr):
    """Write x, (BLOCK, D), to BLOCK rows of one head from start on. Skip rows from N on."""
    if isinstance(x_at, tl.tensor_descriptor):
        x_at.store([batch, head, start, 0], x.reshape(1, 1, BLOCK, D))
    else:
        rows = start + tl.arange(0, BLOCK)
        tl.store(_addresses(x_at, batch, head, rows, D), x, mask=rows[:, None] < N)


@triton.jit
def _addresses(x_at, batch, head, rows, D: tl.constexpr):
    start = x_at.start + batch.to(tl.int64) * x_at.batch_stride
    start += head.to(tl.int64) * x_at.head_stride
    return start + rows[:, None].to(tl.int64) * x_at.row_stride + tl.arange(0, D)[None, :]


@triton.jit
def _block_of_program(H, blocks):
    """Return this program's head, block and batch indices.

    Programs start in numerical order: first all blocks of heads 0 to 3, then all blocks of heads 4
    to 7, and so on. Within each group of four heads, consecutive programs belong to different
    heads. The groups keep the keys and values in use small enough for the L2 cache, which all
    multiprocessors share.
    """
    number, heads = tl.program_id(0), tl.num_programs(0) // blocks  # B · H
    first = number // (HEADS_TOGETHER * blocks) * HEADS_TOGETHER
    together = tl.minimum(HEADS_TOGETHER, heads - first)
    rest = number - first * blocks
    head = first + rest % together
    return head % H, rest // together, head // H


# Forward


@triton.jit(do_not_specialize=["H", "L", "S", "offset"])
def _forward(
    q_at,  # (B, H, L, D)
    k_at,  # (B, H / GROUP, S, D)
    v_at,  # (B, H / GROUP, S, D)
    out_at,  # (B, H, L, D)
    lse_ptr,  # (B, H, L), float32
    H,
    L,
    S,
    # Query i may see keys j <= i + offset. Without a mask, offset is S. With a causal mask, it is
    # 0, or S - L if the last query is aligned with the last key.
    offset,
    scale,
    GROUP: tl.constexpr,  # number of query heads that share one KV head
    D: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute the output and the logsumexp for one block of queries of one head."""
    # With a causal mask, the last queries see the most keys. Their programs start first, so the
    # short programs come last and all multiprocessors finish at about the same time.
    blocks = tl.cdiv(L, BLOCK_Q)
    head, block, batch = _block_of_program(H, blocks)
    start_q = (blocks - 1 - block) * BLOCK_Q
    q = _load(q_at, batch, head, start_q, L, BLOCK_Q, D)
    m = tl.full((BLOCK_Q,), -float("inf"), tl.float32)  # largest score so far, in base 2
    ell = tl.full((BLOCK_Q,), 0, tl.float32)  # Σ 2^(score - m) so far
    acc = tl.full((BLOCK_Q, D), 0, tl.float32)  # Σ 2^(score - m) · v so far

    queries = start_q + tl.arange(0, BLOCK_Q)
    last_key = tl.minimum(queries + offset, S - 1)  # (BLOCK_Q,), the last key each may see
    # There are two loops. The first is over the blocks of keys that all queries may see. They need
    # no mask, which saves time. The second is over the blocks on the diagonal and at the end of the
    # keys, which are masked. Blocks that no query may see are never read.
    unmasked_end = tl.minimum(tl.maximum(start_q + offset + 1, 0), S) // BLOCK_K * BLOCK_K
    stop = tl.minimum(tl.maximum(start_q + BLOCK_Q + offset, 0), S)
    kv_head = head // GROUP
    m, ell, acc = _attend_to_keys(
        q, m, ell, acc, k_at, v_at, batch, kv_head, 0, unmasked_end, S,
        last_key, scale * LOG2_E, D, BLOCK_K, MASKED=False,
    )  # fmt: skip
    m, ell, acc = _attend_to_keys(
        q, m, ell, acc, k_at, v_at, batch, kv_head, unmasked_end, stop, S,
        last_key, scale * LOG2_E, D, BLOCK_K, MASKED=True,
    )  # fmt: skip

    ell = tl.where(ell == 0, 1, ell)  # without an allowed key, the output is 0 / 1 and lse is -inf
    out = acc / ell[:, None]
    _store(out_at, batch, head, start_q, L, out.to(q.dtype), BLOCK_Q, D)
    lse = (m + tl.log2(ell)) / LOG2_E  # natural logarithm
    row = (batch * H + head).to(tl.int64) * L
    tl.store(lse_ptr + row + queries, lse, mask=queries < L)


@triton.jit
def _attend_to_keys(
    q, m, ell, acc, k_at, v_at, batch, kv_head, first, stop, S, last_key, scale_log2,
    D: tl.constexpr, BLOCK_K: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Update (m, ell, acc) with the keys and values from first to stop, block by block."""
    for start in range(first, stop, BLOCK_K):
        k = _load(k_at, batch, kv_head, start, S, BLOCK_K, D)
        v = _load(v_at, batch, kv_head, start, S, BLOCK_K, D)
        # With "ieee", float32 inputs are not rounded to TF32, which keeps only 10 mantissa bits.
        scores = tl.dot(q, k.T, input_precision="ieee")  # (BLOCK_Q, BLOCK_K), float32
        if MASKED:
            keys = start + tl.arange(0, BLOCK_K)
            scores = tl.where(keys[None, :] <= last_key[:, None], scores, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1) * scale_log2)
        base = m_new
        if MASKED:  # if all scores so far are -inf, -inf - -inf would be NaN
            base = tl.where(m_new == -float("inf"), 0, m_new)
        p = tl.exp2(scores * scale_log2 - base[:, None])  # a multiply-add and an exp2
        rescale = tl.exp2(m - base)  # rescales the old sums to the new maximum
        ell = ell * rescale + tl.sum(p, axis=1)
        acc = acc * rescale[:, None]
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")  # p rounded to 16 bits
        m = m_new
    return m, ell, acc


# Backward. P are the weights, computed from the scores and the logsumexp as exp(scores - lse):
#   dV = Pᵀ dO        dP = dO Vᵀ        dS = P ⊙ (dP - delta)        dQ = dS K        dK = dSᵀ Q
# Here delta_i = Σ_d dO_id O_id, which equals the Σ_j P_ij dP_ij in the gradient of softmax. The
# gradient of the logsumexp is P, so the gradient that arrives at lse is subtracted from delta. The
# kernels receive lse times log₂e, in base 2. They compute 3 + 4 = 7 products per tile, because both
# recompute the scores and dP. FlashAttention's single kernel computes 5 and adds to dQ atomically.


@triton.jit(do_not_specialize=["H", "L", "S", "offset"])
def _backward_q(
    q_at, k_at, v_at, out_at, d_out_at, d_q_at,
    lse_ptr, d_lse_ptr, delta_ptr, H, L, S, offset, scale,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of one block of queries, and store delta for `_backward_kv`."""
    blocks = tl.cdiv(L, BLOCK_Q)
    head, block, batch = _block_of_program(H, blocks)
    start_q = (blocks - 1 - block) * BLOCK_Q
    q = _load(q_at, batch, head, start_q, L, BLOCK_Q, D)
    d_out = _load(d_out_at, batch, head, start_q, L, BLOCK_Q, D)
    out = _load(out_at, batch, head, start_q, L, BLOCK_Q, D)

    queries = start_q + tl.arange(0, BLOCK_Q)
    row = (batch * H + head).to(tl.int64) * L
    lse = tl.load(lse_ptr + row + queries, mask=queries < L, other=0)
    d_lse = tl.load(d_lse_ptr + row + queries, mask=queries < L, other=0)
    delta = tl.sum(d_out.to(tl.float32) * out.to(tl.float32), axis=1) - d_lse
    tl.store(delta_ptr + row + queries, delta, mask=queries < L)

    last_key = tl.minimum(queries + offset, S - 1)
    unmasked_end = tl.minimum(tl.maximum(start_q + offset + 1, 0), S) // BLOCK_K * BLOCK_K
    stop = tl.minimum(tl.maximum(start_q + BLOCK_Q + offset, 0), S)
    kv_head = head // GROUP
    d_q = tl.full((BLOCK_Q, D), 0, tl.float32)
    d_q = _add_to_d_q(
        d_q, q, d_out, lse, delta, k_at, v_at, batch, kv_head, 0, unmasked_end, S,
        last_key, scale * LOG2_E, D, BLOCK_K, MASKED=False,
    )  # fmt: skip
    d_q = _add_to_d_q(
        d_q, q, d_out, lse, delta, k_at, v_at, batch, kv_head, unmasked_end, stop, S,
        last_key, scale * LOG2_E, D, BLOCK_K, MASKED=True,
    )  # fmt: skip
    _store(d_q_at, batch, head, start_q, L, (d_q * scale).to(q.dtype), BLOCK_Q, D)


@triton.jit
def _add_to_d_q(
    d_q, q, d_out, lse, delta, k_at, v_at, batch, kv_head, first, stop, S,
    last_key, scale_log2, D: tl.constexpr, BLOCK_K: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add to d_q the contributions of the keys from first to stop."""
    for start in range(first, stop, BLOCK_K):
        k = _load(k_at, batch, kv_head, start, S, BLOCK_K, D)
        v = _load(v_at, batch, kv_head, start, S, BLOCK_K, D)
        scores = tl.dot(q, k.T, input_precision="ieee")  # (BLOCK_Q, BLOCK_K)
        p = tl.exp2(scores * scale_log2 - lse[:, None])  # the weights, from lse
        if MASKED:
            keys = start + tl.arange(0, BLOCK_K)
            p = tl.where(keys[None, :] <= last_key[:, None], p, 0)
        d_p = tl.dot(d_out, v.T, input_precision="ieee")  # (BLOCK_Q, BLOCK_K)
        d_s = p * (d_p - delta[:, None])
        d_q = tl.dot(d_s.to(k.dtype), k, d_q, input_precision="ieee")
    return d_q


@triton.jit(do_not_specialize=["H", "L", "S", "offset"])
def _backward_kv(
    q_at, k_at, v_at, d_out_at, d_k_at, d_v_at,
    lse_ptr, delta_ptr, H, L, S, offset, scale,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of one block of keys and values, summed over their query heads."""
    kv_head, block, batch = _block_of_program(H // GROUP, tl.cdiv(S, BLOCK_K))
    start_k = block * BLOCK_K  # the first keys start first, because the most queries see them
    k = _load(k_at, batch, kv_head, start_k, S, BLOCK_K, D)
    v = _load(v_at, batch, kv_head, start_k, S, BLOCK_K, D)
    d_k = tl.full((BLOCK_K, D), 0, tl.float32)
    d_v = tl.full((BLOCK_K, D), 0, tl.float32)

    # There are again two loops. Queries from `first` on see some keys of this block, and queries
    # from `unmasked_start` on see all of them.
    last = tl.minimum(start_k + BLOCK_K, S) - 1
    first = tl.maximum(start_k - offset, 0) // BLOCK_Q * BLOCK_Q
    unmasked_start = tl.cdiv(tl.maximum(last - offset, 0), BLOCK_Q) * BLOCK_Q
    for head_in_group in range(GROUP):
        head = kv_head * GROUP + head_in_group
        row = (batch * H + head).to(tl.int64) * L
        d_k, d_v = _add_to_d_k_and_d_v(
            d_k, d_v, k, v, q_at, d_out_at, lse_ptr + row, delta_ptr + row, batch, head,
            first, tl.minimum(unmasked_start, L), L, start_k, offset, scale * LOG2_E,
            D, BLOCK_Q, BLOCK_K, MASKED=True,
        )  # fmt: skip
        d_k, d_v = _add_to_d_k_and_d_v(
            d_k, d_v, k, v, q_at, d_out_at, lse_ptr + row, delta_ptr + row, batch, head,
            unmasked_start, L, L, start_k, offset, scale * LOG2_E,
            D, BLOCK_Q, BLOCK_K, MASKED=False,
        )  # fmt: skip
    _store(d_k_at, batch, kv_head, start_k, S, (d_k * scale).to(k.dtype), BLOCK_K, D)
    _store(d_v_at, batch, kv_head, start_k, S, d_v.to(k.dtype), BLOCK_K, D)


@triton.jit
def _add_to_d_k_and_d_v(
    d_k, d_v, k, v, q_at, d_out_at, lse_ptr, delta_ptr, batch, head,
    first, stop, L, start_k, offset, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add to d_k and d_v the contributions of the queries from first to stop."""
    for start in range(first, stop, BLOCK_Q):
        # Past the last query, q, d_out and delta are loaded as 0, so nothing is added.
        q = _load(q_at, batch, head, start, L, BLOCK_Q, D)
        d_out = _load(d_out_at, batch, head, start, L, BLOCK_Q, D)
        queries = start + tl.arange(0, BLOCK_Q)
        lse = tl.load(lse_ptr + queries, mask=queries < L, other=0)
        delta = tl.load(delta_ptr + queries, mask=queries < L, other=0)
        # The scores have keys as rows, so they need not be transposed before the next product.
        scores = tl.dot(k, q.T, input_precision="ieee")  # (BLOCK_K, BLOCK_Q)
        p = tl.exp2(scores * scale_log2 - lse[None, :])
        if MASKED:
            keys = start_k + tl.arange(0, BLOCK_K)
            p = tl.where(keys[:, None] <= queries[None, :] + offset, p, 0)
        d_v = tl.dot(p.to(d_out.dtype), d_out, d_v, input_precision="ieee")
        d_p = tl.dot(v, d_out.T, input_precision="ieee")  # (BLOCK_K, BLOCK_Q)
        d_s = p * (d_p - delta[None, :])
        d_k = tl.dot(d_s.to(q.dtype), q, d_k, input_precision="ieee")
    return d_k, d_v


# From PyTorch


class _FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, offset):
        q, k, v = map(_aligned, (q, k, v))
        out, lse = torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)
        _launch(_forward, {"q": q, "out": out}, {"k": k, "v": v}, {"lse": lse}, offset)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.offset = offset
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out, d_lse):
        q, k, v, out, lse = ctx.saved_tensors
        d_out, d_lse = _aligned(d_out), d_lse.contiguous()
        d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        lse, delta = lse * LOG2_E.value, torch.empty_like(lse)
        _launch(
            _backward_q, {"q": q, "out": out, "d_out": d_out, "d_q": d_q}, {"k": k, "v": v},
            {"lse": lse, "d_lse": d_lse, "delta": delta}, ctx.offset,
        )  # fmt: skip
        _launch(
            _backward_kv, {"q": q, "d_out": d_out}, {"k": k, "v": v, "d_k": d_k, "d_v": d_v},
            {"lse": lse, "delta": delta}, ctx.offset,
        )  # fmt: skip
        return d_q, d_k, d_v, None


def _launch(kernel, of_queries, of_keys, per_query, offset):
    """Launch a kernel. The tensors are passed in dicts, by name.

    They have the shapes (B, Hq, L, D) in ``of_queries``, (B, Hkv, S, D) in ``of_keys`` and
    (B, Hq, L) in ``per_query``.
    """
    q, k = of_queries["q"], of_keys["k"]
    (B, H, L, D), (Hkv, S) = q.shape, k.shape[1:3]
    tiles = _tiles(kernel, q)
    blocks = H * triton.cdiv(L, tiles.block_q)
    if kernel is _backward_kv:
        blocks = Hkv * triton.cdiv(S, tiles.block_k)
    with torch.cuda.device_of(q):  # a kernel starts on the current device
        kernel[(B * blocks,)](  # one axis, because the others are limited to 65,535
            **{f"{name}_at": _argument(x, tiles.block_q) for name, x in of_queries.items()},
            **{f"{name}_at": _argument(x, tiles.block_k) for name, x in of_keys.items()},
            **{f"{name}_ptr": x for name, x in per_query.items()},
            H=H, L=L, S=S, offset=offset, scale=D**-0.5, GROUP=H // Hkv, D=D,
            BLOCK_Q=tiles.block_q, BLOCK_K=tiles.block_k,
            num_warps=tiles.num_warps, num_stages=tiles.num_stages,
        )  # fmt: skip


def _tiles(kernel, q):
    if q.dtype == torch.float32:
        return kernel_tiles.FLOAT32[q.shape[-1]]
    cuts = kernel_tiles.cuts(capability(q.device))[q.shape[-1]]
    return getattr(cuts, kernel.__name__.removeprefix("_"))


def capability(device):
    """Return the compute capability, (major, minor), of a GPU. The interpreter counts as Hopper."""
    return (9, 0) if INTERPRETED else torch.cuda.get_device_capability(device)


def _argument(x, block_rows):
    """Return x as a kernel argument: a descriptor for blocks of block_rows rows, or strides."""
    # The RTX 50 also has a TMA, but its matrix products read from registers, and with descriptors
    # there were not enough registers.
    if (9, 0) <= capability(x.device) < (12, 0):
        return TensorDescriptor.from_tensor(x, [1, 1, block_rows, x.shape[-1]])
    return Strided(x, *x.stride()[:-1])


def _aligned(x):
    """Return x, or a copy of it, aligned for copies of 16 bytes.

    Its last stride is 1, and its other strides are multiples of 16, which Triton can then assume.
    """
    *strides, last = x.stride()
    if last == 1 and all(n > 0 and n % 16 == 0 for n in [*strides, x.data_ptr()]):
        return x
    return x.clone(memory_format=torch.contiguous_format)


@expects(q="B Hq L D", k="B Hkv S D", v="B Hkv S D", align="corner if is_causal")
def flash_attention(q, k, v, *, is_causal=False, align=None):
    """Return softmax(qkᵀ / √D) v and the logsumexp, without materializing the (L, S) matrix.

    It can be differentiated once with respect to q, k and v. The kernels are compiled for NVIDIA
    GPUs with compute capability 8.0 or higher. On other GPUs, `tiled.tiled_attention` computes the
    same result, with a warning the first time. If there is no GPU, importing this module sets
    TRITON_INTERPRET=1, so that the kernels run in Triton's interpreter.

    Parameters
    ----------
    q : torch.Tensor, (B, Hq, L, D), float16, bfloat16 or float32
        D is 16, 32, 64, 128 or 256. Triton's interpreter computes bfloat16 wrongly, so bfloat16
        is rejected there.
    k, v : torch.Tensor, (B, Hkv, S, D), in the dtype of q
        Hkv divides Hq. Query head h uses KV head h // (Hq / Hkv).
    is_causal : bool
        Whether a query may see only keys up to its own position.
    align : {"upper_left", "lower_right"}, required if is_causal and L ≠ S
        "upper_left" aligns the first query with the first key, as `is_causal` in PyTorch's
        scaled_dot_product_attention does. "lower_right" aligns the last query with the last key,
        as in decoding with a cache.

    Returns
    -------
    output : torch.Tensor, (B, Hq, L, D), in the dtype of q
        A query with no allowed key gets zeros.
    lse : torch.Tensor, (B, Hq, L), float32
        Natural logarithm of Σ e^score over the allowed keys, or -inf if there are none.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as above, L or S is 0, or the device is not supported.
    """
    _check(q, k, v)
    L, S = q.shape[2], k.shape[2]
    if falls_back(q.device):
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
        return tiled_attention(q, k, v, is_causal=is_causal, align=align)
    offset = S
    if is_causal:
        offset = 0 if L == S else {"lower_right": S - L, "upper_left": 0}[align]
    return _FlashAttention.apply(q, k, v, offset)


def why_not(device):
    """Return the reason why the kernels cannot run on ``device``, or None if they can."""
    if INTERPRETED:
        return None
    if torch.version.hip:
        return f"the kernels are for NVIDIA GPUs, not for {torch.cuda.get_device_name(device)}"
    major, minor = capability(device)
    if (major, minor) < min(kernel_tiles.TILES):
        gpu = f"{torch.cuda.get_device_name(device)} has {major}.{minor}"
        return f"the kernels need a GPU with compute capability 8.0 or higher, and {gpu}"
    return None


def falls_back(device):
    """Return True, and warn once, if the kernels cannot run on ``device``."""
    reason = why_not(device)
    if reason is not None:
        _warn_once(f"{reason}, so tiled_attention computes the result in plain PyTorch, slowly")
    return reason is not None


@functools.cache
def _warn_once(message):
    warnings.warn(message, stacklevel=5)  # points at the caller of the public function


def _check(q, k, v):
    Hq, Hkv, D = q.shape[1], k.shape[1], q.shape[-1]
    if 0 in q.shape or 0 in k.shape:
        raise ValueError(f"q and k must not be empty, got {tuple(q.shape)} and {tuple(k.shape)}")
    if D not in kernel_tiles.WIDTHS:
        raise ValueError(f"the width D of a head must be one of {kernel_tiles.WIDTHS}, got {D}")
    if Hq % Hkv:
        raise ValueError(f"heads of k must divide those of q = {Hq}, got {Hkv}")
    if q.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise TypeError(f"q must be float16, bfloat16 or float32, got {q.dtype}")
    for name, x in {"k": k, "v": v}.items():
        if (x.dtype, x.device) != (q.dtype, q.device):
            raise TypeError(
                f"{name} must be {q.dtype} on {q.device} as q is, got {x.dtype} on {x.device}"
            )
    if INTERPRETED and q.dtype == torch.bfloat16:
        raise TypeError(
            "q must be float16 or float32 in Triton's interpreter, which multiplies the bits of "
            "bfloat16 as if they were whole numbers; got bfloat16"
        )
    if not INTERPRETED and not q.is_cuda:
        raise ValueError(
            f"q must be on a CUDA device, got {q.device}; to interpret the kernels on a CPU, set "
            "TRITON_INTERPRET=1 before the first import"
        )
