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
    far = torch.tensor([-500, 0, 500])
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
        (out, lse + far[:, None], sink + far),  # heads of very different sizes
        (out.float(), lse.float(), sink.float() + 120),  # e^(sink - lse) overflows in float32
    ]


NEW, SHARE = "torch.logaddexp(lse, sink)", "(lse - new_lse).exp()"
RETURN = "return out * share[..., None], new_lse"
OVERFLOW = (
    "Your result is right for numbers of moderate size. It is NaN or infinite if e^lse or e^sink "
    "overflows, or if both underflow to 0. Use torch.logaddexp, or subtract the larger of lse and "
    "the sink from both first."
)
MISTAKES = [
    ("no sink",
     "You return `out` and `lse` unchanged, but the sink takes a share of the weight. Compute the "
     "new lse as torch.logaddexp(lse, sink[:, None]), and multiply `out` by exp(lse − new lse). "
     "Return both results.",
     (RETURN, "return out, lse")),
    ("overflow", OVERFLOW,
     (SHARE, "lse.exp() / (lse.exp() + sink.exp())"), (NEW, "(lse.exp() + sink.exp()).log()")),
    ("overflow of the logsumexp", OVERFLOW, (NEW, "(lse.exp() + sink.exp()).log()"),
     (SHARE, "torch.sigmoid(lse - sink)")),
    ("overflow of the share", OVERFLOW, (SHARE, "lse.exp() / (lse.exp() + sink.exp())")),
    ("overflow of the ratio",
     "Your result is right, except for a query that sees no key. Its `lse` is −∞, and your output "
     "is NaN there instead of 0. Compute the keys' share of the weight as torch.sigmoid(lse − "
     "sink[:, None]), which is 0 there.",
     (SHARE, "1 / (1 + (sink - lse).exp()).masked_fill(lse == -torch.inf, torch.nan)")),
    ("logarithm of 1 + the ratio",
     "Your results are right for numbers of moderate size. If the sink is far larger than `lse`, "
     "e^(sink − lse) overflows, and your new lse is infinite. If `lse` is −∞, both of your results "
     "are NaN. Use torch.logaddexp, or subtract the larger of lse and the sink from both first.",
     (NEW, "lse + (sink - lse).exp().log1p()")),
    ("difference of infinities",
     "Your new lse is right, unless the sink is far larger than `lse`. It is infinite there, or "
     "NaN if `lse` is −∞. Use torch.logaddexp, or subtract the larger of lse and the sink from "
     "both first.",
     (RETURN, RETURN.replace("new_lse", "lse - torch.sigmoid(lse - sink).log()"))),
    ("−∞ for a query without keys",
     "Your result is right, except for a query that sees no key. Its new lse must include the "
     "sink, but yours is −∞. Return the sink there, as torch.logaddexp does.",
     (RETURN, RETURN.replace("new_lse", "new_lse.masked_fill(lse == -torch.inf, -torch.inf)"))),
    ("0 for a query without keys",
     "Your result is right, except for a query that sees no key. Its new lse must be the sink, but "
     "yours is 0. Use torch.logaddexp.",
     (RETURN, RETURN.replace("new_lse", "new_lse.masked_fill(lse == -torch.inf, 0)"))),
    ("far larger sinks",
     "Your new lse is right, unless the sink is far larger than `lse`. Then e^(sink − lse) "
     "overflows, and your result is infinite. Use torch.logaddexp, or subtract the larger of lse "
     "and the sink from both first.",
     (NEW, "torch.where(lse == -torch.inf, sink, lse - torch.sigmoid(lse - sink).log())")),
    ("one maximum for all",
     "Your result is right unless the sizes of `lse` differ much between heads or queries. Then "
     "small exponentials underflow to 0 after you subtract one common maximum, and 0 / 0 is NaN. "
     "Subtract the larger of lse and the sink for each query of each head.",
     (NEW, "(top := torch.maximum(lse.max(), sink.max())) + ((lse - top).exp() + "
      "(sink - top).exp()).log()"),
     (SHARE, "(lse - top).exp() / ((lse - top).exp() + (sink - top).exp())")),
    ("odds",
     "You multiply `out` by e^lse / e^sink. The keys keep the share e^lse / (e^lse + e^sink) of "
     "the weight. Multiply `out` by this share, computed as exp(lse − new lse).",
     (SHARE, "(lse - sink).exp()")),
    ("odds of the sink",
     "You multiply `out` by e^sink / e^lse. The keys keep the share e^lse / (e^lse + e^sink) of "
     "the weight. Multiply `out` by this share, computed as exp(lse − new lse).",
     (SHARE, "(sink - lse).exp()")),
    ("share of the sink",
     "Your output is `out` times the sink's share of the weight. Multiply by the keys' share, "
     "e^lse / (e^lse + e^sink), computed as exp(lse − new lse).",
     (SHARE, "(sink - new_lse).exp()")),
    ("only the output",
     "Your output is right, but the new lse is still that of the keys alone. Return log(e^lse + "
     "e^sink), as torch.logaddexp computes it.",
     (RETURN, RETURN.replace("new_lse", "lse"))),
    ("only the logsumexp",
     "Your new lse is right, but the output is still the one without a sink. Multiply `out` by "
     "e^lse / (e^lse + e^sink), computed as exp(lse − new lse).",
     (RETURN, "return out, new_lse")),
    ("sink of 0",
     "Your sink is 0 in every head, so 1 is added to e^lse. Use the learned score of each head.",
     (NEW, "torch.logaddexp(lse, 0 * sink)")),
    ("sink of 0 in the output",
     "Your new lse is right, but your output uses a sink of 0 in every head. Use the learned score "
     "of each head.",
     (SHARE, "torch.sigmoid(lse)")),
    ("sink as a weight",
     "Your new lse is log(e^lse + sink). The sink is a score, so its exponential belongs in the "
     "sum. Use log(e^lse + e^sink), computed with `torch.logaddexp`, so that nothing overflows.",
     (NEW, "(lse.exp() + sink).log()")),
    ("ratio of the scores",
     "You multiply `out` by lse / (lse + sink). Weights are shares of exponentials. Multiply it by "
     "e^lse / (e^lse + e^sink), computed as exp(lse − new lse).",
     (SHARE, "lse / (lse + sink)")),
    ("ratio of logsumexps",
     "You multiply `out` by lse / new lse. Weights are shares of exponentials, not of logarithms. "
     "Multiply it by exp(lse − new lse).",
     (SHARE, "lse / new_lse")),
    ("difference of logsumexps",
     "You multiply `out` by lse − new lse. This difference is the logarithm of the share of the "
     "weight that the keys keep. Multiply `out` by its exponential.",
     (SHARE, "lse - new_lse")),
    ("divided",
     "Your output is divided by the keys' share of the weight, so it grows. Multiply `out` by this "
     "share, e^lse / (e^lse + e^sink), computed as exp(lse − new lse).",
     (RETURN, RETURN.replace("out * ", "out / "))),
    ("share taken twice",
     "You multiply `out` twice by the keys' share of the weight. Multiply by this share once.",
     (SHARE, "(2 * (lse - new_lse)).exp()")),
    ("subtracted",
     "Your output is `out` minus the sink's share of the weight. The sink shrinks all weights by "
     "one factor. Multiply `out` by the keys' share, e^lse / (e^lse + e^sink), computed as exp(lse "
     "− new lse).",
     (RETURN, "return out - (sink - new_lse).exp()[..., None], new_lse")),
    ("only e^lse",
     "Your output is out / (1 + e^lse). The keys keep the share e^lse / (e^lse + e^sink) of the "
     "weight. Multiply `out` by this share, computed as exp(lse − new lse).",
     (SHARE, "1 / (1 + lse.exp())")),
    ("e^lse left out",
     "You multiply `out` by e^lse / (1 + e^sink). The keys keep the share e^lse / (e^lse + e^sink) "
     "of the weight. Multiply `out` by this share, computed as exp(lse − new lse).",
     (SHARE, "lse.exp() / (1 + sink.exp())")),
    ("only e^sink",
     "Your output is out / (1 + e^sink). In the softmax, e^sink is added not to 1 but to e^lse, "
     "the sum of e^score over the keys. Multiply `out` by e^lse / (e^lse + e^sink), computed as "
     "exp(lse − new lse).",
     (SHARE, "1 / (1 + sink.exp())")),
    ("divided by the sum",
     "Your output is out / (e^lse + e^sink). But `out` has already been divided by e^lse. Multiply "
     "`out` by e^lse / (e^lse + e^sink), computed as exp(lse − new lse).",
     (SHARE, "(-new_lse).exp()")),
    ("logarithm of a ratio",
     "Your new lse is log(1 + e^(lse − sink)), which is too small by the sink. Return log(e^lse + "
     "e^sink), as torch.logaddexp computes it.",
     (NEW, "torch.nn.functional.softplus(lse - sink)")),
    ("value for the sink",
     "Your output also contains the sink's share of the weight. A sink has no value, so it adds "
     "nothing. Return only `out` times the keys' share.",
     (RETURN, "return out * share[..., None] + (sink - new_lse).exp()[..., None], new_lse")),
    ("maximum not added back",
     "Your new lse is too small by the larger of lse and the sink. If you subtract the larger one "
     "before you take exponentials, add it back after the logarithm.",
     (RETURN, RETURN.replace("new_lse", "new_lse - torch.maximum(lse, sink)"))),
    ("mean of the two",
     "Your new lse is the mean of lse and the sink. Return log(e^lse + e^sink), as torch.logaddexp "
     "computes it.",
     (RETURN, RETURN.replace("new_lse", "(lse + sink) / 2"))),
    ("logarithm of the mean",
     "Your new lse is the logarithm of the mean of e^lse and e^sink. Return the logarithm of their "
     "sum, as torch.logaddexp computes it.",
     (RETURN, RETURN.replace("new_lse", "new_lse - 0.6931471805599453"))),
    ("logsumexps added",
     "Your new lse is lse + sink. Add their exponentials instead, and return log(e^lse + e^sink), "
     "as torch.logaddexp computes it.",
     (RETURN, RETURN.replace("new_lse", "lse + sink"))),
    ("logsumexps added in both",
     "Your new lse is lse + sink, and your output is made with it. Add the exponentials of lse "
     "and the sink instead, and use log(e^lse + e^sink), as torch.logaddexp computes it.",
     (NEW, "lse + sink")),
    ("larger of the two",
     "Your new lse is the larger of lse and the sink. The smaller one counts too. Return log(e^lse "
     "+ e^sink), as torch.logaddexp computes it.",
     (RETURN, RETURN.replace("new_lse", "torch.maximum(lse, sink)"))),
    ("larger of the two in both",
     "Both of your results use the larger of lse and the sink in place of the new lse. The smaller "
     "one counts too. Use log(e^lse + e^sink), as torch.logaddexp computes it.",
     (NEW, "torch.maximum(lse, sink)")),
    ("sum, not its logarithm",
     "Your second result is e^lse + e^sink. Return its logarithm, computed without exp(lse), for "
     "example with torch.logaddexp.",
     (RETURN, RETURN.replace("new_lse", "new_lse.exp()"))),
    ("binary logarithm",
     "Your new lse is a logarithm in base 2. Use the natural logarithm.",
     (RETURN, RETURN.replace("new_lse", "new_lse / 0.6931471805599453"))),
    ("sink counted twice",
     "Your results count the sink twice. Count it once: the new lse is torch.logaddexp(lse, "
     "sink[:, None]).",
     (NEW, "torch.logaddexp(lse, sink + 0.6931471805599453)")),
    ("powers of 2",
     "Your results use powers of 2 and a logarithm in base 2. `lse` is a natural logarithm. Use "
     "exp and log.",
     (NEW, "torch.logaddexp(0.6931471805599453 * lse, 0.6931471805599453 * sink) / "
      "0.6931471805599453"),
     (SHARE, "(0.6931471805599453 * (lse - new_lse)).exp()")),
    ("clamped exponents",
     "Your result is wrong if lse or the sink is large, as if you clamped them before you take "
     "exponentials. Do not clamp. Use torch.logaddexp, or subtract the larger of lse and the sink "
     "from both first.",
     (NEW, "(lse.clamp(max=80).exp() + sink.clamp(max=80).exp()).log()"),
     (SHARE, "lse.clamp(max=80).exp() / (lse.clamp(max=80).exp() + sink.clamp(max=80).exp())")),
    ("sink subtracted",
     "You use −sink in place of the sink. Use the sink itself: the new lse is "
     "torch.logaddexp(lse, sink[:, None]).",
     (NEW, "torch.logaddexp(lse, -sink)")),
    ("one sink for all heads",
     "All of your heads use the sink of head 0. Each head has its own. Use sink[:, None], which "
     "has shape (H, 1).",
     (NEW, "torch.logaddexp(lse, sink[0])")),
    ("mean sink for all heads",
     "All of your heads use the mean of the sinks. Each head has its own. Use sink[:, None], "
     "which has shape (H, 1).",
     (NEW, "torch.logaddexp(lse, sink.mean())")),
    ("all sinks in each head",
     "Each of your heads uses the sinks of all heads. A head has only its own sink. Use sink[:, "
     "None], which has shape (H, 1).",
     (NEW, "torch.logaddexp(lse, sink.logsumexp(0))")),
    ("sinks of other heads",
     "Your heads use the sinks in reverse order. Head h must use sink[h].",
     (NEW, "torch.logaddexp(lse, sink.flip(0))")),
    ("sink by query",
     "If you broadcast the sinks along the queries, you get this result (or an error, if H and L "
     "do not match). Each head has one sink for all of its queries. Use sink[:, None], which has "
     "shape (H, 1).",
     ("sink = sink[:, None]", "sink = sink.clone()")),
    ("sink for each text",
     "If you broadcast the sinks along the batch, you get this result (or an error, if H and B do "
     "not match). Each head has its own sink. Use sink[:, None], which has shape (H, 1).",
     ("sink = sink[:, None]", "sink = sink[:, None, None]")),
    ("a column kept",
     "Your new lse has one dimension too many. Return it as (B, H, L).",
     (RETURN, RETURN.replace("new_lse", "new_lse[..., None]"))),
    ("output alone",
     "Your result is only the output. Return the output and the new lse.",
     (RETURN, "return out * share[..., None]")),
    ("logsumexp first",
     "Your results are in the wrong order. Return the output first, then the new lse.",
     (RETURN, "return new_lse, out * share[..., None]")),
    ("share returned",
     "Your second result is the keys' share of the weight. Return the new lse.",
     (RETURN, "return out * share[..., None], share")),
]  # fmt: skip

exercise = Exercise(
    "12.6", add_sink, inputs, MISTAKES, names="B H L d_v | B H L", differentiable=True,
    also_right=[by_sigmoid, by_softmax, by_merging, by_the_maximum],
)  # fmt: skip
