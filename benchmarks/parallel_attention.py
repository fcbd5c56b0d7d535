"""Measure attention sharded over devices: time, and FLOP and bytes of the busiest rank.

Causal, except by heads. Output and gradients are first compared with one process in float64. Every
rank is a GPU (nccl) if there are enough, otherwise a process with one thread (gloo).
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
CHECKED = 256  # tokens in the comparison with float64


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
            print_once(f"{name:14} largest error {error:.1e} of the largest entry")
        for name, run in ways(tokens, device).items():
            report(name, run, device)
    finally:
        dist.destroy_process_group()


def print_once(text):
    if dist.get_rank() == 0:
        print(text, flush=True)


def draw(tokens, device):
    """Return q, k, v and a gradient at the output, (1, H, N, D) each, the same on every rank."""
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(1, H, tokens, D, generator=rng).to(device) for _ in range(4)]


def local(positions, tensors):
    """Return this rank's shard of each tensor."""
    own = positions[dist.get_rank()]
    return [x[..., own.to(x.device), :] for x in tensors]


def both_passes(way, q, k, v, d_out):
    """Return output and gradients."""
    leaves = [each.detach().requires_grad_() for each in (q, k, v)]
    out = way(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, d_out)]


def sharded_by_tokens(tokens):
    """Return (positions of each rank, function of q, k and v) of each way to shard the tokens."""
    W = dist.get_world_size()

    def ring(zigzag):
        def way(q, k, v):
            return parallel.ring_attention(q, k, v, is_causal=True, zigzag=zigzag)[0]

        return parallel.shard_positions(tokens, W, zigzag), way

    all_to_all = partial(parallel.all_to_all_attention, is_causal=True)
    return {
        "all-to-all": (parallel.shard_positions(tokens, W), all_to_all),
        "ring": ring(zigzag=False),
        "ring, zigzag": ring(zigzag=True),
    }


def errors(device):
    """Return each way's largest error against float64, over output and gradients, by name."""
    whole = draw(CHECKED, device)
    mask = causal_mask(CHECKED).to(device)
    right = both_passes(lambda *qkv: attention(*qkv, mask)[0], *(each.double() for each in whole))
    largest = {}
    for name, (held, way) in sharded_by_tokens(CHECKED).items():
        pairs = zip(both_passes(way, *local(held, whole)), local(held, right), right, strict=True)
        largest[name] = max((a - b).abs().max() / all_.abs().max() for a, b, all_ in pairs)
    x, layer, g = layer_and_input(CHECKED, device)
    heads, one = (
        through_layer(way, x, layer, g)
        for way in (parallel.attention_by_heads, lambda x, layer: layer(x, x, x)[0])
    )
    largest["heads"] = max(
        (a - b).abs().max() / b.abs().max() for a, b in zip(heads, one, strict=True)
    )
    for error in largest.values():
        dist.all_reduce(error, dist.ReduceOp.MAX)
    return {name: error.item() for name, error in largest.items()}


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
    """Return a function for each way, by name, that runs forward and backward once."""
    whole = draw(tokens, device)
    timed = {}
    for name, (held, way) in sharded_by_tokens(tokens).items():
        shards = local(held, whole)
        timed[name] = lambda way=way, shards=shards: both_passes(way, *shards)
    x_layer_g = layer_and_input(tokens, device)
    timed["heads, W_o too"] = lambda: through_layer(parallel.attention_by_heads, *x_layer_g)
    return timed


def report(name, run, device):
    """Time a way on all ranks; print the slowest rank's median, and the most FLOP and bytes."""
    with FlopCounterMode(display=False) as counter:
        sent = bytes_sent(run)  # also warms up
    times = []
    for _ in range(ROUNDS):
        synchronize(device)
        dist.barrier()
        start = time.perf_counter()
        run()
        synchronize(device)
        times.append(time.perf_counter() - start)
    most = [statistics.median(times), counter.get_total_flops(), sent]
    most = torch.tensor(most, device=device, dtype=torch.float64)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    seconds, flops, sent = most.tolist()
    print_once(
        f"{name:14} {1e3 * seconds:9.1f} ms forward and backward, {flops / 1e9:9.3f} GFLOP, "
        f"{sent:13,.0f} bytes a rank"
    )


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4096)
