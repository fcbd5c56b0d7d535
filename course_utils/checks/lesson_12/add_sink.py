"""12.6: a learned sink, added to what a kernel returns without one."""

import torch

from course_utils.attention import merge
from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def add_sink(out, lse, sink):
    sink = sink[:, None]  # (H, 1), for all queries of a head
    new_lse = torch.logaddexp(lse, sink)  # (B, H, L), log(e^lse + e^sink)
    share = (lse - new_lse).exp()  # (B, H, L), of the weight that the keys keep
    return out * share[..., None], new_lse


def by_sigmoid(out, lse, sink):
    both = torch.stack([lse, sink.view(1, -1, 1).expand_as(lse)])
    return torch.sigmoid(lse - sink.view(-1, 1)).unsqueeze(-1) * out, both.logsumexp(dim=0)


def by_softmax(out, lse, sink):
    both = torch.stack([lse, sink[None, :, None].expand(lse.shape)], dim=-1)
    return both.softmax(dim=-1)[..., :1] * out, both.logsumexp(dim=-1)


def by_merging(out, lse, sink):
    return merge(out, lse, torch.zeros_like(out), sink[:, None].expand_as(lse))


def by_the_maximum(out, lse, sink):
    top = torch.maximum(lse, sink[:, None])
    keys, of_sink = (lse - top).exp(), (sink[:, None] - top).exp()
    return out * (keys / (keys + of_sink))[..., None], top + (keys + of_sink).log()


def inputs():
    """Return (out, lse, sink)."""
    normal = normals(126)

    def probe(B, H, L, d_v, dtype=torch.float64):
        shapes = (B, H, L, d_v), (B, H, L), (H,)
        out, lse, sink = (normal(*shape, dtype=dtype) for shape in shapes)
        return out, 2 * lse + 1, sink

    out, lse, sink = probe(2, 3, 4, 5)
    empty = lse.clone()
    empty[0, 1, 2] = empty[1, 2, 0] = -torch.inf
    return [
        (out, lse, sink),
        probe(1, 2, 7, 3),
        probe(3, 4, 1, 2, dtype=torch.float32),
        probe(2, 5, 5, 3),
        probe(2, 1, 3, 6),
        (out.where(empty[..., None] > -torch.inf, 0), empty, sink),  # queries that see no key
        (out, lse + 800, sink + 801),  # their exponentials overflow
        (out, lse - 900, sink - 901),  # and underflow
    ]


NEW, SHARE = "torch.logaddexp(lse, sink)", "(lse - new_lse).exp()"
RETURN = "return out * share[..., None], new_lse"
OVERFLOW = (
    "Your result is right for numbers of moderate size, but NaN or infinite if the logsumexp is "
    "large, because its exponential overflows or underflows. Use torch.logaddexp, or subtract the "
    "larger of the two first."
)
MISTAKES = [
    ("no sink",
     "Your result is what came in. The sink takes a share of the weights, so the output shrinks. "
     "Multiply it by e^lse / (e^lse + e^sink).",
     (RETURN, "return out, lse")),
    ("overflow", OVERFLOW,
     (SHARE, "lse.exp() / (lse.exp() + sink.exp())"), (NEW, "(lse.exp() + sink.exp()).log()")),
    ("overflow of the logsumexp", OVERFLOW, (NEW, "(lse.exp() + sink.exp()).log()"),
     (SHARE, "torch.sigmoid(lse - sink)")),
    ("overflow of the share", OVERFLOW, (SHARE, "lse.exp() / (lse.exp() + sink.exp())")),
    ("overflow of the ratio",
     "Your result is right, except for a query that sees no key. Its logsumexp is −∞, and the "
     "output must be 0. Use torch.sigmoid(lse − sink), which handles this.",
     (SHARE, "1 / (1 + (sink - lse).exp()).masked_fill(lse == -torch.inf, torch.nan)")),
    ("difference of infinities",
     "Your logsumexp is right, except for a query that sees no key. There, lse is −∞, and yours is "
     "NaN. The logsumexp must be the sink. Use torch.logaddexp(lse, sink).",
     (RETURN, RETURN.replace("new_lse", "lse - torch.sigmoid(lse - sink).log()"))),
    ("share of the sink",
     "Your output is multiplied by the share of the sink. Multiply it by the share of the keys, "
     "e^lse / (e^lse + e^sink).",
     (SHARE, "(sink - new_lse).exp()")),
    ("only the output",
     "Your output is right, but the logsumexp is still that of the keys. It must count the sink: "
     "log(e^lse + e^sink).",
     (RETURN, RETURN.replace("new_lse", "lse"))),
    ("only the logsumexp",
     "Your logsumexp is right, but the output is still the one without a sink. Multiply it by "
     "e^lse / (e^lse + e^sink).",
     (RETURN, "return out, new_lse")),
    ("sink of 0",
     "Your sink counts as 0 in every head, so that 1 is added to e^lse. Use the learned score of "
     "each head.",
     (NEW, "torch.logaddexp(lse, 0 * sink)")),
    ("sink of 0 in the output",
     "Your logsumexp is right, but in the output, the sink counts as 0 in every head. Use the "
     "learned score of each head.",
     (SHARE, "torch.sigmoid(lse)")),
    ("sink as a weight",
     "You use the sink itself where its exponential belongs. It is a score like the others. Add "
     "e^sink to e^lse.",
     (NEW, "(lse.exp() + sink).log()")),
    ("ratio of the scores",
     "Your output is multiplied by a ratio of logarithms. The weights are shares of exponentials. "
     "Multiply by e^lse / (e^lse + e^sink).",
     (SHARE, "lse / (lse + sink)")),
    ("ratio of logsumexps",
     "Your output is multiplied by a ratio of logarithms. The weights are shares of exponentials. "
     "Multiply by e^lse / (e^lse + e^sink).",
     (SHARE, "lse / new_lse")),
    ("difference of logsumexps",
     "Your output is multiplied by a difference of logarithms. Take its exponential first.",
     (SHARE, "lse - new_lse")),
    ("divided",
     "Your output grows, because you divide by the share of the keys. Multiply by it.",
     (RETURN, RETURN.replace("out * ", "out / "))),
    ("share taken twice",
     "Your output is multiplied by the share of the keys twice. Multiply once.",
     (SHARE, "(2 * (lse - new_lse)).exp()")),
    ("subtracted",
     "Your output is out minus the share of the sink. The weights shrink by a factor, so multiply "
     "by the share of the keys.",
     (RETURN, "return out - (sink - new_lse).exp()[..., None], new_lse")),
    ("only e^sink",
     "You get this result if you divide by 1 + e^sink, or by e^lse + 1. The sink competes with the "
     "sum of the keys' exponentials. Divide e^lse by e^lse + e^sink.",
     (SHARE, "1 / (1 + sink.exp())")),
    ("divided by the sum",
     "Your output is divided by e^lse + e^sink, but it was divided by e^lse before. Multiply it by "
     "e^lse as well.",
     (SHARE, "(-new_lse).exp()")),
    ("logarithm of a ratio",
     "Your logsumexp is log(1 + e^(lse − sink)). The sum of the exponentials is e^lse + e^sink. "
     "Return its logarithm.",
     (NEW, "torch.nn.functional.softplus(lse - sink)")),
    ("value for the sink",
     "Your output also contains the share of the sink. A sink has no value, so it adds nothing. "
     "Return only out times the share of the keys.",
     (RETURN, "return out * share[..., None] + (sink - new_lse).exp()[..., None], new_lse")),
    ("logsumexps added",
     "Your logsumexp is lse + sink. Add the exponentials, not the scores: log(e^lse + e^sink).",
     (RETURN, RETURN.replace("new_lse", "lse + sink"))),
    ("larger of the two",
     "Your logsumexp is the larger of lse and the sink. Return log(e^lse + e^sink).",
     (RETURN, RETURN.replace("new_lse", "torch.maximum(lse, sink)"))),
    ("larger of the two in both",
     "You take the larger of lse and the sink in place of log(e^lse + e^sink). Add their "
     "exponentials.",
     (NEW, "torch.maximum(lse, sink)")),
    ("sum, not its logarithm",
     "Your second result is the sum of exponentials. Return its logarithm.",
     (RETURN, RETURN.replace("new_lse", "new_lse.exp()"))),
    ("binary logarithm",
     "Your logsumexp is in base 2. Use the natural logarithm.",
     (RETURN, RETURN.replace("new_lse", "new_lse / 0.6931471805599453"))),
    ("sink subtracted",
     "You use −sink in place of the sink. Add e^sink to e^lse.",
     (NEW, "torch.logaddexp(lse, -sink)")),
    ("one sink for all heads",
     "All of your heads use the sink of head 0. Each head has its own. Use sink[:, None], which "
     "has the shape (H, 1).",
     (NEW, "torch.logaddexp(lse, sink[0])")),
    ("mean sink for all heads",
     "All of your heads use the mean of the sinks. Each head has its own. Use sink[:, None], which "
     "has the shape (H, 1).",
     (NEW, "torch.logaddexp(lse, sink.mean())")),
    ("all sinks in each head",
     "Each of your heads counts the sinks of all heads. A head has only its own. Use sink[:, "
     "None], which has the shape (H, 1).",
     (NEW, "torch.logaddexp(lse, sink.logsumexp(0))")),
    ("sinks of other heads",
     "Your heads use the sinks in reverse order. Head h uses sink[h].",
     (NEW, "torch.logaddexp(lse, sink.flip(0))")),
    ("sink by query",
     "You get this result, or an error, if the sinks run along the queries. Each head has one sink "
     "for all of its queries. Use sink[:, None], which has the shape (H, 1).",
     ("sink = sink[:, None]", "sink = sink.clone()")),
    ("sink for each text",
     "You get this result, or an error, if the sinks run along the batch. Each head has its own "
     "sink. Use sink[:, None], which has the shape (H, 1).",
     ("sink = sink[:, None]", "sink = sink[:, None, None]")),
    ("a column kept",
     "Your logsumexp has one dimension too many. Return it as (B, H, L).",
     (RETURN, RETURN.replace("new_lse", "new_lse[..., None]"))),
    ("output alone",
     "Your result is only the output. Return the output and the logsumexp.",
     (RETURN, "return out * share[..., None]")),
    ("logsumexp first",
     "Your results are in the wrong order. Return the output first.",
     (RETURN, "return new_lse, out * share[..., None]")),
    ("share returned",
     "Your second result is the share of the keys. Return the logsumexp with the sink.",
     (RETURN, "return out * share[..., None], share")),
]  # fmt: skip

exercise = Exercise(
    "12.6", add_sink, inputs, MISTAKES, names="B H L d_v | B H L", differentiable=True,
    also_right=[by_sigmoid, by_softmax, by_merging, by_the_maximum],
)  # fmt: skip
