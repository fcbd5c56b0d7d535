"""The table of `gpu.py`: the course's attention beside PyTorch's, forward and backward."""

import functools
import itertools

import torch
import torch.nn.functional as F
from torch._functorch import config as functorch_config
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from course_utils import attention as course
from course_utils.kernels import flash_attention, why_not
from timing import (
    Case,
    attempt,
    case,
    draw,
    errors,
    exact,
    milliseconds,
    results,
    warm_up,
)

BACKENDS = {
    "SDPA math": SDPBackend.MATH,
    "SDPA flash": SDPBackend.FLASH_ATTENTION,
    "SDPA efficient": SDPBackend.EFFICIENT_ATTENTION,
    "SDPA cuDNN": SDPBackend.CUDNN_ATTENTION,
}


def cases():
    """Return all configurations; the last ones have more heads than a GPU has multiprocessors."""
    lengths = [("bfloat16", 2048), ("bfloat16", 4096), ("bfloat16", 16384)]
    return [
        case(N, D, is_causal, dtype)
        for D, is_causal, (dtype, N) in itertools.product(
            [64, 128], [False, True], [*lengths, ("float16", 4096)]
        )
    ] + [Case("bfloat16", 128, is_causal, 8192, 1, 128) for is_causal in (False, True)]


def flops(case):
    """Return the floating-point operations of a forward and a backward pass, as papers count them.

    They are 4·B·H·N²·D forward, half of that when causal, and 2.5 times as many backward.
    """
    forward = 4 * case.B * case.H * case.N**2 * case.D * (0.5 if case.is_causal else 1)
    return {"forward": forward, "backward": 2.5 * forward}


def sdpa(backend, is_causal):
    """Return scaled_dot_product_attention through one backend."""

    def run(q, k, v):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    return run


def triton(is_causal):
    """Return the course's kernels, which must not hand over to tiled attention in silence."""

    def run(q, k, v):
        if reason := why_not(q.device):
            raise RuntimeError(reason)
        return flash_attention(q, k, v, is_causal=is_causal)[0]

    return run


@functools.cache  # it is made once for a length, and not timed
def causal_blocks(N, device):
    return create_block_mask(lambda b, h, i, j: i >= j, None, None, N, N, device)


def flex(is_causal):
    """Return FlexAttention, compiled, with a block mask if it is causal."""
    torch.compiler.reset()  # PyTorch compiles a function for eight shapes, and not for a ninth
    functorch_config.donated_buffer = False  # or a backward pass could not be repeated
    compiled = torch.compile(flex_attention, dynamic=False)

    def run(q, k, v):
        mask = causal_blocks(q.shape[-2], q.device) if is_causal else None
        return compiled(q, k, v, block_mask=mask)

    return run


def contenders(is_causal):
    """Return functions from q, k and v to the output, by name."""

    def naive(q, k, v):
        mask = course.causal_mask(q.shape[-2]).to(q.device) if is_causal else None
        return course.attention(q, k, v, mask)[0]

    return {
        "naive": naive,
        "tiled": lambda q, k, v: course.tiled_attention(q, k, v, is_causal=is_causal)[0],
        "Triton": triton(is_causal),
        "FlexAttention": flex(is_causal),
    } | {name: sdpa(backend, is_causal) for name, backend in BACKENDS.items()}


def entries(device):
    """Yield an entry for each contender in each configuration."""
    for each in cases():
        yield from compare(each, contenders(each.is_causal), device)


def compare(case, contenders, device, backward=True):
    """Yield an entry for each contender: errors at a small size and at full size, and times.

    What is wrong at the small size, or fails there, is not timed.
    """
    small = case._replace(N=min(case.N, 1024), B=1, H=2)
    few, few_d_out = draw(small, device)
    doubles = [x.detach().double().requires_grad_() for x in few]
    right = results(lambda *given: exact(*given, case.is_causal), doubles, few_d_out)
    inputs, d_out = draw(case, device)
    ends = [x.detach()[-1:, -1:] for x in inputs]  # the last head of the last sequence
    whole = exact(*ends, case.is_causal)
    warm_up(device)
    for name, run in contenders.items():
        entry = {"contender": name, **case._asdict(), "flops": flops(case)}

        def check(run=run):
            if backward:
                return errors(results(run, few, few_d_out), right)
            with torch.no_grad():
                return errors({"output": run(*few)}, {"output": right["output"]})

        @torch.no_grad()
        def at_full_size(run=run):
            return errors({"output": run(*inputs)[-1:, -1:]}, {"output": whole})

        @torch.no_grad()
        def forward(run=run):
            return milliseconds(lambda: run(*inputs), device)

        def gradients(run=run):
            out = run(*inputs)
            work = lambda: torch.autograd.grad(out, inputs, d_out, retain_graph=True)  # noqa: E731
            return milliseconds(work, device)

        if attempt(entry, "errors", check) and attempt(entry, "full size", at_full_size):
            attempt(entry, "forward", forward)
            if backward:
                attempt(entry, "backward", gradients)
        yield entry
