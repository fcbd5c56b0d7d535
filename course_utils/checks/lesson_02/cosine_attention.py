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
    powers = ((scores - scores.amax(-1, keepdim=True)) / temperature).exp()
    return powers @ v / powers.sum(-1, keepdim=True)


def inputs():
    normal = normals(27)
    pairs = [*queries_and_keys(seed=28), (normal(12, 9), normal(50, 9))]
    zeros = normal(5, 4), normal(7, 4)
    zeros[0][0], zeros[1][2] = 0, 0
    pairs += [zeros, (200 * normal(3, 4), 0.05 * normal(4, 4))]  # lengths have no say
    pairs += [(1e-3 * normal(3, 4), 1e-3 * normal(5, 4))]  # short, as at the start of a training
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
    "Your result is right for long vectors, but not for vectors of length 0.001, which have a "
    "direction too. If you add a number to a length, or limit it, make that 1e-12, as F.normalize "
    "does."
)
MISTAKES = [
    ("not normalised", "q and k are not normalised: the length of a query still changes the "
     "weights", ("F.normalize(q, dim=-1)", "q"), ("F.normalize(k, dim=-1)", "k")),
    ("only queries normalised", "only q is normalised: a long key still wins by its length",
     ("F.normalize(k, dim=-1)", "k")),
    ("only keys normalised", "only k is normalised: a long query still sharpens its weights",
     ("F.normalize(q, dim=-1)", "q")),
    ("multiplied by temperature",
     "multiplied by the temperature where it should be divided: small means sharp",
     ("/ temperature", "* temperature")),
    ("divided by root d k as well",
     "divided by √d_k as well: a cosine does not grow with the width, the temperature is enough",
     ("/ temperature", "/ temperature / q.shape[-1] ** 0.5")),
    ("divided by temperature twice",
     "divided by the squared temperature, as where q and k are divided by it, both: once is enough",
     ("/ temperature", "/ temperature**2")),
    ("divided by the root of the temperature",
     "divided by the root of the temperature; the temperature itself is asked",
     ("/ temperature", "/ temperature**0.5")),
    ("divided by root d k alone",
     "divided by √d_k, as F.scaled_dot_product_attention does by itself, and not by the "
     "temperature: scale=1 / temperature", ("/ temperature", "/ q.shape[-1] ** 0.5")),
    ("divided by squared lengths", "a vector is divided by the sum of its squares; its length is "
     "the root of that",
     ("F.normalize(q, dim=-1)", "q / q.square().sum(dim=-1, keepdim=True).clamp(min=1e-12)"),
     ("F.normalize(k, dim=-1)", "k / k.square().sum(dim=-1, keepdim=True).clamp(min=1e-12)")),
    ("temperature not used",
     "the temperature is not used (or cancels: dividing before normalising does nothing)",
     (" / temperature", "")),
    ("temperature after softmax",
     "the temperature comes after softmax: divide the scores, not the weights",
     (" / temperature", ""), ("weights @ v", "weights @ v / temperature")),
    ("one length for all rows",
     "one length for the whole matrix: each row has its own, F.normalize(q, dim=-1)",
     ("F.normalize(q, dim=-1)", "q / q.norm()"), ("F.normalize(k, dim=-1)", "k / k.norm()")),
    ("cosines turned around", "opposite directions get most of the weight: the sign is turned",
     ("/ temperature", "/ -temperature")),
    ("cosines without sign", LOST_SIGN, ("scores.softmax", "scores.abs().softmax")),
    ("values normalised", "the values are normalised too: only the comparison is by direction",
     ("@ v", "@ F.normalize(v, dim=-1)")),
    ("normalised over positions", "normalised over the wrong dimension: a vector is a row, dim=-1",
     ("(q, dim=-1)", "(q, dim=-2)"), ("(k, dim=-1)", "(k, dim=-2)")),
    ("lengths along dimension 1",
     "right for matrices, wrong with leading dimensions: F.normalize takes dimension 1 unless told "
     "dim=-1", ("(q, dim=-1)", "(q)"), ("(k, dim=-1)", "(k)")),
    ("weights along dimension 1",
     "right for matrices; of four dimensions softmax runs over the second, as F.softmax does "
     "without dim: write dim=-1", ("softmax(dim=-1)", "softmax(dim=1)")),
    ("powers overflow",
     "at a small temperature e^(cosine / temperature) is infinite or 0, and the weights are NaN; "
     "torch.softmax takes care of it, exp / sum does not",
     ("scores.softmax(dim=-1)", "scores.exp() / scores.exp().sum(dim=-1, keepdim=True)")),
    ("softmax along the queries", OVER_QUERIES, ("softmax(dim=-1)", "softmax(dim=-2)")),
    ("no softmax over cosines", "softmax is missing: cosines of any sign are no weights",
     ("scores.softmax(dim=-1)", "scores")),
    ("zero vector breaks it",
     "a zero vector gives NaN (0 / 0): give its length a lower limit, as F.normalize does",
     ("F.normalize(q, dim=-1)", "q / q.norm(dim=-1, keepdim=True)"),
     ("F.normalize(k, dim=-1)", "k / k.norm(dim=-1, keepdim=True)")),
    ("zero vector erased",
     "Your weights are 0 where a zero vector took part, or whole rows are. Its cosine should be 0, "
     "and softmax still gives it a weight. Replace NaN in the cosines, before softmax.",
     ("F.normalize(q, dim=-1)", "q / q.norm(dim=-1, keepdim=True)"),
     ("F.normalize(k, dim=-1)", "k / k.norm(dim=-1, keepdim=True)"),
     ("scores.softmax(dim=-1)", "scores.softmax(dim=-1).nan_to_num()")),
    ("zero query breaks it",
     "a query of zeros gives NaN (0 / 0): give its length a lower limit, too, as F.normalize does",
     ("F.normalize(q, dim=-1)", "q / q.norm(dim=-1, keepdim=True)")),
    ("weights not applied", WEIGHTS_ALONE, ("weights @ v", "weights")),
]  # fmt: skip

exercise = Exercise(
    "2.7", cosine_attention, inputs, MISTAKES, names="L d_v", run=mixtures, differentiable=True,
    also_right=[by_sdpa, by_hand],
)  # fmt: skip
