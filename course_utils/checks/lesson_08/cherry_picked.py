"""8.6: the layer and the head in which one weight is largest."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_08._weights import distributions


def cherry_picked(weights, query, key):
    of_pair = weights[:, :, query, key]  # (layers, H)
    best = of_pair.argmax().item()  # layer * H + head
    return torch.tensor(divmod(best, of_pair.shape[1]))  # (2,)


def by_loops(weights, query, key):
    largest, position = -1.0, None
    for layer in range(weights.shape[0]):
        for head in range(weights.shape[1]):
            if weights[layer, head, query, key] > largest:
                largest = weights[layer, head, query, key].item()
                position = layer, head
    return torch.tensor(position)


def by_nonzero(weights, query, key):
    of_heads = weights[..., query, key]
    return (of_heads == of_heads.max()).nonzero()[0]


def inputs():
    draw = distributions(86)
    stacks = [draw(3, 5, 4, 6), draw(6, 2, 7, 7), draw(4, 4, 5, 5)]
    pairs = [(1, 3), (0, 2), (3, 0)]
    tied = draw(2, 3, 2, 2)
    tied[:] = torch.tensor([0.5, 0.5])
    tied[0, 0, 0] = tied[1, 2, 1] = torch.tensor([0.75, 0.25])  # two equal
    tied[1, 0, 0], tied[0, 1, 1] = torch.tensor([0.0, 1.0]), torch.tensor([0.25, 0.75])
    tied[0, 2, 1] = torch.tensor([0.625, 0.375])  # the largest of layer 0
    ties = torch.tensor(  # (1, 2, 2, 3)
        [[[[0.5, 0.5, 0.0], [0.5, 0.3, 0.2]], [[0.4, 0.3, 0.3], [0.7, 0.05, 0.25]]]]
    )
    close = torch.tensor([[[[0.7, 0.3]], [[0.2997, 0.7003]], [[0.2996, 0.7004]]]])  # (1, 3, 1, 2)
    return [
        (tied, 1, 0),
        (ties, 0, 0),  # the larger weight is not alone in its row
        (ties, 1, 2),  # not the largest weight of any row
        *[(stack, *pair) for stack in stacks for pair in pairs],
        (draw(12, 9, 3, 4).transpose(0, 1), 2, 3),  # not contiguous
        (draw(1, 3, 2, 2), 1, 0),
        (close, 0, 1),
        (draw(3, 1, 1, 2), 0, 1),
    ]


def first_favorite(weights, query, key):
    of_pair = weights[:, :, query, key]  # (layers, H)
    favorite = of_pair == weights[:, :, query].amax(dim=-1)
    found = favorite if favorite.any() else of_pair == of_pair.max()
    return found.nonzero()[0]


FIRST = (
    "Your result is the first head in which the query attends more to this key than to any other. "
    "Another head may give this key even more weight, so compare the weights themselves."
)
MISTAKES = [
    ("head before layer",
     "Your result has the head first. Return the layer first, then the head.",
     ("shape[1]))", "shape[1])).flip(0)")),
    ("flat index",
     "Your result is an index into the flattened (layers, H) matrix. Divide it by the number of "
     "heads: the quotient is the layer, and the remainder is the head.",
     ("divmod(best, of_pair.shape[1])", "best")),
    ("divided by layers",
     "Your result is what you get by dividing a flat index by the number of layers. The "
     "(layers, H) matrix has H entries per row, so divide by the number of heads.",
     ("shape[1]", "shape[0]")),
    ("query and key exchanged",
     "Your query and key are swapped. Rows are queries, so use weights[..., query, key].",
     ("query, key]", "key, query]")),
    ("both ways added",
     "Your result is what you get by adding the weight from key to query. Use only the weight "
     "from query to key.",
     ("query, key]  #", "query, key] + (weights[:, :, key, query] if max(query, key) < "
      "min(weights.shape[2:]) else 0)  #")),
    ("largest anywhere",
     "Your result is the head with the largest weight of any pair. Look only at the given pair.",
     ("weights[:, :, query, key]", "weights.amax(dim=(-2, -1))")),
    ("sharpest row",
     "Your result is the head with the largest weight in the row of `query`, whichever key has "
     "it. Look only at the given key.",
     ("weights[:, :, query, key]", "weights[:, :, query].amax(dim=-1)")),
    ("all queries together",
     "Your result is the head in which all queries together give the key the most weight. Look "
     "only at the given query.",
     ("weights[:, :, query, key]", "weights[..., key].sum(dim=-1)")),
    ("picked from one",
     "Your layer and head are counted from 1. Count them from 0, as in code.",
     ("shape[1]))", "shape[1])) + 1")),
    ("smallest weight",
     "Your result is the head in which this weight is smallest. Find the head in which it is "
     "largest.",
     ("argmax", "argmin")),
    ("averages first",
     "Your layer and your head are those with the largest averages. The largest single weight "
     "can be elsewhere, so search all entries at once.",
     "torch.stack([weights[:, :, query, key].mean(dim=1).argmax(), "
     "weights[:, :, query, key].mean(dim=0).argmax()])"),
    ("head by its average",
     "Your head has the largest average over the layers. The largest single weight can be in "
     "another head, so search all entries at once.",
     "torch.stack([weights[:, head := weights[:, :, query, key].mean(dim=0).argmax(), "
     "query, key].argmax(), head])"),
    ("last layer only",
     "Your head is always in the last layer. Search all layers.",
     "torch.stack([torch.tensor(len(weights) - 1), weights[-1, :, query, key].argmax()])"),
    ("lead over the next",
     "Your result is the head in which the weight exceeds that of every other key by the most. "
     "Compare the weights themselves.",
     ("key]  #", "key] - weights[:, :, query].index_fill(-1, torch.tensor(key), "
                         "0).amax(dim=-1)  #")),
    ("share of the row's largest",
     "Your result is what you get by dividing each weight by the largest weight in its row. "
     "Compare the weights themselves.",
     ("key]  #", "key] / weights[:, :, query].amax(dim=-1)  #")),
    ("first favorite", FIRST, first_favorite),
    ("first favorite, or the first", FIRST,
     ("weights[:, :, query, key]  #", "(weights[:, :, query].argmax(dim=-1) == key).int()  #")),
    ("first above a half",
     "Your result is the first head that gives the key more than half of the weight. Another "
     "head may give this key more, so find the largest weight.",
     ("of_pair.argmax()", "(of_pair > 0.5).int().argmax()")),
    ("largest not remembered",
     "Your result is the last head that gives the key any weight. Return the head that gives "
     "this key the most. (In a loop, remember the largest weight so far as well as its head.)",
     "(weights[:, :, query, key] > 0).nonzero()[-1]"),
    ("first layer only",
     "Your head is always in layer 0. Search all layers.",
     "torch.stack([torch.tensor(0), weights[0, :, query, key].argmax()])"),
    ("layer by its average",
     "Your layer has the largest average over its heads. The largest single weight can be in "
     "another layer, so search all entries at once.",
     "torch.stack([layer := weights[:, :, query, key].mean(dim=1).argmax(), "
     "weights[layer, :, query, key].argmax()])"),
    ("layer of head 0",
     "Your head is right, but your layer is the best one for head 0. Return the layer in which "
     "*your* head has the largest weight.",
     "torch.stack([weights[:, :, query, key].argmax(dim=0)[0], "
     "weights[:, :, query, key].amax(dim=0).argmax()])"),
    ("head of layer 0",
     "Your layer is right, but your head is the best one in layer 0. Return the head that has the "
     "largest weight in *your* layer.",
     "torch.stack([weights[:, :, query, key].amax(dim=1).argmax(), "
     "weights[:, :, query, key].argmax(dim=1)[0]])"),
    *((f"divided by {name}",
       f"Your result is what you get by dividing a flat index by {name}. The (layers, H) matrix "
       "has H entries per row, so divide by the number of heads.",
       ("divmod(best, of_pair.shape[1])", f"divmod(best, {size})"))
      for name, size in (("S", "weights.shape[-1]"), ("L", "weights.shape[-2]"),
                         ("L · S", "weights[0, 0].numel()"))),
    ("any query",
     "Your result is the head in which some query gives the key the largest weight. Look only at "
     "the given query.",
     ("weights[:, :, query, key]", "weights[..., key].amax(dim=-1)")),
    ("a head for each layer",
     "Your result has one head for each layer. Return two numbers: the layer and the head that "
     "give this pair the largest weight.",
     "weights[:, :, query, key].argmax(dim=1)"),
    ("a layer for each head",
     "Your result has one layer for each head. Return two numbers: the layer and the head that "
     "give this pair the largest weight.",
     "weights[:, :, query, key].argmax(dim=0)"),
    ("the weight itself",
     "Your result is the largest weight. Return the layer and the head that have it.",
     "weights[:, :, query, key].amax()"),
    ("two largest",
     "Your result has the flat indices of the two largest weights. Take only the first one. Divide "
     "it by the number of heads: the quotient is the layer, and the remainder is the head.",
     "weights[:, :, query, key].flatten().topk(min(2, weights[:, :, query, key].numel())).indices"),
    ("layer and head taken for query and key",
     "You index layers and heads with `query` and `key`. These are the last two dimensions, so use "
     "weights[:, :, query, key].",
     ("weights[:, :, query, key]", "weights[query, key]")),
    ("only where the key is the favorite",
     "You look only at heads in which the query attends more to this key than to any other. "
     "Another head may give this key even more weight. Compare the weights of all heads.",
     ("weights[:, :, query, key]  #",
      "weights[:, :, query, key] * (weights[:, :, query].argmax(dim=-1) == key)  #")),
    ("rounded to 16 bits",
     "Your result is wrong where two weights are nearly equal. In 16 bits, they are rounded to the "
     "same number. Compare the weights as they are.",
     ("of_pair.argmax()", "of_pair.half().argmax()")),
]  # fmt: skip

exercise = Exercise(
    "8.6", cherry_picked, inputs, MISTAKES, names="2", also_right=[by_loops, by_nonzero]
)
