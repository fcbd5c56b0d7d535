"""5.7: H query heads share H_kv heads of keys and values, without copies."""

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
    """The output from one call, which may copy inside PyTorch."""
    weights = by_loop(q, k, k)[1]
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True), weights


def inputs():
    """Return (q, k, v). L differs from d_k and d_v, so that no query is taken for a key."""
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
    """Tell whether a tensor holds each number of x (B, H_kv, S, d) once per query head."""
    return (
        x.shape[2] > 1 < group  # with a single key, the output is a copy
        and made.numel() == group * x.numel()
        and x.shape[2] in made.shape
        and made.unique().numel() <= x.numel()
    )


REPEATED = (
    "The numbers are right, but the key heads are repeated, so H heads of keys or values are in "
    "memory. H_kv would do, because a group's queries are only more queries for one key head. "
    "Give q the shape (B, H_kv, H / H_kv · L, d_k)."
)


def run(answer, q, k, v):
    """Run an answer, and check whether it copies keys or values."""
    with Results() as results:
        found = call_with_clones(answer, q, k, v)
    group = q.shape[1] // k.shape[1]
    if any(repeats(made, x, group) for made in results.held() for x in (k, v)):
        raise NamedMistake("key heads repeated", REPEATED, found)
    return found


GROUPED = "q = q.reshape(B, -1, group * L, d_k)"  # without it, q, k and v have equally many heads
BACK = "out.reshape(B, H, L, -1), weights.reshape(B, H, L, -1)"

MISTAKES = [
    ("key heads take turns",
     "Your key heads take turns, 0 1 0 1. Let neighboring query heads share one key head, 0 0 1 "
     "1.",
     (GROUPED, "k, v = k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1)")),
    ("divided by the key heads",
     "In your result, query head h uses key head h // H_kv. A group has H / H_kv query heads. "
     "Divide h by that number.",
     (GROUPED, "k, v = (x[:, torch.arange(H) // x.shape[1]] for x in (k, v))")),
    ("output as wide as keys",
     "Your output has the width of the keys, d_k. Give it the width of the values, d_v.",
     ("out.reshape(B, H, L, -1)", "out.reshape(B, H, L, d_k)")),
    ("output filled up to d_k",
     "Your output has the width of the keys, d_k, and its other dimensions changed to fit. Return "
     "(B, H, L, d_v).",
     ("out.reshape(B, H, L, -1)", "out.reshape(B, -1, L, d_k)")),
    ("first key head for all",
     "All of your query heads use the first key head. That is right only if there is one key "
     "head. Give each group its own.",
     (GROUPED, "k, v = k[:, :1], v[:, :1]")),
    ("first head of keys for all",
     "The values are right, but all query heads use the first head of keys. Give each group its "
     "own.",
     (GROUPED, GROUPED + "\n    k = k[:, :1].expand_as(k)")),
    ("first head of values for all",
     "The weights are right, but all query heads use the first head of values. Give each group "
     "its own.",
     (GROUPED, GROUPED + "\n    v = v[:, :1].expand_as(v)")),
    ("tokens folded before heads",
     "You get this result if you transpose the queries before you reshape them, which mixes the "
     "rows of all heads. Reshape (B, H, L, d_k) directly to (B, H_kv, H / H_kv · L, d_k).",
     (GROUPED, GROUPED.replace("q.reshape", "q.transpose(1, 2).reshape"))),
    ("key heads averaged",
     "Your key heads are averaged. Let each group keep its own key head.",
     (GROUPED, "k, v = k.mean(dim=1, keepdim=True), v.mean(dim=1, keepdim=True)")),
    ("queries averaged",
     "The queries of a group are averaged. Keep all H query heads, and share only the keys and "
     "values.",
     (GROUPED, "q = q.unflatten(1, (-1, group)).mean(dim=2)"), (BACK, "out, weights")),
    ("rows put back with tokens before heads",
     "The queries of a group are right, but their results come back in another order. You get this "
     "result if you read the rows as (L, H). The rows are sorted by head, then by token. Reshape "
     "them directly to (B, H, L, ...).",
     (BACK, "*(x.reshape(B, L, H, -1).transpose(1, 2) for x in (out, weights)),")),
    ("heads folded after tokens",
     "You get this result if you transpose the queries before you reshape them, which mixes the "
     "groups. Reshape (B, H, L, d_k) directly to (B, H_kv, H / H_kv · L, d_k).",
     (GROUPED, "q = q.transpose(1, 2).reshape(B, L * group, H // group, d_k).transpose(1, 2)")),
    ("queries averaged, results repeated",
     "The queries of a group are averaged. Keep all H query heads, and share only the keys and "
     "values.",
     (GROUPED, "q = q.unflatten(1, (-1, group)).mean(dim=2)"),
     (BACK, "*(x.repeat_interleave(group, 1) for x in (out, weights)),")),
    ("rows put back by token",
     "The queries of a group are right, but their results come back in another order. The rows "
     "are sorted by head, then by token. Reshape them to (B, H_kv, H / H_kv, L, ...).",
     (BACK,
      "*(x.unflatten(2, (L, group)).transpose(2, 3).flatten(1, 2) for x in (out, weights)),")),
    ("rows collected by token",
     "You get this result if the queries of a group are sorted by token, but their results are "
     "put back by head. Use the same order both times.",
     (GROUPED, "q = q.unflatten(1, (-1, group)).transpose(2, 3).flatten(2, 3)")),
    ("values take turns",
     "The keys are assigned correctly, but the values take turns. Assign both in the same way.",
     (GROUPED, "k, v = k.repeat_interleave(group, 1), v.repeat(1, group, 1, 1)")),
    ("keys take turns",
     "The values are assigned correctly, but the keys take turns. Assign both in the same way.",
     (GROUPED, "k, v = k.repeat(1, group, 1, 1), v.repeat_interleave(group, 1)")),
    ("grouped output alone",
     "The output is right, but the weights are missing. Return both.",
     (BACK, "out.reshape(B, H, L, -1)")),
    ("groups left apart",
     "The numbers are right, but still grouped by key head. Return all H query heads in one "
     "dimension, (B, H, L, ...).",
     (BACK, "out, weights")),
    ("groups left apart, five dimensions",
     "The numbers are right, but still grouped by key head. Return all H query heads in one "
     "dimension, (B, H, L, ...).",
     (BACK, "*(x.unflatten(2, (group, L)) for x in (out, weights)),")),
    ("weights left apart",
     "The output is right, but the weights are still grouped by key head. Return them as (B, H, L,"
     " S).",
     ("weights.reshape(B, H, L, -1)", "weights")),
    ("weights left apart, five dimensions",
     "The output is right, but the weights are still grouped by key head. Return them as (B, H, L,"
     " S).",
     ("weights.reshape(B, H, L, -1)", "weights.unflatten(2, (group, L))")),
    ("grouped not scaled", NOT_SCALED, (" / d_k**0.5", "")),
    ("weights in another order of heads",
     "The output is right, but the heads of your weights are in the wrong order. Return them in "
     "the order of the query heads.",
     ("weights.reshape(B, H, L, -1)",
      "weights.unflatten(2, (group, L)).transpose(1, 2).flatten(1, 2)")),
    ("grouped weights first",
     "Output and weights are in the wrong order. Return the output first.",
     (BACK, "weights.reshape(B, H, L, -1), out.reshape(B, H, L, -1)")),
    ("grouped scaled twice", SCALED_TWICE, (" / d_k**0.5", " / d_k")),
    ("key heads not shared",
     "Right if H_kv is 1 or H. Otherwise, the head dimensions of q and k do not broadcast. "
     "Reshape q so that each key head serves H / H_kv neighboring query heads.",
     (GROUPED, "")),
    ("divided by root of the group",
     "Your scores are divided by √(d_k · H / H_kv). The keys are d_k wide, however many query "
     "heads share them. Divide by √d_k.",
     ("d_k**0.5", "(d_k * group) ** 0.5")),
    ("divided by root d_v", BY_D_V, ("d_k**0.5", "v.shape[-1]**0.5")),
    ("softmax over the queries", OVER_QUERIES,
     ("scores.softmax(dim=-1)",
      "scores.reshape(B, H, L, -1).softmax(dim=-2).reshape(scores.shape)")),
    ("softmax over the group's queries",
     "Your weights sum to 1 over all queries of a group. The weights of each query must sum to 1. "
     "Use dim=-1.",
     ("dim=-1", "dim=-2")),
]  # fmt: skip

exercise = Exercise(
    "5.7", grouped_attention, inputs, MISTAKES, names="H L d_v|H L S", run=run, differentiable=True,
    also_right=[by_loop, by_einsum, by_sdpa],
)  # fmt: skip
