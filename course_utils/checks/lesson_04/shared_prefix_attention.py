"""4.11: attention to a prefix that a batch shares, and to what follows it. The last problem."""

import numpy as np
import torch

from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import Results, Shapes, normals
from course_utils.checks.shared_hints import (
    DIVIDED_BY_D_K,
    MASK_INVERTED,
    MASK_NOT_USED,
    NOT_SCALED,
)


def shared_prefix_attention(q, k, v, k_prefix, v_prefix, mask):
    scale = q.shape[-1] ** -0.5
    common = q @ k_prefix.mT * scale  # (B, H, L, d_k) @ (H, d_k, P) -> (B, H, L, P)
    own = (q @ k.mT * scale).masked_fill(~mask, -torch.inf)  # (B, H, L, L)
    m = torch.maximum(common.amax(dim=-1), own.amax(dim=-1))[..., None]  # (B, H, L, 1), finite
    a, b = (common - m).exp(), (own - m).exp()  # (B, H, L, P), (B, H, L, L), from one maximum
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
        """Let all scores lie around -900, in whole numbers, to be exact in float32 as well."""
        q, k, v, k_prefix, v_prefix, mask = probe(*given)
        q, k, k_prefix = ((2 * each).round() / 2 for each in (q, k, k_prefix))
        q[..., 0], k[..., 0], k_prefix[..., 0] = 60, -60, -60
        return q, k, v, k_prefix, v_prefix, mask

    drawn = torch.rand(2, 1, 4, 4, generator=rng) < 0.6
    drawn[0, 0, 2] = drawn[1, 0, 0] = False  # these queries see the prefix alone
    late = (torch.arange(5) > 1) & (torch.ones(5, 5).tril() > 0)  # padding at the start
    q, k, v, *prefix, mask = probe(2, 3, 4, 6, 5, 2)
    turned = [each.mT.contiguous().mT for each in (q, k, v, *prefix)]
    return [
        probe(2, 3, 4, 5, 6, 2),
        probe(1, 1, 3, 1, 5, 2),
        probe(3, 2, 4, 7, 3, 4, torch.ones(4, 4) > 0),
        probe(2, 3, 4, 6, 5, 7, drawn),
        probe(2, 1, 5, 3, 4, 2, late),
        probe(2, 2, 1, 4, 3, 6),
        probe(2, 2, 4, 3, 5, 6, own=900),  # own scores far above those of the prefix
        probe(2, 2, 4, 3, 5, 6, common=900),
        probe(2, 2, 3, 4, 5, 6, drawn[..., :3, :3], own=900, common=900),
        (*turned, mask),
        probe(2, 2, 6, 8, 3, 4, dtype=torch.float32),
        far_below(2, 2, 3, 5, 16, 4),
        far_below(2, 2, 3, 4, 16, 5, drawn[..., :3, :3]),
    ]


def each_part_alone(answer, *given):
    """Call an answer; complain of a right one that puts prefix and sequences, or scores, together,
    or that copies the prefix for every sequence.

    Their sizes tell: nothing else is as long as prefix and sequence together, and, where L is none
    of the prefix's sizes, nor 1, nothing else as large as B prefixes.
    """
    with Shapes() as shapes, Results() as made:
        results = call_with_clones(answer, *given)
    together = given[0].shape[-2] + given[3].shape[-2]
    everything = [*shapes.results, *shapes.in_sdpa]
    if together in {n for shape in everything for n in shape[-2:]}:
        hint = (
            "right, but it puts the prefix before every sequence, or the scores of both into one "
            "tensor: attend to each part by itself, and join the two by their log-sum-exps"
        )
        raise NamedMistake("puts both together", hint, results)
    B, _, L, _ = given[0].shape
    sizes = {(B * each.numel(), *sorted(each.shape[-2:])) for each in given[3:5]}
    copied = [each for each in made.held() if (each.numel(), *sorted(each.shape[-2:])) in sizes]
    if copied and 1 < B and L not in {1, *given[3].shape, *given[4].shape}:
        hint = (
            "right, but it copies the prefix for every sequence, for which there may be no room: @ "
            "broadcasts (H, P, d_k) over a batch by itself, and .expand() copies nothing"
        )
        raise NamedMistake("copies the prefix", hint, results)
    return results


JOINED = "(a @ v_prefix + b @ v) / total"
ALONE = "a.sum(dim=-1, keepdim=True)", "b.sum(dim=-1, keepdim=True)"
TWO_LSES = "    c, o = common.logsumexp(-1, True), own.logsumexp(-1, True)\n    total ="
OF_THE_TWO = "(common.softmax(-1) @ v_prefix)", "(own.softmax(-1) @ v).nan_to_num(0)"
MISTAKES = [
    ("plain average",
     "the outputs of the two parts are averaged; the part with more of e^score must count more: "
     "join them as in 3.7",
     (JOINED, f"(a @ v_prefix / {ALONE[0]} + (b @ v / {ALONE[1]}).nan_to_num(0)) / 2")),
    ("outputs added",
     "the outputs of the two parts are added, each divided by its own sum: weigh them, as in 3.7",
     (JOINED, f"a @ v_prefix / {ALONE[0]} + (b @ v / {ALONE[1]}).nan_to_num(0)")),
    ("weighted by the number of keys",
     "the outputs of the two parts are weighted by how many keys they have; the part with more of "
     "e^score must count more: join them as in 3.7",
     ("    total =", "    n, P = mask.sum(dim=-1, keepdim=True), k_prefix.shape[1]\n    total ="),
     (JOINED, f"(P * {OF_THE_TWO[0]} + n * {OF_THE_TWO[1]}) / (P + n)")),
    ("log-sum-exps for weights",
     "the outputs of the two parts are weighted by their log-sum-exps, which may be negative; "
     "each counts by e^lse: join them as in 3.7",
     ("    total =", TWO_LSES),
     (JOINED, f"(c * {OF_THE_TWO[0]} + o * {OF_THE_TWO[1]}) / (c + o)")),
    ("e to the log-sum-exp",
     "right, but for scores in the hundreds: e^lse overflows, or is 0, before its logarithm is "
     "taken; subtract the larger lse first, or use torch.logaddexp",
     ("    total =", TWO_LSES + " (c.exp() + o.exp()).log()  #"),
     (JOINED, f"(c - total).exp() * {OF_THE_TWO[0]} + (o - total).exp() * {OF_THE_TWO[1]}")),
    ("two maxima",
     "each part's powers are measured from its own maximum, and added as if from one: rescale them "
     "to the larger of the two, as in 3.6",
     ("(common - m).exp(), (own - m).exp()", "(common - common.amax(-1, True)).exp(), "
      "(own - own.amax(-1, True)).exp().nan_to_num(0)")),
    ("nothing subtracted",
     "e^score overflows where scores are in the hundreds: subtract the larger of both maxima first",
     ("[..., None]  # (B, H, L, 1), f", "[..., None] * 0  # (B, H, L, 1), f")),
    ("the prefix's maximum for both",
     "both parts are measured from the prefix's maximum: own scores far above it overflow",
     ("torch.maximum(common.amax(dim=-1), own.amax(dim=-1))", "common.amax(dim=-1)")),
    ("the sequence's maximum for both",
     "both parts are measured from the sequence's own maximum: scores of the prefix far above it "
     "overflow, and a query that sees none of its sequence has −inf for a maximum",
     ("torch.maximum(common.amax(dim=-1), own.amax(dim=-1))", "own.amax(dim=-1)")),
    ("a maximum of 0 at least",
     "NaN where all scores lie in the hundreds below 0: measured from a maximum of 0 or more all "
     "powers are 0, and 0 / 0 is NaN; take the largest score, however low it is",
     ("own.amax(dim=-1))[..., None]", "own.amax(dim=-1)).clamp(min=0)[..., None]")),
    ("a maximum of 0 for an empty row",
     "NaN for a query that sees nothing of its own sequence, where the scores of the prefix lie in "
     "the hundreds below 0: the maximum of nothing is −inf, not 0; the larger of both is finite",
     ("own.amax(dim=-1))[..., None]", "own.amax(dim=-1).nan_to_num(neginf=0))[..., None]")),
    ("NaN for queries without keys of their own",
     "a query that sees nothing of its own sequence is NaN; it sees the prefix: its own part has "
     "an lse of −inf, a share of 0, and no NaN in its output",
     ("own.amax(dim=-1))[..., None]", "own.amax(dim=-1))[..., None] "
      "+ 0 * own.softmax(dim=-1).sum(dim=-1, keepdim=True)")),
    ("zeros for queries without keys of their own",
     "a query that sees nothing of its own sequence gives zeros; it sees the prefix, and gets what "
     "attention to that alone gives: clean the part, not the whole",
     (JOINED, f"{JOINED} * mask.any(dim=-1, keepdim=True)")),
    ("scores of 0 for an empty row",
     "a query that sees nothing of its own sequence hears its values all the same: scores of 0 "
     "there keep NaN away, but count as e⁰ each; its own part must have an lse of −inf, a share "
     "of 0", ("~mask, -torch.inf)", "~mask, -torch.inf).masked_fill(~mask.any(-1, True), 0)")),
    ("mask after softmax",
     "the weights of hidden keys are set to 0 after softmax: they have had their share of the sum, "
     "and of the lse; mask the scores, before",
     (".masked_fill(~mask, -torch.inf)", ""), ("b @ v", "(b * mask) @ v")),
    ("mask after exp",
     "right, until a hidden score lies far above the others: it is taken for the maximum, and "
     "their powers are 0 beside it; mask the scores, before the maximum",
     (".masked_fill(~mask, -torch.inf)", ""), ("(own - m).exp()", "(own - m).exp() * mask")),
    ("one maximum for all",
     "one maximum for the whole tensor: where all scores of a query lie far below it, its powers "
     "are all 0, and 0 / 0 is NaN; take one for each query",
     ("common.amax(dim=-1), own.amax(dim=-1))[..., None]", "common.amax(), own.amax())")),
    ("shares swapped", "the shares are exchanged: each part goes with its own log-sum-exp",
     (JOINED, f"(a @ v_prefix / {ALONE[0]} * {ALONE[1]} + (b @ v / {ALONE[1]}).nan_to_num(0) "
      f"* {ALONE[0]}) / total")),
    ("the prefix left out", "that is attention within the sequence alone: the prefix is not heard",
     (JOINED, f"(b @ v / {ALONE[1]}).nan_to_num(0)")),
    ("the sequence left out", "that is attention to the prefix alone",
     (JOINED, f"a @ v_prefix / {ALONE[0]}")),
    ("the mask is not used", MASK_NOT_USED, (".masked_fill(~mask, -torch.inf)", "")),
    ("mask inverted", MASK_INVERTED, ("~mask", "mask")),
    ("a causal mask whatever the mask says",
     "it makes a causal mask of its own; the mask given may be another",
     ("~mask", "torch.ones(q.shape[-2], q.shape[-2]).triu(1) > 0")),
    ("scores not scaled", NOT_SCALED, ("** -0.5", "** 0")),
    ("divided by d_k", DIVIDED_BY_D_K, ("** -0.5", "** -1")),
    ("one part not scaled", "the scores of the sequence are divided by √d_k, those of the prefix "
     "not: they are compared with each other", ("k_prefix.mT * scale", "k_prefix.mT")),
    ("prefix scaled twice", "the scores of the prefix are divided by √d_k twice",
     ("k_prefix.mT * scale", "k_prefix.mT * scale * scale")),
    ("not divided", "the sum of the weighted values is not divided by the sum of all powers",
     (JOINED, "a @ v_prefix + b @ v")),
]  # fmt: skip

exercise = Exercise(
    "4.11", shared_prefix_attention, inputs, MISTAKES, "L d_v", each_part_alone,
    differentiable=True, also_right=[one_by_one],
)  # fmt: skip
