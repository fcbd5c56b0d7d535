import math
import statistics

import numpy as np
import torch
import torch.nn.functional as F


def by_rows(function, t):
    """Apply a function of one row to every row of t (..., S)."""
    rows = [torch.as_tensor(function(row)) for row in t.reshape(-1, t.shape[-1])]
    return torch.stack(rows).to(t.dtype).view(t.shape[:-1])


def variance_by_hand(q, k):
    scores = [sum(a * b for a, b in zip(x, y, strict=True)) for x, y in zip(q, k, strict=True)]
    mean = sum(scores) / len(scores)
    return sum((s - mean) ** 2 for s in scores) / (len(scores) - 1)


def scores_with_q_scaled_in_loops(q, k):
    if q.ndim > 2:
        return torch.stack([scores_with_q_scaled_in_loops(a, b) for a, b in zip(q, k, strict=True)])
    return torch.stack([torch.stack([x / len(x) ** 0.5 @ y for y in k]) for x in q])


def entropy_by_loops(weights):
    return by_rows(lambda row: -sum(p * math.log(p) for p in row.tolist() if p > 0), weights)


def entropy_in_numpy(weights):
    w = weights.double().numpy()
    logs = np.log(w, out=np.zeros_like(w), where=w > 0)
    return torch.from_numpy(np.asarray(-(w * logs).sum(-1)))


def gradient_norm_by_autograd(scores):
    def norm(row):
        return torch.func.jacrev(lambda s: torch.softmax(s, -1))(row).norm()

    return by_rows(norm, scores)


def gradient_norm_by_hand(scores):
    p = (scores - scores.amax(-1, keepdim=True)).exp()
    p = p / p.sum(-1, keepdim=True)
    S = p.shape[-1]
    total = 0
    for i in range(S):
        for j in range(S):
            total = total + (p[..., i] * (float(i == j) - p[..., j])) ** 2
    return total**0.5


def cosine_by_sdpa(q, k, v, temperature):
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    return F.scaled_dot_product_attention(q, k, v, scale=1 / temperature)


def cosine_by_hand(q, k, v, temperature):
    lengths = q.norm(dim=-1)[..., :, None] * k.norm(dim=-1)[..., None, :]
    scores = torch.einsum("...ld,...sd->...ls", q, k) / lengths.clamp(min=1e-9)
    powers = ((scores - scores.amax(-1, keepdim=True)) / temperature).exp()
    return powers @ v / powers.sum(-1, keepdim=True)


RIGHT = {
    "score_variance": [
        variance_by_hand,
        lambda q, k: torch.var(torch.diagonal(q @ k.T)),
        lambda q, k: float(np.var(np.einsum("nd,nd->n", q.numpy(), k.numpy()), ddof=1)),
        lambda q, k: statistics.variance([torch.dot(a, b).item() for a, b in zip(q, k)]),  # noqa: B905
        lambda q, k: torch.cov((q * k).sum(1)),
    ],
    "right_divisor": [
        lambda d_k, var_q, var_k: math.sqrt(d_k) * math.sqrt(var_q) * math.sqrt(var_k),
        lambda d_k, var_q, var_k: np.sqrt(np.float32(d_k * var_q * var_k)),
        lambda d_k, var_q, var_k: torch.tensor(d_k * var_q * var_k).sqrt(),
        lambda d_k, var_q, var_k: sum(var_q * var_k for _ in range(d_k)) ** 0.5,
    ],
    "scaled_scores": [
        scores_with_q_scaled_in_loops,
        lambda q, k: (q / math.sqrt(q.size(-1))) @ k.mT,
        lambda q, k: (q * q.shape[-1] ** -0.25) @ (k * k.shape[-1] ** -0.25).transpose(-1, -2),
        lambda q, k: torch.einsum("...ld,...sd->...ls", q, k) / k.shape[-1] ** 0.5,
        lambda q, k: torch.from_numpy(q.numpy() @ k.numpy().swapaxes(-1, -2)) / q.shape[-1] ** 0.5,
        lambda q, k: (q.double() @ k.double().mT / q.shape[-1] ** 0.5).float(),
    ],
    "entropy": [
        entropy_by_loops,
        entropy_in_numpy,
        lambda weights: torch.special.entr(weights).sum(-1),
        lambda weights: torch.distributions.Categorical(probs=weights).entropy(),
        lambda weights: -(weights * (weights + 1e-12).log()).sum(-1),
        lambda weights: -(weights * weights.log()).nan_to_num().sum(-1),
        lambda weights: -(weights * weights.clamp(min=1e-30).log()).sum(-1),
    ],
    "effective_keys": [
        lambda weights: entropy_by_loops(weights).exp(),
        lambda weights: torch.special.entr(weights).sum(-1).exp(),
        lambda weights: 1 / torch.prod(weights**weights, dim=-1),
        lambda weights: 2 ** -(weights * (weights + 1e-12).log2()).sum(-1),
    ],
    "gradient_norm": [
        gradient_norm_by_autograd,
        gradient_norm_by_hand,
        lambda scores: torch.linalg.matrix_norm(
            torch.diag_embed(p := F.softmax(scores, -1)) - p.unsqueeze(-1) * p.unsqueeze(-2)
        ),
        lambda scores: (
            (
                (p := scores.double().softmax(-1)).pow(2).sum(-1)
                - 2 * p.pow(3).sum(-1)
                + p.pow(2).sum(-1) ** 2
            )
            .clamp(min=0)
            .sqrt()
        ),
    ],
    "cosine_attention": [
        cosine_by_sdpa,
        cosine_by_hand,
        lambda q, k, v, temperature: (
            F.softmax(
                F.cosine_similarity(q[..., :, None, :], k[..., None, :, :], -1) / temperature, -1
            )
            @ v
        ),
    ],
}


def softmax_without_dim_thought(scores):
    p = torch.softmax(scores, 0)
    return torch.linalg.norm(
        torch.diag_embed(p) - torch.einsum("...i,...j->...ij", p, p), dim=(-2, -1)
    )


def one_shift_for_all(scores):
    e = torch.exp(scores - torch.max(scores))
    p = e / e.sum(-1, keepdim=True)
    return (torch.diag_embed(p) - p[..., None] * p[..., None, :]).norm(dim=(-2, -1))


def powers_of_cosines(q, k, v, temperature):
    cosines = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT
    e = torch.exp(cosines / temperature)
    return e / e.sum(-1, keepdim=True) @ v


def half_by_precedence(q, k):
    d_k = q.shape[-1]
    return q @ k.transpose(-2, -1) / d_k**1 / 2


def root_by_precedence(q, k):
    root = q.shape[-1] ** 1 / 2
    return q @ k.transpose(-2, -1) / root


def changes_the_scores(q, k):
    q /= q.shape[-1] ** 0.5
    return q @ k.mT


def _turned(k):  # as k.T does, which warns
    return k.permute(*reversed(range(k.ndim)))


WRONG = [
    ("score_variance", "standard deviation", lambda q, k: torch.einsum("nd,nd->n", q, k).std()),
    ("score_variance", "divided by n", lambda q, k: torch.var((q * k).sum(1), unbiased=False)),
    ("score_variance", "mean not subtracted", lambda q, k: ((q * k).sum(1) ** 2).mean()),
    (
        "score_variance",
        "squares not centred",
        lambda q, k: (q * k).sum(1).pow(2).sum() / (q.size(0) - 1),
    ),
    ("score_variance", "summed over the pairs", lambda q, k: torch.var((q * k).sum(0))),
    ("score_variance", "all pairs", lambda q, k: torch.einsum("nd,md->nm", q, k).var()),
    ("score_variance", "variance of products", lambda q, k: torch.var(q * k)),
    ("score_variance", "theory returned", lambda q, k: q.size(1)),
    ("score_variance", "of scaled scores", lambda q, k: (q * k).sum(1).var() / q.size(1)),
    ("score_variance", None, lambda q, k: (q * k).sum(1)),
    ("score_variance", None, lambda q, k: None),
    ("right_divisor", "root of d k alone", lambda d_k, var_q, var_k: math.sqrt(d_k)),
    ("right_divisor", "var k outside the root", lambda d_k, s_q, s_k: math.sqrt(d_k * s_q) * s_k),
    ("right_divisor", "root missing", lambda d_k, var_q, var_k: var_q * var_k * d_k),
    (
        "right_divisor",
        "variances outside the root",
        lambda d_k, var_q, var_k: math.sqrt(d_k) * var_q * var_k,
    ),
    (
        "right_divisor",
        "variances added",
        lambda d_k, var_q, var_k: math.sqrt(d_k * (var_q + var_k)),
    ),
    ("right_divisor", "d k missing", lambda d_k, var_q, var_k: math.sqrt(var_q) * math.sqrt(var_k)),
    (
        "right_divisor",
        "factor in place of divisor",
        lambda d_k, var_q, var_k: 1 / math.sqrt(d_k * var_q * var_k),
    ),
    (
        "right_divisor",
        "half of the variance",
        lambda d_k, var_q, var_k: (d_k * var_q * var_k) ** 1 / 2,
    ),
    ("right_divisor", None, lambda d_k, var_q, var_k: d_k + var_q + var_k),
    ("right_divisor", None, lambda d_k, var_q, var_k: None),
    ("scaled_scores", "not divided by root d k", lambda q, k: torch.matmul(q, k.mT)),
    ("scaled_scores", "width from dimension 1", lambda q, k: q @ k.mT / math.sqrt(q.size(1))),
    ("scaled_scores", "leading dimensions turned", lambda q, k: q @ _turned(k) / q.size(-1) ** 0.5),
    ("scaled_scores", "divided by d k", lambda q, k: (q / q.shape[-1]) @ k.mT),
    (
        "scaled_scores",
        "divided by d k",
        lambda q, k: (q / q.shape[-1] ** 0.5) @ (k / k.shape[-1] ** 0.5).mT,
    ),
    ("scaled_scores", "by d k and by 2", half_by_precedence),
    ("scaled_scores", "by half of d k", root_by_precedence),
    ("scaled_scores", None, lambda q, k: (q @ k.mT / q.shape[-1] ** 0.5).squeeze()),
    ("scaled_scores", "multiplied by root d k", lambda q, k: math.sqrt(q.size(-1)) * (q @ k.mT)),
    ("scaled_scores", "divided by root of keys", lambda q, k: q @ k.mT / math.sqrt(k.size(-2))),
    ("scaled_scores", "divided by root of queries", lambda q, k: q @ k.mT / math.sqrt(q.size(-2))),
    (
        "scaled_scores",
        "weights in place of scores",
        lambda q, k: F.softmax(q @ k.mT / math.sqrt(q.size(-1)), -1),
    ),
    ("scaled_scores", "rows are keys", lambda q, k: k @ q.mT / math.sqrt(q.size(-1))),
    ("scaled_scores", "changes its input", changes_the_scores),
    ("scaled_scores", None, lambda q, k: q @ k.mT / math.log(q.size(-1))),
    ("entropy", "zero weight gives nan", lambda weights: -(weights.log() * weights).sum(-1)),
    ("entropy", "bits in place of nats", lambda w: -(w * (w + 1e-12).log2()).sum(-1)),
    ("entropy", "minus missing", lambda w: (w * (w + 1e-12).log()).sum(-1)),
    ("entropy", "added over all rows", lambda w: -(w * (w + 1e-12).log()).sum()),
    ("entropy", "mean over keys", lambda w: -(w * (w + 1e-12).log()).mean(-1)),
    ("entropy", "kept the dimension", lambda w: torch.special.entr(w).sum(-1, keepdim=True)),
    ("entropy", "softmax once more", lambda w: torch.distributions.Categorical(logits=w).entropy()),
    ("entropy", "effective number", lambda w: torch.special.entr(w).sum(-1).exp()),
    ("entropy", None, lambda w: -(w * (w + 0.1).log()).sum(-1)),  # an epsilon that is far too large
    ("entropy", None, lambda w: torch.special.entr(w).sum(-1).squeeze()),
    ("effective_keys", None, lambda w: torch.special.entr(w).sum(-1).squeeze().exp()),
    ("effective_keys", "entropy itself", lambda w: torch.special.entr(w).sum(-1)),
    ("effective_keys", "power of 2", lambda w: torch.exp2(torch.special.entr(w).sum(-1))),
    ("effective_keys", "weights above 0", lambda w: torch.count_nonzero(w, dim=-1).to(w.dtype)),
    ("effective_keys", "participation ratio", lambda w: w.pow(2).sum(-1) ** -1),
    ("effective_keys", "one over the largest", lambda w: w.max(-1).values.reciprocal()),
    ("effective_keys", "zero gives nan", lambda w: torch.exp(-torch.sum(w * torch.log(w), -1))),
    ("effective_keys", None, lambda w: (w > 0.1).double().sum(-1)),
    (
        "gradient_norm",
        "diagonal alone",
        lambda s: (s.softmax(-1) - s.softmax(-1) ** 2).norm(dim=-1),
    ),
    ("gradient_norm", "diag alone", lambda s: torch.diag_embed(s.softmax(-1)).norm(dim=(-2, -1))),
    ("gradient_norm", "outer product alone", lambda s: s.softmax(-1).pow(2).sum(-1)),
    ("gradient_norm", "softmax over first dimension", softmax_without_dim_thought),
    (
        "gradient_norm",
        "spectral norm",
        lambda s: torch.linalg.norm(
            torch.diag_embed(p := s.softmax(-1)) - p[..., None] * p[..., None, :],
            ord=2,
            dim=(-2, -1),
        ),
    ),
    (
        "gradient_norm",
        "root not taken",
        lambda s: gradient_norm_by_hand(s) ** 2,
    ),
    (
        "gradient_norm",
        "norm over everything",
        lambda s: (gradient_norm_by_hand(s) ** 2).sum() ** 0.5,
    ),
    (
        "gradient_norm",
        "exponential overflows",
        lambda s: torch.linalg.matrix_norm(
            torch.diag_embed(p := torch.exp(s) / torch.exp(s).sum(-1, keepdim=True))
            - p[..., None] * p[..., None, :]
        ),
    ),
    ("gradient_norm", "maximum of all rows", one_shift_for_all),
    ("gradient_norm", None, lambda s: gradient_norm_by_hand(s).squeeze()),
    ("gradient_norm", None, lambda s: s.softmax(-1).amax(-1)),
    (
        "cosine_attention",
        "not normalised",
        lambda q, k, v, t: F.scaled_dot_product_attention(q, k, v, scale=1 / t),
    ),
    (
        "cosine_attention",
        "only queries normalised",
        lambda q, k, v, t: F.softmax(F.normalize(q, dim=-1) @ k.mT / t, -1) @ v,
    ),
    (
        "cosine_attention",
        "multiplied by temperature",
        lambda q, k, v, t: cosine_by_sdpa(q, k, v, 1 / t),
    ),
    ("cosine_attention", "powers overflow", powers_of_cosines),
    (
        "cosine_attention",
        "weights along dimension 1",
        lambda q, k, v, t: F.softmax(F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT / t, 1) @ v,
    ),
    (
        "cosine_attention",
        "lengths along dimension 1",
        lambda q, k, v, t: F.softmax(F.normalize(q) @ F.normalize(k).mT / t, dim=-1) @ v,
    ),
    (
        "cosine_attention",
        "temperature not used",
        lambda q, k, v, t: (F.normalize(q / t, dim=-1) @ F.normalize(k, dim=-1).mT).softmax(-1) @ v,
    ),
    ("cosine_attention", "temperature not used", lambda q, k, v, t: cosine_by_sdpa(q, k, v, 1.0)),
    (
        "cosine_attention",
        "temperature after softmax",
        lambda q, k, v, t: cosine_by_sdpa(q, k, v, 1) / t,
    ),
    (
        "cosine_attention",
        "divided by root d k as well",
        lambda q, k, v, t: F.scaled_dot_product_attention(
            F.normalize(q, dim=-1) / t, F.normalize(k, dim=-1), v
        ),
    ),
    (
        "cosine_attention",
        "zero vector breaks it",
        lambda q, k, v, t: (
            F.softmax(q @ k.mT / q.norm(dim=-1)[..., None] / k.norm(dim=-1)[..., None, :] / t, -1)
            @ v
        ),
    ),
    (
        "cosine_attention",
        "normalised over positions",
        lambda q, k, v, t: (
            F.softmax(F.normalize(q, dim=-2) @ F.normalize(k, dim=-2).mT / t, -1) @ v
        ),
    ),
    (
        "cosine_attention",
        None,
        lambda q, k, v, t: v.mean(-2, keepdim=True).expand(*q.shape[:-1], -1),
    ),
]

HINTS = {
    "score_variance": {
        "standard deviation": "variance is its square",
        "divided by n": "n − 1",
        "mean not subtracted": "subtract the mean",
        "squares not centred": "mean of the scores is not subtracted",
        "summed over the pairs": "down the columns",
        "all pairs": "row i of q belongs to row i of k",
        "variance of products": "sum over d_k",
        "mean over the width": "a score is their sum",
        "of scaled scores": "plain dot products",
        "sum of variances": "add first",
        "theory returned": "estimate it",
    },
    "right_divisor": {
        "root of d k alone": "variance 1 only",
        "root missing": "divide by its root",
        "half of the variance": "x**1/2 is x / 2",
        "variances outside the root": "√(d_k · var_q · var_k)",
        "var k outside the root": "var_k stands outside",
        "variances added": "the product, not the sum",
        "d k outside the root": "d_k belongs under the root",
        "only var q": "var_k is left out",
        "only var k": "var_q is left out",
        "factor in place of divisor": "the divisor is asked",
        "divided by the variances": "they multiply",
        "d k missing": "d_k is missing",
    },
    "scaled_scores": {
        "not divided by root d k": "not divided by √d_k",
        "divided by d k": "square root is missing",
        "by d k and by 2": "and then by 2",
        "by half of d k": "divided by d_k / 2",
        "multiplied by root d k": "should be divided",
        "divided by root of keys": "the width, the last dimension",
        "divided by root of queries": "from the number of queries",
        "width from dimension 1": "q.shape[-1]",
        "leading dimensions turned": ".T turns all of them",
        "weights in place of scores": "before any softmax",
        "rows are keys": "transposed",
        "width of 64 assumed": "take the width from q",
        "cosines in place of scores": "cosine",
        "divided by measured std": "√d_k is fixed",
    },
    "entropy": {
        "zero weight gives nan": "let it add 0",
        "bits in place of nats": "natural logarithm",
        "minus missing": "needs a minus",
        "added over all rows": "dim=-1",
        "summed over queries": "last dimension",
        "summed over dimension 1": "leading dimensions are free",
        "mean over keys": "sum over the keys",
        "share of the largest": "ln S",
        "logarithms not weighted": "p · ln p",
        "softmax once more": "weights already",
        "terms not added": "sum them over the keys",
        "kept the dimension": "without keepdim",
        "effective number": "e to the entropy",
    },
    "effective_keys": {
        "entropy itself": "raise e to it",
        "power of 2": "it takes e",
        "weights above 0": "counts the weights above 0",
        "participation ratio": "e^H is asked",
        "one over the largest": "largest weight alone",
        "sign turned around": "between 1 and S",
        "share of the keys": "from 1 to S",
        "zero gives nan": "let it add 0",
        "weights above equal share": "no such threshold",
        "mean over queries": "its own number of keys",
    },
    "gradient_norm": {
        "scores as weights": "softmax is missing",
        "diagonal alone": "entries beside it",
        "outer product alone": "diag(p) is missing",
        "diag alone": "ppᵀ is missing",
        "outer product added": "minus",
        "root not taken": "root is not taken",
        "entries added unsquared": "square first",
        "absolute values added": "square the entries",
        "spectral norm": "Frobenius",
        "norm over everything": "Jacobian of its own",
        "softmax over first dimension": "wrong dimension",
        "exponential overflows": "e^1000 overflows",
        "maximum of all rows": "take each row's own",
    },
    "cosine_attention": {
        "not normalised": "not normalised",
        "only queries normalised": "long key",
        "only keys normalised": "long query",
        "multiplied by temperature": "should be divided",
        "divided by root d k as well": "does not grow with the width",
        "temperature not used": "dividing before normalising does nothing",
        "temperature after softmax": "divide the scores",
        "values normalised": "only the comparison",
        "normalised over positions": "a vector is a row",
        "softmax along the queries": "over the keys",
        "weights along dimension 1": "write dim=-1",
        "lengths along dimension 1": "unless told dim=-1",
        "powers overflow": "exp / sum does not",
        "no softmax over cosines": "softmax is missing",
        "zero vector breaks it": "lower limit",
        "weights not applied": "multiply them with the values",
    },
}
