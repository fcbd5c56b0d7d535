"""The first part of `gpu.py`: the kernels against float64, at many sizes, widths and strides."""

import itertools

import torch

from course_utils.attention import attention
from course_utils.decoding import decode_attention
from course_utils.kernels import flash_attention
from timing import Case, attempt, draw, errors, exact, results

LENGTHS, WIDTHS = [200, 4096, 16384], [16, 32, 64, 128, 256]


def in_one_piece(x):
    return x


def heads_after_tokens(x):
    """Return the same numbers, stored as (B, N, H, D)."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def rows_of_odd_length(x):
    """Return the same numbers, in rows that are one number longer, so no address is aligned."""
    longer = x.new_zeros(*x.shape[:-1], x.shape[-1] + 1)
    longer[..., 1:] = x
    return longer[..., 1:]


def cases():
    """Return configurations and layouts, each with two query heads, and one or two KV heads."""
    each = itertools.product(["bfloat16", "float16"], WIDTHS, [False, True], LENGTHS)
    sizes = [(Case(*given, 1, 2), 1 + given[1] // 16 % 2, in_one_piece) for given in each]
    small = Case("bfloat16", 64, True, 200, 2, 2)
    return sizes + [(small, 1, layout) for layout in (heads_after_tokens, rows_of_odd_length)]


def flash_errors(case, kv_heads, layout, device):
    """Return the largest errors of the output and gradients of `flash_attention`."""
    inputs, d_out = draw(case, device)
    leaves = [x.detach()[:, :heads].requires_grad_()
              for x, heads in zip(inputs, [case.H, kv_heads, kv_heads], strict=True)]  # fmt: skip
    doubles = [x.detach().double().requires_grad_() for x in leaves]

    def run(q, k, v):
        return flash_attention(*map(layout, (q, k, v)), is_causal=case.is_causal)[0]

    right = results(lambda *given: exact(*given, case.is_causal), doubles, d_out)
    return errors(results(run, leaves, d_out), right)


def decoding_cases():
    """Return (dtype, width, new tokens, slots of a cache, whether it is in pages)."""
    return itertools.product(["bfloat16", "float16"], [64, 128], [1, 4], [256, 8192], [False, True])


def decoding_errors(dtype, D, L, S, paged, device):
    """Return the largest error of `decode_attention` with caches of several lengths."""
    B, groups, kv_heads, page_size = 3, 4, 2, 16
    rng = torch.Generator(device).manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=rng, device=device, dtype=getattr(torch, dtype))

    q, k, v = normal(B, groups * kv_heads, L, D), *normal(2, B, kv_heads, S, D)
    lengths = torch.tensor([L, S // 3, S], device=device)
    last = lengths[:, None] - L + torch.arange(L, device=device)  # key that each query sees
    mask = torch.arange(S, device=device) <= last[..., None]  # (B, L, S)
    wide = [x.double().repeat_interleave(groups, dim=1) for x in (k, v)]
    right = attention(q.double(), *wide, mask[:, None])[0]
    table = None
    if paged:  # pages in random order
        pages = torch.randperm(B * S // page_size, generator=rng, device=device)
        table = pages.argsort().reshape(B, -1)
        k, v = (x.reshape(B, kv_heads, -1, page_size, D).transpose(1, 2).flatten(0, 1)[pages]
                for x in (k, v))  # fmt: skip
    out, _ = decode_attention(q, k, v, lengths=lengths, block_table=table)
    return errors({"output": out}, {"output": right})


def entries(device):
    """Yield an entry for each configuration."""
    for case, kv_heads, layout in cases():
        entry = {"kernel": "flash_attention", **case._asdict(), "KV heads": kv_heads}
        entry["layout"] = layout.__name__.replace("_", " ")
        attempt(entry, "errors", flash_errors, case, kv_heads, layout, device)
        yield entry
    for given in decoding_cases():
        names = ["dtype", "D", "L", "S", "paged"]
        entry = {"kernel": "decode_attention", **dict(zip(names, given, strict=True))}
        attempt(entry, "errors", decoding_errors, *given, device)
        yield entry
