"""11.2: one step of the ring, for all ranks at once."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.shared_hints import BY_D_V, DIVIDED_BY_D_K, MULTIPLIED, NOT_SCALED


def ring_step(q, k, v, out, lse):
    scores = q @ k.mT / q.shape[-1] ** 0.5  # (W, n, n)
    lse_new = scores.logsumexp(dim=-1)  # (W, n)
    out_new = scores.softmax(dim=-1) @ v  # (W, n, d_v)
    both = torch.logaddexp(lse, lse_new)  # (W, n)
    share, share_new = (lse - both).exp(), (lse_new - both).exp()  # (W, n) each
    out = share[..., None] * out + share_new[..., None] * out_new  # (W, n, d_v)
    return out, both, k.roll(1, dims=0), v.roll(1, dims=0)


def rank_by_rank(q, k, v, out, lse):
    outs, lses = [], []
    for rank in range(len(q)):
        scores = q[rank] @ k[rank].T * q.shape[-1] ** -0.5  # (n, n)
        both = torch.cat([lse[rank][:, None], scores], dim=-1)  # (n, 1 + n)
        weights = both.softmax(dim=-1)
        outs.append(weights[:, :1] * out[rank] + weights[:, 1:] @ v[rank])
        lses.append(both.logsumexp(dim=-1))
    W = len(q)
    order = [(rank - 1) % W for rank in range(W)]
    return torch.stack(outs), torch.stack(lses), k[order], v[order]


def by_sigmoid(q, k, v, out, lse):
    scores = torch.einsum("wid,wjd->wij", q, k) / q.shape[-1] ** 0.5
    new = scores.logsumexp(-1)
    share = (lse - new).sigmoid()[..., None]
    mixed = share * out + (1 - share) * (scores - new[..., None]).exp() @ v
    return mixed, torch.stack([lse, new]).logsumexp(0), k.roll(1, 0), v.roll(1, 0)


def inputs():
    normal = normals(112)

    def probe(W, n, d, d_v, large=1, first=False, dtype=torch.float64):
        q, k = (large * normal(W, n, d, dtype=dtype) for _ in range(2))
        v, out = (normal(W, n, d_v, dtype=dtype) for _ in range(2))
        if first:
            return q, k, v, torch.zeros_like(out), torch.full((W, n), -torch.inf, dtype=dtype)
        return q, k, v, out, (q * k).sum(dim=-1) / d**0.5 + normal(W, n, dtype=dtype)

    q, k, *others = probe(3, 2, 4, 3, first=True)
    q, k = 100 * (1 + q.abs()), -100 * (1 + k.abs())  # all scores are below -10,000
    return [
        probe(4, 3, 5, 2),
        probe(3, 4, 2, 6, first=True),
        probe(5, 2, 4, 3, large=40),  # lse beyond what exp can take
        probe(2, 6, 3, 1, dtype=torch.float32),
        probe(3, 1, 4, 4),
        probe(1, 3, 2, 5),
        (q, k, *others),
    ]


PASSED = "k.roll(1, dims=0), v.roll(1, dims=0)"
MIXED = "share[..., None] * out + share_new[..., None] * out_new"
SHARES = "(lse - both).exp(), (lse_new - both).exp()"
NAN_AT_FIRST = (
    "Your result is NaN at the first step, where lse is −∞. If you compute {}, you get {}, which "
    "is NaN. Use `torch.logaddexp` instead."
)
OVERWRITTEN = (
    "of rank 0. If you assign in a loop over the ranks, you overwrite blocks that have not been "
    "passed on yet. Use `k.roll(1, dims=0)` and the same for v."
)
MISTAKES = [
    ("by a sigmoid of the lses",
     NAN_AT_FIRST.format("lse − logsigmoid(lse − lse_new)", "−∞ − (−∞)"),
     ("return out, both", "return out, lse - torch.nn.functional.logsigmoid(lse - lse_new)")),
    ("by the logarithm of 1 + e^x",
     NAN_AT_FIRST.format("lse + log(1 + e^(lse_new − lse))", "−∞ + ∞"),
     ("torch.logaddexp(lse, lse_new)", "lse + torch.log(1 + torch.exp(lse_new - lse))")),
    ("not passed on",
     "Your output is right, but k and v are still on the same ranks. Pass each block on to the "
     "next rank with `k.roll(1, dims=0)` and the same for v.",
     (PASSED, "k, v")),
    ("passed back",
     "Your k and v go to the previous rank. Rank r sends to rank r + 1, so use `k.roll(1, "
     "dims=0)` and the same for v.",
     (PASSED, "k.roll(-1, dims=0), v.roll(-1, dims=0)")),
    ("keys alone passed on",
     "Your keys go to the next rank, but your values stay. They belong together, so pass on "
     "both.",
     (PASSED, "k.roll(1, dims=0), v")),
    ("values alone passed on",
     "Your values go to the next rank, but your keys stay. They belong together, so pass on "
     "both.",
     (PASSED, "k, v.roll(1, dims=0)")),
    ("single numbers moved",
     "You shift single numbers instead of blocks. Without `dims`, `roll` treats a tensor as one "
     "long row, so use `dims=0`.",
     (PASSED, "k.roll(1), v.roll(1)")),
    ("passed on first",
     "Your output uses k and v after they were passed on. First attend to the block that the "
     "rank holds, and then pass it on.",
     (PASSED, "k, v"),
     ("    scores", "    k, v = k.roll(1, dims=0), v.roll(1, dims=0)\n    scores")),
    ("tokens moved",
     "You shift tokens within a rank. Whole blocks go from rank to rank, along dimension 0.",
     (PASSED, "k.roll(1, dims=1), v.roll(1, dims=1)")),
    ("plain mean",
     "Your result is the mean of the two outputs, as if both blocks had the same sum of e^score. "
     "Weight each output by e^(its own lse − the common lse), where the common lse is "
     "`torch.logaddexp` of the two lse values.",
     (MIXED, "(out + out_new) / 2")),
    ("old output not rescaled",
     "You rescale the output for the new block, but not the old output. Multiply the old output by "
     "e^(its own lse − the common lse), too.",
     (MIXED, "out + share_new[..., None] * out_new")),
    ("new output not rescaled",
     "You rescale the old output, but not the output for the new block. Multiply the output for "
     "the new block by e^(its own lse − the common lse), too.",
     (MIXED, "share[..., None] * out + out_new")),
    ("only added",
     "You add the two outputs, but each is a weighted mean over its own keys. Weight each output "
     "by e^(its own lse − the common lse), where the common lse is `torch.logaddexp` of the two "
     "lse values.",
     (MIXED, "out + out_new")),
    ("replaced",
     "Your result is the output for the new block alone. Merge it with `out`, the output so far.",
     (MIXED, "out_new")),
    ("lse forgotten",
     "Your output is right, but lse is unchanged, so the next step would give this output too "
     "little weight. Return the log-sum-exp of the old and the new scores.",
     ("return out, both", "return out, lse")),
    ("lse of this block",
     "Your output is right, but your lse is that of the new block alone. Return the log-sum-exp "
     "of the old and the new scores.",
     ("return out, both", "return out, lse_new")),
    ("lse not scaled",
     "Your output uses scaled scores, but your lse uses unscaled ones. Divide the scores by "
     "√d_k for both.",
     ("scores.logsumexp(dim=-1)", "(q @ k.mT).logsumexp(dim=-1)")),
    ("softmax and lse over queries",
     "Your softmax and your new lse both run over the queries. They must run over the keys, so use "
     "`dim=-1` in both.",
     ("scores.softmax(dim=-1)", "scores.softmax(dim=-2)"),
     ("scores.logsumexp(dim=-1)", "scores.logsumexp(dim=-2)")),
    ("one lse per rank",
     "You take one lse of the new block for all queries of a rank. Each query has its own, so take "
     "the log-sum-exp over the keys alone, with `dim=-1`.",
     ("scores.logsumexp(dim=-1)", "scores.flatten(1).logsumexp(dim=-1)[:, None]")),
    ("mean of the exponentials",
     "Your lse of the new block is the logarithm of the mean of e^score. It must be the logarithm "
     "of the sum, so do not divide by the number of keys.",
     ("scores.logsumexp(dim=-1)", "scores.logsumexp(dim=-1) - (0 * scores).logsumexp(dim=-1)")),
    ("lse in base 2",
     "Your lse of the new block is in base 2, but `lse` and `exp` are in base e. Use the natural "
     "logarithm.",
     ("scores.logsumexp(dim=-1)", "scores.logsumexp(dim=-1) / 0.6931471805599453")),
    ("overwritten while passing", f"After your step, all ranks hold the k and v {OVERWRITTEN}",
     (PASSED, "k[:1].expand_as(k), v[:1].expand_as(v)")),
    ("keys overwritten while passing", f"After your step, all ranks hold the k {OVERWRITTEN}",
     (PASSED, "k[:1].expand_as(k), v.roll(1, dims=0)")),
    ("values overwritten while passing", f"After your step, all ranks hold the v {OVERWRITTEN}",
     (PASSED, "k.roll(1, dims=0), v[:1].expand_as(v)")),
    ("softmax over queries",
     "The softmax for the new block runs over the queries. It must run over the keys, so use "
     "`dim=-1`.",
     ("scores.softmax(dim=-1)", "scores.softmax(dim=-2)")),
    ("lse over queries",
     "You take the lse of the new block over the queries. Take it over the keys, with `dim=-1`.",
     ("scores.logsumexp(dim=-1)", "scores.logsumexp(dim=-2)")),
    ("keys of all ranks",
     "You let each query attend to the keys of all ranks. In one step, a rank holds only one "
     "block, so use only the keys on the query's own rank.",
     ("q @ k.mT", "q @ k.flatten(0, 1).T"),
     ("scores.softmax(dim=-1) @ v", "scores.softmax(dim=-1) @ v.flatten(0, 1)")),
    ("all keys, from the start",
     "Your result is the attention over the keys of all ranks, and it ignores `out` and `lse`. "
     "In one step, merge only the block on the same rank into `out` and `lse`.",
     ("q @ k.mT", "q @ k.flatten(0, 1).T"),
     ("scores.softmax(dim=-1) @ v", "scores.softmax(dim=-1) @ v.flatten(0, 1)"),
     ("return out, both", "return out_new, lse_new")),
    ("larger of both",
     "Your output is right, but your lse is the larger of the old and the new one. The "
     "exponentials of both add up, so use `torch.logaddexp`.",
     ("return out, both", "return out, torch.maximum(lse, lse_new)")),
    ("weights in proportion to lse",
     "Your two outputs are weighted in proportion to their lse, which is a logarithm. Weight each "
     "output by e^(its own lse − the common lse), where the common lse is `torch.logaddexp` of the "
     "two lse values.",
     (SHARES, "lse / (lse + lse_new), lse_new / (lse + lse_new)")),
    ("output passed on",
     "Your out and lse have moved to the next rank, but k and v have not. A rank keeps its queries "
     "and their results, and passes on k and v.",
     ("return out, both, " + PASSED, "return out.roll(1, dims=0), both.roll(1, dims=0), k, v")),
    ("lse added",
     "Your output is right, but your lse is the sum of the old and the new one. Their exponentials "
     "add up, not their logarithms, so use `torch.logaddexp`.",
     ("return out, both", "return out, lse + lse_new")),
    ("weights swapped",
     "Your weights are swapped: the old output has the weight of the new one. Give each output "
     "its own weight.",
     (MIXED, "share_new[..., None] * out + share[..., None] * out_new")),
    ("exponentials themselves",
     "Your result is NaN where lse is large, because e^lse overflows to inf, and inf / inf is NaN. "
     "Weight each output by e^(its own lse − the common lse), where the common lse is "
     "`torch.logaddexp` of the two lse values.",
     (SHARES, "lse.exp() / (lse.exp() + lse_new.exp()), lse_new.exp() / (lse.exp() + lse_new.exp())"
      )),
    ("bare sums added",
     "You add the sum of e^score · v to an output that is already divided. Divide this sum by the "
     "sum of e^score, then weight both outputs.",
     (MIXED, "out + scores.exp() @ v")),
    ("logarithm of bare sums",
     "Your result is infinite or NaN where scores are large, because e^score overflows before "
     "the logarithm is taken. Use `logsumexp`.",
     ("scores.logsumexp(dim=-1)", "scores.exp().sum(dim=-1).log()")),
    ("sum of bare exponentials",
     "Your lse is infinite where it should be large, because e^lse overflows before the "
     "logarithm is taken. Use `torch.logaddexp`.",
     ("torch.logaddexp(lse, lse_new)", "(lse.exp() + lse_new.exp()).log()")),
    ("causal",
     "You use a causal mask. There is no mask here, so let every query attend to all keys of the "
     "block.",
     ("    lse_new =", "    later = torch.ones_like(scores, dtype=torch.bool).triu(1)\n"
      "    scores = scores.masked_fill(later, -torch.inf)\n    lse_new =")),
    ("not scaled", NOT_SCALED, (" / q.shape[-1] ** 0.5", "")),
    ("multiplied by √d_k", MULTIPLIED, (" / q.shape[-1] ** 0.5", " * q.shape[-1] ** 0.5")),
    ("divided by d_k", DIVIDED_BY_D_K, (" / q.shape[-1] ** 0.5", " / q.shape[-1]")),
    ("divided by √d_v", BY_D_V, ("q.shape[-1] ** 0.5", "v.shape[-1] ** 0.5")),
    ("new output not divided",
     "Your output for the new block is a sum of e^(score − m) · v, where m is the largest score. "
     "Before you merge it, divide it by the sum of e^(score − m).",
     ("scores.softmax(dim=-1)", "(scores - scores.amax(dim=-1, keepdim=True)).exp()")),
    ("new output of bare exponentials",
     "Your output for the new block is the sum of e^score · v. It is not divided by the sum of "
     "e^score, and it overflows for large scores. Use softmax.",
     ("scores.softmax(dim=-1)", "scores.exp()")),
    ("largest score for lse",
     "Your merge uses the largest score of the new block as its lse. Use the log-sum-exp of all "
     "its scores.",
     ("scores.logsumexp(dim=-1)", "scores.amax(dim=-1)")),
    ("logarithm left out",
     "Your merge uses the sum of exponentials as the lse of the new block. Take its logarithm, "
     "with `logsumexp`.",
     ("scores.logsumexp(dim=-1)", "scores.exp().sum(dim=-1)")),
    ("NaN at the first step",
     "Your result is NaN at the first step. There lse is −∞, so e^(lse of the new block − lse) is "
     "infinite, and inf / inf is NaN. Weight each output by e^(its own lse − the common lse), "
     "where the common lse is `torch.logaddexp` of the two lse values.",
     (SHARES, "1 / (1 + (lse_new - lse).exp()), (lse_new - lse).exp() / (1 + (lse_new - lse).exp())"
      )),
    ("−∞ replaced by −10⁴",
     "Your result is wrong at the first step if all scores are far below 0. If you replace −∞ "
     "with a number such as −10⁴, the empty start can outweigh such scores. Leave lse at −∞.",
     ("    scores =", "    lse = lse.clamp(min=-1e4)\n    scores =")),
    ("another order",
     "Your results are right, but in another order. Return out, lse, k, v.",
     ("return out, both, k.roll(1, dims=0), v.roll(1, dims=0)",
      "return k.roll(1, dims=0), v.roll(1, dims=0), out, both")),
]  # fmt: skip

exercise = Exercise(
    "11.2", ring_step, inputs, MISTAKES, names="W n d_v|W n|W n d|W n d_v", differentiable=True,
    also_right=[rank_by_rank, by_sigmoid],
)  # fmt: skip
