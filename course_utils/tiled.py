"""FlashAttention in plain torch, as lesson 06 builds it: attention tile by tile.

Dao, Fu, Ermon, Rudra and Ré, "FlashAttention: fast and memory-efficient exact attention with
IO-awareness", 2022 (arXiv:2205.14135). The loops are ordered as in Dao, "FlashAttention-2", 2023
(arXiv:2307.08691): the outer loop is over queries, the inner loop over keys. A test compares these
functions with the lesson.
"""

import torch

from course_utils.shapes import expects


def blocks(n, size):
    """Return slices of length ``size`` that cover range(n). The last slice may be shorter."""
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


def key_blocks(S, size, rows, offset):
    """Split S keys into blocks, and return those that a query in the slice ``rows`` may see.

    Blocks are slices of length ``size``, and ``offset`` is as in `tile_scores`.
    """
    last = S if offset is None else min(rows.stop + offset, S)
    return blocks(last, size)  # blocks past the diagonal are never read


def tile_scores(q, k, mask, offset, rows, columns):
    """Return the scores of one tile, with -inf where the mask or the offset forbids attention.

    Parameters
    ----------
    q : torch.Tensor, (..., B_q, d_k)
        The tile's queries, already multiplied by the scale.
    k : torch.Tensor, (..., B_k, d_k)
        The tile's keys.
    mask : torch.Tensor of bool, (..., L, S), or None
        The whole mask, True = may attend.
    offset : int or None
        Query i may see keys up to i + offset. With None, it may see all.
    rows, columns : slice
        The tile's range of queries and of keys.

    Returns
    -------
    torch.Tensor, (..., B_q, B_k)
    """
    scores = q @ k.mT  # (..., B_q, B_k)
    if mask is not None:
        scores = scores.masked_fill(~mask[..., rows, columns], -torch.inf)
    if offset is not None and columns.stop - 1 > rows.start + offset:  # on the diagonal
        i = torch.arange(rows.start, rows.stop, device=q.device)[:, None]  # (B_q, 1)
        j = torch.arange(columns.start, columns.stop, device=q.device)  # (B_k,)
        scores = scores.masked_fill(j > i + offset, -torch.inf)
    return scores


def tile_update(m, ell, out, scores, v):
    """Update the state (m, ℓ, O) of a block of queries with one tile.

    FlashAttention-2, algorithm 1, lines 9 and 10. O is divided by ℓ only at the end.

    Parameters
    ----------
    m : torch.Tensor, (..., B_q)
        The largest score so far, -inf before the first tile.
    ell : torch.Tensor, (..., B_q)
        Σ e^(score - m) so far, 0 before the first tile.
    out : torch.Tensor, (..., B_q, d_v)
        Σ e^(score - m) v so far, zeros before the first tile.
    scores : torch.Tensor, (..., B_q, B_k)
    v : torch.Tensor, (..., B_k, d_v)

    Returns
    -------
    m, ell, out : torch.Tensor
        The state after the tile, in new tensors.
    """
    m_new = torch.maximum(m, scores.amax(dim=-1))  # (..., B_q)
    base = m_new.masked_fill(m_new == -torch.inf, 0)  # no allowed key so far: subtract 0
    p = (scores - base[..., None]).exp()  # (..., B_q, B_k)
    shrink = (m - base).exp()  # (..., B_q), rescales the old sums to the new maximum
    return m_new, ell * shrink + p.sum(dim=-1), out * shrink[..., None] + p @ v


def tiled_forward(q, k, v, mask, offset, block_q, block_k):
    """Return output (..., L, d_v) and log-sum-exp (..., L), one tile at a time.

    ``mask`` and ``offset`` are as in `tile_scores`, and the other parameters as in
    `tiled_attention`.
    """
    L, S, scale = q.shape[-2], k.shape[-2], q.shape[-1] ** -0.5
    out, lse = v.new_zeros(*q.shape[:-1], v.shape[-1]), q.new_zeros(q.shape[:-1])
    for rows in blocks(L, block_q):
        q_i = q[..., rows, :] * scale  # (..., B_q, d_k)
        ell, acc = torch.zeros_like(lse[..., rows]), torch.zeros_like(out[..., rows, :])
        m = torch.full_like(ell, -torch.inf)  # (..., B_q)
        for columns in key_blocks(S, block_k, rows, offset):
            k_j, v_j = k[..., columns, :], v[..., columns, :]  # (..., B_k, d)
            scores = tile_scores(q_i, k_j, mask, offset, rows, columns)  # (..., B_q, B_k)
            m, ell, acc = tile_update(m, ell, acc, scores, v_j)
        out[..., rows, :] = acc / ell.masked_fill(ell == 0, 1)[..., None]  # no allowed key: 0 / 1
        lse[..., rows] = m + ell.log()
    return out, lse


def tile_backward(q, k, v, d_out, p, delta):
    """Return the contributions of one tile to the gradients of q, k and v.

    FlashAttention-2, algorithm 2, lines 12 to 16.

    Parameters
    ----------
    q : torch.Tensor, (..., B_q, d_k)
        Already multiplied by the scale. dq is the gradient with respect to this scaled q.
    k : torch.Tensor, (..., B_k, d_k)
    v : torch.Tensor, (..., B_k, d_v)
    d_out : torch.Tensor, (..., B_q, d_v)
        The gradient with respect to the output.
    p : torch.Tensor, (..., B_q, B_k)
        The attention weights of the tile.
    delta : torch.Tensor, (..., B_q)
        For each query, Σ p · dp over *all* keys, not only those of this tile. Here dp is the
        gradient with respect to p. `attention.softmax_vjp` subtracts the same sum.

    Returns
    -------
    dq, dk, dv : torch.Tensor
    """
    d_p = d_out @ v.mT  # (..., B_q, B_k)
    d_scores = p * (d_p - delta[..., None])  # (..., B_q, B_k), lesson 03's Jacobian
    return d_scores @ k, d_scores.mT @ q, p.mT @ d_out


class TiledAttention(torch.autograd.Function):
    """`tiled_forward`, with a backward pass that recomputes each tile instead of storing it."""

    @staticmethod
    def forward(ctx, q, k, v, *options):
        """Return output and log-sum-exp. ``options`` are mask, offset, block_q and block_k."""
        out, lse = tiled_forward(q, k, v, *options)
        ctx.save_for_backward(q, k, v, out, lse)  # linear in L: no scores, no weights
        ctx.options = options
        return out, lse

    @staticmethod
    def backward(ctx, d_out, d_lse):
        """Return the gradients of q, k, v, and None for each of the options."""
        q, k, v, out, lse = ctx.saved_tensors
        delta = (d_out * out).sum(dim=-1) - d_lse  # (..., L); the gradient of lse is p
        lse = lse.masked_fill(lse == -torch.inf, 0)  # no key allowed: e^(-inf - 0) is 0
        return *tiled_backward(q, k, v, d_out, lse, delta, *ctx.options), None, None, None, None


def tiled_backward(q, k, v, d_out, lse, delta, mask, offset, block_q, block_k):
    """Return the gradients of q, k and v, one tile at a time.

    ``d_out`` is the gradient with respect to the output. ``lse`` comes from `tiled_forward`, and
    ``delta`` is as in `tile_backward`. The other parameters are those of `tiled_forward`.
    """
    L, S, scale = q.shape[-2], k.shape[-2], q.shape[-1] ** -0.5
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for rows in blocks(L, block_q):
        q_i, d_i, lse_i = q[..., rows, :] * scale, d_out[..., rows, :], lse[..., rows, None]
        for columns in key_blocks(S, block_k, rows, offset):
            k_j, v_j = k[..., columns, :], v[..., columns, :]  # (..., B_k, d)
            scores = tile_scores(q_i, k_j, mask, offset, rows, columns)  # (..., B_q, B_k)
            p = (scores - lse_i).exp()  # the weights, without m and ℓ
            dq_i, dk_j, dv_j = tile_backward(q_i, k_j, v_j, d_i, p, delta[..., rows])
            dq[..., rows, :] += dq_i * scale
            dk[..., columns, :] += dk_j
            dv[..., columns, :] += dv_j
    return dq, dk, dv


@expects(
    q="floating *batch L d_k",
    k="floating *batch S d_k",
    v="floating *batch S d_v",
    mask="bool ... L S",
    align="corner if is_causal",
    block_q="int from 1",
    block_k="int from 1",
)
def tiled_attention(q, k, v, mask=None, *, is_causal=False, align=None, block_q=256, block_k=512):
    """Return attention, holding only one block_q × block_k tile of scores at a time.

    The output equals that of `attention.attention` up to rounding. The function is differentiable,
    and memory is linear in L and S, even for the backward pass.

    Parameters
    ----------
    q : torch.Tensor, (..., L, d_k), floating point, like k and v
    k : torch.Tensor, (..., S, d_k)
    v : torch.Tensor, (..., S, d_v)
    mask : torch.Tensor of bool, broadcastable to (..., L, S), optional
        True = may attend.
    is_causal : bool
        Also forbid future keys, and skip tiles that contain only future keys.
    align : {"lower_right", "upper_left"}
        How queries align with keys if is_causal. Required if L ≠ S. "lower_right" aligns the last
        query with the last key, as in decoding with a cache. "upper_left" aligns the first query
        with the first key, as `is_causal` does in PyTorch's scaled_dot_product_attention.
    block_q, block_k : int
        Number of queries and number of keys per tile.

    Returns
    -------
    output : torch.Tensor, (..., L, d_v)
        In the dtype of v. A query with no allowed key gets zeros.
    lse : torch.Tensor, (..., L)
        The log-sum-exp of each query's scaled scores, or -inf if it has no allowed key. All sums
        are computed in float32, or in float64 if q is float64, and lse has this dtype.

    Raises
    ------
    TypeError, ValueError
        If an argument does not have the shape or type above, or a required align is missing.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    L, S = q.shape[-2], k.shape[-2]
    offset = None
    if is_causal:
        offset = 0 if L == S else {"lower_right": S - L, "upper_left": 0}[align]
    if mask is not None:
        mask = mask.expand(*q.shape[:-1], S)  # a view: nothing is copied
    q_wide, k_wide, v_wide = q.to(wide), k.to(wide), v.to(wide)
    out, lse = TiledAttention.apply(q_wide, k_wide, v_wide, mask, offset, block_q, block_k)
    return out.to(v.dtype), lse
