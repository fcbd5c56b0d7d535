"""6.3: per block of queries, the tiles that need no mask and those that are visited."""

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
ONE_MASKED = (
    "In each row of tiles, you visit exactly one tile besides those that need no mask. But the "
    "diagonal can cross several tiles of a row, or none. Count every tile that starts at or "
    "before the last query."
)
MISTAKES = [
    ("skipped by number",
     "Row i of your result has i blocks without a mask and i + 1 visited blocks. This is right "
     "only if block_q = block_k. Compare the positions where the blocks start and end.",
     (WHOLE, "first // block_q"),
     (VISITED, "first // block_q + 1")),
    ("nothing skipped",
     "You visit all blocks of keys. A block of keys that starts after the last query has no "
     "allowed pair. Leave such blocks out.",
     (VISITED, "len(starts)")),
    ("visits rounded down",
     "Your count of visited blocks is rounded down. A block of keys that the last query sees only "
     "in part must be visited too, so round up.",
     (VISITED, "(last + 1) // block_k")),
    ("opposite triangle",
     "You count the tiles of the opposite triangle. Query i may see keys up to i, not keys from "
     "i on. A block of keys needs no mask if it ends at or before the first query, and must be "
     "visited if it starts at or before the last query.",
     (WHOLE, "sum(j >= last for j in starts)"),
     (VISITED, "sum(min(j + block_k, L) - 1 >= first for j in starts)")),
    ("only blocks seen in full",
     "Your second number counts only blocks that the last query sees in full. A block that it sees "
     "in part must be visited too. Count every block that starts at or before the last query.",
     (VISITED, "sum(min(j + block_k, L) - 1 <= last for j in starts)")),
    ("last visited counted twice, up to the end",
     "Your second number is one too large, except where all blocks of keys must be visited. Blocks "
     "are numbered from 0, so if the last visited block has number n, then n + 1 are visited.",
     (VISITED, "min(last // block_k + 2, len(starts))")),
    ("next key taken as seen",
     "Your first number also counts a block that ends one position after the first query. The "
     "first query may not see that key, so this block needs a mask.",
     ("- 1 <= first", "- 2 <= first")),
    ("one masked tile after the whole", ONE_MASKED, (VISITED, "no_mask + 1")),
    ("one masked tile after the whole, short block masked",
     ONE_MASKED + " The last key of a shorter last block is L − 1. So that block needs no mask if "
     "the first query of the block of queries may see key L − 1.",
     (WHOLE, "(first + 1) // block_k"), (VISITED, "no_mask + 1")),
    ("one block too many",
     "You also count a block of keys whose first key comes right after the last query. None of the "
     "queries may see that key, so leave the block out.",
     ("j <= last", "j <= last + 1")),
    ("one block too many at the end",
     "You visit one block of keys too many where a block ends at the last query's own position. "
     "The queries see nothing after that position. Count a block only if it starts at or before "
     "the last query.",
     (VISITED, "(last + 1) // block_k + 1")),
    ("number of the last visited",
     "You visit one block too few. Blocks are numbered from 0, so if the last visited block "
     "has number n, then n + 1 are visited.",
     (VISITED, "last // block_k")),
    ("last visited counted twice",
     "You visit one block too many in each row. Blocks are numbered from 0, so if the last "
     "visited block has number n, then n + 1 are visited.",
     (VISITED, "last // block_k + 2")),
    ("own block taken as whole",
     "You count one block of keys too many as needing no mask. Take the position of the first "
     "query in a block of queries. The block of keys that contains this position needs a mask, "
     "unless it ends exactly there.",
     (WHOLE, "first // block_k + 1")),
    ("blocks exchanged",
     "Your result is what you get with block_q and block_k exchanged. There is one row per block "
     "of queries, and each block has block_q queries.",
     ("L, block_q, block_k)", "L, block_k, block_q)")),
    ("whole by the last query",
     "For your first number, you ask what the last query of the block sees. A tile needs no mask "
     "only if its *first* query, which sees the fewest keys, sees all of it. Use that one.",
     ("<= first", "<= last")),
    ("own key forgotten",
     "You count a block of keys as needing a mask if it ends at the first query's own position. "
     "The first query sees its own key, so this block needs no mask.",
     ("- 1 <= first", "<= first")),
    ("own key not seen",
     "Both of your numbers leave out a query's own key. Query i sees keys up to i, not up to i "
     "− 1.",
     ("- 1 <= first", "<= first"),
     ("j <= last", "j < last")),
    ("own key not visited",
     "You visit one block too few where a block of keys starts at the last query's own position. "
     "The last query sees that key, so count the block.",
     ("j <= last", "j < last")),
    ("one mask in each row",
     "Your result has exactly one masked tile in each row of tiles. The diagonal can cross "
     "several tiles of a row, and it crosses none where a tile ends at the first query's own "
     "position. Compare the end of each tile with the first query.",
     (WHOLE, VISITED + " - 1")),
    ("visited by the first query",
     "For your second number, you ask what the first query of the block sees. A tile is visited if "
     "*any* query sees part of it, so ask what the last query sees: it sees the most.",
     (VISITED, "sum(j <= first for j in starts)")),
    ("skipped for visited",
     "Your second number counts the skipped tiles. Count the visited ones.",
     (VISITED, "sum(j > last for j in starts)")),
    ("keys counted",
     "You count keys. Count blocks of keys.",
     (WHOLE, "first + 1"),
     (VISITED, "last + 1")),
    ("short last keys missed",
     "You count a shorter last block of keys as needing a mask even where it needs none. Its last "
     "key is L − 1. So it needs no mask if the first query of the block of queries may see key L − "
     "1.",
     (WHOLE, "(first + 1) // block_k")),
    ("visits past the end",
     "For a shorter last block of queries, you visit keys after its last query. This block ends "
     "at L, so its last query is L − 1.",
     (VISITED, "-(-(first + block_q) // block_k)")),
    ("last blocks taken as full",
     "Your result is right, except where the last block of queries or keys is shorter. Such a "
     "block ends at L. Use L for its end.",
     (WHOLE, "(first + 1) // block_k"),
     (VISITED, "-(-(first + block_q) // block_k)")),
    ("masked in front",
     "Your first number counts the tiles that need a mask. Count those that need *no* mask.",
     ("[no_mask,", "[visited - no_mask,")),
    ("only the masked",
     "Your second number counts only the tiles that need a mask. Count all visited tiles.",
     ("visited])", "visited - no_mask])")),
    ("visits swapped",
     "Your two numbers are in the wrong order. First return the tiles without a mask, then the "
     "visited ones.",
     ("[no_mask, visited]", "[visited, no_mask]")),
    ("last queries dropped",
     "Your last block of queries is missing when block_q does not divide L. It is shorter, but "
     "it needs a row too.",
     ("range(0, L, block_q)", "range(0, L // block_q * block_q, block_q)")),
    ("totals alone",
     "Your result is the total over all blocks of queries. Return one row per block of queries.",
     ("torch.tensor(result)", "torch.tensor(result).sum(dim=0)")),
]  # fmt: skip

exercise = Exercise(
    "6.3", tiles_to_visit, inputs, MISTAKES, names="blocks 2",
    also_right=[pair_by_pair, by_formula],
)  # fmt: skip
