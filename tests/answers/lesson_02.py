import math

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


def gradient_norm_by_power_sums(scores):
    p = scores.double().softmax(-1)
    squares = p.pow(2).sum(-1)
    return (squares - 2 * p.pow(3).sum(-1) + squares**2).clamp(min=0).sqrt()


def cosine_by_sdpa(q, k, v, temperature):
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    return F.scaled_dot_product_attention(q, k, v, scale=1 / temperature)


def cosine_by_hand(q, k, v, temperature):
    lengths = q.norm(dim=-1)[..., :, None] * k.norm(dim=-1)[..., None, :]
    scores = torch.einsum("...ld,...sd->...ls", q, k) / lengths.clamp(min=1e-9)
    powers = ((scores - scores.amax(-1, keepdim=True)) / temperature).exp()
    return powers @ v / powers.sum(-1, keepdim=True)


def cosine_by(directions):
    """Return attention by cosines, with a function of one's own that divides by lengths."""

    def answer(q, k, v, temperature):
        return F.softmax(directions(q) @ directions(k).mT / temperature, dim=-1) @ v

    return answer


def near_by_differences(q, k, v):
    scores = -(q[..., :, None, :] - k[..., None, :, :]).square().sum(dim=-1)
    return F.softmax(scores / math.sqrt(6 * q.shape[-1]), dim=-1) @ v


def near_without_the_query(q, k, v):
    """The query's own square, the same for all keys, left out."""
    scores = (q @ k.mT - k.square().sum(-1)[..., None, :] / 2) * (2 / (3 * q.shape[-1])) ** 0.5
    return scores.softmax(dim=-1) @ v


def near_by_sdpa(q, k, v):
    wide_q, wide_k = F.pad(q, (0, 1), value=-0.5), torch.cat([k, (k * k).sum(-1, True)], -1)
    return F.scaled_dot_product_attention(wide_q, wide_k, v, scale=2 / (6 * q.size(-1)) ** 0.5)


RIGHT = {
    "score_variance": [
        variance_by_hand,
        lambda q, k: torch.var(torch.diagonal(q @ k.T)),
        lambda q, k: float(np.var(np.einsum("nd,nd->n", q.numpy(), k.numpy()), ddof=1)),
    ],
    "right_divisor": [
        lambda d_k, var_q, var_k: math.sqrt(d_k) * math.sqrt(var_q) * math.sqrt(var_k),
        lambda d_k, var_q, var_k: np.sqrt(np.float32(d_k * var_q * var_k)),
    ],
    "scaled_scores": [
        scores_with_q_scaled_in_loops,
        lambda q, k: (q * q.shape[-1] ** -0.25) @ (k * k.shape[-1] ** -0.25).transpose(-1, -2),
        lambda q, k: torch.einsum("...ld,...sd->...ls", q, k) / k.shape[-1] ** 0.5,
        lambda q, k: (q.double() @ k.double().mT / q.shape[-1] ** 0.5).float(),
    ],
    "entropy": [
        entropy_by_loops,
        entropy_in_numpy,
        lambda weights: torch.distributions.Categorical(probs=weights).entropy(),
        lambda weights: -(weights * (weights + 1e-9).log()).sum(-1),
        lambda weights: -(weights * weights.log()).nan_to_num().sum(-1),
    ],
    "effective_keys": [
        lambda weights: entropy_by_loops(weights).exp(),
        lambda weights: 2 ** -(weights * (weights + 1e-12).log2()).sum(-1),
    ],
    "gradient_norm": [
        gradient_norm_by_autograd,
        gradient_norm_by_hand,
        gradient_norm_by_power_sums,
        lambda scores: torch.linalg.matrix_norm(
            torch.diag_embed(p := F.softmax(scores, -1)) - p.unsqueeze(-1) * p.unsqueeze(-2)
        ),
    ],
    "cosine_attention": [
        cosine_by_sdpa,
        cosine_by_hand,
        cosine_by(lambda x: x / (x.norm(dim=-1, keepdim=True) + 1e-8)),
        cosine_by(lambda x: x * (x.square().sum(-1, keepdim=True) + 1e-12).rsqrt()),
    ],
    "attention_by_distance": [near_by_differences, near_without_the_query, near_by_sdpa],
}


def changes_the_scores(q, k):
    q /= q.shape[-1] ** 0.5
    return q @ k.mT


def entropy_by_view(weights):
    terms = torch.special.entr(weights.view(-1, weights.shape[-1]))
    return terms.sum(-1).view(weights.shape[:-1])


def cosine_of_matrices(q, k, v, temperature):
    L, d_k = q.shape
    return cosine_by_sdpa(q, k, v, temperature)


def scaled_by_the_query(q, k, v):
    """Each query's scores by their own expected spread: the divisor is no function of d_k alone."""
    d_k = q.shape[-1]
    spread = (4 * q.square().sum(-1, keepdim=True) + 2 * d_k).sqrt()
    return (-(torch.cdist(q, k) ** 2) / spread).softmax(-1) @ v


def rounded(q, k, v):
    return (-torch.cdist(q, k).square() / (2.45 * q.shape[-1] ** 0.5)).softmax(-1) @ v


WRONG = [
    ("score_variance", None, lambda q, k: (q * k).sum(1)),
    ("right_divisor", None, lambda d_k, var_q, var_k: math.sqrt(d_k * min(var_q, var_k))),
    ("scaled_scores", "changes its input", changes_the_scores),
    ("scaled_scores", "wrong gradients", lambda q, k: q @ k.detach().mT / q.shape[-1] ** 0.5),
    ("scaled_scores", None, lambda q, k: (q @ k.mT / q.shape[-1] ** 0.5).squeeze()),
    ("scaled_scores", None, lambda q, k: q @ k.mT / 2),
    ("entropy", None, lambda w: -(w * (w + 0.001).log()).sum(-1)),  # an epsilon that is too large
    ("entropy", "epsilon in the logarithm", lambda w: -(w * (w + 1e-6).log()).sum(-1)),
    ("entropy", "added over all rows", lambda w: entropy_by_loops(w).sum().item()),
    ("entropy", None, entropy_by_view),
    ("effective_keys", "epsilon in the logarithm", lambda w: (w + 1e-6).pow(-w).prod(-1)),
    ("effective_keys", None, lambda w: torch.special.entr(w).sum(-1).exp().round()),
    ("effective_keys", None, lambda w: entropy_by_loops(w).sum().exp().item()),
    ("gradient_norm", None, lambda s: gradient_norm_by_hand(s.clamp(-50, 50))),
    ("gradient_norm", None, lambda s: gradient_norm_by_hand(s).squeeze()),
    ("cosine_attention", None, cosine_of_matrices),
    ("cosine_attention", None, cosine_by(lambda x: x / x.norm(dim=-1))),
    (
        "cosine_attention",
        "wrong gradients",
        cosine_by(lambda x: (x / x.norm(dim=-1, keepdim=True)).nan_to_num()),
    ),
    (
        "cosine_attention",
        "wrong gradients",
        cosine_by(lambda x: x / x.norm(dim=-1, keepdim=True).clamp(min=1e-8).detach()),
    ),
    ("attention_by_distance", "wrong gradients", lambda q, k, v: near_by_sdpa(q, k.detach(), v)),
    ("attention_by_distance", None, lambda q, k, v: near_by_differences(q / 1.1, k / 1.1, v)),
    ("attention_by_distance", "rounded", rounded),
    ("attention_by_distance", "by each query's expected spread", scaled_by_the_query),
]
