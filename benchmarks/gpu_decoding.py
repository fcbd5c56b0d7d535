"""The last part of `gpu.py`: how fast a new token's queries read a long cache."""

import itertools

import torch
import torch.nn.functional as F

from course_utils.decoding import decode_attention
from timing import attempt, milliseconds, warm_up

HEADS, KV_HEADS, D, DTYPE = 32, 8, 128, torch.bfloat16  # as in Llama 3 8B


def cases():
    """Return (sequences, slots of each cache): the largest is 4 GiB."""
    return itertools.product([1, 16], [1024, 8192, 65536])


def entries(device):
    """Yield an entry for each function and each size, with the bytes that it must read."""
    for B, S in cases():
        shape = (B, KV_HEADS, S, D)
        q = torch.randn(B, HEADS, 1, D, device=device, dtype=DTYPE)
        k, v = (torch.randn(shape, device=device, dtype=DTYPE) for _ in range(2))
        contenders = {
            "decode_attention": lambda q=q, k=k, v=v: decode_attention(q, k, v),
            "SDPA": lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        }
        warm_up(device)
        for name, work in contenders.items():
            entry = {"contender": name, "B": B, "S": S, "bytes": 2 * k.numel() * k.itemsize}
            attempt(entry, "milliseconds", milliseconds, work, device)
            yield entry
