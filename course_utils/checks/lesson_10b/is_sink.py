"""10b.4: in which heads the first token takes over half of the weight, in every text."""

import torch

from course_utils.checks.exercise import Exercise


def is_sink(weights):
    free = weights[..., 1:, :]  # (layers, B, H, L - 1, L), queries that see another key
    share = free[..., 0].mean(dim=-1)  # (layers, B, H)
    return (share > 0.5).all(dim=1)  # (layers, H)


def by_loops(weights):
    layers, B, H, L, _ = weights.shape
    found = torch.ones(layers, H, dtype=torch.bool)
    for layer in range(layers):
        for text in range(B):
            for head in range(H):
                mean = weights[layer, text, head, 1:, 0].sum() / (L - 1)
                found[layer, head] &= mean > 0.5
    return found


def by_the_smallest(weights):
    return weights[:, :, :, 1:, 0].mean(-1).amin(1) > 0.5


def inputs():
    rng = torch.Generator().manual_seed(104)

    def weights(layers, B, H, L, pull):
        scores = torch.randn(layers, B, H, L, L, generator=rng)
        of_head = pull * torch.rand(layers, 1, H, 1, generator=rng)
        of_text = torch.rand(layers, B, H, 1, generator=rng) - 0.5
        scores[..., 0] += of_head + of_text
        scores[..., 1] += 6.0 * (torch.rand(layers, 1, H, 1, generator=rng) < 0.2)
        return scores.masked_fill(torch.ones(L, L).triu(1) > 0, -torch.inf).softmax(dim=-1)

    sizes = [(5, 3, 4, 6, 4), (7, 2, 5, 9, 5), (9, 4, 3, 4, 3), (6, 1, 8, 5, 3), (4, 5, 2, 12, 6)]
    turned = weights(8, 3, 6, 5, 4).mT.contiguous().mT  # not contiguous
    even = weights(3, 2, 4, 2, 0)
    even[..., 1, :] = 0.5  # exactly half is not more
    return [*((weights(*size),) for size in sizes), (turned,), (weights(9, 3, 9, 2, 2),), (even,)]


MISTAKES = [
    ("first query counted",
     "Your mean includes the first query. This query sees only one key, so it always gives that "
     "key all its weight. Leave the query out.",
     ("weights[..., 1:, :]", "weights")),
    ("mean of the texts",
     "Your result compares the mean over all texts with a half. Compare each text by itself, "
     "because every text must pass.",
     ("(share > 0.5).all(dim=1)", "share.mean(dim=1) > 0.5")),
    ("both slips of the code",
     "Your result is that of the given code, with both bugs. Leave out the first query, and "
     "compare each text with a half by itself.",
     ("weights[..., 1:, :]", "weights"), ("(share > 0.5).all(dim=1)", "share.mean(dim=1) > 0.5")),
    ("exactly half counted",
     "Your result counts a mean of exactly half. Only more than half counts, so use >.",
     ("share > 0.5", "share >= 0.5")),
    ("most texts",
     "Your result compares the median over the texts with a half, so not every text has to pass. "
     "Every text must pass, so use `all(dim=1)`.",
     ("(share > 0.5).all(dim=1)", "share.median(dim=1).values > 0.5")),
    ("half of the texts",
     "In your result, it is enough if half of the texts pass. Every text must pass, so use "
     "`all(dim=1)`.",
     ("(share > 0.5).all(dim=1)", "(share > 0.5).float().mean(dim=1) >= 0.5")),
    ("divided by all queries",
     "Your sum over L − 1 queries is divided by L. Divide it by L − 1.",
     ("free[..., 0].mean(dim=-1)", "(free[..., 0].sum(dim=-1) / weights.shape[-1])")),
    ("from the third query",
     "If L is more than 2, your mean also leaves out the second query. This query sees two keys, "
     "so it has a choice. Leave out only the first query.",
     ("free[..., 0].mean(dim=-1)", "free[..., min(1, free.shape[-2] - 1) :, 0].mean(dim=-1)")),
    ("others below half",
     "In your result, a head has a sink if every *other* key gets less than half. Ask instead "
     "whether the first key gets more than half.",
     ("(share > 0.5)", "(free[..., 1:].mean(dim=-2) < 0.5).all(dim=-1)")),
    ("in some text",
     "In your result, it is enough if one text passes. Every text must pass, so use `all(dim=1)`.",
     (".all(dim=1)", ".any(dim=1)")),
    ("every query",
     "In your result, every query must put more than half of its weight on the first token. "
     "Compare only the mean over these queries with a half.",
     ("share = free[..., 0].mean(dim=-1)", "share = free[..., 0].amin(dim=-1)")),
    ("most queries",
     "Your result is the share of queries that put more than half of their weight on the first "
     "token. Average the weights themselves, and compare this mean with a half.",
     ("free[..., 0].mean", "(free[..., 0] > 0.5).float().mean")),
    ("last query only",
     "Your result uses only the last query. Average over all queries except the first.",
     ("free[..., 0].mean(dim=-1)", "free[..., -1, 0]")),
    ("strongest key",
     "In your result, a head has a sink if the first token gets the largest weight. Ask instead "
     "whether the first token gets more than half.",
     ("(share > 0.5)", "(free.mean(dim=-2).argmax(dim=-1) == 0)")),
    ("texts for heads",
     "Your result has shape (layers, B), one entry for each layer and text. Return one entry for "
     "each layer and head: every text must pass, so use `all(dim=1)`.",
     (".all(dim=1)", ".all(dim=2)")),
    ("first key left out",
     "Your result leaves out the first *key*, so it tests the weight on the second one. Leave out "
     "the first query instead. The query dimension comes before the key dimension.",
     ("weights[..., 1:, :]", "weights[..., 1:]")),
    ("False everywhere",
     "Your result is False even for heads that have a sink. If you wrote weights[..., 0, 1:], "
     "swap the last two indices, because the query dimension comes before the key dimension.",
     ("share = free[..., 0].mean(dim=-1)", "share = weights[..., 0, 1:].mean(dim=-1)")),
    ("how often strongest",
     "Your result asks how often the first token has the largest weight. Average its weights over "
     "the queries instead, and compare this mean with a half.",
     ("(share > 0.5)", "((free.argmax(dim=-1) == 0).float().mean(dim=-1) > 0.5)")),
    ("last query left out",
     "Your mean includes the first query and leaves out the last one. Leave out only the first, "
     "because it sees only one key.",
     ("weights[..., 1:, :]", "weights[..., :-1, :]")),
    ("first query in the sum",
     "Your sum includes the first query, although you divide by L − 1. Leave this query out of the "
     "sum, too.",
     ("free[..., 0].mean(dim=-1)", "(weights[..., 0].sum(dim=-1) / free.shape[-2])")),
    ("first text only",
     "Your result uses only the first text. Every text must pass, so use `all(dim=1)`.",
     ("(share > 0.5).all(dim=1)", "share[:, 0] > 0.5")),
    ("last text only",
     "Your result uses only the last text. Every text must pass, so use `all(dim=1)`. If you loop "
     "over the texts, combine their results with `&=`.",
     ("(share > 0.5).all(dim=1)", "share[:, -1] > 0.5")),
    ("product of the texts",
     "Your result compares the product over the texts with a half. Compare each text with a half by"
     " itself, and use `all(dim=1)`.",
     ("(share > 0.5).all(dim=1)", "share.prod(dim=1) > 0.5")),
    ("smallest weight of the texts",
     "Your result takes the smallest weight over the texts for each query, and then the mean. First"
     " average over the queries of each text. Then every text must pass.",
     ("(share > 0.5).all(dim=1)", "free[..., 0].amin(dim=1).mean(dim=-1) > 0.5")),
    ("second query only",
     "Your result uses only the second query. Average over all queries except the first.",
     ("free[..., 0].mean(dim=-1)", "free[..., 0, 0]")),
    ("queries strong in all texts",
     "Your result asks, for each query, whether it puts more than half of its weight on the first "
     "token in every text. Instead, average over the queries of each text first, and then compare "
     "each mean with a half.",
     ("(share > 0.5).all(dim=1)",
      "(free[..., 0] > 0.5).all(dim=1).float().mean(dim=-1) > 0.5")),
    ("any key",
     "In your result, it is enough if *some* key gets more than half. Look only at the first key.",
     ("free[..., 0].mean(dim=-1)", "free.mean(dim=-2).amax(dim=-1)")),
    ("odds",
     "Your result divides the weight on the first token by the weight on the other tokens. Divide "
     "by all the weight, or take the mean over the queries.",
     ("free[..., 0].mean(dim=-1)", "(free[..., 0].sum(-1) / free[..., 1:].sum((-1, -2)))")),
    ("geometric mean",
     "Your result uses the geometric mean over the queries. Use the ordinary mean.",
     ("free[..., 0].mean(dim=-1)", "free[..., 0].log().mean(dim=-1).exp()")),
    ("rounded",
     "Your mean is rounded to two decimal places before it is compared. Compare it without "
     "rounding.",
     ("free[..., 0].mean(dim=-1)", "(free[..., 0].mean(dim=-1) * 100).round() / 100")),
    ("how many",
     "Your result is the number of heads with a sink. Return a bool for each layer and head.",
     (".all(dim=1)", ".all(dim=1).sum()")),
    ("inverted",
     "Your result is True where the first token gets at most half of the weight in every text. "
     "Return True where it gets more than half in every text.",
     ("(share > 0.5)", "~(share > 0.5)")),
]  # fmt: skip

exercise = Exercise(
    "10b.4", is_sink, inputs, MISTAKES, names="layers H", also_right=[by_loops, by_the_smallest]
)
