"""Attention sharded over processes: by heads, by all-to-all, and in a ring (torch.distributed).

Letters as in the lessons; W is the number of ranks, n the number of tokens on a rank, N of all.
Every rank calls a function at the same time with its own shard. All are exact and differentiable.
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

    Shoeybi et al., "Megatron-LM", 2019, section 3. ValueError unless W divides H.

    Parameters
    ----------
    x : torch.Tensor, (..., N, d_model)
        All tokens, replicated on every rank; so is the output.
    layer : attention.MultiHeadAttention
        Replicated on every rank. A rank uses only the weights of its own heads, and only these get
        gradients, except the bias of W_o, whose full gradient every rank gets.
    mask : torch.Tensor of bool, broadcastable to (..., N, N), optional
    """
    W, rank, H = dist.get_world_size(), dist.get_rank(), layer.num_heads
    if H % W:
        raise ValueError(f"the number of ranks must divide {H} heads, got {W} ranks")
    columns = torch.arange(layer.W_o.in_features).chunk(W)[rank]  # of this rank's heads
    x = x.view_as(x)
    if x.requires_grad:  # every rank's heads read x: sum their gradients
        x.register_hook(lambda g: collectives.all_reduce(g, "sum", dist.group.WORLD).wait())
    q, k, v = (  # (..., H / W, N, d_k); parameters are the weight, and the bias if there is one
        split_heads(F.linear(x, *(p[columns] for p in linear.parameters())), H // W)
        for linear in (layer.W_q, layer.W_k, layer.W_v)
    )
    heads = merge_heads(attention(q, k, v, mask)[0])  # (..., N, d_model / W)
    out = heads @ layer.W_o.weight[:, columns].T  # (..., N, d_model), a partial sum
    dist.all_reduce(out.detach())  # in place; the gradient of a sum is that of each term
    return out if layer.W_o.bias is None else out + layer.W_o.bias


def _all_to_all(x, split_dim, cat_dim):
    """Send shard r of x along ``split_dim`` to rank r; concatenate what arrives on ``cat_dim``."""
    shards = torch.stack(x.chunk(dist.get_world_size(), dim=split_dim))  # (W, ...)
    received = collectives.all_to_all_single_autograd(shards, None, None, dist.group.WORLD)
    return torch.cat(received.unbind(), dim=cat_dim)


def all_to_all_attention(q, k, v, is_causal=False):
    """Return attention (..., H, n, d) over all tokens: shard by heads instead of tokens, and back.

    Jacobs et al., "DeepSpeed Ulysses", 2023. q, k and v, (..., H, n, d) each, hold this rank's n
    tokens, in order and the same number on every rank; W divides H.
    """
    q, k, v = (_all_to_all(x, -3, -2) for x in (q, k, v))  # (..., H / W, N, d)
    out, _ = tiled_attention(q, k, v, is_causal=is_causal)
    return _all_to_all(out, -2, -3)


def shard_positions(N, ranks, zigzag=False):
    """Return the positions of the tokens on each rank: W tensors of int, as equal as possible.

    Rank r holds chunk r of W or, with zigzag, chunks r and 2W - 1 - r of 2W.
    """
    chunks = torch.arange(N).tensor_split(2 * ranks if zigzag else ranks)
    return [torch.cat([chunks[r], chunks[-1 - r]]) if zigzag else chunks[r] for r in range(ranks)]


def _send_to_next(x):
    """Start sending x to the next rank of the ring; return what the previous rank sends."""
    next_ranks = [*range(1, dist.get_world_size()), 0]
    return collectives.permute_tensor(x.flatten(), next_ranks, dist.group.WORLD)


def _ring_steps(kv, lengths, is_causal, zigzag):
    """Yield each rank's keys and values, starting with the local shard, while the next ones travel.

    Also yield which local queries (rows) attend to which of these keys (columns), and the offset
    of a causal mask within them: 0 for the local shard, otherwise None.
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
    """FlashAttention's loops over blocks of keys, forward and backward, with a rank as a block."""

    @staticmethod
    def forward(ctx, q, k, v, lengths, *kind):
        # Pad to the longest shard, so that all ranks send the same shape.
        kv = F.pad(torch.stack([k, v]), (0, 0, 0, max(lengths) - k.shape[-2]))
        out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
        for kv_now, rows, columns, offset in _ring_steps(kv, lengths, *kind):
            block = q[..., rows, :], *kv_now[..., columns, :], None, offset, *TILE
            so_far = out[..., rows, :], lse[..., rows]
            out[..., rows, :], lse[..., rows] = merge(*so_far, *tiled_forward(*block))
        ctx.save_for_backward(q, kv, out, lse)
        ctx.plan = lengths, *kind
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out, d_lse):
        q, kv, out, lse = ctx.saved_tensors
        delta = (d_out * out).sum(dim=-1) - d_lse  # (..., n)
        dq, dkv = torch.zeros_like(q), torch.zeros_like(kv)
        for kv_now, rows, columns, offset in _ring_steps(kv, *ctx.plan):
            saved = d_out[..., rows, :], lse[..., rows], delta[..., rows]
            block = q[..., rows, :], *kv_now[..., columns, :], *saved, None, offset, *TILE
            dq_block, *dkv_block = tiled_backward(*block)
            dq[..., rows, :] += dq_block
            dkv[..., columns, :] += torch.stack(dkv_block)
            dkv = _send_to_next(dkv).wait().view_as(dkv)  # travels with its keys, all the way round
        return dq, *dkv[..., : q.shape[-2], :], None, None, None


def ring_attention(q, k, v, *, is_causal=False, zigzag=False, lengths=None):
    """Return attention (..., n, d) over the tokens of all ranks, and its logsumexp (..., n).

    Keys and values travel round a ring: Liu, Zaharia and Abbeel, "Ring attention with blockwise
    transformers for near-infinite context", 2023. Blocks of future keys are skipped.

    Parameters
    ----------
    q, k, v : torch.Tensor, (..., n, d)
        This rank's tokens, as in `shard_positions` with the same zigzag.
    is_causal, zigzag : bool
    lengths : list of int, (W,), optional
        Number of tokens on each rank; n on all if not given. ValueError if this rank's is not n.
    """
    n = q.shape[-2]
    lengths = [n] * dist.get_world_size() if lengths is None else lengths
    if lengths[dist.get_rank()] != n:
        raise ValueError(f"lengths must have n = {n} for rank {dist.get_rank()}, got {lengths}")
    return _Ring.apply(q, k, v, lengths, is_causal, zigzag)
