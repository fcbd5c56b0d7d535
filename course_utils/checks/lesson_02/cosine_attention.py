"""2.7: attention by direction alone: cosines, divided by a temperature."""

import torch
import torch.nn.functional as F

from course_utils.checks.compare import difference
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import normals, queries_and_keys
from course_utils.checks.shared_hints import OVER_QUERIES, WEIGHTS_ALONE


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
    scores = torch.einsum("...ld,...sd->...ls", q, k) / lengths.clamp(min=1e-12)
    exponentials = ((scores - scores.amax(-1, keepdim=True)) / temperature).exp()
    return exponentials @ v / exponentials.sum(-1, keepdim=True)


def inputs():
    normal = normals(27)
    pairs = [*queries_and_keys(seed=28), (normal(12, 9), normal(50, 9))]
    zeros = normal(5, 4), normal(7, 4)
    zeros[0][0], zeros[1][2] = 0, 0
    pairs += [zeros, (200 * normal(3, 4), 0.05 * normal(4, 4))]  # lengths must not matter
    pairs += [(1e-6 * normal(3, 4), 1e-3 * normal(5, 4))]  # short, as after a small initialization
    pairs += [(normal(4, 3), normal(4, 3))]
    # e^(cosine / 0.0005) overflows
    temperatures = [0.1, 0.5, 2.0, 0.25, 0.0005, 1.5, 3.0, 0.7, 0.2, 0.3, 0.4, 0.6]
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
    "Your result is right for vectors of ordinary norm, but not for vectors of norm 0.001 or "
    "less, which have a direction too. If you add a small number to a norm, or clamp the norms "
    "from below, use 1e-12, as F.normalize does."
)
MISTAKES = [
    ("zero keys forbidden",
     "Your result is right, except for a zero key, which gets weight 0. Its cosine with every "
     "query is 0, which is a score like any other. Keep this key in the softmax.",
     ("weights = scores.softmax",
      "scores = scores.masked_fill(~k.any(dim=-1)[..., None, :], -torch.inf)\n"
      "    weights = scores.softmax")),
    ("zero output for a zero query",
     "Your result is right, except for a zero query, where your output is 0. All cosines of "
     "this query are 0, so its weights are uniform. For this query, return the mean of the "
     "values.",
     ("return weights @ v", "return weights * q.any(dim=-1)[..., None] @ v")),
    ("squared distance of unit vectors",
     "Your scores are too large by a factor of 2: they are 2 · cosine / temperature. Leave out "
     "the factor 2. If you use the squared distance between the unit vectors, which is 2 − 2 · "
     "cosine, halve it.",
     ("/ temperature", "/ temperature * 2")),
    ("not normalized",
     "Your weights still depend on the norms of q and k. Normalize both, so that only their "
     "directions count.",
     ("F.normalize(q, dim=-1)", "q"), ("F.normalize(k, dim=-1)", "k")),
    ("only queries normalized",
     "Only q is normalized in your result, so the scores still grow with the norm of a key. "
     "Normalize k as well.",
     ("F.normalize(k, dim=-1)", "k")),
    ("only keys normalized",
     "Only k is normalized in your result, so a query of larger norm still has sharper weights. "
     "Normalize q as well.",
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
     "Your cosines are divided by the square of the temperature. Divide by the temperature only "
     "once. If you divide both q and k by the temperature, divide only one of them.",
     ("/ temperature", "/ temperature**2")),
    ("divided by the root of the temperature",
     "Your cosines are divided by the square root of the temperature. Divide by the temperature "
     "itself.",
     ("/ temperature", "/ temperature**0.5")),
    ("divided by root d k alone",
     "Your cosines are divided by √d_k and not by the temperature. Divide them by the "
     "temperature only. If you use F.scaled_dot_product_attention, pass scale=1 / temperature, "
     "because its default is 1 / √d_k.",
     ("/ temperature", "/ q.shape[-1] ** 0.5")),
    ("divided by squared lengths",
     "Your vectors are divided by their squared norms. A norm is the square root of the sum of "
     "squares, so divide by that square root.",
     ("F.normalize(q, dim=-1)", "q / q.square().sum(dim=-1, keepdim=True).clamp(min=1e-12)"),
     ("F.normalize(k, dim=-1)", "k / k.square().sum(dim=-1, keepdim=True).clamp(min=1e-12)")),
    ("temperature not used",
     "The temperature has no effect on your result. If you divide q or k by the temperature "
     "before you normalize, it cancels. Divide the cosines by the temperature.",
     (" / temperature", "")),
    ("temperature after softmax",
     "Your weights are divided by the temperature, after softmax. Divide the cosines by the "
     "temperature, before softmax.",
     (" / temperature", ""), ("weights @ v", "weights @ v / temperature")),
    ("one length for all rows",
     "Your q is divided by one norm for all its rows, and so is k. Each row is a vector with a "
     "norm of its own. Use F.normalize with dim=-1.",
     ("F.normalize(q, dim=-1)", "q / q.norm()"), ("F.normalize(k, dim=-1)", "k / k.norm()")),
    ("cosines with the wrong sign",
     "You give the most weight to keys that point away from the query. Change the sign of the "
     "cosines.",
     ("/ temperature", "/ -temperature")),
    ("cosines without sign",
     "Your negative cosines have lost their sign, so a key that points away from the query gets a "
     "large weight. Keep the sign. If you use abs, remove it.",
     ("scores.softmax", "scores.abs().softmax")),
    ("values normalized",
     "Your values are normalized too. Only q and k are compared by direction. Mix the values as "
     "they are.",
     ("@ v", "@ F.normalize(v, dim=-1)")),
    ("normalized over positions",
     "Your vectors are normalized along dimension −2, over the positions. Each vector is a row, "
     "so use dim=-1.",
     ("(q, dim=-1)", "(q, dim=-2)"), ("(k, dim=-1)", "(k, dim=-2)")),
    ("lengths along dimension 1",
     "Your result is right for matrices. With leading dimensions, your vectors are normalized "
     "along dimension 1, which is not the width. F.normalize without dim does this. Use dim=-1.",
     ("(q, dim=-1)", "(q)"), ("(k, dim=-1)", "(k)")),
    ("weights along dimension 1",
     "Your result is right for matrices. With more dimensions, your softmax runs over dimension "
     "1, which no longer holds the keys. Use dim=-1.",
     ("softmax(dim=-1)", "softmax(dim=1)")),
    ("exponentials overflow",
     "Right, except at a small temperature, where your result is NaN. If you compute exp / sum, "
     "e^(cosine / temperature) overflows to inf, and inf / inf is NaN. Use torch.softmax, which "
     "subtracts the largest score first.",
     ("scores.softmax(dim=-1)", "scores.exp() / scores.exp().sum(dim=-1, keepdim=True)")),
    ("softmax along the queries", OVER_QUERIES, ("softmax(dim=-1)", "softmax(dim=-2)")),
    ("no softmax over cosines",
     "You use the cosines themselves as weights. Cosines can be negative, and they do not sum to "
     "1. Apply softmax to the cosines first.",
     ("scores.softmax(dim=-1)", "scores")),
    ("zero vector breaks it",
     "Right, except where a vector is zero: there your result is NaN. If you divide a zero vector "
     "by its norm, 0 / 0 is NaN. Clamp all norms from below at 1e-12, as F.normalize does.",
     ("F.normalize(q, dim=-1)", "q / q.norm(dim=-1, keepdim=True)"),
     ("F.normalize(k, dim=-1)", "k / k.norm(dim=-1, keepdim=True)")),
    ("zero vector erased",
     "Right, except where a vector is zero: there your outputs are 0. If you divide a zero vector "
     "by its norm, 0 / 0 is NaN. Softmax then makes the whole row of weights NaN, and if you "
     "replace NaN after softmax, you erase the row. Replace NaN in the cosines, before softmax.",
     ("F.normalize(q, dim=-1)", "q / q.norm(dim=-1, keepdim=True)"),
     ("F.normalize(k, dim=-1)", "k / k.norm(dim=-1, keepdim=True)"),
     ("scores.softmax(dim=-1)", "scores.softmax(dim=-1).nan_to_num()")),
    ("zero query breaks it",
     "Right, except for a query of zeros, where your result is NaN. If you divide a zero query by "
     "its norm, 0 / 0 is NaN. Clamp the norms of the queries from below at 1e-12, as F.normalize "
     "does.",
     ("F.normalize(q, dim=-1)", "q / q.norm(dim=-1, keepdim=True)")),
    ("weights not applied", WEIGHTS_ALONE, ("weights @ v", "weights")),
    ("softmax without a dimension",
     "Your result is right for matrices. With three dimensions, your softmax runs along "
     "dimension 0, and with four along dimension 1. F.softmax does this if you leave out dim. "
     "Pass dim=-1, the dimension of the keys.",
     ("softmax(dim=-1)", "softmax(dim=0 if scores.ndim == 3 else 1)")),
]  # fmt: skip

exercise = Exercise(
    "2.7", cosine_attention, inputs, MISTAKES, names="L d_v", run=mixtures, differentiable=True,
    also_right=[by_sdpa, by_hand],
)  # fmt: skip
