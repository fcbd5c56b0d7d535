"""4.11: attention to a prefix shared by the batch and to each sequence. The last problem."""

import numpy as np
import torch

from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import Results, Shapes, normals
from course_utils.checks.shared_hints import (
    DIVIDED_BY_D_K,
    MASK_INVERTED,
    NOT_SCALED,
)


def shared_prefix_attention(q, k, v, k_prefix, v_prefix, mask):
    scale = q.shape[-1] ** -0.5
    common = q @ k_prefix.mT * scale  # (B, H, L, d_k) @ (H, d_k, P) -> (B, H, L, P)
    own = (q @ k.mT * scale).masked_fill(~mask, -torch.inf)  # (B, H, L, L)
    m = torch.maximum(common.amax(dim=-1), own.amax(dim=-1))[..., None]  # (B, H, L, 1), finite
    a, b = (common - m).exp(), (own - m).exp()  # (B, H, L, P), (B, H, L, L), same maximum
    total = a.sum(dim=-1, keepdim=True) + b.sum(dim=-1, keepdim=True)  # (B, H, L, 1)
    return (a @ v_prefix + b @ v) / total  # (B, H, L, d_v)


def one_by_one(q, k, v, k_prefix, v_prefix, mask):
    mask = mask.expand(*q.shape[:2], *mask.shape[-2:])
    rows = []
    for b, h, i in np.ndindex(q.shape[:3]):
        x = k_prefix[h] @ q[b, h, i] / q.shape[-1] ** 0.5
        y = (k[b, h] @ q[b, h, i] / q.shape[-1] ** 0.5)[mask[b, h, i]]
        m = max([x.max(), *y.detach()])
        total = (x - m).exp().sum() + (y - m).exp().sum()
        rows.append((x - m).exp() / total @ v_prefix[h])
        rows[-1] = rows[-1] + (y - m).exp() / total @ v[b, h][mask[b, h, i]]
    return torch.stack(rows).reshape(*q.shape[:3], -1)


def inputs():
    normal = normals(411)
    rng = torch.Generator().manual_seed(411)

    def probe(B, H, L, P, d_k, d_v, mask=None, own=1.0, common=1.0, dtype=torch.float64):
        sizes = (B, H, L, d_k), (B, H, L, d_k), (B, H, L, d_v), (H, P, d_k), (H, P, d_v)
        q, k, v, k_prefix, v_prefix = (normal(*size, dtype=dtype) for size in sizes)
        mask = torch.ones(L, L).tril() > 0 if mask is None else mask
        return q, own * k, v, common * k_prefix, v_prefix, mask

    def far_below(*given):
        """Return inputs with all scores around -900, whole numbers to be exact in float32 too."""
        q, k, v, k_prefix, v_prefix, mask = probe(*given)
        q, k, k_prefix = ((2 * each).round() / 2 for each in (q, k, k_prefix))
        q[..., 0], k[..., 0], k_prefix[..., 0] = 60, -60, -60
        return q, k, v, k_prefix, v_prefix, mask

    random_mask = torch.rand(2, 1, 4, 4, generator=rng) < 0.6
    random_mask[0, 0, 2] = random_mask[1, 0, 0] = False  # these queries see only the prefix
    left_padded = (torch.arange(5) > 1) & (torch.ones(5, 5).tril() > 0)  # left padding
    q, k, v, *prefix, mask = probe(2, 3, 4, 6, 5, 2)
    transposed = [each.mT.contiguous().mT for each in (q, k, v, *prefix)]
    return [
        probe(2, 3, 4, 5, 6, 2),
        probe(1, 1, 3, 1, 5, 2),
        probe(3, 2, 4, 7, 3, 4, torch.ones(4, 4) > 0),
        probe(2, 3, 4, 6, 5, 7, random_mask),
        probe(2, 1, 5, 3, 4, 2, left_padded),
        probe(2, 2, 1, 4, 3, 6),
        probe(2, 2, 4, 3, 5, 6, own=900),  # own scores far above the prefix's
        probe(2, 2, 4, 3, 5, 6, common=900),
        probe(2, 2, 3, 4, 5, 6, random_mask[..., :3, :3], own=900, common=900),
        (*transposed, mask),
        probe(2, 2, 6, 8, 3, 4, dtype=torch.float32),
        far_below(2, 2, 3, 5, 16, 4),
        far_below(2, 2, 3, 4, 16, 5, random_mask[..., :3, :3]),
        probe(2, 3, 4, 7, 5, 2, torch.rand(2, 3, 4, 4, generator=rng) < 0.5),  # for each head
        probe(1, 3, 4, 5, 6, 2),  # several heads, but a batch of one
    ]


def each_part_alone(answer, *given):
    """Call an answer, and reject a right one that joins the parts or copies the prefix.

    Sizes show it: no other tensor is as long as prefix and sequence together. And no other tensor
    is as large as B prefixes, if L is not 1 and not one of the prefix's sizes.
    """
    with Shapes() as shapes, Results() as made:
        results = call_with_clones(answer, *given)
    joined = given[0].shape[-2] + given[3].shape[-2]
    everything = [*shapes.results, *shapes.in_sdpa]
    if joined in {n for shape in everything for n in shape[-2:]}:
        hint = (
            "Your result is right, but it puts both parts, or their scores, into one tensor. "
            "Attend to each part on its own, and merge the two by their log-sum-exps."
        )
        raise NamedMistake("puts both together", hint, results)
    B, _, L, _ = given[0].shape
    sizes = {(B * each.numel(), *sorted(each.shape[-2:])) for each in given[3:5]}
    copied = [each for each in made.held() if (each.numel(), *sorted(each.shape[-2:])) in sizes]
    if copied and 1 < B and L not in {1, *given[3].shape, *given[4].shape}:
        hint = (
            "Your result is right, but it copies the prefix for every sequence, which may not "
            "fit in memory. Use the prefix as it is: @ broadcasts (H, P, d_k) over the batch, "
            "and .expand() copies nothing."
        )
        raise NamedMistake("copies the prefix", hint, results)
    return results


JOINED = "(a @ v_prefix + b @ v) / total"
ALONE = "a.sum(dim=-1, keepdim=True)", "b.sum(dim=-1, keepdim=True)"
TWO_LSES = "    c, o = common.logsumexp(-1, True), own.logsumexp(-1, True)\n    total ="
OF_THE_TWO = "(common.softmax(-1) @ v_prefix)", "(own.softmax(-1) @ v).nan_to_num(0)"


def one_mask_for_each_head(q, k, v, k_prefix, v_prefix, mask):
    out = torch.empty(*q.shape[:-1], v.shape[-1], dtype=q.dtype)
    for b, h in np.ndindex(q.shape[:2]):
        parts = q[b, h], k[b, h], v[b, h], k_prefix[h], v_prefix[h], mask[b, h]
        out[b, h] = shared_prefix_attention(*parts)
    return out


MISTAKES = [
    ("plain average",
     "Your result is the plain mean of the two parts' outputs. Each part must count in "
     "proportion to its sum of exponentials. Merge the outputs as in 3.7.",
     (JOINED, f"(a @ v_prefix / {ALONE[0]} + (b @ v / {ALONE[1]}).nan_to_num(0)) / 2")),
    ("outputs added",
     "Your result is the sum of the two parts' outputs, each divided by its own sum of "
     "exponentials. Weight the outputs before you add them, as in 3.7.",
     (JOINED, f"a @ v_prefix / {ALONE[0]} + (b @ v / {ALONE[1]}).nan_to_num(0)")),
    ("weighted by the number of keys",
     "You weight the output of each part by its number of allowed keys. Each part must count in "
     "proportion to its sum of exponentials. Merge the outputs as in 3.7.",
     ("    total =", "    n, P = mask.sum(dim=-1, keepdim=True), k_prefix.shape[1]\n    total ="),
     (JOINED, f"(P * {OF_THE_TWO[0]} + n * {OF_THE_TWO[1]}) / (P + n)")),
    ("log-sum-exps for weights",
     "You weight the outputs of the two parts by their log-sum-exps, which are logarithms and may "
     "be negative. Weight each part by e^(lse − m), as in 3.7, where m is the larger of the two "
     "log-sum-exps.",
     ("    total =", TWO_LSES),
     (JOINED, f"(c * {OF_THE_TWO[0]} + o * {OF_THE_TWO[1]}) / (c + o)")),
    ("e to the log-sum-exp",
     "Right, except for scores in the hundreds. There, e^lse overflows to inf or underflows to "
     "0. Subtract the larger of the two log-sum-exps first, or use torch.logaddexp.",
     ("    total =", TWO_LSES + " (c.exp() + o.exp()).log()  #"),
     (JOINED, f"(c - total).exp() * {OF_THE_TWO[0]} + (o - total).exp() * {OF_THE_TWO[1]}")),
    ("two maxima",
     "Your result is what you get if you subtract each part's own maximum before exp, but then "
     "add the exponentials as if the two maxima were the same. In both parts, subtract the larger "
     "of the two maxima.",
     ("(common - m).exp(), (own - m).exp()", "(common - common.amax(-1, True)).exp(), "
      "(own - own.amax(-1, True)).exp().nan_to_num(0)")),
    ("nothing subtracted",
     "Your result is NaN if scores are in the hundreds. If you take exp without first subtracting "
     "a maximum, e^900 overflows to inf, e^−900 underflows to 0, and inf / inf and 0 / 0 are NaN. "
     "In both parts, subtract the larger of the two maxima before exp.",
     ("[..., None]  # (B, H, L, 1), f", "[..., None] * 0  # (B, H, L, 1), f")),
    ("the prefix's maximum for both",
     "Your result is NaN if scores of the sequence are far above those of the prefix. If you "
     "subtract the prefix's maximum, the sequence's exponentials overflow to inf, and inf / inf "
     "is NaN. In both parts, subtract the larger of the two maxima.",
     ("torch.maximum(common.amax(dim=-1), own.amax(dim=-1))", "common.amax(dim=-1)")),
    ("the sequence's maximum for both",
     "Your result is NaN if scores of the prefix are far above those of the sequence, or if a "
     "query sees none of its sequence. If you subtract the sequence's maximum, the prefix's "
     "exponentials overflow to inf, and inf / inf is NaN. In both parts, subtract the larger of "
     "the two maxima.",
     ("torch.maximum(common.amax(dim=-1), own.amax(dim=-1))", "own.amax(dim=-1)")),
    ("a maximum of 0 at least",
     "Your result is NaN if all scores of a query are far below 0 (say, −900). If your maximum "
     "is never below 0, all exponentials underflow to 0, and 0 / 0 is NaN. Subtract the largest "
     "score, however low it is.",
     ("own.amax(dim=-1))[..., None]", "own.amax(dim=-1)).clamp(min=0)[..., None]")),
    ("a maximum of 0 for an empty row",
     "Your result is NaN for a query that sees none of its own sequence, if the prefix's scores "
     "are far below 0 (say, −900). If you take 0 as the maximum over no keys, all exponentials "
     "underflow to 0, and 0 / 0 is NaN. Leave this maximum at −inf. The larger of the two "
     "maxima is always finite.",
     ("own.amax(dim=-1))[..., None]", "own.amax(dim=-1).nan_to_num(neginf=0))[..., None]")),
    ("NaN for queries without keys of their own",
     "Your result is NaN for a query that sees none of its own sequence. If you apply softmax "
     "to a row of −inf, all its weights are NaN. But the query still sees the prefix. For this "
     "query, set the output of the sequence's part to 0, and give this part weight 0.",
     ("own.amax(dim=-1))[..., None]", "own.amax(dim=-1))[..., None] "
      "+ 0 * own.softmax(dim=-1).sum(dim=-1, keepdim=True)")),
    ("zeros for queries without keys of their own",
     "Your result is 0 for a query that sees none of its own sequence. But the query still sees "
     "the prefix. Set only the sequence's part to zero, not the whole output.",
     (JOINED, f"{JOINED} * mask.any(dim=-1, keepdim=True)")),
    ("scores of 0 for an empty row",
     "A query with no allowed key in its own sequence still gets values from that sequence, as if "
     "those scores were set to 0. Each score of 0 counts as e^0 = 1. Leave these scores at −inf, "
     "so that their exponentials are 0.",
     ("~mask, -torch.inf)", "~mask, -torch.inf).masked_fill(~mask.any(-1, True), 0)")),
    ("mask after softmax",
     "Your forbidden keys get weights of 0, but they still count in the denominator. You get this "
     "result if you mask after softmax. Fill forbidden scores with −inf before softmax.",
     (".masked_fill(~mask, -torch.inf)", ""), ("b @ v", "(b * mask) @ v")),
    ("mask after exp",
     "Right, unless a forbidden score is far above the others. If that score is taken as the "
     "maximum, all other exponentials underflow to 0, and 0 / 0 is NaN. Fill forbidden scores "
     "with −inf before you take the maximum.",
     (".masked_fill(~mask, -torch.inf)", ""), ("(own - m).exp()", "(own - m).exp() * mask")),
    ("mask after exp, and a little added",
     "Right, unless a forbidden score is far above the others. If that score is taken as the "
     "maximum, all other exponentials underflow to 0, and so does your result. Fill forbidden "
     "scores with −inf before you take the maximum.",
     (".masked_fill(~mask, -torch.inf)", ""), ("(own - m).exp()", "(own - m).exp() * mask"),
     ("/ total", "/ (total + 1e-9)")),
    ("one maximum for all",
     "Your result is NaN for a query whose scores are all far below those of other queries. If "
     "you subtract one maximum for the whole tensor, all exponentials of such a query underflow "
     "to 0, and 0 / 0 is NaN. Subtract one maximum for each query.",
     ("common.amax(dim=-1), own.amax(dim=-1))[..., None]", "common.amax(), own.amax())")),
    ("one maximum for each matrix",
     "Your result is NaN for a query whose scores are all far below those of another query. If "
     "you subtract one maximum for all queries of a head, all exponentials of such a query "
     "underflow to 0, and 0 / 0 is NaN. Subtract one maximum for each query.",
     ("common.amax(dim=-1), own.amax(dim=-1))[..., None]",
      "common.amax((-2, -1), True), own.amax((-2, -1), True))")),
    ("parts swapped",
     "The weights of the two parts are swapped. Weight each part by its own sum of exponentials.",
     (JOINED, f"(a @ v_prefix / {ALONE[0]} * {ALONE[1]} + (b @ v / {ALONE[1]}).nan_to_num(0) "
      f"* {ALONE[0]}) / total")),
    ("the prefix left out",
     "Your queries attend only to the sequence's own keys. Each query must also attend to the "
     "keys and values of the prefix, with one softmax over both parts.",
     (JOINED, f"(b @ v / {ALONE[1]}).nan_to_num(0)")),
    ("the sequence left out",
     "Your queries attend only to the prefix. Each query must also attend to its own sequence's "
     "keys and values, where the mask allows it, with one softmax over both parts.",
     (JOINED, f"a @ v_prefix / {ALONE[0]}")),
    ("the mask is not used",
     "Your result is the one without a mask. Apply the mask to the scores of the sequence's own "
     "keys, before the exponentials.",
     (".masked_fill(~mask, -torch.inf)", "")),
    ("mask inverted", MASK_INVERTED, ("~mask", "mask")),
    ("a causal mask whatever the mask says",
     "You use a causal mask of your own. Use the mask that is passed in.",
     ("~mask", "torch.ones(q.shape[-2], q.shape[-2]).triu(1) > 0")),
    ("mask of each head expected",
     "Right only for a mask (B, H, L, L). If you index the mask with the numbers of the sequence "
     "and the head, first use mask.expand(B, H, L, L). Or use the mask as it is, because it "
     "broadcasts against the scores.", one_mask_for_each_head),
    ("mask of the first head",
     "Right, unless the mask differs between heads. You use the mask of head 0 for all heads. "
     "Give each head its own mask, as broadcasting to (B, H, L, L) does.",
     ("~mask", "~(mask[:, :1] if mask.ndim == 4 else mask)")),
    ("mask of the first sequence",
     "Right, unless the mask differs between sequences. You use the mask of the first sequence "
     "for all sequences. Give each sequence its own mask, as broadcasting to (B, H, L, L) does.",
     ("~mask", "~(mask[:1] if mask.ndim == 4 else mask)")),
    ("causal mask on the prefix",
     "You get this result if you forbid a part of the prefix with a causal mask. Every query may "
     "see the whole prefix, which comes before the sequence. Use the mask only for the sequence's "
     "own keys.",
     ("k_prefix.mT * scale", "k_prefix.mT * scale + torch.full((q.shape[-2], k_prefix.shape[-2]), "
      "-torch.inf, dtype=q.dtype).triu(1)")),
    ("prefix aligned with the sequence",
     "You get this result if you forbid a part of the prefix with a causal mask (L, P) that aligns "
     "the last query with the last key. Every query may see the whole prefix. Use the mask only "
     "for the sequence's own keys.",
     ("k_prefix.mT * scale", "k_prefix.mT * scale + torch.full((q.shape[-2], k_prefix.shape[-2]), "
      "-torch.inf, dtype=q.dtype).triu(1 + max(0, k_prefix.shape[-2] - q.shape[-2]))")),
    ("log-sum-exp without the mask",
     "You weight the sequence's output by a log-sum-exp that also counts forbidden keys. Compute "
     "it from the same masked scores as the output.",
     ("    total =", "    o = (q @ k.mT * scale).logsumexp(-1, True)\n"
      "    c = common.logsumexp(-1, True)\n    c, o = (c - o).sigmoid(), (o - c).sigmoid()\n"
      "    total ="),
     (JOINED, f"c * {OF_THE_TWO[0]} + o * {OF_THE_TWO[1]}")),
    *[(f"mean exponentials{note}",
       "You weight the outputs of the two parts by their mean exponentials. A part with more "
       "keys must count more. Weight each part by its sum of exponentials, not by their mean.",
       ("    total =", f"    n = {n}\n    x = {ALONE[0]} / k_prefix.shape[1]\n"
        f"    y = {ALONE[1]} / n\n    total ="),
       (JOINED, f"(x * {OF_THE_TWO[0]} + y * {OF_THE_TWO[1]}) / (x + y)"))
      for note, n in (("", "k.shape[-2]"),
                      (", of allowed keys", "mask.sum(-1, keepdim=True).clamp(min=1)"))],
    ("filled with too little",
     "Right, unless all scores of a query are far below 0 (say, −900). Then forbidden keys get "
     "weight, as if you had filled forbidden scores with a number such as −100, which is larger "
     "than these scores. Fill forbidden scores with −inf.",
     ("~mask, -torch.inf", "~mask, -100")),
    ("keys of the prefix's first head",
     "You get this result if every head uses head 0's prefix keys. Give each head its own: `q @ "
     "k_prefix.mT` broadcasts (H, d_k, P) over the batch.",
     ("k_prefix.mT *", "k_prefix[:1].mT *")),
    ("values of the prefix's first head",
     "You get this result if every head uses head 0's prefix values. Give each head its own: `a "
     "@ v_prefix` broadcasts (H, P, d_v) over the batch.",
     (JOINED, "(a @ v_prefix[:1] + b @ v) / total")),
    ("the prefix's first head",
     "You get this result if every head uses head 0's prefix keys and values. Give each head its "
     "own: with @, (H, P, d_k) and (H, P, d_v) broadcast over the batch.",
     ("k_prefix.mT *", "k_prefix[:1].mT *"), (JOINED, "(a @ v_prefix[:1] + b @ v) / total")),
    ("weighted by the largest exponentials",
     "You weight the outputs of the two parts by e^m, where m is each part's largest score. A "
     "part counts with all of its exponentials. Weight each part by e^m times its sum of "
     "e^(score − m), which is e^lse, as in 3.7.",
     ("    total =", "    x, y = common.amax(-1, True) - m, own.amax(-1, True) - m\n    total ="),
     (JOINED, f"(x.exp() * {OF_THE_TWO[0]} + y.exp() * {OF_THE_TWO[1]}) / (x.exp() + y.exp())")),
    ("scores not scaled", NOT_SCALED, ("** -0.5", "** 0")),
    ("divided by d_k", DIVIDED_BY_D_K, ("** -0.5", "** -1")),
    ("one part not scaled",
     "The scores of the sequence's own keys are divided by √d_k, but the prefix's scores are "
     "not. Divide the prefix's scores by √d_k too, because both parts share one softmax.",
     ("k_prefix.mT * scale", "k_prefix.mT")),
    ("own part not scaled",
     "The prefix's scores are divided by √d_k, but the scores of the sequence's own keys are "
     "not. Divide them by √d_k too, because both parts share one softmax.",
     ("k.mT * scale", "k.mT")),
    ("sequence scaled twice",
     "The scores of the sequence's own keys are divided by √d_k twice. Divide them once.",
     ("k.mT * scale", "k.mT * scale * scale")),
    ("prefix scaled twice",
     "The prefix's scores are divided by √d_k twice. Divide them once.",
     ("k_prefix.mT * scale", "k_prefix.mT * scale * scale")),
    ("not divided",
     "You return the sum of the weighted values. Divide it by the sum of all exponentials.",
     (JOINED, "a @ v_prefix + b @ v")),
]  # fmt: skip

exercise = Exercise(
    "4.11", shared_prefix_attention, inputs, MISTAKES, "L d_v", each_part_alone,
    differentiable=True, also_right=[one_by_one],
)  # fmt: skip
