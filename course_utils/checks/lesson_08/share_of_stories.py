"""8.7: for what share of the pairs some head has at least the weight shown."""

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
        (few, float(few[1, 2].max())),  # itself counts
        (many, 0.9),
        (torch.full((2, 2, 3, 4), 0.25), 0.25),
        (few, 0.0),
        (draw(1, 2, 50, 12).transpose(2, 3), 0.85),  # not contiguous
        (torch.ones(1, 1, 1, 1), 0.9),
        (draw(2, 3, 6, 6), 0.7),  # where pairs (i, j) and (j, i) can be taken for one
    ]


MISTAKES = [
    ("share of weights",
     "that is the share of single weights; a pair counts once, if *some* head shows it",
     ("weights.amax(dim=(0, 1))", "weights")),
    ("layers averaged", "the largest of each layer's heads is taken, and then the layers are "
     "averaged; one picture is of one head: take the largest over the layers as well",
     ("weights.amax(dim=(0, 1))", "weights.amax(dim=1).mean(dim=0)")),
    ("all heads must", "a pair counts if some head shows it; here all heads must",
     ("amax", "amin")),
    ("heads averaged",
     "the heads are averaged before; one picture is of one head: take the largest",
     ("amax", "mean")),
    ("layers apart", "the largest is taken over the heads of each layer, and each layer counts "
     "by itself; take it over all layers as well", ("(0, 1)", "1")),
    ("heads apart", "the largest is taken over the layers alone; take it over the heads as well",
     ("(0, 1)", "0")),
    ("last layer alone", "only the heads of the last layer are looked at; take all layers",
     ("weights.amax(dim=(0, 1))", "weights[-1].amax(dim=0)")),
    ("in percent", "that is in percent; a share is between 0 and 1", ("mean()", "mean() * 100")),
    ("number of pairs", "that is how many pairs; divide by the number of pairs",
     ("double().mean()", "sum().item()")),
    ("divided by squared length", "divided by L², but there are L · S pairs",
     ("double().mean()", "sum() / len(best) ** 2")),
    ("divided by squared keys", "divided by S², but there are L · S pairs",
     ("double().mean()", "sum() / best.shape[-1] ** 2")),
    ("favourites only",
     "only pairs whose key is its query's largest in some head are counted; any weight at least as "
     "large as the one shown counts",
     ("weights.amax(dim=(0, 1))", "weights.where(torch.arange(weights.shape[-1]) == "
      "weights.argmax(dim=-1, keepdim=True), -1).amax(dim=(0, 1))")),
    ("either way round",
     "where L = S, a pair is shown there if one of (i, j) and (j, i) is; query i with key j is one "
     "pair, query j with key i another",
     ("best >= shown", "best.maximum(best.T if len(best) == len(best.T) else best) >= shown")),
    ("first layer alone", "only the heads of layer 0 are looked at; take all layers",
     ("weights.amax(dim=(0, 1))", "weights[0].amax(dim=0)")),
    ("heads added", "the weights of all heads are added up; one picture is of one head: take the "
     "largest", ("amax", "sum")),
    ("heads of a layer added",
     "the weights of a layer's heads are added up; one picture is of one head: take the largest",
     ("weights.amax(dim=(0, 1))", "weights.sum(dim=1).amax(dim=0)")),
    ("strictly larger", "at least as large: >=, so that the picture shown counts itself",
     (">=", ">")),
    ("share of heads",
     "that is the share of heads that show some pair; the share of pairs is asked",
     ("(0, 1)", "(2, 3)")),
    ("any pair at all", "that tells whether some pair is shown at all; asked is for what share of "
     "the pairs", ("mean()", "amax()")),
    ("share without", "that is the share of pairs that no head shows",
     ("shows.double()", "(~shows).double()")),
    ("masked pairs left out",
     "pairs that no head gives any weight, as masked ones, are left out; *all* pairs count",
     ("shows.double()", "shows[best > 0].double()")),
    ("share of queries", "only queries are counted, by their largest weight; count pairs",
     ("(0, 1)", "(0, 1, 3)")),
    ("share of keys", "only keys are counted, by their largest weight; count pairs",
     ("(0, 1)", "(0, 1, 2)")),
]  # fmt: skip

exercise = Exercise("8.7", share_of_stories, inputs, MISTAKES, also_right=[by_any, flat])
