"""1.8: queries, keys and values as three projections of one input."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def project_qkv(x, W_q, W_k, W_v):
    q = x @ W_q  # (..., L, d_model) @ (d_model, d_k) -> (..., L, d_k)
    k = x @ W_k  # (..., L, d_k)
    v = x @ W_v  # (..., L, d_model) @ (d_model, d_v) -> (..., L, d_v)
    return q, k, v


def at_once(x, W_q, W_k, W_v):
    widths = [W.shape[1] for W in (W_q, W_k, W_v)]
    return (x @ torch.cat([W_q, W_k, W_v], dim=1)).split(widths, dim=-1)


def inputs():
    normal = normals(8)
    sizes = [
        ((5, 6), 4, 3),
        ((2, 3, 5), 2, 4),
        ((2, 1, 2, 3), 5, 2),
        ((1, 4, 4), 4, 4),
        ((12, 10), 9, 1),
    ]
    made = [
        (normal(*shape), *(normal(shape[-1], width) for width in (d_k, d_k, d_v)))
        for shape, d_k, d_v in sizes
    ]
    single = [normal(*shape, dtype=torch.float32) for shape in [(4, 3), (3, 5), (3, 5), (3, 2)]]
    transposed = [
        normal(*shape).mT for shape in [(2, 3, 4), (5, 3), (5, 3), (2, 3)]
    ]  # not contiguous
    return [*made, tuple(single), tuple(transposed)]


MISTAKES = [
    ("matrix on the left",
     "Your code has the matrices on the left. The rows of x are tokens of width d_model, and "
     "each matrix has d_model rows. Write x @ W_q, x @ W_k and x @ W_v.",
     ("x @ W_q", "W_q @ x"), ("x @ W_k", "W_k @ x"), ("x @ W_v", "W_v @ x")),
    ("matrices transposed",
     "Your code uses the transposed matrices. nn.Linear stores its matrix with shape (out, in), "
     "but here W_q already has shape (d_model, d_k). Do not transpose the matrices.",
     ("x @ W_q", "x @ W_q.T"), ("x @ W_k", "x @ W_k.T"), ("x @ W_v", "x @ W_v.T")),
    ("values from keys",
     "Your values are x @ W_k. Use W_v for the values.",
     ("x @ W_v", "x @ W_k")),
    ("values projected from keys",
     "Your values are projections of the keys. Multiply x by W_v, because all three are "
     "projections of x.", ("x @ W_v", "k @ W_v")),
    ("keys from queries", "Your queries and keys both come from W_q. Use W_k for the keys.",
     ("x @ W_k", "x @ W_q")),
    ("query and key swapped", "Your q and k are swapped. Return q first, then k, then v.",
     ("return q, k, v", "return k, q, v")),
    ("value not last", "Your v is first. Return q first, then k, then v.",
     ("return q, k, v", "return v, k, q")),
    ("key and value swapped", "Your k and v are swapped. Return q first, then k, then v.",
     ("return q, k, v", "return q, v, k")),
    ("joined into one",
     "Your result is one tensor that holds all three. Return three tensors: q, k, v.",
     ("return q, k, v", "return torch.cat([q, k, v], dim=-1)")),
    ("stacked",
     "Your code fails where d_v differs from d_k. If you use torch.stack, it needs tensors of "
     "one shape. Return three tensors: q, k, v.",
     ("return q, k, v", "return torch.stack([q, k, v])")),
    ("values from queries",
     "Your values are x @ W_q. Use W_v for the values.",
     ("x @ W_v", "x @ W_q")),
    ("only queries", "Your result is only the queries. Return all three: q, k, v.",
     ("return q, k, v", "return q")),
    ("entry by entry",
     "Your code multiplies x and the matrices entry by entry, as x * W does. A projection is a "
     "matrix product. Write x @ W_q, x @ W_k and x @ W_v.",
     ("x @ W_q", "x * W_q"), ("x @ W_k", "x * W_k"), ("x @ W_v", "x * W_v")),
]  # fmt: skip

exercise = Exercise(
    "1.8", project_qkv, inputs, MISTAKES, names="L d_k|L d_k|L d_v", differentiable=True,
    also_right=[at_once,
                lambda x, *matrices: [torch.einsum("...lm,md->...ld", x, W) for W in matrices]],
)  # fmt: skip
