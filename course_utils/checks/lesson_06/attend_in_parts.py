"""6.5: attention over parts of the keys, joined by their log-sum-exps."""

import torch

from course_utils.attention import merge
from course_utils.checks import shared_hints
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import Shapes, normals, out_of_order
from course_utils.checks.lesson_06._tiles import scores_are_kept

INF = torch.inf


def attend_in_parts(q, k, v, size):
    S = k.shape[-2]
    out, lse = 0, torch.full_like(q[..., 0], -INF)  # (..., L)
    for j in range(0, S, size):
        k_j, v_j = k[..., j : j + size, :], v[..., j : j + size, :]  # (..., size, d)
        scores = q @ k_j.mT / q.shape[-1] ** 0.5  # (..., L, size)
        out_j = scores.softmax(dim=-1) @ v_j  # (..., L, d_v)
        lse_j = scores.logsumexp(dim=-1)  # (..., L)
        both = torch.logaddexp(lse, lse_j)
        out = out * (lse - both).exp()[..., None] + out_j * (lse_j - both).exp()[..., None]
        lse = both
    return out


def by_stacking(q, k, v, size):
    outs, lses = [], []
    for kj, vj in zip(k.split(size, dim=-2), v.split(size, dim=-2), strict=True):
        s = q @ kj.mT / q.shape[-1] ** 0.5
        outs.append(s.softmax(-1) @ vj)
        lses.append(s.logsumexp(-1))
    share = torch.stack(lses).softmax(0)
    return (share.unsqueeze(-1) * torch.stack(outs)).sum(0)


def weighted_over_queries(q, k, v, size):
    outs, lses = [], []
    for kj, vj in zip(k.split(size, dim=-2), v.split(size, dim=-2), strict=True):
        s = q @ kj.mT / q.shape[-1] ** 0.5
        outs.append(s.softmax(-1) @ vj)
        lses.append(s.logsumexp(-1))
    return (torch.stack(lses).softmax(-1).unsqueeze(-1) * torch.stack(outs)).sum(0)


def in_pairs(q, k, v, size):
    """Merge the parts two by two, and lose the last of an odd number."""
    parts = []
    for kj, vj in zip(k.split(size, dim=-2), v.split(size, dim=-2), strict=True):
        s = q @ kj.mT / q.shape[-1] ** 0.5
        parts.append((s.softmax(-1) @ vj, s.logsumexp(-1)))
    while len(parts) > 1:
        parts = [merge(*a, *b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
    return parts[0][0]


def inputs():
    normal = normals(65)

    def case(S, d_k, d_v, size, *batch, L=1, loud=1.0, dtype=torch.float64):
        q, k = loud * normal(*batch, L, d_k, dtype=dtype), normal(*batch, S, d_k, dtype=dtype)
        return q, k, normal(*batch, S, d_v, dtype=dtype), size

    q, k, v, size = case(11, 4, 3, 4, 2, L=2)
    return [
        case(12, 4, 3, 4),
        case(13, 3, 2, 5),  # a part is left over
        case(10, 2, 3, 3, 2, 3, L=4),
        case(7, 4, 2, 2, loud=2000.0),  # `chunk(2)` has parts of 4 and 3; e^score overflows
        case(5, 3, 2, 9),  # one part
        (100 + 100 * q[0].abs(), -100 - 100 * k[0].abs(), v[0], size),  # all below -20,000
        (*out_of_order(q, k, v), size),
        case(50, 6, 5, 16, 1, 1, dtype=torch.float32),
        case(6, 4, 3, 1, L=5),
        case(512, 1, 1, 16, L=20),  # scores take far more than all the rest
        case(1, 1, 1, 1),
        case(6, 4, 3, 2, 2, L=6),
    ]


def in_parts(answer, q, k, v, size):
    """Call an answer. If it is right, check that it scores at most ``size`` keys at once, and that
    it does not keep the scores of all parts."""
    with Shapes() as shapes:
        results = call_with_clones(answer, q, k, v, size)
    L, S = q.shape[-2], k.shape[-2]
    sizes = [shape for shape in shapes.results + shapes.in_sdpa if len(shape) > 1]
    scored = {shape[-1] for shape in sizes if shape[-2] == L}
    scored |= {S for shape in sizes if shape[-2:] == (S, L)}  # as k qᵀ
    # Rows of q and of outputs are no scores, nor is what holds one number for each part.
    scored -= {q.shape[-1], v.shape[-1], -(-S // size)}
    most = max(scored, default=0)
    if most > size and most == S:
        hint = (
            "Right, but one step handles the scores of all keys at once. Split k and v into parts "
            "of `size` keys, and keep only the output and the log-sum-exp of each part."
        )
        raise NamedMistake("keys not cut", hint, results)
    if most > size:
        hint = (
            "Right, but you compute the scores of more than `size` keys at once. `size` is the "
            "number of keys in a part"
        )
        raise NamedMistake("parts too large", hint + ", not the number of parts.", results)
    if not q.requires_grad and scores_are_kept(answer, L * size, q, k, v, size):
        hint = (
            "Right, but you hold the scores of all parts at once, or as many other numbers. Keep "
            "only the output and the log-sum-exp of a part, or merge each part before the next."
        )
        raise NamedMistake("scores kept", hint, results)
    return results


JOIN = "out * (lse - both).exp()[..., None] + out_j * (lse_j - both).exp()[..., None]"
CAUSAL = [
    ("        out_j =",
     "        future = torch.arange(j, j + k_j.shape[-2]) > torch.arange(q.shape[-2])[:, None]\n"
     "        scores = scores.masked_fill(future, -INF)\n        out_j ="),
    ("scores.softmax(dim=-1)", "scores.softmax(dim=-1).nan_to_num(0)"),
]  # fmt: skip
MISTAKES = [
    ("no part where there are fewer keys",
     "Right, but your code raises an error if `size` is larger than S. There must then be a single "
     "part, with all S keys. If you use `chunk`, use `split(size, dim=-2)` instead, because "
     "`chunk` takes the number of parts, not their size.",
     ("for j in", "k.chunk(S // size, dim=-2)\n    for j in")),
    ("causal by habit", shared_hints.CAUSAL_BY_HABIT, *CAUSAL),
    ("causal by habit, at the end", shared_hints.CAUSAL_BY_HABIT,
     *CAUSAL, ("(q.shape[-2])[:, None]", "(S - q.shape[-2], S)[:, None]")),
    ("output as wide as keys", shared_hints.AS_WIDE_AS_KEYS,
     ("out, lse = 0,", "out, lse = torch.zeros_like(q),")),
    ("first key left out", shared_hints.FIRST_KEY_LEFT_OUT,
     ("range(0, S, size)", "range(1, S, size)")),
    ("parts averaged",
     "Your result is the mean of the parts' outputs. A part with larger scores must count more. "
     "Use merge, which weights each output by its e^lse.",
     ("out * (lse - both).exp()[..., None] + out_j * (lse_j - both).exp()[..., None]",
      "out + out_j / len(range(0, S, size))")),
    ("parts added",
     "Your result is the sum of the parts' outputs. Each of them is already a weighted mean of "
     "values, so you must not add them. Use merge, which weights each output by its e^lse.",
     ("out * (lse - both).exp()[..., None] + out_j * (lse_j - both).exp()[..., None]",
      "out + out_j")),
    ("parts weighted by length",
     "Your parts are weighted by their number of keys. A part with larger scores must count more, "
     "so weight each part by e^lse, its Σ e^score.",
     ("scores.logsumexp(dim=-1)", "torch.full_like(scores[..., 0], k_j.shape[-2]).log()")),
    ("last part dropped",
     "If S is not a multiple of size, the leftover keys are missing. Include them.",
     ("range(0, S, size)", "range(0, max(S - size, 0) + 1, size)")),
    ("parts weighted by maximum",
     "Your parts are weighted by their largest score alone. All scores of a part must count. Use "
     "its log-sum-exp.",
     ("scores.logsumexp(dim=-1)", "scores.amax(dim=-1)")),
    ("lse as weights",
     "Your weights are the log-sum-exps themselves, but these are logarithms. Weight each output "
     "by e^lse, or use merge.",
     ("-INF", "0.0"),
     ("torch.logaddexp(lse, lse_j)", "lse + lse_j"),
     ("(lse - both).exp()", "(lse / both)"),
     ("(lse_j - both).exp()", "(lse_j / both)")),
    ("lse not carried on",
     "After each merge, you keep the lse of the latest part alone. The merged output covers all "
     "parts so far. Keep the lse that merge returns with it.",
     ("lse = both", "lse = lse_j")),
    ("lse of the first part",
     "Your log-sum-exp stays that of the first part. After each merge, keep the lse that merge "
     "returns.",
     ("lse = both", "lse = lse if j else both")),
    ("lse of unscaled scores",
     "Your log-sum-exp comes from unscaled scores, but the output comes from scores divided by "
     "√d_k. Use the scaled scores for both.",
     ("scores.logsumexp(dim=-1)", "(q @ k_j.mT).logsumexp(dim=-1)")),
    ("merged from zero",
     "Your merge starts with a finite lse such as 0, as if a key with that score had been seen. "
     "Before the first part, no key has been seen, so start with an lse of −∞.",
     ("-INF", "0.0")),
    ("parts not scaled", shared_hints.NOT_SCALED, (" / q.shape[-1] ** 0.5", "")),
    ("scaled twice", shared_hints.SCALED_TWICE, ("q.shape[-1] ** 0.5", "q.shape[-1]")),
    ("scaled by the width of values", shared_hints.BY_D_V, ("q.shape[-1]", "v.shape[-1]")),
    ("parts without maximum",
     "Your e^score or e^lse overflows to inf for large scores, and inf / inf is NaN. Use softmax "
     "and logsumexp for each part, and merge to join the parts.",
     ("torch.logaddexp(lse, lse_j)", "(lse.exp() + lse_j.exp()).log()"),
     ("(lse - both).exp()", "(lse.exp() / both.exp())"),
     ("(lse_j - both).exp()", "(lse_j.exp() / both.exp())")),
    ("odd part lost",
     "Right for one, two or four parts. If you merge the parts in pairs, the last of an odd number "
     "is lost. Keep it for the next round.", in_pairs),
    ("only the first two",
     "You leave out all parts after the second. Go over all parts, and merge each with those "
     "before it.", ("range(0, S, size)", "range(0, min(S, 2 * size), size)")),
    ("first part alone",
     "You use only one part. Go over all parts, and merge each with those before it.",
     ("lse = both", "break")),
    ("last part alone",
     "You use only the last part. Merge each part with those before it.",
     ("out * (lse - both).exp()[..., None] + out_j * (lse_j - both).exp()[..., None]", "out_j")),
    ("parts not divided",
     "The outputs of your parts are Σ e^score · v. To merge outputs, each must be a weighted "
     "mean, so divide each one by its Σ e^score.",
     ("scores.softmax(dim=-1) @ v_j", "scores.exp() @ v_j")),
    ("sum for lse",
     "Your parts are merged with Σ e^score in place of its logarithm, the lse. Use "
     "scores.logsumexp(dim=-1).",
     ("scores.logsumexp(dim=-1)", "scores.exp().sum(dim=-1)")),
    ("averaged in turn",
     "You average each part with those before it. The one with the larger lse must count more. Use "
     "merge, which weights each output by its e^lse.",
     (JOIN, "(out + out_j) / 2 if j else out_j")),
    ("shares exchanged",
     "In each merge, each of the two outputs is weighted by the e^lse of the other. Weight each "
     "output by its *own* e^lse.",
     ("out * (lse - both)", "out * (lse_j - both)"),
     ("out_j * (lse_j - both).exp()[..., None]",
      "out_j * (lse - both if j else lse_j - both).exp()[..., None]")),
    ("larger lse carried on",
     "After the first merge, you keep the larger lse of the two. Keep the lse of both "
     "together, log(e^lse_a + e^lse_b).",
     ("lse = both", "lse = torch.maximum(lse, lse_j)")),
    ("softmax over queries", shared_hints.OVER_QUERIES, ("softmax(dim=-1)", "softmax(dim=-2)")),
    ("lse added",
     "After each merge, you add the two lse. Both are logarithms, so adding them multiplies the "
     "sums of e^score. Keep the lse that merge returns, log(e^lse_a + e^lse_b).",
     ("lse = both", "lse = lse + lse_j if j else both")),
    ("one lse for all queries",
     "Your parts are weighted by one log-sum-exp for all queries, but each query has its own. Take "
     "it over the keys only, along dim −1.",
     ("scores.logsumexp(dim=-1)",
      "scores.logsumexp(dim=(-2, -1))[..., None].expand(q.shape[:-1])")),
    ("a maximum for each part",
     "You add the sums of all parts, but each part subtracts its own largest score. Rescale the "
     "sums to one maximum before you add them, or use merge.",
     ("-INF", "0.0"),
     ("scores.softmax(dim=-1) @ v_j", "(scores - scores.amax(-1, True)).exp() @ v_j"),
     ("scores.logsumexp(dim=-1)", "(scores - scores.amax(-1, True)).exp().sum(-1)"),
     ("torch.logaddexp(lse, lse_j)", "lse + lse_j"),
     (JOIN, "out + out_j"),
     ("return out", "return out / lse[..., None]")),
    ("softmax of the lse over queries",
     "Your weights of the parts are a softmax over the queries. For each query, the weights of its "
     "parts must sum to 1. If you stack the lse, take the softmax over the parts, `dim=0`.",
     weighted_over_queries),
]  # fmt: skip

exercise = Exercise(
    "6.5", attend_in_parts, inputs, MISTAKES, names="L d_v", run=in_parts, differentiable=True,
    also_right=[by_stacking],
)  # fmt: skip
