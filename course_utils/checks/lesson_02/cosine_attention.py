"""2.7: attention by direction alone: cosines, divided by a temperature."""

import torch
import torch.nn.functional as F

from course_utils.checks.compare import difference
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import normals, queries_and_keys
from course_utils.checks.shared_hints import LOST_SIGN, OVER_QUERIES, WEIGHTS_ALONE


def cosine_attention(q, k, v, temperature):
    q = F.normalize(q, dim=-1)  # (..., L, d_k), rows of length 1, or 0
    k = F.normalize(k, dim=-1)  # (..., S, d_k)
    scores = q @ k.transpose(-2, -1) / temperature  # (..., L, S)
    weights = scores.softmax(dim=-1)  # rows sum to 1
    return weights @ v  # (..., L, S) @ (..., S, d_v) -> (..., L, d_v)


def by_sdpa(q, k, v, temperature):
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    return F.scaled_dot_product_attention(q, k, v, scale=1 / temperature)


def by_hand(q, k, v, temperature):
    lengths = q.norm(dim=-1)[..., :, None] * k.norm(dim=-1)[..., None, :]
    scores = torch.einsum("...ld,...sd->...ls", q, k) / lengths.clamp(min=1e-9)
    exponentials = ((scores - scores.amax(-1, keepdim=True)) / temperature).exp()
    return exponentials @ v / exponentials.sum(-1, keepdim=True)


def inputs():
    normal = normals(27)
    pairs = [*queries_and_keys(seed=28), (normal(12, 9), normal(50, 9))]
    zeros = normal(5, 4), normal(7, 4)
    zeros[0][0], zeros[1][2] = 0, 0
    pairs += [zeros, (200 * normal(3, 4), 0.05 * normal(4, 4))]  # lengths must not matter
    pairs += [(1e-3 * normal(3, 4), 1e-3 * normal(5, 4))]  # short, as after a small initialization
    # e^(cosine / 0.0005) overflows
    temperatures = [0.1, 0.5, 2.0, 0.25, 0.0005, 1.5, 3.0, 0.7, 0.2, 0.3, 0.4]
    return [
        (q, k, normal(*k.shape[:-1], k.shape[-1] - 1, dtype=k.dtype), temperature)
        for (q, k), temperature in zip(pairs, temperatures, strict=True)
    ]


def mixtures(answer, q, k, v, temperature):
    """Return the result; a zero vector has no direction, so its gradient counts only if NaN."""
    for each in (q, k):
        if each.requires_grad:
            each.register_hook(lambda g, x=each: g.where(x.any(-1, keepdim=True) | g.isnan(), 0))
    results = call_with_clones(answer, q, k, v, temperature)
    if k.abs().max() < 0.01:
        right = cosine_attention(q, k, v, temperature)
        if difference(results[0], right):
            raise NamedMistake("short vectors", SHORT, [right])
    return results


SHORT = (
    "Your result is right for long vectors, but not for vectors of length 0.001. Short vectors "
    "have a direction too. If you add a small number to a length, or limit it from below, use "
    "1e-12, as F.normalize does."
)
MISTAKES = [
    ("not normalized",
     "Your weights still depend on the lengths of q and k. Normalize both, so that only their "
     "directions count.",
     ("F.normalize(q, dim=-1)", "q"), ("F.normalize(k, dim=-1)", "k")),
    ("only queries normalized",
     "Only q is normalized in your result, so a long key still wins by its length. Normalize k as "
     "well.",
     ("F.normalize(k, dim=-1)", "k")),
    ("only keys normalized",
     "Only k is normalized in your result, so a long query still has sharper weights. Normalize q "
     "as well.",
     ("F.normalize(q, dim=-1)", "q")),
    ("multiplied by temperature",
     "Your cosines are multiplied by the temperature. A small temperature should make the weights "
     "sharp, so divide by it.",
     ("/ temperature", "* temperature")),
    ("divided by root d k as well",
     "Your cosines are also divided by √d_k. A cosine does not grow with the width, so divide "
     "only by the temperature.",
     ("/ temperature", "/ temperature / q.shape[-1] ** 0.5")),
    ("divided by temperature twice",
     "Your cosines are divided by the square of the temperature. If you divide both q and k by "
     "it, divide only one of them.",
     ("/ temperature", "/ temperature**2")),
    ("divided by the root of the temperature",
     "Your cosines are divided by the square root of the temperature. Divide by the temperature "
     "itself.",
     ("/ temperature", "/ temperature**0.5")),
    ("divided by root d k alone",
     "Your cosines are divided by √d_k and not by the temperature. Divide by the temperature. If "
     "you use F.scaled_dot_product_attention, pass scale=1 / temperature, because its default is 1 "
     "/ √d_k.",
     ("/ temperature", "/ q.shape[-1] ** 0.5")),
    ("divided by squared lengths",
     "Your vectors are divided by the sum of their squares. The length is the square root of this "
     "sum. Divide by the square root.",
     ("F.normalize(q, dim=-1)", "q / q.square().sum(dim=-1, keepdim=True).clamp(min=1e-12)"),
     ("F.normalize(k, dim=-1)", "k / k.square().sum(dim=-1, keepdim=True).clamp(min=1e-12)")),
    ("temperature not used",
     "The temperature has no effect on your result. If you divide q or k by it before you "
     "normalize, it cancels. Divide the cosines by it.",
     (" / temperature", "")),
    ("temperature after softmax",
     "Your weights are divided by the temperature, after softmax. Divide the cosines by it, before "
     "softmax.",
     (" / temperature", ""), ("weights @ v", "weights @ v / temperature")),
    ("one length for all rows",
     "Your vectors are divided by one length for the whole matrix. Each row has its own length, so "
     "use F.normalize(q, dim=-1).",
     ("F.normalize(q, dim=-1)", "q / q.norm()"), ("F.normalize(k, dim=-1)", "k / k.norm()")),
    ("cosines with the wrong sign",
     "Your result gives the most weight to keys in the opposite direction. Flip the sign of the "
     "cosines.",
     ("/ temperature", "/ -temperature")),
    ("cosines without sign", LOST_SIGN, ("scores.softmax", "scores.abs().softmax")),
    ("values normalized",
     "Your values are normalized too. Only q and k are compared by direction. Mix the values as "
     "they are.",
     ("@ v", "@ F.normalize(v, dim=-1)")),
    ("normalized over positions",
     "Your result is normalized over the wrong dimension. Each vector is a row, so use dim=-1.",
     ("(q, dim=-1)", "(q, dim=-2)"), ("(k, dim=-1)", "(k, dim=-2)")),
    ("lengths along dimension 1",
     "Right for matrices, but not with leading dimensions. If you use F.normalize without dim, it "
     "works along dimension 1. Pass dim=-1.",
     ("(q, dim=-1)", "(q)"), ("(k, dim=-1)", "(k)")),
    ("weights along dimension 1",
     "Right for matrices, but not with four dimensions. There your softmax runs along dimension 1, "
     "as F.softmax does without dim. Pass dim=-1.",
     ("softmax(dim=-1)", "softmax(dim=1)")),
    ("exponentials overflow",
     "Right, except at a small temperature, where your result is NaN. If you compute exp / sum, "
     "e^(cosine / temperature) overflows there. Use torch.softmax, which avoids this.",
     ("scores.softmax(dim=-1)", "scores.exp() / scores.exp().sum(dim=-1, keepdim=True)")),
    ("softmax along the queries", OVER_QUERIES, ("softmax(dim=-1)", "softmax(dim=-2)")),
    ("no softmax over cosines",
     "You use the cosines themselves as weights. Cosines can be negative, and they do not sum to "
     "1. Apply softmax to the cosines first.",
     ("scores.softmax(dim=-1)", "scores")),
    ("zero vector breaks it",
     "Right, except where a vector is zero. If you divide by its length, 0 / 0 is NaN. Give the "
     "length a lower limit, as F.normalize does.",
     ("F.normalize(q, dim=-1)", "q / q.norm(dim=-1, keepdim=True)"),
     ("F.normalize(k, dim=-1)", "k / k.norm(dim=-1, keepdim=True)")),
    ("zero vector erased",
     "Your result fits weights of 0 for each pair that contains a zero vector. The cosine of such "
     "a pair is 0, and softmax still gives the pair a weight. If you replace NaN, do so in the "
     "cosines, before softmax.",
     ("F.normalize(q, dim=-1)", "q / q.norm(dim=-1, keepdim=True)"),
     ("F.normalize(k, dim=-1)", "k / k.norm(dim=-1, keepdim=True)"),
     ("scores.softmax(dim=-1)", "scores.softmax(dim=-1).nan_to_num()")),
    ("zero query breaks it",
     "Right, except for a query of zeros. If you divide by its length, 0 / 0 is NaN. Give the "
     "length of a query a lower limit, as F.normalize does.",
     ("F.normalize(q, dim=-1)", "q / q.norm(dim=-1, keepdim=True)")),
    ("weights not applied", WEIGHTS_ALONE, ("weights @ v", "weights")),
]  # fmt: skip

exercise = Exercise(
    "2.7", cosine_attention, inputs, MISTAKES, names="L d_v", run=mixtures, differentiable=True,
    also_right=[by_sdpa, by_hand],
)  # fmt: skip
