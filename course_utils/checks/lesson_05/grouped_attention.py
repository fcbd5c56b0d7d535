"""5.7: H query heads share H_kv heads of keys and values, none of which stands twice."""

import torch
import torch.nn.functional as F

from course_utils.attention import attention
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import Results, normals
from course_utils.checks.shared_hints import BY_D_V, NOT_SCALED, OVER_QUERIES, SCALED_TWICE


def grouped_attention(q, k, v):
    B, H, L, d_k = q.shape
    group = H // k.shape[1]
    q = q.reshape(B, -1, group * L, d_k)  # (B, H_kv, group·L, d_k), more rows for each key head
    scores = q @ k.mT / d_k**0.5  # (B, H_kv, group·L, d_k) @ (B, H_kv, d_k, S)
    weights = scores.softmax(dim=-1)  # (B, H_kv, group·L, S)
    out = weights @ v  # (B, H_kv, group·L, d_v)
    return out.reshape(B, H, L, -1), weights.reshape(B, H, L, -1)


def by_loop(q, k, v):
    group = q.shape[1] // k.shape[1]
    pairs = [attention(q[:, h], k[:, h // group], v[:, h // group]) for h in range(q.shape[1])]
    return tuple(torch.stack(each, dim=1) for each in zip(*pairs, strict=True))


def by_einsum(q, k, v):
    q = q.unflatten(1, (k.shape[1], -1))
    weights = torch.einsum("bgrld,bgsd->bgrls", q, k).div(q.shape[-1] ** 0.5).softmax(-1)
    return torch.einsum("bgrls,bgsv->bgrlv", weights, v).flatten(1, 2), weights.flatten(1, 2)


def by_sdpa(q, k, v):
    """The output by one call, which may copy inside PyTorch."""
    weights = by_loop(q, k, k)[1]
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True), weights


def inputs():
    """Return (q, k, v); no L is as large as d_k or d_v, so that no query is taken for a key."""
    normal = normals(57)

    def probe(B, H, H_kv, L, S, d_k, d_v, dtype=torch.float64):
        shapes = (B, H, L, d_k), (B, H_kv, S, d_k), (B, H_kv, S, d_v)
        return tuple(normal(*shape, dtype=dtype) for shape in shapes)

    return [
        probe(2, 6, 2, 4, 5, 3, 2),
        probe(3, 4, 1, 5, 4, 2, 3),
        probe(1, 6, 3, 3, 7, 4, 5, dtype=torch.float32),
        probe(2, 3, 3, 4, 5, 2, 4),
        [each * 300 for each in probe(2, 4, 2, 5, 6, 3, 2)],  # e^score overflows
        probe(1, 12, 4, 1, 1, 3, 2),
        tuple(each.transpose(1, 2) for each in probe(2, 5, 3, 8, 2, 4, 6)),  # as split_heads gives
    ]


def repeats(made, x, group):
    """Tell whether a tensor has each number of x (B, H_kv, S, d) once for each query head."""
    return (
        x.shape[2] > 1 < group  # of a single key the output is a copy
        and made.numel() == group * x.numel()
        and x.shape[2] in made.shape
        and made.unique().numel() <= x.numel()
    )


REPEATED = (
    "right numbers, but the key heads are repeated, as in the lesson, so that H heads of keys or "
    "values are held where H_kv would do; for one key head the queries of its group are only more "
    "queries: give q the shape (B, H_kv, H / H_kv · L, d_k)"
)


def run(answer, q, k, v):
    """Run an answer, and see whether it copies keys or values."""
    with Results() as results:
        found = call_with_clones(answer, q, k, v)
    group = q.shape[1] // k.shape[1]
    if any(repeats(made, x, group) for made in results.held() for x in (k, v)):
        raise NamedMistake("key heads repeated", REPEATED, found)
    return found


GROUPED = "q = q.reshape(B, -1, group * L, d_k)"  # without it q, k, v have as many heads each
BACK = "out.reshape(B, H, L, -1), weights.reshape(B, H, L, -1)"
EACH_HEAD = "each key head serves H / H_kv query heads, side by side"

MISTAKES = [
    ("key heads take turns",
     "the key heads take turns, 0 1 0 1: neighbouring query heads share one, 0 0 1 1",
     (GROUPED, "k, v = k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1)")),
    ("divided by the key heads",
     "query head h uses key head h // H_kv: a group has H / H_kv heads, so divide h by that",
     (GROUPED, "k, v = (x[:, torch.arange(H) // x.shape[1]] for x in (k, v))")),
    ("output as wide as keys", "the output is given the width of the keys, d_k: it is d_v wide",
     ("out.reshape(B, H, L, -1)", "out.reshape(B, H, L, d_k)")),
    ("output filled up to d_k",
     "the output is given the width of the keys, d_k, and other dimensions had to give way: it is "
     "(B, H, L, d_v)", ("out.reshape(B, H, L, -1)", "out.reshape(B, -1, L, d_k)")),
    ("first key head for all",
     "all query heads use the first key head; that is right only if there is one",
     (GROUPED, "k, v = k[:, :1], v[:, :1]")),
    ("first head of keys for all",
     "right values, but all query heads use the first head of keys: each group has its own",
     (GROUPED, GROUPED + "\n    k = k[:, :1].expand_as(k)")),
    ("first head of values for all",
     "right weights, but all query heads use the first head of values: each group has its own",
     (GROUPED, GROUPED + "\n    v = v[:, :1].expand_as(v)")),
    ("tokens folded before heads",
     "the queries are transposed before they are folded, so that rows of all heads are mixed up: "
     "reshape (B, H, L, d_k) as it stands, (B, H_kv, H / H_kv · L, d_k)",
     (GROUPED, GROUPED.replace("q.reshape", "q.transpose(1, 2).reshape"))),
    ("key heads averaged", "the key heads are averaged; each group keeps its own",
     (GROUPED, "k, v = k.mean(dim=1, keepdim=True), v.mean(dim=1, keepdim=True)")),
    ("queries averaged",
     "the queries of a group are averaged: all H query heads stay, keys are shared",
     (GROUPED, "q = q.unflatten(1, (-1, group)).mean(dim=2)"), (BACK, "out, weights")),
    ("rows put back by token",
     "the queries of a group are right, but what they get is put back in another order: their rows "
     "stand head after head, so undo just that, (B, H_kv, H / H_kv, L, ...)",
     (BACK,
      "*(x.unflatten(2, (L, group)).transpose(2, 3).flatten(1, 2) for x in (out, weights)),")),
    ("rows collected by token",
     "the queries of a group stand token by token, but what they get is put back head by head: "
     "undo the same order",
     (GROUPED, "q = q.unflatten(1, (-1, group)).transpose(2, 3).flatten(2, 3)")),
    ("values take turns", "the keys are spread rightly, the values take turns: spread both the "
     "same way", (GROUPED, "k, v = k.repeat_interleave(group, 1), v.repeat(1, group, 1, 1)")),
    ("keys take turns", "the values are spread rightly, the keys take turns: spread both the "
     "same way", (GROUPED, "k, v = k.repeat(1, group, 1, 1), v.repeat_interleave(group, 1)")),
    ("grouped output alone", "right output, but the weights are missing: return both",
     (BACK, "out.reshape(B, H, L, -1)")),
    ("groups left apart",
     "right numbers, still sorted by key head: put the H query heads one after another again, "
     "(B, H, L, ...)", (BACK, "out, weights")),
    ("groups left apart, five dimensions",
     "right numbers, still sorted by key head: put the H query heads one after another again, "
     "(B, H, L, ...)", (BACK, "*(x.unflatten(2, (group, L)) for x in (out, weights)),")),
    ("weights left apart",
     "right output, but the weights are still sorted by key head: (B, H, L, S) is wanted",
     ("weights.reshape(B, H, L, -1)", "weights")),
    ("weights left apart, five dimensions",
     "right output, but the weights are still sorted by key head: (B, H, L, S) is wanted",
     ("weights.reshape(B, H, L, -1)", "weights.unflatten(2, (group, L))")),
    ("grouped not scaled", NOT_SCALED, (" / d_k**0.5", "")),
    ("grouped weights first", "output and weights stand in the wrong order: output first",
     (BACK, "weights.reshape(B, H, L, -1), out.reshape(B, H, L, -1)")),
    ("grouped scaled twice", SCALED_TWICE, (" / d_k**0.5", " / d_k")),
    ("key heads not shared", f"right if H_kv is 1 or H, an error otherwise: {EACH_HEAD}",
     (GROUPED, "")),
    ("divided by root of the group", "divided by √(d_k · H / H_kv): keys are as wide as before, "
     "however many share them, so √d_k", ("d_k**0.5", "(d_k * group) ** 0.5")),
    ("divided by root d_v", BY_D_V, ("d_k**0.5", "v.shape[-1]**0.5")),
    ("softmax over the queries", OVER_QUERIES,
     ("scores.softmax(dim=-1)",
      "scores.reshape(B, H, L, -1).softmax(dim=-2).reshape(scores.shape)")),
    ("softmax over the group's queries",
     "softmax runs over all queries of a group: the weights of a query must sum to 1, dim=-1",
     ("dim=-1", "dim=-2")),
]  # fmt: skip

exercise = Exercise(
    "5.7", grouped_attention, inputs, MISTAKES, names="H L d_v|H L S", run=run, differentiable=True,
    also_right=[by_loop, by_einsum, by_sdpa],
)  # fmt: skip
