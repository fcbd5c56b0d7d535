"""8.6: the layer and the head in which one weight is largest."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_08._weights import distributions


def cherry_picked(weights, query, key):
    told = weights[:, :, query, key]  # (layers, H)
    best = told.argmax().item()  # layer * H + head
    return torch.tensor(divmod(best, told.shape[1]))  # (2,)


def by_loops(weights, query, key):
    best, place = -1.0, None
    for layer in range(weights.shape[0]):
        for head in range(weights.shape[1]):
            if weights[layer, head, query, key] > best:
                best, place = weights[layer, head, query, key].item(), (layer, head)
    return torch.tensor(place)


def by_nonzero(weights, query, key):
    of_heads = weights[..., query, key]
    return (of_heads == of_heads.max()).nonzero()[0]


def inputs():
    draw = distributions(86)
    stacks = [draw(3, 5, 4, 6), draw(6, 2, 7, 7), draw(4, 4, 5, 5)]
    pairs = [(1, 3), (0, 2), (3, 0)]
    twice = draw(2, 3, 2, 2)
    twice[:] = torch.tensor([0.5, 0.5])
    twice[0, 0, 0] = twice[1, 2, 1] = torch.tensor([0.75, 0.25])  # as large elsewhere
    twice[1, 0, 0], twice[0, 1, 1] = torch.tensor([0.0, 1.0]), torch.tensor([0.25, 0.75])
    twice[0, 2, 1] = torch.tensor([0.625, 0.375])  # the first layer's own
    level = torch.tensor(  # (1, 2, 2, 3)
        [[[[0.5, 0.5, 0.0], [0.5, 0.3, 0.2]], [[0.4, 0.3, 0.3], [0.7, 0.05, 0.25]]]]
    )
    return [
        (twice, 1, 0),
        (level, 0, 0),  # the larger weight shares its row with another
        (level, 1, 2),  # no head's favourite
        *[(stack, *pair) for stack in stacks for pair in pairs],
        (draw(12, 9, 3, 4).transpose(0, 1), 2, 3),  # not contiguous
        (draw(1, 3, 2, 2), 1, 0),
        (draw(3, 1, 1, 2), 0, 1),
    ]


def first_favourite(weights, query, key):
    told = weights[:, :, query, key]  # (layers, H)
    favourite = told == weights[:, :, query].amax(dim=-1)
    found = favourite if favourite.any() else told == told.max()
    return found.nonzero()[0]


FIRST = (
    "that is the first head in which the row's largest weight is on this key; another may give it "
    "more"
)
MISTAKES = [
    ("head before layer", "first the head, then the layer: turn them round",
     ("shape[1]))", "shape[1])).flip(0)")),
    ("flat place",
     "that is the place in the flattened matrix; divide it by the number of heads: quotient and "
     "rest", ("divmod(best, told.shape[1])", "best")),
    ("divided by layers",
     "the flat place is divided by the number of layers; a row holds as many entries as heads",
     ("shape[1]", "shape[0]")),
    ("query and key exchanged",
     "query and key are exchanged: rows are queries, weights[..., query, key]",
     ("query, key]", "key, query]")),
    ("both ways added",
     "the weight from key to query is added to the one from query to key; the story tells of one",
     ("query, key]  #", "query, key] + (weights[:, :, key, query] if max(query, key) < "
      "min(weights.shape[2:]) else 0)  #")),
    ("largest anywhere", "that is the head with the largest weight anywhere; look at the one pair",
     ("weights[:, :, query, key]", "weights.amax(dim=(-2, -1))")),
    ("picked from one", "layer and head are counted from 0, as in code; these are from 1",
     ("shape[1]))", "shape[1])) + 1")),
    ("smallest weight", "that is where the weight is smallest; the story wants the largest",
     ("argmax", "argmin")),
    ("averages first",
     "layer and head are looked for one by one, in averages; the largest single entry may be "
     "elsewhere", "torch.stack([weights[:, :, query, key].mean(dim=1).argmax(), "
     "weights[:, :, query, key].mean(dim=0).argmax()])"),
    ("head by its average",
     "the head is the one with the largest average over layers; the largest single entry may be "
     "another's", "torch.stack([weights[:, head := weights[:, :, query, key].mean(dim=0).argmax(), "
     "query, key].argmax(), head])"),
    ("last layer only", "only the last layer is searched; the largest may be in any",
     "torch.stack([torch.tensor(len(weights) - 1), weights[-1, :, query, key].argmax()])"),
    ("lead over the next", "that is where the key leads the others of its row by most; the weight "
     "itself is asked", ("key]  #", "key] - weights[:, :, query].index_fill(-1, torch.tensor(key), "
                         "0).amax(dim=-1)  #")),
    ("share of the row's largest",
     "that is where the weight comes nearest to the largest of its row, or is it; another head may "
     "give the key more: compare the weights themselves",
     ("key]  #", "key] / weights[:, :, query].amax(dim=-1)  #")),
    ("first favourite", FIRST, first_favourite),
    ("first favourite, or the first", FIRST,
     ("weights[:, :, query, key]  #", "(weights[:, :, query].argmax(dim=-1) == key).int()  #")),
    ("first above a half",
     "the first head with more than half of the query's weight there; another may give it more",
     ("told.argmax()", "(told > 0.5).int().argmax()")),
    ("best not kept", "that is the last head with any weight there: in a loop, the largest so far "
     "must be kept as well as its place", "(weights[:, :, query, key] > 0).nonzero()[-1]"),
    ("first layer only", "only the first layer is searched; the largest may be in any",
     "torch.stack([torch.tensor(0), weights[0, :, query, key].argmax()])"),
    ("layer by its average",
     "the layer is the one with the largest average; the largest single entry may be in another",
     "torch.stack([layer := weights[:, :, query, key].mean(dim=1).argmax(), "
     "weights[layer, :, query, key].argmax()])"),
]  # fmt: skip

exercise = Exercise(
    "8.6", cherry_picked, inputs, MISTAKES, names="2", also_right=[by_loops, by_nonzero]
)
