"""7.2: the value that stands where the query stands among the keys."""

import torch

from course_utils.checks.exercise import Exercise


def dictionary_answer(query, keys, values):
    found = keys == query[:, None]  # (B, S), True at one place in each row
    place = found.int().argmax(dim=-1, keepdim=True)  # (B, 1)
    return values.gather(1, place)[:, 0]  # (B,)


def inputs():
    rng = torch.Generator().manual_seed(72)

    def dictionaries(B, S, symbols, largest=None, below=0):
        keys = torch.rand(B, symbols, generator=rng).argsort(dim=-1)[:, :S]
        values = torch.randint(largest or symbols, (B, S), generator=rng)
        at = torch.randint(S, (B, 1), generator=rng)
        return keys.gather(1, at)[:, 0], keys, values - below

    # as many symbols as places: one taken as a position leads somewhere, mostly wrong
    return [
        dictionaries(5, 4, 4),
        dictionaries(3, 7, 12),
        dictionaries(8, 6, 6),
        dictionaries(4, 5, 5),
        dictionaries(6, 9, 40, largest=1000),
        dictionaries(6, 5, 7, below=8),
        dictionaries(1, 3, 3),
        dictionaries(1, 1, 5),
    ]


MISTAKES = [
    ("place of the key",
     "that is where the key stands; the answer is the value that stands there",
     ("values.gather(1, place)", "place")),
    ("key returned", "that is the key itself: take from values at that place", "query"),
    ("symbol as position",
     "the symbol is used as a position; it is a name: find the place at which keys equals it",
     "values[torch.arange(len(query)), query]"),
    ("looked for among values",
     "keys and values are swapped: the query is looked for among the keys",
     ("keys == ", "values == "), ("values.gather", "keys.gather")),
    ("first dictionary for all",
     "all examples are answered from the first dictionary; each has its own",
     ("values.gather(1, place)[:, 0]", "values[0][place[:, 0]]")),
    ("every place in every dictionary",
     "(B, B) answers: each dictionary is read at the places of all; pair them, "
     "values[torch.arange(B), place]",
     ("values.gather(1, place)[:, 0]", "values[:, place[:, 0]]")),
    ("first other key",
     "the comparison is the wrong way round: that is a key which is not the query",
     ("keys == ", "keys != ")),
    ("largest product",
     "right unless the value lies below 0: the places without the key hold 0, and the largest is "
     "taken; add them up, or gather the value",
     "((keys == query[:, None]) * values).amax(dim=-1)"),
    ("place of the largest key",
     "that is the value of the largest key; find the place at which keys equals the query",
     ("found.int()", "keys")),
    ("kept dimension", "right values as (B, 1); one answer an example is (B,)", ("[:, 0]", "")),
]  # fmt: skip

exercise = Exercise("7.2", dictionary_answer, inputs, MISTAKES, names="B")
