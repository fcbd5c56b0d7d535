"""Attention cut over processes: by heads, by an exchange, in a ring. `torch.distributed` sends.

Letters as in the lessons; W is the number of ranks, n = N / W the tokens that one of them holds.
All ranks call a function at once, each with its own part. All are exact, and differentiable.
"""

from collections import Counter

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from course_utils.attention import attention, merge, merge_heads, split_heads
from course_utils.tiled import tiled_attention, tiled_backward, tiled_forward

TILE = 256, 512  # queries and keys in a tile, within a rank
sent = Counter()  # bytes that this rank has sent, by way


def places(N, ranks, zigzag=False):
    """Return which tokens each rank holds.

    Parameters
    ----------
    N, ranks : int
        W divides N; 2W does, with zigzag.
    zigzag : bool
        Whether rank r holds pieces r and 2W - 1 - r of 2W, in place of piece r of W.

    Returns
    -------
    torch.Tensor of int, (W, N / W)

    Raises
    ------
    ValueError
        If N cannot be cut so.
    """
    pieces = 2 * ranks if zigzag else ranks
    if N % pieces:
        raise ValueError(f"N must be a multiple of {pieces}, to be cut in so many; got {N}")
    cut = torch.arange(N).reshape(pieces, -1)
    return torch.cat([cut[:ranks], cut.flip(0)[:ranks]], dim=1) if zigzag else cut


class _Copy(Function):
    """Hand the same x to the heads of every rank; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return _all_reduce(g)


class _Sum(Function):
    """Add up what the heads of all ranks write; the gradient goes to each of them."""

    @staticmethod
    def forward(ctx, x):
        return _all_reduce(x)

    @staticmethod
    def backward(ctx, g):
        return g


def _all_reduce(x):
    W = dist.get_world_size()
    sent["heads"] += 2 * (W - 1) * x.nbytes // W  # in a ring: x in W parts, twice round
    x = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(x)
    return x


def attention_by_heads(x, layer, mask=None):
    """Return what a layer of heads gives; each rank computes H / W of them.

    Shoeybi et al., "Megatron-LM", 2019, section 3.

    Parameters
    ----------
    x : torch.Tensor, (..., N, d_model)
        All tokens, the same on every rank, as is the output.
    layer : attention.MultiHeadAttention
        The same on every rank. It reads its own heads' part of it; that part alone gets gradients,
        but for the bias of W_o, of which each rank gets the whole.
    mask : torch.Tensor of bool, broadcastable to (..., N, N), optional

    Returns
    -------
    torch.Tensor, (..., N, d_model)

    Raises
    ------
    ValueError
        If W does not divide the number of heads.
    """
    W, rank, H = dist.get_world_size(), dist.get_rank(), layer.num_heads
    if H % W:
        raise ValueError(f"{H} heads cannot be dealt out to {W} ranks")
    own = torch.arange(layer.W_o.in_features).chunk(W)[rank]  # the columns of this rank's heads
    x = _Copy.apply(x)
    q, k, v = (
        F.linear(x, each.weight[own], None if each.bias is None else each.bias[own])
        for each in (layer.W_q, layer.W_k, layer.W_v)
    )
    q, k, v = (split_heads(each, H // W) for each in (q, k, v))  # (..., H / W, N, d_k)
    heads = merge_heads(attention(q, k, v, mask)[0])  # (..., N, d_model / W)
    out = _Sum.apply(heads @ layer.W_o.weight[:, own].T)
    return out if layer.W_o.bias is None else out + layer.W_o.bias


class _Exchange(Function):
    """Cut x in W parts along one dimension, one a rank; join what comes along another."""

    @staticmethod
    def forward(ctx, x, cut, join):
        ctx.back = join, cut
        W = dist.get_world_size()
        parts = torch.stack(x.chunk(W, dim=cut))  # (W, ...)
        sent["exchange"] += (W - 1) * parts.nbytes // W
        arrived = torch.empty_like(parts)
        dist.all_to_all_single(arrived, parts)
        return torch.cat(arrived.unbind(), dim=join)

    @staticmethod
    def backward(ctx, g):
        return _Exchange.apply(g, *ctx.back), None, None


def exchange_attention(q, k, v, is_causal=False):
    """Return attention over all tokens: tokens are exchanged for heads, and back.

    Jacobs et al., "DeepSpeed Ulysses", 2023.

    Parameters
    ----------
    q, k, v : torch.Tensor, (..., H, n, d)
        The tokens of this rank, the rank's n of all N; W divides H.
    is_causal : bool

    Returns
    -------
    torch.Tensor, (..., H, n, d)
    """
    q, k, v = (_Exchange.apply(each, -3, -2) for each in (q, k, v))  # (..., H / W, N, d)
    out, _ = tiled_attention(q, k, v, is_causal=is_causal)
    return _Exchange.apply(out, -2, -3)


def _pass_on(*tensors):
    """Begin to send tensors round the ring: return what will arrive, and the work to wait for."""
    rank, W = dist.get_rank(), dist.get_world_size()
    arriving, calls = [torch.empty_like(each) for each in tensors], []
    for mine, other in zip(tensors, arriving, strict=True):
        sent["ring"] += mine.nbytes
        calls.append(dist.P2POp(dist.isend, mine, (rank + 1) % W))
        calls.append(dist.P2POp(dist.irecv, other, (rank - 1) % W))
    return arriving, dist.batch_isend_irecv(calls)  # one by one, two ranks stand still on nccl


def _visits(k, v, held):
    """Yield keys, values and mask of each rank in turn, the own first, while the next travel."""
    rank, W = dist.get_rank(), dist.get_world_size()
    for step in range(W):
        mask = None if held is None else held[(rank - step) % W] <= held[rank][:, None]  # (n, n)
        arriving, work = ((k, v), []) if step == W - 1 else _pass_on(k, v)
        yield k, v, mask
        for each in work:
            each.wait()
        k, v = arriving


class _Ring(Function):
    """The loop over ranks is that of FlashAttention over blocks of keys; so is the backward."""

    @staticmethod
    def forward(ctx, q, k, v, held):
        k, v = k.contiguous(), v.contiguous()
        out, lse = torch.zeros_like(v), q.new_full(q.shape[:-1], -torch.inf)
        for k_s, v_s, mask in _visits(k, v, held):
            if mask is None or mask.any():  # else all of them lie in the future
                out, lse = merge(out, lse, *tiled_forward(q, k_s, v_s, mask, None, *TILE))
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.held = held
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out, d_lse):
        q, k, v, out, lse = ctx.saved_tensors
        delta = (d_out * out).sum(dim=-1) - d_lse  # (..., n)
        dq, dk, dv = (torch.zeros_like(each) for each in (q, k, v))
        for k_s, v_s, mask in _visits(k, v, ctx.held):
            if mask is None or mask.any():
                seen = q, k_s, v_s, d_out, lse, delta, mask, None, *TILE
                parts = tiled_backward(*seen)
                dq, dk, dv = (sum(pair) for pair in zip((dq, dk, dv), parts, strict=True))
            if dist.get_world_size() > 1:  # the gradients travel with their keys, and come home
                (dk, dv), work = _pass_on(dk, dv)
                for each in work:
                    each.wait()
        return dq, dk, dv, None


def ring_attention(q, k, v, held=None):
    """Return attention over the tokens of all ranks, whose keys and values go round in a ring.

    Liu, Zaharia and Abbeel, "Ring attention with blockwise transformers for near-infinite
    context", 2023.

    Parameters
    ----------
    q, k, v : torch.Tensor, (..., n, d)
        The tokens of this rank, of the same shape on all.
    held : torch.Tensor of int, (W, n), optional
        For causal attention: the places of each rank's tokens among all, as from `places`.

    Returns
    -------
    output : torch.Tensor, (..., n, d)
    lse : torch.Tensor, (..., n)
        The log-sum-exp of each query's scaled scores, over all tokens.
    """
    return _Ring.apply(q, k, v, held)
