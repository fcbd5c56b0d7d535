"""1.8: queries, keys and values, three projections of one input."""

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
    turned = [normal(*shape).mT for shape in [(2, 3, 4), (5, 3), (5, 3), (2, 3)]]  # not contiguous
    return [*made, tuple(single), tuple(turned)]


MISTAKES = [
    ("matrix on the left", "the matrices are on the left: rows of x are tokens, so x @ W",
     ("x @ W_q", "W_q @ x"), ("x @ W_k", "W_k @ x"), ("x @ W_v", "W_v @ x")),
    ("matrices transposed",
     "these W are (d_model, d_k) and need no transpose; nn.Linear stores its the other way round",
     ("x @ W_q", "x @ W_q.T"), ("x @ W_k", "x @ W_k.T"), ("x @ W_v", "x @ W_v.T")),
    ("values from keys", "the values come from W_k: values have a matrix of their own, W_v",
     ("x @ W_v", "x @ W_k")),
    ("values projected from keys",
     "W_v meets the keys, which are projected already: all three are projections of x",
     ("x @ W_v", "k @ W_v")),
    ("keys from queries", "queries and keys come from the same matrix: keys need W_k",
     ("x @ W_k", "x @ W_q")),
    ("query and key swapped", "the order is query, key, value: q and k are swapped",
     ("return q, k, v", "return k, q, v")),
    ("value not last", "the order is query, key, value: the value is not last",
     ("return q, k, v", "return v, k, q")),
    ("key and value swapped", "the order is query, key, value: key and value are swapped",
     ("return q, k, v", "return q, v, k")),
    ("joined into one",
     "three tensors are asked, not one: d_v may differ from d_k, so they do not stack",
     ("return q, k, v", "return torch.cat([q, k, v], dim=-1)")),
    ("stacked",
     "torch.stack wants tensors of one shape, and d_v may differ from d_k: return q, k, v, a tuple",
     ("return q, k, v", "return torch.stack([q, k, v])")),
    ("values from queries", "the values come from W_q: values have a matrix of their own, W_v",
     ("x @ W_v", "x @ W_q")),
    ("only queries", "only the queries are returned; return q, k, v, all three",
     ("return q, k, v", "return q")),
]  # fmt: skip

exercise = Exercise(
    "1.8", project_qkv, inputs, MISTAKES, names="L d_k|L d_k|L d_v", differentiable=True,
    also_right=[at_once,
                lambda x, *matrices: [torch.einsum("...lm,md->...ld", x, W) for W in matrices]],
)  # fmt: skip
