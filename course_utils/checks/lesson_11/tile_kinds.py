"""11.4: which tiles a causal mask leaves full, cuts, or empties, by the places of their tokens."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_11._whole_numbers import in_a_tensor
from course_utils.parallel import places


def tile_kinds(queries, keys, size):
    q = queries.unflatten(0, (-1, size))  # (L / size, size)
    k = keys.unflatten(0, (-1, size))  # (S / size, size)
    some = k.amin(dim=1) <= q.amax(dim=1)[:, None]  # (L / size, S / size)
    each = k.amax(dim=1) <= q.amin(dim=1)[:, None]  # (L / size, S / size)
    return some.long() + each.long()


def by_mask(queries, keys, size):
    mask = keys <= queries[:, None]  # (L, S)
    tiles = mask.unflatten(0, (-1, size)).unflatten(2, (-1, size)).float().mean(dim=(1, 3))
    return (tiles > 0).int() + (tiles == 1).int()


def by_loops(queries, keys, size):
    kinds = torch.zeros(len(queries) // size, len(keys) // size, dtype=torch.int64)
    for i, q in enumerate(queries.split(size)):
        for j, k in enumerate(keys.split(size)):
            if k.max() <= q.min():
                kinds[i, j] = 2
            elif k.min() <= q.max():
                kinds[i, j] = 1
    return kinds


def inputs():
    rng = torch.Generator().manual_seed(114)
    order, zigzag = places(24, 3), places(24, 3, zigzag=True)
    mixed = torch.randperm(20, generator=rng)
    return [
        (order[1], order[1], 4),
        (order[2], order[0], 4),
        (zigzag[0], zigzag[1], 2),
        (zigzag[2], zigzag[2], 4),
        (zigzag[1], zigzag[2], 8),
        (mixed[:12], mixed[8:], 3),  # in no order
        (torch.arange(6), torch.arange(10), 2),
        (torch.arange(5), torch.arange(5), 1),
        (torch.tensor([7, 3]), torch.tensor([3, 3, 0, 7]), 2),
        (torch.tensor([3, 5]), torch.tensor([5, 9, 9, 5]), 2),  # they meet in one token
    ]


SOME = "k.amin(dim=1) <= q.amax(dim=1)[:, None]"
EACH = "k.amax(dim=1) <= q.amin(dim=1)[:, None]"
MISTAKES = [
    ("the past forbidden", "the past is forbidden: a query sees keys up to its own place",
     (SOME, "k.amax(dim=1) >= q.amin(dim=1)[:, None]"),
     (EACH, "k.amin(dim=1) >= q.amax(dim=1)[:, None]")),
    ("itself not seen", "a query's own place counts as forbidden; it may see itself",
     (SOME, SOME.replace("<=", "<")), (EACH, EACH.replace("<=", "<"))),
    ("by row and column", "tiles are judged by where they lie in the two lists; the places of "
     "their tokens are given",
     ("    some", "    q = torch.arange(len(queries)).unflatten(0, (-1, size))\n"
      "    k = torch.arange(len(keys)).unflatten(0, (-1, size))\n    some")),
    ("sorted first", "right where places ascend; here they are sorted first, which moves tokens to "
     "other tiles: leave them where they are",
     ("    some", "    q = queries.sort().values.unflatten(0, (-1, size))\n"
      "    k = keys.sort().values.unflatten(0, (-1, size))\n    some")),
    ("swapped", "queries and keys are swapped: rows are tiles of queries, and a query sees keys up "
     "to its own place",
     ("    some", "    q, k = k, q\n    some")),
    ("earliest with earliest", "a tile counts as empty where its earliest query sees no key; "
     "a later one may: the earliest key against the latest query",
     (SOME, "k.amin(dim=1) <= q.amin(dim=1)[:, None]")),
    ("all keys past", "a tile counts as empty unless its latest query sees every key; one pair is "
     "enough: the earliest key against the latest query",
     (SOME, "k.amax(dim=1) <= q.amax(dim=1)[:, None]")),
    ("first tokens", "only the first tokens of a tile are compared: a pair is allowed as soon as "
     "the earliest key may be seen by the latest query",
     (SOME, "k[:, 0] <= q[:, 0, None]"), (EACH, "k[:, -1] <= q[:, 0, None]")),
    ("sorted assumed", "right where places ascend; a tile's may stand in any order: amin and amax",
     (SOME, "k[:, 0] <= q[:, -1, None]"), (EACH, "k[:, -1] <= q[:, 0, None]")),
    ("full only where all is past", "tiles count as cut, though the latest key may be seen by the "
     "earliest query: that is a full tile",
     (EACH, "k.amax(dim=1) < q.amin(dim=1)[:, None]")),
    ("cut counts as full", "a cut tile counts as full: there a mask is still needed",
     ("some.long() + each.long()", "2 * some.long()")),
    ("full counts as cut", "a full tile counts as cut: 2 where every pair is allowed",
     ("some.long() + each.long()", "some.long()")),
    ("the mask", "that is the mask, an entry a pair; asked is one number a tile",
     "(keys <= queries[:, None]).long()"),
    ("shares", "those are shares of allowed pairs; asked is 2 for all, 0 for none, 1 between",
     "(keys <= queries[:, None]).float().unflatten(1, (-1, size)).unflatten(0, (-1, size))"
     ".mean(dim=(1, 3))"),
    ("cut counts as nothing", "a cut tile counts as nothing: what is allowed in it would be lost",
     ("some.long() + each.long()", "2 * each.long()")),
    ("numbers swapped", "nothing and full are swapped: 0 is nothing, 2 is full",
     ("some.long() + each.long()", "2 - some.long() - each.long()")),
    ("latest with latest", "the latest key is compared with the latest query: the earliest query "
     "may not see it yet", (EACH, "k.amax(dim=1) <= q.amax(dim=1)[:, None]")),
    ("transposed", "right numbers, but transposed: rows are tiles of queries, columns of keys",
     ("some.long() + each.long()", "(some.long() + each.long()).T")),
]  # fmt: skip

exercise = Exercise(
    "11.4", tile_kinds, inputs, MISTAKES, names="tiles tiles", run=in_a_tensor,
    also_right=[by_mask, by_loops],
)  # fmt: skip
