"""8.7: the share of pairs to which some head gives at least the weight shown."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_08._weights import distributions


def share_of_stories(weights, shown):
    best = weights.amax(dim=(0, 1))  # (layers, H, L, S) -> (L, S)
    shows = best >= shown  # (L, S)
    return shows.double().mean()


def by_any(weights, shown):
    return (weights >= shown).any(0).any(0).float().mean()


def flat(weights, shown):
    best = weights.flatten(2).flatten(0, 1).max(dim=0).values
    return (best >= shown).sum() / best.numel()


def inputs():
    draw = distributions(87)
    few, many = draw(2, 3, 5, 7), draw(4, 3, 6, 4)
    causal = few[..., :5].tril()
    causal = causal / causal.sum(dim=-1, keepdim=True)
    return [
        (few, 0.85),
        (causal, 0.8),
        (many, 0.97),
        (few, float(few[1, 2].max())),  # the shown weight itself counts
        (many, 0.9),
        (few, float(few[1, 2].max()) + 4e-6),  # nearly as large does not count
        (torch.full((2, 2, 3, 4), 0.25), 0.25),
        (few, 0.0),
        (draw(1, 2, 50, 12).transpose(2, 3), 0.85),  # not contiguous
        (torch.ones(1, 1, 1, 1), 0.9),
        (draw(2, 3, 6, 6), 0.7),  # L = S, so (i, j) and (j, i) can be confused
    ]


MISTAKES = [
    ("share of weights",
     "Your result is the share of all individual weights. Count each pair once, if *some* head "
     "gives it enough weight.",
     ("weights.amax(dim=(0, 1))", "weights")),
    ("layers averaged",
     "You take the maximum over the heads of each layer and average over the layers. A picture "
     "shows one head of one layer, so take the maximum over the layers, too.",
     ("weights.amax(dim=(0, 1))", "weights.amax(dim=1).mean(dim=0)")),
    ("all heads must",
     "You count a pair only if *all* heads give it enough weight. One head is enough, so look at "
     "the largest weight of each pair.",
     ("amax", "amin")),
    ("heads averaged",
     "You average over layers and heads. A picture shows one head, so take the maximum over them.",
     ("amax", "mean")),
    ("layers apart",
     "You count each pair once for each layer. Take the maximum over the layers as well as the "
     "heads.",
     ("(0, 1)", "1")),
    ("heads apart",
     "You count each pair once for each head. Take the maximum over the heads as well as the "
     "layers.",
     ("(0, 1)", "0")),
    ("last layer alone",
     "You use only the last layer. Use all layers.",
     ("weights.amax(dim=(0, 1))", "weights[-1].amax(dim=0)")),
    ("in percent",
     "Your result is in percent. Return a share between 0 and 1.",
     ("mean()", "mean() * 100")),
    ("number of pairs",
     "Your result is a number of pairs. Divide it by the total number of pairs.",
     ("double().mean()", "sum().item()")),
    ("divided by squared length",
     "Your result is divided by L². There are L · S pairs, so divide by L · S.",
     ("double().mean()", "sum() / len(best) ** 2")),
    ("divided by squared keys",
     "Your result is divided by S². There are L · S pairs, so divide by L · S.",
     ("double().mean()", "sum() / best.shape[-1] ** 2")),
    ("favorites only",
     "You look only at each query's strongest key in each head. Look at every key: count a pair if "
     "any head gives it at least the weight shown.",
     ("weights.amax(dim=(0, 1))", "weights.where(torch.arange(weights.shape[-1]) == "
      "weights.argmax(dim=-1, keepdim=True), -1).amax(dim=(0, 1))")),
    ("either way round",
     "If L = S, you treat (i, j) and (j, i) as one pair. Query i with key j and query j with key i "
     "are two pairs, so count them separately.",
     ("best >= shown", "best.maximum(best.T if len(best) == len(best.T) else best) >= shown")),
    ("first layer alone",
     "You use only layer 0. Use all layers.",
     ("weights.amax(dim=(0, 1))", "weights[0].amax(dim=0)")),
    ("heads added",
     "You add the weights of all heads in all layers. A picture shows one head, so take the "
     "maximum.",
     ("amax", "sum")),
    ("heads of a layer added",
     "You add the weights of a layer's heads. A picture shows one head, so take the maximum over "
     "the heads.",
     ("weights.amax(dim=(0, 1))", "weights.sum(dim=1).amax(dim=0)")),
    ("strictly larger",
     "You leave out weights equal to the one shown. Use >=, because the picture shown counts too.",
     (">=", ">")),
    ("share of heads",
     "Your result is the share of heads that give at least one pair enough weight. Return the "
     "share of pairs to which at least one head gives enough weight.",
     ("(0, 1)", "(2, 3)")),
    ("any pair at all",
     "Your result says whether there is any pair to which some head gives enough weight. Return "
     "the share of such pairs.",
     ("mean()", "amax()")),
    ("share without",
     "Your result is the share of pairs to which no head gives enough weight. Return the share "
     "of the other pairs.",
     ("shows.double()", "(~shows).double()")),
    ("masked pairs left out",
     "You leave out pairs that get no weight in any head, such as masked ones. Count *all* pairs.",
     ("shows.double()", "shows[best > 0].double()")),
    ("diagonal left out",
     "You leave out the pairs of a query with the key at its own position. Count *all* pairs.",
     ("shows.double()", "shows[~torch.eye(*shows.shape, dtype=torch.bool)].double()")),
    ("later keys left out",
     "You leave out the keys after each query. There is no causal mask here, so count *all* pairs.",
     ("shows.double()", "shows[torch.ones_like(shows).tril()].double()")),
    ("share of queries",
     "Your result is the share of queries from which some head gives enough weight to any key. "
     "Count the pairs, not the queries.",
     ("(0, 1)", "(0, 1, 3)")),
    ("share of keys",
     "Your result is the share of keys to which some head gives enough weight from any query. "
     "Count the pairs, not the keys.",
     ("(0, 1)", "(0, 1, 2)")),
    ("every head counted",
     "You count a pair once for each head that gives it enough weight, so your result can be above "
     "1. Count each pair once.",
     ("shows.double().mean()", "(weights >= shown).sum() / shows.numel()")),
    ("every layer counted",
     "You count a pair once for each layer that gives it enough weight, so your result can be "
     "above 1. Count each pair once.",
     ("shows.double().mean()", "(weights.amax(dim=1) >= shown).sum() / shows.numel()")),
    ("without the pair shown",
     "You leave out the pair shown, and divide by L · S − 1. Count *all* pairs.",
     ("shows.double().mean()", "(shows.sum() - 1) / (shows.numel() - 1)")),
    ("pair shown left out above",
     "You leave out the pair shown, but divide by L · S. Count *all* pairs.",
     ("shows.double().mean()", "(shows.sum() - 1) / shows.numel()")),
    ("rounded to two decimals",
     "You round the weights before you compare them, so some weights below the one shown count. "
     "Compare them as they are.",
     ("best >= shown", "best.round(decimals=2) >= round(shown, 2)")),
    ("nearly as large counted",
     "You also count weights that are slightly smaller than the one shown. Compare with >=, "
     "without a tolerance.",
     ("best >= shown", "(best >= shown) | torch.isclose(best, torch.tensor(shown))")),
    ("at most the one shown",
     "Your result is the share of pairs that no head gives more than the weight shown. Count the "
     "pairs that some head gives at least this weight. Use >=.",
     ("best >= shown", "best <= shown")),
    ("a matrix",
     "Your result is a matrix that says for each pair whether some head gives enough weight. "
     "Return one number, the share of pairs.",
     ("shows.double().mean()", "shows.double()")),
]  # fmt: skip

exercise = Exercise("8.7", share_of_stories, inputs, MISTAKES, also_right=[by_any, flat])
