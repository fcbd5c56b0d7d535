"""12.4: attention over latents, with W_k moved into the queries and W_v behind the sum."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import Results, normals
from course_utils.checks.shared_hints import MULTIPLIED, NOT_SCALED, OVER_QUERIES, SCALED_TWICE


def absorbed_attention(q, latent, W_k, W_v):
    d_k = q.shape[-1]
    latent = latent[:, None]  # (B, 1, S, d_c), the same for all heads
    q_latent = q @ W_k  # (B, H, L, d_k) @ (H, d_k, d_c) -> (B, H, L, d_c)
    scores = q_latent @ latent.mT / d_k**0.5  # (B, H, L, S)
    weights = scores.softmax(dim=-1)
    mixed = weights @ latent  # (B, H, L, d_c)
    return mixed @ W_v.mT  # (B, H, L, d_c) @ (H, d_c, d_v) -> (B, H, L, d_v)


def by_einsum(q, latent, W_k, W_v):
    scores = torch.einsum("bhlk,hkc,bsc->bhls", q, W_k, latent) * q.shape[-1] ** -0.5
    return torch.einsum("bhls,bsc,hvc->bhlv", scores.softmax(-1), latent, W_v)


def by_loops(q, latent, W_k, W_v):
    heads = []
    for h in range(q.shape[1]):
        scores = torch.matmul(q[:, h] @ W_k[h], latent.transpose(1, 2)) / q.shape[-1] ** 0.5
        heads.append(torch.softmax(scores, 2) @ latent @ W_v[h].T)
    return torch.stack(heads, 1)


def by_sdpa(q, latent, W_k, W_v):
    one = latent.unsqueeze(1).expand(-1, q.shape[1], -1, -1)
    mixed = F.scaled_dot_product_attention(q @ W_k, one, one, scale=q.shape[-1] ** -0.5)
    return mixed @ W_v.transpose(1, 2)


def inputs():
    """Return (q, latent, W_k, W_v); no two sizes are alike."""
    normal = normals(124)

    def probe(B, H, L, S, d_k, d_v, d_c, dtype=torch.float64):
        shapes = (B, H, L, d_k), (B, S, d_c), (H, d_k, d_c), (H, d_v, d_c)
        q, latent, W_k, W_v = (normal(*shape, dtype=dtype) for shape in shapes)
        return q, latent, W_k / d_c**0.5 * 2, W_v

    q, latent, W_k, W_v = probe(2, 3, 4, 6, 5, 2, 7)
    square = probe(2, 3, 4, 5, 6, 6, 6)
    return [
        (q, latent, W_k, W_v),
        probe(3, 2, 1, 5, 4, 6, 8),
        probe(1, 4, 5, 7, 8, 3, 6, dtype=torch.float32),
        probe(2, 5, 3, 4, 7, 8, 2),
        probe(1, 1, 2, 9, 3, 5, 4),
        square,  # where a transposed matrix fits
        (300 * q, latent, W_k, W_v),  # e^score overflows
    ]


EXPANDED = (
    "Your numbers are right, but your code computes the {} of a head from the latents. For every "
    "new token, they would have to be computed again, or kept. Multiply the {} by {} instead, and "
    "leave the latents as they are."
)


def same_numbers(made, target):
    """Tell whether a tensor holds the same numbers as another, in any order."""
    if made.numel() != target.numel() or made.dtype != target.dtype:
        return False
    made, target = made.flatten().sort().values, target.flatten().sort().values
    return torch.allclose(made, target, rtol=1e-4, atol=1e-5)


def contains(held, expanded):
    """Tell whether some tensor holds (B, H, S, d) keys or values, of all heads or of one."""
    parts = [expanded, *expanded.unbind(1), *expanded.flatten(0, 1)]
    return any(same_numbers(made, part) for made in held for part in parts)


def run(answer, q, latent, W_k, W_v):
    """Run an answer, and check whether it makes the keys or values of a head."""
    with Results() as results:
        found = call_with_clones(answer, q, latent, W_k, W_v)
    held, latent = results.held(), latent[:, None]
    if latent.shape[2] > 1 and q.shape[1] > 1:
        if contains(held, latent @ W_k.mT):
            hint = EXPANDED.format("keys", "queries", "W_k")
            raise NamedMistake("keys expanded", hint, found)
        if contains(held, latent @ W_v.mT):
            hint = EXPANDED.format("values", "weighted sum of latents", "W_v")
            raise NamedMistake("values expanded", hint, found)
    return found


QUERY = "q @ W_k"
SCALE, SOFTMAX, OUT = "d_k**0.5", "scores.softmax(dim=-1)", "mixed @ W_v.mT"
MISTAKES = [
    ("scaled by the latent",
     "Your scores are divided by √d_c. The scores must equal those of the keys, and a key has "
     "d_k numbers. Divide by √d_k.",
     (SCALE, "q_latent.shape[-1]**0.5")),
    ("scaled by both",
     "Your scores are divided by √d_k and by √d_c. They must equal the scores of the keys, which "
     "have d_k numbers, so divide only by √d_k. (If you call `attention`, it scales too. Pass it "
     "scale=d_k**-0.5, and do not divide again.)",
     (SCALE, "(d_k * q_latent.shape[-1])**0.5")),
    ("not scaled", NOT_SCALED, (" / d_k**0.5", "")),
    ("scaled twice", SCALED_TWICE, (SCALE, "d_k")),
    ("multiplied", MULTIPLIED, (" / d_k**0.5", " * d_k**0.5")),
    ("scaled by values",
     "Your scores are divided by √d_v. A score is a dot product of vectors of width d_k, so "
     "divide by √d_k.",
     (SCALE, "W_v.shape[1]**0.5")),
    ("scaled by both parts",
     "Your scores are divided by √(d_k + d_c). The scores must equal those of the keys, and a "
     "key has d_k numbers. Divide by √d_k.",
     (SCALE, "(d_k + q_latent.shape[-1])**0.5")),
    ("scaled by the number of heads",
     "Your scores are divided by √H. Divide them by √d_k, where d_k is the width of a query.",
     (SCALE, "W_k.shape[0]**0.5")),
    ("divided by d_k squared",
     "Your scores are divided by d_k². Divide them by √d_k.",
     (SCALE, "d_k**2")),
    ("divided by d_c",
     "Your scores are divided by d_c. Divide them by √d_k, where d_k is the width of a query.",
     (SCALE, "W_k.shape[-1]")),
    ("latents of the first text",
     "All of your texts use the latents of the first text. Each text has its own, so use "
     "latent[:, None].",
     ("latent[:, None]  #", "latent[:1, None]  #")),
    ("no dimension for the heads",
     "Your heads use the latents of the wrong texts. Latents of shape (B, S, d_c) have no "
     "dimension for the heads, so broadcasting aligns their B with the H of the queries. Use "
     "latent[:, None], of shape (B, 1, S, d_c).",
     ("latent[:, None]  #", "latent  #")),
    ("scaled by the queries",
     "Your scores are divided by √L, the square root of the number of queries. Divide them by "
     "√d_k, where d_k is the width of a query.",
     (SCALE, "q.shape[-2]**0.5")),
    ("scaled by the keys",
     "Your scores are divided by √S, the square root of the number of keys. Divide them by √d_k, "
     "where d_k is the width of a query.",
     (SCALE, "latent.shape[-2]**0.5")),
    ("queries of another head",
     "Your query heads use W_k in reverse order. Query head h must use W_k[h].",
     (QUERY, "q @ W_k.flip(0)")),
    ("W_v of another head",
     "Your heads use W_v in reverse order. Head h must use W_v[h].",
     (OUT, "mixed @ W_v.flip(0).mT")),
    ("last W_v for all",
     "All of your heads use the last W_v. Each head has its own, so let head h use W_v[h].",
     (OUT, "mixed @ W_v[-1].T")),
    ("last W_k for all",
     "All of your query heads use the last W_k. Each head has its own, so let query head h use "
     "W_k[h].",
     (QUERY, "q @ W_k[-1]")),
    ("W_k summed over heads",
     "All of your query heads use the sum of the heads' matrices W_k. Each head has its own "
     "matrix, so let query head h use W_k[h].",
     (QUERY, "q @ W_k.sum(dim=0)")),
    ("mean of W_k",
     "All of your query heads use the mean of the heads' matrices W_k. Each head has its own "
     "matrix, so let query head h use W_k[h].",
     (QUERY, "q @ W_k.mean(dim=0)")),
    ("first W_k for all",
     "All of your query heads use the first W_k. Each head has its own, so let query head h use "
     "W_k[h].",
     (QUERY, "q @ W_k[0]")),
    ("first W_v for all",
     "All of your heads use the first W_v. Each head has its own, so let head h use W_v[h].",
     (OUT, "mixed @ W_v[0].T")),
    ("first matrices for all",
     "All of your heads use the first W_k and the first W_v. Each head has its own. Let head h "
     "use W_k[h] and W_v[h].",
     (QUERY, "q @ W_k[0]"), (OUT, "mixed @ W_v[0].T")),
    ("W_k transposed",
     "You get this result if you multiply q by W_k.mT (or an error, if d_k and d_c differ). A "
     "score is q · (W_k c) = (W_kᵀ q) · c. Your queries are rows, so W_kᵀ q is written q @ W_k.",
     (QUERY, "q @ W_k.mT")),
    ("W_v transposed",
     "You get this result if you multiply the weighted sums of latents by W_v without transposing "
     "it (or an error, if d_v and d_c differ). A value is W_v c. Your weighted sums are rows, so "
     "multiply them by W_v.mT.",
     (OUT, "mixed @ W_v")),
    ("W_k transposed, W_v too",
     "If you transpose W_k but not W_v, you get this result (or an error, if the widths differ). "
     "Your queries and weighted sums are rows. Multiply the queries by W_k, and the weighted sums "
     "of latents by W_v.mT.",
     (QUERY, "q @ W_k.mT"), (OUT, "mixed @ W_v")),
    ("W_k reshaped",
     "You get this result if you reshape W_k to (H, d_c, d_k). Reshaping does not transpose, so "
     "the numbers of a row are mixed with those of other rows. Use q @ W_k, because W_k has "
     "shape (H, d_k, d_c).",
     (QUERY, "q @ W_k.reshape(-1, W_k.shape[2], W_k.shape[1]).mT")),
    ("W_v reshaped",
     "You get this result if you reshape W_v to (H, d_c, d_v). Reshaping does not transpose, so "
     "the numbers of a row are mixed with those of other rows. Use W_v.mT.",
     (OUT, "mixed @ W_v.reshape(-1, W_v.shape[2], W_v.shape[1])")),
    ("matrices exchanged",
     "If you exchange W_k and W_v, you get this result (or an error, if d_k and d_v differ). "
     "Multiply the queries by W_k, and the weighted sums of latents by W_v.",
     (QUERY, "q @ W_v"), (OUT, "mixed @ W_k.mT")),
    ("W_v inside as well",
     "If you multiply the weighted sums of latents by W_k, you get this result. Keys need W_k, but "
     "the output is a sum of values. Multiply the weighted sums by W_v.",
     (OUT, "mixed @ W_k.mT")),
    ("values left out",
     "Your result is the weighted sum of the latents. The output is a weighted sum of values, "
     "W_v c. Multiply your result by W_v.",
     (OUT, "mixed")),
    ("queries not absorbed",
     "If you multiply the queries by the latents without W_k, you get this result (or an error, if "
     "d_k and d_c differ). Multiply the queries by W_k first.",
     (QUERY, "q")),
    ("softmax over queries", OVER_QUERIES, (SOFTMAX, "scores.softmax(dim=-2)")),
    ("softmax over heads",
     "Your softmax runs over the heads. The weights of each query must sum to 1, so use `dim=-1`.",
     (SOFTMAX, "scores.softmax(dim=1)")),
    ("softmax over queries and keys",
     "Your softmax runs over queries and keys together. The weights of each query must sum to 1, "
     "so use `dim=-1`.",
     (SOFTMAX, "scores.flatten(-2).softmax(dim=-1).view_as(scores)")),
    ("sigmoid",
     "Your weights are the sigmoid of the scores. The weights of each query must sum to 1. Use a "
     "softmax over the keys.",
     (SOFTMAX, "scores.sigmoid()")),
    ("logarithm of the weights",
     "Your weights are the logarithm of the softmax, so they are negative. Use the softmax itself.",
     (SOFTMAX, "scores.log_softmax(dim=-1)")),
    ("no softmax",
     "Your result is the one without a softmax. Apply the softmax to the scores, over the keys.",
     (SOFTMAX, "scores")),
    ("softmax by hand",
     "Your result is NaN or infinite for large scores, because e^score overflows. Subtract the "
     "largest score first, or use torch.softmax.",
     (SOFTMAX, "scores.exp() / scores.exp().sum(dim=-1, keepdim=True)")),
    ("causal mask",
     "Your result is the one with a causal mask. This exercise has no mask. Let each query see "
     "all latents.",
     (SOFTMAX, "scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -torch.inf).softmax(-1)")),
    ("causal mask at the lower right",
     "Your result is the one with a causal mask, aligned at the lower right. This exercise has "
     "no mask. Let each query see all latents.",
     (SOFTMAX, "scores.masked_fill(torch.ones_like(scores).triu(1 + scores.shape[-1] - "
      "scores.shape[-2]) > 0, -torch.inf).softmax(-1)")),
    ("weights alone",
     "Your result contains the weights. Compute the weighted sum of the latents, then multiply "
     "it by W_v.",
     (OUT, "weights")),
    ("weights too",
     "Your output is right. Return it alone, without the weights.",
     (OUT, "mixed @ W_v.mT, weights")),
    ("scores alone",
     "Your result contains the scores. Apply the softmax, compute the weighted sum of the "
     "latents, and multiply it by W_v.",
     (OUT, "scores")),
    ("heads after tokens",
     "Your result has shape (B, L, H, d_v). Return (B, H, L, d_v).",
     (OUT, "(mixed @ W_v.mT).transpose(1, 2)")),
    ("heads merged",
     "Your numbers are right, but the heads are concatenated. Return them separately, as (B, H, "
     "L, d_v).",
     (OUT, "(mixed @ W_v.mT).transpose(1, 2).flatten(2)")),
    ("heads summed",
     "Your result is the sum over the heads. Return each head separately, as (B, H, L, d_v).",
     (OUT, "(mixed @ W_v.mT).sum(dim=1)")),
    ("latent weighted twice",
     "You get this result if you multiply the weighted sums of latents by W_k, by its transpose "
     "and by W_v. A value is W_v c, so multiply the weighted sums by W_v alone.",
     (OUT, "mixed @ W_k.mT @ W_k @ W_v.mT")),
]  # fmt: skip

exercise = Exercise(
    "12.4", absorbed_attention, inputs, MISTAKES, names="B H L d_v", run=run, differentiable=True,
    also_right=[by_einsum, by_loops, by_sdpa],
)  # fmt: skip
