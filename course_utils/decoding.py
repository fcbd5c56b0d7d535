"""Decoding as Triton kernels: the newest queries of each sequence attend to its KV cache.

Decoding is memory-bound. Each key that is read takes part in only a few dot products, so decoding
takes about as long as reading the cache. This shapes the kernels in three ways:

1. The query heads that share a KV head (a key head with its value head) are the rows of one tile,
   so the cache is read once for all of them.
2. The cache of a sequence is split into parts, each with its own program, because otherwise most of
   a GPU would be idle. Then `_join` merges the parts by their logsumexps, as lesson 03's `merge`
   does.
3. The kernels do not copy the cache, which may be stored in pages, in any order.

There are B sequences, Hq query heads and Hkv KV heads, L new queries per sequence (often 1) and S
slots in each cache. D is the width of a head.

Dao, Haziza, Massa and Sizov, "Flash-Decoding for long-context inference", 2023. Kwon et al.,
"Efficient memory management for large language model serving with PagedAttention", 2023.
"""

import torch

# Import Triton from `kernels`, which sets TRITON_INTERPRET where there is no GPU.
from course_utils.kernels import INTERPRETED, LOG2_E, falls_back, tl, triton
from course_utils.shapes import expects
from course_utils.tiled import tiled_attention

# Keys per block, by head width D. In 16 bits, keys and values take 16 KiB (32 KiB for D = 256). Two
# blocks are loaded while a third is used (and page numbers one block earlier). Two programs fit on
# a multiprocessor of any GPU since sm_80 (one for D = 256). float32 is only for tests, and 16 keys
# always fit.
BLOCK_K = {16: 64, 32: 64, 64: 64, 128: 32, 256: 32}
FLOAT32_BLOCK_K = 16
NUM_STAGES = 3
# Rows per tile. A matrix product needs 16, and more than the maximum would spill registers.
MIN_ROWS, MAX_ROWS = 16, {16: 64, 32: 64, 64: 64, 128: 64, 256: 32}
DTYPES = [torch.float32, torch.float16] + [torch.bfloat16] * (not INTERPRETED)
MIN_KEYS, MAX_PARTS = 256, 128  # shorter parts save no time; `_join` holds all parts of a row


@triton.jit(do_not_specialize=["L", "S", "rows", "Hkv"])
def _attend_to_part(
    q_ptr,  # (B, Hkv, rows, D): the rows are the L queries of each head of the group
    k_ptr,  # (B, Hkv, S, D), or in pages (pages, Hkv, PAGE, D)
    v_ptr,  # as k
    lengths_ptr,  # (B,), or None if all S slots are filled
    table_ptr,  # (B, S / PAGE), page numbers, or None if the cache of sequence b is k[b]
    out_ptr,  # (parts, B, Hkv, rows, D), float32
    lse_ptr,  # (parts, B, Hkv, rows), float32
    L, S, rows, Hkv, scale,
    k_page, k_head, k_row, v_page, v_head, v_row,  # strides
    PAGE: tl.constexpr, D: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute output and logsumexp for a tile of a group's queries over one part of a cache."""
    group, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    batch, kv_head = group // Hkv, group % Hkv
    r, d = tl.program_id(2) * BLOCK_R + tl.arange(0, BLOCK_R), tl.arange(0, D)
    q_rows = group * rows + r
    q = tl.load(q_ptr + q_rows[:, None] * D + d, mask=r[:, None] < rows, other=0)
    length = S
    if lengths_ptr is not None:
        length = tl.minimum(tl.load(lengths_ptr + batch).to(tl.int32), S)
    last_key = length - L + r % L  # (BLOCK_R,), the last key each row may see

    m = tl.full((BLOCK_R,), -float("inf"), tl.float32)  # the same state as in `kernels._forward`
    ell = tl.full((BLOCK_R,), 0, tl.float32)
    acc = tl.full((BLOCK_R, D), 0, tl.float32)
    blocks_per_part = tl.cdiv(tl.cdiv(length, BLOCK_K), tl.num_programs(1))
    first = part * blocks_per_part * BLOCK_K
    for start in range(first, tl.minimum(first + blocks_per_part * BLOCK_K, length), BLOCK_K):
        keys = start + tl.arange(0, BLOCK_K)
        page, row, filled = batch, keys.to(tl.int64), keys < length
        if table_ptr is not None:
            page = tl.load(table_ptr + batch * (S // PAGE) + keys // PAGE, mask=filled, other=0)
            page, row = page.to(tl.int64), keys % PAGE
        k_rows = page * k_page + kv_head * k_head + row * k_row  # (BLOCK_K,)
        v_rows = page * v_page + kv_head * v_head + row * v_row
        k = tl.load(k_ptr + k_rows[:, None] + d, mask=filled[:, None], other=0)  # (BLOCK_K, D)
        v = tl.load(v_ptr + v_rows[:, None] + d, mask=filled[:, None], other=0)
        scores = tl.dot(q, k.T, input_precision="ieee") * (scale * LOG2_E)  # (BLOCK_R, BLOCK_K)
        scores = tl.where(keys[None, :] <= last_key[:, None], scores, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        base = tl.where(m_new == -float("inf"), 0, m_new)
        p = tl.exp2(scores - base[:, None])
        rescale = tl.exp2(m - base)
        ell = ell * rescale + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
        m = m_new

    ell = tl.where(ell == 0, 1, ell)  # an empty part has output 0 and lse -inf
    at = part * (tl.num_programs(0).to(tl.int64) * rows) + q_rows
    tl.store(out_ptr + at[:, None] * D + d, acc / ell[:, None], mask=r[:, None] < rows)
    tl.store(lse_ptr + at, (m + tl.log2(ell)) / LOG2_E, mask=r < rows)


@triton.jit(do_not_specialize=["parts"])
def _join(
    outs_ptr,  # (parts, N, D), float32
    lses_ptr,  # (parts, N), float32
    out_ptr,  # (N, D)
    lse_ptr,  # (N,), float32
    parts, D: tl.constexpr, PARTS: tl.constexpr,  # PARTS is parts rounded up to a power of 2
):  # fmt: skip
    """Merge the parts of one row, each weighted by its share of the sum of exponentials."""
    row, N = tl.program_id(0), tl.num_programs(0).to(tl.int64)
    part, d = tl.arange(0, PARTS), tl.arange(0, D)
    lses = tl.load(lses_ptr + part * N + row, mask=part < parts, other=-float("inf"))
    m = tl.max(lses, axis=0)
    sums = tl.exp(lses - tl.where(m == -float("inf"), 0, m))  # (PARTS,), 0 for an empty part
    total = tl.sum(sums, axis=0)
    total = tl.where(total == 0, 1, total)  # if all parts are empty
    at = (part * N + row)[:, None] * D + d
    outs = tl.load(outs_ptr + at, mask=part[:, None] < parts, other=0)  # (PARTS, D)
    tl.store(out_ptr + row * D + d, tl.sum(outs * (sums / total)[:, None], axis=0))
    tl.store(lse_ptr + row, m + tl.log(total))


def choose_parts(processors, groups, S):
    """Choose how many parts to split each cache into, so that long caches keep the GPU busy.

    Each multiprocessor gets four programs, so that some compute while others wait for memory. With
    16 caches, an H200 read 2% faster than with two programs if each cache had 8,192 slots, and 5%
    faster if it had 65,536.

    Parameters
    ----------
    processors : int
        Number of multiprocessors: 132 on an H100, 108 on an A100.
    groups : int
        B · Hkv, the number of programs if caches are not split.
    S : int
        Slots in a cache. Each part gets at least 256 of them, if there are that many.

    Returns
    -------
    int
    """
    return max(1, min(4 * processors // groups, S // MIN_KEYS, MAX_PARTS))


def attend_to_parts(q, k_cache, v_cache, parts, lengths=None, block_table=None):
    """Return outputs (parts, B, Hq, L, D) and logsumexps (parts, B, Hq, L), both float32.

    The arguments are those of `decode_attention`, which checks them. If ``lengths`` and
    ``block_table`` are given, they must be contiguous tensors.
    """
    (B, Hq, L, D), (Hkv, page) = q.shape, k_cache.shape[1:3]
    rows = Hq // Hkv * L  # the heads of a group are adjacent in memory, so they are rows already
    outs = q.new_empty((parts, B, Hq, L, D), dtype=torch.float32)
    lses = q.new_empty((parts, B, Hq, L), dtype=torch.float32)
    paged = block_table is not None
    tile = min(MAX_ROWS[D], max(MIN_ROWS, triton.next_power_of_2(rows)))
    _attend_to_part[(B * Hkv, parts, triton.cdiv(rows, tile))](
        q.contiguous(), k_cache, v_cache, lengths, block_table, outs, lses,
        L, _capacity(k_cache, block_table), rows, Hkv, D**-0.5,
        *k_cache.stride()[:3], *v_cache.stride()[:3],
        PAGE=page if paged else None, D=D, BLOCK_R=tile,
        BLOCK_K=FLOAT32_BLOCK_K if q.dtype == torch.float32 else BLOCK_K[D],
        num_warps=4, num_stages=NUM_STAGES + paged,
    )  # fmt: skip
    return outs, lses


def join(outs, lses, dtype):
    """Merge the results of `attend_to_parts`. Return output (B, Hq, L, D) and lse (B, Hq, L)."""
    parts, *shape, D = outs.shape
    out, lse = outs.new_empty((*shape, D), dtype=dtype), lses.new_empty(shape)
    _join[(lse.numel(),)](
        outs, lses, out, lse, parts, D=D, PARTS=triton.next_power_of_2(parts), num_warps=8
    )
    return out, lse


@expects(
    q="B Hq L D",
    k_cache="sequences_or_pages Hkv S D",
    v_cache="sequences_or_pages Hkv S D",
    lengths="whole B",
    block_table="whole B pages_of_a_sequence",
    parts="int from 1",
)
def decode_attention(q, k_cache, v_cache, *, lengths=None, block_table=None, parts=None):
    """Let the newest queries of each sequence attend to its KV cache. Return output and lse.

    This is for inference, without gradients. The kernels are compiled for NVIDIA GPUs with compute
    capability 8.0 or higher. On other GPUs, `tiled.tiled_attention` computes the same result, with
    a warning the first time. Without a GPU, the kernels run in Triton's interpreter.

    Parameters
    ----------
    q : torch.Tensor, (B, Hq, L, D), float16, bfloat16 or float32
        Queries of the L newest tokens of each sequence. The keys and values of these tokens are
        already in the cache, as its last L entries. The mask is causal and aligned "lower_right".
        D is 16, 32, 64, 128 or 256. In Triton's interpreter, bfloat16 is rejected.
    k_cache, v_cache : torch.Tensor, (B, Hkv, S, D), or in pages (pages, Hkv, page_size, D)
        In the dtype of q, with stride 1 along D. The other strides are arbitrary. Hkv divides Hq,
        and query head h uses KV head h // (Hq / Hkv).
    lengths : torch.Tensor or sequence of int, (B,), optional
        Number of filled slots in each cache. If not given, all slots are filled. Slots beyond this
        number are never read.
    block_table : torch.Tensor or sequence of int, (B, pages of a sequence), optional
        Token i of sequence b is in page ``block_table[b, i // page_size]``, slot ``i % page_size``.
        Entries for pages that a sequence has not reached yet may name any page.
    parts : int, optional
        Number of parts of each cache, up to 128. By default, `choose_parts` computes it from B,
        Hkv and S. Set it explicitly if results must be batch-invariant, that is, bitwise the same
        whatever else is in the batch.

    Returns
    -------
    output : torch.Tensor, (B, Hq, L, D), in the dtype of q
        A query with no allowed key gets zeros, for example if the length is 0.
    lse : torch.Tensor, (B, Hq, L), float32
        Natural logarithm of Σ e^score over the allowed keys, or -inf if there are none.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as above. On a GPU, the values of lengths and block_table are not
        checked, because the CPU would have to wait for the GPU. There, a length above S counts as
        S.
    """
    lengths, block_table = (
        None if x is None else torch.as_tensor(x, device=q.device).contiguous()
        for x in (lengths, block_table)
    )
    _check(q, k_cache, v_cache, lengths, block_table, parts)
    if falls_back(q.device):
        return _attend_in_pytorch(q, k_cache, v_cache, lengths, block_table)
    if parts is None:
        processors = 1  # the interpreter
        if q.is_cuda:
            processors = torch.cuda.get_device_properties(q.device).multi_processor_count
        groups = q.shape[0] * k_cache.shape[1]
        parts = choose_parts(processors, groups, _capacity(k_cache, block_table))
    with torch.cuda.device_of(q):
        return join(*attend_to_parts(q, k_cache, v_cache, parts, lengths, block_table), q.dtype)


def _attend_in_pytorch(q, k_cache, v_cache, lengths, block_table):
    """Return output and logsumexp without the kernels. This copies the cache."""
    (B, Hq, L, D), Hkv = q.shape, k_cache.shape[1]
    if block_table is not None:
        k_cache, v_cache = (
            x[block_table].transpose(1, 2).flatten(2, 3) for x in (k_cache, v_cache)
        )  # (B, pages, Hkv, page_size, D) -> (B, Hkv, S, D)
    S, group = k_cache.shape[2], Hq // Hkv
    if lengths is None:
        lengths = torch.full((B,), S, device=q.device)
    lengths = lengths.clamp(max=S)[:, None, None]  # (B, 1, 1)
    key, query = torch.arange(S, device=q.device), torch.arange(L, device=q.device)
    mask = key <= lengths - L + query[:, None]  # (B, L, S), lower right
    v_cache = v_cache.masked_fill((key >= lengths)[..., None], 0)  # 0 · NaN would be NaN
    rows = q.reshape(B, Hkv, group * L, D)
    out, lse = tiled_attention(rows, k_cache, v_cache, mask.repeat(1, group, 1)[:, None])
    return out.view(q.shape), lse.view(B, Hq, L)


def _capacity(k_cache, block_table):
    return k_cache.shape[2] * (1 if block_table is None else block_table.shape[1])


def _check(q, k_cache, v_cache, lengths, block_table, parts):
    (B, Hq, _, D), (items, Hkv), S = q.shape, k_cache.shape[:2], _capacity(k_cache, block_table)
    if q.dtype not in DTYPES:
        where = " in Triton's interpreter" if INTERPRETED else ""
        raise TypeError(f"q must be one of {', '.join(map(str, DTYPES))}{where}, got {q.dtype}")
    for name, x in {"k_cache": k_cache, "v_cache": v_cache}.items():
        if (x.dtype, x.device) != (q.dtype, q.device):
            wanted = f"{q.dtype} on {q.device} as q is"
            raise TypeError(f"{name} must be {wanted}, got {x.dtype} on {x.device}")
        if x.stride(-1) != 1:
            raise ValueError(f"{name} must have stride 1 along D, got {x.stride()}")
    for wrong, message in [
        (not INTERPRETED and not q.is_cuda, f"q must be on a CUDA device, got {q.device}"),
        (q.numel() * Hkv * S == 0, f"nothing may be empty, got q {(*q.shape,)} and {Hkv=}, {S=}"),
        (D not in BLOCK_K, f"the width D of a head must be one of {[*BLOCK_K]}, got {D}"),
        (Hq % max(Hkv, 1) != 0, f"heads of k_cache must divide those of q = {Hq}, got {Hkv}"),
        (block_table is None and items != B, f"k_cache must hold {B} sequences as q, got {items}"),
        ((parts or 1) > MAX_PARTS, f"parts must be {MAX_PARTS} or less, got {parts}"),
    ]:
        if wrong:
            raise ValueError(message)
    for name, x, most in [("lengths", lengths, S), ("block_table", block_table, items - 1)]:
        if x is not None and not x.is_cuda and not 0 <= x.min() <= x.max() <= most:
            raise ValueError(f"{name} must be from 0 to {most}, got {x.tolist()}")
