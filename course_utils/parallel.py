"""Attention sharded over processes: by heads, by all-to-all, and in a ring (torch.distributed).

There are W ranks, and the other letters are those of the lessons. All ranks must call a function
together. `attention_by_heads` takes all N tokens on every rank. The other two functions take the n
tokens of this rank's shard. All three compute exact attention, and gradients pass through them.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.autograd.function import Function, once_differentiable
from torch.distributed import _functional_collectives as collectives

from course_utils.attention import attention, merge, merge_heads, split_heads
from course_utils.tiled import tiled_attention, tiled_backward, tiled_forward

TILE = 256, 512  # queries and keys per tile, within a rank


def attention_by_heads(x, layer, mask=None):
    """Return the output of a multi-head layer, (..., N, d_model); each rank computes H / W heads.

    Shoeybi et al., "Megatron-LM", 2019, section 3.

    Parameters
    ----------
    x : torch.Tensor, (..., N, d_model)
        All tokens, replicated on every rank.
    layer : attention.MultiHeadAttention
        Replicated on every rank. A rank uses only the weights of its own heads, so only these get
        gradients there. The exception is the bias of W_o, which gets its full gradient on every
        rank.
    mask : torch.Tensor of bool, broadcastable to (..., N, N), optional
        True = may attend.

    Returns
    -------
    torch.Tensor, (..., N, d_model)
        The same on every rank.

    Raises
    ------
    ValueError
        If W does not divide H.
    """
    W, rank, H = dist.get_world_size(), dist.get_rank(), layer.num_heads
    if H % W:
        raise ValueError(f"the number of ranks must divide {H} heads, got {W} ranks")
    columns = torch.arange(layer.W_o.in_features).chunk(W)[rank]  # of this rank's heads
    x = x.view_as(x)
    if x.requires_grad:  # the heads of every rank read x, so their gradients are summed
        x.register_hook(lambda g: collectives.all_reduce(g, "sum", dist.group.WORLD).wait())
    q, k, v = (  # (..., H / W, N, d_k); parameters are the weight, and the bias if there is one
        split_heads(F.linear(x, *(p[columns] for p in linear.parameters())), H // W)
        for linear in (layer.W_q, layer.W_k, layer.W_v)
    )
    heads = merge_heads(attention(q, k, v, mask)[0])  # (..., N, d_model / W)
    out = heads @ layer.W_o.weight[:, columns].T  # (..., N, d_model), a partial sum
    dist.all_reduce(out.detach())  # in place; each term of a sum has the gradient of the sum
    return out if layer.W_o.bias is None else out + layer.W_o.bias


def _groups(q, k):
    """Return how many query heads share a KV head, or 1 if there are no heads.

    ValueError unless the number of KV heads divides that of query heads.
    """
    H, H_kv = (x.shape[-3] if x.dim() > 2 else 1 for x in (q, k))
    if H % H_kv:
        raise ValueError(f"the number of KV heads must divide {H} query heads, got {H_kv}")
    return H // H_kv


def _check_tokens(x):
    """Raise a ValueError on every rank unless all ranks hold the same number of tokens."""
    n = x.shape[-2]
    largest = torch.tensor([n, -n], device=x.device)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    most, fewest = largest[0].item(), -largest[1].item()
    if most != fewest:
        raise ValueError(f"every rank must hold the same number of tokens, got {fewest} to {most}")


def _repeat_heads(x, groups):
    """Repeat each KV head for the query heads that share it."""
    return x if groups == 1 else x.repeat_interleave(groups, dim=-3)


def _sum_heads(x, groups):
    """Sum over the query heads that share a KV head: the backward pass of `_repeat_heads`."""
    return x if groups == 1 else x.unflatten(-3, (-1, groups)).sum(dim=-3)


def _all_to_all(x, split_dim, cat_dim):
    """Send shard r of x along ``split_dim`` to rank r. Concatenate what arrives on ``cat_dim``."""
    shards = torch.stack(x.chunk(dist.get_world_size(), dim=split_dim))  # (W, ...)
    received = collectives.all_to_all_single_autograd(shards, None, None, dist.group.WORLD)
    return torch.cat(received.unbind(), dim=cat_dim)


def all_to_all_attention(q, k, v, is_causal=False):
    """Return attention (..., H, n, d) over the tokens of all ranks, by two all-to-alls.

    The first all-to-all gives each rank all tokens for some of the heads. The second one sends
    the outputs back. Jacobs et al., "DeepSpeed Ulysses", 2023.

    Parameters
    ----------
    q : torch.Tensor, (..., H, n, d)
        The queries of this rank's n tokens. The ranks hold the tokens in order.
    k, v : torch.Tensor, (..., H_kv, n, d)
        H_kv divides H. Query head h uses KV head h // (H / H_kv).
    is_causal : bool
        Whether a token may attend only to itself and to earlier tokens.

    Returns
    -------
    torch.Tensor, (..., H, n, d)
        The output for this rank's tokens.

    Raises
    ------
    ValueError
        If W does not divide H and H_kv, H_kv does not divide H, or the ranks hold different
        numbers of tokens.
    """
    W, H, H_kv = dist.get_world_size(), q.shape[-3], k.shape[-3]
    if H % W or H_kv % W:
        raise ValueError(f"{W} ranks must divide the {H} query heads and the {H_kv} KV heads")
    groups = _groups(q, k)
    _check_tokens(q)
    q, k, v = (_all_to_all(x, -3, -2) for x in (q, k, v))  # (..., H / W, N, d)
    k, v = (_repeat_heads(x, groups) for x in (k, v))
    out, _ = tiled_attention(q, k, v, is_causal=is_causal)
    return _all_to_all(out, -2, -3)


def shard_positions(N, ranks, zigzag=False):
    """Return the positions of the tokens that each rank holds.

    Parameters
    ----------
    N : int
        Number of tokens of all ranks together.
    ranks : int
        W. Without zigzag, the sequence is split into W chunks, and rank r holds chunk r.
    zigzag : bool
        Split the sequence into 2W chunks instead. Rank r holds chunks r and 2W - 1 - r.

    Returns
    -------
    list of torch.Tensor of int
        One tensor per rank, of nearly equal length.
    """
    chunks = torch.arange(N).tensor_split(2 * ranks if zigzag else ranks)
    return [torch.cat([chunks[r], chunks[-1 - r]]) if zigzag else chunks[r] for r in range(ranks)]


def _send_to_next(x):
    """Start to send x to the next rank of the ring. Return what the previous rank sends."""
    next_ranks = [*range(1, dist.get_world_size()), 0]
    return collectives.permute_tensor(x.flatten(), next_ranks, dist.group.WORLD)


def _ring_steps(kv, lengths, is_causal, zigzag):
    """Yield each rank's keys and values, starting with the local shard, while the next ones travel.

    Also yield the slice of local queries (rows) that attend to some of these keys, the slice of
    these keys (columns), and the offset of the causal mask between them, which is 0 for the local
    shard and otherwise None.
    """
    rank, W = dist.get_rank(), dist.get_world_size()
    first = [(n + 1) // 2 if zigzag else n for n in lengths]  # length of each rank's first chunk
    for step in range(W):
        source = (rank - step) % W  # the rank whose keys are here now
        arriving = _send_to_next(kv) if step < W - 1 else None
        rows = slice(first[rank] if is_causal and source > rank else 0, None)
        columns = slice(first[source] if is_causal and source < rank else lengths[source])
        yield kv, rows, columns, 0 if is_causal and source == rank else None
        kv = arriving.wait().view_as(kv) if step < W - 1 else None


class _Ring(Function):
    """FlashAttention's loop over blocks of keys, forward and backward. A block is a rank's shard.

    Keys and values are sent in their own dtype. All sums are computed in at least float32. So are
    the gradients of keys and values while they travel, because every rank adds to them.
    """

    @staticmethod
    def forward(ctx, q, k, v, lengths, *kind):
        wide = torch.promote_types(q.dtype, torch.float32)
        q_wide, groups = q.to(wide), _groups(q, k)
        # Pad to the longest shard, so that all ranks send the same shape.
        kv = F.pad(torch.stack([k, v]), (0, 0, 0, max(lengths) - k.shape[-2]))
        out, lse = torch.zeros_like(q_wide), q_wide.new_full(q.shape[:-1], -torch.inf)
        for kv_now, rows, columns, offset in _ring_steps(kv, lengths, *kind):
            keys_values = _repeat_heads(kv_now[..., columns, :], groups).to(wide)
            block = q_wide[..., rows, :], *keys_values, None, offset, *TILE
            so_far = out[..., rows, :], lse[..., rows]
            out[..., rows, :], lse[..., rows] = merge(*so_far, *tiled_forward(*block))
        ctx.save_for_backward(q, kv, out, lse)
        ctx.groups, ctx.plan = groups, (lengths, *kind)
        return out.to(v.dtype), lse

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out, d_lse):
        q, kv, out, lse = ctx.saved_tensors
        wide, groups = out.dtype, ctx.groups
        q_wide, d_out = q.to(wide), d_out.to(wide)
        delta = (d_out * out).sum(dim=-1) - d_lse  # (..., n)
        dq, dkv = torch.zeros_like(q_wide), torch.zeros_like(kv, dtype=wide)
        for kv_now, rows, columns, offset in _ring_steps(kv, *ctx.plan):
            keys_values = _repeat_heads(kv_now[..., columns, :], groups).to(wide)
            saved = d_out[..., rows, :], lse[..., rows], delta[..., rows]
            block = q_wide[..., rows, :], *keys_values, *saved, None, offset, *TILE
            dq_block, *dkv_block = tiled_backward(*block)
            dq[..., rows, :] += dq_block
            dkv[..., columns, :] += _sum_heads(torch.stack(dkv_block), groups)
            dkv = _send_to_next(dkv).wait().view_as(dkv)  # goes all the way around with its keys
        return dq.to(q.dtype), *dkv[..., : q.shape[-2], :].to(kv.dtype), None, None, None


def ring_attention(q, k, v, *, is_causal=False, zigzag=False, lengths=None):
    """Return attention (..., n, d) over the tokens of all ranks, and its logsumexp (..., n).

    Keys and values travel around a ring: Liu, Zaharia and Abbeel, "Ring attention with blockwise
    transformers for near-infinite context", 2023. Blocks of future keys are skipped. The logsumexp
    and all sums are computed in at least float32. The output has the dtype of v.

    Parameters
    ----------
    q : torch.Tensor, (..., n, d)
        The queries of this rank's tokens. Their positions are those that `shard_positions` gives
        with the same zigzag.
    k, v : torch.Tensor, (..., n, d)
        The number of KV heads H_kv may be smaller than the number of query heads H, and must
        divide it. Query head h uses KV head h // (H / H_kv).
    is_causal : bool
        Whether a token may attend only to itself and to earlier tokens.
    zigzag : bool
        How tokens are sharded, as in `shard_positions`.
    lengths : list of int, (W,), optional
        Number of tokens on each rank. If not given, every rank holds n.

    Raises
    ------
    ValueError
        If ``lengths[rank]`` is not n, if lengths is not given although the ranks hold different
        numbers of tokens, or if H_kv does not divide H.
    """
    n = q.shape[-2]
    _groups(q, k)  # on every rank, before anything is sent
    if lengths is None:
        _check_tokens(q)
        lengths = [n] * dist.get_world_size()
    if lengths[dist.get_rank()] != n:
        raise ValueError(f"lengths must have n = {n} for rank {dist.get_rank()}, got {lengths}")
    return _Ring.apply(q, k, v, lengths, is_causal, zigzag)
