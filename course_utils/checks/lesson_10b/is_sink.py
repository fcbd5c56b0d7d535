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
        return scores.masked_fill(torch.ones(L, L).triu(1) > 0, -torch.inf).softmax(dim=-1)

    sizes = [(5, 3, 4, 6, 4), (7, 2, 5, 9, 5), (9, 4, 3, 4, 3), (6, 1, 8, 5, 3), (4, 5, 2, 12, 6)]
    turned = weights(8, 3, 6, 5, 4).mT.contiguous().mT  # not contiguous
    even = weights(3, 2, 4, 2, 0)
    even[..., 1, :] = 0.5  # exactly half is not more
    return [*((weights(*size),) for size in sizes), (turned,), (weights(9, 3, 9, 2, 2),), (even,)]


MISTAKES = [
    ("first query counted",
     "the first query counts: it sees nothing but the first token, so its weight there is always "
     "1; leave it out", ("weights[..., 1:, :]", "weights")),
    ("mean of the texts",
     "the mean over all texts is compared with a half; asked is each text",
     ("(share > 0.5).all(dim=1)", "share.mean(dim=1) > 0.5")),
    ("both slips of the code",
     "as the code given: the first query counts, and the texts are averaged",
     ("weights[..., 1:, :]", "weights"), ("(share > 0.5).all(dim=1)", "share.mean(dim=1) > 0.5")),
    ("exactly half counted", "a mean of exactly half counts as well; asked is more than half",
     ("share > 0.5", "share >= 0.5")),
    ("most texts", "heads whose median over the texts is over half, so most; asked is every text",
     ("(share > 0.5).all(dim=1)", "share.median(dim=1).values > 0.5")),
    ("half of the texts", "heads that do so in half of the texts; asked is every text: all",
     ("(share > 0.5).all(dim=1)", "(share > 0.5).float().mean(dim=1) >= 0.5")),
    ("divided by all queries",
     "the sum over the queries with a choice is divided by L; there are L − 1 of them",
     ("free[..., 0].mean(dim=-1)", "(free[..., 0].sum(dim=-1) / weights.shape[-1])")),
    ("from the third query",
     "the second query is left out as well; it sees two keys, so it has a choice",
     ("free[..., 0].mean(dim=-1)", "free[..., min(1, free.shape[-2] - 1) :, 0].mean(dim=-1)")),
    ("others below half",
     "the weight on all other keys is compared with a half, one by one; asked is the first key's",
     ("(share > 0.5)", "(free[..., 1:].mean(dim=-2) < 0.5).all(dim=-1)")),
    ("in some text", "heads that do so in one text at least; asked is every text: all",
     (".all(dim=1)", ".any(dim=1)")),
    ("every query",
     "each query must lay over half there; asked is their mean, so a few may look elsewhere",
     ("share = free[..., 0].mean(dim=-1)", "share = free[..., 0].amin(dim=-1)")),
    ("most queries",
     "queries are counted that lay over half there; asked is their mean weight",
     ("free[..., 0].mean", "(free[..., 0] > 0.5).float().mean")),
    ("last query only", "one query alone, the last; asked is the mean of all that can choose",
     ("free[..., 0].mean(dim=-1)", "free[..., -1, 0]")),
    ("strongest key", "where the first token has the most weight; asked is more than half",
     ("(share > 0.5)", "(free.mean(dim=-2).argmax(dim=-1) == 0)")),
    ("texts for heads", "the answer is one a layer and text; asked is one a layer and head",
     (".all(dim=1)", ".all(dim=2)")),
    ("first key left out",
     "the first key is cut off, not the first query: queries come before keys",
     ("weights[..., 1:, :]", "weights[..., 1:]")),
    ("how many", "that is how many heads do so; asked is which: a bool for each",
     (".all(dim=1)", ".all(dim=1).sum()")),
    ("turned", "True where they are no sinks: turn it round", ("(share > 0.5)", "~(share > 0.5)")),
]  # fmt: skip

exercise = Exercise(
    "10b.4", is_sink, inputs, MISTAKES, names="layers H", also_right=[by_loops, by_the_smallest]
)
