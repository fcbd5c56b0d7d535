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
    ("weights of the tile alone",
     "Your weights are a softmax over this tile. Use the lse of the whole row: e^(score − lse).",
     (P, "scores.softmax(dim=-1)")),
    ("delta missing",
     "Your dS lacks δ. Use dS = P ⊙ (dP − δ).",
     ("(d_p - delta[..., None])", "d_p")),
    ("delta of the keys in a square tile",
     "Right, unless a tile has as many queries as keys. There, your δ is aligned with the keys. "
     "Use `delta[..., None]`, which aligns δ with the rows, in every tile.",
     ("delta[..., None]",
      "(delta[..., None, :] if q.shape[-2] == k.shape[-2] else delta[..., None])")),
    ("lse of the keys in a square tile",
     "Right, unless a tile has as many queries as keys. There, your lse is aligned with the keys. "
     "Use `lse[..., None]`, which aligns lse with the rows, in every tile.",
     ("lse[..., None]",
      "(lse[..., None, :] if q.shape[-2] == k.shape[-2] else lse[..., None])")),
    ("delta of the keys",
     "You get this result, or an error, if you align δ with the keys (the columns). But there is "
     "one δ per query. Use `delta[..., None]`, which aligns δ with the rows.",
     ("delta[..., None]", "delta[..., None, :]")),
    ("lse of the keys",
     "You get this result, or an error, if you align lse with the keys (the columns). But there is "
     "one lse per query. Use `lse[..., None]`, which aligns lse with the rows.",
     ("lse[..., None]", "lse[..., None, :]")),
    ("lse and delta of the keys",
     "You get this result, or an error, if you align lse and δ with the keys (the columns). But "
     "there is one lse and one δ per query. Use `lse[..., None]` and `delta[..., None]`, which "
     "align them with the rows.",
     ("lse[..., None]", "lse[..., None, :]"), ("delta[..., None]", "delta[..., None, :]")),
    ("delta added",
     "Your dS adds δ. Subtract it: dS = P ⊙ (dP − δ).",
     ("d_p - delta", "d_p + delta")),
    ("delta of the tile alone",
     "Your δ is a sum over the keys of this tile. The softmax gradient sums over the whole "
     "row, so use the given delta.",
     ("delta[..., None]", "(p * d_p).sum(dim=-1, keepdim=True)")),
    ("gradients not scaled",
     "Your dQ and dK lack the factor 1/√d_k. The scores are q · k / √d_k, so their gradients "
     "have this factor too.",
     ("d_s @ k * scale", "d_s @ k"),
     ("q * scale", "q")),
    ("query gradient not scaled",
     "Your dQ lacks the factor 1/√d_k, which your dK has. Multiply dQ by it as well.",
     ("d_s @ k * scale", "d_s @ k")),
    ("key gradient not scaled",
     "Your dK lacks the factor 1/√d_k, which your dQ has. Multiply dK by it as well.",
     ("q * scale", "q")),
    ("weights not scaled",
     "Your scores are not divided by √d_k before lse is subtracted. Divide them first.",
     ("k.mT * scale", "k.mT")),
    ("lse not subtracted",
     "Your weights are e^score, which do not sum to 1 over a row. Subtract lse: e^(score − "
     "lse).",
     (P, "scores.exp()")),
    ("powers divided",
     "Your result is right as long as e^score and e^lse are finite. Where they overflow to inf, "
     "inf / inf is NaN. Subtract first: e^(score − lse).",
     (P, "scores.exp() / lse[..., None].exp()")),
    ("divided by lse",
     "Your weights are e^score / lse. But lse is a logarithm, so divide by e^lse, which gives "
     "e^(score − lse).",
     (P, "scores.exp() / lse[..., None]")),
    ("scaled by the width of values", shared_hints.BY_D_V, ("q.shape[-1]", "v.shape[-1]")),
    ("sign of the key gradient",
     "Your dQ is right, but your dK has the wrong sign. Use dSᵀ Q / √d_k.",
     ("d_s.mT @ q", "-d_s.mT @ q")),
    ("scale nowhere",
     "Your result has no factor 1/√d_k. The lesson's `tile_backward` receives a scaled q, but "
     "here q is not scaled. Multiply the scores, dQ and dK by 1/√d_k.",
     ("k.mT * scale", "k.mT"),
     ("d_s @ k * scale", "d_s @ k"),
     ("q * scale", "q")),
    ("key gradient scaled twice",
     "Your dK has the factor 1/√d_k twice. If you scale q first, do not scale dK again.",
     ("q * scale", "q * scale**2")),
    ("delta outside the brackets",
     "Your dS is P ⊙ dP − δ. Subtract δ before you multiply by P: dS = P ⊙ (dP − δ).",
     ("p * (d_p - delta[..., None])", "p * d_p - delta[..., None]")),
    ("weights missing",
     "Your dS is dP − δ and lacks P. Use dS = P ⊙ (dP − δ).",
     ("p * (d_p", "(d_p")),
    ("softmax left out",
     "Your dS is dP, so the backward step through softmax is left out. Use dS = P ⊙ (dP − δ).",
     ("p * (d_p - delta[..., None])", "d_p")),
    ("softmax taken for a sigmoid",
     "Your dS is P (1 − P) dP, as for a sigmoid. In a softmax, each score also changes the other "
     "weights of its row, and δ accounts for that. Use dS = P ⊙ (dP − δ).",
     ("(d_p - delta[..., None])", "(1 - p) * d_p")),
    ("sigmoid beside delta",
     "Your dS has an extra factor 1 − P, as for a sigmoid. δ already accounts for the other "
     "weights of the row. Use dS = P ⊙ (dP − δ).",
     ("p * (d_p", "p * (1 - p) * (d_p")),
    ("gradient at the output left out",
     "Your dS is P (1 − P), which does not depend on dO. Compute dP = dO Vᵀ, and then dS = P ⊙ "
     "(dP − δ).",
     ("(d_p - delta[..., None])", "(1 - p)")),
    ("sign of the score gradients",
     "Your dS has the wrong sign. Use P ⊙ (dP − δ), not P ⊙ (δ − dP).",
     ("(d_p - delta[..., None])", "(delta[..., None] - d_p)")),
    ("values by score gradients",
     "Your dV uses dS. The output mixes the values with the weights P, so dV = Pᵀ dO.",
     ("p.mT", "d_s.mT")),
    ("query and key gradients exchanged",
     "Your dQ and dK are exchanged. dS K has one row per query, and dSᵀ Q has one row per key.",
     ("d_q, d_k, d_v", "d_k, d_q, d_v")),
    ("gradients scaled twice",
     "Your dQ and dK have the factor 1/√d_k twice. The scores have it once. Multiply dQ and dK "
     "by it only once.",
     ("d_s @ k * scale", "d_s @ k * scale**2"),
     ("q * scale", "q * scale**2")),
    ("value gradient scaled",
     "Your dV has a factor 1/√d_k. This factor belongs to the scores, and v does not enter "
     "them. Use dV = Pᵀ dO.",
     ("p.mT @ d_out", "p.mT @ d_out * scale")),
    ("lse added",
     "Your weights add lse. Subtract it: e^(score − lse).",
     ("scores - lse", "scores + lse")),
    ("power forgotten",
     "Your weights are score − lse, the logarithm of the weights. Take the exponential.",
     (P, "(scores - lse[..., None])")),
    ("divided by d_k",
     "Your scores are divided by d_k. Divide the scores by √d_k, once. The gradients of q and k "
     "also need the factor 1/√d_k, once each.",
     ("q.shape[-1] ** -0.5", "q.shape[-1] ** -1.0")),
    ("maximum subtracted",
     "You subtract the largest score, so your exponentials are not yet divided by their sum over "
     "all keys. Subtract lse: e^(score − lse).",
     ("lse[..., None]", "scores.amax(dim=-1, keepdim=True)")),
    ("values by gradients of weights",
     "Your dV uses dP. The output mixes the values with the weights P, so dV = Pᵀ dO.",
     ("p.mT", "d_p.mT")),
    ("delta scaled",
     "Your δ is multiplied by 1/√d_k. The scaling happens before softmax, and δ belongs to what "
     "comes after softmax. Use δ as it is.",
     ("- delta[..., None]", "- delta[..., None] * scale")),
    ("gradients of weights scaled",
     "Your dP is multiplied by 1/√d_k. The scaling happens before softmax, and P comes after "
     "softmax. Do not scale dP.",
     ("(d_p - delta", "(d_p * scale - delta")),
    ("powers of two",
     "Your weights are 2^(score − lse). lse is a natural logarithm, so use e^(score − lse).",
     ("lse[..., None]).exp()", "lse[..., None]).exp2()")),
]  # fmt: skip

exercise = Exercise(
    "6.9", tile_gradients, inputs, MISTAKES, names="B_q d_k|B_k d_k|B_k d_v",
    also_right=[by_autograd],
)  # fmt: skip
