"""Attention cut over processes: by heads, by an exchange, in a ring. `torch.distributed` sends.

Letters as in the lessons; W is the number of ranks, n the tokens that one of them holds of all N.
All ranks call a function at once, each with its own part. All are exact, and differentiable.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.autograd.function import Function, once_differentiable
from torch.distributed import _functional_collectives as collectives

from course_utils.attention import attention, merge, merge_heads, split_heads
from course_utils.tiled import tiled_attention, tiled_backward, tiled_forward

TILE = 256, 512  # queries and keys in a tile, within a rank


def attention_by_heads(x, layer, mask=None):
    """Return what a layer of heads gives, (..., N, d_model); each rank computes H / W of them.

    Shoeybi et al., "Megatron-LM", 2019, section 3. ValueError unless W divides H.

    Parameters
    ----------
    x : torch.Tensor, (..., N, d_model)
        All tokens, the same on every rank, as is the output.
    layer : attention.MultiHeadAttention
        The same on every rank. It reads its own heads' part of it; that part alone gets gradients,
        but for the bias of W_o, of which each rank gets the whole.
    mask : torch.Tensor of bool, broadcastable to (..., N, N), optional
    """
    W, rank, H = dist.get_world_size(), dist.get_rank(), layer.num_heads
    if H % W:
        raise ValueError(f"{H} heads cannot be dealt out to {W} ranks")
    own = torch.arange(layer.W_o.in_features).chunk(W)[rank]  # the columns of this rank's heads
    x = x.view_as(x)
    if x.requires_grad:  # the heads of all ranks read it: add up what each gives
        x.register_hook(lambda g: collectives.all_reduce(g, "sum", dist.group.WORLD).wait())
    q, k, v = (  # (..., H / W, N, d_k); weights, and bias if there is one
        split_heads(F.linear(x, *(each[own] for each in linear.parameters())), H // W)
        for linear in (layer.W_q, layer.W_k, layer.W_v)
    )
    heads = merge_heads(attention(q, k, v, mask)[0])  # (..., N, d_model / W)
    out = heads @ layer.W_o.weight[:, own].T  # (..., N, d_model), one part of a sum
    dist.all_reduce(out.detach())  # in place; the gradient of the sum is that of each part
    return out if layer.W_o.bias is None else out + layer.W_o.bias


def _exchange(x, cut, join):
    """Cut x in W parts along one dimension, one a rank; join what comes along another."""
    parts = torch.stack(x.chunk(dist.get_world_size(), dim=cut))  # (W, ...)
    arrived = collectives.all_to_all_single_autograd(parts, None, None, dist.group.WORLD)
    return torch.cat(arrived.unbind(), dim=join)


def exchange_attention(q, k, v, is_causal=False):
    """Return attention (..., H, n, d) over all tokens: they are exchanged for heads, and back.

    Jacobs et al., "DeepSpeed Ulysses", 2023. q, k and v, (..., H, n, d) each, are of the rank's n
    tokens in order, as many on every rank; W divides H.
    """
    q, k, v = (_exchange(each, -3, -2) for each in (q, k, v))  # (..., H / W, N, d)
    out, _ = tiled_attention(q, k, v, is_causal=is_causal)
    return _exchange(out, -2, -3)


def places(N, ranks, zigzag=False):
    """Return which of N tokens each rank holds, W tensors of int, as even as can be.

    Rank r holds piece r of W, or, with zigzag, piece r and then 2W - 1 - r of 2W.
    """
    pieces = torch.arange(N).tensor_split(2 * ranks if zigzag else ranks)
    return [torch.cat([pieces[r], pieces[-1 - r]]) if zigzag else pieces[r] for r in range(ranks)]


def _pass_on(x):
    """Begin to send x to the next rank of the ring; return what will come from the one before."""
    following = [*range(1, dist.get_world_size()), 0]
    return collectives.permute_tensor(x.flatten(), following, dist.group.WORLD)


def _visits(kv, lengths, is_causal, zigzag):
    """Yield keys and values of each rank in turn, the own first, while the next travel.

    And my queries (rows) that see some of these keys (columns); 0 if only up to their own, or None.
    """
    rank, W = dist.get_rank(), dist.get_world_size()
    early = [(n + 1) // 2 if zigzag else n for n in lengths]  # before all pieces of later ranks
    for step in range(W):
        who, coming = (rank - step) % W, _pass_on(kv) if step < W - 1 else None
        rows = slice(early[rank] if is_causal and who > rank else 0, None)
        columns = slice(early[who] if is_causal and who < rank else lengths[who])
        yield kv, rows, columns, 0 if is_causal and who == rank else None
        kv = coming.wait().view_as(kv) if step < W - 1 else None


class _Ring(Function):
    """The loop over ranks is that of FlashAttention over blocks of keys; so is the backward."""

    @staticmethod
    def forward(ctx, q, k, v, lengths, *kind):
        kv = F.pad(torch.stack([k, v]), (0, 0, 0, max(lengths) - k.shape[-2]))  # one length travels
        out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
        for visiting, rows, columns, offset in _visits(kv, lengths, *kind):
            seen = q[..., rows, :], *visiting[..., columns, :], None, offset, *TILE
            mine = out[..., rows, :], lse[..., rows]
            out[..., rows, :], lse[..., rows] = merge(*mine, *tiled_forward(*seen))
        ctx.save_for_backward(q, kv, out, lse)
        ctx.plan = lengths, *kind
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out, d_lse):
        q, kv, out, lse = ctx.saved_tensors
        delta = (d_out * out).sum(dim=-1) - d_lse  # (..., n)
        dq, dkv = torch.zeros_like(q), torch.zeros_like(kv)
        for visiting, rows, columns, offset in _visits(kv, *ctx.plan):
            mine = d_out[..., rows, :], lse[..., rows], delta[..., rows]
            seen = q[..., rows, :], *visiting[..., columns, :], *mine, None, offset, *TILE
            dq_part, *dkv_part = tiled_backward(*seen)
            dq[..., rows, :] += dq_part
            dkv[..., columns, :] += torch.stack(dkv_part)
            dkv = _pass_on(dkv).wait().view_as(dkv)  # gradients travel with their keys, and home
        return dq, *dkv[..., : q.shape[-2], :], None, None, None


def ring_attention(q, k, v, *, is_causal=False, zigzag=False, lengths=None):
    """Return attention (..., n, d) over the tokens of all ranks, and its log-sum-exp (..., n).

    Keys and values go round in a ring: Liu, Zaharia and Abbeel, "Ring attention with blockwise
    transformers for near-infinite context", 2023. Blocks that lie in the future are skipped.

    Parameters
    ----------
    q, k, v : torch.Tensor, (..., n, d)
        The tokens that this rank holds, as `places` says, with the same zigzag.
    is_causal, zigzag : bool
    lengths : list of int, (W,), optional
        How many tokens each rank holds, if not all hold n. ValueError if this rank's is not n.
    """
    n = q.shape[-2]
    lengths = [n] * dist.get_world_size() if lengths is None else lengths
    if lengths[dist.get_rank()] != n:
        raise ValueError(f"lengths must have n = {n} for rank {dist.get_rank()}, got {lengths}")
    return _Ring.apply(q, k, v, lengths, is_causal, zigzag)
