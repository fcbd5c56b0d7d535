"""Decoding as Triton kernels: the newest query of each text against a cache, for inference.

One query uses each key for one product, so the time is that of reading the cache. Three things
follow. The query heads that share a head of keys are the rows of one tile: the cache is read once
for all of them. A text's cache is cut into parts, each with a program of its own, or most of a
GPU would be idle; `_join` merges their results by their logsumexps, as lesson 03's `merge` does.
And nothing is copied: a cache may lie in pages, in any order.

Letters as in `kernels`: B texts, Hq and Hkv heads of queries and keys, L new queries of a text
(often 1), S places in a cache, D the width of a head.

Dao, Haziza, Massa and Sizov, "Flash-Decoding for long-context inference", 2023. Kwon et al.,
"Efficient memory management for large language model serving with PagedAttention", 2023.
"""

import torch

# Triton by way of `kernels`, which sets it to interpret where there is no GPU.
from course_utils.kernels import INTERPRETED, LOG2_E, tl, triton
from course_utils.shapes import expects

# Keys of a block, by the width D: in 16 bits its keys and values take 16 KiB (D = 256: 32). Two
# blocks are under way while a third is used up (with pages their numbers a block earlier), and two
# programs fit beside each other on any GPU since sm_80 (D = 256: one).
BLOCK_K = {16: 64, 32: 64, 64: 64, 128: 32, 256: 32}
NUM_STAGES = 3
MIN_ROWS, MAX_ROWS = 16, 128  # of queries in a tile: a matrix product needs 16; registers end
DTYPES = [torch.float32, torch.float16] + [torch.bfloat16] * (not INTERPRETED)
MIN_KEYS, MAX_PARTS = 256, 128  # shorter parts gain nothing; `_join` holds all parts of a row


@triton.jit(do_not_specialize=["L", "S", "rows", "Hkv"])
def _attend_to_part(
    q_ptr,  # (B, Hkv, rows, D): the rows are the group's heads, and for each its L queries
    k_ptr,  # (B, Hkv, S, D), or in pages (pages, Hkv, PAGE, D)
    v_ptr,  # as k
    lengths_ptr,  # (B,), or None: all S places are filled
    table_ptr,  # (B, S / PAGE), numbers of pages, or None: text b has a cache of its own, number b
    out_ptr,  # (parts, B, Hkv, rows, D), float32
    lse_ptr,  # (parts, B, Hkv, rows), float32
    L, S, rows, Hkv, scale,
    k_page, k_head, k_row, v_page, v_head, v_row,  # strides
    PAGE: tl.constexpr, D: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute output and logsumexp of all queries of one group over one part of the cache."""
    group, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    batch, kv_head = group // Hkv, group % Hkv
    r, d = tl.arange(0, BLOCK_R), tl.arange(0, D)
    q_rows = group * rows + r
    q = tl.load(q_ptr + q_rows[:, None] * D + d, mask=r[:, None] < rows, other=0)
    length = S
    if lengths_ptr is not None:
        length = tl.minimum(tl.load(lengths_ptr + batch).to(tl.int32), S)
    last_key = length - L + r % L  # (BLOCK_R,), the last each row may see: the newest see all

    m = tl.full((BLOCK_R,), -float("inf"), tl.float32)  # `_forward`'s state, in powers of 2
    ell = tl.full((BLOCK_R,), 0, tl.float32)
    acc = tl.full((BLOCK_R, D), 0, tl.float32)
    blocks_each = tl.cdiv(tl.cdiv(length, BLOCK_K), tl.num_programs(1))  # of this text's own length
    first = part * blocks_each * BLOCK_K
    for start in range(first, tl.minimum(first + blocks_each * BLOCK_K, length), BLOCK_K):
        keys = start + tl.arange(0, BLOCK_K)
        page, row, filled = batch, keys, keys < length
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

    ell = tl.where(ell == 0, 1, ell)  # an empty part: output 0, and m = -inf gives lse -inf
    at = part * (tl.num_programs(0).to(tl.int64) * rows) + q_rows
    tl.store(out_ptr + at[:, None] * D + d, acc / ell[:, None], mask=r[:, None] < rows)
    tl.store(lse_ptr + at, (m + tl.log2(ell)) / LOG2_E, mask=r < rows)


@triton.jit(do_not_specialize=["parts"])
def _join(
    outs_ptr,  # (parts, N, D), float32
    lses_ptr,  # (parts, N), float32
    out_ptr,  # (N, D)
    lse_ptr,  # (N,), float32
    parts,
    D: tl.constexpr,
    PARTS: tl.constexpr,  # parts, rounded up to a power of 2
):
    """Merge the parts of one row: each counts by its share of the whole sum of powers."""
    row, N = tl.program_id(0), tl.num_programs(0).to(tl.int64)
    part, d = tl.arange(0, PARTS), tl.arange(0, D)
    lses = tl.load(lses_ptr + part * N + row, mask=part < parts, other=-float("inf"))
    m = tl.max(lses, axis=0)
    sums = tl.exp(lses - tl.where(m == -float("inf"), 0, m))  # (PARTS,), 0 for an empty part
    total = tl.sum(sums, axis=0)
    total = tl.where(total == 0, 1, total)  # all parts are empty
    at = (part * N + row)[:, None] * D + d
    outs = tl.load(outs_ptr + at, mask=part[:, None] < parts, other=0)  # (PARTS, D)
    tl.store(out_ptr + row * D + d, tl.sum(outs * (sums / total)[:, None], axis=0))
    tl.store(lse_ptr + row, m + tl.log(total))


def choose_parts(processors, groups, S):
    """Return into how many parts to cut each cache, so that a GPU has work for all its processors.

    As many as give two programs to each processor, which take turns to wait for memory; no more,
    for what begins when others end leaves processors idle meanwhile.

    Parameters
    ----------
    processors : int
        Multiprocessors of the GPU: 132 on an H100, 108 on an A100.
    groups : int
        B · Hkv: programs there would be without parts.
    S : int
        Places in a cache. A part has 256 or more, as long as there are so many.

    Returns
    -------
    int
    """
    return max(1, min(2 * processors // groups, S // MIN_KEYS, MAX_PARTS))


def attend_to_parts(q, k_cache, v_cache, lengths, block_table, parts):
    """Return outputs (parts, B, Hq, L, D) and logsumexps (parts, B, Hq, L), both float32.

    Arguments are as of `decode_attention`, with ``parts`` given.
    """
    (B, Hq, L, D), (Hkv, page) = q.shape, k_cache.shape[1:3]
    if lengths is not None:
        lengths = lengths.contiguous()
    if block_table is not None:
        block_table = block_table.contiguous()
    rows = Hq // Hkv * L  # heads of a group lie side by side: a group is rows already
    outs = q.new_empty((parts, B, Hq, L, D), dtype=torch.float32)
    lses = q.new_empty((parts, B, Hq, L), dtype=torch.float32)
    _attend_to_part[(B * Hkv, parts)](
        q.contiguous(), k_cache, v_cache, lengths, block_table, outs, lses,
        L, _places(k_cache, block_table), rows, Hkv, D**-0.5,
        *k_cache.stride()[:3], *v_cache.stride()[:3],
        PAGE=page if block_table is not None else None, D=D,
        BLOCK_R=max(MIN_ROWS, triton.next_power_of_2(rows)), BLOCK_K=BLOCK_K[D],
        num_warps=4, num_stages=NUM_STAGES + (block_table is not None),
    )  # fmt: skip
    return outs, lses


def join(outs, lses, dtype):
    """Merge what `attend_to_parts` gives into output (B, Hq, L, D) of a dtype, and logsumexp."""
    parts, *shape, D = outs.shape
    out, lse = outs.new_empty((*shape, D), dtype=dtype), lses.new_empty(shape)
    _join[(lse.numel(),)](
        outs, lses, out, lse, parts, D=D, PARTS=triton.next_power_of_2(parts), num_warps=4
    )
    return out, lse


@expects(
    q="B Hq L D",
    k_cache="texts_or_pages Hkv S D",
    v_cache="texts_or_pages Hkv S D",
    lengths="whole B",
    block_table="whole B pages_of_a_text",
    parts="int from 1",
)
def decode_attention(q, k_cache, v_cache, *, lengths=None, block_table=None, parts=None):
    """Return the attention of each text's newest queries to its cache, and its logsumexp.

    For inference: no gradients. Runs compiled on a CUDA device, else in Triton's interpreter.

    Parameters
    ----------
    q : torch.Tensor, (B, Hq, L, D), float16, bfloat16 or float32
        The L newest tokens of each text, whose keys and values are the last in the cache: the
        last query sees all of them, the one before all but one. D is 16, 32, 64, 128 or 256. Not
        bfloat16 in the interpreter.
    k_cache, v_cache : torch.Tensor, (B, Hkv, S, D), or in pages (pages, Hkv, page_size, D)
        In the dtype of q, with the numbers of a key side by side; other strides are free. Hkv
        divides Hq: query head h uses head h // (Hq / Hkv), and Hq / Hkv · L is 128 or less.
    lengths : torch.Tensor of int32 or int64, (B,), optional
        How many places of each cache are filled, from 0; all if not given. What the others hold
        is never read.
    block_table : torch.Tensor of int32 or int64, (B, pages of a text), optional
        The page of token i of text b is ``block_table[b, i // page_size]``, its place there
        ``i % page_size``. Pages that a text has not reached may have any number.
    parts : int, optional
        Into how many parts, up to 128, each text's filled places are cut; `choose_parts` decides
        if not given. It depends on B: give a number if a text's result must not, to the last bit.

    Returns
    -------
    output : torch.Tensor, (B, Hq, L, D), in the dtype of q
        Zeros where there is no key to see, as with length 0.
    lse : torch.Tensor, (B, Hq, L), float32
        Natural logarithm of Σ e^score; -inf where there is no key.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as above. Lengths and pages on a GPU are not looked at, which would
        make Python wait for it: there a length above S counts as S, and a page must exist.
    """
    _check(q, k_cache, v_cache, lengths, block_table, parts)
    if parts is None:
        processors = 1  # the interpreter
        if q.is_cuda:
            processors = torch.cuda.get_device_properties(q.device).multi_processor_count
        groups, S = q.shape[0] * k_cache.shape[1], _places(k_cache, block_table)
        parts = choose_parts(processors, groups, S)
    with torch.cuda.device_of(q):
        return join(*attend_to_parts(q, k_cache, v_cache, lengths, block_table, parts), q.dtype)


def _places(k_cache, block_table):
    return k_cache.shape[2] * (1 if block_table is None else block_table.shape[1])


def _check(q, k_cache, v_cache, lengths, block_table, parts):
    (B, Hq, L, D), (texts, Hkv), S = q.shape, k_cache.shape[:2], _places(k_cache, block_table)
    group = Hq // max(Hkv, 1)
    if q.dtype not in DTYPES:
        where = " in Triton's interpreter" if INTERPRETED else ""
        raise TypeError(f"q must be one of {', '.join(map(str, DTYPES))}{where}, got {q.dtype}")
    for name, x in {"k_cache": k_cache, "v_cache": v_cache}.items():
        if (x.dtype, x.device) != (q.dtype, q.device):
            raise TypeError(
                f"{name} must be {q.dtype} on {q.device} as q is, got {x.dtype} on {x.device}"
            )
    for wrong, message in [
        (not INTERPRETED and not q.is_cuda, f"q must be on a CUDA device, got {q.device}"),
        (q.numel() * Hkv * S == 0, f"nothing may be empty, got q {(*q.shape,)} and {Hkv=}, {S=}"),
        (D not in BLOCK_K, f"the width D of a head must be one of {[*BLOCK_K]}, got {D}"),
        (group * Hkv != Hq, f"heads of k_cache must divide those of q = {Hq}, got {Hkv}"),
        (group * L > MAX_ROWS, f"Hq / Hkv · L must be {MAX_ROWS} or less, got {group} · {L}"),
        (block_table is None and texts != B, f"k_cache must hold {B} texts as q, got {texts}"),
        ((parts or 1) > MAX_PARTS, f"parts must be {MAX_PARTS} or less, got {parts}"),
        (k_cache.stride(3) != 1, f"k_cache must have stride 1 along D, got {k_cache.stride()}"),
        (v_cache.stride(3) != 1, f"v_cache must have stride 1 along D, got {v_cache.stride()}"),
    ]:
        if wrong:
            raise ValueError(message)
    for name, x, most in [("lengths", lengths, S), ("block_table", block_table, texts - 1)]:
        if x is None:
            continue
        if not isinstance(x, torch.Tensor) or x.device != q.device:
            raise TypeError(f"{name} must be a torch.Tensor on {q.device} as q is, got {x!r:.60}")
        if not x.is_cuda and not 0 <= x.min() <= x.max() <= most:
            raise ValueError(f"{name} must be from 0 to {most}, got {x.tolist()}")
