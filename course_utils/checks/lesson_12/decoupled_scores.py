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
    """Return (q, q_rope, latent, k_rope, W_k); sizes differ."""
    normal = normals(125)

    def probe(B, H, L, S, d_k, d_rope, d_c, dtype=torch.float64):
        shapes = (B, H, L, d_k), (B, H, L, d_rope), (B, S, d_c), (B, S, d_rope), (H, d_k, d_c)
        return tuple(normal(*shape, dtype=dtype) for shape in shapes)

    return [
        probe(2, 3, 4, 7, 5, 6, 3),
        probe(1, 2, 1, 9, 3, 4, 6),
        probe(3, 2, 5, 6, 7, 2, 4, dtype=torch.float32),
        probe(2, 4, 3, 3, 5, 8, 6),  # no earlier tokens
        probe(1, 3, 2, 11, 8, 6, 5),
        probe(2, 1, 4, 8, 4, 4, 4),  # where much fits that should not
    ]


QUERIES = "q_rope = rotary(q_rope, positions[S - L :])"
KEYS = "k_rope = rotary(k_rope, positions)"
CONTENT = "q @ W_k @ latent[:, None].mT"
SCALE = " / (q.shape[-1] + q_rope.shape[-1]) ** 0.5"
SUM = "(content + position)"
BY_LATENT = (
    "Your scores are divided by √d_c, or by √(d_c + d_rope). A query has d_k + d_rope numbers, and "
    "absorbing W_k does not change its scores. Divide by √(d_k + d_rope)."
)
MISTAKES = [
    ("queries from 0",
     "Your queries are at positions 0, 1, …. They are the last L of the S tokens, so their "
     "positions are S − L to S − 1.",
     (QUERIES, "q_rope = rotary(q_rope, torch.arange(L))")),
    ("queries at the end",
     "All of your queries are at position S − 1. Only the last one is. Their positions are S − L "
     "to S − 1.",
     (QUERIES, "q_rope = rotary(q_rope, torch.full((L,), S - 1))")),
    ("queries one later",
     "Your queries are one position too late. The last query is the last of the S tokens. Their "
     "positions are S − L to S − 1.",
     (QUERIES, "q_rope = rotary(q_rope, positions[S - L :] + 1)")),
    ("queries one early",
     "Your queries are one position too early, or your keys one too late. The keys are at "
     "positions 0 to S − 1, and the last query is at S − 1, like the last key.",
     (QUERIES, "q_rope = rotary(q_rope, positions[S - L :] - 1)")),
    ("queries after the keys",
     "Your queries are at positions from S on, as if they came after all keys. They are the last L "
     "of the S tokens, so their positions are S − L to S − 1.",
     (QUERIES, "q_rope = rotary(q_rope, torch.arange(S, S + L))")),
    ("queries not rotated",
     "The rotated part of your queries is not rotated. Rotate q_rope by the queries' positions.",
     (QUERIES, "")),
    ("keys not rotated",
     "The rotated part of your keys is not rotated. Rotate k_rope by the positions 0 to S − 1.",
     (KEYS, "")),
    ("nothing rotated",
     "Neither q_rope nor k_rope is rotated in your result. Rotate both by their positions.",
     (QUERIES, ""), (KEYS, "")),
    ("keys from the end",
     "The positions of your keys run backwards. The first key is at position 0.",
     (KEYS, "k_rope = rotary(k_rope, positions.flip(0))")),
    ("queries backwards",
     "The positions of your queries run backwards. The last query is at position S − 1.",
     (QUERIES, "q_rope = rotary(q_rope, positions[S - L :].flip(0))")),
    ("queries backwards from S",
     "The positions of your queries run backwards. The last query is at position S − 1.",
     (QUERIES, "q_rope = rotary(q_rope, S - torch.arange(L))")),
    ("another base",
     "Your rotation has another base. Use the default base of `rotary` for queries and keys.",
     (QUERIES, QUERIES[:-1] + ", base=100_000)"), (KEYS, KEYS[:-1] + ", base=100_000)")),
    ("another base for keys",
     "Your keys are rotated with another base than your queries. Use the default base of `rotary` "
     "for both.",
     (KEYS, KEYS[:-1] + ", base=100_000)")),
    ("interleaved pairs",
     "Your rotation pairs neighboring entries. Use the default of `rotary`, which pairs entry i "
     "with entry i + d_rope / 2.",
     (QUERIES, QUERIES[:-1] + ", interleaved=True)"), (KEYS, KEYS[:-1] + ", interleaved=True)")),
    ("scaled by the content alone",
     "Your scores are divided by √d_k. A query has d_k + d_rope numbers. Divide by √(d_k + "
     "d_rope).",
     (SCALE, " / q.shape[-1] ** 0.5")),
    ("scaled by the rotated part",
     "Your scores are divided by √d_rope. A query has d_k + d_rope numbers. Divide by √(d_k + "
     "d_rope).",
     (SCALE, " / q_rope.shape[-1] ** 0.5")),
    ("scaled by the latent",
     BY_LATENT,
     (SCALE, " / latent.shape[-1] ** 0.5")),
    ("scaled by the latent and the rotated part",
     BY_LATENT,
     (SCALE, " / (latent.shape[-1] + q_rope.shape[-1]) ** 0.5")),
    ("each part by its own root",
     "You divide each part by the root of its own width. Both parts belong to one score, so divide "
     "their sum by √(d_k + d_rope).",
     (SUM, "(content / q.shape[-1] ** 0.5 + position / q_rope.shape[-1] ** 0.5)"), (SCALE, "")),
    ("roots added",
     "Your scores are divided by √d_k + √d_rope. The root is over the sum of both widths. Divide "
     "by √(d_k + d_rope).",
     (SCALE, " / (q.shape[-1] ** 0.5 + q_rope.shape[-1] ** 0.5)")),
    ("only the content scaled, by its own root",
     "Only one part of your score is scaled. Divide the sum of both by √(d_k + d_rope).",
     (SUM, "content / q.shape[-1] ** 0.5 + position"), (SCALE, "")),
    ("averaged",
     "Your result is the mean of the two parts. A dot product of joined vectors is their sum. Add "
     "them.",
     (SUM, "(content + position) / 2")),
    ("only the content scaled",
     "Only one part of your score is scaled. Divide the sum of both by √(d_k + d_rope).",
     (SUM, "content"), (SCALE, SCALE + " + position")),
    ("only the position scaled",
     "Only one part of your score is scaled. Divide the sum of both by √(d_k + d_rope).",
     (SUM, "position"), (SCALE, SCALE + " + content")),
    ("not scaled", NOT_SCALED.replace("√d_k", "√(d_k + d_rope)"), (SCALE, "")),
    ("not rooted",
     "Your scores are divided by d_k + d_rope. Divide them by its square root.",
     (SCALE, " / (q.shape[-1] + q_rope.shape[-1])")),
    ("content alone",
     "Your scores leave out the rotated part. Add q_rope · k_rope, both rotated.",
     (SUM, "content")),
    ("position alone",
     "Your scores leave out the part that is not rotated. Add q · (W_k c).",
     (SUM, "position")),
    ("subtracted",
     "Your result subtracts one part from the other. A dot product of joined vectors is the sum of "
     "the parts. Add them.",
     (SUM, "(content - position)")),
    ("multiplied",
     "Your result multiplies the two parts. A dot product of joined vectors is the sum of the "
     "parts. Add them.",
     (SUM, "(content * position)")),
    ("latent rotated",
     "Your latents are rotated as well. Then W_k can no longer be absorbed. Rotate only q_rope and "
     "k_rope.",
     (CONTENT, "q @ W_k @ rotary(even(latent), positions)[..., : latent.shape[-1]][:, None].mT")),
    ("keys rotated whole",
     "The content part of your keys is rotated as well. Then W_k can no longer be absorbed. Rotate "
     "only q_rope and k_rope.",
     (CONTENT, "q @ rotary_of_any(latent[:, None] @ W_k.mT, positions).mT")),
    ("all of it rotated",
     "The content part of your queries and keys is rotated as well. Then W_k can no longer be "
     "absorbed. Rotate only q_rope and k_rope.",
     (CONTENT, "rotary_of_any(q, positions[S - L :]) @ "
      "rotary_of_any(latent[:, None] @ W_k.mT, positions).mT")),
    ("queries rotated whole",
     "The content part of your queries is rotated as well, but that of your keys is not. Rotate "
     "only q_rope and k_rope.",
     (CONTENT, "rotary_of_any(q, positions[S - L :]) @ W_k @ latent[:, None].mT")),
    ("first W_k for all",
     "All of your query heads use the first W_k. Each head has its own. Let query head h use "
     "W_k[h].",
     (CONTENT, "q @ W_k[0] @ latent[:, None].mT")),
    ("W_k transposed",
     "You get this result, or an error, if you multiply the queries by W_kᵀ. With queries as rows, "
     "W_kᵀ q is q @ W_k.",
     (CONTENT, "q @ W_k.mT @ latent[:, None].mT")),
    ("no W_k",
     "You get this result, or an error, if the queries meet the latents without W_k. Multiply the "
     "queries by W_k first.",
     (CONTENT, "q @ latent[:, None].mT")),
    ("softmax",
     "Your result is the softmax of the scores. Return the scores.",
     (SUM, "((content + position)"), (SCALE, SCALE + ").softmax(dim=-1)")),
    ("causal mask",
     "Your scores of later keys are −∞ or very low. No mask is asked for. Return all scores.",
     (SUM, "((content + position)"),
     (SCALE, SCALE + ").masked_fill(~torch.ones(L, S).tril(S - L).bool(), -torch.inf)")),
    ("causal mask with a large number",
     "Your scores of later keys are −∞ or very low. No mask is asked for. Return all scores.",
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
