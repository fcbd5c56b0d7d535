"""Measure attention cut over devices: each way's time, the products and bytes of its busiest rank.

Causal but for the way by heads; output and gradients are first compared with one process in
float64. Every rank is a GPU (nccl) where there are enough, else a process of one thread (gloo).
Usage: make bench-ranks RANKS=W,
or torchrun --nproc-per-node W benchmarks/parallel_attention.py [TOKENS]
"""

import os
import statistics
import sys
import time
from functools import partial

import torch
import torch.distributed as dist
from torch.utils.flop_counter import FlopCounterMode

from course_utils import parallel
from course_utils.attention import MultiHeadAttention, attention, causal_mask
from course_utils.measure import bytes_sent

H, D = 8, 64
ROUNDS = 7
CHECKED = 256  # tokens of the comparison


def main(tokens):
    W, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    if H % W or tokens % (2 * W) or CHECKED % (2 * W):
        raise ValueError(f"W must divide {H}, and 2W the {tokens} tokens; got W = {W}")
    on_gpus = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", local) if on_gpus else torch.device("cpu")
    if on_gpus:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)  # the ranks share the cores
    dist.init_process_group("nccl" if on_gpus else "gloo")
    try:
        for name, error in errors(device).items():
            tell(f"{name:14} largest error {error:.1e} of the largest entry")
        for name, run in ways(tokens, device).items():
            report(name, run, device)
    finally:
        dist.destroy_process_group()


def tell(text):
    if dist.get_rank() == 0:
        print(text, flush=True)


def draw(tokens, device):
    """Return q, k, v and a gradient for the output, (1, H, N, D) each, the same on every rank."""
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(1, H, tokens, D, generator=rng).to(device) for _ in range(4)]


def rows(held, tensors):
    """Return this rank's tokens of each tensor."""
    mine = held[dist.get_rank()]
    return [each[..., mine.to(each.device), :] for each in tensors]


def both_passes(way, q, k, v, d_out):
    """Return output and gradients."""
    leaves = [each.detach().requires_grad_() for each in (q, k, v)]
    out = way(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, d_out)]


def cut_by_tokens(tokens):
    """Return the ways that cut by tokens, with the places of each: functions of q, k and v."""
    W = dist.get_world_size()

    def ring(zigzag):
        def way(q, k, v):
            return parallel.ring_attention(q, k, v, is_causal=True, zigzag=zigzag)[0]

        return parallel.shard_positions(tokens, W, zigzag), way

    exchange = partial(parallel.all_to_all_attention, is_causal=True)
    return {
        "exchange": (parallel.shard_positions(tokens, W), exchange),
        "ring": ring(zigzag=False),
        "ring, zigzag": ring(zigzag=True),
    }


def errors(device):
    """Return each way's largest error against float64, over output and gradients, by name."""
    whole = draw(CHECKED, device)
    mask = causal_mask(CHECKED).to(device)
    right = both_passes(lambda *qkv: attention(*qkv, mask)[0], *(each.double() for each in whole))
    found = {}
    for name, (held, way) in cut_by_tokens(CHECKED).items():
        pairs = zip(both_passes(way, *rows(held, whole)), rows(held, right), right, strict=True)
        found[name] = max((a - b).abs().max() / all_.abs().max() for a, b, all_ in pairs)
    x, layer, g = layer_and_input(CHECKED, device)
    heads, one = (
        through_layer(way, x, layer, g)
        for way in (parallel.attention_by_heads, lambda x, layer: layer(x, x, x)[0])
    )
    found["heads"] = max(
        (a - b).abs().max() / b.abs().max() for a, b in zip(heads, one, strict=True)
    )
    for error in found.values():
        dist.all_reduce(error, dist.ReduceOp.MAX)
    return {name: error.item() for name, error in found.items()}


def layer_and_input(tokens, device):
    torch.manual_seed(0)
    layer = MultiHeadAttention(H * D, num_heads=H)
    x, g = torch.randn(2, 1, tokens, H * D)
    return x.to(device), layer.to(device), g.to(device)


def through_layer(way, x, layer, g):
    """Return a layer's output and the gradient of x."""
    x = x.detach().requires_grad_()
    out = way(x, layer)
    return out.detach(), torch.autograd.grad(out, x, g)[0]


def ways(tokens, device):
    """Return what is timed, by name: forward and backward of each way."""
    whole = draw(tokens, device)
    timed = {}
    for name, (held, way) in cut_by_tokens(tokens).items():
        own = rows(held, whole)
        timed[name] = lambda way=way, own=own: both_passes(way, *own)
    given = layer_and_input(tokens, device)
    timed["heads, W_o too"] = lambda: through_layer(parallel.attention_by_heads, *given)
    return timed


def report(name, run, device):
    """Time a way on all ranks at once; print the slowest's median, and most products and bytes."""
    with FlopCounterMode(display=False) as counter:
        sent = bytes_sent(run)  # this warms up as well
    times = []
    for _ in range(ROUNDS):
        wait_for(device)
        dist.barrier()
        start = time.perf_counter()
        run()
        wait_for(device)
        times.append(time.perf_counter() - start)
    own = [statistics.median(times), counter.get_total_flops(), sent]
    own = torch.tensor(own, device=device, dtype=torch.float64)
    dist.all_reduce(own, dist.ReduceOp.MAX)
    seconds, flops, sent = own.tolist()
    tell(
        f"{name:14} {1e3 * seconds:9.1f} ms forward and backward, {flops / 1e9:9.3f} GFLOP, "
        f"{sent:13,.0f} bytes a rank"
    )


def wait_for(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4096)
