"""12.5: scores with a rotated part beside the latent one."""

import torch

from course_utils.attention import rotary
from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.shared_hints import NOT_SCALED


def decoupled_scores(q, q_rope, latent, k_rope, W_k):
    L, S = q.shape[-2], latent.shape[-2]
    positions = torch.arange(S)  # of the keys; the queries are the last L tokens
    q_rope = rotary(q_rope, positions[S - L :])  # (B, H, L, d_rope)
    k_rope = rotary(k_rope, positions)  # (B, S, d_rope), one for all heads
    content = q @ W_k @ latent[:, None].mT  # (B, H, L, S)
    position = q_rope @ k_rope[:, None].mT  # (B, H, L, S)
    return (content + position) / (q.shape[-1] + q_rope.shape[-1]) ** 0.5


def by_joining(q, q_rope, latent, k_rope, W_k):
    H, L, S = W_k.shape[0], q.shape[2], latent.shape[1]
    keys = torch.einsum("bsc,hkc->bhsk", latent, W_k)
    one = rotary(k_rope, torch.arange(S))[:, None].expand(-1, H, -1, -1)
    keys = torch.cat([keys, one], dim=-1)
    queries = torch.cat([q, rotary(q_rope, torch.arange(S - L, S))], dim=-1)
    return queries @ keys.transpose(-2, -1) / queries.shape[-1] ** 0.5


def by_loops(q, q_rope, latent, k_rope, W_k):
    B, H, L, d_k = q.shape
    S = latent.shape[1]
    turned = rotary(q_rope, S - L + torch.arange(L))
    out = []
    for b in range(B):
        keys = rotary(k_rope[b], torch.arange(S))
        rows = [(q[b, h] @ W_k[h]) @ latent[b].T + turned[b, h] @ keys.T for h in range(H)]
        out.append(torch.stack(rows))
    return torch.stack(out) * (d_k + q_rope.shape[3]) ** -0.5


def inputs():
    """Return (q, q_rope, latent, k_rope, W_k); widths are even, so that anything can be rotated."""
    normal = normals(125)

    def probe(B, H, L, S, d_k, d_rope, d_c, dtype=torch.float64):
        shapes = (B, H, L, d_k), (B, H, L, d_rope), (B, S, d_c), (B, S, d_rope), (H, d_k, d_c)
        return tuple(normal(*shape, dtype=dtype) for shape in shapes)

    return [
        probe(2, 3, 4, 7, 8, 6, 10),
        probe(1, 2, 1, 9, 6, 4, 8),
        probe(3, 2, 5, 6, 8, 2, 4, dtype=torch.float32),
        probe(2, 4, 3, 3, 10, 8, 6),  # no earlier tokens
        probe(1, 3, 2, 11, 8, 6, 4),
        probe(2, 1, 4, 8, 4, 4, 4),  # where much fits that should not
    ]


QUERIES = "q_rope = rotary(q_rope, positions[S - L :])"
KEYS = "k_rope = rotary(k_rope, positions)"
CONTENT = "q @ W_k @ latent[:, None].mT"
SCALE = " / (q.shape[-1] + q_rope.shape[-1]) ** 0.5"
SUM = "(content + position)"
MISTAKES = [
    ("queries from 0",
     "Your queries are at positions 0 to L − 1. The queries are the last L of the S tokens, so "
     "rotate q_rope according to positions S − L to S − 1.",
     (QUERIES, "q_rope = rotary(q_rope, torch.arange(L))")),
    ("queries at the end",
     "All of your queries are at position S − 1. Only the last query is there. Rotate q_rope "
     "according to positions S − L to S − 1.",
     (QUERIES, "q_rope = rotary(q_rope, torch.full((L,), S - 1))")),
    ("queries at S − L",
     "All of your queries are at position S − L. Only the first query is there. Rotate q_rope "
     "according to positions S − L to S − 1.",
     (QUERIES, "q_rope = rotary(q_rope, torch.full((L,), S - L))")),
    ("queries one later",
     "Your queries are one position too late. The last query is at position S − 1, like the last "
     "key. Rotate q_rope according to positions S − L to S − 1.",
     (QUERIES, "q_rope = rotary(q_rope, positions[S - L :] + 1)")),
    ("queries one early",
     "Your queries are one position too early relative to your keys. The keys are at positions 0 "
     "to S − 1, and the queries are at positions S − L to S − 1. Use these positions.",
     (QUERIES, "q_rope = rotary(q_rope, positions[S - L :] - 1)")),
    ("keys before 0",
     "Your keys are S − L positions too early relative to your queries. Rotate k_rope according to "
     "positions 0 to S − 1, and q_rope according to positions S − L to S − 1.",
     (KEYS, "k_rope = rotary(k_rope, positions - (S - L))")),
    ("queries after the keys",
     "Your queries are at positions S to S + L − 1, after all keys. The queries are the last L of "
     "the S tokens, so rotate q_rope according to positions S − L to S − 1.",
     (QUERIES, "q_rope = rotary(q_rope, torch.arange(S, S + L))")),
    ("queries not rotated",
     "Your q_rope is not rotated. Rotate it according to positions S − L to S − 1.",
     (QUERIES, "")),
    ("keys not rotated",
     "Your k_rope is not rotated. Rotate it according to positions 0 to S − 1.",
     (KEYS, "")),
    ("nothing rotated",
     "Your q_rope and k_rope are not rotated. Rotate q_rope according to positions S − L to S − 1, "
     "and k_rope according to positions 0 to S − 1.",
     (QUERIES, ""), (KEYS, "")),
    ("keys from the end",
     "The positions of your keys run backwards. The first key is at position 0, and the last key "
     "is at position S − 1. Use torch.arange(S).",
     (KEYS, "k_rope = rotary(k_rope, positions.flip(0))")),
    ("queries backwards",
     "The positions of your queries run backwards. The last query is at position S − 1. Use the "
     "positions S − L to S − 1, in this order.",
     (QUERIES, "q_rope = rotary(q_rope, positions[S - L :].flip(0))")),
    ("queries backwards from S",
     "The positions of your queries run backwards, and they begin at S. The last query is at "
     "position S − 1. Use the positions S − L to S − 1, in this order.",
     (QUERIES, "q_rope = rotary(q_rope, S - torch.arange(L))")),
    ("another base",
     "Your rotation uses a base other than the default. Use the default base of `rotary` for "
     "queries and keys.",
     (QUERIES, QUERIES[:-1] + ", base=100_000)"), (KEYS, KEYS[:-1] + ", base=100_000)")),
    ("the base of long contexts",
     "Your rotation uses a base other than the default. Use the default base of `rotary` for "
     "queries and keys.",
     (QUERIES, QUERIES[:-1] + ", base=500_000)"),
     (KEYS, KEYS[:-1] + ", base=500_000)")),
    ("another base for keys",
     "Your keys and your queries are rotated with different bases. Use the default base of "
     "`rotary` for both.",
     (KEYS, KEYS[:-1] + ", base=100_000)")),
    ("rotated backwards",
     "Your rotation has the wrong sign, as with negative positions. Use the positions 0 to S − 1 "
     "for k_rope, and S − L to S − 1 for q_rope.",
     (QUERIES, "q_rope = rotary(q_rope, -positions[S - L :])"),
     (KEYS, "k_rope = rotary(k_rope, -positions)")),
    ("interleaved pairs",
     "Your rotation pairs neighboring entries. Use the default of `rotary`, which pairs entry i "
     "with entry i + d_rope / 2.",
     (QUERIES, QUERIES[:-1] + ", interleaved=True)"), (KEYS, KEYS[:-1] + ", interleaved=True)")),
    ("scaled by the content alone",
     "Your scores are divided by √d_k. A query has d_k + d_rope numbers, so divide by √(d_k + "
     "d_rope).",
     (SCALE, " / q.shape[-1] ** 0.5")),
    ("scaled by the rotated part",
     "Your scores are divided by √d_rope. A query has d_k + d_rope numbers, so divide by √(d_k + "
     "d_rope).",
     (SCALE, " / q_rope.shape[-1] ** 0.5")),
    ("scaled by the latent",
     "Your scores are divided by √d_c. Queries and keys have d_k + d_rope numbers, and absorbing "
     "W_k must not change the scores. Divide by √(d_k + d_rope).",
     (SCALE, " / latent.shape[-1] ** 0.5")),
    ("scaled by the latent and the rotated part",
     "Your scores are divided by √(d_c + d_rope). Queries and keys have d_k + d_rope numbers, "
     "and absorbing W_k must not change the scores. Divide by √(d_k + d_rope).",
     (SCALE, " / (latent.shape[-1] + q_rope.shape[-1]) ** 0.5")),
    ("each part by its own root",
     "You divide each of the two dot products by the square root of its own width. Together they "
     "are one dot product of width d_k + d_rope. Add them first, then divide the sum by √(d_k + "
     "d_rope).",
     (SUM, "(content / q.shape[-1] ** 0.5 + position / q_rope.shape[-1] ** 0.5)"), (SCALE, "")),
    ("latent part by its own root",
     "You divide the unrotated part by √d_c and the rotated part by √d_rope. A query has d_k + "
     "d_rope numbers. Add the two dot products first, then divide the sum by √(d_k + d_rope).",
     (SUM, "(content / latent.shape[-1] ** 0.5 + position / q_rope.shape[-1] ** 0.5)"),
     (SCALE, "")),
    ("roots added",
     "Your scores are divided by √d_k + √d_rope. A query has d_k + d_rope numbers, so divide by "
     "√(d_k + d_rope).",
     (SCALE, " / (q.shape[-1] ** 0.5 + q_rope.shape[-1] ** 0.5)")),
    ("only the content scaled, by its own root",
     "You divide the unrotated part by √d_k and leave the rotated part as it is. Both parts belong "
     "to one dot product of width d_k + d_rope. Add them first, then divide the sum by √(d_k + "
     "d_rope).",
     (SUM, "content / q.shape[-1] ** 0.5 + position"), (SCALE, "")),
    ("averaged",
     "Your scores are half as large as they should be, as if you took the mean of the unrotated "
     "and the rotated dot product. A score is the sum of the two, so do not divide by 2.",
     (SUM, "(content + position) / 2")),
    ("only the content scaled",
     "You divide only the dot product of the unrotated parts. Add the two dot products first, then "
     "divide the sum by √(d_k + d_rope).",
     (SUM, "content"), (SCALE, SCALE + " + position")),
    ("only the position scaled",
     "You divide only the dot product of the rotated parts. Add the two dot products first, then "
     "divide the sum by √(d_k + d_rope).",
     (SUM, "position"), (SCALE, SCALE + " + content")),
    ("not scaled", NOT_SCALED.replace("√d_k", "√(d_k + d_rope)"), (SCALE, "")),
    ("scaled by all three widths",
     "Your scores are divided by √(d_k + d_rope + d_c). A query has d_k + d_rope numbers, so "
     "divide by √(d_k + d_rope).",
     (SCALE, " / (q.shape[-1] + q_rope.shape[-1] + latent.shape[-1]) ** 0.5")),
    ("multiplied by the root",
     "Your scores are multiplied by √(d_k + d_rope). Divide them by this square root.",
     (SCALE, " * (q.shape[-1] + q_rope.shape[-1]) ** 0.5")),
    ("scaled by two roots",
     "Your scores are divided by √(d_k + d_rope) and by √d_k. Divide them only by √(d_k + "
     "d_rope).",
     (SCALE, SCALE + " / q.shape[-1] ** 0.5")),
    ("scaled by the number of tokens",
     "Your scores are divided by √S, the square root of the number of keys. A query has d_k + "
     "d_rope numbers, so divide by √(d_k + d_rope).",
     (SCALE, " / S ** 0.5")),
    ("not rooted",
     "Your scores are divided by d_k + d_rope. Divide them by the square root of this number.",
     (SCALE, " / (q.shape[-1] + q_rope.shape[-1])")),
    ("content alone",
     "Your scores leave out the rotated part. Add the dot products of the rotated q_rope and "
     "k_rope.",
     (SUM, "content")),
    ("position alone",
     "Your scores leave out the part that is not rotated. Add the dot products q · (W_k c).",
     (SUM, "position")),
    ("parts in different orders",
     "You get this result if you concatenate the two parts of the queries in one order and those "
     "of the keys in another. Then q_rope is multiplied by numbers of the latents. Use the same "
     "order in both.",
     (SUM, "(torch.cat([q_rope, q @ W_k], -1) @ torch.cat([latent, k_rope], -1)[:, None].mT)")),
    ("rotated queries summed over heads",
     "Your rotated part uses the sum of q_rope over all heads. Each head has its own q_rope. "
     "Keep the heads separate.",
     (SUM, "(content + position.sum(dim=1, keepdim=True))")),
    ("first rotated query for all heads",
     "Your rotated part uses the q_rope of the first head in all heads. Each head has its own "
     "q_rope. Keep the heads separate.",
     (SUM, "(content + position[:, :1])")),
    ("subtracted",
     "You subtract the dot product of the rotated parts. A score is the sum of the unrotated and "
     "the rotated dot product. Add the two.",
     (SUM, "(content - position)")),
    ("multiplied",
     "You multiply the two dot products. A score is the sum of the unrotated and the rotated dot "
     "product. Add the two.",
     (SUM, "(content * position)")),
    ("joined vectors rotated",
     "You rotate the whole concatenated queries and keys. Only q_rope and k_rope carry positions "
     "here, so that W_k can be absorbed. Rotate q_rope and k_rope alone, before you concatenate.",
     (QUERIES, "raw_q = q_rope\n    raw_k = k_rope[:, None].expand(-1, q.shape[1], -1, -1)\n    "
      + QUERIES),
     (SUM, "(rotary(torch.cat([q, raw_q], -1), positions[S - L :]) @ rotary(torch.cat([latent[:, "
      "None] @ W_k.mT, raw_k], -1), positions).mT)")),
    ("joined latents rotated",
     "You rotate the absorbed queries and the latents together with q_rope and k_rope. Then the "
     "unrotated part of a score is no longer q · (W_k c). Rotate only q_rope and k_rope, before "
     "you concatenate.",
     (QUERIES, "raw_q, raw_k = q_rope, k_rope\n    " + QUERIES),
     (SUM, "(rotary(torch.cat([q @ W_k, raw_q], -1), positions[S - L :]) @ "
      "rotary(torch.cat([latent, raw_k], -1), positions)[:, None].mT)")),
    ("latent rotated",
     "Your latents are rotated as well. Only q_rope and k_rope carry positions here, so that W_k "
     "can be absorbed. Rotate only these two.",
     (CONTENT, "q @ W_k @ rotary(even(latent), positions)[..., : latent.shape[-1]][:, None].mT")),
    ("keys rotated whole",
     "Your keys W_k c are rotated as well. Only q_rope and k_rope carry positions here, so that "
     "W_k can be absorbed. Rotate only these two.",
     (CONTENT, "q @ rotary_of_any(latent[:, None] @ W_k.mT, positions).mT")),
    ("all of it rotated",
     "Your q and W_k c are rotated as well. Only q_rope and k_rope carry positions here, so that "
     "W_k can be absorbed. Rotate only these two.",
     (CONTENT, "rotary_of_any(q, positions[S - L :]) @ "
      "rotary_of_any(latent[:, None] @ W_k.mT, positions).mT")),
    ("the other parts rotated",
     "Your q and W_k c are rotated, but q_rope and k_rope are not. Only q_rope and k_rope carry "
     "positions here, so that W_k can be absorbed. Rotate these two instead.",
     (QUERIES, ""), (KEYS, ""),
     (CONTENT, "rotary_of_any(q, positions[S - L :]) @ "
      "rotary_of_any(latent[:, None] @ W_k.mT, positions).mT")),
    ("queries rotated whole",
     "Your q is rotated as well. Its dot products with the unrotated keys then depend on the "
     "position of the query. Rotate only q_rope and k_rope.",
     (CONTENT, "rotary_of_any(q, positions[S - L :]) @ W_k @ latent[:, None].mT")),
    ("no dimension for the heads",
     "Your heads use the latents and k_rope of the wrong texts. These tensors have no dimension "
     "for the heads, so broadcasting aligns their B with the H of the queries. Use latent[:, None] "
     "and k_rope[:, None].",
     (CONTENT, CONTENT.replace("[:, None]", "")),
     ("k_rope[:, None].mT", "k_rope.mT")),
    ("no dimension for the heads in k_rope",
     "Your heads use the k_rope of the wrong texts. A k_rope of shape (B, S, d_rope) has no "
     "dimension for the heads, so broadcasting aligns its B with the H of the queries. Use "
     "k_rope[:, None].",
     ("k_rope[:, None].mT", "k_rope.mT")),
    ("latents of the first text",
     "All of your texts use the latents of the first text. Each text has its own, so use "
     "latent[:, None].",
     (CONTENT, CONTENT.replace("[:, None]", "[:1, None]"))),
    ("rotated keys of the first text",
     "All of your texts use the k_rope of the first text. Each text has its own, so use k_rope[:, "
     "None].",
     ("k_rope[:, None].mT", "k_rope[:1, None].mT")),
    ("W_k summed over heads",
     "All of your query heads use the sum of all W_k. Each head has its own, so let query head h "
     "use W_k[h].",
     (CONTENT, CONTENT.replace("W_k", "W_k.sum(dim=0)"))),
    ("queries of another head",
     "Your query heads use W_k in reverse order. Query head h must use W_k[h].",
     (CONTENT, CONTENT.replace("W_k", "W_k.flip(0)"))),
    ("first W_k for all",
     "All of your query heads use the first W_k. Each head has its own, so let query head h use "
     "W_k[h].",
     (CONTENT, "q @ W_k[0] @ latent[:, None].mT")),
    ("W_k transposed",
     "You get this result if you multiply q by W_k.mT (or an error, if d_k and d_c differ). A "
     "score is q · (W_k c) = (W_kᵀ q) · c. Your queries are rows, so W_kᵀ q is written q @ W_k.",
     (CONTENT, "q @ W_k.mT @ latent[:, None].mT")),
    ("no W_k",
     "If you multiply the queries by the latents without W_k, you get this result (or an error, if "
     "d_k and d_c differ). Multiply the queries by W_k first.",
     (CONTENT, "q @ latent[:, None].mT")),
    ("softmax",
     "Your result is the softmax of the scores. Return the scores.",
     (SUM, "((content + position)"), (SCALE, SCALE + ").softmax(dim=-1)")),
    ("causal mask",
     "Your scores for keys after the query are −∞, as with a mask. This exercise has no mask. "
     "Return all scores.",
     (SUM, "((content + position)"),
     (SCALE, SCALE + ").masked_fill(~torch.ones(L, S).tril(S - L).bool(), -torch.inf)")),
    ("causal mask with a large number",
     "Your scores for keys after the query are very low, as with a mask. This exercise has no "
     "mask. Return all scores.",
     (SUM, "((content + position)"),
     (SCALE, SCALE + ").masked_fill(~torch.ones(L, S).tril(S - L).bool(), -1e9)")),
    ("transposed",
     "Your result has shape (B, H, S, L). Make the queries its rows: (B, H, L, S).",
     (SUM, "((content + position)"), (SCALE, SCALE + ").mT")),
]  # fmt: skip


def even(x):
    """Return x (..., d) with a column of zeros if d is odd."""
    return torch.nn.functional.pad(x, (0, x.shape[-1] % 2))


def rotary_of_any(x, positions):
    """Return `rotary` of x (..., L, d), for any d."""
    return rotary(even(x), positions)[..., : x.shape[-1]]


exercise = Exercise(
    "12.5", decoupled_scores, inputs, MISTAKES, names="B H L S", differentiable=True,
    also_right=[by_joining, by_loops],
)  # fmt: skip
