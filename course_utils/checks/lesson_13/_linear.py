"""Shared by lesson 13's checks: random inputs, and a look at how an answer goes over the tokens."""

import torch.nn.functional as F

from course_utils.checks.exercise import NamedMistake, call_with_clones
from course_utils.checks.inputs import Shapes

WHOLE = (
    "makes the whole matrix",
    "Right, but you create a tensor of L × L numbers, whose size grows with L². Carry a state "
    "along instead.",
)


def head_inputs(normal, *batch, L, d_k, d_v, dtype, low=0.3):
    """Return q, k, v, and two gates (..., L): one from ``low`` to 1, one from 0 to 1.

    Keys have norm 1, so that the delta rule stays bounded.
    """
    q = normal(*batch, L, d_k)
    k = F.normalize(normal(*batch, L, d_k), dim=-1)
    v = normal(*batch, L, d_v)
    decay = low + (1 - low) * normal(*batch, L).sigmoid()
    beta = normal(*batch, L).sigmoid()
    return [each.to(dtype) for each in (q, k, v, decay, beta)]


def makes_square(shapes, size):
    """Tell whether a tensor was made with two dimensions of exactly this size."""
    return any(shape.count(size) >= 2 for shape in map(tuple, shapes.results + shapes.in_sdpa))


def without_the_matrix(answer, q, *rest):
    """Call an answer. If its result is right, check that it makes no L × L tensor."""
    with Shapes() as shapes:
        results = call_with_clones(answer, q, *rest)
    L = q.shape[-2]
    if L > 2 * max(*q.shape[:-2], q.shape[-1], rest[1].shape[-1]) and makes_square(shapes, L):
        raise NamedMistake(*WHOLE, results)
    return results


def without_strong_decays(decay):
    """Return the decays, detached if one is below a millionth.

    Gradients are not compared there: those of sums of logarithms lose all digits to cancellation.
    """
    return decay.detach() if decay.min() < 1e-6 else decay
