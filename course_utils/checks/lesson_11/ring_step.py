"""11.2: one step of the ring, for all ranks at once."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.shared_hints import BY_D_V, DIVIDED_BY_D_K, NOT_SCALED


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

    return [
        probe(4, 3, 5, 2),
        probe(3, 4, 2, 6, first=True),
        probe(5, 2, 4, 3, large=40),  # lse beyond what exp can take
        probe(2, 6, 3, 1, dtype=torch.float32),
        probe(3, 1, 4, 4),
        probe(1, 3, 2, 5),
    ]


PASSED = "k.roll(1, dims=0), v.roll(1, dims=0)"
MIXED = "share[..., None] * out + share_new[..., None] * out_new"
SHARES = "(lse - both).exp(), (lse_new - both).exp()"
NAN_AT_FIRST = (
    "Your result is right, but NaN at the first step, where lse is −∞: {} is −∞ − (−∞) or −∞ + ∞ "
    "then. Join the lses with torch.logaddexp."
)
MISTAKES = [
    ("by a sigmoid of the lses", NAN_AT_FIRST.format("lse − logsigmoid(lse − lse_new)"),
     ("return out, both", "return out, lse - torch.nn.functional.logsigmoid(lse - lse_new)")),
    ("by the logarithm of 1 + e^x", NAN_AT_FIRST.format("lse + log(1 + e^(lse_new − lse))"),
     ("torch.logaddexp(lse, lse_new)", "lse + torch.log(1 + torch.exp(lse_new - lse))")),
    ("not passed on", "right output, but k and v come back where they were; pass them on",
     (PASSED, "k, v")),
    ("passed back", "k and v go to the rank before; rank r sends to r + 1",
     (PASSED, "k.roll(-1, dims=0), v.roll(-1, dims=0)")),
    ("keys alone passed on", "the keys go on, the values stay: after this step they do not belong "
     "together", (PASSED, "k.roll(1, dims=0), v")),
    ("values alone passed on", "the values go on, the keys stay: after this step they do not "
     "belong together", (PASSED, "k, v.roll(1, dims=0)")),
    ("single numbers moved", "single numbers move, not blocks: without dims roll takes a tensor "
     "for one long row; dims=0", (PASSED, "k.roll(1), v.roll(1)")),
    ("passed on first", "k and v are passed on before they are used: first take in what is there",
     (PASSED, "k, v"),
     ("    scores", "    k, v = k.roll(1, dims=0), v.roll(1, dims=0)\n    scores")),
    ("tokens moved", "tokens move within a rank; whole blocks move along dimension 0, the ranks",
     (PASSED, "k.roll(1, dims=1), v.roll(1, dims=1)")),
    ("plain mean", "the two outputs are averaged; each counts by its sum of exponentials",
     (MIXED, "(out + out_new) / 2")),
    ("only added", "the two outputs are added; the shares of both must be 1 together",
     (MIXED, "out + out_new")),
    ("replaced", "what was there is lost: mix the new output with it", (MIXED, "out_new")),
    ("lse forgotten", "right output, but lse stays as it was: the next step would weigh it wrongly",
     ("return out, both", "return out, lse")),
    ("lse of this block", "right output, but lse is that of the new block alone",
     ("return out, both", "return out, lse_new")),
    ("lse not scaled", "the new output is that of scaled scores, its lse is not: the same scores "
     "for both, divided by √d_k", ("scores.logsumexp(dim=-1)", "(q @ k.mT).logsumexp(dim=-1)")),
    ("shares over queries", "the new output's shares add up over queries; over keys: dim=-1",
     ("scores.softmax(dim=-1)", "scores.softmax(dim=-2)")),
    ("lse over queries", "the new block's lse is taken over queries; over keys: dim=-1",
     ("scores.logsumexp(dim=-1)", "scores.logsumexp(dim=-2)")),
    ("keys of all ranks", "each query meets the keys of all ranks at once; in one step those that "
     "its rank holds", ("q @ k.mT", "q @ k.flatten(0, 1).T"),
     ("scores.softmax(dim=-1) @ v", "scores.softmax(dim=-1) @ v.flatten(0, 1)")),
    ("lse added", "right output, but the two lse are added; what adds up are their exponentials",
     ("return out, both", "return out, lse + lse_new")),
    ("shares swapped", "the shares are swapped: the old output gets the new one's",
     (MIXED, "share_new[..., None] * out + share[..., None] * out_new")),
    ("exponentials themselves",
     "NaN where lse is large: e^lse overflows; take e^(lse − lse of both), as merge does",
     (SHARES, "lse.exp() / (lse.exp() + lse_new.exp()), lse_new.exp() / (lse.exp() + lse_new.exp())"
      )),
    ("bare sums added", "to an output, which is a mean, a sum of e^score v is added: divide that "
     "by the sum of e^score, and give each its share", (MIXED, "out + scores.exp() @ v")),
    ("logarithm of bare sums", "infinite or NaN where scores are large: e^score overflows before "
     "its logarithm is taken; logsumexp",
     ("scores.logsumexp(dim=-1)", "scores.exp().sum(dim=-1).log()")),
    ("sum of bare exponentials", "lse is infinite where it should be large: e^lse overflows before "
     "its logarithm is taken; logaddexp",
     ("torch.logaddexp(lse, lse_new)", "(lse.exp() + lse_new.exp()).log()")),
    ("causal", "queries see their own token and earlier ones alone; no mask was asked for",
     ("    lse_new =", "    later = torch.ones_like(scores, dtype=torch.bool).triu(1)\n"
      "    scores = scores.masked_fill(later, -torch.inf)\n    lse_new =")),
    ("not scaled", NOT_SCALED, (" / q.shape[-1] ** 0.5", "")),
    ("divided by d_k", DIVIDED_BY_D_K, (" / q.shape[-1] ** 0.5", " / q.shape[-1]")),
    ("divided by √d_v", BY_D_V, ("q.shape[-1] ** 0.5", "v.shape[-1] ** 0.5")),
    ("new output not divided", "the new output is a sum of e^(score − m) v; divide it by the "
     "sum of e^(score − m) before it is mixed",
     ("scores.softmax(dim=-1)", "(scores - scores.amax(dim=-1, keepdim=True)).exp()")),
    ("new output of bare exponentials", "the new output is a sum of e^score v, neither divided by "
     "the sum of e^score nor safe for large scores: take softmax",
     ("scores.softmax(dim=-1)", "scores.exp()")),
    ("largest score for lse", "the largest score is taken for the new block's log-sum-exp",
     ("scores.logsumexp(dim=-1)", "scores.amax(dim=-1)")),
    ("logarithm left out", "the sum of exponentials is taken for lse: its logarithm is, logsumexp",
     ("scores.logsumexp(dim=-1)", "scores.exp().sum(dim=-1)")),
    ("first step left out",
     "NaN in the first step: there lse is −∞; −∞ − (−∞) comes from subtracting it from itself",
     (SHARES, "1 / (1 + (lse_new - lse).exp()), (lse_new - lse).exp() / (1 + (lse_new - lse).exp())"
      )),
    ("another order", "right, but in another order: out, lse, k, v",
     ("return out, both, k.roll(1, dims=0), v.roll(1, dims=0)",
      "return k.roll(1, dims=0), v.roll(1, dims=0), out, both")),
]  # fmt: skip

exercise = Exercise(
    "11.2", ring_step, inputs, MISTAKES, names="W n d_v|W n|W n d|W n d_v", differentiable=True,
    also_right=[rank_by_rank, by_sigmoid],
)  # fmt: skip
