"""6.9: what one tile adds to the gradients of q, k and v."""

import torch

from course_utils.checks import shared_hints
from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def tile_gradients(q, k, v, d_out, lse, delta):
    scale = q.shape[-1] ** -0.5
    scores = q @ k.mT * scale  # (..., B_q, B_k)
    p = (scores - lse[..., None]).exp()  # (..., B_q, B_k), the weights
    d_p = d_out @ v.mT  # (..., B_q, B_k)
    d_s = p * (d_p - delta[..., None])  # (..., B_q, B_k)
    d_q = d_s @ k * scale  # (..., B_q, d_k)
    d_k = d_s.mT @ q * scale  # (..., B_k, d_k)
    d_v = p.mT @ d_out  # (..., B_k, d_v)
    return d_q, d_k, d_v


def by_autograd(q, k, v, d_out, lse, delta):
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    s = q @ k.mT / q.shape[-1] ** 0.5
    p = (s - lse[..., None]).exp().detach()
    ds = p * (d_out @ v.mT - delta[..., None])
    dq, dk = torch.autograd.grad(s, (q, k), ds.detach())
    (dv,) = torch.autograd.grad(p @ v, v, d_out)
    return dq, dk, dv


def inputs():
    normal = normals(69)

    def case(L, S, d_k, d_v, rows, columns, *batch, high=None, dtype=torch.float64):
        q, k = normal(*batch, L, d_k), normal(*batch, S, d_k)
        if high:  # adds high² / √d_k to all scores
            q[..., 0] = k[..., 0] = high
        v, d_out = normal(*batch, S, d_v), normal(*batch, L, d_v)
        scores = q @ k.mT / d_k**0.5
        lse, delta = scores.logsumexp(-1), (d_out * (scores.softmax(-1) @ v)).sum(dim=-1)
        tile = (q[..., rows, :], k[..., columns, :], v[..., columns, :], d_out[..., rows, :])
        return (*(x.to(dtype) for x in (*tile, lse[..., rows], delta[..., rows])),)

    return [
        case(6, 9, 4, 3, slice(0, 5), slice(3, 9)),
        case(7, 8, 3, 5, slice(2, 7), slice(0, 4)),
        case(5, 7, 2, 3, slice(1, 3), slice(4, 7), 2, 3),
        case(4, 6, 9, 2, slice(0, 3), slice(0, 6), dtype=torch.float32),
        case(6, 8, 4, 3, slice(1, 5), slice(0, 5), high=38.0),  # e^lse overflows: it is over 720
        case(3, 4, 2, 3, slice(0, 3), slice(1, 4), 1),  # as many queries as keys; a batch of 1
        case(2, 3, 3, 2, slice(1, 2), slice(2, 3)),
    ]


P = "(scores - lse[..., None]).exp()"

MISTAKES = [
    ("weights of the tile alone", "the weights are a softmax over this tile alone; with the lse of "
     "the whole row they are e^(score − lse)", (P, "scores.softmax(dim=-1)")),
    ("delta missing", "delta is not subtracted: dS = P ∘ (dP − δ)",
     ("(d_p - delta[..., None])", "d_p")),
    ("delta added", "delta is added: dS = P ∘ (dP − δ)", ("d_p - delta", "d_p + delta")),
    ("delta of the tile alone", "δ is summed over this tile's keys; softmax's gradient sums over "
     "the whole row: use the given delta",
     ("delta[..., None]", "(p * d_p).sum(dim=-1, keepdim=True)")),
    ("gradients not scaled", "dQ and dK lack 1/√d_k: the scores are q · k times it, so their "
     "gradients are too", ("d_s @ k * scale", "d_s @ k"), ("q * scale", "q")),
    ("query gradient not scaled", "dQ lacks the factor 1/√d_k that dK has",
     ("d_s @ k * scale", "d_s @ k")),
    ("key gradient not scaled", "dK lacks the factor 1/√d_k that dQ has", ("q * scale", "q")),
    ("weights not scaled", "the scores are not divided by √d_k before lse is subtracted",
     ("k.mT * scale", "k.mT")),
    ("lse not subtracted", "the weights are e^score: lse is not subtracted, so they do not sum to "
     "1", (P, "scores.exp()")),
    ("powers divided", "right while e^score and e^lse fit into a number; where they overflow, ∞ / "
     "∞ is NaN: subtract first, e^(score − lse)", (P, "scores.exp() / lse[..., None].exp()")),
    ("divided by lse", "the weights are e^score / lse; lse is a logarithm: divide by e^lse, that "
     "is e^(score − lse)", (P, "scores.exp() / lse[..., None]")),
    ("scaled by the width of values", shared_hints.BY_D_V, ("q.shape[-1]", "v.shape[-1]")),
    ("sign of the key gradient", "dQ is right, but dK has the wrong sign: dSᵀ q, as dS k",
     ("d_s.mT @ q", "-d_s.mT @ q")),
    ("scale nowhere", "1/√d_k is nowhere: the lesson's tile_backward gets q with it, here q comes "
     "without; the scores, dQ and dK need it", ("k.mT * scale", "k.mT"),
     ("d_s @ k * scale", "d_s @ k"), ("q * scale", "q")),
    ("key gradient scaled twice", "dK has 1/√d_k twice: the q it is made of was scaled already",
     ("q * scale", "q * scale**2")),
    ("delta outside the brackets", "P ∘ (dP − δ) needs its brackets: δ is subtracted before the "
     "product with P", ("p * (d_p - delta[..., None])", "p * d_p - delta[..., None]")),
    ("weights missing", "dS is dP − δ there: P is missing, dS = P ∘ (dP − δ)",
     ("p * (d_p", "(d_p")),
    ("softmax left out", "dS is dP there: between them lies the softmax, dS = P ∘ (dP − δ)",
     ("p * (d_p - delta[..., None])", "d_p")),
    ("softmax taken for a sigmoid", "P (1 − P) is the gradient of a sigmoid; in a softmax a score "
     "also moves all other weights of its row, which δ stands for: dS = P ∘ (dP − δ)",
     ("(d_p - delta[..., None])", "(1 - p) * d_p")),
    ("sigmoid beside delta", "P (1 − P) is the gradient of a sigmoid; δ stands for the row's other "
     "weights already: dS = P ∘ (dP − δ)", ("p * (d_p", "p * (1 - p) * (d_p")),
    ("gradient at the output left out", "P (1 − P) is no gradient yet, and a sigmoid's: dO and v "
     "come in by dP = dO vᵀ, and dS = P ∘ (dP − δ)",
     ("(d_p - delta[..., None])", "(1 - p)")),
    ("sign of the score gradients", "dS has the wrong sign: P ∘ (dP − δ), not P ∘ (δ − dP)",
     ("(d_p - delta[..., None])", "(delta[..., None] - d_p)")),
    ("values by score gradients", "dV = Pᵀ dO: values are mixed by the weights, so by P and not by "
     "dS", ("p.mT", "d_s.mT")),
    ("query and key gradients exchanged", "dQ and dK are exchanged: dS k has a row for each query, "
     "dSᵀ q one for each key", ("d_q, d_k, d_v", "d_k, d_q, d_v")),
    ("gradients scaled twice", "dQ and dK have 1/√d_k twice: the scores have it once, so their "
     "gradients do", ("d_s @ k * scale", "d_s @ k * scale**2"), ("q * scale", "q * scale**2")),
    ("value gradient scaled", "dV has a factor 1/√d_k; that belongs to the scores, and v is not in "
     "them", ("p.mT @ d_out", "p.mT @ d_out * scale")),
    ("lse added", "lse is added where it is to be subtracted: the weights are e^(score − lse)",
     ("scores - lse", "scores + lse")),
    ("power forgotten", "score − lse is the logarithm of a weight: the weight is e to that power",
     (P, "(scores - lse[..., None])")),
    ("divided by d_k", shared_hints.SCALED_TWICE, ("q.shape[-1] ** -0.5", "q.shape[-1] ** -1.0")),
    ("maximum subtracted", "the largest score is subtracted, not lse: the weights of a row then do "
     "not sum to 1; they are e^(score − lse)",
     ("lse[..., None]", "scores.amax(dim=-1, keepdim=True)")),
    ("values by gradients of weights", "dV = Pᵀ dO: values are mixed by the weights, so by P and "
     "not by dP", ("p.mT", "d_p.mT")),
    ("delta scaled", "δ is multiplied by 1/√d_k: it belongs to the weights, before the scores are "
     "reached; dQ and dK alone get the factor",
     ("- delta[..., None]", "- delta[..., None] * scale")),
    ("gradients of weights scaled", "dP is multiplied by 1/√d_k: it belongs to the weights, before "
     "the scores are reached; dQ and dK alone get the factor",
     ("(d_p - delta", "(d_p * scale - delta")),
    ("powers of two", "that is 2^(score − lse): lse is a natural logarithm, and the weights are "
     "e^(score − lse)", ("lse[..., None]).exp()", "lse[..., None]).exp2()")),
]  # fmt: skip

exercise = Exercise(
    "6.9", tile_gradients, inputs, MISTAKES, names="B_q d_k|B_k d_k|B_k d_v",
    also_right=[by_autograd],
)  # fmt: skip
