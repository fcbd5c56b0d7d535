"""FlashAttention as Triton kernels: lesson 06's tiled attention, on a GPU's own terms.

One program of a kernel owns one block of queries (or of keys, for their gradients) and walks over
the blocks of the other side, which pass through fast memory. Read `_forward` first, then
`_take_in`, its loop; the three backward functions have the same form.

Letters as in the lessons: B batch, H heads, L queries, S keys, D width of a head. A tensor reaches
a kernel as a descriptor: address, shape, strides and the shape of one block. ``desc.load([batch,
head, start, 0])`` fetches the block that begins there, with zeros beyond the tensor's end, and
``desc.store`` leaves out what lies beyond. On a GPU since Hopper a unit of its own does the
copying.

Without a CUDA device the kernels run in Triton's interpreter: the same code, on NumPy, slowly.

Dao, "FlashAttention-2: faster attention with better parallelism and work partitioning", 2023.
"""

import importlib
import os
from typing import NamedTuple

import torch
from torch.autograd.function import once_differentiable

from course_utils.shapes import expects

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read by every @triton.jit below
try:
    import triton
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError as error:
    raise ImportError(
        "course_utils.kernels needs Triton, which exists for Linux only: there, install it with "
        "`pip install triton==3.7.1`; elsewhere read on, the rest of the course does without"
    ) from error

INTERPRETED = triton.knobs.runtime.interpret
if INTERPRETED and not isinstance(tl.max, InterpretedFunction):
    # Triton was imported before, by the first step of an optimizer for instance, and its own
    # functions are set to be compiled. Define them again.
    importlib.reload(tl.standard)
    importlib.reload(tl)


class Tiles(NamedTuple):
    """How a kernel cuts its work: block sizes, warps of a program, loads under way at a time."""

    block_q: int
    block_k: int
    num_warps: int
    num_stages: int


# The one place to tune; benchmarks/tune_kernels.py tries others on a GPU. By the width of a head,
# for float16 and bfloat16:
FORWARD = {
    16: Tiles(128, 64, 4, 3),
    32: Tiles(128, 64, 4, 3),
    64: Tiles(128, 64, 4, 3),
    128: Tiles(128, 128, 8, 2),
}
BACKWARD_Q = {
    16: Tiles(128, 64, 4, 3),
    32: Tiles(128, 64, 4, 3),
    64: Tiles(128, 64, 8, 3),
    128: Tiles(128, 64, 8, 3),
}
BACKWARD_KV = {
    16: Tiles(64, 128, 8, 3),
    32: Tiles(64, 128, 8, 3),
    64: Tiles(64, 128, 8, 3),
    128: Tiles(64, 128, 8, 3),
}
# float32 is here to check with: small tiles, which fit for any width.
FLOAT32 = Tiles(32, 32, 4, 2)

LOG2_E = tl.constexpr(1.4426950408889634)  # e^x = 2^(x · log₂e); a GPU computes powers of 2


# Forward


@triton.jit(do_not_specialize=["L", "S", "diagonal"])
def _forward(
    q_desc,  # (B, Hq, L, D), in blocks (1, 1, BLOCK_Q, D)
    k_desc,  # (B, Hkv, S, D), in blocks (1, 1, BLOCK_K, D)
    v_desc,  # (B, Hkv, S, D), in blocks (1, 1, BLOCK_K, D)
    out_desc,  # (B, Hq, L, D), in blocks (1, 1, BLOCK_Q, D)
    lse_ptr,  # (B, Hq, L), float32
    L,
    S,
    diagonal,  # query i may see the keys j <= i + diagonal; S or more: all of them
    scale,
    GROUP: tl.constexpr,  # query heads that share a head of keys and values
    D: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute output and logsumexp of one block of queries of one head."""
    # Programs begin in the order of axis 0, then 1, then 2. The last queries see most keys: those
    # of all heads begin first, so that short work is left to fill the end.
    start_q = (tl.num_programs(1) - 1 - tl.program_id(1)) * BLOCK_Q
    head, batch = tl.program_id(0), tl.program_id(2)
    q = q_desc.load([batch, head, start_q, 0]).reshape(BLOCK_Q, D)
    m = tl.full((BLOCK_Q,), -float("inf"), tl.float32)  # largest score so far, in powers of 2
    ell = tl.full((BLOCK_Q,), 0, tl.float32)  # Σ 2^(score - m) so far
    acc = tl.full((BLOCK_Q, D), 0, tl.float32)  # Σ 2^(score - m) · v so far

    queries = start_q + tl.arange(0, BLOCK_Q)
    last_key = tl.minimum(queries + diagonal, S - 1)  # (BLOCK_Q,), the last each may see
    # Two stages. Blocks that every query sees whole need no mask; it costs time, and most blocks
    # are such. The rest, on the diagonal and at the end of the keys, is masked. Blocks that no
    # query may see are never read.
    whole = tl.minimum(tl.maximum(start_q + diagonal + 1, 0), S) // BLOCK_K * BLOCK_K
    stop = tl.minimum(tl.maximum(start_q + BLOCK_Q + diagonal, 0), S)
    kv_head = head // GROUP
    m, ell, acc = _take_in(
        q, m, ell, acc, k_desc, v_desc, batch, kv_head, 0, whole,
        last_key, scale * LOG2_E, D, BLOCK_K, MASKED=False,
    )  # fmt: skip
    m, ell, acc = _take_in(
        q, m, ell, acc, k_desc, v_desc, batch, kv_head, whole, stop,
        last_key, scale * LOG2_E, D, BLOCK_K, MASKED=True,
    )  # fmt: skip

    ell = tl.where(ell == 0, 1, ell)  # nothing allowed: output 0 / 1, and m = -inf gives lse -inf
    out = acc / ell[:, None]
    out_desc.store([batch, head, start_q, 0], out.to(q.dtype).reshape(1, 1, BLOCK_Q, D))
    lse = (m + tl.log2(ell)) / LOG2_E  # back to natural logarithms
    row = (batch * tl.num_programs(0) + head) * L
    tl.store(lse_ptr + row + queries, lse, mask=queries < L)


@triton.jit
def _take_in(
    q, m, ell, acc, k_desc, v_desc, batch, kv_head, first, stop, last_key, scale_log2,
    D: tl.constexpr, BLOCK_K: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Take the keys and values from first up to stop into (m, ell, acc), block by block."""
    for start in range(first, stop, BLOCK_K):
        k = k_desc.load([batch, kv_head, start, 0]).reshape(BLOCK_K, D)
        v = v_desc.load([batch, kv_head, start, 0]).reshape(BLOCK_K, D)
        # "ieee": float32 inputs are not rounded to TF32's 10 bits.
        scores = tl.dot(q, k.T, input_precision="ieee")  # (BLOCK_Q, BLOCK_K), float32
        if MASKED:
            keys = start + tl.arange(0, BLOCK_K)
            scores = tl.where(keys[None, :] <= last_key[:, None], scores, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1) * scale_log2)
        base = m_new
        if MASKED:  # a query may have met no key it may see: -inf - -inf would be NaN
            base = tl.where(m_new == -float("inf"), 0, m_new)
        p = tl.exp2(scores * scale_log2 - base[:, None])  # one multiply-add and one power each
        rescale = tl.exp2(m - base)  # what was measured from m is now measured from m_new
        ell = ell * rescale + tl.sum(p, axis=1)
        acc = acc * rescale[:, None]
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")  # tensor cores take 16 bits
        m = m_new
    return m, ell, acc


# Backward. With P the weights, from the scores and the logsumexp as P = exp(scores - lse):
#   dV = Pᵀ dO        dP = dO Vᵀ        dS = P ∘ (dP - delta)        dQ = dS K        dK = dSᵀ Q
# where delta_i = Σ_d dO_id O_id, which equals Σ_j P_ij dP_ij of softmax's gradient. The logsumexp
# has the gradient P itself, so what arrives there is taken off delta. The kernels get lse times
# log₂e, for their powers of 2.


@triton.jit(do_not_specialize=["L", "S", "diagonal"])
def _backward_q(
    q_desc, k_desc, v_desc, out_desc, d_out_desc, d_q_desc,
    lse_ptr, d_lse_ptr, delta_ptr, L, S, diagonal, scale,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of one block of queries, and delta, which `_backward_kv` reads too."""
    start_q = (tl.num_programs(1) - 1 - tl.program_id(1)) * BLOCK_Q
    head, batch = tl.program_id(0), tl.program_id(2)
    q = q_desc.load([batch, head, start_q, 0]).reshape(BLOCK_Q, D)
    d_out = d_out_desc.load([batch, head, start_q, 0]).reshape(BLOCK_Q, D)
    out = out_desc.load([batch, head, start_q, 0]).reshape(BLOCK_Q, D)

    queries = start_q + tl.arange(0, BLOCK_Q)
    row = (batch * tl.num_programs(0) + head) * L
    lse = tl.load(lse_ptr + row + queries, mask=queries < L, other=0)
    d_lse = tl.load(d_lse_ptr + row + queries, mask=queries < L, other=0)
    delta = tl.sum(d_out.to(tl.float32) * out.to(tl.float32), axis=1) - d_lse
    tl.store(delta_ptr + row + queries, delta, mask=queries < L)

    last_key = tl.minimum(queries + diagonal, S - 1)
    whole = tl.minimum(tl.maximum(start_q + diagonal + 1, 0), S) // BLOCK_K * BLOCK_K
    stop = tl.minimum(tl.maximum(start_q + BLOCK_Q + diagonal, 0), S)
    kv_head = head // GROUP
    d_q = tl.full((BLOCK_Q, D), 0, tl.float32)
    d_q = _add_to_d_q(
        d_q, q, d_out, lse, delta, k_desc, v_desc, batch, kv_head, 0, whole,
        last_key, scale * LOG2_E, D, BLOCK_K, MASKED=False,
    )  # fmt: skip
    d_q = _add_to_d_q(
        d_q, q, d_out, lse, delta, k_desc, v_desc, batch, kv_head, whole, stop,
        last_key, scale * LOG2_E, D, BLOCK_K, MASKED=True,
    )  # fmt: skip
    d_q_desc.store([batch, head, start_q, 0], (d_q * scale).to(q.dtype).reshape(1, 1, BLOCK_Q, D))


@triton.jit
def _add_to_d_q(
    d_q, q, d_out, lse, delta, k_desc, v_desc, batch, kv_head, first, stop,
    last_key, scale_log2, D: tl.constexpr, BLOCK_K: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add to d_q what the keys from first up to stop bring."""
    for start in range(first, stop, BLOCK_K):
        k = k_desc.load([batch, kv_head, start, 0]).reshape(BLOCK_K, D)
        v = v_desc.load([batch, kv_head, start, 0]).reshape(BLOCK_K, D)
        scores = tl.dot(q, k.T, input_precision="ieee")  # (BLOCK_Q, BLOCK_K)
        p = tl.exp2(scores * scale_log2 - lse[:, None])  # the weights again, no max needed
        if MASKED:
            keys = start + tl.arange(0, BLOCK_K)
            p = tl.where(keys[None, :] <= last_key[:, None], p, 0)
        d_p = tl.dot(d_out, v.T, input_precision="ieee")  # (BLOCK_Q, BLOCK_K)
        d_s = p * (d_p - delta[:, None])
        d_q = tl.dot(d_s.to(k.dtype), k, d_q, input_precision="ieee")
    return d_q


@triton.jit(do_not_specialize=["L", "S", "diagonal"])
def _backward_kv(
    q_desc, k_desc, v_desc, d_out_desc, d_k_desc, d_v_desc,
    lse_ptr, delta_ptr, L, S, diagonal, scale,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of one block of keys and values, over all query heads they serve."""
    start_k = tl.program_id(1) * BLOCK_K  # the first keys are seen by most queries
    kv_head, batch = tl.program_id(0), tl.program_id(2)
    k = k_desc.load([batch, kv_head, start_k, 0]).reshape(BLOCK_K, D)
    v = v_desc.load([batch, kv_head, start_k, 0]).reshape(BLOCK_K, D)
    d_k = tl.full((BLOCK_K, D), 0, tl.float32)
    d_v = tl.full((BLOCK_K, D), 0, tl.float32)

    # The two stages again, seen from the keys: from query `first` on some of the block is seen,
    # from `whole` on all of it.
    last = tl.minimum(start_k + BLOCK_K, S) - 1
    first = tl.maximum(start_k - diagonal, 0) // BLOCK_Q * BLOCK_Q
    whole = tl.cdiv(tl.maximum(last - diagonal, 0), BLOCK_Q) * BLOCK_Q
    for member in range(GROUP):
        head = kv_head * GROUP + member
        row = (batch * tl.num_programs(0) * GROUP + head) * L
        d_k, d_v = _add_to_d_k_and_d_v(
            d_k, d_v, k, v, q_desc, d_out_desc, lse_ptr + row, delta_ptr + row, batch, head,
            first, tl.minimum(whole, L), L, start_k, diagonal, scale * LOG2_E,
            D, BLOCK_Q, BLOCK_K, MASKED=True,
        )  # fmt: skip
        d_k, d_v = _add_to_d_k_and_d_v(
            d_k, d_v, k, v, q_desc, d_out_desc, lse_ptr + row, delta_ptr + row, batch, head,
            whole, L, L, start_k, diagonal, scale * LOG2_E,
            D, BLOCK_Q, BLOCK_K, MASKED=False,
        )  # fmt: skip
    d_k_desc.store(
        [batch, kv_head, start_k, 0], (d_k * scale).to(k.dtype).reshape(1, 1, BLOCK_K, D)
    )
    d_v_desc.store([batch, kv_head, start_k, 0], d_v.to(k.dtype).reshape(1, 1, BLOCK_K, D))


@triton.jit
def _add_to_d_k_and_d_v(
    d_k, d_v, k, v, q_desc, d_out_desc, lse_ptr, delta_ptr, batch, head,
    first, stop, L, start_k, diagonal, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add to d_k and d_v what the queries from first up to stop bring."""
    for start in range(first, stop, BLOCK_Q):
        # Beyond the last query q, d_out and delta are 0, and so is all they bring.
        q = q_desc.load([batch, head, start, 0]).reshape(BLOCK_Q, D)
        d_out = d_out_desc.load([batch, head, start, 0]).reshape(BLOCK_Q, D)
        queries = start + tl.arange(0, BLOCK_Q)
        lse = tl.load(lse_ptr + queries, mask=queries < L, other=0)
        delta = tl.load(delta_ptr + queries, mask=queries < L, other=0)
        # Everything transposed, so that no block has to be turned before its next product.
        scores = tl.dot(k, q.T, input_precision="ieee")  # (BLOCK_K, BLOCK_Q)
        p = tl.exp2(scores * scale_log2 - lse[None, :])
        if MASKED:
            keys = start_k + tl.arange(0, BLOCK_K)
            p = tl.where(keys[:, None] <= queries[None, :] + diagonal, p, 0)
        d_v = tl.dot(p.to(d_out.dtype), d_out, d_v, input_precision="ieee")
        d_p = tl.dot(v, d_out.T, input_precision="ieee")  # (BLOCK_K, BLOCK_Q)
        d_s = p * (d_p - delta[None, :])
        d_k = tl.dot(d_s.to(q.dtype), q, d_k, input_precision="ieee")
    return d_k, d_v


# From PyTorch


class _FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, diagonal):
        q, k, v = map(_describable, (q, k, v))
        (B, Hq, L, D), S = q.shape, k.shape[2]
        out = torch.empty_like(q)
        lse = q.new_empty((B, Hq, L), dtype=torch.float32)
        tiles = _tiles(FORWARD, q)
        by_q, by_k = [1, 1, tiles.block_q, D], [1, 1, tiles.block_k, D]
        _forward[(Hq, triton.cdiv(L, tiles.block_q), B)](
            *_describe(by_q, q), *_describe(by_k, k, v), *_describe(by_q, out),
            lse, L, S, diagonal, D**-0.5, **_constants(tiles, q, k),
        )  # fmt: skip
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.diagonal = diagonal
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out, d_lse):
        q, k, v, out, lse = ctx.saved_tensors
        d_out, d_lse = _describable(d_out), d_lse.contiguous()
        (B, Hq, L, D), (Hkv, S) = q.shape, k.shape[1:3]
        d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        lse, delta = lse * LOG2_E.value, torch.empty_like(lse)
        tiles = _tiles(BACKWARD_Q, q)
        by_q, by_k = [1, 1, tiles.block_q, D], [1, 1, tiles.block_k, D]
        _backward_q[(Hq, triton.cdiv(L, tiles.block_q), B)](
            *_describe(by_q, q), *_describe(by_k, k, v), *_describe(by_q, out, d_out, d_q),
            lse, d_lse, delta, L, S, ctx.diagonal, D**-0.5, **_constants(tiles, q, k),
        )  # fmt: skip
        tiles = _tiles(BACKWARD_KV, q)
        by_q, by_k = [1, 1, tiles.block_q, D], [1, 1, tiles.block_k, D]
        _backward_kv[(Hkv, triton.cdiv(S, tiles.block_k), B)](
            *_describe(by_q, q), *_describe(by_k, k, v), *_describe(by_q, d_out),
            *_describe(by_k, d_k, d_v),
            lse, delta, L, S, ctx.diagonal, D**-0.5, **_constants(tiles, q, k),
        )  # fmt: skip
        return d_q, d_k, d_v, None


def _tiles(table, q):
    return FLOAT32 if q.dtype == torch.float32 else table[q.shape[-1]]


def _constants(tiles, q, k):
    """Return what a kernel is compiled for."""
    return {
        "GROUP": q.shape[1] // k.shape[1],
        "D": q.shape[-1],
        "BLOCK_Q": tiles.block_q,
        "BLOCK_K": tiles.block_k,
        "num_warps": tiles.num_warps,
        "num_stages": tiles.num_stages,
    }


def _describe(block, *tensors):
    return [TensorDescriptor.from_tensor(x, block) for x in tensors]


def _describable(x):
    """Return x, or a copy whose rows lie as descriptors want them: whole, from 16-byte marks on."""
    steps = [step * x.element_size() for step in x.stride()[:-1]]
    if x.stride(-1) == 1 and all(step > 0 and step % 16 == 0 for step in [*steps, x.data_ptr()]):
        return x
    return x.clone(memory_format=torch.contiguous_format)


@expects(q="B Hq L D", k="B Hkv S D", v="B Hkv S D", align="one of upper_left lower_right")
def flash_attention(q, k, v, *, is_causal=False, align="upper_left"):
    """Return softmax(qkᵀ / √D) v and its logsumexp, in tiles, without the (L, S) matrix.

    Differentiable in q, k and v, once. Runs compiled on a CUDA device, else in Triton's
    interpreter (TRITON_INTERPRET=1, which importing this module sets where there is no device).

    Parameters
    ----------
    q : torch.Tensor, (B, Hq, L, D), float16, bfloat16 or float32
        D is 16, 32, 64 or 128. Not bfloat16 in the interpreter, which gets it wrong.
    k, v : torch.Tensor, (B, Hkv, S, D), in the dtype of q
        Hkv divides Hq: query head h uses head h // (Hq / Hkv).
    is_causal : bool
        Whether a query may see only the keys up to its own place.
    align : {"upper_left", "lower_right"}
        Where that place is if L ≠ S: "upper_left", the first query at the first key, as
        `is_causal` of PyTorch's scaled_dot_product_attention; "lower_right", the last query at
        the last key, as `causal_mask` without further words.

    Returns
    -------
    output : torch.Tensor, (B, Hq, L, D), in the dtype of q
        Zeros for a query that may see nothing.
    lse : torch.Tensor, (B, Hq, L), float32
        Natural logarithm of Σ e^score over the keys a query may see; -inf if there are none.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as above, or L or S is 0, or the tensors are on a device that the
        kernels do not run on.
    """
    _check(q, k, v)
    L, S = q.shape[2], k.shape[2]
    diagonal = (S - L if align == "lower_right" else 0) if is_causal else S
    return _FlashAttention.apply(q, k, v, diagonal)


def _check(q, k, v):
    Hq, Hkv, D = q.shape[1], k.shape[1], q.shape[-1]
    if 0 in q.shape or 0 in k.shape:
        raise ValueError(f"q and k must not be empty, got {tuple(q.shape)} and {tuple(k.shape)}")
    if D not in FORWARD:
        raise ValueError(f"the width D of a head must be one of {[*FORWARD]}, got {D}")
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
