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
        (torch.arange(6), torch.arange(1, 7), 3),  # blocks that do not start at multiples
        (torch.tensor([3, 5]), torch.tensor([5, 9, 9, 5]), 2),  # latest key = earliest query
    ]


SOME = "k.amin(dim=1) <= q.amax(dim=1)[:, None]"
EACH = "k.amax(dim=1) <= q.amin(dim=1)[:, None]"
MEAN = "q.double().mean(dim=1)[:, None] - k.double().mean(dim=1)"
MEANS = (
    "Your result is what you get by comparing the mean positions of the blocks. The positions of "
    "a block may have gaps, so use the earliest and the latest one, with `amin` and `amax`."
)
ONE_PAIR = (
    "Your result depends only on the {} query and the {} key of each tile, so it is never 1. "
    "Return 0 if the earliest key is after the latest query, 2 if the latest key is not after the "
    "earliest query, and 1 otherwise."
)
SORTED = (
    "Your result is right where the positions in each block of {} ascend. Positions may be in any "
    "order, so use `amin` and `amax` for both lists."
)
SHARES = (
    "(keys <= queries[:, None]).float().unflatten(1, (-1, size)).unflatten(0, (-1, size))"
    ".mean(dim=(1, 3))"
)
SHARE = (
    "Your result is twice the share of allowed pairs, rounded. Return 1 for every share between 0 "
    "and 1, however small or large."
)


def cut_in_one_step(queries, keys, size):
    mask = keys <= queries[:, None]
    tiles = mask.reshape(len(queries) // size, len(keys) // size, size * size)
    return tiles.any(dim=-1).long() + tiles.all(dim=-1).long()


MISTAKES = [
    ("the past forbidden",
     "You forbid keys in the past. A query may attend to keys up to its own position.",
     (SOME, "k.amax(dim=1) >= q.amin(dim=1)[:, None]"),
     (EACH, "k.amin(dim=1) >= q.amax(dim=1)[:, None]")),
    ("itself not seen",
     "You do not let a query attend to its own position. A query may do so. In both comparisons, "
     "count a key at the query's own position as allowed.",
     (SOME, SOME.replace("<=", "<")), (EACH, EACH.replace("<=", "<"))),
    ("itself not seen at all",
     "You do not count a query and its own position as an allowed pair. A query may attend to its "
     "own position, so count a key there as allowed in every comparison.",
     (SOME, SOME.replace("<=", "<"))),
    ("by row and column",
     "You use the index of each token in its list. Whether a query may attend to a key depends on "
     "their positions in the text, so compare the given positions.",
     ("    some", "    q = torch.arange(len(queries)).unflatten(0, (-1, size))\n"
      "    k = torch.arange(len(keys)).unflatten(0, (-1, size))\n    some")),
    ("sorted first",
     "Your result is right where positions ascend. If you sort all positions, tokens end up in "
     "other tiles, so leave the positions in their order.",
     ("    some", "    q = queries.sort().values.unflatten(0, (-1, size))\n"
      "    k = keys.sort().values.unflatten(0, (-1, size))\n    some")),
    ("swapped",
     "You have swapped queries and keys. Rows are tiles of queries, and a query may attend to "
     "keys up to its own position.",
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
    ("means alone", MEANS, (SOME, MEAN + " >= 0"), (EACH, MEAN + " > 0")),
    ("means",
     MEANS,
     (SOME, MEAN + " > -size"),
     (EACH, MEAN + " >= size - 1")),
    ("means, by whole blocks",
     MEANS,
     (SOME, MEAN + " > -size"),
     (EACH, MEAN + " >= size")),
    ("earliest with earliest",
     "Your result is 0 where the earliest query cannot see any key of the tile. A later query "
     "may see one, so compare the earliest key with the latest query.",
     (SOME, "k.amin(dim=1) <= q.amin(dim=1)[:, None]")),
    ("all keys past",
     "Your result is 0 unless the latest query may see every key. One allowed pair is enough, "
     "so compare the earliest key with the latest query.",
     (SOME, "k.amax(dim=1) <= q.amax(dim=1)[:, None]")),
    ("first tokens",
     "You use only the first query of each block, and the first and the last key. Positions may be "
     "in any order, so use the earliest and the latest position of each block, with `amin` and "
     "`amax`.",
     (SOME, "k[:, 0] <= q[:, 0, None]"), (EACH, "k[:, -1] <= q[:, 0, None]")),
    ("earliest with earliest for 2",
     "Your result is 2 where the earliest query may see the earliest key. For a 2, it must see "
     "every key, so compare the latest key with the earliest query.",
     (EACH, "k.amin(dim=1) <= q.amin(dim=1)[:, None]")),
    ("first with first", ONE_PAIR.format("first", "first"),
     (SOME, "k[:, 0] <= q[:, 0, None]"), (EACH, "k[:, 0] <= q[:, 0, None]")),
    ("last with last", ONE_PAIR.format("last", "last"),
     (SOME, "k[:, -1] <= q[:, -1, None]"), (EACH, "k[:, -1] <= q[:, -1, None]")),
    ("diagonal of the tile",
     "Your result is 2 where query i of a block may see key i of the other block, for every i. "
     "Return 2 only if every query may see every key.",
     (EACH, "(k <= q[:, None]).all(dim=2)")),
    ("sorted assumed",
     "Your result is right where positions ascend. The positions in a block may be in any order, "
     "so use `amin` and `amax`.",
     (SOME, "k[:, 0] <= q[:, -1, None]"), (EACH, "k[:, -1] <= q[:, 0, None]")),
    ("queries assumed sorted", SORTED.format("queries"),
     (SOME, "k.amin(dim=1) <= q[:, -1, None]"), (EACH, "k.amax(dim=1) <= q[:, 0, None]")),
    ("keys assumed sorted", SORTED.format("keys"),
     (SOME, "k[:, 0] <= q.amax(dim=1)[:, None]"), (EACH, "k[:, -1] <= q.amin(dim=1)[:, None]")),
    ("mask cut in one step",
     "Each of your tiles is size² neighboring entries of the flattened mask. Split its rows and "
     "its columns: `mask.reshape(L // size, size, S // size, size)`. Then each tile extends over "
     "dimensions 1 and 3.",
     cut_in_one_step),
    ("strided blocks",
     "Your blocks are not consecutive in the lists: each takes every (L / size)-th query, or every "
     "(S / size)-th key. Take `size` neighboring entries for a block, as `queries.view(-1, size)` "
     "does.",
     ("queries.unflatten(0, (-1, size))", "queries.unflatten(0, (size, -1)).T"),
     ("keys.unflatten(0, (-1, size))", "keys.unflatten(0, (size, -1)).T")),
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
    ("1 and 2 swapped",
     "You have swapped 1 and 2. Return 2 where every pair is allowed, and 1 where only some pairs "
     "are.",
     ("some.long() + each.long()", "2 * some.long() - each.long()")),
    ("0 and 1 swapped",
     "You have swapped 0 and 1. Return 0 where no pair is allowed, and 1 where only some pairs "
     "are.",
     ("some.long() + each.long()", "1 - some.long() + 2 * each.long()")),
    ("always 1",
     "Your result is 1 for every tile. Return 2 where every pair is allowed, and 0 where no pair "
     "is. If you use the earliest and the latest position of a whole list, use those of each "
     "block instead.",
     ("some.long() + each.long()", "torch.ones_like(some.long())")),
    ("share rounded", SHARE, f"(2 * {SHARES}).round().long()"),
    ("share rounded down", SHARE, f"(2 * {SHARES}).long()"),
    ("share rounded up", SHARE, f"(2 * {SHARES}).ceil().long()"),
    ("keys cut to L",
     "Your result is right for L ≥ S. If S is larger, your result has only as many columns as "
     "rows, so some keys are left out. Use all keys: there are S / size columns.",
     ("keys.unflatten", "keys[: len(queries)].unflatten")),
    ("the mask",
     "Your result is the mask, with one entry per pair. Return one number per tile.",
     "(keys <= queries[:, None]).long()"),
    ("counts",
     "Your result is the number of allowed pairs. Return 2 for all, 0 for none and 1 for "
     "anything in between.",
     "(keys <= queries[:, None]).long().unflatten(1, (-1, size)).unflatten(0, (-1, size))"
     ".sum(dim=(1, 3))"),
    ("shares",
     "Your result is the share of allowed pairs. Return 2 for all, 0 for none and 1 for anything "
     "in between.",
     SHARES),
    ("cut counts as nothing",
     "Your result has 0 for tiles in which only some pairs are allowed. Return 1 for them.",
     ("some.long() + each.long()", "2 * each.long()")),
    ("numbers swapped",
     "You have swapped 0 and 2. Return 0 where no pair is allowed, and 2 where every pair is.",
     ("some.long() + each.long()", "2 - some.long() - each.long()")),
    ("latest with latest",
     "Your result is 2 where the latest query may see every key. The earliest query might not "
     "see every key, so compare the latest key with the earliest query.",
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
