"""6.3: how many tiles causality leaves for each block of queries, without a mask and in all."""

import math

import torch

from course_utils.checks.exercise import Exercise


def tiles_to_visit(L, block_q, block_k):
    result = []
    for first in range(0, L, block_q):
        last = min(first + block_q, L) - 1  # the block's last query
        starts = range(0, L, block_k)  # of the blocks of keys
        no_mask = sum(min(j + block_k, L) - 1 <= first for j in starts)
        visited = sum(j <= last for j in starts)
        result.append([no_mask, visited])
    return torch.tensor(result)  # (blocks, 2)


def pair_by_pair(L, block_q, block_k):
    rows = []
    for i in range(0, L, block_q):
        queries = range(i, min(i + block_q, L))
        tiles = [range(j, min(j + block_k, L)) for j in range(0, L, block_k)]
        whole = sum(all(b <= a for a in queries for b in tile) for tile in tiles)
        some = sum(any(b <= a for a in queries for b in tile) for tile in tiles)
        rows.append([whole, some])
    return torch.tensor(rows)


def by_formula(L, block_q, block_k):
    first = torch.arange(0, L, block_q)
    end = (first + block_q).clamp(max=L)
    # a last block of keys that is short is whole as soon as its own last key is seen
    whole = torch.where(first + 1 >= L, math.ceil(L / block_k), (first + 1) // block_k)
    return torch.stack([whole, -(-end // block_k)], dim=1)


def inputs():
    sizes = [(8, 2, 2), (12, 4, 3), (12, 3, 4), (12, 6, 2), (13, 4, 5), (7, 16, 16), (10, 2, 5)]
    sizes += [(9, 4, 3), (9, 2, 4)]  # a short last block shows in the visited, in the whole only
    return [*sizes, (1, 1, 1), (1, 4, 3), (50, 8, 16), (48, 16, 8), (5, 1, 3), (5, 3, 1)]


WHOLE = "sum(min(j + block_k, L) - 1 <= first for j in starts)"
VISITED = "sum(j <= last for j in starts)"
MISTAKES = [
    ("skipped by number", "block number i is taken to see i + 1 blocks: that holds only if block_q "
     "= block_k; count by where the blocks lie", (WHOLE, "first // block_q"),
     (VISITED, "first // block_q + 1")),
    ("nothing skipped", "all blocks of keys are visited: those past a block's last query hold "
     "nothing", (VISITED, "len(starts)")),
    ("visits rounded down", "rounded down: a block that only some of the queries see must be "
     "visited as well", (VISITED, "(last + 1) // block_k")),
    ("one block too many", "one too many: a block that begins at the next query holds nothing for "
     "this one", ("j <= last", "j <= last + 1")),
    ("one block too many at the end", "one too many: a block that begins at the next query holds "
     "nothing for this one, and past the last block there is none",
     (VISITED, "(last + 1) // block_k + 1")),
    ("number of the last visited", "one visited too few: the first block has number 0, so if the "
     "last one to visit has number n there are n + 1", (VISITED, "last // block_k")),
    ("last visited counted twice", "one visited too many in each row: if the last one to visit has "
     "number n there are n + 1, the first having number 0", (VISITED, "last // block_k + 2")),
    ("own block taken as whole", "one too many need no mask: the block with the first query's own "
     "key does as well, unless that is its last key", (WHOLE, "first // block_k + 1")),
    ("blocks exchanged", "block_q and block_k are exchanged: a row for each block of queries, of "
     "block_q queries each", ("L, block_q, block_k)", "L, block_k, block_q)")),
    ("whole by the last query", "a tile needs no mask only if the block's *first* query sees all "
     "of it; the last one is asked", ("<= first", "<= last")),
    ("own key forgotten", "one too few need no mask: the first query sees its own key too, so a "
     "block may end with it", ("- 1 <= first", "<= first")),
    ("own key not seen", "a query sees its own key too: that counts for both numbers, keys up to "
     "i, not i - 1", ("- 1 <= first", "<= first"), ("j <= last", "j < last")),
    ("own key not visited", "one visited too few where a block begins with the last query's own "
     "key: it sees that key too", ("j <= last", "j < last")),
    ("one mask in each row", "one tile of each row is taken to need a mask; the diagonal may cross "
     "several, if the block of queries is the longer one, and none is left where a tile ends with "
     "the first query's own key", (WHOLE, VISITED + " - 1")),
    ("visited by the first query", "a tile is visited if *some* query of the block sees part of "
     "it: the last one sees most, the first one is asked",
     (VISITED, "sum(j <= first for j in starts)")),
    ("skipped for visited", "the second number is of the tiles that are skipped: count the others",
     (VISITED, "sum(j > last for j in starts)")),
    ("keys counted", "keys are counted, not blocks of keys", (WHOLE, "first + 1"),
     (VISITED, "last + 1")),
    ("short last keys missed", "a short last block of keys is whole as soon as its own last key is "
     "seen: it ends at L, not at a multiple of block_k", (WHOLE, "(first + 1) // block_k")),
    ("visits past the end", "the last block of queries may be shorter: it ends at L, and visits no "
     "keys past L", (VISITED, "-(-(first + block_q) // block_k)")),
    ("last blocks taken as full", "right but for the last blocks: they may be shorter, and end at "
     "L", (WHOLE, "(first + 1) // block_k"), (VISITED, "-(-(first + block_q) // block_k)")),
    ("masked in front", "the first number is of the tiles that need *no* mask, not of those that "
     "need one", ("[no_mask,", "[visited - no_mask,")),
    ("only the masked", "the second number is of all tiles visited, not only of those that need a "
     "mask", ("visited])", "visited - no_mask])")),
    ("visits swapped", "the two are swapped: first those without a mask, then those visited",
     ("[no_mask, visited]", "[visited, no_mask]")),
    ("last queries dropped", "the last block of queries is missing where L is no multiple of "
     "block_q: it is shorter, but it has a row too",
     ("range(0, L, block_q)", "range(0, L // block_q * block_q, block_q)")),
    ("totals alone", "those are the totals: a row for each block of queries is asked",
     ("torch.tensor(result)", "torch.tensor(result).sum(dim=0)")),
]  # fmt: skip

exercise = Exercise(
    "6.3", tiles_to_visit, inputs, MISTAKES, names="blocks 2",
    also_right=[pair_by_pair, by_formula],
)  # fmt: skip
