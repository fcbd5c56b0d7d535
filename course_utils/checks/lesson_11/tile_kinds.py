"""11.4: which tiles are full, partial or empty under a causal mask, given the positions."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_11._whole_numbers import in_a_tensor
from course_utils.parallel import shard_positions


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
    order, zigzag = shard_positions(24, 3), shard_positions(24, 3, zigzag=True)
    mixed = torch.randperm(20, generator=rng)
    return [
        (order[1], order[1], 4),
        (order[2], order[0], 4),
        (zigzag[0], zigzag[1], 2),
        (zigzag[2], zigzag[2], 4),
        (zigzag[1], zigzag[2], 8),
        (mixed[:12], mixed[8:], 3),  # in random order
        (torch.arange(6), torch.arange(10), 2),
        (torch.arange(5), torch.arange(5), 1),
        (torch.tensor([7, 3]), torch.tensor([3, 3, 0, 7]), 2),
        (torch.tensor([3, 5]), torch.tensor([5, 9, 9, 5]), 2),  # latest key = earliest query
    ]


SOME = "k.amin(dim=1) <= q.amax(dim=1)[:, None]"
EACH = "k.amax(dim=1) <= q.amin(dim=1)[:, None]"
MEAN = "q.double().mean(dim=1)[:, None] - k.double().mean(dim=1)"
MEANS = (
    "Your result is what you get by comparing the mean positions of the blocks. The positions of "
    "a block may have gaps, so use the earliest and the latest one, with `amin` and `amax`."
)
MISTAKES = [
    ("the past forbidden",
     "You forbid the past. A query may attend to keys up to its own position.",
     (SOME, "k.amax(dim=1) >= q.amin(dim=1)[:, None]"),
     (EACH, "k.amin(dim=1) >= q.amax(dim=1)[:, None]")),
    ("itself not seen",
     "You do not let a query attend to its own position. A query may do so, so use <= in both "
     "comparisons.",
     (SOME, SOME.replace("<=", "<")), (EACH, EACH.replace("<=", "<"))),
    ("itself not seen at all",
     "You do not count a query and its own position as an allowed pair. A query may attend to its "
     "own position, so use <= in both comparisons.",
     (SOME, SOME.replace("<=", "<"))),
    ("by row and column",
     "You go by the order of the tokens in the two lists. Use their positions in the text, which "
     "are given.",
     ("    some", "    q = torch.arange(len(queries)).unflatten(0, (-1, size))\n"
      "    k = torch.arange(len(keys)).unflatten(0, (-1, size))\n    some")),
    ("sorted first",
     "Your result is right where positions ascend. If you sort all positions, tokens end up in "
     "other tiles, so leave the positions in their order.",
     ("    some", "    q = queries.sort().values.unflatten(0, (-1, size))\n"
      "    k = keys.sort().values.unflatten(0, (-1, size))\n    some")),
    ("swapped",
     "You swap queries and keys. Rows are tiles of queries, and a query may attend to keys up to "
     "its own position.",
     ("    some", "    q, k = k, q\n    some")),
    ("consecutive assumed",
     "Your result is right where the positions of each block are consecutive. They may also be "
     "in any order, so use the earliest and the latest position of each block, with `amin` and "
     "`amax`.",
     (SOME, "k[:, 0] <= q[:, 0, None] + size - 1"),
     (EACH, "k[:, 0] + size - 1 <= q[:, 0, None]")),
    ("numbers of blocks",
     "Your result is what you get by comparing position // size. That fits only blocks of "
     "consecutive positions that start at a multiple of size. Use the earliest and the latest "
     "position of each block, with `amin` and `amax`.",
     (SOME, "k[:, 0] // size <= q[:, 0, None] // size"),
     (EACH, "k[:, 0] // size < q[:, 0, None] // size")),
    ("means",
     MEANS,
     (SOME, MEAN + " > -size"),
     (EACH, MEAN + " >= size - 1")),
    ("means, by whole blocks",
     MEANS,
     (SOME, MEAN + " > -size"),
     (EACH, MEAN + " >= size")),
    ("earliest with earliest",
     "Your result is 0 where the earliest query may see no key of the tile. A later query may "
     "see one, so compare the earliest key with the latest query.",
     (SOME, "k.amin(dim=1) <= q.amin(dim=1)[:, None]")),
    ("all keys past",
     "Your result is 0 unless the latest query may see every key. One allowed pair is enough, "
     "so compare the earliest key with the latest query.",
     (SOME, "k.amax(dim=1) <= q.amax(dim=1)[:, None]")),
    ("first tokens",
     "You use only the first query of each block. Return 0 only if the earliest key is after the "
     "latest query, and 2 only if the latest key is not after the earliest query.",
     (SOME, "k[:, 0] <= q[:, 0, None]"), (EACH, "k[:, -1] <= q[:, 0, None]")),
    ("sorted assumed",
     "Your result is right where positions ascend. The positions in a block may have any order, "
     "so use `amin` and `amax`.",
     (SOME, "k[:, 0] <= q[:, -1, None]"), (EACH, "k[:, -1] <= q[:, 0, None]")),
    ("full only where all is past",
     "Your result is 1 where the latest key has the position of the earliest query. All pairs "
     "are allowed there, so return 2.",
     (EACH, "k.amax(dim=1) < q.amin(dim=1)[:, None]")),
    ("cut counts as full",
     "Your result has 2 for tiles in which only some pairs are allowed. They still need a mask, "
     "so return 1.",
     ("some.long() + each.long()", "2 * some.long()")),
    ("full counts as cut",
     "Your result has 1 for tiles in which every pair is allowed. Return 2 for them.",
     ("some.long() + each.long()", "some.long()")),
    ("the mask",
     "Your result is the mask, with one entry per pair. Return one number per tile.",
     "(keys <= queries[:, None]).long()"),
    ("counts",
     "Your result is the number of allowed pairs. Return 2 for all, 0 for none and 1 for "
     "anything between.",
     "(keys <= queries[:, None]).long().unflatten(1, (-1, size)).unflatten(0, (-1, size))"
     ".sum(dim=(1, 3))"),
    ("shares",
     "Your result is the share of allowed pairs. Return 2 for all, 0 for none and 1 for anything "
     "between.",
     "(keys <= queries[:, None]).float().unflatten(1, (-1, size)).unflatten(0, (-1, size))"
     ".mean(dim=(1, 3))"),
    ("cut counts as nothing",
     "Your result has 0 for tiles in which only some pairs are allowed. Return 1 for them.",
     ("some.long() + each.long()", "2 * each.long()")),
    ("numbers swapped",
     "You swap the numbers. 0 means that no pair is allowed, and 2 means that all are.",
     ("some.long() + each.long()", "2 - some.long() - each.long()")),
    ("latest with latest",
     "Your result is 2 where the latest query may see every key. The earliest query may not see "
     "them all, so compare the latest key with the earliest query.",
     (EACH, "k.amax(dim=1) <= q.amax(dim=1)[:, None]")),
    ("transposed",
     "Your numbers are right, but transposed. Rows are tiles of queries, and columns are tiles "
     "of keys.",
     ("some.long() + each.long()", "(some.long() + each.long()).T")),
]  # fmt: skip

exercise = Exercise(
    "11.4", tile_kinds, inputs, MISTAKES, names="tiles tiles", run=in_a_tensor,
    also_right=[by_mask, by_loops],
)  # fmt: skip
