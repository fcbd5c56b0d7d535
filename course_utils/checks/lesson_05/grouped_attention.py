"""5.7: H query heads share H_kv KV heads, without copies."""

import torch
import torch.nn.functional as F

from course_utils.attention import attention
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import Results, normals
from course_utils.checks.shared_hints import (
    BY_D_V,
    CAUSAL_BY_HABIT,
    NOT_SCALED,
    OVER_QUERIES,
    SCALED_TWICE,
    SCORES_FOR_WEIGHTS,
)


def grouped_attention(q, k, v):
    B, H, L, d_k = q.shape
    group = H // k.shape[1]
    q = q.reshape(B, -1, group * L, d_k)  # (B, H_kv, group·L, d_k), more rows for each KV head
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


def by_vmap(q, k, v):
    """Pair the heads of keys with groups of queries, one sequence at a time."""

    def one(q, k, v):
        groups = q.reshape(k.shape[0], -1, q.shape[-1])
        out, weights = attention(groups, k, v)
        return out.reshape(*q.shape[:2], -1), weights.reshape(*q.shape[:2], -1)

    return torch.vmap(one)(q, k, v)


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
        probe(2, 6, 3, 5, 5, 3, 2),
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
    "The numbers are right, but your code makes a tensor that holds the keys or values once for "
    "each query head. That is not needed: for a KV head, the queries of its group are only more "
    "queries. Reshape q to (B, H_kv, H / H_kv · L, d_k) instead, and the results back to (B, H, L, "
    "...)."
)


def run(answer, q, k, v):
    """Run an answer, and check whether it copies keys or values."""
    with Results() as results:
        found = call_with_clones(answer, q, k, v)
    group = q.shape[1] // k.shape[1]
    made = results.held() if q.shape[2] != k.shape[2] else []  # else queries look like keys
    if any(repeats(each, x, group) for each in made for x in (k, v)):
        raise NamedMistake("KV heads repeated", REPEATED, found)
    return found


GROUPED = "q = q.reshape(B, -1, group * L, d_k)"  # without it, q, k and v have equally many heads
BACK = "out.reshape(B, H, L, -1), weights.reshape(B, H, L, -1)"

CAUSAL = [
    ("    weights = scores",
     "    future = torch.arange(k.shape[2]) > torch.arange(L)[:, None]\n"
     "    scores = scores.unflatten(2, (group, L)).masked_fill(future, -torch.inf).flatten(2, 3)\n"
     "    weights = scores"),
    ("softmax(dim=-1)", "softmax(dim=-1).nan_to_num(0)"),
]  # fmt: skip

MISTAKES = [
    ("KV heads take turns",
     "With H = 6 and H_kv = 2, your query heads use KV heads 0 1 0 1 0 1. They must use 0 0 0 1 1 "
     "1. Reshape q to (B, H_kv, (H / H_kv) · L, d_k), so that consecutive query heads share a KV "
     "head.",
     (GROUPED, "k, v = k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1)")),
    ("divided by the KV heads",
     "You get this result, or an error, if query head h uses KV head h // H_kv. But each group has "
     "H / H_kv query heads, so h must be divided by H / H_kv. Reshape q to (B, H_kv, (H / H_kv) · "
     "L, d_k), which gives each group its own KV head.",
     (GROUPED, "k, v = (x[:, torch.arange(H) // x.shape[1]] for x in (k, v))")),
    ("output as wide as keys",
     "You get an error unless d_v = d_k, because your output is reshaped to width d_k. The output "
     "must be as wide as the values. Reshape it to (B, H, L, d_v).",
     ("out.reshape(B, H, L, -1)", "out.reshape(B, H, L, d_k)")),
    ("output filled up to d_k",
     "You get this result, or an error, if you reshape the output to width d_k, so that the "
     "number of heads changes. The output must be as wide as the values. Reshape it to (B, H, L, "
     "d_v).",
     ("out.reshape(B, H, L, -1)", "out.reshape(B, -1, L, d_k)")),
    ("first KV head for all",
     "All of your query heads use the first KV head. That is right only if H_kv = 1. Let each "
     "group use its own KV head.",
     (GROUPED, "k, v = k[:, :1], v[:, :1]")),
    ("first head of keys for all",
     "The heads of values are right, but all query heads use the first head of keys. That is "
     "right only if H_kv = 1. Let each group use its own head of keys.",
     (GROUPED, GROUPED + "\n    k = k[:, :1].expand_as(k)")),
    ("first head of values for all",
     "The weights are right, but all query heads use the first head of values. That is right only "
     "if H_kv = 1. Let each group use its own head of values.",
     (GROUPED, GROUPED + "\n    v = v[:, :1].expand_as(v)")),
    ("tokens folded before heads",
     "You get this result if you transpose q before you reshape it. Then query heads of different "
     "groups share a KV head. Reshape q directly from (B, H, L, d_k) to (B, H_kv, (H / H_kv) · L, "
     "d_k).",
     (GROUPED, GROUPED.replace("q.reshape", "q.transpose(1, 2).reshape"))),
    ("KV heads averaged",
     "You average the KV heads. That is right only if H_kv = 1. Let each group use its own KV "
     "head.",
     (GROUPED, "k, v = k.mean(dim=1, keepdim=True), v.mean(dim=1, keepdim=True)")),
    ("queries averaged",
     "You average the queries of each group. Each query head needs its own scores. Keep all H "
     "query heads, and share only the keys and values.",
     (GROUPED, "q = q.unflatten(1, (-1, group)).mean(dim=2)"), (BACK, "out, weights")),
    ("rows put back with tokens before heads",
     "The rows of your results are right, but in the wrong order. You get this result if you "
     "reshape them to (B, L, H, ...) and then swap L and H. The rows of a group are sorted by "
     "head, then by token. Reshape them directly to (B, H, L, ...).",
     (BACK, "*(x.reshape(B, L, H, -1).transpose(1, 2) for x in (out, weights)),")),
    ("heads folded after tokens",
     "You get this result if you transpose q before you reshape it. Then query heads of different "
     "groups share a KV head. Reshape q directly from (B, H, L, d_k) to (B, H_kv, (H / H_kv) · L, "
     "d_k).",
     (GROUPED, "q = q.transpose(1, 2).reshape(B, L * group, H // group, d_k).transpose(1, 2)")),
    ("queries averaged, results repeated",
     "You average the queries of each group. Each query head needs its own scores. Keep all H "
     "query heads, and share only the keys and values.",
     (GROUPED, "q = q.unflatten(1, (-1, group)).mean(dim=2)"),
     (BACK, "*(x.repeat_interleave(group, 1) for x in (out, weights)),")),
    ("rows put back by token",
     "The rows of your results are right, but in the wrong order. You get this result if you read "
     "the rows of a group as (L, H / H_kv). The rows are sorted by head, then by token. Reshape "
     "them directly to (B, H, L, ...).",
     (BACK,
      "*(x.unflatten(2, (L, group)).transpose(2, 3).flatten(1, 2) for x in (out, weights)),")),
    ("rows collected by token",
     "You get this result if you sort the queries of a group by token and then by head, but put "
     "their results back as if sorted by head and then by token. Use the second order both times: "
     "reshape q directly to (B, H_kv, (H / H_kv) · L, d_k).",
     (GROUPED, "q = q.unflatten(1, (-1, group)).transpose(2, 3).flatten(2, 3)")),
    ("values take turns",
     "You assign the keys correctly. But with H = 6 and H_kv = 2, your query heads use heads 0 1 "
     "0 1 0 1 of the values. They must use 0 0 0 1 1 1. Reshape q to (B, H_kv, (H / H_kv) · L, "
     "d_k), which is right for keys and values.",
     (GROUPED, "k, v = k.repeat_interleave(group, 1), v.repeat(1, group, 1, 1)")),
    ("keys take turns",
     "You assign the values correctly. But with H = 6 and H_kv = 2, your query heads use heads 0 "
     "1 0 1 0 1 of the keys. They must use 0 0 0 1 1 1. Reshape q to (B, H_kv, (H / H_kv) · L, "
     "d_k), which is right for keys and values.",
     (GROUPED, "k, v = k.repeat(1, group, 1, 1), v.repeat_interleave(group, 1)")),
    ("grouped output alone",
     "The output is right, but the weights are missing. Return two results: the output and the "
     "weights.",
     (BACK, "out.reshape(B, H, L, -1)")),
    ("groups left apart",
     "The numbers are right, but still grouped by KV head. Reshape the output to (B, H, L, d_v) "
     "and the weights to (B, H, L, S).",
     (BACK, "out, weights")),
    ("groups left apart, five dimensions",
     "The numbers are right, but still grouped by KV head. Reshape the output to (B, H, L, d_v) "
     "and the weights to (B, H, L, S).",
     (BACK, "*(x.unflatten(2, (group, L)) for x in (out, weights)),")),
    ("weights left apart",
     "The output is right, but the weights are still grouped by KV head. Reshape them to (B, H, L, "
     "S).",
     ("weights.reshape(B, H, L, -1)", "weights")),
    ("weights left apart, five dimensions",
     "The output is right, but the weights are still grouped by KV head. Reshape them to (B, H, L, "
     "S).",
     ("weights.reshape(B, H, L, -1)", "weights.unflatten(2, (group, L))")),
    ("grouped not scaled", NOT_SCALED, (" / d_k**0.5", "")),
    ("weights in another order of heads",
     "The output is right, but the heads of your weights are in the wrong order. Return them in "
     "the order of the query heads: first all heads of group 0, then all of group 1, and so on.",
     ("weights.reshape(B, H, L, -1)",
      "weights.unflatten(2, (group, L)).transpose(1, 2).flatten(1, 2)")),
    ("grouped weights first",
     "Output and weights are in the wrong order. Return the output first.",
     (BACK, "weights.reshape(B, H, L, -1), out.reshape(B, H, L, -1)")),
    ("grouped scaled twice", SCALED_TWICE, (" / d_k**0.5", " / d_k")),
    ("KV heads not shared",
     "Right if H_kv is 1 or H, but an error otherwise. You get the error if H query heads must "
     "broadcast with H_kv KV heads. Reshape q to (B, H_kv, (H / H_kv) · L, d_k), so that each KV "
     "head serves H / H_kv consecutive query heads.",
     (GROUPED, "")),
    ("softmax over the group",
     "Your weights sum to 1 over the query heads of a group. The weights of each query must sum to "
     "1 over the keys, so use `dim=-1`.",
     ("scores.softmax(dim=-1)", "scores.unflatten(2, (group, L)).softmax(dim=2).flatten(2, 3)")),
    ("softmax over the KV heads",
     "Your weights sum to 1 over the KV heads. The weights of each query must sum to 1 over the "
     "keys, so use `dim=-1`.",
     ("scores.softmax(dim=-1)", "scores.softmax(dim=1)")),
    ("causal by habit", CAUSAL_BY_HABIT, *CAUSAL),
    ("causal by habit, at the end", CAUSAL_BY_HABIT,
     *CAUSAL, ("(L)[:, None]", "(k.shape[2] - L, k.shape[2])[:, None]")),
    ("scores returned", SCORES_FOR_WEIGHTS,
     ("weights.reshape(B, H, L, -1)", "scores.reshape(B, H, L, -1)")),
    ("heads in another order",
     "The numbers are right, but your heads are in the wrong order. Return them in the order of "
     "the query heads: first all heads of group 0, then all of group 1, and so on.",
     (BACK,
      "*(x.unflatten(2, (group, L)).transpose(1, 2).flatten(1, 2) for x in (out, weights)),")),
    ("divided by root of the group",
     "Your scores are divided by √(d_k · H / H_kv). Each score is a sum of d_k products, however "
     "many query heads share a KV head. Divide by √d_k.",
     ("d_k**0.5", "(d_k * group) ** 0.5")),
    ("divided by root d_v", BY_D_V, ("d_k**0.5", "v.shape[-1]**0.5")),
    ("softmax over the queries", OVER_QUERIES,
     ("scores.softmax(dim=-1)",
      "scores.reshape(B, H, L, -1).softmax(dim=-2).reshape(scores.shape)")),
    ("softmax over the group's queries",
     "Your weights sum to 1 over all queries of a group. The weights of each query must sum to 1 "
     "over the keys, so use `dim=-1`.",
     ("dim=-1", "dim=-2")),
]  # fmt: skip

exercise = Exercise(
    "5.7", grouped_attention, inputs, MISTAKES, names="H L d_v|H L S", run=run, differentiable=True,
    also_right=[by_loop, by_einsum, by_sdpa, by_vmap],
)  # fmt: skip
